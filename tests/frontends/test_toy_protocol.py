# SPDX-License-Identifier: Apache-2.0
"""A second protocol beside AMQP 1.0: an engine and a frontend on the common seams, no more.

Both come in at one listener; the first octets tell which is which. The toy is
`tests.support.toy_protocol`.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.policy import Rule
from amqproute.broker.node_declaration import NodeDeclaration
from amqproute.broker.node_limits import QueueLimits
from amqproute.frontends.common.contract_enforcement import ContractTerms
from amqproute.net.listener import Listener
from amqproute.net.offered_protocols import OfferedProtocol, OfferedProtocols
from amqproute.wire.amqp10 import spec
from amqproute.wire.protocol_choice import AMQP_1_0_HEADERS
from tests.conformance.frame_broker import Client, End, Network, message
from tests.support.toy_protocol import HEADER, lines_for

HOST = "192.0.2.9"


class LineClient:
    """A client of the toy protocol at a listener."""

    def __init__(self, world: Network, listener: Listener, user: str = "ann") -> None:
        self.world = world
        protocol = listener.accept(HOST)
        assert protocol is not None
        self.end = End(protocol)
        protocol.makeConnection(self.end)
        self.write(HEADER, f"OPEN {user}\n".encode())

    def write(self, *octets: bytes) -> None:
        """Write octets, each in a segment of its own."""
        for each in octets:
            self.end.protocol.dataReceived(each)
        self.world.advance()

    def say(self, *lines: str) -> list[str]:
        """Write lines in one segment; return what has come since the last time."""
        self.write("".join(f"{line}\n" for line in lines).encode())
        return self.heard()

    def heard(self) -> list[str]:
        """Return the lines that have come."""
        self.world.advance()
        found = self.end.value().decode().splitlines()
        self.end.clear()
        return found

    def hang_up(self) -> None:
        """The connection breaks."""
        self.end.gone()
        self.world.advance()


class ToyProtocolTests(SynchronousTestCase):
    def build(self, **settings: Any) -> None:
        """Have a broker and a listener with both protocols."""
        self.world = Network()
        self.house = self.world.house(**settings)
        offered = OfferedProtocols(
            [
                OfferedProtocol("AMQP 1.0", AMQP_1_0_HEADERS, self.house.maker()),
                OfferedProtocol("lines", (HEADER,), lines_for(self.house.shared)),
            ],
            10.0,
        )
        self.listener = Listener(self.world.clock, "tcp:0", offered.make)

    def lines(self, user: str = "ann") -> LineClient:
        return LineClient(self.world, self.listener, user)

    def amqp(self) -> Client:
        protocol = self.listener.accept(HOST)
        assert protocol is not None
        return Client(self.house, protocol)

    def test_to_amqp(self) -> None:
        """AMQP 1.0 consumes messages published by lines, which are durable."""
        self.build()
        lines = self.lines()
        self.assertEqual(lines.say("PUB q hello world"), ["CREDIT q 1000", "OK 1"])
        client = self.amqp().ready()
        client.receiver(credit=1)
        (transfer,) = client.payloads(spec.Transfer)
        header, rest = spec.decode_composite(transfer[1], 0)
        self.assertTrue(header.durable)
        self.assertIn(b"hello world", transfer[1][rest:])
        client.dispose(0)
        self.assertEqual(self.house.depth(), 0)

    def test_from_amqp(self) -> None:
        """Lines consume messages published by AMQP 1.0."""
        self.build()
        client = self.amqp().ready()
        client.sender()
        client.publish(0, message(b"good day"))
        lines = self.lines()
        (line,) = lines.say("SUB q 10")
        verb, number, text = line.split(" ", 2)
        self.assertEqual((verb, text), ("MSG", "good day"))
        self.assertEqual(lines.say(f"ACK {number}"), [f"DONE {number}"])
        self.assertEqual(self.house.depth(), 0)

    def test_credit_of_a_consumer(self) -> None:
        """No more comes than there is credit for, and the rest goes to others."""
        self.build()
        lines = self.lines()
        lines.say("PUB q 1", "PUB q 2", "PUB q 3")
        first = lines.say("SUB q 2")
        self.assertEqual([line.split()[2] for line in first], ["1", "2"])
        number = first[0].split()[1]
        self.assertEqual(lines.say(f"ACK {number}"), [f"DONE {number}"])
        client = self.amqp().ready()
        client.receiver(credit=5)
        self.assertEqual(client.bodies(), [b"3"])
        self.assertEqual(lines.say("SUB q 1"), [])

    def test_credit_of_a_publisher(self) -> None:
        """A publisher has a window, and less where the queue has less room."""
        self.build(nodes=[NodeDeclaration("q", QueueLimits(capacity=3))])
        lines = self.lines()
        self.assertEqual(lines.say("PUB q 1"), ["CREDIT q 3", "OK 1"])
        self.assertEqual(
            [line for line in lines.say("PUB q 2", "PUB q 3", "PUB q 4") if "CREDIT" not in line],
            ["ERR amqp:resource-limit-exceeded: no credit for q", "OK 2", "OK 3"],
        )
        (line,) = self.lines().say("SUB q 1")
        self.assertIn("MSG", line)
        self.assertEqual(self.house.depth(), 3)

    def test_answer_behind_the_commit(self) -> None:
        """Nothing is acknowledged that is not on the disk, on either way."""
        self.build()
        lines = self.lines()
        self.house.store.is_held = True
        self.assertEqual(lines.say("PUB q 1"), ["CREDIT q 1000"])
        self.house.store.let_go()
        self.assertEqual(lines.heard(), ["OK 1"])
        (line,) = lines.say("SUB q 1")
        number = line.split()[1]
        self.house.store.is_held = True
        self.assertEqual(lines.say(f"ACK {number}"), [])
        self.house.store.let_go()
        self.assertEqual(lines.heard(), [f"DONE {number}"])

    def test_store_that_fails(self) -> None:
        """A message that could not be stored is refused, and leaves nothing behind."""
        self.build()
        lines = self.lines()
        lines.say("PUB q 1")
        self.house.store.is_full = True
        answers = lines.say("PUB q 2")
        self.assertEqual(len(self.flushLoggedErrors()), 1)
        self.assertEqual(answers, ["ERR amqp:internal-error: 2 was not taken"])
        self.house.store.is_full = False
        self.assertEqual(lines.say("PUB q 3"), ["OK 3"])
        self.assertEqual(self.house.depth(), 2)

    def test_rights(self) -> None:
        """The access rules hold, and when they change so do the ends that stand."""
        rules = [
            Rule.of(who="user:ann", node="q", allow=["publish"]),
            Rule.of(who="user:bob", node="q", allow=["consume"]),
        ]
        self.build(nodes=("q", "r"), access=rules)
        ann, bob = self.lines("ann"), self.lines("bob")
        self.assertIn("OK 1", ann.say("PUB q 1"))
        self.assertEqual(len(bob.say("SUB q 1")), 1)
        for client, line in ((ann, "PUB r 1"), (ann, "SUB q 1"), (bob, "PUB q 1")):
            (answer,) = client.say(line)
            self.assertTrue(answer.startswith("ERR amqp:unauthorized-access"), answer)
        self.house.transfer.rules.allows = lambda principal, verb, node: False
        self.assertEqual(self.house.shared.detach_unauthorized(), 2)
        for client in (ann, bob):
            (answer,) = client.heard()
            self.assertTrue(answer.startswith("ERR amqp:unauthorized-access"), answer)
        self.assertEqual(self.house.depth(), 1)

    def test_disconnect(self) -> None:
        """Entries of a client go to others when it is gone, and nothing of it stays."""
        self.build()
        lines = self.lines()
        lines.say("PUB q 1", "PUB q 2")
        self.assertEqual(len(lines.say("SUB q 5")), 2)
        lines.hang_up()
        self.assertFalse(self.house.shared.connections)
        client = self.amqp().ready()
        client.receiver(credit=5)
        self.assertEqual(client.bodies(), [b"1", b"2"])

    def test_contract(self) -> None:
        """A contract bounds what one user may have granted, whatever it speaks."""
        self.build(contracts={"user:ann": ContractTerms(credit=5)})
        self.assertEqual(self.lines().say("PUB q 1")[0], "CREDIT q 5")
        self.assertEqual(self.lines("bob").say("PUB q 1")[0], "CREDIT q 1000")

    def test_operators(self) -> None:
        """Operators see the ends, detach them and delete their node."""
        self.build()
        lines = self.lines()
        lines.say("PUB q 1")
        lines.say("SUB q 1")
        (connection,) = self.house.shared.connections
        self.assertEqual((connection.link_count, connection.holds_nothing), (2, False))
        self.assertEqual(connection.detach_named("q"), 2)
        for answer in lines.heard():
            self.assertEqual(answer, "ERR amqp:link:detach-forced: an operator closed this link")
        self.assertEqual(connection.link_count, 0)
        lines.say("SUB q 1")
        self.house.shared.detach_from(lambda node, _: node.name == "q")
        self.assertEqual(lines.heard(), ["ERR amqp:resource-deleted: q does not exist any more"])

    def test_strangers(self) -> None:
        """A client of neither protocol gets the answer of AMQP 1.0."""
        self.build()
        for octets in (b"GET / HTTP/1.1\r\n", b"AMQP\x00\x00\x09\x01", b"LINES/2\n"):
            client = self.amqp()
            client.write(octets)
            self.assertEqual(client.headers, [b"AMQP\x00\x01\x00\x00"], octets)
            self.assertTrue(client.is_cut)

    def test_nonsense(self) -> None:
        """A line that is not understood is refused; the connection goes on."""
        self.build()
        lines = self.lines()
        answers = lines.say("FOO", "PUB q", "ACK 17x", "PUB q 1")
        self.assertEqual([line.split()[0] for line in answers[:2]], ["ERR", "ERR"])
        self.assertIn("OK 1", answers)
