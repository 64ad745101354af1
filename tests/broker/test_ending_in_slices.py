# SPDX-License-Identifier: Apache-2.0
"""A node with many bindings, or of many queues, ends a part in each turn of the reactor.

Work is counted in bindings and queues, never in time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from twisted.internet.task import Clock

from amqproute.broker import queue_declarations
from amqproute.broker.exchanges.binding_tables import BindingTarget, ExchangeBinding, TargetKind
from amqproute.broker.exchanges.exchange_graph import ExchangeDefinition, ExchangeType
from amqproute.broker.exchanges.topology_fault import TopologyFault, TopologyFaultKind
from amqproute.broker.exchanges.topology_record import (
    BINDING_NOTES,
    ENDING_NOTES,
    EXCHANGE_NOTES,
)
from amqproute.errors import StoreError
from amqproute.services.change_batch import ChangeBatch
from amqproute.services.command_schema import CommandRefused, ManagementCommand
from amqproute.services.exchange_entity import ExchangeCommands
from tests.broker.test_queue_declarations import HERE, THERE, DeclarationCase
from tests.support.fakes import KeptStore, settle_down

DIRECT, FANOUT, TOPIC, _ = ExchangeType
AT_ONCE = 10
MANY = 95


class TurnClock(Clock):
    """A clock that also runs one turn of the reactor by itself."""

    def turn(self) -> None:
        """Run what is due now, and nothing that it asks for."""
        for call in [each for each in self.calls if each.getTime() <= self.seconds()]:
            if call.active():
                self.calls.remove(call)
                call.called = 1
                call.func(*call.args, **call.kw)


class SliceCase(DeclarationCase):
    """A broker that removes ten bindings in a turn."""

    clock: TurnClock

    def setUp(self) -> None:
        self.clock = TurnClock()
        self.store = KeptStore(self.clock)
        self.start()

    def start(self) -> None:
        super().start()
        self.topology = self.broker.topology
        self.topology.graph.most_at_once = AT_ONCE

    def exchange(self, name: str, kind: ExchangeType = TOPIC, auto_delete: bool = False) -> None:
        """Declare a durable exchange."""
        made = ExchangeDefinition(name, kind, auto_delete=auto_delete)
        self.done(self.topology.declare(made, "user:ann"))

    def bind(self, source: str, target: str, key: str, is_exchange: bool = False) -> None:
        """Bind a queue or an exchange."""
        kind = TargetKind.EXCHANGE if is_exchange else TargetKind.QUEUE
        binding = ExchangeBinding(source, BindingTarget(kind, target), key)
        self.done(self.topology.bind(binding, "user:ann"))

    def fill(self, source: str, target: str, is_exchange: bool = False) -> None:
        """Bind many times."""
        for number in range(MANY):
            self.bind(source, target, f"k{number}", is_exchange)

    def routed(self, exchange: str, key: str) -> set[str]:
        """Return the queues that a message goes to."""
        return set(self.topology.route(exchange, (key,), {}).queues)

    def notes(self, kind: str) -> int:
        """Return how many notes of a kind the store has."""
        return len(self.store.notes.get(kind, {}))

    def assert_slow(self, done: Any, count: Callable[[], int], most: int) -> int:
        """Let turns pass until a Deferred fires; check what goes in each. Return their number."""
        fired: list[Any] = []
        done.addBoth(fired.append)
        turns, before = 0, count()
        while not fired:
            self.clock.turn()
            turns += 1
            now = count()
            self.assertLessEqual(before - now, most)
            before = now
            self.assertLess(turns, 1000)
        return turns

    def bindings(self) -> int:
        """Return how many bindings there are."""
        return self.topology.graph.binding_count


class ExchangeTests(SliceCase):
    """An exchange with many bindings."""

    def setUp(self) -> None:
        super().setUp()
        self.declare("q")
        self.exchange("e")
        self.fill("e", "q")

    def test_slices(self) -> None:
        """It has gone at once for everybody; its bindings go ten in a turn."""
        before = self.topology.octets
        done = self.topology.delete("e")
        with self.assertRaises(TopologyFault) as gone:
            self.routed("e", "k1")
        self.assertEqual(gone.exception.kind, TopologyFaultKind.NO_EXCHANGE)
        turns = self.assert_slow(done, self.bindings, AT_ONCE)
        self.assertGreaterEqual(turns, MANY // AT_ONCE)
        settle_down(self.clock)
        self.assertEqual(self.bindings(), 0)
        self.assertLess(self.topology.octets, before)
        self.assertEqual(self.topology.octets, 0)
        for kind in (EXCHANGE_NOTES, BINDING_NOTES, ENDING_NOTES):
            self.assertEqual(self.notes(kind), 0, kind)

    def test_few(self) -> None:
        """With few bindings it goes in one go."""
        self.topology.graph.most_at_once = MANY
        self.topology.delete("e")
        self.assertEqual(self.bindings(), 0)

    def test_made_again(self) -> None:
        """One of the same name waits for the end, and has none of the bindings."""
        self.topology.delete("e")
        again = self.topology.declare(ExchangeDefinition("e", TOPIC), "user:ann")
        self.clock.turn()
        self.assertNoResult(again)
        with self.assertRaises(CommandRefused) as refused:
            self.create("e")
        self.assertEqual(refused.exception.status, 409)
        self.assertTrue(self.done(again))
        self.assertEqual(self.routed("e", "k1"), set())
        self.bind("e", "q", "k1")
        self.assertEqual(self.routed("e", "k1"), {"q"})
        self.start()
        self.assertEqual(self.routed("e", "k1"), {"q"})
        self.assertEqual(self.bindings(), 1)

    def create(self, name: str) -> None:
        """Make an exchange as an operator does."""
        from_here = ManagementCommand("CREATE", "exchange", name, {"type": "topic"})
        ExchangeCommands(self.broker).create(from_here, ChangeBatch("uid:0", 1))

    def test_not_taken(self) -> None:
        """If the store does not take it, everything is as before."""
        octets = self.topology.octets
        self.store.is_failing = True
        done = self.topology.delete("e")
        settle_down(self.clock)
        self.failureResultOf(done, StoreError)
        self.store.is_failing = False
        self.assertEqual(self.routed("e", "k1"), {"q"})
        self.assertEqual((self.bindings(), self.topology.octets), (MANY, octets))
        self.done(self.topology.delete("e"))
        self.assertEqual(self.bindings(), 0)

    def test_killed(self) -> None:
        """A kill after any number of turns leaves neither the exchange nor a binding."""
        for turns in range(0, 14, 3):
            with self.subTest(turns=turns):
                done = self.topology.delete("e")
                done.addErrback(lambda _: None)
                for _ in range(turns):
                    self.clock.turn()
                is_durable = not self.notes(EXCHANGE_NOTES)
                self.start()
                self.assertEqual("e" in self.topology.graph, not is_durable)
                settle_down(self.clock)
                if is_durable:
                    for kind in (EXCHANGE_NOTES, BINDING_NOTES, ENDING_NOTES):
                        self.assertEqual(self.notes(kind), 0, kind)
                    self.exchange("e")
                    self.fill("e", "q")
                self.assertEqual(self.routed("e", "k1"), {"q"})

    def test_killed_twice(self) -> None:
        """New bindings stay while an earlier end goes on."""
        self.topology.delete("e")
        for _ in range(5):
            self.clock.turn()
        self.start_held()
        made = self.topology.declare(ExchangeDefinition("e", TOPIC), "user:ann")
        binding = ExchangeBinding("e", BindingTarget(TargetKind.QUEUE, "q"), "k1")
        bound = self.topology.bind(binding, "user:ann")
        for _ in range(3):
            self.clock.turn()
        self.successResultOf(made)
        self.successResultOf(bound)
        self.assertEqual(self.notes(ENDING_NOTES), 1)
        self.start()
        self.assertEqual(self.routed("e", "k1"), {"q"})
        settle_down(self.clock)
        self.assertEqual((self.bindings(), self.notes(BINDING_NOTES)), (1, 1))
        self.assertEqual(self.notes(ENDING_NOTES), 0)

    def start_held(self) -> None:
        """Start a broker, and let no turn pass."""
        with patch.object(self.clock, "advance"):
            self.start()


class QueueTests(SliceCase):
    """A queue that is bound many times."""

    def setUp(self) -> None:
        super().setUp()
        self.declare("q")
        self.declare("r")
        self.exchange("e", auto_delete=True)
        self.fill("e", "q")
        self.exchange("f")
        self.bind("f", "q", "k")
        self.bind("f", "r", "k")

    def test_slices(self) -> None:
        """No message is for it any more; its bindings go ten in a turn, and so do exchanges."""
        done = self.declarations.delete("q", HERE)
        self.assertEqual(self.routed("e", "k1"), set())
        self.assertEqual(self.routed("f", "k"), {"r"})
        self.assert_slow(done, self.bindings, AT_ONCE)
        self.assertNotIn("e", self.topology.graph)
        self.assertEqual(self.routed("f", "k"), {"r"})
        settle_down(self.clock)
        self.assertEqual((self.bindings(), self.notes(BINDING_NOTES)), (1, 1))
        self.assertEqual(self.notes(ENDING_NOTES), 0)

    def test_made_again(self) -> None:
        """One of the same name waits for the end, and has none of the bindings."""
        self.declarations.delete("q", HERE)
        again = self.declarations.declare(self.asked("q"), HERE, "user:ann")
        self.clock.turn()
        self.assertNoResult(again)
        queue = self.done(again)
        self.assertIs(self.broker.nodes["q"], queue)
        self.assertEqual(self.routed("f", "k"), {"r"})
        self.start()
        self.assertEqual(self.routed("f", "k"), {"r"})

    def asked(self, name: str) -> Any:
        """Return the declaration of a queue."""
        return queue_declarations.QueueDeclaration(name, True)

    def test_killed(self) -> None:
        """A kill in the middle leaves no binding that a new queue of the name would have."""
        self.declarations.delete("q", HERE)
        for _ in range(4):
            self.clock.turn()
        self.assertEqual(self.notes(ENDING_NOTES), 1)
        self.assertGreater(self.notes(BINDING_NOTES), AT_ONCE)
        self.start()
        self.declare("q")
        self.assertEqual(self.routed("f", "k"), {"r"})
        settle_down(self.clock)
        self.assertEqual((self.bindings(), self.notes(BINDING_NOTES)), (1, 1))

    def test_not_taken(self) -> None:
        """If the store does not take it, the queue has its bindings still."""
        self.store.is_failing = True
        done = self.declarations.delete("q", HERE)
        settle_down(self.clock)
        self.failureResultOf(done, StoreError)
        self.store.is_failing = False
        self.assertEqual(self.routed("e", "k1"), {"q"})
        self.assertEqual(self.routed("f", "k"), {"q", "r"})

    def test_exchanges_that_go_with_it(self) -> None:
        """An auto-delete exchange with many bindings to it ends in slices, too."""
        self.exchange("last", FANOUT, auto_delete=True)
        self.declare("s")
        self.bind("last", "s", "")
        self.exchange("g")
        self.fill("g", "last", is_exchange=True)
        self.assertEqual(self.routed("g", "k3"), {"s"})
        before = self.bindings()
        done = self.declarations.delete("s", HERE)
        self.assertEqual(self.routed("g", "k3"), set())
        self.assertGreater(self.bindings(), before - AT_ONCE)
        self.assert_slow(done, self.bindings, AT_ONCE)
        for _ in range(2 * MANY // AT_ONCE):
            now = self.bindings()
            self.clock.turn()
            self.assertLessEqual(now - self.bindings(), AT_ONCE)
        settle_down(self.clock)
        self.assertEqual(self.bindings(), before - MANY - 1)
        self.assertNotIn("last", self.topology.graph)


class ConnectionTests(SliceCase):
    """A connection with many exclusive queues."""

    def setUp(self) -> None:
        super().setUp()
        self.inventory.most_nodes = 1000
        self.names = [f"x{number}" for number in range(180)]
        for name in self.names:
            self.declare(name, HERE, exclusive=True)

    def left(self) -> int:
        """Return how many of them there are."""
        return sum(name in self.broker.nodes for name in self.names)

    def test_slices(self) -> None:
        """Fifty go in a turn."""
        self.declarations.connection_lost(HERE)
        before = len(self.names)
        while before:
            left = self.left()
            self.assertLessEqual(before - left, queue_declarations.MOST_AT_ONCE)
            before = left
            self.clock.turn()
        self.assertEqual(self.left(), 0)

    def test_asked_for(self) -> None:
        """One whose turn has not come is gone for whoever asks for it, and its name is free."""
        self.declarations.connection_lost(HERE)
        last = self.names[-1]
        self.assertIn(last, self.broker.nodes)
        with self.assertRaises(TopologyFault) as missing:
            self.declarations.queue(self.names[-2], THERE)
        self.assertEqual(missing.exception.kind, TopologyFaultKind.NO_QUEUE)
        made = self.declare(last, THERE, exclusive=True)
        settle_down(self.clock)
        self.assertEqual(self.left(), 1)
        self.assertIs(self.broker.nodes[last], made)

    def test_two_connections(self) -> None:
        """The turns are shared."""
        for number in range(100):
            self.declare(f"y{number}", THERE, exclusive=True)
        self.declarations.connection_lost(HERE)
        self.declarations.connection_lost(THERE)
        total = sum(len(name) > 0 for name in self.broker.nodes)
        self.clock.turn()
        now = sum(len(name) > 0 for name in self.broker.nodes)
        self.assertLessEqual(total - now, queue_declarations.MOST_AT_ONCE)
        settle_down(self.clock)
        self.assertEqual(set(self.broker.nodes), {"orders"})
