# SPDX-License-Identifier: Apache-2.0
"""The earlier days that a night's records change, and the rows of other days that stay.

A day's records mostly begin and end entries of that day, and a few of the day before. Recomputing a
week each night would cost as much as all of that week's nights. So only those days are recomputed
that have an entry of a new record, or a message with an entry that a new one came from; the rows of
the other days stay.

Results from some days' records alone would be wrong if entries or messages extend to other days: an
end without its beginning, a second hop without the first. Those have rows on the other days, by
which they are recognized and left out (`without`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqproute.pipeline.lines import spread
from amqproute.pipeline.traces import KINDS, may_be_bridged
from amqproute.pipeline.warehouse import Warehouse, WarehouseSnapshot

__all__ = ["TouchedDays", "touched_days", "without"]


@dataclass(frozen=True, slots=True)
class TouchedDays:
    """Days to recompute.

    Attributes:
        days: all of them; for everything that may change with them, such as conservation.
        tables: the days of tables that have fewer of them.
    """

    days: frozenset[date]
    tables: Mapping[str, frozenset[date]] = field(default_factory=dict)

    def of(self, table: str) -> frozenset[date]:
        """Return the days of a table."""
        return self.tables.get(table, self.days)


_HOPS: Final = "hops"
_BRIDGED: Final = "bridged"


def touched_days(
    warehouse: Warehouse, base: WarehouseSnapshot, days: Collection[date]
) -> TouchedDays:
    """Find the days that the records of pending days change.

    Args:
        warehouse: the tables.
        base: their contents.
        days: the candidates.
    """
    told = {table: frozenset(base.days(table)) for table in ("runs", _HOPS, "messages")}
    # Some listed days may not have been processed yet.
    new = {day for day in days if day in base.pending or day in told["runs"] - told[_HOPS]}
    old = set(days) - new
    if not base.of(_HOPS, old):
        return TouchedDays(frozenset(days))
    fields = ("entry", "parent", "from_stream", "from_entry", "trail")
    runs = warehouse.read("runs", new, base).where(F.col("kind").isin(KINDS))
    records = spread(runs, fields)
    named = F.array(
        F.struct("stream", "entry"),
        F.struct("stream", F.col("parent").alias("entry")),
        F.struct(F.col("from_stream").alias("stream"), F.col("from_entry").alias("entry")),
    )
    keys = records.select(F.inline(named)).where("stream IS NOT NULL AND entry IS NOT NULL")
    entries, messages = warehouse.read(_HOPS, old, base), warehouse.read("messages", old, base)
    root = F.struct(F.col("trace_stream").alias("stream"), F.col("trace_entry").alias("entry"))
    hops = F.transform("hops", lambda hop: F.struct(hop["stream"], hop["entry"]))
    ended = F.timestamp_micros("ended_us").cast("date").alias("ended")
    there = entries.select(F.lit(_HOPS).alias("table"), "day", ended, "stream", "entry")
    there = there.unionByName(
        messages.select(
            F.lit("messages").alias("table"),
            "day",
            F.lit(None).cast("date").alias("ended"),
            F.inline(F.concat(F.array(root), hops)).alias("stream", "entry"),
        )
    )
    columns = ["table", "day", "ended"]
    touched = there.join(keys, ["stream", "entry"], "left_semi").select(*columns)
    bridged = F.lit(_BRIDGED).alias("table")
    for rows in (entries, records):
        none = [F.lit(None).cast("date").alias(name) for name in columns[1:]]
        touched = touched.unionByName(rows.where(may_be_bridged()).select(bridged, *none))
    found = touched.distinct().collect()
    # A hop over a broker without a journal is found by the message alone, on any day.
    if any(row["table"] == _BRIDGED for row in found):
        return TouchedDays(frozenset(days))
    unmade = old & (told[_HOPS] - told["messages"])
    changed = new | {row.day for row in found if row["table"] == _HOPS}
    ended_before = {row.ended for row in found if row.ended is not None}
    figures = frozenset(changed | unmade | ended_before) & frozenset(days)
    tables = {
        _HOPS: frozenset(changed),
        "messages": frozenset(changed | unmade | {row.day for row in found}),
        # By the time of a beginning or end; by the day of a record; by the day of an entry.
        "latencies": figures,
        "volumes": figures,
        "reasons": frozenset(new | unmade),
        "queues": frozenset(changed | unmade),
    }
    return TouchedDays(frozenset(days), tables)


def without(rows: DataFrame, key: tuple[str, str], *others: DataFrame) -> DataFrame:
    """Leave out the rows that belong to another day.

    Args:
        rows: the rows with the columns of `key`.
        key: names of its stream and entry.
        others: rows of other days, with stream and entry in this order.
    """
    for other in others:
        rows = rows.join(other.toDF(*key), list(key), "left_anti")
    return rows
