# SPDX-License-Identifier: Apache-2.0
"""The audit journal as it is written, as server-sent events: ``/api/v1/journal/tail``.

One thread reads the journal for all streams, as long as there is one. Each record is an event
``record`` with the record as JSON and ``JOURNAL:SEQUENCE`` as its id. The parameters ``kind``,
``node`` and ``entry`` restrict the records. A client that connects again gets what it has missed
(`amqproute.http.journal_stretch`). Who may follow the journal is decided as for the operation
TAIL-JOURNAL.

Python runs one thread at a time, so what this one takes the event loop cannot have. Its share is
`THREAD_SHARE` of the time; where more is written than it can read in that, the streams lag behind
and catch up later. Records are encoded once for all streams that want the same ones.

Streams that come back are behind the others. They catch up in the same thread and the same share:
what they have missed is read in one sweep towards the end, which takes along each stream as it
reaches its place, and then begins again with those whose place it had passed. Between two turns
with new records there are `CATCH_UP_TURNS` of the sweep, so neither waits for the other's end.
A stream whose client does not read waits for a later turn; new records are written to it all the
same, within the bounds of `amqproute.http.event_stream`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorThreads
from twisted.logger import Logger

from amqproute.http.event_stream import EventStream
from amqproute.http.http_messages import EVENTS, HttpRequest, HttpResponse
from amqproute.http.journal_stretch import JournalStretch, RecordFilter, StreamPlace
from amqproute.http.management_api import (
    IManagement,
    read_query,
    request_of,
    require_scope,
    response_of,
)
from amqproute.http.site import HttpResource, HttpSite
from amqproute.journal.record import JournalRecord
from amqproute.journal.tail import between, follow, last
from amqproute.services.management_table import OPERATIONS

__all__ = ["LAST_EVENT_ID", "TAIL_PATH", "JournalFeed", "add_journal_tail"]

TAIL_PATH: Final = "/api/v1/journal/tail"
LAST_EVENT_ID: Final = "Last-Event-ID"
"""The header with the id of the last event that the client has."""
MOST_AT_ONCE: Final = 64
"""Records that the thread hands over in one turn of the reactor."""
THREAD_SHARE: Final = 0.2
"""The part of the time for which the thread may run."""
CATCH_UP_TURNS: Final = 2
"""Turns of the sweep after one with new records; with more than one, it gains on them."""
WAIT_SECONDS: Final = 0.1
"""Interval at which the thread asks whether it shall stop while the reactor is busy."""

log = Logger()

Want = tuple[RecordFilter, int]
"""What one stream wants, or several: the records of a filter, from a sequence on."""


class _Stopped(Exception):
    """There is no stream any more."""


@dataclass(frozen=True, slots=True)
class _Wants:
    """What the streams want, as the reactor tells the thread.

    Attributes:
        current: of the streams that have all records up to the thread's position.
        behind: of those that have not, and whose clients read.
        is_waiting: whether there are streams behind whose clients do not read.
    """

    current: frozenset[Want] = frozenset()
    behind: frozenset[Want] = frozenset()
    is_waiting: bool = False


@dataclass(slots=True)
class JournalFeed:
    """Feeds all streams with the journal. Its attributes belong to the reactor.

    Attributes:
        reactor: the reactor of the streams.
        directory: the directory of the journal.
        cpu_seconds: returns the processor time of the thread that calls it.
        streams: the streams open, each with its place.
        has_new: whether there are streams without a place; the thread reads it.
    """

    reactor: IReactorThreads
    directory: Path
    cpu_seconds: Callable[[], float] = time.thread_time
    streams: dict[EventStream, StreamPlace] = field(default_factory=dict)
    has_new: bool = False
    _stopping: threading.Event | None = None

    def add(
        self, stream: EventStream, wanted: RecordFilter, last_event_id: str = ""
    ) -> Callable[[], None]:
        """Feed a stream; return what ends that.

        Args:
            stream: the stream.
            wanted: the records that it gets.
            last_event_id: what its client has seen, as it says; empty for nothing.
        """
        self.streams[stream] = StreamPlace(wanted, last_event_id)
        self.has_new = True
        if self._stopping is None:
            self._stopping = threading.Event()
            self.reactor.callInThread(_JournalThread(self, self._stopping).run)

        def end() -> None:
            self.streams.pop(stream, None)
            if not self.streams and self._stopping is not None:
                self._stopping.set()
                self._stopping = None

        return end

    def stop(self) -> None:
        """End all streams."""
        for stream in list(self.streams):
            stream.close()

    def deliver(
        self,
        position: tuple[str, int],
        stretch: JournalStretch | None,
        events: Mapping[Want, bytes],
    ) -> _Wants:
        """Send what the thread has read, and give places to new streams.

        Args:
            position: the journal, and the sequence after the last record that was read as it was
                written.
            stretch: what was read now; None for nothing.
            events: the events of it, for all that want them.

        Returns:
            What the streams want now.
        """
        is_new = stretch is not None and stretch.end == position[1]
        for stream, place in list(self.streams.items()):
            if not place.next:
                octets = place.begin(*position)
            elif stretch is None or not (is_new or not stream.is_paused):
                continue
            else:
                found = events.get((place.wanted, place.next))
                if found is None:
                    continue
                octets = place.passed(stretch, found)
            if octets:
                stream.put(octets)
        self.has_new = False
        current, behind, is_waiting = set(), set(), False
        for stream, place in self.streams.items():
            want = (place.wanted, place.next)
            if place.next >= position[1]:
                current.add(want)
            elif stream.is_paused:
                is_waiting = True
            else:
                behind.add(want)
        return _Wants(frozenset(current), frozenset(behind), is_waiting)


class _JournalThread:
    """Reads the journal for a feed, in a thread.

    Args:
        feed: the feed.
        stopping: set when there is no stream any more.
    """

    def __init__(self, feed: JournalFeed, stopping: threading.Event) -> None:
        self._feed = feed
        self._stopping = stopping
        self._position = ("", 1)
        self._sweep = _Sweep(feed.directory)
        self._wants = _Wants()
        self._worked_at = 0.0

    def run(self) -> None:
        """Read on until there is no stream any more."""
        try:
            self._run()
        except _Stopped:
            pass
        except Exception:  # a thread has nobody to tell
            log.failure("following the journal for event streams failed")
            self._feed.reactor.callFromThread(self._feed.stop)
        finally:
            self._sweep.close()

    def _run(self) -> None:
        self._worked_at = self._feed.cpu_seconds()
        directory = self._feed.directory
        _, self._position = last(directory, 1)
        self._hand_over(None)
        found: list[JournalRecord] = []
        for record in follow(directory, self._position, self._rest):
            if record is not None:
                found.append(record)
                if len(found) < MOST_AT_ONCE:
                    continue
            if found:
                begin, newest = self._position[1], found[-1]
                self._position = (newest.journal, newest.seq + 1)
                self._hand_over(JournalStretch(newest.journal, begin, newest.seq + 1, found))
                found = []
            elif self._feed.has_new or self._wants.is_waiting:
                self._hand_over(None)
            for _ in range(CATCH_UP_TURNS):
                if self._wants.behind:
                    places = {place for _, place in self._wants.behind}
                    self._hand_over(self._sweep.read(self._position, places))

    def _rest(self, seconds: float) -> None:
        """Wait for new records, if nobody is behind."""
        self._pause(0.0 if self._wants.behind else seconds)

    def _pause(self, seconds: float) -> None:
        if self._stopping.wait(seconds):
            raise _Stopped

    def _hand_over(self, stretch: JournalStretch | None) -> None:
        """Encode records, and wait until the reactor has sent them: no more than that waits.

        Then pause, so that the share of the thread is kept.
        """
        events = {}
        if stretch is not None:
            for want in self._wants.current | self._wants.behind:
                if stretch.begin <= want[1] < stretch.end:
                    events[want] = stretch.encode(*want)
        delivered = threading.Event()
        answers: list[_Wants] = []

        def deliver() -> None:
            try:
                if not self._stopping.is_set():  # else the streams are those of another thread
                    answers.append(self._feed.deliver(self._position, stretch, events))
            finally:
                delivered.set()

        self._feed.reactor.callFromThread(deliver)
        while not delivered.wait(WAIT_SECONDS):
            self._pause(0.0)
        self._pause(0.0)
        (self._wants,) = answers
        now = self._feed.cpu_seconds()
        self._pause((now - self._worked_at) * (1 / THREAD_SHARE - 1))
        self._worked_at = now


class _Sweep:
    """Reads what streams have missed, from the place of one to the end.

    Args:
        directory: the journal.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._records: Iterator[JournalRecord] | None = None
        self._at = self._end = 0

    def read(self, position: tuple[str, int], places: Collection[int]) -> JournalStretch:
        """Return the next stretch that somebody has not had.

        Args:
            position: the journal, and the sequence where the sweep ends.
            places: the sequences that streams wait for, all of them before that.
        """
        journal, end = position
        begin = min((each for each in places if each >= self._at), default=min(places))
        if self._records is None or begin != self._at:
            self.close()
            self._records = between(self._directory, (journal, begin), end)
            self._end = end
        found = list(islice(self._records, MOST_AT_ONCE))
        is_over = len(found) < MOST_AT_ONCE or found[-1].seq + 1 == self._end
        self._at = self._end if is_over else found[-1].seq + 1
        if is_over:
            self.close()
        return JournalStretch(journal, begin, self._at, found)

    def close(self) -> None:
        """Close the segment that is open."""
        self._records = None


def add_journal_tail(site: HttpSite, management: IManagement, feed: JournalFeed) -> None:
    """Add the resource to a site."""
    operation = OPERATIONS["TAIL-JOURNAL"]
    parameters = [each for each in operation.parameters or () if each.name != "count"]

    async def begin(request: HttpRequest) -> HttpResponse:
        given = read_query(request, {each.name: each for each in parameters})
        require_scope(request, operation, "")
        asked = request_of(request, operation, None, parameters)
        # The right to the records is asked for; the stream reads them itself.
        reply = await management.perform(replace(asked, body={"count": 1}))
        response_of(request, operation, reply)  # refuses
        entry = given.get("entry")
        wanted = RecordFilter(
            str(given.get("kind", "")),
            str(given.get("node", "")),
            entry if isinstance(entry, int) else None,
        )
        seen = request.headers.get(LAST_EVENT_ID.lower(), "").strip()
        return HttpResponse(
            200, content_type=EVENTS, stream=lambda stream: feed.add(stream, wanted, seen)
        )

    handler = lambda request: Deferred.fromCoroutine(begin(request))  # noqa: E731
    site.add(HttpResource(TAIL_PATH, {"GET": handler}, gives=(EVENTS,)))
