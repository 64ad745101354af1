# SPDX-License-Identifier: Apache-2.0
"""A client's description of itself in connection.start-ok, for operators.

It is a stranger's text: only texts count, each is cut at `LONGEST` characters, and what cannot be
printed is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from amqproute.printable import printable

__all__ = ["LONGEST", "client_description"]

LONGEST: Final = 128
"""Characters of each text."""
_FACTS: Final = {
    "client-name": "connection_name",
    "client-product": "product",
    "client-version": "version",
    "client-platform": "platform",
}
"""Attributes of the row of a connection, and the client-properties that they show."""


def client_description(properties: Mapping[str, object]) -> dict[str, str]:
    """Return what a client says of itself, as attributes of its connection.

    Args:
        properties: the client-properties of connection.start-ok.
    """
    return {
        attribute: text
        for attribute, key in _FACTS.items()
        if (text := _plain(properties.get(key)))
    }


def _plain(value: object) -> str:
    if not isinstance(value, str):
        return ""
    text = str(value)
    shown = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
    return printable(shown)
