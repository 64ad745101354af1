# SPDX-License-Identifier: Apache-2.0
"""Outside realms from the configuration; see `amqproute.auth.outside_realm`.

Each realm is of a kind (`amqproute.auth.realm_kinds`). The broker's own kinds, the directory
(``users.ldap``) and the issuers of tokens (``users.issuers``), need libraries beside the package,
which are optional (the extras ``ldap`` and ``oauth``). So they are imported when the configuration
asks for them, as those of plug-ins are (``users.realms``), which are found by their entry points.
All kinds are checked, made, guarded and replaced in the same way.

A realm that the configuration names and that cannot be made refuses the start, or the reload, with
the words that `amqproute check` has: without it, its users could not log in.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Final, TypeAlias, cast

from twisted.logger import Logger

from amqproute.auth.guarded_realm import GuardedPasswordRealm, GuardedTokenRealm, RealmGuard
from amqproute.auth.outside_realm import (
    DIRECTORY,
    TOKENS,
    FetchFailed,
    NamedRealm,
    OutsideRealms,
    PasswordRealm,
    RealmSurroundings,
    TokenRealm,
)
from amqproute.auth.realm_kinds import (
    PASSWORDS,
    RealmKind,
    SettingsRefused,
    fault_of_realm,
    fault_of_realm_kind,
)
from amqproute.config.config_source import Location, dotted
from amqproute.config.field_types import SYSTEM_TRUST
from amqproute.config.schema import Config
from amqproute.daemon.config_reload import Apply
from amqproute.errors import ConfigError
from amqproute.net.https_fetch import TIMEOUT_SECONDS, HttpsFetcher
from amqproute.net.reactor import IReactor
from amqproute.plugins import LONGEST_FAULT, REALMS, PlugIn, find_plugins

__all__ = [
    "OWN_KINDS",
    "RealmAssembly",
    "RealmKinds",
    "RealmProblem",
    "examine_realms",
    "find_realms",
]

log = Logger()

OWN_KINDS: Final[Mapping[str, EntryPoint]] = {
    DIRECTORY: EntryPoint(DIRECTORY, "amqproute.daemon.ldap_plugin:LDAP", REALMS),
    TOKENS: EntryPoint(TOKENS, "amqproute.daemon.oauth_plugin:OAUTH", REALMS),
}
"""The broker's own kinds by name; each is named like its extra."""
_PLACES: Final = {DIRECTORY: "users.ldap", TOKENS: "users.issuers"}
GRACE_SECONDS: Final = 2.0
"""How much longer than it allows itself one of the broker's own realms may take."""

AnyKind: TypeAlias = RealmKind[object, object]
"""A kind. What `prepare` takes is what the configuration has for this kind, and what `make` takes
is what `prepare` has returned."""


def find_realms(
    find: Callable[[Mapping[str, Callable[[object], str]]], list[PlugIn]] = find_plugins,
) -> list[PlugIn]:
    """Return the kinds of realms that distributions beside this one have."""
    return find({REALMS: fault_of_realm_kind})


@dataclass(frozen=True, slots=True)
class WantedRealm:
    """A realm as the configuration has it.

    Attributes:
        name: for the log, metrics and operators; issuers are ``oauth NAME``.
        kind: the name of its kind.
        at: the place of its settings.
        kind_at: the place that names its kind.
        settings: what `RealmKind.prepare` takes.
        deadline: seconds for an answer.
        users: the names of its users, if it verifies passwords.
        trust: authorities for documents that it fetches.
    """

    name: str
    kind: str
    at: Location
    kind_at: Location
    settings: object = field(repr=False)
    deadline: float
    users: str = "*"
    trust: Path | str = SYSTEM_TRUST


def wanted_realms(config: Config) -> Iterator[WantedRealm]:
    """Iterate over the realms of a configuration, in the order in which they are asked."""
    users = config.users
    for name, each in users.realms.items():
        at: Location = ("users", "realms", name)
        yield WantedRealm(
            name, each.kind, (*at, "settings"), (*at, "kind"), each.settings, each.deadline,
            each.users,
        )  # fmt: skip
    if users.ldap is not None:
        at = ("users", "ldap")
        seconds = users.ldap.timeout + GRACE_SECONDS
        yield WantedRealm(DIRECTORY, DIRECTORY, at, at, users.ldap, seconds, trust=users.ldap.trust)
    for name, issuer in users.issuers.items():
        at = ("users", "issuers", name)
        seconds = 2 * TIMEOUT_SECONDS + GRACE_SECONDS  # two documents
        yield WantedRealm(
            f"{TOKENS} {name}", TOKENS, at, ("users", "issuers"), issuer, seconds,
            trust=issuer.trust,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PreparedRealm:
    """A realm that can be made.

    Attributes:
        wanted: how the configuration has it.
        kind: its kind.
        prepared: what `RealmKind.make` takes.
    """

    wanted: WantedRealm
    kind: AnyKind
    prepared: object = field(repr=False)


class RealmProblem(Exception):
    """A realm cannot be made.

    Attributes:
        problems: places in the configuration, and what is wrong there.
    """

    def __init__(self, *problems: tuple[Location, str]) -> None:
        super().__init__("; ".join(words for _, words in problems))
        self.problems = problems


class RealmKinds:
    """The kinds of realms of this installation, imported when they are asked for.

    Plug-ins are looked for each time, so that a reload finds one that has been installed meanwhile.

    Args:
        own: the broker's own, by name.
        find: returns those of plug-ins.
    """

    def __init__(
        self,
        own: Mapping[str, EntryPoint] = OWN_KINDS,
        find: Callable[[], list[PlugIn]] = find_realms,
    ) -> None:
        self._own = own
        self._find = find

    def prepare(self, wanted: WantedRealm) -> PreparedRealm:
        """Check the settings of a realm; see `RealmKind.prepare`.

        Raises:
            RealmProblem: it cannot be made.
        """
        own = wanted.at[1] != "realms"
        kind = self._own_kind(wanted) if own else self._kind_of_plugin(wanted)
        is_for_tokens = kind.verifies != PASSWORDS
        if is_for_tokens and wanted.users != "*":
            at = (*wanted.kind_at[:-1], "users")
            words = f"the kind {wanted.kind} verifies tokens, whatever their users are called"
            raise RealmProblem((at, words))
        try:
            return PreparedRealm(wanted, kind, kind.prepare(wanted.settings))
        except SettingsRefused as error:
            found = [((*wanted.at, *place), words) for place, words in error.problems]
            raise RealmProblem(*(found or [(wanted.at, "its plug-in refuses it")])) from error
        except Exception as error:  # whatever a plug-in raises
            words = f"the kind {wanted.kind} has failed: {_words_of(error)}"
            raise RealmProblem((wanted.at, words)) from error

    def _own_kind(self, wanted: WantedRealm) -> AnyKind:
        kind = wanted.kind
        try:
            return cast("AnyKind", self._own[kind].load())
        except ImportError as error:
            words = f"needs the extra {kind}: pip install 'amqproute[{kind}]' ({error})"
            raise RealmProblem((wanted.kind_at, words)) from error

    def _kind_of_plugin(self, wanted: WantedRealm) -> AnyKind:
        kind = wanted.kind
        if kind in self._own:
            words = f"the broker's own kind {kind} has its settings in {_PLACES[kind]}"
            raise RealmProblem((wanted.kind_at, words))
        plugins = self._find()
        named = [each for each in plugins if each.name == kind]
        sound = next((each for each in named if not each.fault), None)
        if sound is not None:
            return cast("AnyKind", sound.value)
        if named:
            words = f"{named[0]} cannot be used: {named[0].fault}"
        else:
            there = ", ".join(sorted({each.name for each in plugins})) or "none"
            words = (
                f"no kind of realms {kind!r} is installed (there are: {there}); install the "
                "distribution that has it"
            )
        raise RealmProblem((wanted.kind_at, words))


Findings: TypeAlias = list[tuple[Location, str]]
"""Places in a configuration, and what is to be said about them."""


def examine_realms(config: Config, kinds: RealmKinds) -> tuple[Findings, Findings]:
    """Examine the realms of a configuration.

    Returns:
        What prevents them from being made, and what is probably a mistake.
    """
    problems: Findings = []
    advice: Findings = []
    taking_all = ""
    for wanted in wanted_realms(config):
        try:
            prepared = kinds.prepare(wanted)
        except RealmProblem as error:
            problems += error.problems
            continue
        if prepared.kind.verifies != PASSWORDS:
            continue
        if taking_all:
            words = (
                f"is never asked: the realm {taking_all} before it has the users of all names; "
                f'give that one a pattern, as in users: "svc-*"'
            )
            advice.append((wanted.kind_at, words))
        elif wanted.users == "*":
            taking_all = wanted.name
    return list(dict.fromkeys(problems)), advice  # a missing extra is one for all issuers


Made = tuple[PreparedRealm, GuardedPasswordRealm | GuardedTokenRealm]


class RealmAssembly:
    """Makes the outside realms, and makes anew those whose settings a reload changes.

    Args:
        realms: where they are put in force.
        reactor: the reactor for threads and for fetching.
        now: the wall clock, seconds since the epoch.
        kinds: the kinds of realms.
    """

    def __init__(
        self,
        realms: OutsideRealms,
        reactor: IReactor,
        now: Callable[[], float],
        kinds: RealmKinds | None = None,
    ) -> None:
        self._realms = realms
        self._reactor = reactor
        self._now = now
        self._kinds = RealmKinds() if kinds is None else kinds
        self._made: dict[Location, Made] = {}

    def prepare(self, config: Config) -> Apply:
        """See `config_reload.Prepare`.

        Raises:
            ConfigError: a realm cannot be made.
        """
        made: dict[Location, Made] = {}
        problems: list[tuple[Location, str]] = []
        for wanted in wanted_realms(config):
            try:
                made[wanted.at] = self._realm(self._kinds.prepare(wanted))
            except RealmProblem as error:
                problems += error.problems
        passwords = [
            NamedRealm(prepared.wanted.name, realm, prepared.wanted.users)
            for prepared, realm in made.values()
            if isinstance(realm, GuardedPasswordRealm)
        ]
        issuers: dict[str, GuardedTokenRealm] = {}
        for at, (_, realm) in made.items():
            if isinstance(realm, GuardedTokenRealm):
                if realm.issuer in issuers:
                    problems.append((at, f"another realm has the issuer {realm.issuer!r} already"))
                issuers[realm.issuer] = realm
        if problems:
            former = [realm for _, realm in self._made.values()]
            for _, realm in made.values():
                if not any(realm is each for each in former):
                    realm.stop()
            raise ConfigError([_line(config, at, words) for at, words in dict(problems).items()])

        def apply() -> None:
            self._made = made
            self._realms.adopt(passwords, issuers.values(), config.users.token_passwords)

        return apply

    def _realm(self, prepared: PreparedRealm) -> Made:
        """Return the realm in force if it is made of the same, or a new one.

        Raises:
            RealmProblem: it cannot be made.
        """
        wanted = prepared.wanted
        before = self._made.get(wanted.at)
        if before is not None and _is_same(before[0], prepared):
            return prepared, before[1]
        verifies = prepared.kind.verifies
        try:
            made = prepared.kind.make(prepared.prepared, self._surroundings(wanted))
            fault = fault_of_realm(made, verifies)
        except Exception as error:  # whatever a plug-in raises
            fault = _words_of(error)
        if fault:
            raise RealmProblem((wanted.kind_at, f"the kind {wanted.kind} has failed: {fault}"))
        is_for_passwords = verifies == PASSWORDS
        realm = wanted.name if is_for_passwords else TOKENS
        guard = RealmGuard(wanted.name, realm, wanted.deadline, self._reactor)
        if is_for_passwords:
            return prepared, GuardedPasswordRealm(cast("PasswordRealm", made), guard)
        return prepared, GuardedTokenRealm(cast("TokenRealm", made), guard)

    def _surroundings(self, wanted: WantedRealm) -> RealmSurroundings:
        authorities = None if wanted.trust == SYSTEM_TRUST else Path(wanted.trust)
        return RealmSurroundings(
            wanted.name,
            self._reactor,
            self._now,
            HttpsFetcher(self._reactor, authorities, FetchFailed).fetch,
            secrets.token_bytes,
            self._reactor,
        )


def _is_same(before: PreparedRealm, now: PreparedRealm) -> bool:
    """Return whether a realm goes on; the pattern of its users may be another one."""
    if before.kind is not now.kind or before.wanted.deadline != now.wanted.deadline:
        return False
    try:
        return bool(before.prepared == now.prepared)
    except Exception:
        log.failure("comparing the settings of realm {realm} failed", realm=now.wanted.name)
        return False


def _words_of(error: Exception) -> str:
    """Return what a plug-in has raised, shortened."""
    return f"{type(error).__name__}: {error}".rstrip(": ")[:LONGEST_FAULT]


def _line(config: Config, at: Location, words: str) -> str:
    words = config.source.without_secrets(words)
    return f"{config.source.place_of(at)}: {dotted(at)}: {words}"
