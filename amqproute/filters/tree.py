# SPDX-License-Identifier: Apache-2.0
"""The tree of a selector, and its normalized text.

Chains of AND, OR and of arithmetic are one node each, however long, so that neither a long text
nor its evaluation goes deep; `depth` measures the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

from amqproute.filters.names import SelectorField, Value


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant: text, octets, a number or a truth value."""

    value: Value


@dataclass(frozen=True, slots=True)
class Name:
    """The value of a field, null where the message has none."""

    field: SelectorField


@dataclass(frozen=True, slots=True)
class Signed:
    """Unary plus or minus."""

    sign: str
    operand: Node


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A chain of ``+ -`` or of ``* / %``, from left to right."""

    first: Node
    rest: tuple[tuple[str, Node], ...]


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function of the OASIS draft (filtex §6.5), its name in capitals."""

    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Compare:
    """``= <> < <= > >=``."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Like:
    """``[NOT] LIKE pattern [ESCAPE character]``."""

    operand: Node
    pattern: str
    escape: str | None
    negated: bool


@dataclass(frozen=True, slots=True)
class Among:
    """``[NOT] IN (...)``."""

    operand: Node
    choices: tuple[Node, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Between:
    """``[NOT] BETWEEN low AND high``."""

    operand: Node
    low: Node
    high: Node
    negated: bool


@dataclass(frozen=True, slots=True)
class IsNull:
    """``IS [NOT] NULL``."""

    operand: Node
    negated: bool


@dataclass(frozen=True, slots=True)
class Not:
    """``NOT``."""

    term: Node


@dataclass(frozen=True, slots=True)
class Logic:
    """A chain of AND or of OR."""

    operator: str
    terms: tuple[Node, ...]


Node: TypeAlias = (
    Literal | Name | Signed | Arithmetic | FunctionCall
    | Compare | Like | Among | Between | IsNull | Not | Logic
)  # fmt: skip


def children(node: Node) -> tuple[Node, ...]:
    """Return the operands of a node."""
    if isinstance(node, Compare):
        return node.left, node.right
    if isinstance(node, Logic):
        return node.terms
    if isinstance(node, Not):
        return (node.term,)
    if isinstance(node, Arithmetic):
        return (node.first, *(term for _, term in node.rest))
    if isinstance(node, FunctionCall):
        return node.arguments
    if isinstance(node, Among):
        return (node.operand, *node.choices)
    if isinstance(node, Between):
        return node.operand, node.low, node.high
    if isinstance(node, Literal | Name):
        return ()
    return (node.operand,)


def depth(root: Node) -> int:
    """Return the depth of a tree, without recursion."""
    deepest = 0
    waiting = [(root, 1)]
    while waiting:
        node, level = waiting.pop()
        deepest = max(deepest, level)
        waiting += [(child, level + 1) for child in children(node)]
    return deepest


def fields(root: Node) -> Iterator[SelectorField]:
    """Yield the fields in a tree, some of them more than once."""
    waiting: list[Node] = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Name):
            yield node.field
        waiting += children(node)


# ---------------------------------------------------------------------- normalized text

_OR, _AND, _NOT, _TEST, _SUM, _PRODUCT, _SIGN, _PRIMARY = range(8)


def _rank(node: Node) -> int:
    """Return how tightly the outermost operator of a node binds."""
    if isinstance(node, Logic):
        return _OR if node.operator == "OR" else _AND
    if isinstance(node, Not):
        return _NOT
    if isinstance(node, Compare | Like | Among | Between | IsNull):
        return _TEST
    if isinstance(node, Arithmetic):
        return _SUM if node.rest[0][0] in "+-" else _PRODUCT
    if isinstance(node, Signed):
        return _SIGN
    if isinstance(node, Literal) and _is_negative(node.value):
        return _SIGN
    return _PRIMARY


def _is_negative(value: Value) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.copysign(1, value) < 0
    )


def render(node: Node, rank: int = _OR) -> str:
    """Format a node: keywords in capitals, names with their domain, single spaces.

    Args:
        node: the node.
        rank: use parentheses if the node binds less tightly than this.
    """
    text = _render(node)
    return f"({text})" if _rank(node) < rank else text


def _render(node: Node) -> str:
    if isinstance(node, Literal):
        return quoted(node.value)
    if isinstance(node, Name):
        return node.field.text
    if isinstance(node, Logic):
        rank = _AND if node.operator == "OR" else _NOT
        return f" {node.operator} ".join(render(term, rank) for term in node.terms)
    if isinstance(node, Not):
        return f"NOT {render(node.term, _NOT)}"
    if isinstance(node, Compare):
        return f"{render(node.left, _SUM)} {node.operator} {render(node.right, _SUM)}"
    if isinstance(node, Signed):
        return f"{node.sign}{render(node.operand, _SIGN)}"
    if isinstance(node, Arithmetic):
        rank = _rank(node) + 1
        rest = "".join(f" {sign} {render(term, rank)}" for sign, term in node.rest)
        return f"{render(node.first, rank)}{rest}"
    if isinstance(node, FunctionCall):
        return f"{node.function}({', '.join(map(render, node.arguments))})"
    operand = render(node.operand, _SUM)
    if isinstance(node, IsNull):
        return f"{operand} IS {'NOT ' if node.negated else ''}NULL"
    operand += " NOT" if node.negated else ""
    if isinstance(node, Like):
        escape = "" if node.escape is None else f" ESCAPE {quoted(node.escape)}"
        return f"{operand} LIKE {quoted(node.pattern)}{escape}"
    if isinstance(node, Between):
        return f"{operand} BETWEEN {render(node.low, _SUM)} AND {render(node.high, _SUM)}"
    return f"{operand} IN ({', '.join(render(choice, _SUM) for choice in node.choices)})"


def quoted(value: Value) -> str:
    """Format a constant."""
    if value is True or value is False:
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    if isinstance(value, float) and not math.isfinite(value):
        return "NAN" if math.isnan(value) else "INF" if value > 0 else "-INF"
    assert isinstance(value, int | float | Decimal)
    return repr(value)
