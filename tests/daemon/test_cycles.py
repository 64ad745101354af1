# SPDX-License-Identifier: Apache-2.0
"""Ended connections with sessions and links leave no reference cycles."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.realm import Authenticator, Verifier
from amqproute.config import Config
from amqproute.config.access_settings import ListenSettings
from amqproute.daemon.listeners import accepting
from amqproute.net.pump import EngineProtocol
from amqproute.wire.amqp10 import spec
from tests.conformance.frame_broker import AMQP_HEADER, Network, attach, frame, message
from tests.support.client09 import context09
from tests.support.objects import left_by
from tests.support.wire09 import V091, call, publish

BEGIN = spec.Begin(next_outgoing_id=0, incoming_window=100, outgoing_window=100)
FLOW = spec.Flow(
    handle=1,
    link_credit=10,
    incoming_window=100,
    outgoing_window=100,
    next_outgoing_id=0,
    next_incoming_id=0,
)
BIG = "x" * 10_000
TIMES = 100


class CycleTests(SynchronousTestCase):
    """A hundred connections come and go while no garbage is collected; nothing is left of them."""

    def setUp(self) -> None:
        self.world = Network()
        house = self.world.house()
        verifier = Verifier(self.world.clock, lambda check, *args: succeed(check(*args)))
        authenticator = Authenticator(
            ["ANONYMOUS"], users=None, verifier=verifier, login_key=b"k" * 32, random_bytes=bytes
        )
        listen = ListenSettings(endpoint="tcp:0", mechanisms=("ANONYMOUS",))
        self.make = accepting(Config(), "c", listen, authenticator, house.amqp10, context09(house))
        self.queue = house.broker.nodes["q"]

    def come(self, *frames: bytes) -> None:
        """Connect, write each of these in turn, and go."""
        protocol = EngineProtocol(self.make, self.world.clock)
        transport = StringTransport()
        protocol.makeConnection(transport)
        opening = spec.Open(container_id="m", properties={"p": "x" * 4000})
        for octets in (AMQP_HEADER + frame(opening), *frames):
            protocol.dataReceived(octets)
            self.world.advance()
        transport.producer = None  # as a socket does when it is lost
        protocol.connectionLost(Failure(ConnectionDone()))
        self.world.advance()

    def left(self, times: int, frames: tuple[bytes, ...]) -> tuple[int, object]:
        """Return the objects in cycles that such connections leave, and of what types they are."""
        left = left_by(lambda: self.come(*frames), times, warm_up=5)
        return left.cyclic, left.kinds

    def check(self, *frames: bytes, times: int = 10) -> None:
        self.assertEqual(self.left(times, frames), (0, ()))

    def test_open_only(self) -> None:
        self.check(times=TIMES)

    def test_sessions(self) -> None:
        self.check(frame(BEGIN) + frame(BEGIN, channel=1), frame(spec.End()))

    def test_publishers(self) -> None:
        """They publish, and go with large properties that nobody has kept."""
        publisher = attach("sender", "s", 0, "q", properties={"p": BIG})
        transfer = spec.Transfer(handle=0, delivery_id=0, delivery_tag=b"0", settled=False)
        published = frame(publisher) + frame(transfer, message(b"x"))
        self.check(frame(BEGIN), published, times=TIMES)
        self.assertEqual(self.queue.depth, TIMES + 5)

    def test_consumers(self) -> None:
        """They go with messages in their hands, in every way there is."""
        transfers = [
            frame(spec.Transfer(handle=0, delivery_id=n, delivery_tag=b"%d" % n), message(b"x"))
            for n in range(10)
        ]
        self.come(frame(BEGIN), frame(attach("sender", "s", 0, "q")), *transfers)
        self.assertEqual(self.queue.depth, 10)
        consumer = frame(attach("receiver", "r", 1, "q")) + frame(FLOW)
        ways: list[tuple[bytes, ...]] = [
            (),
            (frame(spec.Detach(handle=1, closed=True)),),
            (frame(spec.Detach(handle=1)), frame(spec.Close())),
            (frame(spec.End()),),
            (frame(spec.Close()),),
            (frame(spec.End()) + frame(spec.Close()),),
        ]
        for way in ways:
            self.check(frame(BEGIN), consumer, *way)
        self.assertEqual(self.queue.depth, 10)

    def come09(self, *octets: bytes) -> None:
        """Connect by AMQP 0-9-1, open a channel, write each of these in turn, and go."""
        protocol = EngineProtocol(self.make, self.world.clock)
        transport = StringTransport()
        protocol.makeConnection(transport)
        start = call(
            0, "connection.start-ok", mechanism="ANONYMOUS", response=b"", locale="en_US",
            client_properties=[],
        )  # fmt: skip
        tune = call(0, "connection.tune-ok", channel_max=0, frame_max=0, heartbeat=0)
        opening = call(0, "connection.open", virtual_host="/") + call(1, "channel.open")
        for each in (V091 + start, tune + opening, *octets):
            protocol.dataReceived(each)
            self.world.advance()
        transport.producer = None  # as a socket does when it is lost
        protocol.connectionLost(Failure(ConnectionDone()))
        self.world.advance()

    def test_amqp09(self) -> None:
        """Clients of 0-9-1 go in every way, with all that a channel can have."""
        consume = call(1, "basic.consume", queue="q", consumer_tag="c")
        ways: list[tuple[bytes, ...]] = [
            (),
            (publish(1, b"x"), consume),
            (call(1, "confirm.select") + publish(1, b"x"), consume, call(1, "channel.close")),
            (call(1, "tx.select") + publish(1, b"x") + call(1, "basic.get", queue="q"),),
            (consume, call(0, "connection.close")),
            (call(1, "queue.purge", queue="none"),),
            (call(7, "basic.qos"),),
        ]
        for way in ways:
            left = left_by(lambda way=way: self.come09(*way), 10, warm_up=5)
            self.assertEqual((left.cyclic, left.kinds), (0, ()), way)

    def test_queues_of_clients(self) -> None:
        """Queues that clients of 0-9-1 declare go with their connection, or before it."""
        consume = call(1, "basic.consume", queue="mine", consumer_tag="c")
        published = publish(1, b"x", key="mine")
        deleted = call(1, "queue.delete", queue="mine")
        bound = call(1, "queue.bind", queue="mine", exchange="amq.fanout")
        replies = call(
            1, "basic.consume", queue="amq.rabbitmq.reply-to", consumer_tag="r", no_ack=1
        )
        bounds = [("x-message-ttl", "I", 10_000), ("x-max-length", "I", 1)]

        def declare(**fields: object) -> bytes:
            return call(1, "queue.declare", queue="mine", **fields)

        ways: list[tuple[bytes, ...]] = [
            (declare(exclusive=1),),
            (declare(exclusive=1), deleted),
            (declare(exclusive=1), published, deleted),
            (declare(exclusive=1), consume, published),
            (declare(exclusive=1), bound, published, call(1, "basic.get", queue="mine")),
            (declare(exclusive=1, arguments=bounds), published, published),
            (declare(auto_delete=1), consume, published, call(1, "basic.cancel", consumer_tag="c")),
            (declare(), published, deleted),
            (declare(durable=1), published, deleted),
            (replies,),
            (replies, call(1, "basic.cancel", consumer_tag="r")),
        ]

        def come(way: tuple[bytes, ...]) -> None:
            self.come09(*way)
            for _ in range(3):
                self.world.advance(10.0)  # until nobody holds what was on the queue

        for way in ways:
            left = left_by(lambda way=way: come(way), 10, warm_up=5)
            self.assertEqual((left.cyclic, left.kinds), (0, ()), way)

    def test_refused(self) -> None:
        """Refused links, faults of links, of sessions and of the connection."""
        faults: list[Callable[[], bytes]] = [
            lambda: frame(attach("receiver", "z", 2, "nowhere", properties={"p": BIG})),
            lambda: frame(attach("sender", BIG, 2, "q")),
            lambda: frame(spec.Detach(handle=77)),
            lambda: frame(spec.Detach(handle=1), channel=9),
            lambda: b"nonsense" * 20,
        ]
        for fault in faults:
            with self.subTest(fault=fault()[:40]):
                self.check(frame(BEGIN), frame(attach("receiver", "r", 1, "q")), fault())
