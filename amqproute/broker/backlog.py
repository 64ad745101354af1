# SPDX-License-Identifier: Apache-2.0
"""What of a queue stands in the store only: refilled, scanned and cleared out, a page at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from amqproute.broker.consumers import Consumers
from amqproute.broker.feed import Feed
from amqproute.broker.levels import Levels
from amqproute.broker.limits import QueueLimits
from amqproute.broker.line import Line
from amqproute.entry import Entry

RELOAD_SECONDS: Final = 1.0
"""After what time a page that could not be read is asked for again."""


class Backlog:
    """The paged part of one queue's lines.

    Args:
        levels: the queue's lines.
        consumers: its consumers.
        clock: for another try when the store could not be read.
        now_ms: the wall clock, ms since the epoch.
        loaded: called with the entries of a page that is in memory now.
        dispatch: called when there may be something to hand out.
        tell_failed: called with a failure of the store, for the log.
    """

    __slots__ = (
        "_call",
        "_clock",
        "_consumers",
        "_dispatch",
        "_levels",
        "_loaded",
        "_now_ms",
        "_over",
        "_tell_failed",
        "arrivals",
    )

    def __init__(
        self,
        levels: Levels,
        consumers: Consumers,
        clock: IReactorTime,
        now_ms: Callable[[], int],
        loaded: Callable[[list[Entry]], None],
        dispatch: Callable[[], None],
        tell_failed: Callable[[Failure], None],
    ) -> None:
        self._levels = levels
        self._consumers = consumers
        self._clock = clock
        self._now_ms = now_ms
        self._loaded = loaded
        self._dispatch = dispatch
        self._tell_failed = tell_failed
        self._call: IDelayedCall | None = None
        self._over = False
        self.arrivals = 0

    def stop(self) -> None:
        """Cancel the timer."""
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = None

    def end(self) -> None:
        """The queue is no more: pages that are under way are not wanted."""
        self._over = True
        self.stop()

    def failed(self, failure: Failure, line: Line) -> None:
        """A page could not be read: say so, and have it asked for again after a while."""
        line.is_busy = False
        self._tell_failed(failure)
        if not self._over and self._call is None:
            self._call = self._clock.callLater(RELOAD_SECONDS, self._reload)

    def _reload(self) -> None:
        self._call = None
        self._dispatch()

    # -- refill --------------------------------------------------------------------------------

    def refill(self, limits: QueueLimits) -> bool:
        """Load next pages where little is left in memory; True if some are coming."""
        if self._over:
            return False
        for line in self._levels.lines:
            if line.wants_refill(limits):
                loaded = line.load(line.cursor)
                loaded.addCallback(self._refilled, line)
                loaded.addErrback(self.failed, line)
        return any(line.is_busy for line in self._levels.lines)

    def _refilled(self, rows: Sequence[Any], line: Line) -> None:
        if self._over:
            line.is_busy = False
            return
        entries = line.refilled(rows)
        self._consumers.offer(line, entries)
        self._loaded(entries)
        self._dispatch()

    # -- scan ----------------------------------------------------------------------------------

    def scan(self) -> bool:
        """Let a feed with room look at the paged part; True if one does."""
        for feed in self._consumers.feeds.values():
            if feed or feed.consumer.capacity() <= 0:
                continue
            for line in self._levels.lines:
                after = feed.scan_from(line)
                if after is None or self._is_scanned(feed, line):
                    continue
                if not line.is_busy:
                    scanned = line.load(after)
                    scanned.addCallback(self._scanned, line, feed)
                    scanned.addErrback(self.failed, line)
                return True
        return False

    def _is_scanned(self, feed: Feed, line: Line) -> bool:
        """The feed has come to the end, and nothing has been paged since."""
        return feed.ends.get(line) == (line.paged, self.arrivals)

    def _scanned(self, rows: Sequence[Any], line: Line, feed: Feed) -> None:
        entries = line.scanned(rows)
        if self._over or self._consumers.feeds.get(feed.consumer) is not feed:
            self._dispatch()
            return
        room = feed.consumer.capacity()
        now_ms = self._now_ms()
        found: list[Entry] = []
        stopped = False
        for entry in entries:
            if len(found) >= room:
                stopped = True
                break
            if feed.scanned(line, entry) and not 0 < entry.expires_ms <= now_ms:
                found.append(entry)
                if not feed.copies:
                    line.pluck_paged(entry)
                    self._consumers.acquired += 1
        if rows and not stopped:
            feed.reached(line, rows[-1].id)
        if not rows:
            feed.ends[line] = (line.paged, self.arrivals)
        if found:
            feed.consumer.deliver(found)
        self._dispatch()

    # -- clearing out --------------------------------------------------------------------------

    def clear(self, line: Line, let_go: Callable[[list[Entry]], Deferred[None]]) -> Deferred[None]:
        """Let go of what stands in the store only.

        Args:
            line: of which.
            let_go: archives the entries of a page; returns a Deferred that fires when that is
                durable.

        Returns:
            A Deferred that fires when nothing is left, or somebody else reads the line.
        """
        if not line.paged or line.is_busy or self._over:
            return succeed(None)
        return line.load(line.cursor).addCallback(self._clear_page, line, let_go)

    def _clear_page(
        self, rows: Sequence[Any], line: Line, let_go: Callable[[list[Entry]], Deferred[None]]
    ) -> Any:
        entries = line.cleared(rows)
        if not rows:
            return None
        return let_go(entries).addCallback(lambda _: self.clear(line, let_go))
