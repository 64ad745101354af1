# SPDX-License-Identifier: Apache-2.0
"""The command ``amqproute pipeline reconcile``; it needs Spark, and is imported on use."""

from __future__ import annotations

import tempfile
from datetime import date
from pathlib import Path
from typing import Unpack

import click
from pyspark.sql import SparkSession

from amqproute.cli import render
from amqproute.cli.command_error import DONE, NEGATIVE, USAGE, CommandError
from amqproute.cli.pipeline_session import SparkOptions, started
from amqproute.pipeline.agreement import agreement_page, in_words, instant, listed_rows
from amqproute.pipeline.charts import duration
from amqproute.pipeline.exchange import between, check_days, open_source
from amqproute.pipeline.reconcile import (
    DISCREPANCIES,
    NOT_COVERED,
    VERDICTS,
    Reconciliation,
)
from amqproute.pipeline.reconcile import (
    reconcile as reconcile_days,
)
from amqproute.pipeline.reuse import Reuse, may_lose_executors

__all__ = ["reconcile"]


def reconcile(
    ours: Path, theirs: Path, day: date | None, our_domain: str | None, their_domain: str | None,
    output: Path | None, grace: float, limit: int, as_json: bool, **spark: Unpack[SparkOptions],
) -> int:  # fmt: skip
    """Compare our journal with a partner's."""
    with (
        started(output or "this directory", **spark) as running,
        tempfile.TemporaryDirectory(prefix="amqproute-", dir=_shared(running, output)) as folder,
        Reuse() as reuse,
    ):
        scratch = Path(folder)
        first = open_source(running, ours, day, scratch / "ours", our_domain)
        second = open_source(running, theirs, day, scratch / "theirs", their_domain)
        if first.domain == second.domain:
            step = "give our journal with --ours and the partner's with --theirs"
            raise CommandError(USAGE, "pipeline.source", f"both are of {first.domain}", step)
        result = reconcile_days(*between(first, second), day=day, grace_seconds=grace, reuse=reuse)
        if day is not None:
            check_days((first, second), day, sum(result.counts.values()))
        place = output or Path(f"reconciliation-{second.domain}-{day or 'all'}")
        result.listed.coalesce(1).write.mode("overwrite").parquet(str(place / "reconciliation"))
        (place / "index.html").write_text(agreement_page(result), encoding="utf-8")
        _print_agreement(result, limit, place, as_json)
        for side in (first, second):
            if side.unread:
                render.warn(f"{side.directory}: {side.unread}; what they say is missing here")
    return NEGATIVE if result.is_discrepant else DONE


def _shared(running: SparkSession, output: Path | None) -> Path | None:
    """Return the folder for intermediate tables.

    It is beside the output, which all executors can access; None, the system's default, if the
    executors run in this process.
    """
    if not may_lose_executors(running):
        return None
    place = Path() if output is None else output.parent
    place.mkdir(parents=True, exist_ok=True)
    return place.absolute()


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
