# SPDX-License-Identifier: Apache-2.0
"""The worked examples W of the requirements, run by Qpid Proton against one broker.

Those between brokers are in `test_proton_federation`, W-16 is in `test_management`. What Proton
has no words for stays with the scripts of frames in `tests.conformance` and `tests.frontends`:

* W-04, transactional acquisition: Proton cannot put properties (``txn-id``) into a flow frame;
* W-05 and W-11: it cannot state a default-outcome, so the broker's own is looked at;
* W-07: neither ``batchable`` nor the ranges of dispositions can be seen; the rest is here;
* W-11, accepted and then rejected: it writes only the last of two outcomes, unless the first has
  been answered, and then the delivery is over;
* W-22: it sends no transfer before it has credit (`test_handshakes` does it with octets);
* W-23, garbage and a bad begin: it writes neither.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

from tests.integration.support import PATIENCE, until
from tests.integration.test_proton import ProtonTestCase

try:
    from proton import (
        Data,
        Delivery,
        Described,
        Endpoint,
        Message,
        Terminus,
        symbol,
        timestamp,
    )
    from proton.handlers import MessagingHandler, TransactionHandler
    from proton.reactor import (
        AtMostOnce,
        Container,
        Copy,
        DurableSubscription,
        Filter,
        LinkOption,
        Move,
        Selector,
    )
    from proton.utils import BlockingConnection, LinkDetached
except ImportError:
    MessagingHandler = TransactionHandler = LinkOption = object

ONLY_ACCEPTED = "amqp:accepted:list"
NAMES = {0x24: "accepted", 0x25: "rejected", 0x26: "released"}


class Properties(LinkOption):  # type: ignore[misc]
    """Properties of the link."""

    def __init__(self, **properties: Any) -> None:
        self.properties = {
            symbol(name.replace("_", "-")): value for name, value in properties.items()
        }

    def apply(self, link: Any) -> None:
        """Set them."""
        link.properties = self.properties


class Outcomes(LinkOption):  # type: ignore[misc]
    """The outcomes that the receiver may use."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def apply(self, link: Any) -> None:
        """Set them."""
        outcomes = link.source.outcomes
        outcomes.put_array(False, Data.SYMBOL)
        outcomes.enter()
        for name in self.names:
            outcomes.put_symbol(symbol(name))
        outcomes.exit()


class Coordinator(LinkOption):  # type: ignore[misc]
    """A link that controls transactions."""

    def __init__(self, capability: str) -> None:
        self.capability = capability

    def apply(self, link: Any) -> None:
        """Make it one."""
        link.target.type = Terminus.COORDINATOR
        link.target.capabilities.put_object(symbol(self.capability))


class DynamicNode(LinkOption):  # type: ignore[misc]
    """A target, or a source, to be made; or, with dynamic=False, one that is there."""

    def __init__(self, dynamic: bool = True, **properties: Any) -> None:
        self.dynamic = dynamic
        self.properties = {
            symbol(name.replace("_", "-")): value for name, value in properties.items()
        }

    def apply(self, link: Any) -> None:
        """Ask for it."""
        terminus = link.source if link.is_receiver else link.target
        if self.dynamic:
            terminus.dynamic = True
            terminus.address = None
        terminus.properties.put_dict(self.properties)


class Controller(MessagingHandler, TransactionHandler):  # type: ignore[misc]
    """Hears what becomes of a transaction, and of what was sent in it.

    Attributes:
        heard: the words, in order.
        transaction: once it is declared.
    """

    def __init__(self) -> None:
        super().__init__(auto_settle=False, auto_accept=False, prefetch=0)
        self.heard: list[str] = []
        self.transaction: Any = None
        self._told: set[str] = set()

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction

    def on_transaction_committed(self, event: Any) -> None:
        self.heard.append("committed")

    def on_transaction_aborted(self, event: Any) -> None:
        self.heard.append("aborted")

    def on_transaction_commit_failed(self, event: Any) -> None:
        self.heard.append("commit failed")

    def on_settled(self, event: Any) -> None:
        # Two dispositions in one read are two events, both with the state of the latter.
        if event.delivery.tag not in self._told:
            self._told.add(event.delivery.tag)
            self.heard.append(NAMES[event.delivery.remote_state])


class ExampleCase(ProtonTestCase):
    """Words for scripts."""

    def receiver(
        self, address: str = "", *options: Any, credit: int = 0, name: str = "", on: Any = None
    ) -> Any:
        """Attach a receiver that has this credit and asks for no more by itself."""
        receiver = (on or self.connection).create_receiver(
            address or self.node, credit=0, name=name or None, options=list(options)
        )
        if credit:
            receiver.link.flow(credit)
        return receiver

    def take(self, receiver: Any, count: int) -> list[tuple[Any, Any]]:
        """Wait for messages; return them with their deliveries, unsettled."""
        incoming = receiver.fetcher.incoming
        receiver.connection.wait(lambda: len(incoming) >= count, msg=f"{count} messages")
        return [incoming.popleft() for _ in range(count)]

    def bodies(self, receiver: Any, count: int) -> list[Any]:
        """Wait for messages, accept them, return their bodies."""
        taken = self.take(receiver, count)
        for _, delivery in taken:
            if not delivery.settled:
                delivery.update(Delivery.ACCEPTED)
                delivery.settle()
        return [message.body for message, _ in taken]

    def round_trip(self, connection: Any = None) -> None:
        """Wait until the daemon has done what it heard so far, and has told so."""
        (connection or self.connection).create_sender(None).close()

    def assert_nothing(self, *receivers: Any) -> None:
        """Assert that these have got nothing more."""
        for receiver in receivers:
            self.round_trip(receiver.connection)
            self.assertEqual([each.body for each, _ in receiver.fetcher.incoming], [])

    def assert_drained(self, receiver: Any) -> None:
        """Assert that a node has nothing more for a receiver."""
        receiver.link.drain(1)
        receiver.connection.wait(lambda: receiver.link.credit == 0, msg="a drained link")
        self.assertEqual([each.body for each, _ in receiver.fetcher.incoming], [])

    def settle(self, delivery: Any, state: Any) -> None:
        """Settle one delivery."""
        delivery.update(state)
        delivery.settle()

    def outcome(self, sender: Any, message: Any) -> tuple[Any, str | None]:
        """Send; return the outcome, and the condition if it is rejected."""
        delivery = sender.link.send(message)
        sender.connection.wait(lambda: delivery.settled, msg="an outcome")
        condition = delivery.remote.condition
        state = delivery.remote_state
        delivery.settle()
        return state, None if condition is None else condition.name

    def assert_refused(self, condition: str, attach: Callable[[], Any]) -> str:
        """Assert that a link is refused with this condition; return the words."""
        with self.assertRaises(LinkDetached) as refused:
            attach()
        self.assertEqual(refused.exception.condition, condition)
        return str(refused.exception)

    def detached(self, connection: Any) -> str | None:
        """Wait until the broker detaches a link; return the condition."""
        with self.assertRaises(LinkDetached) as detached:
            connection.wait(lambda: False, msg="a detach")
        return detached.exception.condition  # type: ignore[no-any-return]

    def declare(self, connection: Any = None) -> Controller:
        """Begin a transaction."""
        connection = connection or self.connection
        controller = Controller()
        connection.container.declare_transaction(connection.conn, handler=controller)
        connection.wait(lambda: controller.transaction is not None, msg="a transaction")
        return controller

    def hear(self, controller: Controller, *words: str) -> None:
        """Wait for these words."""
        self.connection.wait(lambda: len(controller.heard) >= len(words), msg=" ".join(words))
        self.assertEqual(controller.heard, list(words))

    def ask(self, text: str) -> Any:
        """Send commands to the management node; return the reply."""
        answers = self.connection.create_receiver(None, dynamic=True, credit=1)
        commands = self.connection.create_sender("amqp$admin")
        address = answers.link.remote_source.address
        commands.send(Message(id="m", reply_to=address, body=text))
        reply = answers.receive(timeout=PATIENCE)
        commands.close()
        answers.close()
        return reply

    def cut(self, connection: Any) -> None:
        """Have the network lose a connection."""
        descriptor = connection.conn.transport._selectable.fileno()
        with socket.socket(fileno=os.dup(descriptor)) as gone:
            gone.shutdown(socket.SHUT_RDWR)

    def loose(self) -> Any:
        """Connect without a polite end."""
        return BlockingConnection(f"127.0.0.1:{self.daemon.plain}", timeout=PATIENCE)


class ExampleTests(ExampleCase):
    """One test for each."""

    nodes = (
        {"name": "topic", "type": "topic"},
        {"name": "keeping", "type": "topic", "last-value": 100},
        {"name": "holding", "type": "topic", "last-value": 1},
        {"name": "grave"},
        {"name": "mortal", "dead-letter": "grave"},
        {"name": "brief", "dead-letter": "ended"},
        {"name": "ended"},
        {"name": "one", "maximum-destructive-links": 1},
        {"name": "next", "maximum-destructive-links": 1, "excess-destructive-link-policy": "wait"},
        {"name": "shown", "maximum-destructive-links": 0},
    )

    def test_w01_point_to_point(self) -> None:
        """W-01: five messages, three accepted, the connection lost, two left."""
        self.send(*(Message(body=n) for n in range(1, 6)))
        first = self.loose()
        taken = self.take(self.receiver(self.node, Move(), credit=10, on=first), 5)
        self.assertEqual([message.body for message, _ in taken], [1, 2, 3, 4, 5])
        for _, delivery in taken[:3]:
            self.settle(delivery, Delivery.ACCEPTED)
        self.round_trip(first)
        self.cut(first)
        second = self.receiver(credit=2)
        taken = self.take(second, 2)
        self.assertEqual([(m.body, m.first_acquirer) for m, _ in taken], [(4, False), (5, False)])
        for _, delivery in taken:
            self.settle(delivery, Delivery.ACCEPTED)
        second.close()
        self.assert_empty()

    def test_w02_transactional_publish(self) -> None:
        """W-02: nothing before the discharge; then the coordinator's word, then the message's."""
        consumer = self.receiver(credit=10, on=self.connect())
        controller = self.declare()
        sender = self.connection.container.create_sender(
            self.connection.conn, self.node, handler=controller
        )
        self.connection.wait(lambda: sender.credit, msg="credit")
        controller.transaction.send(sender, Message(body="committed"))
        self.round_trip()
        self.assert_nothing(consumer)
        controller.transaction.commit()
        self.hear(controller, "committed", "accepted")
        self.assertEqual(self.bodies(consumer, 1), ["committed"])

        controller.heard.clear()
        again = self.declare()
        again.transaction.send(sender, Message(body="rolled back"))
        again.transaction.abort()
        self.connection.wait(lambda: again.heard and controller.heard, msg="the end")
        self.assertEqual((again.heard, controller.heard), (["aborted"], ["released"]))

        controller.heard.clear()
        last = self.declare()
        last.transaction.send(sender, Message(body="left alone"))
        self.connection.conn._txn_ctrl.close()
        self.hear(controller, "released")
        self.assert_nothing(consumer)
        self.assert_drained(consumer)

    def test_w03_transactional_accept(self) -> None:
        """W-03: acquired until the commit, then gone; after a rollback still this link's."""
        self.send(Message(body=1), Message(body=2))
        receiver = self.receiver(credit=2)
        (_, first), (_, second) = self.take(receiver, 2)
        other = self.receiver(on=self.connect())
        controller = self.declare()
        controller.transaction.update(first, Delivery.ACCEPTED)
        self.round_trip()
        self.assertFalse(first.settled)
        self.assert_drained(other)
        controller.transaction.commit()
        self.hear(controller, "committed")
        self.connection.wait(lambda: first.settled, msg="a settled delivery")
        first.settle()

        controller = self.declare()
        controller.transaction.update(second, Delivery.ACCEPTED)
        controller.transaction.abort()
        self.hear(controller, "aborted")
        self.assert_drained(other)
        self.assertFalse(second.settled)
        self.settle(second, Delivery.ACCEPTED)
        receiver.close()
        self.assert_drained(other)

    def test_w05_transient_publish_subscribe(self) -> None:
        """W-05: accepted and gone; pre-settled to both; nothing for who comes late."""
        for topic in ("topic", "keeping"):
            self.node = topic
            self.send(Message(body="early"))
            now = Properties(first_message_date=timestamp((1 << 63) - 1))
            options = (Copy(), AtMostOnce(), Outcomes(ONLY_ACCEPTED), now)
            both = [self.receiver(topic, *options, credit=10, on=self.connect()) for _ in range(2)]
            self.assertEqual(outcomes_of(both[0]), [ONLY_ACCEPTED])
            self.send(*(Message(body=n) for n in range(3)))
            for each in both:
                taken = self.take(each, 3)
                self.assertEqual([message.body for message, _ in taken], [0, 1, 2])
                self.assertTrue(all(delivery.settled for _, delivery in taken))
        self.assert_drained(self.receiver("topic", name="late"))
        everything = Properties(first_message_date=timestamp(0))
        self.assert_drained(self.receiver("topic", everything, name="nothing kept"))
        history = self.receiver("keeping", everything, credit=10, name="history")
        self.assertEqual(self.bodies(history, 4), ["early", 0, 1, 2])

    def test_w06_shared_queue_with_filters(self) -> None:
        """W-06: the filter's head is ahead of the queue's; the rest is for others."""
        self.send(*(Message(body=n, properties={"complexity": n}) for n in (9, 3, 7, 1)))
        low = self.receiver(self.node, Selector("complexity < 5"), credit=10)
        rest = self.receiver(name="rest", on=self.connect())
        self.assertEqual(self.bodies(low, 2), [3, 1])
        self.assert_nothing(rest)
        rest.link.flow(10)
        self.assertEqual(self.bodies(rest, 2), [9, 7])
        words = self.assert_refused(
            "amqp:invalid-field", lambda: self.receiver(self.node, Selector("a < < 1"), name="bad")
        )
        self.assertIn("character 5", words)
        unknown = Filter({symbol("f"): Described(symbol("acme:filter"), "a = 1")})
        words = self.assert_refused(
            "amqp:not-implemented", lambda: self.receiver(self.node, unknown, name="unknown")
        )
        self.assertIn("acme:filter", words)

    def test_w07_settling_in_bulk(self) -> None:
        """W-07: everything is settled, and the window stays open after ten thousand sends."""
        count = 10_000
        sender = self.connection.create_sender(self.node)
        deliveries: list[Any] = []

        def sent() -> bool:
            while sender.link.credit and len(deliveries) < count:
                deliveries.append(sender.link.send(Message(body=b"x")))
            return len(deliveries) == count and deliveries[-1].settled

        self.connection.wait(sent, msg="ten thousand sent")
        self.assertTrue(all(each.settled for each in deliveries))
        self.assertEqual({each.remote_state for each in deliveries}, {Delivery.ACCEPTED})
        self.assertEqual(self.outcome(sender, Message(body=b"x")), (Delivery.ACCEPTED, None))

    def test_w08_rpc(self) -> None:
        """W-08: a dynamic reply address, a reply by the null target, gone after the detach."""
        server = self.connect()
        requests = self.receiver(credit=1, on=server)
        answers = server.create_sender(None)
        inboxes = [self.connection.create_receiver(None, credit=1, dynamic=True) for _ in range(2)]
        address, other = (inbox.link.remote_source.address for inbox in inboxes)
        mine, others = (each.removeprefix("dynamic-") for each in (address, other))
        self.assertGreater(len(mine), 20)  # 122 random bits, in 6 for each character
        self.assertLess(sum(a == b for a, b in zip(mine, others, strict=True)), 20)
        self.send(Message(body="question", reply_to=address, id="q-1"))
        ((asked, delivery),) = self.take(requests, 1)
        self.settle(delivery, Delivery.ACCEPTED)
        answers.send(Message(body="answer", address=asked.reply_to, correlation_id=asked.id))
        got = inboxes[0].receive(timeout=PATIENCE)
        inboxes[0].accept()
        self.assertEqual((got.body, got.correlation_id), ("answer", "q-1"))
        inboxes[0].close()
        late = self.outcome(answers, Message(body="late", address=address))
        self.assertEqual(late, (Delivery.REJECTED, "amqp:not-found"))
        self.assert_refused("amqp:not-found", lambda: server.create_sender(address))

    def test_w09_bindings(self) -> None:
        """W-09: red to one, both to the other; a binding ends with its node; fair shares."""
        reply = self.ask(
            "create topic w9.t\ncreate queue w9.red\ncreate queue w9.all\ncreate queue w9.other\n"
            "create link w9-red w9.t w9.red with filter=\"color = 'red'\"\n"
            "create link w9-all w9.t w9.all"
        )
        self.assertTrue(reply.body["committed"], reply.body)
        topic = self.connection.create_sender("w9.t")
        for color in ("red", "blue"):
            topic.send(Message(body=color, properties={"color": color}))
        red, both = self.receiver("w9.red", credit=1), self.receiver("w9.all", credit=2)
        self.assertEqual(self.bodies(red, 1), ["red"])
        self.assertEqual(self.bodies(both, 2), ["red", "blue"])
        self.assert_drained(red)
        self.assertEqual(self.ask("delete link w9-all").properties["statusCode"], 200)
        topic.send(Message(body="red again", properties={"color": "red"}))
        self.assert_drained(both)
        red.link.flow(1)
        self.assertEqual(self.bodies(red, 1), ["red again"])
        red.close()
        self.assertEqual(self.ask("query link w9-red").body["results"][0]["status"], 200)
        self.assertTrue(self.ask("delete queue w9.red").body["committed"])
        (found,) = self.ask("query link w9-red").body["results"]
        self.assertEqual(found["attributes"]["entities"], [])
        self.assertTrue(self.ask("create link w9-move w9.all w9.other").body["committed"])
        both.link.flow(10)
        sender = self.connection.create_sender("w9.all")
        for number in range(10):
            sender.send(Message(body=number))
        mine = self.bodies(both, 5)
        moved = self.bodies(self.receiver("w9.other", credit=5), 5)
        self.assertEqual(sorted(mine + moved), list(range(10)))

    def test_w10_shared_work_queue(self) -> None:
        """W-10: ninety messages, three consumers, one of them idle."""
        idle, *active = [self.receiver(on=self.connect()) for _ in range(3)]
        for each in active:
            each.link.flow(100)
            self.round_trip(each.connection)
        self.send(*(Message(body=n) for n in range(90)))
        got: list[list[int]] = []
        for each in active:
            self.round_trip(each.connection)
            got.append(self.bodies(each, len(each.fetcher.incoming)))
        self.assertEqual(sorted(got[0] + got[1]), list(range(90)))
        for each in got:
            self.assertTrue(36 <= len(each) <= 54, len(each))
        self.assert_nothing(idle)

    def test_w11_consuming(self) -> None:
        """W-11: the outcomes of a consumer are instructions; others than agreed end the link."""
        self.node = "mortal"
        self.send(*(Message(body=n) for n in range(1, 5)))
        link = self.receiver(self.node, Move(), Outcomes(ONLY_ACCEPTED), credit=1)
        self.assertEqual(outcomes_of(link), [ONLY_ACCEPTED])
        ((_, delivery),) = self.take(link, 1)
        self.assertEqual((delivery.remote_state, delivery.settled), (Delivery.ACCEPTED, False))
        delivery.update(Delivery.REJECTED)
        delivery.settle()
        self.assertEqual(self.detached(self.connection), "amqp:not-allowed")
        connection = self.connect()
        receiver = self.receiver(credit=4, on=connection)
        one, two, three, four = (delivery for _, delivery in self.take(receiver, 4))
        self.settle(one, Delivery.ACCEPTED)
        self.settle(two, Delivery.RELEASED)
        self.settle(three, Delivery.REJECTED)
        four.local.failed = True
        self.settle(four, Delivery.MODIFIED)
        self.round_trip(connection)  # else Proton writes the credit first
        receiver.link.flow(2)
        counts = [(m.body, m.delivery_count) for m, _ in self.take(receiver, 2)]
        self.assertEqual(counts, [(2, 0), (4, 1)])
        grave = self.receiver("grave", credit=1, on=connection)
        ((dead, delivery),) = self.take(grave, 1)
        self.settle(delivery, Delivery.ACCEPTED)
        self.assertEqual((dead.body, dead.annotations["x-opt-dead-letter-reason"]), (3, "rejected"))

    def test_w12_browsing(self) -> None:
        """W-12: a browser sees what is there and changes nothing."""
        self.send(*(Message(body=n) for n in range(1, 4)))
        browser = self.receiver(self.node, Copy(), credit=10, on=self.connect())
        one, two, three = self.take(browser, 3)
        self.assertEqual([m.body for m, _ in (one, two, three)], [1, 2, 3])
        self.settle(one[1], Delivery.ACCEPTED)
        self.settle(three[1], Delivery.ACCEPTED)
        self.settle(two[1], Delivery.RELEASED)
        self.assertEqual(self.bodies(browser, 1), [2])
        self.assert_nothing(browser)
        (row,) = self.ask(f"query queue {self.node}").body["results"][0]["attributes"]["entities"]
        self.assertEqual((row["depth"], row["acquired"]), (3, 0))
        taker = self.receiver(credit=1)
        self.assertEqual(self.bodies(taker, 1), [1])
        late = self.receiver(self.node, Copy(), credit=10, on=self.connect())
        self.assertEqual(self.bodies(late, 2), [2, 3])
        self.assert_nothing(late)

    def test_w16_in_a_transaction(self) -> None:
        """W-16: a command that is part of a transaction is rejected."""
        controller = self.declare()
        commands = self.connection.create_sender("amqp$admin")
        self.connection.wait(lambda: commands.link.credit, msg="credit")
        asked = Message(id="m", reply_to="grave", body="create queue w16.t")
        delivery = controller.transaction.send(commands.link, asked)
        self.connection.wait(lambda: delivery.settled, msg="an outcome")
        self.assertEqual(delivery.remote_state, Delivery.REJECTED)
        self.assertEqual(delivery.remote.condition.name, "amqp:not-allowed")
        controller.transaction.commit()
        self.hear(controller, "commit failed")
        self.assert_refused("amqp:not-found", lambda: self.connection.create_sender("w16.t"))

    def test_w18_zero_order_hold(self) -> None:
        """W-18: the newest first, then what comes."""
        self.node = "holding"
        self.send(Message(body="v1"), Message(body="v2"))
        subscriber = self.receiver(credit=10)
        self.assertEqual(self.bodies(subscriber, 1), ["v2"])
        self.send(Message(body="v3"))
        self.assertEqual(self.bodies(subscriber, 1), ["v3"])
        self.assert_nothing(subscriber)

    def test_w19_priority_and_lifetime(self) -> None:
        """W-19: B, C, A; and what has outlived its time is dead, with the reason."""
        consumer = self.receiver(on=self.connect())
        self.send(Message(body="A", priority=1), *(Message(body=b, priority=8) for b in "BC"))
        consumer.link.flow(3)
        self.assertEqual(self.bodies(consumer, 3), ["B", "C", "A"])
        self.node = "brief"
        self.send(Message(body="short", ttl=0.2))
        ((dead, delivery),) = self.take(self.receiver("ended", credit=1), 1)
        self.settle(delivery, Delivery.ACCEPTED)
        self.assertEqual(
            (dead.body, dead.annotations["x-opt-dead-letter-reason"]), ("short", "expired")
        )
        self.assert_drained(self.receiver("brief"))

    def test_w20_link_limits(self) -> None:
        """W-20: one consumer, the others refused or waiting; or browsers only."""
        first = self.receiver("one")
        other = self.connect()
        self.assert_refused("amqp:resource-locked", lambda: self.receiver("one", on=other))
        first.close()
        self.receiver("one", on=self.connect())
        self.node = "next"
        first = self.receiver()
        second = self.receiver(on=self.connect(), credit=10)
        self.send(Message(body=1), Message(body=2))
        self.assert_nothing(second)
        first.close()
        self.assertEqual(self.bodies(second, 2), [1, 2])
        self.node = "shown"
        self.send(Message(body=1))
        third = self.connect()
        self.assert_refused("amqp:not-allowed", lambda: self.receiver("shown", Move(), on=third))
        browser = self.receiver("shown", Copy(), credit=1, on=self.connect())
        self.assertEqual(self.bodies(browser, 1), [1])

    def test_w21_routing_faults(self) -> None:
        """W-21: each fault, unsettled and pre-settled."""
        trace = {symbol("x-opt-amqproute-trace"): ["broker1.alpha.example", "b.test"]}
        for message, wanted in (
            (Message(body=1), "amqp:precondition-failed"),
            (Message(body=1, address="nobody"), "amqp:not-found"),
            (Message(body=1, address=self.node, annotations=trace), "amqp:not-allowed"),
            (Message(body=1, address="amqp$transfer@alpha.example"), "amqp:not-allowed"),
            (Message(body=1, address="amqp$admin@b.test"), "amqp:not-allowed"),
        ):
            sender = self.connection.create_sender("amqp$transfer")
            self.assertEqual(self.outcome(sender, message), (Delivery.REJECTED, wanted))
            sender.close()
            bold = self.connect().create_sender("amqp$transfer", options=AtMostOnce())
            bold.connection.wait(lambda bold=bold: bold.link.credit, msg="credit")
            bold.link.send(message, tag="the-tag")
            self.assertEqual(self.detached(bold.connection), wanted)
            info = bold.link.remote_condition.info
            self.assertEqual(bytes(info["delivery-tag"]), b"the-tag")
        self.assert_empty()

    def test_w23_error_scope(self) -> None:
        """W-23: a bad transfer ends its link, or with error-mode `end` its session."""
        ends = []
        for mode in ("detach", "end"):
            connection = self.connect()
            options = [AtMostOnce(), Properties(error_mode=symbol(mode))]
            sender = connection.create_sender("amqp$transfer", options=options)
            connection.wait(lambda sender=sender: sender.link.credit, msg="credit")
            link, session = sender.link, sender.link.session
            link.send(Message(body="without an address"))
            if mode == "detach":
                self.assertEqual(self.detached(connection), "amqp:precondition-failed")
            else:
                connection.wait(lambda session=session: is_closed(session), msg="an end")
                self.assertEqual(session.remote_condition.name, "amqp:precondition-failed")
            ends.append(is_closed(session))
            self.assertFalse(is_closed(connection.conn))
        self.assertEqual(ends, [False, True])

    def test_w24_refusals(self) -> None:
        """W-24: null source or target, then a detach with the error and what to change."""

        def receiver(name: str, address: Any, options: list[Any]) -> Any:
            return self.receiver(address, *options, name=name)

        def sender(name: str, address: Any, options: list[Any]) -> Any:
            return self.connection.create_sender(address, name=name, options=options)

        once = Properties(delivery_mode=symbol("exactly-once"))
        for number, (condition, words, attach, address, *options) in enumerate(
            (
                ("not-found", "correct the address", sender, "nowhere"),
                ("not-found", "correct the address", receiver, "nowhere"),
                ("not-found", "would have to enable it", sender, "amqp$dtxCoordinator"),
                ("not-implemented", "offered are amqp:local-transactions", sender, None,
                 Coordinator("amqp:distributed-transactions")),
                ("not-implemented", "ask for copy, or leave it out", receiver, "topic", Move()),
                ("not-implemented", "ask for at-least-once", receiver, self.node, once),
                ("not-implemented", "offered are amqp:accepted:list", receiver, self.node,
                 Outcomes("amqp:lost:list")),
                ("not-implemented", "there are lifetime-policy, ", sender, None,
                 DynamicNode(colour="red")),
                ("not-implemented", "there are amqp:delete-on-close:list, ", sender, None,
                 DynamicNode(lifetime_policy=symbol("for-ever"))),
                ("invalid-field", "not a whole number", sender, None, DynamicNode(capacity=-1)),
                ("precondition-failed", "ask for a new node with dynamic=true", sender, self.node,
                 DynamicNode(False, capacity=5)),
                ("invalid-field", "compare it with something", receiver, self.node,
                 Selector("a + 1")),
                ("not-allowed", "distribution-mode copy", receiver, "shown", Move()),
                ("not-allowed", "it can be sent to", receiver, "q@elsewhere.example"),
                ("invalid-field", "write the domain after it", sender, "q@"),
            )
        ):  # fmt: skip
            name = f"refused {number}"
            said = self.assert_refused(
                f"amqp:{condition}",
                lambda attach=attach, ends=(name, address, options): attach(*ends),
            )
            self.assertIn(words, said)


class SubscriptionTests(ExampleCase):
    """W-17, which restarts its daemon."""

    nodes = ({"name": "t", "type": "topic"},)

    def subscribe(self) -> Any:
        """Connect as a container with a name, and attach the subscription."""
        container = Container()
        container.container_id = "subscriber"
        connection = self.connect(container=container)
        return self.receiver("t", DurableSubscription(), credit=10, name="sub", on=connection)

    def subscriptions(self) -> list[str]:
        """Ask the management node."""
        rows = self.ask("query queue").body["results"][0]["attributes"]["entities"]
        return [row["name"] for row in rows if row["kind"] == "subscription"]

    def test_w17_durable_subscription(self) -> None:
        """W-17: detached, two published, restarted, two come; closed, nothing is kept."""
        self.node = "t"
        receiver = self.subscribe()
        self.assertEqual(receiver.link.remote_source.durability, Terminus.DELIVERIES)
        receiver.link.detach()
        self.round_trip(receiver.connection)
        receiver.connection.close()
        self.send(*(Message(body=n, durable=True) for n in range(2)))
        self.connection.close()
        self.daemon.kill()
        self.daemon.start()
        self.connection = self.connect()
        self.assertEqual(self.subscriptions(), ["amqp$sub/t/subscriber/sub/anonymous%40127.0.0.1"])
        receiver = self.subscribe()
        self.assertEqual(self.bodies(receiver, 2), [0, 1])
        receiver.close()
        until(lambda: not self.subscriptions(), "an ended subscription")
        self.send(Message(body="late", durable=True))
        self.assert_drained(self.subscribe())


def is_closed(endpoint: Any) -> bool:
    """Tell whether the broker has ended a link, session or connection."""
    return bool(endpoint.state & Endpoint.REMOTE_CLOSED)


def outcomes_of(receiver: Any) -> list[str]:
    """Return the outcomes that the broker named for a link."""
    data = receiver.link.remote_source.outcomes
    data.rewind()
    data.next()
    return [str(each) for each in data.get_object()]
