# SPDX-License-Identifier: Apache-2.0
"""The configuration through ``$management``: CONFIG-READ, -CHECK, -PLAN and -RELOAD.

CONFIG-READ answers the settings in force. The others read the daemon's file again: CONFIG-CHECK
answers what is wrong with it, CONFIG-PLAN which settings a reload would change and which would wait
for the next start, and CONFIG-RELOAD reloads, as SIGHUP does. The file has no secrets; the content
of the files that it names is not shown.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from twisted.internet.defer import Deferred

from amqproute.auth.policy import Verb
from amqproute.config import advise, load
from amqproute.config.config_diff import after_reload, differences
from amqproute.config.schema import Config
from amqproute.daemon.config_reload import ReloadReport
from amqproute.errors import AmqprouteError, ConfigError
from amqproute.services.command_schema import CONFLICT, FORBIDDEN, NOT_IMPLEMENTED, OK
from amqproute.services.management_node import ManagementService
from amqproute.services.management_protocol import Allows, ManagementReply, ManagementRequest

__all__ = ["CONFIGURATION", "register"]

CONFIGURATION: Final = "/configuration"
"""What a reload takes the right `manage` on."""


InThread: TypeAlias = Callable[[Callable[[], Config]], "Deferred[Config]"]
"""Runs a function in a thread."""


def register(
    service: ManagementService,
    running: Callable[[], Config],
    reload: Callable[[Config], ReloadReport],
    allows: Allows,
    in_thread: InThread,
) -> None:
    """Add the operations to the management node.

    Args:
        service: the node.
        running: returns the configuration in force.
        reload: puts another one in force; raises `AmqprouteError` if it cannot be used.
        allows: the access rules.
        in_thread: reads the file, which takes too long for the reactor.
    """

    async def wanted_now() -> Config | ManagementReply:
        path = running().source.path
        if path is None:
            return ManagementReply.of(NOT_IMPLEMENTED, "this daemon was started without a file")
        try:
            return await in_thread(partial(load, path))
        except ConfigError as error:
            return _refused(error.problems)

    def read(request: ManagementRequest) -> ManagementReply:
        settings = running().model_dump(mode="json", by_alias=True)
        return ManagementReply.of(OK, "OK", {"settings": settings})

    async def check(request: ManagementRequest) -> ManagementReply:
        wanted = await wanted_now()
        if isinstance(wanted, ManagementReply):
            problems = wanted.body.get("problems", [wanted.description])
            facts = {"valid": False, "problems": problems, "warnings": []}
            return ManagementReply.of(OK, "the file cannot be used", facts)
        warnings = [str(each) for each in advise(wanted)]
        facts = {"valid": True, "problems": [], "warnings": warnings}
        return ManagementReply.of(OK, "the file can be used", facts)

    async def plan(request: ManagementRequest) -> ManagementReply:
        wanted = await wanted_now()
        if isinstance(wanted, ManagementReply):
            return wanted
        config = after_reload(running(), wanted)
        facts = {
            "changed": differences(running(), config),
            "waiting": differences(config, wanted),
        }
        return ManagementReply.of(OK, "OK", facts)

    async def carry_out(request: ManagementRequest) -> ManagementReply:
        if not allows(request.principal, Verb.MANAGE, CONFIGURATION):
            words = f"{request.principal} may not manage {CONFIGURATION!r}"
            return ManagementReply.of(FORBIDDEN, words)
        wanted = await wanted_now()
        if isinstance(wanted, ManagementReply):
            return wanted
        try:
            report = reload(wanted)
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

    service.offer("CONFIG-READ", read)
    service.offer("CONFIG-CHECK", lambda asked: Deferred.fromCoroutine(check(asked)))
    service.offer("CONFIG-PLAN", lambda asked: Deferred.fromCoroutine(plan(asked)))
    service.offer("CONFIG-RELOAD", lambda asked: Deferred.fromCoroutine(carry_out(asked)))


def _refused(problems: list[str]) -> ManagementReply:
    words = f"nothing is changed: {problems[0]}"
    return ManagementReply.of(CONFLICT, words, {"problems": list(problems)})
