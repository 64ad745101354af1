# SPDX-License-Identifier: Apache-2.0
"""Output: frames written into one buffer, without copies of large bodies.

Small parts are joined, so that a burst of deliveries is one write; parts of `ALONE` octets or more
are never copied.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

from amqproute.errors import LocalProtocolError

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8
FRAME_END: Final = b"\xce"
FRAME_OVERHEAD: Final = 8
"""Octets of a frame in addition to its payload."""
HEARTBEAT_FRAME: Final = b"\x08\0\0\0\0\0\0\xce"
ALONE: Final = 16_384
"""Smallest part in octets that is a buffer of its own."""

_HEAD = struct.Struct(">BHI")
_HEADER = struct.Struct(">BHIHHQ")


class FrameTooLargeError(LocalProtocolError):
    """A method or a content header does not fit into a frame of this peer (09-W-11).

    Nothing has been written. These frames cannot be split: the content cannot be sent here.
    """


class FrameOutput:
    """Collects the output.

    Attributes:
        largest_payload: octets of a frame's payload; the peer's limit, less 8.
        frames: written so far.
    """

    __slots__ = ("_buffers", "_small", "frames", "largest_payload")

    def __init__(self, largest_frame: int) -> None:
        self.largest_payload = largest_frame - FRAME_OVERHEAD
        self.frames = 0
        self._small: list[bytes] = []
        self._buffers: list[bytes] = []

    def write(self, pieces: Iterable[bytes]) -> None:
        """Take octets that are complete frames."""
        small = self._small
        for piece in pieces:
            if len(piece) < ALONE:
                small.append(piece)
            else:
                if small:
                    self._buffers.append(b"".join(small))
                    small.clear()
                self._buffers.append(piece)

    def write_small(self, pieces: Sequence[bytes], frames: int) -> None:
        """Take octets that together are complete frames, each piece smaller than `ALONE`.

        Args:
            pieces: the pieces, in order.
            frames: their number.
        """
        self._small += pieces
        self.frames += frames

    def take(self) -> list[bytes]:
        """Return the output, and forget it."""
        buffers = self._buffers
        if self._small:
            buffers.append(b"".join(self._small))
            self._small = []
        if buffers:
            self._buffers = []
        return buffers

    def clear(self) -> None:
        """Drop the output."""
        self._small = []
        self._buffers = []

    def method_frame(self, channel: int, payload: bytes) -> bytes:
        """Return a method frame.

        Raises:
            FrameTooLargeError: it is larger than a frame.
        """
        self.check("a method", len(payload))
        self.frames += 1
        return _HEAD.pack(METHOD, channel, len(payload)) + payload + FRAME_END

    def content_frames(
        self,
        channel: int,
        payload: bytes,
        class_id: int,
        property_octets: bytes,
        size: int,
        parts: Sequence[bytes],
    ) -> list[bytes]:
        """Return the frames of a content: its method, its header, and the given part of its body.

        Args:
            channel: the channel's number.
            payload: the payload of the method frame.
            class_id: the id of the content.
            property_octets: flags and values.
            size: octets of the whole body.
            parts: the parts of the body, all of it or its beginning.

        Raises:
            FrameTooLargeError: method or header are larger than a frame.
        """
        self.check("a method", len(payload))
        self.check("a content header", 12 + len(property_octets))
        self.frames += 2
        head = b"".join(
            (
                _HEAD.pack(METHOD, channel, len(payload)),
                payload,
                FRAME_END,
                _HEADER.pack(HEADER, channel, 12 + len(property_octets), class_id, 0, size),
                property_octets,
                FRAME_END,
            )
        )
        if not parts:
            return [head]
        if len(parts) == 1 and 0 < len(parts[0]) <= self.largest_payload:
            part = parts[0]
            self.frames += 1
            return [head + _HEAD.pack(BODY, channel, len(part)), part, FRAME_END]
        return [head, *self.body_frames(channel, parts)]

    def body_frames(self, channel: int, parts: Iterable[bytes]) -> list[bytes]:
        """Return body frames, each as large as possible (09-CONN-19)."""
        most = self.largest_payload
        out: list[bytes] = []
        room = 0
        waiting: list[bytes] = []

        def finish() -> None:
            out.append(_HEAD.pack(BODY, channel, most - room))
            out.extend(waiting)
            out.append(FRAME_END)
            waiting.clear()
            self.frames += 1

        for part in parts:
            at = 0
            while at < len(part):
                if not waiting:
                    room = most
                piece = part if not at and len(part) <= room else part[at : at + room]
                waiting.append(piece)
                at += len(piece)
                room -= len(piece)
                if not room:
                    finish()
        if waiting:
            finish()
        return out

    def empty_body(self, channel: int) -> bytes:
        """Return a body frame without data: it ends a truncated content (I-09)."""
        self.frames += 1
        return _HEAD.pack(BODY, channel, 0) + FRAME_END

    def check(self, what: str, size: int) -> None:
        """Check the payload of a frame that cannot be split.

        Raises:
            FrameTooLargeError: it is larger than a frame.
        """
        if size > self.largest_payload:
            raise FrameTooLargeError(
                f"{what} of {size} octets in frames of at most {self.largest_payload}"
            )


__all__ = [
    "ALONE",
    "BODY",
    "FRAME_END",
    "FRAME_OVERHEAD",
    "HEADER",
    "HEARTBEAT",
    "HEARTBEAT_FRAME",
    "METHOD",
    "FrameOutput",
    "FrameTooLargeError",
]
