# SPDX-License-Identifier: Apache-2.0
"""A branch of a distributed transaction, and its place in the state table of XA (C-03, C-08).

::

    start ──> active ──suspend──> suspended          a time-out in any of these three: timed out
               │  ^ └──resume────────┘ │
           end │  │ join               │ end
               v  │                    │
               idle <──────────────────┘
               │  └── prepare ──> prepared ── commit, rollback ──> (gone)
               │                    └── an operator ──> heuristically committed / rolled back
               └── commit one-phase, rollback ──> (gone)               └── forget ──> (gone)

A branch is active while one association is, suspended while there are suspended ones only, idle
when all have ended. One whose work was refused, or ended with ``fail``, can only be rolled back:
whatever else is asked for is answered with XA_RBROLLBACK, or XA_RBTIMEOUT if it was the time.

What the states allow is `TABLE`; what is done is in `amqproute.broker.branches`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, Final

from amqproute.broker.levels import queue_of_key
from amqproute.broker.transaction import Transaction
from amqproute.wire.amqp10.types import Int

if TYPE_CHECKING:
    from amqproute.broker.branch_record import Record
    from amqproute.broker.branch_recovery import Leftover
    from amqproute.broker.queue import Queue

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


class State(Enum):
    """Where a branch is in the table of XA."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    IDLE = "idle"
    TIMED_OUT = "timed out"
    PREPARED = "prepared"
    COMMITTED = "heuristically committed"
    ROLLED_BACK = "heuristically rolled back"
    GONE = "gone"


HEURISTIC: Final = (State.COMMITTED, State.ROLLED_BACK)
_OPEN: Final = (State.ACTIVE, State.SUSPENDED, State.IDLE)
TABLE: Final[Mapping[str, tuple[State, ...]]] = {
    "join": _OPEN,
    "resume": (State.ACTIVE, State.SUSPENDED),
    "suspend": (State.ACTIVE,),
    "end": (State.ACTIVE, State.SUSPENDED),
    "prepare": (State.IDLE,),
    "commit one-phase": (State.IDLE,),
    "commit": (State.PREPARED, *HEURISTIC),
    "rollback": (State.IDLE, State.PREPARED, *HEURISTIC),
    "forget": HEURISTIC,
    "decide": (State.PREPARED,),
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
    """What names a branch (C-03).

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
    def parts(self) -> list[Any]:
        """Return the form that it has on the wire: a list of int, binary, binary."""
        return [Int(self.format_id), self.global_id, self.qualifier]

    @classmethod
    def of(cls, value: Any) -> Xid:
        """Read the form that it has on the wire.

        Raises:
            XaError: with INVAL: it is none.
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


class Branch:
    """One branch.

    Attributes:
        xid: its name.
        owner: who started it, in the form of access rules.
        state: where it is.
        since_ms: when it was started, prepared or decided; ms since the epoch.
        active: associations that work.
        suspended: associations that are suspended.
        transaction: what it contains; None for a recovered one that nobody has asked to resolve
            yet, and for one that is resolved.
        record: the record it was recovered from.
        rows: ids of the rows of its posted messages, once it is prepared.
        leftover: what of that record its transaction has not got.
        reserved: places kept free for it once it is prepared, by queue.
        command: what it waits for the store with: no other command is taken meanwhile.
    """

    __slots__ = (
        "active",
        "command",
        "leftover",
        "owner",
        "record",
        "reserved",
        "rows",
        "since_ms",
        "state",
        "suspended",
        "transaction",
        "xid",
    )

    def __init__(self, xid: Xid, owner: str, state: State, since_ms: int) -> None:
        self.xid = xid
        self.owner = owner
        self.state = state
        self.since_ms = since_ms
        self.active = 0
        self.suspended = 0
        self.transaction: Transaction | None = None
        self.record: Record | None = None
        self.rows: list[int] = []
        self.leftover: Leftover | None = None
        self.reserved: dict[Queue, int] = {}
        self.command: str | None = None

    def __repr__(self) -> str:
        return f"<Branch {self.key} {self.state.value}>"

    @property
    def key(self) -> str:
        """Its name for operators and in the store."""
        return f"{self.owner}/{self.xid}"

    @property
    def operations(self) -> int:
        """How many postings and retirements it has."""
        if self.transaction is not None:
            return self.transaction.operations
        if self.record is not None:
            return len(self.record.postings) + len(self.record.retirements)
        return 0

    def nodes(self) -> set[str]:
        """Return what it takes from and puts on; of queues the names of their rows."""
        if self.transaction is not None:
            return {
                *(
                    getattr(each.target, "rows", each.target.name)
                    for each in self.transaction.postings
                ),
                *(queue_of_key(each.entry.line.key) for each in self.transaction.retirements),
            }
        if self.record is not None:
            return {
                *(each.target for each in self.record.postings),
                *(queue_of_key(each.line) for each in self.record.retirements),
            }
        return set()

    @property
    def doom(self) -> Xa | None:
        """Why it can only be rolled back, or None."""
        if self.state is State.TIMED_OUT:
            return Xa.RBTIMEOUT
        transaction = self.transaction
        is_doomed = self.state in _OPEN and transaction is not None and transaction.doom is not None
        return Xa.RBROLLBACK if is_doomed else None

    @property
    def decided(self) -> Xa:
        """What an operator has decided."""
        return Xa.HEURCOM if self.state is State.COMMITTED else Xa.HEURRB

    def associate(self, active: int, suspended: int) -> None:
        """Count associations in and out; the state follows from them."""
        self.active += active
        self.suspended += suspended
        if self.active:
            self.state = State.ACTIVE
        else:
            self.state = State.SUSPENDED if self.suspended else State.IDLE

    def check(self, command: str) -> None:
        """Refuse what the state table does not have.

        Raises:
            XaError: with PROTO; with RETRY, where a commit comes while another command is under
                way.
        """
        if self.command is not None:
            code = Xa.RETRY if command == "commit" else Xa.PROTO
            raise XaError(code, f"branch {self.xid}: {self.command} is under way")
        if self.state not in TABLE[command] or (command == "resume" and not self.suspended):
            raise XaError(
                Xa.PROTO, f"branch {self.xid} is {self.state.value}: {command} cannot come now"
            )


__all__ = ["HEURISTIC", "LONGEST_ID", "TABLE", "Branch", "State", "Xa", "XaError", "Xid"]
