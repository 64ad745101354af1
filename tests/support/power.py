# SPDX-License-Identifier: Apache-2.0
"""The contents of a directory after a power failure: a model of synced data only.

A file has its octets as of its last sync, none without one. A directory has its names as of its
last sync; or, if a test chooses so, its present ones, since a file system may write them at any
time. `Power.leave` makes a copy of that kind.

It sees `os.fsync` and `os.fdatasync` only, and no syncs by SQLite.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase


class Power:
    """Watches the syncs of this process.

    Args:
        test: the owner of the patches.
        root: the directory; its present contents count as synced.
    """

    def __init__(self, test: SynchronousTestCase, root: Path) -> None:
        self._root = root
        self._octets: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        # The inode of an open file is not reused for another one.
        self._held: dict[int, int] = {}
        self._lock = threading.RLock()
        test.addCleanup(self._close)
        for path, _, files in os.walk(root):
            for name in [".", *files]:
                descriptor = os.open(os.path.join(path, name), os.O_RDONLY)
                self._note(descriptor)
                os.close(descriptor)
        for call in ("fsync", "fdatasync"):
            test.patch(os, call, self._watched(getattr(os, call)))

    def leave(self, copy: Path, current: Callable[[Path], bool] = lambda _: False) -> None:
        """Make a copy of the contents after a power failure at this moment.

        Args:
            copy: the new directory.
            current: whether a directory has its present names.
        """
        with self._lock:
            self._leave(self._root, os.stat(self._root).st_ino, copy, current)

    def _leave(self, path: Path, inode: int, copy: Path, current: Callable[[Path], bool]) -> None:
        copy.mkdir(mode=0o700)
        if current(path) and path.is_dir():
            names = {each.name: each.inode() for each in os.scandir(path)}
        else:
            names = self._names.get(inode, {})
        for name, number in names.items():
            held = self._held.get(number)
            kind = os.stat(path / name) if held is None else os.fstat(held)
            if stat.S_ISDIR(kind.st_mode):
                self._leave(path / name, number, copy / name, current)
            else:
                (copy / name).write_bytes(self._octets.get(number, b""))

    def _watched(self, sync: Callable[[int], None]) -> Callable[[int], None]:
        def watched(descriptor: int) -> None:
            with self._lock:
                sync(descriptor)
                self._note(descriptor)

        return watched

    def _note(self, descriptor: int) -> None:
        """Record the synced contents."""
        path = f"/proc/self/fd/{descriptor}"
        found = os.fstat(descriptor)
        self._hold(found.st_ino, path)
        if stat.S_ISDIR(found.st_mode):
            names = {each.name: each.inode() for each in os.scandir(path)}
            self._names[found.st_ino] = names
            for name, inode in names.items():
                self._hold(inode, f"{path}/{name}")
        else:
            with open(path, "rb") as file:
                self._octets[found.st_ino] = file.read()

    def _hold(self, inode: int, path: str) -> None:
        if inode not in self._held:
            # By path only: closing another kind of descriptor would drop SQLite's locks.
            self._held[inode] = os.open(path, os.O_PATH)

    def _close(self) -> None:
        for descriptor in self._held.values():
            os.close(descriptor)
