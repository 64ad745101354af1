# SPDX-License-Identifier: Apache-2.0
"""The failures of a destination: their number, the last one, the time of the next attempt.

They are stored, so that a restart does not hit every dead peer at once: written with each failed
attempt and deleted when the first message is accepted. The log reports changes: the first failure,
a new cause, death, recovery; and dead destinations again every few hours.
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
"""The code for faults of the peer itself; nothing is given up for them; its operator must know."""
REMIND_MS: Final = 6 * 3600 * 1000
"""Interval between log lines about a destination that stays dead."""


class BackOff:
    """The failures of one destination.

    Args:
        key: name of the destination.
        begin: begins a batch.
        now_ms: the wall clock.
        random: returns numbers from 0 to 1.
        terms: see `RelayTerms`.
        holder: the holder of the destination, for the note.

    Attributes:
        failures: failed attempts since the last accepted message.
        last_error: code and text of the last failure.
        last_attempts: one line for each place tried in the last attempt.
        next_attempt_ms: the wall clock of the next attempt; 0 if none is needed.
        window: the send window, adjusted by successes and failures.
        is_noted: whether the store has, or is about to have, a note about the destination.
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
        """Time since which attempts have failed in the DNS; None if the last one did not."""
        return self._dns_since_ms if self.last_error.startswith("dns.") else None

    def blame(self, verdict: FailureVerdict) -> str:
        """Record a failure; return the code of the previous one."""
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
            verdict: the failure.
            concerned: messages in doubt; None if no host was reached.
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
        # Readers of today's log may not know the lines of two days ago.
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
        """Set the time of the next attempt, in seconds from now."""
        self.next_attempt_ms = self._now_ms() + int(seconds * 1000)
        self.persist()

    def forget(self) -> None:
        """Reset everything after a success."""
        self.failures = 0
        self.next_attempt_ms = 0
        self.window.cohorts = 0.0
        self.persist()

    def clear(self) -> Deferred[None]:
        """Delete the note of the destination from the store.

        Returns:
            Fires when this and all earlier writes are on disk.
        """
        batch = self._begin()
        batch.transaction.note(NOTE, self._key, None)
        self.is_noted = False
        committed: Deferred[None] = batch.commit()
        return committed

    def clear_note(self) -> None:
        """Delete the note from the store, without waiting for it."""
        if self.is_noted:
            self.clear().addErrback(self._not_persisted)

    def persist(self) -> None:
        """Write the note for a restart, if there is anything to write."""
        value = self.noted() if self.failures or self._holder else None
        if value is None and not self.is_noted:
            return
        self.is_noted = value is not None
        batch = self._begin()
        batch.transaction.note(NOTE, self._key, value)
        batch.commit().addErrback(self._not_persisted)

    def _not_persisted(self, failure: Failure) -> None:
        if isinstance(failure.value, StoreUnavailable):
            # The disk's failure is logged elsewhere; this would repeat with each attempt.
            self.log.info(
                "{destination}: the back-off could not be stored, a restart resets it: {error}",
                destination=self._key,
                error=str(failure.value),
            )
            return
        self.log.failure(
            "{destination}: the back-off could not be stored", failure, destination=self._key
        )

    def noted(self) -> bytes:
        """Return the note for a restart: see `restore`."""
        return DestinationNote(
            self.failures,
            self.next_attempt_ms,
            self.last_error,
            self.last_attempts,
            self._holder,
        ).encode()

    def restore(self, value: bytes) -> float:
        """Restore the state noted by an earlier run (T-28).

        Returns:
            The seconds until the next attempt; zero or negative if it is due.
        """
        noted = DestinationNote.decode(value)
        self.is_noted = True
        self.failures = noted.failures
        self.window.cohorts = float(noted.failures)
        self.last_error = noted.error
        self._dns_since_ms = self._now_ms() if noted.error.startswith("dns.") else None
        self.last_attempts = noted.attempts
        wait = (noted.next - self._now_ms()) / 1000
        # A clock that was set back must not cause a wait of a year.
        wait = min(wait, self._terms.schedule.last_seconds * 1.2)
        if wait > 0:
            self.next_attempt_ms = noted.next
        return wait
