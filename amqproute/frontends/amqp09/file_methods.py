# SPDX-License-Identifier: Apache-2.0
"""The class file on a channel: contents that are staged before they are published (09: part 1.9).

The client announces a content by file.open, is told by open-ok how much of it is here, sends the
rest with file.stage, and publishes it by its identifier. What has come is kept by the staging of
the store for its user, so the client may go on over another connection. Properties come with each
stage, so a content that is complete is staged once more, without octets, before another channel
publishes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, cast

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from amqproute.content_class import ContentClass
from amqproute.entry import Entry
from amqproute.errors import (
    AmqpError,
    NotFound,
    PreconditionFailed,
    ResourceLimitExceeded,
    ResourceLocked,
    StoreError,
)
from amqproute.frontends.amqp09.channel_consumer import HeldDelivery
from amqproute.frontends.amqp09.class_methods import ClassMethods
from amqproute.frontends.amqp09.class_publish import ClassPublish
from amqproute.frontends.amqp09.file_consumer import FileConsumer, OutgoingFile
from amqproute.frontends.amqp09.prefetch import PrefetchWindow
from amqproute.frontends.amqp09.staged_publish import (
    publish_staged,
    staging_reply,
)
from amqproute.frontends.amqp09.transaction_methods import TransactionMethods
from amqproute.frontends.common.draft_share import DraftShare
from amqproute.interfaces import IStagedContent
from amqproute.wire.amqp09.contents import Content
from amqproute.wire.amqp09.frame_output import FrameTooLargeError
from amqproute.wire.amqp09.methods import (
    FileAck,
    FileCancel,
    FileCancelOk,
    FileConsume,
    FileConsumeOk,
    FileOpen,
    FileOpenOk,
    FilePublish,
    FileQos,
    FileQosOk,
    FileReject,
    FileReturn,
    FileStage,
)
from amqproute.wire.amqp09.protocol_events import (
    AckReceived,
    ContentPartReceived,
    DeliveriesSettled,
)
from amqproute.wire.amqp09.replies import ReplyCode, fit_reply_text
from amqproute.wire.amqp09.shapes import AmqpMethod

__all__ = ["FileMethods"]

MOST_PUBLISHES: Final = 100
"""Publishes of one content before it is complete."""
MOST_OPENED: Final = 1000
"""Contents that a client has opened and not begun to stage."""
MOST_LOST: Final = 100
"""Contents that were lost to others, and are remembered for a publish of theirs."""


class _IncomingFile:
    """A content that the client stages.

    Attributes:
        identifier: the client's name for it.
        size: its octets.
        content: where they are.
        staged: the content of the last stage, for its properties; None before it.
        is_complete: all octets are here.
        publishes: the publishes that wait for that.
        uses: publishes that are under way.
        is_published: one of them was taken.
        is_posted: one of them was taken in a transaction.
    """

    __slots__ = (
        "content",
        "identifier",
        "is_complete",
        "is_posted",
        "is_published",
        "publishes",
        "size",
        "staged",
        "uses",
    )

    def __init__(self, identifier: str, size: int, content: IStagedContent) -> None:
        self.identifier = identifier
        self.size = size
        self.content = content
        self.staged: Content | None = None
        self.is_complete = False
        self.publishes: list[FilePublish] = []
        self.uses = 0
        self.is_published = False
        self.is_posted = False

    @property
    def is_over(self) -> bool:
        """Nothing more can be done with it here."""
        return self.content.is_lost and not self.uses


class _OpenedFiles:
    """What was opened to the client and is not delivered, by serial number."""

    def __init__(self) -> None:
        self._numbers: dict[OutgoingFile, int] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, outgoing: OutgoingFile) -> None:
        """A file.open was sent."""
        self._last += 1
        self._numbers[outgoing] = self._last

    def remove(self, outgoing: OutgoingFile) -> None:
        """It is delivered, or will not be."""
        self._numbers.pop(outgoing, None)

    def outstanding(self) -> Iterable[tuple[int, OutgoingFile]]:
        """See `Outstanding`."""
        return [(number, each) for each, number in self._numbers.items()]


class FilePublishing(ClassPublish):
    """A file.publish; see `ClassPublish`."""

    __slots__ = ("file",)

    file: _IncomingFile


class FileMethods(ClassMethods):
    """See `ClassMethods`.

    Attributes:
        window: the window of the channel.
    """

    content_class = ContentClass.FILE

    def __init__(self, channel: TransactionMethods) -> None:
        super().__init__(channel)
        self.window = PrefetchWindow()
        self._files: dict[str, _IncomingFile] = {}
        # Opened by the client, in order: each is staged once.
        self._to_stage: deque[_IncomingFile] = deque()
        self._staging: _IncomingFile | None = None
        # Opened by us, in order, and those that the client has answered.
        self._opened: deque[OutgoingFile] = deque()
        self._ready: deque[OutgoingFile] = deque()
        self._undelivered = _OpenedFiles()
        self._timeout = channel.timeout_of(self._undelivered)
        # Published in a transaction that has not ended.
        self._posted: list[_IncomingFile] = []
        self._look_at = MOST_LOST  # when so many files are known

    def handlers(self) -> Mapping[type[AmqpMethod], Callable[..., None]]:
        """See `ClassMethods.handlers`."""
        return {
            FileQos: self._qos,
            FileConsume: self._consume,
            FileCancel: self._cancel,
            FileOpen: self._open,
            FileOpenOk: self._open_ok,
            FilePublish: self._publish,
            FileAck: self._ack,
            FileReject: self._reject,
        }

    def rows(self) -> Iterator[dict[str, object]]:
        """See `ClassMethods.rows`."""
        for each in self._files.values():
            yield {
                "kind": "file",
                "identifier": each.identifier,
                "content-size": each.size,
                "staged-size": each.content.size,
            }

    def end(self) -> None:
        """See `ClassMethods.end`: what was staged is kept, what is being published goes on."""
        files = {id(each): each for each in (*self._files.values(), *self._to_stage)}
        for each in files.values():
            if not each.uses:
                each.content.release()
        self._timeout.stop()
        self._files.clear()
        self._to_stage.clear()
        self._opened.clear()
        self._ready.clear()

    # -- consumers -------------------------------------------------------------------------------

    def _qos(self, method: FileQos) -> None:
        window = self.channel.host.file_window if method.global_ else self.window
        window.count, window.size = method.prefetch_count, method.prefetch_size
        self.channel.reply(method, FileQosOk())
        self.channel.dispatch()

    def _consume(self, method: FileConsume) -> None:
        channel = self.channel
        found = channel.consumer_source(method, ResourceLocked)
        if found is None:
            return
        name, queue = found
        windows = (self.window, channel.host.file_window)
        tag = method.consumer_tag
        consumer = FileConsumer(channel, queue, name, tag, method.no_ack, windows, self)
        channel.start_consumer(consumer, method, FileConsumeOk(consumer_tag=tag))

    def _cancel(self, method: FileCancel) -> None:
        channel, tag = self.channel, method.consumer_tag

        def done() -> None:
            # Until then the tag is in use.
            channel.channel.forget_consumer(tag)
            channel.reply(method, FileCancelOk(consumer_tag=tag))

        consumer = channel.consumers.get(tag)
        if isinstance(consumer, FileConsumer):
            consumer.cancel(done)
        else:
            channel.cancel_consumer(tag)
            done()

    def _ack(self, method: FileAck) -> None:
        self._settle(method, method.multiple, AckReceived.ACKNOWLEDGED)

    def _reject(self, method: FileReject) -> None:
        word = AckReceived.REQUEUED if method.requeue else AckReceived.REJECTED
        self._settle(method, False, word)

    def _settle(
        self, method: FileAck | FileReject, multiple: bool, settlement: AckReceived
    ) -> None:
        tag, tags = method.delivery_tag, self.channel.channel.unacknowledged
        try:
            settled = tags.settle_up_to(tag) if multiple else [(tag, tags.settle(tag))]
        except KeyError:
            raise PreconditionFailed(f"unknown delivery tag {tag}") from None
        if settled:
            numbers = [number for number, _ in settled]
            contexts = [cast(HeldDelivery, held) for _, held in settled]
            self.channel.settled(
                DeliveriesSettled(self.channel.channel, settlement, numbers, [*contexts])
            )

    # -- what is staged to the client ------------------------------------------------------------

    def identifier_of(self, entry: Entry) -> str:
        """Return the identifier under which a message is staged to any client, every time."""
        return f"{self.channel.context.broker.journal.domain}/{entry.id}"[-255:]

    def opened(self, outgoing: OutgoingFile) -> None:
        """A file.open was sent; the client answers in order, and in time."""
        self._opened.append(outgoing)
        self._undelivered.add(outgoing)
        self._timeout.watch()

    def ended(self, outgoing: OutgoingFile) -> None:
        """It is delivered, or will not be."""
        self._undelivered.remove(outgoing)

    def _open_ok(self, method: FileOpenOk) -> None:
        outgoing = self._opened.popleft()
        if method.staged_size > outgoing.content.size:
            words = f"{method.staged_size} octets of a content of {outgoing.content.size}"
            self.channel.fail(ReplyCode.SYNTAX_ERROR, words, method)
            return
        outgoing.offset = method.staged_size
        self._ready.append(outgoing)
        self.dispatch()

    def dispatch(self) -> None:
        """See `ClassMethods.dispatch`."""
        owner = self.channel
        while self._ready and owner.sending is None:
            if not (owner.channel.is_open and owner.channel.may_deliver):
                return
            outgoing = self._ready.popleft()
            outgoing.consumer.send_stage(outgoing)

    # -- what the client stages ------------------------------------------------------------------

    @property
    def _user(self) -> str:
        return self.channel.owner

    def _open(self, method: FileOpen) -> None:
        channel, size = self.channel, method.content_size
        if not method.identifier:
            raise PreconditionFailed("a file.open without an identifier")
        if len(self._to_stage) >= MOST_OPENED:
            raise ResourceLimitExceeded(f"{MOST_OPENED} contents are opened and not staged")
        DraftShare(channel.connection).check_size(size)
        channel.begin_publishing()
        key = f"file:{channel.virtual_host}/{method.identifier}"
        staging = channel.context.broker.staging
        begun: Deferred[IStagedContent] = staging.begin(
            self._user, key, size, channel.connection.release
        )

        def opened(content: IStagedContent) -> None:
            before = self._files.get(method.identifier)
            file = _IncomingFile(method.identifier, size, content)
            if before is not None:
                file.publishes = before.publishes
            self._files[method.identifier] = file
            self._forget_lost()
            self._to_stage.append(file)
            channel.reply(method, FileOpenOk(staged_size=content.size))

        self._wait(begun, method, opened)

    def _forget_lost(self) -> None:
        """Forget contents that others have taken over, or that have expired, if they are many."""
        files = self._files
        if len(files) > self._look_at:
            for name in [name for name, file in files.items() if file.is_over]:
                del files[name]
            self._look_at = len(files) + MOST_LOST

    def _wait(
        self,
        done: Deferred[IStagedContent],
        method: AmqpMethod,
        answer: Callable[[IStagedContent], None],
    ) -> None:
        """Go on with the channel when something is staged; see `ChannelBase.when_done`."""

        def got(content: IStagedContent | None) -> None:
            if content is not None:
                answer(content)

        def late(content: IStagedContent | None) -> IStagedContent | None:
            if content is not None and self.channel.is_ended:
                content.release()
            return content

        failed: Callable[[Failure], None] = lambda failure: self._failed(failure, method)  # noqa: E731
        self.channel.when_done(done.addCallbacks(late, failed), method, got)

    def _failed(self, failure: Failure, method: AmqpMethod) -> None:
        failure.trap(StoreError)  # type: ignore[no-untyped-call]
        if not self.channel.is_ended and isinstance(failure.value, StoreError):
            code, words = staging_reply(failure.value)
            self.channel.fail(code, words, method)

    def take_contents(self, contents: Sequence[Content]) -> None:
        """See `ClassMethods.take_contents`: those of file.stage."""
        for each in contents:
            if self.channel.channel.is_open:
                self._take_stage(each, each.parts, True)

    def take_part(self, event: ContentPartReceived) -> None:
        """See `ClassMethods.take_part`."""
        self._take_stage(event.content, event.parts, event.is_last)

    def _take_stage(self, content: Content, parts: Sequence[bytes], is_last: bool) -> None:
        channel, method = self.channel, content.method
        assert isinstance(method, FileStage)
        file = self._staging
        if file is None or file.staged is not content:
            if not self._to_stage:
                channel.fail(ReplyCode.COMMAND_INVALID, "a file.stage without file.open", method)
                return
            file = self._staging = self._to_stage.popleft()
            if file.content.size + content.size != file.size:
                words = f"{content.size} octets where {file.size - file.content.size} are missing"
                channel.fail(ReplyCode.FRAME_ERROR, words, method)
                return
            file.staged = content
        octets = sum(map(len, parts))
        if octets:
            try:
                file.content.append(parts)
            except StoreError as error:
                code, words = staging_reply(error)
                channel.fail(code, words, method)
                return
            channel.connection.hold(octets)
        if is_last:
            self._staging = None
            file.is_complete = True
            publishes, file.publishes = file.publishes, []
            if publishes:
                waiting = deque(publishes)
                channel.when_done(self._put_all(file, waiting), publishes[0], lambda _: None)

    # -- publishes -------------------------------------------------------------------------------

    def _publish(self, method: FilePublish) -> None:
        file = self._files.get(method.identifier)
        if file is None:
            raise NotFound(f"nothing is staged as {method.identifier!r} on this channel")
        if file.is_complete:
            self.channel.when_done(self._put(file, method), method, lambda _: None)
        elif len(file.publishes) >= MOST_PUBLISHES:
            raise ResourceLimitExceeded(f"{MOST_PUBLISHES} publishes wait for {file.identifier!r}")
        else:
            file.publishes.append(method)

    def _put_all(self, file: _IncomingFile, publishes: deque[FilePublish]) -> Deferred[None]:
        """Publish a content that is complete, one time after the other."""
        if not publishes or not self.channel.channel.is_open:
            return succeed(None)
        done = self._put(file, publishes.popleft())
        return done.addCallback(lambda _: self._put_all(file, publishes))

    def _put(self, file: _IncomingFile, method: FilePublish) -> Deferred[None]:
        """Publish a content that is complete; what comes behind on the channel waits for it."""
        staged = file.staged
        assert staged is not None
        octets = staged.property_octets
        original = Content(method, staged.properties, octets, file.size, [])
        made = self.publish_of(original)
        publish = FilePublishing(original, made.method, made.properties, made.property_octets, self)
        publish.file = file
        file.uses += 1

        def failed(failure: Failure) -> None:
            file.uses -= 1
            if self.channel.is_ended and not file.uses:
                file.content.release()
            self._failed(failure, method)

        return publish_staged(self.channel, publish, file.content).addErrback(failed)

    def returned(self, publish: ClassPublish, code: ReplyCode, text: str) -> bool:
        """See `PublishListener.returned`: the content is not sent back with it (I-04)."""
        method, owner = publish.method, self.channel
        answer = FileReturn(
            reply_code=code,
            reply_text=fit_reply_text(text),
            exchange=method.exchange,
            routing_key=method.routing_key,
        )
        octets = publish.original.property_octets
        try:
            owner.channel.check_fits(answer, octets)
        except FrameTooLargeError as error:
            raise PreconditionFailed(f"a message that cannot be returned: {error}") from None
        owner.behind_content(lambda: owner.channel.send_content(answer, octets, ()))
        return True

    def answered(self, publishes: Sequence[ClassPublish], error: AmqpError | None) -> None:
        """See `PublishListener.answered`: what was published is not staged any more."""
        for each in publishes:
            assert isinstance(each, FilePublishing)
            file = each.file
            file.uses -= 1
            file.is_published |= error is None
            file.is_posted |= each.is_posted
            if file.uses:
                continue
            if not file.is_published:
                if self.channel.is_ended:
                    file.content.release()
            elif file.is_posted:
                self._posted.append(file)
            else:
                self._remove(file)

    def _remove(self, file: _IncomingFile) -> None:
        file.content.remove()
        if self._files.get(file.identifier) is file:
            del self._files[file.identifier]

    def concluded(self, publish: ClassPublish, is_committed: bool) -> None:
        """See `PublishListener.concluded`."""
        posted, self._posted = self._posted, []
        for file in posted:
            file.is_published = file.is_posted = False
            if is_committed:
                self._remove(file)
            elif self.channel.is_ended:
                file.content.release()
