# SPDX-License-Identifier: Apache-2.0
"""Links and deliveries (part 2 §2.6).

Theory of operation
-------------------

A `Link` is one of our two possible ends: ``role`` is *ours*. What is counted where:

* **Credit** (§2.6.7). The receiver owns it. Both ends count deliveries with ``delivery_count``;
  the receiver says how many more there may be. As the sender we recompute our credit from each
  flow, so that deliveries which crossed the flow on the wire are taken off. As the receiver we
  take one off for each delivery that begins.
* **Tolerance.** Two kinds of deliveries without credit are let through: the first few on a new
  link, sent before our first flow was seen (P-04, publishers that do not wait), and those that
  were granted once and then revoked by a smaller number (F-04). Neither can be distinguished from
  deliveries already on their way, so both are allowances that the next larger grant uses up. Any
  other detaches the link with ``amqp:link:transfer-limit-exceeded``.
* **Unsettled** (§2.6.12). ``unsettled`` maps delivery-tag to `Delivery`. The session has the same
  objects by delivery-id, because dispositions name ids. A delivery leaves both when either side
  settles it. A delivery that was sent settled is never in them.

A message in several frames is gathered in an `UnfinishedDelivery` and reported after its last
frame; on a link with ``takes_parts`` a large one is reported as it comes (`transfer_input`). Past
``max_message_size`` nothing is kept: the link is detached at once. In the other direction
`Link.send_parts` begins a delivery whose octets follow (`transfer_output`).

Who decides what is in force: the sender for the source and its settle mode, the receiver for the
target, its settle mode and the maximal message size. The attributes of `Link` hold that; the
peer's own words are in ``remote_attach``. Of an attach that we have answered only the numbers stay
there: properties, capabilities, unsettled map and the termini that were asked for may be as large
as a frame, and nobody needs them while the link lives. `Link.octets` estimates the rest.

Resumption (§2.6.13)
--------------------

The engine keeps nothing of a link beyond its detach: termini and their unsettled state belong to
the user, who knows which outlive the link. To resume, give the kept map to `Link.accept` or
`Session.attach` as ``unsettled`` and read the peer's in ``remote_attach.unsettled``. Then

* as sender, `send` with ``resume=True`` under the same delivery-tag;
* as receiver, a transfer with *resume* for a tag of our map arrives as a delivery with
  ``resumed`` set; for any other tag the engine ignores it, as §2.7.5 asks.

An unsettled map that does not fit into a frame is cut, and says so with incomplete-unsettled. A
sender who got an incomplete map may only resume until the link is attached anew.

Limits: a partial delivery is not resumed from the middle (nobody stores halves); the engine never
sends `Received` by itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final, Literal, Protocol

from amqproute.conditions import Condition
from amqproute.errors import LocalProtocolError, MessageSizeExceeded
from amqproute.wire.amqp10 import codec, spec
from amqproute.wire.amqp10.connection_state import ConnectionState
from amqproute.wire.amqp10.fastpath import write_transfer
from amqproute.wire.amqp10.serial_numbers import SERIAL_HALF, SERIAL_MASK
from amqproute.wire.amqp10.state_tables import (
    ENDPOINT,
    LOCALLY_OPEN,
    LinkStateName,
    StateTransition,
)
from amqproute.wire.amqp10.value_memory import LINK_OCTETS, REFUSED_OCTETS, footprint

Role = Literal["sender", "receiver"]

PROGRESS_OCTETS: Final = 1024
"""Octets by which an unfinished delivery has to grow for it to count as progress."""
REFUSED_NAME: Final = 256
"""Characters kept of the name of a refused link."""
MAX_STATE: Final = 256
"""Octets of an encoded delivery state that go with a transfer: it must fit into 512 with more."""


class Delivery:
    """One delivery on one link.

    Attributes:
        link: the link it belongs to.
        id: the session's number for it; -1 while an outgoing one waits for the session window.
        tag: the sender's name for it, unique among the link's unsettled deliveries.
        payload: the complete message; incoming only. For a delivery in parts: the user's.
        rest: for a delivery in parts: the user's.
        message_format: 0 for the format of part 3.
        settled: nothing more will be said about it. For one that just arrived: it was sent
            settled.
        state: the last state from the peer.
        local_state: the last state that we sent.
        context: the user's.
        batchable: the sender does not mind if it is settled together with later ones (P-06).
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
        state: Any,
        batchable: bool,
        resumed: bool,
        rcv_settle_mode: int,
    ) -> None:
        self.link = link
        self.id = delivery_id
        self.tag = tag
        self.payload = payload
        self.rest: Any = None
        self.message_format = message_format
        self.settled = settled
        self.state = state
        self.local_state: Any = None
        self.context: Any = None
        self.batchable = batchable
        self.resumed = resumed
        self.rcv_settle_mode = rcv_settle_mode

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
    """Where a session keeps the deliveries that do not leave at once (`transfer_output`)."""

    def add(self, delivery: Delivery, parts: Sequence[bytes], size: int, aborted: bool) -> None:
        """Add a whole delivery."""

    def open(self, delivery: Delivery, size: int) -> OutgoingParts:
        """Return a delivery of so many octets, to be appended."""

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


class LinkSession(ABC):
    """The session of a link, as far as links and the parts of the session use it.

    `amqproute.wire.amqp10.session.Session` is one. This stands here, below it, because links and
    sessions know each other: a session makes links, and a link sends and detaches through its
    session.

    Attributes:
        connection: the connection it is on.
        channel: ours; -1 before we have begun or answered.
        remote_incoming_window: transfer frames that we may still send.
        next_outgoing_id: the transfer-id of the next frame that goes out.
    """

    connection: ConnectionState
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
        """Where the session is (`amqproute.wire.amqp10.state_tables`)."""
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
        """Return room: the user is done with so many octets of `PartsReceived`."""

    @abstractmethod
    def settle(
        self, deliveries: Iterable[Delivery], state: object = None, settled: bool = True
    ) -> None:
        """Send the peer a state of deliveries, and by default settle them (part 2 §2.6.12).

        For incoming deliveries we speak as the receiver, for outgoing ones as the sender.
        Consecutive delivery-ids go out as one disposition. Deliveries that are settled already, by
        us or by the peer, or gone with their link, are skipped.

        Args:
            deliveries: of this session, best in their order of arrival.
            state: an outcome or another delivery state; None when only the settlement matters.
            settled: forget them; False leaves that to the other side (rcv-settle-mode second).
        """

    @abstractmethod
    def _flow(self) -> spec.Flow:
        """Return the session's part of a flow frame."""

    @abstractmethod
    def _acquire_handle(self) -> int:
        """Return a free handle.

        Raises:
            LocalProtocolError: the peer's handle-max is reached.
        """

    @abstractmethod
    def _parts_ended(self) -> None:
        """Count one link less in the middle of a delivery in parts."""

    @abstractmethod
    def _locally_detached(self, link: Link, with_error: bool) -> None:
        """Drop the deliveries of a link whose detach we have sent, with or without an error."""


class Link:
    """One end of a link: a `sender` or a `receiver`, as ``role`` says.

    Attributes:
        session: the session it is attached to.
        name: unique between the two containers for each direction.
        role: ours.
        source: the source in force.
        target: the target in force.
        snd_settle_mode: in force.
        rcv_settle_mode: in force.
        max_message_size: in force, in octets; 0 for no limit.
        remote_attach: the peer's attach, or None before it came; without termini, unsettled map,
            capabilities and properties once we have answered it.
        octets: memory of the link, estimated.
        unsettled: delivery-tag to delivery, oldest first.
        context: the user's.
        credit: sender: deliveries that the receiver still takes. Receiver: deliveries that the
            peer may still send.
        drain: sender: the receiver wants the credit used up, see `drained`. Receiver: we do.
        delivery_count: the link's counter (§2.6.7).
        available: receiver: how many deliveries the sender said it has waiting.
        deliveries: how many deliveries went or came in all.
        takes_parts: receiver: large deliveries come as `PartsReceived`. Set it when accepting, or
            before credit is given.
    """

    __slots__ = (
        "_allow_new",
        "_drain_answered",
        "_drain_waits",
        "_echo_due",
        "_end_reported",
        "_errant_from",
        "_failed",
        "_grace",
        "_is_gone",
        "_outgoing",
        "_overdraft",
        "_predecessor",
        "_queued",
        "_resumable",
        "_settle_rule",
        "_state",
        "_unfinished",
        "available",
        "context",
        "credit",
        "deliveries",
        "delivery_count",
        "drain",
        "handle",
        "max_message_size",
        "name",
        "octets",
        "rcv_settle_mode",
        "remote_attach",
        "remote_closed",
        "remote_handle",
        "role",
        "session",
        "snd_settle_mode",
        "source",
        "takes_parts",
        "target",
        "unsettled",
    )

    def __init__(self, session: LinkSession, name: str, role: Role) -> None:
        self.session = session
        self.name = name
        self.role: Role = role
        self.source: spec.Source | None = None
        self.target: spec.Target | spec.Coordinator | None = None
        self.snd_settle_mode = spec.SENDER_MIXED
        self.rcv_settle_mode = spec.RECEIVER_FIRST
        self.max_message_size = 0
        self.remote_attach: spec.Attach | None = None
        self.octets = 0
        self.remote_closed = False
        self.unsettled: dict[bytes, Delivery] = {}
        self.context: Any = None
        self.credit = 0
        self.drain = False
        self.delivery_count = 0
        self.available: int | None = None
        self.deliveries = 0
        self.handle = -1
        self.remote_handle = -1
        self._state = LinkStateName.UNBOUND
        # The user knows of the detach, or has asked for it: no more events.
        self._end_reported = False
        # The engine or the peer's end has removed the link: verbs are no-ops.
        self._is_gone = False
        # Set when the peer broke a rule before our attach: the detach is due, see `connection`.
        self._failed: spec.Error | None = None
        self._predecessor: Link | None = None
        self._echo_due = False
        # Sender.
        self._settle_rule: bool | None = None
        self._allow_new = True
        self._queued = 0
        self._outgoing: OutgoingParts | None = None
        self._drain_answered = False
        self._drain_waits = False
        # Receiver.
        self._grace = 0
        self._overdraft = 0
        self._errant_from: int | None = None
        self._unfinished: UnfinishedDelivery | None = None
        self.takes_parts = False
        self._resumable: Mapping[bytes, Any] = {}

    def __repr__(self) -> str:
        return f"<Link {self.name!r} {self.role} {self._state.name}>"

    @property
    def state(self) -> LinkStateName:
        """Where the link is (`amqproute.wire.amqp10.state_tables`)."""
        return self._state

    @property
    def is_active(self) -> bool:
        """Whether actions on the link and its deliveries still have an effect.

        True from when both sides have attached until we have detached. When the peer detaches,
        ends or closes, it stays true until `Connection.data_to_send` has written the answer, so
        that whoever walks the events can still act on a delivery that came before (P-03).
        """
        return (
            self._state is LinkStateName.OPEN or self._state is LinkStateName.LEAVING
        ) and self._failed is None

    @property
    def is_sender(self) -> bool:
        """Whether we are the sending end."""
        return self.role == "sender"

    # --------------------------------------------------------------------------- attaching

    def accept(
        self,
        *,
        source: spec.Source | None = None,
        target: spec.Target | spec.Coordinator | None = None,
        snd_settle_mode: int | None = None,
        rcv_settle_mode: int | None = None,
        max_message_size: int | None = None,
        offered_capabilities: Sequence[str] = (),
        desired_capabilities: Sequence[str] = (),
        properties: Mapping[str, Any] | None = None,
        unsettled: Mapping[bytes, Any] | None = None,
        incomplete_unsettled: bool = False,
        initial_delivery_count: int = 0,
    ) -> None:
        """Answer the peer's attach. What is None is echoed or taken from the settings.

        Nothing happens when the link is gone already, because the peer's session or connection
        went down further along the same events.

        Args:
            source: the source in force; by default the one that the peer asked for.
            target: the target in force.
            snd_settle_mode: by default what the peer asked for.
            rcv_settle_mode: by default what the peer asked for.
            max_message_size: octets, 0 for no limit; by default that of the settings.
            offered_capabilities: symbols.
            desired_capabilities: symbols.
            properties: of the link.
            unsettled: what we kept of an earlier attachment: delivery-tag to state.
            incomplete_unsettled: the map above lacks something.
            initial_delivery_count: sender only: where the counter starts.

        Raises:
            LocalProtocolError: the link is not waiting for an answer.
        """
        if not self._may_answer():
            return
        asked = self.remote_attach
        assert asked is not None
        self.source = asked.source if source is None else source
        self.target = asked.target if target is None else target
        self.snd_settle_mode = asked.snd_settle_mode if snd_settle_mode is None else snd_settle_mode
        self.rcv_settle_mode = asked.rcv_settle_mode if rcv_settle_mode is None else rcv_settle_mode
        if self.is_sender:
            # A flow that came before this attach counted from our initial count (§2.7.4).
            self.delivery_count = initial_delivery_count & SERIAL_MASK
        self._send_attach(
            max_message_size,
            offered_capabilities,
            desired_capabilities,
            properties,
            unsettled,
            incomplete_unsettled,
        )
        self._apply_terms()
        self._drop_request()
        if self._failed is not None:
            self._answer_now()
        elif self._echo_due and self._state is LinkStateName.OPEN:
            self._answer_echo()

    def refuse(
        self,
        condition: Condition | str,
        description: str | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        """Answer the peer's attach with a null terminus and close the link (§2.6.3).

        Raises:
            LocalProtocolError: the link is not waiting for an answer.
        """
        if not self._may_answer():
            return
        self._end_reported = True
        self._refuse(spec.Error(condition=condition, description=description, info=info))

    def _may_answer(self) -> bool:
        if self._is_gone:
            return False
        if self._state not in (LinkStateName.OFFERED, LinkStateName.LAPSED):
            raise LocalProtocolError(f"link {self.name!r} awaits no answer: {self._state.name}")
        if self._predecessor is not None:
            # The same name was detached earlier in this read: its detach has to go out first.
            previous, self._predecessor = self._predecessor, None
            previous._answer_now()
        if self.session._state not in LOCALLY_OPEN:
            raise LocalProtocolError("the session of the link has not been accepted")
        return True

    def _refuse(self, error: spec.Error | None) -> None:
        """Send attach with a null terminus, then detach."""
        asked = self.remote_attach
        assert asked is not None
        if self.is_sender:
            self.source, self.target = None, asked.target
        else:
            self.source, self.target = asked.source, None
        self.snd_settle_mode = asked.snd_settle_mode
        self.rcv_settle_mode = asked.rcv_settle_mode
        self._send_attach(0, (), (), None, None, False)
        self.source = self.target = None
        self.remote_attach = _without_bulk(asked)
        self._count(REFUSED_OCTETS)
        self._send_detach(True, error)
        self.name = self.name[:REFUSED_NAME]  # it is free again; this is for those who read logs

    def _drop_request(self) -> None:
        """Keep the terms in force, and drop those that the peer asked for: they are answered."""
        asked = self.remote_attach
        assert asked is not None
        self.remote_attach = _without_bulk(asked)
        kept = footprint(self.source) + footprint(self.target) + footprint(self.name)
        self._count(LINK_OCTETS + kept)

    def _count(self, octets: int) -> None:
        """Record the memory that the link occupies now."""
        self.session.connection.endpoint_octets += octets - self.octets
        self.octets = octets

    def _send_attach(
        self,
        max_message_size: int | None,
        offered_capabilities: Sequence[str],
        desired_capabilities: Sequence[str],
        properties: Mapping[str, Any] | None,
        unsettled: Mapping[bytes, Any] | None,
        incomplete_unsettled: bool,
    ) -> None:
        session = self.session
        settings = session.connection.settings
        self.handle = session._acquire_handle()
        self._advance(StateTransition.SEND_OPENING)
        if max_message_size is None:
            max_message_size = settings.max_message_size or 0
        if not self.is_sender:
            self.max_message_size = max_message_size
            if self.remote_attach is None:
                self._grace = settings.credit_grace_new
            self._resumable = dict(unsettled) if unsettled else {}
        attach = spec.Attach(
            name=self.name,
            handle=self.handle,
            role=not self.is_sender,
            snd_settle_mode=self.snd_settle_mode,
            rcv_settle_mode=self.rcv_settle_mode,
            source=self.source,
            target=self.target,
            unsettled=dict(unsettled) if unsettled else None,
            incomplete_unsettled=incomplete_unsettled,
            initial_delivery_count=self.delivery_count if self.is_sender else None,
            max_message_size=max_message_size or None,
            offered_capabilities=tuple(offered_capabilities),
            desired_capabilities=tuple(desired_capabilities),
            properties=properties,
        )
        session.connection._send_attach(session.channel, attach)
        if not self.is_sender:
            self._allow_new = not attach.incomplete_unsettled
            self._resumable = attach.unsettled or {}

    def _apply_terms(self) -> None:
        """Set the terms of the link from both attaches."""
        asked = self.remote_attach
        assert asked is not None
        if self.is_sender:
            self.target = asked.target
            self.rcv_settle_mode = asked.rcv_settle_mode
            self.max_message_size = asked.max_message_size or 0
            self._allow_new = not asked.incomplete_unsettled
            self._settle_rule = _SETTLE_RULES[self.snd_settle_mode]
        else:
            self.source = asked.source
            self.snd_settle_mode = asked.snd_settle_mode

    def _attached_by_peer(self, attach: spec.Attach) -> None:
        """Process the peer's attach: of a new link, or the answer to ours."""
        self.remote_attach = attach
        self._count(LINK_OCTETS + footprint(attach))
        self.remote_handle = attach.handle
        self._advance(StateTransition.RECEIVE_OPENING)
        if not self.is_sender:
            self.delivery_count = attach.initial_delivery_count or 0
        if self._state is LinkStateName.OPEN:
            self._apply_terms()
        elif self._state is LinkStateName.OFFERED:
            self.source, self.target = attach.source, attach.target
            self.snd_settle_mode = attach.snd_settle_mode
            self.rcv_settle_mode = attach.rcv_settle_mode
            if self.is_sender:
                self.max_message_size = attach.max_message_size or 0
            else:
                settings = self.session.connection.settings
                self.max_message_size = settings.max_message_size or 0
                self._grace = settings.credit_grace_new

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

    def _advance(self, step: StateTransition) -> None:
        state = ENDPOINT.get((self._state, step))
        if state is None:
            raise LocalProtocolError(f"link {self.name!r}: no {step.name} in {self._state.name}")
        self._state = state

    # ----------------------------------------------------------------------------- sending

    @property
    def sendable(self) -> int:
        """How many deliveries `send` would put on the wire at once, by credit and window.

        A delivery of several frames uses more of the window; the rest waits in the session.
        """
        session = self.session
        if self._state is not LinkStateName.OPEN or session._queue or not self._allow_new:
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
        state: Any = None,
        context: Any = None,
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
            context: for `Delivery.context`.
            batchable: the peer may settle it together with later ones.
            resume: it continues an unsettled delivery of an earlier attachment (§2.6.13).
            aborted: with resume: give it up; it counts as settled.
            size: for `send_parts`.

        Raises:
            LocalProtocolError: no credit, a link that is not attached or is in the middle of a
                delivery in parts, or settlement against the link's snd-settle-mode.
            MessageSizeExceeded: the message is larger than the peer takes.
        """
        session = self.session
        if self.credit <= 0 or self._state is not LinkStateName.OPEN or self.role != "sender":
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
        delivery = Delivery(self, -1, tag, b"", message_format, settled, None, batchable, resume, 0)
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
        state: Any = None,
        context: Any = None,
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
        if self._state is not LinkStateName.OPEN:
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
        if self._state is not LinkStateName.OPEN or self._drain_answered:
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

    def inform(self, properties: Mapping[str, Any]) -> None:
        """Send the receiver link state properties in a flow (§2.7.4); the credit is untouched.

        Raises:
            LocalProtocolError: the link is a receiver.
        """
        if self.role != "sender":
            raise LocalProtocolError(f"link {self.name!r} is a receiver")
        if self._state is LinkStateName.OPEN:
            self._send_flow(drain=self.drain, properties=properties)

    # --------------------------------------------------------------------------- receiving

    def flow(
        self,
        credit: int,
        drain: bool = False,
        echo: bool = False,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """Set the link's credit: this many deliveries from now on (§2.6.7).

        A number below the present credit revokes; deliveries within the former grant are taken
        nevertheless, as they may be on their way.

        Args:
            credit: deliveries.
            drain: ask the sender to use the credit up or give it back.
            echo: ask for the sender's flow state.
            properties: link state properties (``txn-id``).

        Raises:
            LocalProtocolError: the link is a sender, or has not been attached.
        """
        if self.role != "receiver":
            raise LocalProtocolError(f"link {self.name!r} is a sender")
        if self._state is LinkStateName.LEAVING or self._is_gone or self._end_reported:
            return
        if self._state not in LOCALLY_OPEN:
            raise LocalProtocolError(f"link {self.name!r} is not attached: {self._state.name}")
        if not 0 <= credit <= SERIAL_MASK:
            raise LocalProtocolError(f"link-credit cannot be {credit}")
        # What is left of the grace stays good for deliveries that set out before this flow.
        self._overdraft = max(0, self._overdraft + self.credit - credit) + self._grace
        self._grace = 0
        self.credit = credit
        self.drain = drain
        self._send_flow(drain=drain, echo=echo, properties=properties)

    def _send_flow(
        self,
        *,
        drain: bool = False,
        echo: bool = False,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        session = self.session
        count: int | None = self.delivery_count
        if self.remote_attach is None and not self.is_sender:
            count = None
        flow = session._flow()
        flow.handle = self.handle
        flow.delivery_count = count
        flow.link_credit = self.credit + self._queued
        flow.available = 0 if self.is_sender and drain else None
        flow.drain = drain
        flow.echo = echo
        flow.properties = properties
        session.connection._send(session.channel, flow)

    def _answer_echo(self) -> None:
        self._echo_due = False
        self._send_flow(drain=self.drain)

    def _on_flow(self, flow: spec.Flow) -> None:
        """Apply the link's part of the peer's flow."""
        if self.role == "sender":
            if flow.link_credit is not None:
                counted = self.delivery_count
                if flow.delivery_count is not None and self._state is not LinkStateName.OFFERED:
                    ahead = (flow.delivery_count - counted) & SERIAL_MASK
                    counted = ahead - 0x100000000 if ahead >= SERIAL_HALF else ahead
                else:
                    # The peer has not seen our attach: it counts from where we start.
                    counted = 0
                self.credit = max(0, counted + flow.link_credit - self._queued)
            self.drain = flow.drain
            self._drain_answered = False
        else:
            self.available = flow.available
            if flow.delivery_count is not None:
                # Only draining moves the count without a delivery (§2.6.7).
                moved = (flow.delivery_count - self.delivery_count) & SERIAL_MASK
                if 0 < moved < SERIAL_HALF:
                    self.delivery_count = flow.delivery_count
                    self.credit = max(0, self.credit - moved)
                    self._overdraft = 0


def _without_bulk(attach: spec.Attach) -> spec.Attach:
    """Return an attach without the fields whose size is up to the peer."""
    return spec.Attach(
        name=attach.name,
        handle=attach.handle,
        role=attach.role,
        snd_settle_mode=attach.snd_settle_mode,
        rcv_settle_mode=attach.rcv_settle_mode,
        incomplete_unsettled=attach.incomplete_unsettled,
        initial_delivery_count=attach.initial_delivery_count,
        max_message_size=attach.max_message_size,
    )


_SETTLE_RULES: Final[dict[int, bool | None]] = {
    spec.SENDER_UNSETTLED: False,
    spec.SENDER_SETTLED: True,
    spec.SENDER_MIXED: None,
}

__all__ = [
    "MAX_STATE",
    "Delivery",
    "Link",
    "LinkSession",
    "OutgoingParts",
    "PartsMode",
    "Role",
    "UnfinishedDelivery",
]
