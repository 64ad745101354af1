# SPDX-License-Identifier: Apache-2.0
"""What publishes of one run share: where they go, and how their messages begin."""

from __future__ import annotations

from collections.abc import Sequence

from amqproute.interfaces import ITarget
from amqproute.message import Message
from amqproute.translation.content_message import data_beginning

__all__ = ["PublishPlan"]


class PublishPlan:
    """The way of publishes with one method and equal properties.

    It holds for one run of publishes, within which nothing changes that decides about them: rights,
    exchanges, queues. Their bodies become one data section each.

    Args:
        targets: queues, or one way to another organization.
        first: the message of the first of them, as it was admitted.
        size: octets of its body.

    Attributes:
        targets: see above.
    """

    __slots__ = ("_before", "_first", "_head", "_size", "targets")

    def __init__(self, targets: Sequence[ITarget], first: Message, size: int) -> None:
        self.targets = targets
        self._first = first
        self._size = size
        body_at = len(first.encoded) - size
        self._before = first.encoded[:body_at]
        self._head = first.encoded[: first.offsets.body_start]

    def message(self, body: bytes) -> Message:
        """Return the message of another one of them, by its body."""
        size = len(body)
        if size == self._size:
            return self._first.twin(self._before + body)
        return Message(b"".join((self._head, data_beginning(size), body)))
