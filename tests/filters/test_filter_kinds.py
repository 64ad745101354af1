# SPDX-License-Identifier: Apache-2.0
"""Filters of plug-ins: offered like the broker's own, and unable to harm it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import InvalidField, NotImplementedHere
from amqproute.filters.registry import CAPABILITIES, adopt_kinds, capabilities, read_filters
from amqproute.wire.amqp10.types import Described, Symbol, ULong
from tests.support.tiny_distribution import COLOR_FILTER

DESCRIPTOR = "acme.example:color-filter:string"
CODE = 0x00ACE00000000001


class KindTests(SynchronousTestCase):
    """A kind of filter that is not one of ours."""

    def setUp(self) -> None:
        space: dict[str, Any] = {}
        exec(compile(COLOR_FILTER, "color", "exec"), space)
        self.kind = space["COLOR"]
        self.failures: list[tuple[str, str]] = []
        self.addCleanup(adopt_kinds, [], self.failed)

    def failed(self, descriptor: str, error: Exception) -> None:
        """Take note of a failure."""
        self.failures.append((descriptor, str(error)))

    def read(self, value: object, descriptor: object = Symbol(DESCRIPTOR)) -> Any:
        """Return the filters of an attach with one filter."""
        wanted = {Symbol("color"): Described(descriptor, value)}
        return read_filters(wanted, own_container="c")

    def test_offered(self) -> None:
        """It decides by symbol and by code, and is announced; without it, it is refused."""
        with self.assertRaises(NotImplementedHere):
            self.read("red")
        self.assertEqual(adopt_kinds([self.kind], self.failed), [])
        red, blue = (SimpleNamespace(encoded=each) for each in (b"a red one", b"a blue one"))
        for descriptor in (Symbol(DESCRIPTOR), ULong(CODE)):
            filters = self.read("red", descriptor)
            self.assertEqual(filters.needs, frozenset({"application"}))
            self.assertEqual([filters.matches(each) for each in (red, blue)], [True, False])
        self.assertEqual(str(filters), f"color={DESCRIPTOR}")
        self.assertEqual(capabilities(), (*CAPABILITIES, "ACME.EXAMPLE:COLOR"))
        adopt_kinds([], self.failed)
        self.assertEqual(capabilities(), CAPABILITIES)
        with self.assertRaises(NotImplementedHere):
            self.read("red", ULong(CODE))

    def test_failures(self) -> None:
        """What it raises is a refusal, or a message that does not pass; and it is reported."""
        adopt_kinds([self.kind], self.failed)
        error = self.assertRaises(InvalidField, self.read, 5)
        self.assertEqual(error.description, "a color is a text")
        self.assertEqual(self.failures, [])
        error = self.assertRaises(InvalidField, self.read, "fail")
        self.assertEqual(error.info, {"code": "filter.failed"})
        filters = self.read("broken")
        self.assertIs(filters.matches(SimpleNamespace(encoded=b"broken")), False)
        self.assertEqual(
            self.failures, [(DESCRIPTOR, "the maker fails"), (DESCRIPTOR, "no such color")]
        )

    def test_wrong_filters(self) -> None:
        """A kind whose filters are none is refused, too."""
        for made in (
            None,
            SimpleNamespace(needs={"header"}, matches=len),
            SimpleNamespace(needs=frozenset({"weather"}), matches=len),
            SimpleNamespace(needs=frozenset(), matches=5),
        ):
            kind = SimpleNamespace(
                descriptor="a:b", code=None, capability="", make=lambda *_, made=made: made
            )
            adopt_kinds([kind], self.failed)
            self.assertRaises(InvalidField, self.read, "x", Symbol("a:b"))
        self.assertEqual(len(self.failures), 4)

    def test_conflict(self) -> None:
        """Of two kinds with one descriptor or code the first is offered."""
        kinds = [
            SimpleNamespace(descriptor="a:b", code=7, capability="", make=self.kind.make),
            SimpleNamespace(descriptor="a:b", code=8, capability="", make=self.kind.make),
            SimpleNamespace(descriptor="a:c", code=7, capability="", make=self.kind.make),
        ]
        self.assertEqual(adopt_kinds(kinds, self.failed), ["a:b", "a:c"])
