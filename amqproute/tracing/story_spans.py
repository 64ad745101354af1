# SPDX-License-Identifier: Apache-2.0
"""The spans of a story.

Names and attributes are those of OpenTelemetry's semantic conventions for messaging, which are in
development; the constants here are as they stand in version 1.44. ``amqproute.*`` is our own.

::

    publish NODE                   taken from a client or peer, until it could be answered
      route NODE                   put on a node: the message itself, or a copy
      store NODE                   the commit, if it is durable
      relay DOMAIN                 from its arrival on the relay queue to its end there
        attempt DOMAIN             a connection attempt, or a hand-over with its outcome
      deliver NODE                 in the hands of a consumer
      reject, expire, ... NODE     how it ended otherwise

The parent of "publish" is the span in the message's trace context: the client's, or the "relay" of
the broker before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from amqproute.journal.record import BEGINS, JournalRecord, RecordKind
from amqproute.trace_context import TraceContext, TraceIds
from amqproute.tracing.sampling import SamplingReason
from amqproute.tracing.span_queue import AttributeValue, SpanFacts, SpanKindName
from amqproute.tracing.story import FAILURES, Story
from amqproute.values import RELAY_PREFIX

__all__ = ["SYSTEM", "story_spans"]

SYSTEM: Final = "amqproute"
"""The value of ``messaging.system``."""

_OPERATIONS: Final = {
    RecordKind.REJECTED: "reject",
    RecordKind.EXPIRED: "expire",
    RecordKind.DEAD_LETTERED: "dead-letter",
    RecordKind.RETURNED: "return",
    RecordKind.DELETED: "delete",
}
"""The operation with which an entry ends that is neither relayed nor delivered."""
_TYPES: Final = {
    "relay": "send",
    "attempt": "send",
    **dict.fromkeys(_OPERATIONS.values(), "settle"),
}
"""``messaging.operation.type``, where the conventions have one that fits."""

Attempts = Callable[[str, int, int], Sequence[JournalRecord]]
"""See `amqproute.tracing.story.Stories.attempts`."""


def story_spans(
    story: Story, ids: TraceIds, attempts: Attempts, reason: SamplingReason
) -> list[SpanFacts]:
    """Return the spans of a story, parents first.

    Args:
        story: the story.
        ids: names the spans.
        attempts: returns connection attempts.
        reason: why it is exported.
    """
    return [*_StorySpans(story, ids, attempts).all(reason)]


class _StorySpans:
    """Makes the spans of one story."""

    def __init__(self, story: Story, ids: TraceIds, attempts: Attempts) -> None:
        self._story = story
        self._ids = ids
        self._attempts = attempts
        self._stream, self._root = story.root
        self._publish = ids.span_id("publish", self._stream, self._root)
        self._there: dict[int, JournalRecord] = {}  # entry -> its arrival on the present node

    def all(self, reason: SamplingReason) -> Iterator[SpanFacts]:
        story = self._story
        yield self._published(reason)
        for number, record in enumerate(story.records):
            if record.kind in BEGINS:
                yield from self._arrived(record, number)
            elif _is_relay(record.node):
                yield from self._at_relay(record, number)
            else:
                yield from self._at_node(record, number)

    def _published(self, reason: SamplingReason) -> SpanFacts:
        story, first = self._story, self._story.first
        attributes = self._facts("publish", first)
        attributes["amqproute.sampling.reason"] = reason.value
        if story.omitted:
            attributes["amqproute.records.omitted"] = story.omitted
        if not story.is_over:
            attributes["amqproute.unfinished"] = True
        _add(attributes, "amqproute.sender", first.sender)
        _add(attributes, "amqproute.origin", first.origin)
        is_received = first.kind == RecordKind.RECEIVED
        return SpanFacts(
            f"publish {_destination(first)}",
            self._context(self._publish),
            story.context.parent_id if story.has_parent else None,
            True,
            SpanKindName.SERVER if is_received else SpanKindName.INTERNAL,
            first.time,
            first.time + (first.settle_us or 0),
            attributes,
            links=story.links,
        )

    def _arrived(self, record: JournalRecord, number: int) -> Iterator[SpanFacts]:
        assert record.entry is not None
        self._there[record.entry] = record
        yield self._child("route", record, number, record.time, record.time)
        if record.durable and record.settle_us is not None and record.entry != record.parent:
            end_us = record.time + record.settle_us
            yield self._child("store", record, number, record.time, end_us)

    def _at_relay(self, record: JournalRecord, number: int) -> Iterator[SpanFacts]:
        assert record.entry is not None
        relay = self._ids.span_id("relay", self._stream, record.entry)
        began = self._there.get(record.entry, record)
        if record.kind == RecordKind.DEFERRED:
            yield self._child(
                "attempt", record, number, record.time, record.time, relay, _error_of(record)
            )
            return
        if record.kind not in (RecordKind.RELAYED, *_OPERATIONS):
            return
        failure = None if record.kind == RecordKind.RELAYED else _error_of(record)
        yield SpanFacts(
            f"relay {_destination(began)}",
            self._context(relay),
            self._publish,
            False,
            SpanKindName.CLIENT,
            began.time,
            max(began.time, record.time),
            self._facts("relay", record),
            failure,
        )
        assert record.node is not None
        for place, attempt in enumerate(self._attempts(record.node, began.time, record.time)):
            took_us = (attempt.resolve_us or 0) + (attempt.connect_us or 0)
            error = None if attempt.code is None else _error_of(attempt)
            start_us = max(began.time, attempt.time - took_us)
            span = self._ids.span_id("connect", self._stream, record.entry, place)
            attributes = self._facts("attempt", attempt)
            _add_host(attributes, attempt.host)
            yield SpanFacts(
                f"attempt {_destination(began)}",
                self._context(span),
                relay,
                False,
                SpanKindName.CLIENT,
                start_us,
                max(start_us, attempt.time),
                attributes,
                error,
            )
        if record.wire_us is not None:
            start_us = max(began.time, record.time - record.wire_us)
            yield self._child("attempt", record, number, start_us, record.time, relay, failure)

    def _at_node(self, record: JournalRecord, number: int) -> Iterator[SpanFacts]:
        if record.kind == RecordKind.DELIVERED:
            start_us = record.time - (record.wire_us or 0)
            yield self._child("deliver", record, number, start_us, record.time)
        elif record.kind == RecordKind.RELEASED:
            yield self._child("release", record, number, record.time, record.time)
        elif record.kind in _OPERATIONS:
            operation = _OPERATIONS[RecordKind(record.kind)]
            failure = _error_of(record) if record.kind in FAILURES else None
            yield self._child(operation, record, number, record.time, record.time, failure=failure)

    def _child(
        self,
        operation: str,
        record: JournalRecord,
        number: int,
        start_us: int,
        end_us: int,
        parent_id: str = "",
        failure: str | None = None,
    ) -> SpanFacts:
        assert record.entry is not None
        began = self._there.get(record.entry, record)
        span = self._ids.span_id(operation, self._stream, record.entry, number)
        is_outward = operation in ("deliver", "attempt")
        return SpanFacts(
            f"{operation} {_destination(began)}",
            self._context(span),
            parent_id or self._publish,
            False,
            SpanKindName.CLIENT if is_outward else SpanKindName.INTERNAL,
            start_us,
            max(start_us, end_us),
            self._facts(operation, record),
            failure,
        )

    def _context(self, span_id: str) -> TraceContext:
        return self._story.context._replace(parent_id=span_id)

    def _facts(self, operation: str, record: JournalRecord) -> dict[str, AttributeValue]:
        """Return the attributes of an operation."""
        first = self._story.first
        facts: dict[str, AttributeValue] = {
            "messaging.system": SYSTEM,
            "messaging.operation.name": operation,
        }
        _add(facts, "messaging.operation.type", _TYPES.get(operation))
        _add(facts, "messaging.destination.name", first.to or record.node)
        _add(facts, "messaging.message.id", first.message_id)
        _add(facts, "messaging.message.envelope.size", record.size)
        if record.protocol is not None or record.kind == RecordKind.RECEIVED:
            facts["network.protocol.name"] = "amqp"
            facts["network.protocol.version"] = (record.protocol or "AMQP 1.0").split()[-1]
        _add(facts, "amqproute.node", record.node)
        _add(facts, "amqproute.entry", record.entry)
        _add(facts, "amqproute.peer", record.peer)
        _add(facts, "amqproute.attempt", record.attempt)
        _add(facts, "amqproute.code", record.code)
        _add(facts, "amqproute.security.level", record.level)
        if record.code or record.condition:
            _add(facts, "amqproute.words", record.words)
        return facts


def _add(facts: dict[str, AttributeValue], name: str, value: AttributeValue | None) -> None:
    if value is not None:
        facts[name] = value


def _add_host(facts: dict[str, AttributeValue], host: str | None) -> None:
    """Add the place of an attempt: ``host:port`` or ``address:port``."""
    address, _, port = (host or "").rpartition(":")
    if address and port.isdigit():
        facts["server.address"] = address.strip("[]")
        facts["server.port"] = int(port)


def _error_of(record: JournalRecord) -> str:
    """Return the reason for a failure in few words, for ``error.type``."""
    return record.code or record.condition or str(record.kind)


def _is_relay(node: str | None) -> bool:
    return node is not None and node.startswith(RELAY_PREFIX)


def _destination(record: JournalRecord) -> str:
    """Return the node's name for that of a span; of a relay queue its next hop."""
    return (record.node or "?").removeprefix(RELAY_PREFIX)
