# SPDX-License-Identifier: Apache-2.0
"""Several protocols at one listener, chosen by the first octets."""

from __future__ import annotations

from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from amqproute.net.connection_scheduler import ConnectionScheduler
from amqproute.net.offered_protocols import OfferedProtocol, OfferedProtocols
from amqproute.net.pump import ConnectionResources, EngineProtocol
from tests.net.wires import Side, WireEnd


class OfferedProtocolsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.sides = {"one": Side(), "two": Side()}

    def offer(self, *names: str, **options: Any) -> EngineProtocol:
        """Connect to a listener with these protocols, named by their headers."""
        offered = OfferedProtocols(
            [OfferedProtocol(name, (name.encode(),), self.sides[name].make) for name in names], 10.0
        )
        self.clock.advance(100)
        pump = EngineProtocol(offered.make, self.clock, **options)
        self.end = WireEnd()
        self.end.protocol = pump
        pump.makeConnection(self.end)
        return pump

    def taken_by(self) -> list[str]:
        """Return whose engines have been made."""
        return [name for name, side in self.sides.items() if side.facts is not None]

    def test_only_one(self) -> None:
        """With one protocol nothing is waited for."""
        pump = self.offer("two")
        self.assertEqual(self.taken_by(), ["two"])
        self.assertIs(pump.engine, self.sides["two"].engine)

    def test_choice(self) -> None:
        """The engine gets all octets, once, and the user the pump."""
        pump = self.offer("one", "two")
        pump.dataReceived(b"t")
        self.clock.advance(0)
        self.assertEqual(self.taken_by(), [])
        pump.dataReceived(b"wo and more")
        self.clock.advance(0)
        side = self.sides["two"]
        self.assertEqual(self.taken_by(), ["two"])
        self.assertEqual(side.engine.reads, [b"two and more"])
        self.assertEqual(side.engine.started_at, 100)
        self.assertIs(side.user.pump, pump)
        pump.dataReceived(b"later")
        self.assertEqual(side.engine.reads, [b"two and more", b"later"])
        side.engine.output.append(b"answer")
        pump.schedule_flush()
        self.clock.advance(0)
        self.assertEqual(self.end.value(), b"answer")
        self.assertEqual(self.end.producerState, "producing")

    def test_strangers(self) -> None:
        """A client without a known protocol is answered by the first one."""
        self.offer("one", "two").dataReceived(b"three")
        self.clock.advance(0)
        self.assertEqual(self.sides["one"].engine.reads, [b"three"])

    def test_silence(self) -> None:
        """A client that sends too little in time goes to the first, whose deadline has begun."""
        pump = self.offer("one", "two")
        pump.dataReceived(b"tw")
        self.clock.advance(9.9)
        self.assertEqual(self.taken_by(), [])
        self.clock.advance(0.1)
        self.clock.advance(0)
        engine = self.sides["one"].engine
        self.assertEqual((engine.started_at, engine.reads), (100, [b"tw"]))

    def test_gone_before(self) -> None:
        """A client that leaves before the choice costs no engine, and leaves nothing behind."""
        pump = self.offer("one", "two")
        pump.dataReceived(b"t")
        pump.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(self.taken_by(), [])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_end_behind_the_choice(self) -> None:
        """Input received before the end is handled before the end is reported."""
        pump = self.offer(
            "one", "two", resources=ConnectionResources(scheduler=ConnectionScheduler(self.clock))
        )
        pump.dataReceived(b"two words")
        pump.connectionLost(Failure(ConnectionDone()))
        self.clock.advance(0)
        side = self.sides["two"]
        self.assertEqual(side.engine.reads, [b"two words"])
        self.assertEqual(side.engine.eof, 1)
        side.user.reason.trap(ConnectionDone)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_clear_headers_only(self) -> None:
        """Two protocols that could not be told apart are refused at once."""
        with self.assertRaises(ValueError):
            OfferedProtocols(
                [OfferedProtocol(name, (b"same",), self.sides[name].make) for name in self.sides], 1
            )
