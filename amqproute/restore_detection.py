# SPDX-License-Identifier: Apache-2.0
"""Files that say when they were written, and so whether they are copies.

The time is that of the file system's own clock, which it keeps for each file as well and which no
program can set: of a file that was copied, or came out of an archive, it keeps another one than the
file says. So it does where only owner or mode were changed.
"""

from __future__ import annotations

import os
from typing import Final

__all__ = ["is_copy", "stamp"]

COPIED_SECONDS: Final = 10.0
"""What a file says of its time and what the file system says may differ by so much."""


def stamp(descriptor: int) -> int:
    """Return the time, nanoseconds, that an open file has to say of what is written now.

    Raises:
        OSError: as it comes.
    """
    os.utime(descriptor)  # also a file that was there before gets the time of now
    return os.fstat(descriptor).st_ctime_ns


def is_copy(descriptor: int, written_ns: int) -> bool:
    """Tell whether an open file is another one than that which was given this stamp.

    Raises:
        OSError: as it comes.
    """
    return abs(os.fstat(descriptor).st_ctime_ns - written_ns) > COPIED_SECONDS * 1e9
