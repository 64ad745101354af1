# SPDX-License-Identifier: Apache-2.0
"""Diagnosis of failed handshakes: a sentence that names the mistake."""

from __future__ import annotations

from OpenSSL import SSL
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.trial.unittest import SynchronousTestCase

from amqproute.net.handshake_diagnosis import HandshakeProgress, explain
from tests.net.wires import contexts_in


def alert(words: str) -> SSL.Error:
    """Return what OpenSSL reports of an alert."""
    return SSL.Error([("SSL routines", "", f"tls alert {words}")])


class ExplainTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.own = contexts_in(self.mktemp(), "gamma.example").certificate

    def told(self, error: BaseException, **progress: object) -> tuple[str, str]:
        """Return code and words of a failure on the accepting side, after an answer."""
        facts = {"is_client": False, "is_answered": True, "own": self.own, **progress}
        found = explain(error, HandshakeProgress(**facts))  # type: ignore[arg-type]
        return found.code, str(found)

    def test_no_tls_at_the_other_end(self) -> None:
        """Any end before an answer means that the port does not begin with TLS."""
        for error in (
            ConnectionDone(),
            ConnectionLost(),
            SSL.Error([]),
            alert("handshake failure"),
        ):
            code, words = self.told(error, is_client=True, is_answered=False)
            self.assertEqual(code, "tls.handshake")
            self.assertIn("that port does not begin with TLS", words)
            self.assertIn("_amqp._tcp", words)
            self.assertNotIn("non-clean", words)

    def test_alerts(self) -> None:
        """An alert about a certificate is about ours, and says which."""
        for word, part in (
            ("unknown ca", "does not trust the authority of our certificate (CN=amqproute"),
            ("certificate expired", "our certificate has expired by the peer's clock: it is valid"),
            ("certificate revoked", "list of revoked certificates names ours"),
            ("protocol version", "has no version of TLS in common with us"),
            ("bad certificate", "refuses our certificate, which names gamma.example"),
            ("internal error", "refuses our certificate, which names gamma.example"),
            ("decode error", "our certificate, which names gamma.example"),
        ):
            code, words = self.told(alert(word))
            self.assertEqual(code, "tls.handshake", word)
            self.assertIn(part, words)
            self.assertIn(f"(TLS alert: {word})", words)

    def test_wanted_name(self) -> None:
        """The accepting side knows which name was asked for."""
        _, words = self.told(alert("internal error"), server_name="beta.example")
        self.assertIn("it wanted beta.example, and our certificate names gamma.example", words)
        _, words = self.told(alert("internal error"), server_name="gamma.example")
        self.assertNotIn("it wanted", words)

    def test_certificate_required(self) -> None:
        code, words = self.told(alert("certificate required"), is_client=True, own=None)
        self.assertEqual(code, "tls.no-certificate")
        self.assertIn("we have shown none", words)

    def test_losses(self) -> None:
        """After an answer nobody claims that the port has no TLS."""
        for is_client in (False, True):
            _, words = self.told(ConnectionLost(), is_client=is_client)
            self.assertNotIn("does not begin with TLS", words)
            self.assertIn("without a word", words)
