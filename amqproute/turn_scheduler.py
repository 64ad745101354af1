# SPDX-License-Identifier: Apache-2.0
"""Steps that cost about a millisecond each, shared out over the turns of the reactor.

A step of a TLS handshake is a signature or a chain of certificates to verify; an answer of a name
server ends attempts and begins others; a slice of input that waits is as much work
(`amqproute.net.connection_scheduler`). Strangers can ask for all of them as often as they like.
When they come in numbers, connections that want little must not wait for the sum: in one turn of
the reactor all steps together take about `TURN_SECONDS`. A step that takes longer is paid back by
the turns after it, which take none: what they do besides has its share of the processor whatever a
step costs, and where they do nothing else they are short. The kinds of steps are served one after
the other, and within a kind the sources: one address (`amqproute.log_rate_limit.source_of`) waits
behind itself, and not before others.

Where few steps are asked for, each is taken at once. What waits is bounded by whoever asks: by the
connections that may be mute (`amqproute.net.accept_policy`), by the questions under way at a time.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime

__all__ = ["MOST_SECONDS", "STEPS_IN_TURN", "STEP_SECONDS", "TURN_SECONDS", "TurnScheduler"]

TURN_SECONDS: Final = 0.001
"""Processor time of all steps in one turn, about."""
STEP_SECONDS: Final = 0.0005
"""What a step counts where processor time is not measured."""
MOST_SECONDS: Final = 50 * TURN_SECONDS
"""What is paid back of one step at most: a full collection of garbage may fall into it."""
STEPS_IN_TURN: Final = round(TURN_SECONDS / STEP_SECONDS)
"""How many such steps are taken in one turn."""

Step = Callable[[], None]


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
        self._spent = 0.0  # in this turn, and what former ones have spent too much
        self._is_taking = False  # a step is under way; what it asks for is one of its own
        self._waiting: OrderedDict[str, OrderedDict[str, deque[Step]]] = OrderedDict()
        self._call: IDelayedCall | None = None

    @property
    def waiting(self) -> int:
        """How many steps wait."""
        return sum([len(each) for sources in self._waiting.values() for each in sources.values()])

    def ask(self, kind: str, source: str, step: Step) -> None:
        """Have a step taken: now, if few were in this turn, or in a later turn.

        Args:
            kind: of step.
            source: whose it is.
            step: has to find out itself whether it is still wanted.
        """
        if self._spent < TURN_SECONDS and not self._waiting and not self._is_taking:
            self._arm()
            self._take(step)
        else:
            self.put_off(kind, source, step)

    def put_off(self, kind: str, source: str, step: Step) -> None:
        """Have a step taken in a later turn; see `ask`."""
        self._arm()
        sources = self._waiting.setdefault(kind, OrderedDict())
        sources.setdefault(source, deque()).append(step)

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
        # Even where nothing waits: until then the turn has what was spent in it.
        is_needed = bool(self._waiting or self._spent)
        self._call = self._clock.callLater(0, self._turn) if is_needed else None
        self._spent = max(0.0, self._spent - TURN_SECONDS)
        while self._waiting and self._spent < TURN_SECONDS:
            self._take(self._next())

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
