# SPDX-License-Identifier: Apache-2.0
"""The AMQP 1.0 engine: one connection, either role (part 2 §2.4, part 5 §5.2 and §5.3).

Theory of operation
-------------------

`Connection` is the `amqproute.wire.engine.Engine`. Bytes go through the phases of
`state_tables.PHASES` (protocol headers, TLS, SASL) and then, as frames, to the session of their
channel. The engine reports by events; the user acts by verbs on `Connection`, `Session` and `Link`,
whose frames `data_to_send` hands over.

**When answers go out.** A peer may write open, begin, attach, transfer, detach, end and close in
one segment and never wait (§2.4.1, P-03). All of it is read before the user sees the first event,
and the user's answers (open, accept, settle ...) come while it walks the list. So the engine does
not answer a detach, end or close when it reads it but in `data_to_send`, after the user's
answers, in the order in which they came. Where the user has not answered by then, a detach waits
for the attach and an end for the begin. A close does not wait.

**Faults** have the scope that the standard gives them:

============================================================  ==========  =======================
fault of the peer                                             scope       condition
============================================================  ==========  =======================
bytes that are no frame, frame too large                      connection  framing-error
channel above channel-max, handle above handle-max            connection  framing-error
a performative that does not decode, or an unknown one        connection  decode-error
a begin with wrong fields, or for a channel without ours      session     invalid-field
a begin on a channel that has a session                       session     not-allowed
a frame before open, a second open, an unmapped channel       connection  not-allowed
max-frame-size below 512                                      connection  invalid-field
silence for twice our idle time-out                           connection  resource-limit-exceeded
more transfers than the window                                session     window-violation
handle in use                                                 session     handle-in-use
handle without a link                                         session     unattached-handle
transfers sent after our detach with an error was seen        session     errant-link
delivery-id in use, disposition with last before first        session     invalid-field
transfer without credit                                       link        transfer-limit-exceeded
message larger than max-message-size                          link        message-size-exceeded
settlement against the mode, tag in use, interleaving         link        not-allowed
delivery without id or tag, sender without initial count      link        invalid-field
name attached a second time                                   old link    stolen
container-id or hostname longer than `LONGEST_NAME`           connection  invalid-field
link name longer than `LONGEST_NAME`                          link        invalid-field
sessions and links that take more than max_endpoint_octets    connection  resource-limit-exceeded
============================================================  ==========  =======================

A fault in an endpoint that the user has not answered yet is reported at once, and to the peer after
the user's answer.

**After a close** with an error only the peer's close is read. `is_closed` turns true when it comes,
at the end of the stream, or after ``close_timeout`` (E-06).

**Time.** Verbs take no time; the engine uses the last ``now`` it was given, which can make a
heartbeat early but never late. A deadline that a verb starts is armed by the next `tick`, which
`next_deadline` then asks for at once.

**Work.** `Connection.receive_data` takes frames up to a budget (`amqproute.wire.input_cost`) and
keeps the rest. A peer that sends many frames without any effect (empty ones, transfers without
octets, flows that change nothing) is closed with resource-limit-exceeded: no client does that.

Bounds: one frame of input, of at most `OPEN_OCTETS` before the peer's open; ``max_partial`` octets
of unfinished messages (the octets of large ones are the user's on links that take parts),
`MAX_HELD` octets while a password is verified; sessions by channel-max, links by handle-max, and
the memory of both by ``max_endpoint_octets`` (`Connection.endpoint_octets`, for users who bound the
sum over their connections). `InputHeld` reports the input in memory, so that a user can bound the
sum over its connections and have deliveries handed up early (`Connection.hand_up`). Output waits in
the caller's hands, or in a session for the peer's window, never beyond the link's credit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import length_hint
from typing import Any, Final

from amqproute import conditions
from amqproute.errors import AmqpError, LocalProtocolError
from amqproute.wire import input_cost
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.connection_settings import ConnectionSettings
from amqproute.wire.amqp10.engine_events import (
    ConnectionClosed,
    DeliveriesReceived,
    EndpointsHeld,
    InputHeld,
    LinkDetached,
    OpenReceived,
    SessionBegun,
    SessionEnded,
    SessionFlowed,
)
from amqproute.wire.amqp10.frames import (
    EMPTY_FRAME,
    TYPE_AMQP,
    Frame,
    FrameBuffer,
    UnfitAttach,
    UnfitBegin,
)
from amqproute.wire.amqp10.link import Delivery, Link, PartsMode
from amqproute.wire.amqp10.negotiated_link import Role
from amqproute.wire.amqp10.negotiation import MAX_HELD, OPEN_OCTETS, Negotiation
from amqproute.wire.amqp10.protocol_faults import (
    ConnectionFaultError,
    LinkFaultError,
    SessionFaultError,
    release_frames,
)
from amqproute.wire.amqp10.sasl import ClientAuthority, ServerAuthority
from amqproute.wire.amqp10.serial_numbers import SerialNumbers
from amqproute.wire.amqp10.session import LONGEST_NAME, Session, SessionConnection
from amqproute.wire.amqp10.state_tables import (
    DISCARDING,
    ENDPOINT,
    LOCALLY_OPEN,
    OPEN,
    HandshakePhase,
    LinkStateName,
    StateTransition,
    TransitionTable,
)
from amqproute.wire.amqp10.types import Described
from amqproute.wire.engine import Event, UpgradableEngine
from amqproute.wire.header import ProtocolHeader

LEAST_HELD: Final = 4096
"""Octets of input in memory that are not reported; see `InputHeld`."""
MIN_IDLE: Final = 0.1
"""The shortest idle time-out that a peer may ask for, in seconds."""


class Connection(Negotiation, SessionConnection):
    """One AMQP 1.0 connection, as an engine; see `ConnectionState` for its figures.

    Attributes:
        has_input: see `amqproute.wire.engine.Engine`.
        remote_open: the peer's open, or None before it came; without locales, capabilities and
            properties once we have answered it.
        context: the user's.
        unfinished: the links with a delivery that has begun and not ended; the oldest first.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        *,
        sasl_server: ServerAuthority | None = None,
        sasl_client: ClientAuthority | None = None,
    ) -> None:
        super().__init__(settings, sasl_server=sasl_server, sasl_client=sasl_client)
        self.remote_open: spec.Open | None = None
        self.context: Any = None
        self.unfinished: dict[Link, None] = {}
        self.has_input = False  # an attribute: it is read several times for each read
        self._reported_held = 0
        # Endpoints.
        self._sessions: dict[Session, None] = {}
        self._by_channel: dict[int, Session] = {}
        self._by_remote_channel: dict[int, Session] = {}
        self._links: dict[tuple[str, Role], Link] = {}
        self._channels = SerialNumbers(0xFFFF)
        self._channel_max = settings.channel_max
        # Answers to the peer's closings, see "When answers go out".
        self._due: list[Link | Session] = []
        self._close_due = False
        self._close_error: spec.Error | None = None
        self._reading_stopped = False
        self._ignored_octets = 0
        # Frames that are decoded and not dispatched yet: the budget is spent.
        self._undispatched: Iterator[Frame] | None = None
        self._ineffective_since = 0.0
        # The deliveries reported last, which the next may join.
        self._batch: list[Delivery] = []
        self._last_events: list[Event] = []
        self._end_reported = False
        # Times.
        self._last_sent = 0.0
        self._heartbeat: float | None = None
        self._idle_limit: float | None = None
        self._handshake_deadline: float | None = None
        self._close_deadline: float | None = None
        self._close_waits = False

    def __repr__(self) -> str:
        return f"<Connection {self.settings.role} {self._phase.name} {self._state.name}>"

    @property
    def sessions(self) -> tuple[Session, ...]:
        """All sessions that are not done, in the order of their beginning."""
        return tuple(self._sessions)

    @property
    def remote_container_id(self) -> str | None:
        """The peer's container-id, once its open has come."""
        return None if self.remote_open is None else self.remote_open.container_id

    # ---------------------------------------------------------------------- engine interface

    def start(self, now: float) -> None:
        """See `amqproute.wire.engine.Engine`."""
        self._now = self._last_received = self._last_sent = now
        self._handshake_deadline = now + self.settings.handshake_timeout
        self._advance_phase(TransitionTable.BEGIN)
        if self.settings.role == "client":
            if self.settings.tls == "required":
                self._early.append(ProtocolHeader.AMQP_1_0_TLS.value)
            else:
                self._send_client_header()

    def _note_input(self) -> None:
        """See `Negotiation`."""
        self.has_input = self._phase is HandshakePhase.AMQP and (
            self._undispatched is not None
            or (not self._reading_stopped and self._buffer.is_pending)
        )

    def receive_data(self, data: bytes, now: float, budget: int | None = None) -> list[Event]:
        """See `amqproute.wire.engine.Engine`."""
        self._now = self._last_received = now
        self._work_limit = _UNBOUNDED if budget is None else self.work + budget
        before = self.endpoint_octets
        events = self._events = []
        self._batch_link = None
        if self._phase is HandshakePhase.AMQP:
            if self._end_reported:
                self._after_close(data)
            self._read(data)
        else:
            self._negotiate(data)
        self._note_input()
        if self.settings.reports_input:
            held = self.held_bytes if self._buffer.left else self.partial_bytes
            if held != self._reported_held and (
                held > LEAST_HELD or self._reported_held > LEAST_HELD
            ):
                self._reported_held = held
                self._emit(InputHeld(held))
            if not events and self.endpoint_octets != before:
                self._emit(EndpointsHeld(self.endpoint_octets))
        return events

    @property
    def held_bytes(self) -> int:
        """Octets of the peer's input in memory: unfinished deliveries and an incomplete frame."""
        return self.partial_bytes + self.unread_bytes

    @property
    def last_received(self) -> float:
        """Time of the last input, in seconds of the monotonic clock."""
        return self._last_received

    @property
    def unread_bytes(self) -> int:
        """Octets of an incomplete frame; 0 while there are complete ones to process."""
        return 0 if self.has_input else self._buffer.left

    def hand_up(self, link: Link, now: float) -> list[Event]:
        """Hand up an unfinished delivery now, in parts, as if it had ``part_from`` octets.

        Nothing happens on a link that does not take parts, or has no unfinished delivery in
        memory.

        Args:
            link: a receiver.
            now: seconds of the monotonic clock.

        Returns:
            A `PartsReceived`, or the events of a fault.
        """
        self._now = now
        events = self._events = []
        self._batch_link = None
        unfinished = link._unfinished
        if (
            unfinished is None
            or unfinished.mode is not PartsMode.GATHERED
            or not link.takes_parts
            or link._state is not LinkStateName.OPEN
        ):
            return events
        session = self._by_channel[link.session.channel]
        try:
            session._input.begin_parts(link, unfinished)
        except LinkFaultError as fault:
            self._fail_link(fault.link, fault.error)
        except SessionFaultError as fault:
            self._fail_session(session, fault.error)
        return events

    def receive_eof(self, now: float) -> list[Event]:
        """See `amqproute.wire.engine.Engine`."""
        self._now = now
        events = self._events = []
        self._batch_link = None
        if self._phase is not HandshakePhase.OVER or not self._end_reported:
            self._lose(None, by_fault=False)
        self._clear()
        return events

    def _clear(self) -> None:
        """Drop all large objects and reference cycles: the transport is gone.

        Sessions, links and deliveries in events still refer to the connection, and the connection
        to none of them.
        """
        self._release_sessions()
        self._events = []
        self._batch = []
        self._batch_link = None
        self._undispatched = None
        self._sink = []
        self._early = []
        self._exchange = None
        self.unfinished.clear()
        self._buffer = FrameBuffer(spec.MIN_MAX_FRAME_SIZE)
        self._sasl_server = self._sasl_client = None

    def data_to_send(self) -> list[bytes]:
        """See `amqproute.wire.engine.Engine`. Pending answers are made here."""
        if self._due:
            self._due = [each for each in self._due if not each._answer_now()]
        if self._close_due:
            self._send_due_close()
        out = self._early
        if out:
            self._early = []
            if self._header_sent:
                out.extend(self._sink)
                self._sink = []
        elif self._header_sent:
            out = self._sink
            self._sink = []
        if out:
            self._last_sent = self._now
            return out
        return []

    def next_deadline(self) -> float | None:
        """See `amqproute.wire.engine.Engine`."""
        if self._phase is HandshakePhase.OVER:
            return None
        if self._close_waits:
            return self._now
        soonest = self._close_deadline
        if self._handshake_deadline is not None and (
            soonest is None or self._handshake_deadline < soonest
        ):
            soonest = self._handshake_deadline
        if self._state in LOCALLY_OPEN:
            if self._heartbeat is not None:
                due = self._last_sent + self._heartbeat
                if soonest is None or due < soonest:
                    soonest = due
            if self._idle_limit is not None:
                due = self._last_received + self._idle_limit
                if soonest is None or due < soonest:
                    soonest = due
        return soonest

    def tick(self, now: float) -> list[Event]:
        """See `amqproute.wire.engine.Engine`."""
        self._now = now
        events = self._events = []
        self._batch_link = None
        if self._phase is HandshakePhase.OVER:
            return events
        if self._close_waits:
            self._close_waits = False
            self._close_deadline = now + self.settings.close_timeout
        if self._close_deadline is not None and now >= self._close_deadline:
            self._lose(self._close_error, by_fault=True)
        elif self._handshake_deadline is not None and now >= self._handshake_deadline:
            self._handshake_deadline = None
            self._time_out("no open within the handshake time")
        elif self._state in LOCALLY_OPEN:
            if self._idle_limit is not None and now >= self._last_received + self._idle_limit:
                self._time_out(f"silent for {self._idle_limit:g} s")
            elif self._heartbeat is not None and now >= self._last_sent + self._heartbeat:
                self._sink.append(EMPTY_FRAME)
                self.frames_out += 1
                self._last_sent = now
        return events

    def _time_out(self, description: str) -> None:
        error = spec.Error(condition=conditions.RESOURCE_LIMIT_EXCEEDED, description=description)
        if self._header_sent:
            self._fail(error)
        else:
            self._lose(error, by_fault=True)

    # -------------------------------------------------------------------------------- verbs

    def open(self, **overrides: object) -> None:
        """Send our open; before the negotiation is over it waits for it.

        Nothing happens when the connection is over already.

        Args:
            **overrides: fields of `spec.Open` in place of what the settings give.

        Raises:
            LocalProtocolError: it was sent before.
        """
        if self._phase is HandshakePhase.OVER:
            return
        if (self._state, StateTransition.SEND_OPENING) not in ENDPOINT:
            raise LocalProtocolError("the connection was opened before")
        settings = self.settings
        timeout = settings.idle_timeout
        fields: dict[str, Any] = {
            "container_id": settings.container_id,
            "hostname": settings.hostname,
            "max_frame_size": settings.max_frame_size,
            "channel_max": settings.channel_max,
            "idle_time_out": None if timeout is None else max(1, int(timeout * 1000)),
            "offered_capabilities": tuple(settings.offered_capabilities),
            "desired_capabilities": tuple(settings.desired_capabilities),
            "properties": settings.properties,
            **overrides,
        }
        frame = spec.Open(**fields)
        self._send(0, frame)
        self._advance(StateTransition.SEND_OPENING)
        self._channel_max = frame.channel_max
        self._frame_limit = frame.max_frame_size
        if self.remote_open is not None:
            self._buffer.set_max_frame_size(frame.max_frame_size)
            self._note_input()
            self.remote_open = _without_bulk(self.remote_open)
        self._last_received = self._now
        if frame.idle_time_out:
            self._idle_limit = 2 * frame.idle_time_out / 1000

    def begin(
        self,
        *,
        handle_max: int | None = None,
        offered_capabilities: Sequence[str] = (),
        desired_capabilities: Sequence[str] = (),
        properties: spec.Fields | None = None,
        context: object = None,
    ) -> Session:
        """Begin a session; the peer's answer comes as `SessionBegun`.

        Raises:
            LocalProtocolError: the connection is not open, or the peer's channel-max is reached.
        """
        if self._state not in (LinkStateName.OPENING, LinkStateName.OPEN):
            raise LocalProtocolError(f"no session can begin: the connection is {self._state.name}")
        session = Session(self)
        session.context = context
        session._send_begin(handle_max, offered_capabilities, desired_capabilities, properties)
        self._sessions[session] = None
        return session

    def close(self, error: spec.Error | None = None) -> None:
        """Close the connection, and with it all sessions and links.

        `ConnectionClosed` follows, with a `LinkDetached` and `SessionEnded` before it for what
        was open, when the peer has closed too, the stream ends, or ``close_timeout`` has passed.
        Nothing happens when the connection is closed or closing already.
        """
        if self._phase is HandshakePhase.OVER or self._state in DISCARDING or self._close_due:
            return
        if not self._header_sent:
            # We have not sent any AMQP frame, so there is nothing to close.
            self._finish()
            return
        self._close_error = error
        self._send_close(error)

    def close_with(self, condition: conditions.Condition, words: str) -> None:
        """See `amqproute.wire.engine.Engine`."""
        self.close(spec.Error(condition=condition, description=words))

    def _send_due_close(self) -> None:
        self._close_due = False
        self._send_close(self._close_error)

    def _send_close(self, error: spec.Error | None) -> None:
        if self._state not in LOCALLY_OPEN:
            self.open()
        self._send(0, spec.Close(error=error))
        self._release_sessions()
        self._advance(StateTransition.SEND_CLOSING)
        if self._state is LinkStateName.DONE:
            self._finish()
        else:
            self._close_waits = True
            self._handshake_deadline = None

    def _finish(self) -> None:
        self._phase = HandshakePhase.OVER
        self.has_input = False
        self.is_closed = True
        self._close_waits = False

    def _release_sessions(self) -> None:
        """Release all sessions, and keep their ends for the last events."""
        for session in self._sessions:
            self._emit_end(session, None, self._last_events)
            session._abandon()
        self._sessions.clear()
        self._by_channel.clear()
        self._by_remote_channel.clear()
        self._links.clear()
        self._due.clear()

    def _emit_end(
        self, session: Session, error: spec.Error | None, events: list[Event], fault: bool = False
    ) -> None:
        if session._end_reported:
            return
        session._end_reported = True
        for link in session._members:
            if not link._end_reported:
                link._end_reported = True
                events.append(
                    LinkDetached(link, False, error, list(link.unsettled.values()), fault)
                )
        events.append(SessionEnded(session, error, fault))

    def _advance(self, step: StateTransition) -> None:
        state = ENDPOINT.get((self._state, step))
        if state is None:
            raise LocalProtocolError(f"connection: no {step.name} in {self._state.name}")
        self._state = state

    # -------------------------------------------------------------------------------- input

    def _report(self, delivery: Delivery) -> None:
        """Report a delivery, together with the one before if that was on the same link."""
        link = delivery.link
        if self._batch_link is link:
            self._batch.append(delivery)
            return
        self._batch_link = link
        self._batch = [delivery]
        self._events.append(DeliveriesReceived(link, self._batch))

    def _read(self, data: bytes) -> None:
        """Process AMQP frames."""
        if self._reading_stopped and self._undispatched is None:
            return
        buffer = self._buffer
        if data:
            buffer.feed(data)
        limit = self._work_limit
        at_once = _UNBOUNDED if limit == _UNBOUNDED else input_cost.CUT
        cut, self._undispatched = self._undispatched, None
        while True:
            if cut is not None:
                if not self._dispatch(cut, limit):
                    self._undispatched = cut if length_hint(cut) else None
                    return
                if self._phase is HandshakePhase.OVER or self.work >= limit:
                    return
                if not buffer.is_pending:
                    return
            try:
                # The peer's open alone: it has the limit for later frames.
                frames = buffer.frames(at_once if self.remote_open is not None else 1)
            except AmqpError as fault:
                release_frames(fault)
                self._reading_stopped = True
                self._fail(spec.Error(condition=fault.condition, description=fault.description))
                return
            if not frames:
                return
            self.frames_in += len(frames)
            if buffer.decoded:
                self.work += buffer.decoded // input_cost.DECODED_PER_UNIT
                buffer.decoded = 0
            cut = iter(frames)

    def _after_close(self, data: bytes) -> None:
        """Count input after our close, and stop waiting for the peer's if it is too much."""
        self._ignored_octets += len(data)
        self.work += len(data) // input_cost.OCTETS_PER_UNIT
        if self._ignored_octets > input_cost.MOST_UNHEARD:
            self._reading_stopped = True
            self._undispatched = None
            self._finish()

    def _dispatch(self, rest: Iterator[Frame], limit: int) -> bool:
        """Dispatch frames up to a limit of work; False if it was reached before their end."""
        sessions = self._by_remote_channel
        while True:
            session: Session | None = None
            try:
                for channel, kind, body, payload in rest:
                    if type(body) is spec.Transfer:
                        session = sessions.get(channel)
                        if session is not None and session._state is OPEN:
                            # The common case.
                            delivery = session._on_transfer(body, payload)
                            if delivery is not None:
                                self.work += (
                                    input_cost.DELIVERY + len(payload) // input_cost.OCTETS_PER_UNIT
                                )
                                if self._ineffective:
                                    self._note_progress(1)
                                if self._batch_link is delivery.link:
                                    self._batch.append(delivery)
                                else:
                                    self._report(delivery)
                            else:
                                self.work += (
                                    input_cost.FRAME + len(payload) // input_cost.OCTETS_PER_UNIT
                                )
                                if not payload:
                                    self._count_ineffective()
                            if self.work >= limit:
                                return False
                            continue
                    session = None
                    self.work += input_cost.FRAME + _WEIGHTS.get(type(body), 0)
                    if self._state in DISCARDING or self._close_due or self._end_reported:
                        self._discard(body)
                        if self.work >= limit:
                            return False
                        continue
                    if kind != TYPE_AMQP:
                        raise ConnectionFaultError(
                            conditions.CONNECTION_FRAMING_ERROR, "a SASL frame after SASL"
                        )
                    if body is None:
                        self._count_ineffective()
                    elif type(body) in _CONNECTION_FRAMES:
                        self._on_connection_frame(channel, body)
                    else:
                        session = self._session_of(channel, body)
                        if session is not None:
                            self._on_session_frame(session, body, payload)
                        else:
                            self._count_ineffective()
                    if self.work >= limit:
                        return False
                return True
            except LinkFaultError as fault:
                self._fail_link(fault.link, fault.error)
            except SessionFaultError as fault:
                assert session is not None
                self._fail_session(session, fault.error)
            except ConnectionFaultError as fault:
                self._fail(fault.error)

    def _note_progress(self, deliveries: int) -> None:
        made_good = deliveries * input_cost.FRUITLESS_PER_DELIVERY
        self._ineffective = max(0, self._ineffective - made_good)

    def _count_ineffective(self) -> None:
        self._ineffective += 1
        if self._ineffective > input_cost.FRUITLESS_FRAMES:
            if self._now - self._ineffective_since < input_cost.FRUITLESS_SECONDS:
                raise ConnectionFaultError(
                    conditions.RESOURCE_LIMIT_EXCEEDED,
                    f"more than {input_cost.FRUITLESS_FRAMES} frames within "
                    f"{input_cost.FRUITLESS_SECONDS:g} s that have no effect",
                )
            self._ineffective = 1
        if self._ineffective == 1:
            self._ineffective_since = self._now

    def _discard(self, body: Any) -> None:
        """Discard a frame after our close, unless it is the peer's open or close."""
        if type(body) is spec.Open and self._state is LinkStateName.WITHDRAWN:
            self.remote_open = body
            self._buffer.set_max_frame_size(self._frame_limit)
            self._advance(StateTransition.RECEIVE_OPENING)
        elif type(body) is spec.Close and self._state is LinkStateName.CLOSING:
            self._advance(StateTransition.RECEIVE_CLOSING)
            self._finish()
            self._emit_closed(body.error or self._close_error, by_fault=False, clean=True)

    def _on_connection_frame(self, channel: int, body: Any) -> None:
        if type(body) is spec.Open:
            self._on_open(body)
        elif self._state not in (LinkStateName.OFFERED, LinkStateName.OPEN):
            raise ConnectionFaultError(conditions.NOT_ALLOWED, f"{_name(body)} before open")
        elif type(body) is spec.Begin:
            self._on_begin(channel, body)
        elif type(body) is UnfitBegin:
            self._on_unfit_begin(channel, body.description)
        else:
            self._on_close(body)

    def _on_open(self, body: spec.Open) -> None:
        if (self._state, StateTransition.RECEIVE_OPENING) not in ENDPOINT:
            raise ConnectionFaultError(conditions.NOT_ALLOWED, "a second open")
        self._advance(StateTransition.RECEIVE_OPENING)
        self.remote_open = body
        self._buffer.set_max_frame_size(self._frame_limit)
        self._handshake_deadline = None
        for name, text in (("container-id", body.container_id), ("hostname", body.hostname)):
            if text is not None and len(text) > LONGEST_NAME:
                raise ConnectionFaultError(
                    conditions.INVALID_FIELD,
                    f"the {name} has {len(text)} characters; {LONGEST_NAME} are allowed",
                )
        if body.max_frame_size < spec.MIN_MAX_FRAME_SIZE:
            raise ConnectionFaultError(
                conditions.INVALID_FIELD,
                f"a max-frame-size of {body.max_frame_size} is below {spec.MIN_MAX_FRAME_SIZE}",
            )
        # Larger frames than we take ourselves would only make one link wait for another.
        size = min(body.max_frame_size, self.settings.max_frame_size)
        self._set_remote_max_frame_size(size)
        self._channels.limit = body.channel_max
        if body.idle_time_out:
            seconds = body.idle_time_out / 1000
            if seconds < MIN_IDLE:
                raise ConnectionFaultError(
                    conditions.RESOURCE_LIMIT_EXCEEDED,
                    f"an idle-time-out of {body.idle_time_out} ms asks for too many heartbeats",
                )
            self._heartbeat = seconds / 2
        self._emit(OpenReceived(body))

    def _on_begin(self, channel: int, begin: spec.Begin) -> None:
        if channel > self._channel_max:
            raise ConnectionFaultError(
                conditions.CONNECTION_FRAMING_ERROR,
                f"channel {channel} is above the channel-max {self._channel_max}",
            )
        present = self._by_remote_channel.get(channel)
        if present is not None:
            if present._state is not LinkStateName.CLOSING:
                description = f"a begin on channel {channel}, which has a session"
                self._fail_session(
                    present, spec.Error(condition=conditions.NOT_ALLOWED, description=description)
                )
            return
        if begin.remote_channel is not None:
            ours = self._by_channel.get(begin.remote_channel)
            if ours is None or (ours._state, StateTransition.RECEIVE_OPENING) not in ENDPOINT:
                self._refuse(
                    channel, begin, f"no session was begun on channel {begin.remote_channel}"
                )
                return
            self._by_remote_channel[channel] = ours
            ours._begun_by_peer(channel, begin)
            if not ours._end_reported:
                self._emit(SessionBegun(ours, begin, True))
            return
        self._emit(SessionBegun(self._add_session(channel, begin), begin, False))

    def _on_unfit_begin(self, channel: int, description: str) -> None:
        if any(
            (each._state, StateTransition.RECEIVE_OPENING) in ENDPOINT for each in self._sessions
        ):
            # It may be the answer to one of ours, unknown to which.
            raise ConnectionFaultError(conditions.DECODE_ERROR, description)
        if channel > self._channel_max or channel in self._by_remote_channel:
            self._on_begin(channel, _NO_BEGIN)
        else:
            self._refuse(channel, _NO_BEGIN, description)

    def _refuse(self, channel: int, begin: spec.Begin, description: str) -> None:
        """Begin and end a session for a fault in the peer's begin, without an event."""
        session = self._add_session(channel, begin)
        session._end_reported = True
        self._fail_session(
            session, spec.Error(condition=conditions.INVALID_FIELD, description=description)
        )

    def _add_session(self, channel: int, begin: spec.Begin) -> Session:
        """Add a session that the peer has begun."""
        limit = min(self._channel_max, self._channels.limit)
        if len(self._sessions) > limit:
            raise ConnectionFaultError(
                conditions.RESOURCE_LIMIT_EXCEEDED, f"more than {limit + 1} sessions"
            )
        session = Session(self)
        self._sessions[session] = None
        self._by_remote_channel[channel] = session
        session._begun_by_peer(channel, begin)
        self._check_endpoints()
        return session

    def _check_endpoints(self) -> None:
        most = self.settings.max_endpoint_octets
        if most and self.endpoint_octets > most:
            raise ConnectionFaultError(
                conditions.RESOURCE_LIMIT_EXCEEDED,
                f"sessions and links take more than {most} octets of memory",
            )

    def _on_close(self, close: spec.Close) -> None:
        self._advance(StateTransition.RECEIVE_CLOSING)
        for session in self._sessions:
            session._stop_transfers()
        self._emit_ends(close.error, by_fault=False)
        self._emit_closed(close.error, by_fault=False, clean=True)
        self._close_error = None
        self._close_due = True

    def _session_of(self, channel: int, body: Any) -> Session | None:
        """Find the session of a frame; None when the frame is to be discarded."""
        if self._state not in (LinkStateName.OFFERED, LinkStateName.OPEN):
            raise ConnectionFaultError(conditions.NOT_ALLOWED, f"{_name(body)} before open")
        session = self._by_remote_channel.get(channel)
        if session is None:
            if channel > self._channel_max:
                raise ConnectionFaultError(
                    conditions.CONNECTION_FRAMING_ERROR,
                    f"channel {channel} is above the channel-max {self._channel_max}",
                )
            raise ConnectionFaultError(
                conditions.NOT_ALLOWED, f"{_name(body)} on channel {channel}, which has no session"
            )
        if type(body) is not spec.End and (
            session._state is LinkStateName.CLOSING or session._failed is not None
        ):
            return None
        return session

    def _on_session_frame(self, session: Session, body: Any, payload: bytes) -> None:
        kind = type(body)
        if kind is spec.Flow:
            if session._on_flow(body):
                self._emit(SessionFlowed(session, body))
        elif kind is spec.Disposition:
            session._unsettled.on_disposition(body)
        elif kind is spec.Transfer:
            delivery = session._on_transfer(body, payload)
            if delivery is not None:
                self._report(delivery)
        elif kind is spec.Attach:
            self.work += _weight_of_filters(body.source)
            session._on_attach(body)
        elif kind is UnfitAttach:
            session._on_attach(body.attach, body.description)
        elif kind is spec.Detach:
            session._on_detach(body)
        else:
            self._on_end(session, body)

    def _on_end(self, session: Session, end: spec.End) -> None:
        del self._by_remote_channel[session.remote_channel]
        session._advance(StateTransition.RECEIVE_CLOSING)
        if session._state is LinkStateName.DONE:
            self._release(session)
            return
        session._stop_transfers()
        self._batch_link = None
        self._emit_end(session, end.error, self._events)
        self._due.append(session)

    # ------------------------------------------------------------------------------- faults

    def _fail_link(self, link: Link, error: spec.Error, closed: bool = True) -> None:
        """Detach a link for a fault of the peer's."""
        link.credit = 0
        if not link._end_reported:
            link._end_reported = True
            self._emit(
                LinkDetached(link, closed, error, list(link.unsettled.values()), by_fault=True)
            )
        link._drop_unfinished()
        if link._state is LinkStateName.OPEN or link._state is LinkStateName.OPENING:
            link._send_detach(closed, error)
        elif link._state is LinkStateName.OFFERED and link._failed is None:
            link._failed = error
            self._due.append(link)

    def _fail_session(self, session: Session, error: spec.Error) -> None:
        """End a session for a fault of the peer."""
        self._batch_link = None
        self._emit_end(session, error, self._events, True)
        if session._state is LinkStateName.OPEN:
            session._send_end(error)
        elif session._state is LinkStateName.OFFERED and session._failed is None:
            session._failed = error
            self._due.append(session)

    def _fail(self, error: spec.Error) -> None:
        """Close the connection for a fault of the peer."""
        if self._state in DISCARDING or self._close_due:
            return
        for session in self._sessions:
            session._stop_transfers()
        self._emit_ends(error, by_fault=True)
        self._emit_closed(error, by_fault=True, clean=False)
        self._close_error = error
        self._close_due = True

    def _lose(self, error: spec.Error | None, *, by_fault: bool) -> None:
        """End the connection without another frame."""
        self._emit_ends(error, by_fault)
        self._release_sessions()
        self._events.extend(self._last_events)
        self._last_events.clear()
        self._finish()
        self._close_due = False
        self._emit_closed(error, by_fault=by_fault, clean=False)

    def _emit_ends(self, error: spec.Error | None, by_fault: bool) -> None:
        self._batch_link = None
        for session in self._sessions:
            self._emit_end(session, error, self._events, by_fault)

    def _emit_closed(self, error: spec.Error | None, *, by_fault: bool, clean: bool) -> None:
        if self._end_reported:
            return
        self._end_reported = True
        self._batch_link = None
        self._events.extend(self._last_events)
        self._last_events.clear()
        self._events.append(ConnectionClosed(error, by_fault, clean))

    # --------------------------------------------------------------- bookkeeping of endpoints

    def _acquire_channel(self, session: Session) -> None:
        channel = self._channels.acquire()
        if channel is None:
            raise LocalProtocolError("the peer's channel-max is reached")
        session.channel = channel
        self._by_channel[channel] = session

    def _locally_ended(self, session: Session) -> None:
        if session._state is LinkStateName.DONE:
            self._release(session)

    def _release(self, session: Session) -> None:
        """Free the channel: both sides have ended."""
        if self._by_channel.pop(session.channel, None) is not None:
            self._channels.release(session.channel)
        self._sessions.pop(session, None)
        session._abandon()


def _without_bulk(body: spec.Open) -> spec.Open:
    """Return an open without the fields whose size is up to the peer."""
    return spec.Open(
        container_id=body.container_id,
        hostname=body.hostname,
        max_frame_size=body.max_frame_size,
        channel_max=body.channel_max,
        idle_time_out=body.idle_time_out,
    )


def _name(body: spec.Composite | UnfitBegin | UnfitAttach) -> str:
    if isinstance(body, UnfitBegin):
        return str(spec.Begin.symbol)
    if isinstance(body, UnfitAttach):
        return str(spec.Attach.symbol)
    return str(body.symbol)


def _weight_of_filters(source: spec.Source | None) -> int:
    """Return the units of work that the filters of a source cost."""
    filters = source.filter if isinstance(source, spec.Source) else None
    units = 0
    for value in (filters or {}).values():
        text = value.value if type(value) is Described else value
        units += input_cost.FILTER
        if isinstance(text, str):
            units += len(text) * input_cost.SELECTOR_PER_CHARACTER
    return units


_CONTRACT: type[UpgradableEngine] = Connection  # for the type checker
_UNBOUNDED: Final = 0x7FFFFFFFFFFFFFFF
_WEIGHTS: Final[dict[type, int]] = {
    spec.Open: input_cost.OPEN,
    spec.Begin: input_cost.BEGIN,
    UnfitBegin: input_cost.BEGIN,
    spec.End: input_cost.END,
    spec.Attach: input_cost.ATTACH,
    UnfitAttach: input_cost.ATTACH,
    spec.Detach: input_cost.DETACH,
    spec.Flow: input_cost.FLOW,
    spec.Disposition: input_cost.DISPOSITION,
    spec.Transfer: input_cost.DELIVERY,
}
"""Units of work per frame besides `input_cost.FRAME`; sessions add more, by their state."""
_CONNECTION_FRAMES: Final = frozenset({spec.Open, spec.Begin, UnfitBegin, spec.Close})
_NO_BEGIN: Final = spec.Begin(next_outgoing_id=0, incoming_window=0, outgoing_window=0)
"""Placeholder for a begin whose fields cannot be decoded."""

__all__ = ["LEAST_HELD", "MAX_HELD", "MIN_IDLE", "OPEN_OCTETS", "Connection", "ConnectionSettings"]
