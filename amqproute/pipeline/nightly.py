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

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqproute.journal.record import Kind
from amqproute.pipeline.conservation import balance, judged, violations
from amqproute.pipeline.days import between
from amqproute.pipeline.facts import GONE, Facts, Tables, facts, last_hop, vanished
from amqproute.pipeline.figures import latencies, queues, reasons, volumes
from amqproute.pipeline.handovers import contradictions
from amqproute.pipeline.refusals import refusals
from amqproute.pipeline.reuse import Reuse
from amqproute.pipeline.tables import Snapshot, Warehouse
from amqproute.pipeline.traces import hops, messages

__all__ = ["facts_of", "gone_of", "refresh", "retold", "settle"]

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
    with Reuse() as reuse:
        return _refreshed(warehouse, reuse)


def _refreshed(warehouse: Warehouse, reuse: Reuse) -> Snapshot:
    base = warehouse.snapshot()
    days = base.pending
    if not days:
        return base
    first, last = min(days) - timedelta(REACH), max(days) + timedelta(REACH)
    made = between(first, last)
    # A beginning or an end of a day next to these belongs to entries of these.
    read = between(first - timedelta(REACH), last + timedelta(REACH))
    of_these = F.col("day").between(F.lit(first), F.lit(last))
    entries = warehouse.stage("hops", hops(warehouse.read("runs", read, base)).where(of_these))
    others = [part for part in base.of("hops", read) if part not in set(base.of("hops", made))]
    known = warehouse.read_parts("hops", [*others, *entries])
    fresh = warehouse.read_parts("hops", entries)
    runs = warehouse.read("runs", made, base)
    later = [day for day in base.days("runs") if day >= first]
    stocked = warehouse.read("runs", later, base)
    near = [day for day in base.days("runs") if day >= min(read)]
    rejects = warehouse.read("rejects", near, base) if base.of("rejects", near) else None
    doubtful = judged(stocked, fresh, reuse=reuse)
    altered = refusals(warehouse.read("rejects", made, base))
    frames = {
        "messages": messages(known, reuse),
        "balance": balance(fresh, doubtful),
        "latencies": latencies(fresh),
        "volumes": volumes(fresh),
        "reasons": reasons(runs),
        "queues": queues(fresh),
    }
    added = [*entries]
    gone = base.of("hops", made)
    known_near = warehouse.read("runs", near, base)
    with contradictions(known, known_near, doubtful, rejects) as between_brokers:
        within = violations(stocked, doubtful, rejects).unionByName(altered)
        frames["violations"] = within.unionByName(between_brokers)
        for table, rows in frames.items():
            added += warehouse.stage(table, rows.where(of_these))
            gone += base.of(table, made)
    return warehouse.publish(base, added, gone)


def retold(warehouse: Warehouse, made: Snapshot) -> Sequence[date]:
    """Return the days of which there is something to tell, in order.

    Besides those that records have come of, these are the days of messages that came to their end
    now, and those of entries that conservation does not allow: what vanished yesterday may have
    come the week before, and its message to another broker on another day.

    Args:
        warehouse: the tables.
        made: from `refresh`.
    """
    if not made.pending:
        return []
    days = between(min(made.pending) - timedelta(REACH), max(made.pending) + timedelta(REACH))
    ended = F.timestamp_micros("ended_us").cast("date").isin(sorted(made.pending))
    wrong = warehouse.read("violations", days, made).where(~F.col("hidden"))
    found = wrong.select("day")
    left = F.col("fate").isNull() | (F.col("fate") == Kind.RELAYED)
    last = warehouse.read("messages", days, made).where(left)
    last = last.select("day", last_hop().alias("hop")).select("day", "hop.stream", "hop.entry")
    lost = wrong.where(F.col("what").isin(*GONE)).select("stream", "entry")
    found = found.unionByName(last.join(lost, ["stream", "entry"]).select("day"))
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


def facts_of(warehouse: Warehouse, first: date, last: date) -> Facts:
    """Ask the tables about a range of days; see `amqproute.pipeline.facts.facts`."""
    days = between(first, last)
    snapshot = warehouse.snapshot()
    tables = {
        name: warehouse.read(name, days, snapshot)
        for name in ("runs", "hops", "messages", "rejects", "violations")
    }
    known = set(snapshot.days("runs"))
    missing = [day for day in days if day not in known]
    gone = gone_of(warehouse, snapshot, first, last)
    return facts(Tables(**tables, vanished=gone, missing=missing), first, last)


def gone_of(warehouse: Warehouse, snapshot: Snapshot, first: date, last: date) -> DataFrame:
    """Return `amqproute.pipeline.facts.vanished` of what messages of some days have become.

    Args:
        warehouse: the tables,
        snapshot: and what they consist of.
        first: day.
        last: day.
    """
    days = between(first, last + timedelta(REACH))
    started = warehouse.read("runs", days, snapshot).where(F.col("kind") == Kind.START)
    starts = started.groupBy("stream").agg(F.max("time").alias("start_us"))
    hops = warehouse.read("hops", days, snapshot)
    return vanished(hops, warehouse.read("violations", days, snapshot), starts)
