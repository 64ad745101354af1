# SPDX-License-Identifier: Apache-2.0
"""Outside realms from the configuration; see `amqproute.auth.outside_realm`.

What they need beside the package is optional (the extras ``ldap`` and ``oauth``). So each is a
plug-in, loaded when the configuration asks for it, and a start without its library is refused with
the words that `amqproute check` has.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Final

from amqproute.auth.outside_realm import (
    DIRECTORY,
    TOKENS,
    FetchFailed,
    OutsideRealms,
    PasswordRealm,
    RealmSurroundings,
    TokenRealm,
)
from amqproute.config.field_types import SYSTEM_TRUST
from amqproute.config.realm_settings import IssuerSettings, LdapSettings
from amqproute.config.schema import Config
from amqproute.daemon.config_reload import Apply
from amqproute.errors import ConfigError
from amqproute.net.https_fetch import HttpsFetcher
from amqproute.net.reactor import IReactor

__all__ = ["PLUGINS", "RealmAssembly", "missing_plugins", "read_secret"]

PLUGINS: Final[Mapping[str, EntryPoint]] = {
    name: EntryPoint(name, f"amqproute.daemon.{name}_plugin:make_realm", "amqproute.realms")
    for name in (DIRECTORY, TOKENS)
}
"""The plug-ins by name; each is named like its extra."""
LONGEST_SECRET: Final = 4096


Directory = tuple[LdapSettings, str, PasswordRealm]
"""Settings, the password of ``bind-dn``, and the realm that was made of them."""
Issuer = tuple[IssuerSettings, TokenRealm]
"""Likewise."""


class RealmAssembly:
    """Makes the outside realms, and makes anew those whose settings a reload changes.

    Args:
        realms: where they are put in force.
        reactor: the reactor for threads and for fetching.
        now: the wall clock, seconds since the epoch.
        plugins: by name.
    """

    def __init__(
        self,
        realms: OutsideRealms,
        reactor: IReactor,
        now: Callable[[], float],
        plugins: Mapping[str, EntryPoint] = PLUGINS,
    ) -> None:
        self._realms = realms
        self._reactor = reactor
        self._now = now
        self._plugins = plugins
        self._directory: Directory | None = None
        self._issuers: dict[str, Issuer] = {}

    def prepare(self, config: Config) -> Apply:
        """See `config_reload.Prepare`.

        Raises:
            ConfigError: a library is missing, or a secret cannot be read.
        """
        users = config.users
        directory = None if users.ldap is None else self._make_directory(users.ldap)
        issuers = {name: self._make_issuer(name, each) for name, each in users.issuers.items()}

        def apply() -> None:
            self._directory, self._issuers = directory, issuers
            realms = [realm for _, realm in issuers.values()]
            realm = None if directory is None else directory[2]
            self._realms.adopt(realm, realms, users.token_passwords)

        return apply

    def _make_directory(self, settings: LdapSettings) -> Directory:
        """Return the directory in force if its settings are the same, or a new one."""
        path = settings.bind_password_file
        password = "" if path is None else read_secret(path)
        before = self._directory
        if before is not None and before[:2] == (settings, password):
            return before
        make = self._load(DIRECTORY)
        surroundings = self._surroundings(DIRECTORY, settings.trust)
        return settings, password, make(settings, password, surroundings, self._reactor)

    def _make_issuer(self, name: str, settings: IssuerSettings) -> Issuer:
        before = self._issuers.get(name)
        if before is not None and before[0] == settings:
            return before
        make = self._load(TOKENS)
        return settings, make(settings, self._surroundings(f"{TOKENS} {name}", settings.trust))

    # Any: what a plug-in makes; it fulfills the Protocol of its kind.
    def _load(self, kind: str) -> Callable[..., Any]:
        try:
            make: Callable[..., Any] = self._plugins[kind].load()
        except ImportError as error:
            raise ConfigError([_missing(kind, error)]) from error
        return make

    def _surroundings(self, key: str, trust: Path | str) -> RealmSurroundings:
        authorities = None if trust == SYSTEM_TRUST else Path(trust)
        fetcher = HttpsFetcher(self._reactor, authorities, FetchFailed)
        return RealmSurroundings(key, self._reactor, self._now, fetcher.fetch, secrets.token_bytes)


def missing_plugins(
    config: Config, plugins: Mapping[str, EntryPoint] = PLUGINS
) -> list[tuple[tuple[str, ...], str]]:
    """Return which settings need a library that is not installed, and what to do."""
    wanted: list[tuple[str, tuple[str, ...]]] = []
    if config.users.ldap is not None:
        wanted.append((DIRECTORY, ("users", "ldap")))
    if config.users.issuers:
        wanted.append((TOKENS, ("users", "issuers")))
    found = []
    for kind, at in wanted:
        try:
            plugins[kind].load()
        except ImportError as error:
            found.append((at, _missing(kind, error)))
    return found


def read_secret(path: Path) -> str:
    """Return the secret in the first line of a file.

    Raises:
        ConfigError: there is none.
    """
    try:
        with path.open("rb") as file:
            line = file.read(LONGEST_SECRET).partition(b"\n")[0]
        secret = line.decode().removesuffix("\r")
    except (OSError, ValueError) as error:
        words = getattr(error, "strerror", None) or "is not UTF-8"
        raise ConfigError([f"{path}: {words}"]) from error
    if not secret:
        raise ConfigError([f"{path}: the first line is empty; it has to hold the password"])
    return secret


def _missing(kind: str, error: ImportError) -> str:
    return f"needs the extra {kind}: pip install 'amqproute[{kind}]' ({error})"
