# SPDX-License-Identifier: Apache-2.0
"""The traffic of a connection in both directions, as a text for reviewers.

Frames are read by a decoder that is not the product's (`tests.support.plain_decoder`). Each has a
line that says what it is and the whole of its octets below::

    > 0 begin [null, 0u, 10000u, 10000u]
        00000022 02000000 005311c0...

A client's octets begin with ``>``, the broker's with ``<``; between brokers
it is the caller and the called. How the octets are cut into segments is not held.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from uuid import UUID

from tests.support.plain_decoder import (
    Described,
    PlainArray,
    PlainError,
    Symbol,
    decode,
    decode_all,
)

__all__ = ["Transcript", "shown_message"]

NAMES = {
    0x10: "open", 0x11: "begin", 0x12: "attach", 0x13: "flow", 0x14: "transfer",
    0x15: "disposition", 0x16: "detach", 0x17: "end", 0x18: "close", 0x1D: "error",
    0x23: "received", 0x24: "accepted", 0x25: "rejected", 0x26: "released", 0x27: "modified",
    0x28: "source", 0x29: "target", 0x2B: "delete-on-close", 0x2C: "delete-on-no-links",
    0x30: "coordinator", 0x31: "declare", 0x32: "discharge", 0x33: "declared",
    0x34: "transactional-state", 0x40: "sasl-mechanisms", 0x41: "sasl-init",
    0x42: "sasl-challenge", 0x43: "sasl-response", 0x44: "sasl-outcome", 0x70: "header",
    0x71: "delivery-annotations", 0x72: "message-annotations", 0x73: "properties",
    0x74: "application-properties", 0x75: "data", 0x76: "amqp-sequence", 0x77: "amqp-value",
    0x78: "footer",
}  # fmt: skip
LONGEST = 4096
"""Octets of a frame that are shown; of longer ones the digest."""
WIDTH = 48
"""Octets in a line."""


class Transcript:
    """The two directions of one connection, in the order of what was said."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._pending: dict[str, bytes] = {}

    def note(self, text: str) -> None:
        """Say what happens now."""
        self._lines.append(f"-- {text}")

    def said(self, who: str, octets: bytes) -> None:
        """Take octets of one side."""
        octets = self._pending.pop(who, b"") + octets
        while len(octets) >= 8:
            size = 8 if octets.startswith(b"AMQP") else struct.unpack_from(">I", octets)[0]
            if not 8 <= size <= len(octets):
                break
            self._lines += _frame(who, octets[:size])
            octets = octets[size:]
        if octets:
            self._pending[who] = octets

    def text(self) -> str:
        """Return all of it; octets that are no whole frame come last."""
        rest = [
            line
            for who, octets in sorted(self._pending.items())
            for line in (f"{who} octets", *_dump(octets))
        ]
        return "\n".join([*self._lines, *rest, ""])


def shown_message(encoded: bytes) -> str:
    """Return the sections of a message on one line, of which the last may be cut short."""
    shown = []
    offset = 0
    try:
        while offset < len(encoded):
            section, offset = decode(encoded, offset)
            shown.append(_shown(section))
    except PlainError:
        shown.append(encoded[offset:].hex())
    return "; ".join(shown)


def _frame(who: str, octets: bytes) -> Iterator[str]:
    if octets.startswith(b"AMQP"):
        yield f"{who} header {octets[4]} {octets[5]}.{octets[6]}.{octets[7]}"
        yield from _dump(octets)
        return
    _, words, kind, channel = struct.unpack_from(">IBBH", octets)
    body = octets[words * 4 :]
    where = f"{who} {'sasl' if kind else channel}"
    if not body:
        yield f"{where} empty"
    else:
        try:
            performative, end = decode(body)
            said = _shown(performative)
            payload = body[end:]
        except Exception as error:  # a test says things that are no AMQP
            said, payload = f"undecodable: {type(error).__name__}", b""
        yield f"{where} {said}"
        if payload:
            yield from _payload(payload)
    yield from _dump(octets)


def _payload(payload: bytes) -> Iterator[str]:
    try:
        sections = decode_all(payload)
    except Exception:
        yield f"    {len(payload)} octets of a message"
        return
    for section in sections:
        yield f"    {_shown(section)}"


def _dump(octets: bytes) -> Iterator[str]:
    if len(octets) > LONGEST:
        yield f"        {len(octets)} octets, sha256 {hashlib.sha256(octets).hexdigest()}"
        return
    for start in range(0, len(octets), WIDTH):
        yield f"        {octets[start : start + WIDTH].hex()}"


def _shown(value: object) -> str:
    """Write a value shortly and without doubt about its type; integers lose their width."""
    match value:
        case Described(descriptor, inner):
            name = NAMES.get(descriptor) if isinstance(descriptor, int) else None
            return f"{name or _shown(descriptor)} {_shown(inner)}"
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case Symbol():
            return f":{value}"
        case UUID():
            return str(value)
        case bytes() if len(value) > 64:
            return f"b'{value[:16].hex()}...' ({len(value)} octets)"
        case list():
            return f"[{', '.join(_shown(each) for each in value)}]"
        case PlainArray(code, items):
            return f"array 0x{code:02x} [{', '.join(_shown(each) for each in items)}]"
        case dict():
            pairs = (f"{_shown(key)}: {_shown(each)}" for key, each in value.items())
            return f"{{{', '.join(pairs)}}}"
    return repr(value)
