# SPDX-License-Identifier: Apache-2.0
"""Log-ins where there is no SASL: HTTP's Basic and Bearer, and forms.

They take their turn among all log-ins (`amqproute.auth.realm.Verifier`): a guesser gains nothing by
changing protocols. HTTP sends the password with each request, so a right one is remembered for
`REMEMBERED_SECONDS`, as a keyed hash, and only as long as the user's entry in the users file is the
same. What outside realms verify they remember themselves.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeAlias

from twisted.internet.defer import Deferred, succeed

from amqproute.auth.realm import LogInTransport, Verifier, outside_principal
from amqproute.auth.users import UserFile
from amqproute.values import Principal
from amqproute.wire.sasl_mechanisms import (
    MAX_NAME_BYTES,
    MAX_TOKEN_BYTES,
    OAUTHBEARER,
    PLAIN,
    OutsideIdentity,
    ScramSecret,
    Verification,
    VerifyCredentials,
    looks_like_token,
    prepare,
)

__all__ = ["MOST_REMEMBERED", "REMEMBERED_SECONDS", "BearerResult", "PasswordLogIn"]

BearerResult: TypeAlias = tuple[Principal, float | None] | bool | None
"""See `PasswordLogIn.bearer`."""

REMEMBERED_SECONDS: Final = 60.0
MOST_REMEMBERED: Final = 1000


class PasswordLogIn:
    """Verifies passwords of users.

    Args:
        verifier: shared by all listeners.
        users: the users file.
        seconds: the monotonic clock.
    """

    def __init__(self, verifier: Verifier, users: UserFile, seconds: Callable[[], float]) -> None:
        self._verifier = verifier
        self._users = users
        self._seconds = seconds
        self._key = secrets.token_bytes(32)
        self._remembered: OrderedDict[bytes, tuple[float, ScramSecret]] = OrderedDict()

    def principal(
        self, name: str, password: str, facts: LogInTransport
    ) -> Deferred[Principal | bool | None]:
        """Verify a password.

        Returns:
            A Deferred of the user; None if name or password are wrong, which comes after a delay;
            False if it cannot be verified now, as with too many log-ins.
        """
        try:
            user = prepare(name)
            known = bool(user) and len(user.encode()) <= MAX_NAME_BYTES
            known = known and len(password.encode()) <= self._longest(password)
        except ValueError:
            user, known = name[:64], False
        found = self._users.lookup(user) if known else None
        digest = self._digest(user, password)
        if found is not None and self._remembers(digest, found):
            return succeed(Principal("user", user))
        step = VerifyCredentials(user, password if known else None, None if known else False, PLAIN)
        verified = self._verifier.verify(step, facts, self._users)

        def answer(result: Verification) -> Principal | bool | None:
            if isinstance(result, OutsideIdentity):
                return outside_principal(result)
            if result is None:
                return False
            if not result:
                return None
            if found is not None:
                self._remember(digest, found)
            return Principal("user", user)

        return verified.addCallback(answer)

    def bearer(self, token: str, facts: LogInTransport) -> Deferred[BearerResult]:
        """Verify a token of an issuer.

        Returns:
            A Deferred of the user, and the end of the token in seconds since the epoch; None if it
            is refused, which comes after a delay; False if it cannot be verified now.
        """
        if not self._verifier.realms.has_issuers:
            return succeed(None)
        step = VerifyCredentials("", token, mechanism=OAUTHBEARER)
        verified = self._verifier.verify(step, facts, self._users)

        def answer(result: Verification) -> BearerResult:
            if isinstance(result, OutsideIdentity):
                return outside_principal(result), result.expires
            return False if result is None else None

        return verified.addCallback(answer)

    def is_known(self, principal: Principal) -> bool:
        """Return whether a user can still log in; true of principals that are no users.

        Of the users of outside realms only the realm is known: nobody else is asked again.
        """
        if principal.kind != "user":
            return True
        is_in_file = self._users.lookup(principal.name) is not None
        if principal.realm:
            return not is_in_file and self._verifier.realms.has(principal.realm)
        return is_in_file

    def _longest(self, password: str) -> int:
        """Return the most octets that a password may have."""
        is_token = self._verifier.realms.takes_tokens_as_passwords and looks_like_token(
            password.encode()
        )
        return MAX_TOKEN_BYTES if is_token else MAX_NAME_BYTES

    def _digest(self, user: str, password: str) -> bytes:
        said = f"{len(user)}:{user}{password}".encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, said, hashlib.sha256)

    def _remembers(self, digest: bytes, found: ScramSecret) -> bool:
        until, secret = self._remembered.get(digest, (0.0, None))
        return secret == found and self._seconds() < until

    def _remember(self, digest: bytes, found: ScramSecret) -> None:
        self._remembered[digest] = self._seconds() + REMEMBERED_SECONDS, found
        self._remembered.move_to_end(digest)
        while len(self._remembered) > MOST_REMEMBERED:
            self._remembered.popitem(last=False)
