# SPDX-License-Identifier: Apache-2.0
"""The list of what is proved names tests that exist, and leaves no row of its topics out."""

from __future__ import annotations

import importlib
from pathlib import Path
from unittest import TestCase as AnyTestCase

from twisted.trial.unittest import SynchronousTestCase

from tests.requirements import PROVED, Proof, Unproved, table

COMPLETE = {
    "T": 39, "A": 22, "L": 52, "M": 30, "O": 33, "F": 13, "P": 21, "S": 23, "D": 17, "E": 17,
    "N": 28, "Q": 38, "G": 27, "X": 31, "C": 10, "W": 24, "K": 34,
}  # fmt: skip
"""Topics of which every row has to stand in the list, and how many rows they have."""


class RequirementTests(SynchronousTestCase):
    """`tests.requirements`."""

    def test_complete(self) -> None:
        """Every row of these topics is in the list."""
        for topic, count in COMPLETE.items():
            wanted = {f"{topic}-{number:02d}" for number in range(1, count + 1)}
            self.assertEqual(wanted - set(PROVED), set())

    def test_rows(self) -> None:
        """A row has tests and a clause about them, or a reason why it has none."""
        for row, proof in PROVED.items():
            words = proof.reason if isinstance(proof, Unproved) else proof.shows
            self.assertNotIn("\n", words, row)
            if isinstance(proof, Unproved):
                self.assertGreater(len(words.split()), 3, row)
            else:
                self.assertTrue(proof.tests, row)
                self.assertEqual(len(proof.tests), len(set(proof.tests)), row)

    def test_page(self) -> None:
        """``tests/REQUIREMENTS.md`` is what `python -m tests.requirements` prints."""
        page = Path(__file__).with_name("REQUIREMENTS.md").read_text(encoding="utf-8")
        self.assertEqual(page, table())

    def test_tests_exist(self) -> None:
        """Every test that is named can be imported, and is one."""
        proofs = [proof for proof in PROVED.values() if isinstance(proof, Proof)]
        names = {name for proof in proofs for name in proof.tests}
        for name in sorted(names):
            module, cls, method = name.rsplit(".", 2)
            case = getattr(importlib.import_module(module), cls, None)
            self.assertIsNotNone(case, name)
            self.assertTrue(issubclass(case, AnyTestCase), name)
            self.assertTrue(callable(getattr(case, method, None)), name)
            self.assertTrue(method.startswith("test_"), name)
