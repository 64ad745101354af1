# SPDX-License-Identifier: Apache-2.0
"""The threads of a realm whose library blocks: few, and nobody else's.

The reactor's own threads resolve names and verify the passwords of local users. A directory that
hangs would occupy them all.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads

from amqproute.auth.outside_realm import RealmUnavailable

__all__ = ["RealmThreads"]

Result = TypeVar("Result")


class RealmThreads(Generic[Result]):
    """Threads.

    Args:
        reactor: by which results come back.
        most: how many.
        name: the name for lists of threads.
    """

    def __init__(self, reactor: IReactorFromThreads, most: int, name: str) -> None:
        self._reactor = reactor
        self._executor = ThreadPoolExecutor(most, thread_name_prefix=name)

    def run(self, function: Callable[[], Result]) -> Deferred[Result]:
        """Run a function in one of them, when one is free; cancelling drops it if it waits."""
        future = self._executor.submit(function)

        def drop(_: object) -> None:
            future.cancel()

        answer: Deferred[Result] = Deferred(drop)
        future.add_done_callback(lambda done: self._reactor.callFromThread(_conclude, answer, done))
        return answer

    def stop(self) -> None:
        """Drop what waits; what runs ends by its own time."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def _conclude(answer: Deferred[Result], done: Future[Result]) -> None:
    if answer.called:
        return  # nobody waits any more
    if done.cancelled():
        answer.errback(RealmUnavailable("the realm is being stopped"))
        return
    error = done.exception()
    if error is not None:
        answer.errback(error)
    else:
        answer.callback(done.result())
