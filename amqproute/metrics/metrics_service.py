# SPDX-License-Identifier: Apache-2.0
"""Answers scrapes, over whatever they come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from twisted.internet.defer import Deferred

from amqproute.errors import AmqprouteError
from amqproute.joined_calls import JoinedCalls
from amqproute.metrics.exposition import LONGEST_ACCEPT, expose
from amqproute.metrics.families import FAMILIES
from amqproute.metrics.snapshot import MetricsScope, MetricsSource, take_snapshot
from amqproute.turn_scheduler import Pause

__all__ = [
    "MOST_SCRAPES",
    "MOST_SELECTED",
    "MetricsService",
    "ScrapeAnswer",
    "ScrapeError",
    "TooManyScrapes",
    "scope_of",
]

MOST_SCRAPES: Final = 4
"""Different scrapes at one time; those that ask for the same share one answer."""
MOST_SELECTED: Final = 100
"""Values of one parameter."""

GENERAL: Final = MetricsScope()
"""Contents of ``/metrics``."""

InThread = Callable[[Callable[[], "ScrapeAnswer"]], Deferred["ScrapeAnswer"]]


class ScrapeError(AmqprouteError):
    """A scrape asks for something that does not exist.

    Attributes:
        field: the parameter.
    """

    def __init__(self, field: str, words: str) -> None:
        super().__init__(words)
        self.field = field


class TooManyScrapes(AmqprouteError):
    """As many scrapes as may be are under way."""


class ScrapeAnswer(NamedTuple):
    """An answer.

    Attributes:
        content_type: the type of the text.
        text: the metrics.
    """

    content_type: str
    text: bytes


def scope_of(parameters: Mapping[str, Sequence[str]]) -> MetricsScope:
    """Return the scope that the parameters of ``/metrics/detailed`` ask for.

    Raises:
        ScrapeError: a parameter or a family is unknown, or there are too many values.
    """
    for field, values in parameters.items():
        if field not in ("family", "node", "peer"):
            raise ScrapeError(field, "unknown parameter: there are family, node and peer")
        if len(values) > MOST_SELECTED:
            raise ScrapeError(field, f"at most {MOST_SELECTED} values")
    families = frozenset(each.removesuffix("_total") for each in parameters.get("family", ()))
    unknown = families - FAMILIES.keys()
    if unknown:
        raise ScrapeError("family", f"unknown: {min(unknown)!r}; docs/metrics.md lists them")
    return MetricsScope(
        True,
        families,
        frozenset(parameters.get("node", ())),
        frozenset(parameters.get("peer", ())),
    )


class MetricsService:
    """Collects and writes metrics.

    Args:
        pause: called between slices of work.
        seconds: a precise clock of elapsed time.
        general: sources that are left out where single nodes or peers are wanted.
        entities: sources of nodes and peers.
        in_thread: runs a function in a thread.
        rabbitmq_name: returns the name of the broker if totals are wanted under RabbitMQ's names;
            else an empty text.
    """

    def __init__(
        self,
        pause: Pause,
        seconds: Callable[[], float],
        general: Sequence[MetricsSource],
        entities: Sequence[MetricsSource],
        in_thread: InThread,
        rabbitmq_name: Callable[[], str] = str,
    ) -> None:
        self._pause = pause
        self._seconds = seconds
        self._general = tuple(general)
        self._entities = tuple(entities)
        self._in_thread = in_thread
        self._rabbitmq_name = rabbitmq_name
        self._scrapes: JoinedCalls[tuple[MetricsScope, str], ScrapeAnswer] = JoinedCalls()

    def scrape(self, scope: MetricsScope = GENERAL, accept: str = "") -> Deferred[ScrapeAnswer]:
        """Return a Deferred of the metrics.

        Args:
            scope: what is wanted.
            accept: the request's ``Accept`` header.

        Raises:
            TooManyScrapes: try again later.
        """
        key = (scope, accept[:LONGEST_ACCEPT])
        if len(self._scrapes) >= MOST_SCRAPES and key not in self._scrapes:
            raise TooManyScrapes(f"{MOST_SCRAPES} scrapes are under way; try again later")
        return self._scrapes.call(key, lambda: Deferred.fromCoroutine(self._make(*key)))

    async def _make(self, scope: MetricsScope, accept: str) -> ScrapeAnswer:
        sources = self._entities
        if not (scope.nodes or scope.peers):
            sources = (*self._general, *sources)
        snapshot = await take_snapshot(scope, sources, self._pause, self._seconds)
        broker = self._rabbitmq_name()

        def write() -> ScrapeAnswer:
            answer = ScrapeAnswer(*expose(snapshot, accept, broker))
            snapshot.clear()  # in this thread: to free so much takes milliseconds
            return answer

        return await self._in_thread(write)
