# SPDX-License-Identifier: Apache-2.0
"""The AMQP 1.0 frontend: events of one accepted connection to verbs of the broker."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute import conditions
from amqproute.auth.realm import Authenticator
from amqproute.auth.realm import LogInTransport as AuthFacts
from amqproute.broker.local_transaction import Transaction
from amqproute.broker.receipts import Stream
from amqproute.broker.transaction_registry import TransactionRegistry
from amqproute.entry import Entry
from amqproute.errors import AmqpError, ResourceLimitExceeded
from amqproute.frontends.context import FrontendContext
from amqproute.frontends.contract_enforcement import RETRY_SECONDS, ActiveContract
from amqproute.frontends.coordinator_link import CoordinatorLink
from amqproute.frontends.endpoint_memory import EndpointQuota
from amqproute.frontends.event_batch import EventBatch
from amqproute.frontends.link_attach import LinkAttach
from amqproute.frontends.link_refusal import error_of
from amqproute.frontends.link_table import LinkTable, PendingAttach
from amqproute.frontends.peer_error_log import PeerErrorLog, short
from amqproute.frontends.receiver_link import ReceiverLink
from amqproute.frontends.sender_link import SenderLink
from amqproute.frontends.suspended_links import ResolvedDeliveries
from amqproute.interfaces import IConnectionUser
from amqproute.journal.event import RunEvent
from amqproute.journal.record import RecordKind
from amqproute.log_rate_limit import and_more, source_of
from amqproute.net.pump import TransportFacts
from amqproute.values import (
    ANONYMOUS_PRINCIPAL,
    COMMAND_CONTAINER,
    CONTRACT,
    PROBE,
    NextHop,
    Origin,
    Principal,
    owner_of,
)
from amqproute.wire.amqp10 import engine_events as ev
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.connection import Connection
from amqproute.wire.amqp10.link import Delivery, Link


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
        contract: what it may ask of us, once it has opened; None if nobody has a contract.
        is_lost: it is gone.
        is_held: nothing more is read from it now, because too much waits for the disk.
        probe: the id that it has given itself as a prober; empty for none.
    """

    log = Logger()

    def __init__(
        self,
        connection: Connection,
        shared: FrontendContext,
        authenticator: Authenticator,
        facts: TransportFacts,
    ) -> None:
        self.connection = connection
        self.shared = shared
        self.limits = shared.limits
        self.now_ms = shared.now_ms
        self.facts = facts
        self.principal: Principal = ANONYMOUS_PRINCIPAL
        self.contract: ActiveContract | None = None
        self.since_ms = shared.now_ms()
        self.is_paused = False
        self._authenticator = authenticator
        self._pump: Any = None
        self._uncommitted_bytes = 0
        self._is_open = False
        self._is_command = False
        self._is_refused = False
        self.is_held = False
        self._is_told = False
        self._verifying: Deferred[bool | None] | None = None
        self.probe = ""
        self.is_lost = False
        self._party: tuple[str, Hashable] | None = None

    def __repr__(self) -> str:
        state = "lost" if self.is_lost else f"links={len(self.links)}"
        return f"<Frontend {self.facts.remote} {self.principal} {state}>"

    # -- its parts: they know it, so it lets go of them when it is lost -------------------------

    @cached_property
    def transactions(self) -> TransactionRegistry:
        """What it has declared and not discharged."""
        return TransactionRegistry(
            self.shared.transactions, self._timed_out, lambda: self.principal
        )

    @cached_property
    def turn(self) -> EventBatch:
        """What happens on it in one go."""
        return EventBatch(self)

    @cached_property
    def complaints(self) -> PeerErrorLog:
        """What it has done wrong."""
        return PeerErrorLog(self.log, self.shared.seconds, self._who, self._note_messages_refused)

    @cached_property
    def endpoints(self) -> EndpointQuota:
        """What its sessions and links take of memory."""
        return EndpointQuota(self, self.shared.endpoints)

    @cached_property
    def links(self) -> LinkTable:
        """Its links."""
        return LinkTable(self)

    @cached_property
    def attaching(self) -> LinkAttach:
        """Answers attaches."""
        return LinkAttach(self)

    @cached_property
    def _handlers(self) -> dict[type, Callable[[Any], None]]:
        return {
            ev.CredentialsPresented: self._credentials_presented,
            ev.Authenticated: self._authenticated,
            ev.AuthenticationRejected: self._authentication_failed,
            ev.OpenReceived: self._open_received,
            ev.SessionBegun: self._session_begun,
            ev.LinkAttached: self.attaching.attached,
            ev.DeliveriesReceived: self._deliveries_received,
            ev.PartsReceived: self._parts_received,
            ev.InputHeld: self._input_held,
            ev.EndpointsHeld: _nothing,  # what they take is looked up after each read
            ev.DeliveriesUpdated: self._deliveries_updated,
            ev.LinkFlowed: self._link_flowed,
            ev.SessionFlowed: self._session_flowed,
            ev.LinkDetached: self.links.detached,
            ev.SessionEnded: self._session_ended,
            ev.ConnectionClosed: self._connection_closed,
            ev.TlsAgreed: _nothing,
        }

    def _let_go(self) -> None:
        """Leave no circle of references behind, when nothing is under way any more.

        What comes late all the same finds each part made anew, and empty.
        """
        if (
            self.turn.is_over
            and not self.turn.is_under_way
            and not self._uncommitted_bytes
            and not len(self.transactions)
            and not self.endpoints.is_used
        ):
            for name in _PARTS:
                self.__dict__.pop(name, None)

    @property
    def party(self) -> tuple[str, Hashable]:
        """Whose share of a bound it uses, and as which member of that party.

        Users and peers are parties, their connections the members. All anonymous clients are one
        party, and its members are their addresses. To be asked for only once it has opened.
        """
        if self._party is None:
            member = source_of(self.facts.host or "") if self.is_anonymous else id(self)
            self._party = (str(self.principal), member)
        return self._party

    @property
    def owner(self) -> str:
        """Whose its links are: see `amqproute.values.owner_of`. To be asked for once it is open."""
        return owner_of(self.principal, self.facts.host or "")

    @property
    def is_anonymous(self) -> bool:
        """Whether nobody has proved who is there."""
        return self.principal.kind == ANONYMOUS_PRINCIPAL.kind

    @property
    def is_stopping(self) -> bool:
        """The daemon is on its way out: nothing new is taken or handed out."""
        return self.shared.is_stopping

    @property
    def is_idle(self) -> bool:
        """Nothing of this connection waits for the store."""
        return self.turn.is_over

    @property
    def holds_nothing(self) -> bool:
        """No consumer on this connection holds unsettled deliveries."""
        return not any(link.role == "sender" and link.unsettled for link in self.links.attached)

    def row(self) -> dict[str, Any]:
        """Return what an operator wants to know, for the management node."""
        attached = self.links.attached
        return {
            "name": self.facts.remote,
            "principal": str(self.principal),
            "container": self.connection.remote_container_id or "",
            "tls": self.facts.tls_version or "",
            "since-ms": self.since_ms,
            "age-ms": max(0, self.now_ms() - self.since_ms),
            "links": len(self.links),
            "credit-in": sum(link.credit for link in attached if link.role == "receiver"),
            "credit-out": sum(link.credit for link in attached if link.role == "sender"),
            "unsettled": sum(len(link.unsettled) for link in attached),
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
        with self.turn:
            for event in events:
                handlers[type(event)](event)
        self.endpoints.update()

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
        self.shared.unfinished.holds(self, 0)
        if self._verifying is not None:
            self._verifying.cancel()
        self.links.lost()
        if self.contract is not None:
            self.contract.disconnect(self)
        self.shared.suspended.connection_lost(self)
        self.complaints.log_suppressed()
        self._pump = self._verifying = None
        self.is_lost = True
        self.endpoints.update()
        self._let_go()

    # -- what waits for the disk -----------------------------------------------------------------

    def hold(self, size: int) -> None:
        """Read nothing more while too much waits for the disk: credit counts messages only.

        How much is too much is less where memory runs short: those who hold most wait first.
        """
        self._uncommitted_bytes += size
        self.shared.memory.hold(size)
        if self._pump is not None and self._uncommitted_bytes > self._most_bytes:
            self.is_held = True
            self._pump.hold_reading()

    @property
    def _most_bytes(self) -> int:
        part = self.shared.memory.part(len(self.shared.frontends))
        return min(self.limits.uncommitted_bytes, part)

    def release(self, size: int) -> None:
        """So much is on the disk, or never will be."""
        self._uncommitted_bytes -= size
        self.shared.memory.release(size)
        if self.is_held and self._uncommitted_bytes <= self._most_bytes:
            self.is_held = False
            if self._pump is not None:
                self._pump.release_reading()
        if self.is_lost:
            self._let_go()

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
        self._verifying = verified = self._authenticator.verify(event.step, self.auth_facts())
        verified.addCallbacks(self._verified, lambda failure: failure.trap(CancelledError))
        verified.addErrback(self.broken, "verifying a password")

    def _verified(self, granted: bool | None) -> None:
        self._verifying = None
        self._is_told = granted is False
        if self._pump is not None:
            self.events(self.connection.credentials_verified(granted, self.shared.seconds()))
            self.flush()

    def _authenticated(self, event: ev.Authenticated) -> None:
        if event.identity is not None:
            self.principal = self._authenticator.principal(event.identity)

    def _authentication_failed(self, event: ev.AuthenticationRejected) -> None:
        self._is_refused = True
        self.seen("sasl", "sasl.refused", f"{event.mechanism or 'SASL'}: {event.reason}")
        if self._is_told:
            return  # by the authenticator, with the name of the user
        self._log_unauthenticated(
            "sasl",
            "{connection} refused: {mechanism} authentication failed: {reason}{more}",
            mechanism=event.mechanism or "SASL",
            reason=event.reason,
        )

    def _log_unauthenticated(self, kind: str, text: str, **fields: Any) -> None:
        """Log what somebody does who was never let in: one of many, it may be, at this place."""
        count = self.shared.strangers.due((self._authenticator, kind))
        if count:
            self.log.warn(text, connection=self.facts.remote, more=and_more(count), **fields)

    def _open_received(self, event: ev.OpenReceived) -> None:
        if not self.shared.serves(event.open.hostname):
            words = f"no broker named {event.open.hostname!r} is served here"
            self.seen("open", conditions.NOT_FOUND, words)
            self.close(conditions.NOT_FOUND, words)
            return
        # Only now: who logs in and says nothing more can be made to give way to others.
        excess = (
            self._pump.identified(self.principal.kind, str(self.principal))
            if self._pump is not None
            else None
        )
        if self.shared.contracts is not None:
            contract = self.shared.contracts.of(self.principal)
            try:
                contract.connect(self)
            except ResourceLimitExceeded as error:
                self._refuse_open(error)
                return
            self.contract = contract
        if excess is not None and (
            self.contract is None or self.contract.terms.connections is None
        ):
            self._refuse_open(
                ResourceLimitExceeded(
                    f"{self.principal} has more than its share of connections: {excess}; "
                    "a contract may name another number",
                    info={"limiter": "connections", "retry-after": RETRY_SECONDS},
                )
            )
            return
        terms = {} if self.contract is None else self.contract.terms.told()
        settings = self.connection.settings
        # Some clients cut frames by our limit, and then cannot write those beyond their own.
        size = min(settings.max_frame_size, max(event.open.max_frame_size, LEAST_FRAME))
        if terms:  # who knows what it may need not find out by being held back
            given = settings.properties or {}
            self.connection.open(max_frame_size=size, properties={**given, CONTRACT: terms})
        else:
            self.connection.open(max_frame_size=size)
        self._is_open = True
        self.probe = short(str((event.open.properties or {}).get(PROBE) or ""))
        if self.probe:
            self.seen("open", "ok", "")
        self._is_command = self.facts.unix_uid is not None and event.open.container_id.startswith(
            COMMAND_CONTAINER
        )
        tell = self.log.debug if self._is_command else self.log.info
        tell(
            "{connection} opened by {principal}, container {container}{tls}",
            connection=self.facts.remote,
            principal=str(self.principal),
            container=short(event.open.container_id),
            tls=f", {self.facts.tls_version}" if self.facts.tls_version else "",
        )
        if self.principal.kind == "peer":
            self.shared.when_peer(self.principal)

    def _refuse_open(self, error: AmqpError) -> None:
        self._is_refused = True
        self._log_unauthenticated(
            "open",
            "{connection} ({principal}) refused: {error}{more}",
            principal=str(self.principal),
            error=str(error),
        )
        self.connection.close(error_of(error))
        self.flush()

    def _connection_closed(self, event: ev.ConnectionClosed) -> None:
        if event.error is None:
            if self._is_open:
                # At a stop there may be thousands, and the daemon says how many.
                is_quiet = self.is_stopping or self._is_command
                level = self.log.debug if is_quiet else self.log.info
                level("{connection} closed", **self._who())
            return
        if self._is_refused:
            return  # it has been said why
        if not self._is_open:
            self.seen("open", event.error.condition, event.error.description or "")
        why = " by us for its fault" if event.by_fault else " by the other side"
        text = "{connection} ({principal}) closed{why}: {condition}: {description}{more}"
        fields = {
            "principal": str(self.principal),
            "condition": short(event.error.condition),
            "description": short(event.error.description),
        }
        if not self._is_open:
            kind = f"closed {event.error.condition}" if event.by_fault else "left"
            self._log_unauthenticated(kind, text, why=why, **fields)
            return
        level = self.log.warn if event.by_fault else self.log.info
        level(text, connection=self.facts.remote, why=why, more="", **fields)

    def _session_begun(self, event: ev.SessionBegun) -> None:
        if event.is_answer:
            return
        try:
            self.endpoints.admit(event.session.octets)
        except ResourceLimitExceeded as error:
            event.session.end(error_of(error))
        else:
            event.session.accept()

    def _session_ended(self, event: ev.SessionEnded) -> None:
        if event.error is not None and event.by_fault:
            self.complaints.add(
                "{connection} ({principal}) session ended for its fault: "
                "{condition}: {description}",
                condition=event.error.condition,
                description=short(event.error.description),
            )
        self.links.session_ended(event.session)

    def close(self, condition: conditions.Condition, words: str) -> None:
        """Close the connection from our side."""
        if self._pump is None:
            return
        self.connection.close(spec.Error(condition=condition, description=words))
        self.flush()

    def drop(self, words: str) -> None:
        """End the connection without a word to the other side."""
        if self._pump is None:
            return
        self.complaints.add("{connection} ({principal}) dropped: {words}", words=words)
        self._pump.abort()

    # -- links -----------------------------------------------------------------------------------

    def fail(self, link: Link, error: spec.Error, settled: Sequence[Delivery] = ()) -> None:
        """End a link for a fault of the other side's. See `LinkTable.fail`."""
        self.links.fail(link, error, settled)

    def stop_taking(self) -> None:
        """Revoke the senders' credit; called when the daemon stops."""
        self.links.stop_taking()

    def admit(self, hop: NextHop) -> Deferred[Any]:
        """Have a next hop looked up. See `IHops.admit`."""
        admitted: Deferred[Any] = self.shared.hops.admit(
            hop, Origin(self.principal, connection=self.facts.remote)
        )
        return admitted

    # -- deliveries ------------------------------------------------------------------------------

    def _deliveries_received(self, event: ev.DeliveriesReceived) -> None:
        context = event.link.context
        if isinstance(context, ReceiverLink):
            if event.link.is_active:
                context.arrived(event.deliveries)
                self.turn.put(context, event.deliveries)
        elif isinstance(context, PendingAttach):
            context.deliveries.extend(event.deliveries)
            for delivery in event.deliveries:
                self.transactions.postpone(delivery)
        elif isinstance(context, CoordinatorLink):
            context.received(event.deliveries)

    def _parts_received(self, event: ev.PartsReceived) -> None:
        context = event.link.context
        if isinstance(context, ReceiverLink) and event.link.is_active:
            context.parts(event)
        else:
            event.link.session.took(sum(map(len, event.parts)))

    def _input_held(self, event: ev.InputHeld) -> None:
        unfinished = self.shared.unfinished
        unfinished.holds(self, event.octets)
        if unfinished.is_too_much:
            self.turn.afterwards(unfinished.relieve)

    def put_now(self, inbound: ReceiverLink, deliveries: list[Delivery]) -> None:
        """Put deliveries that had to wait."""
        with self.turn:
            self.turn.put(inbound, deliveries)
        self.flush()

    def forget_taken(self, taken: ResolvedDeliveries, tags: Sequence[bytes]) -> None:
        """The sender of these has settled them; what is on the disk of them goes."""
        with self.turn:
            taken.forget(tags, self.turn.batch)

    def _deliveries_updated(self, event: ev.DeliveriesUpdated) -> None:
        context = event.link.context
        if isinstance(context, SenderLink):
            context.updated(event.deliveries, event.state, event.settled)
        elif isinstance(context, ReceiverLink):
            context.updated(event.deliveries, event.settled)

    def settle(
        self,
        outbound: SenderLink,
        entries: Sequence[Entry],
        outcome: Any,
        answer: Sequence[Delivery] | None = None,
    ) -> None:
        """Give entries back to their source with an outcome; answer when that is durable."""
        with self.turn:
            batch = self.turn.batch() if answer or not outbound.is_volatile else None
            outbound.source.settle(entries, outcome, batch, consumer=outbound)
            if answer:
                self.turn.answers.append((outbound, answer, outcome))
        if outbound.link.is_active:
            outbound.source.dispatch()

    # -- transactions ----------------------------------------------------------------------------

    def conclude(self, transaction: Transaction) -> None:
        """Tell the links how a transaction has ended."""
        with self.turn:
            transaction.conclude()
        self.flush()

    def _timed_out(self, transaction: Transaction) -> None:
        self.complaints.add(
            "{connection} ({principal}) transaction {transaction} rolled back: nothing happened "
            "in it for {seconds} s",
            transaction=transaction.id.hex(),
            seconds=self.shared.transactions.limits.timeout_seconds,
        )
        self.conclude(transaction)

    def _link_flowed(self, event: ev.LinkFlowed) -> None:
        context = event.link.context
        if isinstance(context, SenderLink):
            context.flowed(event.flow)
            context.dispatch()
        elif isinstance(context, ReceiverLink):
            context.flowed(event.flow)

    def _session_flowed(self, event: ev.SessionFlowed) -> None:
        for link in event.session.links:
            if isinstance(link.context, SenderLink):
                link.context.dispatch()

    def _dispatch_all(self) -> None:
        for link in tuple(self.links.attached):
            if isinstance(link.context, SenderLink):
                link.context.dispatch()

    def forget_receipts(self, stream: Stream, floor: int) -> None:
        """A relaying peer will not send anything below the floor again."""
        batch = self.shared.broker.begin()
        if stream.forget_below(floor, batch.transaction):
            batch.commit().addErrback(self.broken, "forgetting receipts")

    def forget_stream(self, key: str) -> None:
        batch = self.shared.broker.begin()
        batch.transaction.forget_stream(key)
        batch.commit().addErrback(self.broken, "forgetting a stream of receipts")

    # -- what goes wrong -------------------------------------------------------------------------

    def seen(self, step: str, code: object, words: str) -> None:
        """Have it known what a prober, or somebody who is refused, came to."""
        remote, who = self.facts.remote, str(self.principal)
        self.shared.when_seen(step, remote, who, str(code), short(words), self.probe)

    def _who(self) -> dict[str, str]:
        return {"connection": self.facts.remote, "principal": str(self.principal)}

    def note_refusal(self, inbound: ReceiverLink, error: AmqpError) -> None:
        """Log that a message is refused."""
        self.complaints.message_refused(inbound.link, inbound.target.name, error)

    def _note_messages_refused(self, link: str, node: str, error: AmqpError, count: int) -> None:
        """Have it in the journal that messages were refused at the door."""
        journal = self.shared.broker.journal
        if journal.is_kept:
            facts = {
                "node": node,
                "link": link,
                "sender": str(self.principal),
                "connection": self.facts.remote,
                "level": self.facts.level,
                "count": count,
                "condition": str(error.condition),
                "code": (error.info or {}).get("code"),
                "words": error.description,
            }
            journal.note(RunEvent(RecordKind.REJECTED, journal.now_us(), facts))

    def note_discharge(self, link: Link, error: AmqpError) -> None:
        """Log that a declare or a discharge is refused."""
        self.complaints.add(
            "{connection} ({principal}) coordinator link {link}: refused: {error}",
            link=short(link.name),
            error=str(error),
        )

    def broken(self, failure: Failure, doing: str) -> None:
        """Log what must not happen."""
        self.log.failure(
            "{connection}: {doing} failed",
            failure,
            connection=self.facts.remote,
            principal=str(self.principal),
            doing=doing,
        )


LEAST_FRAME: Final = 65536
"""Octets of the frames that we take at least, as far as the settings allow: `uamqp` writes so many
and no more, and smaller ones would only cost time."""

_PARTS: Final = tuple(
    name for name, value in vars(Frontend).items() if isinstance(value, cached_property)
)


def _nothing(_: object) -> None:
    """Events that need no action of their own."""


__all__ = ["Frontend", "FrontendContext"]
