# SPDX-License-Identifier: Apache-2.0
"""Conversion of definitions to commands for the daemon, and of the daemon's rows to definitions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from amqproute.address import ROOT_HOST, host_named, in_host, local_name
from amqproute.broker.exchanges.argument_rules import QueueDeclaration, exchange_definition
from amqproute.broker.exchanges.binding_tables import BindingTarget, ExchangeBinding, TargetKind
from amqproute.broker.exchanges.exchange_graph import ExchangeDefinition
from amqproute.broker.exchanges.topology_fault import TopologyFault
from amqproute.broker.exchanges.topology_names import check_exchange_name, check_queue_name
from amqproute.services.broker_definitions import (
    PlannedHost,
    PlannedPolicy,
    UnmatchedDefinition,
    json_value,
)

__all__ = ["definition_commands", "hosts_of_rows"]

Rows = Iterable[Mapping[str, object]]
_POLICY_KINDS: Final = ("policy", "operator-policy")


def definition_commands(
    host: PlannedHost, unmatched: list[UnmatchedDefinition], into: str = ROOT_HOST
) -> Iterator[str]:
    """Return the commands that make a virtual host's contents, exchanges and queues first.

    Args:
        host: the contents to import.
        unmatched: definitions without a counterpart; more are added.
        into: the virtual host here.
    """
    left_out: set[BindingTarget] = set()
    here = host_named(into)

    def leave_out(kind: TargetKind, name: str, reason: str) -> None:
        left_out.add(BindingTarget(kind, name))
        unmatched.append(UnmatchedDefinition(kind.value, host.name, name, reason))

    for exchange in host.exchanges:
        try:
            check_exchange_name(exchange.name)
        except TopologyFault as fault:
            leave_out(TargetKind.EXCHANGE, exchange.name, fault.text)
            continue
        yield _line(
            "exchange",
            in_host(here, exchange.name),
            {
                "type": exchange.type.value,
                "durable": exchange.durable,
                "auto-delete": exchange.auto_delete,
                "internal": exchange.internal,
                "arguments": _json(exchange.arguments),
            },
        )
    for queue in host.queues:
        if not queue.durable:
            leave_out(TargetKind.QUEUE, queue.name, "transient queues are made by their clients")
            continue
        try:
            check_queue_name(queue.name, is_new=True)
        except TopologyFault as fault:
            leave_out(TargetKind.QUEUE, queue.name, fault.text)
            continue
        options: dict[str, object] = {
            "arguments": _json(queue.arguments),
            "auto-delete": queue.auto_delete,
        }
        if queue.has_priorities:
            options["prioritized"] = True
        yield _line("queue", in_host(here, queue.name), options)
    for binding in host.bindings:
        kind, target = binding.target
        if left_out & {binding.target, BindingTarget(TargetKind.EXCHANGE, binding.source)}:
            continue  # the reason is listed with its end
        yield _line(
            "exchange-binding",
            in_host(here, binding.source),
            {
                "target": in_host(here, target),
                "target-type": kind.value,
                "key": binding.key,
                "arguments": _json(binding.arguments),
            },
        )
    for policy in host.policies:
        yield _policy_line(policy, here)


def _policy_line(policy: PlannedPolicy, here: str) -> str:
    options = {
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "priority": policy.priority,
        "definition": _json(policy.values),
        "or-create": True,
    }
    kind = _POLICY_KINDS[policy.is_operator]
    return _line(kind, in_host(here, policy.name), options, "update")


def _line(
    kind: str, name: str, options: Mapping[str, object], operation: str = "create or assert"
) -> str:
    given = ", ".join(
        f"{key}={_quoted(value) if isinstance(value, str) else str(value).lower()}"
        for key, value in options.items()
    )
    return f"{operation} {kind} {_quoted(name)} with {given}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _json(arguments: Mapping[str, object]) -> str:
    return json.dumps({name: json_value(value) for name, value in arguments.items()})


def hosts_of_rows(
    exchanges: Rows, queues: Rows, bindings: Rows, policies: Rows = ()
) -> tuple[PlannedHost, ...]:
    """Return the durable definitions in rows of ``$management``, by virtual host.

    Args:
        exchanges: rows of the type ``exchange``.
        queues: the queues of ``queue``.
        bindings: the bindings of ``exchange-binding``.
        policies: the policies of ``policy`` and ``operator-policy``.
    """
    kept = [row for row in queues if row["kind"] == "node"]
    names = {row["name"] for row in kept}
    found: dict[str, _HostRows] = {}

    def place(row: Mapping[str, object]) -> _HostRows:
        return found.setdefault(str(row["virtual-host"]), _HostRows())

    for row in exchanges:
        host = place(row)
        if row["durable"] and not row["predeclared"]:
            host.exchanges.append(_exchange(row))
    for row in kept:
        auto_delete, prioritized = (row.get(key) is True for key in ("auto-delete", "prioritized"))
        place(row).queues.append(
            QueueDeclaration(
                _local(row, "name"), True, False, auto_delete, _arguments(row), prioritized
            )
        )
    for row in bindings:
        if row["durable"] and (row["target-type"] == "exchange" or row["target"] in names):
            place(row).bindings.append(_binding(row))
    for row in policies:
        place(row).policies.append(_policy(row))
    return tuple(
        PlannedHost(
            name,
            tuple(host.exchanges),
            tuple(host.queues),
            tuple(host.bindings),
            tuple(host.policies),
        )
        for name, host in sorted(found.items())
    )


@dataclass
class _HostRows:
    """The rows of one virtual host."""

    exchanges: list[ExchangeDefinition] = field(default_factory=list)
    queues: list[QueueDeclaration] = field(default_factory=list)
    bindings: list[ExchangeBinding] = field(default_factory=list)
    policies: list[PlannedPolicy] = field(default_factory=list)


def _local(row: Mapping[str, object], key: str) -> str:
    """Return a name as clients of its virtual host write it."""
    return local_name(str(row[key]))


def _policy(row: Mapping[str, object]) -> PlannedPolicy:
    priority, definition = row["priority"], json.loads(str(row["definition"]))
    assert isinstance(priority, int)
    return PlannedPolicy(
        _local(row, "name"),
        str(row["pattern"]),
        str(row["apply-to"]),
        priority,
        definition,
        row["type"] == _POLICY_KINDS[True],
    )


def _exchange(row: Mapping[str, object]) -> ExchangeDefinition:
    flags = {
        key: bool(row[key.replace("_", "-")]) for key in ("durable", "auto_delete", "internal")
    }
    kind = str(row["exchange-type"])
    return exchange_definition(_local(row, "name"), kind, flags, _arguments(row))


def _binding(row: Mapping[str, object]) -> ExchangeBinding:
    target = BindingTarget(TargetKind(row["target-type"]), _local(row, "target"))
    return ExchangeBinding(_local(row, "source"), target, str(row["key"]), _arguments(row))


def _arguments(row: Mapping[str, object]) -> dict[str, object]:
    found: object = json.loads(str(row.get("arguments") or "{}"))
    return found if isinstance(found, dict) else {}
