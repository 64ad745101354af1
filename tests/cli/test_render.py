# SPDX-License-Identifier: Apache-2.0
"""Output of commands: text of others must not control the terminal."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import click
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.cli import render


def printed(function: Any, value: Any) -> str:
    """The printed form of values."""

    @click.command()
    def command() -> None:
        function(value)

    result: Result = CliRunner().invoke(command)
    return result.output


class JsonTests(SynchronousTestCase):
    @given(st.dictionaries(st.text(), st.text() | st.lists(st.text())))
    def test_any_text(self, value: dict[str, Any]) -> None:
        """It is the same value, and a terminal is told nothing by it but letters."""
        for function in (render.json_text, render.json_line):
            text = printed(function, value)
            self.assertEqual(json.loads(text), value)
            self.assertTrue(text.replace("\n", "").isprintable(), text)

    def test_controls(self) -> None:
        """The controls of both sets, and what turns the direction of writing; letters stay."""
        for char in (*map(chr, (*range(32), *range(0x7F, 0xA0))), "\u2028", "\u202e", "\U000e0001"):
            with self.subTest(char=ascii(char)):
                self.assertEqual(json.loads(render.compact(f"a{char}b")), f"a{char}b")
                self.assertTrue(render.compact(f"a{char}b").isprintable())
        self.assertEqual(render.compact("Grüße, 世界 🙂"), '"Grüße, 世界 🙂"')


class Color(Enum):
    """Something that has names in programs and values outside."""

    RED = "red"


class CellTests(SynchronousTestCase):
    """Values in tables: what the daemon says, and never what Python calls it."""

    def test_each(self) -> None:
        """Each kind of value, within others too."""
        for value, text in (
            (None, "-"),
            (True, "true"),
            ({"too-large": 3, "full": False}, "too-large: 3, full: false"),
            ({}, "-"),
            (["a", None, 7], "a, -, 7"),
            ((), "-"),
            ([{"a": [1, 2]}], "a: 1, 2"),
            (b"\x00\xff", "00ff"),
            (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05+00:00"),
            (Color.RED, "red"),
            ("\x1b[0m", "\\x1b[0m"),
            (1.5, "1.5"),
        ):
            self.assertEqual(render.cell(value), text)

    @given(
        st.recursive(
            st.none() | st.booleans() | st.binary() | st.sampled_from(Color),
            lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abc"), inner),
            max_leaves=8,
        )
    )
    def test_no_representations(self, value: Any) -> None:
        """However they are combined."""
        text = render.cell(value)
        for word in ("None", "True", "False", "Color", "b'", "{", "[", "'"):
            self.assertNotIn(word, text)

    def test_in_a_table(self) -> None:
        """Tables are made of these."""
        table = printed(lambda row: render.table(["A", "B"], [row]), ({"x": True}, None))
        self.assertEqual(table, "A\tB\nx: true\t-\n")
