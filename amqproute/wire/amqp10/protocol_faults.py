# SPDX-License-Identifier: Apache-2.0
"""Faults of the peer as exceptions within the engine, by their scope.

None of these leaves `amqproute.wire.amqp10.connection`, which turns them into detach, end or
close and into events.
"""

from __future__ import annotations

from amqproute import conditions
from amqproute.conditions import Condition
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.link import Link


class LinkFaultError(Exception):
    """The peer broke a rule within a link: detach it."""

    def __init__(self, link: Link, condition: Condition, description: str) -> None:
        super().__init__(description)
        self.link = link
        self.error = spec.Error(condition=condition, description=description)


class SessionFaultError(Exception):
    """The peer broke a rule of the session: end it."""

    def __init__(self, condition: Condition, description: str) -> None:
        super().__init__(description)
        self.error = spec.Error(condition=condition, description=description)


class ConnectionFaultError(Exception):
    """The peer broke a rule of the connection: close it."""

    def __init__(self, condition: Condition, description: str) -> None:
        super().__init__(description)
        self.error = spec.Error(condition=condition, description=description)


def release_frames(error: BaseException | None) -> None:
    """Release the stack frames of an error that a buffer keeps.

    The buffer raises it again at each call, and the stack frames refer to the buffer: a cycle.
    """
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def too_large(link: Link) -> LinkFaultError:
    """Return the fault of a message larger than its link takes."""
    return LinkFaultError(
        link,
        conditions.LINK_MESSAGE_SIZE_EXCEEDED,
        f"the message has more than {link.max_message_size} octets",
    )


def unattached(handle: int) -> SessionFaultError:
    """Return the fault of a frame for a handle without a link."""
    return SessionFaultError(
        conditions.SESSION_UNATTACHED_HANDLE, f"nothing is attached to handle {handle}"
    )


__all__ = [
    "ConnectionFaultError",
    "LinkFaultError",
    "SessionFaultError",
    "release_frames",
    "too_large",
    "unattached",
]
