# SPDX-License-Identifier: Apache-2.0
"""The protocols of a listener, and the choice of one for each connection.

A `amqproute.net.listener.Listener` uses `OfferedProtocols.make` to make the engine and the user of
a connection. With one protocol they are made at once. With several, the connection begins with a
`amqproute.wire.protocol_choice.ProtocolChooser`, and the engine and user of the chosen protocol
take over after the first octets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute.interfaces import IConnectionPump, IConnectionUser
from amqproute.net.pump import Make, TransportFacts
from amqproute.wire.engine import Engine
from amqproute.wire.protocol_choice import ProtocolChooser, ProtocolChosen, check_headers

__all__ = ["OfferedProtocol", "OfferedProtocols"]


@dataclass(frozen=True, slots=True)
class OfferedProtocol:
    """A protocol that a listener serves.

    Attributes:
        name: the name for the log.
        headers: the first octets of its connections, see `amqproute.wire.protocol_choice`.
        make: makes engine and user of a connection.
    """

    name: str
    headers: tuple[bytes, ...]
    make: Make


class OfferedProtocols:
    """The protocols of a listener.

    Args:
        protocols: the first one answers clients that speak none of them.
        seconds: time limit for the choice; the deadline of the protocol's own handshake starts at
            the same time.

    Raises:
        ValueError: a connection could belong to two of them.
    """

    def __init__(self, protocols: Sequence[OfferedProtocol], seconds: float) -> None:
        check_headers(protocols)
        self._protocols = tuple(protocols)
        self._seconds = seconds

    def __repr__(self) -> str:
        return f"<OfferedProtocols {', '.join(each.name for each in self._protocols)}>"

    def make(self, facts: TransportFacts) -> tuple[Engine, IConnectionUser]:
        """Make engine and user of a connection; see `amqproute.net.pump.Make`."""
        if len(self._protocols) == 1:
            return self._protocols[0].make(facts)
        chooser = ProtocolChooser(self._protocols, self._seconds)
        return chooser, _ChooserUser(self._protocols, facts)


@implementer(IConnectionUser)
class _ChooserUser:
    """The user of a connection whose protocol is not yet known."""

    def __init__(self, protocols: Sequence[OfferedProtocol], facts: TransportFacts) -> None:
        self._protocols = protocols
        self._facts = facts
        self._pump: IConnectionPump | None = None

    def connected(self, pump: IConnectionPump) -> None:
        """See `IConnectionUser.connected`."""
        self._pump = pump

    def events(self, events: Sequence[object]) -> None:
        """See `IConnectionUser.events`: the only event is the choice."""
        for event in events:
            assert isinstance(event, ProtocolChosen)
            pump, self._pump = self._pump, None
            assert pump is not None
            engine, user = self._protocols[event.number].make(self._facts)
            pump.hand_over(engine, user, event.octets, event.since)

    def paused(self) -> None:
        """See `IConnectionUser.paused`; nothing is written."""

    def writable(self) -> None:
        """See `IConnectionUser.writable`."""

    def lost(self, reason: Failure) -> None:
        """See `IConnectionUser.lost`."""
        self._pump = None
