# SPDX-License-Identifier: Apache-2.0
"""Reading journals: changes, histories of messages, new records."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from amqproute.journal import reader, segments, tail
from amqproute.journal.event import RunEvent
from amqproute.journal.journal_writer import JournalTerms
from amqproute.journal.record import RecordKind, link
from amqproute.journal.segments import HEAD, closed
from amqproute.values import Origin
from tests.journal.rig import ANN, Desk, arrivals, entry, gone
from tests.journal.test_journal_writer import JournalCase


class VerifyTests(JournalCase):
    """The first record that is not what it was."""

    def setUp(self) -> None:
        super().setUp()
        for number in range(3):
            desk = self.opened()
            for each in range(3):
                desk.note(10 * number + each)
                desk.written()
            desk.close()
        # Segments of records 1-4, 5-8 and 9-12, the first line of each being the segment's own.
        self.verify()

    def changed(self, change: Callable[[list[Path]], object]) -> reader.JournalFlaw:
        directory = Path(self.mktemp()) / "journal"
        shutil.copytree(self.directory, directory)
        change(list(closed(directory)))
        (verdict,) = reader.verify(directory)
        assert verdict.flaw is not None
        return verdict.flaw

    @staticmethod
    def edit(path: Path, edit: Callable[[list[bytes]], object]) -> None:
        lines = path.read_bytes().splitlines(keepends=True)
        edit(lines)
        path.write_bytes(b"".join(lines))

    def test_changed(self) -> None:
        """A record that says something else."""

        def change(lines: list[bytes]) -> None:
            lines[1] = lines[1].replace(b'"entry":10', b'"entry":99')

        flaw = self.changed(lambda paths: self.edit(paths[1], change))
        assert flaw.segment is not None
        self.assertEqual((flaw.line, flaw.first, flaw.last), (2, 6, 6))
        self.assertIn("changed", flaw.words)

    def test_no_head(self) -> None:
        """Without a head that can be read nobody knows where the journal ends, and that is said."""
        head = self.directory / HEAD
        head.write_text("{}")
        self.assertIn("the head cannot be read: the last", " ".join(self.verify().notes))
        head.unlink()
        self.assertIn("there is no head: the last records may", " ".join(self.verify().notes))

    def test_removed_for_its_age_meanwhile(self) -> None:
        """Segments removed by the daemon during a read are no flaw, some of them or all."""
        open_segment = reader.open_segment
        for kept in (2, 1):
            paths = list(closed(self.directory))
            most = sum(path.stat().st_size for path in paths[-kept:]) + 100 if kept > 1 else 1

            def opened(path: Path, directory: Path, most: int = most) -> object:
                file = open_segment(path, directory)
                self.patch(reader, "open_segment", open_segment)
                desk = self.opened(terms=JournalTerms(max_bytes=most))
                desk.note(100)
                desk.close()
                return file

            self.patch(reader, "open_segment", opened)
            (verdict,) = reader.verify(self.directory)
            self.assertIsNone(verdict.flaw, str(verdict.flaw))
            self.assertEqual(len(list(closed(self.directory))), kept)
            self.verify()

    def test_written_anew(self) -> None:
        """A record that was changed together with its hash shows at the next one."""

        def forge(lines: list[bytes]) -> None:
            text = lines[1].replace(b'"entry":10', b'"entry":99').rstrip(b"\n")
            previous = lines[0][6:70].decode()
            lines[1] = b'{"h":"%s",%s\n' % (link(previous, text[72:]).encode(), text[72:])

        flaw = self.changed(lambda paths: self.edit(paths[1], forge))
        self.assertEqual((flaw.line, flaw.first), (3, 7))

    def test_removed(self) -> None:
        """A record, a segment, the end."""
        flaw = self.changed(lambda paths: self.edit(paths[1], lambda lines: lines.pop(2)))
        self.assertEqual((flaw.line, flaw.first, flaw.last), (3, 7, 7))
        flaw = self.changed(lambda paths: paths[1].unlink())
        self.assertEqual((flaw.line, flaw.first, flaw.last), (1, 5, 8))
        flaw = self.changed(lambda paths: self.edit(paths[2], lambda lines: lines.pop()))
        self.assertEqual((flaw.segment, flaw.first, flaw.last), (None, 12, 12))
        flaw = self.changed(lambda paths: paths[2].unlink())
        self.assertEqual((flaw.segment, flaw.first, flaw.last), (None, 9, 12))
        flaw = self.changed(lambda paths: [path.unlink() for path in paths])
        self.assertEqual((flaw.segment, flaw.first, flaw.last), (None, 1, 12))

    def test_reordered(self) -> None:
        """Two records that changed places."""

        def swap(lines: list[bytes]) -> None:
            lines[1], lines[2] = lines[2], lines[1]

        flaw = self.changed(lambda paths: self.edit(paths[0], swap))
        self.assertEqual((flaw.line, flaw.first), (2, 2))

    def test_unreadable(self) -> None:
        """A line that is none."""
        flaw = self.changed(
            lambda paths: self.edit(paths[1], lambda lines: lines.insert(2, b"?\n"))
        )
        self.assertEqual((flaw.line, flaw.first), (3, 7))

    def test_without_head(self) -> None:
        """Without a head nobody can say whether beginning and end are there: that is said."""
        (self.directory / HEAD).unlink()
        (verdict,) = reader.verify(self.directory)
        self.assertIsNone(verdict.flaw)
        notes = " ".join(verdict.notes)
        self.assertIn("there is no head: the last records may", notes)
        self.assertNotIn("records before", notes)
        next(closed(self.directory)).unlink()
        (verdict,) = reader.verify(self.directory)
        self.assertIsNone(verdict.flaw)
        self.assertIn("no head: records before 5 may be missing", " ".join(verdict.notes))

    def test_segment_without_its_previous(self) -> None:
        """The first line there, of a segment that does not name the hash before it, is a flaw."""
        previous = re.compile(rb'"previous":"[0-9a-f]{64}"')
        for said in (b'"previous":5', b'"previous":null', b'"before":"x"'):
            (self.directory / HEAD).unlink(missing_ok=True)
            with self.subTest(said=said):

                def first(paths: list[Path], said: bytes = said) -> None:
                    paths[0].unlink()
                    octets, count = previous.subn(said, paths[1].read_bytes())
                    self.assertEqual(count, 1)
                    paths[1].write_bytes(octets)

                flaw = self.changed(first)
                self.assertEqual((flaw.line, flaw.first, flaw.last), (1, 5, 5))
                self.assertIn("changed", flaw.words)

    @settings(max_examples=60, deadline=None)
    @given(st.data())
    def test_any_octet(self, data: st.DataObject) -> None:
        """A change of any octet is noticed."""
        paths = list(closed(self.directory))
        path = data.draw(st.sampled_from(paths))
        octets = path.read_bytes()
        place = data.draw(st.integers(0, len(octets) - 1))
        other = data.draw(st.integers(0, 255).filter(lambda each: each != octets[place]))
        try:
            path.write_bytes(octets[:place] + bytes([other]) + octets[place + 1 :])
            (verdict,) = reader.verify(self.directory)
            self.assertTrue(verdict.flaw is not None or "torn" in "".join(verdict.notes), verdict)
        finally:
            path.write_bytes(octets)


class FindTests(JournalCase):
    """The story of a message."""

    def test_story(self) -> None:
        """Its own records, its copies', and why it had to wait; nobody else's."""
        desk = self.opened(terms=JournalTerms(segment_bytes=4096))
        one, other, copy = entry(1, message_id="a"), entry(2, message_id="b"), entry(3)
        desk.journal.outbox.committed([arrivals(desk, [one, other])], False)
        copies = arrivals(desk, [copy], Origin(ANN, event="routed", parent=1))
        end = gone(desk, [one], RecordKind.DEAD_LETTERED)
        desk.journal.outbox.committed([copies, end], False)
        desk.journal.outbox.committed([gone(desk, [other, copy])], False)
        desk.close()
        story = [
            (RecordKind.RECEIVED, 1),
            (RecordKind.ROUTED, 3),
            (RecordKind.DEAD_LETTERED, 1),
            (RecordKind.DELIVERED, 3),
        ]
        for asked in ({"message_id": "a"}, {"entry": 1}):
            found = reader.find(desk.directory, **asked)
            self.assertEqual([(each.kind, each.entry) for each in found], story, asked)
        digest = story and reader.find(desk.directory, message_id="b")[0].digest
        found = reader.find(desk.directory, digest=digest)
        self.assertEqual(
            [(each.kind, each.entry) for each in found],
            [(RecordKind.RECEIVED, 2), (RecordKind.DELIVERED, 2)],
        )
        self.assertEqual(reader.find(desk.directory, message_id="c"), [])

    def test_wait_of_others(self) -> None:
        """A destination that defers belongs to the story only while the message waits there."""
        desk = self.opened()
        outbox = desk.journal.outbox

        def defer() -> None:
            desk.journal.note(RunEvent(RecordKind.DEFERRED, desk.wall(), {"node": "q", "count": 1}))

        one, other = entry(1, message_id="a"), entry(2, message_id="b")
        outbox.committed([arrivals(desk, [other])], False)
        defer()
        outbox.committed([arrivals(desk, [one])], False)
        defer()
        defer()
        outbox.committed([gone(desk, [one], RecordKind.RELAYED)], False)
        defer()
        desk.close()
        kinds = [each.kind for each in reader.find(desk.directory, message_id="a")]
        self.assertEqual(
            kinds,
            [RecordKind.RECEIVED, RecordKind.DEFERRED, RecordKind.DEFERRED, RecordKind.RELAYED],
        )
        kinds = [each.kind for each in reader.find(desk.directory, message_id="b")]
        self.assertEqual(kinds, [RecordKind.RECEIVED, *[RecordKind.DEFERRED] * 4])


class FollowTests(JournalCase):
    """New records, over segments that are closed meanwhile."""

    def test_follow(self) -> None:
        """Everything once, in order."""
        desk = self.opened(terms=JournalTerms(segment_bytes=1024))
        desk.note(*range(5))
        desk.written()
        before, end = tail.last(desk.directory, 2)
        self.assertEqual([each.entry for each in before], [3, 4])
        slept: list[float] = []
        coming = tail.follow(desk.directory, end, slept.append)
        self.assertIsNone(next(coming))
        for start in range(5, 65, 6):
            desk.note(*range(start, start + 6))
            desk.written()
        self.assertGreater(len(list(closed(desk.directory))), 1)
        records = (each for each in coming if each is not None and each.entry is not None)
        self.assertEqual([each.entry for each in islice(records, 60)], list(range(5, 65)))
        desk.note(65)
        desk.written()
        self.assertEqual(next(records).entry, 65)

    def test_reads_what_is_new(self) -> None:
        """A look costs what has come, however much there is; and none costs a list of segments,
        unless one was begun or closed."""
        desk = self.opened(terms=JournalTerms(segment_seconds=3600))
        for number in range(300):
            desk.note(number)
        desk.written()
        _, end = tail.last(desk.directory, 1)
        octets: list[int] = []
        lists: list[Path] = []
        pread, listed = os.pread, tail.segments

        def watched(file: int, size: int, at: int) -> bytes:
            got = pread(file, size, at)
            octets.append(len(got))
            return got

        def watched_list(directory: Path) -> list[Path]:
            lists.append(directory)
            return listed(directory)

        self.patch(os, "pread", watched)
        self.patch(tail, "segments", watched_list)
        coming = tail.follow(desk.directory, end, lambda _: None)
        self.assertIsNone(next(coming))
        octets.clear()
        lists.clear()
        before = desk.journal.figures.bytes
        for number in range(20):
            desk.note(number)
            desk.written()
            told = next(each for each in coming if each is not None)
            self.assertEqual(told.entry, number)
            self.assertEqual(list(islice(coming, 3)), [None] * 3)
        self.assertEqual(sum(octets), desk.journal.figures.bytes - before)
        self.assertEqual(lists, [])
        # Nor does it while nothing at all is written.
        desk.close()
        list(islice(coming, 5))
        octets.clear()
        lists.clear()
        self.assertEqual(list(islice(coming, 10)), [None] * 10)
        self.assertEqual((octets, lists), ([], []))
        again = self.opened()
        again.note(77)
        again.written()
        told = next(each for each in coming if each is not None and each.entry is not None)
        self.assertEqual(told.entry, 77)

    def test_end_was_cut_off(self) -> None:
        """A full disk takes a part of some lines, which go; others come in their place."""
        desk = self.opened(terms=JournalTerms(segment_seconds=3600))
        desk.note(1)
        desk.written()
        (path,) = segments.opened(desk.directory)
        whole = path.read_bytes()
        line = whole.splitlines(keepends=True)[-1]
        coming = tail.follow(desk.directory, ("", 1), lambda _: None)
        entries = (each and each.entry for each in coming)
        self.assertEqual(list(islice(entries, 3)), [None, 1, None])
        for garbage in (line[:-1], line[:20], b"x" * 5000):
            with path.open("ab") as file:
                file.write(garbage)
            self.assertIsNone(next(entries))
            os.truncate(path, len(whole))
            self.assertIsNone(next(entries))
        with path.open("ab") as file:
            file.write(b"no line of a journal, but a whole one\n")
        self.assertIsNone(next(entries))
        os.truncate(path, len(whole))
        desk.note(2)
        desk.note(3)
        desk.written()
        self.assertEqual([next(each for each in entries if each) for _ in range(2)], [2, 3])

    def test_day_that_goes(self) -> None:
        """A day may be removed for its age between the list of days and a look into it."""
        desk = self.opened()
        desk.note(1)
        desk.close()
        there = segments.days

        def days(directory: Path) -> list[Path]:
            return [directory / "2020-01-01", *there(directory)]

        self.patch(segments, "days", days)
        self.patch(tail, "days", days)
        records, end = tail.last(desk.directory, 10)
        self.assertEqual([each.entry for each in records], [None, 1])
        coming = tail.follow(desk.directory, (end[0], 1), lambda _: None)
        self.assertEqual([each and each.entry for each in islice(coming, 3)], [None, 1, None])

    def test_from_nothing(self) -> None:
        """A journal that begins while somebody waits for it."""
        desk: Desk = self.desk()
        before, end = tail.last(desk.directory, 10)
        self.assertEqual(before, [])
        coming = tail.follow(desk.directory, end, lambda _: None)
        self.assertIsNone(next(coming))
        desk.open()
        desk.note(7)
        desk.written()
        entries = (each.entry for each in coming if each is not None)
        self.assertEqual([next(entries), next(entries)], [None, 7])
