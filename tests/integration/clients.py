# SPDX-License-Identifier: Apache-2.0
"""Clients of our own: `Raw` writes octets and reads frames; `Wire` has the engine, for volumes."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from amqproute.wire.amqp10 import codec, sections, spec
from amqproute.wire.amqp10 import engine_events as ev
from amqproute.wire.amqp10.connection import Connection, ConnectionSettings
from amqproute.wire.amqp10.frames import FrameBuffer, encode_frame, encode_sasl_frame
from amqproute.wire.amqp10.link import Link
from amqproute.wire.amqp10.sasl import ClientAuthority
from amqproute.wire.header import ProtocolHeader
from tests.support.patience import PATIENCE

T = TypeVar("T")

AMQP = ProtocolHeader.AMQP_1_0.value
SASL = ProtocolHeader.AMQP_1_0_SASL.value
TLS = ProtocolHeader.AMQP_1_0_TLS.value


def frame(performative: Any, payload: bytes = b"", channel: int = 0) -> bytes:
    """Encode one AMQP frame."""
    return b"".join(encode_frame(channel, performative, [payload] if payload else []))


def opening(container: str = "raw.example", **fields: Any) -> bytes:
    """Return header, open and begin of a client that does without SASL."""
    return (
        AMQP
        + frame(spec.Open(container_id=container, **fields))
        + frame(spec.Begin(next_outgoing_id=0, incoming_window=1000, outgoing_window=1000))
    )


def sending_link(address: str | None, handle: int = 0, name: str = "", **fields: Any) -> bytes:
    """Return the attach of a link that sends to an address."""
    return frame(
        spec.Attach(
            name=name or f"raw-{handle}",
            handle=handle,
            role=False,
            source=spec.Source(address="raw"),
            target=spec.Target(address=address),
            initial_delivery_count=0,
            **fields,
        )
    )


def message(
    body: bytes = b"hello", to: str | None = None, *, durable: bool = True, **properties: Any
) -> bytes:
    """Encode a message with one data section."""
    encoded = codec.encode(spec.Header(durable=durable))
    if to is not None or properties:
        encoded += codec.encode(spec.Properties(to=to, **properties))
    return encoded + sections.encode_section(0x75, body)


def transfer(payload: bytes, number: int = 0, handle: int = 0, **fields: Any) -> bytes:
    """Return the frame of one delivery."""
    values = {"message_format": 0, "settled": False, **fields}
    return frame(
        spec.Transfer(
            handle=handle, delivery_id=number, delivery_tag=number.to_bytes(4, "big"), **values
        ),
        payload,
    )


class Raw:
    """A socket that writes octets and reads frames.

    Args:
        port: where to connect, or the path of a unix socket.
        tls: TLS from the first octet.
        name: the server's name for TLS.
        source: the address of loopback to connect from.
        first: octets to send before everything else.
    """

    def __init__(
        self,
        port: int | str,
        tls: ssl.SSLContext | None = None,
        name: str = "alpha.example",
        source: str = "127.0.0.1",
        first: bytes = b"",
    ) -> None:
        if isinstance(port, str):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(port)
        else:
            self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE, (source, 0))
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(PATIENCE)
        if first:
            self.socket.sendall(first)
        if tls is not None:
            self.wrap(tls, name)
        self._octets = b""
        self.payloads: list[bytes] = []

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wrap(self, tls: ssl.SSLContext, name: str = "alpha.example") -> None:
        """Start TLS."""
        self.socket = tls.wrap_socket(self.socket, server_hostname=name)

    def write(self, *data: bytes) -> Raw:
        """Write octets."""
        self.socket.sendall(b"".join(data))
        return self

    def _take(self, count: int) -> bytes:
        """Read this many octets; fewer if the other side closes before."""
        while len(self._octets) < count:
            try:
                got = self.socket.recv(65536)
            except (ConnectionResetError, ssl.SSLEOFError):
                got = b""
            if not got:
                break
            self._octets += got
        data, self._octets = self._octets[:count], self._octets[count:]
        return data

    def header(self) -> bytes:
        """Read a protocol header."""
        return self._take(8)

    def rest(self) -> bytes:
        """Read octets until the other side closes."""
        return self._take(1 << 62)

    def bodies(self) -> Iterator[Any]:
        """Read performatives until the other side closes; heartbeats are left out.

        Transfers' payloads are kept in `payloads`.
        """
        while True:
            size = self._take(4)
            if not size:
                return
            buffer = FrameBuffer(0x7FFFFFFF)
            buffer.feed(size + self._take(int.from_bytes(size, "big") - 4))
            for _, _, body, payload in buffer.frames():
                if isinstance(body, spec.Transfer):
                    self.payloads.append(bytes(payload))
                if body is not None:
                    yield body

    def expect(self, kind: type[T]) -> T:
        """Read up to the first performative of a kind.

        Raises:
            AssertionError: the other side closed before, or said nothing.
        """
        seen = []
        try:
            for body in self.bodies():
                if isinstance(body, kind):
                    return body
                seen.append(body)
        except TimeoutError:
            raise AssertionError(f"no {kind.__name__} came, but {seen}") from None
        raise AssertionError(f"closed before {kind.__name__}, after {seen}")

    def closed(self) -> bool:
        """Wait until the other side closes."""
        for _ in self.bodies():
            pass
        return True

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


class Refused(Exception):
    """The other side refused or ended a link, session or connection.

    Attributes:
        error: what it said.
    """

    def __init__(self, event: Any) -> None:
        super().__init__(repr(getattr(event, "error", event)))
        self.error: spec.Error | None = getattr(event, "error", None)


class Wire:
    """A blocking client on this project's engine: fast, and with nothing between it and the wire.

    Args:
        port: where to connect.
        container: its container-id.
        tls: TLS from the first octet.
        source: the address to come from.
        first: octets to send before everything else.
        sasl_client: chooses how it logs in; None for no SASL.
        settings: of the engine.
    """

    def __init__(
        self,
        port: int | str,
        *,
        container: str = "wire.example",
        tls: ssl.SSLContext | None = None,
        name: str = "alpha.example",
        source: str = "127.0.0.1",
        first: bytes = b"",
        sasl_client: ClientAuthority | None = None,
        **settings: Any,
    ) -> None:
        raw = Raw(port, tls, name, source=source, first=first)
        self.socket = raw.socket
        self.engine = Connection(
            ConnectionSettings(
                role="client", container_id=container, **{"incoming_window": 20000, **settings}
            ),
            sasl_client=sasl_client,
        )
        self.events: list[Any] = []
        self._unsent = bytearray()
        self.engine.start(time.monotonic())
        self.engine.open()
        self.session = self.engine.begin()
        self.flush()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def flush(self) -> None:
        """Write what the engine has to say.

        Raises:
            TimeoutError: the other side does not read; the next call continues with the rest.
        """
        self._unsent += b"".join(self.engine.data_to_send())
        while self._unsent:
            done = self.socket.send(self._unsent)
            del self._unsent[:done]

    def read(self, seconds: float = PATIENCE) -> list[Any]:
        """Read once; return the events."""
        self.flush()
        self.socket.settimeout(seconds)
        try:
            data = self.socket.recv(262144)
        except ssl.SSLEOFError:
            data = b""
        now = time.monotonic()
        if not data and self.engine.is_closed:
            raise ConnectionError("the connection is gone; its end was told before")
        events = self.engine.receive_data(data, now) if data else self.engine.receive_eof(now)
        self.flush()
        return events

    def attach(self, role: Any, address: str | None, name: str = "", **options: Any) -> Link:
        """Attach a link and wait for the answer.

        Raises:
            Refused: it was refused.
        """
        ends = {
            "sender": (spec.Source(address="wire"), spec.Target(address=address)),
            "receiver": (spec.Source(address=address), spec.Target()),
        }
        source, target = ends[role]
        options = {"source": source, "target": target, **options}
        link = self.session.attach(name or f"{role}-{time.monotonic_ns()}", role, **options)
        self.wait(
            lambda event: (
                type(event) is ev.LinkAttached
                and (event.attach.target if role == "sender" else event.attach.source) is not None
            )
        )
        return link

    def wait(self, wanted: Callable[[Any], bool]) -> Any:
        """Read up to an event; those before it are kept in `events`.

        Raises:
            Refused: something ended.
        """
        while True:
            events = self.read()
            self.events.extend(events)
            for event in events:
                if wanted(event):
                    return event
                if type(event) in (ev.LinkDetached, ev.SessionEnded, ev.ConnectionClosed):
                    raise Refused(event)

    def publish(self, address: str | None, messages: Sequence[bytes], *, batch: int = 200) -> None:
        """Send messages and wait until each is accepted.

        Raises:
            Refused: the link went.
            AssertionError: an outcome is not accepted.
        """
        link = self.attach("sender", address)
        sent = accepted = 0
        while accepted < len(messages):
            room = min(link.sendable, len(messages) - sent, batch)
            for payload in messages[sent : sent + room]:
                link.send((payload,), sent.to_bytes(4, "big"))
                sent += 1
            for event in self.read():
                if type(event) is ev.DeliveriesUpdated:
                    assert type(event.state) is spec.Accepted, event
                    accepted += len(event.deliveries)
                elif type(event) in (ev.LinkDetached, ev.SessionEnded, ev.ConnectionClosed):
                    raise Refused(event)
        link.detach()
        self.flush()

    def consume(
        self, address: str, count: int, *, credit: int = 1000, seconds: float = PATIENCE
    ) -> list[bytes]:
        """Receive and accept messages; return them as they came, whole.

        Raises:
            TimeoutError: nothing came for a while.
            Refused: the link went.
        """
        link = self.attach("receiver", address)
        link.flow(min(credit, count))
        got: list[bytes] = []
        while len(got) < count:
            for event in self.read(seconds):
                if type(event) is ev.DeliveriesReceived:
                    got.extend(delivery.payload for delivery in event.deliveries)
                    self.session.settle(event.deliveries, spec.Accepted(), True)
                elif type(event) in (ev.LinkDetached, ev.SessionEnded, ev.ConnectionClosed):
                    raise Refused(event)
            if link.credit < credit / 2 and link.credit < count - len(got):
                link.flow(min(credit, count - len(got)))
        link.detach()
        self.flush()
        return got

    def close(self) -> None:
        """Close politely, if the other side reads and answers; else close all the same."""
        self.engine.close()
        with contextlib.suppress(OSError):
            self.flush()
            while not any(type(event) is ev.ConnectionClosed for event in self.read(5)):
                pass
        self.socket.close()


def body_of(payload: bytes) -> bytes:
    """Return the data section of a message of `message`."""
    located = sections.locate(payload)
    return bytes(sections.decode_section(payload, located.body_start, located.body_end))


def sasl_frame(body: Any) -> bytes:
    """Encode one SASL frame."""
    return encode_sasl_frame(body)


__all__ = [
    "AMQP", "SASL", "TLS", "Raw", "Refused", "Wire", "body_of", "frame", "message",
    "opening", "sasl_frame", "sending_link", "transfer",
]  # fmt: skip
