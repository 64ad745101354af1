# SPDX-License-Identifier: Apache-2.0
"""Credit: part 2 §2.6.7 to §2.6.11, topic F."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.node_declaration import NodeDeclaration
from amqproute.broker.node_limits import QueueLimits
from amqproute.wire.amqp10 import spec
from tests.conformance.frame_broker import Network, condition, frame, message
from tests.support import plain_decoder

FLOW = 0x13
"""The descriptor of a flow."""


class ReceiverTests(SynchronousTestCase):
    """Links on which the broker sends."""

    def setUp(self) -> None:
        self.house = Network().house()
        self.client = self.house.client().ready()
        self.client.fill([b"%d" % n for n in range(10)])

    def test_no_credit_no_traffic(self) -> None:
        """F-01, L-39: an attach carries no credit, and nothing is sent without."""
        self.client.receiver()
        self.assertTrue(self.client.none(spec.Transfer))

    def test_credit(self) -> None:
        """F-01, F-05: one unit, one message."""
        self.client.receiver(credit=3)
        self.assertEqual(self.client.bodies(), [b"0", b"1", b"2"])
        self.client.credit(2, delivery_count=3, next_incoming_id=3)
        self.assertEqual(self.client.bodies(), [b"3", b"4"])

    def test_delivery_count_decides(self) -> None:
        """§2.6.7: credit counts from the receiver's delivery-count, not from now."""
        self.client.receiver(credit=3)
        self.client.messages()
        self.client.credit(4, delivery_count=0)
        self.assertEqual(self.client.bodies(), [b"3"])

    def test_unset_delivery_count(self) -> None:
        """§2.7.4: a receiver that has not seen our attach leaves delivery-count out."""
        self.client.receiver()
        self.client.credit(2, delivery_count=None)
        self.assertEqual(self.client.bodies(), [b"0", b"1"])

    def test_revoked(self) -> None:
        """F-04: credit that is withdrawn before it is used brings nothing, then or later."""
        self.client.receiver(credit=20)
        self.assertEqual(len(self.client.messages()), 10)
        self.client.credit(5, delivery_count=10, next_incoming_id=10)
        self.client.credit(0, delivery_count=10, next_incoming_id=10)
        self.client.fill([b"new", b"newer"])
        self.client.run()
        self.assertEqual(self.client.messages(), [])
        self.client.credit(1, delivery_count=10, next_incoming_id=10)
        self.assertEqual(self.client.bodies(), [b"new"])

    def test_revoked_behind_a_closed_window(self) -> None:
        """F-04, F-05: so it is where the session's window kept the messages back."""
        self.client.receiver()
        self.client.credit(100, incoming_window=0)
        self.client.credit(0, incoming_window=0)
        self.client.credit(0)
        self.assertEqual(self.client.messages(), [])
        self.client.fill([b"new"])
        self.client.run()
        self.assertEqual(self.client.messages(), [])
        self.client.credit(2)
        self.assertEqual(self.client.bodies(), [b"0", b"1"])

    def test_later_messages(self) -> None:
        """F-01: credit waits for messages that come later."""
        self.client.receiver(credit=20)
        self.assertEqual(len(self.client.messages()), 10)
        self.client.fill([b"new"])
        self.client.run()
        self.assertEqual(self.client.bodies(), [b"new"])

    def test_drain(self) -> None:
        """F-10, §2.6.10: drain sends what there is, then gives the credit back by a flow."""
        self.client.receiver()
        self.client.credit(15, drain=True)
        self.assertEqual(len(self.client.messages()), 10)
        flow = self.client.one(spec.Flow)
        self.assertEqual(flow.link_credit, 0)
        self.assertEqual(flow.delivery_count, 15)
        self.assertTrue(flow.drain)

    def test_drain_of_nothing(self) -> None:
        """F-10: an empty queue answers at once, and the credit is gone."""
        house = Network().house()
        client = house.client().ready()
        client.receiver()
        client.credit(5, drain=True)
        flow = client.one(spec.Flow)
        self.assertEqual((flow.link_credit, flow.delivery_count), (0, 5))
        client.fill([b"late"])
        client.run()
        self.assertEqual(client.messages(), [])

    def test_drain_used_up(self) -> None:
        """§2.6.10: where the messages use up the credit, that is the answer."""
        self.client.receiver()
        self.client.credit(4, drain=True)
        self.assertEqual(len(self.client.messages()), 4)
        for flow in self.client.all(spec.Flow):
            self.assertEqual((flow.link_credit, flow.delivery_count), (0, 4))

    def test_echo(self) -> None:
        """F-10, §2.7.4: echo on a link is answered with its state."""
        self.client.receiver(credit=3)
        self.client.names()
        self.client.credit(3, echo=True)
        flow = self.client.one(spec.Flow)
        self.assertEqual((flow.delivery_count, flow.link_credit), (3, 0))

    def test_links_have_their_own_credit(self) -> None:
        """F-01: credit belongs to a link."""
        self.client.receiver(handle=0)
        self.client.receiver(handle=1, credit=2)
        transfers = [each.handle for each in self.client.all(spec.Transfer)]
        self.assertEqual(len(transfers), 2)
        self.assertEqual(len(set(transfers)), 1)

    def test_flow_of_an_unknown_handle(self) -> None:
        """§2.8.17: a flow for a handle that is not attached ends the session."""
        self.client.credit(1, handle=44)
        self.assertEqual(condition(self.client.one(spec.End)), "amqp:session:unattached-handle")


class SenderTests(SynchronousTestCase):
    """Links on which the broker receives."""

    def test_ample(self) -> None:
        """F-03, P-18: credit comes right behind the attach."""
        client = Network().house(limits={"link_credit": 50}).client().ready()
        client.sender()
        flow = client.one(spec.Flow)
        self.assertEqual((flow.link_credit, flow.delivery_count), (50, 0))

    def test_never_unlimited(self) -> None:
        """F-07: where nothing limits a sender its credit is ample, and is in each flow.

        Both fields are there on the wire, read by another decoder; credit for half a prefetch or
        more is left after each message, for ten times as many messages.
        """
        client = Network().house(limits={"link_credit": 50}).client().ready()
        client.sender()
        granted = 0
        for number in range(500):
            flows = [
                performative
                for _, performative, _ in plain_decoder.frames(b"".join(client.raw))
                if performative is not None and performative.descriptor == FLOW
            ]
            client.raw.clear()
            for flow in flows:
                handle, count, credit = (plain_decoder.field(flow, index) for index in (4, 5, 6))
                self.assertEqual(handle, 0)
                assert isinstance(count, int)
                assert isinstance(credit, int)
                granted = count + credit
            self.assertGreaterEqual(granted - number, 25)
            client.write(client.transfer(number))

    def test_without_credit(self) -> None:
        """F-01, §2.8.18: a sender beyond its credit is detached with transfer-limit-exceeded."""
        house = Network().house(limits={"link_credit": 5}, settings={"credit_grace_new": 0})
        client = house.client().ready()
        client.sender()
        client.write(*(client.transfer(n) for n in range(6)))
        detach = client.one(spec.Detach)
        self.assertEqual(condition(detach), "amqp:link:transfer-limit-exceeded")
        self.assertTrue(detach.closed)

    def test_grace_is_for_new_links(self) -> None:
        """F-06, P-04: deliveries that set out before our first flow are let pass, no others.

        The broker cannot see whether a delivery set out before the flow arrived, so a new link may
        use up its grace beside its credit; after that credit is what counts.
        """
        house = Network().house(limits={"link_credit": 5})
        client = house.client().ready()
        client.sender()
        client.one(spec.Flow)
        client.write(*(client.transfer(n) for n in range(15)))
        self.assertTrue(client.none(spec.Detach))
        other = house.client().ready("other")
        other.sender()
        other.write(*(other.transfer(n) for n in range(16)))
        self.assertEqual(condition(other.one(spec.Detach)), "amqp:link:transfer-limit-exceeded")

    def test_credit_reflects_space(self) -> None:
        """F-02, F-03: a link gets what the node has free; five get their parts of it, and all."""
        house = Network().house(nodes=[NodeDeclaration("q", QueueLimits(capacity=20))])
        client = house.client().ready()
        client.sender()
        self.assertEqual(client.one(spec.Flow).link_credit, 20)
        client.write(*(client.transfer(n) for n in range(8)))
        client.run()
        granted = {0: 20}
        for handle in range(1, 5):
            client.sender(handle=handle)
        client.run(1)
        for flow in client.all(spec.Flow):
            if flow.handle is not None:
                granted[flow.handle] = flow.link_credit
        self.assertEqual(sorted(granted.values()), [2, 2, 2, 3, 3])

    def test_withdrawn_by_the_broker(self) -> None:
        """F-02, F-03, F-04: a second link takes half of the room, by a flow with less credit.

        What set out within the first grant is judged by the room there is, and costs no link.
        """
        house = Network().house(nodes=[NodeDeclaration("q", QueueLimits(capacity=6))])
        first = house.client().ready("first")
        first.sender()
        self.assertEqual(first.one(spec.Flow).link_credit, 6)
        second = house.client().ready("second")
        second.sender()
        first.run()
        flow = first.all(spec.Flow)[-1]
        self.assertEqual((flow.delivery_count, flow.link_credit), (0, 3))
        self.assertEqual(second.one(spec.Flow).link_credit, 3)
        first.write(*(first.transfer(n) for n in range(6)))
        states = [each.state for each in first.all(spec.Disposition)]
        self.assertTrue(first.none(spec.Detach) and first.none(spec.End))
        self.assertEqual({type(each) for each in states}, {spec.Accepted})
        self.assertEqual(house.depth(), 6)
        second.run()
        self.assertEqual(second.all(spec.Flow)[-1].link_credit, 0)

    def test_full(self) -> None:
        """Q-15, F-02: a full queue grants nothing; it grants again when there is space."""
        house = Network().house(nodes=[NodeDeclaration("q", QueueLimits(capacity=3))])
        client = house.client().ready()
        client.sender()
        client.write(*(client.transfer(n) for n in range(3)))
        client.names()
        client.receiver(handle=1, credit=3)
        self.assertEqual(len(client.messages()), 3)
        self.assertEqual([each for each in client.all(spec.Flow) if each.link_credit], [])
        client.dispose(0, 2)
        client.run(1)
        flows = [each for each in client.all(spec.Flow) if each.link_credit]
        self.assertTrue(flows, "no credit although there is space again")
        self.assertLessEqual(flows[-1].delivery_count + flows[-1].link_credit, 6)

    def test_beyond_capacity(self) -> None:
        """Q-15: a message over the capacity is rejected with resource-limit-exceeded."""
        house = Network().house(nodes=[NodeDeclaration("q", QueueLimits(capacity=3))])
        client = house.client().ready()
        client.sender(handle=0)
        client.sender(handle=1)
        client.write(*(client.transfer(n, handle=0) for n in range(3)))
        client.names()
        client.publish(3, handle=1)
        state = client.one(spec.Disposition).state
        self.assertIsInstance(state, spec.Rejected)
        self.assertEqual(condition(state), "amqp:resource-limit-exceeded")
        self.assertEqual(house.depth(), 3)

    def test_beyond_capacity_settled(self) -> None:
        """Q-15, E-03: where it came settled the link is detached, with the tag in the info."""
        house = Network().house(nodes=[NodeDeclaration("q", QueueLimits(capacity=1))])
        client = house.client().ready()
        client.sender()
        client.write(client.transfer(0, settled=True), client.transfer(1, settled=True))
        detach = client.one(spec.Detach)
        self.assertEqual(condition(detach), "amqp:resource-limit-exceeded")
        self.assertEqual(detach.error.info["delivery-tag"], b"tag-1")
        self.assertEqual(house.depth(), 1)

    def test_echo(self) -> None:
        """§2.7.4: a sender may ask for the state of its link."""
        client = Network().house(limits={"link_credit": 50}).client().ready()
        client.sender()
        client.publish(0)
        client.names()
        client.send(
            spec.Flow(
                next_incoming_id=0,
                incoming_window=10,
                next_outgoing_id=1,
                outgoing_window=10,
                handle=0,
                delivery_count=1,
                link_credit=49,
                echo=True,
            )
        )
        flow = client.one(spec.Flow)
        self.assertEqual(flow.delivery_count, 1)
        self.assertGreater(flow.link_credit, 0)

    def test_aborted_uses_credit(self) -> None:
        """§2.6.14: an aborted delivery has used its unit of credit."""
        house = Network().house(limits={"link_credit": 2}, settings={"credit_grace_new": 0})
        client = house.client().ready()
        client.sender()
        client.names()
        first = spec.Transfer(
            handle=0, delivery_id=0, delivery_tag=b"t", message_format=0, more=True
        )
        client.write(frame(first, b"x"), frame(spec.Transfer(handle=0, aborted=True)))
        granted = [each.delivery_count + each.link_credit for each in client.all(spec.Flow)]
        client.publish(1, message(b"m"))
        self.assertEqual(house.depth(), 1)
        granted += [each.delivery_count + each.link_credit for each in client.all(spec.Flow)]
        self.assertTrue(granted and max(granted) > 2, "the sender is stuck")
