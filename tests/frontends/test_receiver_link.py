# SPDX-License-Identifier: Apache-2.0
"""Clients that send: acceptance, credit, refusals, names that need a look-up."""

from __future__ import annotations

from typing import Any

from twisted.logger import LogEvent, LogLevel, formatEvent, globalLogPublisher

from amqproute import conditions
from amqproute.auth.policy import Rule
from amqproute.broker.node_limits import QueueLimits
from amqproute.errors import ResolveError
from amqproute.frontends.amqp10.receiver_link import FLOOR
from amqproute.frontends.common.frontend_limits import FrontendLimits
from amqproute.frontends.common.peer_error_log import FAULT_SECONDS, MOST_LOGGED_FAULTS
from amqproute.message import Message
from amqproute.routing.trail import TRACE
from amqproute.values import EXACTLY_ONCE_CAPABILITY, RETURN_TO, Principal
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.types import Symbol
from amqproute.wire.engine import EngineBase
from tests.support.asserts import HouseTestCase
from tests.support.fakes import message, node, put
from tests.support.memory_broker import Client, MemoryBroker, Network, Wire
from tests.support.wire import AMQP, frame
from tests.support.wire import attach as attach_of
from tests.support.wire import transfer as transfer_of

BETA = Principal("peer", "beta.example", frozenset({"beta.example"}))


class InboundCase(HouseTestCase):
    """A house with the nodes ``q`` and ``full``, and a client."""

    def setUp(self) -> None:
        super().setUp()
        self.network = Network(self.clock)
        self.build()

    def build(self, **options: Any) -> None:
        """Build the house and connect the client."""
        options.setdefault("limits", FrontendLimits(link_credit=10))
        self.house = MemoryBroker(
            self.network, "alpha.example", node("q"), node("full", capacity=3), **options
        )
        self.client = self.house.client()
        self.run_now()


class AcceptanceTests(InboundCase):
    """Responsibility is taken when the message is safe (T-20)."""

    def test_after_the_commit(self) -> None:
        """`accepted` and the commit are one; nothing is said before."""
        link = self.client.sender("q")
        self.run_now()
        commits: list[int] = []
        apply = self.house.store._apply

        def watched(transaction: Any) -> None:
            commits.append(len(self.client.updates))
            apply(transaction)

        self.house.store._apply = watched  # type: ignore[method-assign]
        self.client.send(link, message(b"1"), message(b"2"))
        self.run_now()
        self.assertEqual(commits, [0])
        self.assertOutcomes(self.client, "Accepted", "Accepted")
        self.assertEqual([settled for _, _, settled in self.client.updates], [True, True])
        self.assertEqual(self.house.bodies("q"), [b"1", b"2"])

    def test_one_batch_for_all_links(self) -> None:
        """The messages of one read are one commit."""
        links = [self.client.sender("q", f"out{number}") for number in range(3)]
        self.run_now()
        before = self.house.store.statistics()["transactions"]
        for link in links:
            self.client.send(link, message())
        self.run_now()
        self.assertEqual(self.house.store.statistics()["transactions"], before + 1)
        self.assertEqual(self.house.depth("q"), 3)

    def test_presettled(self) -> None:
        """Settled messages are taken without a word."""
        link = self.client.sender("q")
        self.run_now()
        self.client.send(link, message(b"1"), settled=True)
        self.run_now()
        self.assertEqual((self.client.updates, self.house.depth("q")), ([], 1))

    def test_settling_second(self) -> None:
        """If the sender settles first, the receiver only states the outcome."""
        link = self.client.sender(
            "q",
            rcv_settle_mode=spec.RECEIVER_SECOND,
            desired_capabilities=(EXACTLY_ONCE_CAPABILITY,),
        )
        self.run_now()
        self.client.send(link, message(b"1"))
        self.run_now()
        self.assertEqual(
            [(type(state), settled) for _, state, settled in self.client.updates],
            [(spec.Accepted, False)],
        )
        self.assertEqual(link.unsettled, {})

    def test_store_fails(self) -> None:
        """Messages that were not stored are not accepted; the link ends, the connection stays."""
        link = self.client.sender("q")
        self.run_now()
        self.house.store.is_failing = True
        self.client.send(link, message(b"1"))
        self.run_now()
        self.assertGreaterEqual(len(self.flushLoggedErrors()), 1)
        self.assertDetached(self.client, link, conditions.INTERNAL_ERROR)
        self.assertEqual((self.client.updates, self.house.depth("q")), ([], 0))
        self.house.store.is_failing = False
        again = self.client.sender("q", "again")
        self.run_now()
        self.client.send(again, message(b"1"))
        self.run_now()
        self.assertEqual(self.house.bodies("q"), [b"1"])

    def test_lost_before_the_commit(self) -> None:
        """A connection that goes while the store works does no harm."""
        link = self.client.sender("q")
        self.run_now()
        self.client.send(link, message(b"1"))
        self.step(3)
        self.client.wire.cut()  # type: ignore[attr-defined]
        self.run_now()
        self.assertEqual(self.house.shared.connections, set())
        self.assertEqual(self.house.amqp10.links, {})

    def test_one_off(self) -> None:
        """From header to close in one write: stored, and closed cleanly (W-22)."""
        engine, frontend = self.house.accept(Principal("user", "ann"))
        client = _Silent()

        wire = Wire(self.clock, (_Mute(), client), (engine, frontend))
        begin = spec.Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10)
        wire.right.receive(
            b"".join(
                (
                    AMQP,
                    frame(spec.Open(container_id="once")),
                    frame(begin),
                    frame(attach_of(target=spec.Target(address="q"))),
                    frame(transfer_of(0), message(b"once").encoded),
                    frame(spec.Detach(handle=0, closed=True)),
                    frame(spec.End()),
                    frame(spec.Close()),
                )
            )
        )
        self.run_now()
        self.assertEqual(self.house.bodies("q"), [b"once"])
        self.assertTrue(engine.is_closed)


class _Mute(EngineBase):
    """An engine that says nothing."""

    def receive_data(self, data: bytes, now: float, budget: int | None = None) -> list[Any]:
        """Nothing."""
        return []


class _Silent:
    """A user that does nothing."""

    def connected(self, pump: Any) -> None:
        """Nothing."""

    def lost(self, reason: Any) -> None:
        """Nothing."""


class CreditTests(InboundCase):
    """Credit is the only brake (F-02, T-29)."""

    def test_bytes(self) -> None:
        """Large messages that wait for the disk stop the reading, not the other way round."""
        self.build(limits=FrontendLimits(uncommitted_bytes=1000))
        link = self.client.sender("q")
        self.run_now()
        (frontend,) = self.house.shared.connections
        end = frontend._pump
        held: list[bool] = []
        apply = self.house.store._apply

        def watched(transaction: Any) -> None:
            held.append(end.is_held)
            apply(transaction)

        self.house.store._apply = watched  # type: ignore[method-assign]
        for body, is_failing in ((b"s", False), (b"l" * 1000, False), (b"l" * 1000, True)):
            self.house.store.is_failing = is_failing
            self.client.send(link, message(body))
            self.run_now()
            self.assertFalse(end.is_held)
        self.assertEqual(held, [False, True, True])
        self.assertEqual(len(self.flushLoggedErrors()), 1)

    def test_bytes_of_the_greediest(self) -> None:
        """With little memory left the largest holder is not read; the others and credit go on."""
        self.build(limits=FrontendLimits(link_credit=50, memory_bytes=8 * 1024 * 1024))
        (greedy,) = self.house.shared.connections
        other = self.house.client()
        self.run_now()
        (modest,) = self.house.shared.connections - {greedy}
        links = {self.client: self.client.sender("q"), other: other.sender("q", "other")}
        self.run_now()
        held: list[tuple[bool, bool]] = []
        apply = self.house.store._apply

        def watched(transaction: Any) -> None:
            held.append((greedy._pump.is_held, modest._pump.is_held))
            apply(transaction)

        self.house.store._apply = watched  # type: ignore[method-assign]
        self.client.send(links[self.client], *[message(b"l" * 200_000) for _ in range(30)])
        other.send(links[other], message(b"s"))
        self.run_now()
        self.assertIn((True, False), held)
        self.assertNotIn(True, [is_held for _, is_held in held])
        self.assertEqual((greedy._pump.is_held, self.house.broker.gate.closed), (False, 0))
        self.assertEqual(self.house.depth("q"), 31)

    def test_topped_up(self) -> None:
        """A sender that goes on finds credit."""
        link = self.client.sender("q")
        self.run_now()
        self.assertEqual(link.credit, 10)
        for number in range(50):
            self.client.send(link, message(b"%d" % number))
            self.run_now()
            self.assertGreaterEqual(link.credit, 4)
        self.assertEqual(self.house.depth("q"), 50)

    def test_not_before_the_commit(self) -> None:
        """Uncommitted deliveries count against the credit."""
        link = self.client.sender("q")
        self.run_now()
        self.house.store._turn, turn = (lambda: None), self.house.store._turn  # type: ignore
        self.client.send(link, *[message()] * 10)
        self.run_now()
        self.assertEqual(link.credit, 0)
        self.house.store._turn = turn  # type: ignore[method-assign]
        turn()
        self.run_now()
        self.assertEqual(link.credit, 10)

    def test_full(self) -> None:
        """A full node gives no credit, and gives it again when there is room (Q-15)."""
        link = self.client.sender("full")
        self.run_now()
        self.assertEqual(link.credit, 3)
        self.client.send(link, *[message()] * 3)
        self.run_now()
        self.assertEqual(link.credit, 0)
        late = self.client.sender("full", "late")
        self.run_now()
        self.assertEqual(late.credit, 0)
        taker = self.house.client()
        taker.receiver("full", 10)
        self.run_now()
        taker.settle(taker.deliveries, spec.Accepted())
        self.run_now()
        self.assertEqual(sorted((link.credit, late.credit)), [1, 2])

    def test_other_capacity(self) -> None:
        """A changed capacity is shared out at once, larger or smaller (Q-15)."""
        links = [self.client.sender("full", f"out{number}") for number in range(2)]
        self.run_now()
        self.client.send(links[0], message())
        self.run_now()
        queue = self.house.broker.nodes["full"]
        for capacity, granted in ((1, 0), (5, 4), (0, 20), (3, 2)):
            queue.limits = QueueLimits(capacity=capacity)
            self.run_now()
            self.assertEqual(sum(link.credit for link in links), granted, capacity)

    def test_shared_room(self) -> None:
        """Room is shared out, and never granted twice (F-02, F-03, F-11, Q-16)."""
        links = [self.client.sender("full", f"out{number}") for number in range(3)]
        self.run_now()
        self.assertEqual([link.credit for link in links], [1, 1, 1])
        for link in links[1:]:
            link.detach()
            self.client.flush()
            self.run_now()
        self.assertEqual(links[0].credit, 3)

    def test_overfull(self) -> None:
        """Messages sent before a cut of the credit are refused if they do not fit (F-04)."""
        link = self.client.sender("full")
        self.run_now()
        self.client.send(link, message())
        put(self.house.broker, self.house.broker.nodes["full"], *[message()] * 3)
        self.run_now()
        self.assertOutcomes(self.client, "Rejected")
        self.assertEqual((self.house.depth("full"), link.credit), (3, 0))

    def test_stop(self) -> None:
        """A daemon that stops revokes the credit and grants none."""
        link = self.client.sender("q")
        self.run_now()
        self.house.shared.is_stopping = True
        for frontend in self.house.shared.connections:
            frontend.stop_taking()
        self.run_now()
        self.assertEqual(link.credit, 0)
        other = self.client.sender("q", "other")
        self.run_now()
        self.assertEqual(other.credit, 0)
        for frontend in tuple(self.house.shared.connections):
            self.assertTrue(frontend.is_idle)
            frontend.close(conditions.CONNECTION_FORCED, "bye")
        self.run_now()
        self.assertEqual(str(self.client.closed.condition), "amqp:connection:forced")
        self.assertEqual(self.house.shared.connections, set())


class RefusalTests(InboundCase):
    """Refusals and their form (T-25)."""

    def test_rejected(self) -> None:
        """One message is rejected with its condition; the link goes on."""
        link = self.client.sender(None)
        self.run_now()
        self.client.send(link, message(to="nowhere"), message(to="q"), message())
        self.run_now()
        self.assertEqual(sorted(self.client.outcomes()), ["Accepted", "Rejected", "Rejected"])
        told = {tag: state for tag, state, _ in self.client.updates}
        self.assertEqual(told[b"0"].error.condition, "amqp:not-found")
        self.assertEqual(told[b"2"].error.condition, "amqp:precondition-failed")
        self.client.send(link, *[message(to="nowhere")] * 2)
        self.run_now()
        self.assertGreaterEqual(link.credit, 9)
        self.assertEqual(self.client.detached, {})

    def test_settled_already(self) -> None:
        """If nothing can be rejected the link is detached, and names the delivery."""
        link = self.client.sender(None)
        self.run_now()
        self.client.send(link, message(to="nowhere"), message(to="q"), settled=True)
        self.run_now()
        error = self.assertDetached(self.client, link, conditions.NOT_FOUND)
        self.assertEqual(error.info, {Symbol("delivery-tag"): b"0"})
        self.assertEqual(self.house.depth("q"), 0)

    def test_rejection_not_agreed(self) -> None:
        """The same where the source does not list that outcome."""
        source = spec.Source(address="here", outcomes=(Symbol("amqp:accepted:list"),))
        link = self.client.sender(None, source=source)
        self.run_now()
        self.client.send(link, message(to="nowhere"))
        self.run_now()
        error = self.assertDetached(self.client, link, conditions.NOT_FOUND)
        self.assertEqual(error.info, {Symbol("delivery-tag"): b"0"})

    def test_malformed(self) -> None:
        """A message that lies about its sections is rejected, and only that (M-24)."""
        good = message(b"1")
        for number, bad in enumerate(
            (
                b"junk",
                good.encoded[:-1],
                b"\x00\x53\x72\x45" + good.encoded,
                b"\x00\x53\x72\xc1\x04\x02\xa1\x01a\x40" + good.encoded[9:],
            )
        ):
            client = self.house.client()
            self.run_now()
            link = client.sender("q")
            self.run_now()
            client.send(link, good, Message(bad), good)
            self.run_now()
            # The rejection does not wait for the disk.
            self.assertEqual(sorted(client.outcomes()), ["Accepted", "Accepted", "Rejected"])
            (state,) = [s for _, s, _ in client.updates if isinstance(s, spec.Rejected)]
            self.assertEqual(str(state.error.condition), "amqp:decode-error")
            self.assertEqual((client.ended, client.closed), ([], None))
            self.assertTrue(link.is_active)
            self.assertEqual(self.house.depth("q"), 2 * (number + 1))

    def test_return_address(self) -> None:
        """A sender cannot have messages returned to a node that it may not send to (T-26)."""
        self.build(
            rules=[
                Rule.of(who="*", node="full", deny=["publish", "transfer"]),
                Rule.of(who="*", node="*", allow=["publish", "transfer"]),
            ]
        )
        link = self.client.sender("q")
        self.run_now()
        for address in ("full", "q"):
            self.client.send(link, message(annotations={RETURN_TO: address}))
            self.run_now()
        self.assertOutcomes(self.client, "Rejected", "Accepted")
        error = self.client.updates[0][1].error
        self.assertEqual(error.condition, "amqp:unauthorized-access")
        peer = self.house.client(BETA, container_id="ct-beta")
        link = peer.sender("amqp$transfer")
        self.run_now()
        for address in ("full", "x@third.example", "x@beta.example"):
            peer.send(link, message(to="q", annotations={RETURN_TO: address, "x-opt-a": 1}))
            self.run_now()
        self.assertOutcomes(peer, "Rejected", "Rejected", "Accepted")
        error = peer.updates[1][1].error
        self.assertEqual(
            (error.condition, error.info["code"]), ("amqp:not-allowed", "policy.origin")
        )
        self.assertEqual(error.info["claimed"], "x@third.example")
        (kept,) = [Message(row.encoded).annotations for row in self.house.store.rows("q")][1:]
        self.assertEqual((kept[RETURN_TO], kept["x-opt-a"]), ("x@beta.example", 1))

    def test_formats(self) -> None:
        """A message-format in which no `to` can be found is refused (T-03)."""
        link = self.client.sender(None)
        self.run_now()
        link.send((b"any bytes",), b"tag", message_format=99)
        self.client.flush()
        self.run_now()
        self.assertOutcomes(self.client, "Rejected")
        error = self.client.updates[0][1].error
        self.assertEqual(error.condition, "amqp:not-implemented")

    def test_node_goes(self) -> None:
        """A node that is deleted under a sender refuses what comes after."""
        owner = self.house.client()
        owner.receiver(None, source=spec.Source(dynamic=True))
        self.run_now()
        (name,) = self.house.broker.dynamic
        link = self.client.sender(name)
        self.run_now()
        owner.wire.cut()  # type: ignore[attr-defined]
        self.run_now()
        if link.name in self.client.detached:
            self.assertDetached(self.client, link, conditions.RESOURCE_DELETED)
            return
        self.client.send(link, message())
        self.run_now()
        self.assertOutcomes(self.client, "Rejected")


class AttachTests(InboundCase):
    """Targets (A-19)."""

    def assertRefused(self, condition: str, address: str | None, **fields: Any) -> None:
        """Prove that an attach is refused with a null target and a detach."""
        self.count = getattr(self, "count", 0) + 1
        link = self.client.sender(address, f"refused{self.count}", **fields)
        self.run_now()
        self.assertDetached(self.client, link, condition)
        self.assertEqual(self.house.amqp10.links, {})

    def test_refused(self) -> None:
        """Names that are nothing here, each with its condition."""
        self.assertRefused(conditions.NOT_FOUND, "nowhere")
        self.assertRefused(conditions.NOT_FOUND, "nowhere@alpha.example")
        self.assertRefused(conditions.INVALID_FIELD, "x@")
        self.assertRefused(conditions.NOT_ALLOWED, "amqp$transfer@alpha.example")
        self.assertRefused(conditions.NOT_ALLOWED, "amqp$transfer@beta.example")
        distributed = spec.Coordinator(capabilities=(spec.TXN_DISTRIBUTED,))
        self.assertRefused(conditions.NOT_IMPLEMENTED, None, target=distributed)
        self.assertRefused(
            conditions.INVALID_FIELD, None, target=spec.Target(address="q", dynamic=True)
        )

    def test_rights(self) -> None:
        """The access rules are asked for the address as attached (T-16)."""
        self.build(rules=[Rule.of(who="user:ann", node="@beta.example", allow=["publish"])])
        for address in ("q", None, "amqp$transfer", "x@beta.example", "@gamma.example"):
            self.assertRefused(conditions.UNAUTHORIZED_ACCESS, address)
        link = self.client.sender("@beta.example")
        self.run_now()
        self.assertEqual(self.client.detached.get(link.name), None)

    def logged(self) -> list[str]:
        """Return the warnings from now on, as they come."""
        lines: list[str] = []

        def observe(event: LogEvent) -> None:
            if event["log_level"] is LogLevel.warn:
                lines.append(formatEvent(event))

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        return lines

    def test_log(self) -> None:
        """A client that attaches in a loop does not fill the log."""
        lines = self.logged()
        for _ in range(MOST_LOGGED_FAULTS + 20):
            self.assertRefused(conditions.NOT_FOUND, "nowhere")
        self.assertEqual(len(lines), MOST_LOGGED_FAULTS)
        self.run_for(FAULT_SECONDS)
        self.assertRefused(conditions.NOT_FOUND, "somewhere")
        self.assertEqual(len(lines), MOST_LOGGED_FAULTS + 2)
        self.assertIn("20 more refusals like these were not logged", lines[-2])
        self.assertIn("'somewhere'", lines[-1])
        for number in range(MOST_LOGGED_FAULTS):
            self.client.sender("nowhere", f"{number}" * 10_000)
        self.run_now()
        self.assertLess(max(map(len, lines)), 600)
        self.client.pump.abort()
        self.run_now()
        self.assertIn("1 more refusals", lines[-1])

    def test_rights_by_any_name(self) -> None:
        """Another spelling of an address has no other rights (A-01, A-22)."""
        self.build(
            rules=[
                Rule.of(who="*", node="q", deny=["publish", "consume"]),
                Rule.of(who="*", node="*@Beta.example", deny=["publish"]),
                Rule.of(who="*", node="*", allow=["publish", "consume"]),
            ]
        )
        for address in ("/queues/q", "q@ALPHA.example.", "x@BETA.example", "x@beta.example.",
                        "/queues/x%40Beta.example"):  # fmt: skip
            self.assertRefused(conditions.UNAUTHORIZED_ACCESS, address)
        self.assertRefused(conditions.NOT_FOUND, "/queues/%2Fqueues%2Fq")
        link = self.client.receiver("/queues/%2Fqueues%2Fq")
        self.run_now()
        self.assertDetached(self.client, link, conditions.NOT_FOUND)

    def test_limits(self) -> None:
        """Links and dynamic nodes of a connection are counted."""
        self.build(limits=FrontendLimits(links=3, dynamic_nodes=1))
        first = self.client.sender(None, "d1", target=spec.Target(dynamic=True))
        self.run_now()
        assert isinstance(first.target, spec.Target)
        self.assertIn(first.target.address, self.house.broker.dynamic)
        second = self.client.sender(None, "d2", target=spec.Target(dynamic=True))
        self.run_now()
        self.assertDetached(self.client, second, conditions.RESOURCE_LIMIT_EXCEEDED)
        self.network.silent.update(("s1.example", "s2.example"))
        self.client.sender("x@s1.example", "w1")
        self.client.sender("x@s2.example", "w2")
        third = self.client.sender("q", "late")
        self.run_now()
        self.assertDetached(self.client, third, conditions.RESOURCE_LIMIT_EXCEEDED)

    def test_stolen(self) -> None:
        """The same link on another connection takes it over (L-09)."""
        link = self.client.sender("q")
        self.run_now()
        other = self.house.client()
        taken = other.sender("q")
        self.run_now()
        self.assertDetached(self.client, link, conditions.LINK_STOLEN)
        other.send(taken, message(b"1"))
        self.run_now()
        self.assertEqual(self.house.depth("q"), 1)
        self.assertEqual(len(self.house.amqp10.links), 1)
        stranger = self.house.client(container_id="another")
        stranger.sender("q")
        self.run_now()
        self.assertNotIn("out", other.detached)


class AdmissionTests(InboundCase):
    """Domains that nobody has asked about yet (T-25)."""

    def test_attach_waits(self) -> None:
        """The attach is answered when the DNS has answered."""
        MemoryBroker(self.network, "beta.example", node("orders"))
        link = self.client.sender("orders@beta.example")
        self.run_now()
        self.assertEqual(self.network.lookups[0], "beta.example")
        self.assertEqual(link.credit, 10)

    def test_unknown_domain(self) -> None:
        """Proof of non-existence refuses the attach, and is remembered."""
        self.network.errors["gone.example"] = ResolveError("dns.nxdomain", "no", permanent=True)
        for name in ("one", "two"):
            link = self.client.sender("x@gone.example", name)
            self.run_now()
            error = self.assertDetached(self.client, link, conditions.NOT_FOUND)
            self.assertEqual(error.info, {"code": "dns.nxdomain"})
            self.assertIsInstance(next(iter(error.info)), Symbol)
        self.assertEqual(self.network.lookups, ["gone.example"])
        self.assertEqual(self.house.broker.internal, {})

    def test_silence_is_no_proof(self) -> None:
        """A DNS that does not answer in time lets the message be taken."""
        self.network.silent.add("slow.example")
        link = self.client.sender("x@slow.example")
        self.run_now()
        self.assertEqual(link.credit, 0)
        self.run_for(6)
        self.assertEqual(link.credit, 10)
        self.client.send(link, message(b"1"))
        self.run_now()
        self.assertOutcomes(self.client, "Accepted")
        self.assertEqual(self.house.depth("slow.example"), 1)
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_pipelined(self) -> None:
        """Deliveries from before the answer are kept, in order."""
        self.network.silent.add("slow.example")
        link = self.client.sender("x@slow.example")
        self.step(4)
        grace = transfer_of(0, handle=0)
        frontend = next(iter(self.house.shared.connections))
        peer = self.client.wire.right  # type: ignore[attr-defined]
        self.run_now()
        for number in range(3):
            grace = transfer_of(number, handle=link.handle)
            peer.receive(frame(grace, message(b"%d" % number).encoded, 0))
        self.assertEqual(self.house.depth("slow.example"), 0)
        self.run_for(6)
        self.assertEqual(self.house.bodies("amqp$out/slow.example"), [b"0", b"1", b"2"])
        self.assertTrue(frontend.is_idle)

    def test_bytes(self) -> None:
        """Messages that wait for the DNS count like those that wait for the disk."""
        self.build(limits=FrontendLimits(uncommitted_bytes=5000))
        self.network.silent.add("slow.example")
        link = self.client.sender(None)
        self.run_now()
        (frontend,) = self.house.shared.connections
        large = message(b"x" * 3000, to="x@slow.example")
        self.client.send(link, large)
        self.run_now()
        self.assertFalse(frontend._pump.is_held)
        self.client.send(link, large)
        self.run_now()
        self.assertTrue(frontend._pump.is_held)
        self.run_for(6)
        self.assertFalse(frontend._pump.is_held)
        self.assertEqual(frontend._uncommitted_bytes, 0)
        self.assertEqual(self.house.depth("slow.example"), 2)

    def test_gone_while_waiting(self) -> None:
        """A link or connection that goes in the meantime leaves nothing."""
        self.network.silent.add("slow.example")
        link = self.client.sender("x@slow.example")
        self.run_now()
        other = self.house.client(container_id="other")
        other.sender("x@slow.example")
        self.run_now()
        link.detach()
        self.client.flush()
        other.wire.cut()  # type: ignore[attr-defined]
        self.run_for(6)
        self.assertEqual(self.house.amqp10.links, {})
        self.assertTrue(all(not each.links.attached for each in self.house.shared.connections))
        self.assertIsNone(self.client.closed)

    def test_settled_and_gone(self) -> None:
        """Messages sent settled during a look-up are taken, even if their sender is gone."""
        self.network.silent.add("slow.example")
        self.network.errors["gone.example"] = ResolveError("dns.nxdomain", "no", permanent=True)
        peer = self.client.wire.right  # type: ignore[attr-defined]
        for number, domain in enumerate(("slow.example", "gone.example")):
            link = self.client.sender(f"x@{domain}", f"out{number}")
            self.step(6)
            for each in range(2):
                given = transfer_of(2 * number + each, handle=link.handle, settled=not each)
                peer.receive(frame(given, message(b"%d" % each).encoded))
        self.client.wire.cut()  # type: ignore[attr-defined]
        self.run_for(6)
        self.assertEqual(self.house.bodies("amqp$out/slow.example"), [b"0"])
        self.assertEqual(self.house.depth("gone.example"), 0)
        self.assertEqual(self.house.shared.connections, set())
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_messages_wait(self) -> None:
        """On the anonymous node single messages wait, and those behind them keep their place."""
        self.network.silent.add("slow.example")
        self.network.errors["gone.example"] = ResolveError("dns.nxdomain", "no", permanent=True)
        link = self.client.sender(None)
        self.run_now()
        self.client.send(
            link,
            message(b"1", to="q"),
            message(b"2", to="x@slow.example"),
            message(b"3", to="x@gone.example"),
            message(b"4", to="q"),
        )
        self.run_now()
        self.assertOutcomes(self.client, "Accepted")
        self.assertEqual(self.house.depth("q"), 1)
        self.run_for(6)
        told = {tag: type(state).__name__ for tag, state, _ in self.client.updates}
        self.assertEqual(
            told, {b"0": "Accepted", b"1": "Accepted", b"2": "Rejected", b"3": "Accepted"}
        )
        self.assertEqual(self.house.bodies("q"), [b"1", b"4"])
        self.client.send(link, message(b"5", to="q"))
        self.run_now()
        self.assertEqual(link.credit, 10)
        self.assertEqual(self.flushLoggedErrors(), [])


class PeerTests(InboundCase):
    """Messages of another organization's broker."""

    def peer(self) -> Client:
        """Return a connected peer."""
        client = self.house.client(BETA, container_id="ct-beta")
        self.run_now()
        return client

    def attach(self, peer: Client, name: str = "relay", floor: Any = 1) -> Any:
        """Attach as an amqproute does."""
        properties = {Symbol("amqproute:stream"): "s", FLOOR: floor}
        link = peer.sender("amqp$transfer", name, properties=properties)
        self.run_now()
        return link

    def send(self, peer: Client, link: Any, *numbers: int, to: str = "q") -> None:
        """Send numbered messages."""
        for number in numbers:
            data = message(b"%d" % number, to=f"{to}@alpha.example").encoded
            link.send((data,), number.to_bytes(8, "big"))
        peer.flush()
        self.run_now()

    def test_duplicates(self) -> None:
        """A repeated id is accepted and not kept twice, over connections and restarts."""
        peer = self.peer()
        self.send(peer, self.attach(peer), 1, 2)
        again = self.peer()
        self.send(again, self.attach(again), 1, 2, 3)
        self.assertOutcomes(again, *["Accepted"] * 3)
        self.assertEqual(self.house.bodies("q"), [b"1", b"2", b"3"])
        self.house.crash()
        self.house = MemoryBroker(self.network, "alpha.example", node("q"), store=self.house.store)
        last = self.peer()
        self.send(last, self.attach(last), 3)
        self.assertEqual(self.house.depth("q"), 3)

    def test_floor(self) -> None:
        """A floor in a flow or an attach forgets; nonsense does no harm."""
        peer = self.peer()
        link = self.attach(peer)
        self.send(peer, link, *range(1, 6))
        self.assertEqual(len(self.house.receipts), 5)
        for floor in ("x", -1, True, 1 << 62):
            link.inform({FLOOR: floor})
            peer.flush()
            self.run_now()
        self.assertEqual(len(self.house.receipts), 0)
        self.attach(peer, "again", "nonsense")
        self.assertIsNone(peer.closed)

    def test_clients_have_no_streams(self) -> None:
        """Only a proved peer has receipts."""
        properties = {Symbol("amqproute:stream"): "s"}
        link = self.client.sender("amqp$transfer", properties=properties)
        self.run_now()
        self.client.send(link, message(to="q"))
        self.run_now()
        self.assertOutcomes(self.client, "Accepted")
        self.assertEqual(len(self.house.receipts), 0)

    def test_the_right_that_lacks(self) -> None:
        """A peer that attaches to a node hears of the right to transfer, which it lacks."""
        self.build(rules=[Rule.of(who="user:*", node="*", allow=["publish"])])
        peer = self.peer()
        link = peer.sender("q", "direct")
        self.run_now()
        error = self.assertDetached(peer, link, conditions.UNAUTHORIZED_ACCESS)
        self.assertIn("may not transfer on 'q'", error.description)

    def test_no_alias_for_peers(self) -> None:
        """A peer does not relay by an alias, and no loops."""
        peer = self.peer()
        link = peer.sender("x@gamma.example", "alias")
        self.run_now()
        self.assertDetached(peer, link, conditions.UNAUTHORIZED_ACCESS)
        relay = self.attach(peer)
        looping = message(to="q", annotations={TRACE: [self.house.id]})
        relay.send((looping.encoded,), bytes(8))
        peer.flush()
        self.run_now()
        self.assertEqual(peer.updates[0][1].error.condition, "amqp:not-allowed")
