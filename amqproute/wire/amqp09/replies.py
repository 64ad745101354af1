# SPDX-License-Identifier: Apache-2.0
"""Reply codes: the causes of closes and returns (09-ERR-01 to 09-ERR-21)."""

from __future__ import annotations

import enum
from typing import Final

REPLY_TEXT_OCTETS: Final = 255
"""The longest reply text: it is a shortstr."""


class ReplyScope(enum.Enum):
    """The scope of an error."""

    CHANNEL = "channel"
    CONNECTION = "connection"


class ReplyCode(enum.IntEnum):
    """The reply codes of 0-9 and 0-9-1.

    310, 312 and 313 close nothing (I-24): 312 and 313 are used in basic.return.
    """

    REPLY_SUCCESS = 200
    NOT_DELIVERED = 310
    CONTENT_TOO_LARGE = 311
    NO_ROUTE = 312
    NO_CONSUMERS = 313
    CONNECTION_FORCED = 320
    INVALID_PATH = 402
    ACCESS_REFUSED = 403
    NOT_FOUND = 404
    RESOURCE_LOCKED = 405
    PRECONDITION_FAILED = 406
    FRAME_ERROR = 501
    SYNTAX_ERROR = 502
    COMMAND_INVALID = 503
    CHANNEL_ERROR = 504
    UNEXPECTED_FRAME = 505
    RESOURCE_ERROR = 506
    NOT_ALLOWED = 530
    NOT_IMPLEMENTED = 540
    INTERNAL_ERROR = 541

    @property
    def scope(self) -> ReplyScope:
        """The scope of an error with this code, whatever caused it (I-05, I-06)."""
        return ReplyScope.CHANNEL if self in _CHANNEL else ReplyScope.CONNECTION


_CHANNEL: Final = frozenset(
    (
        ReplyCode.NOT_DELIVERED,
        ReplyCode.CONTENT_TOO_LARGE,
        ReplyCode.NO_ROUTE,
        ReplyCode.NO_CONSUMERS,
        ReplyCode.ACCESS_REFUSED,
        ReplyCode.NOT_FOUND,
        ReplyCode.RESOURCE_LOCKED,
        ReplyCode.PRECONDITION_FAILED,
    )
)


def fit_reply_text(text: str) -> str:
    """Return the text, cut to 255 octets of UTF-8 between characters (09-W-63), without NUL."""
    text = text.replace("\0", " ")
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= REPLY_TEXT_OCTETS:
        return encoded.decode()
    return encoded[:REPLY_TEXT_OCTETS].decode("utf-8", "ignore")


__all__ = ["REPLY_TEXT_OCTETS", "ReplyCode", "ReplyScope", "fit_reply_text"]
