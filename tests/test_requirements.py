# SPDX-License-Identifier: Apache-2.0
"""The list of proofs names existing tests, and omits no row of its topics."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from unittest import TestCase as AnyTestCase

from twisted.trial.unittest import SynchronousTestCase

from tests.proofs import Proof, Unproved
from tests.requirements import PROVED, table

COMPLETE: Final = {
    "T": 39, "A": 22, "L": 52, "M": 30, "O": 33, "F": 13, "P": 21, "S": 23, "D": 17, "E": 17,
    "N": 28, "Q": 38, "G": 27, "X": 31, "C": 10, "W": 24, "K": 34,
    "09-CONN": 35, "09-CHAN": 24,
}  # fmt: skip
"""Topics of which every row has to stand in the list, and how many rows they have."""

GROWING: Final = (
    "09-DOM", "09-ERR", "09-W", "09-X", "09-ACC", "09-EXCH", "09-QUEUE", "09-BASIC", "09-FILE",
    "09-STRM", "09-TX", "09-DTX", "09-TUN", "09-MSG", "09-M",
)  # fmt: skip
"""Topics of which rows are entered as what they are about is built."""

LEAST_WORDS: Final = 6
"""A clause with fewer words names its subject and says nothing about it."""

Rows = Mapping[str, Proof | Unproved]


def faults(rows: Rows) -> list[str]:
    """Return what is wrong with a list of rows, a line for each fault."""
    return [*_faults_of_clauses(rows), *_faults_of_tests(rows)]


def _faults_of_clauses(rows: Rows) -> Iterator[str]:
    said: dict[str, str] = {}
    for row, proof in rows.items():
        words = proof.reason if isinstance(proof, Unproved) else proof.shows
        if not words.strip():
            yield f"{row}: the clause is empty"
            continue
        if len(words.split()) < LEAST_WORDS:
            yield f"{row}: the clause is too short: {words}"
        if "\n" in words:
            yield f"{row}: the clause has several lines"
        other = said.setdefault(" ".join(words.casefold().split()).rstrip("."), row)
        if other != row and _tests(rows[other]) != _tests(proof):
            yield f"{row}: the clause is that of {other}, the tests are not"


def _faults_of_tests(rows: Rows) -> Iterator[str]:
    for row, proof in rows.items():
        if isinstance(proof, Unproved):
            continue
        if not proof.tests:
            yield f"{row}: no test is named"
        for name in sorted(set(proof.tests)):
            if proof.tests.count(name) > 1:
                yield f"{row}: {name} is named twice"
            if not _is_test(name):
                yield f"{row}: {name} is no test"


def _tests(proof: Proof | Unproved) -> frozenset[str]:
    return frozenset(proof.tests) if isinstance(proof, Proof) else frozenset()


def _is_test(name: str) -> bool:
    module, _, rest = name.partition(".test_")
    parts = rest.split(".")
    if len(parts) != 3:
        return False
    try:
        found = importlib.import_module(f"{module}.test_{parts[0]}")
    except ModuleNotFoundError:
        return False
    case = getattr(found, parts[1], None)
    return (
        isinstance(case, type)
        and issubclass(case, AnyTestCase)
        and parts[2].startswith("test_")
        and callable(getattr(case, parts[2], None))
    )


class RequirementTests(SynchronousTestCase):
    """`tests.requirements`."""

    def test_complete(self) -> None:
        """Every row of these topics is in the list, and no other but of topics that grow."""
        wanted = {
            f"{topic}-{number:02d}"
            for topic, count in COMPLETE.items()
            for number in range(1, count + 1)
        }
        there = {row for row in PROVED if row.rpartition("-")[0] not in GROWING}
        self.assertEqual(there, wanted)

    def test_rows(self) -> None:
        """A row has tests that exist and a clause about them, or a reason why it has none."""
        self.assertEqual(faults(PROVED), [])

    def test_page(self) -> None:
        """``tests/REQUIREMENTS.md`` is what `python -m tests.requirements` prints."""
        page = Path(__file__).with_name("REQUIREMENTS.md").read_text(encoding="utf-8")
        self.assertEqual(page, table())


class FaultTests(SynchronousTestCase):
    """`faults` finds each mistake, planted in a list that has no other."""

    test = f"{__name__}.RequirementTests.test_rows"
    other = f"{__name__}.RequirementTests.test_page"
    clause = "a row has tests and a clause about them"

    def assert_found(self, proof: Proof | Unproved, words: str) -> None:
        sound: Rows = {"Z-01": Proof(self.clause, self.test)}
        self.assertEqual(faults(sound), [])
        self.assertEqual(faults({**sound, "Z-02": proof}), [f"Z-02: {words}"])

    def test_empty(self) -> None:
        self.assert_found(Proof(" ", self.test), "the clause is empty")
        self.assert_found(Unproved(""), "the clause is empty")

    def test_short(self) -> None:
        self.assert_found(
            Proof("it just works", self.test), "the clause is too short: it just works"
        )
        self.assert_found(Unproved("not applicable"), "the clause is too short: not applicable")

    def test_lines(self) -> None:
        words = self.clause.replace("clause", "line\nbreak")
        self.assert_found(Proof(words, self.test), "the clause has several lines")

    def test_same_clause(self) -> None:
        """Of other tests; by case, blanks and full stop it is no other clause."""
        words = "the clause is that of Z-01, the tests are not"
        self.assert_found(Proof(self.clause, self.other), words)
        self.assert_found(Proof(f"{self.clause.upper()}.", self.other), words)
        self.assert_found(Unproved(self.clause), words)

    def test_same_clause_of_the_same_tests(self) -> None:
        self.assertEqual(
            faults({each: Proof(self.clause, self.test) for each in ("Z-01", "Z-02")}), []
        )

    def test_tests(self) -> None:
        words = "something else than the other row says"
        for name in (
            f"{__name__}.RequirementTests.test_nothing",
            f"{__name__}.RequirementTests.setUp",
            f"{__name__}.NoTests.test_rows",
            "tests.test_nowhere.RequirementTests.test_rows",
            "tests.test_requirements",
            "nowhere",
        ):
            self.assert_found(Proof(words, name), f"{name} is no test")
        self.assert_found(Proof(words), "no test is named")
        self.assert_found(Proof(words, self.test, self.test), f"{self.test} is named twice")
