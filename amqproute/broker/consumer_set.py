# SPDX-License-Identifier: Apache-2.0
"""Who takes from a queue, and how what there is is dealt (Q-20, Q-21, Q-29 to Q-31).

Whoever has room gets a fair share: one entry at a time in turn, and all of it handed over in one
call. Plain consumers take from the head of the highest line; those with a filter, and browsers,
have a head of their own (`broker.consumer_cursor.ConsumerCursor`).

Where a queue has only so many places for consumers that take entries away, further ones stand by
and are promoted in the order in which they came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from amqproute.broker.consumer_cursor import ConsumerCursor, CursorLookahead, CursorMatch, Selects
from amqproute.broker.entry_list import EntryList
from amqproute.broker.expiry import Expiry
from amqproute.broker.priority_queues import PriorityQueues
from amqproute.entry import Entry

ARRIVAL_TESTS: Final = 64
"""How often filters are asked of an entry when it arrives, as short ones count. Where there are
more consumers, or dearer filters, they examine it in a later turn."""
UNBOUNDED: Final = 1 << 31


@dataclass(slots=True)
class _Share:
    """What one consumer gets of one deal."""

    consumer: Any
    left: int
    entries: list[Entry] = field(default_factory=list)


class ConsumerSet:
    """The consumers of one queue.

    Args:
        levels: the queue's lines.
        expiry: of its entries: what has expired is not dealt.
        now_ms: the wall clock, ms since the epoch.

    Attributes:
        feeds: the heads of those with a filter, and of browsers.
        acquired: entries in consumers' hands.
        movers: consumers that take entries away, without those that stand by.
        most_movers: how many of these there may be (Q-20).
        notes_needs: browsers note what they need (Q-23).
    """

    __slots__ = (
        "_ahead",
        "_expiry",
        "_levels",
        "_now_ms",
        "_rotation",
        "_standby",
        "_tests",
        "acquired",
        "feeds",
        "most_movers",
        "movers",
        "notes_needs",
    )

    def __init__(self, levels: PriorityQueues, expiry: Expiry, now_ms: Callable[[], int]) -> None:
        self._levels = levels
        self._expiry = expiry
        self._now_ms = now_ms
        self._rotation: list[Any] = []  # a deque takes 700 octets
        self._standby: list[tuple[Any, Selects | None]] = []
        self._ahead = CursorLookahead()
        self.feeds: dict[Any, ConsumerCursor] = {}
        self._tests = 0  # what it costs to have all feeds examine an entry
        self.acquired = 0
        self.movers = 0
        self.most_movers = UNBOUNDED
        self.notes_needs = False

    def __len__(self) -> int:
        """Those that stand by count as well."""
        return len(self._rotation) + len(self._standby)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over those that do not stand by."""
        return iter(self._rotation)

    @property
    def has_standby(self) -> bool:
        """Somebody waits for a place."""
        return bool(self._standby)

    @property
    def active(self) -> int:
        """How many there are without those that stand by."""
        return len(self._rotation)

    def held(self) -> Iterator[Entry]:
        """Iterate over the entries that they have taken away: what browsers have may be gone."""
        for consumer in self._rotation:
            feed = self.feeds.get(consumer)
            if feed is None or not feed.copies:
                yield from consumer.holds()

    # -- coming and going ----------------------------------------------------------------------

    def attach(self, consumer: Any, selects: Selects | None, copies: bool) -> None:
        """Add one at the end of the rotation, or have it stand by (Q-21).

        Args:
            consumer: who comes.
            selects: its filter, or None for everything.
            copies: it browses.
        """
        if not copies:
            if self.movers >= self.most_movers:
                self._standby.append((consumer, selects))
                return
            self.movers += 1
        if selects is not None or copies:
            feed = ConsumerCursor(consumer, selects, copies, self._ahead)
            if copies and self.notes_needs:
                feed.needed = set()
            feed.join(self._levels.lines, self._levels.newest_id())
            self.feeds[consumer] = feed
            self._tests += feed.cost
        self._rotation.append(consumer)

    def detach(self, consumer: Any) -> bool:
        """Remove one; True if another one has taken its place."""
        feed = self.feeds.pop(consumer, None)
        if feed is not None:
            self._tests -= feed.cost
            feed.leave()
        if consumer not in self._rotation:
            self._standby = [each for each in self._standby if each[0] is not consumer]
            return False
        self._rotation.remove(consumer)
        if feed is not None and feed.copies:
            return False
        self.movers -= 1
        return self.promote()

    def promote(self) -> bool:
        """Give free places to those that wait longest; True if there were any."""
        promoted = False
        while self._standby and self.movers < self.most_movers:
            consumer, selects = self._standby.pop(0)
            self.attach(consumer, selects, copies=False)
            promoted = True
        return promoted

    def clear(self) -> None:
        """Forget all of them: the queue is no more."""
        self._rotation.clear()
        self._standby.clear()
        self.feeds.clear()
        self._tests = 0

    # -- dealing -------------------------------------------------------------------------------

    def deal(self) -> list[tuple[Any, list[Entry]]]:
        """Take entries off the lines for those that have room; return who gets what."""
        shares = self._with_capacity()
        if not shares:
            return []
        if self.feeds:
            self._deal_each(shares)
        else:
            turn = 0
            for line in self._levels.lines:
                if line.in_memory:
                    turn = self._deal_line(line, shares, turn)
            if len(shares) > 1:
                self._turn_over(shares, turn)
        return [(share.consumer, share.entries) for share in shares if share.entries]

    def deal_out(self, entries: Sequence[Entry]) -> list[tuple[Any, list[Entry]]]:
        """Deal entries that stand on no line yet, in shares as fair as those of `deal`.

        Returns:
            Who gets what; what nobody has room for is in no share.
        """
        shares = self._with_capacity()
        if len(shares) == 1:
            shares[0].entries = list(entries[: shares[0].left])
            self.acquired += len(shares[0].entries)
        elif shares:
            turn = 0
            for entry in entries[: sum([share.left for share in shares])]:
                turn = _give(shares, turn, entry)
                self.acquired += 1
            self._turn_over(shares, turn)
        return [(share.consumer, share.entries) for share in shares if share.entries]

    def _with_capacity(self) -> list[_Share]:
        """Return a share, with nothing in it yet, for each that has room."""
        return [
            _Share(consumer, room)
            for consumer in self._rotation
            if (room := consumer.capacity()) > 0
        ]

    def _turn_over(self, shares: list[_Share], turn: int) -> None:
        """Have whoever comes after the last one served be the first to be served next time."""
        last = shares[(turn - 1) % len(shares)].consumer
        self._turn_to(self._rotation.index(last) + 1)

    def _turn_to(self, place: int) -> None:
        """Have the one in this place be the first."""
        rotation = self._rotation
        if len(rotation) > 1:
            self._rotation = rotation[place:] + rotation[:place]

    def _deal_line(self, line: EntryList, shares: list[_Share], turn: int) -> int:
        if line.returned:
            turn = self._deal_returned(line, shares, turn)
        if len(shares) == 1:
            share = shares[0]
            entries = self._take(line, share.left)
            share.left -= len(entries)
            share.entries = share.entries + entries if share.entries else entries
            return turn
        for entry in self._take(line, sum([share.left for share in shares])):
            turn = _give(shares, turn, entry)
        return turn

    def _deal_returned(self, line: EntryList, shares: list[_Share], turn: int) -> int:
        """Deal from the returned entries, passing over what nobody with room may have."""
        returned = line.returned
        now_ms = self._now_ms()
        expired: list[Entry] = []
        stay: list[Entry] = []
        size = seen = dealt = 0
        left = sum(share.left for share in shares)
        for entry in returned:
            if dealt == left:
                break
            seen += 1
            if self._expiry.is_over(entry, now_ms):
                expired.append(entry)
            else:
                place = _give(shares, turn, entry)
                if place < 0:
                    stay.append(entry)
                    continue
                turn = place
                dealt += 1
            entry.taken = True
            size += len(entry.message.encoded)
        returned[:seen] = stay
        self.acquired += dealt
        line.forget(size)
        if expired:
            self._expiry.expire(expired)
        return turn

    def _take(self, line: EntryList, count: int) -> list[Entry]:
        """Take up to ``count`` entries from the resident line, leaving out expired ones."""
        taken: list[Entry] = []
        while len(taken) < count:
            entries = line.take(count - len(taken))
            if not entries:
                break
            entries = self._expiry.without_expired(entries)
            taken = taken + entries if taken else entries
        self.acquired += len(taken)
        return taken

    def _deal_each(self, shares: list[_Share]) -> None:
        """Deal where consumers have heads of their own: one entry for each in turn."""
        now_ms = self._now_ms()
        expired: list[Entry] = []
        line_of_waiting = deque(shares)
        while line_of_waiting:
            share = line_of_waiting.popleft()
            feed = self.feeds.get(share.consumer)
            entry = self._head_for(share.consumer) if feed is None else feed.pop()
            if entry is None:
                continue
            if self._expiry.is_over(entry, now_ms):
                entry.line.pluck(entry)
                expired.append(entry)
                line_of_waiting.appendleft(share)
                continue
            if feed is None or not feed.copies:
                self.pluck(entry)
                self.acquired += 1
            share.entries.append(entry)
            share.left -= 1
            if share.left:
                line_of_waiting.append(share)
        self._turn_to(1)
        if expired:
            self._expiry.expire(expired)

    def pluck(self, entry: Entry) -> None:
        """Take one entry off its line, wherever it is; it may come back."""
        line = entry.line
        if line.pluck(entry):
            for feed in self.feeds.values():
                feed.plucked(line, entry)

    def _head_for(self, consumer: Any) -> Entry | None:
        for entry in self._levels.entries():
            if not (entry.barred and consumer in entry.barred):
                return entry
        return None

    # -- what they are told --------------------------------------------------------------------

    def arrived(self, line: EntryList, entry: Entry) -> None:
        """Line up an entry, and have the feeds examine it."""
        before_id = max(line.tail, line.cursor)
        if line.arrived(entry, len(entry.message.encoded)):
            is_late = self._tests > ARRIVAL_TESTS
            for feed in self.feeds.values():
                feed.arrived(line, entry, is_late)
        else:
            for feed in self.feeds.values():
                feed.paged(line, entry, before_id)

    def offer(self, line: EntryList, entries: Sequence[Entry]) -> None:
        """Have the feeds examine entries that have been loaded."""
        if entries and self.feeds:
            chosen = CursorMatch(entries)
            for feed in self.feeds.values():
                feed.offer(line, chosen)

    def offer_again(self, entry: Entry) -> None:
        """Have the feeds examine an entry that has come back."""
        for feed in self.feeds.values():
            feed.offer_again(entry.line, entry)

    def gone(self, entries: Sequence[Entry]) -> None:
        """Have the feeds forget entries that will not come back."""
        if self.feeds:
            ids = {entry.id for entry in entries}
            for feed in self.feeds.values():
                feed.gone(ids)

    def notify_standby(self) -> None:
        """Tell those that stand by that there is nothing for them."""
        for consumer, _ in tuple(self._standby):
            consumer.exhausted()

    def notify_exhausted(self, with_room_only: bool = False) -> None:
        """Tell those for whom nothing waits that there is nothing more."""
        notified = tuple(self._rotation)
        if with_room_only:
            notified = tuple([each for each in notified if each.capacity() > 0])
        for consumer in notified:
            feed = self.feeds.get(consumer)
            if feed is None or not feed:
                consumer.exhausted()


def _give(shares: list[_Share], turn: int, entry: Entry) -> int:
    """Give an entry to the next who has room and may have it.

    Returns:
        Whose turn is next; -1 when nobody took it.
    """
    count = len(shares)
    for step in range(count):
        place = (turn + step) % count
        share = shares[place]
        if share.left and not (entry.barred and share.consumer in entry.barred):
            share.entries.append(entry)
            share.left -= 1
            return place + 1
    return -1
