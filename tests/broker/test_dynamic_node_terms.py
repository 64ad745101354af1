# SPDX-License-Identifier: Apache-2.0
"""Properties of dynamic nodes: accepted and refused values."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.dynamic_node_terms import DYNAMIC_CAPACITY, read_terms
from amqproute.errors import InvalidField, NotImplementedHere

TAKEN: list[tuple[str, Any, str, Any]] = [
    ("supported-dist-modes", "copy", "options.destructive_links", 0),
    ("capacity", 1, "limits.capacity", 1),
    ("capacity", DYNAMIC_CAPACITY, "limits.capacity", DYNAMIC_CAPACITY),
    ("max-deliveries", 1 << 31, "limits.max_deliveries", 1 << 31),
    ("priorities", 10, "limits.priorities", 10),
    ("ttl", (1 << 32) - 1, "limits.ttl_ms", (1 << 32) - 1),
    ("durable-on-transient", "accept", "options.takes_durable", True),
    ("durable-on-transient", "reject", "options.takes_durable", False),
    ("maximum-destructive-links", 0, "options.destructive_links", 0),
    ("archive-expired", True, "options.archive_expired", True),
    ("archive-currently-unreachable", True, "options.archive_unreachable", True),
    ("exclusive", True, "is_exclusive", True),
    ("dead-letter", "dead", "dead_letter", "dead"),
]

REFUSED: list[tuple[str, Any]] = [
    ("supported-dist-modes", []),
    ("supported-dist-modes", ["move", "other"]),
    ("capacity", 0),
    ("capacity", DYNAMIC_CAPACITY + 1),
    ("capacity", True),
    ("max-deliveries", 0),
    ("priorities", 11),
    ("ttl", 0),
    ("durable-on-transient", True),
    ("durable-on-transient", "maybe"),
    ("message-durability-mode", "other"),
    ("maximum-destructive-links", -1),
    ("archive-expired", 1),
    ("node-type", "topic"),
    ("default-outcomes", []),
    ("exclusive", "yes"),
    ("serialized", "yes"),
    ("dead-letter", ""),
]


class TermsTests(SynchronousTestCase):
    """One property each."""

    def test_taken(self) -> None:
        """The queue gets the requested terms."""
        for name, value, path, wanted in TAKEN:
            found: Any = read_terms({name: value})
            for part in path.split("."):
                found = getattr(found, part)
            self.assertEqual(found, wanted, (name, value))

    def test_refused(self) -> None:
        """An impossible term is refused by its name, without a substitute."""
        for name, value in REFUSED:
            error = self.assertRaises(InvalidField, read_terms, {name: value})
            self.assertIn(f"{name} is", str(error))
        for name, value in (("unheard-of", 1), ("message-durability-mode", "force-durable")):
            unknown = self.assertRaises(NotImplementedHere, read_terms, {name: value})
            self.assertIn(name, str(unknown))
