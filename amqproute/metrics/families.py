# SPDX-License-Identifier: Apache-2.0
"""The families of metrics, each declared once.

``python -m amqproute.metrics.families`` prints ``docs/metrics.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from amqproute.metrics.rabbitmq_aliases import rows

__all__ = ["FAMILIES", "OTHER", "SECTIONS", "MetricFamily", "MetricKind", "render"]

OTHER: Final = "other"
"""The label value under which everything is added up that is not named."""


class MetricKind(StrEnum):
    """A type of OpenMetrics."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A declared family.

    Attributes:
        name: the name as in ``# TYPE``; the samples of a counter have ``_total`` behind it.
        kind: the kind of metric.
        help: one sentence, without the final period.
        labels: their names.
        unit: ``seconds`` or ``bytes``, with which the name ends then; empty for numbers of things.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    unit: str = ""

    @property
    def sample(self) -> str:
        """The name that queries use for its values."""
        return f"{self.name}_total" if self.kind is MetricKind.COUNTER else self.name


_COUNTER, _GAUGE, _HISTOGRAM = MetricKind
_NODE: Final = ("virtual_host", "node")
_TOPIC: Final = ("virtual_host", "topic")
_PEER: Final = ("peer",)
_HOST: Final = ("virtual_host",)


def _counter(name: str, words: str, labels: tuple[str, ...] = ()) -> MetricFamily:
    return MetricFamily(f"amqproute_{name}", _COUNTER, words, labels, _unit_of(name))


def _gauge(name: str, words: str, labels: tuple[str, ...] = ()) -> MetricFamily:
    return MetricFamily(f"amqproute_{name}", _GAUGE, words, labels, _unit_of(name))


def _histogram(name: str, words: str, labels: tuple[str, ...] = ()) -> MetricFamily:
    return MetricFamily(f"amqproute_{name}", _HISTOGRAM, words, labels, _unit_of(name))


def _unit_of(name: str) -> str:
    last = name.rpartition("_")[2]
    return last if last in ("seconds", "bytes") else ""


SECTIONS: Final[Mapping[str, tuple[str, tuple[MetricFamily, ...]]]] = {
    "The daemon": (
        "Labels have a handful of values, which the program chooses.",
        (
            _gauge("build_info", "Version of the daemon; always 1", ("version", "python")),
            _histogram(
                "reactor_delay_seconds",
                "How late a timer of the event loop was called: what else waited as long",
            ),
            _gauge(
                "clock_timestamp_seconds",
                "The wall clock when the answer was made, seconds since the epoch",
            ),
            _gauge(
                "clock_jumped",
                "1 while the wall clock has jumped and its time is not used",
            ),
            _gauge("draining", "1 while an operator drains the daemon"),
            _gauge(
                "certificate_expiry_timestamp_seconds",
                "When a certificate of our own chain expires, seconds since the epoch; position 0 "
                "is our own, the next its issuer",
                ("position", "subject"),
            ),
            _gauge("certificate_invalid", "1 while listeners with TLS are closed for want of one"),
        ),
    ),
    "Connections": (
        "`listener` is an endpoint of the configuration. `result` is `ok` or the code of a failure "
        "(docs/failures.md). `level` is what the peer has proved: `none`, `tls`, `authenticated` "
        "or `dane`.",
        (
            _gauge("connections", "Open connections of clients and peers", ("protocol", "kind")),
            _gauge("links", "Attached links of AMQP 1.0, and consumers of 0-9-1", ("protocol",)),
            _gauge("channels", "Open channels of AMQP 0-9-1"),
            _gauge("listener_connections", "Connections that have a place", ("listener",)),
            _gauge(
                "listener_max_connections", "Connections for which there is a place", ("listener",)
            ),
            _counter(
                "listener_refused_connections",
                "Connections closed at once, since all places were taken",
                ("listener",),
            ),
            _counter(
                "listener_evicted_connections",
                "Connections closed before they had logged in, to give their place to others",
                ("listener",),
            ),
            _counter(
                "tls_handshakes",
                "TLS handshakes: `in` at our listeners, `out` with peers",
                ("direction", "level", "result"),
            ),
            _counter(
                "log_ins",
                "Log-ins with a password or token that were decided. `realm` is `file`, `ldap`, "
                "`oauth` or a name of `users.realms`; `result` is `accepted`, `refused`, "
                "`unavailable` (the realm could not tell) or `crowded` (too many waited)",
                ("realm", "result"),
            ),
            _counter(
                "refusals",
                "Connections, links and messages refused by a contract, by the setting at its "
                "limit",
                ("limiter",),
            ),
        ),
    ),
    "Nodes": (
        "`node` is a node of the configuration file, without its virtual host; all others are "
        "added up as `other`, and their ages are the largest. Durable subscriptions and queues "
        "made at run time are among the others. `/metrics/detailed` names them.",
        (
            _gauge("node_messages", "Messages held: available, acquired and deferred", _NODE),
            _gauge("node_acquired_messages", "Messages with consumers, without an outcome", _NODE),
            _gauge("node_deferred_messages", "Messages that wait for their next attempt", _NODE),
            _gauge("node_messages_bytes", "Size of the messages held", _NODE),
            _gauge(
                "node_oldest_message_age_seconds",
                "Age of the oldest available message; 0 without one",
                _NODE,
            ),
            _gauge("node_consumers", "Consumers attached", _NODE),
            _gauge("node_full", "1 for a node that has reached its capacity", _NODE),
            _counter("node_enqueued_messages", "Messages that were taken", _NODE),
            _counter("node_dequeued_messages", "Messages that consumers have accepted", _NODE),
            _counter("node_released_messages", "Messages that consumers have given back", _NODE),
            _counter("node_rejected_messages", "Messages that consumers have rejected", _NODE),
            _counter("node_expired_messages", "Messages whose lifetime has ended", _NODE),
            _counter("node_dead_lettered_messages", "Messages that became dead letters", _NODE),
            _counter("node_purged_messages", "Messages that an operator has deleted", _NODE),
            _counter("node_duplicate_messages", "Messages not taken a second time", _NODE),
            _counter("node_unreachable_messages", "Messages removed that no link needed", _NODE),
            _counter(
                "node_stream_lost_messages", "Messages of streams dropped for want of room", _NODE
            ),
            _counter("node_damaged_messages", "Messages found damaged and set aside", _NODE),
            _gauge("nodes", "Queues that clients can address", _HOST),
        ),
    ),
    "Topics and exchanges": (
        "`topic` is a topic of the configuration file, or `other`. `virtual_host` is `/` or the "
        "name of a virtual host of the configuration.",
        (
            _gauge("topic_subscriptions", "Subscriptions", _TOPIC),
            _counter("topic_published_messages", "Messages published", _TOPIC),
            _counter("topic_delivered_messages", "Messages handed to subscribers", _TOPIC),
            _counter("topic_dropped_messages", "Messages that a full buffer left out", _TOPIC),
            _counter("topic_expired_messages", "Messages whose lifetime ended in a buffer", _TOPIC),
            _counter("topic_unroutable_messages", "Messages that no subscriber wanted", _TOPIC),
            _gauge("topics", "Topics", _HOST),
            _gauge("exchanges", "Exchanges of AMQP 0-9-1, those that always exist included", _HOST),
            _gauge("bindings", "Bindings of exchanges", _HOST),
            _gauge("virtual_hosts", "Virtual hosts, `/` included"),
        ),
    ),
    "Peers": (
        "`peer` is a domain under `peers` in the configuration; all other next hops are added up "
        "as `other`, and their ages are the largest. `code` is `ok` or a code of "
        "docs/failures.md.",
        (
            _gauge(
                "peer_state",
                "Next hops in a state: idle, connecting, open, waiting, refused or held",
                ("peer", "state"),
            ),
            _gauge("peer_dead", "Next hops that count as dead after failed attempts", _PEER),
            _gauge("peer_messages", "Messages that wait for a next hop or are in flight", _PEER),
            _gauge("peer_messages_bytes", "Size of these messages", _PEER),
            _gauge(
                "peer_oldest_message_age_seconds",
                "Age of the oldest waiting message; 0 without one",
                _PEER,
            ),
            _gauge("peer_in_flight_messages", "Messages sent and without an outcome", _PEER),
            _gauge("peer_window_messages", "Messages that may be in flight", _PEER),
            _gauge("peer_credit_messages", "Credit given by the peer", _PEER),
            _gauge(
                "peer_without_credit_seconds",
                "For how long the connected peer has given no credit",
                _PEER,
            ),
            _gauge(
                "peer_without_dns_seconds",
                "For how long the DNS has not named the peer's hosts",
                _PEER,
            ),
            _gauge("peer_failures", "Failed attempts in a row", _PEER),
            _gauge("peer_back_off_seconds", "Time until the next attempt; 0 if none is due", _PEER),
            _gauge(
                "peer_last_success_timestamp_seconds",
                "When the peer was last reached, seconds since the epoch; 0 for never",
                _PEER,
            ),
            _counter("peer_relayed_messages", "Messages that the peer has accepted", _PEER),
            _counter(
                "peer_rejected_messages",
                "Messages that the peer has rejected or had no room for",
                ("peer", "kind"),
            ),
            _counter("peer_retried_messages", "Messages that came back to be sent again", _PEER),
            _counter("peer_expired_messages", "Messages whose lifetime has ended", _PEER),
            _counter("peer_dead_lettered_messages", "Messages returned or buried", _PEER),
            _counter("peer_attempts", "Attempts to connect", ("peer", "code")),
            _counter("peer_connections", "Connections made", _PEER),
            _counter("peer_stuck_connections", "Connections ended for want of an outcome", _PEER),
            _counter("peer_moved_connections", "Connections ended since the DNS has moved", _PEER),
            _counter(
                "dns_lookups",
                "Look-ups of domains; dnssec tells whether the answer is proved",
                ("dnssec", "result"),
            ),
        ),
    ),
    "Transfers": (
        "`way` is `local` for consumers here and `relay` for other brokers. Stages: `waiting` from "
        "arrival to the last hand-over to a consumer, `answering` from there to the outcome. They "
        "are measured while there is a journal.",
        (
            _histogram(
                "transfer_stage_seconds", "Time that messages take in a stage", ("way", "stage")
            ),
            _counter("transfers_local", "Messages with an address that were for a node here"),
            _counter("transfers_relayed", "Messages with an address that were for other domains"),
            _counter("duplicate_transfers", "Repetitions of peers, recognized by a receipt"),
            _gauge("receipts", "Receipts kept, by which repetitions are recognized"),
            _counter("dropped_receipts", "Receipts that went for want of room"),
            _counter("loops", "Messages refused: here before, or too many brokers passed"),
            _counter(
                "reports",
                "Reports to senders: failure, delay, relayed, delivered; buried are those that "
                "could not be sent",
                ("kind",),
            ),
            _counter("dead_letters", "Messages that became dead letters, by reason", ("reason",)),
        ),
    ),
    "Store": (
        "`reason` is a mark of `amqproute status`: while one is closed, publishers get no credit.",
        (
            _gauge("publishing_stopped", "1 while publishers get no credit", ("reason",)),
            _counter("publishing_stops", "How often publishers lost their credit"),
            _gauge("store_free_bytes", "Free space of the file system"),
            _gauge("store_size_bytes", "Size of the file system"),
            _gauge("store_floor_bytes", "Space below which publishers get no credit"),
            _gauge("store_used_bytes", "Size of the messages in the store"),
            _gauge("store_reusable_bytes", "Free space within the database"),
            _histogram("store_commit_seconds", "Duration of a commit"),
            _histogram("store_commit_transactions", "Transactions in one commit"),
            _histogram("store_wait_seconds", "Time from a publisher's read until it is durable"),
            _counter("store_entries", "Rows written and removed"),
            _counter("store_failed_transactions", "Transactions that the store could not take"),
            _gauge("store_waiting_jobs", "Jobs that wait for the writer"),
            _gauge("store_quarantined_messages", "Damaged messages set aside"),
            _gauge("memory_bytes", "Messages in memory, by place", ("place",)),
            _gauge("memory_limit_bytes", "The setting limits.memory"),
        ),
    ),
    "Journal": (
        "Without a journal these families have no samples.",
        (
            _gauge("journal_lag_seconds", "Age of the oldest event that is not written yet"),
            _gauge("journal_waiting_events", "Events that are not written yet"),
            _gauge("journal_waiting_bytes", "Size of the records that wait for the disk"),
            _gauge("journal_failing", "1 while the journal cannot be written"),
            _counter("journal_records", "Records written"),
            _counter("journal_written_bytes", "Octets written"),
            _counter("journal_lost_records", "Records that were dropped"),
            _counter("journal_closed_segments", "Segments closed"),
        ),
    ),
    "Tracing": (
        "Without tracing these families have no samples. `reason` is why a message's trace is "
        "exported (docs/tracing.md), or `discarded`. `result` is `exported`, `dropped` (no room "
        "in the queue) or `failed` (the collector has not taken them).",
        (
            _counter("tracing_messages", "Messages whose trace was decided about", ("reason",)),
            _counter("tracing_spans", "Spans, by what became of them", ("result",)),
            _counter("tracing_failures", "Exports that have failed, repetitions included"),
            _gauge("tracing_waiting_spans", "Spans that wait for the collector"),
            _gauge("tracing_waiting_messages", "Messages whose end is awaited"),
            _counter(
                "tracing_evicted_messages",
                "Messages whose trace was decided about before their end, to make room",
            ),
            _counter(
                "tracing_unknown_messages",
                "Messages that have ended and whose beginning was not known",
            ),
            _gauge("tracing_unread_records", "Records of the journal that were not read yet"),
            _counter(
                "tracing_skipped_records", "Records of the journal skipped for being too many"
            ),
        ),
    ),
    "Scrapes": (
        "",
        (
            _gauge("scrape_collect_seconds", "Duration of the collection of this answer"),
            _gauge("scrape_longest_stop_seconds", "Longest stop of the event loop meanwhile"),
        ),
    ),
}
"""The families by section, with a text about their labels."""

FAMILIES: Final[Mapping[str, MetricFamily]] = {
    family.name: family for _, families in SECTIONS.values() for family in families
}
"""The families by name, in the order of the answer."""


_HEAD: Final = """\
# Metrics

The daemon serves metrics at `/metrics` of the endpoint `management.http`, in OpenMetrics or in the
text format of Prometheus, as the request's `Accept` header asks. This page is printed by
`python -m amqproute.metrics.families`; do not edit it.

`/metrics` names the nodes and topics of the configuration file and the domains under `peers`, at
most `management.metrics-named` of each kind, and adds up all others under the label value `other`:
`sum(amqproute_node_messages)` is always the total. `/metrics/detailed` names everything; ask it for
what you need: `/metrics/detailed?family=amqproute_node_messages`, with `node=NAME` or `peer=NAME`
for one of them. Both parameters can be repeated.

Counters begin at 0 with the daemon and never shrink while it runs. Samples of counters have
`_total` behind the name of the family; those of histograms have `_bucket`, `_sum` and `_count`.

The families `process_*` of the client library are there as well: CPU time, memory, descriptors.
"""


_RABBITMQ: Final = """
## RabbitMQ's names

With `management.rabbitmq-metrics: true` `/metrics` has these as well, so that dashboards for
RabbitMQ show this broker: its totals, without labels, each made of our own families. The labels
`rabbitmq_node` and `rabbitmq_cluster` of `rabbitmq_identity_info` and `rabbitmq_build_info` are the
container-id. The families of the process have the prefix `rabbitmq_` too, as in
`rabbitmq_process_open_fds`. What RabbitMQ has and this broker has not is left out, and panels for
it stay empty: the memory limit, sockets, publishers, publisher confirms, returned messages, rates
of opened and closed connections and channels, and everything about Erlang and Raft.
`rabbitmq_global_messages_received_total` counts a message once for each queue that took it.

| metric | made of |
|---|---|
"""


def render() -> str:
    """Return ``docs/metrics.md``."""
    parts = [_HEAD]
    for title, (words, families) in SECTIONS.items():
        parts.append(f"\n## {title}\n")
        if words:
            parts.append(f"\n{words}\n")
        parts.append("\n| metric | type | labels | meaning |\n|---|---|---|---|\n")
        for each in families:
            labels = ", ".join(f"`{label}`" for label in each.labels)
            parts.append(f"| `{each.sample}` | {each.kind} | {labels} | {each.help} |\n")
    parts.append(_RABBITMQ)
    parts += (f"{row}\n" for row in rows())
    return "".join(parts)


if __name__ == "__main__":
    print(render(), end="")
