# SPDX-License-Identifier: Apache-2.0
"""The type of a whole reactor, for code that hands it on to several parts."""

from __future__ import annotations

from twisted.internet.interfaces import (
    IReactorCore,
    IReactorFDSet,
    IReactorPluggableNameResolver,
    IReactorTCP,
    IReactorThreads,
    IReactorTime,
    IReactorUDP,
    IReactorUNIX,
)

__all__ = ["IReactor"]


class IReactor(
    IReactorCore,
    IReactorFDSet,
    IReactorPluggableNameResolver,
    IReactorTCP,
    IReactorThreads,
    IReactorTime,
    IReactorUDP,
    IReactorUNIX,
):
    """All that the daemon and the commands use of a reactor. Twisted's on Unix have it all."""
