# SPDX-License-Identifier: Apache-2.0
"""Where the values of a configuration come from: files, lines, environment, credentials."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

__all__ = ["ConfigPlace", "ConfigSource", "Location", "dotted"]

SHORTEST_SECRET: Final = 4
"""Characters of a value that is looked for in texts; shorter ones are in many words."""
Location: TypeAlias = tuple[str | int, ...]
"""A place in the configuration, as in ``("listen", 0, "tls")``."""


def dotted(at: Iterable[str | int]) -> str:
    """Return a place in the configuration as text, as in ``listen[0].tls``."""
    text = ""
    for part in at:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            plain = re.fullmatch(r"[\w$-]+", part) is not None
            text += ("." if text else "") + (part if plain else f'"{part}"')
    return text


@dataclass(frozen=True, slots=True)
class ConfigPlace:
    """Where one value comes from.

    Attributes:
        file: the file.
        line: the line of its key or list item, from 1.
        reference: the value as written, if it refers to environment variables or to a credential;
            else empty.
    """

    file: Path
    line: int
    reference: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def is_hidden(self) -> bool:
        """Whether the value comes from the environment, and is never shown."""
        return "${" in self.reference


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """Where a configuration comes from. All sources compare equal: the source is not a setting.

    Attributes:
        path: the main file; None for a configuration made by a program.
        files: all files read, the main file first.
        places: the place of each given value, by the keys that the settings have: names of domains,
            for example, are normalized.
        secrets: values out of the environment, with what to show instead.
    """

    path: Path | None = field(default=None, compare=False)
    files: tuple[Path, ...] = field(default=(), compare=False)
    places: Mapping[Location, ConfigPlace] = field(default_factory=dict, compare=False, repr=False)
    secrets: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def without_secrets(self, text: str) -> str:
        """Return a text without values out of the environment, whatever has put them there."""
        for value in sorted(self.secrets, key=len, reverse=True):  # one may be within another
            if len(value) >= SHORTEST_SECRET:
                text = re.sub(re.escape(value), self.secrets[value], text, flags=re.I)
        return text

    def place_of(self, at: Location) -> ConfigPlace:
        """Return the place of a value, or of the nearest enclosing one; else the main file."""
        while at:
            if at in self.places:
                return self.places[at]
            at = at[:-1]
        return self.places.get((), ConfigPlace(self.path or Path("(no file)"), 1))
