# SPDX-License-Identifier: Apache-2.0
"""Connections: transport, engine and the engine's user, with timers, TLS and back pressure.

`EngineProtocol` is the only place where a transport and an engine meet. Its steps per read::

    transport --dataReceived--> engine.receive_data(data, now, budget) --events--> user.events(list)
    transport <--write--------- engine.data_to_send()                   (once, after all of that)

*Shares*: the budget, and whether a read is acted on at once, come from the scheduler that all
connections have in common (`net.connection_scheduler`). The rest of a read waits for a later
turn of the reactor, in which `input_cost` is called again; until then the transport is not read, so
that at most one read waits. Input received before a connection was lost is processed before the
user hears of the loss.

*Output* produced outside a read (a store commit settles deliveries, a queue has found a consumer)
is announced with `EngineProtocol.schedule_flush` and written once per reactor turn, however many
calls there were. Output is offered to the socket at once (`net.direct_write`).

*TLS* is a layer between the transport and this protocol: at once (`ConnectionSecurity.implicit`) or
when the engine reports `TlsAgreed` (`net.tls_records`). OpenSSL gives out records of at most 16
KiB; they are collected so that one read of the transport stays one call of the engine. The engine
and its user are made when the facts about the peer are known: for implicit TLS after the handshake.

*Time*: one delayed call, which is only ever moved forward. A busy connection extends its idle
deadline with every read; the call then finds nothing to do when it fires and is scheduled again.

*Back pressure*: when the transport holds more than it wants, `paused` is True until
`IConnectionUser.writable`; users start nothing new meanwhile. Output in answer to input is bounded:
beyond `PumpLimits.output_bytes` the peer is not read until it has read its output, and a peer that
reads nothing for `PumpLimits.stall_seconds` is dropped.

*Faults*: an exception of the engine or the user is our bug. It is logged once with its traceback,
this connection is closed with ``amqp:internal-error``, all others continue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from cryptography import x509
from OpenSSL import SSL
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import (
    IDelayedCall,
    IHandshakeListener,
    IOpenSSLClientConnectionCreator,
    IOpenSSLServerConnectionCreator,
    IPushProducer,
    IReactorTime,
)
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute import conditions
from amqproute.conditions import Condition
from amqproute.errors import TlsError
from amqproute.interfaces import IConnectionPump, IConnectionUser
from amqproute.log_rate_limit import source_of
from amqproute.net import tls
from amqproute.net.client_address import unix_credentials, unmapped
from amqproute.net.connection_scheduler import ConnectionScheduler, SchedulerShare
from amqproute.net.direct_write import MUCH_BYTES, DirectWriter, is_fit, joined
from amqproute.net.tls_records import RecordFactory, RecordLayer
from amqproute.tracebacks import forget_frames
from amqproute.turn_scheduler import TurnScheduler
from amqproute.wire.engine import Engine, TlsAgreed, UpgradableEngine
from amqproute.wire.input_cost import MOST_UNHEARD, RECORD

__all__ = [
    "ConnectionOwner",
    "ConnectionResources",
    "ConnectionSecurity",
    "EngineProtocol",
    "IUpgradableUser",
    "Make",
    "PumpLimits",
    "TransportFacts",
]

log = Logger()


@dataclass(frozen=True, slots=True)
class TransportFacts:
    """Facts about the other end that the transport proves.

    Attributes:
        remote: the address for the log: ``127.0.0.1:4711``, ``[::1]:4711``, ``unix:uid=1000``.
        host: the IP address, or None on a unix socket; mapped IPv4 addresses in IPv4 notation.
        tls_version: the version as ``TLSv1.3``; None without TLS.
        certificate: the verified certificate that the peer has shown, or None.
        certificate_domains: the domains that it may speak for; empty without one.
        level: the security level, one of `amqproute.values.SECURITY_LEVELS`: ``none`` without
            TLS, ``tls`` if the peer has proved nothing, ``authenticated`` by an authority or a
            pin, ``dane`` by signed DNS.
        own_serial: the serial number of our certificate in use on this connection, or None.
        unix_uid: the user id at the other end of a unix socket (SO_PEERCRED), or None.
        unix_pid: its process id.
    """

    remote: str
    host: str | None = None
    tls_version: str | None = None
    certificate: x509.Certificate | None = None
    certificate_domains: frozenset[str] = frozenset()
    level: str = "none"
    own_serial: int | None = None
    unix_uid: int | None = None
    unix_pid: int | None = None

    @property
    def is_encrypted(self) -> bool:
        """Whether nobody can eavesdrop: TLS, or a socket of this machine."""
        return self.tls_version is not None or self.unix_uid is not None


class IUpgradableUser(IConnectionUser):
    """A user whose connection may begin in plain text and be upgraded to TLS.

    After a read, an expired deadline or any method of `IConnectionUser` the engine's output is
    flushed; anything else that produces output has to be followed by
    `EngineProtocol.schedule_flush`.
    """

    def secured(facts: TransportFacts) -> None:  # noqa: N805 - zope interfaces have no self
        """Handle the result of the TLS handshake of an upgrade; not called for implicit TLS.

        Called before the engine continues, and so before anything the peer sent under TLS. From
        then on `EngineProtocol.facts` has the same `TransportFacts`.
        """


Make = Callable[[TransportFacts], tuple[Engine, IConnectionUser]]
"""Makes the engine and its user once the facts are known."""


@dataclass(frozen=True, slots=True)
class PumpLimits:
    """Bounds of one connection.

    Attributes:
        tls_seconds: the seconds for the TLS handshake as a whole.
        close_seconds: time between our last octet and dropping a peer that does not close.
        stall_seconds: time for which a peer may read nothing of its output.
        output_bytes: output gathered behind a full transport at which reading stops.
    """

    tls_seconds: float = 10.0
    close_seconds: float = 5.0
    stall_seconds: float = 60.0
    output_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class ConnectionResources:
    """Bounds of a connection, and what it shares with others.

    Attributes:
        limits: its bounds.
        scheduler: shares the processor among connections; None for one of its own.
        turns: shares out steps of TLS handshakes; None: each step is taken at once.
    """

    limits: PumpLimits = PumpLimits()
    scheduler: ConnectionScheduler | None = None
    turns: TurnScheduler | None = None


@dataclass(frozen=True, slots=True)
class ConnectionSecurity:
    """TLS of a connection.

    Attributes:
        creator: makes the OpenSSL connection; None for no TLS at all.
        implicit: TLS from the first octet; otherwise when the engine reports `TlsAgreed`.
    """

    creator: IOpenSSLServerConnectionCreator | IOpenSSLClientConnectionCreator | None = None
    implicit: bool = False


class ConnectionOwner:
    """The opener or acceptor of connections, notified of their progress. This one ignores it."""

    def connection_ready(self, protocol: EngineProtocol) -> None:
        """The engine has been started."""

    def connection_secured(self, protocol: EngineProtocol) -> None:
        """Handle the end of a TLS handshake: the facts are complete."""

    def connection_lost(self, protocol: EngineProtocol, reason: Failure) -> None:
        """The connection is gone; called also if it never got to an engine."""

    def connection_identified(self, protocol: EngineProtocol, kind: str, user: str) -> str | None:
        """The peer has authenticated. See `IConnectionPump.identified`."""
        return None


_NO_OWNER: Final = ConnectionOwner()
_NO_RESOURCES: Final = ConnectionResources()

# Reasons for not reading the transport.
_FULL: Final = 1
"""It has not accepted all output."""
_HELD: Final = 2
"""Requested by the user."""
_REST: Final = 4
"""Input is left that waits for its turn."""
_ASKING: Final = 8
"""The peer's identity is being determined."""
_TURN: Final = 16
"""A step of its TLS handshake waits for its turn."""


@implementer(IConnectionPump, IHandshakeListener, IPushProducer)
class EngineProtocol(TwistedProtocol):
    """One connection; see the module docstring.

    Attributes:
        facts: about the peer; complete when the user is made, renewed by an upgrade.
        engine: the engine, once made.
        paused: whether the transport has enough for now.
        share: its use of the processor.
        is_gathering: records of one read of the TLS layer follow, until `read_ends`.
    """

    engine: Engine

    def __init__(
        self,
        make: Make,
        clock: IReactorTime,
        *,
        security: ConnectionSecurity | None = None,
        is_client: bool = False,
        resources: ConnectionResources = _NO_RESOURCES,
        owner: ConnectionOwner = _NO_OWNER,
        client: tuple[str, int] | None = None,
    ) -> None:
        """Prepare; everything begins with `connectionMade`.

        Args:
            make: called once, when the transport is ready for the engine.
            clock: the reactor, or a pretend one.
            security: whether and when there is TLS.
            is_client: whether this is the client's side of TLS.
            resources: its bounds, and what it shares with other connections.
            owner: notified of its progress.
            client: address and port of the other end if a load balancer has named them.
        """
        self._make = make
        self._client = client
        self._owner = owner
        self._clock = clock
        self._seconds = clock.seconds
        self._security = security or ConnectionSecurity()
        self._is_client = is_client
        self._limits = resources.limits
        self._user: IConnectionUser | None = None
        self._user_events: Callable[[Sequence[object]], None] = _no_user
        self.facts = TransportFacts("unknown")
        self.paused = False
        self._is_over = False  # nothing is written any more
        self._unheard = 0  # octets received after that
        self._is_busy = False  # a flush follows anyway
        self._unread_for = 0  # why the transport is not read; 0 if it is
        self.is_gathering = False
        self._gathered: list[bytes] = []
        self._pending: list[bytes] = []  # not with the engine yet
        self._scheduler = resources.scheduler or ConnectionScheduler(clock)
        self.share = SchedulerShare()
        self._loss: Failure | None = None  # reported to the user when all input is processed
        self._behind = 0  # octets written since the transport was full
        self._flush_call: IDelayedCall | None = None
        self._deadline_call: IDelayedCall | None = None
        self._deadline_at = 0.0
        self._guard_call: IDelayedCall | None = None  # TLS handshake, then stall, then close
        self._outlet: DirectWriter | None = None  # where the transport is a socket
        self._tls: Any = None  # a RecordLayer; Twisted has no types for it
        self._is_decrypting = False
        self._charged_records = 0
        self._turns = resources.turns
        self._unshaken: list[bytes] = []  # of the handshake, waiting for its turn
        self._verification: tls.Verification | None = None
        self._is_undecided = False  # the peer's identity, after the handshake: its input waits
        self._concluding: Deferred[None] | None = None  # look-up of the peer's identity
        self._is_secured = False
        self._failure: TlsError | None = None

    def __repr__(self) -> str:
        state = "over" if self._is_over else "paused" if self.paused else "open"
        return f"<EngineProtocol {self.facts.remote} {self.facts.tls_version or 'plain'} {state}>"

    # Called by the transport.

    def connectionMade(self) -> None:
        """Collect facts about the peer; start TLS or the engine."""
        transport = self._transport
        if is_fit(transport):
            self._outlet = DirectWriter(transport)
        self.facts = _facts_of(transport, self._client)
        if self.facts.host and not self._is_client:
            # Until it has logged in it shares with all others of its network.
            party = self._scheduler.party(f"address {source_of(self.facts.host)}")
            self._scheduler.move(self, party)
        _tune(transport)
        transport.registerProducer(self, True)
        if self._security.implicit:
            self._start_tls()
        else:
            self._start_engine()

    def dataReceived(self, data: bytes) -> None:
        """Pass input to the engine, its events to the user, and write the output."""
        if self._is_over:
            self._unheard += len(data)
            if self._unheard > MOST_UNHEARD:
                self._drop()
            return
        if self.is_gathering or self._is_undecided:
            self._gathered.append(data)
            return
        outlet = self._outlet
        if outlet is not None and (len(data) >= MUCH_BYTES) is not outlet.reads_much:
            outlet.read_much(not outlet.reads_much)
        self._pending.append(data)
        if self._is_decrypting or self.share.is_waiting or self._unread_for & _REST:
            return
        if self._scheduler.may_work(self):
            self._scheduler.serve(self)
        else:
            self._stop_reading(_REST)
            self._scheduler.wait(self)

    # Called by the scheduler.

    def work(self, budget: int) -> int:
        """See `amqproute.net.connection_scheduler.ScheduledWork`."""
        layer = self._tls
        decrypted = 0 if layer is None else self._decrypt(layer, budget)
        if self._is_over or self._user is None:
            self._take_rest()
            return decrypted
        engine = self.engine
        before = engine.work
        budget = max(budget - decrypted, budget // 4)
        data = b""
        if self._pending and not engine.has_input:
            pending = self._pending
            data = pending[0] if len(pending) == 1 else b"".join(pending)
            self._pending = []
        self._is_busy = True
        try:
            events = engine.receive_data(data, self._seconds(), budget)
            if events:
                if type(events[-1]) is TlsAgreed:
                    self._agreed(events)
                else:
                    self._user_events(events)
        except Exception:
            self._fault("reading")
        self._is_busy = False
        self._flush_now()
        if (
            self._unread_for
            or self._loss is not None
            or self._pending
            or engine.has_input
            or (layer is not None and layer.is_behind)
        ):
            self._take_rest()
        return decrypted + engine.work - before

    def _decrypt(self, layer: Any, budget: int) -> int:
        """Decrypt more records if no other input is left; return the units of all so far."""
        if layer.is_behind and not self._pending and (self._is_over or not self.engine.has_input):
            self._is_decrypting = True
            layer.go_on(max(1, budget // RECORD))
            self._is_decrypting = False
        records: int = layer.records
        units = RECORD * (records - self._charged_records)
        self._charged_records = records
        return units

    def _take_rest(self) -> None:
        """Resume reading if all input is processed; else leave the rest to a later turn."""
        if not self._has_rest:
            self._read_on(_REST)
            if self._loss is not None:
                self._conclude(self._loss)
        elif not self._unread_for & _REST:
            if self._outlet is not None and self._scheduler.is_crowded:
                self._outlet.read_much(False)
            self._stop_reading(_REST)

    @property
    def has_work(self) -> bool:
        """See `amqproute.net.connection_scheduler.ScheduledWork`."""
        return self._unread_for == _REST

    @property
    def _has_rest(self) -> bool:
        is_behind = self._tls is not None and self._is_secured and self._tls.is_behind
        if self._is_over:
            return is_behind
        if self._user is None:
            return False
        return bool(self._pending) or is_behind or self.engine.has_input

    def _go_on(self) -> None:
        """Schedule processing of the rest of the input, if there is any."""
        if not self._unread_for & ~_REST and self._has_rest:
            self._stop_reading(_REST)
            self._scheduler.wait(self)

    def _stop_reading(self, reason: int) -> None:
        """Stop reading the transport for this reason."""
        if not self._unread_for and self._loss is None:
            self._transport.pauseProducing()
        self._unread_for |= reason

    def _read_on(self, reason: int) -> None:
        """Resume reading the transport unless there is another reason not to."""
        if self._unread_for & reason:
            self._unread_for &= ~reason
            if not self._unread_for and self._loss is None:
                self._transport.resumeProducing()

    def read_ends(self) -> None:
        """Process the records of one read of the TLS layer."""
        self.is_gathering = False
        gathered = self._gathered
        if gathered and not self._is_undecided:
            self._gathered = []
            self.dataReceived(gathered[0] if len(gathered) == 1 else b"".join(gathered))
        if not self._is_decrypting and self._has_rest:
            self._go_on()

    def handshakeCompleted(self) -> None:
        """Continue under TLS: the peer has proved what it had to."""
        if self._is_secured or self._is_over or self._tls is None:
            return
        if self._verification is not None and not self._verification.is_proved:
            self._failure = TlsError("tls.name", "the peer's name was not verified")
            self.abort()
            return
        self._is_undecided = True
        if self._turns is None:
            self._decide()
            return
        # A step of its own: the one before it has verified a chain of certificates.
        self._stop_reading(_TURN)
        self._turns.ask("tls", source_of(self.facts.host or ""), self._decide)

    def _decide(self) -> None:
        """Start determining the peer's identity."""
        if self._is_over or self._tls is None:
            return
        self._read_on(_TURN)
        verification = self._verification
        concluding = None if verification is None else verification.conclude(self.facts.host or "")
        if concluding is None:
            self._decided()
            return
        # It counts as part of the handshake: the guard stays active.
        self._concluding = concluding
        self._stop_reading(_ASKING)
        concluding.addCallbacks(
            lambda _: self._concluded(), lambda failure: failure.trap(CancelledError)
        )

    def _concluded(self) -> None:
        """Note that the look-up of the peer's identity has ended."""
        self._concluding = None
        if self._is_over:
            return
        self._read_on(_ASKING)
        self._decided()

    def _decided(self) -> None:
        """Continue when the peer's identity is known."""
        self._is_undecided = False
        self._secured()
        if not self.is_gathering:
            self.read_ends()

    def _secured(self) -> None:
        """Record the result of the handshake, and let the engine continue."""
        verification = self._verification
        if verification is not None and verification.failure is not None:
            self._failure = verification.failure
            self.abort()
            return
        self._is_secured = True
        self._cancel_guard()
        connection = self._tls.getHandle()
        self.facts = replace(
            self.facts,
            tls_version=connection.get_protocol_version_name(),
            certificate=tls.peer_certificate(self._tls),
            certificate_domains=frozenset() if verification is None else verification.domains,
            level="tls" if verification is None else verification.level,
            own_serial=None if verification is None else verification.own_serial,
        )
        self._owner.connection_secured(self)
        if self._security.implicit:
            self._start_engine()
        else:
            self._continue_engine()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Report the loss of the transport to the engine, then to the user, behind all input."""
        if self._has_rest:
            self._loss = reason
            self.paused = False
            self._cancel_guard()
            self._unread_for &= ~_FULL
            self._go_on()
        else:
            self._conclude(reason)

    def _conclude(self, reason: Failure) -> None:
        self._scheduler.forget(self)
        self._loss = None
        self._pending.clear()
        self._unshaken.clear()
        self._is_over = True
        self.paused = False
        self._cancel_guard()
        concluding, self._concluding = self._concluding, None
        if concluding is not None:
            concluding.cancel()
        for call in (self._flush_call, self._deadline_call):
            if call is not None and call.active():
                call.cancel()
        self._flush_call = self._deadline_call = None
        reason = self._explain(reason)
        user, self._user = self._user, None
        if user is not None:
            try:
                events = self.engine.receive_eof(self._seconds())
                if events:
                    user.events(events)
            except Exception:
                log.failure("connection {connection}: its end was not taken well", connection=self)
            try:
                user.lost(reason)
            except Exception:
                log.failure("connection {connection}: its end was not taken well", connection=self)
        self._user_events = _no_user
        self._tls = None
        self._verification = None
        self._failure = None
        forget_frames(reason.value)
        self._owner.connection_lost(self, reason)

    def pauseProducing(self) -> None:
        """Note that the transport's buffer is full."""
        if self.paused or self._is_over:
            return
        self.paused = True
        self._behind = 0
        if self._guard_call is None:
            self._guard_call = self._clock.callLater(self._limits.stall_seconds, self._stalled)
        if self._user is not None:
            try:
                self._user.paused()
            except Exception:
                self._fault("writing")

    def resumeProducing(self) -> None:
        """Resume writing, and reading if that was stopped."""
        if not self.paused or self._is_over:
            return
        self.paused = False
        self._cancel_guard()
        self._read_on(_FULL)
        if self._user is None:
            return
        self._is_busy = True
        try:
            self._user.writable()
        except Exception:
            self._fault("writing")
        self._is_busy = False
        self._flush_now()
        self._go_on()

    def stopProducing(self) -> None:
        """Do nothing: `connectionLost` follows."""

    # Called by the user.

    @property
    def has_engine(self) -> bool:
        """Whether there is an engine: with implicit TLS only after the handshake."""
        return hasattr(self, "engine")

    @property
    def is_over(self) -> bool:
        """Whether nothing is written any more."""
        return self._is_over

    def schedule_flush(self) -> None:
        """Have the engine's output written in this reactor turn; as often as you like."""
        if self._flush_call is None and not self._is_busy and not self._is_over:
            self._flush_call = self._clock.callLater(0, self._flush_turn)

    def flush(self) -> None:
        """Write the engine's output now, unless that happens at the end of this call anyway."""
        if not self._is_busy:
            self._flush_now()

    def hold_reading(self) -> None:
        """Take nothing more from the transport until `release_reading`."""
        if not self._is_over:
            self._stop_reading(_HELD)

    def release_reading(self) -> None:
        """Read on."""
        if not self._is_over:
            self._read_on(_HELD)
            self._go_on()

    def identified(self, kind: str, user: str) -> str | None:
        """Note that the peer is through its handshake.

        Args:
            kind: the kind of its `Principal`.
            user: the principal, as access rules write it.

        Returns:
            The exceeded share of connections, as text; None if there is none.
        """
        if user and kind != "anonymous":
            self._scheduler.move(self, self._scheduler.party(f"{kind} {user}"))
        return self._owner.connection_identified(self, kind, user)

    def close_with(self, condition: Condition, words: str) -> None:
        """See `IConnectionPump.close_with`."""
        self.engine.close_with(condition, words)
        self.schedule_flush()

    def hand_over(self, engine: Engine, user: IConnectionUser, octets: bytes, since: float) -> None:
        """Continue with another engine and another user, when its turn comes.

        Args:
            engine: not started yet.
            user: the user of that engine.
            octets: the input of the present engine so far, for the other one.
            since: when the connection began, by the engine's clock.
        """
        self._adopt(engine, user, since)
        if octets:
            self._pending.insert(0, octets)
        self._go_on()

    def abort(self) -> None:
        """Drop the connection at once, with unwritten output."""
        self._is_over = True
        if self._loss is not None:
            self._conclude(self._loss)
        else:
            self._transport.abortConnection()

    # Engine.

    def _start_engine(self) -> None:
        self._is_busy = True
        try:
            engine, user = self._make(self.facts)
            self._adopt(engine, user, self._seconds())
            self._owner.connection_ready(self)
        except Exception:
            self._fault("starting")
        self._is_busy = False
        self._flush_now()

    def _adopt(self, engine: Engine, user: IConnectionUser, now: float) -> None:
        self.engine = engine
        self._user = user
        self._user_events = user.events
        engine.start(now)
        user.connected(self)

    def _continue_engine(self) -> None:
        """Let the engine continue after an upgrade to TLS."""
        self._is_busy = True
        try:
            if IUpgradableUser.providedBy(self._user):
                self._user.secured(self.facts)
            engine = self.engine
            assert isinstance(engine, UpgradableEngine)
            events = engine.tls_established(self._seconds())
            if events:
                self._user_events(events)
        except Exception:
            self._fault("continuing under TLS")
        self._is_busy = False
        self._flush_now()

    def _agreed(self, events: Sequence[object]) -> None:
        """Dispatch the events of a read that ends with `TlsAgreed`, and start TLS."""
        events = events[:-1]
        if events:
            self._user_events(events)
        engine = self.engine
        assert isinstance(engine, UpgradableEngine)
        self._write(engine.data_to_send())
        self._start_tls()
        # A client may send the start of its handshake right behind its header.
        surplus = engine.take_surplus()
        if surplus and self._tls is not None:
            self._tls.dataReceived(surplus)

    def _flush_turn(self) -> None:
        self._flush_call = None
        self._flush_now()
        # An answer of the user's may have let the engine read on.
        layer = self._tls
        if self._pending or self.engine.has_input or (layer is not None and layer.is_behind):
            self._go_on()

    def _flush_now(self) -> None:
        if self._is_over or self._user is None:
            return
        try:
            engine = self.engine
            parts = engine.data_to_send()
            if self._loss is not None:
                return
            if parts:
                self._write(parts)
            if engine.is_closed:
                self._finish()
                return
            deadline = engine.next_deadline()
        except Exception:
            self._fault("writing")
            return
        if deadline is not None and (self._deadline_call is None or deadline < self._deadline_at):
            self._set_deadline(deadline)

    def _write(self, parts: list[bytes]) -> None:
        pieces = parts if len(parts) == 1 else joined(parts)
        if self.paused:
            self._behind += sum(map(len, pieces))
            if self._behind > self._limits.output_bytes:
                self._stop_reading(_FULL)
        outlet = self._outlet
        if outlet is None:
            for piece in pieces:
                self._transport.write(piece)
            return
        if self._tls is None:
            outlet.send(pieces)
            return
        gathered: list[bytes] = []
        outlet.gathered = gathered
        for piece in pieces:
            self._tls.write(piece)
        outlet.gathered = None
        if gathered:
            outlet.send(gathered)

    # Time.

    def _set_deadline(self, deadline: float) -> None:
        """Schedule `_look` for `deadline`; only called to make it earlier."""
        delay = max(0.0, deadline - self._seconds())
        self._deadline_at = deadline
        if self._deadline_call is not None:
            self._deadline_call.reset(delay)
        else:
            self._deadline_call = self._clock.callLater(delay, self._look)

    def _look(self) -> None:
        """Check whether the deadline has come, or was moved meanwhile."""
        self._deadline_call = None
        if self._is_over or self._user is None:
            return
        now = self._seconds()
        self._is_busy = True
        try:
            deadline = self.engine.next_deadline()
            if deadline is not None and deadline <= now:
                events = self.engine.tick(now)
                if events:
                    self._user_events(events)
        except Exception:
            self._fault("keeping time")
        self._is_busy = False
        self._flush_now()

    def _stalled(self) -> None:
        self._guard_call = None
        log.warn(
            "{peer} has read nothing for {seconds:.0f} s; its connection is dropped",
            peer=self.facts.remote,
            seconds=self._limits.stall_seconds,
        )
        self.abort()

    def _tls_late(self) -> None:
        self._guard_call = None
        self._failure = TlsError(
            "tls.handshake",
            f"the TLS handshake was not finished within {self._limits.tls_seconds:.0f} s",
        )
        self.abort()

    def _cancel_guard(self) -> None:
        call, self._guard_call = self._guard_call, None
        if call is not None and call.active():
            call.cancel()

    # TLS.

    def _start_tls(self) -> None:
        """Put a TLS layer between the transport and this protocol."""
        creator = self._security.creator
        if creator is None:
            self._failure = TlsError("tls.handshake", "TLS was agreed on but is not configured")
            self._fault_words("TLS was agreed on but is not configured")
            return
        transport = self._transport
        transport.unregisterProducer()
        self.paused = False
        self._cancel_guard()
        self._guard_call = self._clock.callLater(self._limits.tls_seconds, self._tls_late)
        factory = RecordFactory(creator, self._is_client, cast(Any, None), self._clock)
        layer: Any = RecordLayer(factory, self, False)
        self._tls = layer
        transport.protocol = layer
        self.transport = layer
        layer.outlet = self._outlet
        if self._turns is not None:
            layer.before_handshake = self._wait_for_handshake
        layer.makeConnection(transport)
        if self._tls is not layer:  # lost in the middle of it
            return
        self._verification = layer.verification
        layer.registerProducer(self, True)

    def _wait_for_handshake(self, data: bytes) -> None:
        """Process octets of the handshake when it is their turn."""
        assert self._turns is not None
        self._unshaken.append(data)
        if len(self._unshaken) == 1:
            self._stop_reading(_TURN)
            self._turns.ask("tls", source_of(self.facts.host or ""), self._take_handshake)

    def _take_handshake(self) -> None:
        data, self._unshaken = b"".join(self._unshaken), []
        layer = self._tls
        if self._is_over or layer is None:
            return
        self._read_on(_TURN)
        layer.decrypt(data)

    def _explain(self, reason: Failure) -> Failure:
        """Convert the end of a connection whose TLS failed into a `TlsError`."""
        if self._failure is not None:
            return _failure(self._failure)
        if self._tls is None or (self._is_secured and not isinstance(reason.value, SSL.Error)):
            return reason
        connection = self._tls.getHandle()
        error = tls.translate(reason, self._verification, connection, is_client=self._is_client)
        error.__cause__ = reason.value
        return _failure(error)

    # The end.

    def _finish(self) -> None:
        """Close in order: write all output, then wait for the peer for a bounded time."""
        self._is_over = True
        self.paused = False
        transport = self._transport
        self._cancel_guard()
        self._guard_call = self._clock.callLater(self._limits.close_seconds, self._drop)
        self._scheduler.forget(self)
        self._pending.clear()
        self._read_on(self._unread_for)
        self._go_on()  # the peer's end may be behind what is not decrypted
        transport.unregisterProducer()  # or the transport would wait for more from us
        transport.loseConnection()

    def _drop(self) -> None:
        self._cancel_guard()
        self._transport.abortConnection()

    def _fault(self, doing: str) -> None:
        """Log the exception being handled and close this connection."""
        log.failure(
            "connection {connection} failed while {doing}; it is closed",
            connection=self,
            doing=doing,
        )
        self._fault_words("internal error; see the log of this broker")

    def _fault_words(self, words: str) -> None:
        if self._is_over:
            return
        try:
            engine = self.engine
            engine.close_with(conditions.INTERNAL_ERROR, words)
            parts = engine.data_to_send()
            if parts:
                self._write(parts)
            self._finish()
        except Exception as error:
            # The engine itself is broken, or there is none yet: no close can be sent.
            log.debug("no close could be sent: {error}", error=error)
            self.abort()

    @property
    def _transport(self) -> Any:
        return self.transport


def _no_user(events: Sequence[object]) -> None:
    """Stand in for a user that does not exist yet, or any more: nothing reads then."""
    raise AssertionError(f"events without a user: {events!r}")


def _failure(error: TlsError) -> Failure:
    return Failure(error)  # type: ignore[no-untyped-call] # Twisted's


def _facts_of(transport: Any, client: tuple[str, int] | None) -> TransportFacts:
    peer = transport.getPeer()
    host, port = client or (getattr(peer, "host", None), getattr(peer, "port", 0))
    if host is not None:
        host = unmapped(host)
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return TransportFacts(shown, host=host)
    credentials = unix_credentials(transport)
    if credentials is None:
        return TransportFacts(str(peer))
    pid, uid = credentials
    return TransportFacts(f"unix:uid={uid}", unix_uid=uid, unix_pid=pid)


def _tune(transport: Any) -> None:
    """Send small frames at once, and notice peers that vanished even without heartbeats."""
    for name in ("setTcpNoDelay", "setTcpKeepAlive"):
        setter = getattr(transport, name, None)
        if setter is not None:
            setter(True)
