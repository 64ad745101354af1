# SPDX-License-Identifier: Apache-2.0
"""How a thread calls the reactor for little money.

`callFromThread` of a reactor serves everybody: its byte in a pipe passes four layers of Python,
and is read until there is none. The writer calls once for each commit, which for lone messages is
once for each message; a `Wakeup` is an eventfd(2) that the reactor watches like a socket: one
system call to ring, one to hear, and any number of rings in between is heard once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeGuard

from twisted.internet.interfaces import IReactorFDSet, IReadDescriptor
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

__all__ = ["Wakeup", "is_fit"]

log = Logger()


def is_fit(reactor: object) -> TypeGuard[IReactorFDSet]:
    """Whether there can be a bell: eventfd(2) is Linux's, and the reactor has to watch it."""
    return hasattr(os, "eventfd") and IReactorFDSet.providedBy(reactor)


@implementer(IReadDescriptor)
class Wakeup:
    """Calls `heard` in the reactor's thread, soon after `ring` in any other.

    Made, and closed, in the reactor's thread.
    """

    def __init__(self, reactor: IReactorFDSet, heard: Callable[[], object]) -> None:
        self._reactor = reactor
        self._heard = heard
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        reactor.addReader(self)

    def ring(self) -> None:
        """Have `heard` called; from any thread, until `close`."""
        os.eventfd_write(self._descriptor, 1)

    def close(self) -> None:
        """Call nobody any more; closing again is harmless."""
        if self._descriptor >= 0:
            self._reactor.removeReader(self)
            os.close(self._descriptor)
            self._descriptor = -1

    # IReadDescriptor.

    def fileno(self) -> int:
        """See `IFileDescriptor.fileno`."""
        return self._descriptor

    def logPrefix(self) -> str:
        """See `ILoggingContext.logPrefix`."""
        return "store"

    def doRead(self) -> None:
        """Take all rings at once. See `IReadDescriptor.doRead`."""
        os.eventfd_read(self._descriptor)
        try:
            self._heard()
        except Exception:  # the reactor would not watch this any more
            log.failure("what the store had to say was not taken well")

    def connectionLost(self, reason: Failure) -> None:
        """Do nothing: nobody else holds the descriptor. See `IFileDescriptor.connectionLost`."""
