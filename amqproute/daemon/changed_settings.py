# SPDX-License-Identifier: Apache-2.0
"""The settings in force that differ from their defaults, with the place that each comes from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from amqproute.config.schema import Config

__all__ = ["MOST_SETTINGS", "changed_settings"]

MOST_SETTINGS: Final = 200
"""Settings that are listed."""
LONGEST_VALUE: Final = 200
MOST_ITEMS: Final = 10
"""Items of a list that are listed one by one."""

Location = tuple[str | int, ...]


def changed_settings(config: Config) -> list[dict[str, object]]:
    """Return rows: ``name``, ``value``, ``source``.

    Args:
        config: the configuration. Files that it names, those of secrets among them, are not read.
    """
    changed = config.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    rows: list[dict[str, object]] = []
    for location, value in _leaves((), changed):
        if len(rows) == MOST_SETTINGS:
            rows.append({"name": "…", "value": "there are more", "source": ""})
            break
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if len(text) > LONGEST_VALUE:
            text = f"{text[:LONGEST_VALUE]}…"
        rows.append({"name": _named(location), "value": text, "source": _place(config, location)})
    return rows


def _leaves(location: Location, value: object) -> Iterator[tuple[Location, object]]:
    """Yield values that have no settings of their own within them."""
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from _leaves((*location, str(key)), each)
    elif isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
        if len(value) > MOST_ITEMS:
            yield location, f"{len(value)} items"
            return
        for place, each in enumerate(value):
            yield (*location, place), each
    else:
        yield location, value


def _named(location: Location) -> str:
    """Return the name of a setting, as messages about the configuration have it."""
    name = ""
    for part in location:
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else part
    return name


def _place(config: Config, location: Location) -> str:
    """Return file and line of a setting, or of the nearest one around it; empty if unknown."""
    source = config.source
    if source.path is None:
        return ""
    for length in range(len(location), 0, -1):
        line = source.lines.get(location[:length])
        if line is not None:
            return f"{source.path}:{line}"
    return str(source.path)
