# SPDX-License-Identifier: Apache-2.0
"""Addresses, aliases and the transfer service: topics A and T."""

from __future__ import annotations

import uuid
from itertools import pairwise
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.policy import Rule
from amqproute.broker.node_declaration import NodeDeclaration
from amqproute.broker.node_limits import QueueLimits
from amqproute.errors import ResolveError
from amqproute.values import Principal, RouteRule
from amqproute.wire.amqp10 import codec, spec
from amqproute.wire.amqp10.types import Symbol
from tests.conformance.frame_broker import (
    ACCEPTED,
    Client,
    FrameBroker,
    Network,
    attach,
    bare,
    condition,
    data,
    frame,
    header_of,
    message,
    section,
    section_of,
)

ALICE = Principal("user", "alice")
PEER = Principal("peer", "b.test", frozenset({"b.test"}))
PEERS_PUBLISH = [Rule.of(who="*", node="*", allow=["publish", "transfer", "consume"])]
TEMPORARY = ResolveError("dns.servfail", "no answer", permanent=False)


class AddressCase(SynchronousTestCase):
    """Brokers and the questions one puts to them."""

    def setUp(self) -> None:
        self.world = Network()
        self.house = self.world.house("a.test", nodes=["q", "r"], aliases={"nick": "q"})
        self.client = self.house.client(ALICE).ready()

    def refused(
        self, role: str, address: str | None, client: Client | None = None, **fields: Any
    ) -> str | None:
        """Attach; return the condition of the refusal, or None if there was none."""
        client = client or self.client
        handle = 100 + len(client.headers) + id(address) % 500
        client.send(attach(role, str(uuid.uuid4()), handle, address, **fields))
        answer = client.one(spec.Attach)
        if (answer.target if role == "sender" else answer.source) is not None:
            client.send(spec.Detach(handle=handle, closed=True))
            client.one(spec.Detach)
            client.all(spec.Flow)
            return None
        found = condition(client.one(spec.Detach))
        client.send(spec.Detach(handle=handle, closed=True))
        return found

    def outcome(
        self, address: str | None, encoded: bytes, client: Client | None = None, **fields: Any
    ) -> str | None:
        """Publish one message; return None if it is accepted, else the condition."""
        client = client or self.client
        if not hasattr(client, "count"):
            client.count = 0  # type: ignore[attr-defined]
        number = client.count  # type: ignore[attr-defined]
        client.count += 1  # type: ignore[attr-defined]
        handle = number
        answer = client.sender(address, handle=handle, name=str(uuid.uuid4()), **fields)
        assert answer.target is not None, condition(client.one(spec.Detach))
        client.publish(number, encoded, handle=handle)
        client.run(6)
        state = client.one(spec.Disposition).state
        client.send(spec.Detach(handle=handle, closed=True))
        client.names()
        return None if isinstance(state, spec.Accepted) else condition(state)

    def take(self, house: FrameBroker, node: str = "q") -> list[bytes]:
        """Take all messages of a node."""
        client = house.client().ready(str(uuid.uuid4()))
        client.receiver(node)
        client.credit(1000, drain=True)
        found = client.messages()
        if found:
            client.dispose(0, len(found) - 1)
        client.send(spec.Close())
        return found


class ResolutionTests(AddressCase):
    """One resolver for all (A-01)."""

    def test_one_namespace(self) -> None:
        """A-01, A-03, A-19: source, target and `to` of one address are one node."""
        self.assertIsNone(self.outcome("q", message(b"by target")))
        self.assertIsNone(self.outcome(None, message(b"by to", to="q")))
        self.assertIsNone(self.outcome("amqp$transfer", message(b"by service", to="q")))
        self.assertEqual(len(self.take(self.house)), 3)

    def test_alias(self) -> None:
        """A-04, A-08: an alias leads to its node, everywhere, and is echoed."""
        self.assertEqual(self.client.sender("nick", handle=90).target.address, "nick")
        self.assertEqual(self.client.receiver("nick", handle=91).source.address, "nick")
        self.assertIsNone(self.outcome(None, message(to="nick")))
        self.assertIsNone(self.outcome("nick", message()))
        self.assertEqual(len(self.take(self.house)), 2)

    def test_moved_alias(self) -> None:
        """A-05: resolution is fixed at attach: an alias that moves does so for new links."""
        self.client.sender("nick", handle=80)
        nodes = [NodeDeclaration(name, QueueLimits()) for name in ("q", "r")]
        self.house.broker.declare(nodes, {"nick": "r"})
        self.client.publish(0, handle=80)
        self.client.sender("nick", handle=81)
        self.client.publish(1, handle=81)
        self.assertEqual((self.house.depth("q"), self.house.depth("r")), (1, 1))

    def test_local_domain(self) -> None:
        """T-07, A-01: our own broker part means the local node, as target, source and `to`."""
        self.assertEqual(self.client.sender("q@a.test", handle=9).target.address, "q@a.test")
        self.client.publish(0, message(b"1"), handle=9)
        answer = self.client.receiver("q@a.test", handle=10, credit=1)
        self.assertEqual(answer.source.address, "q@a.test")
        self.assertEqual(self.client.bodies(), [b"1"])

    def test_case_and_dot(self) -> None:
        """A-13: the broker part is compared without case and final dot; the node part is not."""
        self.assertIsNone(self.outcome(None, message(to="q@A.TEST")))
        self.assertIsNone(self.outcome(None, message(to="q@a.test.")))
        self.assertEqual(self.outcome(None, message(to="Q@a.test")), "amqp:not-found")

    def test_last_at_sign(self) -> None:
        """T-05, A-13: an address is split at its last at sign."""
        house = self.world.house("c.test", nodes=["first@second"])
        client = house.client().ready()
        self.assertIsNone(self.outcome(None, message(to="first@second@c.test"), client))
        self.assertEqual(house.depth("first@second"), 1)

    def test_nothing_else_divides(self) -> None:
        """A-21: no virtual host, tenant, port or query is in an address."""
        nodes = ["a/b", "v:q", "t%2Fq", "x#y", "p?q=1", "v.q", "a b", "amqp:q", "u!h", "q;x", "q\\"]
        house = self.world.house("c.test", nodes=["a", "b", "q", *nodes])
        client = house.client().ready()
        for name in nodes:
            for to in (name, f"{name}@c.test"):
                self.assertIsNone(self.outcome(None, message(to=to), client), to)
            self.assertEqual(house.depth(name), 2, name)
        self.assertEqual([house.depth(name) for name in ("a", "b", "q")], [0, 0, 0])

    def test_invalid(self) -> None:
        """A-13: `name@` is invalid: invalid-field at attach, precondition-failed as `to`."""
        self.assertEqual(self.refused("sender", "name@"), "amqp:invalid-field")
        self.assertEqual(self.refused("receiver", "name@"), "amqp:invalid-field")
        self.assertEqual(self.outcome(None, message(to="name@")), "amqp:precondition-failed")

    def test_idna(self) -> None:
        """A-13: a broker part in Unicode and its A-labels are the same."""
        house = self.world.house("xn--bcher-kva.test", nodes=["q"])
        client = house.client().ready()
        self.assertIsNone(self.outcome(None, message(to="q@bücher.test"), client))
        self.assertIsNone(self.outcome(None, message(to="q@XN--BCHER-KVA.test"), client))

    def test_compatibility(self) -> None:
        """A-22: /queues/<name> and /topics/<name>, percent-encoded, are echoed as given."""
        house = self.world.house("d.test", nodes=["a b/ü", "q"])
        client = house.client().ready()
        self.assertEqual(client.sender("/queues/q", handle=1).target.address, "/queues/q")
        answer = client.sender("/queues/a%20b%2F%C3%BC", handle=2)
        self.assertEqual(answer.target.address, "/queues/a%20b%2F%C3%BC")
        client.publish(0, handle=2)
        self.assertEqual(house.depth("a b/ü"), 1)
        self.assertEqual(client.receiver("/queues/q", handle=3).source.address, "/queues/q")
        answer = client.sender("/topics/a%20b%2F%C3%BC", handle=4)
        self.assertEqual(answer.target.address, "/topics/a%20b%2F%C3%BC")
        client.publish(1, handle=4)
        self.assertEqual(house.depth("a b/ü"), 2)

    def test_uri(self) -> None:
        """A-22: Azure's clients give a node's address as a URI of the host they connect to."""
        client = self.house.client(ALICE).opened(hostname="mq.test").begun()
        self.assertEqual(client.sender("amqps://mq.test/q", handle=1).target.address, "q")
        client.publish(0, handle=1)
        answer = client.receiver("amqps://mq.test:5671/q", handle=2, credit=1)
        self.assertEqual(answer.source.address, "q")
        self.assertEqual(len(client.messages()), 1)
        for handle, (address, expected) in enumerate(
            (
                ("amqps://elsewhere.test/q", "amqp:not-found"),
                ("amqps://mq.test/%zz", "amqp:invalid-field"),
                ("amqps://mq.test/amqp$nothing", "amqp:not-found"),
            ),
            start=3,
        ):
            client.send(attach("sender", f"refused-{handle}", handle, address))
            self.assertIsNone(client.one(spec.Attach).target)
            self.assertEqual(condition(client.one(spec.Detach)), expected)

    def test_reserved(self) -> None:
        """A-07, T-17: names of services are reserved, and are nothing to receive from."""
        self.assertEqual(self.refused("receiver", "amqp$transfer"), "amqp:not-allowed")
        self.assertEqual(self.refused("receiver", "amqp$anything"), "amqp:not-allowed")
        self.assertIn(
            self.refused("sender", "amqp$nothing"), ("amqp:not-found", "amqp:not-allowed")
        )

    def test_remote_source(self) -> None:
        """A-20: an address at another organization is nothing to receive from."""
        self.assertEqual(self.refused("receiver", "q@b.test"), "amqp:not-allowed")

    def test_relay_queue_is_internal(self) -> None:
        """T-10: a relay queue is not a node for clients, be it there or not."""
        for role in ("sender", "receiver"):
            self.assertEqual(self.refused(role, "amqp$out/b.test"), "amqp:not-allowed")
        self.world.house("b.test")
        self.outcome("q@b.test", message())
        for name in ("amqp$out/b.test", "b.test"):
            self.assertIsNotNone(self.refused("receiver", name))
            self.assertIsNotNone(self.refused("sender", name))

    def test_reply_to(self) -> None:
        """A-01, A-02, A-18: a reply-to is an address that others can send to."""
        source = spec.Source(dynamic=True)
        address = self.client.receiver(None, handle=5, source=source, credit=5).source.address
        other = self.house.client(ALICE).ready("other")
        self.assertIsNone(self.outcome(None, message(b"reply", to=address), other))
        self.client.run()
        self.assertEqual(self.client.bodies(), [b"reply"])


class ServiceTests(AddressCase):
    """The transfer service at one broker."""

    def test_attach(self) -> None:
        """T-01, T-02: everybody who may can attach to it, with no step before."""
        self.assertIsNone(self.refused("sender", "amqp$transfer"))
        self.assertIsNone(self.refused("sender", None))

    def test_anonymous_terminus(self) -> None:
        """T-01: a target without an address is answered as such."""
        answer = self.client.sender(None, handle=7)
        self.assertIsNotNone(answer.target)
        self.assertIsNone(answer.target.address)

    def test_local(self) -> None:
        """T-04, T-06, T-07: `to` decides, with our broker part or with none, and nothing else."""
        for to in ("r", "r@a.test"):
            encoded = message(
                to=to,
                subject="q",
                reply_to="q",
                group_id="q",
                reply_to_group_id="q",
                application={"to": "q", "amqp-to": "q", "x-opt-to": "q"},
                annotations={"x-opt-to": "q", "x-opt-destination": "q", "to": "q"},
            )
            self.assertIsNone(self.outcome("amqp$transfer", encoded))
        self.assertEqual((self.house.depth("q"), self.house.depth("r")), (0, 2))

    def test_any_message(self) -> None:
        """T-03: body type, content-type, durability and properties do not matter."""
        to = {"to": "q"}
        for encoded in (
            message(header=spec.Header(durable=True), content_type="image/png", **to),
            message(application={"to": "r", "x": None}, **to),
            _properties(**to) + section(spec.SECTION_AMQP_VALUE, {"a": [1]}),
            _properties(**to) + section(spec.SECTION_AMQP_SEQUENCE, [1, 2]),
            _properties(**to) + data(b"1") + data(b"2"),
        ):
            self.assertIsNone(self.outcome("amqp$transfer", encoded))
        self.assertEqual(self.house.depth("q"), 5)

    def test_without_to(self) -> None:
        """T-25: `to` missing, empty or no address: precondition-failed."""
        for encoded in (message(), message(to=""), message(subject="x"), message(to="x@@")):
            self.assertEqual(self.outcome("amqp$transfer", encoded), "amqp:precondition-failed")

    def test_no_such_node(self) -> None:
        """T-25: a local node that does not exist: not-found."""
        for to in ("nobody", "nobody@a.test"):
            self.assertEqual(self.outcome("amqp$transfer", message(to=to)), "amqp:not-found")

    def test_settled_failure(self) -> None:
        """T-25: for a settled transfer: detach with the error, and the tag in its info."""
        self.client.sender("amqp$transfer", handle=3)
        self.client.publish(0, message(to="nobody"), handle=3, settled=True)
        detach = self.client.one(spec.Detach)
        self.assertEqual(condition(detach), "amqp:not-found")
        self.assertEqual(detach.error.info["delivery-tag"], b"tag-0")

    def test_rejected_not_allowed(self) -> None:
        """T-25: so it is where the source does not allow rejected."""
        source = spec.Source(outcomes=(ACCEPTED,))
        self.client.sender("amqp$transfer", handle=3, source=source)
        self.client.publish(0, message(to="nobody"), handle=3)
        detach = self.client.one(spec.Detach)
        self.assertEqual(condition(detach), "amqp:not-found")
        self.assertEqual(detach.error.info["delivery-tag"], b"tag-0")

    def test_services_are_no_destinations(self) -> None:
        """T-32: messages for services are not transferred."""
        for to in ("amqp$transfer", "amqp$transfer@a.test", "$management", "amqp$admin@a.test"):
            self.assertEqual(self.outcome("amqp$transfer", message(to=to)), "amqp:not-allowed", to)

    def test_message_format(self) -> None:
        """T-03: another message-format cannot be inspected: not-implemented."""
        self.client.sender("amqp$transfer", handle=3)
        self.client.publish(0, b"\x00", handle=3, message_format=5)
        self.assertEqual(condition(self.client.one(spec.Disposition).state), "amqp:not-implemented")

    def test_loop(self) -> None:
        """T-27: a message that was here before is refused, with the loop in words."""
        traced = message(to="q", annotations={"x-opt-amqproute-trace": ["b.test", "a.test"]})
        self.client.sender("amqp$transfer", handle=3)
        self.client.publish(0, traced, handle=3)
        state = self.client.one(spec.Disposition).state
        self.assertEqual(condition(state), "amqp:not-allowed")
        self.assertIn("loop", state.error.description)

    def test_hops(self) -> None:
        """T-27: sixteen hops are enough."""
        for count, wanted in ((15, None), (16, "amqp:not-allowed")):
            trace = [f"hop-{number}" for number in range(count)]
            encoded = message(to="q", annotations={"x-opt-amqproute-trace": trace})
            self.assertEqual(self.outcome("amqp$transfer", encoded), wanted)


class AliasTests(AddressCase):
    """x@y and @y as targets (T-12 to T-16)."""

    def setUp(self) -> None:
        super().setUp()
        self.other = self.world.house("b.test", nodes=["q", "r"])

    def test_attach(self) -> None:
        """T-12, T-13: x@y attaches without declaration, and is echoed."""
        self.assertEqual(self.client.sender("q@b.test", handle=5).target.address, "q@b.test")

    def test_missing_to(self) -> None:
        """T-14: the entry broker supplies a missing `to`."""
        self.assertIsNone(self.outcome("q@b.test", message(b"m", subject="s")))
        self.world.advance(1)
        (got,) = self.take(self.other)
        properties = section_of(got, spec.SECTION_PROPERTIES)
        self.assertEqual((properties.to, properties.subject), ("q@b.test", "s"))

    def test_equal_to(self) -> None:
        """T-14: an equal `to` passes unchanged."""
        encoded = message(to="q@B.test")
        self.assertIsNone(self.outcome("q@b.test", encoded))
        self.world.advance(1)
        self.assertEqual(bare(self.take(self.other)[0]), encoded)

    def test_other_to(self) -> None:
        """T-14: another `to` is rejected; it is never overwritten."""
        for to in ("r@b.test", "q", "q@c.test"):
            self.assertEqual(
                self.outcome("q@b.test", message(to=to)), "amqp:precondition-failed", to
            )

    def test_require(self) -> None:
        """T-14: with `alias-to: require` a missing `to` is rejected."""
        house = self.world.house("e.test", transfer={"insert_to": False})
        client = house.client().ready()
        self.assertEqual(self.outcome("q@b.test", message(), client), "amqp:precondition-failed")

    def test_signed(self) -> None:
        """T-14, M-25: nothing is inserted where a footer may sign the bare message."""
        signed = message() + section(spec.SECTION_FOOTER, {Symbol("x-opt-sig"): b"s"})
        self.assertEqual(self.outcome("q@b.test", signed), "amqp:precondition-failed")

    def test_domain_alias(self) -> None:
        """T-15: @y takes messages for any node there, and for no other broker."""
        for to in ("q@b.test", "r@b.test"):
            self.assertIsNone(self.outcome("@b.test", message(to=to)))
        self.assertEqual(self.outcome("@b.test", message()), "amqp:precondition-failed")
        for to in ("q@c.test", "/queues/q%40c.test", "q@a.test"):
            self.assertEqual(self.outcome("@b.test", message(to=to)), "amqp:not-allowed", to)
        self.world.advance(1)
        self.assertEqual((self.other.depth("q"), self.other.depth("r")), (1, 1))

    def test_domain_alias_bare_to(self) -> None:
        """T-15: a `to` without a broker part is resolved at the remote."""
        encoded = message(to="r")
        self.assertIsNone(self.outcome("@b.test", encoded))
        self.world.advance(1)
        self.assertEqual(bare(self.take(self.other, "r")[0]), encoded)

    def test_services(self) -> None:
        """T-32: a remote service is no destination, as alias or in `to`."""
        self.assertEqual(self.refused("sender", "amqp$transfer@b.test"), "amqp:not-allowed")
        self.assertEqual(
            self.outcome("amqp$transfer", message(to="amqp$admin@b.test")), "amqp:not-allowed"
        )

    def test_unknown_domain(self) -> None:
        """T-25: a domain that is proved not to exist refuses the attach and the message."""
        self.client.send(attach("sender", "s", 60, "q@nowhere.test"))
        self.client.run(1)
        self.assertIsNone(self.client.one(spec.Attach).target)
        self.assertEqual(condition(self.client.one(spec.Detach)), "amqp:not-found")
        self.assertEqual(
            self.outcome("amqp$transfer", message(to="q@nowhere.test")), "amqp:not-found"
        )

    def test_no_service(self) -> None:
        """T-25, A-12: an SRV target of "." is proof as well."""
        self.world.domains["f.test"] = ResolveError("dns.null", "no service", permanent=True)
        self.assertEqual(self.outcome("amqp$transfer", message(to="q@f.test")), "amqp:not-found")

    def test_no_answer(self) -> None:
        """T-25, A-12: where the DNS gives no answer the message is taken, and kept."""
        self.world.domains["f.test"] = TEMPORARY
        self.assertIsNone(self.outcome("q@f.test", message()))
        self.assertIsNone(self.outcome("amqp$transfer", message(to="q@f.test")))

    def test_order_while_asking(self) -> None:
        """T-24, L-06: what follows a message whose domain is being looked up stays behind it."""
        self.client.sender("amqp$transfer", handle=5)
        self.client.write(
            *(
                self.client.transfer(n, message(b"%d" % n, to="q@b.test"), handle=5)
                for n in range(5)
            )
        )
        self.client.run(2)
        self.assertEqual(
            [section_of(each, spec.SECTION_DATA) for each in self.take(self.other)],
            [b"%d" % n for n in range(5)],
        )


class SlowDnsTests(AddressCase):
    """A DNS that takes its time, and clients that do not wait for it."""

    def setUp(self) -> None:
        super().setUp()
        self.other = self.world.house("b.test", nodes=["q", "r"])
        self.world.dns_seconds = 2.0

    def arrived(self) -> list[bytes]:
        self.world.advance(5)
        return [section_of(each, spec.SECTION_DATA) for each in self.take(self.other)]

    def test_attach_waits(self) -> None:
        """T-12, E-02: the answer to an attach waits for the DNS; other links do not."""
        self.client.send(attach("sender", "s", 5, "q@b.test"))
        self.client.sender("q", handle=6)
        self.client.publish(0, handle=6)
        self.assertEqual(self.house.depth(), 1)
        self.client.run(2.5)
        self.assertEqual(self.client.one(spec.Attach).target.address, "q@b.test")

    def test_pipelined_behind_the_attach(self) -> None:
        """L-07, P-03: transfers behind an attach that waits are taken, in their order."""
        self.client.send(attach("sender", "s", 5, "q@b.test"))
        self.client.write(
            *(self.client.transfer(n, message(b"%d" % n), handle=5) for n in range(3))
        )
        self.client.run(2.5)
        self.assertEqual(self.arrived(), [b"0", b"1", b"2"])

    def test_refused_in_the_end(self) -> None:
        """T-25, L-34: a domain that does not exist refuses the attach when that is known."""
        self.client.send(attach("sender", "s", 5, "q@nowhere.test"))
        self.client.write(self.client.transfer(0, handle=5))
        self.client.run(2.5)
        self.assertIsNone(self.client.one(spec.Attach).target)
        self.assertEqual(condition(self.client.one(spec.Detach)), "amqp:not-found")
        self.client.send(spec.Detach(handle=5, closed=True))
        self.assertTrue(self.client.none(spec.End))

    def test_detached_while_waiting(self) -> None:
        """L-31: who detaches before the answer gets both answers, and nothing else later."""
        self.client.send(attach("sender", "s", 5, "q@b.test"))
        self.client.send(spec.Detach(handle=5, closed=True))
        self.client.run(3)
        names = self.client.names()
        self.assertEqual([name for name in names if name == "Detach"], ["Detach"])
        self.client.sender("q", handle=5)
        self.client.publish(0, handle=5)
        self.assertEqual(self.house.depth(), 1)

    def test_gone_while_waiting(self) -> None:
        """L-31: a client that is gone before the answer leaves nothing behind."""
        self.client.send(attach("sender", "s", 5, "q@b.test"))
        self.client.hang_up()
        self.client.run(3)
        self.assertEqual(self.house.amqp10.links, {})

    def test_order_behind_a_question(self) -> None:
        """T-24, D-12: what follows a message whose domain is asked for stays behind it."""
        self.client.sender("amqp$transfer", handle=5)
        for number, to in enumerate(("q@b.test", "q", "q@b.test", "q")):
            self.client.publish(number, message(b"%d" % number, to=to), handle=5)
        self.client.run(2.5)
        self.assertEqual(self.arrived(), [b"0", b"2"])
        states = [each.state for each in self.client.all(spec.Disposition)]
        self.assertTrue(all(isinstance(each, spec.Accepted) for each in states))
        self.assertEqual(self.house.depth(), 2)

    def test_no_answer_at_all(self) -> None:
        """T-25: a DNS that does not answer delays a message, and refuses none."""
        self.world.dns_seconds = 1000.0
        self.client.sender("amqp$transfer", handle=5)
        self.client.publish(0, message(to="q@b.test"), handle=5)
        self.client.run(10)
        self.assertIsInstance(self.client.one(spec.Disposition).state, spec.Accepted)

    def test_settled_and_gone(self) -> None:
        """P-03, P-10: a one-off publisher's settled message is not lost while we ask."""
        self.once("amqp$transfer")
        self.assertEqual(self.arrived(), [b"once", b"twice"])

    def once(self, address: str) -> spec.Attach:
        """Attach, publish, and go, all in one segment; return the answer to the attach."""
        client = self.house.client(ALICE).ready("once")
        client.write(
            frame(attach("sender", "s", 0, address)),
            client.transfer(0, message(b"once", to="q@b.test"), settled=True),
            client.transfer(1, message(b"bad", to="@@"), settled=False),
            client.transfer(2, message(b"twice", to="q@b.test"), settled=False),
            frame(spec.Detach(handle=0, closed=True)),
            frame(spec.End()),
            frame(spec.Close()),
        )
        client.run(2.5)
        self.assertTrue(client.is_cut)
        return client.one(spec.Attach)

    def test_settled_and_gone_by_an_alias(self) -> None:
        """E-01, P-03: so it is by an alias, or the answer to the attach says that it was not."""
        answer = self.once("q@b.test")
        if answer.target is None:
            self.assertEqual(self.arrived(), [])
        else:
            self.assertEqual(self.arrived()[:1], [b"once"])


class AccessTests(AddressCase):
    """Access rules on addresses (T-16, T-31)."""

    def client_with(self, *rules: Rule, who: Principal = ALICE, **house: Any) -> Client:
        self.house = self.world.house(f"h{len(self.world.houses)}.test", access=rules, **house)
        return self.house.client(who).ready()

    def test_only_an_alias(self) -> None:
        """T-15, T-16: the service can be denied, and an alias granted."""
        self.world.house("b.test")
        client = self.client_with(Rule.of(who="user:alice", node="q@b.test", allow=["publish"]))
        unauthorized = "amqp:unauthorized-access"
        self.assertEqual(self.refused("sender", "amqp$transfer", client), unauthorized)
        self.assertEqual(self.refused("sender", None, client), unauthorized)
        self.assertEqual(self.refused("sender", "q", client), unauthorized)
        self.assertEqual(self.refused("receiver", "q", client), unauthorized)
        self.assertEqual(self.refused("sender", "r@b.test", client), unauthorized)
        self.assertIsNone(self.outcome("q@b.test", message(), client))

    def test_per_message(self) -> None:
        """T-16: on the service the rules are asked for each message's `to`."""
        client = self.client_with(
            Rule.of(who="user:alice", node="amqp$transfer", allow=["publish"]),
            Rule.of(who="user:alice", node="q", allow=["publish"]),
            nodes=["q", "r"],
        )
        self.assertIsNone(self.outcome("amqp$transfer", message(to="q"), client))
        for to in ("r", "q@b.test"):
            self.assertEqual(
                self.outcome("amqp$transfer", message(to=to), client),
                "amqp:unauthorized-access",
            )

    def test_dynamic(self) -> None:
        """E-05: to make a dynamic node takes a right of its own."""
        client = self.client_with(Rule.of(who="*", node="q", allow=["consume"]))
        source = spec.Source(dynamic=True)
        self.assertEqual(
            self.refused("receiver", None, client, source=source), "amqp:unauthorized-access"
        )

    def test_peer_to_local(self) -> None:
        """T-31: what a peer brings is delivered to the nodes that it may transfer to."""
        client = self.client_with(
            Rule.of(who="peer:*", node="q", allow=["transfer"]), who=PEER, nodes=["q", "r"]
        )
        self.assertIsNone(self.outcome("amqp$transfer", message(to="q"), client))
        self.assertEqual(
            self.outcome("amqp$transfer", message(to="r"), client), "amqp:unauthorized-access"
        )

    def test_no_open_relay(self) -> None:
        """T-31: a peer may not have messages relayed to third domains."""
        self.world.house("c.test")
        client = self.client_with(
            Rule.of(who="*", node="*", allow=["publish", "transfer"]), who=PEER
        )
        self.assertEqual(
            self.outcome("amqp$transfer", message(to="q@c.test"), client),
            "amqp:unauthorized-access",
        )
        self.assertEqual(self.refused("sender", "q@c.test", client), "amqp:unauthorized-access")

    def test_relay_for(self) -> None:
        """T-31: except where the operator has listed the domain for it."""
        delegated = ("b.test",)
        other = self.world.house("c.test", origins=delegated)
        client = self.client_with(
            Rule.of(who="*", node="*", allow=["transfer"]), who=PEER, relay_for=["c.test"]
        )
        self.assertIsNone(self.outcome("amqp$transfer", message(to="q@c.test"), client))
        self.world.advance(1)
        self.assertEqual(other.depth(), 1)


class RelayTests(AddressCase):
    """From one broker to the next (T-08 to T-11, T-20 to T-30, T-36 to T-39)."""

    def setUp(self) -> None:
        super().setUp()
        self.other = self.world.house("b.test", nodes=["q"])

    def send(self, *bodies: bytes, **properties: Any) -> None:
        for body in bodies:
            header = spec.Header(durable=True)
            encoded = message(body, header=header, to="q@b.test", **properties)
            self.assertIsNone(self.outcome("amqp$transfer", encoded))

    def bodies(self) -> list[bytes]:
        return [section_of(each, spec.SECTION_DATA) for each in self.take(self.other)]

    def test_names_are_their_container_s(self) -> None:
        """N-05: one name denotes a node of its own in each container."""
        self.send(b"there")
        self.assertIsNone(self.outcome("q", message(b"here")))
        self.world.advance(1)
        self.assertEqual(self.bodies(), [b"there"])
        bodies = [section_of(each, spec.SECTION_DATA) for each in self.take(self.house)]
        self.assertEqual(bodies, [b"here"])

    def test_arrives(self) -> None:
        """T-09, T-38, M-02: bare message and `to` arrive octet for octet."""
        encoded = message(
            b"x" * 50_000,
            application={"a": 1},
            to="q@b.test",
            message_id=b"id",
            annotations={"x-opt-mine": 1},
        ) + section(spec.SECTION_FOOTER, {Symbol("x-opt-f"): b"f"})
        self.assertIsNone(self.outcome("amqp$transfer", encoded))
        self.world.advance(1)
        (got,) = self.take(self.other)
        self.assertEqual(bare(got), bare(encoded))
        annotations = section_of(got, spec.SECTION_MESSAGE_ANNOTATIONS)
        self.assertEqual(annotations["x-opt-mine"], 1)
        self.assertEqual(list(annotations["x-opt-amqproute-trace"]), ["a.test"])

    def test_peer_is_down(self) -> None:
        """T-10, T-20: accepted once it is safe here, whether the peer is there or not."""
        self.world.down.add("amqp.b.test")
        self.send(b"1", b"2", b"3")
        self.assertEqual(self.other.depth(), 0)
        self.world.down.clear()
        self.world.advance(400)
        self.assertEqual(self.bodies(), [b"1", b"2", b"3"])

    def test_one_connection(self) -> None:
        """T-35: one connection for all messages to a hop, on demand."""
        self.assertEqual(self.world.connects, [])
        self.send(b"1", b"2", b"3")
        self.world.advance(1)
        self.assertEqual(self.world.connects, [("amqp.b.test", "b.test")])

    def test_idle_connection_closes(self) -> None:
        """T-35: it is closed when it is idle, and made again on demand."""
        self.send(b"1")
        self.world.advance(1)
        self.assertEqual(len(self.world.wires), 1)
        for _ in range(10):
            self.world.advance(30)
        self.assertEqual(len(self.world.wires), 0)
        self.send(b"2")
        self.world.advance(1)
        self.assertEqual(self.bodies(), [b"1", b"2"])

    def test_next_candidate(self) -> None:
        """T-35, A-11: where the first place does not answer, the next is asked."""
        self.world.domains["b.test"] = ["dead.b.test", "amqp.b.test"]
        self.send(b"1")
        self.world.advance(1)
        self.assertEqual(self.bodies(), [b"1"])

    def test_wrong_name(self) -> None:
        """T-18, T-19, A-14: to who does not prove the domain nothing is sent."""
        self.world.house("c.test")
        self.world.domains["b.test"] = ["amqp.c.test"]
        self.send(b"1")
        self.world.advance(30)
        self.assertEqual(self.world.houses["amqp.c.test"].frontends, [])

    def test_connection_lost(self) -> None:
        """T-22, T-36: a lost connection loses nothing, and nothing arrives twice."""
        self.send(b"1")
        self.world.advance(1)
        self.other.store.is_held = True
        self.send(b"2", b"3")
        self.world.cut_all()
        self.other.store.let_go()
        self.world.advance(400)
        self.assertEqual(self.bodies(), [b"1", b"2", b"3"])

    def test_order(self) -> None:
        """T-24: the order of arrival is kept per next hop."""
        self.send(*(b"%d" % n for n in range(30)))
        self.world.advance(1)
        self.assertEqual(self.bodies(), [b"%d" % n for n in range(30)])

    def test_rejected_there(self) -> None:
        """T-23, T-26: what the next hop rejects comes back to who asked for it."""
        encoded = message(
            b"lost",
            header=spec.Header(durable=True),
            to="nobody@b.test",
            reply_to="r",
            annotations={"x-opt-return-to": "r"},
        )
        self.assertIsNone(self.outcome("amqp$transfer", encoded))
        self.world.advance(2)
        (returned,) = self.take(self.house, "r")
        self.assertEqual(bare(returned), bare(encoded))
        annotations = section_of(returned, spec.SECTION_MESSAGE_ANNOTATIONS)
        self.assertEqual(annotations["x-opt-dead-letter-reason"], "rejected")
        self.assertNotIn("x-opt-return-to", annotations)

    def test_reply_to_is_not_return_to(self) -> None:
        """T-26: reply-to is not where failures go."""
        encoded = message(to="nobody@b.test", reply_to="r")
        self.assertIsNone(self.outcome("amqp$transfer", encoded))
        self.world.advance(2)
        self.assertEqual(self.take(self.house, "r"), [])

    def test_lifetime(self) -> None:
        """T-30, D-11: time in the relay queue counts."""
        self.world.down.add("amqp.b.test")
        for seconds in (10, 1000):
            header = spec.Header(durable=True, ttl=seconds * 1000)
            encoded = message(b"%d" % seconds, header=header, to="q@b.test")
            self.assertIsNone(self.outcome("amqp$transfer", encoded))
        self.world.advance(60)
        self.world.down.clear()
        self.world.advance(300)
        (got,) = self.take(self.other)
        self.assertEqual(section_of(got, spec.SECTION_DATA), b"1000")
        self.assertLess(header_of(got).ttl, 940_000)

    def test_undeliverable(self) -> None:
        """T-28: what cannot be sent for five days is given up, and returned."""
        self.world.down.add("amqp.b.test")
        self.send(b"old", annotations={"x-opt-return-to": "r"})
        for _ in range(6 * 24):
            self.world.advance(3600)
        (returned,) = self.take(self.house, "r")
        annotations = section_of(returned, spec.SECTION_MESSAGE_ANNOTATIONS)
        self.assertIn(annotations["x-opt-dead-letter-reason"], ("expired", "undeliverable"))

    def test_back_off(self) -> None:
        """T-28: attempts grow rarer, and do not stop."""
        self.world.down.add("amqp.b.test")
        self.send(b"1")
        times = []
        before = len(self.world.connects)
        for second in range(2000):
            self.world.advance(1)
            if len(self.world.connects) > before:
                before = len(self.world.connects)
                times.append(second)
        gaps = [later - earlier for earlier, later in pairwise(times)]
        self.assertGreater(len(gaps), 5)
        self.assertEqual(gaps, sorted(gaps))
        self.assertLessEqual(max(gaps), 360)

    def test_unsettled(self) -> None:
        """T-21: the relay wants an outcome for what it sends."""
        self.send(b"1")
        self.world.advance(1)
        (frontend,) = self.other.frontends
        (link,) = frontend.links.attached
        self.assertNotEqual(link.snd_settle_mode, spec.SENDER_SETTLED)

    def test_three_hops(self) -> None:
        """T-11, T-27: each hop repeats the same on the same `to`; the trace tells of it."""
        world = Network()
        world.house("a.test", nodes=[])
        middle = world.house("b.test", nodes=[], relay_for=["c.test"])
        last = world.house("c.test", nodes=["q"], origins=("a.test",))
        peer = Principal("peer", "a.test", frozenset({"a.test"}))
        client = middle.client(peer).ready("a.test")
        traced = message(b"m", to="q@c.test", annotations={"x-opt-amqproute-trace": ["a.test"]})
        self.assertIsNone(self.outcome("amqp$transfer", traced, client))
        world.advance(1)
        (got,) = self.take(last)
        self.assertEqual(bare(got), bare(traced))
        annotations = section_of(got, spec.SECTION_MESSAGE_ANNOTATIONS)
        self.assertEqual(list(annotations["x-opt-amqproute-trace"]), ["a.test", "b.test"])

    def test_duplicates(self) -> None:
        """T-36: the same entry of the same stream is taken once, also on a new connection."""
        properties = {Symbol("amqproute:stream"): "their-store"}
        for _ in range(2):
            client = self.house.client(PEER).ready("b.test")
            client.sender("amqp$transfer", properties=properties)
            tag = (7).to_bytes(8, "big")
            client.publish(0, message(to="q"), delivery_tag=tag)
            self.assertIsInstance(client.one(spec.Disposition).state, spec.Accepted)
            client.hang_up()
        self.assertEqual(self.house.depth(), 1)

    def test_identity(self) -> None:
        """T-39, L-10: the peer's container-id, no domain, is on record and in the link's name."""
        self.other._settings["container_id"] = "broker-7"
        self.send(b"1")
        self.world.advance(1)
        self.assertEqual(self.house.relay.destinations["b.test"].remote_id, "broker-7")
        (frontend,) = self.other.frontends
        (link,) = frontend.links.attached
        self.assertEqual(link.name, "broker-7/b.test")

    def test_static_route(self) -> None:
        """T-08, T-11: a static route comes before the DNS; the hop need not be the domain."""
        world = Network()
        gateway = world.house("b.test", nodes=[], relay_for=["c.test"])
        last = world.house("c.test", nodes=["q"], origins=("a.test",))
        route = RouteRule("*", "amqps://amqp.b.test:5671", names=("b.test",))
        client = world.house("a.test", routes=[route]).client().ready()
        encoded = message(to="q@c.test")
        self.assertIsNone(self.outcome("amqp$transfer", encoded, client))
        world.advance(2)
        self.assertNotEqual(gateway.frontends, [])
        self.assertEqual(bare(self.take(last)[0]), encoded)
        self.assertEqual(world.asked, ["c.test"] * len(world.asked))

    def test_anonymous_target(self) -> None:
        """T-34: a route may send to the anonymous terminus, or to a node by a template."""
        for number, target in enumerate(("anonymous", "/queues/{node}")):
            world = Network()
            other = world.house("b.test", access=PEERS_PUBLISH)
            route = RouteRule("b.test", None, target)
            client = world.house("a.test", routes=[route]).client().ready()
            self.assertIsNone(self.outcome("q@b.test", message(), client), number)
            world.advance(2)
            self.assertEqual(other.depth(), 1, target)

    def test_full_there(self) -> None:
        """T-23, Q-15: what finds no room at the next hop is tried again; nothing is lost."""
        world = Network()
        near = world.house("a.test", nodes=["dead"])
        far = world.house("b.test", nodes=[NodeDeclaration("q", QueueLimits(capacity=2))])
        client = near.client().ready()
        for number in range(6):
            self.assertIsNone(self.outcome("q@b.test", message(b"%d" % number), client))
        got: list[bytes] = []
        for _ in range(60):
            world.advance(30)
            got.extend(section_of(each, spec.SECTION_DATA) for each in self.take(far))
        self.assertEqual(sorted(got), [b"%d" % number for number in range(6)])

    def test_forbidden_there(self) -> None:
        """T-23, T-26: a refusal for good is told to who asked for it, with the peer's words."""
        world = Network()
        near = world.house("a.test", nodes=["back"])
        world.house("b.test", access=[Rule.of(who="peer:*", node="r", allow=["transfer"])])
        client = near.client().ready()
        encoded = message(to="q@b.test", annotations={"x-opt-return-to": "back"})
        self.assertIsNone(self.outcome("amqp$transfer", encoded, client))
        world.advance(2)
        (returned,) = self.take(near, "back")
        annotations = section_of(returned, spec.SECTION_MESSAGE_ANNOTATIONS)
        self.assertIn("unauthorized-access", annotations["x-opt-dead-letter-description"])

    def test_credit(self) -> None:
        """T-29: the relay sends no more than the next hop grants."""
        world = Network()
        near = world.house("a.test", nodes=[])
        far = world.house("b.test", nodes=["q"], limits={"link_credit": 5})
        far.store.is_held = True
        client = near.client().ready()
        for number in range(20):
            header = spec.Header(durable=True)
            self.assertIsNone(
                self.outcome("q@b.test", message(b"%d" % number, header=header), client)
            )
        world.advance(1)
        (frontend,) = far.frontends
        self.assertEqual(frontend.connection.deliveries_in, 5)
        far.store.let_go()
        world.advance(5)
        self.assertEqual(far.depth(), 20)


def _properties(**fields: Any) -> bytes:
    return codec.encode(spec.Properties(**fields))
