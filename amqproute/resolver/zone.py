# SPDX-License-Identifier: Apache-2.0
"""A small authoritative name server, for the demonstration and the tests. Not for production.

It serves zones from text over UDP and TCP on one port: SRV with addresses in the additional
section, CNAME chains within its own zones, NXDOMAIN and NODATA with the SOA required by RFC 2308,
truncation of answers too large for UDP. Faults can be set for each name, to rehearse failures of
DNS: SERVFAIL, REFUSED, silence, delay, garbage.

Zones signed by dnspython (`dns.dnssec.sign_zone`, NSEC) are served with signatures and proofs of
absence to clients that set the DO bit. With `ZoneAuthority.plays_resolver` it also sets the AD bit,
as a validating resolver would, for answers from the zones named there.

Not supported: wildcards, referrals, zone transfers, NSEC3, rate limits. By default it listens on
loopback.

`ZoneAuthority` is the pure part, a query's octets in and a response's octets out; `ZoneServer`
gives it sockets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, cast

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset
import dns.zone
from dns.rdatatype import RdataType
from dns.rdtypes.IN.SRV import SRV
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IDelayedCall, IListeningPort, ITCPTransport
from twisted.internet.protocol import DatagramProtocol, ServerFactory
from twisted.logger import Logger
from twisted.protocols.basic import Int16StringReceiver
from twisted.protocols.policies import TimeoutMixin
from twisted.python.failure import Failure

from amqproute.resolver.answer import DnsQuestion, as_text
from amqproute.resolver.dns_client import ListeningReactor

__all__ = ["ZoneAuthority", "ZoneFault", "ZoneFaultKind", "ZoneServer"]

log = Logger()

MAX_CHAIN: Final = 16
"""The number of aliases in one answer."""

MAX_UDP: Final = 1232
"""The largest UDP answer, whatever the client offers."""

MAX_CONNECTIONS: Final = 64
"""The number of TCP connections open at a time; further ones are closed at once."""

IDLE_SECONDS: Final = 10.0
"""Time after which an idle TCP connection is closed."""

MAX_REMEMBERED: Final = 1000
"""The number of questions that `ZoneAuthority.asked` keeps."""

_PORT_TRIES: Final = 20


class ZoneFaultKind(Enum):
    """The kind of a fault."""

    SERVFAIL = "servfail"
    REFUSED = "refused"
    DROP = "drop"
    GARBAGE = "garbage"
    DELAY = "delay"


@dataclass(frozen=True, slots=True)
class ZoneFault:
    """A fault at one name.

    Attributes:
        kind: the kind.
        delay: seconds by which the correct answer is late, for `ZoneFaultKind.DELAY`.
    """

    kind: ZoneFaultKind
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class ZoneReply:
    """A response and the seconds to wait before sending it."""

    wire: bytes
    delay: float = 0.0


class ZoneAuthority:
    """Answers queries from zones.

    Args:
        zones: zone files as text, each with ``$ORIGIN`` and an SOA, or zones of dnspython made with
            ``relativize=False``.

    Attributes:
        asked: the last questions, oldest first.
        plays_resolver: origins, without the final dot, whose answers get the AD bit when asked for;
            the bit needs all zones of a chain of aliases.
    """

    def __init__(self, zones: Iterable[str | dns.zone.Zone]) -> None:
        self._zones: dict[dns.name.Name, dns.zone.Zone] = {}
        self._faults: dict[tuple[str, RdataType | None], ZoneFault] = {}
        self.asked: deque[DnsQuestion] = deque(maxlen=MAX_REMEMBERED)
        self.plays_resolver: frozenset[str] = frozenset()
        for zone in zones:
            self.set_zone(zone)

    def set_zone(self, zone: str | dns.zone.Zone) -> None:
        """Add a zone, or replace the one of the same origin.

        Raises:
            ValueError: `zone` is not valid.
        """
        if isinstance(zone, str):
            try:
                zone = dns.zone.from_text(zone, relativize=False, check_origin=False)
            except dns.exception.DNSException as error:
                raise ValueError(f"not a zone: {error}") from error
        if zone.origin is None or zone.get_rdataset(zone.origin, dns.rdatatype.SOA) is None:
            raise ValueError("not a zone: it has no SOA")
        self._zones[zone.origin] = zone

    def set_fault(self, name: str, fault: ZoneFault, rdtype: RdataType | None = None) -> None:
        """Set a fault at a name, for one type or for all."""
        self._faults[name.lower().rstrip("."), rdtype] = fault

    def clear_faults(self) -> None:
        """Remove all faults."""
        self._faults.clear()

    def respond(self, wire: bytes, *, udp: bool) -> ZoneReply | None:
        """Return the response to a query; None for silence."""
        try:
            query = dns.message.from_wire(wire)
        except (dns.exception.DNSException, ValueError):
            return _format_error(wire)
        if query.flags & dns.flags.QR:
            return None  # a response; answering it would make two servers talk for ever
        if query.opcode() != dns.opcode.QUERY or len(query.question) != 1:
            response = dns.message.make_response(query)
            response.set_rcode(dns.rcode.NOTIMP)
            return ZoneReply(response.to_wire())
        asked = query.question[0]
        question = DnsQuestion(as_text(asked.name), asked.rdtype)
        self.asked.append(question)
        fault = self._faults.get((question.name, question.rdtype))
        fault = fault or self._faults.get((question.name, None))
        if fault is None or fault.kind is ZoneFaultKind.DELAY:
            response = self._answer(query, asked.name, asked.rdclass, asked.rdtype)
            return ZoneReply(_fit(response, query, udp=udp), fault.delay if fault else 0.0)
        if fault.kind is ZoneFaultKind.DROP:
            return None
        if fault.kind is ZoneFaultKind.GARBAGE:
            return ZoneReply(wire[:2] + b"\x84\x00" + b"\xff" * 9)
        response = dns.message.make_response(query)
        response.set_rcode(dns.rcode.from_text(fault.kind.name))
        return ZoneReply(response.to_wire())

    def _answer(
        self,
        query: dns.message.Message,
        name: dns.name.Name,
        rdclass: dns.rdataclass.RdataClass,
        rdtype: RdataType,
    ) -> dns.message.Message:
        response = dns.message.make_response(query)
        wants_proof = bool(query.ednsflags & dns.flags.DO)
        zone = self._zone_of(name, rdtype)
        if zone is None or rdclass != dns.rdataclass.IN:
            response.set_rcode(dns.rcode.REFUSED)
            return response
        response.flags |= dns.flags.AA
        authentic = bool(self.plays_resolver) and not query.flags & dns.flags.CD
        for _ in range(MAX_CHAIN):
            authentic = authentic and as_text(zone.origin or name) in self.plays_resolver
            found = zone.get_rrset(name, rdtype)
            if found is not None:
                response.answer.append(found)
                if wants_proof:
                    _add_signatures(response.answer, zone, found)
                self._add_addresses(response, found)
                break
            alias = zone.get_rrset(name, dns.rdatatype.CNAME)
            if alias is None:
                self._deny(response, zone, name, wants_proof=wants_proof)
                break
            if alias in response.answer:
                break  # a loop; the client must detect it
            response.answer.append(alias)
            if wants_proof:
                _add_signatures(response.answer, zone, alias)
            name = alias[0].target
            next_zone = self._zone_of(name, rdtype)
            if next_zone is None:
                break
            zone = next_zone
        if authentic and (wants_proof or query.flags & dns.flags.AD):
            response.flags |= dns.flags.AD
        return response

    def _zone_of(
        self, name: dns.name.Name, rdtype: RdataType = dns.rdatatype.A
    ) -> dns.zone.Zone | None:
        """The zone with the longest origin that the name lies in; for DS the one above it."""
        if rdtype == dns.rdatatype.DS and name != dns.name.root:
            name = name.parent()
        while name not in self._zones:
            if name == dns.name.root:
                return None
            name = name.parent()
        return self._zones[name]

    def _deny(
        self,
        response: dns.message.Message,
        zone: dns.zone.Zone,
        name: dns.name.Name,
        *,
        wants_proof: bool,
    ) -> None:
        """Add the proof that data does not exist, or that the name does not."""
        is_there = any(node.is_subdomain(name) for node in zone.nodes)
        if not is_there:
            response.set_rcode(dns.rcode.NXDOMAIN)
        assert zone.origin is not None
        soa = zone.get_rrset(zone.origin, dns.rdatatype.SOA)
        assert soa is not None
        response.authority.append(soa)
        if not wants_proof:
            return
        _add_signatures(response.authority, zone, soa)
        self._add_proof(response, zone, name)
        if not is_there:
            closest = name.parent()
            while not any(node.is_subdomain(closest) for node in zone.nodes):
                closest = closest.parent()
            self._add_proof(response, zone, dns.name.Name((b"*", *closest.labels)))

    def _add_proof(
        self, response: dns.message.Message, zone: dns.zone.Zone, name: dns.name.Name
    ) -> None:
        """Add the NSEC record at a name, or else the last one before it."""
        owners = [node for node in zone.nodes if zone.get_rdataset(node, dns.rdatatype.NSEC)]
        before = [node for node in owners if node <= name]
        if not before:
            return  # the zone is not signed
        proof = zone.get_rrset(max(before), dns.rdatatype.NSEC)
        if proof is not None and proof not in response.authority:
            response.authority.append(proof)
            _add_signatures(response.authority, zone, proof)

    def _add_addresses(self, response: dns.message.Message, found: dns.rrset.RRset) -> None:
        for record in found:
            if not isinstance(record, SRV):
                continue
            zone = self._zone_of(record.target)
            if zone is None:
                continue
            for rdtype in (dns.rdatatype.A, dns.rdatatype.AAAA):
                addresses = zone.get_rrset(record.target, rdtype)
                if addresses is not None and addresses not in response.additional:
                    response.additional.append(addresses)


def _add_signatures(
    section: list[dns.rrset.RRset], zone: dns.zone.Zone, rrset: dns.rrset.RRset
) -> None:
    signatures = zone.get_rrset(rrset.name, dns.rdatatype.RRSIG, covers=rrset.rdtype)
    if signatures is not None:
        section.append(signatures)


def _fit(response: dns.message.Message, query: dns.message.Message, *, udp: bool) -> bytes:
    """Encode a response: whole, without its additional section, or empty and truncated."""
    limit = min(max(query.payload, 512), MAX_UDP) if udp else 65535
    for shorten in (_keep, _drop_additional, _truncate):
        shorten(response)
        try:
            return response.to_wire(max_size=limit)
        except dns.exception.TooBig:
            continue
    raise AssertionError("a header and a question are never too large")


def _keep(response: dns.message.Message) -> None:
    pass


def _drop_additional(response: dns.message.Message) -> None:
    response.additional.clear()  # no reason to set TC (RFC 2181 §9)


def _truncate(response: dns.message.Message) -> None:
    response.flags |= dns.flags.TC
    response.answer.clear()
    response.authority.clear()


def _format_error(wire: bytes) -> ZoneReply | None:
    if len(wire) < 12 or wire[2] & 0x80:
        return None
    header = wire[:2] + bytes((0x80 | wire[2] & 0x79, dns.rcode.FORMERR)) + bytes(8)
    return ZoneReply(header)


class ZoneServer:
    """Serves zones over UDP and TCP.

    Args:
        zones: the zones as for `ZoneAuthority`.
        reactor: sockets and time.

    Attributes:
        authority: the zones, the faults and the questions asked.
    """

    def __init__(self, zones: Iterable[str | dns.zone.Zone], reactor: ListeningReactor) -> None:
        self.authority = ZoneAuthority(zones)
        self._reactor = reactor
        self._ports: list[IListeningPort] = []
        self._speakers: set[_TcpSpeaker] = set()
        self._late: set[IDelayedCall] = set()

    def start(self, interface: str = "127.0.0.1", port: int = 0) -> Deferred[int]:
        """Listen; fires with the port, the same for UDP and TCP.

        Args:
            interface: the address to listen at.
            port: the port; 0 for one that is free.

        Fails with `CannotListenError`: the port is taken.
        """
        return maybeDeferred(self._listen, interface, port)

    def _listen(self, interface: str, port: int) -> int:
        # The kernel finds a port free for UDP; that it is free for TCP too is likely, not certain.
        tries = 1 if port else _PORT_TRIES
        for remaining in reversed(range(tries)):
            udp = self._reactor.listenUDP(
                port, _UdpSpeaker(self), interface=interface, maxPacketSize=65535
            )
            chosen = cast(IPv4Address | IPv6Address, udp.getHost()).port
            try:
                tcp = self._reactor.listenTCP(chosen, _TcpFactory(self), interface=interface)
            except CannotListenError:
                udp.stopListening()
                if not remaining:
                    raise
            else:
                self._ports = [udp, tcp]
                return chosen
        raise AssertionError("the last try returns or raises")

    def stop(self) -> Deferred[None]:
        """Stop listening, close what is open, forget answers not sent yet."""
        for call in self._late:
            call.cancel()
        self._late.clear()
        ports, self._ports = self._ports, []
        closing: list[Deferred[object]] = [maybeDeferred(port.stopListening) for port in ports]
        for speaker in tuple(self._speakers):
            closing.append(speaker.close())
        stopped: Deferred[None] = DeferredList(closing, consumeErrors=True).addCallback(
            lambda results: None
        )
        return stopped

    def reply(self, wire: bytes, send: Callable[[bytes], object], *, udp: bool) -> None:
        """Answer a query through `send`, now or later."""
        reply = self.authority.respond(wire, udp=udp)
        if reply is None:
            return
        if not reply.delay:
            send(reply.wire)
            return

        def send_late() -> None:
            self._late.discard(call)
            send(reply.wire)

        call = self._reactor.callLater(reply.delay, send_late)
        self._late.add(call)

    def arrived(self, speaker: _TcpSpeaker) -> bool:
        """Register a connection; return False if there are too many."""
        if len(self._speakers) >= MAX_CONNECTIONS:
            log.debug("too many TCP connections to the zone server")
            return False
        self._speakers.add(speaker)
        return True

    def left(self, speaker: _TcpSpeaker) -> None:
        """Remove a closed connection."""
        self._speakers.discard(speaker)

    @property
    def reactor(self) -> ListeningReactor:
        """The reactor."""
        return self._reactor


class _UdpSpeaker(DatagramProtocol):
    noisy = False

    def __init__(self, server: ZoneServer) -> None:
        self._server = server

    def datagramReceived(self, datagram: bytes, addr: tuple[str, int]) -> None:
        """Answer one query."""

        def send(wire: bytes) -> None:
            if self.transport is not None:
                self.transport.write(wire, addr)

        self._server.reply(datagram, send, udp=True)


class _TcpSpeaker(Int16StringReceiver, TimeoutMixin):
    def __init__(self, server: ZoneServer) -> None:
        self._server = server
        self._gone: Deferred[object] | None = None
        self._open = False

    @property
    def _tcp(self) -> ITCPTransport:
        return cast(ITCPTransport, self.transport)

    def callLater(self, period: float, func: Callable[[], None]) -> IDelayedCall:
        """Run the idle time on the server's clock."""
        return self._server.reactor.callLater(period, func)

    def connectionMade(self) -> None:
        """Start the idle time, or refuse."""
        if not self._server.arrived(self):
            self._tcp.loseConnection()
            return
        self._open = True
        self.setTimeout(IDLE_SECONDS)  # type: ignore[no-untyped-call]

    def stringReceived(self, string: bytes) -> None:
        """Answer one query."""
        self.resetTimeout()  # type: ignore[no-untyped-call]
        self._server.reply(string, self._send, udp=False)

    def _send(self, wire: bytes) -> None:
        if self._open:
            self.sendString(wire)  # type: ignore[no-untyped-call]

    def connectionLost(self, reason: Failure | None = None) -> None:
        """Stop the idle time."""
        self._open = False
        self.setTimeout(None)  # type: ignore[no-untyped-call]
        self._server.left(self)
        if self._gone is not None:
            self._gone.callback(None)

    def close(self) -> Deferred[object]:
        """Close; fires when closed."""
        self._gone = Deferred()
        self._tcp.abortConnection()
        return self._gone


class _TcpFactory(ServerFactory):
    noisy = False

    def __init__(self, server: ZoneServer) -> None:
        self._server = server

    def buildProtocol(self, addr: object) -> _TcpSpeaker:
        """Return a protocol for one connection."""
        return _TcpSpeaker(self._server)
