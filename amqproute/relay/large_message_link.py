# SPDX-License-Identifier: Apache-2.0
"""Very large messages to a peer: on a separate session and link, one after the other.

On the common link a very large message would delay everything behind it, and on the common session
it would share the window. So the first one causes a second link to be attached, to the same target
and of the same stream, for the rest of the connection; messages on the first link overtake
meanwhile. If a peer refuses the second link, the first one is used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Protocol

from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.broker.entry_removal import DAMAGED_WORDS
from amqproute.broker.large_message_sender import LargeMessageSender
from amqproute.entry import Entry
from amqproute.errors import AmqpError, MessageDamaged
from amqproute.outcomes import FAILED, UNREADABLE, ErrorDetails, Outcome, Rejection
from amqproute.values import TAG_OCTETS
from amqproute.wire.amqp10.link import Delivery, Link, OutgoingParts

__all__ = ["LargeMessageCarrier", "LargeMessageLink"]


class LargeMessageCarrier(Protocol):
    """A session with a link for very large messages.

    Attributes:
        link: the link of the other messages.
        is_paused: whether the transport has enough to write for now.
    """

    link: Link | None
    is_paused: bool

    def attach_large(self) -> Link | None:
        """Attach the second link; return None if the connection is not open."""

    def head_of(self, entry: Entry) -> tuple[bytes, ...]:
        """Return the buffers that precede the rest of an entry's message on the next hop."""

    def settle_here(self, entry: Entry, outcome: Outcome) -> None:
        """Settle an entry with an outcome that the peer has not given.

        Args:
            entry: an entry whose message cannot be sent or read.
            outcome: an outcome, or `UNREADABLE`.
        """

    def flush(self) -> None:
        """Write pending output."""


class LargeMessageLink:
    """Sends the very large messages of one connection.

    Args:
        carrier: the session that they belong to.

    Attributes:
        link: the second link, once requested; the first one if the peer refused it.
        waiting: entries not yet started.
    """

    log = Logger()

    __slots__ = (
        "_carrier",
        "_is_attached",
        "_is_over",
        "_large_message",
        "link",
        "waiting",
    )

    def __init__(self, carrier: LargeMessageCarrier) -> None:
        self._carrier = carrier
        self._large_message: LargeMessageSender[OutgoingParts] | None = None
        self._is_attached = False
        self._is_over = False
        self.link: Link | None = None
        self.waiting: deque[Entry] = deque()

    def __repr__(self) -> str:
        return (
            f"<LargeMessageLink {self.link!r} waiting={len(self.waiting)} {self._large_message!r}>"
        )

    # -- state ---------------------------------------------------------------------------------

    @property
    def is_own(self) -> bool:
        """Whether there is a second link."""
        return self.link is not None and self.link is not self._carrier.link

    @property
    def in_flight(self) -> int:
        """The number of entries without an outcome, on this link only."""
        link = self.link
        if link is None or link is self._carrier.link:
            return len(self.waiting)
        return len(self.waiting) + len(link.unsettled)

    def deliveries(self) -> list[Delivery]:
        """Return the unsettled deliveries on the second link."""
        link = self.link if self.is_own else None
        return list(link.unsettled.values()) if link is not None else []

    @property
    def progress(self) -> object:
        """A value that changes with each progress; None without anything in flight."""
        large_message = self._large_message
        if large_message is not None:
            return large_message.entry.id, large_message.outgoing.missing
        return next((each.tag for each in self.deliveries()), None)

    # -- sending -------------------------------------------------------------------------------

    def add(self, entry: Entry) -> None:
        """Send an entry's message when its turn comes."""
        self.waiting.append(entry)
        if self.link is None:
            self.link = self._carrier.attach_large()
        self.go()

    def attached(self, is_refused: bool) -> None:
        """Handle the peer's answer to the second attach."""
        if is_refused:
            self.link = self._carrier.link
        self._is_attached = True
        self.go()

    def go(self) -> None:
        """Continue sending, if possible; call this whenever it may have become possible."""
        if self._large_message is not None:
            self._large_message.go()
        while self.waiting and self._large_message is None and self._can_begin():
            self._begin(self.waiting.popleft())

    def _can_begin(self) -> bool:
        link = self.link
        return (
            self._is_attached
            and not self._is_over
            and link is not None
            and link.sendable > 0
            and not self._carrier.is_paused
        )

    def _begin(self, entry: Entry) -> None:
        link = self.link
        assert link is not None
        try:
            head = self._carrier.head_of(entry)
            rest = entry.message.rest
            assert rest is not None
            size = sum(map(len, head)) + rest.size
            tag = entry.id.to_bytes(TAG_OCTETS, "big")
            outgoing = link.send_parts(size, tag, context=entry)
        except AmqpError as error:
            details = ErrorDetails(error.condition, error.description)
            self._carrier.settle_here(entry, Rejection(details))
            return
        entry.attempted = True
        entry.message.forget()
        self._large_message = LargeMessageSender(
            entry, outgoing, head, self._is_paused, self._carrier.flush, self._large_message_sent
        )
        self._carrier.flush()

    def _is_paused(self) -> bool:
        return self._carrier.is_paused

    def _large_message_sent(
        self, large_message: LargeMessageSender[OutgoingParts], failure: Failure | None
    ) -> None:
        self._large_message = None
        if failure is not None:
            outcome: Outcome = UNREADABLE
            if isinstance(failure.value, MessageDamaged):
                line = large_message.entry.line
                self.log.error(
                    DAMAGED_WORDS,
                    entry=large_message.entry.id,
                    node=line.key,
                    why=str(failure.value),
                )
            else:
                outcome = FAILED
                self.log.failure(
                    "message {entry} cannot be read", failure, entry=large_message.entry.id
                )
            large_message.outgoing.delivery.context = None
            self._carrier.settle_here(large_message.entry, outcome)
        self.go()

    def end(self) -> Iterable[Entry]:
        """Stop sending; return the entries that were never started."""
        self._is_over = True
        large_message, self._large_message = self._large_message, None
        if large_message is not None:
            large_message.stop()
        waiting, self.waiting = self.waiting, deque()
        return waiting
