# SPDX-License-Identifier: Apache-2.0
"""Run the reactor for one coroutine. The only module here that imports the reactor, in `run`."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ReactorNotRunning
from twisted.python.failure import Failure

from amqproute.cli.command_error import Interrupted
from amqproute.net.reactor import IReactor

__all__ = ["run"]

_T = TypeVar("_T")


def run(work: Callable[[IReactor], Awaitable[_T]]) -> _T:
    """Call a coroutine function with the reactor, and return its result.

    A reactor runs once in a process, and a command needs it once. On SIGINT and SIGTERM the
    coroutine is cancelled and awaited; it has to be done within its own deadlines.

    Raises:
        Interrupted: a signal came, and the coroutine ended without a result.
        Exception: whatever the coroutine raises.
    """
    # The import makes the reactor, with its descriptors: commands that need none can be loaded
    # without it.
    from twisted.internet import reactor as made

    reactor: Any = made
    results: list[_T | Failure] = []
    tasks: list[Deferred[None]] = []
    was_cut_short = False

    def stop() -> None:
        with suppress(ReactorNotRunning):  # it has been cancelled before
            reactor.stop()

    async def begin() -> _T:
        # Within a coroutine, so that a call that fails at once ends the run as well.
        return await work(reactor)

    def start() -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, lambda *_: reactor.callFromThread(stop))
        task: Deferred[None] = Deferred.fromCoroutine(begin()).addBoth(done)
        tasks.append(task)

    def done(result: _T | Failure) -> None:
        results.append(result)
        if not was_cut_short:
            stop()

    def before_shutdown() -> Deferred[None] | None:
        nonlocal was_cut_short
        if results or not tasks:
            return None
        was_cut_short = True
        tasks[0].cancel()
        return tasks[0]

    reactor.addSystemEventTrigger("before", "shutdown", before_shutdown)
    reactor.callWhenRunning(start)
    reactor.run()
    if not results:
        raise Interrupted
    result = results[0]
    if not isinstance(result, Failure):
        return result
    if was_cut_short and isinstance(result.value, CancelledError):
        raise Interrupted from result.value
    assert result.value is not None
    raise result.value
