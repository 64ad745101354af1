# SPDX-License-Identifier: Apache-2.0
"""Notice that the database is an old one that was put back.

Peers remember the ids under which messages came to them, and answer `accepted` without looking
when one comes again. A database that was restored from a backup would give ids out once more that
peers have seen already, for other messages; those would be lost.

So each change of the durable bound of ids (`amqproute.store`, "Identity") has a random name, and
both stand in the database and in a small file beside it, the *mark*. The file is written before
the commit, with the state before and the one after it, and once more after the commit with the
latter only: no crash makes the two disagree. At the start a database whose state is not in the
mark is not the one that was here last; neither is one whose mark is gone. A backup that was taken
while the daemon ran, and is put back before the bound has moved, agrees, and may: counting goes on
at the bound, which is beyond every id given out.

A mark that was put back together with its database agrees with it. But it says when it was written,
by the clock of the file system, and of a file that was copied, or came out of an archive, the file
system says another time. So it does where only owner or mode of the file were changed. Taking that
for a restore does little harm; and while the daemon runs, it looks at the mark once in a second and
writes it anew.

What cannot be noticed is an image of a whole file system that was put back: then the mark has to be
deleted by hand.

The file is overwritten where it stands: that takes no room on a full disk, and a line this short
is in one sector.
"""

from __future__ import annotations

import os
import re
from typing import Final

from amqproute.restore_detection import is_copy, stamp

__all__ = ["Mark", "State"]

State = tuple[int, int]
"""The random name of a change, and the bound that it set."""

LENGTH: Final = 256
_LINE: Final = re.compile(
    r"amqproute mark 1((?: [0-9a-f]{1,16}:[0-9]{1,19}){1,2})(?: at ([0-9]{1,19}))? end\s*"
)


class Mark:
    """The file.

    Args:
        path: of the file.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"<Mark {self.path}>"

    def exists(self) -> bool:
        """Whether there is one, readable or not."""
        return os.path.exists(self.path)

    def read(self) -> list[State]:
        """Return the states that the database may be in; none if nobody knows.

        That is so where the file cannot be read, or is a copy.
        """
        try:
            with open(self.path, encoding="ascii", errors="replace") as file:
                found = _LINE.fullmatch(file.read(LENGTH))
                # Early releases did not say when.
                if found is None or (found[2] and is_copy(file.fileno(), int(found[2]))):
                    return []
        except OSError:
            return []
        pairs = [pair.partition(":") for pair in found[1].split()]
        return [(int(name, 16), int(bound)) for name, _, bound in pairs]

    def is_withdrawn(self) -> bool:
        """Tell whether somebody has taken the file away, or put a copy in its place.

        That is what a restore does, and says that an older database is meant to be here.
        """
        try:
            with open(self.path, encoding="ascii", errors="replace") as file:
                found = _LINE.fullmatch(file.read(LENGTH))
                return bool(found and found[2] and is_copy(file.fileno(), int(found[2])))
        except FileNotFoundError:
            return True
        except OSError:
            return False

    def write(self, states: list[State]) -> None:
        """Have the file on the disk, with these states.

        Raises:
            OSError: it cannot be written.
        """
        words = " ".join(f"{name:x}:{bound}" for name, bound in states)
        is_new = not self.exists()
        descriptor = os.open(self.path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            at = stamp(descriptor)
            line = f"amqproute mark 1 {words} at {at} end".ljust(LENGTH - 1) + "\n"
            os.pwrite(descriptor, line.encode("ascii"), 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if is_new:
            directory = os.open(os.path.dirname(self.path), os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
