# SPDX-License-Identifier: Apache-2.0
"""Consumers of class message: deliveries by message.transfer, and message.get.

What does not fit into one frame is sent by reference (`reference_output`): open, the octets with
append, and when all of them are there transfer and close.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final, Protocol

from twisted.python.failure import Failure

from amqproute.broker.local_transaction import Retirement
from amqproute.conditions import Condition
from amqproute.content_class import ContentClass
from amqproute.entry import Entry
from amqproute.frontends.amqp09.channel_base import ChannelBase
from amqproute.frontends.amqp09.channel_consumer import HeldDelivery
from amqproute.frontends.amqp09.prefetch import PrefetchWindow
from amqproute.frontends.amqp09.reference_output import (
    BodySource,
    Ended,
    MemoryBodySource,
    OutgoingReference,
    StoredBodySource,
)
from amqproute.frontends.amqp09.tunnel_consumer import Consumer09
from amqproute.interfaces import ISource
from amqproute.outcomes import RELEASED, Rejection
from amqproute.translation.body_layout import BodyLayout
from amqproute.translation.message_content import DeliveredContent
from amqproute.translation.transfer_fields import DeliveryTimes, transfer_of_basic
from amqproute.wire.amqp09.frame_output import FrameTooLargeError
from amqproute.wire.amqp09.methods import (
    MessageEmpty,
    MessageOk,
    MessageReject,
    MessageTransfer,
)
from amqproute.wire.amqp09.shapes import AmqpMethod, InlineBody

__all__ = ["MessageChannel", "MessageConsumer", "MessageGetter"]


_LONGEST_REFERENCE: Final = InlineBody(bytes(64), is_reference=True)
"""With a name that is longer than any of ours."""


class MessageChannel(Protocol):
    """The class message on a channel, as its consumers see it."""

    @property
    def outgoing(self) -> OutgoingReference | None:
        """Message being sent by reference; None for none."""

    def expect(self, tag: int) -> None:
        """A transfer was sent that the client has to answer."""

    def expect_again(self, tags: Sequence[int]) -> None:
        """A transaction was rolled back: the client answers these once more."""

    def refer(
        self,
        consumer: MessageConsumer,
        source: BodySource,
        transfer: Callable[[InlineBody], None],
        ended: Ended,
    ) -> None:
        """Send a message by reference."""

    def withdraw(self, consumer: MessageConsumer) -> None:
        """Send no more of what a consumer is getting by reference."""


class MessageConsumer(Consumer09):
    """A consumer made by message.consume.

    Args:
        owner: its channel.
        source: the queue.
        name: the name of the queue, as the client wrote it.
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
        methods: MessageChannel,
    ) -> None:
        super().__init__(owner, source, name, tag, no_ack, windows)
        self._methods = methods
        # Of a very large message that is about to be sent.
        self._transfer: MessageTransfer | None = None

    def class_facts(self) -> dict[str, object]:
        """See `ChannelConsumer.class_facts`."""
        return {**super().class_facts(), "content-class": "message"}

    def stop(self) -> None:
        """See `ChannelConsumer.stop`: what is on its way by reference is sent no further."""
        was_over = self._is_over
        super().stop()
        if not was_over and not self.is_momentary:
            self._methods.withdraw(self)

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
        if is_referred:
            self._check_fields(transfer)
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

    def _check_fields(self, transfer: MessageTransfer) -> None:
        """Check that a transfer can be sent whose body is a reference.

        Raises:
            FrameTooLargeError: its fields do not fit into a frame.
        """
        body, transfer.body = transfer.body, _LONGEST_REFERENCE
        self._owner.channel.check_fits(transfer)
        transfer.body = body

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

        methods.refer(self, source, send, lambda why: self._referred(entry, tag, why))

    def _referred(self, entry: Entry, tag: int, why: Failure | MessageReject | bool | None) -> None:
        """A message is sent by reference, or cannot be; see `OutgoingReference`."""
        if why is None:
            self._sent_whole(entry)
        else:
            is_rejected = isinstance(why, MessageReject)
            self._not_sent(entry, tag, Rejection() if is_rejected else RELEASED, why)

    def restored(self, retirements: Sequence[Retirement]) -> None:
        """See `ChannelConsumer.restored`: the client answers these once more."""
        super().restored(retirements)
        self._methods.expect_again([each.delivery[0] for each in retirements])


class MessageGetter(MessageConsumer):
    """Takes one message for message.get, and goes.

    Args:
        owner: its channel.
        source: the queue.
        name: the name of the queue, as the client wrote it.
        destination: the client's, for the transfer.
        no_ack: what is delivered counts as accepted.
        methods: the class on the channel.
        answer: called with the answer to the get.
    """

    __slots__ = ("_answer",)

    is_momentary = True
    takes: ClassVar[frozenset[ContentClass]] = frozenset((ContentClass.BASIC,))

    def __init__(
        self,
        owner: ChannelBase,
        source: ISource,
        name: str,
        destination: str,
        no_ack: bool,
        methods: MessageChannel,
        answer: Callable[[AmqpMethod], None],
    ) -> None:
        super().__init__(owner, source, name, destination, no_ack, (), methods)
        self._answer: Callable[[AmqpMethod], None] | None = answer

    def capacity(self) -> int:
        """See `IConsumer.capacity`."""
        return min(1, super().capacity()) if self._answer is not None else 0

    def exhausted(self) -> None:
        """See `IConsumer.exhausted`: the queue is empty."""
        if self._behind:
            return  # a very large one, which is being looked at
        answer, self._answer = self._answer, None
        if answer is not None:
            answer(MessageEmpty())
            self._leave()

    def _send(self, entry: Entry, content: DeliveredContent) -> int:
        self._check_fields(self._transfer_of(entry, content))
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
