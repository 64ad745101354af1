# SPDX-License-Identifier: Apache-2.0
"""The class tx on a channel.

A transaction begins with the first work after tx.select, a commit or a rollback. What a channel
publishes and acknowledges in it happens with the commit, as a whole or not at all; a commit that
fails closes the channel (09-TX-07).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.python.failure import Failure

from amqproute.broker.local_transaction import Transaction
from amqproute.errors import AmqpError, PreconditionFailed, StoreError, Unresolved
from amqproute.frontends.amqp09.class_publish import ClassPublish
from amqproute.frontends.amqp09.delivery_methods import DeliveryMethods
from amqproute.values import NextHop
from amqproute.wire.amqp09.methods import (
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)
from amqproute.wire.amqp09.protocol_events import ContentPartReceived
from amqproute.wire.amqp09.replies import ReplyCode
from amqproute.wire.amqp09.shapes import AmqpMethod

__all__ = ["TransactionMethods"]


class TransactionMethods(DeliveryMethods):
    """Transactions of a channel.

    Attributes:
        branch_work: returns the transaction of the branch that a channel with dtx.select works in;
            None without it.
    """

    branch_work: Callable[[], Transaction] | None = None
    _transaction: Transaction | None = None
    _is_selected = False
    _is_over = False

    @property
    def is_transacted(self) -> bool:
        """See `ChannelBase.is_transacted`."""
        return self._is_selected or self.branch_work is not None

    def transaction_handlers(self) -> dict[type[AmqpMethod], Callable[..., None]]:
        """Return what acts on each method."""
        return {
            TxSelect: self._select,
            TxCommit: lambda method: self._when_put(lambda: self._commit(method, ()), method),
            TxRollback: lambda method: self._when_put(lambda: self._roll_back(method), method),
        }

    def transaction(self) -> Transaction | None:
        """See `ChannelBase.transaction`."""
        if self.branch_work is not None:
            return self.branch_work()
        if not self._is_selected:
            return None
        transaction = self._transaction
        if self._is_over:
            raise PreconditionFailed("the channel ended before the transaction was committed")
        if transaction is None:
            transaction = self._transaction = self.connection.transactions.declare(self)
        elif not transaction.is_open:
            raise PreconditionFailed(
                "the transaction was rolled back: nothing had happened in it for too long"
            )
        return transaction

    def _select(self, method: TxSelect) -> None:
        self._is_selected = True
        self.reply(method, TxSelectOk())

    def _when_put(self, act: Callable[[], None], method: AmqpMethod) -> None:
        """Act when what was published is in the transaction: it may wait for the DNS."""
        waits = self.when_published(lambda: self._resumed(act, method))
        if waits:
            self._is_busy = True
        else:
            act()

    def _resumed(self, act: Callable[[], None], method: AmqpMethod) -> None:
        """Act on what a method had to wait with, and on what came behind it."""
        self._is_busy = False
        with self.connection.event_batch:
            if not self.is_ended:
                self.attempt(act, method)
            if not self._is_busy:
                self.resume()
        self.connection.flush()

    def attempt(self, act: Callable[[], None], method: AmqpMethod) -> None:
        """Act on a method; what is refused closes the channel."""
        act()

    def when_published(self, act: Callable[[], None]) -> bool:
        """Have something done when no publish waits any more; False if none does now."""
        return False

    def publish_class(self, publishes: Sequence[ClassPublish]) -> None:
        """Publish contents of another class than basic, in order with all others."""

    def begin_publishing(self) -> None:
        """Slow the client down like a publisher: what it stages will be published.

        Raises:
            UnauthorizedAccess: it may publish nowhere.
        """

    def publish_part(self, event: ContentPartReceived) -> bool:
        """Publish such a content in parts; see `ChannelPublisher.take_part`.

        The content of each event is the same `ClassPublish`.

        Returns:
            Whether the rest of it is wanted.
        """
        return False

    def when_part_written(self, go: Callable[[], None]) -> None:
        """Have the next part of a content read when those before it are on the disk."""

    def drop_parts(self) -> None:
        """Let go of a content of which no more parts come."""

    def _commit(self, method: TxCommit, asked: tuple[NextHop, ...]) -> None:
        transaction = self._transaction
        if transaction is None:
            self.reply(method, TxCommitOk())
            return
        if not transaction.is_open:
            self._transaction = None
            raise PreconditionFailed(
                "the transaction was rolled back: nothing had happened in it for too long"
            )
        self._is_busy = True
        try:
            done = self.connection.event_batch.commit(transaction)
        except Unresolved as unresolved:
            hop = unresolved.hop
            if hop in asked:
                transaction.fail(AmqpError(f"there is no way to {hop.key} at this moment"))
                self._commit(method, asked)
                return
            transaction.hurry()
            admitted = self.connection.admit(hop)
            admitted.addBoth(lambda _: self._commit(method, (*asked, hop)))
            admitted.addErrback(self.broken, method)
            return
        self._transaction = None
        done.addCallbacks(
            self._committed,
            self._not_committed,
            (method, transaction),
            errbackArgs=(method, transaction),
        )
        done.addErrback(self.broken, method)
        done.addBoth(self._go_on)

    def _committed(self, _: object, method: TxCommit, transaction: Transaction) -> None:
        self.reply(method, TxCommitOk())
        self.connection.conclude(transaction)

    def _not_committed(self, failure: Failure, method: TxCommit, transaction: Transaction) -> None:
        self.connection.conclude(transaction)
        cause = failure.value
        if isinstance(cause, AmqpError):
            self.refuse(cause, method)
        elif isinstance(cause, StoreError):
            self.fail(ReplyCode.INTERNAL_ERROR, "the message store failed", method)
        else:
            self.broken(failure, method)

    def _roll_back(self, method: TxRollback) -> None:
        self._undo()
        self.reply(method, TxRollbackOk())

    def _end_transactions(self) -> None:
        """The channel is over: what is not committed is undone, and nothing more is begun."""
        self._undo()
        self._is_over = True

    def _undo(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None and transaction.is_open:
            transaction.roll_back()
            self.connection.conclude(transaction)
