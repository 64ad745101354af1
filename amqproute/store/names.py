# SPDX-License-Identifier: Apache-2.0
"""What a store is called, and which queues it has, for who looks at it without its daemon."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

from amqproute.errors import StoreError

__all__ = ["STORE_FILE", "queue_names"]

STORE_FILE: Final = "store.db"
"""What the database is called in a daemon's state directory."""
MOST_NAMES: Final = 100_000
PATIENCE_SECONDS: Final = 2.0


def queue_names(path: Path, prefix: str) -> list[str]:
    """Return the names of the queues in a database that begin with a prefix, in order.

    The database is opened for reading only, also while its daemon runs.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        with closing(
            sqlite3.connect(
                f"file:{quote(str(path.absolute()))}?mode=ro", uri=True, timeout=PATIENCE_SECONDS
            )
        ) as database:
            rows = database.execute(
                "SELECT name FROM queue WHERE substr(name, 1, ?) = ? ORDER BY name LIMIT ?",
                (len(prefix), prefix, MOST_NAMES),
            )
            return [str(name) for (name,) in rows]
    except sqlite3.Error as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
