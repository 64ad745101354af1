# SPDX-License-Identifier: Apache-2.0
"""Tickets of 0-9 in the methods of file and message.

Rules: 09-X-74, -82, -96, -102.
"""

from __future__ import annotations

from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

from tests.conformance.frame_broker import Network
from tests.support.client09 import Client09
from tests.support.wire09 import V09, call, content

READING: Final[dict[str, dict[str, Any]]] = {
    "file.consume": {},
    "message.consume": {},
    "message.get": {},
}


class TicketTests(SynchronousTestCase):
    """A method that names a ticket is bound by it besides the rights."""

    def setUp(self) -> None:
        self.house = Network().house()

    def client(self, **uses: int) -> tuple[Client09, int]:
        client = Client09(self.house, version=V09).channel()
        answer = client.answer("access.request", realm="/data", **uses)
        return client, int(answer["ticket"])

    def test_reading(self) -> None:
        """Consuming needs a ticket for reading."""
        for name in READING:
            client, ticket = self.client(write=1)
            refused = client.refused(name, ticket=ticket, queue="q")
            self.assertEqual(refused, ("channel", 403), name)
            client, ticket = self.client(read=1)
            self.assertNotEqual(client.ask(name, ticket=ticket, queue="q"), [], name)
            self.assertEqual(client.closes(), [], name)

    def test_writing(self) -> None:
        """Publishing needs a ticket for writing."""
        for uses, closes in (({"read": 1}, [("channel", 403)]), ({"write": 1}, [])):
            client, ticket = self.client(**uses)
            client.ask("message.transfer", ticket=ticket, routing_key="q", body=(0, b"x"))
            self.assertEqual(client.closes(), closes)
            client, ticket = self.client(**uses)
            name = "".join(uses)
            client.ask("file.open", identifier=name, content_size=1)
            client.methods.clear()
            client.write(
                content(1, "file.stage", b"x", class_id=70),
                call(1, "file.publish", ticket=ticket, routing_key="q", identifier=name),
            )
            self.assertEqual(client.closes(), closes)
        self.assertEqual(client.depth(), 2)
