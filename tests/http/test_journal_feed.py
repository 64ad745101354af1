# SPDX-License-Identifier: Apache-2.0
"""The thread that reads the journal for event streams: what it does once, its share, resuming."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

from twisted.internet.interfaces import IReactorThreads
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.http import journal_feed, journal_stretch
from amqproute.http.event_stream import STALL_SECONDS, EventStream, encode_event_id
from amqproute.http.journal_feed import CATCH_UP_TURNS, MOST_AT_ONCE, THREAD_SHARE, JournalFeed
from amqproute.http.journal_stretch import JournalStretch, RecordFilter, StreamPlace
from amqproute.journal import reader, segments, tail
from amqproute.journal.journal_writer import JournalTerms
from amqproute.journal.record import PUT_BACK, JournalRecord, RecordKind, read_line
from amqproute.journal.tail import POLL_SECONDS
from tests.journal.test_journal_writer import JournalCase


class OneThread:
    """A reactor whose thread runs when the test says so, and in the test's own."""

    def __init__(self) -> None:
        self.works: list[Callable[[], None]] = []

    def callInThread(self, work: Callable[[], None]) -> None:
        """Keep what the thread shall do."""
        self.works.append(work)

    def callFromThread(self, call: Callable[..., object], *given: object) -> None:
        """Call at once."""
        call(*given)


@dataclass
class Stopping:
    """What the thread waits for; the steps of the test come in its place.

    Attributes:
        steps: done one after the other, each at a wait for new records.
        meanwhile: done one after the other, each at a wait that is not for new records.
        waits: the seconds of all waits.
    """

    steps: list[Callable[[], object]]
    meanwhile: list[Callable[[], object]] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def wait(self, seconds: float) -> bool:
        """Do the next step, and return whether there was none."""
        self.waits.append(seconds)
        if seconds != POLL_SECONDS:
            if self.meanwhile:
                self.meanwhile.pop(0)()
            return False
        if not self.steps:
            return True
        self.steps.pop(0)()
        return False

    def is_set(self) -> bool:
        """Return that it is not over."""
        return False


@dataclass(eq=False)
class EventSource:
    """A client: reads events as the HTML standard says in §9.2.6.

    Attributes:
        log: what all clients have got, with the entries.
        stream: the stream.
        writes: what was written to it.
        events: the events dispatched: the type, the data, and the last event id by then.
        last_event_id: the id that it sends when it connects again.
    """

    log: list[tuple[EventSource, int]]
    clock: Clock = field(default_factory=Clock)
    writes: list[bytes] = field(default_factory=list)
    events: list[tuple[str, Any, str]] = field(default_factory=list)
    last_event_id: str = ""

    def __post_init__(self) -> None:
        self.stream = EventStream(self.clock, self._write, lambda: None)

    def _write(self, octets: bytes) -> None:
        self.writes.append(octets)
        for block in octets.decode().split("\n\n")[:-1]:
            lines = [line.partition(":") for line in block.split("\n")]
            fields = {name: value.removeprefix(" ") for name, _, value in lines}
            self.last_event_id = fields.get("id", self.last_event_id)
            if "data" not in fields:
                continue
            data = json.loads(fields["data"])
            self.events.append((fields["event"], data, self.last_event_id))
            if fields["event"] == "record":
                self.log.append((self, data.get("entry", 0)))

    @property
    def entries(self) -> list[int]:
        """The entries of the records."""
        return [data["entry"] for event, data, _ in self.events if event == "record"]

    @property
    def omitted(self) -> list[int | None]:
        """The numbers of records omitted."""
        return [data["count"] for event, data, _ in self.events if event == "omitted"]

    @property
    def counts(self) -> list[int]:
        """The number of records of each write, without those that have none."""
        counts = [each.count(b"event: record\n") for each in self.writes]
        return [each for each in counts if each]


class FeedCase(JournalCase):
    """Streams of one journal."""

    terms = JournalTerms()

    def setUp(self) -> None:
        super().setUp()
        self.desk = self.opened(terms=self.terms)
        self.desk.note(1)
        self.desk.written()
        self.reactor = OneThread()
        self.feed = JournalFeed(
            cast(IReactorThreads, self.reactor), self.desk.directory, lambda: 0.0
        )
        self.log: list[tuple[EventSource, int]] = []

    def connect(self, wanted: RecordFilter | None = None, last_event_id: str = "") -> EventSource:
        """Add a stream, and return its client."""
        client = EventSource(self.log)
        self.addCleanup(client.stream.lost)
        self.feed.add(client.stream, wanted or RecordFilter(), last_event_id)
        return client

    def note(self, *entries: int) -> Callable[[], None]:
        """Return a step that writes records, in a run each."""

        def step() -> None:
            for each in entries:
                self.desk.note(each)
            self.desk.written()

        return step

    def run_thread(
        self, *steps: Callable[[], object], meanwhile: Sequence[Callable[[], object]] = ()
    ) -> Stopping:
        """Run the thread over these steps, and end all streams."""
        stopping = Stopping(list(steps), list(meanwhile))
        work: Any = self.reactor.works.pop()
        self.assertEqual(self.reactor.works, [])
        work.__self__._stopping = stopping
        work()
        self.assertEqual((stopping.steps, stopping.meanwhile), ([], []))
        self.feed.streams.clear()
        self.feed._stopping = None
        return stopping

    def id_of(self, entry: int) -> str:
        """Return the id of the event of an entry."""
        (found,) = [each for each in self.desk.records() if each.entry == entry]
        return f"{found.journal}:{found.seq}"

    def watch_encoded(self) -> list[int]:
        """Return a list that gets the entries of the records that are encoded."""
        encoded = []
        as_json = journal_stretch.as_json

        def watched(record: Any) -> Any:
            encoded.append(record.entry)
            return as_json(record)

        self.patch(journal_stretch, "as_json", watched)
        return encoded


class FeedTests(FeedCase):
    """New records."""

    def test_encoded_once(self) -> None:
        """A record is encoded once, and each stream gets its records of a turn in one write."""
        encoded = self.watch_encoded()
        everything = [self.connect() for _ in range(20)]
        two = self.connect(RecordFilter(entry=12))
        none = self.connect(RecordFilter(kind="received"))
        self.run_thread(self.note(11, 12, 13), self.note(14))
        self.assertEqual(sorted(encoded), [11, 12, 13, 14])
        for each in everything:
            self.assertEqual(each.counts, [3, 1])
            self.assertEqual(each.entries, [11, 12, 13, 14])
        self.assertEqual((two.counts, two.entries), ([1], [12]))
        self.assertEqual(none.events, [])

    def test_turns(self) -> None:
        """A turn of the reactor gets no more than so many records."""
        client = self.connect()
        self.run_thread(self.note(*range(2 * MOST_AT_ONCE + 5)))
        self.assertEqual(client.counts, [MOST_AT_ONCE, MOST_AT_ONCE, 5])

    def test_share(self) -> None:
        """The thread pauses in proportion to its processor time, that of the start included."""
        ticks = count()
        self.feed.cpu_seconds = lambda: 0.25 * next(ticks)
        self.connect()
        waits = self.run_thread(self.note(*range(2 * MOST_AT_ONCE))).waits
        pauses = [each for each in waits if each not in (POLL_SECONDS, 0.0)]
        self.assertEqual(len(pauses), 3)
        for each in pauses:
            self.assertAlmostEqual(0.25 / (0.25 + each), THREAD_SHARE)

    def test_last_stream_ends(self) -> None:
        """Without a stream the thread stops, and the next stream begins another one."""
        client = EventSource(self.log)
        self.addCleanup(client.stream.lost)
        end = self.feed.add(client.stream, RecordFilter())
        former: Any = self.reactor.works.pop()
        end()
        self.assertEqual(self.feed.streams, {})
        again = self.connect()
        former()
        self.assertEqual((client.writes, again.writes), ([], []))
        self.run_thread(self.note(5))
        self.assertEqual((client.entries, again.entries), ([], [5]))

    def test_reactor_fails(self) -> None:
        """What goes wrong in the reactor ends all streams, and is logged."""
        client = self.connect()

        def fails(*_: object) -> None:
            raise ZeroDivisionError

        self.patch(client.stream, "put", fails)

        def call(work: Callable[..., object], *given: object) -> None:
            try:
                work(*given)
            except ZeroDivisionError:
                pass

        self.patch(self.reactor, "callFromThread", call)
        self.run_thread()
        self.assertTrue(client.stream.is_over)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)


class ResumeTests(FeedCase):
    """Clients that come back."""

    def test_what_was_missed(self) -> None:
        """A client that comes back gets what it has missed, once, and then what is new."""
        client = self.connect()
        self.run_thread(self.note(11, 12))
        self.note(*range(13, 300))()
        self.assertEqual(client.entries, [11, 12])
        again = self.connect(last_event_id=client.last_event_id)
        self.run_thread(self.note(300, 301))
        self.assertEqual(again.entries, list(range(13, 302)))
        self.assertEqual(again.omitted, [])
        self.assertEqual(again.last_event_id, self.id_of(301))
        self.assertLessEqual(max(again.counts), MOST_AT_ONCE)

    def test_nothing_missed(self) -> None:
        """A client that has everything gets only what is new."""
        client = self.connect(last_event_id=self.id_of(1))
        self.run_thread(self.note(2))
        self.assertEqual((client.entries, client.omitted), ([2], []))

    def test_before_the_first_event(self) -> None:
        """A stream says at once where it begins, so that a client misses nothing."""
        client = self.connect()
        self.run_thread()
        self.assertEqual((client.events, client.last_event_id), ([], self.id_of(1)))

    def test_empty_journal(self) -> None:
        """There is no place in a journal without records."""
        self.feed.directory = self.desk.directory / "none"
        client = self.connect()
        again = self.connect(last_event_id=self.id_of(1))
        self.run_thread()
        self.assertEqual((client.writes, again.omitted), ([], [None]))

    def test_first_records(self) -> None:
        """Where the journal had no records, the stream says its place with the first ones."""
        place = StreamPlace(RecordFilter(entry=5))
        self.assertEqual(place.begin("", 1), b"")
        self.assertEqual(
            [place.passed(JournalStretch("a" * 16, each, each + 2, []), b"") for each in (1, 3)],
            [encode_event_id(f"{'a' * 16}:2"), b""],
        )

    def test_while_others_follow(self) -> None:
        """A client that comes back while others are served gets its own, and they get theirs."""
        client = self.connect()
        back: list[EventSource] = []

        def come_back() -> None:
            for entry in (1, 15):
                back.append(self.connect(last_event_id=self.id_of(entry)))

        self.run_thread(self.note(*range(11, 20)), come_back, self.note(20))
        self.assertEqual(client.entries, list(range(11, 21)))
        self.assertEqual([each.entries for each in back], [[*range(11, 21)], [*range(16, 21)]])

    def test_filter(self) -> None:
        """Records that are not wanted are passed over."""
        self.note(*range(2, 200))()
        client = self.connect(RecordFilter(entry=77), self.id_of(1))
        self.run_thread(self.note(77))
        self.assertEqual((client.entries, client.omitted), ([77, 77], []))

    def test_too_far_behind(self) -> None:
        """Beyond the bound the number is told, and the stream continues at the bound."""
        self.patch(journal_stretch, "MOST_BEHIND", 100)
        self.note(*range(2, 402))()
        exact, far = (self.connect(last_event_id=self.id_of(each)) for each in (301, 300))
        self.run_thread()
        self.assertEqual((exact.entries, exact.omitted), ([*range(302, 402)], []))
        self.assertEqual((far.entries, far.omitted), ([*range(302, 402)], [1]))
        self.assertEqual(far.events[0], ("omitted", {"count": 1}, self.id_of(301)))

    def test_unknown_places(self) -> None:
        """With an id that names no record of this journal the stream begins at the end."""
        name, seq = self.id_of(1).split(":")
        unknown = [
            "x", "0" * 16 + ":1", f"{name}:{int(seq) + 1}", f"{name}:", f"{name}:-1", f"{name}:01",
            f"{name}:1 ", f"{name}-{seq}", f"{name}:{'9' * 40}", "a" * 10_000, "\u0661", ":" * 99,
        ]  # fmt: skip
        clients = [self.connect(last_event_id=each) for each in unknown]
        self.run_thread(self.note(2))
        for text, each in zip(unknown, clients, strict=True):
            self.assertEqual((each.omitted, each.entries), ([None], [2]), text)
            self.assertEqual(each.events[0][2], self.id_of(1))

    def test_quiet_stream(self) -> None:
        """A stream that gets nothing is told its place now and then, without an event."""
        self.patch(journal_stretch, "MOST_QUIET", 100)
        client = self.connect(RecordFilter(entry=5))
        self.run_thread(self.note(*range(1000, 1130)))
        self.assertEqual(len(client.writes), 2)
        place = int(client.last_event_id.split(":")[1])
        self.assertGreater(place, int(self.id_of(1).split(":")[1]) + 50)
        self.assertEqual(client.events, [])
        self.note(5)()
        again = self.connect(RecordFilter(entry=5), client.last_event_id)
        self.run_thread()
        self.assertEqual((again.entries, again.omitted), ([5], []))

    def test_few_are_read(self) -> None:
        """The place is found without reading the segment."""
        self.note(*range(2, 2000))()
        last_event_id = self.id_of(1900)
        for module in (reader, tail):
            self.patch(module, "CHUNK_BYTES", 4096)
        parsed = []
        read_line = tail.read_line

        def watched(octets: bytes) -> object:
            parsed.append(octets)
            return read_line(octets)

        self.patch(tail, "read_line", watched)
        client = self.connect(last_event_id=last_event_id)
        self.run_thread()
        self.assertEqual(client.entries, list(range(1901, 2000)))
        # The records, a bisection, and the lines of a chunk.
        self.assertLess(len(parsed), 99 + 50)

    def test_one_sweep(self) -> None:
        """Clients that come back together are served by one sweep, and records encoded once."""
        self.note(*range(2, 600))()
        sweeps = []
        between = journal_feed.between

        def watched(*given: Any) -> Any:
            sweeps.append(given)
            return between(*given)

        self.patch(journal_feed, "between", watched)
        encoded = self.watch_encoded()
        places = [*range(1, 600, 7)]
        clients = [self.connect(last_event_id=self.id_of(each)) for each in places]
        self.run_thread()
        for place, each in zip(places, clients, strict=True):
            self.assertEqual(each.entries, list(range(place + 1, 600)))
        self.assertEqual(len(sweeps), 1)
        self.assertEqual(sorted(encoded), list(range(2, 600)))

    def test_unread(self) -> None:
        """A client that does not read waits, and holds up nobody."""
        self.note(*range(2, 600))()
        slow, other = (self.connect(last_event_id=self.id_of(1)) for _ in range(2))
        slow.stream.pause()
        had: list[int] = []

        def resume() -> None:
            had.extend(slow.entries)
            self.assertEqual(other.entries, list(range(2, 600)))
            slow.stream.resume()

        self.run_thread(resume)
        self.assertEqual(had, [])
        self.assertEqual(slow.entries, list(range(2, 600)))

    def test_stalled(self) -> None:
        """A client that reads nothing for long loses its stream, also while it is behind."""
        self.note(2)()
        client = self.connect(last_event_id=self.id_of(1))
        client.stream.pause()

        def wait() -> None:
            for _ in range(10):
                client.clock.advance(STALL_SECONDS / 5)

        self.run_thread(wait)
        self.assertTrue(client.stream.is_over)

    def test_share(self) -> None:
        """What is done for clients that come back is within the share of the thread."""
        ticks = count()
        self.feed.cpu_seconds = lambda: 0.25 * next(ticks)
        self.note(*range(2, 2 + 5 * MOST_AT_ONCE))()
        self.connect(last_event_id=self.id_of(1))
        waits = self.run_thread().waits
        pauses = [each for each in waits if each not in (POLL_SECONDS, 0.0)]
        self.assertEqual(len(pauses), 1 + 5)
        for each in pauses:
            self.assertAlmostEqual(0.25 / (0.25 + each), THREAD_SHARE)

    def test_turns(self) -> None:
        """New records wait for a few turns of those who catch up, not for the end."""
        self.note(*range(2, 2 + 20 * MOST_AT_ONCE))()
        ticks = count()
        self.feed.cpu_seconds = lambda: 0.25 * next(ticks)
        behind = self.connect(last_event_id=self.id_of(1))
        current = self.connect()
        self.run_thread(meanwhile=[lambda: None] * 6 + [self.note(9999)])
        turns = [client for client, entry in self.log[: self.log.index((current, 9999))]]
        self.assertEqual(set(turns), {behind})
        self.assertLessEqual(len(turns), 3 * CATCH_UP_TURNS * MOST_AT_ONCE)
        self.assertEqual(behind.entries, [*range(2, 2 + 20 * MOST_AT_ONCE), 9999])


class MissingTests(FeedCase):
    """Records that are no longer there."""

    terms = JournalTerms(segment_bytes=10_000)

    def test_removed(self) -> None:
        """Of segments that were removed the number of records is told."""
        for begin in range(2, 202, 10):
            self.note(*range(begin, begin + 10))()
        last_event_id = self.id_of(1)
        seqs = {each.seq: each.entry for each in self.desk.records()}
        paths = reader.segments(self.desk.directory)[:3]
        self.assertEqual(len(paths), 3)
        for path in paths:
            path.unlink()
        there = [each for each in self.desk.records() if each.entry is not None]
        client = self.connect(RecordFilter(kind="recovery"), last_event_id)
        self.run_thread()
        self.assertEqual(client.entries, [each.entry for each in there])
        first = reader.segments(self.desk.directory)[0]
        begin_of_first = segments.parts_of(first)
        assert begin_of_first is not None
        missed = begin_of_first[1] - int(last_event_id.split(":")[1]) - 1
        self.assertEqual(client.omitted, [missed])
        self.assertIn(begin_of_first[1], seqs)

    def test_damaged(self) -> None:
        """In the place of a line that cannot be read there is its number of records."""
        for begin in range(2, 202, 10):
            self.note(*range(begin, begin + 10))()
        last_event_id = self.id_of(1)
        path = reader.segments(self.desk.directory)[1]
        lines = path.read_bytes().split(b"\n")
        lost = read_line(lines[3])
        lines[3] = b"x" * len(lines[3])
        path.write_bytes(b"\n".join(lines))
        client = self.connect(last_event_id=last_event_id)
        self.run_thread()
        self.assertEqual(client.omitted, [lost.count])
        at = [event for event, _, _ in client.events].index("omitted")
        self.assertEqual(client.events[at][2], f"{lost.body['journal']}:{lost.seq}")
        self.assertEqual(client.events[at + 1][1]["seq"], lost.seq + lost.count)


def record(seq: int, kind: str = "recovery", **facts: Any) -> JournalRecord:
    """Make a record."""
    return JournalRecord(1, kind, "j", "b", "d", "s", seq, 0, **facts)


class StretchTests(SynchronousTestCase):
    """What is omitted of a stretch."""

    def numbers(self, stretch: JournalStretch, begin: int) -> list[str]:
        """Return what a stream gets: sequences, and the numbers of records omitted."""
        client = EventSource([])
        self.addCleanup(client.stream.lost)
        client.stream.put(stretch.encode(RecordFilter(), begin))
        return [
            f"-{data['count']}" if event == "omitted" else str(data["seq"])
            for event, data, _ in client.events
        ]

    def test_everywhere(self) -> None:
        """At the beginning, in the middle, at the end."""
        stretch = JournalStretch("j", 3, 20, [record(5, entry=1), *map(self.plain, (6, 9, 10))])
        self.assertEqual(self.numbers(stretch, 3), ["-2", "5", "6", "-2", "9", "10", "-9"])
        self.assertEqual(self.numbers(stretch, 6), ["6", "-2", "9", "10", "-9"])
        self.assertEqual(self.numbers(stretch, 7), ["-2", "9", "10", "-9"])
        self.assertEqual(self.numbers(stretch, 15), ["-5"])
        self.assertEqual(self.numbers(JournalStretch("j", 3, 7, []), 3), ["-4"])

    def plain(self, seq: int) -> JournalRecord:
        """Make a record of an entry."""
        return record(seq, entry=seq)

    def test_skipped_after_a_restore(self) -> None:
        """Sequences that were never used are not missing, but others before them are."""
        put_back = record(1_000_000, RecordKind.SEGMENT, code=PUT_BACK, count=999_990, entry=0)
        stretch = JournalStretch("j", 9, 1_000_001, [self.plain(9), put_back])
        self.assertEqual(self.numbers(stretch, 9), ["9", "1000000"])
        stretch = JournalStretch("j", 8, 1_000_001, [self.plain(8), put_back])
        self.assertEqual(self.numbers(stretch, 8), ["8", "-1", "1000000"])
