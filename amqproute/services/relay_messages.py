# SPDX-License-Identifier: Apache-2.0
"""Operations on single messages of relay queues, through ``$management`` (T-37).

==================  ===========================================================================
operation           does
==================  ===========================================================================
LIST-MESSAGES       shows messages: id, ``to``, age, size, attempts; on the node ``name``, any
                    queue, if one is given; there with their bodies if ``with-body`` is true
RETRY-MESSAGES      ends their back-off, and that of their destinations
EXPIRE-MESSAGES     expires them at once: returned, reported, dead-lettered with the body's
                    ``reason``
DELETE-MESSAGES     deletes them; senders that requested reports get one
REROUTE-MESSAGES    moves those with another next hop by the present routes: to another relay
                    queue or a node here, with their remaining lifetime. Messages held by id or
                    selector stay held there, or else stay in place; a hold of a domain or next
                    hop alone applies to that hop: ``freed`` are the messages that it held and
                    that are held no more
WHY                 explains why the message with the id ``name`` has not been sent (`explain`)
HOLD-MESSAGES       makes a hold (`amqproute.relay.holds`); ``until-ms`` ends it; a dry run
                    counts the messages to be held. Of ``ids`` outgoing messages are held;
                    ``in-flight`` are those that will be held only if they come back.
                    ``queues`` are those with held messages, or possible ones
RELEASE-HOLD        ends the hold with the id ``name``
==================  ===========================================================================

The body selects the messages: ``ids``, ``to`` (a domain or the key of a relay queue), ``where`` (a
selector), which all have to match; or ``all``, true, alone. ``dry-run`` only counts.

One request does not handle a million messages: it processes `MOST_SEEN` of them, over all queues,
one page in each reactor turn and one commit for each page, and answers ``messages`` and ``bytes``
so far, up to `SAMPLES` of them as ``samples``, and a ``cursor``, with which a further request
continues; it is empty at the end. Messages in flight stay. On a full disk, messages without a
report or dead letter are removed at once; ``waiting`` are those that need room for one. ``missing``
are ``ids`` that were not found, and ``held`` counts messages that are held and stay so.

LIST-MESSAGES answers at most ``count`` rows, queue by queue: what is in flight, what is deferred,
and what waits in the order of service. With a selector it may answer fewer, since one request looks
at `MOST_LISTED` messages; the ``cursor`` continues behind the last one.

They require the right `manage` on each relay queue concerned (to list a queue, `browse` or
`manage`); without it the whole request is refused. Each operation is logged with its principal.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final, Generic

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute import conditions
from amqproute.address import is_reserved
from amqproute.auth.policy import Verb
from amqproute.broker.broker import Broker
from amqproute.broker.commit_batch import Batch
from amqproute.broker.commit_retry import all_of, retry_settle
from amqproute.broker.message_selection import EVERYTHING, NOTHING, MessageSelection, Picks
from amqproute.broker.queue import Queue
from amqproute.broker.queue_iterator import START, IteratorPosition, StopBefore, page_of
from amqproute.entry import Entry
from amqproute.errors import (
    AmqpError,
    DecodeError,
    InvalidField,
    NotFound,
    PreconditionFailed,
    StoreError,
)
from amqproute.interfaces import ITarget
from amqproute.journal.record import RecordKind
from amqproute.jsontext import parse_json
from amqproute.outcomes import ErrorDetails
from amqproute.plurals import counted
from amqproute.routing.table import Router
from amqproute.services.command_schema import FORBIDDEN
from amqproute.services.explain import ExplainCommand, MessageFacts
from amqproute.services.management_node import (
    BAD_REQUEST,
    CONFLICT,
    NOT_FOUND,
    OK,
    ManagementReply,
    ManagementRequest,
    ManagementService,
)
from amqproute.services.management_protocol import Allows
from amqproute.services.management_rows import virtual_host_of_queue
from amqproute.services.message_bodies import ShownBodies
from amqproute.services.published_by import written_by
from amqproute.services.relay_view import (
    DestinationHold,
    DestinationOf,
    RelayDestination,
    RelayView,
)
from amqproute.values import ANONYMOUS_PRINCIPAL, RELAY_PREFIX, Local, Origin

__all__ = ["MOST_SEEN", "SAMPLES", "RelayMessages"]

MOST_SEEN: Final = 20_000
"""Messages processed for one request."""
SAMPLES: Final = 5
MOST_LISTED: Final = 500
"""Rows of a list, and about the messages that are looked at for it."""
LISTED_AT_ONCE: Final = 50
"""Messages that are shown in one turn of the reactor; a row of each is made."""
QUEUES_AT_ONCE: Final = 200
"""Relay queues whose selection or rights are found out in one turn."""
IN_FLIGHT: Final = IteratorPosition(START.level + 1, 0)
"""Where the list of a queue begins, with the messages that consumers hold."""
MOST_WAITING: Final = 2000
"""Messages of one request that wait in memory for a full disk to have room for their reports."""
MOST_IDS: Final = 1000
LONGEST_REASON: Final = 256

log = Logger()


class _Refused(Exception):
    """A refusal, which is the answer to the request."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.reply = ManagementReply.of(status, words)


@dataclass(slots=True)
class _Scope:
    """The queues that a request concerns, and the selection on each."""

    aim: MessageSelection
    queues: Sequence[tuple[Queue, Picks, RelayDestination | None]]
    is_dry: bool

    def queues_from(
        self, name: str, place: IteratorPosition, start: IteratorPosition
    ) -> Iterator[tuple[Queue, Picks, RelayDestination | None, IteratorPosition]]:
        """Iterate over the queues that a cursor leaves, each with the place to begin there.

        Args:
            name: the queue of the cursor; empty without one.
            place: the place in it.
            start: the place in every other queue.
        """
        for queue, picks, destination in self.queues:
            if queue.name < name:
                continue  # done by an earlier request
            yield queue, picks, destination, start if name and queue.name != name else place
            name, place = "", start


@dataclass(slots=True)
class _Count:
    """The counts of a request."""

    messages: int = 0
    bytes: int = 0
    samples: list[MessageFacts] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)
    refused: int = 0
    words: str = ""
    waiting: int = 0
    held: int = 0
    freed: int = 0

    def add(
        self, queue: Queue, entries: Iterable[Entry], show: Callable[[Entry], MessageFacts]
    ) -> None:
        """Count entries of a queue."""
        for entry in entries:
            self.messages += 1
            self.bytes += entry.message.size
            self.touched.add(queue.name)
            if len(self.samples) < SAMPLES:
                self.samples.append(show(entry))

    def refuse(self, error: AmqpError) -> None:
        """Count a message that could not be processed."""
        self.refused += 1
        self.words = error.description


@dataclass(slots=True)
class _Page:
    """Selected entries of one queue."""

    queue: Queue
    destination: RelayDestination
    entries: list[Entry]
    count: _Count
    is_dry: bool

    def tell(self, entries: Iterable[Entry], row: Row) -> None:
        """Count entries, before they are changed."""
        self.count.add(self.queue, entries, lambda each: row(self.queue, self.destination, each))


Act = Callable[[_Page], "Deferred[None] | None"]
Row = Callable[[Queue, RelayDestination | None, Entry], MessageFacts]


@dataclass(slots=True)
class _Listing:
    """A list of messages that has so many rows at most."""

    most: int
    row: Row
    rows: list[MessageFacts] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        """Whether it takes no more."""
        return len(self.rows) >= self.most

    def take(
        self,
        queue: Queue,
        destination: RelayDestination | None,
        entries: Iterable[Entry],
        state: str = "",
    ) -> StopBefore | None:
        """Add rows until it is full; return the first entry that is left out.

        Args:
            queue: whose entries.
            destination: the next hop of the queue.
            entries: in the order of their ids.
            state: the state that the rows show; empty for that of the entry.
        """
        for entry in entries:
            if self.is_full:
                return StopBefore(entry.id)
            row = self.row(queue, destination, entry)
            self.rows.append({**row, "state": state} if state else row)
        return None


class RelayMessages(Generic[DestinationOf]):
    """The operations.

    Args:
        broker: the nodes.
        relay: its `destinations` by key, `holds`, `take_on_trust`.
        router: returns the router in force.
        allows: the access rules.
        explain: (destination, entry) to the reason for the delay: facts with ``description``.
        now_ms: the wall clock.
    """

    def __init__(
        self,
        broker: Broker,
        relay: RelayView[DestinationOf],
        router: Callable[[], Router],
        allows: Allows,
        explain: Callable[[DestinationOf, Entry], MessageFacts],
        now_ms: Callable[[], int],
    ) -> None:
        self._broker = broker
        self._relay = relay
        self._router = router
        self._allows = allows
        self._now_ms = now_ms
        self._explaining = ExplainCommand(broker, relay, router, allows, explain, self._row)

    def register(self, service: ManagementService) -> None:
        """Add the operations and entity types to the management node."""
        service.show("hold", lambda: [hold.row() for hold in self._relay.holds])
        acting = {
            "LIST-MESSAGES": self._list,
            "HOLD-MESSAGES": self._hold,
            "RETRY-MESSAGES": self._retry,
            "EXPIRE-MESSAGES": self._expire,
            "DELETE-MESSAGES": self._delete,
            "REROUTE-MESSAGES": self._reroute,
            "WHY": self._explaining.why,
        }
        for name, act in acting.items():
            service.offer(name, self._answering(act))
        service.offer("RELEASE-HOLD", self._at_once(self._release))

    def _answering(
        self, act: Callable[[ManagementRequest], Awaitable[ManagementReply]]
    ) -> Callable[[ManagementRequest], Deferred[ManagementReply]]:
        async def answer(request: ManagementRequest) -> ManagementReply:
            try:
                reply: ManagementReply = await act(request)
            except _Refused as refused:
                return refused.reply
            return reply

        return lambda request: Deferred.fromCoroutine(answer(request))

    @staticmethod
    def _at_once(
        act: Callable[[ManagementRequest], ManagementReply],
    ) -> Callable[[ManagementRequest], ManagementReply]:
        def answer(request: ManagementRequest) -> ManagementReply:
            try:
                return act(request)
            except _Refused as refused:
                return refused.reply

        return answer

    # -- selection ---------------------------------------------------------------------------------

    def _aim(self, request: ManagementRequest) -> MessageSelection:
        body = request.body
        ids, to, where = body.get("ids", []), body.get("to", ""), body.get("where", "")
        if not isinstance(ids, list) or not all(type(each) is int for each in map(_plain, ids)):
            raise _Refused(BAD_REQUEST, "`ids` is not a list of numbers")
        if len(ids) > MOST_IDS:
            raise _Refused(BAD_REQUEST, f"more than {MOST_IDS} ids in one request")
        if not isinstance(to, str) or not isinstance(where, str):
            raise _Refused(BAD_REQUEST, "`to` and `where` are texts")
        if not (ids or to or where) and body.get("all") is not True:
            raise _Refused(BAD_REQUEST, "say which messages: `ids`, `to`, `where`, or `all`")
        try:
            to = to.removeprefix(RELAY_PREFIX)
            return MessageSelection([int(each) for each in ids], to, where, self._now_ms)
        except InvalidField as error:
            raise _Refused(BAD_REQUEST, error.description) from None

    async def _scope(self, request: ManagementRequest) -> _Scope:
        """Return the scope of a request.

        Raises:
            _Refused: the request has no selection, or the rights are missing.
        """
        aim = self._aim(request)
        found = await self._meant(aim)
        for number, (queue, _, _) in enumerate(found, 1):
            self._require(request, queue.name)
            if number % QUEUES_AT_ONCE == 0:
                await self._broker.context.pause()
        if aim.to and not found:
            raise _Refused(NOT_FOUND, f"nothing waits for {aim.to!r}: there is no relay queue")
        return _Scope(aim, found, request.body.get("dry-run") is True)

    async def _meant(self, aim: MessageSelection) -> list[tuple[Queue, Picks, RelayDestination]]:
        """Return the selected relay queues, and those with selected messages."""
        found: list[tuple[Queue, Picks, RelayDestination]] = []
        way = cache(self._way)  # a look at all routes, for each queue
        for number, (key, destination) in enumerate(sorted(self._relay.destinations.items()), 1):
            if number % QUEUES_AT_ONCE == 0:
                await self._broker.context.pause()
            picks = aim.of(key, destination.hop.domain, way)
            if picks is not NOTHING:
                found.append((destination.queue, picks, destination))
        return found

    def _way(self, domain: str) -> str:
        return self._router().hop(domain).key

    def _require(self, request: ManagementRequest, node: str, *verbs: Verb) -> None:
        if not any(self._allows(request.principal, verb, node) for verb in (Verb.MANAGE, *verbs)):
            log.warn(
                "{who} may not {operation}: no right to manage {node}",
                who=str(request.principal),
                operation=request.operation,
                node=node,
            )
            raise _Refused(FORBIDDEN, f"{request.principal} may not manage {node!r}")

    # -- the walk --------------------------------------------------------------------------------

    async def _walk(
        self,
        request: ManagementRequest,
        scope: _Scope,
        act: Callable[[Queue, RelayDestination | None, list[Entry]], Deferred[None] | None],
    ) -> str:
        """Apply an action to the selected messages, page by page; return the cursor."""
        name, place = _read_cursor(request, START)
        seen = 0
        size = page_of(scope.aim.words)
        for queue, picks, destination, begin in scope.queues_from(name, place, START):
            if seen >= MOST_SEEN:
                return json.dumps([queue.name, *begin])

            def look(
                page: list[Entry],
                queue: Queue = queue,
                picks: Picks = picks,
                destination: RelayDestination | None = destination,
            ) -> Deferred[None] | None:
                nonlocal seen
                seen += len(page)
                if picks is not EVERYTHING:
                    page = [entry for entry in page if picks(entry)]
                return act(queue, destination, page) if page else None

            if scope.aim.ids:
                await queue.walk().find(scope.aim.ids, look)
            else:
                after = await queue.walk().run(look, begin, MOST_SEEN - seen, size)
                if after is not None:
                    return json.dumps([queue.name, *after])
        return ""

    async def _each(self, request: ManagementRequest, act: Act) -> ManagementReply:
        """Apply an action to all selected messages, or only count them."""
        scope = await self._scope(request)
        count = _Count()
        missing = set(scope.aim.ids)

        def meet(
            queue: Queue, destination: RelayDestination | None, page: list[Entry]
        ) -> Deferred[None] | None:
            assert destination is not None
            if missing:
                missing.difference_update([entry.id for entry in page])
            return act(_Page(queue, destination, page, count, scope.is_dry))

        cursor = await self._walk(request, scope, meet)
        if not scope.is_dry and (count.messages or count.refused):
            reason = str(request.body.get("reason", ""))[:LONGEST_REASON]
            log.info(
                "{who}: {operation} ({aim}): {count} messages of {queues}{because}",
                who=str(request.principal),
                operation=request.operation,
                aim=str(scope.aim),
                count=count.messages,
                queues=", ".join(sorted(count.touched)),
                reason=reason,
                because=f": {reason}" if reason else "",
            )
        facts = {
            "messages": count.messages,
            "bytes": count.bytes,
            "refused": count.refused,
            "waiting": count.waiting,
            "held": count.held,
            "freed": count.freed,
            "refused-because": count.words,
            "missing": sorted(missing),
            "dry-run": scope.is_dry,
            "queues": sorted(count.touched),
            "samples": count.samples,
            "cursor": cursor,
        }
        words = counted(count.messages, "message")
        if count.waiting:
            words += f"; the disk is full: {count.waiting} of them end when it has room for reports"
        return ManagementReply.of(OK, words, facts)

    # -- operations --------------------------------------------------------------------------------

    async def _retry(self, request: ManagementRequest) -> ManagementReply:
        def act(page: _Page) -> None:
            held = self._relay.holds.held(page.destination, page.entries)
            page.count.held += len(held)
            page.tell([entry for entry in page.entries if entry not in held], self._row)
            if not page.is_dry:
                page.queue.recall(page.entries)
                page.destination.wake()

        return await self._each(request, act)

    async def _expire(self, request: ManagementRequest) -> ManagementReply:
        reason = _reason(request) or "ended by an operator"
        error = ErrorDetails(conditions.RESOURCE_DELETED, reason)

        def act(page: _Page) -> Deferred[None] | None:
            page.tell(page.entries, self._row)
            if page.is_dry:
                return None
            batch = self._broker.begin()
            page.queue.pick(page.entries)
            page.queue.expire_picked(page.entries, error, batch)
            return self._commit(page, batch)

        return await self._each(request, act)

    async def _delete(self, request: ManagementRequest) -> ManagementReply:
        def act(page: _Page) -> Deferred[None] | None:
            page.tell(page.entries, self._row)
            if page.is_dry:
                return None
            batch = self._broker.begin()
            page.queue.pick(page.entries)
            page.queue.purge_picked(page.entries, batch)
            return self._commit(page, batch)

        return await self._each(request, act)

    def _commit(self, page: _Page, batch: Batch) -> Deferred[None]:
        """Commit removals; on a full disk those with reports wait for room.

        Raises:
            _Refused: through the Deferred, when too many are waiting in memory.
        """
        rests: list[Deferred[None]] = []

        def done(_: object) -> None:
            if not rests:
                return
            page.count.waiting += sum(len(ids) for ids, _ in batch.redo)
            all_of(rests).addErrback(_not_ended)
            if page.count.waiting >= MOST_WAITING:
                raise _Refused(
                    CONFLICT,
                    f"the disk is full: {page.count.waiting} messages end when it has room for the "
                    "reports and dead letters that this makes; then ask again for the others",
                )

        committed: Deferred[None] = batch.commit()
        committed.addErrback(retry_settle, batch, self._broker.begin, rests)
        return committed.addCallback(done)

    async def _reroute(self, request: ManagementRequest) -> ManagementReply:
        router = self._router()

        def act(page: _Page) -> Deferred[None] | None:
            if "@" in page.destination.hop.key:
                return None  # a returned message: its `to` is not its target
            batch = self._broker.begin()
            held = self._relay.holds.at(page.destination.hop)
            moved: list[Entry] = []
            ids: dict[int, int] = {}
            for entry in page.entries:
                if self._move(router, page, entry, held, batch):
                    moved.append(entry)
                    ids[entry.id] = batch.last_id
            if page.is_dry or not moved:
                batch.abandon()
                return None
            page.queue.pick(moved)
            page.queue.move_picked(moved, batch)
            self._relay.holds.follow(ids, batch)
            return batch.commit().addErrback(self._not_moved)

        return await self._each(request, act)

    @staticmethod
    def _not_moved(failure: Failure) -> None:
        failure.trap(StoreError)  # type: ignore[no-untyped-call]
        words = f"they are where they were, the store did not take them: {failure.value}"
        raise _Refused(CONFLICT, words)

    def _move(
        self,
        router: Router,
        page: _Page,
        entry: Entry,
        held: Sequence[tuple[DestinationHold, Picks]],
        batch: Batch,
    ) -> bool:
        """Move a message to its target by the routes in force; False if it stays.

        Args:
            router: the router in force.
            page: its page.
            entry: the message.
            held: the holds on its queue.
            batch: the batch for the move.
        """
        to = entry.message.to
        if not to:
            return False
        try:
            route = router.route(to)
            holding = [hold for hold, picks in held if picks(entry)]
            still: list[DestinationHold] = []
            target: ITarget | None = None
            new_id: int | None = None
            if isinstance(route, Local):
                target = self._broker.target(route.node)
                if is_reserved(target.name):
                    raise NotFound(f"{route.node!r} is a service")
                name = target.name
            elif route.key == page.destination.hop.key:
                return False
            else:
                name = RELAY_PREFIX + route.key
                still = [hold for hold, picks in self._relay.holds.at(route) if picks(entry)]
            _check_held(holding, still, page.destination.hop.key, name)
            if not page.is_dry:
                if target is None:
                    assert not isinstance(route, Local)
                    target = self._relay.take_on_trust(route)
                # Its lifetime is unchanged: it began on arrival.
                batch.now_ms = entry.arrived_ms
                account = None if entry.charge is None else entry.charge[0]
                origin = Origin(
                    ANONYMOUS_PRINCIPAL,
                    container_id=entry.origin or "",
                    account=account,
                    event=RecordKind.ROUTED,
                    parent=entry.id,
                )
                before = batch.last_id
                target.put(entry.message, batch, origin)
                new_id = batch.last_id if batch.last_id != before else None
        except AmqpError as error:
            page.count.refuse(error)
            return False
        page.count.held += bool(still)
        page.count.freed += bool(holding) and not still
        page.tell([entry], lambda *of: {**self._row(*of), **_row_there(name, new_id, still)})
        return True

    # -- showing ---------------------------------------------------------------------------------

    async def _list(self, request: ManagementRequest) -> ManagementReply:
        name = request.properties.get("name")
        if isinstance(name, str) and name:
            queue = self._queue(name)
            self._require(request, queue.name, Verb.BROWSE)
            try:
                aim = MessageSelection((), "", str(request.body.get("where", "")), self._now_ms)
            except InvalidField as error:
                raise _Refused(BAD_REQUEST, error.description) from None
            destination: RelayDestination | None = self._relay.destinations.get(
                queue.name.removeprefix(RELAY_PREFIX)
            )
            if not queue.name.startswith(RELAY_PREFIX):
                destination = None
            picks = aim.of("", "", str)
            scope = _Scope(aim, [(queue, picks, destination)], True)
        else:
            scope = await self._scope(request)
        bodies = ShownBodies()

        def shown(queue: Queue, destination: RelayDestination | None, entry: Entry) -> MessageFacts:
            row = self._row(queue, destination, entry)
            return {**row, **bodies.of(entry.message)} if with_body else row

        with_body = request.body.get("with-body") is True and bool(name)
        most = request.body.get("count", MOST_LISTED)
        most = min(most, MOST_LISTED) if isinstance(most, int) and most > 0 else MOST_LISTED
        listing = _Listing(most, shown)
        place = _read_cursor(request, IN_FLIGHT)
        cursor = await self._list_from(scope, listing, *place)
        rows = listing.rows
        return ManagementReply.of(
            OK, counted(len(rows), "message"), {"messages": rows, "cursor": cursor}
        )

    async def _list_from(
        self, scope: _Scope, listing: _Listing, name: str, place: IteratorPosition
    ) -> str:
        """List messages of each queue: those in flight first; return the cursor.

        Args:
            scope: the queues, and the selection.
            listing: takes the rows.
            name: the queue that the list begins with; empty for the first one.
            place: where it begins there.
        """
        seen = 0
        size = min(LISTED_AT_ONCE, page_of(scope.aim.words))
        for queue, picks, destination, begin in scope.queues_from(name, place, IN_FLIGHT):
            if seen >= MOST_LISTED or listing.is_full:
                return json.dumps([queue.name, *begin])
            if begin.level >= IN_FLIGHT.level:
                held = [each for each in queue.held_by_consumers() if each.id > begin.after]
                held.sort(key=lambda each: each.id)
                for start in range(0, len(held), size):
                    part = filter(picks, held[start : start + size])
                    stop = listing.take(queue, destination, part, "in-flight")
                    if stop is not None:
                        return json.dumps([queue.name, IN_FLIGHT.level, stop.entry_id - 1])
                    await self._broker.context.pause()
                begin = START
            found: list[Entry] = []

            def look(
                page: list[Entry],
                queue: Queue = queue,
                picks: Picks = picks,
                destination: RelayDestination | None = destination,
            ) -> StopBefore | None:
                nonlocal seen
                seen += len(page)
                return listing.take(queue, destination, filter(picks, page))

            after: IteratorPosition | None
            if scope.aim.ids:
                wanted = [each for each in scope.aim.ids if each > begin.after]
                await queue.walk().find(wanted, found.extend)
                found.sort(key=lambda each: each.id)
                stop = listing.take(queue, destination, filter(picks, found))
                after = None if stop is None else IteratorPosition(START.level, stop.entry_id - 1)
            else:
                after = await queue.walk().run(look, begin, MOST_LISTED - seen, size)
            if after is not None:
                return json.dumps([queue.name, *after])
        return ""

    def _queue(self, name: str) -> Queue:
        broker = self._broker
        found = broker.internal.get(name) or broker.internal.get(RELAY_PREFIX + name)
        if found is None:
            found = broker.nodes.get(broker.resolve(name))
        if found is None:
            raise _Refused(NOT_FOUND, f"there is no queue named {name[:256]!r}")
        return found

    def _row(
        self, queue: Queue, destination: RelayDestination | None, entry: Entry
    ) -> MessageFacts:
        """Return the row of a message."""
        message = entry.message
        try:
            properties = message.properties
            to, message_id = message.to, properties.message_id
            written = written_by(message.annotations)
            subject, priority = properties.subject, int(message.header.priority)
        except DecodeError:
            to = message_id = subject = priority = None
            written = {}
        message.forget()
        wait = queue.wait_of(entry)
        row = {
            "id": entry.id,
            "queue": queue.name,
            "virtual-host": virtual_host_of_queue(queue.name),
            "to": to,
            "message-id": None if message_id is None else str(message_id),
            "subject": subject,
            "priority": priority,
            "arrived-ms": entry.arrived_ms,
            "age-ms": max(0, self._now_ms() - entry.arrived_ms),
            "bytes": message.size,
            "durable": entry.durable,
            "expires-ms": entry.expires_ms or None,
            "attempts": entry.delivery_count,
            "state": "waiting" if wait is None else "deferred",
            **written,
        }
        if destination is not None:
            row["attempts"] = destination.outcomes.tries(entry)
            holds = self._relay.holds.of(destination, entry)
            if holds:
                row["state"] = "held"
                row["holds"] = [hold.id for hold in holds]
        return row

    # -- holds -----------------------------------------------------------------------------------

    async def _hold(self, request: ManagementRequest) -> ManagementReply:
        if request.body.get("dry-run") is True:
            return await self._each(request, lambda page: page.tell(page.entries, self._row))
        aim = self._aim(request)
        reason = _reason(request)
        until_ms = request.body.get("until-ms", 0)
        if not isinstance(until_ms, int) or 0 < until_ms <= self._now_ms() or until_ms < 0:
            raise _Refused(BAD_REQUEST, "`until-ms` is not a time to come, ms since the epoch")
        if aim.to:
            self._require(request, RELAY_PREFIX + self._way_of(aim.to))
        else:
            self._require(request, RELAY_PREFIX + "*")
        ids, in_flight = await self._on_their_way(aim)
        missing = sorted(aim.ids - ids)
        if aim.ids and not ids:  # the number may be used by a later message
            named = ", ".join(map(str, missing))
            raise _Refused(NOT_FOUND, f"no message on its way has the id {named}: none is held")
        try:
            made = self._relay.holds.add(
                reason,
                str(request.principal),
                to=aim.to,
                where=aim.where,
                ids=ids,
                until_ms=int(until_ms),
            )
        except AmqpError as error:
            raise _Refused(CONFLICT, error.description) from None
        log.info(
            "{who}: hold {hold} ({aim}): {reason}",
            who=str(request.principal),
            hold=made.id,
            aim=str(aim),
            reason=made.reason,
        )
        queues = [queue.name for queue, _, _ in await self._meant(aim)]
        facts = {"missing": missing, "in-flight": in_flight, "queues": queues}
        return ManagementReply.of(OK, f"hold {made.id}", {**made.row(), **facts})

    async def _on_their_way(self, aim: MessageSelection) -> tuple[set[int], list[int]]:
        """Return the ids that wait or are in flight, and the latter alone."""
        ids: set[int] = set()
        in_flight: list[int] = []
        for queue, picks, destination in await self._meant(aim) if aim.ids else ():
            found: list[Entry] = []
            await queue.walk().find(aim.ids, found.extend)
            ids.update([entry.id for entry in found if picks(entry)])
            in_flight += [entry.id for entry in destination.holds() if picks(entry)]
        return ids.union(in_flight), sorted(in_flight)

    def _way_of(self, to: str) -> str:
        return to if ":" in to or "/" in to else self._way(to)

    def _release(self, request: ManagementRequest) -> ManagementReply:
        name = str(request.properties.get("name", ""))
        found = next((hold for hold in self._relay.holds if hold.id == name), None)
        if found is None:
            raise _Refused(NOT_FOUND, f"there is no hold {name[:64]!r}")
        self._require(request, RELAY_PREFIX + (self._way_of(found.to) if found.to else "*"))
        self._relay.holds.release(name)
        log.info(
            "{who}: released {hold} ({reason})",
            who=str(request.principal),
            hold=name,
            reason=found.reason,
        )
        return ManagementReply.of(OK, f"{name} is released", found.row())


def _row_there(name: str, new_id: int | None, still: list[DestinationHold]) -> MessageFacts:
    """Return the changes that a move makes to a message."""
    return {
        "new-queue": name,
        "new-id": new_id,
        "state": "held" if still else "waiting",
        "holds": [hold.id for hold in still],
    }


def _check_held(
    holding: list[DestinationHold], still: list[DestinationHold], here: str, there: str
) -> None:
    """Check that a move does not release a message from a hold of messages.

    Args:
        holding: its holds here.
        still: its holds there.
        here: the key of the next hop that it waits for.
        there: the node it would be moved to.

    Raises:
        PreconditionFailed: it stays.
    """
    lost = [hold.id for hold in holding if hold.is_of_messages and hold not in still]
    if lost:
        names = " ".join(lost)
        stop = f"amqproute hold --to {here}; " * all(each.is_of_messages for each in holding)
        raise PreconditionFailed(
            f"held by {names}, which would not hold on {there!r}; to move it, and not let it go "
            f"out before: {stop}amqproute release {names}; then reroute again"
        )


def _not_ended(failure: Failure) -> None:
    log.failure("messages that an operator ended could not be removed", failure)


def _reason(request: ManagementRequest) -> str:
    reason = request.body.get("reason", "")
    if not isinstance(reason, str) or len(reason) > LONGEST_REASON:
        raise _Refused(BAD_REQUEST, f"`reason` is not a text of at most {LONGEST_REASON} letters")
    return str(reason)


def _plain(value: object) -> object:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _read_cursor(
    request: ManagementRequest, start: IteratorPosition
) -> tuple[str, IteratorPosition]:
    text = request.body.get("cursor", "")
    if not text:
        return "", start
    try:
        name, level, after = parse_json(str(text))
        return str(name), IteratorPosition(int(level), int(after))
    except (TypeError, ValueError):
        raise _Refused(BAD_REQUEST, "`cursor` is not one that was given out") from None
