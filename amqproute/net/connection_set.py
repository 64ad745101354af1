# SPDX-License-Identifier: Apache-2.0
"""The connections of one listener, or of the connector, and a way to close them all."""

from __future__ import annotations

from typing import Protocol, TypeVar

from twisted.internet.defer import Deferred, succeed

__all__ = ["ConnectionSet"]


class _Droppable(Protocol):
    """A connection that can be dropped."""

    def abort(self) -> None:
        """Drop the connection without a closing handshake."""
        ...


C = TypeVar("C", bound=_Droppable)


class ConnectionSet(set[C]):
    """Present connections; their owner adds and discards them."""

    _all_gone: Deferred[None] | None = None

    def drop_all(self) -> Deferred[None]:
        """Drop all connections without a closing handshake; fires when all are gone."""
        if not self:
            return succeed(None)
        if self._all_gone is None:
            self._all_gone = Deferred()
        for connection in list(self):
            connection.abort()
        return self._all_gone

    def tell_if_gone(self) -> None:
        """Fire the Deferred of `drop_all` after the last connection; call this after each loss."""
        if self._all_gone is not None and not self:
            gone, self._all_gone = self._all_gone, None
            gone.callback(None)
