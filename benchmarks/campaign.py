# SPDX-License-Identifier: Apache-2.0
"""The program behind each campaign: scenarios by name, their results, and the page about them.

A campaign is a set of `tests.network.campaign.Scenario`, each in a long and a short form. Results
of long forms are kept in a JSON file, so that a part can be run by itself, and the page is written
from that file after each. A result stays until its scenario is run again, and each row names the
revision it was measured on: a whole campaign takes hours, and what one change concerns is run again
without the rest. Files that are not committed are not measured: no reader could have them.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.network.campaign import Finding, Scenario, machine

__all__ = ["Campaign", "revision"]

HERE: Final = Path(__file__).parent

COMMITTED: Final = re.compile("[0-9a-f]{7,40}")
"""What `revision` returns where nothing but a commit is measured."""

Kept = Mapping[str, Mapping[str, Any]]
"""Results by the name of their scenario, as they are in the JSON file."""


@dataclass(frozen=True)
class Campaign:
    """A campaign, its program and its page.

    Attributes:
        name: of the page and of the JSON file, without suffix.
        scenarios: by name, the long and the short form.
        head: text of the page down to its table.
        columns: head and cell of the columns between the verdict and the duration.
        parts: scenarios that are run in one go where all of them would take too long, by name.
        tail: text after the last scenario.
        directory: of the page and the JSON file.
    """

    name: str
    scenarios: Mapping[str, tuple[Scenario, Scenario]]
    head: str
    columns: Mapping[str, Callable[[Mapping[str, Any]], str]]
    parts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tail: str = ""
    directory: Path = HERE

    @property
    def results(self) -> Path:
        """The JSON file."""
        return self.directory / f"{self.name}.json"

    @property
    def page(self) -> Path:
        """The page."""
        return self.directory / f"{self.name}.md"

    def main(self, description: str, arguments: Sequence[str] | None = None) -> int:
        """Run scenarios, print their findings, and write the page; return the exit code."""
        parser = argparse.ArgumentParser(
            prog=f"python -m benchmarks.{self.name}",
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.add_argument("--short", action="store_true", help="small forms; writes nothing")
        parser.add_argument("--page", action="store_true", help="write the page again; run nothing")
        parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="some of them")
        if self.parts:
            words = "; ".join(f"{name}: {', '.join(each)}" for name, each in self.parts.items())
            parser.add_argument("--part", choices=self.parts, help=words)
        given = parser.parse_args(arguments)
        if given.page:
            self.page.write_text(self.text(json.loads(self.results.read_text())))
            return 0
        part = self.parts[given.part] if self.parts and given.part else self.scenarios
        names = [n for n in part if not given.only or any(word in n for word in given.only)]
        if not names:
            words = " or ".join(given.only)
            parser.error(f"no scenario has {words} in its name: {', '.join(self.scenarios)}")
        measured = revision()
        if not given.short and not COMMITTED.fullmatch(measured):
            print(f"commit first: a page of {measured} could not be made again", file=sys.stderr)
            return 2
        failed = False
        for name in names:
            scenario = self.scenarios[name][given.short]
            print(f"{name}: {scenario.title} ...", file=sys.stderr, flush=True)
            finding = scenario.play()
            failed |= bool(finding.broken)
            print(describe(finding), flush=True)
            if not given.short:
                self._keep(name, finding, measured)
        return int(failed)

    def _keep(self, name: str, finding: Finding, current: str) -> None:
        kept: dict[str, dict[str, Any]] = {}
        if self.results.exists():
            kept = json.loads(self.results.read_text())
        kept = {key: each for key, each in kept.items() if key in self.scenarios}
        kept[name] = {
            **dataclasses.asdict(finding),
            "machine": machine(),
            "when": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
            "revision": current,
        }
        self.results.write_text(json.dumps(kept, indent=1) + "\n")
        self.page.write_text(self.text(kept))

    def text(self, kept: Kept) -> str:
        """Return the page."""
        ordered = [(name, kept[name]) for name in self.scenarios if name in kept]
        lines = [self.head]
        if missing := [name for name in self.scenarios if name not in kept]:
            lines += [f"Not run: {', '.join(missing)}.", ""]
        heads = ["scenario", "", *self.columns, "seconds", "run", "revision"]
        lines += ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
        for name, each in ordered:
            cells = [f"[{each['title']}](#{name})", _finding(each).verdict]
            cells += [cell(each["figures"]) for cell in self.columns.values()]
            cells += [f"{each['seconds']:.0f}", each["when"], each["revision"]]
            lines.append("| " + " | ".join(cells) + " |")
        for name, each in ordered:
            lines += _section(name, each)
        return "\n".join([*lines, self.tail]) if self.tail else "\n".join([*lines, ""])


def revision() -> str:
    """Return the revision that is measured, with ``-dirty`` behind it if files were changed.

    That is the last one that changed the program or the scenarios: what changes documentation and
    results only is measured no differently.
    """
    measured = (":/amqproute", ":/setup.cfg", ":/tests/network", ":/tests/integration/clients.py")
    found = _git("log", "-1", "--format=%h", "--", *measured)
    changed = _git("status", "--porcelain", "--", *measured)
    return (found or "unknown") + ("-dirty" if changed else "")


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(HERE), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def describe(finding: Finding) -> str:
    """Return lines for a terminal."""
    lines = [f"  {finding.verdict}, {finding.seconds:.0f} s {finding.skipped}".rstrip()]
    lines += [f"  {name}: {value}" for name, value in finding.figures.items()]
    lines += [f"  BROKEN: {words}" for words in finding.broken]
    return "\n".join(lines)


def _section(name: str, each: Mapping[str, Any]) -> list[str]:
    parameters = ", ".join(f"{key.replace('_', ' ')} {v}" for key, v in each["parameters"].items())
    lines = ["", f"## {name}", "", f"{each['title']}. Claim: {each['claim']}.", ""]
    lines += [f"Parameters: {parameters}.", "", "| figure | |", "|---|---|"]
    lines += [f"| {key} | {value} |" for key, value in each["figures"].items()]
    if each["skipped"]:
        lines += ["", f"Not run: {each['skipped']}."]
    if each["broken"]:
        lines += ["", "Did not hold:", "", *(f"* {_one_line(b)}" for b in each["broken"])]
    return [*lines, "", f"Machine: {each['machine']}."]


def _finding(each: Mapping[str, Any]) -> Finding:
    return Finding(**{key.name: each[key.name] for key in dataclasses.fields(Finding)})


def _one_line(words: str) -> str:
    return " ".join(words.split())[:500]
