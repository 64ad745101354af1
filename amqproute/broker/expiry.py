# SPDX-License-Identifier: Apache-2.0
"""The time after which the entries of a queue are not delivered any more (D-07 to D-11).

One timer for each queue goes off when the first of its entries expires, and everything that has
expired by then goes at once: in memory, deferred, and in the store a page at a time.

While a queue is *spared*, the lifetime that this broker gives to messages ends none of them; what
its sender has limited (ttl, absolute-expiry-time) is not delivered too late all the same. A relay
queue is spared from a start of the daemon until an attempt to reach its peer has failed: that the
wall clock has gone on while nobody was there to try proves neither that time has passed, since
clocks are set wrong, nor that the message was ever tried. What was handed out once and came back
has had its attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from amqproute.broker.entry_list import EntryList
from amqproute.broker.priority_queues import PriorityQueues
from amqproute.broker.retry_delay import RetryDelay
from amqproute.entry import Entry
from amqproute.errors import DecodeError

GRAIN_SECONDS: Final = 0.05
"""Timers are not set finer than this, so that many short lives cost few timers."""
LONGEST_SECONDS: Final = 600.0
"""How late the end of a life may be noticed where nobody asks for the entry and the wall clock was
set ahead: timers go by a clock that nobody can set."""


class Expiry:
    """What watches over the lives of the entries of one queue.

    Args:
        clock: for the timer.
        now_ms: the wall clock, ms since the epoch.
        levels: the queue's lines.
        deferral: its deferred entries.
        expire: called with entries that have expired and are off the lines already.
        changed: called when a sweep of the store is over.
        failed: called when the store could not be read, with the failure and the line.

    Attributes:
        expire: the argument, for those who come upon expired entries.
        is_spared: see above.
    """

    __slots__ = (
        "_call",
        "_changed",
        "_clock",
        "_deferral",
        "_failed",
        "_levels",
        "_now_ms",
        "_over",
        "expire",
        "is_spared",
    )

    def __init__(
        self,
        clock: IReactorTime,
        now_ms: Callable[[], int],
        levels: PriorityQueues,
        deferral: RetryDelay,
        expire: Callable[[list[Entry]], None],
        changed: Callable[[], None],
        failed: Callable[[Failure, EntryList], None],
    ) -> None:
        self._clock = clock
        self._now_ms = now_ms
        self._levels = levels
        self._deferral = deferral
        self.expire = expire
        self._changed = changed
        self._failed = failed
        self._call: IDelayedCall | None = None
        self._over = False
        self.is_spared = False

    def end_sparing(self) -> None:
        """Let what is overdue expire from now on."""
        if self.is_spared:
            self.is_spared = False
            self._watch_next()

    def is_over(self, entry: Entry, now_ms: int) -> bool:
        """Tell whether an entry may not be delivered any more."""
        if not 0 < entry.expires_ms <= now_ms:
            return False
        if not self.is_spared or entry.attempted:
            return True
        try:
            end_ms = entry.message.expires_ms(entry.arrived_ms)
        except DecodeError:
            return False  # whoever is to have it will find that it cannot be read
        finally:
            entry.message.forget()
        return 0 < end_ms <= now_ms

    def watch(self, at_ms: int) -> None:
        """Have the timer go off at this time at the latest."""
        wait = min(max(GRAIN_SECONDS, (at_ms - self._now_ms()) / 1000), LONGEST_SECONDS)
        call = self._call
        if call is not None and call.active():
            if call.getTime() <= self._clock.seconds() + wait:
                return
            call.cancel()
        self._call = self._clock.callLater(wait, self._sweep)

    def watch_all(self, entries: Sequence[Entry]) -> None:
        """Watch over entries that have come into memory."""
        lives = [entry.expires_ms for entry in entries if entry.expires_ms]
        if lives:
            self.watch(min(lives))

    def stop(self) -> None:
        """Cancel the timer."""
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = None

    def end(self) -> None:
        """The queue is no more: a sweep that is under way finds nothing.

        Its timer is cancelled by `stop`, as it is where the queue stays.
        """
        self._over = True

    def without_expired(self, entries: list[Entry]) -> list[Entry]:
        """Let go of those that have expired; return the others."""
        now_ms = self._now_ms()
        expired = [entry for entry in entries if self.is_over(entry, now_ms)]
        if not expired:
            return entries
        self.expire(expired)
        gone = set(expired)
        return [entry for entry in entries if entry not in gone]

    def let_go(self, fleeting: Sequence[Entry]) -> None:
        """Expire what was to be delivered at once or never, and nobody has taken (D-11)."""
        expired = []
        for entry in fleeting:
            entry.expires_ms = entry.arrived_ms
            if not entry.taken:
                entry.line.pluck(entry)
                expired.append(entry)
        if expired:
            self.expire(expired)

    def _sweep(self) -> None:
        """Let go of what has expired, in memory and in the store, and set the next timer."""
        self._call = None
        if self.is_spared:
            return  # `end_sparing` sets the timer
        now_ms = self._now_ms()
        expired = self._deferral.take_expired(now_ms)
        for line in self._levels.lines:
            gone = {entry for entry in line.entries() if 0 < entry.expires_ms <= now_ms}
            if gone:
                line.remove(gone)
                expired += sorted(gone)
        if expired:
            self.expire(expired)
        for line in self._levels.lines:
            if 0 < line.paged_expiry_ms <= now_ms and not line.is_busy:
                swept = line.find_expired(now_ms)
                swept.addCallback(self._swept, line, now_ms)
                swept.addErrback(self._failed, line)
        self._watch_next()

    def _swept(self, rows: Sequence[Any], line: EntryList, now_ms: int) -> None:
        if self._over:
            line.is_busy = False
            return
        entries = line.swept(rows, now_ms)
        if entries:
            self.expire(entries)
        self._watch_next()
        self._changed()

    def _watch_next(self) -> None:
        lives = [entry.expires_ms for entry in self._levels.entries() if entry.expires_ms]
        lives += [entry.expires_ms for entry in self._deferral.entries() if entry.expires_ms]
        lives += [line.paged_expiry_ms for line in self._levels.lines if line.paged_expiry_ms]
        if lives:
            self.watch(min(lives))
