# SPDX-License-Identifier: Apache-2.0
"""Transfers that cannot be sent at once: several frames, a state, a closed window (part 2 §2.5.6).

`Link.send` puts the usual delivery, one frame with room in the window, on the wire itself. The
others come here: a `TransferOutput` holds them in the order of `send` and cuts them into frames as
far as the peer's window goes. Buffers are sliced, not copied.

Of a delivery in parts (`Link.send_parts`) only the appended octets are queued: deliveries of other
links go out between its parts, in the order in which both were given. So a user that appends a
little at a time, and only when `OutgoingParts.is_clear`, delays no other link and keeps little in
memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from amqproute.wire.amqp10.fastpath import write_transfer
from amqproute.wire.amqp10.link import Delivery, Link, LinkSession, OutgoingParts
from amqproute.wire.amqp10.serial_numbers import SERIAL_MASK


class TransferOutput:
    """Waiting deliveries of one session.

    Attributes:
        queue: the deliveries, or the rest of them, in the order of `Link.send`.
    """

    __slots__ = ("_session", "queue")

    def __init__(self, session: LinkSession) -> None:
        self._session = session
        self.queue = session._queue

    def close(self) -> None:
        """Forget the session, which is over; no other method may follow."""
        del self._session

    def add(self, delivery: Delivery, parts: Sequence[bytes], size: int, aborted: bool) -> None:
        """Add a whole delivery."""
        delivery.link._queued += 1
        self._enqueue(OutgoingParts(self, delivery, parts, size, aborted))

    def open(self, delivery: Delivery, size: int) -> OutgoingParts:
        """Return a delivery of this size, to be appended."""
        outgoing = OutgoingParts(self, delivery, (), 0, False)
        outgoing.missing = size
        delivery.link._queued += 1
        return outgoing

    def resume(self, outgoing: OutgoingParts) -> None:
        """Send the frames that appended octets have filled."""
        if not outgoing._is_queued and not self._needs_more(outgoing):
            self._enqueue(outgoing)

    def abort(self, outgoing: OutgoingParts) -> None:
        """Drop the rest of a delivery, and abort it at the peer, if it has begun there."""
        delivery = outgoing.delivery
        link = delivery.link
        outgoing._buffers.clear()
        outgoing._left = outgoing.missing = 0
        delivery.settled = True
        link.unsettled.pop(delivery.tag, None)
        if outgoing._started:
            self._session._outgoing.pop(delivery.id, None)
            outgoing._aborted = True
            if not outgoing._is_queued:
                self._enqueue(outgoing)
            return
        if outgoing._is_queued:
            self.queue.remove(outgoing)
        link._queued -= 1
        link.credit += 1
        self._finish(outgoing)

    def _enqueue(self, outgoing: OutgoingParts) -> None:
        outgoing._is_queued = True
        self.queue.append(outgoing)
        self.flush()

    def flush(self) -> None:
        """Send as many waiting frames as the peer's window allows."""
        session = self._session
        queue = self.queue
        while queue and session.remote_incoming_window > 0:
            outgoing = queue[0]
            if self._needs_more(outgoing):
                outgoing._is_queued = False  # until more is appended
                queue.popleft()
            elif self._send_frame(outgoing):
                queue.popleft()
                self._finish(outgoing)

    def _finish(self, outgoing: OutgoingParts) -> None:
        link = outgoing.delivery.link
        if link._outgoing is outgoing:
            link._outgoing = None
        if link._drain_waits and not link._queued:
            link.drained()

    def _needs_more(self, outgoing: OutgoingParts) -> bool:
        """Return whether more octets have to be appended before a frame is full."""
        size = self._session.connection.remote_max_frame_size
        return outgoing.missing > 0 and outgoing._left < size

    def _send_frame(self, outgoing: OutgoingParts) -> bool:
        """Send the next frame of a delivery; True when it was the last."""
        delivery = outgoing.delivery
        link = delivery.link
        session = self._session
        connection = session.connection
        first = not outgoing._started
        if first:
            outgoing._started = True
            delivery.id = session._next_delivery_id
            session._next_delivery_id = (delivery.id + 1) & SERIAL_MASK
            link.delivery_count = (link.delivery_count + 1) & SERIAL_MASK
            link._queued -= 1  # from here on the delivery count includes it
            if delivery.tag in link.unsettled and not delivery.settled:
                session._outgoing[delivery.id] = delivery
        room = connection.remote_max_frame_size - len(self._transfer_head(outgoing, first, True, 0))
        more = outgoing._left > room or outgoing.missing > 0
        size = room if outgoing._left > room else outgoing._left
        session.remote_incoming_window -= 1
        session.next_outgoing_id = (session.next_outgoing_id + 1) & SERIAL_MASK
        connection._sink.append(self._transfer_head(outgoing, first, more, size))
        connection._sink.extend(outgoing._pop(size))
        connection.frames_out += 1
        return not more

    def _transfer_head(self, outgoing: OutgoingParts, first: bool, more: bool, size: int) -> bytes:
        delivery = outgoing.delivery
        return write_transfer(
            self._session.channel,
            delivery.link.handle,
            delivery.id if first else None,
            delivery.tag if first else None,
            delivery.message_format if first else None,
            delivery.settled,
            more,
            size,
            delivery.local_state if first else None,
            outgoing._aborted,
            delivery.resumed and first,
            None,
            delivery.batchable and first,
        )

    def drop(self, link: Link) -> None:
        """Forget the waiting deliveries of a link: it is being detached."""
        kept = [each for each in self.queue if each.delivery.link is not link]
        self.queue.clear()
        self.queue.extend(kept)
        link._outgoing = None
        link._queued = 0
        link._drain_waits = False


__all__ = ["TransferOutput"]
