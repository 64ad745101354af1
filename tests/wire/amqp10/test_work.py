# SPDX-License-Identifier: Apache-2.0
"""Input is processed up to a budget of work; frames without effect are counted."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute import conditions
from amqproute.wire import input_cost
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.connection import Connection
from amqproute.wire.amqp10.engine_events import (
    ConnectionClosed,
    DeliveriesReceived,
    LinkDetached,
)
from amqproute.wire.amqp10.frames import EMPTY_FRAME, FrameBuffer
from amqproute.wire.amqp10.types import Described, Symbol
from tests.support.wire import Peer, attach, flow, frame, merged, of_type, settings, transfer


class BudgetTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.engine = Connection(settings(incoming_window=100_000))
        self.peer = Peer(self.engine).opened(channel_max=100).begun()

    def take(self, data: bytes, budget: int | None) -> list[Any]:
        """Hand in octets within a budget, and act on what comes of them."""
        events = self.engine.receive_data(data, self.peer.now, budget)
        for event in events:
            self.peer.user(event)
        return events

    def rounds(self, data: bytes, budget: int) -> list[list[Any]]:
        """Hand in octets and continue until all of them are taken."""
        found = [self.take(data, budget)]
        while self.engine.has_input:
            found.append(self.take(b"", budget))
        return found

    def test_deliveries(self) -> None:
        """So many are taken as the budget has units for, each of them once and in order."""
        self.peer.send(attach())
        self.peer.events[-1].link.flow(1000)  # type: ignore[union-attr]
        data = b"".join(frame(transfer(each), b"x") for each in range(1000))
        rounds = self.rounds(data, 100 * input_cost.DELIVERY)
        counts = [len(event.deliveries) for events in rounds for event in events]
        self.assertEqual(counts, [100] * 10)
        ids = [each.id for events in rounds for event in events for each in event.deliveries]
        self.assertEqual(ids, list(range(1000)))
        self.assertFalse(self.engine.has_input)

    def test_large_performatives(self) -> None:
        """One that is large is decoded when its turn comes, and not ahead of it."""
        properties = {Symbol(f"key-{n}"): "x" * 20 for n in range(1000)}
        large = frame(attach(properties=properties))
        buffer = FrameBuffer(1 << 20)
        buffer.feed(large * 8)
        self.assertEqual([len(buffer.frames(input_cost.CUT)) for _ in range(8)], [1] * 8)

    def test_after_a_fault(self) -> None:
        """Input behind it is dropped and counted; at a bound nothing is waited for."""
        self.take(b"\0\0\0\1 no frame", None)
        self.engine.data_to_send()
        before, piece = self.engine.work, bytes(input_cost.MOST_UNHEARD // 4)
        for _ in range(4):
            self.assertEqual(self.take(piece, None), [])
        self.assertEqual(
            self.engine.work - before, input_cost.MOST_UNHEARD // input_cost.OCTETS_PER_UNIT
        )
        self.assertFalse(self.engine.is_closed)
        self.take(b"x", None)
        self.assertTrue(self.engine.is_closed)

    def test_without_a_budget(self) -> None:
        """One read is one batch."""
        self.peer.send(attach())
        self.peer.events[-1].link.flow(3000)  # type: ignore[union-attr]
        data = b"".join(frame(transfer(each), b"x") for each in range(3000))
        (event,) = self.take(data, None)
        self.assertEqual(len(event.deliveries), 3000)

    def test_a_publisher_fills_a_batch(self) -> None:
        """A slice holds 900 small deliveries: a publisher's commits stay large."""
        self.peer.send(attach())
        self.peer.events[-1].link.flow(1000)  # type: ignore[union-attr]
        data = b"".join(frame(transfer(each), b"x" * 300) for each in range(1000))
        (event,) = self.take(data, input_cost.SLICE)
        self.assertGreaterEqual(len(event.deliveries), 900)

    def test_costly_verbs(self) -> None:
        """A slice has few attaches, fewer with selectors, and few echoes."""
        for cost, data in (
            (500, b"".join(self.churn(each) for each in range(200))),
            (5000, b"".join(self.churn(each, "a" * 3000) for each in range(50))),
            (50, frame(flow(echo=True)) * 2000),
            (125, (frame(spec.Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1),
                         channel=1) + frame(spec.End(), channel=1)) * 300),
        ):  # fmt: skip
            frames = self.engine.frames_in
            before = self.engine.work
            rounds = self.rounds(data, input_cost.SLICE)
            frames = self.engine.frames_in - frames
            spent = self.engine.work - before
            self.assertGreaterEqual(spent, frames // 2 * cost if cost >= 500 else frames * cost)
            self.assertGreaterEqual(len(rounds), spent // (input_cost.SLICE + 7000))
            self.peer.raw()

    def churn(self, number: int, selector: str = "") -> bytes:
        """Return an attach and its detach."""
        chosen = {Symbol("s"): Described(Symbol("apache.org:selector-filter:string"), selector)}
        source = spec.Source(address="a", filter=chosen if selector else None)
        attached = attach("receiver", 7, f"l{number}", source=source)
        return frame(attached) + frame(spec.Detach(handle=7, closed=True))

    def test_disposition(self) -> None:
        """A wide range costs as much as has to be looked through."""
        self.peer.send(attach())
        link: Any = self.peer.events[-1].link  # type: ignore[union-attr]
        link.flow(1000)
        self.take(b"".join(frame(transfer(each), b"x") for each in range(1000)), None)
        self.peer.raw()
        wide = frame(spec.Disposition(role=False, first=0, last=0x7FFFFFF0, settled=False))
        before = self.engine.work
        self.take(wide, None)
        self.assertGreaterEqual(self.engine.work - before, 1000 * input_cost.SETTLED)

    def test_budget_of_nothing(self) -> None:
        """One frame is taken with any budget."""
        data = frame(flow()) * 3
        self.assertEqual([len(each) for each in self.rounds(data, 0)], [1, 1, 1])

    def test_part_of_a_frame_is_no_input(self) -> None:
        """An incomplete frame does not ask for another turn."""
        data = frame(flow(echo=True))
        self.take(data + data[:-1], 1)
        self.assertFalse(self.engine.has_input)
        self.take(data[-1:], 1)
        self.assertFalse(self.engine.has_input)

    def test_fault_behind_a_budget(self) -> None:
        """A broken stream is noticed when its turn comes."""
        found = self.rounds(frame(flow()) * 3 + b"\x00\x00\x00\x01\x02\x00\x00\x00", 1)
        self.assertEqual([len(each) for each in found[:3]], [1, 1, 1])
        self.assertEqual(
            len(of_type([event for events in found for event in events], ConnectionClosed)), 1
        )

    @given(st.integers(0, 3000), st.integers(1, 400))
    def test_same_events(self, budget: int, chunk: int) -> None:
        """Neither budget nor chunks change what happens, but for how it is grouped."""
        script = b"".join(
            [
                *(frame(transfer(each, more=each % 3 == 0), b"x" * each) +
                  (frame(transfer(None, more=False), b"y") if each % 3 == 0 else b"")
                  for each in range(30)),
                frame(flow(handle=1, link_credit=5, delivery_count=0)),
                EMPTY_FRAME,
                frame(spec.Detach(handle=1, closed=True)),
                frame(spec.End()),
                frame(spec.Close()),
            ]
        )  # fmt: skip
        found = []
        for limit, size in ((None, len(script)), (budget, chunk)):
            engine = Connection(settings())
            peer = Peer(engine).opened().begun()
            peer.send(attach())
            peer.events[-1].link.flow(30)  # type: ignore[union-attr]
            peer.send(attach("receiver", 1, "other"))
            events: list[Any] = []
            for start in range(0, len(script), size):
                data = script[start : start + size]
                while data or engine.has_input:
                    caused = engine.receive_data(data, 0, limit)
                    data = b""
                    for event in caused:
                        peer.user(event)
                    events += caused
            found.append(merged(events))
        self.assertEqual(found[0], found[1])


class FruitlessTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.engine = Connection(settings(incoming_window=1_000_000))
        self.peer = Peer(self.engine).opened().begun()

    def closing(self) -> spec.Error | None:
        """Return with which error the engine has closed."""
        closed = of_type(self.peer.events, ConnectionClosed)
        return closed[0].error if closed else None

    def assertRefused(self, data: bytes) -> None:
        self.peer.write(data * input_cost.FRUITLESS_FRAMES)
        self.assertIsNone(self.closing())
        self.peer.write(data)
        error = self.closing()
        assert error is not None
        self.assertEqual(error.condition, conditions.RESOURCE_LIMIT_EXCEEDED)
        self.assertIn("20000 frames within 10 s that have no effect", error.description or "")

    def test_empty_frames(self) -> None:
        """Heartbeats without end."""
        self.assertRefused(EMPTY_FRAME)

    def test_flows_that_change_nothing(self) -> None:
        """The same window again and again."""
        self.assertRefused(frame(flow()))

    def test_empty_transfers(self) -> None:
        """A delivery that continues without an octet."""
        self.peer.send(attach())
        self.peer.events[-1].link.flow(1)  # type: ignore[union-attr]
        self.peer.send(transfer(0, more=True), b"x")
        self.assertRefused(frame(transfer(None, more=True)))

    def test_dispositions_of_nothing(self) -> None:
        """Deliveries that are not there."""
        self.assertRefused(frame(spec.Disposition(role=True, first=1, last=9, settled=True)))

    def test_time(self) -> None:
        """A quiet connection may send heartbeats for years."""
        for _ in range(10):
            self.peer.write(EMPTY_FRAME * (input_cost.FRUITLESS_FRAMES - 1))
            self.peer.now += input_cost.FRUITLESS_SECONDS
        self.assertIsNone(self.closing())

    def test_deliveries_make_good(self) -> None:
        """Beside messages any number of other frames may be sent."""
        self.peer.send(attach())
        self.peer.events[-1].link.flow(5000)  # type: ignore[union-attr]
        for each in range(3000):
            self.peer.write(frame(transfer(each), b"x"), EMPTY_FRAME * 15)
        self.assertEqual(len(of_type(self.peer.events, DeliveriesReceived)), 3000)
        self.assertIsNone(self.closing())

    def test_polling(self) -> None:
        """A consumer that asks with drain whether there is something has an effect each time."""
        self.peer.send(attach("receiver"))
        for _ in range(input_cost.FRUITLESS_FRAMES + 10):
            self.peer.send(flow(handle=0, link_credit=1, delivery_count=0, drain=True))
        self.assertIsNone(self.closing())
        self.assertEqual(of_type(self.peer.events, LinkDetached), [])
