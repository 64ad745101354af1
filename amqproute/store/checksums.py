# SPDX-License-Identifier: Apache-2.0
"""Checksums of rows and bodies: computed on writing, verified on reading.

Each row of ``entry`` has two. ``octets_crc`` is the CRC-32 of the row's own octets, in the page or
in a segment. ``row_sum`` covers the other columns: id, queue, times, flags, counts and the
reference to a payload. It is linear, ``sum(column * factor) % PRIME``, so that a statement that
changes a column can add the difference (`shifted`) without computing the sum again. A row that was
already damaged keeps a sum that does not match: moving, counting or copying a row never makes a
damaged one look sound. A change of one bit of one column is always detected, because no power of
two is a multiple of `PRIME`.

Rows of ``payload`` have ``octets_crc``; those of ``receipt``, ``note`` and ``queue``, which are
read at start, have a CRC-32 of their columns. Body files have one for each `CHUNK_BYTES`, after the
body (`amqproute.store.large_bodies`).

In rows written by an earlier release these columns are NULL, and nothing is verified. If only one
of the two columns of ``entry`` is NULL, that is damage as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final
from zlib import crc32

from amqproute.store.model import Column

__all__ = [
    "CHUNK_BYTES",
    "PRIME",
    "all_match",
    "check_row",
    "crc_of_note",
    "crc_of_queue",
    "crc_of_receipt",
    "is_sound",
    "matches",
    "row_sum",
    "shifted",
    "summed",
    "summed_shared",
]

PRIME: Final = 2147483629
CHUNK_BYTES: Final = 256 * 1024
"""Octets of a body file that are verified together, before any of them is delivered."""

ID: Final = 1020181359
QUEUE: Final = 578710837
ARRIVED: Final = 1412960022
EXPIRES: Final = 1137348262
FLAGS: Final = 1432154172
COUNT: Final = 752206957
SIZE: Final = 307280498
PAYLOAD: Final = 820616447

_FACTORS: Final = {
    "id": ID,
    "queue": QUEUE,
    "arrived": ARRIVED,
    "expires": EXPIRES,
    "flags": FLAGS,
    "count": COUNT,
    "size": SIZE,
    "payload": PAYLOAD,
}
"""Factors of the columns that statements change."""


def row_sum(
    entry_id: int,
    queue: int,
    arrived: int,
    expires: int,
    flags: int,
    count: int,
    size: int,
    payload: int,
) -> int:
    """Return the sum of an entry's columns; `payload` is 0 where the column is NULL."""
    return (
        entry_id * ID
        + queue * QUEUE
        + arrived * ARRIVED
        + expires * EXPIRES
        + flags * FLAGS
        + count * COUNT
        + size * SIZE
        + payload * PAYLOAD
    ) % PRIME


def shifted(**changes: str) -> str:
    """Return an SQL expression for ``row_sum`` after changes of columns.

    Args:
        changes: by column, the SQL expression of its new value, in terms of the old row.
    """
    # Each term stays below 2**62; % has the sign of its left side in SQL.
    terms = [
        f"(({new}) - ifnull({column}, 0)) % {PRIME} * {_FACTORS[column]} % {PRIME}"
        for column, new in changes.items()
    ]
    return f"((row_sum + {' + '.join(terms)}) % {PRIME} + {PRIME}) % {PRIME}"


def summed(flat: Sequence[Column]) -> list[Column]:
    """Return the rows of `StatementGroup.rows` with both checksums at the end of each."""
    rows: list[Column] = []
    values = iter(flat)
    last: tuple[int, ...] | None = None
    rest = 0
    for entry_id, queue, arrived, expires, flags, count, size, encoded in zip(
        *[values] * 8, strict=True
    ):
        # Entries of one commit mostly have these in common.
        common = queue, arrived, expires, flags, count
        if common != last:
            last = common
            rest = row_sum(0, *common, 0, 0)
        checksum = (entry_id * ID + size * SIZE + rest) % PRIME
        rows += (entry_id, *common, size, encoded, crc32(encoded), checksum)
    return rows


def summed_shared(flat: Sequence[int]) -> list[int]:
    """Return the rows of `SharedRow.rows` with ``row_sum`` at the end of each."""
    rows: list[int] = []
    values = iter(flat)
    for entry_id, queue, arrived, expires, flags, size, payload in zip(*[values] * 7, strict=True):
        checksum = row_sum(entry_id, queue, arrived, expires, flags, 0, size, payload)
        rows += (entry_id, queue, arrived, expires, flags, size, payload, checksum)
    return rows


def check_row(columns: Iterable[object], noted_sum: object, noted_crc: object) -> str | None:
    """Compare the columns of an entry with their sum.

    Args:
        columns: the columns as in `row_sum`.
        noted_sum: the column ``row_sum``.
        noted_crc: the column ``octets_crc``.

    Returns:
        The problem, as text; None if there is none, or if the row has no checksums.
    """
    given = list(columns)
    if not all(type(one) is int for one in given):
        return "a column is not a number"
    if noted_sum is None and noted_crc is None:
        return None
    if type(noted_sum) is not int or type(noted_crc) is not int:
        return "a checksum is missing"
    found = row_sum(*given)  # type: ignore[arg-type] # all are int, as was asked above
    return None if found == noted_sum else "its columns do not match their checksum"


def all_match(rows: Iterable[Sequence[int]]) -> bool:
    """Tell whether each of these entries has a sum of its columns, and matches it.

    If False, `check_row` has the last word on each: rows of an earlier release have no sums.

    Args:
        rows: id, size, sum, and the columns that neighbors mostly have in common: queue, arrived,
            expires, flags, count, payload. None may be among them, but nothing else that is no int.
    """
    last: list[int] | None = None
    rest = 0
    try:
        for entry_id, size, noted_sum, *common in rows:
            if common != last:
                last = common
                queue, arrived, expires, flags, count, payload = common
                rest = row_sum(0, queue, arrived, expires, flags, count, 0, payload or 0)
            if (entry_id * ID + size * SIZE + rest) % PRIME != noted_sum:
                return False
    except TypeError:  # a column is NULL
        return False
    return True


def crc_of_receipt(stream: str, low: int, high: int, at_ms: int, steps: str) -> int:
    """Return the checksum of a receipt, without the time of its marking, which may change."""
    return crc32(f"{stream}\0{low}\0{high}\0{steps}".encode("utf-8", "surrogatepass"))


def crc_of_note(kind: str, key: str, value: bytes) -> int:
    """Return the checksum of a note."""
    return crc32(value, crc32(f"{kind}\0{key}\0".encode("utf-8", "surrogatepass")))


def crc_of_queue(number: int, name: str) -> int:
    """Return the checksum of a queue's number and name."""
    return crc32(f"{number}\0{name}".encode("utf-8", "surrogatepass"))


def is_sound(crc_of: Callable[..., int], row: Sequence[object], crc: object) -> bool:
    """Return whether a row is unchanged: it is compared with its checksum, if any.

    Without one, as in rows of an earlier release, its text must at least be text.

    Args:
        crc_of: computes the checksum of the columns.
        row: the columns, as from `amqproute.store.database_schema.read_text`.
        crc: the column ``row_crc``.
    """
    if crc is not None:
        return matches(crc_of, row, crc)
    return not any(
        isinstance(one, str) and any("\udc80" <= each <= "\udcff" for each in one) for one in row
    )


def matches(crc_of: Callable[..., int], row: Sequence[object], crc: object) -> bool:
    """Return whether the columns of a row have this checksum; False for values of another type."""
    try:
        return crc_of(*row) == crc
    except TypeError:
        return False
