# SPDX-License-Identifier: Apache-2.0
"""What every protocol engine offers to the room that owns the transport.

An engine is a state machine over bytes. The shell around it (`amqproute.net.pump`) does four
things and no more: hand in what arrived, within a budget of work, hand the events to the
connection's user, write what `data_to_send` returns, and call `tick` when `next_deadline` has come.

Why so: one path for every event (nothing is lost when a fault follows good frames in the same
read), no exceptions for what a peer did, and a test can drive two engines against each other
with a pretend wire and a pretend clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Engine(Protocol):
    """Bytes in, events out; verbs in, bytes out.

    All times are seconds of one monotonic clock that the caller reads; the engine has none.
    None of these methods raises for what the *peer* did: the engine queues the close, end or
    detach with its condition and reports it as an event.
    """

    def start(self, now: float) -> None:
        """Begin: a client-role engine queues its first protocol header; deadlines start."""
        ...

    def receive_data(self, data: bytes, now: float, budget: int | None = None) -> Sequence[Any]:
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

    def receive_eof(self, now: float) -> Sequence[Any]:
        """The peer will send nothing more, or the transport is gone."""
        ...

    def data_to_send(self) -> list[bytes]:
        """Hand over, and forget, the buffers to write. Large payloads stand in it unjoined."""
        ...

    def next_deadline(self) -> float | None:
        """Return when `tick` has to be called at the latest, or None."""
        ...

    def tick(self, now: float) -> Sequence[Any]:
        """Let time pass: heartbeats, idle time-out, handshake deadline."""
        ...

    @property
    def is_closed(self) -> bool:
        """True once nothing more will be read: write what is left, then drop the transport."""
        ...
