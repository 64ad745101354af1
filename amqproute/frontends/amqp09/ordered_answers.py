# SPDX-License-Identifier: Apache-2.0
"""Answers of class message, which name no request: each side answers in the order of requests.

So the answer to a transfer that waits for the disk holds back those to what has come behind it. One
to a transfer by reference waits for the client itself, which may send any number of appends before
it closes the reference: what holds these back is not to stop the connection from being read. So
answers that are equal are kept as one and their number, when there are many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from amqproute.errors import ResourceLimitExceeded
from amqproute.wire.amqp09.shapes import AmqpMethod

__all__ = ["MOST_HELD_BACK", "MOST_UNANSWERED", "OrderedAnswer", "OrderedAnswers"]

MOST_UNANSWERED: Final = 10_000
"""Requests of one channel without an answer, beyond which the connection is not read."""
MOST_HELD_BACK: Final = 1_000_000
"""Requests whose answer one before them holds back: all of these are sent at once in the end."""


class OrderedAnswer:
    """The place of one answer, or of several successive ones that are equal.

    Attributes:
        method: the answer; None before it is given.
        count: how many requests it answers.
    """

    __slots__ = ("_answers", "count", "method")

    def __init__(self, answers: OrderedAnswers) -> None:
        self._answers = answers
        self.method: AmqpMethod | None = None
        self.count = 1

    def give(self, method: AmqpMethod) -> None:
        """Answer, when it is its turn; only the first answer counts."""
        if self.method is None:
            self.method = method
            self._answers.given()


class OrderedAnswers:
    """The requests of a client on one channel, and their answers.

    Args:
        send: sends an answer.
        pressed: called with whether too many requests have no answer, when that changes.
    """

    __slots__ = ("_given", "_is_pressed", "_merged", "_pressed", "_send", "_waiting")

    def __init__(self, send: Callable[[AmqpMethod], None], pressed: Callable[[bool], None]) -> None:
        self._send = send
        self._pressed = pressed
        self._is_pressed = False
        self._waiting: deque[OrderedAnswer] = deque()
        self._merged = 0  # answers that are kept as a number only
        self._given = 0  # since these were looked for

    def __len__(self) -> int:
        return len(self._waiting) + self._merged

    def begin(self) -> OrderedAnswer:
        """Return the place of the answer to a request that has just come.

        Raises:
            ResourceLimitExceeded: too many answers are held back.
        """
        if len(self) >= MOST_HELD_BACK:
            raise ResourceLimitExceeded(
                f"{MOST_HELD_BACK} answers wait for that to a transfer whose reference is open"
            )
        answer = OrderedAnswer(self)
        self._waiting.append(answer)
        if len(self._waiting) > MOST_UNANSWERED and not self._is_pressed:
            self._merge()
            if len(self._waiting) > MOST_UNANSWERED:
                self._is_pressed = True
                self._pressed(True)
        return answer

    def given(self) -> None:
        """An answer is there: send all that are due."""
        self._given += 1
        self.go()

    def _merge(self) -> None:
        """Keep successive answers that are equal as one."""
        merged: deque[OrderedAnswer] = deque()
        for each in self._waiting:
            last = merged[-1] if merged else None
            if last is None or each.method is None or each.method != last.method:
                merged.append(each)
            else:
                last.count += each.count
                self._merged += 1
        self._waiting = merged
        self._given = 0

    def answer(self, method: AmqpMethod) -> None:
        """Answer a request that has just come."""
        self.begin().give(method)

    def go(self) -> None:
        """Send all answers that are due."""
        waiting = self._waiting
        while waiting and (method := waiting[0].method) is not None:
            count = waiting.popleft().count
            self._merged -= count - 1
            for _ in range(count):
                self._send(method)
        if self._is_pressed and self._given > MOST_UNANSWERED // 10:
            self._merge()
            waiting = self._waiting
        if self._is_pressed and len(waiting) <= MOST_UNANSWERED:
            self._is_pressed = False
            self._pressed(False)

    def end(self) -> None:
        """The channel is over: nobody is answered any more."""
        self._waiting.clear()
        self._merged = 0
        self.go()
