# SPDX-License-Identifier: Apache-2.0
"""Keeping rows that are used several times, depending on possible losses."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest import mock

from tests.pipeline.support import MISSING, SparkCase

if TYPE_CHECKING or not MISSING:
    from pyspark.sql import DataFrame

    from amqproute.pipeline.reuse import Reuse, may_lose_executors


class ReuseTests(SparkCase):
    """The way of keeping rows that are used several times."""

    def test_local(self) -> None:
        """On one machine nothing can be lost: the plan is forgotten, nothing is cached."""
        self.assertFalse(may_lose_executors(self.spark))
        rows = self.spark.range(5)
        with Reuse() as reuse:
            found = reuse.computed(rows)
        self.assertEqual(found.count(), 5)
        self.assertIn("Scan ExistingRDD", plan_of(found))
        self.assertFalse(found.storageLevel.useMemory)

    def test_cluster(self) -> None:
        """Where executors may be lost the plan is kept, and cached rows end with the context."""
        rows = self.spark.range(5)
        with mock.patch("amqproute.pipeline.reuse.may_lose_executors", return_value=True):
            with Reuse() as reuse:
                found = reuse.computed(rows)
                self.assertTrue(found.storageLevel.useMemory)
                self.assertIn("Range (0, 5", plan_of(found))
            with self.assertRaises(ZeroDivisionError), Reuse() as reuse:
                reuse.computed(rows)
                raise ZeroDivisionError
        self.assertFalse(found.storageLevel.useMemory)
        self.assertEqual(found.count(), 5)


def plan_of(rows: DataFrame) -> str:
    """Return the physical plan of rows, as text."""
    return str(rows._jdf.queryExecution().executedPlan().toString())
