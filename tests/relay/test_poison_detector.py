# SPDX-License-Identifier: Apache-2.0
"""The message that makes a peer end the connection: convicted only if others pass."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute import conditions
from amqproute.outcomes import ErrorDetails
from amqproute.relay import failure_verdict
from amqproute.relay.peer_session import CLOSED, FAULT
from amqproute.relay.poison_detector import (
    LONE_FAULTS,
    MOST_RECORDS,
    ConnectionEnd,
    PoisonFinding,
    PoisonMessageDetector,
)

NOTHING = PoisonFinding()
IDS = st.integers(1, 5)
ENDS = st.tuples(
    st.just("end"), st.lists(IDS, unique=True, max_size=5), st.sampled_from(ConnectionEnd)
)
ANSWERS = st.tuples(st.just("answer"), st.lists(IDS, unique=True, max_size=3), st.booleans())


def play(suspects: PoisonMessageDetector, steps: list[Any]) -> list[int]:
    """Return who was convicted."""
    guilty = []
    for what, ids, detail in steps:
        if what == "answer":
            suspects.answered(ids, taken=detail)
            continue
        found = suspects.ended(ids, detail)
        if found.guilty:
            assert found.entry_id is not None
            guilty.append(found.entry_id)
    return guilty


def fault(*ids: int) -> Any:
    """Return a step: the peer ends the connection for a fault while these are in doubt."""
    return ("end", list(ids), ConnectionEnd.FAULT)


def taken(*ids: int) -> Any:
    """Return a step: the peer takes these."""
    return ("answer", list(ids), True)


class TableTests(SynchronousTestCase):
    """Sequences, and who is convicted by them."""

    def test_sequences(self) -> None:
        """Alone three times, and others pass before each and after the first."""
        start = [fault(1, 2, 3), fault(1, 2, 3)]
        alone = fault(1)
        others = taken(2, 3)
        loss = ("end", [1], ConnectionEnd.LOSS)
        for steps, guilty in (
            ([*start, alone, alone, alone, alone], []),
            ([*start, alone, others, alone, alone], []),
            ([*start, alone, others, alone, alone, alone], [1]),
            ([*start, taken(2), alone, alone, alone, alone], []),
            ([*start, taken(2), alone, taken(3), alone, alone], [1]),
            # Its own outcome acquits it.
            ([*start, alone, others, alone, taken(1), alone, alone], []),
            # That another one is refused, or given back, is no proof that others pass.
            ([*start, alone, ("answer", [2], False), alone, alone, alone], []),
            # The peer breaks with every message, though it once took some.
            ([*start, alone, others, *[alone, fault(4)] * 9], []),
            # Losses, and ends that we make, prove nothing.
            ([*start, loss, others, loss, loss, loss, loss], []),
            ([*start, alone, others, loss, loss, alone, loss, alone], []),
            ([*start, alone, others, loss, loss, alone, loss, alone, alone], [1]),
        ):
            self.assertEqual(play(PoisonMessageDetector(), steps), guilty, steps)

    def test_one_at_a_time(self) -> None:
        """From the second end without an outcome on, until as many were seen as were in doubt."""
        suspects = PoisonMessageDetector()
        self.assertEqual(suspects.ended([1, 2, 3], ConnectionEnd.LOSS), NOTHING)
        self.assertFalse(suspects)
        self.assertEqual(suspects.ended([1, 2, 3], ConnectionEnd.LOSS), NOTHING)
        self.assertTrue(suspects)
        self.assertEqual(suspects.ended([1], ConnectionEnd.LOSS), PoisonFinding(1, 1))
        self.assertEqual(suspects.ends_of(1), 1)
        suspects.answered([2], taken=True)
        self.assertTrue(suspects)
        suspects.answered([7], taken=False)  # 3 has expired, perhaps: it does not slow down others
        self.assertFalse(suspects)
        suspects.answered([1], taken=True)
        self.assertFalse(suspects.is_searching)

    def test_progress_between(self) -> None:
        """A line that is lost now and then, and works in between, starts no search."""
        suspects = PoisonMessageDetector()
        for _ in range(9):
            suspects.ended([1, 2], ConnectionEnd.LOSS)
            suspects.answered([1], taken=True)
        self.assertFalse(suspects)

    def test_bounded(self) -> None:
        """However many are alone, what is remembered has a bound."""
        suspects = PoisonMessageDetector()
        for number in range(10 * MOST_RECORDS):
            suspects.ended([number], ConnectionEnd.FAULT)
        self.assertLessEqual(len(suspects._records), MOST_RECORDS)

    def test_evidence(self) -> None:
        """Evidence of each end."""
        error = ErrorDetails(condition=conditions.DECODE_ERROR, description="words")
        for found, evidence in (
            (failure_verdict.for_end(error, "connection"), ConnectionEnd.FAULT),
            (failure_verdict.for_fault(error), ConnectionEnd.LOSS),
            (failure_verdict.for_fault(None), ConnectionEnd.LOSS),
            (FAULT, ConnectionEnd.FAULT),
            (CLOSED, ConnectionEnd.NONE),
            (failure_verdict.for_code("peer.lost", ""), ConnectionEnd.LOSS),
            (failure_verdict.for_code("peer.stuck", ""), ConnectionEnd.LOSS),
            (failure_verdict.for_code("peer.full", ""), ConnectionEnd.NONE),
            (failure_verdict.for_code("peer.moved", ""), ConnectionEnd.NONE),
            (failure_verdict.for_end(None, "link"), ConnectionEnd.LOSS),
            *(
                (failure_verdict.for_end(ErrorDetails(condition=condition), "link"), evidence)
                for condition, evidence in (
                    (conditions.INTERNAL_ERROR, ConnectionEnd.LOSS),
                    (conditions.CONNECTION_FORCED, ConnectionEnd.NONE),
                    (conditions.RESOURCE_LIMIT_EXCEEDED, ConnectionEnd.NONE),
                    (conditions.LINK_STOLEN, ConnectionEnd.NONE),
                    (conditions.INVALID_FIELD, ConnectionEnd.FAULT),
                    (conditions.LINK_MESSAGE_SIZE_EXCEEDED, ConnectionEnd.FAULT),
                )
            ),
        ):
            self.assertIs(found.evidence, evidence, found)


class AnySequenceTests(SynchronousTestCase):
    """Any sequence of events."""

    @given(
        st.lists(ENDS | ANSWERS.map(lambda step: (step[0], step[1], False)), max_size=60),
    )
    def test_nothing_passes(self, steps: list[Any]) -> None:
        """Without a message that the peer took nothing is convicted."""
        self.assertEqual(play(PoisonMessageDetector(), steps), [])

    @given(st.lists(ENDS | ANSWERS, max_size=80))
    def test_no_evidence(self, steps: list[Any]) -> None:
        """Without an end by the peer with an error nothing is convicted."""
        steps = [
            ("end", ids, ConnectionEnd.LOSS if detail is ConnectionEnd.FAULT else detail)
            if what == "end"
            else (what, ids, detail)
            for what, ids, detail in steps
        ]
        self.assertEqual(play(PoisonMessageDetector(), steps), [])

    @given(st.lists(ENDS | ANSWERS, max_size=80))
    def test_grounds(self, steps: list[Any]) -> None:
        """A convicted message was alone with an error often enough, and another one passed."""
        suspects = PoisonMessageDetector()
        alone: dict[int, int] = {}
        passed: dict[int, bool] = {}
        for step in steps:
            what, ids, detail = step
            if what == "answer":
                for entry_id in ids:
                    alone.pop(entry_id, None)
                if detail and ids:
                    passed = dict.fromkeys(alone, True)
            elif len(ids) == 1 and detail is ConnectionEnd.FAULT:
                alone[ids[0]] = alone.get(ids[0], 0) + 1
            for entry_id in play(suspects, [step]):
                self.assertGreaterEqual(alone.pop(entry_id), LONE_FAULTS)
                self.assertTrue(passed.get(entry_id))
                passed.pop(entry_id)
