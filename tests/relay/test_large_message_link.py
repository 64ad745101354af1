# SPDX-License-Identifier: Apache-2.0
"""Very large messages between brokers: their separate link, and its failures."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any
from weakref import ref

from twisted.internet.defer import Deferred

from amqproute.errors import ResourceLimitExceeded, StoreError
from amqproute.message import Message
from amqproute.routing.trail import TRACE
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.link import Link
from tests.support.asserts import HouseTestCase
from tests.support.fakes import message, node
from tests.support.memory_broker import Client, MemoryBroker, Network

PART_FROM = 20_000
FRAME = 4096
LARGE = bytes(range(256)) * 4000


class Small(MemoryBroker):
    """A broker whose engines hand up what has more than `PART_FROM` octets in parts."""

    def accept(self, principal: Any, **changes: Any) -> Any:
        few = {"part_from": PART_FROM, "max_frame_size": FRAME, "part_window": 10 * FRAME}
        return super().accept(principal, **{**few, "incoming_window": 20, **changes})


class LargeRelayTests(HouseTestCase):
    """Alpha sends to beta."""

    def setUp(self) -> None:
        super().setUp()
        self.network = Network(self.clock)
        self.alpha = Small(self.network, "alpha.example", node("dead"))
        self.beta = self.start_beta()

    def start_beta(self, **options: Any) -> MemoryBroker:
        return Small(self.network, "beta.example", node("orders"), **options)

    def sender(self) -> tuple[Client, Link]:
        client = self.alpha.client(max_frame_size=FRAME)
        link = client.sender("orders@beta.example")
        self.run_now()
        return client, link

    def arrived(self) -> list[Message]:
        """Return what is on beta's queue, whole."""
        return [
            Message(row.encoded + (row.rest._octets if row.rest is not None else b""))
            for row in self.beta.store.rows("orders")
        ]

    def links(self) -> list[str]:
        (frontend,) = self.beta.shared.connections
        return sorted(link.name for link in frontend.links.attached)

    def test_there(self) -> None:
        """The same octets, a trace; small ones before and behind."""
        client, link = self.sender()
        sent = message(LARGE, annotations={"x-opt-own": 7})
        client.send(link, message(b"a"), sent, message(b"b"))
        self.run_now()
        self.assertOutcomes(client, "Accepted", "Accepted", "Accepted")
        self.assertEqual(len(self.links()), 2)
        got = sorted(self.arrived(), key=lambda each: each.size)
        self.assertEqual([each.body_values() for each in got], [[b"a"], [b"b"], [LARGE]])
        self.assertEqual(got[2].annotations["x-opt-own"], 7)
        self.assertEqual(got[2].annotations[TRACE], ["ct-alpha.example"])
        self.assertEqual(self.alpha.depth("beta.example"), 0)
        self.assertEqual(self.alpha.store.rows("amqp$out/beta.example"), [])

    def test_small_ones_pass(self) -> None:
        """A small one published while a large one goes out is not kept waiting by it."""
        client, link = self.sender()
        client.send(link, message(b"first"))
        self.run_now()
        held: list[tuple[Deferred[bytes], bytes]] = []
        client.send(link, message(LARGE))
        # Alpha's disk is slow to give the large one back.
        rest = self.until_large_is_stored()
        read = type(rest.reader()).read

        def slow(reader: Any, size: int) -> Deferred[bytes]:
            wait: Deferred[bytes] = Deferred()
            read(reader, size).addCallback(lambda octets: held.append((wait, octets)))
            return wait

        self.patch(type(rest.reader()), "read", slow)
        self.run_now()
        client.send(link, *(message(b"%d" % number) for number in range(20)))
        self.run_now()
        self.assertEqual(len(self.arrived()), 21)
        while held:
            wait, octets = held.pop(0)
            wait.callback(octets)
            self.run_now()
        self.assertEqual(len(self.arrived()), 22)
        self.assertEqual(self.alpha.depth("beta.example"), 0)

    def until_large_is_stored(self) -> Any:
        for _ in range(2000):
            rows = self.alpha.store.rows("amqp$out/beta.example")
            for row in rows:
                if row.rest is not None:
                    return row.rest
            self.step()
        raise AssertionError("it does not come")

    def test_file_goes_at_once(self) -> None:
        """No reader has the rest of a message when it has left: its file can go."""
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        client, link = self.sender()
        client.send(link, message(LARGE))
        rest = ref(self.until_large_is_stored())
        self.run_now()
        self.assertEqual(self.alpha.depth("beta.example"), 0)
        self.assertIsNone(rest())
        taker = self.beta.client()
        taker.receiver("orders", 10)
        self.run_now()
        rest = ref(self.beta.store.rows("orders")[0].rest)
        taker.settle(taker.deliveries, spec.Accepted())
        self.run_now()
        self.assertIsNone(rest())

    def test_several(self) -> None:
        """Large ones go one after the other, all of them."""
        client, link = self.sender()
        bodies = [bytes([number]) * 100_000 for number in range(5)]
        client.send(link, *map(message, bodies))
        self.run_now()
        self.assertEqual([each.body_values()[0] for each in self.arrived()], bodies)

    def cuts(self) -> Iterator[int]:
        yield from range(1, 320, 7)

    def test_cut_anywhere(self) -> None:
        """Whenever the connection is lost, it arrives, and arrives once."""
        for turns in self.cuts():
            client, link = self.sender()
            client.send(link, message(LARGE[: 60_000 + turns]), message(b"%d" % turns))
            self.step(turns)
            for wire in list(self.network.wires):
                wire.cut()
            self.run_for(120, 5)
            self.assertOutcomes(client, "Accepted", "Accepted")
        sizes = [each.size for each in self.arrived() if each.size > 1000]
        self.assertEqual(len(sizes), len(set(sizes)))
        self.assertEqual(len(self.arrived()), 2 * len(list(self.cuts())))
        self.assertEqual(self.alpha.depth("beta.example"), 0)

    def test_beta_crashes(self) -> None:
        """Whenever beta is lost, too."""
        count = 0
        for turns in range(1, 320, 23):
            count += 1
            client, link = self.sender()
            client.send(link, message(LARGE[: 60_000 + turns]), message(b"%d" % turns))
            self.step(turns)
            self.beta.crash()
            self.beta = self.start_beta(store=self.beta.store)
            self.run_for(120, 5)
        self.assertEqual(len(self.arrived()), 2 * count)
        self.assertEqual(self.alpha.depth("beta.example"), 0)

    def test_second_link_refused(self) -> None:
        """A peer with room for one link gets everything on that."""
        find = self.beta.amqp10.termini.target

        def only_one(attach: Any, principal: Any) -> Any:
            if attach.name.endswith("/large"):
                raise ResourceLimitExceeded("one link is enough")
            return find(attach, principal)

        self.beta.amqp10.termini.target = only_one  # type: ignore[method-assign]
        client, link = self.sender()
        client.send(link, message(b"a"), message(LARGE), message(b"b"))
        self.run_now()
        self.assertEqual(len(self.links()), 1)
        self.assertEqual(len(self.arrived()), 3)
        self.assertEqual(self.alpha.depth("beta.example"), 0)

    def test_too_large_for_the_peer(self) -> None:
        """A message beyond the peer's maximum size is not offered, and goes back."""
        self.beta.max_message_size = 50_000
        client, link = self.sender()
        client.send(link, message(LARGE), message(b"b"))
        self.run_now()
        self.assertEqual(len(self.arrived()), 1)
        self.assertEqual(self.alpha.depth("beta.example"), 0)

    def test_rejected_while_it_comes(self) -> None:
        """A peer that refuses it early does not get the rest, and the link continues."""
        client = self.alpha.client(max_frame_size=FRAME)
        link = client.sender("nowhere@beta.example")
        other = client.sender("orders@beta.example", "other")
        self.run_now()
        client.send(link, message(LARGE))
        client.send(other, message(LARGE))
        self.run_now()
        self.assertEqual(len(self.arrived()), 1)
        self.assertEqual(self.alpha.depth("beta.example"), 0)

    def test_unreadable(self) -> None:
        """One whose file cannot be read is tried again, and keeps nobody waiting."""
        client, link = self.sender()
        client.send(link, message(LARGE))
        rest = self.until_large_is_stored()
        broken = [True]
        read = type(rest.reader()).read

        def read_or_not(reader: Any, size: int) -> Deferred[bytes]:
            found = read(reader, size)
            if broken:
                broken.clear()
                found.addCallback(lambda _: (_ for _ in ()).throw(StoreError("gone")))
            return found

        self.patch(type(rest.reader()), "read", read_or_not)
        self.run_now()
        self.assertEqual(len(self.flushLoggedErrors(StoreError)), 1)
        client.send(link, message(b"small"))
        self.run_now()
        self.assertEqual(len(self.arrived()), 1)
        self.run_for(400, 5)
        self.assertEqual(len(self.arrived()), 2)
