# SPDX-License-Identifier: Apache-2.0
"""Eviction of unfinished deliveries that hold too much memory, or make no progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.partial_delivery_eviction import (
    Eviction,
    EvictionAction,
    PartialDelivery,
    evictions,
    overdue,
)

Sizes = Mapping[str, Sequence[Sequence[tuple[int, float, bool]]]]
"""By party, for each connection, its deliveries: octets, idle seconds, whether it can spill."""


class EvictionTests(SynchronousTestCase):
    def evict(self, sizes: Sizes, excess: int) -> list[Eviction[tuple[str, int], int]]:
        """Decide; the key of a delivery is its place on its connection."""
        held = {
            party: {
                (party, number): sum(octets for octets, _, _ in deliveries)
                for number, deliveries in enumerate(connections)
            }
            for party, connections in sizes.items()
        }
        return evictions(
            held,
            lambda connection: [
                PartialDelivery(key, octets, idle, can_spill)
                for key, (octets, idle, can_spill) in enumerate(sizes[connection[0]][connection[1]])
            ],
            excess,
        )

    def test_order(self) -> None:
        """The largest party, its largest connection, there what is idle for longest."""
        sizes: Sizes = {
            "small": [[(90, 99.0, True)]],
            "large": [[(40, 0.0, True)], [(30, 1.0, False), (20, 5.0, True), (10, 3.0, True)]],
        }
        found = self.evict(sizes, 31)
        self.assertEqual(
            [(each.connection, each.incoming.key, each.way) for each in found],
            [
                (("large", 1), 1, EvictionAction.SPILL),  # of 60 octets; the connection has 40 left
                (("small", 0), 0, EvictionAction.SPILL),
            ],
        )

    def test_ends_what_cannot_spill(self) -> None:
        """Deliveries that cannot be written to disk are ended."""
        (only,) = self.evict({"a": [[(10, 0.0, False)]]}, 1)
        self.assertIs(only.way, EvictionAction.END)

    def test_nothing_to_take(self) -> None:
        """A connection without deliveries that could go does not hold up the others."""
        held = {"a": {1: 100, 2: 50}}
        found = evictions(
            held, lambda c: [PartialDelivery("x", 50, 0.0, True)] if c == 2 else [], 10
        )
        self.assertEqual([each.connection for each in found], [2])

    @given(
        st.dictionaries(
            st.sampled_from("abcde"),
            st.lists(
                st.lists(
                    st.tuples(st.integers(1, 1000), st.floats(0, 100), st.booleans()), max_size=4
                ),
                max_size=4,
            ),
        ),
        st.integers(1, 20_000),
    )
    def test_largest_first(self, sizes: Sizes, excess: int) -> None:
        """Each step takes from whoever holds most; no step is without need, all needed are made."""
        left = {
            party: [sum(octets for octets, _, _ in each) for each in connections]
            for party, connections in sizes.items()
        }
        total = sum(map(sum, left.values()))
        share = (total - excess) / max(1, len(left))
        missing = excess
        for each in self.evict(sizes, excess):
            party, number = each.connection
            self.assertGreater(missing, 0)
            self.assertEqual(sum(left[party]), max(map(sum, left.values())))
            self.assertEqual(left[party][number], max(left[party]))
            if sum(left[party]) < share:
                self.assertFalse([other for other in left.values() if sum(other) > share])
            left[party][number] -= each.incoming.octets
            missing -= each.incoming.octets
        self.assertLessEqual(sum(map(sum, left.values())), max(0, total - excess))

    @given(st.lists(st.tuples(st.floats(0, 400), st.booleans())))
    def test_overdue(self, deliveries: list[tuple[float, bool]]) -> None:
        """Deliveries without progress are spilled if possible, and ended at last in any case."""
        coming = [PartialDelivery(key, 1, *each) for key, each in enumerate(deliveries)]
        found = {incoming.key: way for incoming, way in overdue(coming, 30, 300)}
        for key, (idle, can_spill) in enumerate(deliveries):
            expected = (
                EvictionAction.END
                if idle >= 300
                else EvictionAction.SPILL
                if idle >= 30 and can_spill
                else None
            )
            self.assertIs(found.get(key), expected)
