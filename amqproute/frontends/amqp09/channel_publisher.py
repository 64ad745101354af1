# SPDX-License-Identifier: Apache-2.0
"""Publishes of a channel: through exchanges to queues, and to other organizations.

There is no credit in 0-9. What a client may still send is counted all the same, and where nothing
is left the connection is not read: so a slow disk, a contract and a full disk slow a publisher down
by the transport alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, cast

from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute import conditions
from amqproute.address import exchange_node, in_host
from amqproute.auth.policy import Verb
from amqproute.body import IBody
from amqproute.broker.commit_batch import Batch
from amqproute.broker.exchanges.carbon_copies import routing_keys
from amqproute.broker.exchanges.exchange_graph import RoutingOutcome
from amqproute.broker.exchanges.topology_fault import TopologyFault
from amqproute.broker.publish_gate import STORE, PublishGate
from amqproute.broker.queue import Queue
from amqproute.broker.reply_addresses import is_reply_name
from amqproute.conditions import Condition
from amqproute.errors import (
    AmqpError,
    MessageSizeExceeded,
    NotFound,
    PreconditionFailed,
    ResourceDeleted,
    ResourceLimitExceeded,
    StoreUnavailable,
    Unresolved,
)
from amqproute.frontends.amqp09.access_realms import RealmUse
from amqproute.frontends.amqp09.channel_base import ChannelBase
from amqproute.frontends.amqp09.class_publish import ClassPublish, answer_classes
from amqproute.frontends.amqp09.direct_replies import address_replies
from amqproute.frontends.amqp09.large_content_output import LargeContent
from amqproute.frontends.amqp09.large_content_receiver import ArrivingBody, LargeContentReceiver
from amqproute.frontends.amqp09.publish_plan import MessagePattern, PublishPlan
from amqproute.frontends.common.publishing_endpoint import PublishingEndpoint
from amqproute.interfaces import ITarget
from amqproute.message import Message
from amqproute.translation.body_layout import BodyLayout
from amqproute.translation.content_message import ContentRefused, TranslatedContent, read_content
from amqproute.values import Origin, Principal
from amqproute.wire.amqp09.contents import Publish
from amqproute.wire.amqp09.frame_output import FrameTooLargeError
from amqproute.wire.amqp09.methods import BasicPublish
from amqproute.wire.amqp09.protocol_events import ContentPartReceived
from amqproute.wire.amqp09.replies import ReplyCode
from amqproute.wire.amqp09.shapes import AmqpMethod

__all__ = ["ChannelPublisher", "PublishedContent"]

MOST_ALIKE: Final = 1000
"""Messages that are put on a queue in one go; so many are made though some may be refused."""
MOST_WAYS: Final = 64
"""Addresses whose ways a channel remembers."""
_NO_HEADERS: Final[dict[str, object]] = {}


class PublishedContent:
    """A publish on its way in.

    Attributes:
        publish: as it came; a `ClassPublish` for one of another class than basic.
        payload: its body; empty for a very large one.
        large: takes the body of a very large one; None for any other, and when it is refused.
        rest: the body of a very large one, when it is on the disk.
        settled: nobody waits for a confirm, or for the answer that its class has instead.
        is_transacted: whether it came behind tx.select or dtx.select.

    Args:
        publish: as it came.
        is_transacted: see above.
    """

    __slots__ = ("is_transacted", "large", "payload", "publish", "rest", "settled")

    def __init__(self, publish: Publish, is_transacted: bool) -> None:
        self.publish = publish
        self.is_transacted = is_transacted
        parts = publish.parts
        self.payload = parts[0] if len(parts) == 1 else publish.body
        self.large: LargeContentReceiver | None = None
        self.rest: IBody | None = None
        is_awaited = isinstance(publish, ClassPublish) and publish.is_awaited
        self.settled = not (publish.number or is_awaited)


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
    """Destination of one message, as a target for a transaction.

    Args:
        publisher: the publisher whose message it is.
        exchange: the exchange to which it was published.
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

    @property
    def routed_targets(self) -> Sequence[ITarget]:
        """Those that outlive a restart (`amqproute.broker.xa_branch.ROUTED`)."""
        return [
            each
            for each in self.targets
            if not (isinstance(each, Queue) and each.state.force_transient)
        ]

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


class ChannelPublisher(PublishingEndpoint[PublishedContent]):
    """The publishing end of a channel.

    Args:
        owner: the channel.
    """

    __slots__ = (
        "_allowed",
        "_arriving",
        "_granted",
        "_has_classes",
        "_is_rehearsing",
        "_owner",
        "_plans",
        "_ways",
        "topology",
        "when_idle",
        "when_put",
    )

    def __init__(self, owner: ChannelBase) -> None:
        connection = owner.connection
        self._owner = owner
        origin = connection.origin(self.name, owner.host.origin_name)
        super().__init__(connection, EXCHANGES, origin, connection.limits.link_credit)
        self.topology = owner.topology
        self._granted = 0
        # The very large message that is coming in, and whether it is only tried.
        self._arriving: PublishedContent | None = None
        self._is_rehearsing = False
        # Whether contents of other classes than basic are published here.
        self._has_classes = False
        self._ways: dict[str, ITarget] = {}
        # Of the run that is being taken, by the identity of method and properties.
        self._plans: dict[tuple[int, int], PublishPlan] | None = None
        self._allowed: str | None = None  # the exchange asked for last in that run
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
        elif not self._owner.is_ended:  # what ended has nobody who would read on for it
            self._owner.host.throttle(self)

    @property
    def waiting_octets(self) -> int:
        """Octets of messages that have come and are not put yet."""
        octets = 0
        arriving = [] if self._arriving is None else [self._arriving]
        for each in (*arriving, *self.waiting.deliveries()):
            octets += len(each.payload)
            if each.large is not None:
                octets += each.large.octets
        return octets

    # -- messages --------------------------------------------------------------------------------

    def publish(self, publishes: Sequence[Publish]) -> None:
        """Take a run of publishes."""
        publishes, refusal = address_replies(publishes, self._owner.reply_address)
        is_transacted = self._owner.is_transacted
        deliveries = [PublishedContent(each, is_transacted) for each in publishes]
        self.take(deliveries)
        self._use_credit(len(deliveries))
        if refusal is not None:
            raise refusal

    def publish_class(self, publishes: Sequence[ClassPublish]) -> None:
        """Take publishes of another class than basic; see `PublishListener`."""
        self._has_classes = True
        is_transacted = self._owner.is_transacted
        deliveries = [PublishedContent(each, is_transacted) for each in publishes]
        self.take(deliveries)
        self._use_credit(len(deliveries))

    def begin(self) -> None:
        """Count what may come, before the first message does."""
        self._use_credit(0)

    def _use_credit(self, messages: int) -> None:
        self._granted -= messages
        if self._granted <= 0 and not self._owner.is_ended:  # one of them may have ended it
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
        untaken: list[PublishedContent] = []  # the channel ends before them
        self._uncommitted += len(deliveries)
        was_open = self._owner.channel.is_open
        self._plans = {} if len(deliveries) > 1 else None
        self._allowed = None
        put = 0  # those up to here are put
        for place, delivery in enumerate(deliveries):
            if place < put:
                continue
            if self._plans and (count := self._take_alike(deliveries, place, batch)):
                put = place + count
                published += deliveries[place:put]
                continue
            try:
                if self.waiting.lines:
                    self.waiting.wait_behind(delivery)
                elif delivery.large is not None and not self._is_here(delivery):
                    if delivery.large is None:
                        refused.append(delivery)
                elif self._take(delivery, batch):
                    published.append(delivery)
                else:
                    done.append(delivery)
            except Unresolved as unresolved:
                self._wait_for_hop(delivery, unresolved.hop)
            except (ResourceLimitExceeded, ResourceDeleted, NotFound) as error:
                self._note_refused(delivery, error)
                refused.append(delivery)
            except (AmqpError, TopologyFault) as error:
                self._owner.refuse(error, delivery.publish.original.method)
                untaken.append(delivery)
            if was_open and not self._owner.channel.is_open:
                untaken += deliveries[place + 1 :]
                break  # what comes behind is not taken (09-CHAN-17)
        self._plans = None
        self._uncommitted -= len(done) + len(refused)
        self._drop(untaken)
        self._confirm(done)
        self._confirm(refused, is_taken=False)
        return published

    def _take_alike(self, deliveries: Sequence[PublishedContent], place: int, batch: Batch) -> int:
        """Put successive messages on one queue that are alike but for their bodies.

        Args:
            deliveries: the deliveries of a run.
            place: the place of the first.
            batch: the run's.

        Returns:
            How many were put; none where each has to be looked at by itself.
        """
        first, plans = deliveries[place].publish, self._plans
        method, properties = first.method, first.properties
        plan = None if plans is None else plans.get((id(method), id(properties)))
        if plan is None or not plan.takes_many or self.waiting.lines:
            return 0
        target = plan.targets[0]
        if type(target) is not Queue or self.share is not None:
            return 0
        bodies = []
        for delivery in deliveries[place : place + MOST_ALIKE]:
            publish = delivery.publish
            if (
                publish.method is not method
                or publish.properties is not properties
                or delivery.large is not None
                or delivery.rest is not None
                or delivery.is_transacted
            ):
                break
            bodies.append(delivery.payload)
        if len(bodies) < 2:
            return 0
        messages = plan.pattern.messages(bodies)
        count = self.topology.put_alike(method.exchange, target, messages, batch, self.origin)
        plan.takes_many = count == len(messages)
        return count

    def _note_refused(self, delivery: PublishedContent, error: AmqpError) -> None:
        self._owner.connection.error_log.message_refused(
            self.name, delivery.publish.method.exchange or "(default exchange)", error
        )
        if isinstance(delivery.publish, ClassPublish):
            delivery.publish.error = error
        if delivery.is_transacted:
            with suppress(PreconditionFailed):  # one that is over has nothing to fail
                transaction = self._owner.transaction()
                if transaction is not None:
                    transaction.fail(error)

    def _take(self, delivery: PublishedContent, batch: Batch) -> bool:
        """Put a message where it goes; False if it is answered and goes nowhere.

        Raises:
            AmqpError: it is refused.
            TopologyFault: the same.
            Unresolved: it is not known yet whether there is a way.
        """
        if delivery.rest is not None:
            return self._take_anew(delivery, batch)
        publish, plans = delivery.publish, self._plans
        method = publish.method
        exchange = method.exchange
        if plans is not None:
            plan = plans.get((id(method), id(publish.properties)))
            if plan is not None:
                message = plan.pattern.message(delivery.payload)
                self._put_on(plan.targets, exchange, message, batch, delivery)
                return not delivery.is_transacted
        if not exchange or method.ticket:
            return self._take_anew(delivery, batch)
        owner, topology = self._owner, self.topology
        route = owner.host.amqp09.routes.find(topology, publish, owner.is_0_9)
        if route is None:
            return self._take_anew(delivery, batch)
        if plans is None or exchange != self._allowed:
            owner.require(Verb.PUBLISH, exchange_node(exchange))
            self._allowed = exchange
        queues = topology.queues_of(route.outcome)
        came = route.pattern.message(delivery.payload)
        message = self._admitted(came)
        self._put_on(queues, exchange, message, batch, delivery)
        if plans is not None and message is came:
            plans[id(method), id(publish.properties)] = PublishPlan(queues, route.pattern)
        return not delivery.is_transacted

    def _take_anew(self, delivery: PublishedContent, batch: Batch) -> bool:
        """Take a message whose way is not known; see `_take`."""
        publish = delivery.publish
        method, properties = publish.method, publish.properties
        exchange = method.exchange
        topology = self.topology
        if not self._may_publish(method, publish.original.method):
            return False
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
                if not is_reply_name(name):  # whoever knows it was asked for a reply
                    self._owner.require(Verb.PUBLISH, name)
        ways: list[tuple[str, ITarget]] = []
        for address in outcome.addresses:
            try:
                ways.append((address, self._way(address)))
            except NotFound as error:
                if method.mandatory:
                    self._return(delivery, ReplyCode.NO_ROUTE, error.description)
                    return False
                raise
        if method.immediate and (ways or not all(map(_is_awaited, queues))):
            # Elsewhere nobody can be known to wait (09-M-05).
            self._return(delivery, ReplyCode.NO_CONSUMERS)
            return False
        if not queues and not ways:
            if method.mandatory:
                self._return(delivery, ReplyCode.NO_ROUTE)
            return False
        parts = _parts(queues, ways)
        for targets, to in parts:
            came = self._message(content, delivery, to)
            message = self._admitted(came)
            self._put_on(targets, exchange, message, batch, delivery)
        if len(parts) == 1 and content.is_plain and not method.immediate and not came.rest:
            self._remember(delivery, outcome, targets, came, message)
        return not delivery.is_transacted

    def _may_publish(self, method: BasicPublish, named: AmqpMethod) -> bool:
        """Check the exchange of a publish, and the right to it; False if its ticket is wrong.

        Args:
            method: the method of the publish.
            named: the method that the client has sent.

        Raises:
            AmqpError: the client has no right to it.
            TopologyFault: there is no such exchange, or it is internal.
        """
        owner, exchange = self._owner, method.exchange
        self.topology.graph.check_publish(exchange)
        if method.ticket:
            # The default exchange is there for the queues that it leads to, and their realms.
            node = exchange_node(exchange) if exchange else method.routing_key
            if not owner.ticket_covers(method.ticket, RealmUse.WRITE, node, named):
                return False
        if exchange:
            owner.require(Verb.PUBLISH, exchange_node(exchange))
        return True

    def _message(
        self, content: TranslatedContent, delivery: PublishedContent, to: str | None
    ) -> Message:
        method = delivery.publish.method
        if delivery.rest is None:
            try:
                encoded = content.message(delivery.payload, method.exchange, method.routing_key, to)
            except ContentRefused as error:
                raise PreconditionFailed(str(error)) from None
        else:
            encoded = content.head(method.exchange, method.routing_key, to)
        return Message(encoded, delivery.rest)

    def _admitted(self, message: Message) -> Message:
        """Return a message as it is taken from its sender."""
        most = self._connection.limits.header_bytes
        if message.bare_from > most:
            raise PreconditionFailed(f"properties of {message.bare_from} octets; {most} are taken")
        return self._connection.context.nodes.admitted(message, self.origin)

    def _remember(
        self,
        delivery: PublishedContent,
        outcome: RoutingOutcome,
        targets: Sequence[ITarget],
        came: Message,
        message: Message,
    ) -> None:
        """Remember the way of a message for those like it.

        Args:
            delivery: it was put.
            outcome: where it was routed.
            targets: what it was put on.
            came: the message before it was admitted.
            message: the one that was put.
        """
        publish, size = delivery.publish, len(delivery.payload)
        method = publish.method
        pattern = MessagePattern(message, size)
        if self._plans is not None:
            self._plans[id(method), id(publish.properties)] = PublishPlan(targets, pattern)
        if method.exchange:
            owner = self._owner
            if came is not message:
                pattern = MessagePattern(came, size)
            routes = owner.host.amqp09.routes
            routes.add(self.topology, publish, owner.is_0_9, outcome, pattern)

    def _put_on(
        self,
        targets: Sequence[ITarget],
        exchange: str,
        message: Message,
        batch: Batch,
        delivery: PublishedContent,
    ) -> None:
        origin, share = self.origin, self.share
        most = None if share is None else share.contract.terms.max_message_size
        if most is not None and message.size > most:
            raise MessageSizeExceeded(
                f"a message of {message.size} octets where your contract allows {most}"
            )
        if self._is_rehearsing:
            self.topology.put(exchange, targets, message, batch, origin)
            return
        transaction = self._owner.transaction() if delivery.is_transacted else None
        if transaction is not None:
            target = RoutedTarget(self, exchange, targets)
            if isinstance(delivery.publish, ClassPublish):
                delivery.publish.is_posted = True
            transaction.post(self, _Posted(delivery), target, message, origin)
            return
        account = origin.account
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

    def _return(self, delivery: PublishedContent, code: ReplyCode, words: str = "") -> None:
        """Send a message back. Without words the reply text is the code's name, as elsewhere."""
        owner, channel = self._owner, self._owner.channel
        if self._is_rehearsing:
            return  # it comes back as a whole
        if channel.is_open and not channel.may_deliver:
            # It cannot be kept either: whoever stops contents may publish on without end.
            raise PreconditionFailed(
                f"a message comes back while contents are stopped: {words or code.name}"
            )
        text = f"{code.name} - {words}" if words else code.name
        if not channel.is_open:
            return
        publish = delivery.publish
        if isinstance(publish, ClassPublish) and publish.listener.returned(publish, code, text):
            return
        original = publish.original
        try:
            channel.check_fits(original.method, original.property_octets)
        except FrameTooLargeError as error:
            raise PreconditionFailed(f"a message that cannot be returned: {error}") from None
        if delivery.rest is not None:
            self._return_large(delivery, code, text)
        elif owner.sending is None:
            channel.return_content(original, code, text)
        else:
            owner.behind_content(lambda: channel.return_content(original, code, text))

    # -- very large messages ---------------------------------------------------------------------

    def take_part(self, event: ContentPartReceived) -> bool:
        """Take a part of a very large message; return whether the rest of it is wanted."""
        publish = event.content
        assert isinstance(publish, Publish)
        self._has_classes |= isinstance(publish, ClassPublish)
        delivery = self._arriving
        is_new = delivery is None or delivery.publish is not publish
        if self.share is not None:
            self.share.received(int(is_new), sum(map(len, event.parts)))
        if delivery is None or is_new:
            delivery = self._arriving = PublishedContent(publish, self._owner.is_transacted)
            self._try_large(delivery, lambda: self._begin_large(delivery))
            self._use_credit(1)
        large = delivery.large
        if large is not None:
            self._try_large(delivery, lambda: large.add(event.parts, event.is_last))
            if delivery.large is None:
                large.abandon()
        if not event.is_last or self._arriving is None:
            return self._arriving is not None
        self._arriving = None
        if delivery.large is None:
            self._confirm([delivery], is_taken=False)
            return False
        self._uncommitted += 1
        if self.waiting.lines:
            self.waiting.wait_behind(delivery)
        else:
            self.waiting.wait_for(delivery.large, delivery)
        return False

    def when_part_written(self, go: Callable[[], None]) -> None:
        """Call when little of the message that is coming in waits for the disk."""
        arriving = self._arriving
        if arriving is None or arriving.large is None:
            go()
        else:
            arriving.large.when_written(go)

    def _try_large(self, delivery: PublishedContent, act: Callable[[], None]) -> None:
        """Do something for a message on its way in; if it is refused, the rest is not kept."""
        try:
            act()
        except (ResourceLimitExceeded, ResourceDeleted, NotFound) as error:
            delivery.large = None
            self._note_refused(delivery, error)
        except (AmqpError, TopologyFault) as error:
            delivery.large = None
            self._arriving = None
            self._owner.refuse(error, delivery.publish.original.method)
            if isinstance(delivery.publish, ClassPublish):
                answer_classes([delivery.publish], False)

    def _begin_large(self, delivery: PublishedContent) -> None:
        """Look at what precedes the body, and refuse now what would be refused in the end."""
        publish = delivery.publish
        _, refusal = address_replies((publish,), self._owner.reply_address)
        if refusal is not None:
            raise refusal
        try:
            content = read_content(publish.properties, publish.property_octets, self._owner.is_0_9)
        except ContentRefused as error:
            raise PreconditionFailed(str(error)) from None
        batch = self._connection.context.broker.begin()
        came = batch.came
        batch.is_rehearsal = self._is_rehearsing = True
        delivery.rest = cast(IBody, ArrivingBody(publish.size, bool(content.footer)))
        try:
            self._take(delivery, batch)
        except Unresolved:
            pass  # it is asked about when the message is complete
        finally:
            self._is_rehearsing = False
            delivery.rest = None
            batch.abandon()
        before = None
        if came is not None:
            method = publish.method
            encoded = content.head(method.exchange, method.routing_key)
            if came:
                # Its address, and where to reply to, may have been supplied.
                first = came[0][1]
                encoded = (first if isinstance(first, Message) else first.message).encoded
            before = encoded[Message(encoded).bare_from :]
        delivery.large = LargeContentReceiver(
            self._connection, content, publish.size, before, self._body_is_stored
        )

    def _body_is_stored(self, large: LargeContentReceiver) -> None:
        self.waiting.over(large, self._put_waiting)

    def _is_here(self, delivery: PublishedContent) -> bool:
        """Whether the body of a very large message is on the disk; else it is held, or refused."""
        large = delivery.large
        assert large is not None
        if large.body is not None:
            delivery.rest, delivery.large = large.take(), None
            return True
        failure = large.failure
        if failure is None:
            self.waiting.wait_for(large, delivery)
            return False
        delivery.large = None
        if isinstance(failure.value, StoreUnavailable):
            self._note_refused(
                delivery, ResourceLimitExceeded("there is no room for the message now")
            )
            self._gate.close(STORE, str(failure.value))
            return False
        raise AmqpError("the message store failed", condition=conditions.INTERNAL_ERROR)

    def _return_large(self, delivery: PublishedContent, code: ReplyCode, text: str) -> None:
        """Send a very large message back, from where it is stored by now."""
        owner, channel = self._owner, self._owner.channel
        body, publish = delivery.rest, delivery.publish
        content = read_content(publish.properties, publish.property_octets, owner.is_0_9)
        layout = BodyLayout(publish.size, content.parts.encoded_body)

        def ended(why: Failure | bool | None) -> None:
            if why is None:
                owner.large_sent()
            elif isinstance(why, Failure):
                owner.fail(ReplyCode.PRECONDITION_FAILED, "a message cannot be read to its end")

        def begin() -> None:
            assert body is not None
            channel.return_content(publish.original, code, text, (), publish.size)
            owner.send_large(LargeContent(channel, body, layout, ended))

        owner.behind_content(begin)

    def drop_arriving(self) -> None:
        """The channel has gone: let go of what is not complete."""
        arriving, self._arriving = self._arriving, None
        if arriving is not None and arriving.large is not None:
            arriving.large.abandon()

    # -- what waits ------------------------------------------------------------------------------

    def _put_waiting(self, deliveries: list[PublishedContent]) -> None:
        super()._put_waiting(deliveries)
        if not self.waiting.lines:
            ready, self.when_put = self.when_put, []
            for each in ready:
                each()
        self._look()

    def wait_for(self, gate: PublishGate, deliveries: list[PublishedContent]) -> None:
        """See `PublishingLink.wait_for`."""
        if not self._owner.channel.is_open:
            # Whoever wants confirms sends again what has none.
            self._drop([each for each in deliveries if not each.settled])
            deliveries = [each for each in deliveries if each.settled]
        super().wait_for(gate, deliveries)
        self._look()

    def drop_waiting(self) -> None:
        """The channel has gone: let go of what its client will send again."""
        self._drop(self.waiting.take_failed(lambda each: not each.settled))

    def _drop(self, deliveries: Sequence[PublishedContent]) -> None:
        self._uncommitted -= len(deliveries)
        if self._has_classes:  # which let go of what they have staged
            answer_classes([each.publish for each in deliveries], False)

    # -- answers ---------------------------------------------------------------------------------

    @property
    def is_under_way(self) -> bool:
        """Something that has come is not on its queue yet, and will soon be."""
        lines = self.waiting.lines
        if lines and isinstance(next(iter(lines)), LargeContentReceiver):
            return True
        return self._uncommitted > len(self.waiting.deliveries())

    def _look(self) -> None:
        if self.when_idle and not self.is_under_way:
            ready, self.when_idle = self.when_idle, []
            for each in ready:
                each()

    def committed(self, deliveries: list[PublishedContent]) -> None:
        """See `PublishingLink.committed`."""
        self._uncommitted -= len(deliveries)
        for each in deliveries:
            each.rest = None  # whoever remembers it must not keep a file
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
        if self._has_classes:
            deliveries = list(deliveries)
            answer_classes([each.publish for each in deliveries], is_taken)
        owner, channel = self._owner, self._owner.channel
        if not channel.is_open:
            return
        if owner.sending is not None:
            kept = [each for each in deliveries if each.publish.number]
            if kept:
                owner.behind_content(lambda: self._confirm(kept, is_taken))
            return
        tell = channel.confirm if is_taken else channel.reject
        for first, last in _runs(deliveries):
            tell(first, last)

    # -- transactions; see `local_transaction.Poster` ----------------------------------------------

    def concluded(self, deliveries: Sequence[object], is_committed: bool) -> None:
        """A transaction has ended; its channel answers for all of it."""
        for each in deliveries:
            if isinstance(each, _Posted):
                each.delivery.rest = None
                publish = each.delivery.publish
                if isinstance(publish, ClassPublish):
                    publish.listener.concluded(publish, is_committed)
        self.grant()


class _Posted:
    """A publish in a transaction, as transactions know it."""

    __slots__ = ("context", "delivery", "tag", "txn_id")

    def __init__(self, delivery: PublishedContent) -> None:
        self.delivery = delivery
        self.context: object = None
        self.txn_id: bytes | None = None
        self.tag = b"%d" % delivery.publish.number


def _parts(
    queues: list[ITarget], ways: list[tuple[str, ITarget]]
) -> list[tuple[list[ITarget], str | None]]:
    """Divide targets by the `to` that the message needs there."""
    parts: list[tuple[list[ITarget], str | None]] = [([way], address) for address, way in ways]
    if queues:
        parts.append((queues, None))
    return parts


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
