# SPDX-License-Identifier: Apache-2.0
"""Outcomes and errors as delivery states of AMQP 1.0."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from amqproute.outcomes import (
    ACCEPTED,
    FAILED,
    RELEASED,
    UNREADABLE,
    ErrorDetails,
    Modification,
    Outcome,
    Rejection,
)
from amqproute.wire.amqp10 import codec, spec
from amqproute.wire.amqp10.delivery_states import details_of, error_of, outcome_of, state_of
from amqproute.wire.amqp10.types import Symbol

OCTETS: list[tuple[Outcome, str]] = [
    (ACCEPTED, "00532445"),
    (Rejection(), "00532545"),
    (Rejection(ErrorDetails("x:y")), "005325c00c01 00531d c00601 a303783a79"),
    (RELEASED, "00532645"),
    (FAILED, "005327c0020141"),
    (Modification(undeliverable_here=True), "005327c003024041"),
    (Modification(annotations={Symbol("x-a"): True}), "005327 c00c03 4040 c10702 a303782d6141"),
]
"""Part 3 §3.4, written by hand: descriptor, and a list without what is the default."""


class StateTests(SynchronousTestCase):
    """One table, both ways."""

    def test_octets(self) -> None:
        """Each outcome has the state of the standard, and is read from it again."""
        for outcome, octets in OCTETS:
            encoded = bytes(codec.encode(state_of(outcome)))
            self.assertEqual(encoded.hex(), octets.replace(" ", ""), outcome)
            state, _ = spec.decode_composite(bytes.fromhex(octets))
            self.assertEqual(outcome_of(state), outcome)

    def test_none(self) -> None:
        """A state that ends no delivery is no outcome."""
        states = (
            None,
            "accepted",
            spec.Received(section_number=0, section_offset=0),
            spec.Declared(txn_id=b"1"),
            spec.TransactionalState(txn_id=b"1", outcome=spec.Accepted()),
        )
        for state in states:
            self.assertIsNone(outcome_of(state), state)

    def test_unreadable(self) -> None:
        """The broker's own finding never goes to a receiver."""
        self.assertRaises(KeyError, state_of, UNREADABLE)

    def test_errors(self) -> None:
        """Condition, text and info go both ways."""
        details = ErrorDetails("x:y", "no", {Symbol("code"): 1})
        self.assertEqual(details_of(error_of(details)), details)
        self.assertEqual((details_of(None), error_of(None)), (None, None))
