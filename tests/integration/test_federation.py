# SPDX-License-Identifier: Apache-2.0
"""Two organizations, two daemons, one DNS: the main job end to end (T rows, W-13 to W-21)."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Sequence
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.net.authority import Issued
from amqproute.resolver.zone import ZoneFault, ZoneFaultKind
from amqproute.wire.amqp10 import codec, sections, spec
from amqproute.wire.amqp10 import engine_events as ev
from amqproute.wire.amqp10.types import Symbol
from amqproute.wire.sasl_mechanisms import client_mechanism
from tests.integration import support
from tests.integration.support import (
    Certificates,
    Daemon,
    Refused,
    Wire,
    Zone,
    body_of,
    certificates,
    client_tls,
    free_ports,
    message,
    until,
)
from tests.support.patience import PATIENCE

TRACE = Symbol("x-opt-amqproute-trace")
RETURN_TO = Symbol("x-opt-return-to")


def annotations_of(payload: bytes) -> dict[Any, Any]:
    """Return the message annotations of an encoded message."""
    at = sections.locate(payload)
    start, end = at.message_annotations_start, at.message_annotations_end
    return sections.decode_section(payload, start, end) or {}


def bare(payload: bytes) -> bytes:
    """Return what no intermediary may change."""
    at = sections.locate(payload)
    return payload[at.bare_start : at.bare_end]


def annotated(payload: bytes, annotations: dict[Any, Any]) -> bytes:
    """Put message annotations into a message of `message`."""
    cut = sections.locate(payload).header_end
    return payload[:cut] + sections.encode_section(0x72, annotations) + payload[cut:]


class Password:
    """Logs in with PLAIN."""

    def __init__(self, user: str, password: str) -> None:
        self._user, self._password = user, password

    def choose(self, offered: Sequence[str]) -> Any:
        return client_mechanism(
            "PLAIN", username=self._user, password=self._password, confidential=True
        )


class Impostor:
    """A TLS server on loopback that keeps what clients say to it after the handshake."""

    def __init__(self, issued: Issued) -> None:
        self.heard: list[bytes] = []
        self.called = 0
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(issued.chain, issued.private_key)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _ = self._socket.accept()
                plain.settimeout(PATIENCE)
                self.called += 1
                with (
                    contextlib.suppress(OSError),
                    self._context.wrap_socket(plain, server_side=True) as secured,
                ):
                    while data := secured.recv(65536):
                        self.heard.append(data)

    def close(self) -> None:
        self._socket.close()


BETA = ("beta.example", "second.example", "upgraded.example", "flaky.example", "kept.example",
        "late-dns.example", "silent-dns.example")  # fmt: skip


ELSEWHERE = ("test_request_response", "test_reports", "test_delivered")
"""Nodes of tests in other modules, by their names: `tests.integration.test_replies`."""


class World:
    """A name server, alpha, and beta with several domains."""

    def __init__(self) -> None:
        self.zone = Zone()
        names = (*FederationTests.names(), *ELSEWHERE, "orders", "answers")
        nodes = [{"name": name} for name in names]
        port = self.zone.port
        self.beta = Daemon(
            BETA[0], domains=BETA[1:], nameserver=port, changes={"nodes": nodes},
        )  # fmt: skip
        # A gateway's own name only, in front of via.example.
        self.gateway = Daemon(
            "gateway.example", nameserver=port, changes={
                "nodes": nodes, "domains": ["via.example"],
                "routes": [{"domain": "loop.example", "via": "amqps://127.0.0.1:1"}],
            },
        )  # fmt: skip
        routes = [
            {"domain": "via.example", "via": f"amqps://127.0.0.1:{self.gateway.tls}",
             "names": ["gateway.example"]},
            {"domain": "loop.example", "via": f"amqps://127.0.0.1:{self.beta.tls}",
             "names": ["beta.example"]},
        ]  # fmt: skip
        everything = ["publish", "consume", "create", "browse", "manage"]
        self.alpha = Daemon(
            "alpha.example", nameserver=port, changes={
                "nodes": nodes,
                "routes": routes,
                "peers": {"beta.example": {"relay-for": ["loop.example"]}},
                "access": [
                    {"allow": everything, "who": "anonymous"},
                    {"allow": ["publish"], "who": "user:bob", "node": "@beta.example"},
                    {"allow": ["transfer"], "who": "peer:*"},
                ],
            },
        )  # fmt: skip
        self.beta.write(
            routes=[{"domain": "loop.example", "via": f"amqps://127.0.0.1:{self.alpha.tls}",
                     "names": ["alpha.example"]}],
            peers={"alpha.example": {"relay-for": ["loop.example"]}},
        )  # fmt: skip
        self.daemons = (self.alpha, self.beta, self.gateway)
        for daemon in self.daemons:
            daemon.spawn()
        for daemon in self.daemons:
            daemon.wait_ready()
        self.zone.point("alpha.example", self.alpha.tls, ttl=60)
        self.zone.point("beta.example", self.beta.tls, ttl=60)


class FederationTestCase(SynchronousTestCase):
    @classmethod
    def names(cls) -> list[str]:
        return [name for name in dir(cls) if name.startswith("test_")]

    def setUp(self) -> None:
        world = self.world = support.shared(World)
        self.zone, self.alpha, self.beta = world.zone, world.alpha, world.beta
        self.node = self.id().rpartition(".")[2]
        self.begun_at = self.alpha.mark()
        for daemon in world.daemons:
            self.addCleanup(daemon.check)

    def publish(self, address: str | None, messages: Sequence[bytes], port: int = 0) -> None:
        with Wire(port or self.alpha.plain) as wire:
            wire.publish(address, messages)

    def consume(self, daemon: Daemon, count: int, node: str = "") -> list[bytes]:
        with Wire(daemon.plain) as wire:
            return wire.consume(node or self.node, count)

    def refusal(self, address: str, port: int = 0) -> spec.Error:
        """Return why a link to an address is refused."""
        with Wire(port or self.alpha.plain) as wire:
            try:
                wire.attach("sender", address)
            except Refused as refused:
                return refused.error or spec.Error(condition="")
        raise AssertionError(f"{address} is not refused")

    def outcome(self, address: str | None, payload: bytes, **options: Any) -> Any:
        """Send one message; return the outcome or the detach."""
        with Wire(options.pop("port", self.alpha.plain), **options) as wire:
            link = wire.attach("sender", address)
            until(lambda: link.sendable or wire.read(), "credit")
            link.send((payload,), b"tag")
            try:
                return wire.wait(lambda event: type(event) is ev.DeliveriesUpdated).state
            except Refused as refused:
                return refused.error


class FederationTests(FederationTestCase):
    def test_transfer(self) -> None:
        """W-13: accepted while the other side is down; then in order, unchanged, once."""
        late = Daemon("late.example", nameserver=self.zone.port,
                      changes={"nodes": [{"name": "orders"}]})  # fmt: skip
        self.addCleanup(late.stop)
        self.zone.point("late.example", late.tls)
        to = "orders@late.example"
        messages = [
            message(
                b"%d" % n,
                to,
                subject=f"n\u00b0 {n}",
                message_id=f"id-{n}",
                reply_to="answers@alpha.example",
            )
            for n in range(50)
        ]
        self.publish(to, messages)
        self.alpha.wait_log("late.example cannot be reached", self.begun_at)
        late.start()
        got = self.consume(late, 50, "orders")
        self.assertEqual([bare(each) for each in got], [bare(each) for each in messages])
        for each in got:
            self.assertEqual(annotations_of(each)[TRACE], ["broker1.alpha.example"])
            self.assertTrue(sections.decode_section(each, 0, sections.locate(each).header_end)
                            .durable)  # fmt: skip
        self.alpha.wait_log("late.example reached again", self.begun_at)
        late.check()

    def test_supplied_to(self) -> None:
        """A message without `to` gets that of the alias it is sent by (T-14)."""
        self.publish(f"{self.node}@beta.example", [message(b"x", None, subject="s")])
        (got,) = self.consume(self.beta, 1)
        at = sections.locate(got)
        properties = sections.decode_section(got, at.properties_start, at.properties_end)
        self.assertEqual(properties.to, f"{self.node}@beta.example")
        self.assertEqual(properties.subject, "s")

    def test_by_to(self) -> None:
        """Through the transfer service and the anonymous terminus, each by its `to`."""
        for address in ("amqp$transfer", None):
            to = f"{self.node}@BETA.example."
            self.publish(address, [message(b"x", to)])
            (got,) = self.consume(self.beta, 1)
            self.assertEqual(sections.find_to(got, sections.locate(got)), to)

    def test_settled(self) -> None:
        """At most once, over both hops."""
        with Wire(self.alpha.plain) as wire:
            link = wire.attach("sender", f"{self.node}@beta.example", snd_settle_mode=1)
            until(lambda: link.sendable or wire.read(), "credit")
            link.send((message(b"x", durable=False),), b"t", settled=True)
            wire.flush()
            self.assertEqual(body_of(self.consume(self.beta, 1)[0]), b"x")

    def test_lifetime(self) -> None:
        """The time spent on the way counts (T-30, W-19)."""
        payload = (
            codec.encode(spec.Header(durable=True, ttl=60_000))
            + message(b"x")[len(codec.encode(spec.Header(durable=True))) :]
        )
        self.publish(f"{self.node}@beta.example", [payload])
        (got,) = self.consume(self.beta, 1)
        header = sections.decode_section(got, 0, sections.locate(got).header_end)
        self.assertTrue(0 < header.ttl <= 60_000, header)

    def test_large(self) -> None:
        body = bytes(range(256)) * 4096 * 8
        self.publish(f"{self.node}@beta.example", [message(body)])
        self.assertTrue(body_of(self.consume(self.beta, 1)[0]) == body)

    def test_second_target(self) -> None:
        """The first SRV target is dead: the second is used (W-14)."""
        (dead,) = free_ports(1)
        self.zone.point("second.example", dead, self.beta.tls)
        self.publish(f"{self.node}@second.example", [message(b"x")])
        self.assertEqual(body_of(self.consume(self.beta, 1)[0]), b"x")

    def test_no_service(self) -> None:
        """SRV ".": refused at once, at attach and by `to` (T-25)."""
        self.zone.set("closed.example", "_amqps._tcp SRV 0 0 0 .", "_amqp._tcp SRV 0 0 0 .", ttl=60)
        error = self.refusal("q@closed.example")
        self.assertEqual(str(error.condition), "amqp:not-found")
        state = self.outcome("amqp$transfer", message(b"x", "q@closed.example"))
        self.assertIsInstance(state, spec.Rejected)
        self.assertEqual(str(state.error.condition), "amqp:not-found")
        self.alpha.wait_log(r"127\.0\.0\.1:\d+ .* refused: .*closed\.example", self.begun_at)

    def test_no_domain(self) -> None:
        """NXDOMAIN: likewise."""
        self.zone.set("parent.example", ttl=60)
        error = self.refusal("q@nothing.parent.example")
        self.assertEqual(str(error.condition), "amqp:not-found")
        state = self.outcome(None, message(b"x", "q@nothing.parent.example"))
        self.assertEqual(str(state.error.condition), "amqp:not-found")

    def test_name_server_in_trouble(self) -> None:
        """SERVFAIL and silence are no proof: taken, and delivered when DNS is well again."""
        for domain, kind in (
            ("late-dns.example", ZoneFaultKind.SERVFAIL),
            ("silent-dns.example", ZoneFaultKind.DROP),
        ):
            self.zone.point(domain, self.beta.tls)
            for name in ("_amqps._tcp.", "_amqp._tcp.", ""):
                self.zone.authority.set_fault(name + domain, ZoneFault(kind))
            self.publish(f"{self.node}@{domain}", [message(domain.encode())])
            self.alpha.wait_log(f"{domain} cannot be reached", self.begun_at)
        self.zone.authority.clear_faults()
        bodies = {body_of(each) for each in self.consume(self.beta, 2)}
        self.assertEqual(bodies, {b"late-dns.example", b"silent-dns.example"})

    def test_wrong_certificate(self) -> None:
        """A server that cannot prove the domain hears nothing (W-13, A-14)."""
        cases = {
            "wrong-name.example": certificates().issue("somebody-else.example"),
            "wrong-authority.example": Certificates().issue("wrong-authority.example"),
        }
        for domain, issued in cases.items():
            impostor = Impostor(issued)
            self.addCleanup(impostor.close)
            self.zone.point(domain, impostor.port)
            self.publish(f"q@{domain}", [message(b"secret")])
            line = self.alpha.wait_log(f".*{domain} cannot be reached.*", self.begun_at)[0]
            self.assertRegex(line, "certificate|name|authority")
            until(lambda impostor=impostor: impostor.called >= 2, "a second attempt")
            self.assertEqual(impostor.heard, [])

    def test_static_route(self) -> None:
        """A gateway by configuration, with its own name on the certificate (T-08)."""
        self.publish(f"{self.node}@via.example", [message(b"x")])
        self.assertEqual(body_of(self.consume(self.world.gateway, 1)[0]), b"x")

    def test_upgrade(self) -> None:
        """`_amqp._tcp`: TLS by the AMQP header (A-12)."""
        self.zone.point("upgraded.example", self.beta.upgrade, service="_amqp._tcp")
        mark = self.beta.mark()
        self.publish(f"{self.node}@upgraded.example", [message(b"x")])
        self.assertEqual(body_of(self.consume(self.beta, 1)[0]), b"x")
        self.beta.wait_log(r"opened by peer:alpha\.example, .*TLSv1\.3", mark)

    def test_srv_id(self) -> None:
        """A certificate with an SRV-ID and no DNS-ID proves the domain (RFC 4985)."""
        issued = certificates().issue(
            "srvid.example", dns_names=[], srv_names=["_amqps.srvid.example"]
        )
        daemon = Daemon("srvid.example", issued=issued, nameserver=self.zone.port,
                        changes={"nodes": [{"name": self.node}]}).start()  # fmt: skip
        self.addCleanup(daemon.stop)
        self.zone.point("srvid.example", daemon.tls)
        self.publish(f"{self.node}@srvid.example", [message(b"x")])
        self.assertEqual(body_of(self.consume(daemon, 1)[0]), b"x")
        daemon.check()

    def test_alias_and_access(self) -> None:
        """W-15: a user who may use ``@beta.example`` and nothing else."""
        options = {"tls": client_tls(), "sasl_client": Password("bob", "hidden"),
                   "port": self.alpha.tls}  # fmt: skip

        def outcome(address: str, to: str) -> Any:
            return self.outcome(address, message(to.encode(), to), **options)

        with self.assertRaises(Refused) as caught:
            outcome("amqp$transfer", "q@beta.example")
        self.assertEqual(str(caught.exception.error.condition), "amqp:unauthorized-access")
        with self.assertRaises(Refused) as caught:
            outcome(f"{self.node}@beta.example", f"{self.node}@beta.example")
        self.assertEqual(str(caught.exception.error.condition), "amqp:unauthorized-access")
        state = outcome("@beta.example", "x@gamma.example")
        self.assertEqual(str(state.error.condition), "amqp:not-allowed")
        state = outcome("@beta.example", "amqp$transfer")
        self.assertEqual(str(state.error.condition), "amqp:not-allowed")
        for to in (self.node, f"{self.node}@beta.example"):
            self.assertIsInstance(outcome("@beta.example", to), spec.Accepted)
            self.assertEqual(body_of(self.consume(self.beta, 1)[0]), to.encode())

    def test_rejected_over_there(self) -> None:
        """The peer knows no such node: back to the sender, with the peer's words (T-26)."""
        payload = annotated(message(b"x"), {RETURN_TO: self.node})
        self.publish("nobody@beta.example", [payload])
        (back,) = self.consume(self.alpha, 1)
        facts = annotations_of(back)
        self.assertEqual(str(facts["x-opt-dead-letter-reason"]), "rejected")
        self.assertIn("nobody", facts["x-opt-dead-letter-description"])
        self.assertEqual(body_of(back), b"x")
        self.alpha.wait_log("beta.example rejected 1 message: amqp:not-found", self.begun_at)

    def test_returned_across(self) -> None:
        """A consumer over there rejects: the message comes back over the border (T-26)."""
        payload = annotated(message(b"x"), {RETURN_TO: f"{self.node}@alpha.example"})
        self.publish(f"{self.node}@beta.example", [payload])
        with Wire(self.beta.plain) as wire:
            link = wire.attach("receiver", self.node)
            link.flow(1)
            event = wire.wait(lambda event: type(event) is ev.DeliveriesReceived)
            wire.session.settle(event.deliveries, spec.Rejected(), True)
            wire.flush()
            # The message and the report about it come by links of their own, in either order.
            came = self.consume(self.alpha, 2)
        (back,) = [each for each in came if "x-opt-dead-letter-reason" in annotations_of(each)]
        self.assertEqual(body_of(back), b"x")
        facts = annotations_of(back)
        self.assertEqual(facts["x-opt-dead-letter-source"], f"{self.node}@beta.example")
        self.assertNotIn(RETURN_TO, facts)
        self.assertEqual(str(facts["x-opt-dead-letter-reason"]), "rejected")

    def test_loop(self) -> None:
        """Alpha to beta to alpha: refused with the loop in words, and it ends (T-27, W-21)."""
        mark = self.beta.mark()
        self.publish("q@loop.example", [message(b"round and round")])
        loop = r"alpha\.example > (beta|loop)\.example > alpha\.example"
        self.alpha.wait_log(f"mail loop: {loop}", self.begun_at)
        self.beta.wait_log(r"rejected 1 message: amqp:not-allowed: mail loop", mark)

    def test_killed_in_the_middle(self) -> None:
        """The receiving daemon is killed while messages arrive: none lost, none twice (W-14)."""
        victim = Daemon("victim.example", nameserver=self.zone.port,
                        changes={"nodes": [{"name": "q"}]}).start()  # fmt: skip
        self.addCleanup(victim.stop)
        self.zone.point("victim.example", victim.tls)
        bodies = [b"%d" % n for n in range(3000)]
        self.publish("q@victim.example", [message(each) for each in bodies[:1000]])
        publisher = threading.Thread(
            target=self.publish, args=("q@victim.example", [message(b) for b in bodies[1000:]])
        )
        publisher.start()
        victim.kill()
        victim.start()
        publisher.join(PATIENCE)
        got = [body_of(each) for each in self.consume(victim, 3000, "q")]
        self.assertEqual(sorted(got, key=int), bodies)
        with Wire(victim.plain) as wire:
            link = wire.attach("receiver", "q")
            link.flow(10, drain=True)
            until(lambda: wire.read() and link.credit == 0, "a drained link")
            self.assertEqual(link.unsettled, {})
        victim.check()

    def test_restart(self) -> None:
        """A killed and started sender knows backlog and back-off; a call from the peer wakes it."""
        changes = {
            "nodes": [{"name": "q"}],
            "relay": {"first-retry": 100, "last-retry": 100},
        }
        sender, sleeper = (
            Daemon(f"{name}.example", nameserver=self.zone.port, changes=changes)
            for name in ("sender", "sleeper")
        )
        for daemon in (sender, sleeper):
            self.addCleanup(daemon.stop)
            self.zone.point(daemon.name, daemon.tls)
        sender.start()
        bodies = [b"%d" % n for n in range(200)]
        self.publish("q@sleeper.example", [message(each) for each in bodies], sender.plain)
        sender.wait_log(r"sleeper\.example cannot be reached \(1 attempt\).*next attempt in")
        sender.kill()
        sleeper.start()
        mark = sender.mark()
        sender.start()
        sender.wait_log(r"amqp\$out/sleeper\.example recovered 200 messages", mark)
        # It has not tried at once: only the peer's call makes it.
        self.assertNotIn("sleeper.example connected", sender.log()[mark:])
        self.publish("q@sender.example", [message(b"good morning")], sleeper.plain)
        got = self.consume(sleeper, 200, "q")
        self.assertEqual([body_of(each) for each in got], bodies)
        for daemon in (sender, sleeper):
            daemon.check()
