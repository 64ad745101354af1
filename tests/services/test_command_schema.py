# SPDX-License-Identifier: Apache-2.0
"""The grammar of management commands, and commands as maps."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.services import command_schema
from amqproute.services.command_schema import (
    CommandRefused,
    ManagementCommand,
    parse_text,
    read_map,
)
from amqproute.wire.amqp10.types import Symbol, UInt


def one(text: str) -> ManagementCommand:
    """Parse a text with one command that is right."""
    ((_, command),) = parse_text(text)
    assert isinstance(command, ManagementCommand), command
    return command


def refused(text: str) -> CommandRefused:
    """Parse a text with one command that is wrong."""
    ((_, command),) = parse_text(text)
    assert isinstance(command, CommandRefused), command
    return command


class GrammarTests(SynchronousTestCase):
    """G-05 to G-18: each command of the table."""

    def test_commands(self) -> None:
        """Every form, with and without options."""
        ends = {"source": "a", "target": "q@b.test"}
        for text, wanted in (
            ("create queue a", ManagementCommand("CREATE", "queue", "a")),
            ("create or assert queue a", ManagementCommand("CREATE", "queue", "a", or_assert=True)),
            ("CREATE Topic t", ManagementCommand("CREATE", "topic", "t")),
            (
                "create queue a with capacity=5, ttl=5m, archive-expired=false",
                ManagementCommand(
                    "CREATE", "queue", "a", {"capacity": 5, "ttl": "5m", "archive-expired": False}
                ),
            ),
            (
                "create queue a with default-outcomes=[released, accepted]",
                ManagementCommand(
                    "CREATE", "queue", "a", {"default-outcomes": ["released", "accepted"]}
                ),
            ),
            ("create link l a q@b.test", ManagementCommand("CREATE", "link", "l", ends)),
            (
                "create or assert binding l a q@b.test with filter=\"color = 'red'\"",
                ManagementCommand("CREATE", "link", "l", {"filter": "color = 'red'", **ends}, True),
            ),
            ("create alias x y", ManagementCommand("CREATE", "alias", "x", {"target": "y"})),
            (
                "assert queue a with priorities=3",
                ManagementCommand("ASSERT", "queue", "a", {"priorities": 3}),
            ),
            (
                "update queue a with ttl=null",
                ManagementCommand("UPDATE", "queue", "a", {"ttl": None}),
            ),
            ("rename link l m", ManagementCommand("RENAME", "link", "l", {"new-name": "m"})),
            ("delete queue queue", ManagementCommand("DELETE", "queue", "queue")),
            (
                "delete queue a with if-empty=true",
                ManagementCommand("DELETE", "queue", "a", {"if-empty": True}),
            ),
            ("query queue", ManagementCommand("QUERY", "queue")),
            ("query relay-queue b", ManagementCommand("QUERY", "relay-queue", "b")),
            (
                "query queue with kind=topic",
                ManagementCommand("QUERY", "queue", "", {"kind": "topic"}),
            ),
            ('query queue "with"', ManagementCommand("QUERY", "queue", "with")),
            ("purge queue a", ManagementCommand("PURGE", "queue", "a")),
            ("move messages a b", ManagementCommand("MOVE", "queue", "a", {"target": "b"})),
            (
                'copy messages a b with filter="n = 1", limit=7',
                ManagementCommand(
                    "COPY", "queue", "a", {"filter": "n = 1", "limit": 7, "target": "b"}
                ),
            ),
        ):
            self.assertEqual(one(text), wanted, text)

    def test_quotes(self) -> None:
        """Names and values in quotes: blanks, commas, quotes, and the text of a number."""
        command = one(r'create queue "a, \"b\" \\" with dead-letter="7"')
        self.assertEqual(command.name, 'a, "b" \\')
        self.assertEqual(command.arguments, {"dead-letter": "7"})

    def test_lines(self) -> None:
        """Empty lines and remarks are skipped; each command knows its line."""
        found = parse_text("\n# two queues\n create queue a\r\n\ndelete queue b\n")
        self.assertEqual([number for number, _ in found], [3, 5])

    def test_refused(self) -> None:
        """An error has its place and the remedy."""
        for text, words in (
            ("explode", "character 1: found explode, expected create or"),
            ("create", "found the end, expected"),
            ("create queue", "a name or value"),
            ("create queue a b", "character 16: found b, expected with or the end"),
            ("update queue a", "expected with"),
            ("create queue a with x", "expected ="),
            ("create queue a with x=1,x=2", "'x' is given twice"),
            ('create queue "a', "character 14"),
            ("update alias a with x=1", "found alias"),
            ("move queue a b", "found queue, expected messages"),
            ("move messages a", "found the end, expected a name or value"),
        ):
            error = refused(text)
            self.assertEqual(error.status, 400)
            self.assertIn(words, error.words, text)

    def test_bounds(self) -> None:
        """No command, too many, too long."""
        for text in (
            "",
            "# nothing\n",
            "query queue\n" * (command_schema.MOST_COMMANDS + 1),
            " " * (command_schema.LONGEST_TEXT + 1),
        ):
            self.assertRaises(CommandRefused, parse_text, text)

    @given(st.text(max_size=60))
    def test_any_text(self, text: str) -> None:
        """Any input is a command or is refused."""
        try:
            found = parse_text(text)
        except CommandRefused:
            return
        for _, each in found:
            self.assertIsInstance(each, ManagementCommand | CommandRefused)

    @given(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), min_size=1))
    def test_any_name(self, name: str) -> None:
        """In quotes every name of one line can be written."""
        if name.strip("\r") != name:
            return
        quoted = name.replace("\\", "\\\\").replace('"', '\\"')
        self.assertEqual(one(f'delete queue "{quoted}"').name, name)


class MapTests(SynchronousTestCase):
    """G-18 b: the working draft's keys."""

    def test_read(self) -> None:
        """The protocol's types do not get further."""
        given_ = {
            "operation": "create",
            "type": Symbol("binding"),
            "name": "l",
            "attributes": {Symbol("capacity"): UInt(5), "list": [Symbol("a")]},
            "or-assert": True,
        }
        command = read_map(given_)
        self.assertEqual(
            command, ManagementCommand("CREATE", "link", "l", {"capacity": 5, "list": ["a"]}, True)
        )
        self.assertIs(type(command.arguments["capacity"]), int)

    def test_identity(self) -> None:
        """`identity` stands for the name, `entityType` for the type."""
        found = read_map({"operation": "DELETE", "entityType": "queue", "identity": "a"})
        self.assertEqual(found, ManagementCommand("DELETE", "queue", "a"))

    def test_refused(self) -> None:
        """Missing attributes and those of a wrong type are named."""
        given_: dict[str, Any]
        for given_, status in (
            ({}, 400),
            ({"operation": 7}, 400),
            ({"operation": "EXPLODE"}, 501),
            ({"operation": "DELETE", "name": "a"}, 400),
            ({"operation": "DELETE", "type": "queue"}, 400),
            ({"operation": "DELETE", "type": "queue", "name": 7}, 400),
            ({"operation": "UPDATE", "type": "queue", "name": "a", "attributes": [1]}, 400),
            ({"operation": "UPDATE", "type": "queue", "name": "a", "attributes": {"x": b"b"}}, 400),
        ):
            error = self.assertRaises(CommandRefused, read_map, given_)
            self.assertEqual(error.status, status, given_)
