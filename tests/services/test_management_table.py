# SPDX-License-Identifier: Apache-2.0
"""The table of management operations, and the page made from it."""

from __future__ import annotations

from pathlib import Path

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

import amqproute
from amqproute.broker.broker import Broker
from amqproute.services import management_table
from amqproute.services.command_schema import OPERATIONS as COMMANDS
from amqproute.services.management_node import READS, ManagementReply, ManagementService
from amqproute.services.management_table import ENTITIES, OPERATIONS
from amqproute.store.memory import MemoryStore

PAGE = Path(amqproute.__file__).parent.parent / "docs" / "management.md"


class TableTests(SynchronousTestCase):
    def test_page(self) -> None:
        """The page says what the table says."""
        self.assertEqual(
            PAGE.read_text(),
            management_table.render(),
            "run: python -m amqproute.services.management_table > docs/management.md",
        )

    def test_names(self) -> None:
        """Operations are for entity types that exist, and every command is an operation."""
        for each in OPERATIONS.values():
            self.assertLessEqual({*each.kinds}, {*ENTITIES}, each.name)
        self.assertLessEqual({*COMMANDS}, {*OPERATIONS})
        self.assertIn("STATUS", READS)
        self.assertNotIn("DRAIN", READS)

    def test_undeclared(self) -> None:
        """An operation missing from the table cannot be offered."""
        clock = Clock()
        broker = Broker(MemoryStore(clock), clock, lambda: 0, lambda: "dynamic-1")
        service = ManagementService(broker, lambda *_: True, lambda: 0)
        reply = ManagementReply.of(200, "OK")
        self.assertRaises(KeyError, service.offer, "POUR", lambda _: reply)
        self.assertRaises(KeyError, service.show, "teapot", list)
        self.assertNotIn("POUR", service.operations)
