# SPDX-License-Identifier: Apache-2.0
"""Subscribers of topics: attaches, lifetimes, and ends."""

from __future__ import annotations

import json
from typing import Any

from amqproute import conditions
from amqproute.auth.policy import Rule
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.subscription import Definition, DurableSubscription
from amqproute.filters.registry import NO_FILTERS, SELECTOR
from amqproute.frontends.common.frontend_limits import FrontendLimits
from amqproute.message import Message
from amqproute.values import ANONYMOUS_PRINCIPAL, Principal
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.types import Described, Symbol, Timestamp
from tests.broker.test_topic import colored
from tests.support.asserts import HouseTestCase
from tests.support.fakes import EPOCH_MS, message, node, put, topic
from tests.support.memory_broker import MemoryBroker, Network

BOB = Principal("user", "bob")


def red() -> dict[Symbol, Any]:
    """Return a filter set."""
    return {Symbol("f"): Described(Symbol(SELECTOR), "color = 'red'")}


class TopicCase(HouseTestCase):
    """A house with a topic ``t``, and a client."""

    def setUp(self) -> None:
        super().setUp()
        self.network = Network(self.clock)
        self.build()

    def build(self, *others: Any, store: Any = None, house: Any = None, **limits: Any) -> None:
        """Build the house and connect the client."""
        self.house = MemoryBroker(
            self.network,
            "alpha.example",
            topic("t", **limits),
            *others,
            store=store,
            **(house or {}),
        )
        self.client = self.house.client()
        self.run_now()

    def publish(self, *messages: Any) -> None:
        """Put messages on the topic."""
        put(self.house.broker, self.house.broker.topics["t"], *messages)
        self.run_now()

    def subscribe(self, client: Any = None, name: str = "in", **fields: Any) -> Any:
        """Attach a receiver to the topic; fields of the source, the rest of the attach."""
        given = {key: fields.pop(key) for key in tuple(fields) if key in SOURCE}
        source = spec.Source(**{"address": "t", **given})
        link = (client or self.client).receiver(None, 100, name, source=source, **fields)
        self.run_now()
        return link

    def durable(self, client: Any = None, name: str = "in", **fields: Any) -> Any:
        """Attach durably."""
        terms = {"durable": 2, "expiry_policy": spec.EXPIRE_NEVER, **fields}
        return self.subscribe(client, name, **terms)

    def leave(self, link: Any, closed: bool) -> None:
        """Detach or close a link."""
        link.detach(closed)
        self.client.flush()
        self.run_now()

    def told(self) -> list[tuple[str, str, bool, int | None]]:
        """Return kind, node, whether it is about entries, and the copies, of all runs."""
        return [
            (run.kind, facts["node"], "entry" in facts, facts.get("copies"))
            for run in self.house.store.audit.runs
            for facts in [{**json.loads(run.shared), **json.loads(run.columns)}]
        ]

    def subscriptions(self) -> list[DurableSubscription]:
        """Return the durable ones."""
        return list(self.house.broker.topics["t"].durable.values())


SOURCE = {
    "address",
    "durable",
    "expiry_policy",
    "distribution_mode",
    "filter",
    "default_outcome",
    "outcomes",
    "capabilities",
    "dynamic",
}
"""The fields of the source set by `subscribe`; the rest belongs to the attach."""


class WaitTests(TopicCase):
    """Full buffers that take credit from publishers."""

    def test_octets(self) -> None:
        """Credit follows the sizes of messages; what comes within it is taken."""
        self.build(buffer_messages=1000, buffer_bytes=1_000_000, holds_publishers=True)
        receiver = self.house.client()
        self.run_now()
        receiver.receiver("t")
        self.run_now()
        link = self.client.sender("t")
        self.run_now()
        self.assertLessEqual(link.credit, 4)  # nobody knows how large they are
        sent = 0
        while link.credit and sent < 200:
            count = link.credit
            self.client.send(link, *(message(b"x" * 50_000) for _ in range(count)))
            sent += count
            self.run_now()
        self.assertEqual(self.client.outcomes(), ["Accepted"] * sent)
        (subscription,) = self.house.broker.topics["t"]._subscriptions
        self.assertGreater(subscription.waiting_bytes, 900_000)
        self.assertLess(subscription.waiting_bytes, 1_100_000)

    def test_larger_than_before(self) -> None:
        """Messages that turn out larger are taken all the same, and then there is no credit."""
        self.build(buffer_messages=1000, buffer_bytes=100_000, holds_publishers=True)
        receiver = self.house.client()
        self.run_now()
        receiver.receiver("t")
        self.run_now()
        link = self.client.sender("t")
        self.run_now()
        self.client.send(link, message(b"small"))
        self.run_now()
        self.assertGreater(link.credit, 100)
        self.client.send(link, *(message(b"x" * 10_000) for _ in range(15)))
        self.client.send(link, *(message(b"x" * 10_000) for _ in range(15)))
        self.run_now()
        self.assertEqual(self.client.outcomes(), ["Accepted"] * 31)
        self.assertEqual(link.credit, 0)


class JournalTests(TopicCase):
    """Records of a topic in the journal."""

    def test_copies_in_memory(self) -> None:
        """An arrival is noted; copies in buffers, and those for newcomers, whether rows or
        not, neither begin nor end, wherever they go, so nobody misses them."""
        self.build(last_value=2)
        self.subscribe()
        self.subscribe(name="slow", filter=red())
        link = self.client.sender("t")
        self.run_now()
        self.client.send(link, *(colored("red") for _ in range(3)), message(durable=False))
        self.run_now()
        self.assertEqual(len(self.client.deliveries), 7)
        self.client.settle(self.client.deliveries[:4], spec.Accepted())
        self.client.settle(self.client.deliveries[4:6], spec.Modified(delivery_failed=True))
        self.run_now()
        self.assertEqual(len(self.client.deliveries), 9)
        self.subscribe(name="late")
        self.assertEqual(len(self.client.deliveries), 11)
        self.assertTrue(self.house.store.rows("amqp$last/t"))
        self.leave(link, True)
        self.assertEqual(
            {(kind, node, is_entry) for kind, node, is_entry, _ in self.told()},
            {("received", "t", False)},
        )
        self.assertEqual(sum(copies for *_, copies in self.told()), 0)

    def test_copies_on_the_disk(self) -> None:
        """Each of a durable subscription is an entry, whatever stands in memory besides."""
        self.subscribe()
        self.durable(name="kept")
        link = self.client.sender("t")
        self.run_now()
        self.client.send(link, message())
        self.run_now()
        self.client.settle(self.client.deliveries, spec.Accepted())
        self.run_now()
        (name,) = {each.queue.name for each in self.subscriptions()}
        self.assertEqual(
            self.told(),
            [
                ("routed", name, True, None),
                ("received", "t", False, 1),
                ("delivered", name, True, None),
            ],
        )


class AttachTests(TopicCase):
    """The terms in the answer (S-02, S-08, E-01)."""

    def test_defaults(self) -> None:
        """A topic copies, and calls itself one."""
        source = self.subscribe().source
        self.assertEqual(source.distribution_mode, "copy")
        self.assertEqual(tuple(source.capabilities), ("topic",))
        self.assertIsInstance(source.default_outcome, spec.Accepted)
        self.assertEqual((source.durable, source.expiry_policy), (0, "link-detach"))

    def test_target(self) -> None:
        """A target on a topic does, too (N-04)."""
        link = self.client.sender("t")
        self.run_now()
        self.assertEqual(tuple(link.target.capabilities), ("topic",))
        self.client.send(link, message())
        self.run_now()
        self.assertOutcomes(self.client, "Accepted")

    def test_move(self) -> None:
        """A topic does not move (S-01)."""
        link = self.subscribe(distribution_mode=Symbol("move"))
        self.assertDetached(self.client, link, conditions.NOT_IMPLEMENTED)

    def test_filter(self) -> None:
        """Filters are echoed, and hold."""
        link = self.subscribe(filter=red())
        self.assertEqual(link.source.filter, red())
        self.publish(colored("red"), colored("blue"))
        self.assertEqual(self.client.bodies(), [b"red"])

    def test_durable(self) -> None:
        """A durable subscription is answered as such; the answer waits for the disk."""
        link = self.durable()
        self.assertEqual((link.source.durable, link.source.expiry_policy), (2, "never"))
        names = [each.name for each in self.subscriptions()]
        self.assertEqual(names, ["amqp$sub/t/client.example/in"])

    def test_durable_without_never(self) -> None:
        """One that would not last is answered as one that does not."""
        link = self.subscribe(durable=2)
        self.assertEqual((link.source.durable, self.subscriptions()), (0, []))

    def test_store_fails(self) -> None:
        """A subscription that cannot be stored is refused."""
        self.house.store.is_failing = True
        link = self.durable()
        self.assertDetached(self.client, link, conditions.INTERNAL_ERROR)
        self.assertEqual(len(self.flushLoggedErrors()), 1)

    def test_dates(self) -> None:
        """first-message-date is lowered to now and echoed; kept messages go by it (L-15)."""
        self.build(last_value=10)
        self.publish(message(b"old"))
        self.clock.advance(5)
        future = {Symbol("first-message-date"): Timestamp((1 << 63) - 1)}
        link = self.subscribe(properties=future)
        now = EPOCH_MS + round(self.clock.seconds() * 1000)
        self.assertEqual(link.remote_attach.properties["first-message-date"], now)
        past = {Symbol("first-message-date"): Timestamp(0)}
        self.subscribe(name="all", properties=past)
        self.assertEqual(self.client.bodies(), [b"old"])

    def test_rights(self) -> None:
        """A subscriber needs the right to consume; to browse is not enough."""
        rules = [Rule.of(who="*", node="t", allow=["browse"])]
        self.build(house={"rules": rules})
        link = self.subscribe(distribution_mode=Symbol("copy"))
        self.assertDetached(self.client, link, conditions.UNAUTHORIZED_ACCESS)

    def test_queue_bound(self) -> None:
        """A full durable subscription takes the publishers' credit, and gives it back."""
        self.build(queue=QueueLimits(capacity=3), house={"limits": FrontendLimits(link_credit=10)})
        held = self.durable()
        held.flow(0)
        self.client.flush()
        self.run_now()
        publisher = self.client.sender("t")
        self.run_now()
        self.assertEqual(publisher.credit, 3)
        self.client.send(publisher, message(b"1"), message(b"2"), message(b"3"))
        self.run_now()
        self.assertEqual(publisher.credit, 0)
        held.flow(10)
        self.client.flush()
        self.run_now()
        self.client.settle(self.client.deliveries, spec.Accepted())
        self.run_now()
        self.assertEqual(publisher.credit, 3)

    def test_shared_space(self) -> None:
        """Publishers share what a full subscription has room for (F-03)."""
        self.build(queue=QueueLimits(capacity=4))
        self.leave(self.durable(), closed=False)
        first, second = self.client.sender("t", "first"), self.client.sender("t", "second")
        self.run_now()
        self.assertEqual((first.credit, second.credit), (2, 2))


class DeliveryTests(TopicCase):
    """Deliveries and acknowledgements (S-04 to S-10)."""

    def test_presumed(self) -> None:
        """With one outcome only it goes with the transfer (S-06)."""
        self.subscribe(outcomes=(Symbol("amqp:accepted:list"),))
        self.publish(message())
        (delivery,) = self.client.deliveries
        self.assertIsInstance(delivery.state, spec.Accepted)
        self.assertFalse(delivery.settled)

    def test_at_most_once(self) -> None:
        """Settled deliveries, if the client asks for them (S-09)."""
        self.subscribe(snd_settle_mode=spec.SENDER_SETTLED)
        self.publish(message(b"1"), message(b"2"))
        self.assertTrue(all(each.settled for each in self.client.deliveries))
        self.assertEqual(self.client.bodies(), [b"1", b"2"])

    def test_acknowledged(self) -> None:
        """Each by itself or many at once, settled by either side (S-05, S-11)."""
        link = self.subscribe()
        self.publish(*(message(b"%d" % number) for number in range(4)))
        first, *rest = self.client.deliveries
        self.client.settle([first], spec.Rejected(), settled=False)
        self.client.settle(rest, spec.Accepted())
        self.run_now()
        self.assertEqual((link.unsettled, link.is_active), ({}, True))

    def test_released(self) -> None:
        """Released: again, on this link only (S-04)."""
        self.subscribe()
        other = self.house.client(container_id="other")
        self.run_now()
        self.subscribe(other)
        self.publish(message(b"x"))
        self.client.settle(self.client.deliveries, spec.Released())
        self.run_now()
        self.assertEqual((self.client.bodies(), other.bodies()), ([b"x", b"x"], [b"x"]))

    def test_too_large(self) -> None:
        """A message beyond a subscriber's maximum size does not stop it."""
        self.subscribe(max_message_size=100)
        self.publish(message(b"x" * 1000), message(b"y"))
        self.assertEqual(self.client.bodies(), [b"y"])

    def test_own_filter(self) -> None:
        """No-local goes by the container of the publisher's connection."""
        value = {Symbol("n"): Described(Symbol("apache.org:no-local-filter:list"), [])}
        self.subscribe(filter=value)
        own = self.client.sender("t")
        self.run_now()
        self.client.send(own, message(b"own"))
        other = self.house.client(container_id="other")
        self.run_now()
        out = other.sender("t")
        self.run_now()
        other.send(out, message(b"other"))
        self.run_now()
        self.assertEqual(self.client.bodies(), [b"other"])


class DurableTests(TopicCase):
    """Subscriptions that last (S-20)."""

    def test_detached_and_back(self) -> None:
        """New and unacknowledged messages come after the re-attach."""
        link = self.durable(default_outcome=spec.Accepted())
        self.publish(message(b"1"))
        self.leave(link, closed=False)
        self.publish(message(b"2"))
        self.client.deliveries.clear()
        self.durable()
        self.assertEqual(self.client.bodies(), [b"1", b"2"])

    def test_a_queue_for_each(self) -> None:
        """S-19: the topic routes into a queue for each subscription; the outcomes are its own."""
        one = self.durable(name="one")
        red_only = self.durable(name="two", filter=red())
        self.leave(one, closed=False)
        self.leave(red_only, closed=False)
        self.publish(colored("red"), colored("blue"))
        queues = {each.name: each.queue for each in self.subscriptions()}
        self.assertEqual(
            {name.rpartition("/")[2]: queue.depth for name, queue in queues.items()},
            {"one": 2, "two": 1},
        )
        self.assertTrue(all(name.startswith("amqp$sub/t/") for name in queues))
        for name in queues:  # nobody gets at them but by the subscription
            refused = self.client.receiver(name, 10, f"spy on {name}")
            self.run_now()
            self.assertDetached(self.client, refused, conditions.NOT_ALLOWED)
        self.durable(name="one")
        self.assertEqual(self.client.bodies(), [b"red", b"blue"])
        self.client.settle(self.client.deliveries, spec.Accepted())
        self.run_now()
        self.assertEqual(sorted(queue.depth for queue in queues.values()), [0, 1])
        self.client.deliveries.clear()
        self.durable(name="two", filter=red())
        self.assertEqual(self.client.bodies(), [b"red"])

    def test_only_new_again(self) -> None:
        """L-15, L-16: who asks for new messages only says the same each time it comes back."""
        key = Symbol("first-message-date")
        future = {key: Timestamp((1 << 63) - 1)}
        link = self.durable(properties=future)
        since = link.remote_attach.properties[key]
        self.leave(link, closed=False)
        self.publish(message(b"meanwhile"))
        self.clock.advance(5)
        again = self.durable(properties=future)
        self.assertEqual(again.remote_attach.properties[key], since)
        self.assertEqual(self.client.bodies(), [b"meanwhile"])
        self.leave(again, closed=False)
        other = self.durable(properties={key: Timestamp(since - 1)})
        self.assertDetached(self.client, other, conditions.PRECONDITION_FAILED)

    def test_resumed(self) -> None:
        """A client resumes the unacknowledged deliveries that it still knows (§2.6.13)."""
        self.durable()
        self.publish(message(b"1"), message(b"2"), message(b"3"))
        first, second, third = (each.tag for each in self.client.deliveries)
        self.client.wire.cut()  # type: ignore[attr-defined]
        self.run_now()
        client = self.house.client()
        self.run_now()
        link = self.durable(client, unsettled={first: spec.Accepted(), third: None})
        self.assertEqual(set(link.remote_attach.unsettled), {first, second, third})
        told, again, resumed = client.deliveries
        self.assertEqual((told.tag, told.resumed, told.payload), (first, True, b""))
        self.assertEqual((again.tag, again.resumed), (second, False))
        self.assertEqual((resumed.tag, resumed.resumed), (third, True))
        (subscription,) = self.subscriptions()
        self.assertEqual(subscription.queue.depth, 2)

    def test_parked_for_a_while(self) -> None:
        """The subscription lasts; what it had handed out is looked at anew after some time."""
        self.durable()
        self.publish(message(b"1"))
        self.client.wire.cut()  # type: ignore[attr-defined]
        self.run_now()
        (subscription,) = self.subscriptions()
        self.assertEqual((subscription.queue.available, subscription.queue.acquired), (0, 1))
        self.clock.advance(3602)
        self.assertEqual((subscription.queue.available, subscription.queue.acquired), (1, 0))

    def test_resumed_with_another_filter(self) -> None:
        """L-48: the new filter holds for what had been handed out as well."""
        self.durable()
        self.publish(colored("red", b"1"), colored("blue", b"2"))
        self.client.wire.cut()  # type: ignore[attr-defined]
        self.run_now()
        client = self.house.client()
        self.run_now()
        self.durable(client, filter=red())
        self.assertEqual(client.bodies(), [b"1"])

    def test_lost_connection(self) -> None:
        """A connection that breaks ends nothing."""
        self.durable()
        self.client.wire.cut()  # type: ignore[attr-defined]
        self.run_now()
        self.publish(message(b"x"))
        client = self.house.client()
        self.run_now()
        self.durable(client)
        self.assertEqual(client.bodies(), [b"x"])

    def test_ended_session(self) -> None:
        """Neither does the end of a session or of the connection."""
        link = self.durable()
        link.session.end()
        self.client.flush()
        self.run_now()
        self.assertEqual(len(self.subscriptions()), 1)
        client = self.house.client()
        self.run_now()
        self.durable(client)
        client.connection.close()
        client.flush()
        self.run_now()
        self.assertEqual(len(self.subscriptions()), 1)

    def test_closed(self) -> None:
        """Closing the link ends it."""
        link = self.durable()
        self.publish(message(b"x"))
        self.leave(link, closed=True)
        self.assertEqual((self.subscriptions(), len(self.house.store._where)), ([], 0))

    def test_null_source(self) -> None:
        """A null source finds it by the link's name, and closing that ends it."""
        self.leave(self.durable(filter=red()), closed=False)
        link = self.client.receiver(None, 0, "in", source=None)
        self.run_now()
        self.assertEqual((link.source.address, link.source.durable), ("t", 2))
        self.assertEqual(link.source.filter, red())
        self.leave(link, closed=True)
        self.assertEqual(self.subscriptions(), [])
        again = self.client.receiver(None, 0, "in", source=None)
        self.run_now()
        self.assertDetached(self.client, again, conditions.NOT_FOUND)

    def test_restart(self) -> None:
        """It is there after a restart, with what came before."""
        self.durable(filter=red())
        self.client.wire.cut()  # type: ignore[attr-defined]
        self.run_now()
        self.publish(colored("red", b"1"), colored("blue"))
        self.build(store=self.house.store)
        self.publish(colored("red", b"2"))
        self.durable(filter=red())
        self.assertEqual(self.client.bodies(), [b"1", b"2"])

    def test_record(self) -> None:
        """L-24: what it accepted or rejected stays away over a restart; the rest comes again."""
        self.durable()
        self.publish(*(message(b"%d" % number) for number in range(4)))
        self.assertEqual(self.client.bodies(), [b"0", b"1", b"2", b"3"])
        self.client.settle(self.client.deliveries[:1], spec.Accepted())
        self.client.settle(self.client.deliveries[2:3], spec.Rejected())
        self.run_now()
        self.client.wire.cut()  # type: ignore[attr-defined]
        self.run_now()
        self.build(store=self.house.store)
        self.durable()
        self.assertEqual(self.client.bodies(), [b"1", b"3"])

    def test_of_a_container(self) -> None:
        """L-52, S-20: a link of the same name from another container is another subscription."""
        self.leave(self.durable(), closed=False)
        self.publish(message(b"1"))
        other = self.house.client(container_id="another")
        self.run_now()
        self.durable(other)
        self.publish(message(b"2"))
        self.assertEqual(other.bodies(), [b"2"])
        self.durable()
        self.assertEqual(self.client.bodies(), [b"1", b"2"])

    def test_other_filter(self) -> None:
        """A re-attach may change the filter, and the answer shows it (L-48)."""
        self.leave(self.durable(), closed=False)
        link = self.durable(filter=red())
        self.assertEqual(link.source.filter, red())
        self.publish(colored("blue"), colored("red"))
        self.assertEqual(self.client.bodies(), [b"red"])

    def test_not_durable_any_more(self) -> None:
        """L-12: it cannot come back as a link that ends, and be another one unnoticed."""
        self.leave(self.durable(), closed=False)
        for fields in ({}, {"durable": 2}, {"expiry_policy": spec.EXPIRE_NEVER}):
            with self.subTest(fields):
                link = self.subscribe(None, "in", **fields)
                self.assertDetached(self.client, link, conditions.PRECONDITION_FAILED)
        self.publish(message(b"x"))
        self.durable()
        self.assertEqual(self.client.bodies(), [b"x"])
        bob = self.house.client(BOB)  # who has a link of this name, and no subscription
        self.run_now()
        self.assertIsNotNone(self.subscribe(bob, "in").source)

    def test_others(self) -> None:
        """Another user cannot get at it, by any way."""
        self.durable()
        bob = self.house.client(BOB)
        self.run_now()
        link = self.durable(bob)
        self.assertDetached(bob, link, conditions.NOT_ALLOWED)
        link = bob.receiver(None, 0, "in", source=None)
        self.run_now()
        self.assertDetached(bob, link, conditions.NOT_FOUND)

    def stranger(self, host: str) -> Any:
        """Return a client that has not authenticated, from an address."""
        client = self.house.client(ANONYMOUS_PRINCIPAL, host)
        self.run_now()
        return client

    def test_strangers(self) -> None:
        """A subscription of somebody unauthenticated is nobody's at another address."""
        first = self.stranger("192.0.2.1")
        self.durable(first)
        first.wire.cut()
        other = self.stranger("192.0.2.2")
        link = other.receiver(None, 0, "in", source=None)
        self.run_now()
        self.assertDetached(other, link, conditions.NOT_FOUND)
        own = self.durable(other)
        self.assertEqual(len({each.name for each in self.subscriptions()}), 2)
        self.publish(message(b"x"))
        self.assertEqual(other.bodies(), [b"x"])
        own.detach(True)
        other.flush()
        self.run_now()
        self.assertEqual(len(self.subscriptions()), 1)
        self.build(store=self.house.store)
        again = self.stranger("192.0.2.1")
        self.durable(again)
        self.assertEqual(again.bodies(), [b"x"])

    def test_strangers_share_by_address(self) -> None:
        """A shared subscription, of one container or of all, ends at the address."""
        for words in (("shared",), ("shared", "global")):
            with self.subTest(words):
                self.build()
                one, two, three = map(self.stranger, ("192.0.2.1", "192.0.2.1", "192.0.2.2"))
                for number, each in enumerate((one, two, three)):
                    capabilities = tuple(map(Symbol, words))
                    self.subscribe(each, f"in|{number}", capabilities=capabilities)
                self.publish(*(message(b"%d" % number) for number in range(4)))
                self.assertEqual(len(one.bodies() + two.bodies()), 4)
                self.assertEqual(len(three.bodies()), 4)

    def test_strangers_of_before(self) -> None:
        """A subscription from before addresses counted is not lost to who has not authenticated."""
        definition = Definition("t", "client.example", "in", "anonymous", "c")
        self.house.broker.topics["t"].subscribe(definition, NO_FILTERS)
        self.run_now()
        self.publish(message(b"x"))
        stranger = self.stranger("192.0.2.1")
        self.durable(stranger)
        self.assertEqual(stranger.bodies(), [b"x"])
        self.assertEqual(len(self.subscriptions()), 1)

    def test_stolen(self) -> None:
        """The same link from another connection takes it over."""
        first = self.durable()
        other = self.house.client()
        self.run_now()
        self.durable(other)
        self.assertDetached(self.client, first, conditions.LINK_STOLEN)
        self.publish(message(b"x"))
        self.assertEqual((self.client.bodies(), other.bodies()), ([], [b"x"]))

    def test_two_topics(self) -> None:
        """A name is one subscription, whatever the topic."""
        self.build(topic("u"))
        self.leave(self.durable(), closed=False)
        link = self.durable(address="u")
        self.assertDetached(self.client, link, conditions.PRECONDITION_FAILED)

    def test_lock_timeout(self) -> None:
        """O-04: what one link of a shared subscription leaves unsettled goes to the others."""
        self.house.shared.lock_seconds = 8.0
        words = (Symbol("shared"),)
        hanging = self.durable(name="s", capabilities=words)
        volatile = self.subscribe(name="volatile")
        self.publish(message(b"1"))
        other = self.house.client()
        self.run_now()
        self.durable(other, name="s|2", capabilities=words)
        hanging.flow(0)
        self.client.flush()
        self.run_now()
        for _ in range(12):
            self.clock.advance(1)
        self.run_now()
        self.assertEqual(other.bodies(), [b"1"])
        self.assertEqual(Message(other.deliveries[0].payload).header.delivery_count, 1)
        self.assertEqual((len(hanging.unsettled), len(volatile.unsettled)), (0, 1))

    def test_shared(self) -> None:
        """Links of a shared subscription divide the messages; the last one to close ends it."""
        words = (Symbol("shared"), Symbol("global"))
        first = self.durable(name="s|global", capabilities=words)
        self.assertEqual(tuple(first.source.capabilities), ("topic", "shared", "global"))
        other = self.house.client(container_id="other")
        self.run_now()
        self.durable(other, name="s|global2", capabilities=words)
        self.publish(*(message(b"%d" % number) for number in range(10)))
        self.assertEqual((len(self.client.bodies()), len(other.bodies())), (5, 5))
        self.leave(first, closed=True)
        self.assertEqual(len(other.bodies()), 10)
        self.assertEqual([each.name for each in self.subscriptions()], ["amqp$sub/t/@global/s"])

    def test_shared_volatile(self) -> None:
        """A shared subscription that is not durable lives as long as one of its links."""
        words = (Symbol("shared"),)
        links = [
            self.subscribe(name=f"s|volatile{number}", capabilities=words) for number in (1, 2)
        ]
        self.publish(*(message(b"%d" % number) for number in range(10)))
        self.assertEqual(len(self.client.bodies()), 10)
        (shared,) = self.house.broker.topics["t"].subscriptions
        self.assertEqual(shared.consumers, 2)
        for link in links:
            self.leave(link, closed=True)
        self.assertEqual(self.house.broker.topics["t"].subscriptions, ())


class DynamicTests(TopicCase):
    """Topics made for a link (N-19)."""

    def test_source(self) -> None:
        """A dynamic source with the capability; it goes with the link, and others' links too."""
        link = self.subscribe(address=None, dynamic=True, capabilities=(Symbol("topic"),))
        address = link.source.address
        self.assertEqual(tuple(link.source.capabilities), ("topic",))
        out = self.client.sender(address)
        second = self.subscribe(name="second", address=address)
        self.client.send(out, message(b"x"))
        self.run_now()
        self.assertEqual(self.client.bodies(), [b"x", b"x"])
        self.leave(link, closed=True)
        self.assertDetached(self.client, out, conditions.RESOURCE_DELETED)
        self.assertDetached(self.client, second, conditions.RESOURCE_DELETED)
        self.assertNotIn(address, self.house.broker.topics)

    def test_target(self) -> None:
        """A dynamic target with the capability of JMS clients."""
        target = spec.Target(dynamic=True, capabilities=(Symbol("temporary-topic"),))
        link = self.client.sender(None, target=target)
        self.run_now()
        self.assertIn(link.target.address, self.house.broker.topics)
        self.client.wire.cut()  # type: ignore[attr-defined]
        self.run_now()
        self.assertEqual(set(self.house.broker.topics), {"t"})


class RestOfHouseTests(TopicCase):
    """Topics with everything else around them."""

    def test_browsing_a_queue(self) -> None:
        """Outcomes on a browsing link mean what they mean to a subscriber (S-14)."""
        self.build(node("q"))
        put(self.house.broker, self.house.broker.nodes["q"], message(b"x"))
        self.run_now()
        self.subscribe(address="q", distribution_mode=Symbol("copy"))
        self.client.settle(self.client.deliveries, spec.Rejected())
        self.run_now()
        self.assertEqual(self.house.depth("q"), 1)
