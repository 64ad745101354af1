# SPDX-License-Identifier: Apache-2.0
"""Rate limits for log lines that outside parties can cause.

The first lines of a kind are written at once. Repetitions within `EVERY_SECONDS` are counted, and
the count is written with the next line. So operators find the problem, and outsiders cannot decide
how large the log becomes. Limits per address use `source_of` to identify one.

`RateLimitedLog` collects repetitions of one line at the place that writes it. `LineShares` bounds
the log as a whole: each party has a share of lines of each kind, and each group of parties a bound
in sum.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final, NamedTuple

__all__ = [
    "EVERY_SECONDS",
    "GroupAllowance",
    "LineAllowance",
    "LineShares",
    "RateLimitedLog",
    "SuppressedLines",
    "and_more",
    "source_of",
]

EVERY_SECONDS: Final = 10.0
"""Interval of lines about the same subject when there is something to count."""
MOST_KEYS: Final = 1000
"""Bound on remembered subjects; beyond it all are forgotten, with their counts."""
MOST_SHARES: Final = 10_000
"""Parties and kinds of a group that are remembered; the totals hold without them."""
OTHERS: Final = "others"
"""Stands for the parties, or kinds, beyond `MOST_KEYS`."""


class RateLimitedLog:
    """Decides when a line is due.

    Args:
        seconds: the monotonic clock.
        at_once: lines about a subject that are written at once within `EVERY_SECONDS`.
    """

    __slots__ = ("_at_once", "_counted", "_seconds")

    def __init__(self, seconds: Callable[[], float], at_once: int = 1) -> None:
        self._seconds = seconds
        self._at_once = at_once
        self._counted: dict[Hashable, tuple[float, int, int]] = {}

    def due(self, subject: Hashable, count: int = 1) -> int:
        """Count, and return the number since the last line; 0 if none is due.

        Args:
            subject: the subject of the line, from a small set.
            count: how many more.
        """
        now = self._seconds()
        until, logged, counted = self._counted.get(subject, (now, 0, 0))
        counted += count
        if now >= until:
            if len(self._counted) >= MOST_KEYS:
                self._counted.clear()
            until, logged = now + EVERY_SECONDS, 0
        elif logged >= self._at_once:
            self._counted[subject] = until, logged, counted
            return 0
        self._counted[subject] = until, logged + 1, 0
        return counted


class LineAllowance(NamedTuple):
    """Allowed rate of something: a burst, then a steady rate.

    Attributes:
        burst: the number allowed at once.
        seconds: the interval after which one more is allowed.
    """

    burst: int
    seconds: float


class GroupAllowance(NamedTuple):
    """Lines that the parties of a group may cause.

    Attributes:
        party: lines of one kind about one party.
        total: lines about all parties of the group, counted apart for warnings and for the rest, so
            that chatter does not displace causes; None where the number of parties is bounded.
    """

    party: LineAllowance
    total: LineAllowance | None


@dataclass(slots=True)
class SuppressedLines:
    """The lines that were not written.

    Attributes:
        seconds: the time they cover.
        kinds: their number by kind.
        parties: their number by party.
        has_warnings: one of them was a warning or worse.
    """

    seconds: float
    kinds: dict[str, int] = field(default_factory=dict)
    parties: dict[str, int] = field(default_factory=dict)
    has_warnings: bool = False

    @property
    def count(self) -> int:
        """Return the number of all of them."""
        return sum(self.kinds.values())


class LineShares:
    """Decides which lines about outside parties are written, and counts the others.

    A state is the moment at which a share is whole again (the generic cell rate algorithm); one
    that is in the past says as much as none, so the oldest go first where there are too many.

    Args:
        groups: the allowance of each group of parties.
    """

    __slots__ = ("_groups", "_left_out", "_shares", "_since", "_totals")

    def __init__(self, groups: Mapping[str, GroupAllowance]) -> None:
        self._groups = groups
        self._shares: dict[str, OrderedDict[tuple[str, str], float]] = {
            group: OrderedDict() for group in groups
        }
        self._totals: dict[tuple[str, bool], float] = {}
        self._left_out = SuppressedLines(0.0)
        self._since = 0.0

    def admit(self, group: str, party: str, kind: str, is_warning: bool, now: float) -> bool:
        """Tell whether a line may be written; count it if not.

        Args:
            group: one of those given.
            party: that the line is about.
            kind: the kind of line, without particulars: there must be few kinds.
            is_warning: whether it is a warning or worse.
            now: the monotonic clock, in seconds.
        """
        allowance = self._groups[group]
        shares = self._shares[group]
        share = _drawn(allowance.party, shares.get((party, kind), now), now)
        total: float | None = now
        if allowance.total is not None:
            total = _drawn(allowance.total, self._totals.get((group, is_warning), now), now)
        if share is None or total is None:
            self._leave_out(party, kind, is_warning, now)
            return False
        if allowance.total is not None:
            self._totals[group, is_warning] = total
        shares[party, kind] = share
        shares.move_to_end((party, kind))
        if len(shares) > MOST_SHARES:
            shares.popitem(last=False)
        return True

    def _leave_out(self, party: str, kind: str, is_warning: bool, now: float) -> None:
        left_out = self._left_out
        if not left_out.kinds:
            self._since = now
        _count(left_out.kinds, kind)
        _count(left_out.parties, party)
        left_out.has_warnings |= is_warning

    def left_out(self, now: float, after: float = 0.0) -> SuppressedLines | None:
        """Return the lines suppressed since the last call, and start counting again.

        Args:
            now: the monotonic clock, in seconds.
            after: the minimum age of the first of them, seconds.

        Returns:
            None if there is nothing to say, or not yet.
        """
        found = self._left_out
        if not found.kinds or now - self._since < after:
            return None
        found.seconds = now - self._since
        self._left_out = SuppressedLines(0.0)
        return found


def _drawn(allowance: LineAllowance, whole_at: float, now: float) -> float | None:
    """Return when a share is whole again after one more line; None if it is used up."""
    whole_at = max(whole_at, now)
    if whole_at - now > (allowance.burst - 1) * allowance.seconds:
        return None
    return whole_at + allowance.seconds


def _count(counts: dict[str, int], key: str) -> None:
    key = key if key in counts or len(counts) < MOST_KEYS else OTHERS
    counts[key] = counts.get(key, 0) + 1


def and_more(count: int) -> str:
    """Return the suffix of a line that stands for several; empty for one."""
    return f" ({count - 1} more like it since the last line)" if count > 1 else ""


def source_of(host: str) -> str:
    """Return the network that counts as one sender: an IPv4 address, or the /64 of an IPv6 address.

    A host with one address of a /64 can use all of them (RFC 4291 §2.5.4). Empty for anything
    but an IP address.
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
