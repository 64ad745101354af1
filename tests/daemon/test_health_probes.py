# SPDX-License-Identifier: Apache-2.0
"""Health checks and readiness: what asking costs, and who is told what."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.daemon.health_probes import (
    DNS_SECONDS,
    REALMS_SECONDS,
    SURVEY_SECONDS,
    HealthProbes,
    Readiness,
    UnknownCheck,
)
from amqproute.daemon.reactor_delay import INTERVAL_SECONDS, ReactorDelay
from amqproute.resolver.dnssec_probe import DnssecCapability
from amqproute.services.health_checks import CHECKS, CheckState, JournalCheckFacts, StoreFacts
from amqproute.services.health_rules import BrokerFacts, HealthLimits, HealthVerdict
from amqproute.services.management_node import BAD_REQUEST, NOT_FOUND, OK, ManagementReply
from amqproute.services.management_protocol import ManagementRequest
from amqproute.values import Principal


class Survey:
    """A survey that counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.verdicts: list[dict[str, object]] = []

    def status(self, request: object) -> Deferred[ManagementReply]:
        """See `HealthSurvey.status`."""
        self.asked += 1
        codes = [str(each["code"]) for each in self.verdicts]
        counts = {code: codes.count(code) for code in codes}
        return succeed(ManagementReply.of(OK, "", {"verdicts": self.verdicts, "counts": counts}))


class NameServers:
    """Name servers that answer when the test wants it."""

    def __init__(self) -> None:
        self.asked = 0
        self.waiting: Deferred[str] | None = None
        self.capability = DnssecCapability(True, "the root is signed")

    async def servers_answer(self, name: str, seconds: float) -> str:
        """See `SrvResolver.servers_answer`."""
        self.asked += 1
        return "" if self.waiting is None else await self.waiting

    async def dnssec(self) -> DnssecCapability:
        """See `SrvResolver.dnssec`."""
        return self.capability


class Sources:
    """A daemon whose facts the test chooses."""

    def __init__(self) -> None:
        self.failure: str | None = None
        self.is_started = True
        self.is_stopping = False
        self.facts = BrokerFacts()
        self.listeners = {"tcp:5672": True}
        self.own_domain = "alpha.example"
        self.realms: dict[str, str] = {}
        self.probed = 0
        self.probing: list[Deferred[str]] | None = None
        self.requires_dnssec = False

    def broker_facts(self) -> BrokerFacts:
        """See `ReadinessSources`."""
        return self.facts

    def open_listeners(self) -> dict[str, bool]:
        """See `ReadinessSources`."""
        return self.listeners

    def store_facts(self) -> StoreFacts:
        """See `HealthSources`."""
        return StoreFacts(free=1 << 40, floor=1)

    def journal_facts(self) -> JournalCheckFacts:
        """See `HealthSources`."""
        return JournalCheckFacts()

    def health_limits(self) -> HealthLimits:
        """See `HealthSources`."""
        return HealthLimits()

    def realm_probes(self) -> dict[str, Callable[[], Deferred[str]]]:
        """See `HealthSources`."""

        def probe(name: str) -> Deferred[str]:
            self.probed += 1
            if self.probing is not None:
                self.probing.append(Deferred())
                return self.probing[-1]
            return succeed(self.realms[name])

        return {name: partial(probe, name) for name in self.realms}


class ProbesTests(SynchronousTestCase):
    """Checks, and their cost."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.clock.advance(1000)
        self.survey, self.servers = Survey(), NameServers()
        self.sources = Sources()
        self.probes = HealthProbes(
            self.clock,
            self.survey,  # type: ignore[arg-type]
            self.servers,
            self.sources,
        )

    def check(self, name: str = "", within: float | None = None) -> list[Any]:
        """Run checks."""
        return self.successResultOf(Deferred.fromCoroutine(self.probes.check(name, within)))

    def test_all(self) -> None:
        """Without a name all checks are run, in the order of the table."""
        results = self.check()
        self.assertEqual([each.name for each in results], list(CHECKS))
        self.assertEqual({each.state for each in results}, {CheckState.OK})

    def test_cost(self) -> None:
        """A check asks for what it needs only; answers are used again for a while."""
        self.check("clock")
        self.assertEqual((self.survey.asked, self.servers.asked), (0, 0))
        for _ in range(10):
            self.check()
        self.assertEqual((self.survey.asked, self.servers.asked), (1, 1))
        self.clock.advance(SURVEY_SECONDS)
        self.check()
        self.assertEqual((self.survey.asked, self.servers.asked), (2, 1))
        self.clock.advance(DNS_SECONDS)
        self.check("dns")
        self.assertEqual(self.servers.asked, 2)

    def test_shared_question(self) -> None:
        """A request during a query of name servers waits for the same answer."""
        self.servers.waiting = Deferred()
        asked = [Deferred.fromCoroutine(self.probes.check("dns")) for _ in range(3)]
        self.assertEqual(self.servers.asked, 1)
        self.servers.waiting.callback("dns.unreachable: nobody")
        for each in asked:
            (result,) = self.successResultOf(each)
            self.assertEqual((result.state, result.words), ("failed", "dns.unreachable: nobody"))

    def test_broken_question(self) -> None:
        """If asking fails unexpectedly, those who wait are not left alone."""
        self.servers.waiting = Deferred()
        asked = [Deferred.fromCoroutine(self.probes.check("dns")) for _ in range(2)]
        self.servers.waiting.errback(ValueError("broken"))
        self.failureResultOf(asked[0], ValueError)
        self.successResultOf(asked[1])

    def test_realms(self) -> None:
        """Outside realms are asked together, and not for each check."""
        self.sources.realms = {"ldap": "it is down", "oauth a": ""}
        self.check("clock")
        self.assertEqual(self.sources.probed, 0)
        for _ in range(3):
            (result,) = self.check("realms")
            self.assertEqual((result.state, result.words), ("failed", "ldap: it is down"))
            self.assertEqual(result.subjects, ("ldap",))
        self.assertEqual(self.sources.probed, 2)
        self.clock.advance(REALMS_SECONDS)
        self.sources.probing = []
        asked = [Deferred.fromCoroutine(self.probes.check("realms")) for _ in range(3)]
        self.assertEqual(self.sources.probed, 4)
        for each in self.sources.probing:
            each.callback("")
        for every in asked:
            self.assertEqual(self.successResultOf(every)[0].state, "ok")

    def test_dnssec(self) -> None:
        """Name servers without DNSSEC are a warning, or a failure if it is required."""
        self.servers.capability = DnssecCapability(False, "no AD bit")
        for required, state in ((False, "warning"), (True, "failed")):
            self.sources.requires_dnssec = required
            self.clock.advance(DNS_SECONDS)
            self.assertEqual(self.check("dnssec")[0].state.value, state)

    def test_verdicts(self) -> None:
        """Results of the survey are in the checks."""
        self.survey.verdicts = [HealthVerdict("peer.unreachable", "beta.example", "waits").row()]
        (result,) = self.check("destinations")
        self.assertEqual((result.state.value, result.subjects), ("failed", ("beta.example",)))

    def test_unknown(self) -> None:
        """An unknown name is refused."""
        self.failureResultOf(Deferred.fromCoroutine(self.probes.check("x")), UnknownCheck)

    def reply(self, name: str = "", **body: object) -> ManagementReply:
        """Ask as by $management."""
        request = ManagementRequest("HEALTH", {"name": name}, body, Principal("uid", "0"))
        return self.successResultOf(self.probes._answer(request))

    def test_management(self) -> None:
        """The operation HEALTH has the same results, and refuses what is wrong."""
        found = self.reply("clock")
        self.assertEqual((found.status, found.body["state"]), (OK, "ok"))
        self.assertEqual(len(self.reply().body["checks"]), len(CHECKS))  # type: ignore[arg-type]
        self.assertEqual(self.reply("x").status, NOT_FOUND)
        for wrong in (-1, "7", True, 1e12, float("nan")):
            self.assertEqual(self.reply(**{"within-seconds": wrong}).status, BAD_REQUEST, wrong)
        self.sources.facts = BrokerFacts(certificates=(("CN=a", 100.0),))
        found = self.reply("certificates", **{"within-seconds": 99})
        self.assertEqual(found.body["state"], "ok")
        self.assertEqual(self.reply("certificates").body["state"], "failed")


class ReadinessTests(SynchronousTestCase):
    """Liveness and readiness."""

    def setUp(self) -> None:
        self.sources = Sources()
        self.readiness = Readiness(self.sources)

    def test_ready(self) -> None:
        """A daemon that works is alive and ready."""
        self.assertEqual((self.readiness.why_dead(), self.readiness.why_not_ready()), ([], []))

    def test_reasons(self) -> None:
        """Each reason against it is told; one that ends only a part is none."""
        for name, value, words in (
            ("failure", "the writer died", "the writer died"),
            ("is_started", False, "the daemon starts"),
            ("is_stopping", True, "the daemon stops"),
            ("listeners", {"tcp:5671": False}, "closed: tcp:5671"),
            ("facts", BrokerFacts(marks=(("disk", "full"),)), "disk: full"),
            ("facts", BrokerFacts(draining="draining"), "draining"),
        ):
            before = getattr(self.sources, name)
            setattr(self.sources, name, value)
            self.assertEqual(self.readiness.why_not_ready(), [words])
            self.assertEqual(bool(self.readiness.why_dead()), name == "failure")
            setattr(self.sources, name, before)
        self.sources.facts = BrokerFacts(marks=(("outgoing", "much"), ("destinations", "one")))
        self.assertEqual(self.readiness.why_not_ready(), [])

    def test_report(self) -> None:
        """Reasons are shown to those who may see them only."""
        self.assertEqual(Readiness.report([], False), (200, {"status": "ok"}))
        self.assertEqual(Readiness.report(["x"], False), (503, {"status": "failed"}))
        self.assertEqual(
            Readiness.report(["x"], True), (503, {"status": "failed", "reasons": ["x"]})
        )


class ReactorDelayTests(SynchronousTestCase):
    """The measurement of the reactor's delay."""

    def test_delay(self) -> None:
        """A timer that is called late counts how late."""
        clock = Clock()
        delay = ReactorDelay(clock)
        delay.start()
        clock.advance(INTERVAL_SECONDS)
        self.assertEqual((delay.counts.cumulative()[-1], delay.longest), (1, 0.0))
        clock.rightNow += 0.75  # the reactor is busy
        clock.advance(0)
        self.assertEqual(delay.counts.cumulative()[-1], 2)
        self.assertAlmostEqual(delay.longest, 0.5)
        self.assertAlmostEqual(delay.counts.total, 0.5)
        delay.stop()
        self.assertEqual(clock.getDelayedCalls(), [])
