# SPDX-License-Identifier: Apache-2.0
"""Quarantine of files that may neither be used nor deleted: a folder for each start, and a report.

``store.quarantine`` beside the database has a folder for each start that put something aside, named
by its time, with the files, and with ``report.txt`` and ``report.json``: names, sizes, reasons.
Moving needs no room. The daemon never reads or deletes anything here: that is up to the operator.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from typing import Final

from twisted.logger import Logger

from amqproute.durable_path import sync_path

__all__ = ["QuarantineFolder", "quarantined"]

log = Logger()

SUFFIX: Final = ".quarantine"


def folder_of(database: str) -> str:
    """Return the folder of a database."""
    return os.path.splitext(database)[0] + SUFFIX


def quarantined(database: str) -> tuple[int, int]:
    """Return how many files are in quarantine, and their octets; reports are not counted."""
    count = size = 0
    for path, _, names in os.walk(folder_of(database)):
        for name in names:
            if not name.startswith("report."):
                count += 1
                size += os.stat(os.path.join(path, name)).st_size
    return count, size


class QuarantineFolder:
    """The files put aside by one start. The folder is created with the first file.

    Args:
        database: the file.

    Attributes:
        path: the folder of this start; empty before the first file.
        items: name, octets and reason of each file.
    """

    def __init__(self, database: str) -> None:
        self.path = ""
        self.items: list[dict[str, str | int]] = []
        self._base = folder_of(database)
        self._reported = 0

    def __repr__(self) -> str:
        return f"<QuarantineFolder {self.path} {len(self.items)}>"

    def take(self, path: str, why: str) -> bool:
        """Move a file here.

        Returns:
            False if it does not exist.

        Raises:
            OSError: it could not be moved, and is where it was.
        """
        return self._put(path, why, os.rename)

    def copy(self, path: str, why: str) -> bool:
        """Copy a file here, as `take`."""
        return self._put(path, why, shutil.copyfile)

    def report(self, why: str) -> None:
        """Write the report, if anything was added since the last one.

        Args:
            why: the reason, as text.

        Raises:
            OSError: it could not be written.
        """
        if len(self.items) == self._reported:
            return
        self._reported = len(self.items)
        size = sum(int(item["size"]) for item in self.items)
        report = {"time": _now(), "why": why, "files": self.items, "size": size}
        lines = [f"{report['time']}: {why}", ""]
        lines += [f"{item['name']}  {item['size']} octets  {item['why']}" for item in self.items]
        lines += ["", "The daemon reads nothing here. Delete this folder when nobody needs it."]
        _write(os.path.join(self.path, "report.json"), json.dumps(report, indent=1) + "\n")
        _write(os.path.join(self.path, "report.txt"), "\n".join(lines) + "\n")
        sync_path(self.path)
        sync_path(self._base)
        sync_path(os.path.dirname(self._base))
        log.warn(
            "{count} files ({size} octets) are in quarantine in {path}: {why}",
            count=len(self.items),
            size=size,
            path=self.path,
            why=why,
        )

    def _put(self, path: str, why: str, move: object) -> bool:
        try:
            size = os.stat(path).st_size
        except FileNotFoundError:
            return False
        if not self.path:
            self._make()
        name = os.path.basename(path)
        assert callable(move)
        move(path, os.path.join(self.path, name))
        self.items.append({"name": name, "size": size, "why": why})
        return True

    def _make(self) -> None:
        stem = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        for number in range(1, 1000):
            path = os.path.join(self._base, f"{stem}-{number}")
            try:
                os.makedirs(path, mode=0o700)
            except FileExistsError:
                continue
            self.path = path
            return
        raise FileExistsError(f"no name is left for a folder in {self._base}")


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _write(path: str, text: str) -> None:
    with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
