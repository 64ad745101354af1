# SPDX-License-Identifier: Apache-2.0
"""The stream gives the same figures as the table, also after a kill."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.support import until
from tests.pipeline.journals import linked
from tests.pipeline.support import MISSING, SUBMITTED, SparkCase
from tests.support.patience import PATIENCE

if not MISSING:
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F
    from pyspark.testing import assertDataFrameEqual

    from amqproute.pipeline.ingest import ingest
    from amqproute.pipeline.stream import (
        StreamProgress,
        _pattern,
        follow,
        live,
        progress,
        read_live,
        timed,
    )
    from amqproute.pipeline.warehouse import Warehouse
    from amqproute.tools.synthetic import TrafficPlan, generate

ROOT = Path(__file__).parents[2]


class PatternTests(SynchronousTestCase):
    """One pattern for all directories that a stream reads."""

    skip = MISSING

    def test_pattern(self) -> None:
        """The common part comes first, and one of them may be all there is."""
        for places, expected in (
            (["/a/b/c"], "/a/b/{c}"),
            (["/a/b/c", "/a/b/d"], "/a/b/{c,d}"),
            (["/a/b/c", "/a/x/d"], "/a/{b/c,x/d}"),
            (["/a/b", "/a/b/c"], "/a/{b,b/c}"),
            (["/a", "/b"], "/{a,b}"),
            (["s3a://one/a", "s3a://one/b"], "s3a://one/{a,b}"),
        ):
            self.assertEqual(_pattern(places), expected, places)


class StreamTests(SparkCase):
    """Journals of two organizations, six hours, a segment for each hour."""

    seconds = 6 * PATIENCE  # a second JVM, and three streams

    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        # Braces and commas mean something in the patterns that Spark takes for names.
        place = self.folder / "a {b},c"
        plan = TrafficPlan(
            400, organizations=("alpha.example", "beta.example"), seconds=6 * 3600,
            segment_seconds=3600, offsets={"beta.example": 2.0},
        )  # fmt: skip
        self.journals = list(generate(plan, place).journals.values())
        self.output = self.folder / "output"
        segments = sorted(place.glob("*/*/*.jsonl"), key=lambda path: path.name.rsplit("-")[-1])
        # What is copied again under another name counts once.
        shutil.copy(segments[3], segments[3].with_name(f"copy-{segments[3].name}"))
        # Lines that were made again, and have a part of their records in common with others.
        recut(segments[2], "early", lambda n: (0, n // 2))
        recut(segments[7], "late", lambda n: (n // 3, n))
        # Spark reads the oldest first, as they were closed.
        now = time.time()
        by_time = sorted(place.glob("*/*/*.jsonl"), key=_first_time)
        for age, path in enumerate(reversed(by_time)):
            os.utime(path, (now - 60 * age, now - 60 * age))

    def by_batch(self, done: StreamProgress) -> DataFrame:
        """Return the figures of the same segments, read as a table, of the hours that are over."""
        tables = Warehouse(self.spark, self.folder / "tables")
        plain = self.folder / "plain"
        plain.symlink_to(self.journals[0].parent)
        ingest(tables, [plain / journal.name for journal in self.journals])
        runs = tables.read("runs")
        over = F.lit(done.until).cast("timestamp")
        return live(timed(runs)).where(F.col("hour") + F.expr("INTERVAL 1 HOUR") <= over)

    def test_killed(self) -> None:
        """``kill -9`` between and within steps, and then again from the checkpoint."""
        command = [sys.executable, "-m", "amqproute", "pipeline", "stream", "--once"]
        # Many steps: the test may look away for some seconds, and the stream is still at work.
        command += ["--at-once", "1", "--memory", "1g", "--master", "local[2]"]
        command += ["--output", str(self.output)]
        for journal in self.journals:
            command += ["--journal", str(journal)]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'plugins'}"}
        environment |= {"PYSPARK_SUBMIT_ARGS": f"{SUBMITTED} pyspark-shell"}
        with (self.folder / "log").open("wb") as log:
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
            try:
                self._until_step(process, 1)
            finally:
                # Java as well: it would continue for a moment, and own the checkpoint. Where all
                # have ended, the test has failed already, and says why.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                self._until_gone(process.pid)
        before = self._steps()
        self.assertGreater(before, 0, (self.folder / "log").read_text())
        query = follow(self.spark, self.journals, self.output, at_once=10)
        query.awaitTermination()
        done = progress(query)
        self.assertEqual(done.dropped, 0)
        self.assertGreater(self._steps(), before)
        self.assertIsNotNone(done.until)
        streamed = read_live(self.spark, self.output)
        self.assertGreater(streamed.count(), 10)
        assertDataFrameEqual(streamed, self.by_batch(done))
        again = follow(self.spark, self.journals, self.output)
        again.awaitTermination()
        self.assertEqual(progress(again).lines, 0)
        assertDataFrameEqual(read_live(self.spark, self.output), streamed)

    def _steps(self) -> int:
        commits = self.output / "checkpoint" / "commits"
        return len([path for path in commits.glob("*") if path.name.isdigit()])

    def _until_step(self, process: subprocess.Popen[bytes], number: int) -> None:
        def is_there() -> bool:
            code, log = process.poll(), (self.folder / "log").read_text()
            self.assertIsNone(code, f"it ended with {code} after {self._steps()} steps: {log}")
            return self._steps() >= number

        until(is_there, "a step", 3 * PATIENCE, (self.folder / "log").read_text)

    def _until_gone(self, group: int) -> None:
        def is_gone() -> bool:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, 0)
                return False
            return True

        until(is_gone, "the end of processes that were killed", PATIENCE)


def _first_time(path: Path) -> str:
    return path.read_text().partition('"time":')[2][:16]


def recut(segment: Path, name: str, part: Callable[[int], tuple[int, int]]) -> None:
    """Write beside a segment another one with parts of its lines."""
    lines = []
    for text in segment.read_text().splitlines():
        line = json.loads(text)
        first, behind = part(line["n"])
        if behind - first in (0, line["n"]):
            continue
        each = {field: values[first:behind] for field, values in line["each"].items()}
        line |= {"seq": line["seq"] + first, "n": behind - first, "each": each}
        lines.append(json.dumps(line, separators=(",", ":")).encode() + b"\n")
    assert lines, "runs of more than one record"
    segment.with_name(f"{name}-{segment.name}").write_bytes(b"".join(linked(lines)))
