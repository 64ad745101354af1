# SPDX-License-Identifier: Apache-2.0
"""The open transactions of one connection, or of all branches: found by id, bounded, remembered.

Memory. An open transaction is charged for itself, for each of its operations, and for the octets
of the messages posted in it. The sum of these charges is bounded, and the bound is divided
(`amqproute.broker.fair_shares`): each principal has a share, and each connection a share of its
principal's. At its share a connection's next posting is refused with
``amqp:resource-limit-exceeded``, which rolls its transaction back; others are not affected.
Branches of distributed transactions belong to their owner rather than to a connection, and have a
second bound of their own, divided among owners in the same way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from amqproute import conditions
from amqproute.broker.fair_shares import FairShares
from amqproute.broker.local_transaction import (
    Transaction,
    TransactionalDelivery,
    TransactionLimits,
    TransactionTerms,
)
from amqproute.errors import AmqpError, ResourceLimitExceeded
from amqproute.values import ANONYMOUS_PRINCIPAL, Principal

REMEMBERED: Final = 256
"""Most ids of timed-out transactions that one connection remembers."""
TRANSACTION_OCTETS: Final = 2048
"""Charge of an open transaction: itself, its timer, its id."""
OPERATION_OCTETS: Final = 512
"""Charge of a posting or a retirement beside the octets of its message."""


class TransactionRegistry:
    """The open transactions of one connection, or those of all branches.

    Args:
        terms: what all connections have in common.
        timed_out: called with a transaction that was rolled back because it was idle, to conclude
            it.
        who: the principal of the connection, for the branches it may work in.
        limits: limits in place of those of the terms.
        owner_of: returns the owner of a branch, if these are the transactions of branches: the
            owner's share is charged, and the octets of messages are bounded by
            ``limits.connection_bytes`` with a share for each owner. None: all of them belong to
            one connection.
    """

    def __init__(
        self,
        terms: TransactionTerms,
        timed_out: Callable[[Transaction], None],
        who: Callable[[], Principal] = lambda: ANONYMOUS_PRINCIPAL,
        limits: TransactionLimits | None = None,
        owner_of: Callable[[object], str] | None = None,
    ) -> None:
        self.terms = terms
        self._limits = limits
        self._timed_out = timed_out
        self._who = who
        self._open: dict[bytes, Transaction] = {}
        self._late: deque[bytes] = deque(maxlen=REMEMBERED)
        self._owner_of = owner_of
        self._by_owner = FairShares()
        self._operations = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def limits(self) -> TransactionLimits:
        """The bounds that hold here."""
        return self._limits or self.terms.limits

    def declare(self, owner: object, *, is_revived: bool = False) -> Transaction:
        """Begin a transaction.

        Args:
            owner: its coordinator link, or the branch it belongs to.
            is_revived: whether it was prepared before a restart: there is room for it in any case.

        Raises:
            ResourceLimitExceeded: there are too many.
        """
        most = self.limits.open
        if len(self._open) >= most:
            raise ResourceLimitExceeded(
                f"the limit of {most} open transactions is reached",
                info={"limiter": "open-transactions"},
            )
        if not is_revived and self._room(owner) < TRANSACTION_OCTETS:
            raise _too_much()
        transaction = Transaction(self.terms.new_id(), owner, self)
        self._open[transaction.id] = transaction
        self._charge(owner, TRANSACTION_OCTETS)
        return transaction

    def find(self, txn_id: bytes) -> Transaction:
        """Return an open transaction.

        Raises:
            AmqpError: there is none with this id, or it has timed out (X-31).
        """
        transaction = self._open.get(txn_id)
        if transaction is not None:
            return transaction
        if txn_id in self._late:
            raise AmqpError(
                f"transaction {txn_id.hex()} was rolled back: it was idle for "
                f"{self.limits.timeout_seconds:g} s",
                condition=conditions.TRANSACTION_TIMEOUT,
            )
        raise AmqpError(
            f"no transaction {txn_id.hex()[:64]} is open on this connection",
            condition=conditions.TRANSACTION_UNKNOWN_ID,
        )

    def working(self, txn_id: bytes, delivery: TransactionalDelivery | None = None) -> Transaction:
        """Return a transaction that takes work: one of `find`, or that of an active branch.

        Args:
            txn_id: its id.
            delivery: the posting; one that had to wait belongs to the transaction of its arrival.

        Raises:
            AmqpError: see `find`.
        """
        return self._working(txn_id, delivery) or self.find(txn_id)

    def _working(self, txn_id: bytes, delivery: TransactionalDelivery | None) -> Transaction | None:
        awaited = None if delivery is None else delivery.context
        if isinstance(awaited, Transaction) and awaited.is_open:
            return awaited
        transaction = self._open.get(txn_id)
        branches = self.terms.branches
        if transaction is None and branches is not None:
            transaction = branches.working(txn_id, self._who())
        return transaction

    def of(self, owner: object) -> list[Transaction]:
        """Return the open transactions that a coordinator link has declared."""
        return [each for each in self._open.values() if each.owner is owner]

    def rows(self) -> list[dict[str, object]]:
        """Describe each open transaction for operators."""
        return [each.row() for each in self._open.values()]

    # -- postings that have to wait, or are refused ----------------------------------------------

    def postpone(self, delivery: TransactionalDelivery) -> None:
        """Note that a delivery waits for the DNS; if it is a posting, its discharge waits, too."""
        txn_id = delivery.txn_id
        if txn_id is not None and delivery.context is None:
            transaction = self._working(txn_id, delivery)
            if transaction is not None:
                transaction.pending += 1
                delivery.context = transaction

    def resume(self, delivery: TransactionalDelivery) -> None:
        """Note that a posting, which may have waited, is in its transaction or refused."""
        transaction, delivery.context = delivery.context, None
        if isinstance(transaction, Transaction):
            transaction.pending -= 1
            if not transaction.pending and transaction.when_complete is not None:
                notify, transaction.when_complete = transaction.when_complete, None
                notify()

    def doom(self, delivery: TransactionalDelivery, error: AmqpError) -> None:
        """Note that a delivery is refused: if it is a posting, its transaction is doomed."""
        txn_id = delivery.txn_id
        if txn_id is not None:
            transaction = self._working(txn_id, delivery)
            if transaction is not None:
                transaction.fail(error)
            self.resume(delivery)

    # -- for `Transaction` ---------------------------------------------------------------------

    def _party(self, owner: object) -> tuple[str, TransactionRegistry | None]:
        """Return the party, and its member, that is charged for an owner's work."""
        if self._owner_of is not None:
            return self._owner_of(owner), None
        return str(self._who()), self

    def _room(self, owner: object) -> int:
        party, member = self._party(owner)
        return self.terms.shares.room(self.limits.total_bytes, party, member)

    def _charge(self, owner: object, octets: int) -> None:
        party, member = self._party(owner)
        if octets >= 0:
            self.terms.shares.take(octets, party, member)
        else:
            self.terms.shares.give_back(-octets, party, member)

    def make_room(self, transaction: Transaction, size: int) -> None:
        """Check that there is room for one more operation with so many bytes.

        Raises:
            ResourceLimitExceeded: the connection has too many operations or octets, or the share of
                its party is used up.
        """
        limits = self.limits
        if self._operations >= limits.operations:
            raise ResourceLimitExceeded(
                f"the limit of {limits.operations} operations in open transactions is reached",
                info={"limiter": "transaction-operations"},
            )
        if size and self._owner_of is None:
            room = limits.connection_bytes - self._bytes
        elif size:
            party = self._party(transaction.owner)[0]
            room = self._by_owner.room(limits.connection_bytes, party)
        else:
            room = size
        if size > room or OPERATION_OCTETS + size > self._room(transaction.owner):
            raise _too_much()

    def staged(self, transaction: Transaction, operations: int, size: int) -> None:
        """Add operations of a transaction, and the octets of their messages."""
        self._operations += operations
        self._bytes += size
        if self._owner_of is not None:
            self._by_owner.take(size, self._party(transaction.owner)[0])
        self._charge(transaction.owner, operations * OPERATION_OCTETS + size)

    def forget(self, transaction: Transaction, operations: int, size: int) -> None:
        """Forget a transaction that is not open any more."""
        if self._open.pop(transaction.id, None) is None:
            return
        self._operations -= operations
        self._bytes -= size
        if self._owner_of is not None:
            self._by_owner.give_back(size, self._party(transaction.owner)[0])
        octets = TRANSACTION_OCTETS + operations * OPERATION_OCTETS + size
        self._charge(transaction.owner, -octets)

    def expired(self, transaction: Transaction) -> None:
        """Handle a transaction that has been idle for too long."""
        self._late.append(transaction.id)
        transaction.roll_back()
        self._timed_out(transaction)


def _too_much() -> ResourceLimitExceeded:
    return ResourceLimitExceeded(
        "the open transactions of this user or connection have used up their memory",
        info={"limiter": "transaction-bytes"},
    )


__all__ = ["OPERATION_OCTETS", "REMEMBERED", "TRANSACTION_OCTETS", "TransactionRegistry"]
