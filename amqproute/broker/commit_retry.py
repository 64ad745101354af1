# SPDX-License-Identifier: Apache-2.0
"""Retries of settlements that failed because the disk was full.

Settled entries leave memory at once. If the store then cannot take the batch (`StoreUnavailable`),
their rows would remain until the next start: here they end with another batch. Where nothing takes
their place they end as soon as the store writes at all, which frees room; dead letters and reports
(`Batch.redo`), which need room, wait until the gate opens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred, FirstError, gatherResults
from twisted.python.failure import Failure

from amqproute.broker.commit_batch import Batch
from amqproute.broker.publish_gate import STORE, PublishGate
from amqproute.errors import StoreUnavailable
from amqproute.journal.event import DepartureEvent, JournalEvent

__all__ = ["CommitRetry", "all_of", "retry_settle"]


class CommitRetry:
    """Repetition of settlements until the store takes them.

    Args:
        gate: the gate of the broker.
        begin: makes batches.
        ended: ids of entries to end.
        events: events of these for the journal.
        redo: functions that put a message into a batch, and end the entries it replaces.
    """

    __slots__ = ("_begin", "_done", "_ended", "_events", "_gate", "_redo")

    def __init__(
        self,
        gate: PublishGate,
        begin: Callable[[], Batch],
        ended: Sequence[int],
        redo: Sequence[Callable[[Batch], None]] = (),
        events: Sequence[JournalEvent] = (),
    ) -> None:
        self._gate = gate
        self._begin = begin
        self._ended = ended
        self._events = events
        self._redo = redo
        self._done: Deferred[None] = Deferred()

    def commit(self) -> Deferred[None]:
        """Commit now, and again whenever the store may take it: see `wait`.

        Returns:
            A Deferred that fires with None when it is durable; or fails, if the store did for
            reasons other than lack of room.
        """
        self._try()
        return self._done

    def wait(self, failure: Failure) -> Deferred[None]:
        """As `commit`, beginning later: the gate is closed for this failure.

        What only removes is tried when the store writes again, perhaps on a disk with little room;
        the rest when the gate opens.
        """
        wait = self._gate.when_open if self._redo else self._gate.when_writing
        wait(self._try)
        self._gate.close(STORE, str(failure.value))
        return self._done

    def _try(self) -> None:
        batch = self._begin()
        for put in self._redo:
            put(batch)
        batch.transaction.dequeue(self._ended)
        for event in self._events:
            batch.record(event)
        batch.commit().addCallbacks(self._done.callback, self._failed)

    def _failed(self, failure: Failure) -> None:
        if isinstance(failure.value, StoreUnavailable):
            self.wait(failure)
        else:
            self._done.errback(failure)


def retry_settle(
    failure: Failure,
    batch: Batch,
    begin: Callable[[], Batch],
    rests: list[Deferred[None]] | None = None,
) -> Deferred[None] | Failure:
    """Repeat the settlements of a batch whose commit failed; an errback of that commit.

    Args:
        failure: the failure of the commit.
        batch: the failed batch.
        begin: makes batches.
        rests: if given, takes the Deferred of the part that needs room, which is not waited for.

    Returns:
        The failure, if the cause is not a full disk; or a Deferred, see `CommitRetry.commit`.
    """
    if not isinstance(failure.value, StoreUnavailable):
        return failure
    redo = [do for _, do in batch.redo]
    replaced = {each for ids, _ in batch.redo for each in ids}
    ended = [each for each in batch.transaction.ended() if each not in replaced]
    waits = []
    if ended or not redo:
        gone = [each for each in batch.transaction.events if type(each) is DepartureEvent]
        events = [each.without(replaced) for each in gone]
        plain = CommitRetry(batch.gate, begin, ended, (), events)
        # If another part of the same commit failed, there is no need to wait.
        is_alone = batch.transaction.only_removes()
        waits.append(plain.wait(failure) if is_alone else plain.commit())
    if redo:
        rest = CommitRetry(batch.gate, begin, (), redo).wait(failure)
        (waits if rests is None else rests).append(rest)
    batch.gate.close(STORE, str(failure.value))
    return all_of(waits)


def all_of(waits: Sequence[Deferred[None]]) -> Deferred[None]:
    """Return a Deferred that fires when all of these have fired; or fails as the first one."""
    done = gatherResults(waits, consumeErrors=True).addErrback(_the_first)
    return done.addCallback(lambda _: None)


def _the_first(failure: Failure) -> Failure:
    return failure.value.subFailure if isinstance(failure.value, FirstError) else failure
