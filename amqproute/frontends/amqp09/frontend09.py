# SPDX-License-Identifier: Apache-2.0
"""The frontend of AMQP 0-9 and 0-9-1: events of one accepted connection to verbs of the broker.

`Frontend09` has what concerns the connection as a whole: log-in, virtual host, its end, and when it
is not read. What happens on a channel is `channel_frontend.ChannelFrontend`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from zope.interface import implementer

from amqproute.auth.realm import Authenticator, outside_principal
from amqproute.broker.partial_delivery_eviction import PartialDelivery
from amqproute.errors import ResourceLimitExceeded, UnauthorizedAccess
from amqproute.frontends.amqp09.access_realms import ConnectionTickets
from amqproute.frontends.amqp09.amqp09_context import Amqp09Context
from amqproute.frontends.amqp09.channel_frontend import ChannelFrontend
from amqproute.frontends.amqp09.client_description import client_description
from amqproute.frontends.amqp09.delivery_methods import give_back
from amqproute.frontends.amqp09.large_content_output import LargeContentOutput
from amqproute.frontends.amqp09.log_in_exchange import LogInExchange, LogInRefused
from amqproute.frontends.amqp09.prefetch import PrefetchWindow
from amqproute.frontends.amqp09.reply_texts import reply_text
from amqproute.frontends.amqp09.stream_window import StreamWindow
from amqproute.frontends.common.client_connection import ClientConnection
from amqproute.frontends.common.node_endpoint import NodeEndpoint
from amqproute.frontends.common.partial_deliveries import HEAD_BYTES
from amqproute.frontends.common.peer_error_log import short
from amqproute.interfaces import IConnectionUser
from amqproute.net.pump import TransportFacts
from amqproute.wire.amqp09 import protocol_events as ev
from amqproute.wire.amqp09.channel import Channel, ChannelState
from amqproute.wire.amqp09.connection09 import Connection09
from amqproute.wire.amqp09.methods import ConnectionOpen, ConnectionUpdateSecret
from amqproute.wire.amqp09.replies import ReplyCode
from amqproute.wire.amqp09.versions import ProtocolVersion
from amqproute.wire.sasl_mechanisms import (
    Credentials,
    MechanismChallenge,
    OutsideIdentity,
    Verification,
)

__all__ = ["Frontend09"]

_NEW_SECRET = object()
"""Reason for throttling a connection while a new secret is verified."""
NO_PLAIN_WORDS = (
    ". Most clients of AMQP 0-9-1 log in with PLAIN: a listener for them has it in `mechanisms` "
    "and `tls: implicit`; see `amqproute check`"
)
REFUSED_WORDS = "Login was refused using authentication mechanism {mechanism}."
TEMPORARY_WORDS = " The credentials could not be verified now; try again later."


@implementer(IConnectionUser)
class Frontend09(ClientConnection):
    """One accepted connection.

    Args:
        engine: the engine in the server role.
        context: what all connections of these versions share.
        authenticator: the authenticator of the listener that it came in by.
        facts: what the transport proves.
    """

    log = Logger()

    def __init__(
        self,
        engine: Connection09,
        context: Amqp09Context,
        authenticator: Authenticator,
        facts: TransportFacts,
    ) -> None:
        super().__init__(context.common, facts, authenticator)
        self.engine = engine
        self.amqp09 = context
        self._authenticator = authenticator
        self._log_in: LogInExchange | None = None
        self._credentials: Credentials | None = None
        self._new_secret: Deferred[Verification] | None = None
        self._is_open = False
        self._is_refused = False
        self.channels: dict[int, ChannelFrontend] = {}
        self.prefetch = PrefetchWindow()
        self.origin_name = f"amqp09:{next(context.serial_numbers)}"
        self._throttled: set[Hashable] = set()
        self._is_blocked = False

    def __repr__(self) -> str:
        state = "lost" if self.is_lost else f"channels={len(self.channels)}"
        return f"<Frontend09 {self.facts.remote} {self.principal} {state}>"

    @property
    def version(self) -> ProtocolVersion:
        """What is spoken."""
        return self.engine.version

    @property
    def journal_protocol(self) -> str:
        """See `ClientConnection.journal_protocol`."""
        return f"AMQP {self.engine.version.value}"

    @property
    def client_capabilities(self) -> frozenset[str]:
        """Extensions that the client understands."""
        return self.engine.peer_capabilities

    @cached_property
    def content_output(self) -> LargeContentOutput:
        """See `ChannelHost.content_output`."""
        return LargeContentOutput(self, self.context.broker.clock)

    @cached_property
    def file_window(self) -> PrefetchWindow:
        """See `ChannelHost.file_window`."""
        return PrefetchWindow()

    @cached_property
    def message_window(self) -> PrefetchWindow:
        """See `ChannelHost.message_window`."""
        return PrefetchWindow()

    @cached_property
    def stream_window(self) -> StreamWindow:
        """See `ChannelHost.stream_window`."""
        return StreamWindow()

    @cached_property
    def tickets(self) -> ConnectionTickets:
        """See `ChannelHost.tickets`."""
        return ConnectionTickets(self.amqp09.realms)

    @cached_property
    def _handlers(self) -> dict[type, Callable[..., None]]:
        return {
            ev.MechanismChosen: self._mechanism_chosen,
            ev.ChallengeAnswered: self._challenge_answered,
            ev.VirtualHostAsked: self._virtual_host_asked,
            ev.SecretReplaced: self._secret_replaced,
            ev.ChannelAsked: self._channel_asked,
            ev.ChannelEnded: self._channel_ended,
            ev.ChannelCloseAnswered: _nothing,
            ev.ContentsHeld: self._contents_held,
            ev.ConnectionEnded: self._connection_ended,
        }

    # -- IConnectionUser -------------------------------------------------------------------------

    def events(self, events: Sequence[object]) -> None:
        """See `IConnectionUser.events`: one batch for all of them."""
        handlers = self._handlers
        with self.event_batch:
            for event in events:
                handler = handlers.get(type(event))
                if handler is not None:
                    handler(event)
                    continue
                channel = self.channels.get(event.channel.number)  # type: ignore[attr-defined]
                if channel is not None:
                    channel.take(event)
                elif isinstance(event, ev.DeliveriesSettled):
                    give_back(event)  # it came behind what has closed its channel

    def writable(self) -> None:
        """See `IConnectionUser.writable`."""
        super().writable()
        self.content_output.go()

    def end_endpoints(self) -> None:
        """See `ClientConnection.end_endpoints`."""
        if self._log_in is not None:
            self._log_in.cancel()
            self._log_in = None
        if self._new_secret is not None:
            self._new_secret.cancel()
            self._new_secret = None
        self._end_channels()

    def _end_channels(self) -> None:
        while self.channels:
            self.channels.popitem()[1].end()
        self.amqp09.queues.of(self.principal.host).connection_lost(self)

    # -- log-in ----------------------------------------------------------------------------------

    def _mechanism_chosen(self, event: ev.MechanismChosen) -> None:
        self._log_in = LogInExchange(
            self._authenticator,
            self.log_in_facts(),
            event.mechanism,
            self._log_in_decided,
            lambda failure: self.broken(failure, "verifying a password"),
        )
        self._log_in.respond(event.response)

    def _challenge_answered(self, event: ev.ChallengeAnswered) -> None:
        assert self._log_in is not None
        self._log_in.respond(event.response)

    def _log_in_decided(self, step: MechanismChallenge | Credentials | LogInRefused) -> None:
        if self._pump is None:
            return
        if isinstance(step, MechanismChallenge):
            self.engine.challenge(step.data)
        elif isinstance(step, LogInRefused):
            self._log_in = None
            self._refuse_log_in(step)
        else:
            self._log_in = None
            self._credentials = step
            self.principal = self._authenticator.principal(step)
            self.expire_at(None if step.outside is None else step.outside.expires)
            self.engine.authenticated()
        # What the client has written ahead has waited for this.
        if self.engine.has_input and not self.event_batch.is_in_progress:
            self.events(self.engine.receive_data(b"", self.context.seconds()))
        self.flush()

    def _refuse_log_in(self, refused: LogInRefused) -> None:
        self._is_refused = True
        self.seen("sasl", "sasl.refused", f"{refused.mechanism}: {refused.reason}")
        if not refused.is_logged:
            self._log_unauthenticated(
                "sasl",
                "{connection} refused: {mechanism} authentication failed: {reason}{more}",
                mechanism=refused.mechanism,
                reason=refused.reason,
            )
        code = ReplyCode.ACCESS_REFUSED
        words = REFUSED_WORDS.format(mechanism=refused.mechanism)
        if refused.is_temporary:
            words += TEMPORARY_WORDS
        self.engine.refuse_authentication(reply_text(code, words))

    def _secret_replaced(self, event: ev.SecretReplaced) -> None:
        """Verify a new secret, which takes its turn among the log-ins; nothing is read meanwhile.

        It has to be one that the client could log in with now: that of the users file or the
        directory, or another token of the same user, with which the connection goes on until that
        expires.
        """
        assert self._credentials is not None
        if self._new_secret is not None:
            words = "the secret before it is being verified still"
            self._refuse_secret(ReplyCode.COMMAND_INVALID, words)
            return
        verifying = self._authenticator.verify_secret(
            self._credentials, event.secret, self.log_in_facts()
        )
        if verifying is None:
            words = f"log-ins by {self._credentials.mechanism} have no secret to be updated"
            self._refuse_secret(ReplyCode.NOT_ALLOWED, words)
            return
        self.throttle(_NEW_SECRET)
        self._new_secret = verifying
        verifying.addCallbacks(
            self._secret_verified,
            lambda failure: failure.trap(CancelledError),
            (short(event.reason),),
        )
        verifying.addErrback(self.broken, "verifying a secret")

    def _secret_verified(self, result: Verification, reason: str) -> None:
        self._new_secret = None
        if self._pump is None:
            return
        if isinstance(result, OutsideIdentity):
            self._renew(result)
        if result:
            self.log.info(
                "{connection} ({principal}) has proved its secret again: {reason}",
                reason=reason or "no reason given",
                **self._log_fields(),
            )
            self.engine.update_secret_ok()
        elif result is None:
            words = "the new secret cannot be verified now"
            self._refuse_secret(ReplyCode.RESOURCE_ERROR, words)
        else:
            self._refuse_secret(ReplyCode.NOT_ALLOWED, "the new secret is wrong")
        self.unthrottle(_NEW_SECRET)
        self.flush()

    def _renew(self, identity: OutsideIdentity) -> None:
        """Go on with the rights and the end of a newer log-in of the same user."""
        self.expire_at(identity.expires)
        self.renew(outside_principal(identity))

    def _refuse_secret(self, code: ReplyCode, words: str) -> None:
        self._is_refused = True
        self.log.warn(
            "{connection} ({principal}) ended by us: update-secret refused: {words}",
            words=words,
            **self._log_fields(),
        )
        self.engine.close(code, reply_text(code, words), ConnectionUpdateSecret())
        self.flush()

    # -- connection ------------------------------------------------------------------------------

    def _virtual_host_asked(self, event: ev.VirtualHostAsked) -> None:
        method = ConnectionOpen(virtual_host=event.virtual_host)
        is_0_9 = self.version is ProtocolVersion.V0_9
        virtual_host = self.context.hosts.named(event.virtual_host)
        if virtual_host is None:
            words = f"there is no virtual host {short(event.virtual_host)!r}"
            code = ReplyCode.INVALID_PATH if is_0_9 else ReplyCode.NOT_ALLOWED
            self._refuse_open(code, words, method)
            return
        try:
            self.enter(virtual_host)
            self.admit_principal()
        except UnauthorizedAccess as error:
            code = ReplyCode.ACCESS_REFUSED if is_0_9 else ReplyCode.NOT_ALLOWED
            self._refuse_open(code, error.description, method)
            return
        except ResourceLimitExceeded as error:
            self._refuse_open(ReplyCode.NOT_ALLOWED, error.description, method)
            return
        self._is_open = True
        self.engine.open_ok()
        properties = self.engine.peer_properties
        self.log.info(
            "{connection} opened by {principal}{host}, AMQP {version}, {product}{tls}",
            connection=self.facts.remote,
            principal=str(self.principal),
            host=self.host_in_words,
            version=self.engine.version.value,
            product=short(" ".join(str(properties.get(key, "")) for key in ("product", "version"))),
            tls=f", {self.facts.tls_version}" if self.facts.tls_version else "",
        )

    def _refuse_open(self, code: ReplyCode, words: str, method: ConnectionOpen) -> None:
        self._is_refused = True
        self.seen("open", code.name.lower(), words)
        self._log_unauthenticated(
            "open",
            "{connection} ({principal}) refused: {words}{more}",
            principal=str(self.principal),
            words=words,
        )
        self.engine.close(code, reply_text(code, words), method)
        self.flush()

    def _connection_ended(self, event: ev.ConnectionEnded) -> None:
        self._end_channels()
        if event.answer_due:
            self.engine.close_ok()
        if self._is_refused:
            return  # the log has the reason
        if not self._is_open:
            self._log_early_end(event)
        elif event.clean and event.code in (0, ReplyCode.REPLY_SUCCESS):
            level = self.log.debug if self.is_stopping else self.log.info
            level("{connection} closed", **self._log_fields())
        else:
            level = self.log.info if self.is_stopping else self.log.warn
            level(
                "{connection} ({principal}) ended{why}: {words}",
                connection=self.facts.remote,
                principal=str(self.principal),
                why=" by us for its fault" if event.violation is not None else "",
                words=f"{event.code} {short(event.text)}" if event.code else event.text,
            )

    def _log_early_end(self, event: ev.ConnectionEnded) -> None:
        """Log who left, or was dropped, before its connection was open."""
        mechanisms = self.engine.settings.mechanisms
        words = f"{short(event.text)}; mechanisms offered: {' '.join(mechanisms) or 'none'}"
        self.seen("open", event.code, words)
        if "PLAIN" not in mechanisms:
            words += NO_PLAIN_WORDS
        self._log_unauthenticated(
            f"closed {event.code}" if event.violation is not None else "left",
            "{connection} ({principal}) ended before it was open: {words}{more}",
            principal=str(self.principal),
            words=words,
        )

    def fail(self, code: ReplyCode, words: str) -> None:
        """Close the connection for a reason of ours."""
        if self._pump is not None:
            self.engine.close(code, reply_text(code, words))
            self.flush()

    # -- channels --------------------------------------------------------------------------------

    def _channel_asked(self, event: ev.ChannelAsked) -> None:
        channel = event.channel
        channel.open_ok()
        if channel.is_open:
            self.channels[channel.number] = ChannelFrontend(self, self, channel)

    def _channel_ended(self, event: ev.ChannelEnded) -> None:
        channel = self.channels.get(event.channel.number)
        if channel is not None and channel.channel is event.channel:
            del self.channels[event.channel.number]
            channel.end()
        # What came behind the close may have ended the whole connection.
        if event.answer_due and event.channel.state is ChannelState.ANSWER_DUE:
            event.channel.close_ok()
        if event.violation is not None:
            self.error_log.add(
                "{connection} ({principal}) channel {channel} closed for its fault: {code} {words}",
                channel=event.channel.number,
                code=event.code,
                words=short(event.text),
            )

    def forget_channel(self, channel: object) -> None:
        """See `ChannelHost.forget_channel`."""
        assert isinstance(channel, ChannelFrontend)
        number = channel.channel.number
        if self.channels.get(number) is channel:
            del self.channels[number]

    # -- back pressure ---------------------------------------------------------------------------

    def throttle(self, who: Hashable) -> None:
        """See `ChannelHost.throttle`; clients that want to know are told of a full disk."""
        if not self._throttled:
            self._stop_reading()
        self._throttled.add(who)
        gate = self.context.broker.gate
        if not gate.is_open and not self._is_blocked:
            self._is_blocked = True
            self.engine.block("; ".join(gate.reasons.values()) or "the broker takes no messages")
            self.flush()

    def unthrottle(self, who: Hashable) -> None:
        """See `ChannelHost.unthrottle`."""
        if who not in self._throttled:
            return
        self._throttled.discard(who)
        if not self._throttled:
            if self._is_blocked:
                self._is_blocked = False
                self.engine.unblock()
                self.flush()
            if not self.is_held:
                self._read_on()

    def _stop_reading(self) -> None:
        super()._stop_reading()
        self.engine.reading_stops()

    def _read_on(self) -> None:
        if not self._throttled:
            super()._read_on()
            self.engine.reading_goes_on(self.context.seconds())

    # -- unfinished input ------------------------------------------------------------------------

    def _contents_held(self, event: ev.ContentsHeld) -> None:
        partial = self.context.partial_deliveries
        partial.holds(self, event.octets)
        if partial.is_too_much:
            self.event_batch.afterwards(partial.relieve)

    def held_input(self) -> int:
        """See `ClientConnection.held_input`."""
        return self.engine.held_octets

    def partial_deliveries(self, are_all: bool) -> list[PartialDelivery[Hashable]]:
        """See `ClientConnection.partial_deliveries`: by channel, and None for unread input."""
        found = []
        for channel in (*self.engine.unfinished, None):
            if are_all or channel is None or not channel.is_in_parts:
                partial = self.partial_delivery(channel)
                if partial is not None:
                    found.append(partial)
        return found

    def partial_delivery(self, key: Hashable) -> PartialDelivery[Hashable] | None:
        """See `ClientConnection.partial_delivery`."""
        engine, now = self.engine, self.context.seconds()
        is_held = self.is_held or bool(self._throttled)
        if not isinstance(key, Channel):
            octets = engine.unread_octets
            idle = 0.0 if is_held else now - engine.last_received
            return PartialDelivery(None, octets, idle, can_spill=False) if octets else None
        if key not in engine.unfinished:
            return None
        if is_held:
            key.restart_progress(now)
        octets = key.unfinished_octets
        can_spill = not key.is_in_parts and octets > HEAD_BYTES
        return PartialDelivery(key, octets, now - key.progress_at, can_spill)

    def spill(self, key: Hashable) -> None:
        """See `ClientConnection.spill`."""
        assert isinstance(key, Channel)
        self.events(self.engine.hand_up(key, self.context.seconds()))

    def end_partial(self, key: Hashable, words: str) -> None:
        """See `ClientConnection.end_partial`."""
        channel = self.channels.get(key.number) if isinstance(key, Channel) else None
        if channel is None:  # within a frame there is nothing that a close could follow
            self.drop(words)
        else:
            channel.fail(ReplyCode.PRECONDITION_FAILED, words)

    # -- for the daemon and its operators ----------------------------------------------------------

    def endpoints(self) -> Iterator[NodeEndpoint]:
        """See `ClientConnection.endpoints`."""
        found: list[NodeEndpoint] = []
        for channel in self.channels.values():
            found += channel.endpoints()
        return iter(found)

    @property
    def channel_count(self) -> int:
        """See `ClientConnection.channel_count`."""
        return len(self.channels)

    def row(self) -> dict[str, object]:
        """See `ClientConnection.row`."""
        channels = self.channels.values()
        client = client_description(self.engine.peer_properties)
        return {
            **super().row(),
            "container": client.get("client-name") or client.get("client-product", ""),
            **client,
            "channels": len(channels),
            "channel-max": self.engine.channel_max,
            "frame-max": self.engine.frame_max,
            "heartbeat": self.engine.heartbeat,
            "unsettled": sum(len(each.channel.unacknowledged) for each in channels),
            "deliveries-in": self.engine.contents_in,
            "deliveries-out": sum(each.channel.unacknowledged.last for each in channels),
        }

    def link_index(self) -> Iterator[tuple[str, Callable[[str], dict[str, object]]]]:
        """See `ClientConnection.link_index`."""
        return (each for channel in tuple(self.channels.values()) for each in channel.index())


def _nothing(_: object) -> None:
    """Events that need no action."""
