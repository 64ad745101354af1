# SPDX-License-Identifier: Apache-2.0
"""What differs between two configurations, by the keys of the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from amqproute.config.schema import Config
from amqproute.config.schema_base import Settings

__all__ = ["differences", "in_words"]

MOST_NAMED = 20
"""Keys that are named in words; of further ones the number is."""


def differences(old: Config, new: Config) -> list[str]:
    """Return the keys whose values differ, in the order of the file.

    Groups of settings are looked into, and entries of maps; a list is one key.
    """
    return list(_differences(old, new, ""))


def _differences(old: Settings, new: Settings, prefix: str) -> Iterator[str]:
    for name, info in type(new).model_fields.items():
        key = f"{prefix}{info.alias or name}"
        before, after = getattr(old, name), getattr(new, name)
        if before == after:
            continue
        if isinstance(before, Settings) and type(before) is type(after):
            yield from _differences(before, after, f"{key}.")
        elif isinstance(before, Mapping) and isinstance(after, Mapping):
            for entry in dict.fromkeys((*before, *after)):
                if entry not in before or entry not in after or before[entry] != after[entry]:
                    yield f"{key}.{entry}"
        else:
            yield key


def in_words(keys: list[str]) -> str:
    """Return keys that differ as the log says it."""
    if not keys:
        return "no setting has changed; files that it names were read again"
    more = len(keys) - MOST_NAMED
    named = ", ".join(keys[:MOST_NAMED])
    return f"changed: {named}{f' and {more} more' if more > 0 else ''}"
