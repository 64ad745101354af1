# SPDX-License-Identifier: Apache-2.0
"""Body sections of AMQP 1.0 around a content that comes in parts (09: part 5.5)."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence

from amqproute.errors import DecodeError
from amqproute.translation.content_message import (
    LARGEST_SECTION,
    ContentRefused,
    TranslatedContent,
    data_beginning,
)
from amqproute.wire.amqp10.body_scanner import BodyScanner

__all__ = ["BodyFraming"]


class BodyFraming:
    """Makes the body sections and the footer of a message, part by part.

    Args:
        content: the translated properties, which determine the form of the body.
        size: octets of the body.

    Attributes:
        has_footer: whether a footer follows the body.
    """

    __slots__ = ("_decoder", "_footer", "_fragments", "_left", "_scanner", "has_footer")

    def __init__(self, content: TranslatedContent, size: int) -> None:
        self._footer = content.footer
        self.has_footer = bool(content.footer)
        self._left = 0
        self._scanner: BodyScanner | None = None
        self._decoder: codecs.IncrementalDecoder | None = None
        kept = None if content.framing is None else content.framing.body
        self._fragments: Iterator[tuple[bytes, int]] = iter(())
        if content.parts.encoded_body:
            self._scanner = BodyScanner()
        elif kept is not None and sum([octets for _, octets in kept]) == size:
            self._fragments = iter(kept)
            if content.framing is not None and content.framing.text_body:
                self._decoder = codecs.getincrementaldecoder("utf-8")()
        else:
            self._fragments = _data_sections(size)

    def __repr__(self) -> str:
        return f"<BodyFraming left={self._left}>"

    def frame(self, parts: Sequence[bytes]) -> list[bytes]:
        """Return the next octets of the body, with beginnings of sections inserted.

        Raises:
            ContentRefused: the body does not match the properties.
        """
        if self._scanner is not None:
            try:
                for part in parts:
                    self._scanner.feed(part)
            except DecodeError as error:
                raise _undecodable(str(error)) from error
            if self._scanner.has_footer:
                raise _undecodable("it has a footer")
            return list(parts)
        if self._decoder is not None:
            self._check_text(parts)
        out: list[bytes] = []
        for part in parts:
            at = 0
            while at < len(part):
                while not self._left:
                    prefix, self._left = next(self._fragments)
                    out.append(prefix)
                room = self._left
                piece = part if not at and len(part) <= room else part[at : at + room]
                out.append(piece)
                at += len(piece)
                self._left -= len(piece)
        return out

    def finish(self) -> tuple[list[bytes], list[bytes]]:
        """Return the beginnings of empty sections after the last octet, and the footer.

        Raises:
            ContentRefused: see `frame`.
        """
        if self._scanner is not None:
            try:
                self._scanner.finish()
            except DecodeError as error:
                raise _undecodable(str(error)) from error
        if self._decoder is not None:
            self._check_text((), is_last=True)
        return [prefix for prefix, _ in self._fragments], [self._footer] if self._footer else []

    def _check_text(self, parts: Iterable[bytes], is_last: bool = False) -> None:
        assert self._decoder is not None
        try:
            for part in parts:
                self._decoder.decode(part)
            if is_last:
                self._decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            raise ContentRefused(
                "according to the header x-opt-amqp10 the body is text, but it is not UTF-8"
            ) from error


def _data_sections(size: int) -> Iterator[tuple[bytes, int]]:
    while size:
        octets = min(size, LARGEST_SECTION)
        yield data_beginning(octets), octets
        size -= octets


def _undecodable(why: str) -> ContentRefused:
    return ContentRefused(f"the type is amqp-1.0 and the body does not decode: {why}")
