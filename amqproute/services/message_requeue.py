# SPDX-License-Identifier: Apache-2.0
"""``REQUEUE`` through ``$management``: returns dead letters to their addresses.

The application property ``name`` is the queue that holds them. The annotation
``x-opt-dead-letter-source`` of a dead letter made by this broker names its former queue:

- a queue of this broker that still exists gets it back, and only that queue: other subscriptions of
  the same topic have had their copy;
- a message from a relay queue is routed by its ``to``, with the routes in force; one from the
  return path to an address goes to that address;
- a message that another broker returned names a queue of *that* broker there. It is routed by its
  ``to``, and so is a message from a queue that no longer exists.

A message without ``x-opt-dead-letter-reason`` is no dead letter and stays.

The body selects messages: ``ids``, ``where`` (a selector), ``reason`` (`DeadLetterReason`),
``condition`` (of the error), ``source``, ``older-than-ms`` and ``newer-than-ms`` (since it became a
dead letter); all given conditions have to hold. ``limit`` bounds the number, ``dry-run`` only
counts.

One request processes `MOST_SEEN` messages, one page in each reactor turn. Each page is one
commit: it takes messages off the dead-letter queue and puts them on their targets, so a crash
leaves each message on exactly one of the two. The annotations of the dead letter are removed,
deliveries are counted from 0, and the message has no ttl: it lost that when it became a dead
letter. A message that its target refuses, or would drop as a duplicate, stays where it is.

The requester needs the right `manage` on the queue and on each target.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from amqproute.address import host_of, in_host, is_reserved, local_name
from amqproute.auth.policy import Verb
from amqproute.broker.broker import Broker
from amqproute.broker.commit_batch import Batch
from amqproute.broker.queue import Queue
from amqproute.broker.queue_iterator import START, IteratorPosition, page_of
from amqproute.entry import Entry
from amqproute.errors import (
    AmqpError,
    DecodeError,
    InvalidField,
    NotFound,
    PreconditionFailed,
    ResourceLimitExceeded,
    StoreError,
    UnauthorizedAccess,
)
from amqproute.filters.selector import Selector, compile_selector
from amqproute.interfaces import ITarget
from amqproute.journal.record import RecordKind
from amqproute.jsontext import parse_json
from amqproute.message import Message
from amqproute.plurals import counted
from amqproute.routing.table import Router
from amqproute.services.command_schema import BAD_REQUEST, FORBIDDEN, NOT_FOUND, OK
from amqproute.services.management_node import ManagementService
from amqproute.services.management_protocol import Allows, ManagementReply, ManagementRequest
from amqproute.values import (
    ANONYMOUS_PRINCIPAL,
    DEAD_LETTER_REASON,
    DEAD_LETTER_SOURCE,
    DEAD_LETTER_WORDS,
    ORIGIN,
    RELAY_PREFIX,
    REPORT_KIND,
    RETURNED,
    DeadLetterReason,
    NextHop,
    Origin,
)

__all__ = ["MOST_IDS", "MOST_SEEN", "SAMPLES", "IReturnRoutes", "RequeueCommand"]

MOST_SEEN: Final = 20_000
"""Messages processed for one request."""
MOST_IDS: Final = 1000
"""Ids in one request."""
SAMPLES: Final = 5
"""Messages shown in an answer."""

_KEYS: Final = frozenset(
    {"ids", "where", "reason", "condition", "source", "older-than-ms", "newer-than-ms", "limit"}
    | {"dry-run", "cursor"}
)
_GONE: Final = (DEAD_LETTER_REASON, DEAD_LETTER_SOURCE, DEAD_LETTER_WORDS)

log = Logger()


class IReturnRoutes(Protocol):
    """Relay queues for returned messages: the part of `relay.Relay` that is used here."""

    def take_on_trust(self, hop: NextHop) -> Queue:
        """Return the relay queue of a hop."""


class _Refused(Exception):
    """A refusal, which is the answer to the request."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.reply = ManagementReply.of(status, words)


class _LimitReached(Exception):
    """The limit of the request is reached."""


@dataclass(frozen=True, slots=True)
class _Selection:
    """The selection of dead letters; see the module."""

    ids: frozenset[int]
    selector: Selector | None
    reason: str
    condition: str
    source: str
    before_ms: int | None
    after_ms: int | None

    def fits(self, entry: Entry) -> bool:
        """Return whether a message is selected.

        Raises:
            DecodeError: it cannot be read.
        """
        if self.before_ms is not None and entry.arrived_ms > self.before_ms:
            return False
        if self.after_ms is not None and entry.arrived_ms < self.after_ms:
            return False
        facts = entry.message.annotations
        if self.reason and facts.get(DEAD_LETTER_REASON) != self.reason:
            return False
        if (
            self.source
            and str(facts.get(DEAD_LETTER_SOURCE)).removeprefix(RELAY_PREFIX) != self.source
        ):
            return False
        if self.condition and _condition(entry.message) != self.condition:
            return False
        return self.selector is None or self.selector.matches(entry.message)


@dataclass(slots=True)
class _Count:
    """The result of a request."""

    messages: int = 0
    bytes: int = 0
    refused: int = 0
    words: str = ""
    targets: dict[str, int] = field(default_factory=dict)
    samples: list[dict[str, object]] = field(default_factory=list)


class RequeueCommand:
    """The operation.

    Args:
        broker: the nodes.
        ways: the relay queues.
        router: returns the router in force.
        allows: the access rules.
        now_ms: the wall clock.
    """

    def __init__(
        self,
        broker: Broker,
        ways: IReturnRoutes,
        router: Callable[[], Router],
        allows: Allows,
        now_ms: Callable[[], int],
    ) -> None:
        self._broker = broker
        self._ways = ways
        self._router = router
        self._allows = allows
        self._now_ms = now_ms

    def register(self, service: ManagementService) -> None:
        """Add the operation to the management node."""
        service.offer("REQUEUE", lambda asked: Deferred.fromCoroutine(self._answer(asked)))

    async def _answer(self, request: ManagementRequest) -> ManagementReply:
        try:
            return await self._requeue(request)
        except _Refused as refused:
            return refused.reply

    # -- requests -----------------------------------------------------------------------------

    async def _requeue(self, request: ManagementRequest) -> ManagementReply:
        queue = self._queue(request)
        body = request.body
        unknown = sorted(set(map(str, body)) - _KEYS)
        if unknown:
            known = ", ".join(sorted(_KEYS))
            raise _Refused(BAD_REQUEST, f"unknown option {unknown[0]!r}; there are {known}")
        selection = self._selection(body)
        limit = _number(body, "limit", 1)
        walk = queue.walk()
        place, until = _place_of(body.get("cursor"), walk.until)
        is_dry = body.get("dry-run") is True
        count = _Count()
        missing = set(selection.ids)

        async def page(entries: list[Entry]) -> None:
            entries = [entry for entry in entries if entry.id < until]
            missing.difference_update([entry.id for entry in entries])
            room = None if limit is None else limit - count.messages
            await self._page(request, queue, selection, entries, count, is_dry, room)
            if limit is not None and count.messages >= limit:
                raise _LimitReached

        after: IteratorPosition | None = None
        try:
            if selection.ids:
                await walk.find(selection.ids, page)
            else:
                words = 0 if selection.selector is None else selection.selector.words
                after = await walk.run(page, place, MOST_SEEN, page_of(words))
        except _LimitReached:
            missing.clear()  # those not processed yet are not known to be missing
            queue.dispatch()
        except StoreError as error:
            count.words = f"the store does not take it: {error}"
            queue.dispatch()
        cursor = "" if after is None else json.dumps([*after, until])
        return self._summary(request, queue, count, is_dry, missing, cursor)

    def _summary(
        self,
        request: ManagementRequest,
        queue: Queue,
        count: _Count,
        is_dry: bool,
        missing: set[int],
        cursor: str,
    ) -> ManagementReply:
        words = f"{counted(count.messages, 'message')} {'would be ' if is_dry else ''}requeued"
        if count.words:
            stayed = f"{count.refused} not requeued" if count.refused else "it ended early"
            words += f"; {stayed}: {count.words}"
        if not is_dry and (count.messages or count.refused):
            log.info(
                "{who}: REQUEUE {queue}: {said}{targets}",
                who=str(request.principal),
                queue=queue.name,
                said=words,
                targets=f"; to {', '.join(sorted(count.targets))}" if count.targets else "",
            )
        facts = {
            "name": queue.name,
            "messages": count.messages,
            "bytes": count.bytes,
            "refused": count.refused,
            "refused-because": count.words,
            "dry-run": is_dry,
            "targets": count.targets,
            "missing": sorted(missing),
            "samples": count.samples,
            "cursor": cursor,
        }
        return ManagementReply.of(OK, words, facts)

    def _queue(self, request: ManagementRequest) -> Queue:
        name = request.properties.get("name")
        if not isinstance(name, str) or not name:
            raise _Refused(BAD_REQUEST, "the application property `name` is missing: a queue")
        if not self._allows(request.principal, Verb.MANAGE, name):
            log.warn("{who} may not REQUEUE: no right to manage {node}", who=str(request.principal),
                     node=name)  # fmt: skip
            raise _Refused(FORBIDDEN, f"{request.principal} may not manage {name!r}")
        found = self._broker.nodes.get(name)
        if found is None:
            raise _Refused(NOT_FOUND, f"there is no queue {name[:256]!r}")
        return found

    def _selection(self, body: Mapping[str, object]) -> _Selection:
        ids = body.get("ids", [])
        if not isinstance(ids, list) or not all(isinstance(each, int) for each in ids):
            raise _Refused(BAD_REQUEST, "`ids` is not a list of numbers")
        if len(ids) > MOST_IDS:
            raise _Refused(BAD_REQUEST, f"more than {MOST_IDS} ids in one request")
        texts = {key: body.get(key, "") for key in ("where", "reason", "condition", "source")}
        for key, text in texts.items():
            if not isinstance(text, str):
                raise _Refused(BAD_REQUEST, f"`{key}` is not a text")
        reasons = [each.value for each in DeadLetterReason]
        if texts["reason"] and texts["reason"] not in reasons:
            raise _Refused(BAD_REQUEST, f"`reason` is none of {', '.join(reasons)}")
        selector: Selector | None = None
        try:
            if texts["where"]:
                selector = compile_selector(str(texts["where"]), now_ms=self._now_ms)
        except InvalidField as error:
            raise _Refused(BAD_REQUEST, f"where: {error.description}") from None
        older, newer = _number(body, "older-than-ms"), _number(body, "newer-than-ms")
        now_ms = self._now_ms()
        return _Selection(
            frozenset(int(each) for each in ids),
            selector,
            str(texts["reason"]),
            str(texts["condition"]),
            local_name(str(texts["source"])).removeprefix(RELAY_PREFIX),
            None if older is None else now_ms - older,
            None if newer is None else now_ms - newer,
        )

    # -- execution ------------------------------------------------------------------------------

    async def _page(
        self,
        request: ManagementRequest,
        queue: Queue,
        selection: _Selection,
        entries: list[Entry],
        count: _Count,
        is_dry: bool,
        room: int | None,
    ) -> None:
        """Requeue the selected messages of a page, in one commit."""
        batch = self._broker.begin()
        taken: list[tuple[Entry, str]] = []
        for entry in entries:
            if room is not None and len(taken) >= room:
                break
            try:
                if not selection.fits(entry):
                    continue
                way = self._way(entry, host_of(queue.name))
                self._check(request, queue, entry, way)
                if not is_dry:
                    self._put(way, entry, batch)
            except DecodeError as error:
                count.refused += 1
                count.words = f"message {entry.id} cannot be read: {error.description}"
            except AmqpError as error:
                count.refused += 1
                count.words = error.description
            else:
                taken.append((entry, _name(way)))
            finally:
                entry.message.forget()
        rows = [self._row(entry, name) for entry, name in taken[: SAMPLES - len(count.samples)]]
        if is_dry or not taken:
            batch.abandon()
        else:
            moved = [entry for entry, _ in taken]
            queue.pick(moved)
            queue.move_picked(moved, batch)
            await batch.commit()
        count.messages += len(taken)
        count.bytes += sum(entry.message.size for entry, _ in taken)
        count.samples += rows
        for _, name in taken:
            count.targets[name] = count.targets.get(name, 0) + 1

    def _way(self, entry: Entry, host: str) -> ITarget | NextHop:
        """Return the target of a dead letter.

        Args:
            entry: the dead letter.
            host: the virtual host that it is in.

        Raises:
            AmqpError: it is no dead letter, or its target does not exist.
        """
        message = entry.message
        facts = message.annotations
        if DEAD_LETTER_REASON not in facts:
            raise PreconditionFailed(f"message {entry.id} is no dead letter")
        router = self._router()
        source = facts.get(DEAD_LETTER_SOURCE)
        if isinstance(source, str) and facts.get(REPORT_KIND) != RETURNED:
            queue = self._broker.nodes.get(in_host(host, source))  # named as its clients do
            if queue is not None:
                return queue
            key = source.removeprefix(RELAY_PREFIX)
            if key != source and "@" in key:
                return router.hop_of_key(key)
        to = message.to
        if not to:
            raise PreconditionFailed(
                f"message {entry.id} has no `to`, and {DEAD_LETTER_SOURCE} names no queue of this "
                "broker"
            )
        route = router.route(to)
        if isinstance(route, NextHop):
            return route
        if is_reserved(route.node):
            raise NotFound(f"{to!r} is a service")
        target: ITarget = self._broker.target(
            in_host(host, route.node) if "@" not in to else route.node
        )
        return target

    def _check(
        self, request: ManagementRequest, queue: Queue, entry: Entry, way: ITarget | NextHop
    ) -> None:
        """Check that the target accepts a dead letter.

        Raises:
            AmqpError: the rights are missing, or the target refuses it.
        """
        name = _name(way)
        if name == queue.name:
            raise PreconditionFailed(f"message {entry.id} is addressed to {name!r} itself")
        if not self._allows(request.principal, Verb.MANAGE, name):
            raise UnauthorizedAccess(f"{request.principal} may not manage {name!r}")
        if isinstance(way, NextHop):
            return
        if host_of(name) != host_of(queue.name):
            # The annotation may be anybody's who publishes to the queue.
            raise PreconditionFailed(f"{name!r} is in another virtual host than {queue.name!r}")
        if way.space() <= 0:
            raise ResourceLimitExceeded(f"{name} takes no messages at the moment")
        if isinstance(way, Queue) and way.repeats(entry.message):
            raise PreconditionFailed(
                f"{name} holds a message with this message-id and takes no second one "
                "(duplicate-policy)"
            )

    def _put(self, way: ITarget | NextHop, entry: Entry, batch: Batch) -> None:
        target = self._ways.take_on_trust(way) if isinstance(way, NextHop) else way
        message = entry.message
        gone = _GONE
        if message.annotations.get(REPORT_KIND) == RETURNED:
            # The message was first sent here. Its next hop would refuse it with the origin that it
            # has now.
            is_leaving = isinstance(way, NextHop)
            gone = (*_GONE, REPORT_KIND, *((ORIGIN,) if is_leaving else ()))
        origin = Origin(
            ANONYMOUS_PRINCIPAL,
            container_id=entry.origin or "",
            account=None if entry.charge is None else entry.charge[0],
            event=RecordKind.ROUTED,
            parent=entry.id,
        )
        target.put(message.with_annotations({}, drop=gone).undelivered(), batch, origin)

    def _row(self, entry: Entry, target: str) -> dict[str, object]:
        message = entry.message
        message_id = message.properties.message_id
        facts = message.annotations
        source = facts.get(DEAD_LETTER_SOURCE)
        return {
            "id": entry.id,
            "to": message.to,
            "new-queue": target,
            "state": str(facts[DEAD_LETTER_REASON]),
            "source": None if source is None else str(source),
            "condition": _condition(message) or None,
            "age-ms": max(0, self._now_ms() - entry.arrived_ms),
            "bytes": message.size,
            "attempts": entry.delivery_count,
            "message-id": None if message_id is None else str(message_id),
        }


def _name(way: ITarget | NextHop) -> str:
    """Return the name of the target's node."""
    return RELAY_PREFIX + way.key if isinstance(way, NextHop) else way.name


def _condition(message: Message) -> str:
    """Return the condition of the error of a dead letter; empty if there is none."""
    words = message.annotations.get(DEAD_LETTER_WORDS)
    return words.partition(": ")[0] if isinstance(words, str) else ""


def _number(body: Mapping[str, object], key: str, least: int = 0) -> int | None:
    value = body.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise _Refused(BAD_REQUEST, f"`{key}` is not a number from {least} on")
    return int(value)


def _place_of(cursor: object, newest: int) -> tuple[IteratorPosition, int]:
    """Return the position to continue at, and the id from which messages are too new.

    A dead letter rejected again by a consumer comes back with a higher id: without the bound a
    sequence of requests could continue for ever.
    """
    if not cursor:
        return START, newest
    try:
        level, after, until = parse_json(str(cursor))
        return IteratorPosition(int(level), int(after)), int(until)
    except (TypeError, ValueError):
        raise _Refused(BAD_REQUEST, "`cursor` is not one that was given out") from None
