# SPDX-License-Identifier: Apache-2.0
"""What an action leaves in memory: objects in cycles, and objects that stay."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from twisted.logger import globalLogPublisher

PART = 1 if os.environ.get("AMQPROUTE_HYPOTHESIS") == "long" else 4
"""The ordinary suite repeats the longest of these actions so many times less often, and allows for
so many times less to be kept."""


class Left(NamedTuple):
    """What is left of a number of actions.

    Attributes:
        cyclic: objects that only the garbage collector can free.
        kept: objects more than before that are still in use.
        kinds: the names of the types of those in cycles, the most frequent first.
    """

    cyclic: int
    kept: int
    kinds: tuple[tuple[str, int], ...]


def left_by(action: Callable[[], object], times: int, *, warm_up: int = 20) -> Left:
    """Count the objects that an action leaves behind.

    Args:
        action: what to do.
        times: how often, while no garbage is collected.
        warm_up: how often before, until caches are filled.
    """
    for _ in range(warm_up):
        action()
    was_enabled = gc.isenabled()
    # What is logged stays with whoever runs the tests: trial's worker processes remember it.
    observers, globalLogPublisher._observers = globalLogPublisher._observers, []
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        for _ in range(times):
            action()
        after = len(gc.get_objects())
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
    return Left(cyclic, after - before - cyclic, tuple(kinds.most_common(8)))


def resident_octets() -> int:
    """Return the memory of this process that is in RAM; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
