# SPDX-License-Identifier: Apache-2.0
"""A scenario of the fault campaign, and the report of its result.

A scenario is a frozen dataclass: its fields are its parameters, its docstring's first line is its
title, `claim` is what has to hold. `run` does the harm, counts, calls `hold` for each thing that
has to be true, and returns what it measured. What does not hold is collected, not raised at once:
a run of minutes ends with everything it has found.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import ClassVar

__all__ = ["CannotRun", "Finding", "Scenario", "machine"]

Value = int | float | str


class CannotRun(Exception):
    """This machine does not have what the scenario needs; says what."""


@dataclass(slots=True)
class Finding:
    """The result of a scenario.

    Attributes:
        title: of the scenario.
        claim: what had to hold.
        parameters: it was run with.
        figures: what was measured.
        broken: what did not hold, in words.
        seconds: it took.
        skipped: why it was not run; empty if it was.
    """

    title: str
    claim: str
    parameters: Mapping[str, Value]
    figures: dict[str, Value] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    seconds: float = 0.0
    skipped: str = ""

    def hold(self, is_true: object, words: str) -> None:
        """Note what does not hold."""
        if not is_true:
            self.broken.append(words)

    @property
    def verdict(self) -> str:
        """One word."""
        return "skipped" if self.skipped else "FAILED" if self.broken else "held"


@dataclass(frozen=True)
class Scenario:
    """One kind of harm."""

    claim: ClassVar[str] = ""

    @property
    def title(self) -> str:
        """The first line of the docstring."""
        return (type(self).__doc__ or "").partition("\n")[0].rstrip(".")

    def play(self) -> Finding:
        """Run it, and return what was found; an exception is something that did not hold."""
        parameters = {each.name: getattr(self, each.name) for each in fields(self)}
        finding = Finding(self.title, self.claim, parameters)
        started = time.monotonic()
        try:
            self.run(finding)
        except CannotRun as error:
            finding.skipped = str(error)
        except Exception as error:
            details = "\n".join(getattr(error, "details", ()))
            finding.broken.append(f"{type(error).__name__}: {error}\n{details}".rstrip())
        finding.seconds = time.monotonic() - started
        return finding

    def run(self, finding: Finding) -> None:
        """Do the harm and count.

        Raises:
            CannotRun: the machine does not have what it takes.
        """
        raise NotImplementedError


def machine() -> str:
    """Describe the machine and how busy it is: figures are worth little without."""
    model = "unknown CPU"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    return (
        f"{os.cpu_count()} CPUs ({model}), Linux {platform.release()}, Python "
        f"{platform.python_version()}, load average {load}"
    )
