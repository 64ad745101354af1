# SPDX-License-Identifier: Apache-2.0
"""Assembly of tracing. Imported only where it is switched on: it needs the extra ``tracing``."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from amqproute import __version__
from amqproute.config.field_types import SYSTEM_TRUST
from amqproute.config.schema import Config
from amqproute.journal.journal_writer import Journal
from amqproute.metrics.broker_metrics import TracingFacts
from amqproute.net.reactor import IReactor
from amqproute.trace_context import TraceIds
from amqproute.tracing.collector_connection import CollectorTerms, read_headers
from amqproute.tracing.otlp_exporter import OtlpSink
from amqproute.tracing.sampling import SamplingReason, SamplingTerms
from amqproute.tracing.span_export import SpanExport
from amqproute.tracing.span_queue import SpanQueue
from amqproute.tracing.story import Stories
from amqproute.tracing.tracer import DISCARDED, JournalView, Tracer

__all__ = ["STOP_SECONDS", "Tracing", "make_sink", "sampling_terms"]

STOP_SECONDS: Final = 5.0
"""At a stop: how long to wait for the journal's end to be read, and then for the collector."""
PEER: Final = "peer:"


def make_sink(config: Config, container_id: str) -> OtlpSink:
    """Return the collector of a configuration; nothing is connected yet.

    Raises:
        ConfigError: a file cannot be used.
    """
    tracing = config.tracing
    path = tracing.headers_file
    terms = CollectorTerms(
        tracing.endpoint,
        {} if path is None else read_headers(path),
        None if tracing.trust == SYSTEM_TRUST else Path(tracing.trust),
        tracing.certificate,
        tracing.private_key,
        tracing.timeout,
    )
    resource = {
        "service.name": tracing.service_name,
        "service.version": __version__,
        "service.instance.id": container_id,
    }
    if config.domains:
        resource["service.namespace"] = config.domains[0]
    return OtlpSink(terms, resource)


def sampling_terms(config: Config) -> SamplingTerms:
    """Return the terms of sampling of a configuration."""
    tracing = config.tracing

    def is_trusted(sender: str) -> bool:
        if not sender.startswith(PEER):
            return True
        return config.peer_for(sender.removeprefix(PEER)).trace_context == "keep"

    return SamplingTerms(
        tracing.sample_failures,
        None if tracing.sample_slow is None else round(tracing.sample_slow * 1e6),
        tracing.sample_parent,
        tracing.sample_rate,
        is_trusted,
    )


class Tracing:
    """The threads that make spans of the journal and export them.

    Args:
        config: the configuration.
        reactor: the reactor for the end.
        container_id: ours.
        key: the key of the ids of spans.
        journal: open.

    Attributes:
        ids: names spans.
    """

    log = Logger()

    def __init__(
        self,
        config: Config,
        reactor: IReactor,
        container_id: str,
        key: bytes,
        journal: Journal,
    ) -> None:
        tracing = config.tracing
        self._reactor = reactor
        self._container_id = container_id
        self.ids = TraceIds(key, lambda: self._tracer.terms.rate)
        self._queue = SpanQueue(tracing.max_spans)
        self._export = SpanExport(self._queue, make_sink(config, container_id), time.monotonic)
        self._stories = Stories(self.ids, tracing.max_messages)
        self._tracer = Tracer(
            JournalView(journal.directory, lambda: journal.position),
            self._stories,
            self.ids,
            self._queue,
            sampling_terms(config),
            journal.now_us,
        )
        self._threads = (
            threading.Thread(target=self._tracer.run, name="tracer", daemon=True),
            threading.Thread(target=self._export.run, name="trace export", daemon=True),
        )

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> Deferred[None]:
        """End: what the journal has until now is exported, if the collector takes it in time."""
        self._tracer.stop()
        pool = self._reactor.getThreadPool()
        return deferToThreadPool(self._reactor, pool, self._end)

    def _end(self) -> None:
        tracer, export = self._threads
        tracer.join(STOP_SECONDS)
        self._export.stop()
        export.join(STOP_SECONDS)
        if export.is_alive():
            self._export.abandon()
            self.log.warn(
                "the collector has not taken the last spans within {seconds} s: they are dropped",
                seconds=STOP_SECONDS,
            )

    def prepare(self, config: Config) -> Callable[[], None]:
        """Return the change for a new configuration.

        Raises:
            ConfigError: a file cannot be used.
        """
        tracing, terms = config.tracing, sampling_terms(config)
        sink = make_sink(config, self._container_id)

        def apply() -> None:
            self._tracer.terms = terms
            self._stories.most = tracing.max_messages
            self._queue.most = tracing.max_spans
            self._export.replace(sink)

        return apply

    def facts(self) -> TracingFacts:
        """Return the figures for metrics."""
        decided, export = self._tracer.figures.stories, self._export.figures
        reasons = (*(each.value for each in SamplingReason), DISCARDED)
        return TracingFacts(
            {reason: decided[reason] for reason in reasons},
            {
                "exported": export.exported,
                "dropped": self._queue.dropped,
                "failed": export.failed,
            },
            export.failures,
            len(self._queue),
            len(self._stories),
            self._stories.figures.evicted,
            self._stories.figures.unknown,
            self._tracer.figures.behind,
            self._tracer.figures.skipped,
        )
