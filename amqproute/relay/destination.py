# SPDX-License-Identifier: Apache-2.0
"""One next hop: the consumer of its relay queue, and its life between connections."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute.broker.batch import Batch
from amqproute.broker.queue import MOST_COUNTED, Queue
from amqproute.entry import Entry
from amqproute.errors import NotFound
from amqproute.interfaces import IConsumer
from amqproute.relay import reasons
from amqproute.relay.agent import Agent, Told, Unreachable
from amqproute.relay.peer import PeerSession
from amqproute.relay.schedule import Schedule
from amqproute.relay.verdict import Action, Scope, Verdict
from amqproute.values import DeadLetterReason, NextHop
from amqproute.wire.amqp10 import spec

NOTE = "destination"
FLOOR_EVERY = 1000
"""Messages settled after which the peer is told how far it may forget receipts."""
LONE_FAULTS = 3
"""How often a message may end the connection while it is the only one in flight."""
REFUSED_SECONDS = 30.0
"""How long a proved non-existence is believed before the DNS is asked again."""


class State(enum.Enum):
    """Where a destination is; see the package docstring for the transitions."""

    IDLE = "idle"
    CONNECTING = "connecting"
    OPEN = "open"
    WAITING = "waiting"
    REFUSED = "refused"


@dataclass(slots=True)
class DestinationTally:
    """Plain counters for operators."""

    relayed: int = 0
    rejected: int = 0
    retried: int = 0
    connections: int = 0
    failures: int = 0


@dataclass(slots=True)
class RelayTerms:
    """What the configuration says about relaying; shared by all destinations.

    Attributes:
        schedule: back-off of destinations and of released messages.
        window: entries without an outcome at once.
        idle_seconds: a connection with nothing to do is closed after this.
    """

    schedule: Schedule = field(default_factory=Schedule)
    window: int = 1000
    idle_seconds: float = 60.0


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
        idle: called when it has had nothing to do for a while.
    """

    log = Logger()

    def __init__(
        self,
        hop: NextHop,
        queue: Queue,
        agent: Agent,
        begin: Callable[[], Batch],
        clock: IReactorTime,
        now_ms: Callable[[], int],
        random: Callable[[], float],
        terms: RelayTerms,
        idle: Callable[[Destination], None],
    ) -> None:
        self.hop = hop
        self.queue = queue
        self.state = State.IDLE
        self.failures = 0
        self.last_error = ""
        self.last_attempts: tuple[str, ...] = ()
        self.next_attempt_ms = 0
        self.last_success_ms = 0
        self.remote_id = ""
        self.held: str | None = None
        self.tally = DestinationTally()
        self._agent = agent
        self._begin = begin
        self._clock = clock
        self._now_ms = now_ms
        self._random = random
        self._terms = terms
        self._idle = idle
        self._session: PeerSession | None = None
        self._opening: Deferred[Any] | None = None
        self._timer: IDelayedCall | None = None
        self._idle_timer: IDelayedCall | None = None
        self._batch: Batch | None = None
        self._uncommitted: dict[int, list[int]] = {}
        self._commits = 0
        self._faults = 0
        self._suspects: dict[int, int] = {}
        self._unremoved: list[int] = []
        self._retries: dict[int, int] = {}
        self._since_floor = 0
        self._last_used = 0.0
        self._is_stopping = False
        self._refused_until = 0.0
        queue.attach(self)

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
    def offers(self) -> frozenset[str]:
        """The capabilities of the peer that is connected now."""
        opened = self._session.connection.remote_open if self._session is not None else None
        return frozenset(map(str, opened.offered_capabilities)) if opened else frozenset()

    @property
    def refusal(self) -> NotFound | None:
        """Why messages for this hop are refused at admission, if they are (T-25)."""
        if self.state is State.REFUSED:
            if self._clock.seconds() < self._refused_until:
                code = self.last_error.partition(":")[0]
                return NotFound(self.last_error, info={"code": code})
            self.state = State.IDLE
        return None

    # -- IConsumer -------------------------------------------------------------------------------

    def capacity(self) -> int:
        """See `IConsumer.capacity`. Asked only when there are entries: the time to connect."""
        session = self._session
        if self.held is not None:
            return 0
        if session is None:
            if self.state is State.IDLE and not self._is_stopping:
                self._connect()
            return self._terms.window if self.state is State.REFUSED else 0
        if self._is_stopping:
            return 0
        room = session.sendable()
        # One of the suspects breaks the connection: alone each shows whether it is the one.
        window = 1 if self._suspects else self._terms.window
        free = window - session.in_flight
        return min(room, free) if free > 0 else 0

    def deliver(self, entries: Sequence[Entry]) -> None:
        """See `IConsumer.deliver`."""
        session = self._session
        if session is None:
            self._refuse(entries)
            return
        self._last_used = self._clock.seconds()
        for entry, error in session.send(entries):
            self.tally.rejected += 1
            self._settle([entry], spec.Rejected(error=reasons.refusal(self.hop.key, error)))
        self._commit()

    def holds(self) -> list[Entry]:
        """See `IConsumer.holds`."""
        return [] if self._session is None else self._session.holds()

    def exhausted(self) -> None:
        """See `IConsumer.exhausted`: nothing to send."""

    # -- connecting ------------------------------------------------------------------------------

    def _connect(self) -> None:
        self.state = State.CONNECTING
        self._cancel_timer()
        told = Told(self.floor, self._ended, self._outcome, self._commit, self._room)
        # In a turn of its own: `capacity` is asked in the middle of a dispatch.
        self._timer = self._clock.callLater(0, self._open, told)

    def _open(self, told: Told) -> None:
        self._timer = None
        self._opening = opening = Deferred.fromCoroutine(self._agent.open(self.hop, told))
        opening.addCallbacks(self._opened, self._not_opened)
        opening.addErrback(self._broken)

    def _opened(self, session: PeerSession) -> None:
        self._opening = None
        self._session = session
        self.state = State.OPEN
        if self.remote_id not in ("", session.remote_id):
            # Authentication is towards a specific container (T-39): say when it is another one.
            self.log.warn(
                "{destination} is container {container} now; it was {before}",
                destination=self.hop.key,
                container=session.remote_id,
                before=self.remote_id,
            )
        self.remote_id = session.remote_id
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
        self.last_error = ""
        self._last_used = self._clock.seconds()
        self._arm_idle()
        self.queue.undefer(everything=True)
        self.queue.dispatch()

    def _not_opened(self, failure: Failure) -> None:
        self._opening = None
        unreachable = failure.value
        if isinstance(unreachable, CancelledError):
            return
        if not isinstance(unreachable, Unreachable):
            self._broken(failure)
            return
        self.last_attempts = unreachable.attempts
        self._failed(unreachable.verdict)

    def _failed(self, verdict: Verdict) -> None:
        """An attempt failed, or a connection was lost before it was of use."""
        self.failures += 1
        self.tally.failures += 1
        self.last_error = f"{verdict.code}: {verdict.words}".rstrip(": ")
        if verdict.action is Action.REJECT:
            self._give_up(verdict)
            return
        delay = self._terms.schedule.delay(self.failures, self._random())
        self._wait(delay)
        # Said when it begins and then at every doubling: not once a minute for five days.
        if self.failures & (self.failures - 1) == 0:
            self.log.warn(
                "{destination} cannot be reached ({failures} attempts): {error}; {waiting} "
                "messages wait, next attempt in {delay:.0f} s",
                destination=self.hop.key,
                failures=self.failures,
                error=self.last_error,
                waiting=self.queue.depth,
                delay=delay,
                attempts=list(self.last_attempts),
            )

    def _wait(self, delay: float) -> None:
        self.state = State.WAITING
        self.next_attempt_ms = self._now_ms() + int(delay * 1000)
        self._persist()
        self._cancel_timer()
        self._timer = self._clock.callLater(delay, self._waited)

    def _waited(self) -> None:
        self._timer = None
        self.state = State.IDLE
        self.next_attempt_ms = 0
        self.queue.dispatch()

    def wake(self) -> None:
        """Try now: the peer has called in, or an operator asks (T-37)."""
        if self.state is State.WAITING:
            self._cancel_timer()
            self._waited()
        else:
            self.queue.undefer(everything=True)

    def hold(self, reason: str) -> None:
        """Send nothing until `unhold`, also after a restart; new messages are still taken."""
        self.held = reason or "held by an operator"
        self.log.info("{destination} held: {reason}", destination=self.hop.key, reason=self.held)
        self._persist()

    def unhold(self) -> None:
        """Send again."""
        if self.held is not None:
            self.held = None
            self.log.info("{destination} released", destination=self.hop.key)
            if self.failures:
                self._persist()
            else:
                self._forget_failures()
            self.queue.dispatch()

    def purge(self) -> Deferred[int]:
        """Delete what waits here; what is in flight is the peer's to decide.

        Returns:
            A Deferred of how many messages were deleted.
        """
        return self.queue.purge()

    def _give_up(self, verdict: Verdict) -> None:
        """There is proof that the hop does not exist: what waits goes back (T-25, T-26)."""
        self.state = State.REFUSED
        self._refused_until = self._clock.seconds() + REFUSED_SECONDS
        self.log.warn(
            "{destination} does not exist: {error}; {waiting} messages are returned",
            destination=self.hop.key,
            error=self.last_error,
            waiting=self.queue.depth,
            attempts=list(self.last_attempts),
        )
        self._forget_failures()
        self.queue.undefer(everything=True)
        self.queue.dispatch()

    def _refuse(self, entries: Sequence[Entry]) -> None:
        batch = self._current()
        self.queue.give_up(
            entries,
            DeadLetterReason.UNDELIVERABLE,
            reasons.no_way(self.last_error),
            batch,
        )
        self.tally.rejected += len(entries)
        self._commit()

    # -- an open session -------------------------------------------------------------------------

    def _room(self) -> None:
        self.queue.dispatch()

    def _ended(self, session: PeerSession, verdict: Verdict) -> None:
        if session is not self._session:
            return
        self._session = None
        self._cancel_idle()
        in_doubt = session.in_doubt
        was_of_use = self.tally.relayed > 0 and not self.failures
        if self._is_stopping:
            self.state = State.IDLE
        elif verdict.code == "connection.closed":
            self.state = State.IDLE
            self.log.debug("{destination} closed", destination=self.hop.key)
        elif (
            in_doubt
            or verdict.condition is not None
            or verdict.action is Action.DEFER
            or not was_of_use
        ):
            self.log.info(
                "{destination} lost: {code} {words}; {count} messages in doubt are sent again",
                destination=self.hop.key,
                code=verdict.condition or verdict.code,
                words=verdict.words,
                count=len(in_doubt),
            )
            self._failed(verdict)
        else:
            self.state = State.IDLE
            self.log.info(
                "{destination} closed by the peer: {words}",
                destination=self.hop.key,
                words=verdict.words,
            )
        if in_doubt and verdict.is_fault:
            in_doubt = self._suspect(in_doubt, verdict)
        if in_doubt:
            self.queue.release(in_doubt)
        elif self.state is State.IDLE:
            self.queue.dispatch()

    def _suspect(self, in_doubt: list[Entry], verdict: Verdict) -> list[Entry]:
        """A connection has ended for a fault while entries were in doubt: find the culprit.

        Whatever a message makes a peer do, it must not keep the others waiting for ever. From
        the second such end on, the entries that were in doubt go one at a time; one that ends the
        connection alone for `LONE_FAULTS` times is given up.

        Returns:
            Those that are to be sent again.
        """
        self._faults += 1
        if self._faults < 2:
            return in_doubt
        self._suspects.update(dict.fromkeys((entry.id for entry in in_doubt), 0) | self._suspects)
        if len(in_doubt) > 1:
            return in_doubt
        entry = in_doubt[0]
        self._suspects[entry.id] += 1
        if self._suspects[entry.id] < LONE_FAULTS:
            return in_doubt
        self._forget_suspects([entry])
        self.log.warn(
            "{destination} ends the connection each time message {entry} is sent: given up",
            destination=self.hop.key,
            entry=entry.id,
        )
        error = reasons.fault(self.hop.key, verdict)
        batch = self._current()
        self.queue.give_up([entry], DeadLetterReason.UNDELIVERABLE, error, batch)
        self._commit()
        return []

    def _forget_suspects(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._suspects.pop(entry.id, None)
        if not self._suspects:
            self._faults = 0

    def _outcome(self, entries: Sequence[Entry], verdict: Verdict, state: Any) -> None:
        """The peer has decided about entries (T-23)."""
        action = verdict.action
        if self._faults:
            self._forget_suspects(entries)
        if action is Action.SETTLE:
            self.tally.relayed += len(entries)
            self._settle(entries, state)
            if self._retries:
                for entry in entries:
                    self._retries.pop(entry.id, None)
            if self.failures:
                self._forget_failures()
        elif action is Action.REJECT:
            self.tally.rejected += len(entries)
            error = reasons.rejection(self.hop.key, verdict, state)
            self._settle(entries, spec.Rejected(error=error))
            for entry in entries:
                self._retries.pop(entry.id, None)
            self.log.warn(
                "{destination} rejected {count} messages: {condition}: {words}",
                destination=self.hop.key,
                count=len(entries),
                condition=verdict.condition or verdict.code,
                words=verdict.words,
            )
        else:
            self._retry(entries, verdict, state)

    def _retry(self, entries: Sequence[Entry], verdict: Verdict, state: Any) -> None:
        """Not now: each waits alone, unless so many do that it is about the destination."""
        self.tally.retried += len(entries)
        if verdict.action is Action.COUNT:
            for entry in entries:
                entry.delivery_count = min(entry.delivery_count + 1, MOST_COUNTED)
                if entry.stored:
                    self._current().transaction.update(entry.id, entry.delivery_count)
        if self.queue.deferred + len(entries) > self._terms.window:
            self.queue.release(entries)
            if self._session is not None:
                self._session.close(
                    Verdict(
                        Scope.DESTINATION,
                        Action.DEFER,
                        verdict.code,
                        f"gives back too many messages: {verdict.words}",
                        verdict.condition,
                    )
                )
            return
        if len(self._retries) > 4 * self._terms.window:
            self._retries.clear()  # of entries that have expired meanwhile, most of them
        for entry in entries:
            tries = self._retries[entry.id] = self._retries.get(entry.id, 0) + 1
            self.queue.defer([entry], self._terms.schedule.delay(tries, self._random()))

    # -- batches and the floor -------------------------------------------------------------------

    def _current(self) -> Batch:
        if self._batch is None:
            self._batch = self._begin()
        return self._batch

    def _settle(self, entries: Sequence[Entry], outcome: Any) -> None:
        self.queue.settle(entries, outcome, self._current(), consumer=self)
        self._uncommitted.setdefault(self._commits, []).append(min(entry.id for entry in entries))
        self._since_floor += len(entries)

    def _commit(self) -> None:
        """Commit what the events of one read have settled, and use the room it made."""
        batch = self._batch
        if batch is None:
            if self._session is not None:
                self._session.settle_answers()  # nothing has to be durable first
            return
        self._batch = None
        mark = self._commits
        self._commits += 1
        # Removing what the peer has taken is urgent only if the peer waits for our settlement.
        patient = self._session is None or not self._session.has_answers
        batch.commit(patient).addCallbacks(
            self._committed, self._commit_failed, (mark,), errbackArgs=(mark,)
        )
        self.queue.dispatch()

    def _committed(self, _: object, mark: int) -> None:
        self._uncommitted.pop(mark, None)
        session = self._session
        if session is None:
            return
        session.settle_answers()
        if self._since_floor >= FLOOR_EVERY:
            self._since_floor = 0
            session.tell_floor(self.running_floor())

    def _commit_failed(self, failure: Failure, mark: int) -> None:
        self._unremoved.extend(self._uncommitted.pop(mark, ()))
        # The entries are gone from memory and stand in the store: the peer's receipts, which the
        # floor keeps alive, make the next start harmless.
        self.log.failure(
            "{destination}: relayed messages could not be removed from the store; they will be "
            "offered again after a restart",
            failure,
            destination=self.hop.key,
        )

    def floor(self) -> int:
        """Return the lowest id that may be sent on a new link (see the package docstring)."""
        return min([self.queue.lowest_id, *self._unsafe()])

    def running_floor(self) -> int:
        """Return the lowest id that may be sent again on this link."""
        lows = [self.queue.next_id, *self._unsafe()]
        if self._session is not None and self._session.lowest_in_flight is not None:
            lows.append(self._session.lowest_in_flight)
        return min(lows)

    def _unsafe(self) -> list[int]:
        """Ids that the peer has taken and whose removal here is not on the disk."""
        return [*self._unremoved, *(low for lows in self._uncommitted.values() for low in lows)]

    # -- persistence -----------------------------------------------------------------------------

    def _persist(self) -> None:
        batch = self._begin()
        batch.transaction.note(NOTE, self.hop.key, self.noted())
        batch.commit().addErrback(self._broken)

    def noted(self) -> bytes:
        """Return what a restart has to know: see `restore`."""
        value = {
            "held": self.held,
            "failures": self.failures,
            "next": self.next_attempt_ms,
            "error": self.last_error,
            "attempts": list(self.last_attempts),
        }
        return json.dumps(value).encode()

    def _forget_failures(self) -> None:
        self.failures = 0
        self.next_attempt_ms = 0
        if self.held is not None:
            self._persist()
            return
        batch = self._begin()
        batch.transaction.note(NOTE, self.hop.key, None)
        batch.commit().addErrback(self._broken)

    @staticmethod
    def is_hold(value: bytes) -> bool:
        """Tell whether a persisted note says that the destination is held."""
        return json.loads(value).get("held") is not None

    def restore(self, value: bytes) -> None:
        """Take over the back-off of an earlier run (T-28)."""
        noted = json.loads(value)
        self.failures = int(noted["failures"])
        self.held = noted.get("held")
        self.last_error = str(noted["error"])
        self.last_attempts = tuple(noted["attempts"])
        wait = (int(noted["next"]) - self._now_ms()) / 1000
        # A clock that was set back must not make it wait for a year.
        wait = min(wait, self._terms.schedule.last_seconds * 1.2)
        if wait > 0:
            self.state = State.WAITING
            self.next_attempt_ms = int(noted["next"])
            self._timer = self._clock.callLater(wait, self._waited)

    # -- idling and stopping -----------------------------------------------------------------------

    def _arm_idle(self) -> None:
        self._idle_timer = self._clock.callLater(self._terms.idle_seconds, self._look_idle)

    def _look_idle(self) -> None:
        self._idle_timer = None
        session = self._session
        if session is None:
            return
        quiet = self._clock.seconds() - self._last_used
        if session.in_flight or self.queue.depth or quiet < self._terms.idle_seconds:
            self._arm_idle()
            return
        session.tell_floor(self.running_floor())
        session.close()
        if self.failures:
            self._forget_failures()
        self._idle(self)

    def _cancel_idle(self) -> None:
        if self._idle_timer is not None and self._idle_timer.active():
            self._idle_timer.cancel()
        self._idle_timer = None

    def _cancel_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def stop_sending(self) -> None:
        """Send nothing new; outcomes of what is in flight are still taken."""
        self._is_stopping = True
        self._cancel_timer()
        if self._opening is not None:
            opening, self._opening = self._opening, None
            opening.cancel()
            self.state = State.IDLE

    @property
    def is_unused(self) -> bool:
        """No connection, none on its way, and nothing that has to be remembered."""
        return (
            self.state in (State.IDLE, State.REFUSED)
            and self._session is None
            and not self._uncommitted
        )

    @property
    def is_quiet(self) -> bool:
        """Nothing in flight and nothing on its way to the store."""
        return not self.in_flight and not self._uncommitted

    def stop(self) -> None:
        """Cancel the timers."""
        self._cancel_idle()
        self._cancel_timer()

    def row(self) -> dict[str, Any]:
        """Return what an operator wants to know, for the management node."""
        return {
            "queue": self.queue.name,
            "hop": self.hop.key,
            "state": "held" if self.held is not None else self.state.value,
            "held": self.held or "",
            "in-flight": self.in_flight,
            "failures": self.failures,
            "last-error": self.last_error,
            "attempts": list(self.last_attempts),
            "next-attempt-ms": self.next_attempt_ms,
            "last-success-ms": self.last_success_ms,
            "container": self.remote_id,
            "relayed": self.tally.relayed,
            "rejected": self.tally.rejected,
            "retried": self.tally.retried,
            "connections": self.tally.connections,
        }

    def close(self) -> None:
        """Close the connection; what is in flight stays in the store."""
        self._is_stopping = True
        self._cancel_idle()
        self._cancel_timer()
        if self._session is not None:
            self._session.tell_floor(self.running_floor())
            self._session.close()

    def _broken(self, failure: Failure) -> None:
        self.log.failure("{destination} failed", failure, destination=self.hop.key)
        if self.state is State.CONNECTING:
            self.failures += 1
            self._wait(self._terms.schedule.delay(self.failures, self._random()))
