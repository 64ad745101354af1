# SPDX-License-Identifier: Apache-2.0
"""The stub client on a fake network, with every failure of a server."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import ResolveError
from amqproute.resolver.answer import (
    DnsAnswer,
    DnsOutcome,
    DnsQuestion,
    UnusableAnswer,
    read_response,
)
from amqproute.resolver.dns_client import (
    MAX_STRAY_DATAGRAMS,
    ClientLimits,
    DnsClient,
    _parse,
    _TcpQuery,
)
from amqproute.resolver.nameservers import (
    Nameserver,
    parse_nameserver,
    parse_resolv_conf,
    read_resolv_conf,
)
from amqproute.resolver.zone import ZoneAuthority, ZoneFault, ZoneFaultKind
from amqproute.turn_scheduler import STEPS_IN_TURN, TurnScheduler
from tests.resolver.fakes import LATENCY, Datagram, PretendNetwork

ZONE = """
$ORIGIN beta.example.
$TTL 300
@ SOA ns.beta.example. hostmaster.beta.example. 1 3600 600 86400 60
@ NS ns
ns A 192.0.2.53
_amqps._tcp SRV 10 60 5671 amqp
amqp A 192.0.2.1
amqp AAAA 2001:db8::1
alias CNAME amqp
out CNAME amqp.gamma.example.
loop CNAME loop2
loop2 CNAME loop
far CNAME near.gamma.example.
empty TXT "no address"
""" + "\n".join(f"big A 198.51.100.{n}" for n in range(200))

GAMMA = """
$ORIGIN gamma.example.
$TTL 100
@ SOA ns hostmaster 1 3600 600 86400 60
@ NS ns
amqp A 203.0.113.7
near CNAME far.beta.example.
"""

FIRST, SECOND = Nameserver("192.0.2.53"), Nameserver("2001:db8::53", 5353)
A, AAAA, SRV = dns.rdatatype.A, dns.rdatatype.AAAA, dns.rdatatype.SRV
HOST = DnsQuestion("amqp.beta.example", A)


@cache
def right_answer() -> tuple[dns.message.Message, bytes]:
    """Return a query and a right answer to it, made once for all examples."""
    query = dns.message.make_query("_amqps._tcp.beta.example", SRV, id=258)
    reply = ZoneAuthority([ZONE]).respond(query.to_wire(), udp=True)
    assert reply is not None
    return query, reply.wire


class ClientTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.network = PretendNetwork()
        self.first, self.second = ZoneAuthority([ZONE]), ZoneAuthority([ZONE])
        self.network.servers[FIRST.host, FIRST.port] = self.first
        self.network.servers[SECOND.host, SECOND.port] = self.second
        self.client = self.make_client()

    def make_client(self, *servers: Nameserver, **limits: float) -> DnsClient:
        return DnsClient(
            self.network,
            list(servers or (FIRST, SECOND)),
            random.Random(1),
            limits=ClientLimits(**limits),  # type: ignore[arg-type]
        )

    def tearDown(self) -> None:
        self.network.settle()
        self.assertEqual(self.network.ports, [])
        self.assertEqual(self.network.connections, [])
        self.assertEqual(self.network.getDelayedCalls(), [])

    def ask(self, name: str, rdtype: dns.rdatatype.RdataType = A, seconds: float = 0) -> DnsAnswer:
        waiting = self.client.ask(DnsQuestion(name, rdtype))
        self.network.settle(seconds)
        return self.successResultOf(waiting)

    def fail_to_ask(
        self, name: str = HOST.name, rdtype: dns.rdatatype.RdataType = A, seconds: float = 0
    ) -> ResolveError:
        waiting = self.client.ask(DnsQuestion(name, rdtype))
        self.network.settle(seconds)
        error = self.failureResultOf(waiting, ResolveError).value
        self.assertFalse(error.permanent)
        return error


class AnswerTests(ClientTestCase):
    def test_records(self) -> None:
        """Records come with their TTL and a line about the try."""
        answer = self.ask(HOST.name)
        self.assertEqual((answer.addresses, answer.ttl), (("192.0.2.1",), 300.0))
        self.assertEqual(
            answer.attempts, ("amqp.beta.example A @192.0.2.53:53: 1 record, ttl 300 s",)
        )

    def test_service_with_glue(self) -> None:
        """An SRV answer brings the addresses of its targets along."""
        answer = self.ask("_amqps._tcp.beta.example", SRV)
        (record,) = answer.services
        self.assertEqual((record.target, record.port), ("amqp.beta.example", 5671))
        glue = [address for piece in answer.glue for address in piece.addresses]
        self.assertEqual(glue, ["192.0.2.1", "2001:db8::1"])

    def test_absence(self) -> None:
        """NXDOMAIN and NODATA are answers, with the negative TTL of the SOA (RFC 2308)."""
        answer = self.ask("nobody.beta.example")
        self.assertEqual((answer.outcome, answer.ttl), (DnsOutcome.NXDOMAIN, 60.0))
        answer = self.ask("empty.beta.example")
        self.assertEqual((answer.outcome, answer.ttl), (DnsOutcome.NODATA, 60.0))
        answer = self.ask("_tcp.beta.example")  # nothing there, something below
        self.assertIs(answer.outcome, DnsOutcome.NODATA)

    def test_alias(self) -> None:
        """An alias within the answer is followed there."""
        answer = self.ask("alias.beta.example")
        self.assertEqual(answer.addresses, ("192.0.2.1",))
        self.assertEqual(answer.canonical, "amqp.beta.example")
        self.assertEqual(len(self.network.sent), 1)

    def test_alias_out_of_the_answer(self) -> None:
        """An alias the server did not follow is asked for; the smaller TTL counts."""
        self.client.set_nameservers([FIRST])
        waiting = self.client.ask(DnsQuestion("out.beta.example", A))
        self.network.advance(0.0005)
        # Between the two questions the server learns the other zone, as a resolver would.
        self.first.set_zone(GAMMA)
        self.network.settle()
        answer = self.successResultOf(waiting)
        self.assertEqual((answer.addresses, answer.ttl), (("203.0.113.7",), 100.0))
        self.assertEqual(len(self.network.sent), 2)

    def test_truncated(self) -> None:
        """Answers too large for UDP come over TCP."""
        answer = self.ask("big.beta.example")
        self.assertEqual(len(answer.addresses), 200)
        self.assertEqual(self.network.tcp_dials, [("192.0.2.53", 53)])

    def test_fresh_port_and_id(self) -> None:
        """Each query has its own socket and its own id."""
        for host in "alias", "amqp", "ns":
            self.ask(f"{host}.beta.example")
        ids = {datagram[:2] for datagram, _ in self.network.sent}
        self.assertEqual(len(ids), 3)
        self.assertEqual(self.network.ports, [])

    def test_authentication_is_asked_for_and_noted(self) -> None:
        """The query has AD set, and AD in the answer is noted."""
        self.assertFalse(self.ask(HOST.name).authenticated)
        query = dns.message.from_wire(self.network.sent[0][0])
        self.assertTrue(query.flags & dns.flags.AD)
        response = dns.message.make_response(query)
        response.flags |= dns.flags.AD
        self.assertTrue(read_response(HOST, response).authenticated)

    def test_server_before_edns(self) -> None:
        """FORMERR to a query with EDNS: asked again without."""

        def old_server(datagram: bytes, to: tuple[str, int]) -> list[Datagram]:
            query = dns.message.from_wire(datagram)
            if query.edns < 0:
                return []
            response = dns.message.make_response(query)
            response.use_edns(False)
            response.set_rcode(dns.rcode.FORMERR)
            return [(response.to_wire(), to)]

        self.network.tamper = old_server
        self.assertEqual(self.ask(HOST.name).addresses, ("192.0.2.1",))
        self.assertEqual(len(self.network.sent), 2)


class FailureTests(ClientTestCase):
    def break_both(self, kind: ZoneFaultKind, delay: float = 0.0) -> None:
        for authority in self.first, self.second:
            authority.set_fault(HOST.name, ZoneFault(kind, delay))

    def test_next_server(self) -> None:
        """One server in trouble: the next one answers, and the line of the first stays."""
        for kind, seconds, word in (
            (ZoneFaultKind.SERVFAIL, 0, "SERVFAIL"),
            (ZoneFaultKind.REFUSED, 0, "REFUSED"),
            (ZoneFaultKind.GARBAGE, 0, "malformed"),
            (ZoneFaultKind.DROP, 3, "no answer in 2 s"),
        ):
            with self.subTest(kind=kind):
                self.first.set_fault(HOST.name, ZoneFault(kind))
                answer = self.ask(HOST.name, seconds=seconds)
                self.assertEqual(answer.addresses, ("192.0.2.1",))
                self.assertEqual(len(answer.attempts), 2)
                self.assertIn(word, answer.attempts[0])
                self.assertIn("@[2001:db8::53]:5353", answer.attempts[1])

    def test_all_servers(self) -> None:
        """All servers in trouble: the code says which, and all tries are told."""
        for kind, code in (
            (ZoneFaultKind.SERVFAIL, "dns.servfail"),
            (ZoneFaultKind.REFUSED, "dns.refused"),
            (ZoneFaultKind.GARBAGE, "dns.malformed"),
        ):
            with self.subTest(kind=kind):
                self.break_both(kind)
                error = self.fail_to_ask()
                self.assertEqual((error.code, len(error.attempts)), (code, 2))

    def test_silence(self) -> None:
        """Silent servers are asked again, until the deadline."""
        self.break_both(ZoneFaultKind.DROP)
        error = self.fail_to_ask(seconds=11)
        self.assertEqual(error.code, "dns.timeout")
        self.assertGreaterEqual(len(error.attempts), 3)
        self.assertEqual(len(self.network.sent), 4)

    def test_silent_server_is_asked_last(self) -> None:
        """After a time-out the other server comes first, for half a minute."""
        self.first.set_fault(HOST.name, ZoneFault(ZoneFaultKind.DROP))
        self.ask(HOST.name, seconds=3)
        self.assertIn("2001:db8::53", self.ask("ns.beta.example").attempts[0])
        self.network.advance(30)
        self.assertIn("192.0.2.53", self.ask("ns.beta.example").attempts[0])

    def test_late_answer(self) -> None:
        """An answer that comes after its time-out harms nobody; the second round gets its own."""
        self.client = self.make_client(FIRST)
        self.first.set_fault(HOST.name, ZoneFault(ZoneFaultKind.DELAY, 2.5))
        self.assertEqual(self.ask(HOST.name, seconds=6).addresses, ("192.0.2.1",))

    def test_most_telling_code(self) -> None:
        """One server's answer outweighs another's silence."""
        self.first.set_fault(HOST.name, ZoneFault(ZoneFaultKind.DROP))
        self.second.set_fault(HOST.name, ZoneFault(ZoneFaultKind.SERVFAIL))
        self.assertEqual(self.fail_to_ask(seconds=11).code, "dns.servfail")

    def test_nobody_listens(self) -> None:
        """A refused port is known at once, in whichever way the reactor tells it."""
        self.network.servers.clear()
        for self.network.epoll in False, True:
            error = self.fail_to_ask()
            self.assertEqual(error.code, "dns.unreachable")
            self.assertIn("nobody listens", error.attempts[0])

    def test_no_route_and_no_socket(self) -> None:
        """No way out of this machine is a failed try, not a crash."""
        self.network.unroutable = {FIRST.host, SECOND.host}
        self.assertEqual(self.fail_to_ask().code, "dns.unreachable")
        self.network.no_sockets = True
        self.assertIn("Too many open files", self.fail_to_ask("ns.beta.example").attempts[0])

    def test_tcp_trouble(self) -> None:
        """Truncated, and TCP refused or hung up: unreachable, never half an answer."""
        self.network.tcp_refused = True
        self.assertEqual(self.fail_to_ask("big.beta.example").code, "dns.unreachable")
        self.network.tcp_refused, self.network.tcp_hangs_up = False, True
        error = self.fail_to_ask("big.beta.example")
        self.assertEqual(error.code, "dns.unreachable")
        self.assertIn("closed without an answer", error.attempts[0])

    def test_tcp_silence(self) -> None:
        """A server that truncates and is mute over TCP times out, and the connection is closed."""
        self.client = self.make_client(FIRST, rounds=1)

        def truncate(datagram: bytes, to: tuple[str, int]) -> list[Datagram]:
            response = dns.message.make_response(dns.message.from_wire(datagram))
            response.flags |= dns.flags.TC
            return [(response.to_wire(), to)]

        self.network.tamper = truncate
        self.first.set_fault(HOST.name, ZoneFault(ZoneFaultKind.DROP))
        self.assertEqual(self.fail_to_ask(seconds=3).code, "dns.timeout")

    def test_alias_loops(self) -> None:
        """A circle of aliases ends, inside an answer and from answer to answer."""
        error = self.fail_to_ask("loop.beta.example")
        self.assertEqual(error.code, "dns.loop")
        beta_only, gamma_only = ZoneAuthority([ZONE]), ZoneAuthority([GAMMA])

        def split(datagram: bytes, to: tuple[str, int]) -> list[Datagram]:
            name = dns.message.from_wire(datagram).question[0].name.to_text()
            authority = beta_only if name.endswith("beta.example.") else gamma_only
            reply = authority.respond(datagram, udp=True)
            assert reply is not None
            return [(reply.wire, to)]

        self.network.tamper = split
        self.assertEqual(self.fail_to_ask("far.beta.example").code, "dns.loop")

    def test_referral_is_not_absence(self) -> None:
        """A server that points elsewhere does not resolve; that is no NODATA."""
        query = dns.message.make_query("amqp.beta.example", A)
        response = dns.message.make_response(query)
        response.authority.append(dns.rrset.from_text("example.", 60, "IN", "NS", "ns.example."))
        with self.assertRaises(UnusableAnswer) as caught:
            read_response(HOST, response)
        self.assertEqual(caught.exception.code, "dns.refused")

    def test_negative_without_soa(self) -> None:
        """A negative answer without SOA is not to be kept (RFC 2308 §5)."""
        response = dns.message.make_response(dns.message.make_query(HOST.name, A))
        answer = read_response(HOST, response)
        self.assertEqual((answer.outcome, answer.ttl), (DnsOutcome.NODATA, 0.0))


class ForgeryTests(ClientTestCase):
    def forge(self, count: int = 1, **change: object) -> None:
        """Let forged answers arrive before the right one."""

        def tamper(datagram: bytes, to: tuple[str, int]) -> list[Datagram]:
            query = dns.message.from_wire(datagram)
            if "question" in change:
                query.question[0].name = dns.name.from_text(str(change["question"]))
            response = dns.message.make_response(query)
            response.answer.append(
                dns.rrset.from_text(query.question[0].name, 300, "IN", "A", "198.51.100.66")
            )
            if "id_shift" in change:
                response.id = (response.id + 1) & 0xFFFF
            source = change.get("source", to)
            return [(response.to_wire(), source)] * count  # type: ignore[list-item]

        self.network.tamper = tamper

    def test_forged_answers_are_passed_over(self) -> None:
        """Wrong id, wrong question, wrong address, wrong port: none is believed."""
        for change in (
            {"id_shift": 1},
            {"question": "other.beta.example."},
            {"source": ("192.0.2.66", 53)},
            {"source": ("192.0.2.53", 5300)},
        ):
            with self.subTest(change=change):
                self.forge(**change)
                self.assertEqual(self.ask(HOST.name).addresses, ("192.0.2.1",))
        self.assertEqual(self.network.tcp_dials, [])

    def test_flood_moves_to_tcp(self) -> None:
        """Somebody guesses ids: the question goes where guessing does not help."""
        self.forge(count=MAX_STRAY_DATAGRAMS, id_shift=1)
        self.assertEqual(self.ask(HOST.name).addresses, ("192.0.2.1",))
        self.assertEqual(self.network.tcp_dials, [("192.0.2.53", 53)])

    def test_short_and_odd_datagrams(self) -> None:
        """Datagrams that are nothing at all are passed over."""
        self.network.tamper = lambda datagram, to: [(b"", to), (b"\0", to), (b"\xff" * 40, to)]
        self.assertEqual(self.ask(HOST.name).addresses, ("192.0.2.1",))

    @given(st.binary(max_size=80))
    def test_any_octets(self, octets: bytes) -> None:
        """Any octets behind the right id are an answer, unusable, or not for us."""
        query = dns.message.make_query(HOST.name, A, id=258)
        try:
            response = _parse(query, b"\x01\x02" + octets)
            if response is not None:
                read_response(HOST, response)
        except UnusableAnswer:
            pass

    @given(st.integers(0, 400), st.integers(0, 255))
    def test_any_changed_octet(self, position: int, octet: int) -> None:
        """A right answer with one octet changed never does more than fail."""
        query, reply = right_answer()
        wire = bytearray(reply)
        wire[position % len(wire)] = octet
        try:
            response = _parse(query, bytes(wire))
            if response is not None:
                answer = read_response(DnsQuestion("_amqps._tcp.beta.example", SRV), response)
                answer.services, answer.glue, answer.summary()
        except UnusableAnswer:
            pass


class TcpQueryTests(SynchronousTestCase):
    """A query over TCP, when its connection ends."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.turns = TurnScheduler(self.clock)
        self.query = dns.message.make_query("amqp.beta.example", "A", id=258)
        self.at_work = _TcpQuery(self.query, self.turns)
        self.at_work.makeConnection(StringTransport())

    def test_closed_behind_its_answer(self) -> None:
        """An answer that has come counts, though it is read in a later turn than the end."""
        for _ in range(STEPS_IN_TURN):
            self.turns.ask("dns", "", lambda: None)
        reply = ZoneAuthority([ZONE]).respond(self.query.to_wire(), udp=False)
        assert reply is not None
        self.at_work.dataReceived(len(reply.wire).to_bytes(2, "big") + reply.wire)
        self.at_work.connectionLost(Failure(ConnectionDone()))
        self.assertNoResult(self.at_work.result)
        self.clock.advance(0)
        self.assertEqual(len(self.successResultOf(self.at_work.result).answer), 1)

    def test_closed_without_one(self) -> None:
        """The end of a connection is a failure, unless the query has had one already."""
        self.at_work.connectionLost(Failure(ConnectionDone()))
        failure = self.failureResultOf(self.at_work.result, UnusableAnswer)
        self.assertIn("closed without an answer", str(failure.value))
        other = _TcpQuery(self.query, self.turns)
        other.makeConnection(StringTransport())
        other.result.errback(UnusableAnswer("dns.timeout", "no answer"))
        other.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(
            self.failureResultOf(other.result, UnusableAnswer).value.code, "dns.timeout"
        )


class FlightTests(ClientTestCase):
    def test_same_question_is_asked_once(self) -> None:
        """Many wait for one answer."""
        waiting = [self.client.ask(HOST) for _ in range(5)]
        other = self.client.ask(DnsQuestion(HOST.name, AAAA))
        self.network.settle()
        self.assertEqual(len({self.successResultOf(one) for one in waiting}), 1)
        self.assertEqual(self.successResultOf(other).addresses, ("2001:db8::1",))
        self.assertEqual(len(self.network.sent), 2)

    def test_failure_reaches_all(self) -> None:
        """Many wait for one failure."""
        self.network.servers.clear()
        waiting = [self.client.ask(HOST) for _ in range(3)]
        self.network.settle()
        for one in waiting:
            self.failureResultOf(one, ResolveError)

    def test_cancel_one(self) -> None:
        """A request that leaves does not end it for the others."""
        leaving, staying = self.client.ask(HOST), self.client.ask(HOST)
        leaving.cancel()
        self.failureResultOf(leaving, CancelledError)
        self.network.settle()
        self.assertEqual(self.successResultOf(staying).addresses, ("192.0.2.1",))

    def test_cancel_all(self) -> None:
        """When the last one leaves the socket is closed; who comes then asks again."""
        first, second = self.client.ask(HOST), self.client.ask(HOST)
        first.cancel()
        second.cancel()
        self.failureResultOf(first, CancelledError)
        self.failureResultOf(second, CancelledError)
        self.assertEqual(self.network.ports, [])
        self.assertEqual(self.ask(HOST.name).addresses, ("192.0.2.1",))

    def test_waiting_in_line_is_bounded(self) -> None:
        """Beyond the slots one waits, beyond the line one is told so, and the deadline holds."""
        self.client = self.make_client(FIRST, max_concurrent=1, max_waiting=1, rounds=9)
        self.first.set_fault("slow.beta.example", ZoneFault(ZoneFaultKind.DROP))
        slow = self.client.ask(DnsQuestion("slow.beta.example", A))
        queued = self.client.ask(HOST)
        refused = self.client.ask(DnsQuestion("ns.beta.example", A))
        self.assertEqual(self.failureResultOf(refused, ResolveError).value.code, "dns.busy")
        self.network.settle(11)
        self.assertEqual(self.failureResultOf(slow, ResolveError).value.code, "dns.timeout")
        self.assertEqual(self.failureResultOf(queued, ResolveError).value.code, "dns.timeout")

    def test_no_servers(self) -> None:
        """A client without servers is a mistake in the configuration."""
        self.assertRaises(ValueError, self.client.set_nameservers, [])

    def turn(self) -> None:
        """Make the calls that are due now, and none that these ask for."""
        network = self.network
        network.rightNow += LATENCY
        for call in [each for each in network.calls if each.getTime() <= network.rightNow]:
            if call.active():
                network.calls.remove(call)
                call.called = 1
                call.func(*call.args, **call.kw)

    def test_answers_together(self) -> None:
        """However many answers arrive together, few are acted upon in one turn."""
        count = 20
        self.client = self.make_client(FIRST)
        self.first.set_zone(
            "$ORIGIN d.example.\n$TTL 60\n@ SOA ns h 1 60 60 60 60\n"
            + "\n".join(f"n{number} A 192.0.2.1" for number in range(count))
        )
        answered: list[DnsAnswer] = []
        for number in range(count):
            self.client.ask(DnsQuestion(f"n{number}.d.example", A)).addCallback(answered.append)
        per_turn = []
        while len(answered) < count:
            before = len(answered)
            self.turn()
            per_turn.append(len(answered) - before)
            self.assertLess(len(per_turn), 10 * count)
        self.assertLessEqual(max(per_turn), STEPS_IN_TURN)


class NameserverTests(SynchronousTestCase):
    def test_forms(self) -> None:
        """Addresses with and without a port, bracketed or not."""
        for text, expected in (
            ("192.0.2.1", Nameserver("192.0.2.1", 53)),
            (" 192.0.2.1:5353 ", Nameserver("192.0.2.1", 5353)),
            ("2001:DB8::1", Nameserver("2001:db8::1", 53)),
            ("[2001:db8::1]", Nameserver("2001:db8::1", 53)),
            ("[2001:db8::1]:54", Nameserver("2001:db8::1", 54)),
        ):
            self.assertEqual(parse_nameserver(text), expected)
            self.assertEqual(parse_nameserver(str(expected)), expected)

    def test_refused_forms(self) -> None:
        """Anything else is refused in words."""
        for text in ("", "ns.example", "192.0.2.1:0", "192.0.2.1:65536", "[::1", "1.2.3:53"):
            error = self.assertRaises(ValueError, parse_nameserver, text)
            self.assertIn("is not a name server", str(error))

    def test_resolv_conf(self) -> None:
        """Only good nameserver lines count, each once; none means the local one."""
        text = (
            "; comment\nsearch example\nnameserver 192.0.2.1 # first\nnameserver\n"
            "nameserver 192.0.2.1\nnameserver nonsense\n nameserver ::1\noptions edns0\n"
        )
        self.assertEqual(parse_resolv_conf(text), [Nameserver("192.0.2.1"), Nameserver("::1")])
        self.assertEqual(parse_resolv_conf(""), [Nameserver("127.0.0.1")])

    def test_resolv_conf_file(self) -> None:
        """A missing file is an empty one."""
        path = Path(self.mktemp())
        self.assertEqual(read_resolv_conf(path), [Nameserver("127.0.0.1")])
        path.write_text("nameserver 192.0.2.9\n")
        self.assertEqual(read_resolv_conf(path), [Nameserver("192.0.2.9")])
