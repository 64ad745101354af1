# SPDX-License-Identifier: Apache-2.0
"""``$management``: requests, replies, and permitted reply addresses."""

from __future__ import annotations

import itertools
import json
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from amqproute import conditions
from amqproute.auth.policy import Verb
from amqproute.broker.binding import BindingDeclaration
from amqproute.broker.broker import Broker
from amqproute.broker.node_declaration import NodeDeclaration, TopicDeclaration
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.subscription import Definition
from amqproute.errors import AmqpError, PreconditionFailed
from amqproute.filters.registry import NO_FILTERS
from amqproute.interfaces import ITarget
from amqproute.journal.event import ArrivalEvent, JournalEvent, MessageRun
from amqproute.log_rate_limit import EVERY_SECONDS
from amqproute.message import Message
from amqproute.services import management_node
from amqproute.services.entity_pages import SLICE_ROWS, EntityQuery
from amqproute.services.management_node import (
    MOST_REFUSED,
    EntityType,
    ManagementReply,
    ManagementRequest,
    ManagementService,
)
from amqproute.services.management_rows import ManagementRows
from amqproute.store.memory import MemoryStore
from amqproute.turn_scheduler import STEPS_IN_TURN, TurnScheduler
from amqproute.values import Origin, Principal
from amqproute.wire.amqp10 import codec, sections, spec
from amqproute.wire.amqp10.types import Int, ULong
from tests.support.turn_clock import TurnClock

ANN = Principal("user", "ann")


class Taker:
    """A consumer that keeps what it is handed."""

    takes_ahead = False

    def __init__(self) -> None:
        self.entries: list[Any] = []

    def capacity(self) -> int:
        return 100

    def deliver(self, entries: Any) -> None:
        self.entries += entries

    def exhausted(self) -> None:
        pass


class Notes:
    """A journal that keeps what it is told of requests."""

    is_kept = True
    domain = ""

    def __init__(self) -> None:
        self.noted: list[JournalEvent] = []

    def now_us(self) -> int:
        return 1

    def arrivals(self, came: Any) -> ArrivalEvent:
        return ArrivalEvent(1, came, self.domain)

    def note(self, event: JournalEvent) -> None:
        self.noted.append(event)

    def runs(self) -> list[MessageRun]:
        return [run for event in self.noted for run in event.runs()]


def request(body: Any = None, *, properties: Any = None, **terms: Any) -> Message:
    fields = spec.Properties(**{"message_id": "m1", "reply_to": "dyn-1", **(properties or {})})
    return Message(
        codec.encode(fields)
        + sections.encode_section(spec.SECTION_APPLICATION_PROPERTIES, terms)
        + sections.encode_section(spec.SECTION_AMQP_VALUE, body)
    )


class ManagementTests(SynchronousTestCase):
    """A broker with two nodes, a relay queue and a dynamic node for replies."""

    def setUp(self) -> None:
        self.clock = Clock()
        store = MemoryStore(self.clock)
        store.open()
        numbers = itertools.count(1)
        self.broker = Broker(store, self.clock, lambda: 5000, lambda: f"dyn-{next(numbers)}")
        limits = QueueLimits()
        self.broker.declare(
            [NodeDeclaration("orders", limits), NodeDeclaration("audit", limits)],
            {"sales": "orders"},
        )
        self.broker.make_internal("amqp$out/beta.example", limits)
        self.replies = self.broker.create_dynamic()
        self.taker = Taker()
        self.replies.attach(self.taker)
        self.allowed: set[str] = set()
        self.service = ManagementService(
            self.broker,
            lambda principal, verb, node: verb is Verb.PUBLISH and node in self.allowed,
            lambda: 7500,
            destination_of=lambda queue: {"queue": queue, "state": "waiting", "rejected": 3},
            connections=lambda: [{"name": "127.0.0.1:5", "principal": "user:ann"}],
        )
        self.clock.advance(0)

    def put(self, message: Message, name: str = "") -> None:
        batch = self.broker.begin()
        target = self.service if not name else self.broker.target(name)
        target.put(message, batch, Origin(ANN))
        batch.commit()
        self.clock.advance(0)
        self.replies.dispatch()

    def test_work_of_a_page(self) -> None:
        """A page of many queues makes its own rows and no others; nor does one by its name."""
        limits = QueueLimits()
        names = sorted(["audit", "dyn-1", "orders", *(f"n{number}" for number in range(5000))])
        self.broker.declare([NodeDeclaration(name, limits) for name in names[:-1]], {})
        made = []
        make = ManagementRows._queue_row

        def counting(overview: ManagementRows, queue: Any, *kinds: str) -> Any:
            made.append(queue.name)
            return make(overview, queue, *kinds)

        self.patch(ManagementRows, "_queue_row", counting)
        properties, body, _ = self.ask(
            {"attributeNames": ["name"]}, operation="QUERY", entityType="queue", offset=7, count=10
        )
        found = [name for (name,) in body["results"]]
        self.assertEqual(found, sorted(self.broker.nodes)[7:17])
        self.assertEqual(made, found)
        self.assertEqual(properties["total"], len(self.broker.nodes) + 1)
        made.clear()
        _, body, _ = self.ask(operation="READ", entityType="queue", name="n4711")
        self.assertEqual((body["name"], made), ("n4711", ["n4711"]))

    def ask(self, body: Any = None, **terms: Any) -> tuple[dict[str, Any], Any, spec.Properties]:
        self.taker.entries.clear()
        self.put(request(body, **terms))
        (entry,) = self.taker.entries
        message = entry.message
        offsets = message.offsets
        value = sections.decode_section(message.encoded, offsets.body_start, offsets.body_end)
        return dict(message.application_properties), value, message.properties

    def rows(self, body: Any = None, **terms: Any) -> list[dict[str, Any]]:
        properties, value, _ = self.ask(body, operation="QUERY", **terms)
        self.assertEqual(properties["statusCode"], 200)
        return [dict(zip(value["attributeNames"], row, strict=True)) for row in value["results"]]

    def test_long_request_in_the_journal(self) -> None:
        """The record of a request is a JSON object, however long the request is."""
        journal = Notes()
        self.broker.journal = journal
        for attributes in ({"a": "b"}, {"\x01" * 300: "\x02" * 5000}):
            self.ask(attributes, operation="DO-IT")
        short, long = (json.loads(json.loads(run.shared)["detail"]) for run in journal.runs())
        self.assertEqual(short["attributes"], {"a": "b"})
        self.assertEqual(long["answer"], short["answer"])
        self.assertIn("attributes", long["beginning"])

    def test_refusals_in_the_journal(self) -> None:
        """Who may not manage has a few records, and then one for many; each party has its own."""
        journal = Notes()
        self.broker.journal = journal

        def ask(name: str, count: int) -> None:
            asked = ManagementRequest("PURGE", {"name": "orders"}, {}, Principal("peer", name))
            for _ in range(count):
                reply = self.successResultOf(self.service.perform(asked))
                self.assertEqual(reply.status, 403)

        ask("b.test", 100)
        self.assertEqual(len(journal.noted), MOST_REFUSED)
        ask("c.test", 1)
        self.assertEqual(len(journal.noted), MOST_REFUSED + 1)
        self.clock.advance(EVERY_SECONDS)
        ask("b.test", 1)
        detail = json.loads(json.loads(journal.runs()[-1].shared)["detail"])
        self.assertIn(f"({100 - MOST_REFUSED} more like it", detail["answer"])

    def test_lists_share_turns(self) -> None:
        """However many are made: each turn has a few slices, and a principal has a few lists."""
        clock = TurnClock()
        turns = self.service.turns = TurnScheduler(clock)
        limits = QueueLimits()
        self.broker.declare([NodeDeclaration(f"n{n:04}", limits) for n in range(400)], {})
        self.patch(self.service, "_allows", lambda *_: True)
        self.patch(management_node, "MOST_LISTS", 20)
        self.patch(management_node, "MOST_LISTS_OF_ONE", 15)
        query = EntityQuery(wanted={"kind": "none"})

        def ask(who: str) -> Deferred[ManagementReply]:
            principal = Principal("user", who)
            return Deferred.fromCoroutine(self.service.list_entities("queue", query, principal))

        lists = [ask("eve") for _ in range(15)]
        self.assertEqual(self.successResultOf(ask("eve")).status, 507)
        others = [ask(f"user-{n}") for n in range(5)]
        self.assertEqual(self.successResultOf(ask("ann")).status, 507)
        made = 0
        make = ManagementRows._queue_row

        def counting(overview: ManagementRows, queue: Any, *kinds: str) -> Any:
            nonlocal made
            made += 1
            return make(overview, queue, *kinds)

        self.patch(ManagementRows, "_queue_row", counting)
        before = most = 0
        while clock.turn():
            most, before = max(most, made - before), made
        self.assertLessEqual(most, STEPS_IN_TURN * SLICE_ROWS)
        for each in (*lists, *others):
            self.assertEqual(self.successResultOf(each).status, 200)
        self.assertEqual(turns.waiting, 0)
        again = ask("eve")
        self.assertNoResult(again)
        while clock.turn():
            pass
        self.assertEqual(self.successResultOf(again).status, 200)

    def test_is_a_target(self) -> None:
        """It can stand wherever a queue can."""
        self.assertTrue(verifyObject(ITarget, self.service))
        self.assertGreater(self.service.space(), 0)

    def test_query_queues(self) -> None:
        """All queues come with their kind, their counts and the age of their oldest message."""
        data = sections.encode_section(spec.SECTION_DATA, b"hello")
        self.put(Message(data), "orders")
        rows = {row["name"]: row for row in self.rows(entityType="queue")}
        self.assertEqual(
            {name: row["kind"] for name, row in rows.items()},
            {
                "orders": "node",
                "audit": "node",
                "dyn-1": "dynamic",
                "amqp$out/beta.example": "relay",
            },
        )
        orders = rows["orders"]
        self.assertEqual((orders["depth"], orders["available"], orders["enqueued"]), (1, 1, 1))
        self.assertEqual((orders["bytes"], orders["oldest-age-ms"]), (len(data), 2500))
        self.assertIsNone(rows["audit"]["oldest-age-ms"])

    def test_reply_belongs_to_the_request(self) -> None:
        """The reply names its receiver, and the request by its message-id, type kept (G-19)."""
        properties, _, fields = self.ask(
            operation="query", entityType="queue", properties={"message_id": ULong(7)}
        )
        self.assertEqual((fields.to, fields.correlation_id), ("dyn-1", 7))
        self.assertIs(type(fields.correlation_id), ULong)
        self.assertIs(type(properties["statusCode"]), Int)
        self.assertEqual(properties["count"], 4)

    def test_without_message_id_the_correlation_id_is_copied(self) -> None:
        """G-19."""
        _, _, fields = self.ask(
            operation="QUERY", properties={"message_id": None, "correlation_id": "c9"}
        )
        self.assertEqual(fields.correlation_id, "c9")

    def test_topics(self) -> None:
        """Topics, their durable subscriptions and the bindings are shown, too."""
        limits = QueueLimits()
        nodes = [NodeDeclaration("orders", limits), NodeDeclaration("audit", limits)]
        binding = BindingDeclaration("t", "audit")
        self.broker.declare([*nodes, TopicDeclaration("t")], {"sales": "orders"}, [binding])
        topic = self.broker.topics["t"]
        topic.subscribe(Definition("t", "c", "s", "user:ann", "c"), NO_FILTERS)
        self.clock.advance(0)
        self.put(Message(sections.encode_section(spec.SECTION_DATA, b"hello")), "t")
        rows = {row["name"]: row for row in self.rows(entityType="queue")}
        self.assertEqual(rows["t"]["kind"], "topic")
        self.assertEqual((rows["t"]["enqueued"], rows["t"]["durable-subscriptions"]), (1, 1))
        subscription = rows["amqp$sub/t/c/s"]
        self.assertEqual((subscription["kind"], subscription["depth"]), ("subscription", 1))
        (row,) = self.rows(entityType="binding")
        self.assertEqual((row["source"], row["target"], row["mode"]), ("t", "audit", "copy"))

    def test_query_can_be_restricted(self) -> None:
        """By attribute names, and by offset and count."""
        rows = self.rows(
            {"attributeNames": ["name", "depth"]}, entityType="queue", offset=1, count=2
        )
        self.assertEqual(rows, [{"name": "dyn-1", "depth": 0}, {"name": "orders", "depth": 0}])
        properties, _, _ = self.ask(operation="QUERY", entityType="queue", offset=3)
        self.assertEqual((properties["count"], properties["total"]), (1, 4))

    def test_relay_queues_show_their_destination(self) -> None:
        """An attribute that both have keeps apart."""
        (row,) = self.rows(entityType="relay-queue")
        self.assertEqual((row["name"], row["kind"]), ("amqp$out/beta.example", "relay"))
        self.assertEqual((row["state"], row["rejected"], row["peer-rejected"]), ("waiting", 0, 3))

    def test_query_without_type_gives_everything(self) -> None:
        """The working draft: no entityType means all."""
        names = [row["name"] for row in self.rows(type="org.amqp.management", name="self")]
        self.assertIn("127.0.0.1:5", names)
        self.assertIn("audit", names)

    def test_read(self) -> None:
        """One entity by its name."""
        properties, value, _ = self.ask(operation="READ", type="queue", name="orders")
        self.assertEqual(properties["statusCode"], 200)
        self.assertEqual(value["name"], "orders")

    def test_failures_are_answered(self) -> None:
        """G-21: the delivery is accepted, the reply says what is wrong (G-20)."""
        for terms, status, *facts in (
            ({"operation": "READ", "type": "queue", "name": "nowhere"}, 404),
            ({"operation": "READ", "type": "queue"}, 400, {"field": "name"}),
            ({"operation": "EXPLODE", "type": "queue"}, 501),
            ({"operation": "QUERY", "entityType": "teapot"}, 400),
            ({"operation": "QUERY", "offset": -1}, 400),
            ({"operation": "QUERY", "count": "many"}, 400),
            ({"operation": "QUERY", "body": {"attributeNames": "name"}}, 400),
            ({}, 400),
        ):
            with self.subTest(terms=terms):
                properties, value, _ = self.ask(**terms)
                self.assertEqual(properties["statusCode"], status)
                self.assertTrue(properties["statusDescription"])
                self.assertEqual([value], facts or [{}])

    def test_registry_and_operations_can_be_extended(self) -> None:
        """A new kind of thing is one function, a new operation another."""
        self.service.register(EntityType("teapot", lambda: [{"name": "t1", "full": True}]))
        self.assertEqual(self.rows(entityType="teapot"), [{"name": "t1", "full": True}])
        self.service.operations["POUR"] = lambda asked: ManagementReply.of(
            200, str(asked.principal), {"type": asked.entity_type}
        )
        properties, value, _ = self.ask(operation="POUR", type="teapot")
        self.assertEqual(properties["statusDescription"], "user:ann")
        self.assertEqual(value, {"type": "teapot"})

    def test_a_page_is_bounded(self) -> None:
        """Any value of count."""
        many = [{"name": str(number)} for number in range(management_node.MAX_ROWS + 5)]
        self.service.register(EntityType("many", lambda: many))
        self.assertEqual(len(self.rows(entityType="many", count=10**6)), management_node.MAX_ROWS)

    def test_reply_to_has_to_be_usable(self) -> None:
        """No reply-to, no such node, a service, or a node the asker may not publish to."""
        for reply_to in (None, "nowhere", "$management", "amqp$transfer", "orders",
                         "/queues/orders", "/queues/%24management", "/queues/%"):  # fmt: skip
            with self.subTest(reply_to=reply_to):
                asked = request(operation="QUERY", properties={"reply_to": reply_to})
                error = self.assertRaises(
                    PreconditionFailed, self.service.put, asked, self.broker.begin(), Origin(ANN)
                )
                self.assertIn("reply-to", error.description)

    def test_reply_to_with_a_domain(self) -> None:
        """Of our own it is the node here (A-01); of others a peer has its own, and no third one's.

        Whoever may publish to an address may have replies sent there (T-32).
        """
        beta = Principal("peer", "beta.example", frozenset(("beta.example",)))
        way = self.broker.internal["amqp$out/beta.example"]
        ours = "@alpha.example"
        self.broker.answers_to = lambda text: text[: -len(ours)] if text.endswith(ours) else way

        def ask(reply_to: str, principal: Principal) -> None:
            batch = self.broker.begin()
            asked = request(operation="QUERY", properties={"reply_to": reply_to})
            self.service.put(asked, batch, Origin(principal, principal is beta))
            batch.commit()
            self.clock.advance(0)

        ask(f"{self.replies.name}@alpha.example", ANN)
        self.replies.dispatch()
        self.assertEqual(len(self.taker.entries), 1)
        ask("answers@beta.example", beta)
        self.assertEqual(way.depth, 1)
        self.allowed.add("answers@beta.example")
        ask("answers@beta.example", ANN)
        self.assertEqual(way.depth, 2)
        for reply_to, principal in (
            ("others@beta.example", ANN),
            ("answers@gamma.example", beta),
            ("orders@alpha.example", beta),
            ("$management@alpha.example", ANN),
            ("answers@", beta),
        ):
            self.assertRaises(PreconditionFailed, ask, reply_to, principal)
        self.assertEqual(way.depth, 2)

    def test_replies_to_a_node_that_the_asker_may_publish_to(self) -> None:
        """The service lends nobody its rights, and takes none away."""
        self.allowed.add("orders")
        self.put(request(operation="QUERY", properties={"reply_to": "orders"}))
        self.assertEqual(self.broker.nodes["orders"].depth, 1)

    def test_a_broken_request_is_rejected_alone(self) -> None:
        """Its condition is decode-error, and nothing but the delivery is refused (G-21)."""
        broken = Message(
            codec.encode(spec.Properties(reply_to="dyn-1")) + b"\x00\x53\x77\xa1\x02\xff\xff"
        )
        error = self.assertRaises(
            AmqpError, self.service.put, broken, self.broker.begin(), Origin(ANN)
        )
        self.assertEqual(error.condition, conditions.DECODE_ERROR)
