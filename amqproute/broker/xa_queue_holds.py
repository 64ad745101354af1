# SPDX-License-Identifier: Apache-2.0
"""Entries and places of a queue that prepared branches hold after a restart.

Entries that a branch held when the daemon ended stay in the store; their ids are known to their
lines, which pass them over, and they count as acquired. They are read when the branch is resolved.
"""

from __future__ import annotations

from collections.abc import Sequence

from amqproute.broker.entry_list import LOAD_BYTES, LOAD_MESSAGES
from amqproute.broker.queue_state import QueueState
from amqproute.interfaces import IStore
from amqproute.store.model import StoredEntry

__all__ = ["hold_recovered", "load_rows"]


async def load_rows(store: IStore, key: str, ids: Sequence[int]) -> list[StoredEntry]:
    """Read these rows, ascending; those that are in the store no more are left out.

    Raises:
        StoreError: the held entries cannot be read.
    """
    wanted = set(ids)
    found: list[StoredEntry] = []
    after = 0
    for one in ids:
        if one <= after:
            continue  # it was in, or missing from, a page that is read already
        limit = min(LOAD_MESSAGES, ids[-1] - one + 1)
        rows = await store.load(key, one - 1, limit, LOAD_BYTES)
        found += [row for row in rows if row.id in wanted]
        after = rows[-1].id if rows else ids[-1]
    return found


def hold_recovered(state: QueueState, entries: Sequence[tuple[int, int]], level: int) -> None:
    """Keep recovered entries as if a consumer had them.

    Args:
        state: the state of the queue.
        entries: id and bytes of each.
        level: their priority.
    """
    line = state.levels.line(level)
    for entry_id, size in entries:
        line.hold(entry_id, size)
    state.acquired += len(entries)
