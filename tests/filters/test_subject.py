# SPDX-License-Identifier: Apache-2.0
"""Filters over the subject, compared with regular expressions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import InvalidField
from amqproute.filters.registry import DIRECT, TOPIC, read_filters
from amqproute.filters.subject import SubjectFilter
from amqproute.message import Message
from amqproute.wire.amqp10 import codec, spec
from amqproute.wire.amqp10.types import Described, Symbol, ULong

WORDS = st.lists(st.sampled_from(["a", "b", "", "ab"]), min_size=1, max_size=6)
PATTERNS = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), min_size=1, max_size=6)


def about(subject: str | None) -> Message:
    """Return a message with a subject."""
    return Message(codec.encode(spec.Properties(subject=subject)) + b"\x00\x53\x75\xa0\x01x")


def reference(pattern: list[str], words: list[str]) -> bool:
    """Match naively."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(reference(pattern[1:], words[skip:]) for skip in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and reference(pattern[1:], words[1:])


class SubjectTests(SynchronousTestCase):
    """N-07."""

    def test_table(self) -> None:
        """The meaning of the words."""
        for pattern, subject, wanted in (
            ("orders.eu", "orders.eu", True),
            ("orders.eu", "orders.us", False),
            ("orders.*", "orders.eu", True),
            ("orders.*", "orders", False),
            ("orders.*", "orders.eu.de", False),
            ("orders.#", "orders", True),
            ("orders.#", "orders.eu.de", True),
            ("#", None, True),
            ("#.de", "orders.eu.de", True),
            ("#.eu.#.x", "a.eu.eu.b.x", True),
            ("", None, True),
            ("a*", "ab", False),
        ):
            self.assertIs(SubjectFilter(pattern, True).matches(about(subject)), wanted, pattern)

    @given(PATTERNS, WORDS)
    def test_reference(self, pattern: list[str], words: list[str]) -> None:
        """The same as trying everything."""
        found = SubjectFilter(".".join(pattern), True).matches(about(".".join(words)))
        self.assertIs(found, reference(pattern, words))

    def test_descriptors(self) -> None:
        """By symbol and by number; the direct kind knows no wildcards."""
        for descriptor, subject, wanted in (
            (Symbol(TOPIC), "a.b", True),
            (ULong(0x0000468C00000001), "a.b", True),
            (Symbol(DIRECT), "a.b", False),
            (ULong(0x0000468C00000000), "a.*", True),
        ):
            filters = read_filters({Symbol("f"): Described(descriptor, "a.*")}, own_container="c")
            self.assertIs(filters.matches(about(subject)), wanted, descriptor)

    def test_refused(self) -> None:
        """Values that are no string, or too long."""
        for value in (7, "x" * 256):
            described = {Symbol("f"): Described(Symbol(TOPIC), value)}
            self.assertRaises(InvalidField, read_filters, described, own_container="c")

    def test_long(self) -> None:
        """Many wildcards cost no more than a look at each pair of words."""
        pattern = ".".join(["#", "a"] * 63)
        self.assertFalse(SubjectFilter(pattern, True).matches(about(".".join(["a"] * 2000) + ".b")))
