# SPDX-License-Identifier: Apache-2.0
"""Backups of a store, even while its daemon runs, and their restoration.

**A backup** is a folder: unchanged copies of ``store.db``, ``store.bodies/``, ``seal`` and
``mark``, and ``backup.json`` with the size and SHA-256 of each file. It is made as
``NAME.partial``, checked like any store (`amqproute.store.fsck`), synced, and renamed at the end: a
folder with the final name is complete, the remains of a killed backup never have it.

The database is read in one transaction, which delays the restart of the write-ahead log and blocks
nobody. Files of bodies are copied, not linked: the store overwrites segments that it no longer
needs. First all files present are copied, then, after the database, those that it names and that
are new or have grown. If a file was removed in between, it is missing or does not match its
checksums; then everything is repeated, up to `TRIES` times.

A store without a daemon is copied with its log; none of its files is opened for writing.

**A restore** fills a folder without a store. Seal and mark stay in the backup: a store without them
counts as restored, and assigns its ids after all earlier ones (`amqproute.store.mark`). The
database gets its name last. A killed restore leaves the file `RESTORING`, and can be started again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from amqproute.durable_path import sync_path
from amqproute.errors import StoreError
from amqproute.jsontext import parse_json
from amqproute.store import fsck
from amqproute.store.body_files import BodyDirectory, named_files
from amqproute.store.database_copy import temporary_copy

__all__ = ["MANIFEST", "RESTORING", "TRIES", "BackupSummary", "back_up", "restore"]

MANIFEST: Final = "backup.json"
"""The list of the files of a backup; it is written last."""
RESTORING: Final = "store.restoring"
"""Marks a state directory into which a backup is being restored."""
TRIES: Final = 5
"""Number of attempts to copy a store whose messages leave during the copy."""
PARTIAL: Final = ".partial"
_FORMAT: Final = 1
_DATABASE: Final = "store.db"
_BODIES: Final = "store.bodies"
_OWN: Final = (_BODIES, "store.quarantine", "journal")
"""Folders of a state directory in which the daemon moves and deletes unknown files."""
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class BackupSummary:
    """The result of a backup.

    Attributes:
        messages: number of rows of messages.
        files: number of files, without the manifest.
        size: their octets.
        problems: damage in the store, and therefore in the backup.
    """

    messages: int
    files: int
    size: int
    problems: tuple[str, ...] = ()


def back_up(path: str, into: str, is_running: bool) -> BackupSummary:
    """Make a backup.

    Args:
        path: the database.
        into: the folder to create.
        is_running: whether a daemon has the store open. If not, the caller locks it.

    Raises:
        StoreError: the folder exists, or reading or writing failed.
    """
    target, partial = Path(into), Path(into + PARTIAL)
    if target.exists():
        raise StoreError(f"{target} already exists: name a folder that does not")
    if not os.path.exists(path):
        raise StoreError(f"there is no store {path}")
    for own in _OWN:
        folder = Path(path).parent / own
        if target.resolve().is_relative_to(folder.resolve()):
            raise StoreError(f"{folder} belongs to the daemon: name a folder elsewhere")
    try:
        problems: list[str] = []
        for _ in range(TRIES):
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(mode=0o700, parents=True)
            missing = _copy(Path(path), partial, is_running)
            problems = missing or fsck.check(str(partial / _DATABASE))
            if not problems or not is_running:
                break
        if missing:
            raise StoreError(
                f"no backup was made: files of bodies are missing: {'; '.join(missing[:3])}"
            )
        backup = _complete(partial, problems)
        os.rename(partial, target)
        sync_path(target.absolute().parent)
    except StoreError:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    except (OSError, sqlite3.Error) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise StoreError(f"no backup was made: {_words(error, target)}") from error
    return backup


def _words(error: OSError | sqlite3.Error, target: Path) -> str:
    """Return a description of the error, with its place."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if is_full or code == sqlite3.SQLITE_FULL:
        return f"no room is left for {target}"
    if isinstance(error, OSError):
        return f"{error.filename or target}: {error.strerror}"
    return str(error)


def _copy(path: Path, partial: Path, is_running: bool) -> list[str]:
    """Copy a store; return the missing files of bodies."""
    bodies = Path(BodyDirectory.of(str(path)).path)
    copied = partial / _BODIES
    copied.mkdir(mode=0o700)
    seen: dict[str, int] = {}
    if is_running:
        _copy_bodies(bodies, copied, seen, None)
    _copy_database(path, partial / _DATABASE, is_running)
    for end in ("seal", "mark"):
        try:
            shutil.copyfile(f"{path}.{end}", partial / end)
        except FileNotFoundError:
            pass  # of an earlier release, or withdrawn
    named = _named(partial / _DATABASE)
    _copy_bodies(bodies, copied, seen, named)
    for name in set(_listed(copied)) - set(named):
        (copied / name).unlink()
    there = {each: (copied / each).stat().st_size for each in _listed(copied)}
    return [
        f"{bodies / name} has {there.get(name, 0)} of {size} octets"
        for name, size in named.items()
        if there.get(name, 0) < size
    ]


def _copy_database(path: Path, target: Path, is_running: bool) -> None:
    if is_running:
        with (
            closing(_opened(path, "mode=ro")) as source,
            closing(sqlite3.connect(target)) as copy,
        ):
            source.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")
        return
    with (
        temporary_copy(path) as whole,
        closing(sqlite3.connect(whole)) as source,
        closing(sqlite3.connect(target)) as copy,
    ):
        source.backup(copy)
        copy.execute("PRAGMA journal_mode=DELETE")


def _opened(path: Path, how: str) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path.absolute()))}?{how}", uri=True)


def _named(database: Path) -> dict[str, int]:
    """Return the names of the files with bodies, and the octets that each must have."""
    with closing(_opened(database, "mode=ro")) as connection:
        return {f"{number:012}": size for number, size, _, _ in named_files(connection)}


def _copy_bodies(
    source: Path, target: Path, seen: dict[str, int], named: dict[str, int] | None
) -> None:
    """Copy files that are new, or have grown since they were copied.

    Args:
        source: the store's folder.
        target: the folder to copy to.
        seen: octets already copied, by name; updated.
        named: names of the files needed; None for all.
    """
    for name in sorted(each for each in _listed(source) if each.isdigit()):
        if named is not None and name not in named:
            continue
        try:
            if (source / name).stat().st_size != seen.get(name):
                shutil.copyfile(source / name, target / name)
                seen[name] = (target / name).stat().st_size
        except FileNotFoundError:
            pass  # removed meanwhile; the part copied before may be enough


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _complete(partial: Path, problems: list[str]) -> BackupSummary:
    """Write the manifest, and sync everything."""
    files: dict[str, tuple[int, str]] = {}
    for each in _files(partial):
        os.chmod(each, 0o600)
        files[str(each.relative_to(partial))] = (each.stat().st_size, _digest(each))
        sync_path(each)
    with closing(_opened(partial / _DATABASE, "mode=ro")) as connection:
        (messages,) = connection.execute("SELECT count(*) FROM entry").fetchone()
    manifest = {
        "format": _FORMAT,
        "made": int(time.time()),
        "messages": messages,
        "problems": problems,
        "files": files,
    }
    (partial / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    for each in (partial / MANIFEST, partial / _BODIES, partial):
        sync_path(each)
    size = sum(size for size, _ in files.values())
    return BackupSummary(messages, len(files), size, tuple(problems))


def restore(source: str, path: str) -> BackupSummary:
    """Restore a backup where there is no store.

    Args:
        source: the folder of the backup.
        path: the database to create; its folder must exist.

    Raises:
        StoreError: the backup is incomplete, there is a store already, or writing failed.
    """
    folder, target = Path(source), Path(path)
    flag = target.parent / RESTORING
    bodies = Path(BodyDirectory.of(path).path)
    try:
        files, messages, problems = _verified(folder)
        remains = [Path(f"{path}{end}") for end in ("", "-wal", "-shm", ".seal", ".mark")]
        if not flag.exists():
            found = [each for each in (*remains, bodies) if each.exists()]
            if found:
                raise StoreError(
                    f"{found[0]} already exists, and a restore replaces nothing: move the old "
                    "store elsewhere first, as the README says under Backup and restore"
                )
            flag.touch(0o600)
            sync_path(target.parent)
        for each in remains:
            each.unlink(missing_ok=True)
        shutil.rmtree(bodies, ignore_errors=True)
        shutil.copytree(folder / _BODIES, bodies)
        fresh = target.parent / f"{target.name}{PARTIAL}"
        shutil.copyfile(folder / _DATABASE, fresh)
        owner = target.parent.stat()
        for each in (*_files(bodies), bodies, fresh):
            if os.geteuid() == 0:
                os.chown(each, owner.st_uid, owner.st_gid)
            os.chmod(each, 0o700 if each == bodies else 0o600)
            sync_path(each)
        for name, where in ((_DATABASE, fresh), *((str(Path(_BODIES) / each.name), each)
                            for each in _files(bodies))):  # fmt: skip
            if _digest(where) != files[name][1]:
                raise StoreError(f"{where} differs from the copied file: check the disk")
        os.rename(fresh, target)
        sync_path(target.parent)
        flag.unlink()
        sync_path(target.parent)
    except OSError as error:
        raise StoreError(f"{error.filename or target}: {error.strerror}") from error
    size = sum(size for size, _ in files.values())
    return BackupSummary(messages, len(files), size, tuple(problems))


def _verified(folder: Path) -> tuple[dict[str, tuple[int, str]], int, list[str]]:
    """Return files with sizes and digests, messages, and problems, of a complete backup.

    Raises:
        StoreError: it is not complete.
    """
    try:
        manifest = parse_json((folder / MANIFEST).read_text())
        files = {
            str(name): (int(size), str(digest))
            for name, (size, digest) in manifest["files"].items()
        }
        messages, problems = int(manifest["messages"]), list(manifest["problems"])
        known = manifest["format"] == _FORMAT
    except (OSError, ValueError, KeyError, TypeError):
        raise StoreError(
            f"{folder} is not a complete backup: it has no readable {MANIFEST}"
        ) from None
    if not known:
        raise StoreError(f"{folder} is of another release: its format is not {_FORMAT}")
    for name, (size, digest) in files.items():
        where = folder / name
        if not where.is_file() or where.stat().st_size != size or _digest(where) != digest:
            raise StoreError(f"{folder} is not a complete backup: {name} is missing or was changed")
    if _DATABASE not in files:
        raise StoreError(f"{folder} is not a complete backup: it has no {_DATABASE}")
    return files, messages, problems


def _files(folder: Path) -> Iterator[Path]:
    """Iterate over all files below a folder, except the manifest."""
    for each in sorted(folder.rglob("*")):
        if each.is_file() and each.name != MANIFEST:
            yield each


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
