# SPDX-License-Identifier: Apache-2.0
"""The pages that the pipeline has published about past days."""

from __future__ import annotations

from typing import Final, get_args

from amqproute.dashboard.display_units import BASE, date_time, size
from amqproute.dashboard.list_parts import part_addresses
from amqproute.dashboard.management_source import ROWS_SHOWN
from amqproute.dashboard.page_blocks import (
    Block,
    Cell,
    Column,
    Command,
    Note,
    Page,
    PageState,
    Table,
    TableRow,
)
from amqproute.dashboard.report_files import MOST_LISTED, ReportList

__all__ = ["reports_page"]

_STATES: Final[tuple[PageState, ...]] = get_args(PageState)
_RUN: Final = "amqproute pipeline run --journal /var/lib/amqproute/journal --warehouse {}"


def reports_page(facts: ReportList | None, refused: str = "", cursor: str = "") -> Page:
    """Make the page.

    Args:
        facts: the pages; None if no warehouse is configured, or they are not for this user.
        refused: why they are not; empty if they are.
        cursor: the last day of the part of the list before; empty for the first part.
    """
    return Page(
        "Report",
        _blocks(facts, refused, cursor),
        "report",
        subtitle="what the pipeline has found out about past days",
        is_live=False,
    )


def _blocks(facts: ReportList | None, refused: str, cursor: str) -> list[Block]:
    if refused:
        return [Note("refused", refused, "doubtful")]
    if facts is None:
        return [
            Note(
                "none",
                "No report: the dashboard does not know where the pipeline keeps its tables.",
                "doubtful",
                [
                    "The pipeline makes tables from the audit journals of one or many brokers, and "
                    "a page for each day: volumes, delays, failures, and whether every message is "
                    "accounted for.",
                    "Set management.pipeline to its warehouse, and reload.",
                ],
                [Command(_RUN.format("/var/lib/amqproute-pipeline"))],
            )
        ]
    if facts.trouble:
        words = f"The pages cannot be read: {facts.trouble}"
        return [Note("trouble", words, "bad", ["The daemon reads them as its own user."])]
    if not facts.files:
        words = f"No report has been published in {facts.warehouse} yet."
        return [Note("none", words, "doubtful", commands=[Command(_RUN.format(facts.warehouse))])]
    newest = facts.files[0]
    blocks: list[Block] = (
        []
        if cursor
        else [
            Note(
                f"headline-{place}",
                f"{newest.days}: {each.words}",
                next((state for state in _STATES if state == each.state), "doubtful"),
                each.details,
            )
            for place, each in enumerate(facts.headlines)
        ]
    )
    behind = [each for each in facts.files if not cursor or each.days < cursor]
    part = behind[:ROWS_SHOWN]
    rows = [
        TableRow(
            each.name,
            [
                Cell(each.days, f"{BASE}/report/{each.name}"),
                Cell(date_time(each.written_ms)),
                Cell(size(each.octets)),
            ],
        )
        for each in part
    ]
    columns = [
        Column("day (UTC)", "code"),
        Column("written (UTC)", "number"),
        Column("size", "number", is_minor=True),
    ]
    note = f"From {facts.warehouse}, the newest days first"
    note += f", {MOST_LISTED} at most." if len(facts.files) >= MOST_LISTED else "."
    last = part[-1].days if len(behind) > len(part) else ""
    first, more = part_addresses("report", not cursor, last)
    blocks.append(
        Table(
            "reports",
            "Pages",
            columns,
            rows,
            empty="No older page.",
            note=note,
            total=len(facts.files),
            first=first,
            more=more,
        )
    )
    return blocks
