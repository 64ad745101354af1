# SPDX-License-Identifier: Apache-2.0
"""The commands of ``amqproute pipeline``; they need Spark, and are imported on use."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final, Unpack

import click
from pyspark.sql import Row
from pyspark.sql import functions as F

from amqproute.cli import render
from amqproute.cli.command_error import DONE, NEGATIVE, USAGE, CommandError
from amqproute.cli.pipeline_session import SparkOptions, reconnect, started
from amqproute.config import load
from amqproute.config.loader import find
from amqproute.journal.record import RecordKind
from amqproute.pipeline import stream as table_stream
from amqproute.pipeline.agreement import broker_name, instant
from amqproute.pipeline.charts import duration, octets
from amqproute.pipeline.days import spans
from amqproute.pipeline.exchange import recent_octets, segments_of
from amqproute.pipeline.facts import FATES, STAGES, WAITING, WarehouseFacts
from amqproute.pipeline.ingest import IngestSummary
from amqproute.pipeline.ingest import ingest as ingest_journals
from amqproute.pipeline.nightly import (
    facts_of,
    gone_of,
    refresh,
    retold,
    settle,
    still_wrong,
)
from amqproute.pipeline.report import BEHIND, headline, report_page, several
from amqproute.pipeline.warehouse import Warehouse, WarehouseSnapshot

__all__ = ["filled", "ingest", "report", "run", "stream", "trace"]

PRINTED: Final = 10
"""Largest number of rows of a printed list."""


def configured(journals: tuple[Path, ...]) -> list[Path]:
    """Return the given journals, or that of this machine's broker.

    Raises:
        SourceError: one has no closed segments.
    """
    found = _meant(journals)
    for journal in found:
        segments_of(journal)
    return found


def _meant(journals: tuple[Path, ...]) -> list[Path]:
    return list(journals) or [load(find(None)).state_directory / "journal"]


def closed(journals: tuple[Path, ...]) -> list[Path]:
    """Return the folders of closed segments of `configured` journals.

    Open segments belong to the daemon, which may move them at any moment.

    Raises:
        SourceError: a journal has none.
    """
    return [folder for journal in configured(journals) for folder in segments_of(journal)]


# -- ingest ------------------------------------------------------------------------------------


def ingest(
    journals: tuple[Path, ...],
    warehouse: str,
    everywhere: bool,
    as_json: bool,
    **spark: Unpack[SparkOptions],
) -> int:
    """Load closed segments of journals into the tables."""
    with started(warehouse, octets=recent_octets(_meant(journals)), **spark) as running:
        tables = Warehouse(running, warehouse)
        taken = ingest_journals(tables, closed(journals), look_everywhere=everywhere)
    if as_json:
        render.json_text(dataclasses.asdict(taken))
        return DONE
    click.echo(
        f"{taken.segments:,} segments, {taken.records:,} records in {taken.lines:,} lines; "
        f"{taken.duplicates:,} lines were already present"
    )
    _warn_of(taken)
    return DONE


def _warn_of(taken: IngestSummary) -> None:
    if taken.unread:
        render.warn(f"{several(taken.unread, 'line')} cannot be read: see the table `rejects`")
    if taken.tampered:
        render.warn(
            f"{several(taken.tampered, 'line does', 'lines do')} not follow from the line before: "
            "a journal was changed after it was written; see the table `rejects`, and amqproute "
            "journal verify"
        )
    if taken.contradicting:
        render.warn(
            f"{several(taken.contradicting, 'line contradicts', 'lines contradict')} records with "
            "the same numbers in the tables: a journal was changed, or continues in two places; "
            "see the table `rejects`, and amqproute journal verify"
        )


# -- stream ------------------------------------------------------------------------------------


def stream(
    journals: tuple[Path, ...], output: str, every: str, once: bool, lateness: str, at_once: int,
    **spark: Unpack[SparkOptions],
) -> int:  # fmt: skip
    """Follow journals, and keep the figures of each hour up to date."""
    with started(output, **spark) as running:
        query = table_stream.follow(
            running, configured(journals), output,
            lateness=lateness, every=None if once else every, at_once=at_once,
        )  # fmt: skip
        done = table_stream.StreamProgress()
        try:
            while not query.awaitTermination(_LOOK_SECONDS):
                done = _print_progress(done, table_stream.progress(query, done))
        except KeyboardInterrupt:
            reconnect(running)
        done = _print_progress(done, table_stream.progress(query, done))
        query.stop()
    upto = f"hours that ended before {done.until}" if done.until else "nothing new; the figures"
    click.echo(f"{done.steps:,} steps; {upto} are in {output}/live.")
    return DONE


_LOOK_SECONDS: Final = 5


def _print_progress(
    before: table_stream.StreamProgress, done: table_stream.StreamProgress
) -> table_stream.StreamProgress:
    """Warn of omissions since the last call."""
    if dropped := done.dropped - before.dropped:
        render.warn(
            f"{dropped:,} rows came later than --lateness and are not in the figures; the nightly "
            "run has them"
        )
    if rejected := done.rejected - before.rejected:
        render.warn(
            f"{rejected:,} lines cannot be read; the nightly run keeps them in the table `rejects`"
        )
    return done


# -- report, trace -----------------------------------------------------------------------------


def report(
    warehouse: str, day: date | None, first: date | None, last: date | None, output: Path | None,
    as_json: bool, **spark: Unpack[SparkOptions],
) -> int:  # fmt: skip
    """Write a report page about a day, or a range of days."""
    with started(warehouse, **spark) as running:
        tables = Warehouse(running, warehouse)
        said = facts_of(tables, *_range(tables, day, first, last))
    page = _page_path(warehouse, said, output)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(report_page(said), encoding="utf-8")
    if as_json:
        render.json_text(_as_json(said, page))
    else:
        _print_report(said, page)
    return NEGATIVE if said.is_wrong else DONE


def _range(
    tables: Warehouse, day: date | None, first: date | None, last: date | None
) -> tuple[date, date]:
    """Return the selected days, at least one."""
    if day is not None and (first or last):
        raise click.UsageError("give --day, or --from and --to")
    if first and last and first > last:
        raise click.UsageError(f"--from {first} is after --to {last}")
    snapshot = filled(tables)
    known = snapshot.days("runs")
    since = day or first or (known[0] if last else known[-1])
    until = day or last or known[-1]
    if not any(since <= each <= until for each in known):
        what = since.isoformat() if since == until else f"{since} to {until}"
        raise CommandError(
            USAGE, "pipeline.day", f"{tables.base}: no records of {what}",
            f"available: {spans(known)}",
        )  # fmt: skip
    unmade = sorted(day for day in snapshot.pending if since <= day <= until)
    if unmade:
        come = f"records of {spans(unmade)} have not been processed yet"
        raise CommandError(USAGE, "pipeline.pending", f"{tables.base}: {come}", _make(tables))
    return since, until


def filled(tables: Warehouse) -> WarehouseSnapshot:
    """Return a snapshot of the tables.

    Raises:
        CommandError: there are no tables.
    """
    snapshot = tables.snapshot()
    if not snapshot.days("runs"):
        what = f"{tables.base}: no tables there"
        if "://" not in tables.base and not Path(tables.base).is_dir():
            what = f"{tables.base}: there is no such directory"
            if Path(tables.base).exists():
                what = f"{tables.base} is no directory"
        raise CommandError(USAGE, "pipeline.empty", what, _make(tables))
    return snapshot


def _make(tables: Warehouse) -> str:
    return f"make them: amqproute pipeline run --journal DIR --warehouse {tables.base}"


def _page_path(warehouse: str, said: WarehouseFacts, output: Path | None) -> Path:
    if output is not None:
        return output
    days = said.first.isoformat() if said.first == said.last else f"{said.first}-{said.last}"
    folder = Path() if "://" in warehouse else Path(warehouse) / "report"
    return folder / f"{days}.html"


def _as_json(said: WarehouseFacts, page: Path) -> dict[str, object]:
    """Return a report for programs."""
    overall = said.overall
    return {
        "first": said.first.isoformat(),
        "last": said.last.isoformat(),
        "organizations": said.domains,
        "records": said.records,
        "messages": overall.messages if overall else 0,
        "fates": {words: said.number(fate) for fate, words in FATES.items()},
        "latency-us": {
            "p50": overall.p50 if overall else None,
            "p99": overall.p99 if overall else None,
        },
        "hops": [
            {
                "organization": row.domain,
                "to": row.to_whom,
                "messages": row.messages,
                "latency-us": {"p50": row.p50, "p99": row.p99},
                "stages-p99-us": {name.removesuffix("_us"): row[name] for name in STAGES},
            }
            for row in said.routes
        ],
        "partners": [
            {
                "organization": row.domain,
                "direction": row.direction,
                "partner": row.partner,
                "messages": row.messages,
                "octets": row.octets,
                "unmeasured": row.unmeasured,
            }
            for row in said.partners
        ],
        "not-accounted-for": said.unaccounted,
        "contradicted": said.disagreed,
        "altered-lines": said.altered_lines,
        "headline": [
            {"state": state, "words": words, "details": details}
            for state, words, details in headline(said)
        ],
        "page": str(page),
    }


def _print_report(said: WarehouseFacts, page: Path) -> None:
    overall = said.overall
    fates = {words: said.number(fate) for fate, words in FATES.items()}
    total = overall.messages if overall else 0
    p50, p99 = (overall.p50, overall.p99) if overall else (None, None)
    render.table(
        ["messages", *(words for words, number in fates.items() if number)],
        [[total, *(number for number in fates.values() if number)]],
    )
    if p50 is not None and p99 is not None:
        click.echo(f"Half within {duration(p50)}, 99 of 100 within {duration(p99)}.")
    if said.routes:
        click.echo()
        render.table(
            ["from", "to", "messages", "half within", "99 of 100 within", "latest at"],
            [
                [row.domain, row.to_whom, row.messages, duration(row.p50 or 0),
                 duration(row.p99 or 0), _latest(row)]
                for row in said.routes[:PRINTED]
            ],
            right="messages",
        )  # fmt: skip
        _print_others(len(said.routes))
    if said.partners:
        click.echo()
        render.table(
            ["organization", "", "partner", "messages", "octets"],
            [
                [row.domain, row.direction, row.partner, row.messages, octets(row.octets)]
                for row in said.partners[:PRINTED]
            ],
            right="messages octets",
        )
        _print_others(len(said.partners))
        if said.unmeasured:
            render.warn(said.unmeasured)
    click.echo()
    for state, words, details in headline(said):
        if state == "good":
            click.echo(f"{words}.")
        else:
            render.warn("; ".join([words, *details]))
    click.echo(f"The page is {page}.")


def _latest(row: Row) -> str | None:
    """Return the stage before the end of a hop with the longest 99th percentile."""
    took, name = max((row[name] or 0, name) for name in STAGES if name != BEHIND)
    return f"{name.removesuffix('_us')}, {duration(took)}" if took else None


def _print_others(number: int) -> None:
    if number > PRINTED:
        click.echo(f"{number - PRINTED:,} more are on the page.")


def run(
    journals: tuple[Path, ...],
    warehouse: str,
    everywhere: bool,
    as_json: bool,
    **spark: Unpack[SparkOptions],
) -> int:
    """Run everything: tables, figures, conservation, and the page of each new day."""
    result = DONE
    days = []
    with started(warehouse, octets=recent_octets(_meant(journals)), **spark) as running:
        tables = Warehouse(running, warehouse)
        taken = ingest_journals(tables, closed(journals), look_everywhere=everywhere)
        made = refresh(tables)
        if not as_json:
            click.echo(f"{taken.segments:,} new segments with {taken.records:,} records.")
        for day in retold(tables, made):
            said = facts_of(tables, day, day)
            page = _page_path(warehouse, said, None)
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(report_page(said), encoding="utf-8")
            if as_json:
                days.append(_as_json(said, page))
            else:
                click.echo(f"\n{day}:")
                _print_report(said, page)
            if said.is_wrong:
                result = NEGATIVE
        settle(tables, made)
        if not made.pending and (number := still_wrong(tables, made)):
            words = several(number, "violation remains", "violations remain")
            render.warn(f"nothing is new, and {words} of the last week: see the pages")
            result = NEGATIVE
    if as_json:
        render.json_text({"taken": dataclasses.asdict(taken), "days": days})
    _warn_of(taken)
    return result


def trace(message_id: str, warehouse: str, as_json: bool, **spark: Unpack[SparkOptions]) -> int:
    """Show where a message is, and its path."""
    with started(warehouse, **spark) as running:
        tables = Warehouse(running, warehouse)
        snapshot = filled(tables)
        found = tables.read("messages", None, snapshot).where(F.col("message_id") == message_id)
        rows = found.orderBy("began_us").limit(20).collect()
        gone = _gone(tables, snapshot, rows)
    if not rows:
        raise _not_found(tables, snapshot, message_id)
    for row in rows:
        fates = [hop.fate or gone.get((hop.stream, hop.entry), WAITING) for hop in row.hops]
        # Copies and reports follow the hops of the message itself.
        way = [hop for hop in row.hops if hop.parent is None]
        lost = gone.get((way[-1].stream, way[-1].entry)) if way else None
        fate = lost or row.fate or WAITING
        if as_json:
            said = row.asDict(recursive=True) | {"day": row.day.isoformat()}
            render.json_line(said | {"fate": None if fate == WAITING else fate})
            continue
        click.echo(
            f"{render.printable(message_id)} for {render.printable(row.to or '?')}, "
            f"{octets(row.bare_size or row.size or 0)}: {FATES.get(fate, fate)}"
            + (f" after {duration(row.latency_us)}" if row.latency_us is not None else "")
        )
        render.table(
            ["at", "queue", "came", "went", "how", "to", "waited", "wire", "entry"],
            [
                [
                    broker_name(hop), hop.queue, instant(hop.began_us), instant(hop.ended_us),
                    FATES.get(how, how), hop.peer, _span(hop.queue_us), _span(hop.wire_us),
                    f"{hop.stream}/{hop.entry}",
                ]
                for hop, how in zip(row.hops, fates, strict=True)
            ],
        )  # fmt: skip
    return DONE


def _gone(
    tables: Warehouse, snapshot: WarehouseSnapshot, rows: Sequence[Row]
) -> dict[tuple[str, int], str]:
    """Return the entries of missing messages, with their fates.

    They have not ended and do not wait either, or the next broker did not get them.
    """
    left = [hop for row in rows for hop in row.hops if hop.fate in (None, RecordKind.RELAYED)]
    if not left:
        return {}
    times = [hop.ended_us if hop.began_us is None else hop.began_us for hop in left]
    days = [datetime.fromtimestamp(time / 1e6, UTC).date() for time in times]
    away = gone_of(tables, snapshot, min(days), max(days))
    those = F.col("entry").isin([hop.entry for hop in left])
    return {(each.stream, each.entry): each.gone for each in away.where(those).collect()}


def _not_found(tables: Warehouse, snapshot: WarehouseSnapshot, message_id: str) -> CommandError:
    known = snapshot.days("runs")
    words = f"no message {message_id!r} in the tables of {spans(known)}"
    step = "load the newest segments: amqproute pipeline run"
    if snapshot.pending:
        words += f"; those of {spans(snapshot.pending)} have not been processed yet"
        step = _make(tables)
    return CommandError(NEGATIVE, "not-found", words, step)


def _span(microseconds: int | None) -> str | None:
    return None if microseconds is None else duration(microseconds)
