# SPDX-License-Identifier: Apache-2.0
"""AMQP 0-9-1 beside RabbitMQ: confirmed publishing and consuming, in one run.

Run ``python -m benchmarks.amqp09_rabbitmq`` where RabbitMQ is installed (Debian: ``apt-get install
--no-install-recommends rabbitmq-server``; its service need not run). ``--report`` prints the tables
of ``benchmarks/amqp09.md``; ``--url amqp://user:password@host:port`` measures any other broker.

=========  ====================================================================================
phase      from, to
=========  ====================================================================================
publish    persistent messages to a durable queue nobody consumes from: from the first one to the
           last confirm
consume    the same messages to one consumer with a prefetch, acknowledged in runs: to the last one
both       a publisher and a consumer of one queue at the same time: to the last confirm and the
           last message
topic      the same through a topic exchange with 1,000 bindings to ten queues, one consumer on each
relayed    published by 0-9-1 to a queue of another organization, to the last one in that queue
=========  ====================================================================================

The systems take turns, phase by phase and round by round. *amqproute 1.0* is the same daemon with
clients of AMQP 1.0 (`amqproute.tools.load_worker`); only its CPU time can be compared, since that
client costs more. RabbitMQ runs as Debian configures it. Each kind of queue is a system of its own:
classic queues of version 1 and quorum queues sync messages to the disk before they confirm them, as
amqproute does. Classic queues of version 2 do not, and are shown beside.

The load comes from one process, which writes frames encoded beforehand and reads deliveries by
their fixed size; its cost per message is shown. Each message has a number, and a run in which one
is missing or comes twice ends with an error.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import selectors
import socket
import statistics
import struct
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import yaml

from amqproute.tools.daemon_pair import (
    QUEUE,
    DaemonPair,
    DaemonProcess,
    ended_by_signals,
)
from amqproute.tools.load_worker import Connected, LoadTarget, MessageNumbers
from amqproute.tools.load_worker import Consumer as Consumer10
from amqproute.tools.load_worker import Publisher as Publisher10
from benchmarks.campaign import revision
from benchmarks.rabbitmq_shovel import (
    HOME,
    KINDS,
    BenchmarkError,
    Node,
    frame,
    ground,
    method,
    short,
)
from benchmarks.rabbitmq_shovel import version as rabbitmq_version
from tests.network.campaign import machine

WINDOW: Final = 1000
"""Publishes without a confirm."""
PREFETCH: Final = 1000
ACK_EVERY: Final = 100
"""Deliveries that an acknowledgement is for, at least."""
CHUNK: Final = 64
"""Messages written in one go at most."""
READ_OCTETS: Final = 256 * 1024
STUCK_SECONDS: Final = 60.0
TICKS: Final = os.sysconf("SC_CLK_TCK")
BINDINGS: Final = 1000
QUEUES: Final = 10
EXCHANGE: Final = "events"

_ACK = struct.Struct(">BHIHHQBB")
_TAG = struct.Struct(">Q")
_EMPTY: Final = struct.pack(">I", 0)


@dataclass(frozen=True)
class BrokerUrl:
    """Where a broker takes connections of 0-9-1, without TLS.

    Attributes:
        host: its address.
        port: its port.
        user: for PLAIN; empty for ANONYMOUS.
        password: of the user.
    """

    host: str
    port: int
    user: str = ""
    password: str = ""

    @classmethod
    def parse(cls, text: str) -> BrokerUrl:
        """Read ``amqp://user:password@host:port``."""
        found = urllib.parse.urlsplit(text)
        return cls(
            found.hostname or "127.0.0.1",
            found.port or 5672,
            urllib.parse.unquote(found.username or ""),
            urllib.parse.unquote(found.password or ""),
        )


class Channel:
    """One connection with one channel.

    Raises:
        BenchmarkError: the broker says something unexpected, or closes the connection.
    """

    def __init__(self, url: BrokerUrl) -> None:
        self.socket = socket.create_connection((url.host, url.port), timeout=60.0)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.input = b""
        self.socket.sendall(b"AMQP\0\0\x09\x01")
        self._expect((10, 10))
        mechanism, answer = "ANONYMOUS", b""
        if url.user:
            mechanism, answer = "PLAIN", f"\0{url.user}\0{url.password}".encode()
        start_ok = _EMPTY + short(mechanism) + struct.pack(">I", len(answer)) + answer
        self.socket.sendall(method(0, (10, 11), start_ok + short("en_US")))
        tune = self._expect((10, 30))
        self.socket.sendall(method(0, (10, 31), tune[:6] + b"\0\0"))  # no heartbeats
        self.socket.sendall(method(0, (10, 40), short("/") + b"\0\0"))
        self._expect((10, 41))
        self.ask((20, 10), b"\0", (20, 11))

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def declare(self, queue: str, arguments: bytes = _EMPTY) -> None:
        """Declare a durable queue."""
        self.ask((50, 10), b"\0\0" + short(queue) + b"\2" + arguments, (50, 11))

    def delete(self, queue: str) -> None:
        """Delete a queue."""
        self.ask((50, 40), b"\0\0" + short(queue) + b"\0", (50, 41))

    def topic(self, exchange: str) -> None:
        """Declare a durable topic exchange."""
        arguments = b"\0\0" + short(exchange) + short("topic") + b"\2" + _EMPTY
        self.ask((40, 10), arguments, (40, 11))

    def bind(self, queue: str, exchange: str, key: str) -> None:
        """Bind a queue."""
        arguments = b"\0\0" + short(queue) + short(exchange) + short(key) + b"\0" + _EMPTY
        self.ask((50, 20), arguments, (50, 21))

    def delete_exchange(self, exchange: str) -> None:
        """Delete an exchange."""
        self.ask((40, 20), b"\0\0" + short(exchange) + b"\0", (40, 21))

    def ask(self, number: tuple[int, int], arguments: bytes, answer: tuple[int, int]) -> bytes:
        """Call a method and return the arguments of its reply."""
        self.socket.sendall(method(1, number, arguments))
        return self._expect(answer)

    def _expect(self, wanted: tuple[int, int]) -> bytes:
        while True:
            if len(self.input) >= 7:
                size = struct.unpack_from(">BHI", self.input)[2]
                if len(self.input) >= 8 + size:
                    payload = self.input[7 : 7 + size]
                    self.input = self.input[8 + size :]
                    found = struct.unpack_from(">HH", payload)
                    if found != wanted:
                        raise BenchmarkError(f"{found} {payload!r} came instead of {wanted}")
                    return payload[4:]
            self.input += self.receive()

    def receive(self) -> bytes:
        """Read what has come, and wait for it if the socket blocks."""
        data = self.socket.recv(READ_OCTETS)
        if not data:
            raise BenchmarkError(f"the broker has closed the connection {self.input[-200:]!r}")
        return data


class Load:
    """Moves messages on a channel when its socket allows it.

    Attributes:
        channel: whose.
        moved: messages so far: confirmed, or received.
        count: messages in all.
    """

    def __init__(self, channel: Channel, count: int) -> None:
        self.channel = channel
        self.moved = 0
        self.count = count
        channel.socket.setblocking(False)

    @property
    def wants_to_write(self) -> bool:
        """Whether it has something to write."""
        return False

    @property
    def is_done(self) -> bool:
        """Whether everything has moved."""
        return self.moved >= self.count

    def write(self) -> None:
        """Write what the socket takes."""

    def read(self) -> None:
        """Take what has come."""


class Publisher(Load):
    """Publishes numbered persistent messages with confirms.

    Args:
        channel: its own.
        exchange: published to.
        keys: of routing, one after the other.
        count: of messages.
        size: octets of a body.
        first: the first message's number.
    """

    def __init__(
        self, channel: Channel, exchange: str, keys: Sequence[str], count: int, size: int
    ) -> None:
        channel.ask((85, 10), b"\0", (85, 11))
        super().__init__(channel, count)
        self._sent = 0
        self._pending = memoryview(b"")
        self._ahead: set[int] = set()
        padding = (b"confirmed " * (size // 10 + 1))[: size - _TAG.size]
        # Property flag 12 is delivery-mode; 2 is persistent.
        header = frame(2, 1, struct.pack(">HHQHB", 60, 0, size, 1 << 12, 2))
        body = frame(3, 1, bytes(_TAG.size) + padding)
        # Keys of one length, so that a chunk has its numbers at equal distances.
        (length,) = {len(key) for key in keys}
        del length
        heads = [
            method(1, (60, 40), b"\0\0" + short(exchange) + short(key) + b"\0") + header
            for key in keys
        ]
        self._one = len(heads[0]) + len(body)
        self._at = len(heads[0]) + 7
        self._cycle = len(keys)
        repeated = [heads[number % len(keys)] + body for number in range(len(keys) + CHUNK)]
        self._stream = bytearray(b"".join(repeated))

    @property
    def wants_to_write(self) -> bool:
        """See `Load`."""
        is_open = self._sent < self.count and self._sent - self.moved < WINDOW
        return bool(self._pending) or is_open

    def write(self) -> None:
        """See `Load`."""
        while self.wants_to_write:
            if not self._pending:
                room = min(CHUNK, self.count - self._sent, WINDOW - (self._sent - self.moved))
                first = self._sent % self._cycle
                at = first * self._one + self._at
                for number in range(self._sent, self._sent + room):
                    _TAG.pack_into(self._stream, at, number)
                    at += self._one
                start = first * self._one
                self._pending = memoryview(self._stream)[start : start + room * self._one]
                self._sent += room
            try:
                written = self.channel.socket.send(self._pending)
            except BlockingIOError:
                return
            self._pending = self._pending[written:]

    def read(self) -> None:
        """See `Load`: take confirms."""
        data = self.channel.input + self.channel.receive()
        whole = len(data) // _ACK.size * _ACK.size
        self.channel.input = data[whole:]
        floor, ahead = self.moved, self._ahead
        for kind, _, _, class_id, number, tag, multiple, _ in _ACK.iter_unpack(data[:whole]):
            if (kind, class_id, number) != (1, 60, 80):
                raise BenchmarkError(f"the broker says {class_id}.{number} instead of a confirm")
            if multiple and tag > floor:
                floor = tag
            elif not multiple:
                ahead.add(tag)
        if ahead:
            while floor + 1 in ahead:
                floor += 1
            ahead = {tag for tag in ahead if tag > floor}
        self._ahead = ahead
        self.moved = floor


class Consumer(Load):
    """Consumes numbered messages, and acknowledges them in runs.

    Args:
        channel: its own.
        queue: consumed from.
        count: messages to be received, by everybody who shares `seen`.
        size: octets of a body.
        seen: how often each number has come.
    """

    def __init__(
        self, channel: Channel, queue: str, count: int, size: int, seen: bytearray
    ) -> None:
        channel.ask((60, 10), struct.pack(">IHB", 0, PREFETCH, 0), (60, 11))
        consume = b"\0\0" + short(queue) + short("c") + b"\0" + _EMPTY
        channel.ask((60, 20), consume, (60, 21))
        super().__init__(channel, count)
        self._size = size
        self._seen = seen
        self._layout: struct.Struct | None = None
        self._acked = 0
        self._last = 0

    def read(self) -> None:
        """See `Load`: take deliveries."""
        data = self.channel.input + self.channel.receive()
        layout = self._layout
        if layout is None:
            layout = self._layout = self._find_layout(data)
            if layout is None:
                self.channel.input = data
                return
        whole = len(data) // layout.size * layout.size
        self.channel.input = data[whole:]
        seen, last = self._seen, self._last
        for kind, tag, number, end in layout.iter_unpack(memoryview(data)[:whole]):
            last += 1
            if kind != 1 or tag != last or end != 0xCE:
                raise BenchmarkError("a delivery is not as the ones before it")
            seen[number] += 1
        self.moved = self._last = last
        if last - self._acked >= ACK_EVERY or last >= self.count:
            self._acknowledge()

    def _acknowledge(self) -> None:
        self._acked = self._last
        self.channel.socket.sendall(method(1, (60, 80), struct.pack(">QB", self._last, 1)))

    def finish(self) -> None:
        """Acknowledge the rest."""
        if self._acked < self._last:
            self._acknowledge()

    def _find_layout(self, data: bytes) -> struct.Struct | None:
        """Find the places of tag and number in a delivery; None if the first is not complete."""
        try:
            sizes = []
            at = 0
            for _ in range(3):
                sizes.append(struct.unpack_from(">BHI", data, at)[2] + 8)
                at += sizes[-1]
        except struct.error:
            return None
        if sizes[2] != self._size + 8:
            raise BenchmarkError(f"a body of {sizes[2] - 8} octets in its first frame")
        to_tag = 7 + 4 + 2  # frame, method, consumer tag "c"
        rest = at - to_tag - 8 - (self._size + 1)
        return struct.Struct(f">B{to_tag - 1}xQ{rest}xQ{self._size - 8}xB")


def drive(loads: Sequence[Load], done: Callable[[], bool]) -> float:
    """Let loads move until all is done; return the seconds.

    Raises:
        BenchmarkError: nothing moves.
    """
    with selectors.DefaultSelector() as selector:
        for load in loads:
            selector.register(load.channel.socket, selectors.EVENT_READ, load)
        writing = dict.fromkeys(loads, False)
        began = moved = time.monotonic()
        while not done():
            for load in loads:
                load.write()
                if load.wants_to_write is not writing[load]:
                    writing[load] = load.wants_to_write
                    mask = selectors.EVENT_READ | (selectors.EVENT_WRITE * writing[load])
                    selector.modify(load.channel.socket, mask, load)
            ready = selector.select(1.0)
            for key, mask in ready:
                if mask & selectors.EVENT_READ:
                    key.data.read()
            if ready:
                moved = time.monotonic()
            elif time.monotonic() - moved > STUCK_SECONDS:
                raise BenchmarkError(f"nothing moves: {[each.moved for each in loads]}")
        return time.monotonic() - began


# -- systems -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figures:
    """What a phase has cost.

    Attributes:
        rate: messages a second.
        server: microseconds of CPU of the server for each message.
        client: of this process.
    """

    rate: float
    server: float
    client: float


@dataclass(frozen=True)
class Server:
    """A system to be measured.

    Attributes:
        url: of the broker.
        arguments: of the queue's declaration.
        cpu: CPU seconds of the broker so far.
    """

    url: BrokerUrl
    arguments: bytes
    cpu: Callable[[], float]


@contextlib.contextmanager
def measured(server: Server, messages: int, found: list[Figures]) -> Iterator[list[float]]:
    """Measure CPU; the block appends the seconds that it took."""
    seconds: list[float] = []
    client, before = time.process_time(), server.cpu()
    yield seconds
    each = 1e6 / messages
    spent = (server.cpu() - before) * each
    found.append(Figures(messages / seconds[0], spent, (time.process_time() - client) * each))


def check(seen: bytearray) -> None:
    """Have each number seen once.

    Raises:
        BenchmarkError: one is missing, or came twice.
    """
    if seen.count(1) != len(seen):
        raise BenchmarkError(f"{seen.count(0)} of {len(seen)} missing, others twice")


def publish_and_consume(server: Server, messages: int, size: int) -> Iterator[tuple[str, Figures]]:
    """Measure ``publish`` and ``consume``."""
    found: list[Figures] = []
    seen = bytearray(messages)
    with Channel(server.url) as setting, Channel(server.url) as one, Channel(server.url) as two:
        setting.declare("filled", server.arguments)
        publisher = Publisher(one, "", ["filled"], messages, size)
        with measured(server, messages, found) as seconds:
            seconds.append(drive([publisher], lambda: publisher.is_done))
        yield "publish", found[0]
        with measured(server, messages, found) as seconds:
            consumer = Consumer(two, "filled", messages, size, seen)
            seconds.append(drive([consumer], lambda: consumer.is_done))
        check(seen)
        yield "consume", found[1]
        setting.delete("filled")


def both(server: Server, messages: int, size: int) -> Iterator[tuple[str, Figures]]:
    """Measure ``both``."""
    found: list[Figures] = []
    seen = bytearray(messages)
    with Channel(server.url) as setting, Channel(server.url) as one, Channel(server.url) as two:
        setting.declare("passed", server.arguments)
        consumer = Consumer(two, "passed", messages, size, seen)
        publisher = Publisher(one, "", ["passed"], messages, size)
        with measured(server, messages, found) as seconds:
            loads = [publisher, consumer]
            seconds.append(drive(loads, lambda: publisher.is_done and consumer.is_done))
        check(seen)
        yield "both", found[0]
        setting.delete("passed")


def topic(server: Server, messages: int, size: int) -> Iterator[tuple[str, Figures]]:
    """Measure ``topic``."""
    found: list[Figures] = []
    seen = bytearray(messages)
    queues = [f"topic-{number}" for number in range(QUEUES)]
    with contextlib.ExitStack() as stack:
        setting = stack.enter_context(Channel(server.url))
        setting.topic(EXCHANGE)
        for queue in queues:
            setting.declare(queue, server.arguments)
        keys = []
        for number in range(BINDINGS):
            setting.bind(queues[number % QUEUES], EXCHANGE, f"*.k{number:04}.#")
            keys.append(f"site{number % 7}.k{number:04}.status.new")
        consumers = [
            Consumer(stack.enter_context(Channel(server.url)), queue, messages, size, seen)
            for queue in queues
        ]
        channel = stack.enter_context(Channel(server.url))
        publisher = Publisher(channel, EXCHANGE, keys, messages, size)

        def is_done() -> bool:
            return publisher.is_done and sum(each.moved for each in consumers) >= messages

        with measured(server, messages, found) as seconds:
            seconds.append(drive([publisher, *consumers], is_done))
        for consumer in consumers:
            consumer.finish()
        check(seen)
        yield "topic", found[0]
        for queue in queues:
            setting.delete(queue)
        setting.delete_exchange(EXCHANGE)


# -- the same with AMQP 1.0 ---------------------------------------------------------------------


def turns(connections: Sequence[Connected], publisher: Publisher10 | None, done: Callable[[], bool],
          moved: Callable[[], object]) -> float:  # fmt: skip
    """Let clients of 1.0 move until all is done; return the seconds."""
    began = last = time.monotonic()
    state = None
    while not done():
        if publisher is not None:
            publisher.offer()
        for each in connections:
            each.turn(0.0 if len(connections) > 1 else 0.2)
        if (now := moved()) != state:
            state, last = now, time.monotonic()
        elif time.monotonic() - last > STUCK_SECONDS:
            raise BenchmarkError(f"nothing moves: {state}")
        elif len(connections) > 1:
            time.sleep(0.0002)
    return time.monotonic() - began


def amqp10(server: Server, messages: int, size: int) -> Iterator[tuple[str, Figures]]:
    """Measure ``publish``, ``consume`` and ``both`` with AMQP 1.0 on declared queues."""
    place = LoadTarget(server.url.host, server.url.port)
    found: list[Figures] = []
    with Channel(server.url) as setting:
        for queue in ("filled", "passed"):
            setting.declare(queue)
        numbering = MessageNumbers(messages, size)
        with Connected(place, "bench") as one:
            publisher = Publisher10(one, "filled", numbering, window=WINDOW)
            with measured(server, messages, found) as seconds:
                seconds.append(
                    turns([one], publisher, lambda: publisher.is_done, lambda: publisher.accepted)
                )
        yield "publish", found[0]
        with Connected(place, "bench") as two:
            with measured(server, messages, found) as seconds:
                consumer = Consumer10(two, "filled", numbering)
                seconds.append(
                    turns([two], None, lambda: not consumer.missing, lambda: consumer.received)
                )
            check(consumer.seen)
        yield "consume", found[1]
        with Connected(place, "bench") as one, Connected(place, "bench") as two:
            sending = Publisher10(one, "passed", numbering, window=WINDOW)
            taking = Consumer10(two, "passed", numbering)

            def is_done() -> bool:
                return sending.is_done and taking.received >= messages

            with measured(server, messages, found) as seconds:
                seconds.append(turns([one, two], sending, is_done, lambda: taking.received))
            check(taking.seen)
        yield "both", found[2]
        for queue in ("filled", "passed"):
            setting.delete(queue)


Phase = Callable[[Server, int, int], Iterator[tuple[str, Figures]]]
PHASES: Final[Mapping[str, Phase]] = {
    "publish": publish_and_consume,
    "both": both,
    "topic": topic,
}
OURS: Final = "amqproute"
OURS_10: Final = "amqproute 1.0"


@contextlib.contextmanager
def rabbitmq() -> Iterator[Node]:
    """Run a node."""
    with ground("rabbitmq-", ["rabbit.example"], 4) as (directory, ports):
        node = Node("rabbit", directory, ports[3], ports[:3], plugins=())
        try:
            node.wait_ready()
            yield node
        finally:
            node.stop()


def allow_everything(daemon: DaemonProcess) -> None:
    """Let anonymous clients, which only come from this machine, declare what they like."""
    settings = yaml.safe_load(daemon.config_path.read_text())
    for rule in settings["access"]:
        if rule["who"] == "anonymous":
            rule["allow"] = ["publish", "consume", "create", "browse", "manage"]
    daemon.config_path.write_text(yaml.safe_dump(settings, sort_keys=False))


def url_of(daemon: DaemonProcess) -> BrokerUrl:
    """Return the URL of a daemon's port without TLS."""
    return BrokerUrl("127.0.0.1", daemon.tcp_port)


def relayed(pair: DaemonPair, messages: int, size: int) -> Iterator[tuple[str, Figures]]:
    """Measure ``relayed`` with publishers of 0-9-1 and of 1.0."""
    address = f"{QUEUE}@{pair.beta.domain}"

    def by_09(url: BrokerUrl) -> float:
        with Channel(url) as channel:
            publisher = Publisher(channel, "", [address], messages, size)
            return drive([publisher], lambda: publisher.is_done)

    def by_10(url: BrokerUrl) -> float:
        with Connected(LoadTarget(url.host, url.port), "bench") as load:
            numbering = MessageNumbers(messages, size, address)
            sending = Publisher10(load, address, numbering, window=WINDOW)
            return turns([load], sending, lambda: sending.is_done, lambda: sending.accepted)

    def cpu() -> float:
        return sum(daemon.cpu_seconds for daemon in pair.daemons)

    def taken() -> None:
        seen = bytearray(messages)
        consumer = Consumer(channel, QUEUE, messages, size, seen)
        drive([consumer], lambda: consumer.is_done)
        check(seen)

    server = Server(url_of(pair.alpha), b"", cpu)
    for name, publish in ((OURS, by_09), (OURS_10, by_10)):
        figures: list[Figures] = []
        with Channel(url_of(pair.beta)) as channel:
            with measured(server, messages, figures) as seconds:
                seconds.append(publish(server.url) + emptied(channel, messages))
            taken()
        yield name, figures[0]


def emptied(channel: Channel, messages: int) -> float:
    """Wait until this many messages are in the queue; return the seconds."""
    began = time.monotonic()
    while True:
        answer = channel.ask((50, 10), b"\0\0" + short(QUEUE) + b"\3" + _EMPTY, (50, 11))
        depth = struct.unpack_from(">I", answer, 1 + answer[0])[0]
        if depth >= messages:
            return time.monotonic() - began
        if time.monotonic() - began > STUCK_SECONDS:
            raise BenchmarkError(f"{depth} of {messages} messages have come")
        time.sleep(0.01)


Found = dict[str, dict[str, list[Figures]]]
"""By phase and system, the figures of each round."""


def measure_once(
    given: argparse.Namespace,
    phase: str,
    systems: Mapping[str, Server],
    pair: DaemonPair | None,
) -> Iterator[tuple[str, str, Figures]]:
    """Measure one phase with all systems in turn; name of the phase, system, figures."""
    if phase == "relayed":
        if pair is not None:
            for system, figures in relayed(pair, given.messages, given.size):
                yield phase, system, figures
    elif phase == "1.0":
        if pair is not None:
            for name, figures in amqp10(systems[OURS], given.messages, given.size):
                yield name, OURS_10, figures
    else:
        for system, server in systems.items():
            for name, figures in PHASES[phase](server, given.messages, given.size):
                yield name, system, figures


def run(given: argparse.Namespace) -> Found:
    """Measure all systems in turn."""
    found: Found = {}
    pair: DaemonPair | None = None

    def note(phase: str, system: str, figures: Figures) -> None:
        found.setdefault(phase, {}).setdefault(system, []).append(figures)
        words = f"{phase:8} {system:14} {figures.rate:9.0f}/s {figures.server:7.1f} us"
        print(f"{words} client {figures.client:5.1f} us", file=sys.stderr, flush=True)

    with contextlib.ExitStack() as stack:
        systems: dict[str, Server] = {}
        if given.url:
            url = BrokerUrl.parse(given.url)
            systems[given.url] = Server(url, _EMPTY, lambda: 0.0)
        else:
            if given.queue != ["none"]:
                node = stack.enter_context(rabbitmq())
                url = BrokerUrl("127.0.0.1", node.port, "guest", "guest")
                for kind in given.queue or KINDS:
                    systems[kind] = Server(url, KINDS[kind], lambda: node.cpu_seconds)
            settings = {"journal": {"enabled": given.journal}}
            pair = stack.enter_context(DaemonPair(settings=settings))
            for daemon in pair.daemons:
                allow_everything(daemon)
            pair.start(*(() if "relayed" in given.phase else (pair.alpha,)))
            systems[OURS] = Server(url_of(pair.alpha), _EMPTY, lambda: pair.alpha.cpu_seconds)
        for _ in range(given.rounds):
            for phase in given.phase:
                for each in measure_once(given, phase, systems, pair):
                    note(*each)
    return found


def table(found: Found) -> Iterator[str]:
    """Write the medians as a table of Markdown, with ratios: above 1 amqproute is better."""
    yield "| phase | system | messages/s | amqproute's rate to it | CPU of the server, µs a message"
    yield " | amqproute's CPU to it | CPU of the client, µs | rates of the rounds |\n"
    yield "|---|---|---:|---:|---:|---:|---:|---|\n"
    for phase, systems in found.items():
        middle = {
            name: Figures(
                statistics.median(each.rate for each in rounds),
                statistics.median(each.server for each in rounds),
                statistics.median(each.client for each in rounds),
            )
            for name, rounds in systems.items()
        }
        ours = middle.get(OURS)
        for name, each in middle.items():
            is_other = ours is not None and name != OURS
            faster = f"{ours.rate / each.rate:.2f}" if ours and is_other else ""
            cheaper = (
                f"{ours.server / each.server:.2f}" if ours and is_other and each.server else ""
            )
            rates = ", ".join(f"{one.rate:,.0f}" for one in systems[name])
            yield (
                f"| {phase} | {name} | {each.rate:,.0f} | {faster} | {each.server:.1f} | {cheaper}"
                f" | {each.client:.1f} | {rates} |\n"
            )


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--messages", type=int, default=40_000)
    parser.add_argument("--size", type=int, default=1024, help="octets of a body")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--phase", choices=(*PHASES, "1.0", "relayed"), action="append")
    parser.add_argument(
        "--queue", choices=(*KINDS, "none"), action="append", help="kinds; default: each"
    )
    parser.add_argument("--no-journal", dest="journal", action="store_false")
    parser.add_argument("--url", help="measure this broker instead, without TLS")
    parser.add_argument("--report", action="store_true", help="say where and when, too")
    given = parser.parse_args()
    given.phase = given.phase or [*PHASES, "1.0", "relayed"]
    needs_rabbit = not given.url and given.queue != ["none"]
    if needs_rabbit and not (HOME / "rabbitmq-server").exists():
        print(f"RabbitMQ is not installed ({HOME}); see the top of this file", file=sys.stderr)
        return 2
    measured_revision = revision() if given.report else ""
    where = machine()
    try:
        with ended_by_signals():
            found = run(given)
    except BenchmarkError as error:
        print(error, file=sys.stderr)
        return 1
    if given.report:
        now = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC"
        print(
            f"Revision {measured_revision}, RabbitMQ {rabbitmq_version()}, {now}, {where}; "
            f"{given.messages:,} messages of {given.size:,} octets, {given.rounds} rounds.\n"
        )
    print("".join(table(found)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
