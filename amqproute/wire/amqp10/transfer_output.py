# SPDX-License-Identifier: Apache-2.0
"""Transfers that do not go out at once: several frames, a state, a closed window (part 2 §2.5.6).

`Link.send` puts the usual delivery, one frame with room in the window, on the wire itself. The
others come here: a `TransferOutput` holds them in the order of `send` and cuts them into frames as
far as the peer's window goes. Buffers are sliced, not copied.

A delivery in parts (`Link.send_parts`) stands in line only with what has been appended and not
sent: what other links send goes out between its parts, in the order in which both were given. So
whoever appends a little at a time, and only when `OutgoingParts.is_clear`, holds nobody up and
holds little in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from amqproute.errors import LocalProtocolError
from amqproute.wire.amqp10.delivery import Delivery
from amqproute.wire.amqp10.fastpath import write_transfer
from amqproute.wire.amqp10.serial_numbers import SERIAL_MASK

if TYPE_CHECKING:
    from amqproute.wire.amqp10.link import Link
    from amqproute.wire.amqp10.session import Session


class _Waiting:
    """A delivery, or the rest of one, that waits for the peer's window.

    Attributes:
        left: octets that wait.
        missing: octets that have not been appended yet.
        is_queued: it stands in line.
    """

    __slots__ = ("aborted", "buffers", "delivery", "is_queued", "left", "missing", "started")

    def __init__(
        self, delivery: Delivery, parts: Sequence[bytes], size: int, aborted: bool
    ) -> None:
        self.delivery = delivery
        self.buffers = deque(memoryview(part) for part in parts)
        self.left = size
        self.missing = 0
        self.aborted = aborted
        self.started = False
        self.is_queued = False

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


class OutgoingParts:
    """A delivery whose octets are appended, a part at a time. Made by `Link.send_parts`.

    Attributes:
        delivery: the delivery.
        is_over: it has ended: sent to the end, aborted, or gone with its link.
    """

    __slots__ = ("_outbox", "_waiting", "delivery", "is_over")

    def __init__(self, outbox: TransferOutput, waiting: _Waiting) -> None:
        self._outbox = outbox
        self._waiting = waiting
        self.delivery = waiting.delivery
        self.is_over = False

    def __repr__(self) -> str:
        return f"<OutgoingParts {self.delivery!r} missing={self.missing}>"

    @property
    def missing(self) -> int:
        """Octets that have not been appended yet."""
        return self._waiting.missing

    @property
    def is_clear(self) -> bool:
        """Nothing of it waits for the peer's window: more can be appended."""
        return not self._waiting.is_queued

    def append(self, parts: Sequence[bytes]) -> None:
        """Send more octets. What does not fill a frame is kept until more comes.

        Nothing happens when the delivery is over.

        Raises:
            LocalProtocolError: these are more than were announced.
        """
        if self.is_over:
            return
        waiting = self._waiting
        size = sum(map(len, parts))
        if size > waiting.missing:
            raise LocalProtocolError(
                f"{size} octets more for a delivery that lacks {waiting.missing}"
            )
        waiting.missing -= size
        waiting.left += size
        waiting.buffers.extend(memoryview(part) for part in parts)
        self._outbox.resume(waiting)

    def abort(self) -> None:
        """Give the delivery up (part 2 §2.7.5, aborted): the peer forgets what it has of it.

        Nothing happens when the delivery is over.
        """
        if not self.is_over:
            self._outbox.abort(self._waiting)


class TransferOutput:
    """What waits in one session.

    Attributes:
        queue: the deliveries, or what is left of them, in the order of `Link.send`.
    """

    __slots__ = ("_session", "queue")

    def __init__(self, session: Session) -> None:
        self._session = session
        self.queue: deque[_Waiting] = deque()

    def let_go(self) -> None:
        """Forget the session, which is over. Nothing else may be called any more."""
        del self._session

    def add(self, delivery: Delivery, parts: Sequence[bytes], size: int, aborted: bool) -> None:
        """Take a whole delivery."""
        delivery.link._queued += 1
        self._stand(_Waiting(delivery, parts, size, aborted))

    def open(self, delivery: Delivery, size: int) -> OutgoingParts:
        """Take a delivery of so many octets, which are to follow."""
        waiting = _Waiting(delivery, (), 0, False)
        waiting.missing = size
        delivery.link._queued += 1
        return OutgoingParts(self, waiting)

    def resume(self, waiting: _Waiting) -> None:
        """Some octets have come: send what fills frames."""
        if not waiting.is_queued and not self._lacks(waiting):
            self._stand(waiting)

    def abort(self, waiting: _Waiting) -> None:
        """Drop what waits of a delivery, and tell the peer, if it knows of it."""
        delivery = waiting.delivery
        link = delivery.link
        waiting.buffers.clear()
        waiting.left = waiting.missing = 0
        delivery.settled = True
        link.unsettled.pop(delivery.tag, None)
        if waiting.started:
            self._session._outgoing.pop(delivery.id, None)
            waiting.aborted = True
            if not waiting.is_queued:
                self._stand(waiting)
            return
        if waiting.is_queued:
            self.queue.remove(waiting)
        link._queued -= 1
        link.credit += 1
        self._ended(waiting)

    def _stand(self, waiting: _Waiting) -> None:
        waiting.is_queued = True
        self.queue.append(waiting)
        self.flush()

    def flush(self) -> None:
        """Send what waits, as far as the peer's window goes."""
        session = self._session
        queue = self.queue
        while queue and session.remote_incoming_window > 0:
            waiting = queue[0]
            if self._lacks(waiting):
                waiting.is_queued = False  # until more is appended
                queue.popleft()
            elif self._send_frame(waiting):
                queue.popleft()
                self._ended(waiting)

    def _ended(self, waiting: _Waiting) -> None:
        link = waiting.delivery.link
        if link._outgoing is not None and link._outgoing.delivery is waiting.delivery:
            link._end_outgoing()
        if link._drain_waits and not link._queued:
            link.drained()

    def _lacks(self, waiting: _Waiting) -> bool:
        """Tell whether more has to be appended before there is a frame worth sending."""
        size = self._session.connection.remote_max_frame_size
        return waiting.missing > 0 and waiting.left < size

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
            link._queued -= 1  # from here on the count says that it has used a credit
            if delivery.tag in link.unsettled and not delivery.settled:
                session._outgoing[delivery.id] = delivery
        room = connection.remote_max_frame_size - len(self._transfer_head(waiting, first, True, 0))
        more = waiting.left > room or waiting.missing > 0
        size = room if waiting.left > room else waiting.left
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
        """Forget what waits of a link: it is being detached."""
        kept = [each for each in self.queue if each.delivery.link is not link]
        self.queue.clear()
        self.queue.extend(kept)
        link._end_outgoing()
        link._queued = 0
        link._drain_waits = False


__all__ = ["OutgoingParts", "TransferOutput"]
