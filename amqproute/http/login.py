# SPDX-License-Identifier: Apache-2.0
"""The log-in of a request.

The first of these decides, and if it is wrong, the request is refused:

1. ``Authorization``: Basic with a user's name and password, or Bearer with an access token of this
   daemon, or with a token of an issuer (``users.issuers``);
2. the cookie of a browser's session;
3. a client certificate, which makes the principal ``peer:DOMAIN``, as in AMQP;
4. the user id at the other end of a unix socket: ``uid:NUMBER``.

Passwords and tokens are taken only where nobody can listen.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final, Protocol

from twisted.internet.defer import Deferred

from amqproute.auth.access_tokens import OWN_PREFIX, AccessToken
from amqproute.auth.password_log_in import BearerResult
from amqproute.auth.realm import LogInTransport
from amqproute.http.http_messages import ClientFacts, HttpProblem, HttpRequest
from amqproute.http.requester import Requester
from amqproute.http.sessions import COOKIE, BrowserSession, BrowserSessions
from amqproute.values import Principal

__all__ = ["HttpLogIn", "PasswordCheck", "TokenCheck", "cookie_name"]

_CHALLENGES: Final = (
    ("WWW-Authenticate", 'Basic realm="amqproute", charset="UTF-8"'),
    ("WWW-Authenticate", 'Bearer realm="amqproute"'),
)


MOST_COOKIES: Final = 200
"""Cookies that are looked at: browsers keep fewer for a host."""
REFUSED_WORDS: Final = "the token is unknown, revoked or expired"


class PasswordCheck(Protocol):
    """Verifies passwords: `amqproute.auth.password_log_in.PasswordLogIn`."""

    def principal(
        self, name: str, password: str, facts: LogInTransport
    ) -> Deferred[Principal | bool | None]:
        """Return the user; None if the password is wrong, False if it cannot be verified now."""

    def bearer(self, token: str, facts: LogInTransport) -> Deferred[BearerResult]:
        """Return the user of a token and its end; None or False as for passwords."""

    def is_known(self, principal: Principal) -> bool:
        """Return whether a principal may still log in."""


class TokenCheck(Protocol):
    """Finds tokens: `amqproute.auth.access_tokens.AccessTokens`."""

    def find(self, text: str) -> AccessToken | None:
        """Return the valid token with this text; None for any other text."""

    def get(self, token_id: str) -> AccessToken | None:
        """Return the token with an id; None without one, as after it was revoked."""


class HttpLogIn:
    """Finds out who asks.

    Args:
        passwords: verifies passwords.
        tokens: the access tokens.
        sessions: the sessions of browsers.
    """

    def __init__(
        self, passwords: PasswordCheck, tokens: TokenCheck, sessions: BrowserSessions
    ) -> None:
        self._passwords = passwords
        self._tokens = tokens
        self.sessions = sessions

    async def requester(self, request: HttpRequest) -> Requester | None:
        """Return who asks; None without any log-in.

        Raises:
            HttpProblem: the log-in is wrong.
        """
        client, remote = request.client, str(request.client)
        said = request.headers.get("authorization")
        if said is not None:
            return await self._authorized(said, client, remote)
        session = self.session(request)
        if session is not None:
            return Requester(session.principal, "session", session=session.key, remote=remote)
        facts = transport_of(client)
        external = facts.external
        if external is None:
            return None
        kind = external.kind
        if kind == "peer":
            peer = Principal("peer", external.names[0], frozenset(external.names))
            return Requester(peer, "certificate", remote=remote)
        return Requester(Principal("uid", external.names[0]), "socket", remote=remote)

    def session(self, request: HttpRequest) -> BrowserSession | None:
        """Return the session that a request's cookie names; None without one."""
        wanted = cookie_name(request.client)
        for part in request.headers.get("cookie", "").split(";", MOST_COOKIES)[:MOST_COOKIES]:
            name, _, value = part.strip().partition("=")
            if name == wanted:
                session = self.sessions.find(value)
                if session is not None and not self._passwords.is_known(session.principal):
                    self.sessions.end(session.key)
                    return None
                return session
        return None

    def holds(self, requester: Requester) -> bool:
        """Return whether the log-in of a request that is still being answered holds."""
        if requester.session and not self.sessions.is_open(requester.session):
            return False
        if requester.token and self._tokens.get(requester.token) is None:
            return False
        return self._passwords.is_known(requester.principal)

    async def log_in(self, name: str, password: str, client: ClientFacts) -> Principal:
        """Verify a password.

        Raises:
            HttpProblem: it is wrong, or cannot be verified.
        """
        require_confidence(client)
        found = await self._passwords.principal(name, password, transport_of(client))
        if found is False or found is True:
            raise _unverified()
        if found is None:
            raise unauthorized("name or password are wrong")
        return found

    async def _authorized(self, said: str, client: ClientFacts, remote: str) -> Requester:
        scheme, _, value = said.partition(" ")
        if scheme.lower() == "basic":
            name, password = _basic(value.strip())
            principal = await self.log_in(name, password, client)
            return Requester(principal, "basic", remote=remote)
        if scheme.lower() == "bearer":
            require_confidence(client)
            token = self._tokens.find(value.strip())
            if token is None:
                return await self._by_bearer(value.strip(), client, remote)
            if not self._passwords.is_known(token.principal):
                raise unauthorized(REFUSED_WORDS)
            return Requester(
                token.principal,
                "token",
                token.scope,
                remote=remote,
                expires=token.expires_ms / 1000,
                token=token.id,
            )
        raise unauthorized("the log-in is Basic or Bearer")

    async def _by_bearer(self, token: str, client: ClientFacts, remote: str) -> Requester:
        if token.startswith(OWN_PREFIX):
            raise unauthorized(REFUSED_WORDS)
        found = await self._passwords.bearer(token, transport_of(client))
        if found is None:
            raise unauthorized(REFUSED_WORDS)
        if isinstance(found, bool):
            raise _unverified()
        principal, expires = found
        return Requester(principal, "token", remote=remote, expires=expires)


def _unverified() -> HttpProblem:
    words = "the log-in cannot be verified now: try again later"
    return HttpProblem(503, words, headers=[("Retry-After", "5")])


def unauthorized(detail: str) -> HttpProblem:
    """Return the problem of a request without a valid log-in."""
    return HttpProblem(401, detail, headers=_CHALLENGES)


def require_confidence(client: ClientFacts) -> None:
    """Refuse a password or token that others can read on its way.

    Raises:
        HttpProblem: others can.
    """
    if not client.is_encrypted and not client.is_loopback:
        raise HttpProblem(403, "passwords and tokens are taken over TLS or on loopback only")


def transport_of(client: ClientFacts) -> LogInTransport:
    """Return the facts about a connection for the realm."""
    return LogInTransport(client.address, client.has_tls, client.certificate_names, client.uid)


def cookie_name(client: ClientFacts) -> str:
    """Return the name of the session's cookie; a prefix binds it to this host where TLS is used."""
    return f"__Host-{COOKIE}" if client.has_tls else COOKIE


def _basic(value: str) -> tuple[str, str]:
    try:
        name, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        raise unauthorized("the Basic log-in is not base64 of UTF-8") from None
    if not colon:
        raise unauthorized("the Basic log-in is base64 of NAME:PASSWORD")
    return name, password
