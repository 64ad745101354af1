# SPDX-License-Identifier: Apache-2.0
"""The class stream on a channel: messages without acknowledgement, at a rate (09: part 1.10).

A publish goes the way of basic.publish, with transactions too (the document does not mention them).
What a queue without room refuses is lost, and counted here; what one drops to make room is counted
by the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from amqproute.content_class import ContentClass
from amqproute.errors import AmqpError, ResourceLocked
from amqproute.frontends.amqp09.class_methods import ClassMethods
from amqproute.frontends.amqp09.class_publish import ClassPublish
from amqproute.frontends.amqp09.stream_consumer import StreamConsumer
from amqproute.frontends.amqp09.stream_window import StreamWindow
from amqproute.frontends.amqp09.transaction_methods import TransactionMethods
from amqproute.wire.amqp09.methods import (
    StreamCancel,
    StreamCancelOk,
    StreamConsume,
    StreamConsumeOk,
    StreamQos,
    StreamQosOk,
)
from amqproute.wire.amqp09.shapes import AmqpMethod

__all__ = ["StreamMethods"]


class StreamMethods(ClassMethods):
    """See `ClassMethods`.

    Attributes:
        window: the window of the channel.
        lost: publishes that were refused.
    """

    content_class = ContentClass.STREAM

    def __init__(self, channel: TransactionMethods) -> None:
        super().__init__(channel)
        self.window = StreamWindow()
        self.lost = 0

    def handlers(self) -> Mapping[type[AmqpMethod], Callable[..., None]]:
        """See `ClassMethods.handlers`."""
        return {StreamQos: self._qos, StreamConsume: self._consume, StreamCancel: self._cancel}

    def answered(self, publishes: Sequence[ClassPublish], error: AmqpError | None) -> None:
        """See `PublishListener.answered`."""
        if error is not None:
            self.lost += len(publishes)

    def rows(self) -> Iterator[dict[str, object]]:
        """See `ClassMethods.rows`."""
        if self.lost:
            yield {"kind": "stream", "stream-lost": self.lost}

    def _qos(self, method: StreamQos) -> None:
        window = self.channel.host.stream_window if method.global_ else self.window
        window.set(method.prefetch_size, method.prefetch_count, method.consume_rate)
        self.channel.reply(method, StreamQosOk())
        self.channel.dispatch()

    def _consume(self, method: StreamConsume) -> None:
        channel = self.channel
        found = channel.consumer_source(method, ResourceLocked)
        if found is None:
            return
        name, queue = found
        windows = (self.window, channel.host.stream_window)
        consumer = StreamConsumer(channel, queue, name, method.consumer_tag, windows)
        answer = StreamConsumeOk(consumer_tag=method.consumer_tag)
        channel.start_consumer(consumer, method, answer)

    def _cancel(self, method: StreamCancel) -> None:
        self.channel.cancel_consumer(method.consumer_tag)
        self.channel.reply(method, StreamCancelOk(consumer_tag=method.consumer_tag))
