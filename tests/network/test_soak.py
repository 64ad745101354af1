# SPDX-License-Identifier: Apache-2.0
"""The soak in its short form: seconds, and counts instead of measurements (`make soak`)."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.soak import soak


class SoakTests(SynchronousTestCase):
    def test_short(self) -> None:
        """A daemon that strangers use without success lives, serves, and does not grow."""
        names = ("refused-certificates", "unresolvable-destinations")
        samples, broken = soak(4.0, 2.0, 1.0, names)
        self.assertEqual(broken, [])
        self.assertGreater(len(samples), 5)
        self.assertGreater(samples[-1].objects, 0)
        self.assertGreater(samples[-1].processor, samples[0].processor)
