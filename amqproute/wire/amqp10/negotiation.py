# SPDX-License-Identifier: Apache-2.0
"""Negotiation of a connection: protocol headers, TLS, SASL (part 2 §2.2, part 5).

`Negotiation` is the lower half of `amqproute.wire.amqp10.connection.Connection`. It owns the
phase (`state_tables.PHASES`) and the octets that go both ways until both AMQP headers are
exchanged.

* A server waits for the client's header and answers it if the settings allow it. What it does not
  serve, AMQP or not, is answered with the header that it would have taken, and the end (part 2
  §2.2). A TLS hello is answered with a TLS alert: TLS is served where the settings say so, and
  never because somebody begins it.
* A client sends the header that it wants (TLS, SASL, AMQP, each only if set) and goes when the
  server answers with another: it never falls back to less than its settings ask for.
* After TLS everything starts again. Octets that came in the clear before it are never read as if
  they had come through it.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from amqproute import conditions
from amqproute.errors import AmqpError, LocalProtocolError
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.connection_settings import ConnectionSettings
from amqproute.wire.amqp10.connection_state import ConnectionState
from amqproute.wire.amqp10.engine_events import (
    Authenticated,
    AuthenticationRejected,
    CredentialsPresented,
)
from amqproute.wire.amqp10.frames import TYPE_SASL, FrameBuffer, encode_sasl_frame
from amqproute.wire.amqp10.protocol_faults import release_frames
from amqproute.wire.amqp10.sasl import (
    ClientAuthority,
    ClientExchange,
    Reaction,
    ServerAuthority,
    ServerExchange,
)
from amqproute.wire.amqp10.state_tables import PHASES, HandshakePhase, TransitionTable
from amqproute.wire.engine import Event, TlsAgreed
from amqproute.wire.header import TLS_ALERT, ProtocolHeader, UnknownHeaderError, recognize
from amqproute.wire.input_cost import SLICE
from amqproute.wire.sasl_mechanisms import Verification

OPEN_OCTETS: Final = 8192
"""The largest frame before the peer's open: only 512 octets are legal (part 2 §2.3.1), and opens
with many properties are seen that have more."""
MAX_HELD: Final = 16384
"""Octets kept while credentials are verified or TLS is awaited."""

_NO_TLS: Final = (
    "the client begins TLS where there is none to begin, at a listener with tls: none or within "
    "TLS; it needs a listener with tls: implicit, or has to connect without TLS"
)
_TLS_BY_HEADER: Final = (
    "the client begins TLS with its first octet at a listener with tls: upgrade, where the header "
    "AMQP 2.1.0.0 comes before TLS; it needs a listener with tls: implicit"
)
_NOT_SECURE: Final = "the client skipped TLS, which is required here"
_REFUSAL_REASONS: Final = {
    ProtocolHeader.AMQP_1_0: "the client skipped SASL, which is required here",
    ProtocolHeader.AMQP_1_0_SASL: "the client asks for SASL where there is none, or a second time",
    ProtocolHeader.AMQP_1_0_TLS: "the client asks for TLS where there is none, or too late",
    ProtocolHeader.AMQP_0_9_1: "the client speaks AMQP 0-9-1; AMQP 1.0 is served here",
    ProtocolHeader.AMQP_0_9: "the client speaks AMQP 0-9; AMQP 1.0 is served here",
}
"""Reason to refuse a client's header, for the log."""


class Negotiation(ConnectionState):
    """The phases before AMQP frames.

    Args:
        settings: the settings of the connection.
        sasl_server: supplies a server's mechanisms; None for no SASL.
        sasl_client: chooses a client's mechanism; None for no SASL.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        *,
        sasl_server: ServerAuthority | None = None,
        sasl_client: ClientAuthority | None = None,
    ) -> None:
        super().__init__(settings)
        self._sasl_server = sasl_server
        self._sasl_client = sasl_client
        self._phase = HandshakePhase.START
        self.is_closed = False
        self._input = b""
        self._secured = False
        self._authenticated = False
        self._has_heard = False
        self._exchange: ServerExchange | ClientExchange | None = None
        # SASL frames are small, and so is an open; what our open says holds from the peer's on.
        self._buffer = FrameBuffer(spec.MIN_MAX_FRAME_SIZE)
        # Octets that go out before all frames.
        self._early: list[bytes] = []
        self._header_sent = False
        self._last_received = 0.0
        # The value of `work` at which a read ends.
        self._work_limit = 0

    @property
    def phase(self) -> HandshakePhase:
        """Phase of the negotiation."""
        return self._phase

    @property
    def is_secured(self) -> bool:
        """Whether `tls_established` was called."""
        return self._secured

    @property
    def has_heard(self) -> bool:
        """Whether any input has come from the peer, or was decrypted."""
        return self._has_heard

    @abstractmethod
    def _read(self, data: bytes) -> None:
        """Process AMQP frames."""

    @abstractmethod
    def _note_input(self) -> None:
        """Note whether a budget has left frames to be read."""

    @abstractmethod
    def _lose(self, error: spec.Error | None, *, by_fault: bool) -> None:
        """End the connection without another frame."""

    def tls_established(self, now: float) -> list[Event]:
        """Go on after `TlsAgreed`: the transport is secured, negotiation starts again on it.

        Octets that came before, in the clear, end the connection: a man in the middle could have
        inserted them.

        Raises:
            LocalProtocolError: TLS was not agreed.
        """
        if self._phase is HandshakePhase.OVER:
            return []
        if self._phase is not HandshakePhase.TLS:
            raise LocalProtocolError(f"TLS was not agreed: {self._phase.name}")
        self._now = self._last_received = now
        events = self._events = []
        self._batch_link = None
        if self._input:
            self._lose(
                spec.Error(
                    condition=conditions.CONNECTION_FRAMING_ERROR,
                    description="octets in the clear after the TLS header",
                ),
                by_fault=True,
            )
            return events
        self._secured = True
        self._advance_phase(TransitionTable.SECURED)
        if self.settings.role == "client":
            self._send_client_header()
        return events

    def take_surplus(self) -> bytes:
        """Return the octets after the peer's TLS header: the start of its handshake.

        Call it between `TlsAgreed` and `tls_established`, and feed it to the TLS layer.
        """
        surplus = b""
        if self._phase is HandshakePhase.TLS:
            surplus, self._input = self._input, b""
        return surplus

    def credentials_verified(self, ok: Verification, now: float) -> list[Event]:
        """Answer `CredentialsPresented`, and process later input.

        Args:
            ok: whether they are right, or whose they are; None if that cannot be decided now, and
                the peer may try again.
            now: of the monotonic clock, seconds.

        Raises:
            LocalProtocolError: no credentials are to be verified.
        """
        if self._phase is HandshakePhase.OVER:
            return []
        if self._phase is not HandshakePhase.VERIFY:
            raise LocalProtocolError("no credentials are to be verified")
        assert isinstance(self._exchange, ServerExchange)
        self._now = now
        self._work_limit = self.work + SLICE
        events = self._events = []
        self._batch_link = None
        self._advance_phase(TransitionTable.ANSWERED)
        self._react(self._exchange.resolve(ok))
        self._negotiate(b"")
        self._note_input()
        return events

    def _advance_phase(self, transition: TransitionTable) -> None:
        phase = PHASES.get((self._phase, transition))
        if phase is None:
            raise LocalProtocolError(f"no {transition.name} in {self._phase.name}")
        self._phase = phase
        self.is_closed = phase is HandshakePhase.OVER

    def _send_client_header(self) -> None:
        if self._sasl_client is not None and not self._authenticated:
            self._early.append(ProtocolHeader.AMQP_1_0_SASL.value)
        else:
            self._send_amqp_header()

    def _send_amqp_header(self) -> None:
        self._early.append(ProtocolHeader.AMQP_1_0.value)
        self._header_sent = True

    def _negotiate(self, data: bytes) -> None:
        """Process headers and SASL as far as the input reaches."""
        self._has_heard = self._has_heard or bool(data)
        self._input = self._input + data if self._input else data
        while True:
            phase = self._phase
            if phase is HandshakePhase.HEADER:
                if not self._input or not self._read_header():
                    return
            elif phase is HandshakePhase.SASL:
                if not self._read_sasl():
                    return
            elif phase is HandshakePhase.AMQP:
                rest, self._input = self._input, b""
                if rest:
                    self._read(rest)
                return
            elif phase is HandshakePhase.TLS or phase is HandshakePhase.VERIFY:
                if len(self._input) > MAX_HELD:
                    self._lose(
                        spec.Error(
                            condition=conditions.RESOURCE_LIMIT_EXCEEDED,
                            description="too much sent ahead",
                        ),
                        by_fault=True,
                    )
                return
            else:
                self._input = b""
                return

    def _read_header(self) -> bool:
        """Read a protocol header; False while it is incomplete."""
        try:
            header = recognize(self._input)
        except UnknownHeaderError as fault:
            if fault.is_tls and self.settings.role == "server" and not self._secured:
                self._refuse_tls()
            else:
                self._refuse_header(fault.description)
            return True
        if header is None:
            return False
        self._input = self._input[8:]
        if self.settings.role == "server":
            self._on_client_header(header)
        else:
            self._on_server_header(header)
        return True

    def _on_client_header(self, header: ProtocolHeader) -> None:
        settings = self.settings
        secure_enough = self._secured or settings.tls != "required"
        if header is ProtocolHeader.AMQP_1_0_TLS:
            if settings.tls != "none" and not self._secured and not self._authenticated:
                self._early.append(header.value)
                self._advance_phase(TransitionTable.TLS_HEADER)
                self._emit(TlsAgreed())
                return
        elif header is ProtocolHeader.AMQP_1_0_SASL:
            if self._sasl_server is not None and secure_enough and not self._authenticated:
                exchange = self._exchange = ServerExchange(self._sasl_server)
                self._early.append(header.value)
                self._early.append(encode_sasl_frame(exchange.begin()))
                if exchange.takes_tokens:
                    self._buffer.set_max_frame_size(min(self._frame_limit, OPEN_OCTETS))
                self._advance_phase(TransitionTable.SASL_HEADER)
                return
        elif (
            header is ProtocolHeader.AMQP_1_0
            and secure_enough
            and (self._authenticated or settings.allow_no_sasl or self._sasl_server is None)
        ):
            self._send_amqp_header()
            self._enter_amqp()
            return
        self._refuse_header(_REFUSAL_REASONS[header] if secure_enough else _NOT_SECURE)

    def _on_server_header(self, header: ProtocolHeader) -> None:
        settings = self.settings
        if settings.tls == "required" and not self._secured:
            if header is ProtocolHeader.AMQP_1_0_TLS:
                self._advance_phase(TransitionTable.TLS_HEADER)
                self._emit(TlsAgreed())
                return
        elif self._sasl_client is not None and not self._authenticated:
            if header is ProtocolHeader.AMQP_1_0_SASL:
                self._exchange = ClientExchange(self._sasl_client, settings.hostname)
                self._advance_phase(TransitionTable.SASL_HEADER)
                return
        elif header is ProtocolHeader.AMQP_1_0:
            self._enter_amqp()
            return
        self._refuse_header(f"the peer answers with {header.name}")

    def _refuse_tls(self) -> None:
        """Answer a TLS hello with a TLS alert, and end the connection."""
        self._early.append(TLS_ALERT)
        self._lose(
            spec.Error(
                condition=conditions.CONNECTION_FRAMING_ERROR,
                description=_NO_TLS if self.settings.tls == "none" else _TLS_BY_HEADER,
            ),
            by_fault=True,
        )

    def _refuse_header(self, description: str) -> None:
        """Send the header that we support, as a server has to (§2.2), and end the connection."""
        settings = self.settings
        if settings.role == "server":
            if settings.tls == "required" and not self._secured:
                header = ProtocolHeader.AMQP_1_0_TLS
            elif self._sasl_server is not None and not self._authenticated:
                header = ProtocolHeader.AMQP_1_0_SASL
            else:
                header = ProtocolHeader.AMQP_1_0
            self._early.append(header.value)
        self._lose(
            spec.Error(condition=conditions.CONNECTION_FRAMING_ERROR, description=description),
            by_fault=True,
        )

    def _enter_amqp(self) -> None:
        self._advance_phase(TransitionTable.AMQP_HEADER)
        self._buffer.set_max_frame_size(min(self._frame_limit, OPEN_OCTETS))
        if not self._authenticated:
            self._emit(Authenticated(None, None))

    def _read_sasl(self) -> bool:
        """Process one SASL frame; False when it is not complete."""
        buffer = self._buffer
        if self._input:
            buffer.feed(self._input)
            self._input = b""
        try:
            frames = buffer.frames(1)
        except AmqpError as fault:
            release_frames(fault)
            self._sasl_failed(None, fault.description)
            return True
        if not frames:
            return False
        _, kind, body, _ = frames[0]
        if kind != TYPE_SASL or body is None:
            self._sasl_failed(None, "an AMQP frame where SASL is spoken")
            return True
        assert self._exchange is not None
        self._react(self._exchange.receive(body))  # type: ignore[arg-type]
        if self._phase is not HandshakePhase.SASL:
            self._input = buffer.take_rest()
        return True

    def _react(self, reaction: Reaction) -> None:
        for body in reaction.bodies:
            frame = encode_sasl_frame(body)
            if len(frame) > spec.MIN_MAX_FRAME_SIZE:
                self._sasl_failed(reaction.mechanism, "our answer does not fit into a SASL frame")
                return
            self._early.append(frame)
        if reaction.failed is not None:
            self._sasl_failed(reaction.mechanism, reaction.failed, reaction.is_temporary)
        elif reaction.verify is not None:
            self._advance_phase(TransitionTable.ASK)
            self._emit(CredentialsPresented(reaction.verify))
        elif reaction.done:
            self._authenticated = True
            self._advance_phase(TransitionTable.AUTHENTICATED)
            self._exchange = None
            if self.settings.role == "client":
                self._send_amqp_header()
            self._emit(Authenticated(reaction.mechanism, reaction.identity))

    def _sasl_failed(self, mechanism: str | None, reason: str, is_temporary: bool = False) -> None:
        self._emit(AuthenticationRejected(mechanism, reason, is_temporary))
        self._lose(
            spec.Error(condition=conditions.UNAUTHORIZED_ACCESS, description=reason),
            by_fault=True,
        )


__all__ = ["MAX_HELD", "OPEN_OCTETS", "Negotiation"]
