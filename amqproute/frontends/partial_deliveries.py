# SPDX-License-Identifier: Apache-2.0
"""Deliveries that have begun and not ended, over all connections: one bound for what they hold.

Each engine tells with every read what it holds of its peer's input: the frames of unfinished
deliveries, and a frame that is not complete. The sum counts as memory on its way
(`broker.publish_gate.HeldMemory`), and has a bound of its own, a quarter of ``limits.memory``: so
what never ends cannot take the room of messages that do, nor close the gate for everybody.
Past the bound those who hold most give way (`amqproute.broker.partial_delivery_eviction`): users
and peers, and the anonymous by their addresses. They give way for what has come, and for
`SPARE_BYTES` more, so that no read is followed by more of this work than it brought:

* a delivery of which more than `HEAD_BYTES` have come is handed up in parts and goes to a draft of
  the store (`large_message_receiver`), as one does anyway that grows beyond a mebibyte. Its sender
  notices nothing;
* any other is ended with its link, with ``amqp:resource-limit-exceeded``, and a frame that is not
  complete with its connection: the sender begins again.

One that makes no progress for `SPILL_SECONDS` is spilled even if there is room. One that makes
none for ``limits.delivery-timeout`` is ended, in memory or on the disk. Progress is a kibibyte of
the message; empty frames are none. Time in which we do not let the sender go on does not count.
Thousands may be overdue at one time: each turn of the reactor looks at `MOST_LOOKED_AT` deliveries
and those of one connection more, and deals with `MOST_EVICTED` of them, or with `SPARE_BYTES`.

Drafts cost a file each, and octets on the disk. How many there may be is bounded by
`large_message_receiver.MOST_DRAFTS`, and their octets by what the store may still take, each with a
share for each principal and connection; a large message beyond that is released, so its sender
keeps it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable
from typing import TYPE_CHECKING, Final, TypeAlias

from twisted.internet.interfaces import IReactorTime

from amqproute import conditions
from amqproute.broker.fair_shares import FairShares
from amqproute.broker.partial_delivery_eviction import (
    Eviction,
    EvictionAction,
    PartialDelivery,
    evictions,
    overdue,
)
from amqproute.broker.publish_gate import HeldMemory
from amqproute.errors import ResourceLimitExceeded
from amqproute.frontends.contract_enforcement import RETRY_SECONDS
from amqproute.frontends.large_message_receiver import HEAD_BYTES
from amqproute.frontends.link_refusal import error_of
from amqproute.frontends.peer_error_log import short
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.link import Link

if TYPE_CHECKING:
    from amqproute.frontends.connection_frontend import Frontend

__all__ = ["SPILL_SECONDS", "PartialDeliveries"]

SPILL_SECONDS: Final = 30.0
"""Without progress for so long a delivery has no claim to memory."""
SPARE_BYTES: Final = 1024 * 1024
"""Octets that are freed beyond what is too much; fewer where the bound is small."""
MOST_LOOKED_AT: Final = 1000
MOST_EVICTED: Final = 16
"""Overdue deliveries that are looked at, and dealt with, in one turn of the reactor."""

Key: TypeAlias = Link | None
"""The link of a delivery; None for a frame that is not complete."""


class PartialDeliveries:
    """What all connections hold of deliveries that have begun and not ended.

    Args:
        memory: what counts as on its way.
        frontends: every connection; changed as they come and go.
        clock: the reactor, for its turns.
        seconds: the monotonic clock of the engines.
        timeout_seconds: without progress for so long a delivery is ended.

    Attributes:
        drafts: the places of large messages on their way to the disk, and who has them.
        draft_octets: what these have on the disk or on the way there, and whose that is.
        spare_octets: that the store may still take, as measured last; None before that.
        spilled: deliveries that were written to disk before their time, since the start.
        ended: deliveries that were ended, since the start.
    """

    def __init__(
        self,
        memory: HeldMemory,
        frontends: Collection[Frontend],
        clock: IReactorTime,
        seconds: Callable[[], float],
        timeout_seconds: float,
    ) -> None:
        self._memory = memory
        self._frontends = frontends
        self._clock = clock
        self._seconds = seconds
        self._timeout_seconds = timeout_seconds
        self._held: dict[Frontend, int] = {}
        # What is still to be looked at, and what was found overdue.
        self._rest: deque[Frontend] = deque()
        self._overdue: deque[tuple[Frontend, Key]] = deque()
        self._is_scheduled = False
        self.drafts = FairShares()
        self.draft_octets = FairShares()
        self.spare_octets: int | None = None
        self.spilled = 0
        self.ended = 0

    def __repr__(self) -> str:
        return f"<PartialDeliveries {self._memory.arriving_bytes} on {len(self._held)}>"

    def may_grow(self, octets: int, party: str, member: Hashable) -> bool:
        """Tell whether a party's large messages may have so many octets more on the disk.

        As many as would still be free, like everything that is shared; its only one may have all.
        """
        if self.spare_octets is None or self.drafts.held(party) <= 1:
            return True
        shares = self.draft_octets
        return shares.room(self.spare_octets + shares.used, party, member) >= octets

    def holds(self, frontend: Frontend, octets: int) -> None:
        """Take note of what a connection's engine holds now."""
        if octets:
            before = self._held.get(frontend, 0)
            self._held[frontend] = octets
        else:
            before = self._held.pop(frontend, 0)
        self._memory.arrive(octets - before)

    @property
    def is_too_much(self) -> bool:
        """More is held than the bound allows: `relieve` has something to do."""
        return self._memory.arriving_bytes > self._memory.most_arriving > 0

    def relieve(self) -> None:
        """Have those who hold most give way, until there is room again."""
        if not self.is_too_much:
            return
        most = self._memory.most_arriving
        parties: dict[Hashable, dict[Frontend, int]] = {}
        for frontend, octets in self._held.items():
            name, member = frontend.party
            party = (name, member) if frontend.is_anonymous else name
            parties.setdefault(party, {})[frontend] = octets
        excess = self._memory.arriving_bytes - most + min(most // 8, SPARE_BYTES)
        for each in evictions(parties, self._deliveries_of, excess):
            self._evict(each, "unfinished deliveries hold too much memory")

    def look(self) -> int:
        """Count anew, and deal with what makes no progress: with some now, the rest in turns.

        Returns:
            The octets that are held.
        """
        for frontend in tuple(self._frontends):
            self.holds(frontend, frontend.connection.held_bytes)
        if not self._rest:
            self._rest.extend(self._frontends)
        if not self._is_scheduled:
            self._go_on()
        self.relieve()
        return self._memory.arriving_bytes

    def _go_on(self) -> None:
        """Look at some deliveries, and deal with some of those that make no progress."""
        self._is_scheduled = False
        words = f"nothing came of a delivery for {self._timeout_seconds:g} s"
        looked_at = evicted = octets = 0
        while self._overdue or self._rest:
            if looked_at >= MOST_LOOKED_AT or evicted >= MOST_EVICTED or octets >= SPARE_BYTES:
                self._is_scheduled = True
                self._clock.callLater(0, self._go_on)
                return
            if not self._overdue:
                frontend = self._rest.popleft()
                deliveries = self._deliveries_of(frontend, are_all=True)
                looked_at += 1 + len(deliveries)
                found = overdue(deliveries, SPILL_SECONDS, self._timeout_seconds)
                self._overdue.extend([(frontend, each.key) for each, _ in found])
                continue
            frontend, key = self._overdue.popleft()
            each = self._incoming(frontend, key, self._seconds())
            still = [] if each is None else [each]  # it may have got on meanwhile, or be over
            for incoming, way in overdue(still, SPILL_SECONDS, self._timeout_seconds):
                self._evict(Eviction(frontend, incoming, way), words)
                evicted += 1
                octets += incoming.octets

    def _deliveries_of(
        self, frontend: Frontend, are_all: bool = False
    ) -> list[PartialDelivery[Key]]:
        """Return what a connection has on its way in: in memory, or all."""
        now = self._seconds()
        found = []
        for key in (*frontend.connection.unfinished, None):
            if are_all or key is None or not key.is_in_parts:
                incoming = self._incoming(frontend, key, now)
                if incoming is not None:
                    found.append(incoming)
        return found

    @staticmethod
    def _incoming(frontend: Frontend, link: Key, now: float) -> PartialDelivery[Key] | None:
        """Return what there is of a delivery, or of a frame; None if there is none any more."""
        connection = frontend.connection
        if link is None:
            octets = connection.unread_bytes
            idle = 0.0 if frontend.is_held else now - connection.last_received
            return PartialDelivery(None, octets, idle, False) if octets else None
        if link not in connection.unfinished:
            return None
        if frontend.is_held or not link.session.incoming_window:
            link.restart_progress(now)
        octets = link.unfinished_bytes
        return PartialDelivery(link, octets, now - link.progress_at, _can_spill(link, octets))

    def _evict(self, eviction: Eviction[Frontend, Key], words: str) -> None:
        frontend, link = eviction.connection, eviction.incoming.key
        if link is not None and eviction.way is EvictionAction.SPILL:
            self.spilled += 1
            frontend.events(frontend.connection.hand_up(link, self._seconds()))
        else:
            self.ended += 1
            self._end(frontend, link, words)
        frontend.flush()
        self.holds(frontend, frontend.connection.held_bytes)

    @staticmethod
    def _end(frontend: Frontend, link: Link | None, words: str) -> None:
        error = ResourceLimitExceeded(
            words, info={"limiter": "unfinished-deliveries", "retry-after": RETRY_SECONDS}
        )
        if link is None:  # within a frame there is nothing that a close could follow
            frontend.drop(words)
            return
        if not link.is_active:  # it has not been answered: it cannot be detached
            frontend.close(conditions.RESOURCE_LIMIT_EXCEEDED, words)
            return
        frontend.complaints.add(
            "{connection} ({principal}) link {link} ended: {words}",
            link=short(link.name),
            words=words,
        )
        if link.unfinished is not None:
            frontend.transactions.doom(link.unfinished, error)
        frontend.fail(link, error_of(error))


def _can_spill(link: Link, octets: int) -> bool:
    delivery = link.unfinished
    return (
        octets > HEAD_BYTES
        and link.takes_parts
        and not link.is_in_parts
        and link.is_active
        and delivery is not None
        # A branch of a distributed transaction takes no message in parts.
        and type(delivery.state) is not spec.TransactionalState
    )
