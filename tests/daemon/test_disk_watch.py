# SPDX-License-Identifier: Apache-2.0
"""Memory held for receivers: counted, shown, and shared."""

from __future__ import annotations

from typing import Any

from amqproute.broker.outgoing_memory import UNBOUNDED, OutgoingMemory
from amqproute.broker.publish_gate import LEAST_PART
from amqproute.config import loads
from amqproute.daemon.disk_watch import make_watermarks
from amqproute.frontends.common.frontend_limits import FrontendLimits
from amqproute.services.management_node import MANAGEMENT, ManagementService
from amqproute.services.watermarks import OUTGOING
from amqproute.wire.amqp10 import spec
from tests.support.asserts import HouseTestCase
from tests.support.fakes import message, node, put
from tests.support.memory_broker import MemoryBroker, Network

MIB = 1 << 20
BODY = b"x" * 65536


class OutgoingTests(HouseTestCase):
    """A broker with a limit of 2 MiB, and consumers that do not settle."""

    def setUp(self) -> None:
        super().setUp()
        self.network = Network(self.clock)
        limits = FrontendLimits(memory_bytes=2 * MIB)
        self.house = MemoryBroker(self.network, "alpha.example", node("q"), limits=limits)
        self.house.broker.services[MANAGEMENT] = ManagementService(
            self.house.broker, lambda *_: True, lambda: 0
        )
        self.marks = make_watermarks(
            self.house.broker,
            self.house.store,
            self.clock,
            self.house.shared,
            self.house.amqp10.suspended,
            self.house.relay,
            loads("store: {min-free: 0}", "f"),
        )
        self.addCleanup(self.marks.stop)

    def rows(self) -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in self.marks.rows()}

    def test_shared_out(self) -> None:
        """Many that hold much get no more than their part; whoever settles continues."""
        put(self.house.broker, self.house.broker.nodes["q"], *[message(BODY)] * 100)
        self.run_now()
        first, second = self.house.client(), self.house.client()
        first.receiver("q", 18)
        self.run_now()
        self.assertEqual(len(first.deliveries), 18)
        self.run_for(1.5)
        row = self.rows()[OUTGOING]
        self.assertEqual((row["state"], row["parts"]["relay"]), ("pressed", 0))
        self.assertGreater(row["level"], MIB)
        self.assertIn("each of 1 receivers", str(row["reason"]))
        # Nobody has to stop publishing for that.
        self.assertTrue(self.house.broker.gate.is_open)
        second.receiver("q", 1000, name="other")
        self.run_for(3)
        got = len(second.deliveries)
        self.assertEqual(self.house.shared.outgoing.part_bytes, 2 * MIB // 3)
        self.assertTrue(8 <= got <= 17, got)  # its part when it came, and no more
        second.settle(second.deliveries[:got], spec.Accepted())
        self.run_for(3)
        self.assertGreater(len(second.deliveries), got)

    def test_large_messages(self) -> None:
        """Those on their way in know the room that is left on the disk."""
        self.run_for(3)
        self.assertIsNotNone(self.marks.spare)
        self.assertEqual(self.house.shared.partial_deliveries.spare_octets, self.marks.spare)

    def test_woken(self) -> None:
        """Publishers that were held back continue when others have settled."""
        put(self.house.broker, self.house.broker.nodes["q"], *[message(BODY)] * 100)
        self.run_now()
        first, second, third = (self.house.client() for _ in range(3))
        first.receiver("q", 28)
        self.run_now()
        second.receiver("q", 4, name="second")
        self.run_for(1.5)
        third.receiver("q", 30, name="third")
        self.run_for(3)
        got = len(third.deliveries)
        self.assertTrue(8 <= got <= 11, got)
        first.settle(first.deliveries, spec.Accepted())
        self.run_for(3)
        self.assertEqual(len(third.deliveries), 30)
        third.settle(third.deliveries, spec.Accepted())
        self.run_for(3)
        self.assertEqual(self.rows()[OUTGOING]["state"], "open")
        self.assertEqual(self.house.shared.outgoing.part_bytes, UNBOUNDED)

    def test_relay(self) -> None:
        """Next hops hold, too."""
        MemoryBroker(self.network, "beta.example", node("orders"))
        for key in [*self.house.relay.destinations]:
            del self.house.relay.destinations[key]
        client = self.house.client()
        link = client.sender("orders@beta.example")
        self.run_now()
        client.send(link, message(BODY, to="orders@beta.example"))
        while not any(each.held_bytes for each in self.house.relay.destinations.values()):
            self.step()
        self.marks._look()
        self.marks._call.cancel()
        self.assertGreater(self.rows()[OUTGOING]["parts"]["relay"], 65536)
        parts = self.rows()["memory"]["parts"]
        self.assertLessEqual(
            {"arriving", "to-disk", "consumers", "relay", "queues", "topics", "suspended"},
            set(parts),
        )
        self.run_now()

    def test_parts(self) -> None:
        """From half of the limit on; nobody gets less than enough for a few."""
        outgoing = OutgoingMemory(16 * MIB)
        self.assertFalse(outgoing.counted({"consumers": 7 * MIB}, 3))
        self.assertEqual(outgoing.part_bytes, UNBOUNDED)
        self.assertFalse(outgoing.counted({"consumers": 8 * MIB}, 4))
        self.assertEqual(outgoing.part_bytes, 16 * MIB // 5)
        outgoing.counted({"consumers": 8 * MIB, "relay": 9 * MIB}, 1000)
        self.assertEqual(outgoing.part_bytes, LEAST_PART)
        self.assertTrue(outgoing.counted({"consumers": 8 * MIB}, 4))
        self.assertTrue(outgoing.counted({}, 0))
        free = OutgoingMemory(0)
        free.counted({"consumers": 1 << 40}, 1)
        self.assertEqual(free.part_bytes, UNBOUNDED)
