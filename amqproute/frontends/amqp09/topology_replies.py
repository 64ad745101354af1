# SPDX-License-Identifier: Apache-2.0
"""Reply codes for what can be wrong with exchanges, queues and bindings (09: part 4.4).

Where the versions differ, 0-9 is answered by its reference and 0-9-1 as RabbitMQ answers, whose
codes its clients expect. The scope of an error is that of its code.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple

from amqproute.broker.exchanges.topology_fault import TopologyFaultKind
from amqproute.wire.amqp09.replies import ReplyCode
from amqproute.wire.amqp09.versions import ProtocolVersion

Kind = TopologyFaultKind


class TopologyMethod(enum.Enum):
    """Parts of the request that decide the answer."""

    DELETE = "delete"
    UNBIND = "unbind"
    OTHER = "other"


class TopologyReply(NamedTuple):
    """The codes for a fault.

    Attributes:
        code: in 0-9, and in 0-9-1 unless it has its own.
        code_0_9_1: in 0-9-1, where it differs.
        allowed_0_9_1: 0-9-1 has no such rule.
    """

    code: ReplyCode
    code_0_9_1: ReplyCode | None = None
    allowed_0_9_1: bool = False


TOPOLOGY_REPLIES: Final[Mapping[TopologyFaultKind, TopologyReply]] = {
    Kind.NO_EXCHANGE: TopologyReply(ReplyCode.NOT_FOUND),  # 09-X-27, -32, -45, -48, I-06
    Kind.NO_QUEUE: TopologyReply(ReplyCode.NOT_FOUND),  # 09-X-36, -44, -47, -51, -53
    Kind.NO_BINDING: TopologyReply(ReplyCode.NOT_FOUND, allowed_0_9_1=True),  # 09-QUEUE-33, I-06
    Kind.RESERVED_EXCHANGE_NAME: TopologyReply(ReplyCode.ACCESS_REFUSED),  # 09-X-24
    Kind.RESERVED_QUEUE_NAME: TopologyReply(
        ReplyCode.NOT_ALLOWED, ReplyCode.ACCESS_REFUSED
    ),  # 09-X-35
    Kind.ILLEGAL_NAME: TopologyReply(ReplyCode.PRECONDITION_FAILED),  # 09-X-114, -115
    Kind.DEFAULT_EXCHANGE: TopologyReply(ReplyCode.ACCESS_REFUSED),  # 09-EXCH-06
    Kind.PREDECLARED_EXCHANGE: TopologyReply(ReplyCode.ACCESS_REFUSED),
    # 09-X-26. RabbitMQ's federation links ask for a type of their own, and take fanout on a 503.
    Kind.UNKNOWN_TYPE: TopologyReply(ReplyCode.COMMAND_INVALID),
    Kind.PLUGIN_TYPE: TopologyReply(ReplyCode.COMMAND_INVALID),
    Kind.OTHER_TYPE: TopologyReply(ReplyCode.NOT_ALLOWED, ReplyCode.PRECONDITION_FAILED),  # 09-X-25
    Kind.OTHER_EXCHANGE: TopologyReply(ReplyCode.PRECONDITION_FAILED),
    Kind.OTHER_QUEUE: TopologyReply(ReplyCode.PRECONDITION_FAILED),
    Kind.LOCKED: TopologyReply(ReplyCode.RESOURCE_LOCKED),  # I-06
    Kind.INVALID_ARGUMENT: TopologyReply(ReplyCode.PRECONDITION_FAILED),
    Kind.UNSUPPORTED_QUEUE_TYPE: TopologyReply(ReplyCode.PRECONDITION_FAILED),
    Kind.IN_USE: TopologyReply(ReplyCode.PRECONDITION_FAILED),  # 09-EXCH-21, 09-X-54
    Kind.NOT_EMPTY: TopologyReply(ReplyCode.PRECONDITION_FAILED),  # 09-X-55
    Kind.INTERNAL_EXCHANGE: TopologyReply(ReplyCode.ACCESS_REFUSED),  # 09-X-66
    Kind.DEFAULT_EXCHANGE_BINDING: TopologyReply(ReplyCode.ACCESS_REFUSED),
    Kind.INTERNAL_BINDING: TopologyReply(ReplyCode.NOT_ALLOWED, allowed_0_9_1=True),  # 09-QUEUE-24
    Kind.TRANSIENT_BINDING: TopologyReply(ReplyCode.NOT_ALLOWED, allowed_0_9_1=True),  # 09-QUEUE-21
    Kind.INVALID_HEADER: TopologyReply(ReplyCode.PRECONDITION_FAILED),
    Kind.INVALID_PROPERTY: TopologyReply(ReplyCode.PRECONDITION_FAILED),
    Kind.LIMIT: TopologyReply(ReplyCode.RESOURCE_ERROR),  # 09-CONN-22
}

_GONE_ALREADY: Final = frozenset((Kind.NO_EXCHANGE, Kind.NO_QUEUE, Kind.NO_BINDING))


def topology_reply(
    kind: TopologyFaultKind,
    version: ProtocolVersion,
    method: TopologyMethod = TopologyMethod.OTHER,
) -> ReplyCode | None:
    """Return the reply code for a fault.

    Args:
        kind: what is wrong.
        version: the version of the connection.
        method: what was asked for: in 0-9-1 what is gone already is deleted and unbound with
            success.

    Returns:
        The code; None where this version has no objection, and the method succeeds.
    """
    row = TOPOLOGY_REPLIES[kind]
    if version is ProtocolVersion.V0_9:
        # An explicit binding to the default exchange is permitted there.
        return None if kind is Kind.DEFAULT_EXCHANGE_BINDING else row.code
    if row.allowed_0_9_1 or (method is not TopologyMethod.OTHER and kind in _GONE_ALREADY):
        return None
    return row.code if row.code_0_9_1 is None else row.code_0_9_1


__all__ = ["TOPOLOGY_REPLIES", "TopologyMethod", "TopologyReply", "topology_reply"]
