# SPDX-License-Identifier: Apache-2.0
"""The vocabulary of XA: return codes, names of branches, states of a branch (C-03, C-08).

::

    start ──> active ──suspend──> suspended          a time-out in any of these three: timed out
               │  ^ └──resume────────┘ │
           end │  │ join               │ end
               v  │                    │
               idle <──────────────────┘
               │  └── prepare ──> prepared ── commit, rollback ──> (gone)
               │                    └── an operator ──> heuristically committed / rolled back
               └── commit one-phase, rollback ──> (gone)               └── forget ──> (gone)

What the states allow is `TABLE`; what is done is in `amqproute.broker.xa_registry`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

from amqproute.stored_values import branch_name

LONGEST_ID: Final = 64
"""Octets of a global transaction id, and of a branch qualifier (XA: MAXGTRIDSIZE, MAXBQUALSIZE)."""


class Xa(IntEnum):
    """Return codes of XA (X/Open CAE C193, ``xa.h``), those that are used here."""

    OK = 0
    RDONLY = 3
    RETRY = 4
    HEURRB = 6
    HEURCOM = 7
    RBROLLBACK = 100
    RBTIMEOUT = 106
    RMERR = -3
    NOTA = -4
    INVAL = -5
    PROTO = -6
    RMFAIL = -7
    DUPID = -8

    @property
    def symbol(self) -> str:
        """Its name in ``xa.h``."""
        return f"{'XA' if self >= 0 else 'XAER'}_{self.name}"


class BranchState(Enum):
    """State of a branch in the table of XA."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    IDLE = "idle"
    TIMED_OUT = "timed out"
    PREPARED = "prepared"
    COMMITTED = "heuristically committed"
    ROLLED_BACK = "heuristically rolled back"
    GONE = "gone"


HEURISTIC: Final = (BranchState.COMMITTED, BranchState.ROLLED_BACK)
OPEN: Final = (BranchState.ACTIVE, BranchState.SUSPENDED, BranchState.IDLE)
TABLE: Final[Mapping[str, tuple[BranchState, ...]]] = {
    "join": OPEN,
    "resume": (BranchState.ACTIVE, BranchState.SUSPENDED),
    "suspend": (BranchState.ACTIVE,),
    "end": (BranchState.ACTIVE, BranchState.SUSPENDED),
    "prepare": (BranchState.IDLE,),
    "commit one-phase": (BranchState.IDLE,),
    "commit": (BranchState.PREPARED, *HEURISTIC),
    "rollback": (BranchState.IDLE, BranchState.PREPARED, *HEURISTIC),
    "forget": HEURISTIC,
    "decide": (BranchState.PREPARED,),
}
"""Each command, and the states in which it may come; in any other it is a protocol error."""


class XaError(Exception):
    """A command that is answered with a code and changes nothing.

    Attributes:
        code: the code.
    """

    def __init__(self, code: Xa, words: str) -> None:
        super().__init__(words)
        self.code = code


@dataclass(frozen=True, slots=True)
class Xid:
    """Name of a branch (C-03).

    Attributes:
        format_id: the format of the other two; never negative.
        global_id: the global transaction, 1 to 64 octets.
        qualifier: the branch of it, up to 64 octets.
    """

    format_id: int
    global_id: bytes
    qualifier: bytes

    def __str__(self) -> str:
        return f"{self.format_id}.{self.global_id.hex()}.{self.qualifier.hex()}"

    @property
    def parts(self) -> list[object]:
        """Return the form that it has on the wire: a list of int, binary, binary."""
        return branch_name(self.format_id, self.global_id, self.qualifier)

    @classmethod
    def of(cls, value: object) -> Xid:
        """Read the form that it has on the wire.

        Raises:
            XaError: with INVAL, the value is not an XID.
        """
        match value:
            case [int(number), bytes(global_id), bytes(qualifier)] if (
                not isinstance(number, bool)
                and 0 <= number < 1 << 31
                and 1 <= len(global_id) <= LONGEST_ID
                and len(qualifier) <= LONGEST_ID
            ):
                return cls(int(number), global_id, qualifier)
        raise XaError(
            Xa.INVAL,
            f"an xid is a list of an int from 0 up, a binary of 1 to {LONGEST_ID} octets, and one "
            f"of 0 to {LONGEST_ID}",
        )


__all__ = ["HEURISTIC", "LONGEST_ID", "OPEN", "TABLE", "BranchState", "Xa", "XaError", "Xid"]
