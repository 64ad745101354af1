# SPDX-License-Identifier: Apache-2.0
"""Settings: the nodes that are there from the start, and the ways between them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from amqproute.config.field_types import BoundTarget, Bytes, FromList, NodeName, NodeType, Seconds
from amqproute.config.schema_base import MEBIBYTE, Settings

__all__ = ["BindingSettings", "NodeSettings"]


class NodeSettings(Settings):
    """One node that is there from the start."""

    name: NodeName = Field(
        description="The node's name. It starts with a letter a-z or A-Z, a digit or an "
        "underscore and has no at sign in it.",
    )
    type: NodeType = Field(
        default="queue",
        description="queue: each message goes to one consumer, and waits until there is one. "
        "topic: each message goes to every subscriber there is, and to none if there is none; a "
        "durable subscription is a subscriber that collects while it is away.",
    )
    capacity: int | None = Field(
        default=None,
        ge=1,
        description="The most messages the queue holds; a full queue gives producers no more "
        "credit. For a topic: the same for each durable subscription. null: as many as the disk "
        "takes.",
    )
    max_deliveries: int | None = Field(
        default=None,
        ge=1,
        description="After this many failed deliveries a message goes to the dead-letter node, "
        "or is dropped if there is none. null: it is tried for ever.",
    )
    dead_letter: str | None = Field(
        default=None,
        description="The node or alias that takes messages which are rejected, expired, or "
        "failed too often. null: they are dropped.",
    )
    ttl: Seconds | None = Field(
        default=None,
        gt=0,
        description="The longest time a message stays here, even if it brought a longer life "
        "with it. null: as long as the message itself says.",
    )
    priorities: int = Field(
        default=10,
        ge=1,
        le=10,
        description="Queues: how many priorities are told apart. 1: messages leave in the order of "
        "their arrival, whatever priority they have.",
    )
    message_durability_mode: Literal["message", "force-durable", "force-transient"] = Field(
        default="message",
        description="Queues: message: those messages are stored that ask for it. force-durable: "
        "all. force-transient: none has to be there after a restart; what was stored before this "
        "was set still is.",
    )
    durable_on_transient: Literal["accept", "reject"] = Field(
        default="accept",
        description="Queues: whether a force-transient queue takes durable messages, which it "
        "will lose if the daemon ends.",
    )
    duplicate_policy: Literal["global-ids", "all", "off"] = Field(
        default="global-ids",
        description="Queues: a message whose message-id the queue holds already is accepted and "
        "dropped. global-ids: ids that are uuids, binary or strings. all: numbers too, although "
        "many clients count from 1 in each run. off: every message is kept.",
    )
    non_transactional_support: Literal["all", "unsupported", "only"] = Field(
        default="all",
        description="Queues: unsupported: messages with the annotation x-opt-non-transacted are "
        "refused. only: messages that are part of a transaction are refused. all: neither.",
    )
    maximum_destructive_links: int | None = Field(
        default=None,
        ge=0,
        description="Queues: the most consumers at one time; browsers are not counted. 0: it can "
        "be browsed only. null: no limit.",
    )
    excess_destructive_link_policy: Literal["fail", "wait"] = Field(
        default="fail",
        description="Queues: what becomes of one consumer more. fail: it is refused. wait: it "
        "gets nothing until another has gone.",
    )
    archive_expired: bool = Field(
        default=True,
        description="Queues: whether messages whose time is over are taken away, to the "
        "dead-letter node if there is one. false: those that arrive from now on stay and are "
        "delivered late.",
    )
    archive_currently_unreachable: bool = Field(
        default=False,
        description="Queues: a message goes as soon as no link needs it: every browser has "
        "accepted or rejected it or does not select it, and no consumer wants it. While no link "
        "is attached everything goes at once.",
    )
    visibility: Literal["both", "inbound", "outbound"] = Field(
        default="both",
        description="Queues: inbound: clients can only send to it. outbound: they can only "
        "receive from it. Bindings and dead letters pass either way.",
    )
    default_outcomes: Annotated[
        tuple[Literal["accepted", "rejected", "released", "modified"], ...], FromList
    ] = Field(
        default=("released", "accepted", "rejected", "modified"),
        min_length=1,
        description="Queues: what consumers may choose to become of messages they hold when they "
        "vanish. A consumer that does not choose gets released if it is in the list, else the "
        "first.",
    )
    subscriber_buffer: int = Field(
        default=1000,
        ge=1,
        le=1000000,
        description="Topics: the most messages that wait in memory for one subscriber that is not "
        "durable.",
    )
    subscriber_buffer_bytes: Bytes = Field(
        default=8 * MEBIBYTE,
        ge=4096,
        description="Topics: the most octets of these messages.",
    )
    subscriber_full: Literal["drop", "wait"] = Field(
        default="drop",
        description="Topics: what a full buffer does. drop: the oldest message goes and is "
        "counted. wait: producers get no credit until the subscriber has caught up.",
    )
    last_value: int = Field(
        default=0,
        ge=0,
        le=100000,
        description="Topics: so many of the newest messages are kept in memory, and given to each "
        "new subscriber first. Durable ones survive a restart.",
    )
    last_value_key: str | None = Field(
        default=None,
        min_length=1,
        description="Topics: the application property for each value of which last-value messages "
        "are kept, as in symbol for prices. null: for the topic as a whole.",
    )
    unroutable: Literal["accept", "reject"] = Field(
        default="accept",
        description="Topics: what becomes of a message that no subscriber wants. accept: it is "
        "accepted and gone. reject: its sender is told.",
    )


class BindingSettings(Settings):
    """One way from a node to another one, along which this broker passes messages on."""

    source: NodeName = Field(
        description="The node or alias the messages come from. From a topic the target gets a "
        "copy; from a queue messages are moved, in fair shares with the queue's consumers.",
    )
    target: BoundTarget = Field(
        description="The node or alias they go to, or NODE@DOMAIN at another organization. A full "
        "target stops the binding; on a topic it stops the producers.",
    )
    filter: str | None = Field(
        default=None,
        min_length=1,
        max_length=4096,
        description="A selector over the messages, as in color = 'red' AND size > 3. null: all.",
    )
    subject: str | None = Field(
        default=None,
        max_length=255,
        description="Only messages with this subject; * stands for one of its words, # for any "
        "number, as in orders.*.eu or orders.# (words have dots between them). null: all.",
    )
    mode: Literal["copy", "move"] | None = Field(
        default=None,
        description="copy from a topic, move from a queue; it may be left out.",
    )
