# SPDX-License-Identifier: Apache-2.0
"""The options of queues and topics, as management declares them.

They are the settings of a node in the configuration, in the same words; null restores the default.
`tests.config.test_node_options` compares names, types, bounds and choices with these settings.
"""

from __future__ import annotations

from typing import Final

from amqproute.services.value_declaration import ValueDeclaration, ValueType

__all__ = ["NODE_OPTIONS"]

_T = ValueType


def _choice(name: str, does: str, *choices: str) -> ValueDeclaration:
    return ValueDeclaration(name, _T.TEXT, does, is_nullable=True, choices=choices)


def _number(name: str, does: str, least: int, most: int | None = None) -> ValueDeclaration:
    return ValueDeclaration(name, _T.NUMBER, does, is_nullable=True, least=least, most=most)


NODE_OPTIONS: Final = (
    _choice("type", "queue or topic", "queue", "topic"),
    _number("capacity", "the maximum number of messages", 1),
    _number("max-deliveries", "failed deliveries before a message is dead-lettered", 1),
    ValueDeclaration(
        "dead-letter", _T.TEXT, "the node or alias for dead letters", is_nullable=True,
    ),
    ValueDeclaration("ttl", _T.DURATION, "the longest time a message stays", is_nullable=True),
    _number("priorities", "queues: the number of distinct priorities", 1, 10),
    _choice(
        "message-durability-mode", "queues: which messages are stored",
        "message", "force-durable", "force-transient",
    ),
    _choice(
        "durable-on-transient", "queues: what a force-transient queue does with durable messages",
        "accept", "reject",
    ),
    _choice(
        "duplicate-policy", "queues: message-ids by which duplicates are dropped",
        "global-ids", "all", "off",
    ),
    _choice(
        "non-transactional-support", "queues: messages outside of transactions, or in them",
        "all", "unsupported", "only",
    ),
    _number("maximum-destructive-links", "queues: the maximum number of consumers", 0),
    _choice(
        "excess-destructive-link-policy", "queues: what happens to a further consumer",
        "fail", "wait",
    ),
    ValueDeclaration(
        "archive-expired", _T.BOOLEAN, "queues: whether expired messages are removed",
        is_nullable=True,
    ),
    ValueDeclaration(
        "archive-currently-unreachable", _T.BOOLEAN,
        "queues: whether messages that no link needs are removed", is_nullable=True,
    ),
    _choice("visibility", "queues: what clients can do", "both", "inbound", "outbound"),
    ValueDeclaration(
        "default-outcomes", _T.TEXTS,
        "queues: of accepted, rejected, released and modified, those that consumers may choose for "
        "messages they hold when they disconnect", is_nullable=True,
    ),
    _number(
        "subscriber-buffer", "topics: messages that wait for a non-durable subscriber", 1, 1000000
    ),
    ValueDeclaration(
        "subscriber-buffer-bytes", _T.SIZE, "topics: their size", is_nullable=True, least=4096,
    ),
    _choice("subscriber-full", "topics: what happens when this is full", "drop", "wait"),
    _number("last-value", "topics: newest messages kept for new subscribers", 0, 100000),
    ValueDeclaration(
        "last-value-key", _T.TEXT, "topics: the property that they are kept for", is_nullable=True,
        shortest=1,
    ),
    _choice(
        "unroutable", "topics: what happens to a message without a subscriber", "accept", "reject"
    ),
)  # fmt: skip
"""In the order of the configuration."""
