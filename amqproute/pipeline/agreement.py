# SPDX-License-Identifier: Apache-2.0
"""The page about a reconciliation: does our partner agree?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import Row
from pyspark.sql import functions as F

from amqproute.pipeline.charts import duration
from amqproute.pipeline.coverage import DAMAGED, DOWN, FOREVER, GAP, MISSING, RESTORED
from amqproute.pipeline.page import (
    PageCell,
    PageColumn,
    PageMarkup,
    note,
    page,
    section,
    table,
    tiles,
)
from amqproute.pipeline.reconcile import (
    AGREED,
    DISCREPANCIES,
    IN_FLIGHT,
    NOT_COVERED,
    VERDICTS,
    ClockOffset,
    Reconciliation,
)

__all__ = [
    "LISTED_ON_PAGE",
    "agreement_page",
    "broker_name",
    "gap_limit",
    "in_words",
    "instant",
    "listed_rows",
]

LISTED_ON_PAGE: Final = 1000
"""Most hand-overs on a page; the table has all of them."""

_REASONS: Final = {
    MISSING: "segments are missing",
    GAP: "records could not be written",
    RESTORED: "the journal was restored from a backup, or ended without a stop and started over",
    DAMAGED: "lines are unreadable or altered",
    DOWN: "the broker was stopped",
}


def instant(microseconds: int | None) -> str | None:
    """Format a time of a record, UTC."""
    if microseconds is None:
        return None
    seconds, rest = divmod(microseconds, 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{rest // 1000:03}"


def gap_limit(microseconds: int) -> str | None:
    """Write where a gap begins or ends: a journal may tell nothing before it, or behind it."""
    if microseconds <= 0:
        return "the beginning"
    return "the end" if microseconds >= FOREVER // 2 else instant(microseconds)


def broker_name(row: Row) -> str:
    """Return a broker's name, or its domain if it has none.

    A broker whose configuration does not name it has a UUID for a name, which is useless to
    readers; its first digits distinguish brokers of one domain.
    """
    name: str | None = row["broker"]
    if name is not None and _UUID.fullmatch(name) is None:
        return name
    domain: str = row["domain"]
    return f"{domain} ({name[:8]})" if name else domain


_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def in_words(result: Reconciliation) -> tuple[str, str]:
    """Return the state (``good``, ``doubtful``, ``bad``) and one sentence."""
    wrong = result.count(*DISCREPANCIES)
    hidden = result.count(NOT_COVERED)
    agreed = result.count(AGREED)
    if wrong:
        return "bad", f"{result.theirs} does not agree: {wrong:,} of {wrong + agreed:,} hand-overs"
    if hidden:
        return "doubtful", f"No contradictions, but {hidden:,} hand-overs are not covered"
    if not agreed:
        return "doubtful", f"No hand-overs between {result.ours} and {result.theirs}"
    return "good", f"{result.theirs} agrees: all {agreed:,} hand-overs"


def listed_rows(result: Reconciliation, most: int) -> Sequence[Row]:
    """Return at most `most` hand-overs that are not agreed, the oldest first."""
    at = F.coalesce("sent_us", "taken_us")
    return result.listed.orderBy(at, "stream", "entry").limit(most).collect()


def agreement_page(result: Reconciliation) -> str:
    """Write the page."""
    day = result.day.isoformat() if result.day else "all days"
    state, words = in_words(result)
    return page(
        f"{result.ours} and {result.theirs}",
        f"Reconciliation of {day}, UTC",
        note(words, state),
        tiles(
            [
                ("Agreed", f"{result.count(AGREED):,}", "known to both sides"),
                ("Contradicting", f"{result.count(*DISCREPANCIES):,}", "see below"),
                ("In flight", f"{result.count(IN_FLIGHT):,}", "at the end of a journal"),
                ("Not covered", f"{result.count(NOT_COVERED):,}", "journals have gaps there"),
                ("Clocks", *_ahead(result.offset, result.theirs)),
            ]
        ),
        section("Verdicts", "What do both journals say of each hand-over?", _verdicts(result)),
        section(
            "Hand-overs that are not agreed",
            f"Message-ids and times, by each side's own clock; at most {LISTED_ON_PAGE:,}, the "
            "table has all.",
            _listed(result),
        ),
        section(
            "Gaps in the journals",
            "Which times are missing from the journals? Nobody is blamed for these.",
            _gaps(result),
        ),
    )


def _ahead(offset: ClockOffset, theirs: str) -> tuple[str, str]:
    if not offset.pairs:
        return "unknown", "nothing to compare"
    around = "" if offset.error is None else f"± {duration(offset.error)}; "
    side = "ahead" if offset.estimate >= 0 else "behind"
    return duration(abs(offset.estimate)), f"{around}{theirs} is {side}"


def _verdicts(result: Reconciliation) -> PageMarkup:
    directions = ((result.ours, result.theirs), (result.theirs, result.ours))
    return table(
        "Hand-overs",
        [
            PageColumn("Verdict"),
            *(PageColumn(f"{sender} → {receiver}", right=True) for sender, receiver in directions),
            PageColumn("Meaning"),
        ],
        [
            (verdict, *(result.counts.get((sender, verdict), 0) for sender, _ in directions), words)
            for verdict, words in VERDICTS.items()
        ],
    )


def _listed(result: Reconciliation) -> PageMarkup:
    return table(
        "Not agreed",
        [
            PageColumn("Verdict"),
            PageColumn("From"),
            PageColumn("Message-id", code=True),
            PageColumn("Handed over"),
            PageColumn("Received"),
            PageColumn("Times", right=True),
            PageColumn("Store and entry at the sender", code=True),
        ],
        [
            (
                row.verdict,
                row.sender,
                row.message_id,
                instant(row.sent_us),
                instant(row.taken_us),
                row.times,
                f"{row.stream}/{row.entry}",
            )
            for row in listed_rows(result, LISTED_ON_PAGE)
        ],
        "none",
    )


def _gaps(result: Reconciliation) -> PageMarkup:
    rows = result.holes.orderBy("from_us").limit(LISTED_ON_PAGE).collect()
    return table(
        "Gaps",
        [
            PageColumn("Broker"),
            PageColumn("From"),
            PageColumn("Until"),
            PageColumn("Length", right=True),
            PageColumn("Why"),
            PageColumn("Records", right=True),
        ],
        [
            (
                broker_name(row),
                gap_limit(row.from_us),
                gap_limit(row.until_us),
                PageCell(duration(row.until_us - row.from_us), row.until_us - row.from_us),
                _REASONS.get(row.reason, row.reason),
                row["count"],
            )
            for row in rows
        ],
    )
