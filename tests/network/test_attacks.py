# SPDX-License-Identifier: Apache-2.0
"""The campaign of attacks, short: a well-behaved client is served beside each of them.

Times and memory are measured by the long form, ``make attacks``.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.network.attackers import ATTACKS
from tests.network.attacks import short

AT_THE_DOOR = ("refused-certificates", "mute-connections", "wrong-passwords")


class AttackTests(SynchronousTestCase):
    def play(self, *names: str) -> None:
        finding = short(" ".join(names)).play()
        self.assertEqual(finding.broken, [], f"{finding.title}: {finding.figures}")

    def test_at_the_door(self) -> None:
        self.play(*AT_THE_DOOR)

    def test_inside(self) -> None:
        self.play(*(name for name in ATTACKS if name not in AT_THE_DOOR))
