# SPDX-License-Identifier: Apache-2.0
"""Retention of days in the tables.

`prune` removes days from all tables at once. A snapshot in use stays readable for
`amqproute.pipeline.warehouse.KEPT_SECONDS`; then the next writer removes the files.
`WarehouseSnapshot.since` records the first day of the tables, so that older segments, which a
journal may still have, are not taken in again.

Days needed by a later night stay in any case: unprocessed days, with those that their messages may
have come from, and the last `LEAST_KEPT_DAYS`, since late records change the days of a week.
Ingested segments are remembered for some time longer (`amqproute.pipeline.ingest`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

from pyspark.sql import functions as F

from amqproute.pipeline.defaults import LEAST_KEPT_DAYS
from amqproute.pipeline.lines import LONGEST_SEGMENT_DAYS
from amqproute.pipeline.nightly import REACH
from amqproute.pipeline.warehouse import TablePart, Warehouse, WarehouseSnapshot

__all__ = ["Pruned", "prune"]


@dataclass(frozen=True, slots=True)
class Pruned:
    """The days removed from the tables, or to be removed.

    Attributes:
        since: the first remaining day.
        days: the removed days, in order.
        directories: their number of directories.
        waiting: their entries without an end, according to the tables.
    """

    since: date
    days: tuple[date, ...] = ()
    directories: int = 0
    waiting: int = 0


def prune(warehouse: Warehouse, keep_days: int, today: date, *, is_trial: bool = False) -> Pruned:
    """Remove days older than a number of days from the tables.

    Args:
        warehouse: where the tables are.
        keep_days: number of days before `today` that stay, besides `today`.
        today: the day, UTC.
        is_trial: only report the result.

    Raises:
        ValueError: `keep_days` is less than `LEAST_KEPT_DAYS`.
        PublicationConflict: another writer has changed the tables meanwhile.
    """
    if keep_days < LEAST_KEPT_DAYS:
        raise ValueError(f"at least {LEAST_KEPT_DAYS} days must stay, not {keep_days}")
    base = warehouse.snapshot()
    since = _since(base, today - timedelta(keep_days))
    gone = [part for part in base.parts if _is_over(part, since)]
    days = tuple(sorted({date.fromisoformat(part.day) for part in gone}))
    if not gone:
        return Pruned(since)
    entries = warehouse.read_parts("hops", [part for part in gone if part.table == "hops"])
    waiting = entries.where(F.col("fate").isNull() & F.col("kind").isNotNull()).count()
    if not is_trial:
        warehouse.publish(base, (), gone, since=since)
    return Pruned(since, days, len(gone), waiting)


def _since(base: WarehouseSnapshot, wanted: date) -> date:
    """Return the first remaining day: no day needed by a night goes, and none comes back."""
    since = min([wanted, *(day - timedelta(2 * REACH) for day in base.pending)])
    return since if base.since is None else max(since, base.since)


def _is_over(part: TablePart, since: date) -> bool:
    longer = 2 * LONGEST_SEGMENT_DAYS if part.table == "segments" else 0
    return part.day < (since - timedelta(longer)).isoformat()
