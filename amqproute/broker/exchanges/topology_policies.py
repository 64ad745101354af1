# SPDX-License-Identifier: Apache-2.0
"""Policies: settings of all queues or exchanges whose names match a pattern.

To a queue or an exchange one policy applies, of those that fit the one with the highest priority,
and of equals the one whose name comes first. Beside it one operator policy applies, chosen in the
same way. What is in force of both and of arguments is decided by
`amqproute.broker.exchanges.argument_rules.effective_terms`.

A `PolicySet` belongs to one virtual host and never changes: each change makes a new one.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from amqproute.broker.exchanges.argument_rules import (
    EXCHANGE_POLICY_KEYS,
    LONGEST_NAME,
    OPERATOR_KEYS,
    QUEUE_POLICY_KEYS,
    PolicyTerms,
    QueueKind,
    policy_terms,
)
from amqproute.broker.exchanges.exchange_graph import DEFAULT_EXCHANGE
from amqproute.broker.exchanges.topology_fault import TopologyFault, TopologyFaultKind

LONGEST_PATTERN: Final = 1024
"""Characters of a pattern."""
MOST_POLICIES: Final = 1000
"""Policies of one virtual host, operator policies among them: each new queue is matched with
them."""
MOST_PRIORITY: Final = 1 << 31
"""Priorities are below this, and above its negative."""


class PolicyScope(enum.Enum):
    """Scope of a policy, in the words of RabbitMQ."""

    QUEUES = "queues"
    CLASSIC_QUEUES = "classic_queues"
    QUORUM_QUEUES = "quorum_queues"
    EXCHANGES = "exchanges"
    ALL = "all"

    @property
    def keys(self) -> frozenset[str]:
        """Keys that such a policy can have."""
        if self is PolicyScope.EXCHANGES:
            return EXCHANGE_POLICY_KEYS
        return QUEUE_POLICY_KEYS | (EXCHANGE_POLICY_KEYS if self is PolicyScope.ALL else set())

    def fits_queue(self, kind: QueueKind) -> bool:
        """Tell whether it applies to queues of a type."""
        if self is PolicyScope.CLASSIC_QUEUES:
            return kind is QueueKind.CLASSIC
        if self is PolicyScope.QUORUM_QUEUES:
            return kind is QueueKind.QUORUM
        return self is not PolicyScope.EXCHANGES


@dataclass(frozen=True)
class TopologyPolicy:
    """A policy over queues, exchanges, or both.

    Attributes:
        pattern: a regular expression; it fits a name in which it is found.
        scope: the kind of object it applies to.
        priority: rank among the policies whose pattern matches; the highest applies.
        terms: its name, and what it says.
        is_operator: whether it is an operator policy, which bounds arguments and ordinary policies.
        host: the virtual host; empty for ``/``.
    """

    pattern: str
    scope: PolicyScope
    priority: int
    terms: PolicyTerms
    is_operator: bool = False
    host: str = ""
    _compiled: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_compiled", re.compile(self.pattern))

    @property
    def name(self) -> str:
        """Of the policy."""
        return self.terms.name

    def fits(self, name: str) -> bool:
        """Tell whether its pattern fits a name."""
        return self._compiled.search(name) is not None


def topology_policy(
    name: str,
    pattern: str,
    definition: Mapping[str, object],
    scope: PolicyScope = PolicyScope.ALL,
    priority: int = 0,
    is_operator: bool = False,
    host: str = "",
) -> TopologyPolicy:
    """Check what is said of a policy.

    Raises:
        TopologyFault: something of it is wrong, or has no meaning in such a policy; the words name
            the key.
    """
    size = len(name.encode("utf-8", "surrogatepass"))
    if not 0 < size <= LONGEST_NAME or not name.isprintable():
        raise _fault(f"name: it has 1 to {LONGEST_NAME} octets that can be printed")
    problem = wrong_pattern(pattern)
    if problem:
        raise _fault(f"pattern: {problem}")
    if not -MOST_PRIORITY < priority < MOST_PRIORITY:
        raise _fault(f"priority: {priority} is not within 32 bits")
    keys = scope.keys & OPERATOR_KEYS if is_operator else scope.keys
    if not keys:
        raise _fault("apply-to: an operator policy applies to queues")
    terms, unknown = policy_terms(name, definition, keys)
    if unknown:
        kind = "an operator policy" if is_operator else f"a policy for {scope.value}"
        raise _fault(
            f"definition: {unknown[0]!r:.80} has no meaning in {kind}; there are "
            f"{', '.join(sorted(keys))}"
        )
    if not terms.values:
        raise _fault("definition: it says nothing")
    return TopologyPolicy(pattern, scope, priority, terms, is_operator, host)


def wrong_pattern(pattern: str) -> str:
    """Return in words what is wrong with a pattern; empty if nothing is."""
    if len(pattern) > LONGEST_PATTERN:
        return f"it has {len(pattern)} characters, more than {LONGEST_PATTERN}"
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"{pattern!r:.80} is not a regular expression: {error}"
    return ""


class PolicySet:
    """The policies of a virtual host.

    Args:
        policies: the policies of the virtual host, in any order.
    """

    __slots__ = ("_operator", "_plain")

    def __init__(self, policies: Iterable[TopologyPolicy] = ()) -> None:
        ordered = sorted(policies, key=lambda each: (-each.priority, each.name))
        self._plain = [each for each in ordered if not each.is_operator]
        self._operator = [each for each in ordered if each.is_operator]

    def __bool__(self) -> bool:
        """There are any."""
        return bool(self._plain or self._operator)

    def __repr__(self) -> str:
        return f"<PolicySet policies={len(self._plain)} operator={len(self._operator)}>"

    def of_queue(
        self, name: str, kind: QueueKind = QueueKind.CLASSIC
    ) -> tuple[PolicyTerms | None, PolicyTerms | None]:
        """Return the policy and the operator policy that apply to a queue."""
        return _first_for_queue(self._plain, name, kind), _first_for_queue(
            self._operator, name, kind
        )

    def of_exchange(self, name: str) -> PolicyTerms | None:
        """Return the policy that applies to an exchange; none does to the default exchange."""
        if name == DEFAULT_EXCHANGE:
            return None
        for each in self._plain:
            if each.scope in (PolicyScope.EXCHANGES, PolicyScope.ALL) and each.fits(name):
                return each.terms
        return None


def _first_for_queue(
    policies: Iterable[TopologyPolicy], name: str, kind: QueueKind
) -> PolicyTerms | None:
    for each in policies:
        if each.scope.fits_queue(kind) and each.fits(name):
            return each.terms
    return None


NO_POLICIES: Final = PolicySet()


def policy_sets(policies: Iterable[TopologyPolicy]) -> dict[str, PolicySet]:
    """Return policies by their virtual hosts."""
    found: dict[str, list[TopologyPolicy]] = {}
    for each in policies:
        found.setdefault(each.host, []).append(each)
    return {host: PolicySet(several) for host, several in found.items()}


def _fault(words: str) -> TopologyFault:
    return TopologyFault(TopologyFaultKind.INVALID_ARGUMENT, words)


__all__ = [
    "LONGEST_PATTERN",
    "MOST_POLICIES",
    "NO_POLICIES",
    "PolicyScope",
    "PolicySet",
    "TopologyPolicy",
    "policy_sets",
    "topology_policy",
    "wrong_pattern",
]
