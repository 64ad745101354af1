# SPDX-License-Identifier: Apache-2.0
"""Durability of files and of the names in folders."""

from __future__ import annotations

import os

__all__ = ["sync_path"]


def sync_path(path: str | os.PathLike[str]) -> None:
    """Make the octets of a file, or the names in a folder, durable.

    Raises:
        OSError: it cannot be opened or synced.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
