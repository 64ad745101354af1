# SPDX-License-Identifier: Apache-2.0
"""The layers of the package: permitted imports, read from the sources."""

from __future__ import annotations

import ast
import gc
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import amqproute
from tests.house_counts import Source, circles, counts_in, read

PACKAGE = Path(amqproute.__file__).parent
ROOT = PACKAGE.parent

STOREYS: tuple[tuple[str, ...], ...] = (
    (
        "errors",
        "conditions",
        "outcomes",
        "address",
        "url",
        "dial_policy",
        "durable_path",
        "joined_calls",
        "log_rate_limit",
        "jsontext",
        "restore_detection",
        "tracebacks",
        "plurals",
        "printable",
        "turn_scheduler",
        "bucket_counts",
        "next_steps",
    ),
    ("wire",),
    (
        "body",
        "message",
        "content_class",
        "values",
        "entry",
        "stored",
        "stored_values",
        "trace_context",
    ),
    ("interfaces", "plugins"),
    (
        "store",
        "journal",
        "resolver",
        "auth",
        "routing",
        "net",
        "config",
        "filters",
        "translation",
        "client",
    ),
    ("broker",),
    ("frontends", "relay", "services"),
    ("pipeline", "http", "metrics", "tracing"),
    ("dashboard",),
    ("daemon", "cli"),
    ("tools",),
)
"""From the ground up. Imports go to a lower storey or stay in the own room. On the ground and
among the nouns rooms may also use each other (no cycles); from the capabilities up they may not."""

SOCIABLE = {0, 2, 3, 9}
"""Storeys whose rooms know each other: `cli` starts what `daemon` assembles."""

EVERYWHERE = {""}
"""The package itself (its version) may be imported from anywhere."""

PIPELINE_SEES = {"journal", "client", "wire", "message", "values"}
"""Aside from the house: it reads finished journal segments, and its data source is a client of
brokers with the house's engine."""

TOOLS = "amqproute.tools"
"""Trial, measurement and made-up journals. The product starts them, if at all, by the name that
stands in the table of the commands."""

REACTOR_IN = ("amqproute.daemon.service", "amqproute.cli")
"""The only places that take the global reactor; everything else is given one."""

SANS_IO = ("amqproute.wire", "amqproute.client")
NO_TWISTED = (
    "errors", "conditions", "outcomes", "address", "url", "targets", "wire", "message", "values",
    "content_class", "entry", "filters", "translation", "trace_context",
)  # fmt: skip
IO_MODULES = {
    "asyncio", "io", "logging", "os", "pathlib", "random", "secrets", "select", "selectors",
    "socket", "sqlite3", "ssl", "subprocess", "tempfile", "threading", "time",
}  # fmt: skip
"""Modules of the standard library that a sans-IO engine must not use."""

SANS_IO_LIBRARIES = {"scramp"}
"""Packages that wire may use: the grammar of SCRAM, with nonce and salt as arguments."""

LOCAL_IMPORTS: dict[str, set[str]] = {
    "amqproute.cli.commands.daemon_access": {"amqproute.cli.commands.local_daemon"},
    "amqproute.cli.commands.peer": {"amqproute.cli.commands.peer_test"},
    "amqproute.cli.commands.operation_command": {"amqproute.config.units"},
    "amqproute.cli.render": {"amqproute.cli.terminal"},
    "amqproute.daemon.assembly": {"amqproute.daemon.tracing_assembly"},
    "amqproute.daemon.preflight": {"amqproute.daemon.tracing_assembly"},
    "amqproute.cli.runner": {"twisted.internet.reactor"},
}
"""Module -> names it may import inside a function; each with its reason in a comment there."""

COUNTERPARTS = [
    "connection_settings:"
    " amqproute.wire.amqp09.connection_settings, amqproute.wire.amqp10.connection_settings",
    "exchange: amqproute.cli.commands.exchange, amqproute.pipeline.exchange",
    "login: amqproute.client.login, amqproute.http.login",
    "peer_test: amqproute.cli.commands.peer_test, amqproute.daemon.peer_test",
    "policy: amqproute.auth.policy, amqproute.cli.commands.policy",
    "queue: amqproute.broker.queue, amqproute.cli.commands.queue",
]
"""Modules of one name in packages that are parallel by design, and commands with their subjects.

One is neither: the exchange of the pipeline is the traffic between two partners.
"""

NO_WIRE = ("broker", "http")
"""Rooms whose values are of no protocol of messages: protocols translate at their edges, and the
octets of records in the store are made in `stored_values`."""

NO_ENGINE = ("amqproute.frontends.common",)
"""The package that the frontends of all protocols use imports no engine and none of its types."""


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module, as an importer names it."""

    importer: str
    target: str
    line: int
    is_local: bool

    def __str__(self) -> str:
        path = self.importer.replace(".", "/")
        return f"{path}:{self.line}: imports {self.target}"


def room(module: str) -> str:
    """Return the room a module lies in: the name behind ``amqproute.``, empty for the package."""
    return [*module.split("."), ""][1]


def storey(name: str) -> int | None:
    """Return the number of the storey a room lies on, None where the plan does not show it."""
    return next((n for n, rooms in enumerate(STOREYS) if name in rooms), None)


def imports_of(module: str, tree: ast.Module, modules: set[str]) -> Iterator[Import]:
    """Find every import of a module, those for type checking and those in functions too."""
    waiting: list[tuple[ast.AST, bool]] = [(tree, False)]
    while waiting:
        node, is_local = waiting.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, alias.name, node.lineno, is_local)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            # `from package import module` names the module, `from module import name` not;
            # the reactor is the one name of another's that matters.
            wholes = {f"{base}.{alias.name}" for alias in node.names}
            wholes &= {*modules, "twisted.internet.reactor"}
            for target in wholes if len(wholes) == len(node.names) else {*wholes, base}:
                yield Import(module, target, node.lineno, is_local)
        else:
            function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            waiting += [(child, is_local or function) for child in ast.iter_child_nodes(node)]


@cache
def sources() -> dict[str, Source]:
    """Read the sources, once for all tests. There are millions of nodes, which the collector would
    look through again and again, and which are no garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        found = read(PACKAGE)
        for source in found.values():
            len(source.nodes)
        gc.freeze()
    finally:
        if was_enabled:
            gc.enable()
    return found


@cache
def survey() -> list[Import]:
    """Return the imports of all modules."""
    return [
        found
        for module, source in sources().items()
        for found in imports_of(module, source.tree, set(sources()))
    ]


@cache
def counted() -> dict[str, list[str]]:
    """Count the package, once for all tests."""
    return counts_in(sources(), with_lines=False).found


class ArchitectureTests(SynchronousTestCase):
    """Each test lists all that offends, as ``module:line: what``."""

    def setUp(self) -> None:
        self.sources, self.imports = sources(), survey()
        self.own = [found for found in self.imports if found.target.split(".")[0] == "amqproute"]

    def assertNone(self, offenses: list[str]) -> None:
        """Fail with a readable list unless there is nothing in it."""
        if offenses:
            self.fail("\n  " + "\n  ".join(sorted(offenses)))

    def test_every_room_has_a_storey(self) -> None:
        """Each module lies in a room that the plan shows."""
        entry = {"", "__main__"}
        self.assertNone(
            [
                f"{module}: no storey; add it to STOREYS"
                for module in self.sources
                if room(module) not in entry and storey(room(module)) is None
            ]
        )

    def test_imports_go_down(self) -> None:
        """No import goes up, or across to another room; not for type checking either."""
        offenses = []
        for found in self.own:
            here, there = room(found.importer), room(found.target)
            # The plan's top: the package's own entry point may use everything.
            if here in ("", "__main__", there) or there in EVERYWHERE:
                continue
            above, below = storey(here), storey(there)
            if above is None or below is None:
                continue  # test_every_room_has_a_storey says so
            if below > above or (below == above and above not in SOCIABLE):
                offenses.append(f"{found}: from storey {above} to {below}")
            if here == "pipeline" and there not in PIPELINE_SEES and below > 0:
                offenses.append(f"{found}: the pipeline sees the journal and the engine only")
        self.assertNone(offenses)

    def test_the_product_runs_without_the_tools(self) -> None:
        """No module of the product names one of the tools, except in the table of commands."""
        named = [
            f"{module}:{node.lineno}: names {node.value}"
            for module, source in self.sources.items()
            if not module.startswith(TOOLS) and module != "amqproute.cli.commands"
            for node in source.nodes
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value.startswith(TOOLS)
        ]
        imported = [
            str(found)
            for found in self.own
            if found.target.startswith(TOOLS) and not found.importer.startswith(TOOLS)
        ]
        self.assertNone(named + imported)

    def test_no_cycles_between_rooms(self) -> None:
        """The rooms can be built one after the other."""
        graph: dict[str, set[str]] = {}
        for found in self.own:
            here, there = room(found.importer), room(found.target)
            if here not in ("", there) and there not in EVERYWHERE:
                graph.setdefault(here, set()).add(there)
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            self.fail("a cycle of imports: " + " <- ".join(error.args[1]))

    def test_no_circles_of_files(self) -> None:
        """No files import each other, each way round, for type checking neither."""
        graph: dict[str, set[str]] = {}
        for found in self.own:
            if not f"{found.importer}.".startswith(f"{found.target}."):
                graph.setdefault(found.importer, set()).add(found.target)
        self.assertNone(["a circle of imports: " + ", ".join(each) for each in circles(graph)])

    def test_no_imports_for_type_checking(self) -> None:
        """Names in annotations are imported like all others."""
        self.assertNone(
            [
                f"{module}:{node.lineno}: imports for type checking only"
                for module, source in self.sources.items()
                for node in source.nodes
                if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
            ]
        )

    def test_the_frontends_common_parts_know_no_engine(self) -> None:
        """A second protocol's frontend uses what the first one uses."""
        self.assertNone(
            [
                str(found)
                for found in self.own
                if f"{found.importer}.".startswith(tuple(f"{name}." for name in NO_ENGINE))
                and (
                    room(found.target) == "wire"
                    or (
                        room(found.target) == "frontends" and not found.target.startswith(NO_ENGINE)
                    )
                )
            ]
        )

    def test_the_broker_knows_no_protocol(self) -> None:
        """Outcomes, errors and terms of nodes are values of its own, in each file; so for HTTP."""
        self.assertNone(
            [
                str(found)
                for found in self.own
                if room(found.importer) in NO_WIRE and room(found.target) == "wire"
            ]
        )

    def test_a_class_name_has_one_meaning(self) -> None:
        """No two public classes have one name."""
        found: dict[str, list[str]] = {}
        for module, source in self.sources.items():
            for node in source.nodes:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found.setdefault(node.name, []).append(module)
        self.assertNone(
            [f"{name}: in {' and '.join(where)}" for name, where in found.items() if len(where) > 1]
        )

    def test_no_relative_or_star_imports(self) -> None:
        """An import says in full what it takes."""
        offenses = [str(found) for found in self.imports if found.target.startswith(".")]
        for module, source in self.sources.items():
            for node in source.nodes:
                if isinstance(node, ast.ImportFrom) and any(a.name == "*" for a in node.names):
                    offenses.append(f"{module}:{node.lineno}: imports *")
        self.assertNone(offenses)

    def test_reactor_is_passed_in(self) -> None:
        """The global reactor is taken in the daemon's entry and the command line only."""
        self.assertNone(
            [
                str(found)
                for found in self.imports
                if found.target == "twisted.internet.reactor"
                and not any(f"{found.importer}.".startswith(f"{name}.") for name in REACTOR_IN)
            ]
        )

    def test_wire_is_sans_io(self) -> None:
        """The engines know the standard library and the ground, and of neither what does I/O."""
        offenses = []
        for found in self.imports:
            if not f"{found.importer}.".startswith(tuple(f"{name}." for name in SANS_IO)):
                continue
            top = found.target.split(".")[0]
            if top == "amqproute":
                continue  # test_imports_go_down
            is_library = top in sys.stdlib_module_names or top in SANS_IO_LIBRARIES
            if not is_library or top in IO_MODULES:
                offenses.append(str(found))
        self.assertNone(offenses)

    def test_the_ground_floors_know_no_twisted(self) -> None:
        """Packages of values do not depend on the transport."""
        self.assertNone(
            [
                str(found)
                for found in self.imports
                if room(found.importer) in NO_TWISTED
                and found.target.split(".")[0] in ("twisted", "zope")
            ]
        )

    def test_no_imports_in_functions(self) -> None:
        """Imports stand at the top of a module."""
        self.assertNone(
            [
                f"{found}, inside a function"
                for found in self.imports
                if found.is_local and found.target not in LOCAL_IMPORTS.get(found.importer, set())
            ]
        )

    def test_every_package_is_explained(self) -> None:
        """Each package and each module says what it is for."""
        self.assertNone(
            [
                f"{source.path.relative_to(ROOT)}: no docstring"
                for source in self.sources.values()
                if not ast.get_docstring(source.tree)
            ]
            + [
                f"{path.relative_to(ROOT)}: a package without __init__.py"
                for path in PACKAGE.rglob("*")
                if path.is_dir() and any(path.glob("*.py")) and not (path / "__init__.py").exists()
            ]
        )

    def test_license_line(self) -> None:
        """Each file names its license in its first lines."""
        line = "# SPDX-License-Identifier: Apache-2.0"
        files = [
            *PACKAGE.rglob("*.py"),
            *(ROOT / "plugins").rglob("*.py"),
            *(ROOT / "tests").rglob("*.py"),
            *(ROOT / "benchmarks").rglob("*.py"),
            *(ROOT / "systemd").glob("*"),
            *(path for path in (ROOT / "Makefile", ROOT / ".ci" / "run") if path.exists()),
        ]
        self.assertNone(
            [
                f"{path.relative_to(ROOT)}: no {line}"
                for path in files
                if line not in path.read_text().splitlines()[:2]
            ]
        )


class CountTests(SynchronousTestCase):
    """Bounds on what grows by itself; see `tests.house_counts`."""

    MOST_ANY = 60
    EXPLAINED_WITHIN = 8
    """Lines above an ``Any`` among which the comment with its reason stands, if not on its own."""

    def setUp(self) -> None:
        self.found = counted()

    def test_names_and_constructors(self) -> None:
        """One word has one meaning, and no constructor takes more than anybody can keep in mind."""
        self.assertEqual(self.found["class-names"], [])
        self.assertEqual(self.found["module-names"], COUNTERPARTS)
        self.assertEqual(self.found["constructors"], [])
        self.assertEqual(self.found["upward-typing"], [])

    def test_any(self) -> None:
        """``Any`` in public signatures is rare, and each has its reason beside it."""
        places = {entry.split()[0] for entry in self.found["any-public"]}
        self.assertLessEqual(len(self.found["any-public"]), self.MOST_ANY)
        for place in sorted(places):
            module, _, line = place.rpartition(":")
            lines = sources()[module].text.splitlines()
            last = int(line)
            near = lines[max(0, last - self.EXPLAINED_WITHIN) : last]
            self.assertTrue(
                any("# Any" in each for each in near),
                f"{place}: no comment says why it is Any",
            )


class GuideTests(SynchronousTestCase):
    """Names in CONTRIBUTING.md exist: files, classes, their members, functions."""

    def setUp(self) -> None:
        text = (ROOT / "CONTRIBUTING.md").read_text()
        # The section on style has names that nothing should have.
        text = re.sub(r"\n## \d+\. Style.*?(?=\n## )", "", text, flags=re.DOTALL)
        self.named = sorted(set(re.findall(r"`([^`]+)`", text)))
        self.members: dict[str, set[str]] = {}
        self.bases: dict[str, set[str]] = {}
        self.names: set[str] = set()
        for source in sources().values():
            self.define(source.tree, None)

    def define(self, parent: ast.AST, within: str | None) -> None:
        """Note the names that a node's children define, and which class they are members of."""
        for node in ast.iter_child_nodes(parent):
            name = None
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = node.name
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                name = node.id
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                name = node.attr
            if name is not None:
                self.names.add(name)
                self.members.setdefault(within or "", set()).add(name)
            if isinstance(node, ast.ClassDef):
                bases = {ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases}
                self.bases.setdefault(node.name, set()).update(bases)
                self.define(node, node.name)
            elif not isinstance(node, ast.expr) or name is not None:
                self.define(node, within)

    def has(self, name: str, member: str) -> bool:
        """Tell whether a class, or one it builds on, has a member."""
        return member in self.members.get(name, ()) or any(
            self.has(base, member) for base in self.bases.get(name, ())
        )

    def test_files(self) -> None:
        """Each is below the project, or has that path at the end of its own."""
        folders = ("amqproute", "benchmarks", "docs", "etc", "tests")
        paths = [*ROOT.glob("*"), *(path for each in folders for path in (ROOT / each).rglob("*"))]
        ends = [f"/{path.relative_to(ROOT)}" for path in paths]
        files = re.compile(r"[\w./-]+\.(?:py|md|txt|json|yaml|cfg|xz)|[a-z\d_]+(?:/[a-z\d_]+)+/?")
        missing = [
            name
            for name in self.named
            if files.fullmatch(name)
            and not any(end.endswith("/" + name.rstrip("/")) for end in ends)
        ]
        self.assertEqual(missing, [], "CONTRIBUTING.md: no such files")

    def test_names(self) -> None:
        """Classes with and without a member, and functions with an underscore in their names."""
        missing = []
        for name in self.named:
            if name.endswith(".md") or name.startswith("test_"):
                continue
            found = re.fullmatch(r"([A-Z]\w+)\.(\w+)", name)
            plain = re.fullmatch(r"_?[a-z]+(_[a-z]+)+|[A-Z][a-z]+([A-Z][a-z]+)+|I[A-Z]\w+", name)
            if (found and not self.has(found[1], found[2])) or (plain and name not in self.names):
                missing.append(name)
        self.assertEqual(missing, [], "CONTRIBUTING.md: no such names")
