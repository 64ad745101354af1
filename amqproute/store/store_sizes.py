# SPDX-License-Identifier: Apache-2.0
"""Sizes of a store's files, and how they follow from the size of the file system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from amqproute.store.body_files import SEGMENT_BYTES

__all__ = ["FILE_BYTES", "GROUP_BYTES", "StoreSizes", "sizes_for"]

MEBIBYTE: Final = 1024 * 1024
FILE_BYTES: Final = 32 * 1024
"""See `amqproute.store.body_files`, "Why so"."""
GROUP_BYTES: Final = 16 * MEBIBYTE
PART: Final = 12
"""Share of a small file system, as a divisor, for the log and for the ballast."""
LEAST_BYTES: Final = MEBIBYTE


@dataclass(frozen=True, slots=True)
class StoreSizes:
    """Sizes and bounds of a store's files.

    Attributes:
        checkpoint_bytes: length of the log at which copying into the database begins.
        remainder_bytes: what the writer may copy itself between two commits.
        ballast_bytes: room set aside for a full disk (`amqproute.store.ballast`); 0 for none.
        segment_bytes: a file of large messages is full at this size.
        group_bytes: messages in one commit, approximately.
        file_bytes: messages of this size and more are stored in files beside the database.
        page_size: bytes, for a new database.
        max_bytes: bound on the database file, and on the body files of either kind; 0 for none.
            Beyond it transactions that need room fail; those that make room do not.
        check_bytes: a database up to this size is checked page by page when it is opened.
    """

    checkpoint_bytes: int = 32 * MEBIBYTE
    remainder_bytes: int = MEBIBYTE
    ballast_bytes: int = 0
    segment_bytes: int = SEGMENT_BYTES
    group_bytes: int = GROUP_BYTES
    file_bytes: int = FILE_BYTES
    page_size: int = 8192
    max_bytes: int = 0
    check_bytes: int = 64 * MEBIBYTE

    @property
    def at_start(self) -> int:
        """Octets that have to be free for a new store that accepts messages."""
        return self.checkpoint_bytes + self.remainder_bytes + 2 * self.ballast_bytes


USUAL: Final = StoreSizes(ballast_bytes=33 * MEBIBYTE)


def sizes_for(total: int) -> StoreSizes:
    """Return the sizes for a file system.

    Args:
        total: its size, octets. On a small one, log, ballast and segments are parts of it.
    """
    ballast = max(LEAST_BYTES, total // PART)
    if ballast >= USUAL.ballast_bytes:
        return USUAL
    remainder = ballast // 16
    return StoreSizes(ballast - remainder, remainder, ballast, ballast, ballast // 2)
