# SPDX-License-Identifier: Apache-2.0
"""One connection with one session in the client's role, and the ends of its links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, Literal, Protocol, TypeAlias, TypeVar

from amqproute.client.login import ClientLogin
from amqproute.wire.amqp10.connection import Connection, ConnectionSettings
from amqproute.wire.amqp10.engine_events import (
    AuthenticationRejected,
    ConnectionClosed,
    DeliveriesReceived,
    DeliveriesUpdated,
    Event,
    LinkAttached,
    LinkDetached,
    LinkFlowed,
    OpenReceived,
    PartsReceived,
    SessionBegun,
    SessionEnded,
)
from amqproute.wire.amqp10.link import Link
from amqproute.wire.amqp10.session import Session

__all__ = ["ClientCore", "Ending", "LinkEnd", "LinkEvent"]

MAX_MESSAGE_BYTES: Final = 128 * 1024 * 1024
"""Octets of the largest message that is received as a whole, in memory."""

IDLE_SECONDS: Final = 60.0

LinkEvent: TypeAlias = (
    DeliveriesUpdated | LinkFlowed | LinkAttached | DeliveriesReceived | PartsReceived
)
"""Events of a link, except its end."""


class LinkEnd(Protocol):
    """Our end of a link."""

    def event(self, event: LinkEvent) -> None:
        """Handle an event of the link."""


EndT = TypeVar("EndT", bound=LinkEnd)


@dataclass(frozen=True, slots=True)
class Ending(Generic[EndT]):
    """The end of a link, the session or the connection, or a login that was refused.

    Attributes:
        event: the event, with its error.
        end: our end of the link, if a link has ended.
    """

    event: LinkDetached | SessionEnded | ConnectionClosed | AuthenticationRejected
    end: EndT | None = None


class ClientCore(Generic[EndT]):
    """A connection, its session, and the ends of its links, without input, output and waiting.

    Args:
        container_id: ours.
        hostname: the hostname of the broker, if it has one.
        login: chooses the SASL mechanism.
        tls: "required" to ask for TLS with AMQP's own header.
        handshake_seconds: until the broker's open.
        close_seconds: until the broker's close.

    Attributes:
        engine: the protocol engine.
        session: the one session, once `open` was called.
        links: the links in use, with their ends.
        is_open: the broker has opened the connection.
        has_begun: the broker has begun the session.
    """

    session: Session

    def __init__(
        self,
        container_id: str,
        hostname: str,
        login: ClientLogin,
        *,
        tls: Literal["none", "required"],
        handshake_seconds: float,
        close_seconds: float = 5.0,
    ) -> None:
        self.engine = Connection(
            ConnectionSettings(
                role="client",
                container_id=container_id,
                hostname=hostname or None,
                idle_timeout=IDLE_SECONDS,
                handshake_timeout=handshake_seconds,
                close_timeout=close_seconds,
                max_message_size=MAX_MESSAGE_BYTES,
                tls=tls,
            ),
            sasl_client=login,
        )
        self.links: dict[Link, EndT] = {}
        self.is_open = False
        self.has_begun = False

    def open(self) -> None:
        """Open and begin without waiting for answers in between (part 2 §2.4.1)."""
        self.engine.open()
        self.session = self.engine.begin()

    def take(self, event: Event) -> Ending[EndT] | None:
        """Handle an event of the engine.

        Returns:
            The end of a link, session or connection. A link not in use any more ends silently.
        """
        match event:
            case (
                DeliveriesUpdated()
                | LinkFlowed()
                | LinkAttached()
                | DeliveriesReceived()
                | PartsReceived()
            ):
                end = self.links.get(event.link)
                if end is not None:
                    end.event(event)
            case LinkDetached():
                end = self.links.pop(event.link, None)
                return None if end is None else Ending(event, end)
            case OpenReceived():
                self.is_open = True
            case SessionBegun():
                self.has_begun = self.has_begun or event.is_answer
            case AuthenticationRejected() | SessionEnded() | ConnectionClosed():
                return Ending(event)
            case _:
                pass
        return None
