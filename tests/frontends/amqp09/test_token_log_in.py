# SPDX-License-Identifier: Apache-2.0
"""Clients of 0-9-1 that log in with tokens, or as users of a directory: rights, end, renewal."""

from __future__ import annotations

from dataclasses import replace

from amqproute.auth.outside_realm import NamedRealm
from tests.auth.test_outside_log_ins import Directory, Issuer, token_of
from tests.frontends.amqp09.test_log_in import LogInCase, Visitor
from tests.support.wire09 import call


class TokenLogInTests(LogInCase):
    def setUp(self) -> None:
        super().setUp()
        self.directory, self.issuer = Directory(), Issuer()
        self.verifier.realms.adopt([NamedRealm("ldap", self.directory)], [self.issuer], True)

    def now(self) -> float:
        """Return the wall clock of the broker, seconds."""
        return self.world.now_ms() / 1000

    def token(self, sub: str = "carl", seconds: float = 60.0, *groups: str) -> str:
        return self.issuer.issue(sub, *groups, expires=self.now() + seconds)

    def logged_in(self, mechanism: str, response: bytes) -> Visitor:
        client = Visitor(self)
        self.assertEqual(client.respond(mechanism, response), ["connection.tune"])
        client.open()
        return client

    def test_mechanisms(self) -> None:
        """A token comes by OAUTHBEARER, or as the password of PLAIN and AMQPLAIN."""
        token = self.token().encode()
        table = b"\5LOGINS\0\0\0\0\x08PASSWORDS" + len(token).to_bytes(4, "big") + token
        for mechanism, response in (
            ("OAUTHBEARER", b"n,,\1auth=Bearer " + token + b"\1\1"),
            ("XOAUTH2", b"user=carl\1auth=Bearer " + token + b"\1\1"),
            ("PLAIN", b"\0\0" + token),
            ("AMQPLAIN", table),
        ):
            client = self.logged_in(mechanism, response)
            self.assertEqual(str(client.frontend.principal), "user:carl", mechanism)

    def test_refused(self) -> None:
        """The client is told by a challenge, and answers it; then the log-in has failed."""
        client = Visitor(self)
        token = token_of("mallory").encode()
        client.respond("OAUTHBEARER", b"n,,\1auth=Bearer " + token + b"\1\1")
        client.run(10.0)
        (said,) = [given for _, name, given in client.methods if name == "connection.secure"]
        self.assertIn(b"invalid_token", said["challenge"])
        client.methods.clear()
        client.write(call(0, "connection.secure-ok", response=b"\1"))
        self.assertEqual(client.closes(), [("connection", 403)])

    def test_temporary(self) -> None:
        """A directory that is down is no wrong password, and the client is told so."""
        self.directory.is_down = True
        client = Visitor(self)
        client.respond("PLAIN", b"\0bob\0secret")
        client.run(1.0)
        (given,) = [given for _, name, given in client.methods if name == "connection.close"]
        self.assertIn("try again later", str(given["reply-text"]))
        self.assertFalse(any("log-in failed" in each for each in self.lines))

    def test_expires(self) -> None:
        """The connection ends with the token."""
        client = self.logged_in("PLAIN", b"\0\0" + self.token(seconds=10).encode())
        client.run(9.0)
        self.assertEqual(client.closes(), [])
        client.run(2.0)
        self.assertEqual(client.closes(), [("connection", 530)])

    def test_renewed(self) -> None:
        """A new token of the same user extends it, and has the rights of its own groups."""
        client = self.logged_in("PLAIN", b"\0\0" + self.token("carl", 10, "ops").encode())
        client.run(9.0)
        client.replace_secret(self.token("carl", 100, "guests").encode())
        self.assertEqual(client.names(), ["connection.update-secret-ok"])
        self.assertEqual(client.frontend.principal.groups, {"guests"})
        client.run(90.0)
        self.assertEqual(client.closes(), [])
        client.run(20.0)
        self.assertEqual(client.closes(), [("connection", 530)])

    def test_another_token(self) -> None:
        """A token of another user, or a wrong one, ends the connection."""
        for secret in (self.token("dora"), token_of("carl", "https://x.test"), "pencil"):
            client = self.logged_in("PLAIN", b"\0\0" + self.token("carl", 1000).encode())
            client.replace_secret(secret.encode())
            client.run(10.0)
            self.assertEqual(client.closes(), [("connection", 530)], secret)

    def test_no_timer_is_left(self) -> None:
        """A connection that goes takes its timer along; one without an end has none."""
        client = self.logged_in("PLAIN", b"\0\0" + self.token().encode())
        self.assertIsNotNone(client.frontend._expiry)
        client.hang_up()
        self.assertIsNone(client.frontend._expiry)
        client = self.logged_in("PLAIN", b"\0bob\0secret")
        self.assertIsNone(client.frontend._expiry)

    def test_closed_account(self) -> None:
        """A connection whose user is gone ends with 530, once; other groups do not end it."""
        client = self.logged_in("PLAIN", b"\0bob\0secret")
        frontend = client.frontend
        self.assertEqual(frontend.principal.account, "the account of bob")
        frontend.renew(replace(frontend.principal, groups=frozenset({"readers"})))
        client.run(1.0)
        self.assertEqual((client.closes(), frontend.principal.groups), ([], {"readers"}))
        frontend.end_log_in("the account of the user is closed")
        frontend.end_log_in("the account of the user is closed")
        client.run(1.0)
        self.assertEqual(client.closes(), [("connection", 530)])
