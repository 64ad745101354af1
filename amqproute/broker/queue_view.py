# SPDX-License-Identifier: Apache-2.0
"""A queue as its own parts see it, and whoever is told what becomes of its entries."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import Protocol

from amqproute.broker.commit_batch import BatchParticipant
from amqproute.entry import Entry
from amqproute.translation.dead_letters import DeadLetterTarget


class QueueView(BatchParticipant[Entry], Protocol):
    """What a part of a queue may know of the whole.

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


__all__ = ["QueueView"]
