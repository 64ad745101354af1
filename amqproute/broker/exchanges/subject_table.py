# SPDX-License-Identifier: Apache-2.0
"""Subscriptions and bindings of a topic of AMQP 1.0, by the patterns that they have for subjects.

An exchange's bindings and a topic's are found in the same way, by `TopicTrie` where there are
patterns; what differs is the match. A subject always has words, if only an empty one, while an
empty routing key has none. And a topic's bindings may have other filters beside the pattern, which
are asked of those that are found here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Generic, TypeVar

from amqproute.broker.exchanges.topic_trie import TopicTrie

FEW: Final = 8

Value = TypeVar("Value")


class SubjectTable(Generic[Value]):
    """Values with patterns, in the order in which they came.

    Args:
        few: up to so many patterns are not looked for: asking all costs less.

    Attributes:
        trie: the patterns of those that have one.
    """

    __slots__ = ("_few", "_next", "_order", "_patterns", "_unconditional", "trie")

    def __init__(self, few: int = FEW) -> None:
        self._few = few
        self.trie: TopicTrie[Value] = TopicTrie()
        self._order: dict[Value, int] = {}
        self._patterns: dict[Value, Sequence[str]] = {}
        self._unconditional: dict[Value, None] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[Value]:
        return iter(tuple(self._order))

    def __contains__(self, value: object) -> bool:
        return value in self._order

    @property
    def reads_subjects(self) -> bool:
        """Subjects make a difference to `match`."""
        return len(self._patterns) > self._few

    def put(self, value: Value, pattern: Sequence[str] | None) -> None:
        """Add a value, or give it another pattern at its place.

        Args:
            value: the value to be found.
            pattern: words that a subject has to match; None: all subjects do.
        """
        if value in self._order:
            self._take_out(value)
        else:
            self._order[value] = self._next
            self._next += 1
        if pattern is None:
            self._unconditional[value] = None
        else:
            self._patterns[value] = pattern
            self.trie.add_words(pattern, value)

    def remove(self, value: Value) -> None:
        """Remove a value; nothing happens if it is not there."""
        if self._order.pop(value, None) is not None:
            self._take_out(value)

    def clear(self) -> None:
        """Remove all."""
        for value in self:
            self.remove(value)

    def match(self, subject: Sequence[str]) -> list[Value]:
        """Return the values whose patterns match a subject, in order; all where there are few.

        Args:
            subject: its words; not looked at unless `reads_subjects`.
        """
        if len(self._patterns) <= self._few:
            return list(self._order)
        found = self.trie.match_words(subject)
        if not found:
            return [*self._unconditional]
        return self.ordered((*self._unconditional, *found))

    def ordered(self, values: Iterable[Value]) -> list[Value]:
        """Return values of the table in order."""
        return sorted(values, key=self._order.__getitem__)

    def _take_out(self, value: Value) -> None:
        pattern = self._patterns.pop(value, None)
        if pattern is None:
            del self._unconditional[value]
        else:
            self.trie.remove_words(pattern, value)


__all__ = ["SubjectTable"]
