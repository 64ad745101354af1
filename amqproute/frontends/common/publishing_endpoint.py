# SPDX-License-Identifier: Apache-2.0
"""A sender's end at a node: its credit, its contract, and its messages on their way to a batch.

Granted credit and uncommitted deliveries are at most a window together; less where the target has
less space or the sender's contract allows less, and none while the store takes nothing
(`amqproute.broker.publish_gate`). The number is decided here; the protocol tells the sender.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from twisted.python.failure import Failure

from amqproute.broker.commit_batch import Batch
from amqproute.broker.publish_gate import PublishGate
from amqproute.broker.queue import Queue
from amqproute.broker.topic import Topic
from amqproute.frontends.common.client_connection import ClientConnection
from amqproute.frontends.common.contract_enforcement import ActiveContract, ContractShare
from amqproute.frontends.common.event_batch import PublishedDelivery
from amqproute.frontends.common.node_endpoint import NodeEndpoint
from amqproute.frontends.common.waiting_deliveries import WaitingDeliveries
from amqproute.interfaces import ITarget
from amqproute.message import Message
from amqproute.values import NextHop, Origin, Principal

__all__ = ["PublishingEndpoint"]

D = TypeVar("D", bound=PublishedDelivery)


class PublishingEndpoint(NodeEndpoint, ABC, Generic[D]):
    """Grants credit to a sender, and puts its messages on a target.

    A protocol's own endpoint is a subclass of this one, and the
    `amqproute.frontends.common.event_batch.PublishingLink` of its deliveries besides: they come in
    by `take`; `received` puts each by `_put`, counts them in `_uncommitted`, and when they are
    committed takes them out of there again and calls `grant`.

    Args:
        connection: its connection.
        target: the target of its messages.
        origin: their sender.
        window: deliveries that may be granted or uncommitted at once.

    Attributes:
        share: its share of the sender's contract; None without one.
        waiting: deliveries that have arrived and cannot be put yet.
        is_durable: whether the outcomes of its messages are kept in the store as well.
    """

    __slots__ = (
        "_connection",
        "_gate",
        "_is_braked",
        "_uncommitted",
        "origin",
        "share",
        "target",
        "waiting",
        "window",
    )

    direction = "in"
    is_durable = False

    def __init__(
        self, connection: ClientConnection, target: ITarget, origin: Origin, window: int
    ) -> None:
        self._connection = connection
        self.target = target
        self.origin = origin
        origin.has_credit = isinstance(target, Topic)
        self.window = window
        self.share: ContractShare | None = None
        self._uncommitted = 0
        self._gate: PublishGate = connection.context.broker.gate
        self.waiting: WaitingDeliveries[D] = WaitingDeliveries(self._gate, connection)
        # Requests to services may free room.
        self._is_braked = not getattr(target, "acts_at_once", False)

    # -- what the protocol adds ------------------------------------------------------------------

    @property
    @abstractmethod
    def granted(self) -> int:
        """Deliveries that the other side may still send."""

    @abstractmethod
    def _send_credit(self, credit: int) -> None:
        """Tell the sender its credit."""

    @abstractmethod
    def received(self, deliveries: Sequence[D], batch: Batch) -> list[D]:
        """See `PublishingLink.received`."""

    @abstractmethod
    def committed(self, deliveries: list[D]) -> None:
        """See `PublishingLink.committed`."""

    @abstractmethod
    def failed(self, deliveries: list[D], failure: Failure, in_doubt: bool = False) -> None:
        """See `PublishingLink.failed`."""

    @property
    def waiting_octets(self) -> int:
        """Octets of messages that have arrived and are not put yet."""
        return 0

    # -- credit ----------------------------------------------------------------------------------

    @property
    def node(self) -> ITarget:
        """See `NodeEndpoint.node`."""
        return self.target

    def check_access(self, principal: Principal) -> None:
        """See `NodeEndpoint.check_access`."""
        self._connection.context.nodes.check_target(self.address, principal)

    def join(self, contract: ActiveContract | None) -> None:
        """Begin, with shares of the target's space and the sender's contract; grant credit."""
        if isinstance(self.target, Queue | Topic):
            self.target.publishers.join(self)
        if contract is not None:
            self.join_contract(contract)
        self.grant()

    def leave(self) -> None:
        """See `NodeEndpoint.leave`."""
        if isinstance(self.target, Queue | Topic):
            self.target.publishers.leave(self)
        if self.share is not None:
            self.share.leave()

    def grant(self) -> None:
        """Top the credit up once half of it is used."""
        if self.is_active and not self._connection.context.is_stopping:
            self._renew(self.granted, 0)

    def _renew(self, credit: int, unconfirmed: int) -> None:
        """Decide the credit.

        Args:
            credit: the present credit.
            unconfirmed: deliveries that take a place of the window besides those not committed.
        """
        if self._is_braked and not self._gate.is_open:
            if credit:
                self._flow(0)
            return
        target = self.target
        if isinstance(target, Queue | Topic):
            is_shared = bounded = True
            ceiling = space = target.publishers.allowance(self)
        else:
            is_shared = bounded = False
            ceiling = space = target.space()
        window = self.window
        if self.share is not None:
            share = self.share
            allowed = share.contract.allowance(share, self._uncommitted, window)
            ceiling = min(space, allowed)
            bounded = True
        room = min(window - self._uncommitted - unconfirmed, ceiling)
        if room > credit and (credit <= window // 2 or room < window // 2):
            self._flow(room)
        elif bounded and max(0, ceiling) < credit:
            self._flow(max(0, ceiling))  # there are more publishers than before (F-03)
        if room <= 0 and (is_shared or space <= 0):
            target.when_space(self.grant)

    def join_contract(self, contract: ActiveContract) -> None:
        """Apply the sender's contract from now on, except to services."""
        if self._is_braked and contract.terms:
            self.share = contract.join(self)
            self.share.granted(self.granted)
        self.origin.account = contract.account

    def apply_terms(self, contract: ActiveContract) -> None:
        """See `NodeEndpoint.apply_terms`."""
        if self.share is not None:
            self.share.leave()
            self.share = None
        self.join_contract(contract)
        self.grant()

    def stop_taking(self) -> None:
        """See `NodeEndpoint.stop_taking`."""
        if self.is_active and self.granted:
            self._send_credit(0)

    def revoke(self) -> None:
        """Revoke the sender's credit."""
        if self.is_active and self.granted:
            self._flow(0)

    def _flow(self, credit: int) -> None:
        self._send_credit(credit)
        if self.share is not None:
            self.share.granted(credit)
        self._connection.flush()

    # -- messages --------------------------------------------------------------------------------

    def take(self, deliveries: Sequence[D]) -> None:
        """Count arriving deliveries against the sender's contract, and put them."""
        if self.share is not None:
            self.share.received(len(deliveries), sum([len(each.payload) for each in deliveries]))
        self._connection.event_batch.put(self, deliveries)

    def _put(self, message: Message, batch: Batch, tag: bytes) -> None:
        """Put one message on the target, and charge it to the sender's contract.

        Raises:
            AmqpError: the target refuses it.
            Unresolved: it is not known yet whether there is a way.
        """
        origin = self.origin
        origin.tag = tag
        account = origin.account
        if account is None or self.share is None:
            self.target.put(message, batch, origin)
        else:
            before = account.octets
            self.target.put(message, batch, origin)
            self.share.contract.charged(max(account.octets - before, message.size))

    # -- messages that wait ----------------------------------------------------------------------

    def wait_for(self, gate: PublishGate, deliveries: list[D]) -> None:
        """See `PublishingLink.wait_for`."""
        self.waiting.wait_for_gate(deliveries, lambda: self.waiting.over(gate, self._put_waiting))

    def _wait_for_hop(self, delivery: D, hop: NextHop) -> None:
        """Keep a delivery until it is known whether there is a way to its domain."""
        self.waiting.wait_for(hop, delivery)
        admitted = self._connection.admit(hop)
        admitted.addBoth(lambda _: self.waiting.over(hop, self._put_waiting))

    def _put_waiting(self, deliveries: list[D]) -> None:
        """Put deliveries that have waited; those behind them may have to wait again."""
        self._uncommitted -= len(deliveries)
        self._connection.event_batch.put_now(self, deliveries)
