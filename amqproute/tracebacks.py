# SPDX-License-Identifier: Apache-2.0
"""Letting go of what an error holds, so that no error waits for the garbage collector.

A traceback holds every frame on the way of an error, with its variables. A coroutine that waits
for a Deferred is resumed by a frame that holds the failure itself (`Deferred.fromCoroutine`), so an
error that comes through one is part of a cycle: some hundred objects that reference counting does
not free. Twisted cannot avoid that, for it does not know who is the last to look at an error.

Whoever ends an error that a stranger can cause at will, a name that is not found, a connection that
is refused, calls one of these two. The traceback is of no use then: the error has been expected.
"""

from __future__ import annotations

from twisted.python.failure import Failure

__all__ = ["forget_frames", "without_frames"]


def forget_frames(error: BaseException | None) -> None:
    """Let go of the frames that an error came through.

    Args:
        error: that ends here, with all that it says it comes from.
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
    """Return a failure that holds no frame; an errback.

    Its traceback is kept as text. To be added to the Deferred of a coroutine before
    `Deferred.addTimeout`, which drops the failure of what it has cancelled.
    """
    forget_frames(failure.value)
    failure.cleanFailure()  # type: ignore[no-untyped-call]
    return failure
