# SPDX-License-Identifier: Apache-2.0
"""Recovers everything readable of a damaged store into another folder; the originals remain.

**The log.** SQLite stops at the first invalid frame. Here each frame is compared with the checksum
that follows from the frame before it, so that frames behind a damaged one count as well. The newest
intact version of each page is taken, up to the last frame that ends a commit. If no damaged frame
was the newest of its page, the result is the state of that commit, and is *complete*.

**The database.** If SQLite finds no fault in it, it is taken unchanged. Else its rows are read one
by one: an unreadable range of ids is halved until readable and unreadable rows are separated. Rows
go into a new database.

**Bodies in files.** Rows whose file is missing or too short are left out. From files without rows,
each message that can be told from the next is written to a file of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from amqproute.errors import DecodeError, StoreError
from amqproute.message import Message
from amqproute.store import database_schema
from amqproute.store.body_files import SEGMENT_BYTES, BodyDirectory, BodyFiles, named_files
from amqproute.store.checksums import crc_of_note, crc_of_queue, crc_of_receipt, is_sound
from amqproute.store.fsck import entry_faults, payload_faults
from amqproute.store.large_bodies import check_body
from amqproute.store.model import QUARANTINE_NUMBER
from amqproute.store.seal import Seal
from amqproute.store.start_evidence import read_only
from amqproute.store.wal_file import WalHeader, frames_of, read_header
from amqproute.wire.amqp10 import sections

__all__ = ["SalvageSummary", "salvage"]

PAGE_SIZE: Final = 8192
WHOLE: Final = 1 << 63
"""Bound on ids."""
MOST_PROBES: Final = 200_000
"""Ranges of ids of one table that are tried before the rest is abandoned."""
BY_ID: Final = {"queue": "number", "entry": "id", "payload": "id", "outbox": "number"}
OTHERS: Final = ("meta", "receipt", "note")
IN_QUARANTINE: Final = "(in quarantine)"
MOST_SAID: Final = 100
"""Damaged messages that are named individually."""
MOST_EXPORTED: Final = 100_000
LARGEST_READ: Final = 256 * 1024 * 1024
"""A larger file without rows is copied, and not searched."""


@dataclass(slots=True)
class SalvageSummary:
    """The result of a salvage.

    Attributes:
        folder: the new folder.
        is_complete: whether everything committed was recovered, according to log and database.
        entries: number of entries, by queue.
        log: the state of the log, as text.
        lost: the losses, one line each.
        orphans: messages from files without rows: file, octets, message-id and address.
    """

    folder: str
    is_complete: bool = False
    entries: dict[str, int] = field(default_factory=dict)
    log: str = ""
    lost: list[str] = field(default_factory=list)
    orphans: list[dict[str, object]] = field(default_factory=list)

    def facts(self) -> dict[str, object]:
        """Return the result for programs."""
        return {
            "folder": self.folder,
            "is-complete": self.is_complete,
            "entries": self.entries,
            "log": self.log,
            "lost": self.lost,
            "orphans": self.orphans,
        }


def salvage(path: str, folder: str) -> SalvageSummary:
    """Recover everything readable.

    Args:
        path: the database file; it, its log and the bodies remain unchanged.
        folder: the folder to create.

    Raises:
        StoreError: there is nothing to read, or the folder cannot be written.
    """
    if not any(os.path.exists(f"{path}{end}") for end in ("", "-wal")) and not _bodies_of(path):
        raise StoreError(f"there is nothing of a store at {path}")
    try:
        os.makedirs(folder, mode=0o700)
    except FileExistsError:
        raise StoreError(f"{folder} is there already: give another folder") from None
    except OSError as error:
        raise StoreError(f"{folder} cannot be made: {error.strerror}") from error
    try:
        return _salvage(path, folder)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise StoreError(
            f"salvage into {folder} has failed ({where}{error.strerror}); what is there is not "
            "complete: remove it, and give a folder with as much room as the store takes"
        ) from error


def _salvage(path: str, folder: str) -> SalvageSummary:
    found = SalvageSummary(folder)
    image = os.path.join(folder, "image.db")
    is_whole = _make_image(path, image, found)
    target = os.path.join(folder, "store.db")
    if is_whole and _is_sound(image):
        os.rename(image, target)
        found.is_complete = not found.lost
    else:
        _copy_rows(image, target, found)
    for end in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.unlink(f"{image}{end}")
    _take_bodies(path, target, found)
    with closing(database_schema.connect(target)) as connection:
        connection.text_factory = database_schema.read_text
        _leave_out_damaged(connection, found)
        _count_damaged(connection, target, found)
        for name, count in connection.execute(
            f"SELECT iif(queue = {QUARANTINE_NUMBER}, '{IN_QUARANTINE}',"  # noqa: S608 - of names
            " ifnull(name, 'queue ' || queue)), count(*) FROM entry"
            " LEFT JOIN queue ON number = queue GROUP BY queue"
        ):
            found.entries[name] = count
    with open(os.path.join(folder, "report.json"), "w", encoding="utf-8") as file:
        json.dump(found.facts(), file, indent=1)
    return found


# -- the log -------------------------------------------------------------------------------------


def _make_image(path: str, image: str, found: SalvageSummary) -> bool:
    """Write the database merged with its log; return whether it is complete."""
    log = f"{path}-wal"
    if os.path.exists(path):
        shutil.copyfile(path, image)
    else:
        found.lost.append(f"{path} is missing: only pages in the log were recovered")
        open(image, "wb").close()
    header = None
    if os.path.exists(log):
        header = read_header(log) or _header_by_seal(path, image)
    sealed = Seal(f"{path}.seal").read()
    wanted = 0 if sealed is None or sealed.is_copied else sealed.frames
    if header is None:
        found.log = "there is no log that can be read"
        if wanted:
            found.lost.append(f"{log}: {wanted} frames are gone")
        return not found.lost
    newest: dict[int, tuple[int, int]] = {}
    pending: dict[int, tuple[int, int]] = {}
    broken: list[int] = []
    bad: dict[int, int] = {}
    frames = last = pages = 0
    for frame in frames_of(log, header):
        frames = frame.number
        if not frame.is_whole:
            broken.append(frame.number)
            bad[frame.page] = frame.number
            continue
        pending[frame.page] = frame.number, frame.offset
        if frame.commit:
            newest.update(pending)
            pending.clear()
            last, pages = frame.number, frame.commit
    _write_pages(log, image, header.page_size, newest, pages)
    unreplaced = [
        number
        for page, number in bad.items()
        if number <= last and (page == 0 or newest.get(page, (0, 0))[0] < number)
    ]
    found.log = f"{last} of {max(frames, wanted)} frames of the log, {len(broken)} damaged"
    if unreplaced:
        found.lost.append(
            f"{log}: {len(unreplaced)} damaged frames had the newest version of their pages"
        )
    if last < wanted:
        found.lost.append(f"{log}: what was committed behind frame {last} of {wanted} is gone")
    return not found.lost


def _header_by_seal(path: str, image: str) -> WalHeader | None:
    """Return the original header of a log whose header is damaged."""
    sealed = Seal(f"{path}.seal").read()
    if sealed is None or not sealed.frames:
        return None
    with open(image, "rb") as file:
        octets = file.read(18)
    page_size = int.from_bytes(octets[16:18], "big") if len(octets) == 18 else PAGE_SIZE
    page_size = 65536 if page_size == 1 else page_size
    if page_size < 512:
        page_size = PAGE_SIZE
    # The checksum before the first frame is lost: that frame counts as damaged, unless its page was
    # written again.
    return WalHeader("<" if sys.byteorder == "little" else ">", page_size, sealed.salt, (0, 0))


def _write_pages(
    log: str, image: str, page_size: int, newest: dict[int, tuple[int, int]], pages: int
) -> None:
    with open(log, "rb") as source, open(image, "r+b") as file:
        for page, (_, offset) in newest.items():
            if page <= pages:
                source.seek(offset)
                file.seek((page - 1) * page_size)
                file.write(source.read(page_size))
        if pages:
            file.truncate(pages * page_size)


# -- the database --------------------------------------------------------------------------------


def _is_sound(image: str) -> bool:
    try:
        with closing(database_schema.connect(image)) as connection:
            (identity,) = connection.execute("PRAGMA application_id").fetchone()
            (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            return bool(identity == database_schema.APPLICATION_ID and verdict == "ok")
    except sqlite3.Error:
        return False


def _copy_rows(image: str, target: str, found: SalvageSummary) -> None:
    """Create a new database from all readable rows."""
    with closing(database_schema.connect(target)) as new:
        database_schema.prepare(new, target, page_size=PAGE_SIZE, max_bytes=0, check_bytes=0)
        try:
            with read_only(image) as old:
                for table in (*OTHERS, *BY_ID):
                    _copy_table(old, new, table, found)
                _drop_unreadable(new, found)
        except sqlite3.Error as error:
            found.lost.append(f"the database cannot be read at all: {error}")


def _copy_table(
    old: sqlite3.Connection, new: sqlite3.Connection, table: str, found: SalvageSummary
) -> None:
    try:
        there = {row[1] for row in old.execute(f"PRAGMA table_info({table})")}
    except sqlite3.Error as error:
        found.lost.append(f"table {table}: {error}")
        return
    columns = [row[1] for row in new.execute(f"PRAGMA table_info({table})") if row[1] in there]
    if not columns:
        found.lost.append(f"table {table} is not there")
        return
    names = ", ".join(columns)
    marks = ", ".join("?" * len(columns))
    insert = f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({marks})"  # noqa: S608 - of names
    rows = (
        _rows_by_id(old, table, names, BY_ID[table], found)
        if table in BY_ID
        else _rows_in_order(old, table, names, found)
    )
    new.execute("BEGIN")
    for row in rows:
        try:
            new.execute(insert, row)
        except (sqlite3.Error, UnicodeError) as error:
            found.lost.append(f"table {table}, row {row[0]!r}: {error}")
    new.execute("COMMIT")


def _rows_by_id(
    old: sqlite3.Connection, table: str, names: str, key: str, found: SalvageSummary
) -> Iterator[tuple[Any, ...]]:
    """Yield rows, halving unreadable ranges of ids."""
    query = f"SELECT {names} FROM {table} NOT INDEXED WHERE {key} BETWEEN ? AND ?"  # noqa: S608
    left = [(0, WHOLE - 1)]
    probes = 0
    gone: list[tuple[int, int]] = []
    while left:
        first, last = left.pop()
        probes += 1
        seen = first - 1
        try:
            for row in old.execute(f"{query} ORDER BY {key}", (first, last)):
                seen = row[names.split(", ").index(key)]
                yield row
            continue
        except sqlite3.Error:
            first = seen + 1
        if probes > MOST_PROBES or first >= last:
            gone.append((first, last))
            continue
        middle = (first + last) // 2
        left += [(middle + 1, last), (first, middle)]
    if gone:
        low, high = min(gone)[0], max(one[1] for one in gone)
        most = "" if high == WHOLE - 1 else f" and {high}"
        found.lost.append(f"table {table}: rows with ids from {low}{most} on damaged pages")


def _rows_in_order(
    old: sqlite3.Connection, table: str, names: str, found: SalvageSummary
) -> Iterator[tuple[Any, ...]]:
    try:
        yield from old.execute(f"SELECT {names} FROM {table}")  # noqa: S608 - of names
    except sqlite3.Error as error:
        found.lost.append(f"table {table}: rows behind a damaged page ({error})")


def _drop_unreadable(new: sqlite3.Connection, found: SalvageSummary) -> None:
    """Leave out entries whose shared payload is lost, and name queues without names."""
    gone = new.execute(
        "DELETE FROM entry WHERE payload > 0 AND payload NOT IN (SELECT id FROM payload)"
    ).rowcount
    if gone:
        found.lost.append(f"{gone} entries have lost the body that they share with others")
    new.execute("DELETE FROM payload WHERE id NOT IN (SELECT ifnull(payload, 0) FROM entry)")
    for (number,) in new.execute(
        "SELECT DISTINCT queue FROM entry WHERE queue NOT IN (SELECT number FROM queue)"
        " AND queue <> ?",
        (QUARANTINE_NUMBER,),
    ).fetchall():
        name = f"salvaged-{number}"
        new.execute("INSERT INTO queue (number, name) VALUES (?, ?)", (number, name))
        found.lost.append(f"the name of queue {number}: it is {name} now")


def _leave_out_damaged(new: sqlite3.Connection, found: SalvageSummary) -> None:
    """Leave out small rows that do not match their checksums: a store does not start with them."""
    for number, name, crc in new.execute("SELECT number, name, row_crc FROM queue").fetchall():
        if not is_sound(crc_of_queue, (number, name), crc):
            given = f"salvaged-{number}"
            new.execute(
                "UPDATE queue SET name = ?, row_crc = ? WHERE number = ?",
                (given, crc_of_queue(number, given), number),
            )
            found.lost.append(f"the name of queue {number} ({name!r}): it is {given} now")
    for stream, low, high, at, steps, crc in new.execute(
        "SELECT stream, low, high, at, steps, row_crc FROM receipt"
    ).fetchall():
        if not is_sound(crc_of_receipt, (stream, low, high, at, steps), crc):
            new.execute(
                "DELETE FROM receipt WHERE CAST(stream AS BLOB) = ? AND low IS ? AND high IS ?"
                " AND CAST(steps AS BLOB) = ?",
                (_octets(stream), low, high, _octets(steps)),
            )
            found.lost.append(f"a receipt of {stream!r}: messages of that peer may come twice")
    for kind, key, value, crc in new.execute(
        "SELECT kind, key, value, row_crc FROM note"
    ).fetchall():
        if not is_sound(crc_of_note, (kind, key, value), crc):
            new.execute(
                "DELETE FROM note WHERE CAST(kind AS BLOB) = ? AND CAST(key AS BLOB) = ?",
                (_octets(kind), _octets(key)),
            )
            found.lost.append(f"the note {kind!r} {key!r}")
    found.is_complete &= not found.lost


def _octets(text: object) -> bytes:
    return str(text).encode("utf-8", "surrogateescape")


def _count_damaged(new: sqlite3.Connection, target: str, found: SalvageSummary) -> None:
    """Count the messages that do not match their checksums.

    They are kept: the daemon sets them aside when it reads them, and reports to their senders.
    """
    directory = BodyDirectory.of(target)
    files = BodyFiles(directory, 0, SEGMENT_BYTES, 0)
    bodies: dict[int, int] = {}
    faults: list[str] = []
    try:
        faults += entry_faults(new, files, bodies)
        faults += payload_faults(new, files)
    except sqlite3.Error as error:
        faults.append(f"not all rows can be compared with their checksums: {error}")
    finally:
        files.close()
    faults += filter(None, (check_body(directory.name(one), bodies[one]) for one in bodies))
    fresh = [words for words in faults if IN_QUARANTINE not in words]
    found.lost += [f"{words}: it is kept, and goes to nobody" for words in fresh[:MOST_SAID]]
    if len(fresh) > MOST_SAID:
        found.lost.append(f"and {len(fresh) - MOST_SAID} more like these: amqproute store check")
    found.is_complete &= not fresh


# -- bodies --------------------------------------------------------------------------------------


def _bodies_of(path: str) -> dict[int, int]:
    return BodyDirectory.of(path).look()


def _take_bodies(path: str, target: str, found: SalvageSummary) -> None:
    source, bodies = BodyDirectory.of(path), BodyDirectory.of(target)
    there = source.look()
    os.makedirs(bodies.path, mode=0o700, exist_ok=True)
    with closing(database_schema.connect(target)) as connection:
        database_schema.prepare(connection, target, page_size=PAGE_SIZE, max_bytes=0, check_bytes=0)
        for number, wanted, _, count in list(named_files(connection)):
            size = there.pop(number, None)
            if size is not None and size >= wanted:
                shutil.copyfile(source.name(number), bodies.name(number))
                continue
            if size is not None:
                shutil.copyfile(source.name(number), bodies.name(number))
            ids = connection.execute(
                "DELETE FROM entry WHERE (payload = ? OR payload IN"
                " (SELECT id FROM payload WHERE segment = ?"
                " AND body_start + body_length > ?))"
                " AND (payload > 0 OR ifnull(body_start, 0) + body_length > ?)",
                (-number, number, size or 0, size or 0),
            ).rowcount
            connection.execute(
                "DELETE FROM payload WHERE segment = ? AND body_start + body_length > ?",
                (number, size or 0),
            )
            how = "is missing" if size is None else f"has {size} octets, {wanted} are needed"
            found.is_complete = False
            found.lost.append(f"{source.name(number)} {how}: {ids} of {count} messages in it")
    for number, size in sorted(there.items()):
        _export(source.name(number), size, found)


def _export(path: str, size: int, found: SalvageSummary) -> None:
    """Write the messages of a file without rows to files of their own."""
    folder = os.path.join(found.folder, "messages")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    name = os.path.basename(path)
    if size > LARGEST_READ:
        shutil.copyfile(path, os.path.join(folder, name))
        found.orphans.append({"file": name, "size": size})
        return
    with open(path, "rb") as file:
        octets = file.read()
    for start, end in _messages_in(octets):
        if len(found.orphans) >= MOST_EXPORTED:
            found.lost.append(f"{path}: more than {MOST_EXPORTED} messages of nobody")
            return
        encoded = octets[start:end]
        own = f"{name}-{start}.amqp"
        with open(os.path.join(folder, own), "wb") as target:
            target.write(encoded)
        found.orphans.append({"file": own, "size": len(encoded), **_who(encoded)})


def _messages_in(octets: bytes) -> Iterator[tuple[int, int]]:
    """Find messages stored in a row: each begins where the order of sections restarts."""
    at, end = 0, len(octets)
    start = last = 0
    while at < end:
        try:
            section, after = sections.section_at(octets, at, end)
            if not 0x70 <= section <= 0x78:
                break
            after = sections.skip(octets, after, end)
        except (DecodeError, IndexError):
            break
        repeats = section == last and section in (0x75, 0x76)
        is_second_body = 0x75 <= last <= 0x77 and section in (0x76, 0x77)
        if not repeats and (section <= last or is_second_body):
            yield start, at
            start = at
        last = section
        at = after
    if at > start:
        yield start, at


def _who(encoded: bytes) -> dict[str, Any]:
    try:
        properties = Message(encoded).properties
    except DecodeError:
        return {}
    names = {"message-id": properties.message_id, "to": properties.to}
    return {name: str(value) for name, value in names.items() if value is not None}
