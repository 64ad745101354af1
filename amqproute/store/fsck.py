# SPDX-License-Identifier: Apache-2.0
"""Checks a database page by page, while no daemon uses it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from typing import Final
from zlib import crc32

from amqproute.errors import StoreError
from amqproute.store import database_schema
from amqproute.store.body_files import SEGMENT_BYTES, BodyDirectory, BodyFiles, named_files
from amqproute.store.checksums import (
    check_row,
    crc_of_note,
    crc_of_queue,
    crc_of_receipt,
    is_sound,
)
from amqproute.store.large_bodies import check_body
from amqproute.store.model import QUARANTINE_NUMBER
from amqproute.store.start_evidence import read_only

_NOW: Final = len(database_schema.UPGRADES)
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
        " WHERE queue NOT IN (SELECT number FROM queue)"
        f" AND queue <> {QUARANTINE_NUMBER}",
    ),
)
"""First and last schema version of each check, the text of a finding, and its query."""


WITH_FILES: Final = 3
"""The first schema version with files of bodies."""
WITH_SHARED_FILES: Final = 6
"""The first schema version with shared payloads in such files."""
WITH_CHECKSUMS: Final = 8
"""The first schema version with checksums."""


def _is_about_file(line: str, said: set[str]) -> bool:
    """Return whether a line is about a missing or short file, which is reported already."""
    return any(f"{each.partition(' ')[0]} " in line for each in said if "/" in each)


def _check_sums(connection: sqlite3.Connection, path: str, limit: int) -> list[str]:
    """Compare every row and every body with its checksums."""
    findings: list[str] = []
    directory = BodyDirectory.of(path)
    files = BodyFiles(directory, 0, SEGMENT_BYTES, 0)
    bodies: dict[int, int] = {}
    try:
        for words in entry_faults(connection, files, bodies):
            findings.append(words)
            if len(findings) >= limit:
                return findings
        for words in payload_faults(connection, files):
            findings.append(words)
            if len(findings) >= limit:
                return findings
    finally:
        files.close()
    for number, size in bodies.items():
        fault = check_body(directory.name(number), size)
        if fault is not None:
            findings.append(fault)
    findings += small_row_faults(connection)
    (count,) = connection.execute(
        "SELECT count(*) FROM entry INDEXED BY entry_queue WHERE queue = ?",
        (QUARANTINE_NUMBER,),
    ).fetchone()
    if count:
        findings.append(f"{count} damaged entries are in quarantine")
    return findings[:limit]


def small_row_faults(connection: sqlite3.Connection) -> Iterator[str]:
    """Compare receipts, notes and names of queues with their checksums.

    Every start reads all of them, and fails if one is damaged.
    """
    for table, columns, crc_of in _SMALL:
        for *row, crc in connection.execute(f"SELECT {columns}, row_crc FROM {table}"):
            if not is_sound(crc_of, row, crc):
                yield f"a row of {table} does not match its checksum: {row!r:.200}"


def entry_faults(
    connection: sqlite3.Connection, files: BodyFiles, bodies: dict[int, int]
) -> Iterator[str]:
    """Yield the problems of entries, one line each.

    Args:
        connection: the database; text is read by `database_schema.read_text`.
        files: the segments.
        bodies: receives number and size of the files that hold one body.
    """
    for entry_id, queue, arrived, expires, flags, count, size, payload, *rest in connection.execute(
        "SELECT id, queue, arrived, expires, flags, count, size, payload, body_start, body_length,"
        " encoded, octets_crc, row_sum FROM entry ORDER BY id"
    ):
        start, length, encoded, crc, noted = rest
        columns = (entry_id, queue, arrived, expires, flags, count, size, payload or 0)
        fault = check_row(columns, noted, crc)
        if fault is None and crc is not None and isinstance(encoded, bytes):
            if payload is not None and payload < 0 and start is None:
                bodies[-payload] = length
            elif payload is not None and payload < 0:
                try:
                    encoded = files.read(-payload, start, length)
                except StoreError as error:
                    yield f"entry {entry_id}: {error}"
                    continue
            if crc32(encoded) != crc:
                fault = "its octets do not match their checksum"
        elif not isinstance(encoded, bytes):
            fault = "its octets are none"
        if fault is not None:
            place = " (in quarantine)" if queue == QUARANTINE_NUMBER else ""
            yield f"entry {entry_id}{place}: {fault}"


def payload_faults(connection: sqlite3.Connection, files: BodyFiles) -> Iterator[str]:
    """Yield the problems of shared payloads, one line each."""
    for number, encoded, segment, start, length, crc in connection.execute(
        "SELECT id, encoded, segment, body_start, body_length, octets_crc FROM payload ORDER BY id"
    ):
        if crc is None:
            continue
        try:
            octets = encoded if segment is None else files.read(segment, start, length)
        except StoreError as error:
            yield f"payload {number}: {error}"
            continue
        if not isinstance(octets, bytes) or crc32(octets) != crc:
            yield f"payload {number}: its octets do not match their checksum"


_SMALL: Final = (
    ("receipt", "stream, low, high, at, steps", crc_of_receipt),
    ("note", "kind, key, value", crc_of_note),
    ("queue", "number, name", crc_of_queue),
)


def _check_files(connection: sqlite3.Connection, path: str, version: int) -> list[str]:
    directory = BodyDirectory.of(path)
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
    """Read and compare everything.

    The check covers pages, indexes, sizes against bodies, queues' names, shared payloads, files,
    and every row and body against its checksums.

    It takes seconds per gigabyte and changes nothing: a log left by a crash is read as the daemon
    would read it, and stays unchanged.

    Args:
        path: the database file.
        limit: maximum number of findings of each check.

    Returns:
        One line for each finding; empty for a sound store.

    Raises:
        StoreError: there is nothing to check.
    """
    if not os.path.exists(path):
        raise StoreError(f"there is no store {path}")
    try:
        with read_only(path) as connection:
            (identity,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if identity != database_schema.APPLICATION_ID:
                raise StoreError(f"{path} is not a store of this program")
            database_schema.check_identity(path, identity, version, is_empty=False)
            findings = [
                line
                for (line,) in connection.execute(f"PRAGMA integrity_check({int(limit)})")
                if line != "ok"
            ]
            for first, last, words, statement in _CHECKS:
                if first <= version <= last:
                    found = connection.execute(f"{statement} LIMIT ?", (limit,))
                    findings += [words.format(*row) for row in found]
            if version >= WITH_FILES:
                findings += _check_files(connection, path, version)[:limit]
            if version >= WITH_CHECKSUMS:
                # One line per problem is enough.
                said = {line.partition(":")[0] for line in findings}
                sums = _check_sums(connection, path, limit)
                findings += [
                    line
                    for line in sums
                    if line.partition(":")[0] not in said and not _is_about_file(line, said)
                ]
    except sqlite3.DatabaseError as error:
        return [str(database_schema.in_words(error, path))]
    return findings
