# SPDX-License-Identifier: Apache-2.0
"""The contract between a protocol engine and the shell that owns the transport.

An engine is a state machine over octets. The shell around it (`amqproute.net.pump`) does four
things and no more: hand in what arrived, within a budget of work, hand the events to the
connection's user, write what `data_to_send` returns, and call `tick` when `next_deadline` has come.
`Engine` has exactly what the shell calls; what the user of a connection calls, and the events that
it gets, are the protocol's own. The shell looks at one event only, `TlsAgreed`.

Why so: one path for every event (nothing is lost when a fault follows good frames in the same
read), no exceptions for what a peer did, and a test can drive two engines against each other
with a pretend wire and a pretend clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from amqproute.conditions import Condition

__all__ = ["Engine", "EngineBase", "Event", "TlsAgreed", "UpgradableEngine"]


class Event:
    """Anything that an engine reports; each protocol has its own kinds."""

    __slots__ = ()


@dataclass(slots=True)
class TlsAgreed(Event):
    """Both sides have agreed on TLS (AMQP 1.0 part 5 §5.2.1); the last event of a read.

    Write `data_to_send()`, wrap the transport in TLS, then call
    `UpgradableEngine.tls_established`.
    """


class Engine(Protocol):
    """Bytes in, events out; verbs in, bytes out.

    All times are seconds of one monotonic clock that the caller reads; the engine has none.
    None of these methods raises for what the *peer* did: the engine queues the close, end or
    detach with its condition and reports it as an event.
    """

    def start(self, now: float) -> None:
        """Begin: a client-role engine queues its first protocol header; deadlines start."""
        ...

    def receive_data(self, data: bytes, now: float, budget: int | None = None) -> Sequence[object]:
        """Take what the transport delivered; return the events it causes, in order.

        Args:
            data: the octets. While `has_input` is true there may be none: the engine goes on
                with what it has.
            now: the time.
            budget: units of work (`amqproute.wire.input_cost`) after which the engine stops and
                keeps the rest; the frame that uses them up is still taken. None for no bound.
        """
        ...

    @property
    def has_input(self) -> bool:
        """Whether input is left that a budget kept from being taken."""
        ...

    @property
    def work(self) -> int:
        """Units of work spent so far on what came in."""
        ...

    def receive_eof(self, now: float) -> Sequence[object]:
        """The peer will send nothing more, or the transport is gone."""
        ...

    def data_to_send(self) -> list[bytes]:
        """Return the buffers to write, and forget them. Large payloads are separate buffers."""
        ...

    def next_deadline(self) -> float | None:
        """Return when `tick` has to be called at the latest, or None."""
        ...

    def tick(self, now: float) -> Sequence[object]:
        """Let time pass: heartbeats, idle time-out, handshake deadline."""
        ...

    def close_with(self, condition: Condition, words: str) -> None:
        """Close the connection for a reason of the shell's, in the protocol's own terms.

        Args:
            condition: internal-error for a bug of ours, connection-forced if the transport cannot
                stay.
            words: the words for the peer.
        """
        ...

    @property
    def is_closed(self) -> bool:
        """True once nothing more will be read: write the rest, then drop the transport."""
        ...


class EngineBase:
    """An engine without deadlines that takes all its input at once; override what is different.

    Attributes:
        work: see `Engine`.
        is_closed: see `Engine`.
        output: buffers to be written.
    """

    def __init__(self) -> None:
        self.work = 0
        self.is_closed = False
        self.output: list[bytes] = []

    @property
    def has_input(self) -> bool:
        """See `Engine`."""
        return False

    def start(self, now: float) -> None:
        """See `Engine`."""

    def receive_eof(self, now: float) -> Sequence[object]:
        """See `Engine`."""
        self.is_closed = True
        return []

    def data_to_send(self) -> list[bytes]:
        """See `Engine`."""
        output, self.output = self.output, []
        return output

    def next_deadline(self) -> float | None:
        """See `Engine`."""
        return None

    def tick(self, now: float) -> Sequence[object]:
        """See `Engine`."""
        return []

    def close_with(self, condition: Condition, words: str) -> None:
        """See `Engine`; the peer is not told."""
        self.is_closed = True


@runtime_checkable
class UpgradableEngine(Engine, Protocol):
    """An engine that may report `TlsAgreed`."""

    def take_surplus(self) -> bytes:
        """Hand over octets that came behind the agreement: the peer's TLS handshake begins."""
        ...

    def tls_established(self, now: float) -> Sequence[object]:
        """Go on under TLS."""
        ...
