# SPDX-License-Identifier: Apache-2.0
"""Growth of the log caused by clients, other brokers and strangers, in lines and octets."""

from __future__ import annotations

import io
from typing import Any

from twisted.logger import LogEvent, Logger, globalLogPublisher
from twisted.python.failure import Failure

from amqproute.auth.refused_log_ins import RefusedLogIns
from amqproute.daemon.log_bounds import GROUPS, LONGEST_FIELD, SUM_SECONDS
from amqproute.daemon.log_output import LineObserver, LogOutput, json_line, text_line
from amqproute.errors import ResolveError
from amqproute.net.pump import TransportFacts
from amqproute.relay.backoff import BackOff
from amqproute.relay.failure_verdict import FailureAction, FailureScope, FailureVerdict
from amqproute.relay.relay_terms import RelayTerms
from amqproute.relay.routing_decision import RoutingDecisions
from amqproute.values import ANONYMOUS_PRINCIPAL, NextHop, Principal
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.types import Symbol
from tests.support.asserts import HouseTestCase
from tests.support.fakes import node, wall
from tests.support.memory_broker import Client, MemoryBroker, Network, Wire
from tests.support.wire import frame

HOUR = 3600
LINE_OCTETS = 600
"""More than any of the ordinary lines has."""


def most_lines(group: str, seconds: float) -> int:
    """Return the lines that a group may cause in a time, of both levels, with those that sum up."""
    total = GROUPS[group].total
    assert total is not None
    sums = seconds // SUM_SECONDS + 1
    return 2 * (total.burst + int(seconds / total.seconds) + 1) + int(sums)


def most_lines_of_party(group: str, seconds: float, kinds: int) -> int:
    """Return the lines that one party may cause in a time."""
    party = GROUPS[group].party
    sums = seconds // SUM_SECONDS + 1
    return kinds * (party.burst + int(seconds / party.seconds) + 1) + int(sums)


class LogCase(HouseTestCase):
    """A broker whose log is written to memory, with ``beta.example`` as the one named partner."""

    def setUp(self) -> None:
        super().setUp()
        self.stream = io.StringIO()
        self.open_log()

    def open_log(self, level: str = "info", render: Any = text_line) -> None:
        """Have everything that is logged written to a stream, as the daemon does."""
        self.output = LogOutput(LineObserver(self.stream, render), {"": level}, self.clock.seconds)
        self.output.set_partners(lambda domain: domain == "beta.example")
        # trial's own observers would keep every event.
        kept = globalLogPublisher._observers
        globalLogPublisher._observers = [self.output.observer]
        self.addCleanup(setattr, globalLogPublisher, "_observers", kept)

    def lines(self, *words: str) -> list[str]:
        """Return the lines written so far that have all of these words."""
        lines = self.stream.getvalue().splitlines()
        return [line for line in lines if all(each in line for each in words)]

    def advance(self, seconds: float) -> None:
        """Let time pass, with the sums that the daemon writes every `SUM_SECONDS`."""
        before = self.clock.seconds()
        self.clock.advance(seconds)
        if before // SUM_SECONDS != self.clock.seconds() // SUM_SECONDS:
            self.output.sum_up()

    def left_out(self) -> int:
        """Return how many lines the sums say were left out."""
        sums = self.lines("lines were left out within")
        return sum(int(line.partition(": ")[2].split()[0]) for line in sums)


class ReconnectingTests(LogCase):
    """Connections that break the protocol, one after the other."""

    def setUp(self) -> None:
        super().setUp()
        self.network = Network(self.clock)
        self.house = MemoryBroker(self.network, "alpha.example", node("q"))

    def break_protocol(self, host: str, principal: Principal = ANONYMOUS_PRINCIPAL) -> None:
        """Open a connection, and have its session ended for a fault: three lines or more."""
        client = Client(self.house)
        engine, frontend = self.house.accept(principal)
        frontend.facts = TransportFacts(f"{host}:4711", host=host)
        wire = Wire(self.clock, (client.connection, client), (engine, frontend))
        assert client.session is not None
        self.run_now()
        self.run_now()
        bad = spec.Attach(
            name="map",
            handle=9_000_000,
            role=False,
            source=spec.Source(address="raw"),
            target=spec.Target(address="q"),
            initial_delivery_count=0,
            properties={Symbol("n"): None},
        )
        wire.right.receive(frame(bad))
        self.run_now()
        wire.cut()
        self.run_now()

    def test_stranger(self) -> None:
        """An address that reconnects and breaks the protocol for four hours."""
        rounds = 400
        for _ in range(rounds):
            self.break_protocol("192.0.2.7")
            self.advance(36)
        self.output.sum_up()
        opened = GROUPS["stranger"].party.burst + 4 * HOUR // 60 - 1
        self.assertEqual(len(self.lines("opened by anonymous")), opened)
        self.assertLessEqual(len(self.lines()), most_lines_of_party("stranger", 4 * HOUR, kinds=3))
        self.assertLess(len(self.stream.getvalue()), len(self.lines()) * LINE_OCTETS)
        # Nothing is swallowed: each connection has its line or is counted.
        written = len(self.lines("192.0.2.7:4711"))
        self.assertEqual((written + self.left_out()) % rounds, 0)
        self.assertGreaterEqual(written + self.left_out(), 2 * rounds)
        self.assertIn("opened by", self.lines("left out", "about 192.0.2.7")[0])
        first = self.lines("for its fault")[0]
        self.assertIn("handle", first, "the cause is told whole")

    def test_peer(self) -> None:
        """A named partner that breaks the protocol at each connect has its share and no more."""
        beta = Principal("peer", "beta.example", frozenset({"beta.example"}))
        for _ in range(400):
            self.break_protocol("192.0.2.8", beta)
            self.advance(9)
        self.output.sum_up()
        self.assertLessEqual(len(self.lines()), most_lines_of_party("partner", HOUR, kinds=3))
        self.assertIn("beta.example", self.lines("for its fault")[0])
        self.assertLess(len(self.stream.getvalue()), len(self.lines()) * LINE_OCTETS)

    def test_partner_beside_strangers(self) -> None:
        """Strangers of many addresses use up all they have; the partner's fault is still told."""
        for number in range(600):
            self.break_protocol(f"198.51.{number // 250}.{number % 250}")
        before = len(self.lines())
        self.break_protocol("198.51.99.1")
        self.assertEqual(len(self.lines()), before, "strangers have nothing left")
        beta = Principal("peer", "beta.example", frozenset({"beta.example"}))
        self.break_protocol("192.0.2.8", beta)
        self.assertEqual(len(self.lines("opened by peer:beta.example")), 1)
        for what in ("session ended", "closed by us"):
            told = self.lines("(peer:beta.example)", what, "handle 9000000 is above")
            self.assertEqual(len(told), 1, what)
        # Its address stands for it where a connection comes to nothing.
        Logger(namespace="amqproute.net.listener").info(
            "{peer} at {listener}: {code}", peer="192.0.2.8:4712", listener="l", code="tls.expired"
        )
        self.assertEqual(len(self.lines("tls.expired")), 1)
        self.assertLessEqual(before, most_lines("stranger", 0))


class DestinationTests(LogCase):
    """Thousands of domains that cannot be reached, tried again and again."""

    COUNT = 2000

    def setUp(self) -> None:
        super().setUp()
        self.house = MemoryBroker(Network(self.clock), "alpha.example", node("q"))

        async def find(*_: Any) -> Any:
            raise AssertionError("there are no places")

        self.decisions = RoutingDecisions(find)

    def back_off(self, domain: str) -> BackOff:
        """Return what is known of a destination."""
        begin, now_ms = self.house.broker.begin, wall(self.clock)
        return BackOff(domain, begin, now_ms, lambda: 0.5, RelayTerms())

    def fail(self, back_off: BackOff, code: str) -> None:
        """Fail an attempt at a domain, as its look-up does."""
        domain = back_off._key
        self.decisions.made(
            NextHop(domain, domain), error=ResolveError(code, f"{domain}: refused", permanent=False)
        )
        verdict = FailureVerdict(
            FailureScope.DESTINATION, FailureAction.RETRY, code, f"{domain}: refused"
        )
        back_off.failed(verdict, None, 1)

    def test_failing_destinations(self) -> None:
        """Four hours with six attempts at each: lines in sum, and a partner's told whole."""
        failing = [self.back_off(f"d{n}.example") for n in range(self.COUNT)]
        written = []
        for attempt in range(6):
            before = len(self.lines())
            for back_off in failing:
                self.fail(back_off, ("dns.refused", "dns.timeout")[attempt % 2])
            if attempt == 1:
                self.fail(self.back_off("beta.example"), "dns.refused")
            written.append(len(self.lines()) - before)
            for _ in range(40):
                self.advance(60)
        self.output.sum_up()
        self.assertGreater(written[0], 100, "the first have their lines")
        self.assertLessEqual(len(self.lines()), most_lines("destination", 4 * HOUR) + 2)
        self.assertLess(len(self.stream.getvalue()), len(self.lines()) * LINE_OCTETS)
        self.assertEqual(len(self.lines("beta.example: dns.refused")), 1)
        (told,) = self.lines("beta.example cannot be reached (1 attempt)")
        self.assertIn("dns.refused: beta.example: refused; 1 message waits", told)
        lines = len([line for line in self.lines() if "d1" in line or "example" in line])
        self.assertGreaterEqual(lines + self.left_out(), 2 * 6 * self.COUNT)


class ExemptionTests(LogCase):
    """The lines that are never left out, and the longest line."""

    def logger(self, namespace: str) -> Logger:
        return Logger(namespace=namespace)

    def test_debug(self) -> None:
        """At level debug everything is written."""
        self.open_log("debug")
        for _ in range(500):
            self.logger("amqproute.frontends.amqp10.connection_frontend").info(
                "{connection} closed", connection="a:1"
            )
        self.assertEqual(len(self.lines()), 500)

    def test_errors_and_operators(self) -> None:
        """Damage, and what operators do, has a line each."""
        for number in range(500):
            self.logger("amqproute.store.large_bodies").error("{body} cannot be read", body=number)
            self.logger("amqproute.services.change_batch").info(
                "{who}: {what}", who="user:op", what=1
            )
        self.assertEqual(len(self.lines()), 1000)

    def test_exceptions(self) -> None:
        """A stranger who has found a mistake of ours does not fill the disk with tracebacks."""
        try:
            raise ValueError("a mistake")
        except ValueError:
            failure = Failure()
        for _ in range(500):
            self.logger("amqproute.net.inbound_trust").failure("deciding failed", failure)
        self.output.sum_up()
        self.assertEqual(len(self.lines("deciding failed")), GROUPS["program"].party.burst + 1)
        self.assertEqual(self.left_out(), 400)

    def test_refused_log_ins(self) -> None:
        """They have bounds of their own, for fail2ban."""
        noted = RefusedLogIns(self.clock)
        for number in range(1000):
            noted.note(f"192.0.2.{number % 250}", "PLAIN", "ann")
            if number % 100 == 99:
                self.clock.advance(10)
        noted.stop()
        self.assertEqual(len(self.lines("log-in failed from")), 1000)

    def test_manager_without_right(self) -> None:
        """A client that asks for what it may not has a share."""
        for _ in range(500):
            self.logger("amqproute.services.management_node").warn(
                "{who} may not {what}", who="user:ann", what="DELETE"
            )
        self.assertEqual(len(self.lines()), GROUPS["user"].party.burst)

    def test_long_fields(self) -> None:
        """Texts chosen by others are cut, in text and in JSON."""
        for render in (text_line, json_line):
            self.stream.truncate(0)
            self.open_log(render=render)
            self.logger("amqproute.relay.backoff").warn(
                "{destination} cannot be reached: {error}",
                destination="d.example",
                error=ValueError("x" * 100_000),
                attempts=["y" * 100_000] * 500,
                decision={"places": [{"host": "z" * 5000}] * 5000},
            )
            self.assertLess(len(self.stream.getvalue()), 60 * LONGEST_FIELD)
            self.assertIn("x" * LONGEST_FIELD + "...", self.stream.getvalue())

    def test_others_hear_the_original(self) -> None:
        """An event is not changed for other observers."""
        events: list[LogEvent] = []
        globalLogPublisher._observers = [*globalLogPublisher._observers, events.append]
        long = "x" * 5000
        self.logger("amqproute.relay").warn("{destination}: {e}", destination="d.example", e=long)
        self.assertEqual(events[0]["e"], long)

    def test_relay_queues(self) -> None:
        """Events of a relay queue concern its destination: strangers displace no partner."""
        log, text = self.logger("amqproute.broker.disposal"), "{count} messages on {node} dropped"
        for number in range(1000):
            log.info(text, count=1, node=f"amqp$out/d{number}.example")
        log.info(text, count=7, node="amqp$out/beta.example")
        self.assertEqual(len(self.lines("7 messages on amqp$out/beta.example dropped")), 1)
        total = GROUPS["destination"].total
        assert total is not None
        self.assertEqual(len(self.lines()), total.burst + 1)

    def test_line_within_a_line(self) -> None:
        """Garbage collection may log while a line is being judged; the log does not stand still."""
        log = self.logger("amqproute.frontends.amqp10.connection_frontend")

        class Ending:
            def __str__(self) -> str:
                log.info("ended")
                return "user:ann"

        log.info("{principal} opened", principal=Ending())
        self.assertEqual(len(self.lines("connection_frontend: user:ann opened")), 1)
        self.assertGreaterEqual(len(self.lines("connection_frontend: ended")), 1)

    def test_memory(self) -> None:
        """Parties without end are not remembered without end."""
        for number in range(12_000):
            self.logger("amqproute.relay").info("{destination}", destination=f"d{number}.example")
            self.clock.advance(2)
        bounded = self.output._bounded
        self.assertLessEqual(len(bounded._shares._shares["destination"]), 10_000)
