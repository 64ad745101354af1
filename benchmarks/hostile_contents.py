# SPDX-License-Identifier: Apache-2.0
"""Resident memory of a daemon while clients of AMQP 0-9-1 send very large and hostile contents.

Run as ``python -m benchmarks.hostile_contents [MEBIBYTES]``. A body of this many mebibytes (1,024
if none are named) is published and consumed by a client that pauses in the middle; then come bodies
of 2**63 octets, header tables as large as a frame, as many channels as there can be, and contents
that do not end. The peak of each is shown in relation to the idle daemon; at most 1.5 is wanted.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from contextlib import suppress
from typing import Final

from tests.integration.support import Daemon
from tests.support.plain_amqp09 import frame_octets, header_octets, method
from tests.support.wire09 import V091, call

FRAME: Final = 131_072
PIECE: Final = bytes(range(256)) * 511
CONNECTIONS: Final = 10
MEMORY: Final = 32 << 20
"""``limits.memory`` of the daemons, octets."""
MOST: Final = 1.5


def resident(daemon: Daemon, name: str = "VmRSS") -> int:
    """Return kibibytes of the daemon's memory."""
    with open(f"/proc/{daemon.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name))


class Stream:
    """A connection of octets.

    Args:
        port: of a listener with ANONYMOUS.
        channels: opened at once.
    """

    def __init__(self, port: int, channels: int = 1) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 60)
        start = call(
            0,
            "connection.start-ok",
            client_properties=[],
            mechanism="ANONYMOUS",
            response=b"",
            locale="en_US",
        )
        self.send(V091, start)
        self.expect("connection.start")
        self.expect("connection.tune")
        self.send(
            call(0, "connection.tune-ok", channel_max=0, frame_max=FRAME, heartbeat=0),
            call(0, "connection.open", virtual_host="/"),
        )
        self.expect("connection.open-ok")
        for number in range(1, channels + 1):
            self.send(call(number, "channel.open"))

    def send(self, *octets: bytes) -> None:
        """Write octets."""
        self._socket.sendall(b"".join(octets))

    def _read(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            more = self._socket.recv(size - len(found))
            if not more:
                raise ConnectionError("the connection is closed")
            found += more
        return bytes(found)

    def frame(self) -> tuple[int, int, bytes]:
        """Read a frame: kind, channel, payload."""
        kind, channel, size = struct.unpack(">BHI", self._read(7))
        payload = self._read(size)
        self._read(1)
        return kind, channel, payload

    def expect(self, name: str) -> None:
        """Read a method.

        Raises:
            ConnectionError: another one comes.
        """
        found, arguments = method(self.frame()[2])
        if found != name:
            raise ConnectionError(f"{found} {arguments} where {name} was expected")

    def begin(self, channel: int, size: int, properties: dict[str, object] | None = None) -> None:
        """Write method and header of a publish."""
        self.send(
            call(channel, "basic.publish", routing_key="q"),
            frame_octets(2, channel, header_octets(60, size, properties)),
        )

    def close(self) -> None:
        """Go without a word."""
        self._socket.close()


def one_body(daemon: Daemon, mebibytes: int) -> None:
    """Publish and consume one body; the consumer pauses in the middle."""
    size = mebibytes << 20
    stream = Stream(daemon.plain)
    stream.expect("channel.open-ok")
    stream.send(call(1, "confirm.select"))
    stream.expect("confirm.select-ok")
    begun = time.monotonic()
    stream.begin(1, size, {"delivery-mode": 2})
    for at in range(0, size, len(PIECE)):
        stream.send(frame_octets(3, 1, PIECE[: min(len(PIECE), size - at)]))
    stream.expect("basic.ack")
    published = time.monotonic() - begun
    stream.send(call(1, "basic.consume", queue="q", no_ack=1))
    stream.expect("basic.consume-ok")
    stream.expect("basic.deliver")
    stream.frame()
    begun = time.monotonic()
    got = 0
    has_paused = False
    while got < size:
        got += len(stream.frame()[2])
        if not has_paused and got > size // 4:
            has_paused = True
            time.sleep(2)
    taken = time.monotonic() - begun - 2
    stream.close()
    print(f"  {mebibytes} MiB: published in {published:.1f} s, delivered in {taken:.1f} s")


def huge_sizes(daemon: Daemon) -> None:
    """Announce bodies of 2**63 octets, and begin to send them."""
    for _ in range(CONNECTIONS):
        stream = Stream(daemon.plain, channels=100)
        with suppress(OSError):
            for channel in range(1, 101):
                stream.begin(channel, 1 << 63)
                stream.send(frame_octets(3, channel, PIECE))
        stream.close()


def large_tables(daemon: Daemon) -> None:
    """Publish to nowhere with header tables as large as a frame, each another one."""
    stream = Stream(daemon.plain)
    with suppress(OSError):
        for number in range(40):
            table = [(f"k{number}-{each}", "A", [("I", each)] * 20) for each in range(800)]
            stream.begin(1, 0, {"headers": table})
    stream.close()


def many_channels(daemon: Daemon) -> None:
    """Open all the channels that a number can name."""
    for _ in range(CONNECTIONS):
        stream = None
        with suppress(OSError):
            stream = Stream(daemon.plain, channels=65_535)
        if stream is not None:
            stream.close()


def half_sent(daemon: Daemon) -> None:
    """Send the halves of contents on many channels of many connections."""
    streams = []
    for _ in range(CONNECTIONS):
        stream = Stream(daemon.plain, channels=50)
        streams.append(stream)
        with suppress(OSError):
            for channel in range(1, 51):
                stream.begin(channel, 900_000)
                stream.send(*[frame_octets(3, channel, PIECE)] * 3)
    time.sleep(3)
    for stream in streams:
        stream.close()


def main() -> None:
    """Send all of it, each to a daemon of its own; show the peaks."""
    mebibytes = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    parts = {
        "one body": lambda daemon: one_body(daemon, mebibytes),
        "bodies of 2**63 octets": huge_sizes,
        "large header tables": large_tables,
        "65,535 channels": many_channels,
        "half-sent contents": half_sent,
    }
    worst = 0.0
    for name, act in parts.items():
        changes = {"nodes": [{"name": "q"}], "limits": {"memory": MEMORY}}
        daemon = Daemon("alpha.example", changes=changes)
        daemon.is_executed = True
        daemon.start()
        Stream(daemon.plain).close()
        time.sleep(1)
        idle = resident(daemon)
        act(daemon)
        time.sleep(1)
        most = resident(daemon, "VmHWM")
        worst = max(worst, most / idle)
        print(f"{name}: {idle >> 10} MiB idle, peak {most >> 10} MiB, {most / idle:.2f} times")
        daemon.stop()
    print(f"at most {worst:.2f} times the idle daemon, wanted {MOST}")


if __name__ == "__main__":
    main()
