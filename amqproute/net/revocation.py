# SPDX-License-Identifier: Apache-2.0
"""Certificate revocation lists (RFC 5280 §5): reading them, and checking a chain.

A list counts for the certificates of its issuer. Certificates of authorities without a list are
accepted: the operator provides the lists available. A list past its next update still revokes its
certificates, and the log warns that it is old; an attacker who blocks its renewal can hide newly
revoked certificates, but cannot get all peers refused.

Limits: indirect and delta lists are refused; OCSP is not used: no connections to third parties are
made in the middle of a handshake.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from twisted.logger import Logger

from amqproute.errors import TlsError

__all__ = ["NO_REVOCATIONS", "Revocations", "read_revocations"]

log = Logger()

_PEM: Final = re.compile(rb"-----BEGIN X509 CRL-----.+?-----END X509 CRL-----", re.DOTALL)


class Revocations:
    """The content of all lists."""

    __slots__ = ("_by_issuer",)

    def __init__(self, lists: Sequence[x509.CertificateRevocationList] = ()) -> None:
        self._by_issuer: dict[bytes, list[x509.CertificateRevocationList]] = {}
        for each in lists:
            self._by_issuer.setdefault(each.issuer.public_bytes(), []).append(each)

    def __len__(self) -> int:
        return sum(map(len, self._by_issuer.values()))

    def failure(self, chain: Sequence[x509.Certificate]) -> TlsError | None:
        """Return why a chain must not be used; None if no list names one of its certificates."""
        if not self._by_issuer:
            return None
        for depth, certificate in enumerate(chain):
            for each in self._by_issuer.get(certificate.issuer.public_bytes(), ()):
                revoked = each.get_revoked_certificate_by_serial_number(certificate.serial_number)
                if revoked is not None and not _is_removed(revoked):
                    return _error(certificate, revoked, is_own=depth == 0)
        return None


NO_REVOCATIONS: Final = Revocations()


def read_revocations(
    paths: Sequence[Path], authorities: Sequence[x509.Certificate], now: datetime.datetime
) -> Revocations:
    """Read PEM or DER files.

    Args:
        paths: the files; a PEM file may hold several lists.
        authorities: those of the trust file; a list with the name of one of them must have its
            signature too.
        now: the present.

    Raises:
        TlsError: ``tls.crl``: a file cannot be read, is not a list, or has a false signature.
    """
    lists: list[x509.CertificateRevocationList] = []
    for path in paths:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise TlsError("tls.crl", f"cannot read {path}: {error.strerror}") from error
        parts = _PEM.findall(content)
        try:
            found = (
                [x509.load_pem_x509_crl(part) for part in parts]
                if parts
                else [x509.load_der_x509_crl(content)]
            )
        except ValueError as error:
            raise TlsError("tls.crl", f"{path} is not a revocation list: {error}") from error
        for each in found:
            _check(each, path, authorities, now)
        lists += found
    return Revocations(lists)


def _check(
    found: x509.CertificateRevocationList,
    path: Path,
    authorities: Sequence[x509.Certificate],
    now: datetime.datetime,
) -> None:
    issuer = found.issuer.rfc4514_string()
    for extension in found.extensions:
        if extension.critical:  # an indirect or a delta list, or one for some certificates only
            raise TlsError(
                "tls.crl",
                f"{path}: the list of {issuer} has the critical extension "
                f"{extension.oid.dotted_string}; only plain, full lists can be used",
            )
    named = [each for each in authorities if each.subject == found.issuer]
    if named and not any(_has_signed(each, found) for each in named):
        raise TlsError("tls.crl", f"{path}: the list is not signed by the key of {issuer}")
    if found.next_update_utc is not None and found.next_update_utc < now:
        log.warn(
            "{path}: the revocation list of {issuer} should have been renewed by {date}; what it "
            "names stays revoked",
            path=str(path),
            issuer=issuer,
            date=found.next_update_utc.isoformat(),
        )


def _has_signed(authority: x509.Certificate, found: x509.CertificateRevocationList) -> bool:
    key: Any = authority.public_key()
    try:
        return bool(found.is_signature_valid(key))
    except (TypeError, ValueError):
        return False  # a key of another kind than the signature


def _is_removed(revoked: x509.RevokedCertificate) -> bool:
    return _reason(revoked) is x509.ReasonFlags.remove_from_crl


def _reason(revoked: x509.RevokedCertificate) -> x509.ReasonFlags | None:
    try:
        return revoked.extensions.get_extension_for_class(x509.CRLReason).value.reason
    except (x509.ExtensionNotFound, ValueError):
        return None


def _error(
    certificate: x509.Certificate, revoked: x509.RevokedCertificate, *, is_own: bool
) -> TlsError:
    whose = "the peer's certificate" if is_own else "a certificate of the peer's chain"
    reason = _reason(revoked)
    because = "" if reason is None else f" ({reason.value})"
    return TlsError(
        "tls.revoked",
        f"{whose} is revoked: serial {certificate.serial_number:x}, subject "
        f"{certificate.subject.rfc4514_string()}, by its issuer "
        f"{certificate.issuer.rfc4514_string()} on {revoked.revocation_date_utc:%Y-%m-%d}"
        f"{because}. Cure: its holder needs a new one",
    )
