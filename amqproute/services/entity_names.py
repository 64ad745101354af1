# SPDX-License-Identifier: Apache-2.0
"""Entities of a type by name, in the order of their names, as far as their owners keep one.

A part of a list costs as much as it shows: its first name is found by binary search, and no other
name is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import Final

from amqproute.address import host_label
from amqproute.broker.name_table import count_names, names_behind

__all__ = ["EntityNames", "EntityTable"]

_DEFAULT: Final = host_label("")


@dataclass(frozen=True, slots=True)
class EntityTable:
    """A table whose owner keeps its names in order.

    Attributes:
        order: returns the names; see `NameTable.order`.
        row: makes the row of one; raises `KeyError` if it does not exist.
        base: with which all names begin, before their virtual hosts.
        has_hosts: whether the entities belong to virtual hosts.
    """

    order: Callable[[], Sequence[str]]
    row: Callable[[str], Mapping[str, object]]
    base: str = ""
    has_hosts: bool = True

    def count(self, host: str | None) -> int:
        """Return how many there are in a virtual host; see `EntityNames`."""
        if host is None:
            return len(self.order())
        if not self.has_hosts:
            return 0
        return count_names(self.order(), self._prefix(host), is_inside=host != _DEFAULT)

    def behind(self, name: str | None, host: str | None) -> Iterator[str]:
        """Yield names in order; see `EntityNames`."""
        if host is None:
            return names_behind(self.order(), name)
        if not self.has_hosts:
            return iter(())
        return names_behind(self.order(), name, self._prefix(host), is_inside=host != _DEFAULT)

    def _prefix(self, host: str) -> str:
        """Return how names of a virtual host begin; for the first, how those of others do."""
        return f"{self.base}//" if host == _DEFAULT else f"{self.base}//{host}/"


class EntityNames:
    """Entities in one or more tables; a name is in one of them."""

    def __init__(self, *tables: EntityTable) -> None:
        self._tables = tables

    def __repr__(self) -> str:
        return f"<EntityNames {self.count()}>"

    def count(self, host: str | None = None) -> int:
        """Return the number of entities.

        Args:
            host: the label of a virtual host; None for all.
        """
        return sum(table.count(host) for table in self._tables)

    def behind(self, name: str | None, host: str | None = None) -> Iterator[str]:
        """Yield the names behind another one, in order; no entity may come or go meanwhile.

        Args:
            name: the name before them, whether it exists or not; None for all.
            host: the label of a virtual host; None for all.
        """
        return merge(*(table.behind(name, host) for table in self._tables))

    def row(self, name: str) -> Mapping[str, object]:
        """Return the row of an entity.

        Raises:
            KeyError: it does not exist.
        """
        for table in self._tables[:-1]:
            try:
                return table.row(name)
            except KeyError:
                continue
        return self._tables[-1].row(name)
