# SPDX-License-Identifier: Apache-2.0
"""Enforcement of contracts: the limits of each peer and each user.

An `ActiveContract` counts over all connections of its holder, so that more connections do not raise
the limits. Its terms are of two kinds.

**Pressure.** Rates, a share of the store and the deliveries in progress are limited by credit
alone: a holder close to a limit is granted less, and so sends less. Nothing is refused or lost; its
messages wait at their senders.

* *messages per second*: a bucket with a second's worth. Credit is paid for in tokens when it is
  granted and refunded when it is revoked, so a holder that respects its credit respects its rate.
* *bytes per second*: the same, paid when the octets arrive; before, the mean size stands for them.
* *spool*: octets of its messages here, see `amqproute.broker.sender_quotas`. All granted credit,
  times the size of one of its messages, has to fit into the rest of them. From three quarters on
  the credit falls in proportion to the rest, down to nothing.
* *credit*: deliveries granted, or taken and not yet committed, over all its links.

Each of these is divided among the holder's sending links, each part at least one; of *spool* a part
may be nothing. Links without a part take turns with those that do not use theirs.

**Size of a message.** The size is measured when it is put: more than its octets if a topic keeps it
for several subscriptions. The largest one counts, and decays slowly with smaller ones. At the
beginning there is credit for one message, or for as many as fit if the terms have a maximum size.
Messages within granted credit are taken, whatever their size: so the share can be exceeded, by one
message if less than one is left, by the difference if messages are larger than earlier ones, and by
messages on their way when credit was revoked. After that there is no credit until there is room.

**Refusal** is for cases that credit cannot prevent: one connection or link more than agreed, a
larger message (by the engine, which knows the link's maximum), and messages without credit: more
than a second's worth of them, or any with the share of the store used up. The error is
``amqp:resource-limit-exceeded`` with ``limiter``, ``limit`` and ``retry-after`` (seconds).

The log reports when a limit begins to hold a holder back, and when that has been over for
`QUIET_SECONDS`; never single messages. Where several limits alternate, another one is logged once
in that time at most. Operators see the present limit: a used up share of the store counts as long
as it lasts, even without events.

A holder finds its terms in our open, in the property `amqproute.values.CONTRACT`.

A flood does not disturb others: the messages of one read are one batch, and one read is bounded; a
sender without credit sends nothing to be read; and a holder's messages that wait for the disk are
bounded by its credit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Final, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from amqproute.broker.recent_counts import RecentCounts, RecentEvent
from amqproute.broker.sender_quotas import SenderQuota, SenderQuotas
from amqproute.broker.token_bucket import TokenBucket
from amqproute.errors import ResourceLimitExceeded
from amqproute.plurals import counted
from amqproute.values import Principal

__all__ = [
    "NO_TERMS",
    "ActiveContract",
    "ActiveContracts",
    "ContractConnection",
    "ContractLink",
    "ContractShare",
    "ContractTerms",
]

PLENTY: Final = 1 << 31
RETRY_SECONDS: Final = 30
"""The retry-after of a refusal, in seconds."""
QUIET_SECONDS: Final = 60.0
"""Time without a limit in effect before the log calls it over."""
SHORTEST_WAIT: Final = 0.05
"""Seconds between two checks of an empty bucket: credit is not granted token by token."""
LEAST_OWED: Final = 100
"""Messages without credit that are taken before refusals begin."""
USUAL_OCTETS: Final = 1024.0
"""Assumed size of a message before the first one."""
SIZE_MEMORY: Final = 64
"""The size of a large message decays by one part in so many with each smaller one."""
TURN_SECONDS: Final = 0.25
"""Time for which a link may keep unused credit while another one has none; longer and longer, up to
`LONGEST_TURN`, while none of them sends."""
LONGEST_TURN: Final = 2.0
MOST_IDLE: Final = 1000
"""Most holders without a connection that are remembered, since their buckets may not be full."""


@dataclass(frozen=True, slots=True)
class ContractTerms:
    """Terms of a contract; None is without a bound.

    Attributes:
        connections: at one time.
        links: over all of them.
        credit: deliveries granted or not yet committed, over all links.
        messages_per_second: on average, after a second's worth at once.
        bytes_per_second: the same for the octets of messages.
        spool: octets of its messages here.
        max_message_size: octets.
    """

    connections: int | None = None
    links: int | None = None
    credit: int | None = None
    messages_per_second: float | None = None
    bytes_per_second: int | None = None
    spool: int | None = None
    max_message_size: int | None = None

    def __bool__(self) -> bool:
        return any(getattr(self, each.name) is not None for each in fields(self))

    def bounds(self) -> dict[str, float]:
        """Return the bounds in the form sent to the holder."""
        found = ((each.name, getattr(self, each.name)) for each in fields(self))
        return {name.replace("_", "-"): bound for name, bound in found if bound is not None}

    def limits(self) -> dict[str, float | None]:
        """Return the bounds in the form of management."""
        return {
            f"limit-{each.name.replace('_', '-')}": getattr(self, each.name)
            for each in fields(self)
        }

    def row(self, key: str, account: SenderQuota | None) -> dict[str, object]:
        """Return the row, as `ActiveContract.row`, of a holder without connections so far.

        Args:
            key: the holder.
            account: the account of its messages here; None if there are none.
        """
        numbers = "connections links credit under-way messages octets"
        return {
            "name": key,
            "type": "contract",
            "state": "unused",
            "limiter": "",
            **dict.fromkeys(numbers.split(), 0),
            "spool": 0 if account is None else account.octets,
            "spool-messages": 0 if account is None else account.messages,
            "refused": {},
            "at-bound-seconds": {},
        } | self.limits()


NO_TERMS: Final = ContractTerms()


class ContractLink(Protocol):
    """A sending link of the holder of a contract."""

    @property
    def waiting_octets(self) -> int:
        """Octets of messages that have arrived and are not enqueued yet."""

    def grant(self) -> None:
        """Adjust its credit."""

    def revoke(self) -> None:
        """Revoke its credit."""


class ContractConnection(Protocol):
    """A connection of the holder of a contract."""

    contract: ActiveContract | None
    principal: Principal

    @property
    def link_count(self) -> int:
        """Number of its links."""

    def apply_terms(self, contract: ActiveContract) -> None:
        """Apply changed terms to its links."""


class ContractShare:
    """Share of one sending link in its sender's contract.

    Attributes:
        contract: the contract.
        link: the link.
        paid: deliveries it may still send that have been paid for.
        revoked: deliveries whose credit was revoked, and that may be on their way all the same.
        is_used: whether a message has come since the links took turns last.
        in_progress: deliveries taken and not committed.
    """

    __slots__ = ("contract", "in_progress", "is_used", "link", "paid", "revoked")

    def __init__(self, contract: ActiveContract, link: ContractLink) -> None:
        self.contract = contract
        self.link = link
        self.paid = 0
        self.revoked = 0
        self.is_used = False
        self.in_progress = 0

    def granted(self, credit: int) -> None:
        """Note the credit of the link."""
        self.contract.pay(credit - self.paid)
        self.revoked = max(0, self.revoked + self.paid - credit)
        self.paid = credit

    def received(self, count: int, octets: int) -> int:
        """Count arrivals on the link; return the number of deliveries without credit."""
        self.is_used = True
        self.paid -= count
        lacking = 0
        if self.paid < 0:
            lacking = -self.paid
            self.contract.pay(lacking)
            self.paid = 0
            crossed = min(lacking, self.revoked)
            self.revoked -= crossed
            lacking -= crossed
        self.contract.received(count, octets)
        return lacking

    def leave(self) -> None:
        """Remove the share: the link is gone."""
        self.granted(0)
        self.contract.shares.pop(self.link, None)
        self.contract.left(self)


class ActiveContract:
    """The terms of one holder, and their use.

    Args:
        key: the holder, as in ``peer:beta.example``.
        terms: its terms.
        clock: the clock for rates.
        accounts: the quotas of senders.
        recent: counters of the last hour.

    Attributes:
        connections: its connections.
        shares: the shares of its sending links.
        account: its use of the store; None without a share.
        posted: octets of its messages in open transactions.
        refused: number of refusals, by limiter.
    """

    log = Logger()

    def __init__(
        self,
        key: str,
        terms: ContractTerms,
        clock: IReactorTime,
        accounts: SenderQuotas,
        recent: RecentCounts | None = None,
    ) -> None:
        self.key = key
        self.terms = NO_TERMS
        self.connections: set[ContractConnection] = set()
        self.shares: dict[ContractLink, ContractShare] = {}
        self.account: SenderQuota | None = None
        self.refused: dict[str, int] = {}
        self.left_at = clock.seconds()
        self.messages_in = 0
        self.octets_in = 0
        self.posted = 0
        self._clock = clock
        self._accounts = accounts
        self._recent = RecentCounts(clock.seconds) if recent is None else recent
        self._messages: TokenBucket | None = None
        self._octets: TokenBucket | None = None
        self._mean = USUAL_OCTETS
        self._size: float | None = None
        self._turns: dict[ContractShare, None] = {}
        self._turn_seconds = TURN_SECONDS
        self._wake: IDelayedCall | None = None
        self._limiter = ""
        self._limiter_since = 0.0
        self._logged = ""
        self._held_back_at = 0.0
        self._held_back_since = 0.0
        self._logged_at = 0.0
        self._reached_at: dict[str, float] = {}  # when the last place was taken, by limiter
        self.adopt(terms)

    def __repr__(self) -> str:
        return f"<ActiveContract {self.key} {self.terms}>"

    def adopt(self, terms: ContractTerms) -> None:
        """Apply changed terms."""
        old, self.terms = self.terms, terms
        now = self._clock.seconds()
        if terms.messages_per_second != old.messages_per_second:
            rate = terms.messages_per_second
            self._messages = None if rate is None else TokenBucket(rate, now)
        if terms.bytes_per_second != old.bytes_per_second:
            octets = terms.bytes_per_second
            self._octets = None if octets is None else TokenBucket(octets, now)
        if terms.spool is not None:
            self.account = self._accounts.of(self.key)
        else:
            self.account = None

    # -- hard limits ---------------------------------------------------------------------------

    def connect(self, connection: ContractConnection) -> None:
        """Count a connection.

        Raises:
            ResourceLimitExceeded: it is one too many.
        """
        most = self.terms.connections
        if most is not None and len(self.connections) >= most:
            raise self._refusal(
                "connections", most, f"{self.key} has {counted(most, 'connection')} already"
            )
        self.connections.add(connection)
        if len(self.connections) == most:
            self._reached_at["connections"] = self._clock.seconds()

    def disconnect(self, connection: ContractConnection) -> None:
        """Forget a connection."""
        self.connections.discard(connection)
        self.left_at = self._clock.seconds()

    def check_links(self) -> None:
        """Check that there may be one more link.

        Raises:
            ResourceLimitExceeded: there may not.
        """
        most = self.terms.links
        if most is None:
            return
        links = self._links()
        if links + 1 == most:
            self._reached_at["links"] = self._clock.seconds()
        if links >= most:
            raise self._refusal("links", most, f"{self.key} has {counted(most, 'link')} already")

    def _links(self) -> int:
        return sum([each.link_count for each in self.connections])

    def check_message(self) -> None:
        """Check that a message without credit may be taken.

        Raises:
            ResourceLimitExceeded: it may not.
        """
        spool = self.terms.spool
        if spool is not None and self.account is not None and self.account.octets >= spool:
            words = f"messages of {self.key} occupy {self.account.octets} of {spool} octets here"
            raise self._refusal("spool", spool, words)
        rate = self.terms.messages_per_second
        if rate is not None and self._messages is not None:
            now = self._clock.seconds()
            if self._messages.level(now) < -max(LEAST_OWED, rate):
                words = f"{self.key} sends without credit more than {rate:g} messages a second"
                raise self._refusal("messages-per-second", rate, words)

    def _refusal(self, limiter: str, limit: float, words: str) -> ResourceLimitExceeded:
        self.refused[limiter] = self.refused.get(limiter, 0) + 1
        self._recent.add(RecentEvent("refused", self.key, limiter))
        return ResourceLimitExceeded(
            words,
            info={"limiter": limiter, "limit": limit, "retry-after": RETRY_SECONDS},
        )

    # -- pressure ------------------------------------------------------------------------------

    def join(self, link: ContractLink) -> ContractShare:
        """Add the share of a link; those of the others are reduced where there is a bound."""
        share = self.shares[link] = ContractShare(self, link)
        if self.terms.credit is not None and len(self.shares) > 1:
            self._schedule_wake()
        return share

    def left(self, share: ContractShare) -> None:
        """Divide the credit of a link that is gone among the others."""
        self._turns.pop(share, None)
        if self._turns:
            self._schedule_wake()

    def released(self, octets: int) -> None:
        """Subtract octets of messages in transactions, which have ended."""
        self.posted -= octets
        if self.terms.spool is not None:
            self._schedule_wake()

    def pay(self, deliveries: int) -> None:
        """Pay for granted credit, or refund revoked credit."""
        if self._messages is not None and deliveries:
            self._messages.take(deliveries, self._clock.seconds())

    def received(self, count: int, octets: int) -> None:
        """Count arrivals."""
        self.messages_in += count
        self.octets_in += octets
        if count:
            self._mean += (octets / count - self._mean) * min(1.0, count / 32)
        if self._octets is not None:
            self._octets.take(octets, self._clock.seconds())

    def charged(self, octets: int) -> None:
        """Note the size of a message that has been put."""
        size = self._size
        if size is None or octets > size:
            self._size = float(octets)
            if len(self.shares) > 1:
                self._schedule_wake()  # the credit of the others was calculated with smaller ones
        else:
            self._size = size - (size - octets) / SIZE_MEMORY

    def _fitting(self, free: int) -> int:
        """Return the number of messages that fit into so many octets."""
        if free <= 0:
            return 0
        size = self._size if self._size is not None else self.terms.max_message_size
        return 1 if size is None else max(1, int(free / max(1.0, size)))

    def _dealt(self, total: int, share: ContractShare) -> int:
        """Return a link's part of a total; 0 if the others have all of it."""
        others = sum([each.paid for each in self.shares.values() if each is not share])
        dealt = max(0, min(-(-total // len(self.shares)), total - others))
        if total and not dealt:
            self._turns[share] = None
            self._wake_later(self._turn_seconds)
        return dealt

    def _rotate(self) -> None:
        """Revoke unused credit in favor of links without any."""
        waiting, self._turns = self._turns, {}
        if not waiting:
            return
        is_busy = any(share.is_used for share in self.shares.values())
        self._turn_seconds = TURN_SECONDS if is_busy else min(LONGEST_TURN, 2 * self._turn_seconds)
        for share in tuple(self.shares.values()):
            if share.paid and not share.is_used:
                share.link.revoke()
                self.shares[share.link] = self.shares.pop(share.link)  # others are next
            share.is_used = False
        for share in waiting:
            if self.shares.get(share.link) is share:
                share.link.grant()

    def allowance(self, share: ContractShare, in_progress: int, window: int) -> int:
        """Return the most credit of a link, including its present credit.

        Args:
            share: the share of the link.
            in_progress: its deliveries that are taken and not committed.
            window: its credit without a contract.
        """
        terms = self.terms
        share.in_progress = in_progress
        links = len(self.shares)
        now = self._clock.seconds()
        allowed = PLENTY
        limiter = ""
        if terms.credit is not None:
            others = sum(
                [each.paid + each.in_progress for each in self.shares.values() if each is not share]
            )
            own = min(-(-terms.credit // links), terms.credit - others)
            allowed = max(0 if in_progress else 1, own - in_progress)
        if self._messages is not None and terms.messages_per_second is not None:
            level = int(self._messages.level(now) + 1e-9)
            # No link hoards more than its part of a second's worth.
            most = -(-max(1, int(terms.messages_per_second)) // links)
            tokens = min(most, share.paid + max(0, -(-level // links)))
            if level <= 0:
                limiter = "messages-per-second"
            if tokens < most:
                self._wake_later(self._messages.wait(now))
            allowed = min(allowed, tokens)
        if self._octets is not None and terms.bytes_per_second is not None:
            octets = self._octets.level(now)
            if octets >= 1:
                allowed = min(allowed, self._divided(1 + int((octets - 1) / self._mean), share))
            else:
                allowed = 0
                limiter = "bytes-per-second"
            if octets < terms.bytes_per_second and allowed < window:
                self._wake_later(self._octets.wait(now))
        if terms.spool is not None and self.account is not None:
            used = self.account.octets
            free = self._free_octets(self.account, terms.spool)
            fitting = self._fitting(free)
            if free <= 0:
                allowed = 0
                limiter = "spool"
            elif 4 * free < terms.spool:
                room = 1 + int((terms.credit or window) * 4 * free / terms.spool)
                allowed = min(allowed, self._dealt(min(fitting, room), share))
                limiter = limiter or "spool"
            else:
                allowed = min(allowed, self._dealt(fitting, share))
            if allowed < window:
                mark = min(used, terms.spool) - max(1, terms.spool // 64)
                self.account.when_below(max(0, mark), self._room)
        if limiter or self._limiter:
            self._note(limiter, now)
        return allowed

    def _free_octets(self, account: SenderQuota, spool: int) -> int:
        """Return the rest of the holder's share of the store."""
        waiting = sum([each.link.waiting_octets for each in self.shares.values()])
        return spool - account.octets - waiting - self.posted

    def _divided(self, total: int, share: ContractShare) -> int:
        """Return a link's part of a total, at least 1."""
        others = sum([each.paid for each in self.shares.values() if each is not share])
        return max(1, min(-(-total // len(self.shares)), total - others))

    def _room(self) -> None:
        self._schedule_wake()

    def _schedule_wake(self) -> None:
        """Adjust all credit later in this turn."""
        if self._wake is not None:
            self._wake.reset(0)
        else:
            self._wake = self._clock.callLater(0, self._look)

    def _wake_later(self, seconds: float) -> None:
        """Adjust all credit when there are tokens again."""
        if self._wake is None:
            self._wake = self._clock.callLater(max(SHORTEST_WAIT, seconds), self._look)

    def _look(self) -> None:
        """Adjust all credit."""
        self._wake = None
        self._rotate()
        for share in tuple(self.shares.values()):
            share.link.grant()

    def stop(self) -> None:
        """Cancel the timer."""
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None

    # -- what an operator sees -----------------------------------------------------------------

    def _note(self, limiter: str, now: float) -> None:
        if limiter:
            self._held_back_at = now
            if not self._limiter:
                self._held_back_since = now
            if limiter != self._limiter:
                self._limiter = limiter
                self._limiter_since = now
            if not self._logged or (
                limiter != self._logged and now - self._logged_at >= QUIET_SECONDS
            ):
                self._logged = limiter
                self._logged_at = now
                self.log.warn(
                    "{holder} has reached {limiter} of its contract, {limit}: it gets less credit",
                    holder=self.key,
                    limiter=limiter,
                    limit=self._limit(limiter),
                )
        elif now - self._held_back_at >= QUIET_SECONDS:
            self.log.info(
                "{holder} is within its contract again ({limiter}, after {seconds} s)",
                holder=self.key,
                limiter=self._limiter,
                seconds=round(self._held_back_at - self._held_back_since),
            )
            self._limiter = self._logged = ""

    def _limit(self, limiter: str) -> float | None:
        limit: float | None = getattr(self.terms, limiter.replace("-", "_"))
        return limit

    @property
    def limiter(self) -> str:
        """The limit that is in effect now; empty if none is."""
        is_full = (
            self.terms.spool is not None
            and self.account is not None
            and self._free_octets(self.account, self.terms.spool) <= 0
        )
        if is_full:  # it counts without events
            self._note("spool", self._clock.seconds())
        elif self._limiter:
            self._note("", self._clock.seconds())
        return self._limiter

    @property
    def is_idle(self) -> bool:
        """Whether it has no state worth keeping."""
        return not self.connections and self._clock.seconds() - self.left_at > QUIET_SECONDS

    def row(self) -> dict[str, object]:
        """Return the row for operators, which the holder may see as well."""
        limiter = self.limiter
        own: dict[str, object] = {
            "name": self.key,
            "type": "contract",
            "state": "held back" if limiter else "open",
            "limiter": limiter,
            "connections": len(self.connections),
            "links": self._links(),
            "credit": sum([share.paid for share in self.shares.values()]),
            "under-way": sum([share.in_progress for share in self.shares.values()]),
            "messages": self.messages_in,
            "octets": self.octets_in,
            "spool": 0 if self.account is None else self.account.octets,
            "spool-messages": 0 if self.account is None else self.account.messages,
            "refused": dict(self.refused),
            "at-bound-seconds": self._at_bound(limiter),
        }
        return own | self.terms.limits()

    def _at_bound(self, limiter: str) -> dict[str, int]:
        """Return the bounds that are reached now, with the seconds since then."""
        now = self._clock.seconds()
        used = {"connections": len(self.connections), "links": self._links()}
        found = {}
        for name, number in used.items():
            most = self._limit(name)
            if most is not None and number >= most:
                # A reload may have set the bound below the present use.
                found[name] = int(now - self._reached_at.setdefault(name, now))
        if limiter:
            found[limiter] = int(now - self._limiter_since)
        return found


class ActiveContracts:
    """The contracts of all holders.

    Args:
        clock: the clock for rates.
        accounts: the quotas of senders.
        terms_for: returns the holder of the contract of a principal, and its terms.
        recent: counters of the last hour.
    """

    def __init__(
        self,
        clock: IReactorTime,
        accounts: SenderQuotas,
        terms_for: Callable[[Principal], tuple[str, ContractTerms]],
        recent: RecentCounts | None = None,
    ) -> None:
        self._clock = clock
        self._accounts = accounts
        self._terms_for = terms_for
        self._recent = recent
        self._held: dict[str, ActiveContract] = {}

    def of(self, principal: Principal) -> ActiveContract:
        """Return the contract of a principal."""
        key, terms = self._terms_for(principal)
        contract = self._held.get(key)
        if contract is None:
            if len(self._held) >= MOST_IDLE:
                for idle in [each for each in self._held.values() if each.is_idle]:
                    idle.stop()
                    del self._held[idle.key]
            contract = self._held[key] = ActiveContract(
                key, terms, self._clock, self._accounts, self._recent
            )
        return contract

    def find(self, key: str) -> ActiveContract | None:
        """Return the contract of a holder that has connected since the start."""
        return self._held.get(key)

    def adopt(self, connections: Iterable[ContractConnection]) -> None:
        """Apply changed terms to each holder.

        Args:
            connections: every connection.
        """
        for connection in connections:
            contract = connection.contract
            if contract is not None:
                contract.adopt(self._terms_for(connection.principal)[1])
                connection.apply_terms(contract)
        for contract in [each for each in self._held.values() if not each.connections]:
            contract.stop()
            del self._held[contract.key]

    def limiters(self) -> Iterator[tuple[str, str]]:
        """Iterate over the holders with a limit in effect, and the limits."""
        for key, contract in sorted(self._held.items()):
            if limiter := contract.limiter:
                yield key, limiter

    def rows(self) -> list[dict[str, object]]:
        """Return a row for each holder that has terms; see `ActiveContract.row`."""
        return [each.row() for _, each in sorted(self._held.items()) if each.terms]

    def stop(self) -> None:
        """Cancel the timers."""
        for each in self._held.values():
            each.stop()
