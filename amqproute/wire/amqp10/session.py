# SPDX-License-Identifier: Apache-2.0
"""Sessions (part 2 §2.5): begin and end, handles and links, flow.

Theory of operation
-------------------

A `Session` joins one channel of ours with one of the peer's. It numbers three things per
direction, all as serial numbers that wrap at 2**32:

* **transfer-ids**, one per transfer *frame*: the windows (§2.5.6) count these. `TransferInput`
  keeps the window for incoming frames. The peer's window bounds what we send: frames that do not
  fit wait in the `TransferOutput`, in order, and leave when a flow opens the window.
* **delivery-ids**, one per delivery: the keys of `UnsettledMap`, which holds the unsettled
  deliveries of all links, and settles them. An outgoing delivery gets its id when its first frame
  leaves, so that one dropped from the queue leaves no gap.
* **handles**, one per attached link: ours index nothing, the peer's index ``_by_remote_handle``.

A fault of the peer within the session ends it with a condition; frames that arrive before the
peer's end are discarded (E-11). Methods that begin with ``_on_`` each process one performative and
raise `LinkFaultError` or `SessionFaultError`; the connection catches these and sends the detach or
the end.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from amqproute import conditions
from amqproute.errors import LocalProtocolError
from amqproute.wire import input_cost
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.connection_state import ConnectionState
from amqproute.wire.amqp10.link import Delivery, Link, LinkSession
from amqproute.wire.amqp10.link_events import LinkAttached, LinkDetached, LinkFlowed
from amqproute.wire.amqp10.negotiated_link import Role
from amqproute.wire.amqp10.protocol_faults import (
    ConnectionFaultError,
    LinkFaultError,
    SessionFaultError,
    unattached,
)
from amqproute.wire.amqp10.serial_numbers import SERIAL_HALF, SERIAL_MASK, SerialNumbers
from amqproute.wire.amqp10.state_tables import (
    ENDPOINT,
    LOCALLY_OPEN,
    LinkStateName,
    StateTransition,
)
from amqproute.wire.amqp10.transfer_input import TransferInput
from amqproute.wire.amqp10.transfer_output import TransferOutput
from amqproute.wire.amqp10.unsettled_map import UnsettledMap
from amqproute.wire.amqp10.value_memory import SESSION_OCTETS, footprint

LONGEST_NAME: Final = 2048
"""Characters of a link name. Names that clients make of an address and a UUID are far shorter."""
OUTGOING_WINDOW: Final = 0x7FFFFFFF
"""Outgoing window announced to the peer: only its incoming window limits us."""


class SessionConnection(ConnectionState):
    """The connection of a session, as far as sessions use it.

    `amqproute.wire.amqp10.connection.Connection` is one; see `LinkSession` for why it is defined
    here.

    Attributes:
        unfinished: the links with a delivery that has begun and not ended; the oldest first.
    """

    unfinished: dict[Link, None]
    _links: dict[tuple[str, Role], Link]
    _due: list[Link | Session]

    @abstractmethod
    def _check_endpoints(self) -> None:
        """Check the memory of sessions and links.

        Raises:
            ConnectionFaultError: it is too much.
        """

    @abstractmethod
    def _fail_link(self, link: Link, error: spec.Error, closed: bool = True) -> None:
        """Detach a link for a fault of the peer."""

    @abstractmethod
    def _acquire_channel(self, session: Session) -> None:
        """Give a session a channel.

        Raises:
            LocalProtocolError: the peer's channel-max is reached.
        """

    @abstractmethod
    def _locally_ended(self, session: Session) -> None:
        """Release a session that we have ended, if the peer has ended it too."""


class Session(LinkSession):
    """One session: a channel of ours and one of the peer's.

    Attributes:
        remote_channel: the peer's; -1 before its begin.
        remote_begin: the peer's begin, or None; without capabilities and properties once we have
            answered it.
        octets: memory of the session beside its links, estimated.
        context: the user's.
    """

    connection: SessionConnection
    _output: TransferOutput

    def __init__(self, connection: SessionConnection) -> None:
        super().__init__(connection.unfinished)
        self.connection = connection
        self.remote_channel = -1
        self.remote_begin: spec.Begin | None = None
        self.octets = 0
        self.context: Any = None
        self._end_reported = False
        self._is_gone = False
        # Set when the peer broke a rule before our begin: the end is due, see `connection`.
        self._failed: spec.Error | None = None
        self._handles = SerialNumbers(SERIAL_MASK)
        self._by_remote_handle: dict[int, Link] = {}
        self._handle_max = connection.settings.handle_max
        self._unsettled = UnsettledMap(self)
        self._input = TransferInput(self, self._by_remote_handle, self._unsettled.incoming)
        self._on_transfer = self._input.receive  # directly, to save a call for each frame
        self._output = TransferOutput(self)
        self._echo_due = False

    def __repr__(self) -> str:
        return f"<Session {self.channel}/{self.remote_channel} {self._state.name}>"

    @property
    def is_active(self) -> bool:
        """Whether both sides have begun and we have not ended; see `Link.is_active`."""
        return self._state is LinkStateName.OPEN or self._state is LinkStateName.LEAVING

    @property
    def incoming_window(self) -> int:
        """See `LinkSession.incoming_window`."""
        return self._input.window

    @property
    def next_incoming_id(self) -> int:
        """The transfer-id of the next incoming frame."""
        return self._input.next_id

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
        properties: spec.Fields | None = None,
    ) -> None:
        """Answer the peer's begin. Nothing happens when the session is gone already.

        Args:
            handle_max: highest handle that the peer may use; by default that of the settings.
            offered_capabilities: symbols.
            desired_capabilities: symbols.
            properties: the properties of the session.

        Raises:
            LocalProtocolError: the session awaits no answer.
        """
        if self._is_gone:
            return
        if self._state not in (LinkStateName.OFFERED, LinkStateName.LAPSED):
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
        properties: spec.Fields | None = None,
    ) -> None:
        connection = self.connection
        connection._acquire_channel(self)
        self._advance(StateTransition.SEND_OPENING)
        if handle_max is not None:
            self._handle_max = handle_max
        self._input.open()
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
        if self.remote_begin is not None:
            self.remote_begin = _without_bulk(self.remote_begin)
            self._count(SESSION_OCTETS)

    def _count(self, octets: int) -> None:
        """Record the memory that the session occupies now."""
        self.connection.endpoint_octets += octets - self.octets
        self.octets = octets

    def _begun_by_peer(self, channel: int, begin: spec.Begin) -> None:
        self.remote_channel = channel
        self.remote_begin = begin
        self._count(SESSION_OCTETS + footprint(begin))
        self._advance(StateTransition.RECEIVE_OPENING)
        self._input.next_id = begin.next_outgoing_id
        self._handles.limit = begin.handle_max
        sent = self.next_outgoing_id  # we start at 0, and send nothing before this begin
        self.remote_incoming_window = max(0, begin.incoming_window - sent)

    def end(self, error: spec.Error | None = None) -> None:
        """See `LinkSession.end`."""
        if self._state is LinkStateName.LAPSED and self._failed is None:
            self.accept()  # the peer has ended it already: our end is due
            return
        if self._is_gone or (self._end_reported and self._state not in LOCALLY_OPEN):
            return
        if self._state is LinkStateName.OFFERED:
            self.accept()
        if self._state not in LOCALLY_OPEN:
            raise LocalProtocolError(f"the session cannot end: {self._state.name}")
        self._end_reported = True
        self._send_end(error)

    def _send_end(self, error: spec.Error | None) -> None:
        self.connection._send(self.channel, spec.End(error=error))
        self._advance(StateTransition.SEND_CLOSING)
        self._abandon_links()
        self.connection._locally_ended(self)

    def _answer_now(self) -> bool:
        """Answer the peer's end; False while the user has not answered the begin."""
        if self._is_gone or self._state is LinkStateName.DONE:
            return True
        if self._failed is not None:
            return self._answer_fault(self._failed)
        if self._state is LinkStateName.LAPSED:
            return False
        if self._state is LinkStateName.LEAVING:
            self._send_end(None)
        return True

    def _answer_fault(self, error: spec.Error) -> bool:
        if self._state in (LinkStateName.OFFERED, LinkStateName.LAPSED):
            if self.connection._state not in LOCALLY_OPEN:
                return False
            self._send_begin()
        if self._state in LOCALLY_OPEN:
            self._send_end(error)
        return True

    def _stop_transfers(self) -> None:
        """Stop all transfers: the peer neither sends nor accepts any more."""
        self.remote_incoming_window = 0
        self._queue.clear()
        self._count(0)
        for link in self._members:
            link._count(0)
            link.credit = 0
            link._queued = 0
            link._drain_waits = False
            link._outgoing = None
            link._drop_unfinished()

    def _abandon_links(self) -> None:
        """Release all links: we have ended, or the connection has gone."""
        for link in self._members:
            self._free_name(link)
            link._abandon()
        self._members.clear()
        self._by_remote_handle.clear()
        self._unsettled.clear()
        self._queue.clear()
        self.remote_incoming_window = 0

    def _abandon(self) -> None:
        if self._is_gone:
            return
        self._abandon_links()
        self._count(0)
        self._is_gone = True
        self._state = LinkStateName.DONE
        # Leave no reference cycles behind.
        self._input.close()
        self._output.close()
        self._unsettled.close()

    def _advance(self, step: StateTransition) -> None:
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
        properties: spec.Fields | None = None,
        unsettled: Mapping[bytes, spec.DeliveryState | None] | None = None,
        incomplete_unsettled: bool = False,
        context: object = None,
    ) -> Link:
        """Attach a link; the peer's answer comes as `LinkAttached`.

        Args:
            name: unique between the two containers for this direction.
            role: ours.
            source: the source of the messages.
            target: the target of the messages.
            snd_settle_mode: asked for (receiver) or in force (sender).
            rcv_settle_mode: asked for (sender) or in force (receiver).
            max_message_size: octets, 0 for no limit; by default that of the settings.
            initial_delivery_count: sender only.
            offered_capabilities: symbols.
            desired_capabilities: symbols.
            properties: the properties of the link.
            unsettled: what we kept of an earlier attachment: delivery-tag to state.
            incomplete_unsettled: the map above is incomplete.
            context: the context for `Link.context`.

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

    def _acquire_handle(self) -> int:
        handle = self._handles.acquire()
        if handle is None:
            raise LocalProtocolError("the peer's handle-max is reached")
        return handle

    def _on_attach(self, attach: spec.Attach, unfit: str = "") -> None:
        """Process an attach.

        Args:
            attach: the attach; of an undecodable one, its name, handle and role.
            unfit: the fault in its other fields, if they cannot be decoded.
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
        predecessor = self._take_over_name(known)
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
        connection._check_endpoints()
        if not unfit and len(attach.name) > LONGEST_NAME:
            unfit = f"the link name has {len(attach.name)} characters; {LONGEST_NAME} are allowed"
        if unfit:
            raise LinkFaultError(link, conditions.INVALID_FIELD, unfit)
        if role == "receiver" and attach.initial_delivery_count is None:
            link._end_reported = True
            raise LinkFaultError(
                link, conditions.INVALID_FIELD, "a sender has to give its initial-delivery-count"
            )
        connection._emit(LinkAttached(link, attach, False))

    def _take_over_name(self, known: Link | None) -> Link | None:
        """Steal a name that is attached a second time, or wait behind the answer to its detach."""
        if known is None:
            return None
        if known._state in (LinkStateName.LEAVING, LinkStateName.LAPSED):
            if known._state is LinkStateName.LAPSED:
                # It was never answered, and never will be: otherwise the name would be in use
                # twice.
                if known.session._state in LOCALLY_OPEN:
                    known._refuse(None)
                    known._is_gone = True
                else:
                    known._abandon()
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
        if link._state is LinkStateName.OPEN:
            if unfit:
                raise LinkFaultError(link, conditions.INVALID_FIELD, unfit)
            self.connection._emit(LinkAttached(link, attach, True))
        else:
            # We have detached meanwhile. The name is free, the handle waits for the detach.
            self._free_name(link)

    def _on_detach(self, detach: spec.Detach) -> None:
        link = self._by_remote_handle.pop(detach.handle, None)
        if link is None:
            raise unattached(detach.handle)
        link.remote_closed = detach.closed
        link._count(0)
        link.credit = 0
        link._outgoing = None
        link._drop_unfinished()
        is_reported = link._end_reported
        link._advance(StateTransition.RECEIVE_CLOSING)
        if link._state is LinkStateName.DONE:
            self._release(link)
            return
        if not is_reported:
            link._end_reported = True
            self.connection._emit(
                LinkDetached(link, detach.closed, detach.error, list(link.unsettled.values()))
            )
        self.connection._due.append(link)

    def _locally_detached(self, link: Link, with_error: bool) -> None:
        if link._queued or link._outgoing is not None:
            self._output.drop(link)
        self._unsettled.forget(link)
        if with_error:
            link._errant_from = self._input.last_granted()
        if link._state is not LinkStateName.WITHDRAWN:
            self._free_name(link)
        link.credit = 0
        link._drop_unfinished()
        if link._state is LinkStateName.DONE:
            self._release(link)

    def _release(self, link: Link) -> None:
        """Free the handle: both sides have detached."""
        link._count(0)
        self._handles.release(link.handle)
        self._members.pop(link, None)
        self._free_name(link)

    def _free_name(self, link: Link) -> None:
        """Allow the name of a link to be attached again."""
        links = self.connection._links
        key = (link.name, link.role)
        if links.get(key) is link:
            del links[key]

    # ----------------------------------------------------------------- incoming parts, settlement

    def _parts_ended(self) -> None:
        self._input.parts_ended()

    def took(self, octets: int) -> None:
        """See `LinkSession.took`."""
        if not self._is_gone:
            self._input.took(octets)

    def settle(
        self,
        deliveries: Iterable[Delivery],
        state: object = None,
        settled: bool = True,
    ) -> None:
        """See `LinkSession.settle`."""
        if self._state in LOCALLY_OPEN:
            self._unsettled.settle(deliveries, state, settled)

    # --------------------------------------------------------------------------------- flow

    def _flow(self) -> spec.Flow:
        return spec.Flow(
            next_incoming_id=None if self.remote_begin is None else self.next_incoming_id,
            incoming_window=self.incoming_window,
            next_outgoing_id=self.next_outgoing_id,
            outgoing_window=OUTGOING_WINDOW,
        )

    def _on_flow(self, flow: spec.Flow) -> bool:
        """Process a flow; True if it was for the session, or has opened its window."""
        link: Link | None = None
        if flow.handle is not None:
            link = self._by_remote_handle.get(flow.handle)
            if link is None:
                raise unattached(flow.handle)
        was_blocked = self.remote_incoming_window <= 0 or bool(self._queue)
        before = self._flow_state(link)
        self._update_window(flow)
        if flow.echo:
            self.connection.work += input_cost.ECHO
        if link is None:
            if self._flow_state(None) == before:
                self.connection._count_ineffective()
            if flow.echo:
                self._answer_echo()
            return True
        if link._state is LinkStateName.OPEN or (
            link._state is LinkStateName.OFFERED and link._failed is None
        ):
            link._on_flow(flow)
            if self._flow_state(link) == before and not link.drain:
                self.connection._count_ineffective()
            if flow.echo and not (link.drain and link.is_sender):
                if link._state is LinkStateName.OPEN:
                    link._answer_echo()
                else:
                    link._echo_due = True
            self.connection._emit(LinkFlowed(link, flow))
        return was_blocked and self.remote_incoming_window > 0

    def _flow_state(self, link: Link | None) -> tuple[int | None, ...]:
        """Return the values that a flow of the peer can change."""
        if link is None:
            return (self.remote_incoming_window,)
        return (
            self.remote_incoming_window,
            link.credit,
            link.delivery_count,
            link.drain,
            link.available,
        )

    def _update_window(self, flow: spec.Flow) -> None:
        seen = flow.next_incoming_id or 0  # absent before the peer has our begin: we start at 0
        ahead = (seen + flow.incoming_window - self.next_outgoing_id) & SERIAL_MASK
        self.remote_incoming_window = 0 if ahead >= SERIAL_HALF else ahead
        if self._queue:
            self._output.flush()

    def _answer_echo(self) -> None:
        if self._state is LinkStateName.OPEN:
            self.connection._send(self.channel, self._flow())
        else:
            self._echo_due = True


def _without_bulk(begin: spec.Begin) -> spec.Begin:
    """Return a begin without the fields whose size is up to the peer."""
    return spec.Begin(
        remote_channel=begin.remote_channel,
        next_outgoing_id=begin.next_outgoing_id,
        incoming_window=begin.incoming_window,
        outgoing_window=begin.outgoing_window,
        handle_max=begin.handle_max,
    )


_AWAITING_ATTACH: Final = frozenset({LinkStateName.OPENING, LinkStateName.WITHDRAWN})


__all__ = ["LONGEST_NAME", "OUTGOING_WINDOW", "Session"]
