# SPDX-License-Identifier: Apache-2.0
"""Spans that wait for the collector."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from amqproute.trace_context import TraceContext

__all__ = ["SpanFacts", "SpanKindName", "SpanQueue"]

AttributeValue = str | int | float | bool


class SpanKindName(StrEnum):
    """The kinds of OpenTelemetry that we use."""

    SERVER = "SERVER"
    CLIENT = "CLIENT"
    INTERNAL = "INTERNAL"


@dataclass(frozen=True, slots=True)
class SpanFacts:
    """A span, as plain values.

    Attributes:
        name: operation and destination.
        context: trace, own id (as `TraceContext.parent_id`: that of those below) and flags.
        parent_id: 16 hexadecimal digits; None for the first span of a trace.
        is_parent_remote: the parent is of another process.
        kind: the kind of OpenTelemetry.
        start_us: microseconds since the epoch.
        end_us: likewise.
        attributes: by the semantic conventions, and our own.
        error: why it failed; None if it did not.
        links: spans of other traces.
    """

    name: str
    context: TraceContext
    parent_id: str | None
    is_parent_remote: bool
    kind: SpanKindName
    start_us: int
    end_us: int
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    error: str | None = None
    links: Sequence[TraceContext] = ()


class SpanQueue:
    """A bounded queue between two threads.

    Args:
        most: spans at one time.

    Attributes:
        most: as given; a reload changes it.
        dropped: spans that found no room.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.dropped = 0
        self._spans: deque[SpanFacts] = deque()
        self._changed = threading.Condition()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._spans)

    def put(self, spans: Sequence[SpanFacts]) -> None:
        """Add the spans of one story, or none of them if they do not fit."""
        with self._changed:
            if self._is_closed or len(self._spans) + len(spans) > self.most:
                self.dropped += len(spans)
                return
            self._spans.extend(spans)
            self._changed.notify()

    def take(self, most: int, gather_seconds: float) -> list[SpanFacts]:
        """Wait for spans, and return them; an empty list when the queue is closed and empty.

        Args:
            most: return at most so many.
            gather_seconds: how long to wait for others once there is one.
        """
        with self._changed:
            self._changed.wait_for(lambda: bool(self._spans) or self._is_closed)
            self._changed.wait_for(
                lambda: len(self._spans) >= most or self._is_closed, gather_seconds
            )
            return [self._spans.popleft() for _ in range(min(most, len(self._spans)))]

    def close(self) -> None:
        """Take no more spans; whoever waits for some gets those that are left."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def discard(self) -> None:
        """Drop what waits."""
        with self._changed:
            self.dropped += len(self._spans)
            self._spans.clear()
