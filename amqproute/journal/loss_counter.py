# SPDX-License-Identifier: Apache-2.0
"""How many records are lost if the daemon ends now: a number in a file, for the next start.

A full disk takes no ``gap`` record. The file has its room since the journal began, and is
overwritten where it stands; the next start that can write makes a ``gap`` of it.
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
    """The file.

    Args:
        directory: of the journal.

    Attributes:
        count: what was written last; -1 before.
    """

    def __init__(self, directory: Path) -> None:
        self.count = -1
        self._path = directory / NAME
        self._has_failed = False

    def read(self) -> int:
        """Return the number; 0 if there is none that can be read."""
        try:
            return int(self._path.read_bytes())
        except (OSError, ValueError):
            return 0

    def write(self, count: int) -> None:
        """Have the number on the disk; where that takes none, the log is all there is."""
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
