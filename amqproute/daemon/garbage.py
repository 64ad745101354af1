# SPDX-License-Identifier: Apache-2.0
"""Scheduling of garbage collection.

Almost nothing here is in cycles: a message, a delivery, a look-up that fails, a connection that has
ended with its sessions and links is freed by its last reference. Cycles remain only where something
ends in the middle of an operation, and in libraries. CPython would walk over the youngest objects
every 700 allocations and over all of them after a quarter as many more; with messages that wait for
their commit that is wasted work. So the young generations are collected seldom, and the oldest one
not by the interpreter but by `FullCollections`: when the process is idle, and often enough that
garbage never accumulates to a noticeable pause.

Memory that was freed stays with the C library until it is asked for: a burst of large messages
would leave the process as large as it was at the peak. So a full collection ends with
``malloc_trim``, and one is also due in a quiet moment when the process has grown or was busy, or
when much has been freed since the last one: an attacker that leaves causes no load.

What a collection costs was measured (``python -m benchmarks.garbage``): about 0.1 µs for each
object that is alive, 0.3 µs for each that is garbage. Objects that exist when the daemon has
started are frozen: no collection walks over them.
"""

from __future__ import annotations

import ctypes
import gc
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Final, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

__all__ = ["FullCollections", "Garbage", "Interpreter", "is_due", "set_thresholds"]

YOUNG_OBJECTS: Final = 20_000
"""Allocations between two collections of the youngest generation: 2 ms where all are alive. A
burst of messages makes some ten thousand objects that live until their commit."""
YOUNG_COLLECTIONS: Final = 5
"""Of these between two of the middle generation: at most 100,000 objects, 5 ms where all are
alive."""
NEVER: Final = 1_000_000_000
"""Collections of the middle generation before the interpreter collects all by itself."""

LOOK_SECONDS: Final = 1.0
"""Seconds between two checks whether a full collection is due."""
QUIET_SHARE: Final = 0.25
"""Share of a processor below which the process counts as idle."""
PRESSING: Final = 5
"""Middle collections after which a full one does not wait for an idle moment: half a million
objects may have survived them."""
LONGEST_WAIT_SECONDS: Final = 300.0
"""Seconds after which a full collection runs in any case, after any noticeable allocation."""
PAUSE_SHARE: Final = 0.01
"""Largest share of the time for full collections, measured over the last two."""
GROWN_OCTETS: Final = 8 * 1024 * 1024
"""Growth of the resident memory, or of what the C library has free, since the last full collection
that makes the next one due in a quiet moment, whatever the number of objects: one object may be a
megabyte."""
LONG_PAUSE_SECONDS: Final = 0.5
"""Seconds of a full collection above which it is logged."""


class Garbage(Protocol):
    """The garbage collector: `Interpreter`, or a test's double."""

    def passes(self) -> int:
        """Return the middle collections since the last full one."""

    def collect(self) -> int:
        """Collect all generations and trim memory; return the number of garbage objects."""

    def resident(self) -> int:
        """Return the resident memory of the process in octets; 0 if unknown."""

    def free(self) -> int:
        """Return the free octets in the C library's heap, trimmed or not; 0 if unknown."""


class MallocStatistics(ctypes.Structure):
    """``struct mallinfo2`` of glibc 2.33 and later."""

    _fields_: ClassVar = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd",
            "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


class Interpreter:
    """CPython's own, and the C library's memory."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        self._trim = getattr(library, "malloc_trim", None)  # of glibc only
        self._info = getattr(library, "mallinfo2", None)
        if self._info is not None:
            self._info.restype = MallocStatistics
        self._statistics = Path("/proc/self/statm")
        self._page = os.sysconf("SC_PAGE_SIZE")

    def passes(self) -> int:
        """See `Garbage`."""
        return gc.get_count()[2]

    def collect(self) -> int:
        """See `Garbage`."""
        found = gc.collect()
        if self._trim is not None:
            self._trim(0)
        return found

    def resident(self) -> int:
        """See `Garbage`."""
        try:
            return int(self._statistics.read_text().split()[1]) * self._page
        except OSError:  # not Linux
            return 0

    def free(self) -> int:
        """See `Garbage`."""
        return int(self._info().fordblks) if self._info is not None else 0


def set_thresholds() -> None:
    """Restrict the interpreter to the young generations, and to rare collections."""
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_COLLECTIONS, NEVER)


def is_due(
    passes: int,
    busy: float,
    since: float,
    pause: float,
    grown: int = 0,
    was_busy: bool = False,
) -> bool:
    """Decide whether a full collection is due.

    Args:
        passes: middle collections since the last full one.
        busy: the share of a processor that the process has used of late, from 0 to 1.
        since: seconds since the last full collection.
        pause: seconds that it took.
        grown: octets by which the process has grown, or that it has freed, since then.
        was_busy: whether it has been busy since then: its free memory has not been trimmed.
    """
    if since * PAUSE_SHARE < pause:
        return False
    if passes >= PRESSING or since >= LONGEST_WAIT_SECONDS:
        return True
    return (passes > 0 or grown >= GROWN_OCTETS or was_busy) and busy < QUIET_SHARE


class FullCollections:
    """Runs full collections from time to time.

    Args:
        clock: the clock for the checks.
        garbage: the collector.
        processor: the seconds of processor time that the process has used (`time.process_time`).
        timer: seconds, for the length of a collection (`time.perf_counter`).

    Attributes:
        count: full collections so far.
        longest: seconds of the longest.
    """

    log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        garbage: Garbage | None = None,
        processor: Callable[[], float] = time.process_time,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.count = 0
        self.longest = 0.0
        self._clock = clock
        self._garbage = garbage or Interpreter()
        self._processor = processor
        self._timer = timer
        self._pause = 0.0
        self._resident = self._garbage.resident()
        self._free = self._garbage.free()
        self._was_busy = False
        self._collected_at = self._looked_at = clock.seconds()
        self._used = processor()
        self._next: IDelayedCall | None = None

    def start(self) -> None:
        """Start the checks."""
        self._next = self._clock.callLater(LOOK_SECONDS, self._look)

    def stop(self) -> None:
        """Stop the checks."""
        if self._next is not None and self._next.active():
            self._next.cancel()
        self._next = None

    def _look(self) -> None:
        self._next = self._clock.callLater(LOOK_SECONDS, self._look)
        now, used = self._clock.seconds(), self._processor()
        busy = (used - self._used) / max(now - self._looked_at, 1e-3)
        self._looked_at, self._used = now, used
        resident, free = self._garbage.resident(), self._garbage.free()
        self._resident, self._free = min(self._resident, resident), min(self._free, free)
        since = now - self._collected_at
        grown = max(resident - self._resident, free - self._free)
        self._was_busy = self._was_busy or busy >= QUIET_SHARE
        if is_due(self._garbage.passes(), busy, since, self._pause, grown, self._was_busy):
            self._collect()

    def _collect(self) -> None:
        began = self._timer()
        found = self._garbage.collect()
        self._pause = self._timer() - began
        self._resident, self._free = self._garbage.resident(), self._garbage.free()
        self._was_busy = False
        self.count += 1
        self.longest = max(self.longest, self._pause)
        self._collected_at, self._used = self._clock.seconds(), self._processor()
        say = self.log.warn if self._pause > LONG_PAUSE_SECONDS else self.log.debug
        say(
            "collecting garbage took {milliseconds} ms; {found} objects were garbage",
            milliseconds=round(1000 * self._pause),
            found=found,
        )
