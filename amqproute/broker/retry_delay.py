# SPDX-License-Identifier: Apache-2.0
"""The entries of a queue that have to wait for their next attempt."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Container, Iterable, Iterator, Sequence

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from amqproute.entry import Entry


class RetryDelay:
    """Entries with the time from which on they are available again.

    The wait is not persisted: after a restart they are available at once.

    Args:
        clock: for the timer, and to tell the time by.
        back: called with entries whose time has come.
    """

    __slots__ = ("_back", "_call", "_clock", "_waiting")

    def __init__(self, clock: IReactorTime, back: Callable[[list[Entry]], None]) -> None:
        self._clock = clock
        self._back = back
        self._waiting: list[tuple[float, Entry]] = []
        self._call: IDelayedCall | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def entries(self) -> Iterator[Entry]:
        """Iterate over the entries, the next to be available first."""
        return (entry for _, entry in self._waiting)

    def wait_of(self, entry: Entry) -> float | None:
        """Return the seconds that an entry still has to wait; None if it is not here."""
        now = self._clock.seconds()
        return next((max(0.0, due - now) for due, each in self._waiting if each is entry), None)

    def add(self, entries: Sequence[Entry], seconds: float) -> None:
        """Keep entries for some time."""
        due = self._clock.seconds() + seconds
        for entry in entries:
            insort(self._waiting, (due, entry))
            entry.line.remember(len(entry.message.encoded))
        self._arm()

    def hold_back(self, entries: Container[Entry], seconds: float, step: float) -> None:
        """Have those of these entries that wait here come back one by one.

        Args:
            entries: among others.
            seconds: until the first of them, at least.
            step: seconds between two of them, at least.
        """
        due = self._clock.seconds() + seconds
        held = []
        for at, entry in self._waiting:
            if entry in entries:
                at = max(at, due)
                due = at + step
            held.append((at, entry))
        self._waiting = sorted(held)
        self._arm()

    def bring_forward(self, entry: Entry) -> None:
        """Have an entry that waits here come back at once."""
        self._waiting = [pair for pair in self._waiting if pair[1] is not entry]
        insort(self._waiting, (self._clock.seconds(), entry))
        self._arm()

    def end(self, everything: bool = False, but: Container[int] = ()) -> None:
        """Give back the entries whose time has come, or all of them.

        Args:
            everything: all of them.
            but: ids of those that wait nevertheless until their time has come.
        """
        now = self._clock.seconds()
        count = 0
        for due, _ in self._waiting:
            if due > now and not everything:
                break
            count += 1
        stay = [pair for pair in self._waiting[:count] if pair[0] > now and pair[1].id in but]
        kept = {entry for _, entry in stay}
        ended = [entry for _, entry in self._waiting[:count] if entry not in kept]
        self._waiting[:count] = stay
        self._forget(ended)
        self._arm()
        if ended:
            self._back(ended)

    def take_expired(self, now_ms: int) -> list[Entry]:
        """Take out, and return, what has expired."""
        expired = [entry for _, entry in self._waiting if 0 < entry.expires_ms <= now_ms]
        if expired:
            gone = set(expired)
            self._waiting = [pair for pair in self._waiting if pair[1] not in gone]
            self._forget(expired)
        return expired

    def take(self, entries: Iterable[Entry]) -> set[Entry]:
        """Take out, and return, those of these entries that wait here."""
        wanted = set(entries)
        taken = {entry for _, entry in self._waiting if entry in wanted}
        if taken:
            self._waiting = [pair for pair in self._waiting if pair[1] not in taken]
            self._forget(list(taken))
        return taken

    def clear(self) -> list[Entry]:
        """Take out, and return, everything."""
        entries = [entry for _, entry in self._waiting]
        self._waiting.clear()
        self._forget(entries)
        return entries

    def stop(self) -> None:
        """Cancel the timer; the entries stay."""
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = None

    def _arm(self) -> None:
        self.stop()
        if self._waiting:
            wait = max(0.0, self._waiting[0][0] - self._clock.seconds())
            self._call = self._clock.callLater(wait, self.end)

    @staticmethod
    def _forget(entries: Sequence[Entry]) -> None:
        for entry in entries:
            entry.line.forget(len(entry.message.encoded))
