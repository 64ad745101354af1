# SPDX-License-Identifier: Apache-2.0
"""Calls to run once in the next reactor turn."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime


class CallOnce:
    """Calls methods in the reactor's next turn, once however often it is asked for.

    Args:
        clock: the reactor's.
    """

    __slots__ = ("_calls", "_clock")

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._calls: dict[Callable[[], object], IDelayedCall] = {}

    def call(self, function: Callable[[], object]) -> None:
        """Have it called, unless it is going to be."""
        if function not in self._calls:
            self._calls[function] = self._clock.callLater(0, self._run, function)

    def _run(self, function: Callable[[], object]) -> None:
        del self._calls[function]
        if not self._calls:
            self._calls = {}  # one that has been used keeps its room
        function()

    def stop(self) -> None:
        """Call nothing of what has been asked for."""
        for call in self._calls.values():
            call.cancel()
        self._calls.clear()
