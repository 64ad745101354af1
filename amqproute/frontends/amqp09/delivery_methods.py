# SPDX-License-Identifier: Apache-2.0
"""Consumers, basic.get, qos, acknowledgements and recover on a channel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol, TypeAlias, cast

from amqproute.auth.policy import Verb
from amqproute.broker.alarm import Alarm
from amqproute.broker.exchanges.argument_rules import consumer_priority
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.queue import Queue
from amqproute.broker.reply_addresses import REPLY_QUEUE, reply_name
from amqproute.errors import (
    AmqpError,
    PreconditionFailed,
    ResourceLimitExceeded,
    UnauthorizedAccess,
)
from amqproute.frontends.amqp09.channel_consumer import (
    ChannelConsumer,
    HeldDelivery,
    QueueGetter,
)
from amqproute.frontends.amqp09.consumer_timeout import ConsumerTimeout, Outstanding
from amqproute.frontends.amqp09.direct_replies import DirectReplyConsumer
from amqproute.frontends.amqp09.prefetch import PrefetchWindow
from amqproute.frontends.amqp09.topology_methods import TopologyMethods
from amqproute.frontends.amqp09.tunnel_consumer import Consumer09
from amqproute.frontends.common.node_access import DYNAMIC
from amqproute.outcomes import ACCEPTED, FAILED, RELEASED, Outcome, Rejection
from amqproute.wire.amqp09.methods import (
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicQos,
    BasicQosOk,
    BasicQpidRecoverSync,
    BasicQpidRecoverSyncOk,
    BasicRecover,
    BasicRecoverOk,
    BasicRecoverSync,
    FileConsume,
    MessageConsume,
    MessageGet,
    StreamConsume,
)
from amqproute.wire.amqp09.protocol_events import AckReceived, DeliveriesSettled
from amqproute.wire.amqp09.replies import ReplyCode
from amqproute.wire.amqp09.shapes import AmqpMethod

__all__ = ["ConsumeMethod", "DeliveryMethods", "give_back"]

ConsumeMethod: TypeAlias = BasicConsume | FileConsume | MessageConsume | StreamConsume
"""A method that asks for a consumer."""

BOUND_SECONDS: Final = 30.0
"""How long a channel without room acknowledges nothing before the log says so."""


class _OfConsumer(Protocol):
    """What a client has not acknowledged."""

    @property
    def consumer(self) -> ChannelConsumer:
        """By which it was, or will be, delivered."""


OUTCOMES: Final[dict[AckReceived, Outcome]] = {
    AckReceived.ACKNOWLEDGED: ACCEPTED,
    AckReceived.REJECTED: Rejection(),
    AckReceived.REQUEUED: FAILED,
}
"""Outcome of each method of a client (09-M-09)."""


class DeliveryMethods(TopologyMethods):
    """Deliveries to a client on a channel.

    Attributes:
        consumers: by consumer tag.
        prefetch: the window of the channel.
        next_window: count and octets of the windows of consumers to come (0-9-1).
    """

    def _begin_deliveries(self) -> None:
        self.consumers: dict[str, ChannelConsumer] = {}
        self.prefetch = PrefetchWindow()
        self.next_window = (0, 0)
        self._getter: ChannelConsumer | None = None
        self._bound_alarm = Alarm(self.context.broker.clock)
        self._bound_tag = 0
        self._timeout = self.timeout_of(self.channel.unacknowledged)

    def delivery_handlers(self) -> dict[type[AmqpMethod], Callable[..., None]]:
        """Return what acts on each method."""
        return {
            BasicQos: self._qos,
            BasicConsume: self._consume,
            BasicCancel: self._cancel,
            BasicGet: self._get,
            BasicRecover: self._recover,
            BasicRecoverSync: self._recover,
            BasicQpidRecoverSync: self._recover,
        }

    # -- time to acknowledge ---------------------------------------------------------------------

    def timeout_of(self, unacknowledged: Outstanding) -> ConsumerTimeout:
        """Return what closes the channel when something is not acknowledged in time."""
        clock = self.context.broker.clock
        return ConsumerTimeout(clock, unacknowledged, self._seconds_of, self._overdue)

    def delivered(self) -> None:
        """See `ChannelBase.delivered`."""
        self._timeout.watch()

    def _seconds_of(self, context: object) -> float:
        """Return how long a delivery may be unacknowledged, by its queue or the setting."""
        limits = getattr(cast(_OfConsumer, context).consumer.source, "limits", None)
        ms = limits.consumer_timeout_ms if isinstance(limits, QueueLimits) else None
        return self.context.consumer_seconds if ms is None else ms / 1000

    def _overdue(self, seconds: float) -> None:
        self.fail(
            ReplyCode.PRECONDITION_FAILED,
            f"delivery acknowledgement on channel {self.channel.number} timed out. Timeout value "
            f"used: {round(seconds * 1000)} ms",
        )

    # -- what the client may hold ----------------------------------------------------------------

    def bound_reached(self) -> None:
        """See `ChannelBase.bound_reached`: log it if nothing is acknowledged for a while."""
        if not self._bound_alarm.is_set:
            oldest = self.channel.unacknowledged.oldest
            self._bound_alarm.set(BOUND_SECONDS, partial(self._look_at_bound, oldest))

    def _look_at_bound(self, oldest: int) -> None:
        held = self.channel.unacknowledged
        if len(held) < self.connection.limits.unsettled or held.oldest != oldest:
            return
        if oldest == self._bound_tag:
            return  # the log says so already
        self._bound_tag = oldest
        self.connection.error_log.add(
            "{connection} ({principal}) channel {channel} has {count} deliveries and acknowledges "
            "none of them: it gets no more until it does (limits.unsettled-per-link)",
            channel=self.channel.number,
            count=len(held),
        )

    # -- qos -------------------------------------------------------------------------------------

    def _qos(self, method: BasicQos) -> None:
        """Set a window. In 0-9-1 `global` means what its clients know (09: part 4.4)."""
        count, size = method.prefetch_count, method.prefetch_size
        if method.global_:
            window = self.host.prefetch if self.is_0_9 else self.prefetch
        elif self.is_0_9:
            window = self.prefetch
        else:
            self.next_window = (count, size)
            window = PrefetchWindow()
        window.count, window.size = count, size
        self.reply(method, BasicQosOk())
        self.dispatch()

    # -- consumers -------------------------------------------------------------------------------

    def _consume(self, method: BasicConsume) -> None:
        if method.queue == REPLY_QUEUE:
            self._consume_replies(method)
            return
        found = self.consumer_source(method)
        if found is None:
            return
        name, queue = found
        windows = [self.prefetch]
        windows.append(self.host.prefetch if self.is_0_9 else PrefetchWindow(*self.next_window))
        kind = Consumer09 if self.is_0_9 else ChannelConsumer
        consumer = kind(self, queue, name, method.consumer_tag, method.no_ack, windows)
        self.start_consumer(consumer, method, BasicConsumeOk(consumer_tag=method.consumer_tag))

    def consumer_source(
        self, method: ConsumeMethod, in_use: type[AmqpError] = UnauthorizedAccess
    ) -> tuple[str, Queue] | None:
        """Return the queue for a new consumer, and its name as the client writes it.

        Args:
            method: that asks for a consumer.
            in_use: the error where the queue is in exclusive use.

        Returns:
            None where no queue was declared on the channel, which is over for that.

        Raises:
            AmqpError: the client may have no consumer there.
            TopologyFault: there is no such queue.
        """
        name = self.queue_of(method.queue, method)
        if name is None:
            return None
        queue = self._source(name)
        exclusive = self.host.amqp09.exclusive_consumers
        if queue.name in exclusive or (method.exclusive and queue.consumers):
            raise in_use(f"queue '{name}' in exclusive use")
        queue.check_source(copies=False)
        self._require_link()
        return name, queue

    def start_consumer(
        self,
        consumer: ChannelConsumer,
        method: ConsumeMethod,
        answer: AmqpMethod | Callable[[], None],
    ) -> None:
        """Have a new consumer served.

        Args:
            consumer: the consumer of a queue that `consumer_source` has returned.
            method: that asks for it.
            answer: what the client is told before the first delivery; or tells it.
        """
        queue, mine = consumer.source, self.host.origin_name
        assert isinstance(queue, Queue)
        consumer.priority = consumer_priority(method.filter)
        self.consumers[consumer.tag] = consumer
        if method.exclusive:
            self.host.amqp09.exclusive_consumers[queue.name] = consumer
        if callable(answer):
            answer()
        else:
            self.reply(method, answer)
        queue.attach(consumer, consumer.selection(mine if method.no_local else None))
        self.queues.used(consumer.address or "")
        queue.dispatch()

    def _require_link(self) -> None:
        if self.connection.link_count >= self.connection.limits.links:
            raise ResourceLimitExceeded(
                f"a connection has {self.connection.limits.links} consumers and publishing "
                "channels at most (limits.max-links)"
            )

    def _consume_replies(self, method: BasicConsume) -> None:
        """Have replies delivered to requests of this channel (direct reply-to)."""
        if not method.no_ack:
            raise PreconditionFailed("replies by direct reply-to cannot be acknowledged")
        if self.reply_address is not None:
            raise PreconditionFailed("the channel has a consumer of direct reply-to")
        self._require_link()
        self.context.nodes.require(self.connection.principal, (Verb.CREATE,), DYNAMIC)
        name = reply_name(self.host.amqp09.new_name())
        queue = self.queues.open_reply_queue(name, self.owner)
        tag = method.consumer_tag
        self.reply_address = name
        self.consumers[tag] = consumer = DirectReplyConsumer(self, queue, name, tag)
        self.reply(method, BasicConsumeOk(consumer_tag=tag))
        queue.attach(consumer)

    def _source(self, name: str) -> Queue:
        queue = self.queues.queue(name, self.connection)
        self.require(Verb.CONSUME, name)
        return queue

    def consumer_over(self, consumer: object) -> None:
        """See `ChannelBase.consumer_over`."""
        if not isinstance(consumer, ChannelConsumer):
            return
        if self.consumers.get(consumer.tag) is consumer:
            del self.consumers[consumer.tag]
        exclusive = self.host.amqp09.exclusive_consumers
        name = consumer.source.name
        if exclusive.get(name) is consumer:
            del exclusive[name]

    def _cancel(self, method: BasicCancel) -> None:
        self.cancel_consumer(method.consumer_tag)
        self.reply(method, BasicCancelOk(consumer_tag=method.consumer_tag))

    def cancel_consumer(self, tag: str) -> None:
        """End a consumer at its client's request, if there is one."""
        consumer = self.consumers.get(tag)
        if consumer is not None:
            consumer.stop()

    # -- get -------------------------------------------------------------------------------------

    def _get(self, method: BasicGet) -> None:
        self.start_get(method, lambda queue, name: QueueGetter(self, queue, name, method))

    def start_get(
        self, method: BasicGet | MessageGet, make: Callable[[Queue, str], ChannelConsumer]
    ) -> None:
        """Take one message; what follows on the channel waits until there is an answer.

        Args:
            method: asks for it.
            make: returns who takes it, of a queue and its name as the client writes it.

        Raises:
            AmqpError: the client may not.
            TopologyFault: there is no such queue.
        """
        name = self.queue_of(method.queue, method)
        if name is None:
            return
        queue = self._source(name)
        queue.check_source(copies=False)
        self.queues.used(name)
        self._getter = getter = make(queue, name)
        self._is_busy = True
        queue.attach(getter, getter.selection(None))
        queue.dispatch()

    def answered_get(self, getter: object) -> None:
        """See `ChannelBase.answered_get`."""
        if self._getter is getter:
            self._getter = None
            self._is_busy = False
            self.connection.event_batch.afterwards(self.resume)

    # -- what comes back -------------------------------------------------------------------------

    def settled(self, event: DeliveriesSettled) -> None:
        """The client has acknowledged or refused deliveries."""
        outcome = OUTCOMES[event.settlement]
        contexts = cast(Sequence[HeldDelivery], event.contexts)
        transaction = self.transaction()
        if transaction is None:
            for consumer, deliveries in _by_consumer(contexts):
                consumer.settle(deliveries, outcome)
            return
        for tag, held in zip(event.tags, contexts, strict=True):
            transaction.retire(held.consumer, (tag, held), held.entry, outcome, False)

    def _recover(self, method: BasicRecover | BasicRecoverSync | BasicQpidRecoverSync) -> None:
        again = self.recover(method.requeue)
        if isinstance(method, BasicRecoverSync):
            self.reply(method, BasicRecoverOk())
        elif isinstance(method, BasicQpidRecoverSync):
            self.reply(method, BasicQpidRecoverSyncOk())
        for consumer in again:
            consumer.send_behind()
        self.dispatch()

    def recover(self, requeue: bool) -> list[ChannelConsumer]:
        """Have everything unacknowledged delivered again.

        Args:
            requeue: by its queue, to anybody; else by its consumer, as far as it is there.

        Returns:
            Consumers that have something to send again.
        """
        taken = self.channel.unacknowledged.take_all()
        contexts = cast(Sequence[HeldDelivery], [context for _, context in taken])
        again: list[ChannelConsumer] = []
        for consumer, deliveries in _by_consumer(contexts):
            if requeue or not consumer.is_active or consumer.is_momentary:
                consumer.settle(deliveries, RELEASED)  # I-27
                continue
            again.append(consumer)
            for each in deliveries:
                consumer.send_again(each)
        return again

    def dispatch(self) -> None:
        """Have more delivered: windows, or the client's flow, have opened."""
        for consumer in tuple(self.consumers.values()):
            consumer.send_behind()
            consumer.dispatch()
        if self._getter is not None:
            self._getter.dispatch()

    def _end_deliveries(self) -> None:
        """Give back what was delivered and not acknowledged: the channel is over."""
        self._timeout.stop()
        self._bound_alarm.stop()
        self.drop_sending()
        getter, self._getter = self._getter, None
        if getter is not None:
            getter.stop()
        for consumer in tuple(self.consumers.values()):
            consumer.stop()
        taken = self.channel.unacknowledged.take_all()
        contexts = cast(Sequence[HeldDelivery], [context for _, context in taken])
        for consumer, deliveries in _by_consumer(contexts):
            consumer.settle(deliveries, RELEASED)


def give_back(event: DeliveriesSettled) -> None:
    """Give deliveries back to their queues: the client's word came when its channel was over.

    Their tags are not unacknowledged any more, so the end of the channel has not released them.
    """
    for consumer, deliveries in _by_consumer(cast(Sequence[HeldDelivery], event.contexts)):
        consumer.settle(deliveries, RELEASED)


def _by_consumer(
    deliveries: Iterable[HeldDelivery],
) -> list[tuple[ChannelConsumer, list[HeldDelivery]]]:
    """Group deliveries by consumer; the order of each stays."""
    deliveries = list(deliveries)
    if len({id(each.consumer) for each in deliveries}) == 1:
        return [(deliveries[0].consumer, deliveries)]
    found: dict[ChannelConsumer, list[HeldDelivery]] = {}
    for each in deliveries:
        found.setdefault(each.consumer, []).append(each)
    return list(found.items())
