# SPDX-License-Identifier: Apache-2.0
"""Changes of a reload, by the keys of the file."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.config.config_diff import MOST_NAMED, differences, in_words
from amqproute.config.schema import Config


def config(**given_: Any) -> Config:
    """Return a configuration with these keys of the file."""
    return Config.model_validate({key.replace("_", "-"): value for key, value in given_.items()})


class ChangesTests(SynchronousTestCase):
    """Keys that differ."""

    def test_keys(self) -> None:
        """Groups and maps are looked into, lists are one key; what is equal is not named."""
        for new, expected in (
            ({}, []),
            ({"relay": {"first-retry": 7.0}}, ["relay.first-retry"]),
            ({"status": {"oldest-by": {"dead": None}}}, ["status.oldest-by.dead"]),
            ({"nodes": [{"name": "a"}, {"name": "b"}]}, ["nodes"]),
            ({"aliases": {"x": "y"}, "domains": ["a.example"]}, ["domains", "aliases.x"]),
            ({"peers": {"b.example": {"level": "pkix"}}}, ["peers.b.example"]),
        ):
            self.assertEqual(differences(config(), config(**new)), expected)
            self.assertEqual(differences(config(**new), config()), expected)

    @given(st.dictionaries(st.from_regex("[a-z]{1,8}", fullmatch=True), st.just("q"), max_size=40))
    def test_words(self, aliases: dict[str, str]) -> None:
        """Many changes make no long line, and none is not counted."""
        words = in_words(differences(config(), config(aliases=aliases)))
        if not aliases:
            self.assertIn("no setting has changed", words)
            return
        self.assertEqual(words.count("aliases."), min(len(aliases), MOST_NAMED))
        more = len(aliases) - MOST_NAMED
        self.assertEqual(f" and {more} more" in words, more > 0)
