# SPDX-License-Identifier: Apache-2.0
"""The changes of one page, sent to one browser once a second.

The page is made anew each second, or less often if that takes long: a feed uses a tenth of the time
at most. The next one begins when the last one has been sent, so slow answers never pile up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.dashboard.display_units import clock_time
from amqproute.dashboard.live_changes import LivePage
from amqproute.dashboard.page_blocks import Page

__all__ = ["INTERVAL_SECONDS", "EventSink", "LiveFeed"]

log = Logger()

INTERVAL_SECONDS: Final = 1.0
PART_OF_TIME: Final = 10.0
"""A feed waits so many times as long as the page took."""


class EventSink(Protocol):
    """Takes events: an `amqproute.http.event_stream.EventStream`."""

    def send(self, event: str, data: str, event_id: str = "") -> bool:
        """Send an event; return whether the stream goes on."""

    def close(self) -> None:
        """End the stream."""


class LiveFeed:
    """Sends the changes of a page.

    Args:
        clock: the reactor's.
        make: makes the page.
        live: the page as the browser has it.
        stream: takes the events.
        now_ms: the wall clock.
        is_open: returns whether the user is still logged in.
    """

    def __init__(
        self,
        clock: IReactorTime,
        make: Callable[[], Awaitable[Page]],
        live: LivePage,
        stream: EventSink,
        now_ms: Callable[[], int],
        is_open: Callable[[], bool],
    ) -> None:
        self._clock = clock
        self._make = make
        self._live = live
        self._stream = stream
        self._now_ms = now_ms
        self._is_open = is_open
        self._call: IDelayedCall | None = None
        self._is_over = False

    def __repr__(self) -> str:
        return f"<LiveFeed {'over' if self._is_over else 'on'}>"

    def start(self) -> None:
        """Send the page, and its changes from now on."""
        self._call = None
        Deferred.fromCoroutine(self._round()).addErrback(self._failed)

    def stop(self) -> None:
        """Send nothing more."""
        self._is_over = True
        call, self._call = self._call, None
        if call is not None and call.active():
            call.cancel()

    async def _round(self) -> None:
        if not self._is_open():
            self._stream.send("gone", "logged out")
            self._end()
            return
        began = self._clock.seconds()
        page = await self._make()
        if self._is_over:
            return
        time = clock_time(self._now_ms())
        change = await self._live.change_in_turns(page, time)
        if self._stream.send("change", change.encode()) and not self._is_over:
            took = self._clock.seconds() - began
            wait = max(INTERVAL_SECONDS, took * PART_OF_TIME)
            self._call = self._clock.callLater(wait, self.start)

    def _failed(self, failure: Failure) -> None:
        """End the feed, whatever went wrong: the daemon goes on."""
        log.failure("a live page failed", failure)
        self._end()

    def _end(self) -> None:
        self.stop()
        self._stream.close()
