# SPDX-License-Identifier: Apache-2.0
"""Event batches: all events of one read from the network, and the batch for their changes.

One event may cause others: a settlement the delivery of the next entries, a flow that of a waiting
message. All their changes are one batch, which is committed when the outermost ``with`` block ends.
Publishers get their answer when it is durable; so do receivers that leave settlement to us.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.broker.broker import Broker
from amqproute.broker.commit_batch import Batch
from amqproute.broker.commit_retry import retry_settle
from amqproute.broker.local_transaction import Transaction
from amqproute.broker.publish_gate import DAMAGE, STORE, PublishGate
from amqproute.errors import StoreIntakeClosed, StoreUnavailable
from amqproute.net.pump import TransportFacts
from amqproute.outcomes import Outcome

__all__ = [
    "AnsweredConsumer",
    "BatchOwner",
    "EventBatch",
    "PublishedDelivery",
    "PublishingLink",
]


class PublishedDelivery(Protocol):
    """An incoming message."""

    payload: bytes
    settled: bool


D = TypeVar("D", bound=PublishedDelivery)
A = TypeVar("A", contravariant=True)


class PublishingLink(Protocol[D]):
    """A publisher's link: puts messages on a target, and answers when they are durable.

    Attributes:
        is_durable: whether the outcomes of its messages are kept in the store as well.
    """

    is_durable: bool

    def received(self, deliveries: Sequence[D], batch: Batch) -> list[D]:
        """Put deliveries on the target within the batch; return those that were put."""

    def committed(self, deliveries: list[D]) -> None:
        """Tell the sender that these are durable."""

    def failed(self, deliveries: list[D], failure: Failure, in_doubt: bool = False) -> None:
        """Handle a failed commit; some of these may have been delivered before (``in_doubt``)."""

    def wait_for(self, gate: PublishGate, deliveries: list[D]) -> None:
        """Keep deliveries that the store could not take, to try again when the gate opens."""


class AnsweredConsumer(Protocol[A]):
    """A consumer whose receiver leaves settlement to us."""

    def settle_deliveries(self, deliveries: Sequence[A], outcome: Outcome) -> None:
        """Settle these, if the link is still there: the outcome is durable."""


class BatchOwner(Protocol):
    """The connection that an `EventBatch` belongs to."""

    facts: TransportFacts

    def hold(self, size: int) -> None:
        """Add octets that wait for the disk."""

    def release(self, size: int) -> None:
        """Subtract octets that do not wait any more."""

    def flush(self) -> None:
        """Write the engine's output."""

    def broken(self, failure: Failure, doing: str) -> None:
        """Log a fault of this program."""


class _Run(NamedTuple, Generic[D]):
    """Deliveries of one link that were put within a batch, one after the other.

    Attributes:
        publisher: their link.
        deliveries: the deliveries.
        last_id: the id of the last entry of the batch at that time.
    """

    publisher: PublishingLink[D]
    deliveries: list[D]
    last_id: int


_Runs = list[_Run[Any]]  # of any frontend's deliveries
_Answers = list[tuple[AnsweredConsumer[Any], Sequence[Any], Outcome]]


class EventBatch:
    """The events of one connection: a ``with`` block is one batch, however deep it is nested.

    Args:
        owner: the connection.
        broker: makes batches.

    Attributes:
        uncommitted: batches that are on their way to the disk.
    """

    log = Logger()

    __slots__ = (
        "_answers",
        "_batch",
        "_broker",
        "_depth",
        "_later",
        "_owner",
        "_published",
        "uncommitted",
    )

    def __init__(self, owner: BatchOwner, broker: Broker) -> None:
        self._owner = owner
        self._broker = broker
        self._batch: Batch | None = None
        self._depth = 0
        self._published: _Runs = []
        self._answers: _Answers = []
        self._later: list[Callable[[], None]] = []
        self.uncommitted = 0

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth:
            return
        self._commit()
        while self._later:
            self._later.pop(0)()

    @property
    def is_idle(self) -> bool:
        """Whether nothing of this connection waits for the store."""
        return self.uncommitted == 0 and self._batch is None

    @property
    def is_in_progress(self) -> bool:
        """Whether a block has begun and not ended."""
        return self._depth > 0 or bool(self._later)

    def batch(self) -> Batch:
        """Return the batch of this block."""
        batch = self._batch
        if batch is None:
            batch = self._batch = self._broker.begin()
        return batch

    def put(self, publisher: PublishingLink[D], deliveries: Sequence[D]) -> None:
        """Put the deliveries of a link."""
        batch = self._batch
        if batch is None:
            batch = self._batch = self._broker.begin()
        published = publisher.received(deliveries, batch)
        if published:
            # Another batch, if these deliveries have committed a transaction.
            batch = self._batch or self.batch()
            self._published.append(_Run(publisher, published, batch.last_id))

    def put_now(self, publisher: PublishingLink[D], deliveries: Sequence[D]) -> None:
        """Put deliveries that had to wait."""
        with self:
            self.put(publisher, deliveries)
        self._owner.flush()

    def answer(
        self, consumer: AnsweredConsumer[A], deliveries: Sequence[A], outcome: Outcome
    ) -> None:
        """Settle deliveries when this batch is durable."""
        self._answers.append((consumer, deliveries, outcome))

    def afterwards(self, do: Callable[[], None]) -> None:
        """Call ``do`` when the block is over; now, if there is none."""
        if self._depth:
            self._later.append(do)
        else:
            do()

    def commit(self, transaction: Transaction) -> Deferred[None]:
        """Commit a transaction, after the events before it. See `Transaction.commit`."""
        self._commit()
        done = transaction.commit()
        self.uncommitted += 1
        return done.addBoth(self._discharged)

    def _discharged(self, result: Any) -> Any:
        self.uncommitted -= 1
        return result

    def _commit(self) -> None:
        batch, published, answers = self._batch, self._published, self._answers
        if batch is None:
            return
        self._batch = None
        self._published = []
        self._answers = []
        self.uncommitted += 1
        size = 0
        goes_ahead = bool(published)
        for publisher, deliveries, _ in published:
            if publisher.is_durable:
                goes_ahead = False
            for delivery in deliveries:
                size += len(delivery.payload)
                if delivery.settled:
                    goes_ahead = False  # its sender cannot be left in doubt
        batch.goes_ahead = goes_ahead
        if size:
            self._owner.hold(size)
        # A consumer that has settled waits for nothing; a publisher does.
        batch.commit(patient=not (published or answers)).addCallbacks(
            self._committed,
            self._failed,
            (published, answers, size),
            errbackArgs=(batch, published, answers, size),
        )

    def _committed(self, _: object, published: _Runs, answers: _Answers, size: int) -> None:
        self.uncommitted -= 1
        self._owner.release(size)
        for publisher, deliveries, _ in published:
            publisher.committed(deliveries)
        for consumer, settled, outcome in answers:
            consumer.settle_deliveries(settled, outcome)
        self._owner.flush()

    def _failed(
        self, failure: Failure, batch: Batch, published: _Runs, answers: _Answers, size: int
    ) -> None:
        self.uncommitted -= 1
        owner = self._owner
        if isinstance(failure.value, StoreUnavailable):
            self._unavailable(failure, batch, published, answers)
            owner.release(size)
            owner.flush()
            return
        owner.release(size)
        self.log.failure(
            "{connection}: the store rejected a batch; {count} deliveries were not accepted",
            failure,
            connection=owner.facts.remote,
            count=sum(len(run.deliveries) for run in published),
        )
        in_doubt = _links_in_doubt(batch, published)
        for publisher, deliveries, _ in published:
            publisher.failed(deliveries, failure, publisher in in_doubt)
        owner.flush()

    def _unavailable(
        self, failure: Failure, batch: Batch, published: _Runs, answers: _Answers
    ) -> None:
        """Keep deliveries until the disk takes them, and close the gate.

        If the database has proved damaged, nothing waits: the links end, so that their senders
        know that messages without an outcome were not taken.
        """
        gate = self._broker.gate
        in_doubt = _links_in_doubt(batch, published)
        is_for_good = isinstance(failure.value, StoreIntakeClosed)
        for publisher, deliveries, _ in published:
            if is_for_good or publisher in in_doubt:
                publisher.failed(deliveries, failure, in_doubt=publisher in in_doubt)
            else:
                publisher.wait_for(gate, deliveries)
        gate.close(DAMAGE if is_for_good else STORE, str(failure.value))
        if answers or batch.redo or batch.transaction.ended():
            settled = retry_settle(failure, batch, self._broker.begin)
            assert isinstance(settled, Deferred)
            settled.addCallback(self._settled, answers)
            settled.addErrback(self._owner.broken, "settling once more")

    def _settled(self, _: object, answers: _Answers) -> None:
        """Settle deliveries whose batch is durable."""
        for consumer, deliveries, outcome in answers:
            consumer.settle_deliveries(deliveries, outcome)
        self._owner.flush()


def _links_in_doubt(batch: Batch, runs: _Runs) -> set[PublishingLink[Any]]:
    """Return the links some of whose messages have been delivered before they were safe."""
    ahead = sorted([entry.id for entry in batch.ahead])
    found: set[PublishingLink[Any]] = set()
    before = 0
    for publisher, _, last_id in runs:
        behind = bisect_right(ahead, last_id)
        if behind > before:
            found.add(publisher)
        before = behind
    return found
