# SPDX-License-Identifier: Apache-2.0
"""`amqproute requeue` against a running daemon."""

from __future__ import annotations

from typing import Any

from amqproute.wire.amqp10 import engine_events, spec
from tests.integration.support import Wire, body_of, message, until
from tests.integration.test_operator import OperatorCase, command


class RequeueTests(OperatorCase):
    """Dead letters of consumers and of the way to another organization."""

    def setUp(self) -> None:
        super().setUp()
        self.daemon.reload(
            nodes=[
                {"name": "dead"},
                {"name": "jobs", "dead-letter": "dead"},
                {"name": "orders", "dead-letter": "dead"},
            ],
            relay={"first-retry": 60, "last-retry": 120, "dead-letter": "dead"},
        )

    def depth(self, name: str) -> int:
        """Return how many messages are on a queue."""
        return int(self.shown("queue", "show", name)["depth"])

    def refuse(self, name: str, count: int, condition: str) -> None:
        """Reject messages of a queue."""
        with Wire(self.daemon.plain) as wire:
            link = wire.attach("receiver", name)
            link.flow(count)
            wire.flush()
            error = spec.Error(condition=condition, description="no use")
            seen = 0
            while seen < count:
                event = wire.wait(lambda each: type(each) is engine_events.DeliveriesReceived)
                seen += len(event.deliveries)
                wire.session.settle(event.deliveries, spec.Rejected(error=error), True)
                wire.flush()
        until(lambda: not self.depth(name), "rejected")

    def test_refused(self) -> None:
        """Each goes back to its queue, by selection; kill -9 loses and doubles nothing."""
        for name, condition in (("jobs", "app:broken"), ("orders", "app:unknown")):
            with Wire(self.daemon.plain) as wire:
                wire.publish(name, [message(b"%s-%d" % (name.encode(), n)) for n in range(4)])
            self.refuse(name, 4, condition)
        self.assertEqual(self.depth("dead"), 8)
        shown = self.shown("requeue", "dead", "--dry-run")
        self.assertEqual((shown["messages"], shown["targets"]), (8, {"jobs": 4, "orders": 4}))
        text = self.run_it("requeue", "dead", "--source", "jobs", "--dry-run")
        self.assertTrue(text.startswith("4 messages would be requeued"), text)
        self.assertIn("4 to jobs", text)
        self.assertIn("app:broken", text)
        self.run_it("requeue", "dead", "--condition", "app:unknown", "--limit", "1")
        self.assertEqual([self.depth(name) for name in ("dead", "orders")], [7, 1])
        self.run_it("requeue", "dead", "--older-than", "1h", code=1)
        self.run_it("requeue", "dead")
        self.daemon.kill()
        self.daemon.start()
        self.assertEqual([self.depth(name) for name in ("dead", "jobs", "orders")], [0, 4, 4])
        with Wire(self.daemon.plain) as wire:
            got = sorted(map(body_of, wire.consume("jobs", 4)))
        self.assertEqual(got, [b"jobs-%d" % n for n in range(4)])

    def test_to_a_partner(self) -> None:
        """A message that expired on its way to a partner arrives there once after a requeue."""
        self.publish("orders@beta.example", 3)
        self.waiting()
        self.run_it("expire", "--to", "beta.example", "--reason", "given up")
        until(lambda: self.depth("dead") == 3, "dead letters")
        beta = self.beta()
        shown: Any = self.shown("requeue", "dead", "--reason", "expired", "--newer-than", "1h")
        self.assertEqual(shown["targets"], {"amqp$out/beta.example": 3})
        command(self.daemon, "retry", "--to", "beta.example")  # unless they are on their way
        with Wire(beta.plain) as wire:
            got = sorted(map(body_of, wire.consume("orders", 3)))
        self.assertEqual(got, [b"0", b"1", b"2"])
        self.assertEqual(self.depth("dead"), 0)

    def test_mistakes(self) -> None:
        """They are named, with the exit code for them."""
        for args, code, words in (
            (("nowhere",), 1, "no queue 'nowhere'"),
            (("dead",), 1, ""),
            (("dead", "--where", "x ="), 2, "where"),
            (("dead", "--older-than", "soon"), 2, "--older-than"),
            (("dead", "--reason", "whim"), 2, "max-deliveries"),
            (("dead", "4711"), 1, "4711"),
        ):
            self.assertIn(words, self.run_it("requeue", *args, code=code), args)
