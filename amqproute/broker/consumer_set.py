# SPDX-License-Identifier: Apache-2.0
"""The consumers of a queue (Q-20, Q-21, Q-31).

Plain consumers take from the head of the highest line; those with a filter, and browsers, have a
position of their own (`broker.consumer_cursor.ConsumerCursor`). `broker.dispatch` distributes
entries among them.

Where a queue has only so many places for consumers that take entries away, further ones stand by
and are promoted in the order in which they came.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from amqproute.broker.consumer_cursor import ConsumerCursor, CursorLookahead, CursorMatch, Selects
from amqproute.broker.entry_list import EntryList
from amqproute.entry import Entry
from amqproute.interfaces import IConsumer

ARRIVAL_TESTS: Final = 64
"""Filter evaluations for an arriving entry at once, in units of a short filter. With more consumers
or dearer filters it is examined in a later turn."""
PRIORITY: Final = "priority"
"""Attribute of consumers: those with the highest one are served first, while they have room."""
UNBOUNDED: Final = 1 << 31


class ConsumerSet:
    """The consumers of one queue.

    Attributes:
        rotation: the active consumers; the first is served first.
        standby: the consumers that stand by, each with its filter.
        cursors: the positions of those with a filter, and of browsers.
        movers: consumers that take entries away, without those that stand by.
        most_movers: most of these at one time (Q-20).
        notes_needs: whether browsers record their matches (Q-23).
        priorities: of those consumers that have another one than 0 (``x-priority`` in 0-9-1).
    """

    __slots__ = (
        "_lookahead",
        "_tests",
        "cursors",
        "most_movers",
        "movers",
        "notes_needs",
        "priorities",
        "rotation",
        "standby",
    )

    def __init__(self) -> None:
        self.rotation: list[IConsumer] = []  # a deque takes 700 octets
        self.standby: list[tuple[IConsumer, Selects | None]] = []
        self.cursors: dict[object, ConsumerCursor] = {}
        self._lookahead = CursorLookahead()
        self._tests = 0  # cost of an examination of an entry by all cursors
        self.movers = 0
        self.most_movers = UNBOUNDED
        self.notes_needs = False
        self.priorities: dict[object, int] = {}

    def __len__(self) -> int:
        """Number of consumers, including those that stand by."""
        return len(self.rotation) + len(self.standby)

    @property
    def is_full(self) -> bool:
        """Whether there is no place for one more consumer that takes entries away."""
        return self.movers >= self.most_movers

    def held(self) -> Iterator[Entry]:
        """Iterate over the entries that they hold, without those of browsers."""
        for consumer in self.rotation:
            cursor = self.cursors.get(consumer)
            if cursor is None or not cursor.copies:
                yield from consumer.holds()

    # -- coming and going ----------------------------------------------------------------------

    def add(self, consumer: IConsumer, cursor: ConsumerCursor | None) -> None:
        """Add one at the end of the rotation.

        Args:
            consumer: the consumer.
            cursor: of `cursor_for`, which has joined the queue's lines; None for a plain one.
        """
        if cursor is None or not cursor.copies:
            self.movers += 1
        priority: int = getattr(consumer, PRIORITY, 0)
        if priority:
            self.priorities[consumer] = priority
        if cursor is not None:
            self.cursors[consumer] = cursor
            self._tests += cursor.cost
        self.rotation.append(consumer)

    def cursor_for(
        self, consumer: IConsumer, selects: Selects | None, copies: bool
    ) -> ConsumerCursor | None:
        """Return a new cursor for a consumer, which has to join the lines; None for a plain one.

        Args:
            consumer: the consumer.
            selects: its filter, or None for everything.
            copies: it browses.
        """
        if selects is None and not copies:
            return None
        cursor = ConsumerCursor(consumer, selects, copies, self._lookahead)
        if copies and self.notes_needs:
            cursor.needed = set()
        return cursor

    def narrow(self, consumer: IConsumer, selects: Selects) -> ConsumerCursor | None:
        """Give a plain consumer a filter; its place in the rotation stays.

        Returns:
            Its new head, which is to join the lines; None for one that stands by, or is not there.
        """
        self.standby = [
            (each, selects if each is consumer else filter_) for each, filter_ in self.standby
        ]
        if consumer not in self.rotation or consumer in self.cursors:
            return None
        cursor = self.cursor_for(consumer, selects, copies=False)
        assert cursor is not None
        self.cursors[consumer] = cursor
        self._tests += cursor.cost
        return cursor

    def remove(self, consumer: IConsumer) -> None:
        """Remove one; `next_standby` returns its successor."""
        cursor = self.cursors.pop(consumer, None)
        self.priorities.pop(consumer, None)
        if cursor is not None:
            self._tests -= cursor.cost
            cursor.leave()
        if consumer not in self.rotation:
            self.standby = [each for each in self.standby if each[0] is not consumer]
            return
        self.rotation.remove(consumer)
        if cursor is None or not cursor.copies:
            self.movers -= 1

    def next_standby(self) -> tuple[IConsumer, Selects | None] | None:
        """Remove and return the next consumer for a free place; None without one.

        That is the longest waiting one of the highest priority.
        """
        if not self.standby or self.is_full:
            return None
        priorities = [getattr(each, PRIORITY, 0) for each, _ in self.standby]
        return self.standby.pop(priorities.index(max(priorities)))

    def clear(self) -> None:
        """Forget all of them: the queue is deleted."""
        self.rotation.clear()
        self.standby.clear()
        self.cursors.clear()
        self.priorities.clear()
        self._tests = 0

    def turn_to(self, place: int) -> None:
        """Rotate, so that the consumer in this place is the first."""
        rotation = self.rotation
        if len(rotation) > 1:
            self.rotation = rotation[place:] + rotation[:place]

    # -- what the cursors are shown ------------------------------------------------------------

    def pluck(self, entry: Entry) -> None:
        """Take one entry off its line, wherever it is; it may come back."""
        line = entry.line
        if line.pluck(entry):
            for cursor in self.cursors.values():
                cursor.plucked(line, entry)

    def arrived(self, line: EntryList, entry: Entry) -> None:
        """Line up an entry, and offer it to the cursors."""
        before_id = max(line.tail, line.cursor)
        if line.arrived(entry, len(entry.message.encoded)):
            is_late = self._tests > ARRIVAL_TESTS
            for cursor in self.cursors.values():
                cursor.arrived(line, entry, is_late)
        else:
            for cursor in self.cursors.values():
                cursor.paged(line, entry, before_id)

    def offer(self, line: EntryList, entries: Sequence[Entry]) -> None:
        """Offer loaded entries to the cursors."""
        if entries and self.cursors:
            chosen = CursorMatch(entries)
            for cursor in self.cursors.values():
                cursor.offer(line, chosen)

    def offer_again(self, entry: Entry) -> None:
        """Offer an entry that has come back to the cursors."""
        for cursor in self.cursors.values():
            cursor.offer_again(entry.line, entry)

    def gone(self, entries: Sequence[Entry]) -> None:
        """Let the cursors forget entries that will not come back."""
        if self.cursors:
            ids = {entry.id for entry in entries}
            for cursor in self.cursors.values():
                cursor.gone(ids)
