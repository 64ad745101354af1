# SPDX-License-Identifier: Apache-2.0
"""The links of one connection: attached links, and their end.

A link ends because the other side detaches it, with its session or connection, for a fault, because
the same link is attached elsewhere (part 2 §2.6.1), or with its node. In each case `LinkTable.drop`
comes last: it makes the link's endpoint return the entries it held, and ends the dynamic node that
was created for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from amqproute import conditions
from amqproute.broker.queue import Queue
from amqproute.broker.subscription import node_of
from amqproute.broker.topic import Topic
from amqproute.errors import AmqpError
from amqproute.frontends.amqp10.amqp10_context import Amqp10Context
from amqproute.frontends.amqp10.suspended_links import (
    LinkKey,
    ParkedDeliveries,
    ResolvedDeliveries,
    RetentionPolicy,
    SuspendedLink,
)
from amqproute.frontends.common.client_connection import ClientConnection
from amqproute.frontends.common.node_endpoint import NodeEndpoint
from amqproute.frontends.common.peer_error_log import short
from amqproute.interfaces import INode
from amqproute.wire.amqp10 import engine_events as ev
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.connection import Connection
from amqproute.wire.amqp10.link import Delivery, Link, LinkSession
from amqproute.wire.amqp10.state_tables import LinkStateName
from amqproute.wire.amqp10.types import Symbol

__all__ = [
    "DETACH",
    "END",
    "ERROR_MODE",
    "AttachedLink",
    "LinkEndpoint",
    "LinkTable",
    "PendingAttach",
    "ends_with_session",
]

ERROR_MODE: Final = Symbol("error-mode")
"""Link property: whether an error of the link ends the link (`detach`) or its session (`end`)."""
DETACH: Final = Symbol("detach")
END: Final = Symbol("end")


class LinkEndpoint(NodeEndpoint):
    """Our end of a link: its `amqproute.wire.amqp10.link.Link.context`.

    Methods that an endpoint does not override have no meaning for it.

    Attributes:
        retention: how long its state outlives the link; None if it does not.
    """

    __slots__ = ()

    retention: RetentionPolicy | None

    def deliveries_received(self, deliveries: Sequence[Delivery]) -> None:
        """Take complete deliveries of the other side."""

    def ended(
        self, deliveries: Sequence[Delivery], closed: bool, keeps: bool
    ) -> ParkedDeliveries | ResolvedDeliveries | None:
        """Return the entries that the link held, since it is gone.

        Args:
            deliveries: its unsettled deliveries.
            closed: whether the other side has closed the terminus, and not only the link.
            keeps: whether its terminus may outlive it.

        Returns:
            The state of its terminus, if it outlives the link.
        """
        return None

    def parts_received(self, event: ev.PartsReceived) -> None:
        """Take parts of a very large delivery."""
        event.link.session.took(sum(map(len, event.parts)))

    def updated(self, deliveries: Sequence[Delivery], state: object, settled: bool) -> None:
        """Apply a disposition of the other side."""

    def flowed(self, flow: spec.Flow) -> None:
        """Apply a flow of the other side."""


class PendingAttach(LinkEndpoint):
    """The endpoint of a link whose attach waits, with the deliveries that have arrived.

    Args:
        connection: the connection.
        link: the link.
    """

    __slots__ = ("_connection", "_link", "deliveries", "retention")

    def __init__(self, connection: ClientConnection, link: Link) -> None:
        self._connection = connection
        self._link = link
        self.retention: RetentionPolicy | None = None
        self.deliveries: list[Delivery] = []

    def deliveries_received(self, deliveries: Sequence[Delivery]) -> None:
        """Keep deliveries until the attach is answered."""
        self.deliveries.extend(deliveries)
        for delivery in deliveries:
            self._connection.transactions.postpone(delivery)

    def ended(self, deliveries: Sequence[Delivery], closed: bool, keeps: bool) -> None:
        """Answer the attach of a link that has ended without waiting for the DNS (E-01)."""
        gone = AmqpError("the link is gone", condition=conditions.LINK_DETACH_FORCED)
        for delivery in self.deliveries:
            if not delivery.settled:
                self._connection.transactions.doom(delivery, gone)
        link = self._link
        if link.state not in (LinkStateName.OFFERED, LinkStateName.LAPSED):
            return
        if any(delivery.settled for delivery in self.deliveries):
            link.accept()
        else:
            link.refuse(conditions.LINK_DETACH_FORCED, "detached before it was attached")


class LinkTable:
    """The links of one connection.

    Args:
        connection: the connection.
        engine: its engine.
        context: shared by all AMQP 1.0 connections.

    Attributes:
        attached: links that are attached, or wait to be.
        dynamic: dynamic nodes of this connection, with the links they were created for.
    """

    def __init__(
        self, connection: ClientConnection, engine: Connection, context: Amqp10Context
    ) -> None:
        self.connection = connection
        self.engine = engine
        self.context = context
        self.attached: set[Link] = set()
        self.dynamic: dict[INode, Link] = {}
        self._ending: set[Link] = set()

    def __len__(self) -> int:
        return len(self.attached)

    def note_error_mode(self, link: Link, attach: spec.Attach) -> None:
        """Note the error-mode that the other side asks for (L-46); the default is detach."""
        if attach.properties and attach.properties.get(ERROR_MODE) == END:
            self._ending.add(link)

    def error_mode(self, link: Link) -> Symbol:
        """Return the error-mode of a link."""
        return END if link in self._ending else DETACH

    def forget_error_mode(self, link: Link) -> Symbol:
        """Return and forget it."""
        mode = self.error_mode(link)
        self._ending.discard(link)
        return mode

    def lost(self) -> None:
        """End all links with the connection."""
        # The coordinators first: consumers get back the entries of their transactions.
        for link in sorted(self.attached, key=lambda link: link.role == "sender"):
            self.drop(link, list(link.unsettled.values()), keeps=True)
        for node in [node for node in self.dynamic if ends_with_session(node)]:
            self.delete_dynamic(node)

    def adopt(self, node: INode, link: Link) -> None:
        """Own a dynamic node that has been created for a link."""
        self.dynamic[node] = link
        if isinstance(node, Queue) and node.life is not None:
            node.life.owner = link.session
            node.life.when_over = lambda: self.delete_dynamic(node)

    def _creator_ended(self, node: INode) -> None:
        """Handle the end of a dynamic node's link: its lifetime decides (K-21)."""
        if isinstance(node, Queue) and node.life is not None:
            node.life.creator_gone()
        else:
            self.delete_dynamic(node)

    def end_exclusive(self, session: LinkSession) -> None:
        """Delete the exclusive nodes of a session that has ended (N-17)."""
        for node in list(self.dynamic):
            life = getattr(node, "life", None)
            if life is not None and life.ends_with_session and life.owner is session:
                self.delete_dynamic(node)

    def steal(self, link: Link) -> None:
        """Detach the same link on another connection (part 2 §2.6.1, L-09)."""
        key = self.key(link)
        attached = self.context.links.get(key)
        if attached is not None and attached[1] is not link:
            holder, old = attached
            if old.is_active:
                holder.surrender(old)
        self.context.links[key] = (self, link)

    def surrender(self, link: Link) -> None:
        """Detach a link that has been attached on another connection."""
        held = list(link.unsettled.values())
        link.detach(
            error=spec.Error(
                condition=conditions.LINK_STOLEN,
                description="the link was attached on another connection",
            )
        )
        self.drop(link, held, keeps=True)
        self.connection.flush()

    def key(self, link: Link) -> LinkKey:
        """Return the key of a link in this daemon."""
        container = self.engine.remote_container_id or ""
        return (self.connection.owner, container, link.name, link.role)

    def detached(self, event: ev.LinkDetached) -> None:
        """Drop a link that the other side has detached, or that has ended for its fault."""
        if event.error is not None and event.by_fault:
            self.connection.error_log.add(
                "{connection} ({principal}) link {link} detached for its fault: "
                "{condition}: {description}",
                link=short(event.link.name),
                condition=event.error.condition,
                description=short(event.error.description),
            )
        closed = event.closed and not event.by_fault
        ends = self.error_mode(event.link) == END
        self.drop(event.link, event.deliveries, closed, keeps=not event.closed)
        if event.by_fault and ends:
            self.end_session(event.link.session, event.error)

    def fail(self, link: Link, error: spec.Error, settled: Sequence[Delivery] = ()) -> None:
        """End a link for a fault of the other side, or its session if that was agreed (E-04).

        Entries that it held go back. So do those of ``settled``, the deliveries of the fault: where
        the receiver has settled them the engine does not have them any more.
        """
        held = list(link.unsettled.values())
        known = set(map(id, held))
        held.extend(delivery for delivery in settled if id(delivery) not in known)
        session = link.session
        ends = self.error_mode(link) == END
        if not ends:
            link.detach(error=error)
        self.drop(link, held)
        if ends:
            self.end_session(session, error)

    def end_session(self, session: LinkSession, error: spec.Error | None) -> None:
        """End a session from our side; the entries held by its links go back."""
        links = [link for link in self.attached if link.session is session]
        held = [list(link.unsettled.values()) for link in links]
        session.end(error)
        for link, deliveries in zip(links, held, strict=True):
            self.drop(link, deliveries, keeps=True)
        self.session_ended(session)

    def session_ended(self, session: LinkSession) -> None:
        """Handle the end of a session, after that of its links."""
        self.end_exclusive(session)
        self.context.suspended.session_ended(self.connection, session)

    def drop(
        self,
        link: Link,
        deliveries: Sequence[Delivery],
        closed: bool = False,
        keeps: bool = False,
    ) -> None:
        """Forget a link that is gone; its unsettled entries are kept, or go back.

        Args:
            link: the link.
            deliveries: its unsettled deliveries.
            closed: whether the other side has closed the terminus, and not only the link.
            keeps: whether its terminus may outlive it.
        """
        self.attached.discard(link)
        self._ending.discard(link)
        key = self.key(link)
        known = self.context.links.get(key)
        if known is not None and known[1] is link:
            del self.context.links[key]
        self.connection.error_log.link_ended(link.name)
        endpoint: LinkEndpoint | None = link.context
        link.context = None
        if _has_ended(link):
            link.unsettled = {}  # they refer to their link: a circle
        if endpoint is None:
            return
        held = endpoint.ended(deliveries, closed, keeps)
        if held is not None and endpoint.retention is not None:
            self._suspend(link, endpoint.retention, held)
        node = endpoint.node
        if link.role == "receiver" and isinstance(node, Queue) and node.life is not None:
            node.life.look()
        if node is not None and self.dynamic.get(node) is link:
            self._creator_ended(node)

    def _suspend(
        self,
        link: Link,
        retention: RetentionPolicy,
        held: ParkedDeliveries | ResolvedDeliveries,
    ) -> None:
        """Keep the state of a link, if there is any."""
        if len(held) or held.is_pending or retention.seconds:
            terminus = link.source if link.role == "sender" else link.target
            self.context.suspended.add(
                SuspendedLink(
                    self.key(link), terminus, retention, held, self.connection, link.session
                )
            )
        elif isinstance(held, ParkedDeliveries):
            held.is_waiting = False
            held.consumer = None  # it has no unsettled delivery, and refers to its parked ones

    def delete_dynamic(self, node: INode) -> None:
        """Delete a dynamic node whose lifetime is over (N-22), with the links to it."""
        self.dynamic.pop(node, None)
        found = node_of(node)
        assert isinstance(found, Queue | Topic)
        common = self.context.common
        common.broker.delete(found)
        common.detach_from(lambda each, _: node_of(each) is found)

    def detach(self, link: Link, error: spec.Error) -> None:
        """Detach a link from our side; entries it held go back."""
        held = list(link.unsettled.values())
        link.detach(error=error)
        self.drop(link, held)
        self.connection.flush()

    def endpoints(self) -> Iterator[LinkEndpoint]:
        """Iterate over the endpoints of the attached links."""
        for link in tuple(self.attached):
            if link.context is not None:
                yield link.context


class AttachedLink(LinkEndpoint):
    """The endpoint of a link whose attach has been answered.

    Attributes:
        link: our end of it.
    """

    __slots__ = ()

    link: Link
    _links: LinkTable

    @property
    def name(self) -> str:
        """See `NodeEndpoint.name`."""
        return self.link.name

    @property
    def address(self) -> str | None:
        """See `NodeEndpoint.address`."""
        link = self.link
        terminus = link.source if link.role == "sender" else link.target
        return getattr(terminus, "address", None)

    @property
    def is_active(self) -> bool:
        """See `NodeEndpoint.is_active`."""
        return self.link.is_active

    def detach(self, condition: conditions.Condition, words: str) -> None:
        """See `NodeEndpoint.detach`."""
        self._links.detach(self.link, spec.Error(condition=condition, description=words))


def _has_ended(link: Link) -> bool:
    """Return whether the engine does not need a link's unsettled deliveries any more."""
    session = link.session
    return not (
        session.state is LinkStateName.OPEN
        and session.connection.state is LinkStateName.OPEN
        and link.state is not LinkStateName.DONE
    )


def ends_with_session(node: INode) -> bool:
    """Return whether a dynamic node cannot outlive its session."""
    if isinstance(node, Queue) and node.life is not None:
        return node.life.ends_with_session
    return True
