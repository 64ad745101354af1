# SPDX-License-Identifier: Apache-2.0
"""Few answers of name servers in one turn of the reactor."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime

__all__ = ["ANSWERS_PER_TURN", "AnswerScheduler"]

ANSWERS_PER_TURN: Final = 2
"""An answer costs a few milliseconds with what it leads to: a message that is taken, a failed
attempt, the next question. Dozens may be under way, and all of them may arrive together."""


class AnswerScheduler:
    """The line of answers that wait for their turn, in the order of their arrival.

    Args:
        clock: the reactor's.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._line: deque[Callable[[], None]] = deque()
        self._left = ANSWERS_PER_TURN
        self._call: IDelayedCall | None = None

    def __len__(self) -> int:
        return len(self._line)

    def take(self, read: Callable[[], None]) -> None:
        """Have an answer read: at once if few were read in this turn, or in a later one."""
        if self._line or not self._left:
            self._line.append(read)
            return
        self._left -= 1
        self._arm()
        read()

    def _arm(self) -> None:
        if self._call is None:
            self._call = self._clock.callLater(0, self._next)

    def _next(self) -> None:
        self._call = None
        self._left = ANSWERS_PER_TURN
        while self._line and self._left:
            self._left -= 1
            self._arm()
            self._line.popleft()()
