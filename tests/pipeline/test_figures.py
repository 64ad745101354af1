# SPDX-License-Identifier: Apache-2.0
"""Gold: latencies, volumes, reasons and queues."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import TYPE_CHECKING

from amqproute.journal.record import LONGEST_RUN, RecordKind
from tests.pipeline.journals import handed_on
from tests.pipeline.support import MISSING
from tests.pipeline.test_traces import TraceCase

if TYPE_CHECKING or not MISSING:
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    from amqproute.pipeline import facts
    from amqproute.pipeline.conservation import balance, judged
    from amqproute.pipeline.figures import (
        latencies,
        percentile,
        percentiles,
        queues,
        reasons,
        volumes,
    )
    from amqproute.pipeline.ingest import ingest
    from amqproute.pipeline.traces import hops, messages
    from amqproute.pipeline.warehouse import Warehouse


class FigureTests(TraceCase):
    """Figures of a few messages, counted by hand."""

    def test_volumes_queues_and_reasons(self) -> None:
        """Both directions are counted, each when it happened; what waits is told with its age."""
        for entry in (1, 2, 3):
            self.publish(entry, size=100 * entry, bare_size=90 * entry)
        self.alpha.at = 3600
        handed_on(self.alpha, self.beta, 1, 11, size=150, bare_size=90)
        handed_on(self.alpha, self.beta, 2, 12, size=250, bare_size=180)
        self.beta.write(RecordKind.DUPLICATE, {"sender": "peer:alpha.example", "node": "orders"}, 2,
                        from_entry=[1, 2])  # fmt: skip
        self.alpha.write(RecordKind.DEFERRED, {
            "node": "amqp$out/beta.example", "peer": "peer:beta.example", "count": 5,
            "condition": "amqp:resource-limit-exceeded",
        })  # fmt: skip
        self.alpha.write(RecordKind.DEFERRED, {
            "node": "amqp$out/gamma.example", "peer": "peer:gamma.example", "count": 7,
            "code": "net.refused",
        })  # fmt: skip
        answer = {"entry": 99, "node": "dynamic-1", "to": "dynamic-1", "sender": "anonymous"}
        self.alpha.write(RecordKind.ROUTED, {**answer, "durable": False, "size": 5})
        self.alpha.end(RecordKind.DELIVERED, 99, "dynamic-1", peer="anonymous", queue_us=5)
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
        self.assertNotIn("dynamic-1", lines)
        row = lines["amqp$out/beta.example"]
        self.assertEqual((row.came, row.octets, row.left, row.waiting), (3, 600, 2, 1))
        self.assertEqual(row.oldest_us, self.alpha_midnight())
        self.assertEqual((lines["orders"].waiting, lines["orders"].left), (2, 0))
        told = {(row.kind, row.partner): (row.number, row.condition)
                for row in reasons(runs).collect()}  # fmt: skip
        self.assertEqual(told, {
            ("duplicate", "alpha.example"): (2, None),
            ("deferred", "beta.example"): (5, "amqp:resource-limit-exceeded"),
            ("deferred", "gamma.example"): (7, None),
        })  # fmt: skip

        self.check_put_off(entries, runs)
        self.check_answers(entries, runs)

    def check_put_off(self, entries: DataFrame, runs: DataFrame) -> None:
        """The partners' table and that of the reasons say the same."""
        rows = {(row.domain, row.partner, row.direction): row
                for row in facts._partners(entries, runs)}  # fmt: skip
        row = rows["alpha.example", "beta.example", "to"]
        self.assertEqual((row.messages, row.deferrals), (2, 5))
        row = rows["alpha.example", "gamma.example", "to"]
        self.assertEqual((row.messages, row.octets, row.unmeasured, row.deferrals), (0, 0, 0, 7))
        times = {row.towards: row.times for row in facts._reasons(runs)}
        self.assertEqual(times, {"peer:beta.example": 5, "peer:gamma.example": 7})

    def check_answers(self, entries: DataFrame, runs: DataFrame) -> None:
        """A broker's answer to its clients is an entry and no message."""
        self.assertEqual(entries.where("entry = 99").count(), 1)
        self.assertEqual(messages(entries).where("trace_entry = 99").count(), 0)
        self.assertEqual(messages(entries).count(), 3)
        hours = balance(entries, judged(runs, entries)).collect()
        self.assertEqual(sum(row.accepted for row in hours), 5)
        self.assertEqual(latencies(entries).where("queue LIKE 'dynamic%'").count(), 0)
        self.assertEqual({row.to_whom for row in facts._routes(entries)}, {"beta.example"})

    def test_unmeasured_volumes(self) -> None:
        """Without the size of the bare message the stored size counts, and that is
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
        for start in range(0, len(spans), LONGEST_RUN):
            part = spans[start : start + LONGEST_RUN]
            entries = list(range(start, start + len(part)))
            self.alpha.write(RecordKind.RECEIVED, {"node": "q"}, len(part), entry=entries)
            self.alpha.write(
                RecordKind.DELIVERED, {"node": "q"}, len(part), entry=entries, queue_us=part
            )
        histogram = latencies(self.hops(self.alpha))
        places = [0.001, 0.007, 0.5, 0.99, 0.999]
        rows = percentiles(histogram, ["domain", "stage"], places).collect()
        by_stage = {row.stage: row for row in rows}
        self.assertEqual(set(by_stage), {"queue", "hop"})
        row = by_stage["queue"]
        self.assertEqual((row.number, row.p001_us), (203, 0.0))
        # The second shortest is 1 µs: it has a length.
        self.assertLessEqual(abs(row.p007_us - 1), 0.01)
        for name, place in (("p50_us", 0.5), ("p99_us", 0.99), ("p999_us", 0.999)):
            true = spans[-(-round(place * 1000) * len(spans) // 1000) - 1]
            self.assertLessEqual(abs(row[name] - true), 0.01 * true + 0.5)

    def test_percentiles_of_many(self) -> None:
        """However many rows there are and however far apart the last ones: 0.05 % at most."""
        number = 47_260
        spans = [round(3 * (1 - n / number) ** -2.5) for n in range(number)]
        rows = self.spark.range(number, numPartitions=4).selectExpr(
            f"CAST(ROUND(3 * POWER(1 - PMOD(id * 7919, {number}) / {number}D, -2.5)) AS LONG) us"
        )
        both = rows.unionByName(rows.selectExpr("-us AS us"))
        places = (0.5, 0.99, 0.999)
        [found] = rows.agg(*(percentile("us", place) for place in places)).collect()
        [mirrored] = both.agg(percentile("us", 0.005), percentile("us", 0.25)).collect()
        for place, value in zip(places, found, strict=True):
            true = spans[math.ceil(round(place * number, 6)) - 1]
            self.assertLessEqual(abs(value - true), 0.0005 * true + 1, place)
        self.assertLess(abs(mirrored[0] + found[1]), 0.001 * found[1])
        self.assertEqual(mirrored[1], -found[0])


class EarlierTests(TraceCase):
    """Tables that a release before this one has made are read on."""

    def test_without_bare_sizes(self) -> None:
        """Fields missing from earlier tables are unknown; new records have them."""
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
