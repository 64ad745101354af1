# SPDX-License-Identifier: Apache-2.0
"""The layout of the database, its version and upgrades, and readable errors.

A new database is created by upgrading from version 0. Each step of `UPGRADES` runs in one
transaction with the change of ``user_version``, so that a crash leaves either the version before or
the version after it.

The tables:

* ``entry``: one row per entry, by id. The index ``entry_queue`` covers (queue, id, size): a page of
  a queue is found without touching other queues' entries, and the summaries at start read about 16
  bytes per entry rather than its body. It costs about 0.6 us per message. ``payload`` is NULL for
  an entry with a body of its own; else ``encoded`` is empty and the body is that payload's. The
  index ``entry_payload`` holds only the second kind: it shows whether a payload is still
  referenced. A negative ``payload`` is a file instead (`amqproute.store.body_files`): the message
  is the row's own octets and then ``body_length`` octets of the file, from ``body_start`` on; NULL
  there means that the file is the rest of this one message. The index ``entry_account`` holds
  entries that count towards somebody's account (flags from bit 8 on,
  `amqproute.entry.ACCOUNT_SHIFT`): the content of each account is summed up at start without
  touching a body. Traffic without accounts does not pay for it.
* ``payload``: bodies that several entries share, by id. If ``segment`` is not NULL, ``encoded`` is
  empty and the body is in that file, ``body_length`` octets from ``body_start`` on.
* ``queue``: number and name, so that rows carry a small integer.
* ``receipt``: one row per batch of received ids; ``steps`` is a JSON list of the gaps, empty for a
  run without gaps. It has no rowid and no index, so that a commit with receipts changes one page
  for them instead of three; finding them by age, which is rare, reads all.
* ``outbox``: reports of commits that their recipient may not have on its own disk yet
  (`amqproute.interfaces.IOutbox`), one row per commit; the recipient assigns the numbers.
* ``note``: small facts. ``meta``: the upper bound of the ids assigned so far.

``octets_crc``, ``row_sum`` and ``row_crc`` are checksums (`amqproute.store.checksums`), NULL in
rows of earlier releases. Entries with the queue number `QUARANTINE_NUMBER` are damaged: the damage
was found on reading, and they are not delivered.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from typing import Final

from amqproute.errors import StoreDamaged, StoreError, StoreForeign, StoreUnavailable
from amqproute.store import body_files

APPLICATION_ID: Final = 0x616D7172  # "amqr": identifies it for file(1) and the check in `prepare`

UPGRADES: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
        "CREATE TABLE queue (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
        # The body is last: the columns before it are read without following its overflow pages.
        "CREATE TABLE entry (id INTEGER PRIMARY KEY, queue INTEGER NOT NULL,"
        " arrived INTEGER NOT NULL, expires INTEGER NOT NULL, flags INTEGER NOT NULL,"
        " count INTEGER NOT NULL, size INTEGER NOT NULL, encoded BLOB NOT NULL)",
        "CREATE INDEX entry_queue ON entry (queue, id, size)",
        "CREATE INDEX entry_expires ON entry (queue, expires) WHERE expires > 0",
        "CREATE INDEX entry_transient ON entry (id) WHERE flags & 1",
        "CREATE TABLE receipt (number INTEGER PRIMARY KEY, stream TEXT NOT NULL,"
        " low INTEGER NOT NULL, high INTEGER NOT NULL, at INTEGER NOT NULL, steps TEXT)",
        "CREATE INDEX receipt_stream ON receipt (stream, high, low)",
        "CREATE INDEX receipt_at ON receipt (at)",
        "CREATE TABLE note (kind TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL,"
        " PRIMARY KEY (kind, key)) WITHOUT ROWID",
    ),
    (
        # After the body, where a column can be added without rewriting existing rows: NULL
        # is in the row's header, so no overflow pages are followed to find it.
        "ALTER TABLE entry ADD COLUMN payload INTEGER",
        "CREATE INDEX entry_payload ON entry (payload) WHERE payload IS NOT NULL",
        "CREATE TABLE payload (id INTEGER PRIMARY KEY, encoded BLOB NOT NULL)",
    ),
    (
        "ALTER TABLE entry ADD COLUMN body_start INTEGER",
        "ALTER TABLE entry ADD COLUMN body_length INTEGER",
    ),
    (
        "CREATE INDEX entry_account ON entry (flags, size, body_start, body_length)"
        " WHERE flags > 255",
    ),
    (
        "CREATE TABLE received (stream TEXT NOT NULL, high INTEGER NOT NULL, low INTEGER NOT NULL,"
        " steps TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (stream, high, low, steps))"
        " WITHOUT ROWID",
        "INSERT OR REPLACE INTO received SELECT stream, high, low, ifnull(steps, ''), at"
        " FROM receipt ORDER BY number",
        "DROP TABLE receipt",
        "ALTER TABLE received RENAME TO receipt",
    ),
    (
        "ALTER TABLE payload ADD COLUMN segment INTEGER",
        "ALTER TABLE payload ADD COLUMN body_start INTEGER",
        "ALTER TABLE payload ADD COLUMN body_length INTEGER",
        "CREATE INDEX payload_segment ON payload (segment) WHERE segment IS NOT NULL",
    ),
    ("CREATE TABLE outbox (number INTEGER PRIMARY KEY, octets BLOB NOT NULL)",),
    (
        # NULL in existing rows: they are read unchecked, and none is rewritten.
        "ALTER TABLE entry ADD COLUMN octets_crc INTEGER",
        "ALTER TABLE entry ADD COLUMN row_sum INTEGER",
        "ALTER TABLE payload ADD COLUMN octets_crc INTEGER",
        "ALTER TABLE receipt ADD COLUMN row_crc INTEGER",
        "ALTER TABLE note ADD COLUMN row_crc INTEGER",
        "ALTER TABLE queue ADD COLUMN row_crc INTEGER",
    ),
)
"""Step n leads from version n to version n + 1."""

Connect = Callable[[str], sqlite3.Connection]


def connect(path: str) -> sqlite3.Connection:
    """Open a connection without Python's own transaction handling.

    The cache of prepared statements must hold every size of every bulk statement.
    """
    return sqlite3.connect(path, timeout=5.0, isolation_level=None, cached_statements=512)


def read_text(octets: bytes) -> str:
    """Return the text in a row; octets that are not UTF-8 become surrogates.

    For connections that search for damage: the default is an error that hides all other rows.
    """
    return octets.decode("utf-8", "surrogateescape")


def prepare(
    connection: sqlite3.Connection, path: str, *, page_size: int, max_bytes: int, check_bytes: int
) -> None:
    """Prepare the database: identity, pragmas, integrity, version.

    Args:
        connection: the writer's connection.
        path: the path for error texts.
        page_size: the size in bytes; applies only to a new database.
        max_bytes: bound on the size of the database file; 0 for none.
        check_bytes: a database up to this size is checked page by page.

    Raises:
        StoreForeign: the database belongs to another program or to a newer release.
        StoreError: it is damaged, or cannot be used here.
    """
    ask = connection.execute
    ask(f"PRAGMA page_size={page_size}")
    (version,) = ask("PRAGMA user_version").fetchone()
    (identity,) = ask("PRAGMA application_id").fetchone()
    (tables,) = ask("SELECT count(*) FROM sqlite_schema").fetchone()
    check_identity(path, identity, version, is_empty=not tables)
    (mode,) = ask("PRAGMA journal_mode=WAL").fetchone()
    if mode != "wal":
        raise StoreError(f"{path} cannot use a write-ahead log on this file system ({mode})")
    ask("PRAGMA synchronous=FULL")
    ask("PRAGMA fullfsync=ON")  # where fsync alone does not reach the platter (macOS)
    ask("PRAGMA wal_autocheckpoint=0")
    # Debian builds SQLite with secure_delete: every freed page would be zeroed and logged.
    ask("PRAGMA secure_delete=OFF")
    ask("PRAGMA cache_size=-32768")
    ask("PRAGMA temp_store=MEMORY")
    (size,) = ask("PRAGMA page_size").fetchone()
    (pages,) = ask("PRAGMA page_count").fetchone()
    if pages * size <= check_bytes:
        (verdict,) = ask("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise StoreDamaged(damaged(path, verdict))
    if not version:
        ask(f"PRAGMA application_id={APPLICATION_ID}")
    while version < len(UPGRADES):
        # A new database is made in one transaction: each writes the same pages to the log again.
        reached = version + 1 if version else len(UPGRADES)
        ask("BEGIN IMMEDIATE")
        for step in UPGRADES[version:reached]:
            for statement in step:
                ask(statement)
        ask(f"PRAGMA user_version={reached}")
        ask("COMMIT")
        version = reached
    if max_bytes:
        ask(f"PRAGMA max_page_count={max(1, max_bytes // size)}").fetchone()


def check_identity(path: str, identity: int, version: int, *, is_empty: bool) -> None:
    """Compare the identity of a database with that of this release.

    Args:
        path: the path for error texts.
        identity: its application_id.
        version: its user_version.
        is_empty: whether it has no tables.

    Raises:
        StoreForeign: it belongs to another program or to a newer release.
    """
    if identity != APPLICATION_ID and (not is_empty or version or identity):
        raise StoreForeign(
            f"{path} is a database of another program; set the state directory to one of our own"
        )
    if version > len(UPGRADES):
        raise StoreForeign(
            f"{path} has schema version {version}, this release knows {len(UPGRADES)}: "
            "start the newer release that wrote it"
        )


def damaged(path: str, what: str) -> str:
    """Return the error text for a damaged database, with the next step."""
    return (
        f"the database {path} is damaged ({what}). Do not delete it: get back what can be read "
        "with: amqproute store salvage, which works on a copy (or sqlite3 .recover); or put a "
        "backup in its place"
    )


NEEDED_BYTES: Final = 1024 * 1024
"""Free octets below which SQLite may fail in any of its files, not only with SQLITE_FULL."""


def is_full(path: str) -> bool:
    """Return whether the file system of a path has almost no space for users other than root."""
    try:
        room = os.statvfs(os.path.dirname(path))
    except OSError:
        return False
    return room.f_bavail * room.f_frsize < NEEDED_BYTES


def octets_needed(path: str) -> str:
    """Return the space that a start needs: the log may have to be copied into the database."""
    try:
        log = os.stat(f"{path}-wal").st_size
    except OSError:
        log = 0
    return f"{-(-(log + NEEDED_BYTES) // NEEDED_BYTES)} MiB"


MEANINGS: Final[tuple[tuple[tuple[str, ...], type[StoreError]], ...]] = (
    (("SQLITE_CORRUPT", "SQLITE_NOTADB"), StoreDamaged),
    (("SQLITE_FULL", "SQLITE_IOERR"), StoreUnavailable),
    (("",), StoreError),
)
"""The meaning of failures, by the beginning of SQLite's name for them; the first match decides.

====================  ==============================================================================
`StoreUnavailable`    the disk accepts nothing for now: publishers have no credit until a commit
                      succeeds; transactions submitted before wait for it
`StoreDamaged`        at start the store is refused (exit code 2); at run time publishers have no
                      credit until a restart, which checks the whole database; settlements continue
`StoreError`          the request is refused, and nothing else
====================  ==============================================================================
"""


def meaning_of(error: Exception) -> type[StoreError]:
    """Return the meaning of a failure: from `MEANINGS`, or the class of a readable error.

    `amqproute.store.body_files` makes errors of the system (`OSError`) readable.
    """
    if isinstance(error, StoreError):
        return type(error)
    name = str(getattr(error, "sqlite_errorname", ""))
    return next(kind for names, kind in MEANINGS if name.startswith(names))


def in_words(error: Exception, path: str) -> StoreError:
    """Translate an error of SQLite or of the system for the operator."""
    if isinstance(error, StoreError):
        return error
    name = str(getattr(error, "sqlite_errorname", ""))
    kind = meaning_of(error)
    if kind is StoreDamaged:
        words = damaged(path, str(error))
    elif name.startswith("SQLITE_FULL"):
        words = (
            f"no room for {path} (file system, quota, or the configured limit): nothing of this "
            "was stored; free space, consumers and peers may continue to empty queues"
        )
    elif name.startswith("SQLITE_IOERR") and is_full(path):
        words = (
            f"the disk is full under {path} ({name}): nothing of this was stored; free "
            f"{octets_needed(path)} there, by what else stands on that file system"
        )
    elif name.startswith("SQLITE_IOERR"):
        words = f"the disk failed under {path} ({name}: {error}): nothing of this was stored"
    elif name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM")):
        words = (
            f"cannot open {path} for writing as user id {os.geteuid()} ({error}): "
            "check owner and mode of the file and its directory"
        )
    elif name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        words = f"another program holds a lock on {path} ({error}): close it"
    elif isinstance(error, OSError):
        return body_files.in_words(error, path)
    else:
        words = f"{path}: {error}"
    translated = kind(words)
    translated.__cause__ = error
    return translated
