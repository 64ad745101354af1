# SPDX-License-Identifier: Apache-2.0
"""The credit that a daemon gives to senders, by its settings (F-02, F-03)."""

from __future__ import annotations

from amqproute.wire.amqp10 import spec
from tests.integration.clients import Raw, opening, sending_link, transfer
from tests.integration.support import Daemon, DaemonTestCase, message


class CreditTests(DaemonTestCase):
    """A daemon with ``link-prefetch`` 8, and a node with a capacity of 5."""

    @classmethod
    def make(cls) -> Daemon:
        nodes = [{"name": "open"}, {"name": "small", "capacity": 5}]
        changes = {"nodes": nodes, "limits": {"link-prefetch": 8}}
        return Daemon("alpha.example", changes=changes).start()

    def test_link_prefetch(self) -> None:
        """A link gets this much and no more, and all of it again when half is used, not before."""
        with Raw(self.daemon.plain) as raw:
            raw.write(opening(), sending_link("open")).header()
            flow = raw.expect(spec.Flow)
            self.assertEqual((flow.delivery_count, flow.link_credit), (0, 8))
            raw.write(*(transfer(message(), number) for number in range(3)))
            settled = 0
            for body in raw.bodies():
                self.assertIsInstance(body, spec.Disposition)
                settled += (body.first if body.last is None else body.last) - body.first + 1
                if settled == 3:
                    break
            raw.write(*(transfer(message(), number) for number in range(3, 5)))
            flow = raw.expect(spec.Flow)
            self.assertIn(flow.delivery_count, (4, 5))
            self.assertGreaterEqual(flow.delivery_count + flow.link_credit, 11)
            self.assertLessEqual(flow.link_credit, 8)

    def test_no_more_than_fits(self) -> None:
        """A node with less room than that gives its room, and two links to it share it."""
        with Raw(self.daemon.plain) as first, Raw(self.daemon.plain) as second:
            first.write(opening("first"), sending_link("small")).header()
            self.assertEqual(first.expect(spec.Flow).link_credit, 5)
            second.write(opening("second"), sending_link("small")).header()
            second_gets = second.expect(spec.Flow).link_credit
            first_keeps = first.expect(spec.Flow).link_credit
            self.assertEqual(sorted((first_keeps, second_gets)), [2, 3])
