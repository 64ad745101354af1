# SPDX-License-Identifier: Apache-2.0
"""Events of the AMQP 1.0 engine, in the order in which they happened.

`Connection.receive_data` returns a list of these. They are slotted and must not be changed by
the receiver. Work is reported per batch where the wire allows it: transfers that follow each
other on one link in one read are *one* `DeliveriesReceived`, a disposition over a range is *one*
`DeliveriesUpdated` per link.

Because a peer may pipeline (open, begin, attach, transfer ... close in one segment, part 2
§2.4.1), the list may hold events about a link that the user refuses while it walks the list. The
rule for users: look at ``link.is_active`` before acting on a delivery; an engine never emits
*new* events for an endpoint that was ended locally.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amqproute.wire.amqp10.link_events import (
    DeliveriesReceived,
    DeliveriesUpdated,
    LinkAttached,
    LinkDetached,
    LinkFlowed,
    PartsReceived,
)
from amqproute.wire.amqp10.session import Session
from amqproute.wire.amqp10.spec import Begin, Error, Flow, Open
from amqproute.wire.engine import Event, TlsAgreed
from amqproute.wire.sasl_mechanisms import VerifyCredentials


@dataclass(slots=True)
class CredentialsPresented(Event):
    """A name and a password have to be verified outside; server role.

    Answer with `Connection.credentials_verified(ok)`; frames that the peer pipelined wait.

    Attributes:
        step: the credentials, and the exchange they belong to.
    """

    step: VerifyCredentials


@dataclass(slots=True)
class Authenticated(Event):
    """The SASL layer is done (part 5 §5.3).

    Attributes:
        mechanism: its name, or None when the peer skipped SASL.
        identity: proved by the mechanism (see `amqproute.wire.sasl_mechanisms`), or None.
    """

    mechanism: str | None
    identity: Any  # Any: whatever the authority of the mechanisms has made


@dataclass(slots=True)
class AuthenticationRejected(Event):
    """SASL failed; the engine has notified the peer and is closed. Both roles.

    Attributes:
        mechanism: its name, as far as one was chosen.
        reason: the reason as text.
        is_temporary: the credentials were not judged; another attempt may succeed.
    """

    mechanism: str | None
    reason: str
    is_temporary: bool = False


@dataclass(slots=True)
class OpenReceived(Event):
    """The peer's open (part 2 §2.7.1). Answer with `Connection.open` unless it was sent before."""

    open: Open


@dataclass(slots=True)
class SessionBegun(Event):
    """The peer began a session, or answered ours.

    Answer a session of the peer's with `Session.accept`.
    """

    session: Session
    begin: Begin
    is_answer: bool


@dataclass(slots=True)
class EndpointsHeld(Event):
    """Sessions and links occupy less memory, and nothing else has happened in a read.

    With `ConnectionSettings.reports_input` only: the peer has detached a link that we had detached.

    Attributes:
        octets: their memory; see `Connection.endpoint_octets`.
    """

    octets: int


@dataclass(slots=True)
class InputHeld(Event):
    """The engine holds more, or less, input in memory than it last reported.

    The last event of a read, with `ConnectionSettings.reports_input`; not for a few octets
    (`amqproute.wire.amqp10.connection.LEAST_HELD`).

    Attributes:
        octets: of unfinished deliveries, of a frame that is not complete, and of frames that wait
            for their turn.
    """

    octets: int


@dataclass(slots=True)
class SessionFlowed(Event):
    """The peer's window opened; waiting frames have been queued for sending."""

    session: Session
    flow: Flow


@dataclass(slots=True)
class SessionEnded(Event):
    """The session is over; a `LinkDetached` for each of its links came before it."""

    session: Session
    error: Error | None
    by_fault: bool = False


@dataclass(slots=True)
class ConnectionClosed(Event):
    """The last event. The peer closed, the wire broke, a deadline passed, or the engine closed it.

    `SessionEnded` for each session came before it.

    Attributes:
        error: the condition of the close, or None for a clean one.
        by_fault: True when this engine closed because of the peer's fault or silence.
        clean: True when both closes were exchanged.
    """

    error: Error | None
    by_fault: bool
    clean: bool


__all__ = [
    "Authenticated",
    "AuthenticationRejected",
    "ConnectionClosed",
    "CredentialsPresented",
    "DeliveriesReceived",
    "DeliveriesUpdated",
    "EndpointsHeld",
    "Event",
    "InputHeld",
    "LinkAttached",
    "LinkDetached",
    "LinkFlowed",
    "OpenReceived",
    "PartsReceived",
    "SessionBegun",
    "SessionEnded",
    "SessionFlowed",
    "TlsAgreed",
]
