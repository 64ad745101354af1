# SPDX-License-Identifier: Apache-2.0
"""Reading and writing definitions in RabbitMQ's format (`rabbitmqctl export_definitions`).

`plan_import` makes a `DefinitionPlan` of an exported document: the entities to create, checked like
a client's declarations, and the definitions without a counterpart. It changes nothing.
`export_document` writes a plan as such a document, and returns the definitions that do not fit into
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Final

from amqproute.address import ROOT_HOST
from amqproute.broker.exchanges.argument_rules import (
    OPERATOR_KEYS,
    QueueDeclaration,
    TermValue,
    exchange_definition,
    policy_terms,
    queue_terms,
)
from amqproute.broker.exchanges.binding_tables import BindingTarget, ExchangeBinding, TargetKind
from amqproute.broker.exchanges.exchange_graph import (
    PREDECLARED,
    ExchangeDefinition,
    ExchangeGraph,
)
from amqproute.broker.exchanges.topology_fault import TopologyFault
from amqproute.broker.exchanges.topology_policies import PolicyScope, topology_policy
from amqproute.errors import AmqprouteError
from amqproute.jsontext import parse_json

APPLY_TO: Final = frozenset(each.value for each in PolicyScope)
"""The scopes of policies."""
OPERATOR_COMPONENT: Final = "operator_policy"
PRIORITIZED: Final = "prioritized"
"""Of a queue: it has priorities without ``x-max-priority``, as one declared by a client of 0-9 has.

Only exports of this broker say it. An argument instead would be one that the queue's clients do not
declare, and RabbitMQ would refuse them for it; it ignores keys that it does not know.
"""
_ABOUT: Final = frozenset(
    (
        "rabbit_version", "rabbitmq_version", "product_name", "product_version", "explanation",
        "original_vhost_name", "metadata", "description", "default_queue_type",
        "rabbitmq_definition_format",
    )
)  # fmt: skip
"""Keys that say something about the document itself."""


class DefinitionsError(AmqprouteError):
    """The document is no export of definitions."""


@dataclass(frozen=True)
class UnmatchedDefinition:
    """A definition that has no counterpart here, or that is wrong.

    Attributes:
        kind: ``queue``, ``exchange``, ``binding``, ``policy``, ``user``, ``permission``,
            ``parameter`` ...
        host: the virtual host, empty without one.
        name: of it.
        reason: one sentence.
    """

    kind: str
    host: str
    name: str
    reason: str


@dataclass(frozen=True)
class PlannedPolicy:
    """A policy over queues or exchanges.

    Attributes:
        name: of it.
        pattern: regular expression for names.
        apply_to: one of `APPLY_TO`.
        priority: among several matching ones the one with the highest applies.
        values: its values, checked.
        is_operator: whether it limits the values of clients and other policies.
    """

    name: str
    pattern: str
    apply_to: str
    priority: int
    values: Mapping[str, TermValue]
    is_operator: bool = False


@dataclass(frozen=True)
class PlannedHost:
    """A virtual host with its contents after an import.

    Attributes:
        name: of it.
        exchanges: without predeclared ones.
        queues: all durable or transient ones of the document.
        bindings: between those; the ones of the default exchange are implied.
        policies: the policies in the order of the document.
    """

    name: str
    exchanges: tuple[ExchangeDefinition, ...] = ()
    queues: tuple[QueueDeclaration, ...] = ()
    bindings: tuple[ExchangeBinding, ...] = ()
    policies: tuple[PlannedPolicy, ...] = ()


@dataclass(frozen=True)
class DefinitionPlan:
    """The plan of an import.

    Attributes:
        hosts: virtual hosts in the order of the document.
        users: names. Their passwords are not imported: another program's hashes are useless here.
        unmatched: definitions that would not be imported, or not as a whole.
    """

    hosts: tuple[PlannedHost, ...] = ()
    users: tuple[str, ...] = ()
    unmatched: tuple[UnmatchedDefinition, ...] = ()


@dataclass
class _HostDraft:
    """A virtual host while its definitions are read."""

    queue_names: dict[str, None] = field(default_factory=dict)
    exchanges: list[ExchangeDefinition] = field(default_factory=list)
    queues: list[QueueDeclaration] = field(default_factory=list)
    policies: list[PlannedPolicy] = field(default_factory=list)
    graph: ExchangeGraph = field(init=False)

    def __post_init__(self) -> None:
        self.graph = ExchangeGraph(self.queue_names)


class _Reading:
    """One document being read."""

    def __init__(self, document: Mapping[str, object]) -> None:
        self._document = document
        self.drafts: dict[str, _HostDraft] = {}
        self.unmatched: list[UnmatchedDefinition] = []
        self.bindings: dict[str, list[ExchangeBinding]] = {}

    def rows(self, key: str) -> Iterable[Mapping[str, object]]:
        """Iterate over the objects of a list of the document.

        Raises:
            DefinitionsError: it is not a list of objects.
        """
        value = self._document.get(key, [])
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise DefinitionsError(f"{key}: not a list of objects")
        yield from value

    def miss(self, kind: str, row: Mapping[str, object], name: str, reason: str) -> None:
        """Note a definition without counterpart."""
        self.unmatched.append(UnmatchedDefinition(kind, _host_of(row), name, reason))

    def draft(self, row: Mapping[str, object]) -> _HostDraft:
        """Return the virtual host of a definition."""
        host = _host_of(row)
        draft = self.drafts.get(host)
        if draft is None:
            draft = self.drafts[host] = _HostDraft()
        return draft

    def read_exchange(self, row: Mapping[str, object]) -> None:
        """Read one entry of ``exchanges``."""
        name = _text(row, "name", "exchanges")
        if name in PREDECLARED:
            return
        flags = {key: _truth(row, key) for key in ("durable", "auto_delete", "internal")}
        draft = self.draft(row)
        try:
            made = exchange_definition(
                name, _text(row, "type", f"exchange {name}"), flags, _arguments(row)
            )
            draft.graph.declare(made)
        except TopologyFault as fault:
            self.miss("exchange", row, name, fault.text)
        else:
            draft.exchanges.append(made)

    def read_queue(self, row: Mapping[str, object]) -> None:
        """Read one entry of ``queues``."""
        name = _text(row, "name", "queues")
        arguments = _arguments(row)
        draft = self.draft(row)
        if name in draft.queue_names:
            raise DefinitionsError(f"queues: '{name}' is listed twice")
        try:
            queue_terms(name, arguments)
        except TopologyFault as fault:
            self.miss("queue", row, name, fault.text)
            return
        draft.queue_names[name] = None
        draft.queues.append(
            QueueDeclaration(
                name,
                _truth(row, "durable"),
                False,
                _truth(row, "auto_delete"),
                arguments,
                _truth(row, PRIORITIZED),
            )
        )

    def read_binding(self, row: Mapping[str, object]) -> None:
        """Read one entry of ``bindings``."""
        source = _text(row, "source", "bindings")
        destination = _text(row, "destination", "bindings")
        if not source:
            return  # The default exchange finds every queue by its name.
        key = _text(row, "routing_key", "bindings")
        words = f"{source} to {destination} by '{key}'"
        try:
            kind = TargetKind(_text(row, "destination_type", "bindings"))
        except ValueError:
            self.miss("binding", row, words, "it leads to neither a queue nor an exchange")
            return
        binding = ExchangeBinding(source, BindingTarget(kind, destination), key, _arguments(row))
        try:
            self.draft(row).graph.bind(binding)
        except TopologyFault as fault:
            self.miss("binding", row, words, fault.text)
        else:
            self.bindings.setdefault(_host_of(row), []).append(binding)

    def read_policy(self, row: Mapping[str, object], is_operator: bool) -> None:
        """Read one entry of ``policies``, or an operator policy among the parameters."""
        name = _text(row, "name", "policies")
        said = row.get("value") if is_operator else row
        if not isinstance(said, Mapping):
            raise DefinitionsError(f"policy {name}: its value is no object")
        kind = "operator policy" if is_operator else "policy"
        apply_to = said.get("apply-to", "all")
        priority = said.get("priority", 0)
        definition = said.get("definition", {})
        if not isinstance(definition, Mapping) or not isinstance(priority, int):
            raise DefinitionsError(f"policy {name}: a wrong definition or priority")
        if not isinstance(apply_to, str) or apply_to not in APPLY_TO:
            self.miss(kind, row, name, f"it applies to {apply_to!r:.40}, which is not offered")
            return
        pattern = _text(said, "pattern", f"policy {name}")
        scope = PolicyScope(apply_to)
        keys = scope.keys & OPERATOR_KEYS if is_operator else scope.keys
        try:
            terms, unknown = policy_terms(name, definition, keys)
            if unknown:
                self.miss(kind, row, name, f"without counterpart: {', '.join(unknown)}")
            if terms.values:
                topology_policy(name, pattern, terms.values, scope, priority, is_operator)
                self.draft(row).policies.append(
                    PlannedPolicy(name, pattern, apply_to, priority, terms.values, is_operator)
                )
        except TopologyFault as fault:
            self.miss(kind, row, name, fault.text)


def plan_import(text: str | bytes) -> DefinitionPlan:
    """Return the plan for importing an exported document.

    Args:
        text: the document, JSON.

    Raises:
        DefinitionsError: it is not such a document, or a part of it is malformed.
    """
    try:
        document: object = parse_json(text)
    except ValueError as error:
        raise DefinitionsError(f"no JSON: {error}") from None
    if not isinstance(document, dict):
        raise DefinitionsError("no JSON object")
    reading = _Reading(document)
    for row in reading.rows("vhosts"):
        reading.draft({"vhost": _text(row, "name", "vhosts")})
    # Queues and exchanges first: bindings need both.
    for row in reading.rows("exchanges"):
        reading.read_exchange(row)
    for row in reading.rows("queues"):
        reading.read_queue(row)
    for row in reading.rows("bindings"):
        reading.read_binding(row)
    for row in reading.rows("policies"):
        reading.read_policy(row, is_operator=False)
    for row in reading.rows("parameters"):
        component = row.get("component")
        if component == OPERATOR_COMPONENT:
            reading.read_policy(row, is_operator=True)
        else:
            name = _text(row, "name", "parameters")
            reading.miss(
                "parameter", row, name, f"parameters of {component!r:.60} have no use here"
            )
    users = [_text(row, "name", "users") for row in reading.rows("users")]
    for kind in ("permissions", "topic_permissions"):
        for row in reading.rows(kind):
            reason = "rights are rules of the access policy: write one that grants the same"
            reading.miss(kind[:-1].replace("_", " "), row, _text(row, "user", kind), reason)
    for row in reading.rows("global_parameters"):
        reading.unmatched.append(
            UnmatchedDefinition(
                "global parameter",
                "",
                _text(row, "name", "global_parameters"),
                "it has no use here",
            )
        )
    known = {"vhosts", "exchanges", "queues", "bindings", "policies", "parameters", "users",
             "permissions", "topic_permissions", "global_parameters"}  # fmt: skip
    for key in document.keys() - known - _ABOUT:
        reading.unmatched.append(UnmatchedDefinition("section", "", key, "it is not known"))
    hosts = tuple(
        PlannedHost(
            name,
            tuple(draft.exchanges),
            tuple(draft.queues),
            tuple(reading.bindings.get(name, ())),
            tuple(draft.policies),
        )
        for name, draft in reading.drafts.items()
    )
    return DefinitionPlan(hosts, tuple(users), tuple(reading.unmatched))


def export_document(
    plan: DefinitionPlan,
) -> tuple[dict[str, object], tuple[UnmatchedDefinition, ...]]:
    """Return definitions in RabbitMQ's format, and those that do not fit into it.

    Users are written without a password hash: they cannot log in until they get one.
    """
    unmatched: list[UnmatchedDefinition] = []
    exchanges: list[object] = []
    queues: list[object] = []
    bindings: list[object] = []
    policies: list[object] = []
    parameters: list[object] = []
    for host in plan.hosts:

        def plain(
            kind: str, name: str, arguments: Mapping[str, object], at: str = host.name
        ) -> dict[str, object]:
            found = {}
            for argument, value in arguments.items():
                try:
                    found[argument] = json_value(value)
                except TypeError as error:
                    words = f"the argument '{argument:.60}' is left out: {error}"
                    unmatched.append(UnmatchedDefinition(kind, at, name, words))
            return found

        for exchange in host.exchanges:
            exchanges.append(
                {
                    "name": exchange.name,
                    "vhost": host.name,
                    "type": exchange.type.value,
                    "durable": exchange.durable,
                    "auto_delete": exchange.auto_delete,
                    "internal": exchange.internal,
                    "arguments": plain("exchange", exchange.name, exchange.arguments),
                }
            )
        for queue in host.queues:
            if queue.exclusive:
                continue  # It belongs to a connection.
            facts: dict[str, object] = {
                "name": queue.name,
                "vhost": host.name,
                "durable": queue.durable,
                "auto_delete": queue.auto_delete,
                "arguments": plain("queue", queue.name, queue.arguments),
            }
            if queue.has_priorities:
                facts[PRIORITIZED] = True
            queues.append(facts)
        exclusive = {queue.name for queue in host.queues if queue.exclusive}
        for binding in host.bindings:
            if binding.target.kind is TargetKind.QUEUE and binding.target.name in exclusive:
                continue
            bindings.append(
                {
                    "source": binding.source,
                    "vhost": host.name,
                    "destination": binding.target.name,
                    "destination_type": binding.target.kind.value,
                    "routing_key": binding.key,
                    "arguments": plain("binding", binding.source, binding.arguments),
                }
            )
        for policy in host.policies:
            said: dict[str, object] = {
                "pattern": policy.pattern,
                "apply-to": policy.apply_to,
                "definition": dict(policy.values),
                "priority": policy.priority,
            }
            place: dict[str, object] = {"vhost": host.name, "name": policy.name}
            if policy.is_operator:
                parameters.append({**place, "component": OPERATOR_COMPONENT, "value": said})
            else:
                policies.append({**place, **said})
    document: dict[str, object] = {
        "vhosts": [{"name": host.name} for host in plan.hosts],
        "users": [{"name": name, "password_hash": "", "tags": []} for name in plan.users],
        "exchanges": exchanges,
        "queues": queues,
        "bindings": bindings,
        "policies": policies,
        "parameters": parameters,
    }
    return document, tuple(unmatched)


def json_value(value: object) -> object:
    """Return the value of an argument for JSON.

    Raises:
        TypeError: JSON has no such value.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if isfinite(value):
            return float(value)
        raise TypeError("JSON has no such number")
    if isinstance(value, Mapping):
        return {str(name): json_value(each) for name, each in value.items()}
    if type(value) in (tuple, list) and isinstance(value, Sequence):
        return [json_value(each) for each in value]
    raise TypeError(f"JSON has no value for a {type(value).__name__}")


def _host_of(row: Mapping[str, object]) -> str:
    """Return the virtual host of a definition; an export of one host alone does not say it."""
    host = row.get("vhost", ROOT_HOST)
    if not isinstance(host, str):
        raise DefinitionsError("a vhost that is no text")
    return host


def _text(row: Mapping[str, object], key: str, where: str) -> str:
    value = row.get(key)
    if not isinstance(value, str):
        raise DefinitionsError(f"{where}: '{key}' is missing or no text")
    return value


def _truth(row: Mapping[str, object], key: str) -> bool:
    value = row.get(key, False)
    if not isinstance(value, bool):
        raise DefinitionsError(f"'{key}' of {row.get('name')!r:.60} is neither true nor false")
    return value


def _arguments(row: Mapping[str, object]) -> Mapping[str, object]:
    value = row.get("arguments", {})
    if value == []:
        return {}  # Some versions write an empty table so.
    if not isinstance(value, dict):
        raise DefinitionsError(f"the arguments of {row.get('name')!r:.60} are no object")
    return value


__all__ = [
    "APPLY_TO",
    "DefinitionPlan",
    "DefinitionsError",
    "PlannedHost",
    "PlannedPolicy",
    "UnmatchedDefinition",
    "export_document",
    "json_value",
    "plan_import",
]
