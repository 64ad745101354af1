# SPDX-License-Identifier: Apache-2.0
"""A running daemon with messages of another message-format, and with a `lock-timeout`."""

from __future__ import annotations

from typing import Any

from amqproute.wire.amqp10 import engine_events as ev
from amqproute.wire.amqp10 import spec
from tests.integration.support import Daemon, DaemonTestCase, Wire, message

FORMAT = 0x414D5109
FOREIGN = (b"", b"\x00Sp no sections \xff", bytes(range(256)) * 8192)


class FormatTests(DaemonTestCase):
    """M-09 on the wire and on the disk."""

    def test_restart(self) -> None:
        """Accepted messages of every size outlive the process, octet for octet."""
        daemon = Daemon("gamma.example", changes={"nodes": [{"name": "q"}]}).start()
        self.addCleanup(daemon.stop)
        with Wire(daemon.plain) as wire:
            link = wire.attach("sender", "q")
            for number, octets in enumerate(FOREIGN):
                link.send((octets,), b"%d" % number, message_format=FORMAT)
                update = wire.wait(lambda event: type(event) is ev.DeliveriesUpdated)
                self.assertIsInstance(update.state, spec.Accepted)
        daemon.kill()
        daemon.start()
        with Wire(daemon.plain) as wire:
            wire.attach("receiver", "q").flow(10)
            got: list[Any] = []
            while len(got) < len(FOREIGN):
                got += wire.wait(lambda event: type(event) is ev.DeliveriesReceived).deliveries
            self.assertEqual({each.message_format for each in got}, {FORMAT})
            self.assertEqual(tuple(each.payload for each in got), FOREIGN)
        daemon.check()


class LockTests(DaemonTestCase):
    """O-04: the setting, and its change by a reload."""

    def test_reload(self) -> None:
        """A consumer that hangs loses what it has to others, from the reload on."""
        with Wire(self.daemon.plain) as idle, Wire(self.daemon.plain) as other:
            other.publish(self.node, [message(b"1"), message(b"2")])
            link = idle.attach("receiver", self.node)
            link.flow(1)
            idle.wait(lambda event: type(event) is ev.DeliveriesReceived)
            self.daemon.reload(limits={"lock-timeout": "1s"})
            link.flow(1)
            idle.wait(lambda event: type(event) is ev.DeliveriesReceived)
            update = idle.wait(lambda event: type(event) is ev.DeliveriesUpdated)
            self.assertIsInstance(update.state, spec.Modified)
            self.assertEqual([len(update.deliveries), update.settled], [2, True])
            self.assertEqual(len(other.consume(self.node, 2)), 2)
        self.logged("2 messages of test_reload released: no outcome for 1 s")
