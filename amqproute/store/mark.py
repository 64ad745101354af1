# SPDX-License-Identifier: Apache-2.0
"""The mark: detects that the database was restored from a backup.

Peers remember the ids of messages that they accepted, and answer `accepted` without looking when an
id comes again. A restored database would assign ids again that peers know already, to other
messages; those would be lost.

So each change of the durable bound of ids (`amqproute.store`, "Identity") has a random name; name
and bound are in the database and in a small file beside it, the *mark*. The file is written before
the commit with both the previous and the new state, and after the commit with the new one alone: no
crash makes the two disagree. A database whose state is not in the mark at the start is not the one
that was here last; neither is one whose mark is missing. A backup that was taken while the daemon
ran, and is restored before the bound has moved, agrees with the mark, and may: counting goes on at
the bound, which is above every id ever assigned.

A mark that was restored together with its database agrees with it. But it contains the time at
which it was written, by the clock of the file system, and a copied or extracted file has another
change time. So has one whose owner or mode was changed; taking that for a restore does little harm,
and the running daemon compares the mark once a second and rewrites it.

What cannot be detected is the restore of a whole file system image: then the operator has to delete
the mark.

The file is overwritten in place: that needs no room on a full disk, and a line this short is in one
sector.
"""

from __future__ import annotations

import os
import re
from typing import Final

from amqproute.durable_path import sync_path
from amqproute.restore_detection import is_copy, stamp

__all__ = ["Mark", "State"]

State = tuple[int, int]
"""The random name of a change, and the bound that it set."""

LENGTH: Final = 256
_LINE: Final = re.compile(
    r"amqproute mark 1((?: [0-9a-f]{1,16}:[0-9]{1,19}){1,2})(?: at ([0-9]{1,19}))? end\s*"
)


class Mark:
    """The file of a store's mark.

    Args:
        path: the path of the file.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"<Mark {self.path}>"

    def exists(self) -> bool:
        """Tell whether the file exists, readable or not."""
        return os.path.exists(self.path)

    def read(self) -> list[State]:
        """Return the states that the database may be in; none if they are unknown.

        They are unknown if the file cannot be read, or is a copy.
        """
        try:
            with open(self.path, encoding="ascii", errors="replace") as file:
                found = _LINE.fullmatch(file.read(LENGTH))
                # Early releases did not record the time.
                if found is None or (found[2] and is_copy(file.fileno(), int(found[2]))):
                    return []
        except OSError:
            return []
        pairs = [pair.partition(":") for pair in found[1].split()]
        return [(int(name, 16), int(bound)) for name, _, bound in pairs]

    def is_withdrawn(self) -> bool:
        """Tell whether the file was removed, or replaced by a copy.

        A restore does that, to say that an older database is intended.
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
        """Write the file with these states, durably.

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
            sync_path(os.path.dirname(self.path))
