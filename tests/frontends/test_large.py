# SPDX-License-Identifier: Apache-2.0
"""Very large messages through a broker: in parts to the store, in parts from it (M-05)."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from twisted.internet.defer import Deferred

from amqproute import conditions
from amqproute.frontends.amqp10.large_message_receiver import HEAD_BYTES
from amqproute.message import Message
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.link import Link
from tests.frontends.test_receiver_link import InboundCase
from tests.support.fakes import message

PART_FROM = 20_000
FRAME = 4096
LARGE = bytes(range(256)) * 500


class LargeCase(InboundCase):
    """A house whose engines hand up what has more than `PART_FROM` octets in parts."""

    def setUp(self) -> None:
        super().setUp()
        accept = self.house.accept

        def smaller(principal: Any, **changes: Any) -> Any:
            return accept(principal, **{"part_from": PART_FROM, "max_frame_size": FRAME, **changes})

        self.house.accept = smaller  # type: ignore[method-assign]
        self.client = self.house.client(max_frame_size=FRAME)
        self.run_now()

    def sender(self, address: str | None = "q") -> Link:
        link = self.client.sender(address)
        self.run_now()
        return link

    def large(self, body: bytes = LARGE, **sections: Any) -> Message:
        return message(body, **sections)

    def rests(self, name: str = "q") -> list[Any]:
        return [row.rest for row in self.house.store.rows(name)]

    def consumed(self) -> list[bytes]:
        """Take what is on ``q``; return the messages as transferred."""
        link = self.client.receiver("q")
        link.flow(100)
        self.client.flush()
        self.run_now()
        return [delivery.payload for delivery in self.client.deliveries]


class Through(LargeCase):
    """In and out."""

    def test_through(self) -> None:
        """A message comes out as it went in, octet for octet."""
        link = self.sender()
        sent = self.large(annotations={"x-opt-own": 1})
        self.client.send(link, message(b"before"), sent, message(b"after"))
        self.run_now()
        self.assertEqual(self.client.outcomes(), ["Accepted"] * 3)
        rest = self.rests()[1]
        self.assertIsNotNone(rest)
        self.assertLess(len(self.house.store.rows("q")[1].encoded), 200)
        got = self.consumed()
        self.assertEqual(len(got), 3)
        self.assertEqual(Message(got[1]).bare, sent.bare)
        self.assertEqual(
            [Message(one).body_values() for one in got][::2], [[b"before"], [b"after"]]
        )
        self.client.settle(self.client.deliveries, spec.Accepted())
        self.run_now()
        self.assertEqual(self.house.depth("q"), 0)
        self.assertEqual(self.house.store.rows("q"), [])

    def test_drained(self) -> None:
        """F-10: a drain ends after what stands behind a very large message has been sent."""
        bodies = (b"before", LARGE, b"after", LARGE, b"last")
        self.client.send(self.sender(), *map(message, bodies))
        self.run_now()
        for mode in ("copy", "move"):
            self.client.deliveries.clear()
            source = spec.Source(address="q", distribution_mode=mode)
            link = self.client.session.attach(mode, "receiver", source=source, target=spec.Target())
            link.flow(100, drain=True)
            self.client.flush()
            self.run_now()
            self.assertEqual(tuple(self.client.bodies()), bodies, mode)
            self.assertEqual(link.credit, 0, mode)

    def test_transient(self) -> None:
        """One that is not durable is not stored as an entry, and goes the same way."""
        link = self.sender()
        self.client.send(link, self.large(durable=False))
        self.run_now()
        self.assertEqual(self.house.store.rows("q"), [])
        self.assertEqual(Message(self.consumed()[0]).body_values(), [LARGE])

    def test_released_and_again(self) -> None:
        """It can be sent more than once."""
        self.client.send(self.sender(), self.large())
        self.run_now()
        self.consumed()
        self.client.settle(self.client.deliveries, spec.Modified(delivery_failed=True))
        self.run_now()
        first, second = self.client.deliveries
        self.assertEqual(Message(second.payload).header.delivery_count, 1)
        self.assertEqual(Message(first.payload).bare, Message(second.payload).bare)

    def test_annotated(self) -> None:
        """A modified outcome changes the sections before the body, and nothing else."""
        self.client.send(self.sender(), self.large())
        self.run_now()
        self.consumed()
        outcome = spec.Modified(delivery_failed=True, message_annotations={"x-opt-k": "v"})
        self.client.settle(self.client.deliveries, outcome)
        self.run_now()
        again = Message(self.client.deliveries[1].payload)
        self.assertEqual(again.annotations["x-opt-k"], "v")
        self.assertEqual(again.body_values(), [LARGE])


class Locked(LargeCase):
    """`limits.lock-timeout` and messages that take long to send (O-04)."""

    def test_on_its_way(self) -> None:
        """Its time runs from when all of it has been sent, however slow the disk."""
        self.house.shared.lock_seconds = 8.0
        self.client.send(self.sender(), self.large())
        self.run_now()
        reader = type(self.rests()[0].reader())
        read = reader.read
        held: list[tuple[Deferred[bytes], Deferred[bytes]]] = []

        def slow(of: Any, size: int) -> Deferred[bytes]:
            held.append((Deferred(), read(of, size)))
            return held[-1][0]

        self.patch(reader, "read", slow)
        self.consumed()
        for _ in range(100):
            self.clock.advance(1)
        self.assertEqual((self.client.deliveries, self.house.depth("q")), ([], 1))
        self.assertEqual(self.house.broker.nodes["q"].acquired, 1)
        while held:
            wait, octets = held.pop(0)
            octets.addCallback(wait.callback)
            self.run_now()
        self.assertEqual(len(self.client.deliveries), 1)
        for _ in range(7):
            self.clock.advance(1)
        self.assertEqual(self.house.broker.nodes["q"].acquired, 1)
        self.patch(reader, "read", read)
        for _ in range(4):
            self.clock.advance(1)
        self.run_now()
        again = Message(self.client.deliveries[1].payload)
        self.assertEqual((again.header.delivery_count, again.body_values()), (1, [LARGE]))


class Foreign(LargeCase):
    """A very large message of another message-format (M-09): nothing of it is read as sections."""

    def test_through(self) -> None:
        """It goes through the store in parts, and comes out octet for octet, more than once."""
        link = self.sender()
        octets = b"no sections" + LARGE
        for number, format_ in enumerate((7, 2**32 - 1)):
            link.send((octets,), b"%d" % number, message_format=format_)
        self.client.flush()
        self.run_now()
        self.assertEqual(self.client.outcomes(), ["Accepted"] * 2)
        self.assertEqual([rest.size for rest in self.rests()], [len(octets)] * 2)
        self.assertEqual(self.consumed(), [octets] * 2)
        self.client.settle(self.client.deliveries, spec.Released())
        self.run_now()
        again = [(each.message_format, each.payload) for each in self.client.deliveries[2:]]
        self.assertEqual(again, [(7, octets), (2**32 - 1, octets)])
        self.client.settle(self.client.deliveries[2:], spec.Accepted())
        self.run_now()
        self.assertEqual((self.house.depth("q"), self.house.store.rows("q")), (0, []))


class Digests(LargeCase):
    """The journal has the digest of a message that was never in memory as a whole."""

    def digests(self) -> list[str | None]:
        """Return what the journal says of the arrivals on q and on topics, in order."""
        told = []
        for run in self.house.store.audit.runs:
            if run.kind == "received":
                shared, columns = json.loads(run.shared), json.loads(run.columns)
                told += columns.get("digest") or [shared.get("digest")] * run.count
        return told

    @staticmethod
    def digest(of: Message) -> str:
        return hashlib.sha256(of.bare).hexdigest()

    def test_like_any_other(self) -> None:
        """It is of the same octets as that of a small one: those of the bare message."""
        link = self.sender()
        sent = [
            self.large(annotations={"x-opt-own": 1}, application={"a": "b"}),
            self.large(to="q", footer={"x-sum": bytes(300)}),
            self.large(durable=False),
        ]
        self.client.send(link, *sent)
        self.run_now()
        self.assertEqual(self.client.outcomes(), ["Accepted"] * 3)
        self.assertEqual(self.digests(), [self.digest(each) for each in sent])
        for each, got in zip(sent, self.consumed(), strict=True):
            self.assertEqual(Message(got).bare, each.bare)

    def test_address_supplied(self) -> None:
        """Fields supplied on the way in are part of the message that goes on."""
        self.client.send(self.sender("orders@b.example"), self.large())
        self.run_now()
        (outgoing,) = [name for name in self.house.store.names() if "b.example" in name]
        (row,) = self.house.store.rows(outgoing)
        (told,) = self.digests()
        before = Message(row.encoded, row.rest)
        self.assertEqual(before.to, "orders@b.example")
        bare = before.encoded[before.bare_from :] + row.rest._octets
        self.assertEqual(told, hashlib.sha256(bare).hexdigest())


class Refused(LargeCase):
    """A refusal comes early."""

    def begin(self, size: int = 1_000_000) -> Any:
        link = self.sender()
        outgoing = link.send_parts(size, b"tag")
        outgoing.append([self.large().encoded[:60_000]])
        self.client.flush()
        self.run_now()
        return outgoing

    def test_no_right(self) -> None:
        """A message that nobody may send is rejected while it comes; the rest is dropped."""
        link = self.client.sender(None)
        self.run_now()
        outgoing = link.send_parts(1_000_000, b"tag")
        outgoing.append([self.large(to="nowhere").encoded[:60_000]])
        self.client.flush()
        self.run_now()
        self.assertEqual(self.client.outcomes(), ["Rejected"])
        outgoing.abort()
        self.client.send(link, message(b"x", to="q"))
        self.run_now()
        self.assertEqual(self.client.outcomes()[-1], "Accepted")

    def test_aborted(self) -> None:
        """An aborted one leaves nothing."""
        outgoing = self.begin()
        outgoing.abort()
        self.client.flush()
        self.run_now()
        self.assertEqual(self.house.depth("q"), 0)
        self.client.send(outgoing.delivery.link, message(b"x"))
        self.run_now()
        self.assertEqual(self.house.depth("q"), 1)

    def test_lost(self) -> None:
        """Nor does one whose connection is lost."""
        self.begin()
        self.client.wire.cut()  # type: ignore[attr-defined]
        self.run_now()
        self.assertEqual(self.house.depth("q"), 0)

    def test_huge_head(self) -> None:
        """The sections before the body are bounded."""
        link = self.sender()
        sent = self.large(annotations={"x-opt-own": bytes(HEAD_BYTES)})
        self.client.send(link, sent)
        self.run_now()
        self.assertEqual(self.client.outcomes(), ["Rejected"])

    def test_undecodable_sections(self) -> None:
        """M-24: sections that cannot be decoded are refused with the first part of a message."""
        for bad in (
            b"\x00\x53\x73\xc0\x06\x03\x40\x40\xa1\x01\xff",
            b"\x00\x53\x74\xc1\x05\x02\xa1\x01a\x3f",
        ):
            self.client.updates.clear()
            outgoing = self.sender().send_parts(1_000_000, b"tag")
            outgoing.append([bad + self.large().encoded[:60_000]])
            self.client.flush()
            self.run_now()
            (update,) = [state for _, state, _ in self.client.updates]
            self.assertEqual(update.error.condition, conditions.DECODE_ERROR)
            self.assertEqual(self.rests(), [])
            self.client = self.house.client(max_frame_size=FRAME)
            self.run_now()

    def test_malformed(self) -> None:
        """A body that is none is rejected, as that of a small one is (M-24)."""
        link = self.sender()
        sent = self.large().encoded + b"\x00\x53\x70\x45" + bytes(10)
        self.client.send(link, Message(sent))
        self.run_now()
        self.assertEqual(self.client.outcomes(), ["Rejected"])
        (update,) = [s for _, s, _ in self.client.updates]
        self.assertEqual(update.error.condition, conditions.DECODE_ERROR)
        self.client.send(link, self.large())
        self.run_now()
        self.assertEqual(self.client.outcomes(), ["Rejected", "Accepted"])
