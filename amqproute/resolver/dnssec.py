# SPDX-License-Identifier: Apache-2.0
"""DNSSEC validation in this process (RFC 4035 §5): from trust anchors down to an answer.

`DnssecValidator.judge` takes a response as received, from any name server that passes signatures
on. The result is *secure* (every record of the chain of aliases, or the proof of its absence, is
signed by a chain of keys that begins at an anchor) or *insecure* (it is proved that a zone on the
way is not signed). Otherwise it raises `UnusableAnswer` with ``dns.bogus``: a signature is wrong,
expired or missing. There is no fourth result: an answer not proved insecure must be secure.

Validation descends from the anchor's zone, whose DNSKEY records must match the anchor: for each
label of the name, the parent is queried for DS records. DS records lead to the child's keys; a
proof that there are none distinguishes an unsigned child from a name that is not a zone. Results
for zones are cached for their time to live.

The signatures themselves are checked by dnspython. Work for one answer is bounded: in records, in
signatures tried (CVE-2023-50387) and in hashes (CVE-2023-50868).

Limits: no automatic update of anchors (see `anchors`), no aggressive use of cached denials.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import dns.dnssec
import dns.exception
import dns.message
import dns.name
import dns.node
import dns.rdataset
import dns.rdatatype
import dns.rrset
from dns.rdatatype import RdataType
from dns.rdtypes.ANY.DNSKEY import DNSKEY
from dns.rdtypes.ANY.DS import DS
from dns.rdtypes.ANY.RRSIG import RRSIG

from amqproute.resolver.anchors import Anchors, TrustAnchor
from amqproute.resolver.answer import DnsAnswer, DnsOutcome, DnsQuestion, UnusableAnswer, as_text
from amqproute.resolver.nsec_denial import DenialTooCostly, NsecDenial, ZoneCut

__all__ = ["DnssecValidator", "Fetch", "ValidationResult"]

Fetch = Callable[[DnsQuestion], Awaitable[dns.message.Message]]
"""Sends a further query to the name servers; returns the response with signatures, unvalidated."""

ALGORITHMS: Final = frozenset({8, 10, 13, 14, 15, 16})
"""Supported signature algorithms (RFC 9904): RSA with SHA-256 and SHA-512, ECDSA P-256 and P-384,
Ed25519, Ed448. A zone with no others counts as not signed (RFC 4035 §5.2)."""

DIGESTS: Final = {1: "SHA1", 2: "SHA256", 4: "SHA384"}

MAX_CHECKS: Final = 96
"""Signatures tried for one answer, including those of the zones above it."""

MAX_KEYS: Final = 24
"""DNSKEY records of one zone; more are treated as an attack."""

MAX_ZONES: Final = 2000
"""Zones and names in the cache."""

LONGEST: Final = 3600.0
"""Seconds for which results for a zone are cached at most."""

_KSK_BIT: Final = 0x0100  # "zone key" (RFC 4034 §2.1.1)
_REVOKED: Final = 0x0080  # RFC 5011


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """The result of validation.

    Attributes:
        is_secure: True if proved by signatures; False if proved to be unsigned.
        ttl: seconds for which the result holds at most.
    """

    is_secure: bool
    ttl: float


@dataclass(frozen=True, slots=True)
class _Zone:
    """A zone with its validated keys; without keys it is proved to be unsigned."""

    name: dns.name.Name
    keys: dns.rdataset.Rdataset | None
    until: float


@dataclass(slots=True)
class _Work:
    """One validation in progress: how to query, and its remaining budget."""

    fetch: Fetch
    checks: int = MAX_CHECKS
    until: float = float("inf")

    def spend(self) -> None:
        self.checks -= 1
        if self.checks < 0:
            raise UnusableAnswer("dns.bogus", "the answer takes too many signatures to check")


class DnssecValidator:
    """Validates responses.

    Args:
        anchors: the trust anchors.
        now: returns the time, in seconds since 1970, because signatures have dates.
    """

    def __init__(self, anchors: Anchors, now: Callable[[], float]) -> None:
        self._anchors = anchors
        self._now = now
        self._zones: dict[dns.name.Name, _Zone] = {}
        self._uncut: dict[dns.name.Name, float] = {}

    def __repr__(self) -> str:
        return f"<DnssecValidator anchors={len(self._anchors)} zones={len(self._zones)}>"

    def flush(self) -> None:
        """Forget all zones."""
        self._zones.clear()
        self._uncut.clear()

    async def judge(self, answer: DnsAnswer, fetch: Fetch) -> ValidationResult:
        """Validate an answer that still has its message.

        Raises:
            UnusableAnswer: ``dns.bogus``, or ``dns.not-dnssec-capable`` if the name server
                withholds the signatures of the anchor's own zone.
            ResolveError: a further query needed for validation failed.
        """
        message = answer.message
        if message is None:
            raise UnusableAnswer("dns.bogus", "there is no message to validate")
        work = _Work(fetch)
        name = dns.name.from_text(answer.question.name)
        is_secure = True
        sets = {
            (rrset.name, rrset.rdtype): rrset
            for rrset in message.answer
            if rrset.rdtype != dns.rdatatype.RRSIG
        }
        for _ in range(len(sets) + 1):
            found = sets.get((name, answer.question.rdtype))
            if found is not None:
                is_secure &= await self._positive(found, message, work)
                return self._judgment(is_secure, work)
            alias = sets.get((name, dns.rdatatype.CNAME))
            if alias is None:
                break
            is_secure &= await self._positive(alias, message, work)
            name = alias[0].target
        if answer.outcome is not DnsOutcome.ALIAS:
            is_secure &= await self._negative(name, answer, message, work)
        return self._judgment(is_secure, work)

    def _judgment(self, is_secure: bool, work: _Work) -> ValidationResult:
        return ValidationResult(is_secure, max(0.0, work.until - self._now()))

    # -- answers -----------------------------------------------------------------------------------

    async def _positive(
        self, rrset: dns.rrset.RRset, message: dns.message.Message, work: _Work
    ) -> bool:
        signatures = _signatures(message.answer, rrset.name, rrset.rdtype)
        zone = await self._zone_for(rrset.name, rrset.rdtype, signatures, work)
        if zone.keys is None:
            return False
        good = self._verify(rrset, signatures, zone, work)
        labels = len(rrset.name.labels) - 1
        if good.labels < labels and not rrset.name.is_wild():
            denial = self._denial(zone, message, work)
            if denial is None:
                return False
            if not denial.no_closer_match(rrset.name, good.labels):
                raise UnusableAnswer("dns.bogus", f"nothing proves that a wildcard is {rrset.name}")
        return True

    async def _negative(
        self, name: dns.name.Name, answer: DnsAnswer, message: dns.message.Message, work: _Work
    ) -> bool:
        rdtype = answer.question.rdtype
        soa = next((each for each in message.authority if each.rdtype == dns.rdatatype.SOA), None)
        signatures: list[RRSIG] = []
        if soa is not None:
            signatures = _signatures(message.authority, soa.name, dns.rdatatype.SOA)
        zone = await self._zone_for(name, rdtype, signatures, work)
        if zone.keys is None:
            return False
        denial = self._denial(zone, message, work)
        if denial is None:
            return False
        if answer.outcome is DnsOutcome.NXDOMAIN:
            is_proved = denial.no_name(name)
        else:
            is_proved = denial.no_data(name, rdtype)
        if not is_proved:
            what = "the name" if answer.outcome is DnsOutcome.NXDOMAIN else "the record"
            raise UnusableAnswer(
                "dns.bogus", f"nothing signed says that {what} {as_text(name)} is not"
            )
        return True

    def _denial(self, zone: _Zone, message: dns.message.Message, work: _Work) -> NsecDenial | None:
        """Return the zone's validated denial records; None if they are too costly to use."""
        proofs: dict[RdataType, list[Any]] = {dns.rdatatype.NSEC: [], dns.rdatatype.NSEC3: []}
        for rrset in message.authority:
            if rrset.rdtype in proofs and rrset.name.is_subdomain(zone.name):
                signatures = _signatures(message.authority, rrset.name, rrset.rdtype)
                if any(each.signer == zone.name for each in signatures):
                    self._verify(rrset, signatures, zone, work)
                    proofs[rrset.rdtype] += [(rrset.name, each) for each in rrset]
        try:
            return NsecDenial(zone.name, proofs[dns.rdatatype.NSEC], proofs[dns.rdatatype.NSEC3])
        except DenialTooCostly:
            return None

    # -- signatures --------------------------------------------------------------------------------

    def _verify(
        self, rrset: dns.rrset.RRset, signatures: list[RRSIG], zone: _Zone, work: _Work
    ) -> RRSIG:
        """Return the signature that proves the records.

        Raises:
            UnusableAnswer: no signature does.
        """
        assert zone.keys is not None
        now = self._now()
        why = f"{as_text(rrset.name)} {dns.rdatatype.to_text(rrset.rdtype)} is not signed"
        for signature in signatures:
            if signature.signer != zone.name:
                continue
            keys = [
                key
                for key in zone.keys
                if key.algorithm == signature.algorithm
                and key.flags & _KSK_BIT
                and dns.dnssec.key_id(key) == signature.key_tag
            ]
            for key in keys[:2]:  # two keys with one tag occur; many are an attack
                work.spend()
                one: dict[dns.name.Name, dns.node.Node | dns.rdataset.Rdataset] = {
                    zone.name: dns.rdataset.from_rdata(0, key)
                }
                try:
                    dns.dnssec.validate_rrsig(rrset, signature, one, None, now)
                except (dns.exception.DNSException, ValueError, ArithmeticError) as error:
                    why = (
                        f"the signature of {as_text(rrset.name) or '.'} "
                        f"{dns.rdatatype.to_text(rrset.rdtype)} does not hold: {error}"
                    )
                    continue
                lasts = min(float(signature.expiration), now + signature.original_ttl)
                work.until = min(work.until, lasts)
                return signature
            if not keys:
                why = f"{as_text(zone.name) or '.'} has no key with tag {signature.key_tag}"
        raise UnusableAnswer("dns.bogus", why)

    # -- zones -------------------------------------------------------------------------------------

    async def _zone_for(
        self,
        name: dns.name.Name,
        rdtype: RdataType,
        signatures: list[RRSIG],
        work: _Work,
    ) -> _Zone:
        """Return the zone that must have signed the records of `name`.

        The signer named in the records is tried first: that saves the descent to the name. A signer
        must be a zone on the way to the name; otherwise the signature is ignored, and the name's
        own zone must be found.
        """
        for signature in signatures[:2]:
            if name.is_subdomain(signature.signer):
                zone = await self._descend(signature.signer, work)
                if zone.name == signature.signer or zone.keys is None:
                    return zone
        above = rdtype == dns.rdatatype.DS and name != dns.name.root
        return await self._descend(name.parent() if above else name, work)

    async def _descend(self, name: dns.name.Name, work: _Work) -> _Zone:
        """Return the zone that contains `name`, from the closest anchor above it."""
        anchor = name
        while anchor not in self._anchors:
            if anchor == dns.name.root:
                return _Zone(anchor, None, float("inf"))  # no anchor covers this part of the tree
            anchor = anchor.parent()
        zone = await self._anchored(anchor, work)
        depth = len(anchor.labels)
        while depth < len(name.labels) and zone.keys is not None:
            depth += 1
            below = await self._child(zone, dns.name.Name(name.labels[-depth:]), work)
            if below is None:
                break
            zone = below
        work.until = min(work.until, zone.until)
        return zone

    async def _anchored(self, name: dns.name.Name, work: _Work) -> _Zone:
        known = self._known(name)
        if known is not None:
            return known
        anchor = self._anchors[name]
        message = await work.fetch(DnsQuestion(as_text(name), dns.rdatatype.DNSKEY))
        rrset = _find(message.answer, name, dns.rdatatype.DNSKEY)
        if rrset is None or not _signatures(message.answer, name, dns.rdatatype.DNSKEY):
            raise UnusableAnswer(
                "dns.not-dnssec-capable",
                f"it gives no signed keys of {as_text(name) or 'the root'}: it does not pass "
                "DNSSEC on",
            )
        zone = self._with_keys(name, rrset, message, anchor, work)
        if zone is None:
            raise UnusableAnswer(
                "dns.bogus", f"no key of {as_text(name) or 'the root'} fits the trust anchors"
            )
        return self._remember(zone)

    async def _child(self, zone: _Zone, name: dns.name.Name, work: _Work) -> _Zone | None:
        """Return the zone that begins at `name`, `zone` if none does, None if there is no name."""
        known = self._known(name)
        if known is not None:
            return known
        if self._uncut.get(name, 0.0) > self._now():
            return zone
        message = await work.fetch(DnsQuestion(as_text(name), dns.rdatatype.DS))
        rrset = _find(message.answer, name, dns.rdatatype.DS)
        if rrset is None:
            return self._undelegated(zone, name, message, work)
        self._verify(rrset, _signatures(message.answer, name, dns.rdatatype.DS), zone, work)
        digests = tuple(
            each
            for each in rrset
            if isinstance(each, DS) and each.algorithm in ALGORITHMS and each.digest_type in DIGESTS
        )
        strong = tuple(each for each in digests if each.digest_type != 1)
        digests = strong or digests  # RFC 4509 §3
        if not digests:
            return self._remember(_Zone(name, None, self._later(rrset.ttl)))
        message = await work.fetch(DnsQuestion(as_text(name), dns.rdatatype.DNSKEY))
        keys = _find(message.answer, name, dns.rdatatype.DNSKEY)
        below = None
        if keys is not None:
            below = self._with_keys(name, keys, message, TrustAnchor(digests), work)
        if below is None:
            raise UnusableAnswer("dns.bogus", f"no key of {as_text(name)} fits its DS records")
        return self._remember(below)

    def _undelegated(
        self, zone: _Zone, name: dns.name.Name, message: dns.message.Message, work: _Work
    ) -> _Zone | None:
        alias = _find(message.answer, name, dns.rdatatype.CNAME)
        if alias is not None:  # an alias is not a zone
            self._verify(alias, _signatures(message.answer, name, alias.rdtype), zone, work)
            return zone
        denial = self._denial(zone, message, work)
        cut = ZoneCut.INSECURE if denial is None else denial.cut(name)
        ttl = min((rrset.ttl for rrset in message.authority), default=0)
        if cut is ZoneCut.INSECURE:
            return self._remember(_Zone(name, None, self._later(ttl)))
        if cut is ZoneCut.NONE:
            if len(self._uncut) >= MAX_ZONES:
                self._uncut.clear()
            self._uncut[name] = self._later(ttl)
            return zone
        if cut is ZoneCut.NO_NAME:
            return None
        raise UnusableAnswer(
            "dns.bogus",
            f"{as_text(zone.name) or 'the root'} is signed and does not prove whether "
            f"{as_text(name)} is",
        )

    def _with_keys(
        self,
        name: dns.name.Name,
        rrset: dns.rrset.RRset,
        message: dns.message.Message,
        anchor: TrustAnchor,
        work: _Work,
    ) -> _Zone | None:
        """Return the zone with its keys, if a key that matches the anchor has signed them all."""
        if len(rrset) > MAX_KEYS:
            raise UnusableAnswer("dns.bogus", f"{as_text(name)} has more than {MAX_KEYS} keys")
        trusted = [key for key in rrset if isinstance(key, DNSKEY) and _vouches(anchor, name, key)]
        if not trusted:
            return None
        entry = dns.rdataset.from_rdata_list(rrset.ttl, trusted)
        signatures = _signatures(message.answer, name, dns.rdatatype.DNSKEY)
        self._verify(rrset, signatures, _Zone(name, entry, 0.0), work)
        everything = dns.rdataset.from_rdata_list(rrset.ttl, list(rrset))
        return _Zone(name, everything, min(self._later(rrset.ttl), work.until))

    def _later(self, ttl: float) -> float:
        return self._now() + min(float(ttl), LONGEST)

    def _known(self, name: dns.name.Name) -> _Zone | None:
        zone = self._zones.get(name)
        return zone if zone is not None and zone.until > self._now() else None

    def _remember(self, zone: _Zone) -> _Zone:
        if len(self._zones) >= MAX_ZONES:
            self._zones.clear()
        self._zones[zone.name] = zone
        return zone


def _find(
    section: list[dns.rrset.RRset], name: dns.name.Name, rdtype: RdataType
) -> dns.rrset.RRset | None:
    return next((each for each in section if each.name == name and each.rdtype == rdtype), None)


def _signatures(
    section: list[dns.rrset.RRset], name: dns.name.Name, rdtype: RdataType
) -> list[RRSIG]:
    """Return the signatures over records of a name and type, in supported algorithms."""
    return [
        each
        for rrset in section
        if rrset.rdtype == dns.rdatatype.RRSIG and rrset.name == name and rrset.covers == rdtype
        for each in rrset
        if isinstance(each, RRSIG) and each.algorithm in ALGORITHMS
    ]


def _vouches(anchor: TrustAnchor, name: dns.name.Name, key: DNSKEY) -> bool:
    """Return whether the anchor, or a parent's DS records, match this key."""
    if key.flags & _REVOKED or not key.flags & _KSK_BIT or key.protocol != 3:
        return False
    if any(
        known.algorithm == key.algorithm and known.key == key.key and known.flags == key.flags
        for known in anchor.keys
    ):
        return True
    tag = dns.dnssec.key_id(key)
    for digest in anchor.digests:
        if digest.key_tag != tag or digest.algorithm != key.algorithm:
            continue
        kind = DIGESTS.get(digest.digest_type)
        if kind is None:
            continue
        made = dns.dnssec.make_ds(name, key, kind, validating=True)
        if made.digest == digest.digest:
            return True
    return False
