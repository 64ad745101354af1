# SPDX-License-Identifier: Apache-2.0
"""The two ends of a link that a `client.Client` can have."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from amqproute.errors import MessageSizeExceeded
from amqproute.pipeline.datasource.place import SourceError
from amqproute.values import STREAM
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.events import (
    DeliveriesReceived,
    DeliveriesUpdated,
    LinkAttached,
)
from amqproute.wire.amqp10.link import Delivery, Link
from amqproute.wire.amqp10.states import State
from amqproute.wire.amqp10.types import Symbol

if TYPE_CHECKING:
    from amqproute.pipeline.datasource.client import Client

__all__ = ["CREDIT", "SYMBOLS", "Receiving", "Sending"]

CREDIT: Final = 1000
"""Messages asked for at a time, and sent without an outcome."""

OUTCOMES: Final = (spec.Accepted, spec.Rejected, spec.Released, spec.Modified)
SYMBOLS: Final = tuple(each.symbol for each in OUTCOMES)


class Receiving:
    """A link to receive on.

    Attributes:
        name: for messages to people.
        stream: with ``by_entry``: names the store that numbers the entries.
    """

    def __init__(self, client: Client, link: Link, node: str) -> None:
        self.name = f"{node!r}"
        self.stream = ""
        self.is_attached = False
        self._client = client
        self._link = link
        self._arrived: deque[Delivery] = deque()
        self._settled = 0

    def event(self, event: Any) -> None:
        """Take what the engine tells about the link."""
        match event:
            case LinkAttached():
                if event.attach.source is not None:
                    self.stream = str((event.attach.properties or {}).get(STREAM) or "")
                    self.is_attached = True
            case DeliveriesReceived():
                self._arrived.extend(event.deliveries)
            case DeliveriesUpdated():
                self._settled += len(event.deliveries) if event.settled else 0

    def available(self, ask: Callable[[], int]) -> Iterator[Delivery]:
        """Yield what there is now.

        The end is the broker's word: with a drained link it says that it has nothing else
        (part 2 §2.6.7).

        Args:
            ask: how many to ask for next; 0 for no more.
        """
        link = self._link
        while asked := ask():
            # `arrives` may have brought one already.
            link.flow(max(0, asked - len(self._arrived)), drain=True)
            came = 0
            while link.credit > 0 or self._arrived:
                self._client.wait(
                    lambda: self._arrived or link.credit <= 0, f"messages of {self.name}"
                )
                while self._arrived:
                    came += 1
                    yield self._arrived.popleft()
            if came < asked:
                return

    def arrives(self, seconds: float) -> bool:
        """Wait for a first message; it is then the first of what is `available`."""
        self._link.flow(1)
        deadline = time.monotonic() + seconds
        while not self._arrived and (left := deadline - time.monotonic()) > 0:
            self._client.step(left)
        return bool(self._arrived)

    def settle(self, deliveries: Sequence[Delivery], outcome: Any) -> None:
        """Tell the outcome of deliveries; the broker settles when it is on its disk."""
        self._client.session.settle(deliveries, outcome, settled=False)

    def leave(self, delivery: Delivery) -> None:
        """Have a message go back to its place, and not come again on this link."""
        outcome = spec.Modified(delivery_failed=False, undeliverable_here=True)
        self._client.session.settle((delivery,), outcome)

    def settled(self, count: int) -> None:
        """Wait until the broker has settled so many in all."""
        self._client.wait(lambda: self._settled >= count, f"settlement by {self.name}")

    def close(self) -> None:
        """Close the link; what has no outcome goes back to its queue."""
        self._client.forget(self._link)
        self._link.detach()
        self._client.flush()


class Sending:
    """A link to send on.

    Attributes:
        name: for messages to people.
        known: the tags that the broker knows from earlier attachments, with their outcomes.
        outcomes: those that have come since, by tag.
    """

    def __init__(
        self, client: Client, address: str | None, link_name: str, exactly_once: bool
    ) -> None:
        self.name = "the addresses of the messages" if address is None else repr(address)
        self.is_attached = False
        self.known: Mapping[bytes, Any] = {}
        self.outcomes: dict[bytes, Any] = {}
        self._exactly_once = exactly_once
        self._client = client
        self._address = address
        self._link_name = link_name
        self._pending: set[bytes] = set()
        self._unconfirmed = 0

    def attach(self, keep: Mapping[bytes, Any] | None = None) -> None:
        """Attach, and hear what the broker knows of earlier attachments.

        Args:
            keep: it may forget all other tags; None: it keeps them.
        """
        once = self._exactly_once
        mode: dict[str, Any] = {Symbol("delivery-mode"): Symbol("exactly-once")}
        self._link = self._client.session.attach(
            self._link_name,
            "sender",
            spec.Source(outcomes=SYMBOLS),
            spec.Target(address=self._address),
            snd_settle_mode=spec.SENDER_UNSETTLED,
            rcv_settle_mode=spec.RECEIVER_SECOND if once else spec.RECEIVER_FIRST,
            properties=mode if once else None,
            # We have lost our memory, and want to hear theirs rather than have it wiped out.
            unsettled=keep,
            incomplete_unsettled=once and keep is None,
        )
        self._unconfirmed = 0
        self._client.join(self._link, self)

    def event(self, event: Any) -> None:
        """Take what the engine tells about the link."""
        match event:
            case LinkAttached():
                if event.attach.target is not None:
                    self._attached(event.attach)
            case DeliveriesUpdated():
                if event.settled or isinstance(event.state, OUTCOMES):
                    self._decided(event)

    def _decided(self, event: DeliveriesUpdated) -> None:
        state = event.state if event.state is not None else spec.Released()
        for delivery in event.deliveries:
            if delivery.tag in self._pending:
                self._pending.discard(delivery.tag)
                self.outcomes[delivery.tag] = state
        if event.settled:
            return
        if self._exactly_once and isinstance(state, spec.Accepted):
            self._unconfirmed += len(event.deliveries)
        else:
            # Forget what was not taken: another attempt is a new message.
            self._client.session.settle(event.deliveries)

    def _attached(self, attach: spec.Attach) -> None:
        self.known = attach.unsettled or {}
        if self._exactly_once:
            place = self._client.place
            if (attach.properties or {}).get(Symbol("delivery-mode")) != "exactly-once":
                raise SourceError(
                    f"{self.name} at {place} cannot be sent to exactly once; see the option "
                    "delivery"
                )
            if attach.incomplete_unsettled:
                raise SourceError(
                    f"{place} remembers more messages of this task than fit into a frame: use "
                    "more partitions, or the option delivery"
                )
        self.is_attached = True

    def send(self, parts: Sequence[bytes], tag: bytes, window: int = CREDIT) -> None:
        """Send one message, as soon as there is credit and fewer than `window` are pending.

        Raises:
            SourceError: it is larger than the broker takes, or nothing moved for too long.
        """
        wait = self._client.wait
        if len(self._pending) >= window:
            wait(lambda: len(self._pending) < window, f"outcome for messages to {self.name}")
        if self._link.credit <= 0 and self._unconfirmed + len(self._pending):
            self._renew()
        if self._link.credit <= 0:
            wait(lambda: self._link.credit > 0, f"credit to send to {self.name}")
        try:
            self._link.send(parts, tag)
        except MessageSizeExceeded as error:
            raise SourceError(f"a message to {self.name}: {error.description}") from None
        self._pending.add(tag)
        if len(self._pending) % 64 == 0:
            self._client.step(0)

    def _renew(self) -> None:
        """Attach anew where that gives credit.

        The broker bounds the deliveries of an attachment that the sender has not settled; those of
        earlier attachments are remembered all the same, and do not count.
        """
        self.finished()
        if self._link.credit <= 0 and self._unconfirmed:
            self._again()

    def _again(self, keep: Mapping[bytes, Any] | None = None) -> None:
        link = self._link
        self.leave()
        self._client.wait(lambda: link.state is State.DONE, "answer to the detach")
        self.attach(keep)

    def forget(self, is_stale: Callable[[bytes], bool]) -> None:
        """Have the broker forget tags of earlier attachments."""
        if any(map(is_stale, self.known)):
            self._again({tag: each for tag, each in self.known.items() if not is_stale(tag)})

    def finished(self) -> None:
        """Wait until everything sent has its outcome."""
        self._client.wait(lambda: not self._pending, f"outcome for messages to {self.name}")

    def flush(self) -> None:
        """Write what is to be written."""
        self._client.flush()

    def leave(self) -> None:
        """Detach, and have the broker keep what it knows."""
        self.is_attached = False
        self._client.forget(self._link)
        self._link.detach(closed=False)
        self._client.flush()

    def end(self) -> None:
        """Close: the broker forgets what it knows of the link."""
        self._client.forget(self._link)
        self._link.detach()
        self._client.flush()
