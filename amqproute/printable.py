# SPDX-License-Identifier: Apache-2.0
"""Text of remote parties, made safe to show."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    """Escape characters that a terminal, a browser or a line-based reader would act upon."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
