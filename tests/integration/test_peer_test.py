# SPDX-License-Identifier: Apache-2.0
"""``peer test`` against partners' mistakes: each has its code, its step and a remedy."""

from __future__ import annotations

import contextlib
import datetime
import json
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import Any

from cryptography import x509
from twisted.trial.unittest import SynchronousTestCase

from amqproute.net.authority import Issued
from amqproute.net.dane import record_of
from amqproute.wire.amqp10 import engine_events as ev
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.connection import Connection, ConnectionSettings
from amqproute.wire.amqp10.types import UInt
from amqproute.wire.sasl_mechanisms import ExternalIdentity, ServerContext, server_mechanism
from tests.integration.support import (
    Certificates,
    Daemon,
    Wire,
    Zone,
    certificates,
    frame,
    free_ports,
    message,
    new_directory,
    until,
)
from tests.integration.test_federation import Impostor
from tests.integration.test_operator import command
from tests.support.patience import PATIENCE
from tests.support.signing import SignedTree

BETA = "beta.example"


class Foreign:
    """A broker of another make, behind TLS: no capability, no probe node.

    Args:
        issued: its certificate.
        takes: it accepts links; else it refuses them.
        credit: what it gives on each.
        frame_size: the max-frame-size that it claims.
    """

    mechanisms = ("EXTERNAL",)

    def __init__(
        self, issued: Issued, *, takes: bool = True, credit: int = 10, frame_size: int = 0
    ) -> None:
        self._takes = takes
        self._credit = credit
        self._frame_size = frame_size
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(issued.chain, issued.private_key)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def start(self, name: str) -> Any:
        """Begin an exchange, as a SASL authority."""
        identity = ExternalIdentity("peer", ("alpha.example",))
        context = ServerContext(
            lambda _: None, "n" * 24, b"k" * 32, external=identity, confidential=True
        )
        return server_mechanism(name, context)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _ = self._socket.accept()
                plain.settimeout(PATIENCE)
                with (
                    contextlib.suppress(OSError),
                    self._context.wrap_socket(plain, server_side=True) as secured,
                ):
                    self._talk(secured)

    def _talk(self, secured: ssl.SSLSocket) -> None:
        engine = Connection(
            ConnectionSettings(role="server", container_id="foreign"), sasl_server=self
        )
        engine.start(time.monotonic())
        while not engine.is_closed:
            secured.sendall(b"".join(engine.data_to_send()))
            data = secured.recv(65536)
            if not data:
                return
            for event in engine.receive_data(data, time.monotonic()):
                if type(event) is ev.OpenReceived and self._frame_size:
                    secured.sendall(b"".join(engine.data_to_send()))
                    size = UInt(self._frame_size)
                    secured.sendall(frame(spec.Open(container_id="foreign", max_frame_size=size)))
                elif type(event) is ev.OpenReceived:
                    engine.open()
                elif type(event) is ev.SessionBegun:
                    event.session.accept()
                elif type(event) is ev.LinkAttached:
                    if self._takes:
                        event.link.accept(target=event.attach.target)
                        event.link.flow(self._credit)
                    else:
                        event.link.refuse("amqp:not-found", "no such address", None)
        secured.sendall(b"".join(engine.data_to_send()))

    def close(self) -> None:
        """Listen no more."""
        self._socket.close()


class PeerTestCase(SynchronousTestCase):
    """The configuration of alpha, which need not run."""

    def setUp(self) -> None:
        self.zone = Zone()
        self.addCleanup(self.zone.close)
        self.alpha = Daemon("alpha.example", nameserver=self.zone.port)
        # Who is called looks the caller up as well.
        self.zone.point("alpha.example", self.alpha.tls)
        self.alpha.settings["relay"].update({"connect-timeout": 3})
        self.alpha.write()

    def beta(self, **changes: Any) -> Daemon:
        """Start a partner that runs this program."""
        listen = changes.pop("tls_listener", {})
        beta = Daemon(
            BETA,
            nameserver=self.zone.port,
            changes={"nodes": [{"name": "orders"}, {"name": "full", "capacity": 1}], **changes},
        )
        beta.settings["listen"][3].update(listen)
        beta.write()
        beta.start()
        self.addCleanup(beta.stop)
        self.addCleanup(beta.check)
        self.zone.point(BETA, beta.tls)
        return beta

    def outcome(self, to: str = BETA, *args: str, code: int = 0) -> dict[str, Any]:
        """Test, and return what was found."""
        done = command(self.alpha, "peer", "test", to, *args, "--json")
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        facts: dict[str, Any] = json.loads(done.stdout)
        return facts

    def fails(self, step: str, code: str, *parts: str, to: str = BETA, args: Any = ()) -> Any:
        """Test; assert which step fails, with which code, in which words, and that there is a cure.

        Returns:
            What was found.
        """
        facts = self.outcome(to, *args, code=1)
        (failed,) = [each for each in facts["steps"] if each["state"] == "failed"]
        self.assertEqual((failed["step"], failed["code"]), (step, code), failed)
        self.assertEqual(facts["code"], code)
        self.assertTrue(failed["next"], failed)
        told = f"{failed['words']} {' '.join(failed['details'])} {failed['next']}"
        for part in parts:
            self.assertIn(part, told)
        return facts

    def show(self, issued: Issued) -> None:
        """Have beta's place show a certificate."""
        impostor = Impostor(issued)
        self.addCleanup(impostor.close)
        self.zone.point(BETA, impostor.port)

    def seen(self, beta: Daemon, probe: str | None = None) -> list[dict[str, Any]]:
        """Return what the partner saw."""
        args = () if probe is None else ("--id", probe)
        shown = command(beta, "peer", "probes", *args, "--json")
        rows: list[dict[str, Any]] = json.loads(shown.stdout)["probes"]
        return rows


class GoodTests(PeerTestCase):
    """The way is good."""

    def test_all_steps(self) -> None:
        """Each step is reported; the partner shows the same probe; nothing is queued."""
        beta = self.beta()
        facts = self.outcome("orders@beta.example")
        steps = [each["step"] for each in facts["steps"]]
        self.assertEqual(
            steps,
            ["configuration", "dns", "tcp", "tls", "sasl", "open", "attach", "capability", "probe"],
        )
        self.assertEqual({each["state"] for each in facts["steps"]}, {"ok"})
        self.assertIn("peer:alpha.example", facts["steps"][-2]["words"])
        rows = self.seen(beta, facts["probe"])
        self.assertEqual({row["step"]: row["code"] for row in rows}, {"open": "ok", "probe": "ok"})
        shown = command(beta, "queue", "show", "orders", "--json")
        self.assertEqual(json.loads(shown.stdout)["enqueued"], 0)
        done = command(self.alpha, "peer", "test", BETA)
        self.assertIn("ok: messages can go there", done.stdout)
        self.assertRegex(done.stdout, r"(?m)^ok +\d+ ms  tls broker1.beta.example:\d+: TLSv1.3")

    def test_quota_and_access(self) -> None:
        """The partner's verdicts on a message: too many, not allowed, no such node, size."""
        beta = self.beta(
            access=[
                {"allow": ["publish"], "who": "anonymous"},
                {"deny": ["transfer"], "who": "peer:*", "node": "orders"},
                {"allow": ["transfer"], "who": "peer:*"},
            ],
            limits={"max-message-size": 100_000},
        )
        facts = self.fails("probe", "amqp:unauthorized-access", to="orders@beta.example")
        rule = '{allow: [transfer], who: "peer:alpha.example", node: "orders"}'
        self.assertIn(rule, facts["steps"][-1]["next"])
        (row,) = [row for row in self.seen(beta, facts["probe"]) if row["step"] == "probe"]
        self.assertEqual(
            (row["code"], row["who"]), ("amqp:unauthorized-access", "peer:alpha.example")
        )
        with Wire(beta.plain) as wire:
            wire.publish("full", [message(b"the only one")])
        self.fails("probe", "amqp:resource-limit-exceeded", "capacity", to="full@beta.example")
        self.fails("probe", "amqp:not-found", to="nowhere@beta.example")
        self.fails("probe", "amqp:link:message-size-exceeded", "100000", args=("--size", "200000"))
        self.outcome("full@alpha.example", code=1)
        self.assertEqual(command(self.alpha, "peer", "test", "no domain").returncode, 2)


class MistakeTests(PeerTestCase):
    """Common mistakes of partners."""

    def test_certificates(self) -> None:
        """Expired, not valid yet (clock skew), another name, an unknown authority."""
        now = datetime.datetime.now(datetime.UTC)
        day = datetime.timedelta(days=1)
        self.show(certificates().issue(BETA, not_before=now - 9 * day, not_after=now - day))
        self.fails("tls", "tls.expired", "renew")
        self.show(certificates().issue(BETA, not_before=now + day, not_after=now + 9 * day))
        self.fails("tls", "tls.not-yet-valid", "clock")
        self.show(certificates().issue("host.wrong.example"))
        self.fails("tls", "tls.name", BETA, "host.wrong.example", "TLSA")
        self.show(Certificates().issue(BETA))
        self.fails("tls", "tls.untrusted", "tls.trust")

    def test_ways(self) -> None:
        """SRV to a wrong port, a black hole, a port without TLS, no such domain."""
        self.zone.point(BETA, free_ports(1)[0])
        self.fails("tcp", "connect.refused", "SRV")
        with contextlib.ExitStack() as stack:
            hole = stack.enter_context(socket.socket())
            hole.bind(("127.0.0.1", 0))
            hole.listen(0)
            for _ in range(4):  # a full backlog: what comes now is not answered
                full = stack.enter_context(socket.socket())
                full.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    full.connect(hole.getsockname())
            self.zone.point(BETA, hole.getsockname()[1])
            self.fails("tcp", "connect.timeout", "firewall")
        beta = self.beta()
        self.zone.point(BETA, beta.plain)
        self.fails("tls", "tls.handshake", "peer probes", "_amqp._tcp")
        self.fails("dns", "dns.nxdomain", to="nowhere.beta.example")

    def test_sasl(self) -> None:
        """The partner does not offer EXTERNAL; it has seen who was refused."""
        beta = self.beta(tls_listener={"mechanisms": ["SCRAM-SHA-256"]})
        self.fails("sasl", "sasl.refused", "EXTERNAL")
        self.assertTrue(beta.log())

    def test_our_certificate(self) -> None:
        """The partner does not take us: we say what we showed, its screen has the code."""
        beta = self.beta()
        issued = certificates().issue("elsewhere.example")
        named = {"certificate": str(issued.chain), "private-key": str(issued.private_key)}
        for tls, shown, code in (
            (_strange("alpha.example"), "names alpha.example; valid until", "tls.untrusted"),
            (named, "names elsewhere.example; valid until", "dns."),
        ):
            self.alpha.settings["tls"].update(tls)
            self.alpha.write()
            facts = self.fails("sasl", "peer.lost", shown, "without a word", "peer probes")
            self.assertIn(shown, facts["steps"][0]["details"][0])
            self.assertTrue(self.seen(beta)[0]["code"].startswith(code))
        self.assertIn("none of our domains (alpha.example)", facts["steps"][0]["details"][1])
        done = command(self.alpha, "peer", "test", BETA)
        self.assertIn("it has not heard the id yet", done.stderr)

    def test_without_certificate(self) -> None:
        """We have none: nothing is asked of the partner, and it is said what to configure."""
        del self.alpha.settings["tls"]["certificate"], self.alpha.settings["tls"]["private-key"]
        listen = self.alpha.settings["listen"]
        listen[:] = [each for each in listen if each.get("tls", "none") == "none"]
        self.alpha.write()
        self.fails("configuration", "tls.file", "tls.certificate", "certs issue")
        done = command(self.alpha, "peer", "test", BETA)
        self.assertIn("the partner has seen nothing", done.stderr)

    def test_foreign(self) -> None:
        """No amqproute: the way is good, and nobody can be asked; or it takes no transfers."""
        issued = certificates().issue(BETA)
        for takes, code in ((True, 0), (False, 1)):
            foreign = Foreign(issued, takes=takes)
            self.addCleanup(foreign.close)
            self.zone.point(BETA, foreign.port)
            facts = self.outcome(code=code)
            last = facts["steps"][-1]
            self.assertEqual(
                (last["step"], last["code"]),
                ("capability", "peer.no-probe") if takes else ("attach", "amqp:not-found"),
            )

    def test_closed(self) -> None:
        """The partner's disk is full: it gives no credit, and nothing can go there."""
        beta = self.beta(store={"min-free": "99%"})
        for to in (BETA, "orders@beta.example"):
            facts = self.fails("probe", "peer.no-credit", "disk", "status", to=to)
        (row,) = [row for row in self.seen(beta, facts["probe"]) if row["step"] == "probe"]
        self.assertEqual(row["code"], "peer.no-credit")
        done = command(self.alpha, "peer", "test", BETA)
        self.assertEqual(done.returncode, 1)
        self.assertNotIn("messages can go there", done.stdout)
        beta.reload(store={"min-free": 0})
        until(lambda: self.outcome_code() == 0, "the gate is open")

    def outcome_code(self) -> int:
        """Test, and return the exit code."""
        return command(self.alpha, "peer", "test", BETA).returncode

    def test_without_credit(self) -> None:
        """A broker that cannot be asked gives no credit for messages."""
        foreign = Foreign(certificates().issue(BETA), credit=0)
        self.addCleanup(foreign.close)
        self.zone.point(BETA, foreign.port)
        self.fails("credit", "peer.no-credit", "within 5 s")

    def test_frame_size(self) -> None:
        """A max-frame-size below what the standard allows."""
        foreign = Foreign(certificates().issue(BETA), frame_size=100)
        self.addCleanup(foreign.close)
        self.zone.point(BETA, foreign.port)
        facts = self.outcome(code=1)
        last = facts["steps"][-1]
        self.assertEqual((last["step"], last["state"]), ("open", "failed"), last)
        self.assertIn("max-frame-size", last["words"])

    def test_stale_tlsa(self) -> None:
        """The records name another key than the one in use."""
        tree = SignedTree({BETA: ""}, now=time.time())
        self.zone.authority = tree.authority
        anchors = new_directory() / "anchors"
        anchors.write_text(tree.anchor_text)
        self.alpha.settings["resolver"].update({"validate": "self", "anchors": str(anchors)})
        self.alpha.write()
        used, old = (certificates().issue(BETA) for _ in range(2))
        impostor = Impostor(used)
        self.addCleanup(impostor.close)
        stale = record_of(x509.load_pem_x509_certificates(old.chain.read_bytes())[0])
        tree.replace(
            BETA,
            f"_amqps._tcp SRV 0 0 {impostor.port} broker1\nbroker1 A 127.0.0.1\n"
            f"_{impostor.port}._tcp.broker1 TLSA {stale}\n",
            ttl=60,
        )
        self.fails("tls", "dane.mismatch", "dns print")


def _strange(name: str) -> dict[str, str]:
    """Return a certificate of an authority that nobody knows."""
    issued = Certificates().issue(name)
    return {"certificate": str(issued.chain), "private-key": str(Path(issued.private_key))}
