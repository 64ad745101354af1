# SPDX-License-Identifier: Apache-2.0
"""The remedies in errors of the command line."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from amqproute import conditions
from amqproute.cli.command_error import by_condition, next_step_for
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.types import Symbol


class NextStepTests(SynchronousTestCase):
    """The advice to the reader depends on the cause, not on the condition alone."""

    def step(self, code: object) -> str:
        """Return the next step for a not-found with this code in its info."""
        info = {Symbol("code"): code}
        error = spec.Error(condition=conditions.NOT_FOUND, description="no", info=info)
        refusal = by_condition(error, "the link to 'x@gone.example'")
        self.assertEqual(refusal.code, conditions.NOT_FOUND)
        return refusal.next_step

    def test_dns(self) -> None:
        """A domain that is not there has nothing to do with this broker's queues."""
        for code in ("dns.nxdomain", "dns.no-service", "dns.no-address"):
            self.assertEqual(self.step(code), next_step_for(code))
            self.assertNotIn("queue ls", self.step(code))

    def test_locked(self) -> None:
        """A node that others have: they can be seen, and waited for."""
        error = spec.Error(condition=conditions.RESOURCE_LOCKED, description="no")
        self.assertIn("link ls", by_condition(error, "the link to 'x'").next_step)

    def test_filters(self) -> None:
        """A wrong filter is not mended by another address."""
        for code in ("filter.syntax", "filter.value", "filter.unsupported"):
            self.assertIn("correct the filter", self.step(code))

    def test_unknown_codes(self) -> None:
        """Codes that this program does not know, and no codes at all, leave it to the condition."""
        for code in ("route.loop", 7, None):
            self.assertEqual(self.step(code), next_step_for(conditions.NOT_FOUND))
