# SPDX-License-Identifier: Apache-2.0
"""A bounded cache for DNS answers, each kept for its time to live.

There are three kinds of entries:

* A *positive* answer is fresh for its TTL, then stale for the stale window (RFC 8767): used only
  when the servers fail.
* A *negative* answer (NXDOMAIN, NODATA) is fresh for the negative TTL of its zone (RFC 2308 §5) and
  is never used stale: an expired proof of absence proves nothing.
* A *failure* (SERVFAIL, time-out) says nothing about the name. It is cached for a few seconds so
  that a broken zone is not queried once per message (RFC 9520), and it does not displace a stale
  answer for the same question.

Entries that are no longer usable are dropped when encountered. At a limit, of entries or of octets,
the least recently used entry is evicted from the kind that exceeds its share most: a stranger who
causes lookups of failing or absent names displaces neither the answers about partners nor their
stale ones.

A failure is cached as code and text. An exception would keep its traceback, and with it every frame
on the way and all their objects: some hundred objects for each name, in cycles.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

__all__ = ["CacheCounts", "CacheLimits", "CachedAnswer", "DnsCache", "ICacheClock", "KnownFailure"]

STALE_ANSWER_TTL: Final = 30.0
"""Seconds for which a stale answer may be used before the servers are queried again (RFC 8767
§4)."""

ENTRY_OCTETS: Final = 700
"""Memory of an entry besides its value: key, times, places in dictionaries (measured)."""


class ICacheClock(Protocol):
    """The part of `twisted.internet.interfaces.IReactorTime` needed here."""

    def seconds(self) -> float:
        """The time in seconds."""


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """The bounds of a cache; times are in seconds.

    Attributes:
        max_entries: the number of cached questions: half of the places are for positive answers, a
            quarter each for negative ones and for failures; unused places serve other kinds.
        max_octets: approximate memory of all entries; shared in the same way.
        min_ttl: lower bound of a TTL; protects servers that publish 0 from a flood of queries.
        max_ttl: upper bound of a positive TTL; RFC 8767 §4 advises days, a peer that moves in an
            emergency needs hours.
        max_negative_ttl: the same for NXDOMAIN and NODATA (RFC 2308 §5 advises one to three hours).
        failure_ttl: how long SERVFAIL and time-outs are cached (RFC 9520 §3.2: 1 s to 5 min).
        stale_window: how long past its TTL a positive answer may be used while servers fail; 0
            turns this off.
    """

    max_entries: int = 10_000
    max_octets: int = 16 * 1024 * 1024
    min_ttl: float = 5.0
    max_ttl: float = 3 * 3600.0
    max_negative_ttl: float = 900.0
    failure_ttl: float = 5.0
    stale_window: float = 3 * 86400.0


@dataclass(slots=True)
class CacheCounts:
    """Counters of the cache since it was created."""

    hits: int = 0
    misses: int = 0
    stale_hits: int = 0
    evictions: int = 0


_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class CachedAnswer(Generic[_V]):
    """A value from the cache and the seconds for which it may still be used."""

    value: _V
    ttl: float


@dataclass(frozen=True, slots=True)
class KnownFailure:
    """A cached failure.

    Attributes:
        code: the stable code, for example ``dns.refused``.
        words: the same as text.
    """

    code: str
    words: str


@dataclass(slots=True)
class _Entry(Generic[_V]):
    """A value or a failure, and its times.

    Attributes:
        content: the value or the failure.
        octets: approximate memory.
        expires: end of freshness.
        stale_until: end of any use.
    """

    content: _V
    octets: int
    expires: float
    stale_until: float


class _Kind(Generic[_K, _V]):
    """Entries of one kind, the least recently used first.

    Attributes:
        share: the part of the cache for this kind, from 0 to 1.
        octets: approximate memory of all entries.
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self.octets = 0
        self._entries: OrderedDict[_K, _Entry[_V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[_K]:
        return iter(self._entries)

    def peek(self, key: _K) -> _Entry[_V] | None:
        return self._entries.get(key)

    def get(self, key: _K, now: float) -> _Entry[_V] | None:
        """Return a usable entry and count this as a use."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.stale_until <= now:
            self.remove(key)
            return None
        self._entries.move_to_end(key)
        return entry

    def put(self, key: _K, entry: _Entry[_V]) -> None:
        self.remove(key)
        self._entries[key] = entry
        self.octets += entry.octets

    def remove(self, key: _K) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.octets -= entry.octets

    def remove_oldest(self) -> None:
        _, entry = self._entries.popitem(last=False)
        self.octets -= entry.octets


class DnsCache(Generic[_K, _V]):
    """Caches values and failures by key.

    Args:
        clock: source of time.
        limits: the bounds.
        weigh: returns the approximate memory of a value, in octets.
    """

    def __init__(
        self,
        clock: ICacheClock,
        limits: CacheLimits | None = None,
        weigh: Callable[[_V], int] = lambda _: 0,
    ) -> None:
        self._clock = clock
        self.limits = limits or CacheLimits()
        self.counts = CacheCounts()
        self._weigh = weigh
        self._positive: _Kind[_K, _V] = _Kind(0.5)
        self._negative: _Kind[_K, _V] = _Kind(0.25)
        self._failures: _Kind[_K, KnownFailure] = _Kind(0.25)
        self._kinds: tuple[_Kind[_K, Any], ...] = (self._positive, self._negative, self._failures)

    def __len__(self) -> int:
        return sum(map(len, self._kinds))

    def __repr__(self) -> str:
        counts = self.counts
        return (
            f"<DnsCache {len(self)}/{self.limits.max_entries} octets={self.octets} "
            f"hits={counts.hits} misses={counts.misses} stale={counts.stale_hits}>"
        )

    @property
    def octets(self) -> int:
        """Approximate memory of all entries."""
        return sum(kind.octets for kind in self._kinds)

    def get(self, key: _K) -> CachedAnswer[_V] | None:
        """Return a fresh value, or None."""
        now = self._clock.seconds()
        entry = self._positive.get(key, now) or self._negative.get(key, now)
        if entry is None or entry.expires <= now:
            self.counts.misses += 1
            return None
        self.counts.hits += 1
        return CachedAnswer(entry.content, entry.expires - now)

    def peek(self, key: _K) -> _V | None:
        """Return a fresh value, or None, without counting a use."""
        entry = self._positive.peek(key) or self._negative.peek(key)
        if entry is None or entry.expires <= self._clock.seconds():
            return None
        return entry.content

    def stale(self, key: _K) -> CachedAnswer[_V] | None:
        """Return a positive value inside its stale window, for use when servers fail, or None."""
        entry = self._positive.get(key, self._clock.seconds())
        if entry is None:
            return None
        self.counts.stale_hits += 1
        return CachedAnswer(entry.content, STALE_ANSWER_TTL)

    def failure(self, key: _K) -> KnownFailure | None:
        """Return the recent failure of a key, or None."""
        entry = self._failures.get(key, self._clock.seconds())
        return None if entry is None else entry.content

    def put(self, key: _K, value: _V, ttl: float, *, negative: bool = False) -> float:
        """Cache a value and return its effective TTL, in seconds.

        Args:
            key: the question.
            value: the answer.
            ttl: the TTL from the zone, in seconds; clamped to the limits.
            negative: whether the value is a proof of absence.
        """
        limits = self.limits
        longest = limits.max_negative_ttl if negative else limits.max_ttl
        ttl = min(max(ttl, limits.min_ttl), longest)
        expires = self._clock.seconds() + ttl
        stale_until = expires if negative else expires + limits.stale_window
        entry = _Entry(value, ENTRY_OCTETS + self._weigh(value), expires, stale_until)
        for kind in self._kinds:
            kind.remove(key)
        (self._negative if negative else self._positive).put(key, entry)
        self._make_room()
        return ttl

    def put_failure(self, key: _K, failure: KnownFailure) -> None:
        """Cache a failure for a few seconds; a stale value of the same key remains."""
        until = self._clock.seconds() + self.limits.failure_ttl
        octets = ENTRY_OCTETS + len(failure.words)
        self._failures.put(key, _Entry(failure, octets, until, until))
        self._make_room()

    def forget(self, matches: Callable[[_K], bool]) -> int:
        """Drop every entry whose key matches; return the number of keys."""
        keys = {key for kind in self._kinds for key in kind if matches(key)}
        for key in keys:
            for kind in self._kinds:
                kind.remove(key)
        return len(keys)

    def flush(self) -> int:
        """Drop all entries; return the number of keys."""
        return self.forget(lambda _: True)

    def _make_room(self) -> None:
        limits = self.limits
        while len(self) > limits.max_entries:
            self._evict(max(self._kinds, key=lambda kind: len(kind) / kind.share))
        while self.octets > limits.max_octets and len(self):
            self._evict(max(self._kinds, key=lambda kind: kind.octets / kind.share))

    def _evict(self, kind: _Kind[_K, Any]) -> None:
        kind.remove_oldest()
        self.counts.evictions += 1
