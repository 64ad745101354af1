# SPDX-License-Identifier: Apache-2.0
"""Log-ins of clients of 0-9 and 0-9-1 by each mechanism, and secrets that are replaced later.

Rules: 09-CONN-06, -08, -09, -11, 09-W-50, -51, 09: part 3.7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.log_in_queue import MOST_WAITING, SLOTS
from amqproute.auth.realm import Authenticator, Verifier
from amqproute.auth.users import UserFile
from amqproute.frontends.amqp09.frontend09 import Frontend09
from amqproute.frontends.amqp09.log_in_exchange import offered_mechanisms
from amqproute.net.pump import EngineProtocol, TransportFacts
from amqproute.wire.amqp09.connection09 import Connection09
from amqproute.wire.sasl_mechanisms import (
    MECHANISMS,
    ScramSecret,
    client_mechanism,
)
from tests.conformance.frame_broker import End, Network
from tests.support.client09 import CAPABILITIES, Client09, context09
from tests.support.wire09 import V091, call, settings

SECRET = ScramSecret.derive("pencil", salt=b"s" * 16, iterations=4096)
OTHER = ScramSecret.derive("pen", salt=b"t" * 16, iterations=4096)
PLAIN_RESPONSE = b"\0ann\0pencil"
AMQPLAIN_RESPONSE = b"\5LOGINS\0\0\0\3ann\x08PASSWORDS\0\0\0\6pencil"


class Visitor(Client09):
    """A client that has said nothing yet; `Client09` is anonymous from the start."""

    def __init__(
        self, case: LogInCase, mechanisms: tuple[str, ...] = MECHANISMS, **facts: Any
    ) -> None:
        self.house = case.house
        self.world = case.world
        self.methods: list[tuple[int, str, dict[str, Any]]] = []
        self.contents = []
        self._buffer = b""
        self._open = {}
        authenticator = Authenticator(
            mechanisms,
            users=case.users,
            verifier=case.verifier,
            login_key=b"k" * 32,
            random_bytes=lambda count: b"r" * count,
        )

        def make(found: TransportFacts) -> tuple[Connection09, Frontend09]:
            found = replace(found, **{"host": "192.0.2.1", "tls_version": "TLSv1.3", **facts})
            probe = Frontend09(
                Connection09(settings()), context09(self.house), authenticator, found
            )
            offered = offered_mechanisms(authenticator, probe.log_in_facts())
            engine = Connection09(settings(mechanisms=offered))
            self.frontend = Frontend09(engine, context09(self.house), authenticator, found)
            return engine, self.frontend

        protocol = EngineProtocol(make, self.world.clock)
        self.end = End(protocol)
        protocol.makeConnection(self.end)
        self.write(V091)

    @property
    def offered(self) -> bytes:
        """The offer of connection.start."""
        (start,) = [given for _, name, given in self.methods if name == "connection.start"]
        return bytes(start["mechanisms"])

    def respond(
        self, mechanism: str, response: bytes, capabilities: tuple[str, ...] = CAPABILITIES
    ) -> list[str]:
        """Answer connection.start; return what is said then."""
        self.methods.clear()
        table = [("capabilities", "F", [(name, "t", 1) for name in capabilities])]
        self.write(
            call(
                0,
                "connection.start-ok",
                client_properties=table,
                mechanism=mechanism,
                response=response,
                locale="en_US",
            )
        )
        return [name for _, name, _ in self.methods]

    def open(self) -> list[str]:
        """Tune and open the virtual host; return what is said then."""
        self.methods.clear()
        self.write(
            call(0, "connection.tune-ok", channel_max=0, frame_max=0, heartbeat=0),
            call(0, "connection.open", virtual_host="/"),
        )
        return self.names()

    def replace_secret(self, secret: bytes, reason: str = "it was old") -> None:
        """Send update-secret."""
        self.methods.clear()
        self.write(call(0, "connection.update-secret", new_secret=secret, reason=reason))


class LogInCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = Network()
        self.house = self.world.house()
        self.users = UserFile(Path("users.yaml"), {"ann": SECRET})
        self.held: list[Callable[[], None]] | None = None
        self.verifier = Verifier(self.world.clock, self.defer)
        self.addCleanup(self.verifier.stop)
        self.lines: list[str] = []
        globalLogPublisher.addObserver(self.observe)
        self.addCleanup(globalLogPublisher.removeObserver, self.observe)

    def defer(self, function: Callable[[str, str], bool], *given: str) -> Deferred[bool]:
        """Verify a password at once, or when `held` is called."""
        if self.held is None:
            return succeed(function(*given))
        done: Deferred[bool] = Deferred()
        self.held.append(lambda: done.callback(function(*given)))
        return done

    def observe(self, event: LogEvent) -> None:
        text = formatEvent(event)
        self.assertNotIn("pencil", text)
        self.lines.append(text)


class MechanismTests(LogInCase):
    def test_offered(self) -> None:
        """AMQPLAIN is offered where PLAIN is, and PLAIN where nobody can listen."""
        self.assertEqual(Visitor(self).offered, b"SCRAM-SHA-256 PLAIN AMQPLAIN ANONYMOUS")
        self.assertEqual(Visitor(self, tls_version=None).offered, b"SCRAM-SHA-256 ANONYMOUS")
        names = frozenset({"b.test"})
        self.assertEqual(Visitor(self, certificate_domains=names).offered.split()[0], b"EXTERNAL")

    def test_passwords(self) -> None:
        """PLAIN and AMQPLAIN, right and wrong."""
        for mechanism, response in (("PLAIN", PLAIN_RESPONSE), ("AMQPLAIN", AMQPLAIN_RESPONSE)):
            client = Visitor(self)
            self.assertEqual(client.respond(mechanism, response), ["connection.tune"])
            self.assertEqual(client.open(), ["connection.open-ok"])
            self.assertEqual(str(client.frontend.principal), "user:ann")
            for wrong in (response.replace(b"pencil", b"pennil"), response[:-1], b"", b"\xff" * 9):
                client = Visitor(self)
                client.respond(mechanism, wrong)
                client.run(10.0)
                self.assertEqual(client.closes(), [("connection", 403)], wrong)

    def test_without_the_capability(self) -> None:
        """A client that does not know authentication_failure_close is cut off (09-W-50)."""
        client = Visitor(self)
        client.respond("PLAIN", b"\0ann\0wrong", ())
        client.run(10.0)
        self.assertEqual((client.names(), client.end.is_gone), ([], True))

    def test_scram(self) -> None:
        """SCRAM-SHA-256 by secure and secure-ok."""
        machine = client_mechanism("SCRAM-SHA-256", username="ann", password="pencil", nonce="n")
        client = Visitor(self)
        said = client.respond("SCRAM-SHA-256", machine.initial() or b"")
        while said == ["connection.secure"]:
            response = machine.step(client.methods[0][2]["challenge"])
            client.methods.clear()
            client.write(call(0, "connection.secure-ok", response=response))
            said = [name for _, name, _ in client.methods]
        self.assertEqual(client.names(), ["connection.tune"])
        self.assertEqual(client.open(), ["connection.open-ok"])

    def test_external(self) -> None:
        """A certificate proves a domain, a socket of this machine a user."""
        for facts, who in (
            ({"certificate_domains": frozenset({"b.test"})}, "peer:b.test"),
            ({"host": None, "tls_version": None, "unix_uid": 1000}, "uid:1000"),
        ):
            client = Visitor(self, **facts)
            self.assertEqual(client.respond("EXTERNAL", b""), ["connection.tune"])
            self.assertEqual(client.open(), ["connection.open-ok"])
            self.assertEqual(str(client.frontend.principal), who)
        client = Visitor(self, certificate_domains=frozenset({"b.test"}))
        client.respond("EXTERNAL", b"c.test")
        self.assertEqual(client.closes(), [("connection", 403)])

    def test_not_offered(self) -> None:
        """A mechanism that is not offered is not begun: the transport ends (09-X-09)."""
        client = Visitor(self, tls_version=None)
        client.respond("PLAIN", PLAIN_RESPONSE)
        self.assertEqual((client.names(), client.end.is_gone), ([], True))


class SecretTests(LogInCase):
    def logged_in(self, mechanism: str = "PLAIN", response: bytes = PLAIN_RESPONSE) -> Visitor:
        client = Visitor(self, certificate_domains=frozenset({"b.test"}))
        client.respond(mechanism, response)
        self.assertEqual(client.open(), ["connection.open-ok"])
        client.channel()
        return client

    def test_right(self) -> None:
        """A secret that verifies is taken, and work goes on."""
        for mechanism, response in (("PLAIN", PLAIN_RESPONSE), ("AMQPLAIN", AMQPLAIN_RESPONSE)):
            client = self.logged_in(mechanism, response)
            client.replace_secret(b"pencil")
            self.assertEqual(client.names(), ["connection.update-secret-ok"])
            client.publish(b"1")
            self.assertEqual(client.names(), [])
        self.assertEqual(client.depth(), 2)
        self.assertTrue(any("proved its secret again: it was old" in each for each in self.lines))

    def test_changed(self) -> None:
        """The secret is that of the users file as it is now."""
        client = self.logged_in()
        self.users._take({"ann": OTHER})
        client.replace_secret(b"pen")
        self.assertEqual(client.names(), ["connection.update-secret-ok"])
        client.replace_secret(b"pencil")
        client.run(10.0)
        self.assertEqual(client.closes(), [("connection", 530)])

    def test_wrong(self) -> None:
        """One that does not verify ends the connection with 530, and counts as a failed log-in."""
        for secret in (b"", b"pen", b"\xff", b"pencil" * 50, b"pencil\0"):
            client = self.logged_in()
            client.replace_secret(secret)
            client.run(10.0)
            self.assertEqual(client.closes(), [("connection", 530)], secret)
            (given,) = [given for _, name, given in client.methods if "close" in name]
            self.assertEqual((given["class-id"], given["method-id"]), (10, 70))
            self.assertTrue(
                any("log-in failed from 192.0.2.1, PLAIN" in each for each in self.lines)
            )
            self.lines.clear()

    def test_user_removed(self) -> None:
        """A secret of a user who no longer exists does not verify."""
        client = self.logged_in()
        self.users._take({})
        client.replace_secret(b"pencil")
        client.run(10.0)
        self.assertEqual(client.closes(), [("connection", 530)])

    def test_no_secret(self) -> None:
        """Log-ins without a secret have none to be replaced."""
        for mechanism in ("ANONYMOUS", "EXTERNAL"):
            client = self.logged_in(mechanism, b"")
            client.replace_secret(b"pencil")
            self.assertEqual(client.closes(), [("connection", 530)])

    def test_nothing_is_read_meanwhile(self) -> None:
        """The connection is not read; a second one in the same read is out of order."""
        client = self.logged_in()
        self.held = []
        client.replace_secret(b"pencil")
        self.assertEqual((client.names(), client.end.producerState), ([], "paused"))
        self.held.pop()()
        client.run()
        self.assertEqual(client.end.producerState, "producing")
        self.assertEqual(client.names(), ["connection.update-secret-ok"])
        update = call(0, "connection.update-secret", new_secret=b"pencil", reason="")
        client.write(update, update)
        self.assertEqual(client.closes(), [("connection", 503)])
        self.held.pop()()
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_client_leaves(self) -> None:
        """Nobody waits for the outcome any more."""
        client = self.logged_in()
        self.held = []
        client.replace_secret(b"pencil")
        client.hang_up()
        self.held.pop()()
        self.world.advance()
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_many_log_ins(self) -> None:
        """When too many log-ins wait, a secret is not verified, which is not called a wrong one."""
        client = self.logged_in()
        self.held = []
        others = [Visitor(self) for _ in range(SLOTS + MOST_WAITING)]
        for each in others[:SLOTS]:
            each.respond("PLAIN", PLAIN_RESPONSE)
        client.replace_secret(b"pencil")
        self.assertEqual(client.names(), [])
        for each in others[SLOTS:]:
            each.respond("PLAIN", PLAIN_RESPONSE)
        client.run()
        self.assertEqual(client.closes(), [("connection", 506)])
        self.assertFalse(any("log-in failed" in each for each in self.lines))
        for each in others:
            each.hang_up()
        for done in self.held:
            done()
