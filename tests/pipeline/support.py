# SPDX-License-Identifier: Apache-2.0
"""One Spark session for all tests of a process.

A JVM takes seconds to start, and as many to get going. A process starts one at the first use, and
keeps it to its end; of several processes one gets all the tests with ``shares_process``
(`tests.__main__`). A test that hangs fails with all stacks (`tests.pipeline.deadline`), and the
next one starts another JVM. A test module imports the pipeline only where it can be::

    from tests.pipeline.support import MISSING, SparkCase

    if not MISSING:
        from amqproute.pipeline.traces import traces

    class TraceTests(SparkCase):
        def test_one(self) -> None:
            rows = self.spark.createDataFrame(...)
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from twisted.trial.unittest import SynchronousTestCase

import amqproute
from tests.pipeline.deadline import deadline
from tests.pipeline.local_files import without_chmod
from tests.support.patience import PATIENCE

MISSING = (
    None
    if importlib.util.find_spec("pyspark") and importlib.util.find_spec("pyarrow")
    else "the extra 'pipeline' is not installed (pip install '.[pipeline]')"
)
"""Why tests of the pipeline are skipped, None where they run."""

if TYPE_CHECKING or not MISSING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as F

    from amqproute.pipeline import ingest, stream
    from amqproute.pipeline.spark_session import session

END_OF_TESTS_US = 1_830_297_600_000_000
"""The year 2028: all that happens in journals of tests is before it."""

ROOT = Path(amqproute.__file__).parents[1]


def run_python(
    program: str, *arguments: str, seconds: float, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own; return how it ended and what it said.

    Args:
        program: its text.
        arguments: for it.
        seconds: it has so long.
        environment: what is other than here.
    """
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


CLASSES = Path(sys.prefix, "spark-classes.jsa")
"""Spark's classes, parsed and verified already (`tests.pipeline.classes`), where that was done."""

JAVA = (
    # Tests are many small jobs: no time for the optimizing compiler, no threads for collecting,
    # and no collecting because more classes are loaded.
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m -XX:MetaspaceSize=256m"
)
# A file of another Java, or of another Spark, is passed over, and without the log without a word.
SHARED = f' -XX:SharedArchiveFile="{CLASSES}" -Xlog:disable'

SETTINGS = {
    "spark.driver.extraJavaOptions": JAVA + (SHARED if CLASSES.exists() else ""),
    "spark.sql.shuffle.partitions": "2",
    # Few rows: to compile Java for a plan takes longer than to interpret it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Nor to plan it again after each of its stages; see `PLANNED_FULLY`.
    "spark.sql.adaptive.enabled": "false",
    # Nor to have Spark look after its own rules.
    "spark.sql.lightweightPlanChangeValidation": "false",
    # What filters imply costs half of all planning, and spares few rows here.
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    # These look through each plan again and again, and find nothing in ours.
    "spark.sql.optimizer.excludedRules": ",".join(
        f"org.apache.spark.sql.catalyst.optimizer.{rule}"
        for rule in (
            "InjectRuntimeFilter",
            "OptimizeOneRowRelationSubquery",
            "RemoveRedundantAliases",
        )
    ),
    # Each task that sorts or aggregates clears a page, be there one row, and each small table that
    # is sent to everybody is one.
    "spark.buffer.pageSize": "256k",
    # A picture of each plan is for a page that nobody opens.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.ui.retainedExecutions": "1",
    "spark.ui.retainedJobs": "1",
    "spark.ui.retainedStages": "1",
    "spark.ui.retainedTasks": "1",
    # Directories are listed here, and not by a job with a task for each.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
}
PLANNED_FULLY = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.constraintPropagation.enabled": "true",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "true",
    "spark.sql.optimizer.excludedRules": "",
}
"""Settings of plans as they are made out in the world, where a test is about all of it."""

SUBMITTED = " ".join([f"--conf '{key}={value}'" for key, value in SETTINGS.items()])
"""The same for ``PYSPARK_SUBMIT_ARGS`` of a command that a test runs; ``pyspark-shell`` follows."""


def spark() -> SparkSession:
    """Return the session of this process; the first call starts it."""
    is_new = SparkContext._active_spark_context is None
    # Plans are made and thrown away: with less room for what is new all is collected all the time.
    java = {
        "spark.driver.extraJavaOptions": SETTINGS["spark.driver.extraJavaOptions"] + " -Xmn512m"
    }
    found = session(
        "amqproute tests", master="local[2]", memory="1g", progress=False, settings=SETTINGS | java
    )
    if is_new:
        # What goes wrong on purpose is told by exceptions.
        found.sparkContext.setLogLevel("FATAL")
        without_chmod(found)
    return found


def forget_spark() -> None:
    """Forget a session whose JVM is gone: the next call of `spark` starts one again."""
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def computed(rows: DataFrame) -> DataFrame:
    """Return the same rows, computed: what is made of them is planned without what made them, which
    takes Spark longer than to compute it."""
    return rows.localCheckpoint()


class SparkCase(SynchronousTestCase):
    """A test with ``self.spark``; what it leaves behind is cleared.

    Attributes:
        shares_process: it runs in one process with all others that say so.
        spark: the session.
        seconds: after which the test has failed, on the slowest machine there is.
    """

    skip = MISSING
    shares_process = True
    spark: SparkSession
    seconds = 3 * PATIENCE

    def setUp(self) -> None:
        """Take the session; leave no cached table behind."""
        self.enterContext(deadline(self.seconds, forget_spark))
        self.spark = spark()
        self.addCleanup(self._clear)
        # Journals of tests are of their own time, whatever the clock of this machine shows.
        self.set_clock(max(ingest.clock_us(), END_OF_TESTS_US))

    def set_clock(self, now_us: int) -> None:
        """Stop the clock of the pipeline at a time, microseconds since the epoch."""
        self.patch(ingest, "clock_us", lambda: now_us)
        self.patch(stream, "now", lambda: F.timestamp_micros(F.lit(now_us)))

    def _clear(self) -> None:
        if SparkContext._active_spark_context is not None:
            self.spark.catalog.clearCache()
