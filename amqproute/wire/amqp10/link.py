# SPDX-License-Identifier: Apache-2.0
"""Links and deliveries (part 2 §2.6).

Theory of operation
-------------------

A `Link` is a `NegotiatedLink`, which has the terms and the credit, with its deliveries.

**Unsettled** (§2.6.12). ``unsettled`` maps delivery-tag to `Delivery`. The session has the same
objects by delivery-id, because dispositions name ids. A delivery leaves both when either side
settles it. A delivery that was sent settled is never in them.

A message in several frames is gathered in an `UnfinishedDelivery` and reported after its last
frame; on a link with ``takes_parts`` a large one is reported as it comes (`transfer_input`). Past
``max_message_size`` nothing is kept: the link is detached at once. In the other direction
`Link.send_parts` begins a delivery whose octets follow (`transfer_output`).

Resumption (§2.6.13)
--------------------

The engine keeps nothing of a link beyond its detach: termini and their unsettled state belong to
the user, who knows which outlive the link. To resume, give the kept map to `Link.accept` or
`Session.attach` as ``unsettled`` and read the peer's in ``remote_attach.unsettled``. Then

* as sender, `send` with ``resume=True`` under the same delivery-tag;
* as receiver, a transfer with *resume* for a tag of our map arrives as a delivery with
  ``resumed`` set; for any other tag the engine ignores it, as §2.7.5 asks.

An unsettled map that does not fit into a frame is cut, and says so with incomplete-unsettled. A
sender who got an incomplete map may only resume until the link is attached again.

Limits: a partial delivery is not resumed from the middle (nobody stores halves); the engine never
sends `Received` by itself.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Any, Final, Protocol

from amqproute.errors import LocalProtocolError, MessageSizeExceeded
from amqproute.wire.amqp10 import codec, spec
from amqproute.wire.amqp10.fastpath import write_transfer
from amqproute.wire.amqp10.negotiated_link import EndpointSession, NegotiatedLink, Role
from amqproute.wire.amqp10.serial_numbers import SERIAL_MASK
from amqproute.wire.amqp10.state_tables import LOCALLY_OPEN, OPEN, LinkStateName, StateTransition

PROGRESS_OCTETS: Final = 1024
"""Octets by which an unfinished delivery has to grow for it to count as progress."""
MAX_STATE: Final = 256
"""Octets of an encoded delivery state that go with a transfer: it must fit into 512 with more."""


class Delivery:
    """One delivery on one link.

    Attributes:
        link: the link it belongs to.
        id: the session's number for it; -1 while an outgoing one waits for the session window.
        tag: the sender's name for it, unique among the link's unsettled deliveries.
        payload: the complete message; incoming only. For a delivery in parts: the user's.
        rest: the user's object for a delivery in parts.
        message_format: 0 for the format of part 3.
        settled: neither side will send another state. A new delivery: it was sent settled.
        state: the last state from the peer.
        local_state: the last state that we sent.
        context: the user's.
        batchable: it may be settled together with later ones (P-06).
        resumed: it continues an unsettled delivery of an earlier attachment.
        rcv_settle_mode: ``spec.RECEIVER_SECOND`` when the sender settles first and the receiver
            only then forgets (incoming only).
    """

    __slots__ = (
        "batchable",
        "context",
        "id",
        "link",
        "local_state",
        "message_format",
        "payload",
        "rcv_settle_mode",
        "rest",
        "resumed",
        "settled",
        "state",
        "tag",
    )

    def __init__(
        self,
        link: Link,
        delivery_id: int,
        tag: bytes,
        payload: bytes,
        message_format: int,
        settled: bool,
        state: spec.DeliveryState | None,
        batchable: bool,
    ) -> None:
        self.link = link
        self.id = delivery_id
        self.tag = tag
        self.payload = payload
        self.rest: Any = None
        self.message_format = message_format
        self.settled = settled
        self.state: Any = state
        self.local_state: Any = None
        self.context: Any = None
        self.batchable = batchable
        self.resumed = False
        self.rcv_settle_mode = link.rcv_settle_mode

    @property
    def txn_id(self) -> bytes | None:
        """The transaction that its last state from the peer names (part 4 §4.5.8), or None."""
        state = self.state
        return state.txn_id if type(state) is spec.TransactionalState else None

    def __repr__(self) -> str:
        settled = " settled" if self.settled else ""
        return f"<Delivery {self.id} tag={self.tag.hex()} on {self.link.name!r}{settled}>"


class PartsMode(Enum):
    """Use of the octets of a delivery that has begun and not ended.

    Members:
        GATHERED: they are kept until it is whole.
        UNSETTLED: they are handed up as they come, as long as the user has not settled it.
        SETTLED: they are handed up as they come; it was sent settled.
        IGNORED: they are discarded: it resumes one that we do not know.
    """

    GATHERED = auto()
    UNSETTLED = auto()
    SETTLED = auto()
    IGNORED = auto()


class UnfinishedDelivery:
    """An incoming delivery that has begun and not ended.

    Attributes:
        delivery: the delivery.
        mode: use of its octets.
        parts: its octets in memory, in order.
        size: all its octets so far.
        cost: memory of the parts, in octets, with overhead.
        progress_at: time of its begin, or of the last `PROGRESS_OCTETS`, in seconds of the
            monotonic clock.
    """

    __slots__ = ("_progress_octets", "cost", "delivery", "mode", "parts", "progress_at", "size")

    def __init__(self, delivery: Delivery, now: float) -> None:
        self.delivery = delivery
        self.mode = PartsMode.GATHERED
        self.parts: list[bytes] = []
        self.size = 0
        self.cost = 0
        self.progress_at = now
        self._progress_octets = 0

    def grow(self, octets: int, now: float) -> None:
        """Count more octets."""
        self.size += octets
        self._progress_octets += octets
        if self._progress_octets >= PROGRESS_OCTETS:
            self.restart_progress(now)

    def restart_progress(self, now: float) -> None:
        """Count progress from now."""
        self.progress_at = now
        self._progress_octets = 0


class OutgoingQueue(Protocol):
    """A session's queue of deliveries that do not leave at once (`transfer_output`)."""

    def add(self, delivery: Delivery, parts: Sequence[bytes], size: int, aborted: bool) -> None:
        """Add a whole delivery."""

    def open(self, delivery: Delivery, size: int) -> OutgoingParts:
        """Return a delivery of this size, whose octets are to be appended."""

    def resume(self, outgoing: OutgoingParts) -> None:
        """Send the frames that appended octets have filled."""

    def abort(self, outgoing: OutgoingParts) -> None:
        """Drop the rest of a delivery, and abort it at the peer."""


class OutgoingParts:
    """The rest of a delivery that could not be sent at once.

    `Link.send_parts` returns one, for the user to append its octets, a part at a time. Whole
    deliveries that wait for the peer's window, or need several frames, never leave the engine.

    Attributes:
        delivery: the delivery.
        missing: octets that have not been appended yet.
    """

    __slots__ = (
        "_aborted",
        "_buffers",
        "_is_queued",
        "_left",
        "_output",
        "_started",
        "delivery",
        "missing",
    )

    def __init__(
        self,
        output: OutgoingQueue,
        delivery: Delivery,
        parts: Sequence[bytes],
        size: int,
        aborted: bool,
    ) -> None:
        self._output = output
        self.delivery = delivery
        self.missing = 0
        self._buffers = deque(memoryview(part) for part in parts)
        # Octets in the buffers.
        self._left = size
        self._aborted = aborted
        self._started = False
        self._is_queued = False

    def __repr__(self) -> str:
        return f"<OutgoingParts {self.delivery!r} missing={self.missing}>"

    @property
    def is_over(self) -> bool:
        """Whether it has ended: sent to the end, aborted, or gone with its link."""
        return self.delivery.link._outgoing is not self

    @property
    def is_clear(self) -> bool:
        """Whether nothing of it waits for the peer's window: more can be appended."""
        return not self._is_queued

    def append(self, parts: Sequence[bytes]) -> None:
        """Send more octets. The rest that does not fill a frame waits for more.

        Nothing happens when the delivery is over.

        Raises:
            LocalProtocolError: these are more than were announced.
        """
        if self.is_over:
            return
        size = sum(map(len, parts))
        if size > self.missing:
            raise LocalProtocolError(f"{size} octets more for a delivery that lacks {self.missing}")
        self.missing -= size
        self._left += size
        self._buffers.extend(memoryview(part) for part in parts)
        self._output.resume(self)

    def abort(self) -> None:
        """Abort the delivery (part 2 §2.7.5): the peer discards its part of it.

        Nothing happens when the delivery is over.
        """
        if not self.is_over:
            self._output.abort(self)

    def _pop(self, size: int) -> list[Any]:
        """Remove the next ``size`` octets and return the buffers that hold them."""
        taken: list[Any] = []
        self._left -= size
        while size > 0:
            buffer = self._buffers.popleft()
            if len(buffer) > size:
                self._buffers.appendleft(buffer[size:])
                buffer = buffer[:size]
            size -= len(buffer)
            if buffer:
                taken.append(buffer)
        return taken


class LinkSession(EndpointSession):
    """The session of a link, as far as links and the parts of the session use it.

    `amqproute.wire.amqp10.session.Session` is one. This stands here, below it, because links and
    sessions know each other: a session makes links, and a link sends and detaches through its
    session.

    Attributes:
        remote_incoming_window: transfer frames that we may still send.
        next_outgoing_id: the transfer-id of the next frame that goes out.
    """

    _output: OutgoingQueue

    def __init__(self, unfinished: dict[Link, None]) -> None:
        self.channel = -1
        self.next_outgoing_id = 0
        self.remote_incoming_window = 0
        self._state = LinkStateName.UNBOUND
        self._next_delivery_id = 0
        # Links that are not done.
        self._members: dict[Link, None] = {}
        # Unsettled outgoing deliveries by delivery-id.
        self._outgoing: dict[int, Delivery] = {}
        # Deliveries that wait, in the order of `Link.send`.
        self._queue: deque[OutgoingParts] = deque()
        # The connection's links with a delivery that has begun and not ended.
        self._unfinished_links = unfinished

    @property
    def state(self) -> LinkStateName:
        """State of the session (`amqproute.wire.amqp10.state_tables`)."""
        return self._state

    @property
    @abstractmethod
    def incoming_window(self) -> int:
        """Transfer frames that the peer may still send."""

    @abstractmethod
    def end(self, error: spec.Error | None = None) -> None:
        """End the session, and all its links without further events.

        Nothing happens when the session is gone already.

        Raises:
            LocalProtocolError: the session has not been begun or accepted.
        """

    @abstractmethod
    def took(self, octets: int) -> None:
        """Return room: the user has processed this many octets of `PartsReceived`."""

    @abstractmethod
    def settle(
        self,
        deliveries: Iterable[Delivery],
        state: object = None,
        settled: bool = True,
    ) -> None:
        """Send the peer a state of deliveries, and by default settle them (part 2 §2.6.12).

        For incoming deliveries we speak as the receiver, for outgoing ones as the sender.
        Consecutive delivery-ids go out as one disposition. Deliveries that are settled already, by
        us or by the peer, or gone with their link, are skipped.

        Args:
            deliveries: the deliveries of this session, best in their order of arrival.
            state: an outcome or another delivery state; None when only the settlement matters.
            settled: forget them; False leaves that to the other side (rcv-settle-mode second).
        """

    @abstractmethod
    def _parts_ended(self) -> None:
        """Count one link less in the middle of a delivery in parts."""

    @abstractmethod
    def _locally_detached(self, link: Link, with_error: bool) -> None:
        """Drop the deliveries of a link whose detach we have sent, with or without an error."""


class Link(NegotiatedLink):
    """One end of a link and its deliveries: a `sender` or a `receiver`, as ``role`` says.

    Attributes:
        unsettled: delivery-tag to delivery, oldest first.
        deliveries: how many deliveries went or came in all.
        takes_parts: receiver: large deliveries come as `PartsReceived`. Set it when accepting, or
            before credit is given.
    """

    __slots__ = (
        "_drain_waits",
        "_errant_from",
        "_outgoing",
        "_unfinished",
        "deliveries",
        "takes_parts",
        "unsettled",
    )

    session: LinkSession

    def __init__(self, session: LinkSession, name: str, role: Role) -> None:
        super().__init__(session, name, role)
        self.unsettled: dict[bytes, Delivery] = {}
        self.deliveries = 0
        # Sender.
        self._outgoing: OutgoingParts | None = None
        self._drain_waits = False
        # Receiver.
        self._errant_from: int | None = None
        self._unfinished: UnfinishedDelivery | None = None
        self.takes_parts = False

    # --------------------------------------------------------------------------- detaching

    def detach(self, closed: bool = True, error: spec.Error | None = None) -> None:
        """Detach, or close, the link. There are no events of this link after it.

        ``unsettled`` keeps the unsettled deliveries, unless `LinkDetached` has reported them: the
        peer has detached before. Nothing happens when the link is gone already.

        Args:
            closed: give the terminus up too.
            error: why.

        Raises:
            LocalProtocolError: the link has not been attached or accepted.
        """
        if self._is_gone or (self._end_reported and self._state not in LOCALLY_OPEN):
            return
        if self._state not in LOCALLY_OPEN:
            raise LocalProtocolError(f"link {self.name!r} cannot detach: {self._state.name}")
        self._end_reported = True
        self._send_detach(closed, error)

    def _send_detach(self, closed: bool, error: spec.Error | None) -> None:
        session = self.session
        session.connection._send(
            session.channel, spec.Detach(handle=self.handle, closed=closed, error=error)
        )
        was_leaving = self._state is LinkStateName.LEAVING
        self._advance(StateTransition.SEND_CLOSING)
        session._locally_detached(self, error is not None)
        if was_leaving:
            self.unsettled = {}  # `LinkDetached` has reported them

    def _answer_now(self) -> bool:
        """Answer the peer's detach; False while the user has not answered the attach."""
        if self._is_gone or self._state is LinkStateName.DONE:
            return True
        if self._failed is not None:
            return self._answer_fault(self._failed)
        if self._state is LinkStateName.LAPSED:
            return False
        if self._state is LinkStateName.LEAVING:
            self._send_detach(self.remote_closed, None)
        return True

    def _answer_fault(self, error: spec.Error) -> bool:
        if self._state in LOCALLY_OPEN:
            self._send_detach(True, error)
        elif self._state in (LinkStateName.OFFERED, LinkStateName.LAPSED):
            if self.session._state not in LOCALLY_OPEN:
                return False
            self._refuse(error)
            self._is_gone = True
        return True

    def _abandon(self) -> None:
        """Drop everything: the session or connection is gone."""
        self._is_gone = True
        self._state = LinkStateName.DONE
        self.is_active = False
        self.credit = 0
        self._count(0)
        self._outgoing = None
        self._drop_unfinished()

    @property
    def unfinished(self) -> Delivery | None:
        """Receiver: the delivery that has begun on the link and not ended."""
        return None if self._unfinished is None else self._unfinished.delivery

    @property
    def unfinished_bytes(self) -> int:
        """Receiver: memory of the unfinished delivery, in octets, with overhead."""
        return 0 if self._unfinished is None else self._unfinished.cost

    @property
    def is_in_parts(self) -> bool:
        """Receiver: whether the unfinished delivery is handed up as it comes (`PartsReceived`)."""
        return self._unfinished is not None and self._unfinished.mode is not PartsMode.GATHERED

    @property
    def progress_at(self) -> float:
        """Receiver: time of the last progress of the `UnfinishedDelivery`; 0 without one."""
        return 0.0 if self._unfinished is None else self._unfinished.progress_at

    def restart_progress(self, now: float) -> None:
        """Receiver: count progress from now: until now we held the unfinished delivery up."""
        if self._unfinished is not None:
            self._unfinished.restart_progress(now)

    def _drop_unfinished(self) -> None:
        unfinished = self._unfinished
        if unfinished is None:
            return
        self._unfinished = None
        self.session._unfinished_links.pop(self, None)
        self.session.connection.partial_bytes -= unfinished.cost
        if unfinished.mode is not PartsMode.GATHERED:
            self.session._parts_ended()

    # ----------------------------------------------------------------------------- sending

    @property
    def sendable(self) -> int:
        """Number of deliveries that `send` would put on the wire at once, by credit and window.

        A delivery of several frames uses more of the window; the rest waits in the session.
        """
        session = self.session
        if self._state is not OPEN or session._queue or not self._allow_new:
            return 0
        if self._outgoing is not None:
            return 0
        window = session.remote_incoming_window
        return self.credit if self.credit < window else window

    def send(
        self,
        parts: Sequence[bytes],
        tag: bytes,
        *,
        settled: bool = False,
        message_format: int = 0,
        state: spec.DeliveryState | None = None,
        context: object = None,
        batchable: bool = False,
        resume: bool = False,
        aborted: bool = False,
        size: int | None = None,
    ) -> Delivery:
        """Send one delivery, in as many frames as the peer's max-frame-size asks for.

        Args:
            parts: buffers that make up the encoded message; they are not copied or joined.
            tag: at most 32 octets, unique among the unsettled deliveries of the link.
            settled: forget it at once.
            message_format: 0 for the format of part 3.
            state: a delivery state to go with it (a transaction, or a resumed outcome).
            context: the context for `Delivery.context`.
            batchable: the peer may settle it together with later ones.
            resume: it continues an unsettled delivery of an earlier attachment (§2.6.13).
            aborted: with resume: give it up; it counts as settled.
            size: the size for `send_parts`.

        Raises:
            LocalProtocolError: no credit, a link that is not attached or is in the middle of a
                delivery in parts, or settlement against the link's snd-settle-mode.
            MessageSizeExceeded: the message is larger than the peer takes.
        """
        session = self.session
        if self.credit <= 0 or self._state is not OPEN or self.role != "sender":
            raise self._cannot_send()
        if self._outgoing is not None:
            raise LocalProtocolError("a delivery in parts has not ended on this link")
        rule = self._settle_rule
        if rule is not None and settled is not rule and not resume:
            raise LocalProtocolError("the link's snd-settle-mode does not allow this")
        unsettled = self.unsettled
        if not resume and (not self._allow_new or tag in unsettled):
            raise LocalProtocolError("the delivery-tag is in use, or the link may only resume")
        if len(tag) > 32:
            raise LocalProtocolError("a delivery-tag has at most 32 octets")
        is_whole = size is None
        if size is None:
            size = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        if self.max_message_size and size > self.max_message_size:
            raise self._too_large(size)
        if state is not None and len(codec.encode(state)) > MAX_STATE:
            raise LocalProtocolError("the delivery state leaves no room for a payload")
        delivery = Delivery(self, -1, tag, b"", message_format, settled, None, batchable)
        delivery.resumed = resume
        delivery.local_state = state
        delivery.context = context
        self.credit -= 1
        self.deliveries += 1
        if aborted:
            delivery.settled = True
        elif not settled:
            unsettled[tag] = delivery
        connection = session.connection
        connection.deliveries_out += 1
        if (
            size <= connection._single_payload
            and is_whole
            and session.remote_incoming_window > 0
            and not session._queue
            and state is None
            and not aborted
        ):
            delivery_id = session._next_delivery_id
            session._next_delivery_id = (delivery_id + 1) & SERIAL_MASK
            delivery.id = delivery_id
            if not settled:
                session._outgoing[delivery_id] = delivery
            self.delivery_count = (self.delivery_count + 1) & SERIAL_MASK
            session.remote_incoming_window -= 1
            session.next_outgoing_id = (session.next_outgoing_id + 1) & SERIAL_MASK
            sink = connection._sink
            sink.append(
                write_transfer(
                    session.channel,
                    self.handle,
                    delivery_id,
                    tag,
                    message_format,
                    settled,
                    False,
                    size,
                    None,
                    False,
                    resume,
                    None,
                    batchable,
                )
            )
            sink.extend(parts)
            connection.frames_out += 1
            return delivery
        if is_whole:
            session._output.add(delivery, parts, size, aborted)
        else:
            self._outgoing = session._output.open(delivery, size)
        return delivery

    def send_parts(
        self,
        size: int,
        tag: bytes,
        *,
        settled: bool = False,
        message_format: int = 0,
        state: spec.DeliveryState | None = None,
        context: object = None,
        resume: bool = False,
    ) -> OutgoingParts:
        """Begin a delivery that is given in parts: one too large to be in memory.

        Until it has ended, nothing else can be sent on this link; other links of the session go
        on in between. The terms are those of `send`.

        Args:
            size: octets in all; they are counted.
            tag: see `send`.
            settled: see `send`.
            message_format: see `send`.
            state: see `send`.
            context: see `send`.
            resume: see `send`.

        Raises:
            LocalProtocolError: as `send`.
            MessageSizeExceeded: as `send`.
        """
        self.send(
            (),
            tag,
            settled=settled,
            message_format=message_format,
            state=state,
            context=context,
            resume=resume,
            size=size,
        )
        assert self._outgoing is not None
        return self._outgoing

    def _too_large(self, size: int) -> MessageSizeExceeded:
        return MessageSizeExceeded(
            f"the message has {size} octets, the peer takes {self.max_message_size}"
        )

    def _cannot_send(self) -> LocalProtocolError:
        if self.role != "sender":
            return LocalProtocolError(f"link {self.name!r} is a receiver")
        if self._state is not OPEN:
            return LocalProtocolError(f"link {self.name!r} cannot send: {self._state.name}")
        return LocalProtocolError(f"link {self.name!r} has no credit")

    def drained(self) -> None:
        """Give up the remaining credit and say so to the receiver (§2.6.7).

        Call it when `drain` is set and there is nothing more to send. While deliveries wait for
        the session window the answer waits behind them. Each drain is answered once: further
        calls do nothing until the receiver's next flow.

        Raises:
            LocalProtocolError: the link is a receiver.
        """
        if self.role != "sender":
            raise LocalProtocolError(f"link {self.name!r} is a receiver")
        if self._state is not OPEN or self._drain_answered:
            return
        if self._queued or self._outgoing is not None:
            self._drain_waits = True
            return
        self._drain_waits = False
        self._drain_answered = self.drain
        self.delivery_count = (self.delivery_count + self.credit) & SERIAL_MASK
        self.credit = 0
        self._echo_due = False
        self._send_flow(drain=self.drain)


__all__ = [
    "MAX_STATE",
    "Delivery",
    "Link",
    "LinkSession",
    "OutgoingParts",
    "PartsMode",
    "UnfinishedDelivery",
]
