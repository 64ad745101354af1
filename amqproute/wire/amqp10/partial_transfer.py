# SPDX-License-Identifier: Apache-2.0
"""Large deliveries that come in: handed up in parts, before they are whole.

A link that takes parts (`Link.takes_parts`) has its delivery entered like a whole one once
``part_from`` octets of it have come; what comes further is reported as it comes, and none of it
is kept here. What bounds the memory of whoever takes it is the session's incoming window:
`PartialTransfer` counts the octets that the user has not taken, and gives the `TransferInput` the
window that leaves room for. The peer learns of a smaller window by a flow; what it was granted
before stays granted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from amqproute.wire.amqp10.delivery import Delivery
from amqproute.wire.amqp10.engine_events import PartsReceived
from amqproute.wire.amqp10.protocol_faults import too_large
from amqproute.wire.amqp10.state_tables import LinkStateName

if TYPE_CHECKING:
    from amqproute.wire.amqp10.link import Link
    from amqproute.wire.amqp10.session import Session
    from amqproute.wire.amqp10.transfer_input import TransferInput

WANTED: Final = 1
PRESETTLED: Final = 2
UNWANTED: Final = 3
"""States of a link in the middle of a delivery in parts; 0 for a link that is not."""


class PartialTransfer:
    """The deliveries in parts of one session.

    Args:
        session: the session.
        inbox: whose window is the brake.

    Attributes:
        open: links in the middle of one.
        untaken: octets of parts that the user has not taken.
    """

    __slots__ = ("_inbox", "_session", "open", "untaken")

    def __init__(self, session: Session, inbox: TransferInput) -> None:
        self._session = session
        self._inbox = inbox
        self.open = 0
        self.untaken = 0

    def let_go(self) -> None:
        """Forget the session, which is over. Nothing else may be called any more."""
        del self._session, self._inbox

    def begin(self, link: Link, delivery: Delivery) -> None:
        """Hand up what there is of an unfinished delivery; more follows as it comes."""
        parts, size = link._parts, link._part_bytes
        is_wanted = self._inbox.enter(link, delivery, size) is not None
        link._drop_partial()
        link._keep_partial(delivery)
        link._part_bytes = size
        link._parting = PRESETTLED if delivery.settled else WANTED if is_wanted else UNWANTED
        self.open += 1
        if is_wanted:
            self.untaken += size
            self._session.connection._emit(PartsReceived(link, delivery, parts))
        inbox = self._inbox
        inbox.low_water = self.window() // 2
        inbox.grant(min(inbox.window, self.window()))

    def go_on(self, link: Link, delivery: Delivery, payload: bytes, is_last: bool) -> None:
        """Hand up the next octets of a delivery that was begun.

        Raises:
            LinkFaultError: it has more octets than a message on this link may have.
        """
        link._part_bytes += len(payload)
        link._progress(len(payload))
        if link.max_message_size and link._part_bytes > link.max_message_size:
            raise too_large(link)
        if self._is_wanted(link, delivery):
            self.untaken += len(payload)
            event = self._event(link, delivery)
            if payload:
                event.parts.append(payload)
            event.is_last = is_last
            if is_last and delivery.settled:
                self._forget_incoming(link, delivery)
        if is_last:
            link._drop_partial()

    def abort(self, link: Link, delivery: Delivery) -> None:
        """The peer gives up a delivery that was begun: it never was."""
        if self._is_wanted(link, delivery):
            delivery.settled = True
            self._event(link, delivery).is_aborted = True
        self._forget_incoming(link, delivery)
        link._drop_partial()

    def _is_wanted(self, link: Link, delivery: Delivery) -> bool:
        if link._parting == WANTED:
            return self._inbox.deliveries.get(delivery.id) is delivery  # else we have settled it
        return link._parting == PRESETTLED

    def _event(self, link: Link, delivery: Delivery) -> PartsReceived:
        connection = self._session.connection
        events = connection._events
        if events:
            event = events[-1]
            if type(event) is PartsReceived and event.delivery is delivery:
                return event
        event = PartsReceived(link, delivery, [])
        connection._emit(event)
        return event

    def _forget_incoming(self, link: Link, delivery: Delivery) -> None:
        incoming = self._inbox.deliveries
        if incoming.get(delivery.id) is delivery:
            del incoming[delivery.id]
            del link.unsettled[delivery.tag]

    def ended(self) -> None:
        """A link is not in the middle of parts any more."""
        self.open -= 1
        inbox = self._inbox
        if not self.open:
            inbox.low_water = inbox.full // 2
            if self._session._state is LinkStateName.OPEN:
                inbox.grant(inbox.full)

    def took(self, octets: int) -> None:
        """Tell that so many octets of `PartsReceived` are out of the way: more may come."""
        self.untaken = max(0, self.untaken - octets)
        inbox = self._inbox
        if self.open and inbox.window <= inbox.low_water:
            inbox.reopen(inbox.window)

    def window(self) -> int:
        """Frames that may come while a delivery in parts is under way."""
        connection = self._session.connection
        room = connection.settings.part_window - self.untaken
        frames = max(0, room) // connection._frame_limit
        return min(self._inbox.full, frames if self.untaken else max(2, frames))


__all__ = ["PRESETTLED", "UNWANTED", "WANTED", "PartialTransfer"]
