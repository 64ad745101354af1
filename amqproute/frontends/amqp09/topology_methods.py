# SPDX-License-Identifier: Apache-2.0
"""The classes access, exchange and queue on a channel.

Tickets (`access_realms`) are checked before each method of 0-9 that names one.

Rights (`amqproute.auth.policy`): declare and delete need `create`, purge needs `consume`, bind and
unbind `consume` on the source and `create` on the target. Access rules know an exchange as
``/exchanges/NAME`` and a queue by its name. What a declaration has others get later, as dead
letters or by an alternate exchange, needs `publish` there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from twisted.internet.defer import Deferred

from amqproute.address import exchange_node, in_host, local_name
from amqproute.auth.policy import Verb
from amqproute.broker.exchanges.argument_rules import (
    QueueDeclaration,
    exchange_definition,
    queue_terms,
)
from amqproute.broker.exchanges.binding_tables import BindingTarget, ExchangeBinding, TargetKind
from amqproute.broker.exchanges.exchange_graph import DEFAULT_EXCHANGE
from amqproute.broker.exchanges.queue_settings import dead_letter_target
from amqproute.broker.exchanges.topology_fault import TopologyFault, TopologyFaultKind
from amqproute.broker.exchanges.topology_names import check_exchange_name
from amqproute.broker.queue import Queue
from amqproute.broker.reply_addresses import REPLY_QUEUE, is_reply_name
from amqproute.frontends.amqp09.access_realms import RealmUse
from amqproute.frontends.amqp09.bound_query import bound_answer
from amqproute.frontends.amqp09.channel_base import ChannelBase
from amqproute.frontends.amqp09.topology_replies import TopologyMethod
from amqproute.wire.amqp09.methods import (
    AccessRequest,
    AccessRequestOk,
    BasicConsume,
    BasicGet,
    ExchangeBind,
    ExchangeBindOk,
    ExchangeBound,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    ExchangeUnbind,
    ExchangeUnbindOk,
    FileConsume,
    MessageConsume,
    MessageGet,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    QueueUnbind,
    QueueUnbindOk,
    StreamConsume,
)
from amqproute.wire.amqp09.shapes import AmqpMethod

__all__ = ["TopologyMethods"]

TICKET: Final = 1
"""The ticket of every access.request in 0-9-1, which is good for nothing."""
Result = TypeVar("Result")


_NEEDED: Final[Mapping[type[AmqpMethod], RealmUse]] = {
    ExchangeDeclare: RealmUse.ACTIVE,  # 09-X-23
    ExchangeDelete: RealmUse.ACTIVE,  # 09-X-31
    QueueDeclare: RealmUse.ACTIVE,  # 09-X-33
    QueueBind: RealmUse.ACTIVE,  # 09-QUEUE-26
    QueueUnbind: RealmUse.ACTIVE,  # 09-QUEUE-34
    QueuePurge: RealmUse.READ,  # 09-X-49
    QueueDelete: RealmUse.ACTIVE,  # 09-QUEUE-50
    BasicConsume: RealmUse.READ,  # 09-X-58
    BasicGet: RealmUse.READ,  # 09-X-69
    FileConsume: RealmUse.READ,  # 09-X-74
    StreamConsume: RealmUse.READ,  # 09-X-89
    MessageConsume: RealmUse.READ,  # 09-X-102
    MessageGet: RealmUse.READ,  # 09-X-102
}
"""Rights a ticket must have. Publishes are checked where they are routed (09-X-63)."""


class TopologyMethods(ChannelBase):
    """Declarations, bindings and deletions of a channel."""

    def topology_handlers(self) -> dict[type[AmqpMethod], Callable[..., None]]:
        """Return what acts on each method."""
        return {
            AccessRequest: self._access_request,
            ExchangeDeclare: self._exchange_declare,
            ExchangeDelete: self._exchange_delete,
            ExchangeBound: self._exchange_bound,
            ExchangeBind: self._exchange_bind,
            ExchangeUnbind: self._exchange_unbind,
            QueueDeclare: self._queue_declare,
            QueueBind: self._queue_bind,
            QueueUnbind: self._queue_unbind,
            QueuePurge: self._queue_purge,
            QueueDelete: self._queue_delete,
        }

    def _attempt(
        self,
        method: AmqpMethod,
        kind: TopologyMethod,
        change: Callable[[], Deferred[Result]],
        answer: Callable[[Result | None], AmqpMethod],
    ) -> None:
        """Make a change and answer when it is on the disk.

        Args:
            method: that asks for it.
            kind: the kind of the method.
            change: makes it.
            answer: makes the answer out of its result; of None where there was nothing to do.
        """
        try:
            done = change()
        except TopologyFault as fault:
            if not self.refuse(fault, method, kind):
                self.reply(method, answer(None))
            return
        self.when_done(done, method, lambda result: self.reply(method, answer(result)))

    # -- access ----------------------------------------------------------------------------------

    def _access_request(self, method: AccessRequest) -> None:
        if not self.is_0_9:
            self.reply(method, AccessRequestOk(ticket=TICKET))
            return
        uses = RealmUse(0)
        for is_asked, use in (
            (method.passive, RealmUse.PASSIVE),
            (method.active, RealmUse.ACTIVE),
            (method.write, RealmUse.WRITE),
            (method.read, RealmUse.READ),
        ):
            if is_asked:
                uses |= use
        principal = self.connection.principal
        number = self.host.tickets.request(method.realm, principal, self, uses, method.exclusive)
        self.reply(method, AccessRequestOk(ticket=number))

    def check_ticket(self, method: AmqpMethod) -> bool:
        """Check the ticket that a method of a channel names, if any; see `ticket_covers`."""
        number: int = getattr(method, "ticket", 0)
        needed = _NEEDED.get(type(method))
        if not number or needed is None:
            return True
        uses = needed
        if getattr(method, "passive", False):
            uses = RealmUse.PASSIVE
            if isinstance(method, QueueDeclare):
                uses |= RealmUse.ACTIVE  # 09-X-33 asks for it
        if isinstance(method, ExchangeDeclare | ExchangeDelete):
            node = exchange_node(method.exchange)
        else:
            node = getattr(method, "queue", "") or self.channel.current_queue or ""
        return self.ticket_covers(number, uses, node, method)

    # -- exchange --------------------------------------------------------------------------------

    def _exchange_declare(self, method: ExchangeDeclare) -> None:
        name = method.exchange
        if method.passive:
            self.topology.graph.exchange(name)
            self.reply(method, ExchangeDeclareOk())
            return
        check_exchange_name(name, standard=self.is_0_9)
        self.require(Verb.CREATE, exchange_node(name))
        flags = {
            "durable": method.durable,
            "auto_delete": method.auto_delete,
            "internal": method.internal,
        }
        definition = exchange_definition(name, method.type, flags, method.arguments)
        if definition.alternate is not None:
            self.require(Verb.PUBLISH, exchange_node(definition.alternate))
        self._attempt(
            method,
            TopologyMethod.OTHER,
            lambda: self.topology.declare(definition, self.owner, lenient=self.is_0_9),
            lambda _: ExchangeDeclareOk(),
        )

    def _exchange_delete(self, method: ExchangeDelete) -> None:
        self.require(Verb.CREATE, exchange_node(method.exchange))
        self._attempt(
            method,
            TopologyMethod.DELETE,
            lambda: self.topology.delete(method.exchange, method.if_unused),
            lambda _: ExchangeDeleteOk(),
        )

    def _exchange_bound(self, method: ExchangeBound) -> None:
        if method.exchange:
            self.require(Verb.CONSUME, exchange_node(method.exchange))
        names = self.context.broker.nodes.of(self.virtual_host)
        self.reply(method, bound_answer(method, self.topology.graph, names))

    def _exchange_bind(self, method: ExchangeBind) -> None:
        binding = self._exchange_binding(method)
        self._attempt(
            method,
            TopologyMethod.OTHER,
            lambda: self.topology.bind(binding, self.owner),
            lambda _: ExchangeBindOk(),
        )

    def _exchange_unbind(self, method: ExchangeUnbind) -> None:
        binding = self._exchange_binding(method)
        self._attempt(
            method,
            TopologyMethod.UNBIND,
            lambda: self.topology.unbind(binding),
            lambda _: ExchangeUnbindOk(),
        )

    def _exchange_binding(self, method: ExchangeBind | ExchangeUnbind) -> ExchangeBinding:
        for name in (method.source, method.destination):
            if name == DEFAULT_EXCHANGE:
                raise TopologyFault(
                    TopologyFaultKind.DEFAULT_EXCHANGE, "the default exchange cannot be bound"
                )
        self.require(Verb.CONSUME, exchange_node(method.source))
        self.require(Verb.CREATE, exchange_node(method.destination))
        target = BindingTarget(TargetKind.EXCHANGE, method.destination)
        return ExchangeBinding(method.source, target, method.routing_key, method.arguments)

    # -- queue -----------------------------------------------------------------------------------

    def queue_of(self, name: str, method: AmqpMethod) -> str | None:
        """Return the queue that a method means; None where there is none, and it is refused."""
        found = self.channel.queue_name(name, method)
        if found is None:
            self.closed()
        return found

    def _queue_declare(self, method: QueueDeclare) -> None:
        if method.queue == REPLY_QUEUE or is_reply_name(method.queue):
            self._reply_queue_declare(method)
            return
        if method.passive:
            name = self.queue_of(method.queue, method)
            if name is not None:
                self._declared(method, self.queues.queue(name, self.connection))
            return
        asked = QueueDeclaration(
            method.queue or self.host.amqp09.new_name(),
            method.durable,
            method.exclusive,
            # An exclusive queue goes with its connection in any case (I-12).
            method.auto_delete,
            method.arguments,
            has_priorities=self.is_0_9,
        )
        self.require(Verb.CREATE, asked.name)
        self._check_dead_letters(asked)
        self.when_done(
            self.queues.declare(asked, self.connection, self.owner, lenient=self.is_0_9),
            method,
            lambda queue: self._declared(method, queue),
        )

    def _reply_queue_declare(self, method: QueueDeclare) -> None:
        """Say whether a reply address is in use: responders ask before they do the work."""
        name = method.queue
        if name != REPLY_QUEUE and not self.context.broker.is_reply_address(
            in_host(self.virtual_host, name)
        ):
            raise TopologyFault(TopologyFaultKind.NO_QUEUE, f"no reply address '{name}'")
        self.reply(method, QueueDeclareOk(queue=name, message_count=0, consumer_count=1))

    def _check_dead_letters(self, asked: QueueDeclaration) -> None:
        """Check that the client itself may publish where dead letters of its queue will go."""
        target = dead_letter_target(queue_terms(asked.name, asked.arguments))
        if target is None:
            return
        if target.exchange != DEFAULT_EXCHANGE:
            self.require(Verb.PUBLISH, exchange_node(target.exchange))
        elif target.routing_key is not None:
            self.require(Verb.PUBLISH, target.routing_key)
        else:
            # The publisher's key would name the queue, and nobody's rights on it be asked for.
            raise TopologyFault(
                TopologyFaultKind.INVALID_ARGUMENT,
                "x-dead-letter-exchange '' needs x-dead-letter-routing-key, the queue's name",
            )

    def _declared(self, method: QueueDeclare, queue: Queue) -> None:
        name = local_name(queue.name)
        self.channel.current_queue = name
        self.queues.used(name)
        answer = QueueDeclareOk(
            queue=name,
            message_count=_waiting(queue),
            consumer_count=queue.consumers,
        )
        self.reply(method, answer)

    def _queue_bind(self, method: QueueBind) -> None:
        binding = self._queue_binding(method)
        if binding is None:
            return
        self._require_named(method.exchange)
        if self.is_0_9:
            declared = self.queues.declaration(binding.target.name)
            self.topology.graph.check_standard_binding(method.exchange, declared.durable)
        self._attempt(
            method,
            TopologyMethod.OTHER,
            lambda: self.topology.bind(binding, self.owner),
            lambda _: QueueBindOk(),
        )

    def _queue_unbind(self, method: QueueUnbind) -> None:
        try:
            binding = self._queue_binding(method)
        except TopologyFault as fault:
            if not self.refuse(fault, method, TopologyMethod.UNBIND):
                self.reply(method, QueueUnbindOk())
            return
        if binding is not None:
            self._require_named(method.exchange)
            self._attempt(
                method,
                TopologyMethod.UNBIND,
                lambda: self.topology.unbind(binding),
                lambda _: QueueUnbindOk(),
            )

    def _require_named(self, exchange: str) -> None:
        """Refuse changes at the default exchange, as 0-9-1 does."""
        if exchange == DEFAULT_EXCHANGE and not self.is_0_9:
            raise TopologyFault(
                TopologyFaultKind.DEFAULT_EXCHANGE_BINDING,
                "every queue is bound to the default exchange by its name, and not otherwise",
            )

    def _queue_binding(self, method: QueueBind | QueueUnbind) -> ExchangeBinding | None:
        name = self.queue_of(method.queue, method)
        if name is None:
            return None
        key = method.routing_key
        if not method.queue and not key:
            key = name  # 09-QUEUE-28
        self.queues.queue(name, self.connection)
        self.require(Verb.CONSUME, exchange_node(method.exchange))
        self.require(Verb.CREATE, name)
        target = BindingTarget(TargetKind.QUEUE, name)
        return ExchangeBinding(method.exchange, target, key, method.arguments)

    def _queue_purge(self, method: QueuePurge) -> None:
        name = self.queue_of(method.queue, method)
        if name is None:
            return
        self.queues.queue(name, self.connection)
        self.require(Verb.CONSUME, name)
        self._attempt(
            method,
            TopologyMethod.OTHER,
            lambda: self.queues.purge(name, self.connection),
            lambda count: QueuePurgeOk(message_count=count or 0),
        )

    def _queue_delete(self, method: QueueDelete) -> None:
        name = self.queue_of(method.queue, method)
        if name is None:
            return
        self.require(Verb.CREATE, name)

        def delete() -> Deferred[int]:
            self.queues.queue(name, self.connection)
            return self.queues.delete(
                name,
                self.connection,
                self.owner,
                if_unused=method.if_unused,
                if_empty=method.if_empty,
            )

        self._attempt(
            method,
            TopologyMethod.DELETE,
            delete,
            lambda count: QueueDeleteOk(message_count=count or 0),
        )


def _waiting(queue: Queue) -> int:
    return queue.available + queue.deferred
