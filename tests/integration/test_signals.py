# SPDX-License-Identifier: Apache-2.0
"""Stopping, reloading, and sockets passed by a service manager."""

from __future__ import annotations

import contextlib
import signal
import socket
import ssl
import time
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.users import add_user, remove_user
from amqproute.wire.amqp10 import engine_events as ev
from amqproute.wire.amqp10 import spec
from amqproute.wire.sasl_mechanisms import client_mechanism
from tests.integration.support import (
    Daemon,
    Refused,
    Wire,
    body_of,
    certificates,
    client_tls,
    message,
    until,
)
from tests.support.patience import PATIENCE


class Password:
    """Logs in with PLAIN."""

    def __init__(self, user: str, password: str) -> None:
        self._user, self._password = user, password

    def choose(self, offered: Any) -> Any:
        return client_mechanism(
            "PLAIN", username=self._user, password=self._password, confidential=True
        )


class StopTests(SynchronousTestCase):
    EXECUTED = ("test_clean_close", "test_interrupt")
    """These begin as everybody does, with an interpreter; the others are forked."""

    def setUp(self) -> None:
        self.daemon = Daemon("alpha.example", changes={"nodes": [{"name": "q"}]})
        self.daemon.is_executed = self._testMethodName in self.EXECUTED
        self.daemon.start()
        self.addCleanup(self.daemon.stop)
        self.addCleanup(self.daemon.check)

    def test_clean_close(self) -> None:
        """SIGTERM: clients are told why, the exit code is 0, and it is quick."""
        with Wire(self.daemon.plain) as wire:
            wire.attach("sender", "q")
            begun = time.monotonic()
            self.daemon.signal(signal.SIGTERM)
            closed = until(
                lambda: [each for each in wire.read() if type(each) is ev.ConnectionClosed],
                "the close",
            )[0]
            self.assertEqual(str(closed.error.condition), "amqp:connection:forced")
        self.assertEqual(self.daemon.wait(), 0)
        self.assertLess(time.monotonic() - begun, 10)
        self.assertRegex(self.daemon.log(), "(?m)stopped$")

    def test_many_who_do_not_answer(self) -> None:
        """Clients that are silent cost a stop two seconds together, and the log no line each."""
        with contextlib.ExitStack() as stack:
            for _ in range(100):
                stack.enter_context(Wire(self.daemon.plain))
            until(lambda: self.daemon.log().count(" opened by ") == 100, "all of them")
            mark = self.daemon.mark()
            begun = time.monotonic()
            self.daemon.signal(signal.SIGTERM)
            self.assertEqual(self.daemon.wait(), 0)
        self.assertLess(time.monotonic() - begun, 12)
        told = self.daemon.log()[mark:]
        self.assertLess(len(told.splitlines()), 12)
        self.assertIn("100 connections have not answered the close", told)

    def test_interrupt(self) -> None:
        """SIGINT, as from a terminal."""
        self.daemon.signal(signal.SIGINT)
        self.assertEqual(self.daemon.wait(), 0)

    def test_under_load(self) -> None:
        """Messages accepted before and during the stop are there afterwards, and no others."""
        payloads = [message(b"%d" % n) for n in range(20000)]
        accepted: set[int] = set()
        with Wire(self.daemon.plain) as wire:
            link = wire.attach("sender", "q")
            sent = 0
            stopped = over = False
            while not over:
                room = min(link.sendable, len(payloads) - sent, 200)
                for payload in payloads[sent : sent + room]:
                    link.send((payload,), sent.to_bytes(4, "big"))
                    sent += 1
                with contextlib.suppress(OSError):
                    for event in wire.read():
                        if type(event) is ev.DeliveriesUpdated:
                            self.assertIsInstance(event.state, spec.Accepted)
                            accepted.update(
                                int.from_bytes(each.tag, "big") for each in event.deliveries
                            )
                        over = over or type(event) is ev.ConnectionClosed
                if len(accepted) > 2000 and not stopped:
                    stopped = True
                    self.daemon.signal(signal.SIGTERM)
        self.assertEqual(self.daemon.wait(), 0)
        self.daemon.start()
        with Wire(self.daemon.plain) as wire:
            got = [int(body_of(each)) for each in wire.consume("q", len(accepted))]
        self.assertEqual(got, sorted(got))
        self.assertLessEqual(accepted, set(got) | set(range(sent)))
        self.assertEqual(set(got), accepted)

    def test_consumers_may_settle(self) -> None:
        """A consumer that is busy with a message can still settle it during the stop."""
        with Wire(self.daemon.plain) as wire:
            wire.publish("q", [message(b"1"), message(b"2")])
            link = wire.attach("receiver", "q")
            link.flow(1)
            event = wire.wait(lambda event: type(event) is ev.DeliveriesReceived)
            mark = self.daemon.mark()
            self.daemon.signal(signal.SIGTERM)
            self.daemon.wait_log("stopping", mark)
            wire.session.settle(event.deliveries, spec.Accepted(), True)
            wire.flush()
            with self.assertRaises(Refused):
                wire.wait(lambda _: False)
        self.assertEqual(self.daemon.wait(), 0)
        self.daemon.start()
        with Wire(self.daemon.plain) as wire:
            self.assertEqual(body_of(wire.consume("q", 1)[0]), b"2")

    def test_told_twice(self) -> None:
        """A second SIGTERM, or SIGINT, changes nothing but a line in the log."""
        with Wire(self.daemon.plain) as wire:
            wire.publish("q", [message(b"x")])
            wire.attach("receiver", "q").flow(1)
            # What is not settled holds the stop up.
            wire.wait(lambda event: type(event) is ev.DeliveriesReceived)
            self.daemon.signal(signal.SIGTERM)
            self.daemon.wait_log("SIGTERM: stopping")
            self.daemon.signal(signal.SIGTERM)
            self.daemon.wait_log("SIGTERM again: stopping already, which may take up to")
            self.daemon.signal(signal.SIGINT)
            self.daemon.wait_log("SIGINT again: stopping already")
        self.assertEqual(self.daemon.wait(), 0)
        self.assertNotIn("ReactorNotRunning", self.daemon.log())
        self.daemon.check()

    def test_second_daemon_on_the_same_store(self) -> None:
        """Two daemons on one state directory: the second is refused in words (exit code 1)."""
        other = Daemon("alpha.example", changes=dict(self.daemon.settings))
        other.write(listen=[{"endpoint": f"unix:{other.socket}", "mechanisms": ["EXTERNAL"]}])
        other.spawn()
        self.assertEqual(other.wait(), 1)
        self.assertRegex(other.log(), "cannot start: .*store")
        self.assertNotIn("Traceback", other.log())

    def test_port_in_use(self) -> None:
        other = Daemon("beta.example")
        other.write(listen=[{"endpoint": other.endpoint(self.daemon.plain),
                             "mechanisms": ["ANONYMOUS"]}])  # fmt: skip
        other.spawn()
        self.assertEqual(other.wait(), 1)
        self.assertRegex(other.log(), r"cannot start: cannot listen at .*in use")
        self.assertNotIn("Traceback", other.log())

    def test_bad_configuration(self) -> None:
        """Exit code 2 and the file, the line and the key."""
        other = Daemon("beta.example")
        other.write(domain=["typo.example"])
        other.spawn()
        self.assertEqual(other.wait(), 2)
        self.assertRegex(other.log(), r"amqproute\.yaml:\d+: domain: ")


class ReloadTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.daemon = Daemon("alpha.example", changes={"nodes": [{"name": "q"}]}).start()
        self.addCleanup(self.daemon.stop)
        self.addCleanup(self.daemon.check)

    def login(self, user: str, password: str) -> Wire:
        """Log in with a password; attach to q."""
        wire = Wire(self.daemon.tls, tls=client_tls(), sasl_client=Password(user, password))
        self.addCleanup(wire.socket.close)
        wire.attach("sender", "q")
        return wire

    def shown_certificate(self) -> int:
        """Return the serial number of the certificate that new connections see."""
        plain = socket.create_connection(("127.0.0.1", self.daemon.tls), 10)
        with plain, client_tls().wrap_socket(plain, server_hostname="alpha.example") as secured:
            found = secured.getpeercert()
            assert found is not None
            return int(str(found["serialNumber"]), 16)

    def test_everything(self) -> None:
        """Certificates, users, access, nodes and routes; old connections stay."""
        with Wire(self.daemon.plain) as old:
            old.attach("sender", "q")
            with self.assertRaises(Refused):
                self.login("carla", "new")
            before = self.shown_certificate()
            issued = certificates().issue("alpha.example", serial=before + 1)
            add_user(self.daemon.users, "carla", "new", iterations=4096)
            remove_user(self.daemon.users, "bob")
            everything = ["publish", "consume", "create", "browse", "manage"]
            self.daemon.reload(
                nodes=[{"name": "q"}, {"name": "fresh"}],
                aliases={"also": "fresh"},
                access=[
                    {"allow": everything, "who": "anonymous"},
                    {"allow": ["publish"], "who": "user:carla", "node": "q"},
                    {"allow": ["publish"], "who": "user:bob", "node": "q"},
                ],
                tls={**self.daemon.settings["tls"], "certificate": str(issued.chain),
                     "private-key": str(issued.private_key)},
            )  # fmt: skip
            old.publish("also", [message(b"x")])
            self.assertEqual(body_of(old.consume("fresh", 1)[0]), b"x")
        self.login("carla", "new")
        with self.assertRaises(Refused):
            self.login("anna", "secret")  # the user is there, the right is not
        with self.assertRaises(Refused):
            self.login("bob", "hidden")
        self.daemon.wait_log("reloaded ")
        self.assertEqual(self.shown_certificate(), before + 1)

    def test_alias_goes(self) -> None:
        """A-05: links to an alias that a reload takes away are detached, those to its node stay."""
        self.daemon.reload(aliases={"nick": "q"})
        with Wire(self.daemon.plain) as old, Wire(self.daemon.plain) as other:
            old.attach("sender", "nick")
            other.attach("sender", "q")
            self.daemon.reload(aliases={})
            with self.assertRaises(Refused) as caught:
                old.wait(lambda _: False)
            assert caught.exception.error is not None
            self.assertEqual(str(caught.exception.error.condition), "amqp:resource-deleted")
            other.publish("q", [message(b"x")])

    def test_users_file(self) -> None:
        """Another users file counts; one that has gone is a mistake, and nobody is locked out."""
        elsewhere = self.daemon.directory / "elsewhere.yaml"
        add_user(elsewhere, "dora", "new", iterations=4096)
        access = [{"allow": ["publish"], "who": "user:*"}]
        self.daemon.reload(users={"file": str(elsewhere)}, access=access)
        self.login("dora", "new")
        with self.assertRaises(Refused):
            self.login("anna", "secret")
        elsewhere.unlink()
        mark = self.daemon.mark()
        self.daemon.reload()
        self.daemon.wait_log("reload refused.*elsewhere.yaml", mark)
        self.login("dora", "new")
        self.daemon._checked = self.daemon.mark()

    def test_certificate_in_place(self) -> None:
        """The file is replaced under its name, as renewal does."""
        before = self.shown_certificate()
        issued = certificates().issue("alpha.example", serial=before + 1)
        tls = self.daemon.settings["tls"]
        for source, target in (
            (issued.chain, tls["certificate"]), (issued.private_key, tls["private-key"]),
        ):  # fmt: skip
            with open(source, "rb") as new, open(target, "wb") as old:
                old.write(new.read())
        self.daemon.reload()
        self.assertEqual(self.shown_certificate(), before + 1)

    def test_bad_files(self) -> None:
        """After any fault the old configuration stays, and the log names the place."""
        settings = dict(self.daemon.settings)
        cases: list[tuple[dict[str, Any], str]] = [
            ({"nodes": [{"name": "amqp$mine"}]}, r"nodes"),
            ({"relay": {"first-retry": "soon"}}, r"first-retry"),
            ({"aliases": {"x": "nowhere"}}, r"aliases"),
            ({"tls": {**settings["tls"], "certificate": "/nonexistent.pem"}}, r"nonexistent"),
        ]
        for changes, words in cases:
            mark = self.daemon.mark()
            self.daemon.settings = dict(settings)
            self.daemon.reload(**changes)
            # An operator's mistake is logged as an error; it is none of the daemon's.
            line = self.daemon.wait_log("reload refused, the old configuration stays.*", mark)
            self.assertRegex(self.daemon.log()[mark:], words, line)
            self.assertNotIn("Traceback", self.daemon.log()[mark:])
            with Wire(self.daemon.plain) as wire:
                wire.publish("q", [message(b"x")])
                wire.consume("q", 1)
        self.daemon.file.write_text("nodes: [")
        mark = self.daemon.mark()
        self.daemon.signal(signal.SIGHUP)
        self.daemon.wait_log("reload refused", mark)
        self.daemon._checked = self.daemon.mark()

    def test_removed_node(self) -> None:
        """A node that the file does not name any more stays while it holds messages."""
        with Wire(self.daemon.plain) as wire:
            wire.publish("q", [message(b"x")])
            self.daemon.reload(nodes=[])
            self.daemon.wait_log("node q is not in the configuration any more but holds 1 messages")
            self.assertEqual(len(wire.consume("q", 1)), 1)

        def removed() -> bool:
            # The acceptance may still be on its way when the signal comes.
            self.daemon.reload()
            return "node q removed" in self.daemon.log()

        until(removed, "the node to be removed")
        with Wire(self.daemon.plain) as wire, self.assertRaises(Refused):
            wire.attach("sender", "q")


class ActivationTests(SynchronousTestCase):
    def test_sockets_of_systemd(self) -> None:
        """LISTEN_FDS: connections that came before the daemon are served by it."""
        daemon = Daemon("alpha.example")
        with (
            socket.create_server(("127.0.0.1", 0)) as plain,
            socket.create_server(("127.0.0.1", 0)) as secured,
        ):
            # The child finds them at 3 and 4: that is where systemd puts them.
            daemon.write(
                nodes=[{"name": "q"}],
                listen=[
                    {"endpoint": "systemd:domain=INET:index=0", "mechanisms": ["ANONYMOUS"]},
                    {"endpoint": "systemd:domain=INET:index=1", "tls": "implicit",
                     "client-certificate": "optional", "mechanisms": ["EXTERNAL", "PLAIN"]},
                ],
            )  # fmt: skip
            early = socket.create_connection(plain.getsockname())
            self.addCleanup(early.close)
            self.addCleanup(daemon.stop)
            daemon.activate([plain, secured])
            port = plain.getsockname()[1]
            with Wire(port) as wire:
                wire.publish("q", [message(b"x")])
                self.assertEqual(body_of(wire.consume("q", 1)[0]), b"x")
            early.settimeout(PATIENCE)
            early.sendall(b"AMQP\0\1\0\0")
            self.assertEqual(early.recv(8), b"AMQP\0\1\0\0")
            with socket.create_connection(secured.getsockname(), 10) as raw:
                context: ssl.SSLContext = client_tls()
                with context.wrap_socket(raw, server_hostname="alpha.example") as tls:
                    self.assertIn("TLS", tls.version() or "")
            self.assertEqual(daemon.stop(), 0)
            # They are systemd's: still open, for the next start.
            socket.create_connection(plain.getsockname()).close()
        daemon.check()
