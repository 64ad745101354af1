# SPDX-License-Identifier: Apache-2.0
"""Users of a directory (Debian's slapd) and tokens of an issuer, at running daemons."""

from __future__ import annotations

import base64
import http.client
import http.server
import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pika
from pika.exceptions import (
    AMQPConnectionError,
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
)
from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.directory_realm import DirectoryUser, ServerFailed
from amqproute.auth.issuer_keys import LEAST_SECONDS
from amqproute.auth.ldap_client import DirectoryLayout, LdapClient
from amqproute.auth.users import add_user
from tests.integration.slapd import MISSING, READER, READERS_PASSWORD, Slapd
from tests.integration.support import Daemon, client_tls, free_ports
from tests.support.issuer import TokenIssuer
from tests.support.patience import PATIENCE, until

BRIEF_SECONDS = 20.0
"""The life of a token that has to be taken before it ends, on a slow machine, too."""
PEOPLE = "ou=people,dc=test"
GROUPS = "ou=groups,dc=test"


class SaslClient:
    """A client of AMQP 1.0 by octets, as far as the open (part 5 §5.3)."""

    def __init__(self, port: int) -> None:
        raw = socket.create_connection(("127.0.0.1", port), PATIENCE)
        context = client_tls()
        context.check_hostname = False
        self.socket = context.wrap_socket(raw)
        self._buffer = b""
        self.socket.sendall(b"AMQP\3\1\0\0")
        assert self._read(8) == b"AMQP\3\1\0\0"
        self.mechanisms = self.frame()

    def _read(self, count: int) -> bytes:
        while len(self._buffer) < count:
            found = self.socket.recv(65536)
            if not found:
                raise EOFError
            self._buffer += found
        found, self._buffer = self._buffer[:count], self._buffer[count:]
        return found

    def frame(self) -> bytes:
        """Return the body of the next frame that has one."""
        while True:
            size = int.from_bytes(self._read(4), "big")
            body = self._read(size - 4)[4:]
            if body:
                return body

    def send(self, kind: int, body: bytes) -> None:
        self.socket.sendall((len(body) + 8).to_bytes(4, "big") + bytes((2, kind, 0, 0)) + body)

    def init(self, mechanism: str, response: bytes) -> bytes:
        """Send sasl-init; return the answer."""
        name = mechanism.encode()
        fields = b"\xa3" + bytes((len(name),)) + name
        fields += b"\xb0" + len(response).to_bytes(4, "big") + response
        listed = (len(fields) + 4).to_bytes(4, "big") + (2).to_bytes(4, "big") + fields
        self.send(1, b"\x00\x53\x41\xd0" + listed)
        return self.frame()

    def respond(self, response: bytes) -> bytes:
        """Send sasl-response; return the answer."""
        fields = b"\xa0" + bytes((len(response),)) + response
        self.send(1, b"\x00\x53\x43\xc0" + bytes((len(fields) + 1, 1)) + fields)
        return self.frame()

    def open(self) -> bytes:
        """Open; return the answer."""
        self.socket.sendall(b"AMQP\0\1\0\0")
        self.send(0, b"\x00\x53\x10\xc0\x04\x01\xa1\x01c")
        assert self._read(8) == b"AMQP\0\1\0\0"
        return self.frame()


def outcome(body: bytes) -> int:
    """Return the code of a sasl-outcome."""
    assert body[:3] == b"\x00\x53\x44", body
    return body[body.index(b"\x50") + 1]


class RealmCase(SynchronousTestCase):
    def daemon(self, users: dict[str, Any], access: list[dict[str, Any]]) -> Daemon:
        (self.http,) = free_ports(1)
        daemon = Daemon("alpha.example")
        everything = [each for each in daemon.settings["access"] if each["who"] != "user:bob"]
        listen = daemon.settings["listen"]
        listen[-1] = {**listen[-1], "mechanisms": ["PLAIN", "SCRAM-SHA-256", *users["mechanisms"]]}
        daemon.write(
            users={"file": str(daemon.users), **users["settings"]},
            access=[*access, *everything],
            listen=listen,
            management={"http": f"tcp:{self.http}:interface=127.0.0.1", "tls": "implicit"},
            nodes=[{"name": "orders"}],
        )
        self.addCleanup(daemon.stop)
        return daemon.start()

    def pika(self, daemon: Daemon, user: str, password: str) -> pika.BlockingConnection:
        context = client_tls()
        context.check_hostname = False
        connection = pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1",
                daemon.tls,
                credentials=pika.PlainCredentials(user, password),
                ssl_options=pika.SSLOptions(context),
                connection_attempts=1,
                socket_timeout=PATIENCE,
                blocked_connection_timeout=PATIENCE,
            )
        )
        self.addCleanup(lambda: connection.is_open and connection.close())
        return connection

    def ask(self, path: str, authorization: str) -> tuple[int, Any]:
        context = client_tls()
        context.check_hostname = False
        client = http.client.HTTPSConnection(
            "127.0.0.1", self.http, context=context, timeout=PATIENCE
        )
        client.request("GET", path, headers={"Authorization": authorization})
        answer = client.getresponse()
        found = answer.status, json.loads(answer.read())
        client.close()
        return found


class LdapClientTests(SynchronousTestCase):
    """What talks to servers, and slapd."""

    skip = MISSING or None

    def setUp(self) -> None:
        self.slapd = Slapd().start()
        self.addCleanup(self.slapd.stop)

    def client(self, **changes: Any) -> LdapClient:
        given = {
            "trust": self.slapd.trust,
            "bind_dn": READER,
            "bind_password": READERS_PASSWORD,
            "search_base": PEOPLE,
            "group_base": GROUPS,
        }
        return LdapClient(DirectoryLayout(**{**given, **changes}))

    def fails(self, client: LdapClient, server: str, words: str, seconds: float = 10.0) -> None:
        error = self.assertRaises(
            ServerFailed, client.verify, server, "carl", "carls secret", seconds
        )
        self.assertIn(words, str(error))

    def test_search(self) -> None:
        """By each kind of connection; groups and the name come from the directory."""
        client = self.client(member_of="seeAlso")
        for server in self.slapd.urls:
            found = client.verify(server, "CARL", "carls secret", 10)
            self.assertEqual(found, DirectoryUser(("carl",), ("drivers", "ops", "readers")))
            for name, password in (("carl", "x"), ("nobody", "x"), ("*", "carls secret")):
                self.assertIsNone(client.verify(server, name, password, 10))
            client.probe(server, 10)

    def test_template(self) -> None:
        """Without a search the user binds at once, and reads the own entry."""
        own = {"bind_dn": None, "group_base": None, "user_dn": f"uid={{name}},{PEOPLE}"}
        client = self.client(**own, start_tls=True)
        found = client.verify(self.slapd.ldap, "dora", "doras secret", 10)
        self.assertEqual(found, DirectoryUser(("Dora",)))
        for name in ("dora,ou=people", "nobody", "dora+cn=Dora"):
            self.assertIsNone(client.verify(self.slapd.ldap, name, "doras secret", 10))

    def test_injection(self) -> None:
        """A name is a value and nothing else, even if nothing before had refused it."""
        client = self.client()
        for name in ("carl)(uid=*", "*)(objectClass=*", "carl)(&", "ca*l", "carl\0", "\\2a"):
            self.assertIsNone(client.verify(self.slapd.ldap, name, "carls secret", 10))

    def test_several_entries(self) -> None:
        """A name of two entries is nobody's."""
        client = self.client(search_filter="(|(uid={name})(mail={name}))")
        self.assertIsNone(client.verify(self.slapd.ldap, "both@corp.test", "doras secret", 10))
        found = client.verify(self.slapd.ldap, "carl@corp.test", "carls secret", 10)
        assert found is not None
        self.assertEqual(found.names, ("carl",))

    def test_empty_password(self) -> None:
        """slapd takes a bind without a password for anonymous; so it is never sent."""
        self.assertRaises(ServerFailed, self.client().verify, self.slapd.ldap, "carl", "", 10)

    def test_untrusted(self) -> None:
        """A certificate of an unknown authority, or of another name, ends it before the bind."""
        elsewhere = self.slapd.ldaps.replace("localhost", "127.0.0.1")
        self.fails(self.client(), elsewhere, "doesn't match")
        self.fails(self.client(trust=None), self.slapd.ldaps, "CERTIFICATE_VERIFY_FAILED")
        wrong = self.client(trust=None, start_tls=True)
        self.fails(wrong, self.slapd.ldap, "CERTIFICATE_VERIFY_FAILED")

    def test_wrong_reader(self) -> None:
        """A wrong password of ours is no wrong password of the user."""
        self.fails(self.client(bind_password="wrong"), self.slapd.ldap, READER)

    def test_no_base(self) -> None:
        self.assertIsNone(
            self.client(search_base="ou=none,dc=test").verify(self.slapd.ldap, "carl", "x", 10)
        )

    def test_looked_up(self) -> None:
        """Users are found again without their passwords, with their groups; others are not."""
        found = self.client().look_up(self.slapd.ldap, "dora", 10)
        self.assertEqual(found, DirectoryUser(("Dora",), ("ops",)))
        template = self.client(user_dn=f"uid={{name}},{PEOPLE}", member_of="seeAlso")
        found = template.look_up(self.slapd.ldaps, "carl", 10)
        assert found is not None
        self.assertEqual(
            (found.names, sorted(found.groups)), (("carl",), ["drivers", "ops", "readers"])
        )
        for client in (self.client(), template):
            for name in ("nobody", "carl)(uid=*", "carl,ou=people", "*"):
                self.assertIsNone(client.look_up(self.slapd.ldap, name, 10))
        plain = self.client(user_dn=f"uid={{name}},{PEOPLE}", name_attribute=None, group_base=None)
        self.assertEqual(plain.look_up(self.slapd.ldap, "carl", 10), DirectoryUser(None))
        self.assertIsNone(plain.look_up(self.slapd.ldap, "nobody", 10))

    def test_hanging(self) -> None:
        """A server that hangs takes the time that it is given, and lets other threads run."""
        self.slapd.hold()
        ticks: list[float] = []
        is_over = threading.Event()

        def tick() -> None:
            while not is_over.wait(0.01):
                ticks.append(time.monotonic())

        ticking = threading.Thread(target=tick)
        ticking.start()
        try:
            for server in self.slapd.urls:
                begun = len(ticks)
                self.fails(self.client(), server, "timed out", 1.0)
                self.assertGreater(len(ticks) - begun, 10)
        finally:
            is_over.set()
            ticking.join()
        self.slapd.go_on()
        self.assertIsNotNone(self.client().verify(self.slapd.ldaps, "carl", "carls secret", 10))
        self.slapd.stop()
        self.fails(self.client(), self.slapd.ldap, "refused")


class DirectoryTests(RealmCase):
    """A daemon whose users a directory knows."""

    skip = MISSING or None

    def test_directory(self) -> None:
        """Log-ins by each protocol, rights by groups, and what happens while the server hangs."""
        slapd = Slapd().start()
        self.addCleanup(slapd.stop)
        secret = slapd.directory / "password"
        secret.write_text(f"{READERS_PASSWORD}\n")
        secret.chmod(0o600)
        ldap = {
            "servers": [slapd.ldaps, slapd.ldap],
            "start-tls": True,
            "trust": str(slapd.trust),
            "bind-dn": READER,
            "bind-password-file": str(secret),
            "search-base": PEOPLE,
            "group-base": GROUPS,
            "timeout": 5,
            "retry": 0.5,
            "remember": 0.1,
            "remember-refused": 0.1,
        }
        rights = ["publish", "consume", "browse"]
        daemon = self.daemon(
            {"settings": {"ldap": ldap}, "mechanisms": []},
            [
                {"allow": rights, "who": "group:readers", "node": "orders"},
                {"allow": ["manage"], "who": "group:ops"},
            ],
        )
        connection = self.pika(daemon, "CARL", "carls secret")
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "orders", b"of carl", mandatory=True)
        self.assertEqual(channel.basic_get("orders", auto_ack=True)[2], b"of carl")
        connection.close()
        daemon.wait_log(r"opened by user:carl, AMQP 0-9-1")
        with self.assertRaises(AMQPConnectionError):
            self.pika(daemon, "carl", "of another")
        with self.assertRaises(ChannelClosedByBroker):
            self.pika(daemon, "erna", "ernas secret").channel().basic_get("orders")
        client = SaslClient(daemon.tls)
        self.assertEqual(outcome(client.init("PLAIN", b"\0carl\0carls secret")), 0)
        self.assertIn(b"broker1.alpha.example", client.open())

        def basic(name: str, password: str) -> str:
            return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()

        status, said = self.ask("/api/v1/session", basic("dora", "doras secret"))
        self.assertEqual((status, said["principal"]), (200, "user:dora"))
        self.assertEqual(self.ask("/api/v1/queues", basic("dora", "doras secret"))[0], 200)
        self.assertEqual(self.ask("/api/v1/queues", basic("erna", "ernas secret"))[0], 403)
        # The directory knows an Anna, too; the users file decides, and nobody else is she.
        self.assertEqual(self.ask("/api/v1/session", basic("anna", "of another anna"))[0], 401)
        self.assertEqual(self.ask("/api/v1/session", basic("ANNA", "of another anna"))[0], 401)

        slapd.hold()
        since = daemon.mark()
        hanging = [SaslClient(daemon.tls) for _ in range(8)]
        for each in hanging:
            threading.Thread(
                target=each.init, args=("PLAIN", b"\0dora\0doras secret"), daemon=True
            ).start()
        begun = time.monotonic()
        self.assertEqual(self.ask("/api/v1/session", basic("anna", "secret"))[0], 200)
        self.pika(daemon, "anna", "secret").close()
        self.assertLess(time.monotonic() - begun, PATIENCE / 2)
        client = SaslClient(daemon.tls)
        self.assertEqual(outcome(client.init("PLAIN", b"\0carl\0carls secret")), 4)  # sys-temp
        self.assertEqual(self.ask("/api/v1/session", basic("dora", "doras secret"))[0], 503)
        daemon.wait_log(
            r"error .*log-in from 127\.0\.0\.1, user \"\w+\", cannot be verified", since
        )
        status, said = self.ask("/api/v1/health/realms", basic("anna", "secret"))
        self.assertIn("timed out", json.dumps(said))
        slapd.go_on()
        until(
            lambda: self.ask("/api/v1/session", basic("dora", "doras secret"))[0] == 200,
            "the directory answers again",
        )
        for each in hanging:
            each.socket.close()


class ClosedAccountTests(RealmCase):
    """Users of a directory whose accounts are closed while they are logged in."""

    skip = MISSING or None

    def test_closed(self) -> None:
        """Connections and sessions end within the interval; groups change; an outage ends none."""
        slapd = Slapd().start()
        self.addCleanup(slapd.stop)
        secret = slapd.directory / "password"
        secret.write_text(f"{READERS_PASSWORD}\n")
        secret.chmod(0o600)
        ldap = {
            "servers": [slapd.ldaps],
            "trust": str(slapd.trust),
            "bind-dn": READER,
            "bind-password-file": str(secret),
            "search-base": PEOPLE,
            "search-filter": "(&(|(uid={name})(mail={name}))(!(description=closed)))",
            "group-base": GROUPS,
            "timeout": 2,
            "remember": 300,
        }
        daemon = self.daemon(
            {"settings": {"ldap": ldap, "recheck": 0.5}, "mechanisms": []},
            [
                {"allow": ["publish", "consume"], "who": "group:readers", "node": "orders"},
                {"allow": ["manage"], "who": "group:ops"},
            ],
        )
        carl = self.pika(daemon, "carl@corp.test", "carls secret")
        channel = carl.channel()
        channel.confirm_delivery()
        dora = SaslClient(daemon.tls)
        self.assertEqual(outcome(dora.init("PLAIN", b"\0dora\0doras secret")), 0)
        dora.open()
        anna = self.pika(daemon, "anna", "secret")
        session = self.browser("dora", "doras secret")
        self.assertEqual(session("/api/v1/queues"), 200)

        slapd.hold()
        since = daemon.mark()
        daemon.wait_log(r"realm ldap cannot tell whether 2 users who have logged in", since)
        slapd.go_on()
        channel.basic_publish("", "orders", b"of carl", mandatory=True)
        self.assertEqual(session("/api/v1/queues"), 200)

        # Another group takes away what it gave, and nothing else.
        slapd.change(lambda root: root.modify(
            f"cn=ops,{GROUPS}", {"member": [("MODIFY_DELETE", [f"uid=Dora,{PEOPLE}"])]}
        ))  # fmt: skip
        until(lambda: session("/api/v1/queues") == 403, "the session has the groups of now")
        self.assertEqual(session("/api/v1/session"), 200)

        slapd.change(lambda root: root.delete(f"uid=Dora,{PEOPLE}"))
        self.assertIn(b"amqp:unauthorized-access", dora.frame())
        until(lambda: session("/api/v1/session") == 401, "the session has ended")
        daemon.wait_log(r"ended \d log-ins? of user:dora, whose account is closed")
        # Not even the remembered password is good any more.
        again = SaslClient(daemon.tls)
        self.assertEqual(outcome(again.init("PLAIN", b"\0dora\0doras secret")), 1)
        self.assertTrue(carl.is_open)
        channel.basic_publish("", "orders", b"of carl", mandatory=True)

        # An account that is locked is one that the filter does not find.
        slapd.change(lambda root: root.modify(
            f"uid=carl,{PEOPLE}", {"description": [("MODIFY_ADD", ["closed"])]}
        ))  # fmt: skip
        with self.assertRaises(ConnectionClosedByBroker) as raised:
            while True:
                carl.process_data_events(PATIENCE)
        self.assertEqual(raised.exception.reply_code, 530)
        anna.process_data_events(0)
        self.assertTrue(anna.is_open)

        # A user of the file is logged out by a reload that has another password.
        add_user(daemon.users, "anna", "another", iterations=4096)
        daemon.reload()
        with self.assertRaises(ConnectionClosedByBroker) as raised:
            while True:
                anna.process_data_events(PATIENCE)
        self.assertIn("has another password", raised.exception.reply_text)
        self.pika(daemon, "anna", "another")

    def browser(self, user: str, password: str) -> Callable[[str], int]:
        """Log in as a browser does; return what asks in the session, and returns the status."""
        context = client_tls()
        context.check_hostname = False

        def ask(method: str, path: str, body: str = "", **headers: str) -> Any:
            client = http.client.HTTPSConnection(
                "127.0.0.1", self.http, context=context, timeout=PATIENCE
            )
            client.request(method, path, body, headers)
            answer = client.getresponse()
            answer.read()
            client.close()
            return answer

        given = json.dumps({"user": user, "password": password})
        begun = ask("POST", "/api/v1/session", given, **{"Content-Type": "application/json"})
        self.assertEqual(begun.status, 201)
        cookie = begun.headers["Set-Cookie"].partition(";")[0]

        def status(path: str) -> int:
            found: int = ask("GET", path, Cookie=cookie).status
            return found

        return status


class IssuerServer:
    """Serves the documents of an issuer on loopback."""

    def __init__(self) -> None:
        issuer = self.issuer = TokenIssuer()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = issuer.documents().get(self.path)
                body = json.dumps(found).encode()
                self.send_response(404 if found is None else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        issuer.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class TokenTests(RealmCase):
    """A daemon that takes the tokens of an issuer."""

    def test_tokens(self) -> None:
        """Log-ins by each protocol, the end of a token, its renewal, and new keys."""
        server = IssuerServer()
        self.addCleanup(server.close)
        issuer = server.issuer

        def token(seconds: float = 600.0, **claims: Any) -> str:
            return issuer.token({"exp": time.time() + seconds, "sub": "carl", **claims})

        daemon = self.daemon(
            {
                "settings": {
                    "issuers": {
                        "test": {"issuer": issuer.url, "audience": ["amqproute"], "leeway": 0}
                    },
                    "token-passwords": True,
                },
                "mechanisms": ["OAUTHBEARER", "XOAUTH2"],
            },
            [
                {"allow": ["publish", "consume"], "who": "group:orders", "node": "orders"},
                {"allow": ["manage"], "who": "group:ops"},
            ],
        )
        began = time.monotonic()
        client = SaslClient(daemon.tls)
        self.assertIn(b"OAUTHBEARER", client.mechanisms)
        said = b"n,,\1auth=Bearer " + token(BRIEF_SECONDS).encode() + b"\1\1"
        self.assertEqual(outcome(client.init("OAUTHBEARER", said)), 0)
        client.open()
        forgetful = self.pika(daemon, "", token(BRIEF_SECONDS))

        refused = SaslClient(daemon.tls)
        wrong = token(aud="somebody else").encode()
        challenge = refused.init("OAUTHBEARER", b"n,,\1auth=Bearer " + wrong + b"\1\1")
        self.assertEqual(challenge[:3], b"\x00\x53\x42")
        self.assertIn(b"openid-configuration", challenge)
        self.assertEqual(outcome(refused.respond(b"\1")), 1)  # auth
        daemon.wait_log(r"log-in failed from 127\.0\.0\.1, OAUTHBEARER, user \"\": .*aud")

        connection = self.pika(daemon, "whoever", token(BRIEF_SECONDS, scope="orders"))
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "orders", b"with a token", mandatory=True)
        connection.update_secret(token(600, scope="orders"), "it expires soon")

        # Its token expires, and the one of AMQP 1.0 as well, which nothing renews.
        self.assertIn(b"amqp:unauthorized-access", client.frame())
        with self.assertRaises(ConnectionClosedByBroker) as raised:
            while True:
                forgetful.process_data_events(PATIENCE)
        self.assertEqual(raised.exception.reply_code, 530)
        self.assertEqual(channel.basic_get("orders", auto_ack=True)[2], b"with a token")

        status, said = self.ask("/api/v1/session", f"Bearer {token()}")
        self.assertEqual((status, said["principal"]), (200, "user:carl"))
        self.assertEqual(self.ask("/api/v1/queues", f"Bearer {token()}")[0], 403)
        self.assertEqual(self.ask("/api/v1/queues", f"Bearer {token(groups=['ops'])}")[0], 200)
        self.assertEqual(self.ask("/api/v1/session", f"Bearer {token(-1)}")[0], 401)
        self.assertEqual(self.ask("/api/v1/session", f"Bearer {token(sub='anna')}")[0], 401)

        before = token()
        issuer.rotate()
        time.sleep(max(0.0, began + LEAST_SECONDS + 1 - time.monotonic()))
        status, _ = self.ask("/api/v1/session", f"Bearer {token()}")
        self.assertEqual(status, 200)
        self.assertEqual(self.ask("/api/v1/session", f"Bearer {before}")[0], 401)
