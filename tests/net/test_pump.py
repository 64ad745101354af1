# SPDX-License-Identifier: Apache-2.0
"""Bytes, time, back pressure and faults between transport, engine and user."""

from __future__ import annotations

from typing import Any

from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from amqproute.interfaces import IConnectionUser
from amqproute.net.connection_scheduler import ConnectionScheduler
from amqproute.net.pump import ConnectionResources, EngineProtocol, PumpLimits
from amqproute.wire.input_cost import MOST_UNHEARD
from tests.net.wires import Owner, PretendEngine, Side, WireEnd


class PumpTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.clock.advance(100)
        self.side = Side()
        self.engine, self.user = self.side.engine, self.side.user
        self.lost: list[Failure] = []
        self.pump = EngineProtocol(
            self.side.make,
            self.clock,
            resources=ConnectionResources(
                PumpLimits(output_bytes=1000, stall_seconds=20, close_seconds=2)
            ),
            owner=Owner(lambda _, reason: self.lost.append(reason)),
        )
        self.end = WireEnd()
        self.end.protocol = self.pump
        self.pump.makeConnection(self.end)

    def tearDown(self) -> None:
        if not self.lost:
            self.pump.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_start(self) -> None:
        """The engine is started at the clock's time; the user has the pump."""
        self.assertEqual(self.engine.started_at, 100)
        self.assertIs(self.user.pump, self.pump)
        verifyObject(IConnectionUser, self.user)

    def test_read(self) -> None:
        """A read becomes events, and what they cause is written in the same call."""
        self.user.on_events = lambda _: self.engine.output.extend([b"a", b"b"])
        self.pump.dataReceived(b"x")
        self.assertEqual(self.user.got, [("read", b"x")])
        self.assertEqual(self.end.value(), b"ab")

    def test_flush_once_per_turn(self) -> None:
        """Output from outside a read is written once, in the next turn."""
        self.engine.output.append(b"a")
        self.pump.schedule_flush()
        self.engine.output.append(b"b")
        self.pump.schedule_flush()
        self.assertEqual(self.end.value(), b"")
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.clock.advance(0)
        self.assertEqual(self.end.value(), b"ab")

    def test_no_call_for_a_flush_within_a_read(self) -> None:
        """A user asking for a flush during a read costs nothing: one follows anyway."""
        self.user.on_events = lambda _: (self.pump.schedule_flush(), self.pump.flush())
        self.pump.dataReceived(b"x")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_deadline(self) -> None:
        """The engine's deadline is kept, and looked at again when it has moved."""
        self.engine.deadline = 110.0
        self.pump.flush()
        self.engine.deadline = 115.0
        self.pump.dataReceived(b"x")
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.clock.advance(10)
        self.assertEqual(self.engine.ticks, [])
        self.clock.advance(5)
        self.assertEqual(self.engine.ticks, [115.0])
        self.assertIn(("tick", 115.0), self.user.got)

    def test_earlier_deadline(self) -> None:
        """A deadline that moves forward is kept too."""
        self.engine.deadline = 150.0
        self.pump.flush()
        self.engine.deadline = 101.0
        self.pump.flush()
        self.clock.advance(1)
        self.assertEqual(self.engine.ticks, [101.0])

    def test_a_peer_that_goes_on_after_the_end(self) -> None:
        """Input on its way is dropped, also that of a peer that never stops."""
        self.engine.is_closed = True
        self.pump.flush()
        self.assertTrue(self.end.disconnecting)
        piece = bytes(MOST_UNHEARD // 4)
        for _ in range(4):
            self.pump.dataReceived(piece)
        self.assertIs(self.end.how, ConnectionDone)
        self.pump.dataReceived(b"x")
        self.assertIs(self.end.how, ConnectionAborted)
        self.assertEqual(self.engine.reads, [])

    def test_pause(self) -> None:
        """The user is told of a full transport and of its end, in pairs."""
        self.pump.pauseProducing()
        self.pump.pauseProducing()
        self.assertTrue(self.pump.paused)
        self.pump.resumeProducing()
        self.pump.resumeProducing()
        self.assertFalse(self.pump.paused)
        self.assertEqual(self.user.pauses, ["paused", "writable"])

    def test_reading_stops_behind_a_stuck_peer(self) -> None:
        """A peer that sends but does not read is not read any more, until it reads."""
        self.user.on_events = lambda _: self.engine.output.append(b"." * 600)
        self.pump.pauseProducing()
        self.pump.dataReceived(b"x")
        self.assertEqual(self.end.producerState, "producing")
        self.pump.dataReceived(b"x")
        self.assertEqual(self.end.producerState, "paused")
        self.pump.resumeProducing()
        self.assertEqual(self.end.producerState, "producing")

    def test_held(self) -> None:
        """The user may take nothing more for a while, whatever the transport does meanwhile."""
        self.user.on_events = lambda _: self.engine.output.append(b"." * 2000)
        self.pump.hold_reading()
        self.assertEqual(self.end.producerState, "paused")
        self.pump.pauseProducing()
        self.pump.dataReceived(b"x")
        self.pump.release_reading()
        self.assertEqual(self.end.producerState, "paused")
        self.pump.hold_reading()
        self.pump.resumeProducing()
        self.assertEqual(self.end.producerState, "paused")
        self.pump.release_reading()
        self.assertEqual(self.end.producerState, "producing")
        self.pump.hold_reading()
        self.engine.is_closed = True
        self.pump.flush()
        self.assertEqual(self.end.producerState, "producing")  # or nobody would see its end
        self.pump.release_reading()

    def test_stalled_peer_is_dropped(self) -> None:
        """Not for ever, though."""
        self.pump.pauseProducing()
        self.clock.advance(19)
        self.assertFalse(self.end.disconnecting)
        self.clock.advance(1)
        self.assertTrue(self.end.disconnecting)

    def test_closed_engine(self) -> None:
        """The last words are written, then the transport goes; a lingering peer is dropped."""
        self.engine.output.append(b"bye")
        self.engine.is_closed = True
        self.pump.flush()
        self.assertEqual(self.end.value(), b"bye")
        self.assertIs(self.end.producer, None)
        self.assertTrue(self.end.disconnecting)
        self.pump.dataReceived(b"late")
        self.assertEqual(self.engine.reads, [])
        self.clock.advance(2)
        self.assertEqual(self.end.value(), b"")  # aborted

    def test_lost(self) -> None:
        """The end reaches the engine, then the user; later words are dropped."""
        self.pump.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(self.user.got, [("eof",)])
        assert self.user.reason is not None
        self.user.reason.trap(ConnectionDone)
        self.engine.output.append(b"x")
        self.pump.schedule_flush()
        self.pump.flush()
        self.assertEqual(self.end.value(), b"")

    def assert_fault(self) -> None:
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertTrue(self.end.disconnecting)
        self.assertEqual(self.engine.closed_with.condition, "amqp:internal-error")
        self.assertEqual(self.end.value(), b"close")

    def test_fault_of_the_engine(self) -> None:
        """A bug is logged and ends this connection with a condition."""
        self.pump.dataReceived(b"bug")
        self.assert_fault()

    def test_fault_of_the_user(self) -> None:
        """Likewise in the user's events, writable and paused."""

        def fail(_: Any = None) -> None:
            raise ZeroDivisionError

        self.user.on_events = fail
        self.pump.dataReceived(b"x")
        self.assert_fault()
        self.user.on_events = None

    def test_fault_while_writable(self) -> None:
        """Likewise when the user continues writing."""

        def fail() -> None:
            raise ZeroDivisionError

        self.pump.pauseProducing()
        self.user.writable = fail  # type: ignore[method-assign]
        self.pump.resumeProducing()
        self.assert_fault()

    def test_fault_at_the_end(self) -> None:
        """A user that fails at the end does not keep the listener from counting."""

        def fail(_: Any = None) -> None:
            raise ZeroDivisionError

        self.user.lost = fail  # type: ignore[method-assign]
        self.user.on_events = fail
        self.pump.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 2)
        self.assertEqual(len(self.lost), 1)

    def test_fault_of_make(self) -> None:
        """A connection for which no engine can be made is dropped."""

        def fail(_: Any) -> Any:
            raise ZeroDivisionError

        pump, end = EngineProtocol(fail, self.clock), WireEnd()
        pump.makeConnection(end)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertTrue(end.disconnecting)
        pump.connectionLost(Failure(ConnectionDone()))


class CountingEngine(PretendEngine):
    """One octet is one unit of work; reports the octets that it takes."""

    def __init__(self) -> None:
        super().__init__()
        self.rest = b""
        self.work = 0

    @property
    def has_input(self) -> bool:  # type: ignore[override]
        return bool(self.rest)

    def receive_data(self, data: bytes, now: float, budget: int | None = None) -> list[Any]:
        assert not (data and self.rest), "more than it has asked for"
        self.rest += data
        size = len(self.rest) if budget is None else budget
        taken, self.rest = self.rest[:size], self.rest[size:]
        self.work += len(taken)
        return [taken] if taken else []


class Reactor(Clock):
    """A clock that leaves to the next turn what comes up in this one."""

    def turn(self) -> None:
        due = [call for call in self.calls if call.time <= self.seconds()]
        for call in due:
            self.calls.remove(call)
            call.called = 1
            call.func(*call.args, **call.kw)


class ShareTests(SynchronousTestCase):
    """The contents of a read are handled in slices, in turn with other connections."""

    def setUp(self) -> None:
        self.clock = Reactor()
        self.scheduler = ConnectionScheduler(self.clock, slice_units=1000)
        self.lost: list[EngineProtocol] = []

    def connection(self) -> tuple[EngineProtocol, Side, WireEnd]:
        side = Side()
        side.engine = CountingEngine()
        pump = EngineProtocol(
            side.make,
            self.clock,
            resources=ConnectionResources(PumpLimits(output_bytes=1000), self.scheduler),
            owner=Owner(lambda pump, _: self.lost.append(pump)),
        )
        end = WireEnd()
        end.protocol = pump
        pump.makeConnection(end)
        return pump, side, end

    def taken(self, side: Side) -> list[int]:
        """Return how many octets were taken each time."""
        return [len(each) for each in side.user.got if isinstance(each, bytes)]

    def test_flood_behind_the_end(self) -> None:
        """Input after the end is counted and not kept, also without a known sender."""
        pump, _, end = self.connection()
        pump._is_undecided = True
        pump.dataReceived(b"x" * 100)
        pump._finish()
        for _ in range(64):
            pump.dataReceived(b"x" * 65_536)
        self.assertEqual(sum(map(len, pump._gathered)), 100)
        self.assertTrue(end.disconnecting or end.disconnected)

    def test_slices(self) -> None:
        """The rest waits for later turns; nothing is read meanwhile, and then it is."""
        pump, side, end = self.connection()
        pump.dataReceived(b"x" * 2500)
        self.assertEqual(self.taken(side), [1000])
        self.assertEqual(end.producerState, "paused")
        self.clock.turn()
        self.assertEqual(end.producerState, "paused")
        self.clock.turn()
        self.assertEqual(self.taken(side), [1000, 1000, 500])
        self.assertEqual(end.producerState, "producing")

    def test_more_comes_though_reading_is_paused(self) -> None:
        """A TLS layer may still have something; it stands behind what waits."""
        pump, side, _ = self.connection()
        pump.dataReceived(b"a" * 1500)
        pump.dataReceived(b"b" * 300)
        pump.dataReceived(b"c" * 300)
        for _ in range(3):
            self.clock.turn()
        self.assertEqual(b"".join(side.user.got), b"a" * 1500 + b"b" * 300 + b"c" * 300)
        self.assertEqual(self.taken(side), [1000, 500, 600])

    def test_in_turn(self) -> None:
        """Two greedy ones alternate, and one that asks for little goes first."""
        order: list[str] = []
        greedy = [self.connection() for _ in range(2)]
        light = self.connection()
        for name, (_, side, _) in zip("abL", [*greedy, light], strict=True):
            side.user.on_events = lambda _, name=name: order.append(name)
        for name, (pump, _, _) in zip("abL", [*greedy, light], strict=True):
            pump.share.party = self.scheduler.party(name)
        for pump, _, _ in greedy:
            pump.dataReceived(b"x" * 4000)
        for _ in range(3):
            light[0].dataReceived(b"y")
            self.clock.turn()
        for _ in range(6):
            self.clock.turn()
        self.assertEqual("".join(order), "abLaLbLababab"[: len(order)])
        self.assertEqual([order.count(name) for name in "abL"], [4, 4, 3])

    def test_held(self) -> None:
        """A connection with too much input for the disk has no turn; the rest of it waits."""
        pump, side, end = self.connection()
        side.user.on_events = lambda _: pump.hold_reading()
        pump.dataReceived(b"x" * 2500)
        self.assertEqual(self.clock.getDelayedCalls()[1:], [])
        self.clock.turn()
        self.assertEqual(self.taken(side), [1000])
        side.user.on_events = None
        pump.release_reading()
        self.assertEqual(end.producerState, "paused")
        for _ in range(2):
            self.clock.turn()
        self.assertEqual(self.taken(side), [1000, 1000, 500])
        self.assertEqual(end.producerState, "producing")

    def test_stuck(self) -> None:
        """A client that reads no answers has no turn either: the work of one read is bounded."""
        pump, side, end = self.connection()
        side.user.on_events = lambda _: side.engine.output.append(b"." * 600)
        pump.pauseProducing()
        pump.dataReceived(b"x" * 5000)
        for _ in range(5):
            self.clock.turn()
        self.assertEqual(self.taken(side), [1000, 1000])
        pump.resumeProducing()
        for _ in range(5):
            self.clock.turn()
        self.assertEqual(sum(self.taken(side)), 5000)
        self.assertEqual(end.producerState, "producing")

    def test_lost_with_input_left(self) -> None:
        """Received input is handled before the user hears of the loss of the connection."""
        pump, side, end = self.connection()
        pump.dataReceived(b"x" * 2500)
        end.clear()
        pump.connectionLost(Failure(ConnectionDone()))
        self.assertIsNone(side.user.reason)
        side.user.on_events = lambda _: side.engine.output.append(b"answer")
        self.clock.turn()
        self.assertEqual(self.lost, [])
        self.clock.turn()
        self.assertEqual(self.taken(side), [1000, 1000, 500])
        self.assertIsNotNone(side.user.reason)
        self.assertEqual(self.lost, [pump])
        self.assertEqual(end.value(), b"")
        self.assertEqual([each for each in self.clock.getDelayedCalls() if each.time], [])

    def test_lost_while_held(self) -> None:
        """A lost connection whose rest may not be taken yet ends when it is, or is dropped."""
        for drop in (False, True):
            pump, side, _ = self.connection()
            pump.dataReceived(b"x" * 1500)
            pump.hold_reading()
            pump.connectionLost(Failure(ConnectionDone()))
            self.clock.turn()
            self.assertIsNone(side.user.reason)
            if drop:
                pump.abort()
                self.assertEqual(self.taken(side), [1000])
            else:
                pump.release_reading()
                self.clock.turn()
                self.assertEqual(self.taken(side), [1000, 500])
            self.assertIsNotNone(side.user.reason)

    def test_an_answer_lets_the_engine_go_on(self) -> None:
        """Input that a user has set free, as by verifying a password, is taken without a read."""
        pump, side, _ = self.connection()
        engine: Any = side.engine
        engine.rest = b"x" * 10
        pump.schedule_flush()
        self.clock.turn()
        self.clock.turn()
        self.assertEqual(self.taken(side), [10])

    def test_closed_with_input_left(self) -> None:
        """Nothing is taken behind a close."""
        pump, side, end = self.connection()

        def close(_: object) -> None:
            side.engine.is_closed = True

        side.user.on_events = close
        pump.dataReceived(b"x" * 2500)
        for _ in range(3):
            self.clock.turn()
        self.assertEqual(self.taken(side), [1000])
        self.assertTrue(end.disconnecting)
        self.assertEqual(self.scheduler.waiting, 0)
