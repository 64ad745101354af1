# SPDX-License-Identifier: Apache-2.0
"""Check a database page by page, while no daemon uses it."""

from __future__ import annotations

import os
import sqlite3
from typing import Final

from amqproute.errors import StoreError
from amqproute.store import schema
from amqproute.store.evidence import read_only
from amqproute.store.files import Directory, named_files

_NOW: Final = len(schema.UPGRADES)
_CHECKS: Final = (
    (
        1,
        1,
        "entry {}: {} bytes noted, {} bytes there",
        "SELECT id, size, length(encoded) FROM entry WHERE size <> length(encoded)",
    ),
    (
        2,
        2,
        "entry {}: {} bytes noted, {} bytes there",
        "SELECT id, size, length(encoded) FROM entry"
        " WHERE size <> length(encoded) AND payload IS NULL",
    ),
    (
        3,
        _NOW,
        "entry {}: {} bytes noted, {} bytes there",
        "SELECT id, size, ifnull(body_length, length(encoded)) FROM entry"
        " WHERE iif(payload < 0 AND body_start IS NOT NULL, size <> body_length OR encoded <> x'',"
        " size <> length(encoded) AND ifnull(payload, -1) < 0)",
    ),
    (
        2,
        5,
        "entry {}: {} bytes noted, {} bytes in payload {}",
        "SELECT e.id, e.size, length(p.encoded), p.id FROM entry AS e INDEXED BY entry_payload"
        " JOIN payload AS p ON p.id = e.payload"
        " WHERE e.payload IS NOT NULL AND e.size <> length(p.encoded)",
    ),
    (
        6,
        _NOW,
        "entry {}: {} bytes noted, {} bytes in payload {}",
        "SELECT e.id, e.size, ifnull(p.body_length, length(p.encoded)), p.id"
        " FROM entry AS e INDEXED BY entry_payload JOIN payload AS p ON p.id = e.payload"
        " WHERE e.payload IS NOT NULL AND e.size <> ifnull(p.body_length, length(p.encoded))",
    ),
    (
        2,
        _NOW,
        "entry {} has its body in payload {}, which is not there",
        "SELECT id, payload FROM entry INDEXED BY entry_payload"
        " WHERE payload IS NOT NULL AND payload > 0 AND payload NOT IN (SELECT id FROM payload)",
    ),
    (
        2,
        _NOW,
        "payload {} ({} bytes) belongs to no entry",
        "SELECT id, length(encoded) FROM payload WHERE NOT EXISTS"
        " (SELECT 1 FROM entry INDEXED BY entry_payload WHERE entry.payload = payload.id)",
    ),
    (
        1,
        _NOW,
        "queue {} has entries and no name",
        "SELECT DISTINCT queue FROM entry INDEXED BY entry_queue"
        " WHERE queue NOT IN (SELECT number FROM queue)",
    ),
)
"""First and last schema version it fits, what is wrong, and a query for where it is."""


WITH_FILES: Final = 3
"""The first schema version that knows files of bodies."""
WITH_SHARED_FILES: Final = 6
"""The first schema version that has shared payloads in them, too."""


def _check_files(connection: sqlite3.Connection, path: str, version: int) -> list[str]:
    directory = Directory.of(path)
    there = directory.look()
    findings = []
    for number, wanted, _, count in named_files(connection, version >= WITH_SHARED_FILES):
        size = there.pop(number, None)
        if size is None:
            findings.append(f"{directory.name(number)} is missing: {count} entries are in it")
        elif size < wanted:
            findings.append(f"{directory.name(number)} has {size} bytes, entries need {wanted}")
    return findings + [
        f"{directory.name(number)} ({size} bytes) belongs to no entry"
        for number, size in there.items()
    ]


def check(path: str, limit: int = 100) -> list[str]:
    """Read everything: pages, indexes, sizes against bodies, queues' names, shared payloads, files.

    Takes seconds per gigabyte and changes nothing: a log which a crash has left is read as the
    daemon would, and stays as it is.

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
    connection = read_only(path)
    try:
        (identity,) = connection.execute("PRAGMA application_id").fetchone()
        if identity != schema.APPLICATION_ID:
            raise StoreError(f"{path} is not a store of this program")
        findings = [
            line
            for (line,) in connection.execute(f"PRAGMA integrity_check({int(limit)})")
            if line != "ok"
        ]
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        for first, last, words, statement in _CHECKS:
            if first <= version <= last:
                found = connection.execute(f"{statement} LIMIT ?", (limit,))
                findings += [words.format(*row) for row in found]
        if version >= WITH_FILES:
            findings += _check_files(connection, path, version)[:limit]
    except sqlite3.DatabaseError as error:
        return [str(schema.in_words(error, path))]
    finally:
        connection.close()
    return findings
