# SPDX-License-Identifier: Apache-2.0
"""Synthetic journals are valid, and show exactly the planted faults."""

from __future__ import annotations

import dataclasses
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from amqproute.journal.record import BEGINS, ENDS, GENESIS, JournalRecord, RecordKind, read_line
from amqproute.tools.synthetic import FaultPlan, FaultRates, PlantedFaults, TrafficPlan, generate

PAIR = ("alpha.example", "beta.example")
EVERY = FaultPlan(
    lost=3, duplicated=2, changed=1, unknown=1, in_flight=5,
    vanished=2, unexplained=1, ended_twice=1, came_back=1, gap=1,
)  # fmt: skip
WITHIN = FaultPlan(vanished=3, unexplained=3, ended_twice=3, came_back=3)


def records(directory: Path) -> Iterator[JournalRecord]:
    """Yield the records of one organization, and see that segments and lines are chained."""
    previous: dict[str, str] = defaultdict(lambda: GENESIS)
    expected: dict[str, int] = defaultdict(lambda: 1)
    for path in sorted(directory.glob("*/*.jsonl"), key=lambda path: path.name):
        _, journal, first = path.stem.rsplit("-", 2)
        assert int(first) == expected[journal]
        for number, octets in enumerate(path.open("rb")):
            line = read_line(octets, previous[journal])
            assert (line.kind == RecordKind.SEGMENT) == (number == 0)
            previous[journal] = line.hash
            assert line.seq == expected[journal]
            expected[journal] += line.count
            yield from line.records()


class SyntheticTests(SynchronousTestCase):
    """`generate`, looked at without the pipeline."""

    def made(self, plan: TrafficPlan) -> tuple[PlantedFaults, Path]:
        directory = Path(self.enterContext(tempfile.TemporaryDirectory()))
        return generate(plan, directory), directory

    def test_healthy(self) -> None:
        """Every entry begins once, and ends once or is in the last stock; fates add up."""
        planted, _ = self.made(TrafficPlan(5000, stock_seconds=7200))
        self.assertEqual(planted.faults, [])
        self.assertEqual(sum(planted.fates.values()), 5000)
        total = 0
        for directory in planted.journals.values():
            begun: Counter[int] = Counter()
            ended: Counter[int] = Counter()
            stock: dict[str, str] = {}
            times = []
            for each in records(directory):
                total += each.kind != RecordKind.SEGMENT
                times.append(each.time)
                if each.entry is not None and each.kind in BEGINS:
                    begun[each.entry] += 1
                elif each.entry is not None and each.kind in ENDS:
                    ended[each.entry] += 1
                elif each.kind == RecordKind.STOCK:
                    stock[each.node or ""] = each.ranges or ""
            self.assertEqual(times, sorted(times))
            self.assertEqual(set(begun.values()) | set(ended.values()), {1})
            self.assertEqual(begun.keys() - ended.keys(), held(stock))
            self.assertEqual(ended.keys() - begun.keys(), set())
        self.assertEqual(total, planted.events)

    def test_same_plan_same_octets(self) -> None:
        """A seed decides everything."""
        plan = TrafficPlan(500, faults=EVERY)
        (one, a), (two, b) = self.made(plan), self.made(plan)
        self.assertEqual(contents(a), contents(b))
        self.assertEqual(one.faults, two.faults)
        _, other = self.made(dataclasses.replace(plan, seed=2))
        self.assertNotEqual(contents(a), contents(other))

    def test_hops_of_a_pair(self) -> None:
        """The two ends of each hop differ only where that was planted."""
        planted, _ = self.made(TrafficPlan(10_000, organizations=PAIR, faults=EVERY))
        handed: dict[tuple[str, int], str | None] = {}
        taken: dict[tuple[str, int], list[str | None]] = defaultdict(list)
        digests: dict[tuple[str, int], str | None] = {}
        for directory in planted.journals.values():
            for each in records(directory):
                if each.entry is None:
                    continue
                if each.kind == RecordKind.RECEIVED:
                    digests[each.stream, each.entry] = each.digest
                    if not each.from_stream:
                        self.assertEqual(each.origin, each.domain)
                    if each.from_stream and each.from_entry:
                        taken[each.from_stream, each.from_entry].append(each.digest)
                elif each.kind == RecordKind.RELAYED:
                    handed[each.stream, each.entry] = each.peer

        def keys(*kinds: str) -> set[tuple[str, int]]:
            return {(f.stream, f.entry) for kind in kinds for f in planted.of(kind)}

        flying = keys("in_flight")
        self.assertEqual(len(flying), 5)
        self.assertEqual(handed.keys() - taken.keys() - flying, keys("lost", "gap"))
        self.assertEqual(taken.keys() - handed.keys() - flying, keys("unknown"))
        self.assertEqual(handed.keys() ^ taken.keys(), keys("lost", "gap", "unknown") | flying)
        self.assertEqual({key for key, both in taken.items() if len(both) > 1}, keys("duplicated"))
        self.assertEqual(
            {key for key, [digest, *_] in taken.items() if digests.get(key, digest) != digest},
            keys("changed"),
        )

    def test_faults_within(self) -> None:
        """Faults within one broker show in its own journal only."""
        planted, _ = self.made(TrafficPlan(5000, stock_seconds=7200, faults=WITHIN))
        found: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for directory in planted.journals.values():
            begun: set[tuple[str, int]] = set()
            ended: Counter[tuple[str, int]] = Counter()
            stock: dict[str, str] = {}
            stream = ""
            for each in records(directory):
                stream = each.stream
                if each.digest is not None:
                    self.assertRegex(each.digest, "^[0-9a-f]{64}$")
                if each.kind == RecordKind.STOCK:
                    stock[each.node or ""] = each.ranges or ""
                elif each.entry is not None and each.kind in BEGINS:
                    begun.add((stream, each.entry))
                elif each.entry is not None and each.kind in ENDS:
                    ended[stream, each.entry] += 1
            there = {(stream, entry) for entry in held(stock)}
            found["vanished"] |= begun - ended.keys() - there
            found["unexplained"] |= ended.keys() - begun
            found["ended_twice"] |= {key for key, count in ended.items() if count > 1}
            found["came_back"] |= there & ended.keys()
        expected = {
            kind: {(fault.stream, fault.entry) for fault in planted.of(kind)} for kind in found
        }
        self.assertEqual(found, expected)
        self.assertEqual(set(map(len, found.values())), {3})

    def test_too_many_faults(self) -> None:
        """A plan with more faults than messages for them is refused."""
        for faults in (FaultPlan(lost=40), FaultPlan(vanished=40)):
            with self.assertRaises(ValueError) as caught:
                self.made(TrafficPlan(10, organizations=PAIR, faults=faults))
            self.assertIn("more faults than messages", str(caught.exception))
        ended_early = TrafficPlan(
            10, organizations=PAIR, rates=FaultRates(expired=1.0), faults=FaultPlan(lost=1)
        )
        with self.assertRaises(ValueError) as caught:
            self.made(ended_early)
        self.assertIn("a fault found no message", str(caught.exception))

    def test_clocks(self) -> None:
        """An organization's clock is ahead by what the plan says."""
        plan = TrafficPlan(200, organizations=PAIR)
        fast = dataclasses.replace(plan, offsets={"beta.example": 2.5})
        right, wrong = self.made(plan)[0], self.made(fast)[0]
        for domain, ahead in zip(PAIR, (0, 2_500_000), strict=True):
            pairs = zip(
                records(right.journals[domain]), records(wrong.journals[domain]), strict=True
            )
            self.assertEqual({b.time - a.time for a, b in pairs}, {ahead})

    def test_processes(self) -> None:
        """Shared work is the same amount, with a journal for each process at each broker."""
        planted, _ = self.made(TrafficPlan(2000, organizations=PAIR, faults=EVERY, processes=2))
        kinds = Counter(fault.kind for fault in planted.faults)
        self.assertEqual(kinds, Counter(dataclasses.asdict(EVERY)))
        total = 0
        for directory in planted.journals.values():
            each = list(records(directory))
            self.assertEqual(len({one.journal for one in each}), 2)
            total += sum(one.kind != RecordKind.SEGMENT for one in each)
        self.assertEqual(total, planted.events)


def held(stock: dict[str, str]) -> set[int]:
    """Return the entries of stock records."""
    entries: set[int] = set()
    for ranges in stock.values():
        for part in ranges.split():
            first, _, last = part.partition("-")
            entries.update(range(int(first), int(last or first) + 1))
    return entries


def contents(directory: Path) -> dict[str, bytes]:
    """Return what the files of a directory hold."""
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*.jsonl")
    }
