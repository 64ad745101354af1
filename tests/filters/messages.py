# SPDX-License-Identifier: Apache-2.0
"""Messages with the sections named by a test, and decimals as on the wire."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from amqproute.message import Message
from amqproute.wire.amqp10 import codec, sections, spec, types

EMPTY_DATA = b"\x00\x53\x75\xa0\x00"


def message(
    application: dict[str, Any] | None = None,
    *,
    header: dict[str, Any] | None = None,
    annotations: dict[str, Any] | None = None,
    properties: dict[str, Any] | None = None,
) -> Message:
    """Encode a message of these sections and an empty body."""
    parts = []
    if header is not None:
        parts.append(sections.encode_header(spec.Header(**header)))
    if annotations is not None:
        parts.append(sections.encode_annotations(spec.SECTION_MESSAGE_ANNOTATIONS, annotations))
    if properties is not None:
        parts.append(codec.encode(spec.Properties(**properties)))
    if application is not None:
        parts.append(sections.encode_section(0x74, application))
    return Message(b"".join((*parts, EMPTY_DATA)))


def decimal64(value: Decimal) -> types.Decimal64:
    """Encode a finite decimal64 in binary integer decimal encoding (IEEE 754 §3.5.2)."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    coefficient = int("".join(map(str, digits)))
    assert coefficient < 10**16
    biased = exponent + 398
    if coefficient < 2**53:
        bits = sign << 63 | biased << 53 | coefficient
    else:
        bits = sign << 63 | 0b11 << 61 | biased << 51 | coefficient & 2**51 - 1
    return types.Decimal64(bits.to_bytes(8, "big"))
