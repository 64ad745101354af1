# SPDX-License-Identifier: Apache-2.0
"""A timer that can be set again."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime


class Alarm:
    """At most one call at a time, by the reactor's clock."""

    __slots__ = ("_call", "_clock")

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._call: IDelayedCall | None = None

    @property
    def is_set(self) -> bool:
        """A call is due."""
        return self._call is not None and bool(self._call.active())

    def set(self, seconds: float, function: Callable[[], object]) -> None:
        """Call a function after some time, and not what was to be called before."""
        self.stop()
        self._call = self._clock.callLater(seconds, function)

    def set_earlier(self, seconds: float, function: Callable[[], object]) -> None:
        """Call a function after some time, unless a call is due by then."""
        call = self._call
        if call is None or not call.active() or call.getTime() > self._clock.seconds() + seconds:
            self.set(seconds, function)

    def stop(self) -> None:
        """Call nothing."""
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = None
