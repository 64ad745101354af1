# SPDX-License-Identifier: Apache-2.0
"""Connects the store with the journal: passes on committed events, and has commits carry them.

The journal's disk may be a second behind the store's, and a crash must not leave an entry that has
left the store without a recorded end. So a commit that ends entries carries, as one row, what the
journal does not yet have on disk: the ends, and the arrivals since its last fdatasync. An arrival
alone needs no such row: as long as its own row is in the store, the next start finds it.

Every event passed on by the store has a *number*. A line of the journal has the number of its event
(``o``), so a start knows which part of the outbox is already in the journal. Carried events have a
checksum.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final
from zlib import crc32

from twisted.logger import Logger
from zope.interface import implementer

from amqproute.interfaces import IOutbox
from amqproute.journal.event import JournalEvent, MessageRun
from amqproute.jsontext import parse_json

MOST_UNSAVED: Final = 20_000
"""Events that wait for the journal's disk and may be carried. If a disk hangs, older ones are left
out: the entries that they began are in the store, unless they ended just then."""


@implementer(IOutbox)
class JournalOutbox:
    """Called on the store's thread.

    Args:
        now_us: the wall clock, microseconds since the epoch.
        hand_over: takes events, in order, on the store's thread.
    """

    log = Logger()

    def __init__(
        self, now_us: Callable[[], int], hand_over: Callable[[Sequence[JournalEvent]], None]
    ):
        self._now_us = now_us
        self._hand_over = hand_over
        self._unsaved: deque[JournalEvent] = deque(maxlen=MOST_UNSAVED)
        self._last = 0
        self._durable = 0
        self._failed = False

    def begin(self, last: int) -> None:
        """Continue after this number; call this before anything else."""
        self._last = self._durable = last

    def is_durable(self, number: int) -> None:
        """Handle a sync: events up to this number are on disk. Called on the journal's thread."""
        self._durable = number

    def carry(self, events: Sequence[JournalEvent]) -> tuple[int, bytes, int] | None:
        """See `IOutbox.carry`."""
        for event in events:
            if event.ends:
                break
        else:
            return None
        try:
            return self._carried(events)
        except Exception:
            # A fault of ours: messages continue, and the journal keeps its present records.
            if not self._failed:
                self._failed = True
                self.log.failure("events could not be converted for the journal")
            return None

    def _carried(self, events: Sequence[JournalEvent]) -> tuple[int, bytes, int]:
        durable = self._durable
        unsaved = self._unsaved
        while unsaved and unsaved[0].number <= durable:
            unsaved.popleft()
        lines = [_row(event.number, run) for event in unsaved for run in event.runs()]
        number = self._last
        for event in events:
            number += 1
            lines += [_row(number, run) for run in event.runs()]
        return number, "\n".join(lines).encode(), durable

    def committed(self, events: Sequence[JournalEvent], is_carried: bool) -> None:
        """See `IOutbox.committed`."""
        now_us = self._now_us()
        for event in events:
            self._last += 1
            event.number = self._last
            event.committed_us = now_us
        if is_carried:
            self._unsaved.clear()
        else:
            self._unsaved.extend(events)
        self._hand_over(events)


def _row(number: int, run: MessageRun) -> str:
    text = f'[{number},"{run.kind}",{run.count},{run.time_us},{run.shared},{run.columns}'
    return f"{text},{crc32(text.encode())}]"


def read_rows(rows: Sequence[tuple[int, bytes]]) -> tuple[list[tuple[int, MessageRun]], int]:
    """Return the events in rows of the outbox, with their numbers, and the count of damaged ones.

    Lines that do not match their checksums are left out: a false record is worse than a missing
    one.
    """
    carried: list[tuple[int, MessageRun]] = []
    damaged = 0
    for _, octets in rows:
        if not isinstance(octets, bytes):
            damaged += 1
            continue
        for line in octets.split(b"\n"):
            try:
                carried.append(_read_line(line))
            except (ValueError, TypeError):
                damaged += 1
    return carried, damaged


def _read_line(line: bytes) -> tuple[int, MessageRun]:
    """Parse a line of a row.

    Raises:
        ValueError: the line is damaged.
    """
    text, _, checksum = line.rpartition(b",")
    body = parse_json(line)
    if len(body) == 7 and checksum == b"%d]" % crc32(text):
        body.pop()
    elif len(body) != 6 or not line.endswith(b"}]"):  # earlier releases wrote no checksum
        raise ValueError("the checksum does not match")
    number, kind, count, time_us, shared, columns = body
    return number, MessageRun(kind, count, time_us, _json(shared), _json(columns))


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
