# SPDX-License-Identifier: Apache-2.0
"""Releasing the frames that an error holds, so that it does not wait for the garbage collector.

A traceback holds every frame that the error passed, with its variables. A coroutine that waits for
a Deferred is resumed by a frame that holds the failure itself (`Deferred.fromCoroutine`), so an
error that comes through one is part of a cycle: some hundred objects that reference counting does
not free. Twisted cannot avoid that, since it does not know the last user of an error.

Code that handles an error which strangers can cause at will, such as an unknown name or a refused
connection, calls one of these functions. The traceback has no use then: the error was expected.
"""

from __future__ import annotations

from twisted.python.failure import Failure

__all__ = ["forget_frames", "without_frames"]


def forget_frames(error: BaseException | None) -> None:
    """Release the frames that an error holds.

    Args:
        error: the handled error; its causes and contexts are included.
    """
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            each.__traceback__ = None
            waiting += (each.__cause__, each.__context__)


def without_frames(failure: Failure) -> Failure:
    """Return the failure without frames; an errback.

    Its traceback is kept as text. Add it to the Deferred of a coroutine before
    `Deferred.addTimeout`, which drops the failure of what it has cancelled.
    """
    forget_frames(failure.value)
    failure.cleanFailure()  # type: ignore[no-untyped-call]
    return failure
