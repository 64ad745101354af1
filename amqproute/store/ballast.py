# SPDX-License-Identifier: Apache-2.0
"""Room that is set aside for the day on which the disk is full.

Taking messages out of a database needs room too: a page in the write-ahead log for each that
changes, and, when the log is copied, a longer database for what was put in before. With no octet
left neither is possible, and a store that was stopped could not even be opened to be emptied.

So a file as long as the log lies beside the database. It is removed when something that frees room
fails for want of it. From then on the database does not grow: what was put into the log until then
fits into the room, and all that goes on fits into the log, so messages can be taken out for as
long as it takes (`db_writer.DatabaseWriter.yield_turn`). The file is made again when there is
plenty of room; or when a store is closed, of the room that its log had, so that it can be opened
again.

On a small file system log, ballast and segments are a part of it (`sizes_for`): a store whose log
and ballast alone are larger than the disk would be closed from its first day.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from twisted.logger import Logger

__all__ = ["Ballast", "StoreSizes", "sizes_for"]

MEBIBYTE: Final = 1024 * 1024
PART: Final = 12
"""What the log, and the ballast, may each take of a small file system."""
LEAST_BYTES: Final = MEBIBYTE

log = Logger()


@dataclass(frozen=True, slots=True)
class StoreSizes:
    """How long the files of a store become, octets.

    Attributes:
        checkpoint: the length of the log at which copying into the database begins.
        remainder: what the writer may copy itself between two commits.
        ballast: as long as the log.
        segment: where a file of large messages is full.
        group: of messages in one commit.
    """

    checkpoint: int
    remainder: int
    ballast: int
    segment: int
    group: int

    @property
    def at_start(self) -> int:
        """What has to be free for a new store that takes messages."""
        return self.checkpoint + self.remainder + 2 * self.ballast


USUAL: Final = StoreSizes(32 * MEBIBYTE, MEBIBYTE, 33 * MEBIBYTE, 32 * MEBIBYTE, 16 * MEBIBYTE)


def sizes_for(total: int) -> StoreSizes:
    """Return the sizes for a file system of so many octets: on a small one, parts of it."""
    ballast = max(LEAST_BYTES, total // PART)
    if ballast >= USUAL.ballast:
        return USUAL
    remainder = ballast // 16
    return StoreSizes(ballast - remainder, remainder, ballast, ballast, ballast // 2)


class Ballast:
    """The file.

    Args:
        path: of the file.
        size: octets; 0 for no such file.
    """

    def __init__(self, path: str, size: int) -> None:
        self.path = path
        self.size = size

    def __repr__(self) -> str:
        return f"<Ballast {self.path} {self.size}{'' if self.is_there else ' gone'}>"

    @property
    def is_there(self) -> bool:
        """Whether it could be dropped."""
        return bool(self.size) and os.path.exists(self.path)

    def load(self, spare: int = 2) -> bool:
        """Make it if it is missing and there is plenty of room; True if it is there now.

        Args:
            spare: times its size that have to be free.
        """
        if not self.size:
            return False
        try:
            if os.path.exists(self.path) and os.stat(self.path).st_size >= self.size:
                return True
            room = os.statvfs(os.path.dirname(self.path))
            if room.f_bavail * room.f_frsize < spare * self.size:
                return self.is_there
            descriptor = os.open(self.path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, self.size)
            finally:
                os.close(descriptor)
        except OSError as error:
            self._remove()
            log.info("no ballast {path}: {error}", path=self.path, error=str(error))
            return False
        return True

    def drop(self, why: str) -> bool:
        """Give the room up; True if there was any.

        Args:
            why: what it is needed for, in words.
        """
        if not self.is_there:
            return False
        self._remove()
        log.warn(
            "the disk is full: {size} bytes of ballast given up to {why}; {path} is made again "
            "when there is room",
            size=self.size,
            why=why,
            path=self.path,
        )
        return True

    def _remove(self) -> None:
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warn("cannot remove {path}: {error}", path=self.path, error=str(error))
