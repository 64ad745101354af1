# SPDX-License-Identifier: Apache-2.0
"""Deferred entries of a queue, which wait for their next attempt."""

from __future__ import annotations

from bisect import insort
from collections.abc import Container, Iterable, Iterator, Sequence

from amqproute.entry import Entry


class RetryDelay:
    """Entries with the time of their next attempt.

    The wait is not persisted: after a restart they are available at once. Times are seconds by the
    queue's clock, which is never read here; the queue sets its timer to `next_due`.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[float, Entry]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def entries(self) -> Iterator[Entry]:
        """Iterate over the entries, the next to be available first."""
        return (entry for _, entry in self._waiting)

    @property
    def next_due(self) -> float | None:
        """Time at which the first of them is available; None without entries."""
        return self._waiting[0][0] if self._waiting else None

    def wait_of(self, entry: Entry, now: float) -> float | None:
        """Return the seconds that an entry still has to wait; None if it is not deferred."""
        return next((max(0.0, due - now) for due, each in self._waiting if each is entry), None)

    def add(self, entries: Sequence[Entry], due: float) -> None:
        """Keep entries until a time."""
        for entry in entries:
            insort(self._waiting, (due, entry))
            entry.line.remember(len(entry.message.encoded))

    def hold_back(self, entries: Container[Entry], due: float, step: float) -> None:
        """Delay the deferred ones of these entries, so that they come back one by one.

        Args:
            entries: deferred or not.
            due: earliest time of the first of them.
            step: seconds between two of them, at least.
        """
        held = []
        for at, entry in self._waiting:
            if entry in entries:
                at = max(at, due)
                due = at + step
            held.append((at, entry))
        self._waiting = sorted(held)

    def bring_forward(self, entry: Entry, now: float) -> None:
        """Make a deferred entry due at once."""
        self._waiting = [pair for pair in self._waiting if pair[1] is not entry]
        insort(self._waiting, (now, entry))

    def end(self, now: float, everything: bool = False, but: Container[int] = ()) -> list[Entry]:
        """Remove and return the entries that are due, or all of them.

        Args:
            now: the time.
            everything: all of them.
            but: ids of exceptions, which wait until they are due.
        """
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
        return ended

    def take_expired(self, now_ms: int) -> list[Entry]:
        """Remove and return the expired entries."""
        expired = [entry for _, entry in self._waiting if 0 < entry.expires_ms <= now_ms]
        if expired:
            self.take(expired)
        return expired

    def take(self, entries: Iterable[Entry]) -> set[Entry]:
        """Remove and return the deferred ones of these entries."""
        wanted = set(entries)
        taken = {entry for _, entry in self._waiting if entry in wanted}
        if taken:
            self._waiting = [pair for pair in self._waiting if pair[1] not in taken]
            self._forget(taken)
        return taken

    def clear(self) -> list[Entry]:
        """Remove and return all entries."""
        entries = [entry for _, entry in self._waiting]
        self._waiting.clear()
        self._forget(entries)
        return entries

    @staticmethod
    def _forget(entries: Iterable[Entry]) -> None:
        for entry in entries:
            entry.line.forget(len(entry.message.encoded))
