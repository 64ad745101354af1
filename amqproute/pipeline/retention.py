# SPDX-License-Identifier: Apache-2.0
"""How long the tables keep a day.

What `prune` takes off the tables goes with all of its tables, and at once. A snapshot that somebody
reads stays readable for `amqproute.pipeline.warehouse.KEPT_SECONDS`; then whoever writes next
removes the files. `WarehouseSnapshot.since` remembers where the tables begin, so that segments of
the days before, which a journal may still have, are not taken in again.

What a later night needs stays, whatever is asked for: the days of which records have come that
nothing was made of, with those that their messages may have come from, and the last
`LEAST_KEPT_DAYS`, since what comes late changes the days of a week. Of segments it is known for
some time longer that they were taken (`amqproute.pipeline.ingest`).
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
    """What went off the tables, or would have gone.

    Attributes:
        since: the first day that stays.
        days: that went, in order.
        directories: that they had.
        waiting: entries of these days that had not ended by what the tables know.
    """

    since: date
    days: tuple[date, ...] = ()
    directories: int = 0
    waiting: int = 0


def prune(warehouse: Warehouse, keep_days: int, today: date, *, is_trial: bool = False) -> Pruned:
    """Remove days older than a number of days from the tables.

    Args:
        warehouse: where the tables are.
        keep_days: so many days before `today` stay, and `today`.
        today: the day, UTC.
        is_trial: only say what would go.

    Raises:
        ValueError: `keep_days` is less than `LEAST_KEPT_DAYS`.
        PublicationConflict: somebody else has changed the tables meanwhile.
    """
    if keep_days < LEAST_KEPT_DAYS:
        raise ValueError(f"at least {LEAST_KEPT_DAYS} days have to stay, not {keep_days}")
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
    """Return the first day that stays: none that a night needs goes, and none comes back."""
    since = min([wanted, *(day - timedelta(2 * REACH) for day in base.pending)])
    return since if base.since is None else max(since, base.since)


def _is_over(part: TablePart, since: date) -> bool:
    longer = 2 * LONGEST_SEGMENT_DAYS if part.table == "segments" else 0
    return part.day < (since - timedelta(longer)).isoformat()
