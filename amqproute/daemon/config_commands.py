# SPDX-License-Identifier: Apache-2.0
"""The configuration through ``$management``: CONFIG-READ, -CHECK, -PLAN and -RELOAD.

CONFIG-READ answers the settings in force, and where each value comes from: a line of a file, the
environment, a credential, the default, or a command that has made an entry at runtime. The others
read the daemon's files again: CONFIG-CHECK answers what is wrong with them, CONFIG-PLAN which
settings a reload would change and which would wait for the next start, and CONFIG-RELOAD reloads,
as SIGHUP does. Values out of the environment are not shown, nor is the content of files that the
configuration names.

CONFIG-READ answers the version of the settings in force, and CONFIG-PLAN that of the settings in
force and in the files. With one of them as ``if-version``, CONFIG-PLAN and CONFIG-RELOAD refuse
(412) if it is not the present one any more, so that nobody puts in force what he has not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Protocol, TypeVar

from twisted.internet.defer import Deferred

from amqproute.auth.policy import Verb
from amqproute.config import advise, load
from amqproute.config.config_diff import after_reload, differences
from amqproute.config.config_source import dotted
from amqproute.config.config_values import setting_values, shown_settings, version_of
from amqproute.config.schema import Config
from amqproute.daemon.config_reload import ReloadReport
from amqproute.errors import AmqprouteError, ConfigError
from amqproute.services.command_schema import (
    CONFLICT,
    FORBIDDEN,
    NOT_IMPLEMENTED,
    OK,
    PRECONDITION_FAILED,
)
from amqproute.services.management_node import ManagementService
from amqproute.services.management_operations import IF_VERSION
from amqproute.services.management_protocol import Allows, ManagementReply, ManagementRequest

__all__ = ["CONFIGURATION", "ConfigCommands", "ConfigInForce"]

CONFIGURATION: Final = "/configuration"
"""Object on which a reload requires the right `manage`."""

_T = TypeVar("_T")


class InThread(Protocol):
    """Runs a function in a thread."""

    def __call__(self, function: Callable[[], _T], /) -> Deferred[_T]:
        """Return a Deferred of the result."""


_MADE_AT_RUNTIME: Final = (
    ("alias", "aliases"),
    ("route", "routes"),
    ("policy", "policies"),
    ("operator-policy", "policies"),
)
"""Entity types with entries made by commands, and the settings that have entries as well."""
_ORIGIN: Final = frozenset(
    ("name", "type", "origin", "declared-at", "made-by", "made-at-ms", "virtual-host")
)


class ConfigInForce:
    """The configuration of a daemon, and how to change it.

    Args:
        running: returns the configuration in force.
        reload: puts another one in force; raises `AmqprouteError` if it cannot be used.
        in_thread: reads files and goes through all settings, which takes too long for the reactor.
        key: secret; see `version_of`.
    """

    def __init__(
        self,
        running: Callable[[], Config],
        reload: Callable[[Config], ReloadReport],
        in_thread: InThread,
        key: bytes,
    ) -> None:
        self.running = running
        self.reload = reload
        self.in_thread = in_thread
        self._key = key

    async def wanted(self) -> Config | ManagementReply:
        """Read the files; return the refusal if they cannot be used."""
        path = self.running().source.path
        if path is None:
            return ManagementReply.of(NOT_IMPLEMENTED, "this daemon was started without a file")
        try:
            return await self.in_thread(partial(load, path))
        except ConfigError as error:
            return _refused(error.problems)

    def version(self, *configs: Config) -> str:
        """Return the version of settings; for a thread."""
        return version_of(self._key, *configs)


class ConfigCommands:
    """The operations.

    Args:
        configuration: the configuration of the daemon.
        allows: the access rules.
    """

    def __init__(self, configuration: ConfigInForce, allows: Allows) -> None:
        self._configuration = configuration
        self._allows = allows

    def register(self, service: ManagementService) -> None:
        """Add the operations to the management node."""
        service.offer(
            "CONFIG-READ", lambda asked: Deferred.fromCoroutine(self._read(service, asked))
        )
        service.offer("CONFIG-CHECK", lambda asked: Deferred.fromCoroutine(self._check()))
        service.offer("CONFIG-PLAN", lambda asked: Deferred.fromCoroutine(self._plan(asked)))
        service.offer("CONFIG-RELOAD", lambda asked: Deferred.fromCoroutine(self._reload(asked)))

    async def _read(
        self, service: ManagementService, request: ManagementRequest
    ) -> ManagementReply:
        config = self._configuration.running()
        is_short = request.body.get("changed") is True
        made = [*_made_at_runtime(service)]

        def facts() -> dict[str, object]:
            found = setting_values(config)
            values = [each.as_row() for each in found if each.is_changed or not is_short]
            return {
                "version": self._configuration.version(config),
                "files": [str(each) for each in config.source.files],
                "settings": shown_settings(config),
                "values": [*values, *made],
            }

        return ManagementReply.of(OK, "OK", await self._configuration.in_thread(facts))

    async def _check(self) -> ManagementReply:
        wanted = await self._configuration.wanted()
        if isinstance(wanted, ManagementReply):
            problems = wanted.body.get("problems", [wanted.description])
            facts = {"valid": False, "problems": problems, "warnings": []}
            return ManagementReply.of(OK, "the configuration cannot be used", facts)
        warnings = [str(each) for each in advise(wanted)]
        facts = {"valid": True, "problems": [], "warnings": warnings}
        return ManagementReply.of(OK, "the configuration can be used", facts)

    async def _plan(self, request: ManagementRequest) -> ManagementReply:
        wanted = await self._wanted_as_of(request)
        if isinstance(wanted, ManagementReply):
            return wanted
        running = self._configuration.running()

        def facts() -> dict[str, object]:
            config = after_reload(running, wanted)
            return {
                "changed": differences(running, config),
                "waiting": differences(config, wanted),
                "files": [str(each) for each in wanted.source.files],
                "version": self._configuration.version(running, wanted),
            }

        return ManagementReply.of(OK, "OK", await self._configuration.in_thread(facts))

    async def _reload(self, request: ManagementRequest) -> ManagementReply:
        if not self._allows(request.principal, Verb.MANAGE, CONFIGURATION):
            words = f"{request.principal} may not manage {CONFIGURATION!r}"
            return ManagementReply.of(FORBIDDEN, words)
        wanted = await self._wanted_as_of(request)
        if isinstance(wanted, ManagementReply):
            return wanted
        try:
            report = self._configuration.reload(wanted)
        except ConfigError as error:
            return _refused(error.problems)
        except AmqprouteError as error:
            return _refused([str(error)])
        facts = {
            "changed": report.changed,
            "waiting": report.waiting,
            "failed": report.failed,
        }
        return ManagementReply.of(OK, "reloaded", facts)

    async def _wanted_as_of(self, request: ManagementRequest) -> Config | ManagementReply:
        """Read the files; refuse if something has changed since the version in the request."""
        wanted = await self._configuration.wanted()
        known = request.body.get(IF_VERSION)
        if known is None or isinstance(wanted, ManagementReply):
            return wanted
        running, new = self._configuration.running(), wanted

        def is_present() -> bool:
            version = self._configuration.version
            return known in (version(running), version(running, new))

        is_same = await self._configuration.in_thread(is_present)
        if is_same and self._configuration.running() is running:
            return wanted
        words = "the configuration has changed since that version; read it again"
        return ManagementReply.of(PRECONDITION_FAILED, words, {"field": IF_VERSION})


def _made_at_runtime(service: ManagementService) -> Iterator[dict[str, object]]:
    """Iterate over entries beside those of the files, made by commands."""
    for kind, setting in _MADE_AT_RUNTIME:
        for row in service.rows_of(kind):
            if row.get("origin") == "runtime":
                yield {
                    "key": dotted((setting, str(row["name"]))),
                    "value": {key: value for key, value in row.items() if key not in _ORIGIN},
                    "default": None,
                    "origin": "command",
                    "place": None,
                    "made-by": row.get("made-by"),
                }


def _refused(problems: list[str]) -> ManagementReply:
    words = f"nothing is changed: {problems[0]}"
    return ManagementReply.of(CONFLICT, words, {"problems": list(problems)})
