# SPDX-License-Identifier: Apache-2.0
"""Realms outside of the broker: directories (LDAP), issuers of tokens (OAuth 2), and plug-ins.

A realm answers with an `OutsideIdentity`, or fails with one of two exceptions, and the difference
matters: `CredentialsRefused` says that password or token are wrong, which counts against the
client; `RealmUnavailable` says that nobody knows, which does not, and the client may try again.

Which realm decides about a log-in:

1. a token (OAUTHBEARER, XOAUTH2; PLAIN, where tokens are taken as passwords and the password has
   the form of one): the issuer that the token names;
2. a user of the users file: the file, whatever the directory says;
3. any other user: the first realm that verifies passwords and whose users have such names. The
   directory comes last, and has the users of all names.

A name belongs to one realm: a realm that answers with the name of a user of the users file is
refused, and a realm for passwords with a name that belongs to another one of these. Or else its
administrator could take over that user's rights.

A realm is a plug-in (`amqproute.auth.realm_kinds`): `RealmSurroundings` is all that it gets from
the daemon, beside its settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads, IReactorTime

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
    "NamedRealm",
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

        Fails with `CredentialsRefused` or `RealmUnavailable`, within a bounded time. It is
        cancelled when nobody waits any more.
        """

    def recheck(self, account: str) -> Deferred[OutsideIdentity] | None:
        """Find out whether a user who has logged in could do so still, without the password.

        Args:
            account: of the `OutsideIdentity` with which the log-in was answered.

        Returns:
            None if the realm cannot tell. Else the user as of now; fails as `verify`, with
            `CredentialsRefused` if the account is closed or gone.
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
        reactor: by which results come back from threads; see `amqproute.auth.realm_threads`.
    """

    name: str
    clock: IReactorTime
    now: Callable[[], float]
    fetch: Fetch
    random_bytes: Callable[[int], bytes] = field(repr=False)
    reactor: IReactorFromThreads = field(repr=False)


@dataclass(frozen=True, slots=True)
class NamedRealm:
    """A realm that verifies passwords, and whose.

    Attributes:
        name: the name of the realm in metrics, in the log and in `Principal.realm`.
        realm: the realm.
        users: the names of its users; a star stands for any run of characters.
    """

    name: str
    realm: PasswordRealm
    users: str = "*"


class OutsideRealms:
    """The outside realms in force.

    Attributes:
        takes_tokens_as_passwords: whether PLAIN may carry a token.
    """

    def __init__(self) -> None:
        self.takes_tokens_as_passwords = False
        self._passwords: tuple[NamedRealm, ...] = ()
        self._issuers: dict[str, TokenRealm] = {}

    def adopt(
        self,
        passwords: Iterable[NamedRealm],
        issuers: Iterable[TokenRealm],
        takes_tokens_as_passwords: bool,
    ) -> None:
        """Put other realms in force; those that are not among them any more are stopped.

        Args:
            passwords: verify passwords of users who are not in the users file. The first one whose
                users have such a name decides.
            issuers: verify tokens.
            takes_tokens_as_passwords: whether PLAIN may carry a token.
        """
        old = self._all()
        self._passwords = tuple(passwords)
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

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the realms that verify passwords, in their order."""
        return tuple(each.name for each in self._passwords)

    def of_user(self, user: str) -> str | None:
        """Return the name of the realm that verifies a user's password; None without one."""
        found = (each.name for each in self._passwords if fnmatchcase(user, each.users))
        return next(found, None)

    def password_realm(self, name: str) -> PasswordRealm | None:
        """Return the realm with a name that verifies passwords; None if there is none."""
        return next((each.realm for each in self._passwords if each.name == name), None)

    def issuer(self, name: str) -> TokenRealm | None:
        """Return the realm of an issuer; None if its tokens are not taken."""
        return self._issuers.get(name)

    def has(self, realm: str) -> bool:
        """Return whether there is a realm with this name still; issuers have one together."""
        return self.has_issuers if realm == TOKENS else realm in self.names

    def probes(self) -> dict[str, Callable[[], Deferred[str]]]:
        """Return the probes of all realms, by their names for operators."""
        issuers = {f"{TOKENS} {each.issuer}": each.probe for each in self._issuers.values()}
        return {**{each.name: each.realm.probe for each in self._passwords}, **issuers}

    def stop(self) -> None:
        """Stop all of them."""
        self.adopt((), (), False)

    def _all(self) -> list[PasswordRealm | TokenRealm]:
        return [*(each.realm for each in self._passwords), *self._issuers.values()]


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
