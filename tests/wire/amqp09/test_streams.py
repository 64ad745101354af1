# SPDX-License-Identifier: Apache-2.0
"""Any stream in any pieces, valid or not: the same events, no exception, bounded memory."""

from __future__ import annotations

import os
import random
import sys
from itertools import pairwise
from typing import Any, ClassVar

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from twisted.trial.unittest import SynchronousTestCase

from amqproute.wire import input_cost
from amqproute.wire.amqp09.connection09 import Connection09
from amqproute.wire.amqp09.handshake import HandshakeStage
from amqproute.wire.amqp09.protocol_events import (
    ChannelEnded,
    ConnectionEnded,
    ContentPartReceived,
    ContentsReceived,
    DeliveriesSettled,
    MethodReceived,
    PublishesReceived,
)
from tests.support.plain_amqp09 import frame_octets, frames, header_octets, method_octets
from tests.support.wire09 import V09, V091, Peer09, call, of_type, publish

BODIES = st.binary(max_size=30)
OF_ONE_SIZE = st.binary(min_size=3, max_size=3)
"""Publishes with these and equal properties are taken as one run."""


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Draw what clients write on two channels: publishes that repeat and others, acks, methods."""
    out = b""
    for _ in range(draw(st.integers(1, 8))):
        channel = draw(st.integers(1, 2))
        what = draw(st.sampled_from(["same", "same", "other", "parts", "ack", "method", "beat"]))
        if what == "same":
            for body in [*draw(st.lists(OF_ONE_SIZE, min_size=1, max_size=4)), draw(BODIES)]:
                out += publish(channel, body, properties={"delivery-mode": 2})
        elif what == "other":
            key = draw(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
                               max_size=3))  # fmt: skip
            out += publish(channel, draw(BODIES), key, properties={"headers": [("a", "I", 1)]})
        elif what == "parts":
            out += publish(channel, draw(BODIES), pieces=draw(st.integers(1, 9)))
        elif what == "ack":
            out += call(channel, "basic.ack", delivery_tag=draw(st.integers(0, 4)),
                        multiple=draw(st.integers(0, 1)))  # fmt: skip
        elif what == "method":
            out += call(channel, draw(st.sampled_from(["basic.qos", "tx.select", "basic.consume"])))
        else:
            out += frame_octets(8, 0, b"")
    return out


def told(events: list[Any]) -> list[tuple[Any, ...]]:
    """Return events as plain values, batches taken apart."""
    found: list[tuple[Any, ...]] = []
    for event in events:
        if isinstance(event, PublishesReceived | ContentsReceived):
            contents = event.publishes if isinstance(event, PublishesReceived) else event.contents
            found += [
                (event.channel.number, c.method, c.properties, c.property_octets, c.body, c.number)
                for c in contents
            ]
        elif isinstance(event, DeliveriesSettled):
            found += [
                (event.channel.number, event.settlement, *each)
                for each in zip(event.tags, event.contexts, strict=True)
            ]
        elif isinstance(event, MethodReceived):
            found.append((event.channel.number, event.method))
        elif isinstance(event, ChannelEnded):
            found.append((event.channel.number, event.code, event.violation))
        elif isinstance(event, ConnectionEnded):
            found.append((0, event.code, event.violation))
    return found


def by_channel(found: list[tuple[Any, ...]]) -> dict[int, list[tuple[Any, ...]]]:
    """Sort by channel, in order: contents of one channel may overtake those of another."""
    sorted_: dict[int, list[tuple[Any, ...]]] = {}
    for each in found:
        sorted_.setdefault(each[0], []).append(each)
    return sorted_


class SplitTests(SynchronousTestCase):
    """The same octets in other pieces."""

    def ready(self) -> Peer09:
        """Return a peer with two channels, the first of which has three deliveries out."""
        peer = Peer09().opened(1, 2)
        channel = next(each for each in peer.engine.channels if each.number == 1)
        for number in range(3):
            channel.deliver("t", "", "q", b"\0\0", [], context=number)
        peer.raw()
        return peer

    @given(streams(), st.lists(st.integers(0, 400), max_size=8), st.integers(0, 3))
    def test_any_split(self, stream: bytes, cuts: list[int], damage: int) -> None:
        """Cut anywhere, and octet by octet, the events are those of the whole: also of faults."""
        if damage:
            place = (sum(cuts) + damage) % len(stream)
            stream = stream[:place] + bytes((stream[place] ^ damage,)) + stream[place + 1 :]
        whole = self.ready()
        expected = told(whole.send(stream))
        answer = whole.raw()
        for pieces in (sorted({0, *(cut % len(stream) for cut in cuts), len(stream)}),
                       range(len(stream) + 1)):  # fmt: skip
            peer = self.ready()
            events: list[Any] = []
            for start, end in pairwise(pieces):
                events += peer.send(stream[start:end])
            self.assertEqual(by_channel(told(events)), by_channel(expected))
            self.assertEqual(peer.raw(), answer)
            self.assertEqual(peer.engine.stage, whole.engine.stage)

    @given(streams(), st.integers(1, 60))
    def test_any_budget(self, stream: bytes, budget: int) -> None:
        """With any budget of work the events are the same, some at a time."""
        expected = told(self.ready().send(stream))
        peer = self.ready()
        events = list(peer.engine.receive_data(stream, 0, budget))
        while peer.engine.has_input:
            more = peer.engine.receive_data(b"", 0, budget)
            self.assertTrue(more or peer.engine.work)
            events += more
        self.assertEqual(by_channel(told(events)), by_channel(expected))
        self.assertEqual(peer.engine.held_octets, 0)

    def test_short_way(self) -> None:
        """Publishes that were seen before, and those that were not, are the same."""
        bodies = [b"", b"x", bytes(4000)] * 3
        stream = b"".join(publish(1, body, properties={"priority": 3}) for body in bodies)
        short = self.ready()
        events = told(short.send(stream))
        long = self.ready()
        one_by_one: list[Any] = []
        for kind, channel, payload in frames(stream):
            long.engine._publish_methods.clear()
            long.engine._basic_properties.clear()
            long.engine._tables.clear()
            one_by_one += long.send(frame_octets(kind, channel, payload))
        self.assertEqual(events, told(one_by_one))
        self.assertEqual(short.engine.frames_in, long.engine.frames_in)
        self.assertEqual(short.engine.contents_in, 9)

    def test_budget_bounds_a_read(self) -> None:
        """A slice of work takes this many publishes; the rest waits."""
        peer = self.ready()
        stream = publish(1, bytes(300)) * 2000
        events = peer.engine.receive_data(stream, 0, input_cost.SLICE)
        [run] = of_type(events, PublishesReceived)
        self.assertTrue(300 <= len(run.publishes) <= 500, len(run.publishes))
        self.assertTrue(peer.engine.has_input)

    def test_large_tables_cost(self) -> None:
        """Octets of tables are counted: few large ones fill a slice."""
        peer = self.ready()
        stream = b"".join(
            publish(1, properties={"headers": [(f"k{each}", "V", None)] * 4000})
            for each in range(9)
        )
        events = peer.engine.receive_data(stream, 0, input_cost.SLICE)
        self.assertLess(len(of_type(events, PublishesReceived)[0].publishes), 5)


class HostileTests(SynchronousTestCase):
    """Octets of no good will."""

    @given(st.binary(max_size=200), st.sampled_from([b"", V09, V091]))
    def test_arbitrary_octets(self, octets: bytes, header: bytes) -> None:
        """From the first octet on: events or nothing, and the end is the last of them."""
        peer = Peer09()
        events = peer.send(header, octets)
        peer.raw()
        if of_type(events, ConnectionEnded):
            self.assertIsInstance(events[-1], ConnectionEnded)
        self.assertEqual(
            len(of_type(events + list(peer.engine.receive_eof(1)), ConnectionEnded)), 1
        )

    SEEDS: ClassVar[tuple[bytes, ...]] = (
        publish(1, b"hello", properties={"headers": [("a", "F", [("b", "A", [("I", 1)])])]}),
        publish(2, bytes(300), pieces=50),
        call(1, "queue.declare", queue="q", arguments=[("x-expires", "I", 1)]),
        call(1, "basic.ack", delivery_tag=1, multiple=1),
        call(1, "basic.consume", consumer_tag="c"),
        call(2, "confirm.select"), call(2, "tx.select"), call(1, "channel.close"),
        call(3, "channel.open"), call(1, "channel.flow"), frame_octets(8, 0, b""),
        call(0, "connection.close"), call(1, "message.transfer", body=(0, b"x")),
        frame_octets(2, 1, header_octets(60, 1 << 63)), call(1, "channel.ping"),
    )  # fmt: skip

    def test_fuzz(self) -> None:
        """Streams of right frames, some octets of which are wrong: never an exception.

        2,000 of them, 20,000 in the long run.
        """
        randomness = random.Random(9)
        ends = {"open": 0, "closing": 0, "over": 0}
        rounds = 200 if os.environ.get("AMQPROUTE_HYPOTHESIS") != "long" else 2000
        for round_ in range(rounds):
            header = V09 if round_ % 2 else V091
            for _ in range(10):
                peer = _COPIES[header].ready()
                stream = bytearray(b"".join(randomness.choices(self.SEEDS, k=3)))
                for _ in range(randomness.choice((0, 1, 1, 2, 5))):
                    stream[randomness.randrange(len(stream))] = randomness.randrange(256)
                cut = randomness.randrange(len(stream))
                events = list(peer.receive_data(bytes(stream[:cut]), 0))
                events += peer.receive_data(bytes(stream[cut:]), 0)
                self.assertLess(peer.held_octets, 2000)
                peer.data_to_send()
                stage = peer.stage
                ends["open" if stage is HandshakeStage.OPEN else
                     "over" if stage is HandshakeStage.OVER else "closing"] += 1  # fmt: skip
                events += peer.receive_eof(0)
                self.assertEqual(len(of_type(events, ConnectionEnded)), 1)
        self.assertTrue(all(count > rounds / 2 for count in ends.values()), ends)

    def test_all_channels(self) -> None:
        """65,535 channels take little memory each, and one after the other none."""
        peer = Peer09(channel_max=65535).opened()
        for number in range(1, 2001):
            peer.send(call(number, "channel.open"))
        self.assertEqual(len(peer.engine.channels), 2000)
        peer = Peer09().opened()
        for _ in range(300):
            [asked] = peer.send(call(7, "channel.open"))
            [ended] = peer.send(call(7, "channel.close"))
            of_type([ended], ChannelEnded)[0].channel.close_ok()
            del asked
        self.assertEqual(peer.engine.channels, ())

    def test_nothing_is_kept(self) -> None:
        """Events handed up, and input read, are not kept by a connection that falls silent."""
        for tail in (b"", publish(2, bytes(5000))[:-100], frame_octets(8, 0, b"")):
            peer = Peer09().opened(1, 2)
            events = peer.engine.receive_data(publish(1, bytes(60_000)) * 2 + tail, 0)
            publishes = of_type(events, PublishesReceived)[0].publishes
            del events
            self.assertEqual(sys.getrefcount(publishes), 2)  # ours, and the call's
            engine = peer.engine
            self.assertLess(engine.held_octets, 6000)
            self.assertLess(len(engine._data) + len(engine._partial), 6000)

    def test_memory_of_names(self) -> None:
        """The memory of decoded values is bounded for any client."""
        peer = Peer09().opened(1)
        for number in range(1000):
            peer.send(publish(1, b"", f"key-{number}", properties={"message-id": str(number)}))
            peer.send(publish(1, properties={"headers": [(f"k{number}", "V", None)]}))
        self.assertLessEqual(len(peer.engine._publish_methods), 128)
        engine = peer.engine
        self.assertLessEqual(len(engine._basic_properties), 128)
        self.assertTrue(0 < len(engine._tables) <= 128)
        peer.send(publish(1, properties={"headers": [("a", "S", bytes(300))]}))
        for remembered in (engine._basic_properties, engine._tables):
            self.assertFalse([octets for octets in remembered if len(octets) > 192])


class _Opened:
    """Connections that are open with two channels: made again for each, by the shortest way."""

    def __init__(self, header: bytes) -> None:
        self.header = header

    def ready(self) -> Connection09:
        """Return one."""
        peer = Peer09(self.header)
        peer.send(self.header, _START)
        peer.send(_TUNED)
        engine = peer.engine
        for channel in engine.channels:
            channel.deliver("t", "", "q", b"\0\0", [])
        engine.data_to_send()
        return engine


_START = call(0, "connection.start-ok", mechanism="PLAIN", locale="en_US")
_TUNED = b"".join(
    (
        call(0, "connection.tune-ok"), call(0, "connection.open", virtual_host="/"),
        call(1, "channel.open"), call(2, "channel.open"),
    )
)  # fmt: skip
_COPIES = {header: _Opened(header) for header in (V09, V091)}


class ChannelMachine(RuleBasedStateMachine):
    """A server's channel beside a model of it: what is outstanding, confirmed, begun, open."""

    def __init__(self) -> None:
        super().__init__()
        self.peer = Peer09(part_from=50).opened(1)
        self.open = True
        self.fresh()

    def fresh(self) -> None:
        """Begin with a new channel."""
        [self.channel] = self.peer.engine.channels
        self.outstanding: set[int] = set()
        self.issued = 0
        self.confirming = False
        self.transacted = False
        self.published = 0
        self.confirmed: set[int] = set()
        self.left = 0

    @rule()
    @precondition(lambda self: self.open)
    def deliver(self) -> None:
        """The broker delivers."""
        self.issued += 1
        assert self.channel.deliver("t", "", "q", b"\0\0", [b"x"]) == self.issued
        self.outstanding.add(self.issued)

    @rule(tag=st.integers(0, 8), multiple=st.booleans(), name=st.sampled_from(["ack", "nack"]))
    @precondition(lambda self: self.open and not self.left)
    def settle(self, tag: int, multiple: bool, name: str) -> None:
        """The client acks or nacks."""
        events = self.peer.send(call(1, f"basic.{name}", delivery_tag=tag, multiple=int(multiple)))
        due = {each for each in self.outstanding if each == tag or (
            multiple and (each < tag or not tag))}  # fmt: skip
        if tag > self.issued:
            due = set()
        settled = {each for e in of_type(events, DeliveriesSettled) for each in e.tags}
        if due or (multiple and not tag):
            assert settled == due, (settled, due)
            self.outstanding -= due
        else:
            self.is_closed(events, 406)

    @rule(size=st.integers(0, 60))
    @precondition(lambda self: self.open and not self.left)
    def publish_whole(self, size: int) -> None:
        """The client publishes."""
        events = self.peer.send(publish(1, bytes(size)))
        self.count_publish()
        whole = [p for e in of_type(events, PublishesReceived) for p in e.publishes]
        if size > 50:
            [part] = of_type(events, ContentPartReceived)
            assert part.is_last
            whole = [part.content]  # type: ignore[list-item]
        assert [p.number for p in whole] == [self.published if self.confirming else 0]

    @rule(size=st.integers(2, 80))
    @precondition(lambda self: self.open and not self.left)
    def publish_begin(self, size: int) -> None:
        """The client begins a publish."""
        octets = call(1, "basic.publish") + frame_octets(2, 1, header_octets(60, size))
        self.peer.send(octets, frame_octets(3, 1, b"x"))
        self.count_publish()
        self.left = size - 1

    @rule()
    @precondition(lambda self: self.open and self.left)
    def publish_end(self) -> None:
        """The client ends it."""
        events = self.peer.send(frame_octets(3, 1, bytes(self.left)))
        assert len(events) == 1
        self.left = 0

    def count_publish(self) -> None:
        """Count in confirm mode."""
        self.published += self.confirming

    @rule(first=st.integers(1, 4), last=st.integers(1, 4))
    @precondition(lambda self: self.open and self.confirming)
    def confirm(self, first: int, last: int) -> None:
        """The broker confirms, if it may."""
        run = set(range(first, last + 1))
        if run and last <= self.published and not run & self.confirmed:
            self.channel.confirm(first, last)
            self.confirmed |= run
            assert self.channel.confirms is not None
            assert self.channel.confirms.outstanding == self.published - len(self.confirmed)

    @rule(name=st.sampled_from(["confirm.select", "tx.select", "tx.commit"]))
    @precondition(lambda self: self.open and not self.left)
    def mode(self, name: str) -> None:
        """The client asks for a mode."""
        events = self.peer.send(call(1, name))
        bad = (self.transacted if name == "confirm.select" else
               self.confirming if name == "tx.select" else not self.transacted)  # fmt: skip
        if bad:
            self.is_closed(events, 406)
        else:
            assert len(of_type(events, MethodReceived)) == 1
            self.confirming |= name == "confirm.select"
            self.transacted |= name == "tx.select"

    def is_closed(self, events: list[Any], code: int) -> None:
        """See that the channel was closed."""
        assert [e.code for e in of_type(events, ChannelEnded)] == [code]
        assert not self.channel.is_open
        self.open = False

    @rule(noise=st.booleans())
    @precondition(lambda self: not self.open)
    def reopen(self, noise: bool) -> None:
        """The client continues for a while, answers, and opens again."""
        left = [tag for tag, _ in self.channel.unacknowledged.take_all()]
        assert left == sorted(self.outstanding)
        if noise:
            assert self.peer.send(publish(1, b"x"), call(1, "basic.ack", delivery_tag=1)) == []
        self.peer.send(call(1, "channel.close-ok"), call(1, "channel.open"))
        self.open = True
        self.fresh()

    @rule()
    @precondition(lambda self: self.open and not self.left)
    def close(self) -> None:
        """The client closes, and opens again."""
        self.peer.send(call(1, "channel.close"))
        self.channel.close_ok()
        self.peer.send(call(1, "channel.open"))
        self.fresh()

    @invariant()
    def agrees(self) -> None:
        """Model and channel are one."""
        engine = self.peer.engine
        assert engine.is_open
        if self.open:
            assert sorted(self.outstanding) == list(self.channel.unacknowledged)
        held = engine.partial_octets
        assert held <= 49
        assert bool(held) <= bool(self.left)
        frames(self.peer.raw())
        assert method_octets("basic.qos")


ChannelMachine.TestCase.settings = hypothesis_settings(max_examples=40, stateful_step_count=25)


class ModelTests(SynchronousTestCase):
    """`ChannelMachine`."""

    def test_channels(self) -> None:
        """The engine's books agree with the model in any course of client and broker."""
        case = ChannelMachine.TestCase("runTest")
        case.runTest()
