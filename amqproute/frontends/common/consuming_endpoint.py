# SPDX-License-Identifier: Apache-2.0
"""A receiver's end at a node: its capacity, and the return of the entries it holds.

Besides the receiver's own credit, an endpoint takes no more entries than the limits of a connection
and the memory of all connections allow. Entries go back to the source with an outcome, in the batch
of the events that are being handled; the receiver has its answer when that is durable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from zope.interface import implementer

from amqproute.broker.subscription import Subscription
from amqproute.entry import Entry
from amqproute.frontends.common.client_connection import ClientConnection
from amqproute.frontends.common.node_endpoint import NodeEndpoint
from amqproute.interfaces import IConsumer, ISource
from amqproute.journal.event import EntryTaker
from amqproute.journal.record import RecordKind
from amqproute.outcomes import RELEASED, Outcome
from amqproute.values import Principal

__all__ = ["ConsumingEndpoint"]


@implementer(IConsumer)
class ConsumingEndpoint(NodeEndpoint, ABC):
    """An `IConsumer` on a connection.

    A protocol's own endpoint is a subclass of this one, and sends what `deliver` hands it.

    Args:
        connection: its connection.
        source: the source of its entries.
        name: the name for the journal.
        copies: whether it browses: then it holds no entries, and its outcomes have no effect on
            others.
        dynamic: whether the source was created for it and is deleted with it.

    Attributes:
        is_volatile: whether the source is in memory only: its settlements need no commit.
        taker: the consumer, for the journal.
    """

    __slots__ = (
        "_bytes",
        "_connection",
        "_context",
        "copies",
        "dynamic",
        "is_volatile",
        "source",
        "taker",
    )

    direction = "out"

    def __init__(
        self,
        connection: ClientConnection,
        source: ISource,
        name: str,
        copies: bool = False,
        dynamic: bool = False,
    ) -> None:
        self._connection = connection
        self._context = connection.context
        self.source = source
        self.copies = copies
        self.dynamic = dynamic
        self.is_volatile = isinstance(source, Subscription)
        self._bytes = 0
        facts = {
            "peer": str(connection.principal),
            "connection": connection.facts.remote,
            "link": name,
            "level": connection.facts.level,
        }
        if connection.journal_protocol is not None:
            facts["protocol"] = connection.journal_protocol
        self.taker = EntryTaker(RecordKind.DELIVERED, facts)

    # -- IConsumer -------------------------------------------------------------------------------

    @property
    def takes_ahead(self) -> bool:
        """See `IConsumer.takes_ahead`."""
        return True

    @abstractmethod
    def capacity(self) -> int:
        """See `IConsumer.capacity`."""

    @abstractmethod
    def deliver(self, entries: Sequence[Entry]) -> None:
        """See `IConsumer.deliver`."""

    @abstractmethod
    def holds(self) -> Iterable[Entry]:
        """See `IConsumer.holds`."""

    def exhausted(self) -> None:
        """See `IConsumer.exhausted`."""

    # -- what the protocol adds ------------------------------------------------------------------

    # Any: deliveries are of the protocol's own kind.
    @abstractmethod
    def settle_deliveries(self, deliveries: Sequence[Any], outcome: Outcome) -> None:
        """Tell the receiver that the outcome of these is durable; see `AnsweredConsumer`."""

    # -- what it holds ---------------------------------------------------------------------------

    @property
    def node(self) -> ISource:
        """See `NodeEndpoint.node`."""
        return self.source

    @property
    def held_bytes(self) -> int:
        """See `NodeEndpoint.held_bytes`."""
        return self._bytes

    def check_access(self, principal: Principal) -> None:
        """See `NodeEndpoint.check_access`."""
        if self.address is not None:
            self._context.nodes.check_source(self.address, principal, self.copies)

    def leave(self) -> None:
        """See `NodeEndpoint.leave`: others may have what it holds."""
        self.source.detach(self)
        self._settle(tuple(self.holds()), RELEASED)

    def dispatch(self) -> None:
        """See `NodeEndpoint.dispatch`."""
        self.source.dispatch()

    def _room(self, credit: int, unsettled: int) -> int:
        """Return the number of entries it may take.

        Args:
            credit: the credit of the receiver, as far as it can be used now.
            unsettled: number of entries that it holds.
        """
        connection = self._connection
        if credit <= 0 or connection.is_paused:
            return 0
        context = self._context
        if context.is_stopping and not self.dynamic:
            return 0  # messages on a dynamic node, replies mostly, end with the daemon
        limits = connection.limits
        held = self._bytes
        if held >= limits.unsettled_bytes:
            return 0
        free = limits.unsettled - unsettled
        outgoing = context.outgoing
        if outgoing.is_pressed:
            free = min(free, outgoing.room(held, unsettled))
        return credit if credit < free else max(0, free)

    def _hold(self, entries: Iterable[Entry]) -> None:
        """Add the octets of entries that it holds from now on, until `forget`."""
        self._bytes += sum([len(entry.message.encoded) for entry in entries])

    def forget(self, entries: Sequence[Entry]) -> None:
        """Subtract the octets of entries that it does not hold any more."""
        octets = sum([len(entry.message.encoded) for entry in entries])
        self._bytes = max(0, self._bytes - octets)

    def _settle(
        self, entries: Sequence[Entry], outcome: Outcome, answer: Sequence[Any] | None = None
    ) -> None:
        """Give entries back to their source with an outcome.

        Args:
            entries: the entries.
            outcome: the outcome of the receiver, or ours.
            answer: deliveries, of the protocol's own kind, to be settled when that is durable.
        """
        event_batch = self._connection.event_batch
        with event_batch:
            batch = event_batch.batch() if answer or not self.is_volatile else None
            self.source.settle(entries, outcome, batch, consumer=self)
            if answer:
                event_batch.answer(self, answer, outcome)
        if self.is_active:
            self.source.dispatch()
