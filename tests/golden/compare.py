# SPDX-License-Identifier: Apache-2.0
"""Comparing a text with a golden file, or writing the file (`tests.golden`)."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

__all__ = ["DATA", "WRITE", "GoldenCase", "compared"]

DATA: Final = Path(__file__).parent / "data"
WRITE: Final = "AMQPROUTE_GOLDEN"
"""Environment variable: ``write`` makes tests write the files instead of comparing."""
SHOWN_LINES: Final = 200


def compared(name: str, text: str) -> str:
    """Compare a text with a golden file; or write the file, where the environment says so.

    Args:
        name: of the file, below `DATA`.
        text: what it should hold.

    Returns:
        The difference in words, with the remedy; empty if there is none.
    """
    path = DATA / name
    if os.environ.get(WRITE) == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return ""
    before = path.read_text() if path.exists() else ""
    if before == text:
        return ""
    lines = list(
        difflib.unified_diff(
            before.splitlines(), text.splitlines(), f"golden/{name}", "now", lineterm="", n=2
        )
    )
    left_out = len(lines) - SHOWN_LINES
    if left_out > 0:
        lines[SHOWN_LINES:] = [f"... and {left_out} more lines"]
    return "\n".join(
        [
            f"{name} is not as it was. If that is meant: python -m tests.golden, and read git diff",
            *lines,
        ]
    )


class GoldenCase(SynchronousTestCase):
    """A test that compares texts with golden files."""

    maxDiff = None

    def assertGolden(self, name: str, text: str) -> None:
        """Fail unless the golden file holds this text."""
        difference = compared(name, text)
        if difference:
            self.fail(difference)
