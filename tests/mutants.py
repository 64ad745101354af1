# SPDX-License-Identifier: Apache-2.0
"""Mutation testing: small faults are planted one by one, and the tests must find each.

    python -m tests.mutants cover          # which test modules reach which lines, and in what time
    python -m tests.mutants cover --only tests.store
    python -m tests.mutants run            # judge the mutants that have not been judged
    python -m tests.mutants run --only store/seal.py --again survived
    python -m tests.mutants run --again open    # those that live without a reason

The mutants are drawn with a seed, equally many from each package of `PACKAGES`. A mutant is run in
a copy of the project against the test modules that reach its line, the quickest first, until one
fails or `SECONDS` of CPU are used up. It is killed if the same tests pass in the same time without
it: a failure or a timeout that has another cause is no verdict. Verdicts are in
``tests/mutants.json`` and are kept from run to run; whoever finds that a survivor cannot be told
from the original writes the reason there. The page ``tests/MUTANTS.md`` is made from that file.

Only modules that run the product in the test's own process count as reaching a line: what a daemon
of an integration test does is not seen. So each survivor is asked for a test that is close to it.
"""

from __future__ import annotations

import argparse
import ast
import copy
import dataclasses
import hashlib
import json
import os
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Queue
from typing import Final

from coverage import CoverageData

from tests.__main__ import compile_sources

ROOT: Final = Path(__file__).resolve().parent.parent
PRODUCT: Final = ROOT / "amqproute"
VERDICTS: Final = ROOT / "tests" / "mutants.json"
PAGE: Final = ROOT / "tests" / "MUTANTS.md"
COVERAGE: Final = ROOT / ".mutants" / "coverage.json"

PACKAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "broker": ("broker",),
    "store": ("store",),
    "net": ("net",),
    "resolver": ("resolver",),
    "journal": ("journal",),
    "pipeline": ("pipeline", "tools/synthetic"),
}
"""Folders below ``amqproute`` that mutants are drawn from, by the package that they count for."""
SLOW: Final = ("pipeline",)
"""Packages whose tests start a JVM."""
SEED: Final = 13
EACH: Final = 55
"""Mutants of each package."""
SECONDS: Final = 60.0
"""CPU for all test modules of one mutant: a busy machine takes longer by the clock."""
MODULE_SECONDS: Final = 300.0
"""For one test module without a mutant, under coverage."""
START_SECONDS: Final = 1.0
"""Of a run under coverage, what is no test."""
BASE_SECONDS: Final = 6.0
"""CPU that a run of tests may use at least."""
IDLE_SECONDS: Final = 60.0
"""A run of tests that uses no CPU for so long hangs."""
ELSEWHERE: Final = ("integration", "network")
"""Packages of tests that run the product in processes of its own."""

KILLED, SURVIVED, UNREACHED = "killed", "survived", "unreached"
OPEN: Final = "open"
"""Stands for survivors and those that nothing reaches, as long as nobody has given a reason."""

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
        last: line of the node.
        statement: the first line of the statement that it is in.
        before: source of the node.
        after: source of what takes its place.
    """

    key: str
    file: str
    line: int
    last: int
    statement: int
    before: str
    after: str


def changed(node: ast.AST) -> ast.AST | None:
    """Return what takes a node's place in a mutant, if anything does."""
    new = copy.copy(node)
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


def places(tree: ast.Module) -> Iterator[tuple[str, int, ast.AST]]:
    """Return the nodes of a module's functions that may change.

    Each with the name of the function, and the first line of the statement that it is in.
    """

    def walk(
        node: ast.AST, name: str, is_inside: bool, statement: int
    ) -> Iterator[tuple[str, int, ast.AST]]:
        for label, value in ast.iter_fields(node):
            if label in ("annotation", "returns", "decorator_list", "type_params"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr):
                    continue
                inside, own = is_inside, name
                first = child.lineno if isinstance(child, ast.stmt) else statement
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                    inside, own = True, f"{name}.{child.name}".lstrip(".")
                elif isinstance(child, ast.ClassDef):
                    own = f"{name}.{child.name}".lstrip(".")
                elif inside:
                    yield own, first, child
                yield from walk(child, own, inside, first)

    return walk(tree, "", False, 0)


def mutants(name: str, source: str) -> Iterator[tuple[Mutant, Callable[[], str]]]:
    """Return all mutants of a file, and what makes the whole source of each."""
    tree = ast.parse(source)
    seen: dict[str, int] = {}
    for function, statement, node in places(tree):
        after = changed(node)
        if after is None:
            continue
        old, new = _shown(node), _shown(after)
        number = seen[function] = seen.get(function, 0) + 1
        line, last = int(getattr(node, "lineno", 0)), int(getattr(node, "end_lineno", 0))
        key = f"{name}:{function}:{number}"
        mutant = Mutant(key, name, line, last, statement, old, new)
        yield mutant, partial(_source, tree, node, after)


def _source(tree: ast.Module, old: ast.AST, new: ast.AST) -> str:
    return ast.unparse(_replaced(tree, old, new))


def _shown(node: ast.AST) -> str:
    words = f"if {ast.unparse(node.test)}:" if isinstance(node, ast.If) else ast.unparse(node)
    first = words.partition("\n")[0]
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


def drawn(kept: Collection[Mutant] = (), seed: int = SEED, each: int = EACH) -> list[Mutant]:
    """Draw the mutants of all packages, one of each in turn; the slow packages come last.

    Args:
        kept: were drawn before: those that can still be made are drawn again, so that a change of
            the sources moves no others.
        seed: of the dice.
        each: this many of each package.
    """
    found = []
    before = {(mutant.key, mutant.before, mutant.after) for mutant in kept}
    for package, folders in PACKAGES.items():
        files = [file for each in folders for file in sorted((PRODUCT / each).rglob("*.py"))]
        all_mutants = [
            mutant
            for file in files
            for mutant, _ in mutants(str(file.relative_to(PRODUCT)), file.read_text())
        ]
        random.Random(f"{seed} {package}").shuffle(all_mutants)
        all_mutants.sort(key=lambda each: (each.key, each.before, each.after) not in before)
        own = enumerate(all_mutants[:each])
        found += [(package in SLOW, number, mutant) for number, mutant in own]
    found.sort(key=lambda entry: entry[:2])
    return [mutant for _, _, mutant in found]


# -- which tests reach a line ------------------------------------------------------------------


def test_modules() -> list[str]:
    """Return the test modules that run the product in their own process, slow packages last."""
    found = [
        path.relative_to(ROOT).with_suffix("").parts
        for path in (ROOT / "tests").rglob("test_*.py")
        if path.relative_to(ROOT / "tests").parts[0] not in ELSEWHERE
    ]
    order = list(PACKAGES)
    found.sort(key=lambda parts: (order.index(parts[1]) if parts[1] in order else 4.5, parts))
    return [".".join(parts) for parts in found]


@dataclass(frozen=True)
class Reach:
    """The lines that one test module reaches.

    Attributes:
        seconds: of CPU that it takes, without what every start takes.
        digest: of the module's source at that time.
        lines: by file below ``amqproute``; the first entry is the digest of the file.
    """

    seconds: float
    digest: str
    lines: Mapping[str, tuple[str, Sequence[int]]]

    def has(self, mutant: Mutant, digest: str) -> bool:
        """Whether the module may notice a mutant of a file that has this digest now.

        Where the file has changed since, line numbers say nothing: all who reach it count.
        """
        then, lines = self.lines.get(mutant.file, ("", ()))
        own = {mutant.statement, *range(mutant.line, mutant.last + 1)}
        return not own.isdisjoint(lines) if then == digest else bool(then)


def digest_of(source: str) -> str:
    """Return a short digest, which tells versions of a file apart."""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def cover(only: str, jobs: int) -> None:
    """Run each test module under coverage, and keep what it reaches; those that fail are left out.

    Modules that have not changed since are not run again: remove the file to begin from the start.

    Args:
        only: modules whose name has this in it.
        jobs: run this many at a time.
    """
    kept = load_reach() if COVERAGE.exists() else {}
    modules = test_modules()
    digests = {module: digest_of(_file_of(module).read_text()) for module in modules}
    kept = {module: each for module, each in kept.items() if digests.get(module) == each.digest}
    wanted = [module for module in modules if only in module and module not in kept]
    with copies(jobs) as free, ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(_covered, module, free): module for module in wanted}
        for done in as_completed(running):
            module, reach = running[done], done.result()
            if reach is not None:
                if COVERAGE.exists():  # another run may have added to it
                    kept = load_reach() | kept
                kept[module] = reach
                COVERAGE.parent.mkdir(exist_ok=True)
                COVERAGE.write_text(json.dumps({m: dataclasses.asdict(r) for m, r in kept.items()}))
            print(f"{module}: {f'{reach.seconds:.1f} s' if reach else 'failed'}", flush=True)


def _file_of(module: str, project: Path = ROOT) -> Path:
    return project.joinpath(*module.split(".")).with_suffix(".py")


def _covered(module: str, copies_: Queue[Trials]) -> Reach | None:
    trials = copies_.get()
    project = trials.project
    try:
        with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
            data = Path(directory) / "data"
            folders = [each for own in PACKAGES.values() for each in own]
            sources = ",".join(f"amqproute/{folder}" for folder in folders)
            measure = ["-m", "coverage", "run", f"--data-file={data}", f"--source={sources}"]
            command = [sys.executable, *measure, "-m", "twisted.trial", *_options(directory)]
            process = subprocess.Popen(
                [*command, module],
                cwd=project,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            ended = os.pidfd_open(process.pid)
            try:
                seconds = _waited_for(process.pid, ended, MODULE_SECONDS)
            finally:
                os.close(ended)
                _end(process.pid)
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            if seconds is None or process.returncode:
                return None
            # A sample may lack what came after it, the usage the children that were not awaited.
            seconds = max(seconds, usage.ru_utime + usage.ru_stime)
            found = CoverageData(str(data))
            found.read()
            lines = {}
            for name in found.measured_files():
                file, reached = Path(name), sorted(found.lines(name) or ())
                if reached:
                    own = str(file.relative_to(project / "amqproute"))
                    lines[own] = (digest_of(file.read_text()), reached)
            digest = digest_of(_file_of(module, project).read_text())
            return Reach(max(0.0, seconds - START_SECONDS), digest, lines)
    finally:
        copies_.put(trials)


def load_reach() -> dict[str, Reach]:
    """Return what `cover` has found."""
    return {module: Reach(**each) for module, each in json.loads(COVERAGE.read_text()).items()}


# -- running tests -----------------------------------------------------------------------------


class Trials:
    """Runs tests in a copy of the project, each time in a session that ends with them.

    Args:
        project: the copy.
    """

    def __init__(self, project: Path) -> None:
        self.project = project
        self._forker: subprocess.Popen[bytes] | None = None
        self._passed: set[tuple[str, ...]] = set()

    def run(self, tests: Sequence[str], seconds: float) -> tuple[int | None, str]:
        """Run tests until the first that fails.

        Args:
            tests: names of modules or tests.
            seconds: of CPU that they may use.

        Returns:
            The exit code, None if they took too long; and the name of the test that failed, if any.
        """
        if self._forker is None:
            script = [sys.executable, "-P", str(self.project / "tests" / "forked_trial.py")]
            pipe = subprocess.PIPE
            self._forker = subprocess.Popen(
                script, cwd=self.project, bufsize=0, stdin=pipe, stdout=pipe
            )
        stdin, stdout = self._forker.stdin, self._forker.stdout
        assert stdin is not None
        assert stdout is not None
        with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
            output = Path(directory) / "output"
            stdin.write(json.dumps([str(output), *_options(directory), *tests]).encode() + b"\n")
            session = int(stdout.readline())
            try:
                used = _waited_for(session, stdout.fileno(), seconds)
            finally:
                _end(session)
            code = int(stdout.readline())
            if used is None:
                return None, ""
            words = output.read_text(errors="replace")
            failed = re.findall(r"^tests\.[\w.]+$", words, re.MULTILINE)
            return code, failed[0] if code and failed else ""

    def passes(self, tests: Sequence[str], seconds: float) -> bool:
        """Whether tests pass in the copy as it is, without a mutant; they are run once.

        Args:
            tests: names of modules or tests.
            seconds: of CPU that they may use.
        """
        key = tuple(tests)
        if key not in self._passed and self.run(tests, seconds)[0] == 0:
            self._passed.add(key)
        return key in self._passed

    def close(self) -> None:
        """End the process that forks."""
        if self._forker is not None:
            assert self._forker.stdin is not None
            self._forker.stdin.close()
            self._forker.wait()
            assert self._forker.stdout is not None
            self._forker.stdout.close()


@contextmanager
def copies(jobs: int) -> Iterator[Queue[Trials]]:
    """Copy the project once for each job; whoever takes a copy puts it back."""
    ignored = shutil.ignore_patterns(".venv", ".git", ".mutants", "_trial_temp*")
    compile_sources(ROOT)  # once for all copies
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        found: Queue[Trials] = Queue()
        for number in range(jobs):
            copy_of = Path(directory).resolve() / f"project-{number}"
            shutil.copytree(ROOT, copy_of, ignore=ignored, symlinks=True)
            found.put(Trials(copy_of))
        yield found
        while not found.empty():
            found.get().close()


def _options(directory: str | Path) -> list[str]:
    return ["--reporter=text", "--exitfirst", f"--temp-directory={Path(directory) / 'trial'}"]


def _waited_for(session: int, descriptor: int, seconds: float) -> float | None:
    """Wait until there is something to read; return how much CPU the session was seen to use.

    None if there will be nothing, since the session has used more CPU than it may, or none for
    long: on a machine that has much else to do, the time by the clock says nothing.
    """
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    used, since = 0.0, time.monotonic()
    while not poll.poll(2000):
        now_used = _cpu_of(session)
        if now_used > used + 0.02:
            used, since = now_used, time.monotonic()
        if used > seconds or time.monotonic() - since > IDLE_SECONDS:
            return None
    return used


def _end(session: int) -> None:
    with suppress(ProcessLookupError):  # all of its processes have ended
        os.killpg(session, signal.SIGKILL)


def _cpu_of(session: int) -> float:
    """Return the seconds of CPU that the processes of a session have used."""
    ticks = 0
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if int(fields[3]) == session:
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


# -- judging -----------------------------------------------------------------------------------


@dataclass
class Verdict:
    """The fate of a mutant.

    Attributes:
        verdict: killed, survived, or unreached by any test module.
        by: the test that found it, or the modules that did not.
        reason: why a survivor may live, in somebody's words.
    """

    mutant: Mutant
    verdict: str
    by: list[str]
    reason: str = ""


def batches(
    mutant: Mutant, digest: str, reach: Mapping[str, Reach], seconds: float = SECONDS
) -> list[list[str]]:
    """Return the test modules that reach a mutant, in the order in which they are asked.

    First the modules whose name says that the mutant's file is their subject, then those of its
    package, the quickest first, then all others; together no more than fit into ``seconds``. Each
    batch is one run of trial.
    """
    package, _, rest = mutant.file.partition("/")
    stem = Path(rest).stem

    def distance(module: str) -> int:
        own = module.split(".")
        return 2 if own[1] != package else int(stem not in own[-1])

    reaching = [module for module, each in reach.items() if each.has(mutant, digest)]
    reaching.sort(key=lambda module: (distance(module), reach[module].seconds))
    found: dict[int, list[str]] = {}
    left = seconds
    for module in reaching:
        if reach[module].seconds <= left or not found:
            left -= reach[module].seconds
            found.setdefault(distance(module), []).append(module)
    return list(found.values())


def judge(
    mutant: Mutant,
    source: str,
    reach: Mapping[str, Reach],
    trials: Trials,
    seconds: float = SECONDS,
) -> Verdict | None:
    """Run the test modules that reach a mutant in a copy of the project.

    Returns:
        The verdict; None if tests fail, or take too long, without the mutant as well.
    """
    target = trials.project / "amqproute" / mutant.file
    original = target.read_text()
    ran: list[str] = []
    try:
        write(target, source)
        for batch in batches(mutant, digest_of(original), reach, seconds):
            ran += batch
            # A mutant that makes a module hang is found by the suite's limit.
            limit = BASE_SECONDS + 2 * sum(reach[module].seconds for module in batch)
            code, test = trials.run(batch, limit)
            if code == 0:
                continue
            write(target, original)
            if not trials.passes([test] if test else batch, limit):
                return None
            by = test or ", ".join(batch)
            return Verdict(mutant, KILLED, [f"no end of {by}" if code is None else by])
    finally:
        write(target, original)
    return Verdict(mutant, SURVIVED if ran else UNREACHED, ran)


def write(file: Path, source: str) -> None:
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


def still_true(verdicts: Mapping[str, Verdict], chosen: Collection[Mutant]) -> dict[str, Verdict]:
    """Return the verdicts of mutants that are drawn today, each with the line where it is now."""
    now = {(mutant.key, mutant.before, mutant.after): mutant for mutant in chosen}
    found = {}
    for key, each in verdicts.items():
        mutant = now.get((key, each.mutant.before, each.mutant.after))
        if mutant is not None:
            found[key] = dataclasses.replace(each, mutant=mutant)
    return found


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
    for package, folders in PACKAGES.items():
        below = tuple(f"{folder}/" for folder in folders)
        own = [v.verdict for v in verdicts if v.mutant.file.startswith(below)]
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


def run(only: str, again: str, count: int, jobs: int, seconds: float) -> None:
    """Judge mutants that have no verdict, or a certain one, at most this many."""
    if not COVERAGE.exists():
        sys.exit("first: python -m tests.mutants cover")
    reach = load_reach()
    verdicts = load()
    chosen = drawn([each.mutant for each in verdicts.values()])
    verdicts = still_true(verdicts, chosen)
    wanted = [
        mutant
        for mutant in chosen
        if only in mutant.key
        and (mutant.key not in verdicts or _is_asked_again(verdicts[mutant.key], again))
    ][:count]

    def judged(mutant: Mutant) -> Verdict | None:
        trials = free.get()
        try:
            file = trials.project / "amqproute" / mutant.file
            found = mutants(mutant.file, file.read_text())
            source = next(make for each, make in found if each.key == mutant.key)()
            return judge(mutant, source, reach, trials, seconds)
        finally:
            free.put(trials)

    with copies(jobs) as free, ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(judged, mutant): mutant for mutant in wanted}
        for number, done in enumerate(as_completed(running), 1):
            mutant, verdict = running[done], done.result()
            where = f"{mutant.file}:{mutant.line}"
            print(f"{number}/{len(wanted)} {where} {mutant.before} -> {mutant.after}:", end=" ")
            if verdict is None:
                print("no verdict: its tests fail without it, too", flush=True)
                continue
            if mutant.key in verdicts:
                verdict.reason = verdicts[mutant.key].reason
            verdicts[mutant.key] = verdict
            print(verdict.verdict, *verdict.by[:1], flush=True)
            save(verdicts)


def _is_asked_again(verdict: Verdict, again: str) -> bool:
    if again == OPEN:
        return verdict.verdict != KILLED and not verdict.reason
    return verdict.verdict == again


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command", required=True)
    coverer = commands.add_parser("cover", help="find which test modules reach which lines")
    coverer.add_argument("--only", default="", metavar="TEXT", help="in the test module's name")
    runner = commands.add_parser("run", help="judge mutants that have no verdict")
    runner.add_argument("--only", default="", metavar="TEXT", help="in the mutant's key")
    runner.add_argument("--again", default="", choices=(KILLED, SURVIVED, UNREACHED, OPEN))
    runner.add_argument("--count", type=int, default=10**6, help="at most so many")
    runner.add_argument("--seconds", type=float, default=SECONDS, help="of tests for each")
    for each in (coverer, runner):
        each.add_argument("--jobs", type=int, default=2, help="run so many at a time")
    commands.add_parser("list", help="print the mutants")
    given = parser.parse_args()
    if given.command == "cover":
        cover(given.only, given.jobs)
    elif given.command == "run":
        run(given.only, given.again, given.count, given.jobs, given.seconds)
    else:
        for mutant in drawn([each.mutant for each in load().values()]):
            print(f"{mutant.file}:{mutant.line}: {mutant.before} -> {mutant.after}")


if __name__ == "__main__":
    main()
