# SPDX-License-Identifier: Apache-2.0
"""An independent, simple interpreter of selectors over a tree of tuples.

It shares nothing with `amqproute.filters`: its tree, its text and its meaning are its own,
written from SQL-92 §8 and from the package's docstrings. Slow, recursive and easy to read.

A tree is one of::

    ("lit", value)                          ("name", key)
    ("=", a, b) and <> < <= > >=            ("and", a, b)  ("or", a, b)  ("not", a)
    ("+", a, b) and - * / %                 ("neg", a)  ("pos", a)
    ("like", a, pattern, escape, negated)   ("in", a, [b, ...], negated)
    ("between", a, low, high, negated)      ("null", a, negated)
"""

from __future__ import annotations

from decimal import Context, Decimal, DivisionByZero, InvalidOperation, Overflow
from fractions import Fraction
from math import fmod
from typing import Any

UNKNOWN = None


def kind(value: Any) -> str | None:
    """Name the family of a value."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, str):
        return "text"
    if isinstance(value, bytes):
        return "octets"
    return "number"


def evaluate(node: Any, row: dict[str, Any]) -> Any:
    """Compute the value of a tree; None is null and unknown."""
    what = node[0]
    if what == "lit":
        return node[1]
    if what == "name":
        return row.get(node[1])
    if what == "and":
        return three_and(truth(evaluate(node[1], row)), truth(evaluate(node[2], row)))
    if what == "or":
        left, right = truth(evaluate(node[1], row)), truth(evaluate(node[2], row))
        return invert(three_and(invert(left), invert(right)))
    if what == "not":
        return invert(truth(evaluate(node[1], row)))
    if what in ("=", "<>", "<", "<=", ">", ">="):
        return relate(what, evaluate(node[1], row), evaluate(node[2], row))
    if what in ("+", "-", "*", "/", "%"):
        return combine(what, evaluate(node[1], row), evaluate(node[2], row))
    if what == "neg":
        return combine("-", 0, evaluate(node[1], row))
    if what == "pos":
        return combine("+", 0, evaluate(node[1], row))
    value = evaluate(node[1], row)
    if what == "null":
        return (value is None) != node[2]
    if what == "like":
        result = UNKNOWN
        if kind(value) == "text":
            result = like(value, letters(node[2], node[3]))
        return invert(result) if node[4] else result
    if what == "in":
        result = False
        for choice in node[2]:
            found = relate("=", value, evaluate(choice, row))
            result = invert(three_and(invert(result), invert(found)))
        return invert(result) if node[3] else result
    assert what == "between"
    low, high = evaluate(node[2], row), evaluate(node[3], row)
    result = three_and(relate(">=", value, low), relate("<=", value, high))
    return invert(result) if node[4] else result


def truth(value: Any) -> bool | None:
    return value if isinstance(value, bool) else UNKNOWN


def invert(value: bool | None) -> bool | None:
    return UNKNOWN if value is UNKNOWN else not value


def three_and(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return True if left is True and right is True else UNKNOWN


def relate(sign: str, left: Any, right: Any) -> bool | None:
    """Compare by rank: exact fractions, code points, octets."""
    family = kind(left)
    if family is None or family != kind(right):
        return UNKNOWN
    if family == "truth" and sign not in ("=", "<>"):
        return UNKNOWN
    if family == "number":
        left, right = Fraction(left), Fraction(right)
    elif family == "text":
        left, right = [ord(each) for each in left], [ord(each) for each in right]
    less, equal = left < right, left == right
    return {
        "=": equal, "<>": not equal, "<": less, "<=": less or equal,
        ">": not less and not equal, ">=": not less,
    }[sign]  # fmt: skip


CONTEXT = Context(
    prec=34, Emin=-6143, Emax=6144, traps=[DivisionByZero, InvalidOperation, Overflow]
)


def combine(sign: str, left: Any, right: Any) -> Any:
    """Calculate: integers as fractions that are cut, floats and decimals as they do."""
    if kind(left) != "number" or kind(right) != "number":
        return UNKNOWN
    if sign in "/%" and right == 0:
        return UNKNOWN
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
        if sign == "%":
            return fmod(left, right)
        return {
            "+": lambda: left + right, "-": lambda: left - right,
            "*": lambda: left * right, "/": lambda: left / right,
        }[sign]()  # fmt: skip
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        left, right = Decimal(left), Decimal(right)
        try:
            return {
                "+": CONTEXT.add, "-": CONTEXT.subtract, "*": CONTEXT.multiply,
                "/": CONTEXT.divide, "%": CONTEXT.remainder,
            }[sign](left, right)  # fmt: skip
        except ArithmeticError:
            return UNKNOWN
    if sign in "/%":
        cut = int(Fraction(left, right))  # int() cuts towards zero.
        result = cut if sign == "/" else left - right * cut
    else:
        result = {"+": left + right, "-": left - right, "*": left * right}[sign]
    return result if -(2**63) <= result < 2**64 else UNKNOWN


def letters(pattern: str, escape: str | None) -> list[tuple[str, str]]:
    """Read a pattern into (what, character)."""
    found = []
    pos = 0
    while pos < len(pattern):
        if pattern[pos] == escape:
            found.append(("char", pattern[pos + 1]))
            pos += 2
            continue
        each = pattern[pos]
        found.append({"%": ("many", ""), "_": ("one", "")}.get(each, ("char", each)))
        pos += 1
    return found


def like(text: str, pattern: list[tuple[str, str]]) -> bool:
    """Match by the table of all prefixes."""
    reached = {0}
    for what, character in pattern:
        following = set()
        for pos in reached:
            if what == "many":
                following |= set(range(pos, len(text) + 1))
            elif pos < len(text) and (what == "one" or text[pos] == character):
                following.add(pos + 1)
        reached = following
    return len(text) in reached


# ------------------------------------------------------------------------------ text


def write(node: Any) -> str:
    """Write a tree as a selector, with all the parentheses."""
    what = node[0]
    if what == "lit":
        return constant(node[1])
    if what == "name":
        return str(node[1])
    if what == "not":
        return f"(NOT {write(node[1])})"
    if what in ("neg", "pos"):
        return f"({'-' if what == 'neg' else '+'} {write(node[1])})"
    if what == "null":
        return f"({write(node[1])} IS {'NOT ' if node[2] else ''}NULL)"
    if what == "like":
        escape = f" ESCAPE {constant(node[3])}" if node[3] else ""
        negation = "NOT " if node[4] else ""
        return f"({write(node[1])} {negation}LIKE {constant(node[2])}{escape})"
    if what == "in":
        choices = ", ".join(map(write, node[2]))
        return f"({write(node[1])} {'NOT ' if node[3] else ''}IN ({choices}))"
    if what == "between":
        negation = "NOT " if node[4] else ""
        return f"({write(node[1])} {negation}BETWEEN {write(node[2])} AND {write(node[3])})"
    return f"({write(node[1])} {what} {write(node[2])})"


def constant(value: Any) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "false"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    return repr(value)
