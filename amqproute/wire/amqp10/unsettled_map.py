# SPDX-License-Identifier: Apache-2.0
"""Unsettled deliveries of a session by delivery-id, and their dispositions (part 2 §2.6.12).

`UnsettledMap.settle` turns runs of consecutive ids into one disposition frame each, whatever links
they are on; an incoming disposition becomes one event per link.
"""

from __future__ import annotations

from collections.abc import Iterable

from amqproute import conditions
from amqproute.wire import input_cost
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.fastpath import write_disposition
from amqproute.wire.amqp10.link import Delivery, Link, LinkSession
from amqproute.wire.amqp10.link_events import DeliveriesUpdated
from amqproute.wire.amqp10.protocol_faults import SessionFaultError
from amqproute.wire.amqp10.serial_numbers import SERIAL_HALF, SERIAL_MASK


class UnsettledMap:
    """Deliveries of one session that neither side has settled.

    Attributes:
        incoming: by delivery-id.
        outgoing: by delivery-id.
    """

    __slots__ = ("_session", "incoming", "outgoing")

    def __init__(self, session: LinkSession) -> None:
        self._session = session
        self.incoming: dict[int, Delivery] = {}
        self.outgoing = session._outgoing

    def close(self) -> None:
        """Forget the session, which is over; no other method may follow."""
        del self._session

    def clear(self) -> None:
        """Forget all deliveries."""
        self.incoming.clear()
        self.outgoing.clear()

    def forget(self, link: Link) -> None:
        """Forget the deliveries of a link."""
        table = self.outgoing if link.role == "sender" else self.incoming
        for delivery in link.unsettled.values():
            if table.get(delivery.id) is delivery:
                del table[delivery.id]

    def settle(self, deliveries: Iterable[Delivery], state: object, settled: bool) -> None:
        """See `LinkSession.settle`."""
        first = last = -1
        receiver = False
        incoming = self.incoming
        outgoing = self.outgoing
        table = incoming
        link: Link | None = None
        unsettled: dict[bytes, Delivery] = {}
        for delivery in deliveries:
            if delivery.link is not link:
                link = delivery.link
                unsettled = link.unsettled
                is_receiver = link.role == "receiver"
                if is_receiver is not receiver:
                    if first >= 0:
                        self._send_disposition(receiver, first, last, settled, state)
                        first = -1
                    receiver = is_receiver
                table = incoming if is_receiver else outgoing
            delivery_id = delivery.id
            if settled:
                if table.pop(delivery_id, None) is None:
                    if delivery_id < 0 and not delivery.settled:
                        self._settle_waiting(delivery, state)
                    continue
                delivery.settled = True
                del unsettled[delivery.tag]
            elif delivery_id not in table:
                continue
            delivery.local_state = state
            if first >= 0:
                if delivery_id == last + 1:
                    last = delivery_id
                    continue
                self._send_disposition(receiver, first, last, settled, state)
            first = last = delivery_id
        if first >= 0:
            self._send_disposition(receiver, first, last, settled, state)

    def _settle_waiting(self, delivery: Delivery, state: object) -> None:
        """Settle a delivery that has not been sent yet: its transfer will be settled."""
        delivery.settled = True
        if state is not None:
            delivery.local_state = state
        delivery.link.unsettled.pop(delivery.tag, None)

    def _send_disposition(
        self, receiver: bool, first: int, last: int, settled: bool, state: object
    ) -> None:
        session = self._session
        connection = session.connection
        end = None if last == first else last
        frame = write_disposition(session.channel, receiver, first, end, settled, state)
        if len(frame) > connection.remote_max_frame_size:
            # Better a short reason than a frame that the peer cannot accept.
            frame = write_disposition(
                session.channel, receiver, first, end, settled, _shortened(state)
            )
        connection._sink.append(frame)
        connection.frames_out += 1

    def on_disposition(self, disposition: spec.Disposition) -> None:
        """Process a disposition of the peer: report one event for each link."""
        first = disposition.first
        last = first if disposition.last is None else disposition.last
        span = (last - first) & SERIAL_MASK
        if span >= SERIAL_HALF:
            raise SessionFaultError(conditions.INVALID_FIELD, "a disposition ends before it begins")
        table = self.outgoing if disposition.role else self.incoming
        ids: Iterable[int]
        if span == 0:
            ids = (first,)
        elif span >= len(table):
            # A range may be four billion wide; the table is what bounds the work.
            ids = [each for each in table if (each - first) & SERIAL_MASK <= span]
        elif last > first:
            ids = range(first, last + 1)
        else:
            ids = [(first + step) & SERIAL_MASK for step in range(span + 1)]
        connection = self._session.connection
        inspected = len(table) if span >= len(table) else span
        connection.work += inspected // input_cost.LOOKED_AT_PER_UNIT
        settled = disposition.settled
        state = disposition.state
        groups: dict[Link, list[Delivery]] = {}
        link: Link | None = None
        group: list[Delivery] = []
        unsettled: dict[bytes, Delivery] = {}
        for delivery_id in ids:
            delivery = table.pop(delivery_id, None) if settled else table.get(delivery_id)
            if delivery is None:
                continue
            if delivery.link is not link:
                link = delivery.link
                unsettled = link.unsettled
                group = groups.setdefault(link, [])
            if state is not None:
                delivery.state = state
            if settled:
                delivery.settled = True
                del unsettled[delivery.tag]
            group.append(delivery)
        if not groups:
            connection._count_ineffective()
        for each, changed in groups.items():
            connection.work += input_cost.SETTLED * len(changed)
            if connection._ineffective:
                connection._note_progress(len(changed))
            connection._batch_link = None
            connection._events.append(DeliveriesUpdated(each, changed, state, settled))


def _shortened(state: object) -> object:
    """Return a delivery state without its long fields: the outcome counts."""
    if isinstance(state, spec.Rejected) and state.error is not None:
        words = (state.error.description or "")[:80]
        return spec.Rejected(error=spec.Error(condition=state.error.condition, description=words))
    if isinstance(state, spec.Modified):
        return spec.Modified(
            delivery_failed=state.delivery_failed, undeliverable_here=state.undeliverable_here
        )
    return state


__all__ = ["UnsettledMap"]
