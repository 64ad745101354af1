# SPDX-License-Identifier: Apache-2.0
"""Gold: altered lines of journals, as violations.

Nothing of such a line is in the tables, so the violation is not about an entry but about a file:
`node` is the name of its segment and the number of the line. Unreadable lines are not included,
since a disk may have damaged them. They stay in ``rejects``, and are a hole in the journal
(`amqproute.pipeline.coverage`).

Whoever has altered a file can do it again, so a good copy elsewhere does not clear the altered one:
it stands until the file itself has been replaced, and taken again without a rejected line
(`standing`).
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import date
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from amqproute.pipeline.chain import TAMPERED
from amqproute.pipeline.duplicates import CONTRADICTS
from amqproute.pipeline.table_schema import REJECTS, VIOLATIONS, conform
from amqproute.pipeline.warehouse import Warehouse, WarehouseSnapshot

__all__ = ["CHANGED_LINE", "OTHER_LINE", "REFUSALS", "refusals", "standing"]

CHANGED_LINE: Final = "tampered"
"""Its hash does not follow from its text and the line before it."""
OTHER_LINE: Final = "contradicting"
"""Its records differ from those in the tables."""
REFUSALS: Final = (CHANGED_LINE, OTHER_LINE)

_BROKER: Final = r"^(.+)-[0-9a-f]{16}-[0-9]{20}\.jsonl$"


def standing(
    warehouse: Warehouse, snapshot: WarehouseSnapshot, days: Collection[date] | None
) -> DataFrame | None:
    """Return the rejected lines of some days, without those of files that have none any more.

    Args:
        warehouse: the tables.
        snapshot: their contents.
        days: the days of the files; None for all.

    Returns:
        `REJECTS`; None if no line of these days was rejected.
    """
    if not snapshot.of("rejects", days):
        return None
    rejects = warehouse.read("rejects", days, snapshot)
    return _standing(rejects, warehouse.read("segments", days, snapshot))


def _standing(rejects: DataFrame, segments: DataFrame) -> DataFrame:
    """Leave out the rejected lines of files that were replaced, and have none any more.

    Args:
        rejects: `REJECTS`.
        segments: `SEGMENTS` of the same days.
    """
    taken = F.struct(F.coalesce("taken_us", F.lit(0)), "modified_us")
    last = segments.groupBy("path").agg(F.max_by("rejected", taken).alias("left"))
    good = last.where("left = 0").select(_short("path").alias("good"))
    left = rejects.join(good, _short("path") == F.col("good"), "left_anti")
    # One that was replaced by another bad one has been taken twice.
    return left.dropDuplicates(["path", "line", "text"])


def _short(path: str) -> Column:
    """Return a path in the one of its forms that all tables can be compared by."""
    return F.regexp_replace(path, "^file:/+", "file:/")


def refusals(rejects: DataFrame) -> DataFrame:
    """List the refused lines that were altered, or contradict the tables.

    Args:
        rejects: `REJECTS`.

    Returns:
        `VIOLATIONS`, one row for each line; ``at_us`` is the beginning of the day of its file.
    """
    reason = F.col("reason")
    rows = conform(rejects, REJECTS).withColumn(
        "what",
        F.when(reason.startswith(TAMPERED), CHANGED_LINE).when(
            reason.startswith(CONTRADICTS), OTHER_LINE
        ),
    )
    nothing = F.lit(None).cast("string")
    found = rows.where("what IS NOT NULL").select(
        "what",
        F.nullif(F.regexp_extract("segment", _BROKER, 1), F.lit("")).alias("broker"),
        nothing.alias("stream"),
        F.lit(None).cast("long").alias("entry"),
        nothing.alias("message_id"),
        nothing.alias("message_id_type"),
        F.concat_ws(":", "segment", "line").alias("node"),
        F.unix_micros(F.col("day").cast("timestamp")).alias("at_us"),
        F.lit(False).alias("hidden"),
        "day",
        "domain",
    )
    return conform(found, VIOLATIONS)
