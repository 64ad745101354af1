# SPDX-License-Identifier: Apache-2.0
"""AMQPLAIN: a user's name and password as the pairs of a field table (09: part 3.7).

The response is a table without its own length: the length of the longstr takes its place. To a
server it is the same as PLAIN, and no safer.
"""

from __future__ import annotations

from amqproute.wire.amqp09.field_tables import FieldTable, FieldValueError

AMQPLAIN = "AMQPLAIN"
"""The mechanism's name."""


def parse_amqplain(response: bytes) -> tuple[str, str] | None:
    """Return user and password, or None if the response is malformed."""
    try:
        table = FieldTable.from_octets(response)
    except FieldValueError:
        return None
    user = table.get("LOGIN")
    password = table.get("PASSWORD")
    if isinstance(user, str) and isinstance(password, str):
        return user, password
    return None


def amqplain_response(user: str, password: str) -> bytes:
    """Return a client's response."""
    return FieldTable({"LOGIN": user, "PASSWORD": password}).octets


__all__ = ["AMQPLAIN", "amqplain_response", "parse_amqplain"]
