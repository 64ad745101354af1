# SPDX-License-Identifier: Apache-2.0
"""A file beside the database: it has proved damaged while open, so the next start checks all of it.

A start looks at every page of a small database only. Without this, a restart would open a large
one again in which SQLite has met a damaged page.
"""

from __future__ import annotations

import os
from typing import Final

from amqproute.store.start_evidence import sync_folder

__all__ = ["DamageSuspicion"]

SUFFIX: Final = ".suspect"


class DamageSuspicion:
    """The file.

    Args:
        database: the database file.
    """

    def __init__(self, database: str) -> None:
        self.path = f"{database}{SUFFIX}"

    def stands(self) -> bool:
        """Whether the database has proved damaged and was not checked since."""
        return os.path.exists(self.path)

    def raise_for(self, words: str) -> None:
        """Have the next start check the whole database.

        Args:
            words: what SQLite has met, for whoever reads the file.

        Raises:
            OSError: it cannot be written.
        """
        with open(os.open(self.path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
            file.write(f"{words}\n")
            file.flush()
            os.fsync(file.fileno())
        sync_folder(os.path.dirname(self.path))

    def dispel(self) -> None:
        """The database was checked.

        Raises:
            OSError: it cannot be removed.
        """
        if self.stands():
            os.unlink(self.path)
            sync_folder(os.path.dirname(self.path))
