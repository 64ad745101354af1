# SPDX-License-Identifier: Apache-2.0
"""TLS contexts that can be reloaded, verification inside the handshake, readable failures.

`TlsContexts` reads three files and keeps two OpenSSL contexts, one for each side. They are built at
(re)load and shared by all connections; the differences between connections, whether a client
certificate is requested and which name the peer must prove, are set on the connection. A reload
therefore costs nothing per connection, applies to new connections only, and leaves the old pair in
force if the new one is unusable.

The peer's chain *and name* are verified by the callback that OpenSSL runs during the handshake: a
wrong peer gets an alert and not one octet of the application. The callback leaves its verdict in a
`Verification` on the TLS protocol, because OpenSSL's own error is just ``certificate verify
failed``; `translate` turns the verdict, or an OpenSSL error, into a `TlsError` with code and text
for operators. What must be proved, and whether it is, `amqproute.net.peer_trust` decides once, at
the last call of the callback; earlier calls only collect the chain and record OpenSSL's objections,
because a certificate backed by DANE or a pin needs no authority.

The accepting side learns the name only with the certificate, and DANE requires DNS queries. These
are made between the handshake and the first octet of the application (`Verification.conclude`,
`amqproute.net.inbound_trust`).

Certificates on revocation lists (``tls.crl``) are refused in both directions, whatever else is in
their favor (`amqproute.net.revocation`).

Why so: no session tickets and no session cache. Connections between brokers live for hours, and a
resumed session would skip exactly the verification that a reload of the trust file may have
changed. Compression and renegotiation are off; TLS 1.2 with forward secrecy is the minimum.

Extended key usage: a certificate for servers only is accepted from a connecting peer too. Both ends
of a link between organizations are servers, and public authorities no longer issue certificates
with the client usage.
"""

from __future__ import annotations

import datetime
import os
import re
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID
from OpenSSL import SSL, crypto
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import (
    IOpenSSLClientConnectionCreator,
    IOpenSSLServerConnectionCreator,
)
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute.errors import TlsError
from amqproute.net import certificate_identity, dane
from amqproute.net.handshake_diagnosis import HandshakeProgress, explain, reasons_of
from amqproute.net.peer_trust import ShownCertificate, TrustDemand, TrustMethod, judge
from amqproute.net.revocation import NO_REVOCATIONS, Revocations, read_revocations

__all__ = [
    "CertificateFacts",
    "ClientCertificateMode",
    "PeerJudge",
    "TlsConclusion",
    "TlsContexts",
    "Verification",
    "describe",
    "peer_certificate",
    "translate",
]

log = Logger()

ClientCertificateMode = Literal["none", "optional", "required"]

_CIPHERS: Final = b"ECDHE+AESGCM:ECDHE+CHACHA20:!aNULL:!eNULL"  # of TLS 1.2; 1.3 has its own
_NO_RENEGOTIATION: Final = 1 << 30  # SSL_OP_NO_RENEGOTIATION; unknown to some type stubs
_INVALID_PURPOSE: Final = 26  # X509_V_ERR_INVALID_PURPOSE
_VERIFY_ERRORS: Final = {
    # X509_V_ERR_*: (code, words, cure)
    2: ("tls.untrusted", "its issuer's certificate is missing", "chain"),
    7: ("tls.untrusted", "its signature is wrong", "trust"),
    9: ("tls.not-yet-valid", "it is not valid yet", "clock"),
    10: ("tls.expired", "it has expired", "renew"),
    18: ("tls.untrusted", "it is self-signed and not trusted", "trust"),
    19: ("tls.untrusted", "its authority is not trusted", "trust"),
    20: ("tls.untrusted", "its issuer is unknown", "chain"),
    21: ("tls.untrusted", "its issuer is unknown", "chain"),
    24: ("tls.untrusted", "its issuer is not an authority", "trust"),
    _INVALID_PURPOSE: ("tls.untrusted", "it is not meant for this use", "purpose"),
}
_CURES: Final = {
    "chain": "add the authority to the trust file, or have the peer send its whole chain",
    "trust": "add the authority to the trust file if it is to be trusted",
    "clock": "compare the clocks of both sides",
    "renew": "its holder has to renew it",
    "purpose": "its holder needs one with the extended key usage for TLS servers or clients",
}
_PEM_LABEL: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,40})-----")


@dataclass(frozen=True, slots=True)
class TlsConclusion:
    """The proved identity of an accepted peer.

    Attributes:
        domains: the domains it may speak for.
        level: one of `amqproute.values.SECURITY_LEVELS`.
        failure: why it is refused altogether, or None.
    """

    domains: frozenset[str]
    level: str
    failure: TlsError | None = None


class PeerJudge(Protocol):
    """Decides about accepted peers: `amqproute.net.inbound_trust.InboundTrust`."""

    def may_prove(self, certificate: x509.Certificate) -> bool:
        """Return whether this certificate could be good without a trusted authority."""

    def conclude(self, shown: ShownCertificate) -> TlsConclusion | Deferred[TlsConclusion]:
        """Decide; never fails."""


class Verification:
    """The demand on one handshake, and its result.

    Attributes:
        failure: why the peer was refused; None without objection.
        is_proved: whether the demand, if any, was found proved. It is checked once more after the
            handshake, so that a callback that was never called cannot pass for one without
            objection.
        level: the level reached; one of `amqproute.values.SECURITY_LEVELS`.
        domains: the domains that an accepted peer may speak for, or that a server has proved.
        own: our certificate in use, or None.
    """

    __slots__ = (
        "_chain",
        "_chain_failure",
        "_demand",
        "_judge",
        "_now",
        "_revocations",
        "domains",
        "failure",
        "is_proved",
        "level",
        "own",
    )

    def __init__(
        self,
        demand: TrustDemand | None = None,
        *,
        judge: PeerJudge | None = None,
        revocations: Revocations = NO_REVOCATIONS,
        now: Callable[[], float] = time.time,
        own: x509.Certificate | None = None,
    ) -> None:
        """Initialize.

        Args:
            demand: what the server has to prove; None on the accepting side.
            judge: decides about clients; None if only authorities count.
            revocations: the revocation lists.
            now: the wall clock, seconds since 1970.
            own: our certificate in use.
        """
        self._demand = demand
        self._judge = judge
        self._revocations = revocations
        self._now = now
        self._chain: dict[int, x509.Certificate] = {}
        self._chain_failure: TlsError | None = None
        self.failure: TlsError | None = None
        self.is_proved = demand is None or demand.method is TrustMethod.TLS
        self.level = "tls"
        self.domains: frozenset[str] = frozenset()
        self.own = own

    def __call__(
        self, connection: SSL.Connection, certificate: crypto.X509, error: int, depth: int, ok: int
    ) -> bool:
        """Check one certificate of the chain; OpenSSL calls this from the root to the leaf.

        Nothing may be raised here: an exception in an OpenSSL callback would be lost.
        """
        try:
            return self._take(certificate.to_cryptography(), error, depth, bool(ok))
        except Exception:
            log.failure("verifying a certificate failed; the peer is refused")
            self.failure = TlsError("tls.handshake", "the peer's certificate cannot be read")
            return False

    def conclude(self, host: str = "") -> Deferred[None] | None:
        """Make the decisions left after the handshake; return None if nothing must be waited for.

        Args:
            host: the IP address of the other end; empty if it has none.

        Afterwards `failure`, `level` and `domains` are final. The Deferred never fails.
        """
        if self._demand is not None or not self._chain:
            return None
        shown = self._shown(host)
        if self._judge is None:
            self.level = "authenticated"
            self.domains = certificate_identity.peer_domains(shown.chain[0])
            return None
        found = self._judge.conclude(shown)
        if isinstance(found, TlsConclusion):
            self._concluded(found)
            return None
        return found.addCallback(self._concluded)

    @property
    def own_serial(self) -> int | None:
        """The serial number of our certificate in use, or None."""
        return None if self.own is None else self.own.serial_number

    @property
    def has_seen_peer(self) -> bool:
        """Whether the peer has shown a certificate."""
        return bool(self._chain)

    def let_go(self) -> None:
        """Drop all references to the peer after the connection is lost.

        pyOpenSSL keeps the callback of a connection in a cycle, so this object stays until garbage
        collection; certificates are some kilobytes.
        """
        self._chain.clear()
        self._chain_failure = self.failure = None
        self._judge = None

    def _concluded(self, found: TlsConclusion) -> None:
        self.failure, self.level, self.domains = found.failure, found.level, found.domains

    def _shown(self, host: str = "") -> ShownCertificate:
        chain = tuple(self._chain[depth] for depth in sorted(self._chain))
        return ShownCertificate(chain, self._chain_failure, self._revocations.failure(chain), host)

    def _take(self, certificate: x509.Certificate, error: int, depth: int, ok: bool) -> bool:
        self._chain[depth] = certificate
        is_servers_own = (  # see "Extended key usage"
            error == _INVALID_PURPOSE
            and depth == 0
            and self._demand is None
            and _is_for_servers(certificate)
        )
        if not ok and not is_servers_own:
            self._chain_failure = self._chain_failure or _chain_error(certificate, error, depth)
            if self._needs_authority:
                self.failure = self._chain_failure
                return False  # at once: the alert then carries OpenSSL's finding to the peer
            return True  # the last call decides
        return depth > 0 or self._decide(certificate)

    @property
    def _needs_authority(self) -> bool:
        """Whether only a trusted authority can vouch for the peer."""
        if self._demand is None:
            return self._judge is None
        return self._demand.method is TrustMethod.PKIX

    def _decide(self, certificate: x509.Certificate) -> bool:
        """Make the decisions that are possible inside the handshake."""
        shown = self._shown()
        if self._demand is None:
            self.failure = shown.revoked
            judge_ = self._judge
            if shown.chain_failure is not None and not (judge_ and judge_.may_prove(certificate)):
                self.failure = self.failure or shown.chain_failure
            return self.failure is None
        present = datetime.datetime.fromtimestamp(self._now(), datetime.UTC)
        verdict = judge(self._demand, shown, present)
        self.failure = verdict.failure
        if verdict.failure is not None:
            return False
        self.is_proved = True
        self.level = verdict.level
        if self.level != "tls":
            self.domains = certificate_identity.peer_domains(certificate)
        return True


@implementer(IOpenSSLServerConnectionCreator)
class ServerCreator:
    """Makes the OpenSSL connection of each accepted peer from the contexts in force."""

    def __init__(
        self,
        contexts: TlsContexts,
        client_certificate: ClientCertificateMode,
        judge: PeerJudge | None,
    ) -> None:
        self._contexts = contexts
        self._judge = judge
        self._mode = {
            "none": SSL.VERIFY_NONE,
            "optional": SSL.VERIFY_PEER,
            "required": SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT,
        }[client_certificate]

    # Any: Twisted's TLS protocol, which gets an attribute of ours.
    def serverConnectionForTLS(self, tlsProtocol: Any) -> SSL.Connection:
        """Make a connection, and attach its `Verification` to the protocol on top of it."""
        loaded = self._contexts.loaded
        connection = SSL.Connection(loaded.server, None)
        verification = Verification(
            judge=self._judge,
            revocations=loaded.revocations,
            now=self._contexts.now,
            own=loaded.chain[0] if loaded.chain else None,
        )
        tlsProtocol.verification = verification  # Twisted uses the connection's app data
        connection.set_verify(self._mode, verification)
        return connection


@implementer(IOpenSSLClientConnectionCreator)
class ClientCreator:
    """Makes the OpenSSL connection to one peer, which must prove what is demanded."""

    def __init__(self, contexts: TlsContexts, demand: TrustDemand) -> None:
        self._contexts = contexts
        self._demand = demand
        self._server_name = _server_name(demand.server_name)

    # Any: as above.
    def clientConnectionForTLS(self, tlsProtocol: Any) -> SSL.Connection:
        """Make a connection, and attach its `Verification` to the protocol on top of it."""
        loaded = self._contexts.loaded
        connection = SSL.Connection(loaded.client, None)
        verification = Verification(
            self._demand,
            revocations=loaded.revocations,
            now=self._contexts.now,
            own=loaded.chain[0] if loaded.chain else None,
        )
        tlsProtocol.verification = verification  # Twisted uses the connection's app data
        connection.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, verification)
        if self._server_name is not None:
            connection.set_tlsext_host_name(self._server_name)
        return connection


@dataclass(frozen=True, slots=True)
class LoadedCertificate:
    """The result of reading the files.

    Attributes:
        server: the context for accepted connections.
        client: the context for connections to peers.
        chain: our certificate and its intermediates; empty without one.
        revocations: the revocation lists.
    """

    server: SSL.Context
    client: SSL.Context
    chain: tuple[x509.Certificate, ...]
    revocations: Revocations = NO_REVOCATIONS

    @property
    def serial(self) -> int | None:
        """The serial number of our certificate, or None without one."""
        return self.chain[0].serial_number if self.chain else None


class TlsContexts:
    """Our certificate and key, the trusted authorities, and the OpenSSL contexts made of them.

    Attributes:
        loaded: the files in force.
        now: the wall clock, seconds since 1970.
    """

    def __init__(
        self,
        certificate: str | os.PathLike[str] | None,
        private_key: str | os.PathLike[str] | None,
        trust: str | os.PathLike[str] | None = "system",
        *,
        crl: Sequence[str | os.PathLike[str]] = (),
        now: Callable[[], float] = time.time,
        checks_dates: bool = True,
        warns: bool = True,
    ) -> None:
        """Load and check.

        Args:
            certificate: PEM file, our certificate first, then its intermediates; None for a program
                that only connects and shows none.
            private_key: PEM file with its key.
            trust: PEM file with the authorities for peers' certificates; ``system`` or None for
                those of the operating system.
            crl: PEM or DER files with certificate revocation lists.
            now: the wall clock, seconds since 1970.
            checks_dates: refuse a certificate of ours that is not valid now; else see `ailment`.
            warns: log a warning if other users can read the key; `check` reports it itself.

        Raises:
            TlsError: ``tls.file`` for unreadable files, ``tls.key`` for a key of another
                certificate, ``tls.expired`` and ``tls.not-yet-valid`` for the dates of ours.
        """
        if (certificate is None) != (private_key is None):
            raise TlsError("tls.file", "a certificate and a private key belong together")
        self._warns = warns
        self._certificate = None if certificate is None else Path(certificate)
        self._private_key = None if private_key is None else Path(private_key)
        self._trust = None if trust is None or os.fspath(trust) == "system" else Path(trust)
        self._crl = tuple(Path(each) for each in crl)
        self.now = now
        self.loaded = self._load()
        if checks_dates and (error := self.ailment) is not None:
            raise error

    @property
    def ailment(self) -> TlsError | None:
        """Why the dates of our certificate forbid its use now; None if valid or without one.

        ``tls.expired`` or ``tls.not-yet-valid``.
        """
        return self._dates(self.loaded)

    def _dates(self, loaded: LoadedCertificate) -> TlsError | None:
        if not loaded.chain:
            return None
        certificate, path = loaded.chain[0], self._certificate
        present = datetime.datetime.fromtimestamp(self.now(), datetime.UTC)
        if present > certificate.not_valid_after_utc:
            return TlsError(
                "tls.expired",
                f"{path} has expired at {_date(certificate.not_valid_after_utc)}; renew it",
            )
        if present < certificate.not_valid_before_utc:
            return TlsError(
                "tls.not-yet-valid",
                f"{path} is valid from {_date(certificate.not_valid_before_utc)} only; "
                "is this machine's clock right?",
            )
        return None

    @property
    def certificate(self) -> x509.Certificate | None:
        """Our certificate in force."""
        return self.loaded.chain[0] if self.loaded.chain else None

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that `reload` reads."""
        found = (self._certificate, self._private_key, self._trust, *self._crl)
        return tuple(each for each in found if each is not None)

    def reload(self) -> None:
        """Read the files again, for new connections.

        Raises:
            TlsError: the files cannot be used; the old ones stay in force.
        """
        loaded = self._load()
        if (error := self._dates(loaded)) is not None:
            raise error
        self._take(loaded)

    def adopt(self, other: TlsContexts) -> None:
        """Take over the files and contexts of `other`, for new connections."""
        self._certificate = other._certificate
        self._private_key = other._private_key
        self._trust = other._trust
        self._crl = other._crl
        self._take(other.loaded)

    def _take(self, loaded: LoadedCertificate) -> None:
        old, new = self.loaded.serial, loaded.serial
        self.loaded = loaded
        if old != new:
            log.info(
                "certificate of ours replaced: serial {old} was in force, {new} is, until {until}; "
                "connections made before keep the old one",
                old="none" if old is None else f"{old:x}",
                new="none" if new is None else f"{new:x}",
                until=_date(loaded.chain[0].not_valid_after_utc) if loaded.chain else "-",
            )

    def server_creator(
        self,
        client_certificate: ClientCertificateMode = "optional",
        judge: PeerJudge | None = None,
    ) -> IOpenSSLServerConnectionCreator:
        """Return the factory of TLS connections on the accepting side.

        Args:
            client_certificate: ``optional`` verifies one that is shown, ``required`` ends the
                handshake without one, ``none`` requests none.
            judge: decides about peers' certificates; None if only trusted authorities count.

        Raises:
            TlsError: ``tls.file`` if there is no certificate of ours to show.
        """
        if not self.loaded.chain:
            raise TlsError(
                "tls.file", "a listener with TLS needs tls.certificate and tls.private-key"
            )
        return ServerCreator(self, client_certificate, judge)

    def client_creator(
        self, domain: str, extra_names: Sequence[str] = ()
    ) -> IOpenSSLClientConnectionCreator:
        """Return the factory of TLS connections to one peer, which must prove a name by PKIX.

        Args:
            domain: the name that the peer must prove, and that is sent as server name (SNI).
            extra_names: host names that may be proved instead (see `certificate_identity.match`).

        Raises:
            TlsError: ``tls.name`` if `domain` cannot be a name in a certificate.
        """
        names = (domain, *extra_names)
        return self.creator_for(
            TrustDemand(TrustMethod.PKIX, domain, names, domain, "authenticated")
        )

    def creator_for(self, demand: TrustDemand) -> IOpenSSLClientConnectionCreator:
        """Return the factory of TLS connections to a peer that must prove what is demanded.

        Raises:
            TlsError: ``tls.name`` if the name to request is not valid; or the demand's own code if
                no proof would suffice.
        """
        if demand.method in (TrustMethod.REFUSED, TrustMethod.PLAIN):
            raise TlsError(demand.code, demand.words)
        return ClientCreator(self, demand)

    def _load(self) -> LoadedCertificate:
        chain: tuple[x509.Certificate, ...] = ()
        key: crypto.PKey | None = None
        if self._certificate is not None and self._private_key is not None:
            chain = _read_certificates(self._certificate)
            key = _read_key(self._private_key, warns=self._warns)
            self._check(chain[0], key, self._certificate, self._private_key)
        trusted = None if self._trust is None else _read_certificates(self._trust)
        present = datetime.datetime.fromtimestamp(self.now(), datetime.UTC)
        revocations = read_revocations(self._crl, trusted or (), present)
        try:
            return LoadedCertificate(
                _make_context(chain, key, trusted),
                _make_context(chain, key, trusted),
                chain,
                revocations,
            )
        except SSL.Error as error:
            raise TlsError(
                "tls.file", f"OpenSSL does not take {self._certificate}: {reasons_of(error)}"
            ) from error

    def _check(
        self, certificate: x509.Certificate, key: crypto.PKey, path: Path, key_path: Path
    ) -> None:
        ours: Any = key.to_cryptography_key()
        if ours.public_key() != certificate.public_key():
            raise TlsError(
                "tls.key", f"{key_path} is not the key of the first certificate in {path}"
            )


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """Facts about a certificate for operators.

    Attributes:
        subject: the distinguished name, RFC 4514.
        issuer: likewise.
        names: what it proves.
        serial: hexadecimal.
        not_before: first moment of validity.
        not_after: last moment of validity.
        fingerprint: SHA-256 over the certificate, lower case hexadecimal.
        key_fingerprint: SHA-256 over its key (SubjectPublicKeyInfo), likewise.
    """

    subject: str
    issuer: str
    names: certificate_identity.CertificateNames
    serial: str
    not_before: datetime.datetime
    not_after: datetime.datetime
    fingerprint: str
    key_fingerprint: str

    def __str__(self) -> str:
        return (
            f"{self.subject}, issued by {self.issuer}, names {self.names}, valid from "
            f"{_date(self.not_before)} to {_date(self.not_after)}, SHA-256 {self.fingerprint}"
        )


def describe(certificate: x509.Certificate) -> CertificateFacts:
    """Return the facts about a certificate."""
    return CertificateFacts(
        subject=certificate.subject.rfc4514_string(),
        issuer=certificate.issuer.rfc4514_string(),
        names=certificate_identity.names_of(certificate),
        serial=f"{certificate.serial_number:x}",
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(),
        key_fingerprint=dane.record_of(certificate).data.hex(),
    )


def peer_certificate(transport: object) -> x509.Certificate | None:
    """Return the certificate that the peer has shown, or None (also on a transport without TLS)."""
    getter = getattr(transport, "getPeerCertificate", None)
    certificate = None if getter is None else getter()
    return None if certificate is None else certificate.to_cryptography()


def translate(
    failure: Failure | BaseException,
    verification: Verification | None = None,
    connection: SSL.Connection | None = None,
    *,
    is_client: bool = False,
) -> TlsError:
    """Return the reason for a failed TLS handshake.

    Args:
        failure: the transport's error.
        verification: the connection's; preferred if it refused the peer.
        connection: OpenSSL's; shows how far the handshake has come.
        is_client: whether we are the connecting side.
    """
    if verification is not None and verification.failure is not None:
        return verification.failure
    error = failure.value if isinstance(failure, Failure) else failure
    assert error is not None
    if isinstance(error, TlsError):
        return error
    progress = None
    if verification is not None and connection is not None:
        asked = None if is_client else connection.get_servername()
        progress = HandshakeProgress(
            is_client,
            verification.has_seen_peer or connection.get_cipher_name() is not None,
            "" if asked is None else asked.decode("ascii", "replace"),
            verification.own,
        )
    return explain(error, progress)


def _make_context(
    chain: Sequence[x509.Certificate],
    key: crypto.PKey | None,
    trusted: Sequence[x509.Certificate] | None,
) -> SSL.Context:
    context = SSL.Context(SSL.TLS_METHOD)
    context.set_min_proto_version(SSL.TLS1_2_VERSION)
    context.set_cipher_list(_CIPHERS)
    context.set_options(
        SSL.OP_NO_COMPRESSION
        | SSL.OP_CIPHER_SERVER_PREFERENCE
        | _NO_RENEGOTIATION
        | SSL.OP_NO_TICKET
    )
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)  # about 34 KiB for each idle connection
    if key is not None:
        context.use_certificate(crypto.X509.from_cryptography(chain[0]))
        for certificate in chain[1:]:
            context.add_extra_chain_cert(crypto.X509.from_cryptography(certificate))
        context.use_privatekey(key)
        context.check_privatekey()
    if trusted is None:
        context.set_default_verify_paths()
    else:
        store = context.get_cert_store()
        assert store is not None
        # Everything in the trust file is trusted, including an intermediate authority or a single
        # peer's certificate: that is common between two organizations.
        store.set_flags(crypto.X509StoreFlags.PARTIAL_CHAIN)
        for certificate in trusted:
            store.add_cert(crypto.X509.from_cryptography(certificate))
    return context


def _read_certificates(path: Path) -> tuple[x509.Certificate, ...]:
    try:
        octets = path.read_bytes()
        return tuple(x509.load_pem_x509_certificates(octets))
    except OSError as error:
        raise TlsError("tls.file", f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        what = _described_pem(octets, b"CERTIFICATE")
        words = f"{path} holds no PEM certificate: {what}"
        raise TlsError("tls.file", words) from error


def _described_pem(octets: bytes, wanted: bytes) -> str:
    """Describe the content of a file without the expected PEM block, for an operator."""
    labels = list(dict.fromkeys(_PEM_LABEL.findall(octets)))
    if wanted in labels:
        return "the content under that heading is truncated or damaged"
    if labels:
        kinds = ", ".join(label.decode("ascii").lower() for label in labels)
        return f"it holds a {kinds}; are the files confused?"
    if not octets.strip():
        return "it is empty"
    if octets.startswith(b"\x30"):
        return "it seems to be in DER form; convert it with openssl x509 or openssl pkey"
    return "there is no line that begins with -----BEGIN"


def _read_key(path: Path, *, warns: bool) -> crypto.PKey:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            octets = file.read()
        key = serialization.load_pem_private_key(octets, None)
        if warns and mode & stat.S_IRWXO:
            log.warn(
                "private key {path} is open to every user of this machine (chmod o= it)", path=path
            )
        return crypto.PKey.from_cryptography_key(key)  # type: ignore[arg-type]
    except OSError as error:
        raise TlsError("tls.file", f"cannot read {path}: {error.strerror}") from error
    except TypeError as error:
        raise TlsError(
            "tls.file",
            f"{path} is protected by a pass phrase, which nobody types in here: write the key "
            "without one (openssl pkey -in OLD -out NEW), readable by the daemon only",
        ) from error
    except ValueError as error:
        what = _described_pem(octets, b"PRIVATE KEY")
        raise TlsError("tls.file", f"{path} holds no PEM private key: {what}") from error


def _chain_error(certificate: x509.Certificate, error: int, depth: int) -> TlsError:
    code, words, cure = _VERIFY_ERRORS.get(
        error, ("tls.untrusted", f"OpenSSL does not verify it (X509_V_ERR {error})", "trust")
    )
    whose = "the peer's certificate" if depth == 0 else "a certificate of the peer's chain"
    facts = describe(certificate)
    return TlsError(
        code,
        f"{whose} is refused: {words} (subject {facts.subject}, issuer {facts.issuer}, valid "
        f"{_date(facts.not_before)} to {_date(facts.not_after)}, SHA-256 {facts.fingerprint}). "
        f"Cure: {_CURES[cure]}",
    )


def _is_for_servers(certificate: x509.Certificate) -> bool:
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (x509.ExtensionNotFound, ValueError):
        return False
    return ExtendedKeyUsageOID.SERVER_AUTH in usage


def _server_name(domain: str) -> bytes | None:
    """Return the SNI of a domain; an IP address has none (RFC 6066 §3)."""
    if certificate_identity.is_address(domain):
        return None
    plain = domain.rstrip(".").lower()
    try:
        return plain.encode("ascii") if plain.isascii() else plain.encode("idna")
    except UnicodeError as error:
        raise TlsError("tls.name", f"{domain!r} is not a domain name: {error}") from error


def _date(moment: datetime.datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M UTC")
