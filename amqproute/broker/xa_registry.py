# SPDX-License-Identifier: Apache-2.0
"""Branches of distributed transactions, and the commands of XA on them (C-01 to C-10).

How it works
============

A `Branch` is a `Transaction` under the name that a transaction manager has given it. What it
contains comes from the application's sessions, on any connection of the principal that started
it. `BranchRegistry` has all of them.

*Preparing* rehearses the whole: what could not be committed now is rolled back at once. Then the
branch's record is written (`xa_record`) and places for its messages are kept free on their
queues, so that a promise once given is not broken by somebody else's messages.

*Resolving* is one commit of the store, which does the work and takes the record away: a crash
leaves a branch prepared, or resolved, never both and nothing between. A commit that cannot be
done now (the store fails, a node is gone, the DNS does not answer) leaves the branch prepared and
is answered XA_RETRY.

After a restart the branches are what the records say; `xa_recovery` makes their transactions
again when they are to be resolved. What was not prepared is gone, which is a roll-back.

An operator may resolve a prepared branch whose transaction manager does not come back: a
*heuristic* decision. The record keeps it until the manager, or the operator, says forget.

Limits
======

A prepared branch has no time-out: XA knows none. Those that have waited for
`BranchLimits.warn_seconds` are told in the log, again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.broker.broker import Broker
from amqproute.broker.commit_batch import Batch
from amqproute.broker.entry_list import LOAD_BYTES, LOAD_MESSAGES
from amqproute.broker.fair_shares import FairShares
from amqproute.broker.local_transaction import (
    PutTarget,
    Transaction,
    TransactionLimits,
    TransactionStage,
    TransactionTerms,
)
from amqproute.broker.queue import Queue
from amqproute.broker.transaction_registry import TransactionRegistry
from amqproute.broker.xa_branch import Branch, record_of
from amqproute.broker.xa_monitor import BranchMonitor
from amqproute.broker.xa_record import NOTES, ROWS, BranchRecord
from amqproute.broker.xa_recovery import Find, forget_leftover, revive
from amqproute.broker.xa_states import HEURISTIC, OPEN, BranchState, Xa, XaError, Xid
from amqproute.errors import AmqpError, DecodeError, StoreError, Unresolved
from amqproute.interfaces import IStore
from amqproute.values import NextHop, Principal

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class BranchLimits:
    """Bounds of distributed transactions.

    Attributes:
        branches: at one time, over all principals; prepared and decided ones count. Each
            principal has a share of them, see `fair_shares`.
        timeout_seconds: one in which nothing happens for so long is rolled back, unless it is
            prepared. A transaction manager may ask for another time.
        operations: postings and retirements of all branches.
        total_bytes: bytes of the messages they have posted; each principal has a share of it.
        warn_seconds: an operator is told of branches that have been prepared for so long.
    """

    branches: int = 1000
    timeout_seconds: float = 120.0
    operations: int = 100_000
    total_bytes: int = 64 * 1024 * 1024
    warn_seconds: float = 600.0


class BranchRegistry:
    """All branches of this broker.

    Args:
        terms: the terms of transactions, which learn of the branches.
        broker: the nodes.
        store: the `IStore`.
        now_ms: the wall clock, ms since the epoch.
        find: finds the target of a name again, see `xa_recovery.Find`.
        admit: has a next hop looked up, see `IHops.admit`.
        allows: who may coordinate (C-02).
        limits: see there.

    Attributes:
        allows: the function that decides on rights, as given.
    """

    log = Logger()

    def __init__(
        self,
        terms: TransactionTerms,
        broker: Broker,
        store: IStore,
        now_ms: Callable[[], int],
        find: Find,
        admit: Callable[[NextHop], Deferred[None]],
        allows: Callable[[Principal], bool],
        limits: BranchLimits | None = None,
    ) -> None:
        self.allows = allows
        self.limits = limits = limits or BranchLimits()
        self._broker = broker
        self._store = store
        self._now_ms = now_ms
        self._find = find
        self._admit = admit
        self._known: dict[tuple[str, Xid], Branch] = {}
        self._working: dict[bytes, Branch] = {}
        self._timeouts: dict[str, float] = {}
        self._watch = BranchMonitor(
            terms.clock, now_ms, limits.warn_seconds, self._waiting, self.log
        )
        bounds = TransactionLimits(
            timeout_seconds=limits.timeout_seconds,
            # Those that are being revived have one as well.
            open=2 * limits.branches,
            operations=limits.operations,
            connection_bytes=limits.total_bytes,
            total_bytes=terms.limits.total_bytes,
        )
        self._book = TransactionRegistry(terms, self._timed_out, limits=bounds, owner_of=_owner_of)
        terms.branches = self

    def __len__(self) -> int:
        return len(self._known)

    def __repr__(self) -> str:
        return f"<BranchRegistry {len(self._known)} of {self.limits.branches}>"

    def rows(self) -> list[dict[str, object]]:
        """Return what an operator wants to know, the longest waiting first."""
        now_ms = self._now_ms()
        return [
            {
                "name": branch.key,
                "type": "branch",
                "owner": branch.owner,
                "xid": str(branch.xid),
                "state": "rollback only" if branch.doom is Xa.RBROLLBACK else branch.state.value,
                "command": branch.command,
                "operations": branch.operations,
                "age-ms": max(0, now_ms - branch.since_ms),
                "nodes": sorted(branch.nodes()),
            }
            for branch in sorted(self._known.values(), key=lambda each: each.since_ms)
        ]

    def keeping(self, queue: Queue) -> list[str]:
        """Return the names of the prepared branches that keep messages or places of a queue."""
        return sorted(
            branch.key
            for branch in self._known.values()
            if branch.state is BranchState.PREPARED and queue.rows in branch.nodes()
        )

    def recovered(self, notes: Mapping[str, bytes]) -> None:
        """Take over what the store holds; the nodes have been declared."""
        unreadable = 0
        for key, encoded in notes.items():
            try:
                record = BranchRecord.decode(encoded)
            except DecodeError as error:
                unreadable += 1
                self.log.error(
                    "cannot read branch {key}: {error}; its posted messages are quarantined, "
                    "the messages it held are available again",
                    key=key,
                    error=error,
                )
                continue
            branch = Branch(record.xid, record.owner, record.state, record.since_ms)
            branch.record = record
            branch.rows = [each.row for each in record.postings]
            self._known[record.owner, record.xid] = branch
            if record.state is BranchState.PREPARED:
                found = {
                    queue: count
                    for rows, count in record.places.items()
                    if (queue := self._broker.queue_of_rows(rows)) is not None
                }
                self._reserve(branch, found)
        if self._known:
            oldest = min(self._known.values(), key=lambda each: each.since_ms)
            self.log.warn(
                "{count} branches of distributed transactions, {prepared} of them prepared, wait "
                "for their transaction managers; the oldest is {key}: see "
                "`amqproute transaction ls`",
                count=len(self._known),
                prepared=len(self._waiting()),
                key=oldest.key,
            )
        self._watch.look()
        if unreadable:
            known = {row for branch in self._known.values() for row in branch.rows}
            Deferred.fromCoroutine(self._set_strays_aside(known)).addErrback(self._not_set_aside)

    async def _set_strays_aside(self, known: set[int]) -> None:
        """Keep the posted messages of branches that cannot be read: an operator may release them.

        Args:
            known: the rows of the others.
        """
        newest = self._store.next_id()
        after = 0
        while True:
            rows = await self._store.load(ROWS, after, LOAD_MESSAGES, LOAD_BYTES)
            strays = [row for row in rows if row.id not in known and row.id < newest]
            if strays:
                self._broker.set_aside(ROWS, strays, "was posted in a branch that cannot be read")
            if not rows or rows[-1].id >= newest:
                return
            after = rows[-1].id

    def _not_set_aside(self, failure: Failure) -> None:
        self.log.failure("cannot quarantine the messages of unreadable branches", failure)

    def stop(self) -> None:
        """Cancel the timers. What is not prepared ends here."""
        self._watch.stop()
        for branch in list(self._known.values()):
            if branch.command is None and branch.state not in (BranchState.PREPARED, *HEURISTIC):
                self._drop(branch)

    # -- the application's sessions ------------------------------------------------------------

    def working(self, txn_id: bytes, principal: Principal) -> Transaction | None:
        """Return the transaction of an active branch of this principal's, or None (C-06)."""
        branch = self._working.get(txn_id)
        if (
            branch is None
            or branch.state is not BranchState.ACTIVE
            or branch.owner != str(principal)
        ):
            return None
        return branch.transaction

    def associate(self, owner: str, xid: Xid) -> bytes:
        """Start a branch, or join it: what a declare with a global-id does (C-08).

        Raises:
            XaError: the command is refused.
        """
        return self.start(owner, xid, "join" if (owner, xid) in self._known else None)

    def hold(self, owner: str, xid: Xid, ended: Callable[[], None]) -> bytes:
        """Start a branch, or join it, for a session that has no command to end its association.

        Prepare, commit in one phase and roll-back end it: the manager knows that the work is done.

        Args:
            owner: who works in it.
            xid: its name.
            ended: called when a command ends the association; not after `let_go`.

        Raises:
            XaError: the command is refused.
        """
        txn_id = self.associate(owner, xid)
        self.branch(owner, xid).holders.append(ended)
        return txn_id

    def let_go(self, owner: str, xid: Xid, ended: Callable[[], None]) -> None:
        """End what `hold` has begun, unless it has ended already."""
        branch = self._known.get((owner, xid))
        if branch is not None and ended in branch.holders:
            branch.holders.remove(ended)
            if branch.state in OPEN:
                branch.associate(-1, 0)

    def _end_held(self, branch: Branch) -> None:
        """End the associations of those that cannot do so themselves: a command comes.

        Not where others work in the branch, for which the command is refused.
        """
        is_theirs = branch.active == len(branch.holders) and not branch.suspended
        if branch.command is None and branch.state in OPEN and is_theirs:
            holders, branch.holders = branch.holders, []
            for ended in holders:
                branch.associate(-1, 0)
                ended()

    # -- commands --------------------------------------------------------------------------------

    def branch(self, owner: str, xid: Xid) -> Branch:
        """Return a branch.

        Raises:
            XaError: with NOTA, there is no such branch.
        """
        branch = self._known.get((owner, xid))
        if branch is None:
            raise XaError(Xa.NOTA, f"there is no branch {xid}")
        return branch

    def start(self, owner: str, xid: Xid, flag: str | None = None) -> bytes:
        """Begin, join or resume; return the id for transactional states (C-05).

        Raises:
            XaError: the command is refused.
        """
        if flag is None:
            branch = self._begin(owner, xid)
        else:
            branch = self.branch(owner, xid)
            self._check_doom(branch)
            branch.check(flag)
        transaction = branch.transaction
        assert transaction is not None
        transaction.touch()
        branch.associate(1, -1 if flag == "resume" else 0)
        return transaction.id

    def _begin(self, owner: str, xid: Xid) -> Branch:
        if (owner, xid) in self._known:
            raise XaError(Xa.DUPID, f"branch {xid} exists already")
        self._make_room(owner)
        branch = Branch(xid, owner, BranchState.ACTIVE, self._now_ms())
        try:
            transaction = self._book.declare(branch)
        except AmqpError as error:
            raise XaError(Xa.RMERR, str(error)) from None
        transaction.allow(self.timeout_of(owner))
        branch.transaction = transaction
        self._known[owner, xid] = branch
        self._working[transaction.id] = branch
        return branch

    def _make_room(self, owner: str) -> None:
        """Have a place for one more branch of an owner's, within its share of the places."""
        own = sum([branch.owner == owner for branch in self._known.values()])
        places = FairShares()
        places.take(own, owner)
        places.take(len(self._known) - own, "others")
        most = self.limits.branches
        if places.room(most, owner):
            return
        # Of what has timed out nothing is left but the answer to a question.
        is_full = places.used >= most
        for branch in self._known.values():
            if branch.state is BranchState.TIMED_OUT and (is_full or branch.owner == owner):
                self._forget(branch)
                return
        raise XaError(
            Xa.RMERR,
            f"there are {most} branches, no more are made"
            if is_full
            else f"{own} of the {most} places for branches are yours, the others "
            "are kept for others",
        )

    def timeout_of(self, owner: str) -> float:
        """Return after how many seconds without work a new branch is rolled back."""
        return self._timeouts.get(owner, self.limits.timeout_seconds)

    def set_timeout(self, owner: str, seconds: float) -> None:
        """Set that for branches which are started from now on; 0 for the usual time."""
        if not seconds:
            self._timeouts.pop(owner, None)
        elif owner in self._timeouts or len(self._timeouts) < self.limits.branches:
            self._timeouts[owner] = float(seconds)
        else:
            raise XaError(Xa.RMERR, "too many principals have a time-out of their own")

    def end(self, owner: str, xid: Xid, flag: str | None = None) -> Xa:
        """End an association, or suspend it (C-05).

        Raises:
            XaError: the command is refused.
        """
        branch = self.branch(owner, xid)
        if branch.state is BranchState.TIMED_OUT:
            return Xa.RBTIMEOUT
        branch.check("suspend" if flag == "suspend" else "end")
        transaction = branch.transaction
        assert transaction is not None
        transaction.touch()
        if flag == "suspend":
            branch.associate(-1, 1)
        else:
            if flag == "fail":
                transaction.fail(AmqpError("it was ended with the flag fail"))
            branch.associate(*((-1, 0) if branch.active else (0, -1)))
        return branch.doom or Xa.OK

    def recover(self, owner: str) -> list[Xid]:
        """List what is prepared or was decided heuristically, the oldest first."""
        listed = [
            branch
            for branch in self._known.values()
            if branch.owner == owner and branch.state in (BranchState.PREPARED, *HEURISTIC)
        ]
        return [branch.xid for branch in sorted(listed, key=lambda each: each.since_ms)]

    async def prepare(self, owner: str, xid: Xid) -> Xa:
        """Promise to be able to commit, over a restart.

        Raises:
            XaError: the command is refused; with RBROLLBACK the branch has been rolled back.
        """
        branch = self.branch(owner, xid)
        if self._rolls_back(branch):
            return Xa.RBTIMEOUT
        self._end_held(branch)
        branch.check("prepare")
        transaction = branch.transaction
        assert transaction is not None
        branch.command = "prepare"
        transaction.hurry()
        try:
            await self._complete(transaction)
            await self._have_safe(transaction)
            if not transaction.operations and transaction.doom is None:
                # Read-only: what was acquired stays with its consumers.
                transaction.dissolve()
                self._forget(branch)
                transaction.conclude()
                return Xa.RDONLY
            found = await self._with_ways(transaction.rehearse)
            # What subscribers have in memory needs no place.
            found = {queue: n for queue, n in found.items() if isinstance(queue, Queue)}
            transaction.prepared()
            self._reserve(branch, found)
            branch.since_ms = self._now_ms()
            batch = self._broker.begin()
            record = record_of(branch, transaction, batch, self._store.next_id, self._lasts)
            branch.rows = [each.row for each in record.postings]
            batch.transaction.note(NOTES, branch.key, record.encode())
            await batch.commit()
        except AmqpError as error:
            self._drop(branch)
            raise XaError(Xa.RBROLLBACK, f"rolled back: {error}") from None
        except StoreError as error:
            self._drop(branch)
            raise XaError(Xa.RBROLLBACK, f"rolled back: the store failed: {error}") from None
        finally:
            branch.command = None
        branch.state = BranchState.PREPARED
        self._watch.look()
        return Xa.OK

    async def commit(self, owner: str, xid: Xid, *, one_phase: bool = False) -> Xa:
        """Do all of it.

        Raises:
            XaError: the command is refused; with RETRY the branch stays prepared, with RBROLLBACK
                it has been rolled back.
        """
        branch = self.branch(owner, xid)
        if one_phase and self._rolls_back(branch):
            return Xa.RBTIMEOUT
        if one_phase:
            self._end_held(branch)
        branch.check("commit one-phase" if one_phase else "commit")
        if branch.state in HEURISTIC:
            return branch.decided
        branch.command = "commit"
        try:
            await self._commit(branch, None)
        finally:
            branch.command = None
        return Xa.OK

    async def rollback(self, owner: str, xid: Xid) -> Xa:
        """Do nothing of it.

        Raises:
            XaError: the command is refused.
        """
        branch = self.branch(owner, xid)
        if self._rolls_back(branch):
            return Xa.RBTIMEOUT
        self._end_held(branch)
        branch.check("rollback")
        if branch.state in HEURISTIC:
            return branch.decided
        if branch.state is BranchState.IDLE:
            self._drop(branch)
            return Xa.OK
        branch.command = "rollback"
        try:
            await self._roll_back(branch, None)
        finally:
            branch.command = None
        return Xa.OK

    async def forget(self, owner: str, xid: Xid) -> Xa:
        """Forget a heuristic decision.

        Raises:
            XaError: there is none, or the store fails.
        """
        await self._forget_decision(self.branch(owner, xid))
        return Xa.OK

    # -- operators -------------------------------------------------------------------------------

    def _named(self, key: str) -> Branch:
        branch = next((each for each in self._known.values() if each.key == key), None)
        if branch is None:
            raise XaError(Xa.NOTA, f"there is no branch named {key[:400]!r}")
        return branch

    async def decide(self, key: str, *, commits: bool) -> None:
        """Resolve a prepared branch as an operator: a heuristic decision.

        Raises:
            XaError: there is none, or it cannot be done.
        """
        branch = self._named(key)
        branch.check("decide")
        branch.command = "decision"
        try:
            if commits:
                await self._commit(branch, BranchState.COMMITTED)
            else:
                await self._roll_back(branch, BranchState.ROLLED_BACK)
        finally:
            branch.command = None

    async def forget_named(self, key: str) -> None:
        """Forget a decision as an operator, for a transaction manager that is no more.

        Raises:
            XaError: there is none, or the store fails.
        """
        await self._forget_decision(self._named(key))

    # -- how it is done --------------------------------------------------------------------------

    async def _complete(self, transaction: Transaction) -> None:
        """Wait for postings that wait for the DNS: they came before the command."""
        if transaction.pending:
            complete: Deferred[None] = Deferred()
            transaction.when_complete = lambda: complete.callback(None)
            await complete

    async def _have_safe(self, transaction: Transaction) -> None:
        """Wait until what it takes is on the disk, or known not to be (`broker.early_delivery`).

        A record must not name rows that never were: a restart counts on them.
        """
        if any(
            each.entry.stored and each.consumer.queue.is_ahead(each.entry)
            for each in transaction.retirements
        ):
            await self._broker.begin().commit()  # in its place behind those commits

    async def _with_ways(self, attempt: Callable[[], _T]) -> _T:
        """Do something that may need next hops which have to be asked about first."""
        asked: set[Any] = set()
        while True:
            try:
                return attempt()
            except Unresolved as unresolved:
                if unresolved.hop in asked:
                    words = f"no route to {unresolved.hop.key} at present"
                    raise AmqpError(words) from None
                asked.add(unresolved.hop)
                await self._admit(unresolved.hop)

    def _lasts(self, target: PutTarget) -> bool:
        return target.name not in self._broker.dynamic

    def _note(self, branch: Branch, left: BranchState | None) -> Callable[[Batch], None]:
        """Return what takes a prepared branch's record away, or leaves a decision in its place."""
        value = None
        if left is not None:
            value = BranchRecord(branch.owner, branch.xid, left, self._now_ms()).encode()

        def note(batch: Batch) -> None:
            batch.transaction.note(NOTES, branch.key, value)
            batch.transaction.dequeue(branch.rows)

        return note

    async def _commit(self, branch: Branch, left: BranchState | None) -> None:
        is_prepared = branch.state is BranchState.PREPARED
        reserved = branch.reserved
        try:
            transaction = await self._transaction_of(branch, is_lenient=False)
            transaction.hurry()
            await self._complete(transaction)
            note = self._note(branch, left) if is_prepared else None

            def attempt() -> Deferred[None]:
                # Its places are free for a moment, and nobody else is asked in that moment.
                self._release(branch)
                try:
                    return transaction.commit(note)
                except Unresolved:
                    self._reserve(branch, reserved)
                    raise

            await (await self._with_ways(attempt))
        except (AmqpError, StoreError) as error:
            if is_prepared:
                self._reserve(branch, reserved)
                raise XaError(Xa.RETRY, f"it stays prepared: {error}") from None
            self._drop(branch)
            raise XaError(Xa.RBROLLBACK, f"rolled back: {error}") from None
        self._resolved(branch, left)
        transaction.conclude()

    async def _roll_back(self, branch: Branch, left: BranchState | None) -> None:
        try:
            transaction = await self._transaction_of(branch, is_lenient=True)
            batch = self._broker.begin()
            self._note(branch, left)(batch)
            await batch.commit()
        except (AmqpError, StoreError) as error:
            self._unmake(branch)
            raise XaError(Xa.RMERR, f"it stays prepared: {error}") from None
        transaction.roll_back()
        self._resolved(branch, left)
        transaction.conclude()

    async def _transaction_of(self, branch: Branch, *, is_lenient: bool) -> Transaction:
        """Return what a branch contains; made again if it was prepared before a restart."""
        if branch.transaction is not None:
            return branch.transaction
        record = branch.record
        assert record is not None
        transaction = self._book.declare(branch, is_revived=True)
        try:
            branch.leftover = await revive(
                record,
                transaction,
                self._broker,
                self._store,
                self._find,
                is_lenient=is_lenient,
            )
        except (AmqpError, StoreError):
            transaction.roll_back()
            raise
        finally:
            branch.rows = [each.row for each in record.postings]
        branch.transaction = transaction
        return transaction

    def _unmake(self, branch: Branch) -> None:
        """Do not keep what was made leniently: a commit must not take it for the whole."""
        transaction, leftover, record = branch.transaction, branch.leftover, branch.record
        is_part = bool(leftover and leftover.strayed) or bool(record and record.lost)
        if transaction is not None and is_part:
            transaction.roll_back()
            branch.transaction = branch.leftover = None

    async def _forget_decision(self, branch: Branch) -> None:
        branch.check("forget")
        branch.command = "forget"
        try:
            batch = self._broker.begin()
            batch.transaction.note(NOTES, branch.key, None)
            await batch.commit()
        except StoreError as error:
            raise XaError(Xa.RMERR, f"the store failed: {error}") from None
        finally:
            branch.command = None
        self._forget(branch)

    def _check_doom(self, branch: Branch) -> None:
        doom = branch.doom
        if doom is not None:
            raise XaError(doom, f"branch {branch.xid} can only be rolled back")

    def _rolls_back(self, branch: Branch) -> bool:
        """Tell whether a branch has timed out; that it is told of it is its end."""
        if branch.state is not BranchState.TIMED_OUT:
            return False
        self._forget(branch)
        return True

    def _resolved(self, branch: Branch, left: BranchState | None) -> None:
        self._release(branch)
        self._forget(branch)
        if branch.leftover is not None:
            forget_leftover(branch.leftover, self._broker)
        if left is not None:
            branch.state = left
            branch.since_ms = self._now_ms()
            self._known[branch.owner, branch.xid] = branch
        branch.transaction = branch.record = branch.leftover = None
        branch.rows = []

    def _drop(self, branch: Branch) -> None:
        """Roll a branch back of which nothing is in the store."""
        self._release(branch)
        self._forget(branch)
        transaction = branch.transaction
        if transaction is not None:
            if transaction.stage in (TransactionStage.OPEN, TransactionStage.PREPARED):
                transaction.roll_back()
            transaction.conclude()

    def _forget(self, branch: Branch) -> None:
        branch.state = BranchState.GONE
        self._known.pop((branch.owner, branch.xid), None)
        if branch.transaction is not None:
            self._working.pop(branch.transaction.id, None)

    def _reserve(self, branch: Branch, found: Mapping[Any, int]) -> None:
        if not branch.reserved:
            branch.reserved = dict(found)
            for queue, count in found.items():
                queue.promise(count)

    def _release(self, branch: Branch) -> None:
        reserved, branch.reserved = branch.reserved, {}
        for queue, count in reserved.items():
            queue.promise(-count)

    # -- time ------------------------------------------------------------------------------------

    def _waiting(self) -> list[Branch]:
        return [each for each in self._known.values() if each.state is BranchState.PREPARED]

    def _timed_out(self, transaction: Transaction) -> None:
        """Nothing has happened for too long; its manager is told so when it asks next."""
        branch = transaction.owner
        assert isinstance(branch, Branch)
        self.log.warn(
            "branch {key} rolled back: idle for {seconds} s",
            key=branch.key,
            seconds=transaction.timeout_seconds,
        )
        self._working.pop(transaction.id, None)
        branch.transaction = None
        branch.state = BranchState.TIMED_OUT
        transaction.conclude()


def _owner_of(branch: object) -> str:
    assert isinstance(branch, Branch)
    return branch.owner


__all__ = ["BranchLimits", "BranchRegistry"]
