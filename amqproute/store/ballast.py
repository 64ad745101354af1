# SPDX-License-Identifier: Apache-2.0
"""Ballast: room set aside for the day on which the disk is full.

Removing messages from a database needs room too: a page in the write-ahead log for each page that
changes, and, when the log is copied, a longer database for earlier inserts. Without any room
neither is possible, and a store that was stopped could not even be opened to be emptied.

So a file as long as the log lies beside the database. It is removed when something that frees room
fails because the disk is full. From then on the database may not grow: what is in the log by then
fits into the freed room, and later changes fit into the log, so messages can be removed for as long
as necessary (`db_writer.DatabaseWriter.yield_turn`). The file is created again when there is plenty
of room; or, when a store is closed, in the room that its log occupied, so that the store can be
opened again.

On a small file system, log, ballast and segments are parts of it (`amqproute.store.store_sizes`):
a store whose log and ballast alone are larger than the disk would be closed from its first day.
"""

from __future__ import annotations

import os

from twisted.logger import Logger

__all__ = ["Ballast"]

log = Logger()


class Ballast:
    """The file.

    Args:
        path: the path of the file.
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
            why: its purpose, as text.
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
