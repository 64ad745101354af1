# SPDX-License-Identifier: Apache-2.0
"""Detection of name servers without DNSSEC; the result is cached and has a code of its own.

Without this probe an unsigned domain and a name server that strips all signatures look alike: both
give answers without proof. With it, the second case is reported as ``dns.not-dnssec-capable``, to
callers that demand DANE of a peer, and to the operator.

The query is for the SOA record of a zone that is certainly signed: the root, or another one named
in the configuration. Name servers are *capable* when the answer is authenticated, by the AD bit of
a trusted server or by validation here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import dns.rdatatype
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.errors import ResolveError
from amqproute.resolver.answer import DnsAnswer, DnsQuestion

__all__ = ["DnssecCapability", "DnssecProbe"]

log = Logger()

GOOD_SECONDS: Final = 3600.0
"""Time for which a good result is cached."""

BAD_SECONDS: Final = 120.0
"""Time for which a bad result is cached."""


class _Client(Protocol):
    """The client that sends the query."""

    def ask(self, question: DnsQuestion) -> Deferred[DnsAnswer]:
        """As `DnsClient.ask`."""


@dataclass(frozen=True, slots=True)
class DnssecCapability:
    """The result of the probe.

    Attributes:
        is_capable: whether answers come with DNSSEC.
        words: the evidence, or the remedy.
        is_certain: whether a name server has shown it; False if there was no answer to judge from.
    """

    is_capable: bool
    words: str
    is_certain: bool = True


class DnssecProbe:
    """Probes whether answers come with DNSSEC.

    Args:
        client: queries name servers; must not use a cache.
        clock: source of time.
        zone: a signed zone.
        refusal: why no query is needed: the setting is off, or no AD bit is trusted.
    """

    def __init__(
        self, client: _Client, clock: IReactorTime, *, zone: str = "", refusal: str = ""
    ) -> None:
        self._client = client
        self._clock = clock
        self._question = DnsQuestion(zone.rstrip("."), dns.rdatatype.SOA)
        self._known = DnssecCapability(False, refusal) if refusal else None
        self._until = float("inf") if refusal else 0.0
        self._waiting: list[Deferred[DnssecCapability]] | None = None
        self._logged: bool | None = None

    def capability(self) -> Deferred[DnssecCapability]:
        """Return the capability of the name servers; never fails; cancelling ends the wait."""
        if self._known is not None and self._until > self._clock.seconds():
            return succeed(self._known)
        waiter: Deferred[DnssecCapability] = Deferred(self._leave)
        if self._waiting is not None:
            self._waiting.append(waiter)
            return waiter
        self._waiting = [waiter]
        self._client.ask(self._question).addBoth(self._learn)
        return waiter

    def _leave(self, waiter: Deferred[DnssecCapability]) -> None:
        if self._waiting is not None and waiter in self._waiting:
            self._waiting.remove(waiter)

    def _learn(self, result: DnsAnswer | Failure) -> None:
        asked = str(self._question) if self._question.name else "the root's SOA record"
        if isinstance(result, DnsAnswer):
            if result.authenticated:
                found = DnssecCapability(True, f"{asked} is authenticated")
            else:
                found = DnssecCapability(
                    False,
                    f"{asked} came without DNSSEC; use a validating resolver on this machine "
                    "(unbound, knot-resolver), or resolver.validate: self",
                )
        else:
            error = result.value
            code = error.code if isinstance(error, ResolveError) else type(error).__name__
            found = DnssecCapability(
                False,
                f"{asked} could not be had: {code}: {error}",
                is_certain=code == "dns.not-dnssec-capable",
            )
        self._known = found
        good = found.is_capable
        self._until = self._clock.seconds() + (GOOD_SECONDS if good else BAD_SECONDS)
        if self._logged is not good:
            self._logged = good
            log.info(
                "DNSSEC {state}: {words}",
                state="available" if good else "not available (dns.not-dnssec-capable)",
                words=found.words,
            )
        waiting, self._waiting = self._waiting or [], None
        for waiter in waiting:
            waiter.callback(found)
