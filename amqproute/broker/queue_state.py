# SPDX-License-Identifier: Apache-2.0
"""State of a queue, as plain data.

Nothing here knows a clock, a store, a journal or a timer. The parts of a queue are functions over
this state that change it and return decisions, which `broker.queue.Queue` carries out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from amqproute.broker.admission import rules_of
from amqproute.broker.consumer_set import UNBOUNDED, ConsumerSet
from amqproute.broker.duplicate_filter import DuplicateFilter
from amqproute.broker.node_limits import MemoryBudget, QueueLimits
from amqproute.broker.node_options import QueueOptions
from amqproute.broker.priority_queues import PriorityQueues
from amqproute.broker.queue_counters import QueueCounters
from amqproute.broker.retry_delay import RetryDelay
from amqproute.broker.sender_quotas import SenderQuotas
from amqproute.entry import Entry

USUAL_OPTIONS = QueueOptions()
USUAL_LIMITS = QueueLimits()


class QueueState:
    """The state of one queue.

    Args:
        name: its name; it may change.
        rows: the name of its rows in the store.
        budget: the memory budget it shares with the other queues.
        quotas: the quotas of senders.
        force_transient: nothing is written: every entry lives in memory only (dynamic queues,
            Q-18); such a queue never pages.

    Attributes:
        limits: its bounds.
        options: its options.
        levels: the available entries.
        retry_delay: the deferred entries.
        consumers: the consumers.
        acquired: number of entries held by consumers.
        early: entries delivered whose commit is still in progress, with their octets at the time
            of their arrival: a consumer may have changed them since (`broker.early_delivery`).
        duplicates: the message-ids that it holds, if it takes each message once; else None.
        rules: the options as they apply to arriving messages.
        promised: places reserved for messages of prepared branches (`broker.xa_queue_holds`).
        counters: counters for operators.
        is_relay: its consumer is another broker.
        is_ending: whether it takes no messages any more: it is about to be deleted.
        is_deleted: whether it has been deleted.
        is_spared: the lifetime set by this broker does not end messages (`broker.expiry`).
        is_reading_ids: no message is taken within credit until its message-ids are read
            (`broker.duplicate_filter`).
    """

    __slots__ = (
        "acquired",
        "consumers",
        "counters",
        "duplicates",
        "early",
        "force_transient",
        "is_deleted",
        "is_ending",
        "is_reading_ids",
        "is_relay",
        "is_spared",
        "levels",
        "limits",
        "name",
        "options",
        "promised",
        "quotas",
        "retry_delay",
        "rows",
        "rules",
    )

    def __init__(
        self,
        name: str,
        rows: str | None = None,
        budget: MemoryBudget | None = None,
        quotas: SenderQuotas | None = None,
        force_transient: bool = False,
    ) -> None:
        self.name = name
        self.rows = rows or name
        self.force_transient = force_transient
        self.limits = USUAL_LIMITS
        self.options = USUAL_OPTIONS
        self.quotas = SenderQuotas() if quotas is None else quotas
        self.levels = PriorityQueues(self.rows, budget or MemoryBudget(), self.quotas)
        self.retry_delay = RetryDelay()
        self.consumers = ConsumerSet()
        self.acquired = 0
        self.early: dict[Entry, int] = {}
        self.duplicates: DuplicateFilter | None = None
        self.rules = rules_of(self.options, force_transient, is_ending=False)
        self.promised = 0
        self.counters = QueueCounters()
        self.is_relay = False
        self.is_ending = False
        self.is_deleted = False
        self.is_spared = False
        self.is_reading_ids = False

    # -- how many (Q-15) -----------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """Number of messages held: available, acquired and deferred."""
        return self.levels.available + self.acquired + len(self.retry_delay)

    @property
    def is_empty(self) -> bool:
        """Whether no message is held."""
        return not self.acquired and self.levels.is_empty and not len(self.retry_delay)

    @property
    def taken(self) -> int:
        """Occupied places: messages held or on their way here, and reserved places."""
        # Early delivered entries are acquired already, or have left.
        on_their_way = self.levels.pending - len(self.early)
        return self.depth + on_their_way + self.promised

    @property
    def is_used(self) -> bool:
        """Whether messages are held, or on their way here."""
        return bool(self.depth or self.levels.pending)

    @property
    def is_bounded(self) -> bool:
        """Whether there is a capacity."""
        return self.limits.capacity > 0

    def space(self) -> int:
        """Return how many more messages fit."""
        if self.is_reading_ids:
            return 0
        limits = self.limits
        if limits.octets is not None and not limits.drops_head:
            levels = self.levels
            if levels.resident_bytes + levels.paged_bytes >= limits.octets:
                return 0
        capacity = limits.capacity
        if not capacity:
            return UNBOUNDED
        return max(0, capacity - self.taken)

    @property
    def is_full(self) -> bool:
        """Whether there is a capacity and no free place.

        Senders may still have credit then, if the places were taken without credit: in a
        transaction, by another node, or by the reservation of a branch.
        """
        return self.limits.capacity > 0 and self.space() <= 0

    # -- which ---------------------------------------------------------------------------------

    def waiting(self) -> Iterator[Entry]:
        """Iterate over the entries in memory that no consumer holds."""
        yield from self.levels.entries()
        yield from self.retry_delay.entries()

    def in_memory(self) -> Iterator[Entry]:
        """Iterate over the entries in memory, including those held by consumers."""
        yield from self.waiting()
        yield from self.consumers.held()

    def take_all(self) -> list[Entry]:
        """Remove all available and deferred entries from memory and return them."""
        return self.retry_delay.clear() + self.levels.clear()

    def take(self, entries: Sequence[Entry]) -> None:
        """Take these available or deferred entries off their lines; they may come back."""
        deferred = self.retry_delay.take(entries)
        for entry in entries:
            if entry not in deferred:
                self.consumers.pluck(entry)

    # -- what is known of those that are held --------------------------------------------------

    def forget(self, entries: Sequence[Entry]) -> None:
        """Forget facts about entries that the queue does not hold any more."""
        if self.duplicates is not None:
            self.duplicates.gone(entries)
        if self.quotas.by_number:
            self.quotas.gone(entries)

    def remember(self, entries: Sequence[Entry]) -> None:
        """Undo `forget`: the store still holds them."""
        if self.quotas.by_number:
            self.quotas.back(entries)
        if self.duplicates is not None:
            self.duplicates.back(entries)


__all__ = ["USUAL_LIMITS", "USUAL_OPTIONS", "QueueState"]
