# SPDX-License-Identifier: Apache-2.0
"""Runtime commands on bindings between nodes (`amqproute.services.node_changes`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from amqproute.broker.binding import BindingDeclaration
from amqproute.errors import AmqpError, ConfigError
from amqproute.services.change_batch import LINK, ChangeBatch, CommandResult, RuntimeNode
from amqproute.services.command_options import (
    FIXED_LINK_KEYS,
    check_link_name,
    link_of,
    link_options,
    new_name_of,
    require_same,
    shown,
)
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

__all__ = ["BindingCommands"]


class BindingCommands:
    """Creates, changes and deletes bindings.

    Args:
        inventory: entities made at runtime, and configured ones.
    """

    def __init__(self, inventory: NodeChanges) -> None:
        self._inventory = inventory
        self._broker = inventory.broker
        self._made = inventory.links

    def create(self, command: ManagementCommand, changes: ChangeBatch) -> CommandResult:
        """Create a binding (G-12)."""
        name = command.name
        if self._binding(name) is not None:
            if command.or_assert:
                return self.assert_as(command)
            raise CommandRefused(
                CONFLICT, f"there is a link {name!r} already{self._inventory.where(name)}"
            )
        if name in self._made:
            raise CommandRefused(
                CONFLICT, f"{name!r} was made before and cannot be at present; delete it"
            )
        options = link_options(command)
        first_ms = options.get("first-message-date")
        if isinstance(first_ms, int):
            options["first-message-date"] = min(first_ms, changes.now_ms)  # L-15
        made = RuntimeNode(options, changes.by, changes.now_ms)
        link = self._bind(name, options)
        self._made[name] = made
        changes.note(LINK, name, made.encode())

        def undo() -> None:
            del self._made[name]
            self._broker.unbind(link)

        changes.did(f"{command}: {link.source} to {link.target}", undo, lambda: self._start(link))
        return CommandResult(CREATED, "created", {"name": name, **options})

    def _bind(self, name: str, options: Mapping[str, Any]) -> BindingDeclaration:
        for end in ("source", "target"):
            node = str(options[end])
            if end == "source" or "@" not in node:
                known = self._broker.resolve(node)
                if known not in self._broker.nodes and known not in self._broker.topics:
                    raise CommandRefused(NOT_FOUND, f"{end}: there is no node {node[:256]!r}")
        link = link_of(name, options)
        try:
            self._broker.bind(link, starts=False)
        except ConfigError:
            raise CommandRefused(CONFLICT, "messages would go in a circle") from None
        except AmqpError as error:
            raise CommandRefused(BAD_REQUEST, error.description) from None
        return link

    def _start(self, link: BindingDeclaration) -> None:
        binding = self._broker.bindings.get(link)
        if binding is not None:
            binding.start()

    def _binding(self, name: str) -> BindingDeclaration | None:
        return next((each for each in self._broker.bindings if each.name == name), None)

    def assert_as(self, command: ManagementCommand) -> CommandResult:
        """Check that a binding has the asserted options (G-14)."""
        link = self._binding(command.name)
        if link is None:
            raise CommandRefused(NOT_FOUND, f"there is no link {command.name[:256]!r}")
        there = shown(link)
        asked = link_options(command, must_have=())
        require_same(command.name, there, asked, asked)
        return CommandResult(OK, "as it should be", there)

    def update(self, command: ManagementCommand, changes: ChangeBatch) -> CommandResult:
        """Change the filter of a binding (G-15)."""
        name = command.name
        old = self._own_link(name)
        made = self._inventory.require_own(name, self._made)
        fixed = FIXED_LINK_KEYS.intersection(command.arguments)
        if fixed:
            raise CommandRefused(
                CONFLICT, f"{min(fixed)} of a link cannot change; only its filter can"
            )
        asked = link_options(command, must_have=())
        merged = {**made.options, **asked}
        options = {key: value for key, value in merged.items() if value is not None}
        was_active = self._broker.unbind(old)
        try:
            link = self._bind(name, options)
        except CommandRefused:
            self._broker.bind(old, was_active)
            raise
        changed = replace(made, options=options)
        self._made[name] = changed
        changes.note(LINK, name, changed.encode())

        def undo() -> None:
            self._made[name] = made
            self._broker.unbind(link)
            self._broker.bind(old, was_active)

        changes.did(str(command), undo, lambda: self._start(link))
        return CommandResult(OK, "changed", {"name": name, **options})

    def rename(self, command: ManagementCommand, changes: ChangeBatch) -> CommandResult:
        """Rename a binding (G-16)."""
        name, new_name = command.name, new_name_of(command)
        old = self._own_link(name)
        self._inventory.require_own(name, self._made)
        if self._binding(new_name) is not None or new_name in self._made:
            raise CommandRefused(CONFLICT, f"there is a link {new_name!r} already")
        check_link_name(new_name)
        self._label(old, new_name)
        changes.note(LINK, name, None)
        changes.note(LINK, new_name, self._made[new_name].encode())
        changes.did(
            f"{command} to {new_name}", lambda: self._label(replace(old, label=new_name), name)
        )
        return CommandResult(OK, "renamed", {"name": new_name})

    def _label(self, link: BindingDeclaration, label: str) -> None:
        binding = self._broker.bindings.pop(link)
        binding.declaration = replace(link, label=label)
        self._broker.bindings[binding.declaration] = binding
        self._made[label] = self._made.pop(link.label)

    def delete(self, command: ManagementCommand, changes: ChangeBatch) -> CommandResult:
        """Delete a binding (G-13)."""
        name = command.name
        link = self._binding(name)
        if link is None and name not in self._made:
            raise CommandRefused(NOT_FOUND, f"there is no link {name[:256]!r}")
        made = self._inventory.require_own(name, self._made)
        was_active = link is not None and self._broker.unbind(link)
        del self._made[name]
        changes.note(LINK, name, None)

        def undo() -> None:
            self._made[name] = made
            if link is not None:
                self._broker.bind(link, was_active)

        changes.did(str(command), undo)
        return CommandResult(GONE, "deleted", {"name": name})

    def _own_link(self, name: str) -> BindingDeclaration:
        link = self._binding(name)
        if link is None:
            raise CommandRefused(NOT_FOUND, f"there is no link {name[:256]!r}")
        return link
