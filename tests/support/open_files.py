# SPDX-License-Identifier: Apache-2.0
"""Files that this process has open."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["open_files"]


def open_files(directory: str | Path) -> set[str]:
    """Return the files below a directory, removed ones too, that this process has open."""
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one by which the list is read
            found.add(os.readlink(each))
    return {name for name in found if name.startswith(f"{Path(directory).resolve()}/")}
