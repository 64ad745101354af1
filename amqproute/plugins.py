# SPDX-License-Identifier: Apache-2.0
"""Plug-ins: parts of other distributions, found by their entry points.

A distribution names its parts in its metadata (the entry points of `importlib.metadata`), in a
group for each kind of part; in its ``pyproject.toml``::

    [project.entry-points."amqproute.filters"]
    color = "acme_filters:COLOR"

Installed beside amqproute, it is found at the start. A plug-in that cannot be imported, or that is
not what its group asks for, is reported and left out; nothing else depends on it, unless the
configuration requires it (``plugins.required``).

Plug-ins run within the daemon with all of its rights: only who installs software for it can add
one. ``twistd`` finds the daemon itself by its own way, in ``twisted.plugins``.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint
from typing import Final

__all__ = ["FILTERS", "LONGEST_FAULT", "REALMS", "PlugIn", "find_plugins"]

FILTERS: Final = "amqproute.filters"
"""The group of kinds of filters, `amqproute.filters.filter_kinds.FilterKind`."""
REALMS: Final = "amqproute.realms"
"""The group of kinds of realms, `amqproute.auth.realm_kinds.RealmKind`."""
LONGEST_FAULT: Final = 300
"""Most characters of a plug-in's error that are shown."""


@dataclass(frozen=True, slots=True)
class PlugIn:
    """One plug-in.

    Attributes:
        group: of its entry point.
        name: of its entry point.
        reference: the object, as in ``acme_filters:COLOR``.
        distribution: name and version of the distribution that it comes from.
        value: the object; None if it cannot be used.
        fault: why it cannot be used; empty if it can.
    """

    group: str
    name: str
    reference: str
    distribution: str
    value: object = field(default=None, repr=False)
    fault: str = ""

    def __str__(self) -> str:
        return f"plug-in {self.name} ({self.group}: {self.reference}, {self.distribution})"


def find_plugins(
    groups: Mapping[str, Callable[[object], str]],
    find: Callable[[str], Iterable[EntryPoint]] = lambda group: importlib.metadata.entry_points(
        group=group
    ),
) -> list[PlugIn]:
    """Import the plug-ins of this installation, in the order of groups and names.

    Args:
        groups: by group, what returns why an object is none of its plug-ins; empty if it is one.
        find: returns the entry points of a group.
    """
    found: list[PlugIn] = []
    for group, fault_of in groups.items():
        names: dict[str, PlugIn] = {}
        points = {(each.name, each.value, _distribution(each)): each for each in find(group)}
        for (name, _, distribution), point in sorted(points.items()):
            plugin = _imported(point, distribution, fault_of)
            if name in names:
                words = f"the name is that of {names[name].reference} already"
                plugin = replace(plugin, value=None, fault=words)
            names.setdefault(name, plugin)
            found.append(plugin)
    return found


def _imported(point: EntryPoint, distribution: str, fault_of: Callable[[object], str]) -> PlugIn:
    made = PlugIn(point.group, point.name, point.value, distribution)
    try:
        value = point.load()
        fault = fault_of(value)
    # SystemExit as well: a module that ends its process must not end the daemon.
    except (Exception, SystemExit) as error:
        words = f"{type(error).__name__}: {error}".rstrip(": ")
        return replace(made, fault=f"it cannot be imported: {words[:LONGEST_FAULT]}")
    return replace(made, fault=fault) if fault else replace(made, value=value)


def _distribution(point: EntryPoint) -> str:
    return "?" if point.dist is None else f"{point.dist.name} {point.dist.version}"
