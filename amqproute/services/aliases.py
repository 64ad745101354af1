# SPDX-License-Identifier: Apache-2.0
"""Commands on further names of nodes, while the daemon runs; see `amqproute.services.inventory`."""

from __future__ import annotations

from dataclasses import replace

from amqproute.services.changes import ALIAS, Changes, Made, Result
from amqproute.services.commands import (
    BAD_REQUEST,
    CONFLICT,
    CREATED,
    GONE,
    NOT_FOUND,
    OK,
    Command,
    Refused,
)
from amqproute.services.inventory import Inventory
from amqproute.services.options import check_name, new_name_of

__all__ = ["Aliases"]


class Aliases:
    """Gives nodes further names, and takes them away.

    Args:
        inventory: what was made at runtime, and what is configured.
    """

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._broker = inventory.broker
        self._made = inventory.aliases

    def create(self, command: Command, changes: Changes) -> Result:
        """Make a further name of a node (G-26)."""
        name, target = command.name, command.arguments.get("target")
        if not isinstance(target, str) or not target:
            raise Refused(BAD_REQUEST, "an alias needs a `target`, the node it leads to")
        if command.or_assert and name in self._broker.aliases:
            return self.assert_as(command)
        check_name(name)
        self._inventory.require_free(name)
        if target in self._broker.aliases:
            raise Refused(CONFLICT, f"{target!r} is an alias itself; name its node instead")
        self._inventory.node(target)
        made = Made({"target": target}, changes.by, changes.now_ms)
        self._made[name] = made
        self._broker.aliases[name] = target
        changes.note(ALIAS, name, made.encode())

        def undo() -> None:
            del self._made[name]
            del self._broker.aliases[name]

        changes.did(f"{command} of {target}", undo)
        return Result(CREATED, "created", {"name": name, "target": target})

    def assert_as(self, command: Command) -> Result:
        """Compare an alias."""
        there = self._broker.aliases.get(command.name)
        if there is None:
            raise Refused(NOT_FOUND, f"there is no alias {command.name[:256]!r}")
        wanted = command.arguments.get("target", there)
        if wanted != there:
            raise Refused(CONFLICT, f"{command.name!r} leads to {there!r}, not {wanted!r}")
        return Result(OK, "as it should be", {"name": command.name, "target": there})

    def rename(self, command: Command, changes: Changes) -> Result:
        """Give an alias another name: the old one leads nowhere afterwards."""
        name, new_name = command.name, new_name_of(command)
        target = str(self.assert_as(replace(command, arguments={})).attributes["target"])
        self.delete(command, changes)
        self.create(Command("CREATE", ALIAS, new_name, {"target": target}), changes)
        return Result(OK, "renamed", {"name": new_name, "was": name})

    def delete(self, command: Command, changes: Changes) -> Result:
        """Take a further name away."""
        name = command.name
        if name not in self._broker.aliases and name not in self._made:
            raise Refused(NOT_FOUND, f"there is no alias {name[:256]!r}")
        made = self._inventory.require_own(name, self._made)
        del self._made[name]
        target = self._broker.aliases.pop(name, None)
        changes.note(ALIAS, name, None)

        def undo() -> None:
            self._made[name] = made
            if target is not None:
                self._broker.aliases[name] = target

        changes.did(str(command), undo, lambda: self._inventory.when_gone({name}))
        return Result(GONE, "deleted", {"name": name})
