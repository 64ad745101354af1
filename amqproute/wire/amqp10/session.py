# SPDX-License-Identifier: Apache-2.0
"""Sessions (part 2 §2.5): windows, handles, delivery-ids, dispositions.

Theory of operation
-------------------

A `Session` joins one channel of ours with one of the peer's. It numbers three things per
direction, all as serial numbers that wrap at 2**32:

* **transfer-ids**, one per transfer *frame*: the windows (§2.5.6) count these. Our incoming
  window is opened again by a flow when half of it is used up, so a sender never stalls on it;
  what bounds our memory is credit and max_partial. The peer's window bounds what we send:
  frames that do not fit wait in the `Outbox`, in order, and leave when a flow opens the window.
* **delivery-ids**, one per delivery: the keys of ``_incoming`` and ``_outgoing``, which hold the
  unsettled deliveries of all links. An outgoing delivery gets its id when its first frame leaves,
  so that one dropped from the queue leaves no gap.
* **handles**, one per attached link: ours index nothing, the peer's index ``_by_remote_handle``.

`settle` turns runs of consecutive ids into one disposition frame each, whatever links they are
on; a disposition that comes in is taken apart into one event per link.

**Large deliveries** come in parts on links that take parts (`amqproute.wire.amqp10.parts`). As long
as one is under way the incoming window does bound memory: by the octets that the user has not taken
(`took`). What was granted before the window became smaller stays granted (``_slack``).

A fault of the peer's within the session ends it with a condition; what arrives until the peer's
end is discarded (E-11). The session's methods that begin with ``_on_`` take one performative of
the peer's each and raise `LinkFaultError` or `SessionFaultError`; the connection catches these
and sends the detach or the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from amqproute import conditions
from amqproute.errors import LocalProtocolError
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.events import (
    DeliveriesUpdated,
    LinkAttached,
    LinkDetached,
    LinkFlowed,
    SessionFlowed,
)
from amqproute.wire.amqp10.fast import write_disposition
from amqproute.wire.amqp10.faults import (
    ConnectionFaultError,
    LinkFaultError,
    SessionFaultError,
    too_large,
)
from amqproute.wire.amqp10.link import Delivery, Link, Role
from amqproute.wire.amqp10.numbers import SERIAL_HALF, SERIAL_MASK, Numbers
from amqproute.wire.amqp10.outbox import Outbox
from amqproute.wire.amqp10.parts import IncomingParts
from amqproute.wire.amqp10.states import ENDPOINT, LOCALLY_OPEN, State, Step

if TYPE_CHECKING:
    from amqproute.wire.amqp10.connection import Connection

PART_OCTETS: Final = 64
"""What a part of a delivery costs in memory beside its octets."""
OUTGOING_WINDOW: Final = 0x7FFFFFFF
"""What we tell the peer of our outgoing window: we limit ourselves by its incoming one only."""


class Session:
    """One session: a channel of ours and one of the peer's.

    Attributes:
        connection: the connection it is on.
        channel: ours; -1 before we have begun or answered.
        remote_channel: the peer's; -1 before its begin.
        remote_begin: the peer's begin, or None.
        context: the user's.
        incoming_window: transfer frames that the peer may still send.
        remote_incoming_window: transfer frames that we may still send.
        next_incoming_id: the transfer-id of the next frame that comes in.
        next_outgoing_id: the transfer-id of the next frame that goes out.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.channel = -1
        self.remote_channel = -1
        self.remote_begin: spec.Begin | None = None
        self._members: dict[Link, None] = {}
        self.context: Any = None
        self._window = connection.settings.incoming_window
        self._low_water = self._window // 2
        self.incoming_window = self._window
        self._parts = IncomingParts(self)
        self._slack = 0  # frames granted before the window became smaller
        self.next_incoming_id = 0
        self.next_outgoing_id = 0
        self.remote_incoming_window = 0
        self._state = State.UNBOUND
        self._told = False
        self._gone = False
        # Set when the peer broke a rule before our begin: the end is due, see `connection`.
        self._failed: spec.Error | None = None
        self._handles = Numbers(SERIAL_MASK)
        self._by_remote_handle: dict[int, Link] = {}
        self._handle_max = connection.settings.handle_max
        self._next_delivery_id = 0
        self._incoming: dict[int, Delivery] = {}
        self._outgoing: dict[int, Delivery] = {}
        self._outbox = Outbox(self)
        self._queue = self._outbox.queue
        self._echo_due = False

    def __repr__(self) -> str:
        return f"<Session {self.channel}/{self.remote_channel} {self._state.name}>"

    @property
    def state(self) -> State:
        """Where the session is (`amqproute.wire.amqp10.states`)."""
        return self._state

    @property
    def is_active(self) -> bool:
        """Whether both sides have begun and we have not ended; see `Link.is_active`."""
        return self._state is State.OPEN or self._state is State.LEAVING

    @property
    def links(self) -> tuple[Link, ...]:
        """All links of the session that are not done, ours and the peer's."""
        return tuple(self._members)

    # --------------------------------------------------------------------- beginning, ending

    def accept(
        self,
        *,
        handle_max: int | None = None,
        offered_capabilities: Sequence[str] = (),
        desired_capabilities: Sequence[str] = (),
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """Answer the peer's begin. Nothing happens when the session is gone already.

        Args:
            handle_max: highest handle that the peer may use; by default that of the settings.
            offered_capabilities: symbols.
            desired_capabilities: symbols.
            properties: of the session.

        Raises:
            LocalProtocolError: the session awaits no answer.
        """
        if self._gone:
            return
        if self._state not in (State.OFFERED, State.LAPSED):
            raise LocalProtocolError(f"the session awaits no answer: {self._state.name}")
        if self.connection._state not in LOCALLY_OPEN:
            raise LocalProtocolError("the connection has not been opened")
        self._send_begin(handle_max, offered_capabilities, desired_capabilities, properties)
        if self._failed is not None:
            self._answer_now()
        elif self._echo_due:
            self._echo_due = False
            self.connection._send(self.channel, self._flow())

    def _send_begin(
        self,
        handle_max: int | None = None,
        offered_capabilities: Sequence[str] = (),
        desired_capabilities: Sequence[str] = (),
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        connection = self.connection
        connection._take_channel(self)
        self._advance(Step.SEND_OPENING)
        if handle_max is not None:
            self._handle_max = handle_max
        self.incoming_window = self._window
        connection._send(
            self.channel,
            spec.Begin(
                remote_channel=None if self.remote_begin is None else self.remote_channel,
                next_outgoing_id=self.next_outgoing_id,
                incoming_window=self.incoming_window,
                outgoing_window=OUTGOING_WINDOW,
                handle_max=self._handle_max,
                offered_capabilities=tuple(offered_capabilities),
                desired_capabilities=tuple(desired_capabilities),
                properties=properties,
            ),
        )

    def _begun_by_peer(self, channel: int, begin: spec.Begin) -> None:
        self.remote_channel = channel
        self.remote_begin = begin
        self._advance(Step.RECEIVE_OPENING)
        self.next_incoming_id = begin.next_outgoing_id
        self._handles.limit = begin.handle_max
        sent = self.next_outgoing_id  # we start at 0, and send nothing before this begin
        self.remote_incoming_window = max(0, begin.incoming_window - sent)

    def end(self, error: spec.Error | None = None) -> None:
        """End the session, and all its links without further events.

        Nothing happens when the session is gone already.

        Raises:
            LocalProtocolError: the session has not been begun or accepted.
        """
        if self._state is State.LAPSED and self._failed is None:
            self.accept()  # the peer has ended it already: our end is due
            return
        if self._gone or (self._told and self._state not in LOCALLY_OPEN):
            return
        if self._state is State.OFFERED:
            self.accept()
        if self._state not in LOCALLY_OPEN:
            raise LocalProtocolError(f"the session cannot end: {self._state.name}")
        self._told = True
        self._send_end(error)

    def _send_end(self, error: spec.Error | None) -> None:
        self.connection._send(self.channel, spec.End(error=error))
        self._advance(Step.SEND_CLOSING)
        self._dissolve()
        self.connection._locally_ended(self)

    def _answer_now(self) -> bool:
        """Answer the peer's end; False while the user has not answered the begin."""
        if self._gone or self._state is State.DONE:
            return True
        if self._failed is not None:
            return self._answer_fault(self._failed)
        if self._state is State.LAPSED:
            return False
        if self._state is State.LEAVING:
            self._send_end(None)
        return True

    def _answer_fault(self, error: spec.Error) -> bool:
        if self._state in (State.OFFERED, State.LAPSED):
            if self.connection._state not in LOCALLY_OPEN:
                return False
            self._send_begin()
        if self._state in LOCALLY_OPEN:
            self._send_end(error)
        return True

    def _hush(self) -> None:
        """The peer sends nothing more, and takes nothing more: no credit, no window."""
        self.remote_incoming_window = 0
        self._queue.clear()
        for link in self._members:
            link.credit = 0
            link._queued = 0
            link._drain_waits = False
            link._end_outgoing()
            link._drop_partial()

    def _dissolve(self) -> None:
        """Let go of all links: we have ended, or the connection has gone."""
        for link in self._members:
            self.connection._unregister(link)
            link._vanish()
        self._members.clear()
        self._by_remote_handle.clear()
        self._incoming.clear()
        self._outgoing.clear()
        self._queue.clear()
        self.remote_incoming_window = 0

    def _vanish(self) -> None:
        self._dissolve()
        self._gone = True
        self._state = State.DONE

    def _advance(self, step: Step) -> None:
        state = ENDPOINT.get((self._state, step))
        if state is None:
            raise LocalProtocolError(f"session: no {step.name} in {self._state.name}")
        self._state = state

    # ------------------------------------------------------------------------------- links

    def attach(
        self,
        name: str,
        role: Role,
        source: spec.Source | None,
        target: spec.Target | spec.Coordinator | None,
        *,
        snd_settle_mode: int = spec.SENDER_MIXED,
        rcv_settle_mode: int = spec.RECEIVER_FIRST,
        max_message_size: int | None = None,
        initial_delivery_count: int = 0,
        offered_capabilities: Sequence[str] = (),
        desired_capabilities: Sequence[str] = (),
        properties: Mapping[str, Any] | None = None,
        unsettled: Mapping[bytes, Any] | None = None,
        incomplete_unsettled: bool = False,
        context: Any = None,
    ) -> Link:
        """Attach a link; the peer's answer comes as `LinkAttached`.

        Args:
            name: unique between the two containers for this direction.
            role: ours.
            source: where the messages come from.
            target: where they go to.
            snd_settle_mode: asked for (receiver) or in force (sender).
            rcv_settle_mode: asked for (sender) or in force (receiver).
            max_message_size: octets, 0 for no limit; by default that of the settings.
            initial_delivery_count: sender only.
            offered_capabilities: symbols.
            desired_capabilities: symbols.
            properties: of the link.
            unsettled: what we kept of an earlier attachment: delivery-tag to state.
            incomplete_unsettled: the map above lacks something.
            context: for `Link.context`.

        Raises:
            LocalProtocolError: the name is in use, the peer's handle-max is reached, or the
                session is not begun.
        """
        if self._state not in LOCALLY_OPEN:
            raise LocalProtocolError(f"the session is {self._state.name}: no link can attach")
        connection = self.connection
        if (name, role) in connection._links:
            raise LocalProtocolError(f"the link name {name!r} is in use")
        link = Link(self, name, role)
        link.source, link.target = source, target
        link.snd_settle_mode, link.rcv_settle_mode = snd_settle_mode, rcv_settle_mode
        link.context = context
        link.delivery_count = initial_delivery_count & SERIAL_MASK if role == "sender" else 0
        link._send_attach(
            max_message_size,
            offered_capabilities,
            desired_capabilities,
            properties,
            unsettled,
            incomplete_unsettled,
        )
        self._members[link] = None
        connection._links[(name, role)] = link
        return link

    def _take_handle(self, link: Link) -> int:
        handle = self._handles.take()
        if handle is None:
            raise LocalProtocolError("the peer's handle-max is reached")
        return handle

    def _on_attach(self, attach: spec.Attach, unfit: str = "") -> None:
        """Take an attach.

        Args:
            attach: it, or what is told by name, handle and role.
            unfit: what is wrong with its other fields, if they cannot be read.
        """
        handle = attach.handle
        if handle > self._handle_max:
            raise ConnectionFaultError(
                conditions.CONNECTION_FRAMING_ERROR,
                f"handle {handle} is above the handle-max {self._handle_max}",
            )
        if handle in self._by_remote_handle:
            raise SessionFaultError(
                conditions.SESSION_HANDLE_IN_USE, f"handle {handle} is attached already"
            )
        role: Role = "sender" if attach.role else "receiver"
        connection = self.connection
        known = connection._links.get((attach.name, role))
        if known is not None and known._state in _AWAITING_ATTACH:
            if known.session is not self:
                raise SessionFaultError(
                    conditions.SESSION_ERRANT_LINK,
                    f"link {attach.name!r} is being attached on another session",
                )
            self._on_answer(known, attach, unfit)
            return
        predecessor = self._make_room(known)
        if len(self._members) > self._handle_max or len(self._members) > self._handles.limit:
            raise SessionFaultError(
                conditions.RESOURCE_LIMIT_EXCEEDED, "too many links await their answers"
            )
        link = Link(self, attach.name, role)
        link._attached_by_peer(attach)
        link._predecessor = predecessor
        self._members[link] = None
        self._by_remote_handle[handle] = link
        connection._links[(attach.name, role)] = link
        if unfit:
            raise LinkFaultError(link, conditions.INVALID_FIELD, unfit)
        if role == "receiver" and attach.initial_delivery_count is None:
            link._told = True
            raise LinkFaultError(
                link, conditions.INVALID_FIELD, "a sender has to give its initial-delivery-count"
            )
        connection._emit(LinkAttached(link, attach, False))

    def _make_room(self, known: Link | None) -> Link | None:
        """A name is attached a second time: steal it, or queue behind its answer."""
        if known is None:
            return None
        if known._state in (State.LEAVING, State.LAPSED):
            if known._state is State.LAPSED:
                # Never answered, and never will be: else the name would come up twice.
                if known.session._state in LOCALLY_OPEN:
                    known._refuse(None)
                    known._gone = True
                else:
                    known._vanish()
                    known.session._members.pop(known, None)
                return None
            return known
        self.connection._fail_link(
            known,
            spec.Error(
                condition=conditions.LINK_STOLEN,
                description="the link was attached again under the same name",
            ),
            closed=False,
        )
        return None

    def _on_answer(self, link: Link, attach: spec.Attach, unfit: str) -> None:
        self._by_remote_handle[attach.handle] = link
        link._attached_by_peer(attach)
        if link._state is State.OPEN:
            if unfit:
                raise LinkFaultError(link, conditions.INVALID_FIELD, unfit)
            self.connection._emit(LinkAttached(link, attach, True))
        else:
            # We have detached meanwhile. The name is free, the handle waits for the detach.
            self.connection._unregister(link)

    def _on_detach(self, detach: spec.Detach) -> None:
        link = self._by_remote_handle.pop(detach.handle, None)
        if link is None:
            raise _unattached(detach.handle)
        link.remote_closed = detach.closed
        link.credit = 0
        link._end_outgoing()
        link._drop_partial()
        told = link._told
        link._advance(Step.RECEIVE_CLOSING)
        if link._state is State.DONE:
            self._release(link)
            return
        if not told:
            link._told = True
            self.connection._emit(
                LinkDetached(link, detach.closed, detach.error, list(link.unsettled.values()))
            )
        self.connection._due.append(link)

    def _locally_detached(self, link: Link) -> None:
        """We have sent the detach."""
        if link._state is not State.WITHDRAWN:
            self.connection._unregister(link)
        link.credit = 0
        link._drop_partial()
        if link._state is State.DONE:
            self._release(link)

    def _release(self, link: Link) -> None:
        """Both have detached: the handle is free."""
        self._handles.give_back(link.handle)
        self._members.pop(link, None)
        self.connection._unregister(link)

    def _forget_deliveries(self, link: Link) -> None:
        table = self._outgoing if link.role == "sender" else self._incoming
        for delivery in link.unsettled.values():
            if table.get(delivery.id) is delivery:
                del table[delivery.id]

    # -------------------------------------------------------------------------- transfers in

    def _on_transfer(self, transfer: spec.Transfer, payload: bytes) -> Delivery | None:
        """Take one transfer frame; return the delivery that it completed."""
        self.next_incoming_id = (self.next_incoming_id + 1) & SERIAL_MASK
        window = self.incoming_window = self.incoming_window - 1
        if window <= self._low_water:
            self._reopen_window(window)
        link = self._by_remote_handle.get(transfer.handle)
        if link is None:
            raise _unattached(transfer.handle)
        if link._state is not State.OPEN and not self._may_transfer(link):
            return None
        if link._partial is not None:
            return self._on_continuation(link, transfer, payload)
        if link.role == "sender":
            raise LinkFaultError(link, conditions.NOT_ALLOWED, "a transfer came from the receiver")
        if link.credit > 0:
            link.credit -= 1
        else:
            self._tolerate(link)
        link.delivery_count = (link.delivery_count + 1) & SERIAL_MASK
        delivery_id = transfer.delivery_id
        tag = transfer.delivery_tag
        if delivery_id is None or tag is None:
            raise LinkFaultError(
                link, conditions.INVALID_FIELD, "a delivery begins without its id or its tag"
            )
        delivery = Delivery(
            link,
            delivery_id,
            tag,
            payload,
            transfer.message_format or 0,
            transfer.settled is True,
            transfer.state,
            transfer.batchable,
            transfer.resume,
            link.rcv_settle_mode,
        )
        if transfer.rcv_settle_mode is not None:
            _check_mode(delivery, transfer.rcv_settle_mode)
        if transfer.aborted:
            return None
        if transfer.more:
            link._partial = delivery
            self._gather(link, payload)
            return None
        return self._complete(link, delivery, len(payload))

    def _complete(self, link: Link, delivery: Delivery, size: int) -> Delivery | None:
        """A whole delivery is here: enter it. None when it is to be ignored."""
        if size > link.max_message_size > 0:
            raise too_large(link)
        if delivery.resumed:
            # §2.7.5: "MUST ignore resumed deliveries that are not in its local unsettled map".
            if delivery.tag not in link._resumable:
                return None
        elif not link._allow_new:
            raise LinkFaultError(
                link, conditions.NOT_ALLOWED, "our unsettled map was incomplete: only resume"
            )
        mode = link.snd_settle_mode
        if delivery.settled:
            if mode == spec.SENDER_UNSETTLED and not delivery.resumed:
                raise LinkFaultError(
                    link, conditions.NOT_ALLOWED, "settled, and snd-settle-mode is unsettled"
                )
        else:
            if mode == spec.SENDER_SETTLED:
                raise LinkFaultError(
                    link, conditions.NOT_ALLOWED, "not settled, and snd-settle-mode is settled"
                )
            delivery_id = delivery.id
            tag = delivery.tag
            if delivery_id in self._incoming:
                raise SessionFaultError(
                    conditions.INVALID_FIELD, f"delivery-id {delivery_id} is in use"
                )
            if tag in link.unsettled:
                raise LinkFaultError(link, conditions.NOT_ALLOWED, "the delivery-tag is in use")
            self._incoming[delivery_id] = delivery
            link.unsettled[tag] = delivery
        link.deliveries += 1
        self.connection.deliveries_in += 1
        return delivery

    def _reopen_window(self, window: int) -> None:
        if window < 0:
            if not self._slack:
                raise SessionFaultError(
                    conditions.SESSION_WINDOW_VIOLATION,
                    "more transfers than the incoming window has",
                )
            self._slack -= 1
            window = self.incoming_window = 0
        if self._state is State.OPEN:
            room = self._parts.window() if self._parts.open else self._window
            if room > window:
                self._grant(room)

    def _may_transfer(self, link: Link) -> bool:
        """Whether a transfer on a link that is not open counts; False: discard it."""
        if link._state is State.OFFERED:
            return link._failed is None
        # On its way when our detach went out; but nothing sent in a window that was opened after
        # it can claim that (§2.6.5: errant link).
        errant = link._errant_from
        if errant is not None and (
            (self.next_incoming_id - 1 - errant) & SERIAL_MASK < SERIAL_HALF
        ):
            raise SessionFaultError(
                conditions.SESSION_ERRANT_LINK,
                f"link {link.name!r} was detached with an error, and still sends",
            )
        return False

    def _tolerate(self, link: Link) -> None:
        """A delivery without credit: see the docstring of `amqproute.wire.amqp10.link`."""
        if link._grace > 0:
            link._grace -= 1
        elif link._overdraft > 0:
            link._overdraft -= 1
        else:
            raise LinkFaultError(
                link, conditions.LINK_TRANSFER_LIMIT_EXCEEDED, "a transfer without credit"
            )

    def _on_continuation(
        self, link: Link, transfer: spec.Transfer, payload: bytes
    ) -> Delivery | None:
        delivery = link._partial
        assert delivery is not None
        if transfer.delivery_id is not None and transfer.delivery_id != delivery.id:
            raise LinkFaultError(
                link, conditions.NOT_ALLOWED, "a delivery begins within another (§2.6.14)"
            )
        if transfer.delivery_tag is not None and transfer.delivery_tag != delivery.tag:
            raise LinkFaultError(
                link, conditions.NOT_ALLOWED, "the delivery-tag changes within a delivery"
            )
        if transfer.aborted:
            if link._parting:
                self._parts.abort(link, delivery)
            else:
                link._drop_partial()
            return None
        if transfer.settled:
            delivery.settled = True
        if transfer.state is not None:
            delivery.state = transfer.state
        if transfer.rcv_settle_mode is not None:
            _check_mode(delivery, transfer.rcv_settle_mode)
        if link._parting:
            self._parts.go_on(link, delivery, payload, not transfer.more)
            return None
        self._gather(link, payload)
        if transfer.more:
            if (
                link.takes_parts
                and link._part_bytes >= self.connection.settings.part_from
                and link._state is State.OPEN
            ):
                self._parts.begin(link, delivery)
            return None
        size = link._part_bytes
        delivery.payload = b"".join(link._parts)
        link._drop_partial()
        return self._complete(link, delivery, size)

    def took(self, octets: int) -> None:
        """Tell that so many octets of `PartsReceived` are out of the way: more may come."""
        self._parts.took(octets)

    def _grant(self, window: int) -> None:
        """Set the window and tell the peer; what was granted before stays granted."""
        granted = self.incoming_window + self._slack
        self._slack = max(0, granted - window)
        self.incoming_window = window
        self.connection._send(self.channel, self._flow())

    def _gather(self, link: Link, payload: bytes) -> None:
        link._part_bytes += len(payload)
        connection = self.connection
        cost = len(payload) + PART_OCTETS
        link._part_cost += cost
        connection.partial_bytes += cost
        if connection.partial_bytes > connection.settings.max_partial > 0:
            raise LinkFaultError(
                link,
                conditions.RESOURCE_LIMIT_EXCEEDED,
                "the unfinished deliveries of this connection have more than "
                f"{connection.settings.max_partial} octets",
            )
        if link.max_message_size and link._part_bytes > link.max_message_size:
            raise too_large(link)
        if payload:
            link._parts.append(payload)

    # -------------------------------------------------------------------------- dispositions

    def settle(
        self, deliveries: Iterable[Delivery], state: Any = None, settled: bool = True
    ) -> None:
        """Tell the peer a state of deliveries, and by default forget them (part 2 §2.6.12).

        For incoming deliveries we speak as the receiver, for outgoing ones as the sender.
        Consecutive delivery-ids go out as one disposition. What is settled already, by us or by
        the peer, or gone with its link, is passed over.

        Args:
            deliveries: of this session, best in their order of arrival.
            state: an outcome or another delivery state; None when only the settlement matters.
            settled: forget them; False leaves that to the other side (rcv-settle-mode second).
        """
        if self._state not in LOCALLY_OPEN:
            return
        first = last = -1
        receiver = False
        incoming = self._incoming
        outgoing = self._outgoing
        table = incoming
        link: Link | None = None
        unsettled: dict[bytes, Delivery] = {}
        for delivery in deliveries:
            if delivery.link is not link:
                link = delivery.link
                unsettled = link.unsettled
                is_receiver = link.role == "receiver"
                if is_receiver is not receiver:
                    if first >= 0:
                        self._send_disposition(receiver, first, last, settled, state)
                        first = -1
                    receiver = is_receiver
                table = incoming if is_receiver else outgoing
            delivery_id = delivery.id
            if settled:
                if table.pop(delivery_id, None) is None:
                    if delivery_id < 0 and not delivery.settled:
                        self._settle_waiting(delivery, state)
                    continue
                delivery.settled = True
                del unsettled[delivery.tag]
            elif delivery_id not in table:
                continue
            delivery.local_state = state
            if first >= 0:
                if delivery_id == last + 1:
                    last = delivery_id
                    continue
                self._send_disposition(receiver, first, last, settled, state)
            first = last = delivery_id
        if first >= 0:
            self._send_disposition(receiver, first, last, settled, state)

    def _settle_waiting(self, delivery: Delivery, state: Any) -> None:
        """Settle what has not left yet: its transfer will say so."""
        delivery.settled = True
        if state is not None:
            delivery.local_state = state
        delivery.link.unsettled.pop(delivery.tag, None)

    def _send_disposition(
        self, receiver: bool, first: int, last: int, settled: bool, state: Any
    ) -> None:
        connection = self.connection
        end = None if last == first else last
        frame = write_disposition(self.channel, receiver, first, end, settled, state)
        if len(frame) > connection.remote_max_frame_size:
            # Better a short reason than a frame that the peer has to choke on, again and again.
            frame = write_disposition(self.channel, receiver, first, end, settled, _cut(state))
        connection._sink.append(frame)
        connection.frames_out += 1

    def _on_disposition(self, disposition: spec.Disposition) -> None:
        first = disposition.first
        last = first if disposition.last is None else disposition.last
        span = (last - first) & SERIAL_MASK
        if span >= SERIAL_HALF:
            raise SessionFaultError(conditions.INVALID_FIELD, "a disposition ends before it begins")
        table = self._outgoing if disposition.role else self._incoming
        ids: Iterable[int]
        if span == 0:
            ids = (first,)
        elif span >= len(table):
            # A range may be four billion wide; the table is what bounds the work.
            ids = [each for each in table if (each - first) & SERIAL_MASK <= span]
        elif last > first:
            ids = range(first, last + 1)
        else:
            ids = [(first + step) & SERIAL_MASK for step in range(span + 1)]
        settled = disposition.settled
        state = disposition.state
        groups: dict[Link, list[Delivery]] = {}
        link: Link | None = None
        group: list[Delivery] = []
        unsettled: dict[bytes, Delivery] = {}
        for delivery_id in ids:
            delivery = table.pop(delivery_id, None) if settled else table.get(delivery_id)
            if delivery is None:
                continue
            if delivery.link is not link:
                link = delivery.link
                unsettled = link.unsettled
                group = groups.setdefault(link, [])
            if state is not None:
                delivery.state = state
            if settled:
                delivery.settled = True
                del unsettled[delivery.tag]
            group.append(delivery)
        for each, changed in groups.items():
            self.connection._emit(DeliveriesUpdated(each, changed, state, settled))

    # --------------------------------------------------------------------------------- flow

    def _flow(self) -> spec.Flow:
        """Return the session's part of a flow frame."""
        return spec.Flow(
            next_incoming_id=None if self.remote_begin is None else self.next_incoming_id,
            incoming_window=self.incoming_window,
            next_outgoing_id=self.next_outgoing_id,
            outgoing_window=OUTGOING_WINDOW,
        )

    def _on_flow(self, flow: spec.Flow) -> None:
        link: Link | None = None
        if flow.handle is not None:
            link = self._by_remote_handle.get(flow.handle)
            if link is None:
                raise _unattached(flow.handle)
        was_blocked = self.remote_incoming_window <= 0 or bool(self._queue)
        self._take_window(flow)
        if link is None:
            if flow.echo:
                self._answer_echo()
            self.connection._emit(SessionFlowed(self, flow))
            return
        if link._state is State.OPEN or (link._state is State.OFFERED and link._failed is None):
            link._take_flow(flow)
            if flow.echo and not (link.drain and link.is_sender):
                if link._state is State.OPEN:
                    link._answer_echo()
                else:
                    link._echo_due = True
            self.connection._emit(LinkFlowed(link, flow))
        if was_blocked and self.remote_incoming_window > 0:
            self.connection._emit(SessionFlowed(self, flow))

    def _take_window(self, flow: spec.Flow) -> None:
        seen = flow.next_incoming_id or 0  # absent before the peer has our begin: we start at 0
        ahead = (seen + flow.incoming_window - self.next_outgoing_id) & SERIAL_MASK
        self.remote_incoming_window = 0 if ahead >= SERIAL_HALF else ahead
        if self._queue:
            self._outbox.flush()

    def _answer_echo(self) -> None:
        if self._state is State.OPEN:
            self.connection._send(self.channel, self._flow())
        else:
            self._echo_due = True


_AWAITING_ATTACH: Final = frozenset({State.OPENING, State.WITHDRAWN})


def _unattached(handle: int) -> SessionFaultError:
    return SessionFaultError(
        conditions.SESSION_UNATTACHED_HANDLE, f"nothing is attached to handle {handle}"
    )


def _check_mode(delivery: Delivery, mode: int) -> None:
    """Apply the rcv-settle-mode of a transfer (§2.7.5)."""
    link = delivery.link
    if mode == spec.RECEIVER_SECOND and link.rcv_settle_mode == spec.RECEIVER_FIRST:
        raise LinkFaultError(
            link,
            conditions.INVALID_FIELD,
            "rcv-settle-mode second on a link whose receiver settles first",
        )
    delivery.rcv_settle_mode = mode


def _cut(state: Any) -> Any:
    """Return a delivery state without what may be long: the verdict is what counts."""
    if isinstance(state, spec.Rejected) and state.error is not None:
        words = (state.error.description or "")[:80]
        return spec.Rejected(error=spec.Error(condition=state.error.condition, description=words))
    if isinstance(state, spec.Modified):
        return spec.Modified(
            delivery_failed=state.delivery_failed, undeliverable_here=state.undeliverable_here
        )
    return state


__all__ = ["OUTGOING_WINDOW", "Session"]
