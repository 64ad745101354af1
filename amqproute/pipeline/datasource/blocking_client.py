# SPDX-License-Identifier: Apache-2.0
"""A blocking AMQP 1.0 client on amqproute's own engine.

Spark's Python workers are processes that run one task after the other, in threads of Spark's
choosing: no place for an event loop that can be started once. The engine needs none.
`BlockingClient.step` writes the engine's output, waits for octets on a plain socket, and passes the
events of each link to its `ReceivingLink` or `SendingLink`.

Every wait ends: after `BrokerEndpoint.seconds` without an answer, at the end of the connection, or
with the broker's refusal. All three raise `DataSourceError`, with a text for the user. Code shared
with other clients is in `amqproute.client`.
"""

from __future__ import annotations

import secrets
import select
import socket
import ssl
import time
import uuid
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from types import TracebackType
from typing import Final

from amqproute.client.client_core import ClientCore, Ending
from amqproute.client.link_terms import make_source, refused_term
from amqproute.client.login import ClientLogin
from amqproute.pipeline.datasource.blocking_links import ReceivingLink, SendingLink
from amqproute.pipeline.datasource.place import (
    BrokerEndpoint,
    DataSourceError,
    connect,
    tls_context,
)
from amqproute.values import STREAM
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.engine_events import (
    AuthenticationRejected,
    Event,
    SessionEnded,
    TlsAgreed,
)
from amqproute.wire.amqp10.link import Link
from amqproute.wire.amqp10.session import Session

__all__ = ["BlockingClient"]

_READ: Final = 256 * 1024


class BlockingClient:
    """One connection with one session. Use it in a ``with``.

    Attributes:
        place: its broker.

    Raises:
        DataSourceError: the broker cannot be reached, or refuses the log-in.
    """

    def __init__(self, place: BrokerEndpoint, container_id: str | None = None) -> None:
        self.place = place
        self._context = tls_context(place)
        self._socket = connect(place)
        login = ClientLogin(
            place.url,
            secrets.token_urlsafe(18),
            lambda: self.is_private,
            has_certificate=place.certificate is not None,
        )
        self._core = ClientCore[ReceivingLink | SendingLink](
            container_id or f"amqproute-spark-{uuid.uuid4()}",
            place.url.host,
            login,
            tls="required" if place.upgrades else "none",
            handshake_seconds=place.seconds,
        )
        self._engine = self._core.engine
        try:
            if place.url.scheme == "amqps":
                self._wrap()
            self._engine.start(time.monotonic())
            self._core.open()
            self.wait(lambda: self._core.has_begun, "answer to open")
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self.drop()

    def close(self) -> None:
        """End the session and close the connection."""
        try:
            self._close()
        finally:
            self.drop()

    def drop(self) -> None:
        """Close the connection at once."""
        self._socket.close()

    def is_alive(self) -> bool:
        """Process received octets, without waiting, and return whether the connection is alive."""
        try:
            while self.step(0):
                pass
        except DataSourceError:
            return False
        return True

    @property
    def session(self) -> Session:
        """The one session."""
        return self._core.session

    @property
    def is_private(self) -> bool:
        """Whether nobody can listen: TLS, a unix socket, or this machine's loopback."""
        if isinstance(self._socket, ssl.SSLSocket) or self._socket.family == socket.AF_UNIX:
            return True
        return ip_address(self._socket.getpeername()[0].partition("%")[0]).is_loopback

    # -- links -------------------------------------------------------------------------------------

    def receiving(
        self, node: str, *, browses: bool, selector: str | None = None, by_entry: bool = False
    ) -> ReceivingLink:
        """Attach a link to receive from a node; no credit is given yet.

        Args:
            node: the node.
            browses: messages are only shown, and stay on the queue.
            selector: only messages that match.
            by_entry: delivery-tags must be the ids of entries; they are anyway, if the link has a
                `ReceivingLink.stream`.

        Raises:
            DataSourceError: the broker refuses, or does not support the request.
        """
        link = self.session.attach(
            f"spark-{uuid.uuid4()}",
            "receiver",
            make_source(node, browses=browses, selector=selector),
            spec.Target(),
            # A browser decides nothing: its messages are settled.
            snd_settle_mode=spec.SENDER_SETTLED if browses else spec.SENDER_UNSETTLED,
            desired_capabilities=(STREAM,),
        )
        receiving = ReceivingLink(self, link, node)
        self.join(link, receiving)
        refused = refused_term(link, browses=browses, selects=selector is not None)
        if refused:
            raise DataSourceError(f"{node!r} at {self.place} does not {refused}")
        if by_entry and not receiving.stream:
            raise DataSourceError(
                f"{node!r} at {self.place} does not tell its entries: it is no queue of an "
                "amqproute broker"
            )
        return receiving

    def sending(self, address: str | None, name: str, *, exactly_once: bool) -> SendingLink:
        """Make links to send to an address, or to each message's own (None).

        Args:
            address: the target's.
            name: of the links; with `exactly_once` the same for all attempts at the same work.
            exactly_once: messages sent on these links before, with the same tags, are not taken
                again; the broker remembers them until `SendingLink.forget`.

        Returns:
            The links, to be begun or forgotten.
        """
        return SendingLink(self, address, name, exactly_once)

    def join(self, link: Link, end: ReceivingLink | SendingLink) -> None:
        """Pass a link's events to an end, and wait until it is attached."""
        self._core.links[link] = end
        self.wait(lambda: end.is_attached, f"answer to the link with {end.name}")

    # -- input and output --------------------------------------------------------------------------

    def wait(self, done: Callable[[], object], what: str, seconds: float | None = None) -> None:
        """Process events until a condition is true.

        Raises:
            DataSourceError: nothing came for `seconds` (by default `BrokerEndpoint.seconds`), or
                the connection ended.
        """
        limit = self.place.seconds if seconds is None else seconds
        deadline = time.monotonic() + limit
        while not done():
            left = deadline - time.monotonic()
            if left <= 0:
                raise DataSourceError(f"no {what} from {self.place} within {limit:g} s")
            if self.step(left):
                deadline = time.monotonic() + limit

    def step(self, seconds: float) -> bool:
        """Write pending octets, and process those received within this time.

        Returns:
            Whether there was an event; an empty frame is none.

        Raises:
            DataSourceError: the connection ended.
        """
        self.flush()
        now = time.monotonic()
        due = self._engine.next_deadline()
        left = seconds if due is None else max(0.0, min(seconds, due - now))
        if not self._is_readable(left):
            return self._take(self._engine.tick(time.monotonic()))
        try:
            data = self._socket.recv(_READ)
        except OSError as error:
            raise DataSourceError(f"the connection to {self.place} was lost: {error}") from error
        now = time.monotonic()
        engine = self._engine
        return self._take(engine.receive_data(data, now) if data else engine.receive_eof(now))

    def flush(self) -> None:
        """Write the engine's output."""
        parts = self._engine.data_to_send()
        if not parts:
            return
        try:
            self._socket.sendall(b"".join(parts))
        except OSError as error:
            raise DataSourceError(f"the connection to {self.place} was lost: {error}") from error

    def _is_readable(self, seconds: float) -> bool:
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        return bool(select.select([self._socket], [], [], seconds)[0])

    def _take(self, events: Sequence[Event]) -> bool:
        for event in events:
            if isinstance(event, TlsAgreed):
                self.flush()
                self._wrap()
                self._take(self._engine.tls_established(time.monotonic()))
                continue
            ending = self._core.take(event)
            if ending is not None:
                raise self._ended(ending)
        return bool(events)

    def _ended(self, ending: Ending[ReceivingLink | SendingLink]) -> DataSourceError:
        event, end, place = ending.event, ending.end, self.place
        if isinstance(event, AuthenticationRejected):
            return DataSourceError(f"not logged in at {place}: {event.reason}")
        what = "the session" if isinstance(event, SessionEnded) else "the connection"
        return DataSourceError(_refused(event.error, what if end is None else end.name, place))

    def _wrap(self) -> None:
        assert self._context is not None
        try:
            self._socket = self._context.wrap_socket(
                self._socket, server_hostname=self.place.url.host
            )
        except (ssl.SSLError, OSError) as error:
            raise DataSourceError(f"no TLS with {self.place}: {error}") from error

    def forget(self, link: Link) -> None:
        """Stop passing events of a link."""
        self._core.links.pop(link, None)

    def _close(self) -> None:
        """End the session, so that the broker has read everything before the socket is closed."""
        self._core.links.clear()
        self._engine.close()
        self.flush()
        deadline = time.monotonic() + self.place.seconds
        while not self._engine.is_closed and time.monotonic() < deadline:
            if not self._is_readable(deadline - time.monotonic()):
                return
            try:
                data = self._socket.recv(_READ)
            except OSError:
                return  # everything important was answered before
            if not data:
                return
            self._engine.receive_data(data, time.monotonic())


def _refused(error: spec.Error | None, what: str, place: BrokerEndpoint) -> str:
    if error is None:
        return f"{place} has closed {what}"
    words = f": {error.description}" if error.description else ""
    return f"{place} refused {what}: {error.condition}{words}"
