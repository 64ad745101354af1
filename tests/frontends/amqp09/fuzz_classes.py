# SPDX-License-Identifier: Apache-2.0
"""Octets of 0-9 clients of the classes file and message, for `tests.frontends.amqp09.fuzz`."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from tests.support.wire09 import call, content

__all__ = ["CLASS_PIECES"]

Piece = Callable[[random.Random, int], bytes]
NAMES: Final = (b"r", b"s", b"")


def _transfer(chance: random.Random, channel: int) -> bytes:
    body = (1, chance.choice(NAMES)) if chance.random() < 0.4 else (0, b"x" * chance.choice((0, 9)))
    return call(
        channel,
        "message.transfer",
        destination=chance.choice(("", "", "amq.fanout", "none")),
        routing_key=chance.choice(("q", "q", "nowhere", "q@nowhere.test")),
        immediate=chance.randint(0, 1),
        ttl=chance.choice((0, 0, 10, 1 << 63)),
        expiration=chance.choice((0, 0, 5, 1 << 62)),
        priority=chance.choice((0, 9, 255)),
        delivery_mode=chance.randint(0, 3),
        security_token=b"\0" * chance.choice((0, 3)),
        application_headers=[("CC", "A", [("S", b"q")])][: chance.randint(0, 1)],
        body=body,
    )


def _by_reference(chance: random.Random, channel: int) -> bytes:
    """A whole message by reference, in an order that a client may choose."""
    name = chance.choice(NAMES)
    transfer = call(channel, "message.transfer", routing_key="q", body=(1, name))
    parts = [
        call(channel, "message.append", reference=name, bytes=b"x" * chance.choice((0, 50, 4000)))
        for _ in range(chance.randint(0, 4))
    ]
    parts.insert(chance.randint(0, len(parts)), transfer)
    if chance.random() < 0.5:
        saved = call(channel, "message.checkpoint", reference=name, identifier="i")
        parts.insert(chance.randint(0, len(parts)), saved)
    begin = call(channel, "message.open", reference=name)
    if chance.random() < 0.3:
        begin = call(channel, "message.resume", reference=name, identifier="i")
    return begin + b"".join(parts) + call(channel, "message.close", reference=name)


def _answer(chance: random.Random, channel: int) -> bytes:
    name = chance.choice(("ok", "ok", "ok", "reject", "empty", "offset"))
    more = {"code": chance.randint(0, 2)} if name == "reject" else {}
    return b"".join(call(channel, f"message.{name}", **more) for _ in range(chance.randint(1, 3)))


def _file(chance: random.Random, channel: int) -> bytes:
    """A whole file, or one that lacks something."""
    identifier = chance.choice(("one", "two", ""))
    size = chance.choice((0, 10, 2000, 9000, 100_000))
    staged = chance.choice((size, size, size, size // 2, size + 1))
    properties = {"filename": "f", "priority": 3} if chance.random() < 0.5 else None
    body = b"x" * min(staged, 20_000)
    parts = [
        call(channel, "file.open", identifier=identifier, content_size=size),
        content(channel, "file.stage", body, properties, chance.choice((100, 3000)), class_id=70),
        call(
            channel,
            "file.publish",
            routing_key=chance.choice(("q", "q", "nowhere", "q@nowhere.test")),
            mandatory=chance.randint(0, 1),
            immediate=chance.randint(0, 1),
            identifier=identifier,
        ),
    ]
    if chance.random() < 0.3:
        del parts[chance.randrange(len(parts))]
    return b"".join(parts)


def _open_ok(chance: random.Random, channel: int) -> bytes:
    return call(channel, "file.open-ok", staged_size=chance.choice((0, 0, 5, 1 << 40)))


def _plain(name: str, **arguments: object) -> Piece:
    return lambda _, channel: call(channel, name, **arguments)


CLASS_PIECES: Final[Sequence[Piece]] = (
    _transfer,
    _transfer,
    _by_reference,
    _by_reference,
    _answer,
    _answer,
    _file,
    _file,
    _open_ok,
    _open_ok,
    _plain("message.consume", queue="q", destination="m"),
    _plain("message.consume", queue="q", no_ack=1),
    _plain("message.cancel", destination="m"),
    _plain("message.get", queue="q", destination="g"),
    _plain("message.recover", requeue=1),
    _plain("message.recover"),
    _plain("message.qos", prefetch_count=2, prefetch_size=5),
    _plain("file.qos", prefetch_count=2),
    _plain("file.consume", queue="q", consumer_tag="f"),
    _plain("file.consume", queue="q", no_ack=1),
    _plain("file.cancel", consumer_tag="f"),
    _plain("file.ack", delivery_tag=0, multiple=1),
    _plain("file.reject", delivery_tag=1, requeue=1),
)
