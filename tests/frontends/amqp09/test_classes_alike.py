# SPDX-License-Identifier: Apache-2.0
"""What a queue and its broker do to messages is the same for each class of AMQP 0-9.

Rules: 09-FILE-04, -05, -07, -11, -16, -35, -39, 09-MSG-03 to -06, -08, -22, -26.
Management and the journal are tested in `tests.http.test_amqp09_classes`, with a whole daemon.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.policy import Rule
from amqproute.broker.node_declaration import NodeDeclaration
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.publish_gate import STORE
from amqproute.frontends.common.contract_enforcement import ContractTerms
from tests.conformance.frame_broker import FrameBroker, Network
from tests.frontends.amqp09.class_publishes import CLASSES, PUBLISHES, SHOWN, consumed_by
from tests.support.client09 import Client09
from tests.support.wire09 import V09, call

CONSUMED = ("basic", "message", "file", "stream")
"""The classes that have consumers of their own."""
DEAD = [("x-dead-letter-exchange", "S", b""), ("x-dead-letter-routing-key", "S", b"dead")]


class AlikeTests(SynchronousTestCase):
    """Each test does the same with a message of each class."""

    def use(self, house: FrameBroker | None = None) -> None:
        """Have a client of 0-9 that publishes, and one of 0-9-1 that reads all classes."""
        self.house = house or Network().house()
        self.client = Client09(self.house, version=V09).channel()
        self.reader = Client09(self.house).channel()

    def declare(self, name: str, *arguments: tuple[str, str, Any]) -> None:
        self.reader.ask("queue.declare", queue="dead")
        self.reader.ask("queue.declare", queue=name, arguments=[*arguments, *DEAD])

    def publish(self, kind: str, key: str, body: bytes = b"body", **properties: Any) -> None:
        for step in PUBLISHES[kind](key, body, **properties):
            self.client.write(step)
        self.client.run()

    def taken(self, queue: str) -> tuple[bytes, dict[str, Any]]:
        """Get a message; return its body and its headers."""
        self.assertEqual(self.reader.ask("basic.get", queue=queue), ["basic.get-ok"])
        ((_, _, _, properties, body),) = self.reader.contents
        return body, {name: value for name, _, value in properties.get("headers", [])}

    def assertDead(self, kind: str, reason: bytes, body: bytes = b"body") -> None:
        """The message is a dead letter, with its reason and its class."""
        found, headers = self.taken("dead")
        ((_, death),) = headers["x-death"]
        why = {name: value for name, _, value in death}["reason"]
        shown = SHOWN.get(kind)
        expected = (body, reason, None if shown is None else shown.encode())
        self.assertEqual((found, why, headers.get("x-opt-content-class")), expected, kind)
        self.reader.write(call(1, "basic.ack", delivery_tag=0, multiple=1))
        self.assertEqual(self.reader.depth("dead"), 0)

    def test_expired(self) -> None:
        """The lifetime of a queue ends each, and makes it a dead letter."""
        self.use()
        self.declare("short", ("x-message-ttl", "I", 1000))
        for kind in CLASSES:
            self.publish(kind, "short")
            self.assertEqual(self.client.depth("short"), 1, kind)
            self.client.run(3)
            self.assertEqual(self.client.depth("short"), 0, kind)
            self.assertDead(kind, b"expired")

    def test_rejected(self) -> None:
        """A consumer that rejects one makes it a dead letter; with requeue it comes again."""
        self.use()
        self.declare("work")
        for kind in CLASSES:
            self.publish(kind, "work")
            for requeue in (1, 0):
                self.taken("work")
                (tag,) = self.reader.tags()
                self.reader.write(call(1, "basic.reject", delivery_tag=tag, requeue=requeue))
            self.assertEqual(self.client.depth("work"), 0, kind)
            self.assertDead(kind, b"rejected")

    def test_overflow(self) -> None:
        """A queue that is full drops the oldest, which is a dead letter."""
        self.use()
        self.declare("narrow", ("x-max-length", "I", 1))
        for kind in CLASSES:
            self.publish(kind, "narrow", b"first")
            self.publish(kind, "narrow", b"second")
            self.client.run(1)
            self.assertDead(kind, b"maxlen", b"first")
            self.reader.ask("queue.purge", queue="narrow")

    def test_priorities(self) -> None:
        """The one with the higher priority comes first; tunnel has the middle one."""
        self.use()
        self.declare("ranks", ("x-max-priority", "I", 9))
        ranks = {"basic": 1, "stream": 3, "tunnel": None, "file": 6, "message": 8}
        for kind, priority in ranks.items():
            more = {} if priority is None else {"priority": priority}
            self.publish(kind, "ranks", kind.encode(), **more)
        found = [self.taken("ranks")[0].decode() for _ in ranks]
        self.assertEqual(found, [*ranks][::-1])

    def test_ten_levels(self) -> None:
        """Ten priorities are told apart."""
        self.use()
        self.declare("ranks", ("x-max-priority", "I", 9))
        for kind in CONSUMED:
            for priority in (4, 0, 9, 7, 1, 8, 2, 6, 3, 5):
                self.publish(kind, "ranks", b"%d" % priority, priority=priority)
            found = [int(self.taken("ranks")[0]) for _ in range(10)]
            self.assertEqual(found, [*range(9, -1, -1)], kind)

    def test_nothing_is_discarded(self) -> None:
        """A queue that has too much for memory keeps it on the disk."""
        limits = QueueLimits(resident_messages=4)
        self.use(Network().house(nodes=(NodeDeclaration("q", limits),)))
        for kind in CLASSES:
            for number in range(20):
                self.publish(kind, "q", b"%s %d" % (kind.encode(), number))
        self.assertEqual(self.client.depth(), 20 * len(CLASSES))
        self.assertGreater(self.house.broker.nodes["q"].state.levels.paged, 0)
        found = [self.taken("q")[0].decode() for _ in range(20 * len(CLASSES))]
        sent = [f"{kind} {number}" for kind in CLASSES for number in range(20)]
        self.assertEqual(sorted(found), sorted(sent))

    def test_delivery_limit(self) -> None:
        """What has come back too often is a dead letter."""
        self.use()
        self.declare("often", ("x-delivery-limit", "I", 2))
        for kind in CLASSES:
            self.publish(kind, "often")
            for _ in range(3):
                self.taken("often")
                (tag,) = self.reader.tags()
                self.reader.write(call(1, "basic.reject", delivery_tag=tag, requeue=1))
            self.assertDead(kind, b"delivery_limit")

    def delivered_to(self, kind: str, client: Client09) -> list[str]:
        """Return the consumers to whom messages of a class came, in order."""
        while opens := [each for each in client.methods if each[1] == "file.open"]:
            client.methods = [each for each in client.methods if each[1] != "file.open"]
            for _ in opens:
                client.write(call(1, "file.open-ok"))
        names = (f"{kind}.deliver", "message.transfer")
        return [
            arguments.get("consumer-tag") or arguments["destination"]
            for _, name, arguments in client.methods
            if name in names
        ]

    def consume(self, kind: str, tag: str, *filters: tuple[str, str, Any]) -> None:
        name, arguments = consumed_by(kind)
        arguments = dict.fromkeys(arguments, tag)
        self.reader.write(call(1, name, queue="q", filter=list(filters), **arguments))
        self.reader.methods.clear()

    def test_consumers(self) -> None:
        """Sixteen consumers of a queue share what comes."""
        for kind in CONSUMED:
            self.use()
            self.reader = Client09(self.house, version=V09).channel()
            tags = [f"c{number}" for number in range(16)]
            for tag in tags:
                self.consume(kind, tag)
            for number in range(16):
                self.publish(kind, "q", b"%d" % number)
            self.reader.run()
            self.assertEqual(sorted(self.delivered_to(kind, self.reader)), sorted(tags), kind)

    def test_filter(self) -> None:
        """The filter table has a priority among consumers."""
        for kind in CONSUMED:
            self.use()
            self.reader = Client09(self.house, version=V09).channel()
            self.consume(kind, "low")
            self.consume(kind, "high", ("x-priority", "I", 5))
            self.publish(kind, "q", b"1")
            self.publish(kind, "q", b"2")
            self.reader.run()
            self.assertEqual(self.delivered_to(kind, self.reader), ["high", "high"], kind)

    def test_rights(self) -> None:
        """Without the right to publish the channel ends with 403, and nothing is put."""
        for kind in CLASSES:
            rules = [Rule.of(who="*", node="q", allow=["consume"])]
            self.use(Network().house(access=rules))
            self.publish(kind, "q")
            self.assertEqual(self.client.closes(), [("channel", 403)], kind)
            self.assertEqual(self.client.depth(), 0, kind)

    def test_watermarks(self) -> None:
        """While the broker takes nothing the client is not read, and goes on then."""
        for kind in CLASSES:
            self.use()
            self.publish(kind, "q", b"before")
            self.house.broker.gate.close(STORE, "the disk is full")
            self.client.run()
            self.assertEqual(self.client.end.producerState, "paused", kind)
            self.house.broker.gate.open(STORE)
            self.client.run()
            self.assertEqual(self.client.end.producerState, "producing", kind)
            self.publish(kind, "q", b"after")
            self.assertEqual(self.client.depth(), 2, kind)

    def test_contracts(self) -> None:
        """A contract bounds the size of each: 311."""
        for kind in CLASSES:
            house = Network().house(contracts={"user:ann": ContractTerms(max_message_size=1000)})
            self.use(house)
            self.publish(kind, "q", b"x" * 100)
            self.assertEqual((self.client.closes(), self.client.depth()), ([], 1), kind)
            self.publish(kind, "q", b"x" * 2000)
            self.assertEqual(self.client.closes(), [("channel", 311)], kind)
            self.assertEqual(self.client.depth(), 1, kind)

    def test_purged(self) -> None:
        """What is purged is gone, whatever it was."""
        self.use()
        for kind in CLASSES:
            self.publish(kind, "q")
        found = self.client.answer("queue.purge", queue="q")
        self.assertEqual((found, self.client.depth()), ({"message-count": len(CLASSES)}, 0))
