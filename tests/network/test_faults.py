# SPDX-License-Identifier: Apache-2.0
"""The fault campaign, short: every scenario runs, and its claim holds.

The long forms, with their figures, are ``python -m benchmarks.faults`` (``make faults``).
"""

from __future__ import annotations

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from benchmarks.faults import SCENARIOS


class FaultTests(SynchronousTestCase):
    def play(self, name: str) -> None:
        finding = SCENARIOS[name][1].play()
        if finding.skipped:
            raise SkipTest(finding.skipped)
        self.assertEqual(finding.broken, [], f"{finding.title}: {finding.figures}")

    def test_kills_and_cuts(self) -> None:
        self.play("kills-and-cuts")

    def test_stops_and_reloads(self) -> None:
        self.play("stops-and-reloads")

    def test_bad_line(self) -> None:
        self.play("bad-line")

    def test_bad_neighbors(self) -> None:
        # None of the bad ones comes to an end while the test has patience, so every message for a
        # good one that depends on any of them is missing. Times are compared in the long form.
        self.play("bad-neighbors")

    def test_never_settles(self) -> None:
        self.play("never-settles")

    def test_breaks_protocol(self) -> None:
        self.play("breaks-protocol")

    def test_flood(self) -> None:
        # What got in is counted against the contract. Throughput is compared in the long form.
        self.play("flood")

    def test_name_server(self) -> None:
        self.play("name-server")

    def test_certificates(self) -> None:
        self.play("certificates")

    def test_full_disk(self) -> None:
        self.play("full-disk")

    def test_clock(self) -> None:
        self.play("clock")
