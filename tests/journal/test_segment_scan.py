# SPDX-License-Identifier: Apache-2.0
"""A start reads each segment of the journal once, decodes almost none of it, and detects damage."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from amqproute.journal import record, recovery
from amqproute.journal.journal_writer import JournalTerms
from amqproute.journal.record import GENESIS, RecordKind, chained, read_line, tail
from amqproute.journal.recovery import HORIZON_IDS, JournalStart, first_damage
from amqproute.journal.segment_scan import scan
from amqproute.journal.segments import SUFFIX
from tests.journal.rig import NAMES, Desk, arrivals, copy_living, entry, gone

LINES = 3000


class WorkTests(SynchronousTestCase):
    """The work of a start."""

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.desk = Desk(self.directory)
        self.desk.open()

    def killed(self) -> Path:
        """Return the journal as a kill leaves it."""
        self.desk.written()
        copy = Path(self.mktemp())
        copy_living(self.directory, copy)
        self.desk.close()
        return copy

    def started(self, directory: Path) -> tuple[set[int], Counter[str], int]:
        """Start; return which entries the journal knows, how often each segment was opened for
        reading, and how many lines were decoded."""
        opened: Counter[str] = Counter()
        decoded = 0
        open_path, loads = Path.open, json.loads

        def watched(path: Path, mode: str = "r", *more: Any, **options: Any) -> Any:
            if mode == "rb" and path.suffix == SUFFIX:
                opened[path.name.rpartition("-")[2]] += 1
            return open_path(path, mode, *more, **options)

        def counted(octets: Any, **options: Any) -> Any:
            nonlocal decoded
            decoded += 1
            return loads(octets, **options)

        desk = Desk(directory)
        with patch.object(Path, "open", watched), patch.object(record.json, "loads", counted):
            found = desk.open()
        desk.close()
        return found.begun.ids, opened, decoded

    def test_after_a_kill(self) -> None:
        """Each segment is read once, and its first line alone is decoded."""
        for number in range(1, LINES + 1):
            self.desk.journal.note(arrivals(self.desk, [entry(number)]))
        self.desk.written()
        ids, opened, decoded = self.started(self.killed())
        self.assertEqual(ids, set(range(1, LINES + 1)))
        self.assertEqual(list(opened.values()), [1])
        self.assertLess(decoded, 10)  # heads too

    def test_closed_segments(self) -> None:
        """Those before it are read once too, and only as far back as ids may be out of order."""
        for first in (1, HORIZON_IDS + 1, 2 * HORIZON_IDS + 1, 3 * HORIZON_IDS + 1):
            self.desk.note(first, first + 1)
            self.desk.close()
            self.desk = Desk(self.directory)
            self.desk.open()
        self.desk.note(3 * HORIZON_IDS + 9)
        ids, opened, decoded = self.started(self.killed())
        self.assertEqual(len(ids & {3 * HORIZON_IDS + 1, 3 * HORIZON_IDS + 9}), 2)
        self.assertNotIn(1, ids)
        self.assertEqual(set(opened.values()), {1})
        self.assertLess(len(opened), 5)
        self.assertLess(decoded, 10 + 2 * len(opened))

    def test_half_of_an_event(self) -> None:
        """An event that is cut off, since the store has carried it, is not known from its half."""
        self.desk.note(900)
        self.desk.written()
        many = [entry(number) for number in range(1, 101)]
        outbox = self.desk.journal.outbox
        carried = outbox.carry([event := arrivals(self.desk, many), gone(self.desk, [entry(900)])])
        assert carried is not None
        outbox.committed([event], False)
        copy = self.killed()
        (path,) = copy.glob("open/*.jsonl")
        lines = path.read_bytes().splitlines(keepends=True)
        self.assertEqual(len(lines), 4)
        path.write_bytes(b"".join(lines[:3]))
        found = scan(path)
        assert found.last is not None
        self.assertEqual((found.last.number, found.last.lines), (outbox._last, 1))
        found.cut(found.last.start)
        self.assertEqual(found.begun(NAMES.stream), {900})
        self.assertEqual(found.end.seq, 3)
        desk = Desk(copy)
        opened = desk.open([carried[:2]])
        desk.close()
        self.assertEqual(opened.restored, 101)
        self.assertEqual([each.entry for each in desk.records() if each.entry == 5], [5])


class LookBackTests(SynchronousTestCase):
    """From which entry on the journal's silence means that it does not know one."""

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())

    def begun(self, *ids: int, **more: Any) -> JournalStart:
        """Start, note the beginning of these, and stop; return what the start knew."""
        desk = Desk(self.directory, **more)
        found = desk.open()
        desk.note(*ids)
        desk.close()
        return found.begun

    def test_all(self) -> None:
        """After a complete scan this holds for every entry."""
        self.begun(5, 7)
        self.begun(8)
        self.assertEqual(self.begun(9), JournalStart({5, 7, 8}, 0))

    def test_order(self) -> None:
        """No entry began earlier than one whose id is less by more than the horizon."""
        for first in (1, HORIZON_IDS, 2 * HORIZON_IDS + 1):
            self.begun(first, first + 2)
        found = self.begun(3 * HORIZON_IDS)
        self.assertEqual(found.above, HORIZON_IDS + 3)
        self.assertEqual(found.ids & {1, 3, 2 * HORIZON_IDS + 3}, {2 * HORIZON_IDS + 3})

    def test_octets(self) -> None:
        """Nor is more read than so many octets, as long as that says of any entry."""
        self.begun(5)
        self.begun(7, 9)
        self.begun()
        with patch.object(recovery, "LOOK_BACK_BYTES", 1):
            self.assertEqual(self.begun(), JournalStart({7, 9}, 7))

    def test_removed(self) -> None:
        """Entries that began in segments removed for their age are not said to be unknown."""
        self.begun(5)
        self.begun(7, 9, terms=JournalTerms(max_bytes=1))
        self.assertEqual(len(list(self.directory.glob("2*/*.jsonl"))), 1)
        self.assertEqual(self.begun(), JournalStart({7, 9}, 7))


class ScanTests(SynchronousTestCase):
    """It reads what decoding each line would read."""

    def segment(self, *bodies: tuple[RecordKind, dict[str, Any], dict[str, Any], int]) -> Path:
        """Write a segment with lines of these kinds; return its file."""
        path = Path(self.mktemp()) / "open" / f"{'0' * 16}-{1:020}{SUFFIX}"
        path.parent.mkdir(parents=True)
        previous, seq, octets = GENESIS, 1, b""
        begin = (RecordKind.SEGMENT, {"previous": GENESIS}, {}, 1)
        for kind, shared, columns, count in (begin, *bodies):
            text = tail(
                kind, "0" * 16, 'a"b\\', "", NAMES.stream, seq, count, 5 + seq, shared, columns
            )
            previous, line = chained(previous, text)
            octets += line
            seq += count
        path.write_bytes(octets)
        return path

    def test_entries(self) -> None:
        """Alone, in runs, with names that look like entries, and with those that nobody knows."""
        evil = '"entry":[666],"entry":7'
        path = self.segment(
            (RecordKind.RECEIVED, {"entry": 1, "words": evil}, {}, 1),
            (RecordKind.RECEIVED, {"words": evil}, {"to": [evil, evil], "entry": [2, 3]}, 2),
            (RecordKind.RECEIVED, {}, {"entry": [4, None]}, 2),
            (RecordKind.RECEIVED, {"words": evil}, {}, 1),
            (RecordKind.RELAYED, {}, {"entry": [99]}, 1),
        )
        found = scan(path)
        self.assertEqual(found.begun(NAMES.stream), {1, 2, 3, 4})
        self.assertEqual(found.begun("another"), set())
        self.assertEqual((found.end.seq, found.lines, found.damage), (9, 6, None))
        self.assertEqual(found.end.octets, path.stat().st_size)
        self.assertEqual(found.end.hash, read_line(path.read_bytes().splitlines()[-1]).hash)

    def test_other_spelling(self) -> None:
        """A line with blanks is the journal's all the same."""
        path = self.segment((RecordKind.RECEIVED, {}, {"entry": [1]}, 1))
        first, second = path.read_bytes().splitlines()
        body = {name: value for name, value in json.loads(second).items() if name != "h"}
        text = json.dumps(body)[1:].encode()
        _, line = chained(read_line(first).hash, text)
        path.write_bytes(first + b"\n" + line)
        self.assertEqual(scan(path).begun(NAMES.stream), {1})
        self.assertIsNone(first_damage(path))

    def test_any_flipped_bit(self) -> None:
        """It is noticed, and nothing that stands behind it counts."""
        runs = [(RecordKind.RECEIVED, {"node": "q"}, {"entry": [each]}, 1) for each in range(1, 9)]
        path = self.segment(*runs)
        octets = path.read_bytes()
        closed = path.parent.parent / "2026-01-01"
        closed.mkdir()
        path = path.rename(closed / f"a-{path.name}")
        starts = [0]
        for line in octets.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        chance = random.Random(5)
        places = [*range(0, len(octets), 7), len(octets) - 1]
        for at in places:
            flipped = bytearray(octets)
            flipped[at] ^= 1 << chance.randrange(8)
            path.write_bytes(flipped)
            (hurt,) = [low for low, high in pairwise(starts) if low <= at < high]
            damage = first_damage(path)
            assert damage is not None, at
            self.assertIn(damage, (hurt, *starts[starts.index(hurt) + 1 :][:1]))
            index = starts.index(hurt)
            self.assertLessEqual(scan(path).begun(NAMES.stream), set(range(1, index + 1)))
