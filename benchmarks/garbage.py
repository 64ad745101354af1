# SPDX-License-Identifier: Apache-2.0
"""Measure the duration of a garbage collection by the number of objects.

Run as ``python -m benchmarks.garbage``. The objects are of the kinds that a broker has: instances
with slots, lists and dictionaries. What was made before is frozen, as in the daemon.
"""

from __future__ import annotations

import gc
import sys
import time
from typing import Final

NUMBERS: Final = (20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000)


class Node:
    """An object with slots."""

    __slots__ = ("items", "names", "other")

    def __init__(self, number: int) -> None:
        self.items: list[object] = [number]
        self.names: dict[str, object] = {"items": self.items}
        self.other: Node | None = None


def alive(objects: int) -> float:
    """Return the seconds of a collection while this many objects are in use."""
    kept = [Node(number) for number in range(objects // 3)]
    gc.collect()
    best = min(_timed() for _ in range(3))
    assert kept
    return best


def garbage(objects: int) -> float:
    """Return the seconds of a collection of this many objects in cycles."""
    for number in range(objects // 3):
        node = Node(number)
        node.other = node
        node.items.append(node)
    return _timed()


def _timed() -> float:
    began = time.perf_counter()
    gc.collect()
    return time.perf_counter() - began


def main() -> int:
    """Print the table."""
    gc.collect()
    gc.freeze()
    gc.disable()
    print("| objects | all in use, ms | all garbage, ms |\n|---:|---:|---:|")
    for objects in NUMBERS:
        print(f"| {objects:,} | {1000 * alive(objects):.1f} | {1000 * garbage(objects):.1f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
