# SPDX-License-Identifier: Apache-2.0
"""Connection tests as an operation of management: who may start one, how many run, how they end."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.address import Address
from amqproute.auth.policy import Verb
from amqproute.config.schema import Config
from amqproute.daemon import peer_tester
from amqproute.daemon.peer_test import FAILED, OK, PeerTestStep
from amqproute.daemon.peer_tester import MOST_TESTS, TEST_SECONDS, DaemonPeerTester
from amqproute.routing.table import Router
from amqproute.services.dns_flush import DnsFlush
from amqproute.services.management_node import ManagementReply, ManagementRequest
from amqproute.values import NextHop, Principal


class WaitingTest:
    """A `PeerTest` that waits."""

    begun: list[WaitingTest] = []

    def __init__(
        self, config: Config, _: object, address: Address, probe: str, size: int, made: object
    ) -> None:
        self.config = config
        self.steps: list[PeerTestStep] = []
        self.is_ended = False
        self.address, self.probe, self.size, self.made = address, probe, size, made
        self.seen_as = ""
        self.waiting: Deferred[None] = Deferred()
        self.begun.append(self)

    @property
    def is_good(self) -> bool:
        """Whether no step is bad."""
        return all(step.code == OK for step in self.steps)

    def note(self, step: str, place: str, state: str, code: str, words: str) -> None:
        """Note a step."""
        self.steps.append(PeerTestStep(step, place, state, 1.0, code, words))

    async def run(self) -> None:
        """Wait."""
        await self.waiting


class TesterTests(SynchronousTestCase):
    """Rights, bounds, answers."""

    def setUp(self) -> None:
        self.patch(peer_tester, "PeerTest", WaitingTest)
        self.patch(WaitingTest, "begun", [])
        self.addCleanup(self.finish)
        self.forgotten: list[NextHop] = []
        self.rights: list[tuple[Principal, Verb, str]] = []
        self.is_allowed = True
        config = Config.model_construct(domains=("alpha.example",))
        router = Router(["alpha.example"])
        self.clock = Clock()
        reactor: Any = self.clock
        memory: Any = self
        flush = DnsFlush(memory, lambda: router, self.allows)
        self.tester = DaemonPeerTester(lambda: config, reactor, tuple, flush)

    def forget(self, hop: NextHop) -> None:
        """Take note of what is forgotten."""
        self.forgotten.append(hop)

    def allows(self, principal: Principal, verb: Verb, name: str) -> bool:
        """Take note of what is asked for."""
        self.rights.append((principal, verb, name))
        return self.is_allowed

    def finish(self) -> None:
        """End the tests that run."""
        for each in WaitingTest.begun:
            if not each.waiting.called:
                each.waiting.callback(None)

    def start(self, to: str, **body: object) -> Deferred[ManagementReply]:
        ann = Principal("user", "ann")
        request = ManagementRequest("TEST-PEER", {"name": to}, body, ann)
        return Deferred.fromCoroutine(self.tester._reply(request))

    def test_right(self) -> None:
        """The right on the relay queue is asked for; without it nothing is connected."""
        self.is_allowed = False
        reply = self.successResultOf(self.start("x.example"))
        self.assertEqual((reply.status, WaitingTest.begun, self.forgotten), (403, [], []))
        self.assertIn("may not manage", reply.description)
        self.assertEqual(
            self.rights, [(Principal("user", "ann"), Verb.MANAGE, "amqp$out/x.example")]
        )

    def test_bounds(self) -> None:
        """One runs for a domain at a time, and few in all; a place is free again at the end."""
        running = [self.start(f"x{n}.example") for n in range(MOST_TESTS)]
        for to in ("x0.example", "orders@x0.example", "y.example"):
            reply = self.successResultOf(self.start(to))
            self.assertEqual(reply.status, 409, to)
            self.assertIn("other tests are running", reply.description, to)
        self.assertEqual(len(self.forgotten), MOST_TESTS)
        WaitingTest.begun[0].waiting.callback(None)
        self.assertEqual(self.successResultOf(running[0]).body["code"], "ok")
        self.assertNoResult(self.start("y.example"))

    def test_answer(self) -> None:
        """It is what the command prints: each step with its cure, also the usual one of a code."""
        running = self.start("orders@x.example", size=700)
        walk = WaitingTest.begun[0]
        self.assertEqual((walk.size, walk.address.node), (700, "orders"))
        walk.note("dns", "", FAILED, "dns.bogus", "broken")
        walk.note("tls", "", FAILED, "tls.expired", "too old")
        walk.waiting.callback(None)
        reply = self.successResultOf(running)
        self.assertEqual(reply.status, 200)
        self.assertEqual(reply.description, "messages cannot go there: too old")
        self.assertEqual(reply.body["domain"], "x.example")
        self.assertEqual(reply.body["address"], "orders@x.example")
        self.assertEqual((reply.body["probe"], reply.body["code"]), (walk.probe, "tls.expired"))
        steps: Any = reply.body["steps"]
        self.assertIn("DNSSEC is broken", steps[0]["next"])
        self.assertIn("has to renew it", steps[1]["next"])

    def test_end(self) -> None:
        """A test that takes too long is ended, and its answer has what was found."""
        running = self.start("x.example")
        WaitingTest.begun[0].note("dns", "", OK, OK, "found")
        self.clock.advance(TEST_SECONDS - 1)
        self.assertNoResult(running)
        self.clock.advance(1)
        reply = self.successResultOf(running)
        self.assertEqual(reply.body["code"], "peer.timeout")
        steps: Any = reply.body["steps"]
        self.assertEqual([each["step"] for each in steps], ["dns", "configuration"])
        self.assertNoResult(self.start("x.example"))

    def test_invalid(self) -> None:
        """What is no address of another broker is told, and nothing is asked."""
        for to in ("", "orders@", "x" * 300, "orders@alpha.example", "alpha.example"):
            reply = self.successResultOf(self.start(to))
            self.assertEqual(reply.status, 400, to)
        self.assertEqual((WaitingTest.begun, self.forgotten), ([], []))
