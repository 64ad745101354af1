# SPDX-License-Identifier: Apache-2.0
"""The publish gate closes for lack of room, and opens again."""

from __future__ import annotations

import itertools
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.publish_gate import (
    DAMAGE,
    DISK,
    JOURNAL,
    MAX_BYTES,
    MEMORY,
    STORE,
    HeldMemory,
)
from amqproute.errors import StoreError
from amqproute.services.watermarks import OUTGOING, DiskTerms, MemoryUse, Watermarks, octets
from amqproute.store.model import StoreRoom
from tests.support.fakes import KeptStore, make_broker, node

GIB = 1 << 30
MIB = 1 << 20


class Disk:
    """A store that says what it is told to say."""

    def __init__(self) -> None:
        self.room_now: Any = StoreRoom(free=50 * GIB, total=100 * GIB, reusable=0, used=0)
        self.asked = 0
        self.quarantined = 3

    def room(self) -> Deferred[Any]:
        self.asked += 1
        if isinstance(self.room_now, Deferred):
            return self.room_now
        if isinstance(self.room_now, Exception):
            return fail(self.room_now)
        return succeed(self.room_now)


class WatermarkTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.broker = make_broker(self.clock, KeptStore(self.clock), node("q"))
        self.disk = Disk()
        self.gate = self.broker.gate
        self.memory = HeldMemory(self.gate, 1000)
        self.partial = 0
        self.marks = Watermarks(
            self.broker,
            self.disk,
            self.clock,
            "/var/lib/amqproute",
            DiskTerms(),
            MemoryUse(self.memory, lambda: self.partial),
        )
        self.marks.start()
        self.addCleanup(self.marks.stop)

    def see(self, free: int, reusable: int = 0, used: int = 0, is_short: bool = False) -> str:
        """Let the disk be like this for a while; return why the gate is closed."""
        self.disk.room_now = StoreRoom(free, 100 * GIB, reusable, used, is_short)
        self.clock.pump([0.2] * 6)
        return " ".join(sorted(self.gate.reasons))

    def test_floors(self) -> None:
        """The usual floor is a gibibyte or a twentieth; or as the operator says."""
        self.assertEqual(DiskTerms().floor(1000 * GIB), GIB)
        self.assertEqual(DiskTerms().floor(10 * GIB), GIB // 2)
        self.assertEqual(DiskTerms(min_free=0).floor(10 * GIB), 0)
        self.assertEqual(DiskTerms(min_free_percent=10).floor(100 * GIB), 10 * GIB)

    def test_hysteresis(self) -> None:
        """It closes below the floor and opens a tenth above it."""
        self.assertEqual(self.see(GIB), "")
        self.assertEqual(self.see(GIB - 1), DISK)
        self.assertEqual(self.see(GIB + 90 * MIB), DISK)
        self.assertEqual(self.see(GIB + 103 * MIB), "")
        self.assertEqual(self.gate.closed, 1)

    def test_room_within(self) -> None:
        """Free pages of the database count, but never for more than half of the floor."""
        self.assertEqual(self.see(GIB // 2, reusable=10 * GIB), "")
        self.assertEqual(self.see(GIB // 2 - MIB, reusable=10 * GIB), DISK)
        self.assertEqual(self.see(600 * MIB, reusable=10 * GIB), "")
        self.assertEqual(self.see(700 * MIB, reusable=MIB), DISK)

    def test_short(self) -> None:
        """As long as the database may not grow, the floor does not matter."""
        self.marks.terms = DiskTerms(min_free=0)
        self.assertEqual(self.see(MIB), "")
        self.assertEqual(self.see(MIB, is_short=True), DISK)
        self.assertEqual(self.see(100 * MIB), "")

    def test_max_bytes(self) -> None:
        """The store's own bound, with a tenth between closing and opening."""
        self.marks.terms = DiskTerms(max_bytes=100 * MIB)
        self.assertEqual(self.see(50 * GIB, used=100 * MIB), "")
        self.assertEqual(self.see(50 * GIB, used=101 * MIB), MAX_BYTES)
        self.assertEqual(self.see(50 * GIB, used=91 * MIB), MAX_BYTES)
        self.assertEqual(self.see(50 * GIB, used=90 * MIB), "")

    def test_spare(self) -> None:
        """Room for files: down to the floor, up to the store's own bound."""
        self.see(3 * GIB)
        self.assertEqual(self.marks.spare, 2 * GIB)
        self.marks.terms = DiskTerms(max_bytes=GIB)
        self.see(3 * GIB, used=GIB - MIB)
        self.assertEqual(self.marks.spare, MIB)
        self.see(GIB - MIB)
        self.assertEqual(self.marks.spare, 0)

    def test_reload(self) -> None:
        """New terms count from the next look on."""
        self.assertEqual(self.see(2 * GIB), "")
        self.marks.terms = DiskTerms(min_free=3 * GIB)
        self.assertEqual(self.see(2 * GIB), DISK)
        self.marks.terms = DiskTerms(min_free=GIB)
        self.assertEqual(self.see(2 * GIB), "")

    def test_failed_writes(self) -> None:
        """After a failure it is tried again: after one second, then after more and more."""
        tried: list[float] = []

        def changed() -> None:
            if self.gate.is_open:
                tried.append(round(self.clock.seconds()))
                self.gate.close(STORE, "still")

        self.gate.watch(changed)
        self.gate.close(STORE, "no room")
        self.clock.pump([1.0] * 120)
        waits = [later - sooner for sooner, later in itertools.pairwise(tried)]
        self.assertEqual(waits, sorted(waits))
        self.assertGreater(len(waits), 4)
        self.assertLessEqual(max(waits), 33)

    def test_damage(self) -> None:
        """Of a database that has proved damaged no commit that gets through is a proof."""
        self.gate.close(STORE, "no room")
        self.gate.close(DAMAGE, "the database is damaged")
        self.clock.pump([1.0] * 120)
        self.assertEqual(list(self.gate.reasons), [DAMAGE])
        self.assertFalse(self.gate.is_open)

    def test_tried_at_once_where_room_was_made(self) -> None:
        """Twice the room that a failure had, and nobody waits for the next try; once for each."""
        opened: list[float] = []

        def changed() -> None:
            if self.gate.is_open:
                opened.append(self.clock.seconds())
                self.gate.close(STORE, "still")

        self.marks.terms = DiskTerms(min_free=0)
        self.gate.watch(changed)
        self.see(MIB)
        self.gate.close(STORE, "no room")
        self.clock.pump([1.0] * 50)  # the next try is more than ten seconds away
        while self.clock.seconds() - opened[-1] > 1:
            self.clock.advance(1)
        self.clock.pump([1.0] * 2)
        before, at = len(opened), self.clock.seconds()
        self.see(2 * MIB)
        self.clock.pump([1.0] * 5)
        self.assertEqual(len(opened), before)
        self.see(4 * MIB)
        self.clock.advance(1)
        self.assertEqual(len(opened), before + 1)
        self.assertLess(opened[-1] - at, 10)
        self.clock.pump([1.0] * 5)  # there is no more than at that failure
        self.assertEqual(len(opened), before + 1)
        self.see(50 * MIB)
        self.clock.advance(1)
        self.assertEqual(len(opened), before + 2)

    def test_memory(self) -> None:
        """Messages on their way close the gate above the limit; three quarters of it open it."""
        self.memory.hold(1000)
        self.assertTrue(self.gate.is_open)
        self.memory.hold(1)
        self.assertEqual(list(self.gate.reasons), [MEMORY])
        self.memory.release(250)
        self.assertFalse(self.gate.is_open)
        self.memory.release(1)
        self.assertTrue(self.gate.is_open)

    def test_sampled_memory(self) -> None:
        """Unfinished deliveries are found by looking."""
        self.partial = 2000
        self.clock.advance(1)
        self.assertEqual(list(self.gate.reasons), [MEMORY])
        self.partial = 751
        self.clock.advance(1)
        self.assertEqual(list(self.gate.reasons), [MEMORY])
        self.partial = 0
        self.clock.advance(1)
        self.assertTrue(self.gate.is_open)

    def test_disk_hangs(self) -> None:
        """While an answer is out nobody asks again; a store that fails is asked again."""
        waiting: Deferred[Any] = Deferred()
        self.disk.room_now = waiting
        self.clock.pump([1.0] * 5)
        asked = self.disk.asked
        self.clock.pump([1.0] * 5)
        self.assertEqual(self.disk.asked, asked)
        self.disk.room_now = StoreError("closed")
        waiting.callback(StoreRoom(GIB, GIB, 0, 0))
        self.clock.pump([1.0] * 5)
        self.assertGreater(self.disk.asked, asked + 2)

    def test_rows(self) -> None:
        """Operators see level, limit and state of each."""
        self.see(GIB - 1)
        rows = {row["name"]: row for row in self.marks.rows()}
        self.assertEqual(rows["store"]["quarantined"], 3)
        self.assertEqual(list(rows), [DISK, MAX_BYTES, MEMORY, STORE, JOURNAL, DAMAGE, OUTGOING])
        self.assertEqual(rows[DISK]["state"], "closed")
        self.assertEqual((rows[DISK]["level"], rows[DISK]["limit"]), (GIB - 1, GIB))
        self.assertIn("store.min-free", rows[DISK]["reason"])
        self.assertEqual({rows[name]["state"] for name in (MAX_BYTES, MEMORY, STORE)}, {"open"})
        self.assertIn("no credit for publishers", self.marks.status())

    def test_octets(self) -> None:
        """Sizes are told for reading."""
        self.assertEqual([octets(1), octets(1536), octets(GIB)], ["1 bytes", "1.5 KiB", "1 GiB"])
        self.assertEqual(octets(5000 * GIB), "4.883 TiB")
