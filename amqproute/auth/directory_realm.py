# SPDX-License-Identifier: Apache-2.0
"""The realm of a directory: users whose passwords an LDAP server verifies.

What talks to a server is a `DirectoryClient`, which blocks; it runs in threads of the realm's own,
as many as there may be connections, and never in the reactor's or in those that verify passwords of
the users file. Here is everything that does not touch the network: which server is asked, when a
log-in is given up, what is remembered, and the name under which the user is known.

*Servers.* They are tried in order. One that has failed comes last for `retry` seconds; so a log-in
does not wait for a dead server each time. If none answers, that is no wrong password.

*What is remembered.* A right password for `remember` seconds and a wrong one for
`remember_refused`, at most `MOST_REMEMBERED`, as keyed hashes. Simultaneous log-ins with the same
name and password are verified once.

*Names.* Directories ignore case and access rules do not. So the name of the principal is what the
directory says, in lower case: ``ANN`` cannot escape a rule about ``user:ann``.

An empty password never reaches a server: with one, a bind is unauthenticated and succeeds for any
name (RFC 4513 §5.1.2).
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from twisted.internet.defer import Deferred, TimeoutError, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.auth.outside_realm import (
    DIRECTORY,
    CredentialsRefused,
    RealmSurroundings,
    RealmUnavailable,
    checked_groups,
    checked_name,
)
from amqproute.joined_calls import JoinedCalls
from amqproute.wire.sasl_mechanisms import OutsideIdentity, prepare

__all__ = [
    "DirectoryClient",
    "DirectoryRealm",
    "DirectoryTerms",
    "DirectoryThreads",
    "DirectoryUser",
    "ServerFailed",
    "escaped_for_dn",
    "escaped_for_filter",
    "first_value",
]

log = Logger()

MOST_REMEMBERED: Final = 5000
GRACE_SECONDS: Final = 1.0
"""How much longer than its time a thread is waited for, which ends by itself."""


class ServerFailed(Exception):
    """A server cannot be asked, or does not answer; the text says why."""


@dataclass(frozen=True, slots=True)
class DirectoryUser:
    """What a directory says about a user whose password is right.

    Attributes:
        names: values of the attribute with the name; None if the name is taken as given.
        groups: names of groups.
    """

    names: tuple[str, ...] | None
    groups: tuple[str, ...] = ()


class DirectoryClient(Protocol):
    """Talks to servers, in a thread."""

    def verify(self, server: str, name: str, password: str, seconds: float) -> DirectoryUser | None:
        """Verify a password; return None if it is wrong, or if there is no such user.

        Args:
            server: its URL.
            name: the name as the user has given it, not empty.
            password: not empty.
            seconds: the time for all of it.

        Raises:
            ServerFailed: the server cannot tell.
        """

    def look_up(self, server: str, name: str, seconds: float) -> DirectoryUser | None:
        """Look a user up without a password; return None if there is no such user any more.

        Args:
            server: its URL.
            name: as for `verify`.
            seconds: the time for all of it.

        Raises:
            ServerFailed: the server cannot tell.
        """

    def probe(self, server: str, seconds: float) -> None:
        """Find out whether a server can be asked.

        Raises:
            ServerFailed: it cannot.
        """


class DirectoryThreads(Protocol):
    """The threads of a realm."""

    def run(self, function: Callable[[], DirectoryUser | None]) -> Deferred[DirectoryUser | None]:
        """Run a function in one of them, when one is free."""

    def stop(self) -> None:
        """Let them end, without waiting for it."""


@dataclass(frozen=True, slots=True)
class DirectoryTerms:
    """The bounds of the realm.

    Attributes:
        servers: URLs, in the order to try.
        timeout: seconds for a log-in over all servers.
        retry: seconds for which a server that has failed comes last.
        remember: seconds for which a right password is remembered.
        remember_refused: the same for a wrong one.
        group_prefix: put before the name of each group.
        looks_up: whether users can be looked up without their passwords.
    """

    servers: tuple[str, ...]
    timeout: float = 5.0
    retry: float = 10.0
    remember: float = 60.0
    remember_refused: float = 10.0
    group_prefix: str = ""
    looks_up: bool = False


class DirectoryRealm:
    """Verifies passwords by a directory; see `amqproute.auth.outside_realm.PasswordRealm`.

    Args:
        terms: the bounds.
        client: talks to servers.
        threads: where it does.
        surroundings: the clock, and randomness.
    """

    def __init__(
        self,
        terms: DirectoryTerms,
        client: DirectoryClient,
        threads: DirectoryThreads,
        surroundings: RealmSurroundings,
    ) -> None:
        self.terms = terms
        self._client = client
        self._threads = threads
        self._clock = surroundings.clock
        self._key = surroundings.random_bytes(32)
        self._failed_at: dict[str, float] = {}
        self._remembered: OrderedDict[bytes, tuple[float, OutsideIdentity | None]] = OrderedDict()
        self._log_ins: JoinedCalls[bytes, OutsideIdentity] = JoinedCalls()

    def __repr__(self) -> str:
        return f"<DirectoryRealm {' '.join(self.terms.servers)}>"

    def verify(self, name: str, password: str) -> Deferred[OutsideIdentity]:
        """See `PasswordRealm.verify`."""
        given = checked_name(name)
        if not password:
            raise CredentialsRefused("the password is empty")
        digest = hmac.digest(self._key, f"{len(given)}:{given}{password}".encode(), "sha256")
        until, identity = self._remembered.get(digest, (0.0, None))
        if self._clock.seconds() < until:
            if identity is None:
                raise CredentialsRefused("the directory has refused it a moment ago")
            return succeed(identity)

        def ask() -> Deferred[OutsideIdentity]:
            asked = self._ask(
                lambda server, left: self._client.verify(server, given, password, left)
            )
            return asked.addCallback(self._identity, given).addBoth(self._concluded, digest)

        return self._log_ins.call(digest, ask)

    def recheck(self, account: str) -> Deferred[OutsideIdentity] | None:
        """See `PasswordRealm.recheck`: by searching as the broker, if it may.

        A user who is gone has no remembered passwords any more, either.
        """
        if not self.terms.looks_up:
            return None
        asked = self._ask(lambda server, left: self._client.look_up(server, account, left))
        return asked.addCallback(self._identity, account).addErrback(self._forget, account)

    def probe(self) -> Deferred[str]:
        """See `PasswordRealm.probe`: whether one of the servers can be asked."""

        def ask(server: str, left: float) -> None:
            self._client.probe(server, left)

        asked = self._ask(ask)
        return asked.addCallbacks(lambda _: "", lambda failure: str(failure.value))

    def stop(self) -> None:
        """See `PasswordRealm.stop`."""
        self._remembered.clear()
        self._threads.stop()

    def _forget(self, failure: Failure, account: str) -> Failure:
        if isinstance(failure.value, CredentialsRefused):
            for digest, (_, identity) in tuple(self._remembered.items()):
                if identity is not None and identity.account == account:
                    del self._remembered[digest]
        return failure

    def _ask(
        self, question: Callable[[str, float], DirectoryUser | None]
    ) -> Deferred[DirectoryUser | None]:
        """Ask the servers in turn, in a thread; fails with `RealmUnavailable` if none answers."""
        seconds, end = self._clock.seconds, self._clock.seconds() + self.terms.timeout
        servers = self._in_order()
        failures: list[tuple[str, str]] = []
        answered: list[str] = []
        begun: list[str] = []

        def ask_all() -> DirectoryUser | None:
            for number, server in enumerate(servers):
                # A server that does not answer leaves time for those behind it.
                left = (end - seconds()) / (len(servers) - number)
                if left <= 0:
                    failures.append((server, "no time was left"))
                    break
                begun.append(server)
                try:
                    found = question(server, left)
                except ServerFailed as error:
                    failures.append((server, str(error)))
                else:
                    answered.append(server)
                    return found
            raise RealmUnavailable("; ".join(f"{name}: {words}" for name, words in failures))

        asked = self._threads.run(ask_all)
        asked.addTimeout(self.terms.timeout + GRACE_SECONDS, self._clock, _too_late)

        def note(result: DirectoryUser | Failure | None) -> DirectoryUser | Failure | None:
            if isinstance(result, Failure) and len(begun) > len(failures) + len(answered):
                failures.append((begun[-1], "it does not answer, and its thread is held"))
            self._note(failures, answered)
            return result

        return asked.addBoth(note)

    def _in_order(self) -> Sequence[str]:
        """Return the servers in the order to try: those that have failed lately come last."""
        now, retry = self._clock.seconds(), self.terms.retry

        def failed(server: str) -> float:
            at = self._failed_at.get(server)
            return 0.0 if at is None or now - at >= retry else at + 1.0

        return sorted(self.terms.servers, key=failed)

    def _note(self, failures: Sequence[tuple[str, str]], answered: Sequence[str]) -> None:
        now = self._clock.seconds()
        for server, words in failures:
            if server not in self._failed_at:
                log.warn("directory server {server} fails: {reason}", server=server, reason=words)
            self._failed_at[server] = now
        for server in answered:
            if self._failed_at.pop(server, None) is not None:
                log.info("directory server {server} answers again", server=server)

    def _identity(self, user: DirectoryUser | None, given: str) -> OutsideIdentity:
        if user is None:
            raise CredentialsRefused("the directory refuses it")
        # Under the name as it was given the entry is found again: it may be an address.
        name = _folded(given)
        if user.names is not None:
            names = sorted(_folded(each) for each in user.names)
            if not names:
                raise CredentialsRefused("the user's entry has no attribute with the name")
            name = name if name in names else names[0]
        groups = checked_groups(user.groups, self.terms.group_prefix)
        return OutsideIdentity(checked_name(name), DIRECTORY, groups, account=given)

    def _concluded(
        self, result: OutsideIdentity | Failure, digest: bytes
    ) -> OutsideIdentity | Failure:
        if not isinstance(result, Failure):
            self._remember(digest, self.terms.remember, result)
        elif isinstance(result.value, CredentialsRefused):
            self._remember(digest, self.terms.remember_refused, None)
        return result

    def _remember(self, digest: bytes, seconds: float, identity: OutsideIdentity | None) -> None:
        if seconds <= 0:
            return
        self._remembered[digest] = self._clock.seconds() + seconds, identity
        self._remembered.move_to_end(digest)
        while len(self._remembered) > MOST_REMEMBERED:
            self._remembered.popitem(last=False)


def _too_late(result: object, seconds: float) -> object:
    """Turn the end of the time into its failure; a thread that hangs is not waited for."""
    error = getattr(result, "value", None)
    if isinstance(error, RealmUnavailable):
        return result
    raise RealmUnavailable(f"no answer within {seconds:.0f} s") from TimeoutError()


def _folded(name: str) -> str:
    """Return a name as directories compare it (RFC 4518 §2), as far as names here go."""
    try:
        return prepare(prepare(name).casefold())
    except ValueError as error:
        raise CredentialsRefused(f"the name cannot be that of a user: {error}") from error


def escaped_for_filter(text: str) -> str:
    """Return a text as a value in a search filter (RFC 4515 §3)."""
    found = "".join(f"\\{ord(each):02x}" if each in "\\*()\0" else each for each in text)
    return found


def escaped_for_dn(text: str) -> str:
    """Return a text as the value of an attribute in a name (RFC 4514 §2.4)."""
    found = "".join(
        "\\00" if each == "\0" else f"\\{each}" if each in '\\"+,;<>=' else each for each in text
    )
    if found.startswith(("#", " ")):
        found = "\\" + found
    if found.endswith(" ") and not found.endswith("\\ "):
        found = found[:-1] + "\\ "
    return found


def first_value(dn: str) -> str:
    """Return the value of the first part of a name: ``operators`` of ``cn=operators,ou=groups``.

    Empty if it has none. Parts with several attributes (``+``) have none.
    """
    _, equals, rest = dn.partition("=")
    value, place = [], 0
    while equals and place < len(rest):
        character = rest[place]
        if character in ",+":
            break
        if character == "\\":
            pair = rest[place + 1 : place + 3]
            try:
                value.append(bytes.fromhex(pair))
                place += 3
            except ValueError:
                value.append(pair[:1].encode())
                place += 2
            continue
        value.append(character.encode())
        place += 1
    if place < len(rest) and rest[place] == "+":
        return ""
    return b"".join(value).decode("utf-8", "replace").strip()
