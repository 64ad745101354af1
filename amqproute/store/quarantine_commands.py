# SPDX-License-Identifier: Apache-2.0
"""Operators' commands for damaged messages that the store has set aside.

`listed` and `octets_of` only read, even while the daemon runs. `release` and `drop` write, while no
daemon has the store open: the log is first copied into the database and the seal updated, so that a
crash at any point leaves a store that the next start accepts.

A released message is a new one: it gets an id that no message had, because peers may know the old
one, and checksums of its present content.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

from amqproute.errors import DecodeError, StoreError
from amqproute.message import Message
from amqproute.store import database_schema
from amqproute.store.body_files import BodyDirectory
from amqproute.store.checksums import check_row, crc_of_queue, row_sum
from amqproute.store.model import QUARANTINE_NUMBER
from amqproute.store.seal import Seal, SealState
from amqproute.store.start_evidence import entry_totals_of, examine, read_only

__all__ = ["QuarantinedBody", "drop", "listed", "octets_of", "release"]

_COLUMNS: Final = (
    "SELECT id, queue, arrived, expires, flags, count, size, payload, body_start, body_length,"
    " encoded, octets_crc, row_sum FROM entry INDEXED BY entry_queue WHERE queue = ?"
)
_OF_QUARANTINE: Final = f"queue = {QUARANTINE_NUMBER}"


@dataclass(frozen=True, slots=True)
class QuarantinedBody:
    """A damaged message, as far as it can be read.

    Attributes:
        entry: its id.
        size: octets present; None if they cannot be read.
        arrived_ms: its arrival, by the wall clock; None if that is damaged.
        why: the damage, as text.
        message_id: the readable message-id, or None.
        to: the readable address, or None.
    """

    entry: int
    size: int | None
    arrived_ms: int | None
    why: str
    message_id: str | None = None
    to: str | None = None


def listed(path: str) -> list[QuarantinedBody]:
    """Return all messages in quarantine, in the order of their ids.

    Raises:
        StoreError: the store cannot be read.
    """
    found = []
    with _reading(path) as connection:
        for (entry,) in connection.execute(
            "SELECT id FROM entry INDEXED BY entry_queue WHERE queue = ? ORDER BY id",
            (QUARANTINE_NUMBER,),
        ).fetchall():
            found.append(_look_at(connection, path, entry))
    return found


def octets_of(path: str, entry: int) -> bytes:
    """Return the octets of a message in quarantine, as they are on disk.

    Raises:
        StoreError: it does not exist, or cannot be read.
    """
    with _reading(path) as connection:
        row = _row(connection, entry)
        head, rest = _octets(connection, path, row)
        if rest is None:
            return head
        return head + _of_file(path, *rest)


def release(path: str, entries: Sequence[int], queue: str) -> dict[int, int]:
    """Put messages on a queue with their present content.

    Args:
        path: the database file; no daemon may have it open.
        entries: ids of messages in quarantine.
        queue: its name in the store.

    Returns:
        The new ids, by old ids.

    Raises:
        StoreError: one of them is not in quarantine, or is no longer a valid message; then none is
            released. Or the store cannot be changed.
    """
    given: dict[int, int] = {}
    with _changing(path) as connection:
        number = _number_of(connection, queue)
        for entry in dict.fromkeys(entries):
            row = _row(connection, entry)
            given[entry] = _release(connection, path, row, number)
    return given


def drop(path: str, entries: Sequence[int]) -> None:
    """Delete messages for good.

    Args:
        path: the database file; no daemon may have it open.
        entries: ids of messages in quarantine.

    Raises:
        StoreError: one of them is not in quarantine; then none is deleted. Or the store cannot be
            changed.
    """
    with _changing(path) as connection:
        for entry in dict.fromkeys(entries):
            _row(connection, entry)
            connection.execute(f"DELETE FROM entry WHERE id = ? AND {_OF_QUARANTINE}", (entry,))  # noqa: S608
        _drop_payloads(connection)


# -- one message ---------------------------------------------------------------------------------


def _row(connection: sqlite3.Connection, entry: int) -> tuple[Any, ...]:
    row: tuple[Any, ...] | None = connection.execute(
        f"{_COLUMNS} AND id = ?", (QUARANTINE_NUMBER, entry)
    ).fetchone()
    if row is None:
        raise StoreError(f"entry {entry} is not in quarantine: see amqproute store quarantine ls")
    return row


def _look_at(connection: sqlite3.Connection, path: str, entry: int) -> QuarantinedBody:
    try:
        row = _row(connection, entry)
        fault = _fault_of(row)
        arrived = row[2] if fault is None else None
        head, rest = _octets(connection, path, row)
        if rest is not None:
            size = len(head) + rest[1]
            why = fault or "its body, in a file of its own, is damaged"
        else:
            size = len(head)
            why = fault or "its octets do not match their checksum"
    except (StoreError, sqlite3.Error) as error:
        return QuarantinedBody(entry, None, None, str(error))
    try:
        properties = Message(head).properties
        name, to = properties.message_id, properties.to
    except DecodeError:
        name = to = None
    return QuarantinedBody(
        entry,
        size,
        arrived,
        why,
        None if name is None else str(name),
        None if to is None else str(to),
    )


def _fault_of(row: Sequence[Any]) -> str | None:
    entry, queue, arrived, expires, flags, count, size, payload, _, _, _, crc, noted = row
    columns = (entry, queue, arrived, expires, flags, count, size, payload or 0)
    return check_row(columns, noted, crc)


def _octets(
    connection: sqlite3.Connection, path: str, row: Sequence[Any]
) -> tuple[bytes, tuple[int, int] | None]:
    """Return the octets of a message; and number and size of the file with the rest, if any.

    Raises:
        StoreError: reading failed.
    """
    entry, payload, start, length, encoded = row[0], row[7], row[8], row[9], row[10]
    if not isinstance(encoded, bytes):
        raise StoreError(f"entry {entry} has no octets")
    if payload is None:
        return encoded, None
    place = [one for one in (payload, start, length) if one is not None]
    if not all(type(one) is int for one in place):
        raise StoreError(f"where the octets of entry {entry} stand is damaged")
    if payload < 0 and start is None:
        return encoded, (-payload, length or 0)
    if payload < 0:
        return _of_file(path, -payload, length, start), None
    shared = connection.execute(
        "SELECT encoded, segment, body_start, body_length FROM payload WHERE id = ?", (payload,)
    ).fetchone()
    if shared is None:
        raise StoreError(f"payload {payload}, which has the octets of entry {entry}, is not there")
    octets, segment, start, length = shared
    if segment is not None:
        return _of_file(path, segment, length, start), None
    if not isinstance(octets, bytes):
        raise StoreError(f"payload {payload} has no octets")
    return octets, None


def _of_file(path: str, number: int, size: int, start: int = 0) -> bytes:
    name = BodyDirectory.of(path).name(number)
    try:
        with open(name, "rb") as file:
            file.seek(start)
            octets = file.read(size)
    except OSError as error:
        raise StoreError(f"{name}: {error.strerror}") from error
    if len(octets) < size:
        raise StoreError(f"{name} ends {size - len(octets)} octets before the message does")
    return octets


# -- changes -------------------------------------------------------------------------------------


def _release(connection: sqlite3.Connection, path: str, row: Sequence[Any], number: int) -> int:
    """Write a message again with a new id; return the id."""
    entry = row[0]
    head, rest = _octets(connection, path, row)
    try:
        _decode(head)
    except DecodeError as error:
        raise StoreError(
            f"entry {entry} is no longer a message ({error}): amqproute store quarantine show "
            f"{entry} --into FILE has the rest of it"
        ) from error
    if rest is not None:
        _of_file(path, *rest)  # checks that all of it is readable
    (fresh,) = connection.execute(
        "SELECT max(ifnull((SELECT max(id) FROM entry), 0), ifnull((SELECT max(id) FROM payload),"
        " 0), ifnull((SELECT value - 1 FROM meta WHERE key = 'next_id'), 0)) + 1"
    ).fetchone()
    is_sound = _fault_of(row) is None
    arrived, expires, flags = row[2:5] if is_sound else (_latest(connection), 0, 0)
    # A transient message would be deleted at start.
    flags &= ~1
    payload, length = (-rest[0], rest[1]) if rest is not None else (None, None)
    columns = (fresh, number, arrived, expires, flags, 0, len(head), payload or 0)
    # Without checksums of its row a file is read unchecked: its own would not match.
    sums = (crc32(head), row_sum(*columns)) if rest is None else (None, None)
    connection.execute(f"DELETE FROM entry WHERE id = ? AND {_OF_QUARANTINE}", (entry,))  # noqa: S608
    connection.execute(
        "INSERT INTO entry (id, queue, arrived, expires, flags, count, size, encoded, payload,"
        " body_length, octets_crc, row_sum) VALUES (?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?)",
        (fresh, number, arrived, expires, flags, len(head), head, payload, length, *sums),
    )
    _drop_payloads(connection)
    return int(fresh)


def _decode(octets: bytes) -> None:
    """Decode the sections of a message that the daemon reads.

    Raises:
        DecodeError: decoding failed.
    """
    message = Message(octets)
    _ = message.header, message.annotations, message.properties, message.application_properties


def _latest(connection: sqlite3.Connection) -> int:
    """Return the arrival of the last sound message, for messages whose own is unknown."""
    (at,) = connection.execute(
        f"SELECT max(arrived) FROM entry WHERE NOT {_OF_QUARANTINE}"  # noqa: S608
    ).fetchone()
    return at if type(at) is int else 0


def _number_of(connection: sqlite3.Connection, queue: str) -> int:
    row = connection.execute("SELECT number FROM queue WHERE name = ?", (queue,)).fetchone()
    if row is not None:
        return int(row[0])
    (number,) = connection.execute("SELECT ifnull(max(number), 0) + 1 FROM queue").fetchone()
    connection.execute(
        "INSERT INTO queue (number, name, row_crc) VALUES (?, ?, ?)",
        (number, queue, crc_of_queue(number, queue)),
    )
    return int(number)


def _drop_payloads(connection: sqlite3.Connection) -> None:
    connection.execute(
        "DELETE FROM payload WHERE NOT EXISTS"
        " (SELECT 1 FROM entry INDEXED BY entry_payload WHERE entry.payload = payload.id)"
    )


@contextmanager
def _reading(path: str) -> Iterator[sqlite3.Connection]:
    if not os.path.exists(path):
        raise StoreError(f"there is no store {path}")
    try:
        with read_only(path) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            _require(path, version)
            yield connection
    except sqlite3.Error as error:
        raise database_schema.in_words(error, path) from error


@contextmanager
def _changing(path: str) -> Iterator[sqlite3.Connection]:
    """Change the database in one transaction, so that it agrees with its seal at the next start."""
    if not os.path.exists(path):
        raise StoreError(f"there is no store {path}")
    evidence = examine(path)
    if evidence.finding is not None:
        raise StoreError(
            f"first there is a finding to be settled, {evidence.finding.name}: see amqproute store "
            "check"
        )
    try:
        with closing(database_schema.connect(path)) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            _require(path, version)
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if evidence.is_sealed:
                _seal(path, connection)
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if evidence.is_sealed:
                _seal(path, connection)
    except sqlite3.Error as error:
        raise database_schema.in_words(error, path) from error


def _require(path: str, version: int) -> None:
    if version != len(database_schema.UPGRADES):
        raise StoreError(
            f"{path} has schema version {version}: start the daemon of this release on it once"
        )


def _seal(path: str, connection: sqlite3.Connection) -> None:
    """Record in the seal that everything is in the database."""
    meta = dict(connection.execute("SELECT key, value FROM meta"))
    seal = Seal(f"{path}.seal")
    state = meta.get("mark", 0), meta.get("next_id", 1)
    sealed = SealState(
        meta.get("turn", 0),
        meta.get("round", 0),
        *state,
        is_copied=True,
        entry_totals=entry_totals_of(connection),
    )
    try:
        seal.write(sealed)
        seal.write(sealed)  # in both slots
    finally:
        seal.close()
