# SPDX-License-Identifier: Apache-2.0
"""Cheap calls from another thread to the reactor.

A reactor's `callFromThread` serves everybody: its octet in a pipe passes four layers of Python, and
is read until the pipe is empty. The writer calls once for each commit, which for lone messages is
once for each message; a `Wakeup` is an eventfd(2) that the reactor watches like a socket: one
system call to ring, one to receive, and any number of rings in between is received once.
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
    """Tell whether this reactor can watch an eventfd(2), which exists on Linux only."""
    return hasattr(os, "eventfd") and IReactorFDSet.providedBy(reactor)


@implementer(IReadDescriptor)
class Wakeup:
    """Calls a function in the reactor's thread soon after `ring` was called in any other.

    To be constructed and closed in the reactor's thread.
    """

    def __init__(self, reactor: IReactorFDSet, heard: Callable[[], object]) -> None:
        self._reactor = reactor
        self._heard = heard
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        reactor.addReader(self)

    def ring(self) -> None:
        """Schedule the call; from any thread, until `close`."""
        os.eventfd_write(self._descriptor, 1)

    def close(self) -> None:
        """Stop calling; harmless if repeated."""
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
        """Receive all rings at once. See `IReadDescriptor.doRead`."""
        os.eventfd_read(self._descriptor)
        try:
            self._heard()
        except Exception:  # the reactor would stop watching this descriptor
            log.failure("handling the results of the store's writer failed")

    def connectionLost(self, reason: Failure) -> None:
        """Do nothing: the descriptor is not shared. See `IFileDescriptor.connectionLost`."""
