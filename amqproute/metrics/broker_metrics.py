# SPDX-License-Identifier: Apache-2.0
"""Sources of metrics: everything beside nodes and next hops."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields

from cryptography import x509

from amqproute import __version__
from amqproute.broker.broker import Broker
from amqproute.broker.publish_gate import DAMAGE, DISK, JOURNAL, MAX_BYTES, MEMORY, STORE
from amqproute.broker.receipts import Receipts
from amqproute.bucket_counts import BucketCounts
from amqproute.journal.journal_writer import Journal
from amqproute.metrics.snapshot import MetricsSnapshot
from amqproute.net.listener import Listener
from amqproute.relay.connect_agent import ConnectAgent
from amqproute.services.sender_reports import ReportCounters
from amqproute.services.transfer import TransferCounters
from amqproute.services.watermarks import Watermarks
from amqproute.store.sqlite import SqliteStore
from amqproute.turn_scheduler import Pause
from amqproute.values import DeadLetterReason

__all__ = [
    "DaemonFacts",
    "MetricsParts",
    "NetworkMetrics",
    "ReactorParts",
    "StoreMetrics",
    "TracingFacts",
    "TracingMetrics",
    "TransferMetrics",
]

REASONS = (DISK, MAX_BYTES, MEMORY, STORE, JOURNAL, DAMAGE, "drain")
"""Reasons for which publishers get no credit."""


@dataclass(frozen=True, slots=True)
class CountedConnection:
    """A connection, as far as it is counted.

    Attributes:
        protocol: the protocol as in the journal.
        kind: the kind of its principal.
        links: links, or consumers of 0-9-1.
        channels: the channels of 0-9-1.
    """

    protocol: str
    kind: str
    links: int
    channels: int


@dataclass(frozen=True, slots=True)
class DaemonFacts:
    """Facts about the daemon as a whole.

    Attributes:
        now: the wall clock, seconds since the epoch.
        is_clock_jumped: the wall clock is not used.
        is_draining: an operator drains it.
        is_certificate_invalid: listeners with TLS are closed.
        chain: the certificates we show, our own first.
        places: octets of messages in memory, by place.
        connections: the open ones, each counted when it is asked for.
        log_ins: log-ins by realm and result.
    """

    now: float = 0.0
    is_clock_jumped: bool = False
    is_draining: bool = False
    is_certificate_invalid: bool = False
    chain: Sequence[x509.Certificate] = ()
    places: Iterable[tuple[str, int]] = ()
    connections: Iterable[CountedConnection] = ()
    log_ins: Mapping[tuple[str, str], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TracingFacts:
    """Facts about tracing.

    Attributes:
        messages: decided, by reason.
        spans: by result.
        failures: failed exports.
        waiting_spans: the spans in the queue.
        waiting_messages: without a decision.
        evicted: messages decided before their end.
        unknown: ends without a known beginning.
        unread: records.
        skipped: records.
    """

    messages: Mapping[str, int]
    spans: Mapping[str, int]
    failures: int
    waiting_spans: int
    waiting_messages: int
    evicted: int
    unknown: int
    unread: int
    skipped: int


@dataclass(frozen=True, slots=True)
class ReactorParts:
    """The reactor, as metrics see it.

    Attributes:
        delays: delays of its timers.
        pause: called between slices of work that takes many of its turns.
    """

    delays: BucketCounts
    pause: Pause


@dataclass(frozen=True, slots=True)
class MetricsParts:
    """Parts of the daemon that count.

    Attributes:
        facts: returns facts about the daemon.
        reactor: the reactor.
        listeners: returns the open listeners.
        agent: connects to peers.
        broker: the broker.
        transfers: counters of the transfer service.
        reports: counters of reports.
        receipts: the receipts.
    """

    facts: Callable[[], DaemonFacts]
    reactor: ReactorParts
    listeners: Callable[[], Sequence[Listener]]
    agent: ConnectAgent
    broker: Broker
    transfers: TransferCounters
    reports: ReportCounters
    receipts: Receipts


class NetworkMetrics:
    """The process and its connections."""

    def __init__(self, parts: MetricsParts) -> None:
        self._parts = parts

    def daemon(self, snapshot: MetricsSnapshot) -> Iterator[None]:
        """Add the facts about the daemon, and its connections."""
        add, parts = snapshot.add, self._parts
        facts = parts.facts()
        add("amqproute_build_info", 1, __version__, platform.python_version())
        snapshot.add_histogram("amqproute_reactor_delay_seconds", parts.reactor.delays)
        add("amqproute_clock_timestamp_seconds", facts.now)
        add("amqproute_clock_jumped", facts.is_clock_jumped)
        add("amqproute_draining", facts.is_draining)
        add("amqproute_certificate_invalid", facts.is_certificate_invalid)
        for position, certificate in enumerate(facts.chain):
            ends = certificate.not_valid_after_utc.timestamp()
            subject = certificate.subject.rfc4514_string()
            add("amqproute_certificate_expiry_timestamp_seconds", ends, str(position), subject)
        yield
        present: Counter[tuple[str, str]] = Counter()
        links: Counter[str] = Counter()
        channels = 0
        for each in facts.connections:
            present[each.protocol, each.kind] += 1
            links[each.protocol] += each.links
            channels += each.channels
            yield
        for labels, count in present.items():
            add("amqproute_connections", count, *labels)
        for protocol, count in links.items():
            add("amqproute_links", count, protocol)
        add("amqproute_channels", channels)
        for place, octets in facts.places:
            add("amqproute_memory_bytes", octets, place)
        for (realm, result), count in facts.log_ins.items():
            add("amqproute_log_ins", count, realm, result)

    def network(self, snapshot: MetricsSnapshot) -> Iterator[None]:
        """Add listeners, handshakes, look-ups and refusals."""
        add, parts = snapshot.add, self._parts
        handshakes: Counter[tuple[str, str, str]] = Counter()
        for listener in parts.listeners():
            places, name = listener.places, listener.description
            add("amqproute_listener_connections", len(places), name)
            add("amqproute_listener_max_connections", places.terms.places, name)
            add("amqproute_listener_refused_connections", places.refused, name)
            add("amqproute_listener_evicted_connections", places.closed, name)
            for (level, code), count in listener.handshakes.items():
                handshakes["in", level, code or "ok"] += count
        for (level, code), count in parts.agent.handshakes.items():
            handshakes["out", level, code or "ok"] += count
        for labels, count in handshakes.items():
            add("amqproute_tls_handshakes", count, *labels)
        for (is_proved, code), count in parts.agent.lookups.items():
            dnssec = "secure" if is_proved else "insecure"
            add("amqproute_dns_lookups", count, dnssec, code or "ok")
        # All reasons from the beginning: the first increase of a series counts only then.
        letters = dict.fromkeys((reason.value for reason in DeadLetterReason), 0)
        for (event, kind), count in parts.broker.recent.since_start.items():
            if event == "refused":
                add("amqproute_refusals", count, kind)
            elif event == "dead-lettered":
                letters[kind] = count
        for kind, count in letters.items():
            add("amqproute_dead_letters", count, kind)
        yield


class TransferMetrics:
    """Messages on their way."""

    def __init__(self, parts: MetricsParts) -> None:
        self._parts = parts

    def transfers(self, snapshot: MetricsSnapshot) -> Iterator[None]:
        """Add stages, transfers, receipts and reports."""
        add, parts = snapshot.add, self._parts
        stages = parts.broker.context.stages
        for way, times in (("local", stages.local), ("relay", stages.relay)):
            name = "amqproute_transfer_stage_seconds"
            snapshot.add_histogram(name, times.waiting, way, "waiting")
            snapshot.add_histogram(name, times.answering, way, "answering")
        tally = parts.transfers
        add("amqproute_transfers_local", tally.local)
        add("amqproute_transfers_relayed", tally.relayed)
        add("amqproute_duplicate_transfers", tally.duplicates)
        add("amqproute_loops", tally.loops)
        yield
        add("amqproute_receipts", len(parts.receipts))
        add("amqproute_dropped_receipts", parts.receipts.dropped)
        for each in fields(parts.reports):
            add("amqproute_reports", getattr(parts.reports, each.name), each.name)
        yield


class TracingMetrics:
    """Tracing, if it is switched on.

    Args:
        facts: returns facts about tracing; None without it.
    """

    def __init__(self, facts: Callable[[], TracingFacts] | None) -> None:
        self._facts = facts

    def tracing(self, snapshot: MetricsSnapshot) -> Iterator[None]:
        """Add the counters of tracing."""
        if self._facts is None:
            return
        add, facts = snapshot.add, self._facts()
        for reason, count in facts.messages.items():
            add("amqproute_tracing_messages", count, reason)
        for result, count in facts.spans.items():
            add("amqproute_tracing_spans", count, result)
        add("amqproute_tracing_failures", facts.failures)
        add("amqproute_tracing_waiting_spans", facts.waiting_spans)
        add("amqproute_tracing_waiting_messages", facts.waiting_messages)
        add("amqproute_tracing_evicted_messages", facts.evicted)
        add("amqproute_tracing_unknown_messages", facts.unknown)
        add("amqproute_tracing_unread_records", facts.unread)
        add("amqproute_tracing_skipped_records", facts.skipped)
        yield


class StoreMetrics:
    """Store, journal and the marks at which publishers stop.

    Args:
        broker: owner of the gate.
        store: the store.
        journal: the journal; None without one.
        watermarks: the marks of disk and memory.
        memory_limit: the setting `limits.memory`, octets.
    """

    def __init__(
        self,
        broker: Broker,
        store: SqliteStore,
        journal: Journal | None,
        watermarks: Watermarks,
        memory_limit: int,
    ) -> None:
        self._broker = broker
        self._store = store
        self._journal = journal
        self._watermarks = watermarks
        self._memory_limit = memory_limit

    def store(self, snapshot: MetricsSnapshot) -> Iterator[None]:
        """Add the store and the marks."""
        add, gate = snapshot.add, self._broker.gate
        for reason in REASONS:
            add("amqproute_publishing_stopped", reason in gate.reasons, reason)
        add("amqproute_publishing_stops", gate.closed)
        add("amqproute_memory_limit_bytes", self._memory_limit)
        room = self._watermarks.room
        if room is not None:
            add("amqproute_store_free_bytes", room.free)
            add("amqproute_store_size_bytes", room.total)
            add("amqproute_store_floor_bytes", self._watermarks.terms.floor(room.total))
            add("amqproute_store_used_bytes", room.used)
            add("amqproute_store_reusable_bytes", room.reusable)
        figures = self._store.figures
        snapshot.add_histogram("amqproute_store_commit_seconds", figures.seconds)
        snapshot.add_histogram("amqproute_store_commit_transactions", figures.sizes)
        snapshot.add_histogram("amqproute_store_wait_seconds", figures.waits)
        add("amqproute_store_entries", figures.entries)
        add("amqproute_store_failed_transactions", figures.failed)
        add("amqproute_store_waiting_jobs", self._store.waiting)
        add("amqproute_store_quarantined_messages", self._store.quarantined)
        yield

    def journal(self, snapshot: MetricsSnapshot) -> Iterator[None]:
        """Add the journal."""
        journal = self._journal
        if journal is None:
            return
        add, facts = snapshot.add, journal.statistics()
        add("amqproute_journal_lag_seconds", journal.lag_seconds)
        add("amqproute_journal_waiting_events", facts["waiting"])
        add("amqproute_journal_waiting_bytes", facts["waiting_bytes"])
        add("amqproute_journal_failing", bool(journal.figures.fault))
        add("amqproute_journal_records", facts["records"])
        add("amqproute_journal_written_bytes", facts["bytes"])
        add("amqproute_journal_lost_records", facts["lost"])
        add("amqproute_journal_closed_segments", facts["segments"])
        yield
