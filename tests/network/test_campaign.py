# SPDX-License-Identifier: Apache-2.0
"""The program behind the campaigns: stored results and pages."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from unittest import mock

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from benchmarks import attacks, campaign, damage, faults
from tests.network.campaign import Finding, Scenario

ONE, OTHER = "abc1234", "def5678"


@dataclass(frozen=True)
class Sum(Scenario):
    """Two and two."""

    expected: int = 4
    claim: ClassVar[str] = "they make the expected sum"

    def run(self, finding: Finding) -> None:
        """Add."""
        finding.figures["sum"] = 2 + 2
        finding.hold(self.expected == 2 + 2, f"not {self.expected}")


class CampaignTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.campaign = campaign.Campaign(
            name="sums",
            scenarios={"right": (Sum(), Sum()), "wrong": (Sum(5), Sum(5))},
            head="# Sums\n",
            columns={"sum": lambda figures: str(figures["sum"])},
            directory=self.directory,
        )

    def run_at(self, revision: str, *arguments: str) -> int:
        with (
            mock.patch.object(campaign, "revision", return_value=revision),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            return self.campaign.main("", arguments)

    def page(self) -> str:
        return (self.directory / "sums.md").read_text()

    def revisions(self) -> dict[str, str]:
        """Return what the rows of the page name, by scenario."""
        row = re.compile(r"^\| \[.*\]\(#(.*?)\) .* \| (\S+) \|$", re.MULTILINE)
        return dict(row.findall(self.page()))

    def kept(self) -> set[str]:
        return set(json.loads((self.directory / "sums.json").read_text()))

    def test_parts_of_one_revision(self) -> None:
        self.assertEqual(self.run_at(ONE, "--only", "right"), 0)
        self.assertEqual(self.run_at(ONE, "--only", "wrong"), 1)
        self.assertEqual(self.kept(), {"right", "wrong"})
        self.assertEqual(self.revisions(), {"right": ONE, "wrong": ONE})
        self.assertIn("| [Two and two](#wrong) | FAILED | 4 |", self.page())
        self.assertIn("* not 5", self.page())

    def test_rows_of_two_revisions(self) -> None:
        """Each row names its own; one that is run again has the new one."""
        self.run_at(ONE)
        self.run_at(OTHER, "--only", "wrong")
        self.assertEqual(self.revisions(), {"right": ONE, "wrong": OTHER})

    def test_a_scenario_that_is_gone(self) -> None:
        self.run_at(ONE)
        results = self.directory / "sums.json"
        kept = json.loads(results.read_text())
        results.write_text(json.dumps({**kept, "gone": kept["right"]}))
        self.run_at(OTHER, "--only", "right")
        self.assertEqual(self.kept(), {"right", "wrong"})

    def test_a_revision_that_changes_meanwhile(self) -> None:
        """All that one run measures is of the revision it began with."""
        with (
            mock.patch.object(campaign, "revision", side_effect=[ONE, OTHER, OTHER]),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            self.campaign.main("", [])
        self.assertEqual(self.kept(), {"right", "wrong"})
        self.assertEqual(self.revisions(), {"right": ONE, "wrong": ONE})

    def test_what_was_not_run(self) -> None:
        self.run_at(ONE, "--only", "right")
        self.assertIn("Not run: wrong.", self.page())
        self.run_at(ONE, "--only", "wrong")
        self.assertNotIn("Not run", self.page())

    def test_page_again(self) -> None:
        """The page is made of the results; nothing is run for it."""
        self.run_at(ONE, "--only", "right")
        before = self.page()
        (self.directory / "sums.md").unlink()
        self.assertEqual(self.run_at(OTHER, "--page"), 0)
        self.assertEqual(self.page(), before)

    def test_only_what_is_committed(self) -> None:
        """Scenarios that nobody else can have run in the short form only, which keeps nothing."""
        for revision in (f"{ONE}-dirty", "unknown"):
            self.assertEqual(self.run_at(revision), 2)
            self.assertEqual(self.run_at(revision, "--short"), 1)
            self.assertEqual(list(self.directory.iterdir()), [])

    def test_short_forms_keep_nothing(self) -> None:
        self.assertEqual(self.run_at(ONE, "--short"), 1)
        self.assertEqual(list(self.directory.iterdir()), [])


class PageTests(SynchronousTestCase):
    """The pages of this repository."""

    def test_pages(self) -> None:
        """Each is what its results make, and those are of revisions of this repository."""
        for each in (attacks.CAMPAIGN, damage.CAMPAIGN, faults.CAMPAIGN):
            if not each.page.exists():
                continue
            kept = json.loads(each.results.read_text())
            self.assertEqual(each.page.read_text(), each.text(kept), each.name)
            for measured in {row["revision"] for row in kept.values()}:
                self.assertRegex(measured, campaign.COMMITTED, each.name)
                if self.git("rev-parse", "--is-shallow-repository") == "false":
                    self.assertEqual(self.git("cat-file", "-t", measured), "commit", each.name)

    def git(self, *arguments: str) -> str:
        """Ask the repository.

        Raises:
            SkipTest: these sources are in none.
        """
        command = ["git", "-C", str(campaign.HERE), *arguments]
        try:
            inside = subprocess.run([*command[:3], "rev-parse"], capture_output=True, check=False)
        except FileNotFoundError as error:
            raise SkipTest("there is no git") from error
        if inside.returncode:
            raise SkipTest("these sources are no repository")
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
