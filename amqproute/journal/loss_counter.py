# SPDX-License-Identifier: Apache-2.0
"""The number of records that would be lost if the daemon ended now, kept in a file.

A full disk has no space for a ``gap`` record. The space of this file is allocated when the journal
begins, and it is overwritten in place; the next start that can write turns it into a ``gap``
record.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from twisted.logger import Logger

__all__ = ["NAME", "LossCounter"]

NAME: Final = "lost"
_DIGITS: Final = 20

log = Logger()


class LossCounter:
    """The file with the number.

    Args:
        directory: the journal.

    Attributes:
        count: the last number written; -1 before.
    """

    def __init__(self, directory: Path) -> None:
        self.count = -1
        self._path = directory / NAME
        self._has_failed = False

    def read(self) -> int:
        """Return the number; 0 if none can be read."""
        try:
            return int(self._path.read_bytes())
        except (OSError, ValueError):
            return 0

    def write(self, count: int) -> None:
        """Write the number to disk; if that fails, it is only in the log."""
        if count == self.count:
            return
        try:
            file = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(file, b"%0*d\n" % (_DIGITS, count), 0)
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            if not self._has_failed:
                log.warn("cannot write {path}: {error}", path=str(self._path), error=str(error))
            self._has_failed = True
        else:
            self.count = count
            self._has_failed = False
