# SPDX-License-Identifier: Apache-2.0
"""What ``amqproute pipeline`` does; imported when one of its commands is asked for."""

from __future__ import annotations

import contextlib
import logging
import signal
import tempfile
from collections.abc import Callable, Iterator
from datetime import date, datetime
from pathlib import Path
from types import FrameType
from typing import Any, Final

import click
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from amqproute.cli import render
from amqproute.cli.commands.options import json_option
from amqproute.cli.refusal import DONE, NEGATIVE, USAGE, Refusal
from amqproute.config import load
from amqproute.config.load import find
from amqproute.pipeline import stream as streaming
from amqproute.pipeline.agreement import agreement_page, in_words, instant, listed_rows
from amqproute.pipeline.charts import duration, octets
from amqproute.pipeline.exchange import SourceError, between, open_source, segments_of
from amqproute.pipeline.ingest import ingest as take_in
from amqproute.pipeline.java import JavaError
from amqproute.pipeline.nightly import facts_of, refresh, retold, settle
from amqproute.pipeline.reconcile import (
    DISCREPANCIES,
    GRACE_SECONDS,
    NOT_COVERED,
    VERDICTS,
    Reconciliation,
)
from amqproute.pipeline.reconcile import (
    reconcile as compare,
)
from amqproute.pipeline.report import FATES, WAITING, Facts, headline, report_page
from amqproute.pipeline.session import session
from amqproute.pipeline.tables import Conflict, Warehouse

__all__ = ["ingest", "reconcile", "report", "run", "stream", "trace"]

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

WAREHOUSE: Final = "/var/lib/amqproute-pipeline"

warehouse_option: Decorator = click.option(
    "--warehouse",
    metavar="DIR",
    envvar="AMQPROUTE_WAREHOUSE",
    show_envvar=True,
    default=WAREHOUSE,
    show_default=True,
    help="Where the tables are: a directory, or any place that Hadoop knows.",
)

journal_option: Decorator = click.option(
    "--journal",
    "journals",
    metavar="DIR",
    multiple=True,
    type=click.Path(path_type=Path),
    help="The journal of a broker, with a folder for each day; may be given more than once. "
    "[default: that of the broker configured on this machine]",
)


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what says where Spark runs; the command takes ``spark``."""
    for option in (
        click.option(
            "--local-dir",
            metavar="DIR",
            help="Where Spark puts what does not fit into memory. [default: the system's /tmp]",
        ),
        click.option("--memory", metavar="SIZE", help="Memory for Spark here. [default: 4g]"),
        click.option("--master", metavar="URL", help="The cluster. [default: local[*]]"),
    ):
        command = option(command)
    return command


class Day(click.ParamType[date]):
    """A day as in the names of folders."""

    name = "day"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> date:
        """Read ``2026-11-22``."""
        if isinstance(value, date):
            return value
        try:
            return datetime.strptime(value, "%Y-%m-%d").date()  # a day of UTC
        except ValueError:
            self.fail(f"{value!r} is no day, as 2026-11-22", param, ctx)


@contextlib.contextmanager
def started(
    master: str | None, memory: str | None, local_dir: str | None
) -> Iterator[SparkSession]:
    """Give a Spark session; what goes wrong with it and with its data becomes a refusal."""
    try:
        running = session("amqproute pipeline", master=master, memory=memory, local_dir=local_dir)
        # PySpark's own handler asks the JVM something in the middle of another question.
        before = signal.signal(signal.SIGINT, _interrupt)
        try:
            yield running
        finally:
            signal.signal(signal.SIGINT, before)
    except JavaError as error:
        raise Refusal(USAGE, "pipeline.java", str(error), "see the words above") from None
    except SourceError as error:
        step = "give the directory of a journal, of tables or of an export; see --help"
        raise Refusal(USAGE, "pipeline.source", str(error), step) from None
    except Conflict as error:
        step = "let the other run end, and start this one again"
        raise Refusal(NEGATIVE, "pipeline.conflict", str(error), step) from None
    except PySparkException as error:
        words = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise Refusal(NEGATIVE, "pipeline.spark", words, _LOOK_AT) from error
    except Py4JError as error:  # of Java's, those that PySpark has no name for
        raise Refusal(NEGATIVE, "pipeline.spark", _at_bottom(error), _LOOK_AT) from error


def _interrupt(number: int, frame: FrameType | None) -> None:
    logging.disable()  # of the question that is not answered any more
    raise KeyboardInterrupt


_LOOK_AT: Final = (
    "is there room on the disk, may this user write there, and is there enough --memory?"
)


def _at_bottom(error: Py4JError) -> str:
    """Return in a line what began it."""
    if not isinstance(error, Py4JJavaError):
        return "Spark's JVM does not answer any more"
    cause = error.java_exception
    while (before := cause.getCause()) is not None:
        cause = before
    return str(cause.toString().splitlines()[0])


def configured(journals: tuple[Path, ...]) -> list[Path]:
    """Return the journals that were given, or that of this machine's broker."""
    if journals:
        return list(journals)
    return [load(find(None)).state_directory / "journal"]


# -- ingest ------------------------------------------------------------------------------------


@click.command()
@journal_option
@warehouse_option
@spark_options
@json_option
def ingest(journals: tuple[Path, ...], warehouse: str, as_json: bool, **spark: str | None) -> int:
    """Take closed segments of journals into the tables.

    Segments that were taken before are left out; a copy of one counts once. Lines that cannot be
    read are kept in the table `rejects`, and counted.
    """
    with started(**spark) as running:
        for journal in configured(journals):
            segments_of(journal)
        taken = take_in(Warehouse(running, warehouse), configured(journals))
    if as_json:
        render.json_text({name: getattr(taken, name) for name in taken.__dataclass_fields__})
        return DONE
    click.echo(
        f"{taken.segments:,} segments, {taken.records:,} records in {taken.lines:,} lines; "
        f"{taken.duplicates:,} lines were there already"
    )
    if taken.rejected:
        render.warn(f"{taken.rejected:,} lines cannot be read: see the table `rejects`")
    return DONE


# -- reconcile -------------------------------------------------------------------------


@click.command()
@click.option(
    "--ours",
    metavar="DIR",
    required=True,
    type=click.Path(path_type=Path),
    help="Our journal (folders of days), or our tables.",
)
@click.option(
    "--theirs",
    metavar="DIR",
    required=True,
    type=click.Path(path_type=Path),
    help="The partner's journal, its tables, or what it sent: amqproute journal export.",
)
@click.option("--day", type=Day(), metavar="DAY", help="As 2026-11-22, UTC. [default: all days]")
@click.option("--our-domain", metavar="DOMAIN", help="Whose side is ours, if --ours tells of more.")
@click.option("--their-domain", metavar="DOMAIN", help="Whose side is theirs, likewise.")
@click.option(
    "--output",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Gets the table `reconciliation` (Parquet) and the page index.html. "
    "[default: reconciliation-DOMAIN-DAY here]",
)
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=GRACE_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="So close to a gap in a journal, nobody is accused either.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    help="How many hand-overs to print; the table has all.",
)
@spark_options
@json_option
def reconcile(
    ours: Path, theirs: Path, day: date | None, our_domain: str | None, their_domain: str | None,
    output: Path | None, grace: float, limit: int, as_json: bool, **spark: str | None,
) -> int:  # fmt: skip
    """Compare our journal with a partner's: does the partner agree?

    Every message that one of us handed over to the other is looked for in both journals, by store
    and entry, and its digests are compared. Clocks may differ: by how much, is estimated. Where a
    journal has a gap, or ends, that is said, and nobody is accused.

    Exits with 1 if the two contradict each other.
    """
    with started(**spark) as running, tempfile.TemporaryDirectory(prefix="amqproute-") as folder:
        scratch = Path(folder)
        first = open_source(running, ours, day, scratch / "ours", our_domain)
        second = open_source(running, theirs, day, scratch / "theirs", their_domain)
        if first.domain == second.domain:
            step = "give our journal with --ours and the partner's with --theirs"
            raise Refusal(USAGE, "pipeline.source", f"both are of {first.domain}", step)
        result = compare(*between(first, second), day=day, grace_seconds=grace)
        place = output or Path(f"reconciliation-{second.domain}-{day or 'all'}")
        result.listed.coalesce(1).write.mode("overwrite").parquet(str(place / "reconciliation"))
        (place / "index.html").write_text(agreement_page(result), encoding="utf-8")
        _print_agreement(result, limit, place, as_json)
    return NEGATIVE if result.is_discrepant else DONE


def _print_agreement(result: Reconciliation, limit: int, place: Path, as_json: bool) -> None:
    rows = listed_rows(result, limit)
    offset = result.offset
    if as_json:
        counts = {
            verdict: {
                f"{sender} to {receiver}": result.counts.get((sender, verdict), 0)
                for sender, receiver in (
                    (result.ours, result.theirs), (result.theirs, result.ours),
                )
            }
            for verdict in VERDICTS
        }  # fmt: skip
        render.json_text(
            {
                "ours": result.ours,
                "theirs": result.theirs,
                "day": result.day.isoformat() if result.day else None,
                "hand-overs": counts,
                "clock-offset-us": offset.estimate,
                "clock-offset-error-us": offset.error,
                "listed": [row.asDict() for row in rows],
                "page": str(place / "index.html"),
            }
        )
        return
    directions = [(result.ours, result.theirs), (result.theirs, result.ours)]
    headings = ["verdict", *(f"{sender} -> {receiver}" for sender, receiver in directions)]
    render.table(
        headings,
        [[v, *(result.counts.get((sender, v), 0) for sender, _ in directions)] for v in VERDICTS],
    )
    around = "" if offset.error is None else f", give or take {duration(offset.error)}"
    behind = "ahead" if offset.estimate >= 0 else "behind"
    if offset.pairs:
        click.echo(f"Their clock is {duration(abs(offset.estimate))} {behind}{around}.")
    if rows:
        click.echo()
        render.table(
            ["verdict", "from", "message-id", "handed over", "received", "entry"],
            [
                [
                    row.verdict, row.sender, row.message_id, instant(row.sent_us),
                    instant(row.taken_us), f"{row.stream}/{row.entry}",
                ]
                for row in rows
            ],
        )  # fmt: skip
    if result.count(NOT_COVERED):
        render.warn("a journal has gaps; what happened there cannot be judged: see the page")
    click.echo(f"\n{in_words(result)[1]}.")
    click.echo(f"The table and the page are in {place}.")
    if result.count(*DISCREPANCIES):
        click.echo("Where such a message is: amqproute pipeline trace MESSAGE-ID", err=True)


# -- stream ------------------------------------------------------------------------------------


@click.command()
@journal_option
@click.option(
    "--output",
    metavar="DIR",
    required=True,
    help="Gets the table `live` and the checkpoint; the same one goes on where it was.",
)
@click.option(
    "--every",
    metavar="INTERVAL",
    default="1 minute",
    show_default=True,
    help="From one look for new segments to the next.",
)
@click.option("--once", is_flag=True, help="Take what is there, and end.")
@click.option(
    "--lateness",
    metavar="INTERVAL",
    default=streaming.LATENESS,
    show_default=True,
    help="How late a segment may come. So much later an hour is closed.",
)
@click.option(
    "--at-once",
    type=click.IntRange(min=1),
    default=streaming.AT_ONCE,
    show_default=True,
    help="Segments of one step, at most.",
)
@spark_options
def stream(
    journals: tuple[Path, ...], output: str, every: str, once: bool, lateness: str, at_once: int,
    **spark: str | None,
) -> int:  # fmt: skip
    """Follow journals, and keep the figures of each hour up to date.

    What each hour brought from and to each partner, as a table of Parquet files that only grows.
    May be killed at any time and started again: nothing is counted twice, and nothing is left out.
    """
    with started(**spark) as running:
        places = configured(journals)
        for journal in places:
            segments_of(journal)
        query = streaming.follow(
            running, places, output,
            lateness=lateness, every=None if once else every, at_once=at_once,
        )  # fmt: skip
        with contextlib.suppress(KeyboardInterrupt):
            query.awaitTermination()
        done = streaming.progress(query)
        query.stop()
    upto = f"hours that ended before {done.until}" if done.until else "nothing new; the figures"
    click.echo(f"{done.steps:,} steps; {upto} are in {output}/live.")
    if done.dropped:
        render.warn(
            f"{done.dropped:,} rows came later than --lateness and are not in it; the nightly run "
            "has them"
        )
    return DONE


# -- report, trace -----------------------------------------------------------------------------


@click.command()
@warehouse_option
@click.option("--day", type=Day(), metavar="DAY", help="As 2026-11-22, UTC. [default: the last]")
@click.option("--from", "first", type=Day(), metavar="DAY", help="First day of a range.")
@click.option("--to", "last", type=Day(), metavar="DAY", help="Last day of it.")
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The page to write. [default: report/DAY.html in the warehouse, if that is a directory]",
)
@spark_options
@json_option
def report(
    warehouse: str, day: date | None, first: date | None, last: date | None, output: Path | None,
    as_json: bool, **spark: str | None,
) -> int:  # fmt: skip
    """Write a page about a day, or a range of days, of the tables.

    One file that needs no network: volumes, delays and at which stage, each partner's part,
    what was put off, what failed, what waits, and whether everything is accounted for. Refuses days
    of which records have come that `run` has made nothing of yet.

    Exits with 1 if messages are not accounted for.
    """
    with started(**spark) as running:
        tables = Warehouse(running, warehouse)
        said = facts_of(tables, *_range(tables, day, first, last))
    page = _page_path(warehouse, said, output)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(report_page(said), encoding="utf-8")
    _print_report(said, page, as_json)
    return NEGATIVE if said.unaccounted else DONE


def _range(
    tables: Warehouse, day: date | None, first: date | None, last: date | None
) -> tuple[date, date]:
    """Return the days that are meant, of which there is one at least."""
    if day is not None and (first or last):
        raise click.UsageError("give --day, or --from and --to")
    snapshot = tables.snapshot()
    if first and last and first > last:
        raise click.UsageError(f"--from {first} is after --to {last}")
    known = snapshot.days("runs")
    step = f"make them: amqproute pipeline run --journal DIR --warehouse {tables.base}"
    if not known:
        raise Refusal(USAGE, "pipeline.empty", f"{tables.base}: no tables there", step)
    since = day or first or (known[0] if last else known[-1])
    until = day or last or known[-1]
    if not any(since <= each <= until for each in known):
        what = since.isoformat() if since == until else f"{since} to {until}"
        raise Refusal(
            USAGE, "pipeline.day", f"{tables.base}: nothing of {what}",
            f"there is {known[0]} to {known[-1]}",
        )  # fmt: skip
    unmade = sorted(day for day in snapshot.pending if since <= day <= until)
    if unmade:
        words = f"{tables.base}: records of {unmade[0]} have come, and no figures were made of them"
        raise Refusal(USAGE, "pipeline.pending", words, step)
    return since, until


def _page_path(warehouse: str, said: Facts, output: Path | None) -> Path:
    if output is not None:
        return output
    days = said.first.isoformat() if said.first == said.last else f"{said.first}-{said.last}"
    folder = Path() if "://" in warehouse else Path(warehouse) / "report"
    return folder / f"{days}.html"


def _print_report(said: Facts, page: Path, as_json: bool) -> None:
    overall = said.overall
    fates = {words: said.number(fate) for fate, words in FATES.items()}
    total = overall.messages if overall else 0
    p50, p99 = (overall.p50, overall.p99) if overall else (None, None)
    if as_json:
        render.json_text(
            {
                "first": said.first.isoformat(),
                "last": said.last.isoformat(),
                "organizations": said.domains,
                "records": said.records,
                "messages": total,
                "fates": fates,
                "latency-us": {"p50": p50, "p99": p99},
                "not-accounted-for": said.unaccounted,
                "page": str(page),
            }
        )
        return
    render.table(
        ["messages", *(words for words, number in fates.items() if number)],
        [[total, *(number for number in fates.values() if number)]],
    )
    if p50 is not None and p99 is not None:
        click.echo(f"Half within {duration(p50)}, 99 of 100 within {duration(p99)}.")
    if said.routes:
        click.echo()
        render.table(
            ["from", "to", "messages", "half within", "99 of 100 within"],
            [
                [row.domain, row.to_whom, row.messages, duration(row.p50 or 0),
                 duration(row.p99 or 0)]
                for row in said.routes[:10]
            ],
            right="messages",
        )  # fmt: skip
    if said.partners:
        click.echo()
        render.table(
            ["organization", "", "partner", "messages", "octets"],
            [
                [row.domain, row.direction, row.partner, row.messages, octets(row.octets)]
                for row in said.partners[:10]
            ],
            right="messages octets",
        )
    click.echo()
    for state, words, details in headline(said):
        if state == "good":
            click.echo(f"{words}.")
        else:
            render.warn("; ".join([words, *details]))
    click.echo(f"The page is {page}.")


@click.command()
@journal_option
@warehouse_option
@spark_options
@json_option
def run(journals: tuple[Path, ...], warehouse: str, as_json: bool, **spark: str | None) -> int:
    """Do all of it: tables, figures, conservation, and the page of each new day.

    Takes closed segments in, follows every message through them, and writes a page for each day
    of which something has arrived, or whose messages have come to an end. May be killed at any time
    and started again.

    Exits with 1 if messages are not accounted for: as long as they are of the last week.
    """
    result = DONE
    with started(**spark) as running:
        tables = Warehouse(running, warehouse)
        places = configured(journals)
        for journal in places:
            segments_of(journal)
        taken = take_in(tables, places)
        made = refresh(tables)
        if not as_json:
            click.echo(f"{taken.segments:,} new segments with {taken.records:,} records.")
        for day in retold(tables, made):
            said = facts_of(tables, day, day)
            page = _page_path(warehouse, said, None)
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(report_page(said), encoding="utf-8")
            if not as_json:
                click.echo(f"\n{day}:")
            _print_report(said, page, as_json)
            if said.unaccounted:
                result = NEGATIVE
        settle(tables, made)
    if taken.rejected:
        render.warn(f"{taken.rejected:,} lines cannot be read: see the table `rejects`")
    return result


@click.command()
@click.argument("message_id")
@warehouse_option
@spark_options
@json_option
def trace(message_id: str, warehouse: str, as_json: bool, **spark: str | None) -> int:
    """Show where a message is, and which way it has come.

    Of all messages with this MESSAGE_ID, up to 20. One of the daemon's last minute is not in the
    tables yet: ask the daemon with `amqproute why`, or its journal with `amqproute journal find`.
    """
    with started(**spark) as running:
        tables = Warehouse(running, warehouse)
        found = tables.read("messages").where(F.col("message_id") == message_id)
        rows = found.orderBy("began_us").limit(20).collect()
    if not rows:
        step = "take the newest segments in: amqproute pipeline run"
        raise Refusal(NEGATIVE, "not-found", f"no message {message_id!r} in the tables", step)
    for row in rows:
        if as_json:
            render.json_line(row.asDict(recursive=True) | {"day": row.day.isoformat()})
            continue
        click.echo(
            f"{render.printable(message_id)} for {render.printable(row.to or '?')}, "
            f"{octets(row.size or 0)}: {FATES.get(row.fate or WAITING, row.fate)}"
            + (f" after {duration(row.latency_us)}" if row.latency_us is not None else "")
        )
        render.table(
            ["at", "queue", "came", "went", "how", "to", "waited", "wire", "entry"],
            [
                [
                    hop.broker, hop.queue, instant(hop.began_us), instant(hop.ended_us),
                    FATES.get(hop.fate or WAITING, hop.fate), hop.peer, _span(hop.queue_us),
                    _span(hop.wire_us), f"{hop.stream}/{hop.entry}",
                ]
                for hop in row.hops
            ],
        )  # fmt: skip
    return DONE


def _span(microseconds: int | None) -> str | None:
    return None if microseconds is None else duration(microseconds)
