# SPDX-License-Identifier: Apache-2.0
"""Declarations of metrics, and the page that is printed from them."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import amqproute
from amqproute.metrics.families import FAMILIES, SECTIONS, MetricKind, render

ROOT = Path(amqproute.__file__).parent.parent


class FamilyTests(SynchronousTestCase):
    """The conventions of Prometheus, and of this project."""

    def test_names(self) -> None:
        """Names are of one form and belong to one family; units are base units."""
        declared = [family for _, families in SECTIONS.values() for family in families]
        self.assertEqual(len(declared), len(FAMILIES))
        for name, family in FAMILIES.items():
            self.assertRegex(name, r"\Aamqproute_[a-z]+(_[a-z]+)*\Z")
            self.assertNotRegex(name, r"_(total|count|sum|bucket|info|created)\Z(?<!build_info)")
            self.assertNotRegex(name, r"_(ms|milliseconds|minutes|kilobytes|octets)\b")
            if family.unit:
                self.assertTrue(name.endswith(f"_{family.unit}"), name)
            self.assertIsInstance(family.kind, MetricKind)

    def test_help(self) -> None:
        """Each has one sentence; no label has a name that Prometheus gives itself."""
        for family in FAMILIES.values():
            self.assertRegex(family.help, r"\A[A-Z1].*[^.\s]\Z")
            for label in family.labels:
                self.assertRegex(label, r"\A[a-z]+(_[a-z]+)*\Z")
                self.assertNotIn(label, ("job", "instance", "le", "quantile"))

    def test_page(self) -> None:
        """docs/metrics.md is what the program prints."""
        page = (ROOT / "docs" / "metrics.md").read_text()
        self.assertEqual(page, render(), "run python -m amqproute.metrics.families")
