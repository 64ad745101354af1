# SPDX-License-Identifier: Apache-2.0
"""Suspended links: detached, not closed, with the state that their termini keep.

Theory of operation
===================

A link stands between two termini, and a terminus may outlive it (part 2 §2.6.2). What it keeps is
the state of the deliveries that are not settled. There are two kinds here:

* `ParkedDeliveries`: a consumer's. The entries that it had and had not settled stay its own (O-04,
  O-06): they are acquired on their queue, and nobody else gets them. When the terminus expires, its
  default outcome is applied to them, as it always was to what a lost consumer held (O-17).
* `ResolvedDeliveries`: a publisher's. What became of its deliveries whose outcome it has not
  confirmed: those of a link whose receiver settles second, and those that were committed when
  nobody was left to be told. With a durable terminus each of them stands in the store as well, in
  the commit of its message, so that the answer is the same after a restart (P-16).

How long, the expiry-policy says: it is what starts the timer (§3.5.6), and ``timeout`` how long
the timer runs::

    link-detach         at the detach
    session-end         when the session has ended         (the default, with a timeout of 0)
    connection-close    when the connection is gone
    never               answered as connection-close, with the longest time that is kept

No timer is longer than `FrontendLimits.suspended_seconds`, and the answering attach says so.

When the link is attached again, by the same owner, container-id and name, the two maps are
compared (§2.6.13). Of a delivery that both know, the one who has an outcome tells it; without one
it is sent again, marked as resumed. What only the receiver knows is settled. What only the sender
knows may be sent anew: here always, under its old tag. A peer whose map is incomplete tells
nothing by silence. An attach without a map is one with an empty map: the client has lost its
memory, or never had one.

Limits
======

What is parked and taken is bounded in number, in octets and in time, over all connections; when
there is too much of one of these, the principal that has most of it loses the link that has been
suspended for the longest time: nobody's termini depend on what others leave behind. Consumers'
state does not outlive a restart: what they had parked is available again then, so their termini are
never answered as durable.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.address import host_label, host_of
from amqproute.broker.commit_batch import Batch
from amqproute.entry import Entry
from amqproute.errors import DecodeError
from amqproute.frontends.common.frontend_limits import FrontendLimits
from amqproute.interfaces import INode, ISource
from amqproute.jsontext import parse_json
from amqproute.outcomes import Outcome
from amqproute.values import principal_of
from amqproute.wire.amqp10 import codec, spec
from amqproute.wire.amqp10.types import Symbol
from amqproute.wire.amqp10.value_memory import footprint

RESOLVED_NOTES: Final = "taken"
"""The kind of the store's notes about deliveries of durable publishers."""
TICK_SECONDS: Final = 1.0
"""Timers are not set finer than this, so that many links cost few of them."""
LONGEST_SHOWN: Final = 256
"""Characters of a client's names that operators are shown."""
LONGEST_CONDITION: Final = 128
"""Longer conditions are not repeated to who has said them."""
RESOLVED_OCTETS: Final = 256
"""What a delivery costs of which only the outcome is kept."""

LinkKey = tuple[str, str, str, str]
"""Owner (`amqproute.values.owner_of`), container-id, link name, our role."""


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Retention of a terminus after its link has ended.

    Attributes:
        policy: the expiry-policy in force.
        seconds: the timeout in force.
        durable: what is kept survives a restart (publishers only).
    """

    policy: Symbol = spec.EXPIRE_SESSION_END
    seconds: int = 0
    durable: bool = False

    @property
    def is_momentary(self) -> bool:
        """It ends with the link."""
        return self.policy == spec.EXPIRE_LINK_DETACH and not self.seconds


def retention_of(
    asked: spec.Source | spec.Target, most_seconds: int, exactly_once: bool = False
) -> RetentionPolicy:
    """Return what is in force of what a source or target asks for.

    Args:
        asked: the terminus of the attach.
        most_seconds: nothing is kept for longer.
        exactly_once: a publisher that wants no message taken twice: what is known of its
            deliveries has to outlive its connection, and this process.
    """
    policy, seconds = Symbol(asked.expiry_policy), min(asked.timeout, most_seconds)
    if policy == spec.EXPIRE_NEVER:
        policy, seconds = spec.EXPIRE_CONNECTION_CLOSE, most_seconds
    if exactly_once and not seconds:
        policy, seconds = spec.EXPIRE_CONNECTION_CLOSE, most_seconds
    return RetentionPolicy(policy, seconds, exactly_once)


class ParkedDeliveries:
    """The entries that a suspended consumer had not settled.

    Args:
        source: where they are from; they are acquired there.
        outcome: what becomes of them when the link does not come back.
        consumer: the one that had them.
        last_tag: the number in the last delivery-tag that was used.

    Attributes:
        entries: by delivery-tag, oldest first.
        is_waiting: the link is neither back nor expired.
        is_pending: a transaction that is not discharged decides about some of what it had.
    """

    __slots__ = (
        "consumer",
        "entries",
        "is_pending",
        "is_waiting",
        "last_tag",
        "outcome",
        "source",
    )

    def __init__(
        self,
        source: ISource,
        outcome: Outcome,
        consumer: object,
        last_tag: int,
    ) -> None:
        self.source = source
        self.outcome = outcome
        self.consumer = consumer
        self.last_tag = last_tag
        self.is_waiting = True
        self.is_pending = False
        self.entries: dict[bytes, Entry] = {}

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def octets(self) -> int:
        """Bytes of the messages."""
        return sum([len(entry.message.encoded) for entry in self.entries.values()])

    def expire(self, batch: Batch) -> None:
        """Release the entries with the default outcome."""
        entries, self.entries = list(self.entries.values()), {}
        if entries:
            self.source.settle(entries, self.outcome, batch, consumer=self.consumer)


class ResolvedDeliveries:
    """Outcomes of a publisher's deliveries that it has not confirmed yet.

    It is handed on from one attachment of the link to the next.

    Args:
        link: names the terminus in the store.

    Attributes:
        is_durable: what comes from now on is kept in the store.
        outcomes: by delivery-tag.
        is_pending: the link is gone, and something that came on it waits for the disk or the DNS.
    """

    __slots__ = ("_link", "_noted", "_waiting", "is_durable", "is_pending", "outcomes")

    def __init__(self, link: LinkKey = ("", "", "", "")) -> None:
        self._link = link
        self._noted: set[bytes] = set()
        self._waiting: list[Callable[[], None]] = []
        self.is_durable = False
        self.is_pending = False
        self.outcomes: dict[bytes, Any] = {}

    def __len__(self) -> int:
        return len(self.outcomes)

    @property
    def octets(self) -> int:
        """Its estimated memory in octets."""
        return len(self.outcomes) * RESOLVED_OCTETS

    def on_recovered(self, notify: Callable[[], None]) -> None:
        """Have ``notify()`` called, once, when nothing is pending any more."""
        self._waiting.append(notify)

    def is_recovered(self) -> None:
        """Note that pending deliveries are on the disk, or refused."""
        self.is_pending = False
        waiting, self._waiting = self._waiting, []
        for notify in waiting:
            notify()

    def note(self, tag: bytes, batch: Batch) -> None:
        """Have it on the disk, with the message, that the message of this tag was accepted."""
        batch.transaction.note(RESOLVED_NOTES, note_key(self._link, tag), _ACCEPTED)
        self._noted.add(tag)

    def unnote(self, tags: Iterable[bytes]) -> None:
        """The commit with these has failed."""
        self._noted.difference_update(tags)

    def recovered(self, tag: bytes, outcome: spec.Outcome) -> None:
        """Take over what an earlier run of the daemon has noted."""
        self._noted.add(tag)
        self.outcomes[tag] = outcome

    def forget(self, tags: Iterable[bytes], begin: Callable[[], Batch]) -> None:
        """Forget deliveries that the sender has settled.

        Args:
            tags: which.
            begin: gives the batch to delete their notes in; called only if there are any.
        """
        noted = self._noted
        for tag in tags:
            self.outcomes.pop(tag, None)
            if tag in noted:
                noted.discard(tag)
                begin().transaction.note(RESOLVED_NOTES, note_key(self._link, tag), None)

    def expire(self, batch: Batch) -> None:
        """Discard the outcomes."""
        self.forget(list(self.outcomes), lambda: batch)


@dataclass(slots=True, eq=False)
class SuspendedLink:
    """One link that is suspended.

    Attributes:
        key: names it.
        terminus: ours, as it was in force: for an attach that names none.
        retention: how long it lives.
        held: what it keeps.
        connection: the connection it was on, while that is there.
        session: the session it was on, while that is there.
        due: when it expires, by the clock; None while its timer does not run.
        counted: deliveries and octets as they were when it was added; its names and its terminus,
            with filters and capabilities, count too.
    """

    key: LinkKey
    terminus: spec.Source | spec.Target | spec.Coordinator | None
    retention: RetentionPolicy
    held: ParkedDeliveries | ResolvedDeliveries
    connection: object | None = None
    session: object | None = None
    due: float | None = None
    counted: tuple[int, int] = (0, 0)


@dataclass(slots=True)
class SuspendedCounters:
    """Totals of suspended links.

    Attributes:
        links: how many they are.
        deliveries: whose state is kept.
        octets: in memory.
    """

    links: int = 0
    deliveries: int = 0
    octets: int = 0

    def add(self, link: SuspendedLink, sign: int) -> None:
        """Count a link in, or out with a `sign` of -1."""
        deliveries, octets = link.counted
        self.links += sign
        self.deliveries += sign * deliveries
        self.octets += sign * octets


class SuspendedLinks:
    """All suspended links of a daemon.

    Args:
        clock: for the timers.
        limits: how many, how much, how long.
        begin: makes a `Batch`, for what an expiry does.
    """

    log = Logger()

    def __init__(
        self, clock: IReactorTime, limits: FrontendLimits, begin: Callable[[], Batch]
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._begin = begin
        self._links: dict[LinkKey, SuspendedLink] = {}
        # The same by principal and by connection, oldest first: thousands may go in one moment.
        self._of: dict[str, dict[LinkKey, SuspendedLink]] = {}
        self._sums: dict[str, SuspendedCounters] = {}
        self._on: dict[Any, dict[LinkKey, SuspendedLink]] = {}
        self._due: list[tuple[float, int, SuspendedLink]] = []
        self._numbers = count()
        self._timer: IDelayedCall | None = None
        self._all = SuspendedCounters()

    def __len__(self) -> int:
        return len(self._links)

    @property
    def deliveries(self) -> int:
        """Deliveries whose state is kept."""
        return self._all.deliveries

    @property
    def octets(self) -> int:
        """Octets in memory of the messages among these, and of the links."""
        return self._all.octets

    def rows(self) -> list[dict[str, object]]:
        """Return what an operator wants to know, for the management node."""
        now = self._clock.seconds()
        return [
            {
                "name": link.key[2][:LONGEST_SHOWN],
                "principal": principal_of(link.key[0]),
                "virtual-host": host_label(host_of(link.key[0])),
                "container": link.key[1][:LONGEST_SHOWN],
                "kind": "consumer" if isinstance(link.held, ParkedDeliveries) else "publisher",
                "address": getattr(link.terminus, "address", None) or "",
                "deliveries": len(link.held),
                "octets": link.held.octets,
                "expires-in": -1.0 if link.due is None else max(0.0, link.due - now),
            }
            for link in self._links.values()
        ]

    def find(self, key: LinkKey) -> SuspendedLink | None:
        """Return a link, if it is suspended."""
        return self._links.get(key)

    def add(self, link: SuspendedLink) -> None:
        """Keep a link that has been detached, for as long as its terms say."""
        key = link.key
        self.expire(key)
        self._links[key] = link
        self._of.setdefault(principal_of(key[0]), {})[key] = link
        if link.connection is not None:
            self._on.setdefault(link.connection, {})[key] = link
        named = footprint(link.key) + footprint(link.terminus)
        link.counted = (len(link.held), link.held.octets + named)
        self._count(link, 1)
        if link.retention.policy == spec.EXPIRE_LINK_DETACH or link.session is None:
            self._start(link)
        self._make_room(link)

    def take(self, key: LinkKey) -> SuspendedLink | None:
        """Hand a link over that is attached again."""
        link = self._links.pop(key, None)
        if link is None:
            return None
        _remove(self._of, principal_of(key[0]), key)
        if link.connection is not None:
            _remove(self._on, link.connection, key)
        self._count(link, -1)
        link.due = None
        if isinstance(link.held, ParkedDeliveries):
            link.held.is_waiting = False
        return link

    def expire(self, key: LinkKey) -> None:
        """End a terminus: what it keeps is given up."""
        link = self.take(key)
        if link is None:
            return
        if not len(link.held):
            _part(link.held)
            return
        batch = self._begin()
        link.held.expire(batch)
        _part(link.held)
        batch.commit(patient=True).addErrback(self._failed)
        if isinstance(link.held, ParkedDeliveries):
            link.held.source.dispatch()

    def expire_from(self, is_gone: Callable[[INode, str | None], bool]) -> None:
        """End the consumers' termini at nodes or aliases that are not there any more (L-03).

        Args:
            is_gone: tells it for a node and the address it was attached by.
        """
        for key, link in list(self._links.items()):
            if isinstance(link.held, ParkedDeliveries):
                address = getattr(link.terminus, "address", None)
                if is_gone(link.held.source, address):
                    self.expire(key)

    def session_ended(self, connection: object, session: object) -> None:
        """The timers of those start that live as long as their session."""
        for link in list(self._on.get(connection, {}).values()):
            if link.session is session:
                link.session = None
                if link.retention.policy == spec.EXPIRE_SESSION_END:
                    self._start(link)

    def connection_lost(self, connection: object) -> None:
        """All timers run now that did not before."""
        for link in self._on.pop(connection, {}).values():
            link.connection = link.session = None
            if link.due is None:
                self._start(link)

    def recovered(self, notes: Mapping[str, bytes]) -> None:
        """Take over what durable publishers had not confirmed when the daemon stopped."""
        found: dict[LinkKey, ResolvedDeliveries] = {}
        for text, encoded in notes.items():
            try:
                key, tag = read_note_key(text)
                outcome = spec.compose(codec.decode(encoded)[0])
            except (DecodeError, ValueError) as error:
                self.log.error(
                    "cannot read the record of a publisher's delivery: {error}", error=error
                )
                continue
            found.setdefault(key, ResolvedDeliveries(key)).recovered(tag, outcome)
        for key, resolved in found.items():
            terms = RetentionPolicy(
                spec.EXPIRE_CONNECTION_CLOSE, self._limits.suspended_seconds, True
            )
            self.add(SuspendedLink(key, None, terms, resolved))

    def stop(self) -> None:
        """Cancel the timer. What is parked is in the store; it is available after a restart."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    # -- time ------------------------------------------------------------------------------------

    def _start(self, link: SuspendedLink) -> None:
        if not link.retention.seconds:
            self.expire(link.key)
            return
        link.due = self._clock.seconds() + link.retention.seconds
        heappush(self._due, (link.due, next(self._numbers), link))
        self._arm()

    def _arm(self) -> None:
        due = self._due
        while due and due[0][0] != due[0][2].due:
            heappop(due)  # it was attached again
        if not due:
            return
        timer = self._timer
        if timer is not None and timer.active():
            if timer.getTime() <= due[0][0] + TICK_SECONDS:
                return
            timer.cancel()
        wait = max(TICK_SECONDS, due[0][0] - self._clock.seconds())
        self._timer = self._clock.callLater(wait, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        while self._due and self._due[0][0] <= now:
            due, _, link = heappop(self._due)
            if link.due == due:
                self.expire(link.key)
        self._arm()

    # -- bounds ----------------------------------------------------------------------------------

    def _count(self, link: SuspendedLink, sign: int) -> None:
        principal = principal_of(link.key[0])
        own = self._sums.setdefault(principal, SuspendedCounters())
        for sums in (self._all, own):
            sums.add(link, sign)
        if not own.links:
            del self._sums[principal]

    def _make_room(self, newcomer: SuspendedLink) -> None:
        limits, every = self._limits, self._all
        while True:
            if every.deliveries > limits.suspended_deliveries:
                held = [(each.deliveries, name) for name, each in self._sums.items()]
            elif every.octets > limits.suspended_bytes:
                held = [(each.octets, name) for name, each in self._sums.items()]
            elif every.links > limits.suspended_links:
                held = [(each.links, name) for name, each in self._sums.items()]
            else:
                return
            # Of those who have the most the newcomer itself, else whoever.
            own = principal_of(newcomer.key[0])
            _, _, principal = max((most, name == own, name) for most, name in held)
            victim = next(iter(self._of[principal]))
            self.log.warn(
                "suspended link {link} of {principal} dropped: suspended links have too many "
                "unsettled deliveries",
                link=victim[2][:LONGEST_SHOWN],
                principal=principal_of(victim[0]),
            )
            self.expire(victim)

    def _failed(self, failure: Failure) -> None:
        self.log.failure("cannot release the deliveries of a suspended link", failure)


def _part(held: ParkedDeliveries | ResolvedDeliveries) -> None:
    """Part what was kept from the consumer that had it, which knows it too."""
    if isinstance(held, ParkedDeliveries):
        held.consumer = None


def _remove(index: dict[Any, dict[LinkKey, SuspendedLink]], name: Any, key: LinkKey) -> None:
    """Take a link out of an index, and leave no empty place behind."""
    place = index.get(name)
    if place is not None:
        place.pop(key, None)
        if not place:
            del index[name]


def note_key(link: LinkKey, tag: bytes) -> str:
    """Return the name under which the store keeps what became of a delivery."""
    return json.dumps([*link, tag.hex()], separators=(",", ":"))


def read_note_key(text: str) -> tuple[LinkKey, bytes]:
    """Read it back.

    Raises:
        ValueError: it is not the name of such a note.
    """
    parts = parse_json(text)
    if not isinstance(parts, list) or len(parts) != 5 or not all(
        isinstance(part, str) for part in parts
    ):  # fmt: skip
        raise ValueError(f"not a list of five texts: {text[:100]!r}")
    owner, container, name, role, tag = parts
    return (owner, container, name, role), bytes.fromhex(tag)


def without_words(state: spec.Outcome | None) -> spec.Outcome | None:
    """Return an outcome without its texts, as it goes into a map or with a transfer."""
    if isinstance(state, spec.Rejected) and state.error is not None:
        condition = state.error.condition
        return spec.Rejected(
            error=spec.Error(condition=condition) if len(condition) < LONGEST_CONDITION else None
        )
    if isinstance(state, spec.Modified):
        return spec.Modified(
            delivery_failed=state.delivery_failed, undeliverable_here=state.undeliverable_here
        )
    return state


_ACCEPTED: Final[bytes] = codec.encode(spec.Accepted())

__all__ = [
    "RESOLVED_NOTES",
    "LinkKey",
    "ParkedDeliveries",
    "ResolvedDeliveries",
    "RetentionPolicy",
    "SuspendedLink",
    "SuspendedLinks",
    "note_key",
    "read_note_key",
    "retention_of",
    "without_words",
]
