# SPDX-License-Identifier: Apache-2.0
"""Time stamps in files, by which copies of the files are recognized.

The stamp is the file system's own change time, which no program can set: a file that was copied or
extracted from an archive has a change time other than its stamp. So has one whose owner or mode was
changed.
"""

from __future__ import annotations

import os
from typing import Final

__all__ = ["is_copy", "stamp"]

COPIED_SECONDS: Final = 10.0
"""Tolerated difference between the stamp and the change time, seconds."""


def stamp(descriptor: int) -> int:
    """Touch an open file and return its change time, nanoseconds, to be written into it.

    Raises:
        OSError: as it comes.
    """
    os.utime(descriptor)  # renews the change time of an existing file
    return os.fstat(descriptor).st_ctime_ns


def is_copy(descriptor: int, written_ns: int) -> bool:
    """Tell whether an open file is a copy of the one that was given this stamp.

    Raises:
        OSError: as it comes.
    """
    return abs(os.fstat(descriptor).st_ctime_ns - written_ns) > COPIED_SECONDS * 1e9
