# SPDX-License-Identifier: Apache-2.0
"""The connections of one listener, or of the connector, and how to be rid of all of them."""

from __future__ import annotations

from typing import Protocol, TypeVar

from twisted.internet.defer import Deferred, succeed

__all__ = ["ConnectionSet"]


class _Droppable(Protocol):
    """What can be dropped."""

    def abort(self) -> None:
        """Drop the connection without a word."""
        ...


C = TypeVar("C", bound=_Droppable)


class ConnectionSet(set[C]):
    """Those that are there: whoever makes them adds and discards them."""

    _all_gone: Deferred[None] | None = None

    def drop_all(self) -> Deferred[None]:
        """Drop the connections that are there, without a word; fires when all are gone."""
        if not self:
            return succeed(None)
        if self._all_gone is None:
            self._all_gone = Deferred()
        for connection in list(self):
            connection.abort()
        return self._all_gone

    def tell_if_gone(self) -> None:
        """Tell whoever waits for it that the last one is gone; to be called after each loss."""
        if self._all_gone is not None and not self:
            gone, self._all_gone = self._all_gone, None
            gone.callback(None)
