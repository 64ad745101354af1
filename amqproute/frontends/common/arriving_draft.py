# SPDX-License-Identifier: Apache-2.0
"""The draft of a very large message on its way to the disk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

from twisted.python.failure import Failure

from amqproute.body import IBody
from amqproute.frontends.common.client_connection import ClientConnection
from amqproute.frontends.common.draft_share import DraftShare
from amqproute.interfaces import IBodyDraft

__all__ = ["ArrivingDraft"]

MOST_UNWRITTEN: Final = 512 * 1024
"""Octets on their way to the disk beyond which whoever reads a message from elsewhere waits."""


class ArrivingDraft(ABC):
    """A large message whose octets go into a draft of the store, in whatever protocol they come.

    Args:
        connection: its connection.

    Attributes:
        body: the body on the disk, when it is complete.
        failure: the reason why it cannot be kept.
    """

    __slots__ = ("_connection", "_draft", "_go", "_share", "_unwritten", "body", "failure")

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._draft: IBodyDraft | None = None
        self._share = DraftShare(connection)
        self.body: IBody | None = None
        self.failure: Failure | None = None
        self._unwritten = 0
        self._go: Callable[[], None] | None = None

    @property
    def octets(self) -> int:
        """Octets of the message that have arrived and are not on a queue yet."""
        if self._draft is not None:
            return int(self._draft.size)
        return 0 if self.body is None else int(self.body.size)

    def when_written(self, go: Callable[[], None]) -> None:
        """Call once when no more than `MOST_UNWRITTEN` octets wait for the disk."""
        if self._unwritten <= MOST_UNWRITTEN:
            go()
        else:
            self._go = go

    def take(self) -> IBody | None:
        """Return the body, and forget it."""
        body, self.body = self.body, None
        return body

    @property
    @abstractmethod
    def _has_footer(self) -> bool:
        """Whether the message ends with a footer; known at the end."""

    @abstractmethod
    def _notify(self) -> None:
        """Notify the owner that the body is on the disk, or cannot be kept."""

    def _begin(self, before: bytes | None) -> None:
        """Take a place, and begin the draft.

        Args:
            before: the bare message before the body; None if no digest is wanted.

        Raises:
            AmqpError: the store has no room for it.
        """
        self._draft = self._connection.context.broker.draft(self._written, before)
        self._share.take()

    def _append(
        self,
        parts: Sequence[bytes],
        bare: Sequence[bytes | memoryview],
        octets: int,
        is_last: bool,
    ) -> None:
        """Write octets; unwritten ones count as held by the connection."""
        draft = self._draft
        assert draft is not None
        if octets:
            self._connection.hold(octets)
            self._unwritten += octets
            draft.append(parts, bare)
        if is_last:
            draft.finish().addCallbacks(self._finished, self._failed).addErrback(
                self._connection.broken, "taking a large message"
            )

    def _written(self, size: int) -> None:
        self._connection.release(size)
        self._unwritten -= size
        go = self._go
        if go is not None and self._unwritten <= MOST_UNWRITTEN:
            self._go = None
            go()
        self._connection.flush()

    def _finished(self, body: IBody) -> None:
        # The draft refers to us: a file must not wait for the garbage collector.
        self._draft = None
        self._share.release()
        body.has_footer = self._has_footer
        self.body = body
        self._notify()

    def _failed(self, failure: Failure) -> None:
        self._draft = None
        self._share.release()
        self.failure = failure
        self._notify()
