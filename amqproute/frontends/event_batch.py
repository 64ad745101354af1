# SPDX-License-Identifier: Apache-2.0
"""What happens on a connection in one go, and the batch for all of it.

One read from the network brings many events, and acting on one may lead to others: a settlement to
the next entries, a flow to a message that waited. All of it is one turn, and what it changes is one
batch, which is committed when the outermost is done. Publishers are told when it is durable; so
are receivers who leave their settlement to us.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from amqproute.broker.commit_retry import retry_settle
from amqproute.broker.local_transaction import Transaction
from amqproute.broker.publish_gate import DAMAGE, STORE
from amqproute.errors import StoreIntakeClosed, StoreUnavailable
from amqproute.frontends.receiver_link import ReceiverLink
from amqproute.frontends.sender_link import SenderLink
from amqproute.wire.amqp10.link import Delivery

if TYPE_CHECKING:
    from amqproute.frontends.connection_frontend import Frontend

_Answer = tuple[SenderLink, Sequence[Delivery], Any]


class EventBatch:
    """The turns of one connection. Within ``with turn:`` is one, however deep it is nested.

    Args:
        frontend: of the connection.

    Attributes:
        answers: outcomes to be told when the batch is durable: link, deliveries, outcome.
        uncommitted: batches that are on their way to the disk.
    """

    __slots__ = ("_batch", "_depth", "_frontend", "_later", "_taken", "answers", "uncommitted")

    def __init__(self, frontend: Frontend) -> None:
        self._frontend = frontend
        self._batch: Any = None
        self._depth = 0
        self._taken: list[_Run] = []
        self._later: list[Callable[[], None]] = []
        self.answers: list[_Answer] = []
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
    def is_over(self) -> bool:
        """Nothing of this connection waits for the store."""
        return self.uncommitted == 0 and self._batch is None

    @property
    def is_under_way(self) -> bool:
        """A turn has begun and not ended."""
        return self._depth > 0 or bool(self._later)

    def batch(self) -> Any:
        """Return the batch of this turn."""
        if self._batch is None:
            self._batch = self._frontend.shared.broker.begin()
        return self._batch

    def put(self, inbound: ReceiverLink, deliveries: Sequence[Delivery]) -> None:
        """Put what came on a link."""
        batch = self.batch()
        taken = inbound.received(deliveries, batch)
        if taken:
            self._taken.append(_Run(inbound, taken, self.batch().last_id))

    def afterwards(self, do: Callable[[], None]) -> None:
        """Call ``do`` when the turn is over; now, if there is none."""
        if self._depth:
            self._later.append(do)
        else:
            do()

    def commit(self, transaction: Transaction) -> Deferred[None]:
        """Commit a transaction, after what came before it. See `Transaction.commit`."""
        self._commit()
        done = transaction.commit()
        self.uncommitted += 1
        return done.addBoth(self._discharged)

    def _discharged(self, result: Any) -> Any:
        self.uncommitted -= 1
        return result

    def _commit(self) -> None:
        if self._batch is None:
            return
        batch, taken, answers = self._batch, self._taken, self.answers
        self._batch = None
        self._taken = []
        self.answers = []
        self.uncommitted += 1
        size = 0
        goes_ahead = bool(taken)
        for inbound, deliveries, _ in taken:
            if inbound.taken.is_durable:
                goes_ahead = False
            for delivery in deliveries:
                size += len(delivery.payload)
                if delivery.settled:
                    goes_ahead = False  # its sender cannot be left in doubt
        batch.goes_ahead = goes_ahead
        self._frontend.hold(size)
        # A consumer that has settled waits for nothing; a publisher does.
        batch.commit(patient=not (taken or answers)).addCallbacks(
            self._committed,
            self._failed,
            (taken, answers, size),
            errbackArgs=(batch, taken, answers, size),
        )

    def _committed(
        self,
        _: object,
        taken: list[_Run],
        answers: list[_Answer],
        size: int,
    ) -> None:
        self.uncommitted -= 1
        self._frontend.release(size)
        for inbound, deliveries, _ in taken:
            inbound.committed(deliveries)
        self._settled(None, answers)

    def _failed(
        self,
        failure: Failure,
        batch: Any,
        taken: list[_Run],
        answers: list[_Answer],
        size: int,
    ) -> None:
        self.uncommitted -= 1
        frontend = self._frontend
        if isinstance(failure.value, StoreUnavailable):
            self._not_now(failure, batch, taken, answers)
            frontend.release(size)
            frontend.flush()
            return
        frontend.release(size)
        frontend.log.failure(
            "{connection}: the store refused a batch; {count} deliveries were not taken",
            failure,
            connection=frontend.facts.remote,
            count=sum(len(run.deliveries) for run in taken),
        )
        in_doubt = _links_in_doubt(batch, taken)
        for inbound, deliveries, _ in taken:
            inbound.failed(deliveries, failure, inbound in in_doubt)
        frontend.flush()

    def _not_now(
        self,
        failure: Failure,
        batch: Any,
        taken: list[_Run],
        answers: list[_Answer],
    ) -> None:
        """The disk takes nothing for now: what came waits for it, and nothing more comes.

        If the database has proved damaged, nothing waits: the links end, so that their senders
        know that what has no outcome was not taken.
        """
        broker = self._frontend.shared.broker
        gate = broker.gate
        in_doubt = _links_in_doubt(batch, taken)
        is_for_good = isinstance(failure.value, StoreIntakeClosed)
        for inbound, deliveries, _ in taken:
            if is_for_good or inbound in in_doubt:
                inbound.failed(deliveries, failure, in_doubt=inbound in in_doubt)
            else:
                inbound.wait_for(gate, deliveries)
        gate.close(DAMAGE if is_for_good else STORE, str(failure.value))
        if answers or batch.redo or batch.transaction.ended():
            settled = retry_settle(failure, batch, broker.begin)
            assert isinstance(settled, Deferred)
            settled.addCallback(self._settled, answers)
            settled.addErrback(self._frontend.broken, "settling once more")

    def _settled(self, _: object, answers: list[_Answer]) -> None:
        """Tell whom it was not told with the batch it belonged to."""
        for outbound, held, outcome in answers:
            if outbound.link.is_active:
                outbound.settled_by_us(held, outcome)
        self._frontend.flush()


class _Run(NamedTuple):
    """Deliveries of one link that were put within a batch, one after the other.

    Attributes:
        inbound: their link.
        deliveries: they.
        last_id: the id of the last entry that the batch had then.
    """

    inbound: ReceiverLink
    deliveries: list[Delivery]
    last_id: int


def _links_in_doubt(batch: Any, runs: Sequence[_Run]) -> set[ReceiverLink]:
    """Return the links some of whose messages have been handed on before they were safe."""
    ahead = sorted([entry.id for entry in batch.ahead])
    found = set()
    before = 0
    for inbound, _, last_id in runs:
        behind = bisect_right(ahead, last_id)
        if behind > before:
            found.add(inbound)
        before = behind
    return found


__all__ = ["EventBatch"]
