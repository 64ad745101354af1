# SPDX-License-Identifier: Apache-2.0
"""Server-sent events, as in the HTML standard §9.2, to one client.

A stream never waits for its client. What the client has not read is in the transport's buffer. Once
that is full, the stream ends when `MOST_UNREAD` more octets have been written, or after
`STALL_SECONDS`. The client connects again by itself, and gets what happens from then on.
A comment every `COMMENT_SECONDS` keeps proxies patient and finds clients that are gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime

__all__ = ["COMMENT_SECONDS", "MOST_UNREAD", "EventStream", "encode_event", "encode_event_id"]

COMMENT_SECONDS: Final = 20.0
"""Interval of comments on a quiet stream."""
MOST_UNREAD: Final = 256 * 1024
"""Octets written to a client that does not read, before its stream ends."""
STALL_SECONDS: Final = 60.0
"""Time for which a client may read nothing."""


def encode_event(event: str, data: str, event_id: str = "") -> bytes:
    """Return the octets of an event.

    Args:
        event: the type; no line breaks.
        data: the data of the event; each of its lines is a field.
        event_id: tells a client what it has seen; empty without one.
    """
    lines = [f"id: {event_id}"] if event_id else []
    lines.append(f"event: {event}")
    lines += [f"data: {line}" for line in data.splitlines() or [""]]
    return ("\n".join(lines) + "\n\n").encode()


def encode_event_id(event_id: str) -> bytes:
    """Return the octets that set what a client has seen, without an event for it.

    A block without data is not dispatched, but its id counts (HTML standard §9.2.6).
    """
    return f"id: {event_id}\n\n".encode()


class EventStream:
    """A stream of events.

    Args:
        clock: the clock for comments.
        write: passes octets to the transport.
        end: ends the answer.
    """

    def __init__(
        self, clock: IReactorTime, write: Callable[[bytes], object], end: Callable[[], object]
    ) -> None:
        self._clock = clock
        self._write = write
        self._end = end
        self._unread = 0
        self._paused_at: float | None = None
        self._call: IDelayedCall | None = clock.callLater(COMMENT_SECONDS, self._comment)
        self.is_over = False

    def send(self, event: str, data: str, event_id: str = "") -> bool:
        """Send an event, see `encode_event`; return whether the stream goes on."""
        return self.put(encode_event(event, data, event_id))

    def put(self, octets: bytes) -> bool:
        """Send events that are encoded already; return whether the stream goes on."""
        if self.is_over:
            return False
        if self._paused_at is not None:
            self._unread += len(octets)
            stalled = self._clock.seconds() - self._paused_at
            if self._unread > MOST_UNREAD or stalled > STALL_SECONDS:
                self.close()
                return False
        self._write(octets)
        return True

    @property
    def is_paused(self) -> bool:
        """Whether the client does not read at present."""
        return self._paused_at is not None

    def close(self) -> None:
        """End the stream; nothing is sent any more."""
        if not self.is_over:
            self.lost()
            self._end()

    def pause(self) -> None:
        """Take note that the client does not read."""
        self._paused_at = self._clock.seconds()
        self._unread = 0

    def resume(self) -> None:
        """Take note that the client has read everything."""
        self._paused_at = None

    def lost(self) -> None:
        """Take note that the connection is gone."""
        self.is_over = True
        call, self._call = self._call, None
        if call is not None and call.active():
            call.cancel()

    def _comment(self) -> None:
        self._call = self._clock.callLater(COMMENT_SECONDS, self._comment)
        self.put(b":\n\n")
