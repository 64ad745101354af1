# SPDX-License-Identifier: Apache-2.0
"""Events, as the reactor makes them: cheap to create, and turned into records elsewhere.

An event refers to existing objects, a list of entries and a few facts that all of them share; it is
made once per batch. Costly work (digests, reading properties, JSON) is done when its
`JournalEvent.runs` are first requested, on another thread. Nothing that an event refers to changes
after its creation, except the caches of a message, which are not used here.

Events of a transaction are added to it (`IStoreTransaction.record`): the store passes them on when
it is committed, and only then. Others go to the journal directly (`IJournal.note`).
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256 as _sha256
from typing import Any, Final, NamedTuple
from uuid import UUID

from zope.interface import implementer

from amqproute.address import from_compatibility, parse
from amqproute.content_class import ContentClass, annotated_class
from amqproute.entry import FLEETING_MS, Entry
from amqproute.errors import AmqpError, DecodeError
from amqproute.interfaces import IJournal
from amqproute.journal.record import LONGEST_NAME, LONGEST_RUN, MAX_WORDS, RecordKind, encode, named
from amqproute.message import LONGEST_REMEMBERED, Message, annotations_of, header_of
from amqproute.outcomes import ErrorDetails
from amqproute.trace_context import context_of
from amqproute.values import (
    ORIGIN,
    RELAY_PREFIX,
    REPORT,
    RETURN_TO,
    TAG_OCTETS,
    TRACE,
    Origin,
    Principal,
)
from amqproute.wire.amqp10 import sections
from amqproute.wire.amqp10.sections import SectionOffsets

_MAKING: Final = threading.Lock()
"""Held while the runs of an event are made: a few milliseconds at most."""
_LARGE: Final = 32 * 1024
_LATEST_US: Final = (1 << 63) - 1
_LATEST_MS: Final = _LATEST_US // 1000
NOTHING: Final[Mapping[str, object]] = {}
NO_COLUMNS: Final[Mapping[str, Sequence[object]]] = {}


@dataclass(slots=True)
class MessageRun:
    """Records of one kind and one instant, in the form to be written.

    Attributes:
        kind: the kind of all records.
        count: the number of records.
        time_us: the wall clock.
        shared: the object ``all`` as JSON.
        columns: the object ``each`` as JSON.
    """

    kind: str
    count: int
    time_us: int
    shared: str
    columns: str


UNKNOWN: Final = Principal("anonymous")
"""The unknown sender of an entry found at start. Compare it by identity: it is not a real principal
but equals one."""


class EntryTaker(NamedTuple):
    """The journal's description of a consumer that takes entries.

    Attributes:
        kind: the kind of the end.
        facts: fields shared by all records.
    """

    kind: RecordKind
    facts: Mapping[str, object] = NOTHING


SOMEBODY: Final = EntryTaker(RecordKind.DELIVERED)
"""A consumer without a description."""


class JournalEvent:
    """Something that has happened, or happens with the transaction it is added to.

    Attributes:
        time_us: the wall clock.
        number: its number among committed events; 0 for others.
        committed_us: time of the commit; 0 before it, and for others.
        ends: whether an entry in the store ends with it: then it must not be lost, whatever happens
            after the commit.
    """

    __slots__ = ("_runs", "committed_us", "number", "time_us")

    def __init__(self, time_us: int) -> None:
        self.time_us = time_us
        self.number = 0
        self.committed_us = 0
        self._runs: Sequence[MessageRun] | None = None

    @property
    def ends(self) -> bool:
        """See above."""
        return False

    @property
    def is_heavy(self) -> bool:
        """Whether making the runs reads a lot: do it early, not in the commit that carries it."""
        return False

    @property
    def settle_us(self) -> int | None:
        """The duration of the commit, if known and of interest."""
        if not self.committed_us:
            return None
        return max(0, self.committed_us - self.time_us)

    def runs(self) -> Sequence[MessageRun]:
        """Return the runs to write; made at the first call, on any thread.

        The journal's thread and the store's may call at the same time. The runs are made once: a
        second attempt would find the source messages gone.
        """
        if self._runs is None:
            with _MAKING:
                if self._runs is None:
                    self._runs = self._made()
                    self._let_go()
        return self._runs

    def _made(self) -> Sequence[MessageRun]:
        raise NotImplementedError

    def _let_go(self) -> None:
        """Drop the source messages."""


class RunEvent(JournalEvent):
    """An event given as a run.

    Args:
        kind: the kind of the records.
        time_us: the wall clock.
        shared: fields shared by all records.
        columns: fields that differ; without any it is one record.
    """

    __slots__ = ("_columns", "_kind", "_shared")

    def __init__(
        self,
        kind: RecordKind,
        time_us: int,
        shared: Mapping[str, object],
        columns: Mapping[str, Sequence[object]] = NO_COLUMNS,
    ) -> None:
        super().__init__(time_us)
        self._kind = kind
        self._shared = shared
        self._columns = columns

    @property
    def settle_us(self) -> int | None:
        """None: nobody waits for it."""
        return None

    def _made(self) -> Sequence[MessageRun]:
        shared = {
            name: _fitted(name, value) for name, value in self._shared.items() if value is not None
        }
        count = max(map(len, self._columns.values()), default=1)
        return [
            _run(
                self._kind,
                min(LONGEST_RUN, count - start),
                self.time_us,
                shared,
                {
                    name: values[start : start + LONGEST_RUN]
                    for name, values in self._columns.items()
                },
            )
            for start in range(0, count, LONGEST_RUN)
        ]


class DepartureEvent(JournalEvent):
    """Entries that end.

    Args:
        kind: the kind of end.
        time_us: the wall clock.
        node: their node.
        entries: must not change any more.
        facts: fields shared by all records.
    """

    __slots__ = ("_entries", "facts", "kind", "node")

    def __init__(
        self,
        kind: RecordKind,
        time_us: int,
        node: str,
        entries: Sequence[Entry],
        facts: Mapping[str, object] = NOTHING,
    ) -> None:
        super().__init__(time_us)
        self.kind = kind
        self.node = node
        self.facts = facts
        self._entries = entries

    @property
    def ends(self) -> bool:
        """See `JournalEvent.ends`: whether any of the entries has a row."""
        return any(entry.durable and entry.stored for entry in self._entries)

    def without(self, others: Container[int]) -> DepartureEvent:
        """Return the same event without the entries that have these ids."""
        left = [entry for entry in self._entries if entry.id not in others]
        return DepartureEvent(self.kind, self.time_us, self.node, left, self.facts)

    def _made(self) -> Sequence[MessageRun]:
        entries = self._entries
        shared = {"node": named(self.node)}
        for name, value in self.facts.items():
            if value is not None:
                shared[name] = _fitted(name, value)
        taken = self.kind in (RecordKind.RELAYED, RecordKind.DELIVERED)
        runs = []
        for start in range(0, len(entries), LONGEST_RUN):
            part = entries[start : start + LONGEST_RUN]
            columns: dict[str, Sequence[Any]] = {"entry": [entry.id for entry in part]}
            if taken:
                now_us = self.time_us
                columns["attempt"] = [entry.tries or None for entry in part]
                columns["queue_us"] = [
                    max(0, entry.sent_us - entry.arrived_ms * 1000) if entry.sent_us else None
                    for entry in part
                ]
                columns["wire_us"] = [
                    max(0, now_us - entry.sent_us) if entry.sent_us else None for entry in part
                ]
            runs.append(_run(self.kind, len(part), self.time_us, shared, columns))
        return runs

    def _let_go(self) -> None:
        # `ends` is used before the commit, and again after a failed one.
        if self.committed_us:
            self._entries = ()


Came = tuple[str, Any, Origin, bytes, Any]
"""A message taken by a node: the node's name; the entry, or the message if no entry was made; its
sender; its delivery-tag; and the kind of the record, if other than that of the origin, or the
number of copies."""


class ArrivalEvent(JournalEvent):
    """Arrivals in one batch.

    Args:
        time_us: the wall clock.
        came: the arrivals in order; see `Came`.
        domain: our organization.
    """

    __slots__ = ("_came", "_domain")

    def __init__(self, time_us: int, came: Sequence[Came], domain: str) -> None:
        super().__init__(time_us)
        self._came = came
        self._domain = domain

    @property
    def is_heavy(self) -> bool:
        """See `JournalEvent.is_heavy`: judged by one of the bodies."""
        came = self._came
        if not came:
            return False
        first = came[0][1]
        return len((first.message if type(first) is Entry else first).encoded) >= _LARGE

    def _read(
        self,
        columns: dict[str, Sequence[object]],
        messages: Sequence[Message],
        known: _KnownFacts | None,
    ) -> None:
        """Read the fields of messages without their caches, which belong to another thread."""
        _add_facts(columns, messages, known)

    def _made(self) -> Sequence[MessageRun]:
        runs: list[MessageRun] = []
        groups = _alike(self._came)
        known: _KnownFacts | None = {} if len(groups) > 1 else None
        for group in groups:
            for start in range(0, len(group), LONGEST_RUN):
                runs.append(self._run_of(group[start : start + LONGEST_RUN], known))
        return runs

    def _let_go(self) -> None:
        self._came = ()

    def _run_of(self, part: Sequence[Came], known: _KnownFacts | None) -> MessageRun:
        nodes, came, origins, tags, hows = zip(*part, strict=True)
        node, origin, how = nodes[0], origins[0], hows[0]
        is_entry = type(came[0]) is Entry
        kind = how if isinstance(how, str) else origin.event
        if is_entry and kind == RecordKind.ROUTED and node.startswith(RELAY_PREFIX):
            kind = RecordKind.SPOOLED
        shared: dict[str, Any] = {
            "node": named(node),
            "sender": None if origin.principal is UNKNOWN else str(origin.principal),
            "connection": origin.connection or None,
            "link": _short(origin.link) or None,
            "level": origin.level or None,
            "protocol": origin.protocol or None,
            "parent": origin.parent,
            "copies": how if isinstance(how, int) else None,
        }
        columns: dict[str, Sequence[Any]] = {}
        messages: Sequence[Message] = came
        if is_entry:
            columns["entry"] = [entry.id for entry in came]
            columns["durable"] = [entry.durable for entry in came]
            columns["expires"] = [
                (1000 * entry.expires_ms if entry.expires_ms <= _LATEST_MS else _expires_us(entry))
                or None
                for entry in came
            ]
            messages = [entry.message for entry in came]
        columns["size"] = [
            len(message.encoded) if message.rest is None else message.size for message in messages
        ]
        if origin.store and all(len(tag) == TAG_OCTETS and tag[0] < 0x80 for tag in tags):
            shared["from_stream"] = origin.store
            columns["from_entry"] = [int.from_bytes(tag, "big") for tag in tags]
        self._read(columns, messages, known)
        if not origin.is_peer and self._domain and columns["origin"].count(None) == len(part):
            columns["origin"] = [self._domain]
        return _run(kind, len(part), self.time_us, shared, columns)


class TracedArrivalEvent(ArrivalEvent):
    """Arrivals of which the trace context is recorded as well."""

    __slots__ = ()

    def _read(
        self,
        columns: dict[str, Sequence[object]],
        messages: Sequence[Message],
        known: _KnownFacts | None,
    ) -> None:
        _add_facts(columns, messages, known)
        contexts = map(context_of, messages)
        columns["traceparent"] = [None if each is None else str(each) for each in contexts]


def _expires_us(entry: Entry) -> int:
    """Return the recorded expiry of an entry that has no lifetime, or too long a one."""
    return 1000 * entry.arrived_ms if entry.expires_ms == FLEETING_MS else _LATEST_US


def _alike(came: Sequence[Came]) -> Collection[Sequence[Came]]:
    """Group arrivals by node, origin and kind; usually all are alike.

    The groups are in the order of their firsts. Through an exchange each message of a batch may
    come to another queue, and all are at the exchange: a run for each change of the node would be
    two for each message. All have the same time, so nothing depends on their order.
    """
    nodes, _, origins, _, hows = zip(*came, strict=True)
    if len(set(nodes)) == len(set(map(id, origins))) == len(set(hows)) == 1:
        return (came,)
    groups: dict[tuple[str, int, Any], list[Came]] = {}
    for one in came:
        groups.setdefault((one[0], id(one[2]), one[4]), []).append(one)
    return groups.values()


_FACTS: Final = ("message_id", "message_id_type", "to", "digest", "bare_size")
_NOTES: Final = ("priority", "trail", "origin", "return_to", "content_class")
_Notes = tuple[int | None, str | None, str | None, str | None, str | None]
_NO_NOTES: Final[_Notes] = (None, None, None, None, None)
_Facts = tuple[str | None, str | None, str | None, str | None, int | None]


_KnownFacts = dict[int, tuple[_Facts, _Notes]]
"""Fields read from a message, by its identity: one message may reach several queues."""


def _add_facts(
    columns: dict[str, Sequence[object]], messages: Sequence[Message], known: _KnownFacts | None
) -> None:
    """Read the fields of messages without their caches, which belong to another thread."""
    facts: list[_Facts] = []
    notes: list[_Notes] = []
    last_head: bytes | None = None
    last_notes = _NO_NOTES
    for message in messages:
        found = None if known is None else known.get(id(message))
        if found is not None:
            facts.append(found[0])
            notes.append(found[1])
            continue
        encoded = message.encoded
        try:
            offsets = message.located or sections.locate(encoded)
            head = encoded[: offsets.bare_start]
            if head != last_head:  # one publisher's messages are alike
                read = _remembered_notes if len(head) <= LONGEST_REMEMBERED else _read_notes
                last_head, last_notes = head, read(head)
            facts.append(_facts(message, encoded, offsets))
            notes.append(last_notes)
        except DecodeError:
            facts.append((None, None, None, None, None))
            notes.append(_NO_NOTES)
        if known is not None:
            known[id(message)] = facts[-1], notes[-1]
    columns.update(zip(_FACTS, zip(*facts, strict=True), strict=True))
    columns.update(zip(_NOTES, zip(*notes, strict=True), strict=True))


def _facts(message: Message, encoded: bytes, offsets: SectionOffsets) -> _Facts:
    start, end = offsets.bare_start, offsets.bare_end
    digest: str | None
    size: int | None
    if message.rest is None:
        # A copy of a small one costs less than a view of it.
        bare = encoded[start:end] if end < _LARGE else memoryview(encoded)[start:end]
        digest, size = _sha256(bare).hexdigest(), end - start
    else:
        digest, size = message.rest.digest_of(encoded[start:end]) or (None, None)
    if offsets.properties_end <= offsets.properties_start:
        return None, None, None, digest, size
    name, to = sections.find_id_and_to(encoded, offsets)
    if type(name) is str and len(name) <= LONGEST_NAME:
        kind: str | None = "string"
    else:
        name, kind = name_of(name)
    if to is not None:
        to = _normal(to) if len(to) <= LONGEST_NAME else named(to)
    return name, kind, to, digest, size


def name_of(value: object) -> tuple[str | None, str | None]:
    """Return a message-id in the form of records: as text, with its type."""
    if value is None:
        return None, None
    if isinstance(value, int):
        return int.__repr__(value), "ulong"
    if isinstance(value, str):
        return named(value), "string"
    if isinstance(value, UUID):
        return str(value), "uuid"
    if isinstance(value, bytes):
        return named(value.hex()), "binary"
    return None, None  # a type that no message-id has


@lru_cache(maxsize=1024)
def _normal(address: str) -> str:
    try:
        return str(parse(from_compatibility(address) or address))
    except AmqpError:
        return address


def _read_notes(head: bytes) -> _Notes:
    """Read the `_NOTES` from what precedes the bare message."""
    offsets = sections.locate(head)
    end = offsets.header_end
    priority = int(header_of(head[:end]).priority) if end else 4
    start, end = offsets.message_annotations_start, offsets.message_annotations_end
    if start == end:
        return priority, None, None, None, None
    annotations = annotations_of(head[start:end])
    trace, origin = annotations.get(TRACE), annotations.get(ORIGIN)
    trail = named(" ".join(map(str, trace))) if isinstance(trace, list | tuple) and trace else None
    own = named(origin) if isinstance(origin, str) else None
    kind = annotated_class(annotations)
    content_class = None if kind is ContentClass.BASIC else kind.value
    return priority, trail, own, _return_address(annotations), content_class


def _return_address(annotations: Mapping[Any, Any]) -> str | None:
    """Return the address for failure reports, if the message requests them and has one."""
    address, wishes = annotations.get(RETURN_TO), annotations.get(REPORT)
    if not isinstance(address, str) or len(address) > LONGEST_NAME:
        return None
    if wishes is not None:
        words = [wishes] if isinstance(wishes, str) else getattr(wishes, "items", wishes)
        if not isinstance(words, list | tuple) or "never" in words:
            return None
        if not {"failure", "return"}.intersection(map(str, words)):
            return None
    return str(address)


_remembered_notes = lru_cache(maxsize=1024)(_read_notes)


def _run(
    kind: str,
    count: int,
    time_us: int,
    shared: Mapping[str, Any],
    columns: Mapping[str, Sequence[Any]],
) -> MessageRun:
    """Make a run; equal values move to the shared fields, nulls are omitted."""
    common = {name: value for name, value in shared.items() if value is not None}
    own = {}
    for name, values in columns.items():
        first = values[0]
        if len(values) == 1 or (values[-1] == first and values.count(first) == count):
            if first is not None:
                common[name] = first
        else:
            own[name] = values
    return MessageRun(str(kind), count, time_us, encode(common), encode(own) if own else "{}")


_WHOLE: Final = frozenset({"ranges", "detail"})
"""Fields that are useless in part, and bounded by their authors."""


def _fitted(field: str, value: Any) -> Any:
    """Return a field's value, shortened to the limit of records."""
    if field == "node":
        return named(value)
    return value if field in _WHOLE else _short(value)


def _short(value: Any) -> Any:
    """Shorten a text chosen by somebody else."""
    return value[:MAX_WORDS] if type(value) is str and len(value) > MAX_WORDS else value


def because(error: ErrorDetails | None, code: str | None = None) -> dict[str, object]:
    """Return the fields for the reason, from a protocol error.

    Args:
        error: the error sent or received.
        code: used unless the error has a code of its own.
    """
    if error is None:
        return {"code": code}
    info = error.info or {}
    return {
        "condition": str(error.condition),
        "words": error.description,
        "code": info.get("code") or code,
    }


@implementer(IJournal)
class NullJournal:
    """A journal that keeps nothing."""

    is_kept = False
    domain = ""

    def now_us(self) -> int:
        """See `IJournal.now_us`: always the same."""
        return 0

    def arrivals(self, came: Sequence[Came]) -> JournalEvent:
        """See `IJournal.arrivals`: an event that nobody writes."""
        return ArrivalEvent(0, came, "")

    def note(self, event: JournalEvent) -> None:
        """See `IJournal.note`: does nothing."""


SILENCE: Final = NullJournal()
