# SPDX-License-Identifier: Apache-2.0
"""`tests.mutants` changes one place at a time, and reports only killed mutants as killed."""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import tests.mutants
from tests.mutants import (
    KILLED,
    PRODUCT,
    ROOT,
    SEED,
    SLOW,
    SURVIVED,
    UNREACHED,
    Mutant,
    Reach,
    Trials,
    Verdict,
    copies,
    digest_of,
    judge,
    load,
    mutants,
    still_true,
    write,
)

SOURCE = '''
LIMIT = 5

@cached(3)
def f(a: Literal[1], b=2) -> Literal[4]:
    """Words."""
    if a < b and not c:
        save(a + 1)
        log.info("saved")
        raise ValueError(f"{a + 1}")
    return True
'''

TESTS = """
import unittest
from amqproute.wire.f import f

class Tests(unittest.TestCase):
    def test_f(self):
        self.assertEqual(f(1), 1)
"""


class MutantTests(SynchronousTestCase):
    """The choice of faults."""

    def test_places(self) -> None:
        """Constants of a module, annotations, decorators, words and log lines are left alone."""
        found = [(mutant.before, mutant.after) for mutant, _ in mutants("x.py", SOURCE)]
        self.assertEqual(
            found,
            [
                ("2", "3"),
                ("a < b and (not c)", "a < b or not c"),
                ("a < b", "a <= b"),
                ("not c", "c"),
                ("save(a + 1)", "pass"),
                ("a + 1", "a - 1"),
                ("1", "2"),
                ("raise ValueError(f'{a + 1}')", "pass"),
                ("True", "False"),
            ],
        )

    def test_one_at_a_time(self) -> None:
        """Each mutant differs from the original in its own place only."""
        sources = [make() for _, make in mutants("x.py", SOURCE)]
        self.assertEqual(len(set(sources)), len(sources))
        for (mutant, _), source in zip(mutants("x.py", SOURCE), sources, strict=True):
            self.assertIn(mutant.after, source)
            self.assertIn("LIMIT = 5", source)

    def test_verdicts(self) -> None:
        """A module of tests is run on the mutant, and the original is put back."""
        project = Path(self.mktemp()).resolve()
        for directory in ("amqproute/wire", "tests"):
            (project / directory).mkdir(parents=True)
            (project / directory / "__init__.py").touch()
        (project / "amqproute" / "__init__.py").touch()
        original = "def f(x):\n    return x\n"
        (project / "amqproute" / "wire" / "f.py").write_text(original)
        (project / "tests" / "test_f.py").write_text(TESTS)
        shutil.copy(ROOT / "tests" / "forked_trial.py", project / "tests")
        trials = Trials(project)
        self.addCleanup(trials.close)
        mutant = Mutant("k", "wire/f.py", 2, 2, 2, "x", "x")
        reach = {"tests.test_f": Reach(0.1, "", {"wire/f.py": (digest_of(original), [2])})}
        wrong = original.replace("return x", "return 2")

        def verdict(source: str, given: Mapping[str, Reach] = reach) -> str | None:
            found = judge(mutant, source, given, trials)
            self.assertEqual((project / "amqproute" / "wire" / "f.py").read_text(), original)
            return found and found.verdict

        self.assertEqual(verdict(wrong), KILLED)
        self.assertEqual(verdict(original + "\n"), SURVIVED)
        self.assertEqual(verdict(wrong, {}), UNREACHED)
        self.patch(tests.mutants, "BASE_SECONDS", 1.0)
        self.assertEqual(verdict("def f(x):\n    while True:\n        pass\n"), KILLED)
        # A test that fails for another reason says nothing about the mutant.
        (project / "tests" / "test_g.py").write_text(TESTS.replace("f(1), 1)", "f(1), 3)"))
        self.assertIsNone(verdict(wrong, {"tests.test_g": reach["tests.test_f"]}))

    def test_moved(self) -> None:
        """A verdict goes with its mutant to another line, and not to another mutant."""
        one, moved = (Mutant("k", "x.py", line, line, line, "1", "2") for line in (3, 7))
        kept = {"k": Verdict(one, SURVIVED, [], "why")}
        self.assertEqual(still_true(kept, [moved]), {"k": Verdict(moved, SURVIVED, [], "why")})
        self.assertEqual(still_true(kept, [replace(moved, before="5", after="6")]), {})


class KeptTests(SynchronousTestCase):
    """A few of the verdicts that are kept: the whole run takes an hour (`make mutants`)."""

    def test_sample(self) -> None:
        """Mutants that were killed are killed today, and nothing fails without them."""
        chosen = self.chosen(6)
        self.assertEqual(len(chosen), 6, "tests/mutants.json is old: make mutants")
        with copies(1) as free:
            trials = free.get()
            tests = sorted({test for _, test, _ in chosen})
            self.assertEqual(trials.run(tests, 60.0), (0, ""))
            for mutant, test, source in chosen:
                file = trials.project / "amqproute" / mutant.file
                original = file.read_text()
                write(file, source)
                self.assertEqual(trials.run([test], 60.0), (1, test), mutant)
                write(file, original)
            free.put(trials)

    def chosen(self, count: int) -> list[tuple[Mutant, str, str]]:
        """Return mutants that can still be made, the test that kills each, and its source."""
        kept = [each for _, each in sorted(load().items()) if each.verdict == KILLED]
        random.Random(SEED).shuffle(kept)
        found: list[tuple[Mutant, str, str]] = []
        for each in kept:
            module, _, case = each.by[0].rpartition(".")[0].rpartition(".")
            file = ROOT.joinpath(*module.split(".")).with_suffix(".py")
            if each.mutant.file.split("/")[0] in SLOW or not file.is_file():
                continue
            words = file.read_text()
            name = each.by[0].rpartition(".")[2]
            if (
                "hypothesis" in words
                or f"class {case}(" not in words
                or f"def {name}(" not in words
            ):
                continue  # random examples need not find it each time
            source = (PRODUCT / each.mutant.file).read_text()
            for mutant, make in mutants(each.mutant.file, source):
                if (mutant.key, mutant.before) == (each.mutant.key, each.mutant.before):
                    found.append((mutant, each.by[0], make()))
            if len(found) >= count:
                break
        return found[:count]
