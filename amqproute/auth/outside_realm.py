# SPDX-License-Identifier: Apache-2.0
"""Realms outside of the broker: a directory (LDAP), and the issuers of tokens (OAuth 2).

A realm answers with an `OutsideIdentity`, or fails with one of two exceptions, and the difference
matters: `CredentialsRefused` says that password or token are wrong, which counts against the
client; `RealmUnavailable` says that nobody knows, which does not, and the client may try again.

Which realm decides about a log-in:

1. a token (OAUTHBEARER, XOAUTH2; PLAIN, where tokens are taken as passwords and the password has
   the form of one): the issuer that the token names;
2. a user of the users file: the file, whatever the directory says;
3. any other user: the directory, if there is one.

A name belongs to one realm: a directory or an issuer that answers with the name of a user of the
users file is refused, or else its administrator could take over that user's rights.

A realm is a plug-in: `RealmSurroundings` is all that it gets from the daemon, beside its settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from amqproute.auth.users import check_user_name
from amqproute.wire.sasl_mechanisms import OutsideIdentity

__all__ = [
    "DIRECTORY",
    "FILE_REALM",
    "MOST_GROUPS",
    "TOKENS",
    "CredentialsRefused",
    "Fetch",
    "FetchFailed",
    "OutsideRealms",
    "PasswordRealm",
    "RealmSurroundings",
    "RealmUnavailable",
    "TokenRealm",
    "checked_groups",
    "checked_name",
]

FILE_REALM: Final = "file"
"""The users file, in metrics."""
DIRECTORY: Final = "ldap"
"""The directory, in metrics and in `Principal.realm`."""
TOKENS: Final = "oauth"
"""The issuers of tokens, likewise."""
MOST_GROUPS: Final = 500
"""Groups of a user; a user with more cannot log in, since some rule could name a lost one."""
LONGEST_GROUP: Final = 255


class CredentialsRefused(Exception):
    """The password or the token is wrong; the text says why, for the log only."""


class RealmUnavailable(Exception):
    """The realm cannot tell now; the text says why, for the log only."""


class FetchFailed(Exception):
    """A document cannot be fetched; the text says why."""


Fetch = Callable[[str], "Deferred[bytes]"]
"""Fetches the document at a URL, within bounds; fails with `FetchFailed`."""


class PasswordRealm(Protocol):
    """Verifies passwords."""

    def verify(self, name: str, password: str) -> Deferred[OutsideIdentity]:
        """Verify a password.

        Fails with `CredentialsRefused` or `RealmUnavailable`, within a bounded time.
        """

    def probe(self) -> Deferred[str]:
        """Return why the realm cannot be reached; empty if it can."""

    def stop(self) -> None:
        """Give up everything, when the realm is used no more."""


class TokenRealm(Protocol):
    """Verifies tokens of one issuer."""

    @property
    def issuer(self) -> str:
        """The issuer, as its tokens name it."""

    @property
    def hint(self) -> Mapping[str, str]:
        """Advice to clients without a valid token; see `ServerContext.token_hint`."""

    def verify(self, token: str) -> Deferred[OutsideIdentity]:
        """Verify a token; see `PasswordRealm.verify`."""

    def probe(self) -> Deferred[str]:
        """Return why the issuer's keys cannot be had; empty if they can."""

    def stop(self) -> None:
        """Give up everything, when the realm is used no more."""


@dataclass(frozen=True, slots=True)
class RealmSurroundings:
    """What a realm uses of the daemon.

    Attributes:
        name: the name of the realm, for the log.
        clock: monotonic.
        now: the wall clock, seconds since the epoch.
        fetch: fetches documents.
        random_bytes: the bytes for the keys of caches.
    """

    name: str
    clock: IReactorTime
    now: Callable[[], float]
    fetch: Fetch
    random_bytes: Callable[[int], bytes] = field(repr=False)


class OutsideRealms:
    """The outside realms in force.

    Attributes:
        directory: verifies passwords of users who are not in the users file; None without one.
        takes_tokens_as_passwords: whether PLAIN may carry a token.
    """

    def __init__(self) -> None:
        self.directory: PasswordRealm | None = None
        self.takes_tokens_as_passwords = False
        self._issuers: dict[str, TokenRealm] = {}

    def adopt(
        self,
        directory: PasswordRealm | None,
        issuers: Iterable[TokenRealm],
        takes_tokens_as_passwords: bool,
    ) -> None:
        """Put other realms in force; those that are not among them any more are stopped."""
        old = self._all()
        self.directory = directory
        self._issuers = {each.issuer: each for each in issuers}
        self.takes_tokens_as_passwords = takes_tokens_as_passwords and bool(self._issuers)
        kept = self._all()
        for realm in old:
            if not any(realm is each for each in kept):
                realm.stop()

    @property
    def has_issuers(self) -> bool:
        """Whether tokens are taken at all."""
        return bool(self._issuers)

    @property
    def token_hint(self) -> Mapping[str, str]:
        """Advice to clients without a valid token, from the first issuer."""
        return next((each.hint for each in self._issuers.values()), {})

    def issuer(self, name: str) -> TokenRealm | None:
        """Return the realm of an issuer; None if its tokens are not taken."""
        return self._issuers.get(name)

    def has(self, realm: str) -> bool:
        """Return whether there is a realm of this kind still."""
        return self.directory is not None if realm == DIRECTORY else self.has_issuers

    def probes(self) -> dict[str, Callable[[], Deferred[str]]]:
        """Return the probes of all realms, by their names for operators."""
        found = {f"{TOKENS} {each.issuer}": each.probe for each in self._issuers.values()}
        return found if self.directory is None else {DIRECTORY: self.directory.probe, **found}

    def stop(self) -> None:
        """Stop all of them."""
        self.adopt(None, (), False)

    def _all(self) -> list[PasswordRealm | TokenRealm]:
        return [*([] if self.directory is None else [self.directory]), *self._issuers.values()]


def checked_name(name: str) -> str:
    """Return a user name of an outside realm in its prepared form.

    Raises:
        CredentialsRefused: it cannot be the name of a user here.
    """
    try:
        return check_user_name(name)
    except ValueError as error:
        raise CredentialsRefused(str(error)) from error


def checked_groups(names: Iterable[str], prefix: str = "") -> frozenset[str]:
    """Return the groups of a user, as access rules name them.

    Args:
        names: the names as the realm has them.
        prefix: put before each.

    Raises:
        CredentialsRefused: there are too many of them.
    """
    groups = {
        prefix + name
        for name in names
        if name and name.isprintable() and len(name) <= LONGEST_GROUP
    }
    if len(groups) > MOST_GROUPS:
        raise CredentialsRefused(f"the user is in {len(groups)} groups, more than {MOST_GROUPS}")
    return frozenset(groups)
