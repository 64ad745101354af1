# SPDX-License-Identifier: Apache-2.0
"""Rejections by partners: counted by kind, and each kind logged once for a while.

A partner that rejects messages rejects many. The log has a line, with the condition and the
partner's words, when a partner rejects for the first time in a way (`kind_of`), and again after
`QUIET_SECONDS` with how many there were since. How many there are in all is shown by `peer show`,
and those of the last hour by `status`.
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

__all__ = ["MOST_REMEMBERED", "QUIET_SECONDS", "RejectionCounts", "kind_of"]

QUIET_SECONDS: Final = 3600.0
"""Between two lines of the log about one kind of rejections by one partner."""
MOST_REMEMBERED: Final = 10_000
"""Partners and kinds of which it is remembered that the log was told."""

_KINDS: Final[Mapping[str, str]] = {
    conditions.LINK_MESSAGE_SIZE_EXCEEDED: "too big",
    conditions.NOT_FOUND: "no node",
    conditions.RESOURCE_LIMIT_EXCEEDED: "full",
    conditions.UNAUTHORIZED_ACCESS: "no right",
    conditions.NOT_ALLOWED: "not allowed",
    conditions.DECODE_ERROR: "malformed",
}


def kind_of(condition: str | None) -> str:
    """Return the kind of a rejection by its condition; one of a few."""
    return _KINDS.get(condition or "", "other")


@dataclass(slots=True)
class _Remembered:
    """What the log was told of one kind at one partner."""

    since: float
    count: int = 0


class RejectionCounts:
    """What partners rejected.

    Args:
        seconds: a clock that is never set back.
        recent: where the last hour is counted.
    """

    log = Logger()

    def __init__(self, seconds: Callable[[], float], recent: RecentCounts) -> None:
        self._seconds = seconds
        self._recent = recent
        self._remembered: OrderedDict[tuple[str, str], _Remembered] = OrderedDict()

    def __len__(self) -> int:
        return len(self._remembered)

    def note(self, partner: str, count: int, condition: str | None, words: str) -> str:
        """Count rejections, and have the log tell of them if it is time.

        Args:
            partner: the key of the next hop.
            count: messages.
            condition: with which they were rejected, if there is one.
            words: the partner's.

        Returns:
            Their kind.
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
