# SPDX-License-Identifier: Apache-2.0
"""Traces of two daemons, as a collector gets them; and daemons without tracing."""

from __future__ import annotations

import subprocess
import sys
from typing import Any
from unittest import skipIf

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.amqp09 import connect, pika
from tests.integration.support import Daemon, Zone, free_ports
from tests.support.patience import until
from tests.tracing.rig import CLIENT_SPAN, TRACE, TRACEPARENT, Collector

WITHOUT_EXTRA = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("opentelemetry", "google"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Finder())
from amqproute.cli.main import main
main()
"""


@skipIf(pika is None, "pika is not installed")
class TracingTests(SynchronousTestCase):
    """Alpha and beta, each with a collector of its own."""

    def setUp(self) -> None:
        self.zone = Zone()
        self.collectors: dict[str, Collector] = {}

    def daemon(self, name: str, other: str, **tracing: Any) -> Daemon:
        """Start a daemon and its collector."""
        collector = self.collectors[name] = Collector()
        self.addCleanup(collector.stop)
        daemon = Daemon(name, nameserver=self.zone.port)
        headers = daemon.directory / "headers"
        headers.write_text(f"X-Organization: {name}\n")
        headers.chmod(0o600)
        daemon.settings |= {
            "nodes": [{"name": "orders"}],
            "peers": {other: {"trace-context": "keep"}},
            "tracing": {
                "enabled": True,
                "endpoint": collector.url,
                "headers-file": str(headers),
                "sample-rate": 0,
                **tracing,
            },
        }
        daemon.write()
        daemon.start()
        self.addCleanup(daemon.stop)
        self.zone.point(daemon.name, daemon.tls, ttl=60)
        return daemon

    def spans(self, name: str) -> dict[str, dict[str, Any]]:
        """Return the spans at a collector, by name; the last of each."""
        return {span["name"]: span for span in self.collectors[name].spans()}

    def test_one_trace(self) -> None:
        """A message of a 0-9-1 client at alpha, consumed at beta: one trace, from both."""
        alpha = self.daemon("alpha.example", "beta.example")
        beta = self.daemon("beta.example", "alpha.example")
        channels = []
        for daemon in (alpha, beta):
            connection = connect(daemon)
            self.addCleanup(connection.close)
            channels.append(connection.channel())
        there, here = channels
        there.confirm_delivery()
        properties = pika.BasicProperties(
            headers={"traceparent": TRACEPARENT}, delivery_mode=2, message_id="m-1"
        )
        there.basic_publish("", "orders@beta.example", b"x", properties, mandatory=True)
        got: list[Any] = []

        def is_there() -> bool:
            method, found, _ = here.basic_get("orders", auto_ack=True)
            if method is not None:
                got.append(found)
            return bool(got)

        until(is_there)
        until(lambda: "relay beta.example" in self.spans("alpha.example"))
        until(lambda: "deliver orders" in self.spans("beta.example"))
        ours, theirs = self.spans("alpha.example"), self.spans("beta.example")
        traces = {span["trace"] for span in (*ours.values(), *theirs.values())}
        self.assertEqual(traces, {TRACE})
        publish, relay = ours["publish beta.example"], ours["relay beta.example"]
        self.assertEqual(publish["parent"], CLIENT_SPAN)
        self.assertEqual(publish["attributes"]["amqproute.sampling.reason"], "parent")
        self.assertEqual(publish["attributes"]["messaging.message.id"], "m-1")
        self.assertEqual(publish["attributes"]["network.protocol.version"], "0-9-1")
        self.assertEqual(relay["parent"], publish["id"])
        self.assertEqual(theirs["publish orders"]["parent"], relay["id"])
        self.assertIn("store beta.example", ours)
        self.assertIn("attempt beta.example", ours)
        self.assertEqual(got[0].headers["traceparent"], TRACEPARENT)
        self.assertEqual(
            self.collectors["alpha.example"].headers[0]["X-Organization"], "alpha.example"
        )
        self.assertEqual(publish["service"]["service.instance.id"], "broker1.alpha.example")

    def test_collector_gone(self) -> None:
        """Without a collector messages pass as ever, and the daemon stops in time."""
        (port,) = free_ports(1)
        nowhere = {"endpoint": f"http://127.0.0.1:{port}/", "sample-rate": 1}
        daemon = self.daemon("alpha.example", "beta.example", **nowhere)
        connection = connect(daemon)
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(200):
            channel.basic_publish("", "orders", b"%d" % number)
            method, _, body = channel.basic_get("orders", auto_ack=True)
            self.assertIsNotNone(method)
            self.assertEqual(body, b"%d" % number)
        connection.close()
        until(lambda: "has not taken" in daemon.log())
        self.assertEqual(daemon.stop(), 0)
        daemon.check()


class OffTests(SynchronousTestCase):
    """Without tracing, or without the extra."""

    def test_not_imported(self) -> None:
        """The daemon's modules import nothing of tracing and of OpenTelemetry."""
        code = (
            "import sys, amqproute.daemon.service, amqproute.cli.main;"
            "print([each for each in sys.modules"
            " if each.startswith(('opentelemetry', 'amqproute.tracing', 'google'))])"
        )
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        self.assertEqual(found.stdout.strip(), b"[]")

    def test_missing_extra(self) -> None:
        """`check` names what is missing, and how to get it."""
        daemon = Daemon("alpha.example")
        daemon.settings["tracing"] = {"enabled": True}
        daemon.write()
        command = [sys.executable, "-c", WITHOUT_EXTRA, "check", "--config", str(daemon.file)]
        found = subprocess.run(command, capture_output=True, text=True)
        output = found.stdout + found.stderr
        self.assertIn("tracing.enabled: the extra tracing is not installed", output)
        self.assertIn("pip install 'amqproute[tracing]'", output)
        self.assertNotEqual(found.returncode, 0)
        daemon.settings["tracing"] = {"enabled": False}
        daemon.write()
        found = subprocess.run(command, capture_output=True, text=True)
        self.assertNotIn("tracing", found.stdout + found.stderr)
