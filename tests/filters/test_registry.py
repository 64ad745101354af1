# SPDX-License-Identifier: Apache-2.0
"""Filter sets: understood, refused, omitted and answered ones; property filters; no-local."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import InvalidField, NotImplementedHere
from amqproute.filters import registry
from amqproute.filters.local import NoLocal
from amqproute.filters.names import Dialect
from amqproute.filters.properties import (
    MAX_FIELDS,
    PropertyFilter,
    application_properties_filter,
    properties_filter,
)
from amqproute.filters.registry import NO_FILTERS, FilterSet, read_filters
from amqproute.filters.selector import Selector, SelectorCache
from amqproute.wire.amqp10 import codec, spec
from amqproute.wire.amqp10.types import (
    Array,
    Described,
    Float,
    Int,
    Symbol,
    Timestamp,
    UInt,
    ULong,
)
from tests.filters.messages import decimal64, message

SELECTOR = ULong(0x0000468C00000004)
NO_LOCAL = ULong(0x0000468C00000003)


def read(filter_set: dict[Any, Any], **options: Any) -> FilterSet:
    """Read a filter set as it comes out of an attach."""
    source = spec.Source(
        address="q", filter={Symbol(key): each for key, each in filter_set.items()}
    )
    decoded = spec.compose(codec.decode(codec.encode(source))[0])
    return read_filters(decoded.filter, own_container="me", **options)


class SelectorCacheTests(SynchronousTestCase):
    """Each text is compiled once, as long as it is kept."""

    def test_once(self) -> None:
        """Links that ask with the same words share one selector; the dialect counts."""
        cache = SelectorCache()
        first = cache.get("a = 1", Dialect.SELECTOR, None)
        self.assertIs(cache.get("a = 1", Dialect.SELECTOR, None), first)
        self.assertIsNot(cache.get("a = 1", Dialect.FILTEX, None), first)
        self.assertEqual(cache.misses, 2)
        self.assertEqual(cache.words, 6)

    def test_bounds(self) -> None:
        """Those unused longest go: for their number, and for their words."""
        cache = SelectorCache(most=3, most_words=20)
        for text in ("a = 1", "b = 1", "c = 1", "a = 1", "d = 1"):
            cache.get(text, Dialect.SELECTOR, None)
        self.assertEqual((len(cache), cache.misses, cache.words), (3, 4, 9))
        cache.get("a = 1", Dialect.SELECTOR, None)
        self.assertEqual(cache.misses, 4)
        cache.get("a in (1, 2, 3, 4, 5, 6, 7)", Dialect.SELECTOR, None)  # 17 words
        self.assertEqual((len(cache), cache.words), (2, 20))

    def test_refused(self) -> None:
        """A text that is no selector is not kept."""
        cache = SelectorCache()
        self.assertRaises(InvalidField, cache.get, "a = ", Dialect.SELECTOR, None)
        self.assertEqual((len(cache), cache.words), (0, 0))

    def test_links_share(self) -> None:
        """It is what filter sets are made from."""
        one, two = (read({"s": Described(SELECTOR, "shared = 'yes'")}) for _ in range(2))
        self.assertIs(one.filters[0].filter, two.filters[0].filter)
        self.assertEqual(one.words, 3)
        self.assertEqual(NO_FILTERS.words, 0)


class FilterSetTests(SynchronousTestCase):
    """From the attach and back."""

    def test_descriptors(self) -> None:
        """Each kind is known by number and by symbol (L-17)."""
        for code, symbol, value, kind in (
            (SELECTOR, "apache.org:selector-filter:string", "color = 'red'", Selector),
            (NO_LOCAL, "apache.org:no-local-filter:list", [], NoLocal),
            (ULong(0x120), "amqp:sql-filter", "color = 'red'", Selector),
            (ULong(0x173), "amqp:properties-filter", {Symbol("to"): "x"}, PropertyFilter),
            (ULong(0x174), "amqp:application-properties-filter", {"a": 1}, PropertyFilter),
        ):
            for descriptor in (code, Symbol(symbol)):
                found = read({"mine": Described(descriptor, value)})
                self.assertTrue(found)
                (each,) = found.filters
                self.assertIsInstance(each.filter, kind)
                self.assertEqual((each.name, each.descriptor), ("mine", symbol))
                # What is in force is answered as it came (K-04).
                self.assertEqual(found.in_force(), {"mine": Described(descriptor, value)})
                codec.encode(spec.Source(filter=found.in_force()))

    def test_no_local_as_clients_send_it(self) -> None:
        """A list without fields, as registered; the name of the filter; nothing at all."""
        for value in ([], "NoLocalFilter{}", None):
            (each,) = read({"mine": Described(NO_LOCAL, value)}).filters
            self.assertEqual(each.filter, NoLocal("me"))

    def test_all_have_to_pass(self) -> None:
        """A message passes a set if it passes each (part 3 §3.5.8)."""
        found = read(
            {
                "one": Described(SELECTOR, "complexity < 5"),
                "two": Described(ULong(0x174), {"color": "red"}),
                "three": Described(NO_LOCAL, "NoLocalFilter{}"),
                "four": Described(ULong(0x120), "h.priority = 4"),
            }
        )
        self.assertEqual(found.needs, {"application", "header", "origin"})
        subject = message({"complexity": 3, "color": "red"})
        self.assertTrue(found.matches(subject, "other"))
        self.assertTrue(found.matches(subject))
        self.assertFalse(found.matches(subject, "me"))
        self.assertFalse(found.matches(message({"complexity": 3}), "other"))
        self.assertFalse(found.matches(message({"complexity": 5, "color": "red"}), "other"))
        self.assertIn("one=application.complexity < 5", str(found))
        self.assertIn("FilterSet", repr(found))

    def test_nothing_to_ask(self) -> None:
        """No set, an empty set, nulls only: every message passes, nothing is answered."""
        self.assertIs(read_filters(None, own_container=""), NO_FILTERS)
        for found in (read({}), read({"x": None}), NO_FILTERS):
            self.assertFalse(found)
            self.assertTrue(found.matches(message()))
            self.assertIs(found.in_force(), None)
            self.assertEqual(found.needs, frozenset())

    def test_bare_strings(self) -> None:
        """A string without descriptor is taken by its well-known name."""
        for name in ("selector", "jms-selector", "SQL-92", "apache.org:selector-filter:string"):
            found = read({name: "subject = 'x'"})
            self.assertTrue(found.matches(message({}, properties={"subject": "x"})))
            self.assertEqual(found.in_force(), {name: "subject = 'x'"})
        found = read({"sql-filter": "subject = 'x'"})
        self.assertTrue(found.matches(message({"subject": "x"})))
        self.assertRaises(NotImplementedHere, read, {"mine": "subject = 'x'"})

    def test_unknown_kinds(self) -> None:
        """They are refused by name, or left out of what is answered (L-20, K-04)."""
        unknown = {"mine": Described(Symbol("rabbitmq:stream-filter"), "x")}
        error = self.assertRaises(NotImplementedHere, read, unknown)
        self.assertIn("mine: rabbitmq:stream-filter is not offered", error.description)
        self.assertIn("amqp:sql-filter", error.description)
        error = self.assertRaises(NotImplementedHere, read, {"mine": Described(ULong(5), "x")})
        self.assertIn("0x0000000000000005", error.description)
        known = {"other": Described(SELECTOR, "a = 1")}
        found = read({**unknown, **known}, drop_unsupported=True)
        self.assertEqual(found.in_force(), known)
        self.assertEqual(found.dropped, ("mine",))

    def test_bad_values(self) -> None:
        """A known kind with a value it cannot have is refused, never dropped (L-18)."""
        for value, words in (
            (Described(SELECTOR, "color ="), "filter f: selector, character 8"),
            (Described(SELECTOR, b"color"), "a selector is a string"),
            (Described(NO_LOCAL, ["me"]), "no-local has no terms"),
            (Described(NO_LOCAL, {}), "no-local has no terms"),
            (Described(NO_LOCAL, False), "no-local has no terms"),
            (Described(Int(5), "x"), "neither ulong nor symbol"),
            (5, "not a described value"),
            (Described(ULong(0x173), {}), "at least one"),
            (Described(ULong(0x174), "x"), "a map"),
        ):
            error = self.assertRaises(InvalidField, read, {"f": value}, drop_unsupported=True)
            self.assertIn(words, error.description)
        many = {f"f{n}": Described(SELECTOR, "a = 1") for n in range(registry.MAX_FILTERS + 1)}
        self.assertRaises(InvalidField, read, many)

    def test_position_reaches_the_peer(self) -> None:
        """The error's info says where in the selector."""
        error = self.assertRaises(InvalidField, read, {"f": Described(SELECTOR, "a = 1 b")})
        self.assertEqual(error.info, {"code": "filter.syntax", "position": 7})

    def test_clock(self) -> None:
        """The clock is passed on to UTC()."""
        filter_set = {"f": Described(ULong(0x120), "p.absolute_expiry_time > UTC()")}
        found = read(filter_set, now_ms=lambda: 5)
        self.assertTrue(found.matches(message(properties={"absolute_expiry_time": 6})))
        self.assertFalse(found.matches(message(properties={"absolute_expiry_time": 5})))
        self.assertRaises(InvalidField, read, filter_set)


class NoLocalTests(SynchronousTestCase):
    """A container's own messages."""

    def test_own_messages_stay_away(self) -> None:
        """Those of others, and those whose origin nobody knows, come."""
        own = NoLocal("me")
        self.assertFalse(own.matches(message(), "me"))
        self.assertTrue(own.matches(message(), "you"))
        self.assertTrue(own.matches(message()))
        self.assertEqual(own, NoLocal("me"))
        self.assertNotEqual(own, NoLocal("you"))
        self.assertRaises(InvalidField, NoLocal, "")


class PropertyFilterTests(SynchronousTestCase):
    """The filters of filtex §4."""

    def test_every_field(self) -> None:
        """Each field of the properties matches its value, not another, and not its absence."""
        for key, value, other in (
            ("message-id", ULong(1), ULong(2)),
            ("message-id", "1", ULong(1)),
            ("message-id", UUID(int=1), str(UUID(int=1))),
            ("message-id", b"1", "1"),
            ("user-id", b"ann", b"bob"),
            ("to", "q", "r"),
            ("subject", "s", "S"),
            ("reply-to", "q", "q2"),
            ("correlation-id", ULong(0), "0"),
            ("content-type", Symbol("a/b"), Symbol("a/c")),
            ("content-encoding", Symbol("gzip"), Symbol("br")),
            ("absolute-expiry-time", Timestamp(1), Timestamp(2)),
            ("creation-time", Timestamp(1), Timestamp(2)),
            ("group-id", "g", "h"),
            ("group-sequence", UInt(1), UInt(2)),
            ("reply-to-group-id", "g", "h"),
        ):
            found = properties_filter({Symbol(key): value})
            self.assertEqual(found.needs, {"properties"})
            attribute = key.replace("-", "_")
            self.assertTrue(found.matches(message(properties={attribute: value})), key)
            self.assertFalse(found.matches(message(properties={attribute: other})), key)
            self.assertFalse(found.matches(message(properties={})), key)
            self.assertFalse(found.matches(message()), key)

    def test_modifiers(self) -> None:
        """Prefix, suffix and the escaped ampersand (§4.1.1)."""
        for reference, yes, no in (
            ("&p:ab", ["ab", "abc"], ["a", "xab", ""]),
            ("&s:ab", ["ab", "xab"], ["b", "abx", ""]),
            ("&p:", ["", "x"], []),
            ("&&p:ab", ["&p:ab"], ["ab", "&&p:ab"]),
            ("&&", ["&"], ["&&", ""]),
            ("a&b", ["a&b"], ["a"]),
        ):
            for make, given_as in (
                (properties_filter, lambda text: message(properties={"subject": text})),
                (application_properties_filter, lambda text: message({"subject": text})),
            ):
                found = make({Symbol("subject"): reference})
                for text in yes:
                    self.assertTrue(found.matches(given_as(text)), (reference, text))
                for text in no:
                    self.assertFalse(found.matches(given_as(text)), (reference, text))
        found = application_properties_filter({"a": "&p:1"})
        self.assertFalse(found.matches(message({"a": 1})))

    def test_numbers_of_any_type(self) -> None:
        """Equal numbers match across types; nothing else does (§4.1.1)."""
        same = [Int(3), ULong(3), 3, 3.0, Float(3), decimal64(Decimal(3)), Timestamp(3)]
        for reference in same:
            found = application_properties_filter({"a": reference})
            for value in same:
                self.assertTrue(found.matches(message({"a": value})), (reference, value))
            for value in (4, 3.5, "3", True, b"3"):
                self.assertFalse(found.matches(message({"a": value})), (reference, value))
        for reference, value in ((True, 1), (1, True), (False, 0), ("1", 1), (b"1", "1")):
            found = application_properties_filter({"a": reference})
            self.assertFalse(found.matches(message({"a": value})))
            self.assertTrue(found.matches(message({"a": reference})))

    def test_null_references(self) -> None:
        """Null matches any value; a key has to be there, a field need not."""
        found = properties_filter({Symbol("subject"): None, Symbol("to"): "x"})
        self.assertTrue(found.matches(message(properties={"to": "x"})))
        self.assertTrue(found.matches(message(properties={"to": "x", "subject": "s"})))
        found = application_properties_filter({"a": None})
        self.assertTrue(found.matches(message({"a": False})))
        self.assertFalse(found.matches(message({"b": 1})))

    def test_all_references_have_to_match(self) -> None:
        """One that does not is enough to keep the message away."""
        found = application_properties_filter({"a": 1, "b": "&p:x"})
        self.assertTrue(found.matches(message({"b": "xy", "c": 0, "a": 1})))
        self.assertFalse(found.matches(message({"b": "xy", "a": 2})))
        self.assertEqual(found, application_properties_filter({"b": "&p:x", "a": 1}))
        self.assertNotEqual(found, application_properties_filter({"a": 1}))

    def test_refused(self) -> None:
        """Impossible references."""
        for make, value, words in (
            (properties_filter, {Symbol("nothing"): 1}, "no field 'nothing'"),
            (properties_filter, {Symbol("subject"): 1}, "cannot be of type int"),
            (properties_filter, {Symbol("user-id"): "ann"}, "cannot be of type str"),
            (properties_filter, {Symbol("user-id"): decimal64(Decimal(1))}, "decimal64"),
            (properties_filter, {Symbol("group-sequence"): 1}, "cannot be of type int"),
            (properties_filter, {Symbol("subject"): "&x:a"}, "&p:"),
            (properties_filter, {Symbol("subject"): "&"}, "&p:"),
            (properties_filter, {5: "a"}, "neither symbol nor string"),
            (properties_filter, [], "a map"),
            (application_properties_filter, {"a": [1]}, "no simple value"),
            (application_properties_filter, {"a": Array(0x54, [Int(1)])}, "no simple value"),
            (application_properties_filter, {"a": {"b": 1}}, "no simple value"),
            (application_properties_filter, {"k" * 2000: 1}, "1024"),
            (application_properties_filter, {str(n): n for n in range(MAX_FIELDS + 1)}, "at most"),
        ):
            error = self.assertRaises(InvalidField, make, value)
            self.assertIn(words, error.description)

    def test_broken_sections_do_not_match(self) -> None:
        """A message that cannot be decoded passes no filter that looks at it."""
        broken = message({"a": 1}).encoded.replace(b"\xa1\x01a", b"\x99\x01a")
        found = application_properties_filter({"a": 1})
        self.assertFalse(found.matches(type(message())(broken)))
        self.assertIn("amqp:application-properties-filter", repr(found))

    @given(
        st.dictionaries(
            st.one_of(st.sampled_from(["subject", "user-id", "message-id"]), st.integers()),
            st.recursive(
                st.one_of(
                    st.none(), st.booleans(), st.floats(), st.text(max_size=4), st.binary(),
                    st.integers(0, 9).map(UInt),
                ),
                lambda inner: st.lists(inner, max_size=2),
                max_leaves=3,
            ),
            max_size=4,
        )
    )  # fmt: skip
    def test_any_map(self, value: dict[Any, Any]) -> None:
        """Any map makes a filter or is refused."""
        for make in (properties_filter, application_properties_filter):
            try:
                found = make(value)
            except InvalidField:
                continue
            self.assertIsInstance(found.matches(message({"subject": "x"})), bool)
