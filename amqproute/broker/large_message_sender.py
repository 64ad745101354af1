# SPDX-License-Identifier: Apache-2.0
"""Sending of a very large message from the store to a link, in parts.

In memory there are a part that the transport has not taken yet and the one behind it, whatever the
message's size. The next part is read while the last one goes out, and appended only when the
transport takes more and nothing of the delivery waits for the peer's window: so whatever else the
connection has to say goes out between two parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from twisted.python.failure import Failure

from amqproute.entry import Entry
from amqproute.errors import StoreError

__all__ = ["PART_BYTES", "LargeMessageSender", "OutgoingRest"]

PART_BYTES: Final = 256 * 1024
"""Octets read at a time: what others on the connection may have to wait for."""


class SentDelivery(Protocol):
    """A delivery that is being sent."""

    @property
    def settled(self) -> bool:
        """Whether nobody will send another state of it."""


class OutgoingRest(Protocol):
    """The rest of a delivery that has begun, as the engine of a link takes it."""

    @property
    def delivery(self) -> SentDelivery:
        """The delivery."""

    @property
    def missing(self) -> int:
        """Octets that are still to be appended."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended: sent to the end, aborted, or gone with its link."""

    @property
    def is_clear(self) -> bool:
        """Whether nothing of it waits for the receiver: more can be appended."""

    def append(self, parts: Sequence[bytes]) -> None:
        """Send more octets."""

    def abort(self) -> None:
        """End it; the receiver discards its part of it."""


C = TypeVar("C", bound=OutgoingRest)


class LargeMessageSender(Generic[C]):
    """Sends the rest of one message.

    Args:
        entry: the entry of the message.
        outgoing: the delivery that was begun for it.
        head: the buffers that precede the rest.
        is_paused: whether the transport has enough for now; `go` has to be called when it has not
            any more, and when the peer's window opens.
        flush: has what was appended written.
        ended: called with this once, when all has been handed over, or with a failure when the
            rest cannot be read; not after `stop`.
    """

    __slots__ = (
        "_ended",
        "_flush",
        "_is_paused",
        "_is_presettled",
        "_is_reading",
        "_next",
        "_reader",
        "entry",
        "is_over",
        "outgoing",
    )

    def __init__(
        self,
        entry: Entry,
        outgoing: C,
        head: Sequence[bytes],
        is_paused: Callable[[], bool],
        flush: Callable[[], None],
        ended: Callable[[LargeMessageSender[C], Failure | None], None],
    ) -> None:
        self.entry = entry
        self.outgoing = outgoing
        self.is_over = False
        self._is_paused = is_paused
        self._flush = flush
        self._ended = ended
        rest = entry.message.rest
        assert rest is not None
        self._reader = rest.reader()
        self._is_presettled = outgoing.delivery.settled
        self._is_reading = False
        self._next: list[Any] = []
        outgoing.append(head)
        self._read()

    def __repr__(self) -> str:
        return f"<LargeMessageSender {self.entry!r} left={self._reader.left}>"

    def go(self) -> None:
        """Send on, if something can be sent."""
        if self.is_over:
            return
        outgoing = self.outgoing
        if outgoing.is_over or (outgoing.delivery.settled and not self._is_presettled):
            # The link has gone, or the peer has settled it before the end: it wants no more.
            outgoing.abort()
            self._end(None)
        elif self._next and outgoing.is_clear and not self._is_paused():
            part, self._next = self._next, []
            outgoing.append(part)
            self._flush()
            if outgoing.missing:
                self._read()
            else:
                self._end(None)

    def stop(self) -> None:
        """Send nothing more: the link is gone, or the daemon stops."""
        if not self.is_over:
            self.is_over = True
            self._next = []
            self._reader.close()
            self.outgoing.abort()

    def _read(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._reader.read(PART_BYTES).addCallbacks(self._has_read, self._has_failed)

    def _has_read(self, part: bytes) -> None:
        self._is_reading = False
        if self.is_over:
            return
        if not part and self.outgoing.missing:
            short = StoreError("the rest of the message is shorter than it was")
            self._has_failed(Failure(short))  # type: ignore[no-untyped-call] # Twisted's
            return
        self._next = [part]
        self.go()

    def _has_failed(self, failure: Failure) -> None:
        self._is_reading = False
        if not self.is_over:
            self.outgoing.abort()
            self._flush()
            self._end(failure)

    def _end(self, failure: Failure | None) -> None:
        self.is_over = True
        self._next = []
        self._reader.close()
        self._ended(self, failure)
