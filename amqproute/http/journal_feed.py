# SPDX-License-Identifier: Apache-2.0
"""The audit journal as it is written, as server-sent events: ``/api/v1/journal/tail``.

One thread reads the journal for all streams, as long as there is one. Each record is an event
``record`` with the record as JSON and ``JOURNAL:SEQUENCE`` as its id. The parameters ``kind``,
``node`` and ``entry`` restrict the records. Who may follow the journal is decided as for the
operation TAIL-JOURNAL.

Python runs one thread at a time, so what this one takes the event loop cannot have. Its share is
`THREAD_SHARE` of the time; where more is written than it can read in that, the streams lag behind
and catch up later. Records are encoded once for all streams that want the same ones.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorThreads
from twisted.logger import Logger

from amqproute.http.event_stream import EventStream, encode_event
from amqproute.http.http_messages import EVENTS, HttpRequest, HttpResponse
from amqproute.http.management_api import (
    IManagement,
    read_query,
    request_of,
    require_scope,
    response_of,
)
from amqproute.http.site import HttpResource, HttpSite
from amqproute.journal.reader import as_json
from amqproute.journal.record import JournalRecord
from amqproute.journal.tail import follow, last
from amqproute.services.management_table import OPERATIONS

__all__ = ["TAIL_PATH", "JournalFeed", "RecordFilter", "add_journal_tail"]

TAIL_PATH: Final = "/api/v1/journal/tail"
MOST_AT_ONCE: Final = 64
"""Records that the thread hands over in one turn of the reactor."""
THREAD_SHARE: Final = 0.2
"""The part of the time for which the thread may run."""
WAIT_SECONDS: Final = 0.1
"""Interval at which the thread asks whether it shall stop while the reactor is busy."""

log = Logger()


class _Stopped(Exception):
    """There is no stream any more."""


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Selection of the records of a stream.

    Attributes:
        kind: the kind of the record; empty for all.
        node: the name of the node; empty for all.
        entry: the id of the message; None for all.
    """

    kind: str = ""
    node: str = ""
    entry: int | None = None

    def fits(self, record: JournalRecord) -> bool:
        """Return whether a record is wanted."""
        return (
            self.kind in ("", record.kind)
            and self.node in ("", record.node)
            and self.entry in (None, record.entry)
        )


@dataclass(slots=True)
class JournalFeed:
    """Reads the journal for all streams.

    Attributes:
        reactor: the reactor of the streams.
        directory: the directory of the journal.
        cpu_seconds: returns the processor time of the thread that calls it.
        streams: the streams open, each with its filter.
    """

    reactor: IReactorThreads
    directory: Path
    cpu_seconds: Callable[[], float] = time.thread_time
    streams: dict[EventStream, RecordFilter] = field(default_factory=dict)
    _filters: frozenset[RecordFilter] = frozenset()  # replaced, never changed: the thread reads it
    _stopping: threading.Event | None = None

    def add(self, stream: EventStream, wanted: RecordFilter) -> Callable[[], None]:
        """Feed a stream; return what ends that."""
        self.streams[stream] = wanted
        self._filters = frozenset(self.streams.values())
        if self._stopping is None:
            self._stopping = threading.Event()
            self.reactor.callInThread(self._read, self._stopping)

        def end() -> None:
            self.streams.pop(stream, None)
            self._filters = frozenset(self.streams.values())
            if not self.streams and self._stopping is not None:
                self._stopping.set()
                self._stopping = None

        return end

    def stop(self) -> None:
        """End all streams."""
        for stream in list(self.streams):
            stream.close()

    def _read(self, stopping: threading.Event) -> None:
        """Read on, in a thread, until there is no stream any more."""

        def pause(seconds: float) -> None:
            if stopping.wait(seconds):
                raise _Stopped

        found: list[JournalRecord] = []
        begun = self.cpu_seconds()
        try:
            _, end = last(self.directory, 1)
            for record in follow(self.directory, end, pause):
                if record is not None:
                    found.append(record)
                if found and (record is None or len(found) >= MOST_AT_ONCE):
                    self._hand_over(found, pause)
                    found = []
                    now = self.cpu_seconds()
                    pause((now - begun) * (1 / THREAD_SHARE - 1))
                    begun = now
        except _Stopped:
            pass
        except Exception:  # a thread has nobody to tell
            log.failure("following the journal for event streams failed")
            self.reactor.callFromThread(self.stop)

    def _hand_over(
        self, records: Sequence[JournalRecord], pause: Callable[[float], object]
    ) -> None:
        """Encode records, and wait until the reactor has sent them: no more than that waits."""
        encoded = cache(lambda place: _encode(records[place]))
        texts = {
            wanted: b"".join(
                encoded(place) for place, record in enumerate(records) if wanted.fits(record)
            )
            for wanted in self._filters
        }
        delivered = threading.Event()

        def deliver() -> None:
            for stream, wanted in list(self.streams.items()):
                if octets := texts.get(wanted):
                    stream.put(octets)
            delivered.set()

        self.reactor.callFromThread(deliver)
        while not delivered.wait(WAIT_SECONDS):
            pause(0.0)


def _encode(record: JournalRecord) -> bytes:
    text = json.dumps(as_json(record), ensure_ascii=False)
    return encode_event("record", text, f"{record.journal}:{record.seq}")


def add_journal_tail(site: HttpSite, management: IManagement, feed: JournalFeed) -> None:
    """Add the resource to a site."""
    operation = OPERATIONS["TAIL-JOURNAL"]
    parameters = [each for each in operation.parameters or () if each.name != "count"]

    async def begin(request: HttpRequest) -> HttpResponse:
        given = read_query(request, {each.name: each for each in parameters})
        require_scope(request, operation, "")
        asked = request_of(request, operation, None, parameters)
        reply = await management.perform(asked)
        response_of(request, operation, reply)  # refuses
        entry = given.get("entry")
        wanted = RecordFilter(
            str(given.get("kind", "")),
            str(given.get("node", "")),
            entry if isinstance(entry, int) else None,
        )
        return HttpResponse(
            200, content_type=EVENTS, stream=lambda stream: feed.add(stream, wanted)
        )

    handler = lambda request: Deferred.fromCoroutine(begin(request))  # noqa: E731
    site.add(HttpResource(TAIL_PATH, {"GET": handler}, gives=(EVENTS,)))
