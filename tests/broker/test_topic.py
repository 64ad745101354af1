# SPDX-License-Identifier: Apache-2.0
"""Topics: distribution, stored copies, slow subscribers, restarts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from twisted.internet.defer import fail
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.last_value import last_key
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.subscription import Definition, DurableSubscription, Subscription
from amqproute.entry import Entry
from amqproute.errors import (
    ConfigError,
    DecodeError,
    NotAllowed,
    PreconditionFailed,
    ResourceDeleted,
    ResourceLimitExceeded,
    StoreError,
)
from amqproute.filters.registry import NO_FILTERS, SELECTOR, FilterSet, read_filters
from amqproute.journal.record import RecordKind
from amqproute.message import Message
from amqproute.outcomes import Acceptance, Modification, Rejection, Release
from amqproute.values import ANONYMOUS_PRINCIPAL, Origin
from amqproute.wire.amqp10 import sections, spec
from amqproute.wire.amqp10.types import Described, Symbol, ULong
from tests.support.fakes import KeptStore, Taker, body_of, make_broker, message, node, put, topic

ACCEPTED = Acceptance()


def selector(text: str) -> dict[Symbol, Any]:
    """Return a filter set with a selector."""
    return {Symbol("s"): Described(Symbol(SELECTOR), text)}


def compiled(filters: Mapping[Any, Any] | None) -> FilterSet:
    """Compile a filter set."""
    return read_filters(filters, own_container="me")


def colored(color: Any, body: bytes = b"") -> Message:
    """Return a durable message with an application property."""
    return Message(
        b"".join(
            (
                sections.encode_header(spec.Header(durable=True)),
                sections.encode_section(spec.SECTION_APPLICATION_PROPERTIES, {"color": color}),
                sections.encode_section(spec.SECTION_DATA, body or color.encode()),
            )
        )
    )


class TopicCase(SynchronousTestCase):
    """A broker with a topic ``t``."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.store = KeptStore(self.clock)
        self.build()

    def build(self, *others: Any, **limits: Any) -> None:
        """Build the broker over what the store holds."""
        self.broker = make_broker(self.clock, self.store, topic("t", **limits), *others)
        self.topic = self.broker.topics["t"]
        self.run_now()

    def run_now(self) -> None:
        """Let everything happen that is due."""
        for _ in range(20):
            self.clock.advance(0)

    def subscriber(self, room: int = 100, filters: Any = None, **terms: Any) -> Taker:
        """Attach a subscriber in memory."""
        source = Subscription(self.topic, compiled(filters), **terms)
        taker = Taker(source, 0)  # type: ignore[arg-type]
        taker.take(room)
        return taker

    def durable(self, name: str = "d", filters: Any = None, **terms: Any) -> DurableSubscription:
        """Find or begin a durable subscription."""
        given = {"container": "c", "owner": "user:ann", "creator": "c", **terms}
        definition = Definition("t", name=name, filter=filters, **given)
        found: list[DurableSubscription] = []
        self.topic.subscribe(definition, compiled(filters)).addCallback(found.append)
        self.run_now()
        return found[0]

    def publish(self, *messages: Message, container: str = "") -> Any:
        """Put messages on the topic in one batch."""
        origin = Origin(ANONYMOUS_PRINCIPAL, container_id=container)
        done = put(self.broker, self.topic, *messages, origin=origin)
        self.run_now()
        return done

    def acknowledge(self, taker: Taker, outcome: Any = ACCEPTED) -> None:
        """Give everything back."""
        taker.settle(self.broker, list(taker.held), outcome)
        self.run_now()


class SubscriberTests(TopicCase):
    """Subscriptions that live as long as their link (N-01, S-15, S-21)."""

    def test_everybody_gets_everything(self) -> None:
        """Each message goes to each subscriber; nothing is written."""
        first, second = self.subscriber(), self.subscriber()
        self.publish(message(b"1"), message(b"2"))
        self.assertEqual((first.seen, second.seen), ([b"1", b"2"], [b"1", b"2"]))
        self.assertEqual(self.topic.tally.delivered, 4)
        for taker in (first, second):
            assert isinstance(taker.queue, Subscription)
            self.assertEqual(taker.queue.delivered, 2)
        self.assertEqual(len(self.store._where), 0)

    def test_nobody(self) -> None:
        """Without a subscriber a message is accepted and gone (S-15, N-08)."""
        self.successResultOf(self.publish(message()))
        self.assertEqual(self.topic.tally.unroutable, 1)
        self.assertEqual(self.subscriber().seen, [])

    def test_unroutable_reject(self) -> None:
        """Or refused, if the topic is so; what somebody wants is taken (N-08)."""
        self.build(rejects_unroutable=True)
        self.assertRaises(PreconditionFailed, self.publish, colored("red"))
        taker = self.subscriber(filters=selector("color = 'red'"))
        self.publish(colored("red"))
        self.assertRaises(PreconditionFailed, self.publish, colored("blue"))
        self.assertEqual(taker.seen, [b"red"])

    def test_filter(self) -> None:
        """A subscriber gets what it selects (S-18)."""
        red, every = self.subscriber(filters=selector("color = 'red'")), self.subscriber()
        self.publish(colored("red"), colored("blue"))
        self.assertEqual((red.seen, every.seen), ([b"red"], [b"red", b"blue"]))

    def test_no_local(self) -> None:
        """A no-local filter looks at the container a message came from."""
        value = Described(Symbol("apache.org:no-local-filter:list"), [])
        taker = self.subscriber(filters={Symbol("n"): value})
        self.publish(message(b"own"), container="me")
        self.publish(message(b"other"), container="you")
        self.assertEqual(taker.seen, [b"other"])

    def test_late(self) -> None:
        """A new subscriber gets new messages only."""
        self.subscriber()
        self.publish(message(b"1"))
        late = self.subscriber()
        self.publish(message(b"2"))
        self.assertEqual(late.seen, [b"2"])

    def test_buffer(self) -> None:
        """Without credit the newest wait, up to the bound; the oldest are dropped, counted."""
        self.build(buffer_messages=3)
        slow, quick = self.subscriber(0), self.subscriber()
        self.publish(*(message(b"%d" % number) for number in range(5)))
        slow.take(10)
        self.assertEqual(slow.seen, [b"2", b"3", b"4"])
        self.assertEqual(len(quick.seen), 5)
        self.assertEqual(self.topic.tally.dropped, 2)

    def test_buffer_bytes(self) -> None:
        """The bound counts octets, too."""
        self.build(buffer_bytes=2500)
        slow = self.subscriber(0)
        self.publish(*(message(b"%d" % number * 1000) for number in range(4)))
        slow.take(10)
        self.assertEqual([each[:1] for each in slow.seen], [b"2", b"3"])

    def test_holds_publishers(self) -> None:
        """Or a full buffer takes credit from publishers, and loses nothing."""
        self.build(buffer_messages=2, holds_publishers=True)
        slow = self.subscriber(0)
        self.publish(message(b"1"), message(b"2"))
        self.assertEqual(self.topic.space(), 0)
        self.topic.when_space(self.told)
        self.assertRaises(ResourceLimitExceeded, self.publish, message(b"3"))
        slow.take(1)
        self.run_now()
        self.assertEqual((self.topic.space(), self.times), (1, 1))

    times = 0

    def told(self) -> None:
        """Count."""
        self.times += 1

    def test_expired(self) -> None:
        """Messages that expire in a buffer are not delivered."""
        slow = self.subscriber(0)
        self.publish(message(b"short", ttl=100), message(b"long"))
        self.clock.advance(1)
        slow.take(10)
        self.assertEqual((slow.seen, self.topic.tally.expired), ([b"long"], 1))

    def test_topic_ttl(self) -> None:
        """A topic may shorten lives."""
        self.build(ttl_ms=100)
        slow = self.subscriber(0)
        self.publish(message(b"x"), message(b"y", ttl=50_000))
        self.clock.advance(1)
        slow.take(10)
        self.assertEqual(slow.seen, [])

    def test_outcomes(self) -> None:
        """Outcomes acknowledge; released and modified have it offered again here (S-04)."""
        cases = (
            (Acceptance(), []),
            (Rejection(), []),
            (Release(), [0]),
            (Modification(delivery_failed=True), [1]),
            (Modification(undeliverable_here=True), []),
        )
        for outcome, counts in cases:
            taker, other = self.subscriber(1), self.subscriber()
            self.publish(message(b"x"))
            self.acknowledge(taker, outcome)
            taker.take(5)
            self.assertEqual([each.delivery_count for each in taker.held], counts, outcome)
            self.assertTrue(all(each.attempted for each in taker.held))
            self.assertEqual(other.seen, [b"x"])
            for each in (taker, other):
                each.queue.detach(each)

    def test_released_in_order(self) -> None:
        """Released messages go back to their old places."""
        taker = self.subscriber(2)
        self.publish(*(message(b"%d" % number) for number in range(4)))
        self.acknowledge(taker, Release())
        taker.take(10)
        self.assertEqual(taker.seen, [b"0", b"1", b"0", b"1", b"2", b"3"])

    def test_annotated(self) -> None:
        """Annotations of a modified outcome stay with this subscriber."""
        taker, other = self.subscriber(1), self.subscriber(0)
        self.publish(message(b"x"))
        note = {Symbol("x-opt-a"): 1}
        self.acknowledge(taker, Modification(annotations=note))
        taker.take(1)
        other.take(1)
        self.assertEqual(taker.held[0].message.annotations, note)
        self.assertEqual(other.held[0].message.annotations, {})

    def test_gone(self) -> None:
        """The subscription ends with its link, whatever it held."""
        taker = self.subscriber(1)
        self.publish(message(b"1"), message(b"2"))
        taker.queue.detach(taker)
        self.acknowledge(taker, Release())
        self.assertEqual(self.topic.subscriptions, ())
        self.assertEqual(taker.queue.waiting, 0)  # type: ignore[attr-defined]

    def test_shared(self) -> None:
        """Links of one shared subscription divide the messages among them."""
        shared = Subscription(self.topic, NO_FILTERS, key=("@global", "s"))
        first, second = Taker(shared, 100), Taker(shared, 100)  # type: ignore[arg-type]
        self.assertIs(self.topic.shared["@global", "s"], shared)
        self.publish(*(message(b"%d" % number) for number in range(10)))
        self.assertEqual(len(set(first.seen + second.seen)), 10)
        self.assertTrue(3 <= len(first.seen) <= 7, first.seen)
        shared.detach(first)
        shared.settle(first.held, Release(), None, first)
        self.assertEqual(len(set(second.seen)), 10)
        shared.detach(second)
        self.assertEqual(self.topic.shared, {})

    def test_drain(self) -> None:
        """A subscriber is told when there is nothing for it."""
        self.assertEqual(self.subscriber().exhaustions, 1)

    def test_failed_commit(self) -> None:
        """A message that was not stored reaches no subscriber."""
        taker = self.subscriber()
        durable = self.durable()
        self.store.is_failing = True
        self.failureResultOf(self.publish(message(b"x")), StoreError)
        self.assertEqual((taker.seen, durable.queue.depth), ([], 0))
        self.store.is_failing = False
        self.publish(message(b"y"))
        self.assertEqual((taker.seen, durable.queue.depth), ([b"y"], 1))


class DurableTests(TopicCase):
    """Subscriptions that outlive links and restarts (S-20, Q-36)."""

    def take(self, subscription: DurableSubscription, room: int = 100) -> Taker:
        """Attach a consumer to a subscription."""
        taker = Taker(subscription, 0)  # type: ignore[arg-type]
        taker.take(room)
        self.run_now()
        return taker

    def test_one_body(self) -> None:
        """However many durable subscriptions there are, a body is stored once."""
        subscriptions = [self.durable(f"d{number}") for number in range(10)]
        self.publish(message(b"x" * 100))
        rows = [self.store.rows(each.name)[0] for each in subscriptions]
        self.assertEqual(len({row.payload_id for row in rows}), 1)
        self.assertEqual(len(self.store._payloads), 1)
        for each in subscriptions:
            self.acknowledge(self.take(each))
        self.assertEqual((len(self.store._payloads), len(self.store._where)), (0, 0))

    def test_own_header(self) -> None:
        """M-29: of one body each has a header of its own: what fails for one has failed there."""
        one, other = self.durable("1"), self.durable("2")
        self.publish(message(b"x" * 100))
        failing = self.take(one, 1)
        self.acknowledge(failing, Modification(delivery_failed=True))
        failing.take(1)
        elsewhere = self.take(other, 1)
        (again,), (first,) = failing.held, elsewhere.held
        self.assertEqual((again.delivery_count, first.delivery_count), (1, 0))
        self.assertEqual((again.attempted, first.attempted), (True, False))
        self.assertEqual(again.message.encoded, first.message.encoded)
        self.assertEqual(len(self.store._payloads), 1)

    def test_alone(self) -> None:
        """A single one has the body in its own row."""
        subscription = self.durable()
        self.publish(message(b"x"))
        self.assertEqual(self.store.rows(subscription.name)[0].payload_id, 0)

    def test_non_durable_message(self) -> None:
        """A message that is not durable waits in memory only."""
        first, second = self.durable("1"), self.durable("2")
        self.publish(message(b"x", durable=False))
        self.assertEqual((first.queue.depth, second.queue.depth), (1, 1))
        self.assertEqual(len(self.store._where), 0)

    def test_name(self) -> None:
        """Its queue is named after topic, container and link, each quoted."""
        name = self.durable("a/b", container="c d").name
        self.assertEqual(name, "amqp$sub/t/c%20d/a%2Fb")

    def test_restart(self) -> None:
        """Definition, filter and messages are there after a restart (W-17)."""
        subscription = self.durable(filters=selector("color = 'red'"))
        self.publish(colored("red"), colored("blue"))
        self.build()
        again = self.topic.durable["c", "d"]
        self.assertEqual(again.definition, subscription.definition)
        self.publish(colored("red", b"late"), colored("blue"))
        self.assertEqual(self.take(again).seen, [b"red", b"late"])

    def test_detached(self) -> None:
        """While nobody is attached it goes on collecting."""
        subscription = self.durable()
        taker = self.take(subscription)
        self.publish(message(b"1"))
        subscription.detach(taker)
        subscription.queue.release(taker.held)
        self.publish(message(b"2"))
        self.assertEqual(self.take(self.durable()).seen, [b"1", b"2"])

    def test_unsubscribe(self) -> None:
        """Closing it removes definition and messages, also those on the disk only."""
        self.build(queue=QueueLimits(resident_messages=2))
        subscription = self.durable()
        self.publish(*(message(b"%d" % number) for number in range(10)))
        self.topic.unsubscribe(subscription)
        self.run_now()
        self.assertEqual(len(self.store._where), 0)
        self.assertEqual(self.store.notes.get("subscription"), {})
        self.publish(message(b"late"))
        self.assertEqual(len(self.store._where), 0)

    def test_begin_again(self) -> None:
        """A subscription that begins while its predecessor is being emptied keeps its own."""
        self.build(queue=QueueLimits(resident_messages=2))
        old = self.durable()
        self.publish(*(message(b"%d" % number) for number in range(10)))
        self.topic.unsubscribe(old)
        new = self.durable()
        self.assertIsNot(new, old)
        self.publish(message(b"new"))
        self.assertEqual(self.take(new).seen, [b"new"])

    def test_crash_while_emptying(self) -> None:
        """The remains of an ended subscription in the store go at the next start."""
        self.durable()
        self.publish(message(b"x"))
        self.store.notes["subscription"].clear()
        self.build()
        self.assertEqual(len(self.store._where), 0)
        self.assertEqual(self.broker.recovered_nodes.messages, {})

    def test_capacity(self) -> None:
        """A full one takes credit from publishers and loses nothing."""
        self.build(queue=QueueLimits(capacity=2))
        subscription, quick = self.durable(), self.subscriber()
        self.publish(message(b"1"), message(b"2"))
        self.assertEqual(self.topic.space(), 0)
        self.topic.when_space(self.told)
        self.assertRaises(ResourceLimitExceeded, self.publish, message(b"3"))
        self.assertEqual(quick.seen, [b"1", b"2"])
        taker = self.take(subscription, 1)
        self.acknowledge(taker)
        self.assertEqual((self.topic.space(), self.times), (1, 1))

    times = 0

    def told(self) -> None:
        """Count."""
        self.times += 1

    def test_outcomes(self) -> None:
        """Rejected and undeliverable-here are acknowledgements (S-04): no dead letters."""
        self.build(node("dead"))
        for outcome, depth in (
            (Acceptance(), 0),
            (Rejection(), 0),
            (Modification(undeliverable_here=True), 0),
            (Release(), 1),
            (Modification(delivery_failed=True), 1),
        ):
            subscription = self.durable(type(outcome).__name__)
            taker = self.take(subscription, 1)
            self.publish(message(b"x"))
            self.acknowledge(taker, outcome)
            self.assertEqual(subscription.queue.depth, depth, outcome)
            self.topic.unsubscribe(subscription)
            self.run_now()

    def test_other_filter(self) -> None:
        """A changed filter holds for what waits, too, and is kept (L-48)."""
        subscription = self.durable(filters=selector("color = 'red'"))
        self.publish(colored("red"))
        changed = self.durable(filters=selector("color = 'blue'"))
        self.assertIs(changed, subscription)
        self.publish(colored("red"), colored("blue"))
        taker = self.take(changed)
        self.assertEqual(taker.seen, [b"blue"])
        changed.detach(taker)
        self.assertEqual(changed.queue.available, 0)
        self.build()
        self.assertEqual(self.topic.durable["c", "d"].definition.filter, selector("color = 'blue'"))

    def test_other_owner(self) -> None:
        """It belongs to who began it."""
        self.durable()
        definition = Definition("t", "c", "d", "user:bob", "c")
        self.assertRaises(NotAllowed, self.topic.subscribe, definition, NO_FILTERS)

    def test_other_date(self) -> None:
        """first-message-date cannot be altered (L-16)."""
        self.durable(since_ms=1)
        definition = Definition("t", "c", "d", "user:ann", "c", since_ms=2)
        self.assertRaises(PreconditionFailed, self.topic.subscribe, definition, NO_FILTERS)

    def test_not_stored(self) -> None:
        """A subscription whose definition cannot be stored does not begin."""
        self.store.is_failing = True
        definition = Definition("t", "c", "d", "user:ann", "c")
        done = self.topic.subscribe(definition, NO_FILTERS)
        self.run_now()
        self.failureResultOf(done, StoreError)
        self.assertEqual(self.topic.durable, {})

    def test_shared(self) -> None:
        """Consumers of a shared one divide the messages; it counts attempts."""
        subscription = self.durable(is_shared=True)
        first, second = self.take(subscription), self.take(self.durable(is_shared=True))
        self.publish(*(message(b"%d" % number) for number in range(10)))
        self.assertEqual((len(first.seen), len(second.seen)), (5, 5))
        other = Definition("t", "c", "d", "user:ann", "c", False)
        self.assertRaises(PreconditionFailed, self.topic.subscribe, other, NO_FILTERS)

    def test_expired(self) -> None:
        """A message that expires in a subscription is nobody's dead letter."""
        subscription = self.durable()
        self.publish(message(b"x", ttl=100))
        self.clock.advance(1)
        self.run_now()
        self.assertEqual((subscription.queue.depth, len(self.store._where)), (0, 0))
        kinds = [run.kind for run in self.broker.journal.runs]
        self.assertEqual(kinds.count(RecordKind.EXPIRED), 1)
        self.assertNotIn(RecordKind.REJECTED, kinds)

    def test_damaged_definition(self) -> None:
        """A definition that cannot be read is told, and what it had is kept."""
        self.assertRaises(DecodeError, Definition.decode, b"\x40")
        self.assertRaises(DecodeError, Definition.decode, b"\xc1\x01\x00")


class NewcomerTests(TopicCase):
    """Retained messages for new subscribers (N-25, L-14, L-15)."""

    def test_last_value(self) -> None:
        """The newest first, then what comes (W-18)."""
        self.build(last_value=1)
        self.publish(message(b"v1"), message(b"v2"))
        taker = self.subscriber()
        self.publish(message(b"v3"))
        self.assertEqual(taker.seen, [b"v2", b"v3"])

    def test_for_each_key(self) -> None:
        """One for each value of a property."""
        self.build(last_value=1, last_value_key="color")
        self.publish(colored("red", b"r1"), colored("blue", b"b1"), colored("red", b"r2"))
        self.publish(message(b"none"))
        self.assertEqual(self.subscriber().seen, [b"b1", b"r2", b"none"])
        red = self.subscriber(filters=selector("color = 'red'"))
        self.assertEqual(red.seen, [b"r2"])

    def test_numeric_keys(self) -> None:
        """No value whose hash a publisher can choose is a key by itself."""
        self.build(last_value=1, last_value_key="color")
        colors: list[Any] = [ULong(7), ULong((1 << 61) - 1), 1.5, True, UUID(int=(1 << 61) - 1)]
        self.publish(*(colored(each, b"old") for each in colors))
        self.publish(*(colored(each, b"%d" % n) for n, each in enumerate(colors)))
        self.publish(colored("7", b"text"))
        self.assertEqual(self.subscriber().seen, [b"0", b"1", b"2", b"3", b"4", b"text"])
        self.assertTrue(all(type(key) in (str, tuple) for key in self.topic._last._by_key))

    def test_durable(self) -> None:
        """A new durable subscription gets them, too, once."""
        self.build(last_value=2)
        self.publish(message(b"1"), message(b"2"), message(b"3"))
        subscription = self.durable()
        self.assertIs(self.durable(), subscription)
        self.assertEqual(subscription.queue.depth, 2)

    def test_date(self) -> None:
        """Messages from before first-message-date are not delivered."""
        self.build(last_value=10)
        self.publish(message(b"old"))
        self.clock.advance(10)
        now_ms = self.topic.now_ms()
        self.publish(message(b"new"))
        self.assertEqual(self.subscriber(since_ms=now_ms).seen, [b"new"])
        self.assertEqual(self.subscriber(since_ms=0).seen, [b"old", b"new"])
        self.assertEqual(self.subscriber(since_ms=now_ms + 1).seen, [])

    def test_bounds(self) -> None:
        """They have a bound in octets; what has expired is not given."""
        self.build(last_value=10, last_value_bytes=3000)
        self.publish(*(message(b"%d" % number * 1000) for number in range(5)))
        self.assertEqual([each[:1] for each in self.subscriber().seen], [b"3", b"4"])
        self.publish(message(b"short", ttl=1))
        self.clock.advance(1)
        self.assertNotIn(b"short", self.subscriber().seen)


class KeptTests(TopicCase):
    """The newest messages survive a restart if they are durable (N-25)."""

    def kept(self, name: str = "t") -> list[bytes]:
        """Return the bodies that stand in the store for newcomers."""
        return [body_of(Entry(row.id, Message(row.encoded), True, True, 0, 0)) for row in
                self.store.rows(last_key(name))]  # fmt: skip

    def test_restart(self) -> None:
        """Retained messages are there, in order, without those that were replaced."""
        limits = {"last_value": 1, "last_value_key": "color"}
        self.build(**limits)
        self.publish(colored("red", b"r1"), colored("blue", b"b1"), colored("red", b"r2"))
        self.publish(colored("green", b"g1"))
        self.assertEqual(self.kept(), [b"b1", b"r2", b"g1"])
        self.build(**limits)
        self.assertEqual(self.topic.retained, 3)
        self.assertEqual(self.broker.recovered_nodes.messages, {})
        self.assertEqual(self.subscriber().seen, [b"b1", b"r2", b"g1"])
        self.publish(colored("blue", b"b2"))
        self.assertEqual(self.kept(), [b"r2", b"g1", b"b2"])
        self.assertEqual(self.durable().queue.depth, 3)
        self.build(**limits)
        self.assertEqual(self.subscriber().seen, [b"r2", b"g1", b"b2"])

    def test_not_durable(self) -> None:
        """A message that is not durable is gone, and what it has replaced as well."""
        self.build(last_value=1)
        self.publish(message(b"1"))
        self.publish(message(b"2", durable=False))
        self.assertEqual(self.subscriber().seen, [b"2"])
        self.build(last_value=1)
        self.assertEqual(self.subscriber().seen, [])

    def test_one_body(self) -> None:
        """Kept message and subscriptions share one body in the store."""
        self.build(last_value=1)
        subscription = self.durable()
        self.publish(message(b"x" * 100))
        rows = [*self.store.rows(subscription.name), *self.store.rows(last_key("t"))]
        self.assertEqual([row.payload_id for row in rows], [rows[0].payload_id] * 2)
        self.assertNotEqual(rows[0].payload_id, 0)

    def test_crash_between(self) -> None:
        """Replaced, and not deleted yet: the older one goes when they are read back."""
        self.build(last_value=2)
        self.publish(*(message(b"%d" % number) for number in range(4)))
        batch = self.broker.begin()
        batch.transaction.enqueue(last_key("t"), 1, message(b"old").encoded, 0, 0, 0)
        batch.commit()
        self.run_now()
        self.assertEqual(self.kept(), [b"old", b"2", b"3"])
        self.build(last_value=2)
        self.assertEqual(self.subscriber().seen, [b"2", b"3"])
        self.assertEqual(self.kept(), [b"2", b"3"])

    def test_refused_publish(self) -> None:
        """Messages that could not be committed are not retained."""
        self.build(last_value=1)
        self.publish(message(b"1"))
        self.store.is_failing = True
        batch = self.broker.begin()
        self.topic.put(message(b"2"), batch, Origin(ANONYMOUS_PRINCIPAL))
        self.failureResultOf(self.ran(batch.commit()), StoreError)
        self.store.is_failing = False
        self.build(last_value=1)
        self.assertEqual(self.subscriber().seen, [b"1"])

    def ran(self, deferred: Any) -> Any:
        """Let it fire."""
        self.run_now()
        return deferred

    def test_while_reading(self) -> None:
        """Subscribers and publishers from before the end of the reading back miss nothing."""
        self.build(last_value=3)
        self.publish(message(b"1"), message(b"2"))
        self.broker = make_broker(self.clock, self.store, topic("t", last_value=3))
        self.topic = self.broker.topics["t"]
        early = Subscription(self.topic, compiled(None))
        taker = Taker(early, 10)  # type: ignore[arg-type]
        definition = Definition("t", "c", "d", "user:ann", "c")
        begun = self.topic.subscribe(definition, compiled(None))
        put(self.broker, self.topic, message(b"3"))
        self.assertNoResult(begun)
        self.run_now()
        self.assertEqual(sorted(taker.seen), [b"1", b"2", b"3"])
        self.assertEqual(self.successResultOf(begun).queue.depth, 3)
        self.assertEqual(self.subscriber().seen, [b"1", b"2", b"3"])
        self.assertEqual(self.kept(), [b"1", b"2", b"3"])

    def test_cannot_be_read(self) -> None:
        """The store fails: newcomers do without, the topic goes on, the rows stay."""
        self.build(last_value=3)
        self.publish(message(b"1"))
        self.patch(self.store, "load", lambda *_: fail(StoreError("the disk is gone")))
        self.build(last_value=3)
        self.assertEqual(len(self.flushLoggedErrors(StoreError)), 1)
        self.assertEqual(self.subscriber().seen, [])
        self.publish(message(b"2"))
        self.assertEqual(self.subscriber().seen, [b"2"])
        self.assertEqual(self.kept(), [b"1", b"2"])

    def test_end(self) -> None:
        """With the topic, or with last-value, the rows go; with a new name they move."""
        self.build(last_value=3)
        self.publish(message(b"1"), message(b"2"))
        self.broker.rename("t", "u")
        self.run_now()
        self.assertEqual((self.kept(), self.kept("u")), ([], [b"1", b"2"]))
        self.broker = make_broker(self.clock, self.store, topic("u", last_value=3))
        self.run_now()
        self.assertEqual(self.broker.topics["u"].retained, 2)
        self.broker.declare([topic("u")], {})
        self.run_now()
        self.assertEqual(self.kept("u"), [])
        self.build(last_value=3)
        self.publish(message(b"1"))
        self.broker = make_broker(self.clock, self.store, topic("t", last_value=3))
        self.broker.declare([], {})
        self.run_now()
        self.assertEqual(self.kept(), [])


class DirectoryTests(TopicCase):
    """Topics among the nodes of a broker."""

    def test_reload(self) -> None:
        """Limits change; a topic that is not named any more goes unless it has subscriptions."""
        self.broker.declare([topic("t", last_value=5), topic("u")], {"a": "t"})
        self.assertEqual(self.topic.limits.last_value, 5)
        self.assertIs(self.broker.target("a"), self.topic)
        self.durable()
        self.broker.declare([], {})
        self.assertEqual(set(self.broker.topics), {"t"})
        self.topic.unsubscribe(self.topic.durable["c", "d"])
        self.run_now()
        self.broker.declare([], {})
        self.assertEqual(self.broker.topics, {})
        self.assertRaises(ResourceDeleted, self.publish, message())

    def test_changed_type(self) -> None:
        """A node that holds something does not change its type."""
        self.build(node("q"))
        put(self.broker, self.broker.nodes["q"], message())
        self.run_now()
        self.durable()
        both = [topic("q"), node("t")]
        error = self.assertRaises(ConfigError, self.broker.declare, both, {})
        self.assertEqual(len(error.problems), 2)

    def test_became(self) -> None:
        """An empty one does."""
        self.build(node("q"))
        self.broker.declare([topic("q"), node("t")], {})
        self.assertEqual((set(self.broker.topics), set(self.broker.nodes)), ({"q"}, {"t"}))

    def test_dynamic(self) -> None:
        """A dynamic topic lives until it is deleted."""
        made = self.broker.create_dynamic_topic()
        self.assertIs(self.broker.target(made.name), made)
        self.broker.delete(made)
        self.assertNotIn(made.name, self.broker.topics)

    def test_body(self) -> None:
        """Entries of different subscriptions are different entries of one message."""
        first, second = self.subscriber(), self.subscriber()
        self.publish(message(b"x"))
        self.assertIsNot(first.held[0], second.held[0])
        self.assertIs(first.held[0].message, second.held[0].message)
        self.assertEqual(body_of(first.held[0]), b"x")
