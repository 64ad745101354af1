# SPDX-License-Identifier: Apache-2.0
"""Receipts: owners, lifetimes, numbers, and replacements."""

from __future__ import annotations

import uuid
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker import receipts as module
from amqproute.broker.commit_batch import Batch
from amqproute.broker.publish_gate import PublishGate
from amqproute.broker.receipts import BY_ID, MAX_STREAMS, MessageIds, Receipts, Stream
from amqproute.message import Message
from amqproute.values import Principal
from amqproute.wire.amqp10 import codec, sections, spec
from amqproute.wire.amqp10.types import ULong
from tests.support.fakes import EPOCH_MS, KeptStore


def peer(*names: str) -> Principal:
    """Return a peer that has proved these names."""
    return Principal("peer", min(names), frozenset(names))


def message(message_id: Any) -> Message:
    """Return a message with an id."""
    properties = codec.encode(spec.Properties(message_id=message_id, to="q"))
    return Message(properties + sections.encode_section(spec.SECTION_DATA, b"x"))


class StoreCase(SynchronousTestCase):
    """Receipts over a store that outlives them."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.store = KeptStore(self.clock)
        self.receipts = Receipts(lambda _: True)
        self.forgotten: list[str] = []

    def restart(self) -> None:
        """Let everything in memory go."""
        self.receipts = Receipts(lambda _: True)
        self.receipts.recovered(self.store.recovery().received)

    def stream(self, *names: str, name: str = "s") -> Stream:
        """Return the stream of a peer."""
        return self.receipts.stream(peer(*names), name, self.forgotten.append)

    def mark(self, stream: Any, *ids: int) -> None:
        """Take messages."""
        batch = Batch(self.store.begin(), EPOCH_MS, PublishGate())
        for entry_id in ids:
            batch.mark(stream, entry_id)
        batch.commit()
        self.clock.advance(0)


class OwnerTests(StoreCase):
    """A stream is its sender's, whatever names the certificate has besides."""

    def test_gains_a_name(self) -> None:
        """A name that comes first in the alphabet changes nothing, also after a restart."""
        self.mark(self.stream("beta.example"), 1, 2)
        for _ in range(2):
            again = self.stream("alpha.example", "beta.example")
            self.assertTrue(again.seen(1))
            self.assertEqual(len(self.receipts), 2)
            self.restart()

    def test_loses_a_name(self) -> None:
        """Nor does one that goes, as long as another one stays."""
        self.mark(self.stream("a.example", "b.example", "c.example"), 7)
        self.restart()
        self.assertTrue(self.stream("b.example").seen(7))
        self.assertTrue(self.stream("c.example", "d.example").seen(7))

    def test_other_organizations(self) -> None:
        """A peer cannot use the stream of another organization."""
        self.mark(self.stream("beta.example"), 1)
        self.assertFalse(self.stream("gamma.example").seen(1))
        self.assertFalse(self.stream("beta.example.evil.example").seen(1))

    def test_keys_of_earlier_releases(self) -> None:
        """The one name that keys had is an owner like any other."""
        name = str(uuid.uuid4())
        self.receipts.recovered({f"beta.example/{name}": [3]})
        self.assertTrue(self.stream("a.example", "beta.example", name=name).seen(3))

    def test_many_names(self) -> None:
        """A key has some of the names only."""
        names = [f"n{number:03}.example" for number in range(200)]
        stream = self.stream(*names)
        self.assertLess(len(stream.key), 400)
        self.assertIs(self.stream(names[0], "z.example"), stream)


class LifeTests(StoreCase):
    """Bounds in time and number."""

    def test_empty_ones_go_first(self) -> None:
        """Streams without receipts are forgotten first."""
        full = self.stream("beta.example", name="full")
        self.mark(full, 1)
        for number in range(3 * MAX_STREAMS):
            self.stream("beta.example", name=f"{number}")
        self.assertIs(self.stream("beta.example", name="full"), full)
        self.assertEqual(self.forgotten, [])

    def test_last_used(self) -> None:
        """Then the one that was attached longest ago; one in use comes back."""
        streams = [self.stream("b.example", name=f"{number}") for number in range(MAX_STREAMS)]
        for stream in streams:
            self.mark(stream, 1)
        self.stream("b.example", name="0")
        self.stream("b.example", name="new")
        self.assertEqual(self.forgotten, ["b.example/1"])
        self.assertIs(self.stream("b.example", name="0"), streams[0])
        self.mark(streams[1], 2)
        self.assertIs(self.stream("b.example", name="1"), streams[1])

    def test_most_of_a_peer(self) -> None:
        """All streams of a peer together are bounded too."""
        self.patch(module, "MAX_IDS_OF_PEER", 100)
        self.mark(self.stream("b.example", name="0"), *range(80))
        self.mark(self.stream("b.example", name="1"), *range(80))
        self.mark(self.stream("c.example", name="0"), *range(80))
        self.stream("b.example", name="2")
        self.assertEqual(self.forgotten, ["b.example/0"])
        self.assertEqual(len(self.receipts), 160)

    def test_sweep(self) -> None:
        """Streams in which nothing comes for longer than anybody tries leave the memory."""
        quiet, busy = self.stream("b.example"), self.stream("c.example")
        self.mark(quiet, 1)
        for day in range(10):
            self.mark(busy, day)
            swept = self.receipts.sweep(day * 86400.0, 7 * 86400.0)
            self.assertEqual(swept, int(day == 8))
        self.assertEqual(len(self.receipts), 10)
        self.mark(quiet, 2)
        self.assertIs(self.stream("b.example"), quiet)

    def test_same_commit(self) -> None:
        """Without the commit there is no receipt."""
        stream = self.stream("b.example")
        batch = Batch(self.store.begin(), EPOCH_MS, PublishGate())
        batch.mark(stream, 5)
        self.store.is_failing = True
        failed = batch.commit()
        self.clock.advance(0)
        self.failureResultOf(failed)
        self.assertFalse(stream.seen(5))
        self.assertEqual(stream.pending, set())
        self.store.is_failing = False
        self.restart()
        self.assertFalse(self.stream("b.example").seen(5))

    @given(
        st.lists(
            st.one_of(
                st.tuples(st.just("mark"), st.integers(0, 60)),
                st.tuples(st.just("floor"), st.integers(0, 60)),
                st.tuples(st.just("restart"), st.just(0)),
            ),
            max_size=40,
        )
    )
    def test_model(self, steps: list[tuple[str, int]]) -> None:
        """Receipts above the floor are known, whatever happens in between."""
        self.setUp()
        stream, known, floor = self.stream("b.example"), set(), 0
        for what, number in steps:
            if what == "mark":
                if number >= floor:
                    self.mark(stream, number)
                    known.add(number)
            elif what == "floor":
                floor = max(floor, number)
                transaction = self.store.begin()
                if stream.forget_below(number, transaction):
                    transaction.commit()
                    self.clock.advance(0)
            else:
                self.restart()
                stream = self.stream("b.example")
            for each in known:
                if each >= floor:
                    self.assertIn(each, stream.ids)
            self.assertLessEqual(stream.ids, known)


class MessageIdTests(StoreCase):
    """Peers of other makes are known by their message-ids."""

    def ids(self, *names: str) -> MessageIds:
        """Return what is known of a peer's ids."""
        found = self.receipts.by_message_id(peer(*names))
        assert found is not None
        return found

    def test_only_if_asked_for(self) -> None:
        """The configuration decides."""
        self.assertIsNone(Receipts().by_message_id(peer("b.example")))

    def test_repetition(self) -> None:
        """The same id, by type and value, is the same message; also after a restart."""
        for value in ("a", b"a", ULong(7), uuid.UUID(int=7)):
            known = self.ids("b.example")
            found = known.id_of(b"any", message(value))
            assert found is not None
            self.assertFalse(known.seen(found), value)
            self.mark(known, found)
            self.restart()
            known = self.ids("a.example", "b.example")
            self.assertTrue(known.seen(found))
            self.assertEqual(known.id_of(b"other", message(value)), found)
        self.assertFalse(self.ids("c.example").seen(found))

    def test_duplicates_are_counted(self) -> None:
        """Each arrival that a receipt answers counts once, of either kind of peer."""
        for known in (self.stream("beta.example"), self.ids("b.example")):
            before = self.receipts.duplicates
            self.mark(known, 7)
            self.assertFalse(known.seen(8))
            self.assertEqual(self.receipts.duplicates - before, 0)
            for _ in range(3):
                self.assertTrue(known.seen(7))
            self.assertEqual(self.receipts.duplicates - before, 3)

    def test_nothing_to_go_by(self) -> None:
        """A message without an id, or with one that is being stored, is kept."""
        known = self.ids("b.example")
        self.assertIsNone(known.id_of(b"t", message(None)))
        found = known.id_of(b"t", message("m"))
        assert found is not None
        known.pending.add(found)
        self.assertIsNone(known.id_of(b"t", message("m")))

    def test_generations(self) -> None:
        """The oldest go when there are many, from memory and from the store."""
        self.patch(module, "GENERATION_IDS", 10)
        known = self.ids("b.example")
        for number in range(100):
            self.mark(known, number)
        self.assertTrue(known.seen(99))
        self.assertTrue(known.seen(70))
        self.assertFalse(known.seen(30))
        self.assertLessEqual(len(self.receipts), 50)
        kept = {one for ids in self.store.received.values() for one in ids}
        self.assertLessEqual(kept, known.ids)
        self.restart()
        self.assertEqual(self.ids("b.example").ids, kept)
        self.mark(self.ids("b.example"), 100)
        self.assertTrue(all(key.startswith(BY_ID) for key in self.store.received))
