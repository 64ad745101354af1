# SPDX-License-Identifier: Apache-2.0
"""Scheduling of steps that cost about a millisecond each over the turns of the reactor.

A step of a TLS handshake is a signature or a chain of certificates to verify; an answer of a name
server ends attempts and begins others; a slice of input that waits is as much work
(`amqproute.net.connection_scheduler`). Strangers can ask for all of them as often as they like.
When there are many, connections that need little must not wait for their sum: in one turn of the
reactor all steps together take about `TURN_SECONDS`. A step that takes longer is paid back by the
turns after it, which take none: other work in them has its share of the processor whatever a step
costs, and without other work they are short. The kinds of steps are served in rotation, and within
a kind the sources: one address (`amqproute.log_rate_limit.source_of`) waits behind itself, and not
before others.

Work in many steps calls a `Pause` between them: what follows is a step.

If there are few steps, each is taken at once. The callers bound the number of waiting steps: by
the mute connections (`amqproute.net.accept_policy`), by the number of questions in progress, by
that of HTTP requests.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

__all__ = [
    "MOST_SECONDS",
    "STEPS_IN_TURN",
    "STEP_SECONDS",
    "TURN_SECONDS",
    "Pause",
    "TurnScheduler",
]

TURN_SECONDS: Final = 0.001
"""Processor time of all steps in one turn, about."""
STEP_SECONDS: Final = 0.0005
"""Assumed cost of a step where processor time is not measured."""
MOST_SECONDS: Final = 50 * TURN_SECONDS
"""Bound on what is paid back for one step, into which a full garbage collection may fall."""
STEPS_IN_TURN: Final = round(TURN_SECONDS / STEP_SECONDS)
"""Number of such steps in one turn."""

Step = Callable[[], None]
Pause = Callable[[], Awaitable[None]]
"""Called between two slices of long work; returns when it is the turn of the next one."""


class TurnScheduler:
    """The steps of one reactor.

    Args:
        clock: the reactor.
        processor_time: returns the seconds of processor time that this thread has used; None to
            count steps only.
    """

    def __init__(
        self, clock: IReactorTime, processor_time: Callable[[], float] | None = None
    ) -> None:
        self._clock = clock
        self._processor_time = processor_time
        self._spent = 0.0  # in this turn, and excess of earlier ones
        self._is_taking = False  # a step is running; what it asks for is a step of its own
        self._waiting: OrderedDict[str, OrderedDict[str, deque[Step]]] = OrderedDict()
        self._call: IDelayedCall | None = None

    @property
    def waiting(self) -> int:
        """Number of waiting steps."""
        return sum([len(each) for sources in self._waiting.values() for each in sources.values()])

    def ask(self, kind: str, source: str, step: Step) -> None:
        """Run a step: now, if there were few in this turn, or in a later turn.

        Args:
            kind: the kind of step.
            source: that caused it.
            step: has to check itself whether it is still wanted.
        """
        if self._spent < TURN_SECONDS and not self._waiting and not self._is_taking:
            self._arm()
            self._take(step)
        else:
            self.put_off(kind, source, step)

    def put_off(self, kind: str, source: str, step: Step) -> None:
        """Run a step in a later turn; see `ask`."""
        self._arm()
        sources = self._waiting.setdefault(kind, OrderedDict())
        sources.setdefault(source, deque()).append(step)

    def pause(self, kind: str, source: str) -> Deferred[None]:
        """Return a Deferred that fires in a later turn: what follows is a step, see `put_off`."""
        later: Deferred[None] = Deferred()

        def go_on() -> None:
            if not later.called:  # cancelled meanwhile
                later.callback(None)

        self.put_off(kind, source, go_on)
        return later

    def _arm(self) -> None:
        if self._call is None:
            self._call = self._clock.callLater(0, self._turn)

    def _take(self, step: Step) -> None:
        processor_time = self._processor_time
        began = 0.0 if processor_time is None else processor_time()
        self._is_taking = True
        try:
            step()
        finally:
            self._is_taking = False
            took = STEP_SECONDS if processor_time is None else processor_time() - began
            self._spent = min(MOST_SECONDS, self._spent + took)

    def _turn(self) -> None:
        self._call = None
        self._spent = max(0.0, self._spent - TURN_SECONDS)
        try:
            while self._waiting and self._spent < TURN_SECONDS:
                self._take(self._next())
        finally:
            # Also if nothing waits: until then `_spent` counts for the present turn.
            if self._waiting or self._spent:
                self._arm()

    def _next(self) -> Step:
        """Return the next step; its kind and its source go behind the others."""
        kind, sources = self._waiting.popitem(last=False)
        source, steps = sources.popitem(last=False)
        step = steps.popleft()
        if steps:
            sources[source] = steps
        if sources:
            self._waiting[kind] = sources
        return step
