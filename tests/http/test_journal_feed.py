# SPDX-License-Identifier: Apache-2.0
"""The thread that reads the journal for event streams: what it does once, and its share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

from twisted.internet.interfaces import IReactorThreads
from twisted.internet.task import Clock

from amqproute.http import journal_feed
from amqproute.http.event_stream import EventStream
from amqproute.http.journal_feed import MOST_AT_ONCE, THREAD_SHARE, JournalFeed, RecordFilter
from amqproute.journal.tail import POLL_SECONDS
from tests.journal.test_journal_writer import JournalCase


class OneThread:
    """A reactor whose thread runs when the test says so, and in the test's own."""

    def __init__(self) -> None:
        self.works: list[Callable[[Any], None]] = []

    def callInThread(self, work: Callable[[Any], None], _: object) -> None:
        """Keep what the thread shall do."""
        self.works.append(work)

    def callFromThread(self, call: Callable[..., object], *given: object) -> None:
        """Call at once."""
        call(*given)


@dataclass
class Stopping:
    """What the thread waits for; the steps of the test come in its place.

    Attributes:
        steps: done one after the other, each at a wait that is not for the processor's sake.
        waits: the seconds of all waits.
    """

    steps: list[Callable[[], object]]
    waits: list[float] = field(default_factory=list)

    def wait(self, seconds: float) -> bool:
        """Do the next step, and return whether there was none."""
        self.waits.append(seconds)
        if seconds != POLL_SECONDS:
            return False
        if not self.steps:
            return True
        self.steps.pop(0)()
        return False


class FeedTests(JournalCase):
    """Streams of one journal."""

    def setUp(self) -> None:
        super().setUp()
        self.desk = self.opened()
        self.desk.note(1)
        self.desk.written()
        self.reactor = OneThread()
        self.feed = JournalFeed(
            cast(IReactorThreads, self.reactor), self.desk.directory, lambda: 0.0
        )

    def stream(self, wanted: RecordFilter) -> list[bytes]:
        """Add a stream, and return what is written to it."""
        written: list[bytes] = []
        clock = Clock()
        stream = EventStream(clock, written.append, lambda: None)
        self.addCleanup(stream.lost)
        self.feed.add(stream, wanted)
        return written

    def note(self, *entries: int) -> Callable[[], None]:
        """Return a step that writes records, in a run each."""

        def step() -> None:
            for each in entries:
                self.desk.note(each)
            self.desk.written()

        return step

    def run_thread(self, *steps: Callable[[], object]) -> Stopping:
        """Run the thread over these steps."""
        stopping = Stopping(list(steps))
        (work,) = self.reactor.works
        work(stopping)
        self.assertEqual(stopping.steps, [])
        return stopping

    def test_encoded_once(self) -> None:
        """A record is encoded once, and each stream gets its records of a turn in one write."""
        encoded = []
        as_json = journal_feed.as_json

        def watched(record: Any) -> Any:
            encoded.append(record.entry)
            return as_json(record)

        self.patch(journal_feed, "as_json", watched)
        everything = [self.stream(RecordFilter()) for _ in range(20)]
        two = self.stream(RecordFilter(entry=12))
        none = self.stream(RecordFilter(kind="received"))
        self.run_thread(self.note(11, 12, 13), self.note(14))
        self.assertEqual(sorted(encoded), [11, 12, 13, 14])
        for written in everything:
            self.assertEqual([each.count(b"event: record\n") for each in written], [3, 1])
        self.assertEqual([each.count(b'"entry": 12') for each in two], [1])
        self.assertEqual(none, [])

    def test_turns(self) -> None:
        """A turn of the reactor gets no more than so many records."""
        written = self.stream(RecordFilter())
        self.run_thread(self.note(*range(2 * MOST_AT_ONCE + 5)))
        counts = [each.count(b"event: record\n") for each in written]
        self.assertEqual(counts, [MOST_AT_ONCE, MOST_AT_ONCE, 5])

    def test_share(self) -> None:
        """The thread pauses in proportion to its processor time, that of the start included."""
        ticks = count()
        self.feed.cpu_seconds = lambda: 0.25 * next(ticks)
        self.stream(RecordFilter())
        waits = self.run_thread(self.note(*range(2 * MOST_AT_ONCE))).waits
        pauses = [each for each in waits if each != POLL_SECONDS]
        self.assertEqual(len(pauses), 2)
        for each in pauses:
            self.assertAlmostEqual(0.25 / (0.25 + each), THREAD_SHARE)

    def test_last_stream_ends(self) -> None:
        """Without a stream the thread stops, and the next stream begins another one."""
        written: list[bytes] = []
        stream = EventStream(Clock(), written.append, lambda: None)
        self.addCleanup(stream.lost)
        end = self.feed.add(stream, RecordFilter())
        end()
        self.assertEqual(self.feed.streams, {})
        again = self.stream(RecordFilter())
        self.assertEqual(len(self.reactor.works), 2)
        del self.reactor.works[0]
        self.run_thread(self.note(5))
        self.assertEqual((len(written), len(again)), (0, 1))
