# SPDX-License-Identifier: Apache-2.0
"""MOVE and COPY of messages between nodes (G-22)."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from amqproute.broker.node_options import Duplicates, QueueOptions
from amqproute.broker.queue_iterator import page_of
from amqproute.entry import Entry
from amqproute.filters.selector import Selector, compile_selector
from amqproute.message import Message
from amqproute.services import message_moves
from amqproute.wire.amqp10 import codec, sections, spec
from tests.services.test_node_changes import ORIGIN, InventoryCase, Taker, configured


def numbered(number: int, *, durable: bool = True, ttl: int | None = None) -> Message:
    """Return a message with an id, and a number to select by."""
    header = spec.Header(durable=durable, ttl=ttl)
    return Message(
        codec.encode(header)
        + codec.encode(spec.Properties(message_id=f"m-{number}"))
        + sections.encode_section(spec.SECTION_APPLICATION_PROPERTIES, {"n": number})
        + sections.encode_section(spec.SECTION_DATA, b"%d" % number)
    )


def number_of(entry: Entry) -> int:
    """Return the number of a message."""
    return int(entry.message.application_properties["n"])


class MovingCase(InventoryCase):
    CONFIGURED = configured(
        {"name": "dead"},
        {"name": "jobs"},
        {"name": "few", "capacity": 3},
        {"name": "prices", "type": "topic"},
    )

    def put(self, name: str, *numbers: int, **more: Any) -> None:
        """Put messages on a node."""
        batch = self.broker.begin()
        for number in numbers:
            self.broker.target(name).put(numbered(number, **more), batch, ORIGIN)
        batch.commit()
        self.clock.advance(0)

    def run_to_the_end(self) -> None:
        """Let walks go their way."""
        for _ in range(50):
            self.clock.advance(0.001)

    def ask(self, operation: str, name: str, **body: Any) -> tuple[int, Any]:
        """Send one request; return its answer."""
        self.send(body, operation=operation, name=name)
        self.run_to_the_end()
        return self.answer()

    def numbers(self, name: str) -> list[int]:
        """Return what is on a queue, in order, without taking it."""
        queue = self.broker.nodes[name]
        taker = Taker(1000)
        queue.attach(taker)
        queue.dispatch()
        self.run_to_the_end()
        found = [number_of(entry) for entry in taker.entries]
        queue.detach(taker)
        queue.release(taker.entries)
        self.run_to_the_end()
        return found


class LongTests(MovingCase):
    """Requests that look at much."""

    def test_long_selector(self) -> None:
        """The longest selector is asked about few messages in a turn."""
        self.put("dead", *range(1200))
        where = " OR ".join(f"n = {number}" for number in range(1000, 1250))
        tests = 0
        matches = Selector.matches

        def counting(selector: Selector, message: Message) -> bool:
            nonlocal tests
            tests += 1
            return matches(selector, message)

        self.patch(Selector, "matches", counting)
        most = page_of(compile_selector(where).words)
        self.assertLess(most, 10)
        pages: list[int] = []

        def pause() -> Deferred[None]:
            nonlocal tests
            pages.append(tests)
            tests = 0
            return deferLater(self.clock, 0)

        self.patch(self.broker.nodes["dead"], "_pause", pause)
        for operation in ("MOVE", "COPY"):
            pages.clear()
            _, said = self.ask(operation, "dead", target="jobs", filter=where, **{"dry-run": True})
            self.assertEqual((said["messages"], sum(pages)), (200, 1200))
            self.assertEqual(max(pages), most)


class RequestTests(MovingCase):
    def test_move(self) -> None:
        """Off the source, onto the target, in one commit; and so it is after a restart."""
        self.put("dead", 1, 2, 3)
        self.put("jobs", 9)
        status, body = self.ask("MOVE", "dead", target="jobs")
        self.assertEqual((status, body["messages"], body["cursor"]), (200, 3, ""))
        self.assertEqual((self.numbers("dead"), self.numbers("jobs")), ([], [9, 1, 2, 3]))
        self.restart()
        self.assertEqual((self.numbers("dead"), self.numbers("jobs")), ([], [9, 1, 2, 3]))

    def test_copy(self) -> None:
        """They stay, too."""
        self.put("dead", 1, 2)
        status, body = self.ask("COPY", "dead", target="jobs")
        self.assertEqual((status, body["messages"]), (200, 2))
        self.assertEqual((self.numbers("dead"), self.numbers("jobs")), ([1, 2], [1, 2]))
        self.assertEqual(self.stored(), 4)

    def test_filter_and_limit(self) -> None:
        """Some of them, by a selector and by number."""
        self.put("dead", *range(10))
        _, body = self.ask("MOVE", "dead", target="jobs", filter="n >= 5", limit=3)
        self.assertEqual(body["messages"], 3)
        self.assertEqual(self.numbers("jobs"), [5, 6, 7])
        self.assertEqual(self.numbers("dead"), [0, 1, 2, 3, 4, 8, 9])
        _, body = self.ask("COPY", "dead", target="jobs", filter="n = 0", **{"dry-run": True})
        self.assertEqual((body["messages"], self.numbers("jobs")), (1, [5, 6, 7]))

    def test_held(self) -> None:
        """Entries held by a consumer stay with it."""
        self.put("dead", 1, 2, 3)
        taker = Taker(1)
        self.broker.nodes["dead"].attach(taker)
        self.broker.nodes["dead"].dispatch()
        _, body = self.ask("MOVE", "dead", target="jobs")
        self.assertEqual((body["messages"], self.numbers("jobs")), (2, [2, 3]))
        self.assertEqual([number_of(each) for each in taker.entries], [1])

    def test_paged(self) -> None:
        """Paged entries are moved as well, in steps, with a cursor."""
        self.patch(message_moves, "MOST_SEEN", 1000)
        queue = self.broker.nodes["dead"]
        object.__setattr__(queue.limits, "resident_messages", 20)
        for start in range(0, 3000, 100):
            self.put("dead", *range(start, start + 100))
        self.assertLess(queue.resident, 3000)
        moved, cursor, requests = 0, "", 0
        while True:
            _, body = self.ask("MOVE", "dead", target="jobs", cursor=cursor)
            moved += body["messages"]
            cursor = body["cursor"]
            requests += 1
            if not cursor:
                break
        self.assertEqual((moved, queue.depth), (3000, 0))
        self.assertGreater(requests, 2)
        self.assertEqual(self.broker.nodes["jobs"].depth, 3000)
        self.assertEqual(self.stored(), 3000)

    def test_full(self) -> None:
        """A target that is full ends it; what it has not taken stays in its place."""
        self.put("dead", *range(5))
        status, body = self.ask("MOVE", "dead", target="few")
        self.assertEqual((status, body["messages"], body["refused"]), (200, 3, 1))
        self.assertIn("few is full", body["refused-because"])
        self.assertEqual((self.numbers("few"), self.numbers("dead")), ([0, 1, 2], [3, 4]))

    def test_duplicates(self) -> None:
        """The target's duplicate rule applies: copies keep their message-ids."""
        self.broker.nodes["jobs"].options = QueueOptions(duplicates=Duplicates.ALL)
        self.put("dead", 1, 2)
        self.put("jobs", 1)
        self.ask("COPY", "dead", target="jobs")
        self.assertEqual(self.numbers("jobs"), [1, 2])

    def test_lifetime(self) -> None:
        """The rest of the ttl remains."""
        self.put("dead", 1, ttl=60_000)
        (entry,) = self.broker.nodes["dead"].state.waiting()
        entry.expires_ms -= 50_000  # as if it had waited so long
        self.ask("MOVE", "dead", target="jobs")
        (entry,) = self.broker.nodes["jobs"].state.waiting()
        self.assertEqual(entry.expires_ms, 5000 + 10_000)

    def test_topic(self) -> None:
        """A topic is a target as well: its subscribers get them."""
        self.do("create link l prices few")
        self.put("dead", 1, 2)
        _, body = self.ask("MOVE", "dead", target="prices")
        self.assertEqual((body["messages"], self.numbers("few")), (2, [1, 2]))

    def test_store_fails(self) -> None:
        """Nothing is lost: what could not be moved is on its old place."""
        self.put("dead", 1, 2)
        self.put("dead", 3, durable=False)
        self.store.is_failing = True
        self.send({"target": "jobs"}, operation="MOVE", name="dead")
        self.run_to_the_end()
        self.store.is_failing = False
        self.assertEqual((self.numbers("dead"), self.numbers("jobs")), ([1, 2, 3], []))
        _, body = self.ask("MOVE", "dead", target="jobs")
        self.assertEqual((body["messages"], self.numbers("jobs")), (3, [1, 2, 3]))

    def test_refused(self) -> None:
        """Status and words: what is wrong, and what would be right."""
        self.broker.aliases["work"] = "jobs"
        self.put("dead", 1)
        for name, body, status, words in (
            ("nowhere", {"target": "jobs"}, 404, "there is no queue 'nowhere'"),
            ("work", {"target": "dead"}, 404, "'work' is an alias; its node is 'jobs'"),
            ("dead", {"target": "work"}, 404, "'work' is an alias; its node is 'jobs'"),
            ("dead", {"target": "nowhere"}, 404, "target: here is no node 'nowhere'"),
            ("dead", {"target": "dead"}, 409, "the same node"),
            ("dead", {}, 400, "`target` is missing"),
            ("prices", {"target": "jobs"}, 400, "is a topic"),
            ("amqp$out/b.test", {"target": "jobs"}, 400, "amqproute reroute"),
            ("dead", {"target": "jobs", "limit": 0}, 400, "`limit` is not a number"),
            ("dead", {"target": "jobs", "limit": "x"}, 400, "`limit` is not a number"),
            ("dead", {"target": "jobs", "filter": "n = "}, 400, "filter: selector, character"),
            ("dead", {"target": "jobs", "cursor": "x"}, 400, "cursor"),
            ("dead", {"target": "jobs", "where": "n = 1"}, 400, "unknown option 'where'"),
        ):
            self.send(body, operation="MOVE", name=name)
            batch_status, words_said = self.last_words()
            self.assertEqual(batch_status, status, (name, body))
            self.assertIn(words, words_said)
        self.assertEqual(self.numbers("dead"), [1])

    def last_words(self) -> tuple[int, str]:
        """Take the reply: its status and its description."""
        self.replies.dispatch()
        (entry,) = self.taker.entries
        said = entry.message.application_properties
        self.answer()
        return int(said["statusCode"]), str(said["statusDescription"])

    def test_right(self) -> None:
        """It takes the right to manage both nodes (G-25)."""
        self.put("dead", 1)
        for allowed in ({"dead"}, {"jobs"}):
            self.may = allowed
            self.assertEqual(self.ask("MOVE", "dead", target="jobs")[0], 403)
        self.may = {"dead", "jobs"}
        self.assertEqual(self.ask("MOVE", "dead", target="jobs")[0], 200)


class BatchTests(MovingCase):
    def test_in_a_batch(self) -> None:
        """With other commands, after all of them have been found right."""
        self.put("dead", 1, 2, 3)
        text = 'create queue retry\nmove messages dead retry with filter="n < 3", limit=5'
        status, body = self.run_text(text)
        self.assertEqual((status, body["results"][1]["status"]), (200, 200))
        self.assertEqual(body["results"][1]["attributes"]["target"], "retry")
        self.run_to_the_end()
        self.assertEqual((self.numbers("retry"), self.numbers("dead")), ([1, 2], [3]))
        self.do("copy messages dead retry")
        self.run_to_the_end()
        self.assertEqual((self.numbers("retry"), self.numbers("dead")), ([1, 2, 3], [3]))

    def test_all_or_nothing(self) -> None:
        """A batch that fails moves nothing."""
        self.put("dead", 1)
        self.assertEqual(self.statuses("move messages dead jobs\ndelete queue nowhere"), [424, 404])
        self.run_to_the_end()
        self.assertEqual((self.numbers("dead"), self.numbers("jobs")), ([1], []))
        self.assertEqual(self.statuses("move messages dead nowhere"), [404])
        self.assertEqual(self.statuses("move messages dead jobs with dry-run=true"), [400])
