# SPDX-License-Identifier: Apache-2.0
"""Events of links and their deliveries.

The sessions report these, and are in a layer above; `amqproute.wire.amqp10.engine_events` has all
events and is where users import them from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amqproute.wire.amqp10.link import Delivery, Link
from amqproute.wire.amqp10.spec import Attach, DeliveryState, Error, Flow
from amqproute.wire.engine import Event


@dataclass(slots=True)
class LinkAttached(Event):
    """The peer attached a link, or answered our attach.

    Answer a link of the peer's with `Link.accept` or `Link.refuse`. A refused answer has a null
    terminus on the peer's side, and `LinkDetached` follows (part 2 §2.6.3).
    """

    link: Link
    attach: Attach
    is_answer: bool


@dataclass(slots=True)
class DeliveriesReceived(Event):
    """Whole deliveries arrived on one receiving link, in order (part 2 §2.6.12)."""

    link: Link
    deliveries: list[Delivery]


@dataclass(slots=True)
class PartsReceived(Event):
    """A part of a large delivery arrived, on a link that takes parts (part 2 §2.6.14).

    The octets are the user's from now on; call `Session.took` when they are out of the way. The
    first event of a delivery has `ConnectionSettings.part_from` octets or more; the delivery can be
    settled from then on, and no more parts come once we have settled it.

    Attributes:
        parts: octets of the message, in order.
        is_last: the delivery is complete.
        is_aborted: the sender has given it up: it is settled, and its octets are void.
    """

    link: Link
    delivery: Delivery
    parts: list[bytes]
    is_last: bool = False
    is_aborted: bool = False


@dataclass(slots=True)
class DeliveriesUpdated(Event):
    """The peer changed the state of, or settled, deliveries of one link (part 2 §2.7.6).

    Attributes:
        state: the peer's delivery state: an outcome, `Received`, a transactional state, or None.
        settled: the peer has forgotten them. On a sending link they are then gone from the
            engine as well.
    """

    link: Link
    deliveries: list[Delivery]
    state: DeliveryState | None
    settled: bool


@dataclass(slots=True)
class LinkFlowed(Event):
    """The peer's flow for one link (part 2 §2.6.7).

    On a sending link `Link.credit` and `Link.drain` have been brought up to date; on a
    receiving link `available` and the peer's delivery-count have. An echo has been answered,
    except on a draining sending link: send the waiting messages, then call `Link.drained`.
    """

    link: Link
    flow: Flow


@dataclass(slots=True)
class LinkDetached(Event):
    """The link is detached (closed=False keeps the terminus) or closed by the peer.

    The engine has answered. ``deliveries`` are those unsettled when it went, oldest first.
    When the engine itself detached the link for a fault of the peer's, `by_fault` is True.
    """

    link: Link
    closed: bool
    error: Error | None
    deliveries: Sequence[Delivery]
    by_fault: bool = False


__all__ = [
    "DeliveriesReceived",
    "DeliveriesUpdated",
    "LinkAttached",
    "LinkDetached",
    "LinkFlowed",
    "PartsReceived",
]
