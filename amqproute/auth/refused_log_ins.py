# SPDX-License-Identifier: Apache-2.0
"""The log's lines about failed log-ins by password: for a person, and for fail2ban.

Each failure is a line of its own, as long as there are few; then a sum follows every
`EVERY_SECONDS`. The address stands before everything that the client has chosen, and the user's
name is quoted, escaped and shortened, so that no name can look like another line or address.
``etc/fail2ban/filter.d/amqproute.conf`` goes by these lines: change both together.
"""

from __future__ import annotations

import json
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from amqproute.log_rate_limit import EVERY_SECONDS

__all__ = ["LONGEST_NAME", "MOST_LINES", "MOST_LINES_OF_ADDRESS", "RefusedLogIns"]

log = Logger()

MOST_LINES: Final = 100
"""Lines in `EVERY_SECONDS`, of all addresses."""

MOST_LINES_OF_ADDRESS: Final = 10
"""Those of one address; more than fail2ban wants to see before it acts."""

MOST_ADDRESSES: Final = 1000
"""Addresses that are told apart in a sum."""

LONGEST_NAME: Final = 64
"""Characters of a user's name in a line."""


class RefusedLogIns:
    """Writes the lines.

    Args:
        clock: counts the seconds.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._call: IDelayedCall | None = None
        self._lines: dict[str, int] = {}
        self._total = 0
        self._unwritten: dict[str, int] = {}

    def note(self, address: str, mechanism: str, user: str) -> None:
        """Write the line about a failure, or count it.

        Args:
            address: where from, an IP address or words about a local process.
            mechanism: of SASL.
            user: the name that was tried; empty if none could be read.
        """
        if self._call is None:
            self._call = self._clock.callLater(EVERY_SECONDS, self._sum_up)
        lines = self._lines.get(address, 0)
        if lines < MOST_LINES_OF_ADDRESS and self._total < MOST_LINES:
            self._lines[address] = lines + 1
            self._total += 1
            log.warn(
                "log-in failed from {address}, {mechanism}, user {user}",
                address=address,
                mechanism=mechanism,
                user=quoted(user),
            )
            return
        if address not in self._unwritten and len(self._unwritten) >= MOST_ADDRESSES:
            address = "other addresses"
        self._unwritten[address] = self._unwritten.get(address, 0) + 1

    def stop(self) -> None:
        """Write the sum that is due."""
        if self._call is not None and self._call.active():
            self._call.cancel()
            self._sum_up()

    def _sum_up(self) -> None:
        self._call = None
        unwritten, self._unwritten = self._unwritten, {}
        self._lines = {}
        self._total = 0
        if not unwritten:
            return
        most, count = max(unwritten.items(), key=lambda each: each[1])
        log.warn(
            "{count} more log-ins failed within {seconds:.0f} s and have no line of their own, "
            "from {addresses} addresses, {most} of them from {address}",
            count=sum(unwritten.values()),
            seconds=EVERY_SECONDS,
            addresses=len(unwritten),
            most=count,
            address=most,
        )


def quoted(name: str) -> str:
    """Return a stranger's name in ASCII, quoted and escaped, of bounded length."""
    short = name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..."
    return json.dumps(short)
