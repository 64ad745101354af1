# SPDX-License-Identifier: Apache-2.0
"""What the arguments of queue.declare, and policies, make of a queue (09-W-74).

======================  ==========================================================================
message-ttl             the lifetime of messages that state none, or a longer one
max-length, -bytes      drop-head: the bound for waiting messages; reject-publish: the capacity
overflow                reject-publish-dlx refuses as reject-publish does
max-priority            enables priorities; without it the queue is first in, first out
delivery-limit          failed attempts, less one, before the message is a dead letter
single-active-consumer  one consumer at a time, the others wait
dead-letter-exchange    where dead letters are published, with dead-letter-routing-key
======================  ==========================================================================

``expires`` and ``auto-delete`` end the queue as a whole: see
`amqproute.broker.queue_declarations`. The type of a queue, its mode and its version change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from amqproute.broker.exchanges.argument_rules import Overflow, TermValue
from amqproute.broker.node_declaration import NodeDeclaration
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.node_options import Excess, QueueOptions
from amqproute.translation.dead_letters import DeadLetterTarget

PRIORITIES: Final = 10
"""How many priorities a queue tells apart that has any."""


@dataclass(frozen=True, slots=True)
class DeclaredTerms:
    """What a client declared of a queue, beside its name.

    Attributes:
        auto_delete: it goes with its last consumer.
        arguments: as they came.
    """

    auto_delete: bool = False
    arguments: Mapping[str, object] = field(default_factory=dict)


def with_terms(declaration: NodeDeclaration, terms: Mapping[str, TermValue]) -> NodeDeclaration:
    """Return a declaration with what arguments and policies say.

    Args:
        declaration: with the limits and options that are usual here.
        terms: values in force by their names without ``x-``, checked.
    """
    return replace(
        declaration,
        limits=_limits(declaration.limits, terms),
        options=_options(declaration.options, terms),
        dead_letter_target=dead_letter_target(terms),
    )


def _limits(limits: QueueLimits, terms: Mapping[str, TermValue]) -> QueueLimits:
    ttl_ms, limit = _number(terms, "message-ttl"), _number(terms, "delivery-limit")
    length, octets = _number(terms, "max-length"), _number(terms, "max-length-bytes")
    drops_head = terms.get("overflow", Overflow.DROP_HEAD.value) == Overflow.DROP_HEAD.value
    is_bounded = length is not None or octets is not None
    refuses_all = not drops_head and length == 0
    return replace(
        limits,
        # 0 means that only somebody who waits for it gets the message.
        ttl_ms=limits.ttl_ms if ttl_ms is None else max(1, ttl_ms),
        max_deliveries=limits.max_deliveries if limit is None else limit + 1,
        priorities=PRIORITIES if _number(terms, "max-priority") else 1,
        capacity=limits.capacity if drops_head or not length else length,
        length=length if drops_head else None,
        octets=0 if refuses_all else octets,
        drops_head=drops_head and is_bounded,
    )


def _options(options: QueueOptions, terms: Mapping[str, TermValue]) -> QueueOptions:
    if terms.get("single-active-consumer") is True:
        return replace(options, destructive_links=1, excess=Excess.WAIT)
    return options


def dead_letter_target(terms: Mapping[str, TermValue]) -> DeadLetterTarget | None:
    """Return where dead letters of a queue with these terms are published, if anywhere."""
    exchange, key = terms.get("dead-letter-exchange"), terms.get("dead-letter-routing-key")
    if not isinstance(exchange, str):
        return None
    return DeadLetterTarget(exchange, key if isinstance(key, str) else None)


def _number(terms: Mapping[str, TermValue], name: str) -> int | None:
    value = terms.get(name)
    return value if isinstance(value, int) else None


__all__ = ["DeclaredTerms", "dead_letter_target", "with_terms"]
