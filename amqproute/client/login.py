# SPDX-License-Identifier: Apache-2.0
"""The SASL mechanism that a client logs in with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from amqproute.errors import AuthenticationFailed
from amqproute.url import Url
from amqproute.wire import sasl_mechanisms

__all__ = ["ClientLogin"]


class ClientLogin:
    """Chooses the mechanism for a URL; a `sasl.ClientAuthority`.

    With a user SCRAM-SHA-256, or PLAIN on a private connection; without one EXTERNAL on a unix
    socket or with a certificate, else ANONYMOUS.

    Args:
        url: address and credentials.
        nonce: a random text of this connection.
        is_private: returns whether the connection is private; called at the broker's offer.
        has_certificate: TLS proves our identity.
    """

    def __init__(
        self, url: Url, nonce: str, is_private: Callable[[], bool], *, has_certificate: bool = False
    ) -> None:
        self._url = url
        self._nonce = nonce
        self._is_private = is_private
        self._has_certificate = has_certificate

    def choose(self, offered: Sequence[str]) -> sasl_mechanisms.SaslClient:
        """Return the machine for the best mechanism offered.

        Raises:
            AuthenticationFailed: ``auth.mechanism``: none of them will do.
        """
        url = self._url
        wanted: tuple[str, ...] = (sasl_mechanisms.ANONYMOUS,)
        if url.user is not None:
            wanted = (sasl_mechanisms.SCRAM_SHA_256, sasl_mechanisms.PLAIN)
        elif url.scheme == "unix" or self._has_certificate:
            wanted = (sasl_mechanisms.EXTERNAL, sasl_mechanisms.ANONYMOUS)
        private = self._is_private()
        name = sasl_mechanisms.choose(offered, wanted, confidential=private)
        if name is None:
            words = f"the broker offers {', '.join(offered)[:200]} here, we could use "
            words += " or ".join(wanted)
            if sasl_mechanisms.PLAIN in wanted and sasl_mechanisms.PLAIN in offered and not private:
                words += " (PLAIN only over TLS)"
            raise AuthenticationFailed("auth.mechanism", words)
        return sasl_mechanisms.client_mechanism(
            name,
            username=url.user or "",
            password=url.password or "",
            nonce=self._nonce,
            confidential=private,
        )
