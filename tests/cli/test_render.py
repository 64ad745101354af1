# SPDX-License-Identifier: Apache-2.0
"""What commands print: others wrote much of it, and a terminal obeys some of that."""

from __future__ import annotations

import json
from typing import Any

import click
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.cli import render


def printed(function: Any, value: Any) -> str:
    """What is printed of a value."""

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
