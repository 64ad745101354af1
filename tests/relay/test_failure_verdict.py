# SPDX-License-Identifier: Apache-2.0
"""The meaning of failures: the table (T-23, T-25, T-26)."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from amqproute import conditions
from amqproute.errors import ConnectError, ResolveError, TlsError
from amqproute.outcomes import Acceptance, ErrorDetails, Modification, Rejection, Release
from amqproute.relay import failure_verdict
from amqproute.relay.failure_verdict import FailureAction, FailureScope, FailureVerdict, PeerFailure
from amqproute.relay.retry_schedule import RetrySchedule
from amqproute.wire.amqp10 import spec


def rejected(condition: str) -> Rejection:
    """Return a rejection."""
    return Rejection(error=ErrorDetails(condition=condition, description="words"))


class VerdictTests(SynchronousTestCase):
    """Every row."""

    def test_outcomes(self) -> None:
        """The peer's error for a message concerns that message alone."""
        for state, action in (
            (Acceptance(), FailureAction.SETTLE),
            (Release(), FailureAction.RETRY),
            (None, FailureAction.RETRY),
            (spec.Received(section_number=0, section_offset=0), FailureAction.RETRY),
            (Modification(), FailureAction.RETRY),
            (Modification(delivery_failed=True), FailureAction.COUNT),
            (Modification(undeliverable_here=True), FailureAction.REJECT),
            (Modification(delivery_failed=True, undeliverable_here=True), FailureAction.REJECT),
            (Rejection(), FailureAction.REJECT),
            (rejected(conditions.NOT_FOUND), FailureAction.REJECT),
            (rejected(conditions.UNAUTHORIZED_ACCESS), FailureAction.REJECT),
            (rejected(conditions.NOT_ALLOWED), FailureAction.REJECT),
            (rejected(conditions.LINK_MESSAGE_SIZE_EXCEEDED), FailureAction.REJECT),
            (rejected("vendor:whatever"), FailureAction.REJECT),
            (rejected(conditions.RESOURCE_LIMIT_EXCEEDED), FailureAction.RETRY),
            (rejected(conditions.RESOURCE_LOCKED), FailureAction.RETRY),
            (rejected(conditions.INTERNAL_ERROR), FailureAction.RETRY),
            (rejected(conditions.CONNECTION_FORCED), FailureAction.RETRY),
        ):
            found = failure_verdict.for_outcome(state)
            self.assertEqual((found.scope, found.action), (FailureScope.MESSAGE, action), state)
            self.assertTrue(found.code.startswith("message."))

    def test_words_of_the_peer(self) -> None:
        """The peer's own words reach the operator."""
        found = failure_verdict.for_outcome(rejected(conditions.NOT_FOUND))
        self.assertEqual((found.condition, found.words), ("amqp:not-found", "words"))

    def test_a_flood_of_words(self) -> None:
        """A peer's text goes into the log, the store and reports: it is cut."""
        error = ErrorDetails(condition="x" * 100_000, description="y" * 100_000)
        outcome = failure_verdict.for_outcome(Rejection(error=error))
        for found in (outcome, failure_verdict.for_end(error, "link")):
            self.assertLessEqual(len(found.words), 1000)
            self.assertLessEqual(len(found.condition or ""), 128)

    def test_ends(self) -> None:
        """The end of a link, session or connection concerns the host, or all hosts."""
        error = ErrorDetails(condition=conditions.RESOURCE_LIMIT_EXCEEDED, description="full")
        for what in ("link", "session", "connection"):
            self.assertEqual(
                failure_verdict.for_end(error, what),
                FailureVerdict(
                    FailureScope.DESTINATION,
                    FailureAction.DEFER,
                    f"{what}.ended",
                    "full",
                    "amqp:resource-limit-exceeded",
                ),
            )
            found = failure_verdict.for_end(None, what)
            self.assertEqual(
                (found.scope, found.action), (FailureScope.HOST, FailureAction.NEXT_HOST)
            )
            self.assertIsNone(found.condition)
        refused = failure_verdict.for_end(ErrorDetails(condition=conditions.NOT_FOUND), "link")
        self.assertEqual((refused.scope, refused.words), (FailureScope.HOST, ""))

    def test_failures(self) -> None:
        """Only proof that there is nobody rejects; everything else waits."""
        gone = failure_verdict.for_failure(ResolveError("dns.nxdomain", "no", permanent=True))
        self.assertEqual(
            (gone.scope, gone.action, gone.code, gone.condition),
            (FailureScope.DESTINATION, FailureAction.REJECT, "dns.nxdomain", "amqp:not-found"),
        )
        later = failure_verdict.for_failure(ResolveError("dns.timeout", "no", permanent=False))
        self.assertEqual(
            (later.scope, later.action), (FailureScope.DESTINATION, FailureAction.DEFER)
        )
        for error in (
            ConnectError("connect.refused", "no"),
            TlsError("tls.name", "no"),
            ValueError("a bug"),
        ):
            found = failure_verdict.for_failure(error)
            self.assertEqual(
                (found.scope, found.action), (FailureScope.HOST, FailureAction.NEXT_HOST)
            )
        self.assertIs(failure_verdict.for_failure(PeerFailure(gone)), gone)


class ScheduleTests(SynchronousTestCase):
    """When to try again (T-28)."""

    def test_doubling(self) -> None:
        """It doubles up to the longest delay."""
        schedule = RetrySchedule(1.0, 60.0)
        delays = [schedule.delay(failures, 0.5) for failures in range(1, 9)]
        self.assertEqual(delays, [1, 2, 4, 8, 16, 32, 60, 60])

    def test_jitter(self) -> None:
        """Peers that failed together come back apart."""
        schedule = RetrySchedule(10.0, 60.0)
        self.assertAlmostEqual(schedule.delay(1, 0.0), 8.0)
        self.assertAlmostEqual(schedule.delay(1, 1.0), 12.0)

    def test_extremes(self) -> None:
        """No number of failures overflows."""
        for failures in (0, -1, 10**9):
            self.assertTrue(0 < RetrySchedule().delay(failures, 0.5) <= 300)
