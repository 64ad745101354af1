# SPDX-License-Identifier: Apache-2.0
"""Stories: the records of the journal that belong to one message.

A story begins with the entry of a message that comes to this broker. Copies of it are in the same
story if their messages carry the same trace context; without one, each copy has a story and a trace
of its own, linked to that of the original. It is over when none of its entries is left, and no
record has been added for `LINGER_US`: a copy may be recorded after the end of its original.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final

from amqproute.journal.record import BEGINS, ENDS, JournalRecord, RecordKind
from amqproute.trace_context import TraceContext, TraceIds, parse_traceparent

__all__ = ["LINGER_US", "Stories", "Story", "StoryFigures"]

LINGER_US: Final = 2_000_000
"""Microseconds from the last record of a story to the decision about it."""
MOST_RECORDS: Final = 64
"""Records of one story; of further ones only the ends count."""
MOST_ENTRIES: Final = 64
"""Entries of one story; a topic may make thousands of copies. The others begin stories of their
own, in the same trace."""
MOST_PLACES: Final = 1000
MOST_ATTEMPTS: Final = 16
"""Next hops whose connection attempts are remembered, and attempts of each."""

FAILURES: Final = frozenset(
    {
        RecordKind.REJECTED,
        RecordKind.EXPIRED,
        RecordKind.DEAD_LETTERED,
        RecordKind.RETURNED,
    }
)
"""Ends with which a message has failed."""
DAMAGED: Final = "store.damaged"
"""The code of a deletion that is a failure too."""

_Key = tuple[str, int]


@dataclass(slots=True, eq=False)
class Story:
    """What has happened to a message at this broker.

    Attributes:
        root: stream and id of its first entry.
        context: the trace that it belongs to. The parent is the span upstream, or, where the trace
            begins here, meaningless.
        has_parent: the message came with a context.
        began_us: time of the first record, microseconds since the epoch.
        last_us: time of the last one.
        records: the records, in order.
        entries: ids that have not ended.
        seen: the number of entries so far.
        links: spans of other traces that it is made from.
        omitted: records that found no room.
        is_failed: one of its entries has ended with a failure.
    """

    root: _Key
    context: TraceContext
    has_parent: bool
    began_us: int
    last_us: int
    records: list[JournalRecord] = field(default_factory=list)
    entries: set[int] = field(default_factory=set)
    seen: int = 0
    links: tuple[TraceContext, ...] = ()
    omitted: int = 0
    is_failed: bool = False

    @property
    def is_over(self) -> bool:
        """Whether none of its entries is left."""
        return not self.entries

    @property
    def first(self) -> JournalRecord:
        """The record of its beginning."""
        return self.records[0]

    def add(self, record: JournalRecord) -> None:
        """Add a record of one of its entries."""
        assert record.entry is not None
        if len(self.records) < MOST_RECORDS:
            self.records.append(record)
        else:
            self.omitted += 1
        self.last_us = max(self.last_us, record.time)
        kind = record.kind
        if _begins(record) and record.entry not in self.entries:
            self.entries.add(record.entry)
            self.seen += 1
        elif kind in ENDS:
            self.entries.discard(record.entry)
            if kind in FAILURES or record.code == DAMAGED:
                self.is_failed = True


@dataclass(slots=True)
class StoryFigures:
    """Counters.

    Attributes:
        evicted: stories decided before their end, to make room.
        unknown: ends of entries whose beginning is not known.
    """

    evicted: int = 0
    unknown: int = 0


class Stories:
    """Gathers records into stories.

    Args:
        ids: names the traces that begin here.
        most: stories at one time.

    Attributes:
        figures: counters.
        most: as given; a reload changes it.
    """

    def __init__(self, ids: TraceIds, most: int) -> None:
        self.figures = StoryFigures()
        self.most = most
        self._ids = ids
        self._stories: OrderedDict[_Key, Story] = OrderedDict()  # by root, the oldest first
        self._by_entry: dict[_Key, Story] = {}
        self._ended: OrderedDict[_Key, None] = OrderedDict()  # roots
        self._attempts: OrderedDict[str, deque[JournalRecord]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._stories)

    def add(self, record: JournalRecord) -> None:
        """Take the next record of the journal."""
        if record.entry is None:
            if record.kind == RecordKind.ATTEMPT and record.node is not None:
                self._note_attempt(record.node, record)
            return
        key = (record.stream, record.entry)
        story = self._by_entry.get(key)
        if story is None:
            if not _begins(record):
                self.figures.unknown += record.kind in ENDS
                return
            story = self._story_of(record, key)
            self._by_entry[key] = story
        story.add(record)
        self._ended.pop(story.root, None)
        if story.is_over:
            self._ended[story.root] = None

    def due(self, now_us: int) -> list[Story]:
        """Return the stories to decide about, and forget them.

        Args:
            now_us: the wall clock, microseconds since the epoch.
        """
        found = []
        while self._ended:
            root = next(iter(self._ended))
            # Of a record from the future, after a change of the clock, nothing is expected.
            if 0 <= now_us - self._stories[root].last_us < LINGER_US:
                break
            found.append(self._forget(root))
        while len(self._stories) > self.most:
            self.figures.evicted += 1
            found.append(self._forget(next(iter(self._stories))))
        return found

    def all_ended(self) -> list[Story]:
        """Return all stories that are over, and forget them."""
        return [self._forget(root) for root in tuple(self._ended)]

    def clear(self) -> None:
        """Forget everything: records are missing from here on."""
        for each in (self._stories, self._by_entry, self._ended, self._attempts):
            each.clear()

    def attempts(self, node: str, start_us: int, end_us: int) -> list[JournalRecord]:
        """Return the remembered connection attempts of a next hop that ended within a time."""
        known = self._attempts.get(node, ())
        return [each for each in known if start_us <= each.time <= end_us]

    def _story_of(self, record: JournalRecord, key: _Key) -> Story:
        context = parse_traceparent(record.traceparent)
        links: tuple[TraceContext, ...] = ()
        parent = None
        if record.parent is not None:
            parent = self._by_entry.get((record.stream, record.parent))
        if parent is not None:
            is_same = context is not None and context.trace_id == parent.context.trace_id
            if is_same and parent.seen < MOST_ENTRIES:
                return parent
            if not is_same:
                span = self._ids.span_id("publish", *parent.root)
                links = (parent.context._replace(parent_id=span),)
        story = Story(
            key,
            context or self._ids.started(*key),
            context is not None,
            record.time,
            record.time,
            links=links,
        )
        self._stories[key] = story
        return story

    def _forget(self, root: _Key) -> Story:
        story = self._stories.pop(root)
        self._ended.pop(root, None)
        stream, first = root
        for entry in {first, *story.entries, *(each.entry for each in story.records)}:
            if entry is not None and self._by_entry.get((stream, entry)) is story:
                del self._by_entry[stream, entry]
        return story

    def _note_attempt(self, node: str, record: JournalRecord) -> None:
        attempts = self._attempts.get(node)
        if attempts is None:
            if len(self._attempts) >= MOST_PLACES:
                self._attempts.popitem(last=False)
            attempts = self._attempts[node] = deque(maxlen=MOST_ATTEMPTS)
        attempts.append(record)
        self._attempts.move_to_end(node)


def _begins(record: JournalRecord) -> bool:
    """Return whether a record begins its entry, rather than moving it to another node."""
    return record.kind in BEGINS and record.entry != record.parent
