# SPDX-License-Identifier: Apache-2.0
"""Journal records of messages of 0-9 and 0-9-1."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.entry import Entry
from amqproute.frontends.amqp09.channel_consumer import ChannelConsumer
from amqproute.journal.event import ArrivalEvent
from amqproute.values import Origin, Principal
from tests.conformance.frame_broker import Network
from tests.support.client09 import Client09
from tests.support.fakes import message
from tests.support.wire09 import V09, V091


class ProtocolTests(SynchronousTestCase):
    def test_named(self) -> None:
        """Publishers and consumers are named with the protocol."""
        house = Network().house()
        for header, name in ((V091, "AMQP 0-9-1"), (V09, "AMQP 0-9")):
            client = Client09(house, version=header).channel()
            client.publish(b"1")
            client.ask("basic.consume", queue="q", no_ack=1)
            frontend: Any = client.end.protocol._user
            channel = frontend.channels[1]
            self.assertEqual(channel.publisher.origin.protocol, name)
            (consumer,) = channel.consumers.values()
            self.assertIsInstance(consumer, ChannelConsumer)
            self.assertEqual(consumer.taker.facts["protocol"], name)
            self.assertEqual(frontend.row()["protocol"], name)
            client.hang_up()

    def test_record(self) -> None:
        """A record has it, and one of AMQP 1.0 has nothing."""
        entry = Entry(1, message(b"x"), True, True, 0, 0)
        for protocol, expected in (("AMQP 0-9-1", {"AMQP 0-9-1"}), ("", set())):
            origin = Origin(Principal("user", "ann"), protocol=protocol)
            event = ArrivalEvent(1, [("q", entry, origin, b"", 1)], "a.test")
            (run,) = event.runs()
            found = {each for each in ("AMQP 0-9-1",) if each in run.shared}
            self.assertEqual(found, expected)
