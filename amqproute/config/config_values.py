# SPDX-License-Identifier: Apache-2.0
"""The values of a configuration, each with its origin, for operators: no secrets.

What comes out of the environment is shown as it is written in the file, ``${NAME}``. So are
credentials, ``%d/NAME``.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

from amqproute.config.config_source import Location, dotted
from amqproute.config.schema import Config
from amqproute.config.schema_base import InheritingSettings, Settings

__all__ = [
    "CREDENTIAL",
    "DEFAULT",
    "ENVIRONMENT",
    "FILE",
    "SettingValue",
    "setting_values",
    "shown_settings",
    "version_of",
]

DEFAULT: Final = "default"
FILE: Final = "file"
ENVIRONMENT: Final = "environment"
CREDENTIAL: Final = "credential"


@dataclass(frozen=True, slots=True)
class SettingValue:
    """One value.

    Attributes:
        key: the setting, as in ``relay.window`` or ``nodes[0]``.
        value: of it, as in a file.
        default: its default; None in an entry of a list or map, which has none.
        origin: ``file``, ``environment``, ``credential`` or ``default``.
        place: the file and line; empty for a default.
    """

    key: str
    value: object
    default: object
    origin: str
    place: str

    @property
    def is_changed(self) -> bool:
        """Whether the value is not the default."""
        return self.value != self.default

    def as_row(self) -> dict[str, object]:
        """Return the value as attributes."""
        return {
            "key": self.key,
            "value": self.value,
            "default": self.default,
            "origin": self.origin,
            "place": self.place or None,
        }


def shown_settings(config: Config, left_out: Set[str] = frozenset()) -> dict[str, object]:
    """Return all settings as plain data, without values out of the environment.

    Args:
        config: the configuration.
        left_out: settings of the first level, by their names in files, to leave out.
    """
    settings: dict[str, object] = config.model_dump(
        mode="json",
        by_alias=True,
        exclude={name for name, info in Config.model_fields.items() if info.alias in left_out},
    )
    for at, place in config.source.places.items():
        if place.reference and at[0] not in left_out:
            _put(settings, at, place.reference)
    return settings


def _put(data: object, at: Location, value: str) -> None:
    *above, last = at
    for part in above:
        data = data[part]  # type: ignore[index]
    data[last] = value  # type: ignore[index]


def version_of(key: bytes, *configs: Config) -> str:
    """Return a digest of settings: it is another one after a change of any of them.

    Args:
        key: secret, so that nobody can try values out of the environment against the digest.
        configs: the settings.
    """
    settings = [each.model_dump(mode="json", by_alias=True) for each in configs]
    return hmac.new(key, json.dumps(settings).encode(), hashlib.sha256).hexdigest()[:32]


def setting_values(config: Config, most_entries: int | None = None) -> Iterator[SettingValue]:
    """Iterate over the values in the order of the settings.

    Entries of lists are values as a whole, those of maps setting by setting, as far as they are
    given. A list of plain values is one value, unless it comes from several files.

    Args:
        config: the configuration.
        most_entries: a list of the first level with more entries is one value, which says how many
            there are; None to have them all.
    """
    shown = shown_settings(config, _long_lists(config, most_entries))
    defaults = Config().model_dump(mode="json", by_alias=True)
    yield from _Walk(config).group(config, shown, defaults, ())


def _long_lists(config: Config, most_entries: int | None) -> Set[str]:
    if most_entries is None:
        return frozenset()
    values = [
        (info.alias or name, getattr(config, name)) for name, info in Config.model_fields.items()
    ]
    return {
        key
        for key, value in values
        if isinstance(value, tuple) and len(value) > most_entries and isinstance(value[0], Settings)
    }


class _Walk:
    """Goes through the settings of one configuration."""

    def __init__(self, config: Config) -> None:
        self._source = config.source
        self._origins: dict[Location, str] = {}
        for at, place in config.source.places.items():
            for length in range(1, len(at) + 1) if place.reference else ():
                if place.is_hidden or at[:length] not in self._origins:
                    self._origins[at[:length]] = ENVIRONMENT if place.is_hidden else CREDENTIAL

    def group(
        self,
        settings: Settings,
        shown: Mapping[str, object],
        defaults: Mapping[str, object],
        at: Location,
    ) -> Iterator[SettingValue]:
        """Iterate over the values of a group."""
        for name, info in type(settings).model_fields.items():
            key = info.alias or name
            value = getattr(settings, name)
            if key not in shown:
                first = self._value((*at, key, 0), f"{len(value)} items", None)
                yield replace(first, key=dotted((*at, key)))
                continue
            yield from self._setting(value, shown[key], defaults[key], (*at, key))

    def _setting(
        self, value: object, shown: object, default: object, at: Location
    ) -> Iterator[SettingValue]:
        if isinstance(value, Settings) and isinstance(default, dict):
            assert isinstance(shown, dict)
            yield from self.group(value, shown, default, at)
        elif isinstance(value, Settings):  # a group that is not there by default
            yield from self._entry(value, shown, at)
        elif isinstance(value, dict) and value and shown != default:
            assert isinstance(shown, dict)
            for (key, each), inner in zip(value.items(), shown.values(), strict=True):
                yield from self._entry(each, inner, (*at, str(key)))
        elif isinstance(value, tuple) and value and shown != default:
            assert isinstance(shown, list)
            if any(isinstance(each, Settings) for each in value) or self._is_spread(at, shown):
                for index, each in enumerate(value):
                    here = (*at, index)
                    yield self._value(here, _given(each, shown[index]), None)
            else:
                yield self._value(at, shown, default)
        else:
            yield self._value(at, shown, default)

    def _entry(self, entry: object, shown: object, at: Location) -> Iterator[SettingValue]:
        """Iterate over what an entry of a map gives."""
        if not isinstance(entry, Settings) or not entry.model_fields_set:
            yield self._value(at, _given(entry, shown), None)
            return
        assert isinstance(shown, dict)
        for name, info in type(entry).model_fields.items():
            if name in entry.model_fields_set:
                key = info.alias or name
                yield from self._entry(getattr(entry, name), shown[key], (*at, key))

    def _is_spread(self, at: Location, items: Sequence[object]) -> bool:
        files = {self._source.place_of((*at, index)).file for index in range(len(items))}
        return len(files) > 1

    def _value(self, at: Location, value: object, default: object) -> SettingValue:
        place = self._source.places.get(at)
        if place is None:
            return SettingValue(dotted(at), value, default, DEFAULT, "")
        return SettingValue(dotted(at), value, default, self._origins.get(at, FILE), str(place))


def _given(value: object, shown: object) -> object:
    """Return an entry of a list as in a file: without settings that have their defaults.

    Where missing settings come from a wider entry, a default that is given is shown as well.
    """
    if not isinstance(value, Settings) or not isinstance(shown, dict):
        return shown
    inherits = isinstance(value, InheritingSettings)
    return {
        info.alias: _given(getattr(value, name), shown[info.alias])
        for name, info in type(value).model_fields.items()
        if name in value.model_fields_set and (inherits or getattr(value, name) != info.default)
    }
