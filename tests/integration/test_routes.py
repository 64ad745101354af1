# SPDX-License-Identifier: Apache-2.0
"""Routes made by operators at runtime (G-26)."""

from __future__ import annotations

from amqproute.config.routing_settings import RouteSettings
from amqproute.config.schema import Config
from amqproute.daemon.routes import make_router
from amqproute.values import RouteRule
from tests.integration.support import Daemon, Wire, Zone, body_of, message
from tests.integration.test_management import ManagementCase


class RouteTests(ManagementCase):
    """Alpha, to which an operator gives a way to a domain that the DNS does not know."""

    @classmethod
    def make(cls) -> Daemon:
        return Daemon("alpha.example", nameserver=Zone().port).start()

    def test_order(self) -> None:
        """Before those that are wider, behind those that are narrower; never beside the same."""
        config = Config(
            routes=tuple(
                RouteSettings(domain=domain, via=f"amqps://file.{number}.test")
                for number, domain in enumerate(("x.b.test", "*.b.test", "*"))
            )
        )
        made = [
            RouteRule(domain, f"amqps://made.{number}.test")
            for number, domain in enumerate(("*", "y.b.test", "*.b.test", "*.x.b.test", "c.test"))
        ]
        router = make_router(config, "", made)
        for domain, wanted in (
            ("x.b.test", "file.0.test"),
            ("y.b.test", "made.1.test"),
            ("z.b.test", "file.1.test"),
            ("z.x.b.test", "made.3.test"),
            ("c.test", "made.4.test"),
            ("d.test", "file.2.test"),
        ):
            self.assertEqual(router.hop(domain).via, f"amqps://{wanted}", domain)

    def publish_abroad(self, body: bytes) -> None:
        """Send a message to the domain by its alias."""
        with Wire(self.daemon.plain) as wire:
            wire.publish("inbox@hidden.example", [message(body, durable=True)])

    def test_made_used_kept_deleted(self) -> None:
        """No way; then one by command, over a kill and a reload; then none again."""
        beta = Daemon(
            "beta.example", domains=["hidden.example"], changes={"nodes": [{"name": "inbox"}]}
        ).start()
        self.addCleanup(beta.stop)

        def received() -> bytes:
            with Wire(beta.plain) as wire:
                (got,) = wire.consume("inbox", 1)
            return body_of(got)

        way = f"via=amqps://127.0.0.1:{beta.tls}, names=[hidden.example]"
        self.amqproute("batch", stdin=f"create route hidden.example with {way}\n")
        self.publish_abroad(b"1")
        self.assertEqual(received(), b"1")
        for told in (
            self.amqproute("explain", "inbox@hidden.example"),
            self.amqproute("peer", "test", "hidden.example"),
        ):
            self.assertEqual(told.returncode, 0, told.stdout + told.stderr)
            self.assertIn(str(beta.tls), told.stdout)
            self.assertRegex(told.stdout, "(?m)^ok: ")
        self.daemon.kill()
        self.daemon.start()
        self.publish_abroad(b"2")
        self.assertEqual(received(), b"2")
        self.daemon.reload(nodes=[{"name": "more"}])
        self.publish_abroad(b"3")
        self.assertEqual(received(), b"3")
        self.amqproute("batch", stdin="delete route hidden.example\n")
        self.publish_abroad(b"4")  # by the DNS again, which has no answer
        waiting = {row["name"]: row["depth"] for row in self.shown("queue", "ls")["queues"]}
        self.assertEqual(waiting["amqp$out/hidden.example"], 1)
