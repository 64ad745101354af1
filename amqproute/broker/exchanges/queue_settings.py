# SPDX-License-Identifier: Apache-2.0
"""Settings of queues from arguments of queue.declare and from policies (09-W-74).

======================  ==========================================================================
message-ttl             the lifetime of messages that state none, or a longer one
max-length, -bytes      drop-head: the bound for waiting messages; reject-publish: the capacity
overflow                reject-publish-dlx: what is refused becomes a dead letter as well
max-priority            enables priorities; without it the queue is first in, first out, unless its
                        client speaks 0-9, in which every queue has them (09-BASIC-07)
delivery-limit          failed attempts, less one, before the message is a dead letter
consumer-timeout        the longest time that a message may be unacknowledged
single-active-consumer  one consumer at a time, the others wait
dead-letter-exchange    where dead letters are published, with dead-letter-routing-key
======================  ==========================================================================

Policies apply to every queue that an operator or a client has named. Options of a node count as
arguments do: the lower number is in force, and a dead-letter node goes before the exchange of a
policy. ``expires`` and ``auto-delete`` end the queue as a whole: see
`amqproute.broker.queue_declarations`. The type of a queue, its mode and its version change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from amqproute.address import local_name
from amqproute.broker.exchanges.argument_rules import (
    EffectiveTerm,
    Overflow,
    QueueKind,
    TermValue,
    effective_terms,
)
from amqproute.broker.exchanges.topology_policies import PolicySet
from amqproute.broker.node_declaration import NodeDeclaration
from amqproute.broker.node_limits import AT_ONCE_MS, QueueLimits
from amqproute.broker.node_options import Excess, QueueOptions
from amqproute.translation.dead_letters import DeadLetterTarget

PRIORITIES: Final = 10
"""Number of priorities of a queue that has any."""


@dataclass(frozen=True, slots=True)
class DeclaredTerms:
    """A client's declaration of a queue, without the name.

    Attributes:
        auto_delete: whether it is deleted with its last consumer.
        arguments: the arguments as received.
        has_priorities: whether it has priorities, unless ``x-max-priority`` is 0.
    """

    auto_delete: bool = False
    arguments: Mapping[str, object] = field(default_factory=dict)
    has_priorities: bool = False


def kind_of(declaration: NodeDeclaration) -> QueueKind:
    """Return the type that a queue has for policies; one of an operator is classic."""
    said = (declaration.terms or {}).get("queue-type")
    return QueueKind.CLASSIC if said is None else QueueKind(said)


def terms_in_force(declaration: NodeDeclaration, policies: PolicySet) -> dict[str, EffectiveTerm]:
    """Return what options, arguments and policies say of a queue, and where each value stands.

    Args:
        declaration: the declaration of the queue.
        policies: the policies of its virtual host.
    """
    arguments = declaration.terms
    local = local_name(declaration.name)
    policy, operator_policy = policies.of_queue(local, kind_of(declaration))
    if arguments is None and policy is None and operator_policy is None:
        return {}
    limits = declaration.limits
    options: dict[str, TermValue] = {}
    if limits.ttl_ms:
        options["message-ttl"] = limits.ttl_ms
    if limits.max_deliveries:
        options["delivery-limit"] = limits.max_deliveries - 1
    terms = effective_terms(arguments or {}, policy, operator_policy, options)
    if arguments is None:
        # The operator who made the queue says when it ends, and where its dead letters go.
        foreign = {"expires"}
        if declaration.dead_letter is not None:
            foreign |= {"dead-letter-exchange", "dead-letter-routing-key"}
        for key in foreign & terms.keys():
            del terms[key]
    return terms


def with_terms(declaration: NodeDeclaration, terms: Mapping[str, TermValue]) -> NodeDeclaration:
    """Return a declaration with what arguments and policies say.

    Args:
        declaration: the declaration with the limits and options that are usual here.
        terms: values in force by their names without ``x-``, checked.
    """
    if declaration.terms is None and not terms:
        return declaration
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
    levels = _number(terms, "max-priority")
    priorities = PRIORITIES if levels else 1
    capacity = limits.capacity
    if length and not drops_head:
        capacity = min(length, capacity or length)
    return replace(
        limits,
        ttl_ms=limits.ttl_ms if ttl_ms is None else max(AT_ONCE_MS, ttl_ms),
        max_deliveries=limits.max_deliveries if limit is None else limit + 1,
        priorities=limits.priorities if levels is None else priorities,
        capacity=capacity,
        length=length if drops_head else None,
        octets=0 if refuses_all else octets,
        drops_head=drops_head and is_bounded,
        buries_refused=terms.get("overflow") == Overflow.REJECT_PUBLISH_DLX.value,
        consumer_timeout_ms=_number(terms, "consumer-timeout"),
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


__all__ = [
    "PRIORITIES",
    "DeclaredTerms",
    "dead_letter_target",
    "kind_of",
    "terms_in_force",
    "with_terms",
]
