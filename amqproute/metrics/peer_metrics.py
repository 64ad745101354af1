# SPDX-License-Identifier: Apache-2.0
"""Sources of metrics: next hops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import Final

from amqproute.broker.queue_counters import QueueCounters
from amqproute.metrics.families import OTHER
from amqproute.metrics.node_metrics import ValueTable, age_seconds
from amqproute.metrics.snapshot import MetricsSnapshot
from amqproute.relay.destination import Destination
from amqproute.relay.lifecycle import DestinationState
from amqproute.relay.rejection_counts import KINDS
from amqproute.relay.relay import Relay
from amqproute.relay.relay_terms import SUCCEEDED, DestinationCounters

__all__ = ["PeerMetrics"]

COUNTS_AT_ONCE: Final = 500
"""Counts by two labels that are added at a time: some dozen microseconds."""
HELD: Final = "held"
STATES: Final = (*(state.value for state in DestinationState), HELD)
_GAUGES: Final = (
    "dead",
    "messages",
    "messages_bytes",
    "oldest_message_age_seconds",
    "in_flight_messages",
    "window_messages",
    "credit_messages",
    "without_credit_seconds",
    "without_dns_seconds",
    "failures",
    "back_off_seconds",
    "last_success_timestamp_seconds",
)
_LARGEST: Final = frozenset(
    _GAUGES.index(name)
    for name in (
        "oldest_message_age_seconds",
        "without_credit_seconds",
        "without_dns_seconds",
        "failures",
        "back_off_seconds",
        "last_success_timestamp_seconds",
    )
)
"""Of these the largest counts, where next hops are not named."""
_COUNTERS: Final = (
    "relayed_messages",
    "retried_messages",
    "expired_messages",
    "dead_lettered_messages",
    "connections",
    "stuck_connections",
    "moved_connections",
)
_FAMILIES: Final = tuple(f"amqproute_peer_{name}" for name in (*_GAUGES, *_COUNTERS))
_STATE: Final = "amqproute_peer_state"
_ATTEMPTS: Final = "amqproute_peer_attempts"
_REJECTED: Final = "amqproute_peer_rejected_messages"


class PeerMetrics:
    """The next hops of a relay.

    Args:
        relay: the relay.
        now_ms: the wall clock.
        named: returns the keys of the hops that ``/metrics`` names.
    """

    def __init__(
        self, relay: Relay, now_ms: Callable[[], int], named: Callable[[], Collection[str]]
    ) -> None:
        self._relay = relay
        self._now_ms = now_ms
        self._named = named

    def peers(self, snapshot: MetricsSnapshot) -> Iterator[None]:
        """Add the next hops, those that have no destination now included."""
        scope = snapshot.scope
        if scope.nodes or not scope.wants((*_FAMILIES, _STATE, _ATTEMPTS, _REJECTED)):
            return
        now_ms = self._now_ms()
        hops = _HopTables(snapshot, None if scope.is_detailed else frozenset(self._named()))
        wanted = scope.peers
        for key, destination in list(self._relay.destinations.items()):
            if not wanted or key in wanted:
                hops.add_state(key, destination)
                hops.add(
                    key, _gauges(destination, now_ms), destination.tally, destination.queue.tally
                )
                yield
        former = self._relay.former
        for key, counters in former.items():
            if not wanted or key in wanted:
                hops.add(key, _NOTHING, *counters)
                yield
        if not wanted:
            hops.add(None, _NOTHING, *former.forgotten)
        yield from hops.end()


_NOTHING: Final = (0.0,) * len(_GAUGES)


class _HopTables:
    """Values of next hops.

    Args:
        snapshot: receives them.
        named: the keys of those that are named; None for all.
    """

    def __init__(self, snapshot: MetricsSnapshot, named: Collection[str] | None) -> None:
        self._snapshot = snapshot
        self._named = named
        self._table = ValueTable(snapshot, _FAMILIES, _LARGEST)
        self._states: Counter[tuple[str, str]] = Counter()
        self._attempts: Counter[tuple[str, str]] = Counter()
        self._rejected: Counter[tuple[str, str]] = Counter()
        self._seen: set[str] = set()

    def _label_of(self, key: str | None) -> str | None:
        """Return the label of a hop; None if it is added to others."""
        return key if key is not None and (self._named is None or key in self._named) else None

    def add_state(self, key: str, destination: Destination) -> None:
        """Count the state of a destination."""
        label = self._label_of(key) or OTHER
        state = HELD if destination.held is not None else destination.state.value
        self._states[label, state] += 1

    def add(
        self,
        key: str | None,
        gauges: tuple[float, ...],
        tally: DestinationCounters,
        queue: QueueCounters,
    ) -> None:
        """Add a hop; None as key for hops that nobody keeps apart."""
        label = self._label_of(key)
        self._begin(label or OTHER)
        for code, number in tally.attempts.items():
            self._attempts[label or OTHER, code] += number
        for kind, number in tally.rejections.items():
            self._rejected[label or OTHER, kind] += number
        row = (*gauges, *_counters(tally, queue))
        if label is None:
            self._table.sum_up(row)
        else:
            self._table.name((label,), row)

    def _begin(self, label: str) -> None:
        """Have all series of a label: Prometheus counts an increase only if they have begun."""
        if label not in self._seen:
            self._seen.add(label)
            self._attempts[label, SUCCEEDED] += 0
            for state in STATES:
                self._states[label, state] += 0
            for kind in KINDS:
                self._rejected[label, kind] += 0

    def end(self) -> Iterator[None]:
        """Add the sums, and the named hops for which there was never anything."""
        for key in self._named or ():
            if key not in self._seen:
                self.add(key, _NOTHING, DestinationCounters(), QueueCounters())
                yield
        self._table.end((OTHER,))
        for name, counts in (
            (_STATE, self._states),
            (_ATTEMPTS, self._attempts),
            (_REJECTED, self._rejected),
        ):
            column = self._snapshot.column(name)
            if column is None:
                continue
            items = iter(counts.items())
            while part := tuple(islice(items, COUNTS_AT_ONCE)):
                column += part
                yield


def _gauges(destination: Destination, now_ms: int) -> tuple[float, ...]:
    queue, session = destination.queue, destination.session
    link = None if session is None else session.link
    no_credit, no_dns = destination.no_credit_since_ms, destination.dns_since_ms
    next_ms = destination.backoff.next_attempt_ms
    return (
        destination.is_dead,
        queue.depth,
        queue.resident_bytes + queue.paged_bytes + queue.filed_bytes,
        age_seconds(queue.oldest_arrival_ms, now_ms),
        destination.in_flight,
        destination.window.size,
        0 if link is None else link.credit,
        age_seconds(no_credit, now_ms),
        age_seconds(no_dns, now_ms),
        destination.failures,
        max(0, next_ms - now_ms) / 1000 if next_ms else 0.0,
        destination.last_success_ms / 1000,
    )


def _counters(tally: DestinationCounters, queue: QueueCounters) -> tuple[int, ...]:
    return (
        tally.relayed,
        tally.retried,
        queue.expired,
        queue.dead_lettered,
        tally.connections,
        tally.stuck,
        tally.moves,
    )
