# SPDX-License-Identifier: Apache-2.0
"""Transactions without a waiter share the next fsync, and lose neither place nor safety."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from amqproute.store.db_writer import FULL_HAND
from tests.store.rig import StoreFixture


class PatienceTests(SynchronousTestCase):
    """`Transaction.commit(patient=True)`."""

    def setUp(self) -> None:
        self.path = self.mktemp()
        self.house = StoreFixture(self.path)
        self.house.open()
        self.addCleanup(lambda: self.house.close())

    def commits(self) -> float:
        """Groups written so far."""
        return self.house.store.statistics()["commits"]

    def test_overtaken(self) -> None:
        """A lone message does not wait for the pages of those that have left."""
        (first,) = self.house.put("q", b"1")
        before = self.commits()
        fired: list[str] = []
        patient = self.house.store.begin()
        patient.dequeue([first])
        left = patient.commit(patient=True).addCallback(lambda _: fired.append("patient"))
        urgent = self.house.store.begin()
        urgent.enqueue("q", self.house.store.next_id(), b"2", 0, 0, 0)
        urgent.commit().addCallback(lambda _: fired.append("urgent"))
        self.house.reactor.wait(left)
        self.assertEqual(fired, ["urgent", "patient"])
        self.assertEqual(self.commits(), before + 2)

    def test_not_overtaken(self) -> None:
        """A transaction that does more than end entries keeps its place before later ones."""
        (first,) = self.house.put("q", b"1")
        fired: list[str] = []
        patient = self.house.store.begin()
        patient.dequeue([first])
        patient.note("kind", "key", b"1")
        patient.commit(patient=True).addCallback(lambda _: fired.append("patient"))
        urgent = self.house.store.begin()
        urgent.note("kind", "key", b"2")
        self.house.reactor.wait(urgent.commit().addCallback(lambda _: fired.append("urgent")))
        self.assertEqual(fired, ["patient", "urgent"])

    def test_shares_a_commit(self) -> None:
        """Many are taken along by one that is not patient, and fire before it."""
        ids = self.house.put("q", *[b"1"] * FULL_HAND)
        before = self.commits()
        fired: list[str] = []
        patient = self.house.store.begin()
        patient.dequeue(ids)
        patient.commit(patient=True).addCallback(lambda _: fired.append("patient"))
        self.assertEqual(self.commits(), before)
        urgent = self.house.store.begin()
        urgent.enqueue("q", self.house.store.next_id(), b"2", 0, 0, 0)
        self.house.reactor.wait(urgent.commit().addCallback(lambda _: fired.append("urgent")))
        self.assertEqual(fired, ["patient", "urgent"])
        self.assertEqual(self.commits(), before + 1)

    def test_alone(self) -> None:
        """Without company it is written after a moment."""
        (first,) = self.house.put("q", b"1")
        patient = self.house.store.begin()
        patient.dequeue([first])
        self.house.reactor.wait(patient.commit(patient=True))
        self.house.close()
        self.house = StoreFixture(self.path)
        self.assertEqual(self.house.open().queues, {})

    def test_a_look_comes_after_it(self) -> None:
        """A load sees what was committed before it, patiently or not."""
        (first,) = self.house.put("q", b"1")
        patient = self.house.store.begin()
        patient.dequeue([first])
        patient.commit(patient=True)
        self.assertEqual(self.house.reactor.wait(self.house.store.load("q", 0, 9, 999)), [])

    def test_closing(self) -> None:
        """Closing writes what was held back."""
        (first,) = self.house.put("q", b"1")
        patient = self.house.store.begin()
        patient.dequeue([first])
        done = patient.commit(patient=True)
        self.house.close()
        self.successResultOf(done)
        self.house = StoreFixture(self.path)
        self.assertEqual(self.house.open().queues, {})
