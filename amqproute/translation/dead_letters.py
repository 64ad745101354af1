# SPDX-License-Identifier: Apache-2.0
"""``x-death``: earlier deaths of a message, in RabbitMQ's form.

It is an array of tables, the last death first, one for each queue and reason::

    count               number of deaths there for that reason, long
    reason              rejected, expired, maxlen or delivery_limit
    queue               the queue
    time                of the first death, whole seconds
    exchange            the exchange of the message then
    routing-keys        its routing keys
    original-expiration the removed expiration, as text; only if there was one

In addition there are ``x-first-death-reason``, ``-queue`` and ``-exchange``, which never change,
and ``x-last-death-`` likewise, which do. They are message annotations, so 0-9-1 has them as
headers.

Anybody can write them. Unreadable ones are left out, and nothing but the count and the detection of
cycles depends on them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from amqproute.translation.message_parts import CARBON_COPY, EXCHANGE, ROUTING_KEY
from amqproute.wire.amqp10.types import Long, Symbol, Timestamp

DEATHS: Final = Symbol("x-death")
MOST_DEATHS: Final = 100
"""Most tables kept, the last deaths first."""
_COUNT_LIMIT: Final = 1 << 62


class DeathReason(enum.Enum):
    """The reason why a message left a queue without having been consumed."""

    REJECTED = "rejected"
    EXPIRED = "expired"
    MAX_LENGTH = "maxlen"
    DELIVERY_LIMIT = "delivery_limit"


@dataclass(frozen=True)
class DeathEvent:
    """A death of a message.

    Attributes:
        queue: the queue that it leaves.
        reason: the reason of its death.
        time_ms: wall clock.
        exchange: the exchange of its publish, or of its last dead-lettering.
        routing_keys: likewise.
        expiration: the expiration of the message, text; None without one.
    """

    queue: str
    reason: DeathReason
    time_ms: int
    exchange: str
    routing_keys: tuple[str, ...]
    expiration: str | None = None


@dataclass(frozen=True)
class DeadLetterTarget:
    """The target of a queue's dead letters.

    Attributes:
        exchange: ``x-dead-letter-exchange``; empty for the default exchange.
        routing_key: ``x-dead-letter-routing-key``; None keeps those of the message.
    """

    exchange: str
    routing_key: str | None = None


def death_annotations(
    annotations: Mapping[object, object], event: DeathEvent, target: DeadLetterTarget
) -> tuple[dict[Symbol, object], tuple[Symbol, ...]]:
    """Return the annotations of a dead letter.

    Args:
        annotations: the annotations of the message.
        event: its death.
        target: its target.

    Returns:
        Annotations to set, and those to remove.
    """
    there = _tables(annotations)
    table: dict[str, object] = {
        "count": Long(1),
        "reason": event.reason.value,
        "queue": event.queue,
        "time": Timestamp(event.time_ms // 1000 * 1000),
        "exchange": event.exchange,
        "routing-keys": list(event.routing_keys),
    }
    if event.expiration is not None:
        table["original-expiration"] = event.expiration
    others = []
    for each in there:
        if _place(each) == (event.queue, event.reason.value):
            table = {**each, "count": Long(min(_count(each) + 1, _COUNT_LIMIT))}
        else:
            others.append(each)
    changed: dict[Symbol, object] = {
        DEATHS: [table, *others][:MOST_DEATHS],
        EXCHANGE: target.exchange,
        ROUTING_KEY: dead_letter_keys(event, target)[0],
    }
    for word, value in (
        ("reason", event.reason.value),
        ("queue", event.queue),
        ("exchange", event.exchange),
    ):
        changed[Symbol(f"x-last-death-{word}")] = value
        first = Symbol(f"x-first-death-{word}")
        if first not in annotations:
            changed[first] = value
    return changed, (CARBON_COPY,) if target.routing_key is not None else ()


def dead_letter_keys(event: DeathEvent, target: DeadLetterTarget) -> tuple[str, ...]:
    """Return the routing keys of a dead letter."""
    if target.routing_key is not None:
        return (target.routing_key,)
    return event.routing_keys or ("",)


def is_dead_letter_circle(
    annotations: Mapping[object, object], queue: str, reason: DeathReason
) -> bool:
    """Return whether a dead letter returns to a queue without a consumer's rejection in between.

    That is, it died there before, and since then no consumer has rejected it: such a message would
    circulate for ever, and is dropped.

    Args:
        annotations: the annotations of the message, before `death_annotations`.
        queue: its next queue.
        reason: the reason of its present death.
    """
    if reason is DeathReason.REJECTED:
        return False
    for each in _tables(annotations):
        if each.get("reason") == DeathReason.REJECTED.value:
            return False
        if each.get("queue") == queue:
            return True
    return False


def _tables(annotations: Mapping[object, object]) -> list[dict[str, object]]:
    value = annotations.get(DEATHS)
    if not isinstance(value, list | tuple):
        return []
    return [dict(each) for each in value if isinstance(each, Mapping) and _count(each)]


def _place(table: Mapping[str, object]) -> tuple[object, object]:
    return table.get("queue"), table.get("reason")


def _count(table: Mapping[str, object]) -> int:
    count = table.get("count")
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 0


__all__ = [
    "DEATHS",
    "MOST_DEATHS",
    "DeadLetterTarget",
    "DeathEvent",
    "DeathReason",
    "dead_letter_keys",
    "death_annotations",
    "is_dead_letter_circle",
]
