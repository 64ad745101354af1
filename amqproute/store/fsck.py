# SPDX-License-Identifier: Apache-2.0
"""Check a database page by page, while no daemon uses it."""

from __future__ import annotations

import os
import sqlite3

from amqproute.errors import StoreError
from amqproute.store import schema


def check(path: str, limit: int = 100) -> list[str]:
    """Read everything: pages, indexes, sizes against bodies, queues' names, shared payloads.

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
                "SELECT entry.id, size, ifnull(length(payload.encoded), length(entry.encoded)) AS n"
                " FROM entry LEFT JOIN payload ON payload.id = entry.payload"
                " WHERE size <> n AND (entry.payload IS NULL OR payload.id IS NOT NULL) LIMIT ?",
                (limit,),
            )
        ]
        findings += [
            f"entry {entry_id} has its body in payload {payload_id}, which is not there"
            for entry_id, payload_id in connection.execute(
                "SELECT id, payload FROM entry INDEXED BY entry_payload WHERE payload IS NOT NULL"
                " AND payload NOT IN (SELECT id FROM payload) LIMIT ?",
                (limit,),
            )
        ]
        findings += [
            f"payload {payload_id} ({size} bytes) belongs to no entry"
            for payload_id, size in connection.execute(
                "SELECT id, length(encoded) FROM payload WHERE NOT EXISTS"
                " (SELECT 1 FROM entry INDEXED BY entry_payload"
                " WHERE entry.payload = payload.id) LIMIT ?",
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
