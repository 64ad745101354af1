# SPDX-License-Identifier: Apache-2.0
"""Applies every verdict about a message to the entries of one relay queue.

Three ways lead out of the queue: `relayed` (the peer has it), `refused` (the peer, or the message
itself, excludes delivery) and `given_up` (there is no peer, or the message ends its connections).
One leads back into it: `_retry`. Listeners for the fate of messages are called here.

The decisions of one read's events form one batch; `commit` makes it durable, and only then the peer
is answered, or learns which receipts it may drop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute import conditions
from amqproute.broker.commit_batch import Batch
from amqproute.broker.commit_retry import retry_settle
from amqproute.broker.queue import Queue
from amqproute.entry import MOST_COUNTED, Entry
from amqproute.errors import AmqpError
from amqproute.journal.event import EntryTaker, RunEvent
from amqproute.journal.record import RecordKind
from amqproute.outcomes import UNREADABLE, ErrorDetails, Outcome, Rejection
from amqproute.relay import failure_errors
from amqproute.relay.failure_verdict import FailureAction, FailureVerdict, for_code
from amqproute.relay.peer_session import PeerSession
from amqproute.relay.poison_detector import MOST_RECORDS, PoisonFinding, PoisonMessageDetector
from amqproute.relay.receipt_floor import ReceiptFloor
from amqproute.relay.relay_context import RelayContext
from amqproute.relay.relay_terms import DestinationCounters
from amqproute.values import DeadLetterReason

FLOOR_EVERY = 1000
"""Number of settled messages after which the peer is notified of droppable receipts."""

TURN_SECONDS = 20.0
"""Time for which other messages precede one that was set aside; also the time in
which most connection attempts succeed."""


class JournaledConsumer(Protocol):
    """A consumer with a name in the journal."""

    taker: EntryTaker


class OutcomeProcessor:
    """Applies outcomes to the entries of a destination.

    Args:
        key: name of the destination, for people.
        queue: its relay queue.
        consumer: the destination as the queue's consumer.
        context: shared by all destinations.

    Attributes:
        session: the open session, or None.
        suspects: entries that may be the reason why the peer ends connections.
        tally: counters.
        given_back: code and text of the last message that the peer gave back.
    """

    log = Logger()

    def __init__(
        self,
        key: str,
        queue: Queue,
        consumer: JournaledConsumer,
        context: RelayContext,
    ) -> None:
        self.session: PeerSession | None = None
        self.suspects = PoisonMessageDetector()
        self.tally = DestinationCounters()
        self.given_back = ""
        self._key = key
        self._queue = queue
        self._consumer = consumer
        environment = context.environment
        self._begin = context.begin
        self._random = environment.random
        self._now_ms = environment.now_ms
        self._terms = context.terms
        self._journal = context.journal
        self._rejections = context.rejections
        self._batch: Batch | None = None
        self._removals = ReceiptFloor()
        self._retries: dict[int, int] = {}
        self._aside: dict[int, Entry] = {}

    # -- what the peer decides (T-23) --------------------------------------------------------------

    def outcome(self, entries: Sequence[Entry], verdict: FailureVerdict, outcome: Outcome) -> None:
        """Apply the peer's outcome for entries."""
        if outcome is UNREADABLE:
            self._settle(entries, outcome)
            return
        action = verdict.action
        was_aside = False
        if self.suspects.is_searching:
            ids = [entry.id for entry in entries]
            was_aside = any(self.suspects.ends_of(each) for each in ids)
            self.suspects.answered(ids, taken=action is FailureAction.SETTLE)
        if action is FailureAction.SETTLE:
            self.tally.relayed += len(entries)
            self._settle(entries, outcome)
            if self._aside and (was_aside or not self._queue.available):
                self._bring_back_one()
        elif action is FailureAction.REJECT:
            self.refused(entries, failure_errors.rejection(self._key, verdict, outcome))
            self._note_rejections(len(entries), verdict.condition, verdict.words)
        else:
            if verdict.condition == conditions.RESOURCE_LIMIT_EXCEEDED:
                self._note_rejections(len(entries), verdict.condition, verdict.words)
            self._retry(entries, verdict)

    def _note_rejections(self, count: int, condition: str | None, words: str) -> None:
        kind = self._rejections.note(self._key, count, condition, words)
        kinds = self.tally.rejections
        kinds[kind] = kinds.get(kind, 0) + count

    def refused(self, entries: Sequence[Entry], error: ErrorDetails) -> None:
        """Dispose of entries that the peer will never accept."""
        self.tally.rejected += len(entries)
        self._settle(entries, Rejection(error))

    def unsendable(self, entry: Entry, error: AmqpError) -> None:
        """Dispose of an entry that cannot be sent to this peer at all."""
        self._note_rejections(1, error.condition, error.description)
        self.refused([entry], failure_errors.refusal(self._key, error))

    def given_up(self, entries: Sequence[Entry], error: ErrorDetails) -> None:
        """Dispose of entries for which there is no peer, or that end every connection."""
        self.tally.rejected += len(entries)
        self._queue.give_up(entries, DeadLetterReason.UNDELIVERABLE, error, self._current())
        self.suspects.forget([entry.id for entry in entries])
        self._forget_retries(entries)

    def _retry(self, entries: Sequence[Entry], verdict: FailureVerdict) -> None:
        """Defer entries one by one, or the whole destination if there are too many."""
        self.tally.retried += len(entries)
        self.given_back = f"{verdict.condition or verdict.code}: {verdict.words}"
        if verdict.action is FailureAction.COUNT:
            for entry in entries:
                entry.delivery_count = min(entry.delivery_count + 1, MOST_COUNTED)
                if entry.stored:
                    self._current().transaction.update(entry.id, entry.delivery_count)
        if self._queue.deferred + len(entries) > self._terms.window:
            self._queue.release(entries)
            if self.session is not None:
                words = f"gives back too many messages: {verdict.words}"
                self.session.close(for_code("peer.full", words))
            return
        if len(self._retries) > 4 * self._terms.window:
            self._retries.clear()  # mostly of entries that have expired since
        schedule = self._terms.schedule
        until = []
        now_ms = self._now_ms()
        for entry in entries:
            tries = self._retries[entry.id] = self._retries.get(entry.id, 0) + 1
            delay = schedule.delay(tries, self._random())
            if verdict.retry_after:
                delay = schedule.asked(verdict.retry_after, self._random())
            until.append(1000 * (now_ms + int(1000 * delay)))
            self._queue.defer([entry], delay)
        self._note_deferred(entries, verdict, until)

    def _note_deferred(
        self, entries: Sequence[Entry], verdict: FailureVerdict, until: Sequence[int]
    ) -> None:
        """Record in the journal that entries are deferred, each until a time of its own."""
        if self._journal.is_kept:
            facts = {
                "node": self._queue.name,
                "peer": self._consumer.taker.facts["peer"],
                "code": verdict.code,
                "condition": verdict.condition,
                "words": verdict.words,
            }
            columns = {
                "entry": [entry.id for entry in entries],
                "attempt": [entry.tries for entry in entries],
                "until": until,
            }
            self._journal.note(
                RunEvent(RecordKind.DEFERRED, self._journal.now_us(), facts, columns)
            )

    def tries(self, entry: Entry) -> int:
        """Return how often a message was sent and came back, as far as remembered."""
        return max(self._retries.get(entry.id, 0), entry.delivery_count, int(entry.attempted))

    def judge(self, entries: Sequence[Entry], verdict: FailureVerdict) -> PoisonFinding:
        """Find the entry that caused the end of a connection, among those in doubt."""
        return self.suspects.ended([entry.id for entry in entries], verdict.evidence)

    def in_doubt(
        self, entries: list[Entry], verdict: FailureVerdict, found: PoisonFinding, wait: float
    ) -> list[Entry]:
        """Act on the result of `judge`.

        Args:
            entries: the entries without an outcome.
            verdict: why the connection ended.
            found: the result of `judge`.
            wait: seconds until the next attempt.

        Returns:
            The entries to send again at once.
        """
        if found.entry_id is None:
            return entries
        if found.guilty:
            self.log.warn(
                "{destination} takes other messages and ends the connection each time message "
                "{entry} is sent: given up",
                destination=self._key,
                entry=found.entry_id,
            )
            self.given_up(entries, failure_errors.fault(self._key, verdict))
            self.commit()
            return []
        has_others = found.others_pass or self._queue.available > 0
        if not (has_others and self.has_capacity):
            return entries  # no other message could go first, or no single message is to blame
        # Only after the others have had their turn on the next connection.
        delay = 2 * wait + self._terms.schedule.delay(found.ends, self._random())
        self._aside[found.entry_id] = entries[0]
        self._queue.defer(entries, delay)
        self._note_deferred(entries, verdict, [1000 * (self._now_ms() + int(1000 * delay))])
        self.log.info(
            "{destination}: the connection ended {count} times while message {entry} was alone in "
            "flight ({code}); others go first, it comes again in {delay:.0f} s",
            destination=self._key,
            count=found.ends,
            entry=found.entry_id,
            code=verdict.condition or verdict.code,
            delay=delay,
        )
        return []

    def aside(self) -> dict[int, Entry]:
        """Return the entries that were set aside so that others go first, by id.

        Neither the peer's calls nor new connections end their delay.
        """
        if self._aside:
            waiting = {entry.id for entry in self._queue.deferred_entries}
            self._aside = {
                entry_id: entry for entry_id, entry in self._aside.items() if entry_id in waiting
            }
        return self._aside

    def _bring_back_one(self) -> None:
        """Send the next message that was set aside: the peer is accepting messages."""
        aside = self.aside()
        following = next((each for each in self._queue.deferred_entries if each.id in aside), None)
        if following is not None:
            self._queue.bring_forward(following)

    @property
    def has_capacity(self) -> bool:
        """Whether one more message may be set aside."""
        return len(self.aside()) < MOST_RECORDS

    def release_connect_slot(self, wait: float) -> None:
        """Let the next connection begin with a message that was not alone when one ended.

        If the peer ends the connection for several messages, each of them would otherwise come back
        at the head, one on each connection, and the others would never have a turn. So they come
        back one by one: at once after an accepted message, or `TURN_SECONDS` apart.

        Args:
            wait: seconds until the next attempt.
        """
        if self._aside:
            first = wait + TURN_SECONDS if self._queue.available > 0 else wait
            self._queue.hold_back(set(self.aside().values()), first, TURN_SECONDS)

    # -- batches -----------------------------------------------------------------------------------

    def _current(self) -> Batch:
        if self._batch is None:
            self._batch = self._begin()
        return self._batch

    def _settle(self, entries: Sequence[Entry], outcome: Outcome) -> None:
        self._queue.settle(entries, outcome, self._current(), consumer=self._consumer)
        self._removals.add([entry.id for entry in entries])
        if self._retries:
            self._forget_retries(entries)

    def _forget_retries(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._retries.pop(entry.id, None)

    def commit(self) -> None:
        """Commit what one read's events have settled, and use the freed capacity."""
        batch = self._batch
        session = self.session
        if batch is None:
            if session is not None:
                session.settle_answers()  # nothing needs to become durable first
            return
        self._batch = None
        mark = self._removals.commit()
        # The removal of accepted entries is urgent only if the peer waits for our settlement.
        patient = session is None or not session.has_answers
        done: Deferred[None] = batch.commit(patient)
        done.addErrback(retry_settle, batch, self._begin)
        done.addCallbacks(self._committed, self._commit_failed, (mark,), errbackArgs=(mark,))
        self._queue.dispatch()

    def _committed(self, _: object, mark: int) -> None:
        self._removals.done(mark)
        session = self.session
        if session is None:
            return
        session.settle_answers()
        if self._removals.count >= FLOOR_EVERY:
            self.tell_floor()

    def _commit_failed(self, failure: Failure, mark: int) -> None:
        self._removals.failed(mark)
        # The entries are gone from memory but remain in the store: the peer's receipts, kept by the
        # floor, make the next start harmless.
        self.log.failure(
            "{destination}: relayed messages could not be removed from the store; they will be "
            "offered again after a restart",
            failure,
            destination=self._key,
        )

    @property
    def is_settled(self) -> bool:
        """Whether nothing is being written to the store."""
        return not self._removals

    # -- the floor ---------------------------------------------------------------------------------

    def floor(self) -> int:
        """Return the lowest id that may be sent on a new link (see the package docstring)."""
        return self._removals.floor([self._queue.lowest_id])

    def running_floor(self) -> int:
        """Return the lowest id that may be sent again on this link.

        Entries that wait after a release do not count: the peer has no receipt of them. It may have
        receipts of entries set aside with an outcome in doubt.
        """
        lows = [self._queue.next_id, *self.aside()]
        if self.session is not None and self.session.lowest_in_flight is not None:
            lows.append(self.session.lowest_in_flight)
        return self._removals.floor(lows)

    def tell_floor(self) -> None:
        """Tell the peer which receipts it may drop."""
        if self.session is not None:
            self._removals.count = 0
            self.session.tell_floor(self.running_floor())
