# SPDX-License-Identifier: Apache-2.0
"""Tests of `amqproute.jsontext`."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.jsontext import parse_json

LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    LEAVES | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


class ParseTests(SynchronousTestCase):
    """One way to fail."""

    @given(VALUES)
    def test_there_and_back(self, value: Any) -> None:
        """JSON is read."""
        self.assertEqual(parse_json(json.dumps(value)), value)

    @given(st.one_of(st.text(), st.binary(), st.text(alphabet='[]{}":,0e1nfityNa')))
    def test_anything(self, text: str | bytes) -> None:
        """Other text is a ValueError, and nothing else."""
        try:
            found = parse_json(text)
        except ValueError:
            return
        json.dumps(found, allow_nan=False)

    def test_deep(self) -> None:
        """So is what nests too deep, and what is no number."""
        for text in ("[" * 100_000, '{"a":' * 100_000, "[1e999]", "[NaN]", "[-Infinity]"):
            self.assertRaises(ValueError, parse_json, text)
            self.assertRaises(ValueError, parse_json, text.encode())
