# SPDX-License-Identifier: Apache-2.0
"""Commands on exchanges and their bindings, while the daemon runs.

An ``exchange`` is identified by its name, an ``exchange-binding`` by its source exchange, with
``target``, ``target-type``, ``key`` and ``arguments``. Arguments are a JSON object, as a text: so
they fit into a line of a batch as well as into a map.

Names are those within the broker: ``//shop/sales`` is the exchange ``sales`` of the virtual host
``shop``. A binding has both ends in one virtual host. An alternate exchange has its name for
clients of the virtual host, like all names within a definition.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from heapq import merge
from itertools import chain
from typing import Final

from amqproute.address import host_label, host_of, in_host, split_host
from amqproute.broker.broker import Broker
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
    ExchangeGraph,
    GraphChange,
    check_redeclared,
)
from amqproute.broker.exchanges.queue_settings import DeclaredTerms
from amqproute.broker.exchanges.topology import Topology, TopologyStep
from amqproute.broker.exchanges.topology_fault import TopologyFault, TopologyFaultKind
from amqproute.broker.exchanges.topology_names import check_exchange_name
from amqproute.broker.name_table import NameTable, names_behind
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
from amqproute.services.entity_names import EntityOrder, HostedNames, hosts_of, names_in_host

__all__ = [
    "TERM_KEYS",
    "TEXTS_IN_TURN",
    "BindingOrder",
    "BindingsTo",
    "ExchangeCommands",
    "argument_text",
    "policy_names",
    "read_arguments",
    "read_terms",
    "term_facts",
]

FLAGS: Final = {"durable": True, "auto-delete": False, "internal": False}
TERM_KEYS: Final = ("arguments", "auto-delete", "prioritized")
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

TEXTS_IN_TURN: Final = 100
"""Texts of bindings made for their order in one turn of the reactor: about a millisecond."""

Row = Mapping[str, object]


class ExchangeCommands:
    """Makes and deletes exchanges and bindings, and shows them.

    Args:
        broker: whose exchanges, of all virtual hosts.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def _at(self, name: str) -> tuple[Topology, str]:
        """Return the virtual host of an exchange, and the name of the exchange there.

        Raises:
            CommandRefused: there is no such virtual host.
        """
        host, local = split_host(name)
        if host and not self._broker.has_host(host):
            raise CommandRefused(NOT_FOUND, f"there is no virtual host {host[:256]!r}")
        return self._broker.topology_of(host), local

    def _topologies(self) -> list[Topology]:
        """Return those of all virtual hosts, that of ``/`` first."""
        return [self._broker.topology_of(host) for host in self._broker.host_names()]

    # -- exchanges -----------------------------------------------------------------------------

    def create(self, command: ManagementCommand, changes: ChangeBatch) -> CommandResult:
        """Make an exchange."""
        topology, name = self._at(command.name)
        definition = self._definition(command, name)
        if name in topology.graph:
            if command.or_assert:
                return self.assert_as(command)
            raise CommandRefused(CONFLICT, f"there is an exchange {command.name!r} already")
        with _refused():
            if topology.host and topology.host not in self._broker.hosts:
                raise CommandRefused(
                    NOT_FOUND, f"the virtual host {topology.host!r} is not configured any more"
                )
            check_exchange_name(name)
            step = topology.declare_step(definition, changes.by)
        self._take(command, changes, step)
        return CommandResult(CREATED, "created", self._row(topology, definition))

    def assert_as(self, command: ManagementCommand) -> CommandResult:
        """Compare an exchange with options."""
        topology, name = self._at(command.name)
        with _refused():
            there = topology.graph.exchange(name)
            given = {"type": there.type.value, **command.arguments}
            asked = ManagementCommand("CREATE", command.kind, command.name, given)
            check_redeclared(there, self._definition(asked, name))
        return CommandResult(OK, "as it should be", self._row(topology, there))

    def delete(self, command: ManagementCommand, changes: ChangeBatch) -> CommandResult:
        """Delete an exchange with its bindings."""
        if_unused = command.arguments.get("if-unused", False)
        if not isinstance(if_unused, bool):
            raise CommandRefused(BAD_REQUEST, "if-unused is true or false")
        topology, name = self._at(command.name)
        with _refused():
            step = topology.delete_step(name, if_unused)
        self._take(command, changes, step)
        gone = [in_host(topology.host, each) for each in step.result.exchanges if each != name]
        facts = {"name": command.name, "bindings": len(step.result.bindings), "exchanges": gone}
        return CommandResult(GONE, "deleted", facts)

    def rows(self) -> Iterable[Row]:
        """All exchanges but the default one, which has no name."""
        for topology in self._topologies():
            graph = topology.graph
            for name in sorted(each.name for each in graph.exchanges()):
                if name != DEFAULT_EXCHANGE and name in graph:
                    yield self._row(topology, graph.exchange(name))

    def names(self) -> HostedNames:
        """Return the names of `rows`."""
        broker = self._broker
        return HostedNames(
            broker.host_names,
            lambda host: broker.topology_of(host).graph.exchange_names,
            self._row_named,
        )

    def _row_named(self, name: str) -> Row:
        host, local = split_host(name)
        topology = self._broker.topologies.get(host)
        if topology is None or local == DEFAULT_EXCHANGE or local not in topology.graph:
            raise KeyError(name)
        return self._row(topology, topology.graph.exchange(local))

    @staticmethod
    def _row(topology: Topology, definition: ExchangeDefinition) -> dict[str, object]:
        name = definition.name
        alternate = topology.alternate_of(name)
        return {
            "name": in_host(topology.host, name),
            "type": "exchange",
            "virtual-host": host_label(topology.host),
            "exchange-type": definition.type.value,
            "durable": definition.durable,
            "auto-delete": definition.auto_delete,
            "internal": definition.internal,
            ALTERNATE_ARGUMENT: definition.alternate,
            "arguments": argument_text(definition.arguments),
            "bindings": topology.graph.binding_count_of(name),
            "predeclared": name in PREDECLARED,
            "made-by": topology.owner_of(name),
            **({} if alternate is None else _alternate_facts(alternate)),
        }

    @staticmethod
    def _definition(command: ManagementCommand, name: str) -> ExchangeDefinition:
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
            return exchange_definition(name, kind, flags, arguments)

    # -- bindings ------------------------------------------------------------------------------

    def bind(self, command: ManagementCommand, changes: ChangeBatch) -> CommandResult:
        """Make a binding."""
        topology, binding = self._binding(command)
        with _refused():
            step = topology.bind_step(binding, changes.by)
        row = self._binding_row(topology, binding)
        if not step.result:
            if command.or_assert:
                return CommandResult(OK, "as it should be", row)
            raise CommandRefused(CONFLICT, f"there is such a binding of {command.name!r} already")
        self._take(command, changes, step)
        return CommandResult(CREATED, "created", row)

    def assert_bound(self, command: ManagementCommand) -> CommandResult:
        """Check whether there is a binding."""
        topology, binding = self._binding(command)
        with _refused():
            if not topology.graph.has_binding(binding):
                raise CommandRefused(NOT_FOUND, f"there is no such binding of {command.name!r}")
        return CommandResult(OK, "as it should be", self._binding_row(topology, binding))

    def unbind(self, command: ManagementCommand, changes: ChangeBatch) -> CommandResult:
        """Remove a binding."""
        topology, binding = self._binding(command)
        with _refused():
            step = topology.unbind_step(binding)
        self._take(command, changes, step)
        gone = [in_host(topology.host, each) for each in step.result.exchanges]
        facts = {"name": command.name, "exchanges": gone}
        return CommandResult(GONE, "deleted", facts)

    def bindings_with(self, wanted: Mapping[str, str]) -> EntityOrder | None:
        """See `management_node.Narrow`: the bindings of one source, or to one target."""
        source, target = wanted.get("source"), wanted.get("target")
        if target is not None:
            return BindingsTo(self._broker, self._binding_row, target, source)
        return None if source is None else self.binding_order(source)

    def binding_rows(self) -> Iterable[Row]:
        """All bindings, by their exchanges."""
        for topology in self._topologies():
            graph = topology.graph
            for name in sorted(each.name for each in graph.exchanges()):
                if name not in graph:
                    continue
                for binding in graph.bindings_from(name):
                    yield self._binding_row(topology, binding)

    def binding_order(self, source: str | None = None) -> BindingOrder:
        """Return the order of `binding_rows`, by virtual hosts and exchanges.

        Args:
            source: the exchange whose bindings these are; None for all.
        """
        return BindingOrder(self._broker, self._binding_row, source)

    @staticmethod
    def _binding_row(topology: Topology, binding: ExchangeBinding) -> dict[str, object]:
        kind = binding.target.kind
        source = in_host(topology.host, binding.source)
        target = in_host(topology.host, binding.target.name)
        try:
            durable = topology.is_durable(binding)
        except TopologyFault:
            durable = False  # its exchange went between two turns of an answer
        return {
            "name": f"{source} to {kind.value} {target} by {binding.key!r}",
            "type": "exchange-binding",
            "virtual-host": host_label(topology.host),
            "source": source,
            "target": target,
            "target-type": kind.value,
            "key": binding.key,
            "arguments": argument_text(binding.arguments),
            "durable": durable,
        }

    def _binding(self, command: ManagementCommand) -> tuple[Topology, ExchangeBinding]:
        topology, source = self._at(command.name)
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
        if host_of(target) != topology.host:
            raise CommandRefused(
                BAD_REQUEST,
                f"{command.name[:256]!r} and {target[:256]!r} are in different virtual hosts: no "
                "message goes from one to the other",
            )
        place = BindingTarget(TargetKind(str(kind)), split_host(target)[1])
        return topology, ExchangeBinding(source, place, text, read_arguments(given))

    @staticmethod
    def _take(
        command: ManagementCommand,
        changes: ChangeBatch,
        step: TopologyStep[bool] | TopologyStep[GraphChange],
    ) -> None:
        for note in step.notes:
            changes.note_topology(*note)
        changes.did(str(command), step.undo, step.done)


BindingRow = Callable[[Topology, ExchangeBinding], Row]


class BindingOrder:
    """Bindings from exchanges in order; see `EntityOrder`.

    Their names there are those of the exchange within the broker, and behind a zero the text of the
    binding (`ExchangeBinding.text`): what rows have as names need not be unique.

    Args:
        broker: whose bindings.
        row: makes the row of one.
        source: the name within the broker of the only exchange; None for all.
    """

    def __init__(self, broker: Broker, row: BindingRow, source: str | None = None) -> None:
        self._broker = broker
        self._row = row
        self._source = None if source is None else split_host(source)

    def _graphs(self, host: str | None) -> list[tuple[str, ExchangeGraph]]:
        hosts = hosts_of(self._broker.host_names(), host)
        if self._source is not None:
            hosts = [each for each in hosts if each == self._source[0]]
        return [(each, self._broker.topology_of(each).graph) for each in hosts]

    def count(self, host: str | None = None) -> int:
        """See `EntityOrder.count`."""
        graphs = self._graphs(host)
        if self._source is None:
            return sum(graph.binding_count for _, graph in graphs)
        local = self._source[1]
        return sum(graph.binding_count_of(local) for _, graph in graphs if local in graph)

    def behind(self, name: str | None, host: str | None = None) -> Iterator[str]:
        """See `EntityOrder.behind`."""
        return merge(*(self._behind(each, graph, name) for each, graph in self._graphs(host)))

    def prepare(self, name: str | None, count: int, host: str | None = None) -> bool:
        """See `EntityOrder.prepare`: the texts of an exchange's bindings, `TEXTS_IN_TURN` of them.

        Only of exchanges that a list of so many bindings reaches.
        """
        return all(
            self._prepare_graph(each, graph, name, count) for each, graph in self._graphs(host)
        )

    def _prepare_graph(self, host: str, graph: ExchangeGraph, name: str | None, count: int) -> bool:
        for each, start in self._exchanges(host, graph, name):
            if not graph.list_bindings(each, TEXTS_IN_TURN):
                return False
            texts = graph.binding_texts(each)
            count -= len(texts) - (0 if start is None else bisect_right(texts, start))
            if count <= 0:
                break
        return True

    def _behind(self, host: str, graph: ExchangeGraph, name: str | None) -> Iterator[str]:
        for each, start in self._exchanges(host, graph, name):
            source = in_host(host, each)
            for found in names_behind(graph.binding_texts(each), start):
                yield f"{source}\0{found}"

    def _exchanges(
        self, host: str, graph: ExchangeGraph, name: str | None
    ) -> Iterator[tuple[str, str | None]]:
        """Yield the exchanges with bindings behind one; one without bindings costs a look.

        Yields:
            The name of the exchange, and the text behind which its bindings are; None for all.
        """
        local = names_in_host(host, name)
        if local is None:
            return
        exchange, _, text = local.partition("\0")
        there: Iterable[str]
        if self._source is not None:
            only = self._source[1]
            there = [only] if only >= exchange and only in graph else []
        else:
            first = [exchange] if exchange in graph else []
            there = chain(first, names_behind(graph.exchange_names, exchange))
        for each in there:
            if graph.binding_count_of(each):
                yield each, (text or None) if each == exchange else None

    def row(self, name: str) -> Row:
        """See `EntityOrder.row`."""
        source, _, text = name.partition("\0")
        host, local = split_host(source)
        topology = self._broker.topologies.get(host)
        if topology is None or local not in topology.graph:
            raise KeyError(name)
        binding = topology.graph.binding_by_text(local, text)
        if binding is None:
            raise KeyError(name)
        return self._row(topology, binding)

    def shown(self, name: str) -> str:
        """See `EntityOrder.shown`."""
        return _shown_binding(name)


def _shown_binding(name: str) -> str:
    """Return the name of a row by that in a `BindingOrder`."""
    source, text, *_ = name.split("\0")
    kind, _, target = text.partition(" ")
    return f"{source} to {kind} {in_host(host_of(source), target)}"


class BindingsTo:
    """The bindings to one target, by the names of a `BindingOrder`; for one part of a list.

    Args:
        broker: whose bindings.
        row: makes the row of one.
        target: a queue or an exchange, by its name within the broker.
        source: the name within the broker of the only source; None for all.
    """

    def __init__(
        self, broker: Broker, row: BindingRow, target: str, source: str | None = None
    ) -> None:
        self._row = row
        self._host, local = split_host(target)
        self._source = source
        self._topology = broker.topologies.get(self._host)
        self._named: NameTable[ExchangeBinding] = NameTable(is_ordered=True)
        self._unnamed: deque[ExchangeBinding] = deque()
        if self._topology is not None:
            for kind in TargetKind:
                self._unnamed += self._topology.graph.bindings_to(BindingTarget(kind, local))

    def __repr__(self) -> str:
        return f"<BindingsTo {len(self._named)} and {len(self._unnamed)}>"

    def count(self, host: str | None = None) -> int:
        """See `EntityOrder.count`; the target is in one virtual host."""
        return len(self._named)

    def behind(self, name: str | None, host: str | None = None) -> Iterator[str]:
        """See `EntityOrder.behind`."""
        return names_behind(self._named.order, name)

    def prepare(self, name: str | None, count: int, host: str | None = None) -> bool:
        """See `EntityOrder.prepare`: the names of `TEXTS_IN_TURN` bindings."""
        for _ in range(min(TEXTS_IN_TURN, len(self._unnamed))):
            binding = self._unnamed.popleft()
            source = in_host(self._host, binding.source)
            if self._source in (None, source):
                self._named[f"{source}\0{binding.text}"] = binding
        return not self._unnamed

    def row(self, name: str) -> Row:
        """See `EntityOrder.row`."""
        binding, topology = self._named[name], self._topology
        if (
            topology is None
            or binding.source not in topology.graph
            or not topology.graph.has_binding(binding)
        ):
            raise KeyError(name)  # it is gone meanwhile
        return self._row(topology, binding)

    def shown(self, name: str) -> str:
        """See `EntityOrder.shown`."""
        return _shown_binding(name)


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
    """Read the declaration of a queue in the form of a 0-9-1 client; None without such options.

    Raises:
        CommandRefused: they are invalid.
    """
    if not any(key in options for key in TERM_KEYS):
        return None
    flags = []
    for key in ("auto-delete", "prioritized"):
        flag = options.get(key, False)
        if not isinstance(flag, bool):
            raise CommandRefused(BAD_REQUEST, f"{key} is true or false")
        flags.append(flag)
    auto_delete, has_priorities = flags
    return DeclaredTerms(auto_delete, read_arguments(options), has_priorities)


def _alternate_facts(alternate: EffectiveTerm) -> dict[str, object]:
    return {**policy_names([alternate]), "terms": {ALTERNATE_ARGUMENT: term_facts(alternate)}}


def policy_names(terms: Iterable[EffectiveTerm]) -> dict[str, object]:
    """Return the policies that contribute to the values in force, as attributes of a row."""
    kinds = {TermSource.POLICY: "policy", TermSource.OPERATOR_POLICY: "operator-policy"}
    return {kinds[term.source]: term.policy for term in terms if term.source in kinds}


def term_facts(term: EffectiveTerm) -> dict[str, object]:
    """Return a value in force and its source, as attributes."""
    facts: dict[str, object] = {"value": term.value, "source": term.source.value}
    return {**facts, "policy": term.policy} if term.policy else facts


def argument_text(arguments: Mapping[str, object]) -> str:
    """Return arguments as a JSON object; values without a JSON form are described."""
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
    """Convert faults of exchanges to refusals of a command."""
    try:
        yield
    except TopologyFault as fault:
        raise CommandRefused(_STATUS.get(fault.kind, BAD_REQUEST), fault.text) from None
