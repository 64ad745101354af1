# SPDX-License-Identifier: Apache-2.0
"""Every error condition that the daemon may send, by its name in the standard.

A condition is a symbol; `Condition` is a `str`, so that it compares equal to what a decoder
yields and encodes as a symbol without a look-up. The sections are those of OASIS AMQP 1.0.
"""

from __future__ import annotations

from typing import Final


class Condition(str):
    """The symbol of one error condition (part 2 §2.8.14)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<Condition {self}>"


# Part 2 §2.8.15: amqp-error, any scope.
INTERNAL_ERROR: Final = Condition("amqp:internal-error")
NOT_FOUND: Final = Condition("amqp:not-found")
UNAUTHORIZED_ACCESS: Final = Condition("amqp:unauthorized-access")
DECODE_ERROR: Final = Condition("amqp:decode-error")
RESOURCE_LIMIT_EXCEEDED: Final = Condition("amqp:resource-limit-exceeded")
NOT_ALLOWED: Final = Condition("amqp:not-allowed")
INVALID_FIELD: Final = Condition("amqp:invalid-field")
NOT_IMPLEMENTED: Final = Condition("amqp:not-implemented")
RESOURCE_LOCKED: Final = Condition("amqp:resource-locked")
PRECONDITION_FAILED: Final = Condition("amqp:precondition-failed")
RESOURCE_DELETED: Final = Condition("amqp:resource-deleted")
ILLEGAL_STATE: Final = Condition("amqp:illegal-state")
FRAME_SIZE_TOO_SMALL: Final = Condition("amqp:frame-size-too-small")

# Part 2 §2.8.16: connection-error.
CONNECTION_FORCED: Final = Condition("amqp:connection:forced")
CONNECTION_FRAMING_ERROR: Final = Condition("amqp:connection:framing-error")
CONNECTION_REDIRECT: Final = Condition("amqp:connection:redirect")

# Part 2 §2.8.17: session-error.
SESSION_WINDOW_VIOLATION: Final = Condition("amqp:session:window-violation")
SESSION_ERRANT_LINK: Final = Condition("amqp:session:errant-link")
SESSION_HANDLE_IN_USE: Final = Condition("amqp:session:handle-in-use")
SESSION_UNATTACHED_HANDLE: Final = Condition("amqp:session:unattached-handle")

# Part 2 §2.8.18: link-error.
LINK_DETACH_FORCED: Final = Condition("amqp:link:detach-forced")
LINK_TRANSFER_LIMIT_EXCEEDED: Final = Condition("amqp:link:transfer-limit-exceeded")
LINK_MESSAGE_SIZE_EXCEEDED: Final = Condition("amqp:link:message-size-exceeded")
LINK_REDIRECT: Final = Condition("amqp:link:redirect")
LINK_STOLEN: Final = Condition("amqp:link:stolen")

# Part 4 §4.5.8: transaction-error.
TRANSACTION_UNKNOWN_ID: Final = Condition("amqp:transaction:unknown-id")
TRANSACTION_ROLLBACK: Final = Condition("amqp:transaction:rollback")
TRANSACTION_TIMEOUT: Final = Condition("amqp:transaction:timeout")
