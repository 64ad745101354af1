# SPDX-License-Identifier: Apache-2.0
"""The meaning of selectors: against a second interpreter, and name by name."""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import InvalidField
from amqproute.filters.names import Dialect
from amqproute.filters.selector import compile_selector
from amqproute.message import Message
from amqproute.wire.amqp10 import types
from tests.filters.messages import decimal64, message
from tests.filters.reference import evaluate, write

compiled = cache(compile_selector)


def outcome(text: str, subject: Message) -> bool | None:
    """Tell true, false and unknown apart."""
    if compiled(text).matches(subject):
        return True
    return False if compiled(f"NOT ({text})").matches(subject) else None


# As it is in the message, as the second interpreter is given it.
VALUES: list[tuple[Any, Any]] = [
    (None, None),
    (True, True),
    (False, False),
    (types.Int(3), 3),
    (types.Byte(-4), -4),
    (types.ULong(2**64 - 1), 2**64 - 1),
    (-(2**63), -(2**63)),
    (0, 0),
    (types.Timestamp(3), 3),
    (2.5, 2.5),
    (3.0, 3.0),
    (types.Float(-0.5), -0.5),
    (decimal64(Decimal("2.50")), Decimal("2.50")),
    (decimal64(Decimal("-9007199254740993E-3")), Decimal("-9007199254740993E-3")),
    ("", ""),
    ("red", "red"),
    (types.Symbol("red"), "red"),
    ("\U0001f534", "\U0001f534"),
    ("3", "3"),
    (b"", b""),
    (b"red", b"red"),
    (
        UUID("12345678-1234-5678-1234-567812345678"),
        "12345678-1234-5678-1234-567812345678",
    ),
]
COMPARISONS = ["=", "<>", "<", "<=", ">", ">="]
A, B = ("name", "a1"), ("name", "b1")


class TableTests(SynchronousTestCase):
    """Every operator, every pair of types, and null: what the second interpreter says."""

    def assertAgrees(self, trees: list[Any]) -> None:
        written = [(tree, write(tree)) for tree in trees]
        for left, seen_left in VALUES:
            for right, seen_right in VALUES:
                pairs = {"a1": left, "b1": right}
                subject = message({key: value for key, value in pairs.items() if value is not None})
                row = {"a1": seen_left, "b1": seen_right}
                for tree, text in written:
                    expected = evaluate(tree, row)
                    expected = expected if isinstance(expected, bool) else None
                    found = outcome(text, subject)
                    if found is not expected:
                        self.fail(f"{text} of {left!r}, {right!r}: {found}, not {expected}")

    def test_comparisons(self) -> None:
        """Six comparisons, by a field and by a constant."""
        self.assertAgrees([(sign, A, B) for sign in COMPARISONS])
        constants = [True, 3, 2.5, "red", b"red"]
        self.assertAgrees(
            [(sign, A, ("lit", value)) for sign in COMPARISONS for value in constants]
        )

    def test_arithmetic(self) -> None:
        """Five operators and two signs: their result, and that there is none."""
        sums = [(sign, A, B) for sign in "+-*/%"] + [("neg", A), ("pos", A)]
        self.assertAgrees(
            [("null", each, False) for each in sums]
            + [("=", each, B) for each in sums]
            + [(">", each, ("lit", 1)) for each in sums]
        )

    def test_logic(self) -> None:
        """AND, OR and NOT of everything, what is no truth value being unknown."""
        self.assertAgrees(
            [("and", A, B), ("or", A, B), ("not", A), A, ("not", ("and", A, ("not", B)))]
        )

    def test_membership(self) -> None:
        """IN and BETWEEN, with and without NOT, of constants and of fields."""
        trees: list[Any] = []
        for negated in (False, True):
            trees += [
                ("in", A, [B], negated),
                ("in", A, [("lit", "red"), ("lit", "blue")], negated),
                ("in", A, [("lit", 3), ("lit", 2.5)], negated),
                ("in", A, [("lit", 3), ("lit", "red"), B], negated),
                ("in", A, [("lit", True)], negated),
                ("between", A, ("lit", -1), B, negated),
                ("between", A, B, ("lit", "red"), negated),
            ]
        self.assertAgrees(trees)

    def test_like_and_null(self) -> None:
        """LIKE of what is no text is unknown, IS NULL never is."""
        trees: list[Any] = []
        for negated in (False, True):
            trees += [("like", A, pattern, None, negated) for pattern in ("%", "r_d", "re%", "")]
            trees += [("null", A, negated), ("null", B, negated)]
        self.assertAgrees(trees)


NUMBERS = st.one_of(
    st.integers(-20, 20),
    st.integers(0, 2**64 - 1),
    st.integers(-80, 80).map(lambda eighths: eighths / 8),
)
TEXTS = st.one_of(st.text("ab_%\\'", max_size=6), st.text(max_size=4))
CONSTANTS = st.one_of(NUMBERS.filter(lambda n: n >= 0), TEXTS, st.booleans(), st.binary(max_size=2))
KEYS = ["a1", "b1", "c1", "d1"]
PATTERNS = st.one_of(
    st.tuples(st.text("ab_%", max_size=8), st.none()),
    st.tuples(
        st.lists(st.sampled_from(["a", "b", "_", "%", "!_", "!%", "!!"]), max_size=6).map("".join),
        st.just("!"),
    ),
)
LEAVES = st.one_of(
    st.tuples(st.just("lit"), CONSTANTS), st.tuples(st.just("name"), st.sampled_from(KEYS))
)


def grow(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Combine trees to one more."""
    return st.one_of(
        st.tuples(st.sampled_from([*COMPARISONS, "and", "or", *"+-*/%"]), below, below),
        st.tuples(st.sampled_from(["not", "neg", "pos"]), below),
        st.tuples(st.just("null"), below, st.booleans()),
        st.tuples(st.just("in"), below, st.lists(below, min_size=1, max_size=4), st.booleans()),
        st.tuples(st.just("between"), below, below, below, st.booleans()),
        st.builds(
            lambda operand, pattern, negated: ("like", operand, *pattern, negated),
            below, PATTERNS, st.booleans(),
        ),
    )  # fmt: skip


def is_condition(tree: Any) -> bool:
    """Tell whether it may be true: the others are no selectors."""
    return (
        isinstance(tree[1], bool) if tree[0] == "lit" else tree[0] not in (*"+-*/%", "neg", "pos")
    )


TREES = st.recursive(LEAVES, grow, max_leaves=12).filter(is_condition)
ROWS = st.dictionaries(st.sampled_from(KEYS), st.one_of(CONSTANTS, NUMBERS), max_size=4)


class GeneratedTests(SynchronousTestCase):
    """Selectors nobody thought of."""

    @given(TREES, ROWS)
    def test_means_what_the_second_interpreter_says(self, tree: Any, row: dict[str, Any]) -> None:
        """True, false or unknown; and the normalized text means the same."""
        expected = evaluate(tree, row)
        expected = expected if isinstance(expected, bool) else None
        wire = {
            key: types.ULong(value) if type(value) is int and value >= 2**63 else value
            for key, value in row.items()
        }
        subject = message(wire)
        text = write(tree)
        selector = compile_selector(text)
        self.assertEqual(selector.matches(subject), expected is True, text)
        negation = compile_selector(f"NOT {text}")
        self.assertEqual(negation.matches(subject), expected is False, text)
        self.assertEqual(compile_selector(str(selector)), selector)
        self.assertEqual(str(compile_selector(str(selector))), str(selector))
        self.assertEqual(compile_selector(str(selector)).matches(subject), expected is True)

    @given(TREES, ROWS)
    def test_the_two_dialects_agree_on_what_they_share(
        self, tree: Any, row: dict[str, Any]
    ) -> None:
        """Without texts to join, both mean the same."""
        if any(isinstance(value, str) for value in row.values()) or "'" in write(tree):
            return
        subject = message({key: value for key, value in row.items() if type(value) is not int})
        self.assertEqual(
            compile_selector(write(tree)).matches(subject),
            compile_selector(write(tree), dialect=Dialect.FILTEX).matches(subject),
        )


class NameTests(SynchronousTestCase):
    """The meaning of names."""

    def setUp(self) -> None:
        self.message = message(
            {
                "color": "red", "subject": "mine", "user_id": "other", "date": 5,
                "order status": "open", "a.b": 1, "message": 7, "id": 3, "in-stock": True,
            },
            header={"durable": True, "priority": 7, "ttl": 5000, "delivery_count": 2},
            annotations={
                types.Symbol("x-opt-amqproute-trace"): ["alpha.example", "beta.example"],
                types.Symbol("x-opt-dead-letter-reason"): "ttl",
            },
            properties={
                "message_id": "ID:1", "user_id": b"ann", "to": "q@b.example", "subject": "news",
                "correlation_id": types.ULong(9), "content_type": "text/plain",
                "creation_time": 1000, "group_sequence": 12,
            },
        )  # fmt: skip

    def assertSelects(self, *texts: str, dialect: Dialect = Dialect.SELECTOR) -> None:
        for text in texts:
            if not compile_selector(text, dialect=dialect).matches(self.message):
                self.fail(f"not selected by {text}")

    def test_standard_fields(self) -> None:
        """The namespace amqp, with hyphens and with underscores (revision 200 §5.3)."""
        self.assertSelects(
            "amqp.message-id = 'ID:1'",
            "amqp.message_id = 'ID:1' AND amqp.to LIKE '%@b.example'",
            "amqp.priority = 7 AND amqp.durable AND amqp.ttl = 5000 AND amqp.delivery-count = 2",
            "amqp.content-type = 'text/plain' AND amqp.group-sequence/4 = 3",
            "amqp.reply-to IS NULL AND NOT amqp.first-acquirer",
            "properties.group-sequence = 12 AND p.subject = 'news' AND p.group_sequence-2 = 10",
            "header.priority > 6 AND h.delivery_count = 2",
        )

    def test_inference(self) -> None:
        """Without a domain: standard, then extension, then application (M-16)."""
        self.assertSelects(
            "subject = 'news' AND message-id = 'ID:1' AND user-id = 'ann' AND priority = 7",
            "amqproute.trace LIKE 'alpha.example %'",
            "color = 'red' AND user_id = 'other' AND date = 5",
            "application.subject = 'mine' AND a.subject = 'mine'",
            "message - id = 4",
            "unheard.of IS NULL",
        )

    def test_delimited_names(self) -> None:
        """A quoted name is the key of an application property, unless a domain says otherwise."""
        self.assertSelects(
            "\"subject\" = 'mine' AND [order status] = 'open' AND application.\"a.b\" = 1",
            "amqp.\"message-id\" = 'ID:1' AND a.[in-stock] AND a.b IS NULL AND [a.b] = 1",
            "m.[x-opt-dead-letter-reason] = 'ttl'",
        )

    def test_extensions(self) -> None:
        """The domain amqpx reads annotations (M-14)."""
        self.assertSelects(
            "amqpx.amqproute.trace LIKE '%beta.example'",
            "amqpx.dead-letter-reason = 'ttl' AND amqpx.dead_letter_reason = 'ttl'",
            "amqpx.other.thing IS NULL",
        )

    def test_jms_names(self) -> None:
        """The header names of JMS, as its mapping to AMQP defines their values."""
        self.assertSelects(
            "JMSMessageID = 'ID:1' AND JMSPriority = 7 AND JMSDeliveryMode = 'PERSISTENT'",
            "JMSType = 'news' AND JMSTimestamp = 1000 AND JMSCorrelationID = 'ID:AMQP_ULONG:9'",
            "JMSXUserID = 'ann' AND JMSRedelivered AND JMSXDeliveryCount = 3",
            "JMSXGroupSeq = 12 AND JMSXGroupID IS NULL AND JMSReplyTo IS NULL",
        )
        for ident, expected in (
            ("x", "ID:AMQP_NO_PREFIX:x"),
            ("ID:AMQP_ULONG:1", "ID:AMQP_STRING:ID:AMQP_ULONG:1"),
            (types.ULong(1), "ID:AMQP_ULONG:1"),
            (b"\x0a\xff", "ID:AMQP_BINARY:0AFF"),
            (UUID(int=1), "ID:AMQP_UUID:00000000-0000-0000-0000-000000000001"),
        ):
            selector = compile_selector(f"JMSMessageID = '{expected}'")
            self.assertTrue(selector.matches(message(properties={"message_id": ident})), expected)

    def test_user_id_is_text_and_octets(self) -> None:
        """It is binary, holds a name, and meets octets as octets."""
        self.assertSelects(
            "user-id = 'ann' AND user-id = X'616E6E' AND user-id IN (x'00', X'616e6e')",
            "amqp.user-id LIKE 'a%' AND user-id > X'61' AND user-id BETWEEN X'60' AND X'7F'",
        )
        selector = compile_selector("JMSMessageID IN (x'00', 'ID:AMQP_NO_PREFIX:x')")
        self.assertTrue(selector.matches(message(properties={"message_id": "x"})))
        broken = message(properties={"user_id": b"\xff"})
        self.assertIs(outcome("user-id <> 'ann'", broken), None)

    def test_the_dialect_of_oasis(self) -> None:
        """Names without domain are application properties, double quotes make strings."""
        self.assertSelects(
            "subject = 'mine' AND p.subject = \"news\" AND message-id = 4",
            'color + "-" + "ish" = \'red-ish\' AND p.user_id = 0x616E6E',
            "p.user_id = 'ann' AND h.priority >= 07 AND application_properties.color = 'red'",
            "priority IS NULL AND JMSPriority IS NULL AND [order status] LIKE 'op__'",
            "date < INF AND NOT EXISTS(nothing) AND EXISTS(p.to)",
            "UPPER(color) = 'RED' AND LEFT(color, 2) = 're' AND RIGHT(color, 2) = 'ed'",
            "SUBSTRING(color, 2, 1) = 'e' AND SUBSTRING(color, 2) = 'ed' AND lower('A') = 'a'",
            "DATE('1970-01-01T00:00:01Z') = p.creation_time",
            "DATE('1970-01-01T01:00:01+01:00') = 1000 AND DATE('1970-01-01') = 0",
            "LOWER(date) IS NULL AND LEFT(color, 0 - 1) IS NULL AND DATE('soon') IS NULL",
            dialect=Dialect.FILTEX,
        )
        self.assertSelects("date - 0x0F = -10 AND x IS NULL AND 5L = 5 AND .5 = 5e-1 AND 1. = 1d")

    def test_clock(self) -> None:
        """UTC() asks the clock that was passed in, and the selector says so."""
        selector = compile_selector("p.creation_time < UTC() - 500", now_ms=lambda: 1501)
        self.assertTrue(selector.matches(self.message))
        self.assertEqual(selector.needs, {"properties", "clock"})

    def test_needs(self) -> None:
        """The fields used are known beforehand."""
        for text, needs in (
            ("", set()),
            ("1 = 1", set()),
            ("color = 'red'", {"application"}),
            ("priority = 1 OR subject = 'x'", {"header", "properties"}),
            ("amqpx.a.b = 1", {"annotations"}),
        ):
            self.assertEqual(compile_selector(text).needs, needs, text)


class SelectorTests(SynchronousTestCase):
    """Selectors as objects."""

    def test_empty_selects_everything(self) -> None:
        """No text, no condition (revision 200 §4.1)."""
        for text in ("", " \t\n"):
            self.assertTrue(compile_selector(text).matches(message()))

    def test_equal_by_what_they_say(self) -> None:
        """Spelling does not count, the dialect does."""
        one = compile_selector("( color='red' )and  amqp.message_id is NOT null")
        two = compile_selector("application.color = 'red' AND (message-id IS NOT NULL)")
        self.assertEqual(one, two)
        self.assertEqual(hash(one), hash(two))
        self.assertEqual(str(one), "application.color = 'red' AND amqp.message-id IS NOT NULL")
        self.assertNotEqual(one, compile_selector(one.text, dialect=Dialect.FILTEX))
        self.assertNotEqual(one, compile_selector("color = 'red'"))
        self.assertNotEqual(one, object())
        self.assertIn("application.color", repr(one))

    def test_precedence(self) -> None:
        """NOT before AND before OR; products before sums; comparisons between."""
        for text, parenthesized in (
            ("NOT a = 1 AND b = 2 OR c = 3", "((NOT (a = 1)) AND (b = 2)) OR (c = 3)"),
            ("a + 2 * b - c < -3 % 2", "((a + (2 * b)) - c) < ((-3) % 2)"),
            ("a BETWEEN 1 AND 2 AND b", "(a BETWEEN 1 AND 2) AND b"),
            ("a - (b - c) = a - b - c", "(a - (b - c)) = ((a - b) - c)"),
        ):
            # A chain is one node, and so is not equal to what parentheses make of it.
            both = [compile_selector(each) for each in (text, parenthesized)]
            for a in range(-2, 4):
                for c in (3, 4):
                    subject = message({"a": a, "b": 2, "c": c})
                    self.assertEqual(*(each.matches(subject) for each in both), text)

    def test_normalized_text(self) -> None:
        """Parentheses stay where they mean something, and go where they do not."""
        for text, normal in (
            ("x1-(x2-x3) = (x1-x2)-x3", "x1 - (x2 - x3) = (x1 - x2) - x3"),
            ("x1/(x2*x3) > ((x1))", "x1 / (x2 * x3) > x1"),
            ("(x1+x2)*x3 != -(x1+1)", "(x1 + x2) * x3 <> -(x1 + 1)"),
            ("(x1 or x2) and not (x1 and x2)", "(x1 OR x2) AND NOT (x1 AND x2)"),
            ("(x1 and x2) or (not x3)", "x1 AND x2 OR NOT x3"),
            ("(x1 or x2 or (x3 or x4)) and x5", "(x1 OR x2 OR (x3 OR x4)) AND x5"),
            ("x1 and (x2 and x3)", "x1 AND (x2 AND x3)"),
            ("(x1 = x2) = (not x3)", "(x1 = x2) = (NOT x3)"),
            ("(x1 in (1,'a''b',tRUE)) is null", "(x1 IN (1, 'a''b', TRUE)) IS NULL"),
            ("- - 5 + +x1 < -0.5e1", "--5 + +x1 < -5.0"),
            ("x1 not like 'a' escape '!'", "x1 NOT LIKE 'a' ESCAPE '!'"),
            ("x1 not between 1 and 2*x2", "x1 NOT BETWEEN 1 AND 2 * x2"),
            ("[x]]y] = x'0f'", "[x]]y] = X'0F'"),
        ):
            selector = compile_selector(text)
            self.assertEqual(str(selector).replace("application.", ""), normal)
            self.assertEqual(str(compile_selector(str(selector))), str(selector))

    def test_maps_that_overrun(self) -> None:
        """A key or a value that reaches beyond its section breaks the section."""
        whole = message({"k": "v"})
        start = whole.offsets.application_properties_start
        for at, length in ((6, 4), (9, 9)):
            encoded = bytearray(whole.encoded[:-1] + b"\x09" + b"\xa1\x00" * 4 + b"x")
            encoded[start + at + 1] = length
            self.assertFalse(compile_selector("absent IS NULL").matches(Message(bytes(encoded))))

    def test_broken_sections_do_not_match(self) -> None:
        """A message that cannot be decoded is not selected by any selector."""
        whole = message({"color": "red", "x": 1}, properties={"subject": "s", "to": "t"})
        offsets = whole.offsets
        encoded = bytearray(whole.encoded)
        encoded[encoded.index(b"\xa1\x05color")] = 0x99
        broken = Message(bytes(encoded))
        self.assertFalse(compile_selector("x = 1").matches(broken))
        self.assertFalse(compile_selector("x IS NULL").matches(broken))
        self.assertTrue(compile_selector("subject = 's'").matches(broken))
        encoded = bytearray(whole.encoded)
        encoded[offsets.properties_start + 6] = 0x99
        self.assertFalse(compile_selector("subject IS NULL").matches(Message(bytes(encoded))))

    @given(st.binary(max_size=60), st.sampled_from([0x70, 0x72, 0x73, 0x74]))
    def test_any_bytes(self, octets: bytes, section: int) -> None:
        """No section makes a selector raise."""
        subject = Message(bytes((0, 0x53, section, 0xC1, len(octets))) + octets)
        try:
            subject.offsets  # noqa: B018 - a queue has located the sections before
        except Exception:
            subject = Message(bytes((0, 0x53, section, 0xC0, len(octets))) + octets)
        self.assertIsInstance(
            compile_selector("a = 1 OR subject = 's' OR priority = 3 OR amqpx.a = 1").matches(
                subject
            ),
            bool,
        )

    def test_wide_and_symbolic_encodings(self) -> None:
        """A section may be described by a symbol, and be of the wide types."""
        symbol = b"amqp:application-properties:map"
        pairs = b"\xb1\x00\x00\x00\x01k\x71\x00\x00\x00\x05"
        wide = b"\xd1" + (len(pairs) + 4).to_bytes(4) + (2).to_bytes(4) + pairs
        encoded = b"\x00\xa3" + bytes([len(symbol)]) + symbol + wide + b"\x00\x53\x75\xa0\x00"
        self.assertTrue(compile_selector("k = 5").matches(Message(encoded)))
        symbol = b"amqp:properties:list"
        items = b"\x40\x40\x40\xb1\x00\x00\x00\x01s"
        wide = b"\xd0" + (len(items) + 4).to_bytes(4) + (4).to_bytes(4) + items
        encoded = b"\x00\xa3" + bytes([len(symbol)]) + symbol + wide + b"\x00\x53\x75\xa0\x00"
        self.assertTrue(compile_selector("subject = 's' AND to IS NULL").matches(Message(encoded)))
        empty = Message(b"\x00\x53\x73\x45\x00\x53\x75\xa0\x00")
        self.assertTrue(compile_selector("subject IS NULL").matches(empty))

    def test_decimals(self) -> None:
        """Every form of the encoding, and what is not a number."""
        for value, text in (
            (types.Decimal32(bytes.fromhex("32800001")), "d = 1"),
            (types.Decimal32(bytes.fromhex("b2800001")), "d = -1 AND d + 3 = 2"),
            (decimal64(Decimal("0.1")), "d * 10 = 1 AND d <> 0.1"),
            (decimal64(Decimal("9999999999999999")), "d = 9999999999999999 AND -d < 0"),
            (types.Decimal128(bytes.fromhex("30400000000000000000000000000005")), "d / 2 > 2"),
            (types.Decimal64(bytes.fromhex("7800000000000000")), "d > 18446744073709551615"),
            (types.Decimal64(bytes.fromhex("7c00000000000000")), "NOT d = d AND d IS NOT NULL"),
            # A coefficient too large is zero (IEEE 754 §3.5.2).
            (types.Decimal32(bytes.fromhex("6cbfffff")), "d = 0"),
        ):
            self.assertTrue(compile_selector(text).matches(message({"d": value})), text)

    def test_results_stay_small(self) -> None:
        """Results that no type of AMQP holds are unknown, not huge."""
        product = compile_selector("*".join(["a"] * 500) + " IS NULL")
        self.assertTrue(product.matches(message({"a": types.ULong(2**63)})))
        self.assertFalse(product.matches(message({"a": 1})))
        texts = compile_selector("+".join(["a"] * 9) + " IS NULL", dialect=Dialect.FILTEX)
        self.assertTrue(texts.matches(message({"a": "x" * 10000})))
        self.assertFalse(texts.matches(message({"a": "x"})))

    def test_utc_without_a_clock(self) -> None:
        """It is refused when the link is made, not when the message comes."""
        self.assertRaises(InvalidField, compile_selector, "p.creation_time < UTC()")
