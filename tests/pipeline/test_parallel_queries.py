# SPDX-License-Identifier: Apache-2.0
"""Queries that run at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.pipeline.support import MISSING, SparkCase, run_python
from tests.support.patience import PATIENCE

if TYPE_CHECKING or not MISSING:
    from amqproute.pipeline import parallel_queries
    from amqproute.pipeline.parallel_queries import AT_ONCE, run_queries


class ParallelQueryTests(SparkCase):
    """Functions that start queries."""

    def test_results(self) -> None:
        """They come in order, whichever is ready first."""
        last_began = threading.Event()

        def first() -> int:
            self.assertTrue(last_began.wait(PATIENCE))
            return self.spark.range(3).count()

        def last() -> int:
            last_began.set()
            return self.spark.range(4).count()

        self.assertEqual(run_queries(self.spark, [first, last]), [3, 4])

    def test_number(self) -> None:
        """No more than so many run at once."""
        running: list[int] = []
        most = 0
        lock = threading.Lock()

        def query() -> None:
            nonlocal most
            with lock:
                running.append(1)
                most = max(most, len(running))
            self.spark.range(1).count()
            with lock:
                running.pop()

        run_queries(self.spark, [query] * (3 * AT_ONCE))
        self.assertTrue(1 <= most <= AT_ONCE)

    def test_failure(self) -> None:
        """The first error is raised when those that have begun are over; the rest never begin."""
        ended: list[str] = []
        has_begun, has_failed = threading.Event(), threading.Event()

        def fails() -> None:
            self.assertTrue(has_begun.wait(PATIENCE))
            has_failed.set()
            raise ValueError("this one")

        def lasts() -> None:
            has_begun.set()
            self.assertTrue(has_failed.wait(PATIENCE))
            self.spark.range(1).count()
            ended.append("lasts")

        def never() -> None:
            ended.append("never")

        queries: list[Callable[[], None]] = [fails, lasts]
        with self.assertRaisesRegex(ValueError, "this one"):
            run_queries(self.spark, queries)
        self.assertEqual(ended, ["lasts"])
        self.patch(parallel_queries, "AT_ONCE", 1)
        with self.assertRaisesRegex(ValueError, "this one"):
            run_queries(self.spark, [fails, never])

    def test_cluster(self) -> None:
        """Where executors may be lost, queries run one after the other, in this thread."""
        self.patch(parallel_queries, "may_lose_executors", lambda spark: True)
        here = threading.get_ident()
        self.assertEqual(run_queries(self.spark, [threading.get_ident] * 2), [here] * 2)

    def test_properties(self) -> None:
        """The caller's settings of jobs hold for these."""
        context = self.spark.sparkContext
        self.addCleanup(context.setLocalProperty, "amqproute.test", None)
        context.setLocalProperty("amqproute.test", "night")
        found = run_queries(self.spark, [lambda: context.getLocalProperty("amqproute.test")] * 2)
        self.assertEqual(found, ["night"] * 2)


class InterruptTests(SparkCase):
    """Ctrl-C, in a process of its own: its session would end with it."""

    def test_jobs_are_cancelled(self) -> None:
        """Queries that would take hours end, also those that start their job later."""
        program = (
            "import os, signal, threading, time\n"
            "from amqproute.pipeline.parallel_queries import run_queries\n"
            "from amqproute.pipeline.spark_session import session\n"
            "from tests.pipeline.support import SETTINGS\n"
            "spark = session(master='local[1]', memory='512m', settings=SETTINGS)\n"
            "spark.sparkContext.setLogLevel('OFF')\n"
            "def query(seconds):\n"
            "    time.sleep(seconds)\n"
            "    spark.range(1 << 62).selectExpr('sum(id % 7)').collect()\n"
            "def interrupt():\n"
            "    while not spark.sparkContext.statusTracker().getActiveJobsIds():\n"
            "        time.sleep(0.01)\n"
            "    os.kill(os.getpid(), signal.SIGINT)\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "threading.Thread(target=interrupt, daemon=True).start()\n"
            "try:\n"
            "    run_queries(spark, [lambda: query(0), lambda: query(1)])\n"
            "except KeyboardInterrupt:\n"
            "    print('ended')\n"
        )
        done = run_python(program, seconds=3 * PATIENCE)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "ended"), done.stderr[-2000:])
