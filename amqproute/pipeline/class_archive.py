# SPDX-License-Identifier: Apache-2.0
"""An archive of Spark's classes, so that a starting JVM need not read and verify them.

A JVM with Spark loads more than ten thousand classes, which takes a fifth of its time if there are
few rows. Java can write its loaded classes to a file when it ends, and map that file into the next
JVM (class data sharing). So the first night on a machine writes it, and ends some seconds later;
all commands of the pipeline that start a JVM on this machine use it from then on.

The file is in the user's cache: ``CACHE_DIRECTORY``, as systemd sets it, or ``XDG_CACHE_HOME``, or
``~/.cache``. Its name depends on the Java and the Spark, so an update makes another one, and only
the last few are kept. Java checks it again, and ignores it if it does not match. Nothing here is an
error: if the file cannot be written, the JVM runs without it, and the next try is a month later.

Java executes the contents of that file. So it is used only if nobody else can write to it.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["ClassArchive", "class_archive"]

_PREFIX: Final = "java-classes-"
_KEPT: Final = 3
"""Files kept, for this and other versions of Java or Spark of the same user."""
_DAY: Final = 86_400.0
_SILENT: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""Java warns of each class that it cannot archive, and of a file that does not match."""


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive file, and its use by a starting JVM.

    Attributes:
        path: the path of the file.
        draft: file that this JVM writes when it ends; None if the archive exists.
    """

    path: Path
    draft: Path | None = None

    @property
    def options(self) -> tuple[str, ...]:
        """Options for Java."""
        if self.draft is None:
            return (*_SILENT, f'-XX:SharedArchiveFile="{self.path}"')
        return (*_SILENT, f'-XX:ArchiveClassesAtExit="{self.draft}"')

    def finish(self) -> None:
        """Move the file to its place, when the JVM that wrote it has ended.

        Without a file, a mark prevents another try for a while.
        """
        if self.draft is None:
            return
        with suppress(OSError):
            if self.draft.exists():
                self.draft.chmod(0o400)
                os.replace(self.draft, self.path)
                _tidy(self.path.parent)
            else:
                _mark(self.path).touch()


def class_archive(
    program: str, spark_home: str, environment: Mapping[str, str], *, may_write: bool
) -> ClassArchive | None:
    """Return the file for a Java and a Spark, None if it does not exist and cannot be written.

    Args:
        program: the java executable.
        spark_home: the installation directory of Spark.
        environment: the environment of the process.
        may_write: whether the starting JVM may write it.
    """
    try:
        folder = _folder(environment)
        if folder is None or not _is_own(folder):
            return None
        path = folder / f"{_PREFIX}{_key(program, spark_home)}.jsa"
        if path.exists():
            return ClassArchive(path) if _is_own(path) else None
        if not may_write or (_mark(path).exists() and _age(_mark(path)) < 30 * _DAY):
            return None
        handle, draft = tempfile.mkstemp(".draft", _PREFIX, folder)
        os.close(handle)
        os.unlink(draft)  # Java does not overwrite an existing one
        return ClassArchive(path, Path(draft))
    except OSError:
        return None


def _folder(environment: Mapping[str, str]) -> Path | None:
    """Return the folder, created if needed; None if its path cannot be passed in Java's options."""
    if given := environment.get("CACHE_DIRECTORY"):
        folder = Path(given.partition(":")[0])
    elif (home := environment.get("XDG_CACHE_HOME")) and os.path.isabs(home):
        folder = Path(home, "amqproute")
    elif home := environment.get("HOME"):
        folder = Path(home, ".cache", "amqproute")
    else:
        return None
    if any(character in str(folder) for character in "\"'\\%\n"):
        return None
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _is_own(path: Path) -> bool:
    """Return whether nobody else can write to it."""
    stat = path.stat()
    return stat.st_uid == os.geteuid() and not stat.st_mode & 0o022


def _key(program: str, spark_home: str) -> str:
    """Return a name that changes with Java and with Spark's archives."""
    java = os.path.realpath(program)
    told = hashlib.sha256()
    for path in (java, *sorted(map(str, Path(spark_home, "jars").glob("*.jar")))):
        stat = os.stat(path)
        told.update(
            f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}\0".encode(errors="surrogateescape")
        )
    return told.hexdigest()[:16]


def _mark(path: Path) -> Path:
    return path.with_suffix(".none")


def _tidy(folder: Path) -> None:
    """Remove all but the last few files, and leftovers of killed JVMs."""
    files = sorted(folder.glob(f"{_PREFIX}*.jsa"), key=lambda path: path.stat().st_mtime)
    old = [path for path in folder.glob(f"{_PREFIX}*.draft") if _age(path) > _DAY]
    for path in (*files[:-_KEPT], *old):
        path.unlink(missing_ok=True)


def _age(path: Path) -> float:
    return time.time() - path.stat().st_mtime
