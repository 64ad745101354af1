# SPDX-License-Identifier: Apache-2.0
"""The engine against Apache Qpid Proton's, without a socket between them."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.connection import Connection
from amqproute.wire.amqp10.engine_events import (
    ConnectionClosed,
    DeliveriesReceived,
    DeliveriesUpdated,
    LinkAttached,
    LinkFlowed,
)
from tests.support.wire import answer, of_type, settings
from tests.wire.amqp10.test_sasl import Server

try:
    import proton
except ImportError:  # pragma: no cover - an optional dependency of the tests
    proton = None


class WithProton(SynchronousTestCase):
    """Proton is the client, we are the server."""

    def setUp(self) -> None:
        if proton is None:
            raise SkipTest("python-qpid-proton is not installed")
        self.engine = Connection(
            settings("server", allow_no_sasl=False), sasl_server=Server("ANONYMOUS")
        )
        self.engine.start(0.0)
        self.events: list[Any] = []
        self.peer = proton.Connection()
        self.peer.container = "proton"
        self.transport = proton.Transport()
        self.transport.sasl().allowed_mechs("ANONYMOUS")
        self.transport.bind(self.peer)
        self.peer.open()
        self.session = self.peer.session()
        self.session.open()

    def run_wire(self) -> None:
        """Carry octets until both are quiet."""
        moved = True
        while moved:
            moved = False
            pending = self.transport.pending()
            if pending > 0:
                data = self.transport.peek(pending)
                self.transport.pop(pending)
                moved = True
                for event in self.engine.receive_data(data, 0.0):
                    self.events.append(event)
                    self.use(event)
            data = b"".join(self.engine.data_to_send())
            if data:
                moved = True
                self.transport.push(data)

    def use(self, event: Any) -> None:
        """Accept everything, grant credit, send three messages to whoever gives credit."""
        if type(event).__name__ == "OpenReceived":
            self.engine.open()
        answer(event)
        if isinstance(event, LinkAttached) and event.link.role == "receiver":
            event.link.flow(10)
        elif isinstance(event, DeliveriesReceived):
            event.link.session.settle(event.deliveries, spec.Accepted())
        elif isinstance(event, LinkFlowed) and event.link.role == "sender":
            while event.link.sendable and event.link.deliveries < 3:
                event.link.send([b"m%d" % event.link.deliveries], b"%d" % event.link.deliveries)
            if event.link.drain:
                event.link.drained()

    def test_it_sends(self) -> None:
        """Proton's messages arrive, large ones too, and their acceptance gets back."""
        sender = self.session.sender("out")
        sender.target.address = "q"
        sender.open()
        self.run_wire()
        self.assertEqual(sender.credit, 10)
        bodies = [b"a", b"b" * 300_000, b""]
        sent = []
        for number, body in enumerate(bodies):
            sent.append(sender.delivery(str(number)))
            sender.send(body)
            sender.advance()
        self.run_wire()
        got = [
            delivery
            for event in of_type(self.events, DeliveriesReceived)
            for delivery in event.deliveries
        ]
        self.assertEqual([each.payload for each in got], bodies)
        for delivery in sent:
            self.assertEqual(delivery.remote_state, proton.Delivery.ACCEPTED)
            self.assertTrue(delivery.settled)

    def test_it_receives(self) -> None:
        """Our messages arrive at Proton, its outcomes with us; drain comes to an end."""
        receiver = self.session.receiver("in")
        receiver.source.address = "q"
        receiver.open()
        receiver.drain(10)
        self.run_wire()
        got = []
        for _ in range(3):
            delivery = receiver.current
            got.append(receiver.recv(100))
            delivery.update(proton.Delivery.ACCEPTED)
            delivery.settle()
        self.run_wire()
        self.assertEqual(got, [b"m0", b"m1", b"m2"])
        self.assertEqual(receiver.credit, 0)
        updates = of_type(self.events, DeliveriesUpdated)
        self.assertEqual(sum(len(each.deliveries) for each in updates), 3)
        self.assertTrue(all(each.settled for each in updates))
        (link,) = self.engine.sessions[0].links
        self.assertEqual(link.unsettled, {})

    def test_it_goes(self) -> None:
        """Detach, end and close of both sides."""
        sender = self.session.sender("out")
        sender.open()
        self.run_wire()
        sender.close()
        self.session.close()
        self.peer.close()
        self.run_wire()
        closed = proton.Endpoint.LOCAL_CLOSED | proton.Endpoint.REMOTE_CLOSED
        for endpoint in (sender, self.session, self.peer):
            self.assertEqual(endpoint.state, closed)
        self.assertTrue(of_type(self.events, ConnectionClosed)[0].clean)
        self.assertTrue(self.engine.is_closed)

    def test_our_error(self) -> None:
        """Proton understands why we detach."""
        sender = self.session.sender("out")
        sender.open()
        self.run_wire()
        (link,) = self.engine.sessions[0].links
        link.detach(error=spec.Error(condition="amqp:not-found", description="gone"))
        self.run_wire()
        self.assertEqual(sender.remote_condition.name, "amqp:not-found")
        self.assertEqual(sender.remote_condition.description, "gone")
