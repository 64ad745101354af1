# SPDX-License-Identifier: Apache-2.0
"""Very large messages through a house: in parts to the store, in parts from it (M-05)."""

from __future__ import annotations

from typing import Any

from amqproute import conditions
from amqproute.frontends.intake import HEAD_BYTES
from amqproute.message import Message
from amqproute.wire.amqp10 import events as ev
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.link import Link
from tests.frontends.test_inbound import InboundCase
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
        """What comes out is what went in, octet for octet."""
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


class Refused(LargeCase):
    """What is refused, is refused early."""

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

    def test_malformed(self) -> None:
        """A body that is none ends the session, as it does for small ones (M-24)."""
        link = self.sender()
        sent = self.large().encoded + b"\x00\x53\x70\x45" + bytes(10)
        self.client.send(link, Message(sent))
        self.run_now()
        (ended,) = [each for each in self.client.events_seen if isinstance(each, ev.SessionEnded)]
        assert ended.error is not None
        self.assertEqual(ended.error.condition, conditions.DECODE_ERROR)
