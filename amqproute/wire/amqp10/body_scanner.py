# SPDX-License-Identifier: Apache-2.0
"""Incomplete messages: the start of the body, and well-formedness.

`head_size` finds the end of the sections before the body. The rest arrives in parts, as it comes
from the wire; a `BodyScanner` goes through it from section to section by skipping lengths, and
keeps only the few octets of a section's head that a part may have cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from amqproute.errors import DecodeError, ResourceLimitExceeded
from amqproute.wire.amqp10 import sections, types
from amqproute.wire.amqp10.codec import WIDTHS

__all__ = ["LONGEST_BEGINNING", "BodyScanner", "head_size", "section_extent"]

DATA: Final = 0x75
SEQUENCE: Final = 0x76
FOOTER: Final = 0x78
LONGEST_BEGINNING: Final = 1024
"""Octets in which the descriptor of a section, or of an amqp-value, has to end."""


def head_size(encoded: bytes, most: int) -> int:
    """Return the start of the body in the first octets of a message.

    Args:
        encoded: the message, or its beginning.
        most: octets that may precede the body.

    Raises:
        DecodeError: the octets are not sections of a message.
        ResourceLimitExceeded: the body does not begin within ``most`` octets.
    """
    pos, end = 0, min(len(encoded), most)
    while pos < end:
        section = _section(encoded, pos)
        if section >= DATA:
            return pos
        try:
            pos = sections.skip(encoded, pos, len(encoded))
        except DecodeError:
            if len(encoded) < most:
                raise
            break
    raise ResourceLimitExceeded(
        f"header, annotations and properties have more than {most} octets",
        info={"limiter": "sections-before-the-body"},
    )


def _section(encoded: bytes, pos: int) -> int:
    if encoded[pos : pos + 2] == b"\x00\x53" and len(encoded) > pos + 2:
        return encoded[pos + 2]
    return sections.section_at(encoded, pos, len(encoded))[0]


def section_extent(beginning: bytes) -> tuple[int, int, int] | None:
    """Return what the first octets of a section say of it.

    Args:
        beginning: the first `LONGEST_BEGINNING` octets, or all that have come.

    Returns:
        The code of the section, the offset of its value, and the length of the whole section; None
        if more octets are needed.

    Raises:
        DecodeError: no section begins like this.
    """
    try:
        section, value = sections.section_at(beginning, 0, len(beginning))
        return section, value, _value_length(beginning, value)
    except (DecodeError, IndexError) as error:
        # Cut short or broken; broken if the octets would be enough.
        if len(beginning) < LONGEST_BEGINNING:
            return None
        raise DecodeError("a body section does not begin like one") from error


class BodyScanner:
    """Scans the body and the footer of a message in parts.

    Attributes:
        size: octets so far.
        has_footer: a footer has begun.
    """

    __slots__ = ("_beginning", "_footer_start", "_last", "_left", "has_footer", "size")

    def __init__(self) -> None:
        self.size = 0
        self._footer_start = 0
        self._left = 0  # octets left of the current value
        self._beginning = b""  # octets of a section of unknown length
        self._last = 0
        self.has_footer = False

    def feed(self, part: bytes) -> None:
        """Process the next octets.

        Raises:
            DecodeError: they cannot be a part of a body or a footer.
        """
        size = len(part)
        self.size += size
        if size <= self._left:
            self._left -= size
            return
        pos = self._left
        self._left = 0
        if self._beginning:
            part, pos = self._beginning + part, 0
            size = len(part)
            self._beginning = b""
        offset = self.size - size
        while pos < size:
            if not self.has_footer:
                self._footer_start = offset + pos  # unless it is another section of the body
            length = self._length(part[pos : pos + LONGEST_BEGINNING])
            if length is None:
                self._beginning = part[pos:]
                return
            pos += length
        self._left = pos - size

    def follow(self, parts: Sequence[bytes]) -> list[bytes | memoryview]:
        """Process the next octets, and return those that certainly belong to the body.

        All that it returns, one after the other, is the body without the footer.

        Raises:
            DecodeError: see `feed`.
        """
        before, doubtful = self.bare_size, self._beginning
        for part in parts:
            self.feed(part)
        left = self.bare_size - before
        bare: list[bytes | memoryview] = []
        for part in (doubtful, *parts):
            size = len(part)
            bare.append(part if size <= left else memoryview(part)[:left])
            left -= min(size, left)
        return bare

    @property
    def bare_size(self) -> int:
        """Number of octets so far that certainly belong to the body, and not to a footer."""
        return self._footer_start if self.has_footer else self.size - len(self._beginning)

    def finish(self) -> None:
        """Check that the message may end here.

        Raises:
            DecodeError: it ends within a section, or has no body.
        """
        if self._left or self._beginning:
            raise DecodeError("the data end within a message section")
        if self._last < DATA:
            raise DecodeError("the message has no body")

    def _length(self, beginning: bytes) -> int | None:
        """Return the length of a section by its first octets; None if not known yet."""
        found = section_extent(beginning)
        if found is None:
            return None
        section, _, length = found
        self._enter(section)
        return length

    def _enter(self, section: int) -> None:
        last = self._last
        repeats = section == last and section in (DATA, SEQUENCE)
        if not DATA <= section <= FOOTER:
            raise DecodeError(f"message section 0x{section:02x} after the body has begun")
        if last and not repeats and section != FOOTER:
            raise DecodeError(f"message section 0x{section:02x} after 0x{last:02x}")
        if not last and section == FOOTER:
            raise DecodeError("a footer without a body")
        self._last = section
        self.has_footer = section == FOOTER


def _value_length(data: bytes, pos: int) -> int:
    """Return the end of the value at ``pos``; it may be far behind the data."""
    code = data[pos]
    while code == types.DESCRIBED:
        pos = sections.skip(data, pos + 1)
        code = data[pos]
    width = WIDTHS.get(code)
    if width is None:
        raise DecodeError(f"format code 0x{code:02x} is not defined")
    if width >= 0:
        return pos + 1 + width
    if width == -1:
        return pos + 2 + data[pos + 1]
    if len(data) < pos + 5:
        raise IndexError
    return pos + 5 + int.from_bytes(data[pos + 1 : pos + 5], "big")
