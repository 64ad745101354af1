# SPDX-License-Identifier: Apache-2.0
"""The proof required of a peer, and the check of it. Pure; shared by the relay and ``explain``.

Two questions, each answered in one function:

* `demand`: from the operator's policy (`TrustPolicy`) and the DNS data of a place (`PeerPlace`),
  what must be proved there (`TrustDemand`), or the code of the reason not to connect;
* `judge`: from a demand and what the peer has shown (`ShownCertificate`), the level reached, or the
  reason for refusal (`TrustVerdict`).

The table
=========
For level ``dane-or-pkix``, the default:

==========  =======================  ==============  =============================================
SRV         TLSA                     server name     accepted if
==========  =======================  ==============  =============================================
insecure    not asked                the domain      PKIX, and the certificate names the domain
secure      usable, DANE-EE (3)      TLSA base       the key fits; names and dates do not matter
secure      usable, DANE-TA (2)      TLSA base       chain to that authority, and it names base,
                                                     target or domain
secure      securely absent          the target      PKIX, and it names the target or the domain
secure      present, none usable     the target      PKIX, as before
secure      failed or bogus          --              never: ``dns.bogus``, ``dns.servfail``, ...
==========  =======================  ==============  =============================================

The other levels are rows of their own: ``dane`` takes only the rows with usable records (else
``dane.absent``, ``dane.unusable``, ``dns.insecure``, ``dns.not-dnssec-capable``); ``pkix`` trusts
an authority about the domain, whatever the DNS says; ``pin`` takes the certificates or keys listed
by the operator, whatever their names and dates; ``tls`` encrypts and proves nothing; ``none`` does
not even encrypt if the place speaks plain AMQP.

For a static route the operator has named the host. Its level holds as configured, and
``dane-or-pkix`` means PKIX there: DANE for a host that is not found by SRV must be requested
explicitly.

The level reached is one of `amqproute.values.SECURITY_LEVELS`: ``none``, ``tls``, ``authenticated``
(PKIX or pin), ``dane``.
"""

from __future__ import annotations

import datetime
import enum
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from amqproute.errors import TlsError
from amqproute.net import certificate_identity, dane
from amqproute.values import Candidate, Tlsa, TlsaAnswer, TlsaState, TransportSecurity

__all__ = [
    "DEFAULT_POLICY",
    "KeyPin",
    "PeerPlace",
    "ShownCertificate",
    "TrustDemand",
    "TrustLevel",
    "TrustMethod",
    "TrustPolicy",
    "TrustVerdict",
    "demand",
    "judge",
    "parse_pin",
    "place_of",
]

_PIN: Final = re.compile(r"(?P<kind>sha256|key-sha256):(?P<digest>[0-9a-fA-F:]+)")


class TrustLevel(enum.StrEnum):
    """The operator's requirement (the setting ``peers.DOMAIN.level``)."""

    NONE = "none"
    TLS = "tls"
    PKIX = "pkix"
    DANE = "dane"
    DANE_OR_PKIX = "dane-or-pkix"
    PIN = "pin"


@dataclass(frozen=True, slots=True)
class KeyPin:
    """A certificate, or a key, that an operator trusts explicitly.

    Attributes:
        is_key: whether it is of the public key, which outlives the certificate's renewal.
        digest: SHA-256 of the certificate or of its SubjectPublicKeyInfo.
    """

    is_key: bool
    digest: bytes

    def fits(self, certificate: x509.Certificate) -> bool:
        """Return whether this is the certificate, or its key."""
        encoding = serialization.Encoding.DER
        if self.is_key:
            octets = certificate.public_key().public_bytes(
                encoding, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        else:
            octets = certificate.public_bytes(encoding)
        return hashlib.sha256(octets).digest() == self.digest


def parse_pin(text: str) -> KeyPin:
    """Parse ``sha256:HEX`` (of the certificate) or ``key-sha256:HEX`` (of its key).

    Raises:
        ValueError: the text is neither.
    """
    found = _PIN.fullmatch(text.strip())
    digits = "" if found is None else found["digest"].replace(":", "")
    if found is None or len(digits) != 64:
        raise ValueError(
            f"{text!r} is not a pin; write sha256: or key-sha256: and the 64 hexadecimal digits "
            "that `amqproute certs show` prints"
        )
    return KeyPin(found["kind"] == "key-sha256", bytes.fromhex(digits))


@dataclass(frozen=True, slots=True)
class TrustPolicy:
    """The operator's requirement for a peer.

    Attributes:
        level: the level.
        pins: the pins for `TrustLevel.PIN`; one match is enough.
    """

    level: TrustLevel = TrustLevel.DANE_OR_PKIX
    pins: tuple[KeyPin, ...] = ()


DEFAULT_POLICY: Final = TrustPolicy()


@dataclass(frozen=True, slots=True)
class PeerPlace:
    """Facts about a place before connecting.

    Attributes:
        domain: the domain whose broker is expected there, as in addresses.
        host: the SRV target, the domain itself, or the host of a static route.
        is_secure: whether DNSSEC proves that `host` belongs to the domain.
        tlsa: the state of its TLSA records; None if not queried.
        names: further names that the operator accepts.
        is_static: whether the operator has named the host.
        is_plain: whether the place does not begin with TLS.
    """

    domain: str
    host: str
    is_secure: bool = False
    tlsa: TlsaAnswer | None = None
    names: tuple[str, ...] = ()
    is_static: bool = False
    is_plain: bool = False


def place_of(candidate: Candidate, domain: str, names: Sequence[str] = ()) -> PeerPlace:
    """Return the facts about a candidate of a domain."""
    return PeerPlace(
        domain,
        candidate.host,
        candidate.secure,
        candidate.tlsa,
        tuple(names),
        is_static=candidate.source == "static",
        is_plain=candidate.security is TransportSecurity.UPGRADE,
    )


class TrustMethod(enum.Enum):
    """Method by which a peer proves its identity."""

    REFUSED = "refused"
    PLAIN = "plain"
    TLS = "tls"
    PKIX = "pkix"
    DANE = "dane"
    PIN = "pin"


@dataclass(frozen=True, slots=True)
class TrustDemand:
    """The proof required at one place.

    Attributes:
        method: how; `TrustMethod.REFUSED` if no proof would suffice.
        domain: the domain whose broker is expected.
        names: the certificate must have one of these names, if names matter.
        server_name: the SNI to send.
        level: the level reached by the proof; one of `amqproute.values.SECURITY_LEVELS`.
        records: usable TLSA records, for `TrustMethod.DANE`.
        owner: the owner name of these records.
        pins: the pins for `TrustMethod.PIN`.
        code: ``ok``, or the code of the refusal.
        words: the same as text.
        is_host: whether `domain` is the host of a URL, without DNS records.
    """

    method: TrustMethod
    domain: str
    names: tuple[str, ...] = ()
    server_name: str = ""
    level: str = "none"
    records: tuple[Tlsa, ...] = ()
    owner: str = ""
    pins: tuple[KeyPin, ...] = ()
    code: str = "ok"
    words: str = ""
    is_host: bool = False


@dataclass(frozen=True, slots=True)
class ShownCertificate:
    """The evidence from a peer's handshake.

    Attributes:
        chain: its certificate, then the others.
        chain_failure: why the chain does not lead to a trusted authority; None if it does.
        revoked: the error if the operator's revocation lists name one of them; else None.
        host: the IP address that it has connected from; empty if it has none.
    """

    chain: tuple[x509.Certificate, ...]
    chain_failure: TlsError | None = None
    revoked: TlsError | None = None
    host: str = ""


@dataclass(frozen=True, slots=True)
class TrustVerdict:
    """Whether a peer has proved what was demanded.

    Attributes:
        failure: why not; None if it has.
        level: the level reached.
        words: the proof, as text.
    """

    failure: TlsError | None
    level: str = "none"
    words: str = ""


def demand(policy: TrustPolicy, place: PeerPlace) -> TrustDemand:
    """Decide what must be proved at a place; see the table of the module."""
    domain, level = place.domain, policy.level
    if level is TrustLevel.NONE and place.is_plain:
        return TrustDemand(
            TrustMethod.PLAIN, domain, words="nothing is proved, nothing is encrypted"
        )
    if level in (TrustLevel.NONE, TrustLevel.TLS):
        return TrustDemand(
            TrustMethod.TLS,
            domain,
            (),
            domain,
            "tls",
            words="encrypted; nobody is proved to be there",
        )
    if level is TrustLevel.PIN:
        return _pinned(policy, place)
    if level is TrustLevel.PKIX or (level is TrustLevel.DANE_OR_PKIX and place.is_static):
        return _by_authority(place, _distinct(domain, *place.names), domain, f"level {level}")
    return _by_dns(place, place.tlsa, is_demanded=level is TrustLevel.DANE)


def _pinned(policy: TrustPolicy, place: PeerPlace) -> TrustDemand:
    if not policy.pins:
        return _refused(place, "tls.pin", "level pin has no pins: nothing could be accepted")
    return TrustDemand(
        TrustMethod.PIN,
        place.domain,
        (),
        place.domain,
        "authenticated",
        pins=policy.pins,
        words=f"the certificate or key is one of {len(policy.pins)} pinned",
    )


def _by_authority(
    place: PeerPlace, names: tuple[str, ...], server_name: str, why: str
) -> TrustDemand:
    return TrustDemand(
        TrustMethod.PKIX,
        place.domain,
        names,
        server_name,
        "authenticated",
        words=f"a certificate of a trusted authority that names {' or '.join(names)} ({why})",
    )


def _by_dns(place: PeerPlace, tlsa: TlsaAnswer | None, *, is_demanded: bool) -> TrustDemand:
    """Apply the rows of the table."""
    state = TlsaState.INSECURE if tlsa is None else tlsa.state
    code, words = ("dns.insecure", "nobody asked") if tlsa is None else (tlsa.code, tlsa.words)
    if tlsa is not None and state is TlsaState.FAILED:
        return _refused(
            place,
            code or "dns.servfail",
            f"the TLSA records at {tlsa.owner} cannot be had: {words}; nothing is sent past that",
        )
    if tlsa is not None and state is TlsaState.PRESENT:
        records = dane.usable(tlsa.records, is_demanded=is_demanded)
        if records:
            names = _distinct(tlsa.base, place.host, place.domain, *place.names)
            return TrustDemand(
                TrustMethod.DANE,
                place.domain,
                names,
                tlsa.base,
                "dane",
                records,
                tlsa.owner,
                words=f"a key or an authority of the {len(records)} usable TLSA records at "
                f"{tlsa.owner}",
            )
        code, words = "dane.unusable", f"none of the TLSA records at {tlsa.owner} can be used"
    elif tlsa is not None and state is TlsaState.ABSENT:
        code, words = "dane.absent", f"there are no TLSA records at {tlsa.owner}"
    if is_demanded:
        return _refused(
            place,
            code or "dns.insecure",
            f"level dane is demanded of {place.domain}, and {words}. Cure: it publishes its SRV, "
            "address and TLSA records in zones signed with DNSSEC, or the level here is lowered",
        )
    if not place.is_secure:
        names = _distinct(place.domain, *place.names)
        return _by_authority(place, names, place.domain, "its DNS proves nothing")
    names = _distinct(place.domain, place.host, *place.names)
    return _by_authority(place, names, place.host, f"signed DNS; {words}")


def _refused(place: PeerPlace, code: str, words: str) -> TrustDemand:
    return TrustDemand(TrustMethod.REFUSED, place.domain, code=code, words=words)


def judge(wanted: TrustDemand, shown: ShownCertificate, now: datetime.datetime) -> TrustVerdict:
    """Decide whether a peer has proved what was demanded.

    Args:
        wanted: from `demand`.
        shown: what it has shown.
        now: the present.
    """
    if wanted.method in (TrustMethod.PLAIN, TrustMethod.TLS):
        return TrustVerdict(None, wanted.level, wanted.words)
    if wanted.method is TrustMethod.REFUSED:
        return TrustVerdict(TlsError(wanted.code, wanted.words))
    if not shown.chain:
        return TrustVerdict(TlsError("tls.no-certificate", "the peer has shown no certificate"))
    if shown.revoked is not None:
        return TrustVerdict(shown.revoked)
    if wanted.method is TrustMethod.PIN:
        return _judge_pins(wanted, shown)
    if wanted.method is TrustMethod.DANE:
        return _judge_records(wanted, shown, now)
    if shown.chain_failure is not None:
        return TrustVerdict(shown.chain_failure)
    return _judge_names(wanted, shown.chain[0], "authenticated", "")


def _judge_names(
    wanted: TrustDemand, certificate: x509.Certificate, level: str, how: str
) -> TrustVerdict:
    matched = certificate_identity.match(
        certificate, wanted.domain, extra_names=wanted.names, is_host=wanted.is_host
    )
    if not matched:
        return TrustVerdict(TlsError("tls.name", matched.explanation))
    return TrustVerdict(None, level, f"{how}{matched.explanation}")


def _judge_pins(wanted: TrustDemand, shown: ShownCertificate) -> TrustVerdict:
    own = shown.chain[0]
    if any(pin.fits(own) for pin in wanted.pins):
        return TrustVerdict(None, wanted.level, "the certificate is pinned")
    key = dane.record_of(own).data.hex()
    return TrustVerdict(
        TlsError(
            "tls.pin",
            f"the certificate of {wanted.domain}'s broker is none of those pinned; it has key-"
            f"sha256:{key} and names {certificate_identity.names_of(own)}. "
            "Cure: if the peer confirms that it has a new key, list it under "
            f"peers.{wanted.domain}.pin",
        )
    )


def _judge_records(
    wanted: TrustDemand, shown: ShownCertificate, now: datetime.datetime
) -> TrustVerdict:
    own = shown.chain[0]
    failure: TlsError | None = None
    for fit in dane.match_chain(wanted.records, shown.chain, now):
        verdict = _judge_fit(wanted, shown, fit)
        if verdict.failure is None:
            return verdict
        failure = failure or verdict.failure
    if failure is None:
        published = ", ".join(_brief(record) for record in wanted.records[:4])
        failure = TlsError(
            "dane.mismatch",
            f"the certificate fits none of the TLSA records at {wanted.owner} ({published}); its "
            f"key is {_brief(dane.record_of(own))} and it names "
            f"{certificate_identity.names_of(own)}, wanted was {' or '.join(wanted.names)}. "
            "Cure: the peer publishes the record of the key in "
            "use (amqproute dns print) before it uses that key, and keeps the old one for a TTL",
        )
    return TrustVerdict(failure)


def _judge_fit(wanted: TrustDemand, shown: ShownCertificate, fit: dane.TlsaFit) -> TrustVerdict:
    how = f"TLSA {fit.record.usage} {fit.record.selector} {fit.record.matching} fits"
    if fit.failure is not None:
        return TrustVerdict(
            TlsError(
                "dane.chain",
                f"the authority of {how.removesuffix(' fits')} at {wanted.owner} is in the peer's "
                f"chain, and the chain does not hold: {fit.failure}",
            )
        )
    if fit.needs_pkix and shown.chain_failure is not None:
        return TrustVerdict(shown.chain_failure)
    if fit.needs_name:
        return _judge_names(wanted, shown.chain[0], wanted.level, f"{how}, ")
    return TrustVerdict(None, wanted.level, how)


def _brief(record: Tlsa) -> str:
    """Return a record with the beginning of its data."""
    data = record.data.hex()
    rest = "..." if len(data) > 64 else ""
    return f"{record.usage} {record.selector} {record.matching} {data[:64]}{rest}"


def _distinct(*names: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
