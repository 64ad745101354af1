# SPDX-License-Identifier: Apache-2.0
"""The part of a queue that its collaborators and its disposal see."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from typing import Protocol

from amqproute.broker.commit_batch import Batch, BatchParticipant
from amqproute.entry import Entry
from amqproute.translation.dead_letters import DeadLetterTarget


class QueueView(BatchParticipant[Entry], Protocol):
    """A queue as its parts see it.

    Attributes:
        name: the queue's name; it may change.
        is_relay: its messages wait to be relayed.
        dead_letter_name: the node for its dead letters, or None.
        dead_letter_target: the exchange for its dead letters, or None; it goes before the node.
    """

    name: str
    is_relay: bool
    dead_letter_name: str | None
    dead_letter_target: DeadLetterTarget | None

    @property
    def consumers(self) -> int:
        """Links that receive from it."""

    @property
    def publishers(self) -> Sized:
        """Links that send to it."""

    @property
    def is_used(self) -> bool:
        """Whether it holds messages, or some are on their way into it."""

    def in_memory(self) -> Iterable[Entry]:
        """Return the entries whose messages are in memory."""


class DeletedQueue:
    """The view of a deleted queue that the disposal of its last entries needs.

    Args:
        queue: as it was.
    """

    def __init__(self, queue: QueueView) -> None:
        self.name = queue.name
        self.is_relay = queue.is_relay
        self.dead_letter_name = queue.dead_letter_name
        self.dead_letter_target = queue.dead_letter_target

    @property
    def consumers(self) -> int:
        """See `QueueView.consumers`."""
        return 0

    @property
    def publishers(self) -> Sized:
        """See `QueueView.publishers`."""
        return ()

    @property
    def is_used(self) -> bool:
        """See `QueueView.is_used`."""
        return False

    def in_memory(self) -> Iterable[Entry]:
        """See `QueueView.in_memory`."""
        return ()

    def go_ahead(self, entries: Sequence[Entry], batch: Batch) -> None:
        """See `BatchParticipant.go_ahead`: nobody gets them."""

    def arrived(self, entries: Sequence[Entry]) -> None:
        """See `BatchParticipant.arrived`: they came to the queue itself."""

    def not_arrived(self, entries: Sequence[Entry]) -> None:
        """See `BatchParticipant.not_arrived`: they came to the queue itself."""


__all__ = ["DeletedQueue", "QueueView"]
