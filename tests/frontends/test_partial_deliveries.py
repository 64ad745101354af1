# SPDX-License-Identifier: Apache-2.0
"""Unfinished deliveries: bounded over all connections, and harmless to others."""

from __future__ import annotations

import gc
from types import FrameType
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.frontends.amqp10 import large_message_receiver
from amqproute.frontends.amqp10.large_message_receiver import HEAD_BYTES
from amqproute.frontends.common import draft_share
from amqproute.frontends.common.partial_deliveries import MOST_EVICTED, SPARE_BYTES, SPILL_SECONDS
from amqproute.values import Principal
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.connection import Connection, ConnectionSettings
from amqproute.wire.amqp10.engine_events import InputHeld
from tests.conformance.frame_broker import (
    AMQP_HEADER,
    Client,
    FrameBroker,
    Network,
    attach,
    condition,
    frame,
    message,
)

MIB = 1024 * 1024
LIMITED = "amqp:resource-limit-exceeded"
MALLORY = Principal("user", "mallory")
ANN = Principal("user", "ann")
BODY = message(b"x" * 400_000)
LARGE = message(b"x" * 1_300_000)


class UnfinishedCase(SynchronousTestCase):
    """A house whose connections may have a mebibyte of unfinished deliveries in memory."""

    def setUp(self) -> None:
        self.world = Network()
        self.here: FrameBroker = self.world.house(
            limits={"memory_bytes": 4 * MIB, "delivery_seconds": 300.0},
            settings={"max_partial": 64 * MIB},
        )
        self.memory = self.here.shared.memory
        self.unfinished = self.here.shared.partial_deliveries

    def sender(self, principal: Principal, name: str, links: int = 1) -> Client:
        """Return a client with links to ``q``."""
        client = self.here.client(principal).ready(name)
        for handle in range(links):
            client.sender(handle=handle)
        client.frames.clear()
        return client

    def anonymous(self, host: str) -> Client:
        """Return a client without a name, with a link to ``q``."""
        client = self.here.client(facts={"host": host}).ready(f"c{len(self.here.frontends)}")
        client.sender()
        client.frames.clear()
        return client

    def begin(self, client: Client, octets: int, handle: int = 0) -> None:
        """Begin a delivery and leave it."""
        client.write(client.transfer(handle, BODY[:octets], handle, more=True))

    def go_on(self, client: Client, payload: bytes, handle: int = 0, more: bool = True) -> None:
        """Send more of it."""
        client.write(frame(spec.Transfer(handle=handle, more=more), payload))

    def wait(self, seconds: float) -> None:
        """Let time pass, with the looks of every second."""
        for _ in range(int(seconds)):
            self.world.advance(1.0)
            self.unfinished.look()
        self.world.advance()

    def assertAccepted(self, client: Client) -> None:
        """Its messages are accepted."""
        self.assertIsInstance(client.one(spec.Disposition).state, spec.Accepted)


class BoundTests(UnfinishedCase):
    def test_counted_as_it_comes(self) -> None:
        """Frame by frame, and forgotten when the delivery ends, is aborted, or its link goes."""
        client = self.sender(MALLORY, "m", links=3)
        for handle in range(3):
            self.begin(client, 100_000, handle)
            self.go_on(client, b"y" * 50_000, handle)
        held = self.memory.arriving_bytes
        self.assertEqual(held // 1000, 450)
        client.write(frame(spec.Transfer(handle=0, aborted=True)))
        client.send(spec.Detach(handle=1, closed=True))
        self.assertEqual(self.memory.arriving_bytes // 1000, 150)
        client.hang_up()
        self.assertEqual(self.memory.arriving_bytes, 0)

    def test_many(self) -> None:
        """Twenty connections with endless deliveries: bounded, nobody loses credit, none ended."""
        bystander = self.sender(ANN, "ann")
        clients = [self.sender(MALLORY, f"m{number}", links=3) for number in range(20)]
        for handle in range(3):
            for client in clients:
                self.begin(client, 200_000, handle)
                self.assertLessEqual(self.memory.arriving_bytes, MIB)
                self.assertTrue(self.here.broker.gate.is_open)
        self.assertGreater(self.unfinished.spilled, 50)
        self.assertEqual(self.unfinished.ended, 0)
        self.assertLess(self.memory.used_bytes, 2 * MIB)
        bystander.publish(0)
        self.assertAccepted(bystander)
        # What was spilled is whole in the end.
        for handle in range(3):
            for client in clients:
                self.go_on(client, BODY[200_000:300_000], handle)
                self.go_on(client, BODY[300_000:], handle, more=False)
                self.assertAccepted(client)
        self.assertEqual((self.memory.arriving_bytes, self.unfinished.drafts.used), (0, 0))
        self.assertEqual(self.here.depth(), 61)

    def test_what_cannot_spill(self) -> None:
        """Small pieces on many links are ended, with their links; other users' stay."""
        honest = self.sender(ANN, "ann")
        self.begin(honest, 100_000)
        client = self.sender(MALLORY, "m", links=12)
        for handle in range(12):
            self.begin(client, 100_000, handle)
        ended = client.all(spec.Detach)
        self.assertTrue(ended)
        self.assertEqual({condition(each) for each in ended}, {LIMITED})
        self.assertEqual({each.handle for each in ended}, set(range(len(ended))))  # the oldest
        self.assertLessEqual(self.memory.arriving_bytes, MIB)
        self.go_on(honest, BODY[100_000:150_000])
        self.go_on(honest, BODY[150_000:], more=False)
        self.assertAccepted(honest)

    def test_work_of_a_read(self) -> None:
        """Past the bound a read is followed by little more work than it brought."""
        self.here = self.world.house(limits={"memory_bytes": 128 * MIB})
        self.unfinished = self.here.shared.partial_deliveries
        clients = [self.sender(MALLORY, f"m{number}", links=20) for number in range(10)]
        most = 0
        for handle in range(20):
            for client in clients:
                before = self.unfinished.spilled
                self.begin(client, 200_000, handle)
                most = max(most, self.unfinished.spilled - before)
        self.assertGreater(self.unfinished.spilled, 20)
        self.assertLessEqual(most, 2 + (200_000 + SPARE_BYTES) // 200_000)

    def test_addresses(self) -> None:
        """The anonymous give way by address: one with many connections before one with few."""
        bystander = self.anonymous("192.0.2.1")
        self.begin(bystander, 250_000)
        for _ in range(15):
            self.begin(self.anonymous("192.0.2.66"), 100_000)
        self.assertEqual(self.unfinished.spilled, 0)
        self.assertGreater(self.unfinished.ended, 5)
        self.go_on(bystander, BODY[250_000:], more=False)
        self.assertAccepted(bystander)

    def test_frames(self) -> None:
        """A frame that never ends counts as well; its connection goes."""
        self.here._settings["max_frame_size"] = 300_000
        clients = [self.sender(MALLORY, f"m{number}") for number in range(6)]
        for client in clients:
            client.write(client.transfer(0, BODY[:250_000], more=True)[:-1])
            for each in clients:
                each.run()  # who is dropped notices it
            self.assertLessEqual(self.memory.arriving_bytes, MIB)
        closed = [client for client in clients if client.is_cut]
        self.assertTrue(closed)
        self.assertLess(len(closed), 6)

    def test_not_read_yet(self) -> None:
        """Frames that wait for the connection's next turn are not unfinished."""
        settings = ConnectionSettings(role="server", container_id="a", reports_input=True)
        engine = Connection(settings)
        engine.start(0.0)
        opening = AMQP_HEADER + frame(spec.Open(container_id="c"))
        empty = frame(None) * 10_000
        events = engine.receive_data(opening + empty, 0.0, 1)
        self.assertTrue(engine.has_input)
        self.assertEqual(engine.held_bytes, 0)
        self.assertFalse([each for each in events if isinstance(each, InputHeld)])

    def test_postings(self) -> None:
        """One that is ended takes its transaction with it."""
        client = self.sender(MALLORY, "m", links=11)
        client.send(attach("sender", "txn", 30, None, target=spec.Coordinator()))
        frontend = self.here.frontends[-1]
        transaction = frontend.transactions.declare(None)
        state = spec.TransactionalState(txn_id=transaction.id)
        client.write(client.transfer(0, BODY[:200_000], 0, more=True, state=state))
        for handle in range(1, 11):
            self.begin(client, 100_000, handle)
        self.assertEqual(client.all(spec.Detach)[0].handle, 0)
        self.assertIn("too much memory", str(transaction.doom))

    @settings(max_examples=20, deadline=None)
    @given(
        st.lists(
            st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 250_000)), max_size=25
        )
    )
    def test_never_above(self, steps: list[tuple[int, int, int]]) -> None:
        """The sum is within the bound after each read, for any input on any link."""
        self.setUp()
        clients = [
            self.sender(who, f"c{number}", links=3)
            for number, who in enumerate((MALLORY, MALLORY, ANN, ANN))
        ]
        begun: set[tuple[int, int]] = set()
        for number, handle, octets in steps:
            client = clients[number]
            frontend = self.here.frontends[number]
            open_links = {each.name for each in frontend.links.attached}
            if f"sender-{handle}" not in open_links:
                continue
            if (number, handle) in begun:
                self.go_on(client, b"y" * octets, handle)
            else:
                self.begin(client, octets, handle)
                begun.add((number, handle))
            engines = [each.connection for each in self.here.frontends]
            held = sum(each.held_bytes for each in engines if each.held_bytes > 4096)
            self.assertEqual(self.memory.arriving_bytes, held)
            self.assertLessEqual(held, MIB)
            self.assertTrue(self.here.broker.gate.is_open)


class ProgressTests(UnfinishedCase):
    def test_stalled(self) -> None:
        """Without progress: on the disk after half a minute, ended after five; empty frames or
        heartbeats do not help."""
        client = self.sender(MALLORY, "m", links=2)
        self.begin(client, HEAD_BYTES + 1000, 0)
        self.begin(client, 1000, 1)
        for _ in range(int(SPILL_SECONDS)):
            client.write(frame(None))
            self.go_on(client, b"", 0)
            self.go_on(client, b"", 1)
            self.wait(1)
        self.assertEqual((self.unfinished.spilled, self.unfinished.ended), (1, 0))
        self.assertLess(self.here.frontends[0].connection.held_bytes, 8000)
        self.assertEqual(self.unfinished.drafts.used, 1)
        for _ in range(280):
            client.write(frame(None))
            self.go_on(client, b"", 0)
            self.go_on(client, b"", 1)
            self.wait(1)
        ended = client.run().all(spec.Detach)
        self.assertEqual([condition(each) for each in ended], [LIMITED] * 2)
        self.assertEqual((self.memory.arriving_bytes, self.unfinished.drafts.used), (0, 0))

    def test_many_at_once(self) -> None:
        """Those that are overdue at the same time are ended in turns."""
        client = self.sender(MALLORY, "m", links=50)
        for handle in range(50):
            self.begin(client, 1000, handle)
        self.world.clock.advance(301.0)
        self.unfinished.look()
        self.assertEqual(self.unfinished.ended, MOST_EVICTED)
        self.world.advance()
        self.assertEqual(self.unfinished.ended, 50)
        self.assertEqual(len(client.run().all(spec.Detach)), 50)

    def test_many_to_the_disk_at_once(self) -> None:
        """Those that have no claim to memory any more are written to disk in turns."""
        self.here = self.world.house(limits={"memory_bytes": 128 * MIB})
        self.unfinished = self.here.shared.partial_deliveries
        client = self.sender(MALLORY, "m", links=20)
        for handle in range(20):
            self.begin(client, 200_000, handle)
        self.world.clock.advance(SPILL_SECONDS)
        self.unfinished.look()
        self.assertEqual(self.unfinished.spilled, SPARE_BYTES // 200_000 + 1)
        self.world.advance()
        self.assertEqual(self.unfinished.spilled, 20)

    def test_slow(self) -> None:
        """A sender on a thin line gets through, though it takes an hour."""
        client = self.sender(ANN, "ann")
        body = BODY[-180_000:]
        encoded = message(body)
        client.write(client.transfer(0, encoded[:1000], 0, more=True))
        for start in range(1000, len(encoded), 1500):
            self.wait(29)
            more = start + 1500 < len(encoded)
            self.go_on(client, encoded[start : start + 1500], more=more)
        self.assertAccepted(client)
        self.assertEqual(self.unfinished.ended, 0)

    def test_held_by_us(self) -> None:
        """Time in which nothing is read does not count."""
        client = self.sender(ANN, "ann")
        self.begin(client, 1000)
        self.here.frontends[0].is_held = True
        self.wait(400)
        self.here.frontends[0].is_held = False
        self.wait(290)
        self.assertEqual(self.unfinished.ended, 0)
        self.wait(20)
        self.assertEqual(self.unfinished.ended, 1)

    def test_in_parts(self) -> None:
        """One that goes to the disk as it comes is ended, too."""
        client = self.sender(MALLORY, "m")
        client.write(client.transfer(0, LARGE[:200_000], 0, more=True))
        for start in range(200_000, 1_200_000, 200_000):
            self.go_on(client, LARGE[start : start + 200_000])
        self.assertEqual(self.unfinished.drafts.used, 1)
        self.wait(299)
        self.assertFalse(client.run().all(spec.Detach))
        self.wait(2)
        self.assertEqual(condition(client.run().all(spec.Detach)[0]), LIMITED)
        self.assertEqual(self.unfinished.drafts.used, 0)


class PlaceTests(UnfinishedCase):
    """Places of large messages on their way to the disk."""

    def large(self, client: Client, handle: int) -> list[Any]:
        """Send one in full; return the states told."""
        client.write(client.transfer(handle, LARGE[:200_000], handle, more=True))
        for start in range(200_000, 1_200_000, 200_000):
            self.go_on(client, LARGE[start : start + 200_000], handle)
        return [each.state for each in client.all(spec.Disposition)]

    def test_places(self) -> None:
        """Beyond its share a party's message is released, and the next one may have room."""
        with patch.object(draft_share, "MOST_DRAFTS", 8):
            client = self.sender(MALLORY, "m", links=4)
            self.assertEqual(self.large(client, 0) + self.large(client, 1), [])
            self.assertIsInstance(self.large(client, 2)[0], spec.Released)
            self.go_on(client, LARGE[1_200_000:], 2, more=False)
            other = self.sender(ANN, "ann")
            self.assertEqual(self.large(other, 0), [])
            client.hang_up()
            self.assertEqual(self.unfinished.drafts.used, 1)
            self.go_on(other, LARGE[1_200_000:], more=False)
            self.assertAccepted(other)
            self.assertEqual(self.unfinished.drafts.used, 0)

    def test_addresses(self) -> None:
        """Connections of one address share what is one address's part of the anonymous."""
        with patch.object(draft_share, "MOST_DRAFTS", 8):
            states = [self.large(self.anonymous("192.0.2.66"), 0) for _ in range(4)]
            self.assertEqual(states[:2], [[], []])
            self.assertIsInstance(states[2][0], spec.Released)
            self.assertEqual(self.large(self.anonymous("192.0.2.1"), 0), [])

    def test_octets(self) -> None:
        """Nor has a party more of the disk than would still be free, but for its only one."""
        self.unfinished.spare_octets = 2_000_000
        client = self.sender(MALLORY, "m", links=4)
        self.assertEqual(self.large(client, 0), [])
        self.assertIsInstance(self.large(client, 1)[0], spec.Released)
        other = self.sender(ANN, "ann")
        self.assertEqual(self.large(other, 0), [])
        client.hang_up()
        self.go_on(other, LARGE[1_200_000:], more=False)
        self.assertAccepted(other)
        self.assertEqual(self.unfinished.draft_octets.used, 0)

    def test_small_frames(self) -> None:
        """A large message in many small frames stays whole where its head is taken off."""
        client = self.sender(ANN, "ann")
        client.write(client.transfer(0, LARGE[:1000], 0, more=True))
        for start in range(1000, len(LARGE), 1000):
            more = start + 1000 < len(LARGE)
            self.go_on(client, LARGE[start : start + 1000], more=more)
        self.assertAccepted(client)
        taker = self.here.client(ANN).ready("taker")
        taker.receiver(address="q", credit=1)
        (taken,) = taker.run().messages()
        self.assertTrue(taken.endswith(LARGE))  # behind a header

    def test_refused(self) -> None:
        """Of a message that is refused on its way nothing is kept with the error."""
        client = self.sender(MALLORY, "m")
        bad = message(b"x" * 50_000) + bytes(250_000)
        client.write(client.transfer(0, bad[:100_000], 0, more=True))
        self.go_on(client, bad[100_000:])
        frontend = self.here.frontends[-1]
        (link,) = frontend.connection.unfinished
        frontend.events(frontend.connection.hand_up(link, self.world.clock.seconds()))
        frontend.flush()
        self.assertIsInstance(client.run().one(spec.Disposition).state, spec.Rejected)
        held = [each for each in gc.get_objects() if type(each) is FrameType]
        inside = {each.f_code for each in held}
        self.assertNotIn(large_message_receiver.LargeMessageReceiver.add.__code__, inside)

    def test_doomed(self) -> None:
        """Nor with what a transaction fails for."""
        client = self.sender(MALLORY, "m")
        client.send(attach("sender", "txn", 30, None, target=spec.Coordinator()))
        frontend = self.here.frontends[-1]
        transaction = frontend.transactions.declare(None)
        state = spec.TransactionalState(txn_id=transaction.id)
        client.write(client.transfer(0, b"nonsense", 0, state=state))
        self.assertIsNotNone(transaction.doom)
        assert transaction.doom is not None
        self.assertIsNone(transaction.doom.__traceback__)


class StrangerTests(UnfinishedCase):
    def test_before_open(self) -> None:
        """Before its open nobody has us wait for more than a few thousand octets."""
        large = spec.Open(container_id="c" * 20_000)
        client = self.here.client()
        client.write(AMQP_HEADER, frame(large)[:1000])
        self.assertEqual(condition(client.one(spec.Close)), "amqp:connection:framing-error")
        client = self.here.client()
        begin = spec.Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10)
        large_attach = attach("sender", "s", 0, "q", properties={"p": "x" * 20_000})
        opening = spec.Open(container_id="c", properties={"p": "x" * 5000})
        client.write(AMQP_HEADER, frame(opening) + frame(begin) + frame(large_attach))
        self.assertEqual(client.one(spec.Attach).handle, 0)
