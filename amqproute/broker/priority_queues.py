# SPDX-License-Identifier: Apache-2.0
"""The lines of one queue, one for each priority in use (D-05, D-06)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from amqproute.broker.entry_list import EntryList
from amqproute.broker.node_limits import MemoryBudget
from amqproute.broker.sender_quotas import SenderQuotas
from amqproute.entry import Entry

USUAL_PRIORITY: Final = 4
"""Default of header.priority (part 3 §3.2.1)."""
HIGHEST_PRIORITY: Final = 9
PRIORITY_PREFIX: Final = "amqp$priority/"


def line_key(name: str, level: int) -> str:
    """Return the name under which the store keeps the entries of one priority of a queue."""
    return name if level == USUAL_PRIORITY else f"{PRIORITY_PREFIX}{level}/{name}"


def queue_of_key(key: str) -> str:
    """Return the queue's name behind a key of `line_key`."""
    if key.startswith(PRIORITY_PREFIX):
        return key[len(PRIORITY_PREFIX) :].partition("/")[2]
    return key


def level_of_key(key: str) -> int:
    """Return the priority behind a key of `line_key`."""
    if key.startswith(PRIORITY_PREFIX):
        return int(key[len(PRIORITY_PREFIX) :].partition("/")[0])
    return USUAL_PRIORITY


def level_of(priority: int, levels: int) -> int:
    """Return the level of a priority on a node that distinguishes only so many (D-06).

    The lowest are equivalent, and the highest are: with ``n`` levels those up to
    ``5 - ceil(n / 2)`` and those from ``4 + floor(n / 2)`` on.
    """
    if levels <= 1:
        return USUAL_PRIORITY
    low = max(0, 5 - (levels + 1) // 2)
    high = min(HIGHEST_PRIORITY, 4 + levels // 2)
    return min(max(int(priority), low), high)


class PriorityQueues:
    """The lines of one queue.

    Args:
        name: the name of the queue.
        budget: the memory budget shared by all queues.
        accounts: the accounts of the senders.

    Attributes:
        lines: the lines in use, the highest priority first. A line more makes a new list, so one
            that is being walked through stays as it is.
        usual: the line of the usual priority, which is always there.
    """

    __slots__ = ("_accounts", "_budget", "_name", "lines", "usual")

    def __init__(
        self, name: str, budget: MemoryBudget, accounts: SenderQuotas | None = None
    ) -> None:
        self._name = name
        self._accounts = SenderQuotas() if accounts is None else accounts
        self._budget = budget
        self.usual = self._make(USUAL_PRIORITY)
        self.lines: list[EntryList] = [self.usual]

    def _make(self, level: int) -> EntryList:
        return EntryList(line_key(self._name, level), level, self._budget, self._accounts)

    def line(self, level: int) -> EntryList:
        """Return the line of a level, created on first use."""
        for line in self.lines:
            if line.level == level:
                return line
        line = self._make(level)
        self.lines = sorted([*self.lines, line], key=lambda each: -each.level)
        return line

    # -- what there is -------------------------------------------------------------------------

    @property
    def available(self) -> int:
        """Number of entries that a consumer could take now."""
        return sum([line.available for line in self.lines])

    @property
    def is_empty(self) -> bool:
        """Whether no entry is available."""
        for line in self.lines:
            if line.paged or line.returned or len(line.resident) > line.seats:
                return False
        return True

    def awaits(self, count: int) -> bool:
        """Return whether so many entries are pending, and none is available."""
        for line in self.lines:
            if line.paged or line.returned or len(line.resident) > line.seats:
                return False
            count -= line.pending
        return count == 0

    @property
    def in_memory(self) -> int:
        """Number of available entries in memory."""
        return sum([line.in_memory for line in self.lines])

    @property
    def has_resident(self) -> bool:
        """Whether some available entries are in memory."""
        for line in self.lines:  # noqa: SIM110 -- a generator costs a call for each line
            if line.returned or len(line.resident) > line.seats:
                return True
        return False

    @property
    def paged(self) -> int:
        """Number of available entries that are only in the store."""
        return sum([line.paged for line in self.lines])

    @property
    def pending(self) -> int:
        """Number of entries put and not committed yet."""
        return sum([line.pending for line in self.lines])

    @property
    def resident_bytes(self) -> int:
        """Bytes of the messages in memory."""
        return sum([line.resident_bytes for line in self.lines])

    @property
    def paged_bytes(self) -> int:
        """Bytes of the messages that are only in the store."""
        return sum([line.paged_bytes for line in self.lines])

    @property
    def filed_bytes(self) -> int:
        """Octets of bodies that are files of their own; no other count includes them."""
        return sum([line.filed_bytes for line in self.lines])

    @property
    def next_id(self) -> int | None:
        """A lower bound of the ids that are or will be available; None when nothing is here."""
        return min((low for line in self.lines if (low := line.next_id) is not None), default=None)

    @property
    def oldest_ms(self) -> int | None:
        """Arrival of the oldest available entry (`EntryList.oldest_ms`), None without one."""
        return min((ms for line in self.lines if (ms := line.oldest_ms) is not None), default=None)

    def entries(self) -> Iterator[Entry]:
        """Iterate over the available entries in memory, the highest priority first."""
        for line in self.lines:
            yield from line.entries()

    def clear(self) -> list[Entry]:
        """Remove all entries from memory and return them."""
        return [entry for line in self.lines for entry in line.clear()]
