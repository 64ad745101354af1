# SPDX-License-Identifier: Apache-2.0
"""Consumers of class stream: deliveries that nobody acknowledges, at the rate asked for.

What is sent is gone (09-STRM-06). What there is no window for waits on the queue; it is lost only
where the queue itself is over its bound (`amqproute.broker.length_limit`), and then counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from twisted.internet.interfaces import IDelayedCall

from amqproute.content_class import ContentClass
from amqproute.entry import Entry
from amqproute.frontends.amqp09.channel_base import ChannelBase
from amqproute.frontends.amqp09.channel_consumer import ChannelConsumer
from amqproute.frontends.amqp09.stream_window import StreamWindow
from amqproute.interfaces import ISource
from amqproute.translation.content_classes import from_basic
from amqproute.translation.message_content import DeliveredContent
from amqproute.wire.amqp09.methods import StreamDeliver

__all__ = ["StreamConsumer"]

BURST: Final = 1000
"""Deliveries in one go where nothing is bounded; the transport bounds the rest."""


class StreamConsumer(ChannelConsumer):
    """A consumer made by stream.consume.

    Args:
        owner: its channel.
        source: the queue.
        name: the name of the queue, as the client wrote it.
        tag: the consumer tag.
        streams: the windows of the channel and of the connection.
    """

    __slots__ = ("_streams", "_timer")

    content_class = ContentClass.STREAM
    takes = frozenset((ContentClass.STREAM,))

    def __init__(
        self,
        owner: ChannelBase,
        source: ISource,
        name: str,
        tag: str,
        streams: Sequence[StreamWindow],
    ) -> None:
        super().__init__(owner, source, name, tag, no_ack=True)
        self._streams = tuple(streams)
        self._timer: IDelayedCall | None = None

    @property
    def prefetch(self) -> int:
        """See `ChannelConsumer.prefetch`."""
        return min((each.count for each in self._streams if each.count), default=0)

    def class_facts(self) -> dict[str, object]:
        """See `ChannelConsumer.class_facts`."""
        return {
            "content-class": self.content_class.value,
            "prefetch-size": min((each.size for each in self._streams if each.size), default=0),
            "consume-rate": min((each.rate for each in self._streams if each.rate), default=0),
        }

    # -- what may be sent ------------------------------------------------------------------------

    def capacity(self) -> int:
        """See `IConsumer.capacity`."""
        room = super().capacity()
        if not room:
            return 0
        now = self._now()
        room = min(room, *(each.room(now) for each in self._streams))
        if room <= 0:
            self._wait(0, now)
        return max(0, room)

    def send_behind(self) -> None:
        """See `ChannelConsumer.send_behind`."""
        super().send_behind()
        owner = self._owner
        may_send = owner.channel.may_deliver and owner.sending is None
        if self._behind and may_send and not self._connection.is_paused:
            self._wait(self._size_of(self._behind[0]), self._now())

    def dispatch(self) -> None:
        """See `NodeEndpoint.dispatch`: the transport takes more, perhaps."""
        if self._behind:
            self.send_behind()
            self._connection.flush()
        super().dispatch()

    def _fits(self, size: int) -> bool:
        now = self._now()
        return all(each.fits(size, now) for each in self._streams)

    def _note_sent(self, size: int) -> None:
        now = self._now()
        for each in self._streams:
            each.take(size, now)

    def _send(self, entry: Entry, content: DeliveredContent) -> int:
        channel = self._owner.channel
        octets = from_basic(ContentClass.STREAM, content.property_octets).octets
        tags = channel.unacknowledged
        method = StreamDeliver(
            consumer_tag=self.tag,
            delivery_tag=tags.last + 1,
            exchange=content.exchange,
            queue=self.address or "",
        )
        channel.send_content(
            method,
            octets,
            content.body,  # type: ignore[arg-type] # a view is written as octets are
            content.rest_size or None,
        )
        return tags.issue_settled()

    # -- time ------------------------------------------------------------------------------------

    def _now(self) -> float:
        return self._context.seconds()

    def _size_of(self, entry: Entry) -> int:
        """Return the octets of a body, or nearly so."""
        message = entry.message
        return max(0, message.size - message.bare_from)

    def _wait(self, size: int, now: float) -> None:
        """Look again when the windows have room."""
        if self._timer is not None or self._is_over:
            return
        at = max(each.next_at(size, now) for each in self._streams)
        self._timer = self._context.broker.clock.callLater(max(0.0, at - now), self._wake)

    def _wake(self) -> None:
        self._timer = None
        now = self._now()
        if not self._connection.is_paused:
            for each in self._streams:
                each.drained(now)
        self.send_behind()
        self.source.dispatch()
        self._connection.flush()

    def stop(self) -> None:
        """See `ChannelConsumer.stop`."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        super().stop()
