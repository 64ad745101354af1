# SPDX-License-Identifier: Apache-2.0
"""Can the name servers do DNSSEC at all? Asked once, remembered, and told with a code of its own.

Without this question a domain that is not signed and a name server that hides all signatures look
alike: both give answers without proof. With it, the second is told as ``dns.not-dnssec-capable``,
to whoever demands DANE of a peer, and to the operator.

The question is for the SOA record of a zone that is surely signed: the root, or another one that
the configuration names. An answer is *capable* when it is authenticated, by the AD bit of a trusted
server or by validation here.
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
"""For how long a good answer is believed."""

BAD_SECONDS: Final = 120.0
"""After how long a bad one is looked into again."""


class _Client(Protocol):
    """What is asked."""

    def ask(self, question: DnsQuestion) -> Deferred[DnsAnswer]:
        """As `DnsClient.ask`."""


@dataclass(frozen=True, slots=True)
class DnssecCapability:
    """What the name servers can do.

    Attributes:
        is_capable: their answers come with DNSSEC.
        words: how that is known, or what to do about it.
        is_certain: a name server has shown it; if not, there was no answer to tell from.
    """

    is_capable: bool
    words: str
    is_certain: bool = True


class DnssecProbe:
    """Ask whether DNSSEC comes through.

    Args:
        client: asks name servers; not through a cache.
        clock: tells the time.
        zone: a zone that is signed.
        refusal: why nobody needs to be asked: the setting is off, or nobody's AD bit is believed.
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
        """Return what the name servers can do; never fails, and cancelling ends the wait only."""
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
