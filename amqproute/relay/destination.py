# SPDX-License-Identifier: Apache-2.0
"""One next hop: the consumer of its relay queue, and its state across connections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.queue import Queue
from amqproute.broker.queue_counters import QueueCounters
from amqproute.broker.token_bucket import Rate
from amqproute.entry import Entry
from amqproute.errors import NotFound, StoreError
from amqproute.interfaces import IConsumer
from amqproute.journal.event import EntryTaker, RunEvent
from amqproute.journal.record import RecordKind
from amqproute.outcomes import Outcome
from amqproute.relay import failure_errors
from amqproute.relay.backoff import BackOff
from amqproute.relay.connect_agent import ConnectAgent
from amqproute.relay.connect_attempt import ConnectAttempt
from amqproute.relay.destination_snapshot import DestinationSnapshot
from amqproute.relay.error_disclosure import error_for_senders
from amqproute.relay.failure_verdict import FailureAction, FailureVerdict, for_code
from amqproute.relay.lifecycle import (
    EMPTY_SECONDS,
    UNSURE_SECONDS,
    DestinationLifecycle,
    DestinationState,
    NextStep,
    SessionEnd,
    Steps,
    WaitChoice,
)
from amqproute.relay.outcome_processor import OutcomeProcessor
from amqproute.relay.peer_session import PeerSession
from amqproute.relay.poison_detector import PoisonFinding
from amqproute.relay.relay_context import RelayContext
from amqproute.relay.relay_terms import FIRST_WINDOW, SUCCEEDED, DestinationCounters
from amqproute.relay.send_budget import SendBudget
from amqproute.relay.session_monitor import SessionMonitor
from amqproute.values import NextHop

NOTHING_FOUND = PoisonFinding()


class DestinationHost(Protocol):
    """The owner of destinations: the relay."""

    def destination_idle(self, destination: Destination) -> None:
        """Handle a destination that has been unused for a while."""

    def unfound_seconds(self) -> float:
        """Return the minimum delay of the next attempt for a hop that the DNS does not know."""


@implementer(IConsumer)
class Destination:
    """One next hop.

    Args:
        hop: the next hop.
        queue: its relay queue.
        agent: opens connections.
        context: shared by all destinations.
        host: the owner of all destinations.
        holder: the holder of this destination; see `destination_quota`.

    Attributes:
        taker: the peer's name in the journal.
        life: its state and next step. The holds themselves are in `holds`.
    """

    # There may be thousands: with a dictionary each takes a kilobyte more.
    __slots__ = (
        "__weakref__",
        "_agent",
        "_attempt",
        "_clock",
        "_context",
        "_doubtful",
        "_host",
        "_last_used",
        "_limits",
        "_resumes",
        "_selects",
        "_session",
        "_share",
        "_terms",
        "_timer",
        "_timer_at",
        "_watch",
        "avoid",
        "backoff",
        "hop",
        "last_success_ms",
        "life",
        "outcomes",
        "queue",
        "remote_id",
        "taker",
        "tally",
        "window",
    )

    log = Logger()

    def __init__(
        self,
        hop: NextHop,
        queue: Queue,
        agent: ConnectAgent,
        context: RelayContext,
        host: DestinationHost,
        holder: tuple[str, ...] = (),
    ) -> None:
        self.hop = hop
        self.taker = EntryTaker(RecordKind.RELAYED, {"peer": f"peer:{hop.domain}"})
        self.queue = queue
        self.life = DestinationLifecycle()
        self.last_success_ms = 0
        self.remote_id = ""
        environment = context.environment
        clock, terms = environment.clock, context.terms
        self.backoff = BackOff(
            hop.key, context.begin, environment.now_ms, environment.random, terms, holder
        )
        self.window = self.backoff.window
        self.outcomes = OutcomeProcessor(hop.key, queue, self, context)
        self.tally = self.outcomes.tally
        self._agent = agent
        self._clock = clock
        self._context = context
        self._terms = terms
        self._attempt = ConnectAttempt(hop, agent, context.starts, clock, self)
        self._host = host
        self._limits = queue.limits
        self._share = SendBudget(queue, clock, terms, hop)
        self._session: PeerSession | None = None
        self._watch: SessionMonitor | None = None
        self._timer: IDelayedCall | None = None
        self._timer_at = 0.0
        self._last_used = 0.0
        self._selects: Callable[[Entry], bool] | None = None
        self.avoid: tuple[str, int] | None = None
        self._doubtful: tuple[int, ...] = ()
        self._resumes = True
        queue.attach(self)
        queue.when_empty = self._emptied

    def __repr__(self) -> str:
        return (
            f"<Destination {self.hop.key} {self.state.value} in-flight={self.in_flight} "
            f"waiting={self.queue.available}>"
        )

    @property
    def state(self) -> DestinationState:
        """The current state."""
        return self.life.state

    @property
    def held(self) -> str | None:
        """Why nothing is sent; None unless held."""
        return self.life.held

    @property
    def in_flight(self) -> int:
        """Entries without an outcome."""
        return self._session.in_flight if self._session is not None else 0

    @property
    def held_bytes(self) -> int:
        """The octets of these entries in memory."""
        return self._share.octets

    @property
    def session(self) -> PeerSession | None:
        """The open session, or None."""
        return self._session

    @property
    def offers(self) -> frozenset[str]:
        """The capabilities offered by the connected peer."""
        opened = self._session.connection.remote_open if self._session is not None else None
        return frozenset(map(str, opened.offered_capabilities)) if opened else frozenset()

    @property
    def failures(self) -> int:
        """Failed attempts since the last accepted message."""
        return self.backoff.failures

    @property
    def last_error(self) -> str:
        """Code and text of the last failure."""
        return self.backoff.last_error

    @property
    def no_credit_since_ms(self) -> int | None:
        """Time since which the connected peer has given no credit; None while it gives some."""
        return None if self._session is None else self._session.no_credit_since_ms

    @property
    def dns_since_ms(self) -> int | None:
        """Time since which the DNS has not given the peer's place; None while it does."""
        return self.backoff.dns_since_ms if self._session is None else None

    @property
    def rate(self) -> Rate:
        """The operator's limit on the rate of messages."""
        return self._terms.rate(self.hop)

    @property
    def is_dead(self) -> bool:
        """Whether the peer counts as dead after its failed attempts."""
        return self.window.is_dead

    @property
    def is_unfound(self) -> bool:
        """Whether no host has been reached and the DNS has not named one."""
        return self.is_dead and not self.last_success_ms and self.last_error.startswith("dns.")

    @property
    def limiter(self) -> str:
        """The setting that limits sending now; empty if none does."""
        return self._share.limiter

    @property
    def refusal(self) -> NotFound | None:
        """The error with which messages for this hop are refused at admission, or None (T-25)."""
        if not self.life.is_refused(self._clock.seconds()):
            return None
        code = self.last_error.partition(":")[0]
        words = error_for_senders(self.last_error, self.hop.key)
        return NotFound(words, info={"code": code})

    def snapshot(self) -> DestinationSnapshot:
        """Return the present state for operators."""
        backoff, tally, session, life = self.backoff, self.tally, self._session, self.life
        link = session.link if session is not None else None
        candidate = session.candidate if session is not None else None
        rate = self.rate
        return DestinationSnapshot(
            queue=self.queue.name,
            hop=self.hop.key,
            domain=self.hop.domain,
            state="held" if life.held is not None else life.state.value,
            held=life.held or "",
            dead=self.is_dead,
            in_flight=self.in_flight,
            window=self.window.size,
            credit=link.credit if link is not None else 0,
            limiter=self.limiter,
            messages_per_second=rate.messages,
            bytes_per_second=rate.octets,
            failures=backoff.failures,
            last_code=backoff.last_error.partition(":")[0],
            last_error=backoff.last_error,
            attempts=list(backoff.last_attempts),
            next_attempt_ms=backoff.next_attempt_ms,
            last_success_ms=self.last_success_ms,
            container=self.remote_id,
            level=session.level if session is not None else "",
            host="" if candidate is None else f"{candidate.host}:{candidate.port}",
            address=(session.address or "") if session is not None else "",
            relayed=tally.relayed,
            rejected=tally.rejected,
            rejections=dict(tally.rejections),
            retried=tally.retried,
            connections=tally.connections,
            stuck=tally.stuck,
            moves=tally.moves,
        )

    # -- IConsumer -------------------------------------------------------------------------------

    @property
    def takes_ahead(self) -> bool:
        """See `IConsumer.takes_ahead`: without a session, messages may be given up."""
        return self._session is not None

    def capacity(self) -> int:
        """See `IConsumer.capacity`. Called only if there are entries, so it starts connecting."""
        session, life = self._session, self.life
        if life.held is not None or life.is_stopping:
            return 0
        if session is None:
            if life.state is DestinationState.IDLE:
                self._take(life.messages_waiting())
            return self._terms.window if life.state is DestinationState.REFUSED else 0
        if self._watch is not None and self._watch.is_draining:
            return 0
        room = session.sendable()
        # One of the suspects ends the connection; sent alone, each shows whether it is the cause.
        free = (1 if self.outcomes.suspects else self.window.size) - session.in_flight
        if room <= 0 or free <= 0:
            return 0
        return self._share.of(min(room, free))

    def deliver(self, entries: Sequence[Entry]) -> None:
        """See `IConsumer.deliver`."""
        session = self._session
        if session is None:
            words = error_for_senders(self.last_error, self.hop.key)
            self.outcomes.given_up(entries, failure_errors.no_route(words))
            self.outcomes.commit()
            return
        self._last_used = self._clock.seconds()
        self._share.sent(entries)
        for entry, problem in session.send(entries):
            self._share.done((entry,))
            self.outcomes.unsendable(entry, problem)
        self.outcomes.commit()

    def holds(self) -> list[Entry]:
        """See `IConsumer.holds`."""
        return [] if self._session is None else self._session.holds()

    def exhausted(self) -> None:
        """See `IConsumer.exhausted`: nothing to send."""

    # -- steps -----------------------------------------------------------------------------------

    def _take(self, steps: Steps = ()) -> None:
        """Execute the steps that follow from an event, and wait for the next deadline."""
        try:
            for step in steps:
                self._take_one(step)
        finally:
            self._arm()  # an exception in a step must not lose the deadlines

    def _take_one(self, step: NextStep) -> None:
        queue = self.queue
        match step:
            case NextStep.CONNECT:
                self._attempt.ask(self.life.is_urgent)
            case NextStep.CANCEL_ATTEMPT:
                self._attempt.cancel()
            case NextStep.ASK_DNS:
                self._agent.forget(self.hop)
            case NextStep.DISPATCH:
                queue.dispatch()
            case NextStep.RESUME:
                self.backoff.next_attempt_ms = 0
                queue.dispatch()
            case NextStep.UNDEFER:
                queue.undefer(everything=True, but=self.outcomes.aside())
            case NextStep.UNDEFER_ALL:
                queue.undefer(everything=True)
            case NextStep.CONFIRM_EMPTY:
                if self._is_empty:
                    self.backoff.clear().addCallbacks(self._confirmed, self._unconfirmed)
            case NextStep.PERSIST:
                self.backoff.persist()
            case NextStep.FORGET:
                self._host.destination_idle(self)

    def _arm(self) -> None:
        """Set one timer for the earliest deadline."""
        at = self.life.next_deadline()
        timer = self._timer
        if timer is not None:
            if at == self._timer_at:
                return
            self._timer = None
            timer.cancel()
        if at is not None:
            self._timer_at = at
            self._timer = self._clock.callLater(max(0.0, at - self._clock.seconds()), self._due)

    def _due(self) -> None:
        self._timer = None
        self._take(self.life.due(self._clock.seconds()))

    # -- connecting ------------------------------------------------------------------------------

    def wants_session(self) -> bool:
        """See `AttemptHost.wants_session`."""
        return self.life.may_begin(bool(self.queue.available))

    # -- SessionListener ---------------------------------------------------------------------------

    def floor(self) -> int:
        """See `SessionListener.floor`."""
        return self.outcomes.floor()

    def doubtful(self) -> Sequence[int]:
        """See `SessionListener.doubtful`."""
        return self._doubtful

    def capacity_changed(self) -> None:
        """See `SessionListener.capacity_changed`."""
        self.queue.dispatch()

    def resumption_refused(self) -> None:
        """See `SessionListener.resumption_refused`: later links do not list deliveries in doubt."""
        if not self._resumes:
            return
        self.log.info(
            "{destination} does not take part in the resumption of links; what is in doubt when a "
            "connection is lost is sent again",
            destination=self.hop.key,
        )
        self._resumes = False
        self._doubtful = ()

    def opened(self, session: PeerSession) -> None:
        """See `AttemptHost.opened`."""
        self._session = self.outcomes.session = session
        steps = self.life.opened()
        self._doubtful = ()
        if self.remote_id not in ("", session.remote_id):
            # Authentication is towards a specific container (T-39): report a change.
            self.log.warn(
                "{destination} is container {container} now; it was {before}",
                destination=self.hop.key,
                container=session.remote_id,
                before=self.remote_id,
            )
        self.remote_id = session.remote_id
        candidate = session.candidate
        self.taker = EntryTaker(
            RecordKind.RELAYED,
            {
                "peer": f"peer:{self.hop.domain}",
                "connection": session.remote_id,
                "link": None if session.link is None else session.link.name,
                "level": session.level,
                "host": None if candidate is None else f"{candidate.host}:{candidate.port}",
            },
        )
        self.tally.connections += 1
        self.tally.attempted(SUCCEEDED)
        self.last_success_ms = self._context.environment.now_ms()
        if self.failures:
            self.log.info(
                "{destination} reached again after {failures} failed attempts",
                destination=self.hop.key,
                failures=self.failures,
            )
        else:
            self.log.info("{destination} connected", destination=self.hop.key)
        self.backoff.last_error = ""
        self._last_used = self._clock.seconds()
        self._watch = SessionMonitor(
            session,
            self.hop,
            self._agent,
            self._clock,
            idle_seconds=self._terms.idle_seconds,
            settle_seconds=self._terms.settle_seconds,
            is_unused=self._is_unused,
            before_close=self.outcomes.tell_floor,
        )
        self._take(steps)

    def not_opened(self, verdict: FailureVerdict, attempts: tuple[str, ...]) -> None:
        """See `AttemptHost.not_opened`."""
        self.backoff.last_attempts = attempts
        self.tally.attempted(verdict.code)
        self.avoid = None
        self._failed(verdict)

    def _failed(self, verdict: FailureVerdict, concerned: int | None = None) -> None:
        """Handle a failed attempt, or a connection lost before it was useful.

        Args:
            verdict: the failure.
            concerned: messages in doubt; None if no host was reached.
        """
        self.tally.failures += 1
        life = self.life
        if concerned is None or not life.was_useful:
            self.queue.end_sparing()  # overdue messages have had their attempt
        now = self._clock.seconds()
        choice = life.failed(verdict, now)
        if choice is WaitChoice.BACK_OFF:
            delay = self.backoff.failed(verdict, concerned, self.queue.depth)
            self._set_limits()
            if self.is_unfound and not verdict.retry_after:
                delay = max(delay, self._host.unfound_seconds())
            life.wait_until(now + delay)
            self._waiting(delay)
            self._note_wait(verdict, delay)
            return
        self.backoff.blame(verdict)
        if choice is WaitChoice.GIVE_UP:
            self._give_up()
        elif life.retry_at is not None:
            self._waiting(life.retry_at - now)

    def _note_wait(self, verdict: FailureVerdict, delay: float) -> None:
        """Record in the journal that the destination's messages are deferred."""
        journal = self._context.journal
        if journal.is_kept:
            facts = {
                "node": self.queue.name,
                "peer": f"peer:{self.hop.domain}",
                "code": verdict.code,
                "condition": verdict.condition,
                "words": verdict.words,
                "attempt": self.failures,
                "count": self.queue.depth,
                "until": 1000 * (self._context.environment.now_ms() + int(1000 * delay)),
            }
            journal.note(RunEvent(RecordKind.DEFERRED, journal.now_us(), facts))

    def _waiting(self, delay: float) -> None:
        """Persist the delay, and pass it to the messages set aside."""
        self.backoff.wait(delay)
        self.outcomes.release_connect_slot(delay)
        self._arm()

    def _emptied(self) -> None:
        """Handle the departure of the last message; the destination can soon be removed."""
        if self._session is None:
            self.life.emptied(self._clock.seconds() + EMPTY_SECONDS)
            self._arm()

    def _confirmed(self, _: object) -> None:
        """Handle the success of the commit that followed all others, in case one of them failed."""
        is_settled = self.outcomes.is_settled and self.queue.is_settled
        self._take(self.life.confirmed(self._is_empty, is_settled, self._clock.seconds()))

    def _unconfirmed(self, failure: Failure) -> None:
        if not isinstance(failure.value, StoreError):
            self.log.failure("{destination} could not be forgotten", failure, destination=self)
        self.life.check_at = self._clock.seconds() + UNSURE_SECONDS
        self._arm()

    @property
    def _is_empty(self) -> bool:
        return self._session is None and not self.queue.is_used and not self.life.is_stopping

    def wake(self) -> None:
        """Try now, for an operator (T-37)."""
        self._take(self.life.wake())

    def contacted(self) -> None:
        """Try now, because the peer has connected to us and is therefore up (T-37).

        Its host may have moved, so the DNS is queried again. If the attempt fails anyway, the
        back-off is unchanged: a peer that can call us but cannot be called, perhaps because of a
        firewall, must neither be tried at each of its calls nor wait longer and longer.
        """
        self._take(self.life.contacted(self._clock.seconds(), self._attempt.age))

    def hold(self, reason: str) -> None:
        """Send nothing until `unhold`; new messages are still accepted."""
        self.life.hold(reason or "held by an operator")
        self.log.info("{destination} held: {reason}", destination=self.hop.key, reason=self.held)

    def unhold(self) -> None:
        """Resume sending."""
        steps = self.life.unhold()
        if steps:
            self.log.info("{destination} released", destination=self.hop.key)
            self._take(steps)

    def select(self, selects: Callable[[Entry], bool] | None) -> None:
        """Send only selected entries and let the others wait; None selects all."""
        if selects is not None or self._selects is not None:
            self._selects = selects
            self.queue.detach(self)
            self.queue.attach(self, selects)
            self.queue.dispatch()

    def purge(self) -> Deferred[int]:
        """Delete the waiting messages; the peer decides about those in flight.

        Returns:
            A Deferred of the number of deleted messages.
        """
        return self.queue.purge()

    def _give_up(self) -> None:
        """Return all waiting messages: it is proved that the hop does not exist (T-25, T-26)."""
        self.log.warn(
            "{destination} does not exist: {error}; {waiting} messages are returned",
            destination=self.hop.key,
            error=self.last_error,
            waiting=self.queue.depth,
            attempts=list(self.backoff.last_attempts),
        )
        self._forget_failures()
        self.queue.undefer(everything=True)
        self.queue.dispatch()

    # -- an open session -------------------------------------------------------------------------

    def outcome_received(
        self, entries: Sequence[Entry], verdict: FailureVerdict, outcome: Outcome
    ) -> None:
        """See `SessionListener.outcome_received` (T-23)."""
        count = len(entries)
        in_flight = 0 if self._session is None else self._session.in_flight
        self.window.succeeded(count, in_flight + count)
        self._share.done(entries)
        self.outcomes.outcome(entries, verdict, outcome)
        if verdict.action is FailureAction.SETTLE:
            self.life.was_useful = True
            self.avoid = None
            if self.backoff.failures:
                self._forget_failures()

    def events_handled(self) -> None:
        """See `SessionListener.events_handled`."""
        self.outcomes.commit()
        if self._watch is not None:
            self._watch.read()

    def session_ended(self, session: PeerSession, verdict: FailureVerdict) -> None:
        """See `SessionListener.session_ended`."""
        if session is not self._session:
            return
        self._session = self.outcomes.session = None
        self._stop_watch()
        self._share.ended()
        in_doubt = session.in_doubt
        if not session.keeps_receipts and self._resumes:
            self._doubtful = tuple(entry.id for entry in in_doubt)
        found = NOTHING_FOUND
        end = self.life.ended(verdict, bool(in_doubt))
        if end is SessionEnd.CLOSED:
            self.tally.moves += verdict.code == "peer.moved"
            self.log.debug("{destination} closed", destination=self.hop.key)
            if self.failures:
                self._forget_failures()
        elif end is SessionEnd.IN_DOUBT:
            found = self.outcomes.judge(in_doubt, verdict)
            is_apart = found.guilty or (found.others_pass and self.outcomes.has_capacity)
            self._lost(session, verdict, len(in_doubt), is_apart)
        elif end is SessionEnd.LOST:
            self._lost(session, verdict, 0)
        elif end is SessionEnd.LEFT:
            self.log.info(
                "{destination} closed by the peer: {words}",
                destination=self.hop.key,
                words=verdict.words,
            )
        life, now = self.life, self._clock.seconds()
        wait = life.retry_at - now if life.retry_at is not None else 0.0
        in_doubt = self.outcomes.in_doubt(in_doubt, verdict, found, wait)
        if in_doubt:
            self.queue.release(in_doubt)
        elif life.state is DestinationState.IDLE:
            self.queue.dispatch()
            if verdict.code == "connection.closed" and not life.is_stopping:
                # At the end of the process no clean-up is needed.
                self._host.destination_idle(self)
        if not self.queue.depth:
            life.emptied(now + self._terms.idle_seconds)
            self._arm()

    def _lost(
        self, session: PeerSession, verdict: FailureVerdict, in_doubt: int, is_apart: bool = False
    ) -> None:
        self.log.debug(
            "{destination} lost: {code} {words}; {count} messages in doubt are sent again",
            destination=self.hop.key,
            code=verdict.condition or verdict.code,
            words=verdict.words,
            count=in_doubt,
        )
        self.tally.stuck += verdict.code == "peer.stuck"
        if session.candidate is not None:
            # The next attempt begins with other hosts, if there are any.
            self.avoid = (session.candidate.host, session.candidate.port)
        if is_apart:
            # This concerns one message, which waits alone; the others must not wait for it.
            self.tally.failures += 1
            self.backoff.blame(verdict)
            delay = self._terms.schedule.first_seconds
            self.life.wait_until(self._clock.seconds() + delay)
            self._waiting(delay)
            self._note_wait(verdict, delay)
        else:
            self._failed(verdict, in_doubt)

    def _is_unused(self) -> bool:
        quiet = self._clock.seconds() - self._last_used
        return not self.in_flight and not self.queue.depth and quiet >= self._terms.idle_seconds

    # -- counters ----------------------------------------------------------------------------------

    def count_on(self, tally: DestinationCounters, queue: QueueCounters) -> None:
        """Continue the counters of an earlier destination of the same hop."""
        self.tally = self.outcomes.tally = tally
        self.queue.state.counters = queue

    # -- persistence -----------------------------------------------------------------------------

    def noted(self) -> bytes:
        """Return the note for a restart: see `restore`."""
        return self.backoff.noted()

    def restore(self, value: bytes) -> None:
        """Restore the back-off of an earlier run (T-28)."""
        wait = self.backoff.restore(value)
        self._set_limits()
        if wait > 0:
            self.life.wait_until(self._clock.seconds() + wait)
            self._arm()

    def _forget_failures(self) -> None:
        self.backoff.forget()
        self._set_limits()

    # -- terms and stopping ------------------------------------------------------------------------

    def adopt(self, limits: QueueLimits) -> None:
        """Apply changed terms and queue limits."""
        terms = self._terms
        self._limits = limits
        self.window.adopt(FIRST_WINDOW, terms.window, terms.dead_after)
        self._share.adopt()
        self._set_limits()

    def _set_limits(self) -> None:
        """Keep little of a dead destination's backlog in memory; the rest belongs on disk."""
        limits = self._limits
        if self.is_dead:
            limits = replace(
                limits, resident_messages=min(limits.resident_messages, self._terms.window)
            )
        if self.queue.limits != limits:
            self.queue.limits = limits

    def _stop_watch(self) -> None:
        if self._watch is not None:
            self._watch.stop()
            self._watch = None

    def stop_sending(self) -> None:
        """Send no new entries; outcomes of entries in flight are still handled."""
        self._take(self.life.stop_sending())

    def forget_refusal(self) -> None:
        """Stop refusing messages because of earlier DNS answers."""
        self._take(self.life.end_refusal())

    @property
    def refused_until(self) -> float:
        """The time of the clock, in seconds, until which messages are refused; see `refusal`."""
        return self.life.refused_until

    @property
    def is_unused(self) -> bool:
        """Whether there is no connection, no attempt, and no state worth keeping."""
        return (
            self.state in (DestinationState.IDLE, DestinationState.REFUSED)
            and self._session is None
            and self.outcomes.is_settled
        )

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is in flight and nothing is being written to the store."""
        return not self.in_flight and self.outcomes.is_settled

    def stop(self) -> None:
        """Cancel the timers."""
        self.life.stop()
        self._arm()
        self._stop_watch()
        self._share.stop()

    def close(self) -> None:
        """Close the connection; entries in flight stay in the store."""
        self._take(self.life.stop_sending())
        self.stop()
        if self._session is not None:
            self.outcomes.tell_floor()
            self._session.close()

    def broken(self, failure: Failure) -> None:
        """See `AttemptHost.broken`."""
        self.log.failure("{destination} failed", failure, destination=self.hop.key)
        if self.state is DestinationState.CONNECTING:
            self._failed(for_code("peer.failed", failure.getErrorMessage()))
