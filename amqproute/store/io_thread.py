# SPDX-License-Identifier: Apache-2.0
"""A thread for blocking file operations, one after the other, with results for the reactor."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

__all__ = ["IoThread", "ReactorCall"]

T = TypeVar("T")

log = Logger()


class ReactorCall(Protocol):
    """The method of a reactor that `IoThread` needs (`IReactorFromThreads` has it)."""

    def callFromThread(
        self, callable: Callable[..., object], *args: object, **kwargs: object
    ) -> None:
        """Call `callable` in the reactor's thread, in the order of these calls."""


class IoThread:
    """Runs functions in order on a thread of its own, which starts with the first one.

    Args:
        name: the name of the thread.
        reactor: the reactor for the way back.
    """

    def __init__(self, name: str, reactor: ReactorCall) -> None:
        self._name = name
        self._reactor = reactor
        self._jobs: SimpleQueue[tuple[Callable[[], object], Deferred[Any] | None] | None] = (
            SimpleQueue()
        )
        self._thread: threading.Thread | None = None

    def run(self, function: Callable[[], T]) -> Deferred[T]:
        """Return a Deferred of the result of `function`; it fails with what `function` raises."""
        done: Deferred[T] = Deferred()
        self.start()
        self._jobs.put((function, done))
        return done

    def leave(self, function: Callable[[], object]) -> None:
        """Run `function` without reporting its result. From any thread, a finalizer's too.

        Nothing happens before `start` or the first `run`.
        """
        self._jobs.put((function, None))

    def stop(self) -> Deferred[None]:
        """Return a Deferred that fires when all earlier functions are done and the thread ends."""
        if self._thread is None:
            return succeed(None)
        done: Deferred[None] = Deferred()
        self._jobs.put((lambda: None, done))
        self._jobs.put(None)
        return done

    def start(self) -> None:
        """Start the thread; harmless if it is running."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._live, name=self._name, daemon=True)
            self._thread.start()

    def _live(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            function, done = job
            result: Any
            try:
                result = function()
            except Exception as error:
                result = error
                if done is None:
                    log.failure("{name} failed", name=self._name)
            if done is not None:
                self._reactor.callFromThread(_fire, done, result)
            # Not kept while the thread waits: results and closures may be large.
            del job, function, done, result


def _fire(done: Deferred[Any], result: Any) -> None:
    if isinstance(result, Exception):
        done.errback(result)
    else:
        done.callback(result)
