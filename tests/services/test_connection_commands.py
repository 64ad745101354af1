# SPDX-License-Identifier: Apache-2.0
"""CLOSE-CONNECTION, and closing links of one connection only."""

from __future__ import annotations

from typing import Any

from amqproute.services import connection_commands
from amqproute.services.management_node import ManagementService
from tests.services.test_node_changes import ConfiguredNodes, InventoryCase

ROWS: list[dict[str, Any]] = [
    {"name": "ct", "kind": "consumer", "type": "link", "connection": "1.2.3.4:5"},
    {"name": "ct", "kind": "consumer", "type": "link", "connection": "1.2.3.4:6"},
    {"name": "w", "kind": "consumer", "type": "link", "connection": "a", "virtual-host": "/"},
    {"name": "w", "kind": "consumer", "type": "link", "connection": "b", "virtual-host": "shop"},
    {"name": "channel 1", "kind": "channel", "type": "link", "connection": "1.2.3.4:5"},
]


class ConnectionCommandTests(InventoryCase):
    def start(self, wanted: ConfiguredNodes) -> None:
        super().start(wanted)
        self.closed: list[tuple[str, str]] = []
        self.service = ManagementService(
            self.broker,
            self.allows,
            lambda: 7500,
            inventory=self.inventory,
            links=lambda host=None: [
                (str(row["name"]), lambda _, row=row: row)
                for row in ROWS
                if host in (None, row.get("virtual-host"))
            ],
            close_link=lambda name, on: self.closed.append((name, on)),
        )
        self.ended: list[tuple[str, str]] = []
        connection_commands.register(self.service, self.close)

    def close(self, name: str, words: str) -> int:
        """Close connections."""
        self.ended.append((name, words))
        return 0 if name == "gone" else 1

    def status(self, name: str, **body: Any) -> int:
        """Ask for a connection to be closed; return the status."""
        self.send(body, operation="CLOSE-CONNECTION", type="connection", name=name)
        return self.answer()[0]

    def test_close(self) -> None:
        """With the operator's words, or with ours."""
        self.assertEqual(self.status("1.2.3.4:5", reason="moving house"), 200)
        self.assertEqual(self.status("1.2.3.4:5"), 200)
        self.assertEqual(
            self.ended,
            [
                ("1.2.3.4:5", "moving house"),
                ("1.2.3.4:5", "an operator closed this connection"),
            ],
        )

    def test_refused(self) -> None:
        """Unknown connections, wrong reasons, and askers without the right."""
        self.assertEqual(self.status("gone"), 404)
        for reason in ("", "x" * 201, "a\nb", 7):
            self.assertEqual(self.status("1.2.3.4:5", reason=reason), 400, reason)
        self.may = {"orders"}
        self.assertEqual(self.status("1.2.3.4:5"), 403)

    def test_links(self) -> None:
        """All links of a name, or those of one connection; never a channel."""
        self.do("delete link ct")
        self.do('delete link ct with connection="1.2.3.4:6"')
        self.assertEqual(
            self.closed, [("ct", "1.2.3.4:5"), ("ct", "1.2.3.4:6"), ("ct", "1.2.3.4:6")]
        )
        self.closed.clear()
        self.assertEqual(self.statuses("delete link w"), [409])
        self.do("delete link w with virtual-host=shop")
        self.assertEqual(self.closed, [("w", "b")])
        self.assertEqual(self.statuses('delete link ct with connection="1.2.3.4:7"'), [404])
        self.assertEqual(self.statuses('delete link "channel 1"'), [409])
