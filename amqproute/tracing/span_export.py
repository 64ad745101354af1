# SPDX-License-Identifier: Apache-2.0
"""The thread that hands spans to the collector."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from twisted.logger import Logger

from amqproute.log_rate_limit import RateLimitedLog
from amqproute.printable import printable
from amqproute.tracing.span_queue import SpanFacts, SpanQueue

__all__ = ["ExportFailure", "ExportFigures", "SpanExport", "SpanSink"]

BATCH: Final = 512
"""Spans of one export."""
GATHER_SECONDS: Final = 1.0
"""How long spans wait for others."""
TRIES: Final = 5
"""Tries of one batch; it is given up after the last."""
FIRST_WAIT_SECONDS: Final = 1.0
LAST_WAIT_SECONDS: Final = 60.0
"""Pause after a failure, doubled with each further one in a row."""


class ExportFailure(Exception):
    """The collector has not taken a batch; the text says why.

    Attributes:
        is_final: a repetition is of no use.
        retry_after: the pause that the collector asks for, in seconds.
    """

    def __init__(self, words: str, *, is_final: bool = False, retry_after: float = 0.0) -> None:
        super().__init__(words)
        self.is_final = is_final
        self.retry_after = retry_after


class SpanSink(Protocol):
    """Where spans go."""

    place: str
    """For the log."""

    def export(self, spans: Sequence[SpanFacts]) -> tuple[int, str]:
        """Deliver spans; called by one thread.

        Returns:
            How many of them the collector has rejected for good, and why.

        Raises:
            ExportFailure: they were not taken.
        """

    def close(self) -> None:
        """End an export under way soon, and take no more."""


@dataclass(slots=True)
class ExportFigures:
    """Counters.

    Attributes:
        exported: spans that the collector has taken.
        failed: spans that were given up, or rejected.
        failures: exports that have failed.
    """

    exported: int = 0
    failed: int = 0
    failures: int = 0


class SpanExport:
    """Exports the spans of a queue.

    Args:
        queue: the queue.
        sink: where they go; `replace` exchanges it.
        seconds: the monotonic clock, for the log.

    Attributes:
        figures: counters.
    """

    log = Logger()

    def __init__(self, queue: SpanQueue, sink: SpanSink, seconds: Callable[[], float]) -> None:
        self.figures = ExportFigures()
        self._queue = queue
        self._sink = sink
        self._lines = RateLimitedLog(seconds)
        self._hurry = threading.Event()
        self._is_stopping = False
        self._wait = FIRST_WAIT_SECONDS

    def replace(self, sink: SpanSink) -> None:
        """Use another sink from the next try on."""
        old, self._sink = self._sink, sink
        old.close()
        self._hurry.set()

    def stop(self) -> None:
        """Export what is there, without repetitions, and end."""
        self._is_stopping = True
        self._queue.close()
        self._hurry.set()

    def abandon(self) -> None:
        """Drop what is there, end an export under way, and end."""
        self.stop()
        self._queue.discard()
        self._sink.close()

    def run(self) -> None:
        """Export until stopped. For a thread of its own."""
        while spans := self._queue.take(BATCH, GATHER_SECONDS):
            try:
                self._deliver(spans)
            except Exception:
                self.figures.failed += len(spans)
                self.log.failure("{count} spans could not be exported", count=len(spans))
        self._sink.close()

    def _deliver(self, spans: Sequence[SpanFacts]) -> None:
        for tries in range(1, TRIES + 1):
            sink = self._sink
            try:
                rejected, words = sink.export(spans)
            except ExportFailure as error:
                self.figures.failures += 1
                if sink is not self._sink and not self._is_stopping:
                    continue  # closed by a reload
                is_last = error.is_final or tries == TRIES or self._is_stopping
                self._report(sink, error, is_last, len(spans))
                if is_last:
                    break
                self._pause(error.retry_after)
            else:
                self.figures.exported += len(spans) - rejected
                self.figures.failed += rejected
                if rejected:
                    self._report(sink, ExportFailure(words), True, rejected)
                self._wait = FIRST_WAIT_SECONDS
                return
        self.figures.failed += len(spans)

    def _pause(self, asked_seconds: float) -> None:
        wait, self._wait = self._wait, min(2 * self._wait, LAST_WAIT_SECONDS)
        wait = max(wait, min(asked_seconds, LAST_WAIT_SECONDS))
        self._hurry.wait(wait)
        if not self._is_stopping:
            self._hurry.clear()

    def _report(self, sink: SpanSink, error: ExportFailure, is_last: bool, spans: int) -> None:
        if count := self._lines.due("export"):
            self.log.warn(
                "the collector at {place} has not taken {spans} spans ({count} failures): {error}."
                " {policy}",
                place=sink.place,
                spans=spans,
                count=count,
                error=printable(str(error))[:500],
                policy="They are dropped" if is_last else "They are sent again",
            )
