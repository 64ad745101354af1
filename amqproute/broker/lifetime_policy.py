# SPDX-License-Identifier: Apache-2.0
"""Lifetime and ownership of dynamic and declared queues (N-16, N-17, K-21, 09-QUEUE-13)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from amqproute.broker.node_options import Lifetime
from amqproute.broker.queue_view import QueueView


class LifetimePolicy:
    """The life of one dynamic queue.

    Args:
        policy: the condition of its end.
        is_exclusive: links of its owner only may be attached to the queue (N-17).
        queue: the queue.

    Attributes:
        policy: the argument.
        is_exclusive: the argument.
        owner: the session that the queue was made on.
        when_over: called, once, when the life is over.
    """

    __slots__ = ("_creator_gone", "_queue", "is_exclusive", "owner", "policy", "when_over")

    def __init__(self, policy: Lifetime, is_exclusive: bool, queue: QueueView) -> None:
        self.policy = policy
        self.is_exclusive = is_exclusive
        self.owner: object = None
        self.when_over: Callable[[], None] | None = None
        self._queue = queue
        self._creator_gone = False

    @property
    def ends_with_session(self) -> bool:
        """Whether it ends with the session on which the queue was created, at the latest."""
        return self.is_exclusive or self.policy in (Lifetime.CLOSE, Lifetime.SESSION)

    def attached(self, consumer: object) -> None:
        """Handle a new consumer: nothing ends with that."""

    def creator_gone(self) -> None:
        """Handle the end of the link for which the queue was created."""
        self._creator_gone = True
        self.look()

    def look(self) -> None:
        """Notify once if the life is over, after links or messages have gone."""
        if self.when_over is None:
            return
        queue = self._queue
        is_linked = bool(queue.consumers or len(queue.publishers))
        is_over = {
            Lifetime.CLOSE: self._creator_gone,
            Lifetime.NO_LINKS: not is_linked,
            Lifetime.NO_MESSAGES: self._creator_gone and not queue.is_used,
            Lifetime.NO_LINKS_OR_MESSAGES: not is_linked and not queue.is_used,
            Lifetime.SESSION: False,  # the end of its session is handled elsewhere
        }[self.policy]
        if is_over:
            notify, self.when_over = self.when_over, None
            notify()


MOMENTARY: Final = "is_momentary"
"""Attribute of consumers that take one message and leave: an auto-delete queue stays."""


class DeclaredLifetime(LifetimePolicy):
    """The life of a queue that a client of 0-9 or 0-9-1 has declared.

    Only the owner of the declarations ends it; this class notifies it when the last consumer has
    gone.

    Args:
        is_exclusive: only its connection may use it.
        queue: the queue.

    Attributes:
        when_unused: called each time that the last consumer has gone.
    """

    __slots__ = ("_has_consumers", "when_unused")

    def __init__(self, is_exclusive: bool, queue: QueueView) -> None:
        super().__init__(Lifetime.SESSION, is_exclusive, queue)
        self.when_unused: Callable[[], None] | None = None
        self._has_consumers = False

    def attached(self, consumer: object) -> None:
        """Handle a new consumer."""
        if not getattr(consumer, MOMENTARY, False):
            self._has_consumers = True

    def look(self) -> None:
        """Notify if the last consumer has gone."""
        if self._has_consumers and not self._queue.consumers:
            self._has_consumers = False
            if self.when_unused is not None:
                self.when_unused()
