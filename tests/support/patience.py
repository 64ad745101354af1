# SPDX-License-Identifier: Apache-2.0
"""How long tests wait for what should come about, and how.

All deadlines of tests are multiples of `PATIENCE`: a test that waits for a condition goes on as
soon as it is true, so the deadline costs time only where the test fails. It has to hold on a
machine with three times as much to do as it can. A number of its own stands in a test only where
the time itself is tested.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final, TypeVar

__all__ = ["PATIENCE", "until"]

T = TypeVar("T")

PATIENCE: Final = float(os.environ.get("AMQPROUTE_PATIENCE", "120"))
"""Seconds after which a condition is given up that comes true within a few on an idle machine."""


def until(
    condition: Callable[[], T | None],
    what: str = "",
    seconds: float = PATIENCE,
    detail: Callable[[], str] | None = None,
) -> T:
    """Wait until a condition is true, and return what it returned.

    Raises:
        AssertionError: it did not come true in time; `detail` is called for more words.
    """
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            more = f"\n{detail()}" if detail is not None else ""
            raise AssertionError(f"not within {seconds:g} s: {what or condition}{more}")
        time.sleep(0.01)
