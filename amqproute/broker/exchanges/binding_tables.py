# SPDX-License-Identifier: Apache-2.0
"""Bindings as values, with a lookup table for each type of exchange.

One binding mechanism serves every exchange; what differs is the match::

    direct    the routing key is equal to the binding's      a dictionary of keys
    fanout    always                                         all targets
    topic     the routing key matches the pattern            `TopicTrie`
    headers   the headers match the arguments                `HeaderIndex`

A table gives each target once, however many of its bindings match (09: part 4.4).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, NamedTuple, Protocol

from amqproute.broker.exchanges.header_match import HeaderIndex, comparable, header_pattern
from amqproute.broker.exchanges.topic_trie import TopicTrie


class ExchangeType(enum.Enum):
    """Routing algorithm of an exchange (09-EXCH-01, 09-EXCH-02)."""

    DIRECT = "direct"
    FANOUT = "fanout"
    TOPIC = "topic"
    HEADERS = "headers"


class TargetKind(enum.Enum):
    """Kind of a binding's target. Queues and exchanges are two name spaces."""

    QUEUE = "queue"
    EXCHANGE = "exchange"


class BindingTarget(NamedTuple):
    """Target of a binding.

    Attributes:
        kind: queue or exchange.
        name: the name of the queue or exchange.
    """

    kind: TargetKind
    name: str


@dataclass(frozen=True)
class ExchangeBinding:
    """A binding, which source, target, key and arguments identify together (09-QUEUE-35).

    Attributes:
        source: the exchange that messages come from.
        target: the queue or exchange that gets them.
        key: the binding's routing key, or pattern.
        arguments: further conditions of the exchange type (09-QUEUE-31).
        argument_key: a hashable form of the arguments, for comparison.
    """

    source: str
    target: BindingTarget
    key: str
    arguments: Mapping[str, object] = field(default_factory=dict, compare=False)
    argument_key: Hashable = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "argument_key", comparable(self.arguments))

    @property
    def text(self) -> str:
        """It among the bindings of its source: target, key, and behind a zero its arguments."""
        text = f"{self.target.kind.value} {self.target.name} by {self.key!r}"
        if not self.arguments:
            return text
        digest = sha256(repr(self.argument_key).encode("utf-8", "surrogatepass")).hexdigest()
        return f"{text}\0{digest[:32]}"


class BindingTable(Protocol):
    """The bindings of one exchange, by how it matches."""

    @property
    def needs_headers(self) -> bool:
        """Whether matching depends on the headers of a message."""

    def add(self, binding: ExchangeBinding) -> None:
        """Add a binding that is not there."""

    def remove(self, binding: ExchangeBinding) -> None:
        """Remove a binding that is there."""

    def match(self, key: str, headers: Mapping[str, object]) -> Mapping[BindingTarget, None]:
        """Return the targets for a message, each once. The result is not to be changed."""


class CountedTargets:
    """Targets, each with the number of bindings that lead to it."""

    __slots__ = ("_counts", "_targets")

    def __init__(self) -> None:
        self._counts: dict[BindingTarget, int] = {}
        self._targets: dict[BindingTarget, None] = {}

    @property
    def targets(self) -> Mapping[BindingTarget, None]:
        """Each target once."""
        return self._targets

    def add(self, target: BindingTarget) -> None:
        """Count one more binding."""
        self._counts[target] = self._counts.get(target, 0) + 1
        self._targets[target] = None

    def remove(self, target: BindingTarget) -> None:
        """Count one less.

        Raises:
            KeyError: there is none.
        """
        count = self._counts[target]
        if count == 1:
            del self._counts[target], self._targets[target]
        else:
            self._counts[target] = count - 1


class DirectTable:
    """Bindings of a direct exchange: by equal key (09-X-46)."""

    needs_headers: Final = False

    def __init__(self) -> None:
        self._by_key: dict[str, CountedTargets] = {}

    def add(self, binding: ExchangeBinding) -> None:
        """See `BindingTable.add`."""
        self._by_key.setdefault(binding.key, CountedTargets()).add(binding.target)

    def remove(self, binding: ExchangeBinding) -> None:
        """See `BindingTable.remove`."""
        counted = self._by_key[binding.key]
        counted.remove(binding.target)
        if not counted.targets:
            del self._by_key[binding.key]

    def match(self, key: str, headers: Mapping[str, object]) -> Mapping[BindingTarget, None]:
        """See `BindingTable.match`."""
        counted = self._by_key.get(key)
        return {} if counted is None else counted.targets


class FanoutTable:
    """Bindings of a fanout exchange: key and arguments are ignored."""

    needs_headers: Final = False

    def __init__(self) -> None:
        self._counted = CountedTargets()

    def add(self, binding: ExchangeBinding) -> None:
        """See `BindingTable.add`."""
        self._counted.add(binding.target)

    def remove(self, binding: ExchangeBinding) -> None:
        """See `BindingTable.remove`."""
        self._counted.remove(binding.target)

    def match(self, key: str, headers: Mapping[str, object]) -> Mapping[BindingTarget, None]:
        """See `BindingTable.match`."""
        return self._counted.targets


class TopicTable:
    """Bindings of a topic exchange: by pattern.

    Attributes:
        trie: the patterns.
    """

    needs_headers: Final = False

    def __init__(self) -> None:
        self.trie: TopicTrie[BindingTarget] = TopicTrie()

    def add(self, binding: ExchangeBinding) -> None:
        """See `BindingTable.add`."""
        self.trie.add(binding.key, binding.target)

    def remove(self, binding: ExchangeBinding) -> None:
        """See `BindingTable.remove`."""
        self.trie.remove(binding.key, binding.target)

    def match(self, key: str, headers: Mapping[str, object]) -> Mapping[BindingTarget, None]:
        """See `BindingTable.match`."""
        return self.trie.match(key)


class HeadersTable:
    """Bindings of a headers exchange: by arguments; the key decides nothing.

    Attributes:
        index: the patterns.
    """

    needs_headers: Final = True

    def __init__(self) -> None:
        self.index: HeaderIndex[ExchangeBinding] = HeaderIndex()

    def add(self, binding: ExchangeBinding) -> None:
        """See `BindingTable.add`.

        Raises:
            TopologyFault: ``x-match`` is not one of its words.
        """
        self.index.add(header_pattern(binding.arguments), binding)

    def remove(self, binding: ExchangeBinding) -> None:
        """See `BindingTable.remove`."""
        self.index.remove(header_pattern(binding.arguments), binding)

    def match(self, key: str, headers: Mapping[str, object]) -> Mapping[BindingTarget, None]:
        """See `BindingTable.match`."""
        return {binding.target: None for binding in self.index.match(headers)}


TABLES: Final[Mapping[ExchangeType, Callable[[], BindingTable]]] = {
    ExchangeType.DIRECT: DirectTable,
    ExchangeType.FANOUT: FanoutTable,
    ExchangeType.TOPIC: TopicTable,
    ExchangeType.HEADERS: HeadersTable,
}
"""The table that each exchange type has."""


__all__ = [
    "TABLES",
    "BindingTable",
    "BindingTarget",
    "CountedTargets",
    "DirectTable",
    "ExchangeBinding",
    "ExchangeType",
    "FanoutTable",
    "HeadersTable",
    "TargetKind",
    "TopicTable",
]
