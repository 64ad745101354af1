# SPDX-License-Identifier: Apache-2.0
"""Collects the facts for health checks, and answers requests for them.

The cost of checks is bounded, whatever the number of requests: simultaneous ones share a survey of
all nodes, and its result and the answers of name servers are used again for a while.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Generic, Protocol, TypeVar

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IReactorTime

from amqproute.daemon.health_survey import HealthSurvey
from amqproute.resolver.dnssec_probe import DnssecCapability
from amqproute.services.health_checks import (
    CHECKS,
    CheckFacts,
    CheckResult,
    CheckState,
    DnsFacts,
    JournalCheckFacts,
    StoreFacts,
    judge,
    worst,
)
from amqproute.services.health_rules import BrokerFacts, HealthLimits
from amqproute.services.management_node import (
    BAD_REQUEST,
    NOT_FOUND,
    OK,
    ManagementReply,
    ManagementRequest,
    ManagementService,
)

__all__ = [
    "HEALTH",
    "HealthProbes",
    "HealthSources",
    "NameServers",
    "Readiness",
    "ReadinessSources",
    "UnknownCheck",
]

Result = TypeVar("Result")

HEALTH: Final = "HEALTH"
SURVEY_SECONDS: Final = 2.0
"""Time for which the result of a survey is used."""
REALMS_SECONDS: Final = 10.0
"""Time for which the answer of outside realms is used."""
DNS_SECONDS: Final = 10.0
"""Time for which the answer of name servers is used."""
PATIENCE_SECONDS: Final = 5.0
"""Deadline for name servers."""
LONGEST_WITHIN: Final = 10 * 366 * 86400.0
_SURVEYED: Final = frozenset({"dns", "destinations", "oldest-message", "consumers", "alarms"})
_PARTIAL_MARKS: Final = frozenset({"outgoing", "destinations"})
"""Marks that limit receivers, or single senders; publishers have credit nevertheless."""
_ASKS_DNS: Final = frozenset({"dns", "dnssec"})


class UnknownCheck(KeyError):
    """There is no check of that name."""


class NameServers(Protocol):
    """The resolver, as far as it is checked."""

    async def servers_answer(self, name: str, seconds: float) -> str:
        """Return why nobody answers about a name; empty if somebody does."""

    async def dnssec(self) -> DnssecCapability:
        """Return whether answers come with DNSSEC."""


class ReadinessSources(Protocol):
    """The daemon, as far as its readiness goes."""

    @property
    def failure(self) -> str | None:
        """Why the daemon has to be restarted; None while it works."""

    @property
    def is_started(self) -> bool:
        """Whether the store is recovered and everything has been opened."""

    @property
    def is_stopping(self) -> bool:
        """Whether the daemon is about to end."""

    def broker_facts(self) -> BrokerFacts:
        """Return facts beside nodes and next hops."""

    def open_listeners(self) -> Mapping[str, bool]:
        """Return the configured endpoints, and whether each is open."""


class HealthSources(ReadinessSources, Protocol):
    """The daemon, as far as it is checked."""

    def store_facts(self) -> StoreFacts:
        """See `StoreFacts`."""

    def journal_facts(self) -> JournalCheckFacts | None:
        """See `JournalCheckFacts`; None without a journal."""

    def health_limits(self) -> HealthLimits:
        """Return the limits in force."""

    def realm_probes(self) -> Mapping[str, Callable[[], Deferred[str]]]:
        """Return what finds out why an outside realm cannot be asked, by the realm's name."""

    @property
    def own_domain(self) -> str:
        """A domain that name servers are asked about; empty for the root."""

    @property
    def requires_dnssec(self) -> bool:
        """Whether a setting requires DNSSEC."""


class SharedProbe(Generic[Result]):
    """A question to somebody outside: asked once at a time, its answer used for a while.

    Args:
        clock: the reactor.
        seconds: time for which an answer is used.
        ask: asks.
        unknown: the result until there is an answer.
    """

    def __init__(
        self,
        clock: IReactorTime,
        seconds: float,
        ask: Callable[[], Awaitable[Result]],
        unknown: Result,
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self._ask = ask
        self._last = unknown
        self._until = 0.0
        self._waiting: list[Deferred[None]] | None = None

    async def result(self) -> Result:
        """Return the last answer if it is recent; otherwise ask, or wait for who is asking."""
        if self._clock.seconds() < self._until:
            return self._last
        waiting = self._waiting
        if waiting is not None:
            done: Deferred[None] = Deferred()
            waiting.append(done)
            await done
            return self._last
        self._waiting = waiting = []
        try:
            self._last = await self._ask()
            self._until = self._clock.seconds() + self._seconds
        finally:
            self._waiting = None
            for each in waiting:
                each.callback(None)
        return self._last


class HealthProbes:
    """Runs health checks.

    Args:
        clock: the reactor.
        survey: the survey of nodes and next hops.
        name_servers: the servers of the resolver.
        sources: everything else.
    """

    def __init__(
        self,
        clock: IReactorTime,
        survey: HealthSurvey,
        name_servers: NameServers,
        sources: HealthSources,
    ) -> None:
        self._clock = clock
        self._survey = survey
        self._name_servers = name_servers
        self._sources = sources
        self._surveyed: Mapping[str, object] = {}
        self._surveyed_until = 0.0
        self._dns = SharedProbe(clock, DNS_SECONDS, self._ask_dns, DnsFacts())
        self._realms = SharedProbe[Mapping[str, str]](clock, REALMS_SECONDS, self._probe_realms, {})

    async def check(self, name: str = "", within: float | None = None) -> list[CheckResult]:
        """Run one check, or all of them.

        Args:
            name: the name of the check; empty for all.
            within: seconds for which certificates have to be valid; None for the setting.

        Raises:
            UnknownCheck: there is no such check.
        """
        if name and name not in CHECKS:
            raise UnknownCheck(name)
        wanted = (name,) if name else tuple(CHECKS)
        facts = await self._facts(frozenset(wanted), within)
        return [judge(each, facts) for each in wanted]

    async def _facts(self, wanted: frozenset[str], within: float | None) -> CheckFacts:
        surveyed: Mapping[str, object] = {}
        if wanted & _SURVEYED:
            surveyed = await self._take_survey()
        dns = DnsFacts()
        if wanted & _ASKS_DNS:
            dns = await self._dns.result()
        sources = self._sources
        verdicts, counts = surveyed.get("verdicts", ()), surveyed.get("counts", {})
        assert isinstance(verdicts, list | tuple)
        assert isinstance(counts, Mapping)
        return CheckFacts(
            sources.broker_facts(),
            tuple(verdicts),
            counts,
            sources.store_facts(),
            sources.journal_facts(),
            sources.open_listeners(),
            dns,
            await self._realms.result() if "realms" in wanted else {},
            sources.health_limits().certificate if within is None else within,
        )

    async def _take_survey(self) -> Mapping[str, object]:
        if self._clock.seconds() >= self._surveyed_until:
            reply = await self._survey.status(None)
            self._surveyed = reply.body
            self._surveyed_until = self._clock.seconds() + SURVEY_SECONDS
        return self._surveyed

    async def _probe_realms(self) -> Mapping[str, str]:
        """Ask all outside realms at once."""
        probes = self._sources.realm_probes()
        found = await gatherResults([probe() for probe in probes.values()])
        return dict(zip(probes, found, strict=True))

    async def _ask_dns(self) -> DnsFacts:
        trouble = await self._name_servers.servers_answer(
            self._sources.own_domain, PATIENCE_SECONDS
        )
        found = DnssecCapability(False, trouble, is_certain=False)
        if not trouble:
            found = await self._name_servers.dnssec()
        return DnsFacts(
            trouble,
            found.is_capable if found.is_certain else None,
            found.words,
            self._sources.requires_dnssec,
        )

    # -- $management -----------------------------------------------------------------------------

    def register(self, service: ManagementService) -> None:
        """Add the operation to the management node."""
        service.offer(HEALTH, self._answer)

    def _answer(self, request: ManagementRequest) -> Deferred[ManagementReply]:
        return Deferred.fromCoroutine(self._reply(request))

    async def _reply(self, request: ManagementRequest) -> ManagementReply:
        name = str(request.properties.get("name", ""))
        within = request.body.get("within-seconds")
        if within is not None and not (
            isinstance(within, int | float)
            and not isinstance(within, bool)
            and 0 <= within <= LONGEST_WITHIN
        ):
            return ManagementReply.of(
                BAD_REQUEST, f"within-seconds is a number from 0 to {LONGEST_WITHIN:.0f}"
            )
        try:
            results = await self.check(name, None if within is None else float(within))
        except UnknownCheck:
            known = ", ".join(CHECKS)
            return ManagementReply.of(
                NOT_FOUND, f"there is no health check {name[:64]!r}; there are {known}"
            )
        state = worst(each.state for each in results)
        body = {"state": state.value, "checks": [each.row() for each in results]}
        return ManagementReply.of(OK, state.value, body)


class Readiness:
    """Whether the process lives, and whether it takes traffic.

    Args:
        sources: the daemon.
    """

    def __init__(self, sources: ReadinessSources) -> None:
        self._sources = sources

    def why_dead(self) -> list[str]:
        """Return why the daemon has to be restarted; empty while it lives."""
        failure = self._sources.failure
        return [failure] if failure is not None else []

    def why_not_ready(self) -> list[str]:
        """Return why no traffic should come here; empty if it may."""
        reasons = self.why_dead()
        sources = self._sources
        if sources.is_stopping:
            return [*reasons, "the daemon stops"]
        if not sources.is_started:
            return [*reasons, "the daemon starts"]
        facts = sources.broker_facts()
        closed = [name for name, is_open in sources.open_listeners().items() if not is_open]
        if closed:
            reasons.append(f"closed: {', '.join(closed)}")
        reasons += [
            f"{name}: {reason}" for name, reason in facts.marks if name not in _PARTIAL_MARKS
        ]
        if facts.draining:
            reasons.append(facts.draining)
        return reasons

    @staticmethod
    def report(reasons: list[str], is_verbose: bool) -> tuple[int, dict[str, object]]:
        """Return the status of HTTP and the body of an answer.

        Args:
            reasons: the reasons of `why_dead` or `why_not_ready`.
            is_verbose: show them.
        """
        state = CheckState.FAILED if reasons else CheckState.OK
        body: dict[str, object] = {"status": state.value}
        if is_verbose:
            body["reasons"] = reasons
        return (503 if reasons else 200), body
