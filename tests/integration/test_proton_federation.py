# SPDX-License-Identifier: Apache-2.0
"""The worked examples W between brokers, run by Qpid Proton: W-08, W-13, W-14, W-15, W-19, W-21.

Octets that no broker may change (W-13) are compared in `test_federation`, since Proton shows what
it has decoded.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SkipTest

from tests.integration import support
from tests.integration.support import Daemon, Zone, certificates, free_ports
from tests.integration.test_federation import Impostor
from tests.integration.test_proton_examples import ExampleCase
from tests.support.patience import PATIENCE

try:
    import proton
    from proton import Delivery, Message, SSLDomain, symbol
except ImportError:
    proton = None

RETURN_TO = "x-opt-return-to"
TRACE = "x-opt-amqproute-trace"


class World:
    """A name server, alpha, and beta, which is started and stopped by the tests."""

    def __init__(self) -> None:
        self.zone = Zone()
        self.beta = Daemon(
            "beta.example",
            domains=["second.example"],
            nameserver=self.zone.port,
            changes={"nodes": [{"name": name} for name in ("q", "x", "service", "kept")]},
        )
        everything = ["publish", "consume", "create", "browse", "manage"]
        self.alpha = Daemon(
            "alpha.example",
            nameserver=self.zone.port,
            changes={
                "nodes": [{"name": name} for name in ("q", "back")],
                "routes": [
                    {
                        "domain": "loop.example",
                        "via": f"amqps://127.0.0.1:{self.beta.tls}",
                        "names": ["beta.example"],
                    }
                ],
                "peers": {"beta.example": {"relay-for": ["loop.example"]}},
                "access": [
                    {"allow": everything, "who": "anonymous"},
                    {"allow": ["publish"], "who": "user:bob", "node": "@beta.example"},
                    {"allow": ["publish"], "who": "user:anna", "node": "*@beta.example"},
                    {"allow": ["transfer"], "who": "peer:*"},
                ],
            },
        )
        self.beta.write(
            routes=[
                {
                    "domain": "loop.example",
                    "via": f"amqps://127.0.0.1:{self.alpha.tls}",
                    "names": ["alpha.example"],
                }
            ],
            peers={"alpha.example": {"relay-for": ["loop.example"]}},
        )
        for daemon in (self.alpha, self.beta):
            # The name server is a thread of this process, which may be slow; it always answers.
            daemon.write(resolver={**daemon.settings["resolver"], "timeout": 10.0})
        self.alpha.spawn()
        self.beta.start()
        self.alpha.wait_ready()
        self.zone.point("alpha.example", self.alpha.tls, ttl=60)
        self.zone.point("beta.example", self.beta.tls, ttl=60)


class FederatedTests(ExampleCase):
    """One test for each; `daemon` is alpha."""

    def setUp(self) -> None:
        if proton is None:
            raise SkipTest("python-qpid-proton is not installed (pip install '.[interop]')")
        world = support.shared(World)
        self.zone = world.zone
        self.daemon, self.beta = world.alpha, world.beta
        self.node = "q"
        self.begun_at = self.daemon.mark()
        for daemon in (self.daemon, self.beta):
            self.addCleanup(daemon.check)
        self.connection = self.connect()

    def at_beta(self) -> Any:
        """Connect to beta."""
        return self.connect(self.beta.plain)

    def secure(self, mechanism: str, issued: Any = None, **who: str) -> Any:
        """Connect to alpha over TLS."""
        domain = SSLDomain(SSLDomain.MODE_CLIENT)
        domain.set_trusted_ca_db(str(certificates().trust))
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER)
        if issued is not None:
            domain.set_credentials(str(issued.chain), str(issued.private_key), None)
        return self.connect(
            self.daemon.tls,
            "amqps",
            ssl_domain=domain,
            virtual_host="alpha.example",
            allowed_mechs=mechanism,
            **who,
        )

    def test_w08_rpc_across_brokers(self) -> None:
        """W-08: a server behind another broker answers to a dynamic address here."""
        inbox = self.connection.create_receiver(None, credit=1, dynamic=True)
        self.connection.create_sender("service@beta.example").send(
            Message(body="question", reply_to=inbox.link.remote_source.address, id="q-1")
        )
        server = self.at_beta()
        ((asked, delivery),) = self.take(self.receiver("service", credit=1, on=server), 1)
        self.settle(delivery, Delivery.ACCEPTED)
        self.assertRegex(asked.reply_to, r"^reply-.{20,}@alpha\.example$")
        answer = Message(body="answer", address=asked.reply_to, correlation_id=asked.id)
        server.create_sender(None).send(answer)
        got = inbox.receive(timeout=PATIENCE)
        inbox.accept()
        self.assertEqual((got.body, got.correlation_id), ("answer", "q-1"))

    def test_w13_federated_transfer(self) -> None:
        """W-13: accepted while the other broker is down; then in order, `to` as it was."""
        self.beta.stop()
        sender = self.connection.create_sender("kept@beta.example")
        self.assertEqual(sender.link.remote_target.address, "kept@beta.example")
        for number in range(20):
            sender.send(
                Message(
                    body=number,
                    durable=True,
                    id=f"id-{number}",
                    subject="s",
                    address="kept@beta.example" if number % 2 else None,
                    properties={"number": number},
                )
            )
        self.beta.start()
        receiver = self.receiver("kept", credit=20, on=self.at_beta())
        for number, (got, delivery) in enumerate(self.take(receiver, 20)):
            self.settle(delivery, Delivery.ACCEPTED)
            self.assertEqual((got.body, got.id, got.subject), (number, f"id-{number}", "s"))
            self.assertEqual(got.properties, {"number": number})
            self.assertEqual((got.address, got.durable), ("kept@beta.example", True))
            self.assertEqual(list(got.annotations[TRACE]), ["broker1.alpha.example"])

    def test_w13_wrong_certificate(self) -> None:
        """W-13: a broker that does not prove the domain's name gets nothing."""
        impostor = Impostor(certificates().issue("somebody-else.example"))
        self.addCleanup(impostor.close)
        self.zone.point("proton-wrong.example", impostor.port)
        self.connection.create_sender("q@proton-wrong.example").send(Message(body="secret"))
        self.logged("proton-wrong.example cannot be reached")
        self.assertGreater(impostor.called, 0)
        self.assertEqual(impostor.heard, [])

    def test_w14_relay_crash_and_failover(self) -> None:
        """W-14: both killed in the middle: nothing is lost, and nothing twice."""
        self.beta.kill()
        count = 600
        self.fill("x@beta.example", range(count // 2))
        self.connection.close()
        self.daemon.kill()
        self.beta.spawn()
        self.daemon.start()
        self.beta.wait_ready()
        self.connection = self.connect()
        self.fill("x@beta.example", range(count // 2, count))
        self.beta.kill()
        self.beta.start()
        receiver = self.receiver("x", credit=count, on=self.at_beta())
        self.assertEqual(sorted(self.bodies(receiver, count)), list(range(count)))
        self.assert_drained(receiver)
        (dead,) = free_ports(1)
        self.zone.point("second.example", dead, self.beta.tls)
        self.connection.create_sender("x@second.example").send(Message(body="by the second"))
        receiver.link.flow(1)
        self.assertEqual(self.bodies(receiver, 1), ["by the second"])
        self.zone.set("shut.example", "_amqps._tcp SRV 0 0 0 .", "_amqp._tcp SRV 0 0 0 .")
        service = self.connection.create_sender("amqp$transfer")
        refused = self.outcome(service, Message(body=1, address="x@shut.example"))
        self.assertEqual(refused, (Delivery.REJECTED, "amqp:not-found"))

    def fill(self, address: str, numbers: range) -> None:
        """Publish durable messages, and wait until each is accepted."""
        sender = self.connection.create_sender(address)
        deliveries = []
        for number in numbers:
            self.connection.wait(lambda: sender.link.credit, msg="credit")
            deliveries.append(sender.link.send(Message(body=number, durable=True)))
        self.connection.wait(lambda: all(each.settled for each in deliveries), msg="outcomes")
        self.assertEqual({each.remote_state for each in deliveries}, {Delivery.ACCEPTED})

    def test_w15_aliases_and_access(self) -> None:
        """W-15: a user who may use one alias, and a peer for which this is no open relay."""
        bob = self.secure("PLAIN", user="bob", password="hidden")
        self.assert_refused("amqp:unauthorized-access", lambda: bob.create_sender("amqp$transfer"))
        alias = bob.create_sender("@beta.example")
        for to, wanted in (
            ("x@gamma.example", (Delivery.REJECTED, "amqp:not-allowed")),
            ("x", (Delivery.ACCEPTED, None)),
            ("x@beta.example", (Delivery.ACCEPTED, None)),
        ):
            self.assertEqual(self.outcome(alias, Message(body=to, address=to)), wanted)
        receiver = self.receiver("x", credit=2, on=self.at_beta())
        self.assertEqual(self.bodies(receiver, 2), ["x", "x@beta.example"])
        anna = self.secure("PLAIN", user="anna", password="secret")
        one = anna.create_sender("q@beta.example")
        refused = self.outcome(one, Message(body=1, address="r@beta.example"))
        self.assertEqual(refused, (Delivery.REJECTED, "amqp:precondition-failed"))
        peer = self.secure("EXTERNAL", certificates().issue("beta.example"))
        service = peer.create_sender("amqp$transfer")
        refused = self.outcome(service, Message(body=1, address="x@gamma.example"))
        self.assertEqual(refused, (Delivery.REJECTED, "amqp:unauthorized-access"))

    def test_w19_relayed_lifetime(self) -> None:
        """W-19: what waited for the other broker arrives with less time to live, or not at all."""
        self.beta.stop()
        sender = self.connection.create_sender("kept@beta.example")
        sender.send(Message(body="short", durable=True, ttl=0.05))
        sender.send(Message(body="long", durable=True, ttl=1000.0))
        self.logged("beta.example cannot be reached")
        self.beta.start()
        ((got, delivery),) = self.take(self.receiver("kept", credit=5, on=self.at_beta()), 1)
        self.settle(delivery, Delivery.ACCEPTED)
        self.assertEqual(got.body, "long")
        self.assertLess(got.ttl, 999.95)
        self.assertGreater(got.ttl, 900)

    def test_w21_loop(self) -> None:
        """W-21: alpha to beta to alpha: it ends, and its sender hears why."""
        message = Message(body="round", durable=True, annotations={symbol(RETURN_TO): "back"})
        self.connection.create_sender("q@loop.example").send(message)
        # The message returns by a link to that very node, the report through the transfer service:
        # either may come first.
        came = {}
        for message, delivery in self.take(self.receiver("back", credit=2), 2):
            self.settle(delivery, Delivery.ACCEPTED)
            came["message" if message.body == "round" else "report"] = message
        self.assertEqual(came["report"].body["kind"], symbol("failure"))
        self.assertIn("mail loop", str(came["report"].body))
        facts = came["message"].annotations
        self.assertEqual(facts["x-opt-dead-letter-reason"], "rejected")
        self.assertIn("mail loop", facts["x-opt-dead-letter-description"])
