# SPDX-License-Identifier: Apache-2.0
"""Beginnings of connections, octet for octet (part 2 §2.2, part 5 §5.2 and §5.3)."""

from __future__ import annotations

import base64
import socket
import ssl

from amqproute.wire.amqp10 import spec
from amqproute.wire.header import ProtocolHeader
from tests.integration.support import (
    AMQP,
    PATIENCE,
    SASL,
    TLS,
    DaemonTestCase,
    Raw,
    Wire,
    body_of,
    client_tls,
    frame,
    message,
    opening,
    sasl_frame,
    sending_link,
    transfer,
)


def init(mechanism: str, response: bytes | None) -> bytes:
    return sasl_frame(spec.SaslInit(mechanism=mechanism, initial_response=response))


class HeaderTests(DaemonTestCase):
    changes = {"limits": {"handshake-timeout": 3}}

    def test_plain(self) -> None:
        """Without SASL, where ANONYMOUS is offered."""
        with Raw(self.daemon.plain) as raw:
            raw.write(AMQP, frame(spec.Open(container_id="raw.example")))
            self.assertEqual(raw.header(), AMQP)
            self.assertEqual(raw.expect(spec.Open).container_id, "broker1.alpha.example")
            raw.write(frame(spec.Close()))
            self.assertIsNone(raw.expect(spec.Close).error)
            self.assertTrue(raw.closed())

    def test_plain_is_not_for_all(self) -> None:
        """Without ANONYMOUS a client that skips SASL is shown that it has to use it."""
        with Raw(self.daemon.socket) as raw:
            self.assertEqual(raw.write(AMQP).header(), SASL)
            self.assertEqual(raw.rest(), b"")
        self.logged("unix:uid=.* skipped SASL, which is required here")

    def test_sasl(self) -> None:
        with Raw(self.daemon.plain) as raw:
            self.assertEqual(raw.write(SASL).header(), SASL)
            offered = raw.expect(spec.SaslMechanisms).sasl_server_mechanisms
            self.assertEqual([str(name) for name in offered], ["ANONYMOUS"])
            raw.write(init("ANONYMOUS", b"tester"))
            self.assertEqual(raw.expect(spec.SaslOutcome).code, 0)
            raw.write(AMQP)
            self.assertEqual(raw.header(), AMQP)
            raw.write(frame(spec.Open(container_id="raw.example")))
            raw.expect(spec.Open)

    def test_sasl_wants_a_mechanism_of_ours(self) -> None:
        with Raw(self.daemon.plain) as raw:
            raw.write(SASL, init("GSSAPI", b""))
            self.assertEqual(raw.header(), SASL)
            self.assertNotEqual(raw.expect(spec.SaslOutcome).code, 0)
            self.assertTrue(raw.closed())
        self.logged(r"127\.0\.0\.1:\d+ refused: .*mechanism 'GSSAPI' was not offered")
        self.still_serves()

    def test_external_on_the_unix_socket(self) -> None:
        with Raw(self.daemon.socket) as raw:
            raw.write(SASL, init("EXTERNAL", b""), AMQP, frame(spec.Open(container_id="raw")))
            self.assertEqual(raw.header(), SASL)
            self.assertEqual(raw.expect(spec.SaslOutcome).code, 0)
        self.logged(r"opened by uid:\d+, container raw")

    def test_plain_text_passwords(self) -> None:
        """PLAIN only below TLS; wrong passwords are refused."""
        with Raw(self.daemon.upgrade) as raw:
            raw.write(SASL)
            self.assertEqual(raw.header(), SASL)
            offered = raw.expect(spec.SaslMechanisms).sasl_server_mechanisms
            self.assertNotIn("PLAIN", [str(name) for name in offered])
        for password, code in (("secret", 0), ("pa55-w0rd", 1)):
            with Raw(self.daemon.tls, client_tls()) as raw:
                raw.write(SASL, init("PLAIN", b"\0anna\0" + password.encode()))
                self.assertEqual(raw.header(), SASL)
                self.assertEqual(raw.expect(spec.SaslOutcome).code, code)
        self.logged(r"log-in failed from 127\.0\.0\.1, PLAIN, user \"anna\"")
        self.assertNotIn("pa55-w0rd", self.daemon.log())

    def test_scram(self) -> None:
        """SCRAM-SHA-256 against an independent implementation of it (scramp)."""
        from scramp import ScramClient

        client = ScramClient(["SCRAM-SHA-256"], "anna", "secret")
        with Raw(self.daemon.tls, client_tls()) as raw:
            raw.write(SASL, init("SCRAM-SHA-256", client.get_client_first().encode()))
            self.assertEqual(raw.header(), SASL)
            client.set_server_first(bytes(raw.expect(spec.SaslChallenge).challenge).decode())
            response = spec.SaslResponse(response=client.get_client_final().encode())
            raw.write(sasl_frame(response))
            outcome = raw.expect(spec.SaslOutcome)
            self.assertEqual(outcome.code, 0)
            client.set_server_final(bytes(outcome.additional_data or b"").decode())

    def test_upgrade(self) -> None:
        """TLS by the AMQP header for it, then SASL inside (part 5 §5.2.1)."""
        with Raw(self.daemon.upgrade) as raw:
            self.assertEqual(raw.write(TLS).header(), TLS)
            raw.wrap(client_tls())
            raw.write(SASL, init("PLAIN", b"\0anna\0secret"), opening())
            self.assertEqual(raw.header(), SASL)
            self.assertEqual(raw.expect(spec.SaslOutcome).code, 0)
            self.assertEqual(raw.header(), AMQP)
            raw.expect(spec.Begin)
        self.logged(r"opened by user:anna, container raw\.example, TLSv1\.3")

    def test_upgrade_where_there_is_none(self) -> None:
        """A port without TLS answers with the header it does speak, and closes."""
        with Raw(self.daemon.plain) as raw:
            self.assertIn(raw.write(TLS).header(), (AMQP, SASL))
            self.assertEqual(raw.rest(), b"")
        self.logged("asks for TLS where there is none")
        self.still_serves()

    def test_older_amqp(self) -> None:
        """AMQP 0-9-1 and 0-9 are served at the same port; other versions are told so (09-W-03)."""
        for header in (ProtocolHeader.AMQP_0_9_1, ProtocolHeader.AMQP_0_9):
            with Raw(self.daemon.plain) as raw:
                start = raw.write(header.value).header()
                self.assertTrue(start.startswith(b"\x01\x00\x00"), header)  # a method, channel 0
        for octets in (b"AMQP\x00\x00\x08\x00", b"AMQP\x01\x01\x00\x08"):
            with Raw(self.daemon.plain) as raw:
                self.assertEqual(raw.write(octets).rest(), b"AMQP\x00\x00\x09\x01", octets)
        self.logged(r"127\.0\.0\.1:\d+ .*AMQP")
        self.still_serves()

    def test_strangers(self) -> None:
        """Other protocols get the header of ours, and the end (§2.2)."""
        for words in (b"GET / HTTP/1.1\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n", b"\0" * 64):
            for port in (self.daemon.plain, self.daemon.upgrade):
                with Raw(port) as raw:
                    self.assertEqual(raw.write(words).rest(), b"AMQP\x03\x01\x00\x00", words)
        self.logged(r"127\.0\.0\.1:\d+ .*not AMQP")
        self.still_serves()

    def test_tls_without_implicit_tls(self) -> None:
        """TLS on a port where it is not implicit gets an alert, and a line in the log."""
        for port, words in (
            (self.daemon.plain, "tls: none"),
            (self.daemon.upgrade, "tls: upgrade"),
        ):
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as plain:
                failure = self.assertRaises(
                    ssl.SSLError, client_tls().wrap_socket, plain, server_hostname="alpha.example"
                )
            self.assertIn("ALERT_HANDSHAKE_FAILURE", failure.reason)
            self.logged(rf"127\.0\.0\.1:\d+ .*the client begins TLS .*{words}")
        self.still_serves()

    def test_silence(self) -> None:
        """A silent or half-silent client is closed at the handshake deadline."""
        half = base64.b16decode("414D5150")
        raws = [Raw(self.daemon.plain).write(words) for words in (b"", half, AMQP)]
        raws.append(Raw(self.daemon.plain).write(SASL))
        raws.append(Raw(self.daemon.tls))
        for raw in raws:
            raw.rest()  # returns at the end of the stream, or fails at the socket's time-out
            raw.close()

    def test_slowly(self) -> None:
        """A client that sends an octet at a time is understood."""
        octets = opening() + sending_link(self.node) + transfer(message(b"bit by bit"))
        with Raw(self.daemon.plain) as raw:
            for octet in octets:
                raw.write(bytes((octet,)))
            self.assertEqual(raw.header(), AMQP)
            self.assertIsInstance(raw.expect(spec.Disposition).state, spec.Accepted)
        with Wire(self.daemon.plain) as wire:
            self.assertEqual(body_of(wire.consume(self.node, 1)[0]), b"bit by bit")

    def test_at_once(self) -> None:
        """W-22: everything from the header to the close in one write."""
        octets = b"".join(
            (
                opening(),
                sending_link(self.node),
                transfer(message(b"one-off")),
                frame(spec.Detach(handle=0, closed=True)),
                frame(spec.End()),
                frame(spec.Close()),
            )
        )
        with Raw(self.daemon.plain) as raw:
            self.assertEqual(raw.write(octets).header(), AMQP)
            bodies = list(raw.bodies())
        names = [type(body).__name__ for body in bodies]
        self.assertEqual(names[:3], ["Open", "Begin", "Attach"])
        self.assertEqual(names[-3:], ["Detach", "End", "Close"])
        self.assertTrue(all(getattr(body, "error", None) is None for body in bodies[-3:]), bodies)
        with Wire(self.daemon.plain) as wire:
            self.assertEqual(body_of(wire.consume(self.node, 1)[0]), b"one-off")

    def test_at_once_with_sasl(self) -> None:
        octets = SASL + init("ANONYMOUS", b"") + opening() + sending_link(self.node)
        octets += transfer(message(b"one-off"), settled=True) + frame(spec.Close())
        with Raw(self.daemon.plain) as raw:
            self.assertEqual(raw.write(octets).header(), SASL)
            self.assertEqual(raw.expect(spec.SaslOutcome).code, 0)
            self.assertEqual(raw.header(), AMQP)
            self.assertIsNone(raw.expect(spec.Close).error)
        with Wire(self.daemon.plain) as wire:
            self.assertEqual(body_of(wire.consume(self.node, 1)[0]), b"one-off")

    def test_half_closed(self) -> None:
        """A client that stops sending: what it sent counts, and the socket is closed."""
        with Raw(self.daemon.plain) as raw:
            raw.write(opening(), sending_link(self.node), transfer(message(b"last words")))
            self.assertEqual(raw.header(), AMQP)
            raw.expect(spec.Disposition)
            raw.socket.shutdown(socket.SHUT_WR)
            self.assertTrue(raw.closed())
        with Wire(self.daemon.plain) as wire:
            self.assertEqual(body_of(wire.consume(self.node, 1)[0]), b"last words")

    def test_half_closed_at_each_step(self) -> None:
        """Whenever a client leaves in the middle, nobody else is disturbed."""
        octets = opening() + sending_link(self.node) + transfer(message())
        for end in range(0, len(octets) - 1, 7):
            with Raw(self.daemon.plain) as raw:
                raw.write(octets[:end])
                raw.socket.shutdown(socket.SHUT_WR)
                raw.rest()
        self.still_serves()
