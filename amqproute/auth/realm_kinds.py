# SPDX-License-Identifier: Apache-2.0
"""Kinds of outside realms: the interface of plug-ins, in the group ``amqproute.realms``.

A kind is an object that makes realms of settings. The broker's own, ``ldap`` and ``oauth``, are
kinds as well, and everything else comes to it by the same way::

    class StaffKind:
        interface = 1
        verifies = "passwords"

        def prepare(self, settings):
            if not isinstance(settings.get("url"), str):
                raise SettingsRefused([(("url",), "is missing")])
            return settings["url"]

        def make(self, prepared, surroundings):
            return StaffRealm(prepared, surroundings)

`prepare` is called by ``amqproute check``, at the start and at each reload, `make` when its result
is to be put in force and is not equal to what is in force already. Then the broker calls `verify`
for each log-in, `recheck` for users who are still there, `probe` for the health check, and `stop`
when the realm is not used any more. All of it happens in the reactor's thread, which must not be
blocked: a library that blocks runs in threads (`amqproute.auth.realm_threads`).

What a realm does wrong harms nobody but its own users: see `amqproute.auth.guarded_realm`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeAlias, TypeVar

from amqproute.auth.outside_realm import PasswordRealm, RealmSurroundings, TokenRealm

__all__ = [
    "INTERFACE",
    "PASSWORDS",
    "TOKENS_OF_ISSUER",
    "GivenSettings",
    "RealmKind",
    "SettingPlace",
    "SettingValue",
    "SettingsRefused",
    "fault_of_realm",
    "fault_of_realm_kind",
    "read_secret",
]

INTERFACE: Final = 1
"""The version of this interface. Another one is refused: it would ask for other methods."""
PASSWORDS: Final = "passwords"
TOKENS_OF_ISSUER: Final = "tokens"
LONGEST_SECRET: Final = 4096
"""Octets of the first line of a file with a secret."""

SettingValue: TypeAlias = (
    "bool | int | float | str | Sequence[SettingValue] | Mapping[str, SettingValue] | None"
)
"""A value as the configuration has it."""
GivenSettings: TypeAlias = Mapping[str, SettingValue]
"""The settings of a plug-in's realm: ``users.realms.NAME.settings``."""
SettingPlace: TypeAlias = tuple[str | int, ...]
"""A place in the settings of a realm, as in ``("servers", 0)``."""

Given = TypeVar("Given", contravariant=True)
Prepared = TypeVar("Prepared")


class SettingsRefused(Exception):
    """Settings of a realm cannot be used.

    Attributes:
        problems: the place of each wrong value, and what is wrong with it.
    """

    def __init__(self, problems: Sequence[tuple[SettingPlace, str]]) -> None:
        super().__init__("; ".join(words for _, words in problems))
        self.problems = tuple(problems)


class RealmKind(Protocol[Given, Prepared]):
    """A kind of realms.

    Attributes:
        interface: the version of the interface that it is written for, `INTERFACE`.
        verifies: ``passwords``, and `make` returns a `PasswordRealm`; or ``tokens`` of an issuer,
            and it returns a `TokenRealm`.
    """

    @property
    def interface(self) -> int:
        """See `RealmKind`."""

    @property
    def verifies(self) -> str:
        """See `RealmKind`."""

    def prepare(self, settings: Given, /) -> Prepared:
        """Check settings, and read the files that they name.

        The network is not used, and nothing lasting is made: this may be a check only.

        Args:
            settings: of plug-ins `GivenSettings`; references to the environment and to credentials
                (``%d/NAME``) are resolved, and other paths are as written.

        Returns:
            What `make` takes. A reload keeps the realm if this is equal to what it was made of.

        Raises:
            SettingsRefused: they cannot be used.
        """

    def make(
        self, prepared: Prepared, surroundings: RealmSurroundings, /
    ) -> PasswordRealm | TokenRealm:
        """Return a realm. It connects when it is asked the first time, not before."""


def fault_of_realm_kind(value: object) -> str:
    """Return why an object is no `RealmKind`; empty if it is one."""
    interface = getattr(value, "interface", None)
    if inspect.isclass(value) or type(interface) is not int:
        return "it is no object with a number `interface`"
    if interface != INTERFACE:
        return (
            f"it is written for version {interface} of the interface of realms, and this broker "
            f"has version {INTERFACE}"
        )
    if getattr(value, "verifies", None) not in (PASSWORDS, TOKENS_OF_ISSUER):
        return f"its `verifies` is neither {PASSWORDS} nor {TOKENS_OF_ISSUER}"
    for name, takes in (("prepare", ("settings",)), ("make", ("prepared", "surroundings"))):
        if not _can_be_called(getattr(value, name, None), takes):
            return f"its `{name}` does not take {', '.join(takes)}"
    return ""


def fault_of_realm(value: object, verifies: str) -> str:
    """Return why an object is no realm; empty if it is one.

    Args:
        value: what `RealmKind.make` has returned.
        verifies: see `RealmKind`.
    """
    methods: dict[str, tuple[str, ...]] = {"probe": (), "stop": ()}
    if verifies == PASSWORDS:
        methods |= {"verify": ("name", "password"), "recheck": ("account",)}
    else:
        methods |= {"verify": ("token",)}
        issuer, hint = getattr(value, "issuer", None), getattr(value, "hint", None)
        if not isinstance(issuer, str) or not issuer:
            return "its `issuer` is no text"
        texts = (*hint, *hint.values()) if isinstance(hint, Mapping) else (hint,)
        if not all(isinstance(each, str) for each in texts):
            return "its `hint` is no mapping of texts"
    for name, takes in methods.items():
        if not _can_be_called(getattr(value, name, None), takes):
            return f"its `{name}` does not take {', '.join(takes) or 'nothing'}"
    return ""


def _can_be_called(method: object, takes: Sequence[str]) -> bool:
    if not callable(method):
        return False
    called: Callable[..., object] = method
    try:
        inspect.signature(called).bind(*takes)
    except (TypeError, ValueError):
        return False
    return True


def read_secret(path: Path) -> str:
    """Return the secret in the first line of a file.

    Raises:
        ValueError: there is none; the text has the path and the reason.
    """
    try:
        with path.open("rb") as file:
            line = file.read(LONGEST_SECRET).partition(b"\n")[0]
        secret = line.decode().removesuffix("\r")
    except (OSError, ValueError) as error:
        words = getattr(error, "strerror", None) or "is not UTF-8"
        raise ValueError(f"{path}: {words}") from error
    if not secret:
        raise ValueError(f"{path}: the first line is empty; it has to hold the password")
    return secret
