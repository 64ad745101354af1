# SPDX-License-Identifier: Apache-2.0
"""Records of the audit journal: kinds, fields, and the line written for a run of records.

This module uses only the standard library: the pipeline reads journals with it where no broker is
installed.

A record is about one entry (one message on one node) or about the broker. Events of one commit or
one disposition concern many messages at once, so records are written in *runs*: one line for
records of the same kind and instant. A line is one JSON object::

    {"h":"<64 hex>","v":1,"kind":"received","journal":"9f3c2a1b7d5e4f60",
     "broker":"mx1.alpha.example","domain":"alpha.example","stream":"5d0c...","seq":41,"n":2,
     "time":1795345200123456,
     "all":{"node":"amqp$out/beta.example","sender":"user:ann"},
     "each":{"entry":[7,8],"size":[1102,1101],"digest":["...","..."]}}

Values common to all records of the run are in ``all``; values that differ are in ``each``, a list
with one item for each record. Record number ``i`` has the sequence ``seq + i``. A field in neither
is unknown, and its value is None, as is a null in a list.

``h`` chains the lines: it is the SHA-256, in hexadecimal, of the ``h`` before it (64 octets of
ASCII) and of the octets of this line after ``"h":"...",`` up to its last brace. The line therefore
always begins with ``{"h":"`` and 64 digits, and no canonical form of JSON is needed. The first line
of a segment has the kind ``segment``, which is not a record of a message; its field ``previous``
connects it to the end of the segment before.

Why so: a line for each record would cost 3.6 us for the JSON and 500 octets, half of them the same
in all; in runs of 64 a record costs 0.4 us and about 120 octets.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, Literal

VERSION: Final = 1
"""Version of the schema. A reader accepts every version up to its own: fields are added, never
changed.

A reader ignores unknown fields. A field that readers do not need is added without a new version, so
that partners with an earlier release can still read the journal; in older records it is None.
`JournalRecord.bare_size` was such an addition."""

LONGEST_RUN: Final = 64
"""Maximum number of records in a line, since damage affects whole lines."""

END_OF_SEQ: Final = 1 << 62
"""Bound on sequences, so that counting on from one stays within 64 bits."""

MAX_WORDS: Final = 256
"""Maximum length of a text taken from a peer or a client, in characters."""

LONGEST_NAME: Final = 512
"""Maximum length of a name given by somebody else, in characters (`named`)."""

GENESIS: Final = "0" * 64
"""Stands for the hash of the line before the first line of a journal."""

PUT_BACK: Final = "journal.restored"
"""The ``code`` of a segment before which sequences were skipped, because they may be in use."""

_HEAD: Final = '{"h":"'
_BEHIND: Final = len(_HEAD) + 64 + len('",')


class RecordKind(StrEnum):
    """The kind of a record. Its entry *begins*, *ends*, or continues."""

    RECEIVED = "received"
    """Accepted from a client or a peer, committed if durable, and on its node: begins. One record
    covers the route (``to``), the node (``node``) and the spool entry too, if all happen at once.
    Without ``entry``: accepted by a node that keeps only copies; ``copies`` is their number, and
    each has a record ``routed``."""

    ROUTED = "routed"
    """Put on another node within the broker: a copy of ``parent`` (a subscription, a binding, a
    dead letter, a move), which begins; or, if ``parent`` equals ``entry``, the same entry on
    another node, where it continues."""

    SPOOLED = "spooled"
    """Like `ROUTED`, on a relay queue: it waits for its next hop."""

    ATTEMPT = "attempt"
    """A connection attempt to a next hop, with ``host``, the stages' durations and, unless it
    succeeded, the failure. About a destination, not about an entry."""

    RELAYED = "relayed"
    """The next hop has taken responsibility: ends."""

    DEFERRED = "deferred"
    """Postponed by the next hop or on the way to it. With ``entry``: this message was given back;
    without: ``count`` messages wait for the destination until ``until``."""

    DELIVERED = "delivered"
    """A consumer has accepted it: ends."""

    RELEASED = "released"
    """A consumer gave it back; it is available again."""

    REJECTED = "rejected"
    """With ``entry``: refused by a consumer or the next hop, and kept nowhere: ends. Without:
    refused on arrival, so never accepted."""

    DUPLICATE = "duplicate"
    """Sent again by a peer or a client: answered, not stored."""

    EXPIRED = "expired"
    """Expired, and kept nowhere: ends."""

    DEAD_LETTERED = "dead-lettered"
    """Undeliverable, and moved to the dead-letter node (`ROUTED` begins it there): ends."""

    REPORTED = "reported"
    """A delivery report about ``parent`` was made and put on a node as ``entry``: begins."""

    RETURNED = "returned"
    """Returned to its sender (`SPOOLED` or `ROUTED` begins it on its way): ends."""

    DELETED = "deleted"
    """Removed on purpose: by an operator, with its node, replaced by a newer value, or not needed
    any more; ``code`` says which: ends."""

    OPERATOR = "operator"
    """A change through the management node: ``operator``, ``action``, ``detail``."""

    CONFIGURED = "configured"
    """A configuration was loaded, or refused (``condition``); ``digest`` is the digest of its
    text."""

    START = "start"
    """The broker has started."""

    STOP = "stop"
    """The broker has stopped cleanly: this is its last record until the next `START`."""

    RECOVERY = "recovery"
    """At start. With ``entry``: found in the store without a record of its beginning: it begins if
    not known otherwise. Without: ``count`` such entries were found; or, with a ``code``, the store
    or the journal was restored from a backup."""

    STOCK = "stock"
    """The entries that a node holds at about this time: ``ranges``, ``count``. An entry that has
    begun, has not ended and is in no stock is lost. A list of all nodes takes many records; the one
    that ends it has no node."""

    GAP = "gap"
    """``count`` records could not be written, for the reason in ``words``."""

    SEGMENT = "segment"
    """First line of a segment; ``previous`` is the hash before it. With a ``code``, the ``count``
    sequences before it were skipped: the journal was restored from a backup, and they may be in use
    in records written since."""


BEGINS: Final = frozenset(
    {
        RecordKind.RECEIVED,
        RecordKind.ROUTED,
        RecordKind.SPOOLED,
        RecordKind.REPORTED,
        RecordKind.RECOVERY,
    }
)
"""Kinds with which an entry begins, unless ``entry`` is None or equals ``parent``."""

ENDS: Final = frozenset(
    {
        RecordKind.RELAYED,
        RecordKind.DELIVERED,
        RecordKind.REJECTED,
        RecordKind.EXPIRED,
        RecordKind.DEAD_LETTERED,
        RecordKind.RETURNED,
        RecordKind.DELETED,
    }
)
"""Kinds with which an entry ends, unless ``entry`` is None."""


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """One event. None means unknown or not applicable.

    Attributes:
        v: version of the schema in which it was written.
        kind: one of `RecordKind`; a later version may have more.
        journal: name of the journal, for life: 16 hexadecimal digits, drawn at its creation.
        broker: container-id of the broker.
        domain: the organization, by the broker's first domain.
        stream: names the store that numbers the entries; changes after a restore.
        seq: sequence within the journal, from 1; records `SEGMENT` report gaps.
        time: wall clock, microseconds since the epoch.
        entry: id of the message on its node; unique within `stream`.
        parent: the entry from which this one was made.
        node: name of the node.
        message_id: as text; a ``binary`` in hexadecimal. Above 512 characters: the first 256, and a
            SHA-256 of all.
        message_id_type: ``string``, ``ulong``, ``uuid``, ``binary``.
        to: the address of the message, normalized.
        origin: the domain that the message comes from, as proved to the brokers on its way.
        sender: the principal that handed it over: ``user:ann``, ``peer:alpha.example``.
        peer: the principal that took it, or should: ``peer:beta.example``, ``user:bob``.
        connection: the broker's name for the connection.
        link: name of the link.
        level: security level of the connection: ``none``, ``tls``, ``authenticated``, ``dane``.
        size: octets of the message as stored here, including additions by each broker.
        bare_size: octets of the bare message, covered by `digest`: the same at every broker.
        priority: the priority of the message.
        durable: whether it must survive the broker.
        expires: when the message expires, microseconds since the epoch.
        digest: SHA-256 of the bare message, in hexadecimal; or of the configuration's text.
        from_stream: `stream` of the broker that handed it over, if it is one of ours.
        from_entry: `entry` there. With `from_stream`, the same hop seen from its other end.
        trail: container-ids that the message had passed, oldest first, separated by spaces.
        copies: number of entries made of it.
        attempt: number of the attempt, from 1.
        host: place of the attempt, ``host:port`` or ``address:port``.
        condition: the AMQP condition.
        code: our own code for the reason, as in ``docs/failures.md``.
        words: the reason as text, shortened.
        until: time of the next attempt, microseconds since the epoch.
        queue_us: microseconds from its arrival on the node to the hand-over that succeeded.
        resolve_us: microseconds for finding the hosts.
        connect_us: microseconds from the first octet to an open link: TCP, TLS, SASL, open, attach.
        wire_us: microseconds from the hand-over to the outcome.
        settle_us: microseconds from the outcome (or the arrival, for `RECEIVED`) to the commit.
        operator: the principal who did it.
        action: the requested action.
        detail: further facts: of a request, a JSON object as text; of a configuration, its file.
        ranges: ids as text, ``1-5 9 12-20``.
        count: a number of entries or records.
        previous: hash of the last line of the segment before.
        return_to: the address for failure reports, if the message requests them.
        protocol: what the connection speaks if that is not AMQP 1.0: ``AMQP 0-9-1``, ``AMQP 0-9``.
        content_class: the class of AMQP 0-9 that the message was published as, here or elsewhere:
            ``file``, ``stream``, ``tunnel``; none for the classes basic and message.
        traceparent: the trace context in force at the message's arrival, as W3C Trace Context
            writes it; only with tracing, and if the message has one.
    """

    v: int
    kind: str
    journal: str
    broker: str
    domain: str
    stream: str
    seq: int
    time: int
    entry: int | None = None
    parent: int | None = None
    node: str | None = None
    message_id: str | None = None
    message_id_type: str | None = None
    to: str | None = None
    origin: str | None = None
    sender: str | None = None
    peer: str | None = None
    connection: str | None = None
    link: str | None = None
    level: str | None = None
    size: int | None = None
    bare_size: int | None = None
    priority: int | None = None
    durable: bool | None = None
    expires: int | None = None
    digest: str | None = None
    from_stream: str | None = None
    from_entry: int | None = None
    trail: str | None = None
    copies: int | None = None
    attempt: int | None = None
    host: str | None = None
    condition: str | None = None
    code: str | None = None
    words: str | None = None
    until: int | None = None
    queue_us: int | None = None
    resolve_us: int | None = None
    connect_us: int | None = None
    wire_us: int | None = None
    settle_us: int | None = None
    operator: str | None = None
    action: str | None = None
    detail: str | None = None
    ranges: str | None = None
    count: int | None = None
    previous: str | None = None
    return_to: str | None = None
    protocol: str | None = None
    content_class: str | None = None
    traceparent: str | None = None

    @property
    def event_id(self) -> str:
        """The name of this record among all records of all journals: the same in every copy."""
        return f"{self.journal}-{self.seq}"


Type = Literal["string", "long", "int", "boolean"]

_INTS: Final = frozenset({"v", "priority", "copies", "attempt"})


def _type_of(annotation: str, name: str) -> Type:
    if annotation.startswith("bool"):
        return "boolean"
    if annotation.startswith("int"):
        return "int" if name in _INTS else "long"
    return "string"


FIELDS: Final[Mapping[str, Type]] = {
    field.name: _type_of(str(field.type), field.name) for field in dataclasses.fields(JournalRecord)
}
"""Every field of a record and its type; other schemas are derived from it."""

LINE_FIELDS: Final = ("v", "kind", "journal", "broker", "domain", "stream", "seq", "time")
"""Fields of the line itself; `seq` there is that of the first record."""

RUN_FIELDS: Final = tuple(name for name in FIELDS if name not in LINE_FIELDS)
"""Fields in ``all`` or in ``each``."""


class InvalidLine(ValueError):
    """Not a line of a journal; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class JournalLine:
    """One line of a segment.

    Attributes:
        hash: its place in the chain.
        kind: the kind of all its records.
        seq: sequence of its first record.
        count: number of its records.
        time: wall clock, microseconds since the epoch.
        body: the whole object as parsed JSON.
    """

    hash: str
    kind: str
    seq: int
    count: int
    time: int
    body: Mapping[str, Any]  # Any: JSON; the kind decides what it has

    def records(self) -> Iterator[JournalRecord]:
        """Yield the records of the run, one by one."""
        body = self.body
        shared = {name: body["all"].get(name) for name in RUN_FIELDS if name in body["all"]}
        columns = {name: values for name, values in body["each"].items() if name in FIELDS}
        line = {name: body[name] for name in LINE_FIELDS}
        for i in range(self.count):
            line["seq"] = self.seq + i
            own = {name: values[i] for name, values in columns.items()}
            yield JournalRecord(**line, **{**shared, **own})


def tail(
    kind: str,
    journal: str,
    broker: str,
    domain: str,
    stream: str,
    seq: int,
    count: int,
    time_us: int,
    shared: Mapping[str, object],
    columns: Mapping[str, Sequence[object]],
) -> bytes:
    """Encode a run as a line without its hash, for `chained` to complete.

    Args:
        kind: see `RecordKind`.
        journal: see `JournalRecord`, also for the next three.
        broker: its container-id.
        domain: the first of its own.
        stream: the stream of its store.
        seq: sequence of the first record.
        count: records in the run, at most `LONGEST_RUN`.
        time_us: the wall clock.
        shared: fields with the same value in all of them.
        columns: fields that differ; each with `count` values.

    Returns:
        The octets after the hash, without the final line feed.
    """
    return assemble(
        kind,
        journal,
        broker,
        domain,
        stream,
        seq,
        count,
        time_us,
        encode(shared),
        encode(columns),
    )


def assemble(
    kind: str,
    journal: str,
    broker: str,
    domain: str,
    stream: str,
    seq: int,
    count: int,
    time_us: int,
    shared: str,
    columns: str,
    carried: int | None = None,
) -> bytes:
    """Encode like `tail`, from ``all`` and ``each`` that are already JSON.

    Args:
        shared: the object ``all`` as JSON.
        columns: the object ``each`` as JSON.
        carried: the field ``o`` of the line: the number under which the store may have carried the
            run in its outbox. Only the daemon uses it, after a crash.
    """
    own = "" if carried is None else f',"o":{carried}'
    return (
        f'"v":{VERSION},"kind":"{kind}","journal":"{journal}","broker":{_quoted(broker)},'
        f'"domain":{_quoted(domain)},"stream":"{stream}","seq":{seq},"n":{count},'
        f'"time":{time_us}{own},"all":{shared},"each":{columns}}}'
    ).encode()


def named(name: str) -> str:
    """Return a name in the form of records: a very long one is cut and gets a digest.

    The protocol sets no limit to a message-id, and nobody may displace the records of others by the
    length of one. Every broker shortens in the same way, so that shortened names are comparable.
    """
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
    return f"{name[: LONGEST_NAME // 2]}...sha256:{digest}"


encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
"""Encodes JSON in the form of lines."""
_quoted: Final = lru_cache(maxsize=64)(encode)


def link(previous: str, line_tail: bytes) -> str:
    """Return the hash of a line, from the hash of the one before and from its own tail."""
    return hashlib.sha256(previous.encode() + line_tail).hexdigest()


def chained(previous: str, line_tail: bytes) -> tuple[str, bytes]:
    """Complete a line with its hash.

    Returns:
        The hash, and the octets to write, with the final line feed.
    """
    own = link(previous, line_tail)
    return own, b'{"h":"%s",%s\n' % (own.encode(), line_tail)


def _decode(octets: bytes) -> Any:
    """As `amqproute.jsontext.parse_json`: this module may use only the standard library."""
    try:
        return json.loads(octets, parse_float=_finite, parse_constant=_finite)
    except RecursionError:
        raise ValueError("the values nest too deep") from None


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is no number")
    return value


def read_line(octets: bytes, previous: str | None = None) -> JournalLine:
    """Parse one line.

    Args:
        octets: the octets with or without the line feed.
        previous: the hash of the line before; None to skip the check of the chain.

    Raises:
        InvalidLine: torn, damaged, of a later schema, or not the successor of `previous`.
    """
    octets = octets.rstrip(b"\n")
    head = octets[:_BEHIND]
    if not head.startswith(_HEAD.encode()) or not head.endswith(b'",') or octets[-1:] != b"}":
        raise InvalidLine("not a whole line of a journal")
    own = head[len(_HEAD) : -2].decode("ascii", "replace")
    if previous is not None and own != link(previous, octets[_BEHIND:]):
        raise InvalidLine("its hash does not follow from its text and the line before")
    try:
        body = _decode(octets)
    except ValueError as error:  # includes encoding errors
        raise InvalidLine(f"not JSON: {error}") from None
    return JournalLine(own, *_checked(body), body)


def _checked(body: Any) -> tuple[str, int, int, int]:
    """Check the form of a line; return kind, sequence, count and time."""
    if not isinstance(body, dict):
        raise InvalidLine("not an object")
    version = body.get("v")
    if type(version) is not int or version < 1:
        raise InvalidLine("no version")
    if version > VERSION:
        raise InvalidLine(f"schema version {version}; this release reads up to {VERSION}")
    for name in LINE_FIELDS:
        if type(body.get(name)) is not (str if FIELDS[name] == "string" else int):
            raise InvalidLine(f"{name!r} is missing or of a wrong type")
    if not 0 <= body["seq"] < END_OF_SEQ:
        raise InvalidLine("'seq' is no sequence")
    count = body.get("n")
    if type(count) is not int or not 1 <= count <= LONGEST_RUN:
        raise InvalidLine(f"'n' is missing, or no number from 1 to {LONGEST_RUN}")
    if not isinstance(body.get("all"), dict) or not isinstance(body.get("each"), dict):
        raise InvalidLine("'all' or 'each' is missing")
    for name, values in body["each"].items():
        if not isinstance(values, list) or len(values) != count:
            raise InvalidLine(f"{name!r} does not have {count} values")
    return body["kind"], body["seq"], count, body["time"]
