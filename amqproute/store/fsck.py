# SPDX-License-Identifier: Apache-2.0
"""Check a database page by page, while no daemon uses it."""

from __future__ import annotations

import os
import sqlite3

from amqproute.errors import StoreError
from amqproute.store import schema


def check(path: str, limit: int = 100) -> list[str]:
    """Read everything: pages, indexes against tables, sizes against bodies, queues' names.

    Takes seconds per gigabyte and changes nothing, except that a log which a crash has left is
    read as the daemon would.

    Args:
        path: the database file.
        limit: how many findings at most from each check.

    Returns:
        One line for each finding; empty for a sound store.

    Raises:
        StoreError: there is nothing that could be checked.
    """
    if not os.path.exists(path):
        raise StoreError(f"there is no store {path}")
    connection = schema.connect(path)
    try:
        connection.execute("PRAGMA query_only=ON")
        (identity,) = connection.execute("PRAGMA application_id").fetchone()
        if identity != schema.APPLICATION_ID:
            raise StoreError(f"{path} is not a store of this program")
        findings = [
            line
            for (line,) in connection.execute(f"PRAGMA integrity_check({int(limit)})")
            if line != "ok"
        ]
        findings += [
            f"entry {entry_id}: {size} bytes noted, {length} bytes there"
            for entry_id, size, length in connection.execute(
                "SELECT id, size, length(encoded) FROM entry WHERE size <> length(encoded) LIMIT ?",
                (limit,),
            )
        ]
        findings += [
            f"queue {number} has entries and no name"
            for (number,) in connection.execute(
                "SELECT DISTINCT queue FROM entry INDEXED BY entry_queue"
                " WHERE queue NOT IN (SELECT number FROM queue) LIMIT ?",
                (limit,),
            )
        ]
    except sqlite3.DatabaseError as error:
        return [str(schema.in_words(error, path))]
    finally:
        connection.close()
    return findings
