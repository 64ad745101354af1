# SPDX-License-Identifier: Apache-2.0
"""Changes in force in memory that are not durable yet.

Whoever asks for the same thing meanwhile gets the answer when, and if, it becomes durable.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

__all__ = ["PendingChanges"]

Result = TypeVar("Result")


class PendingChanges:
    """The latest change of each thing, while it is not durable."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, list[Deferred[None]]] = {}

    def __repr__(self) -> str:
        return f"<PendingChanges {len(self._waiting)}>"

    def follow(self, key: Hashable, done: Deferred[Result]) -> Deferred[Result]:
        """Have those who ask for a thing wait for its change.

        Args:
            key: the key of the thing.
            done: fires when the change is durable, or fails when it was undone.

        Returns:
            The same Deferred.
        """
        waiting: list[Deferred[None]] = []
        self._waiting[key] = waiting

        def over(result: Result | Failure) -> Result | Failure:
            if self._waiting.get(key) is waiting:
                del self._waiting[key]
            for each in waiting:
                if isinstance(result, Failure):
                    each.errback(result)
                else:
                    each.callback(None)
            return result

        return done.addBoth(over)

    def settled(self, key: Hashable, result: Result) -> Deferred[Result]:
        """Return a Deferred of a result: it fires when the thing's change is durable."""
        waiting = self._waiting.get(key)
        if waiting is None:
            return succeed(result)
        answer: Deferred[None] = Deferred()
        waiting.append(answer)
        return answer.addCallback(lambda _: result)
