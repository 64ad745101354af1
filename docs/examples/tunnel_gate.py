# SPDX-License-Identifier: Apache-2.0
"""Carry connections of any TCP protocol through two organizations, by tunnel.request of AMQP 0-9.

    python tunnel_gate.py listen  127.0.0.1:8080 gate  gate@beta.example  < alpha.url
    python tunnel_gate.py connect 127.0.0.1:80   gate  gate@alpha.example < beta.url

The first line of the input is the URL of the own broker, amqp://USER:PASSWORD@HOST:PORT; without a
user it logs in by ANONYMOUS. Each side has a queue at its broker, here ``gate``, and sends to that
of the other side. ``listen`` accepts connections there; ``connect`` makes one for each of them. A
block of octets is one request; its data-name says of which connection it is, and an empty block
that it has ended.
"""

from __future__ import annotations

import selectors
import socket
import sys
import time
from itertools import count
from urllib.parse import urlsplit

from amqproute.wire.amqp09 import protocol_events as ev
from amqproute.wire.amqp09.arguments import encode_properties
from amqproute.wire.amqp09.channel import Channel
from amqproute.wire.amqp09.connection09 import Connection09
from amqproute.wire.amqp09.connection_settings import Connection09Settings
from amqproute.wire.amqp09.field_tables import FieldTable
from amqproute.wire.amqp09.methods import (
    BasicConsume,
    BasicConsumeOk,
    TunnelProperties,
    TunnelRequest,
)
from amqproute.wire.amqp09.versions import ProtocolVersion

BLOCK = 65_536


class Gate:
    """One end of the tunnel."""

    def __init__(self, url: str, queue: str, other: str) -> None:
        parts = urlsplit(url)
        self.user, self.password = parts.username, parts.password
        self.queue, self.other = queue, other
        self.socket = socket.create_connection((parts.hostname, parts.port or 5672))
        self.engine = Connection09(
            Connection09Settings(role="client", version=ProtocolVersion.V0_9, heartbeat=0)
        )
        self.channel: Channel | None = None
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.socket, selectors.EVENT_READ, self.from_broker)
        self.ends: dict[str, socket.socket] = {}
        self.target: tuple[str, int] | None = None
        self.engine.start(time.monotonic())
        self.flush()

    def flush(self) -> None:
        """Write what the engine has to say."""
        self.socket.sendall(b"".join(self.engine.data_to_send()))

    def run(self) -> None:
        """Work until the broker closes the connection."""
        while True:
            for key, _ in self.selector.select():
                key.data()
            self.flush()

    # -- the broker ------------------------------------------------------------------------------

    def from_broker(self) -> None:
        """Read from the broker."""
        data, now = self.socket.recv(BLOCK), time.monotonic()
        events = self.engine.receive_data(data, now) if data else self.engine.receive_eof(now)
        for event in events:
            self.handle(event)

    def handle(self, event: object) -> None:
        """Act on what the broker has said."""
        match event:
            case ev.MechanismsOffered():
                if self.user is None:
                    self.engine.start_ok("ANONYMOUS", b"")
                else:
                    self.engine.start_ok("PLAIN", f"\0{self.user}\0{self.password}".encode())
            case ev.ConnectionOpened():
                self.channel = self.engine.open_channel()
            case ev.ChannelOpened(channel=channel):
                channel.send(BasicConsume(queue=self.queue, no_ack=True))
            case ev.MethodReceived(method=BasicConsumeOk()):
                print("ready", flush=True)
            case ev.ContentsReceived(contents=contents):
                for each in contents:
                    assert isinstance(each.properties, TunnelProperties)
                    self.to_socket(each.properties.data_name or "", each.body)
            case ev.ChannelEnded(text=text) | ev.ConnectionEnded(text=text):
                raise SystemExit(f"the broker says: {text}")

    def to_broker(self, name: str, block: bytes) -> None:
        """Send a block of a connection to the other side."""
        assert self.channel is not None
        properties = TunnelProperties(proxy_name=self.other, data_name=name, durable=1)
        meta_data = FieldTable({"from": self.queue})
        request = TunnelRequest(meta_data=meta_data)
        self.channel.send_content(request, encode_properties(properties), [block])

    # -- the other protocol ----------------------------------------------------------------------

    def listen(self, address: tuple[str, int]) -> None:
        """Accept connections."""
        listener, names = socket.create_server(address), count(1)

        def accept() -> None:
            self.add(f"{time.time():.0f}-{next(names)}", listener.accept()[0])

        self.selector.register(listener, selectors.EVENT_READ, accept)

    def add(self, name: str, end: socket.socket) -> None:
        """Carry a connection."""
        self.ends[name] = end
        self.selector.register(end, selectors.EVENT_READ, lambda: self.from_socket(name))

    def from_socket(self, name: str) -> None:
        """Read from a connection; an empty block tells the other side of its end."""
        block = self.ends[name].recv(BLOCK)
        self.to_broker(name, block)
        if not block:
            self.remove(name)

    def to_socket(self, name: str, block: bytes) -> None:
        """Write a block to a connection, which is made for the first one."""
        if name not in self.ends and block and self.target is not None:
            self.add(name, socket.create_connection(self.target))
        end = self.ends.get(name)
        if end is not None and block:
            end.sendall(block)
        elif end is not None:
            self.remove(name)

    def remove(self, name: str) -> None:
        """Forget a connection."""
        end = self.ends.pop(name)
        self.selector.unregister(end)
        end.close()


def main(verb: str, place: str, queue: str, other: str) -> None:
    """Run one side."""
    gate = Gate(sys.stdin.readline().strip(), queue, other)
    host, _, port = place.rpartition(":")
    if verb == "listen":
        gate.listen((host, int(port)))
    else:
        gate.target = (host, int(port))
    gate.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
