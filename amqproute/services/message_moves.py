# SPDX-License-Identifier: Apache-2.0
"""Moves and copies of messages between nodes of this broker, for operators (G-22).

A request processes `MOST_SEEN` messages, one page in each reactor turn and one commit for each page
(`amqproute.broker.queue_iterator`), and answers ``messages`` so far and a ``cursor``, with which a
further request continues; it is empty at the end. A command of a batch cannot wait for that: it is
checked with the others, and carried out in the background once the batch is durable.

A message is on one of the two nodes at any moment: the commit that takes it from the source puts
it on the target. The target treats it as if a client had sent it: its duplicate rule applies,
deliveries are counted from 0, and the rest of its ttl remains. A message that the target refuses
stays where it is; a full target ends the operation. Acquired messages stay, and so do messages that
arrive meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.address import host_of
from amqproute.broker.binding import leaving
from amqproute.broker.broker import Broker
from amqproute.broker.queue import Queue
from amqproute.broker.queue_iterator import START, IteratorPosition, page_of
from amqproute.entry import Entry
from amqproute.errors import AmqpError, InvalidField, ResourceLimitExceeded, StoreError
from amqproute.filters.selector import Selector, compile_selector
from amqproute.journal.record import RecordKind
from amqproute.jsontext import parse_json
from amqproute.plurals import counted
from amqproute.services.change_batch import ChangeBatch, CommandResult
from amqproute.services.command_options import switch
from amqproute.services.command_schema import (
    BAD_REQUEST,
    CONFLICT,
    NOT_FOUND,
    OK,
    CommandRefused,
    ManagementCommand,
)
from amqproute.values import ANONYMOUS_PRINCIPAL, RELAY_PREFIX, Origin

__all__ = ["MOST_SEEN", "MessageMoves"]

MOST_SEEN: Final = 20_000
"""Messages processed for one request."""

_DONE: Final = {"MOVE": "moved", "COPY": "copied"}
_KEYS: Final = frozenset({"target", "filter", "limit", "dry-run", "cursor", "across-hosts"})

log = Logger()


class _Enough(Exception):
    """No more messages are to be moved."""


class MessageMoves:
    """Carries out MOVE and COPY.

    Args:
        broker: the nodes.
        now_ms: the wall clock, for selectors.
    """

    def __init__(self, broker: Broker, now_ms: Callable[[], int]) -> None:
        self._broker = broker
        self._now_ms = now_ms

    def now(self, command: ManagementCommand, who: str) -> Deferred[CommandResult]:
        """Carry a command out, within the bounds of one request.

        Raises:
            CommandRefused: it cannot be carried out.
        """
        job = _Job(self._broker, command, self._now_ms)
        return Deferred.fromCoroutine(job.run(who, MOST_SEEN))

    def later(self, command: ManagementCommand, changes: ChangeBatch) -> CommandResult:
        """Check a command of a batch; it is carried out when the batch is durable."""
        job = _Job(self._broker, command, self._now_ms)

        def done() -> None:
            running = Deferred.fromCoroutine(job.run(changes.by, None))
            running.addErrback(self._failed, str(command))

        count = job.source.available + job.source.deferred
        facts = {"name": command.name, "target": job.target_name, "messages": count}
        if job.is_dry:
            raise CommandRefused(BAD_REQUEST, "dry-run: only alone, not in a batch of commands")
        changes.did(f"{command} to {job.target_name}", done=done)
        return CommandResult(
            OK, f"up to {counted(count, 'message is', 'messages are')} being {job.done}", facts
        )

    @staticmethod
    def _failed(failure: Failure, what: str) -> None:
        log.failure("{what} stopped half way", failure, what=what)


class _Job:
    """One command in execution."""

    def __init__(
        self, broker: Broker, command: ManagementCommand, now_ms: Callable[[], int]
    ) -> None:
        self.moves = command.operation == "MOVE"
        self.done = _DONE[command.operation]
        self.count = self.refused = 0
        self.words = ""
        self._command = command
        self._broker = broker
        given = command.arguments
        unknown = sorted(set(given) - _KEYS)
        if unknown:
            known = ", ".join(sorted(_KEYS))
            raise CommandRefused(BAD_REQUEST, f"unknown option {unknown[0]!r}; there are {known}")
        self.is_dry = switch(command, "dry-run")
        self.source = self._source(command.name)
        self.target_name = self._target(given)
        self._limit = self._read_limit(given)
        self._selector = self._read_filter(given, now_ms)
        self._place = _read_cursor(given)

    # -- requests -----------------------------------------------------------------------------

    def _source(self, name: str) -> Queue:
        found = self._broker.nodes.get(name)
        if found is not None:
            return found
        if name.startswith(RELAY_PREFIX):
            raise CommandRefused(
                BAD_REQUEST,
                f"{name!r} is a relay queue: its messages go where routes lead; change the route, "
                "and have them moved by REROUTE-MESSAGES (amqproute reroute)",
            )
        if name in self._broker.topics:
            raise CommandRefused(BAD_REQUEST, f"{name!r} is a topic and holds nothing to take")
        raise self._missing("there is no queue", name)

    def _missing(self, words: str, name: str) -> CommandRefused:
        if name in self._broker.aliases:
            node = self._broker.aliases[name]
            return CommandRefused(NOT_FOUND, f"{name!r} is an alias; its node is {node!r}")
        return CommandRefused(NOT_FOUND, f"{words} {name[:256]!r}")

    def _target(self, given: Mapping[str, object]) -> str:
        name = given.get("target")
        if not isinstance(name, str) or not name:
            raise CommandRefused(
                BAD_REQUEST, f"{self._command.operation} needs a `target`, a node here"
            )
        if name == self._command.name:
            raise CommandRefused(CONFLICT, f"source and target are the same node, {name!r}")
        if name not in self._broker.nodes and name not in self._broker.topics:
            raise self._missing("target: here is no node", name)
        across = host_of(name) != host_of(self._command.name)
        if across and not switch(self._command, "across-hosts"):
            raise CommandRefused(
                CONFLICT,
                f"{self._command.name!r} and {name!r} are in different virtual hosts: nothing goes "
                "from one to the other unless `across-hosts` is true",
            )
        return name

    @staticmethod
    def _read_limit(given: Mapping[str, object]) -> int | None:
        limit = given.get("limit")
        if limit is not None and (type(limit) is not int or limit < 1):
            raise CommandRefused(BAD_REQUEST, "limit is a number from 1 on")
        return limit

    @staticmethod
    def _read_filter(given: Mapping[str, object], now_ms: Callable[[], int]) -> Selector | None:
        text = given.get("filter")
        if text is None or text == "":
            return None
        if not isinstance(text, str):
            raise CommandRefused(BAD_REQUEST, "filter is a selector, a text")
        try:
            return compile_selector(text, now_ms=now_ms)
        except InvalidField as error:
            raise CommandRefused(BAD_REQUEST, f"filter: {error.description}") from None

    # -- execution ------------------------------------------------------------------------------

    async def run(self, who: str, most: int | None) -> CommandResult:
        """Move or copy; process at most ``most`` messages."""
        after: IteratorPosition | None = None
        try:
            words = 0 if self._selector is None else self._selector.words
            walk = self.source.walk()
            after = await walk.run(self._page, self._place, most, page_of(words))
        except _Enough:
            self.source.dispatch()
        except StoreError as error:
            self.words = str(error)
            self.source.dispatch()
        said = (
            f"{counted(self.count, 'message')} " + ("would be " if self.is_dry else "") + self.done
        )
        if self.words:
            said += f"; then: {self.words}"
        if not self.is_dry and (self.count or self.refused):
            log.info(
                "{who}: {command} to {target}: {said}",
                who=who,
                command=str(self._command),
                target=self.target_name,
                said=said,
            )
        facts = {
            "name": self._command.name,
            "target": self.target_name,
            "messages": self.count,
            "refused": self.refused,
            "refused-because": self.words,
            "dry-run": self.is_dry,
            "cursor": "" if after is None else json.dumps(after),
        }
        return CommandResult(OK, said, facts)

    async def _page(self, page: list[Entry]) -> None:
        selector = self._selector
        wanted = [each for each in page if selector is None or selector.matches(each.message)]
        if self._limit is not None:
            wanted = wanted[: self._limit - self.count]
        is_full = False
        if self.is_dry:
            self.count += len(wanted)
        else:
            is_full = await self._take(wanted)
        if is_full or (self._limit is not None and self.count >= self._limit):
            raise _Enough

    async def _take(self, wanted: list[Entry]) -> bool:
        """Put messages on the target; return whether it is full."""
        broker, name = self._broker, self.target_name
        target = broker.nodes.get(name) or broker.topics.get(name)
        if target is None:
            self.words = f"there is no node {name!r} any more"
            return True
        batch = broker.begin()
        taken: list[Entry] = []
        is_full = False
        for entry in wanted:
            account = None if entry.charge is None or not self.moves else entry.charge[0]
            origin = Origin(
                ANONYMOUS_PRINCIPAL,
                container_id=entry.origin or "",
                account=account,
                event=RecordKind.ROUTED,
                parent=entry.id,
            )
            try:
                target.put(leaving(entry, batch.now_ms), batch, origin)
            except AmqpError as error:
                self.refused += 1
                self.words = error.description
                is_full = isinstance(error, ResourceLimitExceeded)
                if is_full:
                    break
            else:
                taken.append(entry)
        if not taken:
            batch.abandon()
            return is_full
        if self.moves:
            self.source.pick(taken)
            self.source.move_picked(taken, batch)
        await batch.commit()
        self.count += len(taken)
        return is_full


def _read_cursor(given: Mapping[str, object]) -> IteratorPosition:
    text = given.get("cursor")
    if not text:
        return START
    try:
        level, after = parse_json(str(text))
        return IteratorPosition(int(level), int(after))
    except (TypeError, ValueError):
        raise CommandRefused(BAD_REQUEST, "`cursor` is not one that was given out") from None
