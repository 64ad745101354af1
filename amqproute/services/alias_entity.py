# SPDX-License-Identifier: Apache-2.0
"""Runtime commands on aliases of nodes (`amqproute.services.node_changes`)."""

from __future__ import annotations

from dataclasses import replace

from amqproute.services.change_batch import ALIAS, ChangeBatch, CommandResult, RuntimeNode
from amqproute.services.command_options import check_name, new_name_of
from amqproute.services.command_schema import (
    BAD_REQUEST,
    CONFLICT,
    CREATED,
    GONE,
    NOT_FOUND,
    OK,
    CommandRefused,
    ManagementCommand,
)
from amqproute.services.node_changes import NodeChanges

__all__ = ["AliasCommands"]


class AliasCommands:
    """Creates, renames and deletes aliases.

    Args:
        inventory: entities made at runtime, and configured ones.
    """

    def __init__(self, inventory: NodeChanges) -> None:
        self._inventory = inventory
        self._broker = inventory.broker
        self._made = inventory.aliases

    def create(self, command: ManagementCommand, changes: ChangeBatch) -> CommandResult:
        """Create an alias of a node (G-26)."""
        name, target = command.name, command.arguments.get("target")
        if not isinstance(target, str) or not target:
            raise CommandRefused(BAD_REQUEST, "an alias needs a `target`, the node it leads to")
        if command.or_assert and name in self._broker.aliases:
            return self.assert_as(command)
        check_name(name)
        self._inventory.require_free(name)
        if target in self._broker.aliases:
            raise CommandRefused(CONFLICT, f"{target!r} is an alias itself; name its node instead")
        self._inventory.node(target)
        made = RuntimeNode({"target": target}, changes.by, changes.now_ms)
        self._made[name] = made
        self._broker.aliases[name] = target
        changes.note(ALIAS, name, made.encode())

        def undo() -> None:
            del self._made[name]
            del self._broker.aliases[name]

        changes.did(f"{command} of {target}", undo)
        return CommandResult(CREATED, "created", {"name": name, "target": target})

    def assert_as(self, command: ManagementCommand) -> CommandResult:
        """Check that an alias leads to its asserted node."""
        there = self._broker.aliases.get(command.name)
        if there is None:
            raise CommandRefused(NOT_FOUND, f"there is no alias {command.name[:256]!r}")
        wanted = command.arguments.get("target", there)
        if wanted != there:
            raise CommandRefused(CONFLICT, f"{command.name!r} leads to {there!r}, not {wanted!r}")
        return CommandResult(OK, "as it should be", {"name": command.name, "target": there})

    def rename(self, command: ManagementCommand, changes: ChangeBatch) -> CommandResult:
        """Rename an alias; the old name leads nowhere afterwards."""
        name, new_name = command.name, new_name_of(command)
        target = str(self.assert_as(replace(command, arguments={})).attributes["target"])
        self.delete(command, changes)
        self.create(ManagementCommand("CREATE", ALIAS, new_name, {"target": target}), changes)
        return CommandResult(OK, "renamed", {"name": new_name, "was": name})

    def delete(self, command: ManagementCommand, changes: ChangeBatch) -> CommandResult:
        """Delete an alias."""
        name = command.name
        if name not in self._broker.aliases and name not in self._made:
            raise CommandRefused(NOT_FOUND, f"there is no alias {name[:256]!r}")
        made = self._inventory.require_own(name, self._made)
        del self._made[name]
        target = self._broker.aliases.pop(name, None)
        changes.note(ALIAS, name, None)

        def undo() -> None:
            self._made[name] = made
            if target is not None:
                self._broker.aliases[name] = target

        changes.did(str(command), undo, lambda: self._inventory.when_gone({name}))
        return CommandResult(GONE, "deleted", {"name": name})
