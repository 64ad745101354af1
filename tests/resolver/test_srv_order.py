# SPDX-License-Identifier: Apache-2.0
"""RFC 2782, "Usage rules": priorities strictly, weights at random."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.resolver.srv_order import order


@dataclass(frozen=True)
class Record:
    name: str
    priority: int
    weight: int


def sequence(numbers: Iterable[float]) -> Callable[[], float]:
    """A source of chosen random numbers."""
    return iter(numbers).__next__


records = st.lists(
    st.builds(
        Record,
        name=st.text("abc", max_size=2),
        priority=st.integers(0, 3),
        weight=st.integers(0, 65535),
    ),
    max_size=12,
)


class OrderTests(SynchronousTestCase):
    def test_table(self) -> None:
        """With the random numbers fixed, the running sum picks as the standard says."""
        a, b, c = Record("a", 0, 10), Record("b", 0, 20), Record("c", 0, 70)
        zero = Record("zero", 0, 0)
        # Two draws shuffle three records; 0.99 leaves them where they are.
        stay = [0.99, 0.99]
        for given_records, draws, expected in (
            ([], [], ""),
            ([a], [0.5], "a"),
            # total 100, 0..100: 10 is still a (running sum 10 >= 10), 11 is b.
            ([a, b, c], [*stay, 10 / 101 + 1e-9, 0.0, 0.0], "a b c"),
            ([a, b, c], [*stay, 11 / 101 + 1e-9, 0.0, 0.0], "b a c"),
            ([a, b, c], [*stay, 0.999, 0.0, 0.0], "c a b"),
            # then 30 left, 0..30: 11 is b.
            ([a, b, c], [*stay, 0.999, 11 / 31 + 1e-9, 0.0], "c b a"),
            # weight 0 stands first and is chosen by 0 exactly: the very small chance.
            ([c, zero], [0.99, 0.0, 0.0], "zero c"),
            ([c, zero], [0.99, 1 / 71 + 1e-9, 0.0], "c zero"),
        ):
            with self.subTest(expected=expected):
                ordered = order(given_records, sequence(draws))
                self.assertEqual(" ".join(record.name for record in ordered), expected)

    def test_priority_beats_weight(self) -> None:
        """A lower priority comes first, whatever the weights."""
        ordered = order([Record("b", 10, 65535), Record("a", 5, 0)], random.Random(1).random)
        self.assertEqual([record.name for record in ordered], ["a", "b"])

    @given(records, st.integers(0, 2**32))
    def test_permutation(self, given_records: list[Record], seed: int) -> None:
        """Nothing is lost, nothing is doubled, priorities never fall."""
        ordered = order(given_records, random.Random(seed).random)
        self.assertEqual(Counter(ordered), Counter(given_records))
        priorities = [record.priority for record in ordered]
        self.assertEqual(priorities, sorted(priorities))

    @given(records, st.sampled_from([0.0, 1 - 2**-53]))
    def test_extreme_draws(self, given_records: list[Record], draw: float) -> None:
        """The ends of the random numbers' range are no special case."""
        ordered = order(given_records, lambda: draw)
        self.assertEqual(Counter(ordered), Counter(given_records))

    def test_distribution(self) -> None:
        """The first place is shared out by weight."""
        group = [Record("a", 0, 100), Record("b", 0, 300), Record("c", 0, 600), Record("z", 0, 0)]
        source = random.Random(4711)
        first = Counter(order(group, source.random)[0].name for _ in range(20_000))
        for name, share in (("a", 0.1), ("b", 0.3), ("c", 0.6), ("z", 0.001)):
            self.assertLess(abs(first[name] / 20_000 - share), 0.012)
        self.assertGreater(first["z"], 0)

    def test_equal_records_share(self) -> None:
        """All weights 0: every order is equally likely, whatever the server's order."""
        group = [Record(name, 0, 0) for name in "abc"]
        source = random.Random(42)
        first = Counter(order(group, source.random)[0].name for _ in range(6000))
        for name in "abc":
            self.assertLess(abs(first[name] / 6000 - 1 / 3), 0.03)
