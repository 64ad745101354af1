# SPDX-License-Identifier: Apache-2.0
"""Deliveries of one sender that have to wait, in order.

A delivery waits for the DNS for its domain, the store, or the rest of its body. All deliveries
behind it wait as well, which keeps the order of a sender's messages. They stand in lines, one for
each cause, the oldest first. The line of the store is the first whenever there is one: it begins
with the deliveries of a failed batch, which came before all others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from itertools import islice
from typing import Generic, Protocol, TypeVar

from amqproute.broker.publish_gate import PublishGate

__all__ = ["WaitingDeliveries", "WaitingDelivery"]


class WaitingDelivery(Protocol):
    """An incoming message.

    Attributes:
        payload: its octets, as far as they are in memory.
    """

    payload: bytes


D = TypeVar("D", bound=WaitingDelivery)


class HeldOctets(Protocol):
    """Counter of the octets of waiting messages; see `ClientConnection.hold`."""

    def hold(self, size: int) -> None:
        """Add octets that wait."""

    def release(self, size: int) -> None:
        """Subtract octets that do not wait any more."""


class WaitingDeliveries(Generic[D]):
    """The lines.

    Args:
        gate: the gate of the store.
        octets: counter of the octets that wait.

    Attributes:
        lines: by their cause; read only. Nearly always empty.
    """

    __slots__ = ("_failed", "_gate", "_octets", "lines")

    def __init__(self, gate: PublishGate, octets: HeldOctets) -> None:
        self._gate = gate
        self._octets = octets
        self.lines: dict[Hashable, deque[D]] = {}
        # Number of deliveries of a failed batch at the head of the gate's line.
        self._failed = 0

    def deliveries(self) -> list[D]:
        """Return all of them, oldest first."""
        return [delivery for line in self.lines.values() for delivery in line]

    def wait_behind(self, delivery: D) -> None:
        """Add a delivery behind the last one."""
        next(reversed(self.lines.values())).append(delivery)
        self._octets.hold(len(delivery.payload))

    def wait_for(self, reason: Hashable, delivery: D) -> None:
        """Keep a delivery until `over` is called with the reason."""
        self.lines[reason] = deque([delivery])
        self._octets.hold(len(delivery.payload))

    def wait_for_gate(self, deliveries: Sequence[D], when_open: Callable[[], None]) -> None:
        """Keep the deliveries of a failed batch until the gate opens.

        Args:
            deliveries: the deliveries.
            when_open: called then; it has to call `over` with the gate.
        """
        line = self.lines.get(self._gate)
        if line is not None:
            later = [line.pop() for _ in range(len(line) - self._failed)]
            line.extend(deliveries)
            line.extend(reversed(later))
        elif deliveries:
            # First in line: these came before deliveries with other causes.
            self.lines = {self._gate: deque(deliveries), **self.lines}
            self._failed = 0
            self._gate.when_open(when_open)
        self._failed += len(deliveries)
        self._octets.hold(sum([len(each.payload) for each in deliveries]))

    def over(self, reason: Hashable, put: Callable[[list[D]], None]) -> None:
        """End the wait of a line.

        Args:
            reason: the reason of the line.
            put: called with its deliveries if nothing before them waits; some may wait again.
        """
        if reason not in self.lines:
            return
        reasons = list(self.lines)
        place = reasons.index(reason)
        line = self.lines.pop(reason)
        if place:
            self.lines[reasons[place - 1]].extend(line)  # earlier ones still wait
            return
        later, self.lines = self.lines, {}
        size = sum([len(delivery.payload) for delivery in line])
        put(list(line))
        self._octets.release(size)  # taken ones count as uncommitted by now
        if not self.lines:
            self.lines = later
        elif later:
            # Not all could be put: those behind wait for the same cause now.
            last = next(reversed(self.lines.values()))
            for each in later.values():
                last.extend(each)

    def take_failed(self, is_lost: Callable[[D], bool]) -> list[D]:
        """Remove deliveries from the store's line that are lost with their sender; return them."""
        line = self.lines.get(self._gate)
        if line is None:
            return []
        lost = [each for each in line if is_lost(each)]
        self._failed = sum([not is_lost(each) for each in islice(line, self._failed)])
        self.lines[self._gate] = deque(each for each in line if not is_lost(each))
        self._octets.release(sum([len(each.payload) for each in lost]))
        return lost
