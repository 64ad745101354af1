# SPDX-License-Identifier: Apache-2.0
"""``spark.readStream``: messages are consumed, each in the one batch that Spark commits.

How it is exact
===============

A broker forgets a message when its consumer says `accepted`, so that may be said only when the
batch is committed; and a batch that is run again has to have the same rows, or a sink that knows
the batch by its number would skip what is new in it. The broker's number for an entry makes both
possible: it never changes and is never given twice within a store, and a consumer who asks gets
it as delivery-tag.

*plan*      `QueueStream.latestOffset`, in the driver, browses the queues and puts the numbers of
            the batch's entries into the offset. Spark has the offset on the disk of its checkpoint
            before anything runs.
*read*      a task browses its queue for just these entries. It can do so as often as it takes.
*commit*    when Spark has committed the batch, the driver attaches as a consumer, accepts just
            these entries, and waits until the broker has settled each, which it does when that is
            on its own disk. What else it is given meanwhile goes back to its place.

Nothing is held between the steps: whoever is killed, driver, worker or broker, is started again
and goes on. If the driver dies between Spark's commit and ours, the next plan begins with the
entries of the batch before it, which are accepted then.

The price is that each message crosses the wire three times, and that a queue must have no other
consumer: what somebody else takes (or what expires, or an operator deletes) between plan and read
is missing from the batch. That ends the query, in words, unless ``failOnDataLoss`` is false.
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
"""The engine's signs of life go out while we wait for something, so a look is not kept for long."""

Offset = dict[str, Any]
"""``{"batch": 7, "queues": {"mx1.alpha.example:5672 orders": {"stream": ..., "entries": "3-9"}}}``:
the entries of that one batch."""


def ranges(ids: Iterable[int]) -> str:
    """Write ids as text: ``1-5 9 12-20``."""
    runs: list[tuple[int, int]] = []
    for each in sorted(ids):
        if runs and each == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], each)
        else:
            runs.append((each, each))
    return " ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def unranged(text: str) -> set[int]:
    """Read what `ranges` wrote."""
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
    """A browser of a queue that has nothing new; connections are not made every second."""

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
        # With the trigger availableNow: what was there at the start, and has not been planned.
        self._backlog: dict[str, tuple[str, list[int]]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what workers have no use for, and cannot be sent to them."""
        return {**self.__dict__, "_looks": {}, "_backlog": None}

    # -- in the driver -----------------------------------------------------------------------------

    def initialOffset(self) -> Offset:
        """Return what is before the first batch."""
        return {"batch": 0, "queues": {}}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return how much is planned at a time, unless the trigger says all."""
        return ReadMaxRows(self._streaming.most)

    @plain
    def prepareForTriggerAvailableNow(self) -> None:
        """Note what there is; the query ends when that is done."""
        self._backlog = {}
        for key, (place, queue) in self._ends.items():
            with BlockingClient(place) as client:
                link = client.receiving(queue, browses=True, by_entry=True)
                ids = [_number(each.tag) for each in link.available(lambda: CREDIT)]
                self._backlog[key] = (link.stream, ids)

    @plain
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Plan a batch: `start` itself if there is nothing new."""
        # That a batch is asked for behind `start` says that `start` is committed.
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
            # Whoever has several queues looks at them in turn, and does not wait at one of them.
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
        """Go on with the look that saw nothing, unless it was long ago, or begin one."""
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
        """Let go of the connections."""
        while self._looks:
            _, look = self._looks.popitem()
            look.client.drop()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return one for each queue that has part in the batch."""
        if start["batch"] == end["batch"]:
            return []
        found: list[InputPartition] = []
        for key, part in end["queues"].items():
            place, queue = self._end(key)
            found.append(_Part(place, queue, part["stream"], part["entries"]))
        return found

    @plain
    def commit(self, end: Offset) -> None:
        """Accept the entries of a batch; what is gone already was accepted before."""
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
                # As many as are missing: in the usual case they are all at the head, and nothing
                # else is touched.
                nonlocal is_sure
                link.settle(taken, spec.Accepted())
                taken.clear()
                if others and not is_sure:
                    # Are they gone, by a commit that was interrupted, or are they behind these?
                    is_sure = True
                    wanted.intersection_update(_present(client, queue, wanted))
                # All at once: the broker goes past what was left each time.
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
                f"{len(wanted)} messages of a batch that is committed are on {queue!r} at {place} "
                "behind too many others to be taken away now: a later batch would have them once "
                "more. Others of higher priority have come before them; start again when these are "
                "fewer, or set failOnDataLoss to false to go on"
            )

    def _is_same(self, place: BrokerEndpoint, queue: str, planned: str, found: str) -> bool:
        """Tell whether entries have the numbers that were planned with."""
        if planned == found:
            return True
        if self._streaming.strict:
            raise DataSourceError(
                f"the store of {place} is another than before (it was restored, or made anew), so "
                f"the messages of {queue!r} have other numbers: those of the last batch may come "
                "once more. Begin with a new checkpoint, or set failOnDataLoss to false to go on"
            )
        return False

    def _end(self, key: str) -> tuple[BrokerEndpoint, str]:
        if key not in self._ends:
            raise DataSourceError(
                f"the checkpoint has a batch of {key!r}, which the options url and queue do not "
                "name any more"
            )
        return self._ends[key]

    @staticmethod
    def _entries_of(offset: Offset, key: str) -> set[int]:
        part: Mapping[str, str] | None = offset["queues"].get(key)
        return set() if part is None else unranged(part["entries"])

    # -- in the workers ----------------------------------------------------------------------------

    @plain
    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        """Yield the rows of a part of a batch: the same, however often.

        Raises:
            DataSourceError: some of it is gone.
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
                f"(entries {ranges(wanted)[:200]}): they have expired, an operator has deleted "
                "them, or somebody else consumes from this queue. With failOnDataLoss set to false "
                "the query goes on without them"
            )


def _present(client: BlockingClient, queue: str, wanted: Set[int]) -> set[int]:
    """Return those of some entries that are on a queue."""
    found: set[int] = set()
    link = client.receiving(queue, browses=True, by_entry=True)
    for delivery in link.available(lambda: CREDIT if found < wanted else 0):
        if (entry := _number(delivery.tag)) in wanted:
            found.add(entry)
    link.close()
    return found


def _number(tag: bytes) -> int:
    return int.from_bytes(tag, "big")
