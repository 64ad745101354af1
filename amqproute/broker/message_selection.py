# SPDX-License-Identifier: Apache-2.0
"""Selection of messages by an operator: by id, destination or selector.

A `MessageSelection` is made of what was typed. For each relay queue it says whether it is meant as
a whole, not at all, or which of its entries. A domain means the queue of its own name, those of its
addresses (returned messages), and on the queue of a gateway that several domains share the messages
for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import lru_cache

from amqproute.address import from_compatibility, normalize_domain, parse
from amqproute.entry import Entry
from amqproute.errors import InvalidField
from amqproute.filters.selector import Selector, compile_selector

__all__ = ["EVERYTHING", "NOTHING", "MessageSelection", "Picks", "domain_of"]

Picks = Callable[[Entry], bool]
"""Tells for an entry whether it is meant."""


def EVERYTHING(_: Entry) -> bool:
    """Mean each entry."""
    return True


def NOTHING(_: Entry) -> bool:
    """Mean no entry."""
    return False


class MessageSelection:
    """Selection criteria of an operator: all that are given have to match.

    Args:
        ids: the ids of entries; none for any.
        to: a domain, or the key of a relay queue; empty for any.
        where: a selector; empty for any message.
        now_ms: the wall clock, for selectors.

    Raises:
        InvalidField: the domain is none, or the selector does not compile.
    """

    __slots__ = ("_selector", "ids", "to", "where")

    def __init__(
        self,
        ids: Collection[int] = (),
        to: str = "",
        where: str = "",
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self.ids = frozenset(ids)
        self.to = to if ":" in to or "/" in to or not to else normalize_domain(to)
        self.where = where
        self._selector: Selector | None = None
        if where.strip():
            self._selector = compile_selector(where, now_ms=now_ms)

    @property
    def words(self) -> int:
        """The number of words of the selector, a measure of its cost."""
        return 0 if self._selector is None else self._selector.words

    def __str__(self) -> str:
        parts = [f"ids {', '.join(map(str, sorted(self.ids)))}"] if self.ids else []
        if self.to:
            parts.append(f"to {self.to}")
        if self.where:
            parts.append(f"where {self.where}")
        return ", ".join(parts) or "everything"

    def of(self, key: str, domain: str, way: Callable[[str], str]) -> Picks:
        """Return what is meant of one relay queue; `EVERYTHING` and `NOTHING` are themselves.

        Args:
            key: the key of its next hop.
            domain: that the next hop has to prove.
            way: gives the key of the next hop for a domain, as routes are now.
        """
        tests: list[Picks] = []
        if self.to and self.to not in (key, domain):
            if _place(way(self.to)) != _place(key):
                return NOTHING
            wanted = self.to
            tests.append(lambda entry: domain_of(entry.message.to) == wanted)
        if self.ids:
            ids = self.ids
            tests.append(lambda entry: entry.id in ids)
        if self._selector is not None:
            matches = self._selector.matches
            tests.append(lambda entry: matches(entry.message))
        if not tests:
            return EVERYTHING
        if len(tests) == 1:
            return tests[0]
        return lambda entry: all(test(entry) for test in tests)


def _place(key: str) -> str:
    """Return the gateway of a key: each node may have a queue of its own there."""
    return key.partition("/")[0]


@lru_cache(maxsize=4096)
def domain_of(to: str | None) -> str:
    """Return the domain of a message's ``to``; empty if it has none."""
    if not to:
        return ""
    try:
        return parse(from_compatibility(to) or to).domain or ""
    except InvalidField:
        return ""
