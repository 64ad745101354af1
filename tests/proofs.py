# SPDX-License-Identifier: Apache-2.0
"""The proof of a row in the list of requirements: tests, or a reason for their absence."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, init=False)
class Proof:
    """The tests that fail if a row breaks.

    Attributes:
        shows: one clause: what the tests show, as somebody read it who did not write them.
        tests: dotted names.
    """

    shows: str
    tests: tuple[str, ...]

    def __init__(self, shows: str, *tests: str) -> None:
        object.__setattr__(self, "shows", shows)
        object.__setattr__(self, "tests", tests)


@dataclass(frozen=True)
class Unproved:
    """A row that no test can prove.

    Attributes:
        reason: one clause.
    """

    reason: str
