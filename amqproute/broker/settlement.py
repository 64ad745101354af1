# SPDX-License-Identifier: Apache-2.0
"""Effects of outcomes on entries (O-10 to O-13): decisions, which the queue applies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amqproute.broker.consumer_cursor import ConsumerCursor
from amqproute.broker.queue_state import QueueState
from amqproute.entry import MOST_COUNTED, Entry
from amqproute.outcomes import (
    UNREADABLE,
    Acceptance,
    ErrorDetails,
    Modification,
    Outcome,
    Rejection,
    Release,
)
from amqproute.values import DeadLetterReason

__all__ = [
    "Browsed",
    "Bury",
    "Quarantine",
    "Remove",
    "Return",
    "Rewrite",
    "SettlementDecision",
    "decide",
    "is_release",
    "make_available",
    "released_code",
]


@dataclass(frozen=True, slots=True)
class Remove:
    """Entries were accepted: archive them."""

    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Entries are damaged: the store keeps them for an operator."""

    entries: list[Entry]


@dataclass(frozen=True, slots=True)
class Bury:
    """Entries are dead letters.

    Attributes:
        entries: the entries.
        reason: the reason.
        error: the consumer's error.
    """

    entries: list[Entry]
    reason: DeadLetterReason
    error: ErrorDetails | None = None


@dataclass(frozen=True, slots=True)
class Return:
    """Entries go back into their old places."""

    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """An entry has changed: its row in the store has to follow.

    Attributes:
        entry: the entry.
        encoded: its message, if that has changed.
    """

    entry: Entry
    encoded: bytes | None


@dataclass(frozen=True, slots=True)
class Browsed:
    """A browser has settled entries, which stay on the queue.

    Attributes:
        entries: the entries.
        is_again: whether the browser gets them again; else they are confirmed.
    """

    entries: Sequence[Entry]
    is_again: bool


SettlementDecision = Remove | Quarantine | Bury | Return | Rewrite | Browsed


def decide(
    state: QueueState, entries: Sequence[Entry], outcome: Outcome, consumer: object
) -> list[SettlementDecision]:
    """Decide on the effects of an outcome on entries.

    Delivery counts, annotations, entries barred from a consumer and cursors of browsers change at
    once; nothing is put into a batch.

    Args:
        state: the state of the queue.
        entries: held by the consumer.
        outcome: the outcome of all of them.
        consumer: their holder; None without one.
    """
    cursor = state.consumers.cursors.get(consumer)
    if cursor is not None and cursor.copies:
        return _browsed(cursor, entries, outcome)
    if type(outcome) is Acceptance:
        return [Remove(entries)]
    if outcome is UNREADABLE:
        return [Quarantine(list(entries))]
    if type(outcome) is Rejection:
        return [Bury(list(entries), DeadLetterReason.REJECTED, outcome.error)]
    if type(outcome) is Modification:
        return _modified(entries, outcome, consumer, state.limits.max_deliveries)
    return [Return(entries)]


def _browsed(
    cursor: ConsumerCursor, entries: Sequence[Entry], outcome: Outcome
) -> list[SettlementDecision]:
    """Decide on a browser's outcome, which concerns its own link only (S-04, L-24 to L-28)."""
    is_again = type(outcome) is Release or (
        type(outcome) is Modification and not outcome.undeliverable_here
    )
    if is_again:
        for entry in entries:
            cursor.show_again(entry.line, entry)
    elif cursor.needed is None:
        return []
    else:
        for entry in entries:
            cursor.confirmed(entry)
    return [Browsed(entries, is_again)]


def _modified(
    entries: Sequence[Entry], outcome: Modification, consumer: object, most_deliveries: int
) -> list[SettlementDecision]:
    """Apply a modified outcome (part 3 §3.4.5)."""
    decisions: list[SettlementDecision] = []
    back: list[Entry] = []
    spent: list[Entry] = []
    for entry in entries:
        if outcome.delivery_failed:
            entry.delivery_count = min(entry.delivery_count + 1, MOST_COUNTED)
        if outcome.undeliverable_here and consumer is not None:
            entry.bar(consumer)
        encoded = None
        if outcome.annotations:
            entry.message = entry.message.with_annotations(outcome.annotations)
            encoded = entry.message.encoded
        if entry.stored and (outcome.delivery_failed or encoded is not None):
            decisions.append(Rewrite(entry, encoded))
        is_spent = (
            most_deliveries and outcome.delivery_failed and entry.delivery_count >= most_deliveries
        )
        (spent if is_spent else back).append(entry)
    if spent:
        decisions.append(Bury(spent, DeadLetterReason.MAX_DELIVERIES))
    if back:
        decisions.append(Return(back))
    return decisions


def make_available(state: QueueState, entries: Sequence[Entry]) -> None:
    """Put released entries back in their old places (O-11)."""
    consumers = state.consumers
    for entry in entries:
        entry.line.back(entry)
        if consumers.cursors:
            consumers.offer_again(entry)


def is_release(decision: SettlementDecision) -> bool:
    """Return whether a consumer gives entries back unprocessed."""
    return type(decision) is Return or (
        type(decision) is Bury and decision.reason is DeadLetterReason.MAX_DELIVERIES
    )


def released_code(outcome: Outcome) -> str | None:
    """Return the journal's code for entries given back with this outcome."""
    if type(outcome) is not Modification:
        return None
    return "modified.failed" if outcome.delivery_failed else "modified"
