# SPDX-License-Identifier: Apache-2.0
"""TLSA records against certificates (RFC 6698, RFC 7671). Pure.

`usable` selects the records that can be used; `match_chain` compares a chain with them.

=================  ==========================================================================
usage              requirement
=================  ==========================================================================
3 DANE-EE          the published certificate or key is the peer's own; its names and dates are
                   ignored (RFC 7671 §5.1): the signed record vouches for both
2 DANE-TA          the published certificate is an authority in the peer's chain; the chain up to it
                   is valid, in signatures and dates, and the certificate has an expected name
1, 0 PKIX-EE, -TA  the same in addition to, not instead of, an ordinary chain to a trusted
                   authority, and only if DANE is required of the peer: where DANE is merely
                   preferred they count as unusable (RFC 7672 §3.1.3)
=================  ==========================================================================

A peer that changes its key publishes both records for a while: one match is enough.

Limits: a DANE-TA authority must be in the peer's chain, as RFC 7671 §5.2.2 requires of servers;
only a record with the whole certificate (2 0 0) can replace it.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from OpenSSL import crypto

from amqproute.values import Tlsa

__all__ = ["TlsaFit", "match_chain", "matches", "record_of", "usable"]

PKIX_TA: Final = 0
PKIX_EE: Final = 1
DANE_TA: Final = 2
DANE_EE: Final = 3

_DIGESTS: Final = {1: 32, 2: 64}
_LONGEST_CHAIN: Final = 10


@dataclass(frozen=True, slots=True)
class TlsaFit:
    """A record that matches a chain.

    Attributes:
        record: the record.
        needs_name: whether the certificate must also have an expected name.
        needs_pkix: whether its chain must also end at a trusted authority.
        failure: why the chain from the record's authority to the certificate is not valid; None if
            it is.
    """

    record: Tlsa
    needs_name: bool = False
    needs_pkix: bool = False
    failure: str | None = None


def usable(records: Iterable[Tlsa], *, is_demanded: bool) -> tuple[Tlsa, ...]:
    """Return the records that can be used.

    Of several digests of one kind only the strongest counts (RFC 7671 §9).

    Args:
        records: the published records.
        is_demanded: whether DANE is required rather than preferred: then usages 0 and 1 count as
            well.
    """
    least = PKIX_TA if is_demanded else DANE_TA
    good = [
        record
        for record in records
        if least <= record.usage <= DANE_EE
        and record.selector in (0, 1)
        and (
            len(record.data) == _DIGESTS[record.matching]
            if record.matching in _DIGESTS
            else record.matching == 0 and record.data
        )
    ]
    strongest: dict[tuple[int, int], int] = {}
    for record in good:
        kind = (record.usage, record.selector)
        strongest[kind] = max(strongest.get(kind, 0), record.matching)
    return tuple(
        record
        for record in good
        if record.matching in (0, strongest[record.usage, record.selector])
    )


def matches(record: Tlsa, certificate: x509.Certificate) -> bool:
    """Return whether a record matches this certificate."""
    return _association(record.selector, record.matching, certificate) == record.data


def record_of(
    certificate: x509.Certificate, *, usage: int = DANE_EE, selector: int = 1, matching: int = 1
) -> Tlsa:
    """Return the record to publish for a certificate, by default for its key (3 1 1)."""
    return Tlsa(usage, selector, matching, _association(selector, matching, certificate))


def match_chain(
    records: Sequence[Tlsa], chain: Sequence[x509.Certificate], now: datetime.datetime
) -> tuple[TlsaFit, ...]:
    """Return the matching records, best first: those without further conditions.

    Args:
        records: usable records.
        chain: the peer's certificate, then the others it has sent, in any order.
        now: the present, for the dates of a chain to a DANE-TA authority.
    """
    if not chain:
        return ()
    own, others = chain[0], list(chain[1:_LONGEST_CHAIN])
    fits: list[TlsaFit] = []
    for record in sorted(records, key=lambda each: -each.usage):
        if record.usage == DANE_EE and matches(record, own):
            fits.append(TlsaFit(record))
        elif record.usage == DANE_TA:
            fits.extend(_anchored(record, own, others, now))
        elif record.usage in (PKIX_EE, PKIX_TA):
            candidates = [own] if record.usage == PKIX_EE else others
            if any(matches(record, each) for each in candidates):
                fits.append(TlsaFit(record, needs_name=True, needs_pkix=True))
    return tuple(sorted(fits, key=lambda fit: (fit.failure is not None, -fit.record.usage)))


def _anchored(
    record: Tlsa,
    own: x509.Certificate,
    others: Sequence[x509.Certificate],
    now: datetime.datetime,
) -> list[TlsaFit]:
    anchors = [each for each in others if matches(record, each)]
    if record.selector == 0 and record.matching == 0 and not anchors:
        try:
            anchors = [x509.load_der_x509_certificate(record.data)]
        except ValueError:
            return []
    return [
        TlsaFit(record, needs_name=True, failure=_path_failure(anchor, own, others, now))
        for anchor in anchors[:1]
    ]


def _path_failure(
    anchor: x509.Certificate,
    own: x509.Certificate,
    others: Sequence[x509.Certificate],
    now: datetime.datetime,
) -> str | None:
    """Return why the chain from this authority to the certificate is not valid, or None."""
    store = crypto.X509Store()
    store.set_flags(crypto.X509StoreFlags.PARTIAL_CHAIN)
    store.set_time(now)
    store.add_cert(crypto.X509.from_cryptography(anchor))
    context = crypto.X509StoreContext(
        store,
        crypto.X509.from_cryptography(own),
        [crypto.X509.from_cryptography(each) for each in others],
    )
    try:
        context.verify_certificate()
    except crypto.X509StoreContextError as error:
        return str(error)
    return None


def _association(selector: int, matching: int, certificate: x509.Certificate) -> bytes:
    if selector == 0:
        octets = certificate.public_bytes(serialization.Encoding.DER)
    else:
        octets = certificate.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    if matching == 0:
        return octets
    return (hashlib.sha256 if matching == 1 else hashlib.sha512)(octets).digest()
