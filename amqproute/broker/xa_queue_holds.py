# SPDX-License-Identifier: Apache-2.0
"""What prepared branches of distributed transactions keep of one queue: entries, and places.

Entries that a branch held when the daemon ended stay in the store; their ids are known to their
lines, which pass them over, and they count as acquired. Places are kept free for messages that
will arrive when a branch is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from amqproute.broker.consumer_set import ConsumerSet
from amqproute.broker.entry_list import LOAD_BYTES, LOAD_MESSAGES, is_readable
from amqproute.broker.priority_queues import PriorityQueues
from amqproute.entry import Entry

_NO_IDS: Final[frozenset[int]] = frozenset()
"""One for all queues: nearly none ever needs a set of its own, and each would take 216 octets."""


async def load_rows(store: Any, key: str, ids: Sequence[int]) -> list[Any]:
    """Read these rows, ascending; those that are in the store no more are left out.

    Raises:
        StoreError: they cannot be read.
    """
    wanted = set(ids)
    found: list[Any] = []
    after = 0
    for one in ids:
        if one <= after:
            continue  # it was in, or missing from, a page that is read already
        limit = min(LOAD_MESSAGES, ids[-1] - one + 1)
        rows = await store.load(key, one - 1, limit, LOAD_BYTES)
        found += [row for row in rows if row.id in wanted]
        after = rows[-1].id if rows else ids[-1]
    return found


class BranchHolds:
    """Entries and places of one queue.

    Args:
        levels: the queue's lines.
        consumers: they count what is acquired.
        store: the `IStore`.
        notify: called when there are more or fewer places.
        unreadable: given the level, and rows of the store whose octets are no message: sets them
            aside.

    Attributes:
        places: kept free at this moment.
    """

    __slots__ = (
        "_consumers",
        "_levels",
        "_notify",
        "_set_aside",
        "_store",
        "_unreadable",
        "places",
    )

    def __init__(
        self,
        levels: PriorityQueues,
        consumers: ConsumerSet,
        store: Any,
        notify: Callable[[], None],
        unreadable: Callable[[int, Sequence[Any]], None],
    ) -> None:
        self._unreadable = unreadable
        self._set_aside = _NO_IDS
        self._levels = levels
        self._consumers = consumers
        self._store = store
        self._notify = notify
        self.places = 0

    def reserve(self, count: int) -> None:
        """Keep so many places free, more than before; fewer, if it is negative."""
        self.places += count
        self._notify()

    def hold(self, entries: Sequence[tuple[int, int]], level: int) -> None:
        """Keep recovered entries as if a consumer had them.

        Args:
            entries: id and bytes of each.
            level: their priority.
        """
        line = self._levels.line(level)
        for entry_id, size in entries:
            line.hold(entry_id, size)
        self._consumers.acquired += len(entries)

    def forget(self, count: int) -> None:
        """So many of these entries turned out not to be in the store any more."""
        self._consumers.acquired -= count

    async def load(self, key: str, ids: Sequence[int]) -> list[Entry]:
        """Read held entries of a line; those that are in the store no more are left out.

        So are those that are no messages: they are set aside, as on any line.

        Args:
            key: the line's.
            ids: theirs, ascending.

        Raises:
            StoreError: they cannot be read.
        """
        line = next(each for each in self._levels.lines if each.key == key)
        rows = await load_rows(self._store, key, ids)
        bad = [row for row in rows if not is_readable(row)]
        fresh = [row for row in bad if row.id not in self._set_aside]
        if fresh:
            self._set_aside |= {row.id for row in fresh}
            self._unreadable(line.level, fresh)
        found = [line.entry(row) for row in rows if row not in bad]
        for entry in found:
            entry.taken = True
        return found


__all__ = ["BranchHolds", "load_rows"]
