# SPDX-License-Identifier: Apache-2.0
"""The plug-ins of this installation, as the daemon uses them.

They are imported at the start. One that cannot be used is an error in the log; the daemon starts
without it, unless ``plugins.required`` names it, or it is the kind of a realm in ``users.realms``
(`amqproute.daemon.realm_assembly`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, cast

from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.auth.realm_kinds import fault_of_realm_kind
from amqproute.config.config_source import ConfigPlace, dotted
from amqproute.config.schema import Config
from amqproute.daemon.realm_assembly import OWN_KINDS
from amqproute.errors import ConfigError
from amqproute.filters.filter_kinds import FilterKind
from amqproute.filters.registry import adopt_kinds, fault_of_plugin
from amqproute.log_rate_limit import RateLimitedLog
from amqproute.plugins import FILTERS, REALMS, PlugIn, find_plugins

__all__ = ["GROUPS", "adopt_plugins", "faults", "installed_plugins", "required_problems"]

log = Logger()

GROUPS: Final[Mapping[str, Callable[[object], str]]] = MappingProxyType(
    {FILTERS: fault_of_plugin, REALMS: fault_of_realm_kind}
)
"""By group of entry points, what tells why an object is none of its plug-ins."""


def installed_plugins() -> list[PlugIn]:
    """Import the plug-ins of this installation."""
    return [
        replace(each, value=None, fault=f"the broker has realms of the kind {each.name} itself")
        if each.group == REALMS and each.name in OWN_KINDS and not each.fault
        else each
        for each in find_plugins(GROUPS)
    ]


def faults(config: Config, plugins: Sequence[PlugIn]) -> list[str]:
    """Return a line for each plug-in that cannot be used, and that nothing requires."""
    required = {*config.plugins.required, *(each.kind for each in config.users.realms.values())}
    return [
        f"{each} is left out: {each.fault}"
        for each in plugins
        if each.fault and each.name not in required
    ]


def required_problems(config: Config, plugins: Sequence[PlugIn]) -> list[str]:
    """Return a line for each plug-in that is required and cannot be used."""
    problems = []
    for index, name in enumerate(config.plugins.required):
        at = ("plugins", "required", index)
        named = [each for each in plugins if each.name == name]
        if any(not each.fault for each in named):
            continue
        words = f"no plug-in {name!r} is installed; install the distribution that has it"
        if named:
            words = f"{named[0]} cannot be used: {named[0].fault}"
        place: ConfigPlace = config.source.place_of(at)
        problems.append(f"{place}: {dotted(at)}: {words}")
    return problems


def adopt_plugins(config: Config, plugins: Sequence[PlugIn], seconds: Callable[[], float]) -> None:
    """Put the plug-ins in force, and name those that cannot be used in the log.

    Args:
        config: the configuration.
        plugins: the plugins of this installation.
        seconds: the monotonic clock, for the bound on lines about faults.

    Raises:
        ConfigError: a plug-in that is required cannot be used.
    """
    problems = required_problems(config, plugins)
    if problems:
        raise ConfigError(problems)
    for words in faults(config, plugins):
        log.error("{words}", words=words)
    limit = RateLimitedLog(seconds)

    def failed(descriptor: str, error: Exception) -> None:
        count = limit.due(descriptor)
        if count:
            log.failure(
                "the plug-in for filters {descriptor} has failed, {count} times since the last "
                "such line; report it to its authors",
                Failure(error),  # type: ignore[no-untyped-call]
                descriptor=descriptor,
                count=count,
            )

    sound = [each for each in plugins if not each.fault]
    kinds = [cast("FilterKind", each.value) for each in sound if each.group == FILTERS]
    for descriptor in adopt_kinds(kinds, failed):
        log.error(
            "a plug-in for filters {descriptor} is left out: another one has its descriptor or "
            "code",
            descriptor=descriptor,
        )
    realms = {each.kind for each in config.users.realms.values()}
    for each in sound:
        if each.group != REALMS or each.name in realms:
            log.info("{plugin} is in use", plugin=str(each))
