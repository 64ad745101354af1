# SPDX-License-Identifier: Apache-2.0
"""What all frontends of a daemon have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from amqproute.broker.broker import Broker
from amqproute.broker.local_transaction import TransactionTerms
from amqproute.broker.outgoing_memory import OutgoingMemory
from amqproute.broker.publish_gate import HeldMemory
from amqproute.broker.receipts import Receipts
from amqproute.frontends.contract_enforcement import ActiveContracts
from amqproute.frontends.endpoint_memory import EndpointMemory
from amqproute.frontends.frontend_limits import FrontendLimits
from amqproute.frontends.partial_deliveries import PartialDeliveries
from amqproute.frontends.suspended_links import SuspendedLinks
from amqproute.frontends.terminus_resolution import TerminusResolver
from amqproute.log_rate_limit import RateLimitedLog
from amqproute.values import Principal
from amqproute.wire.amqp10.link import Link

if TYPE_CHECKING:
    from amqproute.frontends.connection_frontend import Frontend


MOST_TOLD = 20
"""Lines about those who are not let in, for one reason at one place, one by one; see
`RateLimitedLog`."""


@dataclass(slots=True)
class FrontendContext:
    """What all frontends of a daemon have in common.

    Attributes:
        broker: the local nodes.
        termini: attach to node.
        hops: the ways out, an `IHops`.
        receipts: what peers have delivered already.
        limits: bounds of a connection.
        now_ms: the wall clock.
        seconds: the monotonic clock of the engines.
        transactions: what holds for local transactions.
        frontends: every frontend with a connection.
        links: every attached link, by owner, container-id, name and role: for link stealing.
        serves: whether the host name of an open is one of ours (A-16).
        tolerates_missing_body: whether a message without a body is taken (M-22).
        lock_seconds: how long a receiver may leave a delivery without an outcome (O-04); 0 for
            ever.
        suspended: links that are detached and may come back.
        strangers: keeps those who are not let in from filling the log.
        memory: octets of messages on their way in, of all connections.
        unfinished: deliveries that have begun and not ended, of all connections.
        endpoints: what sessions and links take, of all connections.
        outgoing: octets of messages that receivers hold, and how much each of them may.
        contracts: what each peer and user may ask of us; None: nobody has any.
        stream: the name of our store, by which it numbers its entries.
        when_peer: called with the domains a peer has proved, when it opens.
        when_seen: called with (step, remote, who, code, words, probe) for probes that open, and
            for whoever is refused; see `services.peer_probe`.
    """

    broker: Broker
    termini: TerminusResolver
    hops: Any
    receipts: Receipts
    limits: FrontendLimits
    now_ms: Callable[[], int]
    seconds: Callable[[], float]
    transactions: TransactionTerms
    frontends: set[Frontend] = field(default_factory=set)
    links: dict[tuple[str, str, str, str], tuple[Frontend, Link]] = field(default_factory=dict)
    serves: Callable[[str | None], bool] = lambda _: True
    tolerates_missing_body: Callable[[], bool] = lambda: False
    lock_seconds: Callable[[], float] = lambda: 0.0
    when_peer: Callable[[Principal], None] = lambda _: None
    when_seen: Callable[[str, str, str, str, str, str], None] = lambda *_: None
    contracts: ActiveContracts | None = None
    stream: str = ""
    is_stopping: bool = False
    memory: HeldMemory = field(init=False)
    unfinished: PartialDeliveries = field(init=False)
    endpoints: EndpointMemory = field(init=False)
    outgoing: OutgoingMemory = field(init=False)
    suspended: SuspendedLinks = field(init=False)
    strangers: RateLimitedLog = field(init=False)

    def __post_init__(self) -> None:
        self.strangers = RateLimitedLog(self.seconds, MOST_TOLD)
        self.memory = HeldMemory(self.broker.gate, self.limits.memory_bytes)
        self.unfinished = PartialDeliveries(
            self.memory,
            self.frontends,
            self.transactions.clock,
            self.seconds,
            self.limits.delivery_seconds,
        )
        self.endpoints = EndpointMemory(self.limits.memory_bytes)
        self.outgoing = OutgoingMemory(self.limits.memory_bytes)
        self.broker.gate.watch(self._gate_changed)
        self.suspended = SuspendedLinks(self.transactions.clock, self.limits, self.broker.begin)

    def _gate_changed(self) -> None:
        """Publishers may have credit again, or may not any more."""
        for frontend in tuple(self.frontends):
            frontend.links.grant()

    def detach_from(self, is_gone: Callable[[Any, str | None], bool]) -> None:
        """End the links, attached or suspended, to nodes or aliases that are gone (L-03, A-05).

        Args:
            is_gone: tells it for a node and the address it was attached by.
        """
        for frontend in tuple(self.frontends):
            frontend.links.detach_from(is_gone)
        self.suspended.expire_from(is_gone)

    def detach_unauthorized(self) -> int:
        """End the links whose holders have lost the right to them; return how many.

        Called when the access rules have changed. What a suspended link may is asked when it
        comes back.
        """
        return sum([each.links.detach_unauthorized() for each in tuple(self.frontends)])


__all__ = ["FrontendContext"]
