# SPDX-License-Identifier: Apache-2.0
"""Segments, crashes, full disks: writing the journal."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.journal import journal_writer, reader, segments
from amqproute.journal.event import MessageRun, RunEvent
from amqproute.journal.journal_writer import JournalTerms
from amqproute.journal.loss_counter import LossCounter
from amqproute.journal.record import GENESIS, LONGEST_RUN, RecordKind, read_line
from amqproute.journal.recovery import recover
from amqproute.journal.segments import (
    HEAD,
    JournalHead,
    JournalPosition,
    JournalSegments,
    closed,
    opened,
    read_head,
    write_head,
)
from tests.journal.rig import NAMES, Desk, Wall, arrivals, copy_living, entry, gone
from tests.support.open_files import open_files
from tests.support.power import Power

DAY_US = 86_400_000_000


class JournalCase(SynchronousTestCase):
    """A directory for a journal."""

    def setUp(self) -> None:
        self.directory = Path(self.mktemp()) / "journal"
        self.desks: list[Desk] = []

    def tearDown(self) -> None:
        for desk in self.desks:
            desk.close()

    def desk(self, directory: Path | None = None, **more: Any) -> Desk:
        desk = Desk(directory or self.directory, **more)
        self.desks.append(desk)
        return desk

    def opened(self, **more: Any) -> Desk:
        desk = self.desk(**more)
        desk.open()
        return desk

    def verify(self, directory: Path | None = None) -> reader.JournalVerdict:
        (verdict,) = reader.verify(directory or self.directory)
        self.assertIsNone(verdict.flaw, str(verdict.flaw))
        return verdict


class SegmentTests(JournalCase):
    """Positions of records."""

    def test_written_and_closed(self) -> None:
        """A journal that is closed has its records in the folder of their day, and a head."""
        desk = self.opened()
        desk.note(1, 2)
        desk.note(3)
        desk.close()
        (path,) = closed(self.directory)
        self.assertEqual(path.parent.name, "2026-11-22")
        self.assertRegex(path.name, r"^mx1\.alpha\.example-[0-9a-f]{16}-0{19}1\.jsonl$")
        self.assertEqual(opened(self.directory), [])
        for file in (path, self.directory / HEAD):
            self.assertEqual(os.stat(file).st_mode & 0o777, 0o600)
        for folder in (path.parent, self.directory, self.directory / "open"):
            self.assertEqual(os.stat(folder).st_mode & 0o777, 0o700)
        records = desk.records()
        self.assertEqual([each.seq for each in records], [1, 2, 3, 4])
        self.assertEqual([each.kind for each in records], ["segment", *["recovery"] * 3])
        self.assertEqual([each.entry for each in records], [None, 1, 2, 3])
        self.assertEqual(records[1].broker, "mx1.alpha.example")
        head = read_head(self.directory)
        assert head is not None
        self.assertEqual(head.seq, 4)
        self.assertEqual(self.verify().hash, head.hash)

    def test_closed_twice(self) -> None:
        """A second close while the thread is ending does not wait."""
        desk = self.opened()
        desk.close()
        desk.journal._threads[0] = threading.current_thread()
        self.successResultOf(desk.journal.close())

    def test_goes_on(self) -> None:
        """The next start continues where this one ended: one chain, no gap, another segment."""
        for number in range(3):
            desk = self.opened()
            desk.note(number)
            desk.close()
        self.assertEqual(len(list(closed(self.directory))), 3)
        verdict = self.verify()
        self.assertEqual((verdict.first, verdict.last, verdict.segments), (1, 6, 3))

    def test_size(self) -> None:
        """A segment that is full is closed, and the next one begins."""
        desk = self.opened(terms=JournalTerms(segment_bytes=4096))
        for number in range(50):
            desk.note(number)
            desk.written()
        self.assertGreater(len(list(closed(self.directory))), 2)
        desk.close()
        self.assertEqual(self.verify().records, len(desk.records()))
        self.assertEqual(
            [each.entry for each in desk.records() if each.entry is not None], list(range(50))
        )

    def test_age(self) -> None:
        """A segment is closed by its age, also where nothing more comes."""
        desk = self.opened(terms=JournalTerms(segment_seconds=0.05))
        desk.note(1)
        desk.until(lambda: list(closed(self.directory)))
        self.assertEqual(opened(self.directory), [])
        desk.note(2)
        desk.until(lambda: len(list(closed(self.directory))) == 2)
        self.verify()

    def test_long_runs(self) -> None:
        """More than 64 records of one event are several lines."""
        desk = self.opened()
        desk.note(*range(200))
        desk.close()
        counts = [line.count for line in reader.lines(self.directory)]
        self.assertEqual(counts, [1, 64, 64, 64, 8])
        self.verify()

    def test_large_bodies_are_read_at_once(self) -> None:
        """They wait for nobody: their digests would be the work of the commit that carries them."""
        desk = self.opened(gather_seconds=3600.0)
        desk.journal.note(arrivals(desk, [entry(1, 64 * 1024)]))
        desk.written()
        desk.journal.note(arrivals(desk, [entry(2)]))
        self.assertEqual(desk.journal.waiting, 1)
        desk.close()
        self.assertEqual([each.entry for each in desk.records()], [None, 1, 2])

    def test_encoded_events_are_counted(self) -> None:
        """An event waits until it is written, also while it becomes lines."""
        desk = self.opened()
        waiting: list[int] = []

        class Curious(RunEvent):
            def runs(self) -> Sequence[MessageRun]:
                waiting.append(desk.journal.waiting)
                return super().runs()

        desk.journal.note(Curious(RecordKind.RECOVERY, 1, {"node": "q", "entry": 1}))
        desk.written()
        desk.close()
        self.assertEqual((waiting, desk.journal.waiting), ([1], 0))

    def test_clock_goes_back(self) -> None:
        """Order is that of the sequence, whatever the wall clock says."""
        wall = Wall()
        for back in (0, 3 * DAY_US, 2 * DAY_US):
            desk = self.opened(wall=wall)
            desk.note(back)
            desk.close()
            wall.now_us -= back
        self.assertEqual([each.seq for each in desk.records()], list(range(1, 7)))
        self.assertEqual(len({path.parent for path in closed(self.directory)}), 2)
        self.verify()

    def test_age_and_size_of_what_is_kept(self) -> None:
        """Old segments go, then those that are too many; the head says from where on it is kept."""
        wall = Wall()
        for day in range(4):
            desk = self.opened(wall=wall, terms=JournalTerms(keep_seconds=0))
            desk.note(day)
            desk.close()
            wall.now_us += DAY_US
        desk = self.opened(wall=wall, terms=JournalTerms(keep_seconds=1.5 * 86400))
        desk.note(4)
        desk.close()
        self.assertEqual(
            [each.entry for each in desk.records() if each.entry is not None], [2, 3, 4]
        )
        verdict = self.verify()
        self.assertEqual(verdict.first, 5)
        self.assertIn(
            "records before 5 were removed: for their age, or the journal's size", verdict.notes
        )
        desk = self.opened(wall=wall, terms=JournalTerms(max_bytes=1))
        desk.note(5)
        desk.close()
        self.assertEqual([each.entry for each in desk.records() if each.entry is not None], [5])
        self.assertEqual(self.verify().first, 11)

    def test_clock_that_jumps(self) -> None:
        """A wall clock that is years ahead, at a start or later, removes nothing for its age."""
        wall = Wall()
        for day in range(4):
            desk = self.opened(wall=wall, terms=JournalTerms(keep_seconds=0))
            desk.note(day)
            desk.close()
            wall.now_us += DAY_US
        for number in (4, 5):
            wall.now_us += 1000 * DAY_US
            desk = self.opened(wall=wall, terms=JournalTerms(keep_seconds=90 * 86400))
            wall.now_us += 1000 * DAY_US
            desk.note(number)
            desk.written()
            desk.close()
            wall.now_us -= 2000 * DAY_US
        self.assertEqual(len([each for each in desk.records() if each.entry is not None]), 6)

    def test_size_of_what_is_kept_while_it_grows(self) -> None:
        """However fast segments follow each other, there are never more than there may be."""
        desk = self.opened(terms=JournalTerms(segment_bytes=4096, max_bytes=20_000))
        most = 0
        for number in range(300):
            desk.note(number)
            desk.written()
            most = max(most, sum(path.stat().st_size for path in closed(self.directory)))
        desk.close()
        self.assertGreater(most, 15_000)
        # One has been closed before others are removed.
        self.assertLess(most, 20_000 + 2 * 4096)
        self.assertGreater(self.verify().first, 100)

    def test_killed_while_old_segments_go(self) -> None:
        """A kill between the removal of old segments and anything else is no flaw."""
        wall = Wall()
        for number in range(3):
            desk = self.opened(wall=wall)
            desk.note(number)
            desk.close()
        seen: list[tuple[str, reader.JournalFlaw | None]] = []
        unlink = Path.unlink

        def watched(path: Path, missing_ok: bool = False) -> None:
            seen.append((path.name, reader.verify(self.directory)[0].flaw))
            unlink(path, missing_ok)
            seen.append((path.name, reader.verify(self.directory)[0].flaw))

        self.patch(Path, "unlink", watched)
        desk = self.opened(wall=wall, terms=JournalTerms(max_bytes=1))
        desk.note(3)
        desk.close()
        self.assertEqual([flaw for _, flaw in seen], [None] * 6)
        self.assertEqual(self.verify().first, 7)

    def test_others_segments_are_left_alone(self) -> None:
        """Segments of another journal that lie there too are neither counted nor removed."""
        others = []
        for first in "0f":
            day = self.directory / "2020-01-01"
            day.mkdir(parents=True, exist_ok=True)
            others.append(day / f"mx2-{first * 16}-{1:020}.jsonl")
            others[-1].write_bytes(b"x" * 4096)
        write_head(self.directory, JournalHead("7" * 16, 0, GENESIS))
        for number in range(3):
            desk = self.opened(terms=JournalTerms(max_bytes=2000))
            desk.note(number)
            desk.close()
        self.assertTrue(all(each.exists() for each in others))
        head = read_head(self.directory)
        assert head is not None
        self.assertEqual((head.journal, head.first_seq), ("7" * 16, 1))
        self.assertEqual(len(list(closed(self.directory, "7" * 16))), 3)

    def test_damaged_segment_does_not_end_it(self) -> None:
        """A segment whose first line was damaged does not keep older ones from being removed."""
        for number in range(3):
            desk = self.opened()
            desk.note(number)
            desk.close()
        last = list(closed(self.directory))[-1]
        last.write_bytes(b"no journal\n" + last.read_bytes())
        desk = self.opened(terms=JournalTerms(max_bytes=last.stat().st_size + 700))
        desk.note(3)
        desk.close()
        self.assertIn(3, [each.entry for each in desk.records()])
        (verdict,) = reader.verify(self.directory)
        assert verdict.flaw is not None
        self.assertEqual(verdict.flaw.segment, last)

    def test_removed_beginning_is_noticed(self) -> None:
        """Segments removed by others are not counted as removed by age."""
        for number in range(3):
            desk = self.opened()
            desk.note(number)
            desk.close()
        next(closed(self.directory)).unlink()
        (verdict,) = reader.verify(self.directory)
        assert verdict.flaw is not None
        self.assertEqual((verdict.flaw.first, verdict.flaw.last), (1, 2))


class CrashTests(JournalCase):
    """The state at a start."""

    def test_torn_everywhere(self) -> None:
        """Wherever the last line is torn, it is cut off, and the journal continues."""
        desk = self.opened()
        desk.note(1)
        desk.note(2)
        desk.written()
        (path,) = opened(self.directory)
        whole = path.read_bytes()
        self.assertEqual(whole.count(b"\n"), 3)
        begin = whole.rstrip(b"\n").rfind(b"\n") + 1
        for end in range(begin, len(whole) + 1):
            other = Path(self.mktemp()) / "journal"
            (other / "open").mkdir(parents=True)
            (other / "open" / path.name).write_bytes(whole[:end])
            write_head(
                other, JournalHead(desk.records()[0].journal, 0, GENESIS)
            )  # nothing was synced
            again = self.desk(other)
            again.open()
            again.note(3)
            again.close()
            left = [1, 2, 3] if end == len(whole) else [1, 3]
            self.assertEqual([each.entry for each in again.records() if each.entry], left, end)
            self.verify(other)

    def test_garbage_after(self) -> None:
        """An end that a power failure left full of zeros is cut off too."""
        desk = self.opened()
        desk.note(1)
        desk.written()
        other = self.copy(desk, b"\0" * 5000)
        self.assertEqual([each.entry for each in other.records() if each.entry], [1])
        self.verify(other.directory)

    def copy(self, desk: Desk, more: bytes = b"") -> Desk:
        """Start once more from a copy of what is there now, as after a kill."""
        directory = Path(self.mktemp()) / "journal"
        copy_living(desk.directory, directory)
        for path in opened(directory):
            with path.open("ab") as file:
                file.write(more)
        other = self.desk(directory)
        other.open()
        return other

    def test_changed_in_the_middle(self) -> None:
        """Whole lines behind one that cannot be read: that is no torn end, and nothing is cut."""
        desk = self.opened()
        for number in range(3):
            desk.note(number)
        desk.written()
        (path,) = opened(self.directory)
        octets = path.read_bytes().replace(b'"entry":1}', b'"entry":1]')
        desk.close()
        directory = Path(self.mktemp()) / "journal"
        (directory / "open").mkdir(parents=True)
        (directory / "open" / path.name).write_bytes(octets)
        shutil.copy(self.directory / HEAD, directory / HEAD)
        other = self.desk(directory)
        other.open()
        self.flushLoggedErrors()
        other.close()
        (verdict,) = reader.verify(directory)
        assert verdict.flaw is not None
        self.assertEqual((verdict.flaw.line, verdict.flaw.first), (3, 3))

    def test_outbox(self) -> None:
        """Events in the store's outbox that the journal lacks are written at the start, once."""
        desk = self.opened()
        ids = list(range(1, 6))
        entries = [entry(each, message_id=f"m{each}") for each in ids]
        outbox = desk.journal.outbox
        self.assertIsNone(outbox.carry([arrivals(desk, entries)]))
        come = arrivals(desk, entries)
        outbox.committed([come], False)
        end = gone(desk, entries[:3])
        carried = outbox.carry([end])
        assert carried is not None
        number, octets, done = carried
        self.assertEqual((number, done), (2, 0))
        # As it would be found after a power failure that took all of the journal's writes,
        lost = self.desk(Path(self.mktemp()) / "journal")
        found = lost.open([(number, octets)])
        self.assertEqual(found.restored, 8)
        self.assertEqual(found.begun.ids, set(ids))
        lost.close()
        told = [(each.kind, each.entry) for each in lost.records() if each.entry]
        self.assertEqual(
            told, [("received", each) for each in ids] + [("delivered", each) for each in ids[:3]]
        )
        self.assertEqual(lost.records()[1].message_id, "m1")
        # and by a start that finds them already in the journal.
        outbox.committed([end], True)
        desk.written()
        both = self.copy_with(desk, [(number, octets)])
        self.assertEqual([(each.kind, each.entry) for each in both.records() if each.entry], told)
        self.verify(both.directory)

    def copy_with(self, desk: Desk, rows: list[tuple[int, bytes]]) -> Desk:
        directory = Path(self.mktemp()) / "journal"
        copy_living(desk.directory, directory)
        other = self.desk(directory)
        other.open(rows)
        return other

    def test_outbox_half_written(self) -> None:
        """Of an event of several lines some may be there: only the others are added."""
        desk = self.opened()
        entries = [entry(each) for each in range(1, 151)]
        outbox = desk.journal.outbox
        outbox.committed([arrivals(desk, entries)], False)
        end = gone(desk, entries)
        carried = outbox.carry([end])
        assert carried is not None
        outbox.committed([end], True)
        desk.written()
        (path,) = opened(self.directory)
        lines = path.read_bytes().splitlines(keepends=True)
        self.assertEqual(len(lines), 7)
        wanted = [(each.kind, each.entry) for each in desk.records() if each.entry]
        self.assertEqual(len(wanted), 300)
        for there in range(8):
            directory = Path(self.mktemp()) / "journal"
            (directory / "open").mkdir(parents=True)
            (directory / "open" / path.name).write_bytes(b"".join(lines[:there]))
            write_head(directory, JournalHead(desk.records()[0].journal, 0, GENESIS))
            other = self.desk(directory)
            other.open([carried[:2]])
            other.close()
            told = [(each.kind, each.entry) for each in other.records() if each.entry]
            self.assertEqual(told, wanted, there)
            self.verify(directory)

    def test_durable_rows_may_go(self) -> None:
        """Once the journal has them on its disk, rows of the outbox are not needed."""
        desk = self.opened(terms=JournalTerms(segment_seconds=0.01))
        one, two = entry(1), entry(2)
        outbox = desk.journal.outbox
        outbox.committed([arrivals(desk, [one, two])], False)
        desk.until(lambda: list(closed(self.directory)))
        carried = outbox.carry([gone(desk, [one])])
        assert carried is not None
        number, octets, done = carried
        self.assertEqual((number, done), (2, 1))
        self.assertEqual(octets.count(b"\n"), 0, "the arrival is safe, and not carried again")

    def test_what_is_not_durable_is_not_carried(self) -> None:
        """Entries without a row cost the store nothing."""
        desk = self.opened()
        light = entry(1)
        light.durable = light.stored = False
        self.assertIsNone(desk.journal.outbox.carry([gone(desk, [light])]))

    def test_another_store(self) -> None:
        """A store that was restored has another name; what began before does not count."""
        desk = self.opened()
        desk.note(1, 2)
        desk.close()
        self.assertEqual(self.desk().open().begun.ids, {1, 2})
        self.assertEqual(self.desk().open(names=replace(NAMES, stream="store-2")).begun.ids, set())


def count_of(directory: Path) -> int:
    """Return how many records are said to be lost if nobody says so any more."""
    return LossCounter(directory).read()


class PowerTests(JournalCase):
    """The remains of a power failure, with losses not only at the end."""

    def test_head_is_whole(self) -> None:
        """No head comes to its place before its octets are on the disk: with some file systems it
        would be empty after a power failure, and the journal would seem to be put back."""
        synced: set[int] = set()
        fsync, rename = os.fsync, Path.rename

        def watched_sync(file: int) -> None:
            fsync(file)
            synced.add(os.fstat(file).st_ino)

        renamed: list[bool] = []

        def watched_rename(path: Path, target: Path) -> Path:
            if target.name == HEAD:
                renamed.append(path.stat().st_ino in synced)
                synced.clear()
            return rename(path, target)

        self.patch(os, "fsync", watched_sync)
        self.patch(Path, "rename", watched_rename)
        self.patch(journal_writer, "SYNC_SECONDS", 0.005)
        desk = self.opened()
        for number in range(3):
            desk.note(number)
            known = len(renamed)
            desk.until(lambda known=known: len(renamed) > known)
        desk.close()
        self.assertGreater(len(renamed), 4)
        self.assertEqual(set(renamed), {True})

    def lost(self, since_head: bool) -> Path:
        """Return a journal of 1 to 5, of which the line of 3 is zeros: it had not been written
        before the power failed; or, by the word of the head, it had."""
        desk = self.opened()
        desk.note(1)
        desk.written()
        for number in (2, 3, 4, 5):
            desk.note(number)
            desk.written()
        (path,) = opened(self.directory)
        lines = path.read_bytes().splitlines(keepends=True)
        second = read_line(lines[2])
        desk.close()
        directory = Path(self.mktemp()) / "journal"
        (directory / "open").mkdir(parents=True)
        lines[3] = bytes(len(lines[3]))
        (directory / "open" / path.name).write_bytes(b"".join(lines))
        seq = second.seq if since_head else second.seq + 1
        write_head(directory, JournalHead(second.body["journal"], seq, second.hash))
        return directory

    def test_hole(self) -> None:
        """Lines that were not on the disk are cut off, and are no flaw before that either."""
        directory = self.lost(since_head=True)
        self.assertIn("was not on disk", self.verify(directory).notes[0])
        desk = self.desk(directory)
        desk.open()
        desk.note(6)
        desk.close()
        self.assertEqual([each.entry for each in desk.records() if each.entry], [1, 2, 6])
        self.assertEqual(self.verify(directory).notes, [])

    def test_hole_before(self) -> None:
        """Missing lines that were on the disk by the head stay a flaw."""
        directory = self.lost(since_head=False)
        for _ in range(2):
            (verdict,) = reader.verify(directory)
            assert verdict.flaw is not None
            self.assertEqual((verdict.flaw.line, verdict.flaw.first), (4, 4))
            desk = self.desk(directory)
            desk.open()
            desk.close()
        self.flushLoggedErrors()


class SyncTests(JournalCase):
    """Lines reported as durable are there after a power failure."""

    def setUp(self) -> None:
        super().setUp()
        self.directory.parent.mkdir()
        self.power = Power(self, self.directory.parent)

    def left(self, *current: Path) -> Path:
        """Return the journal that a power failure leaves.

        Args:
            current: directories with the names that they have by now.
        """
        copy = Path(self.mktemp())
        self.power.leave(copy, lambda path: path in current)
        return copy / "journal"

    def there(self, directory: Path) -> list[int]:
        """Return the entries that the next start finds; neither before nor after is a flaw."""
        self.assertEqual([each.flaw for each in reader.verify(directory) if each.flaw], [])
        desk = self.desk(directory)
        desk.open()
        desk.note(99)
        desk.close()
        self.verify(directory)
        entries = [each.entry for each in desk.records() if each.entry is not None]
        self.assertEqual(entries.pop(), 99)
        return entries

    def test_synced(self) -> None:
        """Events released from the outbox are on the disk, in an open segment."""
        self.patch(journal_writer, "SYNC_SECONDS", 0.005)
        desk = self.opened()
        outbox = desk.journal.outbox
        for number in (1, 2, 3):
            outbox.committed([arrivals(desk, [entry(number)])], False)
            desk.until(lambda number=number: outbox._durable == number)
            self.assertEqual(len(opened(self.directory)), 1)
            self.assertEqual(self.there(self.left()), list(range(1, number + 1)))

    def test_not_synced(self) -> None:
        """Lines without a sync are lost, are not reported as durable, and are no flaw."""
        desk = self.opened(seconds=lambda: 0.0)  # it is never time for a sync
        outbox = desk.journal.outbox
        desk.note(1)
        desk.written()
        outbox.committed([arrivals(desk, [entry(2)])], False)
        desk.written()
        self.assertEqual(outbox._durable, 0)
        self.assertEqual(self.there(self.left()), [])

    def test_closed(self) -> None:
        """A segment that is closed is on the disk under its name alone, whole; so is the head."""
        desk = self.opened(seconds=lambda: 0.0)  # it is never time for a sync
        outbox = desk.journal.outbox
        outbox.committed([arrivals(desk, [entry(1), entry(2)])], False)
        desk.close()
        self.assertEqual(outbox._durable, 1)
        copy = self.left()
        ((path, other),) = zip(closed(self.directory), closed(copy), strict=True)
        self.assertEqual(path.read_bytes(), other.read_bytes())
        self.assertEqual(opened(copy), [])
        self.assertEqual((copy / HEAD).read_bytes(), (self.directory / HEAD).read_bytes())
        self.assertEqual(self.there(copy), [1, 2])

    def test_begun(self) -> None:
        """A journal that a start has made keeps its identity, before it has any record."""
        begun = recover(self.directory, NAMES.broker)
        left = recover(self.left(), NAMES.broker)
        self.assertEqual((begun.journal, begun.is_new), (left.journal, left.is_new))

    def test_mended(self) -> None:
        """Lines found by a start after a kill are on the disk before the store may forget them."""
        killed = self.opened(seconds=lambda: 0.0)
        killed.journal.outbox.committed([arrivals(killed, [entry(1), entry(2)])], False)
        killed.written()
        self.assertEqual(self.there(self.left()), [])
        desk = self.opened(seconds=lambda: 0.0)
        self.assertEqual(desk.journal.outbox._durable, 1)
        self.assertEqual(self.there(self.left()), [1, 2])

    def test_head_before_what_follows(self) -> None:
        """The head is lasting before its segment is moved, and before old segments go."""
        heads: list[tuple[str, int, int]] = []
        rename, unlink = Path.rename, Path.unlink

        def note(what: str) -> None:
            told = read_head(self.left())
            assert told is not None
            heads.append((what, told.first_seq, told.seq))

        def moved(path: Path, target: Path) -> Path:
            if target.suffix == ".jsonl":
                note("moved")
            return rename(path, target)

        def removed(path: Path, missing_ok: bool = False) -> None:
            note("removed")
            unlink(path, missing_ok)

        self.patch(Path, "rename", moved)
        self.patch(Path, "unlink", removed)
        for number in (1, 2):
            desk = self.opened(terms=JournalTerms(max_bytes=1 if number == 2 else 1 << 20))
            desk.note(number)
            desk.close()
        self.assertEqual(heads, [("moved", 1, 2), ("moved", 1, 4), ("removed", 3, 4)])

    def test_names_written_early(self) -> None:
        """Old segments are gone, which no sync has asked for; the head says so already."""
        for number in (1, 2):
            desk = self.opened(terms=JournalTerms(max_bytes=1 if number == 2 else 1 << 20))
            desk.note(number)
            desk.close()
        (path,) = closed(self.directory)
        self.assertEqual(self.there(self.left(path.parent)), [2])


class FailedWriteTests(JournalCase):
    """A segment of which the disk takes a part, or that the daemon gives up."""

    def setUp(self) -> None:
        super().setUp()
        self.directory.mkdir(parents=True)
        self.wall = Wall()

    def made(self, write: Callable[[int, memoryview], int] = os.write) -> JournalSegments:
        """Make the writer of segments."""
        names = replace(NAMES, journal="7" * 16)
        head = JournalHead(names.journal, 0, GENESIS)
        return JournalSegments(self.directory, names, JournalPosition(), head, self.wall, write)

    def lines(self, *entries: int) -> list[tuple[int, int | None, MessageRun]]:
        """Return what a segment takes."""
        told = RunEvent(RecordKind.RECOVERY, self.wall(), {"node": "q"}, {"entry": list(entries)})
        return [(0, None, run) for run in told.runs()]

    def test_cut_off(self) -> None:
        """Nothing of it stays in the file, and a shorter one after it is whole."""
        is_full = False

        def write(file: int, octets: memoryview) -> int:
            if not is_full:
                return os.write(file, octets)
            if len(octets) <= 64:
                raise OSError(errno.ENOSPC, "No space left on device")
            return os.write(file, octets[:-64])  # nearly all of it, then nothing

        made = self.made(write)
        made.append(self.lines(1))
        (path,) = opened(self.directory)
        for entries in (range(2, 60), range(2, 40)):
            before, place = path.read_bytes(), replace(made.place)
            is_full = True
            self.assertRaises(OSError, made.append, self.lines(*entries))
            self.assertEqual(path.read_bytes(), before)
            self.assertEqual((made.size, made.place), (len(before), place))
        is_full = False
        made.append(self.lines(2))
        self.assertEqual(path.stat().st_size, made.size)
        self.assertEqual(
            (open_files(self.directory), made.closed_bytes), ({str(path.resolve())}, 0)
        )
        made.close()
        self.assertEqual((open_files(self.directory), made.closed_bytes), (set(), made.size))
        self.assertEqual(self.verify().records, 3)
        found = [each.entry for each in reader.records(self.directory)]
        self.assertEqual(found, [None, 1, 2])

    def test_dropped(self) -> None:
        """A daemon that gives up leaves no file open, and the segment where it is."""
        made = self.made()
        made.append(self.lines(1))
        (path,) = opened(self.directory)
        self.assertEqual(open_files(self.directory), {str(path.resolve())})
        made.drop()
        self.assertEqual(open_files(self.directory), set())
        self.assertEqual(list(opened(self.directory)), [path])


class FullDiskTests(JournalCase):
    """A disk that takes nothing."""

    def setUp(self) -> None:
        super().setUp()
        self.is_full = False
        self.hangs = threading.Event()
        self.hangs.set()

    def write(self, file: int, octets: memoryview) -> int:
        self.hangs.wait()
        if self.is_full:
            if len(octets) > 10:
                return os.write(file, octets[:7])  # a part of it, as disks do
            raise OSError(errno.ENOSPC, "No space left on device")
        return os.write(file, octets)

    def refuse(self, file: int, octets: memoryview) -> int:
        if self.is_full:
            os.write(file, octets[:7])
            raise OSError(errno.ENOSPC, "No space left on device")
        return os.write(file, octets)

    def test_stop(self) -> None:
        """Nothing is accepted until the disk takes the journal again; and nothing is missing."""
        desk = self.opened(write=self.refuse)
        desk.note(1)
        desk.written()
        self.is_full = True
        desk.note(2)
        desk.until(lambda: desk.troubles)
        self.assertIn("No space left", desk.troubles[0])
        desk.note(3)
        self.assertEqual(desk.journal.figures.fault, "[Errno 28] No space left on device")
        self.is_full = False
        desk.until(lambda: desk.wells)
        desk.written()
        desk.close()
        self.assertEqual([each.entry for each in desk.records() if each.entry], [1, 2, 3])
        self.assertEqual(self.verify().notes, [])
        self.assertEqual(len(desk.troubles), 1)

    def test_count(self) -> None:
        """Everything continues; what finds no room in memory is counted, in the journal too."""
        terms = JournalTerms(stops=False, held_bytes=2000)
        desk = self.opened(write=self.refuse, terms=terms)
        desk.note(1)
        desk.written()
        self.is_full = True
        for number in range(2, 100):
            desk.note(number)
        desk.until(lambda: not len(desk.journal._events))
        lost = desk.journal.figures.lost
        self.assertGreater(lost, 50)
        self.is_full = False
        desk.until(lambda: not desk.journal.figures.fault)
        desk.note(100)
        desk.written()
        desk.close()
        self.assertEqual(desk.troubles, [])
        records = desk.records()
        there = [each.entry for each in records if each.entry]
        (gap,) = [each for each in records if each.kind == RecordKind.GAP]
        self.assertEqual((gap.count, len(there)), (lost, 100 - lost))
        self.assertEqual((there[0], there[-1]), (1, 100))
        self.assertIn(f"{lost} records before", self.verify().notes[0])

    def test_hangs(self) -> None:
        """A disk that stands still keeps no message in memory, and no more records than allowed."""
        desk = self.opened(write=self.write, terms=JournalTerms(held_bytes=4000))
        self.hangs.clear()
        for number in range(1, 50):
            desk.note(number)
        desk.until(lambda: desk.troubles)
        desk.until(lambda: not len(desk.journal._events))
        self.assertLessEqual(desk.journal.statistics()["waiting_bytes"], 4000)
        self.hangs.set()
        desk.until(lambda: desk.wells)
        desk.close()
        self.verify()

    def test_lag(self) -> None:
        """The age of the oldest event that is not written is known while the disk stands still."""
        seconds = [0.0]
        desk = self.opened(write=self.write, seconds=lambda: seconds[0])
        self.assertEqual(desk.journal.lag_seconds, 0.0)
        self.hangs.clear()
        desk.note(1)
        desk.until(lambda: desk.journal.statistics()["waiting_bytes"])
        seconds[0] += 40
        self.assertEqual(desk.journal.lag_seconds, 40)
        desk.note(2)
        desk.until(lambda: not len(desk.journal._events))
        seconds[0] += 2
        self.assertEqual(desk.journal.lag_seconds, 42)
        self.hangs.set()
        desk.written()
        self.assertEqual(desk.journal.lag_seconds, 0.0)
        desk.close()

    def test_lag_of_the_encoder(self) -> None:
        """Events that wait to be encoded count by their own time."""
        desk = self.opened(gather_seconds=30.0)
        desk.note(1)
        desk.wall.now_us += 7_000_000
        self.assertAlmostEqual(desk.journal.lag_seconds, 7.0, places=3)
        desk.close()
        self.assertEqual(desk.journal.lag_seconds, 0.0)

    def test_long_runs_count(self) -> None:
        """Memory is counted by what runs say of each entry too, not by their number."""
        desk = self.opened(write=self.write, terms=JournalTerms(stops=False))
        self.hangs.clear()
        columns = {"entry": [10**50 + number for number in range(LONGEST_RUN)]}
        event = RunEvent(RecordKind.RECOVERY, 1, {"node": "q" * 50}, columns)
        (run,) = event.runs()
        self.assertGreater(len(run.columns), 1000)
        desk.journal.note(event)
        desk.until(lambda: desk.journal.statistics()["waiting_bytes"])
        held = desk.journal.statistics()["waiting_bytes"]
        self.hangs.set()
        self.assertGreaterEqual(held, len(run.shared) + len(run.columns))
        desk.written()
        desk.close()
        self.verify()

    def test_full_at_the_start(self) -> None:
        """A start does not wait for room: what was carried is written when there is some."""
        first = self.opened()
        end = gone(first, [entry(1)])
        carried = first.journal.outbox.carry([end])
        assert carried is not None
        directory = Path(self.mktemp()) / "journal"
        self.is_full = True
        desk = self.desk(directory, write=self.refuse)
        self.assertEqual(desk.open([carried[:2]]).restored, 1)
        desk.until(lambda: desk.troubles)
        self.is_full = False
        desk.until(lambda: desk.wells)
        desk.close()
        self.assertEqual([each.entry for each in desk.records() if each.entry], [1])
        self.verify(directory)

    def test_stop_while_it_is_full(self) -> None:
        """The next start reports the drops of a stop, once."""
        desk = self.opened(write=self.refuse)
        desk.note(1)
        desk.written()
        self.is_full = True
        desk.note(2, 3)
        desk.note(4)
        desk.close()
        self.flushLoggedErrors()
        self.is_full = False
        for number in (5, 6):
            desk = self.opened()
            desk.note(number)
            desk.close()
        records = desk.records()
        told = [(each.kind, each.entry or each.count) for each in records]
        self.assertEqual(
            told,
            [
                *[("segment", None), ("recovery", 1)],
                *[("segment", None), ("gap", 3), ("recovery", 5)],
                *[("segment", None), ("recovery", 6)],
            ],
        )
        self.assertEqual(self.verify().notes, ["3 records before record 4 could not be written"])

    def test_killed_while_it_is_full(self) -> None:
        """So is what waited in memory, or was dropped, when the daemon was killed; not so what
        the store knows."""
        desk = self.opened(write=self.refuse)
        desk.note(1)
        desk.written()
        self.is_full = True
        desk.note(2, 3)
        desk.journal.outbox.committed([arrivals(desk, [entry(4)])], False)
        desk.until(lambda: count_of(self.directory) == 2)
        directory = Path(self.mktemp()) / "journal"
        copy_living(self.directory, directory)
        self.is_full = False
        desk.until(lambda: desk.wells)
        desk.until(lambda: not count_of(self.directory))
        desk.close()
        self.assertEqual(self.verify().notes, [])
        other = self.desk(directory)
        other.open()
        other.close()
        self.assertEqual(
            [each.count for each in other.records() if each.kind == RecordKind.GAP], [2]
        )

    def test_stop_when_there_is_room_again(self) -> None:
        """Nothing is said to be lost that was written at the very end."""
        desk = self.opened(write=self.refuse, retry_seconds=0.2)
        self.is_full = True
        desk.note(1)
        desk.until(lambda: count_of(self.directory) == 1)
        self.is_full = False
        desk.close()
        self.assertEqual([each.entry for each in desk.records() if each.entry], [1])
        self.assertEqual(count_of(self.directory), 0)

    def test_quiet_after_a_failure(self) -> None:
        """Credit comes back when the disk does, also where nobody has anything to say by then."""
        desk = self.opened(terms=JournalTerms(segment_seconds=0.02))
        failures = [OSError(errno.ENOSPC, "No space left on device")] * 2
        write = segments.write_head

        def full(directory: Path, head: JournalHead, is_lasting: bool = False) -> None:
            if failures:
                raise failures.pop()
            write(directory, head, is_lasting)

        self.patch(segments, "write_head", full)
        desk.note(1)
        desk.until(lambda: desk.troubles)
        desk.until(lambda: desk.wells)
        desk.until(lambda: list(closed(self.directory)))
        self.assertEqual(self.verify().last, 2)
        head = read_head(self.directory)
        assert head is not None
        self.assertEqual(head.seq, 2)
