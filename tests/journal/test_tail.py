# SPDX-License-Identifier: Apache-2.0
"""The end of a journal, and any place in it, found without reading all of it."""

from __future__ import annotations

import os
from itertools import islice

from hypothesis import given, settings
from hypothesis import strategies as st

from amqproute.journal import reader, segments, tail
from amqproute.journal.journal_writer import JournalTerms
from tests.journal.test_journal_writer import JournalCase


class LastTests(JournalCase):
    """What `last` and `follow` find, and how much they read for it."""

    def watch(self) -> list[int]:
        """Return a list that gets the sequences of lines that are parsed."""
        parsed: list[int] = []
        read_line = tail.read_line

        def watched(octets: bytes) -> object:
            line = read_line(octets)
            parsed.append(line.seq)
            return line

        self.patch(tail, "read_line", watched)
        return parsed

    def read_at_once(self, octets: int) -> None:
        """Let so many octets be read at once."""
        for module in (reader, tail):
            self.patch(module, "CHUNK_BYTES", octets)

    def test_few_are_read(self) -> None:
        """The last records cost what they are, however long their segment is."""
        desk = self.opened(terms=JournalTerms(segment_seconds=3600))
        for number in range(2000):
            desk.note(number)
        desk.written()
        parsed = self.watch()
        found, end = tail.last(desk.directory, 10)
        self.assertEqual([each.entry for each in found], list(range(1990, 2000)))
        self.assertEqual(len(parsed), 10)
        parsed.clear()
        self.read_at_once(4096)
        coming = tail.follow(desk.directory, (end[0], end[1] - 1000), lambda _: None)
        first = next(coming)
        assert first is not None
        self.assertEqual(first.entry, 1000)
        # A bisection, and the lines of a chunk.
        self.assertLess(len(parsed), 40)

    def test_any_place(self) -> None:
        """The same records as by reading everything: any number, position and size of chunks."""
        desk = self.opened(terms=JournalTerms(segment_bytes=10_000))
        number = 0
        for size in (1, 1, 3, 1, 40, 1, 2, 1, 1, 100, 1, 1, 1, 7) * 6:
            desk.note(*range(number, number + size))
            number += size
            desk.written()
        (path,) = segments.opened(desk.directory)
        with path.open("ab") as file:
            file.write(b'{"h":"torn')
        everything = list(reader.records(desk.directory))
        self.assertGreater(len(reader.segments(desk.directory)), 2)
        chunks = st.sampled_from((200, 1000, 5000, 256 * 1024))

        @settings(deadline=None, max_examples=60)
        @given(st.integers(0, len(everything) + 5), chunks, st.integers(0, 3))
        def check(count: int, chunk: int, rest: int) -> None:
            self.read_at_once(chunk)
            found, end = tail.last(desk.directory, count, lambda each: each.seq % 4 >= rest)
            examined = everything[-count:] if count else []
            self.assertEqual(found, [each for each in examined if each.seq % 4 >= rest])
            self.assertEqual(end, (everything[-1].journal, everything[-1].seq + 1))
            if not count:
                return
            begin = everything[-min(count, len(everything))]
            coming = tail.follow(desk.directory, (begin.journal, begin.seq), lambda _: None)
            self.assertEqual(list(islice(coming, len(examined))), examined)
            part = tail.between(desk.directory, (begin.journal, begin.seq), end[1] - rest)
            self.assertEqual(list(part), [each for each in examined if each.seq < end[1] - rest])

        check()

    def test_damaged(self) -> None:
        """Lines that cannot be read are passed over, wherever the search meets them."""
        desk = self.opened(terms=JournalTerms(segment_seconds=3600))
        for number in range(200):
            desk.note(number)
        desk.close()
        (path,) = segments.closed(desk.directory)
        octets = path.read_bytes()
        half = len(octets) // 2
        path.write_bytes(octets[: half - 3000] + b"\n" + b"x" * 6000 + octets[half + 3001 :])
        self.read_at_once(1000)
        everything = list(reader.records(desk.directory))
        self.assertLess(len(everything), 200)
        found, _ = tail.last(desk.directory, 1000)
        self.assertEqual(found, everything)
        for begin in everything[:: len(everything) // 20]:
            coming = tail.follow(desk.directory, (begin.journal, begin.seq), lambda _: None)
            self.assertEqual(next(coming), begin)

    def test_cut_while_read(self) -> None:
        """A file that shrinks while it is read gives the lines that are whole."""
        desk = self.opened(terms=JournalTerms(segment_seconds=3600))
        for number in range(20):
            desk.note(number)
        desk.written()
        (path,) = segments.opened(desk.directory)
        size = path.stat().st_size
        pread = os.pread

        def cut(file: int, length: int, at: int) -> bytes:
            os.truncate(path, size - 100)
            return pread(file, length, at)

        self.patch(os, "pread", cut)
        found, _ = tail.last(desk.directory, 3)
        self.assertEqual([each.entry for each in found], [16, 17, 18])
