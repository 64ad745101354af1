# SPDX-License-Identifier: Apache-2.0
"""The table of failures: how far each one reaches, and what is done about it (T-23, T-25, T-26).

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
    """How far a failure reaches."""

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
        action: what is done.
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
    "rejected, without an error": _never("the peer will not take it and does not say why"),
    "released": _later("not now; it waits alone and lets others pass"),
    "modified": _later("the same"),
    "modified, delivery-failed": _message(
        FailureAction.COUNT, "the same, and it counts as a delivery"
    ),
    "modified, undeliverable-here": _never("the peer is the only way to this domain"),
    "no outcome": _later("settled without an outcome, or an outcome nobody knows: as released"),
}
"""Outcomes of a message from the peer (part 3 §3.4)."""

_BROKEN: Final = "the message, or a field of it, is not what the peer can read; it stays so"
_PROTOCOL: Final = "no answer to a message; as any other refusal"
_MOVE: Final = "another host has it; the addresses of the peer come from the DNS, which will say so"

REFUSALS: Final[Mapping[str, FailureRow]] = {
    conditions.INTERNAL_ERROR: _later("the peer has failed, not the message"),
    conditions.NOT_FOUND: _never("the node does not exist there"),
    conditions.UNAUTHORIZED_ACCESS: _never("we may not send to that node"),
    conditions.DECODE_ERROR: _never(_BROKEN),
    conditions.RESOURCE_LIMIT_EXCEEDED: _later("full is not never"),
    conditions.NOT_ALLOWED: _never("a rule of the peer forbids it"),
    conditions.INVALID_FIELD: _never(_BROKEN),
    conditions.NOT_IMPLEMENTED: _never("the peer cannot do what the message asks for"),
    conditions.RESOURCE_LOCKED: _later("somebody else has it at the moment"),
    conditions.PRECONDITION_FAILED: _never("the message does not fit the node"),
    conditions.RESOURCE_DELETED: _never("the node has gone"),
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
    conditions.LINK_MESSAGE_SIZE_EXCEEDED: _never("larger than the peer takes"),
    conditions.LINK_REDIRECT: _later(_MOVE),
    conditions.LINK_STOLEN: _later("about the link, not about the message"),
    conditions.TRANSACTION_UNKNOWN_ID: _later("a transaction of the peer's own has failed"),
    conditions.TRANSACTION_ROLLBACK: _later("a transaction of the peer's own has failed"),
    conditions.TRANSACTION_TIMEOUT: _later("a transaction of the peer's own has failed"),
}
"""Rejections with an error, by condition."""
REFUSED_OTHERWISE: Final = _never("a condition of the peer's own: its words stand in the report")

_FAULT: Final = (
    "one of the two sides breaks the protocol; the message it happens with is looked for"
)

ENDS: Final[Mapping[str, FailureRow]] = {
    conditions.INTERNAL_ERROR: _host("the host has failed"),
    conditions.NOT_FOUND: _host("the host does not have the transfer service, or not this name"),
    conditions.UNAUTHORIZED_ACCESS: _host("the host does not grant us `transfer`"),
    conditions.DECODE_ERROR: _link(_FAULT),
    conditions.RESOURCE_LIMIT_EXCEEDED: _all("full is not never, and the other hosts share it"),
    conditions.NOT_ALLOWED: _host("a rule of the host forbids it"),
    conditions.INVALID_FIELD: _link(_FAULT),
    conditions.NOT_IMPLEMENTED: _host("the host cannot do what a relay needs"),
    conditions.RESOURCE_LOCKED: _all("somebody else has it at the moment"),
    conditions.PRECONDITION_FAILED: _host("the host does not take this link"),
    conditions.RESOURCE_DELETED: _host("what the link led to has gone"),
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
    conditions.LINK_MESSAGE_SIZE_EXCEEDED: _link("one message is too large; it is looked for"),
    conditions.LINK_REDIRECT: _host(_MOVE),
    conditions.LINK_STOLEN: _all("another broker uses our name: two that share it must not fight"),
    conditions.TRANSACTION_UNKNOWN_ID: _link(_FAULT),
    conditions.TRANSACTION_ROLLBACK: _link(_FAULT),
    conditions.TRANSACTION_TIMEOUT: _link(_FAULT),
}
"""Ends of links, sessions and connections by the peer with an error, by condition."""
ENDED_OTHERWISE: Final = _host("without an error, or with a condition of the peer's own")

_NO_PROOF: Final = "no answer is no proof that there is nobody"
_PROOF: Final = "proved while no stale answer had a part in it; otherwise its messages wait"


def _gone(why: str) -> FailureRow:
    return FailureRow(FailureScope.DESTINATION, FailureAction.REJECT, f"{why}; {_PROOF}")


CODES: Final[Mapping[str, FailureRow]] = {
    "dns.bad-name": FailureRow(
        FailureScope.DESTINATION, FailureAction.REJECT, "it cannot be a domain"
    ),
    "dns.nxdomain": _gone("the domain does not exist"),
    "dns.no-service": _gone("the domain says that it offers no AMQP (target `.`)"),
    "dns.no-address": _gone("no host of the domain has an address"),
    "dns.denied-target": _gone("its records lead only to places that are not dialled for it"),
    "dns.insecure": _all("DNSSEC is required, and the answer was not authenticated"),
    "dns.bogus": _all("the answer fails DNSSEC: somebody may be forging it; never a downgrade"),
    "dns.not-dnssec-capable": _all("DNSSEC is needed, and the name server cannot do it"),
    "dns.loop-to-self": _all("the domain's hosts lead back to this broker"),
    "dns.loop": _all("aliases that lead in a circle; their owner will notice"),
    "dns.malformed": _all("an answer that cannot be read"),
    "dns.refused": _all("the name server refuses to answer"),
    "dns.servfail": _all("the name server has failed"),
    "dns.timeout": _all(_NO_PROOF),
    "dns.unreachable": _all(_NO_PROOF),
    "dns.busy": _all("this broker has too many questions open"),
    "connect.refused": _host("nobody listens there"),
    "connect.timeout": _host("nobody answers there"),
    "connect.unreachable": _host("there is no way to it"),
    "connect.name": _host("the host of a static route was not found"),
    "tls.name": _host("the host has not proved the name it was asked for"),
    "tls.untrusted": _host("the host's certificate comes from no authority we trust"),
    "tls.expired": _host("a certificate has expired: the host's, or ours"),
    "tls.not-yet-valid": _host("a certificate is not valid yet: look at the clocks"),
    "tls.revoked": _host("the host's certificate has been revoked by its authority"),
    "tls.crl": _host("our list of revoked certificates cannot be used"),
    "tls.pin": _host("the host shows another key than the one that is pinned for it"),
    "tls.handshake": _host("the handshake failed; the host's log says why"),
    "tls.no-certificate": _host("a certificate was required and not shown"),
    "tls.plain-text": _host("the host does not speak TLS at this port"),
    "tls.key": _host("our private key does not fit our certificate"),
    "tls.file": _host("our certificate, key or trust file cannot be used"),
    "tls.exists": _host("making certificates only; not met on the way to a peer"),
    "tls.request": _host("making certificates only; not met on the way to a peer"),
    "dane.mismatch": _host("the host's key is none of those its TLSA records name"),
    "dane.chain": _host("the chain from the authority its TLSA records name does not hold"),
    "dane.absent": _host("DANE is demanded, and the host has no TLSA records"),
    "dane.unusable": _host("DANE is demanded, and none of the host's TLSA records can be used"),
    "auth.mechanism": _host("the host offers no EXTERNAL"),
    "auth.refused": _host("the host does not accept who we are"),
    "sasl.refused": _host("the host does not accept who we are"),
    "link.ended": _host("the link ended without an error"),
    "session.ended": _host("the session ended without an error"),
    "link.incomplete": _link("the peer's list of unsettled messages was cut: once more without"),
    "connection.ended": _host("the connection ended without an error"),
    "connection.closed": _host("closed by us: it had nothing to do, or the daemon stops"),
    "peer.lost": _host("the connection is gone without a word"),
    "peer.timeout": _host("no attached link in time"),
    "peer.unreached": _host("what senders are told in place of all that comes before proof"),
    "peer.stuck": _link("the peer took messages and told no outcome in time"),
    "peer.moved": _link("the DNS names other hosts now; the link goes there"),
    "peer.broken": _host("the peer sent what cannot be read, or broke the protocol: its failure"),
    "peer.full": _all("a whole window of messages came back"),
    "relay.fault": _link("an exception in this broker while it sent; the log has it"),
    "peer.failed": _host("a failure nobody has a name for"),
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
    "again by itself (`amqproute why` says when), and goes at once after `amqproute retry`.",
    "Where there are several they come back one by one, at once behind one that is taken, else 20",
    "seconds apart; the others begin each connection.",
    "",
    "| the connection | what it proves about a message that was alone in flight |",
    "|---|---|",
    "| closed by us on purpose, or ended with a condition that says so | nothing; no search |",
    "| lost, without an outcome in time, `amqp:internal-error`, or closed by us for a fault of the "
    "peer's (`peer.broken`) | nothing; it is set aside, and kept for its lifetime |",
    "| ended by the peer with any other condition, or an exception of our own while we sent | it "
    "counts against the message where others pass |",
    "",
    "A message is given up (`remote.fault`) once three such ends count against it: each time the",
    "last other message was taken by the peer, and one was taken after the first of these ends.",
    "Where nothing passes the peer has failed, and nothing is given up before its lifetime ends.",
    "",
)

PROOFS: Final = (
    "## How long a proof of the DNS counts",
    "",
    "What waits is returned at once, and new messages are refused, for as long as the answers that",
    "prove it may be remembered: the zone's negative TTL, 5 seconds at least and 15 minutes at",
    "most. `amqproute explain` and `amqproute peer test` with an address there end it now: they",
    "have the daemon forget what the DNS has said of that domain.",
    "",
)
RETRY_AFTER: Final = (
    "## When the peer says when to come back",
    "",
    "An error may have `retry-after`, a number of seconds, in its info, as our own refusals for a",
    "contract have. From a peer that has proved who it is (`pkix`, `dane` or `pin`) it takes the",
    "place of the back-off, where the table says that it is tried again:",
    "",
    "| where it stands | what waits so long |",
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
        "Made from `amqproute/relay/failure_table.py` by "
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
