# SPDX-License-Identifier: Apache-2.0
"""Files as data sections of messages: the header before their octets, and their extraction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from amqproute.errors import DecodeError
from amqproute.wire.amqp10 import sections, spec
from amqproute.wire.amqp10.types import BINARY_8, BINARY_32

__all__ = ["FileData", "data_header"]

LONGEST_SECTION: Final = 1024 * 1024
"""Octets of a section other than data."""


def data_header(size: int) -> bytes:
    """Return the header of a data section of this size (part 3 §3.2.6)."""
    return b"\x00\x53\x75\xb0" + size.to_bytes(4, "big")


class FileData:
    """Extracts the octets of data sections from a message in parts.

    Attributes:
        size: their number so far.
    """

    def __init__(self) -> None:
        self.size = 0
        self._left = 0
        self._beginning = b""
        self._is_in_data = False

    def feed(self, part: bytes) -> Iterator[memoryview]:
        """Process the next octets of the message; return those of data sections.

        Raises:
            DecodeError: it is not a message, or its body is not binary data.
        """
        part = self._beginning + part if self._beginning else part
        self._beginning = b""
        view, pos = memoryview(part), 0
        while pos < len(part):
            if self._left:
                piece = view[pos : pos + self._left]
                self._left -= len(piece)
                pos += len(piece)
                if self._is_in_data:
                    self.size += len(piece)
                    yield piece
                continue
            after = self._begin(part, pos)
            if after is None:
                self._beginning = part[pos:]
                return
            pos = after

    def finish(self) -> None:
        """Check that the message may end here.

        Raises:
            DecodeError: it ends within a section.
        """
        if self._left or self._beginning:
            raise DecodeError("the message ends within a section")

    def _begin(self, part: bytes, pos: int) -> int | None:
        """Begin a section; return the start of its octets, None if more octets are needed."""
        try:
            section, at = sections.section_at(part, pos, len(part))
            if section == spec.SECTION_DATA:
                self._is_in_data = True
                code = part[at]
                if code == BINARY_8:
                    self._left = part[at + 1]
                    return at + 2
                if code == BINARY_32:
                    if len(part) < at + 5:
                        return None
                    self._left = int.from_bytes(part[at + 1 : at + 5], "big")
                    return at + 5
                raise DecodeError("a data section that is not binary")
            self._is_in_data = False
            end = sections.skip(part, at, len(part))
        except (IndexError, DecodeError):
            if len(part) - pos > LONGEST_SECTION:
                raise DecodeError("the body is not binary data, or not a body at all") from None
            return None
        if section in (spec.SECTION_AMQP_VALUE, spec.SECTION_AMQP_SEQUENCE):
            raise DecodeError("the body is not binary data: receive it without --output")
        return end
