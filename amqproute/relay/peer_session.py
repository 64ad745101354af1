# SPDX-License-Identifier: Apache-2.0
"""One connection to a peer, in the client role: sends entries and receives outcomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionClosed
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute import conditions
from amqproute.address import TRANSFER_NODE
from amqproute.entry import Entry
from amqproute.errors import AmqpError, MessageSizeExceeded, NotAllowed
from amqproute.interfaces import IConnectionPump
from amqproute.message import rest_of
from amqproute.net.pump import IUpgradableUser, TransportFacts
from amqproute.outcomes import ACCEPTED, RELEASED, Outcome
from amqproute.relay import failure_verdict
from amqproute.relay.failure_verdict import FailureVerdict, PeerFailure
from amqproute.relay.hop_sections import prefix_maker
from amqproute.relay.large_message_link import LargeMessageLink
from amqproute.trace_context import DROPPED, HopTracing
from amqproute.values import (
    FLOOR,
    PATH_CAPABILITY,
    SECURITY_LEVELS,
    STORE,
    STREAM,
    TAG_OCTETS,
    TRANSFER_CAPABILITY,
    Candidate,
    NextHop,
)
from amqproute.wire.amqp10 import engine_events as ev
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.connection import Connection
from amqproute.wire.amqp10.delivery_states import RELEASED_STATE, details_of, outcome_of
from amqproute.wire.amqp10.link import Delivery, Link
from amqproute.wire.amqp10.state_tables import LinkStateName
from amqproute.wire.amqp10.types import UInt
from amqproute.wire.header import UNANSWERED_HEADER

ANONYMOUS: Final = "anonymous"
ANONYMOUS_RELAY: Final = "ANONYMOUS-RELAY"
CLOSED: Final = failure_verdict.for_code("connection.closed", "closed by us")
FAULT: Final = replace(
    failure_verdict.for_code("relay.fault", "sending failed here; see the log of this broker"),
    condition=conditions.NOT_ALLOWED,  # permanent, unlike internal errors of others
)
_CANNOT_RESUME: Final = {
    conditions.NOT_IMPLEMENTED,  # RabbitMQ 3 ends the session with it
    conditions.NOT_ALLOWED,
    conditions.INVALID_FIELD,
    conditions.DECODE_ERROR,
}
KEEP_SECONDS: Final = 600
"""Time for which a peer without receipts is asked to keep a lost link's unsettled deliveries."""
PROVED: Final = SECURITY_LEVELS[2:]
"""Levels at which the peer has proved its identity."""


@dataclass(frozen=True, slots=True)
class SessionTerms:
    """Facts about one connection, as plain values.

    Attributes:
        own_id: our container-id, for the trace.
        stream: names the store that numbers our entries.
        store: the name of that store in our journal.
        origin: our name as proved to the peer; empty for none.
        candidate: the place connected to.
        address: the IP address there, if known.
        ttl: the seconds for which the DNS names this place; None for ever.
        level: the security level reached, one of `values.SECURITY_LEVELS`.
        tracing: what becomes of the trace context of messages.
    """

    own_id: str
    stream: str
    store: str = ""
    origin: str = ""
    candidate: Candidate | None = None
    address: str | None = None
    ttl: float | None = None
    level: str = "none"
    tracing: HopTracing = DROPPED


class SessionListener(Protocol):
    """The owner of a session: a destination.

    Attributes:
        avoid: host and port of the last lost connection: tried last.
        failures: failed attempts so far.
    """

    avoid: tuple[str, int] | None

    @property
    def failures(self) -> int:
        """Return the number of failed attempts since the last useful one."""

    def floor(self) -> int:
        """Return the lowest id that may still be sent."""

    def doubtful(self) -> Sequence[int]:
        """Return the ids of entries left without an outcome by an earlier link."""

    def resumption_refused(self) -> None:
        """Handle the refusal of a link because it listed the doubtful entries."""

    def outcome_received(
        self, entries: Sequence[Entry], verdict: FailureVerdict, outcome: Outcome
    ) -> None:
        """Handle the peer's decision about entries, or unreadable messages (`UNREADABLE`)."""

    def events_handled(self) -> None:
        """Handle the end of the events of one read: commit what they settled."""

    def capacity_changed(self) -> None:
        """Handle new capacity: credit, window, or a drained transport."""

    def session_ended(self, session: PeerSession, verdict: FailureVerdict) -> None:
        """Handle the end of an attached session; see `PeerSession.in_doubt` for its entries."""


@implementer(IUpgradableUser)
class PeerSession:
    """Sends entries on the engine of one relay connection.

    Args:
        connection: the engine, in the client role.
        hop: the next hop.
        listener: notified of everything after the link is attached.
        terms: facts about the connection.
        now_ms: the wall clock.
        ready: fires with this session when entries can be sent; fails with `PeerFailure` if it ends
            before that.

    Attributes:
        in_doubt: after the end, the entries without an outcome.
    """

    log = Logger()

    def __init__(
        self,
        connection: Connection,
        hop: NextHop,
        listener: SessionListener,
        terms: SessionTerms,
        now_ms: Callable[[], int],
        ready: Deferred[PeerSession],
    ) -> None:
        self.connection = connection
        self.hop = hop
        self.candidate = terms.candidate
        self.address = terms.address
        self.ttl = terms.ttl
        self.link: Link | None = None
        self.remote_id = ""
        self.is_paused = False
        self.no_credit_since_ms: int | None = None
        self.keeps_receipts = False
        self.level = terms.level
        self._prefix = prefix_maker(
            terms.own_id, terms.origin, self._check_path, terms.tracing, terms.store
        )
        self._stream = terms.stream
        self._store = terms.store
        self._listener = listener
        self._now_ms = now_ms
        self._ready = ready
        self._kept: dict[bytes, Any] = {}
        self._pump: IConnectionPump | None = None
        self._target = hop.target
        self._is_attached = False
        self._is_refused = False
        self._is_lost = False
        self._is_over = False
        self._stranded: list[Entry] = []
        self._verdict: FailureVerdict | None = None
        self._answers: list[tuple[Sequence[Delivery], Any]] = []
        self._offered: frozenset[bytes] = frozenset()
        self._large = LargeMessageLink(self)
        self.in_doubt: list[Entry] = []
        self._handlers: dict[type, Callable[[Any], None]] = {
            ev.TlsAgreed: _nothing,
            ev.Authenticated: self._authenticated,
            ev.AuthenticationRejected: self._authentication_failed,
            ev.OpenReceived: self._open_received,
            ev.SessionBegun: _nothing,
            ev.LinkAttached: self._link_attached,
            ev.DeliveriesReceived: _nothing,
            ev.DeliveriesUpdated: self._updated,
            ev.LinkFlowed: self._flowed,
            ev.SessionFlowed: self._flowed,
            ev.LinkDetached: self._link_detached,
            ev.SessionEnded: self._session_ended,
            ev.ConnectionClosed: self._connection_closed,
        }

    def __repr__(self) -> str:
        state = "over" if self._is_over else "attached" if self._is_attached else "opening"
        return f"<PeerSession {self.hop.key} {state} in-flight={self.in_flight}>"

    # -- for the destination ---------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """The number of deliveries without an outcome."""
        count = 0 if self.link is None else len(self.link.unsettled)
        large = self._large
        return count + large.in_flight if large.waiting or large.link is not None else count

    def holds(self) -> list[Entry]:
        """Return the entries without an outcome."""
        if self.link is None:
            return []
        deliveries = [*self.link.unsettled.values(), *self._large.deliveries()]
        return [*(delivery.context for delivery in deliveries), *self._large.waiting]

    @property
    def lowest_in_flight(self) -> int | None:
        """The lowest entry id without an outcome, or None."""
        if self.link is None:
            return None
        held = [*self.link.unsettled.values(), *self._large.deliveries()]
        entries = [each.context for each in held if each.context is not None]
        return min((entry.id for entry in (*entries, *self._large.waiting)), default=None)

    @property
    def oldest_in_flight(self) -> object:
        """A value that identifies the oldest delivery without an outcome; None without one.

        While that delivery is being written, the value changes with each progress.
        """
        link = self.link
        if link is None or not link.unsettled:
            return self._large.progress
        oldest = next(iter(link.unsettled))
        return (oldest, self.connection.frames_out if self.is_paused else 0)

    def is_at(self, candidates: Sequence[Candidate]) -> bool:
        """Return whether the connection leads to one of these places."""
        here = self.candidate
        if here is None:
            return True
        for each in candidates:
            if (each.host, each.port, each.security) == (here.host, here.port, here.security):
                if not each.addresses or not here.addresses:
                    return True
                if self.address is None:
                    return not set(each.addresses).isdisjoint(here.addresses)
                return _ip(self.address) in map(_ip, each.addresses)
        return False

    def sendable(self) -> int:
        """The number of entries that can be sent now."""
        if self.is_paused or not self._is_attached or self._is_over or self.link is None:
            return 0
        return self.link.sendable

    def send(self, entries: Sequence[Entry]) -> list[tuple[Entry, AmqpError]]:
        """Send entries; return those that can never be sent to this peer, with the errors.

        An unexpected exception ends the connection like a fault of the peer: all entries come back,
        and a message that causes it each time is detected and given up.
        """
        try:
            return self._send(entries)
        except Exception:
            self.log.failure("messages for {hop} could not be sent", hop=self.hop.key)
            self._stranded = list(entries)
            self.is_paused = True  # nothing more until the connection is gone
            self.abandon(FAULT)
            return []

    def _send(self, entries: Sequence[Entry]) -> list[tuple[Entry, AmqpError]]:
        link = self.link
        assert link is not None
        send = link.send
        prefix_of = self._prefix
        now_ms = self._now_ms()
        refused: list[tuple[Entry, AmqpError]] = []
        kept = self._kept
        for entry in entries:
            message = entry.message
            tag = entry.id.to_bytes(TAG_OCTETS, "big")
            resume = False
            try:
                if kept and tag in kept:
                    if self._resume(entry, tag):
                        continue
                    del kept[tag]
                    resume = True
                prefix, start = prefix_of(entry, now_ms)
                if message.rest is not None:
                    self._check_size(message.size)
                    self._large.add(entry)
                    continue
                send((prefix, rest_of(message.encoded, start)), tag, context=entry, resume=resume)
            except AmqpError as error:
                # Larger than the peer accepts, or an unreadable trace or annotation.
                refused.append((entry, error))
                continue
            entry.attempted = True
            message.forget()
        if link.credit <= 0 or self.no_credit_since_ms is not None:
            self._look_at_credit(now_ms)
        self.flush()
        return refused

    def _look_at_credit(self, now_ms: int) -> None:
        """Record since when the peer has given no credit."""
        link = self.link
        if link is None or link.credit > 0:
            self.no_credit_since_ms = None
        elif self.no_credit_since_ms is None:
            self.no_credit_since_ms = now_ms

    # -- very large messages -------------------------------------------------------------------

    def _check_size(self, size: int) -> None:
        """Raise for a message larger than the peer accepts; added sections are not counted."""
        most = self.link.max_message_size if self.link is not None else 0
        if 0 < most < size:
            raise MessageSizeExceeded(f"the message has {size} octets, the peer takes {most}")

    def head_of(self, entry: Entry) -> tuple[bytes, ...]:
        """See `LargeMessageCarrier.head_of`."""
        prefix, start = self._prefix(entry, self._now_ms())
        return prefix, rest_of(entry.message.encoded, start)

    def attach_large(self) -> Link | None:
        """See `LargeMessageCarrier.attach_large`."""
        first = self.link
        if first is None or self.connection.state is not LinkStateName.OPEN:
            return None
        properties: Mapping[str, Any] | None = None
        if self.keeps_receipts:
            # Deliveries in flight on the first link may be sent again.
            floor = min([self._listener.floor(), *filter(None, [self.lowest_in_flight])])
            properties = {STREAM: self._stream, STORE: self._store, FLOOR: floor}
        assert isinstance(first.target, spec.Target)
        return self.connection.begin().attach(
            f"{first.name}/large",
            "sender",
            source=spec.Source(address=self.hop.key),
            target=spec.Target(address=None if self._target == ANONYMOUS else self._target),
            snd_settle_mode=spec.SENDER_UNSETTLED,
            rcv_settle_mode=spec.RECEIVER_FIRST,
            properties=properties,
        )

    def settle_here(self, entry: Entry, outcome: Outcome) -> None:
        """See `LargeMessageCarrier.settle_here`."""
        listener = self._listener
        listener.outcome_received([entry], failure_verdict.for_outcome(outcome), outcome)
        listener.events_handled()

    def _resume(self, entry: Entry, tag: bytes) -> bool:
        """Act on the peer's state of a delivery of an earlier link (part 2 §2.6.13).

        Returns:
            Whether the peer already has an outcome, so that the delivery only needs to be settled.
        """
        link = self.link
        assert link is not None
        state = self._kept[tag]
        outcome = outcome_of(state)
        if outcome is None:
            return False
        del self._kept[tag]
        link.send((), tag, settled=True, state=state, resume=True)
        verdict = self._heard(failure_verdict.for_outcome(outcome))
        self._listener.outcome_received([entry], verdict, outcome)
        return True

    def _check_path(self, wanted: object) -> None:
        """Check that the connection is as secure as a message demands.

        Raises:
            NotAllowed: with the missing property; nothing of the message has been sent.
        """
        levels = SECURITY_LEVELS
        needed = levels.index(str(wanted)) if wanted in levels[1:] else len(levels)
        remote = self.connection.remote_open
        if levels.index(self.level) < needed:
            words = f"the connection to {self.hop.key} is {self.level}, and {wanted} is demanded"
        elif remote is None or PATH_CAPABILITY not in remote.offered_capabilities:
            words = f"{self.hop.key} does not promise a path that is {wanted} beyond itself"
        else:
            return
        raise NotAllowed(words, info={"code": "policy.path"})

    def tell_floor(self, floor: int) -> None:
        """Tell the peer that it may drop receipts below the floor."""
        if self.link is not None and self.link.is_active and self.keeps_receipts:
            self.link.inform({FLOOR: floor})
            self.flush()

    def flush(self) -> None:
        """Write the engine's output in this reactor turn."""
        if self._pump is not None:
            self._pump.schedule_flush()

    @property
    def has_answers(self) -> bool:
        """Whether the peer waits for us to settle deliveries."""
        return bool(self._answers)

    def settle_answers(self) -> None:
        """Settle the deliveries that the peer left for us to settle; our side is durable now."""
        answers, self._answers = self._answers, []
        link = self.link
        if answers and link is not None and link.is_active:
            for deliveries, state in answers:
                deliveries[0].link.session.settle(deliveries, state, True)
            self.flush()

    def close(self, why: FailureVerdict = CLOSED) -> None:
        """Close the connection cleanly; ``why`` is the verdict passed to the destination."""
        if not self._is_over and self._pump is not None:
            self._verdict = why
            if self.connection.remote_open is not None:
                self.connection.close()
                self.flush()
            else:
                self._pump.abort()

    def abandon(self, verdict_: FailureVerdict) -> None:
        """Drop the connection after a missed deadline."""
        self._verdict = verdict_
        if self._pump is not None:
            self._pump.abort()

    # -- IConnectionUser -------------------------------------------------------------------------

    def connected(self, pump: IConnectionPump) -> None:
        """See `IConnectionUser.connected`."""
        self._pump = pump

    def secured(self, facts: TransportFacts) -> None:
        """Handle the upgrade of the connection to TLS."""
        self.level = facts.level

    def events(self, events: Sequence[object]) -> None:
        """See `IConnectionUser.events`."""
        handlers = self._handlers
        if events and type(last := events[-1]) is ev.ConnectionClosed:
            # The end of the link comes first, in the same form as if the peer had ended it.
            self._is_lost = not last.clean and last.error is None
        for event in events:
            handlers[type(event)](event)
        self._listener.events_handled()

    def paused(self) -> None:
        """See `IConnectionUser.paused`."""
        self.is_paused = True

    def writable(self) -> None:
        """See `IConnectionUser.writable`."""
        self.is_paused = False
        self._listener.capacity_changed()
        self._large.go()

    def lost(self, reason: Failure) -> None:
        """See `IConnectionUser.lost`."""
        if self._verdict is None and isinstance(reason.value, ConnectionClosed):
            words = "the connection was lost without a word"
            if not self.connection.has_heard and self.level == "none":
                words = UNANSWERED_HEADER
            elif self.connection.remote_open is None and self.level != "none":
                # A host that refuses our certificate after the handshake cannot report it.
                words += (
                    " before it was opened: as a rule the host does not take our certificate; its "
                    "operator sees the reason"
                )
            self._fail("peer.lost", words)
        elif self._verdict is None:
            self._verdict = failure_verdict.for_failure(reason.value or ConnectionError())
        self._finish()
        self._pump = None

    # -- attaching the link ----------------------------------------------------------------------

    def _authenticated(self, event: ev.Authenticated) -> None:
        self.connection.open()

    def _authentication_failed(self, event: ev.AuthenticationRejected) -> None:
        self._fail("sasl.refused", event.reason)

    def _open_received(self, event: ev.OpenReceived) -> None:
        self.remote_id = event.open.container_id
        self.keeps_receipts = TRANSFER_CAPABILITY in event.open.offered_capabilities
        self._attach()

    def _attach(self) -> None:
        if self.connection.state is not LinkStateName.OPEN:
            return  # refused by open and close together: the close that follows has the reason
        session = self.connection.begin()
        address: str | None = self._target
        if address == ANONYMOUS:
            address = None
        properties: Mapping[str, Any] | None = None
        target = spec.Target(address=address)
        unsettled: Mapping[bytes, Any] | None = None
        if self.keeps_receipts:
            properties = {STREAM: self._stream, STORE: self._store, FLOOR: self._listener.floor()}
        else:
            # A peer without receipts is asked to keep unsettled deliveries for a while.
            target.expiry_policy = spec.EXPIRE_CONNECTION_CLOSE
            target.timeout = UInt(KEEP_SECONDS)
            unsettled = {id_.to_bytes(TAG_OCTETS, "big"): None for id_ in self._listener.doubtful()}
        self.link = session.attach(
            # After a fallback, the first link's name is in use until its detach is answered.
            f"{self.remote_id}/{self.hop.key}{'' if self._target == self.hop.target else '/any'}",
            "sender",
            source=spec.Source(address=self.hop.key),
            target=target,
            snd_settle_mode=spec.SENDER_UNSETTLED,
            rcv_settle_mode=spec.RECEIVER_FIRST,
            properties=properties,
            unsettled=unsettled or None,
        )
        self._offered = frozenset(unsettled or ())

    def _link_attached(self, event: ev.LinkAttached) -> None:
        if not event.is_answer:
            return
        if event.link is not self.link:
            if event.link is self._large.link and event.attach.target is not None:
                self._large.attached(is_refused=False)
            return
        if event.attach.target is None:
            self._is_refused = True  # the detach that follows has the reason
            return
        kept = event.attach.unsettled
        if kept and self._offered:
            self._kept = {tag: kept[tag] for tag in self._offered if tag in kept}
        if event.attach.incomplete_unsettled:
            # Such a link may only resume deliveries, which is not worth a separate link.
            self._verdict = failure_verdict.for_code("link.incomplete", "the peer's list was cut")
            self._become_ready()
            self.close(self._verdict)
            return
        self._look_at_credit(self._now_ms())
        self._become_ready()

    def _become_ready(self) -> None:
        self._is_attached = True
        if self._ready.called:
            self.abandon(self._verdict or CLOSED)  # the attempt was given up meanwhile
        else:
            self._ready.callback(self)

    def _link_detached(self, event: ev.LinkDetached) -> None:
        if event.link is not self.link and event.link is not self._large.link:
            return
        if event.link is not self.link and event.link.target is None:
            self._large.attached(is_refused=True)
            return
        if not self._is_attached:
            if not event.by_fault:
                self._check_resumption(event.error)
            if self._fall_back():
                return
        if self._verdict is None and self._is_lost and event.error is None:
            self._fail("peer.lost", "the connection was lost without a word")
        if self._verdict is None:
            self._verdict = self._end(event.error, "link", event.by_fault)
        self._finish(event.deliveries)
        self.connection.close()

    def _fall_back(self) -> bool:
        """Try the anonymous terminus: a peer without the service may route by `to` (T-34)."""
        if not self._is_refused:
            return False
        self._is_refused = False
        remote = self.connection.remote_open
        offered = remote.offered_capabilities if remote is not None else ()
        if self._target != TRANSFER_NODE or ANONYMOUS_RELAY not in offered:
            return False
        self._target = ANONYMOUS
        self._attach()
        return True

    def _check_resumption(self, error: spec.Error | None) -> None:
        """Check whether the peer refused the link because it listed unsettled deliveries."""
        if self._offered and error is not None and error.condition in _CANNOT_RESUME:
            self._listener.resumption_refused()

    def _session_ended(self, event: ev.SessionEnded) -> None:
        if not self._is_attached and not event.by_fault:
            self._check_resumption(event.error)
        if self._verdict is None:
            self._verdict = self._end(event.error, "session", event.by_fault)
        self._finish()
        self.connection.close()

    def _connection_closed(self, event: ev.ConnectionClosed) -> None:
        if self._verdict is None and event.error is not None:
            self._verdict = self._end(event.error, "connection", event.by_fault)

    def _end(self, error: spec.Error | None, what: str, by_fault: bool) -> FailureVerdict:
        if by_fault:
            return failure_verdict.for_fault(details_of(error))
        return self._heard(failure_verdict.for_end(details_of(error), what))

    def _heard(self, verdict: FailureVerdict) -> FailureVerdict:
        """Ignore retry-after of a peer that has not proved its identity."""
        if verdict.retry_after and self.level not in PROVED:
            return replace(verdict, retry_after=0.0)
        return verdict

    def _fail(self, code: str, words: str) -> None:
        self._verdict = failure_verdict.for_code(code, words)

    def _finish(self, deliveries: Sequence[Delivery] | None = None) -> None:
        """Report the end once; entries in flight are in doubt and go back to the queue."""
        if self._is_over:
            return
        self._is_over = True
        held = dict.fromkeys(deliveries or ())
        if self.link is not None:
            held |= dict.fromkeys([*self.link.unsettled.values(), *self._large.deliveries()])
        waiting = self._large.end()
        # Without a context: the outcome has arrived, only our settlement has not been sent.
        self.in_doubt = [each.context for each in held if each.context is not None]
        self.in_doubt += waiting
        if self._stranded:
            self.in_doubt = list(dict.fromkeys([*self.in_doubt, *self._stranded]))
        verdict = self._verdict or failure_verdict.for_code("peer.lost", "")
        if self._ready.called:
            self._listener.session_ended(self, verdict)
        else:
            self._ready.errback(PeerFailure(verdict))

    # -- outcomes --------------------------------------------------------------------------------

    def _updated(self, event: ev.DeliveriesUpdated) -> None:
        state = event.state
        outcome = ACCEPTED if type(state) is spec.Accepted else outcome_of(state)
        if outcome is None:
            if not event.settled:
                return
            outcome, state = RELEASED, RELEASED_STATE
        entries = []
        for delivery in event.deliveries:
            # The first outcome counts; a repeated one, or its settlement, changes nothing.
            if delivery.context is not None:
                entries.append(delivery.context)
                delivery.context = None
        if not event.settled:
            self._answers.append((event.deliveries, state))
        if entries:
            verdict = failure_verdict.for_outcome(outcome)
            if verdict.retry_after:
                verdict = self._heard(verdict)
            self._listener.outcome_received(entries, verdict, outcome)
        if self._large.link is not None:
            self._large.go()

    def _flowed(self, event: object) -> None:
        self._look_at_credit(self._now_ms())
        self._listener.capacity_changed()
        self._large.go()


def _ip(text: str) -> object:
    """Return an address in a comparable form."""
    try:
        return ip_address(text)
    except ValueError:
        return text


def _nothing(_: object) -> None:
    """Ignore an event."""


__all__ = ["PeerSession", "SessionListener", "SessionTerms"]
