# SPDX-License-Identifier: Apache-2.0
"""Reply codes and texts for what the broker refuses with a condition of AMQP 1.0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from amqproute import conditions
from amqproute.conditions import Condition
from amqproute.errors import AmqpError
from amqproute.wire.amqp09.replies import ReplyCode

__all__ = ["reply_code_of", "reply_text"]

_CODES: Final[Mapping[Condition, ReplyCode]] = {
    conditions.NOT_FOUND: ReplyCode.NOT_FOUND,
    conditions.RESOURCE_DELETED: ReplyCode.NOT_FOUND,
    conditions.UNAUTHORIZED_ACCESS: ReplyCode.ACCESS_REFUSED,
    conditions.NOT_ALLOWED: ReplyCode.ACCESS_REFUSED,
    conditions.RESOURCE_LOCKED: ReplyCode.RESOURCE_LOCKED,
    conditions.PRECONDITION_FAILED: ReplyCode.PRECONDITION_FAILED,
    conditions.INVALID_FIELD: ReplyCode.PRECONDITION_FAILED,
    conditions.DECODE_ERROR: ReplyCode.PRECONDITION_FAILED,
    conditions.RESOURCE_LIMIT_EXCEEDED: ReplyCode.PRECONDITION_FAILED,
    conditions.LINK_MESSAGE_SIZE_EXCEEDED: ReplyCode.CONTENT_TOO_LARGE,
    conditions.NOT_IMPLEMENTED: ReplyCode.NOT_IMPLEMENTED,
}
"""All but the last close the channel only: the others of a connection have no part in it."""


def reply_code_of(error: AmqpError) -> ReplyCode:
    """Return the reply code for an error of the broker."""
    return _CODES.get(error.condition, ReplyCode.INTERNAL_ERROR)


def reply_text(code: ReplyCode, words: str) -> str:
    """Return a reply text that begins with the name of its code, as clients log it."""
    return f"{code.name} - {words}"
