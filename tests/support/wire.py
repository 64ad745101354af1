# SPDX-License-Identifier: Apache-2.0
"""An in-memory wire for the AMQP 1.0 engine: two engines, or one engine and a scripted peer.

`Wire` carries bytes between two engines in pieces of any size and keeps the events of both.
`Peer` is the other end as a script: it writes raw frames to one engine and reads its answers as
performatives. Neither has a clock of its own: time is the attribute ``now``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.connection import Connection, ConnectionSettings
from amqproute.wire.amqp10.engine_events import (
    DeliveriesReceived,
    DeliveriesUpdated,
    Event,
    LinkAttached,
    OpenReceived,
    SessionBegun,
)
from amqproute.wire.amqp10.frames import FrameBuffer, encode_frame, encode_sasl_frame
from amqproute.wire.amqp10.link import Delivery, Link
from amqproute.wire.amqp10.session import Session
from amqproute.wire.header import ProtocolHeader

AMQP = ProtocolHeader.AMQP_1_0.value
SASL = ProtocolHeader.AMQP_1_0_SASL.value
TLS = ProtocolHeader.AMQP_1_0_TLS.value

Answer = Callable[[Any], None]
_E = TypeVar("_E")


def settings(role: str = "server", **changes: Any) -> ConnectionSettings:
    """Return settings for tests: no SASL, no heartbeats."""
    fields: dict[str, Any] = {
        "role": role,
        "container_id": f"{role}.example",
        "allow_no_sasl": True,
        **changes,
    }
    return ConnectionSettings(**fields)


def pieces(data: bytes, size: int | None) -> Iterator[bytes]:
    """Cut ``data`` into pieces of ``size`` octets; None leaves it whole."""
    if not data:
        return
    if size is None:
        yield data
        return
    for start in range(0, len(data), size):
        yield data[start : start + size]


def frame(performative: Any, payload: bytes = b"", channel: int = 0) -> bytes:
    """Encode one AMQP frame."""
    return b"".join(encode_frame(channel, performative, [payload] if payload else []))


def sasl(body: Any) -> bytes:
    """Encode one SASL frame."""
    return encode_sasl_frame(body)


def answer(event: Event) -> None:
    """Accept all requests of the peer, as the simplest user would."""
    if isinstance(event, SessionBegun) and not event.is_answer:
        event.session.accept()
    elif isinstance(event, LinkAttached) and not event.is_answer:
        event.link.accept()


def of_type(events: Iterable[Any], kind: type[_E]) -> list[_E]:
    """Return the events of one type."""
    return [event for event in events if isinstance(event, kind)]


def merged(events: Iterable[Event]) -> list[tuple[Any, ...]]:
    """Describe events so that two runs with different chunking compare equal."""
    told: list[tuple[Any, ...]] = []
    for event in events:
        name = type(event).__name__
        if isinstance(event, (DeliveriesReceived, DeliveriesUpdated)):
            extra: tuple[Any, ...] = ()
            if isinstance(event, DeliveriesUpdated):
                extra = (repr(event.state), event.settled)
            for delivery in event.deliveries:
                told.append((name, event.link.name, delivery.tag, delivery.payload, *extra))
            continue
        fields = []
        for field in getattr(type(event), "__slots__", ()):
            value = getattr(event, field)
            if isinstance(value, Link):
                value = value.name
            elif isinstance(value, Session):
                value = value.remote_channel
            elif isinstance(value, list):
                value = [each.tag for each in value if isinstance(each, Delivery)]
            fields.append(repr(value))
        told.append((name, *fields))
    return told


class Wire:
    """Two engines, joined.

    Args:
        client: one end.
        server: the other end.
        chunk: octets per piece; None passes all pending octets at once.

    Attributes:
        client_events: all events of the client so far.
        server_events: all events of the server so far.
        now: the time passed to both engines.
        on_client: called with each event of the client.
        on_server: called with each event of the server.
    """

    def __init__(self, client: Connection, server: Connection, chunk: int | None = None) -> None:
        self.client = client
        self.server = server
        self.chunk = chunk
        self.now = 0.0
        self.client_events: list[Event] = []
        self.server_events: list[Event] = []
        self.on_client: Answer = answer
        self.on_server: Answer = self._serve
        client.start(self.now)
        server.start(self.now)

    def _serve(self, event: Event) -> None:
        if isinstance(event, OpenReceived):
            self.server.open()
        answer(event)

    def _pass(self, source: Connection, sink: Connection, told: list[Event], user: Answer) -> bool:
        data = b"".join(source.data_to_send())
        for piece in pieces(data, self.chunk):
            events = sink.receive_data(piece, self.now)
            told.extend(events)
            for event in events:
                user(event)
        return bool(data)

    def run(self) -> Wire:
        """Carry bytes in both directions until both sides are quiet."""
        moved = True
        while moved:
            moved = self._pass(self.client, self.server, self.server_events, self.on_server)
            moved |= self._pass(self.server, self.client, self.client_events, self.on_client)
        return self

    def tick(self, now: float) -> None:
        """Pass the time to both engines, and carry their output."""
        self.now = now
        for engine, told in (
            (self.client, self.client_events),
            (self.server, self.server_events),
        ):
            told.extend(engine.tick(now))
        self.run()


class Pair(Wire):
    """Two opened engines with one session and one link from client to server.

    Attributes:
        sender: the client's end of the link.
        receiver: the server's end.
    """

    def __init__(
        self,
        chunk: int | None = None,
        *,
        credit: int | None = 100,
        client: dict[str, Any] | None = None,
        server: dict[str, Any] | None = None,
        **attach: Any,
    ) -> None:
        super().__init__(
            Connection(settings("client", **(client or {}))),
            Connection(settings("server", **(server or {}))),
            chunk,
        )
        self.client.open()
        self.run()
        self.session = self.client.begin()
        self.sender = self.session.attach(
            "link", "sender", spec.Source(address="a"), spec.Target(address="b"), **attach
        )
        self.run()
        self.receiver = of_type(self.server_events, LinkAttached)[-1].link
        if credit is not None:
            self.receiver.flow(credit)
            self.run()
        self.client_events.clear()
        self.server_events.clear()

    def received(self) -> list[Delivery]:
        """Return all deliveries received by the server."""
        return [
            delivery
            for event in of_type(self.server_events, DeliveriesReceived)
            for delivery in event.deliveries
        ]


class Peer:
    """A scripted peer of one engine.

    Args:
        engine: the engine under test; started here unless it was.
        chunk: octets per piece of the script's output.
        user: called with each event; by default the engine's open and `answer`.

    Attributes:
        events: all events of the engine so far.
        now: the time passed to the engine.
    """

    def __init__(
        self,
        engine: Connection,
        chunk: int | None = None,
        user: Answer | None = None,
    ) -> None:
        self.engine = engine
        self.chunk = chunk
        self.now = 0.0
        self.events: list[Event] = []
        self.user: Answer = self._answer if user is None else user
        self._buffer = FrameBuffer(0x7FFFFFFF)
        self._headers = b""
        engine.start(self.now)

    def _answer(self, event: Event) -> None:
        if isinstance(event, OpenReceived):
            self.engine.open()
        answer(event)

    def write(self, *data: bytes) -> list[Event]:
        """Write octets; return the resulting events."""
        caused: list[Event] = []
        for piece in pieces(b"".join(data), self.chunk):
            events = self.engine.receive_data(piece, self.now)
            caused.extend(events)
            self.events.extend(events)
            for event in events:
                self.user(event)
        return caused

    def send(self, performative: Any, payload: bytes = b"", channel: int = 0) -> list[Event]:
        """Write one frame."""
        return self.write(frame(performative, payload, channel))

    def raw(self) -> bytes:
        """Return the engine's output since the last read, as octets."""
        return b"".join(self.engine.data_to_send())

    def read(self) -> list[Any]:
        """Return the performatives in the engine's output, without headers and heartbeats."""
        data = self.raw()
        while data[:4] == b"AMQP":
            data = data[8:]
        found: list[Any] = []
        if data:
            self._buffer.feed(data)
            while frames := self._buffer.frames():
                found.extend(body for _, _, body, _ in frames if body is not None)
        return found

    def names(self) -> list[str]:
        """Return the class names of the performatives of `read`."""
        return [type(body).__name__ for body in self.read()]

    def opened(self, **fields: Any) -> Peer:
        """Exchange headers and opens."""
        self.write(AMQP, frame(spec.Open(container_id="peer.example", **fields)))
        self.read()
        return self

    def begun(self, channel: int = 0, **fields: Any) -> Peer:
        """Begin a session; the engine's user accepts it."""
        begin = {"next_outgoing_id": 0, "incoming_window": 1000, "outgoing_window": 1000}
        self.send(spec.Begin(**{**begin, **fields}), channel=channel)
        self.read()
        return self

    def attached(self, role: str = "sender", handle: int = 0, **fields: Any) -> Link:
        """Attach a link as ``role``; return the engine's end of it."""
        self.send(attach(role, handle, **fields))
        self.read()
        return of_type(self.events, LinkAttached)[-1].link


def attach(role: str = "sender", handle: int = 0, name: str = "link", **fields: Any) -> Any:
    """Return an attach of a peer that is ``role``."""
    given: dict[str, Any] = {
        "name": name,
        "handle": handle,
        "role": role == "receiver",
        "source": spec.Source(address="a"),
        "target": spec.Target(address="b"),
        "initial_delivery_count": 0 if role == "sender" else None,
        **fields,
    }
    return spec.Attach(**given)


def transfer(delivery_id: int | None, handle: int = 0, **fields: Any) -> spec.Transfer:
    """Return a transfer; the tag follows from the id unless it is given."""
    tag = None if delivery_id is None else b"t%d" % delivery_id
    given: dict[str, Any] = {
        "handle": handle,
        "delivery_id": delivery_id,
        "delivery_tag": tag,
        "message_format": None if delivery_id is None else 0,
        "settled": False,
        **fields,
    }
    return spec.Transfer(**given)


def flow(**fields: Any) -> spec.Flow:
    """Return a flow with wide windows."""
    given: dict[str, Any] = {
        "next_incoming_id": 0,
        "incoming_window": 1000,
        "next_outgoing_id": 0,
        "outgoing_window": 1000,
        **fields,
    }
    return spec.Flow(**given)
