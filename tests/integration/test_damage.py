# SPDX-License-Identifier: Apache-2.0
"""The short form of the campaign of damage (`make damage`): no message is lost silently."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.network.damage import Case, Ground, damaged


class DamageTests(SynchronousTestCase):
    def test_cases(self) -> None:
        """One damage of each kind and some bits of each file that holds messages."""
        failed = []
        with Ground(24) as ground:
            for snapshot in ("stopped", "killed"):
                for case in self.chosen(ground, snapshot):
                    outcome = ground.run(snapshot, case)
                    if outcome.broken:
                        failed.append(f"{snapshot}: {case}: {outcome.broken}")
        self.assertEqual(failed, [])

    def chosen(self, ground: Ground, snapshot: str) -> list[Case]:
        files = ground.files(snapshot)
        bodies = [one for one in files if "bodies/" in one]
        cases = [Case("store.db", "missing"), Case("store.db", "zero-half")]
        cases += [Case("store.db", "flip", seed) for seed in (1, 3, 5)]
        cases += [
            Case(bodies[0], "flip", 1),
            Case(bodies[1], "flip", 2),
            Case(bodies[0], "missing"),
        ]
        cases += [
            Case("store.db", "missing", also=("store.db.seal", "store.db.mark", "store.bodies")),
            Case("store.db", "empty", also=("store.db.seal", "store.db.mark", "store.bodies")),
            Case("store.db", "older", also=("store.db.seal",)),
        ]
        if "store.db-wal" in files:
            cases.append(Case("store.db-wal", "missing", also=("store.db.seal",)))
            cases += [Case("store.db-wal", "missing"), Case("store.db-wal", "flip", 1)]
            # Only the journal knows what was in that log.
            cases.append(Case("store.db-wal", "missing", also=("store.db.mark",)))
        return cases


class KindTests(SynchronousTestCase):
    """The effect of each kind of damage on a file."""

    def test_kinds(self) -> None:
        octets = bytes(range(1, 201)) + bytes(50)
        made = {kind: damaged(octets, Case("f", kind), b"old") for kind in ("missing", "empty")}
        self.assertEqual(made, {"missing": None, "empty": b""})
        self.assertEqual(damaged(octets, Case("f", "half"), None), octets[:125])
        self.assertEqual(damaged(octets, Case("f", "zero-half"), None), octets[:125] + bytes(125))
        self.assertEqual(damaged(octets, Case("f", "older"), b"old"), b"old")

    def test_flip(self) -> None:
        """A flip changes one bit, and every seed has a place of its own choice."""
        octets = bytes(range(1, 201)) + bytes(50)
        places = set()
        for seed in range(40):
            found = damaged(octets, Case("f", "flip", seed), None)
            assert found is not None
            (place,) = [at for at in range(250) if found[at] != octets[at]]
            self.assertEqual((found[place] ^ octets[place]).bit_count(), 1)
            places.add(place)
        self.assertGreater(len(places), 20)
