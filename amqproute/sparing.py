# SPDX-License-Identifier: Apache-2.0
"""What happens with each message or connection of a flood goes into the log now and then.

The first of a kind are told at once. What follows within `EVERY_SECONDS` is counted, and told with
the next one after that. So whoever looks finds it, and nobody outside decides how large the log
becomes. Where so many of something are allowed for each address, `source_of` says what one is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

__all__ = ["EVERY_SECONDS", "Sparing", "and_more", "source_of"]

EVERY_SECONDS: Final = 10.0
"""Between two lines about the same, where there was one to count."""
MOST_KEYS: Final = 1000
"""Subjects kept in mind; beyond it all are forgotten, with what was counted."""


class Sparing:
    """Says when a line is due.

    Args:
        seconds: the monotonic clock.
        at_once: lines about a subject that are told one by one, within `EVERY_SECONDS`.
    """

    __slots__ = ("_at_once", "_counted", "_seconds")

    def __init__(self, seconds: Callable[[], float], at_once: int = 1) -> None:
        self._seconds = seconds
        self._at_once = at_once
        self._counted: dict[Hashable, tuple[float, int, int]] = {}

    def due(self, subject: Hashable, count: int = 1) -> int:
        """Count, and return how many there were since the last line; 0 if none is due.

        Args:
            subject: what the line is about, of a kind of which there are few.
            count: how many more.
        """
        now = self._seconds()
        until, told, counted = self._counted.get(subject, (now, 0, 0))
        counted += count
        if now >= until:
            if len(self._counted) >= MOST_KEYS:
                self._counted.clear()
            until, told = now + EVERY_SECONDS, 0
        elif told >= self._at_once:
            self._counted[subject] = until, told, counted
            return 0
        self._counted[subject] = until, told + 1, 0
        return counted


def and_more(count: int) -> str:
    """Return what a line about the last of so many adds; nothing if it was the only one."""
    return f" ({count - 1} more like it since the last line)" if count > 1 else ""


def source_of(host: str) -> str:
    """Return what counts as one sender: an IPv4 address, or the /64 that an IPv6 address is in.

    Whoever has one address of a /64 has all of them (RFC 4291 §2.5.4). Empty for what is no IP
    address.
    """
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is None:
            return str(ip_network((address.packed, 64), strict=False))
        address = address.ipv4_mapped
    return str(address)
