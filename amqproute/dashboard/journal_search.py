# SPDX-License-Identifier: Apache-2.0
"""Reads the audit journal for pages, off the reactor's thread and within bounds.

The life of a message takes a walk through all files. So there is one search at a time, a few may
wait, and what was found is remembered for `REMEMBERED_SECONDS`: a page that is looked at live does
not search once a second. The last records are read from the end of the newest files only, by one
thread at a time, and are remembered for `LAST_SECONDS`.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.interfaces import IReactorTime

from amqproute.journal.reader import find, lines_backwards, open_segment, segments
from amqproute.journal.record import InvalidLine, JournalRecord, read_line

__all__ = ["MOST_FOUND", "REMEMBERED_SECONDS", "JournalBusy", "JournalSearch", "last_records"]

REMEMBERED_SECONDS: Final = 10.0
LAST_SECONDS: Final = 1.0
"""The same for the last records."""
MOST_REMEMBERED: Final = 50
MOST_WAITING: Final = 8
MOST_FOUND: Final = 500
"""Records of one message that are shown; the last ones."""
TAIL_BYTES: Final = 512 * 1024
"""Octets at the end of the journal that the last records are taken from."""

InThread = Callable[[Callable[[], "Sequence[JournalRecord]"]], "Deferred[Sequence[JournalRecord]]"]


class JournalBusy(Exception):
    """Too many searches are waiting."""


def last_records(
    directory: Path, count: int, kind: str = "", node: str = ""
) -> Sequence[JournalRecord]:
    """Return the last records that match, in the order of time.

    Args:
        directory: the journal.
        count: the maximum number.
        kind: the kind of the records; empty for all.
        node: a part of the node's name.
    """
    found: list[JournalRecord] = []
    left = TAIL_BYTES
    for path in reversed(segments(directory)):
        if left <= 0 or len(found) >= count:
            break
        file = open_segment(path, directory)
        if file is None:
            continue
        with file:
            most, left = left, left - os.fstat(file.fileno()).st_size
            for line in lines_backwards(file, most):
                with suppress(InvalidLine):
                    found += [
                        record
                        for record in reversed(list(read_line(line).records()))
                        if kind in ("", record.kind) and node in (record.node or "")
                    ]
                if len(found) >= count:
                    break
    return found[:count][::-1]


class JournalSearch:
    """Searches one journal.

    Args:
        directory: the journal.
        clock: the clock for what is remembered.
        in_thread: runs a function in a thread.
    """

    def __init__(self, directory: Path, clock: IReactorTime, in_thread: InThread) -> None:
        self._directory = directory
        self._clock = clock
        self._in_thread = in_thread
        self._lock = DeferredLock()  # of walks through the journal
        self._last_lock = DeferredLock()  # of looks at its end
        self._known: OrderedDict[object, tuple[float, Sequence[JournalRecord]]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<JournalSearch {self._directory}>"

    async def life(
        self, *, message_id: str | None = None, entry: int | None = None, digest: str | None = None
    ) -> Sequence[JournalRecord]:
        """Return the last records about a message, its copies and its parents.

        Raises:
            JournalBusy: too many searches are waiting.
        """

        def search() -> Sequence[JournalRecord]:
            found = find(self._directory, message_id=message_id, entry=entry, digest=digest)
            return found[-MOST_FOUND:]

        key = ("life", message_id, entry, digest)
        return await self._remembered(key, search, self._lock, REMEMBERED_SECONDS)

    async def last(self, kind: str = "", node: str = "") -> Sequence[JournalRecord]:
        """Return the last records that match.

        Raises:
            JournalBusy: too many searches are waiting.
        """
        key = ("last", kind, node)

        def search() -> Sequence[JournalRecord]:
            return last_records(self._directory, 200, kind, node)

        return await self._remembered(key, search, self._last_lock, LAST_SECONDS)

    async def _remembered(
        self,
        key: object,
        search: Callable[[], Sequence[JournalRecord]],
        lock: DeferredLock,
        seconds: float,
    ) -> Sequence[JournalRecord]:
        known = self._find(key, seconds)
        if known is not None:
            return known
        if len(lock.waiting) >= MOST_WAITING:
            raise JournalBusy("too many searches of the journal are waiting: try again in a moment")
        await lock.acquire()
        try:
            known = self._find(key, seconds)
            if known is not None:
                return known
            found = await self._in_thread(search)
            self._known[key] = self._clock.seconds(), found
            while len(self._known) > MOST_REMEMBERED:
                self._known.popitem(last=False)
            return found
        finally:
            lock.release()

    def _find(self, key: object, seconds: float) -> Sequence[JournalRecord] | None:
        known = self._known.get(key)
        if known is None or self._clock.seconds() - known[0] > seconds:
            self._known.pop(key, None)
            return None
        return known[1]
