# SPDX-License-Identifier: Apache-2.0
"""Accepted connections, independent of the protocol.

`ClientConnection` knows the principal and its part of shared resources: its contract, memory that
waits for the disk, transactions, the memory of its sessions and links. The frontend of a protocol
is a subclass: it has the engine, turns its events into calls of the broker, and fills in the
abstract methods, which the daemon and operators need of every connection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute import conditions
from amqproute.address import host_label
from amqproute.auth.realm import LogInTransport
from amqproute.broker.local_transaction import Transaction, TransactionTerms
from amqproute.broker.outgoing_memory import OutgoingMemory
from amqproute.broker.partial_delivery_eviction import PartialDelivery
from amqproute.broker.publish_gate import LEAST_PART, HeldMemory
from amqproute.broker.receipts import Receipts, Stream
from amqproute.broker.transaction_registry import TransactionRegistry
from amqproute.conditions import Condition
from amqproute.errors import AmqpError, ResourceLimitExceeded, UnauthorizedAccess
from amqproute.frontends.common.connection_policy import ConnectionPolicy
from amqproute.frontends.common.contract_enforcement import RETRY_SECONDS, ActiveContract
from amqproute.frontends.common.endpoint_memory import EndpointMemory, EndpointQuota
from amqproute.frontends.common.event_batch import EventBatch
from amqproute.frontends.common.frontend_limits import FrontendLimits
from amqproute.frontends.common.node_access import NodeAccess
from amqproute.frontends.common.node_endpoint import NodeEndpoint
from amqproute.frontends.common.partial_deliveries import PartialDeliveries
from amqproute.frontends.common.peer_error_log import PeerErrorLog, short
from amqproute.interfaces import IConnectionPump, IHops, INode
from amqproute.journal.event import RunEvent
from amqproute.journal.record import RecordKind
from amqproute.log_rate_limit import RateLimitedLog, and_more, source_of
from amqproute.net.pump import TransportFacts
from amqproute.values import ANONYMOUS_PRINCIPAL, NextHop, Origin, Principal, owner_of

__all__ = ["ClientConnection", "FrontendContext"]

MOST_LOGGED: Final = 20
"""Refused connections of one listener and one reason that are logged one by one; see
`RateLimitedLog`."""

LONGEST_TIMER: Final = 3600.0
"""Seconds after which the end of a token is looked at again."""

IsRemoved = Callable[[INode, str | None], bool]
"""Returns, for a node and the address of its attach, whether it has been removed."""


class FrontendContext:
    """Context shared by all connections of a daemon.

    Args:
        nodes: the local nodes, as clients and peers may use them.
        hops: the next hops.
        receipts: the receipts of peers.
        limits: bounds of a connection.
        now_ms: the wall clock.
        transactions: the terms of local transactions; their clock is that of the engines, too.
        policy: decisions of the daemon about connections.
        stream: the name of our store, as the stream of its entry ids.

    Attributes:
        broker: the local nodes.
        seconds: the monotonic clock of the engines.
        connections: every connection.
        detaching: functions that are called with an `IsRemoved` after the connections: they end
            state of such nodes that outlives connections.
        lock_seconds: the longest time without an outcome of a delivery (O-04); 0 for no limit.
        consumer_seconds: the same without an acknowledgement in 0-9 and 0-9-1.
        serves, peer_opened, seen, contracts, hosts: of the policy.
        unauthenticated_log: keeps refused connections from filling the log.
        memory: octets of messages on their way in, of all connections.
        partial_deliveries: unfinished deliveries of all connections.
        endpoint_memory: memory of the sessions and links of all connections.
        outgoing: octets of messages held by receivers, and the part of each of them.
        is_stopping: the daemon is being stopped.
    """

    __slots__ = (
        "broker",
        "connections",
        "consumer_seconds",
        "contracts",
        "detaching",
        "endpoint_memory",
        "hops",
        "hosts",
        "is_stopping",
        "limits",
        "lock_seconds",
        "memory",
        "nodes",
        "now_ms",
        "outgoing",
        "partial_deliveries",
        "peer_opened",
        "receipts",
        "seconds",
        "seen",
        "serves",
        "stream",
        "transactions",
        "unauthenticated_log",
    )

    def __init__(
        self,
        nodes: NodeAccess,
        hops: IHops,
        receipts: Receipts,
        limits: FrontendLimits,
        now_ms: Callable[[], int],
        transactions: TransactionTerms,
        policy: ConnectionPolicy,
        stream: str = "",
    ) -> None:
        self.broker = broker = nodes.broker
        self.nodes = nodes
        self.hops = hops
        self.receipts = receipts
        self.limits = limits
        self.now_ms = now_ms
        clock = transactions.clock
        self.seconds: Callable[[], float] = clock.seconds
        self.transactions = transactions
        self.contracts = policy.contracts
        self.hosts = policy.hosts
        self.serves = policy.serves
        self.lock_seconds = 0.0
        self.consumer_seconds = 0.0
        self.peer_opened = policy.peer_opened
        self.seen = policy.seen
        self.stream = stream
        self.is_stopping = False
        self.connections: set[ClientConnection] = set()
        self.detaching: list[Callable[[IsRemoved], None]] = []
        self.unauthenticated_log = RateLimitedLog(self.seconds, MOST_LOGGED)
        self.memory = HeldMemory(broker.gate, limits.memory_bytes)
        self.partial_deliveries = PartialDeliveries(
            self.memory, self.connections, clock, limits.delivery_seconds
        )
        self.endpoint_memory = EndpointMemory(limits.memory_bytes)
        self.outgoing = OutgoingMemory(limits.memory_bytes)
        broker.gate.watch(self._gate_changed)

    def _gate_changed(self) -> None:
        """Adjust the credit of all publishers."""
        for connection in tuple(self.connections):
            connection.grant()

    def detach_from(self, is_removed: IsRemoved) -> None:
        """End the links, attached or suspended, to nodes or aliases that are gone (L-03, A-05)."""
        for connection in tuple(self.connections):
            connection.detach_from(is_removed)
        for detach in self.detaching:
            detach(is_removed)

    def detach_unauthorized(self) -> int:
        """Detach the links whose access was revoked; return their number.

        Called when the access rules have changed. The access of a suspended link is checked when it
        comes back.
        """
        return sum([each.detach_unauthorized() for each in tuple(self.connections)])


def _nothing() -> None:
    """There is no transport to write to."""


class ClientConnection(ABC):
    """One accepted connection.

    Args:
        context: what all connections have in common.
        facts: facts about the transport.
        listener: its listener, for the log.

    Attributes:
        principal: the principal; anonymous until proved otherwise.
        contract: its contract, once it has opened; None without contracts.
        is_lost: whether it is gone.
        is_held: whether reading is paused because too much waits for the disk.
        is_paused: whether writing is paused because the transport's buffer is full.
        probe: the id of a prober; empty for others.
        flush: has the engine's output written in this turn of the reactor; does nothing while there
            is no transport.
    """

    log = Logger()

    def __init__(
        self,
        context: FrontendContext,
        facts: TransportFacts,
        listener: Hashable = None,
    ) -> None:
        self.context = context
        self.limits = context.limits
        self.now_ms = context.now_ms
        self.facts = facts
        self.principal: Principal = ANONYMOUS_PRINCIPAL
        self.contract: ActiveContract | None = None
        self.since_ms = context.now_ms()
        self.is_paused = False
        self.is_held = False
        self.is_lost = False
        self.probe = ""
        self._listener = listener
        self._pump: IConnectionPump | None = None
        self.flush: Callable[[], None] = _nothing
        self._uncommitted_bytes = 0
        self._party: tuple[str, Hashable] | None = None
        self._expiry: IDelayedCall | None = None
        self._is_logged_out = False

    # -- its parts: they know it, so it drops them when it is lost --------------------------------

    @cached_property
    def transactions(self) -> TransactionRegistry:
        """Its open transactions."""
        return TransactionRegistry(
            self.context.transactions, self._timed_out, lambda: self.principal
        )

    @cached_property
    def event_batch(self) -> EventBatch:
        """The batch of the events that are being handled."""
        return EventBatch(self, self.context.broker)

    @cached_property
    def error_log(self) -> PeerErrorLog:
        """The faults of the other side."""
        return PeerErrorLog(
            self.log, self.context.seconds, self._log_fields, self._note_messages_refused
        )

    @cached_property
    def endpoint_quota(self) -> EndpointQuota:
        """Memory quota of its sessions and links."""
        quota = EndpointQuota(self, self.context.endpoint_memory)
        if self.is_lost:
            quota.end()
        return quota

    def _drop_parts(self) -> None:
        """Break circles of references when no operation is in progress any more.

        A late event finds each part made again, and empty.
        """
        if (
            self.event_batch.is_idle
            and not self.event_batch.is_in_progress
            and not self._uncommitted_bytes
            and not len(self.transactions)
            and not self.endpoint_quota.is_used
        ):
            for name in tuple(self.__dict__):
                if isinstance(getattr(type(self), name, None), cached_property):
                    del self.__dict__[name]

    # -- who is there ----------------------------------------------------------------------------

    @property
    def party(self) -> tuple[str, Hashable]:
        """The party whose share of a bound it uses, and its member.

        Users and peers are parties, their connections the members. All anonymous clients are one
        party, and its members are their addresses. Not to be used before the connection is open.
        """
        if self._party is None:
            member = source_of(self.facts.host or "") if self.is_anonymous else id(self)
            self._party = (str(self.principal), member)
        return self._party

    @property
    def owner(self) -> str:
        """The owner of its links (`amqproute.values.owner_of`). Not to be used before the open."""
        return owner_of(self.principal, self.facts.host or "")

    @property
    def is_anonymous(self) -> bool:
        """Whether the client has proved no identity."""
        return self.principal.kind == ANONYMOUS_PRINCIPAL.kind

    @property
    def is_stopping(self) -> bool:
        """Whether the daemon is stopping: no new messages are taken or delivered."""
        return self.context.is_stopping

    @property
    def is_idle(self) -> bool:
        """Whether nothing of this connection waits for the store."""
        return self.event_batch.is_idle

    def log_in_facts(self) -> LogInTransport:
        """Return the transport's facts for authentication."""
        facts = self.facts
        return LogInTransport(
            facts.host or "",
            facts.tls_version is not None,
            tuple(sorted(facts.certificate_domains)),
            facts.unix_uid,
        )

    def enter(self, host: str) -> None:
        """Enter a virtual host; see `VirtualHosts.enter`.

        Raises:
            AmqpError: it may not be there.
        """
        self.principal = self.context.hosts.enter(self.principal, host)

    def expire_at(self, expires: float | None) -> None:
        """Close the connection when the token expires by which its client has logged in.

        Args:
            expires: seconds since the epoch; None for a log-in without an end.
        """
        self._stop_expiry()
        if expires is None or self.is_lost:
            return
        # In steps: the wall clock may be set meanwhile.
        step = max(0.0, min(expires - self.now_ms() / 1000, LONGEST_TIMER))
        self._expiry = self.context.transactions.clock.callLater(
            step, self._look_at_expiry, expires
        )

    def _look_at_expiry(self, expires: float) -> None:
        self._expiry = None
        if self.now_ms() / 1000 < expires:
            self.expire_at(expires)
            return
        self.log.info(
            "{connection} ({principal}) is closed: its token has expired", **self._log_fields()
        )
        self.close(conditions.UNAUTHORIZED_ACCESS, "the token of the log-in has expired")

    def renew(self, principal: Principal) -> None:
        """See `amqproute.auth.log_in_recheck.LogIn.renew`: links without a right are detached."""
        self.principal = replace(principal, host=self.principal.host)
        self.detach_unauthorized()

    def end_log_in(self, words: str) -> None:
        """See `amqproute.auth.log_in_recheck.LogIn.end_log_in`."""
        if self._pump is not None and not self._is_logged_out:
            self._is_logged_out = True
            self.log.info(
                "{connection} ({principal}) is closed: {words}", words=words, **self._log_fields()
            )
            self.close(conditions.UNAUTHORIZED_ACCESS, words)

    def _stop_expiry(self) -> None:
        if self._expiry is not None and self._expiry.active():
            self._expiry.cancel()
        self._expiry = None

    @property
    def host_in_words(self) -> str:
        """The virtual host for the log; empty for ``/``."""
        host = self.principal.host
        return f" in virtual host {host}" if host else ""

    def origin(self, link: str, container_id: str = "") -> Origin:
        """Return the origin of the messages of a link of this connection."""
        return Origin(
            self.principal,
            self.principal.kind == "peer",
            container_id,
            connection=self.facts.remote,
            link=link,
            level=self.facts.level,
            protocol=self.journal_protocol or "",
        )

    def admit_principal(self) -> None:
        """Count the connection against its principal's share and contract, when it opens.

        Raises:
            ResourceLimitExceeded: it is one too many.
        """
        # Only now: a client that logs in and then is silent can be evicted for others.
        excess = (
            self._pump.identified(self.principal.kind, str(self.principal))
            if self._pump is not None
            else None
        )
        contracts = self.context.contracts
        if contracts is not None:
            contract = contracts.of(self.principal)
            contract.connect(self)
            self.contract = contract
        if excess is not None and (
            self.contract is None or self.contract.terms.connections is None
        ):
            raise ResourceLimitExceeded(
                f"{self.principal} has more than its share of connections: {excess}; "
                "a contract may name another number",
                info={"limiter": "connections", "retry-after": RETRY_SECONDS},
            )

    @property
    def journal_protocol(self) -> str | None:
        """Name of its protocol in the journal; None for AMQP 1.0."""
        return None

    # -- the transport ---------------------------------------------------------------------------

    def connected(self, pump: IConnectionPump) -> None:
        """See `IConnectionUser.connected`."""
        self._pump = pump
        self.flush = pump.schedule_flush
        self.context.connections.add(self)

    def secured(self, facts: TransportFacts) -> None:
        """Note that the connection has been upgraded to TLS."""
        self.facts = facts

    @abstractmethod
    def events(self, events: Sequence[object]) -> None:
        """See `IConnectionUser.events`: one `EventBatch` for all of them."""

    def paused(self) -> None:
        """See `IConnectionUser.paused`."""
        self.is_paused = True

    def writable(self) -> None:
        """See `IConnectionUser.writable`."""
        self.is_paused = False
        for endpoint in self.endpoints():
            endpoint.dispatch()

    def lost(self, reason: Failure) -> None:
        """See `IConnectionUser.lost`."""
        self.context.connections.discard(self)
        self.context.partial_deliveries.holds(self, 0)
        self.end_endpoints()
        if self.contract is not None:
            self.contract.disconnect(self)
        self.context.hosts.leave(self.principal)
        self._stop_expiry()
        self.error_log.log_suppressed()
        self._pump = None
        self.flush = _nothing
        self.is_lost = True
        self.endpoint_quota.end()
        self._drop_parts()

    def end_endpoints(self) -> None:
        """End all endpoints with the connection, and return the entries they held."""
        for endpoint in self.endpoints():
            endpoint.leave()

    def drop(self, words: str) -> None:
        """End the connection without a word to the other side."""
        if self._pump is None:
            return
        self.error_log.add("{connection} ({principal}) dropped: {words}", words=words)
        self._pump.abort()

    # -- what waits for the disk -----------------------------------------------------------------

    def hold(self, size: int) -> None:
        """Pause reading while too many octets wait for the disk: credit counts messages only.

        The bound is lower where memory runs short: connections that hold most wait first.
        """
        held = self._uncommitted_bytes = self._uncommitted_bytes + size
        self.context.memory.hold(size)
        if held <= LEAST_PART and held <= self.limits.uncommitted_bytes:
            return  # so much each connection may hold in any case
        if self._pump is not None and held > self._most_bytes:
            self.is_held = True
            self._stop_reading()

    @property
    def _most_bytes(self) -> int:
        part = self.context.memory.part(len(self.context.connections))
        return min(self.limits.uncommitted_bytes, part)

    def release(self, size: int) -> None:
        """Release octets that are on the disk, or were dropped."""
        self._uncommitted_bytes -= size
        self.context.memory.release(size)
        if self.is_held and self._uncommitted_bytes <= self._most_bytes:
            self.is_held = False
            self._read_on()
        if self.is_lost:
            self._drop_parts()

    def _stop_reading(self) -> None:
        """Stop reading from the transport."""
        if self._pump is not None:
            self._pump.hold_reading()

    def _read_on(self) -> None:
        """Resume reading after `hold`, unless a protocol has reasons of its own against it."""
        if self._pump is not None:
            self._pump.release_reading()

    def admit(self, hop: NextHop) -> Deferred[None]:
        """Look a next hop up. See `IHops.admit`."""
        return self.context.hops.admit(hop, Origin(self.principal, connection=self.facts.remote))

    def conclude(self, transaction: Transaction) -> None:
        """Notify the links of the end of a transaction."""
        with self.event_batch:
            transaction.conclude()
        self.flush()

    def _timed_out(self, transaction: Transaction) -> None:
        self.error_log.add(
            "{connection} ({principal}) transaction {transaction} rolled back: idle for "
            "{seconds} s",
            transaction=transaction.id.hex(),
            seconds=self.context.transactions.limits.timeout_seconds,
        )
        self.conclude(transaction)

    def forget_receipts(self, stream: Stream, floor: int) -> None:
        """Forget receipts below the floor, which a relaying peer has announced."""
        batch = self.context.broker.begin()
        if stream.forget_below(floor, batch.transaction):
            batch.commit().addErrback(self.broken, "forgetting receipts")

    def forget_stream(self, key: str) -> None:
        """Forget all receipts of a stream that its peer has ended."""
        batch = self.context.broker.begin()
        batch.transaction.forget_stream(key)
        batch.commit().addErrback(self.broken, "forgetting a stream of receipts")

    # -- what goes wrong -------------------------------------------------------------------------

    def seen(self, step: str, code: object, words: str) -> None:
        """Report the result of a prober, or of a refused connection."""
        remote, who = self.facts.remote, str(self.principal)
        self.context.seen(step, remote, who, str(code), short(words), self.probe)

    def _log_fields(self) -> dict[str, str]:
        return {"connection": self.facts.remote, "principal": str(self.principal)}

    def _log_unauthenticated(self, kind: str, text: str, **fields: Any) -> None:
        """Log an event of a connection that was never opened, with a limited rate."""
        count = self.context.unauthenticated_log.due((self._listener, kind))
        if count:
            self.log.warn(text, connection=self.facts.remote, more=and_more(count), **fields)

    def _note_messages_refused(self, link: str, node: str, error: AmqpError, count: int) -> None:
        """Record refused messages in the journal."""
        journal = self.context.broker.journal
        if journal.is_kept:
            facts = {
                "node": node,
                "link": link,
                "sender": str(self.principal),
                "connection": self.facts.remote,
                "level": self.facts.level,
                "protocol": self.journal_protocol,
                "count": count,
                "condition": str(error.condition),
                "code": (error.info or {}).get("code"),
                "words": error.description,
            }
            journal.note(RunEvent(RecordKind.REJECTED, journal.now_us(), facts))

    def broken(self, failure: Failure, doing: str) -> None:
        """Log a fault of this program."""
        self.log.failure(
            "{connection}: {doing} failed",
            failure,
            connection=self.facts.remote,
            principal=str(self.principal),
            doing=doing,
        )

    # -- for the daemon and its operators --------------------------------------------------------

    @property
    def holds_nothing(self) -> bool:
        """Whether no consumer on this connection holds unsettled deliveries."""
        return not any(each.held_bytes for each in self.endpoints())

    @property
    def link_count(self) -> int:
        """Number of its endpoints."""
        return sum(1 for _ in self.endpoints())

    @property
    def channel_count(self) -> int:
        """Number of its channels of AMQP 0-9-1."""
        return 0

    @abstractmethod
    def endpoints(self) -> Iterator[NodeEndpoint]:
        """Iterate over its endpoints at nodes."""

    def row(self) -> dict[str, object]:
        """Return the row for operators; a frontend adds what its protocol knows."""
        return {
            "name": self.facts.remote,
            "principal": str(self.principal),
            "container": "",
            "tls": self.facts.tls_version or "",
            "virtual-host": host_label(self.principal.host),
            "protocol": self.journal_protocol or "AMQP 1.0",
            "since-ms": self.since_ms,
            "age-ms": max(0, self.now_ms() - self.since_ms),
            "links": self.link_count,
            "credit-in": 0,
            "credit-out": 0,
            "unsettled": 0,
            "transactions": len(self.transactions),
        }

    def link_rows(self) -> Iterator[dict[str, object]]:
        """Describe each link (G-17)."""
        return (make(name) for name, make in self.link_index())

    def link_index(self) -> Iterator[tuple[str, Callable[[str], dict[str, object]]]]:
        """Return the names of the links, each with a function that makes its row.

        The functions raise `KeyError` once the link has gone.
        """
        return ((each.name, partial(self._endpoint_row, each)) for each in self.endpoints())

    def _endpoint_row(self, endpoint: NodeEndpoint, name: str) -> dict[str, object]:
        return self.link_row(name, "link", endpoint.direction, endpoint.address)

    def transaction_rows(self) -> Iterator[dict[str, object]]:
        """Describe each open transaction of the connection; distributed ones are `branch` rows."""
        common = {
            "connection": self.facts.remote,
            "principal": str(self.principal),
            "virtual-host": host_label(self.principal.host),
            "protocol": self.journal_protocol or "AMQP 1.0",
        }
        return ({**row, **common} for row in self.transactions.rows())

    def link_row(
        self, name: str, kind: str, direction: str, address: str | None
    ) -> dict[str, object]:
        """Return the facts that the row of every link has."""
        return {
            "name": name,
            "type": "link",
            "kind": kind,
            "direction": direction,
            "address": address,
            "virtual-host": host_label(self.principal.host),
            "connection": self.facts.remote,
            "principal": str(self.principal),
        }

    def detach_named(self, name: str) -> int:
        """Detach the links with this name for an operator (G-13); return their number."""
        found = [each for each in self.endpoints() if each.name == name and each.is_active]
        for endpoint in found:
            endpoint.detach(conditions.LINK_DETACH_FORCED, "an operator closed this link")
        return len(found)

    def close(self, condition: Condition, words: str) -> None:
        """Close the connection from our side, in the protocol's own terms."""
        if self._pump is not None:
            self._pump.close_with(condition, words)

    def stop_taking(self) -> None:
        """Revoke the senders' credit; called when the daemon stops."""
        for endpoint in self.endpoints():
            endpoint.stop_taking()
        self.flush()

    def grant(self) -> None:
        """Adjust the senders' credit."""
        for endpoint in self.endpoints():
            endpoint.grant()

    def apply_terms(self, contract: ActiveContract) -> None:
        """Apply changed terms to the senders' links."""
        for endpoint in self.endpoints():
            endpoint.apply_terms(contract)

    def detach_from(self, is_removed: IsRemoved) -> None:
        """Detach links whose node or alias is not there any more (L-03, A-05)."""
        for endpoint in self.endpoints():
            node, address = endpoint.node, endpoint.address
            if node is not None and endpoint.is_active and is_removed(node, address):
                endpoint.detach(conditions.RESOURCE_DELETED, f"{address} does not exist any more")

    def detach_unauthorized(self) -> int:
        """Detach links whose access was revoked; return their number."""
        count = 0
        for endpoint in self.endpoints():
            if endpoint.is_active:
                try:
                    endpoint.check_access(self.principal)
                except UnauthorizedAccess as error:
                    count += 1
                    endpoint.detach(error.condition, error.description)
        return count

    # -- unfinished input: see `partial_deliveries.InputHolder` ----------------------------------
    # A frontend whose engine bounds the input that it holds by itself leaves these as they are.

    def held_input(self) -> int:
        """Return the octets that its engine holds of the peer's input."""
        return 0

    def partial_deliveries(self, are_all: bool) -> list[PartialDelivery[Hashable]]:
        """Return its unfinished deliveries: those in memory, or all."""
        return []

    def partial_delivery(self, key: Hashable) -> PartialDelivery[Hashable] | None:
        """Return one of them; None if it is unfinished no more."""
        return None

    def spill(self, key: Hashable) -> None:
        """Write the present part of a delivery to disk, and the rest as it arrives."""
        raise KeyError(key)

    def end_partial(self, key: Hashable, words: str) -> None:
        """End a delivery with its link, or an incomplete frame with the connection."""
        self.drop(words)
