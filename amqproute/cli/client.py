# SPDX-License-Identifier: Apache-2.0
"""A small AMQP 1.0 client on the daemon's own engine.

::

    async with await connect(reactor, parse_url("unix:/run/amqproute/amqproute.sock")) as client:
        sender = await client.sender("orders@beta.example")
        outcome = await sender.send(encoded)

One `Client` is one connection with one session. Its verbs are coroutines. Each waits for the peer
for `ClientTimeouts.answer_seconds` at most and then raises `ClientError`, as it does when the peer
refuses, when the connection is lost, and when TLS or SASL fail: an exit code, a stable code, the
cause and the next step.

The links are in `amqproute.cli.client_links`.

The part shared with other clients is in `amqproute.client`. It sends passwords only over private
connections: TLS, a unix socket or loopback.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final, TypeVar

from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute import conditions
from amqproute.cli.client_links import Receiver, Sender
from amqproute.cli.command_error import NEGATIVE, UNREACHABLE, ClientError, by_condition
from amqproute.client.client_core import ClientCore, Ending
from amqproute.client.link_terms import OUTCOME_SYMBOLS, make_source
from amqproute.client.login import ClientLogin
from amqproute.errors import ConnectError, TlsError
from amqproute.interfaces import IConnectionPump
from amqproute.net.connector import Connector, ConnectPace
from amqproute.net.pump import IUpgradableUser, TransportFacts
from amqproute.net.reactor import IReactor
from amqproute.net.tls import TlsContexts
from amqproute.url import Url
from amqproute.values import COMMAND_CONTAINER
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.connection import Connection
from amqproute.wire.amqp10.engine_events import (
    AuthenticationRejected,
    ConnectionClosed,
    LinkDetached,
    SessionEnded,
)
from amqproute.wire.amqp10.link import Link
from amqproute.wire.engine import Event

__all__ = ["Client", "ClientTimeouts", "connect", "is_private"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ClientTimeouts:
    """Deadlines in seconds, and the limit of messages in flight.

    Attributes:
        connect_seconds: the seconds for the connection with TLS and SASL.
        answer_seconds: the seconds for each answer of the broker.
        close_seconds: the seconds for the broker's close.
        window: messages sent and not settled.
    """

    connect_seconds: float = 15.0
    answer_seconds: float = 30.0
    close_seconds: float = 5.0
    window: int = 1000


def is_private(facts: TransportFacts) -> bool:
    """Return whether a connection is private: TLS, a unix socket, or loopback."""
    if facts.is_encrypted:
        return True
    if facts.host is None:
        # No address: a unix socket whose peer the kernel does not name.
        return facts.remote.startswith(("unix:", "UNIXAddress"))
    try:
        return ip_address(facts.host).is_loopback
    except ValueError:
        return False


VHOST_PREFIX: Final = "vhost:"
"""By it the hostname in the open says which virtual host is meant, as clients of RabbitMQ 4 do."""


async def connect(
    reactor: IReactor,
    url: Url,
    *,
    contexts: TlsContexts | None = None,
    upgrade: bool = False,
    patience: ClientTimeouts | None = None,
    container_id: str | None = None,
    vhost: str | None = None,
) -> Client:
    """Connect, log in and begin a session.

    Args:
        reactor: the reactor for the connection and timers.
        url: address and credentials.
        contexts: the trusted authorities; needed for ``amqps`` and for `upgrade`.
        upgrade: the upgrade with ``amqp``: require TLS by the AMQP TLS header.
        patience: the deadlines.
        container_id: ours; a random one if None.
        vhost: the virtual host to open; None for the one that the host of the URL means.

    Raises:
        ClientError: the connection failed.
    """
    client = Client(
        reactor,
        url,
        patience or ClientTimeouts(),
        upgrade=upgrade,
        container_id=container_id,
        vhost=vhost,
    )
    with_tls = contexts if url.scheme == "amqps" or upgrade else None
    pace = ConnectPace(
        connect_seconds=min(10.0, client.patience.connect_seconds),
        total_seconds=client.patience.connect_seconds,
    )
    connector = Connector(reactor, with_tls, pace=pace)
    try:
        await connector.connect_url(url, client.made)
    except ConnectError as error:
        raise ClientError(
            UNREACHABLE, error.code, str(error), details=error.attempts[1:]
        ) from error
    try:
        await client.begun()
    except BaseException:
        client.abort()
        raise
    return client


@implementer(IUpgradableUser)
class Client:
    """One connection to a broker. Made by `connect`.

    Attributes:
        facts: proved facts about the broker, from the transport.
        patience: the deadlines.
    """

    _core: ClientCore[Sender | Receiver]

    def __init__(
        self,
        clock: IReactorTime,
        url: Url,
        patience: ClientTimeouts,
        *,
        upgrade: bool = False,
        container_id: str | None = None,
        vhost: str | None = None,
    ) -> None:
        """Prepare; `made` is for the transport's side."""
        self._hostname = url.host if vhost is None else f"{VHOST_PREFIX}{vhost}"
        self._clock = clock
        self._url = url
        self._upgrade = upgrade
        self._container_id = container_id or f"{COMMAND_CONTAINER}{uuid.uuid4()}"
        self.patience = patience
        self.facts = TransportFacts("unknown")
        self._pump: IConnectionPump | None = None
        self._is_closing = False
        self._failure: ClientError | None = None
        self._ready: Deferred[None] = Deferred()
        self._closed: Deferred[None] = Deferred()
        self._is_paused = False
        self._stirred: Deferred[None] | None = None

    def __repr__(self) -> str:
        state = "failed" if self._failure else "ready" if self._ready.called else "connecting"
        return f"<Client {self._url.scheme} {self.facts.remote} {state}>"

    # -- the transport's side: IUpgradableUser ---------------------------------------------------

    def made(self, facts: TransportFacts) -> tuple[Connection, Client]:
        """Make the engine for a new connection."""
        self.facts = facts
        login = ClientLogin(self._url, secrets.token_urlsafe(18), lambda: is_private(self.facts))
        self._core = ClientCore[Sender | Receiver](
            self._container_id,
            self._hostname,
            login,
            tls="required" if self._upgrade and facts.tls_version is None else "none",
            handshake_seconds=self.patience.connect_seconds,
            close_seconds=self.patience.close_seconds,
        )
        return self._core.engine, self

    def connected(self, pump: IConnectionPump) -> None:
        """Open and begin without waiting for answers in between (part 2 §2.4.1)."""
        self._pump = pump
        self._core.open()

    def secured(self, facts: TransportFacts) -> None:
        """Record the upgrade to TLS."""
        self.facts = facts

    def events(self, events: Sequence[object]) -> None:
        """Handle events of the engine."""
        last = events[-1]
        # Links and sessions that end with the connection report the same error before it.
        closed = last if isinstance(last, ConnectionClosed) else None
        for event in events:
            assert isinstance(event, Event)
            if (
                closed is not None
                and isinstance(event, LinkDetached | SessionEnded)
                and event.error is closed.error
            ):
                continue
            ending = self._core.take(event)
            if ending is not None:
                self._ended(ending)
            if self._core.has_begun and not self._ready.called:
                self._ready.callback(None)
        self._stir()

    def paused(self) -> None:
        """Pause writing large messages; the window bounds those of usual size."""
        self._is_paused = True

    def writable(self) -> None:
        """Resume writing."""
        self._is_paused = False
        self._stir()

    async def stirred(self, what: str) -> None:
        """Wait for an event that may make room for more.

        Raises:
            ClientError: none within `ClientTimeouts.answer_seconds`, or the connection is lost.
        """
        self.check()
        self._stirred = Deferred()
        await self.wait(self._stirred, what)

    @property
    def container_id(self) -> str:
        """Ours."""
        return self._container_id

    @property
    def answer_seconds(self) -> float:
        """Seconds to wait for each answer of the broker."""
        return self.patience.answer_seconds

    @property
    def is_paused(self) -> bool:
        """Whether the transport's buffer is full."""
        return self._is_paused

    def _stir(self) -> None:
        stirred, self._stirred = self._stirred, None
        if stirred is not None and not stirred.called:
            stirred.callback(None)

    def lost(self, reason: Failure) -> None:
        """Fail everything that waits: the transport is lost."""
        error: Any = reason.value
        if isinstance(error, TlsError):
            self._fail(ClientError(UNREACHABLE, error.code, str(error)))
        elif self._core.is_open:
            self._fail(
                ClientError(
                    UNREACHABLE,
                    "connect.lost",
                    f"the connection to {self.facts.remote} was lost",
                    "see the log of the broker; what has no outcome yet may or may not have been "
                    "taken",
                )
            )
        else:
            self._fail(
                ClientError(
                    UNREACHABLE,
                    "connect.lost",
                    f"{self.facts.remote} ended the connection before it was open",
                    "is this the port of an AMQP 1.0 broker, and does it want TLS (amqps://)?",
                )
            )
        if not self._closed.called:
            self._closed.callback(None)

    def _ended(self, ending: Ending[Sender | Receiver]) -> None:
        match ending:
            case Ending(LinkDetached() as event, end) if end is not None:
                end.fail(by_condition(event.error, f"the link to {end.name!r}"))
            case Ending(AuthenticationRejected() as event):
                code = "auth.mechanism" if event.mechanism is None else "auth.refused"
                code = "auth.busy" if event.is_temporary else code
                self._fail(ClientError(NEGATIVE, code, f"not logged in: {event.reason}"))
            case Ending(SessionEnded() as event):
                self._fail(by_condition(event.error, "the session"))
            case Ending(ConnectionClosed() as event):
                self._on_closed(event)

    def _on_closed(self, event: ConnectionClosed) -> None:
        if event.error is not None and (event.clean or self._core.is_open):
            self._fail(by_condition(event.error, "the connection"))
        elif event.error is not None:
            self._fail(
                ClientError(
                    UNREACHABLE,
                    str(event.error.condition),
                    f"no AMQP 1.0 at {self.facts.remote}: {event.error.description}",
                    "is this the port of an AMQP 1.0 broker, and does it want TLS (amqps://)?",
                )
            )
        elif event.clean and not self._is_closing:
            self._fail(
                ClientError(UNREACHABLE, conditions.CONNECTION_FORCED, "the broker has closed")
            )

    def _fail(self, error: ClientError) -> None:
        """Fail all present and later waits; the first error counts."""
        if self._failure is not None:
            return
        self._failure = error
        if not self._ready.called:
            self._ready.errback(error)
        links, self._core.links = self._core.links, {}
        for end in links.values():
            end.fail(error)

    # -- what links need -------------------------------------------------------------------------

    @property
    def clock(self) -> IReactorTime:
        """The clock."""
        return self._clock

    def flush_now(self) -> None:
        """Write the engine's output."""
        if self._pump is not None:
            self._pump.flush()

    def flush(self) -> None:
        """Schedule the write of the engine's output."""
        if self._pump is not None:
            self._pump.schedule_flush()

    async def wait(self, what: Deferred[_T], words: str, seconds: float | None = None) -> _T:
        """Wait for an answer.

        Args:
            what: fires with the answer.
            words: description of the answer, for the error.
            seconds: instead of `ClientTimeouts.answer_seconds`.

        Raises:
            ClientError: it did not come in time, or cannot come any more.
        """
        limit = self.patience.answer_seconds if seconds is None else seconds
        what.addTimeout(limit, self._clock)
        try:
            return await what
        except TimeoutError as error:
            raise ClientError(
                UNREACHABLE,
                "client.timeout",
                f"no {words} from {self.facts.remote} within {limit:g} s",
                "see the log of the broker; is it stopping, or its disk full?",
            ) from error

    def check(self) -> None:
        """Raise the error that ended the connection, if it has ended."""
        if self._failure is not None:
            raise self._failure

    def forget(self, link: Link) -> None:
        """Remove a link."""
        self._core.links.pop(link, None)

    # -- verbs -----------------------------------------------------------------------------------

    async def begun(self) -> None:
        """Wait until connection and session are open."""
        await self.wait(self._ready, "answer to open", self.patience.connect_seconds)

    async def sender(self, address: str | None) -> Sender:
        """Attach a link to send on.

        Args:
            address: a node, ``node@domain``, or None for the anonymous terminus.

        Raises:
            ClientError: the broker refuses the link.
        """
        self.check()
        sender = Sender(self, address or "(anonymous)", self.patience.window)
        link = self._core.session.attach(
            f"send-{uuid.uuid4()}",
            "sender",
            spec.Source(outcomes=OUTCOME_SYMBOLS),
            spec.Target(address=address),
            snd_settle_mode=spec.SENDER_UNSETTLED,
        )
        self._core.links[link] = sender
        await sender.attached(link)
        return sender

    async def receiver(
        self,
        node: str | None,
        credit: int = 0,
        *,
        browses: bool = False,
        selector: str | None = None,
        in_parts: bool = False,
    ) -> Receiver:
        """Attach a link to receive on.

        Args:
            node: the node; None for a dynamic one, whose name is then `Receiver.address`.
            credit: total number of messages; 0 for any number.
            browses: messages are copied, and stay in the queue.
            selector: condition on messages.
            in_parts: accept messages of any size, large ones in parts: see `Receiver.next_part`.

        Raises:
            ClientError: the broker refuses the link, or does not grant its terms.
        """
        self.check()
        receiver = Receiver(self, node or "(dynamic)", credit)
        link = self._core.session.attach(
            f"receive-{uuid.uuid4()}",
            "receiver",
            make_source(node, browses=browses, selector=selector),
            spec.Target(),
            max_message_size=0 if in_parts else None,
        )
        link.takes_parts = in_parts
        self._core.links[link] = receiver
        await receiver.attached(link, browses, selector is not None)
        return receiver

    async def request(
        self, node: str, encode: Callable[[str, str], bytes], *, seconds: float | None = None
    ) -> bytes:
        """Send a request and wait for its reply on a dynamic node.

        Args:
            node: the service.
            encode: a function of (message-id, reply-to) that returns the encoded request.
            seconds: instead of `ClientTimeouts.answer_seconds`.

        Returns:
            The encoded reply.

        Raises:
            ClientError: the broker refuses a link or the request, or does not reply.
        """
        receiver = await self.receiver(None, credit=1)
        sender = await self.sender(node)
        outcome = await sender.send(encode(str(uuid.uuid4()), receiver.address))
        if not isinstance(outcome, spec.Accepted):
            error = getattr(outcome, "error", None)
            raise by_condition(error, f"the request to {node!r}")
        delivery = await receiver.next(self.patience.answer_seconds if seconds is None else seconds)
        if delivery is None:
            raise ClientError(
                UNREACHABLE, "client.timeout", f"no reply from {node!r}", "see the broker's log"
            )
        receiver.accept(delivery)
        await sender.close()
        await receiver.close()
        return delivery.payload

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; never fails.

        The transport is dropped after `ClientTimeouts.close_seconds`.
        """
        self._is_closing = True
        if self._pump is None or self._closed.called:
            return
        if self._failure is None:
            self._core.engine.close()
            self._pump.flush()
        elif not self._core.engine.is_closed:
            self.abort()
        self._closed.addTimeout(self.patience.close_seconds, self._clock)
        try:
            await self._closed
        except (TimeoutError, CancelledError):
            self.abort()

    def abort(self) -> None:
        """Abort the transport, without a close."""
        self._is_closing = True
        if self._pump is not None and not self._closed.called:
            self._pump.abort()
