# SPDX-License-Identifier: Apache-2.0
"""Limits the number of destinations per sender: names are free, but each destination costs memory.

The sender whose first message creates a destination holds it until its last message has left. All
holders together have a bound, and each sender a share of it: as many as would still be free
afterwards (`broker.fair_shares`). So a single sender has half of the bound; senders without a name
share by address in the same way.
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
"""Interval between log lines about the same sender."""


class DestinationHolder(NamedTuple):
    """The holder of a destination.

    Attributes:
        party: the sender, in the form of access rules.
        member: the address of a sender without a name; None for others.
    """

    party: str
    member: str | None = None


OURSELVES = DestinationHolder("broker")
"""The holder for reports and returned messages."""


def holder_of(origin: Origin) -> DestinationHolder:
    """Return the holder of a destination that a message creates."""
    principal = origin.principal
    if principal.kind == "anonymous":
        host = origin.connection.rpartition(":")[0].strip("[]")
        return DestinationHolder(str(principal), source_of(host))
    return DestinationHolder(str(principal))


class DestinationQuota:
    """Counts destinations by holder.

    Args:
        seconds: a clock, for the log.
        limit: returns the maximum for all holders together.

    Attributes:
        refused: number of refusals.
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
        """Return the holder of a destination."""
        return self._holders[key]

    def check(self, holder: DestinationHolder) -> None:
        """Check whether a holder may create one more destination.

        Raises:
            ResourceLimitExceeded: it may not.
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
        """Count a destination."""
        self._holders[key] = holder
        self._shares.take(1, *holder)

    def remove(self, key: str) -> None:
        """Stop counting a destination."""
        self._shares.give_back(1, *self._holders.pop(key))

    @property
    def reason(self) -> str:
        """The holders that have reached their share, as text; empty if none has."""
        now = self._seconds()
        for party in [p for p, at in self._told_at.items() if now - at > TELL_SECONDS]:
            del self._told_at[party]
        if not self._told_at:
            return ""
        return f"no further destinations for {', '.join(sorted(self._told_at))}"

    def row(self) -> dict[str, object]:
        """Return the state for operators, as a row of marks."""
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
