# SPDX-License-Identifier: Apache-2.0
"""Staged files and open references of AMQP 0-9 after kill -9, over raw frames."""

from __future__ import annotations

import os
import random
import socket
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.amqp09 import PASSWORD, USER, tls_context
from tests.integration.support import Daemon
from tests.support.patience import PATIENCE
from tests.support.plain_amqp09 import frames, header, method
from tests.support.wire09 import V09, call, content

KILLS = int(os.environ.get("AMQPROUTE_STAGING_KILLS", "2"))
"""The number of kills while a client stages."""
MEBIBYTE = 1 << 20


class RawClient:
    """A blocking client of 0-9, which knows frames only."""

    def __init__(self, daemon: Daemon) -> None:
        plain = socket.create_connection(("127.0.0.1", daemon.tls), PATIENCE)
        self._socket = tls_context().wrap_socket(plain, server_hostname=daemon.name)
        self._data = b""
        self.write(V09)
        self.take("connection.start")
        response = f"\0{USER}\0{PASSWORD}".encode()
        self.write(
            call(0, "connection.start-ok", mechanism="PLAIN", response=response, locale="en_US")
        )
        self.take("connection.tune")
        self.write(
            call(0, "connection.tune-ok", channel_max=0, frame_max=131072, heartbeat=0),
            call(0, "connection.open", virtual_host="/"),
        )
        self.take("connection.open-ok")
        self.ask("channel.open")

    def write(self, *octets: bytes) -> None:
        self._socket.sendall(b"".join(octets))

    def frame(self) -> tuple[int, bytes]:
        """Return type and payload of the next frame."""
        while len(self._data) < 7 or len(self._data) < 8 + int.from_bytes(self._data[3:7], "big"):
            more = self._socket.recv(1 << 18)
            if not more:
                raise EOFError
            self._data += more
        size = 8 + int.from_bytes(self._data[3:7], "big")
        ((kind, _, payload),) = frames(self._data[:size])
        self._data = self._data[size:]
        return kind, payload

    def take(self, name: str) -> dict[str, Any]:
        """Return the arguments of the next method, which has to be of this name."""
        kind, payload = self.frame()
        found, arguments = method(payload)
        if (kind, found) != (1, name):
            raise AssertionError(f"{found} {arguments} instead of {name}")
        return arguments

    def ask(self, name: str, answer: str = "", **arguments: Any) -> dict[str, Any]:
        self.write(call(1, name, **arguments))
        return self.take(answer or f"{name}-ok")

    def content(self) -> bytes:
        """Return the body of the content whose method has been taken."""
        _, payload = self.frame()
        _, size, _ = header(payload)
        body = bytearray()
        while len(body) < size:
            body += self.frame()[1]
        return bytes(body)

    def close(self) -> None:
        self._socket.close()


class StagingCrashTests(SynchronousTestCase):
    """A daemon that is killed while clients stage."""

    def daemon(self) -> Daemon:
        daemon = Daemon("alpha.example").start()
        self.addCleanup(daemon.stop)
        return daemon

    def test_kill(self) -> None:
        """Confirmed publishes are there, contents continue, and nothing comes twice."""
        daemon = self.daemon()
        chance = random.Random(17)
        client = RawClient(daemon)
        client.ask("queue.declare", queue="q", durable=1)
        confirmed: list[bytes] = []
        for number in range(KILLS):
            body = chance.randbytes(3 * MEBIBYTE)
            saved = self.reference(client, body, number)
            confirmed += self.transfers(client, number)
            self.assertEqual(client.ask("file.open", identifier="f", content_size=len(body)),
                             {"staged-size": 0})  # fmt: skip
            whole = content(1, "file.stage", body, {"filename": "f"}, 100_000, class_id=70)
            client.write(whole[: chance.randrange(MEBIBYTE, len(whole))])
            self.settle(daemon)
            daemon.kill()
            client.close()
            daemon.start()
            client = RawClient(daemon)
            at = client.ask("message.resume", "message.offset", reference=b"r", identifier="i")
            self.assertEqual(at["value"], saved)
            self.finish(client, body, saved)
            at = client.ask("file.open", identifier="f", content_size=len(body))
            staged = at["staged-size"]
            self.assertEqual(staged % 100_000, 0)
            client.write(content(1, "file.stage", body[staged:], None, 100_000, class_id=70))
            client.write(call(1, "file.publish", routing_key="q", identifier="f"))
            client.ask("file.consume", queue="q", consumer_tag="c", no_ack=1)
            self.assertEqual(client.take("file.open")["content-size"], len(body))
            client.write(call(1, "file.open-ok", staged_size=0))
            client.take("file.stage")
            self.assertEqual(client.content() == body, True)
            client.take("file.deliver")
            client.ask("file.cancel", consumer_tag="c")
            found = self.taken(client, len(confirmed) + 1)
            self.assertEqual(found[:-1], confirmed)
            self.assertEqual(found[-1] == body, True)
            confirmed = []
            client.close()
            client = RawClient(daemon)

    def reference(self, client: RawClient, body: bytes, number: int) -> int:
        """Append by reference, with checkpoints; return what the last one saved."""
        client.ask("message.open", "message.ok", reference=b"r")
        saved = 0
        for at in range(0, 2 * MEBIBYTE, 100_000):
            part = body[at : at + 100_000]
            client.ask("message.append", "message.ok", reference=b"r", bytes=part)
            if at % 300_000 == 0:
                saved = at + len(part)
                client.ask("message.checkpoint", "message.ok", reference=b"r", identifier="i")
        return saved

    def transfers(self, client: RawClient, number: int) -> list[bytes]:
        """Publish inline; return what was confirmed."""
        confirmed = []
        for each in range(20):
            body = b"%d.%d" % (number, each)
            more: dict[str, Any] = {"routing_key": "q", "delivery_mode": 2, "body": (0, body)}
            client.ask("message.transfer", "message.ok", **more)
            confirmed.append(body)
        return confirmed

    def settle(self, daemon: Daemon) -> None:
        """Have another connection answered, so that the daemon has read what was sent before."""
        other = RawClient(daemon)
        other.ask("queue.declare", queue="q", durable=1)
        other.close()

    def finish(self, client: RawClient, body: bytes, saved: int) -> None:
        """Append the rest, and publish."""
        for at in range(saved, len(body), 100_000):
            part = body[at : at + 100_000]
            client.ask("message.append", "message.ok", reference=b"r", bytes=part)
        more: dict[str, Any] = {"routing_key": "q", "delivery_mode": 2, "body": (1, b"r")}
        client.write(call(1, "message.transfer", **more))
        client.ask("message.close", "message.ok", reference=b"r")
        client.take("message.ok")

    def taken(self, client: RawClient, number: int) -> list[bytes]:
        """Take all messages by message.consume, answering what comes."""
        client.ask("message.consume", "message.ok", queue="q", destination="m")
        found: list[bytes] = []
        body, is_reference = b"", 0
        while len(found) < number:
            _, payload = client.frame()
            name, arguments = method(payload)
            if name == "message.append":
                body += arguments["bytes"]
            elif name == "message.transfer":
                is_reference, octets = arguments["body"]
                found.append(body if is_reference else octets)
                body = b""
            if name != "message.close":
                client.write(call(1, "message.ok"))
        if is_reference:
            client.take("message.close")
            client.write(call(1, "message.ok"))
        client.ask("message.cancel", "message.ok", destination="m")
        return found

    def test_constant_memory(self) -> None:
        """A body of 256 MiB by reference takes no more memory than one of 32 MiB."""
        daemon = self.daemon()
        client = RawClient(daemon)
        client.ask("queue.declare", queue="q", durable=1)
        used = []
        for size in (32, int(os.environ.get("AMQPROUTE_STAGING_MEBIBYTES", "256"))):
            client.ask("message.open", "message.ok", reference=b"r")
            part = b"x" * 120_000
            for _ in range(size * MEBIBYTE // len(part)):
                client.ask("message.append", "message.ok", reference=b"r", bytes=part)
            client.write(call(1, "message.transfer", routing_key="q", body=(1, b"r")))
            client.ask("message.close", "message.ok", reference=b"r")
            client.take("message.ok")
            used.append(daemon.resident())
        self.assertLess(used[1] - used[0], 24 * MEBIBYTE)
