# SPDX-License-Identifier: Apache-2.0
"""Exchanges as targets for clients of AMQP 1.0: ``/exchanges/NAME[/KEY]``.

The routing key is the one of the address or, without it, the message's subject. Headers are the
application properties and those annotations that a client of 0-9-1 would have as headers; the
annotation ``x-cc`` adds routing keys as the header CC does. Consumers of 0-9-1 see exchange and key
in their delivery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from zope.interface import implementer

from amqproute.address import exchange_node, in_host
from amqproute.broker.commit_batch import Batch
from amqproute.broker.consumer_set import UNBOUNDED
from amqproute.broker.exchanges.carbon_copies import LONGEST_KEY, routing_keys
from amqproute.broker.exchanges.topology import Topology
from amqproute.broker.exchanges.topology_fault import TopologyFault, TopologyFaultKind
from amqproute.errors import AmqpError, InvalidField, NotAllowed, NotFound, PreconditionFailed
from amqproute.interfaces import ITarget
from amqproute.message import Message
from amqproute.translation.message_content import routing_headers
from amqproute.translation.message_parts import CARBON_COPY, EXCHANGE, ROUTING_KEY
from amqproute.values import Origin

_COPIES: Final = CARBON_COPY.encode()
_ERRORS: Final[Mapping[TopologyFaultKind, type[AmqpError]]] = {
    TopologyFaultKind.NO_EXCHANGE: NotFound,
    TopologyFaultKind.INTERNAL_EXCHANGE: NotAllowed,
    TopologyFaultKind.INVALID_HEADER: InvalidField,
}


class _Headers(Mapping[str, object]):
    """The headers of a message, read when an exchange asks for them."""

    __slots__ = ("_message", "_read")

    def __init__(self, message: Message) -> None:
        self._message = message
        self._read: Mapping[str, object] | None = None

    def _headers(self) -> Mapping[str, object]:
        if self._read is None:
            self._read = routing_headers(self._message)
        return self._read

    def __getitem__(self, name: str) -> object:
        return self._headers()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._headers())

    def __len__(self) -> int:
        return len(self._headers())


@implementer(ITarget)
class ExchangeTarget:
    """An exchange that is sent to.

    Args:
        topology: the exchanges.
        exchange: its name.
        key: the routing key of the address; None for each message's subject.

    Attributes:
        name: its address, without the key.
    """

    __slots__ = ("_exchange", "_key", "_topology", "name")

    takes_any_format = False

    def __init__(self, topology: Topology, exchange: str, key: str | None = None) -> None:
        self.name = in_host(topology.host, exchange_node(exchange))
        self._topology = topology
        self._exchange = exchange
        self._key = key

    def __repr__(self) -> str:
        return f"<ExchangeTarget {self.name}>"

    def check(self) -> None:
        """Check that the exchange is there, and may be sent to.

        Raises:
            AmqpError: the exchange does not exist, or is internal.
        """
        try:
            self._topology.graph.check_publish(self._exchange)
        except TopologyFault as fault:
            raise _ERRORS.get(fault.kind, PreconditionFailed)(fault.text) from None

    def space(self) -> int:
        """See `ITarget.space`: which queues get a message depends on it."""
        return UNBOUNDED

    def when_space(self, notify: Callable[[], None]) -> None:
        """See `ITarget.when_space`: there is always space here."""
        notify()

    def put(self, message: Message, batch: Batch, origin: Origin) -> None:
        """Put a message on the queues that it goes to. See `ITarget.put`.

        Raises:
            PreconditionFailed: no queue gets it.
        """
        topology, key = self._topology, self._key_of(message)
        try:
            keys = routing_keys(key, self._copies(message))
            outcome = topology.route(self._exchange, keys, _Headers(message))
        except TopologyFault as fault:
            raise _ERRORS.get(fault.kind, PreconditionFailed)(fault.text) from None
        if outcome.is_unrouted:
            raise PreconditionFailed(
                f"no queue gets messages of exchange {self._exchange!r} with the routing key "
                f"{key!r}",
                info={"code": "exchange.unroutable"},
            )
        targets = topology.queues_of(outcome)
        sent = message.with_annotations({EXCHANGE: self._exchange, ROUTING_KEY: key})
        topology.put(self._exchange, targets, sent, batch, origin)

    def _key_of(self, message: Message) -> str:
        key = self._key
        if key is None:
            subject = message.properties.subject
            key = subject if isinstance(subject, str) else ""
        if len(key.encode("utf-8", "surrogatepass")) > LONGEST_KEY:
            raise InvalidField(f"a routing key has at most {LONGEST_KEY} octets")
        return key

    @staticmethod
    def _copies(message: Message) -> Mapping[str, object]:
        if not message.mentions(_COPIES):
            return {}
        copies = message.annotations.get(CARBON_COPY)
        return {} if copies is None else {"CC": copies}


__all__ = ["ExchangeTarget"]
