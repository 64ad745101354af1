# SPDX-License-Identifier: Apache-2.0
"""Transfers that do not go out at once: several frames, a state, a closed window (part 2 §2.5.6).

`Link.send` puts the usual delivery, one frame with room in the window, on the wire itself. The
others come here: an `Outbox` holds them in the order of `send` and cuts them into frames as far
as the peer's window goes. Buffers are sliced, not copied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from amqproute.wire.amqp10.delivery import Delivery
from amqproute.wire.amqp10.fast import write_transfer
from amqproute.wire.amqp10.numbers import SERIAL_MASK

if TYPE_CHECKING:
    from amqproute.wire.amqp10.link import Link
    from amqproute.wire.amqp10.session import Session


class _Waiting:
    """A delivery, or the rest of one, that waits for the peer's window."""

    __slots__ = ("aborted", "buffers", "delivery", "left", "started")

    def __init__(
        self, delivery: Delivery, parts: Sequence[bytes], size: int, aborted: bool
    ) -> None:
        self.delivery = delivery
        self.buffers = deque(memoryview(part) for part in parts)
        self.left = size
        self.aborted = aborted
        self.started = False

    def take(self, size: int) -> list[Any]:
        """Remove the next ``size`` octets and return the buffers that hold them."""
        taken: list[Any] = []
        self.left -= size
        while size > 0:
            buffer = self.buffers.popleft()
            if len(buffer) > size:
                self.buffers.appendleft(buffer[size:])
                buffer = buffer[:size]
            size -= len(buffer)
            if buffer:
                taken.append(buffer)
        return taken


class Outbox:
    """What waits in one session.

    Attributes:
        queue: the deliveries, or what is left of them, in the order of `Link.send`.
    """

    __slots__ = ("_session", "queue")

    def __init__(self, session: Session) -> None:
        self._session = session
        self.queue: deque[_Waiting] = deque()

    def add(self, delivery: Delivery, parts: Sequence[bytes], size: int, aborted: bool) -> None:
        waiting = _Waiting(delivery, parts, size, aborted)
        delivery.link._queued += 1
        self.queue.append(waiting)
        self.flush()

    def flush(self) -> None:
        """Send what waits, as far as the peer's window goes."""
        session = self._session
        queue = self.queue
        while queue and session.remote_incoming_window > 0:
            waiting = queue[0]
            if self._send_frame(waiting):
                queue.popleft()
                link = waiting.delivery.link
                link._queued -= 1
                if link._drain_waits and not link._queued:
                    link.drained()

    def _send_frame(self, waiting: _Waiting) -> bool:
        """Send the next frame of a delivery; True when it was the last."""
        delivery = waiting.delivery
        link = delivery.link
        session = self._session
        connection = session.connection
        first = not waiting.started
        if first:
            waiting.started = True
            delivery.id = session._next_delivery_id
            session._next_delivery_id = (delivery.id + 1) & SERIAL_MASK
            link.delivery_count = (link.delivery_count + 1) & SERIAL_MASK
            if delivery.tag in link.unsettled and not delivery.settled:
                session._outgoing[delivery.id] = delivery
        room = connection.remote_max_frame_size - len(self._transfer_head(waiting, first, True, 0))
        more = waiting.left > room
        size = room if more else waiting.left
        session.remote_incoming_window -= 1
        session.next_outgoing_id = (session.next_outgoing_id + 1) & SERIAL_MASK
        connection._sink.append(self._transfer_head(waiting, first, more, size))
        connection._sink.extend(waiting.take(size))
        connection.frames_out += 1
        return not more

    def _transfer_head(self, waiting: _Waiting, first: bool, more: bool, size: int) -> bytes:
        delivery = waiting.delivery
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
            waiting.aborted,
            delivery.resumed and first,
            None,
            delivery.batchable and first,
        )

    def drop(self, link: Link) -> None:
        kept = [each for each in self.queue if each.delivery.link is not link]
        self.queue.clear()
        self.queue.extend(kept)
        link._queued = 0
        link._drain_waits = False


__all__ = ["Outbox"]
