# SPDX-License-Identifier: Apache-2.0
"""The table of failures: the scope of each one, and the action (T-23, T-25, T-26).

Everything that can go wrong on the way to a peer has a row here: each outcome, each condition of
the standard in a rejection and at the end of a link, session or connection, each code of the
resolver, of connecting and of TLS. `failure_verdict` looks failures up; no other part of the
program decides. `render` prints the table (``python -m amqproute.relay.failure_table``); a test
keeps ``docs/failures.md`` equal to it, and another one searches for conditions and codes without a
row.

How far a failure reaches:

============  ====================================================================================
message       this message; other messages, the link and the destination are not affected
link          the link; it is attached again, and messages in doubt are sent again
host          this host of the destination; the next one in DNS order is tried
destination   all its hosts: nothing is tried before the back-off ends
============  ====================================================================================

Three rules determine the rows. *Full is not never*: a temporary condition is never a reason to give
up a message before the end of its lifetime. *No answer is not absence*: only a proof in the DNS
rejects. *A rejected message concerns only itself*: it never slows down the destination.

Why two columns for a condition: ``amqp:not-found`` in a rejection concerns the node named by one
message; at the end of a link it concerns a host without the service.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from amqproute import conditions


class FailureScope(enum.Enum):
    """Scope of a failure."""

    MESSAGE = "message"
    LINK = "link"
    HOST = "host"
    DESTINATION = "destination"


class FailureAction(enum.Enum):
    """The consequence of a failure."""

    SETTLE = "settle"
    """The peer has the message: forget it."""
    RETRY = "retry"
    """The message is offered, or the link attached, again after a while."""
    COUNT = "count"
    """The same, and a failed delivery is counted."""
    REJECT = "reject"
    """The message will never be accepted: dead letter, or back to its sender."""
    NEXT_HOST = "next-host"
    """The next candidate is tried; after the last one the destination waits."""
    DEFER = "defer"
    """The destination backs off; its messages wait."""


@dataclass(frozen=True, slots=True)
class FailureRow:
    """The consequences of one failure.

    Attributes:
        scope: how far it reaches.
        action: the action.
        why: the reason, or a hint for the operator.
    """

    scope: FailureScope
    action: FailureAction
    why: str


def _message(action: FailureAction, why: str) -> FailureRow:
    return FailureRow(FailureScope.MESSAGE, action, why)


def _later(why: str) -> FailureRow:
    return FailureRow(FailureScope.MESSAGE, FailureAction.RETRY, why)


def _never(why: str) -> FailureRow:
    return FailureRow(FailureScope.MESSAGE, FailureAction.REJECT, why)


def _link(why: str) -> FailureRow:
    return FailureRow(FailureScope.LINK, FailureAction.RETRY, why)


def _host(why: str) -> FailureRow:
    return FailureRow(FailureScope.HOST, FailureAction.NEXT_HOST, why)


def _all(why: str) -> FailureRow:
    return FailureRow(FailureScope.DESTINATION, FailureAction.DEFER, why)


OUTCOMES: Final[Mapping[str, FailureRow]] = {
    "accepted": _message(FailureAction.SETTLE, "the peer has taken responsibility"),
    "rejected, without an error": _never("the peer refuses it and gives no reason"),
    "released": _later("not now; it waits alone and lets others pass"),
    "modified": _later("the same"),
    "modified, delivery-failed": _message(
        FailureAction.COUNT, "the same, and it counts as a delivery"
    ),
    "modified, undeliverable-here": _never("the peer is the only way to this domain"),
    "no outcome": _later("settled without an outcome, or with an unknown one: as released"),
}
"""Outcomes of a message from the peer (part 3 §3.4)."""

_BROKEN: Final = "the message, or a field of it, is permanently unreadable for the peer"
_PROTOCOL: Final = "not an answer to a message; as any other refusal"
_MOVE: Final = "another host has it; the addresses of the peer come from the DNS, which will say so"

REFUSALS: Final[Mapping[str, FailureRow]] = {
    conditions.INTERNAL_ERROR: _later("the peer has failed, not the message"),
    conditions.NOT_FOUND: _never("the node does not exist there"),
    conditions.UNAUTHORIZED_ACCESS: _never("we may not send to that node"),
    conditions.DECODE_ERROR: _never(_BROKEN),
    conditions.RESOURCE_LIMIT_EXCEEDED: _later("full is temporary"),
    conditions.NOT_ALLOWED: _never("a rule of the peer forbids it"),
    conditions.INVALID_FIELD: _never(_BROKEN),
    conditions.NOT_IMPLEMENTED: _never("the peer cannot do what the message asks for"),
    conditions.RESOURCE_LOCKED: _later("another party has it at the moment"),
    conditions.PRECONDITION_FAILED: _never("the message does not fit the node"),
    conditions.RESOURCE_DELETED: _never("the node was deleted"),
    conditions.ILLEGAL_STATE: _never(_PROTOCOL),
    conditions.FRAME_SIZE_TOO_SMALL: _never(_BROKEN),
    conditions.CONNECTION_FORCED: _later("the peer is being stopped"),
    conditions.CONNECTION_FRAMING_ERROR: _never(_BROKEN),
    conditions.CONNECTION_REDIRECT: _later(_MOVE),
    conditions.SESSION_WINDOW_VIOLATION: _later("about the flow, not about the message"),
    conditions.SESSION_ERRANT_LINK: _never(_PROTOCOL),
    conditions.SESSION_HANDLE_IN_USE: _never(_PROTOCOL),
    conditions.SESSION_UNATTACHED_HANDLE: _never(_PROTOCOL),
    conditions.LINK_DETACH_FORCED: _later("an operator of the peer intervened"),
    conditions.LINK_TRANSFER_LIMIT_EXCEEDED: _later("about the flow, not about the message"),
    conditions.LINK_MESSAGE_SIZE_EXCEEDED: _never("larger than the peer accepts"),
    conditions.LINK_REDIRECT: _later(_MOVE),
    conditions.LINK_STOLEN: _later("about the link, not about the message"),
    conditions.TRANSACTION_UNKNOWN_ID: _later("a transaction of the peer's own has failed"),
    conditions.TRANSACTION_ROLLBACK: _later("a transaction of the peer's own has failed"),
    conditions.TRANSACTION_TIMEOUT: _later("a transaction of the peer's own has failed"),
}
"""Rejections with an error, by condition."""
REFUSED_OTHERWISE: Final = _never("a condition of the peer's own: the report has its text")

_FAULT: Final = (
    "one of the two sides breaks the protocol; the message that causes it is searched for"
)

ENDS: Final[Mapping[str, FailureRow]] = {
    conditions.INTERNAL_ERROR: _host("the host has failed"),
    conditions.NOT_FOUND: _host("the host does not have the transfer service, or not this name"),
    conditions.UNAUTHORIZED_ACCESS: _host("the host does not grant us `transfer`"),
    conditions.DECODE_ERROR: _link(_FAULT),
    conditions.RESOURCE_LIMIT_EXCEEDED: _all("full is temporary, and the other hosts share it"),
    conditions.NOT_ALLOWED: _host("a rule of the host forbids it"),
    conditions.INVALID_FIELD: _link(_FAULT),
    conditions.NOT_IMPLEMENTED: _host("the host cannot do what a relay needs"),
    conditions.RESOURCE_LOCKED: _all("another party has it at the moment"),
    conditions.PRECONDITION_FAILED: _host("the host refuses this link"),
    conditions.RESOURCE_DELETED: _host("the link's node was deleted"),
    conditions.ILLEGAL_STATE: _link(_FAULT),
    conditions.FRAME_SIZE_TOO_SMALL: _link(_FAULT),
    conditions.CONNECTION_FORCED: _host("the host is being stopped"),
    conditions.CONNECTION_FRAMING_ERROR: _link(_FAULT),
    conditions.CONNECTION_REDIRECT: _host(_MOVE),
    conditions.SESSION_WINDOW_VIOLATION: _link(_FAULT),
    conditions.SESSION_ERRANT_LINK: _link(_FAULT),
    conditions.SESSION_HANDLE_IN_USE: _link(_FAULT),
    conditions.SESSION_UNATTACHED_HANDLE: _link(_FAULT),
    conditions.LINK_DETACH_FORCED: _link("an operator of the peer intervened"),
    conditions.LINK_TRANSFER_LIMIT_EXCEEDED: _link("the two sides count credit differently"),
    conditions.LINK_MESSAGE_SIZE_EXCEEDED: _link("one message is too large; it is searched for"),
    conditions.LINK_REDIRECT: _host(_MOVE),
    conditions.LINK_STOLEN: _all("another broker uses our name: two that share it must not fight"),
    conditions.TRANSACTION_UNKNOWN_ID: _link(_FAULT),
    conditions.TRANSACTION_ROLLBACK: _link(_FAULT),
    conditions.TRANSACTION_TIMEOUT: _link(_FAULT),
}
"""Ends of links, sessions and connections by the peer with an error, by condition."""
ENDED_OTHERWISE: Final = _host("without an error, or with a condition of the peer's own")

_NO_PROOF: Final = "silence does not prove absence"
_PROOF: Final = "proved unless a stale answer was involved; then its messages wait"


def _gone(why: str) -> FailureRow:
    return FailureRow(FailureScope.DESTINATION, FailureAction.REJECT, f"{why}; {_PROOF}")


CODES: Final[Mapping[str, FailureRow]] = {
    "dns.bad-name": FailureRow(
        FailureScope.DESTINATION, FailureAction.REJECT, "it is not a valid domain"
    ),
    "dns.nxdomain": _gone("the domain does not exist"),
    "dns.no-service": _gone("the domain says that it offers no AMQP (target `.`)"),
    "dns.no-address": _gone("no host of the domain has an address"),
    "dns.denied-target": _gone("its records point only to places that may not be dialled for it"),
    "dns.insecure": _all("DNSSEC is required, and the answer was not authenticated"),
    "dns.bogus": _all("the answer fails DNSSEC: somebody may be forging it; never a downgrade"),
    "dns.not-dnssec-capable": _all("DNSSEC is needed, and the name server cannot do it"),
    "dns.loop-to-self": _all("the domain's hosts lead back to this broker"),
    "dns.loop": _all("an alias loop; its owner will notice"),
    "dns.malformed": _all("a malformed answer"),
    "dns.refused": _all("the name server refuses to answer"),
    "dns.servfail": _all("the name server has failed"),
    "dns.timeout": _all(_NO_PROOF),
    "dns.unreachable": _all(_NO_PROOF),
    "dns.busy": _all("this broker has too many queries in progress"),
    "connect.refused": _host("nothing listens there"),
    "connect.timeout": _host("no answer from there"),
    "connect.unreachable": _host("there is no network route to it"),
    "connect.name": _host("the host of a static route was not found"),
    "tls.name": _host("the host has not proved the expected name"),
    "tls.untrusted": _host("the host's certificate comes from no authority we trust"),
    "tls.expired": _host("a certificate has expired: the host's, or ours"),
    "tls.not-yet-valid": _host("a certificate is not valid yet: check the clocks"),
    "tls.revoked": _host("the host's certificate has been revoked by its authority"),
    "tls.crl": _host("our list of revoked certificates cannot be used"),
    "tls.pin": _host("the host's key is not the pinned one"),
    "tls.handshake": _host("the handshake failed; the host's log says why"),
    "tls.no-certificate": _host("a certificate was required and not shown"),
    "tls.plain-text": _host("the host does not speak TLS at this port"),
    "tls.key": _host("our private key does not fit our certificate"),
    "tls.file": _host("our certificate, key or trust file cannot be used"),
    "tls.exists": _host("only when issuing certificates, not on the way to a peer"),
    "tls.request": _host("only when issuing certificates, not on the way to a peer"),
    "dane.mismatch": _host("the host's key matches none of its TLSA records"),
    "dane.chain": _host("the chain from the authority in its TLSA records is not valid"),
    "dane.absent": _host("DANE is required, and the host has no TLSA records"),
    "dane.unusable": _host("DANE is required, and none of the host's TLSA records can be used"),
    "auth.mechanism": _host("the host offers no EXTERNAL"),
    "auth.refused": _host("the host does not accept our identity"),
    "sasl.refused": _host("the host does not accept our identity"),
    "link.ended": _host("the link ended without an error"),
    "session.ended": _host("the session ended without an error"),
    "link.incomplete": _link("the peer's list of unsettled messages was cut: retried without it"),
    "connection.ended": _host("the connection ended without an error"),
    "connection.closed": _host("closed by us: it was idle, or the daemon stops"),
    "peer.lost": _host("the connection was lost without a close"),
    "peer.timeout": _host("no attached link in time"),
    "peer.unreached": _host("given to senders instead of any failure before proof of identity"),
    "peer.stuck": _link("the peer took messages and gave no outcome in time"),
    "peer.moved": _link("the DNS names other hosts now; the link goes there"),
    "peer.broken": _host("the peer sent unreadable data, or broke the protocol: its failure"),
    "peer.full": _all("a whole window of messages came back"),
    "relay.fault": _link("an exception in this broker while it sent; the log has it"),
    "peer.failed": _host("an unclassified failure"),
}
"""Failures with a code: DNS, connecting, TLS and connections."""


def row_for_code(code: str) -> FailureRow:
    """Return the row of a code; an unlisted code has the row of its kind."""
    row = CODES.get(code)
    if row is not None:
        return row
    if code.startswith("dns."):
        return CODES["dns.servfail"]
    if code.startswith("policy."):
        return _all("a rule about the way to this peer")
    return CODES["peer.failed"]


SEARCHED: Final = frozenset(
    ("peer.lost", "peer.stuck", "peer.broken", "link.ended", "session.ended", "connection.ended")
)
"""Codes of the end of an open connection that a message may have caused."""
ON_PURPOSE: Final = frozenset(
    (
        conditions.CONNECTION_FORCED,
        conditions.CONNECTION_REDIRECT,
        conditions.LINK_DETACH_FORCED,
        conditions.LINK_REDIRECT,
        conditions.LINK_STOLEN,
        conditions.RESOURCE_LIMIT_EXCEEDED,
        conditions.RESOURCE_LOCKED,
    )
)
"""Conditions unrelated to messages: when a connection ends with one, no message is suspected."""

SUSPICION: Final = (
    "## When a message may be the cause",
    "",
    "Two connections in a row that ended with messages in doubt and brought no outcome start a",
    "search: messages go one at a time, and one that was alone in flight when the connection ended",
    "is set aside for a while so that the others go first. It keeps its place in the store, comes",
    "again by itself (`amqproute why` shows when), and is sent at once after `amqproute retry`.",
    "If there are several they come back one by one, at once after an accepted one, else 20",
    "seconds apart; the others go first on each connection.",
    "",
    "| the connection | what it proves about a message that was alone in flight |",
    "|---|---|",
    "| closed by us on purpose, or ended with a condition that says so | nothing; no search |",
    "| lost, without an outcome in time, `amqp:internal-error`, or closed by us for a fault of the "
    "peer's (`peer.broken`) | nothing; it is set aside, and kept for its lifetime |",
    "| ended by the peer with any other condition, or an exception of our own while we sent | it "
    "counts against the message if others pass |",
    "",
    "A message is given up (`remote.fault`) once three such ends count against it: each time the",
    "last other message was accepted by the peer, and one was accepted after the first of these",
    "ends. If no message passes, the peer has failed, and none is given up before the end of its",
    "lifetime.",
    "",
)

PROOFS: Final = (
    "## How long a proof of the DNS counts",
    "",
    "Waiting messages are returned at once, and new ones are refused, for as long as the proving",
    "answers may be cached: the zone's negative TTL, 5 seconds at least and 15 minutes at most.",
    "`amqproute explain` and `amqproute peer test` with an address there end it now: they have the",
    "daemon drop its cached answers about that domain.",
    "",
)
RETRY_AFTER: Final = (
    "## When the peer sets the time of the next attempt",
    "",
    "An error may have `retry-after`, a number of seconds, in its info, as our own refusals for a",
    "contract have. From a peer that has proved its identity (`pkix`, `dane` or `pin`) it replaces",
    "the back-off, where the table says that delivery is tried again:",
    "",
    "| place | what waits for that time |",
    "|---|---|",
    "| a message rejected, action retry or count | that message |",
    "| the end of a link, session or connection | the destination, once no other host is left |",
    "",
    "It is at least `relay.first-retry` and at most `relay.last-retry`, whatever the peer says,",
    "with up to a fifth more so that not all come at once. The attempt counts as failed as any",
    "other: a destination that refuses `relay.dead-after` times in a row is dead. A call from the",
    "peer, or an operator, ends the wait as always.",
)


def render() -> str:
    """Return the table as a page of documentation."""
    lines = [
        "# What a failure means",
        "",
        "Generated from `amqproute/relay/failure_table.py` by "
        "`python -m amqproute.relay.failure_table`.",
    ]
    sections: list[tuple[str, str, dict[str, FailureRow]]] = [
        ("The outcome of a message", "outcome", dict(OUTCOMES)),
        (
            "A message rejected with an error",
            "condition",
            {**REFUSALS, "any other": REFUSED_OTHERWISE},
        ),
        (
            "A link, session or connection ended by the peer",
            "condition",
            {**ENDS, "none, or any other": ENDED_OTHERWISE},
        ),
        ("DNS, connections, TLS", "code", dict(CODES)),
    ]
    for title, kind, rows in sections:
        lines += [
            "",
            f"## {title}",
            "",
            f"| {kind} | reaches | action | why |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| `{name}` | {row.scope.value} | {row.action.value} | {row.why} |"
            for name, row in rows.items()
        ]
    return "\n".join([*lines, "", *SUSPICION, *PROOFS, *RETRY_AFTER]) + "\n"


if __name__ == "__main__":
    print(render(), end="")
