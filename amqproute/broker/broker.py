# SPDX-License-Identifier: Apache-2.0
"""The directory of local nodes, and the treatment of dead letters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from amqproute.address import is_reserved
from amqproute.broker.batch import Batch
from amqproute.broker.limits import MemoryBudget, QueueLimits
from amqproute.broker.queue import HIGHEST_PRIORITY, Queue, line_key, queue_of_key
from amqproute.entry import Entry
from amqproute.errors import AmqpError, ConfigError, NotFound
from amqproute.interfaces import IBroker, ITarget
from amqproute.routing.trail import TRACE
from amqproute.values import ANONYMOUS_PRINCIPAL, DeadLetterReason, Origin
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.types import Symbol

RETURN_TO = Symbol("x-opt-return-to")
REASON = Symbol("x-opt-dead-letter-reason")
SOURCE = Symbol("x-opt-dead-letter-source")
WORDS = Symbol("x-opt-dead-letter-description")
DYNAMIC_LIMITS = QueueLimits(capacity=100_000)
"""A dynamic queue lives in memory only and does not page; so it has a capacity."""


@dataclass(frozen=True, slots=True)
class NodeDeclaration:
    """A node as the configuration declares it.

    Attributes:
        name: the node's name.
        limits: its bounds.
        dead_letter: the node that rejected, expired and spent entries move to, or None.
    """

    name: str
    limits: QueueLimits
    dead_letter: str | None = None


@implementer(IBroker)
class Broker:
    """Names to nodes; batches; dead letters.

    Args:
        store: the `IStore`.
        clock: for timers of the nodes.
        now_ms: the wall clock, ms since the epoch.
        new_name: gives an unguessable name for a dynamic node (A-06).
        budget: memory that all queues share.
    """

    log = Logger()

    def __init__(
        self,
        store: Any,
        clock: IReactorTime,
        now_ms: Callable[[], int],
        new_name: Callable[[], str],
        *,
        budget: MemoryBudget | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._now_ms = now_ms
        self._new_name = new_name
        self.budget = budget or MemoryBudget()
        self.nodes: dict[str, Queue] = {}
        self.internal: dict[str, Queue] = {}
        self.aliases: dict[str, str] = {}
        self.services: dict[str, Any] = {}
        self.dynamic: set[str] = set()
        self._left: dict[str, Any] = {}
        self.return_to: Callable[[str], Any] | None = None

    def begin(self) -> Batch:
        """Return a new batch."""
        return Batch(self._store.begin(), self._now_ms())

    # -- set-up --------------------------------------------------------------------------------

    def recovered(self, queues: Mapping[str, Any]) -> None:
        """Take note of what the store holds; declared queues claim their part of it."""
        self._left = dict(queues)

    def declare(self, nodes: Iterable[NodeDeclaration], aliases: Mapping[str, str]) -> None:
        """Bring the nodes in line with the configuration; called at start and on reload.

        Nodes that are new are made, limits of existing ones change. A node that the new
        configuration does not name any more goes if it is empty and unused, and stays, with a
        warning, while it holds messages: a typing error in a file must not delete messages.

        Raises:
            ConfigError: an alias has the name of a node, or leads nowhere (A-08).
        """
        declared = {node.name: node for node in nodes}
        problems = [
            f"aliases: {alias}: is the name of a node" for alias in aliases if alias in declared
        ]
        problems += [
            f"aliases: {alias}: leads to {name}, which is not a node"
            for alias, name in aliases.items()
            if name not in declared
        ]
        if problems:
            raise ConfigError(problems)
        for node in declared.values():
            queue = self.nodes.get(node.name)
            if queue is None:
                queue = self.nodes[node.name] = self._make(node.name, node.limits)
            queue.limits = node.limits
            queue.dead_letter_name = node.dead_letter
        for name in [name for name in self.nodes if name not in declared]:
            if name not in self.dynamic:
                self._retire(name)
        self.aliases = dict(aliases)

    def _retire(self, name: str) -> None:
        queue = self.nodes[name]
        if queue.depth or not queue.is_settled:
            self.log.warn(
                "node {node} is not in the configuration any more but holds {depth} messages: "
                "kept; consume or purge them, then reload",
                node=name,
                depth=queue.depth,
            )
            return
        queue.delete()
        del self.nodes[name]
        self.log.info("node {node} removed: not in the configuration any more", node=name)

    def _make(self, name: str, limits: QueueLimits, *, force_transient: bool = False) -> Queue:
        queue = Queue(
            name,
            self._store,
            self._clock,
            self.begin,
            self._now_ms,
            limits=limits,
            budget=self.budget,
            dead_letter=self.dead_letter,
            force_transient=force_transient,
            log=self.log,
        )
        for level in range(HIGHEST_PRIORITY + 1):
            left = self._left.pop(line_key(name, level), None)
            if left is None:
                continue
            queue.recovered(left.count, left.bytes, level)
            self.log.info(
                "{node} recovered {count} messages", node=name, count=left.count, bytes=left.bytes
            )
        return queue

    def make_internal(self, name: str, limits: QueueLimits) -> Queue:
        """Make, or return, a queue that clients cannot address: a relay queue."""
        queue = self.internal.get(name)
        if queue is None:
            queue = self.internal[name] = self._make(name, limits)
        return queue

    def forget_internal(self, name: str) -> None:
        """Drop an internal queue that is empty."""
        queue = self.internal.pop(name, None)
        if queue is not None:
            queue.delete()

    @property
    def unclaimed(self) -> dict[str, int]:
        """Queues in the store that nothing has claimed: name to messages."""
        counts: dict[str, int] = {}
        for key, summary in self._left.items():
            name = queue_of_key(key)
            counts[name] = counts.get(name, 0) + summary.count
        return counts

    # -- directory -----------------------------------------------------------------------------

    def resolve(self, name: str) -> str:
        """Return the node name behind an alias (A-04)."""
        return self.aliases.get(name, name)

    def target(self, name: str) -> Any:
        """Return the ITarget of a local name. See `IDirectory.target`."""
        service = self.services.get(name)
        if service is not None:
            return service
        return self._node(name)

    def source(self, name: str) -> Any:
        """Return the ISource of a local name. See `IDirectory.source`."""
        return self._node(name)

    def _node(self, name: str) -> Queue:
        queue = self.nodes.get(self.resolve(name))
        if queue is None:
            raise NotFound(f"no node is named {name!r} here")
        return queue

    def create_dynamic(self, properties: Mapping[str, Any] | None = None) -> Queue:
        """Make a queue with an unguessable name that lives in memory (N-19, A-06)."""
        name = self._new_name()
        queue = self._make(name, DYNAMIC_LIMITS, force_transient=True)
        self.nodes[name] = queue
        self.dynamic.add(name)
        return queue

    def delete(self, node: Queue) -> None:
        """Remove a dynamic node at once (N-22)."""
        if node.name in self.dynamic:
            self.dynamic.discard(node.name)
            del self.nodes[node.name]
            node.delete()

    def stop(self) -> None:
        """Cancel the nodes' timers."""
        for queue in (*self.nodes.values(), *self.internal.values()):
            queue.stop()

    # -- dead letters (O-24, O-25, T-26) -------------------------------------------------------

    def dead_letter(
        self,
        queue: Queue,
        entries: list[Entry],
        reason: DeadLetterReason,
        error: spec.Error | None,
        batch: Batch,
    ) -> None:
        """Return each entry to its sender if it asked for that, else bury it, else drop it."""
        dropped = 0
        for entry in entries:
            if not (
                self._return(queue, entry, reason, error, batch)
                or self._bury(queue, entry, reason, error, batch)
            ):
                dropped += 1
        if dropped:
            self.log.info(
                "{count} messages on {node} dropped: {reason}{words}",
                count=dropped,
                node=queue.name,
                reason=reason.value,
                words=f" ({error.condition}: {error.description})" if error else "",
            )

    def _return(
        self,
        queue: Queue,
        entry: Entry,
        reason: DeadLetterReason,
        error: spec.Error | None,
        batch: Batch,
    ) -> bool:
        address = entry.message.annotations.get(RETURN_TO)
        if not isinstance(address, str) or self.return_to is None:
            return False
        # A returned message is never itself returned, so that it cannot go round: the annotation
        # goes, and its way back may lead through the containers of its way here.
        message = entry.message.with_annotations(
            _facts(queue, reason, error), drop=(RETURN_TO, TRACE)
        )
        return self._try(lambda: self.return_to(address), message, batch, queue)  # type: ignore[misc]

    def _bury(
        self,
        queue: Queue,
        entry: Entry,
        reason: DeadLetterReason,
        error: spec.Error | None,
        batch: Batch,
    ) -> bool:
        name = queue.dead_letter_name
        if name is None or name == queue.name:
            return False
        message = entry.message.with_annotations(_facts(queue, reason, error))
        return self._try(lambda: self.target(name), message, batch, queue)

    def _try(self, find: Callable[[], ITarget], message: Any, batch: Batch, queue: Queue) -> bool:
        try:
            origin = Origin(ANONYMOUS_PRINCIPAL, is_dead_letter=True)
            find().put(message.without_expiry(), batch, origin)
        except AmqpError as error:
            self.log.warn(
                "a dead letter of {node} could not be kept: {error}", node=queue.name, error=error
            )
            return False
        return True


def _facts(
    queue: Queue, reason: DeadLetterReason, error: spec.Error | None
) -> dict[Symbol, object]:
    facts: dict[Symbol, object] = {REASON: Symbol(reason.value), SOURCE: queue.name}
    if error is not None:
        facts[WORDS] = f"{error.condition}: {error.description or ''}"
    return facts


def is_internal(name: str) -> bool:
    """Tell whether a name belongs to services and relay queues."""
    return is_reserved(name)
