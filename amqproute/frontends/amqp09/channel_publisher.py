# SPDX-License-Identifier: Apache-2.0
"""What a client publishes on a channel: through exchanges to queues, and to other organizations.

There is no credit in 0-9. What a client may still send is counted all the same, and where nothing
is left the connection is not read: so a slow disk, a contract and a full disk slow a publisher down
by the transport alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute.address import exchange_node, in_host
from amqproute.auth.policy import Verb
from amqproute.broker.commit_batch import Batch
from amqproute.broker.exchanges.carbon_copies import routing_keys
from amqproute.broker.exchanges.topology_fault import TopologyFault
from amqproute.broker.local_transaction import Transaction
from amqproute.broker.publish_gate import PublishGate
from amqproute.broker.queue import Queue
from amqproute.conditions import Condition
from amqproute.errors import (
    AmqpError,
    NotFound,
    PreconditionFailed,
    ResourceDeleted,
    ResourceLimitExceeded,
    Unresolved,
)
from amqproute.frontends.amqp09.channel_base import ChannelBase
from amqproute.frontends.common.publishing_endpoint import PublishingEndpoint
from amqproute.frontends.common.waiting_deliveries import WaitingDeliveries
from amqproute.interfaces import ITarget
from amqproute.message import Message
from amqproute.translation.content_message import ContentRefused, TranslatedContent, read_content
from amqproute.values import NextHop, Origin, Principal
from amqproute.wire.amqp09.contents import Publish
from amqproute.wire.amqp09.replies import ReplyCode

__all__ = ["ChannelPublisher", "PublishedContent"]

MOST_WAYS: Final = 64
"""Addresses whose ways a channel remembers."""
_NO_HEADERS: Final[dict[str, object]] = {}


class PublishedContent:
    """A publish on its way in.

    Attributes:
        publish: as it came.
        payload: its body.
        settled: nobody waits for a confirm.
        tag: the number that it is confirmed by, for the journal.
    """

    __slots__ = ("payload", "publish", "settled", "tag")

    def __init__(self, publish: Publish) -> None:
        self.publish = publish
        self.payload = publish.body
        self.settled = not publish.number
        self.tag = b"%d" % publish.number


@implementer(ITarget)
class _Exchanges:
    """All exchanges as one target: where each message goes is decided when it comes."""

    name = "(exchanges)"

    def space(self) -> int:
        """See `ITarget.space`: queues page."""
        return 1 << 31

    def when_space(self, notify: Callable[[], None]) -> None:
        """See `ITarget.when_space`: there is always space."""

    def put(self, message: Message, batch: Batch, origin: Origin) -> None:
        """See `ITarget.put`; each publish has targets of its own."""
        raise NotFound("exchanges are published to one by one")


EXCHANGES: Final = _Exchanges()


@implementer(ITarget)
class RoutedTarget:
    """Where one message goes, as a target for a transaction.

    Args:
        publisher: whose message it is.
        exchange: to which it was published.
        targets: queues and ways.
    """

    __slots__ = ("_publisher", "exchange", "name", "targets")

    def __init__(
        self, publisher: ChannelPublisher, exchange: str, targets: Sequence[ITarget]
    ) -> None:
        self._publisher = publisher
        self.exchange = exchange
        self.targets = targets
        self.name = in_host(publisher.topology.host, exchange_node(exchange))

    def space(self) -> int:
        """See `ITarget.space`."""
        return min(target.space() for target in self.targets)

    def when_space(self, notify: Callable[[], None]) -> None:
        """See `ITarget.when_space`."""
        self.targets[0].when_space(notify)

    def put(self, message: Message, batch: Batch, origin: Origin) -> None:
        """See `ITarget.put`."""
        topology = self._publisher.topology
        topology.put(self.exchange, self.targets, message, batch, origin)


class ChannelPublisher(PublishingEndpoint):
    """The publishing end of a channel.

    Args:
        owner: the channel.
    """

    __slots__ = (
        "_granted",
        "_owner",
        "_ways",
        "is_durable",
        "topology",
        "waiting",
        "when_idle",
        "when_put",
    )

    def __init__(self, owner: ChannelBase) -> None:
        connection = owner.connection
        principal = connection.principal
        super().__init__(
            connection,
            EXCHANGES,
            Origin(
                principal,
                is_peer=principal.kind == "peer",
                container_id=owner.host.origin_name,
                connection=connection.facts.remote,
                link=f"channel {owner.channel.number}",
                level=connection.facts.level,
            ),
            connection.limits.link_credit,
        )
        self._owner = owner
        self.is_durable = False
        self.topology = owner.topology
        self._granted = 0
        self._ways: dict[str, ITarget] = {}
        self.waiting: WaitingDeliveries[PublishedContent] = WaitingDeliveries(
            self._gate, connection
        )
        self.when_idle: list[Callable[[], None]] = []
        self.when_put: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<ChannelPublisher {self._owner.channel.number} uncommitted={self._uncommitted}>"

    # -- NodeEndpoint ----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """See `NodeEndpoint.name`."""
        return f"channel {self._owner.channel.number}"

    @property
    def address(self) -> str | None:
        """See `NodeEndpoint.address`: each message has its own."""
        return None

    @property
    def is_active(self) -> bool:
        """See `NodeEndpoint.is_active`."""
        return self._owner.channel.is_open

    def check_access(self, principal: Principal) -> None:
        """See `NodeEndpoint.check_access`: the rights are asked for with each message."""

    def detach(self, condition: Condition, words: str) -> None:
        """See `NodeEndpoint.detach`."""
        self._owner.fail(ReplyCode.CONNECTION_FORCED, words)

    # -- what may come ---------------------------------------------------------------------------

    @property
    def granted(self) -> int:
        """Publishes that are taken before the client is slowed down."""
        return self._granted

    def _send_credit(self, credit: int) -> None:
        self._granted = credit
        if credit > 0:
            self._owner.host.unthrottle(self)
        else:
            self._owner.host.throttle(self)

    @property
    def waiting_octets(self) -> int:
        """Octets of messages that have come and are not put yet."""
        return sum([len(each.payload) for each in self.waiting.deliveries()])

    # -- messages --------------------------------------------------------------------------------

    def publish(self, publishes: Sequence[Publish]) -> None:
        """Take a run of publishes."""
        deliveries = [PublishedContent(each) for each in publishes]
        if self.share is not None:
            self.share.received(len(deliveries), sum([len(each.payload) for each in deliveries]))
        self._connection.event_batch.put(self, deliveries)
        self._granted -= len(deliveries)
        if self._granted <= 0:
            self._granted = 0
            self._owner.host.throttle(self)
            self.grant()

    def received(
        self, deliveries: Sequence[PublishedContent], batch: Batch
    ) -> list[PublishedContent]:
        """See `PublishingLink.received`."""
        published: list[PublishedContent] = []
        done: list[PublishedContent] = []
        refused: list[PublishedContent] = []
        self._uncommitted += len(deliveries)
        was_open = self._owner.channel.is_open
        for place, delivery in enumerate(deliveries):
            try:
                if self.waiting.lines:
                    self.waiting.wait_behind(delivery)
                elif self._take(delivery, batch):
                    published.append(delivery)
                else:
                    done.append(delivery)
            except Unresolved as unresolved:
                self._wait_for(delivery, unresolved.hop)
            except (ResourceLimitExceeded, ResourceDeleted, NotFound) as error:
                self._owner.connection.error_log.message_refused(
                    self.name, delivery.publish.method.exchange or "(default exchange)", error
                )
                refused.append(delivery)
                transaction = self._owner.transaction()
                if transaction is not None:
                    transaction.fail(error)
            except (AmqpError, TopologyFault) as error:
                self._owner.refuse(error, delivery.publish.method)
                self._uncommitted -= 1
            if was_open and not self._owner.channel.is_open:
                self._uncommitted -= len(deliveries) - place - 1
                break  # what comes behind is not taken (09-CHAN-17)
        self._uncommitted -= len(done) + len(refused)
        self._confirm(done)
        self._confirm(refused, is_taken=False)
        return published

    def _take(self, delivery: PublishedContent, batch: Batch) -> bool:
        """Put a message where it goes; False if it is answered and goes nowhere.

        Raises:
            AmqpError: it is refused.
            TopologyFault: the same.
            Unresolved: it is not known yet whether there is a way.
        """
        publish = delivery.publish
        method, properties = publish.method, publish.properties
        exchange = method.exchange
        topology = self.topology
        topology.graph.check_publish(exchange)
        if exchange:
            self._owner.require(Verb.PUBLISH, exchange_node(exchange))
        try:
            content = read_content(properties, publish.property_octets, self._owner.is_0_9)
        except ContentRefused as error:
            raise PreconditionFailed(str(error)) from None
        headers = _NO_HEADERS if properties.headers is None else properties.headers
        keys = routing_keys(method.routing_key, headers)
        outcome = topology.graph.route(exchange, keys, headers)
        queues = topology.queues_of(outcome)
        if not exchange:
            for name in outcome.queues:
                self._owner.require(Verb.PUBLISH, name)
        ways: list[tuple[str, ITarget]] = []
        for address in outcome.addresses:
            try:
                ways.append((address, self._way(address)))
            except NotFound as error:
                if method.mandatory:
                    self._return(publish, ReplyCode.NO_ROUTE, error.description)
                    return False
                raise
        if method.immediate and (ways or not all(map(_is_awaited, queues))):
            # Elsewhere nobody can be known to wait (09-M-05).
            self._return(publish, ReplyCode.NO_CONSUMERS, "nobody can take it at once")
            return False
        if not queues and not ways:
            if method.mandatory:
                self._return(publish, ReplyCode.NO_ROUTE, "no queue is bound for it")
            return False
        for targets, to in _parts(queues, ways):
            message = self._message(content, delivery, to)
            self._put_on(targets, exchange, message, batch, delivery)
        return not self._owner.channel.is_transacted

    def _message(
        self, content: TranslatedContent, delivery: PublishedContent, to: str | None
    ) -> Message:
        method = delivery.publish.method
        try:
            encoded = content.message(delivery.payload, method.exchange, method.routing_key, to)
        except ContentRefused as error:
            raise PreconditionFailed(str(error)) from None
        message = Message(encoded)
        most = self._connection.limits.header_bytes
        if message.bare_from > most:
            raise PreconditionFailed(f"properties of {message.bare_from} octets; {most} are taken")
        return self._connection.context.nodes.admitted(message.received(), self.origin)

    def _put_on(
        self,
        targets: Sequence[ITarget],
        exchange: str,
        message: Message,
        batch: Batch,
        delivery: PublishedContent,
    ) -> None:
        origin = self.origin
        origin.tag = delivery.tag
        transaction: Transaction | None = self._owner.transaction()
        target = RoutedTarget(self, exchange, targets)
        if transaction is not None:
            transaction.post(self, _Posted(delivery), target, message, origin)
            return
        account, share = origin.account, self.share
        if account is None or share is None:
            self.topology.put(exchange, targets, message, batch, origin)
            return
        before = account.octets
        self.topology.put(exchange, targets, message, batch, origin)
        share.contract.charged(max(account.octets - before, message.size))

    def _way(self, address: str) -> ITarget:
        """Return the target of an address; see `NodeAccess.target`."""
        nodes = self._connection.context.nodes
        way = self._ways.get(address)
        if way is None:
            way = nodes.target(address, self._connection.principal)
            if not isinstance(way, Queue):  # that may go
                if len(self._ways) >= MOST_WAYS:
                    self._ways.clear()
                self._ways[address] = way
        else:
            nodes.require(self._connection.principal, (Verb.PUBLISH,), address)
        return way

    def _return(self, publish: Publish, code: ReplyCode, words: str) -> None:
        channel = self._owner.channel
        if channel.is_open and not channel.may_deliver:
            # It cannot be kept either: whoever stops contents may publish on without end.
            raise PreconditionFailed(f"a message comes back while contents are stopped: {words}")
        if channel.is_open:
            channel.return_content(publish, code, f"{code.name} - {words}")

    # -- what waits ------------------------------------------------------------------------------

    def _wait_for(self, delivery: PublishedContent, hop: NextHop) -> None:
        self.waiting.wait_for(hop, delivery)
        self._connection.admit(hop).addBoth(lambda _: self.waiting.over(hop, self._put_waiting))

    def _put_waiting(self, deliveries: list[PublishedContent]) -> None:
        self._uncommitted -= len(deliveries)
        self._connection.event_batch.put_now(self, deliveries)
        if not self.waiting.lines:
            ready, self.when_put = self.when_put, []
            for each in ready:
                each()

    def wait_for(self, gate: PublishGate, deliveries: list[PublishedContent]) -> None:
        """See `PublishingLink.wait_for`."""
        if not self._owner.channel.is_open:
            # Whoever wants confirms sends again what has none.
            kept = [each for each in deliveries if each.settled]
            self._uncommitted -= len(deliveries) - len(kept)
            deliveries = kept
        self.waiting.wait_for_gate(deliveries, self._gate_opened)
        self._look()

    def _gate_opened(self) -> None:
        self.waiting.over(self._gate, self._put_waiting)

    def drop_waiting(self) -> None:
        """The channel has gone: let go of what its client will send again."""
        self._uncommitted -= len(self.waiting.take_failed(lambda each: not each.settled))

    # -- answers ---------------------------------------------------------------------------------

    @property
    def is_under_way(self) -> bool:
        """Something that was put is not on its queue yet."""
        return self._uncommitted > len(self.waiting.deliveries())

    def _look(self) -> None:
        if self.when_idle and not self.is_under_way:
            ready, self.when_idle = self.when_idle, []
            for each in ready:
                each()

    def committed(self, deliveries: list[PublishedContent]) -> None:
        """See `PublishingLink.committed`."""
        self._uncommitted -= len(deliveries)
        self._confirm(deliveries)
        self.grant()
        self._connection.flush()
        self._look()

    def failed(
        self, deliveries: list[PublishedContent], failure: Failure, in_doubt: bool = False
    ) -> None:
        """See `PublishingLink.failed`."""
        self._uncommitted -= len(deliveries)
        self._confirm(deliveries, is_taken=False)
        if any(each.settled for each in deliveries) and self._owner.channel.is_open:
            self._owner.fail(ReplyCode.INTERNAL_ERROR, "the message store failed")
        self.grant()
        self._look()

    def _confirm(self, deliveries: Iterable[PublishedContent], is_taken: bool = True) -> None:
        channel = self._owner.channel
        if not channel.is_open:
            return
        tell = channel.confirm if is_taken else channel.reject
        for first, last in _runs(deliveries):
            tell(first, last)

    # -- transactions; see `local_transaction.Poster` ----------------------------------------------

    def concluded(self, deliveries: Sequence[object], is_committed: bool) -> None:
        """A transaction has ended; its channel answers for all of it."""
        self.grant()


class _Posted:
    """A publish in a transaction, as transactions know it."""

    __slots__ = ("context", "delivery", "state", "tag")

    def __init__(self, delivery: PublishedContent) -> None:
        self.delivery = delivery
        self.context: object = None
        self.state: object = None
        self.tag = delivery.tag


def _parts(
    queues: list[ITarget], ways: list[tuple[str, ITarget]]
) -> Iterator[tuple[list[ITarget], str | None]]:
    """Divide targets by the `to` that the message needs there."""
    for address, way in ways:
        yield [way], address
    if queues:
        yield queues, None


def _runs(deliveries: Iterable[PublishedContent]) -> Iterator[tuple[int, int]]:
    """Return runs of successive numbers, first and last of each."""
    first = last = 0
    for number in sorted([each.publish.number for each in deliveries if each.publish.number]):
        if number == last + 1 and first:
            last = number
            continue
        if first:
            yield first, last
        first = last = number
    if first:
        yield first, last


def _is_awaited(target: ITarget) -> bool:
    """Tell whether a consumer can take a message at once (09-BASIC-39)."""
    if not isinstance(target, Queue) or target.available:
        return False
    return any(consumer.capacity() > 0 for consumer in target.state.consumers.rotation)
