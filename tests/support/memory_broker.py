# SPDX-License-Identifier: Apache-2.0
"""Whole brokers in memory, on one clock: frontends, relays, clients, and wires between them.

A `Wire` joins two ends; an end is an engine and its user, and replaces the pump. The output of one
end arrives at the other in the next turn of the clock. A wire can be cut at any moment: its
contents are then lost.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionLost
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from amqproute.address import TRANSFER_NODE as TRANSFER
from amqproute.auth.policy import AccessPolicy, Rule, Verb
from amqproute.broker.local_transaction import TransactionTerms
from amqproute.broker.node_declaration import NodeDeclaration
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.receipts import Receipts
from amqproute.conditions import Condition
from amqproute.errors import ConnectError, ResolveError
from amqproute.frontends.amqp10.amqp10_context import Amqp10Context
from amqproute.frontends.amqp10.connection_frontend import Frontend
from amqproute.frontends.amqp10.suspended_links import RESOLVED_NOTES
from amqproute.frontends.amqp10.terminus_resolution import TerminusResolver
from amqproute.frontends.common.client_connection import FrontendContext
from amqproute.frontends.common.connection_policy import ConnectionPolicy
from amqproute.frontends.common.contract_enforcement import ActiveContracts
from amqproute.frontends.common.frontend_limits import FrontendLimits
from amqproute.frontends.common.node_access import NodeAccess
from amqproute.message import Message
from amqproute.net.pump import TransportFacts
from amqproute.relay.connect_agent import ConnectAgent
from amqproute.relay.destination_note import NOTE
from amqproute.relay.relay import Relay
from amqproute.relay.relay_context import RelayEnvironment
from amqproute.relay.relay_terms import RelayTerms
from amqproute.routing.table import Router
from amqproute.services.transfer import PartnerRules, TransferRules, TransferService
from amqproute.trace_context import DROPPED, HopTracing
from amqproute.values import (
    Candidate,
    NextHop,
    Principal,
    Resolution,
    RouteRule,
    TransportSecurity,
)
from amqproute.wire.amqp10 import engine_events as ev
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.connection import Connection
from amqproute.wire.amqp10.link import Delivery, Link
from tests.support.fakes import KeptStore, make_broker, wall
from tests.support.wire import settings

ANN = Principal("user", "ann")


class RelayPolicy(ConnectionPolicy):
    """Notifies a relay of peers that open."""

    def __init__(self, relay: Relay, contracts: ActiveContracts | None = None) -> None:
        super().__init__(contracts)
        self.peer_opened = relay.peer_called  # type: ignore[method-assign]


class End:
    """One end of a wire: the pump of an engine and its user."""

    def __init__(self, wire: Wire, engine: Connection, user: Any) -> None:
        self.wire = wire
        self.engine = engine
        self.user = user
        self.other: End
        self.is_lost = False
        self.is_held = False
        self._call: Any = None
        engine.start(wire.clock.seconds())
        user.connected(self)
        self.schedule_flush()

    def schedule_flush(self) -> None:
        """See `EngineProtocol.schedule_flush`."""
        if self._call is None and not self.is_lost:
            self._call = self.wire.clock.callLater(0, self._flush)

    def close_with(self, condition: Condition, words: str) -> None:
        """See `EngineProtocol.close_with`."""
        self.engine.close_with(condition, words)
        self.schedule_flush()

    def _flush(self) -> None:
        self._call = None
        if self.is_lost:
            return
        data = b"".join(self.engine.data_to_send())
        if data and not self.wire.is_cut:
            self.wire.clock.callLater(0, self.other.receive, data)
        if self.engine.is_closed:
            self.wire.clock.callLater(0, self.lose)
            self.wire.clock.callLater(0, self.other.lose)

    def receive(self, data: bytes) -> None:
        """Take the output of the other end."""
        if self.is_lost or self.wire.is_cut:
            return
        events = self.engine.receive_data(data, self.wire.clock.seconds())
        if events:
            self.user.events(events)
        self._flush_soon()

    def _flush_soon(self) -> None:
        if self._call is not None:
            self._call.cancel()
        self._flush()

    def lose(self) -> None:
        """The transport is gone."""
        if self.is_lost:
            return
        self.is_lost = True
        if self._call is not None:
            self._call.cancel()
            self._call = None
        events = self.engine.receive_eof(self.wire.clock.seconds())
        if events:
            self.user.events(events)
        self.user.lost(Failure(ConnectionLost()))

    def hold_reading(self) -> None:
        """See `EngineProtocol.hold_reading`."""
        self.is_held = True

    def identified(self, kind: str, user: str) -> str | None:
        """See `EngineProtocol.identified`."""
        return None

    def release_reading(self) -> None:
        """See `EngineProtocol.release_reading`."""
        self.is_held = False

    def abort(self) -> None:
        """See `EngineProtocol.abort`."""
        self.wire.cut()


class Wire:
    """Two ends, joined."""

    def __init__(
        self, clock: Clock, left: tuple[Connection, Any], right: tuple[Connection, Any]
    ) -> None:
        self.clock = clock
        self.is_cut = False
        self.left = End(self, *left)
        self.right = End(self, *right)
        self.left.other, self.right.other = self.right, self.left

    def cut(self) -> None:
        """Cut the connection, and lose its contents."""
        if not self.is_cut:
            self.is_cut = True
            self.clock.callLater(0, self.left.lose)
            self.clock.callLater(0, self.right.lose)


class Client:
    """A user of a client-role engine, for tests.

    Attributes:
        events_seen: all events.
        deliveries: deliveries on its receiving links.
        updates: (tag, state, settled) of its sent messages.
        detached: link name to the error of the broker's detach.
        closed: the condition of the end of the connection, if any.
    """

    def __init__(self, house: MemoryBroker, **changes: Any) -> None:
        self.connection = Connection(settings("client", **changes))
        self.house = house
        self.events_seen: list[Any] = []
        self.deliveries: list[Delivery] = []
        self.updates: list[tuple[bytes, Any, bool]] = []
        self.detached: dict[str, Any] = {}
        self.ended: list[Any] = []
        self.closed: Any = None
        self.is_lost = False
        self.pump: Any = None
        self._session: Any = None

    def connected(self, pump: Any) -> None:
        """See `IConnectionUser`."""
        self.pump = pump
        self.connection.open()

    def events(self, events: Sequence[Any]) -> None:
        """See `IConnectionUser`."""
        self.events_seen.extend(events)
        for event in events:
            if isinstance(event, ev.DeliveriesReceived):
                self.deliveries.extend(event.deliveries)
            elif isinstance(event, ev.DeliveriesUpdated):
                for each in event.deliveries:
                    self.updates.append((each.tag, event.state, event.settled))
                    if not event.settled and event.link.is_sender:
                        event.link.session.settle([each], event.state, True)
            elif isinstance(event, ev.LinkDetached):
                self.detached[event.link.name] = event.error
            elif isinstance(event, ev.SessionEnded):
                self.ended.append(event.error)
            elif isinstance(event, ev.ConnectionClosed):
                self.closed = event.error
        self.flush()

    def lost(self, reason: Failure) -> None:
        """See `IConnectionUser`."""
        self.is_lost = True

    def flush(self) -> None:
        """Write in this turn."""
        self.pump.schedule_flush()

    @property
    def session(self) -> Any:
        """The one session."""
        if self._session is None:
            self._session = self.connection.begin()
        return self._session

    def sender(self, address: str | None, name: str = "out", **fields: Any) -> Link:
        """Attach a sending link."""
        target = fields.pop("target", spec.Target(address=address))
        source = fields.pop("source", spec.Source(address="here"))
        link: Link = self.session.attach(name, "sender", source, target, **fields)
        self.flush()
        return link

    def receiver(
        self, address: str | None, credit: int = 0, name: str = "in", **fields: Any
    ) -> Link:
        """Attach a receiving link, and grant credit."""
        source = fields.pop("source", spec.Source(address=address))
        link: Link = self.session.attach(name, "receiver", source, spec.Target(), **fields)
        if credit:
            link.flow(credit)
        self.flush()
        return link

    def send(self, link: Link, *messages: Message, settled: bool = False) -> list[bytes]:
        """Send messages; return their tags."""
        tags = []
        for message in messages:
            tags.append(b"%d" % link.deliveries)
            link.send((message.encoded,), tags[-1], settled=settled)
        self.flush()
        return tags

    def settle(self, deliveries: Sequence[Delivery], state: Any, settled: bool = True) -> None:
        """Send an outcome."""
        deliveries[0].link.session.settle(list(deliveries), state, settled)
        self.flush()

    def bodies(self) -> list[bytes]:
        """Return the received bodies."""
        return [Message(each.payload).body_values()[0] for each in self.deliveries]

    def outcomes(self) -> list[str]:
        """Return the class names of the outcomes of its sent messages."""
        return [type(state).__name__ for _, state, _ in self.updates]


class Network:
    """The network of the brokers: domains, wires, and faults.

    Attributes:
        brokers: by domain.
        errors: by domain, the error of resolving it.
        silent: domains whose lookup never ends.
        dead: domains that refuse connections.
        failing: by domain, the error of connecting to it.
        holes: hosts that never answer.
        levels: by domain, the level of connections to it; ``none`` by default.
        wires: every connection between brokers.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.houses: dict[str, MemoryBroker] = {}
        self.errors: dict[str, ResolveError] = {}
        self.silent: set[str] = set()
        self.dead: set[str] = set()
        self.failing: dict[str, ConnectError] = {}
        self.holes: set[str] = set()
        self.levels: dict[str, str] = {}
        self.wires: list[Wire] = []
        self.lookups: list[str] = []
        self.forgotten: list[str] = []
        self.tried: list[str] = []
        self.connects = 0

    async def resolve(self, domain: str) -> Resolution:
        """Replace the resolver."""
        self.lookups.append(domain)
        if domain in self.silent:
            await Deferred()
        if domain in self.errors:
            raise self.errors[domain]
        candidate = Candidate(domain, 5671, TransportSecurity.IMPLICIT, ("192.0.2.1",), 0, 0, "srv")
        return Resolution(domain, (candidate,), (f"{domain} found",), 60.0, False, False)

    def forget(self, domain: str) -> int:
        """Replace the resolver: it has no cache."""
        self.forgotten.append(domain)
        return 0

    def connector(self, caller: MemoryBroker) -> Any:
        """Return the connector of a broker."""
        return _Connector(self, caller)


class _Connector:
    def __init__(self, network: Network, caller: MemoryBroker) -> None:
        self.network = network
        self.caller = caller

    def connect(
        self,
        candidate: Candidate,
        domain: str,
        make: Callable[[Any], tuple[Connection, Any]],
        *,
        extra_names: Sequence[str] = (),
    ) -> Deferred[Any]:
        """Replace the connector."""
        network = self.network
        network.connects += 1
        network.tried.append(candidate.host)
        if candidate.host in network.holes:
            return Deferred()
        if candidate.host in network.failing:
            return fail(network.failing[candidate.host])
        house = network.houses.get(candidate.host)
        if house is None or candidate.host in network.dead:
            words = f"{candidate.host}: connection refused"
            return fail(ConnectError("connect.refused", words, (words,)))
        principal = Principal("peer", self.caller.domain, frozenset({self.caller.domain}))
        level = network.levels.get(candidate.host, "none")
        facts = TransportFacts(domain, level=level)
        wire = Wire(network.clock, make(facts), house.accept(principal))
        network.wires.append(wire)
        return succeed(wire)


class MemoryBroker:
    """One broker with everything but sockets.

    Args:
        network: its network.
        domain: its name.
        nodes: its nodes.
        store: of an earlier broker, for a restart.
    """

    def __init__(
        self,
        network: Network,
        domain: str,
        *nodes: NodeDeclaration,
        store: KeptStore | None = None,
        routes: Sequence[RouteRule] = (),
        limits: FrontendLimits | None = None,
        terms: RelayTerms | None = None,
        capabilities: Sequence[str] = ("AMQPROUTE:TRANSFER", "ANONYMOUS-RELAY"),
        rules: Sequence[Rule] | None = None,
        relay_for: Sequence[str] = (),
        max_message_size: int = 0,
        lifetime_ms: int = 0,
    ) -> None:
        self.network = network
        self.clock = clock = network.clock
        self.domain = domain
        self.store = store or KeptStore(clock)
        self.capabilities = capabilities
        self.max_message_size = max_message_size
        recovery = self.store.recovery()
        self.broker = make_broker(clock, self.store, *nodes)
        self.receipts = Receipts()
        self.receipts.recovered(recovery.received)
        self.id = self.own_id = f"ct-{domain}"
        self.stream = f"stream-{domain}"
        self.tracing_terms = DROPPED
        router = Router([domain], routes)
        self.agent = ConnectAgent(
            network,
            network.connector(self),
            self,
            clock,
            wall(clock),
            30.0,
        )
        self.relay = Relay(
            self.broker,
            self.agent,
            router,
            RelayEnvironment(clock, wall(clock), lambda: 0.5),
            terms or RelayTerms(),
            QueueLimits(ttl_ms=lifetime_ms),
        )
        policy = AccessPolicy(rules or [Rule.of(who="*", node="*", allow=list(Verb))])
        self.transfer = TransferService(
            self.broker,
            self.relay,
            TransferRules(self.id, router, policy.allows, PartnerRules(lambda _: relay_for)),
        )
        self.broker.services[TRANSFER] = self.transfer
        self.relay.recovered(recovery.notes.get(NOTE, {}))
        self.shared = FrontendContext(
            NodeAccess(self.broker, self.transfer),
            self.relay,
            self.receipts,
            limits or FrontendLimits(),
            wall(clock),
            TransactionTerms(self.broker.begin, clock, lambda: uuid.uuid4().bytes),
            RelayPolicy(self.relay),
        )
        self.amqp10 = Amqp10Context(
            self.shared, TerminusResolver(self.shared.nodes, now_ms=wall(clock))
        )
        self.amqp10.suspended.recovered(recovery.notes.get(RESOLVED_NOTES, {}))
        network.houses[domain] = self
        self.relay.start()

    def origin(self) -> str:
        """See `OutgoingIdentity.origin`."""
        return self.domain

    def tracing(self, hop: NextHop) -> HopTracing:
        """See `OutgoingIdentity.tracing`."""
        return self.tracing_terms

    def engine(self, hop: NextHop, security: TransportSecurity) -> Connection:
        """See `OutgoingIdentity.engine`."""
        return Connection(
            settings(
                "client",
                container_id=self.id,
                hostname=hop.domain,
                offered_capabilities=("AMQPROUTE:TRANSFER",),
            )
        )

    def accept(self, principal: Principal, **changes: Any) -> tuple[Connection, Frontend]:
        """Return engine and frontend of an accepted connection."""
        engine = Connection(
            settings(
                "server",
                container_id=self.id,
                offered_capabilities=self.capabilities,
                max_message_size=self.max_message_size,
                **{"reports_input": True, **changes},
            )
        )
        authenticator: Any = None
        frontend = Frontend(engine, self.amqp10, authenticator, TransportFacts("pretend"))
        frontend.principal = principal
        return engine, frontend

    def client(self, principal: Principal = ANN, host: str = "", **changes: Any) -> Client:
        """Return a connected client, with this address."""
        client = Client(self, **changes)
        engine, frontend = self.accept(principal)
        if host:
            frontend.facts = replace(frontend.facts, host=host)
        wire = Wire(self.clock, (client.connection, client), (engine, frontend))
        client.wire = wire  # type: ignore[attr-defined]
        return client

    def depth(self, name: str) -> int:
        """Return the number of messages on a node, or relay queue of a domain."""
        queue = self.broker.nodes.get(name) or self.broker.internal.get(f"amqp$out/{name}")
        return queue.depth if queue is not None else 0

    def bodies(self, name: str) -> list[bytes]:
        """Return the stored bodies of a node."""
        return [Message(row.encoded).body_values()[0] for row in self.store.rows(name)]

    def crash(self) -> None:
        """Lose the process: nobody is notified, timers are gone."""
        self.broker.stop()
        self.relay.stop()
        for wire in self.network.wires:
            wire.cut()
        self.network.houses.pop(self.domain, None)
