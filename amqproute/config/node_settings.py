# SPDX-License-Identifier: Apache-2.0
"""Settings for nodes, and for the bindings between them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from amqproute.config.field_types import (
    BoundTarget,
    Bytes,
    FromList,
    NodeName,
    NodeType,
    PolicyName,
    RegularExpression,
    Seconds,
    ShortText,
)
from amqproute.config.schema_base import MEBIBYTE, Settings

__all__ = ["BindingSettings", "NodeSettings", "PolicyDefinitionSettings", "PolicySettings"]


class NodeSettings(Settings):
    """One node that exists from the start."""

    name: NodeName = Field(
        description="The node's name. It starts with a letter a-z or A-Z, a digit or an "
        "underscore and contains no at sign.",
    )
    type: NodeType = Field(
        default="queue",
        description="queue: each message goes to one consumer, and waits until there is one. "
        "topic: each message goes to every current subscriber, and is dropped if there is none; a "
        "durable subscription also collects messages while its subscriber is away.",
    )
    capacity: int | None = Field(
        default=None,
        ge=1,
        description="The maximum number of messages in the queue; a full queue gives producers no "
        "more credit. For a topic: the same for each durable subscription. null: limited only by "
        "the disk.",
    )
    max_deliveries: int | None = Field(
        default=None,
        ge=1,
        description="After this many failed deliveries a message goes to the dead-letter node, or "
        "is dropped if there is none. null: delivery is tried for ever.",
    )
    dead_letter: str | None = Field(
        default=None,
        description="The node or alias for messages that are rejected, expire, or fail too often. "
        "null: they are dropped.",
    )
    ttl: Seconds | None = Field(
        default=None,
        gt=0,
        description="The longest time a message stays here, even if its own ttl is longer. null: "
        "only the message's own ttl counts.",
    )
    priorities: int = Field(
        default=10,
        ge=1,
        le=10,
        description="Queues: the number of distinct priorities. 1: messages leave in order of "
        "arrival, whatever their priority.",
    )
    message_durability_mode: Literal["message", "force-durable", "force-transient"] = Field(
        default="message",
        description="Queues: message: durable messages are stored. force-durable: all are. "
        "force-transient: none needs to survive a restart; messages stored before this was set "
        "remain stored.",
    )
    durable_on_transient: Literal["accept", "reject"] = Field(
        default="accept",
        description="Queues: whether a force-transient queue accepts durable messages, which it "
        "loses when the daemon ends.",
    )
    duplicate_policy: Literal["global-ids", "all", "off"] = Field(
        default="global-ids",
        description="Queues: a message whose message-id is already in the queue is accepted and "
        "dropped. global-ids: ids that are uuids, binary or strings. all: numbers too, although "
        "many clients count from 1 in each run. off: every message is kept.",
    )
    non_transactional_support: Literal["all", "unsupported", "only"] = Field(
        default="all",
        description="Queues: unsupported: messages with the annotation x-opt-non-transacted are "
        "refused. only: messages in a transaction are refused. all: neither.",
    )
    maximum_destructive_links: int | None = Field(
        default=None,
        ge=0,
        description="Queues: the maximum number of consumers at one time; browsers do not count. "
        "0: the queue can only be browsed. null: no limit.",
    )
    excess_destructive_link_policy: Literal["fail", "wait"] = Field(
        default="fail",
        description="Queues: what happens to an additional consumer. fail: it is refused. wait: "
        "it gets nothing until another has left.",
    )
    archive_expired: bool = Field(
        default=True,
        description="Queues: whether expired messages are removed, to the dead-letter node if "
        "there is one. false: messages that arrive from now on stay and are delivered late.",
    )
    archive_currently_unreachable: bool = Field(
        default=False,
        description="Queues: a message is removed as soon as no link needs it: every browser has "
        "accepted or rejected it or does not select it, and no consumer wants it. While no link "
        "is attached, every message is removed at once.",
    )
    visibility: Literal["both", "inbound", "outbound"] = Field(
        default="both",
        description="Queues: inbound: clients can only send to it. outbound: clients can only "
        "receive from it. Bindings and dead letters pass either way.",
    )
    default_outcomes: Annotated[
        tuple[Literal["accepted", "rejected", "released", "modified"], ...], FromList
    ] = Field(
        default=("released", "accepted", "rejected", "modified"),
        min_length=1,
        description="Queues: the outcomes that consumers may choose for unsettled messages when "
        "they disconnect. A consumer that does not choose gets released if it is in the list, "
        "else the first.",
    )
    subscriber_buffer: int = Field(
        default=1000,
        ge=1,
        le=1000000,
        description="Topics: the maximum number of messages that wait in memory for one "
        "non-durable subscriber.",
    )
    subscriber_buffer_bytes: Bytes = Field(
        default=8 * MEBIBYTE,
        ge=4096,
        description="Topics: the maximum size of these messages, in bytes.",
    )
    subscriber_full: Literal["drop", "wait"] = Field(
        default="drop",
        description="Topics: what happens when this buffer is full. drop: the oldest message is "
        "dropped and counted. wait: producers get no credit until the subscriber has caught up.",
    )
    last_value: int = Field(
        default=0,
        ge=0,
        le=100000,
        description="Topics: this many of the newest messages are kept in memory, and delivered "
        "first to each new subscriber. Durable ones survive a restart.",
    )
    last_value_key: str | None = Field(
        default=None,
        min_length=1,
        description="Topics: the application property that last-value messages are kept for, "
        "value by value, as in symbol for prices. null: they are kept for the topic as a whole.",
    )
    unroutable: Literal["accept", "reject"] = Field(
        default="accept",
        description="Topics: what happens to a message that no subscriber wants. accept: it is "
        "accepted and dropped. reject: it is rejected.",
    )


class BindingSettings(Settings):
    """A binding, along which this broker passes messages from one node to another."""

    source: NodeName = Field(
        description="The node or alias that messages come from. From a topic the target gets a "
        "copy; from a queue messages are moved, shared fairly with the queue's consumers.",
    )
    target: BoundTarget = Field(
        description="The node or alias that messages go to, or NODE@DOMAIN at another "
        "organization. A full target stops the binding; on a topic it stops the producers.",
    )
    filter: str | None = Field(
        default=None,
        min_length=1,
        max_length=4096,
        description="A selector for messages, as in color = 'red' AND size > 3. null: all.",
    )
    subject: str | None = Field(
        default=None,
        max_length=255,
        description="Only messages with this subject; * stands for one of its words, # for any "
        "number, as in orders.*.eu or orders.# (words are separated by dots). null: all.",
    )
    mode: Literal["copy", "move"] | None = Field(
        default=None,
        description="copy from a topic, move from a queue; may be omitted.",
    )


class PolicyDefinitionSettings(Settings):
    """Values of a policy, in the names and units of the arguments of AMQP 0-9-1 without x-."""

    message_ttl: int | None = Field(
        default=None,
        ge=0,
        le=3650 * 24 * 3600 * 1000,
        description="Queues: the longest time a message stays, in milliseconds.",
    )
    expires: int | None = Field(
        default=None,
        ge=1,
        le=0xFFFFFFFF,
        description="Queues that clients have declared: one that nobody uses is deleted after "
        "so many milliseconds.",
    )
    max_length: int | None = Field(
        default=None,
        ge=0,
        description="Queues: the most messages that wait.",
    )
    max_length_bytes: int | None = Field(
        default=None,
        ge=0,
        description="Queues: the most octets of messages that wait.",
    )
    overflow: Literal["drop-head", "reject-publish", "reject-publish-dlx"] | None = Field(
        default=None,
        description="Queues: what happens above max-length or max-length-bytes. drop-head: the "
        "oldest messages go. reject-publish: new ones are refused. reject-publish-dlx: the same, "
        "and they go to the dead-letter-exchange. null: drop-head.",
    )
    dead_letter_exchange: ShortText | None = Field(
        default=None,
        description="Queues: the exchange to which messages are published that are rejected, "
        "expired, pushed out, or failed too often.",
    )
    dead_letter_routing_key: ShortText | None = Field(
        default=None,
        description="Queues: the routing key they get. null: each keeps its own.",
    )
    dead_letter_strategy: Literal["at-most-once", "at-least-once"] | None = Field(
        default=None,
        description="Queues: taken from definitions of RabbitMQ. Dead letters are moved in one "
        "commit here, and are never lost.",
    )
    delivery_limit: int | None = Field(
        default=None,
        ge=-1,
        description="Queues: how often a message may come back before it is a dead letter; -1: "
        "any number of times.",
    )
    consumer_timeout: int | None = Field(
        default=None,
        ge=0,
        description="Queues: how many milliseconds a consumer of AMQP 0-9-1 may keep a message "
        "without acknowledging it before its channel is closed. 0: any time.",
    )
    queue_mode: Literal["default", "lazy"] | None = Field(
        default=None,
        description="Queues: taken from definitions of RabbitMQ; it changes nothing here.",
    )
    alternate_exchange: ShortText | None = Field(
        default=None,
        description="Exchanges: the exchange that gets what no binding matches.",
    )


class PolicySettings(Settings):
    """Settings of all queues or exchanges whose names match a pattern."""

    name: PolicyName = Field(
        description="The policy's name; there may be an operator policy of the same name.",
    )
    pattern: RegularExpression = Field(
        description="A regular expression. The policy applies to names in which it is found; "
        "^ and $ stand for the beginning and the end of the name, as in ^orders[.].",
    )
    apply_to: Literal["queues", "classic_queues", "quorum_queues", "exchanges", "all"] = Field(
        default="all",
        description="What it applies to: queues, those that clients have declared as classic (or "
        "without a type) or quorum queues, exchanges, or queues and exchanges.",
    )
    priority: int = Field(
        default=0,
        gt=-(1 << 31),
        lt=1 << 31,
        description="Of several policies that fit a name the one with the highest priority "
        "applies, and the others do not.",
    )
    operator: bool = Field(
        default=False,
        description="false: where a queue's arguments, or its options, say something too, the "
        "lower number is in force, and of the rest what they say. true: an operator policy, "
        "which bounds all of them: it can say message-ttl, expires, max-length, max-length-bytes "
        "and delivery-limit, and the lowest is in force.",
    )
    virtual_host: str = Field(
        default="/",
        description="The virtual host whose exchanges and queues it is for.",
    )
    definition: PolicyDefinitionSettings = Field(
        description=PolicyDefinitionSettings.__doc__,
    )
