# SPDX-License-Identifier: Apache-2.0
"""Senders and receivers of the command line's client (`amqproute.cli.client`).

Sends are pipelined: `Sender.submit` returns a Deferred of the outcome at once, and sends when there
is credit. At most `ClientTimeouts.window` messages wait for credit or for their outcome;
`Sender.send` and `Sender.room` keep to it.

A `Receiver` grants credit for the requested number of messages and no more, so that no unwanted
message leaves the queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import BinaryIO, Final, Protocol, TypeVar

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime

from amqproute import conditions
from amqproute.cli.command_error import NEGATIVE, ClientError
from amqproute.client.client_core import LinkEvent
from amqproute.client.link_terms import OUTCOMES, refused_term
from amqproute.errors import LocalProtocolError, MessageSizeExceeded
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.engine_events import (
    DeliveriesReceived,
    DeliveriesUpdated,
    LinkAttached,
    LinkFlowed,
    PartsReceived,
)
from amqproute.wire.amqp10.link import Delivery, Link

__all__ = ["LinkCarrier", "Receiver", "Sender"]

PART_BYTES: Final = 256 * 1024
"""Octets of a file that are sent at a time."""

RECEIVER_CREDIT: Final = 100
"""The most credit a receiver grants at a time."""

_T = TypeVar("_T")


class LinkCarrier(Protocol):
    """The connection of links, as far as they use it."""

    @property
    def clock(self) -> IReactorTime:
        """The clock."""

    @property
    def answer_seconds(self) -> float:
        """Seconds to wait for each answer of the broker."""

    @property
    def is_paused(self) -> bool:
        """Whether the transport's buffer is full."""

    def flush_now(self) -> None:
        """Write the engine's output."""

    def flush(self) -> None:
        """Schedule the write of the engine's output."""

    async def wait(self, what: Deferred[_T], words: str, seconds: float | None = None) -> _T:
        """Wait for an answer."""

    async def stirred(self, what: str) -> None:
        """Wait for an event that a link may wait for."""

    def forget(self, link: Link) -> None:
        """Remove a link."""


class Sender:
    """A link to send on.

    Attributes:
        name: the address, for messages to people.
        link: the engine's link.
    """

    link: Link

    def __init__(self, client: LinkCarrier, name: str, window: int) -> None:
        self.name = name
        self._client = client
        self._window = window
        self._attached: Deferred[None] = Deferred()
        self._waiting: deque[tuple[Sequence[bytes], Deferred[spec.DeliveryState]]] = deque()
        self._in_progress: dict[Delivery, Deferred[spec.DeliveryState]] = {}
        self._room: Deferred[None] | None = None
        self._failure: ClientError | None = None
        self._has_file = False  # one that has not been started
        self._next_tag = 0

    def __repr__(self) -> str:
        return (
            f"<Sender {self.name} waiting={len(self._waiting)} under-way={len(self._in_progress)}>"
        )

    @property
    def pending(self) -> int:
        """Messages without an outcome."""
        return len(self._waiting) + len(self._in_progress)

    @property
    def waits_for_credit(self) -> bool:
        """Whether messages wait for credit."""
        return (bool(self._waiting) or self._has_file) and self.link.credit <= 0

    async def attached(self, link: Link) -> None:
        """Wait for the broker's answer to the attach."""
        self.link = link
        self._client.flush()
        await self._client.wait(self._attached, f"answer to the link to {self.name!r}")

    async def send(self, encoded: bytes) -> spec.DeliveryState:
        """Send one message and return its outcome.

        Raises:
            ClientError: there is no outcome.
        """
        await self.room()
        outcome = self.submit(encoded)
        return await self._client.wait(outcome, f"outcome for a message to {self.name!r}")

    def submit(self, encoded: bytes) -> Deferred[spec.DeliveryState]:
        """Send once there is credit; the Deferred fires with the outcome, or a `ClientError`."""
        outcome: Deferred[spec.DeliveryState] = Deferred(self._abandon)
        if self._failure is not None:
            outcome.errback(self._failure)
            return outcome
        self._waiting.append(((encoded,), outcome))
        self._push()
        return outcome

    async def send_file(self, head: bytes, file: BinaryIO, size: int) -> spec.DeliveryState:
        """Send one message from a file in parts, and return its outcome.

        Args:
            head: octets of the message before those of the file.
            file: read from its current position.
            size: number of its octets to send.

        Raises:
            ClientError: there is no outcome, or the file ended early.
        """
        await self.settled()
        what = f"room for a message to {self.name!r}"
        self._has_file = True
        try:
            while self.link.credit <= 0:
                await self._client.stirred(what)
                self._raise_failure()
        finally:
            self._has_file = False
        tag = self._next_tag.to_bytes(8, "big")
        self._next_tag += 1
        try:
            outgoing = self.link.send_parts(len(head) + size, tag)
        except MessageSizeExceeded as error:
            raise ClientError(NEGATIVE, error.condition, error.description) from None
        outcome: Deferred[spec.DeliveryState] = Deferred()
        self._in_progress[outgoing.delivery] = outcome
        outgoing.append([head])
        while outgoing.missing and not outcome.called:
            if self._client.is_paused or not outgoing.is_clear:
                await self._client.stirred(what)
                self._raise_failure()
                continue
            part = file.read(min(PART_BYTES, outgoing.missing))
            if not part:
                outgoing.abort()
                self._client.flush()
                raise ClientError(NEGATIVE, "usage.file", "the file became shorter meanwhile")
            outgoing.append([part])
            self._client.flush_now()
        outgoing.abort()  # without effect, unless the broker has refused it meanwhile
        self._client.flush()
        return await self._client.wait(outcome, f"outcome for a message to {self.name!r}")

    async def room(self) -> None:
        """Wait until fewer than `ClientTimeouts.window` messages are pending.

        Raises:
            ClientError: nothing moved for `ClientTimeouts.answer_seconds`, or the link is gone.
        """
        self._raise_failure()
        while self.pending >= self._window:
            self._room = Deferred()
            await self._moved(self._room)
            self._raise_failure()

    async def settled(self) -> None:
        """Wait until everything submitted has its outcome.

        Raises:
            ClientError: nothing moved for `ClientTimeouts.answer_seconds`, or the link is gone.
        """
        self._raise_failure()
        while self.pending:
            self._room = Deferred()
            await self._moved(self._room)
            self._raise_failure()

    async def close(self) -> None:
        """Close the link."""
        self._client.forget(self.link)
        self.link.detach()
        self._client.flush()

    async def _moved(self, moved: Deferred[None]) -> None:
        moved.addTimeout(self._client.answer_seconds, self._client.clock)
        try:
            await moved
        except TimeoutError:
            raise self._stuck() from None

    def _stuck(self) -> ClientError:
        limit = self._client.answer_seconds
        if self._waiting and not self._in_progress:
            return ClientError(
                NEGATIVE,
                "client.no-credit",
                f"the broker takes no messages for {self.name!r}: no credit for {limit:g} s",
                "amqproute status says what holds publishers back; amqproute queue ls whether the "
                "queue is at its capacity; amqproute contract ls whether the sender is at a bound",
            )
        return ClientError(
            NEGATIVE,
            "client.no-outcome",
            f"no outcome for {len(self._in_progress)} messages to {self.name!r} within {limit:g} s",
            "they may or may not have been taken; see the log of the broker",
        )

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _abandon(self, outcome: Deferred[spec.DeliveryState]) -> None:
        """Stop waiting for the outcome of a message; one that has not been sent is removed."""
        for item in self._waiting:
            if item[1] is outcome:
                self._waiting.remove(item)
                break

    def _push(self) -> None:
        link = self.link
        while self._waiting and link.credit > 0:
            parts, outcome = self._waiting.popleft()
            tag = self._next_tag.to_bytes(8, "big")
            self._next_tag += 1
            try:
                delivery = link.send(parts, tag)
            except MessageSizeExceeded as error:
                outcome.errback(ClientError(NEGATIVE, error.condition, error.description))
                continue
            except LocalProtocolError:
                self._waiting.appendleft((parts, outcome))  # its end is already on its way to us
                return
            self._in_progress[delivery] = outcome
        self._client.flush()
        self._wake()

    def _wake(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.called:
            room.callback(None)

    def event(self, event: LinkEvent) -> None:
        """Handle an event of the link."""
        match event:
            case LinkAttached():
                # A null target: refused, and the detach that follows says why (§2.6.3).
                if event.attach.target is not None and not self._attached.called:
                    self._attached.callback(None)
            case LinkFlowed():
                self._push()
            case DeliveriesUpdated():
                self._updated(event)

    def _updated(self, event: DeliveriesUpdated) -> None:
        if not event.settled and not isinstance(event.state, OUTCOMES):
            return
        if not event.settled:
            self.link.session.settle(event.deliveries)
        for delivery in event.deliveries:
            outcome = self._in_progress.pop(delivery, None)
            if outcome is not None and not outcome.called:
                # Settled without an outcome: the default, which for us is released (O-11).
                outcome.callback(event.state if event.state is not None else spec.Released())
        self._push()

    def fail(self, error: ClientError) -> None:
        """Fail all pending messages: the link has ended."""
        self._failure = error
        pending = [outcome for _, outcome in self._waiting]
        pending += self._in_progress.values()
        self._waiting.clear()
        self._in_progress.clear()
        if not self._attached.called:
            self._attached.errback(error)
        for outcome in pending:
            if not outcome.called:
                outcome.errback(error)
        self._wake()


class Receiver:
    """A link to receive on.

    Attributes:
        name: the node, for messages to people.
        address: the node as the broker named it.
        link: the engine's link.
    """

    link: Link

    def __init__(self, client: LinkCarrier, name: str, wanted: int) -> None:
        self.name = name
        self.address = name
        self._client = client
        self._left = wanted or None  # credit still to be granted; None for no limit
        self._attached: Deferred[None] = Deferred()
        self._arrived: deque[Delivery | PartsReceived] = deque()
        self._waiter: Deferred[None] | None = None
        self._failure: ClientError | None = None

    def __repr__(self) -> str:
        return f"<Receiver {self.name} arrived={len(self._arrived)} left={self._left}>"

    async def attached(self, link: Link, browses: bool = False, selects: bool = False) -> None:
        """Wait for the broker's answer to the attach, then grant credit.

        Args:
            link: the engine's link.
            browses: the answer must confirm that messages stay.
            selects: the answer must confirm the selector.
        """
        self.link = link
        self._client.flush()
        await self._client.wait(self._attached, f"answer to the link from {self.name!r}")
        refused = refused_term(link, browses=browses, selects=selects)
        if refused:
            await self.close()
            words = f"{self.name!r} does not {refused}"
            raise ClientError(NEGATIVE, conditions.NOT_IMPLEMENTED, words)
        assert link.source is not None
        self.address = link.source.address or self.name
        self._grant()

    async def next(self, seconds: float | None = None) -> Delivery | None:
        """Return the next message; None if none came within `seconds` (None: wait for ever).

        Raises:
            ClientError: the link or the connection ended.
        """
        arrived = await self.next_part(seconds)
        assert not isinstance(arrived, PartsReceived), "asked for in parts"
        return arrived

    async def next_part(self, seconds: float | None = None) -> Delivery | PartsReceived | None:
        """Return the next message, or the next part of a large one; see `next`.

        Only a receiver made with ``in_parts`` gets parts. Call `took` when a part is processed.
        """
        if not self._arrived:
            if self._failure is not None:
                raise self._failure
            waiter: Deferred[None] = Deferred()
            self._waiter = waiter
            if seconds is not None:
                waiter.addTimeout(seconds, self._client.clock)
            try:
                await waiter
            except TimeoutError:
                return None
            finally:
                self._waiter = None
        return self._arrived.popleft()

    def took(self, event: PartsReceived) -> None:
        """Allow more octets of a large message."""
        self.link.session.took(sum(map(len, event.parts)))
        self._client.flush()

    def accept(self, delivery: Delivery) -> None:
        """Accept a message: the broker removes it."""
        self.link.session.settle((delivery,), spec.Accepted())
        self._grant()
        self._client.flush()

    async def close(self) -> None:
        """Close the link; messages not accepted return to their queue."""
        self._client.forget(self.link)
        self.link.detach()
        self._client.flush()

    def _grant(self) -> None:
        link = self.link
        full = RECEIVER_CREDIT if self._left is None else min(RECEIVER_CREDIT, self._left)
        if link.credit < full and (link.credit <= full // 2):
            link.flow(full)
            self._client.flush()

    def event(self, event: LinkEvent) -> None:
        """Handle an event of the link."""
        match event:
            case LinkAttached():
                if event.attach.source is not None and not self._attached.called:
                    self._attached.callback(None)
            case DeliveriesReceived():
                self._arrived.extend(event.deliveries)
                if self._left is not None:
                    self._left -= len(event.deliveries)
                self._wake()
            case PartsReceived():
                self._arrived.append(event)
                if self._left is not None and event.is_last:
                    self._left -= 1
                self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.called:
            self._waiter.callback(None)

    def fail(self, error: ClientError) -> None:
        """Record the end of the link; arrived messages can still be read, but not accepted."""
        self._failure = error
        self._arrived.clear()
        if not self._attached.called:
            self._attached.errback(error)
        if self._waiter is not None and not self._waiter.called:
            self._waiter.errback(error)
