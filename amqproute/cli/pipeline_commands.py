# SPDX-License-Identifier: Apache-2.0
"""Options and help of the commands of ``amqproute pipeline``.

They are carried out by `amqproute.cli.pipeline_analysis`, `amqproute.cli.housekeeping` and
`amqproute.cli.pipeline_partners`. Those need Spark, and are imported when a command runs: help
works without it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Final

import click

from amqproute.cli.command_error import USAGE, CommandError
from amqproute.cli.commands.common_options import DayOption, json_option
from amqproute.cli.program_commands import ProgramCommand
from amqproute.pipeline.defaults import (
    GRACE_SECONDS,
    LATENESS,
    LEAST_KEPT_DAYS,
    MOST_PIECES,
    STEP_SEGMENTS,
)

__all__ = [
    "compact",
    "fsck",
    "ingest",
    "prune",
    "reconcile",
    "report",
    "run",
    "stream",
    "trace",
]

Decorator = Callable[[Callable[..., object]], Callable[..., object]]

WAREHOUSE: Final = "/var/lib/amqproute-pipeline"
ANALYSIS: Final = "amqproute.cli.pipeline_analysis"
PARTNERS: Final = "amqproute.cli.pipeline_partners"
HOUSEKEEPING: Final = "amqproute.cli.housekeeping"
_NEEDED: Final = ("pyspark", "py4j", "pyarrow", "pandas", "numpy")


def _carry_out(module: str, name: str, *arguments: object, **options: object) -> int:
    """Call a function of a module that needs Spark, and return the exit code.

    Raises:
        CommandError: a package that it needs is not installed.
    """
    try:
        function: Callable[..., int] = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _NEEDED:
            raise
        raise CommandError(
            USAGE,
            "pipeline.not-installed",
            f"the package {error.name} is not installed here",
            "install the pipeline: pip install 'amqproute[pipeline]'",
        ) from None
    return function(*arguments, **options)


warehouse_option: Decorator = click.option(
    "--warehouse",
    metavar="DIR",
    envvar="AMQPROUTE_WAREHOUSE",
    show_envvar=True,
    default=WAREHOUSE,
    show_default=True,
    help="Directory of the tables, or any place on a file system of Hadoop.",
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


everywhere_option: Decorator = click.option(
    "--everywhere",
    is_flag=True,
    help="Read all folders of days. By default only folders that have changed: sufficient, "
    "unless a file of an older day was overwritten in place.",
)


def spark_options(command: Callable[..., object]) -> Callable[..., object]:
    """Add the options for Spark; the command takes ``spark``."""
    for option in (
        click.option("--debug", is_flag=True, help="Show Spark's own error messages."),
        click.option(
            "--local-dir",
            metavar="DIR",
            help="Folder for data that does not fit into memory. [default: the system's /tmp]",
        ),
        click.option("--memory", metavar="SIZE", help="Memory for Spark here. [default: 4g]"),
        click.option(
            "--master",
            metavar="URL",
            callback=_cluster,
            help="The cluster. [default: local[*]]",
        ),
    ):
        command = option(command)
    return command


def _cluster(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Refuse values that would cause a Java stack trace."""
    if value is None or value == "yarn" or value.startswith(("local", "spark://", "k8s://")):
        return value
    raise click.BadParameter(f"{value!r}: expected local[N], spark://HOST:PORT, k8s://URL or yarn")


@click.command(cls=ProgramCommand)
@journal_option
@warehouse_option
@everywhere_option
@spark_options
@json_option
def ingest(
    journals: tuple[Path, ...], warehouse: str, everywhere: bool, as_json: bool, **spark: object
) -> int:
    """Load closed segments of journals into the tables.

    Segments loaded before are skipped; a copy of one counts once. Lines that cannot be read are
    kept in the table `rejects`, and counted.
    """
    return _carry_out(ANALYSIS, "ingest", journals, warehouse, everywhere, as_json, **spark)


@click.command(cls=ProgramCommand)
@warehouse_option
@click.option(
    "--most",
    type=click.IntRange(min=1),
    default=MOST_PIECES,
    show_default=True,
    help="Most pieces of a day.",
)
@spark_options
@json_option
def compact(warehouse: str, most: int, as_json: bool, **spark: object) -> int:
    """Merge the files of days that arrived in many pieces.

    Each `ingest` and `run` leaves a piece for each day with new records. Concurrent readers keep
    the old pieces, which are removed a day later.
    """
    return _carry_out(HOUSEKEEPING, "compact", warehouse, most, as_json, **spark)


@click.command(cls=ProgramCommand)
@warehouse_option
@click.option(
    "--keep-days",
    metavar="DAYS",
    envvar="AMQPROUTE_KEEP_DAYS",
    show_envvar=True,
    type=click.IntRange(min=LEAST_KEPT_DAYS),
    required=True,
    help=f"Days before today that stay in the tables; at least {LEAST_KEPT_DAYS}.",
)
@click.option("--dry-run", is_flag=True, help="Print the result, and change nothing.")
@spark_options
@json_option
def prune(warehouse: str, keep_days: int, dry_run: bool, as_json: bool, **spark: object) -> int:
    """Remove days older than a number of days from the tables.

    They are removed from all tables at once. Concurrent readers are not disturbed: the files are
    removed a day later. Segments of these days are not loaded again, even if a journal still has
    them. Days that a later `run` needs stay: those with unprocessed records, and two weeks before
    them. Pages stay, too.
    """
    return _carry_out(HOUSEKEEPING, "prune", warehouse, keep_days, dry_run, as_json, **spark)


@click.command(cls=ProgramCommand)
@warehouse_option
@click.option("--all", "show_all", is_flag=True, help="Print every file, not only problems.")
@click.option("--fast", is_flag=True, help="Compare names and lengths, but no checksums.")
@click.option("--remove", is_flag=True, help="Remove leftovers: unlisted files, after a day.")
@spark_options
@json_option
def fsck(
    warehouse: str, show_all: bool, fast: bool, remove: bool, as_json: bool, **spark: object
) -> int:
    """Check the files of the tables.

    A file is live, or replaced and kept for a day for its readers; part of a change in progress, or
    the leftover of an aborted one; a list, a page; or foreign, missing or damaged. Changes nothing
    without --remove.

    Exits with 1 if a file is foreign, missing or damaged.
    """
    return _carry_out(HOUSEKEEPING, "fsck", warehouse, show_all, fast, remove, as_json, **spark)


@click.command(cls=ProgramCommand)
@journal_option
@click.option(
    "--output",
    metavar="DIR",
    required=True,
    help="Gets the table `live` and the checkpoint; with the same one the query continues.",
)
@click.option(
    "--every",
    metavar="INTERVAL",
    default="1 minute",
    show_default=True,
    help="Interval between searches for new segments.",
)
@click.option("--once", is_flag=True, help="Process the present segments, and end.")
@click.option(
    "--lateness",
    metavar="INTERVAL",
    default=LATENESS,
    show_default=True,
    help="How late a segment may arrive. Hours are closed that much later.",
)
@click.option(
    "--at-once",
    type=click.IntRange(min=1),
    default=STEP_SEGMENTS,
    show_default=True,
    help="Most segments of one step.",
)
@spark_options
def stream(
    journals: tuple[Path, ...], output: str, every: str, once: bool, lateness: str, at_once: int,
    **spark: object,
) -> int:  # fmt: skip
    """Follow journals, and keep the figures of each hour up to date.

    The traffic of each hour from and to each partner, as a growing table of Parquet files. It may
    be killed at any time and started again: nothing is counted twice or omitted.
    """
    return _carry_out(ANALYSIS, "stream", journals, output, every, once, lateness, at_once, **spark)


@click.command(cls=ProgramCommand)
@warehouse_option
@click.option(
    "--day", type=DayOption(), metavar="DAY", help="As 2026-11-22, UTC. [default: the last]"
)
@click.option("--from", "first", type=DayOption(), metavar="DAY", help="First day of a range.")
@click.option("--to", "last", type=DayOption(), metavar="DAY", help="Last day of the range.")
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
    as_json: bool, **spark: object,
) -> int:  # fmt: skip
    """Write a report page about a day, or a range of days.

    One file that needs no network: volumes, delays by stage, each partner's share, deferrals,
    failures, waiting messages, and whether every message is accounted for. Refuses days
    with records that `run` has not processed yet.

    Exits with 1 if messages are not accounted for, two brokers contradict each other, or lines of a
    journal were altered.
    """
    return _carry_out(ANALYSIS, "report", warehouse, day, first, last, output, as_json, **spark)


@click.command(cls=ProgramCommand)
@journal_option
@warehouse_option
@everywhere_option
@spark_options
@json_option
def run(
    journals: tuple[Path, ...], warehouse: str, everywhere: bool, as_json: bool, **spark: object
) -> int:
    """Run everything: tables, figures, conservation, and the page of each new day.

    Loads closed segments, follows every message through them, and writes a page for each day with
    new records, or whose messages have ended. May be killed at any time and started again.

    Exits with 1 if messages of the last week are not accounted for, if two brokers whose journals
    are here contradict each other about hand-overs of the last week, or if lines of their
    journals were altered.
    """
    return _carry_out(ANALYSIS, "run", journals, warehouse, everywhere, as_json, **spark)


@click.command(cls=ProgramCommand)
@click.argument("message_id")
@warehouse_option
@spark_options
@json_option
def trace(message_id: str, warehouse: str, as_json: bool, **spark: object) -> int:
    """Show where a message is, and its path.

    Shows up to 20 messages with this MESSAGE_ID. Messages of the last minute are not in the
    tables yet: use `amqproute why`, or the daemon's journal with `amqproute journal find`.
    """
    return _carry_out(ANALYSIS, "trace", message_id, warehouse, as_json, **spark)


@click.command(cls=ProgramCommand)
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
    help="The partner's journal, its tables, or its export: amqproute journal export.",
)
@click.option(
    "--day", type=DayOption(), metavar="DAY", help="As 2026-11-22, UTC. [default: all days]"
)
@click.option("--our-domain", metavar="DOMAIN", help="Our side, if --ours has several domains.")
@click.option("--their-domain", metavar="DOMAIN", help="Their side, likewise.")
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
    help="Distance from a gap in a journal within which nobody is accused.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    help="Most hand-overs to print; the table has all.",
)
@spark_options
@json_option
def reconcile(
    ours: Path, theirs: Path, day: date | None, our_domain: str | None, their_domain: str | None,
    output: Path | None, grace: float, limit: int, as_json: bool, **spark: object,
) -> int:  # fmt: skip
    """Compare our journal with a partner's.

    Every message that one of us handed over to the other is looked up in both journals, by store
    and entry, and its digests are compared. Clocks may differ; the difference is estimated. Gaps
    and ends of a journal are reported, and nobody is blamed for them.

    Exits with 1 if the two contradict each other, and with 2 if there are no records of the day.
    """
    return _carry_out(
        PARTNERS,
        "reconcile",
        ours,
        theirs,
        day,
        our_domain,
        their_domain,
        output,
        grace,
        limit,
        as_json,
        **spark,
    )
