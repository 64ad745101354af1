# SPDX-License-Identifier: Apache-2.0
"""The yardstick: RabbitMQ with a shovel between two brokers, next to ``amqproute bench relay``.

Run ``python -m benchmarks.rabbitmq_shovel --report`` where RabbitMQ is installed (Debian: ``apt-get
install --no-install-recommends rabbitmq-server strace``; its service need not run) for the tables
of ``benchmarks/README.md``: bodies of three sizes, three rounds, with the revision, the promises of
each system and how far the rounds differ. Options measure a part. The systems are measured in one
invocation, one after the other in each round, in the same three situations:

backlog Durable messages wait in the first broker; then the link starts. From the first look that
shows some of them in the second broker's queue to the last one. live Messages are published while
the link runs. From the first one to the last one in the second broker's queue. latency One message
after the other, at a thousand a second for five seconds: from its publishing at the first broker to
its arrival at a consumer of the second one.

What is set up for RabbitMQ: two nodes of their own (names, ports, directories, epmd), each as
the package configures it; durable queues, persistent messages; a dynamic shovel at the first node,
as its documentation recommends: source by a direct connection inside the node, destination over TLS
with certificates verified on both sides, ack-mode on-confirm, prefetch 1000.

Both queues are of one kind, and each kind is a system of its own. Classic queues of version 1 and
quorum queues sync a message to the disk before they confirm it, as a queue node here does before it
accepts one. Classic queues of version 2 confirm without that: they are shown beside, and promise
less. `--syncs` counts the calls with strace. In all phases, latency too, publishers of both sides
ask for a confirm or an outcome of each message. One difference remains: a shovel that is
interrupted sends messages twice, a relay does not.

The load is published by a small AMQP 0-9-1 client below, whose frames are encoded once. CPU time
is that of all processes of a node.

Everything lies in a temporary directory, and nothing is left running. Ratios above 1 mean that
amqproute is faster, or needs less CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import re
import select
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from amqproute.net.authority import issue, make_authority
from amqproute.tools.daemon_pair import child_environment, dies_with, ended_by_signals, free_ports
from benchmarks.campaign import revision
from tests.network.campaign import machine

HOME: Final = Path("/usr/lib/rabbitmq/bin")
QUEUE: Final = "orders"
PREFETCH: Final = 1000
READY_SECONDS: Final = 240.0
STUCK_SECONDS: Final = 60.0
UNCONFIRMED: Final = 2000
BATCH: Final = 200
BENCH: Final = (sys.executable, "-m", "amqproute", "bench", "relay", "--json")
RATE: Final = 1000
LATENCY_MESSAGES: Final = 5000
"""Of the latency phase: five seconds."""
TICKS: Final = os.sysconf("SC_CLK_TCK")


class BenchmarkError(Exception):
    """The yardstick cannot be set up or does not move; says why."""


# -- a client of AMQP 0-9-1, as small as can be ------------------------------------------------

METHOD, HEADER, BODY = 1, 2, 3
START, START_OK, TUNE, TUNE_OK = (10, 10), (10, 11), (10, 30), (10, 31)
OPEN, OPEN_OK = (10, 40), (10, 41)
CHANNEL_OPEN, CHANNEL_OPEN_OK = (20, 10), (20, 11)
DECLARE, DECLARE_OK = (50, 10), (50, 11)
PURGE, PURGE_OK = (50, 30), (50, 31)
CONFIRM_SELECT, CONFIRM_SELECT_OK = (85, 10), (85, 11)
PUBLISH, ACK, NACK = (60, 40), (60, 80), (60, 120)
CONSUME, CONSUME_OK, DELIVER = (60, 20), (60, 21), (60, 60)


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """Encode one frame."""
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def method(channel: int, number: tuple[int, int], arguments: bytes = b"") -> bytes:
    """Encode one method frame."""
    return frame(METHOD, channel, struct.pack(">HH", *number) + arguments)


def short(text: str) -> bytes:
    """Encode a short string."""
    return bytes((len(text),)) + text.encode()


def arguments(version: int = 0, kind: str = "") -> bytes:
    """Encode arguments of a declaration: the version of a classic queue, or another type."""
    found = b""
    if version:
        found += short("x-queue-version") + b"I" + struct.pack(">i", version)
    if kind:
        found += short("x-queue-type") + b"S" + struct.pack(">I", len(kind)) + kind.encode()
    return struct.pack(">I", len(found)) + found


KINDS: Final[Mapping[str, bytes]] = {
    "classic-1": arguments(version=1),
    "quorum": arguments(kind="quorum"),
    "classic-2": arguments(version=2),
}
"""Arguments of a declaration by the kind of queue."""


def persistent(queue: str, body: bytes) -> bytes:
    """Encode the publishing of one persistent message to a queue."""
    # Property flag 12 is delivery-mode; 2 is persistent.
    header = struct.pack(">HHQHB", 60, 0, len(body), 1 << 12, 2)
    return (
        method(1, PUBLISH, b"\0\0" + short("") + short(queue) + b"\0")
        + frame(HEADER, 1, header)
        + frame(BODY, 1, body)
    )


class Client:
    """One connection with one channel, as guest.

    Raises:
        OSError: there is no connection, or none any more.
        BenchmarkError: the broker says something unexpected.
    """

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30.0)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._input = b""
        self._socket.sendall(b"AMQP\0\0\x09\x01")
        self._expect(START)
        login = b"\0guest\0guest"
        answer = struct.pack(">I", 0) + short("PLAIN") + struct.pack(">I", len(login)) + login
        self._socket.sendall(method(0, START_OK, answer + short("en_US")))
        tune = self._expect(TUNE)
        self._socket.sendall(
            method(0, TUNE_OK, tune[:6] + b"\0\0") + method(0, OPEN, short("/") + b"\0\0")
        )
        self._expect(OPEN_OK)
        self._ask(CHANNEL_OPEN, b"\0", CHANNEL_OPEN_OK)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def declare(self, queue: str, kind: str) -> None:
        """Declare a durable queue of a kind."""
        self._ask(DECLARE, b"\0\0" + short(queue) + b"\2" + KINDS[kind], DECLARE_OK)

    def depth(self, queue: str) -> int:
        """Return how many messages are ready in a queue."""
        answer = self._ask(DECLARE, b"\0\0" + short(queue) + b"\3\0\0\0\0", DECLARE_OK)
        count: int = struct.unpack_from(">I", answer, 1 + answer[0])[0]
        return count

    def purge(self, queue: str) -> None:
        """Remove all messages that are ready."""
        self._ask(PURGE, b"\0\0" + short(queue) + b"\0", PURGE_OK)

    def publish(self, queue: str, body: bytes, count: int) -> None:
        """Publish this many persistent messages, and wait until each is confirmed."""
        self._ask(CONFIRM_SELECT, b"\0", CONFIRM_SELECT_OK)
        one = persistent(queue, body)
        sent = confirmed = 0
        while confirmed < count:
            while sent < count and sent - confirmed < UNCONFIRMED:
                batch = min(BATCH, count - sent)
                self._socket.sendall(one * batch)
                sent += batch
            confirmed = self._confirmed(confirmed)

    def publish_at(self, queue: str, size: int, count: int, rate: float) -> None:
        """Publish this many messages a second, each with the time of its publishing in the body.

        Confirms are read as they come, and each message has one in the end.
        """
        self._ask(CONFIRM_SELECT, b"\0", CONFIRM_SELECT_OK)
        begin, confirmed = time.monotonic(), 0
        for number in range(count):
            while (wait := begin + number / rate - time.monotonic()) > 0:
                if self._is_readable(wait):
                    confirmed = self._confirmed(confirmed)
            body = struct.pack(">Q", time.monotonic_ns()).ljust(size, b"\0")
            self._socket.sendall(persistent(queue, body))
        while confirmed < count:
            confirmed = self._confirmed(confirmed)

    def _confirmed(self, before: int) -> int:
        """Read one method, and return how many messages are confirmed with it."""
        number, rest = self._next_method()
        if number == NACK:
            raise BenchmarkError("RabbitMQ refuses a message")
        if number != ACK:
            return before
        tag, multiple = struct.unpack(">QB", rest)
        # Single acknowledgments may come out of order: then only their number counts.
        return max(before, tag) if multiple else before + 1

    def _is_readable(self, seconds: float) -> bool:
        return bool(self._input) or bool(select.select([self._socket], [], [], seconds)[0])

    def consume_timed(self, queue: str, count: int) -> list[float]:
        """Consume and acknowledge this many messages; return the seconds each was under way."""
        self._ask(CONSUME, b"\0\0" + short(queue) + short("") + b"\0\0\0\0\0", CONSUME_OK)
        seconds: list[float] = []
        while len(seconds) < count:
            kind, payload = self._next_frame()
            if kind == BODY:
                sent: int = struct.unpack_from(">Q", payload)[0]
                seconds.append((time.monotonic_ns() - sent) / 1e9)
                self._socket.sendall(method(1, ACK, struct.pack(">QB", len(seconds), 0)))
        return seconds

    def _ask(self, number: tuple[int, int], arguments: bytes, answer: tuple[int, int]) -> bytes:
        self._socket.sendall(method(1, number, arguments))
        return self._expect(answer)

    def _expect(self, wanted: tuple[int, int]) -> bytes:
        number, arguments = self._next_method()
        if number != wanted:
            raise BenchmarkError(f"RabbitMQ says {number} instead of {wanted}: {arguments!r}")
        return arguments

    def _next_method(self) -> tuple[tuple[int, int], bytes]:
        while True:
            kind, payload = self._next_frame()
            if kind == METHOD:
                return struct.unpack_from(">HH", payload), payload[4:]

    def _next_frame(self) -> tuple[int, bytes]:
        while True:
            if len(self._input) >= 7:
                kind, _, size = struct.unpack_from(">BHI", self._input)
                if len(self._input) >= 8 + size:
                    payload = self._input[7 : 7 + size]
                    self._input = self._input[8 + size :]
                    return kind, payload
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionResetError("RabbitMQ has closed the connection")
            self._input += data


# -- two nodes ---------------------------------------------------------------------------------


class Node:
    """One RabbitMQ node.

    Args:
        name: short; its certificate is that of ``NAME.example`` in ``tls`` of the directory.
        directory: where everything goes.
        epmd_port: of an epmd that runs.
        ports: for clients without TLS, with TLS, and for the node itself.
        plugins: to enable.
        settings: more lines of rabbitmq.conf.

    Attributes:
        port: for clients, without TLS.
        tls_port: for the shovel, certificates demanded.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        epmd_port: int,
        ports: Sequence[int],
        *,
        plugins: Sequence[str] = ("rabbitmq_shovel",),
        settings: Sequence[str] = (),
    ) -> None:
        self.name = f"{name}@localhost"
        self.port, self.tls_port, dist_port = ports
        self._home = home = directory / name
        home.mkdir()
        tls = directory / "tls"
        config = home / "rabbitmq.conf"
        config.write_text(
            "\n".join(
                (
                    f"listeners.tcp.1 = 127.0.0.1:{self.port}",
                    f"listeners.ssl.1 = 127.0.0.1:{self.tls_port}",
                    f"ssl_options.cacertfile = {tls / 'ca.pem'}",
                    f"ssl_options.certfile = {tls / f'{name}.example' / 'chain.pem'}",
                    f"ssl_options.keyfile = {tls / f'{name}.example' / 'key.pem'}",
                    "ssl_options.verify = verify_peer",
                    "ssl_options.fail_if_no_peer_cert = true",
                    *settings,
                    "",
                )
            )
        )
        (home / "enabled_plugins").write_text(f"[{','.join(plugins)}].\n")
        (home / "env.conf").touch()
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),  # where the cookie goes
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self.name,
            "RABBITMQ_DIST_PORT": str(dist_port),
            "RABBITMQ_CONF_ENV_FILE": str(home / "env.conf"),
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(home / "data"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_PID_FILE": str(home / "pid"),
        }
        self._process = self._start([str(HOME / "rabbitmq-server")])

    def _start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        with (self._home / "output").open("ab") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self.environment,
                cwd=self._home,
                start_new_session=True,
                preexec_fn=dies_with(os.getpid()),
            )

    def wait_ready(self, kind: str = "classic-1") -> None:
        """Wait until clients can connect, and declare the queue, of this kind."""
        until = time.monotonic() + READY_SECONDS
        while True:
            with contextlib.suppress(OSError), Client(self.port) as client:
                client.declare(QUEUE, kind)
                return
            if self._process.poll() is not None or time.monotonic() > until:
                lines = (self._home / "output").read_text(errors="replace").splitlines()[-20:]
                raise BenchmarkError(f"{self.name} does not start:\n" + "\n".join(lines))
            time.sleep(0.2)

    def set_shovel(self, other: Node, tls: Path) -> None:
        """Start a shovel from here to the other node, and wait until the command has ended."""
        options = {
            "cacertfile": tls / "ca.pem",
            "certfile": tls / "alpha.example" / "chain.pem",
            "keyfile": tls / "alpha.example" / "key.pem",
            "verify": "verify_peer",
            "server_name_indication": "beta.example",
        }
        query = "&".join(f"{name}={value}" for name, value in options.items())
        definition = {
            "src-protocol": "amqp091",
            "src-uri": "amqp://",
            "src-queue": QUEUE,
            "src-prefetch-count": PREFETCH,
            "dest-protocol": "amqp091",
            "dest-uri": f"amqps://guest:guest@127.0.0.1:{other.tls_port}?{query}",
            "dest-queue": QUEUE,
            "ack-mode": "on-confirm",
            "reconnect-delay": 1,
        }
        command = [str(HOME / "rabbitmqctl"), "-n", self.name, "set_parameter", "shovel", "link"]
        done = subprocess.run(
            [*command, json.dumps(definition)],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        if done.returncode:
            raise BenchmarkError(f"no shovel: {done.stdout}{done.stderr}")

    @property
    def cpu_seconds(self) -> float:
        """CPU time of the node's processes: all of its session."""
        ticks = 0
        for pid in self.pids:
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
        return ticks / TICKS

    @property
    def pids(self) -> list[int]:
        """The node's processes: all of its session."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, ProcessLookupError):
                if os.getsid(int(path.name)) == self._process.pid:
                    found.append(int(path.name))
        return found

    def stop(self) -> None:
        """Kill the node: what it holds goes with the directory."""
        members = self.pids
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        self._process.wait(30)


@contextlib.contextmanager
def ground(prefix: str, domains: Sequence[str], ports: int) -> Iterator[tuple[Path, list[int]]]:
    """Give nodes a directory with certificates and free ports; an epmd listens at the last one."""
    with contextlib.ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix=prefix))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        make_authority(directory / "tls")
        issue(directory / "tls", list(domains))
        found = free_ports(ports)
        epmd = subprocess.Popen(
            ["epmd", "-port", str(found[-1]), "-address", "127.0.0.1"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=dies_with(os.getpid()),
        )
        stack.callback(epmd.wait, 10)
        stack.callback(epmd.kill)
        yield directory, found


@contextlib.contextmanager
def two_nodes(kind: str) -> Iterator[tuple[Node, Node, Path]]:
    """Run two nodes with a queue of this kind each, and with an epmd of their own."""
    with contextlib.ExitStack() as stack:
        directory, ports = stack.enter_context(
            ground("shovel-", ["alpha.example", "beta.example"], 7)
        )
        nodes = []
        for name, chosen in (("alpha", ports[0:3]), ("beta", ports[3:6])):
            node = Node(name, directory, ports[6], chosen)
            stack.callback(node.stop)
            node.wait_ready(
                kind
            )  # one after the other: they share the cookie that the first one makes
            nodes.append(node)
        yield nodes[0], nodes[1], directory / "tls"


# -- measuring ---------------------------------------------------------------------------------

Figures = Mapping[str, float]


def wait_for_depth(client: Client, depth: int) -> int:
    """Wait until the queue is this deep, and return how deep it is."""
    moved, before = time.monotonic(), -1
    while True:
        found = client.depth(QUEUE)
        if found >= depth:
            return found
        if found != before:
            moved, before = time.monotonic(), found
        elif time.monotonic() - moved > STUCK_SECONDS:
            raise BenchmarkError(f"{found} messages have come, {depth} were expected")
        time.sleep(0.01)


def figures(messages: int, seconds: float, before: Figures, nodes: Sequence[Node]) -> Figures:
    """Make rate and CPU seconds for 100,000 messages of a measurement."""
    found = {"rate": messages / seconds}
    for node in nodes:
        side = node.name.partition("@")[0]
        found[side] = (node.cpu_seconds - before[side]) * 100_000 / messages
    return found


def cpu(nodes: Sequence[Node]) -> Figures:
    """Return the CPU time of each side."""
    return {node.name.partition("@")[0]: node.cpu_seconds for node in nodes}


def shovel_backlog(kind: str, messages: int, size: int) -> Figures:
    """Measure RabbitMQ with a backlog."""
    with two_nodes(kind) as (alpha, beta, tls):
        with Client(alpha.port) as client:
            client.publish(QUEUE, bytes(size), messages)
        with Client(beta.port) as client:
            alpha.set_shovel(beta, tls)
            first = wait_for_depth(client, 1)
            if first > messages / 2:
                raise BenchmarkError("it was half over when the command came back: more messages")
            before, began = cpu((alpha, beta)), time.monotonic()
            wait_for_depth(client, messages)
            seconds = time.monotonic() - began
            return figures(messages - first, seconds, before, (alpha, beta))


def shovel_live(kind: str, messages: int, size: int) -> Figures:
    """Measure RabbitMQ while messages are published."""
    with two_nodes(kind) as (alpha, beta, tls):
        alpha.set_shovel(beta, tls)
        with Client(alpha.port) as publisher, Client(beta.port) as client:
            publisher.publish(QUEUE, bytes(size), 1)  # the shovel runs when this one has come
            wait_for_depth(client, 1)
            before, began = cpu((alpha, beta)), time.monotonic()
            publisher.publish(QUEUE, bytes(size), messages)
            wait_for_depth(client, messages + 1)
            return figures(messages, time.monotonic() - began, before, (alpha, beta))


def shovel_latency(kind: str, messages: int, size: int) -> Figures:
    """Measure how long single messages take through RabbitMQ; always the same number of them."""
    with two_nodes(kind) as (alpha, beta, tls):
        alpha.set_shovel(beta, tls)
        with Client(alpha.port) as publisher, Client(beta.port) as consumer:
            publisher.publish(QUEUE, bytes(size), 1)  # the shovel runs when this one has come
            wait_for_depth(consumer, 1)
            load = threading.Thread(
                target=publisher.publish_at, args=(QUEUE, size, LATENCY_MESSAGES, RATE)
            )
            before, began = cpu((alpha, beta)), time.monotonic()
            load.start()
            seconds = sorted(consumer.consume_timed(QUEUE, 1 + LATENCY_MESSAGES)[1:])
            load.join()
            found = figures(LATENCY_MESSAGES, time.monotonic() - began, before, (alpha, beta))
    return {
        **found,
        "p50": 1000 * seconds[len(seconds) // 2],
        "p99": 1000 * seconds[len(seconds) * 99 // 100],
    }


def relay(phase: str) -> Callable[[int, int], Figures]:
    """Return the measurement of amqproute in one phase."""

    def measure(messages: int, size: int) -> Figures:
        done = subprocess.run(
            [*BENCH, f"--messages={messages}", f"--size={size}", f"--phase={phase}"],
            env=child_environment(),
            capture_output=True,
            text=True,
            timeout=600,
        )
        if done.returncode:
            raise BenchmarkError(f"amqproute bench relay: {done.stdout}{done.stderr}")
        for each in json.loads(done.stdout)["phases"]:
            if each["phase"] == phase:
                spent = each["cpu-seconds-per-100000"]
                found = {"rate": each["rate"], "alpha": spent["alpha"], "beta": spent["beta"]}
                if phase == "latency":
                    found.update((name, each["latency-ms"][name]) for name in ("p50", "p99"))
                return found
        raise BenchmarkError(f"amqproute bench relay did not measure {phase}")

    return measure


Measure = Callable[[int, int], Figures]

SHOVEL: Final[Mapping[str, Callable[[str, int, int], Figures]]] = {
    "backlog": shovel_backlog,
    "live": shovel_live,
    "latency": shovel_latency,
}
OURS: Final = "amqproute"


def compare(
    phase: str, kinds: Sequence[str], messages: int, size: int, rounds: int
) -> Mapping[str, Sequence[Figures]]:
    """Measure all systems in turn, round by round; return the figures of each round by system."""
    systems: dict[str, Measure] = {kind: partial(SHOVEL[phase], kind) for kind in kinds}
    systems[OURS] = relay(phase)
    found: dict[str, list[Figures]] = {name: [] for name in systems}
    for number in range(rounds):
        for name, measure in systems.items():
            words = f"{size} octets, {phase}, {name}, round {number + 1} of {rounds} ..."
            print(words, file=sys.stderr, flush=True)
            found[name].append(measure(messages, size))
    return found


def medians(rounds: Sequence[Figures]) -> Figures:
    """Return the median of each figure."""
    return {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}


def rows(phase: str, found: Mapping[str, Figures]) -> Iterator[dict[str, Any]]:
    """Put the figures of all systems side by side, with our ratio to each."""
    ours = found[OURS]
    for name, label in (
        ("rate", "messages/s"),
        ("alpha", "CPU s per 100,000, alpha"),
        ("beta", "CPU s per 100,000, beta"),
        ("both", "CPU s per 100,000, both sides"),
        ("p50", "p50, ms"),
        ("p99", "p99, ms"),
    ):
        if name not in ours or (name in ("alpha", "beta") and "both" in ours):
            continue
        ratios = {
            system: (ours[name] / each[name] if name == "rate" else each[name] / ours[name])
            for system, each in found.items()
            if system != OURS
        }
        values = {system: each[name] for system, each in found.items()}
        yield {"phase": phase, "figure": label, "values": values, "ratios": ratios}


# -- the report --------------------------------------------------------------------------------

SIZES: Final = (100, 1024, 65536)
FEWER: Final = 20_000
"""Messages in a round of the report, of bodies of more than `LARGE` octets."""
LARGE: Final = 16_384


@dataclass(frozen=True)
class Measured:
    """All rounds of one phase with bodies of one size.

    Attributes:
        phase: a key of `SHOVEL`.
        size: octets of a body.
        messages: of a round.
        rounds: the figures of each round, by system.
    """

    phase: str
    size: int
    messages: int
    rounds: Mapping[str, Sequence[Figures]]

    @property
    def middle(self) -> Mapping[str, Figures]:
        """The medians of the rounds, by system; of one round, its figures."""
        return {name: medians(each) for name, each in self.rounds.items()}

    @property
    def spread(self) -> float:
        """By how much the rates of the rounds differ, in parts of the median; the worst system."""
        return max(
            (max(rates) - min(rates)) / statistics.median(rates)
            for rates in ([each["rate"] for each in found] for found in self.rounds.values())
        )


def report(found: Sequence[Measured], syncs: Mapping[str, int], about: Mapping[str, str]) -> str:
    """Return the section of ``benchmarks/README.md``, in Markdown.

    Args:
        found: in the order of the table.
        syncs: by the kind of queue, for `SYNC_MESSAGES` confirms; empty if not counted.
        about: `revision`, `rabbitmq` (a version), `machine` and `when`.
    """
    rounds = len(next(iter(found[0].rounds.values())))
    kinds = [name for name in found[0].rounds if name != OURS]
    how = f"medians of {rounds} rounds" if rounds > 1 else "one round, not repeated"
    spread = f", in which rates differ by up to {max(e.spread for e in found):.0%}"
    lines = [
        f"Revision {about['revision']}, {about['when']}: {how}{spread * (rounds > 1)}.",
        f"RabbitMQ {about['rabbitmq']}; {about['machine']}. Messages of a round: "
        + ", ".join(dict.fromkeys(f"{e.messages:,} of {octets(e.size)}" for e in found))
        + f"; latency: {LATENCY_MESSAGES:,} at {RATE:,}/s.",
        "",
    ]
    if syncs:
        lines += [f"| queue | syncs for {SYNC_MESSAGES:,} confirms | promise |", "|---|---:|---|"]
        for kind, count in syncs.items():
            words = (
                "on the disk, as ours" if count >= SYNC_MESSAGES else "in memory: less than ours"
            )
            lines.append(f"| {kind} | {count:,} | {words} |")
        lines.append("")
    heads = ["size, phase", "figure", OURS, *(part for kind in kinds for part in (kind, "ratio"))]
    lines += [f"| {' | '.join(heads)} |", "|---|---|" + "---:|" * (len(heads) - 2)]
    for each in found:
        for row in rows(each.phase, {name: _both_sides(f) for name, f in each.middle.items()}):
            digits = 0 if row["figure"] == "messages/s" else 2
            cells = [f"{row['values'][OURS]:,.{digits}f}"]
            for kind in kinds:
                cells += [f"{row['values'][kind]:,.{digits}f}", f"{row['ratios'][kind]:.2f}"]
            where = f"{octets(each.size)}, {each.phase}"
            lines.append(f"| {where} | {row['figure']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _both_sides(figures: Figures) -> Figures:
    """Add up what both sides have used."""
    return {**figures, "both": figures["alpha"] + figures["beta"]}


def octets(size: int) -> str:
    """Return a size in words."""
    return f"{size // 1024} KiB" if size >= 1024 and not size % 1024 else f"{size} B"


# -- promises ----------------------------------------------------------------------------------

SYNC_MESSAGES: Final = 1000


def count_syncs(kind: str, messages: int, size: int) -> int:
    """Count the calls that sync files while messages are published one by one, each confirmed.

    Raises:
        BenchmarkError: strace cannot be attached.
    """
    with two_nodes(kind) as (alpha, _, directory), Client(alpha.port) as client:
        log = directory.parent / "syncs"
        command = ["strace", "-f", "-o", str(log), "-e", "trace=fsync,fdatasync,sync_file_range"]
        command += [part for pid in alpha.pids for part in ("-p", str(pid))]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
            assert tracer.stderr is not None
            if "attached" not in tracer.stderr.readline():
                raise BenchmarkError("strace cannot be attached to RabbitMQ")
            for _ in range(messages):
                client.publish(QUEUE, bytes(size), 1)
            tracer.send_signal(signal.SIGINT)
            tracer.communicate(timeout=60)
        calls = re.findall(r"\b(?:fsync|fdatasync|sync_file_range)\(", log.read_text())
        return len(calls)


def version() -> str:
    """Return RabbitMQ's version, as its package says."""
    query = ["dpkg-query", "--showformat", "${Version}", "--show", "rabbitmq-server"]
    done = subprocess.run(query, capture_output=True, text=True)
    return done.stdout.strip() or "of unknown version"


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--size", type=int, action="append", help="octets; default 1024")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--phase", choices=tuple(SHOVEL), action="append")
    parser.add_argument("--queue", choices=tuple(KINDS), action="append", help="default: each")
    parser.add_argument("--syncs", action="store_true", help="count syncs of 1,000 confirms only")
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--report",
        action="store_true",
        help="count syncs, measure bodies of three sizes, and print tables to paste",
    )
    given = parser.parse_args()
    if not (HOME / "rabbitmq-server").exists() or shutil.which("epmd") is None:
        print(f"RabbitMQ is not installed ({HOME}); see the top of this file", file=sys.stderr)
        return 2
    kinds = given.queue or list(KINDS)
    sizes = given.size or (SIZES if given.report else (1024,))
    syncs: dict[str, int] = {}
    found: list[Measured] = []
    measured = revision()  # now: what is committed during the run is not what runs
    try:
        with ended_by_signals():
            if given.syncs or given.report:
                for kind in kinds:
                    print(f"syncs, {kind} ...", file=sys.stderr, flush=True)
                    syncs[kind] = count_syncs(kind, SYNC_MESSAGES, 1024)
            if given.syncs:
                for kind, count in syncs.items():
                    print(f"{kind}: {count} syncs, {SYNC_MESSAGES} confirms")
                return 0
            for size in sizes:
                # The latency of large bodies is that of a thousand of them a second: the disk's.
                usual = [each for each in SHOVEL if size <= LARGE or each != "latency"]
                messages = given.messages
                if given.report and size > LARGE:
                    messages = min(FEWER, messages)
                for phase in given.phase or usual:
                    rounds = compare(phase, kinds, messages, size, given.rounds)
                    found.append(Measured(phase, size, messages, rounds))
    except BenchmarkError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 1
    if given.report:
        about = {
            "revision": measured,
            "rabbitmq": version(),
            "machine": machine(),
            "when": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
        }
        print(report(found, syncs, about))
    elif given.json:
        table = [{"size": e.size, **row} for e in found for row in rows(e.phase, e.middle)]
        print(json.dumps({"rabbitmq": version(), "table": table}, indent=2))
    else:
        _print_plain(found, kinds, given.rounds)
    return 0


def _print_plain(found: Sequence[Measured], kinds: Sequence[str], rounds: int) -> None:
    how = f"median of {rounds}" if rounds > 1 else "one round"
    print(
        f"RabbitMQ {version()}, persistent messages, mutual TLS on loopback, {os.cpu_count()} CPUs"
    )
    print(f"{how}, with ratios behind\n")
    heads = "".join(f"{kind:>18}" for kind in kinds)
    print(f"{'octets':>7} {'phase':9}{'':26}{OURS:>11}{heads}")
    for each in found:
        for row in rows(each.phase, each.middle):
            digits = 0 if row["figure"] == "messages/s" else 2
            line = f"{each.size:7} {row['phase']:9}{row['figure']:26}"
            line += f"{row['values'][OURS]:11.{digits}f}"
            for kind in kinds:
                line += f"{row['values'][kind]:11.{digits}f} {row['ratios'][kind]:6.2f}"
            print(line)


if __name__ == "__main__":
    sys.exit(main())
