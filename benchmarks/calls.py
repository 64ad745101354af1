# SPDX-License-Identifier: Apache-2.0
"""``python benchmarks/calls.py [--root DIR]``: Python calls on the path of a message.

Two daemons of a checkout run with `sys.setprofile`, and a client written here sends messages one by
one, each when the one before is done. After each the counters are read. Timers that fire once in a
while (collections of garbage, a look at the disk) only add to some of them: what is shown are the
smallest figures that at least a tenth of the messages have. They are the same in every run,
whatever else the machine does.

Counted is each entry into a function, method, generator or comprehension whose code is in the
package ``amqproute`` of that checkout. A *hop* is such a call whose nearest caller of the package
is in another file, or in another package (the first name behind ``amqproute.``); what the reactor
calls has none. Calls in libraries are not counted; other threads (the store's, the journal's) are
counted by themselves.

Nothing of the checkout is imported here, and nothing in it is named but the settings and the
command ``serve``: so two revisions are counted by one script, whatever their modules are called.
With TLS between the daemons, journals on, and durable messages of 100 octets.

=================  ==============================================================================
way                from, to
=================  ==============================================================================
publish            a transfer to a local queue, to its `accepted`
accept             credit of one on a queue with a backlog, its transfer, `accepted`, settled
local              a transfer to a queue with a consumer, delivered and accepted
relayed            a transfer to a queue of the other organization, delivered there and accepted;
                   both daemons together
=================  ==============================================================================
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

MESSAGES = 60
WARM = 15
QUIET_SECONDS = 0.05
PATIENCE = 120.0
REACTOR = os.path.join("twisted", "internet", "base.py")
Call = tuple[str, str, str]
"""File of the caller, file and function that are called."""
BODY = b"\x00\x53\x70\xc0\x02\x01\x41\x00\x53\x75\xa0\x64" + b"x" * 100
"""A durable message: a header, and data of 100 octets."""


# -- inside a daemon ---------------------------------------------------------------------------


class Counting:
    """The counters of a process, by thread: the reactor's, and the others."""

    def __init__(self, package: str) -> None:
        self._prefix = package + os.sep
        self._files: dict[str, str | None] = {}
        self.reactor: Counter[Call] = Counter()
        self.others: Counter[Call] = Counter()

    def _file(self, code: Any) -> str | None:
        name = code.co_filename
        try:
            return self._files[name]
        except KeyError:
            own = name[len(self._prefix) :] if name.startswith(self._prefix) else None
            return self._files.setdefault(name, own)

    def profiler(self, counter: Counter[Call]) -> Callable[[Any, str, Any], None]:
        """Return a function for `sys.setprofile`: it counts the calls of its thread."""

        def called(frame: Any, event: str, _: Any) -> None:
            if event != "call":
                return
            file = self._file(frame.f_code)
            if file is None:
                return
            caller = frame.f_back
            before = None
            while caller is not None and before is None:
                if caller.f_code.co_filename.endswith(REACTOR):
                    break  # above it is who has started the reactor
                before = self._file(caller.f_code)
                caller = caller.f_back
            counter[before or "", file, frame.f_code.co_qualname] += 1

        return called

    def serve(self, path: str) -> None:
        """Answer each connection to a socket with the counts since the last one."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
            door.bind(path)
            door.listen()
            while True:
                asking, _ = door.accept()
                with asking:
                    is_taken = asking.recv(1) == b"t"
                    counts = [[[*call, n] for call, n in list(each.items())]
                              for each in (self.reactor, self.others)]  # fmt: skip
                    if is_taken:
                        self.reactor.clear()
                        self.others.clear()
                    asking.sendall(json.dumps(counts).encode())


def count(root: str, path: str, arguments: list[str]) -> None:
    """Run the program of a checkout, and count."""
    counting = Counting(os.path.join(root, "amqproute"))
    threading.Thread(target=counting.serve, args=(path,), daemon=True).start()
    sys.path.insert(0, root)
    sys.argv = ["amqproute", *arguments]
    threading.setprofile(counting.profiler(counting.others))
    sys.setprofile(counting.profiler(counting.reactor))
    runpy.run_module("amqproute", run_name="__main__", alter_sys=True)


# -- a client ----------------------------------------------------------------------------------


class Described:
    """A list with a numeric descriptor."""

    def __init__(self, code: int, *fields: Any) -> None:
        self.code = code
        self.fields = fields


def encode(value: Any) -> bytes:
    """Encode the few types that this client needs."""
    if value is None:
        return b"\x40"
    if value is True or value is False:
        return b"\x41" if value else b"\x42"
    if isinstance(value, int):
        return b"\x70" + value.to_bytes(4, "big")
    if isinstance(value, str):
        return b"\xa1" + bytes([len(value)]) + value.encode()
    if isinstance(value, bytes):
        return b"\xa0" + bytes([len(value)]) + value
    body = b"".join(map(encode, value.fields))
    size = struct.pack(">II", len(body) + 4, len(value.fields))
    return b"\x00\x53" + bytes([value.code, 0xD0]) + size + body


class Client:
    """A connection with one session and one link."""

    def __init__(self, port: int, role: str, address: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._buffer = b""
        self._number = 0
        is_receiver = role == "receiver"
        self.write(b"AMQP\x00\x01\x00\x00")
        self.frame(Described(0x10, f"calls-{role}-{address}"))
        self.frame(Described(0x11, None, 0, 100_000, 100_000))
        source = Described(0x28, address if is_receiver else "here")
        target = Described(0x29, "here" if is_receiver else address)
        first = None if is_receiver else 0
        self.frame(
            Described(0x12, "link", 0, is_receiver, None, None, source, target, None, None, first)
        )
        self.wait(0x12)
        if not is_receiver:
            self.wait(0x13)

    def write(self, octets: bytes) -> None:
        """Write octets."""
        self._socket.sendall(octets)

    def frame(self, performative: Described, payload: bytes = b"") -> None:
        """Write a frame."""
        body = encode(performative) + payload
        self.write(struct.pack(">IBBH", len(body) + 8, 2, 0, 0) + body)

    def wait(self, code: int) -> None:
        """Read up to a frame of a kind.

        Raises:
            ConnectionError: the link, the session or the connection ends.
        """
        while True:
            for found in self._codes():
                if found == code:
                    return
                if found in (0x16, 0x17, 0x18):
                    raise ConnectionError(f"0x{found:02x} came, 0x{code:02x} was waited for")
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionError("the daemon has closed the connection")
            self._buffer += data

    def _codes(self) -> Iterator[int]:
        while len(self._buffer) >= 8:
            if self._buffer.startswith(b"AMQP"):
                self._buffer = self._buffer[8:]
                continue
            size = int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < size:
                return
            frame, self._buffer = self._buffer[:size], self._buffer[size:]
            if size > 8:
                yield frame[10]

    def publish(self) -> None:
        """Send a message and wait for its outcome."""
        tag = self._number.to_bytes(4, "big")
        self.frame(Described(0x14, 0, self._number, tag, 0, False), BODY)
        self._number += 1
        self.wait(0x15)

    def credit(self, credit: int) -> None:
        """Grant credit."""
        self.frame(Described(0x13, 0, 100_000, 0, 100_000, 0, self._number, credit))

    def accept(self) -> None:
        """Wait for a message and accept it."""
        self.wait(0x14)
        first = self._number
        self._number += 1
        self.frame(Described(0x15, True, first, first, True, Described(0x24)))


# -- the measurement ---------------------------------------------------------------------------


class Daemon:
    """A daemon of the checkout that counts."""

    def __init__(self, root: Path, name: str, directory: Path) -> None:
        self.name = name
        self.domain = f"{name}.example"
        self.directory = directory / name
        self.directory.mkdir()
        self.root = root
        self.plain, self.tls = free_port(), free_port()
        self._counts = str(self.directory / "counts")
        self._process: subprocess.Popen[bytes] | None = None
        self._log = self.directory / "log"

    def configure(self, certificates: Path, other: Daemon) -> None:
        """Write the configuration; nobody asks the DNS."""
        rights = ["publish", "consume", "create", "browse", "manage"]
        settings = {
            "container-id": f"broker.{self.domain}",
            "domains": [self.domain],
            "state-directory": str(self.directory / "state"),
            "tls": {
                "certificate": str(certificates / self.domain / "chain.pem"),
                "private-key": str(certificates / self.domain / "key.pem"),
                "trust": str(certificates / "ca.pem"),
            },
            "listen": [
                {"endpoint": f"tcp:{self.plain}:interface=127.0.0.1", "mechanisms": ["ANONYMOUS"]},
                {
                    "endpoint": f"tcp:{self.tls}:interface=127.0.0.1",
                    "tls": "implicit",
                    "client-certificate": "optional",
                    "mechanisms": ["EXTERNAL"],
                },
            ],
            "users": {"file": str(self.directory / "users.yaml")},
            "access": [
                {"who": "anonymous", "allow": rights},
                {"who": "peer:*", "allow": ["transfer"]},
            ],
            "nodes": [{"name": name} for name in ("publish", "accept", "local", "relayed")],
            "routes": [
                {
                    "domain": other.domain,
                    "via": f"amqps://127.0.0.1:{other.tls}",
                    "names": [other.domain],
                }
            ],
            "resolver": {"nameservers": [f"127.0.0.1:{free_port()}"], "dnssec": "off"},
            "peers": {"*": {"level": "pkix"}},
            "relay": {"idle-timeout": "1h"},
            "log": {"format": "text"},
        }
        (self.directory / "users.yaml").write_text("{}\n")
        (self.directory / "amqproute.yaml").write_text(json.dumps(settings))

    def start(self) -> None:
        """Start it, and wait until it listens."""
        command = [
            sys.executable, "-P", os.path.abspath(__file__), "--root", str(self.root),
            "--count", self._counts, "serve", "--config", str(self.directory / "amqproute.yaml"),
        ]  # fmt: skip
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        end = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.tls), 1).close()
                return
            except OSError as error:
                if self._process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"{self.name}: {error}\n{self._log.read_text()}") from error
                time.sleep(0.1)

    def stop(self) -> None:
        """Stop it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(PATIENCE)

    def counts(self, take: bool) -> list[list[Any]]:
        """Return the counts; begin again if they are taken."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.connect(self._counts)
            asking.sendall(b"t" if take else b"l")
            found = b""
            while data := asking.recv(1 << 20):
                found += data
        counts: list[list[Any]] = json.loads(found)
        return counts


def free_port() -> int:
    """Find a port of loopback that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    return port


def settled(daemons: list[Daemon]) -> list[list[list[Any]]]:
    """Wait until the daemons are at rest; take their counts."""
    before: Any = None
    while (now := [each.counts(False) for each in daemons]) != before:
        before = now
        time.sleep(QUIET_SECONDS)
    return [each.counts(True) for each in daemons]


def figures(daemons: list[list[list[Any]]]) -> dict[str, int]:
    """Sum up what was counted for one message."""
    calls = hops = package_hops = elsewhere = 0
    files = set()
    for number, (reactor, others) in enumerate(daemons):
        for before, file, _, times in reactor:
            calls += times
            files.add(file)
            hops += times * (bool(before) and before != file)
            package_hops += times * (bool(before) and _package(before) != _package(file))
        elsewhere += sum(times for *_, times in others)
        assert number < 2
    return {
        "calls": calls,
        "hops between files": hops,
        "hops between packages": package_hops,
        "files": len(files),
        "calls in other threads": elsewhere,
    }


def _package(file: str) -> str:
    return file.split(os.sep)[0]


class Row(NamedTuple):
    """A way of a message: its figures, and the calls of one message that has them."""

    figures: dict[str, int]
    share: float
    functions: Counter[tuple[str, str]]


def measure(daemons: list[Daemon], step: Callable[[], None]) -> Row:
    """Take many messages the same way; find the smallest usual figures, and their share."""
    found: Counter[tuple[tuple[str, int], ...]] = Counter()
    examples: dict[tuple[tuple[str, int], ...], Counter[tuple[str, str]]] = {}
    others: Counter[int] = Counter()
    for number in range(WARM + MESSAGES):
        settled(daemons)
        step()
        counts = settled(daemons)
        *own, (name, elsewhere) = figures(counts).items()
        if number >= WARM:
            found[tuple(own)] += 1
            examples[tuple(own)] = functions(counts)
            others[elsewhere] += 1
    often = [key for key, times in found.items() if times >= MESSAGES / 10] or list(found)
    best = min(often, key=lambda key: key[0][1])
    rest = min(count for count, times in others.items() if times >= MESSAGES / 20)
    return Row({**dict(best), name: rest}, found[best] / MESSAGES, examples[best])


def functions(daemons: list[list[list[Any]]]) -> Counter[tuple[str, str]]:
    """Sum up by function what the threads of the reactors have counted."""
    sums: Counter[tuple[str, str]] = Counter()
    for reactor, _ in daemons:
        for _, file, function, times in reactor:
            sums[file, function] += times
    return sums


def ways(alpha: Daemon, beta: Daemon) -> Iterator[tuple[str, Row]]:
    """Measure each way."""
    publisher = Client(alpha.plain, "sender", "publish")
    yield "publish", measure([alpha], publisher.publish)
    filler = Client(alpha.plain, "sender", "accept")
    for _ in range(WARM + MESSAGES):
        filler.publish()
    taker = Client(alpha.plain, "receiver", "accept")

    def take() -> None:
        taker.credit(1)
        taker.accept()

    yield "accept", measure([alpha], take)
    for name, to in (("local", alpha), ("relayed", beta)):
        sender = Client(alpha.plain, "sender", name if to is alpha else f"{name}@{to.domain}")
        consumer = Client(to.plain, "receiver", name)
        consumer.credit(1000)

        def pass_on(sender: Client = sender, consumer: Client = consumer) -> None:
            sender.publish()
            consumer.accept()

        yield name, measure([alpha] if to is alpha else [alpha, beta], pass_on)


def main() -> None:
    """Count, and print a table."""
    parser = argparse.ArgumentParser(description="Count the calls for a message's way.")
    here = Path(__file__).resolve().parents[1]
    parser.add_argument("--root", type=Path, default=here, help="the checkout that is counted")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--functions", action="store_true", help="list the functions as well")
    parser.add_argument("--count", help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    given = parser.parse_args()
    root = given.root.absolute()
    if given.count:
        count(str(root), given.count, given.arguments)
        return
    with tempfile.TemporaryDirectory(prefix="calls-") as folder:
        directory = Path(folder)
        certificates = directory / "tls"
        alpha, beta = Daemon(root, "alpha", directory), Daemon(root, "beta", directory)
        program = [sys.executable, "-P", "-m", "amqproute", "certs"]
        for arguments in (["authority", str(certificates)],
                          ["issue", str(certificates), alpha.domain, beta.domain]):  # fmt: skip
            subprocess.run(
                [*program, *arguments],
                env={**os.environ, "PYTHONPATH": str(root)},
                stdout=subprocess.DEVNULL,
                check=True,
            )
        alpha.configure(certificates, beta)
        beta.configure(certificates, alpha)
        try:
            for daemon in (alpha, beta):
                daemon.start()
            rows = list(ways(alpha, beta))
        finally:
            for daemon in (alpha, beta):
                daemon.stop()
    if given.json:
        print(json.dumps({name: {**row.figures, "share": row.share} for name, row in rows}))
        return
    names = list(rows[0][1].figures)
    print(f"| way | {' | '.join(names)} | messages with these figures |")
    print(f"|---|{'---:|' * (len(names) + 1)}")
    for name, row in rows:
        numbers = " | ".join(str(row.figures[key]) for key in names)
        print(f"| {name} | {numbers} | {row.share:.0%} |")
    for name, row in rows if given.functions else ():
        print(f"\n{name}:")
        for (file, function), times in row.functions.most_common():
            print(f"{times:5} {file} {function}")


if __name__ == "__main__":
    main()
