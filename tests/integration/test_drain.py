# SPDX-License-Identifier: Apache-2.0
"""`amqproute drain` against a running daemon."""

from __future__ import annotations

import json

from tests.integration.support import Wire, body_of, message, until
from tests.integration.test_operator import OperatorCase, command


class DrainTests(OperatorCase):
    """No new messages; the rest goes; a way back, and a usual end."""

    def test_life(self) -> None:
        """Publishers get no credit, consumers continue, and it is said when it is done."""
        self.publish("orders@beta.example", 3)
        self.waiting()
        with Wire(self.daemon.plain) as wire:
            wire.publish("inbox", [message(b"%d" % n) for n in range(2)])
            wire.attach("receiver", "inbox")  # attached, and takes nothing
            wire.flush()
            shown = self.shown("drain", "--timeout", "2", code=1)
        self.assertEqual((shown["draining"], shown["done"], shown["moving"]), (True, False, 2))
        self.assertEqual(list(shown["stuck"]), ["beta.example"])
        with Wire(self.daemon.plain) as wire:
            sender = wire.attach("sender", "inbox")
            wire.flush()
            got = wire.consume("inbox", 2)
            self.assertEqual([body_of(each) for each in got], [b"0", b"1"])
            self.assertEqual(sender.credit, 0)
        text = self.run_it("drain")
        self.assertIn("drained: nothing is in progress; 3 messages cannot go now", text)
        self.assertIn("beta.example: 3 messages: ", text)
        status = self.shown("status", code=1)
        self.assertIn("daemon.draining", {each["code"] for each in status["verdicts"]})
        beta = self.beta()
        self.run_it("retry", "--to", "beta.example")

        def relayed() -> bool:
            # With an exit code of 1 while a connection still writes.
            done = command(self.daemon, "drain", "--status", "--json")
            return bool(json.loads(done.stdout)["staying"] == 0)

        until(relayed, "relayed")
        with Wire(beta.plain) as wire:
            self.assertEqual(len(wire.consume("orders", 3)), 3)
        self.assertIn("messages are accepted again", self.run_it("drain", "--end"))
        self.assertEqual(self.run_it("drain", "--end").strip(), "not draining")
        self.assertFalse(self.shown("drain", "--end")["draining"])
        with Wire(self.daemon.plain) as wire:
            wire.publish("inbox", [message(b"again")])
        done = command(self.daemon, "status", "--json")
        codes = {each["code"] for each in json.loads(done.stdout)["verdicts"]}
        self.assertNotIn("daemon.draining", codes)

    def test_stop(self) -> None:
        """A drained daemon ends as usual, and takes messages after its next start."""
        with Wire(self.daemon.plain) as wire:
            wire.publish("inbox", [message(b"kept")])
        self.assertTrue(self.shown("drain")["done"])
        self.daemon.stop()
        self.daemon.start()
        self.assertFalse(self.shown("drain", "--status", code=1)["draining"])
        with Wire(self.daemon.plain) as wire:
            wire.publish("inbox", [message(b"new")])
            got = [body_of(each) for each in wire.consume("inbox", 2)]
        self.assertEqual(got, [b"kept", b"new"])

    def test_usage(self) -> None:
        """Options that contradict each other are refused."""
        self.assertIn("exclude", self.run_it("drain", "--end", "--status", code=2))
        self.assertIn("exclude", self.run_it("drain", "--end", "--timeout", "3", code=2))
