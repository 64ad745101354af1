# SPDX-License-Identifier: Apache-2.0
"""Eviction from queues of bounded length (09-W-74, x-max-length).

Only waiting messages count, as for clients of RabbitMQ; messages held by consumers do not. The
oldest of the lowest priority goes first.
"""

from __future__ import annotations

from collections.abc import Iterator

from amqproute.broker.entry_list import EntryList
from amqproute.broker.queue_state import QueueState
from amqproute.entry import Entry

__all__ = ["take_excess", "waiting_octets"]


def waiting_octets(state: QueueState) -> int:
    """Return the octets of the messages that wait, in memory and in the store."""
    return state.levels.resident_bytes + state.levels.paged_bytes


def take_excess(state: QueueState) -> tuple[list[Entry], list[EntryList]]:
    """Remove entries in excess of the bounds from memory.

    Returns:
        The removed entries; and the lines that have to be read before enough can be removed.
    """
    limits = state.limits
    if not limits.drops_head:
        return [], []
    count = size = 0
    if limits.length is not None:
        count = max(0, state.levels.available - limits.length)
    if limits.octets is not None:
        size = max(0, waiting_octets(state) - limits.octets)
    if not count and not size:
        return [], []
    taken: list[Entry] = []
    unread: list[EntryList] = []
    for line in reversed(state.levels.lines):
        for entry in _heads(line):
            if count <= 0 and size <= 0:
                break
            taken.append(entry)
            count -= 1
            size -= len(entry.message.encoded)
        if (count > 0 or size > 0) and line.paged:
            unread.append(line)
            break
    state.take(taken)
    return taken, unread


def _heads(line: EntryList) -> Iterator[Entry]:
    return (entry for entry in line.entries() if not entry.taken)
