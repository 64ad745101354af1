# SPDX-License-Identifier: Apache-2.0
"""Records as text in `amqproute journal`."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.journal.record import JournalRecord, RecordKind
from amqproute.journal.record_text import said

COMMON: dict[str, Any] = {
    "v": 1,
    "journal": "0" * 16,
    "broker": "alpha",
    "domain": "alpha.example",
    "stream": "s",
    "seq": 1,
    "time": 1_700_000_000_000_000,
}

SAID: list[tuple[RecordKind, dict[str, Any], str]] = [
    (
        RecordKind.RECEIVED,
        {
            "sender": "bob@beta.example",
            "connection": "c1",
            "level": "tls",
            "entry": 7,
            "node": "q",
            "trail": "a b",
            "from_entry": 9,
            "message_id": "m",
            "to": "x@y",
            "size": 10,
            "bare_size": 8,
            "durable": False,
        },
        "from bob@beta.example (c1, tls), on q, by way of a b, number 9 there; "
        "message-id m, to x@y, 10 octets, 8 of them bare, not durable",
    ),
    (
        RecordKind.RECEIVED,
        {"sender": "user:ann", "connection": "c", "protocol": "AMQP 0-9-1", "entry": 7},
        "from user:ann (c, none, AMQP 0-9-1), on here",
    ),
    (
        RecordKind.RECEIVED,
        {"sender": "user:ann", "node": "q", "entry": 7, "size": 9, "content_class": "file"},
        "from user:ann, on q; 9 octets, class file",
    ),
    (
        RecordKind.ROUTED,
        {"sender": "user:ann", "connection": "c", "protocol": "AMQP 0-9-1", "node": "q"},
        "from user:ann (c, none, AMQP 0-9-1), on q",
    ),
    (
        RecordKind.DELIVERED,
        {"peer": "user:ann", "protocol": "AMQP 0-9"},
        "taken by user:ann, over AMQP 0-9",
    ),
    (
        RecordKind.RECEIVED,
        {"entry": 7, "node": "q", "size": 10, "bare_size": 10, "durable": True},
        "from somebody, on q; 10 octets",
    ),
    (
        RecordKind.RECEIVED,
        {"node": "t", "copies": 3, "size": 10},
        "from somebody, 3 copies by t; 10 octets",
    ),
    (RecordKind.RECEIVED, {"entry": 7, "node": "q"}, "from somebody, on q"),
    (
        RecordKind.ROUTED,
        {"node": "q", "parent": 4, "message_id": "m", "entry": 1},
        "on q, comes from 4; message-id m",
    ),
    (RecordKind.ROUTED, {"node": "q", "entry": 1}, "on q"),
    (
        RecordKind.ATTEMPT,
        {
            "attempt": 2,
            "peer": "beta",
            "host": "h:1",
            "resolve_us": 1500,
            "connect_us": 2500,
            "level": "dane",
        },
        "number 2 to beta at h:1, resolved in 1.5 ms, connected in 2.5 ms: dane",
    ),
    (
        RecordKind.ATTEMPT,
        {
            "attempt": 2,
            "peer": "beta",
            "resolve_us": 1500,
            "code": "connect.refused",
            "words": "connection refused",
        },
        "number 2 to beta at no host, resolved in 1.5 ms: connect.refused: connection refused",
    ),
    (
        RecordKind.DELIVERED,
        {"peer": "beta", "host": "h:1", "attempt": 2, "queue_us": 1000, "wire_us": 2000},
        "taken by beta, at h:1, attempt 2; it waited 1.0 ms, the answer came after 2.0 ms",
    ),
    (
        RecordKind.DELIVERED,
        {"attempt": 1, "queue_us": 1000},
        "taken by somebody; it waited 1.0 ms, the answer came after ?",
    ),
    (
        RecordKind.DELIVERED,
        {"wire_us": 1000},
        "taken by somebody; it waited ?, the answer came after 1.0 ms",
    ),
    (RecordKind.RELAYED, {"peer": "beta"}, "taken by beta"),
    (
        RecordKind.DEFERRED,
        {"peer": "beta", "until": 1700000001000000, "code": "dns.x", "words": "w", "count": 1},
        "1 message waits for beta: dns.x: w, next attempt 2023-11-14 22:13:21.000",
    ),
    (
        RecordKind.DEFERRED,
        {"peer": "beta", "code": "dns.x", "count": 2},
        "2 messages wait for beta: dns.x",
    ),
    (
        RecordKind.DEFERRED,
        {"peer": "beta", "code": "dns.x", "words": "w", "entry": 2},
        "not taken by beta now: dns.x: w",
    ),
    (RecordKind.EXPIRED, {"entry": 3, "node": "q", "code": "c"}, "from q: c"),
    (
        RecordKind.EXPIRED,
        {"count": 3, "node": "q", "sender": "bob", "code": "c"},
        "3 messages of bob for q: c",
    ),
    (
        RecordKind.EXPIRED,
        {"count": 1, "node": "q", "condition": "amqp:x", "words": "w"},
        "1 message of somebody for q: amqp:x: w",
    ),
    (
        RecordKind.OPERATOR,
        {"operator": "o", "action": "purge", "node": "q", "detail": "d"},
        "o purge q: d",
    ),
    (RecordKind.OPERATOR, {"operator": "o", "action": "reload", "detail": "d"}, "o reload: d"),
    (RecordKind.STOCK, {"count": 2, "node": "q", "ranges": "1-2"}, "2 on q"),
    (RecordKind.STOCK, {}, "all nodes are listed"),
    (RecordKind.RECOVERY, {"entry": 1, "node": "q"}, "found in the store at the start, on q"),
    (RecordKind.RECOVERY, {"count": 1}, "1 entry in the store, unknown to the journal"),
    (RecordKind.RECOVERY, {"code": "x", "detail": "d"}, "x (d)"),
    (RecordKind.RECOVERY, {"code": "x"}, "x"),
    (RecordKind.CONFIGURED, {}, "without a file"),
    (RecordKind.CONFIGURED, {"detail": "f", "condition": "c", "words": "w"}, "f was refused: w"),
    (RecordKind.GAP, {"count": 1, "words": "w"}, "1 record is missing here: w"),
    (RecordKind.START, {}, "the broker alpha runs"),
    (RecordKind.STOP, {}, "the broker alpha has stopped cleanly"),
    (RecordKind.SEGMENT, {}, "a new file begins"),
    (
        RecordKind.SEGMENT,
        {"code": "x", "count": 5},
        "a new file begins; the journal was restored, so 5 numbers are skipped",
    ),
    (RecordKind.RELEASED, {"node": "q", "peer": "b", "count": 3}, "node q, peer b, count 3"),
    (RecordKind.RELEASED, {"words": "w"}, "why w"),
    (RecordKind.RELEASED, {"code": "c"}, "why c"),
    (RecordKind.RELEASED, {"condition": "d", "words": "w"}, "why d: w"),
]


class SaidTests(SynchronousTestCase):
    """One kind of record after the other."""

    def test_said(self) -> None:
        """Everything that a record has is said, and nothing of what it has not."""
        for kind, facts, words in SAID:
            self.assertEqual(said(JournalRecord(kind=kind, **COMMON, **facts)), words)
