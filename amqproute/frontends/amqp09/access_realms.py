# SPDX-License-Identifier: Apache-2.0
"""Realms and tickets of 0-9 (09: 1.5, part 6.1).

A realm names exchanges and queues by patterns, as access rules write them. A ticket is the right to
some kinds of use of one realm, for one channel. It gives nobody more than the rules under
``access`` do, which hold for every method; a method that names a ticket is bound by it besides.
Ticket 0 is none: the rules alone decide (I-15).

A resource belongs to the realms whose patterns fit its name. So what is declared with a ticket
belongs to the realm of the ticket, and no later work with it needs to remember by which one it was
made (09-EXCH-11, 09-QUEUE-07).

Exclusive access to a realm keeps others from tickets for it, and is refused while others have any.
Those without a ticket it leaves alone: one client must not be able to stop all of a virtual host.

Clients of 0-9-1 get a ticket for whatever they ask and need none, as with RabbitMQ; the engine
ignores the field in their methods.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final, NamedTuple

from amqproute.auth.policy import Verb, pattern_matcher
from amqproute.errors import ResourceLimitExceeded, UnauthorizedAccess
from amqproute.values import Principal

__all__ = ["DEFAULT_REALMS", "AccessRealms", "ConnectionTickets", "RealmUse", "Ticket"]

DEFAULT_REALMS: Final[Mapping[str, Sequence[str]]] = {"/data": ("*",)}
"""The realm that clients of these versions ask for, which is all of a virtual host."""
MOST_TICKETS: Final = 1000
"""Tickets of one connection."""
LAST_TICKET: Final = 0xFFFF

Fits = Callable[[str], bool]


class RealmUse(enum.Flag):
    """A kind of use of a realm (09-ACC-09 to -12)."""

    PASSIVE = enum.auto()
    ACTIVE = enum.auto()
    WRITE = enum.auto()
    READ = enum.auto()


_VERBS: Final[Mapping[RealmUse, tuple[Verb, ...]]] = {
    RealmUse.PASSIVE: (Verb.CONSUME, Verb.BROWSE, Verb.PUBLISH, Verb.CREATE),
    RealmUse.ACTIVE: (Verb.CREATE,),
    RealmUse.WRITE: (Verb.PUBLISH,),
    RealmUse.READ: (Verb.CONSUME,),
}
"""The rights that a kind of use stands for: one of them, on any node."""


class Ticket(NamedTuple):
    """A ticket in force.

    Attributes:
        channel: the channel to which it was given.
        realm: the name of the realm.
        uses: what it is good for.
    """

    channel: Hashable
    realm: str
    uses: RealmUse


class AccessRealms:
    """The realms of all virtual hosts, and who has tickets for them.

    Args:
        patterns: realm to patterns of nodes; a realm's own name may have stars, too.
        grants: tells whether the access rules grant a principal a right on any node.

    Attributes:
        grants: the same.
    """

    def __init__(
        self,
        patterns: Mapping[str, Sequence[str]] = DEFAULT_REALMS,
        grants: Callable[[Principal, Verb], bool] = lambda *_: True,
    ) -> None:
        self.grants = grants
        self._realms: list[tuple[Fits, list[Fits]]] = []
        # Who has a ticket for a realm of a virtual host, and whether it is exclusive.
        self._holders: dict[tuple[str, str], dict[Hashable, bool]] = {}
        self.adopt(patterns)

    def __repr__(self) -> str:
        return f"<AccessRealms {len(self._realms)}>"

    def adopt(self, patterns: Mapping[str, Sequence[str]]) -> None:
        """Have other realms in force; tickets stay, as far as their realms have the nodes."""
        self._realms = [
            (pattern_matcher(name), [pattern_matcher(each) for each in nodes])
            for name, nodes in patterns.items()
        ]

    def contains(self, realm: str, node: str) -> bool:
        """Tell whether a node belongs to a realm, by its name in access rules."""
        return any(
            fits(realm) and any(fits_node(node) for fits_node in nodes)
            for fits, nodes in self._realms
        )

    def enter(
        self,
        realm: str,
        principal: Principal,
        channel: Hashable,
        uses: RealmUse,
        exclusive: bool,
    ) -> None:
        """Let a channel use a realm.

        Raises:
            UnauthorizedAccess: there is no such realm, the principal has no such right, or somebody
                has exclusive access, or a ticket where that is what is wanted (09-X-20, 09-X-21).
        """
        is_known = any(fits(realm) for fits, _ in self._realms)
        if not is_known or not all(
            any(self.grants(principal, verb) for verb in verbs)
            for use, verbs in _VERBS.items()
            if use in uses
        ):
            raise UnauthorizedAccess(f"access to realm '{realm:.100}' refused")
        holders = self._holders.setdefault((principal.host, realm), {})
        others = [is_alone for holder, is_alone in holders.items() if holder is not channel]
        if others and (exclusive or any(others)):
            raise UnauthorizedAccess(f"realm '{realm:.100}' is in use by others")
        holders[channel] = exclusive

    def leave(self, realm: str, host: str, channel: Hashable) -> None:
        """A channel's ticket for a realm has ended."""
        holders = self._holders.get((host, realm), {})
        holders.pop(channel, None)
        if not holders:
            self._holders.pop((host, realm), None)


class ConnectionTickets:
    """The tickets of the channels of one connection.

    Args:
        realms: they are for.
    """

    __slots__ = ("_last", "_realms", "_tickets")

    def __init__(self, realms: AccessRealms) -> None:
        self._realms = realms
        self._tickets: dict[int, Ticket] = {}
        self._last = 0

    def __repr__(self) -> str:
        return f"<ConnectionTickets {len(self._tickets)}>"

    def request(
        self,
        realm: str,
        principal: Principal,
        channel: Hashable,
        uses: RealmUse,
        exclusive: bool,
    ) -> int:
        """Give a channel a ticket, in place of one that it has for the realm (09-ACC-07).

        Raises:
            UnauthorizedAccess: see `AccessRealms.enter`.
            ResourceLimitExceeded: the connection has too many.
        """
        self._drop(principal.host, lambda each: each.channel is channel and each.realm == realm)
        if len(self._tickets) >= MOST_TICKETS:
            raise ResourceLimitExceeded(f"a connection has {MOST_TICKETS} tickets at most")
        self._realms.enter(realm, principal, channel, uses, exclusive)
        number = self._last % LAST_TICKET + 1
        while number in self._tickets:
            number = number % LAST_TICKET + 1
        self._last = number
        self._tickets[number] = Ticket(channel, realm, uses)
        return number

    def find(self, number: int) -> Ticket | None:
        """Return a ticket, whichever channel it was given to; None if there is none."""
        return self._tickets.get(number)

    def check(self, ticket: Ticket | None, uses: RealmUse, node: str) -> None:
        """Check that a ticket covers one of several uses of a node.

        Raises:
            UnauthorizedAccess: it does not, or there is no such ticket.
        """
        if ticket is None:
            raise UnauthorizedAccess("the ticket was not given, or has ended")
        if not ticket.uses & uses:
            names = " or ".join(each.name.lower() for each in uses if each.name is not None)
            raise UnauthorizedAccess(f"the ticket for realm '{ticket.realm:.100}' is not {names}")
        if not self._realms.contains(ticket.realm, node):
            raise UnauthorizedAccess(f"'{node:.100}' is not in realm '{ticket.realm:.100}'")

    def end(self, host: str, channel: Hashable) -> None:
        """A channel has ended, and its tickets with it (09-DOM-01, 09-ACC-14)."""
        if self._tickets:
            self._drop(host, lambda each: each.channel is channel)

    def _drop(self, host: str, is_over: Callable[[Ticket], bool]) -> None:
        for number, ticket in list(self._tickets.items()):
            if is_over(ticket):
                del self._tickets[number]
                self._realms.leave(ticket.realm, host, ticket.channel)
