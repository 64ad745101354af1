# SPDX-License-Identifier: Apache-2.0
"""One publish of each class of AMQP 0-9, for tests in which all of them have to be alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.support.plain_amqp09 import IDS
from tests.support.wire09 import call, content

__all__ = ["CLASSES", "PUBLISHES", "SHOWN", "consumed_by"]


def _content(name: str, key: str, body: bytes, properties: dict[str, Any], **more: Any) -> bytes:
    return content(1, name, body, properties, class_id=IDS[name][0], routing_key=key, **more)


def _basic(key: str, body: bytes, **properties: Any) -> tuple[bytes, ...]:
    return (_content("basic.publish", key, body, {"delivery-mode": 2, **properties}),)


def _message(key: str, body: bytes, **properties: Any) -> tuple[bytes, ...]:
    given = {"priority": 4, **properties}  # a transfer without one has 0, others the middle one
    more = {name.replace("-", "_"): value for name, value in given.items()}
    octets = call(1, "message.transfer", routing_key=key, delivery_mode=2, body=(0, body), **more)
    return (octets,)


def _file(key: str, body: bytes, **properties: Any) -> tuple[bytes, ...]:
    name = body.hex()[:32]
    return (
        call(1, "file.open", identifier=name, content_size=len(body)),
        content(1, "file.stage", body, properties, class_id=70),
        call(1, "file.publish", routing_key=key, identifier=name),
    )


def _stream(key: str, body: bytes, **properties: Any) -> tuple[bytes, ...]:
    return (_content("stream.publish", key, body, properties),)


def _tunnel(key: str, body: bytes, **properties: Any) -> tuple[bytes, ...]:
    given = {"proxy-name": key, "durable": 1, **properties}
    return (content(1, "tunnel.request", body, given, class_id=110),)


PUBLISHES: Final[Mapping[str, Callable[..., tuple[bytes, ...]]]] = {
    "basic": _basic,
    "message": _message,
    "file": _file,
    "stream": _stream,
    "tunnel": _tunnel,
}
"""By class: what a client writes on channel 1, step by step, to publish a body to an address."""
CLASSES: Final = tuple(PUBLISHES)
SHOWN: Final = {name: name for name in ("file", "stream", "tunnel")}
"""The classes that a message shows; those that are not here look like basic."""


def consumed_by(name: str) -> tuple[str, dict[str, Any]]:
    """Return the method that consumes a class on 0-9, and its arguments besides the queue."""
    if name in ("basic", "tunnel"):
        return "basic.consume", {"consumer_tag": "c"}
    if name == "message":
        return "message.consume", {"destination": "c"}
    return f"{name}.consume", {"consumer_tag": "c"}
