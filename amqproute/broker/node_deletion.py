# SPDX-License-Identifier: Apache-2.0
"""Deletion of a node that may be in use or hold messages (G-07).

Three steps, so that nothing happens that cannot be taken back before it is durable: the node is
taken out of the directory (`Broker.withdraw`); when that has been committed, its links are
detached by whoever knows them; then `NodeDeletion.finish` takes what is on it, in memory and on the
disk, a page at a time. What consumers hold comes back when their links have gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.broker.binding import BindingDeclaration
from amqproute.broker.exchanges.topology import RemovedTopology
from amqproute.broker.queue import Queue
from amqproute.broker.topic import EMPTYING_SECONDS, Topic

__all__ = ["TOLD_ROUNDS", "NodeDeletion"]

TOLD_ROUNDS: Final = 100
"""Checks of a deleted node before the log says that something is still held."""


class NodeDeletion:
    """A node that is not in the directory any more.

    Args:
        node: the `Queue` or `Topic`.
        bindings: the node's own bindings, each with whether it was active.
        clock: schedules a new try while operations are under way.
        removed: removed exchanges and bindings; None if there are none.
    """

    log = Logger()

    def __init__(
        self,
        node: Queue | Topic,
        bindings: Mapping[BindingDeclaration, bool],
        clock: IReactorTime,
        removed: RemovedTopology | None = None,
    ) -> None:
        self.node = node
        self.bindings = dict(bindings)
        self.removed = removed
        self._clock = clock
        self._rounds = 0

    def __repr__(self) -> str:
        return f"<NodeDeletion of {self.node!r}>"

    def discard(self) -> None:
        """End a node on which there was never anything; if there is, it goes."""
        if _holds(self.node):
            self.finish(lambda: None)
        elif isinstance(self.node, Queue):
            self.node.stop()

    def finish(self, done: Callable[[], None]) -> None:
        """Take everything off the node, and end it; durable subscriptions end with a topic.

        Args:
            done: called when nothing is left of it. If the store fails it is not called, and the
                next start has to go on.
        """
        node = self.node
        if isinstance(node, Topic):
            node.delete()
            done()
            return
        node.purge().addCallbacks(self._purged, self._failed, (node, done))

    def _purged(self, _: object, queue: Queue, done: Callable[[], None]) -> None:
        if _holds(queue):
            self._notify_waiting(queue)
            self._clock.callLater(EMPTYING_SECONDS, self.finish, done)
            return
        queue.delete()
        done()

    def _notify_waiting(self, queue: Queue) -> None:
        """Say once that a deleted node is not gone yet, and why."""
        self._rounds += 1
        if self._rounds != TOLD_ROUNDS:
            return
        self.log.warn(
            "{node} is deleted; {count} messages and {places} reserved places remain with "
            "consumers that have not detached, or with prepared branches of distributed "
            "transactions: list these with `amqproute transaction ls`, resolve them with "
            "`amqproute transaction roll-back` or `commit`",
            node=queue.name,
            count=queue.depth,
            places=queue.promised,
        )

    def _failed(self, failure: Failure) -> None:
        self.log.failure("{node} could not be emptied", failure, node=self.node.name)


def _holds(node: Queue | Topic) -> bool:
    """Tell whether something is on a node, or on its way to it."""
    return isinstance(node, Topic) or bool(node.depth) or not node.is_settled
