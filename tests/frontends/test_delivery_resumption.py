# SPDX-License-Identifier: Apache-2.0
"""The table of §2.6.13, for maps of all kinds."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.frontends.amqp10.delivery_resumption import OUTCOMES, by_outcome, compare
from amqproute.wire.amqp10 import spec

TAGS = st.binary(min_size=1, max_size=2)
STATES = st.sampled_from(
    (None, spec.Received(section_number=0, section_offset=0), *(kind() for kind in OUTCOMES))
)


class CompareTests(SynchronousTestCase):
    """Nothing that was parked is forgotten, and nothing is in two places."""

    @given(st.lists(TAGS, unique=True), st.dictionaries(TAGS, STATES), st.booleans())
    def test_each_once(
        self, tags: list[bytes], theirs: dict[bytes, Any], is_complete: bool
    ) -> None:
        """Every entry is sent again, decided, or left; in the order in which it was sent first."""
        ours: dict[bytes, Any] = {tag: f"entry of {tag!r}" for tag in tags}
        found = compare(ours, theirs, is_complete, (spec.Accepted, spec.Released))
        order = [each.tag for each in found.again]
        self.assertEqual(order, [tag for tag in tags if tag not in found.left])
        self.assertEqual(bool(found.left), not is_complete and any(t not in theirs for t in tags))
        carried = [each.entry for each in found.again if each.entry is not None]
        decided = [entry for _, entry in found.decided]
        everything = [*carried, *decided, *found.left.values()]
        self.assertEqual(sorted(map(str, everything)), sorted(map(str, ours.values())))
        for each in found.again:
            self.assertEqual(each.resumes, each.tag in theirs)

    def test_wrong(self) -> None:
        """An outcome that was not agreed is told, and decides nothing."""
        ours: dict[bytes, Any] = {b"1": "an entry"}
        found = compare(ours, {b"1": spec.Rejected()}, True, (spec.Accepted,))
        self.assertIsInstance(found.wrong, spec.Rejected)
        self.assertEqual((found.decided, found.again[0].entry), ([], "an entry"))

    def test_groups(self) -> None:
        """Accepted deliveries are one group; the others keep their own words."""
        accepted, modified = spec.Accepted(), spec.Modified(delivery_failed=True)
        pairs = [(accepted, 1), (modified, 2), (spec.Accepted(), 3), (spec.Modified(), 4)]
        self.assertEqual(
            by_outcome(pairs), [(accepted, [1, 3]), (modified, [2]), (spec.Modified(), [4])]
        )
