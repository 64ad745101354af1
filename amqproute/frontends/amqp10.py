# SPDX-License-Identifier: Apache-2.0
"""The AMQP 1.0 frontend: events of one accepted connection to verbs of the broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute import conditions
from amqproute.auth.realm import Authenticator
from amqproute.auth.realm import TransportFacts as AuthFacts
from amqproute.broker.broker import Broker
from amqproute.broker.options import Lifetime
from amqproute.broker.queue import Queue
from amqproute.broker.receipts import Receipts, Stream
from amqproute.broker.subscription import node_of
from amqproute.broker.topic import Topic
from amqproute.broker.transaction import Transaction, Transactions, TransactionTerms
from amqproute.entry import Entry
from amqproute.errors import (
    AmqpError,
    InternalError,
    NotFound,
    ResourceLimitExceeded,
    ResourceLocked,
    Unresolved,
)
from amqproute.frontends.coordinator import Coordinator, coordinator
from amqproute.frontends.inbound import Inbound
from amqproute.frontends.limits import FrontendLimits
from amqproute.frontends.outbound import Outbound
from amqproute.frontends.terminus import Found, Termini
from amqproute.interfaces import IConnectionUser
from amqproute.net.pump import TransportFacts
from amqproute.values import ANONYMOUS_PRINCIPAL, FLOOR, STREAM, NextHop, Origin, Principal
from amqproute.wire.amqp10 import events as ev
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.connection import Connection
from amqproute.wire.amqp10.link import Delivery, Link
from amqproute.wire.amqp10.session import Session
from amqproute.wire.amqp10.states import State
from amqproute.wire.amqp10.types import Symbol
from amqproute.wire.mechanisms import Verify

LONGEST_STREAM = 128
ERROR_MODE = Symbol("error-mode")
"""Link property: what an error of the link ends, the link (`detach`) or its session (`end`)."""
DETACH = Symbol("detach")
END = Symbol("end")


MOST_COMPLAINTS = 10
"""Refusals of one connection that are logged within `COMPLAINT_SECONDS`; others are counted."""
COMPLAINT_SECONDS = 60.0
LONGEST_QUOTED = 256
"""Characters of the other side's names and words that a log line repeats."""


@dataclass(slots=True)
class Shared:
    """What all frontends of a daemon have in common.

    Attributes:
        broker: the local nodes.
        termini: attach to node.
        hops: the ways out, an `IHops`.
        receipts: what peers have delivered already.
        limits: bounds of a connection.
        now_ms: the wall clock.
        seconds: the monotonic clock of the engines.
        transactions: what holds for local transactions.
        frontends: every frontend with a connection.
        links: every attached link, by who, container-id, name and role: for link stealing.
        serves: whether the host name of an open is one of ours (A-16).
        when_peer: called with the domains a peer has proved, when it opens.
    """

    broker: Broker
    termini: Termini
    hops: Any
    receipts: Receipts
    limits: FrontendLimits
    now_ms: Callable[[], int]
    seconds: Callable[[], float]
    transactions: TransactionTerms
    frontends: set[Frontend] = field(default_factory=set)
    links: dict[tuple[str, str, str, str], tuple[Frontend, Link]] = field(default_factory=dict)
    serves: Callable[[str | None], bool] = lambda _: True
    when_peer: Callable[[Principal], None] = lambda _: None
    is_stopping: bool = False


class _Waiting:
    """A link whose attach waits for the DNS, with what arrived on it meanwhile."""

    __slots__ = ("deliveries",)

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []


@implementer(IConnectionUser)
class Frontend:
    """One accepted connection.

    Args:
        connection: the engine, in the server role.
        shared: what all connections have in common.
        authenticator: of the listener it came in by.
        facts: what the transport proves.

    Attributes:
        principal: who is there; anonymous until proved otherwise.
        transactions: what it has declared and not discharged.
    """

    log = Logger()

    def __init__(
        self,
        connection: Connection,
        shared: Shared,
        authenticator: Authenticator,
        facts: TransportFacts,
    ) -> None:
        self.connection = connection
        self.shared = shared
        self.limits = shared.limits
        self.now_ms = shared.now_ms
        self.facts = facts
        self.principal: Principal = ANONYMOUS_PRINCIPAL
        self.is_paused = False
        self.transactions = Transactions(shared.transactions, self._timed_out)
        self._authenticator = authenticator
        self._pump: Any = None
        self._batch: Any = None
        self._depth = 0
        self._taken: list[tuple[Inbound, list[Delivery]]] = []
        self._answers: list[tuple[Link, Sequence[Delivery], Any]] = []
        self._later: list[Callable[[], None]] = []
        self._uncommitted = 0
        self._uncommitted_bytes = 0
        self._links: set[Link] = set()
        self._dynamic: dict[Any, Link] = {}
        self._refusals: dict[tuple[str, str], int] = {}
        self._is_open = False
        self._complaints = 0
        self._complaints_until = 0.0
        self._handlers: dict[type, Callable[[Any], None]] = {
            ev.CredentialsPresented: self._credentials_presented,
            ev.Authenticated: self._authenticated,
            ev.AuthenticationFailed: self._authentication_failed,
            ev.OpenReceived: self._open_received,
            ev.SessionBegun: self._session_begun,
            ev.LinkAttached: self._link_attached,
            ev.DeliveriesReceived: self._deliveries_received,
            ev.DeliveriesUpdated: self._deliveries_updated,
            ev.LinkFlowed: self._link_flowed,
            ev.SessionFlowed: self._session_flowed,
            ev.LinkDetached: self._link_detached,
            ev.SessionEnded: self._session_ended,
            ev.ConnectionClosed: self._connection_closed,
            ev.TlsAgreed: _nothing,
        }

    def __repr__(self) -> str:
        return (
            f"<Frontend {self.facts.remote} {self.principal} links={len(self._links)} "
            f"uncommitted={self._uncommitted}>"
        )

    @property
    def is_stopping(self) -> bool:
        """The daemon is on its way out: nothing new is taken or handed out."""
        return self.shared.is_stopping

    @property
    def is_idle(self) -> bool:
        """Nothing of this connection waits for the store."""
        return self._uncommitted == 0 and self._batch is None

    @property
    def holds_nothing(self) -> bool:
        """No consumer on this connection holds unsettled deliveries."""
        return not any(link.role == "sender" and link.unsettled for link in self._links)

    def row(self) -> dict[str, Any]:
        """Return what an operator wants to know, for the management node."""
        return {
            "name": self.facts.remote,
            "principal": str(self.principal),
            "container": self.connection.remote_container_id or "",
            "tls": self.facts.tls_version or "",
            "links": len(self._links),
            "transactions": len(self.transactions),
            "deliveries-in": self.connection.deliveries_in,
            "deliveries-out": self.connection.deliveries_out,
        }

    # -- IConnectionUser -------------------------------------------------------------------------

    def connected(self, pump: Any) -> None:
        """See `IConnectionUser.connected`."""
        self._pump = pump
        self.shared.frontends.add(self)

    def secured(self, facts: TransportFacts) -> None:
        """The connection has been upgraded to TLS."""
        self.facts = facts

    def events(self, events: Sequence[Any]) -> None:
        """See `IConnectionUser.events`: one batch for all of them."""
        handlers = self._handlers
        self._depth += 1
        try:
            for event in events:
                handlers[type(event)](event)
        finally:
            self._leave()

    def paused(self) -> None:
        """See `IConnectionUser.paused`."""
        self.is_paused = True

    def writable(self) -> None:
        """See `IConnectionUser.writable`."""
        self.is_paused = False
        self._dispatch_all()

    def lost(self, reason: Failure) -> None:
        """See `IConnectionUser.lost`."""
        self.shared.frontends.discard(self)
        for link in list(self._links):
            self.drop(link, list(link.unsettled.values()))
        for node in [node for node in self._dynamic if _ends_with_session(node)]:
            self.delete_dynamic(node)
        self._tell_silence()
        self._pump = None

    # -- batches: one for everything that happens in one go ---------------------------------------

    def _current(self) -> Any:
        if self._batch is None:
            self._batch = self.shared.broker.begin()
        return self._batch

    def _leave(self) -> None:
        self._depth -= 1
        if self._depth:
            return
        self._commit_batch()
        while self._later:
            self._later.pop(0)()

    def afterwards(self, do: Callable[[], None]) -> None:
        """Call ``do`` when everything that is happening in one go has happened."""
        if self._depth:
            self._later.append(do)
        else:
            do()

    def _commit_batch(self) -> None:
        if self._batch is None:
            return
        batch, taken, answers = self._batch, self._taken, self._answers
        self._batch = None
        self._taken = []
        self._answers = []
        self._uncommitted += 1
        size = 0
        for _, deliveries in taken:
            for delivery in deliveries:
                size += len(delivery.payload)
        self._hold(size)
        # A consumer that has settled waits for nothing; a publisher does.
        batch.commit(patient=not (taken or answers)).addCallbacks(
            self._committed,
            self._failed,
            (taken, answers, size),
            errbackArgs=(taken, answers, size),
        )

    def _hold(self, size: int) -> None:
        """Read nothing more while too much waits for the disk: credit counts messages only."""
        self._uncommitted_bytes += size
        if self._uncommitted_bytes > self.limits.uncommitted_bytes and self._pump is not None:
            self._pump.hold_reading()

    def _release(self, size: int) -> None:
        """So much is on the disk, or never will be."""
        waiting = self._uncommitted_bytes = self._uncommitted_bytes - size
        limit = self.limits.uncommitted_bytes
        if waiting <= limit < waiting + size and self._pump is not None:
            self._pump.release_reading()

    def _committed(
        self,
        _: object,
        taken: list[tuple[Inbound, list[Delivery]]],
        answers: list[tuple[Link, Sequence[Delivery], Any]],
        size: int,
    ) -> None:
        self._uncommitted -= 1
        self._release(size)
        for inbound, deliveries in taken:
            inbound.committed(deliveries)
        for link, held, outcome in answers:
            if link.is_active:
                link.session.settle(held, outcome, True)
        self.flush()

    def _failed(
        self,
        failure: Failure,
        taken: list[tuple[Inbound, list[Delivery]]],
        answers: list[tuple[Link, Sequence[Delivery], Any]],
        size: int,
    ) -> None:
        self._uncommitted -= 1
        self._release(size)
        self.log.failure(
            "{connection}: the store refused a batch; {count} deliveries were not taken",
            failure,
            connection=self.facts.remote,
            count=sum(len(deliveries) for _, deliveries in taken),
        )
        for inbound, deliveries in taken:
            inbound.failed(deliveries, failure)
        self.flush()

    def flush(self) -> None:
        """Have what the engine has to say written before the reactor turns."""
        if self._pump is not None:
            self._pump.schedule_flush()

    # -- connection ------------------------------------------------------------------------------

    def auth_facts(self) -> AuthFacts:
        """The transport's facts in the words of the auth room."""
        facts = self.facts
        return AuthFacts(
            facts.host or "",
            facts.tls_version is not None,
            tuple(sorted(facts.certificate_domains)),
            facts.unix_uid,
        )

    def _credentials_presented(self, event: ev.CredentialsPresented) -> None:
        step = Verify(event.username, event.password)
        verified = self._authenticator.verify(step, self.auth_facts())
        verified.addCallback(self._verified)
        verified.addErrback(self.broken, "verifying a password")

    def _verified(self, granted: bool) -> None:
        if self._pump is not None:
            self.events(self.connection.credentials_verified(granted, self.shared.seconds()))
            self.flush()

    def _authenticated(self, event: ev.Authenticated) -> None:
        if event.identity is not None:
            self.principal = self._authenticator.principal(event.identity)

    def _authentication_failed(self, event: ev.AuthenticationFailed) -> None:
        self.log.warn(
            "{connection} refused: {mechanism} authentication failed: {reason}",
            connection=self.facts.remote,
            mechanism=event.mechanism or "SASL",
            reason=event.reason,
        )

    def _open_received(self, event: ev.OpenReceived) -> None:
        if not self.shared.serves(event.open.hostname):
            self.close(
                conditions.NOT_FOUND, f"no broker named {event.open.hostname!r} is served here"
            )
            return
        self.connection.open()
        self._is_open = True
        self.log.info(
            "{connection} opened by {principal}, container {container}{tls}",
            connection=self.facts.remote,
            principal=str(self.principal),
            container=_short(event.open.container_id),
            tls=f", {self.facts.tls_version}" if self.facts.tls_version else "",
        )
        if self.principal.kind == "peer":
            self.shared.when_peer(self.principal)

    def _connection_closed(self, event: ev.ConnectionClosed) -> None:
        if event.error is None:
            if self._is_open:
                self.log.info("{connection} closed", connection=self.facts.remote)
            return
        level = self.log.warn if event.by_fault else self.log.info
        level(
            "{connection} ({principal}) closed{why}: {condition}: {description}",
            connection=self.facts.remote,
            principal=str(self.principal),
            why=" by us for its fault" if event.by_fault else " by the other side",
            condition=_short(event.error.condition),
            description=_short(event.error.description),
        )

    def _session_begun(self, event: ev.SessionBegun) -> None:
        if not event.is_answer:
            event.session.accept()

    def _session_ended(self, event: ev.SessionEnded) -> None:
        if event.error is not None and event.by_fault:
            self._complain(
                "{connection} ({principal}) session ended for its fault: "
                "{condition}: {description}",
                condition=event.error.condition,
                description=_short(event.error.description),
            )
        self._end_exclusive(event.session)

    def close(self, condition: conditions.Condition, words: str) -> None:
        """Close the connection from our side."""
        if self._pump is None:
            return
        self.connection.close(spec.Error(condition=condition, description=words))
        self.flush()

    def detach_from(self, is_gone: Callable[[Any, str | None], bool]) -> None:
        """Detach links whose node or alias is not there any more (L-03, A-05).

        Args:
            is_gone: tells it for a node and the address it was attached by.
        """
        for link in tuple(self._links):
            context = link.context
            if isinstance(context, Outbound):
                node, address = context.source, getattr(link.source, "address", None)
            elif isinstance(context, Inbound):
                node, address = context.target, getattr(link.target, "address", None)
            else:
                continue
            if link.is_active and is_gone(node, address):
                held = list(link.unsettled.values())
                link.detach(
                    error=spec.Error(
                        condition=conditions.RESOURCE_DELETED,
                        description=f"{address} does not exist any more",
                    )
                )
                self.drop(link, held)
                self.flush()

    def stop_taking(self) -> None:
        """Revoke the senders' credit; called when the daemon stops."""
        for link in self._links:
            # Transactions that are open may still be discharged; none is declared any more.
            is_sent_on = link.role == "receiver" and not isinstance(link.context, Coordinator)
            if is_sent_on and link.is_active and link.credit:
                link.flow(0)
        self.flush()

    # -- links -----------------------------------------------------------------------------------

    def _link_attached(self, event: ev.LinkAttached) -> None:
        if event.is_answer:
            return
        link = event.link
        try:
            if len(self._links) >= self.limits.links:
                raise ResourceLimitExceeded(
                    f"this connection has {len(self._links)} links, no more are allowed",
                    info={"limiter": "max-links"},
                )
            if isinstance(event.attach.target, spec.Coordinator) and link.role == "receiver":
                self._join_coordinator(link, event.attach)
                return
            found = self._find(link, event.attach)
            if found.ready is not None:
                self._join_when_ready(link, event.attach, found)
                return
        except Unresolved as unresolved:
            link.context = waiting = _Waiting()
            self._links.add(link)
            self.admit(unresolved.hop).addBoth(self._found_out, link, event.attach, waiting)
        except AmqpError as error:
            self._refuse(link, error)
        else:
            self._join(link, event.attach, found)

    def _join_coordinator(self, link: Link, attach: spec.Attach) -> None:
        target = coordinator(attach, self.principal)
        self._steal(link)
        link.accept(target=target, properties={ERROR_MODE: _error_mode(link)})
        link.context = Coordinator(self, link, self.transactions)
        self._links.add(link)
        link.context.grant()

    def _find(self, link: Link, attach: spec.Attach) -> Found:
        termini = self.shared.termini
        is_source = link.role == "sender"
        terminus = attach.source if is_source else attach.target
        if getattr(terminus, "dynamic", False) and len(self._dynamic) >= self.limits.dynamic_nodes:
            raise ResourceLimitExceeded(
                f"this connection has {len(self._dynamic)} dynamic nodes, no more are allowed"
            )
        if not is_source:
            found = termini.target(attach, self.principal)
        else:
            container = self.connection.remote_container_id or ""
            found = termini.source(attach, self.principal, container)
        if isinstance(found.node, Queue):
            try:
                self._check_queue(link, found.node, found)
            except AmqpError:
                if found.dynamic:
                    self.shared.broker.delete(found.node)
                raise
        return found

    def _check_queue(self, link: Link, queue: Queue, found: Found) -> None:
        """Refuse a link that the queue's own terms do not admit (N-14, N-17, Q-20, Q-21)."""
        if queue.is_exclusive and not found.dynamic and queue.owner is not link.session:
            raise ResourceLocked(f"{queue.name!r} belongs to another session alone")
        if link.role == "sender":
            _, old = self.shared.links.get(self._key(link), (None, None))
            stolen = old.context if old is not None and old is not link else None
            leaves = isinstance(stolen, Outbound) and stolen.source is queue and not stolen.copies
            queue.check_source(found.copies, int(leaves))

    def _found_out(self, _: object, link: Link, attach: spec.Attach, waiting: _Waiting) -> None:
        """The DNS has been asked about an attach's domain, or did not answer in time."""
        if link.context is not waiting:
            self._put_left(link, attach, waiting)  # the link is gone
            return
        try:
            found = self._find(link, attach)
        except Unresolved:
            self._refuse_waiting(link, waiting, InternalError("the domain could not be looked up"))
        except AmqpError as error:
            self._refuse_waiting(link, waiting, error)
        else:
            self._join(link, attach, found)
            if waiting.deliveries and isinstance(link.context, Inbound):
                self.put_now(link.context, waiting.deliveries)
        self.flush()

    def _refuse_waiting(self, link: Link, waiting: _Waiting, error: AmqpError) -> None:
        self._refuse(link, error)
        for delivery in waiting.deliveries:
            self.transactions.doom(delivery, error)

    def _answer_gone(self, link: Link, waiting: _Waiting) -> None:
        """Answer the attach of a link that does not wait for the DNS, and say what is so (E-01)."""
        gone = AmqpError("the link is gone", condition=conditions.LINK_DETACH_FORCED)
        for delivery in waiting.deliveries:
            if not delivery.settled:
                self.transactions.doom(delivery, gone)
        if link.state not in (State.OFFERED, State.LAPSED):
            return
        if any(delivery.settled for delivery in waiting.deliveries):
            link.accept()
        else:
            link.refuse(conditions.LINK_DETACH_FORCED, "detached before it was attached")

    def _put_left(self, link: Link, attach: spec.Attach, waiting: _Waiting) -> None:
        """Take what was sent settled before the link went: nobody would send it again (P-03)."""
        settled = [delivery for delivery in waiting.deliveries if delivery.settled]
        if not settled:
            return
        try:
            found = self._find(link, attach)
        except (AmqpError, Unresolved) as error:
            self.log.warn(
                "{connection} ({principal}) link {link}: {count} settled messages dropped: {error}",
                connection=self.facts.remote,
                principal=str(self.principal),
                count=len(settled),
                link=link.name,
                error=str(error),
            )
            for delivery in settled:
                self.transactions.doom(delivery, NotFound("its link led nowhere"))
            return
        window = self.limits.link_credit
        self.put_now(Inbound(self, link, found.node, self._origin(attach), window), settled)

    def admit(self, hop: NextHop) -> Deferred[Any]:
        """Have a next hop looked up. See `IHops.admit`."""
        admitted: Deferred[Any] = self.shared.hops.admit(hop)
        return admitted

    def _join_when_ready(self, link: Link, attach: spec.Attach, found: Found) -> None:
        """Answer an attach when what it asks for is on the disk."""
        link.context = waiting = _Waiting()
        self._links.add(link)

        def ready(node: Any) -> None:
            if link.context is waiting:
                self._join(link, attach, replace(found, node=node))
                self.flush()

        def failed(failure: Failure) -> None:
            error = failure.value
            if not isinstance(error, AmqpError):
                self.log.failure("subscription {name} not begun", failure, name=link.name)
                error = InternalError("the subscription could not be stored")
            if link.context is waiting:
                self._refuse(link, error)
                self.flush()

        found.ready.addCallbacks(ready, failed).addErrback(self.broken, "attaching")

    def _refuse(self, link: Link, error: AmqpError) -> None:
        link.context = None
        self._links.discard(link)
        if _error_mode(link) == END:
            words = spec.Error(condition=error.condition, description=error.description)
            self.end_session(link.session, words)
        else:
            info: dict[str, Any] = {Symbol(key): value for key, value in error.info.items()}
            link.refuse(error.condition, error.description, info or None)
        self._complain(
            "{connection} ({principal}) link {link} refused: {error}",
            link=_short(link.name),
            error=str(error),
        )

    def _join(self, link: Link, attach: spec.Attach, found: Found) -> None:
        self._steal(link)
        if found.dynamic:
            self._adopt(found.node, link)
        if link.role == "sender":
            properties = {ERROR_MODE: _error_mode(link), **found.properties}
            link.accept(source=found.terminus, properties=properties)
            outbound = Outbound(
                self,
                link,
                found.node,
                found.default_outcome,
                found.settled,
                found.dynamic,
                found.copies,
            )
            link.context = outbound
            self._links.add(link)
            found.node.attach(outbound, found.selects, found.copies)
            found.node.dispatch()
        else:
            origin = self._origin(attach)
            properties = {ERROR_MODE: _error_mode(link), **found.properties}
            link.accept(target=found.terminus, properties=properties)
            inbound = Inbound(self, link, found.node, origin, self.limits.link_credit)
            link.context = inbound
            self._links.add(link)
            if isinstance(found.node, Queue | Topic):
                found.node.publishers.join(inbound)
            inbound.grant()

    def _adopt(self, node: Any, link: Link) -> None:
        """Take a dynamic node in hand that has been made for a link."""
        self._dynamic[node] = link
        if isinstance(node, Queue):
            node.owner = link.session
            node.when_unused = lambda: self.delete_dynamic(node)

    def creator_gone(self, node: Any) -> None:
        """The link that a dynamic node was made for is gone: its lifetime decides (K-21)."""
        if isinstance(node, Queue):
            node.creator_gone()
        else:
            self.delete_dynamic(node)

    def _end_exclusive(self, session: Session) -> None:
        """Exclusive nodes go with their session (N-17)."""
        for node in list(self._dynamic):
            if _ends_with_session(node) and getattr(node, "owner", None) is session:
                self.delete_dynamic(node)

    def _origin(self, attach: spec.Attach) -> Origin:
        principal = self.principal
        is_peer = principal.kind == "peer"
        origin = Origin(principal, is_peer, self.connection.remote_container_id or "")
        stream = attach.properties.get(STREAM) if attach.properties and is_peer else None
        if isinstance(stream, str) and 0 < len(stream) <= LONGEST_STREAM:
            origin.stream = self.shared.receipts.stream(principal.name, stream, self._forget_stream)
            floor = (attach.properties or {}).get(FLOOR)
            if isinstance(floor, int):
                self.forget_receipts(origin.stream, floor)
        return origin

    def _steal(self, link: Link) -> None:
        """The same link attached on another connection takes it over (part 2 §2.6.1, L-09)."""
        key = self._key(link)
        other = self.shared.links.get(key)
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
                frontend.drop(old, held)
                frontend.flush()
        self.shared.links[key] = (self, link)

    def _key(self, link: Link) -> tuple[str, str, str, str]:
        container = self.connection.remote_container_id or ""
        return (str(self.principal), container, link.name, link.role)

    def _link_detached(self, event: ev.LinkDetached) -> None:
        if event.error is not None and event.by_fault:
            self._complain(
                "{connection} ({principal}) link {link} detached for its fault: "
                "{condition}: {description}",
                link=_short(event.link.name),
                condition=event.error.condition,
                description=_short(event.error.description),
            )
        self.drop(event.link, event.deliveries, event.closed and not event.by_fault)
        if event.by_fault and _error_mode(event.link) == END:
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
        ends = _error_mode(link) == END
        if not ends:
            link.detach(error=error)
        self.drop(link, held)
        if ends:
            self.end_session(session, error)

    def end_session(self, session: Session, error: spec.Error | None) -> None:
        """End a session from our side; what all its links held goes back."""
        links = [link for link in self._links if link.session is session]
        held = [list(link.unsettled.values()) for link in links]
        session.end(error)
        for link, deliveries in zip(links, held, strict=True):
            self.drop(link, deliveries)
        self._end_exclusive(session)

    def drop(self, link: Link, deliveries: Sequence[Delivery], closed: bool = False) -> None:
        """Forget a link that is gone; what was unsettled on it goes back to its source.

        Args:
            link: which.
            deliveries: what was unsettled.
            closed: the other side has given its terminus up, and not only the link.
        """
        self._links.discard(link)
        key = self._key(link)
        known = self.shared.links.get(key)
        if known is not None and known[1] is link:
            del self.shared.links[key]
        self._tell_refusals(link)
        context, link.context = link.context, None
        if isinstance(context, _Waiting):
            self._answer_gone(link, context)
        elif isinstance(context, Outbound):
            context.gone(deliveries, closed)
        elif isinstance(context, Coordinator):
            context.gone()
        elif isinstance(context, Inbound):
            target = context.target
            if isinstance(target, Queue | Topic):
                target.publishers.leave(context)
            if isinstance(target, Queue):
                target.look_at_life()
            if self._dynamic.get(target) is link:
                self.creator_gone(target)

    def delete_dynamic(self, node: Any) -> None:
        """End a dynamic node whose lifetime is over (N-22), and the links to it with it."""
        self._dynamic.pop(node, None)
        node = node_of(node)
        self.shared.broker.delete(node)
        for frontend in tuple(self.shared.frontends):
            frontend.detach_from(lambda each, _: node_of(each) is node)

    # -- deliveries ------------------------------------------------------------------------------

    def _deliveries_received(self, event: ev.DeliveriesReceived) -> None:
        context = event.link.context
        if isinstance(context, Inbound):
            if event.link.is_active:
                taken = context.received(event.deliveries, self._current())
                if taken:
                    self._taken.append((context, taken))
        elif isinstance(context, _Waiting):
            context.deliveries.extend(event.deliveries)
            for delivery in event.deliveries:
                self.transactions.postpone(delivery)
        elif isinstance(context, Coordinator):
            context.received(event.deliveries)

    def put_now(self, inbound: Inbound, deliveries: list[Delivery]) -> None:
        """Put deliveries that had to wait."""
        self._depth += 1
        try:
            taken = inbound.received(deliveries, self._current())
            if taken:
                self._taken.append((inbound, taken))
        finally:
            self._leave()
        self.flush()

    def _deliveries_updated(self, event: ev.DeliveriesUpdated) -> None:
        context = event.link.context
        if isinstance(context, Outbound):
            context.updated(event.deliveries, event.state, event.settled)
        # On an inbound link: a sender that settles what we left unsettled (rcv-settle-mode
        # second). The engine has forgotten it; there is nothing left to do.

    def settle(
        self,
        outbound: Outbound,
        entries: Sequence[Entry],
        outcome: Any,
        answer: Sequence[Delivery] | None = None,
    ) -> None:
        """Give entries back to their source with an outcome; answer when that is durable."""
        self._depth += 1
        try:
            batch = self._current() if answer or not outbound.is_volatile else None
            outbound.source.settle(entries, outcome, batch, consumer=outbound)
            if answer:
                self._answers.append((outbound.link, answer, outcome))
        finally:
            self._leave()
        if outbound.link.is_active:
            outbound.source.dispatch()

    # -- transactions ----------------------------------------------------------------------------

    def commit(self, transaction: Transaction) -> Deferred[None]:
        """Commit a transaction, after what came before it. See `Transaction.commit`."""
        self._commit_batch()
        done = transaction.commit()
        self._uncommitted += 1
        return done.addBoth(self._discharged)

    def _discharged(self, result: Any) -> Any:
        self._uncommitted -= 1
        return result

    def conclude(self, transaction: Transaction) -> None:
        """Tell the links how a transaction has ended."""
        self._depth += 1
        try:
            transaction.conclude()
        finally:
            self._leave()
        self.flush()

    def _timed_out(self, transaction: Transaction) -> None:
        self._complain(
            "{connection} ({principal}) transaction {transaction} rolled back: nothing happened "
            "in it for {seconds} s",
            transaction=transaction.id.hex(),
            seconds=self.shared.transactions.limits.timeout_seconds,
        )
        self.conclude(transaction)

    def _link_flowed(self, event: ev.LinkFlowed) -> None:
        context = event.link.context
        if isinstance(context, Outbound):
            context.flowed(event.flow)
            context.source.dispatch()
        elif isinstance(context, Inbound):
            context.flowed(event.flow)

    def _session_flowed(self, event: ev.SessionFlowed) -> None:
        for link in event.session.links:
            if isinstance(link.context, Outbound):
                link.context.source.dispatch()

    def _dispatch_all(self) -> None:
        for link in tuple(self._links):
            if isinstance(link.context, Outbound):
                link.context.source.dispatch()

    def forget_receipts(self, stream: Stream, floor: int) -> None:
        """A relaying peer will not send anything below the floor again."""
        batch = self.shared.broker.begin()
        if stream.forget_below(floor, batch.transaction):
            batch.commit().addErrback(self.broken, "forgetting receipts")

    def _forget_stream(self, key: str) -> None:
        batch = self.shared.broker.begin()
        batch.transaction.forget_stream(key)
        batch.commit().addErrback(self.broken, "forgetting a stream of receipts")

    # -- what goes wrong -------------------------------------------------------------------------

    def _complain(self, text: str, **fields: Any) -> None:
        """Log what the other side has done wrong; beyond a few in a while, only how many.

        A client that attaches in a loop and is refused each time must not fill the disk.
        """
        now = self.shared.seconds()
        if now >= self._complaints_until:
            self._tell_silence()
            self._complaints_until = now + COMPLAINT_SECONDS
        self._complaints += 1
        if self._complaints <= MOST_COMPLAINTS:
            self.log.warn(
                text, connection=self.facts.remote, principal=str(self.principal), **fields
            )

    def _tell_silence(self) -> None:
        """Say how many complaints were not logged since the last time."""
        silenced = self._complaints - MOST_COMPLAINTS
        self._complaints = 0
        if silenced > 0:
            self.log.warn(
                "{connection} ({principal}) {count} more refusals like these were not logged",
                connection=self.facts.remote,
                principal=str(self.principal),
                count=silenced,
            )

    def note_refusal(self, inbound: Inbound, error: AmqpError) -> None:
        """Log the first refusal of a kind on a link; count the others."""
        key = (inbound.link.name, str(error.condition))
        count = self._refusals[key] = self._refusals.get(key, 0) + 1
        if count == 1:
            self._complain(
                "{connection} ({principal}) message on link {link} to {node} refused: {error}",
                link=_short(inbound.link.name),
                node=inbound.target.name,
                error=str(error),
            )

    def _tell_refusals(self, link: Link) -> None:
        for key in [key for key in self._refusals if key[0] == link.name]:
            count = self._refusals.pop(key)
            if count > 1:
                self._complain(
                    "{connection} ({principal}) link {link}: {count} messages refused with "
                    "{condition}",
                    link=_short(link.name),
                    count=count,
                    condition=key[1],
                )

    def note_discharge(self, link: Link, error: AmqpError) -> None:
        """Log that a declare or a discharge is refused."""
        self._complain(
            "{connection} ({principal}) coordinator link {link}: refused: {error}",
            link=_short(link.name),
            error=str(error),
        )

    def broken(self, failure: Failure, doing: str) -> None:
        """Log what must not happen."""
        self.log.failure(
            "{connection}: {doing} failed", failure, connection=self.facts.remote, doing=doing
        )


def _ends_with_session(node: Any) -> bool:
    """Tell whether a dynamic node cannot outlive the session it was made on."""
    if isinstance(node, Queue):
        return node.is_exclusive or node.lifetime in (Lifetime.CLOSE, Lifetime.SESSION)
    return True


def _error_mode(link: Link) -> Symbol:
    """Return the error-mode that the other side asked for (L-46); detach unless it said end."""
    attach = link.remote_attach
    properties = attach.properties if attach is not None else None
    return END if properties and properties.get(ERROR_MODE) == END else DETACH


def _short(text: str | None) -> str:
    """Return a stranger's text as it goes into the log."""
    text = text or ""
    return text if len(text) <= LONGEST_QUOTED else f"{text[:LONGEST_QUOTED]}..."


def _nothing(_: object) -> None:
    """Events that the pump has acted on."""
