# SPDX-License-Identifier: Apache-2.0
"""Whether a start would accept the store, found without opening a file for writing.

A store of usual size is copied (`amqproute.store.database_copy`), and the copy is examined like a
store at start: contradictions to its seal, its identity and version, its pages, and the small rows
without which no start succeeds. Seal, mark and bodies are not copied but linked: a copied mark
would count as withdrawn, and a finding would have another name than at start. Of a large store only
the first page is read.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import Final

from amqproute.errors import StoreContradiction, StoreDamaged, StoreError, StoreForeign
from amqproute.store import database_schema
from amqproute.store.body_files import BodyDirectory
from amqproute.store.database_copy import MOST_COPIED, is_large, temporary_copy
from amqproute.store.fsck import small_row_faults
from amqproute.store.start_evidence import Witness, examine, refusal
from amqproute.store.wal_file import frames_of, read_header

__all__ = ["inspect_store", "is_in_use"]

_BESIDE: Final = (".seal", ".mark")
_FIRST_PAGE: Final = 100
_MAGIC: Final = b"SQLite format 3\x00"


def is_in_use(path: Path) -> bool:
    """Return whether a daemon, or a command that examines the store, has it open.

    Args:
        path: the database.

    Raises:
        PermissionError: this user has no access.
    """
    try:
        descriptor = os.open(f"{path}.lock", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        # Held briefly; a start that finds it locked tries again.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def inspect_store(path: Path, witness: Witness | None = None) -> str:
    """Check whether a start would accept a store that no daemon has open.

    Args:
        path: the database.
        witness: asks the journal; None without one.

    Returns:
        A remark on parts that were not examined, empty for none.

    Raises:
        StoreError: the error with which a start would end.
    """
    files = [Path(f"{path}{each}") for each in ("", "-wal", *_BESIDE)]
    try:
        if not any(each.exists() for each in files) and not BodyDirectory.of(str(path)).look():
            found = examine(str(path), witness).finding  # from the journal alone; no file is opened
            if found is not None:
                raise refusal(found)
            return ""
        if path.exists():
            _check_first_page(path)
        if is_large(path):
            return (
                f"{path} is large: only its version was looked at. While no daemon runs, "
                "amqproute store check looks at all of it"
            )
        with temporary_copy(path) as copy:
            for each in _BESIDE:  # not copied: a mark detects that it is a copy, and is then void
                if os.path.exists(f"{path}{each}"):
                    os.symlink(f"{path.absolute()}{each}", f"{copy}{each}")
            try:
                _inspect_copy(path, copy, witness)
            except StoreError as error:
                words = str(error).replace(str(copy), str(path))
                words = words.replace(
                    BodyDirectory.of(str(copy)).path, BodyDirectory.of(str(path)).path
                )
                if isinstance(error, StoreContradiction):
                    raise StoreContradiction(words, error.finding) from error
                raise type_of(error)(words) from error
    except OSError as error:
        raise StoreError(
            f"{error.filename or path} cannot be looked at: {error.strerror or error}"
        ) from error
    return ""


def type_of(error: StoreError) -> type[StoreError]:
    """Return the type with which to raise an error again with another text."""
    for kind in (StoreDamaged, StoreForeign):
        if isinstance(error, kind):
            return kind
    return StoreError


def _check_first_page(path: Path) -> None:
    """Check identity and version in the newest commit, from the log or the database."""
    page = _newest_first_page(f"{path}-wal")
    if page is None:
        with path.open("rb") as file:
            page = file.read(_FIRST_PAGE)
    if len(page) < _FIRST_PAGE or not page.startswith(_MAGIC):
        return  # empty or damaged: the complete check reports it
    (version,) = struct.unpack_from(">i", page, 60)
    (identity,) = struct.unpack_from(">i", page, 68)
    database_schema.check_identity(str(path), identity, version, is_empty=False)


def _newest_first_page(log: str) -> bytes | None:
    """Return the beginning of the newest committed first page in a log, or None."""
    header = read_header(log)
    if header is None:
        return None
    offset = committed = 0
    for frame in frames_of(log, header):
        if not frame.is_whole:
            break
        if frame.page == 1:
            offset = frame.offset
        if frame.commit:
            committed = offset
    if not committed:
        return None
    with open(log, "rb") as file:
        file.seek(committed)
        return file.read(_FIRST_PAGE)


def _inspect_copy(path: Path, copy: Path, witness: Witness | None) -> None:
    bodies = Path(BodyDirectory.of(str(copy)).path)
    bodies.symlink_to(
        os.path.abspath(BodyDirectory.of(str(path)).path)
    )  # their names and sizes count as well
    finding = examine(str(copy), witness)
    bodies.unlink()
    if finding.finding is not None and not finding.is_restore:
        raise refusal(finding.finding)
    if not copy.exists() or not copy.stat().st_size:
        return
    try:
        with closing(database_schema.connect(str(copy))) as connection:
            database_schema.prepare(
                connection, str(copy), page_size=8192, max_bytes=0, check_bytes=MOST_COPIED
            )
            connection.text_factory = database_schema.read_text
            for fault in small_row_faults(connection):
                raise StoreDamaged(database_schema.damaged(str(copy), fault))
    except sqlite3.Error as error:
        raise database_schema.in_words(error, str(copy)) from error
