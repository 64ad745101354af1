# SPDX-License-Identifier: Apache-2.0
"""The alert rules, runbook pages and dashboard that are shipped."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import skipIf

import click
import yaml
from twisted.trial.unittest import SynchronousTestCase

import amqproute
from amqproute.cli.main import amqproute as program
from amqproute.metrics.families import FAMILIES, MetricKind
from tests.support.patience import PATIENCE

ROOT = Path(amqproute.__file__).parent.parent
RULES = ROOT / "etc" / "prometheus" / "amqproute.rules.yml"
RULES_TEST = ROOT / "etc" / "prometheus" / "amqproute.rules.test.yml"
DASHBOARD = ROOT / "etc" / "grafana" / "amqproute.json"
RUNBOOKS = ROOT / "docs" / "runbooks"
PROMTOOL = shutil.which("promtool")


def alerts() -> list[dict[str, Any]]:
    """Return the alert rules."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> Iterator[dict[str, Any]]:
    """Yield the panels of the dashboard that show something."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        if panel["type"] != "row":
            yield panel


def expressions() -> Iterator[tuple[str, str]]:
    """Yield where an expression stands, and it."""
    for rule in alerts():
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            yield f"panel {panel['title']}", target["expr"]


def samples() -> set[str]:
    """Return the names of all samples."""
    found = set()
    for family in FAMILIES.values():
        if family.kind is MetricKind.HISTOGRAM:
            found |= {f"{family.name}_{part}" for part in ("bucket", "sum", "count")}
        else:
            found.add(family.sample)
    return found


class ExpressionTests(SynchronousTestCase):
    """All metrics of the expressions exist."""

    def test_samples(self) -> None:
        """Each metric that is asked for is declared."""
        known = samples()
        for place, expression in expressions():
            for name in re.findall(r"\bamqproute_[a-z_]+", expression):
                self.assertIn(name, known, place)

    def test_labels(self) -> None:
        """Each label by which is grouped, and that words name, belongs to a metric asked for."""
        given = {"instance", "job", "le"}
        by_sample = {
            name: family
            for family in FAMILIES.values()
            for name in (family.name, family.sample, *(f"{family.name}_{x}" for x in
                         ("bucket", "sum", "count")))
        }  # fmt: skip
        texts = [(place, text, text) for place, text in expressions()]
        texts += [
            (rule["alert"], rule["expr"], " ".join(rule["annotations"].values()))
            for rule in alerts()
        ]
        for place, expression, text in texts:
            labels = set(given)
            for name in re.findall(r"\bamqproute_[a-z_]+", expression):
                labels |= set(by_sample[name].labels)
            used = set(re.findall(r"\$labels\.([a-z_]+)", text))
            for group in re.findall(r"\bby \(([a-z_, ]*)\)", text):
                used |= {each.strip() for each in group.split(",")}
            self.assertLessEqual(used, labels, place)

    def test_panels(self) -> None:
        """Panels have ids of their own, a unit, and words for each line; none overlaps another."""
        ids, places = set(), set()
        for panel in panels():
            self.assertNotIn(panel["id"], ids)
            ids.add(panel["id"])
            grid = panel["gridPos"]
            self.assertLessEqual(grid["x"] + grid["w"], 24)
            for x in range(grid["x"], grid["x"] + grid["w"]):
                for y in range(grid["y"], grid["y"] + grid["h"]):
                    self.assertNotIn((x, y), places, panel["title"])
                    places.add((x, y))
            self.assertTrue(panel["fieldConfig"]["defaults"]["unit"])
            for target in panel["targets"]:
                self.assertTrue(target["legendFormat"])
                self.assertIn('instance=~"$instance"', target["expr"])


class RunbookTests(SynchronousTestCase):
    """Each alert has a page."""

    def test_pages(self) -> None:
        """Each alert names its page, and each page belongs to an alert."""
        named = set()
        for rule in alerts():
            runbook = rule["annotations"]["runbook"]
            self.assertTrue((ROOT / runbook).is_file(), runbook)
            named.add(Path(runbook).stem)
            self.assertIn(rule["labels"]["severity"], ("warning", "critical"))
            self.assertTrue(rule["annotations"]["summary"])
            self.assertTrue(rule["annotations"]["description"])
        self.assertEqual(named, {page.stem for page in RUNBOOKS.glob("*.md")})

    def test_sections(self) -> None:
        """Each page says what it means, what follows, how to find the cause, and the cure."""
        for page in RUNBOOKS.glob("*.md"):
            text = page.read_text()
            headings = re.findall(r"^#+ .*", text, re.MULTILINE)
            self.assertEqual(headings, [f"# {page.stem}", "## Impact", "## Diagnosis", "## Cure"])

    def test_commands(self) -> None:
        """Commands that pages name exist, with their options."""
        for page in RUNBOOKS.glob("*.md"):
            text = " ".join(page.read_text().split())
            for command in re.findall(r"`amqproute ([a-z][^`]*)`", text):
                with self.subTest(page=page.name, command=command):
                    self._require(command.split())

    def _require(self, words: list[str]) -> None:
        found: click.Command = program
        rest = list(words)
        while isinstance(found, click.Group) and rest and not rest[0].startswith("-"):
            inner = found.get_command(click.Context(found), rest[0])
            self.assertIsNotNone(inner, words)
            assert inner is not None
            found = inner
            rest.pop(0)
        options = {option for each in found.params for option in each.opts}
        arguments = [each for each in found.params if isinstance(each, click.Argument)]
        for word in rest:
            if word.startswith("-"):
                self.assertIn(word, options, words)
        if any(not word.startswith("-") for word in rest) and not isinstance(found, click.Group):
            takes_value = any(word.startswith("-") for word in rest)
            self.assertTrue(arguments or takes_value, words)


@skipIf(PROMTOOL is None, "promtool is not installed")
class PromtoolTests(SynchronousTestCase):
    """The verdict of Prometheus' own tool on the rules."""

    def promtool(self, *words: str) -> None:
        """Run promtool; it has to succeed."""
        assert PROMTOOL is not None
        done = subprocess.run(
            [PROMTOOL, *words],
            cwd=RULES.parent,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_rules(self) -> None:
        """The rules are valid, and pass their tests."""
        self.promtool("check", "rules", RULES.name)
        self.promtool("test", "rules", RULES_TEST.name)

    def test_coverage(self) -> None:
        """Each alert has a test in which it fires, and one in which it stays silent."""
        names = {each["name"] for each in yaml.safe_load(RULES_TEST.read_text())["tests"]}
        for rule in alerts():
            self.assertIn(f"{rule['alert']} fires", names)
            self.assertIn(f"{rule['alert']} stays silent", names)
