# SPDX-License-Identifier: Apache-2.0
"""Settings for the store, limits, the journal, status, management and logging."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from amqproute.config.field_types import (
    Bytes,
    BytesOrPart,
    EndpointText,
    FilePath,
    FromList,
    HttpUrl,
    Network,
    Seconds,
    ShortText,
    Trust,
)
from amqproute.config.schema_base import AT_START, DAY, HOUR, MEBIBYTE, Settings

__all__ = [
    "DistributedTransactionSettings",
    "JournalSettings",
    "LimitSettings",
    "LogSettings",
    "ManagementSettings",
    "PluginSettings",
    "StagingSettings",
    "StatusSettings",
    "StoreSettings",
    "TracingSettings",
]


class StoreSettings(Settings):
    """When the disk counts as nearly full: then publishers, clients and peers alike, get no credit;
    nobody is refused and nothing is lost. Credit returns when there is space again."""

    min_free: BytesOrPart | None = Field(
        default=None,
        description="The space kept free on the file system of the state directory, as a size or "
        "as a percentage, as in 5%. Below it publishers get no credit; consumers and the relay "
        "continue. null: 5 % of the file system, at most 1GiB. 0: no minimum.",
    )
    max_bytes: Bytes | None = Field(
        default=None,
        ge=1048576,
        description="The maximum size of the messages in the store. Above it publishers get no "
        "credit. null: limited only by the disk.",
    )


class StagingSettings(Settings):
    """Contents that clients of AMQP 0-9 send in parts before publishing, with file.stage, or by
    reference with message.append. It is kept on disk, and found again after a cut and after a
    restart. A reload applies to what is sent from then on."""

    max_content: Bytes = Field(
        default=2 * 1024 * MEBIBYTE,
        ge=1024,
        description="The largest content.",
    )
    max_user_bytes: Bytes = Field(
        default=4 * 1024 * MEBIBYTE,
        ge=1024,
        description="The maximum size of all contents of one user. A file counts with its full "
        "size from file.open on.",
    )
    max_bytes: Bytes = Field(
        default=8 * 1024 * MEBIBYTE,
        ge=1024,
        description="The maximum size of all contents.",
    )
    max_user_contents: int = Field(
        default=100,
        ge=1,
        le=100000,
        description="The maximum number of contents of one user.",
    )
    max_contents: int = Field(
        default=1000,
        ge=1,
        le=100000,
        description="The maximum number of contents, a file each.",
    )
    keep: Seconds = Field(
        default=DAY,
        ge=1,
        le=30 * DAY,
        description="A content to which nothing is added for this long is deleted. Its client then "
        "begins again.",
    )


class LimitSettings(Settings):
    """Limits that keep one client from exhausting the daemon."""

    max_frame_size: Annotated[Bytes, AT_START] = Field(
        default=262144,
        ge=512,
        le=16 * MEBIBYTE,
        description="The largest frame accepted; announced to the other end. A message that fits "
        "into one frame costs about half as much as one that must be split.",
    )
    max_message_size: Annotated[Bytes | None, AT_START] = Field(
        default=None,
        ge=1024,
        description="The largest message accepted; announced on each link. Large messages are "
        "kept on disk, not in memory. null: limited only by the disk.",
    )
    max_connections: Annotated[int, AT_START] = Field(
        default=10000,
        ge=1,
        description="The maximum number of connections of clients and peers at one time, over all "
        "endpoints.",
    )
    max_sessions: Annotated[int, AT_START] = Field(
        default=256,
        ge=1,
        le=65536,
        description="The maximum number of sessions on one connection.",
    )
    max_links: Annotated[int, AT_START] = Field(
        default=1024,
        ge=1,
        le=65536,
        description="The maximum number of links on one session.",
    )
    handshake_timeout: Annotated[Seconds, AT_START] = Field(
        default=15.0,
        gt=0,
        description="A connection must complete TLS, SASL and open within this time.",
    )
    idle_timeout: Annotated[Seconds, AT_START] = Field(
        default=60.0,
        ge=1,
        description="A connection silent for this long is closed. The value is announced, so that "
        "the other end sends empty frames in time.",
    )
    link_prefetch: Annotated[int, AT_START] = Field(
        default=1000,
        ge=1,
        le=100000,
        description="The maximum credit for a link that sends to this broker. Links to a node "
        "with a capacity share its free capacity; credit is renewed when half is used.",
    )
    session_window: Annotated[int, AT_START] = Field(
        default=4096,
        ge=1,
        le=1000000,
        description="The maximum number of transfer frames in flight on a session, in each "
        "direction.",
    )
    unsettled_per_link: Annotated[int, AT_START] = Field(
        default=5000,
        ge=1,
        le=1000000,
        description="The maximum number of unsettled deliveries to one consumer; it gets no more "
        "until it settles some, whatever its credit.",
    )
    resume_timeout: Annotated[Seconds, AT_START] = Field(
        default=3600.0,
        ge=1,
        le=604800,
        description="The maximum time in which a link that was detached, but not closed, can be "
        "resumed. Its client may ask for less. Until then its unsettled messages are kept for it.",
    )
    delivery_timeout: Annotated[Seconds, AT_START] = Field(
        default=300.0,
        ge=5,
        description="A started delivery of which nothing more arrives for this long is ended "
        "together with its link. Frames without message octets do not count.",
    )
    transaction_timeout: Annotated[Seconds, AT_START] = Field(
        default=120.0,
        ge=1,
        description="A client's transaction without activity for this long is rolled back.",
    )
    lock_timeout: Seconds = Field(
        default=0.0,
        ge=0,
        le=604800,
        description="How long a consumer may leave a message without an outcome before the "
        "message is taken back and offered again, as after a failed attempt; it may last up to a "
        "quarter longer. 0: as long as the consumer's link is attached.",
    )
    consumer_timeout: Seconds = Field(
        default=1800.0,
        ge=0,
        le=604800,
        description="How long a consumer of AMQP 0-9-1 may leave a message without acknowledging "
        "it before its channel is closed, unless its queue or a policy says another time; it may "
        "last an eighth longer. 0: for as long as its channel is open.",
    )
    output_buffer: Annotated[Bytes, AT_START] = Field(
        default=MEBIBYTE,
        ge=4096,
        description="The maximum number of bytes that wait for one connection's other end to read "
        "them; above it nothing more is sent.",
    )
    memory: Annotated[Bytes, AT_START] = Field(
        default=512 * MEBIBYTE,
        ge=16 * MEBIBYTE,
        description="The maximum size of messages in transit in memory, over all connections: "
        "received and not yet on disk, or incomplete. Above it publishers get no credit. A "
        "quarter of it is for incomplete deliveries: above that, those of the largest holder go "
        "to disk, or are ended with their links. The same number of bytes again may be with "
        "receivers, consumers and other domains, that have not settled them; from half of it on, "
        "each gets only its share. Messages that queues keep in memory are additional.",
    )
    queue_memory_messages: Annotated[int, AT_START] = Field(
        default=10000,
        ge=1,
        description="The maximum number of messages of one queue in memory; the rest stays on "
        "disk.",
    )
    queue_memory_bytes: Annotated[Bytes, AT_START] = Field(
        default=64 * MEBIBYTE,
        ge=65536,
        description="The maximum size of one queue's messages in memory.",
    )
    max_nodes: Annotated[int, AT_START] = Field(
        default=100000,
        ge=1,
        description="The maximum number of nodes, including those of clients and of the relay.",
    )


class DistributedTransactionSettings(Settings):
    """Branches of XA transactions, prepared and committed through amqp$dtxCoordinator."""

    enabled: Annotated[bool, AT_START] = Field(
        default=False,
        description="Offer distributed transactions. Rules under access with the right manage and "
        "the node amqp$dtxCoordinator say who may use them.",
    )
    max_branches: Annotated[int, AT_START] = Field(
        default=1000,
        ge=1,
        le=10000,
        description="The maximum number of branches at one time, including prepared ones and "
        "those resolved by an operator. One user may have at most as many as remain free.",
    )
    timeout: Annotated[Seconds, AT_START] = Field(
        default=120.0,
        ge=1,
        description="A branch without activity for this long is rolled back, unless it is "
        "prepared or its transaction manager has asked for another time.",
    )
    memory: Annotated[Bytes, AT_START] = Field(
        default=128 * MEBIBYTE,
        ge=65536,
        description="The maximum size of all messages sent in unresolved branches. One user may "
        "hold at most as much as remains free: half of it if alone, a third beside another.",
    )
    warn_after: Annotated[Seconds, AT_START] = Field(
        default=600.0,
        ge=1,
        description="The log warns of branches that have been prepared for this long, and repeats "
        "the warning at this interval. Nobody else gets the messages that they hold.",
    )


class JournalSettings(Settings):
    """The audit journal: the history of every message, without its body, in the folder `journal` of
    the state directory."""

    enabled: Annotated[bool, AT_START] = Field(
        default=True,
        description="Keep a journal.",
    )
    segment_bytes: Bytes = Field(
        default=64 * MEBIBYTE,
        ge=4096,
        description="A segment is closed at this size, and moved to the folder of its day.",
    )
    segment_seconds: Seconds = Field(
        default=60.0,
        gt=0,
        description="A segment is closed at this age. Other programs therefore see the journal "
        "with this delay.",
    )
    keep: Seconds | None = Field(
        default=90 * DAY,
        ge=DAY,
        description="How long closed segments are kept after their day. If no segments were "
        "started for a while, at most seven days of that time count. null: for ever.",
    )
    max_bytes: Bytes | None = Field(
        default=None,
        ge=MEBIBYTE,
        description="The maximum size of closed segments; the oldest are deleted first. null: a "
        "fifth of the file system.",
    )
    stock_seconds: Seconds = Field(
        default=HOUR,
        ge=1,
        description="How often the journal lists the messages present. A message whose arrival "
        "was recorded and whose end was not, and which is not listed, has been lost.",
    )
    on_full: Literal["stop", "count"] = Field(
        default="stop",
        description="What happens while the journal cannot be written. stop: publishers, clients "
        "and peers alike, get no credit; messages already here are still delivered. count: "
        "everything continues, and records that do not fit in memory are lost and counted.",
    )


class TracingSettings(Settings):
    """Export of traces to an OpenTelemetry collector. It needs the extra tracing (pip install
    'amqproute[tracing]') and the journal, from which a thread makes the spans;
    docs/tracing.md."""

    enabled: Annotated[bool, AT_START] = Field(
        default=False,
        description="Record trace contexts in the journal, pass them on to peers with "
        "trace-context: keep, and export spans.",
    )
    endpoint: HttpUrl = Field(
        default="http://127.0.0.1:4318/v1/traces",
        description="Where the collector takes OTLP over HTTP, with the path.",
    )
    headers_file: FilePath | None = Field(
        default=None,
        description="File with headers for the collector, as in Authorization: Bearer TOKEN, one "
        "per line; readable only by the daemon. Needs https, or an address of this machine. null: "
        "none. Read again on reload, as are the files below.",
    )
    trust: Trust = Field(
        default="system",
        description="PEM file with the certificate authorities that the collector's certificate "
        "is checked against, or the word system for those of the machine.",
    )
    certificate: FilePath | None = Field(
        default=None,
        description="PEM file with the certificate chain to show to the collector. null: none.",
    )
    private_key: FilePath | None = Field(
        default=None,
        description="PEM file with its private key, without a passphrase and readable only by the "
        "daemon.",
    )
    timeout: Seconds = Field(
        default=10.0,
        gt=0,
        le=120,
        description="The time for one export.",
    )
    service_name: ShortText = Field(
        default="amqproute",
        description="The service.name of the spans; their service.instance.id is the container-id.",
    )
    sample_failures: bool = Field(
        default=True,
        description="Export the traces of messages that were rejected, expired, returned or "
        "dead-lettered. It is decided when the journal has the end of a message here; one of the "
        "reasons under sample is enough.",
    )
    sample_slow: Seconds | None = Field(
        default=60.0,
        gt=0,
        description="Export those of messages that were here for longer than this. null: not for "
        "that reason.",
    )
    sample_parent: bool = Field(
        default=True,
        description="Export those of messages whose sender records the trace, as the flag in its "
        "traceparent says: clients, and peers with trace-context: keep.",
    )
    sample_rate: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="Export this share of all, as in 0.01 for one in a hundred. The trace id "
        "decides, so that all brokers on the way choose the same messages.",
    )
    max_messages: int = Field(
        default=10000,
        ge=100,
        le=1000000,
        description="The maximum number of messages whose end is awaited, about 4 KiB of memory "
        "each. Of more, the oldest are decided by what has happened so far.",
    )
    max_spans: int = Field(
        default=10000,
        ge=1000,
        le=1000000,
        description="The maximum number of spans that wait for the collector; further ones are "
        "dropped and counted.",
    )


class StatusSettings(Settings):
    """Thresholds of `amqproute status`. docs/status.md lists the checks and their codes."""

    oldest: Seconds = Field(
        default=900.0,
        ge=1,
        description="The age of the oldest message on a node, on a durable subscription, or for a "
        "next hop.",
    )
    oldest_by: dict[str, Seconds | None] = Field(
        default={},
        description="The same for particular nodes and domains, by name or pattern; the longest "
        "match decides. null: any age is accepted, and no receiver is required, as in "
        "{dead-letters: null, batch-*: 1d, slow.example: 2h}.",
    )
    no_consumer: Seconds = Field(
        default=300.0,
        ge=1,
        description="The age of the oldest message on a node without receivers.",
    )
    no_credit: Seconds = Field(
        default=300.0,
        ge=1,
        description="How long messages have waited for a connected peer that gives no credit.",
    )
    certificate: Seconds = Field(
        default=21 * DAY,
        ge=1,
        description="How long before it expires one of our certificates must be renewed.",
    )
    dns: Seconds = Field(
        default=120.0,
        ge=1,
        description="How long messages have waited because the DNS does not answer for their "
        "domain.",
    )


class ManagementSettings(Settings):
    """The HTTP service for operators and their programs; docs/http-api.md describes it. Users and
    rights are those of AMQP: manage on $management, and what an operation takes besides."""

    http: Annotated[EndpointText | None, AT_START] = Field(
        default=None,
        description="Endpoint description of the HTTP service, as in "
        "tcp:9672:interface=127.0.0.1 or unix:/run/amqproute/http.sock. null: no HTTP service.",
    )
    tls: Annotated[Literal["none", "implicit"], AT_START] = Field(
        default="none",
        description="implicit: TLS, with the certificate under tls. none is for loopback and unix "
        "sockets only.",
    )
    client_certificate: Annotated[Literal["none", "optional", "required"], AT_START] = Field(
        default="none",
        description="Whether to ask the client for a certificate. One that is verified is a "
        "log-in, as peer:DOMAIN. Browsers may ask their users which certificate to show.",
    )
    proxy_protocol: Annotated[tuple[Network, ...], FromList] = Field(
        default=(),
        description="The networks of load balancers and reverse proxies that send a PROXY protocol "
        "header, version 1 or 2, on each connection, before TLS. Connections from there must send "
        "it, and the address in it counts wherever addresses matter; from elsewhere the header is "
        "refused because it is not HTTP. X-Forwarded-For is never looked at.",
    )
    max_connections: int = Field(
        default=1000,
        ge=1,
        le=100000,
        description="The maximum number of HTTP connections at one time; further ones are closed "
        "at once.",
    )
    connections_per_address: int = Field(
        default=200,
        ge=1,
        le=100000,
        description="The same for one IPv4 address, or one IPv6 /64.",
    )
    max_event_streams: int = Field(
        default=500,
        ge=1,
        le=100000,
        description="The maximum number of open event streams; one user may have half of them.",
    )
    requests_per_second: float = Field(
        default=100.0,
        gt=0,
        le=100000,
        description="The maximum number of requests per second from one address, and of one user, "
        "after a burst of one second's worth. Further ones get the status 429. New connections "
        "from one address may be twice as many; further ones are closed.",
    )
    max_body: Bytes = Field(
        default=MEBIBYTE,
        ge=1024,
        le=64 * MEBIBYTE,
        description="The largest body of a request.",
    )
    request_timeout: Seconds = Field(
        default=20.0,
        gt=0,
        le=600,
        description="A request must be complete within this time, TLS included.",
    )
    metrics_networks: Annotated[tuple[Network, ...], FromList] = Field(
        default=(),
        description="The networks from which metrics and health checks can be read without a "
        "log-in, as in [127.0.0.1/32, 10.1.0.0/16]. From elsewhere it takes a user or token with "
        "the right manage on $management.",
    )
    metrics_named: int = Field(
        default=500,
        ge=0,
        le=10000,
        description="How many of the configured nodes, and how many of the configured peers, "
        "/metrics names. All others are added up as other; /metrics/detailed names everything.",
    )
    pipeline: FilePath | None = Field(
        default=None,
        description="The warehouse of amqproute pipeline: the dashboard lists and serves the pages "
        "in its folder report, which the daemon's user has to be able to read. null: none.",
    )
    rabbitmq_api: bool = Field(
        default=False,
        description="Whether /api/overview, /api/queues, /api/connections and /api/health/checks "
        "answer in the form of RabbitMQ's HTTP API, to read only, for tools that know only that, "
        "such as Flower and checks for Nagios. They take the right manage on $management.",
    )
    rabbitmq_metrics: bool = Field(
        default=False,
        description="Whether /metrics also has the totals of the broker under the names of "
        "RabbitMQ's metrics (rabbitmq_...), for dashboards made for these.",
    )


class PluginSettings(Settings):
    """Plug-ins, which are found by the entry points of installed distributions."""

    required: Annotated[tuple[ShortText, ...], FromList, AT_START] = Field(
        default=(),
        description="The names of plug-ins without which the daemon does not start, as in "
        "[color]. Others that cannot be used are named in the log, by check and by doctor, and "
        "left out.",
    )


class LogSettings(Settings):
    """The daemon's log."""

    format: Annotated[Literal["auto", "text", "json"], AT_START] = Field(
        default="auto",
        description="text: lines for people. json: one object per line. auto: text; under "
        "systemd, whose journal adds the time, without the time and with the level as the "
        "priority.",
    )
    level: Literal["debug", "info", "warn", "error"] = Field(
        default="info",
        description="The lowest level that is written. Lines that strangers, clients and other "
        "brokers can cause are limited, and the number of suppressed lines is logged every "
        "minute; with debug, everything is written.",
    )
