# SPDX-License-Identifier: Apache-2.0
"""The nightly run: from closed segments to entries, messages and figures, in one go.

All of these are made anew of the days that something has arrived for, and of `REACH` days
on both sides of them: a message that came on one day may go on another. What is older than that
stands as it was last made. Of some of these days the page says something else then (`retold`).

Which days these are stands in the tables themselves (`Snapshot.pending`): `ingest` adds them, and
`settle` takes them off when everything of them is there, their pages too. So a run that was killed,
wherever it was, is made good by the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Final

from pyspark.sql import functions as F

from amqproute.pipeline.conservation import balance, violations
from amqproute.pipeline.figures import latencies, queues, reasons, volumes
from amqproute.pipeline.report import Facts, Tables, facts
from amqproute.pipeline.tables import Snapshot, Warehouse
from amqproute.pipeline.traces import hops, messages

__all__ = ["facts_of", "refresh", "retold", "settle"]

REACH: Final = 7
"""Days between the records of one message, at most."""


def refresh(warehouse: Warehouse) -> Snapshot:
    """Make entries, messages and figures anew of the days that runs have arrived for.

    Args:
        warehouse: its tables of silver and gold are changed, all at once.

    Returns:
        What the tables consist of now. Its `Snapshot.pending` are the days that were made; they
        stay pending until `settle`, for whoever makes something of them.

    Raises:
        Conflict: somebody else has changed the tables meanwhile.
    """
    base = warehouse.snapshot()
    days = base.pending
    if not days:
        return base
    first, last = min(days) - timedelta(REACH), max(days) + timedelta(REACH)
    made = _between(first, last)
    # A beginning or an end of a day next to these belongs to entries of these.
    read = _between(first - timedelta(REACH), last + timedelta(REACH))
    of_these = F.col("day").between(F.lit(first), F.lit(last))
    entries = warehouse.stage("hops", hops(warehouse.read("runs", read, base)).where(of_these))
    others = [part for part in base.of("hops", read) if part not in set(base.of("hops", made))]
    known = warehouse.read_parts("hops", [*others, *entries])
    fresh = warehouse.read_parts("hops", entries)
    runs = warehouse.read("runs", made, base)
    later = [day for day in base.days("runs") if day >= first]
    stocked = warehouse.read("runs", later, base)
    frames = {
        "messages": messages(known),
        "violations": violations(stocked, fresh),
        "balance": balance(stocked, fresh),
        "latencies": latencies(fresh),
        "volumes": volumes(fresh),
        "reasons": reasons(runs),
        "queues": queues(fresh),
    }
    added = [*entries]
    gone = base.of("hops", made)
    for table, rows in frames.items():
        added += warehouse.stage(table, rows.where(of_these))
        gone += base.of(table, made)
    return warehouse.publish(base, added, gone)


def retold(warehouse: Warehouse, made: Snapshot) -> Sequence[date]:
    """Return the days of which there is something to tell, in order.

    Besides those that records have come of, these are the days of messages that came to their end
    now, and those of entries that conservation does not allow: what vanished yesterday may have
    come the week before.

    Args:
        warehouse: the tables.
        made: from `refresh`.
    """
    if not made.pending:
        return []
    first, last = min(made.pending) - timedelta(REACH), max(made.pending) + timedelta(REACH)
    days = _between(first, last)
    ended = F.timestamp_micros("ended_us").cast("date").isin(sorted(made.pending))
    found = warehouse.read("violations", days, made).where(~F.col("hidden")).select("day")
    for table in ("hops", "messages"):
        found = found.unionByName(warehouse.read(table, days, made).where(ended).select("day"))
    return sorted({row.day for row in found.distinct().collect()} | made.pending)


def settle(warehouse: Warehouse, made: Snapshot) -> None:
    """Say that everything is made of what had arrived.

    Args:
        warehouse: the tables.
        made: from `refresh`.

    Raises:
        Conflict: somebody else has changed the tables meanwhile; the days stay pending.
    """
    if made.pending:
        warehouse.publish(made, (), pending=())


def _between(first: date, last: date) -> Sequence[date]:
    return [first + timedelta(n) for n in range((last - first).days + 1)]


def facts_of(warehouse: Warehouse, first: date, last: date) -> Facts:
    """Ask the tables about a range of days; see `amqproute.pipeline.report.facts`."""
    days = _between(first, last)
    snapshot = warehouse.snapshot()
    tables = Tables(
        **{
            name: warehouse.read(name, days, snapshot)
            for name in ("runs", "hops", "messages", "rejects", "violations")
        }
    )
    return facts(tables, first, last)
