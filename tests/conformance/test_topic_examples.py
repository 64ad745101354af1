# SPDX-License-Identifier: Apache-2.0
"""The worked examples about topics and bindings, as scripts: W-05, W-09, W-17, W-18."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.binding import BindingDeclaration
from amqproute.broker.broker import Broker
from amqproute.broker.node_declaration import TopicDeclaration
from amqproute.broker.node_limits import TopicLimits
from amqproute.broker.subscription import NOTES
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.types import Symbol, Timestamp
from tests.conformance.frame_broker import ACCEPTED, FrameBroker, Network, message
from tests.support.fakes import KeptStore, settle_down

HISTORY = {Symbol("first-message-date"): Timestamp(0)}


class ExampleTests(SynchronousTestCase):
    """One test for each."""

    def setUp(self) -> None:
        self.world = Network()

    def house(self, *others: Any, **limits: Any) -> FrameBroker:
        """Return a broker with a topic ``t``."""
        return self.world.house(nodes=[TopicDeclaration("t", TopicLimits(**limits)), *others])

    def test_w05_transient_publish_subscribe(self) -> None:
        """W-05: accepted and gone; pre-settled to both; nothing for who comes late."""
        house = self.house(last_value=100)
        plain = self.world.house("b.test", nodes=[TopicDeclaration("t")])
        for each, keeps in ((house, True), (plain, False)):
            producer = each.client().ready("producer")
            producer.sender("t")
            producer.publish(0, message(b"lost"))
            self.assertEqual(producer.one(spec.Disposition).state, spec.Accepted())
            source = spec.Source(
                address="t",
                distribution_mode="copy",
                default_outcome=spec.Accepted(),
                outcomes=(ACCEPTED,),
            )
            only_new = {Symbol("first-message-date"): Timestamp((1 << 63) - 1)}
            self.world.advance(1)
            subscribers = [each.client().ready(f"s{number}") for number in range(2)]
            for subscriber in subscribers:
                answer = subscriber.receiver(
                    None,
                    source=source,
                    snd_settle_mode=spec.SENDER_SETTLED,
                    credit=10,
                    properties=only_new,
                )
                self.assertEqual(answer.source.distribution_mode, "copy")
                self.assertEqual(answer.source.outcomes, (ACCEPTED,))
            for number in range(1, 4):
                producer.publish(number, message(b"%d" % number))
            for subscriber in subscribers:
                subscriber.run()
                transfers = subscriber.payloads(spec.Transfer)
                self.assertEqual(len(transfers), 3)
                self.assertTrue(all(transfer.settled for transfer, _ in transfers))
            self.world.advance(1)
            late = each.client().ready("late")
            late.receiver("t", credit=10, properties=only_new if keeps else None)
            self.assertEqual(late.bodies(), [])
            history = each.client().ready("history")
            history.receiver("t", credit=10, properties=HISTORY)
            self.assertEqual(history.bodies(), [b"lost", b"1", b"2", b"3"] if keeps else [])

    def test_w09_bindings(self) -> None:
        """W-09: red to one, both to the other; a binding ends with its node; fair shares."""
        house = self.house("q2", "q3", "q4")
        broker = house.broker
        made = broker.create_dynamic()
        to_first = BindingDeclaration("t", made.name, "color = 'red'")
        to_second = BindingDeclaration("t", "q2")
        broker.bind(to_first)
        broker.bind(to_second)
        producer = house.client().ready("producer")
        producer.sender("t")
        for number, color in enumerate(("red", "blue")):
            producer.publish(number, message(color.encode(), application={"color": color}))
        self.assertEqual((made.depth, house.depth("q2")), (1, 2))
        broker.unbind(to_second)
        producer.publish(2, message(b"red", application={"color": "red"}))
        self.assertEqual((made.depth, house.depth("q2")), (2, 2))
        broker.delete(made)
        self.assertEqual(broker.bindings, {})
        broker.bind(BindingDeclaration("q3", "q4", mode="move"))
        consumer = house.client().ready("consumer")
        consumer.receiver("q3", credit=100)
        producer.sender("q3", handle=1)
        for number in range(3, 13):
            producer.publish(number, message(b"%d" % number), handle=1)
        consumer.run()
        self.assertEqual((len(consumer.bodies()), house.depth("q4")), (5, 5))

    def test_w17_durable_subscription(self) -> None:
        """W-17: detached, two published, restarted, two come; closed, nothing is kept."""
        house = self.house()
        house.store = store = KeptStore(self.world.clock)
        house.broker._store = store
        house.broker.declare([], {})
        self._restart(house, store)
        subscriber = house.client().ready("me")
        source = spec.Source(
            address="t", distribution_mode="copy", durable=2, expiry_policy=spec.EXPIRE_NEVER
        )
        answer = subscriber.receiver(None, name="sub", source=source, credit=10)
        self.assertEqual((answer.source.durable, answer.source.expiry_policy), (2, "never"))
        subscriber.send(spec.Detach(handle=0, closed=False))
        producer = house.client().ready("producer")
        producer.sender("t")
        durable = spec.Header(durable=True)
        for number in range(2):
            producer.publish(number, message(b"%d" % number, header=durable))
        producer.hang_up()
        subscriber.hang_up()
        self._restart(house, store)
        again = house.client().ready("me")
        again.receiver(None, name="sub", source=source, credit=10)
        self.assertEqual(again.bodies(), [b"0", b"1"])
        again.send(spec.Detach(handle=0, closed=True))
        producer = house.client().ready("producer")
        producer.sender("t")
        producer.publish(0, message(b"late", header=durable))
        self.assertEqual(store.recovery().queues, {})
        self.assertEqual(store.recovery().notes.get(NOTES), {})

    def _restart(self, house: FrameBroker, store: KeptStore) -> None:
        """Build the broker again over what the store holds."""
        recovery = store.recovery()
        old = house.broker
        old.stop()
        broker = Broker(store, self.world.clock, self.world.now_ms, old._new_name)
        broker.recovered_nodes.recovered(recovery.queues, recovery.notes.get(NOTES, {}))
        broker.declare([TopicDeclaration("t")], {})
        broker.services.update(old.services)
        house.broker = house.shared.broker = broker
        house.shared.nodes.broker = broker
        settle_down(self.world.clock)

    def test_w18_zero_order_hold(self) -> None:
        """W-18: the newest first, then what comes."""
        house = self.house(last_value=1)
        producer = house.client().ready("producer")
        producer.sender("t")
        for number in (1, 2):
            producer.publish(number - 1, message(b"v%d" % number))
        subscriber = house.client().ready("subscriber")
        subscriber.receiver("t", credit=10)
        self.assertEqual(subscriber.bodies(), [b"v2"])
        producer.publish(2, message(b"v3"))
        subscriber.run()
        self.assertEqual(subscriber.bodies(), [b"v3"])
