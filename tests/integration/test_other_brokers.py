# SPDX-License-Identifier: Apache-2.0
"""Brokers of other makes as next hops and as senders (T-34): RabbitMQ, and one made with Proton.

What each outcome means, and when a message may be there twice, is in ``docs/interoperation.md``.
RabbitMQ is that of the system, with its plug-in for AMQP 1.0; it runs here as a process of the
test, in a directory of its own. Where it, or Proton, is not installed those tests are skipped.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.net.authority import Issued
from amqproute.tools.daemon_pair import free_ports as steady_ports
from amqproute.tools.load_worker import Connected, LoadManagement, LoadTarget
from benchmarks.rabbitmq_shovel import HOME, Client, Node
from tests.integration.support import (
    Daemon,
    Wire,
    body_of,
    certificates,
    message,
    new_directory,
    until,
)
from tests.network.line import Line
from tests.support.patience import PATIENCE

try:
    from proton import SSLDomain
    from proton.handlers import MessagingHandler
    from proton.reactor import ApplicationEvent, Container, EventInjector
except ImportError:
    Container = None

RETRY = {"first-retry": 0.1, "last-retry": 0.5}


def sender(domain: str, port: int, **targets: str) -> Daemon:
    """Make alpha, with routes to a broker of another make.

    Args:
        domain: that the broker proves.
        port: of the broker.
        targets: label of a domain to the target of its route.
    """
    return Daemon(
        "alpha.example",
        changes={
            "nodes": [{"name": "returned"}, {"name": "dead"}],
            "routes": [
                {
                    "domain": f"{label}.example",
                    "via": f"amqps://127.0.0.1:{port}",
                    "target": target,
                    "names": [domain],
                }
                for label, target in targets.items()
            ],
            "access": [
                {"allow": ["publish", "consume", "manage"], "who": who}
                for who in ("anonymous", "user:anna", "uid:*")
            ],
            "relay": {**RETRY, "dead-letter": "dead"},
        },
    )


# -- RabbitMQ --------------------------------------------------------------------------------------


class RabbitTests(SynchronousTestCase):
    """One node, with alpha in front of it and behind it: all in one go, for it starts slowly."""

    if not (HOME / "rabbitmq-server").exists() or not list(
        Path("/usr/lib/rabbitmq").glob("lib/*/plugins/rabbitmq_amqp1_0-*")
    ):
        skip = "RabbitMQ with its AMQP 1.0 plug-in is not installed"

    def start_rabbit(self, alpha: Daemon, ports: Sequence[int], directory: Path) -> Node:
        """Start a node that knows alpha by its certificate, and has a shovel back to it."""
        issued = certificates().issue("rabbit.example")
        tls = directory / "tls" / "rabbit.example"
        tls.mkdir(parents=True)
        for source, name in ((issued.chain, "chain.pem"), (issued.private_key, "key.pem")):
            (tls / name).write_bytes(source.read_bytes())
        trust = directory / "tls" / "ca.pem"
        trust.write_bytes(certificates().trust.read_bytes())
        epmd_port = steady_ports(1)[0]
        epmd = subprocess.Popen(
            ["epmd", "-port", str(epmd_port), "-address", "127.0.0.1"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.addCleanup(epmd.wait, 10)
        self.addCleanup(epmd.kill)
        definitions = directory / "definitions.json"
        definitions.write_text(json.dumps(self.definitions(alpha, trust)))
        node = Node(
            "rabbit",
            directory,
            epmd_port,
            ports,
            plugins=(
                "rabbitmq_amqp1_0",
                "rabbitmq_auth_mechanism_ssl",
                "rabbitmq_shovel",
            ),
            settings=(
                "auth_mechanisms.1 = EXTERNAL",
                "auth_mechanisms.2 = PLAIN",
                "ssl_cert_login_from = common_name",
                f"load_definitions = {definitions}",
            ),
        )
        self.addCleanup(node.stop)
        node.wait_ready()
        return node

    def definitions(self, alpha: Daemon, trust: Path) -> Mapping[str, Any]:
        query = "&".join(
            [
                f"cacertfile={trust}",
                "verify=verify_peer",
                "server_name_indication=alpha.example",
                "sasl=plain",
            ]
        )
        permission = {"vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
        return {
            "vhosts": [{"name": "/"}],
            "users": [
                {"name": "guest", "password": "guest", "tags": "administrator"},
                {"name": "alpha.example", "password": "not used", "tags": ""},
            ],
            "permissions": [
                {"user": "guest", **permission},
                {"user": "alpha.example", **permission},
            ],
            "queues": [
                {"name": name, "vhost": "/", "durable": True, "auto_delete": False,
                 "arguments": arguments}
                for name, arguments in (
                    ("orders", {"x-queue-version": 1}),  # as `Node.wait_ready` declares it
                    ("back", {}),
                    ("full", {"x-max-length": 3, "x-overflow": "reject-publish"}),
                )
            ],
            "parameters": [
                {
                    "component": "shovel",
                    "vhost": "/",
                    "name": "back",
                    "value": {
                        "src-protocol": "amqp091",
                        "src-uri": "amqp://",
                        "src-queue": "back",
                        "dest-protocol": "amqp10",
                        "dest-uri": f"amqps://anna:secret@127.0.0.1:{alpha.tls}?{query}",
                        "dest-address": "returned",
                        "ack-mode": "on-confirm",
                        "reconnect-delay": 1,
                    },
                }
            ],
        }  # fmt: skip

    def test_all(self) -> None:
        ports = steady_ports(3)
        line = Line(ports[1])
        self.addCleanup(line.close)
        self.hop = f"127.0.0.1:{line.port}"
        alpha = sender(
            "rabbit.example", line.port, rabbit="/amq/queue/{node}", made="/queue/{node}"
        ).start()
        self.addCleanup(alpha.stop)
        node = self.start_rabbit(alpha, ports, new_directory("rabbit"))
        with Wire(alpha.plain) as wire, Client(node.port) as rabbit:
            self.there_and_back(alpha, wire, rabbit)
            self.full(alpha, wire, rabbit)
            self.made_there(alpha, wire, rabbit)
            self.cut(alpha, wire, rabbit, line)
        alpha.check()

    def there_and_back(self, alpha: Daemon, wire: Wire, rabbit: Client) -> None:
        """Relayed to a queue; and through a shovel of RabbitMQ's into a node of ours."""
        bodies = [b"%d" % n for n in range(200)]
        wire.publish("orders@rabbit.example", [message(each) for each in bodies])
        wire.publish("back@rabbit.example", [message(each) for each in bodies])
        self.depth(alpha, rabbit, "orders", 200)
        got = [body_of(each) for each in wire.consume("returned", 200)]
        self.assertEqual(got, bodies)

    def full(self, alpha: Daemon, wire: Wire, rabbit: Client) -> None:
        """A queue that takes three: the others stay here, and go when there is room.

        RabbitMQ 3.10 ends the connection at the first message that its queue refuses, before it
        has confirmed those that went well: they may come twice.
        """
        wire.publish("full@rabbit.example", [message(b"%d" % n) for n in range(5)])
        self.depth(alpha, rabbit, "full", 3)
        alpha.wait_log("/full cannot be reached")
        purged = 0

        with Connected(LoadTarget(alpha.socket), "look") as connected:
            management = LoadManagement(connected)

            def is_empty() -> bool:
                nonlocal purged
                time.sleep(0.2)
                if not management.row("relay-queue", f"amqp$out/{self.hop}/full")["depth"]:
                    return True
                purged += rabbit.depth("full")
                rabbit.purge("full")
                return False

            until(is_empty, "nothing left for the full queue", detail=alpha.log)
        purged += rabbit.depth("full")
        self.assertGreaterEqual(purged, 5)
        print(f"\n5 messages for a queue of 3: {purged} arrived, over its emptying")

    def made_there(self, alpha: Daemon, wire: Wire, rabbit: Client) -> None:
        """``/queue/{node}`` makes the queue; ``/amq/queue/{node}`` takes it for granted.

        What is sent to one that is not there RabbitMQ accepts and drops.
        """
        wire.publish("made@made.example", [message(b"x")])
        with Connected(LoadTarget(alpha.socket), "look") as connected:
            management = LoadManagement(connected)

            def is_gone() -> bool:
                return not management.row("relay-queue", f"amqp$out/{self.hop}/made")["depth"]

            until(is_gone, "accepted at RabbitMQ", detail=alpha.log)
        self.depth(alpha, rabbit, "made", 1)

    def cut(self, alpha: Daemon, wire: Wire, rabbit: Client, line: Line) -> None:
        """The line is cut while messages pass: none is lost, some may be there twice."""
        rabbit.purge("orders")
        publisher = threading.Thread(target=self.publish, args=(alpha, 3000))
        publisher.start()
        for _ in range(5):
            until(lambda: line.is_used, "a connection")
            line.cut(0.02)
            time.sleep(0.2)
        publisher.join(PATIENCE)
        until(lambda: rabbit.depth("orders") >= 3000, "3000 at RabbitMQ",
              detail=alpha.log)  # fmt: skip
        time.sleep(0.5)
        found = rabbit.depth("orders")
        print(f"\n{line.cuts} cuts, 3000 messages: {found} in the queue of RabbitMQ")

    def publish(self, alpha: Daemon, count: int) -> None:
        with Wire(alpha.plain, container="publisher") as wire:
            wire.publish("orders@rabbit.example", [message(b"%d" % n) for n in range(count)])

    def depth(self, alpha: Daemon, rabbit: Client, queue: str, depth: int) -> None:
        """Wait until a queue of RabbitMQ's is so deep."""
        until(lambda: rabbit.depth(queue) == depth, f"{depth} in {queue}",
              detail=alpha.log)  # fmt: skip


# -- Proton ----------------------------------------------------------------------------------------

if Container is not None:

    class Broker(MessagingHandler):  # type: ignore[misc]
        """A broker with a node for each thing that may become of a message.

        Attributes:
            port: where it listens.
            got: bodies that came, for each node.
            bad: how often something else than `accepted` is to be said at a node, before it is.
        """

        def __init__(self, port: int, issued: Issued, trust: Path) -> None:
            super().__init__(prefetch=100, auto_accept=False, auto_settle=False)
            self.port = port
            self.got: dict[str, list[bytes]] = {}
            self.says: dict[str, list[str]] = {}
            self._tls = SSLDomain(SSLDomain.MODE_SERVER)
            self._tls.set_credentials(str(issued.chain), str(issued.private_key), None)
            self._tls.set_trusted_ca_db(str(trust))
            self._tls.set_peer_authentication(SSLDomain.VERIFY_PEER, str(trust))
            self._injector = EventInjector()
            self._acceptor: Any = None
            self._connections: set[Any] = set()

        def stop(self) -> None:
            """End it, from another thread."""
            self._injector.trigger(ApplicationEvent("stop"))
            self._injector.close()

        def on_start(self, event: Any) -> None:
            event.container.selectable(self._injector)
            self._acceptor = event.container.listen(
                f"amqps://127.0.0.1:{self.port}", ssl_domain=self._tls
            )

        def on_stop(self, event: Any) -> None:
            self._acceptor.close()
            for each in self._connections:
                each.close()

        def on_connection_opening(self, event: Any) -> None:
            self._connections.add(event.connection)

        def on_link_opening(self, event: Any) -> None:
            event.link.source.copy(event.link.remote_source)
            event.link.target.copy(event.link.remote_target)

        def on_message(self, event: Any) -> None:
            name = event.link.target.address
            self.got.setdefault(name, []).append(bytes(event.message.body))
            says = self.says.get(name)
            word = says.pop(0) if says else "accepted"
            delivery = event.delivery
            if word == "accepted":
                self.accept(delivery)
            elif word == "rejected":
                self.reject(delivery)
            elif word == "released":
                self.release(delivery, delivered=False)
            elif word == "modified":
                self.release(delivery, delivered=True)
            elif word == "settled":
                delivery.settle()


class ProtonBrokerTests(SynchronousTestCase):
    if Container is None:
        skip = "python-qpid-proton is not installed"

    def setUp(self) -> None:
        (port,) = steady_ports(1)
        issued = certificates().issue("proton.example")
        self.broker = Broker(port, issued, certificates().trust)
        self.thread = threading.Thread(target=Container(self.broker).run, daemon=True)
        self.thread.start()
        self.addCleanup(self.thread.join, 10)
        self.addCleanup(self.broker.stop)
        self.line = Line(port)
        self.addCleanup(self.line.close)
        self.alpha = sender("proton.example", self.line.port, proton="nodes/{node}").start()
        self.addCleanup(self.alpha.stop)

    def publish(self, node: str, *bodies: bytes) -> None:
        with Wire(self.alpha.plain) as wire:
            wire.publish(f"{node}@proton.example", [message(each) for each in bodies])

    def arrived(self, node: str, count: int) -> list[bytes]:
        """Wait for this many messages at a node of the broker."""
        name = f"nodes/{node}"
        until(lambda: len(self.broker.got.get(name, ())) >= count, f"{count} at {name}",
              detail=self.alpha.log)  # fmt: skip
        time.sleep(0.3)  # nothing more comes
        return self.broker.got[name]

    def test_accepted(self) -> None:
        """Each node's messages by a link of their own, in order."""
        bodies = [b"%d" % n for n in range(500)]
        self.publish("a", *bodies)
        self.publish("b", b"x")
        self.assertEqual(self.arrived("a", 500), bodies)
        self.assertEqual(self.arrived("b", 1), [b"x"])
        self.alpha.check()

    def test_released(self) -> None:
        """Not now: the same message again, until it is taken."""
        self.broker.says["nodes/q"] = ["released", "modified", "settled"]
        self.publish("q", b"x")
        self.assertEqual(self.arrived("q", 4), [b"x"] * 4)
        self.alpha.check()

    def test_rejected(self) -> None:
        """Never: to the dead letters, with the reason; the others continue."""
        self.broker.says["nodes/q"] = ["rejected"]
        self.publish("q", b"bad", b"good")
        self.assertEqual(self.arrived("q", 2), [b"bad", b"good"])
        with Wire(self.alpha.plain) as wire:
            self.assertEqual([body_of(each) for each in wire.consume("dead", 1)], [b"bad"])
        self.alpha.check()

    def test_cut(self) -> None:
        """The line is cut while messages pass: none is lost, some may come twice."""
        bodies = [b"%d" % n for n in range(2000)]
        publisher = threading.Thread(target=self.publish, args=("q", *bodies))
        publisher.start()
        for _ in range(5):
            until(lambda: self.line.is_used, "a connection")
            self.line.cut(0.02)
            time.sleep(0.1)
        publisher.join(PATIENCE)
        until(lambda: set(self.broker.got.get("nodes/q", ())) >= set(bodies), "all of them",
              30, self.alpha.log)  # fmt: skip
        counts = Counter(self.broker.got["nodes/q"])
        twice = sum(count - 1 for count in counts.values())
        self.assertEqual(set(counts), set(bodies))
        print(f"\n{self.line.cuts} cuts, 2000 messages: {twice} copies at a broker of Proton's")
        self.alpha.check()
