# SPDX-License-Identifier: Apache-2.0
"""The type of a whole reactor, for code that passes it to several components."""

from __future__ import annotations

from twisted.internet.interfaces import (
    IReactorCore,
    IReactorFDSet,
    IReactorPluggableNameResolver,
    IReactorSocket,
    IReactorTCP,
    IReactorThreads,
    IReactorTime,
    IReactorUDP,
    IReactorUNIX,
)

__all__ = ["IReactor", "ISocketReactor"]


class ISocketReactor(IReactorTCP, IReactorTime, IReactorUNIX, IReactorSocket):
    """The parts that listen, in each of the ways that there are."""


class IReactor(
    ISocketReactor,
    IReactorCore,
    IReactorFDSet,
    IReactorPluggableNameResolver,
    IReactorThreads,
    IReactorUDP,
):
    """The parts of a reactor that are used here; Twisted's on Unix have all of them."""
