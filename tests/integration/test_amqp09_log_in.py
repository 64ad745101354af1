# SPDX-License-Identifier: Apache-2.0
"""Log-ins of pika and py-amqp: certificates, AMQPLAIN, and a password that is renewed."""

from __future__ import annotations

import ssl
from typing import Any
from unittest import skipIf

from twisted.trial.unittest import SynchronousTestCase

from tests.integration import support
from tests.integration.amqp09 import PASSWORD, USER, connect, parameters, pika, ssl_options
from tests.integration.support import Daemon, certificates, client_tls
from tests.support.patience import PATIENCE

try:
    import amqp  # type: ignore[import-untyped]
except ImportError:  # pragma: no cover - depends on the machine
    amqp = None

NAME = "robot.example"


class LogInWorld:
    """A daemon that knows a client by its certificate."""

    def __init__(self) -> None:
        self.issued = certificates().issue(NAME)
        self.daemon = Daemon("alpha.example", changes={"nodes": [{"name": "q"}]})
        rules = [*self.daemon.settings["access"]]
        rules.insert(0, {"who": f"peer:{NAME}", "node": "*", "allow": ["publish", "consume"]})
        self.daemon.write(access=rules)
        self.daemon.start()


@skipIf(pika is None or amqp is None, "the clients of 0-9-1 are not installed")
class LogInTests(SynchronousTestCase):
    def setUp(self) -> None:
        world = support.shared(LogInWorld)
        self.daemon, self.issued = world.daemon, world.issued
        self.addCleanup(self.daemon.check)

    def external(self, context: ssl.SSLContext) -> Any:
        """Return pika's parameters for a log-in by certificate."""
        found = parameters(self.daemon)
        found.credentials = pika.credentials.ExternalCredentials()
        found.ssl_options = pika.SSLOptions(context, self.daemon.name)
        return found

    def py_amqp(self, **more: Any) -> Any:
        """Return a connection of py-amqp."""
        options = ssl_options() | more.pop("tls", {})
        connection = amqp.Connection(
            f"127.0.0.1:{self.daemon.tls}", ssl=options, connect_timeout=PATIENCE, **more
        )
        connection.connect()
        return connection

    def test_pika_certificate(self) -> None:
        """A certificate is a log-in by EXTERNAL, with the rights of the name that it proves."""
        with pika.BlockingConnection(self.external(client_tls(self.issued))) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.basic_publish("", "q", b"by certificate", mandatory=True)
            self.assertEqual(channel.basic_get("q", auto_ack=True)[2], b"by certificate")
            with self.assertRaises(pika.exceptions.ChannelClosedByBroker) as caught:
                channel.queue_declare("mine")
            self.assertEqual(caught.exception.reply_code, 403)
            self.assertIn(f"peer:{NAME}", caught.exception.reply_text)

    def test_pika_no_certificate(self) -> None:
        """Without a certificate EXTERNAL is not offered, and pika says so."""
        with self.assertRaises(pika.exceptions.AMQPConnectionError):
            pika.BlockingConnection(self.external(client_tls()))

    def test_py_amqp_certificate(self) -> None:
        """py-amqp by EXTERNAL."""
        files = {"certfile": str(self.issued.chain), "keyfile": str(self.issued.private_key)}
        connection = self.py_amqp(login_method="EXTERNAL", tls=files)
        channel = connection.channel()
        channel.basic_publish(amqp.Message("py"), "", "q")
        found = channel.basic_get("q", no_ack=True)
        self.assertEqual(found.body, "py")
        connection.close()

    def test_py_amqp_amqplain(self) -> None:
        """py-amqp by AMQPLAIN, with the right password and a wrong one."""
        connection = self.py_amqp(login_method="AMQPLAIN", userid=USER, password=PASSWORD)
        connection.channel().queue_declare("py-amqp", exclusive=True)
        connection.close()
        with self.assertRaises(amqp.exceptions.AccessRefused) as caught:
            self.py_amqp(login_method="AMQPLAIN", userid=USER, password="wrong")
        self.assertEqual(caught.exception.reply_code, 403)

    def test_pika_secret(self) -> None:
        """A password that verifies is taken as the new secret; another ends the connection."""
        with connect(self.daemon) as connection:
            channel = connection.channel()
            connection.update_secret(PASSWORD, "tokens do not live long")
            channel.basic_publish("", "q", b"1")
            self.assertEqual(channel.basic_get("q", auto_ack=True)[2], b"1")
        connection = connect(self.daemon)
        with self.assertRaises(pika.exceptions.ConnectionClosedByBroker) as closed:
            connection.update_secret("wrong", "tokens do not live long")
        self.assertEqual(closed.exception.reply_code, 530)
