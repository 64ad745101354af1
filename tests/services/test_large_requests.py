# SPDX-License-Identifier: Apache-2.0
"""Requests with very many values, or very long ones: each is refused before it costs much."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.config import loader
from amqproute.config.loader import MOST_OPTIONS, MOST_SHOWN, read_node, read_route
from amqproute.errors import ConfigError, DecodeError
from amqproute.http.http_messages import MOST_VALUES, HttpProblem, HttpRequest
from amqproute.jsontext import has_more_values
from amqproute.message import Message
from amqproute.services.management_node import MOST_PARAMETERS
from amqproute.services.management_protocol import MOST_VALUES as MOST_OF_AMQP
from amqproute.wire.amqp10 import codec, sections, spec
from tests.services.test_node_changes import ORIGIN, InventoryCase

KEYS = [f"k{number}" for number in range(80_000)]


class OptionTests(SynchronousTestCase):
    """Options of what is made at runtime."""

    def refused(self, read: Any, options: dict[str, object]) -> list[str]:
        """Read options that are wrong; return the problems."""
        with self.assertRaises(ConfigError) as caught:
            read(options)
        return list(caught.exception.problems)

    def test_many(self) -> None:
        """Very many are refused without a look at any."""
        self.patch(loader, "Config", None)
        for read in (read_node, read_route):
            (problem,) = self.refused(read, dict.fromkeys(KEYS, 1))
            self.assertEqual(problem, f"80000 options are given; at most {MOST_OPTIONS} are taken")

    def test_many_that_are_wrong(self) -> None:
        """The first problems are put into words; a guess at a name takes long."""
        guesses: list[str] = []
        close = loader.difflib.get_close_matches
        self.patch(
            loader.difflib,
            "get_close_matches",
            lambda word, *more: guesses.append(word) or close(word, *more),
        )
        found = self.refused(read_node, {"name": "q", **dict.fromkeys(KEYS[:150], 1)})
        self.assertEqual((len(found), found[-1]), (MOST_SHOWN + 1, "and 140 more"))
        self.assertLessEqual(len(guesses), 2 * MOST_SHOWN)

    def test_long(self) -> None:
        """No word like a very long one is looked for, and little of it is shown."""
        self.patch(loader.difflib, "get_close_matches", lambda *_: self.fail("it is long"))
        (problem,) = self.refused(read_node, {"name": "q", "type": "x" * 1_000_000})
        self.assertLess(len(problem), 500)
        self.assertIn("is not one of queue, topic", problem)
        found = self.refused(read_node, {"name": "q", "x" * 1_000_000: 1})
        self.assertIn("unknown key; known here are", found[0])


class BodyTests(SynchronousTestCase):
    """Bodies of HTTP requests."""

    def status(self, body: bytes) -> int:
        """Parse a body; return the status of the refusal, 200 without one."""
        try:
            HttpRequest("POST", "/", body=body).json()
        except HttpProblem as problem:
            return problem.status
        return 200

    def test_many_values(self) -> None:
        """Beyond a number of values a body is not parsed, in whatever way they stand there."""
        half = MOST_VALUES // 2
        for body in (
            b"[" + b",".join([b"1"] * MOST_VALUES) + b"]",
            b"[" + b",".join([b'""'] * MOST_VALUES) + b"]",
            b"[" + b",".join([b"[1,2]"] * (half // 2)) + b"]",
            json.dumps(dict.fromkeys(KEYS[:MOST_VALUES], "a,b")).encode(),
            json.dumps({"body": '1,"\\,' * 200_000}).encode(),
            json.dumps(["\\", '"', ","] * 3000).encode(),
        ):
            self.assertEqual(self.status(body), 200, body[:30])
        self.patch(json, "loads", lambda *_, **__: self.fail("it is parsed"))
        for body in (
            b"[" + b",".join([b"1"] * (MOST_VALUES + 1)) + b"]",
            b"[" + b",".join([b'""'] * (MOST_VALUES + 1)) + b"]",
            b"[" + b",".join([b"[1,2]"] * MOST_VALUES) + b"]",
            json.dumps(dict.fromkeys(KEYS, "a")).encode(),
            json.dumps(dict.fromkeys(KEYS, 1)).encode(),
            b"," * 1_000_000,
        ):
            self.assertEqual(self.status(body), 400, body[:30])

    def test_what_has_no_end(self) -> None:
        """Strings without an end are no way to keep the counting busy."""
        for body in (
            b'"' + b'\\"' * 500_000 + b"," * 20_000,
            b'"' * 1_000_001 + b"," * 20_000,
            b"," * 20_000 + b'"' + b"\\" * 999_999,
            b"," * 20_000 + b'"\\"' * 300_000,
        ):
            self.assertEqual(self.status(body), 400, body[:30])

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(alphabet='a,"\\[]{}:', max_size=8),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='a,"\\:'), inner),
            max_leaves=40,
        )
    )
    def test_numbers(self, value: object) -> None:
        """The values beside each other are counted, and nothing that stands in a string."""
        text = json.dumps(value).encode()
        commas = count_of(value)
        self.assertTrue(has_more_values(text, commas) or commas == 0)
        self.assertFalse(has_more_values(text, max(commas + 1, strings_of(value))))


def count_of(value: object) -> int:
    """Return the number of commas between values."""
    inner = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(inner, list):
        return 0
    return max(0, len(inner) - 1) + sum(map(count_of, inner))


def strings_of(value: object) -> int:
    """Return the number of strings, names included."""
    if isinstance(value, dict):
        return len(value) + sum(map(strings_of, value.values()))
    if isinstance(value, list):
        return sum(map(strings_of, value))
    return int(isinstance(value, str))


class MessageTests(InventoryCase):
    """Requests to ``$management``."""

    def test_many_parameters(self) -> None:
        """Beyond a number of parameters none is looked at."""
        body = dict.fromkeys(KEYS[: MOST_PARAMETERS + 1], 1)
        for operation, kind in (("CREATE", "queue"), ("UPDATE", "queue"), ("PURGE", "queue")):
            self.send(body, operation=operation, type=kind, name="orders")
            status, said = self.answer()
            self.assertEqual(status, 400)
            self.assertNotIn("orders2", str(said))

    def test_many_in_a_batch(self) -> None:
        """So it is in a batch."""
        command = {
            "operation": "CREATE",
            "type": "queue",
            "name": "new",
            "attributes": dict.fromkeys(KEYS[: MOST_OPTIONS + 1], 1),
        }
        self.send([command])
        status, said = self.answer()
        self.assertEqual((status, "new" in self.broker.nodes), (400, False))
        self.assertIn("options are given", str(said))

    def test_many_values(self) -> None:
        """A body with very many values is malformed, before most of them are decoded."""
        for value in (
            dict.fromkeys(KEYS[: MOST_OF_AMQP + 1], None),
            [None] * (MOST_OF_AMQP + 1),
            [{"operation": "QUERY", "attributes": {"a": [1] * 100}}] * 200,
        ):
            encoded = (
                codec.encode(spec.Properties(message_id="m", reply_to=self.replies.name))
                + sections.encode_section(
                    spec.SECTION_APPLICATION_PROPERTIES, {"operation": "QUERY"}
                )
                + sections.encode_section(spec.SECTION_AMQP_VALUE, value)
            )
            batch = self.broker.begin()
            with self.assertRaises(DecodeError):
                self.service.put(Message(encoded), batch, ORIGIN)
            batch.abandon()
