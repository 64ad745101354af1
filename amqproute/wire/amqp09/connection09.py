# SPDX-License-Identifier: Apache-2.0
"""The engine for 0-9 and 0-9-1: one connection, either role.

`Connection09` is an `amqproute.wire.engine.Engine`: octets in, events out (`protocol_events`),
method calls in, octets out. The package's docstring has the theory of operation.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from typing import Final

from amqproute.errors import LocalProtocolError
from amqproute.wire import input_cost
from amqproute.wire.amqp09.arguments import (
    LONGEST_REMEMBERED,
    MOST_REMEMBERED,
    decode_method,
    decode_properties,
    encode_method,
    read_ack,
    read_publish,
)
from amqproute.wire.amqp09.channel import MESSAGE, PROGRESS_OCTETS, Channel, ChannelState
from amqproute.wire.amqp09.connection_settings import Connection09Settings
from amqproute.wire.amqp09.contents import Content, Publish
from amqproute.wire.amqp09.field_tables import FieldTable
from amqproute.wire.amqp09.frame_output import BODY, HEADER, HEARTBEAT, HEARTBEAT_FRAME, METHOD
from amqproute.wire.amqp09.handshake import (
    BEATING,
    MOST_WAITING,
    USERS_TURN,
    Handshake,
    HandshakeStage,
)
from amqproute.wire.amqp09.methods import (
    METHODS,
    REPLIES,
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicGet,
    BasicNack,
    BasicProperties,
    BasicPublish,
    BasicQpidRecoverSync,
    BasicRecover,
    BasicRecoverSync,
    BasicReject,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOk,
    ChannelOpen,
    ChannelOpenOk,
    ChannelPing,
    ChannelPong,
    ChannelResume,
    ConfirmSelect,
    DtxSelect,
    DtxStart,
    FileCancel,
    FileConsume,
    FilePublish,
    FileStage,
    MessageCancel,
    MessageConsume,
    MessageGet,
    MessageRecover,
    MessageTransfer,
    StreamCancel,
    StreamConsume,
    StreamPublish,
    TunnelRequest,
    TxCommit,
    TxRollback,
    TxSelect,
)
from amqproute.wire.amqp09.protocol_events import (
    AckReceived,
    ChannelAsked,
    ChannelCloseAnswered,
    ChannelEnded,
    ChannelOpened,
    ConnectionEnded,
    ContentPartReceived,
    ContentsHeld,
    ContentsReceived,
    DeliveriesSettled,
    FlowChanged,
    MethodReceived,
    ProtocolEvent,
    PublishesReceived,
    PublishesSettled,
)
from amqproute.wire.amqp09.replies import ReplyScope
from amqproute.wire.amqp09.shapes import AmqpMethod, ContentProperties
from amqproute.wire.amqp09.tags import ConfirmNumbers
from amqproute.wire.amqp09.versions import ProtocolVersion
from amqproute.wire.amqp09.violations import Violation, ViolationError
from amqproute.wire.engine import Engine

METHOD_WORK: Final = 50
"""Units of work of a method for the user (see `amqproute.wire.input_cost`)."""
CHANNEL_WORK: Final = 100
"""Units of work of opening or closing a channel."""
BEGUN_WEIGHT: Final = 32
"""Octets of memory for each octet of decoded properties of an unfinished content."""
LEAST_HELD: Final = 65_536
"""Change in octets of input in memory that is not reported; see `ContentsHeld`."""
SMALL_PART: Final = 512
"""Parts of a body smaller than this are joined: a list of single octets would take fifty times
their memory."""

_HEAD = struct.Struct(">BHI")
_CONTENT = struct.Struct(">BHIHHQ")
_CONTENT_HEADER = struct.Struct(">HHQ")
_FRAME_END: Final = 0xCE
_TYPES: Final = frozenset((METHOD, HEADER, BODY, HEARTBEAT))
_ACK: Final = BasicAck.traits.code
_NACK: Final = BasicNack.traits.code
_REJECT: Final = BasicReject.traits.code
_SETTLING: Final = frozenset((_ACK, _NACK, _REJECT))
_PUBLISH: Final = BasicPublish.traits.code
_BASIC: Final = BasicPublish.traits.class_id
_ACK_OCTETS: Final = BasicAck.traits.code.to_bytes(4, "big")
_PUBLISH_OCTETS: Final = BasicPublish.traits.code.to_bytes(4, "big")
_TAG = struct.Struct(">Q")
_OPEN: Final = ChannelOpen.traits.code
_CLOSE: Final = ChannelClose.traits.code
_CLOSE_OK: Final = ChannelCloseOk.traits.code
_TAKING: Final = (
    frozenset(HandshakeStage) - USERS_TURN - {HandshakeStage.ANSWER_DUE, HandshakeStage.OVER}
)
_BROKEN: Final = frozenset((Violation.FRAME_END, Violation.FRAME_TYPE, Violation.FRAME_SIZE))
_CLOSE_OK_FRAME: Final = bytes.fromhex("01 0000 00000004 000a0033 ce")
_NO_LIMIT: Final = 1 << 62


class Connection09(Handshake):
    """One connection in 0-9 or 0-9-1, as an engine.

    Attributes:
        settings: its settings.
        version: the version in use; a server knows it after the header.
        peer_properties: the properties of the peer's start or start-ok.
        channel_max: the highest channel, as agreed.
        frame_max: octets of the largest frame, as agreed.
        heartbeat: seconds, as agreed; 0 for none.
        consumer_channels: the channel of each consumer, where tags are unique per connection.
        partial_octets: the octets of unfinished contents that are not passed on in parts.
        frames_in: frames received.
        contents_in: complete contents received.
    """

    def __init__(self, settings: Connection09Settings) -> None:
        super().__init__(settings)
        self.consumer_channels: dict[str, Channel] = {}
        self.partial_octets = 0
        self.frames_in = 0
        self.contents_in = 0
        self._channels: dict[int, Channel] = {}
        # Channels that have ended with the connection, and are not reported yet.
        self._ended: list[Channel] = []
        # Octets of methods and properties of unfinished contents.
        self._begun = 0
        # The channels of these contents.
        self._unfinished: dict[Channel, None] = {}
        # Octets of input in memory, as last reported.
        self._reported_held = 0
        self._data = b""
        self._pos = 0
        self._partial = bytearray()
        self._need = 0
        self._more = False
        self._work_limit = _NO_LIMIT
        # The stream is broken: frame boundaries are lost.
        self._deaf = False
        self._fruitless = 0
        self._fruitless_since = 0.0
        # By channel, the event that later ones may be merged into.
        self._runs: dict[int, ProtocolEvent] = {}
        self._publish_methods: dict[bytes, BasicPublish] = {}
        self._basic_properties: dict[bytes, BasicProperties] = {}
        self._tables: dict[bytes, FieldTable] = {}

    def __repr__(self) -> str:
        return f"<Connection09 {self.role} {self.version.value} {self._stage.name}>"

    @property
    def channels(self) -> tuple[Channel, ...]:
        """All channels whose number is in use."""
        return tuple(self._channels.values())

    # --------------------------------------------------------------------- the engine's face

    @property
    def has_input(self) -> bool:
        """See `amqproute.wire.engine.Engine`."""
        return self._more and self._stage in _TAKING

    @property
    def held_octets(self) -> int:
        """Octets of the peer's input in memory."""
        return self.partial_octets + self.unread_octets

    @property
    def unread_octets(self) -> int:
        """Octets of it that are not a complete frame, or have not been processed."""
        return len(self._partial) + len(self._data) - self._pos

    @property
    def unfinished(self) -> Collection[Channel]:
        """The channels with an unfinished content."""
        return self._unfinished

    def receive_data(
        self, data: bytes, now: float, budget: int | None = None
    ) -> list[ProtocolEvent]:
        """See `amqproute.wire.engine.Engine`."""
        self._begin(now)
        if data:
            self._last_received = now
        self._work_limit = _NO_LIMIT if budget is None else self.work + budget
        if self._stage is HandshakeStage.OVER or self._stage is HandshakeStage.ANSWER_DUE:
            return self._hand_over()
        self._feed(data)
        if self._stage in USERS_TURN:
            self._more = True
            if self.held_octets > MOST_WAITING:
                self._drop(0, "too much was sent ahead")
                self._forget_input()
            return self._hand_over()
        if self._stage is HandshakeStage.CLOSING:
            self._unheard += len(data)
            if self._unheard > input_cost.MOST_UNHEARD:
                self._drop(0, "the peer does not answer our close, and goes on sending")
                return self._hand_over()
            if self._deaf:
                self._forget_input()
                if data.endswith(_CLOSE_OK_FRAME):
                    self._on_answer(_CLOSE_OK_FRAME[7:11])
                return self._hand_over()
        if self._stage is HandshakeStage.HEADER and not self._take_header():
            return self._hand_over()
        self._take_frames()
        return self._hand_over()

    def receive_eof(self, now: float) -> list[ProtocolEvent]:
        """See `amqproute.wire.engine.Engine`."""
        self._begin(now)
        is_closing = self._stage is HandshakeStage.CLOSING
        self._lost(f"the connection is gone without a close{'-ok' if is_closing else ''}")
        self._forget_input()
        return self._hand_over()

    def tick(self, now: float) -> list[ProtocolEvent]:
        """See `amqproute.wire.engine.Engine`."""
        self._begin(now)
        if self._stage is HandshakeStage.OVER:
            return self._hand_over()
        if self._close_waits:
            self._close_waits = False
            self._close_deadline = now + self.settings.close_timeout
        if self._close_deadline is not None and now >= self._close_deadline:
            if self._stage is HandshakeStage.ANSWER_DUE:
                self.close_ok()
            else:
                self._drop(*self._reason)
        elif self._handshake_deadline is not None and now >= self._handshake_deadline:
            self._drop(0, "not open within the handshake time")
        elif self.heartbeat and self._stage in BEATING:
            if self._is_heard and now >= self._last_received + 2 * self.heartbeat:
                self._drop(0, f"silent for two intervals of {self.heartbeat} s")
            elif now >= self._last_sent + self.heartbeat / 2:
                self.output.write((HEARTBEAT_FRAME,))
                self.output.frames += 1
                self._last_sent = now
        return self._hand_over()

    # -------------------------------------------------------------------------------- verbs

    def open_channel(self) -> Channel:
        """Client: open the lowest free channel.

        Raises:
            LocalProtocolError: the connection is not open, or all channels are in use.
        """
        if self._stage is not HandshakeStage.OPEN or self.role != "client":
            raise LocalProtocolError(f"{self!r} opens no channel")
        number = next((n for n in range(1, self.channel_max + 1) if n not in self._channels), None)
        if number is None:
            raise LocalProtocolError(f"all {self.channel_max} channels are taken")
        channel = self._channels[number] = Channel(self, number)
        payload = encode_method(ChannelOpen(), self.version)
        self.output.write((self.output.method_frame(number, payload),))
        return channel

    def hand_up(self, channel: Channel, now: float) -> list[ProtocolEvent]:
        """Pass on an unfinished content now, in parts, as if it had more than ``part_from`` octets.

        Args:
            channel: the channel of `unfinished`.
            now: the time.
        """
        self._begin(now)
        content = channel._content
        if content is not None and not channel._streams and channel.is_open:
            self._hand_up_unfinished(channel, content)
        return self._hand_over()

    def channel_is_free(self, channel: Channel) -> None:
        """See `amqproute.wire.amqp09.channel.ChannelOwner`."""
        if self._channels.get(channel.number) is channel:
            del self._channels[channel.number]

    # -------------------------------------------------------------------------------- input

    def _emit(self, event: ProtocolEvent) -> None:
        """Report an event that ends the merging of earlier ones."""
        self._runs.clear()
        self._events.append(event)

    def _hand_over(self) -> list[ProtocolEvent]:
        """Return the events, and forget them."""
        if self._stage is HandshakeStage.OVER:
            self._forget_input()
        events, self._events = self._events, []
        self._runs.clear()
        if self.settings.reports_input and self._stage is HandshakeStage.OPEN:
            held, reported = self.held_octets, self._reported_held
            if held != reported and (held > LEAST_HELD or reported > LEAST_HELD):
                self._reported_held = held
                events.append(ContentsHeld(held))
        return events

    def _begin(self, now: float) -> None:
        self._now = now
        if self._ends_due:
            self._ends_due = False
            self._end_channels()

    def _feed(self, data: bytes) -> None:
        """Take octets. Unread ones are in _data, or, for an incomplete frame, in _partial."""
        if self._partial:
            self._partial += data
            if len(self._partial) >= self._need:
                self._data = bytes(self._partial)
                self._pos = 0
                self._partial = bytearray()
        elif self._pos < len(self._data):
            if data:
                self._data = self._data[self._pos :] + data
                self._pos = 0
        else:
            self._data = data
            self._pos = 0

    def _wait(self, need: int) -> None:
        """Keep the rest of the input until it has this many octets."""
        self._need = need
        self._partial += memoryview(self._data)[self._pos :]
        self._data = b""
        self._pos = 0

    def _forget_input(self) -> None:
        self._data = b""
        self._pos = 0
        self._partial = bytearray()
        self._more = False
        self.partial_octets = 0
        self._begun = 0
        self._unfinished = {}
        self._publish_methods = {}
        self._basic_properties = {}
        self._tables = {}

    def _take_header(self) -> bool:
        """Take the first octets; False while more are needed, or after the end."""
        if self.role == "server":
            self._pos += self._take_client_header(self._data[self._pos : self._pos + 8])
        elif self._data and not self._sees_server_header(self._data[self._pos :]):
            return True
        if self._stage is HandshakeStage.OVER:
            self._forget_input()
        elif self._stage is HandshakeStage.HEADER and self._data:
            self._wait(len(self._data) - self._pos + 1)
        return self._stage is HandshakeStage.START_OK

    def _take_frames(self) -> None:
        data = self._data
        pos = self._pos
        end = len(data)
        self._more = False
        if self._partial:
            return
        stage = self._stage
        limit = self._work_limit
        unpack = _HEAD.unpack_from
        channels = self._channels
        methods = self._publish_methods
        try:
            while pos < end:
                if self.work >= limit:
                    self._more = True
                    return
                if end - pos < 7:
                    self._wait(7)
                    return
                kind, number, size = unpack(data, pos)
                if kind not in _TYPES:
                    raise ViolationError(Violation.FRAME_TYPE, f"a frame of type {kind}")
                if size > self._largest_in:
                    raise ViolationError(
                        Violation.FRAME_SIZE,
                        f"a frame of {size + 8} octets where {self.frame_max} are agreed",
                    )
                after = pos + 8 + size
                if after > end:
                    self._wait(8 + size)
                    return
                if data[after - 1] != _FRAME_END:
                    raise ViolationError(Violation.FRAME_END, "a frame without its end")
                self._pos = after
                self.frames_in += 1
                self.work += input_cost.FRAME
                if kind == METHOD:
                    payload = data[pos + 7 : after - 1]
                    if number:
                        method = methods.get(payload)
                        if method is None and payload[:4] == _PUBLISH_OCTETS:
                            method = self._read_publish(payload)
                        if method is not None:
                            channel = channels.get(number)
                            if channel is not None:
                                start = pos
                                pos = self._whole_publish(channel, method, data, after, end)
                                if pos:
                                    pos = self._publishes_alike(channel, data, start, pos, end)
                                    self._pos = pos
                                    continue
                        elif size == 13 and payload[:4] == _ACK_OCTETS and not payload[12]:
                            channel = channels.get(number)
                            if channel is not None and self._one_ack(channel, payload):
                                pos = after
                                continue
                        self._on_method(number, payload)
                    elif self._stage is HandshakeStage.CLOSING:
                        self._on_answer(payload)
                    else:
                        self._on_connection_method(payload)
                elif self._stage is not HandshakeStage.CLOSING:
                    if kind == HEARTBEAT:
                        if number or size:
                            raise ViolationError(
                                Violation.HEARTBEAT_FRAME, "a heartbeat on a channel, or with data"
                            )
                        self._count_fruitless()
                    else:
                        self._on_content_frame(kind, number, data, pos + 7, after - 1)
                pos = after
                if self._stage is not stage:
                    stage = self._stage
                    if stage not in _TAKING:
                        self._more = pos < end
                        return
            self._data = b""
            self._pos = 0
        except ViolationError as fault:
            self._deaf = fault.violation in _BROKEN
            self._violated(fault, None)

    def _read_publish(self, payload: bytes) -> BasicPublish | None:
        """Server: decode a publish, and cache it; None for a faulty one."""
        if self.role != "server" or self._stage is not HandshakeStage.OPEN:
            return None
        publish = read_publish(payload, self.version)
        if publish is not None and len(payload) <= LONGEST_REMEMBERED:
            if len(self._publish_methods) >= MOST_REMEMBERED:
                self._publish_methods.clear()
            self._publish_methods[payload] = publish
        return publish

    def _whole_publish(
        self, channel: Channel, method: BasicPublish, data: bytes, pos: int, end: int
    ) -> int:
        """Take header and body of a publish, if complete.

        Returns:
            Their end; 0 if they must be processed frame by frame, faults included.
        """
        if (
            channel._method is not None
            or channel._content is not None
            or channel.state is not ChannelState.OPEN
            or end - pos < 22
        ):
            return 0
        kind, number, size, class_id, weight, length = _CONTENT.unpack_from(data, pos)
        body_at = pos + 8 + int(size)
        if (
            kind != HEADER
            or number != channel.number
            or class_id != _BASIC
            or weight
            or not 14 <= size <= self._largest_in
            or body_at > end
            or data[body_at - 1] != _FRAME_END
        ):
            return 0
        settings = self.settings
        if length:
            if end - body_at < 8 or length > settings.part_from:
                return 0
            kind, number, size = _HEAD.unpack_from(data, body_at)
            after = body_at + 8 + int(size)
            if (
                kind != BODY
                or size != length
                or number != channel.number
                or size > self._largest_in
                or after > end
                or data[after - 1] != _FRAME_END
                or (settings.max_content and length > settings.max_content)
            ):
                return 0
            parts = [data[body_at + 7 : after - 1]]
            self.frames_in += 2
            self.work += (
                2 * input_cost.FRAME + input_cost.DELIVERY + length // input_cost.OCTETS_PER_UNIT
            )
        else:
            after = body_at
            parts = []
            self.frames_in += 1
            self.work += input_cost.FRAME + input_cost.DELIVERY
        octets = data[pos + 19 : body_at - 1]
        properties = self._basic_properties.get(octets)
        if properties is None:
            try:
                properties = self._decode_basic(octets)
            except ViolationError:
                return 0
        confirms = channel.confirms
        if confirms is None:
            publish = Publish(method, properties, octets, length, parts)
        else:
            confirms.last += 1
            publish = Publish(method, properties, octets, length, parts, confirms.last)
        channel.has_worked = True
        self.contents_in += 1
        run = self._runs.get(number)
        if type(run) is PublishesReceived:
            run.publishes.append(publish)
        else:
            self._join(channel, PublishesReceived(channel, [publish]))
        return after

    def _publishes_alike(
        self, channel: Channel, data: bytes, start: int, pos: int, end: int
    ) -> int:
        """Take complete publishes that differ from the one before in the body's octets alone.

        Their frames up to the body are the same octets, so what was checked of these holds.

        Args:
            channel: the channel of the one before, which was taken just now.
            data: the input.
            start: where that one begins.
            pos: where it ends.
            end: the end of the input.

        Returns:
            The end of the last one.
        """
        whole = pos - start
        run = self._runs.get(channel.number)
        if end - pos < whole or type(run) is not PublishesReceived:
            return pos
        publishes = run.publishes
        last = publishes[-1]
        size = last.size
        frames = data[start : pos - 1 - size]
        if not size or not data.startswith(frames, pos):
            return pos
        method, properties, octets = last.method, last.properties, last.property_octets
        work = 3 * input_cost.FRAME + input_cost.DELIVERY + size // input_cost.OCTETS_PER_UNIT
        most = min((end - pos) // whole, -((self.work - self._work_limit) // work))
        number = last.number
        body_at, frame_end = whole - 1 - size, whole - 1
        count = 0
        while count < most and data.startswith(frames, pos) and data[pos + frame_end] == _FRAME_END:
            if number:
                number += 1
            parts = [data[pos + body_at : pos + frame_end]]
            publishes.append(Publish(method, properties, octets, size, parts, number))
            pos += whole
            count += 1
        if number:
            assert channel.confirms is not None
            channel.confirms.last = number
        self.frames_in += 3 * count
        self.contents_in += count
        self.work += count * work
        return pos

    def _one_ack(self, channel: Channel, payload: bytes) -> bool:
        """Server: take an ack of one delivery; False if it must be processed as usual."""
        if (
            channel._method is not None
            or channel._content is not None
            or channel.state is not ChannelState.OPEN
            or self.role != "server"
        ):
            return False
        tag = _TAG.unpack_from(payload, 4)[0]
        try:
            context = channel.unacknowledged.settle(tag)
        except KeyError:
            return False
        self.work += input_cost.SETTLED
        run = self._runs.get(channel.number)
        if type(run) is DeliveriesSettled and run.settlement is AckReceived.ACKNOWLEDGED:
            run.tags.append(tag)
            run.contexts.append(context)
        else:
            self._join(
                channel, DeliveriesSettled(channel, AckReceived.ACKNOWLEDGED, [tag], [context])
            )
        return True

    def _decode_basic(self, octets: bytes) -> BasicProperties:
        properties = decode_properties(_BASIC, octets, self._tables)
        assert isinstance(properties, BasicProperties)
        self.work += len(octets) // input_cost.DECODED_PER_UNIT
        if len(octets) <= LONGEST_REMEMBERED:
            if len(self._basic_properties) >= MOST_REMEMBERED:
                self._basic_properties.clear()
            self._basic_properties[octets] = properties
        return properties

    def _count_begun(self, channel: Channel, octets: int) -> None:
        """Count octets of an unfinished content, while its channel waits for the rest."""
        channel._begun += octets
        self._begun += octets
        self._unfinished[channel] = None
        channel.progress_at = self._now
        channel._progress = 0
        if self._begun * BEGUN_WEIGHT > self.settings.max_partial:
            raise ViolationError(
                Violation.CONTENTS_BEGUN, f"{self._begun} octets of contents that do not end"
            )

    def _ended_content(self, channel: Channel) -> None:
        if channel._begun:
            self._begun -= channel._begun
            channel._begun = 0
            self._unfinished.pop(channel, None)

    def _join(self, channel: Channel, event: ProtocolEvent) -> None:
        """Report an event that later ones of its channel may be merged into."""
        self._runs[channel.number] = event
        self._events.append(event)

    def _count_fruitless(self) -> None:
        """Count a frame without effect: no client sends thousands of them."""
        if self._now - self._fruitless_since > input_cost.FRUITLESS_SECONDS:
            self._fruitless_since = self._now
            self._fruitless = 0
        self._fruitless += 1
        if self._fruitless > input_cost.FRUITLESS_FRAMES:
            raise ViolationError(
                Violation.FRUITLESS_FRAMES, f"{self._fruitless} frames without effect"
            )

    # ------------------------------------------------------------------------------ contents

    def _on_content_frame(self, kind: int, number: int, data: bytes, at: int, end: int) -> None:
        channel = self._channel(number, "a content frame")
        if channel is None:
            return
        if kind == BODY:
            self._on_body(channel, data, at, end)
            return
        method, channel._method = channel._method, None
        try:
            self._on_header(channel, method, data, at, end)
        except ViolationError as fault:
            self._channel_violated(channel, fault, method)

    def _on_header(
        self, channel: Channel, method: AmqpMethod | None, data: bytes, at: int, end: int
    ) -> None:
        if method is None:
            raise ViolationError(
                Violation.CONTENT_UNEXPECTED
                if channel._content is None
                else Violation.CONTENT_INTERRUPTED,
                "a content header that no method announces",
            )
        if end - at < 14:
            raise ViolationError(Violation.MALFORMED_FRAME, "a content header cut short")
        class_id, weight, size = _CONTENT_HEADER.unpack_from(data, at)
        if class_id != method.traits.class_id:
            raise ViolationError(
                Violation.CONTENT_CLASS,
                f"a content header of class {class_id} behind {method.traits.name}",
            )
        if weight:
            raise ViolationError(Violation.CONTENT_WEIGHT, f"a content of weight {weight}")
        octets = data[at + 12 : end]
        properties: ContentProperties
        if class_id == _BASIC:
            properties = self._basic_properties.get(octets) or self._decode_basic(octets)
        else:
            properties = decode_properties(class_id, octets)
            self.work += len(octets) // input_cost.DECODED_PER_UNIT
        most = self.settings.max_content
        if most and size > most:
            raise ViolationError(
                Violation.CONTENT_TOO_LARGE, f"a body of {size} octets where {most} are taken"
            )
        number = 0
        if type(method) is BasicPublish:
            channel.has_worked = True
            if channel.confirms is not None:
                channel.confirms.last += 1
                number = channel.confirms.last
            content: Content = Publish(method, properties, octets, size, [], number)
        else:
            channel.has_worked |= isinstance(method, StreamPublish | TunnelRequest)
            content = Content(method, properties, octets, size, [])
        self.work += input_cost.DELIVERY
        # What is staged is kept, however far it comes.
        channel._streams = size > self.settings.part_from or type(method) is FileStage
        channel._left = size
        if not size:
            self._complete(channel, content)
            return
        channel._content = content
        self._count_begun(channel, len(octets))
        if channel._streams:
            self._join(channel, ContentPartReceived(channel, content, [], False))

    def _on_body(self, channel: Channel, data: bytes, at: int, end: int) -> None:
        content = channel._content
        if content is None:
            raise ViolationError(
                Violation.CONTENT_UNEXPECTED
                if channel._method is None
                else Violation.CONTENT_INTERRUPTED,
                "a content body where none is due",
            )
        size = end - at
        if size > channel._left:
            raise ViolationError(
                Violation.BODY_TOO_LONG,
                f"{content.size - channel._left + size} octets of a body of {content.size}",
            )
        if not size:
            self._count_fruitless()
            return
        part = data[at:end]
        self.work += size // input_cost.OCTETS_PER_UNIT
        channel._left -= size
        channel._progress += size
        if channel._progress >= PROGRESS_OCTETS:
            channel.restart_progress(self._now)
        if channel._streams:
            self._hand_up(channel, content, [part])
            return
        parts = content.parts
        if size < SMALL_PART and parts and len(parts[-1]) < SMALL_PART:
            parts[-1] += part
        else:
            parts.append(part)
        self.partial_octets += size
        if not channel._left:
            self.partial_octets -= content.size
            channel._content = None
            self._complete(channel, content)
        elif self.partial_octets > self.settings.max_partial:
            self._hand_up_unfinished(channel, content)

    def _hand_up_unfinished(self, channel: Channel, content: Content) -> None:
        """Pass on the received part of a content, and the rest as it arrives."""
        parts, content.parts = content.parts, []
        self.partial_octets -= content.size - channel._left
        channel._streams = True
        self._join(channel, ContentPartReceived(channel, content, [], False))
        self._hand_up(channel, content, parts)

    def _hand_up(self, channel: Channel, content: Content, parts: list[bytes]) -> None:
        is_last = not channel._left
        run = self._runs.get(channel.number)
        if type(run) is ContentPartReceived and run.content is content:
            run.parts += parts
            run.is_last = is_last
        else:
            self._join(channel, ContentPartReceived(channel, content, parts, is_last))
        if is_last:
            channel._content = None
            self._ended_content(channel)
            self.contents_in += 1

    def _complete(self, channel: Channel, content: Content) -> None:
        self._ended_content(channel)
        self.contents_in += 1
        run = self._runs.get(channel.number)
        if isinstance(content, Publish):
            if type(run) is PublishesReceived:
                run.publishes.append(content)
            else:
                self._join(channel, PublishesReceived(channel, [content]))
        elif type(run) is ContentsReceived:
            run.contents.append(content)
        else:
            self._join(channel, ContentsReceived(channel, [content]))

    # ------------------------------------------------------------------------------- methods

    def _channel(self, number: int, what: str) -> Channel | None:
        """Return the channel of a frame, None if the frame is to be skipped."""
        if self._stage is not HandshakeStage.OPEN:
            raise ViolationError(Violation.METHOD_OUT_OF_ORDER, f"{what} in {self._stage.name}")
        if not number:
            raise ViolationError(Violation.CHANNEL_ZERO, f"{what} on channel 0")
        channel = self._channels.get(number)
        if channel is None or channel.state is ChannelState.ANSWER_DUE:
            raise ViolationError(
                Violation.CHANNEL_NOT_OPEN, f"{what} on channel {number}, which is not open"
            )
        return None if channel.state is ChannelState.CLOSING else channel

    def _on_method(self, number: int, payload: bytes) -> None:
        """Handle a method of a channel. A close for it names it, whatever the fault."""
        if self._stage is HandshakeStage.CLOSING:
            return
        if len(payload) < 4:
            raise ViolationError(Violation.MALFORMED_FRAME, "a method frame without its ids")
        code = int.from_bytes(payload[:4], "big")
        try:
            self._take_method(number, code, payload)
        except ViolationError as fault:
            kind = METHODS.get(code)
            method = kind() if kind is not None else None
            self._channel_violated(self._channels.get(number), fault, method)

    def _take_method(self, number: int, code: int, payload: bytes) -> None:
        if code >> 16 == 10:
            raise ViolationError(
                Violation.CONNECTION_METHOD_ON_CHANNEL, f"method {code & 0xFFFF} of connection"
            )
        channel = self._channels.get(number)
        if code == _OPEN and self._stage is HandshakeStage.OPEN:
            self._on_open(number, payload)
            return
        if channel is not None and channel.state is ChannelState.CLOSING:
            self._on_farewell(channel, code)
            return
        channel = self._channel(number, "a method")
        assert channel is not None
        if channel._method is not None or channel._content is not None:
            raise ViolationError(
                Violation.CONTENT_INTERRUPTED, f"a method within a content on channel {number}"
            )
        if code in _SETTLING:
            if self._on_settlement(channel, code, payload):
                return
        elif code == _PUBLISH:
            publish = self._publish_methods.get(payload) or self._read_publish(payload)
            if publish is not None:
                channel._method = publish
                self._count_begun(channel, len(payload))
                return
        method = decode_method(payload, self.version)
        self.work += len(payload) // input_cost.DECODED_PER_UNIT
        self._on_channel_method(channel, method)
        if channel._method is not None:
            self._count_begun(channel, len(payload))

    def _channel_violated(
        self, channel: Channel | None, fault: ViolationError, method: AmqpMethod | None
    ) -> None:
        code = fault.violation.code(self.version)
        if channel is None or code.scope is not ReplyScope.CHANNEL:
            self._violated(fault, method)
            return
        channel.close(code, fault.text, method)
        traits = method.traits if method is not None else None
        self._emit(
            ChannelEnded(
                channel,
                code,
                fault.text,
                traits.class_id if traits else 0,
                traits.method_id if traits else 0,
                fault.violation,
            )
        )

    def _on_settlement(self, channel: Channel, code: int, payload: bytes) -> bool:
        """Handle ack, nack or reject; False if it must be processed as usual."""
        found = read_ack(payload, 0, len(payload))
        if found is None or (code == _REJECT and self.role == "client"):
            return False
        tag, bits = found
        multiple = code != _REJECT and bits & 1 == 1
        is_server = self.role == "server"
        tags = channel.unacknowledged if is_server else channel.unconfirmed
        if tags is None:
            raise ViolationError(Violation.UNASKED_REPLY, "a confirm without confirm mode")
        try:
            if multiple:
                settled = tags.settle_up_to(tag)
            else:
                settled = [(tag, tags.settle(tag))]
        except KeyError:
            raise ViolationError(
                Violation.UNKNOWN_DELIVERY_TAG, f"unknown delivery tag {tag}"
            ) from None
        self.work += input_cost.SETTLED * len(settled)
        if not settled:
            self._count_fruitless()
            return True
        run = self._runs.get(channel.number)
        if not is_server:
            confirmed = code == _ACK
            if type(run) is not PublishesSettled or run.confirmed is not confirmed:
                run = PublishesSettled(channel, confirmed, [], [])
                self._join(channel, run)
            for number, context in settled:
                run.numbers.append(number)
                run.contexts.append(context)
            return True
        if code == _ACK:
            settlement = AckReceived.ACKNOWLEDGED
        elif bits & (2 if code == _NACK else 1):
            settlement = AckReceived.REQUEUED
        else:
            settlement = AckReceived.REJECTED
        if type(run) is not DeliveriesSettled or run.settlement is not settlement:
            run = DeliveriesSettled(channel, settlement, [], [])
            self._join(channel, run)
        run.tags += [number for number, _ in settled]
        run.contexts += [context for _, context in settled]
        return True

    def _on_open(self, number: int, payload: bytes) -> None:
        decode_method(payload, self.version)
        if self.role != "server":
            raise ViolationError(Violation.METHOD_OUT_OF_ORDER, "channel.open to a client")
        channel = self._channels.get(number)
        if channel is not None:
            if channel.state is ChannelState.CLOSING:
                return
            raise ViolationError(Violation.CHANNEL_IN_USE, f"channel {number} is open")
        if number > self.channel_max:
            raise ViolationError(
                Violation.CHANNEL_ABOVE_MAX,
                f"channel {number} where {self.channel_max} is the highest",
            )
        self.work += CHANNEL_WORK
        channel = self._channels[number] = Channel(self, number)
        self._emit(ChannelAsked(channel))

    def _on_farewell(self, channel: Channel, code: int) -> None:
        """Handle input after our channel.close: skip all but close-ok and close."""
        if code == _CLOSE_OK:
            channel.state = ChannelState.CLOSED
            self.channel_is_free(channel)
            self._emit(ChannelCloseAnswered(channel))
        elif code == _CLOSE:
            channel._write_method(ChannelCloseOk())

    def _on_answer(self, payload: bytes) -> None:
        """Handle input on channel 0 after our connection.close (09-W-61)."""
        ids = payload[:4]
        if ids == b"\0\x0a\0\x33":
            self._stage = HandshakeStage.OVER
            self._end(ConnectionEnded(*self._reason, clean=True))
        elif ids == b"\0\x0a\0\x32":
            self.output.write((self.output.method_frame(0, b"\0\x0a\0\x33"),))

    def release_partial(self, channel: Channel) -> None:
        """See `amqproute.wire.amqp09.channel.ChannelOwner`."""
        self._ended_content(channel)
        content = channel._content
        if content is not None and not channel._streams:
            self.partial_octets -= content.size - channel._left

    def _shut_channels(self) -> None:
        for channel in self._channels.values():
            if channel.state in (ChannelState.OPEN, ChannelState.OPENING):
                self._ended.append(channel)
            channel.state = ChannelState.CLOSED
            channel._part()
        self._channels.clear()

    def _end_channels(self) -> None:
        self._shut_channels()
        for channel in self._ended:
            self._emit(ChannelEnded(channel, 0, "the connection has ended"))
        self._ended = []

    def _on_channel_method(self, channel: Channel, method: AmqpMethod) -> None:
        traits = method.traits
        if not (traits.to_server if self.role == "server" else traits.to_client):
            raise ViolationError(Violation.METHOD_OUT_OF_ORDER, f"{traits.name} to a {self.role}")
        code = traits.code
        is_matched = traits.class_id == MESSAGE  # by the user
        if code in REPLIES and not is_matched and not self._is_awaited(channel, code):
            if isinstance(method, BasicCancelOk) and self.role == "server":
                self._count_fruitless()  # some clients answer our cancel, though no answer is due
                return
            raise ViolationError(Violation.UNASKED_REPLY, f"{traits.name} answers nothing")
        if traits.has_content:
            channel._method = method
            return
        rule = _RULES.get(type(method))
        self.work += METHOD_WORK
        if rule is None or rule(self, channel, method):
            self._emit(MethodReceived(channel, method))

    def _is_awaited(self, channel: Channel, code: int) -> bool:
        for at, codes in enumerate(channel._awaited):
            if code in codes:
                del channel._awaited[at]
                return True
        return code == ChannelOpenOk.traits.code and channel.state is ChannelState.OPENING

    # -------------------------------------------------------------- rules of single methods

    def _rule_open_ok(self, channel: Channel, method: AmqpMethod) -> bool:
        channel.state = ChannelState.OPEN
        self._emit(ChannelOpened(channel))
        return False

    def _rule_close(self, channel: Channel, method: AmqpMethod) -> bool:
        assert isinstance(method, ChannelClose)
        self.work += CHANNEL_WORK
        channel.state = ChannelState.ANSWER_DUE
        channel._part()
        self._emit(
            ChannelEnded(
                channel,
                method.reply_code,
                method.reply_text,
                method.class_id,
                method.method_id,
                answer_due=True,
            )
        )
        return False

    def _rule_flow(self, channel: Channel, method: AmqpMethod) -> bool:
        assert isinstance(method, ChannelFlow)
        self._count_fruitless()
        channel.may_deliver = method.active
        channel._write_method(ChannelFlowOk(active=method.active))
        self._emit(FlowChanged(channel, method.active))
        return False

    def _rule_resume(self, channel: Channel, method: AmqpMethod) -> bool:
        raise ViolationError(Violation.UNKNOWN_METHOD, "channel.resume is not implemented")

    def _rule_ping(self, channel: Channel, method: AmqpMethod) -> bool:
        self._count_fruitless()
        channel._write_method(ChannelOk())
        if isinstance(method, ChannelPing):
            channel._write_method(ChannelPong())
            channel._awaited.append(ChannelPong.traits.replies)
        return False

    def _rule_ok(self, channel: Channel, method: AmqpMethod) -> bool:
        return False

    def _rule_consume(self, channel: Channel, method: AmqpMethod) -> bool:
        channel.has_worked = True
        if isinstance(method, MessageConsume):
            method.destination = self._new_consumer(channel, method.destination)
        else:
            assert isinstance(method, BasicConsume | FileConsume | StreamConsume)
            method.consumer_tag = self._new_consumer(channel, method.consumer_tag)
        return True

    def _new_consumer(self, channel: Channel, tag: str) -> str:
        is_wide = self.version is ProtocolVersion.V0_9
        taken: dict[str, Channel] | set[str] = (
            self.consumer_channels if is_wide else channel.consumers
        )
        if not tag:
            while not tag or tag in taken:
                channel.consumer_serial += 1
                tag = f"amq.ctag-{channel.number}.{channel.consumer_serial}"
        elif tag in taken:
            raise ViolationError(
                Violation.CONSUMER_TAG_IN_USE, f"there is a consumer {tag!r} already"
            )
        channel.consumers.add(tag)
        if is_wide:
            self.consumer_channels[tag] = channel
        return tag

    def _rule_cancel(self, channel: Channel, method: AmqpMethod) -> bool:
        if self.role == "client":
            return True
        if isinstance(method, MessageCancel):
            tag = method.destination
        else:
            assert isinstance(method, BasicCancel | FileCancel | StreamCancel)
            tag = method.consumer_tag
        owner = self.consumer_channels.get(tag)
        if owner is not None and owner is not channel:
            raise ViolationError(
                Violation.CONSUMER_OF_ANOTHER_CHANNEL,
                f"consumer {tag!r} is of channel {owner.number}",
            )
        if not isinstance(method, FileCancel):  # whose consumer may go on for a while
            channel.forget_consumer(tag)
        return True

    def _rule_work(self, channel: Channel, method: AmqpMethod) -> bool:
        channel.has_worked = True
        return True

    def _rule_confirm(self, channel: Channel, method: AmqpMethod) -> bool:
        if channel.is_transacted:
            raise ViolationError(
                Violation.CONFIRM_WITH_TRANSACTION, "confirm mode on a transacted channel"
            )
        if channel.confirms is None:
            channel.confirms = ConfirmNumbers()
        return True

    def _rule_tx_select(self, channel: Channel, method: AmqpMethod) -> bool:
        if channel.confirms is not None:
            raise ViolationError(
                Violation.CONFIRM_WITH_TRANSACTION, "a transaction on a channel in confirm mode"
            )
        if channel.is_distributed:
            raise ViolationError(
                Violation.CONFIRM_WITH_TRANSACTION, "tx.select on a channel with dtx.select"
            )
        channel.is_transacted = True
        return True

    def _rule_tx_end(self, channel: Channel, method: AmqpMethod) -> bool:
        if not channel.is_transacted or channel.is_distributed:
            raise ViolationError(
                Violation.NO_TRANSACTION, f"{method.traits.name} without tx.select"
            )
        return True

    def _rule_dtx_select(self, channel: Channel, method: AmqpMethod) -> bool:
        if channel.confirms is not None or (channel.is_transacted and not channel.is_distributed):
            raise ViolationError(
                Violation.CONFIRM_WITH_TRANSACTION,
                "dtx.select on a channel in confirm mode, or with tx.select",
            )
        channel.is_distributed = channel.is_transacted = True
        return True

    def _rule_dtx_start(self, channel: Channel, method: AmqpMethod) -> bool:
        if not channel.is_distributed:
            raise ViolationError(Violation.NO_TRANSACTION, "dtx.start without dtx.select")
        if channel.has_worked:
            raise ViolationError(
                Violation.BRANCH_AFTER_WORK, "dtx.start after a publish or consume"
            )
        return True

    def _rule_recover(self, channel: Channel, method: AmqpMethod) -> bool:
        if channel.is_transacted and self.version is ProtocolVersion.V0_9:
            raise ViolationError(
                Violation.RECOVER_TRANSACTED, f"{method.traits.name} on a transacted channel"
            )
        return True


_Rule = Callable[[Connection09, Channel, AmqpMethod], bool]
_RULES: Final[dict[type[AmqpMethod], _Rule]] = {
    ChannelOpenOk: Connection09._rule_open_ok,
    ChannelClose: Connection09._rule_close,
    ChannelFlow: Connection09._rule_flow,
    ChannelResume: Connection09._rule_resume,
    ChannelPing: Connection09._rule_ping,
    ChannelPong: Connection09._rule_ping,
    ChannelOk: Connection09._rule_ok,
    BasicConsume: Connection09._rule_consume,
    FileConsume: Connection09._rule_consume,
    StreamConsume: Connection09._rule_consume,
    MessageConsume: Connection09._rule_consume,
    BasicCancel: Connection09._rule_cancel,
    FileCancel: Connection09._rule_cancel,
    StreamCancel: Connection09._rule_cancel,
    MessageCancel: Connection09._rule_cancel,
    BasicGet: Connection09._rule_work,
    MessageGet: Connection09._rule_work,
    MessageTransfer: Connection09._rule_work,
    FilePublish: Connection09._rule_work,
    ConfirmSelect: Connection09._rule_confirm,
    TxSelect: Connection09._rule_tx_select,
    TxCommit: Connection09._rule_tx_end,
    TxRollback: Connection09._rule_tx_end,
    DtxSelect: Connection09._rule_dtx_select,
    DtxStart: Connection09._rule_dtx_start,
    BasicRecover: Connection09._rule_recover,
    BasicRecoverSync: Connection09._rule_recover,
    BasicQpidRecoverSync: Connection09._rule_recover,
    MessageRecover: Connection09._rule_recover,
}
"""The engine's own handlers of methods; they return true if the user gets the method as well."""

__all__ = ["CHANNEL_WORK", "METHOD_WORK", "Connection09"]


_CONTRACT: type[Engine] = Connection09  # for the type checker: it satisfies the contract
