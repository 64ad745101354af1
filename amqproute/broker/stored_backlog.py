# SPDX-License-Identifier: Apache-2.0
"""What of a queue stands in the store only: refilled, scanned and cleared out, a page at a time.

Refill loads the head of a line into memory, for whoever takes what comes. A scan is for those who
select: a page is read once and shown to every feed that has come as far as where it begins. Who is
behind is read for first, so that the others wait for it and all go on together; but every
`FRONT_EVERY` pages the one in front is, so that it gets on however many come after it. A feed that
wants nothing at the moment takes part as long as it may keep what it finds
(`broker.consumer_cursor`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from amqproute.broker.consumer_cursor import AT_ONCE_TESTS, CursorMatch, cost_of
from amqproute.broker.consumer_set import ConsumerSet
from amqproute.broker.entry_list import EntryList
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.priority_queues import PriorityQueues
from amqproute.entry import Entry

RELOAD_SECONDS: Final = 1.0
"""After what time a page that could not be read is asked for again."""
LEAST_SCANNED: Final = 20
FRONT_EVERY: Final = 4
"""How many pages are read for one that is read for who is in front."""


class StoredBacklog:
    """The paged part of one queue's lines.

    Args:
        levels: the queue's lines.
        consumers: its consumers.
        clock: for another try when the store could not be read.
        loaded: called with the entries of a page that is in memory now.
        dispatch: called when there may be something to hand out.
        tell_failed: called with a failure of the store, for the log.
    """

    __slots__ = (
        "_call",
        "_catch_up_call",
        "_clock",
        "_consumers",
        "_dispatch",
        "_levels",
        "_loaded",
        "_over",
        "_pages",
        "_tell_failed",
    )

    def __init__(
        self,
        levels: PriorityQueues,
        consumers: ConsumerSet,
        clock: IReactorTime,
        loaded: Callable[[list[Entry]], None],
        dispatch: Callable[[], None],
        tell_failed: Callable[[Failure], None],
    ) -> None:
        self._levels = levels
        self._consumers = consumers
        self._clock = clock
        self._loaded = loaded
        self._dispatch = dispatch
        self._tell_failed = tell_failed
        self._call: IDelayedCall | None = None
        self._catch_up_call: IDelayedCall | None = None
        self._over = False
        self._pages = 0

    def stop(self) -> None:
        """Cancel the timer."""
        for call in (self._call, self._catch_up_call):
            if call is not None and call.active():
                call.cancel()
        self._call = self._catch_up_call = None

    def end(self) -> None:
        """The queue is no more: pages that are under way are not wanted."""
        self._over = True
        self.stop()

    def failed(self, failure: Failure, line: EntryList) -> None:
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
            if line.needs_refill(limits):
                loaded = line.load(line.cursor)
                loaded.addCallback(self._refilled, line)
                loaded.addErrback(self.failed, line)
        return any(line.is_busy for line in self._levels.lines)

    def _refilled(self, rows: Sequence[Any], line: EntryList) -> None:
        if self._over:
            line.is_busy = False
            return
        entries = line.refilled(rows)
        self._consumers.offer(line, entries)
        self._loaded(entries)
        self._dispatch()

    # -- scan ----------------------------------------------------------------------------------

    def scan(self) -> bool:
        """Have the paged part looked at for feeds with room; True if it is."""
        if any(feed.is_behind for feed in self._consumers.feeds.values()):
            if self._catch_up_call is None and not self._over:
                self._catch_up_call = self._clock.callLater(0, self._catch_up)
            return True
        hungry = [
            feed
            for feed in self._consumers.feeds.values()
            if not feed and feed.consumer.capacity() > 0
        ]
        if not hungry:
            return False
        for line in self._levels.lines:
            positions = [at for feed in hungry if (at := feed.scan_from(line)) is not None]
            if not positions:
                continue
            if not line.is_busy:
                self._pages += 1
                after = min(positions) if self._pages % FRONT_EVERY else max(positions)
                filters = {feed.selects for feed in self._consumers.feeds.values()}
                tests = sum(map(cost_of, filters))
                scanned = line.load(after, max(LEAST_SCANNED, AT_ONCE_TESTS // tests))
                scanned.addCallback(self._scanned, line, after, line.tail)
                scanned.addErrback(self.failed, line)
            return True
        return False

    def _catch_up(self) -> None:
        """Have feeds examine what they have put off, one turn's worth of it."""
        self._catch_up_call = None
        tests = AT_ONCE_TESTS
        for feed in tuple(self._consumers.feeds.values()):
            if tests <= 0:
                break
            tests = feed.catch_up(tests)
        self._dispatch()

    def _scanned(self, rows: Sequence[Any], line: EntryList, after: int, tail: int) -> None:
        entries = line.scanned(rows)
        if not self._over:
            last = rows[-1].id if rows else tail
            chosen = CursorMatch(entries)
            for feed in self._consumers.feeds.values():
                at = feed.scan_from(line)
                if at is None or not after <= at < last:
                    continue
                room = feed.consumer.capacity()
                if feed.has_enough(room):
                    continue
                feed.look(line, chosen.by(feed.selects), last, room)
            for entry in entries:
                entry.message.forget()
        self._dispatch()

    # -- clearing out --------------------------------------------------------------------------

    def clear(
        self, line: EntryList, let_go: Callable[[list[Entry]], Deferred[None]]
    ) -> Deferred[None]:
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
        self, rows: Sequence[Any], line: EntryList, let_go: Callable[[list[Entry]], Deferred[None]]
    ) -> Any:
        entries = line.cleared(rows)
        if not rows:
            return None
        return let_go(entries).addCallback(lambda _: self.clear(line, let_go))
