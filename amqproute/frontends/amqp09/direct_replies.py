# SPDX-License-Identifier: Apache-2.0
"""Direct reply-to: replies to the channel that has asked, without a queue of the client's own.

A client consumes from the pseudo-queue ``amq.rabbitmq.reply-to``, without acknowledgements, and
names it as the reply-to of its requests. What the responder gets to see is the reply address of the
channel, to which it publishes by the default exchange; see `amqproute.broker.reply_addresses`. The
address ends with the consumer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from amqproute.broker.queue import Queue
from amqproute.broker.reply_addresses import REPLY_QUEUE
from amqproute.errors import PreconditionFailed
from amqproute.frontends.amqp09.channel_base import ChannelBase
from amqproute.frontends.amqp09.channel_consumer import ChannelConsumer
from amqproute.values import Principal
from amqproute.wire.amqp09.arguments import encode_properties
from amqproute.wire.amqp09.contents import Publish

__all__ = ["DirectReplyConsumer", "address_replies"]


class DirectReplyConsumer(ChannelConsumer):
    """Takes the replies to requests of a channel.

    Args:
        owner: the channel.
        queue: the queue of the reply address.
        name: that address.
        tag: the consumer tag.
    """

    __slots__ = ("_queue",)

    def __init__(self, owner: ChannelBase, queue: Queue, name: str, tag: str) -> None:
        super().__init__(owner, queue, name, tag, no_ack=True)
        self._queue = queue
        self.dynamic = True

    def check_access(self, principal: Principal) -> None:
        """See `NodeEndpoint.check_access`: nobody else has a right to it."""

    def stop(self) -> None:
        """See `ChannelConsumer.stop`: the address ends."""
        if self._is_over:
            return
        super().stop()
        self._owner.reply_address = None
        self._owner.queues.end_reply_queue(self._queue)


def address_replies(
    publishes: Sequence[Publish], address: str | None
) -> tuple[Sequence[Publish], PreconditionFailed | None]:
    """Write the reply address of a channel into requests that name the pseudo-queue.

    Args:
        publishes: the publishes, in order; what is in them may be shared with others.
        address: the address of the channel; None if it has none.

    Returns:
        Those that can be put, and why the next one cannot be.
    """
    for place, publish in enumerate(publishes):
        if publish.properties.reply_to != REPLY_QUEUE:
            continue
        if address is None:
            words = f"the reply-to is {REPLY_QUEUE} and nobody consumes from it on the channel"
            return publishes[:place], PreconditionFailed(words)
        publish.properties = replace(publish.properties, reply_to=address)
        publish.property_octets = encode_properties(publish.properties)
    return publishes, None
