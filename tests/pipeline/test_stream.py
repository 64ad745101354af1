# SPDX-License-Identifier: Apache-2.0
"""The stream gives what the table gives, also when it is killed on the way."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.pipeline.support import MISSING, SUBMITTED, SparkCase

if not MISSING:
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F
    from pyspark.testing import assertDataFrameEqual

    from amqproute.pipeline.ingest import parse
    from amqproute.pipeline.stream import Progress, follow, live, progress, read_live, timed
    from amqproute.pipeline.synthetic import Plan, generate

ROOT = Path(__file__).parents[2]
PATIENCE = 200.0


class StreamTests(SparkCase):
    """Journals of two organizations, six hours, a segment for each hour."""

    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        # Braces and commas mean something in the patterns that Spark takes for names.
        place = self.folder / "a {b},c"
        plan = Plan(
            400, organizations=("alpha.example", "beta.example"), seconds=6 * 3600,
            segment_seconds=3600, offsets={"beta.example": 2.0},
        )  # fmt: skip
        self.journals = list(generate(plan, place).journals.values())
        self.output = self.folder / "output"
        segments = sorted(place.glob("*/*/*.jsonl"), key=lambda path: path.name.rsplit("-")[-1])
        # What is copied again under another name counts once.
        shutil.copy(segments[3], segments[3].with_name(f"copy-{segments[3].name}"))
        # Spark reads the oldest first, as they were closed.
        now = time.time()
        by_time = sorted(place.glob("*/*/*.jsonl"), key=_first_time)
        for age, path in enumerate(reversed(by_time)):
            os.utime(path, (now - 60 * age, now - 60 * age))

    def by_batch(self, done: Progress) -> DataFrame:
        """Return the figures of the same segments, read as a table, of the hours that are over."""
        files = [path for journal in self.journals for path in journal.glob("*/*.jsonl")]
        rows = [(line, str(path)) for path in files for line in path.read_text().splitlines()]
        lines = self.spark.createDataFrame(rows, "value string, path string")
        runs = parse(lines).where("reason IS NULL").dropDuplicates(["journal", "seq"])
        over = F.lit(done.until).cast("timestamp")
        return live(timed(runs)).where(F.col("hour") + F.expr("INTERVAL 1 HOUR") <= over)

    def test_killed(self) -> None:
        """``kill -9`` between and within steps, and then again from the checkpoint."""
        command = [sys.executable, "-m", "amqproute", "pipeline", "stream", "--once"]
        command += ["--at-once", "3", "--memory", "1g", "--master", "local[2]"]
        command += ["--output", str(self.output)]
        for journal in self.journals:
            command += ["--journal", str(journal)]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'plugins'}"}
        environment |= {"PYSPARK_SUBMIT_ARGS": f"{SUBMITTED} pyspark-shell"}
        with (self.folder / "log").open("wb") as log:
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
            try:
                self._until_step(process, 1)
            finally:
                process.send_signal(signal.SIGKILL)
                process.wait()
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
        deadline = time.monotonic() + PATIENCE
        while self._steps() < number:
            if process.poll() is not None or time.monotonic() > deadline:
                self.fail((self.folder / "log").read_text())
            time.sleep(0.02)


def _first_time(path: Path) -> str:
    return path.read_text().partition('"time":')[2][:16]
