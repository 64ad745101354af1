# SPDX-License-Identifier: Apache-2.0
"""The time of garbage collections: thresholds, a clock, and a test double."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

import amqproute
from amqproute.daemon.garbage import (
    GROWN_OCTETS,
    LONGEST_WAIT_SECONDS,
    PAUSE_SHARE,
    PRESSING,
    FullCollections,
    Interpreter,
    is_due,
    set_thresholds,
)

ROOT = Path(amqproute.__file__).parent.parent

BURST = """
from amqproute.daemon.garbage import Interpreter
interpreter = Interpreter()
print(interpreter.resident())
# One in eight stays, so that nothing could be cut off at the end of the heap.
burst = [b"%d" % n + b"x" * 100_000 for n in range(800)]
kept = burst[::8]
print(interpreter.resident())
free = interpreter.free()
del burst
print(interpreter.free() - free)
interpreter.collect()
print(interpreter.resident())
"""


class Heap:
    """A garbage collector whose collections take time in proportion to what there is.

    Attributes:
        collected: at which seconds.
        made: middle collections since the last full one.
        octets: of memory that the process has.
        freed: of these, what a collection gives back.
        unused: octets that the C library has free.
    """

    def __init__(self, clock: Clock, pause: float) -> None:
        self.collected: list[float] = []
        self.made = 0
        self.pause = pause
        self.used = 0.0
        self.spent = 0.0
        self.octets = 100 << 20
        self.freed = 0
        self.unused = 0
        self._clock = clock

    def passes(self) -> int:
        """See `Garbage`."""
        return self.made

    def collect(self) -> int:
        """See `Garbage`."""
        self.collected.append(self._clock.seconds())
        self.spent += self.pause
        self.used += self.pause
        self.made = 0
        self.octets -= self.freed
        self.freed = 0
        return 7

    def resident(self) -> int:
        """See `Garbage`."""
        return self.octets

    def free(self) -> int:
        """See `Garbage`."""
        return self.unused

    def processor(self) -> float:
        """The processor time."""
        return self.used

    def timer(self) -> float:
        """The time that passes within a collection."""
        return self.spent


class CollectionTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()

    def collections(self, seconds: int, *, passes: float, busy: float, pause: float) -> Heap:
        """Let time pass; return what was collected when.

        Args:
            seconds: for so long.
            passes: middle collections in a second.
            busy: the share of a processor that the process uses.
            pause: seconds that a full collection takes.
        """
        heap = Heap(self.clock, pause)
        full = FullCollections(self.clock, heap, heap.processor, heap.timer)
        full.start()
        made = 0.0
        for _ in range(seconds):
            made += passes
            heap.made += int(made)
            made -= int(made)
            heap.used += busy
            self.clock.advance(1)
        full.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(full.count, len(heap.collected))
        return heap

    def test_growth(self) -> None:
        """Memory that a burst has left is given back in the next quiet moment, once."""
        heap = Heap(self.clock, pause=0.01)
        full = FullCollections(self.clock, heap, heap.processor, heap.timer)
        full.start()
        heap.octets += GROWN_OCTETS + (20 << 20)
        heap.freed = 20 << 20
        for busy in (1.0, 1.0, 0.1, 0.0, 0.0):
            heap.used += busy
            self.clock.advance(1)
        full.stop()
        self.assertEqual(heap.collected, [3.0])

    def test_after_a_burst(self) -> None:
        """Memory freed after a burst is given back, also after a collection at its peak."""
        heap = Heap(self.clock, pause=0.01)
        full = FullCollections(self.clock, heap, heap.processor, heap.timer)
        full.start()
        heap.octets += 200 << 20
        heap.made = PRESSING
        for busy in (1.0, 1.0, 0.1, 0.1, 0.1):
            heap.used += busy
            self.clock.advance(1)
            if busy == 1.0:
                heap.freed = 200 << 20  # in the middle of the heap, and no object is garbage
        full.stop()
        self.assertEqual(heap.collected, [1.0, 3.0])
        self.assertEqual(heap.octets, 100 << 20)

    def test_freed_at_leisure(self) -> None:
        """Memory freed without work, as when an attacker leaves, is given back, once."""
        heap = Heap(self.clock, pause=0.01)
        full = FullCollections(self.clock, heap, heap.processor, heap.timer)
        full.start()
        for second in range(10):
            if second == 4:
                heap.unused += GROWN_OCTETS  # it stays free after it was given back
            self.clock.advance(1)
        full.stop()
        self.assertEqual(heap.collected, [5.0])

    def test_the_process(self) -> None:
        """The memory of a burst of octets goes back to the system."""
        program = [sys.executable, "-c", BURST]
        done = subprocess.run(program, capture_output=True, text=True, check=True, cwd=ROOT)
        before, within, freed, after = (int(each) >> 20 for each in done.stdout.split())
        self.assertGreater(within - before, 60)
        self.assertGreater(freed, 50)
        self.assertLess(after - before, 30)

    def test_nothing_to_do(self) -> None:
        """A process without allocations collects every few minutes only."""
        heap = self.collections(1000, passes=0, busy=0.0, pause=0.01)
        self.assertEqual(len(heap.collected), int(1000 // LONGEST_WAIT_SECONDS))

    def test_quiet(self) -> None:
        """A process with time collects what has piled up."""
        heap = self.collections(100, passes=0.125, busy=0.1, pause=0.01)
        self.assertEqual(len(heap.collected), 12)

    def test_busy(self) -> None:
        """A busy one waits, until there may be too much."""
        heap = self.collections(100, passes=0.25, busy=0.9, pause=0.01)
        self.assertEqual(len(heap.collected), int(25 // PRESSING))

    def test_long_pauses(self) -> None:
        """However much garbage there is, collecting it takes a hundredth of the time."""
        heap = self.collections(2000, passes=50, busy=1.0, pause=1.0)
        self.assertLessEqual(heap.spent, 2000 * PAUSE_SHARE + 1)
        self.assertGreater(len(heap.collected), 15)

    @given(st.integers(0, 100), st.floats(0, 2), st.floats(0, 10_000), st.floats(0, 100))
    def test_share(self, passes: int, busy: float, since: float, pause: float) -> None:
        """Never within the time that the last pause has to be worth."""
        if is_due(passes, busy, since, pause):
            self.assertLessEqual(pause, since * PAUSE_SHARE)

    def test_interpreter(self) -> None:
        """The real collector counts its passes and frees cycles; it never collects all itself."""
        self.addCleanup(gc.set_threshold, *gc.get_threshold())
        set_thresholds()
        self.assertGreater(gc.get_threshold()[2], 1_000_000)
        real = Interpreter()
        real.collect()
        self.assertEqual(real.passes(), 0)
        gc.collect(1)
        self.assertEqual(real.passes(), 1)
        cycle: list[object] = []
        cycle.append(cycle)
        del cycle
        self.assertGreaterEqual(real.collect(), 1)
