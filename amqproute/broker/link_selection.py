# SPDX-License-Identifier: Apache-2.0
"""Selection of a queue's entries by a link."""

from __future__ import annotations

from typing import Final

from amqproute.entry import Entry
from amqproute.filters.registry import FilterSet
from amqproute.stored_values import encode_value

WORDS_PER_TEST: Final = 8
"""Words of a selector that cost as much as asking a filter costs anyway."""


class LinkSelection:
    """A filter set, and a date before which nothing is wanted.

    Two are equal if they select the same whoever asks: a queue then examines its entries for both
    at once.

    Args:
        filters: the filter set.
        since_ms: what arrived earlier is not selected; 0 for no such date.

    Attributes:
        cost: how much it costs to ask, as a multiple of what a short selector does.
    """

    __slots__ = ("_key", "_matches", "_since_ms", "cost")

    def __init__(self, filters: FilterSet, since_ms: int = 0) -> None:
        self._matches = filters.matches
        self.cost = 1 + filters.words // WORDS_PER_TEST
        self._since_ms = since_ms
        self._key: object = None
        if "origin" not in filters.needs:  # no-local means another container for each link
            said = [[each.descriptor, each.value] for each in filters.filters]
            self._key = (encode_value(said), since_ms)

    def __call__(self, entry: Entry) -> bool:
        """Return whether the link receives an entry."""
        return entry.arrived_ms >= self._since_ms and self._matches(entry.message, entry.origin)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, LinkSelection) and self._key is not None and self._key == other._key
        )

    def __hash__(self) -> int:
        return id(self) if self._key is None else hash(self._key)
