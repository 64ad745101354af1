# SPDX-License-Identifier: Apache-2.0
"""Bindings: forwarding of messages from one node to another, here or elsewhere (N-09 to N-12).

On a queue a binding is one consumer among the others and gets its fair share (N-11). It moves
entries in one store batch: off the source, onto the target. On a topic it is an outlet, as a
durable subscription is: the target gets its copy within the publisher's batch. Either way no
message is between the two nodes at any moment, and the outcome is `accepted` (N-12).

A full target stops the binding: a queue keeps its messages, a topic gives its publishers no more
credit (`Topic.space`). A refusal by the target for other reasons counts as a rejection on a queue,
with the target's words, and the message becomes a dead letter of the queue.

`Broker` refuses bindings that would form a circle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute.broker.commit_batch import Batch
from amqproute.broker.commit_retry import CommitRetry
from amqproute.broker.entry_removal import MOVED
from amqproute.broker.node_context import NodeContext
from amqproute.broker.queue import Queue
from amqproute.broker.topic import Topic
from amqproute.entry import Entry
from amqproute.errors import AmqpError, InvalidField, ResourceLimitExceeded, StoreUnavailable
from amqproute.filters.registry import FilterSet, declared_filters
from amqproute.interfaces import IConsumer, ITarget
from amqproute.journal.event import EntryTaker
from amqproute.journal.record import RecordKind
from amqproute.message import Message
from amqproute.outcomes import ACCEPTED, ErrorDetails, Rejection
from amqproute.values import ANONYMOUS_PRINCIPAL, Origin

Mode = Literal["copy", "move"]

WINDOW: Final = 1000
"""Most entries that one binding moves at once."""
PAUSE_SECONDS: Final = 1.0
"""Delay before a binding that could not write to the store tries again."""


@dataclass(frozen=True, slots=True)
class BindingDeclaration:
    """A binding as the configuration declares it.

    Attributes:
        source: a queue or a topic here.
        target: a node here, or ``node@domain``.
        selector: selects messages; None for all.
        mode: ``copy`` for topics, ``move`` for queues; None for what fits.
        label: its name for operators; empty for a description.
        subject: selects messages by their subject; ``*`` is one word of it, ``#`` any number.
        first_message_ms: messages that arrived at a queue before this time, in ms since the epoch,
            stay there; None for no limit. A topic's bindings get new messages only (L-15).
    """

    source: str
    target: str
    selector: str | None = None
    mode: Mode | None = None
    label: str = ""
    subject: str | None = None
    first_message_ms: int | None = None

    @property
    def name(self) -> str:
        """Its name, for operators."""
        if self.label:
            return self.label
        about = f" ({self.subject})" if self.subject is not None else ""
        condition = f" [{self.selector}]" if self.selector else ""
        return f"{self.source} -> {self.target}{about}{condition}"

    def renamed(self, name: str, new_name: str) -> BindingDeclaration:
        """Return the same declaration after one of its nodes was renamed."""
        return replace(
            self,
            source=new_name if self.source == name else self.source,
            target=new_name if self.target == name else self.target,
        )

    def filters(self, now_ms: Callable[[], int]) -> FilterSet:
        """Compile the selector and the subject.

        Raises:
            InvalidField: one of them is malformed.
        """
        return declared_filters(self.subject, self.selector, now_ms)


@implementer(IConsumer)
class Binding:
    """A binding at work.

    Args:
        declaration: its declaration.
        source: the `Queue` or `Topic` it takes from.
        find: returns the target of a name now, or raises `AmqpError`.
        context: shared by all nodes.

    Attributes:
        moved: number of messages moved; on a topic only those that its target took.
        refused: number of messages that the target refused.
        words: the reason of the last refusal, or of the pause of the binding.
        taker: the node that takes over the entries; the journal continues them as others.
    """

    takes_ahead = False
    log = Logger()
    taker = EntryTaker(RecordKind.DELETED, MOVED)

    def __init__(
        self,
        declaration: BindingDeclaration,
        source: Queue | Topic,
        find: Callable[[str], ITarget],
        context: NodeContext,
    ) -> None:
        mode: Mode = "copy" if isinstance(source, Topic) else "move"
        if declaration.mode not in (None, mode):
            kind = "topic" if isinstance(source, Topic) else "queue"
            raise InvalidField(
                f"binding {declaration.name}: {declaration.source} is a {kind}, from which a "
                f"binding can {mode} only"
            )
        if mode == "copy" and declaration.first_message_ms is not None:
            raise InvalidField(
                f"binding {declaration.name}: first-message-date is for a queue; from a topic it "
                "gets what is published from now on"
            )
        self.declaration = declaration
        self.mode = mode
        self.source = source
        self.filters = declaration.filters(context.now_ms)
        self.moved = 0
        self.refused = 0
        self.words = ""
        self._find = find
        self._begin = context.begin
        self._clock = context.clock
        self._in_progress = 0
        self._pause: IDelayedCall | None = None
        self._active = False

    def __repr__(self) -> str:
        return f"<Binding {self.name} moved={self.moved} refused={self.refused}>"

    @property
    def name(self) -> str:
        """Its name, for operators."""
        return self.declaration.name

    @property
    def is_active(self) -> bool:
        """Whether it takes from its source."""
        return self._active

    def start(self) -> None:
        """Begin to take from the source."""
        self._active = True
        if isinstance(self.source, Topic):
            self.source.add_outlet(self)
        else:
            is_choosing = self.filters or self.declaration.first_message_ms is not None
            self.source.attach(self, self._selects if is_choosing else None)
            self.source.dispatch()

    def stop(self) -> None:
        """End; messages being moved still arrive."""
        if not self._active:
            return
        self._active = False
        if self._pause is not None and self._pause.active():
            self._pause.cancel()
        self._pause = None
        if isinstance(self.source, Topic):
            self.source.remove_outlet(self)
        else:
            self.source.detach(self)

    # -- of a topic: an outlet ---------------------------------------------------------------------

    @property
    def is_bounded(self) -> bool:
        """Whether the target can be full."""
        return True

    def target(self) -> ITarget:
        """Return the present target, or raise `AmqpError`."""
        return self._find(self.declaration.target)  # it may be renamed

    def selects(self, message: Message, origin: str | None) -> bool:
        """Return whether this binding selects a message."""
        filters = self.filters
        return not filters or filters.matches(message, origin)

    def _selects(self, entry: Entry) -> bool:
        first_ms = self.declaration.first_message_ms
        if first_ms is not None and entry.arrived_ms < first_ms:
            return False
        return self.selects(entry.message, entry.origin)

    # -- of a queue: a consumer --------------------------------------------------------------------

    def capacity(self) -> int:
        """See `IConsumer.capacity`: what the target has room for."""
        if not self._active or self._pause is not None:
            return 0
        try:
            target = self.target()
        except AmqpError as error:
            self._wait(str(error))
            return 0
        # The target's own count includes messages on the way.
        space: int = target.space()
        if space <= 0:
            target.when_space(self.resume)
            return 0
        return max(0, min(space, WINDOW - self._in_progress))

    def resume(self) -> None:
        """Continue after a pause."""
        self._pause = None
        if self._active and not isinstance(self.source, Topic):
            self.source.dispatch()

    def exhausted(self) -> None:
        """Do nothing: a binding is never done."""

    def deliver(self, entries: Sequence[Entry]) -> None:
        """Move entries. See `IConsumer.deliver`."""
        batch = self._begin()
        source = self.source
        assert isinstance(source, Queue)
        moved: list[Entry] = []
        for entry in entries:
            account = None if entry.charge is None else entry.charge[0]
            origin = Origin(
                ANONYMOUS_PRINCIPAL,
                container_id=entry.origin or "",
                account=account,
                event=RecordKind.ROUTED,
                parent=entry.id,
            )
            try:
                self.target().put(leaving(entry, batch.now_ms), batch, origin)
            except ResourceLimitExceeded as error:
                self._wait(str(error))
                source.release([entry])
            except AmqpError as error:
                self._refuse(source, entry, error, batch)
            else:
                moved.append(entry)
        if moved:
            source.settle(moved, ACCEPTED, batch, self)
        self._in_progress += len(moved)
        batch.commit(True).addCallbacks(
            self._moved, self._not_moved, (moved,), errbackArgs=(moved, batch)
        )

    def holds(self) -> Sequence[Entry]:
        """See `IConsumer.holds`: what it is handed is settled at once."""
        return ()

    def _refuse(self, source: Queue, entry: Entry, error: AmqpError, batch: Batch) -> None:
        self.refused += 1
        if str(error) != self.words:
            self.words = str(error)
            self.log.warn(
                "binding {binding}: a message was refused: {error}", binding=self.name, error=error
            )
        details = ErrorDetails(error.condition, error.description)
        source.settle([entry], Rejection(details), batch, self)

    def _wait(self, words: str) -> None:
        if words != self.words:
            self.words = words
            self.log.warn("binding {binding} waits: {reason}", binding=self.name, reason=words)
        if self._pause is None:
            self._pause = self._clock.callLater(PAUSE_SECONDS, self.resume)

    def _moved(self, _: object, entries: list[Entry]) -> None:
        self._in_progress -= len(entries)
        self.moved += len(entries)
        if self._active and isinstance(self.source, Queue):
            self.source.dispatch()

    def _not_moved(self, failure: Failure, entries: list[Entry], batch: Batch) -> None:
        self._in_progress -= len(entries)
        self._wait(f"the store failed: {failure.getErrorMessage()}")
        source = self.source
        assert isinstance(source, Queue)
        if entries:
            source.retake(entries)
            source.release(entries)
        if batch.redo and isinstance(failure.value, StoreUnavailable):
            refused = CommitRetry(batch.gate, self._begin, (), [do for _, do in batch.redo])
            refused.wait(failure).addErrback(self._not_refused)

    def _not_refused(self, failure: Failure) -> None:
        self.log.failure(
            "binding {binding}: refused messages could not be removed from the store; they will "
            "be offered again after a restart",
            failure,
            binding=self.name,
        )


def leaving(entry: Entry, now_ms: int) -> Message:
    """Return the message of an entry for another node here, with the rest of its ttl."""
    message = entry.message
    if entry.expires_ms and message.header.ttl is not None:
        # It would begin anew otherwise.
        parts = message.for_delivery(
            entry.delivery_count, entry.attempted, entry.expires_ms, now_ms
        )
        return Message(b"".join(parts), message.rest)
    return message


__all__ = ["Binding", "BindingDeclaration", "Mode", "leaving"]
