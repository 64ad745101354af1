# SPDX-License-Identifier: Apache-2.0
"""Gold: latencies, volumes, reasons and queues; and the same from whatever came in any order."""

from __future__ import annotations

import functools
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from amqproute.journal.record import Kind
from tests.pipeline.journals import handed_on
from tests.pipeline.support import MISSING
from tests.pipeline.test_traces import TraceCase

if TYPE_CHECKING or not MISSING:
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    from amqproute.pipeline.conservation import balance, violations
    from amqproute.pipeline.figures import latencies, percentiles, queues, reasons, volumes
    from amqproute.pipeline.ingest import ingest
    from amqproute.pipeline.schema import TABLES
    from amqproute.pipeline.synthetic import Faults, Plan, Rates, generate
    from amqproute.pipeline.tables import Warehouse
    from amqproute.pipeline.traces import hops, messages


class FigureTests(TraceCase):
    """Figures of a few messages, counted by hand."""

    def test_volumes_queues_and_reasons(self) -> None:
        """Both directions are counted, each when it happened; what waits is told with its age."""
        for entry in (1, 2, 3):
            self.publish(entry, size=100 * entry, bare_size=90 * entry)
        self.alpha.at = 3600
        handed_on(self.alpha, self.beta, 1, 11, size=150, bare_size=90)
        handed_on(self.alpha, self.beta, 2, 12, size=250, bare_size=180)
        self.beta.write(Kind.DUPLICATE, {"sender": "peer:alpha.example", "node": "orders"}, 2,
                        from_entry=[1, 2])  # fmt: skip
        self.alpha.write(Kind.DEFERRED, {
            "node": "amqp$out/beta.example", "peer": "peer:beta.example", "count": 5,
            "condition": "amqp:resource-limit-exceeded",
        })  # fmt: skip
        runs = self.runs()
        entries = hops(runs).persist()
        rows = {
            (row.domain, row.partner, row.direction): (
                row.hour.hour, row.messages, row.octets, row.unmeasured,
            )
            for row in volumes(entries).collect()
        }  # fmt: skip
        self.assertEqual(rows, {
            ("alpha.example", "beta.example", "out"): (1, 2, 270, 0),
            ("beta.example", "alpha.example", "in"): (1, 2, 270, 0),
        })  # fmt: skip
        lines = {row.queue: row for row in queues(entries).collect()}
        row = lines["amqp$out/beta.example"]
        self.assertEqual((row.came, row.octets, row.left, row.waiting), (3, 600, 2, 1))
        self.assertEqual(row.oldest_us, self.alpha_midnight())
        self.assertEqual((lines["orders"].waiting, lines["orders"].left), (2, 0))
        told = {(row.kind, row.partner): (row.number, row.condition)
                for row in reasons(runs).collect()}  # fmt: skip
        self.assertEqual(told, {
            ("duplicate", "alpha.example"): (2, None),
            ("deferred", "beta.example"): (5, "amqp:resource-limit-exceeded"),
        })  # fmt: skip

    def test_unmeasured_volumes(self) -> None:
        """Where the size of the bare message is not told, what was stored is taken, and that is
        said; of an export neither is."""
        self.publish(1, size=110, bare_size=90)
        self.publish(2, size=210)
        self.publish(3, size=None)
        for entry in (1, 2, 3):
            handed_on(self.alpha, self.beta, entry, 10 + entry, size=None)
        rows = {
            row.direction: (row.messages, row.octets, row.unmeasured)
            for row in volumes(self.hops(self.alpha, self.beta)).collect()
        }
        self.assertEqual(rows, {"out": (3, 300, 2), "in": (3, 0, 3)})

    def alpha_midnight(self) -> int:
        return 1_795_305_600_000_000

    def test_percentiles(self) -> None:
        """A percentile is at most 1 % off the duration that it is of; what is 0 stays 0."""
        draw = random.Random(7)
        spans = sorted([0, 1, 2, *(round(draw.lognormvariate(9, 2)) + 3 for _ in range(200))])
        self.alpha.write(Kind.RECEIVED, {"node": "q"}, len(spans), entry=list(range(len(spans))))
        self.alpha.write(
            Kind.DELIVERED, {"node": "q"}, len(spans), entry=list(range(len(spans))),
            queue_us=spans,
        )  # fmt: skip
        histogram = latencies(self.hops(self.alpha))
        rows = percentiles(histogram, ["domain", "stage"], [0.001, 0.5, 0.99, 0.999]).collect()
        by_stage = {row.stage: row for row in rows}
        self.assertEqual(set(by_stage), {"queue", "hop"})
        row = by_stage["queue"]
        self.assertEqual((row.number, row.p001_us), (203, 0.0))
        for name, place in (("p50_us", 0.5), ("p99_us", 0.99), ("p999_us", 0.999)):
            true = spans[-(-round(place * 1000) * len(spans) // 1000) - 1]
            self.assertLessEqual(abs(row[name] - true), 0.01 * true + 0.5)


class EarlierTests(TraceCase):
    """Tables that a release before this one has made are read on."""

    def test_without_bare_sizes(self) -> None:
        """What they do not say is not known; what comes now is said beside it."""
        directory = Path(self.mktemp()).absolute()
        warehouse = Warehouse(self.spark, directory / "tables")
        journals = directory / "journals"
        self.publish(1, size=110)
        handed_on(self.alpha, self.beta, 1, 11, size=150)
        for journal in (self.alpha, self.beta):
            journal.segment(journals)
        here = [journals / "alpha.example", journals / "beta.example"]
        ingest(warehouse, here)
        runs = warehouse.read("runs")
        for name in ("all", "each"):
            runs = runs.withColumn(name, F.col(name).dropFields("bare_size"))
        self.put(warehouse, "runs", runs)
        self.put(warehouse, "hops", hops(warehouse.read("runs")).drop("bare_size"))
        self.assertEqual(self.octets(warehouse.read("hops")), {"out": (110, 1), "in": (150, 1)})
        self.publish(2, size=110, bare_size=90)
        handed_on(self.alpha, self.beta, 2, 12, size=150, bare_size=90)
        for journal in (self.alpha, self.beta):
            journal.segment(journals)
        ingest(warehouse, here)
        entries = hops(warehouse.read("runs"))
        self.assertEqual(self.octets(entries), {"out": (200, 1), "in": (240, 1)})

    def put(self, warehouse: Warehouse, table: str, rows: DataFrame) -> None:
        """Let rows be the whole of a table, as they are."""
        commit = warehouse.begin()
        place = f"{warehouse.path(commit)}/table={table}"
        rows.write.partitionBy("day", "domain").parquet(place)
        base = warehouse.snapshot()
        warehouse.publish(base, warehouse.staged(commit), base.of(table))

    def octets(self, entries: DataFrame) -> dict[str, tuple[int, int]]:
        return {row.direction: (row.octets, row.unmeasured) for row in volumes(entries).collect()}


class OrderTests(TraceCase):
    """Whatever order segments come in, how often, and how late: the gold tables are the same."""

    def gold(self, warehouse: Warehouse) -> dict[str, Counter[str]]:
        """Return the rows of all tables that are made of the runs, as text."""
        runs = warehouse.read("runs")
        entries = hops(runs).persist()
        tables = {
            "messages": messages(entries),
            "violations": violations(runs, entries),
            "balance": balance(runs, entries),
            "latencies": latencies(entries),
            "volumes": volumes(entries),
            "reasons": reasons(runs),
            "queues": queues(entries),
        }
        texts = []
        for name, table in tables.items():
            self.assertEqual(table.schema.names, TABLES[name].names)
            texts.append(table.select(F.lit(name).alias("name"), F.to_json(F.struct("*"))))
        found: dict[str, Counter[str]] = {name: Counter() for name in tables}
        for name, text in functools.reduce(DataFrame.union, texts).collect():
            found[name][text] += 1
        return found

    def test_any_order(self) -> None:
        """Two nights with segments dealt out at random, some of them to both nights."""
        directory = Path(self.mktemp()).absolute()
        plan = Plan(
            150, seconds=3 * 3600, segment_seconds=1800,
            rates=Rates(delayed=0.05, deferred=0.05, dead_lettered=0.05, suppressed=0.05),
            faults=Faults(vanished=1, ended_twice=1, gap=1, duplicated=1),
        )  # fmt: skip
        generate(plan, directory)
        paths = sorted(directory.rglob("*.jsonl"))
        whole = Warehouse(self.spark, directory / "tables")
        ingest(whole, [directory / name for name in plan.organizations])
        expected = self.gold(whole)

        # Some segments come on the first night, and all of them on the second.
        draw = random.Random(3)
        nights = [draw.random() < 0.5 for _ in paths]
        self.assertEqual(set(nights), {True, False})
        here = Path(self.mktemp()).absolute()
        warehouse = Warehouse(self.spark, here / "tables")
        for night in (1, 2):
            for path, is_early in zip(paths, nights, strict=True):
                if night == 2 or is_early:
                    folder = here / f"copy{night}" / path.parent.name
                    folder.mkdir(parents=True, exist_ok=True)
                    shutil.copy(path, folder)
            ingest(warehouse, [here / f"copy{n}" for n in range(1, night + 1)])
        found = self.gold(warehouse)
        self.assertEqual(found.keys(), expected.keys())
        for name, rows in expected.items():
            self.assertGreater(sum(rows.values()), 0, name)
            self.assertEqual(found[name], rows, name)
