# SPDX-License-Identifier: Apache-2.0
"""Numbers with nouns, for texts that people read."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, as in ``1 message`` and ``3 messages``.

    Args:
        number: how many.
        noun: the noun in the singular.
        plural: where it is not the singular with an ``s``.
    """
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
