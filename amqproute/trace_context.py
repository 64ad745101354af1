# SPDX-License-Identifier: Apache-2.0
"""The trace context of a message (W3C Trace Context): read from it, written for the next hop.

A client puts ``traceparent`` among the application properties (AMQP 0-9-1: the headers). Brokers of
this make pass the context on in the message annotation ``x-opt-traceparent``, because no hop may
change the bare message. The annotation is newer, so it is in force where both are there.

Only with tracing switched on is any of this called for a message.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import blake2b
from typing import Final, NamedTuple

from amqproute.entry import Entry
from amqproute.errors import DecodeError
from amqproute.message import Message
from amqproute.wire.amqp10 import sections
from amqproute.wire.amqp10.types import Symbol

__all__ = [
    "CONTEXT_OCTETS",
    "KEY_OCTETS",
    "RANDOM",
    "SAMPLED",
    "TRACEPARENT",
    "HopTracing",
    "TraceContext",
    "TraceIds",
    "context_of",
    "is_within_rate",
    "parse_traceparent",
]

TRACEPARENT: Final = Symbol("x-opt-traceparent")
"""The message annotation that carries the context between brokers of this make."""
PROPERTY: Final = "traceparent"
"""The application property, or header of 0-9-1, in which clients give it."""

SAMPLED: Final = 0x01
"""Trace flag: whoever is upstream records the trace (W3C Trace Context, section 3.2.2.5.1)."""
RANDOM: Final = 0x02
"""Trace flag: at least the last seven octets of the trace id are random (level 2)."""
KNOWN_FLAGS: Final = SAMPLED | RANDOM

CONTEXT_OCTETS: Final = 55
"""The length of a traceparent of version 00."""
LONGEST: Final = 512
"""A traceparent of a later version may be longer than this one's; beyond this it is ignored."""
KEY_OCTETS: Final = 32
"""The length of the secret of `TraceIds`."""

_FORM: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.S)
_ANNOTATION: Final = TRACEPARENT.encode()
_PROPERTY: Final = PROPERTY.encode()
_SPACE: Final = 1 << 56


class TraceContext(NamedTuple):
    """A valid context.

    Attributes:
        trace_id: 32 lower-case hexadecimal digits, not all 0.
        parent_id: of the span upstream; 16 digits, not all 0.
        flags: `SAMPLED`, `RANDOM`.
    """

    trace_id: str
    parent_id: str
    flags: int

    @property
    def is_sampled(self) -> bool:
        """Whether whoever is upstream records the trace."""
        return bool(self.flags & SAMPLED)

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.parent_id}-{self.flags:02x}"


def parse_traceparent(text: object) -> TraceContext | None:
    """Return the context in a traceparent; None for everything that is not a valid one.

    Section 3.2 and 4.3 of W3C Trace Context: version ff, upper-case digits and ids of zeros are
    invalid; version 00 has exactly 55 characters; a later version may have more behind a hyphen,
    and is read as far as this one goes.
    """
    if not isinstance(text, str) or not CONTEXT_OCTETS <= len(text) <= LONGEST:
        return None
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    version, trace_id, parent_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more is not None):
        return None
    if not trace_id.strip("0") or not parent_id.strip("0"):
        return None
    return TraceContext(trace_id, parent_id, int(flags, 16) & KNOWN_FLAGS)


def context_of(message: Message) -> TraceContext | None:
    """Return the context in force for a message, without its caches; None for none.

    It can be called on any thread. What is invalid, twice there, or in a message that cannot be
    decoded, is ignored.
    """
    encoded = message.encoded
    try:
        offsets = message.located or sections.locate(encoded)
        start, end = offsets.message_annotations_start, offsets.message_annotations_end
        if encoded.find(_ANNOTATION, start, end) >= 0:
            annotations = sections.decode_section(encoded, start, end)
            context = parse_traceparent(annotations.get(TRACEPARENT))
            if context is not None:
                return context
        start, end = offsets.application_properties_start, offsets.application_properties_end
        if encoded.find(_PROPERTY, start, end) >= 0:
            properties = sections.decode_section(encoded, start, end)
            return parse_traceparent(properties.get(PROPERTY))
    except DecodeError:
        pass
    return None


def is_within_rate(trace_id: str, rate: float) -> bool:
    """Return whether a trace is one of those that a sampling rate keeps.

    The last seven octets of the id decide, as in OpenTelemetry's consistent sampling: everybody who
    samples at this rate or a higher one keeps the trace too.

    Args:
        trace_id: of it.
        rate: 0 to 1.
    """
    return int(trace_id[-14:], 16) >= _SPACE - round(rate * _SPACE)


class TraceIds:
    """Ids of the spans of this broker, derived from its entries and a secret.

    The relay writes the id of a span on a message before the span exists: spans are made from the
    journal when the message's story is known. Both ends derive the id, and nothing about it has to
    be kept with the message, or found again after a restart.

    Args:
        key: `KEY_OCTETS` random octets, the same after a restart.
        rate: returns the sampling rate in force.
    """

    def __init__(self, key: bytes, rate: Callable[[], float]) -> None:
        self._key = key
        self._rate = rate

    def trace_id(self, stream: str, entry_id: int) -> str:
        """Return the id of the trace that begins with an entry whose message has no context."""
        return self._derived(16, "trace", stream, entry_id)

    def span_id(self, stage: str, stream: str, entry_id: int, number: int = 0) -> str:
        """Return the id of a span of an entry.

        Args:
            stage: what the span is about.
            stream: the store's name.
            entry_id: of the entry.
            number: distinguishes spans of one stage.
        """
        return self._derived(8, stage, stream, entry_id, number)

    def started(self, stream: str, entry_id: int) -> TraceContext:
        """Return the context of a trace that begins here; the parent is the span "publish"."""
        trace_id = self.trace_id(stream, entry_id)
        sampled = SAMPLED if is_within_rate(trace_id, self._rate()) else 0
        return TraceContext(trace_id, self.span_id("publish", stream, entry_id), RANDOM | sampled)

    def outgoing(self, stream: str, entry: Entry) -> str:
        """Return the traceparent for the next hop: its parent is the span "relay" of the entry."""
        context = context_of(entry.message) or self.started(stream, entry.id)
        parent_id = self.span_id("relay", stream, entry.id)
        return str(TraceContext(context.trace_id, parent_id, context.flags))

    def _derived(self, octets: int, *facts: str | int) -> str:
        text = "/".join(map(str, facts)).encode()
        digest = blake2b(text, digest_size=octets, key=self._key).hexdigest()
        return digest if digest.strip("0") else digest[:-1] + "1"


class HopTracing(NamedTuple):
    """What becomes of the context of messages on their way to a peer.

    Attributes:
        is_kept: the peer may see it; otherwise the annotation is removed.
        ids: write the context of our own spans; None without tracing: then the annotation, if
            there is one, is passed on as it is.
    """

    is_kept: bool = False
    ids: TraceIds | None = None


DROPPED: Final = HopTracing()
"""Nothing is passed on: the default."""
