# SPDX-License-Identifier: Apache-2.0
"""REQUEUE: dead letters return to their original addresses."""

from __future__ import annotations

from typing import Any

from amqproute.entry import Entry
from amqproute.errors import StoreUnavailable
from amqproute.message import Message
from amqproute.outcomes import ErrorDetails
from amqproute.routing.table import Router
from amqproute.services import message_requeue
from amqproute.services.message_requeue import RequeueCommand
from amqproute.values import (
    DEAD_LETTER_SOURCE,
    ORIGIN,
    REPORT_KIND,
    RETURNED,
    DeadLetterReason,
    NextHop,
)
from amqproute.wire.amqp10 import codec, sections, spec
from tests.services import test_node_changes
from tests.services.test_node_changes import InventoryCase, Taker, configured

REFUSED = ErrorDetails(condition="app:bad-order", description="no such article: 7")


def letter(
    number: int,
    to: str | None = None,
    ttl: int | None = None,
    delivery_count: int = 0,
    **annotations: object,
) -> Message:
    """Return a message with a number in its body."""
    notes = {key.replace("_", "-"): value for key, value in annotations.items()}
    return Message(
        codec.encode(spec.Header(durable=True, ttl=ttl, delivery_count=delivery_count))
        + codec.encode(spec.Properties(message_id=f"m-{number}", to=to))
        + sections.encode_section(spec.SECTION_APPLICATION_PROPERTIES, {"n": number})
        + sections.encode_section(spec.SECTION_DATA, b"%d" % number)
    ).with_annotations(notes)


class Ways:
    """Relay queues: ordinary queues of a broker that stand in for them."""

    def __init__(self, case: RequeueingCase) -> None:
        self.case = case
        self.hops: list[NextHop] = []

    def take_on_trust(self, hop: NextHop) -> Any:
        self.hops.append(hop)
        return self.case.broker.nodes[f"out-{hop.domain}"]


class RequeueingCase(InventoryCase):
    CONFIGURED = configured(
        {"name": "dead", "duplicate-policy": "off"},
        {"name": "orders", "dead-letter": "dead", "max-deliveries": 1},
        {"name": "jobs", "dead-letter": "dead"},
        {"name": "few", "dead-letter": "dead", "capacity": 1},
        {"name": "once", "dead-letter": "dead", "duplicate-policy": "all"},
        {"name": "out-beta.example"},
        {"name": "inbox"},
    )

    def start(self, wanted: Any) -> None:
        super().start(wanted)
        self.ways = Ways(self)
        self.router = Router(["alpha.example"])
        self.now_ms = 5000
        RequeueCommand(
            self.broker,
            self.ways,
            lambda: self.router,
            self.allows,
            lambda: self.now_ms,
        ).register(self.service)

    def put(self, name: str, *messages: Message) -> None:
        """Put messages on a node."""
        batch = self.broker.begin()
        for message in messages:
            self.broker.target(name).put(message, batch, test_node_changes.ORIGIN)
        batch.commit()
        self.turns(2)

    def turns(self, count: int = 50) -> None:
        """Let walks go their way."""
        for _ in range(count):
            self.clock.advance(0.001)

    def take(self, name: str, count: int = 1000) -> tuple[Taker, list[Entry]]:
        """Attach a consumer, and return what it gets."""
        queue = self.broker.nodes[name]
        taker = Taker(count)
        queue.attach(taker)
        queue.dispatch()
        self.turns()
        queue.detach(taker)
        return taker, list(taker.entries)

    def bury(self, name: str, *messages: Message, error: ErrorDetails | None = REFUSED) -> None:
        """Have messages rejected on a queue."""
        self.put(name, *messages)
        _, entries = self.take(name)
        queue = self.broker.nodes[name]
        batch = self.broker.begin()
        queue.give_up(entries, DeadLetterReason.REJECTED, error, batch)
        batch.commit()
        self.turns()

    def entries(self, name: str) -> list[Entry]:
        """Return what is on a queue, without taking it."""
        _, entries = self.take(name)
        self.broker.nodes[name].release(entries)
        self.turns()
        return entries

    def numbers(self, name: str) -> list[int]:
        """Return the numbers of what is on a queue."""
        return [int(each.message.application_properties["n"]) for each in self.entries(name)]

    def ask(self, name: str = "dead", **body: Any) -> tuple[int, Any]:
        """Send one request; return its answer."""
        given = {key.replace("_", "-"): value for key, value in body.items()}
        self.send(given, operation="REQUEUE", name=name)
        self.turns(200)
        return self.answer()


class WayTests(RequeueingCase):
    """The targets of dead letters."""

    def test_each_to_its_queue(self) -> None:
        """Each goes to the queue that it left; and so it is after a restart."""
        self.bury("orders", letter(1), letter(2))
        self.bury("jobs", letter(3))
        before = self.stored()
        status, body = self.ask()
        self.assertEqual((status, body["messages"], body["refused"]), (200, 3, 0))
        self.assertEqual(body["targets"], {"orders": 2, "jobs": 1})
        for _ in range(2):
            self.assertEqual(self.numbers("orders"), [1, 2])
            self.assertEqual(self.numbers("jobs"), [3])
            self.assertEqual(self.numbers("dead"), [])
            self.assertEqual(self.stored(), before)
            self.restart()

    def test_as_it_was(self) -> None:
        """Bare message and own annotations are the same; deliveries count from 0, marks go."""
        original = letter(1, delivery_count=4, x_opt_own="kept")
        self.bury("jobs", original)
        (dead,) = self.entries("dead")
        self.assertEqual(dead.message.annotations[DEAD_LETTER_SOURCE], "jobs")
        self.ask()
        (entry,) = self.entries("jobs")
        self.assertEqual(dict(entry.message.annotations), {"x-opt-own": "kept"})
        self.assertEqual((entry.delivery_count, entry.message.header.delivery_count), (0, 0))
        self.assertEqual(
            entry.message.encoded[entry.message.bare_from :],
            original.encoded[original.bare_from :],
        )

    def test_relayed(self) -> None:
        """A message from a relay queue is routed by its address and the present routes."""
        marks = {"x_opt_dead_letter_reason": "expired"}
        gone = "amqp$out/gone.example:5671"
        self.put(
            "dead",
            letter(1, "orders@beta.example", x_opt_dead_letter_source=gone, **marks),
            letter(2, "jobs@alpha.example", x_opt_dead_letter_source=gone, **marks),
            letter(3, "x@else.example", **marks, x_opt_dead_letter_source=(
                "amqp$out/beta.example/back@beta.example")),
        )  # fmt: skip
        _, body = self.ask()
        self.assertEqual((body["messages"], body["refused"]), (3, 0), body)
        self.assertEqual(self.numbers("out-beta.example"), [1, 3])
        self.assertEqual(self.numbers("jobs"), [2])
        self.assertEqual([hop.target for hop in self.ways.hops],
                         ["amqp$transfer", "back@beta.example"])  # fmt: skip

    def test_returned(self) -> None:
        """A message returned by another broker is sent to its address again."""
        message = letter(
            1, "jobs@beta.example", x_opt_dead_letter_reason="rejected",
            x_opt_dead_letter_source="jobs",
        ).with_annotations({REPORT_KIND: RETURNED, ORIGIN: "beta.example"})  # fmt: skip
        self.put("inbox", message)
        self.ask("inbox")
        self.assertEqual(self.numbers("jobs"), [])
        (entry,) = self.entries("out-beta.example")
        self.assertEqual(dict(entry.message.annotations), {})

    def test_lead_nowhere(self) -> None:
        """Other messages, or those without a usable address, stay, with the reason in the reply."""
        marks = {"x_opt_dead_letter_reason": "expired", "x_opt_dead_letter_source": "gone"}
        for message, words in (
            (letter(1, "jobs"), "is no dead letter"),
            (letter(2, **marks), "has no `to`"),
            (letter(3, "$management", **marks), "is a service"),
            (letter(4, "nowhere", **marks), "nowhere"),
            (letter(5, "dead", **marks), "addressed to 'dead' itself"),
        ):
            self.put("dead", message)
            status, body = self.ask()
            self.assertEqual((status, body["messages"], body["refused"]), (200, 0, 1))
            self.assertIn(words, body["refused-because"])
            self.assertEqual(len(self.entries("dead")), 1)
            self.broker.nodes["dead"].purge()
            self.turns()


class SelectionTests(RequeueingCase):
    """The selection of dead letters."""

    def test_facts(self) -> None:
        """By reason, condition, source, selector and id; all that is given has to fit."""
        self.bury("orders", letter(1), letter(2))
        self.bury("jobs", letter(3), error=ErrorDetails(condition="amqp:not-found"))
        first = self.entries("dead")[0].id
        for given, expected in (
            ({"reason": "rejected"}, 3),
            ({"reason": "expired"}, 0),
            ({"condition": "app:bad-order"}, 2),
            ({"condition": "amqp:not-found"}, 1),
            ({"condition": "app:bad"}, 0),
            ({"source": "jobs"}, 1),
            ({"where": "n >= 2"}, 2),
            ({"where": "n >= 2", "source": "orders"}, 1),
            ({"ids": [first]}, 1),
            ({"ids": [first], "source": "jobs"}, 0),
            ({"limit": 2}, 2),
        ):
            status, body = self.ask(dry_run=True, **given)
            self.assertEqual((status, body["messages"]), (200, expected), given)
        self.assertEqual(self.numbers("dead"), [1, 2, 3])
        _, body = self.ask(ids=[first, 99999])
        self.assertEqual((body["messages"], body["missing"]), (1, [99999]))
        self.assertEqual(self.numbers("orders"), [1])

    def test_age(self) -> None:
        """By the time since they became dead letters."""
        self.bury("orders", letter(1))
        self.now_ms = self.entries("dead")[0].arrived_ms + 3000
        for given, expected in (
            ({"older_than_ms": 2000}, 1),
            ({"older_than_ms": 4000}, 0),
            ({"newer_than_ms": 2000}, 0),
            ({"newer_than_ms": 4000}, 1),
        ):
            _, body = self.ask(dry_run=True, **given)
            self.assertEqual(body["messages"], expected, given)

    def test_dry_run(self) -> None:
        """It shows where each would go, and changes nothing."""
        self.bury("orders", *(letter(number) for number in range(7)))
        _, body = self.ask(dry_run=True)
        self.assertEqual((body["messages"], len(body["samples"])), (7, 5))
        sample = body["samples"][0]
        self.assertEqual(
            (sample["new-queue"], sample["state"], sample["condition"]),
            ("orders", "rejected", "app:bad-order"),
        )
        self.assertEqual(len(self.numbers("dead")), 7)

    def test_limit(self) -> None:
        """No more than this many, the oldest first."""
        self.bury("orders", *(letter(number) for number in range(7)))
        _, body = self.ask(limit=3)
        self.assertEqual((body["messages"], self.numbers("orders")), (3, [0, 1, 2]))
        self.assertEqual(self.numbers("dead"), [3, 4, 5, 6])

    def test_nonsense(self) -> None:
        """Each mistake is named."""
        for name, body, status, words in (
            ("nowhere", {}, 404, "no queue"),
            ("", {}, 400, "name"),
            ("dead", {"colour": 1}, 400, "'colour'"),
            ("dead", {"ids": "1"}, 400, "ids"),
            ("dead", {"ids": list(range(1001))}, 400, "1000"),
            ("dead", {"where": "n >"}, 400, "where"),
            ("dead", {"where": 1}, 400, "where"),
            ("dead", {"reason": "bad"}, 400, "rejected"),
            ("dead", {"limit": 0}, 400, "limit"),
            ("dead", {"older_than_ms": -1}, 400, "older-than-ms"),
            ("dead", {"cursor": "x"}, 400, "cursor"),
        ):
            found, facts = self.ask(name, **body)
            self.assertEqual(found, status, (name, body, facts))
            self.assertIn(words, self.words, (name, body))

    def answer(self) -> tuple[int, Any]:
        entry = self.taker.entries[-1]
        self.words = str(entry.message.application_properties.get("statusDescription"))
        return super().answer()


class SafetyTests(RequeueingCase):
    """Nothing is lost, nothing is doubled."""

    def test_store_fails(self) -> None:
        """Messages that the store does not take stay in place; none is duplicated."""
        self.bury("orders", letter(1), letter(2))
        apply = self.store._apply
        is_full = True

        def full(transaction: Any) -> None:
            if is_full and transaction.begins():
                raise StoreUnavailable("no room")
            apply(transaction)

        self.patch(self.store, "_apply", full)
        self.send({}, operation="REQUEUE", name="dead")
        self.turns(200)
        is_full = False
        self.taker.entries.clear()
        self.assertEqual((self.numbers("dead"), self.numbers("orders")), ([1, 2], []))
        _, body = self.ask()
        self.assertEqual((body["messages"], self.numbers("orders")), (2, [1, 2]))

    def test_full(self) -> None:
        """Messages beyond the room of their queue stay; others go."""
        self.bury("few", letter(1))
        self.bury("few", letter(2))
        self.bury("jobs", letter(3))
        _, body = self.ask()
        self.assertEqual((body["messages"], body["refused"]), (2, 1))
        self.assertIn("few", body["refused-because"])
        self.assertEqual((self.numbers("few"), self.numbers("jobs")), ([1], [3]))
        self.assertEqual(self.numbers("dead"), [2])

    def test_repetitions(self) -> None:
        """A message that its queue would drop as a duplicate stays a dead letter."""
        self.bury("once", letter(1))
        self.assertEqual(self.numbers("dead"), [1])
        self.bury("once", letter(1))
        self.assertEqual(self.numbers("dead"), [1, 1])
        _, body = self.ask()
        self.assertEqual((body["messages"], body["refused"]), (1, 1))
        self.assertIn("message-id", body["refused-because"])
        self.assertEqual((self.numbers("once"), self.numbers("dead")), ([1], [1]))

    def test_held(self) -> None:
        """Entries held by a consumer stay with it."""
        self.bury("jobs", letter(1), letter(2))
        queue = self.broker.nodes["dead"]
        taker = Taker(1)
        queue.attach(taker)
        queue.dispatch()
        self.turns()
        _, body = self.ask()
        self.assertEqual((body["messages"], self.numbers("jobs")), (1, [2]))

    def test_rights(self) -> None:
        """It takes the right to manage the queue, and each target."""
        self.bury("orders", letter(1))
        self.bury("jobs", letter(2))
        self.may = {"orders"}
        status, _ = self.ask()
        self.assertEqual(status, 403)
        self.may = {"dead", "jobs"}
        _, body = self.ask()
        self.assertEqual((body["targets"], body["refused"]), ({"jobs": 1}, 1))
        self.assertIn("may not manage 'orders'", body["refused-because"])

    def test_parts(self) -> None:
        """Many go in several requests, each once, also where they come back at once."""
        self.patch(message_requeue, "MOST_SEEN", 1000)
        for start in range(0, 3000, 500):
            self.bury("jobs", *(letter(start + number) for number in range(500)))
        moved, cursor, requests = 0, "", 0
        while requests < 20:
            status, body = self.ask(cursor=cursor)
            self.assertEqual(status, 200)
            moved += body["messages"]
            cursor = body["cursor"]
            requests += 1
            _, back = self.take("jobs", 5000)  # a consumer that still rejects all of them
            batch = self.broker.begin()
            self.broker.nodes["jobs"].give_up(back, DeadLetterReason.REJECTED, None, batch)
            batch.commit()
            self.turns(5)
            if not cursor:
                break
        self.assertEqual((moved, self.broker.nodes["dead"].depth), (3000, 3000))
        self.assertGreater(requests, 2)
