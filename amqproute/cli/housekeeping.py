# SPDX-License-Identifier: Apache-2.0
"""Maintenance of the tables by ``amqproute pipeline``: `compact`, `prune` and `fsck`."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Unpack

import click

from amqproute.cli import render
from amqproute.cli.command_error import DONE, NEGATIVE
from amqproute.cli.pipeline_analysis import filled
from amqproute.cli.pipeline_session import SparkOptions, started
from amqproute.pipeline import soundness
from amqproute.pipeline.days import spans
from amqproute.pipeline.ingest import compact as compact_tables
from amqproute.pipeline.retention import prune as prune_tables
from amqproute.pipeline.soundness import WRONG, Examined, State
from amqproute.pipeline.warehouse import Warehouse
from amqproute.plurals import counted

__all__ = ["compact", "fsck", "prune"]


def compact(warehouse: str, most: int, as_json: bool, **spark: Unpack[SparkOptions]) -> int:
    """Merge the files of days that arrived in many pieces."""
    with started(warehouse, **spark) as running:
        tables = Warehouse(running, warehouse)
        filled(tables)
        written = compact_tables(tables, most=most)
    if as_json:
        render.json_text({"written": written})
    else:
        click.echo(f"{counted(written, 'day')} put together.")
    return DONE


def prune(
    warehouse: str, keep_days: int, dry_run: bool, as_json: bool, **spark: Unpack[SparkOptions]
) -> int:
    """Remove days older than a number of days from the tables."""
    with started(warehouse, **spark) as running:
        tables = Warehouse(running, warehouse)
        filled(tables)
        gone = prune_tables(tables, keep_days, datetime.now(UTC).date(), is_trial=dry_run)
    if as_json:
        said = {
            "since": gone.since.isoformat(),
            "days": [day.isoformat() for day in gone.days],
            "directories": gone.directories,
            "waiting": gone.waiting,
            "dry-run": dry_run,
        }
        render.json_text(said)
        return DONE
    if not gone.days:
        click.echo(f"Nothing is older than {gone.since}.")
        return DONE
    verb = "would go" if dry_run else "went"
    click.echo(f"{counted(len(gone.days), 'day')} {verb}: {spans(gone.days)}.")
    if gone.waiting:
        render.warn(
            f"{counted(gone.waiting, 'entry', 'entries')} of these days had not ended by what the "
            "tables know; `trace` does not find them any more, `amqproute journal find` may"
        )
    return DONE


_NEEDED = (State.LIVE, State.REPLACED, State.UNFINISHED, State.LIST, State.PAGE)


def fsck(
    warehouse: str,
    show_all: bool,
    fast: bool,
    remove: bool,
    as_json: bool,
    **spark: Unpack[SparkOptions],
) -> int:
    """Check the files of the tables."""
    with started(warehouse, **spark) as running:
        tables = Warehouse(running, warehouse)
        if not tables.files.names("log"):
            filled(tables)
        found = list(soundness.examine(tables, reads_all=not fast))
        removed = soundness.remove(tables, found) if remove else 0
    numbers = Counter(each.state for each in found)
    shown = [each for each in found if show_all or each.state not in _NEEDED]
    if as_json:
        render.json_text(
            {
                "files": {str(state): numbers[state] for state in State},
                "removed": removed,
                "found": [_as_json(each) for each in shown],
            }
        )
    else:
        _print(shown, numbers, removed)
    return NEGATIVE if any(numbers[state] for state in WRONG) else DONE


def _as_json(each: Examined) -> dict[str, object]:
    return {
        "path": each.path,
        "state": str(each.state),
        "octets": each.octets,
        "change": each.change,
        "table": each.table or None,
        "day": each.day or None,
        "words": each.words or None,
    }


def _print(shown: list[Examined], numbers: Counter[State], removed: int) -> None:
    if shown:
        render.table(
            ["state", "table", "day", "change", "octets", "file", "why"],
            [
                [
                    each.state, each.table or None, each.day or None, each.change, each.octets,
                    each.path, each.words or None,
                ]
                for each in shown
            ],
            right="change octets",
        )  # fmt: skip
        click.echo()
    counts = [f"{numbers[state]:,} {state}" for state in State if numbers[state]]
    click.echo(f"Files: {', '.join(counts)}.")
    if removed:
        click.echo(f"{counted(removed, 'leftover')} removed.")
    elif numbers[State.LEFTOVER]:
        click.echo("Leftovers go with: amqproute pipeline fsck --remove")
