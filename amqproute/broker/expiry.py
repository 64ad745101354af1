# SPDX-License-Identifier: Apache-2.0
"""Expiry of the entries of a queue (D-07 to D-11).

One timer for each queue goes off when the first of its entries expires, and all expired entries are
removed at once: in memory, deferred, and in the store a page at a time. This module selects these
entries, and decides when the timer is due next.

While a queue is *spared*, the lifetime set by this broker does not end messages; those limited by
their senders (ttl, absolute-expiry-time) are not delivered late all the same. A relay queue is
spared from a start of the daemon until an attempt to reach its peer has failed: progress of the
wall clock while the daemon was down proves neither that time has passed, since clocks are set
wrong, nor that the message was ever tried. An entry that was delivered once and came back has had
its attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from amqproute.broker.entry_list import EntryList
from amqproute.broker.queue_state import QueueState
from amqproute.entry import Entry
from amqproute.errors import DecodeError

GRAIN_SECONDS: Final = 0.05
"""Resolution of timers, so that many short lives cost few timers."""
LONGEST_SECONDS: Final = 600.0
"""Longest wait of a timer: it uses the monotonic clock, and the wall clock may be set ahead."""


def is_over(entry: Entry, now_ms: int, is_spared: bool) -> bool:
    """Return whether an entry has expired."""
    if not 0 < entry.expires_ms <= now_ms:
        return False
    if not is_spared or entry.attempted:
        return True
    try:
        end_ms = entry.message.expires_ms(entry.arrived_ms)
    except DecodeError:
        return False  # delivery will find that it cannot be read, and set it aside
    finally:
        entry.message.forget()
    return 0 < end_ms <= now_ms


def wait_until(at_ms: int, now_ms: int) -> float:
    """Return the seconds until a timer for this time goes off."""
    return min(max(GRAIN_SECONDS, (at_ms - now_ms) / 1000), LONGEST_SECONDS)


def earliest(entries: Iterable[Entry]) -> int:
    """Return the first expiry of these entries, ms since the epoch; 0 for never."""
    return min([entry.expires_ms for entry in entries if entry.expires_ms], default=0)


def next_expiry(state: QueueState) -> int:
    """Return the time at which the timer is due, ms since the epoch; 0 for never."""
    paged = [line.paged_expiry_ms for line in state.levels.lines if line.paged_expiry_ms]
    in_memory = earliest(state.waiting())
    return min([*paged, in_memory] if in_memory else paged, default=0)


def take_expired(state: QueueState, now_ms: int) -> list[Entry]:
    """Remove and return the expired entries in memory."""
    expired = state.retry_delay.take_expired(now_ms)
    for line in state.levels.lines:
        gone = {entry for entry in line.entries() if 0 < entry.expires_ms <= now_ms}
        if gone:
            line.remove(gone)
            expired += sorted(gone)
    return expired


def lines_to_sweep(state: QueueState, now_ms: int) -> list[EntryList]:
    """Return the lines whose paged part may hold expired entries and is not being read."""
    return [
        line
        for line in state.levels.lines
        if 0 < line.paged_expiry_ms <= now_ms and not line.is_busy
    ]


def take_fleeting(fleeting: Sequence[Entry]) -> list[Entry]:
    """Remove and return entries for immediate delivery only that no consumer has taken (D-11)."""
    expired = []
    for entry in fleeting:
        entry.expires_ms = entry.arrived_ms
        if not entry.taken:
            entry.line.pluck(entry)
            expired.append(entry)
    return expired
