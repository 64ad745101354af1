# SPDX-License-Identifier: Apache-2.0
"""Simulated brokers, which write runs in the order of time, in segments, with stock records."""

from __future__ import annotations

import heapq
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, cast

from amqproute.journal import record
from amqproute.journal.record import RecordKind
from amqproute.tools.synthetic.plan import SECOND, TrafficPlan

__all__ = ["SyntheticBroker", "SyntheticSegments"]


class SyntheticSegments:
    """The segments of one journal: chained, closed by size and age, in folders by day."""

    def __init__(
        self, plan: TrafficPlan, directory: Path, domain: str, random_: random.Random
    ) -> None:
        self.broker = f"mx1.{domain}"
        self.domain = domain
        self.journal = f"{random_.getrandbits(64):016x}"
        self.stream = f"{random_.getrandbits(128):032x}"
        self.seq = 1
        self._directory = directory
        self._most = plan.segment_bytes
        self._longest = plan.segment_seconds * SECOND
        self._hash = record.GENESIS
        self._file: BinaryIO | None = None
        self._octets = 0
        self._since = 0

    def write(
        self,
        time_us: int,
        kind: str,
        count: int,
        shared: Mapping[str, object],
        columns: Mapping[str, Sequence[object]],
    ) -> None:
        """Append a run."""
        if self._octets >= self._most or time_us - self._since >= self._longest:
            self.close()
        if self._file is None:
            self._open(time_us)
        self._line(time_us, kind, count, shared, columns)

    def close(self) -> None:
        """Close the open segment."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, time_us: int) -> None:
        day = datetime.fromtimestamp(time_us / SECOND, UTC).date().isoformat()
        folder = self._directory / day
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{self.broker}-{self.journal}-{self.seq:020}.jsonl"
        self._file = (folder / name).open("wb")
        self._octets = 0
        self._since = time_us
        self._line(time_us, RecordKind.SEGMENT, 1, {"previous": self._hash}, {})

    def _line(
        self,
        time_us: int,
        kind: str,
        count: int,
        shared: Mapping[str, object],
        columns: Mapping[str, Sequence[object]],
    ) -> None:
        tail = record.tail(
            kind, self.journal, self.broker, self.domain, self.stream,
            self.seq, count, time_us, shared, columns,
        )  # fmt: skip
        self._hash, line = record.chained(self._hash, tail)
        assert self._file is not None
        self._file.write(line)
        self._octets += len(line)
        self.seq += count


@dataclass(order=True, slots=True)
class _Run:
    """A run that waits for its time, in true time without clock errors."""

    time_us: int
    turn: int
    kind: str = field(compare=False)
    node: str = field(compare=False)
    count: int = field(compare=False)
    shared: Mapping[str, object] = field(compare=False)
    columns: Mapping[str, Sequence[object]] = field(compare=False)


class SyntheticBroker:
    """A broker: numbers entries, and writes its runs in the order of time."""

    def __init__(
        self, plan: TrafficPlan, directory: Path, domain: str, random_: random.Random
    ) -> None:
        self.segments = SyntheticSegments(plan, directory / domain, domain, random_)
        self.domain = domain
        self.ahead_us = round(plan.offsets.get(domain, 0.0) * SECOND)
        self.events = 0
        self.vanished: set[int] = set()
        self.returned: dict[str, set[int]] = {}
        self._next = 1
        self._runs: list[_Run] = []
        self._live: dict[str, set[int]] = {}

    @property
    def stream(self) -> str:
        """The name of its store."""
        return self.segments.stream

    @property
    def container(self) -> str:
        """Its container-id."""
        return self.segments.broker

    def entries(self, count: int) -> list[int]:
        """Allocate entry numbers."""
        self._next += count
        return list(range(self._next - count, self._next))

    def put(
        self,
        time_us: int,
        kind: str,
        node: str,
        count: int,
        shared: Mapping[str, object],
        columns: Mapping[str, Sequence[object]],
    ) -> None:
        """Schedule a run at its time; `node` is the node of its entries."""
        if count:
            turn = len(self._runs)
            heapq.heappush(self._runs, _Run(time_us, turn, kind, node, count, shared, columns))

    def write_until(self, time_us: int) -> None:
        """Write all runs before `time_us`."""
        while self._runs and self._runs[0].time_us < time_us:
            self._write(heapq.heappop(self._runs))

    def write_now(self, time_us: int, kind: str, shared: Mapping[str, object]) -> None:
        """Write a single record, after all runs before `time_us`."""
        self.write_until(time_us)
        self.segments.write(time_us + self.ahead_us, kind, 1, shared, {})
        self.events += 1

    def stock(self, time_us: int) -> None:
        """Write the stock records of all nodes."""
        self.write_until(time_us)
        for node, live in sorted(self._live.items()):
            entries = sorted((live - self.vanished) | self.returned.get(node, set()))
            shared = {"node": node, "ranges": _ranges(entries), "count": len(entries)}
            self.write_now(time_us, RecordKind.STOCK, shared)
        self.write_now(time_us, RecordKind.STOCK, {"count": 0})

    def _write(self, run: _Run) -> None:
        self.segments.write(
            run.time_us + self.ahead_us, run.kind, run.count, run.shared, run.columns
        )
        self.events += run.count
        if run.kind in record.BEGINS:
            self._live.setdefault(run.node, set()).update(_entries(run))
        elif run.kind in record.ENDS and run.node:
            self._live.setdefault(run.node, set()).difference_update(_entries(run))


def _entries(run: _Run) -> Sequence[int]:
    return cast("Sequence[int]", run.columns["entry"])


def _ranges(entries: Sequence[int]) -> str:
    """Format ids as in a stock record: ``1-5 9 12-20``."""
    parts = []
    first = last = None
    for entry in (*entries, None):
        if last is not None and entry == last + 1:
            last = entry
            continue
        if first is not None:
            parts.append(str(first) if first == last else f"{first}-{last}")
        first = last = entry
    return " ".join(parts)
