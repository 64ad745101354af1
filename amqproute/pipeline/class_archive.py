# SPDX-License-Identifier: Apache-2.0
"""Spark's classes in a file of Java's, so that a JVM that starts need not read and verify them.

A JVM that runs Spark loads more than ten thousand classes, which with few rows takes a fifth of its
time. Java can write those that it has loaded to a file when it ends, and map that file into the
next JVM (class data sharing). So the first night on a machine writes it, and ends some seconds
later; all commands of the pipeline that start a JVM of this machine use it from then on.

The file stands in the cache of the user: ``CACHE_DIRECTORY``, as systemd sets it, or
``XDG_CACHE_HOME``, or ``~/.cache``. Its name says of which Java and which Spark it is, so an update
makes another one, and only the last few are kept. Java looks at it once more, and does without
where it does not fit. Nothing here is an error: what cannot be written is done without, and not
tried again for a month.

Java runs what is in that file. So it is used only where nobody else can write to it.
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
"""Files for other Javas or Sparks that the same user may have, and this one."""
_DAY: Final = 86_400.0
_SILENT: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""Java warns of each class that it cannot put into the file, and of a file that does not fit."""


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The file, and what a JVM that starts has to do with it.

    Attributes:
        path: of the file.
        draft: where this JVM writes it when it ends; None if it is there.
    """

    path: Path
    draft: Path | None = None

    @property
    def options(self) -> tuple[str, ...]:
        """Options of Java."""
        if self.draft is None:
            return (*_SILENT, f'-XX:SharedArchiveFile="{self.path}"')
        return (*_SILENT, f'-XX:ArchiveClassesAtExit="{self.draft}"')

    def finish(self) -> None:
        """Put the file in its place, when the JVM that wrote it has ended.

        Where there is none, a mark says not to try again soon.
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
    """Return the file for a Java and a Spark, None where there is none and none can be written.

    Args:
        program: the java.
        spark_home: where Spark is installed.
        environment: of the process.
        may_write: whether the JVM that starts may write it.
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
        os.unlink(draft)  # Java writes none over one that is there
        return ClassArchive(path, Path(draft))
    except OSError:
        return None


def _folder(environment: Mapping[str, str]) -> Path | None:
    """Return the folder, made if need be; None if its path cannot stand among Java's options."""
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
    """Tell whether nobody else can write to it."""
    stat = path.stat()
    return stat.st_uid == os.geteuid() and not stat.st_mode & 0o022


def _key(program: str, spark_home: str) -> str:
    """Return a name that changes whenever Java or an archive of Spark's does."""
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
    """Remove all but the last few, and what a JVM left that was killed."""
    files = sorted(folder.glob(f"{_PREFIX}*.jsa"), key=lambda path: path.stat().st_mtime)
    old = [path for path in folder.glob(f"{_PREFIX}*.draft") if _age(path) > _DAY]
    for path in (*files[:-_KEPT], *old):
        path.unlink(missing_ok=True)


def _age(path: Path) -> float:
    return time.time() - path.stat().st_mtime
