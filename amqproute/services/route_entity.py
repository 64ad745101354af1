# SPDX-License-Identifier: Apache-2.0
"""Runtime commands on static routes (G-26); see `amqproute.services.node_changes`.

A route's name is its pattern of domains. Routes of the configuration cannot be changed here; a
route that the file later has for the same pattern takes precedence until it leaves the file again.
Waiting messages keep their route, as after a reload of the configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from amqproute.errors import ConfigError
from amqproute.services.change_batch import ROUTE, ChangeBatch, CommandResult, RuntimeNode
from amqproute.services.command_options import require_same
from amqproute.services.command_schema import (
    BAD_REQUEST,
    CONFLICT,
    CREATED,
    FULL,
    GONE,
    NOT_FOUND,
    OK,
    CommandRefused,
    ManagementCommand,
)
from amqproute.services.node_changes import NodeChanges
from amqproute.values import RouteRule

__all__ = ["MOST_ROUTES", "RouteCommands"]

MOST_ROUTES: Final = 10_000
"""Routes made at runtime: each message to another domain is matched with them."""


class RouteCommands:
    """Makes, compares and deletes static routes, and lists them.

    Args:
        inventory: entities made at runtime, and configured ones.
    """

    def __init__(self, inventory: NodeChanges) -> None:
        self._inventory = inventory
        self._made = inventory.routes

    def create(self, command: ManagementCommand, changes: ChangeBatch) -> CommandResult:
        """Create a route: ``via``, ``target`` and ``names``, as in the configuration."""
        rule = self._rule(command)
        name = rule.pattern
        if self._find(name) is not None:
            if command.or_assert:
                return self.assert_as(command)
            raise CommandRefused(
                CONFLICT, f"there is a route for {name!r} already{self._where(name)}"
            )
        if len(self._made) >= MOST_ROUTES:
            raise CommandRefused(FULL, f"there are {MOST_ROUTES} routes made at runtime")
        options = _options(rule)
        made = RuntimeNode(options, changes.by, changes.now_ms)
        self._made[name] = made
        changes.note(ROUTE, name, made.encode())

        def undo() -> None:
            del self._made[name]

        changes.did(f"CREATE route {name} via {rule.via}", undo, self._inventory.when_routed)
        return CommandResult(CREATED, "created", {"name": name, **options})

    def assert_as(self, command: ManagementCommand) -> CommandResult:
        """Check that a route has the asserted options."""
        wanted = self._rule(command)
        found = self._find(wanted.pattern)
        if found is None:
            raise CommandRefused(NOT_FOUND, f"there is no route {command.name[:256]!r}")
        there, asked = _options(found), _options(wanted)
        given = [key for key in asked if key in command.arguments]
        require_same(command.name, there, asked, given)
        return CommandResult(OK, "as it should be", {"name": found.pattern, **there})

    def delete(self, command: ManagementCommand, changes: ChangeBatch) -> CommandResult:
        """Delete a route that was made at runtime."""
        name = self._pattern(command.name)
        place = self._inventory.configured.route_places.get(name)
        made = self._made.get(name)
        if made is None and place is not None:
            raise CommandRefused(
                CONFLICT,
                f"{name!r} is declared at {place}: change it there and reload the daemon",
                {"declared-at": place},
            )
        if made is None:
            raise CommandRefused(NOT_FOUND, f"there is no route {command.name[:256]!r}")
        del self._made[name]
        changes.note(ROUTE, name, None)

        def undo() -> None:
            self._made[name] = made

        changes.did(f"DELETE route {name}", undo, self._inventory.when_routed)
        return CommandResult(GONE, "deleted", {"name": name})

    def rows(self) -> Iterable[dict[str, object]]:
        """Describe each route: those of the configuration in their order, then the others."""
        return (make(name) for name, make in self.index())

    def index(
        self, host: str | None = None
    ) -> Sequence[tuple[str, Callable[[str], dict[str, object]]]]:
        """Return the names of the routes in the order of `rows`; see `management_rows.RowIndex`.

        Routes are in no virtual host.
        """
        if host is not None:
            return ()
        configured = self._inventory.configured.routes
        index: list[tuple[str, Callable[[str], dict[str, object]]]] = [
            (rule.pattern, partial(self._configured_row, rule)) for rule in configured
        ]
        known = {rule.pattern for rule in configured}
        index += [(name, self._made_row) for name in sorted(self._made) if name not in known]
        return index

    def _configured_row(self, rule: RouteRule, name: str) -> dict[str, object]:
        place = self._inventory.configured.route_places.get(name)
        origin = {"origin": "configuration", "declared-at": place}
        return {"name": name, "type": "route", **_options(rule), **origin}

    def _made_row(self, name: str) -> dict[str, object]:
        made = self._made[name]
        runtime = {"origin": "runtime", "made-by": made.by, "made-at-ms": made.since_ms}
        return {"name": name, "type": "route", **made.options, **runtime}

    def _find(self, pattern: str) -> RouteRule | None:
        rules = (*self._inventory.configured.routes, *self._inventory.route_rules())
        return next((rule for rule in rules if rule.pattern == pattern), None)

    def _where(self, pattern: str) -> str:
        place = self._inventory.configured.route_places.get(pattern)
        return f", declared at {place}" if place else ""

    def _rule(self, command: ManagementCommand) -> RouteRule:
        try:
            return self._inventory.describe_route({**command.arguments, "domain": command.name})
        except ConfigError as error:
            raise CommandRefused(BAD_REQUEST, "; ".join(error.problems)) from None

    def _pattern(self, name: str) -> str:
        try:
            return self._inventory.describe_route({"domain": name}).pattern
        except ConfigError:
            return name  # it may have become one of ours since


def _options(rule: RouteRule) -> dict[str, object]:
    return {"via": rule.via, "target": rule.target, "names": list(rule.names)}
