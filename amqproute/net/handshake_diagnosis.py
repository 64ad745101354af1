# SPDX-License-Identifier: Apache-2.0
"""Explains failed TLS handshakes to operators, from OpenSSL's and the transport's errors.

The other side's alert (RFC 8446 §6.2) is one word, and often a poor one: a peer whose own code
verifies certificates, rather than OpenSSL, may send just ``internal error``. Knowledge of our own
side turns it into a sentence: which certificate was used, the name that the client requested, and
whether the other side spoke TLS at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from OpenSSL import SSL

from amqproute.errors import TlsError
from amqproute.net import certificate_identity

__all__ = ["HandshakeProgress", "explain", "reasons_of"]

_PLAIN_TEXT: Final = frozenset(
    {
        "wrong version number",
        "unknown protocol",
        "http request",
        "https proxy request",
        "packet length too long",
        "unsupported record type",
        "bad record type",
    }
)
_ALERT: Final = re.compile(r"\balert ([a-z ]+)")
_NO_TLS_FIRST: Final = (
    "as a rule that port does not begin with TLS: it speaks AMQP before TLS (amqp://, an SRV "
    "record _amqp._tcp), or has no TLS at all"
)
_ABOUT_NAMES: Final = frozenset(
    {"bad certificate", "certificate unknown", "internal error", "access denied"}
)
_ABOUT_VERSIONS: Final = frozenset({"protocol version", "insufficient security"})


@dataclass(frozen=True, slots=True)
class HandshakeProgress:
    """The state of a handshake when it failed.

    Attributes:
        is_client: whether we are the connecting side.
        is_answered: whether the other side has shown a certificate, or has agreed on a cipher.
        server_name: the name that the client requested (SNI); empty for none.
        own: our certificate, if any.
    """

    is_client: bool
    is_answered: bool
    server_name: str = ""
    own: x509.Certificate | None = None


def explain(error: BaseException, progress: HandshakeProgress | None = None) -> TlsError:
    """Return the reason for a failed handshake.

    Args:
        error: the error of OpenSSL or the transport.
        progress: the state of the handshake; None if unknown.
    """
    is_unanswered = progress is not None and progress.is_client and not progress.is_answered
    if not isinstance(error, SSL.Error):
        return TlsError("tls.handshake", _of_a_loss(error, progress, is_unanswered))
    reasons = reasons_of(error)
    if any(reason in _PLAIN_TEXT for reason in reasons.split("; ")):
        return TlsError("tls.plain-text", f"the peer does not speak TLS here ({reasons})")
    if "peer did not return a certificate" in reasons:
        words = "the peer has shown no certificate, and one is required"
        return TlsError("tls.no-certificate", words)
    found = _ALERT.search(reasons)
    if found is None:
        if is_unanswered and reasons == "unexpected end of file":
            return TlsError("tls.handshake", _of_a_loss(error, progress, True))
        return TlsError("tls.handshake", f"the TLS handshake failed ({reasons})")
    alert = found[1].strip()
    if alert == "certificate required":
        return TlsError(
            "tls.no-certificate",
            "the peer requires a certificate, and we have shown none: tls.certificate and "
            "tls.private-key name ours",
        )
    if is_unanswered and alert not in _ABOUT_VERSIONS:
        words = f"the peer has answered our TLS hello with the alert {alert!r} and no certificate"
        return TlsError(
            "tls.handshake",
            f"{words}: {_NO_TLS_FIRST}; or the two sides have no version or cipher in common",
        )
    return TlsError("tls.handshake", f"{_of_an_alert(alert, progress)} (TLS alert: {alert})")


def _of_a_loss(
    error: BaseException, progress: HandshakeProgress | None, is_unanswered: bool
) -> str:
    if is_unanswered:
        return f"the peer has closed the connection instead of answering TLS: {_NO_TLS_FIRST}"
    if progress is None:
        return f"the connection was lost during the TLS handshake ({error})"
    if progress.is_client:
        return (
            "the peer has closed the connection without a word during the TLS handshake, after it "
            "had shown its certificate; its log says why"
        )
    return "the client has closed the connection without a word during the TLS handshake"


def _of_an_alert(alert: str, progress: HandshakeProgress | None) -> str:
    """Return the meaning of an alert from the other side."""
    own = None if progress is None else progress.own
    if alert in _ABOUT_VERSIONS:
        return "the peer has no version of TLS in common with us, which is 1.2 at least"
    if own is None:
        return (
            "the peer has ended the TLS handshake; the cause is in its log, often that it does not "
            "trust or accept our certificate, or wants one"
        )
    if alert == "unknown ca":
        return (
            "the peer does not trust the authority of our certificate "
            f"({own.issuer.rfc4514_string()}): it has to be added to the peer's trust file, or "
            "tls.certificate lacks the intermediate certificates"
        )
    if alert == "certificate expired":
        return (
            "our certificate has expired by the peer's clock: it is valid until "
            f"{own.not_valid_after_utc:%Y-%m-%d %H:%M UTC}"
        )
    if alert == "certificate revoked":
        return "the peer's list of revoked certificates names ours"
    names = certificate_identity.names_of(own)
    wanted = "" if progress is None or progress.is_client else progress.server_name
    if alert in _ABOUT_NAMES and wanted and not certificate_identity.match(own, wanted):
        return (
            f"the peer refuses our certificate: it wanted {wanted}, and our certificate names "
            f"{names}"
        )
    if alert in _ABOUT_NAMES:
        return f"the peer refuses our certificate, which names {names}; its log says why"
    return (
        "the peer has ended the TLS handshake; the cause is in its log, often that it does not "
        f"trust or accept our certificate, which names {names}"
    )


def reasons_of(error: SSL.Error) -> str:
    """Return OpenSSL's reasons in lower case, separated by semicolons."""
    queue = error.args[0] if error.args else None
    if isinstance(queue, list):
        return "; ".join(str(each[2]).lower() for each in queue) or "unexpected end of file"
    return str(error) or type(error).__name__
