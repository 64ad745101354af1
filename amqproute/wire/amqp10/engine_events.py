# SPDX-License-Identifier: Apache-2.0
"""What the AMQP 1.0 engine tells its user, in the order in which it happened.

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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amqproute.wire.sasl_mechanisms import VerifyCredentials

if TYPE_CHECKING:
    from amqproute.wire.amqp10.link import Delivery, Link
    from amqproute.wire.amqp10.session import Session
    from amqproute.wire.amqp10.spec import Attach, Begin, Error, Flow, Open


@dataclass(slots=True)
class TlsAgreed:
    """Both sides have sent the TLS protocol header (part 5 §5.2.1).

    Write `data_to_send()`, wrap the transport in TLS, then call `Connection.tls_established`.
    """


@dataclass(slots=True)
class CredentialsPresented:
    """A name and a password have to be verified outside; server role.

    Answer with `Connection.credentials_verified(ok)`; frames that the peer pipelined wait.

    Attributes:
        step: what is asked.
    """

    step: VerifyCredentials


@dataclass(slots=True)
class Authenticated:
    """The SASL layer is done (part 5 §5.3).

    Attributes:
        mechanism: its name, or None when the peer skipped SASL.
        identity: what the mechanism proved (see `amqproute.wire.sasl_mechanisms`), or None.
    """

    mechanism: str | None
    identity: Any


@dataclass(slots=True)
class AuthenticationRejected:
    """SASL ended without success; the engine has said so and is closed. Both roles.

    Attributes:
        mechanism: its name, as far as one was chosen.
        reason: in words.
        is_temporary: nothing was decided about the credentials; to try again may help.
    """

    mechanism: str | None
    reason: str
    is_temporary: bool = False


@dataclass(slots=True)
class OpenReceived:
    """The peer's open (part 2 §2.7.1). Answer with `Connection.open` unless it was sent before."""

    open: Open


@dataclass(slots=True)
class SessionBegun:
    """The peer began a session, or answered ours.

    Answer a session of the peer's with `Session.accept`.
    """

    session: Session
    begin: Begin
    is_answer: bool


@dataclass(slots=True)
class LinkAttached:
    """The peer attached a link, or answered our attach.

    Answer a link of the peer's with `Link.accept` or `Link.refuse`. A refused answer has a null
    terminus on the peer's side, and `LinkDetached` follows (part 2 §2.6.3).
    """

    link: Link
    attach: Attach
    is_answer: bool


@dataclass(slots=True)
class DeliveriesReceived:
    """Whole deliveries arrived on one receiving link, in order (part 2 §2.6.12)."""

    link: Link
    deliveries: list[Delivery]


@dataclass(slots=True)
class PartsReceived:
    """A part of a large delivery arrived, on a link that takes parts (part 2 §2.6.14).

    What it has brought is the user's from now on; tell with `Session.took` when it is out of the
    way. The first event of a delivery has `ConnectionSettings.part_from` octets or more; the
    delivery can be settled from then on, and no more parts come once we have settled it.

    Attributes:
        parts: octets of the message, in order.
        is_last: the delivery is complete.
        is_aborted: the sender has given it up: it is settled, and what has come is void.
    """

    link: Link
    delivery: Delivery
    parts: list[bytes]
    is_last: bool = False
    is_aborted: bool = False


@dataclass(slots=True)
class EndpointsHeld:
    """Sessions and links take less of memory, and nothing else has happened in a read.

    With `ConnectionSettings.reports_input` only: the peer has detached what we had detached.

    Attributes:
        octets: what they take; see `Connection.endpoint_octets`.
    """

    octets: int


@dataclass(slots=True)
class InputHeld:
    """The engine holds more, or less, of what has come than when it said so last.

    The last event of a read, with `ConnectionSettings.reports_input`; not for a few octets
    (`amqproute.wire.amqp10.connection.LEAST_HELD`).

    Attributes:
        octets: of unfinished deliveries, of a frame that is not complete, and of frames that wait
            for their turn.
    """

    octets: int


@dataclass(slots=True)
class DeliveriesUpdated:
    """The peer changed the state of, or settled, deliveries of one link (part 2 §2.7.6).

    Attributes:
        state: the peer's delivery state: an outcome, `Received`, a transactional state, or None.
        settled: the peer has forgotten them. On a sending link they are then gone from the
            engine as well.
    """

    link: Link
    deliveries: list[Delivery]
    state: Any
    settled: bool


@dataclass(slots=True)
class LinkFlowed:
    """The peer's flow for one link (part 2 §2.6.7).

    On a sending link `Link.credit` and `Link.drain` have been brought up to date; on a
    receiving link `available` and the peer's delivery-count have. An echo has been answered,
    except on a draining sending link: send what there is, then call `Link.drained`.
    """

    link: Link
    flow: Flow


@dataclass(slots=True)
class SessionFlowed:
    """The peer's window opened: what waited for it has been queued for sending."""

    session: Session
    flow: Flow


@dataclass(slots=True)
class LinkDetached:
    """The link is detached (closed=False keeps the terminus) or closed by the peer.

    The engine has answered. ``deliveries`` are those unsettled when it went, oldest first.
    When the engine itself detached the link for a fault of the peer's, `by_fault` is True.
    """

    link: Link
    closed: bool
    error: Error | None
    deliveries: Sequence[Delivery]
    by_fault: bool = False


@dataclass(slots=True)
class SessionEnded:
    """The session is over; a `LinkDetached` for each of its links came before it."""

    session: Session
    error: Error | None
    by_fault: bool = False


@dataclass(slots=True)
class ConnectionClosed:
    """The last event. The peer closed, the wire broke, a deadline passed, or the engine closed it.

    `SessionEnded` for each session came before it.

    Attributes:
        error: the condition given by whoever closed, or None for a clean close.
        by_fault: True when this engine closed because of the peer's fault or silence.
        clean: True when both closes were exchanged.
    """

    error: Error | None
    by_fault: bool
    clean: bool


Event = (
    TlsAgreed
    | CredentialsPresented
    | Authenticated
    | AuthenticationRejected
    | OpenReceived
    | SessionBegun
    | LinkAttached
    | DeliveriesReceived
    | PartsReceived
    | InputHeld
    | EndpointsHeld
    | DeliveriesUpdated
    | LinkFlowed
    | SessionFlowed
    | LinkDetached
    | SessionEnded
    | ConnectionClosed
)
