# SPDX-License-Identifier: Apache-2.0
"""Commands on exchanges and their bindings, while the daemon runs.

An ``exchange`` is known by its name, an ``exchange-binding`` by the exchange that messages come
from, with ``target``, ``target-type``, ``key`` and ``arguments``. Arguments are a JSON object, as a
text: so they fit into a line of a batch as into a map.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from amqproute.broker.exchanges.argument_rules import (
    EffectiveTerm,
    TermSource,
    exchange_definition,
)
from amqproute.broker.exchanges.binding_tables import BindingTarget, ExchangeBinding, TargetKind
from amqproute.broker.exchanges.exchange_graph import (
    ALTERNATE_ARGUMENT,
    DEFAULT_EXCHANGE,
    PREDECLARED,
    ExchangeDefinition,
    check_redeclared,
)
from amqproute.broker.exchanges.queue_settings import DeclaredTerms
from amqproute.broker.exchanges.topology import Topology
from amqproute.broker.exchanges.topology_fault import TopologyFault, TopologyFaultKind
from amqproute.broker.exchanges.topology_names import check_exchange_name
from amqproute.jsontext import parse_json
from amqproute.services.broker_definitions import json_value
from amqproute.services.change_batch import ChangeBatch, CommandResult
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

__all__ = [
    "TERM_KEYS",
    "ExchangeCommands",
    "argument_text",
    "policy_names",
    "read_arguments",
    "read_terms",
    "term_facts",
]

FLAGS: Final = {"durable": True, "auto-delete": False, "internal": False}
TERM_KEYS: Final = ("arguments", "auto-delete")
"""Options of a queue as a client of 0-9-1 declares it."""
EXCHANGE_KEYS: Final = frozenset(("type", "arguments", ALTERNATE_ARGUMENT, *FLAGS))
BINDING_KEYS: Final = frozenset(("source", "target", "target-type", "key", "arguments"))
_STATUS: Final = {
    TopologyFaultKind.NO_EXCHANGE: NOT_FOUND,
    TopologyFaultKind.NO_QUEUE: NOT_FOUND,
    TopologyFaultKind.NO_BINDING: NOT_FOUND,
    TopologyFaultKind.LIMIT: FULL,
    TopologyFaultKind.OTHER_TYPE: CONFLICT,
    TopologyFaultKind.OTHER_EXCHANGE: CONFLICT,
    TopologyFaultKind.IN_USE: CONFLICT,
}

Row = Mapping[str, object]


class ExchangeCommands:
    """Makes and deletes exchanges and bindings, and shows them.

    Args:
        topology: the exchanges of the broker.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology

    # -- exchanges -----------------------------------------------------------------------------

    def create(self, command: ManagementCommand, changes: ChangeBatch) -> CommandResult:
        """Make an exchange."""
        definition = self._definition(command)
        if definition.name in self._topology.graph:
            if command.or_assert:
                return self.assert_as(command)
            raise CommandRefused(CONFLICT, f"there is an exchange {command.name!r} already")
        with _refused():
            check_exchange_name(command.name)
            step = self._topology.declare_step(definition, changes.by)
        self._take(command, changes, step.notes, step.undo)
        return CommandResult(CREATED, "created", self._row(definition))

    def assert_as(self, command: ManagementCommand) -> CommandResult:
        """Compare an exchange with options."""
        with _refused():
            there = self._topology.graph.exchange(command.name)
            given = {"type": there.type.value, **command.arguments}
            asked = ManagementCommand("CREATE", command.kind, command.name, given)
            check_redeclared(there, self._definition(asked))
        return CommandResult(OK, "as it should be", self._row(there))

    def delete(self, command: ManagementCommand, changes: ChangeBatch) -> CommandResult:
        """Delete an exchange with its bindings."""
        if_unused = command.arguments.get("if-unused", False)
        if not isinstance(if_unused, bool):
            raise CommandRefused(BAD_REQUEST, "if-unused is true or false")
        with _refused():
            step = self._topology.delete_step(command.name, if_unused)
        self._take(command, changes, step.notes, step.undo)
        gone = [name for name in step.result.exchanges if name != command.name]
        facts = {"name": command.name, "bindings": len(step.result.bindings), "exchanges": gone}
        return CommandResult(GONE, "deleted", facts)

    def rows(self) -> Iterable[Row]:
        """All exchanges but the default one, which has no name."""
        names = sorted(each.name for each in self._topology.graph.exchanges())
        for name in names:
            if name != DEFAULT_EXCHANGE and name in self._topology.graph:
                yield self._row(self._topology.graph.exchange(name))

    def _row(self, definition: ExchangeDefinition) -> dict[str, object]:
        graph = self._topology.graph
        name = definition.name
        alternate = self._topology.alternate_of(name)
        return {
            "name": name,
            "type": "exchange",
            "exchange-type": definition.type.value,
            "durable": definition.durable,
            "auto-delete": definition.auto_delete,
            "internal": definition.internal,
            ALTERNATE_ARGUMENT: definition.alternate,
            "arguments": argument_text(definition.arguments),
            "bindings": len(graph.bindings_from(name)),
            "predeclared": name in PREDECLARED,
            "made-by": self._topology.owner_of(name),
            **({} if alternate is None else _alternate_facts(alternate)),
        }

    def _definition(self, command: ManagementCommand) -> ExchangeDefinition:
        given = command.arguments
        _check_keys(given, EXCHANGE_KEYS)
        arguments = read_arguments(given)
        alternate = given.get(ALTERNATE_ARGUMENT)
        if alternate is not None:
            arguments[ALTERNATE_ARGUMENT] = alternate
        flags = {}
        for key, usual in FLAGS.items():
            value = given.get(key, usual)
            if not isinstance(value, bool):
                raise CommandRefused(BAD_REQUEST, f"{key} is true or false")
            flags[key.replace("-", "_")] = value
        kind = given.get("type")
        if not isinstance(kind, str):
            raise CommandRefused(
                BAD_REQUEST, "an exchange needs a `type`: direct, fanout, topic or headers"
            )
        with _refused():
            return exchange_definition(command.name, kind, flags, arguments)

    # -- bindings ------------------------------------------------------------------------------

    def bind(self, command: ManagementCommand, changes: ChangeBatch) -> CommandResult:
        """Make a binding."""
        binding = self._binding(command)
        with _refused():
            step = self._topology.bind_step(binding, changes.by)
        if not step.result:
            if command.or_assert:
                return CommandResult(OK, "as it should be", self._binding_row(binding))
            raise CommandRefused(CONFLICT, f"there is such a binding of {command.name!r} already")
        self._take(command, changes, step.notes, step.undo)
        return CommandResult(CREATED, "created", self._binding_row(binding))

    def assert_bound(self, command: ManagementCommand) -> CommandResult:
        """Look whether there is a binding."""
        binding = self._binding(command)
        with _refused():
            if binding not in self._topology.graph.bindings_from(binding.source):
                raise CommandRefused(NOT_FOUND, f"there is no such binding of {command.name!r}")
        return CommandResult(OK, "as it should be", self._binding_row(binding))

    def unbind(self, command: ManagementCommand, changes: ChangeBatch) -> CommandResult:
        """Remove a binding."""
        with _refused():
            step = self._topology.unbind_step(self._binding(command))
        self._take(command, changes, step.notes, step.undo)
        facts = {"name": command.name, "exchanges": list(step.result.exchanges)}
        return CommandResult(GONE, "deleted", facts)

    def binding_rows(self) -> Iterable[Row]:
        """All bindings, by their exchanges."""
        names = sorted(each.name for each in self._topology.graph.exchanges())
        for name in names:
            if name not in self._topology.graph:
                continue
            for binding in self._topology.graph.bindings_from(name):
                yield self._binding_row(binding)

    def _binding_row(self, binding: ExchangeBinding) -> dict[str, object]:
        kind, target = binding.target
        try:
            durable = self._topology.is_durable(binding)
        except TopologyFault:
            durable = False  # its exchange went between two turns of an answer
        return {
            "name": f"{binding.source} to {kind.value} {target} by {binding.key!r}",
            "type": "exchange-binding",
            "source": binding.source,
            "target": target,
            "target-type": kind.value,
            "key": binding.key,
            "arguments": argument_text(binding.arguments),
            "durable": durable,
        }

    def _binding(self, command: ManagementCommand) -> ExchangeBinding:
        given = command.arguments
        _check_keys(given, BINDING_KEYS)
        target, key = given.get("target"), given.get("key", "")
        kind = given.get("target-type", TargetKind.QUEUE.value)
        if not isinstance(target, str) or not target:
            raise CommandRefused(BAD_REQUEST, "a binding needs a `target`, a queue or an exchange")
        if kind not in (TargetKind.QUEUE.value, TargetKind.EXCHANGE.value):
            raise CommandRefused(BAD_REQUEST, "target-type is queue or exchange")
        text = str(key) if isinstance(key, str | int) and not isinstance(key, bool) else None
        if text is None:
            raise CommandRefused(BAD_REQUEST, "key is a text")
        place = BindingTarget(TargetKind(str(kind)), target)
        return ExchangeBinding(command.name, place, text, read_arguments(given))

    @staticmethod
    def _take(
        command: ManagementCommand,
        changes: ChangeBatch,
        notes: Iterable[tuple[str, str, bytes | None]],
        undo: Callable[[], None],
    ) -> None:
        for note in notes:
            changes.note_topology(*note)
        changes.did(str(command), undo)


def read_arguments(options: Mapping[str, object]) -> dict[str, object]:
    """Read the option ``arguments``: a JSON object, as a text.

    Raises:
        CommandRefused: it is something else.
    """
    text = options.get("arguments")
    if text is None:
        return {}
    wrong = 'arguments is a JSON object in a text, as in {"x-match": "all"}'
    if not isinstance(text, str):
        raise CommandRefused(BAD_REQUEST, wrong)
    try:
        arguments: object = parse_json(text)
    except ValueError as error:
        raise CommandRefused(BAD_REQUEST, f"{wrong}: {error}") from None
    if not isinstance(arguments, dict):
        raise CommandRefused(BAD_REQUEST, wrong)
    return arguments


def read_terms(options: Mapping[str, object]) -> DeclaredTerms | None:
    """Read what a queue shall be as a client of 0-9-1 would declare it; None without such options.

    Raises:
        CommandRefused: they are wrong.
    """
    if not any(key in options for key in TERM_KEYS):
        return None
    auto_delete = options.get("auto-delete", False)
    if not isinstance(auto_delete, bool):
        raise CommandRefused(BAD_REQUEST, "auto-delete is true or false")
    return DeclaredTerms(auto_delete, read_arguments(options))


def _alternate_facts(alternate: EffectiveTerm) -> dict[str, object]:
    return {**policy_names([alternate]), "terms": {ALTERNATE_ARGUMENT: term_facts(alternate)}}


def policy_names(terms: Iterable[EffectiveTerm]) -> dict[str, object]:
    """Return which policies have a say in what is in force, as attributes of a row."""
    kinds = {TermSource.POLICY: "policy", TermSource.OPERATOR_POLICY: "operator-policy"}
    return {kinds[term.source]: term.policy for term in terms if term.source in kinds}


def term_facts(term: EffectiveTerm) -> dict[str, object]:
    """Return a value in force and where it is written, as attributes."""
    facts: dict[str, object] = {"value": term.value, "source": term.source.value}
    return {**facts, "policy": term.policy} if term.policy else facts


def argument_text(arguments: Mapping[str, object]) -> str:
    """Return arguments as a JSON object; what JSON has no value for stands there in words."""
    found = {}
    for name, value in arguments.items():
        try:
            found[name] = json_value(value)
        except TypeError:
            found[name] = f"({type(value).__name__}) {value!r:.200}"
    return json.dumps(found, ensure_ascii=False)


def _check_keys(given: Mapping[str, object], known: frozenset[str]) -> None:
    unknown = sorted(set(given) - known - {"if-unused"})
    if unknown:
        raise CommandRefused(
            BAD_REQUEST, f"unknown option {unknown[0]!r}; there are {', '.join(sorted(known))}"
        )


@contextmanager
def _refused() -> Iterator[None]:
    """Turn what is wrong with a change of exchanges into the refusal of a command."""
    try:
        yield
    except TopologyFault as fault:
        raise CommandRefused(_STATUS.get(fault.kind, BAD_REQUEST), fault.text) from None
