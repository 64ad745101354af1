# SPDX-License-Identifier: Apache-2.0
"""One channel: its state, its numbers, and its operations.

A channel is made by its connection (`amqproute.wire.amqp09.connection09`), which reads the input
and keeps the state here. The methods below write frames. They raise `LocalProtocolError` on a
channel that is not open: check `Channel.is_open` before handling an event, because a fault may have
closed the channel since.

Frames of one channel must not come between those of a content (09: part 3.4). While a content is
sent in parts, all other output of the channel waits; other channels do not.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from typing import Final, Protocol

from amqproute.errors import LocalProtocolError
from amqproute.wire.amqp09.arguments import encode_method, shortstr
from amqproute.wire.amqp09.contents import Content, OutgoingContent
from amqproute.wire.amqp09.frame_output import ALONE, FrameOutput
from amqproute.wire.amqp09.methods import (
    BasicAck,
    BasicCancel,
    BasicDeliver,
    BasicGetOk,
    BasicNack,
    BasicPublish,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelOpenOk,
    ConfirmSelect,
    FilePublish,
    FileReturn,
    MessageTransfer,
    StreamPublish,
    StreamReturn,
)
from amqproute.wire.amqp09.replies import ReplyCode, ReplyScope, fit_reply_text
from amqproute.wire.amqp09.shapes import AmqpMethod
from amqproute.wire.amqp09.tags import ConfirmNumbers, DeliveryTags
from amqproute.wire.amqp09.versions import ProtocolVersion, Role
from amqproute.wire.amqp09.violations import Violation

_DELIVER_HEAD = struct.Struct(">BHII")
_DELIVER_TAG = struct.Struct(">QB")
_HEADER = struct.Struct(">sBHIHHQ")
_BODY = struct.Struct(">sBHI")
_DELIVER: Final = BasicDeliver.traits.code
_BASIC: Final = BasicDeliver.traits.class_id

PROGRESS_OCTETS: Final = 1024
"""Growth in octets of an unfinished content that counts as progress."""
MOST_ADDRESSES: Final = 64
"""Number of encoded pairs of exchange and routing key in a channel's cache for deliveries."""


class ChannelState(enum.Enum):
    """The state of a channel."""

    OPENING = enum.auto()
    """channel.open was sent, or received and not answered."""
    OPEN = enum.auto()
    CLOSING = enum.auto()
    """Our close was sent: all input is skipped, up to the peer's close-ok (09-CHAN-17)."""
    ANSWER_DUE = enum.auto()
    """The peer's close was received: only `Channel.close_ok` remains."""
    CLOSED = enum.auto()


class ChannelOwner(Protocol):
    """The services of a connection for its channels.

    Attributes:
        output: the output for frames.
        role: ours.
        version: the version in use.
        connection_id: the name of the connection in channel-ids.
        consumer_channels: the channel of each consumer, where tags are unique per connection
            (I-13).
    """

    output: FrameOutput
    role: Role
    version: ProtocolVersion
    connection_id: str
    consumer_channels: dict[str, Channel]

    def close(self, code: ReplyCode, text: str, method: AmqpMethod | None = None) -> None:
        """Close the connection."""
        ...

    def channel_is_free(self, channel: Channel) -> None:
        """The channel has ended: its number may be used again."""
        ...

    def release_partial(self, channel: Channel) -> None:
        """The unfinished content of the channel is given up."""
        ...


class Channel:
    """A channel of a connection.

    Attributes:
        number: the number in the frames.
        state: its state.
        context: the user's.
        unacknowledged: deliveries without an acknowledgement; contexts are the user's.
        unconfirmed: client: publishes in confirm mode without a confirm.
        confirms: server: the publishes to be confirmed; None without confirm mode.
        is_transacted: whether tx.select or dtx.select was received.
        is_distributed: whether dtx.select was.
        has_worked: whether something was published or consumed here.
        current_queue: the queue last declared here: the user sets it after the declare.
        may_deliver: whether the peer accepts contents (channel.flow).
        consumers: the tags of the consumers made here.
        consumer_serial: the number in the last generated tag.
        progress_at: time of the beginning of the incoming content, or of its last progress, in
            seconds of the monotonic clock; see `PROGRESS_OCTETS`.
    """

    __slots__ = (
        "_addresses",
        "_awaited",
        "_begun",
        "_content",
        "_held",
        "_left",
        "_method",
        "_owner",
        "_progress",
        "_sending",
        "_streams",
        "_tags",
        "confirms",
        "consumer_serial",
        "consumers",
        "context",
        "current_queue",
        "has_worked",
        "is_distributed",
        "is_transacted",
        "may_deliver",
        "number",
        "progress_at",
        "state",
        "unacknowledged",
        "unconfirmed",
    )

    def __init__(self, owner: ChannelOwner, number: int) -> None:
        self._owner = owner
        self.number = number
        self.state = ChannelState.OPENING
        self.context: object = None
        self.unacknowledged: DeliveryTags[object] = DeliveryTags()
        self.unconfirmed: DeliveryTags[object] | None = None
        self.confirms: ConfirmNumbers | None = None
        self.is_transacted = False
        self.is_distributed = False
        self.has_worked = False
        self.current_queue: str | None = None
        self.may_deliver = True
        self.consumers: set[str] = set()
        self.consumer_serial = 0
        # Outstanding replies of the peer.
        self._awaited: list[frozenset[int]] = []
        # The incoming content: its method, until its header is received; then the remaining octets.
        self._method: AmqpMethod | None = None
        self._content: Content | None = None
        self._left = 0
        # Octets of the method and the properties of an unfinished content.
        self._begun = 0
        self._streams = False
        self.progress_at = 0.0
        self._progress = 0
        # Remaining octets of the outgoing content, and frames that wait for its end.
        self._sending = 0
        self._held: list[bytes] = []
        self._tags: dict[str, bytes] = {}
        self._addresses: dict[tuple[str, str], bytes] = {}

    def __repr__(self) -> str:
        return f"<Channel {self.number} {self.state.name}>"

    @property
    def is_open(self) -> bool:
        """Whether operations are possible."""
        return self.state is ChannelState.OPEN

    @property
    def is_in_parts(self) -> bool:
        """Whether the incoming content is passed on in parts."""
        return self._content is not None and self._streams

    @property
    def unfinished_octets(self) -> int:
        """Octets in memory of the incoming content."""
        content = self._content
        if content is None or self._streams:
            return self._begun
        return self._begun + content.size - self._left

    def restart_progress(self, now: float) -> None:
        """Restart the time without progress of the incoming content."""
        self.progress_at = now
        self._progress = 0

    @property
    def body_left(self) -> int:
        """Remaining octets of the outgoing content (`send_body`)."""
        return self._sending

    @property
    def held_frames(self) -> int:
        """Frames that wait for the end of the outgoing content."""
        return len(self._held)

    # ------------------------------------------------------------------- opening and closing

    def open_ok(self) -> None:
        """Answer the channel.open of `ChannelAsked`.

        Does nothing if the channel has ended since, because of frames that the client sent ahead.

        Raises:
            LocalProtocolError: there is nothing to answer.
        """
        if self.state is ChannelState.OPEN or self._owner.role != "server":
            raise LocalProtocolError(f"{self!r}: no channel.open to answer")
        if self.state is not ChannelState.OPENING:
            return
        self.state = ChannelState.OPEN
        channel_id = f"{self._owner.connection_id}/{self.number}".encode()
        self._write_method(ChannelOpenOk(channel_id=channel_id))

    def close(self, code: ReplyCode, text: str, method: AmqpMethod | None = None) -> None:
        """Close the channel, unless it is not open.

        An outgoing content is given up, and the output that waits for it.

        Args:
            code: the reason.
            text: the reason as text; truncated to fit.
            method: the method that caused it (09-CHAN-16), None for none (09-W-60).
        """
        if self.state is not ChannelState.OPEN and self.state is not ChannelState.OPENING:
            return
        self.state = ChannelState.CLOSING
        self._part()
        self._awaited.clear()
        self._write_method(
            ChannelClose(
                reply_code=code,
                reply_text=fit_reply_text(text),
                class_id=method.traits.class_id if method else 0,
                method_id=method.traits.method_id if method else 0,
            )
        )

    def fail(self, code: ReplyCode, text: str, method: AmqpMethod | None = None) -> None:
        """Refuse a request of the peer: close channel or connection, by the code's scope."""
        if code.scope is ReplyScope.CHANNEL:
            self.close(code, text, method)
        elif self.state is ChannelState.OPEN:
            self._owner.close(code, text, method)

    def close_ok(self) -> None:
        """Answer the peer's close, once everything on the channel has ended; this frees the number.

        Raises:
            LocalProtocolError: there is no close to answer.
        """
        if self.state is not ChannelState.ANSWER_DUE:
            raise LocalProtocolError(f"{self!r}: no close to answer")
        self.state = ChannelState.CLOSED
        self._write_method(ChannelCloseOk())
        self._owner.channel_is_free(self)

    def _part(self) -> None:
        """Drop the state that an ended channel does not need: unfinished contents, consumers."""
        self._owner.release_partial(self)
        self._sending = 0
        self._held.clear()
        self._method = self._content = None
        for tag in self.consumers:
            self._owner.consumer_channels.pop(tag, None)
        self.consumers.clear()
        self._tags.clear()

    # --------------------------------------------------------------------------- methods

    def send(self, method: AmqpMethod) -> None:
        """Send a method without content.

        Raises:
            LocalProtocolError: the channel is not open, the peer has the wrong role for the method,
                this version lacks it, or a value does not fit.
            FrameTooLargeError: it does not fit into a frame.
        """
        self._check_open()
        traits = method.traits
        if traits.has_content or traits.class_id in _NOT_SENT:
            raise LocalProtocolError(f"{traits.name} has an operation of its own")
        if not (traits.to_client if self._owner.role == "server" else traits.to_server):
            raise LocalProtocolError(f"a {self._owner.role} does not send {traits.name}")
        self._write_method(method)
        if traits.replies and traits.class_id != MESSAGE and not getattr(method, "nowait", False):
            self._awaited.append(traits.replies)
        if isinstance(method, ConfirmSelect) and self.unconfirmed is None:
            self.unconfirmed = DeliveryTags()

    def flow(self, active: bool) -> None:
        """Ask the peer to send contents, or to stop (09-CHAN-12)."""
        self._check_open()
        self._write_method(ChannelFlow(active=active))
        self._awaited.append(ChannelFlow.traits.replies)

    def queue_name(self, name: str, method: AmqpMethod) -> str | None:
        """Return the queue for a method: the one last declared if its name is empty.

        Args:
            name: the name as received.
            method: the method.

        Returns:
            The name; None if there is none, and channel or connection have been closed for that.
        """
        if name:
            return name
        if self.current_queue is None:
            code = Violation.NO_QUEUE_DECLARED.code(self._owner.version)
            self.fail(code, "no queue was declared on this channel", method)
        return self.current_queue

    @property
    def largest_method(self) -> int:
        """Octets of the largest method frame that the peer takes, without what frames it."""
        return self._owner.output.largest_payload

    def check_fits(self, method: AmqpMethod, property_octets: bytes = b"") -> None:
        """Check that a method, and a content header with these properties, can be sent.

        Raises:
            FrameTooLargeError: one of them does not fit into a frame.
        """
        output = self._owner.output
        output.check("a method", len(encode_method(method, self._owner.version)))
        output.check("a content header", 12 + len(property_octets))

    def cancel_consumer(self, tag: str) -> None:
        """Server: notify the client that a consumer was ended by the server (basic.cancel).

        Only to clients with the capability consumer_cancel_notify.
        """
        self.send(BasicCancel(consumer_tag=tag, nowait=True))
        self.forget_consumer(tag)

    def forget_consumer(self, tag: str) -> None:
        """End a consumer: its tag may be used again."""
        self.consumers.discard(tag)
        self._tags.pop(tag, None)
        if self._owner.consumer_channels.get(tag) is self:
            del self._owner.consumer_channels[tag]

    # -------------------------------------------------------------------------- contents

    def deliver(
        self,
        consumer_tag: str,
        exchange: str,
        routing_key: str,
        property_octets: bytes,
        parts: Sequence[bytes],
        *,
        redelivered: bool = False,
        needs_ack: bool = True,
        context: object = None,
        size: int | None = None,
    ) -> int:
        """Server: send basic.deliver with its content.

        Args:
            consumer_tag: the consumer's.
            exchange: the exchange of the publish.
            routing_key: its routing key.
            property_octets: flags and values.
            parts: the body, or its beginning.
            redelivered: whether it was delivered before.
            needs_ack: False for a consumer with no-ack.
            context: returned when the delivery is acknowledged.
            size: octets of the whole body, if ``parts`` are only its beginning; `send_body` then
                takes the rest.

        Returns:
            The delivery tag.

        Raises:
            LocalProtocolError: the channel is not open, the peer has stopped contents, or another
                content is unfinished.
            FrameTooLargeError: method or properties do not fit into a frame; no tag was used.
        """
        if self.state is not ChannelState.OPEN or not self.may_deliver or self._sending:
            self._check_contents()
        tags = self.unacknowledged
        output = self._owner.output
        number = self.number
        tag_octets = self._tags.get(consumer_tag)
        if tag_octets is None:
            tag_octets = self._tags[consumer_tag] = shortstr(consumer_tag)
        address = self._addresses.get((exchange, routing_key))
        if address is None:
            if len(self._addresses) >= MOST_ADDRESSES:
                self._addresses.clear()
            address = shortstr(exchange) + shortstr(routing_key)
            self._addresses[exchange, routing_key] = address
        method_size = 13 + len(tag_octets) + len(address)
        header_size = 12 + len(property_octets)
        most = output.largest_payload
        if method_size > most or header_size > most:
            output.check("a method", method_size)
            output.check("a content header", header_size)
        there = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        if size is not None and size < there:
            raise LocalProtocolError(f"{there} octets of a body of {size}")
        tag = tags.issue(context) if needs_ack else tags.issue_settled()
        head = b"".join(
            (
                _DELIVER_HEAD.pack(1, number, method_size, _DELIVER),
                tag_octets,
                _DELIVER_TAG.pack(tag, redelivered),
                address,
                _HEADER.pack(
                    b"\xce", 2, number, header_size, _BASIC, 0, there if size is None else size
                ),
                property_octets,
            )
        )
        output.frames += 2
        if len(parts) == 1 and 0 < there <= most:
            output.frames += 1
            output.write((head + _BODY.pack(b"\xce", 3, number, there), parts[0], b"\xce"))
        else:
            output.write((head + b"\xce",))
            if there:
                output.write(output.body_frames(number, parts))
        if size is not None:
            self._sending = size - there
        return tag

    @property
    def largest_burst_body(self) -> int:
        """Octets of the largest body for `deliver_burst`."""
        return min(ALONE - 1, self._owner.output.largest_payload)

    def deliver_burst(
        self, consumer_tag: str, contents: Sequence[OutgoingContent], *, needs_ack: bool = True
    ) -> None:
        """Server: send a basic.deliver for each of several contents, one after the other.

        Octets shared by the frames of contents with one head and bodies of one size are made once.

        Args:
            consumer_tag: the consumer's.
            contents: none with an empty body, or a larger one than `largest_burst_body`.
            needs_ack: False for a consumer with no-ack.

        Raises:
            LocalProtocolError: the channel is not open, the peer has stopped contents, or another
                content is unfinished.
            FrameTooLargeError: properties do not fit into a frame; earlier contents were sent.
        """
        self._check_contents()
        tags = self.unacknowledged
        output = self._owner.output
        number = self.number
        tag_octets = shortstr(consumer_tag)
        pack = _DELIVER_TAG.pack
        pieces: list[bytes] = []
        known = None
        size = sent = 0
        tag = tags.last
        middle = joint = b""
        try:
            for head, body, redelivered, _ in contents:
                if head is not known or len(body) != size:
                    size = len(body)
                    address = shortstr(head.exchange) + shortstr(head.routing_key)
                    header_size = 12 + len(head.property_octets)
                    output.check("a content header", header_size)
                    known = head
                    method_size = 13 + len(tag_octets) + len(address)
                    beginning = _DELIVER_HEAD.pack(1, number, method_size, _DELIVER)
                    joint = b"\xce" + beginning + tag_octets  # with the end of the frame before it
                    middle = b"".join(
                        (
                            address,
                            _HEADER.pack(b"\xce", 2, number, header_size, _BASIC, 0, size),
                            head.property_octets,
                            _BODY.pack(b"\xce", 3, number, size),
                        )
                    )
                tag += 1
                pieces += (joint, pack(tag, redelivered), middle, body)
                sent += 1
        finally:
            if sent:
                if needs_ack:
                    tags.issue_run([each[3] for each in contents[:sent]])
                else:
                    tags.last = tag
                pieces[0] = pieces[0][1:]  # nothing is before the first
                pieces.append(b"\xce")
                output.write_small(pieces, 3 * sent)

    def get_ok(
        self,
        exchange: str,
        routing_key: str,
        message_count: int,
        property_octets: bytes,
        parts: Sequence[bytes],
        *,
        redelivered: bool = False,
        needs_ack: bool = True,
        context: object = None,
        size: int | None = None,
    ) -> int:
        """Server: answer basic.get with a message; see `deliver`.

        Args:
            message_count: number of messages left in the queue (09-BASIC-48).
        """
        self._check_contents()
        tags = self.unacknowledged
        method = BasicGetOk(
            delivery_tag=tags.last + 1,
            redelivered=redelivered,
            exchange=exchange,
            routing_key=routing_key,
            message_count=message_count,
        )
        self.send_content(method, property_octets, parts, size)
        return tags.issue(context) if needs_ack else tags.issue_settled()

    def return_content(
        self,
        publish: Content,
        code: ReplyCode,
        text: str,
        parts: Sequence[bytes] | None = None,
        size: int | None = None,
    ) -> None:
        """Server: return a publish that could not be routed or delivered (return of its class).

        Args:
            publish: the publish.
            code: no-route or no-consumers.
            text: the reason as text.
            parts: its body, if it came in parts, or the beginning of it.
            size: octets of the whole body, if ``parts`` are only its beginning.
        """
        method = publish.method
        assert isinstance(method, BasicPublish | FilePublish | StreamPublish)
        returned = _RETURNS[type(method)](
            reply_code=code,
            reply_text=fit_reply_text(text),
            exchange=method.exchange,
            routing_key=method.routing_key,
        )
        self.send_content(
            returned, publish.property_octets, publish.parts if parts is None else parts, size
        )

    def publish(
        self,
        method: BasicPublish,
        property_octets: bytes,
        parts: Sequence[bytes],
        context: object = None,
        size: int | None = None,
    ) -> int:
        """Client: send basic.publish with its content.

        Returns:
            The number for its confirm; 0 without confirm mode.
        """
        self.send_content(method, property_octets, parts, size)
        return 0 if self.unconfirmed is None else self.unconfirmed.issue(context)

    def send_content(
        self,
        method: AmqpMethod,
        property_octets: bytes,
        parts: Sequence[bytes],
        size: int | None = None,
    ) -> None:
        """Send a method with its content.

        Args:
            method: a method with content.
            property_octets: flags and values.
            parts: the body, or its beginning.
            size: octets of the whole body, if ``parts`` are only its beginning.

        Raises:
            LocalProtocolError: the channel is not open, the peer has stopped contents, another
                content is unfinished, or a value does not fit.
            FrameTooLargeError: method or properties do not fit into a frame.
        """
        self._check_contents()
        traits = method.traits
        owner = self._owner
        if not traits.has_content:
            raise LocalProtocolError(f"{traits.name} has no content")
        if not (traits.to_client if owner.role == "server" else traits.to_server):
            raise LocalProtocolError(f"a {owner.role} does not send {traits.name}")
        there = sum(map(len, parts))
        if size is not None and size < there:
            raise LocalProtocolError(f"{there} octets of a body of {size}")
        payload = encode_method(method, owner.version)
        owner.output.write(
            owner.output.content_frames(
                self.number,
                payload,
                traits.class_id,
                property_octets,
                there if size is None else size,
                parts,
            )
        )
        if size is not None:
            self._sending = size - there

    def send_body(self, parts: Sequence[bytes]) -> None:
        """Send more of the body of the outgoing content.

        Raises:
            LocalProtocolError: the channel is not open, or there is more than announced.
        """
        self._check_open()
        size = sum(map(len, parts))
        if size > self._sending:
            raise LocalProtocolError(f"{size} octets where {self._sending} are missing")
        output = self._owner.output
        output.write(output.body_frames(self.number, parts))
        self._sending -= size
        if not self._sending:
            self._release()

    def cut_body(self) -> None:
        """Server, 0-9: end the outgoing content without the rest of it (09-BASIC-54).

        Raises:
            LocalProtocolError: there is no outgoing content, or the client speaks 0-9-1, which does
                not have this: send the rest.
        """
        if not self._sending or self._owner.version is not ProtocolVersion.V0_9:
            raise LocalProtocolError(f"{self!r}: no content to cut short")
        output = self._owner.output
        output.write((output.empty_body(self.number),))
        self._sending = 0
        self._release()

    # -------------------------------------------------------------------------- confirms

    def confirm(self, first: int, last: int) -> None:
        """Server: confirm a run of publishes (09-W-73), with as few acks as possible.

        Raises:
            LocalProtocolError: some of them do not wait for a confirm.
        """
        for tag, multiple in self._confirm(first, last):
            self._write_method(BasicAck(delivery_tag=tag, multiple=multiple))

    def reject(self, first: int, last: int) -> None:
        """Server: reject a run of publishes (basic.nack).

        Raises:
            LocalProtocolError: some of them do not wait for a confirm.
        """
        for tag, multiple in self._confirm(first, last):
            self._write_method(BasicNack(delivery_tag=tag, multiple=multiple))

    def _confirm(self, first: int, last: int) -> list[tuple[int, bool]]:
        self._check_open()
        if self.confirms is None:
            raise LocalProtocolError(f"{self!r}: not in confirm mode")
        try:
            return self.confirms.confirm(first, last)
        except ValueError as error:
            raise LocalProtocolError(str(error)) from error

    # ---------------------------------------------------------------------------- writing

    def _check_open(self) -> None:
        if self.state is not ChannelState.OPEN:
            raise LocalProtocolError(f"{self!r} is not open")

    def _check_contents(self) -> None:
        self._check_open()
        if not self.may_deliver:
            raise LocalProtocolError(f"{self!r}: the peer has stopped contents")
        if self._sending:
            raise LocalProtocolError(f"{self!r}: a content is not complete")

    def _write_method(self, method: AmqpMethod) -> None:
        owner = self._owner
        frame = owner.output.method_frame(self.number, encode_method(method, owner.version))
        if self._sending:
            self._held.append(frame)
        else:
            owner.output.write((frame,))

    def _release(self) -> None:
        held, self._held = self._held, []
        self._owner.output.write(held)


_RETURNS: Final[dict[type[AmqpMethod], type[BasicReturn | FileReturn | StreamReturn]]] = {
    BasicPublish: BasicReturn,
    FilePublish: FileReturn,
    StreamPublish: StreamReturn,
}
"""By which method each class returns a publish."""
MESSAGE: Final = MessageTransfer.traits.class_id
"""The class whose answers the user matches with requests (09: part 3.9)."""
_NOT_SENT: Final = frozenset((10, 20))
"""Classes whose methods only the engine uses."""

__all__ = [
    "MESSAGE",
    "MOST_ADDRESSES",
    "PROGRESS_OCTETS",
    "Channel",
    "ChannelOwner",
    "ChannelState",
]
