# SPDX-License-Identifier: Apache-2.0
"""Events of one channel in order, each handled when the one before it is done."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Final

from amqproute.auth.policy import Verb
from amqproute.broker.exchanges.topology_fault import TopologyFault
from amqproute.errors import AmqpError, NotImplementedHere, UnauthorizedAccess
from amqproute.frontends.amqp09.channel_base import ChannelHost
from amqproute.frontends.amqp09.channel_consumer import ChannelConsumer
from amqproute.frontends.amqp09.channel_publisher import ChannelPublisher
from amqproute.frontends.amqp09.class_methods import ClassMethods
from amqproute.frontends.amqp09.class_publish import ClassPublish
from amqproute.frontends.amqp09.class_registry import CLASSES
from amqproute.frontends.amqp09.transaction_methods import TransactionMethods
from amqproute.frontends.common.client_connection import ClientConnection
from amqproute.frontends.common.node_endpoint import NodeEndpoint
from amqproute.wire.amqp09 import protocol_events as ev
from amqproute.wire.amqp09.channel import Channel
from amqproute.wire.amqp09.contents import Publish
from amqproute.wire.amqp09.methods import (
    BasicAck,
    BasicGet,
    BasicPublish,
    ConfirmSelect,
    ConfirmSelectOk,
    FileAck,
    FileReject,
    MessageGet,
    MessageOk,
    MessageReject,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
)
from amqproute.wire.amqp09.shapes import AmqpMethod

__all__ = ["ChannelFrontend"]

_ACK: Final = BasicAck()
_PUBLISH: Final = BasicPublish()
_LOOKS_AT_QUEUES: Final = frozenset((BasicGet, MessageGet, QueueDeclare, QueuePurge, QueueDelete))
"""Methods whose answer depends on what is on a queue."""
_DONE_AT_THE_END: Final = (
    ev.PublishesReceived,
    ev.ContentPartReceived,
    ev.ContentsReceived,
    ev.DeliveriesSettled,
)
"""Events that are acted on although their channel is over."""
_SETTLING: Final = frozenset((FileAck, FileReject, MessageOk, MessageReject))
"""Methods of which the same is true: they settle deliveries."""


class ChannelFrontend(TransactionMethods):
    """One open channel.

    Args:
        connection: its connection.
        host: the same, as the host of channels.
        channel: the channel of the engine.

    Attributes:
        publisher: what the client publishes by; None until it does.
        classes: by id, those of the classes that only 0-9 has that the client has used.
    """

    def __init__(self, connection: ClientConnection, host: ChannelHost, channel: Channel) -> None:
        super().__init__(connection, host, channel)
        self._begin_deliveries()
        self.publisher: ChannelPublisher | None = None
        # By id, the classes that only 0-9 has, as far as the client uses them.
        self.classes: dict[int, ClassMethods] = {}
        # Events that wait for the method before them.
        self._backlog: deque[object] = deque()
        self._handlers: dict[type[AmqpMethod], Callable[..., None]] = {
            **self.topology_handlers(),
            **self.delivery_handlers(),
            **self.transaction_handlers(),
            ConfirmSelect: lambda method: self.reply(method, ConfirmSelectOk()),
        }

    # -- events ----------------------------------------------------------------------------------

    def take(self, event: object) -> None:
        """Act on an event of this channel, when it is its turn."""
        if self._is_busy or self._backlog:
            self._backlog.append(event)
            self.host.throttle(self)
        else:
            self._act(event)

    def resume(self) -> None:
        """See `ChannelBase.resume`."""
        if not self._backlog:
            return
        with self.connection.event_batch:
            while self._backlog and not self._is_busy and not self.is_ended:
                self._act(self._backlog.popleft())
        if not self._backlog:
            self.host.unthrottle(self)
        self.connection.flush()

    def attempt(self, act: Callable[[], None], method: AmqpMethod) -> None:
        """See `TransactionMethods.attempt`."""
        try:
            act()
        except (AmqpError, TopologyFault) as error:
            self.refuse(error, method)

    def _act(self, event: object) -> None:
        method: AmqpMethod = _PUBLISH
        try:
            match event:
                case ev.PublishesReceived(publishes=publishes):
                    self._publisher().publish(publishes)
                case ev.DeliveriesSettled():
                    method = _ACK
                    self.settled(event)
                case ev.MethodReceived(method=method):
                    self._call(method)
                case ev.FlowChanged(active=active):
                    if active:
                        self.dispatch()
                case ev.ContentPartReceived(content=content):
                    if isinstance(content, Publish):
                        self._publisher().take_part(event)
                    else:
                        method = content.method
                        self._class_of(method).take_part(event)
                case ev.ContentsReceived(contents=contents):
                    for methods, some in groupby(contents, lambda each: type(each.method)):
                        method = methods()
                        self._class_of(method).take_contents(list(some))
        except (AmqpError, TopologyFault) as error:
            self.refuse(error, method)

    def _call(self, method: AmqpMethod) -> None:
        publisher = self.publisher
        if type(method) in _LOOKS_AT_QUEUES and publisher is not None and publisher.is_under_way:
            # Whoever publishes and asks then expects to find what was published.
            self._is_busy = True
            publisher.when_idle.append(
                lambda: self._resumed(lambda: self._call_now(method), method)
            )
        else:
            self._call_now(method)

    def _call_now(self, method: AmqpMethod) -> None:
        handler = self._handlers.get(type(method))
        if handler is None:
            handler = self._class_of(method).handler(method)
        if handler is None:
            raise NotImplementedHere(f"{method.traits.name} is not offered")
        if not self.is_0_9 or self.check_ticket(method):
            handler(method)

    def _class_of(self, method: AmqpMethod) -> ClassMethods:
        """Return the class of a method, of those that only 0-9 has.

        Raises:
            NotImplementedHere: it is not offered.
        """
        class_id = method.traits.class_id
        found = self.classes.get(class_id)
        if found is None:
            make = CLASSES.get(class_id)
            if make is None:
                raise NotImplementedHere(f"{method.traits.name} is not offered")
            found = self.classes[class_id] = make(self)
        return found

    def publish_class(self, publishes: Sequence[ClassPublish]) -> None:
        """See `TransactionMethods.publish_class`."""
        self._publisher().publish_class(publishes)

    def begin_publishing(self) -> None:
        """See `TransactionMethods.begin_publishing`."""
        principal = self.connection.principal
        if not self.host.amqp09.realms.grants(principal, Verb.PUBLISH):
            raise UnauthorizedAccess(f"{principal} may publish to no node, and so stage nothing")
        self._publisher().begin()

    def publish_part(self, event: ev.ContentPartReceived) -> bool:
        """See `TransactionMethods.publish_part`."""
        return self._publisher().take_part(event)

    def when_part_written(self, go: Callable[[], None]) -> None:
        """See `TransactionMethods.when_part_written`."""
        self._publisher().when_part_written(go)

    def drop_parts(self) -> None:
        """See `TransactionMethods.drop_parts`."""
        if self.publisher is not None:
            self.publisher.drop_arriving()

    def _publisher(self) -> ChannelPublisher:
        publisher = self.publisher
        if publisher is None:
            publisher = self.publisher = ChannelPublisher(self)
            publisher.join(self.connection.contract)
        return publisher

    def when_published(self, act: Callable[[], None]) -> bool:
        """See `TransactionMethods.when_published`."""
        publisher = self.publisher
        if publisher is None or not publisher.waiting.lines:
            return False
        publisher.when_put.append(act)
        return True

    def dispatch(self) -> None:
        """See `ChannelBase.dispatch`."""
        super().dispatch()
        for each in self.classes.values():
            each.dispatch()

    # -- end -------------------------------------------------------------------------------------

    def end(self) -> None:
        """See `ChannelBase.end`. What was published before is put all the same."""
        if self.is_ended:
            return
        backlog, self._backlog = self._backlog, deque()
        self.is_ended = True
        with self.connection.event_batch:
            for event in backlog:
                if isinstance(event, _DONE_AT_THE_END) or (
                    isinstance(event, ev.MethodReceived) and type(event.method) in _SETTLING
                ):
                    self._act(event)
            self._end_transactions()
            for each in self.classes.values():
                each.end()
            self._end_deliveries()
        # They know the channel, and would keep each other in memory.
        self._handlers.clear()
        self.classes.clear()
        publisher, self.publisher = self.publisher, None
        if publisher is not None:
            publisher.drop_arriving()
            publisher.drop_waiting()
            publisher.leave()
            self.host.unthrottle(publisher)
        self.host.unthrottle(self)
        if self.is_0_9:
            self.host.tickets.end(self.virtual_host, self)

    # -- for the daemon and its operators ----------------------------------------------------------

    def endpoints(self) -> list[NodeEndpoint]:
        """Return what the channel has at nodes."""
        found: list[NodeEndpoint] = list(self.consumers.values())
        if self.publisher is not None:
            found.append(self.publisher)
        if self._getter is not None:
            found.append(self._getter)
        return found

    def index(self) -> Iterator[tuple[str, Callable[[str], dict[str, object]]]]:
        """Return the names of the rows of the channel, each with a function that makes it."""
        name = f"channel {self.channel.number}"
        yield name, self._channel_row
        for consumer in tuple(self.consumers.values()):
            yield consumer.name, partial(self._consumer_row, consumer)
        for each in self.classes.values():
            for row in each.rows():
                made = {**self._row(name, "channel", None), **row}
                yield str(made["name"]), partial(_itself, made)
        if self._getter is not None:
            yield self._getter.name, self._getter_row

    def _channel_row(self, name: str) -> dict[str, object]:
        """Describe the channel (G-17)."""
        channel, publisher = self.channel, self.publisher
        return {
            **self._row(name, "channel", None),
            "credit": 0 if publisher is None else publisher.granted,
            "unsettled": len(channel.unacknowledged),
            "mode": _mode(channel),
            "unconfirmed": 0 if channel.confirms is None else channel.confirms.outstanding,
            "node": getattr(None if publisher is None else publisher.node, "name", None),
        }

    def _consumer_row(self, consumer: ChannelConsumer, name: str) -> dict[str, object]:
        if self.consumers.get(consumer.tag) is not consumer:
            raise KeyError(name)  # it has gone meanwhile
        return {
            **self._row(name, "consumer", consumer.address),
            "credit": 0,
            "unsettled": consumer.unacknowledged,
            "deliveries": consumer.delivered,
            "delivery-count": consumer.delivered,
            "consumer-tag": consumer.tag,
            "prefetch": consumer.prefetch,
            "no-ack": consumer.no_ack,
            "priority": consumer.priority,
            "node": consumer.source.name,
            **consumer.class_facts(),
        }

    def _getter_row(self, name: str) -> dict[str, object]:
        getter = self._getter
        if getter is None:
            raise KeyError(name)  # it has gone meanwhile
        return {
            **self._row(name, "get", getter.address),
            "credit": 0,
            "unsettled": getter.unacknowledged,
            "node": getter.source.name,
        }

    def _row(self, name: str, kind: str, address: str | None) -> dict[str, object]:
        connection = self.connection
        direction = "in" if kind == "channel" else "out"
        return {
            **connection.link_row(name, kind, direction, address),
            "container": f"channel {self.channel.number}",
            "protocol": connection.journal_protocol,
            "channel": self.channel.number,
            "deliveries": self.channel.unacknowledged.last,
            "delivery-count": self.channel.unacknowledged.last,
            "is-waiting": False,
        }


def _itself(row: dict[str, object], name: str) -> dict[str, object]:
    return row


def _mode(channel: Channel) -> str:
    """Return what commits what is published on a channel."""
    if channel.is_transacted:
        return "branch" if channel.is_distributed else "transactions"
    return "none" if channel.confirms is None else "confirms"
