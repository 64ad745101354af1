# SPDX-License-Identifier: Apache-2.0
"""Bindings: from topics and queues to nodes here and elsewhere (N-09 to N-12)."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.binding import BindingDeclaration
from amqproute.broker.publish_gate import STORE
from amqproute.errors import ConfigError, InvalidField, NotAllowed, NotFound, ResourceLimitExceeded
from amqproute.message import Message
from amqproute.outcomes import Acceptance
from tests.broker.test_topic import colored
from tests.support.fakes import KeptStore, Taker, make_broker, message, node, put, topic


class BindingCase(SynchronousTestCase):
    """A broker with bindings."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.store = KeptStore(self.clock)

    def build(self, *nodes: Any, bindings: Any = ()) -> None:
        """Build the broker."""
        self.broker = make_broker(self.clock, self.store, *nodes, bindings=bindings)
        self.run_now()

    def run_now(self) -> None:
        """Let everything happen that is due."""
        for _ in range(20):
            self.clock.advance(0)

    def put(self, name: str, *messages: Message) -> Any:
        """Put messages on a node."""
        done = put(self.broker, self.broker.target(name), *messages)
        self.run_now()
        return done

    def bodies(self, name: str) -> list[bytes]:
        """Return the bodies that stand in the store for a node."""
        return [Message(row.encoded).body_values()[0] for row in self.store.rows(name)]


class TopicTests(BindingCase):
    """From a topic: a copy within the publisher's batch."""

    def test_filter(self) -> None:
        """Each target gets what its binding selects; a body for two is stored once (W-09)."""
        self.build(
            topic("t"),
            node("q1"),
            node("q2"),
            bindings=(
                BindingDeclaration("t", "q1", "color = 'red'"),
                BindingDeclaration("t", "q2", mode="copy"),
            ),
        )
        self.put("t", colored("red"), colored("blue"))
        self.assertEqual(self.bodies("q1"), [b"red"])
        self.assertEqual(self.bodies("q2"), [b"red", b"blue"])
        self.assertEqual(len(self.store._payloads), 1)

    def test_full(self) -> None:
        """A full target takes credit from publishers; nobody gets half of it (N-12)."""
        bindings = [BindingDeclaration("t", name) for name in ("q1", "q2")]
        self.build(topic("t"), node("q1", capacity=1), node("q2"), bindings=bindings)
        self.put("t", message(b"1"))
        self.assertEqual(self.broker.topics["t"].space(), 0)
        self.assertRaises(ResourceLimitExceeded, self.put, "t", message(b"2"))
        self.assertEqual(self.bodies("q2"), [b"1"])

    def test_topic_to_topic(self) -> None:
        """A topic can be bound to a topic."""
        self.build(
            topic("t"),
            topic("u"),
            node("q"),
            bindings=(BindingDeclaration("t", "u"), BindingDeclaration("u", "q")),
        )
        self.put("t", message(b"x"))
        self.assertEqual(self.bodies("q"), [b"x"])

    def test_elsewhere(self) -> None:
        """A target elsewhere is the relay queue on the way there."""
        self.build(topic("t"), node("out"), bindings=[BindingDeclaration("t", "q@b.test")])
        self.broker.return_to = lambda address: self.broker.nodes["out"]
        self.put("t", message(b"x"))
        self.assertEqual(self.bodies("out"), [b"x"])

    def test_target_refuses(self) -> None:
        """A message refused by one target for its own reasons reaches the others."""
        self.build(
            topic("t"),
            node("q"),
            bindings=[BindingDeclaration("t", name) for name in ("q", "x@b.test")],
        )
        self.broker.return_to = lambda address: _Refusing()
        self.put("t", message(b"x"))
        self.assertEqual(self.bodies("q"), [b"x"])


class _Refusing:
    name = "refusing"

    def space(self) -> int:
        """There is some."""
        return 1

    def put(self, *_: Any) -> None:
        """Refuse."""
        raise NotAllowed("no")


class QueueTests(BindingCase):
    """From a queue: a consumer among others that moves in one batch."""

    def test_moves(self) -> None:
        """Present and new messages are moved; ids, counts and rows are in order."""
        self.build(node("a"), node("b"))
        self.put("a", message(b"1"))
        binding = self.broker.bind(BindingDeclaration("a", "b", mode="move"))
        self.run_now()
        self.put("a", message(b"2"), message(b"3", durable=False))
        self.assertEqual((self.bodies("a"), self.bodies("b")), ([], [b"1", b"2"]))
        queues = self.broker.nodes
        self.assertEqual((queues["a"].depth, queues["b"].depth, binding.moved), (0, 3, 3))
        self.assertEqual(queues["a"].acquired, 0)

    def test_fair(self) -> None:
        """It shares with a direct consumer (N-11)."""
        self.build(node("a"), node("b"), bindings=[BindingDeclaration("a", "b")])
        taker = Taker(self.broker.nodes["a"], 100)
        self.put("a", *(message(b"%d" % number) for number in range(10)))
        self.assertEqual((len(taker.seen), self.broker.nodes["b"].depth), (5, 5))

    def test_filter(self) -> None:
        """Unselected messages stay for others."""
        self.build(node("a"), node("b"), bindings=[BindingDeclaration("a", "b", "color = 'red'")])
        self.put("a", colored("red"), colored("blue"), message(b"none"))
        self.assertEqual(self.bodies("a"), [b"blue", b"none"])
        self.assertEqual(self.bodies("b"), [b"red"])

    def test_full(self) -> None:
        """A full target: no credit, until there is space again (N-12)."""
        self.build(node("a"), node("b", capacity=2), bindings=[BindingDeclaration("a", "b")])
        self.put("a", *(message(b"%d" % number) for number in range(5)))
        self.assertEqual((self.bodies("a"), self.bodies("b")), ([b"2", b"3", b"4"], [b"0", b"1"]))
        taker = Taker(self.broker.nodes["b"], 0)
        taker.take(1)
        taker.settle(self.broker, list(taker.held), Acceptance())
        self.run_now()
        self.assertEqual((self.bodies("a"), self.bodies("b")), ([b"3", b"4"], [b"1", b"2"]))

    def test_store_fails(self) -> None:
        """A move that cannot be stored has not happened; it is tried again."""
        self.build(node("a"), node("b"))
        self.put("a", message(b"1"), message(b"2"))
        self.store.is_failing = True
        binding = self.broker.bind(BindingDeclaration("a", "b"))
        self.run_now()
        self.assertIn("disk is full", binding.words)
        self.assertEqual((self.bodies("a"), self.broker.nodes["a"].available), ([b"1", b"2"], 2))
        self.store.is_failing = False
        self.clock.advance(1)
        self.run_now()
        self.assertEqual((self.bodies("a"), self.bodies("b")), ([], [b"1", b"2"]))
        self.assertEqual(self.broker.nodes["a"].acquired, 0)

    def test_restart(self) -> None:
        """Messages that wait at a start are moved, too."""
        self.build(node("a"), node("b"))
        self.put("a", *(message(b"%d" % number) for number in range(3)))
        self.build(node("a"), node("b"), bindings=[BindingDeclaration("a", "b")])
        self.assertEqual((self.bodies("a"), self.bodies("b")), ([], [b"0", b"1", b"2"]))

    def test_refused(self) -> None:
        """A message refused by the target is rejected on the source: a dead letter of it."""
        self.build(node("a", "dead"), node("dead"), bindings=[BindingDeclaration("a", "x@b.test")])
        self.broker.return_to = lambda address: _Refusing()
        self.put("a", message(b"x"))
        self.clock.advance(1)
        self.run_now()
        self.assertEqual((self.bodies("a"), self.bodies("dead")), ([], [b"x"]))

    def test_refused_on_a_full_disk(self) -> None:
        """Its dead letter is there when there is room; what could be moved is moved then."""
        self.build(node("a", "dead"), node("dead"), node("b"))
        self.put("a", message(b"no"), message(b"yes"))
        b = self.broker.nodes["b"]
        targets: list[Any] = [b, _Refusing(), b]  # for the capacity, then for each
        self.broker.return_to = lambda _: targets.pop(0) if targets else b
        self.store.is_full = True
        self.broker.bind(BindingDeclaration("a", "x@b.test"))
        self.run_now()
        self.assertEqual(self.bodies("a"), [b"no", b"yes"])
        self.assertEqual(list(self.broker.gate.reasons), [STORE])
        self.store.is_full = False
        self.broker.gate.open(STORE)
        self.run_now()
        self.assertEqual((self.bodies("a"), self.bodies("dead")), ([b"yes"], [b"no"]))
        self.clock.advance(1)
        self.run_now()
        self.assertEqual((self.bodies("a"), self.bodies("b")), ([], [b"yes"]))
        self.assertEqual(self.broker.nodes["a"].acquired, 0)

    def test_way_not_known(self) -> None:
        """A way that is not there yet: it waits."""
        self.build(node("a"), node("b"), bindings=[BindingDeclaration("a", "x@b.test")])
        self.put("a", message(b"x"))
        self.assertEqual(self.bodies("a"), [b"x"])
        self.broker.return_to = lambda address: self.broker.nodes["b"]
        self.clock.advance(1)
        self.run_now()
        self.assertEqual(self.bodies("b"), [b"x"])

    def test_life_goes_on(self) -> None:
        """A ttl does not begin anew with the move."""
        self.build(node("a"), node("b"))
        self.put("a", message(b"x", ttl=1000))
        self.clock.advance(0.6)
        self.broker.bind(BindingDeclaration("a", "b"))
        self.run_now()
        self.assertEqual(self.broker.nodes["b"].depth, 1)
        self.clock.advance(0.6)
        self.run_now()
        self.assertEqual(self.broker.nodes["b"].depth, 0)


class DirectoryTests(BindingCase):
    """Bindings come and go with the configuration and with their nodes."""

    def test_reload(self) -> None:
        """Bindings are those of the configuration."""
        one, two = BindingDeclaration("t", "q"), BindingDeclaration("t", "q", "color = 'red'")
        nodes = [topic("t"), node("q")]
        self.build(*nodes, bindings=[one])
        first = self.broker.bindings[one]
        self.broker.declare(nodes, {}, [one, two])
        self.assertIs(self.broker.bindings[one], first)
        self.broker.declare(nodes, {}, [two])
        self.assertEqual(list(self.broker.bindings), [two])
        self.put("t", colored("red"), colored("blue"))
        self.assertEqual(self.bodies("q"), [b"red"])

    def test_deleted_node(self) -> None:
        """A node's bindings go with it, whichever end it is (W-09)."""
        self.build(topic("t"), node("a"), node("b"))
        made = self.broker.create_dynamic()
        self.broker.bind(BindingDeclaration("t", made.name))
        self.broker.bind(BindingDeclaration(made.name, "a"))
        kept = self.broker.bind(BindingDeclaration("a", "b"))
        self.broker.delete(made)
        self.assertEqual(list(self.broker.bindings.values()), [kept])
        self.put("t", message(b"x"))
        self.assertEqual(self.broker.topics["t"].tally.unroutable, 1)

    def test_circles(self) -> None:
        """Messages never go in circles."""
        self.build(topic("t"), topic("u"), node("a"))
        self.broker.bind(BindingDeclaration("t", "u"))
        self.broker.bind(BindingDeclaration("u", "a"))
        for each in (BindingDeclaration("a", "t"), BindingDeclaration("a", "a")):
            self.assertRaises(ConfigError, self.broker.bind, each)

    def test_refused(self) -> None:
        """Wrong modes, unknown nodes and bad selectors are refused."""
        self.build(topic("t"), node("a"), node("b"))
        bind = self.broker.bind
        self.assertRaises(InvalidField, bind, BindingDeclaration("t", "a", mode="move"))
        self.assertRaises(InvalidField, bind, BindingDeclaration("a", "b", mode="copy"))
        self.assertRaises(InvalidField, bind, BindingDeclaration("a", "b", "color = "))
        self.assertRaises(NotFound, bind, BindingDeclaration("nowhere", "b"))
        self.assertRaises(NotFound, bind, BindingDeclaration("a", "nowhere"))
        self.assertEqual(self.broker.bindings, {})
        nodes = [topic("t"), node("a")]
        bad = [
            BindingDeclaration("t", "a", mode="move"),
            BindingDeclaration("x", "a"),
            BindingDeclaration("t", "x"),
            BindingDeclaration("a", "a"),
            BindingDeclaration("t", "a", "color = "),
        ]
        error = self.assertRaises(ConfigError, self.broker.declare, nodes, {}, bad)
        self.assertEqual(len(error.problems), 5)
