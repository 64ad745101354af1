# SPDX-License-Identifier: Apache-2.0
"""Log lines about failed password log-ins, for operators and for fail2ban.

Each failure has a line of its own while there are few; above the limit, a summary follows every
`EVERY_SECONDS`. The address precedes everything chosen by the client, and the user name is quoted,
escaped and shortened, so that no name can imitate another line or address.
``etc/fail2ban/filter.d/amqproute.conf`` matches these lines: change both together.
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
"""Lines per `EVERY_SECONDS`, over all addresses."""

MOST_LINES_OF_ADDRESS: Final = 10
"""Lines per `EVERY_SECONDS` for one address; more than fail2ban needs before it acts."""

MOST_ADDRESSES: Final = 1000
"""Addresses that a summary distinguishes."""

LONGEST_NAME: Final = 64
"""Characters of a user name in a line."""

LONGEST_REASON: Final = 200
"""Characters of the reason in a line; it can quote what the client has sent."""


class RefusedLogIns:
    """Writes lines about failed log-ins, within a rate limit.

    Args:
        clock: measures the intervals.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._call: IDelayedCall | None = None
        self._lines: dict[str, int] = {}
        self._total = 0
        self._unwritten: dict[str, int] = {}

    def note(self, address: str, mechanism: str, user: str, reason: str = "") -> None:
        """Write a line about a failure, or count it.

        Args:
            address: the client's IP address, or a description of a local process.
            mechanism: the SASL mechanism.
            user: the user name sent by the client; empty if none could be read.
            reason: why an outside realm has refused it; empty for a wrong password.
        """
        if self._call is None:
            self._call = self._clock.callLater(EVERY_SECONDS, self._sum_up)
        lines = self._lines.get(address, 0)
        if lines < MOST_LINES_OF_ADDRESS and self._total < MOST_LINES:
            self._lines[address] = lines + 1
            self._total += 1
            log.warn(
                "log-in failed from {address}, {mechanism}, user {user}{reason}",
                address=address,
                mechanism=mechanism,
                user=quoted(user),
                reason=f": {quoted(reason, LONGEST_REASON)}" if reason else "",
            )
            return
        if address not in self._unwritten and len(self._unwritten) >= MOST_ADDRESSES:
            address = "other addresses"
        self._unwritten[address] = self._unwritten.get(address, 0) + 1

    def stop(self) -> None:
        """Write the pending summary."""
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
            "{count} more log-ins failed within {seconds:.0f} s without a line of their own, "
            "from {addresses} addresses, {most} of them from {address}",
            count=sum(unwritten.values()),
            seconds=EVERY_SECONDS,
            addresses=len(unwritten),
            most=count,
            address=most,
        )


def quoted(name: str, longest: int = LONGEST_NAME) -> str:
    """Return a name chosen by a stranger in ASCII, quoted, escaped and shortened."""
    short = name if len(name) <= longest else f"{name[:longest]}..."
    return json.dumps(short)
