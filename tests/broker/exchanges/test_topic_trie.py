# SPDX-License-Identifier: Apache-2.0
"""Tests of `amqproute.broker.exchanges.topic_trie`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.exchanges.subject_table import SubjectTable
from amqproute.broker.exchanges.topic_trie import TopicTrie, split_words
from amqproute.filters.subject import SubjectFilter, subject_words
from amqproute.message import Message
from amqproute.wire.amqp10 import codec
from amqproute.wire.amqp10.spec import Properties

WORDS = st.sampled_from(["a", "b", "", "*", "#", "stock"])
TEXTS = st.lists(WORDS, max_size=6).map(".".join)


def naive(pattern: list[str], key: list[str]) -> bool:
    """Match by the definition, with backtracking."""
    if not pattern:
        return not key
    if pattern[0] == "#":
        return any(naive(pattern[1:], key[at:]) for at in range(len(key) + 1))
    return bool(key) and pattern[0] in ("*", key[0]) and naive(pattern[1:], key[1:])


class MatchTests(SynchronousTestCase):
    """`TopicTrie.match`."""

    def test_table(self) -> None:
        """The matches of each wildcard, at the edges too."""
        rows = [
            ("", "", True), ("", "a", False), ("#", "", True), ("#", "a.b", True),
            ("*", "", False), ("*", "a", True), ("*", "a.b", False), ("*.*", ".", True),
            ("a.#", "a", True), ("a.#", "a.b.c", True), ("a.#", "ab", False),
            ("#.c", "c", True), ("#.c", "a.b.c", True), ("#.c", "a.c.b", False),
            ("a.*.c", "a.b.c", True), ("a.*.c", "a.c", False), ("a.*.c", "a..c", True),
            ("*.#", "", False), ("*.#", "a", True), ("#.#", "", True), ("#.*.#", "", False),
            ("a.b", "a.b", True), ("a.b", "a.*", False), ("a.#.b.#", "a.x.b.b.y", True),
            ("é.*", "é.ü", True),
        ]  # fmt: skip
        for pattern, key, wanted in rows:
            trie: TopicTrie[str] = TopicTrie()
            trie.add(pattern, "q")
            self.assertEqual(list(trie.match(key)), ["q"] if wanted else [], (pattern, key))

    @given(st.lists(st.tuples(TEXTS, st.integers(0, 3)), max_size=12), TEXTS, st.data())
    def test_definition(
        self, patterns: list[tuple[str, int]], key: str, data: st.DataObject
    ) -> None:
        """Any patterns, any key, after any of the patterns went again."""
        trie: TopicTrie[int] = TopicTrie()
        for pattern, value in patterns:
            trie.add(pattern, value)
        gone = data.draw(st.sets(st.integers(0, max(0, len(patterns) - 1))))
        for at in gone & set(range(len(patterns))):
            trie.remove(*patterns[at])
        left = [pair for at, pair in enumerate(patterns) if at not in gone]
        wanted = {value for text, value in left if naive(split_words(text), split_words(key))}
        found = trie.match(key)
        self.assertEqual(set(found), wanted)
        self.assertEqual(trie.is_empty, not left)

    def test_remove_what_is_not_there(self) -> None:
        """A pattern or a value that was not added is an error."""
        trie: TopicTrie[str] = TopicTrie()
        trie.add("a.b", "q")
        for pattern, value in (("a.c", "q"), ("a", "q"), ("a.b", "other"), ("a.b.c", "q")):
            self.assertRaises(KeyError, trie.remove, pattern, value)
        self.assertEqual(list(trie.match("a.b")), ["q"])


class SubjectTests(SynchronousTestCase):
    """`SubjectTable`: what a topic's filters for subjects select, found and not looked for."""

    @given(
        st.lists(st.one_of(st.none(), st.tuples(TEXTS, st.booleans())), max_size=8),
        TEXTS,
        st.data(),
    )
    def test_same(
        self, wanted: list[tuple[str, bool] | None], subject: str, data: st.DataObject
    ) -> None:
        """Nobody is missed whose filters match, and those come in order; others only literally."""
        table: SubjectTable[int] = SubjectTable(few=0)
        filters: list[SubjectFilter | None] = [
            None if each is None else SubjectFilter(*each) for each in wanted
        ]
        for value, each in enumerate(filters):
            table.put(value, None)
            table.put(value, None if each is None else each.words)
        gone = data.draw(st.sets(st.integers(0, 8)))
        for value in gone:
            table.remove(value)
        left = [value for value in range(len(filters)) if value not in gone]
        self.assertEqual((list(table), len(table)), (left, len(left)))
        message = Message(codec.encode(Properties(subject=subject)))
        found = table.match(subject_words(message))
        self.assertEqual(found, sorted(found))
        for value in left:
            each = filters[value]
            matches = each is None or each.matches(message)
            self.assertTrue(value in found or not matches)
            if each is not None and each.words is not None:
                self.assertEqual(value in found, matches)
        table.clear()
        self.assertEqual((table.match([""]), table.trie.is_empty), ([], True))

    def test_few(self) -> None:
        """A few patterns are not looked for, and many are, without a look at most of them."""
        table: SubjectTable[int] = SubjectTable(few=2)
        for value in range(3):
            table.put(value, ["site", str(value), "#"])
            self.assertEqual(table.reads_subjects, value == 2)
        self.assertEqual(table.match(["site", "1", "new"]), [1])
        table.remove(0)
        self.assertEqual(table.match(["site", "1", "new"]), [1, 2])
        for value in range(10_000):
            table.put(value, ["site", str(value), "#"])
        before = table.trie.steps
        self.assertEqual(table.match(["site", "77", "new"]), [77])
        self.assertLess(table.trie.steps - before, 20)


class WorkTests(SynchronousTestCase):
    """`TopicTrie.steps`: counts, not times."""

    def test_many_patterns(self) -> None:
        """10,000 patterns of the usual kinds: a key enters a few nodes for each of its words."""
        trie: TopicTrie[int] = TopicTrie()
        for at in range(2500):
            trie.add(f"stock.{at}.price.usd", at)
            trie.add(f"stock.{at}.#", at)
            trie.add(f"*.{at}.price.*", at)
            trie.add(f"#.{at}", at)
        found = trie.match("stock.7.price.usd")
        self.assertEqual(set(found), {7})
        self.assertLess(trie.steps, 40)

    def test_patterns_that_make_backtracking_slow(self) -> None:
        """The work is at most the words of the key times the nodes."""
        trie: TopicTrie[str] = TopicTrie()
        trie.add(".".join(["#.a"] * 40) + ".z", "q")
        key = ".".join(["a"] * 120)
        self.assertEqual(trie.match(key), {})
        self.assertLess(trie.steps, 121 * 82)
