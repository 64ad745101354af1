# SPDX-License-Identifier: Apache-2.0
"""Copies of a store's database, to be looked at while nothing of the store is opened for writing.

SQLite opens a log and its index for writing even where it is asked only to read, and makes an index
that is not there. A copy of database and log does without: also of a store whose daemon runs, since
pages that are being copied into the database still stand in the log. Only a log that began anew in
between does not have them, and then all is copied again.
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
    """Tell whether a store is too large to be copied for a look at it."""
    files = (path, Path(f"{path}-wal"))
    return sum(each.stat().st_size for each in files if each.exists()) > MOST_COPIED


@contextmanager
def temporary_copy(path: Path) -> Iterator[Path]:
    """Give a copy of a database with its log.

    Args:
        path: the database; it and its log may be missing.

    Raises:
        StoreError: the log begins anew all the time, or another process removes it.
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
