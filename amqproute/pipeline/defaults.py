# SPDX-License-Identifier: Apache-2.0
"""Defaults for the command line; in a separate module, since help has to work without Spark."""

from __future__ import annotations

from typing import Final

__all__ = ["GRACE_SECONDS", "LATENESS", "LEAST_KEPT_DAYS", "MOST_PIECES", "STEP_SEGMENTS"]

LATENESS: Final = "1 hour"
"""Longest delay of a segment in a stream."""
STEP_SEGMENTS: Final = 200
"""Most segments of one step of a stream."""
GRACE_SECONDS: Final = 60.0
"""Distance from a gap in a journal within which a reconciliation accuses nobody."""
MOST_PIECES: Final = 4
"""Most directories of a day in a table, each the piece of one change."""
LEAST_KEPT_DAYS: Final = 28
"""Least number of days in the tables: late records of last week change the week before it, which
depends on one more week."""
