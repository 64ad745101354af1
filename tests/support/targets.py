# SPDX-License-Identifier: Apache-2.0
"""Rules on the addresses that names of a test may lead to."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from amqproute.dial_policy import TargetPolicy

__all__ = ["DOCUMENTATION", "LOOPBACK", "dialled"]

DOCUMENTATION = ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32")
"""Stand-ins for public addresses in tests; unused, and never dialed by default."""
LOOPBACK = ("127.0.0.0/8", "::1/128")
"""The addresses of daemons in tests."""


def dialled(
    *allow: str, deny: Iterable[str] = (), ports: Iterable[int] = (), named: Iterable[str] = ()
) -> Callable[[], TargetPolicy]:
    """Return rules that treat documentation addresses as public ones."""
    names = frozenset(named)
    policy = TargetPolicy.of(
        allow=(*DOCUMENTATION, *allow), deny=deny, ports=ports, is_named=names.__contains__
    )
    return lambda: policy
