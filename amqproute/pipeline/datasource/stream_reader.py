# SPDX-License-Identifier: Apache-2.0
"""``spark.readStream``: messages are consumed, each in the one batch that Spark commits.

Exactness
=========

A broker forgets a message when its consumer sends `accepted`, so that must wait until the batch is
committed; and a repeated batch must have the same rows, or a sink that recognizes the batch by its
number would skip new ones. The broker's number for an entry makes both possible: it never changes
and is never used twice within a store, and a consumer can request it as delivery-tag.

*plan*      `QueueStream.latestOffset`, in the driver, browses the queues and puts the numbers of
            the batch's entries into the offset. Spark writes the offset to its checkpoint before
            any task runs.
*read*      a task browses its queue for exactly these entries, as often as needed.
*commit*    when Spark has committed the batch, the driver attaches as a consumer, accepts exactly
            these entries, and waits until the broker has settled each, which it does when that is
            on its disk. Other deliveries meanwhile return to their places.

Nothing is held between the steps: driver, worker or broker can be killed and started again. If the
driver dies between Spark's commit and ours, the next plan begins with the entries of the batch
before it, which are accepted then.

The price is that each message crosses the wire three times, and that a queue must have no other
consumer: messages taken by another one (or expired, or deleted by an operator) between plan and
read are missing from the batch. That ends the query with an explanation, unless ``failOnDataLoss``
is false.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from amqproute.pipeline.datasource.blocking_client import BlockingClient
from amqproute.pipeline.datasource.blocking_links import CREDIT, ReceivingLink
from amqproute.pipeline.datasource.options import StreamOptions
from amqproute.pipeline.datasource.place import BrokerEndpoint, DataSourceError
from amqproute.pipeline.datasource.plain import plain
from amqproute.pipeline.datasource.rows import row_of
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.link import Delivery

__all__ = ["QueueStream", "ranges", "unranged"]

_LOOK_SECONDS = 15.0
"""Heartbeats are sent only while we wait for something, so a browser is not kept for long."""

Offset = dict[str, Any]
"""``{"batch": 7, "queues": {"mx1.alpha.example:5672 orders": {"stream": ..., "entries": "3-9"}}}``:
the entries of that one batch."""


def ranges(ids: Iterable[int]) -> str:
    """Format ids as text: ``1-5 9 12-20``."""
    runs: list[tuple[int, int]] = []
    for each in sorted(ids):
        if runs and each == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], each)
        else:
            runs.append((each, each))
    return " ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def unranged(text: str) -> set[int]:
    """Parse the result of `ranges`."""
    found: set[int] = set()
    for run in text.split():
        low, _, high = run.partition("-")
        found.update(range(int(low), int(high or low) + 1))
    return found


@dataclass(frozen=True)
class _Part(InputPartition):
    """The entries of one batch on one queue."""

    place: BrokerEndpoint
    queue: str
    stream: str
    entries: str


@dataclass(frozen=True)
class _Look:
    """A browser of a queue without new messages; it avoids a new connection every second."""

    client: BlockingClient
    link: ReceivingLink
    since: float


class QueueStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of the messages of queues; see the module.

    Args:
        streaming: the options.
    """

    def __init__(self, streaming: StreamOptions) -> None:
        self._streaming = streaming
        self._ends = {
            f"{place} {queue}": (place, queue)
            for place in streaming.places
            for queue in streaming.queues
        }
        self._removed = -1
        self._looks: dict[str, _Look] = {}
        # With the trigger availableNow: entries present at the start and not planned yet.
        self._backlog: dict[str, tuple[str, list[int]]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out attributes that workers do not need, and that cannot be pickled."""
        return {**self.__dict__, "_looks": {}, "_backlog": None}

    # -- in the driver -----------------------------------------------------------------------------

    def initialOffset(self) -> Offset:
        """Return the offset before the first batch."""
        return {"batch": 0, "queues": {}}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the size of a batch, unless the trigger requests all."""
        return ReadMaxRows(self._streaming.most)

    @plain
    def prepareForTriggerAvailableNow(self) -> None:
        """Record the present entries; the query ends when these are done."""
        self._backlog = {}
        for key, (place, queue) in self._ends.items():
            with BlockingClient(place) as client:
                link = client.receiving(queue, browses=True, by_entry=True)
                ids = [_number(each.tag) for each in link.available(lambda: CREDIT)]
                self._backlog[key] = (link.stream, ids)

    @plain
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Plan a batch: `start` itself if there are no new messages."""
        # A request for a batch after `start` means that `start` is committed.
        self.commit(start)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        queues = {}
        for key, (place, queue) in self._ends.items():
            done = self._entries_of(start, key)
            stream, ids = self._planned(key, place, queue, done, most)
            if ids:
                queues[key] = {"stream": stream, "entries": ranges(ids)}
        return {"batch": start["batch"] + 1, "queues": queues} if queues else start

    def _planned(
        self, key: str, place: BrokerEndpoint, queue: str, done: set[int], most: int | None
    ) -> tuple[str, list[int]]:
        if self._backlog is not None:
            stream, waiting = self._backlog[key]
            waiting = [each for each in waiting if each not in done]
            cut = len(waiting) if most is None else most
            self._backlog[key] = (stream, waiting[cut:])
            return stream, waiting[:cut]
        look = self._look(key, place, queue)
        try:
            # With several queues each is checked in turn, without waiting at one of them.
            if not look.link.arrives(self._streaming.wait / len(self._ends)):
                self._looks[key] = look
                return look.link.stream, []
            ids: list[int] = []

            def ask() -> int:
                return CREDIT if most is None else min(CREDIT, most - len(ids))

            for delivery in look.link.available(ask):
                entry = _number(delivery.tag)
                if entry not in done:
                    ids.append(entry)
        except BaseException:
            look.client.drop()
            raise
        look.client.close()
        return look.link.stream, ids

    def _look(self, key: str, place: BrokerEndpoint, queue: str) -> _Look:
        """Continue with a recent browser that found nothing, or attach one."""
        now = time.monotonic()
        look = self._looks.pop(key, None)
        if look is not None and look.client.is_alive():
            if now - look.since < _LOOK_SECONDS:
                return look
            look.client.close()
        elif look is not None:
            look.client.drop()
        client = BlockingClient(place)
        try:
            return _Look(client, client.receiving(queue, browses=True, by_entry=True), now)
        except BaseException:
            client.drop()
            raise

    def stop(self) -> None:
        """Close the connections."""
        while self._looks:
            _, look = self._looks.popitem()
            look.client.drop()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return one for each queue in the batch."""
        if start["batch"] == end["batch"]:
            return []
        found: list[InputPartition] = []
        for key, part in end["queues"].items():
            place, queue = self._end(key)
            found.append(_Part(place, queue, part["stream"], part["entries"]))
        return found

    @plain
    def commit(self, end: Offset) -> None:
        """Accept the entries of a batch; missing ones were accepted before."""
        if end["batch"] <= self._removed:
            return
        for key, part in end["queues"].items():
            place, queue = self._end(key)
            self._remove(place, queue, part["stream"], unranged(part["entries"]))
        self._removed = end["batch"]

    def _remove(self, place: BrokerEndpoint, queue: str, stream: str, wanted: set[int]) -> None:
        with BlockingClient(place) as client:
            link = client.receiving(queue, browses=False, by_entry=True)
            if not self._is_same(place, queue, stream, link.stream):
                return
            accepted = 0
            taken: list[Delivery] = []
            others: list[Delivery] = []
            is_sure = False

            def ask() -> int:
                # As many as are missing: usually they are all at the head, and no others are
                # touched.
                nonlocal is_sure
                link.settle(taken, spec.Accepted())
                taken.clear()
                if others and not is_sure:
                    # Are they gone, by an interrupted commit, or behind these?
                    is_sure = True
                    wanted.intersection_update(_present(client, queue, wanted))
                # All at once: the broker skips returned messages each time.
                link.leave(others)
                others.clear()
                return min(CREDIT, len(wanted))

            for delivery in link.available(ask):
                entry = _number(delivery.tag)
                if entry in wanted:
                    wanted.discard(entry)
                    taken.append(delivery)
                    accepted += 1
                else:
                    others.append(delivery)
            ask()
            link.settled(accepted)
            link.close()
        if is_sure and wanted and self._streaming.strict:
            raise DataSourceError(
                f"{len(wanted)} messages of a committed batch are on {queue!r} at {place} "
                "behind too many others to be removed now: a later batch would repeat them. "
                "Messages of higher priority have overtaken them; start again when these are "
                "fewer, or set failOnDataLoss to false to continue"
            )

    def _is_same(self, place: BrokerEndpoint, queue: str, planned: str, found: str) -> bool:
        """Return whether entries still have the numbers of the plan."""
        if planned == found:
            return True
        if self._streaming.strict:
            raise DataSourceError(
                f"the store of {place} is not the same as before (restored, or created again), so "
                f"the messages of {queue!r} have other numbers: those of the last batch may be "
                "repeated. Begin with a new checkpoint, or set failOnDataLoss to false to continue"
            )
        return False

    def _end(self, key: str) -> tuple[BrokerEndpoint, str]:
        if key not in self._ends:
            raise DataSourceError(
                f"the checkpoint has a batch of {key!r}, which is no longer in the options url "
                "and queue"
            )
        return self._ends[key]

    @staticmethod
    def _entries_of(offset: Offset, key: str) -> set[int]:
        part: Mapping[str, str] | None = offset["queues"].get(key)
        return set() if part is None else unranged(part["entries"])

    # -- in the workers ----------------------------------------------------------------------------

    @plain
    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        """Yield the rows of a part of a batch, the same each time.

        Raises:
            DataSourceError: some of them are missing.
        """
        assert isinstance(partition, _Part)
        place, queue = partition.place, partition.queue
        wanted = unranged(partition.entries)
        with BlockingClient(place) as client:
            link = client.receiving(queue, browses=True, by_entry=True)
            if not self._is_same(place, queue, partition.stream, link.stream):
                return
            for delivery in link.available(lambda: min(CREDIT, len(wanted))):
                entry = _number(delivery.tag)
                if entry in wanted:
                    wanted.discard(entry)
                    yield row_of(str(place), queue, entry, delivery.payload)
        if wanted and self._streaming.strict:
            raise DataSourceError(
                f"{len(wanted)} messages of this batch are not on {queue!r} at {place} any more "
                f"(entries {ranges(wanted)[:200]}): they have expired, were deleted by an "
                "operator, or another consumer has taken them. With failOnDataLoss set to false "
                "the query continues without them"
            )


def _present(client: BlockingClient, queue: str, wanted: Set[int]) -> set[int]:
    """Return which of the wanted entries are on a queue."""
    found: set[int] = set()
    link = client.receiving(queue, browses=True, by_entry=True)
    for delivery in link.available(lambda: CREDIT if found < wanted else 0):
        if (entry := _number(delivery.tag)) in wanted:
            found.add(entry)
    link.close()
    return found


def _number(tag: bytes) -> int:
    return int.from_bytes(tag, "big")
