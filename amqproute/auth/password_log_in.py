# SPDX-License-Identifier: Apache-2.0
"""Log-ins with user name and password where there is no SASL: HTTP's Basic, and forms.

They take their turn among all log-ins (`amqproute.auth.realm.Verifier`): a guesser gains nothing by
changing protocols. HTTP sends the password with each request, so a right one is remembered for
`REMEMBERED_SECONDS`, as a keyed hash, and only as long as the user's entry in the users file is the
same.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from twisted.internet.defer import Deferred, succeed

from amqproute.auth.realm import LogInTransport, Verifier
from amqproute.auth.users import UserFile
from amqproute.values import Principal
from amqproute.wire.sasl_mechanisms import (
    MAX_NAME_BYTES,
    PLAIN,
    ScramSecret,
    VerifyCredentials,
    prepare,
)

__all__ = ["MOST_REMEMBERED", "REMEMBERED_SECONDS", "PasswordLogIn"]

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
            False if there are too many log-ins for it to be verified now.
        """
        try:
            user = prepare(name)
            known = (
                bool(user) and max(map(len, (user.encode(), password.encode()))) <= MAX_NAME_BYTES
            )
        except ValueError:
            user, known = name[:64], False
        found = self._users.lookup(user) if known else None
        digest = self._digest(user, password)
        if found is not None and self._remembers(digest, found):
            return succeed(Principal("user", user))
        step = VerifyCredentials(user, password if known else None, None if known else False, PLAIN)
        verified = self._verifier.verify(step, facts, self._users)

        def answer(is_right: bool | None) -> Principal | bool | None:
            if is_right is None:
                return False
            if not is_right:
                return None
            if found is not None:
                self._remember(digest, found)
            return Principal("user", user)

        return verified.addCallback(answer)

    def is_known(self, principal: Principal) -> bool:
        """Return whether a user is still in the users file; true of other principals."""
        return principal.kind != "user" or self._users.lookup(principal.name) is not None

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
