# SPDX-License-Identifier: Apache-2.0
"""SQL that does many rows in one step.

Python's ``sqlite3`` gives up the interpreter lock around every single step. While the reactor's
thread computes, each regaining can take a whole switch interval (5 ms), so ``executemany`` over
400 rows could take seconds. Hence statements of fixed sizes with many rows each, and a page of
entries read as one row: its bodies joined by SQLite, its other columns as JSON.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

from amqproute.errors import StoreError
from amqproute.store.records import Receipt, StoredEntry
from amqproute.store.transaction import Facts, Stage

LARGEST: Final = 256
"""Rows in the largest statement."""
GRAIN: Final = 64
"""Up to this number of rows there is a statement for each; above, for each multiple."""


class Bulk:
    """A statement over a list of rows, in sizes that the statement cache can keep."""

    def __init__(self, head: str, row: str, tail: str = "") -> None:
        self._width = row.count("?")
        sizes = [*range(1, GRAIN), *range(GRAIN, LARGEST + 1, GRAIN)]
        self._texts = {size: head + ",".join([row] * size) + tail for size in sizes}

    def run(self, connection: sqlite3.Connection, flat: Sequence[Any]) -> None:
        """Execute it for `flat`, the rows' values one after the other."""
        start, width = 0, self._width
        rows = len(flat) // width
        while rows:
            size = min(rows, LARGEST)
            if size > GRAIN:
                size -= size % GRAIN
            stop = start + size * width
            part = flat if size * width == len(flat) else flat[start:stop]
            connection.execute(self._texts[size], part)
            start, rows = stop, rows - size


INSERT = Bulk(
    "INSERT INTO entry (id, queue, arrived, expires, flags, count, size, encoded) VALUES ",
    "(?,?,?,?,?,?,?,?)",
)
DELETE = Bulk("DELETE FROM entry WHERE id IN (", "?", ")")
COUNT = Bulk(
    "UPDATE entry SET count = v.column2 FROM (VALUES ",
    "(?,?)",
    ") AS v WHERE entry.id = v.column1",
)
REPLACE = Bulk(
    "UPDATE entry SET count = v.column2, size = length(v.column3), encoded = v.column3"
    " FROM (VALUES ",
    "(?,?,?)",
    ") AS v WHERE entry.id = v.column1",
)
MOVE = Bulk(
    "UPDATE entry SET id = v.column2, queue = v.column3,"
    " size = ifnull(length(v.column4), size), encoded = ifnull(v.column4, encoded)"
    " FROM (VALUES ",
    "(?,?,?,?)",
    ") AS v WHERE entry.id = v.column1",
)
NAME = Bulk("INSERT OR IGNORE INTO queue (number, name) VALUES ", "(?,?)")
RECEIPT = Bulk("INSERT INTO receipt (stream, low, high, at, steps) VALUES ", "(?,?,?,?,?)")
NOTE = Bulk("INSERT OR REPLACE INTO note (kind, key, value) VALUES ", "(?,?,?)")


def write_stage(connection: sqlite3.Connection, stage: Stage) -> None:
    """Write a stage's work on entries."""
    if stage.rows:
        INSERT.run(connection, stage.rows)
    if stage.updates:
        counts: list[Any] = []
        bodies: list[Any] = []
        for entry_id, (count, encoded) in stage.updates.items():
            if encoded is None:
                counts += (entry_id, count)
            else:
                bodies += (entry_id, count, encoded)
        COUNT.run(connection, counts)
        REPLACE.run(connection, bodies)
    if stage.moves:
        MOVE.run(connection, [one for old, move in stage.moves.items() for one in (old, *move)])
    if stage.dequeued:
        _delete(connection, sorted(stage.dequeued))


def _delete(connection: sqlite3.Connection, ids: list[int]) -> None:
    if ids[-1] - ids[0] == len(ids) - 1:
        connection.execute("DELETE FROM entry WHERE id BETWEEN ? AND ?", (ids[0], ids[-1]))
        return
    # An id may stand in the list twice: filled up to a size there is a statement for.
    if len(ids) > GRAIN and len(ids) % GRAIN:
        ids = ids + [ids[-1]] * (GRAIN - len(ids) % GRAIN)
    DELETE.run(connection, ids)


def write_facts(connection: sqlite3.Connection, facts: Facts, now_ms: int) -> None:
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
    kept = [(key, value) for key, value in facts.notes.items() if value is not None]
    NOTE.run(connection, list(chain.from_iterable((*key, value) for key, value in kept)))
    for key, value in facts.notes.items():
        if value is None:
            connection.execute("DELETE FROM note WHERE kind = ? AND key = ?", key)


def _receipt_row(stream: str, receipt: Receipt) -> tuple[Any, ...]:
    steps = json.dumps(receipt.steps, separators=(",", ":")) if receipt.steps else None
    return (stream, receipt.low, receipt.high, receipt.at_ms, steps)


def _forget(connection: sqlite3.Connection, stream: str, below: int) -> None:
    connection.execute("DELETE FROM receipt WHERE stream = ? AND high < ?", (stream, below))
    cut = connection.execute(
        "SELECT number, low, high, at, steps FROM receipt"
        " WHERE stream = ? AND high >= ? AND low < ?",
        (stream, below, below),
    ).fetchall()
    for number, low, high, at_ms, steps in cut:
        connection.execute("DELETE FROM receipt WHERE number = ?", (number,))
        rest = read_receipt(low, high, at_ms, steps).without_below(below)
        if rest is not None:
            RECEIPT.run(connection, _receipt_row(stream, rest))


def read_receipt(low: int, high: int, at_ms: int, steps: str | None) -> Receipt:
    """A receipt from its row."""
    return Receipt(low, high, tuple(json.loads(steps)) if steps else (), at_ms)


# The inner select chooses ids from the covering index; the outer one alone touches bodies.
# group_concat keeps every byte of a blob, NUL included; json_group_array sees the same rows in
# the same order, so sizes and bodies fit together.
_PAGE = (
    "SELECT json_group_array(json_array(id, size, arrived, expires, count, flags)),"
    " CAST(group_concat(encoded, '') AS BLOB) FROM (SELECT e.* FROM ({chosen}) AS c"
    " CROSS JOIN entry AS e ON e.id = c.id ORDER BY c.id)"
)
LOAD: Final = _PAGE.format(
    chosen="SELECT id FROM (SELECT id, sum(size) OVER (ORDER BY id) - size AS before FROM"
    " (SELECT id, size FROM entry INDEXED BY entry_queue WHERE queue = ? AND id > ?"
    " ORDER BY id LIMIT ?)) WHERE before < ?"
)
EXPIRED: Final = _PAGE.format(
    chosen="SELECT id FROM entry INDEXED BY entry_expires WHERE queue = ? AND expires > 0"
    " AND expires <= ? AND id > ? ORDER BY id LIMIT ?"
)


def read_page(
    connection: sqlite3.Connection, statement: str, parameters: tuple[Any, ...]
) -> list[StoredEntry]:
    """Entries by `LOAD` or `EXPIRED`, in one step."""
    columns, bodies = connection.execute(statement, parameters).fetchone()
    entries = []
    start = 0
    bodies = bodies or b""
    for entry_id, size, arrived, expires, count, flags in json.loads(columns):
        stop = start + size
        entries.append(StoredEntry(entry_id, bodies[start:stop], arrived, expires, count, flags))
        start = stop
    if start != len(bodies):
        raise StoreError(f"sizes add up to {start} bytes, bodies to {len(bodies)}")
    return entries
