# SPDX-License-Identifier: Apache-2.0
"""Measure the ways to keep rows that several queries use (`amqproute.pipeline.reuse`).

Run as ``python -m benchmarks.reuse [--events 100000 300000] [--rounds 3]``. Journals are taken in,
and entries made of them, once. Then each way takes its turn, round by round, with the two steps of
a night that keep rows: conservation (violations and balance) and messages. Shown are the medians
of seconds and of CPU seconds, and how much of them it was to compute and keep the rows.

* local: a local checkpoint, which a lost executor ends;
* cached: cached rows, which are computed again where they are lost;
* table: rows that are written as Parquet and read again;
* checkpoint: Spark's reliable checkpoint, in files.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from amqproute.tools.synthetic import TrafficPlan, generate
from benchmarks.pipeline import EVENTS_PER_TRANSFER, FAULTS, Watch, _cpu_of

Way = Callable[[Any, Any], Any]


def ways(folder: Path) -> dict[str, Way]:
    """Return what takes the place of `Reuse.computed`, by name."""
    from unittest import mock

    from amqproute.pipeline import reuse

    own = reuse.Reuse.computed
    names = itertools.count()

    def cached(self: Any, rows: Any) -> Any:
        with mock.patch.object(reuse, "may_lose_executors", return_value=True):
            return own(self, rows)

    def table(_: Any, rows: Any) -> Any:
        path = str(folder / f"kept{next(names)}")
        rows.write.parquet(path)
        return rows.sparkSession.read.schema(rows.schema).parquet(path)

    return {
        "local": lambda _, rows: rows.localCheckpoint(),
        "cached": cached,
        "table": table,
        "checkpoint": lambda _, rows: rows.checkpoint(),
    }


def measure(events: int, rounds: int, folder: Path) -> dict[str, dict[str, list[float]]]:
    """Return for each way the seconds and the CPU seconds of each step, round by round."""
    from amqproute.pipeline import conservation, traces
    from amqproute.pipeline.ingest import ingest
    from amqproute.pipeline.reuse import Reuse
    from amqproute.pipeline.spark_session import session
    from amqproute.pipeline.warehouse import Warehouse

    journals = generate(
        TrafficPlan(round(events / EVENTS_PER_TRANSFER), faults=FAULTS), folder / "in"
    )
    spark = session("benchmark", master="local[2]", memory="2g", progress=False)
    spark.sparkContext.setCheckpointDir(str(folder / "checkpoints"))
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    warehouse = Warehouse(spark, str(folder / "tables"))
    ingest(warehouse, list(journals.journals.values()))
    runs = warehouse.read("runs")
    entries = warehouse.read_parts("hops", warehouse.stage("hops", traces.hops(runs)))
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def conserve(reuse: Reuse) -> None:
        doubtful = conservation.judged(runs, entries, reuse=reuse)
        warehouse.stage("violations", conservation.violations(runs, doubtful))
        warehouse.stage("balance", conservation.balance(entries, doubtful))

    def gather(reuse: Reuse) -> None:
        warehouse.stage("messages", traces.messages(entries, reuse))

    own = Reuse.computed
    # What Java does for the first time takes longer, whichever way it is: the first does not count.
    first, *others = ways(folder).items()
    turns = [(first, False), *((way, True) for _ in range(rounds) for way in (first, *others))]
    for (name, way), counts in turns:
        watch = Watch(lambda: _cpu_of(jvm) + _cpu_of(os.getpid()))
        kept = [0.0]

        def timed(self: Any, rows: Any, way: Way = way, kept: list[float] = kept) -> Any:
            begin = time.monotonic()
            try:
                return way(self, rows)
            finally:
                kept[0] += time.monotonic() - begin

        Reuse.computed = timed  # type: ignore[method-assign]
        for step, work in (("conservation", conserve), ("messages", gather)):
            with Reuse() as reuse:
                watch(step, lambda work=work, reuse=reuse: work(reuse))
        print(name, watch.seconds, watch.cpu, file=sys.stderr, flush=True)
        if counts:
            for step, seconds in watch.seconds.items():
                found[name][step].append(seconds)
                found[name][f"{step}, CPU"].append(watch.cpu[step])
            found[name]["keeping"].append(kept[0])
    Reuse.computed = own  # type: ignore[method-assign]
    spark.stop()
    return found


def main() -> None:
    """Measure each size, and show it as a table of Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, nargs="+", default=[100_000, 300_000])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for events in options.events:
        with tempfile.TemporaryDirectory(prefix="amqproute-bench-") as folder:
            found = measure(events, options.rounds, Path(folder))
        columns = list(found["local"])
        print(f"{events:,} events, load {os.getloadavg()[0]:.0f}:\n")
        print(f"| way | {' | '.join(f'{name}, s' for name in columns)} |")
        print(f"|---|{'---:|' * len(columns)}")
        for name, steps in found.items():
            cells = (f"{statistics.median(steps[column]):.1f}" for column in columns)
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
        print()


if __name__ == "__main__":
    main()
