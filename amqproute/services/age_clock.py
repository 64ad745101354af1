# SPDX-License-Identifier: Apache-2.0
"""The clock by which messages age: it follows the wall clock, except for jumps.

The waiting time of a message is counted with the monotonic clock while the process lives. Small
corrections of the wall clock, like those of a time daemon, are followed; a jump by more than
`STEP_SECONDS` is not, in either direction: lifetimes, holds and receipts continue as if it had not
happened, the log and ``amqproute status`` report it, and an operator decides:

==============================  ==============================================================
the wall clock is wrong         set it right: once it fits again, there are no consequences
the wall clock is right now     ``amqproute clock accept``: it is followed from then on. Lifetimes
                                that a jump forward would have ended are longer by the jump
==============================  ==============================================================

A jump ahead by a day at most that lasts for ten minutes is accepted automatically: a virtual
machine was paused. A jump back never is: ahead and back again, accepted each time, would let
messages live for ever.

A restart cannot be measured: there the wall clock is trusted, and every overdue message to another
domain gets one attempt before it expires (`amqproute.broker.expiry`).

Time during which the machine is suspended counts, if the system has a clock for it
(``CLOCK_BOOTTIME``); messages overdue afterwards get one attempt first, as after a restart.

Operation ``ACCEPT-TIME`` needs the right `manage` on the management node; entity type ``clock``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.services.management_node import (
    CONFLICT,
    OK,
    ManagementReply,
    ManagementRequest,
    ManagementService,
)

__all__ = ["AgeClock", "ClockWatch", "awake_clock", "register"]

STEP_SECONDS: Final = 60.0
"""Seconds of the largest correction that is followed at once, as a time daemon makes it."""
LOOK_SECONDS: Final = 5.0
"""Seconds between two comparisons of the clocks while nobody needs the time."""
SLEEP_SECONDS: Final = 86_400.0
"""Seconds of the largest jump ahead that is accepted automatically: a paused virtual machine."""
SETTLE_SECONDS: Final = 600.0
"""Seconds that such a jump must last, so that a short error of the clock is corrected before."""
REMIND_SECONDS: Final = 3600.0
"""Seconds between two log lines about a jump that awaits an operator."""
ACCEPT: Final = "amqproute clock accept"


def awake_clock() -> Callable[[], float]:
    """Return a monotonic clock that counts while the machine is suspended, if there is one."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic if boot is None else partial(time.clock_gettime, boot)


class AgeClock:
    """The time scale by which messages age.

    Args:
        wall_ns: the wall clock, ns since the epoch.
        seconds: a monotonic clock.
        running: one that stops while the machine is suspended.

    Attributes:
        when_slept: called when the machine was suspended for more than `STEP_SECONDS`, before
            anything can be judged by the new time.
        jump_ms: offset of the wall clock since an unaccepted jump, positive if it is ahead; 0 while
            both agree.
    """

    __slots__ = (
        "_asleep",
        "_base_ms",
        "_running",
        "_seconds",
        "_since",
        "_wall_ns",
        "jump_ms",
        "when_slept",
    )

    def __init__(
        self,
        wall_ns: Callable[[], int],
        seconds: Callable[[], float],
        running: Callable[[], float] = time.monotonic,
    ) -> None:
        self.when_slept: Callable[[], object] = lambda: None
        self._running = running
        self._asleep = seconds() - running()
        self._wall_ns = wall_ns
        self._seconds = seconds
        self._base_ms = wall_ns() // 1_000_000
        self._since = seconds()
        self.jump_ms = 0

    def now_ms(self) -> int:
        """Return the time, ms since the epoch."""
        wall_ms = self._wall_ns() // 1_000_000
        seconds = self._seconds()
        before, self._asleep = self._asleep, seconds - self._running()
        if self._asleep - before > STEP_SECONDS:
            self.when_slept()
        counted_ms = self._base_ms + round((seconds - self._since) * 1000)
        ahead_ms = wall_ms - counted_ms
        if abs(ahead_ms) > STEP_SECONDS * 1000:
            self.jump_ms = ahead_ms
            return counted_ms
        self._base_ms, self._since, self.jump_ms = wall_ms, seconds, 0
        return wall_ms

    def accept(self, jump_ms: int) -> None:
        """Accept a jump; later changes of the wall clock are judged again."""
        self._base_ms += jump_ms
        self.now_ms()


class ClockWatch:
    """Checks the clock periodically, and reports jumps.

    Args:
        clock: the clock.
        reactor: the reactor for the timer.
        changed: called when a jump is noticed, is over, or was accepted.
        postpone: called with ms when a jump forward is accepted: extends the lifetimes of all
            messages; returns a Deferred that fires when that is durable.
    """

    log = Logger()

    def __init__(
        self,
        clock: AgeClock,
        reactor: IReactorTime,
        changed: Callable[[], object],
        postpone: Callable[[int], Deferred[None]],
    ) -> None:
        self.clock = clock
        self._reactor = reactor
        self._changed = changed
        self._postpone = postpone
        self._told_ms = 0
        self._told_at = 0.0
        self._stands_since = 0.0
        self._is_accepting = False
        self._call: IDelayedCall | None = None

    def start(self) -> None:
        """Start the checks."""
        self._call = self._reactor.callLater(LOOK_SECONDS, self._tick)

    def stop(self) -> None:
        """Stop the checks."""
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = None

    def _tick(self) -> None:
        self._call = self._reactor.callLater(LOOK_SECONDS, self._tick)
        self.look()

    def look(self) -> None:
        """Compare the clocks, and log changes."""
        self.clock.now_ms()
        jump_ms = self.clock.jump_ms
        is_news = bool(jump_ms) != bool(self._told_ms) or (
            abs(jump_ms - self._told_ms) > STEP_SECONDS * 1000
        )
        is_due = jump_ms and self._reactor.seconds() - self._told_at >= REMIND_SECONDS
        if is_news:
            self._stands_since = self._reactor.seconds()
        if not (is_news or is_due):
            if self._settles_in() == 0:
                self._stands_since = self._reactor.seconds()  # if the store does not take it
                self.accept()
            return
        self._told_ms, self._told_at = jump_ms, self._reactor.seconds()
        if jump_ms:
            self.log.warn("{words}", words=self.status())
        else:
            self.log.info("the wall clock fits again; nothing has expired because of its jump")
        if is_news:
            self._changed()

    def _settles_in(self) -> float | None:
        """Return the seconds until a jump is accepted automatically; None for never."""
        if not 0 < self.clock.jump_ms <= SLEEP_SECONDS * 1000:
            return None
        return max(0.0, self._stands_since + SETTLE_SECONDS - self._reactor.seconds())

    def status(self) -> str:
        """Describe the problem and its remedy; empty if there is none."""
        jump_ms = self.clock.jump_ms
        if not jump_ms:
            return ""
        words = (
            f"the wall clock jumped {'ahead' if jump_ms > 0 else 'back'} by "
            f"{abs(jump_ms) // 1000} s: nothing expires for that; set it right, or if it is right "
            f"now: {ACCEPT}"
        )
        seconds = self._settles_in()
        return words if seconds is None else f"{words} (done by itself in {seconds:.0f} s)"

    def row(self) -> Mapping[str, object]:
        """Return the clock's row for operators."""
        now_ms = self.clock.now_ms()
        return {
            "name": "clock",
            "type": "clock",
            "state": "jumped" if self.clock.jump_ms else "fits",
            "jump-ms": self.clock.jump_ms,
            "now": _moment(now_ms),
            "wall": _moment(now_ms + self.clock.jump_ms),
            "reason": self.status(),
        }

    def accept(self) -> Deferred[ManagementReply] | ManagementReply:
        """Follow the wall clock from now on."""
        self.clock.now_ms()
        jump_ms = self.clock.jump_ms
        if not jump_ms:
            return ManagementReply.of(
                CONFLICT, "the wall clock has not jumped: there is nothing to accept"
            )
        if self._is_accepting:
            return ManagementReply.of(CONFLICT, "the wall clock is being accepted")
        if jump_ms < 0:
            return self._accepted(None, jump_ms)
        self._is_accepting = True
        # Lifetimes first: between the two steps they are too long, never too short.
        done = self._postpone(jump_ms)
        return done.addCallbacks(self._accepted, self._failed, (jump_ms,))

    def _accepted(self, _: object, jump_ms: int) -> ManagementReply:
        self._is_accepting = False
        self.clock.accept(jump_ms)
        self._told_ms = 0
        self.log.warn("the wall clock was accepted as it is, {jump} s off", jump=jump_ms // 1000)
        self._changed()
        return ManagementReply.of(OK, "accepted", dict(self.row()))

    def _failed(self, failure: Failure) -> ManagementReply:
        self._is_accepting = False
        self.log.failure("the wall clock could not be accepted", failure)
        return ManagementReply.of(
            CONFLICT, f"the store does not take it: {failure.getErrorMessage()}"
        )


def _moment(milliseconds: int) -> str:
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError):
        return f"{milliseconds} ms since 1970"
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def register(service: ManagementService, watch: ClockWatch) -> None:
    """Register the operations on the clock."""

    def accept(request: ManagementRequest) -> ManagementReply | Deferred[ManagementReply]:
        watch.log.info("{principal}: ACCEPT-TIME", principal=str(request.principal))
        return watch.accept()

    service.offer("ACCEPT-TIME", accept)
    service.show("clock", lambda: [watch.row()])
