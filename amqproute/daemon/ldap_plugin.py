# SPDX-License-Identifier: Apache-2.0
"""The directory as a kind of realm; importing it takes the extra ``ldap``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from amqproute.auth.directory_realm import DirectoryRealm, DirectoryTerms, DirectoryUser
from amqproute.auth.ldap_client import DirectoryLayout, LdapClient
from amqproute.auth.outside_realm import RealmSurroundings
from amqproute.auth.realm_kinds import INTERFACE, PASSWORDS, SettingsRefused, read_secret
from amqproute.auth.realm_threads import RealmThreads
from amqproute.config.realm_settings import LdapSettings

__all__ = ["LDAP", "LdapKind", "PreparedDirectory"]


@dataclass(frozen=True, slots=True)
class PreparedDirectory:
    """What a directory is made of.

    Attributes:
        settings: ``users.ldap``.
        password: of ``bind-dn``; empty without one.
    """

    settings: LdapSettings
    password: str = field(repr=False)


class LdapKind:
    """Directories; see `amqproute.auth.realm_kinds.RealmKind`."""

    interface = INTERFACE
    verifies = PASSWORDS

    def prepare(self, settings: LdapSettings) -> PreparedDirectory:
        """See `RealmKind.prepare`: the password is read from its file."""
        path = settings.bind_password_file
        if path is None:
            return PreparedDirectory(settings, "")
        try:
            return PreparedDirectory(settings, read_secret(path))
        except ValueError as error:
            raise SettingsRefused([(("bind-password-file",), str(error))]) from error

    def make(self, prepared: PreparedDirectory, surroundings: RealmSurroundings) -> DirectoryRealm:
        """See `RealmKind.make`."""
        settings = prepared.settings
        layout = DirectoryLayout(
            start_tls=settings.start_tls,
            trust=settings.trust if isinstance(settings.trust, Path) else None,
            user_dn=settings.user_dn,
            bind_dn=settings.bind_dn,
            bind_password=prepared.password,
            search_base=settings.search_base or "",
            search_filter=settings.search_filter,
            name_attribute=settings.name_attribute,
            member_of=settings.member_of,
            group_base=settings.group_base,
            group_filter=settings.group_filter,
            group_attribute=settings.group_attribute,
        )
        terms = DirectoryTerms(
            servers=settings.servers,
            timeout=settings.timeout,
            retry=settings.retry,
            remember=settings.remember,
            remember_refused=settings.remember_refused,
            group_prefix=settings.group_prefix,
            looks_up=settings.bind_dn is not None,
        )
        threads: RealmThreads[DirectoryUser | None] = RealmThreads(
            surroundings.reactor, settings.connections, surroundings.name
        )
        client = LdapClient(layout, surroundings.clock.seconds)
        return DirectoryRealm(terms, client, threads, surroundings)


LDAP: Final = LdapKind()
