# SPDX-License-Identifier: Apache-2.0
"""Damage of the journal, and of its data in the store, is reported and not trusted."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from amqproute.daemon.loss_reports import look_for_losses, testimony
from amqproute.errors import StoreError
from amqproute.journal.event import RunEvent
from amqproute.journal.expected_entries import ExpectedEntries, living
from amqproute.journal.journal_outbox import read_rows
from amqproute.journal.record import RecordKind
from amqproute.journal.recovery import first_damage
from tests.journal.rig import NAMES, Desk, arrivals, copy_living, entry, gone

Rows = list[tuple[int, bytes]]


class DamagedJournalTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.desk = Desk(self.directory)
        self.desk.open()

    def logged(self) -> list[str]:
        """Return a list that grows by the lines of the log."""
        told: list[str] = []

        def observe(event: LogEvent) -> None:
            told.append(formatEvent(event))

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        return told

    def rows(self) -> Rows:
        """Return what a store carries whose entry 1 has ended before the journal knew of it."""
        outbox = self.desk.journal.outbox
        entries = [entry(1), entry(2)]
        outbox.committed([arrivals(self.desk, entries)], False)
        carried = outbox.carry([gone(self.desk, entries[:1])])
        assert carried is not None
        return [carried[:2]]

    def segment(self) -> Path:
        """Close the journal; return its segment."""
        self.desk.close()
        (path,) = self.directory.glob("2*/*.jsonl")
        return path

    def test_outbox(self) -> None:
        """Every flipped bit is noticed, and a record that was there is never another one."""
        rows = self.rows()
        sound, damaged = read_rows(rows)
        self.assertEqual(damaged, 0)
        ((number, octets),) = rows
        for at in range(len(octets)):
            for bit in (0, 3, 7):
                flipped = bytearray(octets)
                flipped[at] ^= 1 << bit
                found, damaged = read_rows([(number, bytes(flipped))])
                self.assertGreater(damaged, 0, flipped)
                for each in found:
                    self.assertIn(each, sound)
        self.assertEqual(read_rows([(1, None), (2, "text")]), ([], 2))  # type: ignore[list-item]

    def test_outbox_of_earlier_release(self) -> None:
        """A row without checksums is read."""
        rows = self.rows()
        ((number, octets),) = rows
        old = b"\n".join(re.sub(rb",\d+\]$", b"]", line) for line in octets.split(b"\n"))
        self.assertNotEqual(old, octets)
        self.assertEqual(read_rows([(number, old)]), read_rows(rows))

    def test_start(self) -> None:
        """The start says that records are damaged, counts them as lost, and continues."""
        ((number, octets),) = self.rows()
        first, rest = octets.split(b"\n", 1)
        copy = Path(self.mktemp())
        copy_living(self.directory, copy)
        self.desk.close()
        other = Desk(copy)
        logged = self.logged()
        other.open([(number, first[:40] + b"#" + first[41:] + b"\n" + rest)])
        other.note(9)
        other.written()
        other.close()
        self.assertIn("do not match their checksums", "\n".join(logged))
        gaps = [each.count for each in other.records() if each.kind == RecordKind.GAP]
        self.assertEqual(gaps, [1])

    def test_segment(self) -> None:
        """A damaged line is reported at the next start, and makes the journal no proof."""
        for number in range(1, 6):
            self.desk.note(number)
            self.desk.written()
        path = self.segment()
        self.assertIsNone(first_damage(path))
        found = living(self.directory)
        self.assertEqual((found.ids, found.is_whole), ({1, 2, 3, 4, 5}, True))
        octets = path.read_bytes()
        at = octets.index(b'"entry":[3]') + 9 if b'"entry":[3]' in octets else octets.index(b":3}")
        path.write_bytes(octets[:at] + octets[at:].replace(b"3", b"7", 1))
        self.assertIsNotNone(first_damage(path))
        self.assertFalse(living(self.directory).is_whole)
        logged = self.logged()
        again = Desk(self.directory)
        again.open()
        again.close()
        self.assertIn(f"{path} is damaged or was changed", "\n".join(logged))

    def test_torn_end(self) -> None:
        """The remains of a crash are no damage."""
        self.desk.note(1)
        self.desk.written()
        copy = Path(self.mktemp())
        copy_living(self.directory, copy)
        (path,) = copy.glob("open/*.jsonl")
        octets = path.read_bytes().rstrip(b"\0")
        path.write_bytes(octets + octets.splitlines(True)[-1][:50])
        self.assertIsNone(first_damage(path))
        self.assertEqual(living(copy).ids, {1})
        path.write_bytes(octets.splitlines(True)[0])  # the segment's own line, and nothing else
        self.assertEqual(living(copy), ExpectedEntries(stream=NAMES.stream))

    def test_losses(self) -> None:
        """Entries ended by the store's outbox are not missing; nor are non-durable ones."""
        rows = self.rows()
        self.desk.note(1, 2, 3, 4)
        transient = entry(5)
        transient.durable = False
        self.desk.journal.note(arrivals(self.desk, [transient]))
        self.desk.written()
        self.desk.close()
        found = look_for_losses(self.directory, lambda: ({2}, rows))
        self.assertEqual(list(found.ids), [3, 4])
        self.assertEqual(testimony(self.directory, {2, 3, 4}, rows).missing, ())
        self.assertFalse(testimony(self.directory, {2}, [(1, b"rot")]).is_whole)
        self.assertEqual(testimony(Path(self.mktemp()), set(), ()).missing, ())
        self.assertEqual(found.records[0].stream, NAMES.stream)

    def stock(self, node: str | None, ranges: str = "") -> None:
        facts = {} if node is None else {"node": node, "ranges": ranges}
        self.desk.journal.note(RunEvent(RecordKind.STOCK, self.desk.wall(), {**facts, "count": 0}))

    def test_two_stocks_at_once(self) -> None:
        """The end of the first is not taken for that of the second."""
        self.stock("p", "1-3")
        self.stock("q", "5 7")
        self.stock(None)
        for node, ranges in (("p", "2-3"), ("p", "2-3"), ("q", "5 7"), (None, ""), ("q", "5 7")):
            self.stock(node, ranges)
        self.stock(None)
        self.desk.note(8)
        self.desk.written()
        self.desk.close()
        self.assertEqual(living(self.directory).ids, {2, 3, 5, 7, 8})

    def test_stock_in_two_files(self) -> None:
        """Files are read back to the end of the stock before the last, no further."""
        self.stock("p", "900")
        self.stock(None)
        for node, ranges in (("p", "1-3"), ("q", "5 7"), (None, "")):
            self.desk.close()
            self.desk = Desk(self.directory)
            self.desk.open()
            self.stock(node, ranges)
        self.desk.note(8)
        self.desk.close()
        found = living(self.directory)
        self.assertEqual((found.ids, found.is_all), ({1, 2, 3, 5, 7, 8}, True))
        newest = sorted(self.directory.glob("2*/*.jsonl"))[-1]
        found = living(self.directory, newest.stat().st_size)
        self.assertEqual((found.ids, found.is_all), ({8}, True))

    def test_unreadable(self) -> None:
        """A journal that cannot be read is said to be so, in words."""
        self.desk.note(1)
        path = self.segment()
        path.unlink()
        path.mkdir()
        error = self.assertRaises(StoreError, testimony, self.directory, set(), ())
        self.assertIn("cannot be asked", str(error))
