# SPDX-License-Identifier: Apache-2.0
"""Transactions (part 4): units of work that happen as a whole or not at all.

How it works
============

A `Transaction` is a list of operations, none of which takes effect before the discharge:

* a *posting* is a message for a target. It is rehearsed when it arrives (put into a batch that is
  abandoned), so that a refusal reaches its sender at once; then it waits here, where no consumer
  can see it;
* a *retirement* is a delivery with its outcome. The consumer keeps holding the entry;
* an *acquisition* is a delivery that was sent under the transaction. A commit changes nothing about
  it, a rollback makes it available to all consumers.

`Transaction.commit` replays all of it into *one* `Batch`, postings first, so that everything
durable about a transaction is one commit of the store. A posting that fails now (a queue became
full) abandons the batch before anything else was touched, and the transaction is rolled back.
Outcomes that give messages back (released, modified) act after that commit: no consumer may get a
message out of a transaction that fails. Afterwards `conclude` notifies the links, after the
coordinator's own answer (requirement X-27).

Entries that a transaction removes from a queue make room for its postings there: they do not count
against the queue's capacity (Q-15, `Batch.leaving`).

A refused posting dooms its transaction: work that a client wants as a whole is not done in part
because it did not wait for the answers.

`transaction_registry.TransactionRegistry` has those of one connection; they do not span
connections. Idle ones are rolled back after `TransactionLimits.timeout_seconds`, and their ids are
remembered for a while, so that the client learns the reason. The transaction of a branch of a
distributed one (`amqproute.broker.xa_registry`) can be used by every connection of its principal,
and can be *prepared*: then it takes no more work, has no time-out, and stays when its commit fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.broker.commit_batch import Batch, BatchParticipant
from amqproute.broker.fair_shares import FairShares
from amqproute.broker.xa_states import Xa, Xid
from amqproute.entry import Entry
from amqproute.errors import AmqpError, NotAllowed
from amqproute.interfaces import ITarget
from amqproute.message import Message
from amqproute.outcomes import Acceptance, Outcome, Rejection
from amqproute.tracebacks import forget_frames
from amqproute.values import Origin, Principal

MEBIBYTE: Final = 1024 * 1024
OPERATIONS_IN_ROW: Final = 100
"""Postings, and outcomes, whose nodes the row of a transaction names."""
_LASTING: Final = (Acceptance, Rejection)
"""Outcomes that end an entry's life: they act within the transaction's own commit."""


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """Bounds of transactions.

    Attributes:
        timeout_seconds: a transaction idle for so long is rolled back.
        open: transactions that one connection may have open at once.
        operations: postings and retirements of one connection's open transactions.
        connection_bytes: bytes of their postings.
        total_bytes: memory of the open transactions of all connections, as `TransactionRegistry`
            charges it: a party and each of its connections have shares of it, see `fair_shares`.
    """

    timeout_seconds: float = 120.0
    open: int = 64
    operations: int = 100_000
    connection_bytes: int = 64 * MEBIBYTE
    total_bytes: int = 256 * MEBIBYTE


class TransactionalDelivery(Protocol):
    """A delivery that may belong to a transaction.

    Attributes:
        context: the transaction it waits for; None without one.
    """

    context: object

    @property
    def tag(self) -> bytes:
        """Its delivery-tag."""

    @property
    def txn_id(self) -> bytes | None:
        """The id of the transaction of the posting, or None."""


class Poster(Protocol):
    """A link that posts messages."""

    # Any: deliveries are the link's own; here they are only kept.
    def concluded(self, deliveries: Sequence[Any], is_committed: bool) -> None:
        """Answer deliveries whose transaction has ended."""


class EntryHolder(Protocol):
    """A consumer that holds entries."""

    @property
    def copies(self) -> bool:
        """Whether it browses."""

    # Any: the queue of the entries, which need not be the holder's source.
    @property
    def queue(self) -> Any:
        """The queue of the entries."""

    def settle_within(self, entries: Sequence[Entry], outcome: Outcome, batch: Batch) -> None:
        """Act on outcomes, within the commit of the transaction."""

    def retake(self, entries: Sequence[Entry]) -> None:
        """Undo `settle_within`: that commit failed."""

    def retired(self, retirements: Sequence[Retirement]) -> None:
        """Settle deliveries: the transaction was committed."""

    def restored(self, retirements: Sequence[Retirement]) -> None:
        """Hold entries as before: the transaction was rolled back."""


class Acquirer(Protocol):
    """A link on which deliveries are acquired under a transaction."""

    # Any: deliveries are the link's own; here they are only kept.
    def returned(self, deliveries: Sequence[Any]) -> None:
        """Make deliveries available to all consumers: the transaction was rolled back."""


class PutTarget(Protocol):
    """Target of a posting."""

    @property
    def name(self) -> str:
        """The node's name."""

    def put(self, message: Message, batch: Batch, origin: Origin) -> None:
        """See `ITarget.put`."""


class ActiveBranches(Protocol):
    """The active branches of distributed transactions."""

    def allows(self, principal: Principal) -> bool:
        """Return whether a principal may coordinate distributed transactions (C-02)."""

    def associate(self, owner: str, xid: Xid) -> bytes:
        """Start a branch, or join it; return the id of its transaction.

        Raises:
            XaError: it cannot be.
        """

    def hold(self, owner: str, xid: Xid, ended: Callable[[], None]) -> bytes:
        """Do as `associate`, for an association that its transaction manager may end.

        Raises:
            XaError: it cannot be.
        """

    def let_go(self, owner: str, xid: Xid, ended: Callable[[], None]) -> None:
        """End what `hold` has begun, unless it has ended already."""

    def end(self, owner: str, xid: Xid, flag: str | None = None) -> Xa:
        """End an association.

        Raises:
            XaError: it cannot be.
        """

    def working(self, txn_id: bytes, principal: Principal) -> Transaction | None:
        """Return the transaction of an active branch; None if there is none."""


@dataclass(slots=True)
class TransactionTerms:
    """Terms shared by the transactions of all connections.

    Attributes:
        begin: makes a `Batch`.
        clock: the clock for time-outs.
        new_id: makes a unique id that cannot be guessed, at most 32 octets.
        limits: see there.
        shares: octets charged to the principals for their open transactions.
        branches: the `BranchRegistry` of distributed transactions; None where they are not offered.
    """

    begin: Callable[[], Batch]
    clock: IReactorTime
    new_id: Callable[[], bytes]
    limits: TransactionLimits = field(default_factory=TransactionLimits)
    shares: FairShares = field(default_factory=FairShares)
    branches: ActiveBranches | None = None

    @property
    def staged_bytes(self) -> int:
        """Octets charged for all open transactions."""
        return self.shares.used


@dataclass(slots=True)
class Posting:
    """A message to be put on a target.

    Attributes:
        poster: its link, whose ``concluded`` is called.
        delivery: its delivery.
        target: the `ITarget`.
        message: as it is to be put.
        origin: its sender.
        tag: the delivery's tag, for the origin.
    """

    poster: Poster
    delivery: Any  # Any: the poster's own; here it is only kept
    target: PutTarget
    message: Message
    origin: Origin
    tag: bytes


@dataclass(slots=True)
class Retirement:
    """An outcome for an entry that a consumer holds.

    Attributes:
        transaction: its transaction.
        consumer: its holder, whose ``settle_within`` is called by the commit, and ``retired`` or
            ``restored`` at the end.
        delivery: its delivery.
        entry: the entry.
        outcome: the outcome; it can be changed until the discharge (O-16).
        settled: the consumer has forgotten the delivery already (K-16).
    """

    transaction: Transaction
    consumer: EntryHolder
    delivery: Any  # Any: the consumer's own; here it is only kept
    entry: Entry
    outcome: Outcome
    settled: bool

    def change(self, outcome: Outcome) -> None:
        """Change the outcome."""
        self.transaction.count_leaving(self, -1)
        self.outcome = outcome
        self.transaction.count_leaving(self, 1)


class TransactionStage(Enum):
    """Stage of a transaction."""

    OPEN = "open"
    PREPARED = "prepared"
    ENDING = "ending"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"


class TransactionBook(Protocol):
    """The collection that a transaction belongs to: its limits and accounting."""

    terms: TransactionTerms

    @property
    def limits(self) -> TransactionLimits:
        """The bounds that hold for it."""

    def make_room(self, transaction: Transaction, size: int) -> None:
        """Check that there is room for one more operation of so many octets.

        Raises:
            ResourceLimitExceeded: there is none.
        """

    def staged(self, transaction: Transaction, operations: int, size: int) -> None:
        """Add operations, and the octets of their messages."""

    def forget(self, transaction: Transaction, operations: int, size: int) -> None:
        """Forget a transaction that is not open any more."""

    def expired(self, transaction: Transaction) -> None:
        """Handle a transaction that has been idle for too long."""


class Transaction:
    """One transaction, made by `TransactionRegistry.declare`.

    Attributes:
        id: its name on the wire.
        owner: the coordinator link that declared it, and ends it when it goes.
        stage: its stage.
        pending: postings that wait for the DNS; a commit has to wait for them.
        doom: the reason why it can only be rolled back, or None.
        postings: its postings.
        retirements: its retirements.
        timeout_seconds: it is rolled back when it has been idle for so long.
    """

    log = Logger()

    __slots__ = (
        "_acquisitions",
        "_book",
        "_bytes",
        "_last",
        "_leaving",
        "_timer",
        "doom",
        "id",
        "owner",
        "pending",
        "postings",
        "retirements",
        "stage",
        "timeout_seconds",
        "when_complete",
    )

    def __init__(self, txn_id: bytes, owner: object, book: TransactionBook) -> None:
        self.id = txn_id
        self.owner = owner
        self.stage = TransactionStage.OPEN
        self.pending = 0
        self.doom: AmqpError | None = None
        self.when_complete: Callable[[], None] | None = None
        self._book = book
        self.postings: list[Posting] = []
        self.retirements: list[Retirement] = []
        self._acquisitions: dict[Any, Acquirer] = {}
        self._bytes = 0
        self._leaving: dict[BatchParticipant[Any], int] = {}
        self.timeout_seconds = book.limits.timeout_seconds
        clock = book.terms.clock
        self._last = clock.seconds()
        self._timer: IDelayedCall | None = clock.callLater(self.timeout_seconds, self._look)

    def __repr__(self) -> str:
        return (
            f"<Transaction {self.id.hex()} {self.stage.value} postings={len(self.postings)} "
            f"retirements={len(self.retirements)} acquisitions={len(self._acquisitions)}>"
        )

    @property
    def is_open(self) -> bool:
        """Whether work can still be added to it."""
        return self.stage is TransactionStage.OPEN

    @property
    def operations(self) -> int:
        """Number of its postings and retirements."""
        return len(self.postings) + len(self.retirements)

    def row(self) -> dict[str, object]:
        """Describe it for operators; ``nodes`` are those of its first operations only."""
        names = {each.target.name for each in self.postings[:OPERATIONS_IN_ROW]}
        retired = self.retirements[:OPERATIONS_IN_ROW]
        names |= {each.consumer.queue.name for each in retired if each.consumer.queue is not None}
        idle = self._book.terms.clock.seconds() - self._last
        return {
            "name": self.id.hex(),
            "type": "transaction",
            "state": self.stage.value if self.doom is None else "doomed",
            "reason": "" if self.doom is None else self.doom.description,
            "postings": len(self.postings),
            "outcomes": len(self.retirements),
            "waiting": self.pending,
            "bytes": self._bytes,
            "nodes": sorted(names),
            "idle-ms": int(1000 * max(0.0, idle)),
            "timeout-ms": int(1000 * self.timeout_seconds),
        }

    # -- work ----------------------------------------------------------------------------------

    def touch(self) -> None:
        """Restart the time-out."""
        self._last = self._book.terms.clock.seconds()

    def allow(self, seconds: float) -> None:
        """Set another time-out than the usual one."""
        self.timeout_seconds = seconds
        self._stop_timer()
        self._timer = self._book.terms.clock.callLater(seconds, self._look)

    def hurry(self) -> None:
        """Stop the time-out: the transaction is being ended."""
        self._stop_timer()

    def _look(self) -> None:
        terms = self._book.terms
        self._timer = None
        left = self._last + self.timeout_seconds - terms.clock.seconds()
        if left > 0 or self.when_complete is not None:
            self._timer = terms.clock.callLater(max(left, 1.0), self._look)
        else:
            self._book.expired(self)

    def post(
        self,
        poster: Poster,
        delivery: TransactionalDelivery,
        target: ITarget,
        message: Message,
        origin: Origin,
    ) -> None:
        """Add a message, to be put on its target by the commit (X-06).

        Raises:
            AmqpError: the target refuses it now, or there is no room for it.
            Unresolved: see `ITarget.put`.
        """
        self.touch()
        size = len(message.encoded)
        self._book.make_room(self, size)
        if getattr(target, "acts_at_once", False):
            raise NotAllowed(  # G-04
                f"operations of {target.name} cannot be rolled back: send the request outside of "
                "a transaction"
            )
        rehearsal = self._begin(is_rehearsal=True)
        try:
            target.put(message, rehearsal, origin)
        finally:
            rehearsal.abandon()
        message.forget()
        self.postings.append(Posting(poster, delivery, target, message, origin, delivery.tag))
        self._bytes += size
        self._book.staged(self, 1, size)

    def retire(
        self,
        consumer: EntryHolder,
        delivery: object,
        entry: Entry,
        outcome: Outcome,
        settled: bool,
    ) -> Retirement:
        """Add an outcome, to be applied by the commit (X-07).

        Raises:
            ResourceLimitExceeded: there is no room for it.
        """
        self.touch()
        self._book.make_room(self, 0)
        retirement = Retirement(self, consumer, delivery, entry, outcome, settled)
        self.retirements.append(retirement)
        self.count_leaving(retirement, 1)
        self._book.staged(self, 1, 0)
        return retirement

    def acquire(self, consumer: Acquirer, delivery: object) -> None:
        """Add a delivery acquired under it (X-20), whose ``returned`` may be called."""
        self.touch()
        self._acquisitions[delivery] = consumer

    def count_leaving(self, retirement: Retirement, count: int) -> None:
        """Add or subtract an entry that will have left its queue by the commit."""
        if isinstance(retirement.outcome, _LASTING) and not retirement.consumer.copies:
            queue = retirement.consumer.queue
            self._leaving[queue] = self._leaving.get(queue, 0) + count

    def fail(self, error: AmqpError) -> None:
        """Doom it, since a part of it was refused; the first reason stays."""
        if self.doom is None:
            forget_frames(error)  # they hold the message
            self.doom = error

    def restore(self, postings: Sequence[Posting], retirements: Sequence[Retirement]) -> None:
        """Restore the operations of a transaction prepared before a restart; be prepared again.

        The limits were checked when they were new, and are not checked again.
        """
        self.postings.extend(postings)
        self.retirements.extend(retirements)
        for each in retirements:
            self.count_leaving(each, 1)
        self._bytes = sum([len(posting.message.encoded) for posting in postings])
        self._book.staged(self, self.operations, self._bytes)
        self.prepared()

    # -- discharge -----------------------------------------------------------------------------

    def _begin(self, is_rehearsal: bool = False) -> Batch:
        """Begin a batch that knows the entries that will have left by its commit."""
        batch = self._book.terms.begin()
        batch.is_transactional = True
        batch.is_rehearsal = is_rehearsal
        batch.leaving = self._leaving
        return batch

    def _replay(self, batch: Batch) -> None:
        if self.doom is not None:
            raise self.doom
        for posting in self.postings:
            posting.origin.tag = posting.tag
            posting.target.put(posting.message, batch, posting.origin)

    # Any: each participant has its own kind of arrivals.
    def rehearse(self) -> dict[BatchParticipant[Any], int]:
        """Check that all of it could be committed now.

        Returns:
            The number of messages that would arrive, by queue or topic.

        Raises:
            AmqpError: it could not be committed.
            Unresolved: see `ITarget.put`.
        """
        batch = self._begin(is_rehearsal=True)
        try:
            self._replay(batch)
            return {queue: len(entries) for queue, entries in batch.arrivals.items()}
        finally:
            batch.abandon()

    def prepared(self) -> None:
        """Enter the stage prepared: its branch keeps it, without more work or a time-out."""
        self.stage = TransactionStage.PREPARED
        self._stop_timer()

    def commit(self, note: Callable[[Batch], None] | None = None) -> Deferred[None]:
        """Commit it in one commit of the store (X-11).

        Args:
            note: adds the notes of a branch to that commit.

        Returns:
            A Deferred that fires when it is durable; or fails with the `AmqpError` or
            `StoreError` for which the transaction was rolled back. A prepared one stays prepared.

        Raises:
            Unresolved: see `ITarget.put`; the transaction is as before.
        """
        before = self.stage
        batch = self._begin()
        try:
            self._replay(batch)
        except AmqpError as error:
            batch.abandon()
            if before is not TransactionStage.PREPARED:
                self.roll_back()
            return fail(error)
        except BaseException:
            batch.abandon()
            raise
        if before is TransactionStage.PREPARED:
            self.stage = TransactionStage.ENDING
        else:
            self._leave(TransactionStage.ENDING)
        if note is not None:
            note(batch)
        for consumer, outcome, entries in _grouped(self.retirements):
            if isinstance(outcome, _LASTING):
                consumer.settle_within(entries, outcome, batch)
        done = batch.commit()
        done.addCallbacks(self._committed, self._failed, errbackArgs=(before,))
        return done

    def _committed(self, _: object) -> Deferred[None] | None:
        self._leave(TransactionStage.COMMITTED)
        back = [group for group in _grouped(self.retirements) if not isinstance(group[1], _LASTING)]
        if not back:
            return None
        batch = self._book.terms.begin()
        for consumer, outcome, entries in back:
            consumer.settle_within(entries, outcome, batch)
        return batch.commit().addErrback(self._not_modified)

    def _not_modified(self, failure: Failure) -> None:
        # The messages are available again, as they have to be; what is lost when the daemon stops
        # is how often they were tried.
        self.log.failure("{transaction}: cannot store modified messages", failure,
                         transaction=self)  # fmt: skip

    def _failed(self, failure: Failure, before: TransactionStage) -> Failure:
        self.stage = before if before is TransactionStage.PREPARED else TransactionStage.ROLLED_BACK
        for consumer, outcome, entries in _grouped(self.retirements):
            if isinstance(outcome, _LASTING):
                consumer.retake(entries)
        return failure

    def roll_back(self) -> None:
        """Roll it back. Call `conclude` when the coordinator has answered."""
        self._leave(TransactionStage.ROLLED_BACK)

    def dissolve(self) -> None:
        """End it without work: there is nothing to do, and nothing to undo."""
        self._leave(TransactionStage.COMMITTED)

    def _leave(self, stage: TransactionStage) -> None:
        self.stage = stage
        self._stop_timer()
        self._book.forget(self, self.operations, self._bytes)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def conclude(self) -> None:
        """Notify the links of the result, once it is decided."""
        is_committed = self.stage is TransactionStage.COMMITTED
        postings, self.postings = self.postings, []
        retirements, self.retirements = self.retirements, []
        acquisitions, self._acquisitions = self._acquisitions, {}
        by_poster: dict[Poster, list[Any]] = {}
        for posting in postings:
            by_poster.setdefault(posting.poster, []).append(posting.delivery)
        for poster, deliveries in by_poster.items():
            poster.concluded(deliveries, is_committed)
        by_consumer: dict[EntryHolder, list[Retirement]] = {}
        for retirement in retirements:
            by_consumer.setdefault(retirement.consumer, []).append(retirement)
        for consumer, ended in by_consumer.items():
            if is_committed:
                consumer.retired(ended)
            else:
                consumer.restored(ended)
        if not is_committed:
            by_acquirer: dict[Acquirer, list[Any]] = {}
            for delivery, acquirer in acquisitions.items():
                by_acquirer.setdefault(acquirer, []).append(delivery)
            for acquirer, returned in by_acquirer.items():
                acquirer.returned(returned)


def _grouped(retirements: Iterable[Retirement]) -> list[tuple[EntryHolder, Outcome, list[Entry]]]:
    """Join neighbors that have one consumer and one outcome."""
    groups: list[tuple[EntryHolder, Outcome, list[Entry]]] = []
    for each in retirements:
        if groups:
            consumer, outcome, entries = groups[-1]
            if consumer is each.consumer and outcome is each.outcome:
                entries.append(each.entry)
                continue
        groups.append((each.consumer, each.outcome, [each.entry]))
    return groups


__all__ = [
    "Posting",
    "Retirement",
    "Transaction",
    "TransactionLimits",
    "TransactionStage",
    "TransactionTerms",
]
