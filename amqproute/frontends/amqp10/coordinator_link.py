# SPDX-License-Identifier: Apache-2.0
"""The transaction coordinator: a link on which a client declares and discharges (part 4 §4.2).

See `receiver_link` and `sender_link` for the use of transactions by links, and
`amqproute.broker.local_transaction` for transactions themselves. This is the conversation with the
controller:

    declare    -> declared(txn-id)                      or rejected
    discharge  -> accepted, when all of it is durable   or rejected: nothing was done

If a controller's link does not allow the outcome rejected, it is detached with the same error. When
the link ends, for whatever reason, the transactions declared on it are rolled back (requirement
X-31).

Where distributed transactions are offered, a declare with a global-id starts the branch of that
name, or joins it, and its discharge ends that association, with the flag fail if it has one. The
end of the branch is decided by ``amqp$dtxCoordinator`` (C-08).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute import conditions
from amqproute.broker.local_transaction import Transaction, TransactionTerms
from amqproute.broker.xa_states import Xa, XaError, Xid
from amqproute.errors import (
    AmqpError,
    DecodeError,
    InvalidField,
    NotAllowed,
    NotImplementedHere,
    StoreError,
    UnauthorizedAccess,
    Unresolved,
)
from amqproute.frontends.amqp10.link_refusal import error_of, may_reject
from amqproute.frontends.amqp10.link_table import AttachedLink, LinkTable
from amqproute.frontends.amqp10.suspended_links import RetentionPolicy
from amqproute.frontends.common.peer_error_log import short
from amqproute.message import Message
from amqproute.values import Principal
from amqproute.wire.amqp10 import codec, spec
from amqproute.wire.amqp10.delivery_states import ACCEPTED_STATE
from amqproute.wire.amqp10.link import Delivery, Link
from amqproute.wire.amqp10.types import Symbol

LOCAL: Final = (spec.TXN_LOCAL, spec.TXN_MULTI_PER_SESSION, spec.TXN_MULTI_SESSIONS)
"""Capabilities: the transactions of a connection can be used on all its sessions."""
Association = tuple[str, Xid]
"""Owner and name of a branch that was declared here."""
CREDIT: Final = 100
"""Most declares and discharges of a controller in progress."""


def capabilities(terms: TransactionTerms, principal: Principal) -> tuple[Symbol, ...]:
    """Return the capabilities for a principal (C-01, C-10)."""
    branches = terms.branches
    if branches is not None and branches.allows(principal):
        return (*LOCAL, spec.TXN_DISTRIBUTED)
    return LOCAL


def coordinator(
    attach: spec.Attach, principal: Principal, terms: TransactionTerms
) -> spec.Coordinator:
    """Return the target to answer with (X-13).

    Raises:
        AmqpError: the reason to refuse the link.
    """
    asked = attach.target
    assert isinstance(asked, spec.Coordinator)
    if principal.kind == "peer":
        raise NotAllowed(
            "transactions are not offered to peers: a broker relays each message separately"
        )
    offered = capabilities(terms, principal)
    missing = [each for each in asked.capabilities if each not in offered]
    if missing:
        raise NotImplementedHere(
            f"capabilities that are not offered: {', '.join(missing)[:256]}; offered are "
            f"{', '.join(offered)}"
        )
    return spec.Coordinator(capabilities=offered)


class CoordinatorLink(AttachedLink):
    """Our end of a link to the coordinator.

    Args:
        links: the links of its connection.
        link: our receiving end.
    """

    log = Logger()

    __slots__ = ("_associations", "_connection", "_links", "_transactions", "link", "retention")

    def __init__(self, links: LinkTable, link: Link) -> None:
        self._links = links
        self._connection = links.connection
        self._transactions = links.connection.transactions
        self.retention: RetentionPolicy | None = None
        self._associations: dict[bytes, list[Association]] = {}
        self.link = link

    def __repr__(self) -> str:
        return f"<CoordinatorLink {self.link.name!r} open={len(self._transactions.of(self))}>"

    def top_up(self) -> None:
        """Grant all of the credit again once half of it is used."""
        link = self.link
        if link.is_active and link.credit <= CREDIT // 2:
            link.flow(CREDIT)
            self._connection.flush()

    def deliveries_received(self, deliveries: Sequence[Delivery]) -> None:
        """Carry out declares and discharges, in order."""
        for delivery in deliveries:
            if not self.link.is_active:
                return
            try:
                self._obey(delivery)
            except AmqpError as error:
                self._refuse(delivery, error)
        self.top_up()

    def _obey(self, delivery: Delivery) -> None:
        command = _command_of(delivery)
        if isinstance(command, spec.Declare):
            self._declare(delivery, command)
        elif command.txn_id in self._associations:
            self._dissociate(command.txn_id, command.fail)
            self._answer(delivery, ACCEPTED_STATE)
        else:
            transaction = self._transactions.find(command.txn_id)
            if command.fail:
                self._roll_back(delivery, transaction)
            else:
                self._commit(delivery, transaction)

    def _declare(self, delivery: Delivery, declare: spec.Declare) -> None:
        if delivery.settled:
            raise NotAllowed(
                "the declare is settled: send it unsettled to receive the transaction's id"
            )
        if self._connection.is_stopping:
            raise AmqpError("the daemon is being stopped", condition=conditions.RESOURCE_LOCKED)
        if declare.global_id is None:
            txn_id = self._transactions.declare(self).id
        else:
            txn_id = self._associate(declare.global_id)
        self.link.session.settle([delivery], spec.Declared(txn_id=txn_id), True)

    # -- branches of distributed transactions (C-08) -----------------------------------------------

    def _associate(self, global_id: Any) -> bytes:
        branches = self._transactions.terms.branches
        if branches is None:
            raise NotImplementedHere("distributed transactions are not offered: no global-id")
        principal = self._connection.principal
        if not branches.allows(principal):
            raise UnauthorizedAccess(f"{principal} may not coordinate distributed transactions")
        try:
            xid = Xid.of(_decoded(global_id))
            txn_id: bytes = branches.associate(str(principal), xid)
        except XaError as error:
            raise _refusal(error) from None
        self._associations.setdefault(txn_id, []).append((str(principal), xid))
        return txn_id

    def _dissociate(self, txn_id: bytes, fails: bool) -> None:
        associations = self._associations[txn_id]
        owner, xid = associations.pop()
        if not associations:
            del self._associations[txn_id]
        branches = self._transactions.terms.branches
        assert branches is not None
        try:
            code = branches.end(owner, xid, "fail" if fails else None)
        except XaError as error:
            raise _refusal(error) from None
        if code is not Xa.OK and not fails:
            raise _refusal(XaError(code, f"branch {xid} can only be rolled back"))

    def _roll_back(self, delivery: Delivery, transaction: Transaction) -> None:
        if transaction.when_complete is not None:
            raise _unknown(transaction)  # it is being committed
        transaction.roll_back()
        self._answer(delivery, ACCEPTED_STATE)
        self._connection.conclude(transaction)

    def _commit(self, delivery: Delivery, transaction: Transaction) -> None:
        if transaction.when_complete is not None:
            raise _unknown(transaction)
        if transaction.pending:
            # Postings that wait for the DNS came before this discharge: they are part of it.
            transaction.when_complete = lambda: self._connection.event_batch.afterwards(
                lambda: self._commit_now(delivery, transaction, ())
            )
        else:
            self._commit_now(delivery, transaction, ())

    def _commit_now(
        self, delivery: Delivery, transaction: Transaction, asked: tuple[Any, ...]
    ) -> None:
        if not transaction.is_open:
            return  # it has ended meanwhile with its link
        try:
            done = self._connection.event_batch.commit(transaction)
        except Unresolved as unresolved:
            hop = unresolved.hop
            if hop in asked:
                transaction.fail(AmqpError(f"no route to {hop.key} at present"))
                self._commit_now(delivery, transaction, asked)
                return
            transaction.when_complete = lambda: None  # no time-out, no second discharge
            self._connection.admit(hop).addBoth(
                self._admitted, delivery, transaction, (*asked, hop)
            )
            return
        done.addCallbacks(
            self._committed,
            self._failed,
            (delivery, transaction),
            errbackArgs=(delivery, transaction),
        )
        done.addErrback(self._connection.broken, "discharging a transaction")

    def _admitted(
        self, _: object, delivery: Delivery, transaction: Transaction, asked: tuple[Any, ...]
    ) -> None:
        transaction.when_complete = None
        self._commit_now(delivery, transaction, asked)
        self._connection.flush()

    def _committed(self, _: object, delivery: Delivery, transaction: Transaction) -> None:
        self._answer(delivery, ACCEPTED_STATE)
        self._connection.conclude(transaction)

    def _failed(self, failure: Failure, delivery: Delivery, transaction: Transaction) -> None:
        cause = failure.value
        if isinstance(cause, AmqpError):
            words, info = str(cause), cause.info
        elif isinstance(cause, StoreError):
            words, info = "the message store failed", {}
        else:
            words, info = "an internal error, see the broker's log", {}
            self._connection.broken(failure, "committing a transaction")
        self._refuse(
            delivery,
            AmqpError(words, condition=conditions.TRANSACTION_ROLLBACK, info=info),
        )
        self._connection.conclude(transaction)

    def _answer(self, delivery: Delivery, outcome: Any) -> None:
        if self.link.is_active and not delivery.settled:
            self.link.session.settle([delivery], outcome, True)

    def _refuse(self, delivery: Delivery, error: AmqpError) -> None:
        self._connection.error_log.add(
            "{connection} ({principal}) coordinator link {link}: refused: {error}",
            link=short(self.link.name),
            error=str(error),
        )
        if not self.link.is_active:
            return
        details = error_of(error)
        if not delivery.settled and may_reject(self.link):
            self._answer(delivery, spec.Rejected(error=details))
        else:
            self._links.fail(self.link, details)

    def ended(self, deliveries: Sequence[Delivery], closed: bool, keeps: bool) -> None:
        """See `LinkEndpoint.ended`: what was declared on it is rolled back (X-31)."""
        for txn_id, associations in list(self._associations.items()):
            for _ in list(associations):
                with suppress(AmqpError):  # it has timed out, or its manager was faster
                    self._dissociate(txn_id, True)
        for transaction in self._transactions.of(self):
            transaction.roll_back()
            self._connection.conclude(transaction)


def _unknown(transaction: Transaction) -> AmqpError:
    return AmqpError(
        f"transaction {transaction.id.hex()} is already being discharged",
        condition=conditions.TRANSACTION_UNKNOWN_ID,
    )


def _decoded(global_id: Any) -> Any:
    """Return the value of a global-id that was sent as octets."""
    if not isinstance(global_id, bytes):
        return global_id
    try:
        return codec.decode(global_id)[0]
    except DecodeError:
        return None


_CONDITIONS: Final = {
    Xa.INVAL: conditions.INVALID_FIELD,
    Xa.RMERR: conditions.RESOURCE_LIMIT_EXCEEDED,
    Xa.NOTA: conditions.TRANSACTION_UNKNOWN_ID,
    Xa.RBROLLBACK: conditions.TRANSACTION_ROLLBACK,
    Xa.RBTIMEOUT: conditions.TRANSACTION_TIMEOUT,
}


def _refusal(error: XaError) -> AmqpError:
    condition = _CONDITIONS.get(error.code, conditions.ILLEGAL_STATE)
    return AmqpError(f"{error.code.symbol}: {error}", condition=condition)


def _command_of(delivery: Delivery) -> spec.Declare | spec.Discharge:
    """Decode the message of a controller.

    Raises:
        AmqpError: it is neither declare nor discharge.
    """
    message = Message(delivery.payload)
    if delivery.message_format or message.offsets.body_code != spec.SECTION_AMQP_VALUE:
        raise InvalidField("the body of a message to a coordinator has to be an amqp-value")
    (command,) = message.body_values()
    if isinstance(command, spec.Declare | spec.Discharge):
        return command
    raise InvalidField("a coordinator accepts declare and discharge only")


__all__ = ["LOCAL", "CoordinatorLink", "capabilities", "coordinator"]
