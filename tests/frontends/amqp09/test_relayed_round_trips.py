# SPDX-License-Identifier: Apache-2.0
"""No loss between two organizations: round trips over real relays, octet by octet.

What translation does by itself is tested in `tests.translation.test_round_trips`.
"""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.message import Message
from amqproute.translation.message_parts import HIDDEN
from amqproute.wire.amqp09.arguments import decode_properties, encode_properties
from amqproute.wire.amqp09.methods import BasicProperties
from amqproute.wire.amqp10 import codec, spec
from amqproute.wire.amqp10.spec import Header
from tests.conformance.frame_broker import FrameBroker, Network
from tests.frontends.amqp09.test_large_bodies import PART_FROM, large_house
from tests.support.amqp_values import same
from tests.support.client09 import Client09
from tests.support.plain_amqp09 import frame_octets, frames
from tests.support.wire09 import call
from tests.translation.test_round_trips import _sorted, messages, property_octets

EXAMPLES = max(10, settings.default.max_examples // 5)
LARGE_BODY = bytes(range(256)) * 100


class RawClient(Client09):
    """A client that keeps the octets of content headers.

    Attributes:
        headers: flags and values of the properties that came, in order.
    """

    headers: list[bytes]

    def _read(self) -> None:
        found = getattr(self, "headers", None)
        if found is None:
            found = self.headers = []
        data = self._buffer + self.end.value()
        found += [payload[12:] for kind, _, payload in frames(data) if kind == 2]
        super()._read()

    def send_again(self, key: str, octets: bytes, body: bytes) -> None:
        """Publish properties as they are."""
        out = [
            call(1, "basic.publish", routing_key=key),
            frame_octets(2, 1, b"\0\x3c\0\0" + len(body).to_bytes(8, "big") + octets),
        ]
        out += [frame_octets(3, 1, body[at : at + 9000]) for at in range(0, len(body), 9000)]
        self.write(*out)


class RelayedCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = Network()
        self.alpha, self.beta = large_house(self.world), large_house(self.world, "b.test")
        self.here, self.there = self.connect(self.alpha), self.connect(self.beta)

    @staticmethod
    def connect(house: FrameBroker) -> RawClient:
        client = RawClient(house, part_from=PART_FROM)
        client.channel()
        return client

    def taken(self, client: RawClient) -> tuple[bytes, bytes, dict[str, Any]]:
        """Get the next message; return its properties as they came, body and arguments."""
        for _ in range(20):
            client.headers.clear()
            client.ask("basic.get", queue="q", no_ack=1)
            for _ in range(10):
                client.run()
            if client.contents:
                _, _, arguments, _, body = client.contents[0]
                return client.headers[0], body, arguments
            self.world.advance(0.2)
        raise AssertionError("nothing has come")


class OldMessageTests(RelayedCase):
    @settings(max_examples=EXAMPLES, deadline=None)
    @given(property_octets(), st.one_of(st.binary(max_size=100), st.just(LARGE_BODY)))
    @example(b"\0\0", b"")
    @example(b"\0\0", LARGE_BODY)
    def test_there_and_back(self, octets: bytes, body: bytes) -> None:
        """Properties, header tables and body are the same octets there, and when they are back."""
        properties = decode_properties(60, octets)
        assert isinstance(properties, BasicProperties)
        if properties.headers and {"BCC", "CC"} & set(properties.headers):
            return  # they are for routing
        properties.expiration = None  # it is less by the time that the message takes
        if properties.user_id is not None:
            properties.user_id = "ann"
        headers = properties.headers or {}
        if any(name.startswith("x-opt-") for name in headers):
            return  # wishes to the network, checked as such
        octets = encode_properties(properties)
        self.here.send_again("q@b.test", octets, body)
        found, arrived, arguments = self.taken(self.there)
        self.assertEqual((found, arrived == body), (octets, True))
        self.assertEqual(arguments["routing-key"], "q@b.test")
        self.there.send_again("q@a.test", found, arrived)
        found, arrived, _ = self.taken(self.here)
        self.assertEqual((found, arrived == body), (octets, True))


class NewMessageTests(RelayedCase):
    @settings(max_examples=EXAMPLES, deadline=None)
    @given(messages())
    def test_republished_abroad(self, encoded: bytes) -> None:
        """A client of 0-9-1 elsewhere sends on what it got; every section is what it was."""
        message = Message(encoded)
        if not message.has_body:
            return
        if {"BCC", "CC"} & set(message.application_properties):
            return  # as headers of 0-9-1 they are for routing
        self.setUp()  # nothing of another example is on its way
        encoded = _plain(message)
        client = self.beta.client().ready()
        client.sender("q")
        client.publish(0, encoded)
        ((disposition),) = client.all(spec.Disposition)
        if not isinstance(disposition.state, spec.Accepted):
            return
        octets, body, _ = self.taken(self.there)
        self.there.send_again("q@a.test", octets, body)
        for _ in range(20):
            self.world.advance(0.1)
        receiver = self.alpha.client().ready()
        receiver.receiver(credit=1)
        after = Message(receiver.messages()[0])
        receiver.dispose(0)
        before = Message(encoded)
        self.assertEqual(_sections(after, 0x74), _sections(before, 0x74))
        self.assertEqual(_body(after), _body(before))
        for each in spec.Properties.fields:
            if each.name != "to":
                self.assertTrue(
                    same(
                        getattr(after.properties, each.name), getattr(before.properties, each.name)
                    ),
                    each.name,
                )
        kept = {key: value for key, value in after.annotations.items() if key not in HIDDEN}
        self.assertTrue(same(_sorted(kept), {}), kept)


def _plain(message: Message) -> bytes:
    """Return a message without what speaks to the network: annotations, addresses, life, user."""
    offsets = message.offsets
    names = ("to", "reply_to", "user_id", "absolute_expiry_time")
    fields = {
        each.name: None if each.name in names else getattr(message.properties, each.name)
        for each in spec.Properties.fields
    }
    rest = message.encoded[max(offsets.properties_end, message.bare_from) :]
    return codec.encode(Header(durable=True)) + codec.encode(spec.Properties(**fields)) + rest


def _body(message: Message) -> bytes:
    offsets = message.offsets
    return message.encoded[offsets.body_start :]


def _sections(message: Message, code: int) -> bytes:
    offsets = message.offsets
    assert code == 0x74
    start, end = offsets.application_properties_start, offsets.application_properties_end
    return message.encoded[start:end]
