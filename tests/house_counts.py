# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.house_counts [--root DIR] [--list]``: figures of the package's structure.

They are read from the sources and not from a run, so that any checkout can be counted::

    circles          sets of files that import each other, each way round
    any-public       times that ``Any`` stands in signatures of public functions and methods
    any              times that it stands in an annotation anywhere
    constructors     those with more than `MOST_ARGUMENTS` arguments or `MOST_CALLBACKS` callbacks;
                     of data classes only those that hold collaborators
    callbacks        parameters of constructors that are functions
    class-names      names that several public classes have
    module-names     names that modules of several packages have
    upward-typing    imports for type checking only
    modules, lines, code
                     code: lines that are neither empty nor comments nor docstrings

``--list`` names each thing that is counted.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

__all__ = ["MOST_ARGUMENTS", "MOST_CALLBACKS", "Counts", "circles", "counts_of"]

MOST_ARGUMENTS: Final = 8
MOST_CALLBACKS: Final = 3
_SHARED_STEMS: Final = frozenset({"__init__", "__main__"})

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Counts:
    """The findings: for each figure the counted things, one text each.

    Attributes:
        found: figure to things.
        sums: figures that are sums and have no list.
    """

    found: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    sums: dict[str, int] = field(default_factory=dict)

    def figures(self) -> dict[str, int]:
        """Return every figure."""
        return {**{name: len(things) for name, things in self.found.items()}, **self.sums}


@dataclass
class Source:
    """One module."""

    name: str
    tree: ast.Module
    text: str
    is_package: bool
    path: Path

    @cached_property
    def nodes(self) -> Sequence[ast.AST]:
        """Every node of the tree."""
        return list(ast.walk(self.tree))


def read(package: Path) -> dict[str, Source]:
    """Read the modules of a package, by name."""
    sources = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        text = path.read_text()
        sources[name] = Source(name, ast.parse(text, str(path)), text, is_package, path)
    return sources


def imports_of(source: Source, names: Mapping[str, object]) -> Iterator[tuple[str, bool]]:
    """Yield what a module imports of the package, and whether for type checking only."""
    for_typing = {
        id(inner)
        for node in source.nodes
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for child in node.body
        for inner in ast.walk(child)
    }
    for node in source.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in names:
                    yield alias.name, id(node) in for_typing
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                target = inner if inner in names else node.module
                if target in names:
                    yield target, id(node) in for_typing


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the sets of nodes that can all reach each other, of two and more (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(graph.get(node, ())):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            circle = []
            while not circle or circle[-1] != node:
                circle.append(stack.pop())
            if len(circle) > 1:
                found.append(sorted(circle))

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10 * limit)
    try:
        for node in sorted(graph):
            if node not in index:
                visit(node)
    finally:
        sys.setrecursionlimit(limit)
    return found


def counts_of(package: Path, *, with_lines: bool = True) -> Counts:
    """Count a package.

    Args:
        package: its directory.
        with_lines: count lines too, which takes as long as all the rest.
    """
    return counts_in(read(package), with_lines=with_lines)


def counts_in(sources: Mapping[str, Source], *, with_lines: bool = True) -> Counts:
    """Count a package that has been read."""
    counts = Counts()
    graph: dict[str, set[str]] = {name: set() for name in sources}
    for name, source in sources.items():
        for target, typing_only in imports_of(source, sources):
            if target != name and not _is_ancestor(target, name, sources):
                graph[name].add(target)
            if typing_only:
                counts.found["upward-typing"].append(f"{name}: {target}")
    counts.found["circles"] = [", ".join(circle) for circle in circles(graph)]
    plain = _plain_classes(sources)
    classes: dict[str, list[str]] = defaultdict(list)
    for name, source in sources.items():
        for node in source.nodes:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(name)
            if isinstance(node, ast.ClassDef):
                _constructor(name, node, plain, counts)
        for where, annotation in _public_annotations(source.tree):
            times = _anys(annotation)
            counts.found["any-public"] += [f"{name}:{annotation.lineno} {where}"] * times
        for annotation in _annotations(source.nodes):
            counts.found["any"] += [f"{name}:{annotation.lineno}"] * _anys(annotation)
    counts.found["class-names"] = [
        f"{name}: {', '.join(where)}" for name, where in sorted(classes.items()) if len(where) > 1
    ]
    stems: dict[str, list[str]] = defaultdict(list)
    for name, source in sources.items():
        stem = name.rpartition(".")[2]
        if not source.is_package and stem not in _SHARED_STEMS:
            stems[stem].append(name)
    counts.found["module-names"] = [
        f"{stem}: {', '.join(where)}" for stem, where in sorted(stems.items()) if len(where) > 1
    ]
    counts.sums["modules"] = len(sources)
    if not with_lines:
        return counts
    counts.sums["lines"] = sum(len(each.text.splitlines()) for each in sources.values())
    counts.sums["code"] = sum(_code_lines(each) for each in sources.values())
    return counts


def _is_ancestor(target: str, name: str, sources: Mapping[str, Source]) -> bool:
    """Tell whether a module is a package around another one, whose import is implied."""
    return sources[target].is_package and name.startswith(f"{target}.")


def _anys(annotation: ast.AST) -> int:
    """Count ``Any`` in an annotation, at any depth, in quoted ones too."""
    total = 0
    for node in ast.walk(annotation):
        name = getattr(node, "id", getattr(node, "attr", ""))
        if isinstance(node, ast.Name | ast.Attribute) and name == "Any":
            total += 1
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                inner = ast.parse(node.value, mode="eval")
            except SyntaxError:
                continue
            total += _anys(inner) if inner.body is not node else 0
    return total


def _arguments(node: Function) -> list[ast.arg]:
    given = node.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return [*every, *(each for each in (given.vararg, given.kwarg) if each is not None)]


def _annotations(nodes: Iterable[ast.AST]) -> Iterator[ast.expr]:
    for node in nodes:
        if isinstance(node, Function):
            yield from (each.annotation for each in _arguments(node) if each.annotation)
            if node.returns is not None:
                yield node.returns
        elif isinstance(node, ast.AnnAssign):
            yield node.annotation


def _public_annotations(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield annotations of public functions, of public methods of public classes, of attributes."""
    waiting: list[tuple[str, ast.AST]] = [("", tree)]
    while waiting:
        prefix, scope = waiting.pop()
        for node in ast.iter_child_nodes(scope):
            if isinstance(node, ast.If | ast.Try):
                waiting.append((prefix, node))
            elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                waiting.append((f"{prefix}{node.name}.", node))
            elif isinstance(node, Function):
                if node.name.startswith("_") and node.name not in ("__init__", "__call__"):
                    continue
                where = f"{prefix}{node.name}"
                for each in _arguments(node):
                    if each.annotation is not None:
                        yield f"{where}({each.arg})", each.annotation
                if node.returns is not None:
                    yield f"{where} ->", node.returns
            elif isinstance(node, ast.AnnAssign) and isinstance(scope, ast.ClassDef):
                name = getattr(node.target, "id", "")
                if not name.startswith("_"):
                    yield f"{prefix}{name}", node.annotation


def _decorators(node: ast.ClassDef) -> set[str]:
    found = set()
    for each in node.decorator_list:
        function = each.func if isinstance(each, ast.Call) else each
        found.add(getattr(function, "id", getattr(function, "attr", "")))
    return found


def _plain_classes(sources: Mapping[str, Source]) -> dict[str, bool]:
    """Map names of the package's classes to whether they are plain values."""
    plain: dict[str, bool] = {}
    values = {
        "Enum",
        "StrEnum",
        "IntEnum",
        "IntFlag",
        "Flag",
        "NamedTuple",
        "TypedDict",
        "Settings",
        # A value of a type of Python's with a name of its own, as a symbol or a short string.
        "str",
        "int",
        "float",
        "bytes",
        "dict",
        "Mapping",
    }
    for source in sources.values():
        for node in source.nodes:
            if isinstance(node, ast.ClassDef):
                bare = [e.value if isinstance(e, ast.Subscript) else e for e in node.bases]
                bases = {getattr(each, "id", getattr(each, "attr", "")) for each in bare}
                plain[node.name] = "dataclass" in _decorators(node) or bool(
                    bases & values or any(plain.get(base, False) for base in bases)
                )
    return plain


def _is_callback(annotation: ast.expr | None) -> bool:
    return annotation is not None and any(
        isinstance(node, ast.Name) and node.id == "Callable" for node in ast.walk(annotation)
    )


def _is_no_argument(default: ast.expr | None) -> bool:
    """Tell whether a field of a data class is none of the constructor's (``init=False``)."""
    return isinstance(default, ast.Call) and any(
        each.arg == "init" and getattr(each.value, "value", True) is False
        for each in default.keywords
    )


def _holds_collaborator(annotation: ast.expr, plain: Mapping[str, bool]) -> bool:
    names = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
    return _is_callback(annotation) or any(plain.get(name) is False for name in names)


def _constructor(
    module: str, node: ast.ClassDef, plain: Mapping[str, bool], counts: Counts
) -> None:
    own = [each for each in node.body if isinstance(each, Function) and each.name == "__init__"]
    if own:
        annotations = [each.annotation for each in _arguments(own[0])[1:]]
        is_exempt = False
    elif "dataclass" in _decorators(node):
        fields = [
            each.annotation
            for each in node.body
            if isinstance(each, ast.AnnAssign) and not _is_no_argument(each.value)
        ]
        annotations = [each for each in fields if "ClassVar" not in ast.dump(each)]
        is_exempt = not any(_holds_collaborator(each, plain) for each in annotations)
    else:
        return
    callbacks = sum(map(_is_callback, annotations))
    counts.found["callbacks"] += [f"{module}.{node.name}"] * callbacks
    is_large = len(annotations) > MOST_ARGUMENTS or callbacks > MOST_CALLBACKS
    if is_large and not is_exempt:
        counts.found["constructors"].append(
            f"{module}.{node.name}: {len(annotations)} arguments, {callbacks} callbacks"
        )


def _code_lines(source: Source) -> int:
    """Count lines that have a token which is neither a comment nor part of a docstring."""
    docstrings: set[int] = set()
    for node in source.nodes:
        if isinstance(node, ast.Module | ast.ClassDef | Function) and ast.get_docstring(node):
            first = node.body[0]
            docstrings.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    empty = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
             tokenize.ENDMARKER)  # fmt: skip
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type not in empty:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Count how the package is built.")
    here = Path(__file__).resolve().parents[1]
    parser.add_argument("--root", type=Path, default=here, help="the checkout that is counted")
    parser.add_argument("--list", action="store_true", help="name each thing that is counted")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    counts = counts_of(given.root / "amqproute")
    if given.json:
        print(json.dumps(counts.found if given.list else counts.figures(), indent=1))
        return
    for name, figure in sorted(counts.figures().items()):
        print(f"{figure:8} {name}")
        if given.list:
            print("".join(f"             {each}\n" for each in counts.found.get(name, ())), end="")


if __name__ == "__main__":
    main()
