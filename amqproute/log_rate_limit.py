# SPDX-License-Identifier: Apache-2.0
"""What happens with each message or connection of a flood goes into the log now and then.

The first of a kind are told at once. What follows within `EVERY_SECONDS` is counted, and told with
the next one after that. So whoever looks finds it, and nobody outside decides how large the log
becomes. Where so many of something are allowed for each address, `source_of` says what one is.

`RateLimitedLog` gathers repetitions of one line at the place that writes it. `LineShares` bounds
the log
as a whole: each party has a share of lines of each kind, and each group of parties a bound in sum.
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
"""Between two lines about the same, where there was one to count."""
MOST_KEYS: Final = 1000
"""Subjects kept in mind; beyond it all are forgotten, with what was counted."""
MOST_SHARES: Final = 10_000
"""Parties and kinds of a group that are remembered; the totals hold without them."""
OTHERS: Final = "others"
"""Stands for the parties, or kinds, beyond `MOST_KEYS`."""


class RateLimitedLog:
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
    """How often something may happen: a burst, then at a rate.

    Attributes:
        burst: how many at once.
        seconds: after so many there may be one more.
    """

    burst: int
    seconds: float


class GroupAllowance(NamedTuple):
    """What the parties of a group may cause.

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
        seconds: within which time.
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
        groups: what each group of parties may cause.
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
            party: whom the line is about.
            kind: what it says, without the particulars: there must be few kinds.
            is_warning: it is a warning or worse.
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
        """Return what was not written since the last time, and begin to count again.

        Args:
            now: the monotonic clock, in seconds.
            after: how long ago the first of them must be.

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
    """Return when a share is whole again after one more; None if there is nothing left of it."""
    whole_at = max(whole_at, now)
    if whole_at - now > (allowance.burst - 1) * allowance.seconds:
        return None
    return whole_at + allowance.seconds


def _count(counts: dict[str, int], key: str) -> None:
    key = key if key in counts or len(counts) < MOST_KEYS else OTHERS
    counts[key] = counts.get(key, 0) + 1


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
