# SPDX-License-Identifier: Apache-2.0
"""A certificate authority in a directory, for trials, tests, and closed groups of peers.

`make_authority` writes ``DIR/ca.pem`` and ``DIR/ca-key.pem``; `issue` writes ``DIR/NAME/chain.pem``
and ``DIR/NAME/key.pem`` for each name. Peers that trust ``ca.pem`` accept the names in those
certificates: the DNS-ID ``NAME`` and the SRV-IDs ``_amqps.NAME`` and ``_amqp.NAME`` (RFC 4985), for
both sides of a connection.

Why so: an authority on disk, without a passphrase, is not for the open Internet. It exists because
the first requirement for two brokers to communicate is four matching files. Keys are P-256 with
mode 0600; nothing is ever overwritten, because a replaced authority key would silently invalidate
every certificate issued before.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from amqproute.errors import TlsError

__all__ = ["DNS_SRV_NAME", "Issued", "issue", "make_authority"]

DNS_SRV_NAME: Final = ObjectIdentifier("1.3.6.1.5.5.7.8.7")
"""id-on-dnsSRV: the type of a subjectAltName otherName that is an SRV-ID (RFC 4985 §2)."""

SERVICES: Final = ("_amqps", "_amqp")
"""The services named in a certificate, in the form of SRV owner names."""

_BACKDATED: Final = datetime.timedelta(minutes=5)  # for peers whose clocks are slightly behind
_IA5STRING: Final = 0x16
# One label or more; the left-most may be a lone asterisk. Also keeps '/' and '..' out of paths.
_NAME: Final = re.compile(
    r"(\*\.)?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*"
)


class Issued:
    """The files of one issued certificate.

    Attributes:
        chain: the certificate, PEM.
        private_key: its key, PEM (PKCS #8), mode 0600.
    """

    __slots__ = ("chain", "private_key")

    def __init__(self, chain: Path, private_key: Path) -> None:
        self.chain = chain
        self.private_key = private_key


def make_authority(
    directory: str | os.PathLike[str],
    *,
    name: str = "amqproute authority",
    days: float = 3650,
    now: datetime.datetime | None = None,
) -> Path:
    """Create an authority and return the path of its certificate, which peers must trust.

    Args:
        directory: created if missing (mode 0700).
        name: the common name; operators see it as the issuer.
        days: the period of validity.
        now: the present; the system's clock if None.

    Raises:
        TlsError: ``tls.exists`` if there is an authority already, ``tls.file`` if the files cannot
            be written.
    """
    root = Path(directory)
    certificate_path, key_path = root / "ca.pem", root / "ca-key.pem"
    _refuse_existing(certificate_path, key_path)
    present = now or datetime.datetime.now(datetime.UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _distinguished(name)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(secrets.randbits(127) + 1)
        .not_valid_before(present - _BACKDATED)
        .not_valid_after(present + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(is_authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _make_directory(root)
    _write(key_path, _key_pem(key), 0o600)
    _write(certificate_path, _certificate_pem(certificate), 0o644)
    return certificate_path


def issue(
    directory: str | os.PathLike[str],
    names: Sequence[str],
    *,
    days: float = 825,
    serial: int | None = None,
    not_before: datetime.datetime | None = None,
    not_after: datetime.datetime | None = None,
    dns_names: Sequence[str] | None = None,
    srv_names: Sequence[str] | None = None,
    addresses: Sequence[str] = (),
    client: bool = True,
    server: bool = True,
    folder: str | None = None,
    now: datetime.datetime | None = None,
) -> list[Issued]:
    """Issue one certificate, with its own key, for each name.

    Args:
        directory: the directory of the authority.
        names: domain names; a leading ``*.`` is allowed.
        days: period of validity from now.
        serial: the serial number; random if None. Only for a single name.
        not_before: start of validity; by default slightly before now.
        not_after: end of validity; by default `days` from now.
        dns_names: the DNS-IDs; the name itself if None.
        srv_names: the SRV-IDs such as ``_amqps.beta.example``; both services of the name if None.
        addresses: IP addresses to include.
        client: valid for the connecting side (extended key usage).
        server: valid for the accepting side.
        folder: the folder below `directory`; the name if None. Only for a single name.
        now: the present; the system's clock if None.

    Raises:
        TlsError: ``tls.exists`` if a folder has a certificate already (then nothing is issued),
            ``tls.file`` if a file cannot be read or written, ``tls.request`` if a name is not
            valid.
    """
    root = Path(directory)
    wanted = [_checked_name(name) for name in names]
    if not wanted:
        raise TlsError("tls.request", "no name to issue a certificate for")
    if len(wanted) > 1 and (serial is not None or folder is not None):
        raise TlsError("tls.request", "a serial number or folder can be given for one name only")
    if not client and not server:
        raise TlsError("tls.request", "a certificate has to be good for one side at least")
    authority, authority_key = _load_authority(root)
    present = now or datetime.datetime.now(datetime.UTC)
    begins = not_before or present - _BACKDATED
    # No certificate outlives the authority: verifiers would consider it expired anyway.
    ends = not_after or min(present + datetime.timedelta(days=days), authority.not_valid_after_utc)
    if ends <= begins:
        raise TlsError(
            "tls.request", f"the certificate would end ({ends}) before it begins ({begins})"
        )
    places = [
        Issued(root / place / "chain.pem", root / place / "key.pem")
        for place in (folder or name.replace("*", "_wildcard") for name in wanted)
    ]
    for place in places:
        _refuse_existing(place.chain, place.private_key)
    usages = [
        usage
        for usage, is_wanted in (
            (ExtendedKeyUsageOID.SERVER_AUTH, server),
            (ExtendedKeyUsageOID.CLIENT_AUTH, client),
        )
        if is_wanted
    ]
    for name, place in zip(wanted, places, strict=True):
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = _alternative_names(name, dns_names, srv_names, addresses)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_distinguished(name))
            .issuer_name(authority.subject)
            .public_key(key.public_key())
            .serial_number(serial if serial is not None else secrets.randbits(127) + 1)
            .not_valid_before(begins)
            .not_valid_after(ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(is_authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
                critical=False,
            )
            .sign(authority_key, hashes.SHA256())
        )
        _make_directory(place.chain.parent)
        _write(place.private_key, _key_pem(key), 0o600)
        _write(place.chain, _certificate_pem(certificate), 0o644)
    return places


def _checked_name(name: str) -> str:
    lower = name.strip().rstrip(".").lower()
    if not lower.isascii():
        try:
            lower = lower.encode("idna").decode("ascii")
        except UnicodeError as error:
            raise TlsError("tls.request", f"{name!r} is not a domain name: {error}") from error
    if len(lower) > 253 or not _NAME.fullmatch(lower):
        raise TlsError("tls.request", f"{name!r} is not a domain name")
    return lower


def _alternative_names(
    name: str,
    dns_names: Sequence[str] | None,
    srv_names: Sequence[str] | None,
    addresses: Sequence[str],
) -> list[x509.GeneralName]:
    if srv_names is None:  # an SRV-ID has no wildcards (RFC 4985 §2)
        srv_names = () if "*" in name else [f"{service}.{name}" for service in SERVICES]
    found: list[x509.GeneralName] = [
        x509.DNSName(each) for each in ((name,) if dns_names is None else dns_names)
    ]
    for each in srv_names:
        text = each.encode("ascii")
        if len(text) > 127:  # the short form of a DER length; see _NAME for the real limit
            encoded = bytes([_IA5STRING, 0x81, len(text)]) + text
        else:
            encoded = bytes([_IA5STRING, len(text)]) + text
        found.append(x509.OtherName(DNS_SRV_NAME, encoded))
    try:
        found.extend(x509.IPAddress(ipaddress.ip_address(each)) for each in addresses)
    except ValueError as error:
        raise TlsError("tls.request", str(error)) from error
    return found


def _distinguished(name: str) -> x509.Name:
    # A common name has 64 characters at most (RFC 5280, ub-common-name); it is never verified.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _load_authority(root: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate((root / "ca.pem").read_bytes())
        key = serialization.load_pem_private_key((root / "ca-key.pem").read_bytes(), None)
    except OSError as error:
        raise TlsError(
            "tls.file",
            f"no authority in {root}: {error.strerror}: {error.filename}"
            " (make one with: amqproute certs authority DIR)",
        ) from error
    except (ValueError, TypeError) as error:
        raise TlsError("tls.file", f"the authority in {root} cannot be read: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TlsError("tls.file", f"{root / 'ca-key.pem'} is not an elliptic curve key")
    if key.public_key() != certificate.public_key():
        raise TlsError("tls.key", f"ca-key.pem in {root} is not the key of ca.pem")
    return certificate, key


def _certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _refuse_existing(*paths: Path) -> None:
    for path in paths:
        if os.path.lexists(path):
            raise TlsError(
                "tls.exists",
                f"{path} exists and is not overwritten; move it away or use another directory",
            )


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise TlsError("tls.file", f"cannot make {path}: {error.strerror}") from error


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write a file atomically, and only if no file has this name."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            os.link(temporary, path)  # a rename would overwrite
        finally:
            temporary.unlink()
    except FileExistsError as error:
        raise TlsError("tls.exists", f"{path} exists and is not overwritten") from error
    except OSError as error:
        raise TlsError("tls.file", f"cannot write {path}: {error.strerror}") from error
