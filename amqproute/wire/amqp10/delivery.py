# SPDX-License-Identifier: Apache-2.0
"""One delivery: the object that a message travels in through the engine (part 2 §2.6.12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amqproute.wire.amqp10.link import Link


class Delivery:
    """One delivery on one link.

    Attributes:
        link: the link it belongs to.
        id: the session's number for it; -1 while an outgoing one waits for the session window.
        tag: the sender's name for it, unique among the link's unsettled deliveries.
        payload: the complete message; incoming only. Of one that came in parts: what the user has
            put here.
        rest: where the user has put the rest of one that came in parts.
        message_format: 0 for the format of part 3.
        settled: nothing more will be said about it. For one that just arrived: it was sent
            settled.
        state: what the peer last said about it.
        local_state: what we last said about it.
        context: the user's.
        batchable: the sender does not mind if it is settled together with later ones (P-06).
        resumed: it continues an unsettled delivery of an earlier attachment.
        rcv_settle_mode: ``spec.RECEIVER_SECOND`` when the sender settles first and the receiver
            only then forgets (incoming only).
    """

    __slots__ = (
        "batchable",
        "context",
        "id",
        "link",
        "local_state",
        "message_format",
        "payload",
        "rcv_settle_mode",
        "rest",
        "resumed",
        "settled",
        "state",
        "tag",
    )

    def __init__(
        self,
        link: Link,
        delivery_id: int,
        tag: bytes,
        payload: bytes,
        message_format: int,
        settled: bool,
        state: Any,
        batchable: bool,
        resumed: bool,
        rcv_settle_mode: int,
    ) -> None:
        self.link = link
        self.id = delivery_id
        self.tag = tag
        self.payload = payload
        self.rest: Any = None
        self.message_format = message_format
        self.settled = settled
        self.state = state
        self.local_state: Any = None
        self.context: Any = None
        self.batchable = batchable
        self.resumed = resumed
        self.rcv_settle_mode = rcv_settle_mode

    def __repr__(self) -> str:
        settled = " settled" if self.settled else ""
        return f"<Delivery {self.id} tag={self.tag.hex()} on {self.link.name!r}{settled}>"


__all__ = ["Delivery"]
