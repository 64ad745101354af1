# SPDX-License-Identifier: Apache-2.0
"""Several callers of one operation: `amqproute.joined_calls`."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from amqproute.joined_calls import JoinedCalls


class JoinedCallsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.calls: JoinedCalls[str, int] = JoinedCalls()
        self.begun: list[Deferred[int]] = []

    def begin(self) -> Deferred[int]:
        self.begun.append(Deferred())
        return self.begun[-1]

    def call(self, key: str = "a") -> Deferred[int]:
        return self.calls.call(key, self.begin)

    def test_joined(self) -> None:
        """All callers of a key get the result of one call; the next begins another."""
        answers = [self.call(), self.call(), self.call("b")]
        self.assertEqual((len(self.begun), len(self.calls)), (2, 2))
        self.begun[0].callback(7)
        self.assertEqual([self.successResultOf(each) for each in answers[:2]], [7, 7])
        self.assertNoResult(answers[2])
        self.assertEqual(("a" in self.calls, "b" in self.calls), (False, True))
        self.call()
        self.assertEqual(len(self.begun), 3)

    def test_failure(self) -> None:
        """All of them get its failure."""
        answers = [self.call(), self.call()]
        self.begun[0].errback(ValueError("no"))
        for each in answers:
            self.failureResultOf(each, ValueError)
        self.assertEqual(len(self.calls), 0)

    def test_does_not_begin(self) -> None:
        """An exception instead of a Deferred is a failure, and nothing stays under way."""

        def begin() -> Deferred[int]:
            raise ValueError("no")

        self.failureResultOf(self.calls.call("a", begin), ValueError)
        self.assertEqual(len(self.calls), 0)

    def test_given_up(self) -> None:
        """Who cancels waits no more; the others do, and the call goes on without any."""
        answers = [self.call(), self.call()]
        answers[0].cancel()
        self.failureResultOf(answers[0], CancelledError)
        self.begun[0].callback(1)
        self.assertEqual(self.successResultOf(answers[1]), 1)
        alone = self.call()
        alone.cancel()
        self.failureResultOf(alone, CancelledError)
        self.assertEqual(len(self.calls), 1)
        self.begun[1].callback(2)
        self.assertEqual(len(self.calls), 0)

    def test_called_again_by_an_answer(self) -> None:
        """A caller that calls again when it has its answer begins a new call."""
        first = self.call()
        again: list[Deferred[int]] = []
        first.addCallback(lambda _: again.append(self.call()))
        self.begun[0].callback(1)
        self.assertEqual(len(self.begun), 2)
        self.begun[1].callback(2)
        self.assertEqual(self.successResultOf(again[0]), 2)
