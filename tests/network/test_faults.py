# SPDX-License-Identifier: Apache-2.0
"""The fault campaign, short: every scenario runs, and what it claims holds.

The long forms, with their figures, are ``python -m benchmarks.faults`` (``make faults``).
"""

from __future__ import annotations

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.network.campaign import Scenario
from tests.network.crashes import KillsAndCuts, StopsAndReloads
from tests.network.destinations import BadNeighbors
from tests.network.peers import NeverSettles
from tests.network.surroundings import (
    ClockJumps,
    ExpiringCertificates,
    FullDisk,
    TroubledNameServer,
)


class FaultTests(SynchronousTestCase):
    timeout = 120

    def play(self, scenario: Scenario) -> None:
        finding = scenario.play()
        if finding.skipped:
            raise SkipTest(finding.skipped)
        self.assertEqual(finding.broken, [], f"{finding.title}: {finding.figures}")

    def test_kills_and_cuts(self) -> None:
        self.play(KillsAndCuts(messages=800, kills=3, cuts=5))

    def test_stops_and_reloads(self) -> None:
        self.play(StopsAndReloads(messages=600, stops=2, reloads=3))

    def test_bad_neighbors(self) -> None:
        # What a shared machine does to a p99 in a few seconds says nothing: the order of its
        # size is looked at here, its tenths in the long form.
        self.play(
            BadNeighbors(
                destinations=20, laps=1, seconds=2.0, warm_seconds=1.5, rate=300, tolerance=4.0
            )
        )

    def test_never_settles(self) -> None:
        self.play(NeverSettles(messages=400, seconds=3.0, settle_timeout=1.0, window=50))

    def test_name_server(self) -> None:
        self.play(TroubledNameServer(messages=20, rounds=1))

    def test_certificates(self) -> None:
        self.play(ExpiringCertificates(messages=200, renewals=1, lapses=1, valid_seconds=3.0))

    def test_full_disk(self) -> None:
        self.play(FullDisk(messages=300, times=1, seconds=1.0))

    def test_clock(self) -> None:
        self.play(ClockJumps(messages=400, jumps=4))
