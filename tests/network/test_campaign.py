# SPDX-License-Identifier: Apache-2.0
"""The program behind the campaigns: what it keeps, and what its page says."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

from benchmarks import campaign
from tests.network.campaign import Finding, Scenario


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

    def kept(self) -> set[str]:
        return set(json.loads((self.directory / "sums.json").read_text()))

    def test_parts_of_one_revision(self) -> None:
        self.assertEqual(self.run_at("abc", "--only", "right"), 0)
        self.assertEqual(self.run_at("abc", "--only", "wrong"), 1)
        self.assertEqual(self.kept(), {"right", "wrong"})
        self.assertIn("Revision: abc.", self.page())
        self.assertIn("| [Two and two](#wrong) | FAILED | 4 |", self.page())
        self.assertIn("* not 5", self.page())

    def test_another_revision_begins_again(self) -> None:
        self.run_at("abc", "--only", "right")
        self.run_at("def", "--only", "wrong")
        self.assertEqual(self.kept(), {"wrong"})
        self.assertNotIn("abc", self.page())

    def test_short_forms_keep_nothing(self) -> None:
        self.assertEqual(self.run_at("abc", "--short"), 1)
        self.assertEqual(list(self.directory.iterdir()), [])
