# SPDX-License-Identifier: Apache-2.0
"""Final disposal of entries: reports, returns, dead letters (O-24, O-25, T-26).

Accepted messages are reported to senders that have asked for it. Undeliverable messages are
reported, and returned to their sender if it asked for that; else they go to the queue's node for
dead letters, else they are dropped. All of it happens in the batch in which the entry ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from twisted.logger import Logger

from amqproute.address import host_of, local_name
from amqproute.broker.binding import Binding
from amqproute.broker.commit_batch import Batch
from amqproute.broker.dead_letter_exchange import DeadLetter, DeadLetterExchange
from amqproute.broker.exchanges.topology import Topology
from amqproute.broker.queue_view import QueueView
from amqproute.broker.recent_counts import RecentCounts, RecentEvent
from amqproute.entry import Entry
from amqproute.errors import AmqpError
from amqproute.interfaces import IReporter, ITarget
from amqproute.journal.event import SOMEBODY, EntryTaker, because
from amqproute.journal.record import RecordKind
from amqproute.log_rate_limit import RateLimitedLog
from amqproute.message import Message
from amqproute.outcomes import ErrorDetails
from amqproute.routing.trail import TRACE
from amqproute.values import (
    ANONYMOUS_PRINCIPAL,
    DEAD_LETTER_REASON,
    DEAD_LETTER_SOURCE,
    DEAD_LETTER_WORDS,
    ORIGIN,
    RELAY_PREFIX,
    REPORT,
    REPORT_KIND,
    RETURN_TO,
    RETURNED,
    DeadLetterReason,
    Origin,
)

_TEXT = "text"
"""In an error's info: the words of the refusing side (`relay.failure_errors`)."""
RETURN_TO_OCTETS = RETURN_TO.encode()
REPORT_OCTETS = REPORT.encode()
CONSUMER = "by a consumer"
"""The kind of a rejection that is none of a peer's."""
LONGEST_WORDS = 1200
"""Letters of an error that a dead letter carries; a consumer may have written it."""
LONGEST_LOGGED = 256
"""Those of them that the log repeats."""

WayBack = Callable[[str], ITarget]


class Disposal:
    """The end of the entries of all queues to which messages are sent. See `IDisposal`.

    Args:
        node: finds a local node by its name.
        way_back: returns the function that finds the target of an address ``node@domain``; or None,
            as long as there is none.
        rate_limited_log: keeps a flood of messages from filling the log.
        recent: counters of the last hour.
        topology_of: finds the exchanges of a virtual host, for dead letters.

    Attributes:
        reporter: reports to senders; None without reports.
    """

    log = Logger()

    def __init__(
        self,
        node: Callable[[str], ITarget],
        way_back: Callable[[], WayBack | None],
        rate_limited_log: RateLimitedLog,
        recent: RecentCounts,
        topology_of: Callable[[str], Topology],
    ) -> None:
        self._node = node
        self._way_back = way_back
        self._rate_limited_log = rate_limited_log
        self._recent = recent
        self._topology_of = topology_of
        self.reporter: IReporter | None = None

    def counted(
        self, queue: QueueView, count: int, reason: DeadLetterReason, error: ErrorDetails | None
    ) -> None:
        """Count dead letters. See `IDisposal.counted`."""
        condition = str(error.condition) if error is not None else ""
        is_rejected = reason is DeadLetterReason.REJECTED
        if is_rejected and not queue.is_relay:  # those by peers are counted with their kinds
            happening = RecentEvent("rejected", queue.name, CONSUMER, condition)
            self._recent.add(happening, count)
        # Expiry on a queue without dead letters is nothing unusual.
        is_usual = is_rejected or (reason is DeadLetterReason.EXPIRED and not queue.is_relay)
        is_kept = queue.dead_letter_name is not None or queue.dead_letter_target is not None
        if is_kept or not is_usual:
            self._recent.add(RecentEvent("dead-lettered", queue.name, reason.value), count)

    def dead_letter(
        self,
        queue: QueueView,
        entries: list[Entry],
        reason: DeadLetterReason,
        error: ErrorDetails | None,
        batch: Batch,
    ) -> None:
        """Report each entry as its sender asked, and return, dead-letter or drop it."""
        dropped = 0
        reporter = self.reporter
        lost = RecordKind.EXPIRED if reason is DeadLetterReason.EXPIRED else RecordKind.REJECTED
        ended: dict[RecordKind, list[Entry]] = {}
        for entry in entries:
            is_reported = returned = False
            if reporter is None:
                returned = self._return(queue, entry, reason, error, batch)
            elif entry.message.mentions(RETURN_TO_OCTETS):
                if reporter.returns(entry.message):
                    returned = self._return(queue, entry, reason, error, batch)
                is_reported = reporter.failed(queue, entry, reason, error, batch)
            buried = not returned and self._bury(queue, entry, reason, error, batch)
            fate = RecordKind.RETURNED if returned else RecordKind.DEAD_LETTERED if buried else lost
            ended.setdefault(fate, []).append(entry)
            if not (returned or buried or is_reported):
                dropped += 1
        for fate, those in ended.items():
            batch.ended(fate, queue.name, those, because(error, reason.value))
        if dropped:
            # Not by the condition: a peer can write there what it likes.
            count = self._rate_limited_log.due(("dropped", queue.name, reason), dropped)
            if count:
                self.log.info(
                    "dropped {count} messages of {node}: {reason}{words}",
                    count=count,
                    node=queue.name,
                    reason=reason.value,
                    words=f" ({_in_words(error)[:LONGEST_LOGGED]})" if error else "",
                )

    def refused(self, queue: QueueView, message: Message, origin: Origin, batch: Batch) -> None:
        """Dead-letter a refused message. See `IDisposal.refused`; its sender knows anyway."""
        reason = DeadLetterReason.MAX_LENGTH
        self.counted(queue, 1, reason, None)
        entry = Entry(0, message, False, False, batch.now_ms, 0, message.header.delivery_count)
        sent = replace(origin, is_dead_letter=True, replies=None, has_credit=False)
        self._bury(queue, entry, reason, None, batch, sent)

    def taken(
        self, queue: QueueView, entries: Sequence[Entry], batch: Batch, consumer: object
    ) -> None:
        """Report the acceptance of messages to senders that asked for it."""
        reporter = self.reporter
        if reporter is None or type(consumer) is Binding:
            return  # a message moved by a binding is still on its way
        asking = [entry for entry in entries if entry.message.mentions(REPORT_OCTETS)]
        if asking:
            taker: EntryTaker = getattr(consumer, "taker", SOMEBODY)
            _report(reporter.taken, queue, asking, batch, taker.kind, taker.facts)

    def dropped(self, queue: QueueView, entries: Sequence[Entry], code: str, batch: Batch) -> None:
        """Report dropped messages to senders that asked for it."""
        reporter = self.reporter
        if reporter is None:
            return
        asking = [entry for entry in entries if entry.message.mentions(RETURN_TO_OCTETS)]
        if asking:

            def report(queue: QueueView, entry: Entry, batch: Batch) -> bool:
                return reporter.dropped(queue, entry, code, batch)

            _report(report, queue, asking, batch, RecordKind.DELETED, {"code": code})

    def _return(
        self,
        queue: QueueView,
        entry: Entry,
        reason: DeadLetterReason,
        error: ErrorDetails | None,
        batch: Batch,
    ) -> bool:
        address = entry.message.annotations.get(RETURN_TO)
        find = self._way_back()
        if not isinstance(address, str) or find is None:
            return False

        # A returned message is never itself returned, so that it cannot go round: the annotation
        # goes, and its way back may lead through the containers of its way here. Other brokers
        # have it from this one, and from nobody else; here it is still not a client's of ours.
        # The mark tells those others that it is sent back, and not said, by this one.
        def returned(target: ITarget) -> Message:
            is_leaving = target.name.startswith(RELAY_PREFIX)
            facts = (_facts_for_partners if is_leaving else _facts)(queue, entry, reason, error)
            gone = (RETURN_TO, REPORT, TRACE, *((ORIGIN,) if is_leaving else ()))
            marked = {**facts, REPORT_KIND: RETURNED}
            return entry.message.with_annotations(marked, drop=gone)

        return self._try(lambda: find(address), returned, batch, queue, entry)

    def bury(self, name: str, message: Message, reason: DeadLetterReason, batch: Batch) -> bool:
        """Put an undeliverable report of this broker on a dead-letter node.

        Returns:
            Whether it was accepted; if not, the log says why.
        """
        facts = {DEAD_LETTER_REASON: reason.symbol}
        origin = Origin(ANONYMOUS_PRINCIPAL, is_dead_letter=True, event=RecordKind.REPORTED)
        try:
            self._node(name).put(message.with_annotations(facts).without_expiry(), batch, origin)
        except AmqpError as error:
            count = self._rate_limited_log.due(("report", name, error.condition))
            if count:
                self.log.warn(
                    "{node} rejected {count} delivery reports: {error}",
                    node=name,
                    count=count,
                    error=error,
                )
            return False
        return True

    def _bury(
        self,
        queue: QueueView,
        entry: Entry,
        reason: DeadLetterReason,
        error: ErrorDetails | None,
        batch: Batch,
        sent: Origin | None = None,
    ) -> bool:
        """Put an entry on the node or exchange for dead letters, if there is one.

        Args:
            queue: its queue.
            entry: the entry.
            reason: the reason.
            error: the error of a rejection.
            batch: the batch in which it ends.
            sent: its origin, if it was never on the queue.
        """
        if queue.dead_letter_target is not None:
            dead = DeadLetter(queue, entry, reason, queue.dead_letter_target)
            facts = _facts(queue, entry, reason, error)
            return self._try(
                lambda: DeadLetterExchange(dead, self._topology_of(host_of(queue.name))),
                lambda _: dead.message(facts, batch.now_ms),
                batch,
                queue,
                entry,
                sent,
            )
        name = queue.dead_letter_name
        if name is None or name == queue.name:
            return False
        message = entry.message.with_annotations(_facts(queue, entry, reason, error))
        return self._try(lambda: self._node(name), lambda _: message, batch, queue, entry, sent)

    def _try(
        self,
        find: Callable[[], ITarget],
        message: Callable[[ITarget], Message],
        batch: Batch,
        queue: QueueView,
        entry: Entry,
        sent: Origin | None = None,
    ) -> bool:
        try:
            account = None if entry.charge is None else entry.charge[0]
            origin = sent or Origin(
                ANONYMOUS_PRINCIPAL,
                is_dead_letter=True,
                account=account,
                event=RecordKind.ROUTED,
                parent=entry.id,
            )
            target = find()
            target.put(message(target).without_expiry(), batch, origin)
        except AmqpError as error:
            count = self._rate_limited_log.due(("dead letter", queue.name, error.condition))
            if count:
                self.log.warn(
                    "cannot dead-letter {count} messages of {node}: {error}",
                    count=count,
                    node=queue.name,
                    error=error,
                )
            return False
        return True


def _report(
    report: Callable[[QueueView, Entry, Batch], bool],
    queue: QueueView,
    entries: Sequence[Entry],
    batch: Batch,
    kind: RecordKind,
    facts: Mapping[str, object],
) -> None:
    """Report how entries end with a batch; once more with another, if the store has no room."""
    reported = [entry for entry in entries if report(queue, entry, batch)]
    if not reported:
        return
    ids = [entry.id for entry in reported if entry.stored]

    def again(batch: Batch) -> None:
        _report(report, queue, reported, batch, kind, facts)
        batch.ended(kind, queue.name, reported, facts)
        batch.transaction.dequeue(ids)

    batch.redo.append((ids, again))


def _in_words(error: ErrorDetails) -> str:
    return f"{error.condition}: {error.description or ''}"


def _facts_for_partners(
    queue: QueueView, entry: Entry, reason: DeadLetterReason, error: ErrorDetails | None
) -> dict[str, object]:
    """As `_facts`, without names that only mean something in this broker.

    The source is the address of the message: its queue may be behind an alias or a binding, a
    relay queue, or one of a subscription. Of a partner's rejection the partner's words are told,
    and not the key of the way there, which may be a gateway of ours.
    """
    facts: dict[str, object] = {DEAD_LETTER_REASON: reason.symbol}
    if entry.message.to:
        facts[DEAD_LETTER_SOURCE] = entry.message.to
    if error is not None:
        text = (error.info or {}).get(_TEXT)
        words = text if isinstance(text, str) and text else error.description or ""
        facts[DEAD_LETTER_WORDS] = f"{error.condition}: {words}"[:LONGEST_WORDS]
    return facts


def _facts(
    queue: QueueView, entry: Entry, reason: DeadLetterReason, error: ErrorDetails | None
) -> dict[str, object]:
    facts: dict[str, object] = {
        DEAD_LETTER_REASON: reason.symbol,
        DEAD_LETTER_SOURCE: local_name(queue.name),
    }
    if error is not None:
        facts[DEAD_LETTER_WORDS] = _in_words(error)[:LONGEST_WORDS]
    return facts
