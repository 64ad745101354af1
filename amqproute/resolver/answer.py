# SPDX-License-Identifier: Apache-2.0
"""Parsing of DNS messages: `DnsQuestion`, `DnsAnswer`, and `read_response` between them.

Pure. It makes the most important distinction: an answer that *proves* something (records, NODATA,
NXDOMAIN) is a `DnsAnswer`; everything else raises `UnusableAnswer` with the operator's code for the
failure, and is never mistaken for absence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdata
import dns.rdataclass
import dns.rdatatype
from dns.rdatatype import RdataType
from dns.rdtypes.ANY.TLSA import TLSA
from dns.rdtypes.IN.A import A
from dns.rdtypes.IN.AAAA import AAAA
from dns.rdtypes.IN.SRV import SRV

from amqproute.values import Tlsa

__all__ = [
    "DnsAnswer",
    "DnsOutcome",
    "DnsQuestion",
    "ServiceRecord",
    "UnusableAnswer",
    "read_response",
]

NEGATIVE_TTL_WITHOUT_SOA: Final = 0.0
"""A negative answer without SOA must not be cached (RFC 2308 §5); the cache's minimum applies."""

RECORD_OCTETS: Final = 600
"""Memory of a record, without the certificate of a TLSA record (measured)."""


class DnsOutcome(Enum):
    """Proof in an answer about the name in the query."""

    FOUND = "found"
    NODATA = "no data"
    NXDOMAIN = "NXDOMAIN"
    ALIAS = "alias"
    """A CNAME leads out of the message; the same query must be sent for its target."""


class UnusableAnswer(Exception):
    """A response that does not answer the query.

    Attributes:
        code: the stable code, for example ``dns.servfail``.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class DnsQuestion:
    """A name and a type; the class is always IN.

    Attributes:
        name: lower case, without the final dot.
        rdtype: the record type.
    """

    name: str
    rdtype: RdataType

    def __str__(self) -> str:
        return f"{self.name or '.'} {dns.rdatatype.to_text(self.rdtype)}"


@dataclass(frozen=True, slots=True)
class ServiceRecord:
    """One SRV record (RFC 2782).

    Attributes:
        priority: lower is tried first.
        weight: the share within one priority.
        port: the TCP port.
        target: lower case, without the final dot; empty for ``.``, "no such service".
    """

    priority: int
    weight: int
    port: int
    target: str


@dataclass(frozen=True, slots=True)
class DnsAnswer:
    """A proven answer to a question.

    Attributes:
        question: the question.
        outcome: what the answer proves.
        records: the records, if any, in the server's order.
        canonical: the owner of the records, or the name without records, after all CNAMEs.
        ttl: seconds; of a negative answer as in RFC 2308 §5.
        authenticated: whether DNSSEC proves it: a trusted server set the AD bit, or this process
            validated it. `read_response` only copies the bit; `dns_client` decides whether to trust
            it.
        glue: addresses from the additional section, only for names under the answer's own domain;
            never authenticated, because the AD bit does not cover that section.
        attempts: how the answer was obtained, one line each.
        message: the whole response, until it has been validated.
    """

    question: DnsQuestion
    outcome: DnsOutcome
    records: tuple[dns.rdata.Rdata, ...]
    canonical: str
    ttl: float
    authenticated: bool
    glue: tuple[DnsAnswer, ...] = ()
    attempts: tuple[str, ...] = field(default=(), compare=False)
    message: dns.message.Message | None = field(default=None, compare=False, repr=False)

    @property
    def octets(self) -> int:
        """Approximate memory; no record of ours is larger than `RECORD_OCTETS`."""
        return len(self.records) * RECORD_OCTETS + sum(len(each.data) for each in self.tlsa)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of an A or AAAA answer."""
        return tuple(record.address for record in self.records if isinstance(record, A | AAAA))

    @property
    def services(self) -> tuple[ServiceRecord, ...]:
        """The records of an SRV answer."""
        return tuple(
            ServiceRecord(record.priority, record.weight, record.port, as_text(record.target))
            for record in self.records
            if isinstance(record, SRV)
        )

    @property
    def tlsa(self) -> tuple[Tlsa, ...]:
        """The records of a TLSA answer."""
        return tuple(
            Tlsa(record.usage, record.selector, record.mtype, record.cert)
            for record in self.records
            if isinstance(record, TLSA)
        )

    def summary(self) -> str:
        """The outcome as text, for an attempt line."""
        count = len(self.records)
        words = f"{count} record{'s' * (count != 1)}" if count else self.outcome.value
        if self.canonical != self.question.name:
            words += f" at its alias {self.canonical}"
        return f"{words}, ttl {self.ttl:.0f} s{', authenticated' * self.authenticated}"


def as_text(name: dns.name.Name) -> str:
    """Return a name in this package's form: lower case, no final dot, empty for the root."""
    if name == dns.name.root:
        return ""
    return name.to_text(omit_final_dot=True).lower()


def read_response(question: DnsQuestion, response: dns.message.Message) -> DnsAnswer:
    """Parse a response that has been matched to its query.

    Raises:
        UnusableAnswer: the response proves nothing: an error code, a referral, or malformed.
    """
    rcode = response.rcode()
    if rcode not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
        raise UnusableAnswer(_CODES.get(rcode, "dns.refused"), dns.rcode.to_text(rcode))
    if not isinstance(response, dns.message.QueryMessage):
        raise UnusableAnswer("dns.malformed", "not an answer to a query")
    # The transport has matched response and query already. But if the response states another
    # question, records of the requested type would count as absent below, and absence must not
    # depend on octets that nobody signs.
    if [(as_text(each.name), each.rdtype) for each in response.question] != [
        (question.name.lower(), question.rdtype)
    ]:
        raise UnusableAnswer("dns.malformed", "an answer to another question")
    try:
        chain = response.resolve_chaining()
    except dns.message.ChainTooLong:
        raise UnusableAnswer("dns.loop", "the chain of aliases is too long or a loop") from None
    except dns.exception.DNSException as error:
        raise UnusableAnswer(
            "dns.malformed", f"contradictory answer: {type(error).__name__}"
        ) from None
    canonical = as_text(chain.canonical_name)
    authenticated = bool(response.flags & dns.flags.AD)
    if chain.answer is not None:
        return DnsAnswer(
            question=question,
            outcome=DnsOutcome.FOUND,
            records=tuple(chain.answer),
            canonical=canonical,
            ttl=float(chain.minimum_ttl),
            authenticated=authenticated,
            glue=tuple(_glue(canonical, response)),
        )
    has_soa = any(
        rrset.rdtype == dns.rdatatype.SOA and chain.canonical_name.is_subdomain(rrset.name)
        for rrset in response.authority
    )
    if rcode == dns.rcode.NXDOMAIN:
        outcome = DnsOutcome.NXDOMAIN
    elif chain.cnames and not has_soa:
        outcome = DnsOutcome.ALIAS
    elif not has_soa and any(r.rdtype == dns.rdatatype.NS for r in response.authority):
        # A server that does not resolve points elsewhere (RFC 2308 §2.2, "referral response").
        # Taking that for NODATA would turn a wrong resolv.conf into "no such service".
        raise UnusableAnswer("dns.refused", "a referral: this server does not resolve for us")
    else:
        outcome = DnsOutcome.NODATA
    alias_ttl = min((rrset.ttl for rrset in chain.cnames), default=chain.minimum_ttl)
    if outcome is DnsOutcome.ALIAS:
        ttl = float(alias_ttl)
    else:
        ttl = float(chain.minimum_ttl) if has_soa else NEGATIVE_TTL_WITHOUT_SOA
    return DnsAnswer(question, outcome, (), canonical, ttl, authenticated)


_CODES: Final = {
    dns.rcode.SERVFAIL: "dns.servfail",
    dns.rcode.REFUSED: "dns.refused",
    dns.rcode.FORMERR: "dns.malformed",
}


def _glue(owner: str, response: dns.message.Message) -> Iterator[DnsAnswer]:
    """Yield addresses for names under the answer's own domain (in bailiwick).

    A stranger's zone is not trusted about hosts of a third party: those are queried.
    """
    labels = owner.split(".")
    while labels and labels[0].startswith("_"):  # _amqps._tcp.beta.example -> beta.example
        del labels[0]
    domain = ".".join(labels)
    if not domain:
        return
    for rrset in response.additional:
        name = as_text(rrset.name)
        if (
            rrset.rdclass == dns.rdataclass.IN
            and rrset.rdtype in (dns.rdatatype.A, dns.rdatatype.AAAA)
            and (name == domain or name.endswith("." + domain))
        ):
            question = DnsQuestion(name, rrset.rdtype)
            yield DnsAnswer(question, DnsOutcome.FOUND, tuple(rrset), name, float(rrset.ttl), False)
