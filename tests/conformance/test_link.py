# SPDX-License-Identifier: Apache-2.0
"""Links: part 2 §2.6, termini of part 3 §3.5."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.node_declaration import NodeDeclaration
from amqproute.broker.node_limits import QueueLimits
from amqproute.values import Principal
from amqproute.wire.amqp10 import codec, spec
from amqproute.wire.amqp10.types import Array, Described, Symbol, UInt, ULong
from tests.conformance.frame_broker import (
    ACCEPTED,
    MODIFIED,
    REJECTED,
    RELEASED,
    Client,
    Network,
    attach,
    condition,
    message,
)
from tests.support import plain_decoder
from tests.support.amqp_values import SYMBOLS, VALUES


class LinkCase(SynchronousTestCase):
    """A broker with two queues, and a client on channel 0."""

    def setUp(self) -> None:
        self.world = Network()
        self.house = self.world.house(nodes=["q", "r"])
        self.client = self.house.client().ready()

    def refused(self, wanted: str, request: spec.Attach, client: Client | None = None) -> None:
        """L-34: a null terminus of the broker's, then a closing detach with the error."""
        client = client or self.client
        client.send(request)
        answer = client.one(spec.Attach)
        self.assertEqual(answer.name, request.name)
        self.assertEqual(answer.role, not request.role)
        self.assertIsNone(answer.source if request.role else answer.target)
        detach = client.one(spec.Detach)
        self.assertEqual(detach.handle, answer.handle)
        self.assertTrue(detach.closed)
        self.assertEqual(condition(detach), wanted)
        self.assertTrue(detach.error.description)
        client.send(spec.Detach(handle=request.handle, closed=True))
        self.assertTrue(client.none(spec.End) and client.none(spec.Close))


class AttachTests(LinkCase):
    """The answer to an attach says what is in force."""

    def test_sender(self) -> None:
        """L-01, L-30, L-33, L-36, P-01, P-18: name repeated, role opposite, credit follows."""
        self.client.send(attach("sender", "the-link", 7, "q"))
        answer = self.client.one(spec.Attach)
        self.assertEqual(answer.name, "the-link")
        self.assertTrue(answer.role)
        self.assertEqual(answer.target.address, "q")
        flow = self.client.one(spec.Flow)
        self.assertEqual(flow.handle, answer.handle)
        self.assertGreater(flow.link_credit, 0)
        self.assertEqual(flow.delivery_count, 0)

    def test_source_of_a_sender_is_echoed(self) -> None:
        """L-43, P-18: the broker's answer repeats the client's source."""
        source = spec.Source(address="my place", outcomes=(ACCEPTED, REJECTED))
        answer = self.client.sender(source=source)
        self.assertEqual(answer.source.address, "my place")
        self.assertEqual(answer.source.outcomes, (ACCEPTED, REJECTED))

    def test_source_without_outcomes(self) -> None:
        """L-40, K-09: outcomes that a sender's source does not name are in the answer.

        A source that is null stays so, and is tolerated; one that names some has these.
        """
        every = (ACCEPTED, REJECTED, RELEASED, MODIFIED)
        for handle, (source, outcomes) in enumerate(
            (
                (spec.Source(), every),
                (spec.Source(address="my place"), every),
                (spec.Source(outcomes=(ACCEPTED, RELEASED)), (ACCEPTED, RELEASED)),
                (None, None),
            )
        ):
            answer = self.client.sender(handle=handle, source=source).source
            self.assertEqual(None if answer is None else answer.outcomes, outcomes)
            self.assertEqual(
                None if answer is None else answer.address,
                None if source is None else source.address,
            )
            self.client.publish(handle, handle=handle)
            self.assertIsInstance(self.client.one(spec.Disposition).state, spec.Accepted)

    def test_receiver(self) -> None:
        """L-38, L-43, O-22, O-28: source in force, outcomes named, delivery-count given."""
        answer = self.client.receiver()
        self.assertFalse(answer.role)
        self.assertEqual(answer.source.address, "q")
        self.assertEqual(answer.source.outcomes, (ACCEPTED, REJECTED, RELEASED, MODIFIED))
        self.assertIsInstance(answer.source.default_outcome, spec.Released)
        self.assertEqual(answer.initial_delivery_count, 0)

    def test_null_target_of_a_receiver(self) -> None:
        """L-41: a receiving client may leave its target null."""
        self.client.fill([b"1"])
        answer = self.client.receiver(credit=1, target=None)
        self.assertIsNotNone(answer.source)
        self.assertEqual(self.client.bodies(), [b"1"])

    def test_terminus_defaults(self) -> None:
        """L-11, L-44: durable none, expiry at session-end, timeout 0."""
        for handle, answer in enumerate(
            (self.client.sender().target, self.client.receiver(handle=1).source)
        ):
            self.assertEqual(answer.durable, 0, handle)
            self.assertEqual(answer.expiry_policy, "session-end")
            self.assertEqual(answer.timeout, 0)

    def test_terminus_defaults_on_the_wire(self) -> None:
        """L-11, L-44: durable, expiry-policy and timeout are in the octets of every answer.

        Read by a decoder that fills in nothing: with absent fields, and with a source that says
        less than a whole one.
        """
        address, momentary = "q", (0, "link-detach", 0)
        wanted: list[tuple[str, dict[str, Any], int, tuple[object, ...]]] = [
            ("sender", {}, 6, (0, "session-end", 0)),
            ("sender", {}, 5, (0, "session-end", 0)),  # the client's own source, completed
            ("receiver", {}, 5, (0, "session-end", 0)),
            ("receiver", {}, 6, (0, "session-end", 0)),
            (
                "receiver",
                {"source": spec.Source(address=address, distribution_mode="copy")},
                5,
                momentary,
            ),
            ("receiver", {"source": spec.Source(dynamic=True)}, 5, momentary),
            ("sender", {"target": spec.Target(dynamic=True)}, 6, momentary),
            ("sender", {"target": spec.Target()}, 6, (0, "session-end", 0)),
        ]
        for handle, (role, fields, index, expected) in enumerate(wanted):
            del self.client.raw[:]
            request = attach(role, f"link {handle}", handle, address, **fields)
            self.client.send(request)
            answers = [
                performative
                for _, performative, _ in plain_decoder.frames(b"".join(self.client.raw))
                if performative is not None and performative.descriptor == 0x12
            ]
            self.assertEqual(len(answers), 1, wanted[handle])
            terminus = plain_decoder.field(answers[0], index)
            stands = tuple(plain_decoder.field(terminus, number) for number in (1, 2, 3))
            self.assertEqual(stands, expected, wanted[handle])

    def test_does_not_lie_about_durability(self) -> None:
        """E-01: a durable terminus is not claimed where none is kept, nor one that never ends."""
        source = spec.Source(address="q", durable=2, expiry_policy="never")
        self.client.send(attach("receiver", "d", 0, None, source=source))
        answer = self.client.one(spec.Attach).source
        self.assertEqual(
            (answer.durable, answer.expiry_policy, answer.timeout), (0, "connection-close", 3600)
        )

    def test_momentary(self) -> None:
        """E-01: browsers, and links to dynamic nodes, leave nothing behind, and are told so."""
        wanted = (
            spec.Source(address="q", distribution_mode="copy"),
            spec.Source(dynamic=True),
        )
        for handle, source in enumerate(wanted):
            self.client.send(attach("receiver", f"m{handle}", handle, None, source=source))
            answer = self.client.one(spec.Attach).source
            self.assertEqual((answer.expiry_policy, answer.timeout), ("link-detach", 0))

    def test_handles_are_ours(self) -> None:
        """L-36: each peer chooses its own handle: the client's may be any number allowed."""
        answer = self.client.sender(handle=900)
        self.client.publish(0, handle=900)
        self.assertEqual(self.client.one(spec.Flow).handle, answer.handle)
        self.assertEqual(self.house.depth(), 1)

    def test_same_name_both_ways(self) -> None:
        """L-09, §2.6.1: a name stands for one link in each direction."""
        self.client.sender(handle=0, name="x")
        self.client.receiver(handle=1, name="x")
        self.assertTrue(self.client.none(spec.Detach))

    def test_unknown_properties(self) -> None:
        """L-19, L-35: unknown link properties and desired capabilities are ignored.

        The answer is what it is without them, in both directions, and messages go as ever.
        """
        unknown = {"properties": {"x": 1}, "desired_capabilities": ("NOT-KNOWN", "shared")}
        for ask, handle in ((self.client.sender, 0), (self.client.receiver, 2)):
            plain, answer = ask(handle=handle), ask(handle=handle + 1, **unknown)
            for name in [each.name for each in spec.Attach.fields]:
                if name not in ("name", "handle"):
                    self.assertEqual(getattr(answer, name), getattr(plain, name), name)
            self.assertEqual(answer.offered_capabilities, ())
            self.assertEqual(dict(answer.properties), {"error-mode": "detach"})
        self.client.publish(0, message(b"passes"), handle=1)
        self.client.credit(1, handle=3)
        self.assertEqual(self.client.bodies(), [b"passes"])

    def test_max_message_size(self) -> None:
        """L-47, M-08: a limit of the operator is in the attach; no limit is null or 0."""
        self.assertIn(self.client.sender().max_message_size, (None, 0))
        house = Network().house(settings={"max_message_size": 1000})
        client = house.client().ready()
        self.assertEqual(client.sender().max_message_size, 1000)

    def test_unsettled_map_is_not_kept(self) -> None:
        """L-32, L-45: a terminus that was not kept is answered with a null map."""
        answer = self.client.sender(unsettled={b"t": spec.Accepted()})
        self.assertFalse(answer.unsettled)

    def test_settle_modes(self) -> None:
        """O-32: the answer carries the settle modes that will be kept."""
        answer = self.client.sender(snd_settle_mode=1, rcv_settle_mode=0)
        self.assertEqual((answer.snd_settle_mode, answer.rcv_settle_mode), (1, 0))
        answer = self.client.receiver(handle=1, snd_settle_mode=1)
        self.assertEqual(answer.snd_settle_mode, 1)


class RefusalTests(LinkCase):
    """E-02, E-05, L-42: what cannot be is refused at attach, with its condition."""

    def test_unknown_node(self) -> None:
        """Q-38, E-05, L-42: an unknown node is not-found, as target and as source."""
        self.refused("amqp:not-found", attach("sender", "a", 0, "nowhere"))
        self.refused("amqp:not-found", attach("receiver", "b", 1, "nowhere"))

    def test_null_source(self) -> None:
        """L-33: a link that was not kept cannot be resumed."""
        self.refused("amqp:not-found", attach("receiver", "b", 1, None, source=None))

    def test_source_without_address(self) -> None:
        """A-19: a source that is neither named nor dynamic is an invalid field."""
        self.refused("amqp:invalid-field", attach("receiver", "b", 1, None))

    def test_selector(self) -> None:
        """L-02, L-20: a selector is in force, and is echoed."""
        descriptor = Symbol("apache.org:selector-filter:string")
        filters = {Symbol("sel"): Described(descriptor, "color = 'red'")}
        source = spec.Source(address="q", filter=filters)
        self.client.send(attach("receiver", "f", 0, None, source=source))
        answer = self.client.one(spec.Attach)
        self.assertEqual(answer.source.filter, filters)
        self.client.sender("q", handle=1)
        for number, color in enumerate(("blue", "red")):
            encoded = message(color.encode(), application={"color": color})
            self.client.publish(number, encoded, handle=1)
        self.client.credit(5)
        self.assertEqual(self.client.bodies(), [b"red"])

    def test_filter_set_of_strings(self) -> None:
        """Part 3 §3.5.8: a key that is a string names the filter all the same."""
        selector = Described(Symbol("apache.org:selector-filter:string"), "color = 'red'")
        source = Described(ULong(0x28), ["q", *[None] * 6, {"sel": selector}])
        body = codec.encode(Described(ULong(0x12), ["f", UInt(0), True, None, None, source]))
        self.client.write((8 + len(body)).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body)
        answer = self.client.one(spec.Attach)
        self.assertEqual(answer.source.filter, {"sel": selector})

    def test_bad_fields(self) -> None:
        """E-03: what cannot be in a terminus or a map costs the link; the next one is attached."""
        selector = Described(Symbol("apache.org:selector-filter:string"), "color = 'red'")
        no_local = Described(Symbol("apache.org:no-local-filter:list"), [1])
        sources: list[tuple[list[Any], list[Any], str]] = [
            (["q", *[None] * 6, {1: selector}], [], "filter is no filter-set"),
            (["q", *[None] * 6, ["sel", selector]], [], "filter is no filter-set"),
            (["q", *[None] * 6, {Symbol("sel"): 5}], [], "not a described value"),
            (["q", *[None] * 6, {Symbol("sel"): no_local}], [], "no-local has no terms"),
            (["q", "durable"], [], "durable is no terminus-durability"),
            ([5], [], "address is no string"),
            (["q", *[None] * 5, "move"], [], "distribution-mode is no symbol"),
            (["q"], [None] * 7 + [{"k": "v"}], "properties is no fields"),
        ]
        for number, (source, more, words) in enumerate(sources):
            fields = [f"bad{number}", UInt(number), True, None, None]
            fields += [Described(ULong(0x28), source), *more]
            body = codec.encode(Described(ULong(0x12), fields))
            self.client.write((8 + len(body)).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body)
            self.assertIsNone(self.client.one(spec.Attach).source, words)
            detach = self.client.one(spec.Detach)
            self.assertEqual((condition(detach), detach.closed), ("amqp:invalid-field", True))
            self.assertIn(words, detach.error.description)
            self.client.send(spec.Detach(handle=number, closed=True))
        self.client.receiver("q", handle=99)

    def test_unknown_filter(self) -> None:
        """L-02, L-20: so does one that nobody knows."""
        filters = {Symbol("x"): Described(Symbol("test:no-such-filter"), "a")}
        source = spec.Source(address="q", filter=filters)
        self.refused("amqp:not-implemented", attach("receiver", "f", 0, None, source=source))

    def test_outcomes_not_supported(self) -> None:
        """O-30: outcomes that are no subset of the supported ones refuse the link."""
        source = spec.Source(address="q", outcomes=(ACCEPTED, "test:other:list"))
        self.refused("amqp:not-implemented", attach("receiver", "f", 0, None, source=source))

    def test_distribution_mode(self) -> None:
        """E-02, S-13: a mode that is not offered is refused, never replaced."""
        source = spec.Source(address="q", distribution_mode="copy")
        self.client.send(attach("receiver", "f", 0, None, source=source))
        answer = self.client.one(spec.Attach)
        self.assertEqual(answer.source.distribution_mode, "copy")
        unknown = spec.Source(address="q", distribution_mode="test:other")
        self.client.send(attach("receiver", "g", 1, None, source=unknown))
        self.assertIsNone(self.client.one(spec.Attach).source)
        self.assertIsNotNone(condition(self.client.one(spec.Detach)))

    def test_coordinator(self) -> None:
        """X-13, W-24: a coordinator of transactions that are not offered is refused."""
        for number, kind in enumerate((spec.TXN_DISTRIBUTED, spec.TXN_PROMOTABLE, "test:other")):
            wanted = (spec.TXN_LOCAL, Symbol(kind))
            target = spec.Coordinator(capabilities=wanted)
            self.client.send(attach("sender", f"c{number}", number, None, target=target))
            self.assertIsNone(self.client.one(spec.Attach).target)
            self.assertEqual(condition(self.client.one(spec.Detach)), "amqp:not-implemented")

    def test_pipelined_transfers_to_a_refused_link(self) -> None:
        """L-08, L-34: transfers that were sent behind a refused attach go nowhere, quietly."""
        self.client.send(attach("sender", "a", 0, "nowhere"))
        self.client.write(self.client.transfer(0), self.client.transfer(1))
        names = self.client.names()
        self.assertNotIn("End", names)
        self.assertNotIn("Disposition", names)
        self.client.send(spec.Detach(handle=0, closed=True))
        self.client.sender("q", handle=0)
        self.client.publish(2)
        self.assertEqual(self.house.depth(), 1)

    def test_too_many_links(self) -> None:
        """E-05: the limit of links of a connection has a name of its own."""
        house = Network().house(limits={"links": 2})
        client = house.client().ready()
        client.sender(handle=0)
        client.sender(handle=1)
        self.refused("amqp:resource-limit-exceeded", attach("sender", "x", 2, "q"), client)

    def test_dynamic_with_address(self) -> None:
        """§3.5.3: a dynamic terminus has no address in the request."""
        source = spec.Source(address="mine", dynamic=True)
        self.refused("amqp:invalid-field", attach("receiver", "d", 0, None, source=source))

    def test_unknown_node_properties(self) -> None:
        """Q-10, E-02: unknown dynamic-node-properties fail fast."""
        source = spec.Source(dynamic=True, dynamic_node_properties={Symbol("colour"): "red"})
        self.refused("amqp:not-implemented", attach("receiver", "d", 0, None, source=source))


KEYS: list[str] = [
    *("error-mode", "first-message-date", "delivery-mode", "opt-delivery-mode", "node-type"),
    *("lifetime-policy", "supported-dist-modes", "default-outcomes", "capacity", "exclusive"),
    *("duplicate-policy", "visibility", "dead-letter", "message-durability-mode", "ttl"),
]
WORDS = st.sampled_from(["end", "copy", "move", "topic", "queue", "exactly-once", "accepted"])
ANY = st.one_of(VALUES, WORDS, WORDS.map(Symbol), WORDS.map(lambda word: Array.of_symbols([word])))
MAPS = st.dictionaries(st.sampled_from(KEYS).map(Symbol), ANY, max_size=2)


@st.composite
def attaches(draw: st.DrawFn) -> list[Any]:
    """Fields of an attach, most of which are right."""
    termini = []
    for code, size in ((0x28, 11), (0x29, 7)):
        is_dynamic = draw(st.booleans())
        fields: list[Any] = [None if is_dynamic else "q", *[None] * 3, is_dynamic]
        fields += [draw(MAPS) if is_dynamic else None, *[None] * (size - 6)]
        if not draw(st.integers(0, 3)):
            fields[draw(st.integers(0, size - 1))] = draw(ANY)
        if code == 0x28 and not draw(st.integers(0, 3)):
            fields[7] = draw(st.dictionaries(SYMBOLS, VALUES, max_size=2))
        termini.append(Described(ULong(code), fields))
    found = ["any", UInt(1), draw(st.booleans()), None, None, *termini, None, None, UInt(0)]
    found += [None, None, None, draw(MAPS)]
    if not draw(st.integers(0, 9)):
        found[draw(st.integers(3, 13))] = draw(ANY)
    return found


class AnyAttachTests(SynchronousTestCase):
    """E-03: whatever is in an attach, it costs no more than its link."""

    @given(st.lists(attaches(), min_size=1, max_size=12))
    @hypothesis_settings(max_examples=40, deadline=None)
    def test_connection_goes_on(self, all_fields: list[list[Any]]) -> None:
        """The attach is answered, and not by an error of ours; the connection continues."""
        client = Network().house().client().ready()
        for fields in all_fields:
            body = codec.encode(Described(ULong(0x12), fields))
            client.write((8 + len(body)).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body)
            client.run()
            self.assertEqual(client.all(spec.Close), [])
            if client.all(spec.End):
                return  # error-mode end
            self.assertEqual(len(client.all(spec.Attach)), 1)
            detached = client.all(spec.Detach)
            for detach in detached:
                self.assertNotEqual(condition(detach), "amqp:internal-error")
            client.send(spec.Detach(handle=1, closed=True))
            self.assertEqual(len(detached + client.all(spec.Detach)), 1)


class DetachTests(LinkCase):
    """The end of a link."""

    def test_close(self) -> None:
        """L-31, L-32, §2.6.6: a closing detach is answered by a closing detach."""
        answer = self.client.sender()
        self.client.send(spec.Detach(handle=0, closed=True))
        detach = self.client.one(spec.Detach)
        self.assertEqual(detach.handle, answer.handle)
        self.assertTrue(detach.closed)
        self.assertIsNone(detach.error)

    def test_detach(self) -> None:
        """§2.6.4: a detach without closed is answered."""
        self.client.sender()
        self.client.send(spec.Detach(handle=0))
        self.assertIsNone(self.client.one(spec.Detach).error)

    def test_handle_is_free_again(self) -> None:
        """§2.6.4: after the detach handle and name can be used again."""
        self.client.sender("q", name="x")
        self.client.send(spec.Detach(handle=0, closed=True))
        self.client.sender("r", name="x")
        self.client.publish(0)
        self.assertEqual(self.house.depth("r"), 1)

    def test_releases(self) -> None:
        """O-06, O-17, Q-34: what a link held goes back when the link goes."""
        self.client.fill([b"1", b"2", b"3"])
        self.client.receiver(credit=3)
        self.assertEqual(len(self.client.bodies()), 3)
        self.client.dispose(1)
        self.client.send(spec.Detach(handle=0, closed=True))
        self.client.receiver(handle=1, credit=10)
        self.assertEqual(self.client.bodies(), [b"1", b"3"])

    def test_lost_connection_releases(self) -> None:
        """Q-34, O-17: a broken connection gives back what it held."""
        self.client.fill([b"1", b"2"])
        self.client.receiver(credit=3)
        self.client.hang_up()
        other = self.house.client().ready("other")
        other.receiver(credit=10)
        self.assertEqual(other.bodies(), [b"1", b"2"])

    def test_default_outcome_of_an_orphan(self) -> None:
        """O-17, O-21: default-outcome accepted: what is orphaned is forgotten."""
        self.client.fill([b"1", b"2"])
        source = spec.Source(address="q", default_outcome=spec.Accepted())
        self.client.send(attach("receiver", "r", 0, None, source=source))
        self.assertIsInstance(self.client.one(spec.Attach).source.default_outcome, spec.Accepted)
        self.client.credit(1)
        self.client.hang_up()
        self.assertEqual(self.house.depth(), 1)

    def test_deleted_node(self) -> None:
        """L-03, L-49: the end of a node ends its links, with resource-deleted."""
        source = self.client.receiver(None, source=spec.Source(dynamic=True)).source
        other = self.house.client().ready("other")
        other.sender(source.address)
        other.names()
        self.client.send(spec.Detach(handle=0, closed=True))
        other.run()
        # The node went with its link; whoever sends to it is told so at the latest when sending.
        if other.none(spec.Detach):
            other.publish(0)
        detaches = other.all(spec.Detach)
        self.assertEqual([condition(each) for each in detaches], ["amqp:resource-deleted"])

    def test_frames_behind_our_detach(self) -> None:
        """L-08, E-11: transfers for a link that we detached are discarded, without an error."""
        self.client.sender(source=spec.Source(outcomes=(ACCEPTED,)))
        self.client.publish(0, b"junk", settled=True)
        self.client.one(spec.Detach)
        self.client.write(self.client.transfer(1), self.client.transfer(2))
        self.assertEqual(self.house.depth(), 0)
        self.assertTrue(self.client.none(spec.End))
        self.client.send(spec.Detach(handle=0, closed=True))
        self.client.sender()
        self.assertTrue(self.client.none(spec.End))

    def test_detach_of_nothing(self) -> None:
        """§2.8.17: a detach for a handle that was never attached ends the session."""
        self.client.send(spec.Detach(handle=5, closed=True))
        self.assertEqual(condition(self.client.one(spec.End)), "amqp:session:unattached-handle")

    def test_detach_twice(self) -> None:
        """§2.6.4: a handle is not attached any more after its detach."""
        self.client.sender()
        self.client.send(spec.Detach(handle=0, closed=True), spec.Detach(handle=0, closed=True))
        self.assertIsNotNone(condition(self.client.one(spec.End)))


class StolenTests(LinkCase):
    """L-09, §2.6.1: a link is attached once."""

    def test_on_the_same_session(self) -> None:
        """L-09: a second attach of the name takes the link from the first handle."""
        self.client.receiver(handle=0, name="x")
        self.client.receiver(handle=1, name="x")
        self.assertEqual(condition(self.client.one(spec.Detach)), "amqp:link:stolen")

    def test_on_another_connection(self) -> None:
        """L-09: the same container on a new connection takes its link over."""
        self.client.fill([b"1", b"2"])
        self.client.receiver(name="x", credit=5)
        self.assertEqual(len(self.client.bodies()), 2)
        again = self.house.client().ready("client")
        again.receiver(name="x", credit=5)
        self.client.run()
        self.assertEqual(condition(self.client.one(spec.Detach)), "amqp:link:stolen")
        self.assertEqual(again.bodies(), [b"1", b"2"])

    def test_other_container(self) -> None:
        """L-09: another container's link of that name is another link."""
        self.client.receiver(name="x")
        self.house.client().ready("other").receiver(name="x")
        self.client.run()
        self.assertTrue(self.client.none(spec.Detach))


class AnonymousNameTests(LinkCase):
    """§2.6.1: a name of somebody who did not authenticate means something at his address only."""

    def setUp(self) -> None:
        super().setUp()
        self.client.hang_up()
        self.client = self.at("192.0.2.1")

    def at(self, host: str) -> Client:
        """Return a client of the container ``client``, from an address."""
        return self.house.client(facts={"host": host}).ready("client")

    def test_no_stealing_across_addresses(self) -> None:
        """L-09: from elsewhere it is another link; at the same address it is the same one."""
        self.client.receiver(name="x", credit=5)
        other = self.at("192.0.2.2")
        other.receiver(name="x")
        self.client.run()
        self.assertTrue(self.client.none(spec.Detach))
        self.at("192.0.2.1").receiver(name="x")
        self.client.run()
        self.assertEqual(condition(self.client.one(spec.Detach)), "amqp:link:stolen")
        self.assertTrue(other.none(spec.Detach))

    def test_no_resuming_across_addresses(self) -> None:
        """§2.6.13: what a suspended link holds goes back to its own address only."""
        self.client.fill([b"1"])
        terms = {"expiry_policy": Symbol("connection-close"), "timeout": 60}
        source = spec.Source(address="q", **terms)
        self.client.receiver(None, name="x", credit=5, source=source)
        self.assertEqual(self.client.bodies(), [b"1"])
        self.client.hang_up()
        other = self.at("192.0.2.2")
        self.assertFalse(other.receiver(None, name="x", credit=5, source=source).unsettled)
        self.assertEqual(other.bodies(), [])
        own = self.at("192.0.2.1")
        self.assertEqual(len(own.receiver(None, name="x", credit=5, source=source).unsettled), 1)

    def test_users_keep_their_names(self) -> None:
        """L-09: a user's link is the user's from wherever."""
        ann = Principal("user", "ann")
        first = self.house.client(ann, facts={"host": "192.0.2.1"}).ready("client")
        first.receiver(name="x")
        second = self.house.client(ann, facts={"host": "192.0.2.2"}).ready("client")
        second.receiver(name="x")
        first.run()
        self.assertEqual(condition(first.one(spec.Detach)), "amqp:link:stolen")
        bob = self.house.client(Principal("user", "bob"), facts={"host": "192.0.2.2"})
        bob.ready("client").receiver(name="x")
        second.run()
        self.assertTrue(second.none(spec.Detach))


class DynamicTests(LinkCase):
    """Dynamic nodes, §3.5.3; A-02, A-06, N-19, N-22, Q-12."""

    def dynamic(self, **properties: Any) -> str:
        source = spec.Source(dynamic=True, dynamic_node_properties=properties or None)
        answer = self.client.receiver(None, source=source, credit=10)
        self.assertTrue(answer.source.dynamic)
        self.assertIsInstance(answer.source.address, str)
        return str(answer.source.address)

    def test_source(self) -> None:
        """A-02, Q-25: messages sent to the returned address arrive on the link."""
        address = self.dynamic()
        self.client.sender(address, handle=1)
        self.client.publish(0, message(b"hello"), handle=1)
        self.assertEqual(self.client.bodies(), [b"hello"])

    def test_lifetime_policy(self) -> None:
        """Q-12: delete-on-close is the lifetime; it may be asked for and is echoed."""
        source = spec.Source(
            dynamic=True,
            dynamic_node_properties={Symbol("lifetime-policy"): spec.DeleteOnClose()},
        )
        answer = self.client.receiver(None, source=source).source
        policy = answer.dynamic_node_properties[Symbol("lifetime-policy")]
        code = getattr(policy, "descriptor", policy)
        self.assertIn(code, (0x2B, "amqp:delete-on-close:list"))

    def test_goes_with_its_link(self) -> None:
        """N-22, Q-12: after the detach the address is not-found."""
        address = self.dynamic()
        self.client.send(spec.Detach(handle=0, closed=True))
        self.client.one(spec.Detach)
        self.refused("amqp:not-found", attach("sender", "s", 1, address))

    def test_goes_with_its_connection(self) -> None:
        """N-22: so it is after the connection broke."""
        address = self.dynamic()
        self.client.hang_up()
        other = self.house.client().ready("other")
        self.refused("amqp:not-found", attach("sender", "s", 1, address), other)

    def test_target(self) -> None:
        """§3.5.4: a sender may ask for a dynamic target."""
        answer = self.client.sender(None, target=spec.Target(dynamic=True))
        self.assertTrue(answer.target.address)
        self.client.publish(0)
        self.assertIsInstance(self.client.one(spec.Disposition).state, spec.Accepted)

    def test_names(self) -> None:
        """A-06: invented names are random: no two alike, and nothing of them is predictable."""
        house = Network().house(limits={"dynamic_nodes": 2000})
        client = house.client().ready()
        names = [
            client.receiver(None, handle=n, source=spec.Source(dynamic=True)).source.address
            for n in range(300)
        ]
        self.assertEqual(len(set(names)), 300)
        tails = [name.removeprefix("dynamic-").replace("-", "") for name in names]
        self.assertTrue(all(len(tail) >= 32 for tail in tails))
        # No digit but the version and variant of a UUID stands still.
        still = [n for n in range(32) if len({tail[n] for tail in tails}) < 8]
        self.assertLessEqual(len(still), 2)

    def test_qualified(self) -> None:
        """A-02: the qualified form of a dynamic address resolves here."""
        house = Network().house(qualify=True)
        client = house.client().ready()
        source = spec.Source(dynamic=True)
        address = client.receiver(None, source=source, credit=9).source.address
        self.assertTrue(address.endswith("@a.test"), address)
        client.sender(None, handle=1)
        client.publish(0, message(b"reply", to=address), handle=1)
        self.assertEqual(client.bodies(), [b"reply"])


class CapacityTests(LinkCase):
    """E-02: limits of nodes."""

    def test_space(self) -> None:
        """Q-15, F-02: a queue with a capacity grants no credit beyond it."""
        house = Network().house(nodes=[NodeDeclaration("q", QueueLimits(capacity=5))])
        client = house.client().ready()
        client.sender()
        self.assertLessEqual(client.one(spec.Flow).link_credit, 5)
