# SPDX-License-Identifier: Apache-2.0
"""Holds: an operator's orders that messages must not be sent, with a reason; they are durable.

A hold is an object with an id. It applies to present and later messages until it is released or
expires. A hold on a domain stops its relay queue: no connection is made. A hold by selector or ids
lets all other messages on the same queues pass; it follows its messages when they are rerouted
(`RelayHolds.follow`). The id of a hold is never reused.

Why so: an operator who stops traffic to a partner means the partner, not the messages that happen
to wait at that moment; and somebody who sees the hold weeks later needs its author and its reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Final, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.broker.commit_batch import Batch
from amqproute.broker.message_selection import EVERYTHING, NOTHING, MessageSelection, Picks
from amqproute.entry import Entry
from amqproute.errors import AmqprouteError, ResourceLimitExceeded
from amqproute.jsontext import parse_json
from amqproute.values import NextHop

__all__ = ["HOLD_NOTES", "LAST_HOLD_NOTES", "MOST_HOLDS", "RelayHold", "RelayHolds", "RelayRoutes"]

HOLD_NOTES: Final = "hold"
"""The kind of these notes in the store."""
LAST_HOLD_NOTES: Final = "last-hold"
"""The kind of the single note, without a key, of the last id assigned: it outlives its hold."""
MOST_HOLDS: Final = 1000
LONGEST_TIMER: Final = 86_400.0
"""Seconds; a longer hold is checked again after this time."""


@dataclass(frozen=True, slots=True)
class RelayHold:
    """One hold.

    Attributes:
        id: the name of the hold.
        reason: the reason for operators.
        by: the operator who made it.
        since_ms: when it was made.
        until_ms: when it expires; 0 for never.
        to: the domain, or the key of the relay queue; empty for any.
        where: the selector; empty for every message.
        ids: ids of messages; empty for any.
    """

    id: str
    reason: str
    by: str = ""
    since_ms: int = 0
    until_ms: int = 0
    to: str = ""
    where: str = ""
    ids: tuple[int, ...] = ()

    @property
    def is_of_messages(self) -> bool:
        """Whether it holds single messages rather than a domain or a next hop."""
        return bool(self.ids or self.where)

    def encode(self) -> bytes:
        """Return the stored form."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, value: bytes) -> RelayHold:
        """Parse a hold stored by an earlier run.

        Raises:
            ValueError: it is not a hold.
        """
        facts = parse_json(value)
        try:
            return cls(**{**facts, "ids": tuple(facts["ids"])})
        except (KeyError, TypeError) as error:
            raise ValueError(f"it lacks {error}") from None

    def row(self) -> dict[str, object]:
        """Return its attributes, for the management node."""
        return {
            "name": self.id,
            "type": "hold",
            "reason": self.reason,
            "by": self.by,
            "since-ms": self.since_ms,
            "until-ms": self.until_ms or None,
            "to": self.to,
            "where": self.where,
            "ids": list(self.ids),
        }


class RelayRoutes(Protocol):
    """The routes in force: a `amqproute.routing.table.Router`."""

    def hop_of_key(self, key: str) -> NextHop:
        """Return the next hop of a relay queue, by the key in its name."""

    def hop(self, domain: str) -> NextHop:
        """Return the next hop for a domain."""


class IHoldable(Protocol):
    """The target of a hold: a `Destination`."""

    hop: NextHop

    @property
    def held(self) -> str | None: ...
    def hold(self, reason: str) -> None: ...
    def unhold(self) -> None: ...
    def select(self, selects: Picks | None) -> None: ...


class RelayHolds:
    """All holds.

    Args:
        begin: begins a batch.
        clock: the clock for holds that expire.
        now_ms: the wall clock.
        routes: the routes in force.
        destinations: present destinations, by key.
    """

    log = Logger()

    def __init__(
        self,
        begin: Callable[[], Batch],
        clock: IReactorTime,
        now_ms: Callable[[], int],
        routes: RelayRoutes,
        destinations: Mapping[str, IHoldable],
    ) -> None:
        self._begin = begin
        self._clock = clock
        self._now_ms = now_ms
        self._routes = routes
        self._destinations = destinations
        self._holds: dict[str, tuple[RelayHold, MessageSelection]] = {}
        self._last = 0
        self._timer: IDelayedCall | None = None

    def __len__(self) -> int:
        return len(self._holds)

    def __iter__(self) -> Iterator[RelayHold]:
        return iter([hold for hold, _ in self._holds.values()])

    def recovered(
        self, notes: Mapping[str, bytes], last: Mapping[str, bytes] = MappingProxyType({})
    ) -> None:
        """Restore the holds of an earlier run and apply them to the present destinations.

        Args:
            notes: the notes of the holds.
            last: of the last id assigned.
        """
        self._last = _number(last.get("", b"").decode("utf-8", "replace"))
        for name in sorted(notes, key=_number):
            self._last = max(self._last, _number(name))
            try:
                hold = RelayHold.decode(notes[name])
                self._holds[name] = hold, self._aim(hold)
            except (AmqprouteError, ValueError, TypeError) as error:  # written by a newer version
                self.log.error(
                    "the hold {hold} cannot be understood and holds nothing: {error}",
                    hold=name,
                    error=str(error),
                )
        self._end_some()
        self.apply_all()

    def add(
        self,
        reason: str,
        by: str,
        *,
        to: str = "",
        where: str = "",
        ids: Iterable[int] = (),
        until_ms: int = 0,
    ) -> RelayHold:
        """Add a hold; it is in force when this returns, and durable soon after.

        Raises:
            InvalidField: the domain is not valid, or the selector does not compile.
            ResourceLimitExceeded: there are too many holds.
        """
        if len(self._holds) >= MOST_HOLDS:
            raise ResourceLimitExceeded(
                f"there are {MOST_HOLDS} holds; release some", info={"limiter": "holds"}
            )
        name = f"h{self._last + 1}"
        hold = RelayHold(
            name,
            reason or "held by an operator",
            by,
            self._now_ms(),
            until_ms,
            to,
            where,
            tuple(sorted(ids)),
        )
        aim = self._aim(hold)
        self._last += 1
        self._holds[name] = hold, aim
        self._note(name, hold.encode())
        self._watch()
        self.apply_all()
        return hold

    def release(self, name: str) -> RelayHold | None:
        """End a hold; return None if no hold has this id."""
        found = self._holds.pop(name, None)
        if found is None:
            return None
        self._note(name, None)
        self._watch()
        self.apply_all()
        return found[0]

    def follow(self, moved: Mapping[int, int], batch: Batch) -> None:
        """Apply holds by ids to messages that have moved and got new ids.

        The new ids are held from now on, and the old ones until the batch is committed: it may
        fail.

        Args:
            moved: the new ids, by old ids.
            batch: the batch of the move, about to be committed; the holds are stored with it.
        """
        concerned = [hold for hold in self if not moved.keys().isdisjoint(hold.ids)]
        for hold in concerned:
            after = {moved.get(each, each) for each in hold.ids}
            note = replace(hold, ids=tuple(sorted(after))).encode()
            batch.transaction.note(HOLD_NOTES, hold.id, note)
            self._set_ids(hold, after.union(hold.ids))
        if concerned:
            batch.when_committed(partial(self.forget, moved.keys()))
            batch.when_failed(partial(self.forget, moved.values()))
            self.apply_all()

    def forget(self, ids: Collection[int]) -> None:
        """Remove ids of deleted messages from holds that have other ids as well."""
        for hold in tuple(self):
            left = set(hold.ids).difference(ids)
            if left and len(left) < len(hold.ids):  # a hold without ids would apply to everything
                self._set_ids(hold, left)
        self.apply_all()

    def _set_ids(self, hold: RelayHold, ids: Iterable[int]) -> None:
        changed = replace(hold, ids=tuple(sorted(ids)))
        self._holds[hold.id] = changed, self._aim(changed)

    def _aim(self, hold: RelayHold) -> MessageSelection:
        return MessageSelection(hold.ids, hold.to, hold.where, self._now_ms)

    def _note(self, name: str, value: bytes | None) -> None:
        batch = self._begin()
        batch.transaction.note(HOLD_NOTES, name, value)
        batch.transaction.note(LAST_HOLD_NOTES, "", b"h%d" % self._last)
        batch.commit().addErrback(self._not_noted, name)

    def _not_noted(self, failure: Failure, name: str) -> None:
        self.log.failure("the hold {hold} could not be stored", failure, hold=name)

    # -- in force --------------------------------------------------------------------------------

    def apply_all(self) -> None:
        """Apply the present holds and routes to all destinations."""
        for destination in tuple(self._destinations.values()):
            self.apply(destination)

    def apply(self, destination: IHoldable) -> None:
        """Apply the present holds to one destination."""
        whole: list[str] = []
        parts: list[Picks] = []
        for hold, picks in self.at(destination.hop):
            if picks is EVERYTHING:
                whole.append(hold.reason)
            else:
                parts.append(picks)
        selects: Picks | None = None
        if parts:
            held = tuple(parts)

            def selects(entry: Entry) -> bool:
                return not any(picks(entry) for picks in held)

        destination.select(selects)
        if whole:
            if destination.held != "; ".join(whole):
                destination.hold("; ".join(whole))
        else:
            destination.unhold()

    def on(self, destination: IHoldable) -> list[RelayHold]:
        """Return the holds on a destination, or on some of its messages."""
        return [hold for hold, _ in self.at(destination.hop)]

    def of(self, destination: IHoldable, entry: Entry) -> list[RelayHold]:
        """Return the holds on one message."""
        return [hold for hold, picks in self.at(destination.hop) if picks(entry)]

    def held(self, destination: IHoldable, entries: Iterable[Entry]) -> set[Entry]:
        """Return the held messages among those of a destination."""
        found = [picks for _, picks in self.at(destination.hop)]
        return {entry for entry in entries if any(picks(entry) for picks in found)}

    def at(self, hop: NextHop) -> list[tuple[RelayHold, Picks]]:
        """Return the holds on a next hop, each with the messages that it selects there."""
        found = [
            (hold, aim.of(hop.key, hop.domain, self._key_for)) for hold, aim in self._holds.values()
        ]
        return [(hold, picks) for hold, picks in found if picks is not NOTHING]

    def _key_for(self, domain: str) -> str:
        return self._routes.hop(domain).key

    # -- expiry ----------------------------------------------------------------------------------

    def _watch(self) -> None:
        self.stop()
        ends = [hold.until_ms for hold, _ in self._holds.values() if hold.until_ms]
        if ends:
            wait = max(0.0, (min(ends) - self._now_ms()) / 1000)
            self._timer = self._clock.callLater(min(wait, LONGEST_TIMER), self._ended)

    def _ended(self) -> None:
        self._timer = None
        if self._end_some():
            self.apply_all()

    def _end_some(self) -> bool:
        now_ms = self._now_ms()
        over = [name for name, (each, _) in self._holds.items() if 0 < each.until_ms <= now_ms]
        for name in over:
            hold, _ = self._holds.pop(name)
            self._note(name, None)
            self.log.info("the hold {hold} is over: {reason}", hold=name, reason=hold.reason)
        self._watch()
        return bool(over)

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None


def _number(name: str) -> int:
    digits = name[1:]
    return int(digits) if digits.isdigit() else 0
