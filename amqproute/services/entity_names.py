# SPDX-License-Identifier: Apache-2.0
"""Entities of a type by name, in the order of their names, as far as their owners keep one.

A part of a list costs as much as it shows: its first name is found by binary search, and no other
name is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import Final, Protocol

from amqproute.address import host_label, in_host
from amqproute.broker.name_table import count_names, names_behind

__all__ = ["EntityNames", "EntityOrder", "EntityTable", "HostedNames", "hosts_of", "names_in_host"]

_DEFAULT: Final = host_label("")


class EntityOrder(Protocol):
    """Entities in an order that their owners keep, each by a name in it that no other one has."""

    def count(self, host: str | None = None) -> int:
        """Return the number of entities.

        Args:
            host: the label of a virtual host; None for all.
        """

    def behind(self, name: str | None, host: str | None = None) -> Iterator[str]:
        """Yield the names behind another one, in order; no entity may come or go meanwhile.

        Args:
            name: the name before them, whether it exists or not; None for all.
            host: the label of a virtual host; None for all.
        """

    def prepare(self, name: str | None, count: int, host: str | None = None) -> bool:
        """Do a part of the work that `behind` needs, and return whether it is done.

        Args:
            name: the name before those that will be asked for; None for the beginning.
            count: number of names that will be asked for.
            host: the label of a virtual host; None for all.
        """

    def row(self, name: str) -> Mapping[str, object]:
        """Return the row of an entity.

        Raises:
            KeyError: it does not exist.
        """

    def shown(self, name: str) -> str:
        """Return the name as the row has it, for comparison with a pattern."""


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

    def prepare(self, name: str | None, count: int, host: str | None = None) -> bool:
        """Return that nothing has to be done; see `EntityOrder.prepare`."""
        return True

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

    def shown(self, name: str) -> str:
        """See `EntityOrder.shown`."""
        return name


class HostedNames:
    """Entities whose names each virtual host keeps in order; one without a name is left out.

    Args:
        hosts: returns the virtual hosts.
        order: returns the names of one, as they are there; see `NameTable.order`.
        row: makes the row of one, by its name within the broker; raises `KeyError` without it.
    """

    def __init__(
        self,
        hosts: Callable[[], Sequence[str]],
        order: Callable[[str], Sequence[str]],
        row: Callable[[str], Mapping[str, object]],
    ) -> None:
        self._hosts = hosts
        self._order = order
        self.row = row

    def __repr__(self) -> str:
        return f"<HostedNames {self.count()}>"

    def count(self, host: str | None = None) -> int:
        """See `EntityOrder.count`."""
        orders = map(self._order, hosts_of(self._hosts(), host))
        return sum(len(order) - (order[:1] == [""]) for order in orders)

    def behind(self, name: str | None, host: str | None = None) -> Iterator[str]:
        """See `EntityOrder.behind`."""
        return merge(*(self._behind(each, name) for each in hosts_of(self._hosts(), host)))

    def _behind(self, host: str, name: str | None) -> Iterator[str]:
        local = names_in_host(host, name)
        if local is None:
            return iter(())
        return (in_host(host, each) for each in names_behind(self._order(host), local))

    def prepare(self, name: str | None, count: int, host: str | None = None) -> bool:
        """Return that nothing has to be done; see `EntityOrder.prepare`."""
        return True

    def shown(self, name: str) -> str:
        """See `EntityOrder.shown`."""
        return name


def hosts_of(hosts: Sequence[str], label: str | None) -> list[str]:
    """Return the virtual host with a label; all with None."""
    return [each for each in hosts if label is None or host_label(each) == label]


def names_in_host(host: str, name: str | None) -> str | None:
    """Return behind which name of a virtual host the names lie that are behind another one.

    Args:
        host: the virtual host; empty for ``/``.
        name: a name within the broker; None for the beginning.

    Returns:
        The name there; an empty text if all names of the virtual host are behind it; None if none
        are.
    """
    prefix = in_host(host, "")
    if name is None:
        return ""
    if name.startswith(prefix):
        return name[len(prefix) :]
    return "" if name < prefix else None
