# SPDX-License-Identifier: Apache-2.0
"""Shared storage of one body for many targets of a topic or an exchange."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amqproute.broker.commit_batch import Batch
from amqproute.errors import AmqpError, NotFound, ResourceLimitExceeded, Unresolved
from amqproute.interfaces import IBody, IRefusingTarget, ITarget
from amqproute.message import Message
from amqproute.values import Origin


class SharedBodyBatch:
    """A batch for the targets of one message, which writes their common body once.

    Args:
        batch: the sender's.
        payload_id: the id from the store's ids.
        encoded: the body.
    """

    __slots__ = (
        "_batch",
        "_encoded",
        "_groups",
        "_payload_id",
        "arrivals",
        "is_rehearsal",
        "is_transactional",
        "last_id",
        "now_ms",
    )

    def __init__(self, batch: Batch, payload_id: int, encoded: bytes) -> None:
        self._batch = batch
        self._payload_id = payload_id
        self._encoded = encoded
        self._groups: dict[tuple[int, int, int], tuple[list[str], list[int]]] = {}
        self.arrivals = batch.arrivals
        self.now_ms = batch.now_ms
        self.is_rehearsal = batch.is_rehearsal
        self.is_transactional = batch.is_transactional
        self.last_id = batch.last_id

    @property
    def transaction(self) -> SharedBodyBatch:
        """The transaction for targets: this object."""
        return self

    def enqueue(
        self,
        queue: str,
        entry_id: int,
        encoded: bytes,
        arrived_ms: int,
        expires_ms: int,
        flags: int,
        rest: IBody | None = None,
    ) -> None:
        """Put an entry on a queue; see `IStoreTransaction.enqueue`."""
        if encoded is not self._encoded or rest is not None:
            # The rest of a very large message is shared in any case.
            self._batch.transaction.enqueue(
                queue, entry_id, encoded, arrived_ms, expires_ms, flags, rest
            )
            return
        key = (arrived_ms, expires_ms, flags)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = ([], [])
        group[0].append(queue)
        group[1].append(entry_id)

    def __getattr__(self, name: str) -> Any:
        """Delegate everything else to the sender's batch."""
        return getattr(self._batch, name)

    def close(self) -> None:
        """Write the body once, and a row for each entry."""
        self._batch.last_id = self.last_id
        transaction = self._batch.transaction
        groups = self._groups
        if not groups:
            return
        if len(groups) == 1:
            (((arrived_ms, expires_ms, flags), (queues, ids)),) = groups.items()
            if len(ids) == 1:
                encoded = self._encoded
                transaction.enqueue(queues[0], ids[0], encoded, arrived_ms, expires_ms, flags)
                return
        transaction.share(self._payload_id, self._encoded)
        size = len(self._encoded)
        for (arrived_ms, expires_ms, flags), (queues, ids) in groups.items():
            transaction.enqueue_shared_many(
                queues, ids, self._payload_id, size, arrived_ms, expires_ms, flags
            )


def put_on_all(
    targets: Sequence[ITarget],
    message: Message,
    batch: Batch,
    origin: Origin,
    new_id: Callable[[], int],
    source: str,
) -> list[tuple[ITarget, AmqpError]]:
    """Put a message on several targets, or on none if one of them has no room.

    Each target that is full makes a dead letter of it if that is what it does when it is full.

    Args:
        targets: each once.
        message: the message.
        batch: the batch of its sender.
        origin: its sender.
        new_id: makes the id of a shared body.
        source: the node that the message was sent to, for words.

    Returns:
        Targets that have refused it for another reason, although others have it now.

    Raises:
        ResourceLimitExceeded: one of them is full.
        AmqpError: the only one has refused it.
        Unresolved: see `ITarget.put`; no target has it.
    """
    full = [target for target in targets if target.space() <= 0]
    if full:
        kept = [target for target in full if _is_kept(target, message, batch, origin)]
        if not (kept and batch.is_rehearsal):
            raise ResourceLimitExceeded(
                f"{full[0].name}, which gets the messages of {source}, is full",
                info={"limiter": "capacity"},
            )
        targets = kept
    return share_on_all(targets, message, batch, origin, new_id)


def _is_kept(target: ITarget, message: Message, batch: Batch, origin: Origin) -> bool:
    """Have a full target make a dead letter of a message, if it does that; return whether."""
    return IRefusingTarget.providedBy(target) and target.refuse(message, batch, origin)


def share_on_all(
    targets: Sequence[ITarget],
    message: Message,
    batch: Batch,
    origin: Origin,
    new_id: Callable[[], int],
    keep: Callable[[SharedBodyBatch], None] | None = None,
) -> list[tuple[ITarget, AmqpError]]:
    """Put a message on targets that have room; see `put_on_all`.

    Args:
        targets: each once.
        message: the message.
        batch: the batch of its sender.
        origin: its sender.
        new_id: makes the id of a shared body.
        keep: refers to the body from elsewhere, too, within the given batch.

    Returns:
        Targets that have refused it, although others have it now.

    Raises:
        AmqpError: the only one has refused it.
        Unresolved: see `ITarget.put`; no target has it.
    """
    if len(targets) == 1 and keep is None:
        targets[0].put(message, batch, origin)
        return []
    sharing = SharedBodyBatch(batch, new_id(), message.encoded)
    refused = put_each(targets, message, sharing, origin)
    if keep is not None:
        keep(sharing)
    sharing.close()
    return refused


def put_each(
    targets: Sequence[ITarget], message: Message, sharing: SharedBodyBatch, origin: Origin
) -> list[tuple[ITarget, AmqpError]]:
    """Put a message on each target; return those that have refused it.

    Others have it already, so it is too late to refuse it to its sender as a whole.

    Raises:
        Unresolved: see `ITarget.put`; no target has it.
    """
    refused: list[tuple[ITarget, AmqpError]] = []
    for number, target in enumerate(targets):
        try:
            target.put(message, sharing, origin)
        except AmqpError as error:
            refused.append((target, error))
        except Unresolved:
            if len(refused) == number:
                raise  # no target has it: it can be tried again
            refused.append((target, NotFound(f"no route to {target.name} any more")))
    return refused
