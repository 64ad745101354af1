# SPDX-License-Identifier: Apache-2.0
"""A standalone cluster that loses workers makes the same tables as one machine.

``make test-cluster`` kills a worker at every place that `tests.pipeline.night` knows.
``make test-cluster CLUSTER=short`` does so at two of them, with fewer records. The short campaigns
have ``ingest`` lose a worker in the middle of a job, and one that keeps rows which are used again:
if Spark has forgotten how to compute them, it ends there.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.pipeline.journals import linked
from tests.pipeline.support import END_OF_TESTS_US, MISSING, ROOT, SparkCase
from tests.pipeline.test_arrivals import BRONZE, as_text, differences
from tests.pipeline.test_commands import invoked
from tests.support.patience import PATIENCE, until

if TYPE_CHECKING or not MISSING:
    from pyspark.sql import SparkSession

    from amqproute.pipeline.table_schema import TABLES
    from amqproute.pipeline.warehouse import Warehouse
    from amqproute.tools.synthetic import FaultPlan, FaultRates, TrafficPlan, generate
    from tests.pipeline.cluster import Cluster, executors
    from tests.pipeline.night import DRIVER, KEPT, PLACES
    from tests.pipeline.task_gate import write_gate

WANTED = os.environ.get("AMQPROUTE_CLUSTER")
IS_LONG = WANTED == "long"
TRANSFERS = 6_000 if IS_LONG else 300 if WANTED else 60
"""Messages; one makes four records or more."""
HOURS = 24 if IS_LONG else 4 if WANTED else 1
GATE = "gate.jar"
PAIR = ("alpha.example", "beta.example")


class ClusterTests(SparkCase):
    """Workers of one core and 512 MB, and executors without the driver's paths."""

    skip = MISSING
    seconds = 3600.0 if IS_LONG else 15 * PATIENCE

    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        plan = TrafficPlan(
            TRANSFERS, seconds=HOURS * 3600, segment_seconds=7200, rates=FaultRates(two_hops=0.3),
            offsets={PAIR[1]: 2.0},
            faults=FaultPlan(lost=2, duplicated=2, changed=1, unknown=1, in_flight=3, vanished=2,
                          unexplained=1, ended_twice=1, came_back=1, gap=1),
        )  # fmt: skip
        self.journals = generate(plan, self.folder / "journals").journals
        contradict(self.journals[PAIR[0]])

    def commands(self, place: Path) -> list[list[str]]:
        """Return what a night does, with all that it writes below a folder."""
        given = [f"--journal={journal}" for journal in self.journals.values()]
        ours, theirs = (str(self.journals[domain]) for domain in PAIR)
        sides = ["--ours", ours, "--theirs", theirs]
        run = ["run", "--warehouse", str(place / "tables"), *given]
        reconcile = ["reconcile", *sides, "--output", str(place / "agreement")]
        return [run, reconcile] if WANTED else [["ingest", *run[1:]]]

    def test_lost_workers(self) -> None:
        """A worker and its executor are killed at each place: the same tables, the same pages and
        the same words as on one machine."""
        here, there = self.folder / "here", self.folder / "there"
        places = PLACES if IS_LONG else (f"conservation{KEPT}", "messages")
        places = places if WANTED else ("ingest", f"ingest{KEPT}")
        with night(self.spark, self.folder, self.commands(there), places) as driver:
            expected = [invoked(*command) for command in self.commands(here)]
            codes = {result.exit_code for result in expected}
            self.assertEqual(codes, {int(bool(WANTED))}, expected)
            self.assertEqual(driver.code(), 0, driver.words())
        self.assertEqual(sorted(each["killed"] for each in driver.killed), sorted(places))
        for each in driver.killed:
            self.assertGreater(each["lost"], 0, each)
        for result, said in zip(expected, driver.found, strict=True):
            self.assertEqual(said["code"], result.exit_code, said)
            self.assertEqual(said["output"].replace(str(there), str(here)), result.stdout)
        self.check(there, here)
        pages = sorted(path.relative_to(here) for path in here.rglob("*.html"))
        self.assertEqual(len(pages) > 1, bool(WANTED))
        for page in pages:
            self.assertEqual((there / page).read_text(), (here / page).read_text(), page)

    def test_killed_driver(self) -> None:
        """``kill -9`` of the driver: its executors end, and leave nothing on their disks; the next
        night makes the tables."""
        if not IS_LONG:
            self.skipTest("make test-cluster")
        here, there = self.folder / "here", self.folder / "there"
        with night(self.spark, self.folder, self.commands(there), [DRIVER]) as driver:
            self.assertEqual(driver.code(), -signal.SIGKILL, driver.words())
            for worker in driver.cluster.workers:
                until(lambda pid=worker.pid: not executors(pid), "the end of an executor")
                until(lambda of=worker: not of.blocks("*_*"), "the end of its files")
        for place in (here, there):
            for command in self.commands(place):
                self.assertEqual(invoked(*command).exit_code, 1)
        self.check(there, here)

    def check(self, place: Path, expected: Path) -> None:
        """Compare all tables."""
        self.assertEqual(differences(self.rows(place), self.rows(expected)), [])

    def rows(self, place: Path) -> Any:
        warehouse = Warehouse(self.spark, place / "tables")
        names = TABLES if WANTED else BRONZE
        tables = {name: warehouse.read(name) for name in names}
        if WANTED:
            agreement = str(place / "agreement" / "reconciliation")
            tables["reconciliation"] = self.spark.read.parquet(agreement)
        found = as_text(tables)
        for name, rows in found.items():
            self.assertGreater(sum(rows.values()), 0, name)
        return found


def contradict(journal: Path) -> None:
    """Write a copy of a segment beside it in which one line says something else."""
    segment, lines, number = next(
        (path, lines, number)
        for path in sorted(journal.glob("*/*.jsonl"))
        for lines in [path.read_bytes().splitlines(keepends=True)]
        for number, line in enumerate(lines)
        if b'"size":' in line
    )
    body = json.loads(lines[number])
    if "size" in body["all"]:
        body["all"]["size"] += 1
    else:
        body["each"]["size"][0] += 1
    lines[number] = json.dumps(body, separators=(",", ":")).encode() + b"\n"
    segment.with_name(f"copy-{segment.name}").write_bytes(b"".join(linked(lines)))


class Driver:
    """A process that does commands on a cluster, and what it said.

    Attributes:
        cluster: that it works on.
        found: how each command ended, and what it said.
        killed: workers that it has killed, each with the place.
    """

    def __init__(
        self, cluster: Cluster, folder: Path, commands: Sequence[Sequence[str]], kill: Sequence[str]
    ) -> None:
        """Start it.

        Args:
            cluster: that it works on.
            folder: for what it writes besides. It has the JAR of the gate
                (`tests.pipeline.task_gate`).
            commands: of ``amqproute pipeline``.
            kill: places, see `tests.pipeline.night`.
        """
        self.cluster = cluster
        self.found: list[Any] = []
        self.killed: list[Any] = []
        self._log = folder / "driver.log"
        told = {
            "master": cluster.url,
            "workers": [(worker.pid, str(worker.place)) for worker in cluster.workers],
            "commands": commands,
            "kill": list(kill),
            "local": str(folder / "local"),
            "gate": str(folder / "gate"),
            "now_us": END_OF_TESTS_US,
        }
        (folder / "gate").mkdir()
        environment = {
            **os.environ, "PYSPARK_SUBMIT_ARGS": f"--jars '{folder / GATE}' pyspark-shell"
        }  # fmt: skip
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.pipeline.night", json.dumps(told)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT,
                env=environment,
            )  # fmt: skip
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin, process.stdout:
            for line in process.stdout:
                said = json.loads(line)
                if "killed" not in said:
                    self.found.append(said)
                    continue
                self.killed.append(said)
                worker = self.cluster.add_worker()
                answer = {"pid": worker.pid, "place": str(worker.place)}
                print(json.dumps(answer), file=process.stdin, flush=True)

    def code(self) -> int:
        """Wait for its end."""
        self._thread.join()
        return self._process.wait(PATIENCE)

    def words(self) -> str:
        """Return what went wrong, as far as it has said so."""
        return f"{self.found} {self._log.read_text()[-20_000:]}"

    def end(self) -> None:
        """End it, if it has not."""
        self._process.kill()
        self.code()


@contextlib.contextmanager
def night(
    spark: SparkSession, folder: Path, commands: Sequence[Sequence[str]], kill: Sequence[str]
) -> Iterator[Driver]:
    """Let a driver do commands on a cluster, while something else is done here."""
    write_gate(spark, folder / GATE)
    place = folder / "cluster"
    place.mkdir()
    with Cluster(place) as cluster:
        driver = Driver(cluster, folder, commands, kill)
        try:
            yield driver
        finally:
            driver.end()
