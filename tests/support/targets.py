# SPDX-License-Identifier: Apache-2.0
"""Which places the names of a test may lead to."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from amqproute.dial_policy import TargetPolicy

__all__ = ["DOCUMENTATION", "LOOPBACK", "dialled"]

DOCUMENTATION = ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32")
"""What stands for public addresses in tests; nobody is there, and none is dialled by default."""
LOOPBACK = ("127.0.0.0/8", "::1/128")
"""Where the daemons of tests are."""


def dialled(
    *allow: str, deny: Iterable[str] = (), ports: Iterable[int] = (), named: Iterable[str] = ()
) -> Callable[[], TargetPolicy]:
    """Return rules that take the addresses of documentation for public ones."""
    names = frozenset(named)
    policy = TargetPolicy.of(
        allow=(*DOCUMENTATION, *allow), deny=deny, ports=ports, is_named=names.__contains__
    )
    return lambda: policy
