# SPDX-License-Identifier: Apache-2.0
"""What a failure means: the table (T-23, T-25, T-26)."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from amqproute import conditions
from amqproute.errors import ConnectError, ResolveError, TlsError
from amqproute.relay import verdict
from amqproute.relay.schedule import Schedule
from amqproute.relay.verdict import Action, PeerFailure, Scope, Verdict
from amqproute.wire.amqp10 import spec


def rejected(condition: str) -> spec.Rejected:
    """Return a rejection."""
    return spec.Rejected(error=spec.Error(condition=condition, description="words"))


class VerdictTests(SynchronousTestCase):
    """Every row."""

    def test_outcomes(self) -> None:
        """What the peer says about a message is about that message alone."""
        for state, action in (
            (spec.Accepted(), Action.SETTLE),
            (spec.Released(), Action.RETRY),
            (None, Action.RETRY),
            (spec.Received(section_number=0, section_offset=0), Action.RETRY),
            (spec.Modified(), Action.RETRY),
            (spec.Modified(delivery_failed=True), Action.COUNT),
            (spec.Modified(undeliverable_here=True), Action.REJECT),
            (spec.Modified(delivery_failed=True, undeliverable_here=True), Action.REJECT),
            (spec.Rejected(), Action.REJECT),
            (rejected(conditions.NOT_FOUND), Action.REJECT),
            (rejected(conditions.UNAUTHORIZED_ACCESS), Action.REJECT),
            (rejected(conditions.NOT_ALLOWED), Action.REJECT),
            (rejected(conditions.LINK_MESSAGE_SIZE_EXCEEDED), Action.REJECT),
            (rejected("vendor:whatever"), Action.REJECT),
            (rejected(conditions.RESOURCE_LIMIT_EXCEEDED), Action.RETRY),
            (rejected(conditions.RESOURCE_LOCKED), Action.RETRY),
            (rejected(conditions.INTERNAL_ERROR), Action.RETRY),
            (rejected(conditions.CONNECTION_FORCED), Action.RETRY),
        ):
            found = verdict.for_outcome(state)
            self.assertEqual((found.scope, found.action), (Scope.MESSAGE, action), state)
            self.assertTrue(found.code.startswith("message."))

    def test_words_of_the_peer(self) -> None:
        """The peer's own words reach the operator."""
        found = verdict.for_outcome(rejected(conditions.NOT_FOUND))
        self.assertEqual((found.condition, found.words), ("amqp:not-found", "words"))

    def test_a_flood_of_words(self) -> None:
        """What a peer says goes into the log, the store and reports: it is cut."""
        error = spec.Error(condition="x" * 100_000, description="y" * 100_000)
        outcome = verdict.for_outcome(spec.Rejected(error=error))
        for found in (outcome, verdict.for_end(error, "link")):
            self.assertLessEqual(len(found.words), 1000)
            self.assertLessEqual(len(found.condition or ""), 128)

    def test_ends(self) -> None:
        """How a link, session or connection ended is about the host, or about all hosts."""
        error = spec.Error(condition=conditions.RESOURCE_LIMIT_EXCEEDED, description="full")
        for what in ("link", "session", "connection"):
            self.assertEqual(
                verdict.for_end(error, what),
                Verdict(
                    Scope.DESTINATION,
                    Action.DEFER,
                    f"{what}.ended",
                    "full",
                    "amqp:resource-limit-exceeded",
                ),
            )
            found = verdict.for_end(None, what)
            self.assertEqual((found.scope, found.action), (Scope.HOST, Action.NEXT_HOST))
            self.assertIsNone(found.condition)
        refused = verdict.for_end(spec.Error(condition=conditions.NOT_FOUND), "link")
        self.assertEqual((refused.scope, refused.words), (Scope.HOST, ""))

    def test_failures(self) -> None:
        """Only proof that there is nobody rejects; everything else waits."""
        gone = verdict.for_failure(ResolveError("dns.nxdomain", "no", permanent=True))
        self.assertEqual(
            (gone.scope, gone.action, gone.code, gone.condition),
            (Scope.DESTINATION, Action.REJECT, "dns.nxdomain", "amqp:not-found"),
        )
        later = verdict.for_failure(ResolveError("dns.timeout", "no", permanent=False))
        self.assertEqual((later.scope, later.action), (Scope.DESTINATION, Action.DEFER))
        for error in (
            ConnectError("connect.refused", "no"),
            TlsError("tls.name", "no"),
            ValueError("a bug"),
        ):
            found = verdict.for_failure(error)
            self.assertEqual((found.scope, found.action), (Scope.HOST, Action.NEXT_HOST))
        self.assertIs(verdict.for_failure(PeerFailure(gone)), gone)


class ScheduleTests(SynchronousTestCase):
    """When to try again (T-28)."""

    def test_doubling(self) -> None:
        """It doubles up to the longest delay."""
        schedule = Schedule(1.0, 60.0)
        delays = [schedule.delay(failures, 0.5) for failures in range(1, 9)]
        self.assertEqual(delays, [1, 2, 4, 8, 16, 32, 60, 60])

    def test_jitter(self) -> None:
        """Peers that failed together come back apart."""
        schedule = Schedule(10.0, 60.0)
        self.assertAlmostEqual(schedule.delay(1, 0.0), 8.0)
        self.assertAlmostEqual(schedule.delay(1, 1.0), 12.0)

    def test_extremes(self) -> None:
        """No number of failures overflows."""
        for failures in (0, -1, 10**9):
            self.assertTrue(0 < Schedule().delay(failures, 0.5) <= 300)
