# SPDX-License-Identifier: Apache-2.0
"""Takes the totals of a broker's traffic at regular times.

All queues are looked at every few seconds, `QUEUES_IN_TURN` in one step of less than a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.broker.broker import Broker
from amqproute.broker.queue import Queue
from amqproute.dashboard.traffic_history import SAMPLE_SECONDS, TrafficHistory, TrafficSample
from amqproute.turn_scheduler import Pause

__all__ = ["QUEUES_IN_TURN", "TrafficSampler"]

log = Logger()

QUEUES_IN_TURN: Final = 100


class TrafficSampler:
    """Takes samples.

    Args:
        clock: the reactor's.
        broker: its queues.
        now_ms: the wall clock.
        pause: called between slices of the walk over the queues.

    Attributes:
        history: the history of the last minutes.
    """

    def __init__(
        self, clock: IReactorTime, broker: Broker, now_ms: Callable[[], int], pause: Pause
    ) -> None:
        self.history = TrafficHistory()
        self._clock = clock
        self._broker = broker
        self._now_ms = now_ms
        self._pause = pause
        self._call: IDelayedCall | None = None
        self._is_over = False

    def __repr__(self) -> str:
        return f"<TrafficSampler {self.history!r}>"

    def start(self) -> None:
        """Take a sample now, and then every `SAMPLE_SECONDS`."""
        self._call = None
        Deferred.fromCoroutine(self._sample()).addErrback(self._failed)

    def stop(self) -> None:
        """Take no more samples."""
        self._is_over = True
        call, self._call = self._call, None
        if call is not None and call.active():
            call.cancel()

    def _failed(self, failure: Failure) -> None:
        log.failure("no samples of the traffic are taken any more", failure)

    async def _sample(self) -> None:
        taken = delivered = relayed = here = outgoing = 0
        oldest: int | None = None
        where = ""
        for place, (queue, is_relay) in enumerate(self._queues(), 1):
            if place % QUEUES_IN_TURN == 0:
                await self._pause()
            tally = queue.tally
            taken += tally.enqueued
            if is_relay:
                relayed += tally.dequeued
                outgoing += queue.depth
            else:
                delivered += tally.dequeued
                here += queue.depth
            arrived = queue.oldest_arrival_ms
            if arrived is not None and (oldest is None or arrived < oldest):
                oldest, where = arrived, queue.name
        if self._is_over:
            return
        now_ms = self._now_ms()
        age_ms = None if oldest is None else max(0, now_ms - oldest)
        self.history.add(
            TrafficSample(now_ms, taken, delivered, relayed, here, outgoing, age_ms, where)
        )
        self._call = self._clock.callLater(SAMPLE_SECONDS, self.start)

    def _queues(self) -> Iterator[tuple[Queue, bool]]:
        """Iterate over the queues that exist now, and whether each is one for another domain."""
        broker = self._broker
        here: list[Queue] = [*broker.nodes.values()]
        for topic in broker.topics.values():
            here += [each.queue for each in topic.durable.values()]
        away: list[Queue] = [*broker.internal.values()]
        yield from zip(here, repeat(False))
        yield from zip(away, repeat(True))
