# SPDX-License-Identifier: Apache-2.0
"""Independent queries at the same time.

Before a query computes anything, Spark plans it and compiles code for it, in one thread. With a
million events that is a third of a query's time, in which the other processors have nothing to do.
So queries that do not need each other's results run in threads: while one is planned, another is
computed. Tasks of queries that came first go first, so with much to compute the queries follow each
other as before, and need no more memory.

On a cluster they run one after the other. There planning is a small share of the time, and a worker
that is lost delays one query instead of several.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from typing import Final, TypeVar

from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

from amqproute.pipeline.reuse import may_lose_executors

__all__ = ["AT_ONCE", "run_queries"]

T = TypeVar("T")

AT_ONCE: Final = 3
"""Queries that run at the same time on one machine. The driver plans each in one thread."""

_CANCEL_SECONDS: Final = 0.2


def run_queries(spark: SparkSession, queries: Sequence[Callable[[], T]]) -> list[T]:
    """Call functions that start queries, several at a time, and return their results in order.

    Args:
        spark: the session that the queries belong to.
        queries: the functions. The one that takes longest should be the first.

    Raises:
        Exception: what the first of the functions that failed has raised. Those that have not begun
            by then never do, and those that have are waited for.
        KeyboardInterrupt: the jobs of all functions have been cancelled.
    """
    if may_lose_executors(spark) or len(queries) < 2:
        return [query() for query in queries]
    is_over = threading.Event()

    def begun(query: Callable[[], T]) -> T:
        if is_over.is_set():
            raise CancelledError
        try:
            return query()
        except BaseException:
            is_over.set()
            raise

    with ThreadPoolExecutor(AT_ONCE, "query") as threads:
        # The threads inherit the properties of this one, such as the description of its jobs.
        inheriting = inheritable_thread_target(spark)(begun)
        # They begin in order, so the first error is that of a query and not a CancelledError.
        calls = [threads.submit(inheriting, query) for query in queries]
        try:
            return [call.result() for call in calls]
        except KeyboardInterrupt:
            is_over.set()
            _cancel(spark, calls)
            raise


def _cancel(spark: SparkSession, calls: Sequence[Future[T]]) -> None:
    """Cancel jobs until no function runs. One that is being planned starts its job later."""
    left = {call for call in calls if not call.cancel()}
    while left:
        spark.sparkContext.cancelAllJobs()
        left = wait(left, _CANCEL_SECONDS).not_done
