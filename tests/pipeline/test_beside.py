# SPDX-License-Identifier: Apache-2.0
"""Concurrent users of a warehouse: a second writer, a killed one, and the stream.

``make test-cluster`` kills the writer at each of its publications, ``make test-cluster
CLUSTER=short`` at one. The ordinary suite leaves them: `tests.pipeline.test_ingest` has a writer
that is killed, and one that is refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tests.pipeline.support import END_OF_TESTS_US, MISSING, ROOT, SparkCase
from tests.pipeline.test_arrivals import Rows, as_text, differences
from tests.pipeline.test_commands import invoked
from tests.support.patience import PATIENCE, until

if TYPE_CHECKING or not MISSING:
    from pyspark.sql import functions as F
    from pyspark.testing import assertDataFrameEqual

    from amqproute.cli import pipeline_analysis
    from amqproute.pipeline.stream import StreamProgress, follow, live, progress, read_live, timed
    from amqproute.pipeline.table_schema import TABLES
    from amqproute.pipeline.warehouse import Warehouse, WarehouseSnapshot
    from amqproute.tools.synthetic import FaultPlan, TrafficPlan, generate

WANTED = os.environ.get("AMQPROUTE_CLUSTER")
IS_LONG = WANTED == "long"
INGESTED, MADE, SETTLED = range(3)
"""The publications of `run`, one after the other."""

WRITER = """
import json, os, signal, sys
from click.testing import CliRunner
from amqproute.cli.main import amqproute
from amqproute.pipeline import ingest, java
from tests.pipeline.support import spark
from tests.support.patience import PATIENCE

java._START = 3 * PATIENCE  # on a machine with much else to do
now_us, link = int(sys.argv[1]), os.link
heard, told = sys.stdin, sys.stdout  # a command has others
ingest.clock_us = lambda: now_us

def asked(draft, path):
    print(json.dumps("publishing"), file=told, flush=True)
    if heard.readline().strip() == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    link(draft, path)

spark()
os.link = asked
while command := heard.readline():
    done = CliRunner().invoke(amqproute, ["pipeline", *json.loads(command)])
    print(json.dumps([done.exit_code, done.stdout, done.stderr]), flush=True)
"""


class Writer:
    """A process that does commands, and asks before it lets a list of tables appear."""

    def __init__(self, folder: Path) -> None:
        """Start it; what Spark says goes to a file in the folder."""
        self._log = (folder / "writer.log").open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(END_OF_TESTS_US)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, cwd=ROOT,
        )  # fmt: skip

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(BrokenPipeError):  # what was said to one that is gone
            self._pipe(self._process.stdin).close()
        self._process.kill()
        self._process.wait()
        self._pipe(self._process.stdout).close()
        self._log.close()

    def _pipe(self, pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe

    def say(self, words: str) -> None:
        """Tell it a command, or what to do about a publication."""
        print(words, file=self._pipe(self._process.stdin), flush=True)

    def heard(self) -> Any:
        """Wait for what it says next."""
        line = self._pipe(self._process.stdout).readline()
        if not line:
            raise AssertionError(f"it ended: {Path(self._log.name).read_text()[-5000:]}")
        return json.loads(line)

    def kill_at(self, number: int) -> None:
        """Let it publish so often, and kill it in the middle of the next time."""
        for _ in range(number):
            assert self.heard() == "publishing"
            self.say("go")
        assert self.heard() == "publishing"
        self.say("die")
        assert self._process.wait(PATIENCE) == -signal.SIGKILL


class BesideCase(SparkCase):
    """Journals of two brokers, of which the second half comes later, and a warehouse."""

    skip = MISSING or (None if WANTED else "long: make test-cluster")
    seconds = 3600.0 if IS_LONG else 15 * PATIENCE

    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        plan = TrafficPlan(
            300, organizations=("alpha.example", "beta.example"), seconds=6 * 3600,
            segment_seconds=3600, faults=FaultPlan(lost=1, vanished=1),
        )  # fmt: skip
        self.whole = self.folder / "whole"
        self.journals = [
            self.folder / "journals" / name for name in generate(plan, self.whole).journals
        ]
        self.bring(0)
        self.tables = Warehouse(self.spark, self.folder / "tables")

    def bring(self, half: int) -> None:
        """Bring the first segments of both journals, or the others."""
        for journal in self.journals:
            found = sorted((self.whole / journal.name).glob("*/*.jsonl"), key=_first_time)
            middle = len(found) // 2
            for path in found[middle:] if half else found[:middle]:
                to = journal / path.parent.name / path.name
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, to)
                # Spark reads the oldest first, as they were closed.
                closed = int(_first_time(path)) / 1e6
                os.utime(to, (closed, closed))

    def command(self, tables: Warehouse | None = None) -> list[str]:
        """Return the nightly command."""
        given = [f"--journal={journal}" for journal in self.journals]
        return ["run", "--warehouse", (tables or self.tables).base, *given]

    def run_here(self, tables: Warehouse | None = None) -> str:
        """Do the night in this process, and return what it says."""
        result = invoked(*self.command(tables))
        self.assertIn(result.exit_code, (0, 1), result.output)
        return str(result.stdout)

    def rows(self, tables: Warehouse, snapshot: WarehouseSnapshot | None = None) -> Rows:
        """Return the rows of all tables."""
        snapshot = snapshot or tables.snapshot()
        return as_text({name: tables.read(name, None, snapshot) for name in TABLES})

    def check(self) -> None:
        """The tables are those of all journals, taken in at once."""
        expected = Warehouse(self.spark, self.folder / "expected")
        self.run_here(expected)
        self.assertEqual(differences(self.rows(self.tables), self.rows(expected)), [])


def _first_time(path: Path) -> str:
    return path.read_text().partition('"time":')[2][:16]


class WriterTests(BesideCase):
    """Two nights at once, and one that is killed."""

    @contextlib.contextmanager
    def writer(self) -> Iterator[Writer]:
        """Have another process begin a night."""
        with Writer(self.folder) as writer:
            writer.say(json.dumps(self.command()))
            yield writer

    def test_two_and_killed(self) -> None:
        """Of two nights at once the second is refused, and nothing of it is seen. One that is
        killed with ``kill -9`` while it publishes leaves the tables as they were before; the next
        one makes them as they should be."""
        with self.writer() as writer:
            self.assertEqual(writer.heard(), "publishing")
            self.run_here()
            before = self.tables.snapshot()
            writer.say("go")
            code, output, errors = writer.heard()
            self.assertEqual((code, output), (1, ""))
            self.assertIn("pipeline.conflict: ", errors)
            self.assertEqual(self.tables.snapshot(), before)
            self.assertIn("0 new segments", self.run_here())
            self.bring(1)
            writer.say(json.dumps(self.command()))
            self.check_killed(writer, MADE)
        self.check()

    def check_killed(self, writer: Writer, at: int) -> None:
        """Kill it while it publishes; what it has made until then is not half there."""
        before = self.tables.snapshot()
        writer.kill_at(at)
        found = self.tables.snapshot()
        self.assertEqual(found.version, before.version + at)
        changed = {part.table for part in set(found.parts) ^ set(before.parts)}
        bronze = {"runs", "segments"}
        self.assertEqual(changed, [set(), bronze, set(TABLES) - {"rejects"}][at])
        self.assertTrue(list(Path(self.tables.base, "log").glob(".*")), "nothing was half written")
        refused = invoked("report", "--warehouse", self.tables.base)
        self.assertEqual("pipeline.pending" in refused.stderr, at > INGESTED, refused.output)
        self.run_here()

    def test_killed_elsewhere(self) -> None:
        """The same, at its first publication and at its last."""
        if not IS_LONG:
            self.skipTest("make test-cluster")
        self.run_here()
        self.bring(1)
        for at in (INGESTED, SETTLED):
            with self.writer() as writer:
                self.check_killed(writer, at)
            self.check()
            shutil.rmtree(self.tables.base)
            shutil.rmtree(self.folder / "expected")
            for journal in self.journals:
                shutil.rmtree(journal)
            self.bring(0)
            self.run_here()
            self.bring(1)


class StreamTests(BesideCase):
    """The stream continues while the night works on the same journals."""

    def test_beside(self) -> None:
        """Both have all there is: what comes in the middle of a night is in the figures of the
        stream at once, and in the tables after the next night."""
        query = follow(
            self.spark, self.journals, self.folder / "output", every="100 milliseconds", at_once=2
        )
        self.addCleanup(query.stop)
        done = StreamProgress()

        def goes_on(lines: int) -> bool:
            nonlocal done
            self.assertIsNone(query.exception())
            done = progress(query, done)
            return done.lines > lines

        until(lambda: goes_on(0), "a step of the stream", 3 * PATIENCE)
        refresh = pipeline_analysis.refresh

        def refreshed(tables: Warehouse) -> WarehouseSnapshot:
            query.processAllAvailable()
            goes_on(0)
            self.bring(1)
            until(lambda lines=done.lines: goes_on(lines), "a step", 3 * PATIENCE)
            return refresh(tables)

        self.patch(pipeline_analysis, "refresh", refreshed)
        self.run_here()
        self.patch(pipeline_analysis, "refresh", refresh)
        self.run_here()
        self.check()
        query.processAllAvailable()
        done = progress(query, done)
        query.stop()
        self.assertEqual((done.dropped, done.rejected), (0, 0))
        over = F.lit(done.until).cast("timestamp")
        runs = self.tables.read("runs")
        expected = live(timed(runs)).where(F.col("hour") + F.expr("INTERVAL 1 HOUR") <= over)
        streamed = read_live(self.spark, self.folder / "output")
        self.assertGreater(streamed.count(), 5)
        assertDataFrameEqual(streamed, expected)
