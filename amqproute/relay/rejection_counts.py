# SPDX-License-Identifier: Apache-2.0
"""Rejections by partners: counted by kind, with one log line per kind and interval.

A partner that rejects messages rejects many. The log has a line, with the condition and the
partner's text, when a partner first rejects in a certain way (`kind_of`), and again after
`QUIET_SECONDS` with the number since. `peer show` has the total, and `status` the number of the
last hour.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from twisted.logger import Logger

from amqproute import conditions
from amqproute.broker.recent_counts import RecentCounts, RecentEvent
from amqproute.plurals import counted

__all__ = ["KINDS", "MOST_REMEMBERED", "QUIET_SECONDS", "RejectionCounts", "kind_of"]

QUIET_SECONDS: Final = 3600.0
"""Interval between log lines about one kind of rejection by one partner."""
MOST_REMEMBERED: Final = 10_000
"""Bound on remembered pairs of partner and kind."""

_KINDS: Final[Mapping[str, str]] = {
    conditions.LINK_MESSAGE_SIZE_EXCEEDED: "too big",
    conditions.NOT_FOUND: "no node",
    conditions.RESOURCE_LIMIT_EXCEEDED: "full",
    conditions.UNAUTHORIZED_ACCESS: "no right",
    conditions.NOT_ALLOWED: "not allowed",
    conditions.DECODE_ERROR: "malformed",
}

OTHER_KIND: Final = "other"
KINDS: Final = (*_KINDS.values(), OTHER_KIND)
"""All kinds of rejections."""


def kind_of(condition: str | None) -> str:
    """Return the kind of a rejection by its condition; there are only a few kinds."""
    return _KINDS.get(condition or "", OTHER_KIND)


@dataclass(slots=True)
class _Remembered:
    """The last log line about one kind at one partner."""

    since: float
    count: int = 0


class RejectionCounts:
    """Counts rejections by partners.

    Args:
        seconds: a monotonic clock.
        recent: counters of the last hour.
    """

    log = Logger()

    def __init__(self, seconds: Callable[[], float], recent: RecentCounts) -> None:
        self._seconds = seconds
        self._recent = recent
        self._remembered: OrderedDict[tuple[str, str], _Remembered] = OrderedDict()

    def __len__(self) -> int:
        return len(self._remembered)

    def note(self, partner: str, count: int, condition: str | None, words: str) -> str:
        """Count rejections, and log them if a line is due.

        Args:
            partner: the key of the next hop.
            count: number of messages.
            condition: the condition of the rejection, if any.
            words: the partner's text.

        Returns:
            The kind.
        """
        kind = kind_of(condition)
        self._recent.add(RecentEvent("rejected", partner, kind, condition or ""), count)
        key = (partner, kind)
        now = self._seconds()
        known = self._remembered.get(key)
        if known is not None and now - known.since < QUIET_SECONDS:
            known.count += count
            return kind
        total = count + (known.count if known is not None else 0)
        self._remembered[key] = _Remembered(now)
        self._remembered.move_to_end(key)
        if len(self._remembered) > MOST_REMEMBERED:
            self._remembered.popitem(last=False)
        self.log.warn(
            "{destination} rejected {messages}: {condition}: {words} ({kind}; the next line about "
            "it comes in an hour at the earliest)",
            destination=partner,
            messages=counted(total, "message"),
            condition=condition or "message.rejected",
            words=words,
            kind=kind,
        )
        return kind
