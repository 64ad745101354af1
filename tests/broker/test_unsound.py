# SPDX-License-Identifier: Apache-2.0
"""Messages with undecodable sections on queues.

Such a message is rejected when it comes. Earlier releases took it, so it may be in a store: here it
is put past the check, and then whoever reads a section later meets it.
"""

from __future__ import annotations

from typing import Any, Final

from amqproute.message import Message
from amqproute.services.command_schema import ManagementCommand
from amqproute.services.message_moves import MessageMoves
from amqproute.wire.amqp10 import codec, spec
from amqproute.wire.amqp10.types import Described, Symbol
from tests.frontends.test_receiver_link import InboundCase
from tests.support.fakes import message, put

BODY: Final = b"\x00\x53\x75\xa0\x01x"
UNSOUND: Final = (
    b"\x00\x53\x73\xc0\x06\x03\x40\x40\xa1\x01\xff",  # properties.to is no text
    b"\x00\x53\x73\xc0\x03\x02\xa1\x07",  # the message-id is cut short
    b"\x00\x53\x74\xc1\x05\x02\xa1\x01a\x3f",  # a value of no known type
    b"\x00\x53\x74\xc1\x04\x01\xa1\x01a",  # a key without a value
)


class UnsoundTests(InboundCase):
    """Each consumer of the sections."""

    def unsound(self) -> list[Message]:
        """Return messages, small and with a header that makes them durable."""
        header = codec.encode(spec.Header(durable=True, ttl=5000))
        return [Message(header + each + BODY) for each in UNSOUND]

    def put(self, name: str = "q") -> None:
        for each in self.unsound():
            put(self.house.broker, self.house.broker.target(name), each)
        put(self.house.broker, self.house.broker.target(name), message(b"good", durable=True))
        self.run_now()

    def received(self, **source: Any) -> list[bytes]:
        client = self.house.client()
        self.run_now()
        client.receiver("q", 100, source=spec.Source(address="q", **source))
        self.run_now()
        return [delivery.payload for delivery in client.deliveries]

    def test_delivered(self) -> None:
        """Consumers get it as it is."""
        self.put()
        self.assertEqual(len(self.received()), len(UNSOUND) + 1)

    def test_selectors(self) -> None:
        """It fits no filter that has to read it, and holds nobody up."""
        self.put()
        for text in ("color = 'red'", "color IS NULL", "amqp.message_id IS NULL"):
            selector = {Symbol("f"): Described(Symbol("apache.org:selector-filter:string"), text)}
            self.received(filter=selector, distribution_mode=Symbol("copy"))
        self.assertEqual(len(self.received()), len(UNSOUND) + 1)

    def test_dead_letters(self) -> None:
        """It becomes a dead letter, by expiry and by rejection."""
        self.put()
        self.clock.advance(6)
        self.run_now()
        self.assertEqual(self.flushLoggedErrors(), [])
        self.assertEqual(self.house.depth("q"), 1)

    def test_after_a_restart(self) -> None:
        """It is read from the store again, and looked through for what repeats."""
        self.put()
        self.build(store=self.house.store)
        self.assertEqual(len(self.received()), len(UNSOUND) + 1)

    def test_moved_by_filter(self) -> None:
        """A filter that operators move by passes it over."""
        self.put()
        moving = MessageMoves(self.house.broker, lambda: 0)
        arguments = {"target": "full", "filter": "color IS NULL OR amqp.to IS NULL"}
        moved = moving.now(ManagementCommand("MOVE", "queue", "q", arguments), "user:ann")
        self.run_now()
        self.successResultOf(moved)
        self.assertEqual(self.house.depth("q") + self.house.depth("full"), len(UNSOUND) + 1)
