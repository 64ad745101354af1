# SPDX-License-Identifier: Apache-2.0
"""``amqp$transfer`` and the aliases: every row on permitted targets (topic T)."""

from __future__ import annotations

import json
from dataclasses import replace
from timeit import timeit
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from amqproute.address import TRANSFER_NODE as TRANSFER
from amqproute.address import parse
from amqproute.auth.policy import AccessPolicy, Rule, Verb
from amqproute.broker.receipts import MAX_IDS, MAX_STREAMS, PRUNE_EVERY, Receipts, Stream
from amqproute.errors import (
    AmqpError,
    MessageSizeExceeded,
    NotAllowed,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
    UnauthorizedAccess,
    Unresolved,
)
from amqproute.interfaces import ITarget
from amqproute.journal.record import RecordKind
from amqproute.message import Message, encode_annotations
from amqproute.routing.table import Router
from amqproute.routing.trail import TRACE
from amqproute.services.transfer import AliasTarget, PartnerRules, TransferRules, TransferService
from amqproute.values import SERVICE_BYTES, Local, NextHop, Origin, Principal, RouteRule
from amqproute.wire.amqp10 import codec, sections, spec
from tests.support.fakes import KeptStore, make_broker, message, node, settle_down

ANN = Principal("user", "ann")
BETA = Principal("peer", "beta.example", frozenset({"beta.example"}))
CLIENT = Origin(ANN)


def peer(stream: Any = None, tag: bytes = b"") -> Origin:
    """Return how a peer's messages come."""
    return Origin(BETA, True, "beta-1", stream, tag)


class Hops:
    """The ways out: a queue for each domain, or what the test says."""

    def __init__(self, broker: Any) -> None:
        self.broker = broker
        self.refusals: dict[str, Exception] = {}

    def check(self, hop: NextHop) -> None:
        if hop.key in self.refusals:
            raise self.refusals[hop.key]

    def target(self, hop: NextHop, origin: Origin) -> Any:
        self.check(hop)
        return self.broker.make_internal(f"amqp$out/{hop.key}", self.broker.nodes["q"].limits)


class TransferCase(SynchronousTestCase):
    """A transfer service of alpha.example with the nodes ``q`` and ``secret``."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.store = KeptStore(self.clock)
        self.broker = make_broker(self.clock, self.store, node("q"), node("secret"))
        self.hops = Hops(self.broker)
        self.service = TransferService(self.broker, self.hops, self.rules())
        self.broker.services[TRANSFER] = self.service

    def rules(self, **changes: Any) -> TransferRules:
        """Return rules: ann may publish to all but ``secret``, peers transfer to ``q`` only."""
        policy = AccessPolicy(
            [
                Rule.of(who="user:ann", node="secret", deny=["publish"]),
                Rule.of(who="user:ann", node="*@forbidden.example", deny=["publish"]),
                Rule.of(who="user:ann", node="*", allow=["publish"]),
                Rule.of(who="peer:*", node="q", allow=["transfer"]),
            ]
        )
        fields: dict[str, Any] = {
            "own_id": "alpha-1",
            "router": Router(
                ["alpha.example", "alpha-1"],
                [RouteRule("tpl.example", "amqps://gw.example", "/queues/{node}")],
            ),
            "allows": policy.allows,
            "partners": PartnerRules(lambda _: ("*.friends.example", "gamma.example")),
            "max_hops": 3,
            **changes,
        }
        return TransferRules(**fields)

    def put(self, to: str | None, origin: Origin = CLIENT, target: Any = None, **kind: Any) -> None:
        """Put one message and commit."""
        self.put_message(message(to=to, **kind), origin, target)

    def put_message(self, given: Message, origin: Origin = CLIENT, target: Any = None) -> None:
        """Put this message and commit."""
        batch = self.broker.begin()
        (target or self.service).put(given, batch, origin)
        batch.commit()
        settle_down(self.clock)

    def depth(self, name: str) -> int:
        """Return how many messages a node or the way to a domain has."""
        queue = self.broker.nodes.get(name) or self.broker.internal.get(f"amqp$out/{name}")
        return queue.depth if queue is not None else 0

    def last(self, name: str) -> Message:
        """Return the message on the way to a domain."""
        return Message(self.store.rows(f"amqp$out/{name}")[-1].encoded)

    def assertRefused(
        self, kind: type[AmqpError], to: str | None, origin: Origin = CLIENT, **more: Any
    ) -> AmqpError:
        """Prove that it is refused, and nothing is kept."""
        before = sum(queue.depth for queue in self.broker.internal.values())
        error: AmqpError = self.assertRaises(kind, self.put, to, origin, **more)
        settle_down(self.clock)
        self.assertEqual(before, sum(queue.depth for queue in self.broker.internal.values()))
        return error


class RoutingTests(TransferCase):
    """The target of `to`."""

    def test_interfaces(self) -> None:
        """Service and alias are targets."""
        verifyObject(ITarget, self.service)
        hop = NextHop("beta.example", "beta.example")
        alias = self.service.alias("q@beta.example", parse("q@beta.example"), hop)
        verifyObject(ITarget, alias)
        self.assertGreater(min(alias.space(), self.service.space()), 1000)

    def test_local(self) -> None:
        """No domain, or one of ours: a node here (T-06, T-07)."""
        for to in ("q", "q@alpha.example", "q@ALPHA.example.", "q@alpha-1"):
            self.put(to)
        self.assertEqual((self.depth("q"), self.service.tally.local), (4, 4))

    def test_relayed(self) -> None:
        """Another domain: its relay queue, byte for byte (T-08, T-09)."""
        sent = message(b"body", to="q@Beta.example", annotations={"x-opt-a": 1})
        self.put_message(sent)
        self.assertEqual(self.last("beta.example").encoded, sent.encoded)
        self.assertEqual(self.service.tally.relayed, 1)

    def test_template(self) -> None:
        """A peer that wants nodes in its addresses has a way for each node (T-34)."""
        self.put("a@tpl.example")
        self.put("b@tpl.example")
        self.assertEqual([self.depth(f"gw.example:5671/{name}") for name in "ab"], [1, 1])

    def test_without_to(self) -> None:
        """Missing, empty or no address at all (T-25)."""
        for to in (None, "", "q@", "q@-.example", "q@10.1.1.1"):
            self.assertRefused(PreconditionFailed, to)
        self.assertRefused(PreconditionFailed, "@alpha.example")

    def test_no_such_node(self) -> None:
        """A node that is not here (T-25)."""
        self.assertRefused(NotFound, "nowhere")
        self.assertRefused(NotFound, "nowhere@alpha.example")

    def test_no_such_domain(self) -> None:
        """Proof of non-existence refuses; not knowing asks (T-25)."""
        self.hops.refusals["gone.example"] = NotFound("dns.nxdomain")
        self.assertRefused(NotFound, "q@gone.example")
        hop = NextHop("new.example", "new.example")
        self.hops.refusals["new.example"] = Unresolved(hop)
        error = self.assertRaises(Unresolved, self.put, "q@new.example")
        self.assertEqual(error.hop, hop)

    def test_services_are_not_for_transfer(self) -> None:
        """Services cannot be reached by `to` (T-32)."""
        for to in (TRANSFER, f"{TRANSFER}@alpha.example", "$management@alpha.example",
                   "amqp$admin", "$management"):  # fmt: skip
            for origin in (CLIENT, peer()):
                self.assertRefused(NotAllowed, to, origin)

    def test_reload(self) -> None:
        """New rules count from the next message on."""
        self.service.reload(self.rules(own_id="alpha-2", router=Router(["new.example"])))
        self.put("q@new.example")
        self.assertEqual(self.depth("q"), 1)
        self.put("q", annotations={TRACE: ["alpha-1"]})
        self.assertRefused(NotAllowed, "q", annotations={TRACE: ["alpha-2"]})

    def test_broken_properties(self) -> None:
        """Properties that do not decode are the sender's fault, in its own condition."""
        broken = Message(b"\x00\x53\x73\xc0\x04\x03\x40\x40\x42" + b"\x00\x53\x75\xa0\x00")
        self.assertRaises(AmqpError, self.put_message, broken)


class Service:
    """A service that keeps what it is asked."""

    name = "$management"

    def __init__(self) -> None:
        self.asked: list[Message] = []

    def put(self, message: Message, batch: Any, origin: Origin) -> None:
        self.asked.append(message)


class RemoteServiceTests(TransferCase):
    """Services that the configuration opens to messages (T-32)."""

    def setUp(self) -> None:
        super().setUp()
        self.management = Service()
        self.broker.services["$management"] = self.management
        self.open("$management", TRANSFER)

    def open(self, *names: str) -> None:
        """Have these services open; the peer may manage ``$management``, and nobody else."""
        policy = AccessPolicy(
            [
                Rule.of(who="peer:beta.example", node="$management", allow=["manage"]),
                Rule.of(who="user:ann", node="*", allow=["publish"]),
            ]
        )
        self.service.reload(self.rules(remote_services=frozenset(names), allows=policy.allows))

    def test_acts(self) -> None:
        """A request of whoever may manage the service gets there, by each of its spellings."""
        for to in ("$management", "$management@alpha.example", "/queues/%24management"):
            self.put(to, peer())
        self.assertEqual(len(self.management.asked), 3)

    def test_right(self) -> None:
        """The right to publish everywhere is not enough: it takes `manage` on the service."""
        self.assertRefused(UnauthorizedAccess, "$management")
        self.assertRefused(NotAllowed, "amqp$admin", peer())
        self.assertEqual(self.management.asked, [])

    def test_right_each_time(self) -> None:
        """A refused request does not open the service to the next one of its batch."""
        batch = self.broker.begin()
        for _ in range(2):
            given = message(to="$management")
            self.assertRaises(UnauthorizedAccess, self.service.put, given, batch, CLIENT)
        batch.abandon()
        self.assertEqual(self.management.asked, [])

    def test_never_the_transfer_service(self) -> None:
        """``amqp$transfer`` is none of them, whatever the list says."""
        for to in (TRANSFER, f"{TRANSFER}@alpha.example", f"{TRANSFER}@beta.example"):
            for origin in (CLIENT, peer()):
                self.assertRefused(NotAllowed, to, origin)

    def test_elsewhere(self) -> None:
        """A service of another domain is a destination if it is listed, and only then."""
        self.put("$management@beta.example")
        self.assertEqual(self.depth("beta.example"), 1)
        hop = NextHop("beta.example", "beta.example")
        alias = self.service.alias("@beta.example", parse("@beta.example"), hop)
        self.put("$management@beta.example", target=alias)
        self.assertEqual(self.depth("beta.example"), 2)
        for to in ("amqp$admin@beta.example", "/queues/amqp%24admin%40beta.example"):
            self.assertRefused(NotAllowed, to)
            self.assertRefused(NotAllowed, to, target=alias)
        self.open()
        self.assertRefused(NotAllowed, "$management@beta.example")
        self.assertRefused(NotAllowed, "$management@beta.example", target=alias)

    def test_once(self) -> None:
        """A request that a peer repeats is not carried out again (T-36)."""
        stream = Receipts().stream(BETA, "their-store", lambda _: None)
        for _ in range(2):
            self.put("$management", peer(stream, (7).to_bytes(8, "big")))
        self.assertEqual(len(self.management.asked), 1)

    def test_rehearsed(self) -> None:
        """A rehearsal, and a transaction, carry nothing out; the latter says so."""
        batch = self.broker.begin()
        batch.is_rehearsal = True
        self.service.put(message(to="$management"), batch, peer())
        batch.abandon()
        batch = self.broker.begin()
        batch.is_transactional = True
        given = message(to="$management")
        self.assertRaises(NotAllowed, self.service.put, given, batch, peer())
        batch.abandon()
        self.assertEqual(self.management.asked, [])

    def test_too_large(self) -> None:
        """A request is in memory as a whole, so there is a bound, as on a link to the service."""
        self.assertRefused(MessageSizeExceeded, "$management", peer(), body=b"x" * SERVICE_BYTES)
        self.assertEqual(self.management.asked, [])


class RightsTests(TransferCase):
    """Rights (T-16, T-31)."""

    def test_clients(self) -> None:
        """A client may publish where the rules let it, here and elsewhere."""
        self.assertRefused(UnauthorizedAccess, "secret")
        self.assertRefused(UnauthorizedAccess, "x@forbidden.example")
        self.assertRefused(UnauthorizedAccess, "q", Origin(Principal("user", "bob")))

    def test_spellings(self) -> None:
        """Another spelling of an address has no other rights (A-01, A-22)."""
        for to in ("/queues/secret", "/queues/s%65cret", "/queues/secret%40alpha.example"):
            self.assertRefused(UnauthorizedAccess, to)
            self.assertRefused(UnauthorizedAccess, to, peer())
        self.assertRefused(NotFound, "/queues/%2Fqueues%2Fsecret")
        self.assertRefused(NotAllowed, "/queues/amqp%24transfer")
        self.assertRefused(NotAllowed, "/queues/%24management")
        for to in ("x@FORBIDDEN.example", "x@forbidden.example.", "/queues/x%40forbidden.example"):
            self.assertRefused(UnauthorizedAccess, to)
            self.assertFalse(self.service.may_return_to(to, CLIENT), to)
        self.assertRefused(UnauthorizedAccess, "/queues/x%40third.example", peer())
        self.put("/queues/q")
        self.put("/queues/x%40Gamma.example", peer())
        self.assertEqual((self.depth("q"), self.depth("gamma.example")), (1, 1))

    def test_batch(self) -> None:
        """Messages of a batch with one sender and one address are checked once, others each."""
        asked: list[tuple[Principal, str]] = []
        allows = self.rules().allows

        def counted(principal: Principal, verb: Verb, name: str) -> bool:
            asked.append((principal, name))
            return allows(principal, verb, name)

        self.service.reload(self.rules(allows=counted))
        partner = peer()
        for _ in range(2):
            batch = self.broker.begin()
            for to, origin, error in (
                ("q", CLIENT, None),
                ("q", CLIENT, None),
                ("q", Origin(ANN), None),  # who may be in other groups
                ("secret", CLIENT, UnauthorizedAccess),
                ("q", CLIENT, None),
                ("q", partner, None),
                ("secret", partner, UnauthorizedAccess),
                ("x@beta.example", CLIENT, None),
                ("x@beta.example", CLIENT, None),
                ("x@beta.example", partner, UnauthorizedAccess),
            ):
                if error is None:
                    self.service.put(message(to=to), batch, origin)
                else:
                    self.assertRaises(error, self.service.put, message(to=to), batch, origin)
            batch.commit()
            settle_down(self.clock)
            self.assertEqual(
                asked,
                [
                    *((ANN, name) for name in ("q", "q", "secret", "q")),
                    *((BETA, name) for name in ("q", "secret")),
                    (ANN, "x@beta.example"),
                ],
            )
            asked.clear()
        self.assertEqual((self.depth("q"), self.depth("beta.example")), (10, 4))

    def test_peers_deliver(self) -> None:
        """A peer may transfer to local nodes that the rules name."""
        self.put("q@alpha.example", peer())
        self.assertEqual(self.depth("q"), 1)
        self.assertRefused(UnauthorizedAccess, "secret@alpha.example", peer())

    def test_no_open_relay(self) -> None:
        """A peer's messages continue only to the domains it is relayed for."""
        error = self.assertRefused(UnauthorizedAccess, "x@third.example", peer())
        self.assertEqual(error.info, {"code": "route.relay"})
        self.assertRefused(UnauthorizedAccess, "x@friends.example", peer())
        self.put("x@gamma.example", peer())
        self.put("x@a.friends.example", peer())
        self.assertEqual((self.depth("gamma.example"), self.depth("a.friends.example")), (1, 1))


class ReturnTests(TransferCase):
    """A message may be returned (T-26) where its sender might send it itself."""

    def test_clients(self) -> None:
        """A client's own rights count, for nodes here and for addresses elsewhere."""
        for address, may in (
            ("q", True),
            ("q@alpha.example", True),
            ("ann@beta.example", True),
            ("secret", False),
            ("x@forbidden.example", False),
            ("$management", False),
            ("amqp$transfer@alpha.example", False),
            ("@alpha.example", False),
            ("x@", False),
            ("", False),
            (7, False),
            (None, False),
        ):
            self.assertEqual(self.service.may_return_to(address, CLIENT), may, address)

    def test_peers(self) -> None:
        """A peer's messages go back to itself, or where it is relayed, or where it may transfer."""
        for address, may in (
            ("x@beta.example", True),
            ("x@gamma.example", True),
            ("x@third.example", False),
            ("q", True),
            ("secret", False),
        ):
            self.assertEqual(self.service.may_return_to(address, peer()), may, address)


class TrailTests(TransferCase):
    """Loops (T-27)."""

    def test_loop(self) -> None:
        """A message that was here before is refused, wherever it is for."""
        for to in ("q", "q@gamma.example"):
            for origin in (CLIENT, peer()):
                error = self.assertRefused(
                    NotAllowed, to, origin, annotations={TRACE: ["alpha-1", "beta-1"]}
                )
                self.assertIn("alpha-1 > beta-1 > alpha-1", error.description)

    def test_too_far(self) -> None:
        """So is one that has seen too many containers."""
        self.put("q", peer(), annotations={TRACE: ["a", "b"]})
        self.assertRefused(NotAllowed, "q", peer(), annotations={TRACE: ["a", "b", "c"]})

    def test_long(self) -> None:
        """A stranger's text does not make the refusal as long as the message."""
        long = "x" * 100_000
        for to, trace in (("q", ["alpha-1", long]), ("q", [long] * 4), (f"amqp${long}", [])):
            error = self.assertRefused(NotAllowed, to, peer(), annotations={TRACE: trace})
            self.assertLess(len(error.description), 1100)
            self.assertLess(len(str(error)), 1200)

    def test_unreadable(self) -> None:
        """So is one whose path cannot be read, large or small."""
        for trace in (7, ["a", 7], "a", ["a" * 600, 7]):
            self.assertRefused(NotAllowed, "q", annotations={TRACE: trace})

    def test_large(self) -> None:
        """Annotations that are too large to be remembered are looked at all the same."""
        self.put("q", annotations={"x-opt-a": "x" * 1000})
        large = {"x-opt-a": "x" * 1000, TRACE: ["alpha-1"]}
        self.assertRefused(NotAllowed, "q", annotations=large)


class AliasTests(TransferCase):
    """``x@y`` and ``@y`` as targets (T-12 to T-15)."""

    def alias(self, text: str) -> AliasTarget:
        """Return the target of a link to an alias."""
        hop = self.service.rules.router.route(text)
        assert not isinstance(hop, Local)
        return self.service.alias(text, parse(text), hop)

    def test_agrees(self) -> None:
        """`to` that says the same passes, in any spelling, untouched (T-14)."""
        alias = self.alias("q@beta.example")
        for to in ("q@beta.example", "q@BETA.example.", "q@beta.example"):
            self.put(to, target=alias)
        self.assertEqual(self.depth("beta.example"), 3)

    def test_supplied(self) -> None:
        """An absent `to` is supplied, and nothing else changes (T-14)."""
        header = codec.encode(spec.Header(durable=True))
        sent = Message(
            header + codec.encode(spec.Properties(subject="s")) + b"\x00\x53\x75\xa0\x01x"
        )
        self.put_message(sent, target=self.alias("q@beta.example"))
        kept = self.last("beta.example")
        self.assertEqual((kept.to, kept.properties.subject), ("q@beta.example", "s"))
        self.assertTrue(kept.encoded.endswith(b"\x00\x53\x75\xa0\x01x"))

    def test_not_supplied(self) -> None:
        """Not where it is forbidden, and not under a signature (M-25)."""
        alias = self.alias("q@beta.example")
        self.assertRefused(PreconditionFailed, None, target=alias, footer={"x-opt-sig": "s"})
        self.service.reload(self.rules(insert_to=False))
        self.assertRefused(PreconditionFailed, None, target=alias)

    def test_differs(self) -> None:
        """Another `to` is refused, never overwritten (T-14)."""
        alias = self.alias("q@beta.example")
        for to in ("r@beta.example", "q", "q@alpha.example", "Q@beta.example", "", "@"):
            self.assertRefused(PreconditionFailed, to, target=alias)

    def test_any_node_of_a_domain(self) -> None:
        """``@y`` takes a bare name or one with its own domain (T-15)."""
        alias = self.alias("@beta.example")
        self.put("q", target=alias)
        self.put("r@beta.example", target=alias)
        self.assertEqual(self.depth("beta.example"), 2)
        self.assertRefused(NotAllowed, "q@gamma.example", target=alias)
        self.assertRefused(NotAllowed, "q@alpha.example", target=alias)
        self.assertRefused(PreconditionFailed, None, target=alias)
        self.assertRefused(NotAllowed, f"{TRANSFER}@beta.example", target=alias)

    def test_any_node_by_template(self) -> None:
        """``@y`` leads each node on its way where the route says so."""
        alias = self.alias("@tpl.example")
        self.put("a@tpl.example", target=alias)
        self.put("b", target=alias)
        self.assertEqual([self.depth(f"gw.example:5671/{name}") for name in "ab"], [1, 1])

    def test_counted_loops(self) -> None:
        """A loop is counted wherever it is found: by the claim of an origin, and by the trail."""
        section = encode_annotations({TRACE: ["alpha-1"]})
        self.assertRaises(NotAllowed, self.service.check_trail, section)
        self.assertEqual(self.service.tally.loops, 1)

    def test_loops(self) -> None:
        """The trace is looked at here too."""
        self.assertRefused(
            NotAllowed,
            None,
            target=self.alias("q@beta.example"),
            annotations={TRACE: ["alpha-1"]},
        )


BETA = Principal("peer", "beta.example", frozenset({"beta.example"}))


class ReceiptTests(TransferCase):
    """Once and only once (T-36)."""

    def setUp(self) -> None:
        super().setUp()
        self.receipts = Receipts()
        self.forgotten: list[str] = []
        self.stream = self.receipts.stream(BETA, "s", self.forgotten.append)

    def origin(self, number: int) -> Origin:
        """Return the origin of a numbered message."""
        return peer(self.stream, number.to_bytes(8, "big"))

    def test_duplicates(self) -> None:
        """A second arrival leaves the node unchanged (Q-28)."""
        for number in (1, 2, 1, 2, 3):
            self.put("q", self.origin(number))
        self.assertEqual((self.depth("q"), self.service.tally.duplicates), (3, 2))
        self.assertEqual((len(self.receipts), self.receipts.duplicates), (3, 2))
        self.assertEqual(self.store.received, {"beta.example/s": {1, 2, 3}})

    def test_duplicates_are_in_the_journal(self) -> None:
        """Each arrival that is not kept is a record: what came, from whom, under which number."""
        self.put("q", replace(self.origin(1), store="beta-store"))
        self.put("q", replace(self.origin(2), store="beta-store"))
        self.assertEqual([run.kind for run in self.store.audit.runs], [RecordKind.RECEIVED] * 2)
        self.put("q", replace(self.origin(2), store="beta-store"))
        *_, run = self.store.audit.runs
        told = json.loads(run.shared) | json.loads(run.columns)
        self.assertEqual((run.kind, run.count), (RecordKind.DUPLICATE, 1))
        self.assertEqual(
            (told["node"], told["sender"], told["from_stream"], told["from_entry"]),
            ("q", "peer:beta.example", "beta-store", 2),
        )
        self.assertNotIn("entry", told)
        rehearsal = self.broker.begin()
        rehearsal.is_rehearsal = True
        self.service.put(message(to="q"), rehearsal, self.origin(2))
        self.assertEqual(rehearsal.came, [])

    def test_after_a_restart(self) -> None:
        """Receipts come back with the store."""
        self.put("q", self.origin(7))
        self.receipts = Receipts()
        self.receipts.recovered(self.store.recovery().received)
        self.stream = self.receipts.stream(BETA, "s", self.forgotten.append)
        self.put("q", self.origin(7))
        self.assertEqual(self.depth("q"), 1)

    def test_message_ids(self) -> None:
        """A peer of another make is known by the message-ids, where that is wanted."""
        self.receipts.suppresses = lambda _: True
        known = self.receipts.by_message_id(BETA)

        def put(message_id: str | None) -> None:
            properties = codec.encode(spec.Properties(to="q", message_id=message_id))
            body = sections.encode_section(spec.SECTION_DATA, b"x")
            batch = self.broker.begin()
            self.service.put(Message(properties + body), batch, peer(known, b"any tag"))
            batch.commit()
            settle_down(self.clock)

        for message_id in ("a", "b", "a", None, None):
            put(message_id)
        self.assertEqual((self.depth("q"), self.service.tally.duplicates), (4, 1))
        self.receipts = Receipts(lambda _: True)
        self.receipts.recovered(self.store.recovery().received)
        known = self.receipts.by_message_id(BETA)
        put("b")
        self.assertEqual(self.depth("q"), 4)

    def test_refused_messages_leave_no_receipt(self) -> None:
        """A refused message is checked again when it comes again."""
        self.hops.refusals["gamma.example"] = NotFound("gone")
        self.assertRefused(NotFound, "q@gamma.example", self.origin(1))
        self.hops.refusals.clear()
        self.put("q@gamma.example", self.origin(1))
        self.assertEqual(self.depth("gamma.example"), 1)

    def test_under_way(self) -> None:
        """A message that is not safe yet is neither kept twice nor said to be safe."""
        batch = self.broker.begin()
        self.service.put(message(to="q"), batch, self.origin(1))
        self.assertRaises(ResourceLocked, self.service.put, message(to="q"), batch, self.origin(1))
        self.store.is_failing = True
        failed = batch.commit()
        settle_down(self.clock)
        self.failureResultOf(failed)
        self.store.is_failing = False
        self.put("q", self.origin(1))
        self.assertEqual(self.depth("q"), 1)

    def test_tags(self) -> None:
        """A tag that is no id, or none that a store can keep, is refused."""
        for tag in (b"", b"1", bytes(9), b"\xff" * 8, b"\x80" + bytes(7)):
            self.assertRefused(PreconditionFailed, "q", peer(self.stream, tag))
        self.put("q", self.origin((1 << 63) - 1))

    def test_forget_below(self) -> None:
        """Receipts below the floor are forgotten, many at a time."""
        stream = Stream("k", range(1000))
        transaction = self.store.begin()
        self.assertFalse(stream.forget_below(PRUNE_EVERY - 1, transaction))
        self.assertEqual(len(stream.ids), 1000)
        self.assertTrue(stream.forget_below(500, transaction))
        self.assertEqual(stream.ids, set(range(500, 1000)))
        self.assertFalse(stream.forget_below(100, transaction))
        self.assertTrue(stream.forget_below(1000, transaction))
        self.assertFalse(stream.forget_below(1001, transaction))
        self.assertFalse(stream.forget_below(-1, transaction))
        stream.forget_below(1 << 64, transaction)
        self.assertLess(stream.floor, 1 << 63)

    def test_many_floors(self) -> None:
        """A floor costs what it forgets, however many receipts there are."""
        stream = Stream("k", [0, *range(1_000_000, 1_000_000 + MAX_IDS - 1)])
        transaction = self.store.begin()
        seconds = timeit(lambda: stream.forget_below(stream.floor + 100, transaction), number=5000)
        self.assertEqual(len(stream.ids), MAX_IDS)
        self.assertLess(seconds, 1.0)  # milliseconds; ten seconds if all were looked at

    def test_bounds(self) -> None:
        """A peer cannot fill the memory with receipts or with streams."""
        stream = Stream("k", range(MAX_IDS + 1))
        stream.trim(self.store.begin())
        self.assertLessEqual(len(stream.ids), MAX_IDS)
        stream.forget_below(1 << 62, self.store.begin())
        stream.confirm(range(MAX_IDS + 1))  # its word on the floor is worth nothing
        stream.trim(self.store.begin())
        self.assertLessEqual(len(stream.ids), MAX_IDS)
        gamma = Principal("peer", "gamma.example", frozenset({"gamma.example"}))
        for number in range(MAX_STREAMS + 5):
            made = self.receipts.stream(gamma, f"{number}", self.forgotten.append)
            made.confirm([1])
        self.assertEqual(self.forgotten, [f"gamma.example/{number}" for number in range(5)])
        self.assertIs(self.receipts.stream(BETA, "s", self.forgotten.append), self.stream)
