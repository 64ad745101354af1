# SPDX-License-Identifier: Apache-2.0
"""Resumption against a model: links cut at any point, and maps of all kinds (§2.6.13)."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.values import EXACTLY_ONCE_CAPABILITY
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.types import Symbol
from tests.conformance.frame_broker import Client, FrameBroker, Network, attach, body_of, message

STATES = st.sampled_from(
    (
        None,
        spec.Received(section_number=0, section_offset=3),
        spec.Accepted(),
        spec.Released(),
        spec.Modified(delivery_failed=True),
        spec.TransactionalState(txn_id=b"nobody's"),
    )
)
TERMS = {"expiry_policy": "connection-close", "timeout": 60}
MESSAGES = 6


class ConsumerModel:
    """A consumer that remembers what it has got, and forgets it or not; and a queue of six."""

    def __init__(self) -> None:
        self.world = Network()
        self.house = self.world.house()
        self.client = self.house.client().ready()
        self.client.fill([b"%d" % number for number in range(MESSAGES)])
        self.accepted: set[bytes] = set()
        self.known: dict[bytes, Any] = {}
        self.bodies: dict[bytes, bytes] = {}
        self.ids: dict[bytes, int] = {}
        self.count = 0
        self.is_attached = False

    def attach(self, unsettled: dict[bytes, Any], incomplete: bool, credit: int) -> None:
        """Come back, with this map."""
        if not self.is_attached:
            self.client.hang_up()
            self.client = self.house.client().ready()
        source = spec.Source(address="q", **TERMS)
        self.client.send(
            attach(
                "receiver",
                "x",
                0,
                None,
                source=source,
                unsettled=unsettled or None,
                incomplete_unsettled=incomplete,
            )
        )
        answer = self.client.one(spec.Attach)
        theirs = answer.unsettled or {}
        for tag in list(self.known):
            if tag not in theirs and not answer.incomplete_unsettled:
                del self.known[tag]  # settled (§2.6.13)
        self.is_attached = True
        self.count = 0
        self.ids.clear()
        for tag, state in unsettled.items():
            if isinstance(state, spec.Accepted) and tag in theirs:
                self.accepted.add(self.bodies[tag])
        self.credit(credit)

    def credit(self, credit: int) -> None:
        """Grant so much more, and take what comes."""
        self.client.credit(credit, delivery_count=self.count)
        for transfer, payload in self.client.payloads(spec.Transfer):
            self.count += 1
            tag = transfer.delivery_tag
            if payload:
                self.bodies[tag] = body_of(payload)
                self.known.setdefault(tag, None)
            self.ids[tag] = transfer.delivery_id
        for disposition in self.client.all(spec.Disposition):
            last = disposition.first if disposition.last is None else disposition.last
            for tag, number in list(self.ids.items()):
                if disposition.first <= number <= last and disposition.settled:
                    self.known.pop(tag, None)
                    self.ids.pop(tag)

    def accept(self, tag: bytes) -> None:
        """Accept one, and settle it."""
        self.client.dispose(self.ids.pop(tag))
        self.known.pop(tag)
        self.accepted.add(self.bodies[tag])

    def everything(self) -> list[bytes]:
        """Let the link's time pass, and take what is on the queue."""
        self.client.hang_up()
        self.world.advance(62)
        last = self.house.client().ready("last")
        last.receiver(credit=100)
        return last.bodies()


class ConsumerTests(SynchronousTestCase):
    """Nothing is lost, and nothing that was accepted comes again."""

    @settings(max_examples=60)
    @given(st.data())
    def test_model(self, data: st.DataObject) -> None:
        """O-33: whatever the maps say, each message is accepted once or still on the queue."""
        model = ConsumerModel()
        model.attach({}, False, data.draw(st.integers(0, MESSAGES)))
        for _ in range(data.draw(st.integers(1, 6))):
            action = data.draw(st.sampled_from(("accept", "credit", "back", "back", "detach")))
            if action == "accept" and model.ids:
                tag = data.draw(st.sampled_from(sorted(model.ids)))
                if tag in model.known and model.known[tag] is None:
                    model.accept(tag)
            elif action == "credit":
                model.credit(data.draw(st.integers(0, 3)))
            elif action == "back":
                model.is_attached = False
                known = sorted(model.known)
                told = data.draw(st.lists(st.sampled_from(known), unique=True) if known
                                 else st.just([]))  # fmt: skip
                unsettled = {tag: data.draw(STATES) for tag in told}
                model.attach(unsettled, data.draw(st.booleans()), data.draw(st.integers(0, 9)))
            elif action == "detach":
                model.client.send(spec.Detach(handle=0))
                model.client.all(spec.Detach)
                model.attach(dict.fromkeys(model.known), False, data.draw(st.integers(0, 9)))
        left = model.everything()
        self.assertEqual(len(left), len(set(left)))
        self.assertEqual(
            sorted({*left, *model.accepted}), [b"%d" % number for number in range(MESSAGES)]
        )
        self.assertEqual(set(left) & model.accepted, set())

    @given(
        st.dictionaries(st.binary(min_size=1, max_size=32), STATES, max_size=20),
        st.booleans(),
        st.booleans(),
    )
    def test_strange_maps(
        self, theirs: dict[bytes, Any], incomplete: bool, is_sender: bool
    ) -> None:
        """E-02: a map of tags that nobody knows is answered, and harms nothing."""
        client = Network().house().client().ready()
        client.send(
            attach(
                "sender" if is_sender else "receiver",
                "x",
                0,
                "q",
                unsettled=theirs,
                incomplete_unsettled=incomplete,
            )
        )
        answer = client.one(spec.Attach)
        self.assertFalse(answer.unsettled)
        self.assertTrue(client.none(spec.Detach) and client.none(spec.End))


class PublisherModel:
    """A publisher that does what §2.6.13 says, over a connection that breaks at any point."""

    def __init__(self) -> None:
        self.world = Network()
        self.house: FrameBroker = self.world.house()
        self.client: Client = self.house.client().ready()
        self.waiting: list[int] = []
        self.sent = 0
        self.ids: list[int] = []
        self.attach()

    @staticmethod
    def tag(number: int) -> bytes:
        return b"m%d" % number

    def attach(self) -> None:
        """Come back, and bring everything to its end."""
        unsettled = {self.tag(number): None for number in self.waiting}
        properties = {Symbol("delivery-mode"): Symbol("exactly-once")}
        request = attach(
            "sender",
            "p",
            0,
            "q",
            properties=properties,
            desired_capabilities=(EXACTLY_ONCE_CAPABILITY,),
            unsettled=unsettled or None,
        )
        self.client.send(request)
        self.house.store.let_go()
        self.client.run()
        theirs = self.client.one(spec.Attach).unsettled or {}
        self.ids = []
        waiting, self.waiting = self.waiting, []
        for number in waiting:
            if self.tag(number) in theirs:
                self.transfer(number, b"", settled=True, resume=True, state=spec.Accepted())
            else:
                self.waiting.append(number)
                self.transfer(number, message(b"%d" % number))

    def transfer(self, number: int, payload: bytes, **fields: Any) -> None:
        self.client.publish(len(self.ids), payload, delivery_tag=self.tag(number), **fields)
        self.ids.append(number)

    def publish(self) -> None:
        """Send a new one."""
        self.waiting.append(self.sent)
        self.transfer(self.sent, message(b"%d" % self.sent))
        self.sent += 1

    def confirm(self) -> None:
        """Hear what the broker says, and settle it."""
        for told in self.client.all(spec.Disposition):
            last = told.first if told.last is None else told.last
            self.client.dispose(told.first, last, role=False)
            for number in self.ids[told.first : last + 1]:
                if number in self.waiting:
                    self.waiting.remove(number)

    def lose(self) -> None:
        """The connection breaks."""
        self.client.hang_up()
        self.client = self.house.client().ready()
        self.attach()


class PublisherTests(SynchronousTestCase):
    """P-16, K-23: exactly once."""

    @settings(max_examples=60)
    @given(
        st.lists(
            st.sampled_from(("publish", "publish", "confirm", "lose", "hold", "let go")),
            max_size=15,
        )
    )
    def test_model(self, actions: list[str]) -> None:
        """Every message is on the queue exactly once, whatever breaks at any time."""
        model = PublisherModel()
        for action in actions:
            if action == "publish":
                model.publish()
            elif action == "confirm":
                model.confirm()
            elif action == "lose":
                model.lose()
            elif action == "hold":
                model.house.store.is_held = True
            else:
                model.house.store.let_go()
                model.client.run()
        model.lose()
        reader = model.house.client().ready("reader")
        reader.receiver(credit=100)
        wanted = sorted(b"%d" % number for number in range(model.sent))
        self.assertEqual(sorted(reader.bodies()), wanted)
