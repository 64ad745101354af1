# SPDX-License-Identifier: Apache-2.0
"""Who holds how many destinations: names cost nothing, and each that has messages costs us.

A destination is held by the sender whose message made it, until its last message has left. All of
them together have a bound, and each sender a share of it: as many as would still be free afterwards
(`broker.fair_shares`). So one sender alone has half of the bound, and of those who come without a
name each address has half of what they have together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from twisted.logger import Logger

from amqproute.broker.fair_shares import FairShares
from amqproute.errors import ResourceLimitExceeded
from amqproute.log_rate_limit import source_of
from amqproute.values import Origin

__all__ = ["OURSELVES", "DestinationHolder", "DestinationQuota", "holder_of"]

SETTING = "relay.max-destinations"
TELL_SECONDS = 600.0
"""Between two lines of the log about the same sender."""


class DestinationHolder(NamedTuple):
    """Who holds a destination.

    Attributes:
        party: the sender, as access rules write it.
        member: the address of those without a name; None for the others.
    """

    party: str
    member: str | None = None


OURSELVES = DestinationHolder("broker")
"""Who sends reports and returns."""


def holder_of(origin: Origin) -> DestinationHolder:
    """Return who holds a destination that a message makes."""
    principal = origin.principal
    if principal.kind == "anonymous":
        host = origin.connection.rpartition(":")[0].strip("[]")
        return DestinationHolder(str(principal), source_of(host))
    return DestinationHolder(str(principal))


class DestinationQuota:
    """Counts destinations by holder.

    Args:
        seconds: a clock, for the log.
        limit: gives the most of all holders together.

    Attributes:
        refused: how many were refused.
    """

    log = Logger()

    def __init__(self, seconds: Callable[[], float], limit: Callable[[], int]) -> None:
        self.refused = 0
        self._seconds = seconds
        self._limit = limit
        self._shares = FairShares()
        self._holders: dict[str, DestinationHolder] = {}
        self._told_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def holder(self, key: str) -> DestinationHolder:
        """Return who holds a destination."""
        return self._holders[key]

    def check(self, holder: DestinationHolder) -> None:
        """See whether one more may be made.

        Raises:
            ResourceLimitExceeded: not by this holder.
        """
        limit = self._limit()
        if self._shares.room(limit, *holder):
            self._told_at.pop(holder.party, None)
            return
        self.refused += 1
        now = self._seconds()
        if now - self._told_at.get(holder.party, -TELL_SECONDS) >= TELL_SECONDS:
            self._told_at[holder.party] = now
            self.log.warn(
                "{party} has messages waiting for as many destinations as its share of "
                "{setting} allows; messages for further ones are refused ({count} destinations in "
                "all)",
                party=holder.party,
                setting=SETTING,
                count=len(self),
            )
        raise ResourceLimitExceeded(
            f"your messages wait for as many destinations as your share of {SETTING} allows "
            f"({limit} for all senders); try again when some have been reached",
            info={"limiter": SETTING},
        )

    def add(self, key: str, holder: DestinationHolder) -> None:
        """Count a destination in."""
        self._holders[key] = holder
        self._shares.take(1, *holder)

    def remove(self, key: str) -> None:
        """Count it out."""
        self._shares.give_back(1, *self._holders.pop(key))

    @property
    def reason(self) -> str:
        """Who has reached its share, in words; empty if nobody has."""
        now = self._seconds()
        for party in [p for p, at in self._told_at.items() if now - at > TELL_SECONDS]:
            del self._told_at[party]
        if not self._told_at:
            return ""
        return f"no further destinations for {', '.join(sorted(self._told_at))}"

    def row(self) -> dict[str, object]:
        """Return what an operator wants to know, as a row of marks."""
        reason = self.reason
        return {
            "name": "destinations",
            "type": "watermark",
            "state": "closed" if reason else "open",
            "level": len(self),
            "limit": self._limit(),
            "opens-at": None,
            "reason": reason,
            "refused": self.refused,
        }
