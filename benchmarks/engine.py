# SPDX-License-Identifier: Apache-2.0
"""Cost per delivery of the AMQP 1.0 engine: receive, send, disposition, settle.

Run ``python -m benchmarks.engine``. Each figure is the best of several rounds, in microseconds of
CPU per delivery, next to what the design allows.
"""

from __future__ import annotations

import time

from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.connection import Connection, ConnectionSettings
from amqproute.wire.amqp10.engine_events import LinkAttached, OpenReceived, SessionBegun
from amqproute.wire.amqp10.link import Delivery, Link

PAYLOAD = b"x" * 1024
ROUNDS = 30
BATCH = 1000


class Ends:
    """A client that sends and a server that receives, joined by plain calls."""

    def __init__(self) -> None:
        self.client = Connection(ConnectionSettings(role="client", container_id="client"))
        self.server = Connection(ConnectionSettings(role="server", container_id="server"))
        self.receiver: Link | None = None
        self.client.start(0.0)
        self.server.start(0.0)
        self.client.open()
        session = self.client.begin()
        self.sender = session.attach("link", "sender", spec.Source(), spec.Target(address="q"))
        while self.carry():
            pass

    def carry(self) -> bool:
        """Move bytes both ways once."""
        out = b"".join(self.client.data_to_send())
        if out:
            for event in self.server.receive_data(out, 0.0):
                if isinstance(event, OpenReceived):
                    self.server.open()
                elif isinstance(event, SessionBegun):
                    event.session.accept()
                elif isinstance(event, LinkAttached):
                    event.link.accept()
                    event.link.flow(1_000_000_000)
                    self.receiver = event.link
        back = b"".join(self.server.data_to_send())
        if back:
            self.client.receive_data(back, 0.0)
        return bool(out or back)


def main() -> None:
    """Measure, and print a table."""
    ends = Ends()
    serial = iter(range(1 << 30))
    send: list[float] = []
    receive: list[float] = []
    settle: list[float] = []
    disposition: list[float] = []
    clock = time.process_time
    for _ in range(ROUNDS):
        tags = [b"%d" % next(serial) for _ in range(BATCH)]
        parts = [PAYLOAD]
        started = clock()
        for tag in tags:
            ends.sender.send(parts, tag)
        send.append((clock() - started) / BATCH)
        stream = b"".join(ends.client.data_to_send())
        chunks = [stream[at : at + 65536] for at in range(0, len(stream), 65536)]
        deliveries: list[Delivery] = []
        started = clock()
        for chunk in chunks:
            for event in ends.server.receive_data(chunk, 0.0):
                deliveries += event.deliveries  # type: ignore[union-attr]
        receive.append((clock() - started) / BATCH)
        session = deliveries[0].link.session
        accepted = spec.Accepted()
        started = clock()
        for at in range(0, BATCH, 100):
            session.settle(deliveries[at : at + 100], accepted)
        settle.append((clock() - started) / BATCH)
        stream = b"".join(ends.server.data_to_send())
        started = clock()
        ends.client.receive_data(stream, 0.0)
        disposition.append((clock() - started) / BATCH)
        assert not ends.sender.unsettled
    for name, times, allowed in (
        ("send, 1 KiB", send, 3.0),
        ("receive, 1 KiB, 64 KiB chunks", receive, 4.0),
        ("settle, ranges of 100", settle, 0.5),
        ("disposition in, ranges of 100", disposition, 0.5),
    ):
        print(f"{name:32} {min(times) * 1e6:6.2f} us per delivery (design: {allowed})")


if __name__ == "__main__":
    main()
