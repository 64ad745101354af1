# SPDX-License-Identifier: Apache-2.0
"""A file beside the database which says that the database proved damaged while it was open.

A start checks every page of a small database only. Without this file, a restart would open a large
database again in which SQLite has met a damaged page.
"""

from __future__ import annotations

import os
from typing import Final

from amqproute.durable_path import sync_path

__all__ = ["DamageSuspicion"]

SUFFIX: Final = ".suspect"


class DamageSuspicion:
    """The file that records the suspicion.

    Args:
        database: the database file.
    """

    def __init__(self, database: str) -> None:
        self.path = f"{database}{SUFFIX}"

    def stands(self) -> bool:
        """Tell whether the database has proved damaged and has not been checked since."""
        return os.path.exists(self.path)

    def raise_for(self, words: str) -> None:
        """Make the next start check the whole database.

        Args:
            words: SQLite's error, for readers of the file.

        Raises:
            OSError: it cannot be written.
        """
        with open(os.open(self.path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
            file.write(f"{words}\n")
            file.flush()
            os.fsync(file.fileno())
        sync_path(os.path.dirname(self.path))

    def dispel(self) -> None:
        """Remove the file, after the database was checked.

        Raises:
            OSError: it cannot be removed.
        """
        if self.stands():
            os.unlink(self.path)
            sync_path(os.path.dirname(self.path))
