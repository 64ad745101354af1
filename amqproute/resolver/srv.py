# SPDX-License-Identifier: Apache-2.0
"""Resolution of a domain to the places where its broker can be reached: `SrvResolver`.

The package docstring has the table of outcomes; this module implements it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import zip_longest
from typing import Any, Final, Protocol, TypeVar

import dns.rdatatype
from twisted.internet.defer import CancelledError, Deferred, DeferredList, succeed
from twisted.internet.defer import TimeoutError as DeadlineError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.address import normalize_domain
from amqproute.dial_policy import Denied, TargetPolicy
from amqproute.errors import InvalidField, ResolveError
from amqproute.resolver.answer import DnsAnswer, DnsOutcome, DnsQuestion, ServiceRecord
from amqproute.resolver.dns_cache import DnsCache, KnownFailure
from amqproute.resolver.dnssec_probe import DnssecCapability, DnssecProbe
from amqproute.resolver.srv_order import Uniform, order
from amqproute.tracebacks import forget_frames, without_frames
from amqproute.values import (
    Candidate,
    Resolution,
    TlsaAnswer,
    TlsaState,
    TransportSecurity,
)

__all__ = ["DnssecTerms", "DnssecUse", "IDnsClient", "ResolverLimits", "SrvResolver"]

log = Logger()

AMQPS_PORT: Final = 5671

MAX_TLSA: Final = 32
"""TLSA records considered for one place."""
MAX_GLUE: Final = 32
"""Names whose addresses are taken from the additional section of one answer; a response over TCP
has room for thousands."""

SERVICES: Final = (
    (TransportSecurity.IMPLICIT, "_amqps._tcp"),
    (TransportSecurity.UPGRADE, "_amqp._tcp"),
)
"""The SRV services in the order of preference (A-12)."""

_FAMILIES: Final = (dns.rdatatype.AAAA, dns.rdatatype.A)

# Stricter than DNS, looser than RFC 952: real zones have host names with underscores.
_HOST: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?:\.(?!-)[a-z0-9_-]{1,63})*\Z")

_T = TypeVar("_T")


class DnssecUse(Enum):
    """The use of DNSSEC (the setting ``resolver.dnssec``)."""

    USE = "use"
    """Use signed data where a domain has it: names of targets, TLSA records."""

    REQUIRE = "require"
    """Trust nothing without it: neither records nor their absence."""

    OFF = "off"
    """Ignore it: no name is learned from DNS, no TLSA record is queried."""


class IDnsClient(Protocol):
    """The interface of `DnsClient`, also for test fakes."""

    def ask(self, question: DnsQuestion) -> Deferred[DnsAnswer]:
        """As `DnsClient.ask`."""


@dataclass(frozen=True, slots=True)
class ResolverLimits:
    """The bounds of a resolver.

    Attributes:
        deadline: total time of a resolution, in seconds.
        max_targets: the number of SRV targets looked up; the last in the order are left out.
        max_addresses: the number of addresses of one family kept for one target.
    """

    deadline: float = 20.0
    max_targets: int = 16
    max_addresses: int = 8


@dataclass(frozen=True, slots=True)
class _Failing:
    """A failed lookup, as a value: only the error raised to the caller is an exception.

    Attributes:
        failure: code and text.
        attempts: lines for the operator.
    """

    failure: KnownFailure
    attempts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Looked:
    """An answer with its origin.

    Attributes:
        answer: the answer from the client or from the cache.
        ttl: the seconds left.
        stale: whether its time has expired.
        attempts: lines for the operator.
    """

    answer: DnsAnswer
    ttl: float
    stale: bool
    attempts: tuple[str, ...]


@dataclass(slots=True)
class _Trail:
    """The history of one resolution.

    Attributes:
        policy: decides which places may be dialled; None if none will be dialled.
        denied: why the first denied place may not be dialled; None if there is none.
    """

    domain: str
    lines: list[str]
    policy: TargetPolicy | None = None
    denied: Denied | None = None
    ttl: float = float("inf")
    stale: bool = False
    authenticated: bool = True
    failure: KnownFailure | None = None

    def admits(self, place: str, denied: Denied | None) -> bool:
        """Record why a place may not be dialled, if so; return whether it may."""
        if denied is None:
            return True
        self.denied = self.denied or denied
        self.lines.append(f"{place}: denied, {denied.reason}")
        return False

    def take(self, looked: _Looked | _Failing) -> DnsAnswer | None:
        """Record the result of one lookup; return the answer, or None if it failed."""
        _note(self.lines, looked.attempts)
        if isinstance(looked, _Failing):
            self.failure = self.failure or looked.failure
            return None
        self.ttl = min(self.ttl, looked.ttl)
        self.stale = self.stale or looked.stale
        return looked.answer

    def conclude(self, code: str, text: str) -> ResolveError:
        """Return the error for no candidates; permanent only if no answer was stale."""
        return ResolveError(
            code,
            f"{self.domain}: {text}",
            permanent=not self.stale,
            attempts=tuple(self.lines),
            ttl=self.ttl if self.ttl < float("inf") else None,
        )

    def give_up(self, code: str, words: str) -> ResolveError:
        """Return the error for a failed resolution, with its whole history."""
        return ResolveError(code, words, permanent=False, attempts=tuple(self.lines))


@dataclass(frozen=True, slots=True)
class _Target:
    """A record with its service, as an input of `order`."""

    record: ServiceRecord
    security: TransportSecurity
    owner: str
    secure: bool

    @property
    def priority(self) -> int:
        return self.record.priority

    @property
    def weight(self) -> int:
        return self.record.weight


@dataclass(frozen=True, slots=True)
class DnssecTerms:
    """Use of DNSSEC.

    Attributes:
        use: what it is used for.
        probe: distinguishes domains without DNSSEC from name servers without it.
    """

    use: DnssecUse = DnssecUse.USE
    probe: DnssecProbe | None = None


DEFAULT_DNSSEC: Final = DnssecTerms()


class SrvResolver:
    """Resolves domains of peers by SRV, or by address where there is no SRV.

    Args:
        client: queries name servers.
        cache: caches their answers.
        random: orders targets of equal priority (`random.Random.random`).
        clock: the clock for the deadline.
        limits: the bounds.
        targets: returns the policy of which places may be dialled: the targets in a stranger's zone
            must not be connected to blindly.
        dnssec: how DNSSEC is used.
        own: hosts and addresses, with ports, at which this broker itself is reached. A target among
            them ends the list: the targets behind it are no closer to the domain than this broker
            (RFC 5321 §5.1 has the same rule for mail).
    """

    def __init__(
        self,
        client: IDnsClient,
        cache: DnsCache[DnsQuestion, DnsAnswer],
        random: Uniform,
        clock: IReactorTime,
        *,
        limits: ResolverLimits | None = None,
        targets: Callable[[], TargetPolicy] = TargetPolicy.of,
        dnssec: DnssecTerms = DEFAULT_DNSSEC,
        own: Iterable[tuple[str, int]] = (),
    ) -> None:
        self._client = client
        self._cache = cache
        self._random = random
        self._clock = clock
        self.limits = limits or ResolverLimits()
        self._targets = targets
        self._dnssec = dnssec.use
        self._probe = dnssec.probe
        self._own = frozenset(own)

    def __repr__(self) -> str:
        return f"<SrvResolver {self._cache!r}>"

    def resolve(self, domain: str, *, to_dial: bool = True) -> Deferred[Resolution]:
        """Return the places where a domain's broker can be reached, in order of preference.

        Fails with `ResolveError`; the package docstring has the codes. May fire at once if
        everything is in the cache.

        Args:
            domain: the domain.
            to_dial: leave out places that may not be dialled (`amqproute.dial_policy`). False if
                nobody will connect and only the records matter.
        """
        trail = _Trail(domain, [], self._targets() if to_dial else None)
        try:
            trail.domain = normalize_domain(domain)
        except InvalidField as error:
            return _failed(ResolveError("dns.bad-name", error.description, permanent=True))
        if any(len(prefix) + 1 + len(trail.domain) > 253 for _, prefix in SERVICES):
            text = f"{trail.domain} is too long to have a service under it"
            return _failed(ResolveError("dns.bad-name", text, permanent=True))

        def too_late(result: object, timeout: float) -> Resolution:
            if isinstance(result, Failure):
                text = f"{trail.domain}: the DNS took longer than {timeout:g} s"
                raise trail.give_up("dns.timeout", text)
            assert isinstance(result, Resolution)
            return result

        resolving = Deferred.fromCoroutine(self._resolve_or_raise(trail))
        resolving.addErrback(without_frames)
        return resolving.addTimeout(self.limits.deadline, self._clock, onTimeoutCancel=too_late)

    def tlsa(self, host: str, port: int) -> Deferred[TlsaAnswer]:
        """Return the TLSA records of a host named by an operator; never fails."""
        return Deferred.fromCoroutine(self._tlsa_of(host, port, (host,), []))

    def is_capable(self) -> Deferred[bool]:
        """Return False only if it is certain that DNSSEC is not available; never fails.

        A failed query shows nothing. The records themselves are then queried and fail likewise:
        withholding one answer does not bypass DANE.
        """
        if self._dnssec is DnssecUse.OFF or self._probe is None:
            return succeed(self._dnssec is not DnssecUse.OFF)
        return self._probe.capability().addCallback(
            lambda found: found.is_capable or not found.is_certain
        )

    async def servers_answer(self, name: str, seconds: float) -> str:
        """Ask about a name, past the cache; return why nobody answers, or nothing.

        Args:
            name: whether it exists does not matter; empty for the root.
            seconds: the seconds for the answer.
        """
        asking = self._client.ask(DnsQuestion(name, dns.rdatatype.SOA))
        asking.addTimeout(seconds, self._clock)
        try:
            await asking
        except ResolveError as error:
            return f"{error.code}: {error}"
        except (CancelledError, DeadlineError):
            return f"no answer within {seconds:g} s"
        return ""

    async def dnssec(self) -> DnssecCapability:
        """Return whether answers come with DNSSEC, and the evidence."""
        if self._dnssec is DnssecUse.OFF:
            return DnssecCapability(False, "resolver.dnssec is off")
        if self._probe is None:
            return DnssecCapability(True, "answers are validated")
        return await self._probe.capability()

    def set_own(self, own: Iterable[tuple[str, int]]) -> None:
        """Replace the places where this broker itself is reached."""
        self._own = frozenset(own)

    def forget(self, domain: str) -> int:
        """Drop the cached answers for a domain and its targets; return their number.

        Raises:
            InvalidField: it is not a domain.
        """
        domain = normalize_domain(domain)
        names = {domain}
        for _, prefix in SERVICES:
            question = DnsQuestion(f"{prefix}.{domain}", dns.rdatatype.SRV)
            known = self._cache.peek(question)
            if known is not None:
                names.update(record.target for record in known.services)
        return self._cache.forget(
            lambda question: question.name in names or question.name.endswith("." + domain)
        )

    def flush(self) -> int:
        """Drop all cached answers; return their number."""
        return self._cache.flush()

    async def _resolve_or_raise(self, trail: _Trail) -> Resolution:
        try:
            return await self._resolve(trail)
        except ResolveError as error:
            if error.code != "dns.insecure":
                raise
            code, words = await self._why_insecure()
            if code == "dns.insecure":
                raise
        trail.lines.append(f"{trail.domain}: {words}")
        raise trail.give_up(code, f"{trail.domain}: DNSSEC is required: {words}")

    async def _why_insecure(self) -> tuple[str, str]:
        """Return code and text for an answer that DNSSEC does not prove."""
        if self._dnssec is DnssecUse.OFF:
            return "dns.insecure", "resolver.dnssec is off"
        if self._probe is not None:
            capability = await self._probe.capability()
            if not capability.is_capable:
                return "dns.not-dnssec-capable", capability.words
        return "dns.insecure", "its records are not signed with DNSSEC"

    async def _resolve(self, trail: _Trail) -> Resolution:
        questions = [
            DnsQuestion(f"{prefix}.{trail.domain}", dns.rdatatype.SRV) for _, prefix in SERVICES
        ]
        results = await _all([self._look_up(question) for question in questions])
        targets: list[_Target] = []
        withdrawn = False
        absence_authenticated = True
        for (security, _), question, result in zip(SERVICES, questions, results, strict=True):
            answer = trail.take(result)
            if answer is None:
                if isinstance(result, _Failing) and result.failure.code == "dns.bogus":
                    # A failed validation must not be bypassed.
                    raise trail.give_up(result.failure.code, result.failure.words)
                continue
            if answer.outcome is not DnsOutcome.FOUND:
                absence_authenticated = absence_authenticated and answer.authenticated
                continue
            usable = [
                _Target(record, security, question.name, self._is_secure(answer))
                for record in answer.services
                if _is_usable(record, question, trail)
            ]
            withdrawn = withdrawn or not usable
            trail.authenticated = trail.authenticated and answer.authenticated
            targets.extend(order(usable, self._random))
        if targets:
            return await self._from_targets(targets, trail)
        # One service alone allows no conclusion while the other is unknown.
        if trail.failure is not None:
            raise trail.give_up(trail.failure.code, trail.failure.words)
        if withdrawn:
            raise trail.conclude("dns.no-service", "its zone says that it offers no such service")
        trail.authenticated = absence_authenticated
        return await self._from_addresses(trail)

    async def _from_targets(self, targets: list[_Target], trail: _Trail) -> Resolution:
        kept = targets[: self.limits.max_targets]
        if len(kept) < len(targets):
            trail.lines.append(f"{len(targets) - len(kept)} more targets are left out")
        hosts = list(dict.fromkeys(target.record.target for target in kept))
        questions = [DnsQuestion(host, family) for host in hosts for family in _FAMILIES]
        looked = dict(
            zip(questions, await _all([self._look_up(q) for q in questions]), strict=True)
        )
        reachable: dict[str, tuple[str, ...]] = {}
        found_at: dict[str, set[str]] = {}
        bases: dict[str, tuple[str, ...]] = {}
        for host in hosts:
            families = [trail.take(looked[DnsQuestion(host, family)]) for family in _FAMILIES]
            found_at[host] = {text for each in families if each for text in each.addresses}
            reachable[host] = self._addresses(host, families, trail)
            bases[host] = self._bases(host, families)
        # A place that may not be dialled can be this broker, and still ends the list.
        kept = [
            target
            for target in self._closer_than_we(kept, found_at, trail)
            if trail.policy is None
            or trail.admits(target.record.target, trail.policy.judge_port(target.record.port))
        ]
        places = list(
            dict.fromkeys(
                (target.record.target, target.record.port, target.secure)
                for target in kept
                if reachable[target.record.target]
            )
        )
        found = dict(
            zip(
                places,
                await _all(
                    [
                        self._tlsa_of(host, port, bases[host] if secure else (), trail.lines)
                        for host, port, secure in places
                    ]
                ),
                strict=True,
            )
        )
        candidates = tuple(
            Candidate(
                host=target.record.target,
                port=target.record.port,
                security=target.security,
                addresses=reachable[target.record.target],
                priority=target.priority,
                weight=target.weight,
                source=f"srv:{target.owner}",
                secure=target.secure,
                tlsa=found[target.record.target, target.record.port, target.secure],
            )
            for target in kept
            if reachable[target.record.target]
        )
        return self._finish(candidates, trail)

    def _closer_than_we(
        self, targets: list[_Target], found_at: dict[str, set[str]], trail: _Trail
    ) -> list[_Target]:
        """Return the targets that this broker may relay to, being one of the targets itself.

        Raises:
            ResolveError: ``dns.loop-to-self``: no other target is preferred to this broker.
        """
        ours = [
            target
            for target in targets
            if (target.record.target, target.record.port) in self._own
            or any(
                (address, target.record.port) in self._own
                for address in found_at[target.record.target]
            )
        ]
        if not ours:
            return targets
        best = min(ours, key=lambda each: (each.security.value == "amqp", each.priority))
        closer = [
            each
            for each in targets
            if (each.security.value == "amqp", each.priority)
            < (best.security.value == "amqp", best.priority)
        ]
        place = f"{best.record.target}:{best.record.port}"
        trail.lines.append(f"{place} is this broker: no target of its priority or behind is used")
        if not closer:
            raise ResolveError(
                "dns.loop-to-self",
                f"{trail.domain}: its preferred target {place} is this broker, which does not "
                "have the domain under `domains`",
                permanent=False,
                attempts=tuple(trail.lines),
            )
        return closer

    def _is_secure(self, answer: DnsAnswer) -> bool:
        return answer.authenticated and self._dnssec is not DnssecUse.OFF

    def _bases(self, host: str, answers: Sequence[DnsAnswer | None]) -> tuple[str, ...]:
        """Return the names for TLSA queries, best first (RFC 7671 §7); needs signed addresses.

        RFC 7672 §2.2.2 explains: name servers of unsigned zones are known to fail on TLSA queries.
        """
        found = [answer for answer in answers if answer is not None and answer.addresses]
        if not found or not all(self._is_secure(answer) for answer in found):
            return ()
        ends = {answer.canonical for answer in found}
        return (*(ends - {host} if len(ends) == 1 else ()), host)

    async def _tlsa_of(
        self, host: str, port: int, bases: Sequence[str], lines: list[str]
    ) -> TlsaAnswer:
        """Return the TLSA records of a place, from the first of the names that has some."""
        if not bases or self._dnssec is DnssecUse.OFF:
            code, words = await self._why_insecure()
            return TlsaAnswer(host, port, TlsaState.INSECURE, code=code, words=words)
        answered = TlsaAnswer(host, port, TlsaState.ABSENT)
        for base in bases:
            answered = await self._tlsa_at(base, port, lines)
            if answered.state is not TlsaState.ABSENT:
                break
        return answered

    async def _tlsa_at(self, base: str, port: int, lines: list[str]) -> TlsaAnswer:
        question = DnsQuestion(f"_{port}._tcp.{base}", dns.rdatatype.TLSA)
        looked = await self._look_up(question)
        if isinstance(looked, _Failing):
            code, words = looked.failure.code, looked.failure.words
            _note(lines, looked.attempts)
            state = TlsaState.FAILED
            if code in ("dns.insecure", "dns.not-dnssec-capable"):
                state = TlsaState.INSECURE
            return TlsaAnswer(base, port, state, code=code, words=words)
        _note(lines, looked.attempts)
        answer = looked.answer
        if not self._is_secure(answer):
            code, words = await self._why_insecure()
            return TlsaAnswer(base, port, TlsaState.INSECURE, code=code, words=words)
        records = answer.tlsa[:MAX_TLSA]
        state = TlsaState.PRESENT if records else TlsaState.ABSENT
        return TlsaAnswer(base, port, state, records)

    async def _from_addresses(self, trail: _Trail) -> Resolution:
        """Resolve a domain without SRV records as a host (A-09)."""
        questions = [DnsQuestion(trail.domain, family) for family in _FAMILIES]
        answers = [
            trail.take(result)
            for result in await _all([self._look_up(question) for question in questions])
        ]
        addresses = self._addresses(trail.domain, answers, trail)
        found = [answer for answer in answers if answer and answer.addresses]
        trail.authenticated = trail.authenticated and all(a.authenticated for a in found)
        if trail.denied is None and all(a and a.outcome is DnsOutcome.NXDOMAIN for a in answers):
            raise trail.conclude("dns.nxdomain", "there is no such domain")
        secure = trail.authenticated and self._dnssec is not DnssecUse.OFF
        bases = self._bases(trail.domain, answers) if secure else ()
        tlsa = None
        if addresses:
            tlsa = await self._tlsa_of(trail.domain, AMQPS_PORT, bases, trail.lines)
        candidates = (
            Candidate(
                host=trail.domain,
                port=AMQPS_PORT,
                security=TransportSecurity.IMPLICIT,
                addresses=addresses,
                priority=0,
                weight=0,
                source="address",
                secure=secure,
                tlsa=tlsa,
            ),
        )
        return self._finish(candidates if addresses else (), trail)

    def _finish(self, candidates: tuple[Candidate, ...], trail: _Trail) -> Resolution:
        if candidates:
            return Resolution(
                domain=trail.domain,
                candidates=candidates,
                attempts=tuple(trail.lines),
                ttl=trail.ttl,
                stale=trail.stale,
                authenticated=trail.authenticated and self._dnssec is not DnssecUse.OFF,
            )
        if trail.failure is not None:
            raise trail.give_up(trail.failure.code, trail.failure.words)
        if trail.denied is not None:
            raise trail.conclude(
                "dns.denied-target",
                f"it points only to places that are not dialled for it: {trail.denied}",
            )
        raise trail.conclude("dns.no-address", "no host of it has an address")

    def _addresses(
        self, host: str, answers: Sequence[DnsAnswer | None], trail: _Trail
    ) -> tuple[str, ...]:
        """Return the addresses of one host that may be dialled, in order of preference."""
        policy = trail.policy
        families = [
            [
                text
                for text in (answer.addresses if answer else ())
                if policy is None
                or trail.admits(f"{host} at {text}", policy.judge_address(text, trail.domain))
            ][: self.limits.max_addresses]
            for answer in answers
        ]
        addresses = tuple(
            text for pair in zip_longest(*families) for text in pair if text is not None
        )
        if not addresses:
            trail.lines.append(f"{host}: skipped, it has no address to connect to")
        return addresses

    async def _look_up(self, question: DnsQuestion) -> _Looked | _Failing:
        """Answer a question from the cache, from the servers, or from a stale entry."""
        cached = self._cache.get(question)
        if cached is not None:
            left = f"{cached.ttl:.0f} s left"
            line = f"{question}: {cached.value.summary()} (remembered, {left})"
            return _Looked(cached.value, cached.ttl, False, (line,))
        known = self._cache.failure(question)
        if known is not None:
            failing = _Failing(known, (f"{question}: {known.code} (remembered)",))
        else:
            learned = await self._ask(question)
            if isinstance(learned, _Looked):
                return learned
            failing = learned
            self._cache.put_failure(question, failing.failure)
        # A failed validation is an attack or a broken zone; a stale answer must not bypass it.
        code = failing.failure.code
        stale = None if code == "dns.bogus" else self._cache.stale(question)
        if stale is None:
            return failing
        log.debug(
            "{question} answered from memory past its time after {code}",
            question=str(question),
            code=code,
        )
        line = f"{question}: {stale.value.summary()} (stale, used as the name servers fail)"
        return _Looked(stale.value, stale.ttl, True, (*failing.attempts, line))

    async def _ask(self, question: DnsQuestion) -> _Looked | _Failing:
        """Query the servers, and cache the answer."""
        try:
            answer = await self._client.ask(question)
        except ResolveError as error:
            forget_frames(error)
            return _Failing(KnownFailure(error.code, str(error)), error.attempts)
        return self._learn(question, answer)

    def _learn(self, question: DnsQuestion, answer: DnsAnswer) -> _Looked | _Failing:
        required = self._dnssec is DnssecUse.REQUIRE
        if required and not answer.authenticated:
            words = f"{question}: the answer is not authenticated and DNSSEC is required"
            attempts = (*answer.attempts, f"{question}: refused, not authenticated")
            return _Failing(KnownFailure("dns.insecure", words), attempts)
        # The lines describe this query; in the cache they would look new for hours.
        kept = replace(answer, attempts=(), glue=())
        negative = answer.outcome is not DnsOutcome.FOUND
        ttl = self._cache.put(question, kept, answer.ttl, negative=negative)
        # Nothing proves the additional section (RFC 4035 §3.2.3), so it is used only where answers
        # are not proved anyway; elsewhere its names are queried.
        if not required and not self._is_secure(answer):
            for glue in answer.glue[:MAX_GLUE]:
                # A direct answer ranks above additional data (RFC 2181 §5.4.1).
                if self._cache.peek(glue.question) is None:
                    self._cache.put(glue.question, glue, glue.ttl)
        return _Looked(answer, ttl, False, answer.attempts)


def _note(lines: list[str], attempts: Sequence[str]) -> None:
    """Add the lines of one lookup; lines shared by two concurrent lookups appear once."""
    known = set(lines)
    lines.extend([line for line in attempts if line not in known])


def _is_usable(record: ServiceRecord, question: DnsQuestion, trail: _Trail) -> bool:
    """Return whether a record names a place; if not, record why."""
    if not record.target:
        trail.lines.append(f"{question}: target '.', no such service")
    elif not record.port:
        trail.lines.append(f"{question}: target {record.target} skipped, it has port 0")
    elif not _HOST.match(record.target):
        trail.lines.append(f"{question}: target {record.target!a} skipped, not a host name")
    else:
        return True
    return False


async def _all(works: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Run everything concurrently.

    Raises:
        Exception: the first one raised; failed lookups do not raise.
    """
    pending = [Deferred.fromCoroutine(work).addErrback(without_frames) for work in works]
    results: list[_T] = []
    for done in await DeferredList(pending, consumeErrors=True):
        match done:
            case False, Failure() as failure:
                failure.raiseException()
            case _, result:
                results.append(result)
    return results


def _failed(error: Exception) -> Deferred[Resolution]:
    failed: Deferred[Resolution] = Deferred()
    failed.errback(error)
    return failed
