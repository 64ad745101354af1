# SPDX-License-Identifier: Apache-2.0
"""The budget of one destination: its turn, its octets, its rate.

Fairness between destinations: a destination with a backlog yields the reactor after `TURN_MESSAGES`
or `TURN_BYTES`, so that all others in the process get their turn; it continues in the next one. The
octets of messages without an outcome are bounded like their number, because they stay in memory
until the peer has them. In addition an operator may limit the rate.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from amqproute.broker.queue import Queue
from amqproute.broker.token_bucket import RateLimiter
from amqproute.entry import Entry
from amqproute.relay.relay_terms import RelayTerms
from amqproute.values import NextHop

TURN_MESSAGES = 250
"""Messages that one destination sends before others get their turn: a few milliseconds."""
TURN_BYTES = 1024 * 1024
SHORTEST_WAIT = 0.01
"""Minimum seconds that a limiter delays a destination, so that it is not woken for each token."""


class SendBudget:
    """The share of one destination.

    Args:
        queue: dispatched when there is capacity again.
        clock: the clock for turns and rates.
        terms: the bounds; see `RelayTerms`.
        hop: the hop whose rate applies.

    Attributes:
        octets: octets of the messages without an outcome.
    """

    def __init__(self, queue: Queue, clock: IReactorTime, terms: RelayTerms, hop: NextHop) -> None:
        self.octets = 0
        self._queue = queue
        self._clock = clock
        self._terms = terms
        self._hop = hop
        self._limiter: RateLimiter | None = None
        self._mean = 0.0
        self._messages_left = TURN_MESSAGES
        self._bytes_left = TURN_BYTES
        self._turn: IDelayedCall | None = None
        self._refill: IDelayedCall | None = None
        self.adopt()

    def adopt(self) -> None:
        """Apply changed terms."""
        rate = self._terms.rate(self._hop)
        if not rate:
            self._limiter = None
        elif self._limiter is None or self._limiter.rate != rate:
            self._limiter = RateLimiter(rate, self._clock.seconds())

    @property
    def limiter(self) -> str:
        """The setting that limits sending now; empty if none does."""
        return "" if self._limiter is None else self._limiter.denying(self._clock.seconds())

    def of(self, count: int) -> int:
        """Return how many of `count` messages may be sent now."""
        left = self._messages_left
        terms = self._terms
        window = min(terms.window_bytes, terms.part_bytes)
        octets = min(self._bytes_left, window - self.octets)
        if left <= 0 or octets <= 0:
            return 0  # resumed by the next turn or an outcome
        mean = self._mean
        if not mean:
            resident = self._queue.resident
            mean = self._queue.resident_bytes / resident if resident else 1024.0
        if count > left:
            count = left
        if count * mean > octets:
            count = 1 + int(octets / mean)
        if self._limiter is not None:
            count = min(count, self._limited(self._limiter, mean))
        return count

    def _limited(self, limiter: RateLimiter, mean: float) -> int:
        now = self._clock.seconds()
        room = limiter.room(mean, now)
        if not room and self._refill is None:
            wait = max(SHORTEST_WAIT, limiter.wait(now))
            self._refill = self._clock.callLater(wait, self._refilled)
        return room

    def _refilled(self) -> None:
        self._refill = None
        self._queue.dispatch()

    def sent(self, entries: Sequence[Entry]) -> None:
        """Count entries that are being sent."""
        count = len(entries)
        octets = sum([len(entry.message.encoded) for entry in entries])
        self.octets += octets
        self._mean = octets / count
        self._messages_left -= count
        self._bytes_left -= octets
        if (self._messages_left <= 0 or self._bytes_left <= 0) and self._turn is None:
            self._turn = self._clock.callLater(0, self._next_turn)
        if self._limiter is not None:
            # The whole size, not only the part in memory: the network may be the bottleneck.
            whole = sum([entry.message.size for entry in entries])
            self._limiter.spend(count, whole, self._clock.seconds())

    def _next_turn(self) -> None:
        self._turn = None
        self._messages_left = TURN_MESSAGES
        self._bytes_left = TURN_BYTES
        self._queue.dispatch()

    def done(self, entries: Sequence[Entry]) -> None:
        """Handle entries that have an outcome, or cannot be sent."""
        self.octets -= sum([len(entry.message.encoded) for entry in entries])

    def ended(self) -> None:
        """Handle the end of the session: no entry is in flight."""
        self.octets = 0

    def stop(self) -> None:
        """Cancel the timers."""
        for call in (self._turn, self._refill):
            if call is not None and call.active():
                call.cancel()
        self._turn = self._refill = None
