# SPDX-License-Identifier: Apache-2.0
"""The table of failures: complete, and in agreement with its page."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

import amqproute
from amqproute import conditions
from amqproute.conditions import Condition
from amqproute.errors import ConnectError, ResolveError
from amqproute.outcomes import ErrorDetails, Rejection
from amqproute.relay import failure_table, failure_verdict
from amqproute.relay.failure_table import FailureAction, FailureScope

PACKAGE = Path(amqproute.__file__).parent
PAGE = PACKAGE.parent / "docs" / "failures.md"
CODE = re.compile(
    r"(dns|dane|connect|tls|sasl|auth|peer|link|session|connection)\.[a-z]+(-[a-z]+)*"
)


def condition_constants() -> list[Condition]:
    """Return every condition the broker knows."""
    return [value for value in vars(conditions).values() if isinstance(value, Condition)]


def codes_in(room: str) -> Iterator[tuple[str, str]]:
    """Yield every code that a room's source has as a whole string, and where."""
    for path in sorted((PACKAGE / room).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and CODE.fullmatch(node.value)
            ):
                yield node.value, f"{room}/{path.name}:{node.lineno}"


class TableTests(SynchronousTestCase):
    """Nothing is without a row."""

    def test_conditions(self) -> None:
        """Every condition has a row for a rejected message and one for an ended link."""
        known = condition_constants()
        self.assertGreater(len(known), 25)
        for table in (failure_table.REFUSALS, failure_table.ENDS):
            self.assertEqual([each for each in known if each not in table], [])

    def test_codes(self) -> None:
        """Every code of the resolver, of connections and of TLS has one."""
        found = [pair for room in ("resolver", "net", "relay") for pair in codes_in(room)]
        self.assertGreater(len({code for code, _ in found}), 25)
        missing = [f"{code} ({place})" for code, place in found if code not in failure_table.CODES]
        self.assertEqual(missing, [])

    def test_page(self) -> None:
        """The page says what the code does."""
        self.assertEqual(
            PAGE.read_text(),
            failure_table.render(),
            "run: python -m amqproute.relay.failure_table > docs/failures.md",
        )

    def test_scope_and_action_agree(self) -> None:
        """A message is rejected or retried; a host is passed over; only proof rejects at large."""
        for row in (*failure_table.OUTCOMES.values(), *failure_table.REFUSALS.values()):
            self.assertIs(row.scope, FailureScope.MESSAGE)
            self.assertNotIn(row.action, (FailureAction.NEXT_HOST, FailureAction.DEFER))
        allowed = {
            FailureScope.LINK: {FailureAction.RETRY},
            FailureScope.HOST: {FailureAction.NEXT_HOST},
            FailureScope.DESTINATION: {FailureAction.DEFER, FailureAction.REJECT},
        }
        for code, row in (*failure_table.ENDS.items(), *failure_table.CODES.items()):
            self.assertIn(row.action, allowed[row.scope], code)
            if row.action is FailureAction.REJECT:
                self.assertTrue(code.startswith("dns."), code)

    def test_full_is_not_never(self) -> None:
        """Nodes that are full, locked or being stopped reject no messages."""
        for condition in (
            conditions.RESOURCE_LIMIT_EXCEEDED,
            conditions.RESOURCE_LOCKED,
            conditions.CONNECTION_FORCED,
        ):
            error = ErrorDetails(condition=condition)
            self.assertIs(
                failure_verdict.for_outcome(Rejection(error=error)).action, FailureAction.RETRY
            )
            for what in ("link", "session", "connection"):
                self.assertIsNot(failure_verdict.for_end(error, what).action, FailureAction.REJECT)

    @given(st.text(max_size=20), st.booleans())
    def test_unknown_codes(self, code: str, permanent: bool) -> None:
        """A code without a row never loses a message."""
        if code in failure_table.CODES:
            return
        for error in (ResolveError(code, "x", permanent=permanent), ConnectError(code, "x")):
            self.assertIsNot(failure_verdict.for_failure(error).action, FailureAction.REJECT)

    def test_one_host(self) -> None:
        """A DNS failure of one host only skips it, and the next one gets its turn."""
        found = failure_verdict.for_failure(ConnectError("dns.bogus", "x"))
        self.assertEqual((found.scope, found.action), (FailureScope.HOST, FailureAction.NEXT_HOST))
        found = failure_verdict.for_failure(ResolveError("dns.bogus", "x", permanent=False))
        self.assertEqual(
            (found.scope, found.action), (FailureScope.DESTINATION, FailureAction.DEFER)
        )

    def test_stale_proof(self) -> None:
        """A proof in which a stale answer had a part is none."""
        for code, row in failure_table.CODES.items():
            if row.action is FailureAction.REJECT:
                found = failure_verdict.for_failure(ResolveError(code, "x", permanent=False))
                self.assertIs(found.action, FailureAction.DEFER)
