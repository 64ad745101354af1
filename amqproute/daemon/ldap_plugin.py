# SPDX-License-Identifier: Apache-2.0
"""The directory as a plug-in of the realm; importing it takes the extra ``ldap``."""

from __future__ import annotations

from pathlib import Path

from amqproute.auth.directory_realm import DirectoryRealm, DirectoryTerms, DirectoryUser
from amqproute.auth.ldap_client import DirectoryLayout, LdapClient
from amqproute.auth.outside_realm import RealmSurroundings
from amqproute.auth.realm_threads import RealmThreads
from amqproute.config.realm_settings import LdapSettings
from amqproute.net.reactor import IReactor

__all__ = ["make_realm"]


def make_realm(
    settings: LdapSettings, password: str, surroundings: RealmSurroundings, reactor: IReactor
) -> DirectoryRealm:
    """Return the realm.

    Args:
        settings: ``users.ldap``.
        password: the password of ``bind-dn``; empty without one.
        surroundings: what realms use of the daemon.
        reactor: by which results come back from threads.
    """
    layout = DirectoryLayout(
        start_tls=settings.start_tls,
        trust=settings.trust if isinstance(settings.trust, Path) else None,
        user_dn=settings.user_dn,
        bind_dn=settings.bind_dn,
        bind_password=password,
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
    )
    threads: RealmThreads[DirectoryUser | None] = RealmThreads(
        reactor, settings.connections, "ldap"
    )
    client = LdapClient(layout, surroundings.clock.seconds)
    return DirectoryRealm(terms, client, threads, surroundings)
