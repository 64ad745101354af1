# SPDX-License-Identifier: Apache-2.0
"""Copies of a store's database for inspection, without opening the store itself for writing.

SQLite opens a log and its index for writing even for reading only, and creates a missing index. A
copy of database and log avoids that, also for a store whose daemon is running: pages that are being
copied into the database are still in the log. Only a log that restarted in between lacks them, and
then everything is copied again.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from amqproute.errors import StoreError
from amqproute.store.wal_file import HEADER

__all__ = ["MOST_COPIED", "is_large", "temporary_copy"]

MOST_COPIED: Final = 128 * 1024 * 1024
"""Octets of database and log up to which a store is copied."""
_TRIES: Final = 5


def is_large(path: Path) -> bool:
    """Tell whether a store is too large to be copied for inspection."""
    files = (path, Path(f"{path}-wal"))
    return sum(each.stat().st_size for each in files if each.exists()) > MOST_COPIED


@contextmanager
def temporary_copy(path: Path) -> Iterator[Path]:
    """Yield the path of a copy of a database with its log.

    Args:
        path: the database; it and its log may be missing.

    Raises:
        StoreError: the log restarts too often, or another process removes it.
        OSError: something cannot be read, or there is no room for the copy.
    """
    with tempfile.TemporaryDirectory(prefix="amqproute-check-") as folder:
        copy = Path(folder) / path.name
        log = Path(f"{path}-wal")
        for _ in range(_TRIES):
            before = _beginning(log)
            for each in ("-wal", ""):
                source, target = Path(f"{path}{each}"), Path(f"{copy}{each}")
                target.unlink(missing_ok=True)
                if source.exists():
                    shutil.copyfile(source, target)
            if _beginning(log) == before:
                break
        else:
            raise StoreError(f"{path} changes too fast to be copied")
        yield copy


def _beginning(log: Path) -> bytes:
    try:
        with log.open("rb") as file:
            return file.read(HEADER)
    except FileNotFoundError:
        return b""
