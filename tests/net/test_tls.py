# SPDX-License-Identifier: Apache-2.0
"""TLS contexts, and handshakes of real OpenSSL over an in-memory wire."""

from __future__ import annotations

import datetime
import os
import shutil
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from OpenSSL import SSL
from twisted.internet.error import ConnectionLost
from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import TlsError
from amqproute.net.pump import ConnectionResources, ConnectionSecurity, EngineProtocol, PumpLimits
from amqproute.net.tls import ClientCertificateMode, TlsContexts, Verification, describe, translate
from tests.net.wires import Owner, PretendEngine, Side, Wire, contexts_in, settle


class Handshake:
    """One handshake between two sides; the client wants `domain`."""

    def __init__(
        self,
        client: TlsContexts,
        server: TlsContexts,
        domain: str = "beta.example",
        mode: ClientCertificateMode = "required",
        *,
        extra_names: tuple[str, ...] = (),
        upgrade: bool = False,
        chunk: int = 65536,
        clock: Clock | None = None,
    ) -> None:
        self.clock = clock or Clock()
        self.client = Side(is_client=True, asks_for_tls=upgrade)
        self.server = Side(asks_for_tls=upgrade)
        self.lost: list[Failure] = []
        self.client_lost: list[Failure] = []
        self.client_pump = EngineProtocol(
            self.client.make,
            self.clock,
            security=ConnectionSecurity(
                client.client_creator(domain, extra_names), implicit=not upgrade
            ),
            is_client=True,
            owner=Owner(lambda _, reason: self.client_lost.append(reason)),
        )
        self.server_pump = EngineProtocol(
            self.server.make,
            self.clock,
            security=ConnectionSecurity(server.server_creator(mode), implicit=not upgrade),
            owner=Owner(lambda _, reason: self.lost.append(reason)),
        )
        self.wire = Wire(self.client_pump, self.server_pump, chunk=chunk)
        settle(self.wire, self.clock)

    def client_code(self) -> str:
        return self.client_lost[0].value.code

    def server_code(self) -> str:
        return self.lost[0].value.code


class ContextsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.directory = self.mktemp()
        self.contexts = contexts_in(self.directory, "alpha.example")
        self.root = Path(self.directory)

    def refused(self, code: str, *paths: object, **options: object) -> str:
        error = self.assertRaises(TlsError, TlsContexts, *paths, **options)
        self.assertEqual(error.code, code)
        return str(error)

    def test_unreadable_files(self) -> None:
        """Each missing or unfit file is named."""
        chain, key = self.root / "alpha.example/chain.pem", self.root / "alpha.example/key.pem"
        nothing = self.root / "nothing.pem"
        for bad in ((nothing, key), (chain, nothing), (key, key), (chain, chain)):
            words = self.refused("tls.file", *bad, None)
            self.assertTrue(any(str(path) in words for path in bad), words)
        self.assertIn("nothing.pem", self.refused("tls.file", chain, key, nothing))
        self.refused("tls.file", chain, None)

    def test_confused_files(self) -> None:
        """The error names the contents of a wrong file in our words, not in those of a library."""
        chain, key = self.root / "alpha.example/chain.pem", self.root / "alpha.example/key.pem"
        other, locked = self.root / "other.pem", self.root / "locked.pem"
        secret = serialization.load_pem_private_key(key.read_bytes(), None)
        protected = secret.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
        locked.write_bytes(protected)
        certificate = chain.read_bytes()
        for octets, words in (
            (key.read_bytes(), "it holds a private key; are the files confused?"),
            (certificate[: len(certificate) // 3], "is truncated or damaged"),
            (b"\n", "it is empty"),
            (b"\x30\x82\x01\x00", "it seems to be in DER form"),
            (b"nonsense", "no line that begins with -----BEGIN"),
        ):
            other.write_bytes(octets)
            told = self.refused("tls.file", other, key, None)
            self.assertIn(words, told)
            self.assertNotRegex(told, "https://|Malformed|cryptography")
        told = self.refused("tls.file", chain, chain, None)
        self.assertIn("it holds a certificate; are the files confused?", told)
        self.assertNotRegex(told, "https://|Malformed|cryptography")
        self.assertIn("openssl pkey -in OLD -out NEW", self.refused("tls.file", chain, locked))

    def test_open_key(self) -> None:
        """A key that everybody on the machine can read works, and the log says so."""
        key = self.root / "alpha.example/key.pem"
        lines: list[str] = []

        def observe(event: LogEvent) -> None:
            lines.append(formatEvent(event))

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        key.chmod(0o640)
        TlsContexts(key.parent / "chain.pem", key)
        self.assertEqual(lines, [])
        key.chmod(0o644)
        TlsContexts(key.parent / "chain.pem", key)
        self.assertEqual(len(lines), 1)
        self.assertIn("key.pem is open to every user", lines[0])

    def test_key_of_another(self) -> None:
        """A key that is not the certificate's is told at once."""
        contexts_in(self.directory, "beta.example")
        self.refused(
            "tls.key", self.root / "alpha.example/chain.pem", self.root / "beta.example/key.pem"
        )

    def test_dates(self) -> None:
        """A certificate of ours that is past or ahead of its time is not taken."""
        chain, key = self.root / "alpha.example/chain.pem", self.root / "alpha.example/key.pem"
        self.refused("tls.expired", chain, key, now=lambda: 32e9)
        self.refused("tls.not-yet-valid", chain, key, now=lambda: 0.0)

    def test_reload(self) -> None:
        """A reload takes what is there; one that fails leaves what was in force."""
        before = self.contexts.certificate
        contexts_in(self.directory, "alpha.example", folder="new")
        for name in ("chain.pem", "key.pem"):
            os.replace(self.root / "new" / name, self.root / "alpha.example" / name)
        self.contexts.reload()
        after = self.contexts.certificate
        self.assertNotEqual(before, after)
        (self.root / "alpha.example/key.pem").write_text("broken")
        loaded = self.contexts.loaded
        self.assertRaises(TlsError, self.contexts.reload)
        self.assertIs(self.contexts.loaded, loaded)

    def test_nothing_to_show(self) -> None:
        """Without a certificate one may connect, not listen."""
        contexts = TlsContexts(None, None, self.root / "ca.pem")
        self.assertIsNone(contexts.certificate)
        contexts.client_creator("beta.example")
        self.assertRaises(TlsError, contexts.server_creator)

    def test_trust_of_the_system(self) -> None:
        """Without a trust file the authorities of the operating system count, not ours."""
        system = TlsContexts(None, None, "system")
        server = contexts_in(self.directory, "beta.example")
        self.assertEqual(Handshake(system, server, mode="none").client_code(), "tls.untrusted")

    def test_describe(self) -> None:
        """The words for an operator hold names, dates and fingerprint."""
        certificate = self.contexts.certificate
        assert certificate is not None
        facts = describe(certificate)
        self.assertEqual(facts.names.dns, ("alpha.example",))
        self.assertEqual(len(facts.fingerprint), 64)
        self.assertIn(facts.fingerprint, str(facts))

    def test_translate(self) -> None:
        """Errors of OpenSSL and of the transport get codes."""
        for reason, code in (
            ("wrong version number", "tls.plain-text"),
            ("peer did not return a certificate", "tls.no-certificate"),
            ("tlsv13 alert certificate required", "tls.no-certificate"),
            ("tlsv1 alert unknown ca", "tls.handshake"),
            ("no shared cipher", "tls.handshake"),
        ):
            self.assertEqual(translate(SSL.Error([("SSL", "", reason)])).code, code, reason)
        self.assertEqual(translate(SSL.Error()).code, "tls.handshake")
        self.assertEqual(translate(Failure(ConnectionLost())).code, "tls.handshake")
        error = TlsError("tls.name", "x")
        self.assertIs(translate(error), error)


class HandshakeTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.directory = self.mktemp()
        self.alpha = contexts_in(self.directory, "alpha.example")
        self.beta = contexts_in(self.directory, "beta.example")

    def tearDown(self) -> None:
        shutil.rmtree(self.directory)

    def past(self, name: str, **options: object) -> TlsContexts:
        """Contexts with a certificate that ran out in 2001, made when it was good."""
        return contexts_in(
            self.directory,
            name,
            not_before=datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC),
            not_after=datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC),
            now=lambda: datetime.datetime(2000, 6, 1, tzinfo=datetime.UTC).timestamp(),
            folder="past",
            **options,
        )

    def assert_refused(self, handshake: Handshake, code: str) -> None:
        """The client refused, and nothing of the application has left it."""
        self.assertEqual(handshake.client_code(), code)
        self.assertIsNone(handshake.client.facts)
        self.assertEqual(handshake.server.engine.reads, [])

    def test_mutual(self) -> None:
        """Both sides know who is there, whatever the chunks, and octets cross both ways."""
        for chunk in (65536, 7):
            handshake = Handshake(self.alpha, self.beta, chunk=chunk)
            facts, other = handshake.server.facts, handshake.client.facts
            assert facts is not None
            assert other is not None
            self.assertEqual(facts.certificate_domains, {"alpha.example"})
            self.assertEqual(other.certificate_domains, {"beta.example"})
            self.assertEqual(facts.tls_version, "TLSv1.3")
            self.assertTrue(facts.is_encrypted)
            handshake.client.engine.output.append(b"hello")
            handshake.client_pump.schedule_flush()
            handshake.clock.advance(0)
            settle(handshake.wire, handshake.clock)
            self.assertEqual(b"".join(handshake.server.engine.reads), b"hello")
            self.assertNotIn(b"hello", handshake.wire.seen)

    def test_wrong_name(self) -> None:
        """A certificate of another domain is refused; the words tell both names."""
        handshake = Handshake(self.alpha, contexts_in(self.directory, "gamma.example"))
        self.assert_refused(handshake, "tls.name")
        words = str(handshake.client_lost[0].value)
        self.assertIn("beta.example", words)
        self.assertIn("gamma.example", words)
        self.assertEqual(handshake.server_code(), "tls.handshake")
        self.assertIn("alert", str(handshake.lost[0].value))

    def test_extra_name(self) -> None:
        """A host name that the caller vouches for will do."""
        server = contexts_in(self.directory, "mx.example")
        handshake = Handshake(self.alpha, server, extra_names=("mx.example",))
        self.assertIsNotNone(handshake.client.facts)

    def test_unverified_is_refused(self) -> None:
        """Should OpenSSL ever not ask for a verdict, the connection ends before the engine."""
        self.patch(Verification, "__call__", lambda *_: True)
        handshake = Handshake(self.alpha, self.beta)
        self.assertEqual(handshake.client_code(), "tls.name")
        self.assertIsNone(handshake.client.facts)

    def test_verification_fails(self) -> None:
        """A certificate that our own code fails on lets nobody in, in either direction."""

        def fails(*_: object) -> bool:
            raise ZeroDivisionError("a bug")

        take = Verification._take
        for is_server, direction in ((True, "accepting"), (False, "connecting")):

            def one_side(verification: Verification, *args: Any, at: bool = is_server) -> bool:
                fails_here = (verification._demand is None) is at
                return fails() if fails_here else take(verification, *args)

            self.patch(Verification, "_take", one_side)
            with self.subTest(direction):
                handshake = Handshake(self.alpha, self.beta)
                here, there = (handshake.lost, handshake.client_lost)[:: 1 if is_server else -1]
                side = handshake.server if is_server else handshake.client
                self.assertIsNone(side.facts)
                self.assertEqual(here[0].value.code, "tls.handshake")  # type: ignore[attr-defined]
                self.assertIn("certificate cannot be read", str(here[0].value))
                self.assertIn("alert", str(there[0].value))
                self.assertEqual(handshake.server.engine.reads, [])
                self.assertTrue(self.flushLoggedErrors(ZeroDivisionError))

    def test_srv_id_only(self) -> None:
        """A certificate with nothing but an SRV-ID will do, on both sides."""
        server = contexts_in(
            self.directory, "x.example", dns_names=(), srv_names=("_amqps.beta.example",)
        )
        handshake = Handshake(server, server)
        assert handshake.server.facts is not None
        self.assertEqual(handshake.server.facts.certificate_domains, {"beta.example"})

    def test_expired(self) -> None:
        """An expired certificate is refused in either direction."""
        expired = self.past("beta.example")
        self.assert_refused(Handshake(self.alpha, expired), "tls.expired")
        handshake = Handshake(expired, self.alpha, "alpha.example")
        self.assertEqual(handshake.server_code(), "tls.expired")
        self.assertIsNone(handshake.server.facts)
        self.assertIn("alert", str(handshake.client_lost[0].value))

    def test_not_yet_valid(self) -> None:
        """So is one whose time has not come."""
        future = contexts_in(
            self.directory,
            "beta.example",
            folder="future",
            not_before=datetime.datetime(2099, 1, 1, tzinfo=datetime.UTC),
            not_after=datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC),
            now=lambda: datetime.datetime(2099, 6, 1, tzinfo=datetime.UTC).timestamp(),
        )
        self.assert_refused(Handshake(self.alpha, future), "tls.not-yet-valid")

    def test_unknown_authority(self) -> None:
        """The right name from an authority that is not ours proves nothing, either way."""
        stranger = contexts_in(self.mktemp(), "beta.example", trust=Path(self.directory) / "ca.pem")
        self.assert_refused(Handshake(self.alpha, stranger), "tls.untrusted")
        for mode in ("optional", "required"):
            handshake = Handshake(stranger, self.alpha, "alpha.example", mode)  # type: ignore[arg-type]
            self.assertEqual(handshake.server_code(), "tls.untrusted")

    def test_pinned_certificate(self) -> None:
        """A peer's certificate itself may are in the trust file, without its authority."""
        stranger = contexts_in(self.mktemp(), "beta.example", trust=Path(self.directory) / "ca.pem")
        root = Path(self.directory)
        pin = root / "pin.pem"
        from cryptography.hazmat.primitives.serialization import Encoding

        assert stranger.certificate is not None
        pin.write_bytes(stranger.certificate.public_bytes(Encoding.PEM))
        alpha = TlsContexts(root / "alpha.example/chain.pem", root / "alpha.example/key.pem", pin)
        self.assertIsNotNone(Handshake(alpha, stranger).client.facts)

    def test_no_client_certificate(self) -> None:
        """Without a certificate: refused where required, anonymous where optional."""
        nobody = TlsContexts(None, None, Path(self.directory) / "ca.pem")
        handshake = Handshake(nobody, self.beta, mode="required")
        self.assertEqual(handshake.server_code(), "tls.no-certificate")
        self.assertEqual(handshake.client.user.reason.value.code, "tls.no-certificate")  # type: ignore[union-attr]
        for mode in ("optional", "none"):
            handshake = Handshake(nobody, self.beta, mode=mode)  # type: ignore[arg-type]
            assert handshake.server.facts is not None
            self.assertIsNone(handshake.server.facts.certificate)
        handshake = Handshake(self.alpha, self.beta, mode="none")
        assert handshake.server.facts is not None
        self.assertEqual(handshake.server.facts.certificate_domains, frozenset())

    def test_usage(self) -> None:
        """One for servers is good for a connecting peer; one for clients is no server's."""
        for_servers = contexts_in(self.directory, "s.example", client=False)
        for_clients = contexts_in(self.directory, "c.example", server=False)
        handshake = Handshake(for_servers, self.beta)
        assert handshake.server.facts is not None
        self.assertEqual(handshake.server.facts.certificate_domains, {"s.example"})
        self.assert_refused(Handshake(self.alpha, for_clients, "c.example"), "tls.untrusted")

    def test_upgrade(self) -> None:
        """After the engines have agreed on it TLS starts; the user learns who is there first."""
        for chunk in (65536, 4):
            handshake = Handshake(self.alpha, self.beta, upgrade=True, chunk=chunk)
            facts = handshake.server.user.facts
            assert facts is not None
            self.assertEqual(facts.certificate_domains, {"alpha.example"})
            self.assertEqual(handshake.server.user.got, [("secured",)])
            self.assertEqual(handshake.client.user.got, [("secured",)])
            self.assertEqual(handshake.wire.seen[:4], b"tls\n")

    def test_upgrade_is_answered_at_once(self) -> None:
        """An engine that speaks first under TLS does so, and has its deadline."""

        def established(engine: PretendEngine, now: float) -> list[Any]:
            engine.output.append(b"first")
            engine.deadline = now + 5
            return []

        self.patch(PretendEngine, "tls_established", established)
        handshake = Handshake(self.alpha, self.beta, upgrade=True)
        for side in (handshake.client, handshake.server):
            self.assertEqual(side.engine.reads[-1], b"first")
        handshake.clock.advance(5)
        for side in (handshake.client, handshake.server):
            self.assertEqual(len(side.engine.ticks), 1)

    def test_nothing_is_held(self) -> None:
        """Certificates of a peer are not kept when its connection is lost."""
        handshake = Handshake(self.alpha, self.beta)
        pumps = (handshake.client_pump, handshake.server_pump)
        held = [pump._verification for pump in pumps]
        for verification in held:
            assert verification is not None
            self.assertTrue(verification._chain)
        handshake.client_pump.abort()
        settle(handshake.wire, handshake.clock)
        self.assertEqual((len(handshake.lost), len(handshake.client_lost)), (1, 1))
        for verification in held:
            assert verification is not None
            self.assertFalse(verification._chain)

    def test_upgrade_wrong_name(self) -> None:
        """In an upgrade the client's user learns why it failed, and its engine never continues."""
        handshake = Handshake(self.alpha, self.beta, "other.example", upgrade=True)
        reason = handshake.client.user.reason
        assert reason is not None
        self.assertEqual(reason.value.code, "tls.name")
        self.assertIsNone(handshake.client.engine.secured_at)

    def test_plain_text(self) -> None:
        """Plain text at a port for TLS is told from other failures, on either side."""
        lost: list[Failure] = []
        security = ConnectionSecurity(self.beta.server_creator("optional"), implicit=True)
        server, client, clock = Side(), Side(is_client=True), Clock()
        pump = EngineProtocol(
            server.make,
            clock,
            security=security,
            owner=Owner(lambda _, reason: lost.append(reason)),
        )
        client.engine.output.append(b"AMQP\x00\x01\x00\x00")
        settle(Wire(EngineProtocol(client.make, clock), pump), clock)
        self.assertEqual(lost[0].value.code, "tls.plain-text")
        self.assertIsNone(server.facts)
        del lost[:]
        security = ConnectionSecurity(self.beta.client_creator("beta.example"), implicit=True)
        server, client = Side(), Side(is_client=True)
        server.engine.output.append(b"AMQP\x00\x01\x00\x00")
        pump = EngineProtocol(
            client.make,
            clock,
            security=security,
            is_client=True,
            owner=Owner(lambda _, reason: lost.append(reason)),
        )
        settle(Wire(pump, EngineProtocol(server.make, clock)), clock)
        self.assertEqual(lost[0].value.code, "tls.plain-text")

    def test_slow_handshake(self) -> None:
        """A peer that does not get on with its handshake is dropped before an engine exists."""
        clock, server, lost = Clock(), Side(), []
        from tests.net.wires import WireEnd

        end = WireEnd()
        pump = EngineProtocol(
            server.make,
            clock,
            security=ConnectionSecurity(self.beta.server_creator(), implicit=True),
            resources=ConnectionResources(PumpLimits(tls_seconds=3.0)),
            owner=Owner(lambda _, reason: lost.append(reason)),
        )
        end.protocol = pump
        pump.makeConnection(end)
        end.protocol.dataReceived(b"\x16\x03\x01")
        clock.advance(2.9)
        self.assertFalse(end.disconnecting)
        clock.advance(0.2)
        self.assertTrue(end.disconnecting)
        end.protocol.connectionLost(Failure(ConnectionLost()))
        self.assertEqual(lost[0].value.code, "tls.handshake")
        self.assertIn("3 s", str(lost[0].value))
        self.assertEqual(clock.getDelayedCalls(), [])

    def test_records_are_gathered(self) -> None:
        """The contents of one read of the transport reach the engine in one piece."""
        handshake = Handshake(self.alpha, self.beta)
        payload = os.urandom(60_000)
        handshake.client.engine.output.append(payload)
        handshake.client_pump.flush()
        settle(handshake.wire, handshake.clock)
        self.assertEqual(handshake.server.engine.reads, [payload])

    def test_pieces(self) -> None:
        """Data larger than a piece arrives whole, however the transport cuts it."""
        for chunk in (1_000_003, 65_536, 1_500):
            handshake = Handshake(self.alpha, self.beta, chunk=chunk)
            parts = [os.urandom(size) for size in (70, 300_000, 9, 16_384, 16_385, 131_072, 1)]
            handshake.client.engine.output += parts
            handshake.client_pump.flush()
            settle(handshake.wire, handshake.clock)
            handshake.server.engine.output += parts
            handshake.server_pump.flush()
            settle(handshake.wire, handshake.clock)
            for side in (handshake.client, handshake.server):
                self.assertEqual(b"".join(side.engine.reads), b"".join(parts))

    def test_close(self) -> None:
        """A close reaches the other side whole, as a clean end."""
        handshake = Handshake(self.alpha, self.beta)
        handshake.server.engine.output.append(b"bye")
        handshake.server.engine.is_closed = True
        handshake.server_pump.flush()
        settle(handshake.wire, handshake.clock)
        self.assertEqual(handshake.client.engine.reads, [b"bye"])
        self.assertEqual(len(handshake.lost + handshake.client_lost), 2)
        self.assertEqual(handshake.clock.getDelayedCalls(), [])
