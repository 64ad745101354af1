# SPDX-License-Identifier: Apache-2.0
"""Queues as clients see them: filters, browsing, priorities, limits, options, dynamic nodes."""

from __future__ import annotations

from typing import Any

from amqproute import conditions
from amqproute.broker.node_declaration import NodeDeclaration
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.node_options import Durability, Excess, QueueOptions, Visibility
from amqproute.errors import InvalidField, NotImplementedHere
from amqproute.message import Message
from amqproute.values import EXACTLY_ONCE_CAPABILITY
from amqproute.wire.amqp10 import codec, sections, spec
from amqproute.wire.amqp10.types import Array, Described, Symbol, Timestamp, UInt, ULong
from tests.support.asserts import HouseTestCase
from tests.support.fakes import EPOCH_MS, message, put
from tests.support.memory_broker import Client, MemoryBroker, Network

ACCEPTED = spec.Accepted()
RELEASED = spec.Released()
SELECTOR = Symbol("apache.org:selector-filter:string")


def complex_message(complexity: int) -> Message:
    """Return a message with a property to select by."""
    parts = [
        sections.encode_section(spec.SECTION_APPLICATION_PROPERTIES, {"complexity": complexity}),
        sections.encode_section(spec.SECTION_DATA, b"%d" % complexity),
    ]
    return Message(b"".join(parts))


class QueueCase(HouseTestCase):
    """A house with one queue of a kind, and a client."""

    def build(self, limits: QueueLimits | None = None, **options: Any) -> None:
        """Build the house."""
        self.network = Network(self.clock)
        self.house = MemoryBroker(
            self.network,
            "alpha.example",
            NodeDeclaration("q", limits or QueueLimits(), "dead", QueueOptions(**options)),
            NodeDeclaration("dead", QueueLimits()),
        )
        self.queue = self.house.broker.nodes["q"]
        self.clients: list[Client] = []
        self.client = self.connect()

    def connect(self) -> Client:
        """Return another client."""
        client = self.house.client()
        self.clients.append(client)
        self.run_now()
        return client

    def put(self, *messages: Message) -> None:
        """Put messages on ``q``."""
        put(self.house.broker, self.queue, *messages)
        self.run_now()

    def put_bodies(self, *bodies: bytes) -> None:
        """Put messages with these bodies."""
        self.put(*[message(body) for body in bodies])

    def receive(
        self, credit: int = 10, client: Client | None = None, name: str | None = None, **source: Any
    ) -> Any:
        """Attach a receiving link."""
        fields = {"address": "q", **source}
        client = client or self.client
        # One name on two connections would be one link, which moves.
        name = name or f"in{self.clients.index(client)}"
        link = client.receiver(None, credit, name, source=spec.Source(**fields))
        self.run_now()
        return link

    def let_go(self, link: Any, client: Client | None = None) -> None:
        """Close a link."""
        link.detach()
        (client or self.client).flush()
        self.run_now()


class ExampleTests(QueueCase):
    """Worked examples."""

    def test_w06_shared_queue_with_filters(self) -> None:
        """W-06, Q-31, Q-35: the filter's head is ahead of the queue's; the rest is for others."""
        self.build()
        self.put(*map(complex_message, (9, 3, 7, 1)))
        chosen = {Symbol("s"): Described(SELECTOR, "complexity < 5")}
        self.receive(filter=chosen)
        self.assertEqual(self.client.bodies(), [b"3", b"1"])
        other = self.connect()
        self.receive(0, other)
        self.assertEqual(other.bodies(), [])
        self.receive(10, other, "in2")
        self.assertEqual(other.bodies(), [b"9", b"7"])
        for kind, text, expected in (
            (SELECTOR, "complexity <", conditions.INVALID_FIELD),
            (Symbol("a.test:unknown"), "x", conditions.NOT_IMPLEMENTED),
        ):
            bad = self.receive(name=str(kind), filter={Symbol("s"): Described(kind, text)})
            self.assertDetached(self.client, bad, expected)

    def test_w10_shared_work_queue(self) -> None:
        """W-10, Q-29, Q-30, Q-32: an idle consumer holds nothing up; the others share evenly."""
        self.build()
        clients = [self.connect() for _ in range(3)]
        for client, credit in zip(clients, (0, 100, 100), strict=True):
            self.receive(credit, client)
        self.put_bodies(*[b"%d" % number for number in range(90)])
        got = [client.bodies() for client in clients]
        self.assertEqual(len(set(got[1] + got[2])), 90)
        self.assertEqual(got[0], [])
        self.assertTrue(36 <= len(got[1]) <= 54)

    def test_w11_consuming(self) -> None:
        """W-11, S-12, S-23: the outcomes of a consumer are instructions."""
        self.build()
        self.put_bodies(b"1", b"2", b"3")
        link = self.receive(
            distribution_mode=Symbol("move"),
            default_outcome=RELEASED,
            outcomes=(Symbol("amqp:accepted:list"),),
        )
        self.assertEqual(link.source.outcomes, (Symbol("amqp:accepted:list"),))
        (first, *_) = self.client.deliveries
        self.assertIsInstance(first.state, spec.Accepted)
        self.assertFalse(first.settled)
        self.assertEqual((self.queue.acquired, self.queue.tally.dequeued), (3, 0))
        self.client.settle([first], spec.Rejected())
        self.run_now()
        self.assertDetached(self.client, link, conditions.NOT_ALLOWED)
        client = self.connect()
        self.receive(3, client)
        one, two, three = client.deliveries
        client.settle([one], ACCEPTED)
        client.settle([two], spec.Rejected())
        client.settle([three], spec.Modified(delivery_failed=True))
        self.run_now()
        self.assertEqual(self.house.bodies("dead"), [b"2"])
        again = self.connect()
        self.receive(3, again)
        self.assertEqual(Message(again.deliveries[0].payload).header.delivery_count, 1)

    def test_w12_browsing(self) -> None:
        """W-12, L-24 to L-29, S-13, S-14: a browser sees what is there and changes nothing."""
        self.build()
        self.put_bodies(b"1", b"2", b"3")
        self.receive(distribution_mode=Symbol("copy"))
        self.assertEqual(self.client.bodies(), [b"1", b"2", b"3"])
        one, two, three = self.client.deliveries
        self.client.settle([one, three], ACCEPTED)
        self.client.settle([two], RELEASED)
        self.run_now()
        self.assertEqual(self.client.bodies()[3:], [b"2"])
        self.assertEqual(self.queue.depth, 3)
        taker = self.connect()
        self.receive(1, taker)
        self.assertEqual(taker.bodies(), [b"1"])
        late = self.connect()
        self.receive(10, late, distribution_mode=Symbol("copy"))
        self.assertEqual(late.bodies(), [b"2", b"3"])
        # L-28: what a consumer has taken is not shown again before it is back.
        taker.settle(taker.deliveries, RELEASED)
        self.run_now()
        self.assertEqual(late.bodies(), [b"2", b"3", b"1"])
        self.assertEqual(self.client.bodies()[4:], [])

    def test_browser_without_credit(self) -> None:
        """L-25, L-28: what was taken before the browser had credit is shown when it is back."""
        self.build()
        self.put_bodies(b"1", b"2")
        browser = self.receive(0, distribution_mode=Symbol("copy"))
        taker = self.connect()
        self.receive(1, taker)
        self.assertEqual(taker.bodies(), [b"1"])
        browser.flow(10)
        self.client.flush()
        self.run_now()
        self.assertEqual(self.client.bodies(), [b"2"])
        taker.settle(taker.deliveries, RELEASED)
        self.run_now()
        # The taker has no credit left, so it is there to be seen.
        self.assertEqual(self.client.bodies(), [b"2", b"1"])
        self.assertEqual(self.queue.depth, 2)

    def test_w19_priority_and_lifetime(self) -> None:
        """W-19, D-05 to D-11: B, C, A; and nothing after its time."""
        self.build()
        self.put(message(b"A", priority=1))
        self.put(message(b"B", priority=8), message(b"C", priority=8))
        self.receive()
        self.assertEqual(self.client.bodies(), [b"B", b"C", b"A"])
        self.build()
        self.put(message(b"1", ttl=200))
        self.clock.advance(0.3)
        self.run_now()
        self.receive()
        self.assertEqual(self.client.bodies(), [])
        self.receive(10, None, "dead", address="dead")
        (dead,) = self.client.deliveries
        annotations = Message(dead.payload).annotations
        self.assertEqual(annotations["x-opt-dead-letter-reason"], "expired")

    def test_w20_link_limits(self) -> None:
        """W-20, Q-20, Q-21: one consumer, the others refused or waiting; or browsers only."""
        self.build(destructive_links=1)
        self.receive(0)
        other = self.connect()
        second = self.receive(10, other)
        self.assertDetached(other, second, conditions.RESOURCE_LOCKED)
        self.build(destructive_links=2)
        for number in range(3):
            last = self.receive(0, None, f"in{number}")
        self.assertDetached(self.client, last, conditions.RESOURCE_LIMIT_EXCEEDED)
        self.build(destructive_links=1, excess=Excess.WAIT)
        first = self.receive(0)
        other = self.connect()
        waiting = self.receive(10, other)
        self.put_bodies(b"1", b"2")
        self.assertEqual(other.bodies(), [])
        waiting.flow(10, drain=True)
        other.flush()
        self.run_now()
        self.assertEqual((waiting.credit, other.bodies()), (0, []))
        waiting.flow(10)
        other.flush()
        self.let_go(first)
        self.assertEqual(other.bodies(), [b"1", b"2"])
        self.build(destructive_links=0)
        self.put_bodies(b"1")
        refused = self.receive(distribution_mode=Symbol("move"), name="move")
        self.assertDetached(self.client, refused, conditions.NOT_ALLOWED)
        link = self.receive()
        self.assertEqual(link.source.distribution_mode, "copy")
        self.assertEqual((self.client.bodies(), self.queue.depth), ([b"1"], 1))

    def test_stolen_place(self) -> None:
        """Q-21, L-09: a link that moves to another connection takes its own place."""
        self.build(destructive_links=1)
        self.receive(0, name="in")
        again = self.connect()
        self.receive(10, again, "in")
        self.put_bodies(b"1")
        self.assertEqual(again.bodies(), [b"1"])


class OptionTests(QueueCase):
    """Options that concern links."""

    def test_visibility(self) -> None:
        """N-13, N-14: a node can be addressed in the roles that it has."""
        self.build(visibility=Visibility.INBOUND)
        self.assertDetached(self.client, self.receive(), conditions.NOT_ALLOWED)
        sender = self.client.sender("q")
        self.run_now()
        self.assertGreater(sender.credit, 0)
        self.build(visibility=Visibility.OUTBOUND)
        self.put_bodies(b"1")
        self.receive()
        self.assertEqual(self.client.bodies(), [b"1"])
        refused = self.client.sender("q")
        self.run_now()
        self.assertDetached(self.client, refused, conditions.NOT_ALLOWED)
        service = self.client.sender(None, "any")
        self.run_now()
        self.client.send(service, message(to="q"))
        self.run_now()
        self.assertEqual(self.client.outcomes(), ["Rejected"])

    def test_dead_letters_pass(self) -> None:
        """N-13: visibility is for links; dead letters and bindings pass."""
        self.build()
        self.house.broker.nodes["dead"].options = QueueOptions(visibility=Visibility.OUTBOUND)
        self.put_bodies(b"1")
        self.receive()
        self.client.settle(self.client.deliveries, spec.Rejected())
        self.run_now()
        self.assertEqual(self.house.bodies("dead"), [b"1"])

    def test_distribution_mode(self) -> None:
        """S-01, S-02: a mode that there is not is refused; none gets the node's own, in words."""
        self.build()
        source = self.receive().source
        self.assertEqual(source.distribution_mode, "move")
        self.assertEqual(tuple(source.capabilities), ("queue",))
        self.put_bodies(b"1")
        browser = self.connect()
        browsing = self.receive(10, browser, distribution_mode=Symbol("copy"))
        self.assertEqual(browsing.source.distribution_mode, "copy")
        refused = self.receive(name="sideways", distribution_mode=Symbol("sideways"))
        self.assertDetached(self.client, refused, conditions.NOT_IMPLEMENTED)

    def test_default_outcomes(self) -> None:
        """O-17 to O-23: policy admits some; null gets one that is admitted."""
        self.build(default_outcomes=("accepted", "rejected"))
        link = self.receive()
        self.assertIsInstance(link.source.default_outcome, spec.Accepted)
        refused = self.receive(name="released", default_outcome=RELEASED)
        self.assertDetached(self.client, refused, conditions.PRECONDITION_FAILED)

    def test_each_default_outcome(self) -> None:
        """O-18 to O-21, O-26: redeliver, dead-letter and abandon."""
        for outcome, left in (
            (spec.Released(), (1, [])),
            (spec.Rejected(), (0, [b"1"])),
            (spec.Accepted(), (0, [])),
            (spec.Modified(delivery_failed=True), (1, [])),
        ):
            self.build()
            self.put_bodies(b"1")
            link = self.receive(default_outcome=outcome)
            self.assertEqual(self.client.bodies(), [b"1"])
            self.let_go(link)
            self.assertEqual((self.queue.depth, self.house.bodies("dead")), left, outcome)

    def test_unsupported_filter(self) -> None:
        """L-20, K-04: refused, or dropped and not in the answer."""
        asked = {Symbol("f"): Described(Symbol("a.test:unknown"), "x")}
        self.build()
        self.assertDetached(self.client, self.receive(filter=asked), conditions.NOT_IMPLEMENTED)
        self.build()
        self.house.amqp10.termini._drops_filters = lambda: True
        link = self.receive(filter=asked)
        self.assertTrue(link.is_active)
        self.assertFalse(link.source.filter)

    def test_delivery_modes(self) -> None:
        """P-12 to P-17, S-09, S-10, K-23: what is offered is in force, what is not is refused."""
        self.build()
        self.put_bodies(b"1")
        wanted, wished = Symbol("delivery-mode"), Symbol("opt-delivery-mode")
        for role in ("sender", "receiver"):
            publishes = role == "sender"
            for number, (asked, expected) in enumerate(
                (
                    ({wanted: Symbol("at-least-once")}, "at-least-once"),
                    (
                        {wished: Symbol("exactly-once")},
                        "exactly-once" if publishes else "at-least-once",
                    ),
                    ({wanted: Symbol("exactly-once")}, "exactly-once" if publishes else None),
                    ({wanted: Symbol("once")}, None),
                    ({wanted: Symbol("at-most-once")}, "at-most-once"),
                )
            ):
                link = getattr(self.client, role)(
                    "q",
                    name=f"{role}{number}",
                    properties=asked,
                    desired_capabilities=(EXACTLY_ONCE_CAPABILITY,),
                )
                self.run_now()
                if expected is None:
                    self.assertDetached(self.client, link, conditions.NOT_IMPLEMENTED)
                else:
                    self.assertEqual(link.remote_attach.properties[wanted], expected)
        link.flow(1)
        self.client.flush()
        self.run_now()
        self.assertTrue(self.client.deliveries[0].settled)
        self.assertEqual(self.queue.depth, 0)

    def test_first_message_date_at(self) -> None:
        """K-14: what arrived at the very date is sent, what arrived before is not."""
        key = Symbol("first-message-date")
        for later_ms, bodies in ((0, [b"1"]), (1, [])):
            self.build()
            self.put_bodies(b"1")
            arrived_ms = next(iter(self.queue.arrivals_ms()))
            self.clock.advance(10)
            properties = {key: Timestamp(arrived_ms + later_ms)}
            self.client.receiver("q", 10, "in", properties=properties)
            self.run_now()
            self.assertEqual(self.client.bodies(), bodies)

    def test_first_message_date(self) -> None:
        """L-14, L-15, K-14: at or after a date; a date in the future means new ones only."""
        self.build()
        self.put_bodies(b"1")
        self.clock.advance(10)
        key = Symbol("first-message-date")
        now = EPOCH_MS + 10_000
        for number, (asked, answer) in enumerate(((now - 5_000, now - 5_000), (now * 2, now))):
            properties = {key: Timestamp(asked)}
            link = self.client.receiver("q", 10, f"in{number}", properties=properties)
            self.run_now()
            self.assertEqual(link.remote_attach.properties[key], answer)
        self.assertEqual(self.client.bodies(), [])
        self.put_bodies(b"2")
        self.assertEqual(self.client.bodies(), [b"2"])

    def test_filter_changed(self) -> None:
        """L-48: the same link again with another filter."""
        self.build()
        self.put(*map(complex_message, (1, 9)))
        for text, body in (("complexity < 5", b"1"), ("complexity > 5", b"9")):
            link = self.receive(filter={Symbol("s"): Described(SELECTOR, text)})
            self.assertEqual(self.client.bodies()[-1], body)
            self.let_go(link)


class DynamicTests(QueueCase):
    """dynamic-node-properties (Q-10, Q-12, N-16 to N-22, K-21)."""

    def setUp(self) -> None:
        super().setUp()
        self.build()

    def make(
        self, role: str = "receiver", name: str = "made", **properties: Any
    ) -> tuple[Any, str]:
        """Make a dynamic node with a link; return the link and the address."""
        given = {Symbol(key.replace("_", "-")): value for key, value in properties.items()}
        fields: dict[str, Any] = {"dynamic": True, "dynamic_node_properties": given or None}
        if role == "receiver":
            link = self.client.receiver(None, 0, name, source=spec.Source(**fields))
        else:
            link = self.client.sender(None, name, target=spec.Target(**fields))
        self.run_now()
        terminus = link.source if role == "receiver" else link.target
        return link, getattr(terminus, "address", None) or ""

    def send(self, address: str, body: bytes, name: str = "out") -> Any:
        """Send one message."""
        link = self.client.sender(address, name)
        self.run_now()
        self.client.send(link, message(body))
        self.run_now()
        return link

    def drain(self, address: str) -> None:
        """Take everything off a node."""
        link = self.receive(10, name=f"drain {address}", address=address)
        self.client.settle(self.client.deliveries[-1:], ACCEPTED)
        self.run_now()
        self.let_go(link)

    @property
    def names(self) -> set[str]:
        """The dynamic nodes there are."""
        return self.house.broker.dynamic

    def test_close(self) -> None:
        """Q-12, N-21, N-22: delete-on-close is the usual one: it goes with its link."""
        for properties in ({}, {"lifetime_policy": spec.DeleteOnClose()}):
            link, address = self.make(**properties)
            self.assertEqual(self.names, {address})
            self.let_go(link)
            self.assertEqual(self.names, set())

    def test_ends_with_its_session(self) -> None:
        """Q-12: at the latest with the session, or the connection, of the link it was made for."""
        for end in (
            lambda: self.client.session.end(),
            lambda: self.client.wire.cut(),  # type: ignore[attr-defined]
        ):
            self.build()
            _, address = self.make()
            _, other = self.make("sender", "other")
            self.assertEqual(self.names, {address, other})
            end()
            self.client.flush()
            self.run_now()
            self.assertEqual(self.names, set())

    def test_transient_by_default(self) -> None:
        """Q-18: a dynamic queue that says nothing of durability keeps nothing on the disk."""
        for properties in ({}, {"lifetime_policy": spec.DeleteOnClose()}):
            self.build()
            _, address = self.make(**properties)
            sender = self.client.sender(address, "out")
            self.run_now()
            self.client.send(sender, message(b"1", durable=True))
            self.run_now()
            self.assertOutcomes(self.client, "Accepted")
            self.assertEqual(self.house.broker.nodes[address].depth, 1)
            self.assertEqual(self.house.store.rows(address), [])
            self.assertIs(self.house.broker.nodes[address].options.durability, Durability.TRANSIENT)

    def test_another_link_goes(self) -> None:
        """Only the link it was made for takes it along."""
        _, address = self.make("sender")
        self.let_go(self.send(address, b"1"))
        self.assertEqual(self.names, {address})

    def test_no_links(self) -> None:
        """N-16: delete-on-no-links: as long as there is any link, in either direction."""
        link, address = self.make(lifetime_policy=spec.DeleteOnNoLinks())
        other = self.send(address, b"1")
        self.let_go(link)
        self.assertEqual(self.names, {address})
        self.let_go(other)
        self.assertEqual(self.names, set())

    def test_no_messages(self) -> None:
        """N-16: delete-on-no-messages: its link has gone, and it is empty."""
        link, address = self.make(lifetime_policy=spec.DeleteOnNoMessages())
        self.let_go(self.send(address, b"1"))
        self.let_go(link)
        self.assertEqual(self.names, {address})
        self.drain(address)
        self.assertEqual(self.names, set())

    def test_no_links_or_messages(self) -> None:
        """N-16: delete-on-no-links-or-messages: neither is left."""
        link, address = self.make(lifetime_policy=Described(ULong(0x2E), []))
        other = self.send(address, b"1")
        self.let_go(link)
        self.drain(address)
        self.assertEqual(self.names, {address})
        self.let_go(other)
        self.assertEqual(self.names, set())

    def test_after_the_connection(self) -> None:
        """N-16: messages keep such a node when its connection is lost."""
        _, address = self.make(lifetime_policy=spec.DeleteOnNoMessages())
        _, gone = self.make(name="close")
        self.send(address, b"1")
        self.client.pump.wire.cut()
        self.run_now()
        self.assertEqual(self.names, {address})
        self.assertNotIn(gone, self.names)
        self.client = self.connect()
        self.drain(address)
        self.assertEqual(self.names, set())

    def test_exclusive(self) -> None:
        """N-17, K-21: one session only; the node ends with it."""
        link, address = self.make(exclusive=True)
        other = self.connect()
        refused = self.receive(10, other, address=address)
        self.assertDetached(other, refused, conditions.RESOURCE_LOCKED)
        self.let_go(self.receive(10, name="mine", address=address))
        self.let_go(link)
        self.assertEqual(self.names, {address})
        self.client.session.end()
        self.client.flush()
        self.run_now()
        self.assertEqual(self.names, set())

    def test_options(self) -> None:
        """N-18, Q-10: the options have the names of the configuration."""
        link, address = self.make(
            "sender",
            capacity=UInt(2),
            visibility=Symbol("inbound"),
            maximum_destructive_links=1,
            excess_destructive_link_policy="wait",
            dead_letter="dead",
            max_deliveries=3,
            priorities=2,
            serialized=True,
            default_outcomes=[Symbol("accepted")],
            supported_dist_modes=[Symbol("move"), Symbol("copy")],
            node_type="queue",
        )
        self.assertEqual(link.credit, 2)
        queue = self.house.broker.nodes[address]
        self.assertEqual(
            (queue.limits.capacity, queue.limits.max_deliveries, queue.limits.priorities),
            (2, 3, 2),
        )
        self.assertEqual(queue.dead_letter_name, "dead")
        options = queue.options
        self.assertEqual((options.excess, options.destructive_links), (Excess.WAIT, 1))
        self.assertEqual(options.default_outcomes, ("accepted",))
        refused = self.receive(1, address=address)
        self.assertDetached(self.client, refused, conditions.NOT_ALLOWED)  # by its visibility

    def test_memory_only(self) -> None:
        """Q-18, K-15: durable messages are taken and are not stored."""
        _, address = self.make("sender", message_durability_mode="force-transient")
        self.send(address, b"1")
        self.assertEqual(self.house.broker.nodes[address].depth, 1)
        self.assertEqual(self.house.store.rows(address), [])

    def test_refused(self) -> None:
        """Q-10, E-02: what is not known or not possible is refused, and leaves no node behind."""
        for name, value, error in (
            ("colour", "red", NotImplementedHere),
            ("lifetime_policy", Symbol("for-ever"), NotImplementedHere),
            ("message_durability_mode", "force-durable", NotImplementedHere),
            ("capacity", -1, InvalidField),
            ("capacity", True, InvalidField),
            ("visibility", "nobody", InvalidField),
            ("exclusive", "yes", InvalidField),
            ("default_outcomes", ["lost"], InvalidField),
        ):
            link, _ = self.make("sender", f"{name} {value}", **{name: value})
            self.assertDetached(self.client, link, error("").condition)
        refused = self.receive(
            name="both",
            address=None,
            dynamic=True,
            dynamic_node_properties={Symbol("visibility"): "inbound"},
        )
        self.assertDetached(self.client, refused, conditions.NOT_ALLOWED)
        refused = self.receive(
            name="outcome",
            address=None,
            dynamic=True,
            default_outcome=RELEASED,
            dynamic_node_properties={Symbol("default-outcomes"): [Symbol("accepted")]},
        )
        self.assertDetached(self.client, refused, conditions.PRECONDITION_FAILED)
        self.assertEqual(self.names, set())

    def test_several_words(self) -> None:
        """Part 1 §1.4: several symbols are a list or an array; one may stand alone."""
        modes, topic = Symbol("supported-dist-modes"), {Symbol("node-type"): Symbol("topic")}
        copy = Array.of_symbols(["copy"])
        for number, properties in enumerate(
            (
                {modes: copy},
                {modes: [Symbol("move"), Symbol("copy")]},
                {Symbol("default-outcomes"): Array.of_symbols(["accepted", "rejected"])},
                {**topic, modes: copy},
                {**topic, modes: Symbol("copy")},
            )
        ):
            target = spec.Target(dynamic=True, dynamic_node_properties=properties)
            link = self.client.sender(None, f"several {number}", target=target)
            self.run_now()
            self.assertTrue(link.target.address, properties)
        for number, wrong in enumerate(({Symbol("k"): 1}, [[Symbol("move")]], Array(0x40, [None]))):
            target = spec.Target(dynamic=True, dynamic_node_properties={modes: wrong})
            link = self.client.sender(None, f"wrong {number}", target=target)
            self.run_now()
            self.assertDetached(self.client, link, conditions.INVALID_FIELD)

    def test_unchanged(self) -> None:
        """Q-14, E-01: neither a declared node nor a dynamic one becomes something else."""
        policy = Symbol("lifetime-policy")
        link, address = self.make(lifetime_policy=spec.DeleteOnNoLinks())
        for number, (node, properties) in enumerate(
            (
                ("q", {policy: spec.DeleteOnClose()}),
                ("q", {Symbol("capacity"): 5}),
                (address, {policy: spec.DeleteOnClose()}),
                (address, {policy: spec.DeleteOnNoLinks(), Symbol("capacity"): 5}),
            )
        ):
            target = spec.Target(address=node, dynamic_node_properties=properties)
            for refused in (
                self.receive(
                    0, name=f"r{number}", address=node, dynamic_node_properties=properties
                ),
                self.client.sender(None, f"s{number}", target=target),
            ):
                self.run_now()
                self.assertDetached(self.client, refused, conditions.PRECONDITION_FAILED)
        same = self.receive(
            0, name="same", address=address,
            dynamic_node_properties={policy: spec.DeleteOnNoLinks()},
        )  # fmt: skip
        self.assertEqual(same.source.address, address)
        self.let_go(link)
        self.assertEqual(self.names, {address})
        self.let_go(same)
        self.assertEqual(self.names, set())
        self.assertIn("q", self.house.broker.nodes)

    def test_encoded(self) -> None:
        """The policies as they come over the wire."""
        for policy in (
            spec.DeleteOnClose(),
            spec.DeleteOnNoLinks(),
            spec.DeleteOnNoMessages(),
            spec.DeleteOnNoLinksOrMessages(),
        ):
            (value, _) = codec.decode(codec.encode(policy), 0)
            link, address = self.make(lifetime_policy=value)
            self.assertIn(address, self.names)
            self.let_go(link)
            self.assertEqual(self.names, set())
