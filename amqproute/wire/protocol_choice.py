# SPDX-License-Identifier: Apache-2.0
"""Choice of a connection's protocol by its first octets.

A protocol is known by its headers, of at most `HEADER_SIZE` octets each. `choose` is the decision.
`ProtocolChooser` is the engine of a connection until it is made: it reads that far, says nothing,
and reports `ProtocolChosen`; then the engine of the protocol takes the connection over, with the
octets that have come.

The first protocol is the one for all others: whoever speaks none of them, or nothing within the
time of the handshake, is for its engine to answer. So a listener with one protocol has nothing to
choose, and does not wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from amqproute.wire.engine import Engine, EngineBase, Event
from amqproute.wire.header import HEADER_SIZE, ProtocolHeader

__all__ = [
    "AMQP_1_0_HEADERS",
    "BEFORE_1_0_HEADERS",
    "KnownProtocol",
    "ProtocolChooser",
    "ProtocolChosen",
    "check_headers",
    "choose",
]

AMQP_1_0_HEADERS: Final = (
    ProtocolHeader.AMQP_1_0.value,
    ProtocolHeader.AMQP_1_0_TLS.value,
    ProtocolHeader.AMQP_1_0_SASL.value,
)
"""The headers that the engine for AMQP 1.0 serves."""
BEFORE_1_0_HEADERS: Final = (b"AMQP\x00\x00", b"AMQP\x01\x01")
"""First octets of headers before 1.0. The engine for 0-9 and 0-9-1 serves two of them and tells the
others what it serves (09-W-03)."""


class KnownProtocol(Protocol):
    """A protocol, as far as the choice goes."""

    @property
    def headers(self) -> Sequence[bytes]:
        """Headers its connections begin with."""


P = TypeVar("P", bound=KnownProtocol)


def check_headers(protocols: Sequence[KnownProtocol]) -> None:
    """Check that every connection is for one protocol only.

    Raises:
        ValueError: there is no protocol; a header is empty or longer than `HEADER_SIZE`; or it
            begins with a header of another protocol.
    """
    if not protocols:
        raise ValueError("no protocol")
    for protocol in protocols:
        for header in protocol.headers:
            if not 0 < len(header) <= HEADER_SIZE:
                raise ValueError(f"{header!r} is no header of 1 to {HEADER_SIZE} octets")
            others = [each for each in protocols if each is not protocol]
            for other in (each for rival in others for each in rival.headers):
                if header.startswith(other):
                    raise ValueError(f"{header!r} begins with the header {other!r}")


def choose(start: bytes, protocols: Sequence[P]) -> P | None:
    """Choose the protocol of a connection.

    Args:
        start: the input; octets after the eighth do not matter.
        protocols: those that are served, see `check_headers`; the first one is for all others.

    Returns:
        The protocol; None while it takes more octets to tell.
    """
    first = protocols[0]
    possible: P | None = None
    for protocol in protocols:
        for header in protocol.headers:
            if start.startswith(header):
                return protocol
            if protocol is not first and header.startswith(start):
                possible = protocol
    return first if possible is None else None


@dataclass(slots=True)
class ProtocolChosen(Event):
    """It is known which engine the connection is for; nothing follows.

    Attributes:
        number: the number of the protocol, among those that the `ProtocolChooser` has.
        octets: the whole input.
        since: when the connection began, seconds of the monotonic clock.
    """

    number: int
    octets: bytes
    since: float


class ProtocolChooser(EngineBase):
    """The engine of a connection whose protocol is not known yet.

    Args:
        protocols: the protocols that are served; the first one is for all others.
        seconds: how long to wait for a header.
    """

    def __init__(self, protocols: Sequence[KnownProtocol], seconds: float) -> None:
        super().__init__()
        self._protocols = protocols
        self._seconds = seconds
        self._octets = b""
        self._since = 0.0

    def __repr__(self) -> str:
        return f"<ProtocolChooser {self._octets[:HEADER_SIZE]!r}>"

    def start(self, now: float) -> None:
        """See `amqproute.wire.engine.Engine`."""
        self._since = now

    def receive_data(self, data: bytes, now: float, budget: int | None = None) -> list[Event]:
        """See `amqproute.wire.engine.Engine`; eight octets are no work."""
        self._octets += data
        chosen = choose(self._octets, self._protocols)
        return [] if chosen is None else self._chosen(chosen)

    def tick(self, now: float) -> list[Event]:
        """See `amqproute.wire.engine.Engine`: who has said too little is for the first protocol."""
        return self._chosen(self._protocols[0]) if now >= self._since + self._seconds else []

    def next_deadline(self) -> float | None:
        """See `amqproute.wire.engine.Engine`."""
        return None if self.is_closed else self._since + self._seconds

    def _chosen(self, protocol: KnownProtocol) -> list[Event]:
        number = [each is protocol for each in self._protocols].index(True)
        return [ProtocolChosen(number, self._octets, self._since)]


_CONTRACT: type[Engine] = ProtocolChooser  # for the type checker
