# SPDX-License-Identifier: Apache-2.0
"""Removal of cached DNS answers: the operation FORGET of ``$management``.

The application property ``name`` is a domain, or an address there. The daemon drops what it has
cached about that domain: answers of name servers, and the refusal of messages for it. Nothing else
changes; the next message for the domain causes a new lookup. `amqproute explain` and `amqproute
peer test` do this before their own lookups, so that the daemon acts by the same answers.

It takes the right `manage` on the relay queue of the domain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from amqproute.address import Address, parse
from amqproute.auth.policy import Verb
from amqproute.errors import InvalidField
from amqproute.routing.table import Router
from amqproute.services.command_schema import FORBIDDEN
from amqproute.services.management_node import (
    BAD_REQUEST,
    OK,
    ManagementReply,
    ManagementRequest,
    ManagementService,
)
from amqproute.services.management_protocol import Allows
from amqproute.values import RELAY_PREFIX, NextHop, Principal

__all__ = ["FORGET", "DnsFlush", "asked_hop", "register"]

FORGET = "FORGET"


class DnsMemory(Protocol):
    """A cache of DNS answers; `relay.Relay` in the daemon."""

    def forget(self, hop: NextHop) -> None:
        """Drop the cached answers about a hop."""


@dataclass(frozen=True, slots=True)
class DnsFlush:
    """What removal of cached answers needs.

    Attributes:
        memory: holds the cache.
        router: returns the router in force.
        allows: the access rules.
    """

    memory: DnsMemory
    router: Callable[[], Router]
    allows: Allows


def register(service: ManagementService, flush: DnsFlush) -> None:
    """Add the operation to the management node."""

    def forget(request: ManagementRequest) -> ManagementReply:
        asked = asked_hop(flush, str(request.properties.get("name", "")), request.principal)
        if isinstance(asked, ManagementReply):
            return asked
        _, hop = asked
        flush.memory.forget(hop)
        return ManagementReply.of(
            OK, f"what the DNS has said of {hop.key} is forgotten", {"hop": hop.key}
        )

    service.offer(FORGET, forget)


def asked_hop(
    flush: DnsFlush, text: str, principal: Principal
) -> tuple[Address, NextHop] | ManagementReply:
    """Return an address and its next hop; a refusal, without the right to manage that.

    Args:
        flush: knows the routes and the rights.
        text: a domain of another broker, or an address there.
        principal: who asks.
    """
    try:
        address = parse(text if "@" in text else f"@{text}")
    except InvalidField as error:
        return ManagementReply.of(BAD_REQUEST, error.description)
    router = flush.router()
    if address.domain is None or address.domain in router.own_names:
        return ManagementReply.of(BAD_REQUEST, f"{text[:256]!r} names no domain of another broker")
    hop = router.hop(address.domain, address.node)
    queue = RELAY_PREFIX + hop.key
    if not flush.allows(principal, Verb.MANAGE, queue):
        return ManagementReply.of(FORBIDDEN, f"{principal} may not manage {queue!r}")
    return address, hop
