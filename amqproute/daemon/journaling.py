# SPDX-License-Identifier: Apache-2.0
"""Assembly of the journal; its record of starts and stops; its comparison with the store."""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from amqproute.broker.broker import Broker
from amqproute.broker.entry_list import LOAD_BYTES, LOAD_MESSAGES, is_readable
from amqproute.broker.last_value import LAST_PREFIX
from amqproute.broker.priority_queues import queue_of_key
from amqproute.broker.publish_gate import JOURNAL, PublishGate
from amqproute.broker.queue import Queue
from amqproute.broker.sender_quotas import NOTES as ACCOUNT_NOTES
from amqproute.broker.xa_record import ROWS as BRANCH_ROWS
from amqproute.config.config_files import digest_of
from amqproute.config.schema import Config
from amqproute.entry import ACCOUNT_SHIFT, TRANSIENT, Entry
from amqproute.errors import AmqprouteError
from amqproute.interfaces import IStore
from amqproute.journal.event import SILENCE, UNKNOWN, Came, RunEvent
from amqproute.journal.journal_writer import Journal, JournalListener, JournalTerms
from amqproute.journal.large_digest import find_digest
from amqproute.journal.reader import as_json
from amqproute.journal.record import PUT_BACK, RecordKind
from amqproute.journal.recovery import JournalStart
from amqproute.journal.segments import SegmentNames
from amqproute.journal.tail import last
from amqproute.message import Message
from amqproute.net.reactor import IReactor
from amqproute.services.command_schema import FULL, NOT_IMPLEMENTED, OK
from amqproute.services.management_node import ManagementService
from amqproute.services.management_protocol import ManagementReply, ManagementRequest
from amqproute.stored import QueueSummary, StoredEntry, StoreRecovery
from amqproute.values import ORIGIN, Origin, Principal

log = Logger()

DIRECTORY: Final = "journal"
MOST_READ: Final = 100_000
"""Missing entries of one queue that are read with their bodies; for further ones the ids have to
do."""
PAGE: Final = 5_000
MOST_TAILS: Final = 1000
"""Requests that wait to read the journal's end."""
STORE_PUT_BACK: Final = "store.restored"
LOSS_ACCEPTED: Final = "store.loss-accepted"
RENAMED: Final = "the store was restored from a backup and has had another stream since this one"
STOPPED: Final = {"code": "broker.stopped", "words": "it was not durable, and the broker stops"}


def now_us() -> int:
    """Return the wall clock, microseconds since the epoch."""
    return time.time_ns() // 1000


def terms_of(config: Config) -> JournalTerms:
    """Return the journal settings of a configuration."""
    journal = config.journal
    return JournalTerms(
        segment_bytes=journal.segment_bytes,
        segment_seconds=journal.segment_seconds,
        keep_seconds=journal.keep or 0.0,
        max_bytes=journal.max_bytes or 0,
        stops=journal.on_full == "stop",
        is_traced=config.tracing.enabled,
    )


class _PublishingStop(JournalListener):
    """Closes the publish gate while the journal cannot be written."""

    def __init__(self, gate: Callable[[], Any]) -> None:
        self._gate = gate

    def journal_failed(self, reason: str) -> None:
        self._gate().close(JOURNAL, reason)

    def journal_recovered(self) -> None:
        self._gate().open(JOURNAL)


class Journaling:
    """The journal of the daemon, if it has one.

    Args:
        config: the configuration.
        reactor: the reactor.
        gate: returns the gate that is closed while the journal cannot be written.

    Attributes:
        journal: the `IJournal`.
        outbox: the outbox for the store; None without a journal.
    """

    def __init__(self, config: Config, reactor: IReactor, gate: Callable[[], PublishGate]) -> None:
        self.kept: Journal | None = None
        self._reactor = reactor
        self._seconds = config.journal.stock_seconds
        self._call: IDelayedCall | None = None
        self._stocktaking = DeferredLock()
        self._is_begun = False
        if config.journal.enabled:
            self.kept = Journal(
                config.state_directory / DIRECTORY,
                reactor,
                terms_of(config),
                domain=config.domains[0] if config.domains else "",
                now_us=now_us,
                listener=_PublishingStop(gate),
            )
        self.journal: Any = self.kept or SILENCE
        self.outbox = None if self.kept is None else self.kept.outbox

    # -- life ------------------------------------------------------------------------------------

    async def begin(
        self,
        recovery: StoreRecovery,
        store: IStore,
        container_id: str,
        stream: str,
        former: str = "",
    ) -> None:
        """Open the journal, and record the entries of the store that it does not know.

        Args:
            recovery: the findings of the store's recovery.
            store: the store.
            container_id: ours.
            stream: the name under which the store numbers its entries.
            former: the one before a restore from a backup; else empty.

        Raises:
            StoreError: it cannot be opened.
        """
        journal = self.kept
        if journal is None:
            return
        names = SegmentNames("", container_id, journal.domain, stream)
        opened = await journal.open(names, recovery.outbox, former)
        self._is_begun = True
        if opened.restored:
            log.info("{count} records of the journal were in the store only", count=opened.restored)
        self._note(RecordKind.START, words=None)
        sources = JournalSources(recovery.notes.get(ACCOUNT_NOTES, {}))
        if opened.put_back:
            self._note(RecordKind.RECOVERY, code=PUT_BACK, words=opened.put_back)
        if former:
            self._note(RecordKind.RECOVERY, code=STORE_PUT_BACK, words=RENAMED, detail=former)
        known = opened.begun
        count = 0
        for key, summary in recovery.queues.items():
            if summary.last_id > known.above and _is_of_node(key):
                count += await self._compare(store, key, summary, known, sources)
        self._note(RecordKind.RECOVERY, count=count)
        if count:
            log.info("recorded {count} messages missing from the journal", count=count)

    async def _compare(
        self,
        store: IStore,
        key: str,
        summary: QueueSummary,
        known: JournalStart,
        sources: JournalSources,
    ) -> int:
        """Record the entries of a queue that the journal does not know."""
        count = 0
        after = max(known.above, summary.first_id - 1)
        while ids := await store.ids(key, after, PAGE):
            after = ids[-1]
            missing = [each for each in ids if each not in known.ids]
            if not known.ids and summary.count > MOST_READ:
                facts = {"node": queue_of_key(key), "durable": True}
                self.journal.note(
                    RunEvent(RecordKind.RECOVERY, now_us(), facts, {"entry": missing})
                )
                count += len(missing)
            elif missing:
                last = bisect_right(ids, missing[-1])
                count += await self._note_found(store, key, ids[:last], missing, sources)
        return count

    async def _note_found(
        self,
        store: IStore,
        key: str,
        ids: Sequence[int],
        missing: Sequence[int],
        sources: JournalSources,
    ) -> int:
        """Record the missing entries with the data in the store; return their number.

        Messages that the journal knows are not read, unless they lie between two missing ones.

        Args:
            store: the store.
            key: the key of the queue.
            ids: the ids of the queue's entries, ascending.
            missing: those among them that the journal does not know; the last one is the last.
            sources: returns their origins.
        """
        count = 0
        wanted, after = set(missing), 0
        while after < missing[-1]:
            following = missing[bisect_right(missing, after)]
            left = len(ids) - bisect_left(ids, following)
            rows = await store.load(key, following - 1, min(left, LOAD_MESSAGES), LOAD_BYTES)
            if not rows:
                break
            after = rows[-1].id
            found = [row for row in rows if row.id in wanted]
            count += len(found)
            strange = [row.id for row in found if not is_readable(row)]
            if strange:
                facts = {"node": queue_of_key(key), "durable": True}
                self.journal.note(
                    RunEvent(RecordKind.RECOVERY, now_us(), facts, {"entry": strange})
                )
                found = [row for row in found if row.id not in strange]
            if found:
                await _digest_rests(found)
                self.journal.note(self.journal.arrivals(_found(queue_of_key(key), found, sources)))
        return count

    def watch(self, store: IStore, broker: Broker) -> None:
        """Start periodic inventories, the first one soon."""
        if self.kept is not None:
            self._call = self._reactor.callLater(0, self._look, store, broker)

    def _look(self, store: IStore, broker: Broker) -> None:
        self._call = self._reactor.callLater(self._seconds, self._look, store, broker)
        taken = Deferred.fromCoroutine(self.take_stock(store, broker))
        taken.addErrback(lambda failure: log.failure("the inventory failed", failure))

    async def take_stock(self, store: IStore, broker: Broker | None) -> None:
        """Record an inventory: the entries in the store, and those in a broker's memory."""
        if self.kept is None:
            return
        # One after the other: a reader takes the end of the first for that of both.
        await self._stocktaking.acquire()
        try:
            await self._take_stock(store, broker)
        finally:
            self._stocktaking.release()

    async def _take_stock(self, store: IStore, broker: Broker | None) -> None:
        for key in store.names():
            if not _is_of_node(key):
                continue
            after = 0
            while ids := await store.ids(key, after, PAGE):
                after = ids[-1]
                self._note(
                    RecordKind.STOCK, node=queue_of_key(key), ranges=ranges(ids), count=len(ids)
                )
        for queue in () if broker is None else queues_of(broker):
            unstored = [entry.id for entry in queue.in_memory() if not entry.stored]
            for start in range(0, len(unstored), PAGE):
                part = sorted(unstored[start : start + PAGE])
                self._note(RecordKind.STOCK, node=queue.name, ranges=ranges(part), count=len(part))
        self._note(RecordKind.STOCK, count=0)

    def let_go(self, broker: Broker) -> None:
        """Record the entries that end with the process, because they are in memory only."""
        if self.kept is None:
            return
        for queue in queues_of(broker):
            ids = [entry.id for entry in queue.in_memory() if not entry.stored]
            if ids:
                facts = {"node": queue.name, **STOPPED}
                self.journal.note(RunEvent(RecordKind.DELETED, now_us(), facts, {"entry": ids}))

    def stop_watching(self) -> None:
        """Stop the inventories."""
        if self._call is not None and self._call.active():
            self._call.cancel()

    async def end(self, is_orderly: bool) -> None:
        """Write the pending records, and close the journal: the store is closed already."""
        self.stop_watching()
        if self.kept is not None and self._is_begun:
            if is_orderly:
                self._note(RecordKind.STOP)
            await self.kept.close()

    # -- what else is told -----------------------------------------------------------------------

    def configured(self, config: Config, error: Exception | None = None) -> None:
        """Record that a configuration was loaded or refused."""
        path = config.source.path
        digest = digest_of(config.source.files) if path is not None else None
        self._note(
            RecordKind.CONFIGURED,
            digest=digest,
            detail=None if path is None else str(path),
            condition=None if error is None else "amqp:precondition-failed",
            words=None if error is None else str(error),
        )

    def loss_accepted(self, finding: str, count: int) -> None:
        """Record that an operator has accepted the loss of messages missing from the store."""
        words = "an operator has accepted that messages are missing from the store"
        self._note(
            RecordKind.RECOVERY, code=LOSS_ACCEPTED, words=words, detail=finding, count=count
        )

    def prepare(self, config: Config) -> Callable[[], None]:
        """Return the change for a new configuration, which also records that it was loaded."""
        terms = terms_of(config)

        def apply() -> None:
            if self.kept is not None:
                self.kept.terms = terms
            self._seconds = config.journal.stock_seconds
            self.configured(config)

        return apply

    def _note(self, kind: RecordKind, **facts: object) -> None:
        if self.kept is not None:
            self.kept.note(RunEvent(kind, now_us(), facts))

    @property
    def directory(self) -> Path | None:
        """Directory of the journal; None without one."""
        return None if self.kept is None else self.kept.directory

    def register(self, service: ManagementService) -> None:
        """Add TAIL-JOURNAL to the management node."""
        reading = DeferredLock()

        async def tail(request: ManagementRequest) -> ManagementReply:
            if self.kept is None:
                return ManagementReply.of(NOT_IMPLEMENTED, "this broker keeps no journal")
            if len(reading.waiting) >= MOST_TAILS:
                return ManagementReply.of(
                    FULL, "too many wait to read the journal: ask again later"
                )
            body = request.body
            count = body.get("count")
            wanted = {key: body[key] for key in ("kind", "node", "entry") if key in body}
            # One at a time: log-ins and names need threads as well.
            records = await reading.run(
                deferToThreadPool,
                self._reactor,
                self._reactor.getThreadPool(),
                _last_as_json,
                self.kept.directory,
                count if isinstance(count, int) else 100,
                wanted,
            )
            return ManagementReply.of(OK, "OK", {"records": records})

        service.offer("TAIL-JOURNAL", lambda asked: Deferred.fromCoroutine(tail(asked)))

    def rows(self) -> list[Mapping[str, object]]:
        """Return the journal's row for operators."""
        if self.kept is None:
            return []
        facts = self.kept.statistics()
        return [
            {
                "name": DIRECTORY,
                "type": "journal",
                "state": "troubled" if self.kept.figures.fault else "written",
                "fault": self.kept.figures.fault,
                "directory": str(self.kept.directory),
                **{name.replace("_", "-"): int(value) for name, value in facts.items()},
            }
        ]


def queues_of(broker: Broker) -> Iterable[Queue]:
    """Iterate over all queues, internal ones included."""
    yield from broker.nodes.values()
    yield from broker.internal.values()
    for topic in broker.topics.values():
        for subscription in topic.durable.values():
            yield subscription.queue


def _is_of_node(key: str) -> bool:
    """Return whether a queue of the store holds messages on their way.

    Others hold copies retained for new consumers, or postings of uncommitted branches.
    """
    return key != BRANCH_ROWS and not key.startswith(LAST_PREFIX)


async def _digest_rests(rows: Sequence[StoredEntry]) -> None:
    """Compute the digests of very large messages."""
    for row in rows:
        if row.rest is not None:
            try:
                await find_digest(Message(row.encoded, row.rest))
            except AmqprouteError as error:
                # Its consumer will get the same error; the record is written without it.
                log.error("message {entry} cannot be read: {error}", entry=row.id, error=str(error))


def _found(node: str, rows: Sequence[StoredEntry], sources: JournalSources) -> list[Came]:
    came: list[Came] = []
    for row in rows:
        message = Message(row.encoded, row.rest)
        durable = not row.flags & TRANSIENT
        entry = Entry(row.id, message, durable, True, row.arrived_ms, row.expires_ms)
        came.append((node, entry, sources.of(row.flags, message), b"", None))
    return came


class JournalSources:
    """Origins of entries that are in the store and unknown to the journal.

    The store keeps the account that each entry is charged to, if there is one, and the message
    names its domain of origin if that is not our own. The connection, and the peer's number for the
    message, are not known any more.

    Args:
        accounts: the store's notes of them, by name.
    """

    def __init__(self, accounts: Mapping[str, bytes]) -> None:
        # Unreadable notes are reported by `amqproute.broker.sender_quotas`.
        numbers = {name: number for name, number in accounts.items() if number.isdigit()}
        self._names = {int(number): name for name, number in numbers.items()}
        self._origins: dict[tuple[int, bool], Origin] = {}

    def of(self, flags: int, message: Message) -> Origin:
        """Return the origin of an entry.

        Args:
            flags: the flags of its row.
            message: of it.
        """
        key = flags >> ACCOUNT_SHIFT, message.mentions(ORIGIN.encode())
        origin = self._origins.get(key)
        if origin is None:
            principal = UNKNOWN
            if key[0] in self._names:
                kind, _, name = self._names[key[0]].partition(":")
                principal = Principal(cast("Any", kind), name)
            origin = Origin(principal, is_peer=key[1], event=RecordKind.RECOVERY)
            self._origins[key] = origin
        return origin


def ranges(ids: Sequence[int]) -> str:
    """Return ascending ids as text: ``1-5 9 12-20``."""
    parts: list[str] = []
    start = last = ids[0]
    for each in [*ids[1:], None]:
        if each is not None and each == last + 1:
            last = each
            continue
        parts.append(str(start) if start == last else f"{start}-{last}")
        if each is not None:
            start = last = each
    return " ".join(parts)


def _last_as_json(
    directory: Path, count: int, wanted: Mapping[str, object]
) -> list[Mapping[str, object]]:
    """Return the last records whose attributes have these values, as JSON has them."""
    found, _ = last(
        directory,
        count,
        lambda record: all(getattr(record, key) == value for key, value in wanted.items()),
    )
    return [as_json(each) for each in found]


__all__ = ["Journaling", "now_us", "ranges", "terms_of"]
