# SPDX-License-Identifier: Apache-2.0
"""Commands on policies for exchanges and queues; see `amqproute.broker.exchanges`.

There are two types, ``policy`` and ``operator-policy``, with the options ``pattern``, ``apply-to``,
``priority`` and ``definition``, which is a JSON object in a text. Policies of the configuration
cannot be changed here; one added to the file later takes precedence over one of the same name made
at runtime, until it is removed again. Changes are in force once they are on disk.

Each virtual host has policies of its own: ``//shop/limits`` is the policy ``limits`` of the virtual
host ``shop``. For a name without slashes, the option ``virtual-host`` does the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

from amqproute.address import (
    host_label,
    in_host,
    local_name,
    placed_in,
    split_host,
)
from amqproute.broker.exchanges.topology_fault import TopologyFault
from amqproute.broker.exchanges.topology_policies import MOST_POLICIES, TopologyPolicy
from amqproute.services.change_batch import (
    OPERATOR_POLICY,
    ChangeBatch,
    CommandResult,
    RuntimeNode,
)
from amqproute.services.command_options import policy_of, require_same, switch
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

__all__ = ["PolicyCommands", "policy_key"]


class PolicyCommands:
    """Makes, changes and deletes policies of one kind, and lists them.

    Args:
        inventory: entities made at runtime, and configured ones.
        kind: `POLICY` or `OPERATOR_POLICY`.
    """

    def __init__(self, inventory: NodeChanges, kind: str) -> None:
        self._inventory = inventory
        self._kind = kind
        self._made = inventory.policies[kind]

    def create(self, command: ManagementCommand, changes: ChangeBatch) -> CommandResult:
        """Make a policy."""
        name = policy_key(command)
        if self._find(name) is not None:
            if command.or_assert:
                return self.assert_as(command)
            raise CommandRefused(
                CONFLICT, f"there is a {self._kind} {name[:256]!r} already{self._where(name)}"
            )
        return self._create(name, command.arguments, changes)

    def _create(
        self, name: str, options: Mapping[str, object], changes: ChangeBatch
    ) -> CommandResult:
        policy = self._policy(name, options)
        if sum(len(each) for each in self._inventory.policies.values()) >= MOST_POLICIES:
            raise CommandRefused(FULL, f"there are {MOST_POLICIES} policies made at runtime")
        made = RuntimeNode(_options(policy), changes.by, changes.now_ms)
        self._put(name, made, changes, "CREATE")
        return CommandResult(CREATED, "created", {"name": name, **made.options})

    def assert_as(self, command: ManagementCommand) -> CommandResult:
        """Compare a policy with options."""
        name = policy_key(command)
        found = self._require(name)
        there = _options(found)
        asked = _options(self._policy(name, {**there, **command.arguments}))
        require_same(name, there, asked, list(command.arguments))
        return CommandResult(OK, "as it should be", {"name": name, **there})

    def update(self, command: ManagementCommand, changes: ChangeBatch) -> CommandResult:
        """Change options of a policy; null restores the default.

        With the option ``or-create`` a missing one is created.
        """
        name = policy_key(command)
        given = dict(command.arguments)
        or_create = switch(command, "or-create")
        given.pop("or-create", None)
        self._require_own(name)
        made = self._made.get(name)
        if made is None and or_create:
            return self._create(name, given, changes)
        if made is None:
            raise self._missing(name)
        merged = {
            key: value for key, value in {**made.options, **given}.items() if value is not None
        }
        policy = self._policy(name, merged)
        changed = replace(made, options=_options(policy))
        self._put(name, changed, changes, "UPDATE")
        return CommandResult(OK, "changed", {"name": name, **changed.options})

    def delete(self, command: ManagementCommand, changes: ChangeBatch) -> CommandResult:
        """Delete a policy that was made at runtime."""
        name = policy_key(command)
        self._require_own(name)
        if name not in self._made:
            raise self._missing(name)
        self._put(name, None, changes, "DELETE")
        return CommandResult(GONE, "deleted", {"name": name})

    def rows(self) -> Iterable[dict[str, object]]:
        """Describe each policy, the one that goes before others first."""
        found: list[tuple[TopologyPolicy, dict[str, object]]] = []
        for each in self._inventory.configured.policies:
            if each.is_operator == (self._kind == OPERATOR_POLICY):
                place = self._place(in_host(each.host, each.name))
                found.append((each, {"origin": "configuration", "declared-at": place}))
        known = {in_host(each.host, each.name) for each, _ in found}
        for name, made in self._made.items():
            if name in known:
                continue
            try:
                policy = policy_of(self._kind, local_name(name), made.options)
            except TopologyFault:
                continue  # the log has the reason since the start
            found.append(
                (policy, {"origin": "runtime", "made-by": made.by, "made-at-ms": made.since_ms})
            )
        for policy, origin in sorted(found, key=lambda row: (-row[0].priority, row[0].name)):
            name = in_host(policy.host, policy.name)
            yield {"name": name, "type": self._kind, **_options(policy), **origin}

    def _put(
        self, name: str, made: RuntimeNode | None, changes: ChangeBatch, operation: str
    ) -> None:
        before = self._made.pop(name, None)
        if made is not None:
            self._made[name] = made
        changes.note(self._kind, name, None if made is None else made.encode())

        def undo() -> None:
            self._made.pop(name, None)
            if before is not None:
                self._made[name] = before

        changes.did(f"{operation} {self._kind} {name}", undo, self._inventory.apply_policies)

    def _policy(self, name: str, options: Mapping[str, object]) -> TopologyPolicy:
        host, local = split_host(name)
        try:
            policy = policy_of(self._kind, local, {**options, "virtual-host": host_label(host)})
        except TopologyFault as fault:
            raise CommandRefused(BAD_REQUEST, fault.text) from None
        if policy.host and policy.host not in self._inventory.broker.hosts:
            raise CommandRefused(
                BAD_REQUEST, f"virtual-host: there is no virtual host {policy.host[:256]!r}"
            )
        return policy

    def _find(self, name: str) -> TopologyPolicy | None:
        is_operator = self._kind == OPERATOR_POLICY
        for each in self._inventory.configured.policies:
            if each.is_operator == is_operator and in_host(each.host, each.name) == name:
                return each
        made = self._made.get(name)
        if made is None:
            return None
        try:
            return policy_of(self._kind, local_name(name), made.options)
        except TopologyFault as fault:
            raise CommandRefused(CONFLICT, fault.text) from None

    def _require(self, name: str) -> TopologyPolicy:
        found = self._find(name)
        if found is None:
            raise self._missing(name)
        return found

    def _missing(self, name: str) -> CommandRefused:
        return CommandRefused(NOT_FOUND, f"there is no {self._kind} {name[:256]!r}")

    def _require_own(self, name: str) -> None:
        """Refuse to change a policy of the configuration, unless one made here lies below it."""
        place = self._place(name)
        if place is not None and name not in self._made:
            raise CommandRefused(
                CONFLICT,
                f"{name[:256]!r} is declared at {place}: change it there and reload the daemon",
                {"declared-at": place},
            )

    def _place(self, name: str) -> str | None:
        return self._inventory.configured.policy_places.get((self._kind, name))

    def _where(self, name: str) -> str:
        place = self._place(name)
        return f", declared at {place}" if place else ""


def policy_key(command: ManagementCommand) -> str:
    """Return the name of a policy within the broker, by its name and the option ``virtual-host``.

    Raises:
        CommandRefused: the two say different virtual hosts.
    """
    given = command.arguments.get("virtual-host")
    if given is None:
        return command.name
    if not isinstance(given, str):
        raise CommandRefused(BAD_REQUEST, "virtual-host: it has to be a text")
    placed = placed_in(given, command.name)
    if placed is None:
        raise CommandRefused(
            BAD_REQUEST,
            f"virtual-host: {command.name[:256]!r} is a policy of another one and stays there",
        )
    return placed


def _options(policy: TopologyPolicy) -> dict[str, object]:
    return {
        "pattern": policy.pattern,
        "apply-to": policy.scope.value,
        "priority": policy.priority,
        "definition": json.dumps(dict(policy.terms.values), ensure_ascii=False),
        "virtual-host": host_label(policy.host),
    }
