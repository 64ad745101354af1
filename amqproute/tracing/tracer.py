# SPDX-License-Identifier: Apache-2.0
"""The thread that follows the journal and makes spans of it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from twisted.logger import Logger

from amqproute.journal.tail import follow
from amqproute.trace_context import TraceIds
from amqproute.tracing.sampling import SamplingTerms, sampling_reason
from amqproute.tracing.span_queue import SpanQueue
from amqproute.tracing.story import Stories, Story
from amqproute.tracing.story_spans import story_spans

__all__ = ["DISCARDED", "JournalView", "Tracer", "TracerFigures"]

REACH_BACK: Final = 20_000
"""Records before the journal's end that are read at start, for the messages that are still here."""
MOST_BEHIND: Final = 200_000
"""Records by which the thread may be behind the journal before it skips to its end."""
AT_ONCE: Final = 64
"""Records between two pauses, and between two looks at what is due."""
YIELD_SECONDS: Final = 0.0002
"""The pause: the reactor's thread would otherwise wait for a switch interval each time."""
LOOK_RECORDS: Final = 4096
"""Records between two looks at how far behind the thread is."""
DISCARDED: Final = "discarded"
"""In place of a reason, for stories that are not exported."""


@dataclass(frozen=True, slots=True)
class JournalView:
    """The journal that is followed.

    Attributes:
        directory: of it.
        position: returns its name, and the sequence of its next record.
    """

    directory: Path
    position: Callable[[], tuple[str, int]]


@dataclass(slots=True)
class TracerFigures:
    """Counters.

    Attributes:
        stories: decided, by the reason why they are exported; `DISCARDED` are not.
        skipped: records that were not read, because the thread was too far behind.
        behind: records that are written and not read yet.
    """

    stories: Counter[str] = field(default_factory=Counter)
    skipped: int = 0
    behind: int = 0


class Tracer:
    """Follows the journal.

    Args:
        journal: the journal.
        stories: gathers its records.
        ids: names spans.
        queue: takes the spans.
        terms: the terms of sampling; a reload replaces them.
        now_us: the wall clock, microseconds since the epoch.

    Attributes:
        figures: counters.
        terms: the terms, as given.
    """

    log = Logger()

    def __init__(
        self,
        journal: JournalView,
        stories: Stories,
        ids: TraceIds,
        queue: SpanQueue,
        terms: SamplingTerms,
        now_us: Callable[[], int],
    ) -> None:
        self.figures = TracerFigures()
        self.stories = stories
        self.terms = terms
        self._journal = journal
        self._ids = ids
        self._queue = queue
        self._now_us = now_us
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Read to the journal's end, decide about what is over there, and end."""
        self._stopping.set()

    def run(self) -> None:
        """Follow the journal until stopped. For a thread of its own."""
        try:
            self._follow_all()
        except Exception:
            self.log.failure("tracing ends: the journal cannot be followed; restart the daemon")
        self._queue.close()

    def _follow_all(self) -> None:
        name, end = self._journal.position()
        after: tuple[str, int] | None = (name, max(1, end - REACH_BACK))
        while after is not None:
            after = self._follow(after, end)

    def _follow(self, after: tuple[str, int], begin: int) -> tuple[str, int] | None:
        """Follow from a position; return the one to continue at, None at the end.

        Args:
            after: the position.
            begin: stories that are over before this sequence were exported before.
        """
        stories, figures = self.stories, self.figures
        is_past = after[1] < begin
        count = 0
        is_stopping = False
        for record in follow(self._journal.directory, after, self._stopping.wait):
            if is_past and (record is None or record.seq >= begin):
                is_past = False
                stories.all_ended()
            if record is None:
                figures.behind = 0
                self._decide(stories.due(self._now_us()))
                if is_stopping:
                    self._decide(stories.all_ended())
                    return None
                # Once more: the last records may have come after the last look.
                is_stopping = self._stopping.is_set()
                continue
            stories.add(record)
            count += 1
            if count % AT_ONCE:
                continue
            if not is_past:
                self._decide(stories.due(record.time))
            time.sleep(YIELD_SECONDS)
            if count % LOOK_RECORDS == 0:
                name, end = self._journal.position()
                figures.behind = max(0, end - record.seq)
                if figures.behind > MOST_BEHIND:
                    return self._skip(name, end)
        return None

    def _skip(self, name: str, end: int) -> tuple[str, int]:
        figures = self.figures
        figures.skipped += figures.behind
        self.log.warn(
            "tracing is {count} records behind the journal and skips them; record fewer messages "
            "at a time, or give the machine more processors",
            count=figures.behind,
        )
        self.stories.clear()
        figures.behind = 0
        return name, end

    def _decide(self, stories: list[Story]) -> None:
        for story in stories:
            reason = sampling_reason(story, self.terms)
            self.figures.stories[DISCARDED if reason is None else reason.value] += 1
            if reason is not None:
                self._queue.put(story_spans(story, self._ids, self.stories.attempts, reason))
