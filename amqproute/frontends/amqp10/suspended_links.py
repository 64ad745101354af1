# SPDX-License-Identifier: Apache-2.0
"""Suspended links: detached, not closed, with the state that their termini keep.

Theory of operation
===================

A link connects two termini, and a terminus may outlive it (part 2 §2.6.2), with the state of its
unsettled deliveries. There are two kinds here:

* `ParkedDeliveries` of a consumer. Its unsettled entries stay with it (O-04, O-06): they are
  acquired on their queue, and no other consumer gets them. When the terminus expires, its default
  outcome is applied to them, as to the entries of any lost consumer (O-17).
* `ResolvedDeliveries` of a publisher: outcomes that it has not confirmed, of a link whose receiver
  settles second, and of deliveries that were committed after the end of the link. With a durable
  terminus each of them is in the store as well, in the commit of its message, so that the answer is
  the same after a restart (P-16).

The expiry-policy starts the timer (§3.5.6), which runs for ``timeout``::

    link-detach         at the detach
    session-end         when the session has ended         (the default, with a timeout of 0)
    connection-close    when the connection is gone
    never               answered as connection-close, with the longest time that is kept

No timer is longer than `FrontendLimits.suspended_seconds`, and the answering attach has the
effective timeout.

When the link is attached again, by the same owner, container-id and name, the two maps are compared
(§2.6.13). For a delivery in both maps, the side with an outcome sends it; without one the delivery
is sent again, marked as resumed. A delivery known only to the receiver is settled. One known only
to the sender may be sent anew: here always, under its old tag. The absence of a delivery from an
incomplete map means nothing. An attach without a map is one with an empty map: the client has lost
its state, or never had one.

Limits
======

Kept state is bounded in number, in octets and in time, over all connections; beyond a bound the
principal with the most state loses the link that has been suspended for the longest time: termini
do not depend on the remains of others. The state of consumers does not outlive a restart: parked
entries are available again then, so their termini are never answered as durable.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
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
"""Resolution of timers, so that many links cost few of them."""
LONGEST_SHOWN: Final = 256
"""Most characters of a client's names shown to operators."""
LONGEST_CONDITION: Final = 128
"""Longer conditions are not repeated to their authors."""
RESOLVED_OCTETS: Final = 256
"""Estimated octets of a delivery of which only the outcome is kept."""

LinkKey = tuple[str, str, str, str]
"""Owner (`amqproute.values.owner_of`), container-id, link name, our role."""


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Retention of a terminus after its link has ended.

    Attributes:
        policy: the expiry-policy in force.
        seconds: the timeout in force.
        durable: whether the state survives a restart (publishers only).
    """

    policy: Symbol = spec.EXPIRE_SESSION_END
    seconds: int = 0
    durable: bool = False

    @property
    def is_momentary(self) -> bool:
        """Whether it ends with the link."""
        return self.policy == spec.EXPIRE_LINK_DETACH and not self.seconds


def retention_of(
    asked: spec.Source | spec.Target, most_seconds: int, exactly_once: bool = False
) -> RetentionPolicy:
    """Return the effective retention of a source or target.

    Args:
        asked: the terminus of the attach.
        most_seconds: the longest timeout.
        exactly_once: whether the publisher wants no message taken twice: its outcomes have to
            outlive its connection, and this process.
    """
    policy, seconds = Symbol(asked.expiry_policy), min(asked.timeout, most_seconds)
    if policy == spec.EXPIRE_NEVER:
        policy, seconds = spec.EXPIRE_CONNECTION_CLOSE, most_seconds
    if exactly_once and not seconds:
        policy, seconds = spec.EXPIRE_CONNECTION_CLOSE, most_seconds
    return RetentionPolicy(policy, seconds, exactly_once)


class ParkedDeliveries:
    """The unsettled entries of a suspended consumer.

    Args:
        source: their source, where they are acquired.
        outcome: returns their outcome if the link does not come back.
        consumer: their holder.
        last_tag: the number in the last delivery-tag that was used.

    Attributes:
        entries: by delivery-tag, oldest first.
        is_waiting: whether the link is neither back nor expired.
        is_pending: whether an open transaction decides about some of its entries.
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

    It is passed from one attachment of the link to the next.

    Args:
        link: the key of the terminus in the store.

    Attributes:
        is_durable: whether new outcomes are kept in the store.
        outcomes: by delivery-tag.
        is_pending: the link is gone, and some of its deliveries wait for the disk or the DNS.
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
        """Call ``notify()`` once when nothing is pending any more."""
        self._waiting.append(notify)

    def is_recovered(self) -> None:
        """Note that pending deliveries are on the disk, or refused."""
        self.is_pending = False
        waiting, self._waiting = self._waiting, []
        for notify in waiting:
            notify()

    def note(self, tag: bytes, batch: Batch) -> None:
        """Store the acceptance of a delivery-tag together with its message."""
        batch.transaction.note(RESOLVED_NOTES, note_key(self._link, tag), _ACCEPTED)
        self._noted.add(tag)

    def unnote(self, tags: Iterable[bytes]) -> None:
        """Undo `note`: that commit failed."""
        self._noted.difference_update(tags)

    def recovered(self, tag: bytes, outcome: spec.Outcome) -> None:
        """Take over the notes of an earlier run of the daemon."""
        self._noted.add(tag)
        self.outcomes[tag] = outcome

    def forget(self, tags: Iterable[bytes], begin: Callable[[], Batch]) -> None:
        """Forget deliveries that the sender has settled.

        Args:
            tags: their tags.
            begin: returns the batch that deletes their notes; called only if there are any.
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
        key: its key.
        terminus: our terminus in force, for an attach without one.
        retention: its retention.
        held: its state.
        connection: its connection, while that exists.
        session: its session, while that exists.
        due: time of its expiry, by the clock; None while its timer does not run.
        counted: deliveries and octets when it was added, including its names and its terminus with
            filters and capabilities.
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
        links: their number.
        deliveries: number of deliveries whose state is kept.
        octets: the octets in memory.
    """

    links: int = 0
    deliveries: int = 0
    octets: int = 0

    def add(self, link: SuspendedLink, sign: int) -> None:
        """Add a link; subtract it with a `sign` of -1."""
        deliveries, octets = link.counted
        self.links += sign
        self.deliveries += sign * deliveries
        self.octets += sign * octets


class SuspendedLinks:
    """All suspended links of a daemon.

    Args:
        clock: the clock for the timers.
        limits: bounds of number, octets and time.
        begin: makes a `Batch` for an expiry.
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
        """Number of deliveries whose state is kept."""
        return self._all.deliveries

    @property
    def octets(self) -> int:
        """Octets in memory of the messages among these, and of the links."""
        return self._all.octets

    def index(
        self, host: str | None = None
    ) -> Iterator[tuple[str, Callable[[str], dict[str, object]]]]:
        """Iterate over the names of the links, each with a function for its row, for operators.

        The functions raise `KeyError` once the link is suspended no more.

        Args:
            host: the label of a virtual host; None for all.
        """
        for key, link in self._links.items():
            if host is None or host_label(host_of(key[0])) == host:
                yield key[2][:LONGEST_SHOWN], partial(self._row, link)

    def _row(self, link: SuspendedLink, name: str) -> dict[str, object]:
        if self._links.get(link.key) is not link:
            raise KeyError(name)
        now = self._clock.seconds()
        return {
            "name": name,
            "principal": principal_of(link.key[0]),
            "virtual-host": host_label(host_of(link.key[0])),
            "container": link.key[1][:LONGEST_SHOWN],
            "kind": "consumer" if isinstance(link.held, ParkedDeliveries) else "publisher",
            "address": getattr(link.terminus, "address", None) or "",
            "deliveries": len(link.held),
            "octets": link.held.octets,
            "expires-in": -1.0 if link.due is None else max(0.0, link.due - now),
        }

    def find(self, key: LinkKey) -> SuspendedLink | None:
        """Return a link, if it is suspended."""
        return self._links.get(key)

    def add(self, link: SuspendedLink) -> None:
        """Keep a link that has been detached, by its terms."""
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
        """Remove and return a link that is attached again."""
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
        """End a terminus, and drop its state."""
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
        """End the consumers' termini at nodes or aliases that are gone (L-03).

        Args:
            is_gone: returns it for a node and the address of its attach.
        """
        for key, link in list(self._links.items()):
            if isinstance(link.held, ParkedDeliveries):
                address = getattr(link.terminus, "address", None)
                if is_gone(link.held.source, address):
                    self.expire(key)

    def session_ended(self, connection: object, session: object) -> None:
        """Start the timers of links whose expiry begins with the end of their session."""
        for link in list(self._on.get(connection, {}).values()):
            if link.session is session:
                link.session = None
                if link.retention.policy == spec.EXPIRE_SESSION_END:
                    self._start(link)

    def connection_lost(self, connection: object) -> None:
        """Start all timers of the connection that do not run yet."""
        for link in self._on.pop(connection, {}).values():
            link.connection = link.session = None
            if link.due is None:
                self._start(link)

    def recovered(self, notes: Mapping[str, bytes]) -> None:
        """Take over the unconfirmed outcomes of durable publishers from an earlier run."""
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
        """Cancel the timer. Parked entries are in the store, and available after a restart."""
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
            # Among the principals with the most, that of the new link comes first.
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
    """Separate parked deliveries from their consumer, which refers to them, too."""
    if isinstance(held, ParkedDeliveries):
        held.consumer = None


def _remove(index: dict[Any, dict[LinkKey, SuspendedLink]], name: Any, key: LinkKey) -> None:
    """Remove a link from an index, with its key if that has no other."""
    place = index.get(name)
    if place is not None:
        place.pop(key, None)
        if not place:
            del index[name]


def note_key(link: LinkKey, tag: bytes) -> str:
    """Return the key of the store's note about a delivery."""
    return json.dumps([*link, tag.hex()], separators=(",", ":"))


def read_note_key(text: str) -> tuple[LinkKey, bytes]:
    """Read it back.

    Raises:
        ValueError: it is not the key of such a note.
    """
    parts = parse_json(text)
    if not isinstance(parts, list) or len(parts) != 5 or not all(
        isinstance(part, str) for part in parts
    ):  # fmt: skip
        raise ValueError(f"not a list of five texts: {text[:100]!r}")
    owner, container, name, role, tag = parts
    return (owner, container, name, role), bytes.fromhex(tag)


def without_words(state: spec.Outcome | None) -> spec.Outcome | None:
    """Return an outcome without its texts, for a map or a transfer."""
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
