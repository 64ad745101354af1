# SPDX-License-Identifier: Apache-2.0
"""Settings: what is kept, how much of it, and what is told about it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from amqproute.config.field_types import Bytes, BytesOrPart, EndpointText, Seconds
from amqproute.config.schema_base import AT_START, DAY, HOUR, MEBIBYTE, Settings

__all__ = [
    "DistributedTransactionSettings",
    "JournalSettings",
    "LimitSettings",
    "LogSettings",
    "ManagementSettings",
    "StatusSettings",
    "StoreSettings",
]


class StoreSettings(Settings):
    """When the disk is as good as full: publishers, clients and peers alike, get no credit then;
    nobody is refused and nothing is lost. It goes on by itself when there is room again."""

    min_free: BytesOrPart | None = Field(
        default=None,
        description="The room that stays free on the file system of the state directory, as a size "
        "or as a part of it, as in 5%. Below it publishers get no credit; consumers and the relay "
        "go on. null: 5 % of the file system, but 1GiB at most. 0: no floor.",
    )
    max_bytes: Bytes | None = Field(
        default=None,
        ge=1048576,
        description="What the messages in the store may come to. Above it publishers get no "
        "credit. null: as much as the disk holds.",
    )


class LimitSettings(Settings):
    """Bounds that keep one client from using up the daemon."""

    max_frame_size: Annotated[Bytes, AT_START] = Field(
        default=262144,
        ge=512,
        le=16 * MEBIBYTE,
        description="The largest frame taken; it is announced to the other end. A message that "
        "fits into one frame costs about half of one that has to be cut.",
    )
    max_message_size: Annotated[Bytes | None, AT_START] = Field(
        default=None,
        ge=1024,
        description="The largest message taken; it is announced on each link. Large ones stand on "
        "the disk, not in memory. null: as large as the disk.",
    )
    max_connections: Annotated[int, AT_START] = Field(
        default=10000,
        ge=1,
        description="The most connections of clients and peers at one time, all places together.",
    )
    max_sessions: Annotated[int, AT_START] = Field(
        default=256,
        ge=1,
        le=65536,
        description="The most sessions on one connection.",
    )
    max_links: Annotated[int, AT_START] = Field(
        default=1024,
        ge=1,
        le=65536,
        description="The most links on one session.",
    )
    handshake_timeout: Annotated[Seconds, AT_START] = Field(
        default=15.0,
        gt=0,
        description="A connection has to be through TLS and SASL and opened in this time.",
    )
    idle_timeout: Annotated[Seconds, AT_START] = Field(
        default=60.0,
        ge=1,
        description="A connection that is silent this long is closed; it is announced, and the "
        "other end sends empty frames in time.",
    )
    link_prefetch: Annotated[int, AT_START] = Field(
        default=1000,
        ge=1,
        le=100000,
        description="The most credit given to a link that sends to this broker. Links to a node "
        "with a capacity share what is free there; credit is topped up when half is used.",
    )
    session_window: Annotated[int, AT_START] = Field(
        default=4096,
        ge=1,
        le=1000000,
        description="The transfer frames a session may have under way in each direction.",
    )
    unsettled_per_link: Annotated[int, AT_START] = Field(
        default=5000,
        ge=1,
        le=1000000,
        description="The most deliveries to one consumer that it has not settled; it gets no "
        "more until it does, whatever its credit.",
    )
    resume_timeout: Annotated[Seconds, AT_START] = Field(
        default=3600.0,
        ge=1,
        le=604800,
        description="The longest that a link which is detached, and not closed, may come back. Its "
        "client may ask for less. Until then the messages that it had not settled are kept for it.",
    )
    delivery_timeout: Annotated[Seconds, AT_START] = Field(
        default=300.0,
        ge=5,
        description="A delivery that has begun, and of which nothing more comes for this long, is "
        "ended with its link. Frames without octets of the message do not count.",
    )
    transaction_timeout: Annotated[Seconds, AT_START] = Field(
        default=120.0,
        ge=1,
        description="A client's transaction in which nothing happens for this long is rolled back.",
    )
    lock_timeout: Seconds = Field(
        default=0.0,
        ge=0,
        le=604800,
        description="How long a consumer may leave a message without an outcome before it is taken "
        "back and offered again, as after a failed attempt; it may last a quarter longer. 0: "
        "for as long as its link is attached.",
    )
    output_buffer: Annotated[Bytes, AT_START] = Field(
        default=MEBIBYTE,
        ge=4096,
        description="The octets that may wait for one connection's other end to read; above "
        "this nothing more is sent to it.",
    )
    memory: Annotated[Bytes, AT_START] = Field(
        default=512 * MEBIBYTE,
        ge=16 * MEBIBYTE,
        description="The octets of messages that may be on their way in memory, all connections "
        "together: received and not yet on the disk, or not yet complete. Above it publishers get "
        "no credit. A quarter of it is for deliveries that are not yet complete: above that those "
        "of whoever holds most go to the disk, or are ended with their links. As many octets may "
        "be with receivers, consumers and other domains, that have not settled them; from half of "
        "that on each gets its part. What queues keep in memory comes on top.",
    )
    queue_memory_messages: Annotated[int, AT_START] = Field(
        default=10000,
        ge=1,
        description="The messages of one queue kept in memory; the rest stays on disk.",
    )
    queue_memory_bytes: Annotated[Bytes, AT_START] = Field(
        default=64 * MEBIBYTE,
        ge=65536,
        description="The octets of one queue's messages kept in memory.",
    )
    max_nodes: Annotated[int, AT_START] = Field(
        default=100000,
        ge=1,
        description="The most nodes, those of clients and those made by the relay together.",
    )


class DistributedTransactionSettings(Settings):
    """Branches of XA transactions, prepared and committed at amqp$dtxCoordinator."""

    enabled: Annotated[bool, AT_START] = Field(
        default=False,
        description="Offer them. Who may use them is said under access, with the right manage "
        "and the node amqp$dtxCoordinator.",
    )
    max_branches: Annotated[int, AT_START] = Field(
        default=1000,
        ge=1,
        le=10000,
        description="The most branches at one time, those that are prepared or were resolved by "
        "an operator among them. One user may have at most as many as stay free.",
    )
    timeout: Annotated[Seconds, AT_START] = Field(
        default=120.0,
        ge=1,
        description="A branch in which nothing happens for this long is rolled back, unless it "
        "is prepared or its transaction manager has asked for another time.",
    )
    memory: Annotated[Bytes, AT_START] = Field(
        default=128 * MEBIBYTE,
        ge=65536,
        description="The octets of all messages sent in branches that are not resolved. One user "
        "may hold at most as much as stays free: half of it alone, a third beside another.",
    )
    warn_after: Annotated[Seconds, AT_START] = Field(
        default=600.0,
        ge=1,
        description="The log tells of branches that have been prepared for this long, and again "
        "after as long: what they hold, nobody gets.",
    )


class JournalSettings(Settings):
    """The audit journal: what happened to every message, without its body, in the folder `journal`
    of the state directory."""

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
        description="The same for its age: so old is the journal that other programs see.",
    )
    keep: Seconds | None = Field(
        default=90 * DAY,
        ge=DAY,
        description="How long closed segments are kept after their day; of a time in which none "
        "was begun seven days count at most. null: for ever.",
    )
    max_bytes: Bytes | None = Field(
        default=None,
        ge=MEBIBYTE,
        description="What closed segments may come to; the oldest go first. null: a fifth of the "
        "file system.",
    )
    stock_seconds: Seconds = Field(
        default=HOUR,
        ge=1,
        description="How often the journal says which messages are there; what has begun, has not "
        "ended and is not there is lost.",
    )
    on_full: Literal["stop", "count"] = Field(
        default="stop",
        description="What happens while the journal cannot be written. stop: publishers, clients "
        "and peers alike, get no credit; what is here is still delivered. count: everything goes "
        "on, and records that find no room in memory are lost and counted.",
    )


class StatusSettings(Settings):
    """From when on `amqproute status` calls something not well. What it looks for, and with which
    codes, stands in docs/status.md."""

    oldest: Seconds = Field(
        default=900.0,
        ge=1,
        description="The age of the oldest message on a node, a durable subscription, or for a "
        "next hop.",
    )
    oldest_by: dict[str, Seconds | None] = Field(
        default={},
        description="The same for some of them, by name or pattern of nodes and domains; the "
        "longest that fits decides. null: of any age, and nobody need receive from it, as in "
        "{dead-letters: null, batch-*: 1d, slow.example: 2h}.",
    )
    no_consumer: Seconds = Field(
        default=300.0,
        ge=1,
        description="The age of the oldest message on a node from which nobody receives.",
    )
    no_credit: Seconds = Field(
        default=300.0,
        ge=1,
        description="How long messages wait for a connected peer that gives no credit.",
    )
    certificate: Seconds = Field(
        default=21 * DAY,
        ge=1,
        description="How long before its end a certificate of ours is to be renewed.",
    )
    dns: Seconds = Field(
        default=120.0,
        ge=1,
        description="How long messages wait since the DNS does not answer about their domain.",
    )


class ManagementSettings(Settings):
    """Metrics and health over HTTP. The setting is taken and kept for the release that has it."""

    http: Annotated[EndpointText | None, AT_START] = Field(
        default=None,
        description="Endpoint description of the HTTP service, as in "
        "tcp:9672:interface=127.0.0.1. null: there is none. Reserved.",
    )


class LogSettings(Settings):
    """What the daemon says about itself."""

    format: Annotated[Literal["auto", "text", "json"], AT_START] = Field(
        default="auto",
        description="text: a line for people. json: an object on each line. auto: text, but under "
        "systemd, whose journal has the time, without it and with the level as the priority.",
    )
    level: Literal["debug", "info", "warn", "error"] = Field(
        default="info",
        description="The least important level that is written. What strangers, clients and other "
        "brokers can make the log grow by has a bound, and how many lines were left out is said "
        "every minute; with debug, everything is written.",
    )
