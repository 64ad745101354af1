# SPDX-License-Identifier: Apache-2.0
"""The links of one connection: which are attached, and what happens when one goes.

A link goes because the other side detaches it, because a session or the connection ends, for a
fault, because the same link is attached somewhere else (part 2 §2.6.1), or because its node is
not there any more. Whatever it is, `LinkTable.drop` comes last: it gives back what the link held,
and ends what was made for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from amqproute import conditions
from amqproute.broker.queue import Queue
from amqproute.broker.subscription import node_of
from amqproute.broker.topic import Topic
from amqproute.errors import AmqpError, UnauthorizedAccess
from amqproute.frontends.contract_enforcement import ActiveContract
from amqproute.frontends.coordinator_link import CoordinatorLink
from amqproute.frontends.peer_error_log import short
from amqproute.frontends.receiver_link import ReceiverLink
from amqproute.frontends.sender_link import SenderLink
from amqproute.frontends.suspended_links import (
    Key,
    ParkedDeliveries,
    ResolvedDeliveries,
    RetentionPolicy,
    SuspendedLink,
)
from amqproute.wire.amqp10 import engine_events as ev
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.link import Delivery, Link, LinkSession
from amqproute.wire.amqp10.state_tables import LinkStateName
from amqproute.wire.amqp10.types import Symbol

if TYPE_CHECKING:
    from amqproute.frontends.connection_frontend import Frontend

ERROR_MODE: Final = Symbol("error-mode")
"""Link property: what an error of the link ends, the link (`detach`) or its session (`end`)."""
DETACH: Final = Symbol("detach")
END: Final = Symbol("end")


class PendingAttach:
    """What stands for a link whose attach waits for something, with what arrived on it."""

    __slots__ = ("deliveries",)

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []


class LinkTable:
    """The links of one connection.

    Args:
        frontend: the connection.

    Attributes:
        attached: those that are attached, or wait to be.
        dynamic: dynamic nodes that were made for a link of this connection, and for which.
    """

    def __init__(self, frontend: Frontend) -> None:
        self._frontend = frontend
        self._shared = frontend.shared
        self.attached: set[Link] = set()
        self.dynamic: dict[Any, Link] = {}
        self._ending: set[Link] = set()

    def __len__(self) -> int:
        return len(self.attached)

    def note_error_mode(self, link: Link, attach: spec.Attach) -> None:
        """Remember which error-mode the other side asks for (L-46); detach unless it says end."""
        if attach.properties and attach.properties.get(ERROR_MODE) == END:
            self._ending.add(link)

    def error_mode(self, link: Link) -> Symbol:
        """Return the error-mode of a link."""
        return END if link in self._ending else DETACH

    def forget_error_mode(self, link: Link) -> Symbol:
        """Return it, for the last time."""
        mode = self.error_mode(link)
        self._ending.discard(link)
        return mode

    def lost(self) -> None:
        """The connection is gone, and all links with it."""
        # The coordinators first: what their transactions held is the consumers' again, then.
        for link in sorted(self.attached, key=lambda link: isinstance(link.context, SenderLink)):
            self.drop(link, list(link.unsettled.values()), keeps=True)
        for node in [node for node in self.dynamic if ends_with_session(node)]:
            self.delete_dynamic(node)

    def adopt(self, node: Any, link: Link) -> None:
        """Take a dynamic node in hand that has been made for a link."""
        self.dynamic[node] = link
        if isinstance(node, Queue) and node.life is not None:
            node.life.owner = link.session
            node.life.when_over = lambda: self.delete_dynamic(node)

    def creator_gone(self, node: Any) -> None:
        """The link that a dynamic node was made for is gone: its lifetime decides (K-21)."""
        if isinstance(node, Queue) and node.life is not None:
            node.life.creator_gone()
        else:
            self.delete_dynamic(node)

    def end_exclusive(self, session: LinkSession) -> None:
        """Exclusive nodes go with their session (N-17)."""
        for node in list(self.dynamic):
            life = getattr(node, "life", None)
            if life is not None and life.ends_with_session and life.owner is session:
                self.delete_dynamic(node)

    def steal(self, link: Link) -> None:
        """The same link attached on another connection takes it over (part 2 §2.6.1, L-09)."""
        key = self.key(link)
        other = self._shared.links.get(key)
        if other is not None and other[1] is not link:
            frontend, old = other
            if old.is_active:
                held = list(old.unsettled.values())
                old.detach(
                    error=spec.Error(
                        condition=conditions.LINK_STOLEN,
                        description="the link was attached on another connection",
                    )
                )
                frontend.links.drop(old, held, keeps=True)
                frontend.flush()
        self._shared.links[key] = (self._frontend, link)

    def key(self, link: Link) -> Key:
        """Return what names a link in this daemon."""
        container = self._frontend.connection.remote_container_id or ""
        return (self._frontend.owner, container, link.name, link.role)

    def detached(self, event: ev.LinkDetached) -> None:
        if event.error is not None and event.by_fault:
            self._frontend.complaints.add(
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
        """End a link for a fault of the other side's, or its session if that was agreed (E-04).

        What it held goes back. So do ``settled``, deliveries that the fault is about: where the
        receiver has settled them the engine does not count them among the link's any more.
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
        """End a session from our side; what all its links held goes back."""
        links = [link for link in self.attached if link.session is session]
        held = [list(link.unsettled.values()) for link in links]
        session.end(error)
        for link, deliveries in zip(links, held, strict=True):
            self.drop(link, deliveries, keeps=True)
        self.session_ended(session)

    def session_ended(self, session: LinkSession) -> None:
        """A session has ended, and its links before it."""
        self.end_exclusive(session)
        self._shared.suspended.session_ended(self._frontend, session)

    def drop(
        self,
        link: Link,
        deliveries: Sequence[Delivery],
        closed: bool = False,
        keeps: bool = False,
    ) -> None:
        """Forget a link that is gone; what was unsettled on it is kept, or goes back.

        Args:
            link: which.
            deliveries: what was unsettled.
            closed: the other side has given its terminus up, and not only the link.
            keeps: its terminus may outlive it.
        """
        self.attached.discard(link)
        self._ending.discard(link)
        key = self.key(link)
        known = self._shared.links.get(key)
        if known is not None and known[1] is link:
            del self._shared.links[key]
        self._frontend.complaints.link_ended(link)
        context, link.context = link.context, None
        if _has_ended(link):
            link.unsettled = {}  # they know their link: a circle
        if isinstance(context, PendingAttach):
            self._answer_ended(link, context)
        elif isinstance(context, SenderLink):
            if keeps and context.retention is not None:
                self._suspend(link, link.source, context.retention, context.suspend(deliveries))
            else:
                context.gone(deliveries, closed)
        elif isinstance(context, CoordinatorLink):
            context.gone()
        elif isinstance(context, ReceiverLink):
            context.origin.gone_at = self._shared.seconds()
            target = context.target
            if isinstance(target, Queue | Topic):
                target.publishers.leave(context)
            if context.part is not None:
                context.part.leave()
            if keeps and context.retention is not None:
                self._suspend(link, link.target, context.retention, context.suspend())
            else:
                context.gone()
            if isinstance(target, Queue) and target.life is not None:
                target.life.look()
            if self.dynamic.get(target) is link:
                self.creator_gone(target)

    def _suspend(
        self,
        link: Link,
        terminus: Any,
        retention: RetentionPolicy,
        held: ParkedDeliveries | ResolvedDeliveries,
    ) -> None:
        """Keep what a link leaves behind, if that is anything."""
        if len(held) or held.is_pending or retention.seconds:
            self._shared.suspended.add(
                SuspendedLink(
                    self.key(link), terminus, retention, held, self._frontend, link.session
                )
            )
        elif isinstance(held, ParkedDeliveries):
            held.is_waiting = False
            held.consumer = None  # it has nothing to be settled, and knows what it had parked

    def _answer_ended(self, link: Link, waiting: PendingAttach) -> None:
        """Answer the attach of a link that does not wait for the DNS, and say what is so (E-01)."""
        gone = AmqpError("the link is gone", condition=conditions.LINK_DETACH_FORCED)
        for delivery in waiting.deliveries:
            if not delivery.settled:
                self._frontend.transactions.doom(delivery, gone)
        if link.state not in (LinkStateName.OFFERED, LinkStateName.LAPSED):
            return
        if any(delivery.settled for delivery in waiting.deliveries):
            link.accept()
        else:
            link.refuse(conditions.LINK_DETACH_FORCED, "detached before it was attached")

    def delete_dynamic(self, node: Any) -> None:
        """End a dynamic node whose lifetime is over (N-22), and the links to it with it."""
        self.dynamic.pop(node, None)
        node = node_of(node)
        self._shared.broker.delete(node)
        self._shared.detach_from(lambda each, _: node_of(each) is node)

    def detach_from(self, is_gone: Callable[[Any, str | None], bool]) -> None:
        """Detach links whose node or alias is not there any more (L-03, A-05).

        Args:
            is_gone: tells it for a node and the address it was attached by.
        """
        for link in tuple(self.attached):
            context = link.context
            if isinstance(context, SenderLink):
                node, address = context.source, getattr(link.source, "address", None)
            elif isinstance(context, ReceiverLink):
                node, address = context.target, getattr(link.target, "address", None)
            else:
                continue
            if link.is_active and is_gone(node, address):
                words = f"{address} does not exist any more"
                self._detach(
                    link, spec.Error(condition=conditions.RESOURCE_DELETED, description=words)
                )

    def detach_unauthorized(self) -> int:
        """Detach links to whose node the other side may not attach any more; return how many."""
        count = 0
        principal = self._frontend.principal
        for link in tuple(self.attached):
            context = link.context
            if not link.is_active or not isinstance(context, ReceiverLink | SenderLink):
                continue
            try:
                if isinstance(context, ReceiverLink):
                    self._shared.termini.check_target(link.target, principal)
                else:
                    self._shared.termini.check_source(link.source, principal, context.copies)
            except UnauthorizedAccess as error:
                count += 1
                self._detach(
                    link, spec.Error(condition=error.condition, description=error.description)
                )
        return count

    def _detach(self, link: Link, error: spec.Error) -> None:
        held = list(link.unsettled.values())
        link.detach(error=error)
        self.drop(link, held)
        self._frontend.flush()

    def grant(self) -> None:
        """Bring the senders' credit in line with what they may have now."""
        for link in tuple(self.attached):
            if isinstance(link.context, ReceiverLink):
                link.context.grant()

    def apply_terms(self, contract: ActiveContract) -> None:
        """Have the links that are sent on go by changed terms."""
        for link in tuple(self.attached):
            context = link.context
            if isinstance(context, ReceiverLink):
                if context.part is not None:
                    context.part.leave()
                    context.part = None
                context.receive_part(contract)
                context.grant()

    def stop_taking(self) -> None:
        """Revoke the senders' credit; called when the daemon stops."""
        for link in self.attached:
            # Transactions that are open may still be discharged; none is declared any more.
            is_sent_on = link.role == "receiver" and not isinstance(link.context, CoordinatorLink)
            if is_sent_on and link.is_active and link.credit:
                link.flow(0)
        self._frontend.flush()


def _has_ended(link: Link) -> bool:
    """Tell whether the engine needs what is unsettled on a link no more, to detach it."""
    session = link.session
    return not (
        session.state is LinkStateName.OPEN
        and session.connection.state is LinkStateName.OPEN
        and link.state is not LinkStateName.DONE
    )


def ends_with_session(node: Any) -> bool:
    """Tell whether a dynamic node cannot outlive the session it was made on."""
    if isinstance(node, Queue) and node.life is not None:
        return node.life.ends_with_session
    return True


__all__ = ["DETACH", "END", "ERROR_MODE", "LinkTable", "PendingAttach", "ends_with_session"]
