# SPDX-License-Identifier: Apache-2.0
"""One next hop: the consumer of its relay queue, and its life between connections."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute.broker.commit_batch import Batch
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.queue import Queue
from amqproute.entry import Entry
from amqproute.errors import NotFound, StoreError
from amqproute.interfaces import IConsumer
from amqproute.journal.event import SILENCE, EntryTaker, RunEvent
from amqproute.journal.record import RecordKind
from amqproute.relay import failure_errors
from amqproute.relay.backoff import BackOff
from amqproute.relay.connect_agent import ConnectAgent
from amqproute.relay.connect_attempt import ConnectAttempt
from amqproute.relay.connect_scheduler import ConnectScheduler
from amqproute.relay.error_disclosure import error_for_senders
from amqproute.relay.failure_verdict import FailureAction, FailureVerdict, for_code
from amqproute.relay.outcome_processor import OutcomeProcessor
from amqproute.relay.peer_session import PeerSession
from amqproute.relay.poison_detector import PoisonFinding
from amqproute.relay.rejection_counts import RejectionCounts
from amqproute.relay.relay_terms import FIRST_WINDOW, RelayTerms
from amqproute.relay.send_budget import SendBudget
from amqproute.relay.session_monitor import SessionMonitor
from amqproute.values import NextHop

NOTHING_FOUND = PoisonFinding()
EMPTY_SECONDS = 1.0
"""How long one without messages and connection is kept, for the next message."""
UNSURE_SECONDS = 30.0
"""The same where the store fails."""
CONTACT_SECONDS = 2.0
"""A peer that calls in is tried at once, but not more often than this; nor is an attempt given up
for it that is younger."""


class DestinationState(enum.Enum):
    """Where a destination is; see the package docstring for the transitions."""

    IDLE = "idle"
    CONNECTING = "connecting"
    OPEN = "open"
    WAITING = "waiting"
    REFUSED = "refused"


@implementer(IConsumer)
class Destination:
    """One next hop.

    Args:
        hop: where to.
        queue: its relay queue.
        agent: makes connections.
        begin: makes batches.
        clock: for back-off.
        now_ms: the wall clock, for what is persisted.
        random: numbers from 0 to 1.
        terms: see `RelayTerms`.
        starts: the line of those who are about to connect.
        idle: called when it has had nothing to do for a while.
        journal: where attempts and deferrals are noted, an `IJournal`.
        holder: who holds it; see `destination_quota`.
        spread: gives the least seconds until the next attempt where the DNS does not know it.
        rejections: counts what the peer rejects, and tells the log.

    Attributes:
        taker: the peer, for the journal.
        held: why nothing is sent; None if it is. The holds themselves are in `holds`.
    """

    # Thousands of them may wait: with a dictionary each takes a kilobyte more.
    __slots__ = (
        "__weakref__",
        "_agent",
        "_attempt",
        "_clock",
        "_contacted_at",
        "_doubtful",
        "_idle",
        "_is_stopping",
        "_is_urgent",
        "_journal",
        "_last_used",
        "_limits",
        "_now_ms",
        "_probed_until",
        "_refused_until",
        "_resumes",
        "_selects",
        "_session",
        "_share",
        "_spread",
        "_terms",
        "_timers",
        "_was_of_use",
        "_watch",
        "avoid",
        "backoff",
        "held",
        "hop",
        "last_success_ms",
        "outcomes",
        "queue",
        "remote_id",
        "state",
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
        begin: Callable[[], Batch],
        clock: IReactorTime,
        now_ms: Callable[[], int],
        random: Callable[[], float],
        terms: RelayTerms,
        starts: ConnectScheduler,
        idle: Callable[[Destination], None],
        journal: Any = SILENCE,
        holder: tuple[str, ...] = (),
        spread: Callable[[], float] = float,
        *,
        rejections: RejectionCounts,
    ) -> None:
        self.hop = hop
        self.taker = EntryTaker(RecordKind.RELAYED, {"peer": f"peer:{hop.domain}"})
        self._journal = journal
        self.queue = queue
        self.state = DestinationState.IDLE
        self.last_success_ms = 0
        self.remote_id = ""
        self.held: str | None = None
        self.backoff = BackOff(hop.key, begin, now_ms, random, terms, holder)
        self.window = self.backoff.window
        self.outcomes = OutcomeProcessor(
            hop.key, queue, self, begin, random, terms, rejections, now_ms, journal
        )
        self.tally = self.outcomes.tally
        self._agent = agent
        self._clock = clock
        self._now_ms = now_ms
        self._terms = terms
        self._attempt = ConnectAttempt(hop, agent, starts, clock, self)
        self._idle = idle
        self._spread = spread
        self._limits = queue.limits
        self._share = SendBudget(queue, clock, terms, hop)
        self._session: PeerSession | None = None
        self._watch: SessionMonitor | None = None
        self._timers: dict[str, IDelayedCall] = {}
        self._last_used = 0.0
        self._contacted_at = -CONTACT_SECONDS
        self._probed_until: float | None = None
        self._is_urgent = False
        self._is_stopping = False
        self._selects: Callable[[Entry], bool] | None = None
        self._was_of_use = False
        self._refused_until = 0.0
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
    def in_flight(self) -> int:
        """Entries without an outcome."""
        return self._session.in_flight if self._session is not None else 0

    @property
    def held_bytes(self) -> int:
        """Octets in memory of these."""
        return self._share.octets

    @property
    def session(self) -> PeerSession | None:
        """The open session, if there is one."""
        return self._session

    @property
    def offers(self) -> frozenset[str]:
        """The capabilities of the peer that is connected now."""
        opened = self._session.connection.remote_open if self._session is not None else None
        return frozenset(map(str, opened.offered_capabilities)) if opened else frozenset()

    @property
    def failures(self) -> int:
        """Failed attempts since a message was taken."""
        return self.backoff.failures

    @property
    def last_error(self) -> str:
        """Code and words of the last failure."""
        return self.backoff.last_error

    @property
    def no_credit_since_ms(self) -> int | None:
        """Since when the connected peer has given no credit; None while it gives some."""
        return None if self._session is None else self._session.no_credit_since_ms

    @property
    def dns_since_ms(self) -> int | None:
        """Since when the DNS has not said where messages go; None while it does."""
        return self.backoff.dns_since_ms if self._session is None else None

    @property
    def rate(self) -> Any:
        """The most that an operator lets go there, a `Rate`."""
        return self._terms.rate(self.hop)

    @property
    def is_dead(self) -> bool:
        """So many attempts have failed that nobody is expected there."""
        return self.window.is_dead

    @property
    def is_unfound(self) -> bool:
        """Nobody has been reached there, and the DNS has not said where anybody would be."""
        return self.is_dead and not self.last_success_ms and self.last_error.startswith("dns.")

    @property
    def limiter(self) -> str:
        """The setting that holds messages back now; empty if none does."""
        return self._share.limiter

    @property
    def refusal(self) -> NotFound | None:
        """Why messages for this hop are refused at admission, if they are (T-25)."""
        if self.state is DestinationState.REFUSED:
            if self._clock.seconds() < self._refused_until:
                code = self.last_error.partition(":")[0]
                words = error_for_senders(self.last_error, self.hop.key)
                return NotFound(words, info={"code": code})
            self.state = DestinationState.IDLE
        return None

    # -- IConsumer -------------------------------------------------------------------------------

    @property
    def takes_ahead(self) -> bool:
        """See `IConsumer.takes_ahead`: without a session messages may be given up."""
        return self._session is not None

    def capacity(self) -> int:
        """See `IConsumer.capacity`. Asked only when there are entries: the time to connect."""
        session = self._session
        if self.held is not None or self._is_stopping:
            return 0
        if session is None:
            if self.state is DestinationState.IDLE:
                self._connect()
            return self._terms.window if self.state is DestinationState.REFUSED else 0
        if self._watch is not None and self._watch.is_draining:
            return 0
        room = session.sendable()
        # One of the suspects breaks the connection: alone each shows whether it is the one.
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

    # -- connecting ------------------------------------------------------------------------------

    def _connect(self) -> None:
        self.state = DestinationState.CONNECTING
        self._cancel("wait")
        self._attempt.ask(self._is_urgent)

    def wants_session(self) -> bool:
        """See `AttemptHost.wants_session`."""
        if not self.queue.available or self.held is not None:
            self.state = DestinationState.IDLE
            return False
        self._is_urgent = False
        return True

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
        """See `SessionListener.resumption_refused`: no link names what is in doubt from now on."""
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
        self.state = DestinationState.OPEN
        self._doubtful = ()
        self._probed_until = None
        self._was_of_use = False
        if self.remote_id not in ("", session.remote_id):
            # Authentication is towards a specific container (T-39): say when it is another one.
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
        self.last_success_ms = self._now_ms()
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
        self.queue.undefer(everything=True, but=self.outcomes.aside())
        self.queue.dispatch()

    def not_opened(self, verdict: FailureVerdict, attempts: tuple[str, ...]) -> None:
        """See `AttemptHost.not_opened`."""
        self.backoff.last_attempts = attempts
        self.avoid = None
        self._failed(verdict)

    def _failed(self, verdict: FailureVerdict, concerned: int | None = None) -> None:
        """An attempt failed, or a connection was lost before it was of use.

        Args:
            verdict: why.
            concerned: messages in doubt; None if nobody was reached.
        """
        self.tally.failures += 1
        if concerned is None or not self._was_of_use:
            self.queue.end_sparing()  # what is overdue has had its attempt
        probed_until, self._probed_until = self._probed_until, None
        if verdict.action is FailureAction.REJECT:
            self.backoff.blame(verdict)
            self._give_up(verdict.lasts)
        elif probed_until is not None and probed_until > self._clock.seconds():
            # Tried out of turn, because the peer called in: that does not make it wait longer.
            self.backoff.blame(verdict)
            self._wait(probed_until - self._clock.seconds())
        else:
            delay = self.backoff.failed(verdict, concerned, self.queue.depth)
            self._set_limits()
            if self.is_unfound and not verdict.retry_after:
                delay = max(delay, self._spread())
            self._wait(delay)
            self._note_wait(verdict, delay)

    def _note_wait(self, verdict: FailureVerdict, delay: float) -> None:
        """Have it in the journal that everything here waits."""
        if self._journal.is_kept:
            facts = {
                "node": self.queue.name,
                "peer": f"peer:{self.hop.domain}",
                "code": verdict.code,
                "condition": verdict.condition,
                "words": verdict.words,
                "attempt": self.failures,
                "count": self.queue.depth,
                "until": 1000 * (self._now_ms() + int(1000 * delay)),
            }
            self._journal.note(RunEvent(RecordKind.DEFERRED, self._journal.now_us(), facts))

    def _wait(self, delay: float) -> None:
        self.state = DestinationState.WAITING
        self.backoff.wait(delay)
        self.outcomes.release_connect_slot(delay)
        self._later("wait", delay, self._waited)

    def _emptied(self) -> None:
        """Its last message has left; without a connection there is soon nothing to remember."""
        if self._session is None and not self._is_stopping:
            self._later("empty", EMPTY_SECONDS, self._make_sure)

    def _make_sure(self) -> None:
        """Forget it when what took its messages away is on the disk.

        Messages come back where a commit fails. So there is one more, behind all others.
        """
        self._cancel("empty")
        if self._is_empty:
            self.backoff.clear().addCallbacks(self._sure, self._unsure)

    def _sure(self, _: object) -> None:
        if not self._is_empty:
            self.backoff.persist()  # a message came while the note was being taken back
            return
        if not (self.outcomes.is_settled and self.queue.is_settled):
            self._emptied()
            return
        if self.state is DestinationState.CONNECTING:
            self._attempt.cancel()
            self.state = DestinationState.IDLE
        self._idle(self)

    def _unsure(self, failure: Failure) -> None:
        if not isinstance(failure.value, StoreError):
            self.log.failure("{destination} could not be forgotten", failure, destination=self)
        self._later("empty", UNSURE_SECONDS, self._make_sure)

    @property
    def _is_empty(self) -> bool:
        return self._session is None and not self.queue.is_used and not self._is_stopping

    def _waited(self) -> None:
        self._cancel("wait")
        self.state = DestinationState.IDLE
        self.backoff.next_attempt_ms = 0
        self.queue.dispatch()

    def wake(self) -> None:
        """Try now: an operator asks (T-37)."""
        if self.state is DestinationState.WAITING:
            self._is_urgent = True
            self._waited()
        self.queue.undefer(everything=True)

    def contacted(self) -> None:
        """The peer has called in, so it is up: try now (T-37).

        Its host may have moved, so the DNS is asked anew. An attempt that fails nevertheless
        changes nothing about the back-off: whoever can call us but not be called by us, perhaps
        because of a firewall, must neither be hit by each of its calls nor wait for ever longer.
        """
        if self.state is DestinationState.OPEN:
            self.queue.undefer(everything=True, but=self.outcomes.aside())
            return
        now = self._clock.seconds()
        age = self._attempt.age
        is_young = age is not None and age < CONTACT_SECONDS
        if self.held is not None or self._is_stopping or is_young or "contact" in self._timers:
            return
        wait = self._contacted_at + CONTACT_SECONDS - now
        if wait > 0:
            self._later("contact", wait, self._probe)
        else:
            self._probe()

    def _probe(self) -> None:
        self._cancel("contact")
        now = self._clock.seconds()
        self._contacted_at = now
        if self.state is DestinationState.WAITING:
            due = self._timers.get("wait")
            self._probed_until = due.getTime() if due is not None else None
        elif self.state is not DestinationState.CONNECTING:
            self.queue.dispatch()
            return
        self._attempt.cancel()
        self._agent.forget(self.hop)
        self._is_urgent = True
        self._waited()
        self.queue.undefer(everything=True, but=self.outcomes.aside())

    def hold(self, reason: str) -> None:
        """Send nothing until `unhold`; new messages are still taken."""
        self.held = reason or "held by an operator"
        self.log.info("{destination} held: {reason}", destination=self.hop.key, reason=self.held)

    def unhold(self) -> None:
        """Send again."""
        if self.held is not None:
            self.held = None
            self.log.info("{destination} released", destination=self.hop.key)
            self.queue.dispatch()

    def select(self, selects: Callable[[Entry], bool] | None) -> None:
        """Send only what this selects, and let the rest wait; None: everything."""
        if selects is not None or self._selects is not None:
            self._selects = selects
            self.queue.detach(self)
            self.queue.attach(self, selects)
            self.queue.dispatch()

    def purge(self) -> Deferred[int]:
        """Delete what waits here; what is in flight is the peer's to decide.

        Returns:
            A Deferred of how many messages were deleted.
        """
        return self.queue.purge()

    def _give_up(self, seconds: float) -> None:
        """There is proof that the hop does not exist: what waits goes back (T-25, T-26).

        Args:
            seconds: for how long the proof is believed.
        """
        self.state = DestinationState.REFUSED
        self._refused_until = self._clock.seconds() + seconds
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
        self, entries: Sequence[Entry], verdict: FailureVerdict, state: object
    ) -> None:
        """See `SessionListener.outcome_received` (T-23)."""
        count = len(entries)
        self.window.succeeded(count, self.in_flight + count)
        self._share.done(entries)
        self.outcomes.outcome(entries, verdict, state)
        if verdict.action is FailureAction.SETTLE:
            self._was_of_use = True
            self.avoid = None
            if self.failures:
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
        if self._is_stopping:
            self.state = DestinationState.IDLE
        elif verdict.code in ("connection.closed", "peer.moved"):
            self.state = DestinationState.IDLE
            self.tally.moves += verdict.code == "peer.moved"
            self.log.debug("{destination} closed", destination=self.hop.key)
            if self.failures:
                self._forget_failures()
        elif in_doubt or verdict.condition is not None or not self._was_of_use:
            found = self.outcomes.judge(in_doubt, verdict)
            is_apart = found.guilty or (found.others_pass and self.outcomes.has_capacity)
            self._lost(session, verdict, len(in_doubt), is_apart)
        elif verdict.action in (FailureAction.DEFER, FailureAction.RETRY):
            self._lost(session, verdict, 0)
        else:
            self.state = DestinationState.IDLE
            self.log.info(
                "{destination} closed by the peer: {words}",
                destination=self.hop.key,
                words=verdict.words,
            )
        due = self._timers.get("wait")
        wait = due.getTime() - self._clock.seconds() if due is not None else 0.0
        in_doubt = self.outcomes.in_doubt(in_doubt, verdict, found, wait)
        if in_doubt:
            self.queue.release(in_doubt)
        elif self.state is DestinationState.IDLE:
            self.queue.dispatch()
            if verdict.code == "connection.closed" and not self._is_stopping:
                self._idle(self)  # at the end of the process there is no need to forget anything
        if not self.queue.depth and not self._is_stopping:
            self._later("empty", self._terms.idle_seconds, self._make_sure)

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
            # The next attempt begins with the other hosts, if there are others.
            self.avoid = (session.candidate.host, session.candidate.port)
        if is_apart:
            # It is about one message, which waits by itself: the others must not wait for it.
            self.tally.failures += 1
            self.backoff.blame(verdict)
            delay = self._terms.schedule.first_seconds
            self._wait(delay)
            self._note_wait(verdict, delay)
        else:
            self._failed(verdict, in_doubt)

    def _is_unused(self) -> bool:
        quiet = self._clock.seconds() - self._last_used
        return not self.in_flight and not self.queue.depth and quiet >= self._terms.idle_seconds

    # -- persistence -----------------------------------------------------------------------------

    def noted(self) -> bytes:
        """Return what a restart has to know: see `restore`."""
        return self.backoff.noted()

    def restore(self, value: bytes) -> None:
        """Take over the back-off of an earlier run (T-28)."""
        wait = self.backoff.restore(value)
        self._set_limits()
        if wait > 0:
            self.state = DestinationState.WAITING
            self._later("wait", wait, self._waited)

    def _forget_failures(self) -> None:
        self.backoff.forget()
        self._set_limits()

    # -- terms and stopping ------------------------------------------------------------------------

    def adopt(self, limits: QueueLimits) -> None:
        """Go by changed terms, and these limits of the queue."""
        terms = self._terms
        self._limits = limits
        self.window.adopt(FIRST_WINDOW, terms.window, terms.dead_after)
        self._share.adopt()
        self._set_limits()

    def _set_limits(self) -> None:
        """The backlog of a dead destination belongs on the disk: little of it in memory."""
        limits = self._limits
        if self.is_dead:
            limits = replace(
                limits, resident_messages=min(limits.resident_messages, self._terms.window)
            )
        if self.queue.limits != limits:
            self.queue.limits = limits

    def _later(self, what: str, seconds: float, then: Callable[[], None]) -> None:
        self._cancel(what)
        self._timers[what] = self._clock.callLater(seconds, then)

    def _cancel(self, what: str) -> None:
        call = self._timers.pop(what, None)
        if call is not None and call.active():
            call.cancel()

    def _stop_watch(self) -> None:
        if self._watch is not None:
            self._watch.stop()
            self._watch = None

    def stop_sending(self) -> None:
        """Send nothing new; outcomes of what is in flight are still taken."""
        self._is_stopping = True
        self._cancel("wait")
        self._cancel("contact")
        self._attempt.cancel()
        if self.state is DestinationState.CONNECTING:
            self.state = DestinationState.IDLE

    def forget_refusal(self) -> None:
        """Refuse nothing any more for what the DNS has said before."""
        if self.state is DestinationState.REFUSED:
            self.state = DestinationState.IDLE
            self.queue.dispatch()

    @property
    def refused_until(self) -> float:
        """Until which second of the clock messages are refused; see `refusal`."""
        return self._refused_until

    @property
    def is_unused(self) -> bool:
        """No connection, none on its way, and nothing that has to be remembered."""
        return (
            self.state in (DestinationState.IDLE, DestinationState.REFUSED)
            and self._session is None
            and self.outcomes.is_settled
        )

    @property
    def is_quiet(self) -> bool:
        """Nothing in flight and nothing on its way to the store."""
        return not self.in_flight and self.outcomes.is_settled

    def stop(self) -> None:
        """Cancel the timers."""
        for what in tuple(self._timers):
            self._cancel(what)
        self._stop_watch()
        self._share.stop()

    def close(self) -> None:
        """Close the connection; what is in flight stays in the store."""
        self._is_stopping = True
        self._attempt.cancel()
        self.stop()
        if self._session is not None:
            self.outcomes.tell_floor()
            self._session.close()

    def broken(self, failure: Failure) -> None:
        """See `AttemptHost.broken`."""
        self.log.failure("{destination} failed", failure, destination=self.hop.key)
        if self.state is DestinationState.CONNECTING:
            self._failed(for_code("peer.failed", failure.getErrorMessage()))
