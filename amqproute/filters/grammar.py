# SPDX-License-Identifier: Apache-2.0
"""Parser of selectors: an LALR grammar, and errors with positions.

Both dialects share the rules and differ in a few words:

==================  ==================================  =====================================
                    selector                            SQL filter (filtex §6)
==================  ==================================  =====================================
``"text"``          a delimited name (SQL-92 §5.2)      a string
``0x1F``            an integer                          the octet 0x1F
``07``              refused: octal to Java, not to SQL  the integer 7
``INF``, ``NAN``    names                               numbers
``message-id``      the field of the standard           ``message`` minus ``id``
==================  ==================================  =====================================

``[text]`` is a delimited name and ``X'1F'`` are octets in both. Keywords and functions may be
written in small letters too; names of functions are reserved only before a parenthesis, so that
``date > 5`` is about a property.

Limits: `MAX_LENGTH` characters, `MAX_WORDS` words, `MAX_DEPTH` nodes above one another. The words
are counted before anything is parsed, since each costs the parser some 7 microseconds, and a good
part of one for every message later.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, cast

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from amqproute.errors import InvalidField
from amqproute.filters import names, tree
from amqproute.filters.names import Dialect, MessageView, UnknownName
from amqproute.filters.operators import LARGEST_EXACT
from amqproute.filters.tree import Node

MAX_LENGTH: Final = 4096
"""Characters of a selector."""

MAX_WORDS: Final = 1024
"""Names, constants, operators, commas and parentheses of a selector; not the second and further
ones of parentheses that stand directly within one another."""

MAX_DEPTH: Final = 48
"""Nodes above one another in the tree of a selector."""

FUNCTIONS: Final = {
    "EXISTS": (1, 1), "LOWER": (1, 1), "UPPER": (1, 1), "LEFT": (2, 2), "RIGHT": (2, 2),
    "SUBSTRING": (2, 3), "UTC": (0, 0), "DATE": (1, 1),
}  # fmt: skip
"""Functions of the OASIS draft -> least and most arguments."""

_RULES = r"""
?start: disjunction
?disjunction: conjunction | conjunction (_OR conjunction)+ -> any_of
?conjunction: negation | negation (_AND negation)+ -> all_of
?negation: _NOT negation -> negated | test
?test: sum
    | sum COMPARISON sum -> compare
    | sum _LIKE STRING [_ESCAPE STRING] -> like
    | sum _NOT _LIKE STRING [_ESCAPE STRING] -> unlike
    | sum _IN "(" sum ("," sum)* ")" -> among
    | sum _NOT _IN "(" sum ("," sum)* ")" -> not_among
    | sum _BETWEEN sum _AND sum -> between
    | sum _NOT _BETWEEN sum _AND sum -> not_between
    | sum _IS _NULL -> is_null
    | sum _IS _NOT _NULL -> is_not_null
?sum: product | product (SIGN product)+ -> arithmetic
?product: signed | signed (FACTOR signed)+ -> arithmetic
?signed: SIGN signed -> sign | primary
?primary: NAME -> name
    | DELIMITED -> delimited
    | STRING -> string
    | EXACT -> exact
    | APPROXIMATE -> approximate
    | OCTETS -> octets
    | HEXADECIMAL -> hexadecimal
    | TRUTH -> truth
    | FUNCTION "(" [disjunction ("," disjunction)*] ")" -> call
    | "(" disjunction ")"

COMPARISON: "<>" | "!=" | "<=" | ">=" | "=" | "<" | ">"
SIGN: "+" | "-"
FACTOR: "*" | "/" | "%"
EXACT.2: /[0-9]+[lL]?/
APPROXIMATE.4: /(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?/
    | /[0-9]+(?:[eE][+-]?[0-9]+[fFdD]?|[fFdD])/
HEXADECIMAL.6: /0[xX][0-9a-fA-F]+/
OCTETS.6: /[xX]'[^']*'/
_OR.5: /or(?![\w$.])/i
_AND.5: /and(?![\w$.])/i
_NOT.5: /not(?![\w$.])/i
_LIKE.5: /like(?![\w$.])/i
_ESCAPE.5: /escape(?![\w$.])/i
_IN.5: /in(?![\w$.])/i
_BETWEEN.5: /between(?![\w$.])/i
_IS.5: /is(?![\w$.])/i
_NULL.5: /null(?![\w$.])/i
TRUTH.5: /(?:true|false)(?![\w$.])/i
FUNCTION.5: /(?:FUNCTIONS)(?=[ \t\f\r\n]*\()/i
STRING.3: /STRINGS/
DELIMITED.6: /(?:[a-z_]+\.)?(?:DELIMITERS)/
NAME.3: /HYPHENATED(?![\w$.-])|amqpx(?:\.[\w$]+(?:-[\w$]+)*)+|(?:[^\W\d]|\$)[\w$]*(?:\.[\w$]+)*/
%ignore /[ \t\f\r\n]+/
"""

_SINGLE = r"'(?:[^']|'')*'"
_DOUBLE = r'"(?:[^"]|"")*"'
_BRACKETS = r"\[(?:[^\[\]]|\[\[|\]\])+\]"
_DOUBLE_NAME = r'"(?:[^"]|"")+"'
_DOMAINS = "(?:amqp|properties|header|p|h)"

_TERMINALS: Final = {
    "COMPARISON": "a comparison", "SIGN": "'+' or '-'", "FACTOR": "'*', '/' or '%'",
    "_LIKE": "LIKE", "_ESCAPE": "ESCAPE", "_IN": "IN", "_BETWEEN": "BETWEEN", "_IS": "IS",
    "_NOT": "NOT", "_AND": "AND", "_OR": "OR", "_NULL": "NULL", "LPAR": "'('", "RPAR": "')'",
    "COMMA": "','", "$END": "the end",
}  # fmt: skip
"""Names of terminals in error messages about expected ones."""

_VALUES: Final = frozenset(
    ("NAME", "DELIMITED", "EXACT", "APPROXIMATE", "OCTETS", "HEXADECIMAL", "TRUTH", "FUNCTION")
)


_WORD: Final = re.compile(
    rf"(?P<open>\()|(?P<close>\))|(?P<name>[\w$.]+)|{_SINGLE}|{_DOUBLE}|{_BRACKETS}"
    r"|[^ \t\f\r\n]",
    re.DOTALL,
)
"""Pattern of a word, for counting; the grammar decides what it is."""


def count_words(text: str) -> tuple[int, str]:
    """Count the words of a selector as `MAX_WORDS` does.

    Returns:
        The count, and the text. If it has more words than `MAX_WORDS`, blanks stand for the
        parentheses that do not count.
    """
    count = 0
    before = ""  # the kind of the word before
    opened: list[tuple[int, int, bool]] = []  # which word, where, and whether a name precedes it
    closed = (0, 0, 0)  # the parentheses that were closed last: which word opens them, from, to
    idle: list[int] = []
    for number, found in enumerate(_WORD.finditer(text)):
        kind, at = found.lastgroup or "", found.start()
        count += 1
        if kind == "open":
            opened.append((number, at, before == "name"))
        elif kind == "close" and opened:
            opening, start, follows_name = opened.pop()
            if before == "close" and closed[0] == opening + 1 and not follows_name:
                idle += closed[1:]
            closed = (opening, start, at)
        before = kind
    if not idle or count <= MAX_WORDS:
        return count - len(idle), text  # unchanged: a refusal names the position
    kept = list(text)
    for at in idle:
        kept[at] = " "
    return count - len(idle), "".join(kept)


def parse(text: str, dialect: Dialect) -> Node:
    """Parse the text of a selector that is not empty.

    Raises:
        InvalidField: it is too long, nests too deep or is no selector; the description names the
            position and the expected terms, ``info["position"]`` counts characters from 1.
    """
    if len(text) > MAX_LENGTH:
        raise InvalidField(
            f"a selector of {len(text)} characters; at most {MAX_LENGTH} are taken",
            info={"code": "filter.length"},
        )
    words, kept = count_words(text)
    if words > MAX_WORDS:
        raise InvalidField(
            f"a selector of {words} words; at most {MAX_WORDS} are taken",
            info={"code": "filter.words"},
        )
    try:
        root = cast(Node, _parser(dialect).parse(kept))
    except UnexpectedToken as error:
        raise _unexpected(error, text) from None
    except UnexpectedCharacters as error:
        raise _stray(text, cast(int, error.pos_in_stream)) from None
    if tree.depth(root) > MAX_DEPTH:
        raise InvalidField(
            f"a selector that nests deeper than {MAX_DEPTH}", info={"code": "filter.depth"}
        )
    return root


def prepare() -> None:
    """Build the parsers now, before the first peer needs them."""
    for dialect in Dialect:
        _parser(dialect)


@cache
def _parser(dialect: Dialect) -> Lark:
    """Build the parser of a dialect, once: it takes some 50 ms."""
    selector = dialect is Dialect.SELECTOR
    hyphenated = rf"{_DOMAINS}\.(?:{'|'.join(names.HYPHENATED)})"
    if selector:
        hyphenated = rf"(?:{_DOMAINS}\.)?(?:{'|'.join(names.HYPHENATED)})"
    rules = (
        _RULES.replace("HYPHENATED", hyphenated)
        .replace("FUNCTIONS", "|".join(FUNCTIONS))
        .replace("/STRINGS/", f"/{_SINGLE}/s" if selector else f"/{_SINGLE}|{_DOUBLE}/s")
        .replace("DELIMITERS", f"{_DOUBLE_NAME}|{_BRACKETS}" if selector else _BRACKETS)
    )
    return Lark(rules, parser="lalr", lexer="basic", transformer=_Builder(dialect))


# ------------------------------------------------------------------------------- errors


def _error(at: int, words: str, code: str = "filter.syntax") -> InvalidField:
    return InvalidField(
        f"selector, character {at + 1}: {words}", info={"code": code, "position": at + 1}
    )


def _stray(text: str, at: int) -> InvalidField:
    found = text[at]
    if found in "'\"[":
        return _error(at, f"what begins with {found} here is not closed")
    return _error(at, f"{found!r} has no meaning here")


def _unexpected(error: UnexpectedToken, text: str) -> InvalidField:
    token = error.token
    at_end = token.type == "$END"
    at = len(text) if at_end else token.start_pos or 0
    found = "the end of the selector" if at_end else f"{token!s:.40}"
    accepted = set(error.accepts or error.expected)
    expected = ["a value"] if accepted & _VALUES else ["a string"] if "STRING" in accepted else []
    expected += [words for name, words in _TERMINALS.items() if name in accepted]
    if "a value" in expected:
        # A sign and NOT may begin a value, which goes without saying.
        expected = [words for words in expected if words not in ("'+' or '-'", "NOT")]
    hint = " (IS NULL tests for null)" if token.type == "_NULL" else ""
    return _error(at, f"found {found}, expected {_either(expected)}{hint}")


def _either(words: list[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


# --------------------------------------------------------------------------------- tree


@v_args(inline=True)
class _Builder(Transformer[Token, Node]):
    """Builds the nodes while the parser reduces; there is no other tree."""

    def __init__(self, dialect: Dialect) -> None:
        super().__init__()
        self._dialect = dialect

    def any_of(self, *terms: Node) -> Node:
        return tree.Logic("OR", terms)

    def all_of(self, *terms: Node) -> Node:
        return tree.Logic("AND", terms)

    def negated(self, term: Node) -> Node:
        return tree.Not(term)

    def compare(self, left: Node, operator: Token, right: Node) -> Node:
        sign = "<>" if operator == "!=" else str(operator)
        left, right = _as_octets([left, right])
        return tree.Compare(sign, left, right)

    def like(self, operand: Node, pattern: Token, escape: Token | None) -> Node:
        return _like(operand, pattern, escape, negated=False)

    def unlike(self, operand: Node, pattern: Token, escape: Token | None) -> Node:
        return _like(operand, pattern, escape, negated=True)

    def among(self, *terms: Node) -> Node:
        operand, *choices = _as_octets(terms)
        return tree.Among(operand, tuple(choices), negated=False)

    def not_among(self, *terms: Node) -> Node:
        operand, *choices = _as_octets(terms)
        return tree.Among(operand, tuple(choices), negated=True)

    def between(self, *terms: Node) -> Node:
        operand, low, high = _as_octets(terms)
        return tree.Between(operand, low, high, negated=False)

    def not_between(self, *terms: Node) -> Node:
        operand, low, high = _as_octets(terms)
        return tree.Between(operand, low, high, negated=True)

    def is_null(self, operand: Node) -> Node:
        return tree.IsNull(operand, negated=False)

    def is_not_null(self, operand: Node) -> Node:
        return tree.IsNull(operand, negated=True)

    def arithmetic(self, first: Node, *rest: Any) -> Node:
        return tree.Arithmetic(
            first, tuple((str(sign), term) for sign, term in zip(*[iter(rest)] * 2, strict=True))
        )

    def sign(self, sign: Token, operand: Node) -> Node:
        if isinstance(operand, tree.Literal) and sign == "-":
            value = operand.value
            if type(value) is float or (type(value) is int and 0 < value <= LARGEST_EXACT // 2 + 1):
                return tree.Literal(-value)
        return tree.Signed(str(sign), operand)

    def name(self, token: Token) -> Node:
        text = str(token)
        if self._dialect is Dialect.FILTEX and text in ("INF", "NAN"):
            return tree.Literal(float(text))
        try:
            return tree.Name(names.resolve(text, self._dialect))
        except UnknownName as error:
            raise _error(token.start_pos or 0, str(error), "filter.name") from None

    def delimited(self, token: Token) -> Node:
        before, mark, after = re.split(r'(["\[])', str(token), maxsplit=1)
        key = after[:-1].replace(mark * 2, mark)
        if mark == "[":
            key = key.replace("]]", "]")
        try:
            if before:
                return tree.Name(names.within(before[:-1], key))
            return tree.Name(names.application(key))
        except UnknownName as error:
            raise _error(token.start_pos or 0, str(error), "filter.name") from None

    def string(self, token: Token) -> Node:
        return tree.Literal(_unquoted(token))

    def exact(self, token: Token) -> Node:
        digits = token.rstrip("lL")
        if self._dialect is Dialect.SELECTOR and len(digits) > 1 and digits[0] == "0":
            raise _error(
                token.start_pos or 0,
                f"{token!s:.40} is octal in Java and decimal in SQL; write it without the 0",
            )
        return self._integer(int(digits), token)

    def hexadecimal(self, token: Token) -> Node:
        digits = token[2:]
        if self._dialect is Dialect.SELECTOR:
            return self._integer(int(digits, 16), token)
        return self._octets(digits, token)

    def approximate(self, token: Token) -> Node:
        value = float(token.rstrip("fFdD"))
        if value == float("inf"):
            raise _error(token.start_pos or 0, f"{token!s:.40} is larger than any double")
        return tree.Literal(value)

    def octets(self, token: Token) -> Node:
        return self._octets(token[2:-1], token)

    def truth(self, token: Token) -> Node:
        return tree.Literal(token.lower() == "true")

    def call(self, token: Token, *arguments: Node | None) -> Node:
        function = token.upper()
        given = tuple(argument for argument in arguments if argument is not None)
        fewest, most = FUNCTIONS[function]
        if not fewest <= len(given) <= most:
            wanted = str(fewest) if fewest == most else f"{fewest} or {most}"
            raise _error(
                token.start_pos or 0, f"{function} takes {wanted} arguments, not {len(given)}"
            )
        if function == "EXISTS" and not isinstance(given[0], tree.Name):
            raise _error(token.start_pos or 0, "EXISTS takes a name")
        return tree.FunctionCall(function, given)

    def _integer(self, value: int, token: Token) -> Node:
        if value > LARGEST_EXACT:
            raise _error(token.start_pos or 0, f"{token!s:.40} is larger than any ulong")
        return tree.Literal(value)

    def _octets(self, digits: str, token: Token) -> Node:
        if len(digits) % 2 or not re.fullmatch("[0-9a-fA-F]*", digits):
            raise _error(
                token.start_pos or 0, f"{token!s:.40}: octets are pairs of hexadecimal digits"
            )
        return tree.Literal(bytes.fromhex(digits))


def _unquoted(token: Token) -> str:
    mark = token[0]
    return token[1:-1].replace(mark * 2, mark)


def _like(operand: Node, pattern: Token, escape: Token | None, *, negated: bool) -> Node:
    text = _unquoted(pattern)
    mark = None if escape is None else _unquoted(escape)
    if mark is not None and escape is not None:
        at = escape.start_pos or 0
        if len(mark) != 1:
            raise _error(at, "ESCAPE takes one character")
    if mark is not None and _ends_escaping(text, mark):
        raise _error(pattern.start_pos or 0, "the pattern ends with its escape character")
    return tree.Like(operand, text, mark, negated)


def _ends_escaping(pattern: str, mark: str) -> bool:
    """Return whether a pattern ends in a dangling escape character."""
    trailing = len(pattern) - len(pattern.rstrip(mark))
    return trailing % 2 == 1


def _as_octets(terms: Sequence[Node]) -> list[Node]:
    """Treat user-id as octets when compared with octets; elsewhere it is text."""
    if not any(isinstance(each, tree.Literal) and type(each.value) is bytes for each in terms):
        return list(terms)
    return [
        tree.Name(each.field.raw())
        if isinstance(each, tree.Name) and each.field.view is MessageView.TEXT
        else each
        for each in terms
    ]
