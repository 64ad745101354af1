# SPDX-License-Identifier: Apache-2.0
"""Exchanges and bindings of one virtual host, and routing through them.

`ExchangeGraph` is state without a store and without messages. Changes return what has gone with
them, so that the caller can make the same change durable; `route` returns a decision.

A message goes from exchange to exchange along matching bindings, through each exchange at most
once, so circles end. An exchange where nothing matches hands it to its alternate exchange. Each
queue is named once. The default exchange, whose name is empty, finds the queue that has the
routing key as name; a key with ``@`` is always an address and never a queue (09-M-01, 09-M-02).

An exchange or a queue with more than `MOST_AT_ONCE` bindings *ends*: at once no message goes to it
or through it any more, and nobody finds the exchange; its bindings are taken out by `take_apart`,
some of them in each turn of the reactor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Final

from amqproute.broker.exchanges.binding_tables import (
    TABLES,
    BindingTable,
    BindingTarget,
    ExchangeBinding,
    ExchangeType,
    TargetKind,
)
from amqproute.broker.exchanges.header_match import comparable
from amqproute.broker.exchanges.topology_fault import TopologyFault, TopologyFaultKind
from amqproute.broker.name_table import NameTable

DEFAULT_EXCHANGE: Final = ""
"""The name of the default exchange (09-EXCH-05)."""
ALTERNATE_ARGUMENT: Final = "alternate-exchange"
"""Argument of exchange.declare: where messages go that no binding matches."""
RESERVED_PREFIX: Final = "amq."
"""Names of predeclared exchanges and of generated queues begin so."""
MOST_EXCHANGES: Final = 100_000
"""Exchanges of one virtual host."""
MOST_BINDINGS: Final = 1_000_000
"""Bindings of one virtual host."""
MOST_AT_ONCE: Final = 500
"""Bindings that go in one turn of the reactor: about two milliseconds."""
MOST_REMEMBERED: Final = 4096
"""Decisions that are remembered until the graph changes."""

PREDECLARED: Final[Mapping[str, ExchangeType]] = {
    DEFAULT_EXCHANGE: ExchangeType.DIRECT,
    "amq.direct": ExchangeType.DIRECT,
    "amq.fanout": ExchangeType.FANOUT,
    "amq.topic": ExchangeType.TOPIC,
    "amq.headers": ExchangeType.HEADERS,
    "amq.match": ExchangeType.HEADERS,
}
"""Exchanges that every virtual host has from the start, all durable (09-EXCH-03, I-33)."""


@dataclass(frozen=True)
class ExchangeDefinition:
    """An exchange as it was declared.

    Attributes:
        name: the name of the exchange.
        type: the exchange type.
        durable: whether it survives a restart.
        auto_delete: whether it is deleted with its last binding (I-36).
        internal: nobody publishes to it directly (09-EXCH-16).
        alternate: the exchange that gets what no binding matches; it need not exist. The one of
            the declaration or, without it, of a policy.
        arguments: the arguments of the declaration, as received.
    """

    name: str
    type: ExchangeType
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    alternate: str | None = None
    arguments: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class RoutingOutcome:
    """Result of routing a message.

    Attributes:
        queues: names, each once.
        addresses: addresses with ``@`` to which it was published through the default exchange.
    """

    queues: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()

    @property
    def is_unrouted(self) -> bool:
        """It goes nowhere: with mandatory it is returned (09-BASIC-38)."""
        return not self.queues and not self.addresses


@dataclass(frozen=True)
class GraphChange:
    """Exchanges and bindings removed by a change.

    Attributes:
        exchanges: names of the removed exchanges in order, the deleted one first.
        bindings: the removed bindings, including those of removed exchanges, in order of creation.
        definitions: the exchanges as they were, in the same order.
        ending: exchanges among these, and queues, whose bindings are still to be taken out.
    """

    exchanges: tuple[str, ...] = ()
    bindings: tuple[ExchangeBinding, ...] = ()
    definitions: tuple[ExchangeDefinition, ...] = field(default=(), compare=False)
    ending: tuple[BindingTarget, ...] = ()


class _Exchange:
    """An exchange in the graph.

    Attributes:
        definition: the definition of the exchange.
        table: its bindings by how it matches.
        outgoing: the bindings with it as source, in the order they were made, each by itself.
        incoming: the bindings with it as target.
        keys: the keys of outgoing bindings; None until they are needed, and after a change.
        listed: the outgoing bindings by their texts; None until somebody lists them.
        unlisted: those among them whose texts are not made yet; some may have gone meanwhile.
    """

    __slots__ = ("definition", "incoming", "keys", "listed", "outgoing", "table", "unlisted")

    def __init__(self, definition: ExchangeDefinition) -> None:
        self.definition = definition
        self.table: BindingTable = TABLES[definition.type]()
        self.outgoing: dict[ExchangeBinding, ExchangeBinding] = {}
        self.incoming: dict[ExchangeBinding, ExchangeBinding] = {}
        self.keys: frozenset[str] | None = None
        self.listed: NameTable[ExchangeBinding] | None = None
        self.unlisted: deque[ExchangeBinding] = deque()


class _Ending:
    """Remains of an exchange or a queue that ends.

    Attributes:
        bindings: the bindings that lead to it.
        exchange: the exchange; None for a queue.
    """

    __slots__ = ("bindings", "exchange")

    def __init__(
        self,
        bindings: dict[ExchangeBinding, ExchangeBinding],
        exchange: _Exchange | None = None,
    ) -> None:
        self.bindings = bindings
        self.exchange = exchange

    def some(self, count: int) -> list[ExchangeBinding]:
        """Return so many of its bindings at most."""
        own = () if self.exchange is None else self.exchange.outgoing
        return list(islice(chain(self.bindings, own), count))


class ExchangeGraph:
    """The exchanges and bindings of a virtual host.

    Args:
        queues: the names of the queues there are. The graph looks at it and never changes it.
        most_exchanges: the highest number of exchanges (09-CONN-22).
        most_bindings: the highest number of bindings.

    Attributes:
        edition: another object after each change of exchanges or bindings.
        most_at_once: bindings that one change takes out.
    """

    def __init__(
        self,
        queues: Container[str],
        most_exchanges: int = MOST_EXCHANGES,
        most_bindings: int = MOST_BINDINGS,
    ) -> None:
        self.edition = object()
        self._queues = queues
        self._most_exchanges = most_exchanges
        self._most_bindings = most_bindings
        self.most_at_once = MOST_AT_ONCE
        self._ending: dict[BindingTarget, _Ending] = {}
        self._bindings = 0
        self._of_queue: dict[str, dict[ExchangeBinding, ExchangeBinding]] = {}
        self._remembered: dict[tuple[str, str], RoutingOutcome] = {}
        self._exchanges: NameTable[_Exchange] = NameTable()
        for name, kind in PREDECLARED.items():
            self._exchanges[name] = _Exchange(ExchangeDefinition(name, kind))

    # -- queries ------------------------------------------------------------------------------

    @property
    def binding_count(self) -> int:
        """Number of bindings."""
        return self._bindings

    @property
    def exchange_count(self) -> int:
        """Number of exchanges."""
        return len(self._exchanges)

    def __contains__(self, name: str) -> bool:
        """Tell whether there is an exchange of this name."""
        return name in self._exchanges

    def exchange(self, name: str) -> ExchangeDefinition:
        """Return an exchange.

        Raises:
            TopologyFault: there is none of this name.
        """
        return self._known(name).definition

    @property
    def exchange_names(self) -> Sequence[str]:
        """The names of the exchanges in order; see `NameTable.order`."""
        return self._exchanges.order

    def exchanges(self) -> Iterator[ExchangeDefinition]:
        """Iterate over all exchanges."""
        return (each.definition for each in self._exchanges.values())

    def bindings_from(self, exchange: str) -> tuple[ExchangeBinding, ...]:
        """Return the bindings with an exchange as source.

        Raises:
            TopologyFault: there is no such exchange.
        """
        outgoing = self._known(exchange).outgoing
        if self._ending:
            return tuple(each for each in outgoing if each.target not in self._ending)
        return tuple(outgoing)

    def binding_texts(self, exchange: str) -> Sequence[str]:
        """Return the texts of the bindings with an exchange as source, in order.

        They are made when somebody first lists them, all that `list_bindings` has not made, and
        kept up to date from then on. The next change changes the list. Bindings that end are still
        among them.

        Raises:
            TopologyFault: there is no such exchange.
        """
        return self._listed(exchange).order

    def binding_by_text(self, exchange: str, text: str) -> ExchangeBinding | None:
        """Return the binding with a text; None if it has gone, or ends.

        Raises:
            TopologyFault: there is no such exchange.
        """
        found = self._listed(exchange).get(text)
        return None if found is None or found.target in self._ending else found

    def list_bindings(self, exchange: str, most: int) -> bool:
        """Make texts for `binding_texts`, and return whether that has all of them.

        Args:
            exchange: the source of the bindings.
            most: number of texts that are made now.

        Raises:
            TopologyFault: there is no such exchange.
        """
        known = self._known(exchange)
        if known.listed is None:
            # In order from the beginning: sorting all of them would take one long turn.
            known.listed = NameTable(is_ordered=True)
            known.unlisted = deque(known.outgoing)
        for _ in range(min(most, len(known.unlisted))):
            binding = known.outgoing.get(known.unlisted.popleft())
            if binding is not None:
                known.listed[binding.text] = binding
        return not known.unlisted

    def _listed(self, exchange: str) -> NameTable[ExchangeBinding]:
        self.list_bindings(exchange, self._bindings)
        listed = self._known(exchange).listed
        assert listed is not None
        return listed

    def binding_count_of(self, exchange: str) -> int:
        """Return how many bindings have an exchange as source.

        Raises:
            TopologyFault: there is no such exchange.
        """
        return len(self._known(exchange).outgoing)

    def has_binding(self, binding: ExchangeBinding) -> bool:
        """Tell whether there is a binding.

        Raises:
            TopologyFault: there is no such exchange.
        """
        return binding in self._known(binding.source).outgoing

    def has_key(self, exchange: str, key: str) -> bool:
        """Tell whether a binding with an exchange as source has a key.

        The keys are gathered by the first who asks after a change.

        Raises:
            TopologyFault: there is no such exchange.
        """
        found = self._known(exchange)
        if found.keys is None:
            found.keys = frozenset([each.key for each in self.bindings_from(exchange)])
        return key in found.keys

    def bindings_to(self, target: BindingTarget) -> tuple[ExchangeBinding, ...]:
        """Return the bindings that lead to a queue or an exchange."""
        return tuple(self._incoming(target))

    # -- changes -------------------------------------------------------------------------------

    def declare(self, definition: ExchangeDefinition, lenient: bool = False) -> bool:
        """Add an exchange, or check that the existing one is equal (09-EXCH-09).

        Args:
            definition: the declaration.
            lenient: durable and auto-delete are ignored where there is one, as 0-9 says (09-X-29,
                09-X-30).

        Returns:
            Whether it is new.

        Raises:
            TopologyFault: there is another one of this name, the name is reserved, or there is no
                room.
        """
        there = self._exchanges.get(definition.name)
        if there is not None:
            check_redeclared(there.definition, definition, lenient)
            return False
        if definition.name.startswith(RESERVED_PREFIX):
            raise TopologyFault(
                TopologyFaultKind.RESERVED_EXCHANGE_NAME,
                f"exchange name '{definition.name}' begins with the reserved prefix 'amq.'",
            )
        if len(self._exchanges) >= self._most_exchanges:
            raise TopologyFault(
                TopologyFaultKind.LIMIT, f"there are {self._most_exchanges} exchanges already"
            )
        self._exchanges[definition.name] = _Exchange(definition)
        self._changed()
        return True

    def change_alternate(self, name: str, alternate: str | None) -> None:
        """Have another alternate exchange in force, as a policy says.

        Raises:
            TopologyFault: there is no such exchange.
        """
        exchange = self._known(name)
        old = exchange.definition
        exchange.definition = ExchangeDefinition(
            old.name, old.type, old.durable, old.auto_delete, old.internal, alternate, old.arguments
        )
        self._changed()

    def delete(self, name: str, if_unused: bool = False) -> GraphChange:
        """Delete an exchange with its bindings (09-EXCH-20, 09-EXCH-21).

        With many of them it ends; see `take_apart`.

        Raises:
            TopologyFault: there is none, it may not be deleted, or it has bindings and
                `if_unused` is set.
        """
        exchange = self._known(name)
        if name in PREDECLARED:
            raise TopologyFault(
                TopologyFaultKind.DEFAULT_EXCHANGE
                if name == DEFAULT_EXCHANGE
                else TopologyFaultKind.PREDECLARED_EXCHANGE,
                f"exchange '{name}' is predeclared and cannot be deleted",
            )
        if if_unused and exchange.outgoing:
            raise TopologyFault(
                TopologyFaultKind.IN_USE,
                f"exchange '{name}' is in use: it has {len(exchange.outgoing)} bindings",
            )
        return self._remove([name], [])

    def delete_queue(self, name: str) -> GraphChange:
        """Remove the bindings of a queue that has gone; with many of them it ends."""
        bindings = self._of_queue.get(name, {})
        if len(bindings) <= self.most_at_once:
            return self._remove([], list(bindings))
        target = BindingTarget(TargetKind.QUEUE, name)
        self._ending[target] = _Ending(self._of_queue.pop(name))
        self._changed()
        return GraphChange(ending=(target,))

    # -- ends in slices ------------------------------------------------------------------------

    def is_ending(self, target: BindingTarget) -> bool:
        """Tell whether bindings of an exchange or a queue that has gone are still there."""
        return target in self._ending

    def take_apart(self, target: BindingTarget) -> GraphChange:
        """Remove one slice of the bindings of an ending target; the last slice completes its end.

        Returns:
            What has gone, with auto-delete exchanges that lost their last binding.
        """
        ending = self._ending[target]
        change = self._remove([], ending.some(self.most_at_once))
        if not ending.some(1):
            del self._ending[target]
        return change

    def revive(self, target: BindingTarget) -> None:
        """Restore an ending target that has lost no binding yet."""
        ending = self._ending.pop(target)
        if ending.exchange is None:
            self._of_queue[target.name] = ending.bindings
        else:
            self._exchanges[target.name] = ending.exchange
        self._changed()

    def bind(self, binding: ExchangeBinding) -> bool:
        """Add a binding.

        Returns:
            False if there is an equal one, which changes nothing (09-QUEUE-19).

        Raises:
            TopologyFault: source or target are missing, one of them is the default exchange, the
                arguments are wrong, or there is no room.
        """
        source, target = binding.source, binding.target
        exchange = self._known(source)
        self._check_target(target)
        if binding in exchange.outgoing:
            return False
        if target == BindingTarget(TargetKind.EXCHANGE, DEFAULT_EXCHANGE) or (
            source == DEFAULT_EXCHANGE
            and (target.kind is TargetKind.EXCHANGE or "@" in binding.key)
        ):
            raise TopologyFault(
                TopologyFaultKind.DEFAULT_EXCHANGE, "the default exchange cannot be bound so"
            )
        if self._bindings >= self._most_bindings:
            raise TopologyFault(
                TopologyFaultKind.LIMIT, f"there are {self._most_bindings} bindings already"
            )
        self._put_in(binding)
        self._changed()
        return True

    def _put_in(self, binding: ExchangeBinding) -> None:
        exchange, target = self._exchanges[binding.source], binding.target
        exchange.table.add(binding)
        exchange.outgoing[binding] = binding
        exchange.keys = None
        if exchange.listed is not None:
            exchange.listed[binding.text] = binding
        if target.kind is TargetKind.QUEUE:
            self._of_queue.setdefault(target.name, {})[binding] = binding
        else:
            self._exchanges[target.name].incoming[binding] = binding
        self._bindings += 1

    def rename_queue(
        self, name: str, new_name: str
    ) -> tuple[tuple[ExchangeBinding, ExchangeBinding], ...]:
        """Have the bindings of a queue lead to its new name.

        Returns:
            Each of them as it was, and as it is.
        """
        target = BindingTarget(TargetKind.QUEUE, new_name)
        renamed = []
        for old in list(self._of_queue.get(name, ())):
            new = ExchangeBinding(old.source, target, old.key, old.arguments)
            # In this order: an auto-delete exchange does not go.
            self._put_in(new)
            self._take_out(old)
            renamed.append((old, new))
        self._changed()
        return tuple(renamed)

    def check_standard_binding(self, source: str, queue_is_durable: bool) -> None:
        """Check what 0-9 forbids for a queue and later versions do not (09-QUEUE-21, -24).

        Raises:
            TopologyFault: there is no such exchange, it is internal, or it is transient and the
                queue is not.
        """
        definition = self._known(source).definition
        if definition.internal:
            raise TopologyFault(
                TopologyFaultKind.INTERNAL_BINDING, f"exchange '{source}' is internal"
            )
        if queue_is_durable and not definition.durable:
            raise TopologyFault(
                TopologyFaultKind.TRANSIENT_BINDING,
                f"exchange '{source}' is transient and the queue is durable",
            )

    def unbind(self, binding: ExchangeBinding) -> GraphChange:
        """Remove a binding; an auto-delete exchange goes with its last one.

        Raises:
            TopologyFault: source or target are missing (09-X-47, 09-X-48), or there is no such
                binding.
        """
        exchange = self._known(binding.source)
        self._check_target(binding.target)
        if binding not in exchange.outgoing:
            raise TopologyFault(
                TopologyFaultKind.NO_BINDING,
                f"no binding '{binding.key}' between exchange '{binding.source}' and "
                f"{binding.target.kind.value} '{binding.target.name}'",
            )
        return self._remove([], [binding])

    def _remove(self, exchanges: list[str], bindings: list[ExchangeBinding]) -> GraphChange:
        """Remove exchanges and bindings, and what goes with them."""
        gone_exchanges: dict[str, ExchangeDefinition] = {}
        gone_bindings: list[ExchangeBinding] = []
        ending: list[BindingTarget] = []
        room = self.most_at_once
        self._changed()
        while exchanges or bindings:
            if bindings:
                gone = self._take_out(bindings.pop())
                if gone is not None:
                    gone_bindings.append(gone)
                    source = self._exchanges.get(gone.source)
                    if source is not None and source.definition.auto_delete and not source.outgoing:
                        exchanges.append(gone.source)
                continue
            name = exchanges.pop()
            if name in gone_exchanges:
                continue
            exchange = self._exchanges[name]
            gone_exchanges[name] = exchange.definition
            size = len(exchange.incoming) + len(exchange.outgoing)
            if size > room:
                target = BindingTarget(TargetKind.EXCHANGE, name)
                self._ending[target] = _Ending(exchange.incoming, self._exchanges.pop(name))
                ending.append(target)
            else:
                room -= size
                bindings += (*exchange.incoming, *exchange.outgoing)
        for name in gone_exchanges:
            self._exchanges.pop(name, None)
        return GraphChange(
            tuple(gone_exchanges),
            tuple(gone_bindings),
            tuple(gone_exchanges.values()),
            tuple(ending),
        )

    def _changed(self) -> None:
        """Forget decisions: they may be others from now on."""
        self.edition = object()
        self._remembered.clear()

    def _take_out(self, binding: ExchangeBinding) -> ExchangeBinding | None:
        """Remove a binding and return it as it was made; None if there is no such binding."""
        source = self._exchanges.get(binding.source)
        if source is None:
            ending = self._ending.get(BindingTarget(TargetKind.EXCHANGE, binding.source))
            source = None if ending is None else ending.exchange
        made = None if source is None else source.outgoing.pop(binding, None)
        if source is None or made is None:
            return None
        source.table.remove(made)
        source.keys = None
        if source.listed is not None:
            source.listed.pop(made.text, None)  # its text may not be made yet
        incoming = self._incoming(made.target)
        incoming.pop(made, None)
        if (
            made.target.kind is TargetKind.QUEUE
            and not incoming
            and made.target not in self._ending
        ):
            self._of_queue.pop(made.target.name, None)
        self._bindings -= 1
        return made

    def _incoming(self, target: BindingTarget) -> dict[ExchangeBinding, ExchangeBinding]:
        ending = self._ending.get(target)
        if ending is not None:
            return ending.bindings
        if target.kind is TargetKind.QUEUE:
            return self._of_queue.get(target.name, {})
        exchange = self._exchanges.get(target.name)
        return {} if exchange is None else exchange.incoming

    def _known(self, name: str) -> _Exchange:
        exchange = self._exchanges.get(name)
        if exchange is None:
            raise TopologyFault(TopologyFaultKind.NO_EXCHANGE, f"no exchange '{name}'")
        return exchange

    def _check_target(self, target: BindingTarget) -> None:
        if target.kind is TargetKind.EXCHANGE:
            self._known(target.name)
        elif target.name not in self._queues:
            raise TopologyFault(TopologyFaultKind.NO_QUEUE, f"no queue '{target.name}'")

    # -- routing -------------------------------------------------------------------------------

    def check_publish(self, exchange: str) -> None:
        """Check that clients may publish to an exchange.

        Raises:
            TopologyFault: there is none (09-BASIC-36), or it is internal (09-X-66).
        """
        if self._known(exchange).definition.internal:
            raise TopologyFault(
                TopologyFaultKind.INTERNAL_EXCHANGE, f"exchange '{exchange}' is internal"
            )

    def route(
        self, exchange: str, keys: Sequence[str], headers: Mapping[str, object]
    ) -> RoutingOutcome:
        """Decide where a message goes.

        Args:
            exchange: the exchange of the publish.
            keys: its routing key, and those of CC and BCC.
            headers: the headers of the message, read only by headers exchanges.

        Raises:
            TopologyFault: there is no such exchange, or a header has a value that cannot be
                compared.
        """
        if len(keys) == 1 and exchange != DEFAULT_EXCHANGE:
            remembered = self._remembered.get((exchange, keys[0]))
            if remembered is not None:
                return remembered
        queues: dict[BindingTarget, None] = {}
        addresses: dict[str, None] = {}
        seen = {exchange: None}
        waiting = [self._known(exchange)]
        by_key_only = True
        while waiting:
            current = waiting.pop()
            by_key_only = by_key_only and not current.table.needs_headers
            targets: Mapping[BindingTarget, None]
            is_default = current.definition.name == DEFAULT_EXCHANGE
            if is_default:
                targets = self._default_targets(keys, addresses)
            else:
                targets = self._targets(current, keys, headers)
            if self._ending:
                targets = {each: None for each in targets if each not in self._ending}
            is_matched = bool(targets) or (is_default and bool(addresses))
            alternate = current.definition.alternate
            if not is_matched and alternate is not None:
                targets = {BindingTarget(TargetKind.EXCHANGE, alternate): None}
            for target in targets:
                if target.kind is TargetKind.QUEUE:
                    queues[target] = None
                elif target.name not in seen:
                    seen[target.name] = None
                    # An alternate exchange may be missing: then the message goes nowhere.
                    further = self._exchanges.get(target.name)
                    if further is not None:
                        waiting.append(further)
        outcome = RoutingOutcome(tuple([target.name for target in queues]), tuple(addresses))
        if by_key_only and len(keys) == 1 and DEFAULT_EXCHANGE not in seen:
            if len(self._remembered) >= MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[exchange, keys[0]] = outcome
        return outcome

    @staticmethod
    def _targets(
        exchange: _Exchange, keys: Sequence[str], headers: Mapping[str, object]
    ) -> Mapping[BindingTarget, None]:
        table = exchange.table
        try:
            if len(keys) == 1 or table.needs_headers:
                return table.match(keys[0], headers)
        except TypeError as error:
            raise TopologyFault(TopologyFaultKind.INVALID_HEADER, str(error)) from None
        found: dict[BindingTarget, None] = {}
        for key in keys:
            found.update(table.match(key, headers))
        return found

    def _default_targets(
        self, keys: Iterable[str], addresses: dict[str, None]
    ) -> dict[BindingTarget, None]:
        found: dict[BindingTarget, None] = {}
        table = self._exchanges[DEFAULT_EXCHANGE].table
        for key in keys:
            if "@" in key:
                addresses[key] = None
                continue
            if key in self._queues:
                found[BindingTarget(TargetKind.QUEUE, key)] = None
            found.update(table.match(key, {}))
        return found


def check_redeclared(
    there: ExchangeDefinition, asked: ExchangeDefinition, lenient: bool = False
) -> None:
    """Check that a declaration fits the exchange of that name (09: part 4.4).

    Args:
        there: the exchange.
        asked: the declaration.
        lenient: durable and auto-delete are ignored, but no argument, as in 0-9. In 0-9-1 only
            arguments that mean something count.

    Raises:
        TopologyFault: another type, or, as a second kind, other properties or arguments.
    """
    name = there.name
    if there.type is not asked.type:
        raise TopologyFault(
            TopologyFaultKind.OTHER_TYPE,
            f"inequivalent arg 'type' for exchange '{name}': received '{asked.type.value}' but "
            f"current is '{there.type.value}'",
        )
    flags = [("internal", asked.internal, there.internal)]
    if not lenient:
        flags = [
            ("durable", asked.durable, there.durable),
            ("auto_delete", asked.auto_delete, there.auto_delete),
            *flags,
        ]
    names = {*there.arguments, *asked.arguments} if lenient else (ALTERNATE_ARGUMENT,)
    difference = differing_flag(flags) or differing_argument(
        there.arguments, asked.arguments, names
    )
    if difference is not None:
        raise TopologyFault(
            TopologyFaultKind.OTHER_EXCHANGE,
            f"inequivalent arg {difference[0]} for exchange '{name}': {difference[1]}",
        )


def differing_flag(flags: Iterable[tuple[str, bool, bool]]) -> tuple[str, str] | None:
    """Return the first flag in which two declarations differ, and how; None for none.

    Args:
        flags: name, value received, and current value of each.
    """
    for name, received, current in flags:
        if received is not current:
            words = f"received '{str(received).lower()}' but current is '{str(current).lower()}'"
            return f"'{name}'", words
    return None


def differing_argument(
    there: Mapping[str, object], asked: Mapping[str, object], names: Iterable[str]
) -> tuple[str, str] | None:
    """Return the first argument in which two declarations differ, and how; None for none.

    Values are compared as by `comparable`: the width of a number makes no difference.

    Args:
        there: arguments of what is there.
        asked: the declared arguments.
        names: the names of arguments to compare.
    """
    for name in sorted(names):
        if name not in there:
            if name not in asked:
                continue
            words = f"received {_shown(asked[name])} but current is none"
        elif name not in asked:
            words = f"received none but current is {_shown(there[name])}"
        elif comparable(asked[name]) != comparable(there[name]):
            words = f"received {_shown(asked[name])} but current is {_shown(there[name])}"
        else:
            continue
        return f"'{name:.100}'", words
    return None


def _shown(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"the value '{text:.100}'"


__all__ = [
    "ALTERNATE_ARGUMENT",
    "DEFAULT_EXCHANGE",
    "MOST_AT_ONCE",
    "MOST_BINDINGS",
    "MOST_EXCHANGES",
    "PREDECLARED",
    "RESERVED_PREFIX",
    "ExchangeDefinition",
    "ExchangeGraph",
    "GraphChange",
    "RoutingOutcome",
    "check_redeclared",
    "differing_argument",
    "differing_flag",
]
