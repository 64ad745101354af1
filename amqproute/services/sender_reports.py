# SPDX-License-Identifier: Apache-2.0
"""Delivery status reports as messages to ``x-opt-return-to``.

Requests for reports
================

The message annotation ``x-opt-return-to`` is the address, ``x-opt-report`` one of these words or a
list of them. Without the latter, the configuration's ``reports.default`` applies.

=============  =====================================================================================
word           sent to the return address
=============  =====================================================================================
``failure``    a report when the message is given up, with the reason; final
``delay``      a report when it has waited for its next hop for ``reports.delay-after``; once at
               each broker
``relayed``    a report when the next hop has taken it; final only if the next hop does not report
``delivered``  a report when a consumer at its destination has accepted it; final. If the next hop
               does not report, a final ``relayed`` instead
``return``     the message itself when it is given up, with its body, as a returned message (T-26);
               to a third organization a ``failure`` report in its place, see below
``never``      no report
=============  =====================================================================================

Format of a report
================

A durable message for the return address: an amqp-value section with a map (`body_of_report`), its
subject for people, the correlation-id that of the original's message-id. The values of `HEAD_KEYS`
are application properties as well: filters select by them, and clients of AMQP 0-9-1, which see the
body as encoded octets, have them as headers. Keys are stable; new ones may be added. ``code`` is
one of `CODES`, for programs; ``text`` is the other side's own text, ``words`` a sentence for
people.

No foreign text in our name
==========================

A returned message leaves with this broker's own origin. So a body is returned to the organization
that it comes from and to local nodes, and nowhere else. If a peer's message names a return address
at a third organization, that one gets a failure report made by this broker, as mail servers return
headers only. Otherwise a peer could place text at the third organization under our name. A returned
message has the mark `values.REPORT_KIND` like a report, with the kind ``return``, which no client
can make. Quotations of a message in a report are cut to a length that identifies it and carries no
content.

Exactly once
=====================================

A final report is stored in the commit that removes the message: after a crash there is either the
message or the report. Its message-id is made from the entry's id, so that readers recognize even a
repeated report (a delay, across a crash).

A report has no return address, so there is never a report about a report. No mark on a message
suppresses a report, since a mark could be forged; the one on a report (`values.REPORT_KIND`) is for
readers, and no decision depends on it. A report that cannot be sent or delivered ends on the
dead-letter node (``relay.dead-letter``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Protocol, cast

from twisted.logger import Logger
from zope.interface import implementer

from amqproute.address import from_compatibility, parse
from amqproute.broker.broker import Broker
from amqproute.broker.commit_batch import Batch
from amqproute.broker.entry_removal import DAMAGED, NODE_DELETED, PURGED
from amqproute.broker.queue import Queue
from amqproute.entry import Entry
from amqproute.errors import AmqpError
from amqproute.interfaces import IReporter, ITarget
from amqproute.message import Message, encode_annotations
from amqproute.outcomes import ErrorDetails
from amqproute.routing import trail
from amqproute.values import (
    ANONYMOUS_PRINCIPAL,
    ORIGIN,
    RELAY_PREFIX,
    REPORT,
    REPORT_CAPABILITY,
    REPORT_KIND,
    RETURN_TO,
    SECURE_PATH,
    DeadLetterReason,
    Origin,
)
from amqproute.wire.amqp10 import codec, sections, spec
from amqproute.wire.amqp10.types import Symbol, Timestamp, UInt

__all__ = ["CODES", "ReportCounters", "ReportTerms", "Reporter", "body_of_report", "wishes"]

FAILURE: Final = "failure"
DELAY: Final = "delay"
RELAYED: Final = "relayed"
DELIVERED: Final = "delivered"
RETURN: Final = "return"
NEVER: Final = "never"
WORDS: Final = frozenset((FAILURE, DELAY, RELAYED, DELIVERED, RETURN, NEVER))
NOTHING: Final[frozenset[str]] = frozenset()

UNREPORTED: Final = Origin(ANONYMOUS_PRINCIPAL, event="reported")
HEAD_KEYS: Final = ("kind", "final", "code", "condition", "text", "words", "to")
"""Keys of a report that are application properties of its message as well."""
LONGEST_TEXT: Final = 1000
STORE_LOST: Final = "store.lost"
MOST_ATTEMPTS: Final = 32
"""Hosts listed in one report."""

_CODE: Final = re.compile(r"[a-z]+(\.[a-z0-9-]+)+")

CODES: Final[Mapping[str, str]] = {
    "route.unroutable": "there is proof that its domain does not exist or takes no messages",
    "route.loop": "it went in a circle",
    "route.hops": "it passed more brokers than the peer allows",
    "route.relay": "the peer does not relay for us to that domain",
    "remote.no-node": "the peer has no such node",
    "remote.refused": "the peer does not let us send it there",
    "remote.rejected": "the peer rejected it",
    "remote.fault": "the peer ends the connection whenever it is sent",
    "message.size": "it is larger than the peer takes",
    "message.undeliverable": "the peer cannot deliver it, or it cannot be sent to the peer",
    "policy.path": "the way to the peer is not as secure as the message requires",
    "policy.origin": "the peer does not let us send on behalf of its origin",
    "reply.gone": "the reply address has expired, or never was",
    "life.expired": "its life ended while it waited",
    "life.held": "its life ended while an operator held what goes there",
    "life.forced": "an operator ended its life",
    "node.rejected": "a consumer rejected it",
    "node.deliveries": "it was delivered too often without success",
    "node.undeliverable": "it could not be passed on from its node",
    NODE_DELETED: "its node was deleted",
    PURGED: "an operator deleted it",
    STORE_LOST: "the disk of the broker has lost it",
    DAMAGED: "the disk of this broker has damaged it: send it again",
    "delay.waiting": "it waits for its next hop, and is tried again",
    "done.relayed": "the next hop has taken responsibility for it",
    "done.unreporting": "the next hop has taken responsibility for it, and sends no reports",
    "done.delivered": "a consumer has accepted it",
}
"""Codes of reports with their meanings."""


@dataclass(slots=True)
class ReportTerms:
    """Report settings of the configuration; a reload replaces them.

    Attributes:
        domain: the name of this broker in reports: its first domain.
        container: its container-id.
        default: the words for a message with a return address and without ``x-opt-report``.
        lifetime_ms: lifetime of a report.
        dead_letter: node for reports that cannot be sent, or None.
    """

    domain: str
    container: str
    default: frozenset[str] = frozenset((FAILURE, DELAY, RETURN))
    lifetime_ms: int = 2 * 86_400_000
    dead_letter: str | None = None


@dataclass(slots=True)
class ReportCounters:
    """Plain counters for operators."""

    failure: int = 0
    delay: int = 0
    relayed: int = 0
    delivered: int = 0
    buried: int = 0


class SentReport(Protocol):
    """The node that a message was on, as far as reports need it."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def dead_letter_name(self) -> str | None:
        """Its dead-letter node."""


@dataclass(frozen=True, slots=True)
class _FormerNode:
    """A node that may have been deleted."""

    name: str
    dead_letter_name: str | None = None


@implementer(IReporter)
class Reporter:
    """Sends reports.

    Args:
        broker: the local nodes.
        place: the target of a return address: a node, or a relay queue, without a DNS query.
        hop_row: returns the row of the next hop with this key, as `Destination.row` makes it and
            with ``offers``, its capabilities; None without one.
        terms: see `ReportTerms`.
    """

    log = Logger()

    def __init__(
        self,
        broker: Broker,
        place: Callable[[str], ITarget],
        hop_row: Callable[[str], spec.Fields | None],
        terms: ReportTerms,
    ) -> None:
        self._broker = broker
        self._place = place
        self._hop_row = hop_row
        self.terms = terms
        self.tally = ReportCounters()

    # -- requests ----------------------------------------------------------------------------------

    def wishes(self, message: Message) -> frozenset[str]:
        """Return the reports requested by the sender of a message; none without an address."""
        return wishes(message.annotation_bytes, self.terms.default, message.annotations)

    def returns(self, message: Message) -> bool:
        """See `IReporter.returns`."""
        return RETURN in self.wishes(message) and self._is_returnable(message)

    def _is_returnable(self, message: Message) -> bool:
        """Return whether a body may go to its return address: not to a third organization."""
        annotations = message.annotations
        if ORIGIN not in annotations:
            return True  # it was first sent here
        address = str(annotations[RETURN_TO])
        try:
            domain = parse(from_compatibility(address) or address).domain
            if domain is None or domain == annotations[ORIGIN]:
                return True
            return not self._place(address).name.startswith(RELAY_PREFIX)
        except AmqpError:
            return False  # it is not known to lead here

    def failed(
        self,
        queue: Queue,
        entry: Entry,
        reason: DeadLetterReason,
        error: ErrorDetails | None,
        batch: Batch,
    ) -> bool:
        """See `IReporter.failed`."""
        wanted = self.wishes(entry.message)
        if FAILURE not in wanted and (RETURN not in wanted or self._is_returnable(entry.message)):
            return False
        row = self._row(queue)
        facts = failure_facts(reason, error, row)
        facts["attempts"] = attempts_of(row, facts)
        return self._report(FAILURE, facts, True, queue, entry, batch)

    def dropped(self, queue: Queue, entry: Entry, code: str, batch: Batch) -> bool:
        """See `IReporter.dropped`."""
        return FAILURE in self.wishes(entry.message) and self._report(
            FAILURE, {"code": code}, True, queue, entry, batch
        )

    def taken(self, queue: Queue, entry: Entry, batch: Batch) -> bool:
        """See `IReporter.taken`."""
        wanted = self.wishes(entry.message)
        row = self._row(queue)
        if row is None:
            facts: dict[str, object] = {"code": "done.delivered"}
            return DELIVERED in wanted and self._report(DELIVERED, facts, True, queue, entry, batch)
        is_last = REPORT_CAPABILITY not in _list_of(row, "offers")
        if not (RELAYED in wanted or (is_last and DELIVERED in wanted)):
            return False
        facts = {
            "code": "done.unreporting" if is_last else "done.relayed",
            "attempts": [{"host": row["hop"], "container": row["container"], "code": "ok"}],
        }
        return self._report(RELAYED, facts, is_last, queue, entry, batch)

    def delayed(self, queue: Queue, entry: Entry, batch: Batch) -> bool:
        """Report the delay of a relay queue's entry, if its sender wants that.

        See `services.delay_reports`.
        """
        if DELAY not in self.wishes(entry.message):
            return False
        row = self._row(queue) or {}
        facts: dict[str, object] = {"code": "delay.waiting", "text": str(row.get("last-error", ""))}
        facts["attempts"] = attempts_of(row, {})
        next_ms = row.get("next-attempt-ms")
        if isinstance(next_ms, int) and next_ms:
            facts["next-attempt"] = Timestamp(next_ms)
        if row.get("held"):
            facts["held"] = str(row["held"])
        return self._report(DELAY, facts, False, queue, entry, batch)

    def lost(self, node: str, entry: Entry, batch: Batch) -> bool:
        """Report the loss of a message to its sender.

        Args:
            node: its node.
            entry: the entry as far as it is known; its message has a return address.
            batch: commits the report.

        Returns:
            Whether a report was sent.
        """
        facts: dict[str, object] = {"code": STORE_LOST}
        return self._report(FAILURE, facts, True, _FormerNode(node), entry, batch)

    # -- sending -----------------------------------------------------------------------------------

    def _row(self, queue: Queue) -> spec.Fields | None:
        name = queue.name
        if not name.startswith(RELAY_PREFIX):
            return None
        key = name[len(RELAY_PREFIX) :]
        return self._hop_row(key) or {"hop": key, "container": ""}

    def _report(
        self,
        kind: str,
        facts: dict[str, object],
        is_final: bool,
        queue: SentReport,
        entry: Entry,
        batch: Batch,
    ) -> bool:
        terms = self.terms
        address = str(entry.message.annotations[RETURN_TO])
        body = {
            "kind": Symbol(kind),
            "final": is_final,
            "reporter": terms.domain,
            "container": terms.container,
            "reported": Timestamp(batch.now_ms),
            "queue": _public_name(queue, entry),
            **body_of_report(entry, facts, terms.container),
        }
        report = encode_report(
            address,
            f"{terms.container}/{entry.id}/{kind}",
            body,
            UInt(min(terms.lifetime_ms, 0xFFFFFFFF)),
            entry.message.annotations.get(SECURE_PATH),
        )
        setattr(self.tally, kind, getattr(self.tally, kind) + 1)
        try:
            self._place(address).put(report, batch, replace(UNREPORTED, parent=entry.id))
        except AmqpError as error:
            return self._bury(report, address, error, queue, batch)
        return True

    def _bury(
        self, report: Message, address: str, error: AmqpError, queue: SentReport, batch: Batch
    ) -> bool:
        """Put a report without a usable return address on the dead-letter node."""
        self.tally.buried += 1
        name = self.terms.dead_letter or queue.dead_letter_name
        if name is not None:
            return self._broker.disposal.bury(name, report, DeadLetterReason.UNDELIVERABLE, batch)
        count = self._broker.rate_limited_log.due(("report", error.condition))
        if count:
            self.log.warn(
                "{count} reports, the last to {address}, cannot be sent, and relay.dead-letter is "
                "not set: dropped ({error})",
                count=count,
                address=address[:256],
                error=error,
            )
        return False


# -- annotations --------------------------------------------------------------------------------


def wishes(
    section: bytes, default: frozenset[str], annotations: spec.Annotations
) -> frozenset[str]:
    """Return the report words of a message.

    Args:
        section: the octets of its message annotations.
        default: the words for a return address without ``x-opt-report``.
        annotations: the same, decoded.
    """
    if not isinstance(annotations.get(RETURN_TO), str):
        return NOTHING
    value = annotations.get(REPORT)
    if value is None:
        return default
    return _read_wishes(value) or NOTHING


def _read_wishes(value: object) -> frozenset[str] | None:
    """Return the known words of an ``x-opt-report``; None if it is not a word or a list."""
    if isinstance(value, str):
        words = frozenset((str(value),))
    else:
        items = getattr(value, "items", value)
        if not isinstance(items, Sequence) or not all(isinstance(one, str) for one in items):
            return None
        words = frozenset(map(str, items))
    return NOTHING if NEVER in words else words & WORDS


@lru_cache(maxsize=256)
def _known_words(words: tuple[str, ...]) -> bool:
    return WORDS.issuperset(words)


def check_wishes(value: object) -> str | None:
    """Return the fault of an ``x-opt-report`` that a client sends; None if it is valid."""
    items = (value,) if isinstance(value, str) else getattr(value, "items", value)
    if not isinstance(items, list | tuple) or not all(isinstance(one, str) for one in items):
        return f"{REPORT} is not a word or a list of words"
    if _known_words(tuple(map(str, items))):
        return None
    unknown = next(str(one) for one in items if str(one) not in WORDS)
    return f"{REPORT}: {unknown[:64]!r} is none of {', '.join(sorted(WORDS))}"


# -- contents of reports ---------------------------------------------------------------------------


def failure_facts(
    reason: DeadLetterReason, error: ErrorDetails | None, row: spec.Fields | None
) -> dict[str, object]:
    """Return code, condition and words of a failure.

    Args:
        reason: why the entry left its queue.
        error: the error. Its info is used only if this broker made the error: a rejecting consumer
            may write anything there.
        row: the row of the next hop; None on a local queue.
    """
    info = (error.info or {}) if error is not None and row is not None else {}
    facts: dict[str, object] = {"code": _code_of(reason, error, row, info)}
    if error is not None:
        facts["condition"] = Symbol(error.condition)
        facts["text"] = str(info.get("text") or error.description or "")[:LONGEST_TEXT]
        if "remote-code" in info:
            facts["remote-code"] = str(info["remote-code"])
    elif row is not None:
        facts["text"] = str(row.get("last-error", ""))[:LONGEST_TEXT]
    if row is not None and row.get("held"):
        facts["held"] = str(row["held"])
    return facts


def _code_of(
    reason: DeadLetterReason,
    error: ErrorDetails | None,
    row: spec.Fields | None,
    info: spec.Fields,
) -> str:
    if reason is DeadLetterReason.EXPIRED:
        if error is not None:
            return "life.forced"
        return "life.held" if row is not None and row.get("held") else "life.expired"
    if row is None:
        if reason is DeadLetterReason.MAX_DELIVERIES:
            return "node.deliveries"
        is_rejected = reason is DeadLetterReason.REJECTED
        return "node.rejected" if is_rejected else "node.undeliverable"
    code = str(info.get("code", ""))
    return code if code in CODES else "remote.rejected"


def attempts_of(row: spec.Fields | None, facts: spec.Fields) -> list[dict[str, object]]:
    """Return every host that was tried, each with its own error.

    The hosts of the last round of attempts, then the one whose answer the report is about. Hosts
    that have not proved to be the peer's are one entry (`amqproute.relay.error_disclosure`).
    """
    if row is None:
        return []
    attempts: list[dict[str, object]] = []
    for line in _list_of(row, "attempts")[:MOST_ATTEMPTS]:
        host, _, rest = str(line).partition(": ")
        code, _, text = rest.partition(": ")
        if not _CODE.fullmatch(code):
            code, text = "", rest  # an address of a host, which the connector describes as text
        attempts.append({"host": host, "code": code, "text": text[:LONGEST_TEXT]})
    if row.get("container") and "condition" in facts:
        attempts.append(
            {
                "host": str(row["hop"]),
                "container": str(row["container"]),
                "code": str(facts["code"]),
                "text": str(facts.get("text", "")),
            }
        )
    return attempts


def _public_name(queue: SentReport, entry: Entry) -> str:
    """Return the name of a message's node as reports show it.

    The name of a relay queue means nothing to senders, and may be that of a gateway of ours.
    """
    if queue.name.startswith(RELAY_PREFIX):
        return entry.message.to or ""
    return queue.name


def body_of_report(entry: Entry, facts: spec.Fields, container: str) -> dict[str, object]:
    """Return the body of a report about an entry: its identity, its path, its times."""
    message = entry.message
    annotations = message.annotations
    try:
        properties = message.properties
    except AmqpError:  # it may have been rejected for this
        properties = spec.Properties()
    try:
        hops = [*trail.shortened(trail.trace_of(annotations)), container]
    except AmqpError:
        hops = [container]
    code = str(facts["code"])
    body: dict[str, object] = {
        **facts,
        "code": code,
        "condition": facts.get("condition"),
        "text": facts.get("text") or None,
        "attempts": _list_of(facts, "attempts"),
        "words": _sentence(code, (properties.to or "")[:LONGEST_TEXT], facts),
        "message-id": _quoted(properties.message_id),
        "correlation-id": _quoted(properties.correlation_id),
        "to": _quoted(properties.to),
        "subject": _quoted(properties.subject),
        "origin": _quoted(annotations.get(ORIGIN)),
        "hops": hops,
        "arrived": Timestamp(entry.arrived_ms),
        "expires": Timestamp(entry.expires_ms) if entry.expires_ms else None,
        "delivery-count": UInt(entry.delivery_count),
    }
    return body


def _list_of(facts: spec.Fields, name: str) -> list[object]:
    found = facts.get(name, ())
    return list(found) if isinstance(found, Iterable) else []


def _quoted(value: object) -> object:
    """Return a quotation from a message, as a report repeats it."""
    return value[:LONGEST_TEXT] if isinstance(value, str | bytes) else value


def _sentence(code: str, to: str, facts: spec.Fields) -> str:
    words = f"Your message{f' to {to}' if to else ''}: {CODES.get(code, code)}."
    text = facts.get("text")
    return f"{words} {text}" if text else words


def _heads(body: spec.Fields) -> dict[str, object]:
    """Return the values of a report for filters, and for clients of AMQP 0-9-1 as headers."""
    found = {name: body.get(name) for name in HEAD_KEYS}
    return {name: value for name, value in found.items() if value is not None}


def encode_report(
    address: str, message_id: str, body: spec.Fields, ttl: UInt, secure_path: object = None
) -> Message:
    """Encode a report; it inherits the demand for a secure path, because it quotes the message."""
    kind, code = body["kind"], body["code"]
    annotations: dict[Symbol, object] = {REPORT_KIND: Symbol(kind)}
    if secure_path is not None:
        annotations[SECURE_PATH] = secure_path
    original = body["message-id"]
    properties = spec.Properties(
        message_id=message_id,
        to=address,
        subject=f"{kind}: {code}",
        correlation_id=cast(spec.MessageId | None, original),
        creation_time=cast(Timestamp, body["reported"]),
    )
    return Message(
        b"".join(
            (
                sections.encode_header(spec.Header(durable=True, ttl=ttl)),
                encode_annotations(annotations),
                codec.encode(properties),
                sections.encode_section(spec.SECTION_APPLICATION_PROPERTIES, _heads(body)),
                sections.encode_section(spec.SECTION_AMQP_VALUE, body),
            )
        )
    )
