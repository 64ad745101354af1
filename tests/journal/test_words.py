# SPDX-License-Identifier: Apache-2.0
"""What `amqproute journal` says of a record, in words."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.journal.record import Kind, Record
from amqproute.journal.words import said

COMMON: dict[str, Any] = {
    "v": 1,
    "journal": "0" * 16,
    "broker": "alpha",
    "domain": "alpha.example",
    "stream": "s",
    "seq": 1,
    "time": 1_700_000_000_000_000,
}

SAID: list[tuple[Kind, dict[str, Any], str]] = [
    (
        Kind.RECEIVED,
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
        Kind.RECEIVED,
        {"entry": 7, "node": "q", "size": 10, "bare_size": 10, "durable": True},
        "from somebody, on q; 10 octets",
    ),
    (
        Kind.RECEIVED,
        {"node": "t", "copies": 3, "size": 10},
        "from somebody, 3 copies by t; 10 octets",
    ),
    (Kind.RECEIVED, {"entry": 7, "node": "q"}, "from somebody, on q"),
    (
        Kind.ROUTED,
        {"node": "q", "parent": 4, "message_id": "m", "entry": 1},
        "on q, comes from 4; message-id m",
    ),
    (Kind.ROUTED, {"node": "q", "entry": 1}, "on q"),
    (
        Kind.ATTEMPT,
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
        Kind.ATTEMPT,
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
        Kind.DELIVERED,
        {"peer": "beta", "host": "h:1", "attempt": 2, "queue_us": 1000, "wire_us": 2000},
        "beta has it, at h:1, attempt 2; it waited 1.0 ms, the answer came after 2.0 ms",
    ),
    (
        Kind.DELIVERED,
        {"attempt": 1, "queue_us": 1000},
        "somebody has it; it waited 1.0 ms, the answer came after ?",
    ),
    (
        Kind.DELIVERED,
        {"wire_us": 1000},
        "somebody has it; it waited ?, the answer came after 1.0 ms",
    ),
    (Kind.RELAYED, {"peer": "beta"}, "beta has it"),
    (
        Kind.DEFERRED,
        {"peer": "beta", "until": 1700000001000000, "code": "dns.x", "words": "w", "count": 1},
        "1 message waits for beta: dns.x: w, next attempt 2023-11-14 22:13:21.000",
    ),
    (
        Kind.DEFERRED,
        {"peer": "beta", "code": "dns.x", "count": 2},
        "2 messages wait for beta: dns.x",
    ),
    (
        Kind.DEFERRED,
        {"peer": "beta", "code": "dns.x", "words": "w", "entry": 2},
        "beta does not take it now: dns.x: w",
    ),
    (Kind.EXPIRED, {"entry": 3, "node": "q", "code": "c"}, "from q: c"),
    (
        Kind.EXPIRED,
        {"count": 3, "node": "q", "sender": "bob", "code": "c"},
        "3 messages of bob for q: c",
    ),
    (
        Kind.EXPIRED,
        {"count": 1, "node": "q", "condition": "amqp:x", "words": "w"},
        "1 message of somebody for q: amqp:x: w",
    ),
    (
        Kind.OPERATOR,
        {"operator": "o", "action": "purge", "node": "q", "detail": "d"},
        "o purge q: d",
    ),
    (Kind.OPERATOR, {"operator": "o", "action": "reload", "detail": "d"}, "o reload: d"),
    (Kind.STOCK, {"count": 2, "node": "q", "ranges": "1-2"}, "2 on q"),
    (Kind.STOCK, {}, "all have been told"),
    (Kind.RECOVERY, {"entry": 1, "node": "q"}, "found in the store at the start, on q"),
    (Kind.RECOVERY, {"count": 1}, "1 entry stood in the store that the journal did not know"),
    (Kind.RECOVERY, {"code": "x", "detail": "d"}, "x (d)"),
    (Kind.RECOVERY, {"code": "x"}, "x"),
    (Kind.CONFIGURED, {}, "without a file"),
    (Kind.CONFIGURED, {"detail": "f", "condition": "c", "words": "w"}, "f was refused: w"),
    (Kind.GAP, {"count": 1, "words": "w"}, "1 record is missing here: w"),
    (Kind.START, {}, "the broker alpha runs"),
    (Kind.STOP, {}, "the broker alpha has stopped in good order"),
    (Kind.SEGMENT, {}, "a new file begins"),
    (
        Kind.SEGMENT,
        {"code": "x", "count": 5},
        "a new file begins; the journal was put back, so 5 numbers are left out",
    ),
    (Kind.RELEASED, {"node": "q", "peer": "b", "count": 3}, "node q, peer b, count 3"),
    (Kind.RELEASED, {"words": "w"}, "why w"),
    (Kind.RELEASED, {"code": "c"}, "why c"),
    (Kind.RELEASED, {"condition": "d", "words": "w"}, "why d: w"),
]


class SaidTests(SynchronousTestCase):
    """One kind of record after the other."""

    def test_said(self) -> None:
        """Everything that a record has is said, and nothing of what it has not."""
        for kind, facts, words in SAID:
            self.assertEqual(said(Record(kind=kind, **COMMON, **facts)), words)
