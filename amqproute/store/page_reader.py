# SPDX-License-Identifier: Apache-2.0
"""Reading pages of entries from the database, with verification of each row's checksums.

A page is one statement with one result row (`amqproute.store.statements` says why). If anything in
it does not match, its rows are read one by one: sound ones are returned, each of the others becomes
a `DamagedEntry`, and `PageReader` removes it from its queue. Its row gets the queue number
`QUARANTINE_NUMBER` and stays as it is otherwise, octets and checksums included;
`amqproute.store.fsck` lists it. A row that cannot even be moved is skipped until the next start.
An index that contradicts its table would hide entries or show them on other queues: if a page shows
that, the indexes are rebuilt from the table, once.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from zlib import crc32

from twisted.logger import Logger

from amqproute.entry import ACCOUNT_SHIFT
from amqproute.errors import MessageDamaged, StoreDamaged
from amqproute.store import database_schema
from amqproute.store.body_files import BodyFiles
from amqproute.store.checksums import all_match, check_row, shifted
from amqproute.store.model import QUARANTINE_NUMBER, DamagedEntry, StoredEntry

__all__ = ["EXPIRED", "IDS", "LOAD", "NOBODYS", "EntryPage", "PageReader"]

log = Logger()

# The inner select chooses ids from the covering index; the outer one alone touches bodies.
# group_concat keeps every byte of a blob, NUL included; json_group_array sees the same rows in
# the same order, so lengths and bodies fit together. An entry with a payload has no body here.
# LEFT JOIN: to notice an id in the index that the table does not have.
_PAGE = (
    "SELECT json_group_array(json_array(chosen, id, queue, size, arrived, expires, count, flags,"
    " payload, body_start, body_length, length(encoded), octets_crc, row_sum)),"
    " CAST(group_concat(encoded, '') AS BLOB) FROM (SELECT c.id AS chosen, e.* FROM ({chosen}) AS c"
    " LEFT JOIN entry AS e ON e.id = c.id ORDER BY c.id)"
)
LOAD: Final = (
    "SELECT id FROM (SELECT id, sum(size) OVER (ORDER BY id) - size AS before FROM"
    " (SELECT id, size FROM entry INDEXED BY entry_queue WHERE queue = ? AND id > ?"
    " ORDER BY id LIMIT ?)) WHERE before < ?"
)
"""Range of entries: the queue's number, the id before, the number, the octets."""
IDS: Final = (
    "SELECT id FROM entry INDEXED BY entry_queue WHERE queue = ? AND id > ? ORDER BY id LIMIT ?"
)
EXPIRED: Final = (
    "SELECT id FROM entry INDEXED BY entry_expires WHERE queue = ? AND id > ? AND expires > 0"
    " AND expires <= ? ORDER BY id LIMIT ?"
)
"""Range of entries: the queue's number, the id before, the time now, the number."""
_PAGES: Final = {chosen: _PAGE.format(chosen=chosen) for chosen in (LOAD, EXPIRED)}
_ONE: Final = _PAGE.format(chosen="SELECT ? AS id")
_PAYLOADS: Final = (
    "SELECT json_group_array(json_array(id, length(encoded), segment, body_start, body_length,"
    " octets_crc)), CAST(group_concat(encoded, '') AS BLOB) FROM (SELECT * FROM payload"
    " WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id)"
)
# Entries in quarantine are charged to no account.
_OWN_FLAGS: Final = f"flags & {(1 << ACCOUNT_SHIFT) - 1}"
_SET_ASIDE: Final = (
    f"UPDATE entry SET queue = {QUARANTINE_NUMBER}, flags = {_OWN_FLAGS}, row_sum = "
    + shifted(queue=str(QUARANTINE_NUMBER), flags=_OWN_FLAGS)
    + " WHERE id = ?"
)
NOBODYS: Final = (
    f"UPDATE entry INDEXED BY entry_account SET flags = {_OWN_FLAGS},"
    f" row_sum = {shifted(flags=_OWN_FLAGS)}"
    f" WHERE flags > 255 AND queue = {QUARANTINE_NUMBER}"
)
_KNOWN_SIZE: Final = "SELECT size FROM entry INDEXED BY entry_queue WHERE queue = ? AND id = ?"


class _Unfit(Exception):  # never leaves this module
    """Something in a page does not match: read its rows one by one."""


class _WrongIndex(Exception):  # never leaves this module
    """The index contradicts the table."""


@dataclass(slots=True)
class EntryPage:
    """Result of reading a page.

    Attributes:
        entries: in the order of their ids. The rest of a very large message is number and size of
            its file, and whether its file has checksums, here.
        damages: damaged entries found meanwhile, which are not among `entries`.
    """

    entries: list[StoredEntry] = field(default_factory=list)
    damages: list[DamagedEntry] = field(default_factory=list)


def _is_sound(text: str, rows: Sequence[Sequence[Any]], queue: int) -> bool:
    """Tell whether all rows of a page match their checksums and are of the queue.

    False settles nothing: `PageReader._fault` looks at each. A page is mostly sound, and to ask
    each row costs several times as much.

    Args:
        text: the page in JSON, whose numbers are integers if there is no point and no exponent.
        rows: the same, decoded.
        queue: number of the queue.
    """
    if "." in text or '"' in text or "e" in text:
        return False
    columns: list[Sequence[int]] = []
    for (
        chosen, entry_id, its_queue, size, arrived, expires, count, flags, payload,
        _, _, _, noted_crc, noted_sum,
    ) in rows:  # fmt: skip
        if entry_id != chosen or its_queue != queue or noted_crc is None:
            return False
        columns.append(
            (entry_id, size, noted_sum, its_queue, arrived, expires, flags, count, payload)
        )
    return all_match(columns)


class PageReader:
    """Reads pages on the writer's thread, and removes damaged entries from their queue.

    Args:
        connection: the writer's, once there is one.
        files: the segments.
        path: the database, for error texts.
        on_corrupt: called with errors of SQLite about damaged database pages.

    Attributes:
        stuck: damaged entries whose rows cannot be written; they stay where they are.
    """

    def __init__(
        self,
        connection: Callable[[], sqlite3.Connection],
        files: BodyFiles,
        path: str,
        on_corrupt: Callable[[Exception], object],
    ) -> None:
        self._on_corrupt = on_corrupt
        self.stuck: set[int] = set()
        self._connection = connection
        self._files = files
        self._path = path
        self._is_reindexed = False

    def page(self, chosen: str, queue: int, after_id: int, *bounds: int) -> EntryPage:
        """Return the sound entries that `chosen` (`LOAD` or `EXPIRED`) selects.

        It is empty only if there are none.

        Raises:
            StoreError: the database cannot be read, or contradicts itself.
        """
        page = EntryPage()
        while True:
            last = self._read(page, chosen, (queue, after_id, *bounds))
            if last is None or page.entries:
                return page
            after_id = last

    def _read(self, page: EntryPage, chosen: str, parameters: tuple[int, ...]) -> int | None:
        """Add a page of rows; return the last id found, or None for no row at all."""
        queue = parameters[0]
        try:
            try:
                page.entries += self._whole(_PAGES[chosen], parameters, queue)
                return page.entries[-1].id if page.entries else None
            except (_Unfit, sqlite3.DatabaseError, ValueError) as error:
                self._require_damage(error)
                ids = [one for (one,) in self._connection().execute(chosen, parameters)]
                return self._one_by_one(page, queue, ids)
        except _WrongIndex as wrong:
            self._reindex(wrong)
            return self._read(page, chosen, parameters)

    def _whole(self, statement: str, parameters: tuple[int, ...], queue: int) -> list[StoredEntry]:
        columns, bodies = self._connection().execute(statement, parameters).fetchone()
        entries: list[StoredEntry] = []
        shared: list[StoredEntry] = []
        start = 0
        bodies = bodies or b""
        files = self._files
        rows = json.loads(columns)
        if not _is_sound(columns, rows, queue) and any(self._fault(row, queue) for row in rows):
            raise _Unfit
        for (
            _, entry_id, _, size, arrived, expires, count, flags, payload,
            body_start, body_length, length, noted_crc, _,
        ) in rows:  # fmt: skip
            entry = StoredEntry(entry_id, b"", arrived, expires, count, flags)
            entries.append(entry)
            if payload is not None and payload > 0:
                entry.payload_id = payload
                shared.append(entry)
                continue
            if payload is not None and body_start is not None:
                try:
                    octets = files.read(-payload, body_start, body_length)
                except MessageDamaged as error:
                    raise _Unfit from error
            else:
                octets = bodies[start : start + length]
                start += length
                if payload is not None:
                    entry.rest = (-payload, body_length, noted_crc is not None)
            if len(octets) != size or (noted_crc is not None and crc32(octets) != noted_crc):
                raise _Unfit
            entry.encoded = octets
        if start != len(bodies):
            raise _Unfit
        if shared:
            payloads = self._payloads({entry.payload_id for entry in shared})
            for entry in shared:
                found = payloads.get(entry.payload_id)
                if found is None:
                    raise _Unfit
                entry.encoded = found
        return entries

    def _fault(self, row: Sequence[Any], queue: int) -> str | None:
        """Return the defect of a row's columns."""
        chosen, entry_id, its_queue, size, arrived, expires, count, flags, payload, *_ = row
        if entry_id is None:
            raise _WrongIndex(f"it names entry {chosen}, which is not there")
        columns = (entry_id, its_queue, arrived, expires, flags, count, size, payload or 0)
        fault = check_row(columns, row[-1], row[-2])
        if fault is None and its_queue != queue:
            raise _WrongIndex(f"it has entry {entry_id} on queue {queue} instead of {its_queue}")
        return fault

    def _payloads(self, ids: set[int]) -> dict[int, bytes | None]:
        """Return shared payloads; None, or nothing, for those that are damaged.

        Raises:
            _Unfit: they have to be read one by one.
        """
        given = (json.dumps(sorted(ids)),)
        columns, bodies = self._connection().execute(_PAYLOADS, given).fetchone()
        payloads: dict[int, bytes | None] = {}
        start = 0
        bodies = bodies or b""
        for payload_id, length, segment, body_start, body_length, noted_crc in json.loads(columns):
            if segment is not None:
                try:
                    octets = self._files.read(segment, body_start, body_length)
                except MessageDamaged:
                    payloads[payload_id] = None
                    continue
            else:
                octets = bodies[start : start + length]
                start += length
            is_sound = noted_crc is None or crc32(octets) == noted_crc
            payloads[payload_id] = octets if is_sound else None
        if start != len(bodies):
            raise _Unfit
        return payloads

    def _require_damage(self, error: Exception) -> None:
        """Raise an error of SQLite again unless it concerns the contents of the database.

        A failing disk, or lack of memory, says nothing about a row, which is read again later.
        """
        if database_schema.meaning_of(error) is StoreDamaged:
            self._on_corrupt(error)
            return
        # SQLITE_ERROR: a column has a type that JSON does not hold, or text that is not UTF-8.
        is_of_a_row = getattr(error, "sqlite_errorname", "") == "SQLITE_ERROR"
        if isinstance(error, sqlite3.Error) and not (is_of_a_row or "decode" in str(error)):
            raise error

    # -- what is damaged -----------------------------------------------------------------------

    def _one_by_one(self, page: EntryPage, queue: int, ids: Sequence[int]) -> int | None:
        found: list[DamagedEntry] = []
        for entry_id in ids:
            if entry_id in self.stuck:
                continue
            damage = self._one(page, queue, entry_id)
            if damage is not None:
                found.append(damage)
        self._set_aside(found, queue)
        page.damages += found
        return ids[-1] if ids else None

    def _one(self, page: EntryPage, queue: int, entry_id: int) -> DamagedEntry | None:
        """Add an entry to a page, or return its defect."""
        try:
            page.entries += self._whole(_ONE, (entry_id,), queue)
        except (_Unfit, sqlite3.DatabaseError, ValueError) as error:
            self._require_damage(error)
            entry, why = self._remainder(queue, entry_id)
            if not why:
                why = str(error) or "its octets do not match their checksum"
            return DamagedEntry(entry_id, why, entry)
        return None

    def _remainder(self, queue: int, entry_id: int) -> tuple[StoredEntry | None, str]:
        """Return the readable part of an entry, and its defect if known."""
        try:
            columns, bodies = self._connection().execute(_ONE, (entry_id,)).fetchone()
            (row,) = json.loads(columns)
            fault = self._fault(row, queue) or ""
            _, _, _, size, arrived, expires, count, flags, payload, *place = row
            if fault.startswith("a column"):
                return None, fault
            entry = StoredEntry(entry_id, bodies or b"", arrived, expires, count, flags)
            if payload is None:
                if size != len(entry.encoded):
                    fault = fault or f"it has {len(entry.encoded)} octets instead of {size}"
            elif payload > 0:
                found = self._payloads({payload})
                entry.encoded = found.get(payload) or b""
                if payload not in found:
                    fault = fault or f"payload {payload}, which has its message, is not there"
                elif found[payload] is None:
                    fault = fault or f"payload {payload} does not match its checksum"
            elif place[0] is not None:
                entry.encoded = self._files.read(-payload, place[0], place[1])
        except (_Unfit, sqlite3.DatabaseError, ValueError, TypeError, MessageDamaged) as error:
            return None, str(error)
        return entry, fault

    def _set_aside(self, damages: Sequence[DamagedEntry], queue: int) -> None:
        """Remove damaged entries from their queue, in a commit of its own."""
        if not damages:
            return
        connection = self._connection()
        for damage in damages:
            known = connection.execute(_KNOWN_SIZE, (queue, damage.entry_id)).fetchone()
            damage.size = known[0] if known is not None else 0
        try:
            connection.execute("BEGIN")
            for damage in damages:
                connection.execute(_SET_ASIDE, (damage.entry_id,))
            connection.execute("COMMIT")
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            for damage in damages:
                self._set_one_aside(connection, damage)

    def _set_one_aside(self, connection: sqlite3.Connection, damage: DamagedEntry) -> None:
        try:
            connection.execute(_SET_ASIDE, (damage.entry_id,))
        except sqlite3.Error as error:
            self.stuck.add(damage.entry_id)
            log.warn(
                "{path}: entry {entry} cannot be moved to quarantine and is skipped where it "
                "is: {words}",
                path=self._path,
                entry=damage.entry_id,
                words=str(database_schema.in_words(error, self._path)),
            )

    def _reindex(self, wrong: _WrongIndex) -> None:
        if self._is_reindexed:
            raise StoreDamaged(
                database_schema.damaged(self._path, f"an index contradicts its table: {wrong}")
            )
        self._is_reindexed = True
        log.error(
            "{path}: an index contradicts its table ({words}): rebuilding all indexes",
            path=self._path,
            words=str(wrong),
        )
        try:
            self._connection().execute("REINDEX entry")
        except sqlite3.Error as error:
            raise database_schema.in_words(error, self._path) from error
