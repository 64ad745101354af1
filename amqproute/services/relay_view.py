# SPDX-License-Identifier: Apache-2.0
"""The relay as the services see it: `amqproute.relay.relay.Relay` and its parts have it all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from twisted.internet.defer import Deferred

from amqproute.broker.commit_batch import Batch
from amqproute.broker.message_selection import Picks
from amqproute.broker.queue import Queue
from amqproute.entry import Entry
from amqproute.interfaces import ITarget
from amqproute.values import NextHop

__all__ = [
    "DestinationHold",
    "DestinationHolds",
    "DestinationOf",
    "EntryAttempts",
    "RelayDestination",
    "RelayView",
]


class EntryAttempts(Protocol):
    """The attempts to deliver the entries of a destination."""

    def tries(self, entry: Entry) -> int:
        """Return the number of attempts for an entry."""


class RelayDestination(Protocol):
    """A next hop and its relay queue."""

    hop: NextHop
    queue: Queue

    @property
    def outcomes(self) -> EntryAttempts:
        """Its attempts."""

    @property
    def held(self) -> str | None:
        """Why it is held; None if it is not."""

    def hold(self, reason: str) -> None:
        """Send nothing until `unhold`."""

    def unhold(self) -> None:
        """Send again."""

    def select(self, selects: Picks | None) -> None:
        """Send only entries that this is true for; None for all."""

    def holds(self) -> list[Entry]:
        """Return the entries in flight."""

    def wake(self) -> None:
        """End the back-off."""

    def purge(self) -> Deferred[int]:
        """Delete the waiting entries; fires with their number."""


class DestinationHold(Protocol):
    """A hold by an operator."""

    @property
    def id(self) -> str:
        """Its name."""

    @property
    def reason(self) -> str:
        """Of the operator."""

    @property
    def to(self) -> str:
        """A domain or the key of a next hop; may be empty."""

    @property
    def where(self) -> str:
        """A selector; may be empty."""

    @property
    def ids(self) -> Sequence[int]:
        """Of messages; may be empty."""

    @property
    def is_of_messages(self) -> bool:
        """Whether it holds messages by ids or a selector."""

    def row(self) -> dict[str, object]:
        """Return its attributes."""


class DestinationHolds(Protocol):
    """All holds."""

    def __iter__(self) -> Iterator[DestinationHold]: ...

    def add(
        self,
        reason: str,
        by: str,
        *,
        to: str = ...,
        where: str = ...,
        ids: Iterable[int] = ...,
        until_ms: int = ...,
    ) -> DestinationHold:
        """Make a hold."""

    def release(self, name: str) -> object:
        """End a hold."""

    def follow(self, moved: Mapping[int, int], batch: Batch) -> None:
        """Keep holding messages under the ids that a batch gives them."""

    def on(self, destination: RelayDestination) -> Sequence[DestinationHold]:
        """Return the holds on a destination or some of its messages."""

    def of(self, destination: RelayDestination, entry: Entry) -> Sequence[DestinationHold]:
        """Return the holds on one message."""

    def held(self, destination: RelayDestination, entries: Iterable[Entry]) -> set[Entry]:
        """Return the held ones of these messages."""

    def at(self, hop: NextHop) -> Sequence[tuple[DestinationHold, Callable[[Entry], bool]]]:
        """Return the holds on a next hop, each with its selection of messages there."""


DestinationOf = TypeVar("DestinationOf", bound=RelayDestination)


class RelayView(Protocol[DestinationOf]):
    """The relay queues, and the holds on them."""

    @property
    def destinations(self) -> Mapping[str, DestinationOf]:
        """By key."""

    @property
    def holds(self) -> DestinationHolds:
        """The holds."""

    def row(self, destination: DestinationOf) -> dict[str, object]:
        """Return the attributes of a destination."""

    def take_on_trust(self, hop: NextHop) -> ITarget:
        """Return the relay queue of a next hop, without looking it up."""
