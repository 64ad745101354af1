# SPDX-License-Identifier: Apache-2.0
"""Common base of all groups of settings, and the units used in defaults."""

from __future__ import annotations

from typing import Final, Self

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.fields import FieldInfo

__all__ = [
    "AT_START",
    "DAY",
    "HOUR",
    "MEBIBYTE",
    "InheritingSettings",
    "Settings",
    "is_at_start",
]

DAY: Final = 86400.0
HOUR: Final = 3600.0
MEBIBYTE: Final = 2**20


class _AtStart:
    """The mark of a setting that takes effect at the next start; see `AT_START`."""


AT_START: Final = _AtStart()
"""Marks a setting that takes effect at the next start, as in ``Annotated[Bytes, AT_START]``.

A reload puts every other setting in force.
"""


def is_at_start(info: FieldInfo) -> bool:
    """Return whether a setting takes effect at the next start only."""
    return AT_START in info.metadata


class Settings(BaseModel):
    """Base of all groups of settings: strict, frozen, dashes in the file."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        alias_generator=lambda name: name.replace("_", "-"),
        validate_by_name=True,
        validate_by_alias=True,
    )


class InheritingSettings(Settings):
    """An entry that takes missing settings from a wider entry.

    A key without a value differs from a missing key: it means the built-in default.
    """

    @model_validator(mode="before")
    @classmethod
    def _without_value(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        return {key: cls._default(key) if value is None else value for key, value in given.items()}

    @classmethod
    def _default(cls, key: object) -> object:
        for info in cls.model_fields.values():
            if info.alias == key:
                group = info.default
                if isinstance(group, InheritingSettings):  # all of its settings count as given
                    return {each.alias: None for each in type(group).model_fields.values()}
                return group
        return None

    def over(self, wider: Self) -> Self:
        """Return these settings, with those of a wider entry where they are not given."""
        update: dict[str, object] = {}
        for name in self.model_fields_set:
            value, under = getattr(self, name), getattr(wider, name)
            is_group = isinstance(value, InheritingSettings)
            update[name] = value.over(under) if is_group else value
        return wider.model_copy(update=update)
