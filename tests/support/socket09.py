# SPDX-License-Identifier: Apache-2.0
"""A blocking client of 0-9 and 0-9-1 for daemons; it reads and writes by `plain_amqp09` alone."""

from __future__ import annotations

import socket
from typing import Any

from tests.support.patience import PATIENCE
from tests.support.plain_amqp09 import FLAGS, IDS, frames, header, method
from tests.support.wire09 import V09, call, content

__all__ = ["Socket09"]


class Socket09:
    """One connection with channel 1 open.

    Args:
        port: of the daemon, on this machine.
        version: the header.
        response: for PLAIN; None logs in by ANONYMOUS.
    """

    def __init__(self, port: int, version: bytes = V09, response: bytes | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._data = b""
        self._open: list[Any] = []
        self.write(version)
        self.wait("connection.start")
        mechanism = "ANONYMOUS" if response is None else "PLAIN"
        self.write(
            call(
                0,
                "connection.start-ok",
                mechanism=mechanism,
                response=response or b"",
                locale="en_US",
            )
        )
        self.wait("connection.tune")
        self.write(
            call(0, "connection.tune-ok", channel_max=0, frame_max=0, heartbeat=0),
            call(0, "connection.open", virtual_host="/"),
            call(1, "channel.open"),
        )
        self.wait("channel.open-ok")

    def close(self) -> None:
        """Cut the connection."""
        self.socket.close()

    def write(self, *octets: bytes) -> None:
        """Write octets."""
        self.socket.sendall(b"".join(octets))

    def put(
        self, name: str, body: bytes, properties: dict[str, Any] | None = None, **arguments: Any
    ) -> None:
        """Send a content."""
        self.write(content(1, name, body, properties, class_id=IDS[name][0], **arguments))

    def ask(self, name: str, answer: str, **arguments: Any) -> dict[str, Any]:
        """Send a method; return the arguments of its answer."""
        self.write(call(1, name, **arguments))
        return self.wait(answer)[0]

    def wait(self, name: str) -> tuple[dict[str, Any], dict[str, Any], bytes]:
        """Read up to a method; return its arguments, and properties and body if it has them.

        Raises:
            AssertionError: the broker closes channel or connection instead, or hangs up.
        """
        while True:
            found, arguments = method(self._frame(1))
            properties: dict[str, Any] = {}
            body = b""
            if "content" in FLAGS[found]:
                _, size, properties = header(self._frame(2))
                while len(body) < size:
                    body += self._frame(3)
            if found == name:
                return arguments, properties, body
            assert not found.endswith(".close"), (name, found, arguments)

    def _frame(self, expected: int) -> bytes:
        while True:
            if len(self._data) >= 7:
                size = 8 + int.from_bytes(self._data[3:7], "big")
                if len(self._data) >= size:
                    ((kind, _, payload),) = frames(self._data[:size])
                    self._data = self._data[size:]
                    if kind == 8:
                        continue
                    assert kind == expected, (kind, expected)
                    return payload
            data = self.socket.recv(65_536)
            assert data, "the broker has hung up"
            self._data += data
