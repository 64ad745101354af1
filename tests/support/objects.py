# SPDX-License-Identifier: Apache-2.0
"""Objects that an action leaves in memory: in reference cycles, or still in use."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from twisted.logger import globalLogPublisher

PART = 1 if os.environ.get("AMQPROUTE_HYPOTHESIS") == "long" else 4
"""The ordinary suite divides the longest repetitions by this number, and the allowed remainder
too."""


class Left(NamedTuple):
    """The objects left by a number of actions.

    Attributes:
        cyclic: objects that only the garbage collector can free.
        kept: additional objects that are still in use.
        octets: growth of the resident memory of the process.
        kinds: the names of the types of cyclic ones, the most frequent first.
    """

    cyclic: int
    kept: int
    octets: int
    kinds: tuple[tuple[str, int], ...]


def left_by(action: Callable[[], object], times: int, *, warm_up: int = 20) -> Left:
    """Count the objects that an action leaves behind.

    What is there before, a million objects where other tests have run, is frozen, and stays so: it
    is counted, but neither listed nor searched for cycles, which would take longer than actions.

    Args:
        action: the action.
        times: repetitions, without garbage collection.
        warm_up: repetitions before, to fill caches.
    """
    for _ in range(warm_up):
        action()
    was_enabled = gc.isenabled()
    # Logged events stay in memory with trial's worker processes.
    observers, globalLogPublisher._observers = globalLogPublisher._observers, []
    gc.disable()
    gc.collect()  # of those that are not frozen yet
    gc.freeze()
    try:
        before = gc.get_freeze_count()
        resident = resident_octets()
        for _ in range(times):
            action()
        octets = resident_octets() - resident
        after = gc.get_freeze_count() + len(gc.get_objects())
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        kinds = Counter(type(each).__name__ for each in gc.garbage)
        cyclic = len(gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        globalLogPublisher._observers = observers
        if was_enabled:
            gc.enable()
    return Left(cyclic, after - before - cyclic, octets, tuple(kinds.most_common(8)))


def resident_octets() -> int:
    """Return the resident memory of this process; 0 if the system does not report it."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
