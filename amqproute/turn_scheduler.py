# SPDX-License-Identifier: Apache-2.0
"""Scheduling of steps that cost about a millisecond each over the turns of the reactor.

A step of a TLS handshake is a signature or a chain of certificates to verify; an answer of a name
server ends attempts and begins others; a slice of input that waits is as much work
(`amqproute.net.connection_scheduler`). Strangers can ask for all of them as often as they like.
When there are many, connections that need little must not wait for their sum: in one turn of the
reactor all steps together take about `TURN_SECONDS`. A step that takes longer is paid back by the
turns after it, which take none: other work in them has its share of the processor whatever a step
costs. A turn in which there was no other work pays everything back, as nobody waited. The kinds of
steps are served in rotation, and within a kind the sources: one address
(`amqproute.log_rate_limit.source_of`) waits behind itself, and not before others.

Management yields to messages: a message takes several turns, with waits for the disk in between,
and would meet a step in each. While messages pass, steps of the kinds in `YIELDING` therefore rest
after each step for as long as it took, by the clock and not by turns: they get at most half of the
time.

Work in many steps calls a `Pause` between them: what follows is a step.

If there are few steps, each is taken at once. The callers bound the number of waiting steps: by
the mute connections (`amqproute.net.accept_policy`), by the number of questions in progress, by
that of HTTP connections and requests.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import Final, Literal

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

__all__ = [
    "MOST_SECONDS",
    "STEPS_IN_TURN",
    "STEP_SECONDS",
    "TRAFFIC_SECONDS",
    "TURN_SECONDS",
    "YIELDING",
    "Pause",
    "StepKind",
    "TurnScheduler",
]

StepKind = Literal["input", "tls", "dns", "connect", "nodes", "http", "rows", "pages", "monitoring"]
YIELDING: Final[frozenset[StepKind]] = frozenset({"http", "rows", "pages", "monitoring"})
"""Kinds of steps that yield to messages."""

TURN_SECONDS: Final = 0.001
"""Processor time of all steps in one turn, about."""
STEP_SECONDS: Final = 0.0005
"""Assumed cost of a step where processor time is not measured."""
MOST_SECONDS: Final = 50 * TURN_SECONDS
"""Bound on what is paid back for one step, into which a full garbage collection may fall."""
STEPS_IN_TURN: Final = round(TURN_SECONDS / STEP_SECONDS)
"""Number of such steps in one turn."""
IDLE_SECONDS: Final = TURN_SECONDS / 10
"""Processor time outside of steps below which a turn had no other work."""
TRAFFIC_SECONDS: Final = 0.1
"""Time after input of AMQP for which messages count as passing."""

Step = Callable[[], None]
Pause = Callable[[], Awaitable[None]]
"""Called between two slices of long work; returns when it is the turn of the next one."""


class TurnScheduler:
    """The steps of one reactor.

    Args:
        clock: the reactor.
        processor_time: returns the seconds of processor time that this thread has used; None to
            count steps only, which then never rest.
    """

    def __init__(
        self, clock: IReactorTime, processor_time: Callable[[], float] | None = None
    ) -> None:
        self._clock = clock
        self._processor_time = processor_time
        self._seen = 0.0  # processor time at the end of the last step, or of a turn without one
        self._other = 0.0  # processor time outside of steps in this turn, before the last step
        self._spent = 0.0  # in this turn, and excess of earlier ones
        self._is_taking = False  # a step is running; what it asks for is a step of its own
        self._has_traffic = False  # since the last step that yields
        self._traffic_until = 0.0
        self._rests_until = 0.0
        self._waiting: OrderedDict[StepKind, OrderedDict[str, deque[Step]]] = OrderedDict()
        self._call: IDelayedCall | None = None

    @property
    def waiting(self) -> int:
        """Number of waiting steps."""
        return sum([len(each) for sources in self._waiting.values() for each in sources.values()])

    @property
    def is_in_step(self) -> bool:
        """Whether a step is running."""
        return self._is_taking

    def note_traffic(self) -> None:
        """Take note of input of AMQP, to which steps of the kinds in `YIELDING` yield."""
        self._has_traffic = True

    def ask(self, kind: StepKind, source: str, step: Step) -> None:
        """Run a step: now, if there were few in this turn, or in a later turn.

        Args:
            kind: the kind of step.
            source: that caused it.
            step: has to check itself whether it is still wanted.
        """
        if (
            self._spent < TURN_SECONDS
            and not self._is_taking
            and self._ready() is None
            and not self._rests(kind)
        ):
            try:
                self._take(kind, step)
            finally:
                self._arm()
        else:
            self.put_off(kind, source, step)

    def put_off(self, kind: StepKind, source: str, step: Step) -> None:
        """Run a step when it is its turn, never at once; see `ask`."""
        sources = self._waiting.setdefault(kind, OrderedDict())
        sources.setdefault(source, deque()).append(step)
        self._arm()

    def pause(self, kind: StepKind, source: str) -> Deferred[None]:
        """Return a Deferred that fires when it is its turn: what follows is a step."""
        later: Deferred[None] = Deferred()

        def go_on() -> None:
            if not later.called:  # cancelled meanwhile
                later.callback(None)

        self.put_off(kind, source, go_on)
        return later

    def _rests(self, kind: StepKind) -> bool:
        # The clock may have been set back meanwhile.
        return kind in YIELDING and 0 < self._rests_until - self._clock.seconds() <= MOST_SECONDS

    def _ready(self) -> StepKind | None:
        """Return the kind of the next step; None if none waits, or those that wait rest."""
        for kind in self._waiting:
            if not self._rests(kind):
                return kind
        return None

    def _arm(self) -> None:
        """Have a turn called, if anything waits or the time of this turn is to be forgotten."""
        call = self._call
        if self._ready() is not None or (self._spent and not self._waiting):
            wait = 0.0
        elif self._waiting:
            wait = min(MOST_SECONDS, max(0.0, self._rests_until - self._clock.seconds()))
        else:
            return
        if call is None:
            self._call = self._clock.callLater(wait, self._turn)
        elif not wait and call.getTime() > self._clock.seconds():
            call.reset(0)

    def _take(self, kind: StepKind, step: Step) -> None:
        processor_time = self._processor_time
        began = 0.0 if processor_time is None else processor_time()
        self._is_taking = True
        try:
            step()
        finally:
            self._is_taking = False
            if processor_time is None:
                self._spent += STEP_SECONDS
            else:
                self._other += began - self._seen
                self._seen = processor_time()
                took = min(MOST_SECONDS, self._seen - began)
                self._spent = min(MOST_SECONDS, self._spent + took)
                if kind in YIELDING:
                    self._rest(took)

    def _rest(self, seconds: float) -> None:
        now = self._clock.seconds()
        if self._has_traffic:
            self._has_traffic = False
            self._traffic_until = now + TRAFFIC_SECONDS
        if now < self._traffic_until:
            self._rests_until = now + seconds

    def _turn(self) -> None:
        self._call = None
        self._pay_back()
        try:
            while self._spent < TURN_SECONDS:
                kind = self._ready()
                if kind is None:
                    break
                self._take(kind, self._next(kind))
        finally:
            # Also if nothing waits: until then `_spent` counts for the present turn.
            self._arm()

    def _pay_back(self) -> None:
        """Forget the time of the last turn, and of earlier ones if nobody waited for it."""
        self._spent = max(0.0, self._spent - TURN_SECONDS)
        if self._processor_time is not None:
            seen, self._seen = self._seen, self._processor_time()
            other, self._other = self._other + self._seen - seen, 0.0
            if other < IDLE_SECONDS:
                self._spent = 0.0

    def _next(self, kind: StepKind) -> Step:
        """Return the next step of a kind; the kind and its source go behind the others."""
        sources = self._waiting.pop(kind)
        source, steps = sources.popitem(last=False)
        step = steps.popleft()
        if steps:
            sources[source] = steps
        if sources:
            self._waiting[kind] = sources
        return step
