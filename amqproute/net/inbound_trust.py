# SPDX-License-Identifier: Apache-2.0
"""Identification of connecting peers: their certificates, checked against their domains' records.

A connecting peer claims the domains that its certificate names. For each of them the question is
that of the other direction: if *we* connected to that domain, would this certificate be accepted at
one of its places? So the domain is resolved, and the same two functions decide
(`amqproute.net.peer_trust.demand` and `judge`), for the TLSA records of the targets of its SRV
records (as Prosody does it for XMPP). Any of the places will do: peers often connect from where
they receive.

====================================================  =============================================
what the DNS says of the claimed domain               the certificate is good for it if
====================================================  =============================================
a place with usable TLSA records                      it fits them; PKIX does not help it
a place without, or insecure                          PKIX, and it names the domain
no such domain or service, or no DNSSEC to be had     PKIX, and it names the domain
bogus, SERVFAIL, no answer                            never: the connection is refused, and the peer
                                                      tries again
====================================================  =============================================

Levels ``pkix`` and ``pin`` need no look-up; ``dane`` accepts the first row only. ``tls`` and
``none`` are levels for our own connections: a peer that speaks for a domain here has to prove it,
by PKIX at least. Our own domains, whose clients may have certificates, need PKIX.

Limits: a domain is claimed by naming it, so the certificate has to name it even where DANE-EE
would not need that, unless it is pinned. Of one certificate `MAX_CLAIMS` names are looked into.
"""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from cryptography import x509
from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore
from twisted.logger import Logger

from amqproute.errors import ResolveError, TlsError
from amqproute.log_rate_limit import source_of
from amqproute.net import certificate_identity
from amqproute.net.peer_trust import (
    PeerPlace,
    ShownCertificate,
    TrustLevel,
    TrustMethod,
    TrustPolicy,
    TrustVerdict,
    demand,
    judge,
    place_of,
)
from amqproute.net.tls import TlsConclusion
from amqproute.tracebacks import forget_frames, without_frames
from amqproute.values import Resolution

__all__ = ["InboundTrust", "PeerSource"]

log = Logger()

MAX_CLAIMS: Final = 8
"""Bound on the names of one certificate that are looked up."""
MOST_STRANGERS: Final = 16
"""Bound on the peers without an entry of the operator that are looked up at one time; others wait.
It is a part of the resolver's own bound: anybody can make a certificate with names in a zone whose
server never answers, and must not occupy all look-ups."""
MOST_OF_ONE: Final = 4
"""Bound on them at one time for one address (`source_of`), so that no stranger has all."""

_BY_DNS: Final = (TrustLevel.DANE, TrustLevel.DANE_OR_PKIX)


class PeerPolicies(Protocol):
    """The operator's policies about connecting peers."""

    def policy_for(self, domain: str) -> TrustPolicy:
        """Return what a domain's broker has to prove."""

    def pinned(self) -> Mapping[str, TrustPolicy]:
        """Return the domains with level ``pin``, whose certificates need not name them."""

    def is_own(self, domain: str) -> bool:
        """Tell whether a domain is ours."""

    def is_named(self, domain: str) -> bool:
        """Tell whether the operator has an entry for a domain.

        Peers with such names only do not wait for strangers, who may claim the same.
        """


class PeerSource(Protocol):
    """The DNS, as far as it is needed here."""

    def resolve(self, domain: str) -> Deferred[Resolution]:
        """As `SrvResolver.resolve`."""

    def is_capable(self) -> Deferred[bool]:
        """Tell whether DNSSEC may be available; False only if it certainly is not. Never fails."""


@dataclass(frozen=True, slots=True)
class _Claim:
    """Result of checking one name."""

    domain: str
    verdict: TrustVerdict


class _Places:
    """Places for look-ups: a number for all strangers, and a few for each address."""

    def __init__(self) -> None:
        self._all = DeferredSemaphore(MOST_STRANGERS)
        self._of: dict[str, DeferredSemaphore] = {}

    @asynccontextmanager
    async def place(self, source: str) -> AsyncIterator[None]:
        """Wait for a place for an address, and hold it in the context."""
        own = self._of.setdefault(source, DeferredSemaphore(MOST_OF_ONE))
        await own.acquire()
        try:
            await self._all.acquire()
            try:
                yield
            finally:
                self._all.release()
        finally:
            own.release()
            if own.tokens == own.limit and self._of.get(source) is own:
                del self._of[source]


class InboundTrust:
    """Decides who connecting peers are; a `amqproute.net.tls.PeerJudge`.

    Args:
        policies: the policies of the operator.
        source: the DNS; None for none.
        now: the wall clock, seconds since 1970.
    """

    def __init__(
        self,
        policies: PeerPolicies,
        source: PeerSource | None,
        now: Callable[[], float],
    ) -> None:
        self._policies = policies
        self._source = source
        self._now = now
        self._strangers = _Places()

    def may_prove(self, certificate: x509.Certificate) -> bool:
        """Tell whether this certificate could be good without a trusted authority."""
        if self._pins_of(certificate):
            return True
        if self._source is None:
            return False
        names = certificate_identity.peer_domains(certificate)
        return any(self._level_of(name) in _BY_DNS for name in names)

    def conclude(self, shown: ShownCertificate) -> TlsConclusion | Deferred[TlsConclusion]:
        """Decide; never fails."""
        certificate = shown.chain[0]
        if shown.revoked is not None:
            return TlsConclusion(frozenset(), "tls", shown.revoked)
        pinned = self._pins_of(certificate)
        names = sorted(certificate_identity.peer_domains(certificate) - pinned)
        if not any(self._level_of(name) in _BY_DNS for name in names) or self._source is None:
            claims = [self._without_dns(name, shown) for name in names]
            return self._sum_up(claims, pinned, shown)
        asked = Deferred.fromCoroutine(self._ask_safely(names, pinned, shown, self._source))
        return asked.addErrback(without_frames)  # cancelled, as the connection is lost

    async def _ask_safely(
        self, names: list[str], pinned: frozenset[str], shown: ShownCertificate, source: PeerSource
    ) -> TlsConclusion:
        try:
            if all(map(self._policies.is_named, names)):
                return await self._ask(names, pinned, shown, source)
            async with self._strangers.place(source_of(shown.host)):
                return await self._ask(names, pinned, shown, source)
        except CancelledError:
            raise
        except Exception:  # whatever it is, it must not let anybody in
            log.failure("deciding about a peer's certificate failed; the peer is refused")
            return TlsConclusion(frozenset(), "tls", TlsError("tls.handshake", "internal error"))

    async def _ask(
        self, names: list[str], pinned: frozenset[str], shown: ShownCertificate, source: PeerSource
    ) -> TlsConclusion:
        is_capable = await source.is_capable()
        claims: list[_Claim] = []
        asked = 0
        for name in names:
            level = self._level_of(name)
            if level not in _BY_DNS or (level is TrustLevel.DANE_OR_PKIX and not is_capable):
                claims.append(self._without_dns(name, shown))
            elif asked == MAX_CLAIMS:
                log.debug("of a certificate with many names only {count} are used", count=asked)
                break
            else:
                asked += 1
                claims.append(await self._by_dns(name, shown, source))
        return self._sum_up(claims, pinned, shown)

    async def _by_dns(self, name: str, shown: ShownCertificate, source: PeerSource) -> _Claim:
        policy = self._policies.policy_for(name)
        try:
            resolution = await source.resolve(name)
        except ResolveError as error:
            forget_frames(error)
            if error.permanent and policy.level is TrustLevel.DANE_OR_PKIX:
                return self._without_dns(name, shown)  # it sends, and receives nothing
            words = f"{name} cannot be checked: {error}"
            return _Claim(name, TrustVerdict(TlsError(error.code, words)))
        failure: TlsError | None = None
        for candidate in resolution.candidates:
            wanted = demand(policy, place_of(candidate, name))
            if wanted.method is TrustMethod.PKIX:
                verdict = self._without_dns(name, shown).verdict
            else:
                verdict = judge(wanted, shown, self._present)
            if verdict.failure is None:
                return _Claim(name, verdict)
            failure = failure or verdict.failure
        return _Claim(
            name, TrustVerdict(failure or TlsError("dns.no-address", f"{name} has no place"))
        )

    def _without_dns(self, name: str, shown: ShownCertificate) -> _Claim:
        level = self._level_of(name)
        policy = (
            self._policies.policy_for(name)
            if level is TrustLevel.PIN
            else TrustPolicy(TrustLevel.PKIX)
        )
        if level is TrustLevel.DANE:
            policy = TrustPolicy(TrustLevel.DANE)
        return _Claim(name, judge(demand(policy, PeerPlace(name, name)), shown, self._present))

    def _sum_up(
        self, claims: list[_Claim], pinned: frozenset[str], shown: ShownCertificate
    ) -> TlsConclusion:
        good = [claim for claim in claims if claim.verdict.failure is None]
        for claim in claims:
            if claim.verdict.failure is not None and len(claims) > 1:
                log.debug(
                    "a connecting peer is not {domain}: {words}",
                    domain=claim.domain,
                    words=str(claim.verdict.failure),
                )
        domains = pinned | {claim.domain for claim in good}
        if domains:
            levels = {claim.verdict.level for claim in good} | (
                {"authenticated"} if pinned else set()
            )
            # What all of them have reached: a connection has one level.
            return TlsConclusion(domains, "authenticated" if "authenticated" in levels else "dane")
        refused = [claim.verdict.failure for claim in claims]
        if refused:
            return TlsConclusion(frozenset(), "tls", refused[0])
        if shown.chain_failure is not None:
            return TlsConclusion(frozenset(), "tls", shown.chain_failure)
        return TlsConclusion(
            frozenset(), "authenticated"
        )  # a certificate without a domain: a client

    def _pins_of(self, certificate: x509.Certificate) -> frozenset[str]:
        """The domains for which the operator has pinned this certificate."""
        return frozenset(
            domain
            for domain, policy in self._policies.pinned().items()
            if any(pin.fits(certificate) for pin in policy.pins)
        )

    def _level_of(self, name: str) -> TrustLevel:
        return (
            TrustLevel.PKIX
            if self._policies.is_own(name)
            else self._policies.policy_for(name).level
        )

    @property
    def _present(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self._now(), datetime.UTC)
