# SPDX-License-Identifier: Apache-2.0
"""Bulk SQL: statements that process many rows in one step.

Python's ``sqlite3`` releases the interpreter lock around every single step. While the reactor's
thread computes, regaining it can take a whole switch interval (5 ms), so ``executemany`` over 400
rows could take seconds. Hence statements of fixed sizes with many rows each, and a page of entries
read as one row: its bodies joined by SQLite, its other columns as JSON.
**Shared payloads** are deleted in the commit that deletes the last entry that refers to them.
The ids of a dequeue do not tell which entries share a payload, and entries that share none should
not pay for the question: so they are deleted by ``payload IS NULL``, and only when fewer were
deleted than were named are the others looked up. Their payloads are *touched*; at the end of the
group those without references are deleted (`write_stages`). Body files, which have negative numbers
as payloads, are handled the same way (`amqproute.store.body_files`).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, Final
from zlib import crc32

from amqproute.errors import MessageDamaged, StoreError
from amqproute.jsontext import parse_json
from amqproute.store.body_files import ROW_WIDTH, BodyFiles, Filed
from amqproute.store.checksums import (
    crc_of_note,
    crc_of_receipt,
    shifted,
    summed,
    summed_shared,
)
from amqproute.store.model import Column, StoredReceipt
from amqproute.store.pending_commit import CommitFacts, SharedRows, StatementGroup

LARGEST: Final = 256
"""Rows in the largest statement."""
GRAIN: Final = 64
"""There is a statement for each number of rows up to this one; above, for each multiple."""


class BulkWrite:
    """A statement for a list of rows, in sizes that the statement cache can hold."""

    def __init__(self, head: str, row: str, tail: str = "") -> None:
        self._width = row.count("?")
        sizes = [*range(1, GRAIN), *range(GRAIN, LARGEST + 1, GRAIN)]
        self._texts = {size: head + ",".join([row] * size) + tail for size in sizes}

    def run(self, connection: sqlite3.Connection, flat: Sequence[Column]) -> int:
        """Execute it for `flat`, the concatenated values of the rows; count the changed rows."""
        done = 0
        for text, part in self._parts(flat):
            done += connection.execute(text, part).rowcount
        return done

    def count(self, connection: sqlite3.Connection, flat: Sequence[Column]) -> int:
        """Execute a query whose result is a number, for each part of `flat`; return the sum."""
        parts = self._parts(flat)
        return sum([connection.execute(text, part).fetchone()[0] for text, part in parts])

    def texts(self, connection: sqlite3.Connection, flat: Sequence[Column]) -> list[str]:
        """Execute a query whose result is a text, for each part of `flat`."""
        return [connection.execute(text, part).fetchone()[0] for text, part in self._parts(flat)]

    def _parts(self, flat: Sequence[Column]) -> list[tuple[str, Sequence[Column]]]:
        parts = []
        start, width = 0, self._width
        rows = len(flat) // width
        while rows:
            size = min(rows, LARGEST)
            if size > GRAIN:
                size -= size % GRAIN
            stop = start + size * width
            part = flat if size * width == len(flat) else flat[start:stop]
            parts.append((self._texts[size], part))
            start, rows = stop, rows - size
        return parts


INSERT = BulkWrite(
    "INSERT INTO entry (id, queue, arrived, expires, flags, count, size, encoded, octets_crc,"
    " row_sum) VALUES ",
    "(?,?,?,?,?,?,?,?,?,?)",
)
SHARE = BulkWrite("INSERT INTO payload (id, encoded, octets_crc) VALUES ", "(?,?,?)")
SHARE_FILED = BulkWrite(
    "INSERT INTO payload (id, encoded, segment, body_start, body_length, octets_crc) VALUES ",
    "(?,x'',?,?,?,?)",
)
INSERT_SHARED = BulkWrite(
    "INSERT INTO entry (id, queue, arrived, expires, flags, count, size, encoded, payload,"
    " octets_crc, row_sum) VALUES ",
    "(?,?,?,?,?,0,?,x'',?,0,?)",  # 0 is the CRC of no octets
)
INSERT_FILED = BulkWrite(
    "INSERT INTO entry (id, queue, arrived, expires, flags, count, size, encoded, payload,"
    " body_start, body_length, octets_crc, row_sum) VALUES ",
    "(?,?,?,?,?,0,?,?,?,?,?,?,?)",
)
PRESENT = BulkWrite("SELECT count(*) FROM payload WHERE id IN (", "?", ")")
_UNHELD = (
    " AND NOT EXISTS"
    " (SELECT 1 FROM entry INDEXED BY entry_payload WHERE entry.payload = payload.id)"
)
SWEEP = BulkWrite("DELETE FROM payload WHERE id IN (", "?", f"){_UNHELD}")
SWEPT = BulkWrite(
    "SELECT json_group_array(json_array(segment, given)) FROM (SELECT segment,"
    " sum(body_length) AS given FROM payload NOT INDEXED WHERE id IN (",
    "?",
    f") AND segment IS NOT NULL{_UNHELD} GROUP BY segment)",
)
DELETE = BulkWrite("DELETE FROM entry WHERE id IN (", "?", ")")
DELETE_PLAIN = BulkWrite("DELETE FROM entry WHERE id IN (", "?", ") AND payload IS NULL")
# NOT INDEXED: by rowid, not through all shared entries.
_TOUCHED = (
    "SELECT json_group_array(json_array(payload, given)) FROM (SELECT payload,"
    " sum(iif(body_start IS NULL, 0, body_length)) AS given FROM entry NOT INDEXED WHERE "
)
_OF_EACH = " AND payload IS NOT NULL GROUP BY payload)"
TOUCHED = BulkWrite(f"{_TOUCHED} id IN (", "?", f") {_OF_EACH}")
COUNT = BulkWrite(
    f"UPDATE entry SET count = v.column2, row_sum = {shifted(count='v.column2')} FROM (VALUES ",
    "(?,?)",
    ") AS v WHERE entry.id = v.column1",
)
# A row without checksums for its columns gets none for its octets.
_OWN_CRC = "octets_crc = iif(row_sum IS NULL, NULL, v.column4)"
REPLACE = BulkWrite(
    "UPDATE entry SET count = v.column2, size = length(v.column3), encoded = v.column3,"
    f" {_OWN_CRC}, row_sum = {shifted(count='v.column2', size='length(v.column3)')}"
    " FROM (VALUES ",
    "(?,?,?,?)",
    ") AS v WHERE entry.id = v.column1 AND entry.payload IS NULL",
)
_UNSHARED = "iif(payload < 0 AND body_start IS NULL, payload, NULL)"
UNSHARE = BulkWrite(
    "UPDATE entry SET count = v.column2, size = length(v.column3), encoded = v.column3,"
    f" payload = {_UNSHARED}, {_OWN_CRC}, row_sum = "
    + shifted(count="v.column2", size="length(v.column3)", payload=f"ifnull({_UNSHARED}, 0)")
    + " FROM (VALUES ",
    "(?,?,?,?)",
    ") AS v WHERE entry.id = v.column1 AND entry.payload IS NOT NULL",
)
_MOVED_SIZE = "ifnull(length(v.column4), size)"
_MOVED_PAYLOAD = (
    "CASE WHEN v.column4 IS NULL OR payload < 0 AND body_start IS NULL THEN payload END"
)
MOVE = BulkWrite(
    "UPDATE entry SET id = v.column2, queue = v.column3,"
    f" size = {_MOVED_SIZE}, encoded = ifnull(v.column4, encoded), payload = {_MOVED_PAYLOAD},"
    " octets_crc = iif(v.column4 IS NULL OR row_sum IS NULL, octets_crc, v.column5), row_sum = "
    + shifted(
        id="v.column2",
        queue="v.column3",
        size=_MOVED_SIZE,
        payload=f"ifnull({_MOVED_PAYLOAD}, 0)",
    )
    + " FROM (VALUES ",
    "(?,?,?,?,?)",
    ") AS v WHERE entry.id = v.column1",
)
# Copies keep their checksum: damage stays visible.
PLACE_PAYLOAD = BulkWrite(
    "UPDATE payload SET segment = v.column2, body_start = v.column3 FROM (VALUES ",
    "(?,?,?)",
    ") AS v WHERE payload.id = v.column1",
)
PLACE = BulkWrite(
    "UPDATE entry SET payload = v.column2, body_start = v.column3,"
    f" row_sum = {shifted(payload='v.column2')} FROM (VALUES ",
    "(?,?,?)",
    ") AS v WHERE entry.id = v.column1",
)
NAME = BulkWrite("INSERT OR IGNORE INTO queue (number, name, row_crc) VALUES ", "(?,?,?)")
RECEIPT = BulkWrite(
    "INSERT OR REPLACE INTO receipt (stream, low, high, at, steps, row_crc) VALUES ",
    "(?,?,?,?,?,?)",
)
NOTE = BulkWrite("INSERT OR REPLACE INTO note (kind, key, value, row_crc) VALUES ", "(?,?,?,?)")


Touched = dict[int, int]
"""Payloads that entries have referred to, with the octets of a segment that they freed."""


def write_stages(
    connection: sqlite3.Connection, stages: Sequence[StatementGroup], files: BodyFiles
) -> int:
    """Write the changes of entries stage by stage, and delete payloads without references.

    Body files are on the disk when this returns.

    Returns:
        The number of entries to be dequeued or moved that did not exist.

    Raises:
        StoreError: a new entry refers to a payload that does not exist.
    """
    touched: Touched = {}
    absent = 0
    for stage in stages:
        absent += _write_stage(connection, stage, touched, files)
    if touched:
        _let_go(connection, touched, files)
    files.sync()
    return absent


def _let_go(connection: sqlite3.Connection, touched: Touched, files: BodyFiles) -> None:
    left = {-payload: given for payload, given in touched.items() if payload < 0}
    payloads = sorted(payload for payload in touched if payload > 0)
    for found in SWEPT.texts(connection, payloads):
        for number, given in json.loads(found):
            left[number] = left.get(number, 0) + given
    SWEEP.run(connection, payloads)
    files.left(left)


def _write_stage(
    connection: sqlite3.Connection, stage: StatementGroup, touched: Touched, files: BodyFiles
) -> int:
    absent = 0
    if stage.rows:
        INSERT.run(connection, summed(stage.rows))
    if stage.shared is not None:
        _insert_shared(connection, stage.shared, files)
        if stage.shared.filed:
            INSERT_FILED.run(connection, files.place(stage.shared.filed))
        touched.update(dict.fromkeys([-number for number in stage.shared.unborn], 0))
    if stage.updates:
        counts: list[Column] = []
        bodies: list[Any] = []
        for entry_id, (count, encoded) in stage.updates.items():
            if encoded is None:
                counts += (entry_id, count)
            else:
                bodies += (entry_id, count, encoded, crc32(encoded))
        COUNT.run(connection, counts)
        done = REPLACE.run(connection, bodies)
        if done < len(bodies) // 4 and _touch(connection, bodies[::4], touched):
            UNSHARE.run(connection, bodies)
    if stage.moves:
        replaced = [old for old, (_, _, encoded) in stage.moves.items() if encoded is not None]
        _touch(connection, replaced, touched)
        moves: list[Column] = []
        for old, move in stage.moves.items():
            moves += (old, *move, None if move[2] is None else crc32(move[2]))
        absent += len(stage.moves) - MOVE.run(connection, moves)
    if stage.dequeued:
        absent += len(stage.dequeued) - _delete(connection, sorted(stage.dequeued), touched)
    return absent


def _insert_shared(connection: sqlite3.Connection, shared: SharedRows, files: BodyFiles) -> None:
    # Not a foreign key: SQLite would look up each entry's payload, but only the payloads of
    # earlier transactions can be missing.
    known = shared.references() - shared.payloads.keys()
    if known and PRESENT.count(connection, sorted(known)) < len(known):
        raise StoreError(f"an entry refers to a deleted payload (one of {sorted(known)[:9]})")
    bound = files.file_bytes
    small = [(one, encoded) for one, encoded in shared.payloads.items() if len(encoded) < bound]
    SHARE.run(connection, [each for one, body in small for each in (one, body, crc32(body))])
    if len(small) < len(shared.payloads):
        large = [(one, body) for one, body in shared.payloads.items() if len(body) >= bound]
        places = files.append([body for _, body in large])
        rows = zip(large, places, strict=True)
        SHARE_FILED.run(
            connection,
            [each for (one, body), place in rows for each in (one, *place, len(body), crc32(body))],
        )
    INSERT_SHARED.run(connection, summed_shared(shared.rows))


def _touch(connection: sqlite3.Connection, ids: Sequence[int], touched: Touched) -> int:
    """Add the payloads of these entries to `touched`; return their number."""
    return sum([_add_touched(found, touched) for found in TOUCHED.texts(connection, ids)])


def _add_touched(found: str, touched: Touched) -> int:
    pairs = json.loads(found)
    for payload, given in pairs:
        touched[payload] = touched.get(payload, 0) + given
    return len(pairs)


def _delete(connection: sqlite3.Connection, ids: list[int], touched: Touched) -> int:
    """Delete entries; return how many were deleted."""
    count = len(ids)
    if ids[-1] - ids[0] == count - 1:
        return _delete_where(connection, "id BETWEEN ? AND ?", (ids[0], ids[-1]), count, touched)
    # Ids may be repeated: the list is padded to a size for which there is a statement.
    if len(ids) > GRAIN and len(ids) % GRAIN:
        ids = ids + [ids[-1]] * (GRAIN - len(ids) % GRAIN)
    done = DELETE_PLAIN.run(connection, ids)
    if done < count and _touch(connection, ids, touched):
        done += DELETE.run(connection, ids)
    return done


def _delete_where(
    connection: sqlite3.Connection,
    where: str,
    parameters: tuple[int, ...],
    count: int,
    touched: Touched,
) -> int:
    """Delete entries by a condition that `count` of them may meet.

    Returns:
        The number of deleted entries. With a LIMIT in the condition it may exceed `count`,
        since the second statement continues where the first one ended.
    """
    delete = f"DELETE FROM entry WHERE {where}"
    done = connection.execute(f"{delete} AND payload IS NULL", parameters).rowcount
    if done < count:
        (found,) = connection.execute(f"{_TOUCHED} {where} {_OF_EACH}", parameters).fetchone()
        if _add_touched(found, touched):
            done += connection.execute(delete, parameters).rowcount
    return done


def tidy(connection: sqlite3.Connection, files: BodyFiles) -> None:
    """Copy the live messages of the emptiest segment, in a commit of its own."""
    number = files.emptiest()
    if number is None:
        return
    rows = connection.execute(
        "SELECT id, queue, arrived, expires, flags, body_start, body_length"
        " FROM entry INDEXED BY entry_payload WHERE payload = ?",
        (-number,),
    ).fetchall()
    shared = connection.execute(
        "SELECT id, body_start, body_length FROM payload INDEXED BY payload_segment"
        " WHERE segment = ?",
        (number,),
    ).fetchall()
    moved: list[Filed] = []
    try:
        for entry_id, queue, arrived, expires, flags, start, length in rows:
            body = files.read(number, start, length)
            moved.append((entry_id, queue, arrived, expires, flags, body, None))
        payloads = [files.read(number, start, length) for _, start, length in shared]
    except MessageDamaged:
        files.leave_alone(number)  # consumers still get what is readable
        raise
    connection.execute("BEGIN")
    placed = files.place(moved)
    places = zip(shared, files.append(payloads), strict=True)
    PLACE_PAYLOAD.run(
        connection, [one for (payload_id, *_), place in places for one in (payload_id, *place)]
    )
    PLACE.run(
        connection,
        [
            one
            for at in range(0, len(placed), ROW_WIDTH)
            for one in (placed[at], *placed[at + 7 : at + 9])
        ],
    )
    files.left({number: sum(row[-1] for row in (*rows, *shared))})
    files.sync()
    files.look(connection)
    connection.execute("COMMIT")
    files.committed()


def purge_transient(connection: sqlite3.Connection, limit: int, files: BodyFiles) -> int:
    """Delete up to about `limit` transient entries in a transaction of its own.

    Returns:
        The number of deleted entries; fewer than `limit` if none is left.
    """
    touched: Touched = {}
    connection.execute("BEGIN")
    done = _delete_where(
        connection,
        "id IN (SELECT id FROM entry INDEXED BY entry_transient WHERE flags & 1 LIMIT ?)",
        (limit,),
        limit,
        touched,
    )
    _let_go(connection, touched, files)
    files.look(connection)
    connection.execute("COMMIT")
    files.committed()
    return done


_BY: Final = "max(0, min(?1, ?2 - arrived))"  # `amqproute.entry.later_by`
_ARRIVED: Final = f"arrived + {_BY}"
_EXPIRES: Final = f"CASE WHEN expires > 0 THEN expires + {_BY} ELSE expires END"
POSTPONE_ENTRIES: Final = (
    f"UPDATE entry SET arrived = {_ARRIVED}, expires = {_EXPIRES},"
    f" row_sum = {shifted(arrived=_ARRIVED, expires=_EXPIRES)}"
)


def write_facts(connection: sqlite3.Connection, facts: CommitFacts, now_ms: int) -> None:
    """Write receipts and notes."""
    if facts.marks:
        RECEIPT.run(
            connection,
            [
                value
                for stream, receipt in facts.receipts(now_ms)
                for value in _receipt_row(stream, receipt)
            ],
        )
    for stream, below in facts.forgets.items():
        _forget(connection, stream, below)
    for stream in facts.forgotten:
        connection.execute("DELETE FROM receipt WHERE stream = ?", (stream,))
    if facts.forget_before_ms is not None:
        connection.execute("DELETE FROM receipt WHERE at < ?", (facts.forget_before_ms,))
    for postponed in facts.postponed:
        connection.execute(POSTPONE_ENTRIES, postponed)
    kept = [(key, value) for key, value in facts.notes.items() if value is not None]
    NOTE.run(
        connection,
        [one for key, value in kept for one in (*key, value, crc_of_note(*key, value))],
    )
    for key, value in facts.notes.items():
        if value is None:
            connection.execute("DELETE FROM note WHERE kind = ? AND key = ?", key)


def write_outbox(connection: sqlite3.Connection, carried: tuple[int, bytes, int]) -> None:
    """Write a row of the outbox, and delete the rows that it makes obsolete."""
    number, octets, done = carried
    connection.execute("DELETE FROM outbox WHERE number <= ?", (done,))
    connection.execute("INSERT INTO outbox (number, octets) VALUES (?, ?)", (number, octets))


def _receipt_row(stream: str, receipt: StoredReceipt) -> tuple[Column, ...]:
    steps = json.dumps(receipt.steps, separators=(",", ":")) if receipt.steps else ""
    row = (stream, receipt.low, receipt.high, receipt.at_ms, steps)
    return (*row, crc_of_receipt(*row))


def _forget(connection: sqlite3.Connection, stream: str, below: int) -> None:
    connection.execute("DELETE FROM receipt WHERE stream = ? AND high < ?", (stream, below))
    cut = connection.execute(
        "SELECT low, high, at, steps, row_crc FROM receipt"
        " WHERE stream = ? AND high >= ? AND low < ?",
        (stream, below, below),
    ).fetchall()
    for low, high, at_ms, steps, crc in cut:
        if crc is not None and crc != crc_of_receipt(stream, low, high, at_ms, steps):
            continue  # rewriting it would make it look sound; the next start reports it
        connection.execute(
            "DELETE FROM receipt WHERE stream = ? AND high = ? AND low = ? AND steps = ?",
            (stream, high, low, steps),
        )
        rest = read_receipt(low, high, at_ms, steps).without_below(below)
        if rest is not None:
            RECEIPT.run(connection, _receipt_row(stream, rest))


def read_receipt(low: int, high: int, at_ms: int, steps: str) -> StoredReceipt:
    """Parse the row of a receipt.

    Raises:
        ValueError: it is not valid.
    """
    return StoredReceipt(low, high, tuple(parse_json(steps)) if steps else (), at_ms)
