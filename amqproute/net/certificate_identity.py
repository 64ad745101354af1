# SPDX-License-Identifier: Apache-2.0
"""The names that a certificate proves, and whether they include a given one. Pure.

A peer is the domain after the ``@`` of an address, so its certificate must name that *domain*, not
the host in an SRV record: an unsigned DNS answer proves nothing (RFC 9525 §6.3). A domain is named
by a DNS-ID (``beta.example``) or, more narrowly, by an SRV-ID (``_amqps.beta.example``, RFC 4985).
The common name is ignored (RFC 9525 §2).

There are two questions. The connecting side knows the name that it expects: `match`. The accepting
side asks who the peer is: `peer_domains`. A wildcard answers the first question but not the second,
because ``*.example.net`` is not one domain.

The comparison itself is that of `service_identity` (wildcards only as the whole left-most label).
Malformed names in a certificate are skipped one by one; the others still count.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from service_identity import CertificateError
from service_identity.hazmat import DNS_ID, SRV_ID, DNSPattern, SRVPattern

__all__ = [
    "CertificateNames",
    "NameMatch",
    "is_address",
    "match",
    "names_of",
    "peer_domains",
]

DNS_SRV_NAME: Final = x509.ObjectIdentifier("1.3.6.1.5.5.7.8.7")
_IA5STRING: Final = 0x16
# Characters around a name are not stripped: with them it is another name.
_NAME: Final = re.compile(r"[a-z0-9*_-]{1,63}(?:\.[a-z0-9*_-]{1,63})*")
_SHOWN: Final = 10  # names of a certificate that an error message lists


@dataclass(frozen=True, slots=True)
class CertificateNames:
    """The names in a certificate, lower case, in their original order.

    Attributes:
        dns: DNS-IDs, wildcards among them.
        srv: SRV-IDs, as ``_amqps.beta.example``.
        addresses: IP addresses.
    """

    dns: tuple[str, ...]
    srv: tuple[str, ...]
    addresses: tuple[str, ...]

    def __str__(self) -> str:
        everything = self.dns + self.srv + self.addresses
        if not everything:
            return "no name at all (only subjectAltName counts, never the common name)"
        rest = len(everything) - _SHOWN
        return ", ".join(everything[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


@dataclass(frozen=True, slots=True)
class NameMatch:
    """Whether a certificate proves a name; its truth value is the answer.

    Attributes:
        is_proved: the answer.
        explanation: how, or the expected name, the names found, and the remedy.
    """

    is_proved: bool
    explanation: str

    def __bool__(self) -> bool:
        return self.is_proved


def names_of(certificate: x509.Certificate) -> CertificateNames:
    """Return the names in subjectAltName, without unreadable ones."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, ValueError, x509.DuplicateExtension):
        return CertificateNames((), (), ())
    alternatives = extension.value
    dns = [_normal(name) for name in alternatives.get_values_for_type(x509.DNSName)]
    srv: list[str] = []
    for other in alternatives.get_values_for_type(x509.OtherName):
        if other.type_id == DNS_SRV_NAME:
            text = _ia5_text(other.value)
            if text is not None:
                srv.append(_normal(text))
    addresses = [str(each) for each in alternatives.get_values_for_type(x509.IPAddress)]
    return CertificateNames(tuple(dns), tuple(srv), tuple(addresses))


def match(
    certificate: x509.Certificate,
    domain: str,
    services: Iterable[str] = ("_amqps", "_amqp"),
    *,
    extra_names: Iterable[str] = (),
    is_host: bool = False,
) -> NameMatch:
    """Return whether the certificate proves that its holder speaks for `domain` (RFC 9525 §6).

    Args:
        certificate: the end entity's; its chain must have been verified.
        domain: a domain name, or an IP address configured by an operator.
        services: services whose SRV-IDs count.
        extra_names: further host names that prove it too: an SRV target from a signed zone, or the
            names of a route.
        is_host: whether it is the host of a URL, without DNS records.
    """
    found = names_of(certificate)
    wanted = [domain, *(name for name in extra_names if _normal(name) != _normal(domain))]
    for name in wanted:
        how = _match_one(found, name, services if name is domain else ())
        if how is not None:
            return NameMatch(True, f"{how} names {name}")
    return NameMatch(
        False,
        f"the certificate does not prove {' or '.join(wanted)}; it names {found}. "
        f"{_cure_for_host(domain) if is_host else _cure_for_domain(domain)}",
    )


def _cure_for_domain(domain: str) -> str:
    """Return the remedy if a certificate does not prove a domain located by DNS."""
    return (
        f"Cure: the peer's certificate has to name {domain} (DNS-ID {domain} or SRV-ID "
        f"_amqps.{domain}), or {domain}'s SRV records have to be signed with DNSSEC and lead to "
        "the host that the certificate names, best with a TLSA record of its key"
    )


def _cure_for_host(host: str) -> str:
    """Return the remedy if a certificate does not prove the host of a URL."""
    kind = "as an IP address" if is_address(host) else "as a DNS name"
    return (
        f"Cure: connect to a name that the certificate has, or have a certificate made that names "
        f"{host} {kind}"
    )


def peer_domains(
    certificate: x509.Certificate, services: Iterable[str] = ("_amqps", "_amqp")
) -> frozenset[str]:
    """Return the domains that a connecting peer may speak for.

    These are plain DNS-IDs, and the domains of SRV-IDs of our services. A wildcard proves no
    domain, because it does not name one.
    """
    found = names_of(certificate)
    domains = {name for name in found.dns if _dns_pattern(name) is not None and "*" not in name}
    for name in found.srv:
        service, _, domain = name.partition(".")
        if service in services and "*" not in domain and _dns_pattern(domain) is not None:
            domains.add(domain)
    return frozenset(domains)


def is_address(name: str) -> bool:
    """Return whether a name is an IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _match_one(found: CertificateNames, name: str, services: Iterable[str]) -> str | None:
    """Return the identifier in the certificate that proves `name`, or None."""
    if is_address(name):
        address = str(ipaddress.ip_address(name))
        return f"the IP address {address}" if address in found.addresses else None
    plain = _normal(name)
    try:
        wanted = DNS_ID(plain)
    except (ValueError, UnicodeError):
        return None
    for each in found.dns:
        pattern = _dns_pattern(each)
        if pattern is not None and wanted.verify(pattern):
            return f"DNS-ID {each}"
    for service in services:
        wanted_service = SRV_ID(f"{service}.{plain}")
        for each in found.srv:
            service_pattern = _srv_pattern(each)
            if service_pattern is not None and wanted_service.verify(service_pattern):
                return f"SRV-ID {each}"
    return None


def _dns_pattern(name: str) -> DNSPattern | None:
    if not _NAME.fullmatch(name):
        return None
    try:
        return DNSPattern.from_bytes(name.encode("utf-8"))
    except CertificateError:
        return None


def _srv_pattern(name: str) -> SRVPattern | None:
    if not _NAME.fullmatch(name):
        return None
    try:
        return SRVPattern.from_bytes(name.encode("utf-8"))
    except (CertificateError, IndexError):
        return None


def _normal(name: str) -> str:
    return name.removesuffix(".").lower()


def _ia5_text(der: bytes) -> str | None:
    """Decode an IA5String with a short or one-octet length, which holds any domain name."""
    if len(der) < 2 or der[0] != _IA5STRING:
        return None
    start, size = (3, der[2]) if der[1] == 0x81 and len(der) > 2 else (2, der[1])
    content = der[start:]
    if len(content) != size or not content.isascii():
        return None
    return content.decode("ascii")
