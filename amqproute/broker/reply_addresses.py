# SPDX-License-Identifier: Apache-2.0
"""Addresses of direct reply-to: ``amq.rabbitmq.reply-to.TOKEN``.

A channel of 0-9-1 that consumes from the pseudo-queue ``amq.rabbitmq.reply-to`` gets a queue with
an unguessable name of its own, to which its requests have the responders reply. Whoever knows the
name has received a request: to reply to it takes no access rule. Nobody else can receive from it,
and for all other methods there is no such queue. It ends with its consumer.

The queue is a dynamic node, so replies of clients of AMQP 1.0 and of other organizations find it
(`amqproute.services.reply_paths`). It keeps nothing on the disk.
"""

from __future__ import annotations

from typing import Final

from amqproute.address import local_name
from amqproute.broker.dynamic_node_terms import DynamicTerms
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.node_options import Durability, QueueOptions

__all__ = ["REPLY_QUEUE", "REPLY_TERMS", "is_reply_name", "reply_name"]

REPLY_QUEUE: Final = "amq.rabbitmq.reply-to"
"""The pseudo-queue; clients also write it into the reply-to of their requests."""
_PREFIX: Final = REPLY_QUEUE + "."
REPLY_TERMS: Final = DynamicTerms(
    limits=QueueLimits(capacity=10_000, octets=64 * 1024 * 1024, priorities=1),
    options=QueueOptions(durability=Durability.TRANSIENT),
)
"""Replies wait in memory for a client that does not read; beyond this they are refused."""


def reply_name(token: str) -> str:
    """Return the name of the queue of an unguessable token."""
    return _PREFIX + token


def is_reply_name(name: str) -> bool:
    """Tell whether a name, in a virtual host or within the broker, could be a reply address."""
    return local_name(name).startswith(_PREFIX)
