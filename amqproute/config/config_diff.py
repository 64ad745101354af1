# SPDX-License-Identifier: Apache-2.0
"""Differences between two configurations, and the part of them that a reload puts in force.

The schema marks settings that take effect at the next start (`schema_base.AT_START`).
`after_reload` carries their running values over into a new configuration, so that no part of the
daemon sees the new values before a restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TypeVar

from amqproute.config.access_settings import ListenSettings
from amqproute.config.config_source import ConfigSource, Location
from amqproute.config.schema import Config
from amqproute.config.schema_base import Settings, is_at_start

__all__ = ["after_reload", "differences", "in_words", "named"]

Group = TypeVar("Group", bound=Settings)

MOST_NAMED = 20
"""Keys that a log line names; the rest are only counted."""


def differences(old: Config, new: Config) -> list[str]:
    """Return the keys whose values differ, in the order of the file.

    Groups of settings and maps are compared entry by entry; a list is one key.
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


def after_reload(running: Config, wanted: Config) -> Config:
    """Return the configuration that a reload puts in force.

    It is the wanted configuration with the running values of all settings that take effect at the
    next start. `differences` between the two names the settings that wait for a restart.

    Args:
        running: the configuration in force.
        wanted: the new configuration.
    """
    tls = wanted.tls
    if (running.tls.certificate is None) != (tls.certificate is None):
        tls = running.tls  # whether listeners and connectors use TLS is decided at start
    update: dict[str, object] = {
        "listen": _listeners(running.listen, wanted.listen),
        "tls": _carried(running.tls, tls),
    }
    carried: set[Location] = {("listen",)}
    if tls is not wanted.tls:
        carried.add(("tls",))
    for name, info in Config.model_fields.items():
        before, after = getattr(running, name), getattr(wanted, name)
        key = info.alias or name
        if is_at_start(info):
            update[name] = before
            carried.add((key,))
        elif isinstance(before, Settings):
            update.setdefault(name, _carried(before, after))
            carried.update(
                (key, inner.alias or "")
                for inner in type(before).model_fields.values()
                if is_at_start(inner)
            )
    return wanted.model_copy(update=update).with_source(_source(running, wanted, carried))


def _source(running: Config, wanted: Config, carried: Set[Location]) -> ConfigSource:
    """Return where the settings in force come from: those carried over, from where they did."""

    def is_carried(at: Location) -> bool:
        return any(at[:length] in carried for length in range(1, len(at) + 1))

    places = {at: place for at, place in wanted.source.places.items() if not is_carried(at)}
    places |= {at: place for at, place in running.source.places.items() if is_carried(at)}
    numbers = {each.endpoint: number for number, each in enumerate(wanted.listen)}
    for number, listen in enumerate(running.listen):
        other = numbers.get(listen.endpoint)
        for info in type(listen).model_fields.values() if other is not None else ():
            if is_at_start(info):
                continue
            key = info.alias or ""
            places.pop(("listen", number, key), None)
            at: Location = ("listen", other or 0, key)
            for where, place in wanted.source.places.items():
                if where[:3] == at:
                    places[*("listen", number), *where[2:]] = place
    secrets = {**running.source.secrets, **wanted.source.secrets}
    return ConfigSource(wanted.source.path, wanted.source.files, places, secrets)


def _carried(running: Group, wanted: Group) -> Group:
    kept = {
        name: getattr(running, name)
        for name, info in type(running).model_fields.items()
        if is_at_start(info)
    }
    return wanted.model_copy(update=kept)


def _listeners(
    running: Sequence[ListenSettings], wanted: Sequence[ListenSettings]
) -> tuple[ListenSettings, ...]:
    """Return the open listeners, each with its reloadable changes."""
    by_endpoint = {each.endpoint: each for each in wanted}
    return tuple(_carried(each, by_endpoint.get(each.endpoint, each)) for each in running)


def named(keys: Sequence[str]) -> str:
    """Return keys on one line, abbreviated if there are many."""
    more = len(keys) - MOST_NAMED
    return f"{', '.join(keys[:MOST_NAMED])}{f' and {more} more' if more > 0 else ''}"


def in_words(keys: Sequence[str]) -> str:
    """Return the keys changed by a reload, as a phrase for the log."""
    if not keys:
        return "no setting has changed; files that it names were read again"
    return f"changed: {named(keys)}"
