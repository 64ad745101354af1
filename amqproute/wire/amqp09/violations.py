# SPDX-License-Identifier: Apache-2.0
"""A peer's possible violations of the protocol, and the replies: one table.

The scope of an error is that of its reply code (`replies.ReplyCode.scope`). If 0-9 and 0-9-1 answer
differently the table has two codes. A silent rule ends the connection without a method: after a
broken frame the peer may not understand one.

Before connection.open every violation is silent in both versions (09-W-65): no close handshake
exists yet.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from amqproute.errors import AmqprouteError
from amqproute.wire.amqp09.replies import ReplyCode
from amqproute.wire.amqp09.versions import ProtocolVersion


class ViolationRule(NamedTuple):
    """The effect of a violation.

    Attributes:
        code: the reply code in 0-9, and in 0-9-1 unless it has its own.
        code_0_9_1: the reply code in 0-9-1, if it differs.
        silent: whether the connection ends without a method, in both versions.
        silent_0_9_1: the same, in 0-9-1 only.
    """

    code: ReplyCode
    code_0_9_1: ReplyCode | None = None
    silent: bool = False
    silent_0_9_1: bool = False


class Violation(enum.Enum):
    """A peer's violation, as far as the engine can tell."""

    FRAME_END = enum.auto()
    FRAME_TYPE = enum.auto()
    FRAME_SIZE = enum.auto()
    HEARTBEAT_FRAME = enum.auto()
    MALFORMED_FRAME = enum.auto()
    ILLEGAL_VALUE = enum.auto()
    UNKNOWN_METHOD = enum.auto()
    UNKNOWN_CLASS = enum.auto()
    METHOD_OUT_OF_ORDER = enum.auto()
    UNASKED_REPLY = enum.auto()
    CONNECTION_METHOD_ON_CHANNEL = enum.auto()
    CHANNEL_ZERO = enum.auto()
    CHANNEL_NOT_OPEN = enum.auto()
    CHANNEL_IN_USE = enum.auto()
    CHANNEL_ABOVE_MAX = enum.auto()
    CONTENT_INTERRUPTED = enum.auto()
    CONTENT_UNEXPECTED = enum.auto()
    CONTENT_CLASS = enum.auto()
    CONTENT_WEIGHT = enum.auto()
    BODY_TOO_LONG = enum.auto()
    CONTENT_TOO_LARGE = enum.auto()
    CONTENTS_BEGUN = enum.auto()
    UNKNOWN_DELIVERY_TAG = enum.auto()
    CONFIRM_WITH_TRANSACTION = enum.auto()
    NO_TRANSACTION = enum.auto()
    BRANCH_AFTER_WORK = enum.auto()
    RECOVER_TRANSACTED = enum.auto()
    CONSUMER_TAG_IN_USE = enum.auto()
    CONSUMER_OF_ANOTHER_CHANNEL = enum.auto()
    NO_QUEUE_DECLARED = enum.auto()
    MECHANISM_NOT_OFFERED = enum.auto()
    FRAME_MAX_TOO_LOW = enum.auto()
    TUNED_ABOVE_OFFER = enum.auto()
    FRUITLESS_FRAMES = enum.auto()

    @property
    def rule(self) -> ViolationRule:
        """The row of the table."""
        return RULES[self]

    def code(self, version: ProtocolVersion) -> ReplyCode:
        """Return the reply code in a version."""
        rule = RULES[self]
        if version is ProtocolVersion.V0_9_1 and rule.code_0_9_1 is not None:
            return rule.code_0_9_1
        return rule.code

    def is_silent(self, version: ProtocolVersion) -> bool:
        """Return whether the connection ends without a method."""
        rule = RULES[self]
        return rule.silent or (rule.silent_0_9_1 and version is ProtocolVersion.V0_9_1)


RULES: Final[dict[Violation, ViolationRule]] = {
    # 09-W-12, 09-W-14: 0-9-1 drops the socket.
    Violation.FRAME_END: ViolationRule(ReplyCode.FRAME_ERROR, silent_0_9_1=True),
    Violation.FRAME_TYPE: ViolationRule(ReplyCode.FRAME_ERROR, silent_0_9_1=True),
    Violation.FRAME_SIZE: ViolationRule(ReplyCode.FRAME_ERROR),  # 09-W-11, 09-CONN-18
    Violation.HEARTBEAT_FRAME: ViolationRule(ReplyCode.FRAME_ERROR),  # 09-W-43
    Violation.MALFORMED_FRAME: ViolationRule(ReplyCode.FRAME_ERROR),  # 09-ERR-14
    Violation.ILLEGAL_VALUE: ViolationRule(ReplyCode.SYNTAX_ERROR),  # 09-ERR-15, 09-W-20, -33, -34
    Violation.UNKNOWN_METHOD: ViolationRule(ReplyCode.NOT_IMPLEMENTED),  # 09-ERR-20, 09-X-111
    # A class that only 0-9 has, on a connection of 0-9-1.
    Violation.UNKNOWN_CLASS: ViolationRule(ReplyCode.COMMAND_INVALID),
    Violation.METHOD_OUT_OF_ORDER: ViolationRule(ReplyCode.COMMAND_INVALID),  # 09-X-18
    Violation.UNASKED_REPLY: ViolationRule(ReplyCode.COMMAND_INVALID),
    # 09-W-15
    Violation.CONNECTION_METHOD_ON_CHANNEL: ViolationRule(ReplyCode.COMMAND_INVALID),
    Violation.CHANNEL_ZERO: ViolationRule(ReplyCode.CHANNEL_ERROR),
    Violation.CHANNEL_NOT_OPEN: ViolationRule(ReplyCode.CHANNEL_ERROR),  # 09-CHAN-24
    Violation.CHANNEL_IN_USE: ViolationRule(ReplyCode.CHANNEL_ERROR),  # 09-CHAN-02
    Violation.CHANNEL_ABOVE_MAX: ViolationRule(ReplyCode.NOT_ALLOWED),  # 09-CONN-17
    # 09-W-26
    Violation.CONTENT_INTERRUPTED: ViolationRule(
        ReplyCode.COMMAND_INVALID, ReplyCode.UNEXPECTED_FRAME
    ),
    Violation.CONTENT_UNEXPECTED: ViolationRule(
        ReplyCode.COMMAND_INVALID, ReplyCode.UNEXPECTED_FRAME
    ),
    Violation.CONTENT_CLASS: ViolationRule(ReplyCode.FRAME_ERROR),  # 09-W-23
    Violation.CONTENT_WEIGHT: ViolationRule(ReplyCode.NOT_IMPLEMENTED),  # 09-W-22
    Violation.BODY_TOO_LONG: ViolationRule(ReplyCode.FRAME_ERROR),  # 09-W-25
    Violation.CONTENT_TOO_LARGE: ViolationRule(ReplyCode.CONTENT_TOO_LARGE),  # 09-ERR-05
    Violation.CONTENTS_BEGUN: ViolationRule(ReplyCode.RESOURCE_ERROR),  # 09-ERR-18
    Violation.UNKNOWN_DELIVERY_TAG: ViolationRule(ReplyCode.PRECONDITION_FAILED),  # 09-X-01, -71
    Violation.CONFIRM_WITH_TRANSACTION: ViolationRule(ReplyCode.PRECONDITION_FAILED),  # 09-W-72
    Violation.NO_TRANSACTION: ViolationRule(ReplyCode.PRECONDITION_FAILED),  # 09-TX-05, 09-DTX-03
    Violation.BRANCH_AFTER_WORK: ViolationRule(ReplyCode.PRECONDITION_FAILED),  # 09-DTX-04
    Violation.RECOVER_TRANSACTED: ViolationRule(ReplyCode.PRECONDITION_FAILED),  # 09-BASIC-61
    Violation.CONSUMER_TAG_IN_USE: ViolationRule(ReplyCode.NOT_ALLOWED),  # 09-X-60
    Violation.CONSUMER_OF_ANOTHER_CHANNEL: ViolationRule(ReplyCode.NOT_ALLOWED),  # 09-X-61
    # 09-X-43, -50, -52, -59, -70
    Violation.NO_QUEUE_DECLARED: ViolationRule(ReplyCode.NOT_ALLOWED, ReplyCode.NOT_FOUND),
    Violation.MECHANISM_NOT_OFFERED: ViolationRule(
        ReplyCode.ACCESS_REFUSED, silent=True
    ),  # 09-X-09
    Violation.FRAME_MAX_TOO_LOW: ViolationRule(ReplyCode.NOT_ALLOWED),  # 09-X-12
    Violation.TUNED_ABOVE_OFFER: ViolationRule(ReplyCode.NOT_ALLOWED, silent=True),  # 09-X-13, -14
    Violation.FRUITLESS_FRAMES: ViolationRule(ReplyCode.RESOURCE_ERROR),
}


class ViolationError(AmqprouteError):
    """The peer broke a rule. Raised within the engine and never out of it.

    Attributes:
        violation: the row of the table.
        text: the violation as text.
    """

    def __init__(self, violation: Violation, text: str) -> None:
        super().__init__(text)
        self.violation = violation
        self.text = text


__all__ = ["RULES", "Violation", "ViolationError", "ViolationRule"]
