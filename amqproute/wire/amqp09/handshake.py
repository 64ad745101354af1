# SPDX-License-Identifier: Apache-2.0
"""The beginning and the end of a connection: header, start, secure, tune, open, close.

`Handshake` is the lower half of `amqproute.wire.amqp09.connection09.Connection09`. It owns the
stage, the output, the heartbeats, and the ways in which a connection ends. The upper half reads
frames and has the channels.

While the user's action is pending (to verify a password, to open a virtual host) nothing is read:
frames sent ahead by the peer wait, up to `MOST_WAITING` octets.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from typing import Final

from amqproute import conditions
from amqproute.errors import LocalProtocolError
from amqproute.wire.amqp09.arguments import decode_method, encode_method
from amqproute.wire.amqp09.connection_settings import (
    FRAME_MIN_SIZE,
    OPENING_FRAME,
    Connection09Settings,
)
from amqproute.wire.amqp09.field_tables import EMPTY_TABLE, FieldTable
from amqproute.wire.amqp09.frame_output import FRAME_OVERHEAD, FrameOutput
from amqproute.wire.amqp09.methods import (
    METHODS,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionRedirect,
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
)
from amqproute.wire.amqp09.methods import (
    ConnectionBlocked as BlockedMethod,
)
from amqproute.wire.amqp09.methods import (
    ConnectionUnblocked as UnblockedMethod,
)
from amqproute.wire.amqp09.protocol_events import (
    BlockedNotice,
    ChallengeAnswered,
    Challenged,
    ConnectionEnded,
    ConnectionOpened,
    ConnectionRedirected,
    MechanismChosen,
    MechanismsOffered,
    ProtocolEvent,
    SecretReplaced,
    UnblockedNotice,
    VirtualHostAsked,
)
from amqproute.wire.amqp09.replies import ReplyCode, fit_reply_text
from amqproute.wire.amqp09.shapes import AmqpMethod
from amqproute.wire.amqp09.versions import ProtocolVersion, Role
from amqproute.wire.amqp09.violations import Violation, ViolationError
from amqproute.wire.header import (
    HEADER_SIZE,
    ProtocolHeader,
    UnknownHeaderError,
    recognize,
)

MOST_WAITING: Final = 65_536
"""Most octets that a peer may send ahead while the user's action is pending."""
CAPABILITY_FAILURE_CLOSE: Final = "authentication_failure_close"
CAPABILITY_BLOCKED: Final = "connection.blocked"


class HandshakeStage(enum.Enum):
    """The stage of a connection."""

    HEADER = enum.auto()
    """Server: waiting for the client's header. Client: for the server's start, or a header."""
    START_OK = enum.auto()
    """Server: waiting for start-ok."""
    CREDENTIALS = enum.auto()
    """Server: the user must verify a response."""
    SECURE_OK = enum.auto()
    """Server: waiting for secure-ok."""
    TUNE_OK = enum.auto()
    """Server: waiting for tune-ok."""
    OPEN_AWAITED = enum.auto()
    """Server: waiting for open."""
    HOST_ASKED = enum.auto()
    """Server: the user must open the virtual host."""
    RESPOND = enum.auto()
    """Client: the user must choose a mechanism or answer a challenge."""
    TUNE = enum.auto()
    """Client: waiting for secure or tune."""
    OPEN_OK = enum.auto()
    """Client: waiting for open-ok."""
    OPEN = enum.auto()
    CLOSING = enum.auto()
    """Our close was sent; everything but its answer is dropped (09-CONN-33)."""
    ANSWER_DUE = enum.auto()
    """The peer's close was received; only close-ok remains."""
    OVER = enum.auto()


USERS_TURN: Final = frozenset(
    (HandshakeStage.CREDENTIALS, HandshakeStage.HOST_ASKED, HandshakeStage.RESPOND)
)
_CLOSE_CODES: Final = {
    conditions.CONNECTION_FORCED: ReplyCode.CONNECTION_FORCED,
    # As other brokers do when a token has expired.
    conditions.UNAUTHORIZED_ACCESS: ReplyCode.NOT_ALLOWED,
}
_BEFORE_OPEN: Final = frozenset(
    (
        HandshakeStage.HEADER,
        HandshakeStage.START_OK,
        HandshakeStage.CREDENTIALS,
        HandshakeStage.SECURE_OK,
        HandshakeStage.TUNE_OK,
        HandshakeStage.OPEN_AWAITED,
        HandshakeStage.RESPOND,
        HandshakeStage.TUNE,
        HandshakeStage.OPEN_OK,
    )
)


class Handshake(ABC):
    """The stages of a connection, and its deadlines."""

    def __init__(self, settings: Connection09Settings) -> None:
        self.settings = settings
        self.role: Role = settings.role
        self.version = settings.version
        self.connection_id = settings.connection_id
        # Before tuning frames are small (09-X-11); a client's token may not be.
        self.output = FrameOutput(FRAME_MIN_SIZE if self.role == "server" else OPENING_FRAME)
        self.peer_properties: FieldTable = EMPTY_TABLE
        self.channel_max = settings.channel_max
        self.frame_max = settings.frame_max
        self.heartbeat = 0
        self.work = 0
        self._stage = HandshakeStage.HEADER
        self._events: list[ProtocolEvent] = []
        self._now = 0.0
        self._last_received = 0.0
        self._last_sent = 0.0
        self._is_heard = True
        self._handshake_deadline: float | None = None
        self._close_deadline: float | None = None
        self._close_waits = False
        self._ends_due = False
        self._told = False
        self._unheard = 0
        self._largest_in = OPENING_FRAME - FRAME_OVERHEAD
        # The contents of our close.
        self._reason = (0, "")

    # ---------------------------------------------------------------------- for the upper half

    @abstractmethod
    def _shut_channels(self) -> None:
        """End all channels; the next `_end_channels` reports it."""

    @abstractmethod
    def _end_channels(self) -> None:
        """Report the end of each channel, once."""

    @abstractmethod
    def _emit(self, event: ProtocolEvent) -> None:
        """Report an event that ends the merging of earlier ones."""

    def _write(self, method: AmqpMethod) -> None:
        payload = encode_method(method, self.version)
        self.output.write((self.output.method_frame(0, payload),))

    # ------------------------------------------------------------------------------- the face

    @property
    def stage(self) -> HandshakeStage:
        """The stage of the connection."""
        return self._stage

    @property
    def is_open(self) -> bool:
        """Whether open and open-ok are exchanged, and nobody has closed."""
        return self._stage is HandshakeStage.OPEN

    @property
    def is_closed(self) -> bool:
        """See `amqproute.wire.engine.Engine`."""
        return self._stage is HandshakeStage.OVER

    @property
    def last_received(self) -> float:
        """Time of the last input, in seconds of the monotonic clock."""
        return self._last_received

    @property
    def peer_capabilities(self) -> frozenset[str]:
        """The capabilities in the peer's properties."""
        table = self.peer_properties.get("capabilities")
        if not isinstance(table, FieldTable):
            return frozenset()
        return frozenset(name for name, value in table.items() if value is True)

    def start(self, now: float) -> None:
        """See `amqproute.wire.engine.Engine`."""
        self._now = self._last_received = self._last_sent = now
        self._handshake_deadline = now + self.settings.handshake_timeout
        if self.role == "client":
            self.output.write((self.version.header.value,))

    def data_to_send(self) -> list[bytes]:
        """See `amqproute.wire.engine.Engine`."""
        out = self.output.take()
        if out:
            self._last_sent = self._now
        return out

    def next_deadline(self) -> float | None:
        """See `amqproute.wire.engine.Engine`."""
        if self._stage is HandshakeStage.OVER:
            return None
        if self._close_waits or self._ends_due:
            return self._now
        deadlines = (self._handshake_deadline, self._close_deadline)
        times = [each for each in deadlines if each is not None]
        if self.heartbeat and self._stage in BEATING:
            times.append(self._last_sent + self.heartbeat / 2)
            if self._is_heard:
                times.append(self._last_received + 2 * self.heartbeat)
        return min(times, default=None)

    def reading_stops(self) -> None:
        """The caller has stopped reading, to slow the peer down: its silence does not count."""
        self._is_heard = False

    def reading_goes_on(self, now: float) -> None:
        """The caller reads again: silence counts from now on."""
        self._is_heard = True
        self._last_received = now

    # ------------------------------------------------------------------------ a server's verbs

    def challenge(self, challenge: bytes) -> None:
        """Server: ask the client for more (connection.secure).

        Raises:
            LocalProtocolError: there is no response to answer.
        """
        self._turn(HandshakeStage.CREDENTIALS, HandshakeStage.SECURE_OK)
        self._write(ConnectionSecure(challenge=challenge))

    def authenticated(self) -> None:
        """Server: the client is authenticated; continue with tuning.

        Raises:
            LocalProtocolError: there is no response to answer.
        """
        self._turn(HandshakeStage.CREDENTIALS, HandshakeStage.TUNE_OK)
        settings = self.settings
        self._write(
            ConnectionTune(
                channel_max=settings.channel_max,
                frame_max=settings.frame_max,
                heartbeat=settings.heartbeat,
            )
        )

    def refuse_authentication(self, text: str) -> None:
        """Server: refuse the client; the connection ends (09-W-50).

        A client with the matching capability gets a close with access-refused, others lose the
        transport.

        Raises:
            LocalProtocolError: there is no response to answer.
        """
        if self._stage is not HandshakeStage.CREDENTIALS:
            raise LocalProtocolError(f"no response to refuse: {self._stage.name}")
        if CAPABILITY_FAILURE_CLOSE in self.peer_capabilities:
            self._send_close(ReplyCode.ACCESS_REFUSED, text, ConnectionStartOk())
        else:
            self._go(ReplyCode.ACCESS_REFUSED, text)

    def open_ok(self, known_hosts: str = "") -> None:
        """Server: the virtual host is open.

        Raises:
            LocalProtocolError: there is no open to answer.
        """
        self._turn(HandshakeStage.HOST_ASKED, HandshakeStage.OPEN)
        self._write(ConnectionOpenOk(known_hosts=known_hosts))

    def block(self, reason: str) -> None:
        """Server: notify clients with the capability that publishes wait."""
        if self._stage is HandshakeStage.OPEN and CAPABILITY_BLOCKED in self.peer_capabilities:
            self._write(BlockedMethod(reason=fit_reply_text(reason)))

    def unblock(self) -> None:
        """Server: notify clients with the capability that publishes are accepted again."""
        if self._stage is HandshakeStage.OPEN and CAPABILITY_BLOCKED in self.peer_capabilities:
            self._write(UnblockedMethod())

    def update_secret_ok(self) -> None:
        """Server: accept the new secret."""
        if self._stage is HandshakeStage.OPEN:
            self._write(ConnectionUpdateSecretOk())

    # ------------------------------------------------------------------------ a client's verbs

    def start_ok(self, mechanism: str, response: bytes) -> None:
        """Client: choose a mechanism.

        Raises:
            LocalProtocolError: there is no start to answer.
        """
        self._turn(HandshakeStage.RESPOND, HandshakeStage.TUNE)
        self._write(
            ConnectionStartOk(
                client_properties=self.settings.table(self.settings.version),
                mechanism=mechanism,
                response=response,
                locale=self.settings.locales[0],
            )
        )

    def secure_ok(self, response: bytes) -> None:
        """Client: answer a challenge.

        Raises:
            LocalProtocolError: there is no challenge to answer.
        """
        self._turn(HandshakeStage.RESPOND, HandshakeStage.TUNE)
        self._write(ConnectionSecureOk(response=response))

    def update_secret(self, secret: bytes, reason: str) -> None:
        """Client: replace the secret of its authentication.

        Raises:
            LocalProtocolError: the connection is not open.
        """
        if self._stage is not HandshakeStage.OPEN:
            raise LocalProtocolError(f"not open: {self._stage.name}")
        self._write(ConnectionUpdateSecret(new_secret=secret, reason=reason))

    # -------------------------------------------------------------------------------- closing

    def close(self, code: ReplyCode, text: str, method: AmqpMethod | None = None) -> None:
        """Close the connection. Before it is open this drops the transport.

        `ChannelEnded` for each channel comes with the next `tick`, which `next_deadline` requests,
        and `ConnectionEnded` when the peer has answered or its time is over.

        Args:
            code: the reason.
            text: the reason as text; truncated to fit.
            method: the method that caused it, None for none (09-W-60).
        """
        if self._stage in (HandshakeStage.OPEN, HandshakeStage.HOST_ASKED):
            self._send_close(code, text, method)
        elif self._stage in _BEFORE_OPEN:
            self._go(code, text)

    def close_with(self, condition: conditions.Condition, words: str) -> None:
        """See `amqproute.wire.engine.Engine`."""
        self.close(_CLOSE_CODES.get(condition, ReplyCode.INTERNAL_ERROR), words)

    def close_ok(self) -> None:
        """Answer the peer's close, once everything on the connection has ended.

        Raises:
            LocalProtocolError: there is no close to answer.
        """
        self._turn(HandshakeStage.ANSWER_DUE, HandshakeStage.OVER)
        self._write(ConnectionCloseOk())

    def _go(self, code: ReplyCode, text: str) -> None:
        """End the connection without a method, with the next `tick`."""
        self._stage = HandshakeStage.CLOSING
        self._reason = (code, text)
        self._ends_due = True
        self._close_deadline = self._now

    def _send_close(self, code: ReplyCode, text: str, method: AmqpMethod | None) -> None:
        self._stage = HandshakeStage.CLOSING
        self._reason = (code, text)
        self._shut_channels()
        self._ends_due = True
        self._close_waits = True
        self._handshake_deadline = None
        self._write(
            ConnectionClose(
                reply_code=code,
                reply_text=fit_reply_text(text),
                class_id=method.traits.class_id if method else 0,
                method_id=method.traits.method_id if method else 0,
            )
        )

    def _end(self, event: ConnectionEnded) -> None:
        """Report the end of all channels and of the connection, once."""
        self._end_channels()
        if not self._told:
            self._told = True
            self._emit(event)

    def _drop(self, code: int, text: str, violation: Violation | None = None) -> None:
        """End the connection without a close."""
        self._stage = HandshakeStage.OVER
        self._end(ConnectionEnded(code, text, violation=violation))

    def _lost(self, text: str) -> None:
        if self._stage is not HandshakeStage.OVER:
            self._drop(0, text)

    def _violated(self, fault: ViolationError, method: AmqpMethod | None) -> None:
        """End the connection because of a violation."""
        violation = fault.violation
        code = violation.code(self.version)
        if self._stage is not HandshakeStage.OPEN or violation.is_silent(self.version):
            self._drop(code, fault.text, violation)
            return
        self._send_close(code, fault.text, method)
        class_id, method_id = (
            (method.traits.class_id, method.traits.method_id) if method else (0, 0)
        )
        self._end(ConnectionEnded(code, fault.text, class_id, method_id, violation))

    def _turn(self, before: HandshakeStage, after: HandshakeStage) -> None:
        if self._stage is not before:
            raise LocalProtocolError(f"the connection is not in {before.name}: {self._stage.name}")
        self._stage = after

    # --------------------------------------------------------------------------------- header

    def _take_client_header(self, data: bytes) -> int:
        """Server: read the header; return the octets taken, 0 while it is incomplete."""
        try:
            header = recognize(data)
        except UnknownHeaderError as fault:
            self.output.write((fault.answer,))
            self._drop(0, fault.description)
            return 0
        if header is None:
            return 0
        if header is ProtocolHeader.AMQP_0_9:
            self.version = ProtocolVersion.V0_9
        elif header is ProtocolHeader.AMQP_0_9_1:
            self.version = ProtocolVersion.V0_9_1
        else:
            self.output.write((ProtocolHeader.AMQP_1_0_SASL.value,))
            self._drop(0, f"the client speaks AMQP 1.0 ({header.name}); 0-9 is served here")
            return 0
        settings = self.settings
        self._stage = HandshakeStage.START_OK
        self._write(
            ConnectionStart(
                version_major=0,
                version_minor=9,
                server_properties=settings.table(self.version),
                mechanisms=" ".join(settings.mechanisms).encode(),
                locales=" ".join(settings.locales).encode(),
            )
        )
        return HEADER_SIZE

    def _sees_server_header(self, data: bytes) -> bool:
        """Client: return whether a header comes instead of start; it ends the connection."""
        if not data.startswith(b"A"):
            return False
        if len(data) >= HEADER_SIZE:
            self._drop(0, f"the server answers with the header {data[:HEADER_SIZE]!r}")
        return True

    # -------------------------------------------------------------------- methods of channel 0

    def _on_connection_method(self, payload: bytes) -> None:
        """Handle a method of channel 0."""
        method: AmqpMethod | None = None
        try:
            if payload[:2] != b"\0\x0a":
                raise ViolationError(
                    Violation.CHANNEL_ZERO, "a method of another class on channel 0"
                )
            method = decode_method(payload, self.version)
            traits = method.traits
            if not (traits.to_server if self.role == "server" else traits.to_client):
                raise ViolationError(
                    Violation.METHOD_OUT_OF_ORDER, f"{traits.name} to a {self.role}"
                )
            self._act(method)
        except ViolationError as fault:
            kind = METHODS.get(int.from_bytes(payload[:4], "big"))
            self._violated(fault, method or (kind() if kind is not None else None))

    def _act(self, method: AmqpMethod) -> None:
        stage = self._stage
        if isinstance(method, ConnectionClose) and stage not in _UNTUNED:
            self._on_close(method)
        elif isinstance(method, ConnectionClose) and self.role == "client":
            self._on_close(method)  # a refused log-in (09-W-50)
        elif isinstance(method, ConnectionStartOk) and stage is HandshakeStage.START_OK:
            self._on_start_ok(method)
        elif isinstance(method, ConnectionSecureOk) and stage is HandshakeStage.SECURE_OK:
            self._stage = HandshakeStage.CREDENTIALS
            self._emit(ChallengeAnswered(method.response))
        elif isinstance(method, ConnectionTuneOk) and stage is HandshakeStage.TUNE_OK:
            self._on_tune_ok(method)
        elif isinstance(method, ConnectionOpen) and stage is HandshakeStage.OPEN_AWAITED:
            self._stage = HandshakeStage.HOST_ASKED
            self._handshake_deadline = None
            self._emit(VirtualHostAsked(method.virtual_host, method.capabilities, method.insist))
        elif isinstance(method, ConnectionStart) and stage is HandshakeStage.HEADER:
            self._on_start(method)
        elif isinstance(method, ConnectionSecure) and stage is HandshakeStage.TUNE:
            self._stage = HandshakeStage.RESPOND
            self._emit(Challenged(method.challenge))
        elif isinstance(method, ConnectionTune) and stage is HandshakeStage.TUNE:
            self._on_tune(method)
        elif isinstance(method, ConnectionOpenOk) and stage is HandshakeStage.OPEN_OK:
            self._stage = HandshakeStage.OPEN
            self._handshake_deadline = None
            self._emit(ConnectionOpened(method.known_hosts))
        elif isinstance(method, ConnectionRedirect) and stage is HandshakeStage.OPEN_OK:
            self._emit(ConnectionRedirected(method.host, method.known_hosts))
            self._drop(0, f"the server redirects to {method.host}")
        elif stage is HandshakeStage.OPEN and isinstance(method, ConnectionUpdateSecret):
            self._emit(SecretReplaced(method.new_secret, method.reason))
        elif stage is HandshakeStage.OPEN and isinstance(method, BlockedMethod):
            self._emit(BlockedNotice(method.reason))
        elif stage is HandshakeStage.OPEN and isinstance(method, UnblockedMethod):
            self._emit(UnblockedNotice())
        elif stage is HandshakeStage.OPEN and isinstance(method, ConnectionUpdateSecretOk):
            pass
        else:
            raise ViolationError(
                Violation.METHOD_OUT_OF_ORDER, f"{method.traits.name} in {stage.name}"
            )

    def _on_close(self, method: ConnectionClose) -> None:
        self._stage = HandshakeStage.ANSWER_DUE
        self._handshake_deadline = None
        self._close_waits = True
        self._end(
            ConnectionEnded(
                method.reply_code,
                method.reply_text,
                method.class_id,
                method.method_id,
                clean=True,
                answer_due=True,
            )
        )

    def _on_start_ok(self, method: ConnectionStartOk) -> None:
        self.peer_properties = method.client_properties
        if method.mechanism not in self.settings.mechanisms:
            offered = " ".join(self.settings.mechanisms) or "none"
            raise ViolationError(
                Violation.MECHANISM_NOT_OFFERED,
                f"the client wants mechanism {method.mechanism[:60]!r}; mechanisms are {offered}",
            )
        locales = self.settings.locales
        locale = method.locale if method.locale in locales else locales[0]
        self._stage = HandshakeStage.CREDENTIALS
        self._emit(
            MechanismChosen(method.mechanism, method.response, locale, method.client_properties)
        )

    def _on_tune_ok(self, method: ConnectionTuneOk) -> None:
        settings = self.settings
        if method.channel_max > settings.channel_max or method.frame_max > settings.frame_max:
            raise ViolationError(
                Violation.TUNED_ABOVE_OFFER,
                f"tuned to {method.channel_max} channels and frames of {method.frame_max}; "
                f"{settings.channel_max} and {settings.frame_max} were offered",
            )
        if 0 < method.frame_max < FRAME_MIN_SIZE:
            raise ViolationError(
                Violation.FRAME_MAX_TOO_LOW, f"frames of {method.frame_max} octets"
            )
        self._tune(method.channel_max, method.frame_max, method.heartbeat)
        self._stage = HandshakeStage.OPEN_AWAITED

    def _tune(self, channel_max: int, frame_max: int, heartbeat: int) -> None:
        """Adopt the agreed values; 0 leaves our own (09-W-17)."""
        self.channel_max = channel_max or self.settings.channel_max
        self.frame_max = frame_max or self.settings.frame_max
        self.heartbeat = heartbeat
        self.output.largest_payload = self.frame_max - FRAME_OVERHEAD
        # Some clients are off by the eight octets around a payload (09-W-11).
        self._largest_in = self.frame_max

    def _on_start(self, method: ConnectionStart) -> None:
        self.peer_properties = method.server_properties
        if (method.version_major, method.version_minor) != (0, 9):
            self._drop(
                0, f"the server offers version {method.version_major}-{method.version_minor}"
            )
            return
        self._stage = HandshakeStage.RESPOND
        self._emit(
            MechanismsOffered(
                method.mechanisms.decode("utf-8", "replace").split(),
                method.locales.decode("utf-8", "replace").split(),
                method.server_properties,
            )
        )

    def _on_tune(self, method: ConnectionTune) -> None:
        if 0 < method.frame_max < FRAME_MIN_SIZE:
            raise ViolationError(
                Violation.FRAME_MAX_TOO_LOW, f"frames of {method.frame_max} octets"
            )
        settings = self.settings
        channel_max = min(method.channel_max or settings.channel_max, settings.channel_max)
        frame_max = min(method.frame_max or settings.frame_max, settings.frame_max)
        heartbeat = min(method.heartbeat or settings.heartbeat, settings.heartbeat)
        self._tune(channel_max, frame_max, heartbeat)
        self._write(
            ConnectionTuneOk(channel_max=channel_max, frame_max=frame_max, heartbeat=heartbeat)
        )
        self._write(ConnectionOpen(virtual_host=settings.virtual_host))
        self._stage = HandshakeStage.OPEN_OK


BEATING: Final = frozenset(
    (
        HandshakeStage.OPEN_AWAITED,
        HandshakeStage.HOST_ASKED,
        HandshakeStage.OPEN_OK,
        HandshakeStage.OPEN,
        HandshakeStage.CLOSING,
    )
)
"""Stages in which silence ends the connection."""
_UNTUNED: Final = frozenset(
    (
        HandshakeStage.HEADER,
        HandshakeStage.START_OK,
        HandshakeStage.SECURE_OK,
        HandshakeStage.TUNE_OK,
        HandshakeStage.TUNE,
        HandshakeStage.CLOSING,
    )
)
"""Stages without a close handshake, or with another one."""

__all__ = [
    "BEATING",
    "CAPABILITY_BLOCKED",
    "CAPABILITY_FAILURE_CLOSE",
    "MOST_WAITING",
    "USERS_TURN",
    "Handshake",
    "HandshakeStage",
]
