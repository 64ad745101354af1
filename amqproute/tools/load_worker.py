# SPDX-License-Identifier: Apache-2.0
"""A load generator: many messages for little CPU, each of them numbered.

The same engine as the daemon's on a plain socket, without a reactor: what is measured is to be
the broker and not its client. One turn writes everything that credit allows in one system call,
and takes whatever has come. A message costs a few microseconds here.

Every message has a number; it is the message-id, and stands with the time of publishing at the
start of the body, so that a consumer can report exactly which are missing, which came twice,
and how long each took. Times are CLOCK_MONOTONIC, which all processes of a machine share.

::

    with Connected(LoadTarget("127.0.0.1", 5672), "load") as connected:
        publisher = Publisher(connected, "orders@beta.example", MessageNumbers(1000, 1024))
        while not publisher.is_done:
            publisher.offer()
            connected.turn(1.0)

As a program (``python -m amqproute.tools.load_worker publish|consume ...``) it does one of the two
and prints its counts as one JSON object; `amqproute.tools.bench` starts it.

Bounds: the engine's; a `Publisher` keeps no more than the link's credit without an outcome.
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import struct
import sys
import time
import uuid
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self, TypeAlias

from amqproute.cli.command_error import NEGATIVE, UNREACHABLE, ClientError, by_condition
from amqproute.cli.message_text import Facts, decode_reply, encode_request
from amqproute.client.login import ClientLogin
from amqproute.url import Url
from amqproute.wire.amqp10 import codec, sections, spec
from amqproute.wire.amqp10.connection import Connection, ConnectionSettings
from amqproute.wire.amqp10.engine_events import (
    AuthenticationRejected,
    ConnectionClosed,
    DeliveriesReceived,
    DeliveriesUpdated,
    LinkAttached,
    LinkDetached,
    SessionEnded,
)
from amqproute.wire.amqp10.link import Delivery, Link
from amqproute.wire.amqp10.types import ULong
from amqproute.wire.engine import Event

__all__ = [
    "Connected",
    "Consumer",
    "LoadManagement",
    "LoadTarget",
    "MessageNumbers",
    "Publisher",
    "percentiles",
]

READ_OCTETS: Final = 256 * 1024
UNSENT_OCTETS: Final = 1024 * 1024
"""Unsent octets above which a publisher offers no further messages."""
CREDIT: Final = 2000
SMALLEST: Final = 16
"""Octets of a body: number and time."""

_NUMBER_AND_TIME = struct.Struct(">QQ")
_NUMBER = struct.Struct(">Q")
# A ulong this large is encoded with eight octets, which are then replaced by each number.
_FIRST_ID = 1 << 40
_ACCEPTED = spec.Accepted()


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """The address of a broker's listener without TLS.

    Attributes:
        host: an address, or the path of a unix socket.
        port: 0 for a unix socket.
    """

    host: str
    port: int = 0

    @property
    def url(self) -> Url:
        """The address as a URL."""
        if self.port:
            return Url("amqp", self.host, self.port)
        return Url("unix", path=self.host)

    def connect(self, seconds: float) -> socket.socket:
        """Return a connected, non-blocking socket.

        Raises:
            ClientError: ``connect.refused``: the connection was refused.
        """
        family, where = (
            (socket.AF_INET, (self.host, self.port)) if self.port else (socket.AF_UNIX, self.host)
        )
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            connection.settimeout(seconds)
            connection.connect(where)
            if self.port:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setblocking(False)
        except OSError as error:
            connection.close()
            raise ClientError(UNREACHABLE, "connect.refused", f"{self}: {error}") from error
        return connection

    def __str__(self) -> str:
        return f"{self.host}:{self.port}" if self.port else f"unix:{self.host}"


DeliveryEvent: TypeAlias = DeliveriesReceived | DeliveriesUpdated


class DeliveryListener(Protocol):
    """The user of a link: gets the events of its deliveries."""

    def event(self, event: DeliveryEvent) -> None:
        """Handle an event."""


class Connected:
    """A connection with one session, moved by `turn`.

    Args:
        place: the broker's address.
        container_id: ours.
        seconds: deadline of each wait.

    Raises:
        ClientError: from the constructor and every turn: there is no connection (any more).
    """

    def __init__(self, place: LoadTarget, container_id: str, *, seconds: float = 15.0) -> None:
        self.place = place
        self.seconds = seconds
        self._socket = place.connect(seconds)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._waits_for_room = False
        self._unsent = memoryview(b"")
        login = ClientLogin(place.url, "", lambda: not place.port)
        self.engine = Connection(
            ConnectionSettings(
                role="client",
                container_id=f"{container_id}-{uuid.uuid4()}",
                hostname=place.host if place.port else None,
            ),
            sasl_client=login,
        )
        self.engine.start(time.monotonic())
        self.engine.open()
        self.session = self.engine.begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Return the socket's descriptor, to wait for several connections at once."""
        return self._socket.fileno()

    @property
    def is_congested(self) -> bool:
        """Whether the peer reads more slowly than we write."""
        return len(self._unsent) > UNSENT_OCTETS

    def turn(self, seconds: float = 0.0) -> list[Event]:
        """Write pending output, wait for input, return its events.

        Args:
            seconds: the seconds to wait at most.

        Raises:
            ClientError: connection, session or a link has ended.
        """
        self._flush()
        events: list[Event] = []
        for _, mask in self._selector.select(seconds):
            if mask & selectors.EVENT_READ:
                events += self._read()
        if not events:
            events += self.engine.tick(time.monotonic())
        for event in events:
            if type(event) is DeliveriesReceived or type(event) is DeliveriesUpdated:
                link = event.link.context
                if link is not None:
                    link.event(event)
            elif isinstance(event, _ENDINGS):
                raise _ending(event)
        self._flush()
        return events

    def attach(
        self,
        role: str,
        address: str | None,
        context: DeliveryListener | None = None,
        *,
        is_dynamic: bool = False,
    ) -> Link:
        """Attach a link and wait for the answer; its events go to `context`.

        Raises:
            ClientError: it is refused, or no answer comes.
        """
        source, target = spec.Source(), spec.Target()
        if role == "sender":
            target.address = address
        else:
            source.address = address
            source.dynamic = is_dynamic
        link = self.session.attach(
            f"{role}-{uuid.uuid4()}",
            "sender" if role == "sender" else "receiver",
            source,
            target,
            snd_settle_mode=spec.SENDER_UNSETTLED if role == "sender" else spec.SENDER_MIXED,
            context=context,
        )
        until = time.monotonic() + self.seconds
        while True:
            events = self.turn(0.2)
            if any(type(each) is LinkAttached and each.link is link for each in events):
                break
            if time.monotonic() > until:
                raise ClientError(
                    UNREACHABLE, "client.timeout", f"{self.place} does not answer an attach"
                )
        # A refused attach has a null terminus, and a detach follows (part 2 §2.6.3).
        terminus = link.remote_attach.target if role == "sender" else link.remote_attach.source  # type: ignore[union-attr]
        while terminus is None:
            self.turn(0.2)
            if time.monotonic() > until:
                raise ClientError(NEGATIVE, "client.refused", f"{self.place} refused {address!r}")
        return link

    def close(self) -> None:
        """Send a close if possible, and drop the connection."""
        try:
            self.engine.close()
            self._flush()
        except ClientError:
            pass  # already gone, as intended
        self._selector.close()
        self._socket.close()

    def drop(self) -> None:
        """Drop the connection without a close."""
        self._selector.close()
        self._socket.close()

    def _read(self) -> Sequence[Event]:
        now = time.monotonic()
        try:
            data = self._socket.recv(READ_OCTETS)
        except BlockingIOError:
            return ()
        except OSError:
            data = b""
        return self.engine.receive_data(data, now) if data else self.engine.receive_eof(now)

    def _flush(self) -> None:
        parts = self.engine.data_to_send()
        if parts:
            self._unsent = memoryview(b"".join((self._unsent, *parts)))
        while self._unsent:
            try:
                sent = self._socket.send(self._unsent)
            except BlockingIOError:
                break
            except OSError as error:
                raise _lost(self.place) from error
            self._unsent = self._unsent[sent:]
        if bool(self._unsent) is not self._waits_for_room:
            self._waits_for_room = bool(self._unsent)
            wanted = selectors.EVENT_READ
            if self._waits_for_room:
                wanted |= selectors.EVENT_WRITE
            self._selector.modify(self._socket, wanted)


_Ending: TypeAlias = LinkDetached | SessionEnded | ConnectionClosed | AuthenticationRejected
_ENDINGS: Final = (LinkDetached, SessionEnded, ConnectionClosed, AuthenticationRejected)


def _lost(place: object) -> ClientError:
    return ClientError(UNREACHABLE, "connect.lost", f"the connection to {place} was lost")


def _ending(event: _Ending) -> ClientError:
    if isinstance(event, LinkDetached):
        return by_condition(event.error, f"the link {event.link.name!r}")
    if isinstance(event, AuthenticationRejected):
        code = "auth.busy" if event.is_temporary else "auth.refused"
        return ClientError(NEGATIVE, code, f"not logged in: {event.reason}")
    if event.error is None:
        return _lost("the broker")
    return by_condition(event.error, "the connection")


# -- messages ----------------------------------------------------------------------------------


class MessageNumbers:
    """Numbered messages: encoded once, with gaps for number and time.

    Args:
        count: the numbers are 0 to count - 1.
        size: octets of each body.
        to: properties.to.
    """

    def __init__(self, count: int, size: int, to: str = "") -> None:
        if size < SMALLEST:
            raise ClientError(
                NEGATIVE, "usage", f"a body has at least {SMALLEST} octets", "use a larger --size"
            )
        self.count = count
        self.size = size
        head = sections.encode_header(spec.Header(durable=True)) + codec.encode(
            spec.Properties(message_id=ULong(_FIRST_ID), to=to or None)
        )
        self._before, self._after_id = head.split(_NUMBER.pack(_FIRST_ID))
        body = sections.encode_section(spec.SECTION_DATA, bytes(size))
        self._after_id += body[: len(body) - size]
        self._padding = (b"amqproute " * (size // 10 + 1))[: size - SMALLEST]

    def encode(self, number: int, monotonic_ns: int) -> bytes:
        """Encode the message of this number, published now."""
        return b"".join(
            (
                self._before,
                _NUMBER.pack(_FIRST_ID + number),
                self._after_id,
                _NUMBER_AND_TIME.pack(number, monotonic_ns),
                self._padding,
            )
        )

    def decode(self, encoded: bytes) -> tuple[int, int]:
        """Return number and time of a message, which are at its end."""
        number, stamp = _NUMBER_AND_TIME.unpack_from(encoded, len(encoded) - self.size)
        return number, stamp


class Publisher:
    """Sends numbered messages and records their outcomes.

    Args:
        connected: the connection.
        address: the target.
        numbering: the messages.
        numbers: the numbers to send; all if None.
        rate: messages a second; 0 for as many as the credit allows.
        window: largest number without an outcome; 0 for as many as the credit allows.

    Attributes:
        pending: numbers not sent yet.
        in_doubt: numbers sent without an outcome yet; after the end of a connection it is unknown
            whether the broker has accepted them.
        accepted: number accepted.
        refused: number by other outcome.
        unlucky: their numbers.
    """

    def __init__(
        self,
        connected: Connected,
        address: str,
        numbering: MessageNumbers,
        numbers: Iterable[int] | None = None,
        rate: float = 0.0,
        window: int = 0,
    ) -> None:
        self.pending = deque(range(numbering.count) if numbers is None else numbers)
        self.in_doubt: set[int] = set()
        self.accepted = 0
        self.refused: dict[str, int] = {}
        self.unlucky: list[int] = []
        self._connected = connected
        self._numbering = numbering
        self._rate = rate
        self._window = window
        self._sent = 0
        self._started: float | None = None
        self.link = connected.attach("sender", address, self)

    @property
    def is_done(self) -> bool:
        """Whether every message was sent and has an outcome."""
        return not self.pending and not self.in_doubt

    def offer(self) -> float:
        """Send as many as credit, the socket and the rate allow.

        Returns:
            Seconds to wait at most, before the rate allows another message.
        """
        if not self.pending or self._connected.is_congested:
            return 1.0
        allowed = min(self.link.sendable, len(self.pending))
        wait = 1.0
        if self._window:
            allowed = min(allowed, self._window - len(self.in_doubt))
        if self._rate:
            now = time.monotonic()
            if self._started is None:
                self._started = now
            due = int((now - self._started) * self._rate) + 1 - self._sent
            if due < allowed:
                allowed = max(0, due)
                wait = 1.0 / self._rate
        if allowed > 0:
            send, encode, pack = self.link.send, self._numbering.encode, _NUMBER.pack
            take, doubt = self.pending.popleft, self.in_doubt.add
            stamp = time.monotonic_ns()
            for _ in range(allowed):
                number = take()
                doubt(number)
                send((encode(number, stamp),), pack(number), context=number)
            self._sent += allowed
        return wait

    def event(self, event: DeliveryEvent) -> None:
        """Record outcomes."""
        assert isinstance(event, DeliveriesUpdated)
        state = event.state
        if not event.settled:
            if state is None or isinstance(state, spec.Received):
                return
            self.link.session.settle(event.deliveries)
        self.in_doubt.difference_update([delivery.context for delivery in event.deliveries])
        if type(state) is spec.Accepted:
            self.accepted += len(event.deliveries)
            return
        # Settled without an outcome: it counts as released.
        name = "released" if state is None else type(state).__name__.lower()
        error = getattr(state, "error", None)
        if error is not None:
            name += f" ({error.condition}: {error.description or ''})"
        self.refused[name] = self.refused.get(name, 0) + len(event.deliveries)
        self.unlucky += [delivery.context for delivery in event.deliveries]


class Consumer:
    """Receives numbered messages, accepts them, counts each number.

    Args:
        connected: the connection.
        node: the queue.
        numbering: the expected messages.

    Attributes:
        seen: how often each number came (at most 255 times).
        received: messages in all.
        strange: messages with unknown numbers.
        latencies: ns from publishing to receiving, in the order of arrival.
    """

    def __init__(self, connected: Connected, node: str, numbering: MessageNumbers) -> None:
        self.seen = bytearray(numbering.count)
        self.received = 0
        self.strange = 0
        self.latencies = array("q")
        self._numbering = numbering
        self.link = connected.attach("receiver", node, self)
        self.link.flow(CREDIT)

    @property
    def missing(self) -> int:
        """Number of messages that have not come."""
        return self.seen.count(0)

    @property
    def duplicated(self) -> int:
        """Number of messages that came again."""
        return self.received - self.strange - (len(self.seen) - self.missing)

    def event(self, event: DeliveryEvent) -> None:
        """Record received messages."""
        now = time.monotonic_ns()
        seen, decode, took = self.seen, self._numbering.decode, self.latencies.append
        deliveries: list[Delivery] = event.deliveries
        for delivery in deliveries:
            number, stamp = decode(delivery.payload)
            if number < len(seen):
                seen[number] = min(seen[number] + 1, 255)
                took(now - stamp)
            else:
                self.strange += 1
        self.received += len(deliveries)
        link = self.link
        link.session.settle(deliveries, _ACCEPTED)
        if link.credit <= CREDIT // 2:
            link.flow(CREDIT)


class LoadManagement:
    """Repeated requests to a broker's ``$management`` over one connection."""

    def __init__(self, connected: Connected) -> None:
        self._connected = connected
        self._reply: bytes | None = None
        self._receiver = connected.attach("receiver", None, self, is_dynamic=True)
        assert self._receiver.remote_attach is not None
        source = self._receiver.remote_attach.source
        assert source is not None
        self._reply_to: str = source.address or ""
        self._receiver.flow(10)
        self._sender = connected.attach("sender", "$management", _Deaf())
        self._serial = 0

    def rows(self, entity_type: str) -> list[Facts]:
        """Return the rows of a type.

        Raises:
            ClientError: the request is refused, or no reply comes.
        """
        self._serial += 1
        self._reply = None
        request = encode_request(
            str(self._serial),
            self._reply_to,
            {"operation": "QUERY", "type": SERVICE_TYPE, "entityType": entity_type},
            {},
        )
        until = time.monotonic() + self._connected.seconds
        while not self._sender.sendable:
            self._wait(until)
        self._sender.send((request,), _NUMBER.pack(self._serial))
        while self._reply is None:
            self._wait(until)
        properties, body = decode_reply(self._reply)
        if properties.get("statusCode") != 200:
            raise ClientError(
                NEGATIVE, "management", f"{entity_type}: {properties.get('statusDescription')}"
            )
        return [dict(zip(body["attributeNames"], row, strict=True)) for row in body["results"]]

    def row(self, entity_type: str, name: str) -> Facts:
        """Return the row with this name; empty if there is none."""
        return next((row for row in self.rows(entity_type) if row["name"] == name), {})

    def event(self, event: DeliveryEvent) -> None:
        """Record a reply."""
        (delivery,) = event.deliveries
        self._reply = delivery.payload
        self._receiver.session.settle(event.deliveries, _ACCEPTED)
        self._receiver.flow(10)

    def _wait(self, until: float) -> None:
        self._connected.turn(0.2)
        if time.monotonic() > until:
            raise ClientError(UNREACHABLE, "client.timeout", "$management does not reply")


SERVICE_TYPE: Final = "org.amqp.management"


class _Deaf:
    """Settles outcomes of requests, whose replies tell more."""

    def event(self, event: DeliveryEvent) -> None:
        assert isinstance(event, DeliveriesUpdated)
        if not event.settled:
            event.link.session.settle(event.deliveries)


def percentiles(latencies: Sequence[int]) -> dict[str, float]:
    """Return p50, p99 and maximum of latencies in ns, as ms; empty for none."""
    if not latencies:
        return {}
    ordered = sorted(latencies)
    last = len(ordered) - 1
    return {
        "p50": ordered[last // 2] / 1e6,
        "p99": ordered[min(last, last * 99 // 100)] / 1e6,
        "max": ordered[last] / 1e6,
    }


# -- as a program ------------------------------------------------------------------------------


def publish(
    place: LoadTarget, address: str, numbering: MessageNumbers, rate: float, patience: float
) -> Facts:
    """Publish all messages of a numbering and return the result.

    Raises:
        ClientError: the connection ended, or there was no progress for `patience` seconds.
    """
    with Connected(place, "load-publish") as connected:
        publisher = Publisher(connected, address, numbering, rate=rate)
        first, cpu = time.monotonic_ns(), time.process_time()
        moved, count = time.monotonic(), 0
        while not publisher.is_done:
            connected.turn(publisher.offer())
            done = len(publisher.pending) + len(publisher.in_doubt)
            if done != count:
                moved, count = time.monotonic(), done
            elif time.monotonic() - moved > patience:
                raise ClientError(
                    NEGATIVE, "client.no-outcome", f"nothing moved for {patience:g} s: {count} left"
                )
        return {
            "accepted": publisher.accepted,
            "refused": publisher.refused,
            "first_ns": first,
            "last_ns": time.monotonic_ns(),
            "cpu_seconds": time.process_time() - cpu,
        }


def consume(place: LoadTarget, node: str, numbering: MessageNumbers, patience: float) -> Facts:
    """Consume until every number has come and no duplicates follow; return the result.

    Raises:
        ClientError: the connection ended.
    """
    with Connected(place, "load-consume") as connected:
        consumer = Consumer(connected, node, numbering)
        cpu, first, count = time.process_time(), time.monotonic_ns(), 0
        last = first
        while True:
            connected.turn(0.2)
            if consumer.received != count:
                count, last = consumer.received, time.monotonic_ns()
            elif (time.monotonic_ns() - last) / 1e9 > (0.3 if not consumer.missing else patience):
                break
        return {
            "received": consumer.received,
            "lost": consumer.missing,
            "duplicated": consumer.duplicated,
            "strange": consumer.strange,
            "first_ns": first,
            "last_ns": last,
            "cpu_seconds": time.process_time() - cpu,
            "latency_ms": percentiles(consumer.latencies),
        }


def main() -> int:
    """Publish or consume by the command line, and print the result."""
    parser = argparse.ArgumentParser(
        prog="python -m amqproute.tools.load_worker", description="Make load."
    )
    parser.add_argument("what", choices=("publish", "consume"))
    parser.add_argument("--host", required=True, help="address, or path of a unix socket")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--address", required=True, help="node or node@domain")
    parser.add_argument("--messages", type=int, required=True)
    parser.add_argument("--size", type=int, default=1024, help="octets of a body")
    parser.add_argument("--rate", type=float, default=0.0, help="a second; 0: as fast as it goes")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds without progress")
    given = parser.parse_args()
    place = LoadTarget(given.host, given.port)
    try:
        numbering = MessageNumbers(given.messages, given.size, given.address)
        if given.what == "publish":
            result = publish(place, given.address, numbering, given.rate, given.patience)
        else:
            result = consume(place, given.address, numbering, given.patience)
    except ClientError as error:
        print(f"{error.code}: {error.words}", file=sys.stderr)
        return error.exit_code
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
