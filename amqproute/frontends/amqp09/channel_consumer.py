# SPDX-License-Identifier: Apache-2.0
"""Receivers of a channel: consumers, and basic.get."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, ClassVar, Final, NamedTuple

from twisted.python.failure import Failure

from amqproute import conditions
from amqproute.address import in_host
from amqproute.auth.policy import Verb
from amqproute.broker.commit_batch import Batch
from amqproute.broker.consumer_cursor import Selects
from amqproute.broker.entry_removal import DAMAGED_WORDS
from amqproute.broker.local_transaction import Retirement
from amqproute.broker.queue import Queue
from amqproute.conditions import Condition
from amqproute.content_class import ContentClass
from amqproute.entry import Entry
from amqproute.errors import DecodeError, MessageDamaged
from amqproute.frontends.amqp09.channel_base import ChannelBase
from amqproute.frontends.amqp09.class_selection import CLASS_SELECTORS
from amqproute.frontends.amqp09.large_content_output import BodyInspection, LargeContent
from amqproute.frontends.amqp09.prefetch import PrefetchWindow
from amqproute.frontends.common.consuming_endpoint import ConsumingEndpoint
from amqproute.interfaces import ISource
from amqproute.outcomes import ACCEPTED, RELEASED, UNREADABLE, Modification, Outcome
from amqproute.translation.body_layout import BodyLayout
from amqproute.translation.message_content import (
    DeliveredContent,
    DeliveryState,
    content_of,
    known_content,
)
from amqproute.values import Principal
from amqproute.wire.amqp09.contents import OutgoingContent
from amqproute.wire.amqp09.frame_output import FrameTooLargeError
from amqproute.wire.amqp09.methods import BasicCancel, BasicGet, BasicGetEmpty
from amqproute.wire.amqp09.replies import ReplyCode

__all__ = ["ChannelConsumer", "HeldDelivery", "QueueGetter"]

ELSEWHERE: Final = Modification(undeliverable_here=True)
NO_ACK_BURST: Final = 1000
"""Deliveries to a consumer without acknowledgements in one go; the transport bounds the rest."""
CAPABILITY_CANCEL: Final = "consumer_cancel_notify"


class HeldDelivery(NamedTuple):
    """A delivery that the client has not acknowledged.

    Attributes:
        consumer: by which it was delivered.
        entry: what was delivered.
        octets: the octets of the body.
    """

    consumer: ChannelConsumer
    entry: Entry
    octets: int


class ChannelConsumer(ConsumingEndpoint):
    """A consumer made by basic.consume.

    Args:
        owner: its channel.
        source: the queue.
        name: the name of the queue, as the client wrote it.
        tag: the consumer tag.
        no_ack: what is delivered counts as acknowledged (09-DOM-09).
        windows: bounds of what may be unacknowledged.

    Attributes:
        priority: those with the highest one are served first (``x-priority``).
        delivered: messages sent to its client so far.
    """

    __slots__ = (
        "__weakref__",  # entries that it cannot be given know it
        "_behind",
        "_counts_deliveries",
        "_head_octets",
        "_held",
        "_inspection",
        "_is_over",
        "_layout",
        "_name",
        "_owner",
        "_sorts",
        "_windows",
        "delivered",
        "no_ack",
        "priority",
        "tag",
    )

    is_momentary = False
    """It goes after one message."""
    content_class = ContentClass.BASIC
    """The class that it is a consumer of; of message for basic, too."""
    takes: ClassVar[frozenset[ContentClass]] = frozenset((ContentClass.BASIC,))
    """The classes of what it is given on a connection of 0-9 (09-QUEUE-02)."""

    def __init__(
        self,
        owner: ChannelBase,
        source: ISource,
        name: str,
        tag: str,
        no_ack: bool,
        windows: Sequence[PrefetchWindow] = (),
    ) -> None:
        super().__init__(owner.connection, source, tag)
        self._owner = owner
        self._name = name
        self.tag = tag
        self.no_ack = no_ack
        self.priority = 0
        self.delivered = 0
        self._windows = () if no_ack else tuple(windows)
        # It takes what comes, until something of another class does.
        self._sorts = False
        self._counts_deliveries = owner.queues.counts_deliveries(name)
        # Of the message translated last: likely those of the next one, too.
        self._head_octets = 0
        self._is_over = False
        self._held: dict[Entry, None] = {}
        # What was handed over and does not fit into a window in octets yet.
        self._behind: deque[Entry] = deque()
        # Of the first of them, if it is very large: its body's layout, or what finds it out.
        self._inspection: BodyInspection | None = None
        self._layout: BodyLayout | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.tag!r} of {self.source.name}>"

    # -- for operators ---------------------------------------------------------------------------

    @property
    def prefetch(self) -> int:
        """Most unacknowledged messages; 0 for no bound."""
        return min((each.count for each in self._windows if each.count), default=0)

    @property
    def unacknowledged(self) -> int:
        """Number of unacknowledged messages."""
        return len(self._held)

    def class_facts(self) -> dict[str, object]:
        """Return what its row has besides, because of its class."""
        return {}

    # -- NodeEndpoint ----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """See `NodeEndpoint.name`."""
        return self.tag

    @property
    def address(self) -> str | None:
        """See `NodeEndpoint.address`."""
        return self._name

    @property
    def is_active(self) -> bool:
        """See `NodeEndpoint.is_active`."""
        return not self._is_over

    def check_access(self, principal: Principal) -> None:
        """See `NodeEndpoint.check_access`."""
        name = in_host(self._owner.virtual_host, self._name)
        self._context.nodes.require(principal, (Verb.CONSUME,), name)

    def detach(self, condition: Condition, words: str) -> None:
        """See `NodeEndpoint.detach`: tell the client by basic.cancel, if it understands it."""
        self.stop()
        channel = self._owner.channel
        if condition == conditions.UNAUTHORIZED_ACCESS:
            self._owner.fail(ReplyCode.ACCESS_REFUSED, words)
            return
        channel.forget_consumer(self.tag)
        if CAPABILITY_CANCEL in self._owner.host.client_capabilities:
            # Behind the answer to whoever deletes the queue: some clients take a cancel that comes
            # instead for an error.
            self._context.broker.clock.callLater(0, self._notify_cancelled)

    def _notify_cancelled(self) -> None:
        channel = self._owner.channel
        if channel.is_open:
            channel.send(BasicCancel(consumer_tag=self.tag, nowait=True))
            self._connection.flush()

    def stop(self) -> None:
        """Take nothing more. What the client has it still may acknowledge (09-BASIC-29)."""
        if self._is_over:
            return
        self._is_over = True
        self.source.detach(self)
        self._owner.consumer_over(self)
        if self._inspection is not None:
            self._inspection.stop()
            self._inspection = None
        behind, self._behind = list(self._behind), deque()
        if behind:
            self._release(behind)

    # -- classes of content (0-9) ----------------------------------------------------------------

    def selection(self, origin: str | None) -> Selects | None:
        """Return the filter to attach it with; None for a consumer that takes everything.

        A consumer of class basic is attached without one also where it takes its own class only: it
        asks for the filter when something of another class comes, which is never on most queues. A
        filter has its price (`amqproute.broker.consumer_cursor`).

        Args:
            origin: the origin of messages that it does not want (no-local); None for none.
        """
        if not self._owner.is_0_9:
            return None if origin is None else lambda entry: entry.origin != origin
        selects = CLASS_SELECTORS[self.takes]
        if origin is not None:
            return lambda entry: entry.origin != origin and selects(entry)
        if ContentClass.BASIC in self.takes:
            self._sorts = True
            return None
        return selects

    def _sort(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Give back what is of other classes, and have no more of it."""
        selects = CLASS_SELECTORS[self.takes]
        own = [entry for entry in entries if selects(entry)]
        if len(own) < len(entries):
            self._sorts = False
            if isinstance(self.source, Queue):
                self.source.narrow(self, selects)
            self._settle([entry for entry in entries if not selects(entry)], RELEASED)
        return own

    # -- IConsumer -------------------------------------------------------------------------------

    def capacity(self) -> int:
        """See `IConsumer.capacity`."""
        channel = self._owner.channel
        owner = self._owner
        if (
            self._is_over
            or self._behind
            or not (channel.is_open and channel.may_deliver)
            or owner.sending is not None
        ):
            return 0
        if self.no_ack:
            return self._room(NO_ACK_BURST, 0)
        unsettled = len(channel.unacknowledged)
        wanted = min([window.room for window in self._windows], default=NO_ACK_BURST)
        room = self._room(wanted, unsettled)
        if not room and wanted > 0 and unsettled >= self._connection.limits.unsettled:
            owner.bound_reached()
        return room

    def deliver(self, entries: Sequence[Entry]) -> None:
        """See `IConsumer.deliver`."""
        if self._sorts:
            entries = self._sort(entries)
        self._behind.extend(entries)
        self._hold(entries)
        self._held.update(dict.fromkeys(entries))
        self.send_behind()
        self._connection.flush()

    def send_behind(self) -> None:
        """Send what was handed over, as far as windows and flow allow."""
        channel = self._owner.channel
        sent: list[Entry] = []
        refused: list[Entry] = []
        while self._behind and channel.is_open and channel.may_deliver:
            if self._owner.sending is not None or self._is_blocked():
                break
            if self._send_known(sent):
                continue
            entry = self._behind[0]
            if entry.message.rest is not None and not self._is_inspected(entry):
                break
            content = self._content(entry)
            if content is None:
                self._take_first()
                refused.append(entry)
                continue
            size = content.size
            if not self._fits(size):
                break
            layout = self._layout
            self._behind.popleft()
            self._layout = None
            try:
                tag = self._send(entry, content)
            except FrameTooLargeError:
                refused.append(entry)
                continue
            entry.attempted = True
            entry.message.forget()
            self.delivered += 1
            self._note_sent(size)
            if layout is not None:
                self._send_body(entry, tag, layout)
            elif self.no_ack and self._is_delivered():
                sent.append(entry)
        if refused:
            self._drop(refused)
            self._settle(refused, ELSEWHERE)
        if sent:
            self._drop(sent)
            self._settle(sent, ACCEPTED)
        if not self.no_ack:
            self._owner.delivered()

    def _is_blocked(self) -> bool:
        """Whether its class cannot send anything for now."""
        return False

    def _is_delivered(self) -> bool:
        """Whether what was sent last is with the client as a whole."""
        return True

    def _fits(self, size: int) -> bool:
        """Whether a body of this size may be sent ahead."""
        return all(window.fits(size) for window in self._windows)

    def _note_sent(self, size: int) -> None:
        """Count a body that is sent ahead."""
        for window in self._windows:
            window.take(size)

    def _send_known(self, sent: list[Entry]) -> bool:
        """Send what stands first and is of known content in one burst; False if none is.

        Args:
            sent: takes what needs no acknowledgement.
        """
        windows = self._windows
        if self._owner.is_0_9 or any(window.size for window in windows):
            return False
        behind, channel = self._behind, self._owner.channel
        room = min([window.room for window in windows], default=NO_ACK_BURST)
        most, head_octets = channel.largest_burst_body, self._head_octets
        counts_deliveries = self._counts_deliveries
        burst: list[OutgoingContent] = []
        octets = 0
        for entry in islice(behind, room):
            message = entry.message
            if message.rest is not None or (counts_deliveries and entry.delivery_count):
                break
            known = known_content(message, head_octets)
            if known is None:
                break
            head, body = known
            size = len(body)
            if not 0 < size <= most:
                break
            octets += size
            redelivered = entry.attempted or entry.delivery_count > 0
            burst.append((head, body, redelivered, HeldDelivery(self, entry, size)))
            entry.attempted = True
            message.forget()
        if not burst:
            return False
        channel.deliver_burst(self.tag, burst, needs_ack=not self.no_ack)
        self.delivered += len(burst)
        for window in windows:
            window.take(octets, len(burst))
        for _ in burst:
            entry = behind.popleft()
            if self.no_ack:
                sent.append(entry)
        return True

    def _content(self, entry: Entry) -> DeliveredContent | None:
        """Return what the client gets; None for a message that it cannot be given."""
        message = entry.message
        if message.foreign_format:
            return None
        now_ms = self._connection.now_ms()
        ttl_ms = None
        if entry.expires_ms > 0:
            ttl_ms = (
                max(0, entry.expires_ms - now_ms) if entry.message.header.ttl is not None else None
            )
        state = DeliveryState(
            self._name,
            now_ms,
            ttl_ms,
            own_domains=frozenset(self._context.hosts.domains(self._owner.virtual_host)),
            layout=self._layout,
            plain_tags=self._owner.is_0_9,
            delivery_count=entry.delivery_count if self._counts_deliveries else 0,
        )
        try:
            content = content_of(message, state)
        except DecodeError:
            return None
        self._head_octets = message.offsets.body_start
        return content

    def _send(self, entry: Entry, content: DeliveredContent) -> int:
        return self._owner.channel.deliver(
            self.tag,
            content.exchange,
            content.routing_key,
            content.property_octets,
            content.body,  # type: ignore[arg-type] # a view is written as octets are
            redelivered=entry.attempted or entry.delivery_count > 0,
            needs_ack=not self.no_ack,
            context=HeldDelivery(self, entry, content.size),
            size=content.rest_size or None,
        )

    # -- very large messages ---------------------------------------------------------------------

    def _take_first(self) -> None:
        self._behind.popleft()
        self._layout = None

    def _is_inspected(self, entry: Entry) -> bool:
        """Whether the layout of a body is known; else it is being found out."""
        if entry.message.foreign_format:
            return True
        body = entry.message.rest
        if self._layout is None and self._inspection is None and body is not None:
            self._inspection = BodyInspection(body, lambda found: self._inspected(entry, found))
        return self._layout is not None

    def _inspected(self, entry: Entry, found: BodyLayout | Failure) -> None:
        self._inspection = None
        if not self._behind or self._behind[0] is not entry:
            return
        if isinstance(found, BodyLayout):
            self._layout = found
        else:
            self._take_first()
            self._drop([entry])
            self._settle([entry], self._unreadable(entry, found))
        self.send_behind()
        self._connection.flush()

    def _unreadable(self, entry: Entry, failure: Failure) -> Outcome:
        """Log why a body cannot be read; return what becomes of its message."""
        log, cause = self._connection.log, failure.value
        if isinstance(cause, MessageDamaged):
            log.error(DAMAGED_WORDS, entry=entry.id, node=self.source.name, why=str(cause))
            return UNREADABLE
        if not isinstance(cause, DecodeError):
            log.failure(
                "message {entry} of {node} cannot be read",
                failure,
                entry=entry.id,
                node=self.source.name,
            )
        return ELSEWHERE

    def _send_body(self, entry: Entry, tag: int, layout: BodyLayout) -> None:
        owner, body = self._owner, entry.message.rest
        assert body is not None
        owner.send_large(
            LargeContent(owner.channel, body, layout, lambda why: self._sent(entry, tag, why))
        )

    def _sent(self, entry: Entry, tag: int, why: Failure | bool | None) -> None:
        """A very large message is complete, or cannot be completed; see `LargeContent`."""
        if why is None:
            self._sent_whole(entry)
            self._owner.large_sent()
        else:
            self._not_sent(entry, tag, RELEASED, why)

    def _sent_whole(self, entry: Entry) -> None:
        """Without acknowledgements, a message is taken when its last octet is sent."""
        if self.no_ack and entry in self._held:
            self._drop([entry])
            self._settle([entry], ACCEPTED)

    def _not_sent(self, entry: Entry, tag: int, outcome: Outcome, why: object) -> None:
        """A message that was begun is not completed.

        Args:
            entry: the message.
            tag: the tag of its delivery.
            outcome: what becomes of it, unless it cannot be read.
            why: a failure if it cannot be read.
        """
        if isinstance(why, Failure):
            outcome = self._unreadable(entry, why)
        if self.no_ack or tag in self._owner.channel.unacknowledged:
            if not self.no_ack:
                self.free([self._held_delivery(tag)])
            elif entry in self._held:
                self._drop([entry])
            self._settle([entry], outcome)
        if isinstance(why, Failure):
            # There is no other way to end a content or a reference that has begun.
            self._owner.fail(ReplyCode.PRECONDITION_FAILED, "a message cannot be read to its end")

    def _held_delivery(self, tag: int) -> HeldDelivery:
        held = self._owner.channel.unacknowledged.settle(tag)
        assert isinstance(held, HeldDelivery)
        return held

    def holds(self) -> Iterable[Entry]:
        """See `IConsumer.holds`."""
        return tuple(self._held)

    # -- what comes back -------------------------------------------------------------------------

    def _drop(self, entries: Sequence[Entry]) -> None:
        self.forget(entries)
        held = self._held
        for entry in entries:
            held.pop(entry, None)

    def free(self, deliveries: Sequence[HeldDelivery]) -> list[Entry]:
        """Deliveries are not unacknowledged any more; return their entries."""
        octets = sum([each.octets for each in deliveries])
        for window in self._windows:
            window.give_back(octets, len(deliveries))
        entries = [each.entry for each in deliveries]
        self._drop(entries)
        return entries

    def settle(self, deliveries: Sequence[HeldDelivery], outcome: Outcome) -> None:
        """Give deliveries back to the queue with what the client has come to."""
        self._settle(self.free(deliveries), outcome)
        if self._behind:
            self.send_behind()

    def _release(self, entries: Sequence[Entry]) -> None:
        self._drop(entries)
        self._settle(entries, RELEASED)

    def send_again(self, delivery: HeldDelivery) -> None:
        """Deliver once more what the client has (basic.recover without requeue)."""
        self.free([delivery])
        entry = delivery.entry
        entry.attempted = True
        self._hold([entry])
        self._held[entry] = None
        self._behind.append(entry)

    def settle_deliveries(self, deliveries: Sequence[object], outcome: object) -> None:
        """See `ConsumingEndpoint`: nothing of this protocol is told when an ack is durable."""

    # -- transactions; see `local_transaction.EntryHolder` ----------------------------------------

    @property
    def queue(self) -> ISource:
        """The queue of its entries."""
        return self.source

    def settle_within(self, entries: Sequence[Entry], outcome: Outcome, batch: Batch) -> None:
        """Act on outcomes, within the commit of a transaction."""
        self.source.settle(entries, outcome, batch, consumer=self)

    def retake(self, entries: Sequence[Entry]) -> None:
        """Undo `settle_within`: that commit failed."""
        self.source.retake(entries)

    def retired(self, retirements: Sequence[Retirement]) -> None:
        """The transaction was committed."""
        self.free([each.delivery[1] for each in retirements])
        if self._behind:
            self.send_behind()
        self.source.dispatch()
        self._connection.flush()  # a branch may have been committed from another connection

    def restored(self, retirements: Sequence[Retirement]) -> None:
        """The transaction was rolled back: the client has these as before, if it is still there."""
        if not self._owner.channel.is_open:
            self.settle([each.delivery[1] for each in retirements], RELEASED)
            return
        tags = self._owner.channel.unacknowledged
        for each in retirements:
            tag, held = each.delivery
            tags.restore(tag, held)


class QueueGetter(ChannelConsumer):
    """Takes one message for basic.get, and goes.

    Attributes:
        is_momentary: whether it does not count as a consumer of an auto-delete queue.
    """

    __slots__ = ("_request",)

    is_momentary = True

    def __init__(self, owner: ChannelBase, source: ISource, name: str, request: BasicGet) -> None:
        super().__init__(owner, source, name, "", request.no_ack)
        self._request: BasicGet | None = request

    def capacity(self) -> int:
        """See `IConsumer.capacity`."""
        return min(1, super().capacity()) if self._request is not None else 0

    def exhausted(self) -> None:
        """See `IConsumer.exhausted`: the queue is empty."""
        if self._behind:
            return  # a very large one, which is being looked at
        request, self._request = self._request, None
        if request is None:
            return
        self._owner.reply(request, BasicGetEmpty())
        self._leave()

    def _send_known(self, sent: list[Entry]) -> bool:
        return False  # there is one, and it has a method of its own

    def _send(self, entry: Entry, content: DeliveredContent) -> int:
        queue: Any = self.source
        tag = self._owner.channel.get_ok(
            content.exchange,
            content.routing_key,
            queue.available + queue.deferred,
            content.property_octets,
            content.body,  # type: ignore[arg-type] # a view is written as octets are
            redelivered=entry.attempted or entry.delivery_count > 0,
            needs_ack=not self.no_ack,
            context=HeldDelivery(self, entry, content.size),
            size=content.rest_size or None,
        )
        self._request = None
        if not content.rest_size:
            self._leave()
        return tag

    def _send_body(self, entry: Entry, tag: int, layout: BodyLayout) -> None:
        super()._send_body(entry, tag, layout)
        self._leave()

    def _leave(self) -> None:
        self.stop()
        self._owner.answered_get(self)
        self._connection.flush()

    def detach(self, condition: Condition, words: str) -> None:
        """See `NodeEndpoint.detach`: the queue has gone, and has no message."""
        self._behind.clear()
        self.exhausted()
