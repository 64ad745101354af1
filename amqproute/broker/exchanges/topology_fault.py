# SPDX-License-Identifier: Apache-2.0
"""Faults of declarations, bindings and deletions, independent of the protocol.

Each frontend has a table from these kinds to its own codes: AMQP 0-9 and 0-9-1 differ in several
of them (09: part 4.4), and 1.0 has conditions.
"""

from __future__ import annotations

import enum

from amqproute.errors import AmqprouteError


class TopologyFaultKind(enum.Enum):
    """Why exchanges, queues and bindings stay as they are."""

    NO_EXCHANGE = "no such exchange"
    NO_QUEUE = "no such queue"
    NO_BINDING = "no such binding"
    RESERVED_EXCHANGE_NAME = "a new exchange whose name begins with amq."
    RESERVED_QUEUE_NAME = "a new queue whose name begins with amq."
    ILLEGAL_NAME = "a name with characters or a length that it may not have"
    DEFAULT_EXCHANGE = "the default exchange used by name, changed or deleted"
    DEFAULT_EXCHANGE_BINDING = "an explicit binding to the default exchange"
    PREDECLARED_EXCHANGE = "a predeclared exchange deleted"
    UNKNOWN_TYPE = "an exchange type that nobody knows"
    PLUGIN_TYPE = "an exchange type that is a plug-in elsewhere"
    OTHER_TYPE = "an exchange declared again with another type"
    OTHER_EXCHANGE = "an exchange declared again with other properties"
    OTHER_QUEUE = "a queue declared again with other properties"
    LOCKED = "a queue that belongs to another connection"
    INVALID_ARGUMENT = "an argument with a value that it cannot have"
    UNSUPPORTED_QUEUE_TYPE = "a queue type that is not offered"
    IN_USE = "a deletion with if-unused of something in use"
    NOT_EMPTY = "a deletion with if-empty of a queue with messages"
    INTERNAL_EXCHANGE = "a publish to an internal exchange"
    INTERNAL_BINDING = "a queue bound to an internal exchange"
    TRANSIENT_BINDING = "a durable queue bound to a transient exchange"
    INVALID_HEADER = "a header with a value that routing cannot use"
    INVALID_PROPERTY = "a property with a value that it cannot have"
    LIMIT = "more exchanges or bindings than there may be"


class TopologyFault(AmqprouteError):
    """A request that changes nothing.

    Attributes:
        kind: which rule it breaks.
        text: a description of the fault, with names, for the client's operator.
    """

    def __init__(self, kind: TopologyFaultKind, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


__all__ = ["TopologyFault", "TopologyFaultKind"]
