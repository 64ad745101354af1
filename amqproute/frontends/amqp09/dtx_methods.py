# SPDX-License-Identifier: Apache-2.0
"""The class dtx on a channel: work within a branch of a distributed transaction (09: part 1.12).

The class has two requests, select and start. What it leaves open is decided like this (I-25):

* An identifier is an XID, `FORMAT:GTRID:BQUAL` in hexadecimal digits, without its owner: a branch
  belongs to the principal of the connection. An XID of more than `LONGEST` octets in this form
  cannot be started here.
* Prepare, commit and roll-back are commands to ``amqp$dtxCoordinator`` (09-DTX-01), from any
  connection of the same principal.
* A channel has one branch, from dtx.start until the transaction manager prepares it, commits it in
  one phase or rolls it back, or the channel ends; it does not matter how. What was done in the
  branch stays in it: that a channel, or its connection, is lost decides nothing.
* There is no work without a branch on such a channel. What comes before dtx.start, or when the
  branch has ended, is refused with 406.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from amqproute.broker.local_transaction import ActiveBranches, Transaction
from amqproute.broker.xa_states import XaError, Xid
from amqproute.errors import (
    NotAllowed,
    NotImplementedHere,
    PreconditionFailed,
    ResourceLocked,
    UnauthorizedAccess,
)
from amqproute.frontends.amqp09.class_methods import ClassMethods
from amqproute.frontends.amqp09.transaction_methods import TransactionMethods
from amqproute.wire.amqp09.methods import DtxSelect, DtxSelectOk, DtxStart, DtxStartOk
from amqproute.wire.amqp09.shapes import AmqpMethod

__all__ = ["LONGEST", "DtxMethods", "identifier_of", "read_identifier"]

LONGEST: Final = 255
"""Octets of an identifier, which is a short string."""
_IDENTIFIER: Final = re.compile(
    r"([0-9a-f]{1,8}):((?:[0-9a-f]{2}){1,64}):((?:[0-9a-f]{2}){0,64})", re.IGNORECASE | re.ASCII
)


def read_identifier(text: str) -> Xid:
    """Read a dtx-identifier.

    Raises:
        PreconditionFailed: it has another form.
    """
    found = _IDENTIFIER.fullmatch(text)
    if found is not None:
        number, global_id, qualifier = found.groups()
        with suppress(XaError):
            return Xid.of([int(number, 16), bytes.fromhex(global_id), bytes.fromhex(qualifier)])
    raise PreconditionFailed(
        "a dtx-identifier is FORMAT:GTRID:BQUAL in hexadecimal digits: a number below 2^31, 1 to "
        "64 octets, 0 to 64 octets"
    )


def identifier_of(xid: Xid) -> str | None:
    """Return the dtx-identifier of a branch; None if it is too long to be one."""
    text = f"{xid.format_id:x}:{xid.global_id.hex()}:{xid.qualifier.hex()}"
    return text if len(text) <= LONGEST else None


class DtxMethods(ClassMethods):
    """See `ClassMethods`."""

    def __init__(self, channel: TransactionMethods) -> None:
        super().__init__(channel)
        self._owner = str(channel.connection.principal)
        self._xid: Xid | None = None
        self._transaction: Transaction | None = None

    def handlers(self) -> Mapping[type[AmqpMethod], Callable[..., None]]:
        """See `ClassMethods.handlers`."""
        return {DtxSelect: self._select, DtxStart: self._start}

    def rows(self) -> Iterator[dict[str, object]]:
        """See `ClassMethods.rows`."""
        if self._xid is not None:
            yield {"kind": "dtx", "branch": f"{self._owner}/{self._xid}"}

    def _branches(self) -> ActiveBranches:
        """Return the branches, for who may work in one.

        Raises:
            AmqpError: the client may not.
        """
        connection = self.channel.connection
        branches = connection.transactions.terms.branches
        if branches is None:
            raise NotImplementedHere(
                "distributed transactions are switched off: distributed-transactions.enabled"
            )
        if connection.principal.kind == "peer":
            raise NotAllowed("transactions are not offered to peers")
        if not branches.allows(connection.principal):
            raise UnauthorizedAccess(
                f"{connection.principal} may not coordinate distributed transactions: the right "
                "is `manage` on amqp$dtxCoordinator"
            )
        return branches

    def _select(self, method: DtxSelect) -> None:
        self._branches()
        self.channel.branch_work = self._work
        self.channel.reply(method, DtxSelectOk())

    def _start(self, method: DtxStart) -> None:
        branches = self._branches()
        if self._transaction is not None:
            raise PreconditionFailed("the channel has a branch already")
        xid = read_identifier(method.dtx_identifier)
        connection = self.channel.connection
        if self.channel.context.is_stopping:
            raise ResourceLocked("the daemon is being stopped")
        try:
            txn_id = branches.hold(self._owner, xid, self._ended)
        except XaError as error:
            raise PreconditionFailed(f"{error.code.symbol}: {error}") from None
        self._xid = xid
        self._transaction = branches.working(txn_id, connection.principal)
        self.channel.reply(method, DtxStartOk())

    def _work(self) -> Transaction:
        """Return the transaction that what is done on the channel belongs to.

        Raises:
            PreconditionFailed: there is none.
        """
        transaction = self._transaction
        if transaction is None:
            raise PreconditionFailed("no branch was started on the channel: dtx.start comes first")
        if self._xid is None or not transaction.is_open:
            raise PreconditionFailed(
                "the branch has ended: it was prepared, resolved or rolled back meanwhile"
            )
        return transaction

    def _ended(self) -> None:
        """The branch takes no more work, as its transaction manager has it."""
        transaction = self._transaction
        assert transaction is not None
        if self.channel.when_published(lambda: self._published(transaction)):
            transaction.pending += 1  # what waits for the DNS came before
        else:
            self._xid = None

    def _published(self, transaction: Transaction) -> None:
        self._xid = None
        if self.channel.is_ended:
            self.channel.branch_work = None
        transaction.pending -= 1
        complete = transaction.when_complete
        if not transaction.pending and complete is not None:
            transaction.when_complete = None
            complete()

    def end(self) -> None:
        """See `ClassMethods.end`: the association ends; what was done stays in the branch.

        So does what was published before and waits for the DNS, for which a prepare waits as well.
        """
        xid, transaction = self._xid, self._transaction
        if xid is not None and transaction is not None:
            if self.channel.when_published(lambda: self._published(transaction)):
                transaction.pending += 1
            else:
                self._xid = None
            branches = self.channel.connection.transactions.terms.branches
            if branches is not None:
                branches.let_go(self._owner, xid, self._ended)
        if self._xid is None:
            self.channel.branch_work = None
