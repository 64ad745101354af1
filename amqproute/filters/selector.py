# SPDX-License-Identifier: Apache-2.0
"""Selectors: a text compiled once to a predicate over messages.

`compile_selector` parses the text to a tree, gives every field it names a place in a row, and
turns the tree into closures over such a row. For each message the row is read from the bytes
(`amqproute.filters.fields`) and the outermost closure is called.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from amqproute.errors import DecodeError, InvalidField
from amqproute.filters import names, operators, tree
from amqproute.filters.fields import FieldReader, Row
from amqproute.filters.grammar import MAX_WORDS, count_words, parse
from amqproute.filters.names import Dialect, SelectorField, Value
from amqproute.filters.operators import COMPARISONS, TEXT, kind_of
from amqproute.filters.tree import Node
from amqproute.message import Message

Term: TypeAlias = Callable[[Row], Value]
"""A compiled node. As a condition True, False, or anything else for unknown."""

Clock: TypeAlias = Callable[[], int]
"""Returns the wall clock in ms since the epoch."""

CLOCK: Final = "clock"
"""Requirement of a selector with UTC(), beside sections."""


class Selector:
    """A compiled selector. Two are equal if they have the same normalized text and dialect.

    Attributes:
        text: the text, as given.
        words: number of its words (`amqproute.filters.grammar`), a measure of its cost.
        dialect: its language.
        needs: parts of a message that it reads: some of ``header``, ``properties``,
            ``application``, ``annotations`` and, when its answer changes with time, ``clock``.
    """

    __slots__ = ("_normal", "_reader", "_test", "dialect", "needs", "text", "words")

    def __init__(
        self, text: str, dialect: Dialect, root: Node | None, now_ms: Clock | None
    ) -> None:
        self.text = text
        self.words = count_words(text)[0]
        self.dialect = dialect
        named = tuple(dict.fromkeys(tree.fields(root))) if root is not None else ()
        self._reader = FieldReader(named)
        self._normal = "" if root is None else tree.render(root)
        self._test: Term | None = None
        needs = names.sections_of(named)
        if root is not None:
            compiler = _Compiler(named, dialect, now_ms)
            self._test = compiler.term(root)
            if compiler.is_timed:
                needs |= {CLOCK}
        self.needs: frozenset[str] = needs

    def matches(self, message: Message, origin: str | None = None) -> bool:
        """Return whether a message is selected: the condition is true, not false and not unknown.

        A message is not selected by conditions on sections that cannot be decoded.

        Args:
            message: the message.
            origin: not used; see `amqproute.filters.registry.Filter`.
        """
        test = self._test
        if test is None:
            return True
        try:
            return test(self._reader.read(message)) is True
        except DecodeError:
            return False

    def __str__(self) -> str:
        """Return the normalized text, which compiles to an equal selector."""
        return self._normal

    def __repr__(self) -> str:
        return f"<Selector {self._normal:.80}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Selector):
            return NotImplemented
        return (self.dialect, self._normal) == (other.dialect, other._normal)

    def __hash__(self) -> int:
        return hash((self.dialect, self._normal))


CACHED_SELECTORS: Final = 1024
"""Compiled selectors that are kept for later links with the same text."""
CACHED_WORDS: Final = 32 * MAX_WORDS
"""Words of all of these together: some 15 MB."""


class SelectorCache:
    """Cache of compiled selectors by text and dialect; the least recently used ones are dropped.

    Selectors do not change: links share them.

    Args:
        most: largest number of selectors.
        most_words: largest number of their words in all.

    Attributes:
        words: the words of all of them.
        misses: number of compilations.
    """

    def __init__(self, most: int = CACHED_SELECTORS, most_words: int = CACHED_WORDS) -> None:
        self._most = most
        self._most_words = most_words
        self._kept: OrderedDict[tuple[str, Dialect, Clock | None], Selector] = OrderedDict()
        self.words = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, text: str, dialect: Dialect, now_ms: Clock | None) -> Selector:
        """Return the selector for a text. See `compile_selector`.

        Raises:
            InvalidField: it is no selector.
        """
        key = text, dialect, now_ms
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found
        self.misses += 1
        found = self._kept[key] = compile_selector(text, dialect=dialect, now_ms=now_ms)
        self.words += found.words
        while len(self._kept) > self._most or self.words > self._most_words:
            self.words -= self._kept.popitem(last=False)[1].words
        return found


def compile_selector(
    text: str, *, dialect: Dialect = Dialect.SELECTOR, now_ms: Clock | None = None
) -> Selector:
    """Compile a selector; an empty one selects everything (revision 200 §4.1).

    Args:
        text: the text from the peer.
        dialect: its language.
        now_ms: the wall clock in ms since the epoch, for UTC(); without it UTC() is refused.

    Raises:
        InvalidField: it is no selector. The description names the position and the expected terms,
            or says that it is a value and not a condition.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidField(f"selector, character {error.start + 1}: half a character") from None
    root = parse(text, dialect) if text.strip(" \t\f\r\n") else None
    if isinstance(root, tree.Arithmetic | tree.Signed) or (
        isinstance(root, tree.Literal) and not isinstance(root.value, bool)
    ):
        # It could never be true, so it is a mistake (E-02).
        raise InvalidField(
            "selector, character 1: this is a value and no condition; compare it with something",
            info={"code": "filter.syntax", "position": 1},
        )
    return Selector(text, dialect, root, now_ms)


# --------------------------------------------------------------------------- compilation


class _Compiler:
    """Turns the nodes of one tree into closures."""

    def __init__(
        self, fields: tuple[SelectorField, ...], dialect: Dialect, now_ms: Clock | None
    ) -> None:
        self._slots: Mapping[SelectorField, int] = {
            field: slot for slot, field in enumerate(fields)
        }
        self._now_ms = now_ms
        self._add = operators.joined if dialect is Dialect.FILTEX else None
        self.is_timed = False

    def term(self, node: Node) -> Term:
        """Compile a node."""
        if isinstance(node, tree.Name):
            slot = self._slots[node.field]
            return lambda row: row[slot]
        if isinstance(node, tree.Literal):
            value = node.value
            return lambda row: value
        if isinstance(node, tree.Compare):
            return self._comparison(node)
        if isinstance(node, tree.Logic):
            terms = tuple(map(self.term, node.terms))
            return _all_of(terms) if node.operator == "AND" else _any_of(terms)
        if isinstance(node, tree.Not):
            return _negation(self.term(node.term))
        if isinstance(node, tree.Arithmetic):
            return self._arithmetic(node)
        if isinstance(node, tree.Signed):
            sign, operand = node.sign, self.term(node.operand)
            return lambda row: operators.signed(sign, operand(row))
        if isinstance(node, tree.FunctionCall):
            return self._call(node)
        return self._predicate(node)

    def _predicate(self, node: tree.Like | tree.Among | tree.Between | tree.IsNull) -> Term:
        operand = self.term(node.operand)
        if isinstance(node, tree.IsNull):
            if node.negated:
                return lambda row: operand(row) is not None
            return lambda row: operand(row) is None
        if isinstance(node, tree.Like):
            test = _like(operand, node)
        elif isinstance(node, tree.Between):
            test = _between(operand, self.term(node.low), self.term(node.high))
        elif all(isinstance(choice, tree.Literal) for choice in node.choices):
            test = _among_literals(
                operand,
                [choice.value for choice in node.choices if isinstance(choice, tree.Literal)],
            )
        else:
            test = _among(operand, tuple(map(self.term, node.choices)))
        return _negation(test) if node.negated else test

    def _comparison(self, node: tree.Compare) -> Term:
        sign = node.operator
        if isinstance(node.left, tree.Name) and isinstance(node.right, tree.Literal):
            return _compare_field(self._slots[node.left.field], sign, node.right.value)
        left, right = self.term(node.left), self.term(node.right)
        return lambda row: operators.compare(sign, left(row), right(row))

    def _arithmetic(self, node: tree.Arithmetic) -> Term:
        first = self.term(node.first)
        rest = tuple((sign, self.term(term)) for sign, term in node.rest)
        add = self._add

        def total(row: Row) -> Value:
            value = first(row)
            for sign, term in rest:
                if add is not None and sign == "+":
                    value = add(value, term(row))
                else:
                    value = operators.calculate(sign, value, term(row))
                if value is None:
                    return None
            return value

        return total

    def _call(self, node: tree.FunctionCall) -> Term:
        if node.function == "UTC":
            now_ms = self._now_ms
            if now_ms is None:
                raise InvalidField("selector: UTC() is not offered here")
            self.is_timed = True
            return lambda row: now_ms()
        terms = tuple(map(self.term, node.arguments))
        if node.function == "EXISTS":
            operand = terms[0]
            return lambda row: operand(row) is not None
        function = _FUNCTIONS[node.function]
        return lambda row: function(*[term(row) for term in terms])


_FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "LOWER": operators.lower,
    "UPPER": operators.upper,
    "LEFT": operators.left,
    "RIGHT": operators.right,
    "SUBSTRING": operators.substring,
    "DATE": operators.date,
}


def _compare_field(slot: int, sign: str, value: object) -> Term:
    """Compile ``field = constant``, of which most selectors consist."""
    kind = kind_of(type(value))
    test = COMPARISONS[sign]
    if not operators.is_ordered(sign, kind):
        return lambda row: None

    def compared(row: Row) -> Value:
        found = row[slot]
        return test(found, value) if kind_of(type(found)) == kind else None

    return compared


def _all_of(terms: tuple[Term, ...]) -> Term:
    def every(row: Row) -> Value:
        result: Value = True
        for term in terms:
            value = term(row)
            if value is False:
                return False
            if value is not True:
                result = None
        return result

    return every


def _any_of(terms: tuple[Term, ...]) -> Term:
    def some(row: Row) -> Value:
        result: Value = False
        for term in terms:
            value = term(row)
            if value is True:
                return True
            if value is not False:
                result = None
        return result

    return some


def _negation(term: Term) -> Term:
    def negated(row: Row) -> Value:
        value = term(row)
        return False if value is True else True if value is False else None

    return negated


def _like(operand: Term, node: tree.Like) -> Term:
    matches = operators.Pattern(node.pattern, node.escape).matches

    def like(row: Row) -> Value:
        text = operand(row)
        if kind_of(type(text)) != TEXT:
            return None
        assert isinstance(text, str)
        return None if len(text) > operators.LONGEST_TEXT else matches(text)

    return like


def _between(operand: Term, low: Term, high: Term) -> Term:
    def between(row: Row) -> Value:
        value = operand(row)
        above = operators.compare(">=", value, low(row))
        if above is False:
            return False
        below = operators.compare("<=", value, high(row))
        return below if below is False or above is True else None

    return between


def _among(operand: Term, choices: tuple[Term, ...]) -> Term:
    def among(row: Row) -> Value:
        value = operand(row)
        result: Value = False
        for choice in choices:
            found = operators.compare("=", value, choice(row))
            if found:
                return True
            if found is None:
                result = None
        return result

    return among


def _among_literals(operand: Term, values: list[Value]) -> Term:
    """Compile IN over constants: one look-up for any number of them."""
    kinds = {kind_of(type(value)) for value in values}
    if len(kinds) > 1:
        return _among(operand, tuple(_constant(value) for value in values))
    kind = kinds.pop()
    # Equal numbers of different types have equal hashes.
    chosen = frozenset(values)

    def among(row: Row) -> Value:
        value = operand(row)
        return value in chosen if kind_of(type(value)) == kind else None

    return among


def _constant(value: Value) -> Term:
    return lambda row: value
