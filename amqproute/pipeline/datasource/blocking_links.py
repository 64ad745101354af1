# SPDX-License-Identifier: Apache-2.0
"""The two ends of a link that a `LinkHost` can have."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

from amqproute.client.client_core import LinkEvent
from amqproute.client.link_terms import OUTCOME_SYMBOLS, OUTCOMES
from amqproute.errors import MessageSizeExceeded
from amqproute.pipeline.datasource.place import BrokerEndpoint, DataSourceError
from amqproute.values import EXACTLY_ONCE_CAPABILITY, STREAM
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.engine_events import (
    DeliveriesReceived,
    DeliveriesUpdated,
    LinkAttached,
)
from amqproute.wire.amqp10.link import Delivery, Link
from amqproute.wire.amqp10.session import Session
from amqproute.wire.amqp10.types import Symbol

__all__ = ["CREDIT", "ReceivingLink", "SendingLink"]

CREDIT: Final = 1000
"""Messages asked for at a time, and sent without an outcome."""

_FEW: Final = 100
_FULL_SECONDS: Final = 1.0
"""Where there is no credit after a few deliveries, it is more likely that the queue is full: there
is so much time for it to take more."""


class LinkHost(Protocol):
    """What a link's end needs of its connection: to wait, to write, to be told events."""

    place: BrokerEndpoint

    @property
    def session(self) -> Session:
        """The connection's one session."""

    def join(self, link: Link, end: ReceivingLink | SendingLink) -> None:
        """Tell an end what happens on its link, and wait until it is attached."""

    def forget(self, link: Link) -> None:
        """Tell nobody any more what happens on a link."""

    def wait(self, done: Callable[[], object], what: str, seconds: float | None = None) -> None:
        """Go on until something is true.

        Raises:
            DataSourceError: it did not become true in time, or the connection ended.
        """

    def step(self, seconds: float) -> bool:
        """Write what is to be written, take what comes in this time; return whether it did."""

    def flush(self) -> None:
        """Write what the engine has to say."""


class ReceivingLink:
    """A link to receive on.

    Attributes:
        name: for messages to people.
        stream: names the store that numbers the entries; empty where tags are just tags.
    """

    def __init__(self, client: LinkHost, link: Link, node: str) -> None:
        self.name = f"{node!r}"
        self.stream = ""
        self.is_attached = False
        self._client = client
        self._link = link
        self._arrived: deque[Delivery] = deque()
        self._settled = 0

    def event(self, event: LinkEvent) -> None:
        """Act on what has happened on the link."""
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

    def settle(self, deliveries: Sequence[Delivery], outcome: spec.Outcome) -> None:
        """Tell the outcome of deliveries; the broker settles when it is on its disk."""
        self._client.session.settle(deliveries, outcome, settled=False)

    def leave(self, deliveries: Sequence[Delivery]) -> None:
        """Have messages go back to their places, and not come again on this link."""
        outcome = spec.Modified(delivery_failed=False, undeliverable_here=True)
        self._client.session.settle(deliveries, outcome)

    def settled(self, count: int) -> None:
        """Wait until the broker has settled so many in all."""
        self._client.wait(lambda: self._settled >= count, f"settlement by {self.name}")

    def close(self) -> None:
        """Close the link; what has no outcome goes back to its queue."""
        self._client.forget(self._link)
        self._link.detach()
        self._client.flush()


class SendingLink:
    """Links to send on, one after the other.

    What is sent exactly once stays unsettled on our side, so that the broker remembers it, and the
    broker bounds what a link may have unsettled: as many as it gives credit for. When a link is
    full the next one is attached, by the same name with a higher number. Another attempt attaches
    them in the same order and hears what each had, up to the one that had nothing.

    Attributes:
        name: for messages to people.
        known: the tags that the broker knows from earlier attempts, with their outcomes.
        outcomes: those that have come since, by tag.
    """

    def __init__(
        self, client: LinkHost, address: str | None, link_name: str, exactly_once: bool
    ) -> None:
        self.name = "the addresses of the messages" if address is None else repr(address)
        self.is_attached = False
        self.known: dict[bytes, Any] = {}
        self.outcomes: dict[bytes, Any] = {}
        self._exactly_once = exactly_once
        self._client = client
        self._address = address
        self._link_name = link_name
        self._number = -1
        self._pending: set[bytes] = set()
        self._unconfirmed = 0

    def begin(self) -> None:
        """Attach, and hear what the broker knows of earlier attempts."""
        while self._attach_next():
            self.leave()

    def forget(self) -> None:
        """Have the broker forget all earlier attempts."""
        while self._attach_next():
            self.end()
        self.end()

    def _attach_next(self) -> bool:
        """Attach the next link; tell whether the broker knows something of it."""
        once = self._exactly_once
        known = len(self.known)
        mode: dict[str, Any] = {Symbol("delivery-mode"): Symbol("exactly-once")}
        self._number += 1
        self._unconfirmed = 0
        self._link = self._client.session.attach(
            f"{self._link_name}.{self._number}",
            "sender",
            spec.Source(outcomes=OUTCOME_SYMBOLS),
            spec.Target(address=self._address),
            snd_settle_mode=spec.SENDER_UNSETTLED,
            rcv_settle_mode=spec.RECEIVER_SECOND if once else spec.RECEIVER_FIRST,
            desired_capabilities=(EXACTLY_ONCE_CAPABILITY,) if once else (),
            properties=mode if once else None,
            # We have lost our memory, and want to hear theirs rather than have it wiped out.
            incomplete_unsettled=once,
        )
        self._client.join(self._link, self)
        return len(self.known) > known

    def event(self, event: LinkEvent) -> None:
        """Act on what has happened on the link."""
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
        if self._exactly_once:
            place = self._client.place
            mode = (attach.properties or {}).get(Symbol("delivery-mode"))
            if mode != "exactly-once" or attach.incomplete_unsettled:
                raise DataSourceError(
                    f"{self.name} at {place} cannot be sent to exactly once: the broker does not "
                    "offer it, or has more to say of a link than fits into a frame; see the option "
                    "delivery"
                )
        self.known.update(attach.unsettled or {})
        self.is_attached = True

    def send(self, parts: Sequence[bytes], tag: bytes, window: int = CREDIT) -> None:
        """Send one message, as soon as there is credit and fewer than `window` are pending.

        Raises:
            DataSourceError: it is larger than the broker takes, or nothing moved for too long.
        """
        wait = self._client.wait
        if len(self._pending) >= window:
            wait(lambda: len(self._pending) < window, f"outcome for messages to {self.name}")
        if self._link.credit <= 0 and self._exactly_once:
            self._go_on()
        if self._link.credit <= 0:
            wait(lambda: self._link.credit > 0, f"credit to send to {self.name}")
        try:
            self._link.send(parts, tag)
        except MessageSizeExceeded as error:
            raise DataSourceError(f"a message to {self.name}: {error.description}") from None
        self._pending.add(tag)
        if len(self._pending) % 64 == 0:
            self._client.step(0)

    def _go_on(self) -> None:
        """Go on with the next link if it is this one that is full, and not the queue."""
        self.finished()
        if self._unconfirmed < _FEW:
            deadline = time.monotonic() + _FULL_SECONDS
            while self._link.credit <= 0 and (left := deadline - time.monotonic()) > 0:
                self._client.step(left)
        if self._link.credit <= 0 and self._unconfirmed:
            self.leave()
            self._attach_next()

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
        self.is_attached = False
        self._client.forget(self._link)
        self._link.detach()
        self._client.flush()
