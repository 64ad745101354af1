# SPDX-License-Identifier: Apache-2.0
"""One message on its way out by reference: open, appends, transfer, close.

The client answers appends as it takes them, so no more than `MOST_APPENDS` of them are on their
way, and what is in memory of a body is bounded by that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from amqproute.errors import StoreError
from amqproute.frontends.amqp09.channel_base import ChannelBase
from amqproute.interfaces import IBodyReader
from amqproute.translation.body_layout import BodyExtractor, BodyLayout
from amqproute.wire.amqp09.methods import MessageAppend, MessageClose, MessageOpen, MessageReject
from amqproute.wire.amqp09.shapes import AmqpMethod, InlineBody

__all__ = [
    "BodySource",
    "Ended",
    "MemoryBodySource",
    "OutgoingReference",
    "ReferenceChannel",
    "StoredBodySource",
]

MOST_APPENDS: Final = 2
"""Appends of a reference that the client has not answered."""
APPEND_BYTES: Final = 128 * 1024
"""Octets of an append, where frames are large enough."""
APPEND_OVERHEAD: Final = 64
"""Octets of a frame with an append besides its octets, name included."""


Ended = Callable[[Failure | MessageReject | bool | None], None]
"""Takes how a reference has ended; see `OutgoingReference`."""


class ReferenceChannel(Protocol):
    """The class message on a channel, as far as references need it."""

    @property
    def channel(self) -> ChannelBase:
        """The channel."""

    def ask(self, method: AmqpMethod, answered: Callable[[AmqpMethod], None]) -> None:
        """Send a request; ``answered`` is called with the answer."""


class BodySource(Protocol):
    """Source of the octets of an outgoing body.

    Attributes:
        left: octets that were not asked for.
    """

    @property
    def left(self) -> int:
        """Octets that were not asked for."""

    def read(self, size: int) -> Deferred[bytes]:
        """Return a Deferred of the next octets, at least one."""

    def close(self) -> None:
        """Stop reading."""


class MemoryBodySource:
    """A body in memory.

    Args:
        octets: all of it.
    """

    def __init__(self, octets: bytes) -> None:
        self._octets = octets
        self._at = 0

    @property
    def left(self) -> int:
        """See `BodySource.left`."""
        return len(self._octets) - self._at

    def read(self, size: int) -> Deferred[bytes]:
        """See `BodySource.read`."""
        start, self._at = self._at, min(len(self._octets), self._at + size)
        return succeed(self._octets[start : self._at])

    def close(self) -> None:
        """See `BodySource.close`."""
        self._at = len(self._octets)


class StoredBodySource:
    """The body within the sections of a very large message.

    Args:
        reader: the reader of the rest of the message.
        layout: the layout of the body.
    """

    def __init__(self, reader: IBodyReader, layout: BodyLayout) -> None:
        self._reader = reader
        self._extractor = BodyExtractor(layout)
        self._kept = b""

    @property
    def left(self) -> int:
        """See `BodySource.left`."""
        return len(self._kept) + self._extractor.left

    def read(self, size: int) -> Deferred[bytes]:
        """See `BodySource.read`."""
        if self._kept:
            part, self._kept = self._kept[:size], self._kept[size:]
            return succeed(part)
        reading: Deferred[bytes] = self._reader.read(size)
        return reading.addCallback(self._has_read, size)

    def _has_read(self, octets: bytes, size: int) -> bytes | Deferred[bytes]:
        if not octets:
            raise StoreError("the rest of the message is shorter than it was")
        self._kept = b"".join(self._extractor.feed(octets))
        return self.read(size)

    def close(self) -> None:
        """See `BodySource.close`."""
        self._reader.close()


class OutgoingReference:
    """A message that is sent by reference.

    Args:
        methods: the class on the channel.
        name: the name of the reference.
        source: the source of the body.
        transfer: sends the transfer, when the body is there.
        ended: called once: with None when all is sent, with a failure when the body cannot be read,
            with the client's `MessageReject` when it does not want it, and with False when the
            channel has gone before, or it was withdrawn.
    """

    def __init__(
        self,
        methods: ReferenceChannel,
        name: bytes,
        source: BodySource,
        transfer: Callable[[InlineBody], None],
        ended: Ended,
    ) -> None:
        self._methods = methods
        self.name = name
        self._source = source
        self._transfer = transfer
        self._ended: Ended | None = ended
        self._appends = 0
        self._is_reading = False
        room = methods.channel.channel.largest_method - APPEND_OVERHEAD - len(name)
        self._part = min(APPEND_BYTES, room)

    def begin(self) -> None:
        """Open the reference; the octets follow when the client has answered."""
        self._methods.ask(MessageOpen(reference=self.name), self._opened)

    def end(self, why: Failure | MessageReject | bool | None) -> None:
        """Say how it has ended; see ``ended``."""
        ended, self._ended = self._ended, None
        if ended is not None:
            self._source.close()
            ended(why)

    def withdraw(self) -> None:
        """Close the reference without the transfer: nobody is to get it any more."""
        if self._ended is not None:
            self._close()
            self.end(False)

    def _opened(self, answer: AmqpMethod) -> None:
        if isinstance(answer, MessageReject):
            self.end(answer)
        else:
            self._go()

    def _appended(self, answer: AmqpMethod) -> None:
        self._appends -= 1
        if isinstance(answer, MessageReject) and self._ended is not None:
            self._close()
            self.end(answer)
        else:
            self._go()

    def _go(self) -> None:
        if self._ended is None or self._is_reading or self._appends >= MOST_APPENDS:
            return
        if not self._source.left:
            if not self._appends:
                self._transfer(InlineBody(self.name, is_reference=True))
                self._close()
                self.end(None)
            return
        self._is_reading = True
        self._source.read(self._part).addCallback(self._has_read).addErrback(self._failed)

    def _has_read(self, octets: bytes) -> None:
        self._is_reading = False
        if self._ended is None or not self._methods.channel.channel.is_open:
            return
        self._appends += 1
        self._methods.ask(MessageAppend(reference=self.name, bytes=octets), self._appended)
        self._methods.channel.connection.flush()
        self._go()

    def _failed(self, failure: Failure) -> None:
        self._is_reading = False
        self.end(failure)

    def _close(self) -> None:
        self._methods.ask(MessageClose(reference=self.name), lambda _: None)
