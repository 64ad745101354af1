# SPDX-License-Identifier: Apache-2.0
"""Fair distribution of available entries among consumers (Q-29, Q-30).

Consumers of a lower priority get what those of a higher one have no room for (``x-priority`` of
AMQP 0-9-1). Among equals whoever has capacity gets a fair share: one entry at a time in turn, and
all of it delivered in one call. Entries leave their lines here, and are counted as acquired; the
queue delivers them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from amqproute.broker.entry_list import EntryList
from amqproute.broker.expiry import is_over
from amqproute.broker.queue_state import QueueState
from amqproute.entry import Entry
from amqproute.interfaces import IConsumer

__all__ = ["BROKEN_SECONDS", "Shares", "deal", "deal_unlisted"]

BROKEN_SECONDS: Final = 60.0
"""Delay before the next attempt of entries whose delivery was ended by a consumer's exception."""

Shares = list[tuple[IConsumer, list[Entry]]]
"""Assignment of entries to consumers."""


@dataclass(slots=True)
class _Share:
    """The share of one consumer in one round of dispatch."""

    consumer: IConsumer
    left: int
    entries: list[Entry] = field(default_factory=list)


def deal(state: QueueState, now_ms: int) -> tuple[Shares, list[Entry], bool]:
    """Take entries off the lines for consumers with capacity.

    Args:
        state: the state of the queue.
        now_ms: the wall clock; entries that have expired are not delivered.

    Returns:
        The consumers with their entries; the expired entries, which are off the lines as well;
        and whether some consumer has capacity left.
    """
    consumers = state.consumers
    expired: list[Entry] = []
    shares = []
    for consumer in consumers.rotation:
        capacity = consumer.capacity()
        if capacity > 0:
            shares.append(_Share(consumer, capacity))
    if not shares:
        return [], expired, False
    if consumers.priorities and len(shares) > 1:
        for some in _by_priority(state, shares):
            _deal_among(state, some, now_ms, expired)
    else:
        _deal_among(state, shares, now_ms, expired)
    has_room = False
    given: Shares = []
    for share in shares:
        if share.left:
            has_room = True
        if share.entries:
            given.append((share.consumer, share.entries))
    return given, expired, has_room


def _by_priority(state: QueueState, shares: Sequence[_Share]) -> list[list[_Share]]:
    """Divide shares by the priorities of their consumers, the highest first."""
    priorities = state.consumers.priorities
    found: dict[int, list[_Share]] = {}
    for share in shares:
        found.setdefault(priorities.get(share.consumer, 0), []).append(share)
    return [found[priority] for priority in sorted(found, reverse=True)]


def _deal_among(state: QueueState, shares: list[_Share], now_ms: int, expired: list[Entry]) -> None:
    """Deal to consumers of one priority."""
    if state.consumers.cursors:
        _deal_each(state, shares, now_ms, expired)
    elif len(shares) == 1:
        share = shares[0]
        for line in state.levels.lines:
            if line.returned:
                _deal_returned(state, line, shares, 0, now_ms, expired)
            if share.left and line.resident:
                entries = _take(state, line, share.left, now_ms, expired)
                share.left -= len(entries)
                share.entries = share.entries + entries if share.entries else entries
    else:
        turn = 0
        for line in state.levels.lines:
            if line.returned:
                turn = _deal_returned(state, line, shares, turn, now_ms, expired)
            left = sum([share.left for share in shares])
            for entry in _take(state, line, left, now_ms, expired):
                turn = _give(shares, turn, entry)
        _turn_over(state, shares, turn)


def deal_unlisted(state: QueueState, entries: Sequence[Entry]) -> Shares:
    """Distribute entries that are not on a line yet, in shares as fair as those of `deal`.

    Returns:
        The consumers with their entries; entries beyond all capacity are in no share.
    """
    shares = []
    for consumer in state.consumers.rotation:
        capacity = consumer.capacity()
        if capacity > 0:
            shares.append(_Share(consumer, capacity))
    if len(shares) == 1:
        share = shares[0]
        share.entries = list(entries[: share.left])
        state.acquired += len(share.entries)
        return [(share.consumer, share.entries)]
    if state.consumers.priorities:
        for some in _by_priority(state, shares):
            room = sum([share.left for share in some])
            _deal_unlisted_among(state, some, entries[:room])
            entries = entries[room:]
    else:
        _deal_unlisted_among(state, shares, entries)
    return [(share.consumer, share.entries) for share in shares if share.entries]


def _deal_unlisted_among(
    state: QueueState, shares: Sequence[_Share], entries: Sequence[Entry]
) -> None:
    if shares and entries:
        turn = 0
        for entry in entries[: sum([share.left for share in shares])]:
            turn = _give(shares, turn, entry)
            state.acquired += 1
        _turn_over(state, shares, turn)


def _turn_over(state: QueueState, shares: Sequence[_Share], turn: int) -> None:
    """Begin the next round behind the consumer that was served last."""
    last = shares[(turn - 1) % len(shares)].consumer
    state.consumers.turn_to(state.consumers.rotation.index(last) + 1)


def _deal_returned(
    state: QueueState,
    line: EntryList,
    shares: Sequence[_Share],
    turn: int,
    now_ms: int,
    expired: list[Entry],
) -> int:
    """Deal returned entries, except those that no consumer with capacity may have."""
    returned = line.returned
    stay: list[Entry] = []
    size = seen = dealt = 0
    left = sum([share.left for share in shares])
    for entry in returned:
        if dealt == left:
            break
        seen += 1
        if is_over(entry, now_ms, state.is_spared):
            expired.append(entry)
        else:
            place = _give(shares, turn, entry)
            if place < 0:
                stay.append(entry)
                continue
            turn = place
            dealt += 1
        entry.taken = True
        size += len(entry.message.encoded)
    returned[:seen] = stay
    state.acquired += dealt
    line.forget(size)
    return turn


def _take(
    state: QueueState, line: EntryList, count: int, now_ms: int, expired: list[Entry]
) -> list[Entry]:
    """Take up to ``count`` entries from the resident line, leaving out expired ones."""
    taken: list[Entry] = []
    while len(taken) < count:
        missing = count - len(taken)
        entries = line.take(missing)
        found = len(entries)
        for entry in entries:
            if 0 < entry.expires_ms <= now_ms:
                entries = _without_expired(state, entries, now_ms, expired)
                break
        taken = taken + entries if taken else entries
        if found < missing:
            break
    state.acquired += len(taken)
    return taken


def _without_expired(
    state: QueueState, entries: Sequence[Entry], now_ms: int, expired: list[Entry]
) -> list[Entry]:
    left: list[Entry] = []
    for entry in entries:
        (expired if is_over(entry, now_ms, state.is_spared) else left).append(entry)
    return left


def _deal_each(
    state: QueueState, shares: Sequence[_Share], now_ms: int, expired: list[Entry]
) -> None:
    """Deal to consumers with positions of their own: one entry to each in turn."""
    consumers = state.consumers
    served = deque(shares)
    while served:
        share = served.popleft()
        cursor = consumers.cursors.get(share.consumer)
        entry = _head_for(state, share.consumer) if cursor is None else cursor.pop()
        if entry is None:
            continue
        if is_over(entry, now_ms, state.is_spared):
            entry.line.pluck(entry)
            expired.append(entry)
            served.appendleft(share)
            continue
        if cursor is None or not cursor.copies:
            consumers.pluck(entry)
            state.acquired += 1
        share.entries.append(entry)
        share.left -= 1
        if share.left:
            served.append(share)
    consumers.turn_to(1)


def _head_for(state: QueueState, consumer: IConsumer) -> Entry | None:
    for entry in state.levels.entries():
        if not (entry.barred and consumer in entry.barred):
            return entry
    return None


def _give(shares: Sequence[_Share], turn: int, entry: Entry) -> int:
    """Give an entry to the next consumer that has capacity and may have it.

    Returns:
        The index of the next consumer; -1 if no consumer took the entry.
    """
    count = len(shares)
    for step in range(count):
        place = (turn + step) % count
        share = shares[place]
        if share.left and not (entry.barred and share.consumer in entry.barred):
            share.entries.append(entry)
            share.left -= 1
            return place + 1
    return -1
