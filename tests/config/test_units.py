# SPDX-License-Identifier: Apache-2.0
"""Tests of `amqproute.config.units`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.config.units import (
    LONGEST_SECONDS,
    format_bytes,
    format_seconds,
    parse_bytes,
    parse_seconds,
)


class SecondsTests(SynchronousTestCase):
    """Durations."""

    def test_accepted(self) -> None:
        """Each of these is this many seconds."""
        for text, seconds in [
            ("5d", 432000.0),
            ("1h30m", 5400.0),
            ("250ms", 0.25),
            ("1.5s", 1.5),
            ("2w", 1209600.0),
            ("1m", 60.0),
            ("1m1ms", 60.001),
            ("0", 0.0),
            (" 30s ", 30.0),
            ("7", 7.0),
            (7, 7.0),
            (0.5, 0.5),
        ]:
            self.assertAlmostEqual(parse_seconds(text), seconds)

    def test_refused(self) -> None:
        """Each of these is refused."""
        for value in (
            "", "s", "-5s", "5 days", "5x", "1e9d", "\u0665s", "5S", "99999d", "5s ago",
            -1, True, None, [], float("inf"), float("nan"), 1e30,
        ):  # fmt: skip
            self.assertRaises(ValueError, parse_seconds, value)

    @given(st.floats(0, LONGEST_SECONDS) | st.integers(0, int(LONGEST_SECONDS)))
    def test_round_trip(self, seconds: float) -> None:
        """A written value is read back, to the nanosecond."""
        self.assertAlmostEqual(parse_seconds(format_seconds(seconds)), seconds, delta=1e-6)

    @given(st.text(max_size=12))
    def test_any_text(self, text: str) -> None:
        """Any text is a duration in range or a ValueError."""
        try:
            seconds = parse_seconds(text)
        except ValueError:
            return
        self.assertTrue(0 <= seconds <= LONGEST_SECONDS)


class BytesTests(SynchronousTestCase):
    """Sizes."""

    def test_accepted(self) -> None:
        """Each of these is this many bytes."""
        for text, size in [
            ("64MiB", 67108864),
            ("64 MiB", 67108864),
            ("1.5KiB", 1536),
            ("10kB", 10000),
            ("3GB", 3 * 10**9),
            ("1TiB", 2**40),
            ("17", 17),
            ("17B", 17),
            (17, 17),
            (17.0, 17),
        ]:
            self.assertEqual(parse_bytes(text), size)

    def test_refused(self) -> None:
        """Units that mean two things, fractions of a byte and numbers out of range are refused."""
        for value in (
            "", "MiB", "5M", "5K", "5mib", "5Mib", "-1", "1.5B", "0.1KiB", "9" * 19 + "TiB", 1.5,
            -1, False, None, {}, float("nan"),
        ):  # fmt: skip
            self.assertRaises(ValueError, parse_bytes, value)

    @given(st.integers(0, 2**62))
    def test_round_trip(self, size: int) -> None:
        """A written value is read back exactly."""
        self.assertEqual(parse_bytes(format_bytes(size)), size)

    @given(st.integers(0, 2**20), st.sampled_from(["B", "KiB", "MiB", "GiB", "TiB"]))
    def test_shortest(self, count: int, unit: str) -> None:
        """A size written by a person comes out no longer than it went in."""
        text = f"{count}{unit}"
        self.assertLessEqual(len(format_bytes(parse_bytes(text))), max(len(text), 2))
