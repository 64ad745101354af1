# SPDX-License-Identifier: Apache-2.0
"""The decisions of a destination: a table, and a model that drives them without a reactor."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from twisted.trial.unittest import SynchronousTestCase

from amqproute.relay.failure_verdict import FailureAction, FailureScope, FailureVerdict, for_code
from amqproute.relay.lifecycle import (
    CONTACT_SECONDS,
    EMPTY_SECONDS,
    DestinationLifecycle,
    DestinationState,
    NextStep,
    SessionEnd,
    Steps,
    WaitChoice,
)

IDLE, CONNECTING, OPEN, WAITING, REFUSED = DestinationState
DEFER = FailureVerdict(FailureScope.DESTINATION, FailureAction.DEFER, "peer.lost", "lost")
REJECT = FailureVerdict(
    FailureScope.DESTINATION, FailureAction.REJECT, "dns.no-domain", "none", lasts=60.0
)
CLOSED = for_code("connection.closed", "closed by us")
SETTLE = FailureVerdict(FailureScope.MESSAGE, FailureAction.SETTLE, "connection.ended", "bye")
PROBE = (NextStep.CANCEL_ATTEMPT, NextStep.ASK_DNS, NextStep.RESUME, NextStep.UNDEFER)


def life(state: DestinationState, **facts: Any) -> DestinationLifecycle:
    """Return a lifecycle in a state, at second 100; one that waits does so until 150."""
    if state is WAITING:
        facts.setdefault("retry_at", 150.0)
    if state is REFUSED:
        facts.setdefault("refused_until", 150.0)
    return DestinationLifecycle(state, **facts)


class TableTests(SynchronousTestCase):
    """State, event: steps and the state afterwards."""

    def check(self, event: str, arguments: tuple[Any, ...], *rows: tuple[Any, ...]) -> None:
        for before, facts, steps, after in rows:
            found = life(before, **facts)
            with_ = (event, before, facts)
            self.assertEqual(getattr(found, event)(*arguments), steps, with_)
            self.assertIs(found.state, after, with_)

    def test_messages_waiting(self) -> None:
        """Only an idle destination that may send connects."""
        self.check(
            "messages_waiting",
            (),
            (IDLE, {}, (NextStep.CONNECT,), CONNECTING),
            (IDLE, {"held": "audit"}, (), IDLE),
            (IDLE, {"is_stopping": True}, (), IDLE),
            *[(state, {}, (), state) for state in (CONNECTING, OPEN, WAITING, REFUSED)],
        )

    def test_wake(self) -> None:
        """An operator ends the wait of the destination and of its messages."""
        everything = (NextStep.UNDEFER_ALL,)
        self.check(
            "wake",
            (),
            (WAITING, {}, (NextStep.RESUME, *everything), IDLE),
            *[(state, {}, everything, state) for state in (IDLE, CONNECTING, OPEN, REFUSED)],
        )

    def test_contacted(self) -> None:
        """A peer that calls in is tried at once, but for what forbids it."""
        self.check(
            "contacted",
            (100.0, None),
            (OPEN, {}, (NextStep.UNDEFER,), OPEN),
            (WAITING, {}, PROBE, IDLE),
            (WAITING, {"held": "audit"}, (), WAITING),
            (WAITING, {"is_stopping": True}, (), WAITING),
            (WAITING, {"probe_at": 101.0}, (), WAITING),
            (WAITING, {"contacted_at": 99.0}, (), WAITING),
            (IDLE, {}, (NextStep.DISPATCH,), IDLE),
            (REFUSED, {}, (NextStep.DISPATCH,), REFUSED),
        )
        young, old = CONTACT_SECONDS / 2, CONTACT_SECONDS
        self.check("contacted", (100.0, young), (CONNECTING, {}, (), CONNECTING))
        self.check("contacted", (100.0, old), (CONNECTING, {}, PROBE, IDLE))

    def test_contacted_again(self) -> None:
        """The second call of a peer counts when two seconds have passed, and only once."""
        found = life(WAITING)
        self.assertEqual(found.contacted(100.0, None), PROBE)
        found.wait_until(150.0)
        self.assertEqual(found.contacted(100.5, None), ())
        self.assertEqual(found.contacted(101.0, None), ())
        self.assertEqual(found.next_deadline(), 100.0 + CONTACT_SECONDS)
        self.assertEqual(found.due(101.9), ())
        self.assertEqual(found.due(102.0), PROBE)
        self.assertIsNone(found.next_deadline())

    def test_probe_keeps_the_plan(self) -> None:
        """An attempt out of turn that fails does not make the destination wait longer."""
        found = life(WAITING)
        found.contacted(100.0, None)
        found.messages_waiting()
        self.assertIs(found.failed(DEFER, 101.0), WaitChoice.KEEP)
        self.assertEqual((found.state, found.retry_at), (WAITING, 150.0))
        self.assertEqual(found.due(150.0), (NextStep.RESUME,))
        found.messages_waiting()
        self.assertIs(found.failed(DEFER, 151.0), WaitChoice.BACK_OFF)

    def test_probe_behind_the_plan(self) -> None:
        """One that lasts beyond the planned attempt counts like any other."""
        found = life(WAITING)
        found.contacted(149.0, None)
        found.messages_waiting()
        self.assertIs(found.failed(DEFER, 150.0), WaitChoice.BACK_OFF)

    def test_proof(self) -> None:
        """Proof that the hop does not exist: messages are refused while it is believed."""
        found = life(CONNECTING)
        self.assertIs(found.failed(REJECT, 100.0), WaitChoice.GIVE_UP)
        self.assertTrue(found.is_refused(159.9))
        self.assertFalse(found.is_refused(160.0))
        self.assertIs(found.state, IDLE)
        self.assertEqual(life(REFUSED).end_refusal(), (NextStep.DISPATCH,))
        self.assertEqual(life(WAITING).end_refusal(), ())

    def test_turn(self) -> None:
        """When its turn comes there may be nothing to connect for."""
        for has_messages, held, wants in (
            (True, None, True),
            (False, None, False),
            (True, "audit", False),
        ):
            found = life(CONNECTING, held=held, is_urgent=True)
            self.assertEqual(found.may_begin(has_messages), wants)
            self.assertIs(found.state, CONNECTING if wants else IDLE)
            self.assertEqual(found.is_urgent, not wants)

    def test_ended(self) -> None:
        """Effects of the end of a session."""
        error = FailureVerdict(
            FailureScope.HOST, FailureAction.DEFER, "connection.ended", "no", "amqp:internal-error"
        )
        for verdict, has_doubt, facts, end, after in (
            (DEFER, True, {"is_stopping": True}, SessionEnd.STOPPED, IDLE),
            (CLOSED, True, {}, SessionEnd.CLOSED, IDLE),
            (for_code("peer.moved", ""), False, {}, SessionEnd.CLOSED, IDLE),
            (DEFER, True, {"was_useful": True}, SessionEnd.IN_DOUBT, OPEN),
            (DEFER, False, {}, SessionEnd.IN_DOUBT, OPEN),
            (error, False, {"was_useful": True}, SessionEnd.IN_DOUBT, OPEN),
            (DEFER, False, {"was_useful": True}, SessionEnd.LOST, OPEN),
            (SETTLE, False, {"was_useful": True}, SessionEnd.LEFT, IDLE),
        ):
            found = life(OPEN, **facts)
            self.assertIs(found.ended(verdict, has_doubt), end, (verdict, facts))
            # What was lost is not idle before it is known how long it waits: nobody connects.
            self.assertIs(found.state, after, (verdict, facts))

    def test_removal(self) -> None:
        """It goes when a commit behind all others is on the disk, and nothing has come."""
        found = life(IDLE)
        found.emptied(101.0)
        self.assertEqual(found.due(101.0), (NextStep.CONFIRM_EMPTY,))
        for before, is_empty, is_settled, steps in (
            (IDLE, True, True, (NextStep.FORGET,)),
            (CONNECTING, True, True, (NextStep.CANCEL_ATTEMPT, NextStep.FORGET)),
            (IDLE, False, True, (NextStep.PERSIST,)),
            (IDLE, True, False, ()),
        ):
            found = life(before)
            self.assertEqual(found.confirmed(is_empty, is_settled, 102.0), steps)
            again = 102.0 + EMPTY_SECONDS if steps == () else None
            self.assertEqual(found.check_at, again)
        stopping = life(IDLE, is_stopping=True)
        stopping.emptied(101.0)
        self.assertIsNone(stopping.next_deadline())

    def test_stop(self) -> None:
        """Nothing is due any more."""
        for before, after in ((CONNECTING, IDLE), (WAITING, WAITING), (OPEN, OPEN)):
            found = life(before, probe_at=120.0)
            self.assertEqual(found.stop_sending(), (NextStep.CANCEL_ATTEMPT,))
            self.assertEqual((found.state, found.next_deadline()), (after, None))

    def test_due_together(self) -> None:
        """Deadlines that pass at one time, also by the grain of a sum, are all acted on."""
        found = life(WAITING, retry_at=0.1 + 0.2, check_at=0.3)
        self.assertEqual(found.due(0.3), (NextStep.RESUME, NextStep.CONFIRM_EMPTY))
        self.assertIsNone(found.next_deadline())


class LifecycleMachine(RuleBasedStateMachine):
    """A shell of a few lines takes the steps: one attempt at a time, none when forbidden."""

    def __init__(self) -> None:
        super().__init__()
        self.life = DestinationLifecycle()
        self.now = 0.0
        self.messages = 0
        self.has_attempt = False

    def take(self, steps: Steps) -> None:
        """Do what a destination does, and dispatch like a queue."""
        for step in steps:
            if step is NextStep.CONNECT:
                assert not self.has_attempt
                assert self.life.held is None
                assert not self.life.is_stopping
                self.has_attempt = True
            elif step is NextStep.CANCEL_ATTEMPT:
                self.has_attempt = False
            elif step in (NextStep.DISPATCH, NextStep.RESUME):
                self.dispatch()
            else:
                assert isinstance(step, NextStep), step

    def dispatch(self) -> None:
        if self.messages and self.life.state is not OPEN:
            self.take(self.life.messages_waiting())

    def fail(self, verdict: FailureVerdict, seconds: float) -> None:
        """Do what follows a failure."""
        planned = self.life.planned_retry_at
        choice = self.life.failed(verdict, self.now)
        if choice is WaitChoice.BACK_OFF:
            assert planned is None or planned <= self.now
            self.life.wait_until(self.now + seconds)
        elif choice is WaitChoice.KEEP:
            assert self.life.retry_at == planned
        else:
            self.messages = 0

    @rule(count=st.integers(1, 3))
    def put(self, count: int) -> None:
        self.messages += count
        self.dispatch()

    @rule()
    def expire(self) -> None:
        self.messages = 0
        if self.life.state is not OPEN:
            self.life.emptied(self.now + EMPTY_SECONDS)

    @rule(seconds=st.sampled_from([0.1, 1.0, CONTACT_SECONDS, 30.0]))
    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        for _ in range(20):
            at = self.life.next_deadline()
            if at is None or at > until:
                break
            self.now = max(self.now, at)
            self.take(self.life.due(self.now))
        else:
            raise AssertionError("deadlines without end")
        self.now = until

    @precondition(lambda self: self.has_attempt)
    @rule(outcome=st.sampled_from(["opened", "failed", "rejected"]), seconds=st.floats(0.5, 60))
    def attempt(self, outcome: str, seconds: float) -> None:
        self.has_attempt = False
        if not self.life.may_begin(self.messages > 0):
            return
        if outcome == "opened":
            self.take(self.life.opened())
        else:
            self.fail(REJECT if outcome == "rejected" else DEFER, seconds)

    @precondition(lambda self: self.life.state is OPEN)
    @rule(is_useful=st.booleans(), verdict=st.sampled_from([DEFER, CLOSED, SETTLE]))
    def end(self, is_useful: bool, verdict: FailureVerdict) -> None:
        self.life.was_useful = is_useful
        if self.life.ended(verdict, self.messages > 0) in (SessionEnd.IN_DOUBT, SessionEnd.LOST):
            assert self.life.state is OPEN
            self.fail(verdict, 5.0)
        self.dispatch()

    @rule(age=st.none() | st.floats(0, 5))
    def call_in(self, age: float | None) -> None:
        self.take(self.life.contacted(self.now, age if self.has_attempt else None))

    @rule()
    def wake(self) -> None:
        self.take(self.life.wake())

    @rule()
    def hold(self) -> None:
        self.life.hold("audit")

    @rule()
    def unhold(self) -> None:
        self.take(self.life.unhold())

    @rule()
    def forget_refusal(self) -> None:
        self.take(self.life.end_refusal())

    @rule(is_settled=st.booleans())
    def confirm(self, is_settled: bool) -> None:
        is_empty = not self.messages and self.life.state is not OPEN and not self.life.is_stopping
        self.take(self.life.confirmed(is_empty, is_settled, self.now))

    @rule()
    def stop(self) -> None:
        self.take(self.life.stop_sending())

    @invariant()
    def holds(self) -> None:
        """Invariants."""
        found = self.life
        assert (found.state is CONNECTING) == self.has_attempt, found
        if found.retry_at is not None:
            assert found.state is WAITING, found
        if found.state is WAITING and not found.is_stopping:
            assert found.retry_at is not None, found
        if found.is_stopping:
            assert not self.has_attempt, found
        deadline = found.next_deadline()
        assert deadline is None or not found.is_stopping or deadline == found.check_at, found


class LifecycleMachineTests(SynchronousTestCase):
    """Runs the machine."""

    def test_machine(self) -> None:
        """Any events in any order."""
        run_state_machine_as_test(
            LifecycleMachine, settings=settings(stateful_step_count=40, deadline=None)
        )
