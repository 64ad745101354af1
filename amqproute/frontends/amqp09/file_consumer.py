# SPDX-License-Identifier: Apache-2.0
"""Consumers of class file: what they get is staged to the client, and delivered then.

The broker asks by file.open, learns by open-ok how many octets the client has from before, sends
the rest with file.stage, and then file.deliver. The same message is staged under the same
identifier each time, so a client that keeps what was cut needs the rest only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from twisted.python.failure import Failure

from amqproute.content_class import ContentClass
from amqproute.entry import Entry
from amqproute.frontends.amqp09.channel_base import ChannelBase
from amqproute.frontends.amqp09.channel_consumer import ChannelConsumer, HeldDelivery
from amqproute.frontends.amqp09.large_content_output import LargeContent
from amqproute.frontends.amqp09.prefetch import PrefetchWindow
from amqproute.interfaces import ISource
from amqproute.outcomes import ACCEPTED, RELEASED, Outcome
from amqproute.translation.body_layout import BodyLayout
from amqproute.translation.content_classes import from_basic
from amqproute.translation.message_content import DeliveredContent
from amqproute.wire.amqp09.methods import FileDeliver, FileOpen, FileStage
from amqproute.wire.amqp09.replies import ReplyCode

__all__ = ["FileChannel", "FileConsumer", "OutgoingFile"]

MOST_AHEAD: Final = 100
"""Messages of one consumer that are staged and not delivered."""


class OutgoingFile:
    """A message on its way to a client.

    Attributes:
        consumer: whose it is.
        entry: the message.
        content: the message in the form for the client.
        property_octets: its properties, as those of class file.
        identifier: under which it is staged.
        layout: the layout of a very large body; None for any other.
        redelivered: it was attempted before.
        offset: octets that the client has.
        is_dropped: whether it is not delivered any more.
    """

    __slots__ = (
        "consumer",
        "content",
        "entry",
        "identifier",
        "is_dropped",
        "layout",
        "offset",
        "property_octets",
        "redelivered",
    )

    def __init__(
        self, consumer: FileConsumer, entry: Entry, content: DeliveredContent, identifier: str
    ) -> None:
        self.consumer = consumer
        self.entry = entry
        self.content = content
        self.property_octets = from_basic(ContentClass.FILE, content.property_octets).octets
        self.identifier = identifier
        self.layout: BodyLayout | None = None
        self.redelivered = entry.attempted or entry.delivery_count > 0
        self.offset = 0
        self.is_dropped = False


class FileChannel(Protocol):
    """The class file on a channel, as its consumers see it."""

    def identifier_of(self, entry: Entry) -> str:
        """Return the identifier under which a message is staged."""

    def opened(self, outgoing: OutgoingFile) -> None:
        """A file.open was sent."""

    def ended(self, outgoing: OutgoingFile) -> None:
        """It is delivered, or will not be."""


class FileConsumer(ChannelConsumer):
    """A consumer made by file.consume.

    Args:
        owner: its channel.
        source: the queue.
        name: the name of the queue, as the client wrote it.
        tag: the consumer tag.
        no_ack: what is delivered counts as acknowledged.
        windows: bounds of what may be unacknowledged.
        files: the class on the channel.
    """

    __slots__ = ("_cancelled", "_files", "_outgoing")

    content_class = ContentClass.FILE
    takes = frozenset((ContentClass.FILE,))

    def __init__(
        self,
        owner: ChannelBase,
        source: ISource,
        name: str,
        tag: str,
        no_ack: bool,
        windows: Sequence[PrefetchWindow],
        files: FileChannel,
    ) -> None:
        super().__init__(owner, source, name, tag, no_ack, windows)
        self._files = files
        self._outgoing: deque[OutgoingFile] = deque()
        self._cancelled: list[Callable[[], None]] = []

    def class_facts(self) -> dict[str, object]:
        """See `ChannelConsumer.class_facts`."""
        return {
            "content-class": self.content_class.value,
            "prefetch-size": min((each.size for each in self._windows if each.size), default=0),
            "being-staged": len(self._outgoing),
        }

    def capacity(self) -> int:
        """See `IConsumer.capacity`."""
        if self._cancelled:
            return 0
        return min(MOST_AHEAD - len(self._outgoing), super().capacity())

    def cancel(self, done: Callable[[], None]) -> None:
        """End at the client's request, when what is being staged is delivered.

        The client expects a stage for each of its open-ok.
        """
        behind, self._behind = list(self._behind), deque()
        if behind:
            self._release(behind)
        self._cancelled.append(done)
        self._end_if_cancelled()

    def _end_if_cancelled(self) -> None:
        if self._cancelled and not self._outgoing:
            self.stop()

    def stop(self) -> None:
        """See `ChannelConsumer.stop`: what is being staged goes back to its queue."""
        if self._is_over:
            return
        super().stop()
        outgoing, self._outgoing = list(self._outgoing), deque()
        for each in outgoing:
            self._give_up(each)
        if outgoing:
            self._release([each.entry for each in outgoing])
        cancelled, self._cancelled = self._cancelled, []
        for done in cancelled:
            done()

    def _give_up(self, outgoing: OutgoingFile) -> None:
        outgoing.is_dropped = True
        self._files.ended(outgoing)
        for window in self._windows:
            window.give_back(outgoing.content.size)

    # -- staging ---------------------------------------------------------------------------------

    def _send_known(self, sent: list[Entry]) -> bool:
        return False  # nothing goes out before the client has answered

    def _is_delivered(self) -> bool:
        return False

    def _send(self, entry: Entry, content: DeliveredContent) -> int:
        outgoing = OutgoingFile(self, entry, content, self._files.identifier_of(entry))
        self._owner.channel.check_fits(FileStage(), outgoing.property_octets)
        self._owner.channel.send(
            FileOpen(identifier=outgoing.identifier, content_size=content.size)
        )
        self._outgoing.append(outgoing)
        self._files.opened(outgoing)
        return 0

    def _send_body(self, entry: Entry, tag: int, layout: BodyLayout) -> None:
        self._outgoing[-1].layout = layout

    def send_stage(self, outgoing: OutgoingFile) -> None:
        """Send what the client lacks of a message, and deliver it."""
        channel = self._owner.channel
        content, offset = outgoing.content, outgoing.offset
        octets = outgoing.property_octets
        if outgoing.layout is None:
            parts = _behind(content.body, offset)
            channel.send_content(FileStage(), octets, parts)
            self._deliver(outgoing)
            return
        left = content.size - offset
        channel.send_content(FileStage(), octets, (), left or None)
        body = outgoing.entry.message.rest
        if not left or body is None:
            self._deliver(outgoing)
            return
        self._owner.send_large(
            LargeContent(
                channel, body, outgoing.layout, lambda why: self._staged(outgoing, why), offset
            )
        )

    def _staged(self, outgoing: OutgoingFile, why: Failure | bool | None) -> None:
        """A very large message is staged, or cannot be; see `LargeContent`."""
        if why is None:
            self._deliver(outgoing)
            self._owner.large_sent()
            return
        if not outgoing.is_dropped:
            self._outgoing.remove(outgoing)
            self._give_up(outgoing)
            self._drop([outgoing.entry])
            outcome: Outcome = RELEASED
            if isinstance(why, Failure):
                outcome = self._unreadable(outgoing.entry, why)
            self._settle([outgoing.entry], outcome)
        if isinstance(why, Failure):
            self._owner.fail(ReplyCode.PRECONDITION_FAILED, "a message cannot be read to its end")

    def _deliver(self, outgoing: OutgoingFile) -> None:
        if outgoing.is_dropped:
            return
        self._files.ended(outgoing)
        self._outgoing.remove(outgoing)
        channel, entry, content = self._owner.channel, outgoing.entry, outgoing.content
        tags = channel.unacknowledged
        if self.no_ack:
            tag = tags.issue_settled()
        else:
            tag = tags.issue(HeldDelivery(self, entry, content.size))
        channel.send(
            FileDeliver(
                consumer_tag=self.tag,
                delivery_tag=tag,
                redelivered=outgoing.redelivered,
                exchange=content.exchange,
                routing_key=content.routing_key,
                identifier=outgoing.identifier,
            )
        )
        if self.no_ack:
            self._drop([entry])
            self._settle([entry], ACCEPTED)
        else:
            self._owner.delivered()
        self._end_if_cancelled()
        self._connection.event_batch.afterwards(self.dispatch)


def _behind(parts: Sequence[bytes | memoryview], offset: int) -> list[bytes]:
    """Return octets behind the first ones."""
    left: list[bytes] = []
    for part in parts:
        if offset < len(part):
            left.append(bytes(part[offset:]))
        offset = max(0, offset - len(part))
    return left
