# SPDX-License-Identifier: Apache-2.0
"""A running daemon with `auto-create`: after a reload, and after a kill (Q-38)."""

from __future__ import annotations

from tests.integration.clients import Refused
from tests.integration.support import Daemon, DaemonTestCase, Wire, message


class AutoCreateTests(DaemonTestCase):
    """A daemon without nodes."""

    def test_reload_and_kill(self) -> None:
        """Off it refuses; on it makes a queue, which is there with its message after a kill."""
        daemon = Daemon("gamma.example", changes={"nodes": []}).start()
        self.addCleanup(daemon.stop)
        with Wire(daemon.plain) as wire:
            refused = self.assertRaises(Refused, wire.attach, "sender", "meeting")
            self.assertIn("amqp:not-found", str(refused))
        daemon.reload(**{"auto-create": True})
        with Wire(daemon.plain) as wire:
            wire.publish("meeting", [message(b"kept", durable=True)])
        daemon.kill()
        daemon.start()
        with Wire(daemon.plain) as wire:
            self.assertEqual(len(wire.consume("meeting", 1)), 1)
        daemon.reload(**{"auto-create": False})
        with Wire(daemon.plain) as wire:
            wire.publish("meeting", [message(b"still there")])
            self.assertRaises(Refused, wire.attach, "sender", "another")
        daemon.check()
