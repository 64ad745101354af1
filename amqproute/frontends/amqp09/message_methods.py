# SPDX-License-Identifier: Apache-2.0
"""The class message on a channel: transfers both ways, inline and by reference (09: part 1.14).

Its methods are in frames of type 1 and have no numbers, so each side answers in the order in which
the other one has asked (`ordered_answers`). A reference that the client opens is a content of the
staging: named by its checkpoints, found again by any channel of the same user, and gone with the
channel without one. One reference is open for each channel and direction.

A transfer by reference is published when the reference is closed. The answer to it comes then, and
so do the answers to all that came behind it: a client that waits for each answer appends first, and
sends the transfer before the close.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, cast

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from amqproute.broker.queue import Queue
from amqproute.errors import (
    AmqpError,
    NotFound,
    PreconditionFailed,
    ResourceLimitExceeded,
    StoreError,
)
from amqproute.frontends.amqp09.class_methods import ClassMethods
from amqproute.frontends.amqp09.class_publish import ClassPublish
from amqproute.frontends.amqp09.message_consumer import MessageConsumer, MessageGetter
from amqproute.frontends.amqp09.ordered_answers import OrderedAnswer, OrderedAnswers
from amqproute.frontends.amqp09.prefetch import PrefetchWindow
from amqproute.frontends.amqp09.reference_output import BodySource, Ended, OutgoingReference
from amqproute.frontends.amqp09.reply_texts import reply_text
from amqproute.frontends.amqp09.staged_publish import (
    publish_staged,
    staging_reply,
)
from amqproute.frontends.amqp09.transaction_methods import TransactionMethods
from amqproute.interfaces import IStagedContent
from amqproute.translation.content_message import ContentRefused
from amqproute.translation.transfer_fields import basic_of_transfer
from amqproute.wire.amqp09.contents import Content
from amqproute.wire.amqp09.methods import (
    BasicPublish,
    MessageAppend,
    MessageCancel,
    MessageCheckpoint,
    MessageClose,
    MessageConsume,
    MessageEmpty,
    MessageGet,
    MessageOffset,
    MessageOk,
    MessageOpen,
    MessageQos,
    MessageRecover,
    MessageReject,
    MessageResume,
    MessageTransfer,
)
from amqproute.wire.amqp09.protocol_events import AckReceived, DeliveriesSettled
from amqproute.wire.amqp09.replies import ReplyCode, fit_reply_text
from amqproute.wire.amqp09.shapes import AmqpMethod, InlineBody

__all__ = ["MessageMethods"]

MOST_TRANSFERS: Final = 100
"""Transfers that refer to one reference."""
REFUSED: Final = 0
NOT_AT_ONCE: Final = 1
"""The codes of message.reject (09-X-05)."""


class _Reference:
    """A reference that the client has open.

    Attributes:
        name: the client's.
        content: its octets.
        is_saved: whether it has a checkpoint.
        unwritten: answers to appends whose octets are not written.
        transfers: the transfers that refer to it, with their answers.
        uses: of them, those that are being published.
        is_refused: one of them was refused.
        is_posted: one of them was taken in a transaction.
    """

    __slots__ = (
        "content",
        "is_posted",
        "is_refused",
        "is_saved",
        "name",
        "transfers",
        "unwritten",
        "uses",
    )

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.content: IStagedContent | None = None
        self.is_saved = False
        self.unwritten: deque[OrderedAnswer] = deque()
        self.transfers: list[tuple[MessageTransfer, OrderedAnswer]] = []
        self.uses = 0
        self.is_refused = False
        self.is_posted = False


class _Asked(NamedTuple):
    """A request of ours.

    Attributes:
        tag: the tag of the delivery that it is; 0 for none.
        answered: called with the answer.
    """

    tag: int
    answered: Callable[[AmqpMethod], None]


class TransferPublishing(ClassPublish):
    """A message.transfer; see `ClassPublish`."""

    __slots__ = ("answer", "reference")

    answer: OrderedAnswer
    reference: _Reference | None


class MessageMethods(ClassMethods):
    """See `ClassMethods`.

    Attributes:
        window: the window of the channel.
        outgoing: what is being sent by reference; None for nothing.
    """

    def __init__(self, channel: TransactionMethods) -> None:
        super().__init__(channel)
        self.window = PrefetchWindow()
        self.outgoing: OutgoingReference | None = None
        self._referring: MessageConsumer | None = None
        self._answers = OrderedAnswers(self._send, self._pressed)
        self._asked: deque[_Asked] = deque()
        self._is_unasked_ignored = False
        self._incoming: _Reference | None = None
        self._serial = 0
        # Closed and used up in a transaction that has not ended.
        self._posted: list[_Reference] = []

    def handlers(self) -> Mapping[type[AmqpMethod], Callable[..., None]]:
        """See `ClassMethods.handlers`."""
        return {
            MessageTransfer: self._transfer,
            MessageConsume: self._consume,
            MessageCancel: self._cancel,
            MessageGet: self._get,
            MessageRecover: self._recover,
            MessageQos: self._qos,
            MessageOpen: self._open,
            MessageAppend: self._append,
            MessageCheckpoint: self._checkpoint,
            MessageResume: self._resume,
            MessageClose: self._close,
            MessageOk: self._answer,
            MessageEmpty: self._answer,
            MessageReject: self._answer,
            MessageOffset: self._answer,
        }

    def end(self) -> None:
        """See `ClassMethods.end`: a reference without a checkpoint is gone (09-MSG-37)."""
        reference, self._incoming = self._incoming, None
        if reference is not None and reference.content is not None and not reference.uses:
            reference.content.release()
        outgoing, self.outgoing = self.outgoing, None
        if outgoing is not None:
            outgoing.end(False)
        self._asked.clear()
        self._answers.end()

    # -- answers ---------------------------------------------------------------------------------

    def _send(self, method: AmqpMethod) -> None:
        self.channel.tell(method)

    def _pressed(self, is_pressed: bool) -> None:
        host, who = self.channel.host, (self.channel, "answers")
        if is_pressed and not self.channel.is_ended:
            host.throttle(who)
        else:
            host.unthrottle(who)

    def ask(self, method: AmqpMethod, answered: Callable[[AmqpMethod], None]) -> None:
        """Send a request.

        Args:
            method: the request.
            answered: called with the answer, when it comes.
        """
        self._asked.append(_Asked(0, answered))
        self._send(method)

    def expect(self, tag: int) -> None:
        """A transfer was sent that the client has to answer."""
        self._asked.append(_Asked(tag, lambda answer: self._accepted(tag, answer)))

    def expect_again(self, tags: Sequence[int]) -> None:
        """A transaction was rolled back: the client answers these once more, before all others."""
        asked, self._asked = self._asked, deque()
        for tag in sorted(tags):
            self.expect(tag)
        self._asked.extend(asked)

    def _answer(self, method: MessageOk | MessageEmpty | MessageReject | MessageOffset) -> None:
        if isinstance(method, MessageReject) and method.code not in (REFUSED, NOT_AT_ONCE):
            words = f"a message.reject with code {method.code}"
            self.channel.fail(ReplyCode.SYNTAX_ERROR, words, method)
        elif isinstance(method, MessageEmpty | MessageOffset):
            words = f"{method.traits.name} answers nothing that a broker asks"
            self.channel.fail(ReplyCode.COMMAND_INVALID, words, method)
        elif self._asked:
            self._asked.popleft().answered(method)
        elif not self._is_unasked_ignored:
            words = f"{method.traits.name} answers nothing"
            self.channel.fail(ReplyCode.COMMAND_INVALID, words, method)

    def _accepted(self, tag: int, answer: AmqpMethod) -> None:
        channel = self.channel.channel
        if tag not in channel.unacknowledged:
            return  # recovered meanwhile, or acknowledged by another class
        word = AckReceived.ACKNOWLEDGED
        if isinstance(answer, MessageReject):
            is_later = answer.code == NOT_AT_ONCE
            word = AckReceived.REQUEUED if is_later else AckReceived.REJECTED
        held = channel.unacknowledged.settle(tag)
        self.channel.settled(DeliveriesSettled(channel, word, [tag], [held]))

    # -- consumers -------------------------------------------------------------------------------

    def _qos(self, method: MessageQos) -> None:
        window = self.channel.host.message_window if method.global_ else self.window
        window.count, window.size = method.prefetch_count, method.prefetch_size
        self._answers.answer(MessageOk())
        self.channel.dispatch()

    def _consume(self, method: MessageConsume) -> None:
        channel = self.channel
        found = channel.consumer_source(method)
        if found is None:
            return
        name, queue = found
        self._is_unasked_ignored |= method.no_ack
        windows = (self.window, channel.host.message_window)
        tag, no_ack = method.destination, method.no_ack
        consumer = MessageConsumer(channel, queue, name, tag, no_ack, windows, self)
        channel.start_consumer(consumer, method, lambda: self._answers.answer(MessageOk()))

    def _cancel(self, method: MessageCancel) -> None:
        self.channel.cancel_consumer(method.destination)
        self._answers.answer(MessageOk())

    def _get(self, method: MessageGet) -> None:
        channel = self.channel
        self._is_unasked_ignored |= method.no_ack
        give = self._answers.begin().give

        def make(queue: Queue, name: str) -> MessageGetter:
            tag, no_ack = method.destination, method.no_ack
            return MessageGetter(channel, queue, name, tag, no_ack, self, give)

        channel.start_get(method, make)

    def _recover(self, method: MessageRecover) -> None:
        # What the client has is sent once more, and answered then.
        self._asked = deque(each for each in self._asked if not each.tag)
        again = self.channel.recover(method.requeue)
        self._answers.answer(MessageOk())
        for consumer in again:
            consumer.send_behind()
        self.channel.dispatch()

    # -- what goes out by reference --------------------------------------------------------------

    def refer(
        self,
        consumer: MessageConsumer,
        source: BodySource,
        transfer: Callable[[InlineBody], None],
        ended: Ended,
    ) -> None:
        """Send a message by reference; nothing else of this class is delivered meanwhile.

        Args:
            consumer: whose it is.
            source: the source of the body.
            transfer: sends the transfer.
            ended: see `OutgoingReference`.
        """
        self._serial += 1

        def over(why: Failure | MessageReject | bool | None) -> None:
            self.outgoing = self._referring = None
            ended(why)
            self.channel.connection.event_batch.afterwards(self.channel.dispatch)

        name = f"amqproute-{self.channel.channel.number}.{self._serial}".encode()
        self._referring = consumer
        self.outgoing = OutgoingReference(self, name, source, transfer, over)
        self.outgoing.begin()

    def withdraw(self, consumer: MessageConsumer) -> None:
        """Send no more of what a consumer is getting by reference (09-MSG-27)."""
        if self.outgoing is not None and self._referring is consumer:
            self.outgoing.withdraw()

    # -- references of the client ----------------------------------------------------------------

    def _in_scope(self, name: bytes) -> _Reference:
        reference = self._incoming
        if reference is None or reference.name != name:
            raise NotFound("the reference is not in scope")
        return reference

    def _may_open(self, name: bytes, method: AmqpMethod) -> bool:
        """Check that no reference is in scope (09-X-104, -108); else close the connection."""
        if self._incoming is None:
            return True
        words = "the reference is in scope"
        if self._incoming.name != name:
            words = "another reference is open on the channel"
        self.channel.fail(ReplyCode.COMMAND_INVALID, words, method)
        return False

    def _key(self, identifier: str) -> str:
        return f"message:{self.channel.virtual_host}/{identifier}"

    def _open(self, method: MessageOpen) -> None:
        if not self._may_open(method.reference, method):
            return
        self.channel.begin_publishing()
        reference = self._incoming = _Reference(method.reference)
        answer = self._answers.begin()
        staging = self.channel.context.broker.staging
        begun = staging.begin(self.channel.owner, None, 0, self._writer(reference))

        def opened(content: IStagedContent) -> None:
            reference.content = content
            answer.give(MessageOk())

        self._wait(begun, method, opened)

    def _resume(self, method: MessageResume) -> None:
        if not self._may_open(method.reference, method):
            return
        self.channel.begin_publishing()
        reference = self._incoming = _Reference(method.reference)
        answer = self._answers.begin()
        staging = self.channel.context.broker.staging
        key = self._key(method.identifier)
        resumed = staging.resume(self.channel.owner, key, self._writer(reference))

        def found(content: IStagedContent | None) -> None:
            if content is None:
                self._incoming = None
                raise NotFound(f"nothing was saved as {method.identifier!r}")
            reference.content = content
            reference.is_saved = True
            answer.give(MessageOffset(value=content.size))

        self._wait(resumed, method, found)

    def _wait(
        self,
        done: Deferred[IStagedContent] | Deferred[IStagedContent | None],
        method: AmqpMethod,
        answer: Callable[..., None],
    ) -> None:
        """Go on with the channel when a content is there; see `ChannelBase.when_done`."""

        def late(content: IStagedContent | None) -> IStagedContent | None:
            if content is not None and self.channel.is_ended:
                content.release()
            return content

        def got(content: object) -> None:
            if content is self:
                return
            try:
                answer(content)
            except AmqpError as error:
                self.channel.refuse(error, method)

        both = cast("Deferred[object]", done)
        both.addCallbacks(late, lambda failure: self._failed(failure, method))
        self.channel.when_done(both, method, got)

    def _failed(self, failure: Failure, method: AmqpMethod) -> object:
        """Refuse what cannot be staged; the result says that it is done."""
        failure.trap(StoreError)  # type: ignore[no-untyped-call]
        if not self.channel.is_ended and isinstance(failure.value, StoreError):
            code, words = staging_reply(failure.value)
            self.channel.fail(code, words, method)
        return self

    def _writer(self, reference: _Reference) -> Callable[[int], None]:
        def written(size: int) -> None:
            self.channel.connection.release(size)
            unwritten, content = reference.unwritten, reference.content
            try:
                if content is not None and not content.is_lost:
                    content.check()
            except StoreError as error:
                if not self.channel.is_ended:
                    code, words = staging_reply(error)
                    self.channel.fail(code, words, MessageAppend())
                return
            if unwritten:
                unwritten.popleft().give(MessageOk())
            self.channel.connection.flush()

        return written

    def _append(self, method: MessageAppend) -> None:
        reference = self._in_scope(method.reference)
        answer = self._answers.begin()
        octets, content = method.bytes, reference.content
        assert content is not None
        try:
            content.append([octets])
        except StoreError as error:
            code, words = staging_reply(error)
            self.channel.fail(code, words, method)
            return
        if octets:
            self.channel.connection.hold(len(octets))
            reference.unwritten.append(answer)
        else:
            answer.give(MessageOk())

    def _checkpoint(self, method: MessageCheckpoint) -> None:
        reference = self._in_scope(method.reference)
        if not method.identifier:
            raise PreconditionFailed("a checkpoint without an identifier")
        answer = self._answers.begin()
        content = reference.content
        assert content is not None
        try:
            saved = content.save(self._key(method.identifier))
        except StoreError as error:
            code, words = staging_reply(error)
            self.channel.fail(code, words, method)
            return

        def done(_: object) -> None:
            reference.is_saved = True
            answer.give(MessageOk())
            self.channel.connection.flush()

        # What follows need not wait: answers keep their order.
        saved.addCallbacks(done, self._failed, errbackArgs=(method,))
        saved.addErrback(self.channel.broken, method)

    def _close(self, method: MessageClose) -> None:
        reference = self._in_scope(method.reference)
        self._incoming = None
        answer = self._answers.begin()
        content = reference.content
        assert content is not None
        transfers, reference.transfers = deque(reference.transfers), []
        reference.uses = len(transfers)
        if transfers:
            done = self._publish_references(transfers, reference)
            self.channel.when_done(done, method, lambda _: None)
        else:
            content.release()
        answer.give(MessageOk())

    # -- transfers of the client -----------------------------------------------------------------

    def _transfer(self, method: MessageTransfer) -> None:
        body = method.body
        if body.is_reference:
            reference = self._in_scope(body.octets)
            if len(reference.transfers) >= MOST_TRANSFERS:
                raise ResourceLimitExceeded(f"{MOST_TRANSFERS} transfers wait for one reference")
            reference.transfers.append((method, self._answers.begin()))
            return
        publish = self._publishing(method, self._answers.begin(), len(body.octets))
        publish.parts = [body.octets]
        self.channel.publish_class([publish])

    def _publishing(
        self, method: MessageTransfer, answer: OrderedAnswer, size: int
    ) -> TransferPublishing:
        """Return a transfer as a publish.

        Raises:
            PreconditionFailed: it is refused.
        """
        # A message for another organization is told no times (09-X-97).
        is_local = bool(method.destination) or "@" not in method.routing_key
        arrived = self.channel.connection.now_ms() // 1000 if is_local else None
        try:
            form = basic_of_transfer(method, arrived)
        except ContentRefused as error:
            raise PreconditionFailed(str(error)) from None
        content = Content(method, form.properties, form.octets, size, [])
        target = BasicPublish(
            ticket=method.ticket,
            exchange=method.destination,
            routing_key=method.routing_key,
            immediate=method.immediate,
        )
        publish = TransferPublishing(content, target, form.properties, form.octets, self)
        publish.is_awaited = True
        publish.answer = answer
        publish.reference = None
        return publish

    def _publish_references(
        self, transfers: deque[tuple[MessageTransfer, OrderedAnswer]], reference: _Reference
    ) -> Deferred[None]:
        """Publish by a reference that is closed, one after the other."""
        if not transfers or not self.channel.channel.is_open:
            self._give_up(reference, len(transfers))
            return succeed(None)
        method, answer = transfers.popleft()
        content = reference.content
        assert content is not None
        try:
            publish = self._publishing(method, answer, content.size)
        except PreconditionFailed:
            self._give_up(reference, 1 + len(transfers))
            raise
        publish.reference = reference

        def failed(failure: Failure) -> None:
            self._failed(failure, method)
            self._give_up(reference, 1)

        done = publish_staged(self.channel, publish, content).addErrback(failed)
        return done.addCallback(lambda _: self._publish_references(transfers, reference))

    def _give_up(self, reference: _Reference, uses: int) -> None:
        """Some transfers of a closed reference are not published."""
        if uses:
            reference.is_refused = True
            reference.uses -= uses
            if not reference.uses:
                self._used_up(reference)

    def returned(self, publish: ClassPublish, code: ReplyCode, text: str) -> bool:
        """See `PublishListener.returned`: nobody could take it at once (09-MSG-17)."""
        assert isinstance(publish, TransferPublishing)
        publish.answer.give(MessageReject(code=NOT_AT_ONCE, text=fit_reply_text(text)))
        return True

    def answered(self, publishes: Sequence[ClassPublish], error: AmqpError | None) -> None:
        """See `PublishListener.answered`."""
        for each in publishes:
            assert isinstance(each, TransferPublishing)
            if error is None:
                each.answer.give(MessageOk())
            else:
                text = reply_text(ReplyCode.PRECONDITION_FAILED, error.description)
                each.answer.give(MessageReject(code=REFUSED, text=fit_reply_text(text)))
            reference = each.reference
            if reference is not None:
                reference.is_refused |= error is not None
                reference.is_posted |= each.is_posted
                reference.uses -= 1
                if not reference.uses:
                    self._used_up(reference)

    def _used_up(self, reference: _Reference) -> None:
        """All transfers of a closed reference are published, or refused."""
        content = reference.content
        assert content is not None
        if reference.is_refused:
            content.release()  # for another try
        elif reference.is_posted:
            self._posted.append(reference)
        else:
            content.remove()

    def concluded(self, publish: ClassPublish, is_committed: bool) -> None:
        """See `PublishListener.concluded`."""
        posted, self._posted = self._posted, []
        for reference in posted:
            if reference.content is not None:
                if is_committed:
                    reference.content.remove()
                else:
                    reference.content.release()
