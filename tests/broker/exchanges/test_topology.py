# SPDX-License-Identifier: Apache-2.0
"""Tests of `amqproute.broker.exchanges.topology`: exchanges of a broker, over restarts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.exchanges.argument_rules import exchange_definition
from amqproute.broker.exchanges.binding_tables import (
    BindingTarget,
    ExchangeBinding,
    ExchangeType,
    TargetKind,
)
from amqproute.broker.exchanges.exchange_graph import ExchangeDefinition
from amqproute.broker.exchanges.topology import EACH
from amqproute.broker.exchanges.topology_fault import TopologyFault, TopologyFaultKind
from amqproute.broker.exchanges.topology_record import (
    BINDING_NOTES,
    EXCHANGE_NOTES,
    LONGEST_ARGUMENTS,
    decode_binding,
    decode_exchange,
    encode_binding,
    encode_exchange,
)
from amqproute.errors import NotFound, ResourceLimitExceeded, StoreError, Unresolved
from amqproute.wire.amqp09.field_tables import FieldTable, Int8, LongString
from tests.support.fakes import ORIGIN, KeptStore, make_broker, message, node, settle_down

DIRECT, FANOUT, TOPIC, HEADERS = ExchangeType
FLAGS = ("durable", "auto_delete", "internal")


def binding(source: str, queue: str, key: str = "", **arguments: object) -> ExchangeBinding:
    """Return a binding to a queue."""
    return ExchangeBinding(source, BindingTarget(TargetKind.QUEUE, queue), key, arguments)


def between(source: str, target: str, key: str = "") -> ExchangeBinding:
    """Return a binding to an exchange."""
    return ExchangeBinding(source, BindingTarget(TargetKind.EXCHANGE, target), key)


class TopologyCase(SynchronousTestCase):
    """A broker with the queues a, b and c."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.store = KeptStore(self.clock)
        self.start()

    def start(self, *names: str, **limits: int) -> None:
        """Make a broker over what the store holds."""
        self.broker = make_broker(
            self.clock, self.store, *(node(name, **limits) for name in names or ("a", "b", "c"))
        )
        self.topology = self.broker.topology

    def done(self, deferred: Any) -> Any:
        """Let time pass until a Deferred has fired; return its result."""
        settle_down(self.clock)
        return self.successResultOf(deferred)

    def declare(self, name: str, kind: ExchangeType = TOPIC, **more: Any) -> bool:
        """Declare an exchange."""
        flags = {flag: more.get(flag, flag == "durable") for flag in FLAGS}
        made = exchange_definition(name, kind.value, flags, more.get("arguments", {}))
        new: bool = self.done(self.topology.declare(made))
        return new

    def bind(self, *arguments: Any, **more: object) -> bool:
        """Bind a queue."""
        new: bool = self.done(self.topology.bind(binding(*arguments, **more)))
        return new

    def publish(self, exchange: str, key: str, body: bytes = b"x", **headers: object) -> int:
        """Publish a message and commit it; return to how many queues it went."""
        outcome = self.topology.route(exchange, (key,), headers)
        batch = self.broker.begin()
        targets = self.topology.queues_of(outcome)
        self.topology.put(exchange, targets, message(body), batch, ORIGIN)
        self.done(batch.commit())
        return len(targets)

    def depths(self) -> dict[str, int]:
        """Return the messages of each queue that has any."""
        return {name: queue.depth for name, queue in self.broker.nodes.items() if queue.depth}

    def fails(self, kind: TopologyFaultKind, call: Any, *arguments: Any) -> str:
        """Check that a call fails with a kind; return the words."""
        fault = self.assertRaises(TopologyFault, call, *arguments)
        self.assertEqual(fault.kind, kind)
        return str(fault.text)

    def kept(self) -> tuple[set[str], int]:
        """Return what the store has: names of exchanges, and how many bindings."""
        notes = self.store.notes
        return set(notes.get(EXCHANGE_NOTES, {})), len(notes.get(BINDING_NOTES, {}))


class RestartTests(TopologyCase):
    """Durable objects exist again, others do not."""

    def test_restart(self) -> None:
        """Exchanges, bindings with all arguments, and where messages go, are as they were."""
        self.assertTrue(self.declare("e", arguments={"alternate-exchange": "u", "n": Int8(3)}))
        self.declare("u", FANOUT, internal=True)
        self.declare("h", HEADERS, auto_delete=True)
        self.assertTrue(self.bind("e", "a", "x.#"))
        self.assertFalse(self.bind("e", "a", "x.#"))
        self.bind("u", "b")
        self.bind("h", "c", "", **{"x-match": "any", "n": 3, "t": LongString(b"\xff")})
        self.done(self.topology.bind(between("e", "h", "y")))
        self.bind("amq.direct", "c", "k")
        before = [*self.topology.graph.exchanges()]
        self.start()
        self.assertEqual([*self.topology.graph.exchanges()], before)
        self.assertEqual(self.topology.graph.exchange("e").alternate, "u")
        self.assertIs(type(self.topology.graph.exchange("e").arguments["n"]), Int8)
        self.assertEqual(self.topology.graph.binding_count, 5)
        self.assertEqual(self.publish("e", "x.y"), 1)
        self.assertEqual(self.publish("e", "none"), 1)  # by its alternate exchange
        self.assertEqual(self.publish("e", "y", n=3), 1)
        self.assertEqual(self.publish("amq.direct", "k"), 1)
        self.assertEqual(self.depths(), {"a": 1, "b": 1, "c": 2})
        self.start()
        self.assertEqual(self.depths(), {"a": 1, "b": 1, "c": 2})

    def test_transient(self) -> None:
        """A transient exchange goes, and with it the bindings of either end."""
        self.declare("e", durable=False)
        self.declare("d")
        self.bind("e", "a", "#")
        self.done(self.topology.bind(between("d", "e", "#")))
        self.done(self.topology.bind(between("e", "d", "#")))
        self.assertEqual(self.kept(), ({"d"}, 0))
        self.start()
        self.fails(TopologyFaultKind.NO_EXCHANGE, self.topology.graph.exchange, "e")
        self.assertEqual(self.topology.graph.binding_count, 0)

    def test_queue_of_a_connection(self) -> None:
        """Bindings go with their queue, and an auto-delete exchange with its last one."""
        self.declare("e", auto_delete=True)
        queue = self.broker.create_dynamic()
        self.bind("e", queue.name, "#")
        self.assertEqual(self.kept(), ({"e"}, 0))
        self.broker.delete(queue)
        settle_down(self.clock)
        self.fails(TopologyFaultKind.NO_EXCHANGE, self.topology.graph.exchange, "e")
        self.assertEqual(self.kept(), (set(), 0))

    def test_deleted(self) -> None:
        """A deleted object is gone from the store when that is answered."""
        self.declare("e")
        self.declare("f", auto_delete=True)
        self.bind("e", "a", "k")
        self.bind("f", "a", "k")
        self.done(self.topology.bind(between("f", "e", "#")))
        change = self.done(self.topology.unbind(binding("f", "a", "k")))
        self.assertEqual((change.exchanges, len(change.bindings)), ((), 1))
        change = self.done(self.topology.delete("e"))
        self.assertEqual((change.exchanges, len(change.bindings)), (("e", "f"), 2))
        self.assertEqual(self.kept(), (set(), 0))
        self.assertEqual(self.topology.octets, 0)

    def test_removed_from_the_configuration(self) -> None:
        """An empty queue that is declared no more takes its bindings along."""
        self.declare("e")
        self.bind("e", "a", "k")
        self.bind("e", "b", "k")
        self.broker.declare([node("b")], {})
        settle_down(self.clock)
        self.assertEqual(self.kept(), ({"e"}, 1))
        self.assertEqual(self.publish("e", "k"), 1)

    def test_dormant(self) -> None:
        """Bindings to a queue that is not there at the start wait for it, and go with theirs."""
        self.declare("e")
        self.bind("e", "a", "k")
        self.bind("e", "b", "k")
        octets = self.topology.octets
        self.start("b", "c")
        self.assertEqual(self.topology.dormant, {"a": 1})
        self.assertEqual(self.topology.octets, octets)
        self.topology.warn_of_dormant()
        self.assertEqual(self.publish("e", "k"), 1)
        self.broker.declare([node("a"), node("b")], {})
        self.assertEqual(self.publish("e", "k"), 2)
        self.assertEqual((self.topology.dormant, self.topology.octets), ({}, octets))
        self.start("b")
        self.done(self.topology.delete("e"))
        self.assertEqual((self.kept(), self.topology.octets), ((set(), 0), 0))

    def test_unreadable(self) -> None:
        """A note that cannot be read keeps nothing else from going on."""
        self.declare("e")
        self.bind("e", "a", "k")
        bad = (b"", b"[]", b"{", b'{"type":"topic"}', b'{"type":"x","by":"","arguments":""}')
        for number, note in enumerate(bad):
            self.store.notes[EXCHANGE_NOTES][f"bad{number}"] = note
            self.store.notes[BINDING_NOTES][f"bad{number}"] = note
        lost = encode_binding(binding("gone", "a"), "")
        self.store.notes[BINDING_NOTES]["7"] = lost
        self.start()
        self.assertEqual(self.publish("e", "k"), 1)

    def test_notes(self) -> None:
        """A note says what was declared, and by whom."""
        there = ExchangeDefinition("e", HEADERS, True, True, True, "u", {"alternate-exchange": "u"})
        self.assertEqual(
            decode_exchange("e", encode_exchange(there, "user:ann")), (there, "user:ann")
        )
        made = ExchangeBinding(
            "e",
            BindingTarget(TargetKind.EXCHANGE, "ü"),
            "k",
            FieldTable({"n": Int8(-1), "v": None}),
        )
        again, owner = decode_binding(encode_binding(made, "user:ann"))
        self.assertEqual((again, owner), (made, "user:ann"))
        self.assertEqual(FieldTable(again.arguments).octets, FieldTable(made.arguments).octets)


class StoreTests(TopologyCase):
    """Nothing is said before it is on the disk, and what is not, is undone."""

    def test_answered_when_durable(self) -> None:
        """An equal declaration or binding meanwhile waits as well."""
        definition = ExchangeDefinition("e", DIRECT)
        answers = [self.topology.declare(definition), self.topology.declare(definition)]
        answers += [self.topology.bind(binding("e", "a")), self.topology.bind(binding("e", "a"))]
        for answer in answers:
            self.assertNoResult(answer)
        settle_down(self.clock)
        results = [self.successResultOf(answer) for answer in answers]
        self.assertEqual(results, [True, False, True, False])
        self.assertFalse(self.successResultOf(self.topology.declare(definition)))

    def test_not_taken(self) -> None:
        """An object that the store refused does not exist; one it failed to remove does."""
        self.declare("e")
        self.bind("e", "a", "k")
        octets = self.topology.octets
        self.store.is_failing = True
        definition = ExchangeDefinition("f", DIRECT)
        answers: list[Any] = [self.topology.declare(definition), self.topology.declare(definition)]
        answers += [self.topology.bind(binding("f", "b")), self.topology.bind(binding("e", "b"))]
        answers += [self.topology.unbind(binding("e", "a", "k"))]
        settle_down(self.clock)
        answers += [self.topology.delete("e")]
        settle_down(self.clock)
        for answer in answers:
            self.failureResultOf(answer, StoreError)
        self.flushLoggedErrors(StoreError)
        self.store.is_failing = False
        self.fails(TopologyFaultKind.NO_EXCHANGE, self.topology.graph.exchange, "f")
        self.assertEqual(self.topology.graph.binding_count, 1)
        self.assertEqual(self.topology.octets, octets)
        self.assertEqual(self.publish("e", "k"), 1)
        self.assertTrue(self.declare("f"))

    def test_withdrawn(self) -> None:
        """A queue that comes back has its bindings again, and the exchanges that went with it."""
        self.declare("e", auto_delete=True)
        self.bind("e", "a", "k")
        withdrawal = self.broker.withdraw("a")
        self.fails(TopologyFaultKind.NO_EXCHANGE, self.topology.graph.exchange, "e")
        assert withdrawal.removed is not None
        self.assertEqual(len(withdrawal.removed.notes), 2)
        self.broker.restore(withdrawal)
        self.assertEqual(self.publish("e", "k"), 1)
        self.assertEqual(self.kept(), ({"e"}, 1))

    def test_renamed(self) -> None:
        """Bindings follow a queue to its new name."""
        self.declare("e", auto_delete=True)
        self.bind("e", "a", "k")
        self.broker.rename("a", "z")
        self.assertEqual(self.publish("e", "k"), 1)
        self.assertEqual(self.depths(), {"z": 1})
        ((kind, key, value),) = self.topology.queue_notes("z")
        self.assertEqual((kind, list(self.store.notes[kind])), (BINDING_NOTES, [key]))
        self.assertEqual(decode_binding(value)[0], binding("e", "z", "k"))
        self.done(self.topology.unbind(binding("e", "z", "k")))
        self.assertEqual(self.kept(), (set(), 0))


class ShareTests(TopologyCase):
    """Nobody fills the broker with exchanges and bindings."""

    def test_shares(self) -> None:
        """A user has at most what stays free; the operator may have the rest."""
        self.topology.most_octets = 6 * EACH
        names = iter("efghijk")

        def declare(owner: str) -> Any:
            definition = ExchangeDefinition(next(names), DIRECT, durable=False)
            return self.topology.declare(definition, owner)

        for _ in range(3):
            declare("user:ann")
        words = self.fails(TopologyFaultKind.LIMIT, declare, "user:ann")
        self.assertIn("user:ann", words)
        declare("user:bob")
        limit = TopologyFaultKind.LIMIT
        self.topology.bind(binding("amq.fanout", "a"))
        self.fails(limit, self.topology.bind, binding("amq.fanout", "b"), "user:ann")
        self.topology.bind(binding("amq.fanout", "b"))
        self.fails(limit, self.topology.bind, binding("amq.fanout", "c"))
        self.done(self.topology.delete("e"))
        self.topology.bind(binding("amq.fanout", "c"))
        self.assertEqual(self.topology.octets, 6 * EACH)
        self.assertEqual(self.topology.owner_of("f"), "user:ann")

    def test_arguments(self) -> None:
        """Arguments count by their octets, and there are not too many."""
        self.bind("amq.fanout", "a", "", n="x" * 100)
        self.assertEqual(self.topology.octets, EACH + 8 * (1 + 1 + 1 + 4 + 100))
        wrong = TopologyFaultKind.INVALID_ARGUMENT
        for value in ("x" * LONGEST_ARGUMENTS, 1 << 70):
            self.fails(wrong, self.topology.bind, binding("amq.fanout", "b", "", n=value))
        self.assertEqual(self.topology.graph.binding_count, 1)


class Unknown:
    """A way that has to be asked about."""

    name = "orders@beta.example"

    def space(self) -> int:
        return 1

    def put(self, *_: object) -> None:
        raise Unresolved("beta.example")


class PublishTests(TopologyCase):
    """One message on several queues."""

    def test_one_body(self) -> None:
        """A message on three queues is one body and three entries of one commit."""
        self.declare("e", FANOUT)
        for name in "abc":
            self.bind("e", name)
        self.assertEqual(self.publish("e", "", b"one"), 3)
        rows = [self.store.rows(name)[0] for name in "abc"]
        self.assertEqual(len({row.payload_id for row in rows}), 1)
        self.assertTrue(all(row.payload_id for row in rows))
        self.assertEqual(self.depths(), {"a": 1, "b": 1, "c": 1})
        assert self.store.audit is not None
        told = [run.shared + run.columns for run in self.store.audit.runs]
        self.assertEqual(sum("/exchanges/e" in words for words in told), 1)

    def test_full(self) -> None:
        """If one queue is full no queue gets the message, so that its sender can try again."""
        self.start(capacity=1)
        self.declare("e", FANOUT)
        self.bind("e", "a")
        self.bind("e", "b")
        self.bind("amq.fanout", "b")
        self.assertEqual(self.publish("amq.fanout", ""), 1)
        self.assertRaises(ResourceLimitExceeded, self.publish, "e", "")
        self.assertEqual(self.depths(), {"b": 1})

    def test_refused_by_one(self) -> None:
        """One that turns out unable to take it leaves it to the others, and its sender knows."""
        batch = self.broker.begin()
        targets: Sequence[Any] = [self.broker.nodes["a"], Unknown()]
        refused = self.assertRaises(
            NotFound, self.topology.put, "e", targets, message(), batch, ORIGIN
        )
        self.assertIn("orders@beta.example", str(refused))
        self.done(batch.commit())
        self.assertEqual(self.depths(), {"a": 1})
        batch = self.broker.begin()
        targets = [Unknown(), self.broker.nodes["a"]]
        self.assertRaises(Unresolved, self.topology.put, "e", targets, message(), batch, ORIGIN)
        self.done(batch.commit())
        self.assertEqual(self.depths(), {"a": 1})

    def test_nowhere(self) -> None:
        """A message that goes nowhere is nobody's, and the journal says so."""
        self.assertEqual(self.publish("amq.topic", "k"), 0)
        self.assertEqual(self.depths(), {})

    def test_default_exchange(self) -> None:
        """The default exchange finds queues by name, also those of a connection."""
        queue = self.broker.create_dynamic()
        self.assertEqual(self.publish("", queue.name), 1)
        self.assertEqual(self.publish("", "a"), 1)
        self.assertEqual(self.publish("", "none"), 0)
        outcome = self.topology.route("", ("orders@beta.example",), {})
        self.assertEqual((outcome.queues, outcome.addresses), ((), ("orders@beta.example",)))
        self.broker.delete(queue)
        outcome = self.topology.route("", ("a",), {})
        self.broker.withdraw("a").finish(lambda: None)
        self.assertRaises(NotFound, self.topology.queues_of, outcome)
