# SPDX-License-Identifier: Apache-2.0
"""File names of a store, and the names of its queues, for readers other than the daemon."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

from amqproute.errors import StoreError
from amqproute.store.database_copy import is_large, temporary_copy

__all__ = ["STORE_FILE", "queue_names"]

STORE_FILE: Final = "store.db"
"""Name of the database in a daemon's state directory."""
MOST_NAMES: Final = 100_000


def queue_names(path: Path, prefix: str) -> list[str]:
    """Return the names of the queues in a database that begin with a prefix, sorted.

    Nothing is opened for writing, and the daemon may run. Of a large database the log is not read,
    so names of the last minutes may be missing.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        if is_large(path):
            return _names(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", prefix)
        with temporary_copy(path) as copy:
            return _names(f"file:{quote(str(copy))}", prefix)
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error


def _names(address: str, prefix: str) -> list[str]:
    with closing(sqlite3.connect(address, uri=True)) as database:
        rows = database.execute(
            "SELECT name FROM queue WHERE substr(name, 1, ?) = ? ORDER BY name LIMIT ?",
            (len(prefix), prefix, MOST_NAMES),
        )
        return [str(name) for (name,) in rows]
