# SPDX-License-Identifier: Apache-2.0
"""The sessions in ``docs/amqp09.md``, frame by frame, from a client and a broker in memory.

Run as ``python -m tests.frontends.amqp09.class_sessions NAME``; it prints the text between the
markers of that session. `tests.frontends.amqp09.test_class_sessions` compares all of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.conformance.frame_broker import Network
from tests.conformance.test_distributed import DistributedCase
from tests.support.client09 import ANN, Client09
from tests.support.plain_amqp09 import IDS, frames, header, method
from tests.support.wire09 import V09, call, content

__all__ = ["SESSIONS", "rendered"]

WIDTH: Final = 32
"""Octets in a line."""


class RecordedClient(Client09):
    """A client of 0-9 that keeps what passes, once `record` was called."""

    passed: list[tuple[str, bytes]] | None = None

    def record(self) -> None:
        """Keep what passes from now on."""
        self.passed = []

    def write(self, *octets: bytes) -> Client09:
        """See `Client09.write`."""
        if self.passed is not None and octets:
            self.passed.append(("C", b"".join(octets)))
        return super().write(*octets)

    def _read(self) -> None:
        if self.passed is not None and self.end.value():
            self.passed.append(("S", self.end.value()))
        super()._read()


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        return repr(value)[1:]
    if isinstance(value, list):
        return "{" + ", ".join(f"{name} {_shown(each)}" for name, _, each in value) + "}"
    return repr(value) if isinstance(value, str) else str(value)


def _words(values: Mapping[str, Any]) -> str:
    named = [
        f"{name} {_shown(value)}" for name, value in values.items() if value not in ("", 0, [])
    ]
    return ", ".join(named)


def _meaning(kind: int, payload: bytes) -> str:
    if kind == 1:
        name, arguments = method(payload)
        return f"{name} {_words(arguments)}".strip()
    if kind == 2:
        _, size, properties = header(payload)
        return f"header, {size} octets: {_words(properties)}".rstrip(": ")
    return f"body {_shown(payload)}"


def rendered(passed: list[tuple[str, bytes]]) -> str:
    """Return a session as text: for each frame who sends it, what it is, and its octets."""
    lines: list[str] = []
    for who, octets in passed:
        for kind, channel, payload in frames(octets):
            lines.append(f"{who}: {_meaning(kind, payload)}")
            head = f"{kind:02x} {channel:04x} {len(payload):08x}"
            pieces = [payload[at : at + WIDTH] for at in range(0, len(payload), WIDTH)] or [b""]
            for number, piece in enumerate(pieces):
                before = head if not number else " " * len(head)
                after = " ce" if piece is pieces[-1] else ""
                lines.append(f"   {before} {piece.hex()}{after}")
    return "\n".join(lines) + "\n"


def _client(version: bytes = V09) -> RecordedClient:
    client = RecordedClient(Network().house(nodes=("q",)), ANN, version)
    client.channel()
    client.record()
    return client


def stream() -> list[tuple[str, bytes]]:
    """Publish two packets, and have them delivered at 8 octets a second."""
    client = _client()
    client.ask("stream.qos", prefetch_count=1, consume_rate=8)
    client.write(
        content(1, "stream.publish", b"packet 1", {"priority": 4}, class_id=80, routing_key="q")
    )
    client.ask("stream.consume", queue="q", consumer_tag="c")
    client.write(content(1, "stream.publish", b"packet 2", class_id=80, routing_key="q"))
    client.run(1.1)
    client.ask("stream.cancel", consumer_tag="c")
    assert client.passed is not None
    return client.passed


def tunnel() -> list[tuple[str, bytes]]:
    """Send a block to all consumers of a node, here to oneself."""
    client = _client()
    client.ask("basic.consume", queue="q", consumer_tag="c")
    properties = {"proxy-name": "q", "data-name": "frame", "broadcast": 1}
    client.write(
        content(
            1,
            "tunnel.request",
            b"\x7e\x01\x7e",
            properties,
            class_id=IDS["tunnel.request"][0],
            meta_data=[("protocol", "S", b"hdlc")],
        )
    )
    assert client.passed is not None
    return client.passed


def dtx() -> list[tuple[str, bytes]]:
    """Publish in a branch, which its manager then prepares and commits."""
    case = DistributedCase()
    case.setUp()
    client = RecordedClient(case.house, ANN, V09)
    client.channel()
    client.record()
    client.ask("dtx.select")
    client.ask("dtx.start", dtx_identifier="7:676c6f62616c:6272616e6368")
    client.write(content(1, "basic.publish", b"work", routing_key="r"))
    assert case.manager.code("prepare") == "OK"
    assert case.manager.code("commit") == "OK"
    client.ask("basic.get", queue="r", no_ack=1)
    passed = client.passed
    assert passed is not None
    return passed


def file() -> list[tuple[str, bytes]]:
    """Stage a file that is cut after its first part, publish it, and have it delivered."""
    house = Network().house(nodes=("q",))
    client = RecordedClient(house, ANN, V09)
    client.channel()
    client.record()
    client.ask("file.open", identifier="f1", content_size=8)
    whole = content(1, "file.stage", b"cut here", {"filename": "f.txt"}, 4, class_id=70)
    client.write(whole[:-12])
    passed = client.passed
    client.hang_up()
    client = RecordedClient(house, ANN, V09)
    client.channel()
    client.passed = passed
    client.ask("file.open", identifier="f1", content_size=8)
    client.write(content(1, "file.stage", b"here", {"filename": "f.txt"}, class_id=70))
    client.write(call(1, "file.publish", routing_key="q", identifier="f1"))
    client.ask("file.consume", queue="q", consumer_tag="c")
    client.write(call(1, "file.open-ok"))
    client.write(call(1, "file.ack", delivery_tag=1))
    client.ask("file.cancel", consumer_tag="c")
    assert passed is not None
    return passed


def message() -> list[tuple[str, bytes]]:
    """Transfer by reference, cut behind a checkpoint; then have it delivered inline."""
    house = Network().house(nodes=("q",))
    client = RecordedClient(house, ANN, V09)
    client.channel()
    client.record()
    client.ask("message.open", reference=b"r")
    client.ask("message.append", reference=b"r", bytes=b"cut ")
    client.ask("message.checkpoint", reference=b"r", identifier="m1")
    passed = client.passed
    client.hang_up()
    client = RecordedClient(house, ANN, V09)
    client.channel()
    client.passed = passed
    client.ask("message.resume", reference=b"s", identifier="m1")
    client.ask("message.append", reference=b"s", bytes=b"here")
    body = (1, b"s")
    client.ask("message.transfer", routing_key="q", delivery_mode=2, message_id="id", body=body)
    client.ask("message.close", reference=b"s")
    client.ask("message.get", queue="q", destination="d")
    client.write(call(1, "message.ok"))
    assert passed is not None
    return passed


SESSIONS: Final[Mapping[str, Callable[[], list[tuple[str, bytes]]]]] = {
    "stream": stream,
    "dtx": dtx,
    "tunnel": tunnel,
    "file": file,
    "message": message,
}
"""By name, what passes in each session."""


def main(name: str) -> int:
    """Print a session."""
    sys.stdout.write(rendered(SESSIONS[name]()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
