# SPDX-License-Identifier: Apache-2.0
"""A broker in memory, and clients that speak raw frames to it.

`Network` has the clock and the wires; it makes `FrameBroker`s (brokers) that can reach each other
by name, as if the DNS and the network were there. `Client` writes frames to one broker and reads
the frames that come back. It checks nothing and keeps no state beyond a buffer: what is sent is
what the test says.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.internet.task import Clock, deferLater
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from amqproute.address import TRANSFER_NODE as TRANSFER
from amqproute.address import local_name
from amqproute.auth.host_policies import HostPolicies
from amqproute.auth.policy import AccessPolicy, Rule, Verb
from amqproute.auth.realm import Authenticator, Verifier
from amqproute.broker.broker import Broker
from amqproute.broker.local_transaction import TransactionTerms
from amqproute.broker.node_declaration import NodeDeclaration, TopicDeclaration
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.queue import Queue
from amqproute.broker.receipts import Receipts
from amqproute.broker.subscription import node_of
from amqproute.broker.topic import Topic
from amqproute.config import Config
from amqproute.config.loader import read_node
from amqproute.daemon.node_assembly import described
from amqproute.errors import ConnectError, ResolveError, StoreError
from amqproute.frontends.amqp10.amqp10_context import Amqp10Context
from amqproute.frontends.amqp10.connection_frontend import Frontend
from amqproute.frontends.amqp10.terminus_resolution import TerminusResolver
from amqproute.frontends.common.client_connection import FrontendContext
from amqproute.frontends.common.contract_enforcement import (
    NO_TERMS,
    ActiveContracts,
    ContractTerms,
)
from amqproute.frontends.common.frontend_limits import FrontendLimits
from amqproute.frontends.common.node_access import NodeAccess
from amqproute.frontends.common.virtual_hosts import VirtualHosts, VirtualHostTerms
from amqproute.net.pump import EngineProtocol, Make
from amqproute.relay.connect_agent import ConnectAgent
from amqproute.relay.relay import Relay
from amqproute.relay.relay_context import RelayEnvironment
from amqproute.relay.relay_terms import RelayTerms
from amqproute.relay.retry_schedule import RetrySchedule
from amqproute.routing.table import Router
from amqproute.services import node_changes
from amqproute.services.management_node import MANAGEMENT, SYNONYMS, ManagementService
from amqproute.services.transfer import PartnerRules, TransferRules, TransferService
from amqproute.store.memory import MemoryStore
from amqproute.stored import StoredEntry
from amqproute.trace_context import DROPPED, HopTracing
from amqproute.values import (
    ANONYMOUS_PRINCIPAL,
    Candidate,
    NextHop,
    Principal,
    Resolution,
    RouteRule,
    TransportSecurity,
)
from amqproute.wire.amqp10 import codec, spec
from amqproute.wire.amqp10.connection import Connection, ConnectionSettings
from amqproute.wire.amqp10.types import Described, Symbol, ULong
from tests.support.memory_broker import RelayPolicy

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
TLS_HEADER = b"AMQP\x02\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
EVERYTHING = [verb.value for verb in Verb]
START_MS = 1_700_000_000_000

ACCEPTED = "amqp:accepted:list"
REJECTED = "amqp:rejected:list"
RELEASED = "amqp:released:list"
MODIFIED = "amqp:modified:list"

_P = TypeVar("_P")


# ---------------------------------------------------------------------- frames and messages


def frame(performative: Any, payload: bytes = b"", channel: int = 0, kind: int = 0) -> bytes:
    """Encode a frame (part 2 §2.3.1): size, data offset 2, type, channel, body."""
    body = b"" if performative is None else codec.encode(performative)
    size = 8 + len(body) + len(payload)
    return struct.pack(">IBBH", size, 2, kind, channel) + body + payload


def section(code: int, value: Any) -> bytes:
    """Encode a section of a message by its numeric descriptor."""
    return codec.encode(Described(ULong(code), value))


def data(body: bytes = b"body") -> bytes:
    """Encode a data section."""
    return section(spec.SECTION_DATA, body)


def message(
    body: bytes = b"body",
    *,
    header: spec.Header | None = None,
    annotations: Mapping[Any, Any] | None = None,
    application: Mapping[str, Any] | None = None,
    **properties: Any,
) -> bytes:
    """Encode a message with one data section."""
    parts = []
    if header is not None:
        parts.append(codec.encode(header))
    if annotations is not None:
        keyed = {Symbol(str(key)): value for key, value in annotations.items()}
        parts.append(section(spec.SECTION_MESSAGE_ANNOTATIONS, keyed))
    if properties:
        parts.append(codec.encode(spec.Properties(**properties)))
    if application is not None:
        parts.append(section(spec.SECTION_APPLICATION_PROPERTIES, dict(application)))
    parts.append(data(body))
    return b"".join(parts)


def sections_of(encoded: bytes) -> list[tuple[int, Any]]:
    """Decode a message into (descriptor, value), in the order of the wire."""
    found = []
    offset = 0
    while offset < len(encoded):
        value, offset = codec.decode(encoded, offset)
        assert isinstance(value, Described), value
        code = int(value.descriptor)
        known = code in (spec.SECTION_HEADER, spec.SECTION_PROPERTIES)
        found.append((code, spec.compose(value) if known else value.value))
    return found


def section_of(encoded: bytes, code: int) -> Any:
    """Return one section of a message, or None."""
    return next((value for each, value in sections_of(encoded) if each == code), None)


def body_of(encoded: bytes) -> bytes:
    """Return the octets of the data section."""
    found = section_of(encoded, spec.SECTION_DATA)
    assert isinstance(found, bytes), sections_of(encoded)
    return found


def header_of(encoded: bytes) -> spec.Header:
    """Return the header; one with defaults if there is none."""
    return section_of(encoded, spec.SECTION_HEADER) or spec.Header()


def bare(encoded: bytes) -> bytes:
    """Return the octets from the properties on: the bare message and the footer."""
    offset = 0
    while True:
        value, after = codec.decode(encoded, offset)
        if value.descriptor >= spec.SECTION_PROPERTIES:
            return encoded[offset:]
        offset = after


def attach(role: str, name: str, handle: int, address: str | None, **fields: Any) -> spec.Attach:
    """Return an attach of a client that is "sender" or "receiver" at an address."""
    is_sender = role == "sender"
    given: dict[str, Any] = {
        "name": name,
        "handle": handle,
        "role": not is_sender,
        "source": spec.Source(address=None if is_sender else address),
        "target": spec.Target(address=address if is_sender else None),
        "initial_delivery_count": 0 if is_sender else None,
        **fields,
    }
    return spec.Attach(**given)


# -------------------------------------------------------------------------------------- wires


class End(StringTransport):
    """One end of a wire.

    Attributes:
        sent: every octet that this end of a wire between brokers has written.
    """

    def __init__(self, protocol: EngineProtocol) -> None:
        super().__init__()
        self.protocol = protocol
        self.other: End | None = None
        self.is_gone = False
        self.how: type[Exception] = ConnectionDone
        self.sent = bytearray()

    def loseConnection(self) -> None:
        self.disconnecting = True

    def abortConnection(self) -> None:
        self.disconnecting = True
        self.how = ConnectionAborted
        self.clear()

    def gone(self) -> None:
        """Tell the protocol, once, that its connection is no more."""
        if not self.is_gone:
            self.is_gone = True
            self.protocol.connectionLost(Failure(self.how()))


class Network:
    """The clock, the network and the DNS of a test.

    Attributes:
        clock: monotonic seconds.
        brokers: by the host name at which they are reached.
        domains: what the DNS knows: a domain's hosts, in order; or the ResolveError to give.
        dns_seconds: how long the DNS takes; None: it answers at once.
        asked: every domain that was looked up.
        connects: every (host, domain) to which a connection was tried.
    """

    def __init__(self) -> None:
        self.clock = Clock()
        self.houses: dict[str, FrameBroker] = {}
        self.domains: dict[str, Sequence[str] | ResolveError] = {}
        self.down: set[str] = set()
        self.dns_seconds: float | None = None
        self.asked: list[str] = []
        self.connects: list[tuple[str, str]] = []
        self.wires: list[tuple[End, End]] = []

    def now_ms(self) -> int:
        """The wall clock."""
        return START_MS + int(self.clock.seconds() * 1000)

    def house(self, name: str = "a.test", **settings: Any) -> FrameBroker:
        """Make a broker for a domain; its host is ``amqp.`` and the domain."""
        house = FrameBroker(self, name, **settings)
        host = f"amqp.{name}"
        self.houses[host] = house
        self.domains[name] = [host]
        return house

    def advance(self, seconds: float = 0.0) -> None:
        """Let time pass, and everything happen that comes of it."""
        self.clock.advance(seconds)
        moved = True
        while moved:
            moved = False
            for wire in list(self.wires):
                for here, there in (wire, wire[::-1]):
                    moved |= self._carry(here, there)
            self.clock.advance(0)

    def _carry(self, here: End, there: End) -> bool:
        written = here.value()
        if written:
            here.clear()
            here.sent += written
            if not there.is_gone:
                there.protocol.dataReceived(written)
        elif here.disconnecting and not here.is_gone:
            self._cut(here, there)
            return True
        return bool(written)

    def _cut(self, here: End, there: End) -> None:
        here.gone()
        there.gone()
        self.wires = [wire for wire in self.wires if here not in wire]

    def cut_all(self) -> None:
        """Every wire between brokers breaks, without a word."""
        for here, there in list(self.wires):
            here.how = there.how = ConnectionAborted
            self._cut(here, there)
        self.advance()

    # -- what the relay's agent asks for: resolver and connector ---------------------------------

    async def resolve(self, domain: str) -> Resolution:
        """As `SrvResolver.resolve`."""
        self.asked.append(domain)
        if self.dns_seconds is not None:
            await deferLater(self.clock, self.dns_seconds)
        found = self.domains.get(domain)
        if found is None:
            raise ResolveError("dns.nxdomain", f"{domain} does not exist", permanent=True)
        if isinstance(found, ResolveError):
            raise found
        candidates = tuple(
            Candidate(host, 5671, TransportSecurity.IMPLICIT, ("192.0.2.1",), number, 0, "srv")
            for number, host in enumerate(found)
        )
        return Resolution(domain, candidates, (), 300.0, False, False)

    def connect(
        self, candidate: Candidate, domain: str, make: Any, *, extra_names: Sequence[str] = ()
    ) -> Deferred[EngineProtocol]:
        """As `Connector.connect`; the certificate of a broker proves its name."""
        self.connects.append((candidate.host, domain))
        house = self.houses.get(candidate.host)
        if house is None or candidate.host in self.down:
            return fail(ConnectError("connect.refused", f"{candidate.host} refuses"))
        if house.name not in (domain, *extra_names):
            return fail(ConnectError("connect.name", f"{candidate.host} did not prove {domain}"))
        caller = next(each for each in self.houses.values() if each.is_calling)
        peer = Principal("peer", caller.name, frozenset((caller.name,)))
        near = EngineProtocol(make, self.clock, is_client=True)
        far = house.protocol(peer)
        ends = (End(near), End(far))
        self.wires.append(ends)
        for end in reversed(ends):
            end.protocol.makeConnection(end)
        return succeed(near)


class SlowStore(MemoryStore):
    """A store whose disk can be made to wait, or to fail."""

    is_held = False
    is_full = False

    def _turn(self) -> None:
        if not self.is_held:
            super()._turn()

    def _apply(self, transaction: Any) -> None:
        if self.is_full:
            raise StoreError("the disk is full")
        super()._apply(transaction)

    def rows(self, queue: str) -> list[StoredEntry]:
        """Return what is in the store for a queue, in order."""
        kept = self._queues.get(self._numbers.get(queue, 0))
        return [] if kept is None else [kept.entries[key] for key in sorted(kept.entries)]

    def let_go(self) -> None:
        """Do what was waiting."""
        self.is_held = False
        self._turn()


class FrameBroker:
    """One broker.

    Args:
        world: where it lives.
        name: its domain and container-id.
        nodes: names of queues, or whole declarations.
        aliases: alias to node.
        access: access rules; by default everybody may do everything.
        relay_for: domains that each peer may have relayed.
        origins: domains that each peer may hand over messages from.
        settings: changes of the engine's settings.
        limits: changes of the frontend's limits.
        transfer: changes of the transfer rules.
        routes: static routes.
        qualify: whether dynamic addresses get the domain.
        contracts: what principals may at most, by their words.
        auto_create: whether a link to no node makes a queue.
        hosts: virtual hosts, and their domains; every user may do everything in each.
    """

    def __init__(
        self,
        world: Network,
        name: str,
        *,
        nodes: Sequence[str | NodeDeclaration | TopicDeclaration] = ("q",),
        aliases: Mapping[str, str] | None = None,
        access: Sequence[Rule] | None = None,
        relay_for: Sequence[str] = (),
        origins: Sequence[str] = (),
        settings: Mapping[str, Any] | None = None,
        limits: Mapping[str, Any] | None = None,
        transfer: Mapping[str, Any] | None = None,
        routes: Sequence[RouteRule] = (),
        qualify: bool = False,
        contracts: Mapping[str, ContractTerms] | None = None,
        auto_create: bool = False,
        hosts: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.world = world
        hosts = hosts or {}
        terms = {host: VirtualHostTerms(frozenset(each)) for host, each in hosts.items()}
        self.name = name
        self.contracts = dict(contracts or {})
        self.frontends: list[Frontend] = []
        self.is_calling = False
        self._settings = dict(settings or {})
        clock = world.clock
        self.store = SlowStore(clock)
        self.store.open()
        clock.advance(0)
        self.broker = Broker(self.store, clock, world.now_ms, lambda: f"dynamic-{uuid.uuid4()}")
        self.inventory = node_changes.NodeChanges(
            self.broker,
            lambda options: described(read_node(options), Config()),
            self.store.next_id,
        )
        self.inventory.when_gone = self.detach_removed_nodes
        self.broker.hosts = dict.fromkeys(hosts)
        declarations = [
            NodeDeclaration(node, QueueLimits()) if isinstance(node, str) else node
            for node in nodes
        ]
        self.inventory.declare(
            node_changes.ConfiguredNodes(
                [node_changes.NodeDescription(each, {}) for each in declarations],
                aliases or {},
                places={each.name: "amqproute.yaml:1" for each in declarations},
            )
        )
        policy = HostPolicies(
            AccessPolicy(
                [Rule.of(who="*", node="*", allow=EVERYTHING)] if access is None else access
            ),
            {host: AccessPolicy([Rule.of(who="*", node="*", allow=EVERYTHING)]) for host in hosts},
        )
        rules = TransferRules(
            name,
            Router(
                [name],
                routes,
                hosts={domain: host for host, each in hosts.items() for domain in each},
            ),
            policy.allows,
            PartnerRules(lambda _: tuple(relay_for), lambda _: tuple(origins)),
            **(transfer or {}),
        )
        self.own_id = name
        self.stream = f"stream-of-{name}"
        agent = ConnectAgent(
            world,
            self,
            self,
            clock,
            world.now_ms,
            10.0,
        )
        self.relay = Relay(
            self.broker,
            agent,
            rules.router,
            RelayEnvironment(clock, world.now_ms, lambda: 0.5),
            RelayTerms(RetrySchedule(1.0, 300.0)),
            QueueLimits(ttl_ms=5 * 86_400_000),
        )
        self.transfer = TransferService(self.broker, self.relay, rules)
        self.broker.services[TRANSFER] = self.transfer
        self.management = ManagementService(
            self.broker,
            policy.allows,
            world.now_ms,
            inventory=self.inventory,
            connections=lambda: [each.row() for each in self.shared.connections],
            links=lambda host=None: [
                each for one in self.shared.connections for each in one.link_index()
            ],
            close_link=lambda name, _: [
                each.detach_named(name) for each in tuple(self.shared.connections)
            ].clear(),
        )
        for each in (MANAGEMENT, *SYNONYMS):
            self.broker.services[each] = self.management
        self.broker.return_to = self._return_target
        self.broker.name_of = self.transfer.name_of
        self.shared = FrontendContext(
            NodeAccess(
                self.broker,
                self.transfer,
                lambda node, who: (
                    self.inventory.make_queue(node, str(who)) if auto_create else None
                ),
            ),
            self.relay,
            Receipts(),
            FrontendLimits(**(limits or {})),
            world.now_ms,
            TransactionTerms(self.broker.begin, clock, lambda: uuid.uuid4().bytes),
            RelayPolicy(
                self.relay,
                ActiveContracts(
                    clock,
                    self.broker.accounts,
                    lambda who: (str(who), self.contracts.get(str(who), NO_TERMS)),
                ),
            ),
        )
        self.shared.hosts = VirtualHosts(lambda: rules.router.own_names, policy.may_open)
        self.shared.hosts.adopt(terms)
        self.amqp10 = Amqp10Context(
            self.shared,
            TerminusResolver(
                self.shared.nodes,
                (lambda node: f"{node}@{name}") if qualify else local_name,
                world.now_ms,
            ),
        )

    def detach_removed_nodes(self, aliases: set[str]) -> None:
        def is_gone(node: Any, address: str | None) -> bool:
            node = node_of(node)
            known = (*self.broker.nodes.values(), *self.broker.topics.values())
            return address in aliases or (isinstance(node, Queue | Topic) and node not in known)

        self.shared.detach_from(is_gone)

    def _return_target(self, address: str) -> Any:
        route = self.transfer.rules.router.route(address)
        if isinstance(route, NextHop):
            return self.relay.take_on_trust(self.transfer.rules.router.direct(address))
        return self.broker.target(route.node)

    def connect(self, *args: Any, **extra: Any) -> Deferred[EngineProtocol]:
        """As `Connector.connect`: the world does it, and has to know who calls."""
        self.is_calling = True
        try:
            return self.world.connect(*args, **extra)
        finally:
            self.is_calling = False

    def origin(self) -> str:
        """See `OutgoingIdentity.origin`."""
        return ""

    def tracing(self, hop: NextHop) -> HopTracing:
        """See `OutgoingIdentity.tracing`."""
        return DROPPED

    def engine(self, hop: NextHop, security: TransportSecurity) -> Connection:
        """See `OutgoingIdentity.engine`."""
        return Connection(
            ConnectionSettings(role="client", container_id=self.name, hostname=hop.domain)
        )

    def protocol(self, principal: Principal = ANONYMOUS_PRINCIPAL, **kinds: Any) -> EngineProtocol:
        """Return the server side of a new connection."""
        return EngineProtocol(self.maker(principal, **kinds), self.world.clock)

    def maker(
        self,
        principal: Principal = ANONYMOUS_PRINCIPAL,
        mechanisms: Sequence[str] = (),
        facts: Mapping[str, Any] | None = None,
    ) -> Make:
        """Return what makes engine and frontend of a connection."""
        sasl = _Sasl(self, mechanisms)

        def make(found: Any) -> tuple[Connection, Frontend]:
            settings = {
                "role": "server",
                "container_id": self.name,
                "offered_capabilities": ("ANONYMOUS-RELAY", "AMQPROUTE:TRANSFER"),
                "allow_no_sasl": not mechanisms,
                "reports_input": True,
                **self._settings,
            }
            engine = Connection(
                ConnectionSettings(**settings), sasl_server=sasl if mechanisms else None
            )
            frontend = Frontend(
                engine, self.amqp10, sasl.authenticator, replace(found, **(facts or {}))
            )
            frontend.principal = principal
            sasl.frontend = frontend
            self.frontends.append(frontend)
            return engine, frontend

        return make

    def client(self, principal: Principal = ANONYMOUS_PRINCIPAL, **kinds: Any) -> Client:
        """Return a client with a fresh connection; nothing has been said on it."""
        return Client(self, self.protocol(principal, **kinds))

    def depth(self, node: str = "q") -> int:
        """Return how many messages are on a node."""
        return int(self.broker.nodes[node].depth)


class _Sasl:
    """The mechanisms of a listener, for one connection."""

    frontend: Frontend

    def __init__(self, house: FrameBroker, mechanisms: Sequence[str]) -> None:
        clock = house.world.clock
        self.authenticator = Authenticator(
            mechanisms,
            users=None,
            verifier=Verifier(
                clock, lambda function, name, password: succeed(function(name, password))
            ),
            login_key=b"k" * 32,
            random_bytes=lambda count: b"r" * count,
        )

    @property
    def mechanisms(self) -> Sequence[str]:
        return self.authenticator.offers(self.frontend.log_in_facts())

    def start(self, name: str) -> Any:
        return self.authenticator.begin(name, self.frontend.log_in_facts())


# ------------------------------------------------------------------------------------ clients


class Client:
    """Writes raw frames to a broker and reads its answers.

    Attributes:
        frames: (kind, channel, performative, payload) that came and were not taken yet; the
            channel is the client's own, whatever the broker chose for its side.
        headers: protocol headers that came.
        raw: the octets of every frame that came, for decoders other than our own.
        empty: how many empty frames came.
    """

    def __init__(self, house: FrameBroker, protocol: EngineProtocol) -> None:
        self.house = house
        self.world = house.world
        self.end = End(protocol)
        self.frames: list[tuple[int, int, Any, bytes]] = []
        self.headers: list[bytes] = []
        self.raw: list[bytes] = []
        self.empty = 0
        self._buffer = b""
        self._channels: dict[int, int] = {}
        protocol.makeConnection(self.end)
        self.world.advance()

    # -- octets ----------------------------------------------------------------------------------

    def write(self, *octets: bytes, chunk: int | None = None) -> Client:
        """Write octets in one segment, or in pieces; then let everything happen."""
        joined = b"".join(octets)
        step = chunk or max(1, len(joined))
        for start in range(0, len(joined), step):
            if not self.end.is_gone:
                self.end.protocol.dataReceived(joined[start : start + step])
        self.run()
        return self

    def run(self, seconds: float = 0.0) -> Client:
        """Let time pass."""
        self.world.advance(seconds)
        if self.end.disconnecting and not self.end.is_gone:
            self._read()
            self.end.gone()
            self.world.advance()
        self._read()
        return self

    def hang_up(self) -> None:
        """The connection breaks without a word."""
        self.end.gone()
        self.world.advance()

    @property
    def is_cut(self) -> bool:
        """Whether the broker has dropped the TCP connection."""
        return self.end.is_gone

    def _read(self) -> None:
        self._buffer += self.end.value()
        self.end.clear()
        while len(self._buffer) >= 8:
            if self._buffer[:4] == b"AMQP":
                self.headers.append(self._buffer[:8])
                self._buffer = self._buffer[8:]
                continue
            size, offset, kind, channel = struct.unpack_from(">IBBH", self._buffer)
            assert size >= 8, "a frame shorter than its header"
            if len(self._buffer) < size:
                return
            whole, self._buffer = self._buffer[:size], self._buffer[size:]
            self.raw.append(whole)
            if size == offset * 4:
                self.empty += 1
                continue
            body, after = spec.decode_composite(whole, offset * 4)
            if isinstance(body, spec.Begin):
                self._channels[channel] = body.remote_channel or 0
            self.frames.append((kind, self._channels.get(channel, 0), body, whole[after:]))

    # -- frames ----------------------------------------------------------------------------------

    def send(self, *performatives: Any, payload: bytes = b"", channel: int = 0) -> Client:
        """Write performatives in one segment; a payload goes with the last one."""
        octets = [frame(each, channel=channel) for each in performatives[:-1]]
        return self.write(*octets, frame(performatives[-1], payload, channel))

    def names(self) -> list[str]:
        """Return the names of the performatives that wait, and take them."""
        taken, self.frames = self.frames, []
        return [type(body).__name__ for _, _, body, _ in taken]

    def all(self, kind: type[_P], channel: int | None = None) -> list[_P]:
        """Take every waiting performative of a kind."""
        return [body for body, _ in self.payloads(kind, channel)]

    def payloads(self, kind: type[_P], channel: int | None = None) -> list[tuple[_P, bytes]]:
        """Take every waiting performative of a kind, with what followed it."""
        found, rest = [], []
        for each in self.frames:
            wanted = isinstance(each[2], kind) and channel in (None, each[1])
            (found if wanted else rest).append(each)
        self.frames = rest
        return [(body, payload) for _, _, body, payload in found]

    def one(self, kind: type[_P], channel: int | None = None) -> _P:
        """Take the one waiting performative of a kind."""
        found = self.all(kind, channel)
        waiting = [type(body).__name__ for _, _, body, _ in self.frames]
        assert len(found) == 1, f"{len(found)} {kind.__name__}; besides: {waiting}"
        return found[0]

    def none(self, kind: type[Any]) -> bool:
        """Tell whether no performative of a kind waits."""
        return not any(isinstance(body, kind) for _, _, body, _ in self.frames)

    # -- the usual beginnings ----------------------------------------------------------------------

    def opened(self, container_id: str = "client", **fields: Any) -> Client:
        """Exchange headers and opens; the broker's open is dropped."""
        self.write(AMQP_HEADER, frame(spec.Open(container_id=container_id, **fields)))
        self.one(spec.Open)
        return self

    def begun(self, channel: int = 0, **fields: Any) -> Client:
        """Begin a session; the broker's begin is dropped."""
        given = {"next_outgoing_id": 0, "incoming_window": 10_000, "outgoing_window": 10_000}
        self.send(spec.Begin(**{**given, **fields}), channel=channel)
        self.one(spec.Begin, channel)
        return self

    def ready(self, container_id: str = "client") -> Client:
        """Open and begin on channel 0."""
        return self.opened(container_id).begun()

    def sender(
        self, address: str | None = "q", handle: int = 0, name: str = "", **fields: Any
    ) -> spec.Attach:
        """Attach as sender; return the broker's attach. Its flow waits."""
        channel = fields.pop("channel", 0)
        name = name or f"sender-{handle}"
        self.send(attach("sender", name, handle, address, **fields), channel=channel)
        return self.one(spec.Attach, channel)

    def receiver(
        self,
        address: str | None = "q",
        handle: int = 0,
        name: str = "",
        credit: int | None = None,
        **fields: Any,
    ) -> spec.Attach:
        """Attach as receiver and give credit; return the broker's attach."""
        channel = fields.pop("channel", 0)
        name = name or f"receiver-{handle}"
        self.send(attach("receiver", name, handle, address, **fields), channel=channel)
        answer = self.one(spec.Attach, channel)
        if credit is not None:
            self.credit(credit, handle, channel=channel)
        return answer

    def credit(self, credit: int, handle: int = 0, channel: int = 0, **fields: Any) -> None:
        """Give credit on a link; delivery-count 0 unless said."""
        given: dict[str, Any] = {
            "next_incoming_id": 0,
            "incoming_window": 10_000,
            "next_outgoing_id": 0,
            "outgoing_window": 10_000,
            "handle": handle,
            "delivery_count": 0,
            "link_credit": credit,
            **fields,
        }
        self.send(spec.Flow(**given), channel=channel)

    def publish(
        self,
        delivery_id: int,
        encoded: bytes | None = None,
        handle: int = 0,
        channel: int = 0,
        **fields: Any,
    ) -> None:
        """Send one whole delivery."""
        self.write(self.transfer(delivery_id, encoded, handle, channel, **fields))

    @staticmethod
    def transfer(
        delivery_id: int,
        encoded: bytes | None = None,
        handle: int = 0,
        channel: int = 0,
        **fields: Any,
    ) -> bytes:
        """Encode one whole delivery."""
        given: dict[str, Any] = {
            "handle": handle,
            "delivery_id": delivery_id,
            "delivery_tag": b"tag-%d" % delivery_id,
            "message_format": 0,
            "settled": False,
            **fields,
        }
        payload = message(b"%d" % delivery_id) if encoded is None else encoded
        return frame(spec.Transfer(**given), payload, channel)

    def dispose(
        self, first: int, last: int | None = None, state: Any = None, **fields: Any
    ) -> None:
        """Send a disposition as receiver, settled unless said."""
        channel = fields.pop("channel", 0)
        given = {"role": True, "settled": True, "state": state or spec.Accepted(), **fields}
        self.send(spec.Disposition(first=first, last=last, **given), channel=channel)

    def bodies(self) -> list[bytes]:
        """Take the waiting deliveries; return their bodies."""
        return [body_of(encoded) for encoded in self.messages()]

    def messages(self) -> list[bytes]:
        """Take the waiting deliveries, joined over their frames."""
        found: list[bytes] = []
        partial = b""
        for transfer, payload in self.payloads(spec.Transfer):
            partial += payload
            if not transfer.more:
                found.append(partial)
                partial = b""
        return found

    def fill(self, bodies: Sequence[bytes], address: str = "q", **properties: Any) -> None:
        """Put messages on a node by a link of their own; wait for their outcomes."""
        client = self.house.client(self.house.frontends[-1].principal).ready("filler")
        client.sender(address)
        for number, body in enumerate(bodies):
            client.publish(number, message(body, **properties))
        states = [each.state for each in client.all(spec.Disposition)]
        assert all(isinstance(state, spec.Accepted) for state in states), states
        client.send(spec.Close())


def condition(body: Any) -> str | None:
    """Return the condition of the error in a detach, end, close or rejected."""
    return None if body.error is None else str(body.error.condition)
