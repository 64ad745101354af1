# SPDX-License-Identifier: Apache-2.0
"""Reading a write-ahead log from its file (SQLite, "The WAL File Format").

The daemon leaves that to SQLite. This is for what SQLite does not tell: which commits follow a
damaged frame, and whether a log without a valid header is already in the database.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

__all__ = [
    "FRAME_HEADER",
    "HEADER",
    "WalFrame",
    "WalHeader",
    "frames_of",
    "is_in_database",
    "read_header",
]

HEADER: Final = 32
"""Octets before the first frame."""
FRAME_HEADER: Final = 24
"""Octets of a frame before its page."""
_MAGICS: Final = {0x377F0682: "<", 0x377F0683: ">"}
_PAGE_SIZES: Final = frozenset(1 << n for n in range(9, 17))


@dataclass(frozen=True, slots=True)
class WalHeader:
    """The header of a log.

    Attributes:
        order: byte order of checksums, in the notation of `struct`.
        page_size: octets of a page.
        salt: common to all frames of the log.
        checksum: the checksum of the header; the checksum of the first frame continues it.
    """

    order: str
    page_size: int
    salt: bytes
    checksum: tuple[int, int]


@dataclass(frozen=True, slots=True)
class WalFrame:
    """A frame.

    Attributes:
        number: the number from 1.
        page: number of its page, from 1.
        commit: number of pages in the database after the commit that it ends; 0 if it ends none.
        offset: the offset of its page in the file.
        is_whole: its checksum matches its octets and the checksum of the frame before it.
    """

    number: int
    page: int
    commit: int
    offset: int
    is_whole: bool


def read_header(path: str) -> WalHeader | None:
    """Return the header of a log; None if it is missing or invalid."""
    try:
        with open(path, "rb") as file:
            octets = file.read(HEADER)
    except OSError:
        return None
    if len(octets) < HEADER:
        return None
    magic, _, page_size = struct.unpack_from(">III", octets)
    if magic not in _MAGICS or page_size not in _PAGE_SIZES:
        return None
    order = _MAGICS[magic]
    stored = struct.unpack_from(">II", octets, 24)
    if checksum(order, octets[:24], (0, 0)) != stored:
        return None
    return WalHeader(order, page_size, octets[16:24], (stored[0], stored[1]))


def checksum(order: str, octets: bytes, begin: tuple[int, int]) -> tuple[int, int]:
    """Continue a checksum over octets, whose number is a multiple of eight."""
    one, two = begin
    words = struct.unpack(f"{order}{len(octets) // 4}I", octets)
    for at in range(0, len(words), 2):
        one = (one + words[at] + two) & 0xFFFFFFFF
        two = (two + words[at + 1] + one) & 0xFFFFFFFF
    return one, two


def frames_of(path: str, header: WalHeader) -> Iterator[WalFrame]:
    """Iterate over the frames that have the salt of the header, damaged ones among them.

    A frame is held against the checksum that the frame before it says, not against the whole chain:
    so one that is damaged does not make all that follow it look so.
    """
    step = FRAME_HEADER + header.page_size
    before = header.checksum
    with open(path, "rb") as file:
        file.seek(HEADER)
        number = 0
        while len(octets := file.read(step)) == step:
            number += 1
            page, commit, salt, one, two = struct.unpack_from(">II8sII", octets)
            if salt != header.salt:
                # Zeros or an earlier round end the log; but a damaged header may be followed by
                # frames of this one.
                if not _goes_on(file, step, header.salt):
                    return
                yield WalFrame(number, 0, 0, HEADER + number * step - header.page_size, False)
                before = (one, two)
                continue
            own = checksum(header.order, octets[:8], before)
            own = checksum(header.order, octets[FRAME_HEADER:], own)
            before = (one, two)
            offset = HEADER + number * step - header.page_size
            yield WalFrame(number, page, commit, offset, own == before)


def _goes_on(file: BinaryIO, step: int, salt: bytes) -> bool:
    """Tell whether one of the next frames has this salt."""
    at = file.tell()
    try:
        while len(octets := file.read(step)) == step:
            if octets[8:16] == salt:
                return True
        return False
    finally:
        file.seek(at)


def is_in_database(database: str, log: str, salt: bytes, frames: int, pages: int) -> bool:
    """Tell whether the database has everything in a log, whatever the log's header says.

    Args:
        database: its file.
        log: its file.
        salt: the salt of the frames.
        frames: the required number of frames.
        pages: number of pages in the database after the last frame.
    """
    try:
        with open(database, "rb") as file:
            (page_size,) = struct.unpack_from(">H", file.read(18), 16)
            page_size = 65536 if page_size == 1 else page_size
            if page_size not in _PAGE_SIZES:
                return False
            step = FRAME_HEADER + page_size
            latest: dict[int, int] = {}
            descriptor = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
            try:
                for number in range(frames):
                    head = os.pread(descriptor, FRAME_HEADER, HEADER + number * step)
                    if head[8:16] != salt:
                        return False
                    latest[int.from_bytes(head[:4], "big")] = HEADER + number * step + FRAME_HEADER
                for page, offset in latest.items():
                    if page > pages:
                        continue
                    file.seek((page - 1) * page_size)
                    if file.read(page_size) != os.pread(descriptor, page_size, offset):
                        return False
            finally:
                os.close(descriptor)
    except (OSError, struct.error):
        return False
    return True
