# SPDX-License-Identifier: Apache-2.0
"""A scripted peer for the engine of 0-9 and 0-9-1, which uses `plain_amqp09` alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from amqproute.wire.amqp09.connection09 import Connection09
from amqproute.wire.amqp09.connection_settings import Connection09Settings
from amqproute.wire.amqp09.protocol_events import (
    ChannelAsked,
    MechanismChosen,
    ProtocolEvent,
    VirtualHostAsked,
)
from tests.support.plain_amqp09 import frame_octets, frames, header_octets, method, method_octets

V091 = b"AMQP\x00\x00\x09\x01"
V09 = b"AMQP\x01\x01\x00\x09"

_E = TypeVar("_E")


def settings(role: str = "server", **changes: Any) -> Connection09Settings:
    """Return settings for tests: no heartbeats."""
    fields: dict[str, Any] = {
        "role": role,
        "mechanisms": ("PLAIN", "AMQPLAIN") if role == "server" else (),
        "heartbeat": 0,
        "connection_id": "c7",
        **changes,
    }
    return Connection09Settings(**fields)


def call(channel: int, name: str, **arguments: Any) -> bytes:
    """Return a method frame."""
    return frame_octets(1, channel, method_octets(name, **arguments))


def content(
    channel: int,
    name: str,
    body: bytes = b"",
    properties: dict[str, Any] | None = None,
    pieces: int | None = None,
    class_id: int = 60,
    **arguments: Any,
) -> bytes:
    """Return the frames of a content, its body cut into pieces of this size."""
    out = call(channel, name, **arguments)
    out += frame_octets(2, channel, header_octets(class_id, len(body), properties))
    size = pieces or len(body)
    for at in range(0, len(body), size or 1):
        out += frame_octets(3, channel, body[at : at + size])
    return out


def publish(channel: int, body: bytes = b"", key: str = "q", **more: Any) -> bytes:
    """Return the frames of a basic.publish."""
    return content(channel, "basic.publish", body, routing_key=key, **more)


def of_type(events: Iterable[Any], kind: type[_E]) -> list[_E]:
    """Return the events of one type."""
    return [event for event in events if isinstance(event, kind)]


class Peer09:
    """A client's script against an engine in the server's role.

    Attributes:
        engine: the engine.
        events: all its events.
        now: the time.
    """

    def __init__(self, header: bytes = V091, **changes: Any) -> None:
        self.engine = Connection09(settings(**changes))
        self.events: list[ProtocolEvent] = []
        self.now = 0.0
        self.header = header
        self.engine.start(self.now)

    def send(self, *octets: bytes) -> list[ProtocolEvent]:
        """Write octets; return the resulting events. Opens are granted."""
        found = list(self.engine.receive_data(b"".join(octets), self.now))
        for event in found:
            self.grant(event)
        while self.engine.has_input:
            more = list(self.engine.receive_data(b"", self.now))
            for event in more:
                self.grant(event)
            found += more
        self.events += found
        return found

    def grant(self, event: ProtocolEvent) -> None:
        """Admit every client."""
        if isinstance(event, MechanismChosen):
            self.engine.authenticated()
        elif isinstance(event, VirtualHostAsked):
            self.engine.open_ok()
        elif isinstance(event, ChannelAsked) and self.engine.is_open:
            event.channel.open_ok()

    def raw(self) -> bytes:
        """Return the engine's output since the last call, as octets."""
        return b"".join(self.engine.data_to_send())

    def frames(self) -> list[tuple[int, int, bytes]]:
        """Return the frames of the engine's output since the last call."""
        return frames(self.raw())

    def methods(self) -> list[tuple[int, str, dict[str, Any]]]:
        """Return channel, name and arguments of the methods in that output."""
        return [
            (channel, *method(payload)) for kind, channel, payload in self.frames() if kind == 1
        ]

    def names(self) -> list[str]:
        """Return the names of those methods."""
        return [name for _, name, _ in self.methods()]

    def opened(self, *channels: int, **tuned: Any) -> Peer09:
        """Open the connection, and channels; discard the events."""
        tune = {"channel_max": 0, "frame_max": 0, "heartbeat": 0, **tuned}
        self.send(
            self.header,
            call(0, "connection.start-ok", mechanism="PLAIN", response=b"\0u\0p", locale="en_US",
                 client_properties=self.properties()),
        )  # fmt: skip
        self.send(
            call(0, "connection.tune-ok", **tune), call(0, "connection.open", virtual_host="/")
        )
        for channel in channels:
            self.send(call(channel, "channel.open"))
        self.raw()
        self.events.clear()
        return self

    def properties(self) -> list[tuple[str, str, Any]]:
        """Return client-properties with usual capabilities."""
        names = ("authentication_failure_close", "connection.blocked", "consumer_cancel_notify")
        return [("capabilities", "F", [(name, "t", 1) for name in names])]
