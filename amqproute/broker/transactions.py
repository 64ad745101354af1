# SPDX-License-Identifier: Apache-2.0
"""The open transactions of one connection, or of all branches: found by id, bounded, remembered."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from amqproute import conditions
from amqproute.broker.transaction import Transaction, TransactionLimits, TransactionTerms
from amqproute.errors import AmqpError, ResourceLimitExceeded
from amqproute.values import ANONYMOUS_PRINCIPAL, Principal
from amqproute.wire.amqp10 import spec

REMEMBERED: Final = 256
"""Ids of timed-out transactions that one connection remembers."""


class Transactions:
    """The open transactions of one connection, or those of all branches.

    Args:
        terms: what all connections have in common.
        timed_out: called with a transaction that was rolled back because nothing happened in it;
            it has to have it concluded.
        who: the principal of the connection, for the branches it may work in.
        limits: if they are not those of the terms.
    """

    def __init__(
        self,
        terms: TransactionTerms,
        timed_out: Callable[[Transaction], None],
        who: Callable[[], Principal] = lambda: ANONYMOUS_PRINCIPAL,
        limits: TransactionLimits | None = None,
    ) -> None:
        self.terms = terms
        self._limits = limits
        self._timed_out = timed_out
        self._who = who
        self._open: dict[bytes, Transaction] = {}
        self._late: deque[bytes] = deque(maxlen=REMEMBERED)
        self._operations = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def limits(self) -> TransactionLimits:
        """The bounds that hold here."""
        return self._limits or self.terms.limits

    def declare(self, owner: Any) -> Transaction:
        """Begin a transaction.

        Raises:
            ResourceLimitExceeded: there are too many.
        """
        most = self.limits.open
        if len(self._open) >= most:
            raise ResourceLimitExceeded(
                f"there are {most} open transactions here, no more are allowed",
                info={"limiter": "open-transactions"},
            )
        transaction = Transaction(self.terms.new_id(), owner, self)
        self._open[transaction.id] = transaction
        return transaction

    def find(self, txn_id: bytes) -> Transaction:
        """Return an open transaction.

        Raises:
            AmqpError: there is none of this id, or it has timed out (X-31).
        """
        transaction = self._open.get(txn_id)
        if transaction is not None:
            return transaction
        if txn_id in self._late:
            raise AmqpError(
                f"transaction {txn_id.hex()} was rolled back: nothing had happened in it for "
                f"{self.limits.timeout_seconds:g} s",
                condition=conditions.TRANSACTION_TIMEOUT,
            )
        raise AmqpError(
            f"no transaction {txn_id.hex()[:64]} is open on this connection",
            condition=conditions.TRANSACTION_UNKNOWN_ID,
        )

    def working(self, txn_id: bytes, delivery: Any = None) -> Transaction:
        """Return a transaction that takes work: one of `find`, or that of an active branch.

        Args:
            txn_id: which.
            delivery: the posting; one that had to wait belongs to what took work when it came.

        Raises:
            AmqpError: see `find`.
        """
        return self._working(txn_id, delivery) or self.find(txn_id)

    def _working(self, txn_id: bytes, delivery: Any) -> Transaction | None:
        awaited: Transaction | None = None if delivery is None else delivery.context
        if awaited is not None and awaited.is_open:
            return awaited
        transaction = self._open.get(txn_id)
        branches = self.terms.branches
        if transaction is None and branches is not None:
            transaction = branches.working(txn_id, self._who())
        return transaction

    def of(self, owner: Any) -> list[Transaction]:
        """Return the open transactions that a coordinator link has declared."""
        return [each for each in self._open.values() if each.owner is owner]

    # -- postings that have to wait, or are refused ----------------------------------------------

    def postpone(self, delivery: Any) -> None:
        """A delivery has to wait for the DNS; if it is a posting, so has its discharge."""
        state = delivery.state
        if type(state) is spec.TransactionalState and delivery.context is None:
            transaction = self._working(state.txn_id, delivery)
            if transaction is not None:
                transaction.pending += 1
                delivery.context = transaction

    def resume(self, delivery: Any) -> None:
        """A posting that may have been waiting is in its transaction, or refused."""
        transaction, delivery.context = delivery.context, None
        if transaction is not None:
            transaction.pending -= 1
            if not transaction.pending and transaction.when_complete is not None:
                tell, transaction.when_complete = transaction.when_complete, None
                tell()

    def doom(self, delivery: Any, error: AmqpError) -> None:
        """A delivery is refused: if it is a posting, its transaction can only be rolled back."""
        state = delivery.state
        if type(state) is spec.TransactionalState:
            transaction = self._working(state.txn_id, delivery)
            if transaction is not None:
                transaction.fail(error)
            self.resume(delivery)

    # -- for `Transaction` ---------------------------------------------------------------------

    def make_room(self, size: int) -> None:
        """Refuse one more operation, and so many more bytes, if there is no room for them."""
        limits = self.limits
        if self._operations >= limits.operations:
            raise ResourceLimitExceeded(
                f"the open transactions here have {limits.operations} operations",
                info={"limiter": "transaction-operations"},
            )
        if size and (
            self._bytes + size > limits.connection_bytes
            or self.terms.staged_bytes + size > limits.total_bytes
        ):
            raise ResourceLimitExceeded(
                "the messages of open transactions take too much memory",
                info={"limiter": "transaction-bytes"},
            )

    def staged(self, operations: int, size: int) -> None:
        """Count an operation in."""
        self._operations += operations
        self._bytes += size
        self.terms.staged_bytes += size

    def forget(self, transaction: Transaction, operations: int, size: int) -> None:
        """A transaction is not open any more."""
        if self._open.pop(transaction.id, None) is not None:
            self.staged(-operations, -size)

    def expired(self, transaction: Transaction) -> None:
        """A transaction has been idle for too long."""
        self._late.append(transaction.id)
        transaction.roll_back()
        self._timed_out(transaction)


__all__ = ["REMEMBERED", "Transactions"]
