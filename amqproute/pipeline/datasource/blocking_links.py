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
"""Credit given at a time, and most messages sent without an outcome."""

_FEW: Final = 100
_FULL_SECONDS: Final = 1.0
"""If there is no credit after a few deliveries, the queue is more likely full than the link:
seconds to wait for new credit."""


class LinkHost(Protocol):
    """The services of a connection for a link's end: waiting, writing, events."""

    place: BrokerEndpoint

    @property
    def session(self) -> Session:
        """The connection's one session."""

    def join(self, link: Link, end: ReceivingLink | SendingLink) -> None:
        """Pass a link's events to an end, and wait until it is attached."""

    def forget(self, link: Link) -> None:
        """Stop passing events of a link."""

    def wait(self, done: Callable[[], object], what: str, seconds: float | None = None) -> None:
        """Process events until a condition is true.

        Raises:
            DataSourceError: it did not become true in time, or the connection ended.
        """

    def step(self, seconds: float) -> bool:
        """Write pending octets, and process received ones; return whether there were any."""

    def flush(self) -> None:
        """Write the engine's output."""


class ReceivingLink:
    """A link to receive on.

    Attributes:
        name: the name for error texts.
        stream: the store that numbers the entries; empty if tags are just tags.
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
        """Handle an event of the link."""
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
        """Yield the messages available now.

        The broker determines the end: by draining the link it says that it has no more (part 2
        §2.6.7).

        Args:
            ask: the next number to request; 0 for no more.
            ask: how many to ask for next; 0 for no more.
        """
        link = self._link
        while asked := ask():
            # `arrives` may have received one already.
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
        """Send the outcome of deliveries; the broker settles when it is on its disk."""
        self._client.session.settle(deliveries, outcome, settled=False)

    def leave(self, deliveries: Sequence[Delivery]) -> None:
        """Return messages to their places, not to be delivered again on this link."""
        outcome = spec.Modified(delivery_failed=False, undeliverable_here=True)
        self._client.session.settle(deliveries, outcome)

    def settled(self, count: int) -> None:
        """Wait until the broker has settled this number in total."""
        self._client.wait(lambda: self._settled >= count, f"settlement by {self.name}")

    def close(self) -> None:
        """Close the link; messages without an outcome return to their queue."""
        self._client.forget(self._link)
        self._link.detach()
        self._client.flush()


class SendingLink:
    """Links to send on, one after the other.

    Exactly-once messages stay unsettled on our side, so that the broker remembers them, and the
    broker limits the unsettled messages of a link by its credit. When a link is full the next one
    is attached, with the same name and a higher number. Another attempt attaches them in the same
    order and learns the state of each, up to the first one without any.

    Attributes:
        name: the name for error texts.
        known: tags that the broker knows from earlier attempts, with their outcomes.
        outcomes: later outcomes, by tag.
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
        """Attach, and learn the state of earlier attempts from the broker."""
        while self._attach_next():
            self.leave()

    def forget(self) -> None:
        """Make the broker forget all earlier attempts."""
        while self._attach_next():
            self.end()
        self.end()

    def _attach_next(self) -> bool:
        """Attach the next link; return whether the broker has state of it."""
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
            # We have no state left, and want to learn the broker's instead of deleting it.
            incomplete_unsettled=once,
        )
        self._client.join(self._link, self)
        return len(self.known) > known

    def event(self, event: LinkEvent) -> None:
        """Handle an event of the link."""
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
            # Forget refused messages: another attempt is a new message.
            self._client.session.settle(event.deliveries)

    def _attached(self, attach: spec.Attach) -> None:
        if self._exactly_once:
            place = self._client.place
            mode = (attach.properties or {}).get(Symbol("delivery-mode"))
            if mode != "exactly-once" or attach.incomplete_unsettled:
                raise DataSourceError(
                    f"{self.name} at {place} cannot be sent to exactly once: the broker does not "
                    "offer it, or its state of a link does not fit into a frame; see the option "
                    "delivery"
                )
        self.known.update(attach.unsettled or {})
        self.is_attached = True

    def send(self, parts: Sequence[bytes], tag: bytes, window: int = CREDIT) -> None:
        """Send one message, as soon as there is credit and fewer than `window` are pending.

        Raises:
            DataSourceError: it is larger than the broker accepts, or nothing moved for too long.
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
        """Continue with the next link if this link is full, and not the queue."""
        self.finished()
        if self._unconfirmed < _FEW:
            deadline = time.monotonic() + _FULL_SECONDS
            while self._link.credit <= 0 and (left := deadline - time.monotonic()) > 0:
                self._client.step(left)
        if self._link.credit <= 0 and self._unconfirmed:
            self.leave()
            self._attach_next()

    def finished(self) -> None:
        """Wait for the outcomes of all sent messages."""
        self._client.wait(lambda: not self._pending, f"outcome for messages to {self.name}")

    def flush(self) -> None:
        """Write pending octets."""
        self._client.flush()

    def leave(self) -> None:
        """Detach; the broker keeps its state of the link."""
        self.is_attached = False
        self._client.forget(self._link)
        self._link.detach(closed=False)
        self._client.flush()

    def end(self) -> None:
        """Close; the broker forgets its state of the link."""
        self.is_attached = False
        self._client.forget(self._link)
        self._link.detach()
        self._client.flush()
