# SPDX-License-Identifier: Apache-2.0
"""Entries of a queue that no attached link selects (Q-23, archive-currently-unreachable)."""

from __future__ import annotations

from collections.abc import Sequence

from amqproute.broker.queue_state import QueueState
from amqproute.entry import Entry


def take_unmatched(state: QueueState, entries: Sequence[Entry]) -> list[Entry]:
    """Remove and return those of these available entries that no attached consumer selects.

    Browsers record their selection; a consumer without a filter selects everything.
    """
    cursors = []
    for consumer in state.consumers.rotation:
        cursor = state.consumers.cursors.get(consumer)
        if cursor is None:
            return []
        cursors.append(cursor)
    unmatched = []
    for entry in entries:
        if not (entry.taken or any(cursor.needs(entry) for cursor in cursors)):
            entry.line.pluck(entry)
            unmatched.append(entry)
    return unmatched
