# SPDX-License-Identifier: Apache-2.0
"""What is known of a destination's failures: how many, the last one, when the next attempt is due.

It is data in the store, so that a restart does not hit every dead peer at once; it is persisted
with each failed attempt and dropped with the first message that is taken. The log hears of it
when something changes: the first failure, another cause than before, the death, the recovery; and
of the dead once more every few hours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.broker.commit_batch import Batch
from amqproute.errors import StoreUnavailable
from amqproute.plurals import counted
from amqproute.relay.destination_note import NOTE, DestinationNote
from amqproute.relay.failure_verdict import FailureVerdict
from amqproute.relay.relay_terms import FIRST_WINDOW, RelayTerms
from amqproute.relay.send_window import SendWindow

BROKEN: Final = "peer.broken"
"""The code of a peer's own fault; nothing is given up for it, and its operator has to know."""
REMIND_MS: Final = 6 * 3600 * 1000
"""How often the log is told of a destination that stays dead."""


class BackOff:
    """The failures of one destination.

    Args:
        key: names the destination.
        begin: makes batches.
        now_ms: the wall clock.
        random: numbers from 0 to 1.
        terms: see `RelayTerms`.
        holder: who holds the destination, for the note.

    Attributes:
        failures: failed attempts since a message was taken.
        last_error: code and words of the last one.
        last_attempts: a line for each place that was tried then.
        next_attempt_ms: the wall clock of the next attempt; 0 if there need be none.
        window: what success and failure have made of it.
        is_noted: the store has a note about the destination, or is about to.
    """

    log = Logger()

    def __init__(
        self,
        key: str,
        begin: Callable[[], Batch],
        now_ms: Callable[[], int],
        random: Callable[[], float],
        terms: RelayTerms,
        holder: tuple[str, ...] = (),
    ) -> None:
        self.failures = 0
        self.last_error = ""
        self.last_attempts: tuple[str, ...] = ()
        self.next_attempt_ms = 0
        self.is_noted = False
        self.window = SendWindow(FIRST_WINDOW, terms.window, terms.dead_after)
        self._key = key
        self._begin = begin
        self._now_ms = now_ms
        self._random = random
        self._terms = terms
        self._holder = holder
        self._since_ms = 0
        self._dns_since_ms: int | None = None
        self._told_ms = 0

    @property
    def dns_since_ms(self) -> int | None:
        """Since when attempts have failed at the DNS; None if the last one did not."""
        return self._dns_since_ms if self.last_error.startswith("dns.") else None

    def blame(self, verdict: FailureVerdict) -> str:
        """Remember what went wrong; return the code of what went wrong before."""
        before = self.last_error.partition(":")[0]
        if not verdict.code.startswith("dns."):
            self._dns_since_ms = None
        elif self._dns_since_ms is None or not before.startswith("dns."):
            self._dns_since_ms = self._now_ms()
        self.last_error = f"{verdict.code}: {verdict.words}".rstrip(": ")
        return before

    def failed(self, verdict: FailureVerdict, concerned: int | None, waiting: int) -> float:
        """Count a failed attempt; return the seconds until the next one.

        Args:
            verdict: why.
            concerned: messages in doubt; None if nobody was reached.
            waiting: messages in the relay queue, for the log.
        """
        before = self.blame(verdict)
        self.failures += 1
        was_dead = self.window.is_dead
        self.window.failed(concerned)
        schedule, random = self._terms.schedule, self._random()
        if verdict.retry_after:
            delay = schedule.asked(verdict.retry_after, random)
        else:
            delay = schedule.delay(self.failures, random)
        died = self.window.is_dead and not was_dead
        now_ms = self._now_ms()
        if self.failures == 1 or not self._since_ms:
            self._since_ms = self._told_ms = now_ms
        # Whoever reads the log of today has not read that of two days ago.
        is_due = self.window.is_dead and now_ms - self._told_ms >= REMIND_MS
        if died or is_due or self.failures == 1 or before not in ("", verdict.code):
            self._told_ms = now_ms
            is_broken = verdict.code == BROKEN
            (self.log.warn if died or is_due or is_broken else self.log.info)(
                "{destination} {what} ({attempted}{since}): {error}; {waiting} {wait}, next "
                "attempt in {delay:.0f} s",
                attempted=counted(self.failures, "attempt"),
                wait="message waits" if waiting == 1 else "messages wait",
                since=f" in {(now_ms - self._since_ms) // 3_600_000} h" if is_due else "",
                destination=self._key,
                what=(
                    "is dead"
                    if self.window.is_dead
                    else "breaks the protocol"
                    if is_broken
                    else "cannot be reached"
                ),
                failures=self.failures,
                error=self.last_error,
                waiting=waiting,
                delay=delay,
                attempts=list(self.last_attempts),
            )
        return delay

    def wait(self, seconds: float) -> None:
        """Note that the next attempt is in so many seconds."""
        self.next_attempt_ms = self._now_ms() + int(seconds * 1000)
        self.persist()

    def forget(self) -> None:
        """Somebody is there: nothing of what was counts any more."""
        self.failures = 0
        self.next_attempt_ms = 0
        self.window.cohorts = 0.0
        self.persist()

    def clear(self) -> Deferred[None]:
        """Have nothing of the destination in the store.

        Returns:
            Fires when that is on the disk, and all that was to be written before it.
        """
        batch = self._begin()
        batch.transaction.note(NOTE, self._key, None)
        self.is_noted = False
        committed: Deferred[None] = batch.commit()
        return committed

    def clear_note(self) -> None:
        """Have no note in the store; nobody waits for it."""
        if self.is_noted:
            self.clear().addErrback(self._not_persisted)

    def persist(self) -> None:
        """Write what a restart has to know, if there is anything."""
        value = self.noted() if self.failures or self._holder else None
        if value is None and not self.is_noted:
            return
        self.is_noted = value is not None
        batch = self._begin()
        batch.transaction.note(NOTE, self._key, value)
        batch.commit().addErrback(self._not_persisted)

    def _not_persisted(self, failure: Failure) -> None:
        if isinstance(failure.value, StoreUnavailable):
            # There is one line for the disk already, and this comes with each attempt.
            self.log.info(
                "{destination}: the back-off could not be stored, a restart begins anew: {error}",
                destination=self._key,
                error=str(failure.value),
            )
            return
        self.log.failure(
            "{destination}: the back-off could not be stored", failure, destination=self._key
        )

    def noted(self) -> bytes:
        """Return what a restart has to know: see `restore`."""
        return DestinationNote(
            self.failures,
            self.next_attempt_ms,
            self.last_error,
            self.last_attempts,
            self._holder,
        ).encode()

    def restore(self, value: bytes) -> float:
        """Take over what an earlier run has noted (T-28).

        Returns:
            The seconds until the next attempt; nothing or less if it is due.
        """
        noted = DestinationNote.decode(value)
        self.is_noted = True
        self.failures = noted.failures
        self.window.cohorts = float(noted.failures)
        self.last_error = noted.error
        self._dns_since_ms = self._now_ms() if noted.error.startswith("dns.") else None
        self.last_attempts = noted.attempts
        wait = (noted.next - self._now_ms()) / 1000
        # A clock that was set back must not make it wait for a year.
        wait = min(wait, self._terms.schedule.last_seconds * 1.2)
        if wait > 0:
            self.next_attempt_ms = noted.next
        return wait
