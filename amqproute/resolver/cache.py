# SPDX-License-Identifier: Apache-2.0
"""A bounded memory for DNS answers, each kept for its time to live.

Three kinds of knowledge are kept apart:

* A *positive* answer is fresh for its TTL, then stale for the stale window (RFC 8767): of use only
  when the servers fail.
* A *negative* answer (NXDOMAIN, NODATA) is fresh for the negative TTL its zone names (RFC 2308 §5)
  and is never used stale: a proof of absence that has run out proves nothing.
* A *failure* (SERVFAIL, time-out) is no knowledge about the name at all. It is remembered for a few
  seconds so that a broken zone is not asked for once per message (RFC 9520), and it does not
  displace the stale answer beside it.

Entries past every use are dropped when met, the least recently used one when the limit is reached.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

__all__ = ["Cache", "CacheCounts", "CacheLimits", "Cached", "Clock"]

STALE_ANSWER_TTL: Final = 30.0
"""For how many seconds a stale answer may be used before one asks again (RFC 8767 §4)."""


class Clock(Protocol):
    """The part of `twisted.internet.interfaces.IReactorTime` needed here."""

    def seconds(self) -> float:
        """The time in seconds."""


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """The bounds of a cache; times are in seconds.

    Attributes:
        max_entries: how many questions are remembered.
        min_ttl: a shorter TTL counts as this; saves servers that publish 0 from a flood.
        max_ttl: a longer positive TTL counts as this; RFC 8767 §4 advises days, a peer that moves
            in an emergency hours.
        max_negative_ttl: the same for NXDOMAIN and NODATA (RFC 2308 §5 advises one to three hours).
        failure_ttl: how long SERVFAIL and time-outs are remembered (RFC 9520 §3.2: 1 s to 5 min).
        stale_window: how long past its TTL a positive answer may stand in for failing servers; 0
            turns that off.
    """

    max_entries: int = 10_000
    min_ttl: float = 5.0
    max_ttl: float = 3 * 3600.0
    max_negative_ttl: float = 900.0
    failure_ttl: float = 5.0
    stale_window: float = 3 * 86400.0


@dataclass(slots=True)
class CacheCounts:
    """What the cache was good for, since it was made."""

    hits: int = 0
    misses: int = 0
    stale_hits: int = 0
    evictions: int = 0


_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class Cached(Generic[_V]):
    """A value from the cache and for how many seconds it may still be used."""

    value: _V
    ttl: float


@dataclass(slots=True)
class _Entry(Generic[_V]):
    value: _V | None = None
    expires: float = 0.0
    stale_until: float = 0.0
    failure: Exception | None = None
    failure_until: float = 0.0


class Cache(Generic[_K, _V]):
    """Remember values and failures by key against an injected clock.

    Args:
        clock: tells the time.
        limits: the bounds.
    """

    def __init__(self, clock: Clock, limits: CacheLimits | None = None) -> None:
        self._clock = clock
        self.limits = limits or CacheLimits()
        self.counts = CacheCounts()
        self._entries: OrderedDict[_K, _Entry[_V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        counts = self.counts
        return (
            f"<Cache {len(self._entries)}/{self.limits.max_entries} hits={counts.hits} "
            f"misses={counts.misses} stale={counts.stale_hits}>"
        )

    def get(self, key: _K) -> Cached[_V] | None:
        """A fresh value, or None."""
        entry = self._touch(key)
        now = self._clock.seconds()
        if entry is None or entry.value is None or entry.expires <= now:
            self.counts.misses += 1
            return None
        self.counts.hits += 1
        return Cached(entry.value, entry.expires - now)

    def peek(self, key: _K) -> _V | None:
        """A fresh value, or None; for onlookers, so that it counts for nothing."""
        entry = self._entries.get(key)
        if entry is None or entry.expires <= self._clock.seconds():
            return None
        return entry.value

    def stale(self, key: _K) -> Cached[_V] | None:
        """A positive value inside its stale window, for use when the servers fail, or None."""
        entry = self._touch(key)
        now = self._clock.seconds()
        if entry is None or entry.value is None or entry.stale_until <= now:
            return None
        self.counts.stale_hits += 1
        return Cached(entry.value, STALE_ANSWER_TTL)

    def failure(self, key: _K) -> Exception | None:
        """The failure of the last seconds, or None."""
        entry = self._touch(key)
        if entry is None or entry.failure_until <= self._clock.seconds():
            return None
        return entry.failure

    def put(self, key: _K, value: _V, ttl: float, *, negative: bool = False) -> float:
        """Remember a value; returns the TTL it got, in seconds.

        Args:
            key: the question.
            value: the answer.
            ttl: as the zone says, in seconds; clamped to the limits.
            negative: the value is a proof of absence.
        """
        limits = self.limits
        longest = limits.max_negative_ttl if negative else limits.max_ttl
        ttl = min(max(ttl, limits.min_ttl), longest)
        expires = self._clock.seconds() + ttl
        self._store(
            key,
            _Entry(value, expires, expires if negative else expires + limits.stale_window),
        )
        return ttl

    def put_failure(self, key: _K, failure: Exception) -> None:
        """Remember for a few seconds that asking failed; a stale value beside it stays."""
        entry = self._touch(key) or _Entry()
        entry.failure = failure
        entry.failure_until = self._clock.seconds() + self.limits.failure_ttl
        self._store(key, entry)

    def forget(self, matches: Callable[[_K], bool]) -> int:
        """Drop every entry whose key matches; returns how many."""
        keys = [key for key in self._entries if matches(key)]
        for key in keys:
            del self._entries[key]
        return len(keys)

    def flush(self) -> int:
        """Drop everything; returns how many entries that were."""
        dropped = len(self._entries)
        self._entries.clear()
        return dropped

    def _touch(self, key: _K) -> _Entry[_V] | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if max(entry.expires, entry.stale_until, entry.failure_until) <= self._clock.seconds():
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return entry

    def _store(self, key: _K, entry: _Entry[_V]) -> None:
        self._entries[key] = entry
        self._entries.move_to_end(key)
        while len(self._entries) > self.limits.max_entries:
            self._entries.popitem(last=False)
            self.counts.evictions += 1
