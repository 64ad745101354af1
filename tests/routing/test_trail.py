# SPDX-License-Identifier: Apache-2.0
"""The trace of containers (T-27)."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import LONGEST_DESCRIPTION, NotAllowed
from amqproute.routing import trail
from amqproute.wire.amqp10 import codec
from amqproute.wire.amqp10.types import Symbol


class TrailTests(SynchronousTestCase):
    """Reading, checking and lengthening it."""

    def test_reading(self) -> None:
        """No annotation is an empty trace; lists and arrays of strings are traces."""
        self.assertEqual(trail.trace_of({}), ())
        self.assertEqual(trail.trace_of({trail.TRACE: ["a", "b"]}), ("a", "b"))
        encoded = codec.encode({trail.TRACE: ["a"]})
        self.assertEqual(trail.trace_of(codec.decode(encoded, 0, len(encoded))[0]), ("a",))

    def test_unreadable(self) -> None:
        """A path that cannot be read is refused: it could go round for ever."""
        bad: list[Any] = ["a", 7, b"ab", ["a", 1], {"a": 1}, [None], [["a"]]]
        for value in bad:
            self.assertRaises(NotAllowed, trail.trace_of, {trail.TRACE: value})

    def test_loop(self) -> None:
        """A message that was here before is refused, with the loop in words."""
        error = self.assertRaises(NotAllowed, trail.check, ("a", "b", "c"), "b", 16)
        self.assertEqual(error.description, "mail loop: b > c > b")
        self.assertEqual(error.info, {"code": "route.loop"})

    def test_names(self) -> None:
        """Domains are named where they are known, and no name is longer than others."""
        names = {"b": "beta.example", "c": "x" * 250}

        def name_of(container: str) -> str:
            return names.get(container, container)

        error = self.assertRaises(NotAllowed, trail.check, ("a", "b", "c", "d"), "b", 16, name_of)
        self.assertEqual(
            error.description, f"mail loop: beta.example > {'x' * 103} > d > beta.example"
        )
        error = self.assertRaises(NotAllowed, trail.check, ("b", "d"), "z", 2, name_of)
        self.assertIn("more than 2 hops: beta.example > d", error.description)

    def test_hops(self) -> None:
        """So is one that has come too far."""
        trail.check(("a",) * 3, "z", 4)
        error = self.assertRaises(NotAllowed, trail.check, ("a",) * 4, "z", 4)
        self.assertIn("more than 4 hops", error.description)

    def test_what_is_quoted(self) -> None:
        """A sender decides neither how long a refusal's words become, nor what they leave out."""
        for trace in (
            ("me", *(f"broker{number}" for number in range(20_000))),
            ("me", *("x" * 10_000,) * 20),
            ("me", "x" * 100_000),
        ):
            for limit in (16, 255):
                error = self.assertRaises(NotAllowed, trail.check, trace, "me", limit)
                self.assertLess(len(error.description), LONGEST_DESCRIPTION)
                self.assertTrue(error.description.startswith("mail loop: me > "))
                self.assertTrue(error.description.endswith(" > me"))
            error = self.assertRaises(NotAllowed, trail.check, trace, "z", 2)
            self.assertLess(len(error.description), LONGEST_DESCRIPTION)
        self.assertIn("... 19993 more ...", trail.shortened(["me"] * 20_001))
        self.assertEqual(trail.shortened(["me"] * 8), ["me"] * 8)

    def test_lengthening(self) -> None:
        """Our container comes last."""
        self.assertEqual(trail.extended(("a",), "b"), ["a", "b"])

    def test_symbols_count(self) -> None:
        """A sender may give the ids as symbols."""
        self.assertEqual(trail.trace_of({trail.TRACE: [Symbol("a")]}), ("a",))
