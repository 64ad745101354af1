# SPDX-License-Identifier: Apache-2.0
"""Invalid selectors are refused with position and expectation; bounds hold."""

from __future__ import annotations

import time
from dataclasses import fields as attributes

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import InvalidField
from amqproute.filters import grammar, operators, tree
from amqproute.filters.names import Dialect
from amqproute.filters.selector import compile_selector
from tests.filters.messages import message
from tests.filters.reference import letters, like

WORDS = [
    "a", "amqp.to", "amqp.nothing", "message-id", "amqpx.a.b", "d.x", "'s'", "\"t\"", "[u]",
    "1", "2.5", "0x1F", "x'00'", "x'0'", "07", "1e999", "TRUE", "null", "and", "OR", "not", "like",
    "escape", "in", "between", "is", "(", ")", ",", "+", "-", "*", "/", "%", "=", "<>", "<",
    "lower", "utc", "exists", "substring", "'", "@", "--", ".", "\x00", "ä",
]  # fmt: skip


class RefusalTests(SynchronousTestCase):
    """The words for a peer."""

    def assertRefused(
        self, text: str, position: int, *words: str, dialect: Dialect = Dialect.SELECTOR
    ) -> None:
        error = self.assertRaises(InvalidField, compile_selector, text, dialect=dialect)
        self.assertEqual(error.info["position"], position, error.description)
        self.assertIn(f"character {position}:", error.description)
        for word in words:
            self.assertIn(word, error.description)

    def test_syntax(self) -> None:
        """The place, what was found, what was expected."""
        for text, position, *words in (
            ("color = ", 9, "the end", "expected a value"),
            ("color 'red'", 7, "'red'", "a comparison", "LIKE"),
            ("a =\n  AND b", 7, "found AND"),
            ("(a = 1", 7, "expected ')'"),
            ("a = 1)", 6, "found )"),
            ("a in ()", 7, "expected a value"),
            ("a in ('x' 'y')", 11, "','"),
            ("a = NULL", 5, "IS NULL tests for null"),
            ("a is 5", 6, "NOT", "NULL"),
            ("a like b", 8, "expected a string"),
            ("a like 'x' escape 5", 19, "expected a string"),
            ("a between 1", 12, "expected", "AND"),
            ("a not 5", 7, "LIKE"),
            ("5 5", 3, "found 5"),
            ("a @ b", 3, "'@' has no meaning"),
            ("a = 'x", 5, "not closed"),
            ('a = "x', 5, "not closed"),
            ("a; b", 2, "';'"),
        ):
            self.assertRefused(str(text), int(str(position)), *map(str, words))

    def test_values(self) -> None:
        """A value that is no condition could never be true: it is refused, not kept silent."""
        for text in ("1 + 1", "a * 2", "-a", "5", "'x'", "1.5"):
            error = self.assertRaises(InvalidField, compile_selector, text)
            self.assertEqual(error.info, {"code": "filter.syntax", "position": 1}, text)
            self.assertIn("compare it with something", error.description)
        for text in ("TRUE", "flag", "(flag)", "NOT flag", "a + 1 > 2"):
            compile_selector(text)

    def test_meaning(self) -> None:
        """Selectors that parse and cannot be meant."""
        for text, position, word in (
            ("x = 1 AND amqp.foo = 1", 11, "amqp has no field 'foo'"),
            ("p.priority = 1", 1, "p has no field"),
            ("h.subject = 'x'", 1, "delivery-count"),
            ("d.x = 1", 1, "delivery annotations cannot be selected"),
            ("footer.x = 1", 1, "footer cannot be selected"),
            ("nowhere.[x] = 1", 1, "no domain"),
            ("amqp.[x] = 1", 1, "no field"),
            ("a = 18446744073709551616", 5, "ulong"),
            ("a = 1e999", 5, "double"),
            ("a = 017", 5, "octal"),
            ("a = x'0'", 5, "pairs"),
            ("a = x'0g'", 5, "pairs"),
            ("a like 'x' escape '!!'", 19, "one character"),
            ("a like 'x!' escape '!'", 8, "ends with its escape"),
            ("LEFT(a) = 'x'", 1, "2 arguments, not 1"),
            ("SUBSTRING(a, 1, 2, 3) = 'x'", 1, "2 or 3"),
            ("exists(5)", 1, "takes a name"),
            ("a." + "x" * 1025 + " = 1", 1, "1024"),
        ):
            self.assertRefused(text, position, word)
        self.assertRefused("a = 0x123", 5, "pairs", dialect=Dialect.FILTEX)

    def test_length(self) -> None:
        """A selector is as long as the limit and no longer."""
        text = "a = '" + "x" * (grammar.MAX_LENGTH - 6) + "'"
        compile_selector(text)
        error = self.assertRaises(InvalidField, compile_selector, text + " ")
        self.assertIn("4097 characters; at most 4096", error.description)

    def test_words(self) -> None:
        """The cost of parsing and evaluation is bounded before parsing."""
        for text, words in (
            ("a = 1", 3),
            ("(a) = (1)", 7),
            ("((a)) = ( ( ( 1 ) ) )", 7),
            ("a in ((1), (2))", 11),
            ("a in ((1))", 7),
            ("LOWER((a)) = '(('", 8),
            ('[((] = "))"', 3),
            ("((a = 1) and (b = 2))", 13),
            (")(", 2),
        ):
            self.assertEqual(grammar.count_words(text)[0], words, text)
        terms = grammar.MAX_WORDS // 2 - 1
        for sign in "+", " OR ", ",":
            most = sign.join(["a"] * terms)
            text = f"b IN ({most})" if sign == "," else f"{most} = b" if sign == "+" else most
            if sign == ",":
                text = f"b IN ({sign.join(['a'] * (terms - 1))})"
            compile_selector(text)
            longer = text.replace("a", f"a{sign}a{sign}a{sign}a", 1)
            error = self.assertRaises(InvalidField, compile_selector, longer)
            self.assertIn("at most 1024 are taken", error.description)
            self.assertEqual(error.info, {"code": "filter.words"})

    def test_idle_parentheses(self) -> None:
        """They change nothing: neither what is selected, nor what is refused, nor the place."""
        self.assertEqual(compile_selector("(((a) = ((1))))"), compile_selector("a = 1"))
        self.assertEqual(compile_selector("b in (((1)))"), compile_selector("b in (1)"))
        self.assertRefused("a in ((1, 2))", 9, "found ,")
        self.assertRefused("LOWER(((a, b))) = 'x'", 10, "found ,")
        self.assertRefused("(((a = )))", 8, "a value")

    def test_depth(self) -> None:
        """Nesting is bounded; long chains and idle parentheses are not nesting."""
        for text in ("NOT " * 60 + "a", "- " * 60 + "a = 1", "LOWER(" * 60 + "a" + ")" * 60):
            error = self.assertRaises(InvalidField, compile_selector, text)
            self.assertIn("nests deeper than 48", error.description)
        nested = "a"
        for _ in range(60):
            nested = f"(a AND (b OR {nested}))"
        self.assertRaises(InvalidField, compile_selector, nested)
        compile_selector("(" * 2000 + "a" + ")" * 2000)
        for operator in (" OR ", " AND ", "+", "*"):
            text = f"({operator.join(['a'] * 500)}) = b"
            compile_selector(text).matches(message({"a": 1}))

    def test_half_a_character(self) -> None:
        """A lone surrogate is no text."""
        self.assertRaises(InvalidField, compile_selector, "[\ud800] = 1")

    @given(st.text(max_size=80), st.sampled_from(Dialect))
    def test_any_text(self, text: str, dialect: Dialect) -> None:
        """Any text compiles or is refused, and nothing else happens."""
        self.compile(text, dialect)

    @given(
        st.lists(st.sampled_from(WORDS), max_size=25),
        st.sampled_from(["", " "]),
        st.sampled_from(Dialect),
    )
    def test_any_words(self, words: list[str], between: str, dialect: Dialect) -> None:
        """So do the words of the language in any order."""
        self.compile(between.join(words), dialect)

    def compile(self, text: str, dialect: Dialect) -> None:
        try:
            selector = compile_selector(text, dialect=dialect, now_ms=lambda: 0)
        except InvalidField as error:
            self.assertTrue(1 <= error.info.get("position", 1) <= len(text) + 1, error)
            return
        again = compile_selector(str(selector), dialect=dialect, now_ms=lambda: 0)
        self.assertEqual(again, selector)
        self.assertIsInstance(selector.matches(message({"a": "s", "u": 1})), bool)

    def test_tree_knows_its_children(self) -> None:
        """Every node that holds nodes gives them as its children."""
        root = grammar.parse(
            "NOT a1 = 1 AND (a2 LIKE 'x' OR a3 IN (a4, a5) OR a6 BETWEEN a7 AND a8)"
            " AND a9 IS NULL AND -b1 + b2 * b3 < LEFT(b4, b5)",
            Dialect.SELECTOR,
        )
        keys = {field.key for field in tree.fields(root)}
        self.assertEqual(keys, {*(f"a{n}" for n in range(1, 10)), *(f"b{n}" for n in range(1, 6))})
        self.assertEqual(tree.depth(root), 5)
        self.assertEqual([each.name for each in attributes(tree.Not)], ["term"])


class PatternTests(SynchronousTestCase):
    """LIKE."""

    @given(
        st.text("ab", max_size=12),
        st.lists(st.sampled_from(["a", "b", "ab", "_", "%", "!_", "!%", "!a", "!!"]), max_size=9),
    )
    def test_matches_as_the_second_interpreter(self, text: str, pattern: list[str]) -> None:
        """Any pattern on any text of two letters."""
        self.assertEqual(
            operators.Pattern("".join(pattern), "!").matches(text),
            like(text, letters("".join(pattern), "!")),
        )

    def test_examples(self) -> None:
        """Those of the JMS specification (§3.8.1.1), line ends, and plain patterns."""
        for pattern, escape, yes, no in (
            ("12%3", None, ["123", "12993"], ["1234", "12", "13"]),
            ("l_se", None, ["lose"], ["loose", "lse"]),
            (r"\_%", "\\", ["_foo"], ["bar"]),
            ("a%", None, ["a", "a\nb"], ["ba", ""]),
            ("%a", None, ["a", "\na"], ["ab", "A"]),
            ("a%a", None, ["aa", "aba"], ["a"]),
            ("%a_%", None, ["ab", "aaa", "xab"], ["a", "ba"]),
            ("_%_", None, ["ab", "abc"], ["a", ""]),
            ("%%", None, ["", "x"], []),
            ("", None, [""], ["x"]),
            ("%.*%", None, ["a.*b"], ["ab"]),
            ("__", None, ["äö", "\U0001f534x"], ["ä"]),
        ):
            matches = operators.Pattern(pattern, escape).matches
            for text in yes:
                self.assertTrue(matches(text), (pattern, text))
            for text in no:
                self.assertFalse(matches(text), (pattern, text))

    def test_no_pattern_takes_long(self) -> None:
        """Patterns that make a regular expression backtrack are linear here."""
        text = "a" * operators.LONGEST_TEXT
        subject = message({"a": text})
        for pattern in ("%a" * 2000 + "b", "%" + "_a" * 2000 + "b%", "%_a%_b" * 600, "_%" * 2000):
            begin = time.process_time()
            compile_selector(f"a LIKE '{pattern}'").matches(subject)
            # Some 20 ms on a slow machine; a backtracking matcher would not come back.
            self.assertLess(time.process_time() - begin, 2)

    def test_long_texts_are_unknown(self) -> None:
        """Beyond the limit LIKE is neither true nor false."""
        for length, expected in (
            (operators.LONGEST_TEXT, True),
            (operators.LONGEST_TEXT + 1, False),
        ):
            subject = message({"a": "a" * length})
            self.assertEqual(compile_selector("a LIKE 'a%'").matches(subject), expected)
            self.assertFalse(compile_selector("a NOT LIKE 'a%'").matches(subject))
