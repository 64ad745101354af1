# SPDX-License-Identifier: Apache-2.0
"""Contents of the store at the start, until their nodes are created.

A node claims its part when it is made: at the start mostly, on a reload if its name had been left
out before. What nobody claims stays in the store.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from twisted.logger import Logger

from amqproute.broker.last_value import last_key
from amqproute.broker.priority_queues import HIGHEST_PRIORITY, line_key, queue_of_key
from amqproute.broker.queue import Queue
from amqproute.broker.subscription import PREFIX, Definition
from amqproute.broker.topic import Topic
from amqproute.errors import AmqpError, DecodeError, NotFound
from amqproute.plurals import counted
from amqproute.store.model import QueueSummary


class RecoveredNodes:
    """Messages, definitions of durable subscriptions, and what prepared branches hold."""

    log = Logger()

    def __init__(self) -> None:
        self._lines: dict[str, QueueSummary] = {}
        self._held: dict[str, list[tuple[int, int]]] = {}
        self._holding: dict[str, Queue] = {}
        self._definitions: dict[str, Definition] = {}

    def recovered(
        self,
        lines: Mapping[str, QueueSummary],
        subscriptions: Mapping[str, bytes] | None = None,
        held: Mapping[str, list[tuple[int, int]]] | None = None,
    ) -> None:
        """Take note of what the store holds.

        Args:
            lines: name to summary, one for each priority of a queue.
            subscriptions: the store's notes of the kind `subscription.NOTES`.
            held: by line, what prepared branches hold: see `xa_record.holds_of`.
        """
        self._lines = dict(lines)
        self._held = dict(held or {})
        for name, encoded in (subscriptions or {}).items():
            try:
                self._definitions[name] = Definition.decode(encoded)
            except DecodeError as error:
                self.log.error(
                    "cannot read the definition of {name}: {error}", name=name, error=error
                )

    @property
    def messages(self) -> dict[str, int]:
        """Number of messages by queue name, of queues that are not created yet."""
        counts: dict[str, int] = {}
        for key, summary in self._lines.items():
            name = queue_of_key(key)
            counts[name] = counts.get(name, 0) + summary.count
        return counts

    # -- claims --------------------------------------------------------------------------------

    def claim_queue(self, queue: Queue) -> None:
        """Give a queue what is its own."""
        for level in range(HIGHEST_PRIORITY + 1):
            key = line_key(queue.rows, level)
            left = self._lines.pop(key, None)
            if left is None:
                continue
            queue.recovered(left.count, left.bytes, level, left.first_arrived_ms, left.filed_bytes)
            held = self._held.pop(key, None)
            if held:
                queue.hold_recovered(held, level)
                self._holding[queue.rows] = queue
            self.log.info(
                "{node} recovered {messages}",
                node=queue.name,
                messages=counted(left.count, "message"),
                bytes=left.bytes,
            )

    def claim_topic(self, topic: Topic) -> None:
        """Give a topic its newest messages, and its durable subscriptions."""
        if self._lines.pop(last_key(topic.name), None) is not None:
            topic.recover_last()
        for name, definition in list(self._definitions.items()):
            if definition.topic != topic.name:
                continue
            del self._definitions[name]
            try:
                topic.recovered(definition)
            except AmqpError as error:
                self._definitions[name] = definition
                self.log.error(
                    "cannot restore subscription {name}: {error}", name=name, error=error
                )

    def ended_subscriptions(self) -> list[str]:
        """Return the queues of subscriptions that were ended, and not emptied before a crash."""
        names = {queue_of_key(key) for key in self._lines} - set(self._definitions)
        return sorted(name for name in names if name.startswith(PREFIX))

    # -- what prepared branches hold -----------------------------------------------------------

    def holder(self, key: str) -> Queue:
        """Return the queue with a line of which a prepared branch holds recovered entries.

        Raises:
            NotFound: the configuration does not name it any more.
        """
        rows = queue_of_key(key)
        queue = self._holding.get(rows)
        if queue is None:
            raise NotFound(f"node {rows} is not in the configuration: declare it, then try again")
        return queue

    def forget_held(self, key: str, ids: Container[int]) -> None:
        """These entries of a node that is not there are held no more."""
        kept = [each for each in self._held.get(key, ()) if each[0] not in ids]
        if kept:
            self._held[key] = kept
        else:
            self._held.pop(key, None)
