# SPDX-License-Identifier: Apache-2.0
"""The small name server: its answers, octet for octet where it matters."""

from __future__ import annotations

import errno
from typing import Any, cast

import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import dns.rdatatype
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.address import IPv4Address
from twisted.internet.error import CannotListenError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.resolver.answer import DnsQuestion
from amqproute.resolver.zone import (
    MAX_REMEMBERED,
    ZoneAuthority,
    ZoneFault,
    ZoneFaultKind,
    ZoneServer,
)

ZONE = """
$ORIGIN beta.example.
$TTL 300
@ SOA ns hostmaster 1 3600 600 86400 60
@ NS ns
ns A 192.0.2.53
_amqps._tcp SRV 10 60 5671 amqp
amqp A 192.0.2.1
alias CNAME amqp
out CNAME www.example.org.
loop CNAME loop
""" + "\n".join(f"big A 198.51.100.{n}" for n in range(200))

# Many targets: the records fit into a datagram, their addresses do not.
WIDE = """
$ORIGIN wide.example.
$TTL 300
@ SOA ns hostmaster 1 3600 600 86400 60
@ NS ns
""" + "\n".join(f"_amqps._tcp SRV 0 0 5671 t{n}\nt{n} A 192.0.2.{n}" for n in range(25))


class AuthorityTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.authority = ZoneAuthority([ZONE, WIDE])

    def ask(
        self, name: str, rdtype: str = "A", *, udp: bool = True, edns: int | bool = 0
    ) -> dns.message.Message:
        query = dns.message.make_query(name, rdtype, use_edns=edns)
        reply = self.authority.respond(query.to_wire(), udp=udp)
        assert reply is not None
        response = dns.message.from_wire(reply.wire)
        self.assertTrue(query.is_response(response))
        return response

    def test_answers(self) -> None:
        """Each kind of name, with rcode, counts of the sections and the authority bit."""
        for name, rdtype, rcode, sections in (
            ("amqp.beta.example", "A", "NOERROR", (1, 0, 0)),
            ("AMQP.Beta.Example", "A", "NOERROR", (1, 0, 0)),
            ("amqp.beta.example", "AAAA", "NOERROR", (0, 1, 0)),
            ("_tcp.beta.example", "SRV", "NOERROR", (0, 1, 0)),
            ("nobody.beta.example", "A", "NXDOMAIN", (0, 1, 0)),
            ("_amqps._tcp.beta.example", "SRV", "NOERROR", (1, 0, 1)),
            ("alias.beta.example", "A", "NOERROR", (2, 0, 0)),
            ("alias.beta.example", "CNAME", "NOERROR", (1, 0, 0)),
            ("out.beta.example", "A", "NOERROR", (1, 0, 0)),
            ("loop.beta.example", "A", "NOERROR", (1, 0, 0)),
            ("www.example.org", "A", "REFUSED", (0, 0, 0)),
        ):
            with self.subTest(name=name, rdtype=rdtype):
                response = self.ask(name, rdtype)
                self.assertEqual(dns.rcode.to_text(response.rcode()), rcode)
                found = tuple(len(section) for section in response.sections[1:])
                self.assertEqual(found, sections)
                self.assertEqual(bool(response.flags & dns.flags.AA), rcode != "REFUSED")

    def test_truncation(self) -> None:
        """Too large for UDP: empty with TC; over TCP: whole."""
        response = self.ask("big.beta.example")
        self.assertTrue(response.flags & dns.flags.TC)
        self.assertEqual(response.answer, [])
        response = self.ask("big.beta.example", udp=False)
        self.assertFalse(response.flags & dns.flags.TC)
        self.assertEqual(len(response.answer[0]), 200)

    def test_additional_gives_way(self) -> None:
        """Addresses that do not fit are left out, which is no truncation (RFC 2181 §9)."""
        whole = self.ask("_amqps._tcp.wide.example", "SRV", udp=False)
        self.assertEqual(len(whole.additional), 25)
        response = self.ask("_amqps._tcp.wide.example", "SRV")
        self.assertFalse(response.flags & dns.flags.TC)
        self.assertEqual((len(response.answer[0]), len(response.additional)), (25, 0))

    def test_without_edns(self) -> None:
        """A query without a size gets 512 octets at most (RFC 1035 §4.2.1)."""
        response = self.ask("_amqps._tcp.wide.example", "SRV", edns=False)
        self.assertTrue(response.flags & dns.flags.TC)

    def test_faults(self) -> None:
        """Faults hold for a name and a type, or for all types of a name."""
        self.authority.set_fault("amqp.beta.example.", ZoneFault(ZoneFaultKind.SERVFAIL))
        self.authority.set_fault(
            "NS.beta.example", ZoneFault(ZoneFaultKind.REFUSED), dns.rdatatype.A
        )
        self.assertEqual(self.ask("amqp.beta.example").rcode(), dns.rcode.SERVFAIL)
        self.assertEqual(self.ask("ns.beta.example").rcode(), dns.rcode.REFUSED)
        self.assertEqual(self.ask("ns.beta.example", "AAAA").rcode(), dns.rcode.NOERROR)
        self.authority.clear_faults()
        self.assertEqual(self.ask("amqp.beta.example").rcode(), dns.rcode.NOERROR)
        query = dns.message.make_query("amqp.beta.example", "A").to_wire()
        self.authority.set_fault("amqp.beta.example", ZoneFault(ZoneFaultKind.DROP))
        self.assertIsNone(self.authority.respond(query, udp=True))
        self.authority.set_fault("amqp.beta.example", ZoneFault(ZoneFaultKind.DELAY, 2.0))
        reply = self.authority.respond(query, udp=True)
        assert reply is not None
        self.assertEqual(reply.delay, 2.0)

    def test_questions_are_remembered(self) -> None:
        """The last questions are kept, and only this many."""
        for _ in range(MAX_REMEMBERED + 1):
            self.authority.asked.append(DnsQuestion("a", dns.rdatatype.A))
        self.ask("amqp.beta.example")
        self.assertEqual(len(self.authority.asked), MAX_REMEMBERED)
        self.assertEqual(str(self.authority.asked[-1]), "amqp.beta.example A")

    def test_zone_is_replaced(self) -> None:
        """A zone of the same origin takes the place of the old one."""
        self.authority.set_zone(ZONE.replace("amqp A 192.0.2.1", "amqp A 192.0.2.99"))
        self.assertIn("192.0.2.99", str(self.ask("amqp.beta.example").answer[0]))

    def test_no_zone(self) -> None:
        """A text that is no zone is refused in words."""
        for text in ("", "nonsense", "$ORIGIN a.\n@ A 192.0.2.1", ZONE + "\nx A 1.2.3"):
            error = self.assertRaises(ValueError, self.authority.set_zone, text)
            self.assertIn("not a zone", str(error))

    def test_no_query(self) -> None:
        """Responses get silence, other operations NOTIMP, half a message FORMERR."""
        query = dns.message.make_query("amqp.beta.example", "A")
        query.flags |= dns.flags.QR
        self.assertIsNone(self.authority.respond(query.to_wire(), udp=True))
        query = dns.message.make_query("amqp.beta.example", "A")
        reply = self.authority.respond(query.to_wire()[:15], udp=True)
        assert reply is not None
        said = dns.message.from_wire(reply.wire)
        self.assertEqual((said.rcode(), said.id), (dns.rcode.FORMERR, query.id))
        self.assertEqual(said.flags & 0xFFF0, dns.flags.QR | dns.flags.RD)
        self.assertIsNone(self.authority.respond(b"short", udp=True))
        query.set_opcode(dns.opcode.STATUS)
        reply = self.authority.respond(query.to_wire(), udp=True)
        assert reply is not None
        self.assertEqual(dns.message.from_wire(reply.wire).rcode(), dns.rcode.NOTIMP)

    @given(st.binary(max_size=60), st.booleans())
    def test_any_octets(self, octets: bytes, udp: bool) -> None:
        """No datagram breaks it."""
        self.authority.respond(octets, udp=udp)

    @given(st.integers(0, 60), st.integers(0, 255))
    def test_any_changed_octet(self, position: int, octet: int) -> None:
        """A right query with one octet changed does not break it."""
        wire = bytearray(dns.message.make_query("_amqps._tcp.beta.example", "SRV", id=1).to_wire())
        wire[position % len(wire)] = octet
        self.authority.respond(bytes(wire), udp=True)


class Reactor(Clock):
    """Notes at which ports somebody listens; some are taken."""

    def __init__(self, free: int, *taken: int) -> None:
        super().__init__()
        self.free = free
        self.taken = taken
        self.asked: list[tuple[str, int]] = []
        self.stopped: list[int] = []

    def listenUDP(self, port: int, protocol: Any, interface: str, maxPacketSize: int) -> Any:
        self.asked.append(("udp", port))
        if not port:
            self.free += 1
        return Port(self, port or self.free - 1)

    def listenTCP(self, port: int, factory: Any, interface: str) -> Any:
        self.asked.append(("tcp", port))
        if port in self.taken:
            raise CannotListenError(interface, port, OSError(errno.EADDRINUSE, "in use"))
        return Port(self, port)


class Port:
    """A port of `Reactor`."""

    def __init__(self, reactor: Reactor, port: int) -> None:
        self._reactor = reactor
        self._port = port

    def getHost(self) -> IPv4Address:
        return IPv4Address("UDP", "127.0.0.1", self._port)

    def stopListening(self) -> None:
        self._reactor.stopped.append(self._port)


class ServerTests(SynchronousTestCase):
    """The addresses it listens on, and the answers it still sends when it is stopped."""

    def test_any_port(self) -> None:
        """Unless one is named, the system finds a port, and one that both protocols have free."""
        reactor = Reactor(4711, 4711, 4712)
        server = ZoneServer([ZONE], cast(Any, reactor))
        self.assertEqual(self.successResultOf(server.start()), 4713)
        self.assertEqual([port for kind, port in reactor.asked if kind == "udp"], [0, 0, 0])
        self.assertEqual([port for kind, port in reactor.asked if kind == "tcp"][-1], 4713)
        self.assertEqual(reactor.stopped, [4711, 4712])
        self.successResultOf(server.stop())
        self.assertEqual(reactor.stopped, [4711, 4712, 4713, 4713])

    def test_port_that_is_taken(self) -> None:
        """A named one is that one or none."""
        reactor = Reactor(0, 53)
        server = ZoneServer([ZONE], cast(Any, reactor))
        self.failureResultOf(server.start(port=53), CannotListenError)
        self.assertEqual((reactor.asked, reactor.stopped), ([("udp", 53), ("tcp", 53)], [53]))

    def test_late_answers(self) -> None:
        """An answer that is late is sent once; one that is due after the end is not."""
        reactor = Reactor(4711)
        server = ZoneServer([ZONE], cast(Any, reactor))
        self.successResultOf(server.start())
        server.authority.set_fault("amqp.beta.example", ZoneFault(ZoneFaultKind.DELAY, 2.0))
        query = dns.message.make_query("amqp.beta.example", "A").to_wire()
        sent: list[bytes] = []
        server.reply(query, sent.append, udp=True)
        reactor.advance(1)
        server.reply(query, sent.append, udp=True)
        reactor.advance(1)
        self.assertEqual(len(sent), 1)
        self.successResultOf(server.stop())
        reactor.advance(5)
        self.assertEqual((len(sent), reactor.getDelayedCalls()), (1, []))
