# SPDX-License-Identifier: Apache-2.0
"""A journal restored from a copy: names of records stay unique."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

from amqproute.journal import reader, tail
from amqproute.journal.record import RecordKind
from amqproute.journal.segments import HEAD
from tests.journal.rig import NAMES, Desk, Wall, entry, gone
from tests.journal.test_journal_writer import JournalCase

HOUR_US = 3_600_000_000


def put_back(backup: Path, directory: Path) -> None:
    """Put a backup where the journal was, with all of its files as they come out of a backup: what
    they say of the time at which they were written is not what the file system says of them."""
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(backup, directory)
    head = directory / HEAD
    told = json.loads(head.read_bytes())
    told["written_us"] -= HOUR_US
    head.write_text(json.dumps(told) + "\n")


class RestoredTests(JournalCase):
    """A start on a copy."""

    def setUp(self) -> None:
        super().setUp()
        self.backup = Path(self.mktemp()) / "backup"
        self.wall = Wall()
        desk = self.opened(wall=self.wall)
        desk.note(1, 2)
        desk.close()
        shutil.copytree(self.directory, self.backup)
        self.wall.now_us += HOUR_US
        desk = self.opened(wall=self.wall)
        desk.note(3, 4, 5)
        desk.close()
        self.names = {record.event_id for record in desk.records()}
        self.assertEqual(len(self.names), 7)

    def fresh(self, desk: Desk) -> set[str]:
        """Return the names of what was written now; it closes the desk."""
        desk.note(6)
        desk.close()
        return {each.event_id for each in desk.records()} - self.there

    def start(self) -> Desk:
        self.there = {each.event_id for each in reader.records(self.directory)}
        desk = self.desk(wall=self.wall)
        self.found = desk.open()
        self.wall.now_us += HOUR_US
        return desk

    def test_old_copy(self) -> None:
        """Names of records written after the copy, and lost here, are not used again."""
        put_back(self.backup, self.directory)
        fresh = self.fresh(self.start())
        self.assertIn("copy", self.found.put_back)
        self.assertEqual(len(fresh), 2)
        self.assertEqual(fresh & self.names, set())
        verdict = self.verify()
        (note,) = verdict.notes
        self.assertRegex(note, "^the head was missing or a copy after record 3,")
        # It continues as ever from there,
        self.fresh(self.start())
        self.assertEqual(self.found.put_back, "")
        self.assertEqual(self.verify().records, verdict.records + 2)
        # and whoever puts the same copy back once more gets yet other names.
        put_back(self.backup, self.directory)
        again = self.fresh(self.start())
        self.assertEqual(again & (fresh | self.names), set())

    def test_soon_again(self) -> None:
        """A copy of a journal that was put back is one like any other, also with a clock that was
        set back meanwhile."""
        put_back(self.backup, self.directory)
        names = self.fresh(self.start())
        backup = Path(self.mktemp()) / "later"
        shutil.copytree(self.directory, backup)
        for _ in range(3):
            put_back(backup, self.directory)
            fresh = self.fresh(self.start())
            self.assertEqual(fresh & names, set())
            names |= fresh
        self.wall.now_us = 1_000_000
        put_back(backup, self.directory)
        self.assertEqual(self.fresh(self.start()) & names, set())
        self.verify()

    def test_crash_after_the_start(self) -> None:
        """A kill right after such a start, before the head says so, changes nothing of it."""
        put_back(self.backup, self.directory)
        old = (self.directory / HEAD).read_bytes()
        fresh = self.fresh(self.start())
        (self.directory / HEAD).write_bytes(old)
        self.assertEqual(self.fresh(self.start()) & (fresh | self.names), set())
        self.verify()

    def test_no_head(self) -> None:
        """Without its head nobody knows how far it went."""
        (self.directory / HEAD).unlink()
        fresh = self.fresh(self.start())
        self.assertEqual(fresh & self.names, set())
        self.assertIn("no head", self.found.put_back)
        self.assertEqual(len(self.verify().notes), 1)
        self.flushLoggedErrors()

    def test_nothing_left(self) -> None:
        """A head that came out of a backup alone is an old one too."""
        put_back(self.backup, self.directory)
        for day in self.directory.glob("2*"):
            shutil.rmtree(day)
        self.assertEqual(self.fresh(self.start()) & self.names, set())

    def test_head_of_an_earlier_release(self) -> None:
        """A head that does not say when it was written is taken as it is."""
        told = json.loads((self.directory / HEAD).read_bytes())
        del told["written_us"]
        (self.directory / HEAD).write_text(json.dumps(told))
        self.fresh(self.start())
        self.assertEqual(self.found.put_back, "")
        self.assertEqual(self.verify().last, 9)

    def test_removed_records_are_still_a_flaw(self) -> None:
        """The gap in the sequences is accepted where it was made, and nowhere else."""
        put_back(self.backup, self.directory)
        self.fresh(self.start())
        first, second = reader.segments(self.directory)
        self.assertEqual(first.parent.name, "2026-11-22")
        lines = first.read_bytes().splitlines(keepends=True)
        first.write_bytes(lines[0])
        (verdict,) = reader.verify(self.directory)
        assert verdict.flaw is not None
        self.assertEqual(verdict.flaw.segment, second)

    def test_read(self) -> None:
        """Readers of journals skip it."""
        put_back(self.backup, self.directory)
        self.fresh(self.start())
        kept, end = tail.last(self.directory, 4)
        self.assertEqual([each.entry for each in kept], [1, 2, None, 6])
        self.assertEqual(end[1], kept[-1].seq + 1)
        follower = tail.follow(self.directory, (end[0], 2), lambda _: None)
        told = [record and record.entry for record in map(next, [follower] * 5)]
        self.assertEqual(told, [1, 2, None, 6, None])


class FormerStoreTests(JournalCase):
    """The store was put back, and numbers its entries under another name since."""

    def test_what_it_had_carried(self) -> None:
        """Records that it carries are about entries under its former name."""
        first = self.opened()
        carried = first.journal.outbox.carry([gone(first, [entry(1)])])
        assert carried is not None
        first.close()
        desk = self.desk(Path(self.mktemp()) / "journal")
        names = replace(NAMES, stream="store-2")
        found = desk.open([carried[:2]], names, former="store-1")
        self.assertEqual(found.begun.ids, set())
        desk.note(9)
        desk.close()
        told = [(each.kind, each.stream, each.entry) for each in desk.records() if each.entry]
        self.assertEqual(
            told, [(RecordKind.DELIVERED, "store-1", 1), (RecordKind.RECOVERY, "store-2", 9)]
        )
