# SPDX-License-Identifier: Apache-2.0
"""The nightly run: from closed segments to entries, messages and figures, in one go.

Figures are recomputed for the days with new records, and for `REACH` days on both sides of them: a
message of one day may continue on another. Entries and messages, which cost the most, are
recomputed only for those of these days that the new records change (`touched_days`). Older days
stay unchanged. So the cost of a night does not depend on the number of days, and late records of a
day of last month cost the days around that one (`_windows`). For some of these days the page
changes (`retold`).

The tables themselves list these days (`WarehouseSnapshot.pending`): `ingest` adds them, and
`settle` removes them when everything is done, including their pages. So the next run makes up for a
killed one, wherever it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqproute.journal.record import RecordKind
from amqproute.pipeline.conservation import balance, judged, violations
from amqproute.pipeline.days import between
from amqproute.pipeline.facts import GONE, FactTables, WarehouseFacts, facts, last_hop, vanished
from amqproute.pipeline.figures import latencies, queues, reasons, volumes
from amqproute.pipeline.handovers import contradictions
from amqproute.pipeline.parallel_queries import run_queries
from amqproute.pipeline.refusals import refusals, standing
from amqproute.pipeline.reuse import Reuse
from amqproute.pipeline.touched import TouchedDays, touched_days, without
from amqproute.pipeline.traces import hops, messages
from amqproute.pipeline.warehouse import TablePart, Warehouse, WarehouseSnapshot

__all__ = ["MADE", "REACH", "facts_of", "gone_of", "refresh", "retold", "settle", "still_wrong"]

REACH: Final = 7
"""Most days between the records of one message."""

MADE: Final = (
    "hops", "messages", "balance", "latencies", "volumes", "reasons", "queues", "violations",
)  # fmt: skip
"""Tables written by `refresh`, in whole days."""


@dataclass(frozen=True, slots=True)
class _Window:
    """Days that are recomputed together, since messages may span several of them.

    Attributes:
        made: the days.
        read: these, and those around them: a beginning or an end on an adjacent day may belong to
            entries of these.
    """

    made: Sequence[date]
    read: Sequence[date]

    @classmethod
    def around(cls, first: date, last: date) -> _Window:
        """Return the window around days with new records."""
        first, last = first - timedelta(REACH), last + timedelta(REACH)
        return cls(between(first, last), between(first - timedelta(REACH), last + timedelta(REACH)))


def _windows(pending: Iterable[date]) -> list[_Window]:
    """Return the windows of days to compute again, in order.

    Days so far apart that no window reads another's results have windows of their own.
    """
    runs: list[tuple[date, date]] = []
    for day in sorted(pending):
        if runs and day - runs[-1][1] <= timedelta(3 * REACH):
            runs[-1] = (runs[-1][0], day)
        else:
            runs.append((day, day))
    return [_Window.around(first, last) for first, last in runs]


def refresh(warehouse: Warehouse) -> WarehouseSnapshot:
    """Recompute entries, messages and figures of the days with new runs.

    Args:
        warehouse: its silver and gold tables are changed, all at once.

    Returns:
        The new contents of the tables. Its `WarehouseSnapshot.pending` are the processed days; they
        stay pending until `settle`, for further processing by the caller.

    Raises:
        PublicationConflict: another writer has changed the tables meanwhile.
    """
    with Reuse() as reuse:
        return _refreshed(warehouse, reuse)


def _refreshed(warehouse: Warehouse, reuse: Reuse) -> WarehouseSnapshot:
    base = warehouse.snapshot()
    if not base.pending:
        return base
    added: list[TablePart] = []
    gone: list[TablePart] = []
    for window in _windows(base.pending):
        touched = touched_days(warehouse, base, window.made)
        added += _made(warehouse, base, window, touched, reuse)
        gone += [part for table in MADE for part in base.of(table, touched.of(table))]
    return warehouse.publish(base, added, gone)


def _made(
    warehouse: Warehouse,
    base: WarehouseSnapshot,
    window: _Window,
    touched: TouchedDays,
    reuse: Reuse,
) -> list[TablePart]:
    """Compute everything for the days of a window, unpublished."""
    changed = touched.of("hops")
    near = warehouse.read("runs", window.read, base)
    runs = warehouse.read("runs", touched.of("reasons"), base)

    def staged(table: str, rows: DataFrame) -> list[TablePart]:
        of_these = F.col("day").isin(sorted(touched.of(table)))
        return warehouse.stage(table, rows.where(of_these))

    entries, reasoned = run_queries(
        warehouse.spark,
        [
            lambda: _entries(warehouse, base, window, changed),
            lambda: staged("reasons", reasons(runs)),
        ],
    )
    others = base.of("hops", set(window.read) - changed)
    known = warehouse.read_parts("hops", [*others, *entries])
    stay = base.of("hops", set(window.made) - changed)
    figured = _timed(warehouse, [*others, *entries], touched.of("latencies"))
    fresh = warehouse.read_parts("hops", [*stay, *entries])
    # Judged by the contents of queues up to the end of the window, as in the last night that
    # processed a day.
    stocked = warehouse.read("runs", [day for day in window.read if day >= window.made[0]], base)
    rejects = standing(warehouse, base, window.read)

    def conserved() -> list[TablePart]:
        doubtful = judged(stocked, fresh, reuse=reuse)
        parts = staged("balance", balance(fresh, doubtful))
        with contradictions(known, near, doubtful, rejects) as between_brokers:
            within = violations(stocked, doubtful, rejects)
            if rejects is not None:
                altered = refusals(rejects.where(F.col("day").isin(list(window.made))))
                within = within.unionByName(altered)
            return [*parts, *staged("violations", within.unionByName(between_brokers))]

    made = run_queries(
        warehouse.spark,
        [
            lambda: staged("messages", _messages(warehouse, base, window, touched, entries, reuse)),
            conserved,
            # By the time of an end, which may be on a processed day while its entry is not.
            lambda: staged("latencies", latencies(figured)),
            lambda: staged("volumes", volumes(figured)),
            lambda: staged("queues", queues(fresh)),
        ],
    )
    return [*entries, *reasoned, *(part for parts in made for part in parts)]


def _entries(
    warehouse: Warehouse, base: WarehouseSnapshot, window: _Window, days: Collection[date]
) -> list[TablePart]:
    """Make the entries of some days of a window."""
    runs = warehouse.read("runs", _around(base, "hops", window, days), base)
    rows = hops(runs).where(F.col("day").isin(sorted(days)))
    if others := base.of("hops", set(window.read) - set(days)):
        rows = without(rows, _ENTRY, warehouse.read_parts("hops", others).select(*_ENTRY))
    return warehouse.stage("hops", rows)


def _timed(warehouse: Warehouse, entries: Iterable[TablePart], days: Collection[date]) -> DataFrame:
    """Return the entries that began or ended between the first and the last of some days."""
    reached = {(day + timedelta(n)).isoformat() for day in days for n in range(-REACH, 2)}
    rows = warehouse.read_parts("hops", [part for part in entries if part.day in reached])
    # Numbers are compared, so that files are skipped by the least and the greatest of each.
    first, last = (
        int(datetime.combine(d, time(), UTC).timestamp()) for d in (min(days), max(days))
    )
    since, until = first * 1_000_000, (last + 86_400) * 1_000_000 - 1
    return rows.where(
        F.col("began_us").between(since, until) | F.col("ended_us").between(since, until)
    )


_ENTRY: Final = ("stream", "entry")
_TRACE: Final = ("trace_stream", "trace_entry")


def _messages(
    warehouse: Warehouse,
    base: WarehouseSnapshot,
    window: _Window,
    touched: TouchedDays,
    entries: Sequence[TablePart],
    reuse: Reuse,
) -> DataFrame:
    """Make the messages of some days of a window.

    Args:
        warehouse: the tables.
        base: their contents.
        window: all days that matter.
        touched: the days to compute.
        entries: the new ones.
        reuse: keeps intermediate rows.
    """
    days = touched.of("messages")
    around = {day.isoformat() for day in _around(base, "messages", window, days)}
    there = [*base.of("hops", set(window.read) - touched.of("hops")), *entries]
    near = [part for part in there if part.day in around]
    far = [part for part in there if part.day not in around]
    above = warehouse.read_parts("hops", there) if far else None
    rows = messages(warehouse.read_parts("hops", near), reuse, above)
    rows = rows.where(F.col("day").isin(sorted(days)))
    others = [warehouse.read_parts("hops", far).select(*_ENTRY)] if far else []
    if told := base.of("messages", set(window.read) - days):
        others.append(warehouse.read_parts("messages", told).select(*_TRACE))
    return without(rows, _TRACE, *others)


def _around(
    base: WarehouseSnapshot, table: str, window: _Window, days: Collection[date]
) -> list[date]:
    """Return the days whose records or entries are needed to compute some days of a table.

    Those are the days themselves and `REACH` days after them; the day before, as clocks differ; and
    unprocessed days, which have no rows to identify entries by.
    """
    reached = {day + timedelta(n) for day in days for n in range(-1, REACH + 1)}
    unknown = {*base.days("runs")} - {*base.days(table)}
    return [day for day in window.read if day in reached or day in unknown]


def retold(warehouse: Warehouse, made: WarehouseSnapshot) -> Sequence[date]:
    """Return the days whose pages change, in order.

    Besides the days with new records, these are the days of messages that have now ended, and those
    of entries that violate conservation: an entry that vanished yesterday may have come the week
    before, and its message to another broker on another day.

    Args:
        warehouse: the tables.
        made: from `refresh`.
    """
    if not made.pending:
        return []
    days = [day for window in _windows(made.pending) for day in window.made]
    ended = F.timestamp_micros("ended_us").cast("date").isin(sorted(made.pending))
    wrong = warehouse.read("violations", days, made).where(~F.col("hidden"))
    found = wrong.select("day")
    left = F.col("fate").isNull() | (F.col("fate") == RecordKind.RELAYED)
    last = warehouse.read("messages", days, made).where(left)
    last = last.select("day", last_hop().alias("hop")).select("day", "hop.stream", "hop.entry")
    lost = wrong.where(F.col("what").isin(*GONE)).select("stream", "entry")
    found = found.unionByName(last.join(lost, ["stream", "entry"]).select("day"))
    for table in ("hops", "messages"):
        found = found.unionByName(warehouse.read(table, days, made).where(ended).select("day"))
    return sorted({row.day for row in found.distinct().collect()} | made.pending)


def still_wrong(warehouse: Warehouse, made: WarehouseSnapshot) -> int:
    """Return the number of violations on the last days of the tables that no gap may explain.

    If no records have come, no page is written, and nothing has been put right either.

    Args:
        warehouse: the tables.
        made: from `refresh`.
    """
    days = made.days("runs")
    if not days:
        return 0
    lately = between(days[-1] - timedelta(REACH), days[-1])
    return warehouse.read("violations", lately, made).where(~F.col("hidden")).count()


def settle(warehouse: Warehouse, made: WarehouseSnapshot) -> None:
    """Mark all pending days as processed.

    Args:
        warehouse: the tables.
        made: from `refresh`.

    Raises:
        PublicationConflict: another writer has changed the tables meanwhile; the days stay pending.
    """
    if made.pending:
        warehouse.publish(made, (), pending=())


def facts_of(warehouse: Warehouse, first: date, last: date) -> WarehouseFacts:
    """Query the tables about a range of days; see `amqproute.pipeline.facts.facts`."""
    days = between(first, last)
    snapshot = warehouse.snapshot()
    tables = {
        name: warehouse.read(name, days, snapshot)
        for name in ("runs", "hops", "messages", "violations")
    }
    known = set(snapshot.days("runs"))
    missing = [day for day in days if day not in known]
    one = timedelta(1)
    found = FactTables(
        **tables,
        rejects=standing(warehouse, snapshot, days),
        vanished=gone_of(warehouse, snapshot, first, last),
        around=warehouse.read("runs", between(first - one, last + one), snapshot),
        lately=warehouse.read("runs", between(first - REACH * one, last), snapshot),
        missing=missing,
    )
    return facts(found, first, last)


def gone_of(
    warehouse: Warehouse, snapshot: WarehouseSnapshot, first: date, last: date
) -> DataFrame:
    """Return `amqproute.pipeline.facts.vanished` for the messages of some days.

    Args:
        warehouse: the tables.
        snapshot: their contents.
        first: day.
        last: day.
    """
    days = between(first, last + timedelta(REACH))
    started = warehouse.read("runs", days, snapshot).where(F.col("kind") == RecordKind.START)
    starts = started.groupBy("stream").agg(F.max("time").alias("start_us"))
    hops = warehouse.read("hops", days, snapshot)
    return vanished(hops, warehouse.read("violations", days, snapshot), starts)
