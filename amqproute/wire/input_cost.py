# SPDX-License-Identifier: Apache-2.0
"""The cost of processing input, in units of work.

An engine counts units as it takes frames, and stops when it has spent what its caller allows. A
unit is about a microsecond of one processor of 2024, for the engine and the broker behind it
together. The count depends on the input alone, so that tests can rely on it; whoever owns a clock
corrects it by what it measures (`amqproute.net.connection_scheduler`).

The weights are those of `benchmarks/engine.py` and of attacks on a whole daemon, rounded up.
"""

from __future__ import annotations

from typing import Final

SLICE: Final = 4_000
"""Units that one connection may spend before others have their chance."""

FRAME: Final = 2
"""Any frame: its header, and finding out that it has nothing to say."""
RECORD: Final = 10
"""A TLS record: decrypting it, whatever it holds."""
OPEN: Final = 300
BEGIN: Final = 150
END: Final = 100
ATTACH: Final = 500
DETACH: Final = 200
FLOW: Final = 20
ECHO: Final = 30
"""The flow that a peer asks for with a flow, besides."""
DISPOSITION: Final = 15
SETTLED: Final = 10
"""Each delivery that a disposition changes."""
LOOKED_AT_PER_UNIT: Final = 8
"""Delivery-ids that a disposition has looked up."""
DELIVERY: Final = 4
"""The transfer that completes a delivery. It costs more, but many of them in one slice are one
batch and one commit, and links bound their number by credit."""
OCTETS_PER_UNIT: Final = 512
"""Octets of messages."""
DECODED_PER_UNIT: Final = 8
"""Octets of a performative that is decoded the generic way."""
FILTER: Final = 250
"""Each filter of a source."""
SELECTOR_PER_CHARACTER: Final = 2

CUT: Final = 256
"""Frames that are decoded ahead of being taken."""
CUT_GENERIC: Final = 16
"""As how many of these counts a frame that is decoded the generic way."""
CUT_OCTETS: Final = 64
"""As one more counts each run of so many octets of its body: a map of thousands of keys takes
longer to decode than all frames of a slice that are small."""

MOST_UNHEARD: Final = 16 * 1024 * 1024
"""Octets that are read and dropped after our close, so that the peer's may still be found behind
what was on its way."""

FRUITLESS_FRAMES: Final = 20_000
"""Frames without progress that a peer may send within `FRUITLESS_SECONDS`."""
FRUITLESS_SECONDS: Final = 10.0
FRUITLESS_PER_DELIVERY: Final = 16
"""Frames without progress that each delivery makes good."""

__all__ = [
    "ATTACH",
    "BEGIN",
    "CUT",
    "CUT_GENERIC",
    "CUT_OCTETS",
    "DECODED_PER_UNIT",
    "DELIVERY",
    "DETACH",
    "DISPOSITION",
    "ECHO",
    "END",
    "FILTER",
    "FLOW",
    "FRAME",
    "FRUITLESS_FRAMES",
    "FRUITLESS_PER_DELIVERY",
    "FRUITLESS_SECONDS",
    "LOOKED_AT_PER_UNIT",
    "MOST_UNHEARD",
    "OCTETS_PER_UNIT",
    "OPEN",
    "RECORD",
    "SELECTOR_PER_CHARACTER",
    "SETTLED",
    "SLICE",
]
