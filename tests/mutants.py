# SPDX-License-Identifier: Apache-2.0
"""Mutation testing: small faults are planted one by one, and the tests have to find each.

    python -m tests.mutants cover          # which test modules reach which lines, and in what time
    python -m tests.mutants run            # judge the mutants that have not been judged
    python -m tests.mutants run --only store/seal.py --again survived

The mutants are drawn with a seed, equally many from each package of `PACKAGES`. A mutant is run in
a copy of the project against the test modules that reach its line, the quickest first, until one
fails or `SECONDS` are over. Verdicts stand in ``tests/mutants.json`` and are kept from run to run;
whoever finds that a survivor cannot be told from the original writes the reason there. The page
``tests/MUTANTS.md`` is made from that file.

Only modules that run the product in the test's own process count as reaching a line: what a daemon
of an integration test does is not seen. So each survivor is asked for a test that is close to it.
"""

from __future__ import annotations

import argparse
import ast
import copy
import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PRODUCT: Final = ROOT / "amqproute"
VERDICTS: Final = ROOT / "tests" / "mutants.json"
PAGE: Final = ROOT / "tests" / "MUTANTS.md"
COVERAGE: Final = ROOT / ".mutants" / "coverage.json"

PACKAGES: Final = ("broker", "store", "net", "resolver", "journal", "pipeline")
SEED: Final = 13
EACH: Final = 55
"""Mutants of each package."""
SECONDS: Final = 60.0
"""For all test modules of one mutant."""
MODULE_SECONDS: Final = 300.0
"""For one test module without a mutant, under coverage."""
ELSEWHERE: Final = ("integration", "network")
"""Packages of tests that run the product in processes of its own."""

KILLED, SURVIVED, UNREACHED = "killed", "survived", "unreached"

# -- mutants -----------------------------------------------------------------------------------

COMPARISONS: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: Final[Mapping[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
        key: of the fault, stable while its function stays as it is.
        file: below ``amqproute``.
        line: where it stands.
        before: source of the node.
        after: source of what takes its place.
    """

    key: str
    file: str
    line: int
    before: str
    after: str


def changed(node: ast.AST) -> ast.AST | None:
    """Return what takes a node's place in a mutant, if anything does."""
    new = copy.deepcopy(node)
    match new:
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            new.ops = [COMPARISONS[type(op)]()]
        case ast.BoolOp(op=op):
            new.op = ast.Or() if isinstance(op, ast.And) else ast.And()
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return operand
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in ARITHMETIC:
            new.op = ARITHMETIC[type(op)]()
        case ast.Constant(value=bool(value)):
            new.value = not value
        case ast.Constant(value=int(value)):
            new.value = value + 1
        case ast.If(test=ast.Name() | ast.Attribute() | ast.Call() as test):
            new.test = ast.UnaryOp(ast.Not(), test)
        case ast.Raise():
            return ast.copy_location(ast.Pass(), node)
        case ast.Expr(value=ast.Call() | ast.Await()) if not _is_log(new):
            return ast.copy_location(ast.Pass(), node)
        case _:
            return None
    return new


def _is_log(node: ast.AST) -> bool:
    """Whether a statement writes a log line: what it says is no promise of each."""
    return "log" in ast.unparse(node).partition("(")[0].lower()


def places(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Return the nodes of a module's functions that may change, with the name of the function."""

    def walk(node: ast.AST, name: str, is_inside: bool) -> Iterator[tuple[str, ast.AST]]:
        for label, value in ast.iter_fields(node):
            if label in ("annotation", "returns", "decorator_list", "type_params"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr):
                    continue
                inside, own = is_inside, name
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                    inside, own = True, f"{name}.{child.name}".lstrip(".")
                elif isinstance(child, ast.ClassDef):
                    own = f"{name}.{child.name}".lstrip(".")
                elif inside:
                    yield own, child
                yield from walk(child, own, inside)

    return walk(tree, "", False)


def mutants(name: str, source: str) -> Iterator[tuple[Mutant, Callable[[], str]]]:
    """Return all mutants of a file, and what makes the whole source of each."""
    tree = ast.parse(source)
    seen: dict[str, int] = {}
    for function, node in places(tree):
        after = changed(node)
        if after is None:
            continue
        old, new = _shown(node), _shown(after)
        number = seen[function] = seen.get(function, 0) + 1
        line = int(getattr(node, "lineno", 0))
        mutant = Mutant(f"{name}:{function}:{number}", name, line, old, new)
        yield mutant, partial(_source, tree, node, after)


def _source(tree: ast.Module, old: ast.AST, new: ast.AST) -> str:
    return ast.unparse(_replaced(tree, old, new))


def _shown(node: ast.AST) -> str:
    first = ast.unparse(node).partition("\n")[0]
    return first if len(first) <= 100 else first[:97] + "..."


def _replaced(tree: ast.Module, old: ast.AST, new: ast.AST) -> ast.Module:
    """Return a copy of a tree in which one node is another."""

    class Replacement(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return new if node is old else _visited(self, node)

    # Nodes on the way are made again by `_visited`, so that the tree itself stays as it is.
    found = Replacement().visit(tree)
    assert isinstance(found, ast.Module)
    return ast.fix_missing_locations(found)


def _visited(transformer: ast.NodeTransformer, node: ast.AST) -> ast.AST:
    fields: dict[str, object] = {}
    for label, value in ast.iter_fields(node):
        if isinstance(value, list):
            fields[label] = [
                transformer.visit(each) if isinstance(each, ast.AST) else each for each in value
            ]
        else:
            fields[label] = transformer.visit(value) if isinstance(value, ast.AST) else value
    return ast.copy_location(type(node)(**fields), node)


def drawn(seed: int = SEED, each: int = EACH) -> list[Mutant]:
    """Draw the mutants of all packages."""
    found = []
    for package in PACKAGES:
        files = sorted((PRODUCT / package).rglob("*.py"))
        all_mutants = [
            mutant
            for file in files
            for mutant, _ in mutants(str(file.relative_to(PRODUCT)), file.read_text())
        ]
        dice = random.Random(f"{seed} {package}")
        found += dice.sample(all_mutants, min(each, len(all_mutants)))
    return found


# -- which tests reach a line ------------------------------------------------------------------


def test_modules() -> list[str]:
    """Return the test modules that run the product in their own process."""
    return sorted(
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / "tests").rglob("test_*.py")
        if path.relative_to(ROOT / "tests").parts[0] not in ELSEWHERE
    )


@dataclass(frozen=True)
class Reach:
    """What one test module reaches.

    Attributes:
        seconds: that it takes.
        lines: by file below ``amqproute``.
    """

    seconds: float
    lines: Mapping[str, Sequence[int]]


def cover() -> None:
    """Run each test module under coverage, and keep what it reaches; those that fail are left out.

    Modules whose figures are there are not run again: remove the file to begin from the start.
    """
    COVERAGE.parent.mkdir(exist_ok=True)
    kept = json.loads(COVERAGE.read_text()) if COVERAGE.exists() else {}
    for module in test_modules():
        if module in kept:
            continue
        with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
            data, report = Path(directory) / "data", Path(directory) / "report"
            begun = time.monotonic()
            coverage = [sys.executable, "-m", "coverage"]
            command = [*coverage, "run", f"--data-file={data}", "--source=amqproute", "-m"]
            code = _run([*command, *_trial(directory, [module])], ROOT, MODULE_SECONDS)
            seconds = time.monotonic() - begun
            if code == 0:
                told = [*coverage, "json", f"--data-file={data}", "-q", "-o", str(report)]
                subprocess.run(told, cwd=ROOT, check=True)
                files = json.loads(report.read_text())["files"]
                lines = {
                    name.removeprefix("amqproute/"): each["executed_lines"]
                    for name, each in files.items()
                    if each["executed_lines"]
                }
                kept[module] = dataclasses.asdict(Reach(seconds, lines))
        print(f"{module}: {'failed' if code else f'{seconds:.1f} s'}", flush=True)
        COVERAGE.write_text(json.dumps(kept))


def _trial(directory: str | Path, modules: Sequence[str]) -> list[str]:
    where = f"--temp-directory={Path(directory) / 'trial'}"
    return ["twisted.trial", "--reporter=summary", "--exitfirst", where, *modules]


def _run(command: Sequence[str], directory: Path, seconds: float) -> int | None:
    """Run a command in a session of its own, which ends with it; None if it took too long."""
    process = subprocess.Popen(
        command,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # all of its processes have ended
        process.wait()


# -- judging -----------------------------------------------------------------------------------


@dataclass
class Verdict:
    """What became of a mutant.

    Attributes:
        verdict: killed, survived, or unreached by any test module.
        by: the test module that found it, or those that did not.
        reason: why a survivor may live, in somebody's words.
    """

    mutant: Mutant
    verdict: str
    by: list[str]
    reason: str = ""


def judge(mutant: Mutant, source: str, reach: Mapping[str, Reach], copy_of: Path) -> Verdict:
    """Run the test modules that reach a mutant in a copy of the project."""
    reaching = [m for m, each in reach.items() if mutant.line in each.lines.get(mutant.file, ())]
    reaching.sort(key=lambda module: reach[module].seconds)
    if not reaching:
        return Verdict(mutant, UNREACHED, [])
    target = copy_of / "amqproute" / mutant.file
    original = target.read_text()
    until = time.monotonic() + SECONDS
    ran: list[str] = []
    try:
        _write(target, source)
        for module in reaching:
            left = until - time.monotonic()
            if left < reach[module].seconds and ran:
                break
            ran.append(module)
            # A mutant that makes a module hang is found by the suite's limit.
            limit = max(left, 5 * reach[module].seconds)
            with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
                command = [sys.executable, "-m", *_trial(directory, [module])]
                if _run(command, copy_of, limit) != 0:
                    return Verdict(mutant, KILLED, [module])
    finally:
        _write(target, original)
    return Verdict(mutant, SURVIVED, ran)


def _write(file: Path, source: str) -> None:
    """Write a module, and remove its compiled form, which time and size may not tell apart."""
    file.write_text(source)
    for compiled in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
        compiled.unlink()


def load() -> dict[str, Verdict]:
    """Return the verdicts that are kept, by the mutant's key."""
    if not VERDICTS.exists():
        return {}
    return {
        key: Verdict(**{**each, "mutant": Mutant(**each["mutant"])})
        for key, each in json.loads(VERDICTS.read_text()).items()
    }


def save(verdicts: Mapping[str, Verdict]) -> None:
    """Keep the verdicts, and write the page."""
    kept = {key: dataclasses.asdict(verdicts[key]) for key in sorted(verdicts)}
    VERDICTS.write_text(json.dumps(kept, indent=1) + "\n")
    PAGE.write_text(page(list(verdicts.values())))


def page(verdicts: Sequence[Verdict]) -> str:
    """Return ``tests/MUTANTS.md``."""
    lines = [
        "# Mutants",
        "",
        f"Faults drawn with seed {SEED}, {EACH} of each package, each run against the test",
        "modules that reach its line (`python -m tests.mutants`, which says more). A survivor has",
        "a reason, or is a test that somebody still has to write.",
        "",
        "| package | mutants | killed | survived | no test module reaches it |",
        "|---|---:|---:|---:|---:|",
    ]
    for package in PACKAGES:
        own = [v.verdict for v in verdicts if v.mutant.file.startswith(f"{package}/")]
        counts = (own.count(KILLED), own.count(SURVIVED), own.count(UNREACHED))
        lines.append(f"| {package} | {len(own)} | " + " | ".join(map(str, counts)) + " |")
    lines += ["", "## Survivors", "", "| where | before | after | reason |", "|---|---|---|---|"]
    for each in sorted(verdicts, key=lambda v: (v.mutant.file, v.mutant.line)):
        if each.verdict != KILLED:
            mutant = each.mutant
            cells = (f"{mutant.file}:{mutant.line}", f"`{mutant.before}`", f"`{mutant.after}`")
            words = [cell.replace("|", "\\|") for cell in (*cells, each.reason or each.verdict)]
            lines.append("| " + " | ".join(words) + " |")
    return "\n".join(lines) + "\n"


def run(only: str, again: str, count: int) -> None:
    """Judge mutants that have no verdict, or a certain one, at most so many."""
    if not COVERAGE.exists():
        sys.exit("first: python -m tests.mutants cover")
    reach = {module: Reach(**each) for module, each in json.loads(COVERAGE.read_text()).items()}
    verdicts = load()
    chosen = drawn()
    if not only:
        keys = {mutant.key for mutant in chosen}
        verdicts = {key: each for key, each in verdicts.items() if key in keys}
    wanted = [
        mutant
        for mutant in chosen
        if only in mutant.key
        and (mutant.key not in verdicts or verdicts[mutant.key].verdict == again)
    ][:count]
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        copy_of = Path(directory) / "project"
        ignored = shutil.ignore_patterns(".venv", ".git", ".mutants", "__pycache__", "_trial_temp*")
        shutil.copytree(ROOT, copy_of, ignore=ignored, symlinks=True)
        for number, mutant in enumerate(wanted, 1):
            found = mutants(mutant.file, (PRODUCT / mutant.file).read_text())
            source = next(make for each, make in found if each == mutant)()
            verdict = judge(mutant, source, reach, copy_of)
            if mutant.key in verdicts:
                verdict.reason = verdicts[mutant.key].reason
            verdicts[mutant.key] = verdict
            where = f"{mutant.file}:{mutant.line}"
            print(f"{number}/{len(wanted)} {where} {mutant.before} -> {mutant.after}:", end=" ")
            print(verdict.verdict, *verdict.by[:1], flush=True)
            save(verdicts)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("cover", help="find which test modules reach which lines")
    runner = commands.add_parser("run", help="judge mutants that have no verdict")
    runner.add_argument("--only", default="", metavar="TEXT", help="in the mutant's key")
    runner.add_argument("--again", default="", choices=(KILLED, SURVIVED, UNREACHED))
    runner.add_argument("--count", type=int, default=10**6, help="at most so many")
    commands.add_parser("list", help="print the mutants")
    given = parser.parse_args()
    if given.command == "cover":
        cover()
    elif given.command == "run":
        run(given.only, given.again, given.count)
    else:
        for mutant in drawn():
            print(f"{mutant.file}:{mutant.line}: {mutant.before} -> {mutant.after}")


if __name__ == "__main__":
    main()
