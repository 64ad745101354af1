# SPDX-License-Identifier: Apache-2.0
"""Reception of a very large message: the part in memory, and the draft in the store.

The engine passes it in parts (`amqproute.wire.amqp10.engine_events.PartsReceived`). The first one
has the sections before the body, which suffice to refuse the message at once; the rest of a refused
message is dropped as it arrives. Otherwise the rest goes into a draft of the store. Octets that the
draft has not written yet are bounded twice: the session's window opens only as parts are written,
and beyond `FrontendLimits.uncommitted_bytes` nothing is read at all.

When the draft is on the disk the delivery is put on its target like any other, with the sections
before the body as its payload. Later deliveries of the same link wait for that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from amqproute.errors import AmqpError, Unresolved
from amqproute.frontends.common.arriving_draft import ArrivingDraft
from amqproute.frontends.common.client_connection import ClientConnection
from amqproute.frontends.common.partial_deliveries import HEAD_BYTES
from amqproute.interfaces import ITarget
from amqproute.message import Message
from amqproute.values import Origin
from amqproute.wire.amqp10 import engine_events as ev
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.body_scanner import BodyScanner, head_size
from amqproute.wire.amqp10.link import Delivery

__all__ = ["LargeMessageReceiver", "MessageReader"]


class MessageReader(Protocol):
    """The link of a large message.

    Attributes:
        origin: its sender.
        target: its `ITarget`.
    """

    origin: Origin
    target: ITarget

    def message_of(self, delivery: Delivery) -> Message:
        """Return the message of a delivery; raise `AmqpError` if it is refused."""


class _Coming:
    """The missing rest of a message, for the rehearsal."""

    number = 0
    size = 0
    has_footer = False


class LargeMessageReceiver(ArrivingDraft):
    """One very large delivery.

    Args:
        connection: the connection.
        link: the link.
        delivery: the delivery.
        ready: called with this, once, when the rest is on the disk or cannot be kept; not if it
            was abandoned.

    Attributes:
        is_dropped: whether the rest is dropped.
    """

    __slots__ = (
        "_is_foreign",
        "_link",
        "_ready",
        "_scanner",
        "_session",
        "delivery",
        "is_dropped",
    )

    def __init__(
        self,
        connection: ClientConnection,
        link: MessageReader,
        delivery: Delivery,
        ready: Callable[[LargeMessageReceiver], None],
    ) -> None:
        super().__init__(connection)
        self._link = link
        self._ready = ready
        self._session = delivery.link.session
        self._scanner = BodyScanner()
        self._is_foreign = bool(delivery.message_format)  # it has no sections (M-09)
        self.delivery = delivery
        self.is_dropped = False

    def __repr__(self) -> str:
        return f"<LargeMessageReceiver of {self.delivery!r} {self._draft!r}>"

    @property
    def _has_footer(self) -> bool:
        return self._scanner.has_footer

    def _notify(self) -> None:
        self._ready(self)

    def begin(self, parts: list[bytes]) -> list[bytes]:
        """Take the first parts: separate and check the sections before the body.

        Returns:
            The octets after these sections.

        Raises:
            NoCapacityError: there are too many large messages on their way.
            AmqpError: the message will be refused.
        """
        first, rest = _split(parts)
        size = 0 if self._is_foreign else head_size(first, HEAD_BYTES)
        self.delivery.payload = first[:size]
        before = self._rehearse()
        self._share.check()
        self._begin(before)
        return [first[size:], *rest]

    def _rehearse(self) -> bytes | None:
        """Refuse a message now that would be refused in the end.

        Returns:
            The bare message before the body, as far as it is known now; None if no digest is
            wanted.
        """
        delivery, link = self.delivery, self._link
        delivery.rest = _Coming()
        message = link.message_of(delivery)
        batch = self._connection.context.broker.begin()
        came = batch.came
        batch.is_rehearsal = True
        try:
            if type(delivery.state) is not spec.TransactionalState:
                link.origin.tag = delivery.tag
                link.target.put(message, batch, link.origin)
        except Unresolved:
            pass  # its domain is looked up when the message is complete
        finally:
            batch.abandon()
        if came is None:
            return None
        if came:
            # Its address, and where to reply to, may have been supplied or written anew.
            message = came[0][1] if isinstance(came[0][1], Message) else came[0][1].message
        return message.encoded[message.bare_from :]

    def add(self, event: ev.PartsReceived) -> None:
        """Take parts.

        Raises:
            AmqpError: the message is refused.
        """
        parts = event.parts
        size = sum(map(len, parts))
        if self.is_dropped or event.is_aborted:
            self._session.took(size)
            self.abandon()
            return
        try:
            if self._draft is None:
                parts = self.begin(parts)
            kept = sum(map(len, parts))
            self._share.grow(kept)
            bare: Sequence[bytes | memoryview] = parts
            if not self._is_foreign:
                bare = self._scanner.follow(parts)
                if event.is_last:
                    self._scanner.finish()
        except AmqpError:
            self._session.took(size)
            self.abandon()
            raise
        self._session.took(size - kept)
        if event.is_last:
            self.delivery.rest = self
        self._append(parts, bare, kept, event.is_last)

    def abandon(self) -> None:
        """Drop the octets that have arrived."""
        self.is_dropped = True
        if self._draft is not None:
            self._draft.abandon()
            if self.delivery.rest is not self:  # else it is complete, and its draft ends as one
                self._share.release()

    def _written(self, size: int) -> None:
        self._session.took(size)
        super()._written(size)


def _split(parts: list[bytes]) -> tuple[bytes, list[bytes]]:
    """Return the first octets of a message in one piece, `HEAD_BYTES` or all, and what follows."""
    size = 0
    for count, part in enumerate(parts, 1):
        size += len(part)
        if size >= HEAD_BYTES:
            return b"".join(parts[:count]), parts[count:]
    return b"".join(parts), []
