# SPDX-License-Identifier: Apache-2.0
"""Consumers of class message: deliveries by message.transfer, and message.get.

What does not fit into one frame is sent by reference: open, the octets with append, and when all of
them are there transfer and close. The client answers appends as it takes them, so no more than
`MOST_APPENDS` of them are on their way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from amqproute.conditions import Condition
from amqproute.entry import Entry
from amqproute.errors import StoreError
from amqproute.frontends.amqp09.channel_base import ChannelBase
from amqproute.frontends.amqp09.channel_consumer import HeldDelivery
from amqproute.frontends.amqp09.prefetch import PrefetchWindow
from amqproute.frontends.amqp09.tunnel_consumer import Consumer09
from amqproute.interfaces import IBodyReader, ISource
from amqproute.outcomes import ACCEPTED, RELEASED, Outcome, Rejection
from amqproute.translation.body_layout import BodyExtractor, BodyLayout
from amqproute.translation.message_content import DeliveredContent
from amqproute.translation.transfer_fields import DeliveryTimes, transfer_of_basic
from amqproute.wire.amqp09.channel import Channel
from amqproute.wire.amqp09.frame_output import FrameTooLargeError
from amqproute.wire.amqp09.methods import (
    MessageAppend,
    MessageClose,
    MessageEmpty,
    MessageOk,
    MessageOpen,
    MessageReject,
    MessageTransfer,
)
from amqproute.wire.amqp09.replies import ReplyCode
from amqproute.wire.amqp09.shapes import AmqpMethod, InlineBody

if TYPE_CHECKING:
    from amqproute.frontends.amqp09.message_methods import MessageMethods

__all__ = ["MessageConsumer", "MessageGetter", "OutgoingReference"]

MOST_APPENDS: Final = 2
"""Appends of a reference that the client has not answered."""
APPEND_BYTES: Final = 128 * 1024
"""Octets of an append, where frames are large enough."""
APPEND_OVERHEAD: Final = 64
"""Octets of a frame with an append besides its octets, name included."""


class BodySource(Protocol):
    """Where the octets of an outgoing body come from.

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
        reader: of the rest of the message.
        layout: of the body.
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
        name: of the reference.
        source: of the body.
        transfer: sends the transfer, when the body is there.
        ended: called once: with None when all is sent, with a failure when the body cannot be read,
            with the client's `MessageReject` when it does not want it, and with False when the
            channel has gone before.
    """

    def __init__(
        self,
        methods: MessageMethods,
        name: bytes,
        source: BodySource,
        transfer: Callable[[InlineBody], None],
        ended: Callable[[Failure | MessageReject | bool | None], None],
    ) -> None:
        self._methods = methods
        self.name = name
        self._source = source
        self._transfer = transfer
        self._ended: Callable[[Failure | MessageReject | bool | None], None] | None = ended
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

    @property
    def _channel(self) -> Channel:
        return self._methods.channel.channel

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
        if self._ended is None or not self._channel.is_open:
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


class MessageConsumer(Consumer09):
    """A consumer made by message.consume.

    Args:
        owner: its channel.
        source: the queue.
        name: of the queue, as the client wrote it.
        tag: the destination.
        no_ack: what is delivered counts as accepted.
        windows: bounds of what may be unanswered.
        methods: the class on the channel.
    """

    __slots__ = ("_methods", "_transfer")

    def __init__(
        self,
        owner: ChannelBase,
        source: ISource,
        name: str,
        tag: str,
        no_ack: bool,
        windows: Sequence[PrefetchWindow],
        methods: MessageMethods,
    ) -> None:
        super().__init__(owner, source, name, tag, no_ack, windows)
        self._methods = methods
        # Of a very large message that is about to be sent.
        self._transfer: MessageTransfer | None = None

    def class_facts(self) -> dict[str, object]:
        """See `ChannelConsumer.class_facts`."""
        return {**super().class_facts(), "content-class": "message"}

    def capacity(self) -> int:
        """See `IConsumer.capacity`."""
        return 0 if self._methods.outgoing is not None else super().capacity()

    def _is_blocked(self) -> bool:
        return self._methods.outgoing is not None

    def _send_known(self, sent: list[Entry]) -> bool:
        return False  # what is known is the content of another class

    def _is_delivered(self) -> bool:
        # Not while its body is on its way.
        return self._methods.outgoing is None

    def _send(self, entry: Entry, content: DeliveredContent) -> int:
        transfer = self._transfer_of(entry, content)
        channel = self._owner.channel
        tags = channel.unacknowledged
        is_referred = content.rest_size > 0
        if not is_referred:
            transfer.body = InlineBody(b"".join(content.body))
            try:
                channel.send(transfer)
            except FrameTooLargeError:
                is_referred = True
        if self.no_ack:
            tag = tags.issue_settled()
        else:
            tag = tags.issue(HeldDelivery(self, entry, content.size))
        if content.rest_size:
            self._transfer = transfer  # see `_send_body`
        elif is_referred:
            self._refer(entry, tag, transfer, MemoryBodySource(transfer.body.octets))
        elif not self.no_ack:
            self._methods.expect(tag)
        return tag

    def _send_body(self, entry: Entry, tag: int, layout: BodyLayout) -> None:
        transfer, self._transfer = self._transfer, None
        body = entry.message.rest
        assert transfer is not None
        assert body is not None
        self._refer(entry, tag, transfer, StoredBodySource(body.reader(), layout))

    def _note_sent(self, size: int) -> None:
        super()._note_sent(size)
        if any(window.size for window in self._windows):
            # There may be room for one more: a window in octets asks for one at a time.
            self._connection.event_batch.afterwards(self.dispatch)

    def _transfer_of(self, entry: Entry, content: DeliveredContent) -> MessageTransfer:
        ttl = entry.message.header.ttl
        expires = entry.message.properties.absolute_expiry_time
        if ttl is not None:
            times = DeliveryTimes(int(ttl), max(0, entry.expires_ms))
        else:
            times = DeliveryTimes(0, 0 if expires is None else max(0, int(expires)))
        transfer = transfer_of_basic(content.property_octets, times)
        transfer.destination = self.tag
        transfer.exchange = content.exchange
        transfer.routing_key = content.routing_key
        transfer.redelivered |= entry.attempted or entry.delivery_count > 0
        return transfer

    def _refer(self, entry: Entry, tag: int, transfer: MessageTransfer, source: BodySource) -> None:
        methods, channel = self._methods, self._owner.channel

        def send(body: InlineBody) -> None:
            transfer.body = body
            channel.send(transfer)
            if not self.no_ack:
                methods.expect(tag)

        methods.refer(source, send, lambda why: self._referred(entry, tag, why))

    def _referred(self, entry: Entry, tag: int, why: Failure | MessageReject | bool | None) -> None:
        """A message is sent by reference, or cannot be; see `OutgoingReference`."""
        if why is None:
            if self.no_ack and entry in self._held:
                self._drop([entry])
                self._settle([entry], ACCEPTED)
            return
        outcome: Outcome = RELEASED
        if isinstance(why, MessageReject):
            outcome = Rejection()
        elif isinstance(why, Failure):
            outcome = self._unreadable(entry, why)
        if self.no_ack or tag in self._owner.channel.unacknowledged:
            if not self.no_ack:
                self.free([self._held_delivery(tag)])
            elif entry in self._held:
                self._drop([entry])
            self._settle([entry], outcome)
        if isinstance(why, Failure):
            # The client has a reference that nothing will close.
            self._owner.fail(ReplyCode.PRECONDITION_FAILED, "a message cannot be read to its end")

    def restored(self, retirements: Sequence[Any]) -> None:  # Any: as `ChannelConsumer.restored`
        """See `ChannelConsumer.restored`: the client answers these once more."""
        super().restored(retirements)
        self._methods.expect_again([each.delivery[0] for each in retirements])


class MessageGetter(MessageConsumer):
    """Takes one message for message.get, and goes.

    Args:
        owner: its channel.
        source: the queue.
        name: of the queue, as the client wrote it.
        destination: the client's, for the transfer.
        no_ack: what is delivered counts as accepted.
        methods: the class on the channel.
        answer: called with the answer to the get.
    """

    __slots__ = ("_answer",)

    is_momentary = True

    def __init__(
        self,
        owner: ChannelBase,
        source: ISource,
        name: str,
        destination: str,
        no_ack: bool,
        methods: MessageMethods,
        answer: Callable[[AmqpMethod], None],
    ) -> None:
        super().__init__(owner, source, name, destination, no_ack, (), methods)
        self._answer: Callable[[AmqpMethod], None] | None = answer

    def capacity(self) -> int:
        """See `IConsumer.capacity`."""
        return min(1, super().capacity()) if self._answer is not None else 0

    def exhausted(self) -> None:
        """See `IConsumer.exhausted`: the queue is empty."""
        if self._behind or self._tunnels:
            return  # a very large one, which is being looked at
        answer, self._answer = self._answer, None
        if answer is not None:
            answer(MessageEmpty())
            self._leave()

    def _send(self, entry: Entry, content: DeliveredContent) -> int:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer(MessageOk())
        tag = super()._send(entry, content)
        self._leave()
        return tag

    def _leave(self) -> None:
        self.stop()
        self._owner.answered_get(self)
        self._connection.flush()

    def detach(self, condition: Condition, words: str) -> None:
        """See `NodeEndpoint.detach`: the queue has gone, and has no message."""
        self._behind.clear()
        self.exhausted()
