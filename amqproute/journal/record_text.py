# SPDX-License-Identifier: Apache-2.0
"""Records as text, for people who search for a message at three in the morning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from amqproute.journal.record import JournalRecord, RecordKind
from amqproute.plurals import counted

__all__ = ["line_of", "said", "when"]

RELAY_PREFIX: Final = "amqp$out/"
_YEAR_10000_US: Final = 253_402_300_800_000_000


def when(us: int) -> str:
    """Return a time, UTC, to the millisecond."""
    if not 0 <= us < _YEAR_10000_US:
        return f"{us} us"  # only in a tampered journal, which must be readable too
    return f"{datetime.fromtimestamp(us / 1e6, UTC):%Y-%m-%d %H:%M:%S}.{us // 1000 % 1000:03}"


def line_of(record: JournalRecord) -> str:
    """Return a record as one line."""
    entry = "" if record.entry is None else f" {record.entry}"
    return f"{when(record.time)}  {record.kind}{entry}: {said(record)}"


def said(record: JournalRecord) -> str:
    """Return the content of a record as text, without its time and kind."""
    speak = _WORDS.get(record.kind)
    return _other(record) if speak is None else speak(record)


def _place(node: str | None) -> str:
    if node is None:
        return "here"
    if node.startswith(RELAY_PREFIX):
        return f"the queue for {node[len(RELAY_PREFIX) :]}"
    return node


def _took(us: int | None) -> str:
    if us is None:
        return "?"
    return f"{us / 1e6:.3f} s" if us >= 1_000_000 else f"{us / 1000:.1f} ms"


def _why(record: JournalRecord) -> str:
    parts = [part for part in (record.code, record.condition, record.words) if part]
    return ": ".join(dict.fromkeys(parts)) or "no reason was given"


def _named(record: JournalRecord) -> str:
    parts = []
    if record.message_id is not None:
        parts.append(f"message-id {record.message_id}")
    if record.to is not None:
        parts.append(f"to {record.to}")
    if record.size is not None:
        is_more = record.bare_size is not None and record.bare_size != record.size
        bare = f", {record.bare_size} of them bare" if is_more else ""
        parts.append(f"{record.size} octets{bare}")
    if record.content_class is not None:
        parts.append(f"class {record.content_class}")
    if record.durable is False:
        parts.append("not durable")
    return f"; {', '.join(parts)}" if parts else ""


def _protocol(record: JournalRecord) -> str:
    return f", {record.protocol}" if record.protocol else ""


def _received(record: JournalRecord) -> str:
    said = f"from {record.sender or 'somebody'}"
    if record.connection:
        said += f" ({record.connection}, {record.level or 'none'}{_protocol(record)})"
    if record.entry is None:
        said += f", {record.copies or 0} copies by {record.node}"
    else:
        said += f", on {_place(record.node)}"
    if record.trail:
        said += f", by way of {record.trail}"
    if record.from_entry is not None:
        said += f", number {record.from_entry} there"
    return f"{said}{_named(record)}"


def _routed(record: JournalRecord) -> str:
    parent = "" if record.parent is None else f", comes from {record.parent}"
    sender = ""
    if record.sender is not None and record.connection is not None:  # by an exchange, or a topic
        level = record.level or "none"
        sender = f"from {record.sender} ({record.connection}, {level}{_protocol(record)}), "
    return f"{sender}on {_place(record.node)}{parent}{_named(record)}"


def _attempt(record: JournalRecord) -> str:
    said = f"number {record.attempt} to {record.peer} at {record.host or 'no host'}"
    said += f", resolved in {_took(record.resolve_us)}"
    if record.connect_us is not None:
        said += f", connected in {_took(record.connect_us)}"
    if record.code is None:
        return f"{said}: {record.level}"
    return f"{said}: {_why(record)}"


def _taken(record: JournalRecord) -> str:
    said = f"taken by {record.peer or 'somebody'}"
    if record.protocol:
        said += f", over {record.protocol}"
    if record.host:
        said += f", at {record.host}"
    if record.attempt and record.attempt > 1:
        said += f", attempt {record.attempt}"
    if record.queue_us is None and record.wire_us is None:
        return said  # an export does not show it
    waited, answered = _took(record.queue_us), _took(record.wire_us)
    return f"{said}; it waited {waited}, the answer came after {answered}"


def _deferred(record: JournalRecord) -> str:
    until = "" if record.until is None else f", next attempt {when(record.until)}"
    if record.entry is None:
        waiting = counted(record.count or 0, "message waits", "messages wait")
        return f"{waiting} for {record.peer}: {_why(record)}{until}"
    return f"not taken by {record.peer} now: {_why(record)}{until}"


def _ended(record: JournalRecord) -> str:
    if record.entry is None:
        who = record.sender or "somebody"
        return f"{counted(record.count or 0, 'message')} of {who} for {record.node}: {_why(record)}"
    return f"from {_place(record.node)}: {_why(record)}"


def _operator(record: JournalRecord) -> str:
    node = "" if record.node is None else f" {record.node}"
    return f"{record.operator} {record.action}{node}: {record.detail}"


def _stock(record: JournalRecord) -> str:
    return f"{record.count} on {_place(record.node)}" if record.ranges else "all nodes are listed"


def _recovery(record: JournalRecord) -> str:
    if record.code is not None:
        return _why(record) if record.detail is None else f"{_why(record)} ({record.detail})"
    if record.entry is None:
        entries = counted(record.count or 0, "entry", "entries")
        return f"{entries} in the store, unknown to the journal"
    return f"found in the store at the start, on {_place(record.node)}{_named(record)}"


def _configured(record: JournalRecord) -> str:
    said = record.detail or "without a file"
    return said if record.condition is None else f"{said} was refused: {record.words}"


def _gap(record: JournalRecord) -> str:
    return f"{counted(record.count or 0, 'record is', 'records are')} missing here: {record.words}"


def _segment(record: JournalRecord) -> str:
    if record.code is None:
        return "a new file begins"
    return f"a new file begins; the journal was restored, so {record.count} numbers are skipped"


def _other(record: JournalRecord) -> str:
    facts = {
        "node": record.node,
        "peer": record.peer,
        "count": record.count,
        "detail": record.detail,
        "why": _why(record) if record.words or record.condition or record.code else None,
    }
    return ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)


_WORDS: Final[Mapping[str, Callable[[JournalRecord], str]]] = {
    RecordKind.RECEIVED: _received,
    RecordKind.DUPLICATE: _received,
    RecordKind.ROUTED: _routed,
    RecordKind.SPOOLED: _routed,
    RecordKind.REPORTED: _routed,
    RecordKind.ATTEMPT: _attempt,
    RecordKind.RELAYED: _taken,
    RecordKind.DELIVERED: _taken,
    RecordKind.DEFERRED: _deferred,
    RecordKind.REJECTED: _ended,
    RecordKind.EXPIRED: _ended,
    RecordKind.DEAD_LETTERED: _ended,
    RecordKind.RETURNED: _ended,
    RecordKind.DELETED: _ended,
    RecordKind.OPERATOR: _operator,
    RecordKind.STOCK: _stock,
    RecordKind.RECOVERY: _recovery,
    RecordKind.CONFIGURED: _configured,
    RecordKind.GAP: _gap,
    RecordKind.START: lambda record: f"the broker {record.broker} runs",
    RecordKind.STOP: lambda record: f"the broker {record.broker} has stopped cleanly",
    RecordKind.SEGMENT: _segment,
}
