# SPDX-License-Identifier: Apache-2.0
"""Deadlines of tests, and waiting for conditions.

All deadlines of tests are multiples of `PATIENCE`: a test that waits for a condition continues as
soon as it is true, so the deadline costs time only if the test fails. It must hold on a machine
with three times its load capacity. A test has a number of its own only if it is about the time
itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final, TypeVar

__all__ = ["PATIENCE", "until"]

T = TypeVar("T")

PATIENCE: Final = float(os.environ.get("AMQPROUTE_PATIENCE", "120"))
"""Seconds to wait for a condition that takes a few on an idle machine."""


def until(
    condition: Callable[[], T | None],
    what: str = "",
    seconds: float = PATIENCE,
    detail: Callable[[], str] | None = None,
) -> T:
    """Wait until a condition is true, and return what it returned.

    Raises:
        AssertionError: it did not come true in time; `detail` supplies more text.
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
