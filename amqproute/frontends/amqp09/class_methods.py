# SPDX-License-Identifier: Apache-2.0
"""Classes of 0-9 alone on a channel: one object each, made when first used.

`ChannelFrontend` keeps access, exchange, queue, basic, confirm and tx, which nearly every channel
uses, and knows of the others what `ClassMethods` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar

from amqproute.content_class import ContentClass
from amqproute.errors import AmqpError, PreconditionFailed
from amqproute.frontends.amqp09.class_publish import ClassPublish
from amqproute.frontends.amqp09.transaction_methods import TransactionMethods
from amqproute.translation.content_classes import as_basic
from amqproute.translation.content_message import ContentRefused
from amqproute.wire.amqp09.contents import Content
from amqproute.wire.amqp09.field_tables import FieldValue
from amqproute.wire.amqp09.methods import BasicPublish, FilePublish, StreamPublish
from amqproute.wire.amqp09.protocol_events import ContentPartReceived
from amqproute.wire.amqp09.replies import ReplyCode
from amqproute.wire.amqp09.shapes import AmqpMethod

__all__ = ["ClassMethods"]


class ClassMethods:
    """The methods of one class on one channel. It fulfils `PublishListener`.

    A subclass returns its handlers from `handlers`, and overrides what else concerns it. An
    `AmqpError` or `TopologyFault` closes the channel, as with any method.

    Args:
        channel: its channel.
    """

    content_class: ClassVar[ContentClass] = ContentClass.BASIC
    """Of its contents."""

    def __init__(self, channel: TransactionMethods) -> None:
        self.channel = channel
        self._handlers = self.handlers()
        # The content that is coming in in parts, and the publish made of it.
        self._in_parts: tuple[Content, ClassPublish] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.channel!r}>"

    # -- what a subclass is asked for ------------------------------------------------------------

    def handlers(self) -> Mapping[type[AmqpMethod], Callable[..., None]]:
        """Return what acts on each method without content."""
        return {}

    def target_of(self, content: Content) -> BasicPublish:
        """Return where a content goes, as the method of basic that would send it there.

        Raises:
            AmqpError: it is refused.
        """
        method = content.method
        if not isinstance(method, FilePublish | StreamPublish):
            raise PreconditionFailed(f"{method.traits.name} is not a publish")
        return BasicPublish(
            ticket=method.ticket,
            exchange=method.exchange,
            routing_key=method.routing_key,
            mandatory=method.mandatory,
            immediate=method.immediate,
        )

    def headers_of(self, content: Content) -> Mapping[str, FieldValue] | None:
        """Return headers for what the method of a content says besides; None for nothing."""
        return None

    def rows(self) -> Iterator[dict[str, object]]:
        """Describe what it has on the channel besides consumers; see `ChannelFrontend.rows`."""
        return iter(())

    def dispatch(self) -> None:
        """Send what has waited: windows, or the client's flow, have opened."""

    def end(self) -> None:
        """Give back what is held: the channel is over."""

    # -- events of the channel -------------------------------------------------------------------

    def handler(self, method: AmqpMethod) -> Callable[..., None] | None:
        """Return what acts on a method; None if it is not offered."""
        return self._handlers.get(type(method))

    def take_contents(self, contents: Sequence[Content]) -> None:
        """Take contents: publishes of this class."""
        publishes: list[ClassPublish] = []
        try:
            for each in contents:
                publishes.append(self.publish_of(each))
        finally:  # what came before one that is refused is not
            if publishes:
                self.channel.publish_class(publishes)

    def take_part(self, event: ContentPartReceived) -> None:
        """Take a part of a content with a large body."""
        content = event.content
        if self._in_parts is None or self._in_parts[0] is not content:
            self._in_parts = content, self.publish_of(content)
        publish = self._in_parts[1]
        if event.is_last:
            self._in_parts = None
        self.channel.publish_part(
            ContentPartReceived(event.channel, publish, event.parts, event.is_last)
        )

    def publish_of(self, content: Content) -> ClassPublish:
        """Return a content as a publish.

        Raises:
            AmqpError: it is refused.
        """
        try:
            form = as_basic(
                self.content_class,
                content.properties,
                content.property_octets,
                self.headers_of(content),
            )
        except ContentRefused as error:
            raise PreconditionFailed(str(error)) from None
        method = self.target_of(content)
        return ClassPublish(content, method, form.properties, form.octets, self)

    # -- PublishListener -------------------------------------------------------------------------

    def returned(self, publish: ClassPublish, code: ReplyCode, text: str) -> bool:
        """See `PublishListener.returned`."""
        return False

    def answered(self, publishes: Sequence[ClassPublish], error: AmqpError | None) -> None:
        """See `PublishListener.answered`."""

    def concluded(self, publish: ClassPublish, is_committed: bool) -> None:
        """See `PublishListener.concluded`."""
