# SPDX-License-Identifier: Apache-2.0
"""A branch of a distributed transaction: its contents and its state.

A branch is active while one association is, suspended while there are suspended ones only, idle
when all have ended. One whose work was refused, or ended with ``fail``, can only be rolled back:
whatever else is asked for is answered with XA_RBROLLBACK, or XA_RBTIMEOUT if it was the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from amqproute.broker.commit_batch import Batch
from amqproute.broker.local_transaction import Posting, PutTarget, Transaction
from amqproute.broker.priority_queues import queue_of_key
from amqproute.broker.queue import Queue
from amqproute.broker.xa_record import ROWS, BranchRecord, StoredPosting, StoredRetirement
from amqproute.broker.xa_states import OPEN, TABLE, BranchState, Xa, XaError, Xid

ROUTED: Final = "routed_targets"
"""Attribute of a posting's target that stands for several: these."""


class RecoveryRemainder:
    """Parts of a restored branch that are missing, until it is resolved.

    Attributes:
        strayed: entries of missing nodes, by the name of a queue's rows.
        missing: the number of entries no longer in the store, by queue.
    """

    __slots__ = ("missing", "strayed")

    def __init__(self) -> None:
        self.strayed: dict[str, set[int]] = {}
        self.missing: dict[Queue, int] = {}


def targets_of(posting: Posting) -> Sequence[PutTarget]:
    """Return what a posting puts on: one target, or all those that its target stands for.

    Those are what a record names: a decision about a route is not made again after a restart.
    """
    routed: Sequence[PutTarget] | None = getattr(posting.target, ROUTED, None)
    return (posting.target,) if routed is None else routed


class Branch:
    """One branch.

    Attributes:
        xid: its name.
        owner: who started it, in the form of access rules.
        state: its state.
        since_ms: the time of its start, preparation or decision; ms since the epoch.
        active: associations that work.
        suspended: associations that are suspended.
        transaction: its contents; None for a recovered branch that nobody has asked to resolve
            yet, and for one that is resolved.
        record: the record it was recovered from.
        rows: ids of the rows of its posted messages, once it is prepared.
        leftover: the part of that record that its transaction lacks.
        reserved: places kept free for it once it is prepared, by queue.
        holders: of its active associations those that a command of its manager ends; each is called
            then.
        command: the command that waits for the store; no other one is taken meanwhile.
    """

    __slots__ = (
        "active",
        "command",
        "holders",
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

    def __init__(self, xid: Xid, owner: str, state: BranchState, since_ms: int) -> None:
        self.xid = xid
        self.owner = owner
        self.state = state
        self.since_ms = since_ms
        self.active = 0
        self.suspended = 0
        self.transaction: Transaction | None = None
        self.record: BranchRecord | None = None
        self.rows: list[int] = []
        self.leftover: RecoveryRemainder | None = None
        self.reserved: dict[Queue, int] = {}
        self.command: str | None = None
        self.holders: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<Branch {self.key} {self.state.value}>"

    @property
    def key(self) -> str:
        """Its name for operators and in the store."""
        return f"{self.owner}/{self.xid}"

    @property
    def operations(self) -> int:
        """Number of its postings and retirements."""
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
                    getattr(target, "rows", target.name)
                    for each in self.transaction.postings
                    for target in targets_of(each)
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
        if self.state is BranchState.TIMED_OUT:
            return Xa.RBTIMEOUT
        transaction = self.transaction
        is_doomed = self.state in OPEN and transaction is not None and transaction.doom is not None
        return Xa.RBROLLBACK if is_doomed else None

    @property
    def decided(self) -> Xa:
        """Decision of an operator."""
        return Xa.HEURCOM if self.state is BranchState.COMMITTED else Xa.HEURRB

    def associate(self, active: int, suspended: int) -> None:
        """Count associations in and out; the state follows from them."""
        self.active += active
        self.suspended += suspended
        if self.active:
            self.state = BranchState.ACTIVE
        else:
            self.state = BranchState.SUSPENDED if self.suspended else BranchState.IDLE

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
                Xa.PROTO,
                f"branch {self.xid} is {self.state.value}: {command} is not allowed in this state",
            )


def record_of(
    branch: Branch,
    transaction: Transaction,
    batch: Batch,
    next_id: Callable[[], int],
    lasts: Callable[[PutTarget], bool],
) -> BranchRecord:
    """Return what has to be kept of a branch that is being prepared.

    Args:
        branch: the branch.
        transaction: its contents.
        batch: gets rows for the posted messages.
        next_id: gives ids for them.
        lasts: whether a target outlives a restart.
    """
    record = BranchRecord(branch.owner, branch.xid, BranchState.PREPARED, branch.since_ms)
    record.places = {queue.rows: count for queue, count in branch.reserved.items()}
    for posting in transaction.postings:
        origin, message = posting.origin, posting.message
        for target in filter(lasts, targets_of(posting)):
            name = target.rows if isinstance(target, Queue) else target.name
            row = next_id()
            batch.transaction.enqueue(ROWS, row, message.encoded, batch.now_ms, 0, 0, message.rest)
            record.postings.append(
                StoredPosting(name, row, origin.principal, origin.container_id, posting.tag)
            )
    for each in transaction.retirements:
        entry = each.entry
        if entry.durable and entry.stored and not each.consumer.copies:
            size = len(entry.message.encoded)
            record.retirements.append(
                StoredRetirement(entry.line.key, entry.id, size, each.outcome)
            )
    return record


__all__ = ["Branch", "RecoveryRemainder", "record_of"]
