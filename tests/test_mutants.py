# SPDX-License-Identifier: Apache-2.0
"""`tests.mutants` changes one place at a time, and what it calls killed is killed."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.mutants import KILLED, SURVIVED, UNREACHED, Mutant, Reach, digest_of, judge, mutants

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
    """Which faults are made."""

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
        mutant = Mutant("k", "wire/f.py", 2, 2, 2, "x", "x")
        reach = {"tests.test_f": Reach(0.1, "", {"wire/f.py": (digest_of(original), [2])})}
        wrong = original.replace("return x", "return 2")
        self.assertEqual(judge(mutant, wrong, reach, project).verdict, KILLED)
        self.assertEqual(judge(mutant, original + "\n", reach, project).verdict, SURVIVED)
        self.assertEqual(judge(mutant, wrong, {}, project).verdict, UNREACHED)
        self.assertEqual((project / "amqproute" / "wire" / "f.py").read_text(), original)
