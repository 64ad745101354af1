# SPDX-License-Identifier: Apache-2.0
"""Connections of AMQP 0-9-1 and 0-9 to a daemon, by pika and by octets.

Rules: 09-W-01, 09-W-02, 09-W-03, 09-W-04, 09-W-05, 09-W-50, 09-W-51, 09-W-64, 09-CONN-23, I-08.
"""

from __future__ import annotations

from unittest import skipIf

from tests.integration.amqp09 import answer_to, parameters, pika
from tests.integration.support import DaemonTestCase, Wire
from tests.support.plain_amqp09 import frames, method


class HeaderTests(DaemonTestCase):
    """The first octets say which protocol a connection speaks."""

    def test_unknown_headers(self) -> None:
        """An unknown AMQP 0-x learns of 0-9-1, everybody else of AMQP 1.0 with SASL."""
        for octets, answer in (
            (b"AMQP\x00\x00\x09\x02", b"AMQP\x00\x00\x09\x01"),
            (b"AMQP\x01\x01\x08\x00", b"AMQP\x00\x00\x09\x01"),
            (b"AMQP\x01\x01\x00\x0a", b"AMQP\x00\x00\x09\x01"),
            (b"AMQP\x07\x01\x00\x00", b"AMQP\x03\x01\x00\x00"),
            (b"GET / HTTP/1.1\r\n", b"AMQP\x03\x01\x00\x00"),
        ):
            self.assertEqual(answer_to(self.daemon.plain, octets), answer, octets)

    def test_start_of_both_versions(self) -> None:
        """Both headers are answered by connection.start, version 0-9, and by no header."""
        for octets in (b"AMQP\x00\x00\x09\x01", b"AMQP\x01\x01\x00\x09"):
            # A broken frame ends the connection, so that the answer has an end.
            answer = answer_to(self.daemon.plain, octets + b"\x09" * 8)
            kind, channel, payload = frames(answer)[0]
            name, arguments = method(payload)
            self.assertEqual((kind, channel, name), (1, 0, "connection.start"))
            self.assertEqual((arguments["version-major"], arguments["version-minor"]), (0, 9))
            self.assertEqual(arguments["mechanisms"], b"ANONYMOUS")

    def test_amqp10_at_the_same_port(self) -> None:
        """AMQP 1.0 is served where 0-9-1 is."""
        with Wire(self.daemon.plain) as wire:
            link = wire.attach("receiver", self.node)
            self.assertTrue(link.is_active)


@skipIf(pika is None, "pika is not installed")
class PikaConnectionTests(DaemonTestCase):
    """Log-in, virtual hosts and channels."""

    def test_open_and_close(self) -> None:
        """A connection and its channels are opened and closed."""
        connection = pika.BlockingConnection(parameters(self.daemon))
        first, second = connection.channel(), connection.channel()
        self.assertNotEqual(first.channel_number, second.channel_number)
        first.close()
        again = connection.channel(first.channel_number)
        self.assertTrue(again.is_open)
        self.assertTrue(second.is_open)
        connection.close()
        self.logged("opened by user:anna, AMQP 0-9-1, Pika")
        self.logged("closed$")

    def test_wrong_password(self) -> None:
        """A wrong password is answered with a close of 403 to who understands it."""
        with self.assertRaises(pika.exceptions.ProbableAuthenticationError) as caught:
            pika.BlockingConnection(parameters(self.daemon, password="wrong"))
        self.assertIn("ACCESS_REFUSED - Login was refused", str(caught.exception))
        self.logged('log-in failed from 127.0.0.1, PLAIN, user "anna"')

    def test_silent_program(self) -> None:
        """A program that keeps pika from its heartbeats loses the connection; the log says why."""
        connection = pika.BlockingConnection(parameters(self.daemon, heartbeat=1))
        self.logged("ended: silent for two intervals of 1 s")
        with self.assertRaises(pika.exceptions.AMQPConnectionError):
            connection.channel()

    def test_virtual_hosts(self) -> None:
        """/ and the broker's domains are virtual hosts, with a slash before them and without."""
        for name in ("/", "", "alpha.example", "/Alpha.Example"):
            pika.BlockingConnection(parameters(self.daemon, virtual_host=name)).close()
        with self.assertRaises(pika.exceptions.ProbableAccessDeniedError) as caught:
            pika.BlockingConnection(parameters(self.daemon, virtual_host="other"))
        self.assertIn("(530)", str(caught.exception))
        self.logged("refused: there is no virtual host 'other'")

    def test_no_common_mechanism(self) -> None:
        """A client without a common mechanism leaves, and the log names those offered."""
        wanted = parameters(self.daemon)
        wanted.port, wanted.ssl_options = self.daemon.plain, None
        with self.assertRaises(pika.exceptions.AMQPConnectionError):
            pika.BlockingConnection(wanted)
        self.logged("before it was open: .*mechanisms offered: ANONYMOUS[.] .*PLAIN: a listener")
