# SPDX-License-Identifier: Apache-2.0
"""Reports to senders: recipients, once only, and as reliable as the events."""

from __future__ import annotations

import os
import uuid
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock

from amqproute.broker.publish_gate import STORE
from amqproute.broker.queue import Queue
from amqproute.errors import ConnectError, PreconditionFailed, ResolveError
from amqproute.message import Message
from amqproute.outcomes import ErrorDetails
from amqproute.relay.destination import Destination
from amqproute.relay.destination_row import row_of
from amqproute.relay.error_disclosure import DENIED
from amqproute.services.sender_reports import CODES, check_wishes, wishes
from amqproute.translation.message_content import DeliveryState, content_of
from amqproute.values import ORIGIN, REPORT, REPORT_KIND, RETURN_TO
from amqproute.wire.amqp09.arguments import decode_properties
from amqproute.wire.amqp09.methods import BasicProperties
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.types import Symbol, UInt, ULong
from tests.support.asserts import HouseTestCase
from tests.support.fakes import message, node
from tests.support.memory_broker import MemoryBroker, Network
from tests.support.reporting import CAPABILITIES, asking, let_report, reports_on, watch_delays

A, B = "alpha.example", "beta.example"
DELIVERED = ("failure", "delivered")
FACTOR = 20 if os.environ.get("AMQPROUTE_HYPOTHESIS") == "long" else 1


class ReportCase(HouseTestCase):
    """Alpha with the nodes ``q``, ``back`` and ``dead``; beta with ``orders``."""

    def setUp(self) -> None:
        super().setUp()
        self.network = Network(self.clock)
        self.alpha = self.house(A, "q", "back", "dead")

    def house(self, domain: str, *names: str, reports: bool = True, **changes: Any) -> MemoryBroker:
        """Put a broker on the network."""
        capabilities = CAPABILITIES if reports else ("AMQPROUTE:TRANSFER", "ANONYMOUS-RELAY")
        house = MemoryBroker(
            self.network, domain, *map(node, names), capabilities=capabilities, **changes
        )
        if reports:
            let_report(house, dead_letter="dead")
        return house

    def send(self, *messages: Message, address: str = "amqp$transfer", house: Any = None) -> None:
        """Send from a client of a broker, alpha by default."""
        client = (house or self.alpha).client()
        link = client.sender(address)
        self.run_now()
        client.send(link, *messages)
        self.run_now()
        self.assertOutcomes(client, *["Accepted"] * len(messages))

    def consume(self, house: MemoryBroker, name: str, outcome: Any) -> None:
        """Have a consumer settle everything on a node."""
        consumer = house.client()
        consumer.receiver(name, 100)
        self.run_now()
        consumer.settle(consumer.deliveries, outcome)
        self.run_now()
        self.run_now()

    def report(self, name: str = "back", house: Any = None) -> dict[str, Any]:
        """Return the one report on a node."""
        (report,) = reports_on(house or self.alpha, name)
        return report


class KindTests(ReportCase):
    """Each kind, when it is wanted."""

    def test_failure(self) -> None:
        """The peer has no such node: code, its own words, the host, the message's identity."""
        self.house(B, "orders")
        number = ULong(1 << 63)
        self.send(
            asking(
                b"x",
                to=f"nobody@{B}",
                message_id=number,
                correlation_id=uuid.UUID(int=7),
                subject="greetings",
            )
        )
        self.run_for(5)
        report = self.report()
        self.assertEqual((report["kind"], report["code"]), ("failure", "remote.no-node"))
        self.assertIs(report["final"], True)
        self.assertEqual(report["condition"], "amqp:not-found")
        self.assertIn("nobody", report["text"])
        self.assertEqual((report["message-id"], type(report["message-id"])), (number, ULong))
        self.assertEqual(report["correlation-id"], uuid.UUID(int=7))
        self.assertEqual((report["to"], report["subject"]), (f"nobody@{B}", "greetings"))
        self.assertEqual(report["reporter"], A)
        self.assertEqual(list(report["hops"]), [f"ct-{A}"])
        (attempt,) = report["attempts"]
        self.assertEqual((attempt["host"], attempt["container"]), (B, f"ct-{B}"))
        self.assertEqual((attempt["code"], attempt["text"]), ("remote.no-node", report["text"]))
        self.assertIn(report["text"], report["words"])
        encoded = next(
            Message(row.encoded)
            for row in self.alpha.store.rows("back")
            if Message(row.encoded).offsets.body_code == 0x77
        )
        self.assertEqual(encoded.properties.correlation_id, number)
        self.assertEqual(encoded.properties.to, "back")
        self.assertEqual(encoded.properties.subject, "failure: remote.no-node")
        self.assertEqual(encoded.annotations, {REPORT_KIND: "failure"})
        self.assertTrue(encoded.durable)
        heads = encoded.application_properties
        self.assertEqual(
            {name: report[name] for name in ("kind", "final", "code", "text", "words", "to")},
            {name: value for name, value in heads.items() if name != "condition"},
        )
        self.assertEqual(heads["condition"], report["condition"])
        # A client of 0-9-1 reads it without a decoder for AMQP 1.0.
        content = content_of(encoded, DeliveryState("back", 0))
        seen = decode_properties(60, content.property_octets)
        assert isinstance(seen, BasicProperties)
        headers = seen.headers or {}
        self.assertEqual([headers[name] for name in heads], list(heads.values()))
        self.assertEqual(seen.correlation_id, str(number))

    def test_usual(self) -> None:
        """Senders get report and message by default, and otherwise what they choose, or nothing."""
        self.house(B, "orders")
        to = f"nobody@{B}"
        self.send(
            asking(b"usual", to=to),
            asking(b"report", "failure", to=to),
            asking(b"return", "return", to=to),
            asking(b"never", "never", "failure", to=to),
            asking(b"no address", "failure", to=to, return_to=None),
        )
        self.run_for(5)
        self.assertEqual(len(reports_on(self.alpha)), 2)
        returned = [
            Message(row.encoded)
            for row in self.alpha.store.rows("back")
            if Message(row.encoded).offsets.body_code == 0x75
        ]
        self.assertEqual([each.body_values()[0] for each in returned], [b"usual", b"return"])
        for each in returned:
            self.assertFalse({RETURN_TO, REPORT} & set(each.annotations))

    def test_rejected_by_a_consumer(self) -> None:
        """Back, once, to who asked for the message; else, or if that leads nowhere, dead letters.

        Not exclusive of each other (O-20, O-25, K-28): a message goes one way of the two.
        """
        self.alpha.broker.nodes["q"].dead_letter_name = "dead"
        self.send(
            asking(b"usual"),
            asking(b"return", "return"),
            asking(b"report", "failure"),
            asking(b"nowhere", "return", return_to="nowhere"),
            asking(b"no address", return_to=None),
            address="q",
        )
        self.consume(self.alpha, "q", spec.Rejected())
        kept: dict[str, list[bytes]] = {"back": [], "dead": []}
        for name, found in kept.items():
            messages = [Message(row.encoded) for row in self.alpha.store.rows(name)]
            found += [each.body_values()[0] for each in messages if each.offsets.body_code == 0x75]
        self.assertEqual(kept["back"], [b"usual", b"return"])
        self.assertEqual(kept["dead"], [b"report", b"nowhere", b"no address"])
        self.assertEqual(self.alpha.depth("q"), 0)

    def test_delivered(self) -> None:
        """A consumer over there has accepted it: beta tells alpha's sender."""
        beta = self.house(B, "orders")
        self.send(asking(b"x", *DELIVERED, to=f"orders@{B}", return_to=f"back@{A}"))
        self.run_for(2)
        self.assertEqual(reports_on(self.alpha), [])
        self.consume(beta, "orders", spec.Accepted())
        self.run_for(2)
        report = self.report()
        self.assertEqual((report["kind"], report["code"]), ("delivered", "done.delivered"))
        self.assertEqual((report["reporter"], report["final"]), (B, True))
        self.assertEqual(list(report["hops"]), [f"ct-{A}", f"ct-{B}"])

    def test_relayed(self) -> None:
        """The next hop has it: no last word as long as the next hop reports itself."""
        self.house(B, "orders")
        words = ("relayed", "delivered")
        self.send(asking(b"x", *words, to=f"orders@{B}", return_to=f"back@{A}"))
        self.run_for(2)
        report = self.report()
        self.assertEqual((report["kind"], report["final"]), ("relayed", False))
        self.assertEqual(report["attempts"][0]["host"], B)

    def test_next_hop_does_not_report(self) -> None:
        """`relayed` is the last report for a request for `delivered`: no more will be known."""
        beta = self.house(B, "orders", reports=False)
        self.send(asking(b"x", *DELIVERED, to=f"orders@{B}", return_to=f"back@{A}"))
        self.run_for(2)
        report = self.report()
        self.assertEqual((report["kind"], report["final"]), ("relayed", True))
        self.assertEqual(report["code"], "done.unreporting")
        self.consume(beta, "orders", spec.Accepted())
        self.run_for(2)
        self.assertEqual(len(reports_on(self.alpha)), 1)

    def test_delay(self) -> None:
        """Once, after the time, also if a restart comes between; then the end is told as well."""
        self.network.dead.add(B)
        reporter = self.alpha.broker.disposal.reporter
        watch = watch_delays(self.alpha, reporter, 100.0)
        self.send(asking(b"1", "delay", "failure", to=f"orders@{B}"))
        self.run_for(90, 10)
        self.assertEqual(reports_on(self.alpha), [])
        self.run_for(60, 10)
        report = self.report()
        self.assertEqual((report["kind"], report["code"]), ("delay", "delay.waiting"))
        self.assertIs(report["final"], False)
        self.assertIn("peer.unreached", report["text"])
        (attempt,) = report["attempts"]
        self.assertEqual((attempt["host"], attempt["code"]), (B, "peer.unreached"))
        self.assertNotIn("refused", str(report))  # a closed port looks as any other
        self.assertGreater(report["next-attempt"], report["arrived"])
        self.send(asking(b"2", "delay", to=f"orders@{B}"))
        self.run_for(60, 10)
        watch.stop()
        self.alpha.crash()
        self.alpha = self.house(A, "q", "back", "dead", store=self.alpha.store)
        reporter = self.alpha.broker.disposal.reporter
        watch = watch_delays(self.alpha, reporter, 100.0)
        self.run_for(300, 10)
        self.assertEqual([each["kind"] for each in reports_on(self.alpha)], ["delay", "delay"])
        watch.stop()

    def test_local(self) -> None:
        """The same on a node of one's own: delivered, rejected."""
        self.send(asking(b"1", *DELIVERED), address="q")
        self.consume(self.alpha, "q", spec.Accepted())
        self.assertEqual(self.report()["code"], "done.delivered")
        self.send(asking(b"2", *DELIVERED), address="q")
        forged = spec.Error(
            condition="amqp:not-allowed", description="No!", info={Symbol("code"): "policy.path"}
        )
        self.consume(self.alpha, "q", spec.Rejected(error=forged))
        report = reports_on(self.alpha)[1]
        self.assertEqual((report["code"], report["text"]), ("node.rejected", "No!"))
        self.assertEqual(report["queue"], "q")


class CodeTests(ReportCase):
    """Each end has a code of its own."""

    def code(self) -> str:
        report = self.report()
        self.assertIn(report["code"], CODES)
        return str(report["code"])

    def destination(self) -> Destination:
        return self.alpha.relay.destinations[B]

    def test_unroutable(self) -> None:
        """The domain turns out not to exist when the message is here already."""
        self.network.dead.add(B)
        self.send(asking(b"x", "failure", to=f"q@{B}"))
        self.network.errors[B] = ResolveError(
            "dns.nxdomain", "there is no beta", permanent=True, attempts=("asked ns1: nxdomain",)
        )
        self.run_for(30)
        self.assertEqual(self.code(), "route.unroutable")
        report = self.report()
        self.assertEqual(report["remote-code"], "dns.nxdomain")
        self.assertIn("asked ns1", str(report["attempts"]))

    def expiring(self, hold: bool) -> str:
        self.network.dead.add(B)
        self.send(asking(b"x", "failure", to=f"q@{B}", ttl=UInt(60_000)))
        if hold:
            self.destination().hold("maintenance")
        self.run_for(70, 5)
        return self.code()

    def test_expired(self) -> None:
        """Its life ended; that nobody was reached is there, and not why."""
        self.assertEqual(self.expiring(False), "life.expired")
        self.assertEqual(self.report()["attempts"][0]["code"], "peer.unreached")
        self.assertNotIn("connection refused", str(self.report()))

    def test_nothing_of_our_network(self) -> None:
        """Closed, filtered, TLS that is none or somebody else's: one report, word for word."""
        told: set[str] = set()
        place = "10.0.0.1:5671"
        for number, (code, words) in enumerate((
            ("connect.refused", "connection refused"),
            ("connect.timeout", "no answer in time"),
            ("connect.unreachable", "no route to host"),
            ("tls.handshake", "wrong version number"),
            ("tls.plain-text", "HTTP/1.1 400"),
            ("tls.name", "it names intranet.corp.example"),
            ("tls.untrusted", "issued by CN=Corp"),
            ("dns.denied-target", "it is private"),
        )):  # fmt: skip
            error = ConnectError(code, f"{place}: {words}", (f"{place}: {code}: {words}",))
            self.network.failing[B] = error
            self.send(asking(b"%d" % number, "failure", to=f"q@{B}", ttl=UInt(20_000)))
            self.run_for(30, 5)
            report = reports_on(self.alpha)[-1]
            self.assertEqual(len(reports_on(self.alpha)), number + 1)
            told.add(str([report[key] for key in ("code", "text", "words", "attempts")]))
        closed = [each for each in told if "denied" not in each]
        self.assertEqual(len(closed), 1, told)
        for secret in ("10.0.0.1", "connect.", "tls.", "intranet", "Corp", "private"):
            self.assertNotIn(secret, str(told))

    def test_denied(self) -> None:
        """The domain leads inside: its sender does not hear where, nor by which rule."""
        self.network.dead.add(B)
        self.send(asking(b"x", "failure", to=f"q@{B}"))
        self.network.errors[B] = ResolveError(
            "dns.denied-target",
            "beta.example: it is private (10.0.0.0/8); allow it by resolver.allow-targets",
            permanent=True,
            attempts=("mx.beta.example at 10.0.0.1: denied, it is private (10.0.0.0/8)",),
        )
        destination = self.destination()
        self.run_for(30)
        report = self.report()
        self.assertEqual((report["code"], report["remote-code"]), ("route.unroutable", DENIED))
        for secret in ("10.0.0", "private", "allow-targets"):
            self.assertNotIn(secret, str(report))
        client = self.alpha.client()
        link = client.sender("amqp$transfer")
        self.run_now()
        client.send(link, asking(b"y", to=f"q@{B}"))
        self.run_now()
        self.assertOutcomes(client, "Rejected")
        self.assertIn(DENIED, str(client.updates))
        self.assertNotIn("private", str(client.updates))
        self.assertIn("private", row_of(destination)["last-error"])  # operators see it

    def test_expired_in_hold(self) -> None:
        """Its life ended because an operator held it: another code, and the operator's words."""
        self.assertEqual(self.expiring(True), "life.held")
        self.assertEqual(self.report()["held"], "maintenance")

    def test_forced(self) -> None:
        """An operator ends the life of what waits, in memory and on the disk."""
        self.network.dead.add(B)
        self.send(asking(b"x", "failure", to=f"q@{B}"))
        error = ErrorDetails("amqp:resource-deleted", "beta is gone")
        self.destination().queue.expire(error)
        self.run_now()
        self.assertEqual(self.code(), "life.forced")
        self.assertEqual(self.report()["text"], "beta is gone")

    def test_purged(self) -> None:
        """An operator deletes what waits."""
        self.network.dead.add(B)
        self.send(asking(b"x", "failure", to=f"q@{B}"))
        self.destination().purge()
        self.run_now()
        self.assertEqual(self.code(), "operator.purged")

    def test_purged_on_a_full_disk(self) -> None:
        """Messages without reports go at once, and make room; the others with their report."""
        self.network.dead.add(B)
        self.send(asking(b"x", "failure", to=f"q@{B}"), message(b"plain", to=f"q@{B}"))
        house, queue = self.alpha, self.destination().queue
        house.store.is_full = True
        purged = queue.purge()
        self.run_now()
        self.assertNoResult(purged)
        rows = house.store.rows(queue.name)
        self.assertEqual((len(rows), queue.depth), (1, 0))
        self.assertEqual(list(house.broker.gate.reasons), [STORE])
        house.store.is_full = False
        house.broker.gate.open(STORE)
        self.run_now()
        self.assertEqual(self.successResultOf(purged), 2)
        self.assertEqual(self.code(), "operator.purged")
        self.assertEqual(house.store.rows(queue.name), [])

    def test_gone_with_its_node_on_a_full_disk(self) -> None:
        """A node that ends while the disk is full tells its senders when there is room."""
        self.send(asking(b"x", "failure"), address="q")
        queue = self.alpha.broker.nodes["q"]
        self.alpha.store.is_full = True
        queue.delete()
        self.run_now()
        self.assertEqual(len(self.alpha.store.rows("q")), 1)
        self.alpha.store.is_full = False
        self.alpha.broker.gate.open(STORE)
        self.run_now()
        self.assertEqual(self.code(), "node.deleted")
        self.assertEqual(self.alpha.store.rows("q"), [])

    def test_size(self) -> None:
        """Larger than the peer takes."""
        self.house(B, "q", max_message_size=1000)
        self.send(asking(b"x" * 2000, "failure", to=f"q@{B}"))
        self.run_for(2)
        self.assertEqual(self.code(), "message.size")

    def test_loop(self) -> None:
        """Beta sees its own name in the trace."""
        self.house(B, "q")
        trace = {"x-opt-amqproute-trace": [f"ct-{B}"]}
        self.send(asking(b"x", "failure", to=f"q@{B}", annotations=trace))
        self.run_for(2)
        self.assertEqual(self.code(), "route.loop")
        self.assertIn(f"ct-{B}", self.report()["text"])

    def test_rejected(self) -> None:
        """A rejection for a reason of the peer's own."""
        self.house(B, "q", reports=False)
        beta = self.network.houses[B]
        queue, put = beta.broker.nodes["q"], Queue.put

        def rejecting(node: Queue, *given: Any) -> None:
            if node is queue:
                _reject()
            put(node, *given)

        self.patch(Queue, "put", rejecting)
        self.send(asking(b"x", "failure", to=f"q@{B}"))
        self.run_for(2)
        report = self.report()
        self.assertEqual((report["code"], report["remote-code"]), ("remote.rejected", "beta.own"))
        self.assertEqual(report["text"], "not on a Sunday")

    def test_deliveries(self) -> None:
        """Delivered too often without success."""
        self.alpha = self.house("gamma.example", "back", "dead")
        self.alpha.broker.declare([node("q", max_deliveries=1), node("back")], {})
        self.send(asking(b"x", "failure"), address="q")
        self.consume(self.alpha, "q", spec.Modified(delivery_failed=True))
        self.assertEqual(self.code(), "node.deliveries")


def _reject() -> None:
    raise PreconditionFailed("not on a Sunday", info={"code": "beta.own"})


class SafetyTests(ReportCase):
    """No report about a report; none suppressed; none lost."""

    def test_no_report_about_a_report(self) -> None:
        """Reports whose own delivery fails end with the dead letters, and nothing follows."""
        beta = self.house(B, "orders", "dead")
        self.send(asking(b"x", *DELIVERED, to=f"orders@{B}", return_to=f"back@{A}"))
        self.run_for(2)
        self.alpha.broker.declare([node("q"), node("dead")], {})  # the address is gone
        beta.relay.dead_letter_name = "dead"
        self.consume(beta, "orders", spec.Accepted())
        self.run_for(60, 5)
        (report,) = reports_on(beta, "dead")
        self.assertEqual(report["kind"], "delivered")
        self.assertEqual(reports_on(self.alpha, "dead"), [])

    def test_unreachable_here(self) -> None:
        """A return address that leads nowhere: the report is with the dead letters."""
        self.send(asking(b"x", *DELIVERED, return_to="nobody"), address="q")
        self.consume(self.alpha, "q", spec.Accepted())
        (row,) = self.alpha.store.rows("dead")
        message = Message(row.encoded)
        self.assertEqual(message.annotations[REPORT_KIND], "delivered")
        self.assertEqual(message.annotations["x-opt-dead-letter-reason"], "undeliverable")
        self.assertIsNone(message.header.ttl)

    def test_marks_suppress_nothing(self) -> None:
        """A message marked as a report by its author is reported all the same."""
        self.house(B, "orders")
        marks = {REPORT_KIND: Symbol("failure"), ORIGIN: A}
        self.send(asking(b"x", "failure", to=f"nobody@{B}", annotations=marks))
        self.run_for(2)
        self.assertEqual(self.report()["code"], "remote.no-node")

    def test_quotes_are_short(self) -> None:
        """A report is no way to carry content: what it repeats is cut."""
        much = "x" * 50_000
        trace = {"x-opt-amqproute-trace": [much, *("hop" for _ in range(10_000))]}
        sent = asking(
            b"x", "failure", message_id=much, correlation_id=much, subject=much, to="q",
            ttl=UInt(100), annotations=trace,
        )  # fmt: skip
        client = self.alpha.client()
        link = client.sender("q")
        self.run_now()
        client.send(link, sent)
        self.run_for(2)
        self.assertOutcomes(client, "Accepted")
        self.assertEqual(self.report()["code"], "life.expired")
        (row,) = self.alpha.store.rows("back")
        self.assertLess(len(row.encoded), 10_000)

    def test_wishes(self) -> None:
        """Requested kinds, one or many; unknown ones are refused to clients."""

        def asked(value: Any) -> frozenset[str]:
            marks = {RETURN_TO: "x", REPORT: value}
            return wishes(b"", frozenset({"delay"}), marks)

        self.assertEqual(asked(None), {"delay"})
        self.assertEqual(asked("failure"), {"failure"})
        self.assertEqual(asked([Symbol("failure"), "bogus"]), {"failure"})
        self.assertEqual(asked(["never", "failure"]), frozenset())
        for value in (1, {"failure": 1}, [1], b"failure"):
            self.assertEqual(asked(value), frozenset(), value)
            self.assertIsNotNone(check_wishes(value))
        self.assertIn("bogus", check_wishes(["bogus"]) or "")
        self.assertIsNone(check_wishes(["failure", Symbol("delivered")]))
        self.assertEqual(wishes(b"", frozenset({"delay"}), {REPORT: "delay"}), frozenset())


WORDS = ("send", "send", "accept", "reject", "release", "cut", "crash-a", "crash-b", "dead",
         "alive", "wait")  # fmt: skip
STEPS = st.lists(st.tuples(st.sampled_from(WORDS), st.integers(0, 25)), min_size=6, max_size=16)


class ExactlyOnceTests(ReportCase):
    """Every accepted message that asked ends in exactly one final report."""

    @given(steps=STEPS)
    @settings(max_examples=100 * FACTOR, phases=[Phase.explicit, Phase.generate])
    def test_any_course(self, steps: list[tuple[str, int]]) -> None:
        """Outcomes, cut wires and crashes in any order, also between a commit and what follows."""
        self.clock = Clock()
        self.network = Network(self.clock)
        self.alpha = self.house(A, "q", "back", "dead")
        self.beta = self.house(B, "orders", "dead")
        sent = 0
        for step, turns in [("send", 9), *steps]:
            if step == "send":
                sent += self.try_sending(sent)
            elif step in ("accept", "reject", "release"):
                self.try_consuming(step)
            elif step == "cut":
                for wire in self.network.wires:
                    wire.cut()
            elif step.startswith("crash"):
                self.step(turns)
                self.restart(step[-1])
            elif step == "dead":
                self.network.dead.add(B)
            elif step == "alive":
                self.network.dead.clear()
            else:
                self.run_for(turns)
            self.step(turns)
        self.network.dead.clear()
        self.run_for(700, 20)
        for _ in range(4):
            self.try_consuming("accept")
            self.run_for(30, 5)
        self.run_for(700, 20)
        final = [each["message-id"] for each in reports_on(self.alpha) if each["final"]]
        accepted = {Message(row).properties.message_id for row in self.accepted}
        self.assertEqual(sorted(set(final)), sorted(final), steps)
        self.assertLessEqual(accepted, set(final))
        self.assertEqual((self.alpha.depth(B), self.beta.depth("orders")), (0, 0))

    def setUp(self) -> None:
        super().setUp()
        self.accepted: list[bytes] = []

    def try_sending(self, number: int) -> int:
        if number == 0:
            self.accepted = []
        client = self.alpha.client()
        link = client.sender("amqp$transfer")
        self.run_now()
        to = f"orders@{B}" if number % 3 else f"nobody@{B}"
        messages = [
            asking(b"x", *DELIVERED, to=to, return_to=f"back@{A}", message_id=f"m{number + each}")
            for each in range(2)
        ]
        tags = client.send(link, *messages)
        self.run_now()
        settled = {tag for tag, state, _ in client.updates if isinstance(state, spec.Accepted)}
        for tag, sent in zip(tags, messages, strict=True):
            if tag in settled:
                self.accepted.append(sent.encoded)
        return 2

    def try_consuming(self, how: str) -> None:
        consumer = self.beta.client()
        consumer.receiver("orders", 100)
        self.run_now()
        outcome = {
            "accept": spec.Accepted(), "reject": spec.Rejected(), "release": spec.Released()
        }[how]  # fmt: skip
        if consumer.deliveries:
            consumer.settle(consumer.deliveries, outcome)
        self.step(3)

    def restart(self, which: str) -> None:
        if which == "a":
            self.alpha.crash()
            self.alpha = self.house(A, "q", "back", "dead", store=self.alpha.store)
        else:
            self.beta.crash()
            self.beta = self.house(B, "orders", "dead", store=self.beta.store)
