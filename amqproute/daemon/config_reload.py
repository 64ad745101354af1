# SPDX-License-Identifier: Apache-2.0
"""A reload in two passes: every component prepares its change, then every change is applied.

A component that depends on settings registers a function that prepares: it is given the new
configuration, does everything that can fail (reads files, compiles rules, compares with the nodes
that exist) and changes nothing. It returns the function that applies the change, which cannot fail.
One preparation that raises refuses the whole reload, and the old configuration stays in force.

Both passes are one call: nothing can happen between them, and what was checked still holds when it
is applied. Components never see new values of settings that take effect at the next start
(`amqproute.config.config_diff.after_reload`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from twisted.logger import Logger

from amqproute.config.config_diff import after_reload, differences
from amqproute.config.schema import Config

__all__ = ["Apply", "ConfigReloader", "Prepare", "ReloadReport"]

Apply: TypeAlias = Callable[[], object]
"""Puts a prepared change in force; does not raise."""
Prepare: TypeAlias = Callable[[Config], Apply]
"""Checks a configuration and returns how to put it in force.

Raises `AmqprouteError` where the configuration cannot be used; nothing has changed then.
"""


@dataclass(frozen=True, slots=True)
class ReloadReport:
    """Result of a reload.

    Attributes:
        changed: keys of the settings that it has put in force, in the order of the file.
        waiting: those whose values in the file take effect at the next start, in order.
        failed: components whose change raised, which is a mistake in the program: they may go by
            the old settings still.
    """

    changed: list[str]
    waiting: list[str]
    failed: list[str]


class ConfigReloader:
    """The configuration in force, and the components that follow it.

    Args:
        config: the configuration of the start.

    Attributes:
        config: the configuration in force.
    """

    log = Logger()

    def __init__(self, config: Config) -> None:
        self.config = config
        self._components: dict[str, Prepare] = {}

    @property
    def components(self) -> Mapping[str, Prepare]:
        """The components by name, in the order in which their changes are applied."""
        return self._components

    def register(self, name: str, prepare: Prepare) -> None:
        """Register a component that follows the configuration.

        Args:
            name: the name for the log; one that is registered already is replaced, in its place.
            prepare: see `Prepare`.
        """
        self._components[name] = prepare

    def reload(self, wanted: Config) -> ReloadReport:
        """Put a new configuration in force, as far as a reload can.

        Raises:
            AmqprouteError: a component cannot use it; everything is as it was.
        """
        running = self.config
        config = after_reload(running, wanted)
        changes = [(name, prepare(config)) for name, prepare in self._components.items()]
        self.config = config
        failed = []
        for name, apply in changes:
            try:
                apply()
            except Exception:  # the others are prepared for the new configuration already
                self.log.failure("the reload failed to change {component}", component=name)
                failed.append(name)
        waiting = sorted(differences(config, wanted))
        return ReloadReport(differences(running, config), waiting, failed)
