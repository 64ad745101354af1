# SPDX-License-Identifier: Apache-2.0
"""Defaults that the command line shows; here, since its help has to come without Spark."""

from __future__ import annotations

from typing import Final

__all__ = ["GRACE_SECONDS", "LATENESS", "LEAST_KEPT_DAYS", "MOST_PIECES", "STEP_SEGMENTS"]

LATENESS: Final = "1 hour"
"""How late a segment may come to a stream."""
STEP_SEGMENTS: Final = 200
"""Segments of one step of a stream, at most."""
GRACE_SECONDS: Final = 60.0
"""So close to a gap in a journal, a reconciliation accuses nobody."""
MOST_PIECES: Final = 4
"""Directories that a day may have in a table, each the piece of one change."""
LEAST_KEPT_DAYS: Final = 28
"""Days that stay in the tables, at least: what comes late for last week changes the week before it,
and that takes what one more week says."""
