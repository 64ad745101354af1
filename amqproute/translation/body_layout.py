# SPDX-License-Identifier: Apache-2.0
"""The body of a message outside of memory, for clients of 0-9 and 0-9-1 (09: part 5.5).

A content begins with the octets of its body. So the sections of a very large message are scanned
before the first octet is sent: `LayoutScan` goes from one beginning of a section to the next and
skips the contents. `BodyExtractor` then drops all octets that are not part of the body.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Final

from amqproute.errors import DecodeError
from amqproute.translation.message_snapshot import MOST_FRAGMENTS
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.body_scanner import LONGEST_BEGINNING, section_extent

__all__ = ["BodyExtractor", "BodyLayout", "LayoutScan"]

MOST_FOOTER: Final = 256 * 1024
"""Most octets of a footer that can become a header."""
_STRINGS: Final = (0xA1, 0xB1)
_BINARIES: Final = (0xA0, 0xB0)


@dataclass(frozen=True)
class BodyLayout:
    """The sections after the head of a very large message, as a client sees them.

    Attributes:
        size: octets of the client's body.
        is_encoded: whether they are sections of 1.0.
        is_text: whether they are the text of one amqp-value.
        fragments: for each section the octets before its contents and the number of these; None if
            the body is encoded, or has more than `MOST_FRAGMENTS` sections.
        footer: the footer as octets, empty without one.
    """

    size: int
    is_encoded: bool = False
    is_text: bool = False
    fragments: tuple[tuple[bytes, int], ...] | None = None
    footer: bytes = b""


class LayoutScan:
    """Finds the layout of a body.

    Args:
        size: octets of body and footer.

    Attributes:
        at: offset of the octets needed next.
        layout: the result, after the last octet.
    """

    __slots__ = (
        "_decoder",
        "_fragments",
        "_is_encoded",
        "_kept",
        "_octets",
        "_section_octets",
        "_size",
        "_text_left",
        "at",
        "layout",
    )

    def __init__(self, size: int) -> None:
        self.at = 0
        self.layout: BodyLayout | None = None
        self._size = size
        self._kept = b""
        self._fragments: list[tuple[bytes, int]] = []
        self._octets = 0
        self._section_octets = 0
        self._is_encoded = False
        # A string must be scanned as a whole: it may not be UTF-8.
        self._decoder: codecs.IncrementalDecoder | None = None
        self._text_left = 0

    def __repr__(self) -> str:
        return f"<LayoutScan {self.at} of {self._size}>"

    def feed(self, octets: bytes) -> None:
        """Scan the octets at `at`, at least one.

        Raises:
            DecodeError: they are not a body and footer.
        """
        data = self._kept + octets
        self.at += len(octets)
        pos = self._check_text(data)
        while pos < len(data):
            found = section_extent(data[pos : pos + LONGEST_BEGINNING])
            if found is None:
                break
            section, value, length = found
            if section == spec.SECTION_FOOTER:
                if length > MOST_FOOTER:
                    raise DecodeError(f"a footer of {length} octets is too large for a header")
                if pos + length > len(data):
                    break
                self._finish(data[pos : pos + length])
                return
            self._section_octets += length
            self._enter(section, data[pos : pos + LONGEST_BEGINNING], value, length)
            if self._text_left:
                pos += length - self._text_left
                pos += self._check_text(data[pos:])
            else:
                pos += length
        self._kept = data[pos:]
        self.at += max(0, pos - len(data))
        if self.at >= self._size:
            if self._kept or self.at > self._size:
                raise DecodeError("the data end within a message section")
            self._finish(b"")

    def _enter(self, section: int, beginning: bytes, value: int, length: int) -> None:
        content = content_at(beginning, value)
        is_string = beginning[value] in _STRINGS
        if section == spec.SECTION_DATA:
            if content is None or is_string:
                raise DecodeError("a data section without octets")
        elif section != spec.SECTION_AMQP_VALUE or content is None:
            self._is_encoded = True
            return
        elif is_string:
            self._decoder = codecs.getincrementaldecoder("utf-8")()
            self._text_left = length - content
        self._octets += length - content
        if len(self._fragments) <= MOST_FRAGMENTS:
            self._fragments.append((beginning[:content], length - content))

    def _check_text(self, data: bytes) -> int:
        """Check the octets of a string; return their number."""
        decoder = self._decoder
        size = min(self._text_left, len(data))
        self._text_left -= size
        if decoder is None or not size:
            return size
        try:
            decoder.decode(data[:size], final=not self._text_left)
        except UnicodeDecodeError:
            self._is_encoded = True
            self._decoder = None
        return size

    def _finish(self, footer: bytes) -> None:
        if self._is_encoded:
            self.layout = BodyLayout(self._section_octets, is_encoded=True, footer=footer)
            return
        fragments = tuple(self._fragments) if len(self._fragments) <= MOST_FRAGMENTS else None
        is_text = self._decoder is not None
        self.layout = BodyLayout(self._octets, False, is_text, fragments, footer)


class BodyExtractor:
    """Extracts the client's body from the sections as they are read.

    Args:
        layout: the layout of the body.

    Attributes:
        left: number of remaining octets.
    """

    __slots__ = ("_is_encoded", "_kept", "_section_left", "left")

    def __init__(self, layout: BodyLayout) -> None:
        self.left = layout.size
        self._is_encoded = layout.is_encoded
        self._kept = b""
        self._section_left = 0

    def __repr__(self) -> str:
        return f"<BodyExtractor left={self.left}>"

    def feed(self, octets: bytes) -> list[bytes]:
        """Return the octets of the body among the next ones.

        Raises:
            DecodeError: they differ from the scanned ones.
        """
        if self._is_encoded:
            part = octets if len(octets) <= self.left else octets[: self.left]
            self.left -= len(part)
            return [part]
        data = self._kept + octets if self._kept else octets
        self._kept = b""
        out: list[bytes] = []
        pos = 0
        while pos < len(data) and self.left:
            if not self._section_left:
                beginning = data[pos : pos + LONGEST_BEGINNING]
                found = section_extent(beginning)
                if found is None:
                    self._kept = data[pos:]
                    break
                _, value, length = found
                content = content_at(beginning, value)
                if content is None:
                    raise DecodeError("a body section without octets")
                pos += content
                self._section_left = length - content
                continue
            end = min(len(data), pos + self._section_left, pos + self.left)
            out.append(data if end - pos == len(data) else data[pos:end])
            self._section_left -= end - pos
            self.left -= end - pos
            pos = end
        return out


def content_at(beginning: bytes, value: int) -> int | None:
    """Return the offset of the octets of a binary or a string; None for any other value.

    Args:
        beginning: of the section.
        value: offset of its value.
    """
    code = beginning[value]
    if code in (_BINARIES[0], _STRINGS[0]):
        return value + 2
    return value + 5 if code in (_BINARIES[1], _STRINGS[1]) else None
