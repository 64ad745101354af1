# SPDX-License-Identifier: Apache-2.0
"""Answers of class message, which name no request: each side answers in the order of requests.

So the answer to a transfer that waits for the disk holds back those to what has come behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from amqproute.wire.amqp09.shapes import AmqpMethod

__all__ = ["MOST_UNANSWERED", "OrderedAnswer", "OrderedAnswers"]

MOST_UNANSWERED: Final = 10_000
"""Requests of one channel without an answer, beyond which the connection is not read."""


class OrderedAnswer:
    """The place of one answer."""

    __slots__ = ("_answers", "method")

    def __init__(self, answers: OrderedAnswers) -> None:
        self._answers = answers
        self.method: AmqpMethod | None = None

    def give(self, method: AmqpMethod) -> None:
        """Answer, when it is its turn; only the first answer counts."""
        if self.method is None:
            self.method = method
            self._answers.go()


class OrderedAnswers:
    """The requests of a client on one channel, and their answers.

    Args:
        send: sends an answer.
        pressed: called with whether too many requests have no answer, when that changes.
    """

    __slots__ = ("_is_pressed", "_pressed", "_send", "_waiting")

    def __init__(self, send: Callable[[AmqpMethod], None], pressed: Callable[[bool], None]) -> None:
        self._send = send
        self._pressed = pressed
        self._is_pressed = False
        self._waiting: deque[OrderedAnswer] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self) -> OrderedAnswer:
        """Return the place of the answer to a request that has just come."""
        answer = OrderedAnswer(self)
        self._waiting.append(answer)
        if len(self._waiting) > MOST_UNANSWERED and not self._is_pressed:
            self._is_pressed = True
            self._pressed(True)
        return answer

    def answer(self, method: AmqpMethod) -> None:
        """Answer a request that has just come."""
        self.begin().give(method)

    def go(self) -> None:
        """Send all answers that are due."""
        waiting = self._waiting
        while waiting and (method := waiting[0].method) is not None:
            waiting.popleft()
            self._send(method)
        if self._is_pressed and len(waiting) <= MOST_UNANSWERED:
            self._is_pressed = False
            self._pressed(False)

    def end(self) -> None:
        """The channel is over: nobody is answered any more."""
        self._waiting.clear()
        self.go()
