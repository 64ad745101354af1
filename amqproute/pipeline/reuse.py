# SPDX-License-Identifier: Apache-2.0
"""Rows that are computed once and used several times, even if executors are lost.

Spark recomputes a plan for each query that uses it. Rows used by several queries are computed once,
and the way to keep them depends on possible losses:

* A local session is one process. It keeps them as a local checkpoint, which forgets the plan: later
  queries are planned faster, and the rows are freed with the last reference.
* On a cluster an executor may be lost with everything it keeps: its machine fails, or is
  reassigned. There rows are cached and keep their plan, so that Spark recomputes only the lost
  ones. A local checkpoint would end the run with ``CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND``.

Tables in files, and Spark's reliable checkpoints, survive as well. But they would be written to be
read once or twice, and a killed driver leaves them behind, where the next one cannot distinguish
them from those of a run still at work. Executors end with their driver, and their cache with them.
``python -m benchmarks.reuse`` measures all four side by side.
"""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Self

from pyspark.sql import DataFrame, SparkSession

__all__ = ["Reuse", "may_lose_executors"]


def may_lose_executors(spark: SparkSession) -> bool:
    """Return whether a session has executors that can end before it does."""
    return not spark.sparkContext._jsc.isLocal()  # type: ignore[attr-defined]


class Reuse:
    """Computes rows now, and keeps them until its context ends."""

    def __init__(self) -> None:
        self._kept = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._kept.close()

    def computed(self, rows: DataFrame) -> DataFrame:
        """Return the same rows, computed. On a cluster they are valid until the context ends."""
        if not may_lose_executors(rows.sparkSession):
            return rows.localCheckpoint()
        cached = rows.persist()
        self._kept.callback(cached.unpersist)
        cached.count()
        return cached
