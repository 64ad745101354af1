# SPDX-License-Identifier: Apache-2.0
"""Frames: division and decoding of the byte stream, and encoding (part 2 §2.3).

`FrameBuffer` gets the bytes of a connection as they come and returns whole frames with their
performatives decoded. A chunk that holds whole frames is read in place; only a frame that is cut by
the end of a chunk is put together, once, however many pieces it comes in, and what follows it in
the chunk that ends it is read in place again.

Limits: the size word of a frame is checked as soon as its four bytes are there, so that never
more than one frame of the agreed size, and the chunk last fed, are held.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from amqproute import conditions
from amqproute.errors import AmqpError, DecodeError
from amqproute.wire.amqp10 import codec
from amqproute.wire.amqp10.fastpath import (
    read_disposition,
    read_flow,
    read_transfer,
    write_disposition,
    write_transfer,
)
from amqproute.wire.amqp10.spec import (
    Attach,
    Begin,
    Composite,
    Flow,
    Performative,
    SaslBody,
    Transfer,
    as_composite,
    class_of,
)
from amqproute.wire.amqp10.types import Described, UInt
from amqproute.wire.input_cost import CUT_GENERIC, CUT_OCTETS

TYPE_AMQP: Final = 0
"""Frame type of performatives."""

TYPE_SASL: Final = 1
"""Frame type of SASL bodies."""

EMPTY_FRAME: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"
"""A frame without a body: the heartbeat (part 2 §2.4.5)."""

MOST_VALUES: Final = 16_384
"""Values in a performative: enough to resume a link with 5,000 unsettled deliveries, and decodable
in some 10 ms."""


@dataclass(frozen=True, slots=True)
class UnfitBegin:
    """A begin whose fields are not those of a begin: the fault of one session (§2.5.1).

    Attributes:
        description: the description of the fault.
    """

    description: str


@dataclass(frozen=True, slots=True)
class UnfitAttach:
    """An attach, some fields of which are not those of an attach: the fault of one link (§2.6.3).

    If name, handle or role are wrong as well, the link cannot be identified, and the fault is the
    connection's.

    Attributes:
        attach: name, handle and role, by which it is answered.
        description: the description of the fault in the other fields.
    """

    attach: Attach
    description: str


Frame: TypeAlias = tuple[int, int, Performative | SaslBody | UnfitBegin | UnfitAttach | None, bytes]
"""Channel, frame type, performative or SASL body (None: an empty frame), payload."""

_HEADER = struct.Struct(">IBBH")
_SIZE = struct.Struct(">I")
_BODIES = {
    TYPE_AMQP: range(0x10, 0x19),
    TYPE_SASL: range(0x40, 0x45),
}
_LINK = (str, UInt, bool)
"""The types of name, handle and role in an attach."""
_READERS = {
    b"\x00\x53\x14": read_transfer,
    b"\x00\x53\x15": read_disposition,
    b"\x00\x53\x13": read_flow,
}


class FramingError(AmqpError):
    """The byte stream is not made of frames; the connection must end (part 2 §2.8.16)."""

    condition = conditions.CONNECTION_FRAMING_ERROR


class FrameBuffer:
    """The receiving side of a connection: bytes in, frames out.

    Args:
        max_frame_size: the largest frame that the peer may send.

    Attributes:
        decoded: octets decoded by the generic path; its reader sets it to 0 again.
        is_pending: whether `frames` would give more, or raise.
        left: number of bytes that `frames` has not returned.
    """

    __slots__ = (
        "_data",
        "_fault",
        "_max_frame_size",
        "_need",
        "_next",
        "_next_at",
        "_partial",
        "_pos",
        "decoded",
        "is_pending",
        "left",
    )

    def __init__(self, max_frame_size: int) -> None:
        self._max_frame_size = max_frame_size
        # Unread bytes are in _data from _pos on, or in _partial, never in both: _partial
        # collects the pieces of a frame until there are _need bytes. A frame put together stands
        # alone in _data; what came behind it in _next, from _next_at on.
        self._data = b""
        self._pos = 0
        self._next = b""
        self._next_at = 0
        self._partial = bytearray()
        self._need = 0
        self._fault: AmqpError | None = None
        self.decoded = 0
        # Looked at many times for each read: attributes, and not methods.
        self.is_pending = False
        self.left = 0

    def __repr__(self) -> str:
        fault = f" {self._fault}" if self._fault else ""
        return f"<FrameBuffer {self.left} bytes{fault}>"

    def set_max_frame_size(self, max_frame_size: int) -> None:
        """Allow frames up to this many bytes from the next one on."""
        self._max_frame_size = max_frame_size
        self.is_pending = self.left >= 8 or self._fault is not None

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes; call `frames` before feeding more, to stay within the limit."""
        if not self.left:
            self._data = data if type(data) is bytes else bytes(data)
            self._pos = 0
            left = self.left = len(data)
            self.is_pending = self._fault is not None or (left >= 8 and left >= self._need)
            return
        if not self._partial:
            self._partial += memoryview(self._data)[self._pos :]
            self._partial += memoryview(self._next)[self._next_at :]
            self._forget()
        missing = self._need - len(self._partial)
        if self._need <= 8 or not 0 <= missing < len(data):  # up to 8: its size is not known
            self._partial += data
            self._note_left(len(self._partial))
            return
        self._data = b"".join((self._partial, memoryview(data)[:missing]))
        self._partial = bytearray()
        self._next = data if type(data) is bytes else bytes(data)
        self._next_at = missing
        self._note_left(len(self._data) + len(data) - missing)

    def _note_left(self, left: int) -> None:
        self.left = left
        self.is_pending = self._fault is not None or (left >= 8 and left >= self._need)

    def take_rest(self) -> bytes:
        """Remove and return the unread bytes, because no frame follows.

        For the protocol header that follows the SASL outcome; use ``frames(1)`` up to there.
        """
        rest = bytes(self._partial) or self._data[self._pos :] + self._next[self._next_at :]
        self._forget()
        self._partial = bytearray()
        self._need = 0
        self._note_left(0)
        return rest

    def frames(self, limit: int = 0x7FFFFFFF) -> list[Frame]:
        """Cut off the whole frames that have arrived.

        A fault does not swallow the frames before it: they are returned first, and the next
        call raises. So call until the list is empty::

            while frames := buffer.frames():
                ...

        Args:
            limit: largest number of frames. One decoded by the generic path counts as
                `input_cost.CUT_GENERIC`, and as one more for each `input_cost.CUT_OCTETS` of its
                body.

        Raises:
            FramingError: the stream is broken here. Every later call raises too.
            DecodeError: the body of a frame is broken. Every later call raises too.
        """
        if self._fault is not None:
            raise self._fault
        if self._partial:
            if len(self._partial) < self._need:
                return []
            self._data = bytes(self._partial)
            self._pos = 0
            self._partial = bytearray()
        found: list[Frame] = []
        try:
            self._cut(found, limit)
            if self._next and not self._data:
                self._data, self._pos = self._next, self._next_at
                self._next, self._next_at = b"", 0
                self._cut(found, limit)
        except (FramingError, DecodeError) as fault:
            self._fault = fault
            self._forget()
            self._note_left(0)
            if not found:
                raise
            return found
        left = self.left = len(self._data) - self._pos + len(self._next) - self._next_at
        self.is_pending = left >= 8 and left >= self._need
        return found

    def _forget(self) -> None:
        self._data = self._next = b""
        self._pos = self._next_at = 0

    def _cut(self, found: list[Frame], limit: int) -> None:
        data = self._data
        pos = self._pos
        end = len(data)
        maximum = self._max_frame_size
        header = _HEADER.unpack_from
        readers = _READERS
        self._need = 0
        count = len(found)
        while pos + 8 <= end and count < limit:
            count += 1
            size, doff, kind, channel = header(data, pos)
            start = pos + 4 * doff
            after = pos + size
            if size > maximum or size < 8 or doff < 2 or start > after or kind > 1:
                raise _framing_error(size, doff, kind, maximum)
            if after > end:
                break
            if start == after:
                if kind == TYPE_SASL:
                    raise FramingError("a SASL frame without a body")
                found.append((channel, kind, None, b""))
            else:
                reader = readers.get(data[start : start + 3])
                read = reader(data, start, after) if reader is not None else None
                if read is None or kind != TYPE_AMQP:
                    found.append(_read_frame(channel, kind, data, start, after))
                    decoded = after - start - len(found[-1][3])
                    count += CUT_GENERIC - 1 + decoded // CUT_OCTETS
                    self.decoded += decoded
                else:
                    body, payload_at = read
                    if payload_at != after and reader is not read_transfer:
                        raise _payload_error(body)
                    found.append((channel, kind, body, data[payload_at:after]))
            self._pos = pos = after
        left = end - pos
        if left == 0:
            self._data = b""
            self._pos = 0
        elif left < 4:
            self._need = 4
        else:
            size = _SIZE.unpack_from(data, pos)[0]
            if size > maximum or size < 8:
                # With a limit this frame's turn has not come: it may not be a frame at all.
                if count < limit:
                    raise _framing_error(size, 2, 0, maximum)
            else:
                self._need = 8 if left < 8 else size


def _read_frame(channel: int, kind: int, data: bytes, start: int, after: int) -> Frame:
    """Decode a frame's body by the generic path."""
    value, payload_at = codec.decode(data, start, after, MOST_VALUES)
    try:
        body = as_composite(value)
    except DecodeError as error:
        is_whole = kind == TYPE_AMQP and payload_at == after
        unfit = _unfit(value, error.description) if is_whole else None
        if unfit is None:
            raise
        return channel, kind, unfit, b""
    if body.descriptor not in _BODIES[kind]:
        raise DecodeError(f"{body.symbol} has no place in a frame of type {kind}")
    if payload_at != after and type(body) is not Transfer:
        raise _payload_error(body)
    return channel, kind, body, data[payload_at:after]  # type: ignore[return-value]


def _unfit(value: object, description: str) -> UnfitBegin | UnfitAttach | None:
    """Return the endpoint at fault for an invalid body; None for the connection."""
    if type(value) is not Described:
        return None
    kind = class_of(value.descriptor)
    if kind is Begin:
        return UnfitBegin(description)
    fields = value.value
    if kind is Attach and type(fields) is list and tuple(map(type, fields[:3])) == _LINK:
        name, handle, role = fields[:3]
        return UnfitAttach(Attach(name=name, handle=int(handle), role=role), description)
    return None


def _framing_error(size: int, doff: int, kind: int, maximum: int) -> FramingError:
    if size < 8:
        return FramingError(f"a frame of {size} bytes is shorter than its header")
    if size > maximum:
        return FramingError(f"a frame of {size} bytes is larger than the {maximum} agreed")
    if doff < 2:
        return FramingError(f"a data offset of {doff} lies within the frame header")
    if 4 * doff > size:
        return FramingError(f"a data offset of {doff} lies outside a frame of {size} bytes")
    return FramingError(f"frame type {kind} is not defined")


def _payload_error(body: Composite) -> DecodeError:
    return DecodeError(f"{body.symbol}: bytes after the performative")


def encode_frame(
    channel: int, performative: Performative, payload: Sequence[bytes] = ()
) -> list[bytes]:
    """Encode a frame as buffers: header with performative, then the payload's, unjoined.

    Raises:
        LocalProtocolError: the performative lacks a mandatory field or has a wrong value.
    """
    body = codec.encode(performative)
    size = 8 + len(body)
    for part in payload:
        size += len(part)
    return [_HEADER.pack(size, 2, TYPE_AMQP, channel) + body, *payload]


def encode_sasl_frame(body: SaslBody) -> bytes:
    """Encode a SASL frame.

    Raises:
        LocalProtocolError: the body lacks a mandatory field or has a wrong value.
    """
    encoded = codec.encode(body)
    return _HEADER.pack(8 + len(encoded), 2, TYPE_SASL, 0) + encoded


def encode_flow(channel: int, flow: Flow) -> bytes:
    """Encode a whole flow frame."""
    return encode_frame(channel, flow)[0]


encode_transfer = write_transfer
encode_disposition = write_disposition
