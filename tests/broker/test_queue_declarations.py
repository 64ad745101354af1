# SPDX-License-Identifier: Apache-2.0
"""Queues declared by clients of 0-9: arguments, owners, ends, and restarts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker import queue_declarations
from amqproute.broker.exchanges.argument_rules import QueueDeclaration
from amqproute.broker.exchanges.binding_tables import BindingTarget, ExchangeBinding, TargetKind
from amqproute.broker.exchanges.exchange_graph import ExchangeDefinition, ExchangeType
from amqproute.broker.exchanges.topology_fault import TopologyFault, TopologyFaultKind
from amqproute.broker.exchanges.topology_record import BINDING_NOTES, EXCHANGE_NOTES
from amqproute.broker.publish_gate import STORE
from amqproute.broker.queue import Queue
from amqproute.broker.queue_declarations import QueueDeclarations
from amqproute.config.loader import read_node
from amqproute.config.schema import Config
from amqproute.daemon.node_assembly import described
from amqproute.errors import ResourceLimitExceeded, StoreError
from amqproute.log_rate_limit import EVERY_SECONDS
from amqproute.outcomes import Acceptance, Modification, Rejection, Release
from amqproute.services.change_batch import ChangeBatch, ConfiguredNodes
from amqproute.services.command_schema import ManagementCommand
from amqproute.services.node_changes import NodeChanges
from tests.support.fakes import (
    KeptStore,
    Taker,
    body_of,
    make_broker,
    message,
    put,
    settle_down,
)

HERE, THERE = "connection 1", "connection 2"
NAMES = ("orders",)


def describe(options: Mapping[str, Any]) -> Any:
    """Describe a node as the daemon does."""
    return described(read_node(options), Config())


class DeclarationCase(SynchronousTestCase):
    """A broker whose nodes are made at runtime, over a store that outlives it."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.store = KeptStore(self.clock)
        self.start()

    def start(self) -> None:
        """Start a broker over what the store holds."""
        self.broker = make_broker(self.clock, self.store)
        self.inventory = NodeChanges(self.broker, describe, self.store.next_id, most_nodes=20)
        self.inventory.recovered(self.store.recovery().notes)
        self.declarations = QueueDeclarations(self.broker, self.inventory, self.clock)
        nodes = [describe({"name": name}) for name in NAMES]
        self.inventory.declare(ConfiguredNodes(nodes, places=dict.fromkeys(NAMES, "etc.yaml:3")))
        self.declarations.recovered()
        settle_down(self.clock)

    def done(self, deferred: Any) -> Any:
        """Let time pass until a Deferred has fired; return its result."""
        settle_down(self.clock)
        return self.successResultOf(deferred)

    def declare(
        self, name: str = "q", connection: str = HERE, owner: str = "user:ann", **more: Any
    ) -> Queue:
        """Declare a queue; those of `more` that begin with x_ are arguments."""
        arguments = {
            key.replace("_", "-"): value for key, value in more.items() if key.startswith("x_")
        }
        flags = {key: value for key, value in more.items() if not key.startswith("x_")}
        flags.setdefault("durable", True)
        asked = QueueDeclaration(name, arguments=arguments, **flags)
        queue: Queue = self.done(self.declarations.declare(asked, connection, owner))
        return queue

    def fails(self, kind: TopologyFaultKind, call: Any, *arguments: Any, **more: Any) -> str:
        """Check that a call fails with a kind; return the words."""
        fault = self.assertRaises(TopologyFault, call, *arguments, **more)
        self.assertEqual(fault.kind, kind)
        return str(fault.text)

    def bind(self, exchange: str, queue: str, key: str = "#") -> None:
        """Bind a queue."""
        target = BindingTarget(TargetKind.QUEUE, queue)
        self.done(self.broker.topology.bind(ExchangeBinding(exchange, target, key)))

    def put(self, queue: Queue, *bodies: bytes, **more: Any) -> None:
        """Put messages on a queue in one batch."""
        self.done(put(self.broker, queue, *(message(body, **more) for body in bodies)))

    def bodies(self, queue: Queue) -> list[bytes]:
        """Take everything off a queue."""
        taker = Taker(queue, 1000)
        queue.dispatch()
        settle_down(self.clock)
        self.done(taker.settle(self.broker, tuple(taker.held), Acceptance()))
        queue.detach(taker)
        return taker.seen


class LifeTests(DeclarationCase):
    """Queues come, are found again, and go."""

    def test_restart(self) -> None:
        """A durable queue is there after a restart with its arguments, messages and bindings."""
        queue = self.declare(x_max_length=2, x_anything="kept", x_max_priority=3)
        self.bind("amq.topic", "q")
        self.put(queue, b"1", b"2", b"3")
        self.start()
        again = self.broker.nodes["q"]
        self.assertEqual((again.limits.length, again.limits.priorities), (2, 10))
        self.assertEqual(self.broker.topology.graph.binding_count, 1)
        there = self.declarations.declaration("q")
        self.assertEqual(there.arguments["x-anything"], "kept")
        self.assertIs(self.declare(x_max_length=2, x_anything="kept", x_max_priority=3), again)
        self.fails(TopologyFaultKind.OTHER_QUEUE, self.declare, x_max_length=3)
        self.assertEqual(self.bodies(again), [b"2", b"3"])

    def test_named_like_an_address(self) -> None:
        """A durable queue named like an address: the log says where messages go, once."""
        self.declare("celery@worker.celery.pidbox", durable=False)
        self.declare("mail@", durable=True, x_anything=1)
        with capturedLogs() as events:
            self.clock.advance(EVERY_SECONDS)
            self.declare("other@worker.celery.pidbox", durable=False)
            self.declare("orders@beta.example")
            self.declare("orders@beta.example")
            self.declare("more@beta.example")
            self.declare("orders.beta.example")
        lines = [text for text in map(formatEvent, events) if "declares the queue" in text]
        self.assertEqual(len(lines), 1, lines)
        self.assertIn("user:ann declares the queue orders@beta.example here", lines[0])

    def test_deleted(self) -> None:
        """A queue goes with its bindings and messages, and its name can be declared again."""
        queue = self.declare()
        self.bind("amq.topic", "q")
        self.put(queue, b"1", b"2")
        delete = self.declarations.delete
        self.fails(TopologyFaultKind.NOT_EMPTY, delete, "q", HERE, if_empty=True)
        taker = Taker(queue)
        self.fails(TopologyFaultKind.IN_USE, delete, "q", HERE, if_unused=True)
        queue.detach(taker)
        self.assertEqual(self.done(delete("q", HERE, "user:ann")), 2)
        self.fails(TopologyFaultKind.NO_QUEUE, delete, "q", HERE)
        self.assertEqual(self.store.notes.get(BINDING_NOTES), {})
        self.assertEqual(self.declare().depth, 0)
        self.start()
        self.assertEqual(self.broker.topology.graph.binding_count, 0)
        self.assertEqual(self.broker.nodes["q"].depth, 0)

    def test_transient(self) -> None:
        """A transient queue is gone after a restart, with what was durable on it."""
        queue = self.declare(durable=False)
        self.put(queue, b"1")
        self.assertEqual(queue.depth, 1)
        self.assertIs(self.declare(durable=False, connection=THERE), queue)
        self.start()
        self.assertNotIn("q", self.broker.nodes)
        self.assertEqual(self.declare().depth, 0)

    def test_exclusive(self) -> None:
        """Others are locked out, and the queue goes with its connection."""
        queue = self.declare(exclusive=True)
        self.done(
            self.broker.topology.declare(
                ExchangeDefinition("e", ExchangeType.TOPIC, auto_delete=True)
            )
        )
        self.bind("e", "q")
        for call in (self.declarations.queue, self.declarations.delete, self.declarations.purge):
            self.fails(TopologyFaultKind.LOCKED, call, "q", THERE)
        self.fails(TopologyFaultKind.LOCKED, self.declare, connection=THERE, exclusive=True)
        self.assertIs(self.declarations.queue("q", HERE), queue)
        assert queue.life is not None
        self.assertEqual((queue.life.is_exclusive, queue.life.owner), (True, HERE))
        self.declarations.connection_lost(THERE)
        self.assertIn("q", self.broker.nodes)
        self.declarations.connection_lost(HERE)
        settle_down(self.clock)
        self.assertNotIn("q", self.broker.nodes)
        self.assertEqual(self.store.notes[EXCHANGE_NOTES], {})
        self.declarations.connection_lost(HERE)

    def test_auto_delete(self) -> None:
        """A queue goes with its last consumer, never before the first, and not with a get."""
        for durable in (True, False):
            queue = self.declare(durable=durable, auto_delete=True)
            self.put(queue, b"1")
            self.done(self.declarations.purge("q", HERE))
            getter = Taker(queue)
            queue.detach(getter)
            self.assertNotIn("q", self.broker.nodes)
            queue = self.declare(durable=durable, auto_delete=True)

            class Momentary(Taker):
                is_momentary = True

            queue.detach(Momentary(queue))
            self.put(queue, b"1")
            one, two = Taker(queue), Taker(queue)
            queue.detach(one)
            self.assertIn("q", self.broker.nodes)
            queue.detach(two)
            settle_down(self.clock)
            self.assertNotIn("q", self.broker.nodes)
        self.start()
        self.assertNotIn("q", self.broker.nodes)

    def test_expires(self) -> None:
        """A queue that nobody uses for its time goes; use begins it anew, also after a restart."""
        queue = self.declare(x_expires=1000)
        self.clock.advance(0.9)
        self.declare(x_expires=1000)
        self.clock.advance(0.9)
        self.declarations.used("q")
        taker = Taker(queue)
        self.clock.advance(5)
        self.assertIn("q", self.broker.nodes)
        queue.detach(taker)
        self.clock.advance(0.9)
        self.assertIn("q", self.broker.nodes)
        self.declarations.stop()
        self.start()
        self.clock.advance(0.9)
        self.assertIn("q", self.broker.nodes)
        self.clock.advance(0.2)
        settle_down(self.clock)
        self.assertNotIn("q", self.broker.nodes)
        self.start()
        self.assertNotIn("q", self.broker.nodes)

    def test_expiry_of_another(self) -> None:
        """The time of a queue that went does not end another one of its name."""
        self.declare(x_expires=1000)
        self.done(self.declarations.delete("q", HERE))
        self.declare()
        self.clock.advance(2)
        self.assertIn("q", self.broker.nodes)

    def test_other_nodes(self) -> None:
        """Queues of the configuration are declared as they are, and stay the configuration's."""
        self.assertIs(self.declare("orders"), self.broker.nodes["orders"])
        self.fails(TopologyFaultKind.OTHER_QUEUE, self.declare, "orders", x_max_length=1)
        self.fails(TopologyFaultKind.OTHER_QUEUE, self.declare, "orders", durable=False)
        self.fails(TopologyFaultKind.OTHER_QUEUE, self.declarations.delete, "orders", HERE)
        self.fails(TopologyFaultKind.RESERVED_QUEUE_NAME, self.declare, "amq.mine")
        self.assertTrue(self.declare("box@worker.celery.pidbox", durable=False))
        self.assertTrue(self.declare("box@durable"))
        self.start()
        self.assertIn("box@durable", self.broker.nodes)

    def test_operator(self) -> None:
        """Operators delete and change what clients declare."""
        self.declare(x_max_length=2)
        changes = ChangeBatch("uid:0", 0)
        update = ManagementCommand("UPDATE", "queue", "q", {"max-deliveries": 5})
        self.inventory.update_node(update, changes)
        queue = self.broker.nodes["q"]
        self.assertEqual((queue.limits.max_deliveries, queue.limits.length), (5, 2))
        self.inventory.delete_node(ManagementCommand("DELETE", "queue", "q"), changes)
        batch = self.broker.begin()
        changes.put(batch)
        self.done(batch.commit())
        self.assertNotIn("q", self.broker.nodes)

    def test_not_taken(self) -> None:
        """A queue that the store does not take is not there, for nobody who waits."""
        self.store.is_failing = True
        asked = QueueDeclaration("q", durable=True)
        answers = [self.declarations.declare(asked, HERE), self.declarations.declare(asked, THERE)]
        settle_down(self.clock)
        for answer in answers:
            self.failureResultOf(answer, StoreError)
        self.assertNotIn("q", self.broker.nodes)
        self.store.is_failing = False
        self.assertTrue(self.declare())

    def test_limits(self) -> None:
        """There are only so many queues, and transient ones are shared out."""
        self.patch(queue_declarations, "MOST_TRANSIENT", 4)
        self.declare("a", durable=False)
        self.declare("b", exclusive=True)
        limit = TopologyFaultKind.LIMIT
        self.assertIn("user:ann", self.fails(limit, self.declare, "c", durable=False))
        self.declare("c", durable=False, owner="user:bob")
        self.fails(limit, self.declare, "d", durable=False, owner="user:bob")
        self.declarations.connection_lost(HERE)
        self.declare("d", durable=False)
        for number in range(16):
            self.declare(f"durable{number}")
        self.fails(limit, self.declare, "more")


class ArgumentTests(DeclarationCase):
    """Effects of arguments on a queue."""

    def test_lengths(self) -> None:
        """The oldest make room, or what comes is refused."""
        queue = self.declare("head", x_max_length=2)
        self.put(queue, b"1", b"2", b"3")
        self.put(queue, b"4")
        self.assertEqual(self.bodies(queue), [b"3", b"4"])
        queue = self.declare("octets", x_max_length_bytes=1000)
        self.put(queue, b"1" * 400, b"2" * 400, b"3" * 400)
        self.assertEqual([body[:1] for body in self.bodies(queue)], [b"2", b"3"])
        queue = self.declare("none", x_max_length=0)
        self.put(queue, b"1")
        self.assertEqual(queue.depth, 0)
        queue = self.declare("full", x_max_length=1, x_overflow="reject-publish")
        self.put(queue, b"1")
        self.assertRaises(ResourceLimitExceeded, self.put, queue, b"2")
        queue = self.declare("big", x_max_length_bytes=1000, x_overflow="reject-publish")
        self.put(queue, b"1" * 900)
        self.assertRaises(ResourceLimitExceeded, self.put, queue, b"2" * 900)
        self.assertEqual(queue.depth, 1)

    def test_held_by_consumers(self) -> None:
        """Entries held by consumers do not count, and evict others when they come back."""
        queue = self.declare(x_max_length=1)
        taker = Taker(queue, 1)
        self.put(queue, b"1", b"2")
        self.assertEqual((taker.seen, queue.depth), ([b"1"], 2))
        self.done(taker.settle(self.broker, tuple(taker.held), Release()))
        self.assertEqual(self.bodies(queue), [b"2"])

    def test_paged(self) -> None:
        """Paged entries make room as well."""
        queue = self.declare(x_max_length=50)
        queue.limits = type(queue.limits)(resident_messages=5, length=50, drops_head=True)
        for number in range(120):
            self.put(queue, b"%d" % number)
        settle_down(self.clock)
        self.assertEqual(queue.available, 50)
        self.assertEqual(self.bodies(queue), [b"%d" % number for number in range(70, 120)])

    def test_time_to_live(self) -> None:
        """The shorter of both lives counts."""
        queue = self.declare(x_message_ttl=1000)
        self.put(queue, b"1")
        self.put(queue, b"2", ttl=500)
        self.clock.advance(0.6)
        self.assertEqual(queue.depth, 1)
        self.clock.advance(0.6)
        self.assertEqual(queue.depth, 0)

    def test_single_active_consumer(self) -> None:
        """One consumer gets all, and the next one when it goes."""
        queue = self.declare(x_single_active_consumer=True)
        one, two = Taker(queue, 5), Taker(queue, 5)
        self.put(queue, b"1", b"2")
        self.assertEqual((one.seen, two.seen), ([b"1", b"2"], []))
        queue.detach(one)
        self.put(queue, b"3")
        self.assertEqual(two.seen, [b"3"])

    def test_priorities_without_an_argument(self) -> None:
        """A queue of a client of 0-9 has priorities, also after a restart."""
        self.put(self.declare(has_priorities=True), b"1", priority=1)
        self.start()
        queue = self.declare()
        self.put(queue, b"2", priority=7)
        self.assertEqual(self.bodies(queue), [b"2", b"1"])

    def test_priorities(self) -> None:
        """Without x-max-priority a queue is first in, first out."""
        for more, bodies in (({}, [b"1", b"2"]), ({"x_max_priority": 9}, [b"2", b"1"])):
            queue = self.declare(f"q{len(more)}", **more)
            self.put(queue, b"1", priority=1)
            self.put(queue, b"2", priority=7)
            self.assertEqual(self.bodies(queue), bodies)


class DeadLetterTests(DeclarationCase):
    """Dead letters that go to an exchange."""

    def setUp(self) -> None:
        super().setUp()
        self.dead = self.declare("dead")
        self.bind("amq.topic", "dead", "gone.#")

    def deaths(self) -> list[tuple[object, ...]]:
        """Take the dead letters, and return queue, reason, count and body of each."""
        taker = Taker(self.dead, 100)
        self.dead.dispatch()
        found = []
        for entry in taker.held:
            annotations = entry.message.annotations
            last = annotations["x-death"][0]
            facts = (last["queue"], last["reason"], int(last["count"]), body_of(entry))
            self.assertEqual(annotations["x-exchange"], "amq.topic")
            self.assertEqual(entry.expires_ms, 0)
            found.append(facts)
        self.done(taker.settle(self.broker, tuple(taker.held), Acceptance()))
        self.dead.detach(taker)
        return found

    def test_reasons(self) -> None:
        """Each death says where and why, and is in the commit in which the message leaves."""
        terms = {"x_dead_letter_exchange": "amq.topic", "x_dead_letter_routing_key": "gone.one"}
        queue = self.declare(x_max_length=1, x_message_ttl=1000, x_delivery_limit=1, **terms)
        self.put(queue, b"long", b"old")
        self.assertEqual(self.deaths(), [("q", "maxlen", 1, b"long")])
        self.clock.advance(1.1)
        settle_down(self.clock)
        self.assertEqual(self.deaths(), [("q", "expired", 1, b"old")])
        taker = Taker(queue, 1)
        self.put(queue, b"bad", ttl=900)
        self.done(taker.settle(self.broker, tuple(taker.held), Rejection()))
        self.assertEqual(self.deaths(), [("q", "rejected", 1, b"bad")])
        taker.take(2)
        self.put(queue, b"again")
        failed = Modification(delivery_failed=True)
        self.done(taker.settle(self.broker, tuple(taker.held), failed))
        self.assertEqual(self.deaths(), [])
        self.done(taker.settle(self.broker, tuple(taker.held), failed))
        self.assertEqual(self.deaths(), [("q", "delivery_limit", 1, b"again")])

    def test_delay(self) -> None:
        """A message that waits in one queue comes to another by its own key, with all copies."""
        self.declare("other")
        self.bind("amq.topic", "other", "gone.#")
        queue = self.declare(x_message_ttl=1000, x_dead_letter_exchange="amq.topic")
        annotations = {"x-exchange": "delay", "x-routing-key": "gone.home"}
        self.put(queue, b"1", annotations=annotations)
        self.clock.advance(1.1)
        settle_down(self.clock)
        self.assertEqual(self.deaths(), [("q", "expired", 1, b"1")])
        self.assertEqual(self.broker.nodes["other"].depth, 1)
        self.start()
        self.assertEqual(self.broker.nodes["other"].depth, 1)

    def test_circle(self) -> None:
        """A message that goes round by itself ends; a rejected one may come again."""
        queue = self.declare(x_message_ttl=1000, x_dead_letter_exchange="")
        self.put(queue, b"1")
        self.clock.advance(1.1)
        settle_down(self.clock)
        self.assertEqual(queue.depth, 1)  # it died here for the first time
        self.clock.advance(1.1)
        settle_down(self.clock)
        self.assertEqual(queue.depth, 0)

    def test_nowhere(self) -> None:
        """Without the exchange, or anybody who gets it, a dead letter is dropped."""
        queue = self.declare(x_message_ttl=1000, x_dead_letter_exchange="none")
        self.put(queue, b"1")
        other = self.declare("r", x_message_ttl=1000, x_dead_letter_exchange="amq.topic")
        self.put(other, b"1")
        self.clock.advance(1.1)
        settle_down(self.clock)
        self.assertEqual((queue.depth, other.depth, self.deaths()), (0, 0, []))

    def test_addresses(self) -> None:
        """No dead letter leaves for another organization, whatever key it has."""
        self.broker.return_to = lambda address: self.fail(f"sent to {address}")
        terms = {"x_message_ttl": 1000, "x_dead_letter_exchange": ""}
        queue = self.declare(**terms)
        named = self.declare("r", x_dead_letter_routing_key="orders@beta.example", **terms)
        spoofed = {"x-exchange": "", "x-routing-key": "orders@beta.example"}
        self.put(queue, b"1", annotations=spoofed)
        self.put(named, b"1")
        self.clock.advance(1.1)
        settle_down(self.clock)
        self.assertEqual((queue.depth, named.depth), (0, 0))

    def test_full_disk(self) -> None:
        """While the store has no room a dead letter stays where it is, and goes when there is."""
        queue = self.declare(x_message_ttl=1000, x_dead_letter_exchange="amq.topic")
        self.put(queue, b"1", annotations={"x-exchange": "e", "x-routing-key": "gone"})
        self.store.is_full = True
        self.clock.advance(1.1)
        settle_down(self.clock)
        self.assertEqual(self.dead.depth, 0)
        self.store.is_full = False
        self.broker.gate.open(STORE)
        settle_down(self.clock)
        self.assertEqual(self.deaths(), [("q", "expired", 1, b"1")])
