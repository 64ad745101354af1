# SPDX-License-Identifier: Apache-2.0
"""Replacing a file of secrets at once, so that a crash leaves the old one or the new one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from amqproute.durable_path import sync_path

__all__ = ["replace_file"]


def replace_file(
    path: Path, octets: bytes, prepare: Callable[[int], None] = lambda _: None
) -> None:
    """Replace a file, and sync it and its directory; its mode is 0600 unless `prepare` changes it.

    Args:
        path: the path of the file.
        octets: its contents.
        prepare: called with the descriptor of the new file before it takes its place.

    Raises:
        OSError: it cannot be written, and the old file is as it was; or the directory cannot be
            synced, and a power failure decides which of them is there.
    """
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(octets)
            prepare(file.fileno())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    sync_path(path.parent)
