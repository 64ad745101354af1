# SPDX-License-Identifier: Apache-2.0
"""Tables of many things by name that are also read in the order of the names, part by part."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import NoReturn, TypeVar

__all__ = ["NameTable", "count_names", "names_behind"]

Value = TypeVar("Value")


class NameTable(dict[str, Value]):
    """Values by name, with the names in order.

    Values come and go by assignment, ``del`` and `pop` only. The order is made when it is first
    asked for; from then on a new name costs a binary search and a shift of the list, so that a part
    of ten thousand names costs as much as a part of ten.

    Args:
        is_ordered: whether the order is kept from the beginning.
    """

    def __init__(self, is_ordered: bool = False) -> None:
        super().__init__()
        self._order: list[str] | None = [] if is_ordered else None

    @property
    def order(self) -> Sequence[str]:
        """The names in order: the list itself, which the next change changes."""
        if self._order is None:
            self._order = sorted(self)
        return self._order

    def __setitem__(self, name: str, value: Value) -> None:
        if self._order is not None and name not in self:
            insort(self._order, name)
        super().__setitem__(name, value)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        if self._order is not None:
            del self._order[bisect_left(self._order, name)]

    def pop(self, name: str, *default: Value | None) -> Value:  # type: ignore[override]
        """Remove a name; return its value, or the default.

        Raises:
            KeyError: there is no such name, and no default.
        """
        if name not in self:
            return super().pop(name, *default)
        value = self[name]
        del self[name]
        return value

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("values come and go by assignment, del and pop only")

    clear = popitem = setdefault = update = __ior__ = _refuse


def count_names(order: Sequence[str], prefix: str = "", *, is_inside: bool = True) -> int:
    """Return how many names begin with a prefix, or do not."""
    return sum(end - begin for begin, end in _ranges(order, prefix, is_inside))


def names_behind(
    order: Sequence[str], name: str | None, prefix: str = "", *, is_inside: bool = True
) -> Iterator[str]:
    """Yield the names behind another one, in order; the list must not change meanwhile.

    Args:
        order: the names in order.
        name: the name before them, whether it still exists or not; None for all names.
        prefix: only names that begin with it.
        is_inside: False for those that do not.
    """
    for begin, end in _ranges(order, prefix, is_inside):
        start = begin if name is None else bisect_right(order, name, begin, end)
        for place in range(start, end):
            yield order[place]


def _ranges(order: Sequence[str], prefix: str, is_inside: bool) -> Iterable[tuple[int, int]]:
    if not prefix:
        return ((0, len(order)),) if is_inside else ()
    begin = bisect_left(order, prefix)
    end = bisect_left(order, prefix[:-1] + chr(ord(prefix[-1]) + 1), begin)
    return ((begin, end),) if is_inside else ((0, begin), (end, len(order)))
