# SPDX-License-Identifier: Apache-2.0
"""Incoming transfers: our window, deliveries of several frames, faults (part 2 §2.5.6).

Our incoming window is opened again by a flow when half of it is used up, so a sender never stalls
on it; credit and max_partial bound our memory.

**Large deliveries.** On a link that takes parts (`Link.takes_parts`) a delivery is entered like a
whole one after ``part_from`` octets; the rest is reported as it comes and not kept here. The
incoming window bounds the memory of the user: we count the octets that it has not taken, and grant
only as many frames as there is room for. The peer learns of a smaller window by a flow; frames that
it was granted before stay granted.
"""

from __future__ import annotations

from typing import Final

from amqproute import conditions
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.link import Delivery, Link, LinkSession, PartsMode, UnfinishedDelivery
from amqproute.wire.amqp10.link_events import PartsReceived
from amqproute.wire.amqp10.protocol_faults import (
    LinkFaultError,
    SessionFaultError,
    too_large,
    unattached,
)
from amqproute.wire.amqp10.serial_numbers import SERIAL_HALF, SERIAL_MASK
from amqproute.wire.amqp10.state_tables import OPEN, LinkStateName

PART_OCTETS: Final = 64
"""Memory of a part of a delivery beside its octets."""


class TransferInput:
    """Incoming transfers of one session.

    Args:
        session: the session.
        links: attached links by the peer's handle.
        deliveries: whole unsettled deliveries by delivery-id; new ones are entered here.

    Attributes:
        deliveries: the argument.
        full: frames of the window when fully open.
        window: frames that the peer may still send.
        low_water: frames left at which it is opened again.
        slack: frames granted before the window became smaller.
        next_id: the transfer-id of the next frame.
        in_parts: links in the middle of a delivery in parts.
        untaken: octets of parts that the user has not taken.
    """

    __slots__ = (
        "_connection",
        "_links",
        "_session",
        "deliveries",
        "full",
        "in_parts",
        "low_water",
        "next_id",
        "slack",
        "untaken",
        "window",
    )

    def __init__(
        self, session: LinkSession, links: dict[int, Link], deliveries: dict[int, Delivery]
    ) -> None:
        self._session = session
        self._connection = session.connection
        self._links = links
        self.deliveries = deliveries
        self.full = session.connection.settings.incoming_window
        self.low_water = self.full // 2
        self.window = self.full
        self.slack = 0
        self.next_id = 0
        self.in_parts = 0
        self.untaken = 0

    def close(self) -> None:
        """Forget the session, which is over; no other method may follow."""
        del self._session, self._connection

    def open(self) -> None:
        """Open the whole window: the session begins."""
        self.window = self.full

    def last_granted(self) -> int:
        """Return the transfer-id behind all those granted to the peer."""
        return (self.next_id + self.window + self.slack) & SERIAL_MASK

    def receive(self, transfer: spec.Transfer, payload: bytes) -> Delivery | None:
        """Process one transfer frame; return the delivery that it completed."""
        self.next_id = (self.next_id + 1) & SERIAL_MASK
        window = self.window = self.window - 1
        if window <= self.low_water:
            self._reopen(window)
        link = self._links.get(transfer.handle)
        if link is None:
            raise unattached(transfer.handle)
        if link._state is not OPEN and not self._may_transfer(link):
            return None
        if link._unfinished is not None:
            return self._on_continuation(link, link._unfinished, transfer, payload)
        if link.role == "sender":
            raise LinkFaultError(link, conditions.NOT_ALLOWED, "a transfer came from the receiver")
        if link.credit > 0:
            link.credit -= 1
        else:
            self._tolerate(link)
        link.delivery_count = (link.delivery_count + 1) & SERIAL_MASK
        delivery_id = transfer.delivery_id
        tag = transfer.delivery_tag
        if delivery_id is None or tag is None:
            raise LinkFaultError(
                link, conditions.INVALID_FIELD, "a delivery begins without its id or its tag"
            )
        delivery = Delivery(
            link,
            delivery_id,
            tag,
            payload,
            transfer.message_format or 0,
            transfer.settled is True,
            transfer.state,
            transfer.batchable,
        )
        delivery.resumed = transfer.resume
        if transfer.rcv_settle_mode is not None:
            _check_mode(delivery, transfer.rcv_settle_mode)
        if transfer.aborted:
            return None
        if transfer.more:
            unfinished = link._unfinished = UnfinishedDelivery(delivery, self._connection._now)
            self._session._unfinished_links[link] = None
            self._gather(link, unfinished, payload)
            return None
        return self._enter(link, delivery, len(payload))

    def _enter(self, link: Link, delivery: Delivery, size: int) -> Delivery | None:
        """Enter a whole delivery. None when it is to be ignored."""
        if size > link.max_message_size > 0:
            raise too_large(link)
        if delivery.resumed:
            # §2.7.5: "MUST ignore resumed deliveries that are not in its local unsettled map".
            if delivery.tag not in link._resumable:
                return None
        elif not link._allow_new:
            raise LinkFaultError(
                link, conditions.NOT_ALLOWED, "our unsettled map was incomplete: only resume"
            )
        mode = link.snd_settle_mode
        if delivery.settled:
            if mode == spec.SENDER_UNSETTLED and not delivery.resumed:
                raise LinkFaultError(
                    link, conditions.NOT_ALLOWED, "settled, and snd-settle-mode is unsettled"
                )
        else:
            if mode == spec.SENDER_SETTLED:
                raise LinkFaultError(
                    link, conditions.NOT_ALLOWED, "not settled, and snd-settle-mode is settled"
                )
            delivery_id = delivery.id
            tag = delivery.tag
            if delivery_id in self.deliveries:
                raise SessionFaultError(
                    conditions.INVALID_FIELD, f"delivery-id {delivery_id} is in use"
                )
            if tag in link.unsettled:
                raise LinkFaultError(link, conditions.NOT_ALLOWED, "the delivery-tag is in use")
            self.deliveries[delivery_id] = delivery
            link.unsettled[tag] = delivery
        link.deliveries += 1
        self._connection.deliveries_in += 1
        return delivery

    def _reopen(self, window: int) -> None:
        """Grant the peer a larger window, if there is room for one.

        Args:
            window: frames left of it.

        Raises:
            SessionFaultError: the peer has exceeded the window, and all earlier grants.
        """
        if window < 0:
            if not self.slack:
                raise SessionFaultError(
                    conditions.SESSION_WINDOW_VIOLATION,
                    "more transfers than the incoming window has",
                )
            self.slack -= 1
            window = self.window = 0
        if self._session._state is OPEN:
            room = self._parts_window() if self.in_parts else self.full
            if room > window:
                self._grant(room)

    def _may_transfer(self, link: Link) -> bool:
        """Whether a transfer on a link that is not open counts; False: discard it."""
        if link._state is LinkStateName.OFFERED:
            return link._failed is None
        # On its way when our detach went out; but nothing sent in a window that was opened after
        # it can claim that (§2.6.5: errant link).
        errant = link._errant_from
        if errant is not None and ((self.next_id - 1 - errant) & SERIAL_MASK < SERIAL_HALF):
            raise SessionFaultError(
                conditions.SESSION_ERRANT_LINK,
                f"link {link.name!r} was detached with an error, and still sends",
            )
        return False

    def _tolerate(self, link: Link) -> None:
        """Check a delivery without credit: see `amqproute.wire.amqp10.negotiated_link`."""
        if link._grace > 0:
            link._grace -= 1
        elif link._overdraft > 0:
            link._overdraft -= 1
        else:
            raise LinkFaultError(
                link, conditions.LINK_TRANSFER_LIMIT_EXCEEDED, "a transfer without credit"
            )

    def _on_continuation(
        self, link: Link, unfinished: UnfinishedDelivery, transfer: spec.Transfer, payload: bytes
    ) -> Delivery | None:
        delivery = unfinished.delivery
        if transfer.delivery_id is not None and transfer.delivery_id != delivery.id:
            raise LinkFaultError(
                link, conditions.NOT_ALLOWED, "a delivery begins within another (§2.6.14)"
            )
        if transfer.delivery_tag is not None and transfer.delivery_tag != delivery.tag:
            raise LinkFaultError(
                link, conditions.NOT_ALLOWED, "the delivery-tag changes within a delivery"
            )
        if (
            transfer.message_format is not None
            and transfer.message_format != delivery.message_format
        ):
            raise LinkFaultError(
                link,
                conditions.NOT_ALLOWED,
                "the message-format changes within a delivery",
            )
        if transfer.aborted:
            if unfinished.mode is not PartsMode.GATHERED:
                self._abort_parts(link, unfinished)
            link._drop_unfinished()
            return None
        if transfer.settled:
            delivery.settled = True
        if transfer.state is not None:
            delivery.state = transfer.state
        if transfer.rcv_settle_mode is not None:
            _check_mode(delivery, transfer.rcv_settle_mode)
        if unfinished.mode is not PartsMode.GATHERED:
            self._continue_parts(link, unfinished, payload, not transfer.more)
            return None
        self._gather(link, unfinished, payload)
        if transfer.more:
            if (
                link.takes_parts
                and unfinished.size >= self._connection.settings.part_from
                and link._state is OPEN
            ):
                self.begin_parts(link, unfinished)
            return None
        delivery.payload = b"".join(unfinished.parts)
        link._drop_unfinished()
        return self._enter(link, delivery, unfinished.size)

    def _grant(self, window: int) -> None:
        """Set the window and send it to the peer; earlier grants stay valid."""
        granted = self.window + self.slack
        self.slack = max(0, granted - window)
        self.window = window
        session = self._session
        session.connection._send(session.channel, session._flow())

    def _gather(self, link: Link, unfinished: UnfinishedDelivery, payload: bytes) -> None:
        connection = self._connection
        unfinished.grow(len(payload), connection._now)
        cost = len(payload) + PART_OCTETS
        unfinished.cost += cost
        connection.partial_bytes += cost
        if connection.partial_bytes > connection.settings.max_partial > 0:
            raise LinkFaultError(
                link,
                conditions.RESOURCE_LIMIT_EXCEEDED,
                "the unfinished deliveries of this connection have more than "
                f"{connection.settings.max_partial} octets",
            )
        if link.max_message_size and unfinished.size > link.max_message_size:
            raise too_large(link)
        if payload:
            unfinished.parts.append(payload)

    # ----------------------------------------------------------------- deliveries in parts

    def begin_parts(self, link: Link, unfinished: UnfinishedDelivery) -> None:
        """Hand up the octets of an unfinished delivery so far; more follow as they come."""
        delivery = unfinished.delivery
        is_known = self._enter(link, delivery, unfinished.size) is not None
        link._drop_unfinished()
        parts, unfinished.parts, unfinished.cost = unfinished.parts, [], 0
        link._unfinished = unfinished
        self._session._unfinished_links[link] = None
        if not is_known:
            unfinished.mode = PartsMode.IGNORED
        else:
            unfinished.mode = PartsMode.SETTLED if delivery.settled else PartsMode.UNSETTLED
        self.in_parts += 1
        if is_known:
            self.untaken += unfinished.size
            self._connection._emit(PartsReceived(link, delivery, parts))
        self.low_water = self._parts_window() // 2
        self._grant(min(self.window, self._parts_window()))

    def _continue_parts(
        self, link: Link, unfinished: UnfinishedDelivery, payload: bytes, is_last: bool
    ) -> None:
        """Hand up the next octets of a delivery in parts.

        Raises:
            LinkFaultError: it has more octets than a message on this link may have.
        """
        delivery = unfinished.delivery
        unfinished.grow(len(payload), self._connection._now)
        if link.max_message_size and unfinished.size > link.max_message_size:
            raise too_large(link)
        if self._is_wanted(unfinished):
            self.untaken += len(payload)
            event = self._event(link, delivery)
            if payload:
                event.parts.append(payload)
            event.is_last = is_last
            if is_last and delivery.settled:
                self._forget_incoming(link, delivery)
        if is_last:
            link._drop_unfinished()

    def _abort_parts(self, link: Link, unfinished: UnfinishedDelivery) -> None:
        """Undo a delivery in parts: the peer has aborted it."""
        delivery = unfinished.delivery
        if self._is_wanted(unfinished):
            delivery.settled = True
            self._event(link, delivery).is_aborted = True
        self._forget_incoming(link, delivery)

    def _is_wanted(self, unfinished: UnfinishedDelivery) -> bool:
        """Return whether the user wants more parts: it does not after it has settled."""
        if unfinished.mode is PartsMode.UNSETTLED:
            return self.deliveries.get(unfinished.delivery.id) is unfinished.delivery
        return unfinished.mode is PartsMode.SETTLED

    def _event(self, link: Link, delivery: Delivery) -> PartsReceived:
        connection = self._connection
        events = connection._events
        if events:
            event = events[-1]
            if type(event) is PartsReceived and event.delivery is delivery:
                return event
        event = PartsReceived(link, delivery, [])
        connection._emit(event)
        return event

    def _forget_incoming(self, link: Link, delivery: Delivery) -> None:
        incoming = self.deliveries
        if incoming.get(delivery.id) is delivery:
            del incoming[delivery.id]
            del link.unsettled[delivery.tag]

    def parts_ended(self) -> None:
        """See `LinkSession._parts_ended`."""
        self.in_parts -= 1
        if not self.in_parts:
            self.low_water = self.full // 2
            if self._session._state is OPEN:
                self._grant(self.full)

    def took(self, octets: int) -> None:
        """See `LinkSession.took`."""
        self.untaken = max(0, self.untaken - octets)
        if self.in_parts and self.window <= self.low_water:
            self._reopen(self.window)

    def _parts_window(self) -> int:
        """Return the window, in frames, during a delivery in parts."""
        connection = self._connection
        room = connection.settings.part_window - self.untaken
        frames = max(0, room) // connection._frame_limit
        return min(self.full, frames if self.untaken else max(2, frames))


def _check_mode(delivery: Delivery, mode: int) -> None:
    """Apply the rcv-settle-mode of a transfer (§2.7.5)."""
    link = delivery.link
    if mode == spec.RECEIVER_SECOND and link.rcv_settle_mode == spec.RECEIVER_FIRST:
        raise LinkFaultError(
            link,
            conditions.INVALID_FIELD,
            "rcv-settle-mode second on a link whose receiver settles first",
        )
    delivery.rcv_settle_mode = mode


__all__ = ["TransferInput"]
