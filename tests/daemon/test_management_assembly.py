# SPDX-License-Identifier: Apache-2.0
"""A daemon's management offers exactly what the table declares."""

from __future__ import annotations

from types import MappingProxyType

from amqproute.services.management_node import MANAGEMENT, ManagementReply, ManagementRequest
from amqproute.services.management_table import ENTITIES, OPERATIONS, operations_of
from amqproute.values import ANONYMOUS_PRINCIPAL
from tests.daemon.test_config_reload import ReloadCase

NOBODY = ANONYMOUS_PRINCIPAL


class OfferTests(ReloadCase):
    """The management node of an application that runs, distributed transactions among it."""

    further = MappingProxyType(
        {
            "distributed-transactions": {"enabled": True},
            "access": [{"deny": ["manage"], "who": "anonymous"}],
        }
    )

    def ask(self, operation: str) -> ManagementReply:
        """Ask as somebody without rights."""
        service = self.app.broker.services[MANAGEMENT]
        reply = service.answer(ManagementRequest(operation, {}, {}, NOBODY))
        assert isinstance(reply, ManagementReply)
        return reply

    def test_types(self) -> None:
        """Every entity type is there, with the operations that are for it."""
        self.assertEqual({*self.ask("GET-TYPES").body}, {*ENTITIES})
        operations = self.ask("GET-OPERATIONS").body
        self.assertEqual({name: operations_of(name) for name in ENTITIES}, {**operations})

    def test_operations(self) -> None:
        """Every operation is there; what the service's right is needed for is refused without."""
        known = self.ask("POUR").description.partition("there are ")[2]
        self.assertEqual({*known.split(", ")}, {*OPERATIONS})
        for name in ("DRAIN", "DRAIN-END", "DRAIN-STATUS", "ACCEPT-TIME"):
            reply = self.ask(name)
            self.assertEqual(reply.status, 403, name)
            self.assertEqual(reply.description, "anonymous may not manage '$management'")
