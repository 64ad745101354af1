# SPDX-License-Identifier: Apache-2.0
"""What a client does on one channel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from amqproute.frontends.amqp09.reply_texts import reply_text
from amqproute.frontends.common.client_connection import ConnectionConsumer
from amqproute.frontends.common.node_endpoint import NodeEndpoint
from amqproute.wire.amqp09 import protocol_events as ev
from amqproute.wire.amqp09.channel import Channel
from amqproute.wire.amqp09.replies import ReplyCode
from amqproute.wire.amqp09.shapes import AmqpMethod

__all__ = ["ChannelFrontend", "ChannelHost"]


class ChannelHost(Protocol):
    """The connection of a channel."""

    def forget_channel(self, channel: ChannelFrontend) -> None:
        """A channel was closed from our side."""

    def flush(self) -> None:
        """Have what the engine has to say written."""


class ChannelFrontend:
    """One open channel.

    Args:
        host: its connection.
        channel: of the engine.
    """

    def __init__(self, host: ChannelHost, channel: Channel) -> None:
        self._host = host
        self.channel = channel

    def __repr__(self) -> str:
        return f"<ChannelFrontend {self.channel!r}>"

    def take(self, event: object) -> None:
        """Act on an event of this channel."""
        if isinstance(event, ev.MethodReceived):
            name = event.method.traits.name
            self.fail(ReplyCode.NOT_IMPLEMENTED, f"{name} is not offered", event.method)
        elif isinstance(event, ev.PublishesReceived | ev.ContentsReceived | ev.ContentPartReceived):
            self.fail(ReplyCode.NOT_IMPLEMENTED, "contents are not taken")

    def fail(self, code: ReplyCode, words: str, method: AmqpMethod | None = None) -> None:
        """Refuse what the client asks for: channel or connection end, by the code's scope."""
        self.end()
        self._host.forget_channel(self)
        self.channel.fail(code, reply_text(code, words), method)
        self._host.flush()

    def end(self) -> None:
        """Give back what was held on the channel: it is over."""

    def endpoints(self) -> list[NodeEndpoint]:
        """Return what the channel has at nodes."""
        return []

    def consumers(self) -> list[ConnectionConsumer]:
        """Return its consumers."""
        return []

    def rows(self) -> Iterator[dict[str, Any]]:
        """Describe what the channel has at nodes, for operators."""
        return iter(())
