# SPDX-License-Identifier: Apache-2.0
"""Batches of queries: the work in one turn, and the size of the reply."""

from __future__ import annotations

from typing import Any, Final

from twisted.internet.task import Clock

from amqproute.broker.node_declaration import NodeDeclaration
from amqproute.broker.node_limits import QueueLimits
from amqproute.outcomes import Acceptance
from amqproute.services import questions
from amqproute.services.management_node import EntityType
from amqproute.services.management_rows import ManagementRows
from tests.services.test_node_changes import InventoryCase

QUEUES = 1500
"""More than a reply has rows."""
EXPENSIVE: Final = {"operation": "QUERY", "type": "queue", "attributes": {"depth": 1}}
"""It goes through all queues, and finds none."""


class QuestionCase(InventoryCase):
    """A management node of a broker with many queues, and a count of the rows that are made."""

    def setUp(self) -> None:
        super().setUp()
        limits = QueueLimits()
        self.broker.declare(
            [NodeDeclaration(f"n{number:04}", limits) for number in range(QUEUES)], {}
        )
        self.rows = 0
        make = ManagementRows._queue_row

        def counting(overview: ManagementRows, *terms: Any) -> Any:
            self.rows += 1
            return make(overview, *terms)

        self.patch(ManagementRows, "_queue_row", counting)

    def count_turns(self) -> list[int]:
        """Return a list that gets the number of rows which are made in each turn."""
        turn = questions.QuestionTurns._turn
        turns: list[int] = []

        def counting(each: questions.QuestionTurns) -> None:
            before = self.rows
            turn(each)
            turns.append(self.rows - before)

        self.patch(questions.QuestionTurns, "_turn", counting)
        return turns

    def held_clock(self) -> Clock:
        """Have turns come when this clock is advanced only."""
        clock = Clock()
        self.service._questions._clock = clock
        return clock

    def statuses_of_replies(self) -> list[int]:
        """Take all replies that there are; return the status of each."""
        self.clock.advance(0)
        self.replies.dispatch()
        entries, self.taker.entries = self.taker.entries, []
        batch = self.broker.begin()
        self.replies.settle(entries, Acceptance(), batch, self.taker)
        batch.commit()
        self.clock.advance(0)
        return [int(each.message.application_properties["statusCode"]) for each in entries]


class WorkTests(QuestionCase):
    """Work per turn."""

    def test_many_in_turns(self) -> None:
        """Questions that go through all queues take a bounded part of each turn."""
        turns = self.count_turns()
        self.send([EXPENSIVE] * 20)
        status, body = self.answer()
        self.assertEqual(status, 200)
        self.assertEqual([each["attributes"]["total"] for each in body["results"]], [0] * 20)
        self.assertEqual(self.rows, 20 * len(self.broker.nodes))
        self.assertGreater(len(turns), 20 * QUEUES // questions.TURN_UNITS)
        self.assertLessEqual(max(turns), questions.TURN_UNITS)

    def test_several_share_a_turn(self) -> None:
        """Batches take turns, and have together what one has."""
        turns = self.count_turns()
        clock = self.held_clock()
        for _ in range(5):
            self.send([EXPENSIVE] * 2)
        self.assertLessEqual(self.rows, questions.TURN_UNITS)
        clock.advance(0)
        self.assertEqual(self.statuses_of_replies(), [200] * 5)
        self.assertEqual(self.rows, 10 * len(self.broker.nodes))
        self.assertLessEqual(max(turns), questions.TURN_UNITS)

    def test_most_that_wait(self) -> None:
        """More than so many are refused at once, and those that wait get their answers."""
        clock = self.held_clock()
        for _ in range(questions.MOST_WAITING + 1):
            self.send([EXPENSIVE])
        self.assertEqual(self.statuses_of_replies(), [507])
        clock.advance(0)
        self.assertEqual(self.statuses_of_replies(), [200] * questions.MOST_WAITING)
        self.send([EXPENSIVE])
        clock.advance(0)
        self.assertEqual(self.statuses_of_replies(), [200])

    def test_most_memory_that_waits(self) -> None:
        """Few batches with much in them are too much as well."""
        self.held_clock()
        large = {**EXPENSIVE, "attributes": {"depth": 1, "name": "x" * 1_000_000}}
        for _ in range(questions.MOST_WAITING_OCTETS // 5_000_000 + 1):
            self.send([large] * 5)
        self.assertEqual(self.statuses_of_replies(), [507])

    def test_gone_meanwhile(self) -> None:
        """Rows that go between two turns are left out."""
        clock = self.held_clock()
        self.send([{"operation": "QUERY", "type": "queue", "attributes": {"depth": 0}}])
        self.broker.delete(self.broker.nodes["n1400"])
        clock.advance(0)
        self.clock.advance(0)
        _, body = self.answer()
        self.assertEqual(body["results"][0]["attributes"]["total"], len(self.broker.nodes))

    def test_only_the_rows_of_a_page(self) -> None:
        """A question about all makes no more rows than it gives; one by name makes one."""
        self.send([{"operation": "QUERY", "type": "queue"}])
        status, body = self.answer()
        attributes = body["results"][0]["attributes"]
        self.assertEqual((status, len(attributes["entities"]), self.rows), (200, 1000, 1000))
        self.assertEqual(attributes["total"], len(self.broker.nodes))
        self.rows = 0
        self.send([{"operation": "READ", "type": "queue", "name": "n0007"}])
        self.assertEqual(self.answer()[1]["results"][0]["attributes"]["name"], "n0007")
        self.assertEqual(self.rows, 1)

    def test_among_changes(self) -> None:
        """Questions beside changes are answered in one go, so they have a bound."""
        create = {"operation": "CREATE", "type": "queue", "name": "new", "attributes": {}}
        self.send([create] + [EXPENSIVE] * 999)
        status, body = self.answer()
        self.assertEqual((status, body["committed"]), (507, False))
        self.assertLess(self.rows, questions.MOST_UNITS_AMONG_CHANGES + 2)
        self.assertNotIn("new", self.broker.nodes)

    def test_fault(self) -> None:
        """A fault of ours while a question waits is answered with 500, and the others continue."""

        def broken(_: str) -> Any:
            raise RuntimeError("a fault")

        index: list[Any] = [(f"x{number}", lambda name: {"name": name}) for number in range(1000)]
        index.append(("y", broken))
        self.service.register(EntityType("odd", list, lambda host=None: index))
        clock = self.held_clock()
        self.send([{"operation": "QUERY", "type": "odd", "attributes": {"a": 1}}])
        self.send([EXPENSIVE])
        clock.advance(0)
        self.assertEqual(self.statuses_of_replies(), [500, 200])
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)


class SizeTests(QuestionCase):
    """Octets of a reply."""

    def test_bounded(self) -> None:
        """A thousand questions for everything: those without room say so, each by itself."""
        self.send([{"operation": "QUERY", "type": "queue"}] * 1000)
        self.replies.dispatch()
        (entry,) = self.taker.entries
        self.assertLess(len(entry.message.encoded), 2 * questions.MOST_OCTETS)
        status, body = self.answer()
        statuses = [each["status"] for each in body["results"]]
        self.assertEqual((status, len(statuses), statuses[0]), (507, 1000, 200))
        self.assertEqual(set(statuses[-5:]), {507})
        self.assertIn("in a message of its own", body["results"][-1]["description"])

    def test_among_changes(self) -> None:
        """Beside changes the batch falls, all of it."""
        create = {"operation": "CREATE", "type": "queue", "name": "new", "attributes": {}}
        questions_ = [{"operation": "QUERY", "type": "queue"}] * 3
        self.send([create, *questions_])
        status, body = self.answer()
        self.assertEqual((status, body["committed"]), (507, False))
        self.assertNotIn("new", self.broker.nodes)
