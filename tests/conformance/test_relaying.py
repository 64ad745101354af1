# SPDX-License-Identifier: Apache-2.0
"""One broker's output to the next, octet by octet: topic T, seen from the next hop.

The brokers are real; the DNS, TCP and TLS between them are played (`frame_broker.Network`). What
crosses is read by `tests.support.plain_decoder`, which fills in nothing.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from amqproute.services.management_node import MANAGEMENT
from amqproute.values import RELAY_PREFIX
from amqproute.wire.amqp10 import spec
from tests.conformance.frame_broker import bare, body_of, condition, header_of, message
from tests.conformance.test_addresses import ALICE, AddressCase
from tests.conformance.test_distributed import Requester
from tests.support.plain_decoder import Described, decode_all, field, frames

OPEN, BEGIN, ATTACH, TRANSFER, CLOSE = 0x10, 0x11, 0x12, 0x14, 0x18
DAY = 86_400


class RelayingCase(AddressCase):
    """Brokers of a.test and b.test; somebody reads ``q`` at b.test all the time."""

    def setUp(self) -> None:
        super().setUp()
        self.other = self.world.house("b.test", nodes=["q"])
        self.reader = self.other.client().ready("reader")
        self.reader.receiver("q", credit=1000)

    def send(self, body: bytes = b"m", **fields: Any) -> bytes:
        """Have a message for q@b.test accepted at a.test."""
        header = fields.pop("header", None) or spec.Header(durable=True)
        encoded = message(body, header=header, to="q@b.test", **fields)
        self.assertIsNone(self.outcome("amqp$transfer", encoded))
        return encoded

    def said(self) -> list[tuple[Described, bytes]]:
        """Return the performatives that a.test has said on the one connection to b.test."""
        ((near, _),) = self.world.wires
        return [
            (performative, payload)
            for _, performative, payload in frames(bytes(near.sent))
            if performative is not None
        ]

    def down(self) -> None:
        """There is no answer at b.test."""
        self.world.down.add("amqp.b.test")

    def up(self, seconds: float = 400) -> None:
        """b.test answers again, and is found again."""
        self.world.down.clear()
        self.world.advance(seconds)
        self.reader.run()


class WireTests(RelayingCase):
    """The contents of the frames."""

    def test_ordinary_link(self) -> None:
        """T-02, T-09, T-21: a sender to ``amqp$transfer``, unsettled, of standard performatives."""
        encoded = self.send(b"m" * 3000)
        self.world.advance(1)
        said = self.said()
        codes = [performative.descriptor for performative, _ in said]
        self.assertLessEqual(set(codes), set(range(OPEN, CLOSE + 1)))
        ((attach, _),) = [each for each in said if each[0].descriptor == ATTACH]
        self.assertEqual(field(attach, 2), False)  # role: sender
        self.assertEqual(field(attach, 3), spec.SENDER_UNSETTLED)
        self.assertIn(field(attach, 4), (None, spec.RECEIVER_FIRST))
        self.assertEqual(field(field(attach, 6), 0), "amqp$transfer")
        self.assertIsNone(field(attach, 12))  # desired-capabilities: none
        transfers = [each for each in said if each[0].descriptor == TRANSFER]
        self.assertTrue(all(not field(each, 4) for each, _ in transfers))  # settled
        payload = b"".join(payload for _, payload in transfers)
        self.assertEqual(bare(payload), bare(encoded))
        (properties,) = [
            each for each in decode_all(payload)
            if isinstance(each, Described) and each.descriptor == 0x73
        ]  # fmt: skip
        self.assertEqual(field(properties, 2), "q@b.test")

    def test_as_if_local(self) -> None:
        """T-12, T-13: a client attaches to a node of b.test here, publishes, and it is there."""
        self.client.raw.clear()
        self.client.sender("q@b.test", handle=5)
        ((_, attach, _), *_) = frames(b"".join(self.client.raw))
        self.assertEqual(field(field(attach, 6), 0), "q@b.test")
        flow = self.client.one(spec.Flow)
        self.assertGreater(flow.link_credit, 0)
        self.client.publish(0, message(b"as if local"), handle=5)
        self.assertIsInstance(self.client.one(spec.Disposition).state, spec.Accepted)
        self.world.advance(1)
        self.assertEqual(self.reader.run().bodies(), [b"as if local"])

    def test_hostname(self) -> None:
        """T-35: the open names the domain of the address, wherever the host is."""
        self.send()
        self.world.advance(1)
        ((opened, _),) = [each for each in self.said() if each[0].descriptor == OPEN]
        self.assertEqual(field(opened, 1), "b.test")


class QueueTests(RelayingCase):
    """Relay queues."""

    def test_one_for_each_hop(self) -> None:
        """T-10: what waits for different next hops waits in queues of their own."""
        self.world.house("c.test")
        self.world.down.update(("amqp.b.test", "amqp.c.test"))
        for to in ("q@b.test", "r@b.test", "q@c.test"):
            encoded = message(header=spec.Header(durable=True), to=to)
            self.assertIsNone(self.outcome("amqp$transfer", encoded))
        self.world.advance(1)
        depths = {name: queue.depth for name, queue in self.house.broker.internal.items()}
        self.assertEqual(depths, {f"{RELAY_PREFIX}b.test": 2, f"{RELAY_PREFIX}c.test": 1})


class TimeTests(RelayingCase):
    """Lifetimes, back-off, and giving up."""

    def crossed(self) -> int:
        """Return how many deliveries have come to b.test."""
        return sum(each.connection.deliveries_in for each in self.other.frontends)

    def test_lifetime(self) -> None:
        """T-30: the ttl that leaves lacks the time spent here; what is overdue does not leave."""
        before = self.crossed()
        self.down()
        self.send(b"short", header=spec.Header(durable=True, ttl=10_000))
        self.send(b"long", header=spec.Header(durable=True, ttl=1_000_000))
        self.send(b"endless")
        began = self.world.clock.seconds()
        self.world.advance(60)
        self.world.down.clear()
        while not (got := self.reader.run().messages()):
            self.world.advance(1)
        spent_ms = round((self.world.clock.seconds() - began) * 1000)
        # Read on arrival: no time at b.test can have made up for what was not counted here.
        self.assertEqual([body_of(each) for each in got], [b"long", b"endless"])
        left = header_of(got[0]).ttl
        self.assertTrue(1_000_000 - spent_ms - 20_000 <= left <= 1_000_000 - 60_000, left)
        self.assertIsNone(header_of(got[1]).ttl)
        self.assertEqual(self.crossed() - before, 2)

    def test_date(self) -> None:
        """T-30: absolute-expiry-time stays as it is; a message past it does not leave."""
        before = self.crossed()
        self.down()
        now = self.world.now_ms()
        self.send(b"overdue", absolute_expiry_time=now + 30_000)
        kept = self.send(b"in time", absolute_expiry_time=now + DAY * 1000)
        self.world.advance(60)
        self.up()
        (got,) = self.reader.messages()
        self.assertEqual(bare(got), bare(kept))
        self.assertEqual(self.crossed() - before, 1)

    def test_back_off(self) -> None:
        """T-28: pauses double from a second to five minutes, and stay there; no attempt counts."""
        self.down()
        self.send()
        times: list[float] = []
        before = len(self.world.connects)
        for _ in range(2000):
            self.world.advance(1)
            if len(self.world.connects) > before:
                before = len(self.world.connects)
                times.append(self.world.clock.seconds())
        gaps = [round(later - earlier) for earlier, later in pairwise(times)]
        growing = [gap for gap in gaps if gap < max(gaps)]
        for earlier, later in pairwise(growing):
            self.assertTrue(1.6 * earlier <= later <= 2.4 * earlier + 1, gaps)
        self.assertGreater(len(growing), 5)
        self.assertTrue(240 <= max(gaps) <= 301, gaps)
        self.assertGreater(gaps.count(max(gaps)), 1)
        self.up()
        self.assertIn(header_of(self.reader.messages()[0]).delivery_count, (None, 0))

    def test_age(self) -> None:
        """T-28, T-26: it is given up when its five days are over, not before, as expired."""
        self.down()
        self.send(b"old", annotations={"x-opt-return-to": "r"})
        for _ in range(5 * 24 - 1):
            self.world.advance(3600)
        self.assertEqual(self.house.depth("r"), 0)
        for _ in range(2):
            self.world.advance(3600)
        self.assertEqual(self.house.depth("r"), 1)
        self.up()
        self.assertEqual(self.reader.messages(), [])


class IdentityTests(RelayingCase):
    """The identity of the other end."""

    def test_another_container(self) -> None:
        """T-39: a next hop that is another container all of a sudden is logged by both names."""
        logged: list[LogEvent] = []
        globalLogPublisher.addObserver(logged.append)
        self.addCleanup(globalLogPublisher.removeObserver, logged.append)
        self.send(b"1")
        self.world.advance(1)
        self.assertEqual(self.house.relay.destinations["b.test"].remote_id, "b.test")
        self.other._settings["container_id"] = "b2.test"
        self.world.cut_all()
        self.send(b"2")
        self.up()
        self.assertEqual(self.reader.bodies(), [b"1", b"2"])
        self.assertEqual(self.house.relay.destinations["b.test"].remote_id, "b2.test")
        lines = [line for line in map(formatEvent, logged) if line and "is container" in line]
        self.assertEqual(lines, ["b.test is container b2.test now; it was b.test"])


class DetachedTests(RelayingCase):
    """A next hop that ends the relay's link."""

    def test_comes_back(self) -> None:
        """L-49, T-35: the relay attaches again, and what it has is delivered, once."""
        self.send(b"1")
        self.world.advance(1)
        frontend = next(each for each in self.other.frontends if each.principal.kind == "peer")
        (link,) = frontend.links.attached
        self.assertEqual(frontend.detach_named(link.name), 1)
        self.world.advance()
        self.send(b"2")
        self.world.advance(30)
        self.assertEqual(self.reader.run().bodies(), [b"1", b"2"])
        self.assertEqual(self.house.depth("r"), 0)


class AliasLifeTests(AddressCase):
    """Aliases that go."""

    def test_destroyed(self) -> None:
        """A-05: links to an alias that is destroyed are detached; those to its node are not."""
        manager = Requester(self.house, MANAGEMENT, ALICE)
        self.assertEqual(manager.commands("create alias x q"), 200)
        by_alias = self.house.client(ALICE).ready("by alias")
        self.assertEqual(by_alias.sender("x").target.address, "x")
        by_name = self.house.client(ALICE).ready("by name")
        by_name.sender("q")
        self.assertEqual(manager.commands("delete alias x"), 200)
        detach = by_alias.run().one(spec.Detach)
        self.assertEqual((condition(detach), detach.closed), ("amqp:resource-deleted", True))
        self.assertTrue(by_name.run().none(spec.Detach))
