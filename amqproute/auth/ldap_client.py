# SPDX-License-Identifier: Apache-2.0
"""Asks LDAP servers by ldap3. Every call blocks, within the time that it is given.

Why ldap3, which has had no release since 2021: each step on its sockets can be bounded in time, the
interpreter is free meanwhile, it is a wheel without a compiler, and its types are maintained
(``types-ldap3``). python-ldap and bonsai are maintained, and neither bounds the TLS handshake with
a server that hangs, where OpenLDAP's library stands on GnuTLS as Debian's does; bonsai holds the
interpreter meanwhile, which would stop the whole daemon. ldaptor is as old, and has no types.

A log-in takes one or two connections: one as `bind_dn` if there is one, to find user and groups,
and one as the user, which is the verification. The names of users come from strangers and are
escaped in names and filters. Referrals are not followed: they would lead the password elsewhere.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from ldap3 import BASE, NONE, SUBTREE, Connection, Server, Tls
from ldap3.core.exceptions import LDAPException

from amqproute.auth.directory_realm import (
    DirectoryUser,
    ServerFailed,
    escaped_for_dn,
    escaped_for_filter,
    first_value,
)
from amqproute.auth.outside_realm import MOST_GROUPS

Scope = Literal["BASE", "LEVEL", "SUBTREE"]

__all__ = ["DirectoryLayout", "LdapClient"]

_WRONG: Final = frozenset({32, 34, 48, 49, 53})
"""Results of a bind that mean that name or password are wrong, or the account is locked (RFC 4511
appendix A): noSuchObject, invalidDNSyntax, inappropriateAuthentication, invalidCredentials,
unwillingToPerform."""
_NO_SUCH_OBJECT: Final = 32
LONGEST_ERROR: Final = 300
"""Characters of an error of the library, which can quote whole certificates."""
_TOO_MANY: Final = 4
_BUNDLES: Final = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")


@dataclass(frozen=True, slots=True)
class DirectoryLayout:
    """How users and groups are found; see `amqproute.config.realm_settings.LdapSettings`.

    Attributes:
        start_tls: begin TLS on connections that are not encrypted.
        trust: PEM file with the authorities for servers; None for those of the machine.
        user_dn: the name of a user's entry, with ``{name}``; None to search.
        bind_dn: the name to search under; None to search anonymously, and for groups as the user.
        bind_password: the password of `bind_dn`.
        search_base: below which entry users are.
        search_filter: which entry a user's is.
        name_attribute: has the user's name; None for the name as given.
        member_of: an attribute with names of groups; None for none.
        group_base: below which entry groups are; None not to search for them.
        group_filter: which groups a user is in.
        group_attribute: has a group's name.
    """

    start_tls: bool = False
    trust: Path | None = None
    user_dn: str | None = None
    bind_dn: str | None = None
    bind_password: str = field(default="", repr=False)
    search_base: str = ""
    search_filter: str = "(uid={name})"
    name_attribute: str | None = "uid"
    member_of: str | None = None
    group_base: str | None = None
    group_filter: str = "(member={dn})"
    group_attribute: str = "cn"


class LdapClient:
    """Asks servers; see `amqproute.auth.directory_realm.DirectoryClient`.

    Args:
        layout: the layout of the directory.
        seconds: the monotonic clock.
    """

    def __init__(
        self, layout: DirectoryLayout, seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._layout = layout
        self._seconds = seconds
        self._authorities = _bundle() if layout.trust is None else str(layout.trust)

    def verify(self, server: str, name: str, password: str, seconds: float) -> DirectoryUser | None:
        """See `DirectoryClient.verify`."""
        end = self._seconds() + seconds
        with _failures():
            dn = self._dn(server, name, end)
            if dn is None:
                return None
            connection = self._connect(server, dn, password, end)
            if connection is None:
                return None
            with connection:
                names, groups = self._own_entry(connection, dn, end)
                if self._layout.bind_dn is None:
                    groups += self._groups(connection, dn, name, end)
            if self._layout.bind_dn is not None and self._layout.group_base is not None:
                with self._service(server, end) as service:
                    groups += self._groups(service, dn, name, end)
            return DirectoryUser(names, tuple(groups))

    def look_up(self, server: str, name: str, seconds: float) -> DirectoryUser | None:
        """See `DirectoryClient.look_up`; the layout has to have a `bind_dn`."""
        end = self._seconds() + seconds
        layout = self._layout
        with _failures(), self._service(server, end) as service:
            dn = self._found(service, name, end) if layout.user_dn is None else self._named(name)
            entry = None if dn is None else self._entry(service, dn, end)
            if dn is None or entry is None:
                return None
            names, groups = self._facts_of(entry)
            return DirectoryUser(names, (*groups, *self._groups(service, dn, name, end)))

    def probe(self, server: str, seconds: float) -> None:
        """See `DirectoryClient.probe`."""
        with _failures(), self._service(server, self._seconds() + seconds):
            pass

    def _dn(self, server: str, name: str, end: float) -> str | None:
        """Return the name of a user's entry; None if there is none, or there are several."""
        if self._layout.user_dn is not None:
            return self._named(name)
        with self._service(server, end) as service:
            return self._found(service, name, end)

    def _named(self, name: str) -> str:
        """Return the name of the entry that a user has by the template."""
        return (self._layout.user_dn or "").replace("{name}", escaped_for_dn(name))

    def _found(self, service: _Session, name: str, end: float) -> str | None:
        """Search for a user's entry; see `_dn`."""
        layout = self._layout
        query = layout.search_filter.replace("{name}", escaped_for_filter(name))
        found = self._search(service, layout.search_base, query, ["1.1"], end, most=2)
        return found[0].dn if len(found) == 1 else None

    def _service(self, server: str, end: float) -> _Session:
        """Connect as `bind_dn`, or as nobody.

        Raises:
            ServerFailed: the server refuses that.
        """
        layout = self._layout
        connection = self._connect(server, layout.bind_dn, layout.bind_password, end)
        if connection is None:
            raise ServerFailed(f"it refuses {layout.bind_dn or 'an anonymous client'}")
        return connection

    def _connect(self, server: str, dn: str | None, password: str, end: float) -> _Session | None:
        """Connect, and bind; return None if the server refuses name or password."""
        if dn is not None and not (dn and password):
            # It would be an unauthenticated bind (RFC 4513 §5.1.2).
            raise ServerFailed("no bind without a name and a password")
        tls = Tls(validate=ssl.CERT_REQUIRED, ca_certs_file=self._authorities)
        place = Server(server, get_info=NONE, tls=tls, connect_timeout=self._left(end))
        session = _Session(Connection(place, dn, password or None, auto_referrals=False))
        try:
            session.open(lambda: self._left(end))
            if self._layout.start_tls and server.startswith("ldap:"):
                session.start_tls()
            if session.bind():
                return session
        except BaseException:
            session.close()
            raise
        session.close()
        return None

    def _own_entry(
        self, connection: _Session, dn: str, end: float
    ) -> tuple[tuple[str, ...] | None, list[str]]:
        """Return the names of a user, and the groups that the entry has."""
        if self._layout.name_attribute is None and self._layout.member_of is None:
            return None, []
        return self._facts_of(self._entry(connection, dn, end))

    def _entry(self, connection: _Session, dn: str, end: float) -> _Entry | None:
        """Read the entry of a user; None if there is none, or it cannot be seen."""
        layout = self._layout
        wanted = [each for each in (layout.name_attribute, layout.member_of) if each is not None]
        found = self._search(
            connection, dn, "(objectClass=*)", wanted or ["1.1"], end, most=1, is_base=True
        )
        return found[0] if found else None

    def _facts_of(self, entry: _Entry | None) -> tuple[tuple[str, ...] | None, list[str]]:
        layout = self._layout
        names = None
        if layout.name_attribute is not None:
            names = tuple(_values(entry, layout.name_attribute))
        groups = [] if layout.member_of is None else _values(entry, layout.member_of)
        return names, [first_value(each) for each in groups]

    def _groups(self, connection: _Session, dn: str, name: str, end: float) -> list[str]:
        layout = self._layout
        if layout.group_base is None:
            return []
        query = layout.group_filter.replace("{dn}", escaped_for_filter(dn))
        query = query.replace("{name}", escaped_for_filter(name))
        attribute, most = layout.group_attribute, MOST_GROUPS + 1
        found = self._search(connection, layout.group_base, query, [attribute], end, most)
        return [value for entry in found for value in _values(entry, attribute)]

    def _search(
        self,
        connection: _Session,
        base: str,
        query: str,
        attributes: list[str],
        end: float,
        most: int,
        is_base: bool = False,
    ) -> list[_Entry]:
        scope = BASE if is_base else SUBTREE
        found = connection.search(base, query, scope, attributes, most)
        self._left(end)
        return found

    def _left(self, end: float) -> float:
        left = end - self._seconds()
        if left <= 0:
            raise ServerFailed("no answer in time")
        return left


@dataclass(frozen=True, slots=True)
class _Entry:
    dn: str
    attributes: Mapping[str, Sequence[bytes]]


class _Session:
    """A connection that is closed at the end of a ``with``, and each step of which has its time.

    Args:
        connection: not open yet.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._left: Callable[[], float] = lambda: 0.0

    def __enter__(self) -> _Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self, left: Callable[[], float]) -> None:
        """Connect, with TLS if the URL says so.

        Args:
            left: returns the seconds that are left, or raises `ServerFailed`.
        """
        self._left = left
        self._connection.open(read_server_info=False)

    def start_tls(self) -> None:
        """Begin TLS.

        Raises:
            ServerFailed: the server refuses it.
        """
        self._bound()
        if not self._connection.start_tls(read_server_info=False):
            raise ServerFailed(f"it refuses StartTLS: {self._result()}")

    def bind(self) -> bool:
        """Bind; return False if name or password are wrong.

        Raises:
            ServerFailed: the server cannot tell.
        """
        self._bound()
        if self._connection.bind(read_server_info=False):
            return True
        if self._connection.result["result"] in _WRONG:
            return False
        raise ServerFailed(self._result())

    def search(
        self, base: str, query: str, scope: Scope, attributes: list[str], most: int
    ) -> list[_Entry]:
        """Search; there may be more than the entries that are asked for, and none at all.

        Raises:
            ServerFailed: the server refuses it.
        """
        self._bound()
        self._connection.search(base, query, scope, attributes=attributes, size_limit=most)
        if self._connection.result["result"] == _NO_SUCH_OBJECT:
            return []
        if self._connection.result["result"] not in (0, _TOO_MANY):
            raise ServerFailed(f"it refuses to search {base}: {self._result()}")
        # References to other servers are rows of another type.
        return [
            _Entry(row["dn"], row["raw_attributes"])
            for row in self._connection.response or ()
            if row["type"] == "searchResEntry"
        ]

    def close(self) -> None:
        """Close it; a server that has gone is no matter then."""
        with suppress(LDAPException, OSError):
            self._connection.unbind()

    def _bound(self) -> None:
        """Give each octet of the next step the time that is left."""
        self._connection.socket.settimeout(self._left())

    def _result(self) -> str:
        result = self._connection.result
        return f"{result['description']} {result['message']}".strip()


@contextmanager
def _failures() -> Iterator[None]:
    """Turn the library's errors into `ServerFailed`."""
    try:
        yield
    except (LDAPException, OSError) as error:
        words = str(error) or type(error).__name__
        if len(words) > LONGEST_ERROR:  # the reason stands at the end
            half = LONGEST_ERROR // 2
            words = f"{words[:half]} ... {words[-half:]}"
        raise ServerFailed(words) from error


def _values(entry: _Entry | None, attribute: str) -> list[str]:
    """Return the values of an attribute that are texts; its name is that of the server's schema."""
    found: list[str] = []
    for name, values in () if entry is None else entry.attributes.items():
        if name.lower() == attribute.lower():
            for value in values:
                with suppress(UnicodeDecodeError):
                    found.append(value.decode())
    return found


def _bundle() -> str:
    """Return the file with the authorities of this machine."""
    places = (ssl.get_default_verify_paths().cafile, *_BUNDLES)
    return next((place for place in places if place and Path(place).exists()), _BUNDLES[0])
