# SPDX-License-Identifier: Apache-2.0
"""The settings in force that differ from their defaults, for the page of the broker.

They are those of `amqproute config show --changed`, abbreviated: long lists are a number, and long
values are cut.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Final

from amqproute.config.config_values import DEFAULT, FILE, SettingValue, setting_values
from amqproute.config.schema import Config

__all__ = ["MOST_SETTINGS", "changed_settings"]

MOST_SETTINGS: Final = 200
"""Settings that are listed."""
LONGEST_VALUE: Final = 200
MOST_ITEMS: Final = 10
"""Items of a list that are listed one by one."""
_ITEM: Final = re.compile(r"\[[0-9]+\]$")


def changed_settings(config: Config) -> list[dict[str, object]]:
    """Return rows: ``name``, ``value``, ``source``.

    Args:
        config: the configuration. Files that it names, those of secrets among them, are not read,
            and values out of the environment are not shown.
    """
    changed = [each for each in setting_values(config, MOST_ITEMS) if each.is_changed]
    items = Counter(_list_of(each.key) for each in changed)
    rows: list[dict[str, object]] = []
    listed: set[str] = set()
    for each in changed:
        name, text = each.key, _text(each.value)
        group = _list_of(name)
        if group and items[group] > MOST_ITEMS:
            if group in listed:
                continue
            listed.add(group)
            name, text = group, f"{items[group]} items"
        if len(rows) == MOST_SETTINGS:
            rows.append({"name": "…", "value": "there are more", "source": ""})
            break
        rows.append({"name": name, "value": text, "source": _source(each)})
    return rows


def _list_of(key: str) -> str:
    """Return the list that an item belongs to; empty for what is none."""
    return _ITEM.sub("", key) if _ITEM.search(key) else ""


def _text(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"{text[:LONGEST_VALUE]}…" if len(text) > LONGEST_VALUE else text


def _source(value: SettingValue) -> str:
    """Return where a value comes from; empty for a configuration without a file."""
    return value.place if value.origin in (FILE, DEFAULT) else f"{value.origin}, {value.place}"
