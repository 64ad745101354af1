# SPDX-License-Identifier: Apache-2.0
"""Cost per message of the engine for 0-9-1, beside the engine for 1.0.

Run ``python -m benchmarks.amqp09``. Each figure is the best of several rounds, in microseconds of
CPU per message of 1 KiB, with durable messages and three headers. Reads are of 64 KiB.

The row *other properties* has a message-id of its own in each message, so that nothing is
remembered; *same* repeats all but the body, as load generators and many programs do.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from amqproute.wire.amqp09.arguments import encode_method, encode_properties
from amqproute.wire.amqp09.channel import Channel
from amqproute.wire.amqp09.connection09 import Connection09
from amqproute.wire.amqp09.connection_settings import Connection09Settings
from amqproute.wire.amqp09.contents import Publish
from amqproute.wire.amqp09.field_tables import FieldTable
from amqproute.wire.amqp09.frame_output import FrameOutput
from amqproute.wire.amqp09.methods import BasicAck, BasicProperties, BasicPublish
from amqproute.wire.amqp09.protocol_events import (
    ChannelAsked,
    DeliveriesSettled,
    MechanismChosen,
    MechanismsOffered,
    PublishesReceived,
    VirtualHostAsked,
)
from amqproute.wire.amqp09.versions import ProtocolVersion
from benchmarks import engine

BODY = b"x" * 1024
ROUNDS = 30
BATCH = 1000
CHUNK = 65536
HEADERS = FieldTable({"tenant": "alpha", "attempt": 1, "trace": "c0ffee00c0ffee00"})


class Pair:
    """A client and a server, joined by plain calls."""

    def __init__(self) -> None:
        self.server = Connection09(
            Connection09Settings(role="server", mechanisms=("PLAIN",), heartbeat=0)
        )
        self.client = Connection09(Connection09Settings(role="client", heartbeat=0))
        self.server.start(0.0)
        self.client.start(0.0)
        while self.carry():
            pass
        self.publisher = self.client.open_channel()
        while self.carry():
            pass
        self.channel: Channel = self.server.channels[0]

    def carry(self) -> bool:
        """Move octets both ways once."""
        out = b"".join(self.client.data_to_send())
        events = list(self.server.receive_data(out, 0.0)) if out or self.server.has_input else []
        for event in events:
            if isinstance(event, MechanismChosen):
                self.server.authenticated()
            elif isinstance(event, VirtualHostAsked):
                self.server.open_ok()
            elif isinstance(event, ChannelAsked):
                event.channel.open_ok()
        back = b"".join(self.server.data_to_send())
        for told in self.client.receive_data(back, 0.0) if back else ():
            if isinstance(told, MechanismsOffered):
                self.client.start_ok("PLAIN", b"\0u\0p")
        return bool(out or back or self.server.has_input)


def best(rounds: int, run: Callable[[], float]) -> float:
    """Return the best of this many rounds, in microseconds for each message."""
    return min(run() for _ in range(rounds)) / BATCH * 1e6


def publishes(unlike: bool) -> bytes:
    """Return a batch of publishes as a client writes them."""
    output = FrameOutput(131072)
    payload = encode_method(
        BasicPublish(exchange="orders", routing_key="orders.new"), ProtocolVersion.V0_9_1
    )
    for number in range(BATCH):
        octets = encode_properties(
            BasicProperties(
                content_type="application/json",
                delivery_mode=2,
                headers=HEADERS,
                message_id=f"m-{number}" if unlike else None,
            )
        )
        output.write(output.content_frames(1, payload, 60, octets, len(BODY), [BODY]))
    return b"".join(output.take())


def receiving(unlike: bool) -> float:
    """Measure how a server reads a run of publishes."""
    pair = Pair()
    stream = publishes(unlike)
    chunks = [stream[at : at + CHUNK] for at in range(0, len(stream), CHUNK)]

    def run() -> float:
        found: list[Publish] = []
        started = time.process_time()
        for chunk in chunks:
            for event in pair.server.receive_data(chunk, 0.0):
                assert isinstance(event, PublishesReceived)
                found += event.publishes
        taken = time.process_time() - started
        assert len(found) == BATCH
        return taken

    return best(ROUNDS, run)


def delivering() -> tuple[float, float, float]:
    """Measure how a server writes deliveries, and reads acks one by one and for all."""
    pair = Pair()
    octets = encode_properties(
        BasicProperties(content_type="application/json", delivery_mode=2, headers=HEADERS)
    )
    parts = [BODY]
    channel = pair.channel
    send: list[float] = []
    single: list[float] = []
    multiple: list[float] = []
    for turn in range(2 * ROUNDS):
        started = time.process_time()
        for _ in range(BATCH):
            channel.deliver("ctag", "orders", "orders.new", octets, parts)
        pair.server.data_to_send()
        send.append(time.process_time() - started)
        last = channel.unacknowledged.last
        output = FrameOutput(131072)
        tags = range(last - BATCH + 1, last + 1) if turn % 2 else (last,)
        for tag in tags:
            ack = BasicAck(delivery_tag=tag, multiple=not turn % 2)
            output.write((output.method_frame(1, encode_method(ack, ProtocolVersion.V0_9_1)),))
        stream = b"".join(output.take())
        started = time.process_time()
        [event] = pair.server.receive_data(stream, 0.0)
        (single if turn % 2 else multiple).append(time.process_time() - started)
        assert isinstance(event, DeliveriesSettled)
        assert len(event.tags) == BATCH
    return tuple(min(each) / BATCH * 1e6 for each in (send, single, multiple))  # type: ignore[return-value]


def main() -> None:
    """Measure, and print a table."""
    same, unlike = receiving(False), receiving(True)
    send, single, multiple = delivering()
    for name, figure in (
        ("publishes in, same properties", same),
        ("publishes in, other properties", unlike),
        ("deliveries out", send),
        ("acks in, one by one", single),
        ("acks in, one for all", multiple),
    ):
        print(f"0-9-1: {name:36} {figure:6.2f} us per message")
    print("1.0, the same machine:")
    engine.main()


if __name__ == "__main__":
    main()
