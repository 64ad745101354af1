# SPDX-License-Identifier: Apache-2.0
"""Operations that several callers want at one time, and that are carried out once for all."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.python.failure import Failure

__all__ = ["JoinedCalls"]

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class JoinedCalls(Generic[Key, Result]):
    """Calls under way, by key; their number is the length."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[Key, list[Deferred[Result]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, key: Key) -> bool:
        return key in self._waiting

    def call(self, key: Key, begin: Callable[[], Deferred[Result]]) -> Deferred[Result]:
        """Wait for the call with this key, which ``begin`` begins unless it is under way.

        Returns:
            A Deferred of its result, or its failure. A caller that cancels it waits no more; the
            call goes on.
        """
        answer: Deferred[Result] = Deferred(lambda gone: self._give_up(key, gone))
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.append(answer)
            return answer
        self._waiting[key] = [answer]
        maybeDeferred(begin).addBoth(self._conclude, key)
        return answer

    def _conclude(self, result: Result | Failure, key: Key) -> None:
        for each in self._waiting.pop(key):
            if isinstance(result, Failure):
                each.errback(result)
            else:
                each.callback(result)

    def _give_up(self, key: Key, gone: Deferred[Result]) -> None:
        waiting = self._waiting.get(key, [])
        if gone in waiting:
            waiting.remove(gone)
