# SPDX-License-Identifier: Apache-2.0
"""The seams between packages: every interface that one package uses of another.

Two operations cross these seams, and everything else serves them:

* **publish**: an `ITarget` receives messages within an `IBatch`; once the batch is committed the
  messages are durable and available, and only then is the sender answered;
* **deliver**: an `ISource` hands entries to an `IConsumer` that has credit; the consumer returns an
  outcome, which the source makes durable.

A client's publish and a peer's transfer are the same operation, and so are delivery to a client and
to a remote organization: a destination *is* a consumer of its relay queue.

Everything happens on the reactor's thread. A Deferred of `IBatch.commit` or `IStore` never fires
inside the call that returned it, so deliver, settle and dispatch cannot recurse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from zope.interface import Attribute, Interface

from amqproute.body import IBody, IBodyReader
from amqproute.conditions import Condition
from amqproute.entry import Entry
from amqproute.message import Message
from amqproute.outcomes import Outcome
from amqproute.stored import StoredEntry, StoreRecovery, StoreRoom
from amqproute.values import NextHop, Origin
from amqproute.wire.engine import Engine

__all__ = [
    "IBatch",
    "IBody",
    "IBodyDraft",
    "IBodyReader",
    "IBroker",
    "IConnectionPump",
    "IConnectionUser",
    "IConsumer",
    "IDirectory",
    "IHops",
    "IJournal",
    "INode",
    "IOutbox",
    "IReporter",
    "ISource",
    "IStagedContent",
    "IStaging",
    "IStore",
    "IStoreTransaction",
    "ITarget",
]


class IStoreTransaction(Interface):
    """Changes that become durable together. Calls are cheap; nothing is written before commit.

    Calls after `commit` raise `LocalProtocolError`.
    """

    events = Attribute("events passed to `record`, in order")

    def enqueue(
        queue: str,
        entry_id: int,
        encoded: bytes,
        arrived_ms: int,
        expires_ms: int,
        flags: int,
        rest: IBody | None = None,
    ) -> None:
        """Put an entry on a queue; ``rest`` is what follows ``encoded``, if there is more."""

    def share(payload_id: int, encoded: bytes) -> None:
        """Store a body once, for entries that refer to it by an id from `IStore.next_id`.

        It lives as long as at least one entry refers to it; a body without references at
        commit is not stored.
        """

    def enqueue_shared(
        queue: str,
        entry_id: int,
        payload_id: int,
        size: int,
        arrived_ms: int,
        expires_ms: int,
        flags: int,
    ) -> None:
        """Put an entry on a queue whose body is a payload of this or an earlier transaction.

        Args:
            size: bytes of the payload.
        """

    def enqueue_shared_many(
        queues: Sequence[str],
        entry_ids: Sequence[int],
        payload_id: int,
        size: int,
        arrived_ms: int,
        expires_ms: int,
        flags: int,
    ) -> None:
        """Do `enqueue_shared` for many queues, each with the id at the same place."""

    def dequeue(ids: Sequence[int]) -> None:
        """Remove the entries with these ids, whatever queue they are on."""

    def update(entry_id: int, delivery_count: int, encoded: bytes | None = None) -> None:
        """Change an entry that stays where it is; a new body is its own, not a shared one."""

    def move(entry_id: int, queue: str, new_id: int, encoded: bytes | None = None) -> None:
        """Move an entry to the tail of another queue under a new id; a shared body stays shared."""

    def mark_received(stream: str, ids: Sequence[int]) -> None:
        """Add receipts: these ids of a peer's stream were accepted."""

    def forget_received(stream: str, below: int) -> None:
        """Forget the receipts of a stream below an id that the peer will never send again."""

    def forget_stream(stream: str) -> None:
        """Forget all receipts of a stream."""

    def forget_received_before(ms: int) -> None:
        """Forget the receipts of any stream that were dated before this time."""

    def postpone(ms: int, now_ms: int) -> None:
        """Postpone the age of all entries after the clock was set ahead.

        Args:
            ms: by this time; by less for an entry that would have arrived after `now_ms`.
            now_ms: the clock now, milliseconds since the epoch.
        """

    def note(kind: str, key: str, value: bytes | None) -> None:
        """Store a small durable fact; None as value deletes it."""

    def record(event: object) -> None:
        """Pass an event to the store's `IOutbox` when this is committed."""

    def begins() -> bool:
        """Tell whether entries are added here, so that it needs room."""

    def ended() -> Sequence[int]:
        """Return the ids of the entries that `dequeue` removes here, in any order."""

    def only_removes() -> bool:
        """Tell whether this removes entries and does nothing else.

        Such a transaction may be repeated after a failure, and needs no room.
        """

    def commit(patient: bool = False) -> Deferred[None]:
        """Return a Deferred that fires when everything above is on the disk.

        Nobody waits for a patient transaction: it may be delayed by a few milliseconds to share
        an fsync with others. If it only removes entries, later transactions may overtake it.

        Apart from that, transactions fire in the order in which they were committed. On failure
        nothing of this transaction was done, and the Deferred fails:

        * with `StoreUnavailable` if the disk is full or takes nothing for now: the same may be
          tried again. Removals succeed on a full disk, and make room;
        * with `StoreIntakeClosed` if the store accepts nothing before a restart;
        * with any other `StoreError` if the transaction contradicts what is stored, or the
          store is closed or has failed: then everything waiting fails, and everything after it.
        """


class IBodyDraft(Interface):
    """An incoming body."""

    size = Attribute("octets so far")

    def append(parts: Sequence[bytes], bare: Sequence[bytes | memoryview] = ()) -> None:
        """Add octets. The draft's ``written`` is called with their number when they are written.

        Args:
            parts: the parts of the body and the footer.
            bare: octets for the digest, for a draft that computes one.
        """

    def finish() -> Deferred[IBody]:
        """Return a Deferred of the `IBody` when it is on the disk; fails with `StoreError`."""

    def abandon() -> None:
        """Discard the draft and what it has written. Harmless after `finish`."""


class IStagedContent(Interface):
    """Octets of one owner that are collected in parts until a message is made of them.

    Only one party holds a content. When another one takes it over, every use by the earlier holder
    raises or fails with `StagedContentLost`.
    """

    size = Attribute("octets so far; known exactly for what was resumed, too")
    is_lost = Attribute("it was taken over, has expired or was removed")

    def check() -> None:
        """Check that it can be used.

        Raises:
            StagedContentLost: see above.
            StoreError: something that was added could not be written.
        """

    def append(parts: Sequence[bytes]) -> None:
        """Add octets. The holder's ``written`` is called with their number when they are written.

        It is called as well when they cannot be; `check` raises why from then on.

        Raises:
            StagingFull: a bound is reached; nothing is added.
            StoreError: as `check`.
        """

    def save(identifier: str | None = None) -> Deferred[int]:
        """Return a Deferred of the number of octets that are on the disk now.

        It fails with `StoreError` if any of them could not be written.

        Args:
            identifier: under which the content is found again from now on, instead of any earlier
                one; another content of the same owner by this name is removed. None to leave it.
        """

    def reader() -> IBodyReader:
        """Return a reader of the octets so far, positioned at the first one.

        Its reads fail with `StoreError`; with `MessageDamaged` if octets differ from the written.
        """

    def release() -> None:
        """Let go of it. What has an identifier is kept, until it expires, for the next holder.

        A content that `IStaging.begin` has named keeps all its octets, one that was named by `save`
        those of the last `save`; one without a name is removed.
        """

    def remove() -> None:
        """Remove it. Harmless if it is lost."""


class IStaging(Interface):
    """Contents that are being staged, on the disk and never in memory, within bounds.

    Everything is by owner: nobody finds what another one has staged.
    """

    terms = Attribute("the `StagingTerms`: bounds for what comes from now on")

    def begin(
        owner: str, identifier: str | None, size: int, written: Callable[[int], None]
    ) -> Deferred[IStagedContent]:
        """Return a Deferred of a content to add to, which is now held by the caller.

        A content of the same identifier and size is found again, as far as it was written, and
        taken from whoever holds it. One of the same identifier and another size is replaced. Fails
        with `StagingFull` if a bound would be exceeded, or with another `StoreError`.

        Args:
            owner: whose it is.
            identifier: under which it is found; None for a content that `save` may name.
            size: octets that it will have; 0 if that is unknown.
            written: called with the number of octets that have been written.
        """

    def resume(
        owner: str, identifier: str, written: Callable[[int], None]
    ) -> Deferred[IStagedContent | None]:
        """Return a Deferred of the content by an identifier, as of its last `save`; or of None."""

    def use(owner: str | None = None) -> tuple[int, int]:
        """Return the number of contents and octets of an owner; of all owners for None."""

    def rows() -> Sequence[tuple[str, str, int, int]]:
        """Return owner, identifier, octets and time of the last addition of what has a name."""

    def expire() -> int:
        """Remove what nothing was added to for longer than the terms allow; return the number."""


class IStore(Interface):
    """Durable state: entries on named queues, receipts, notes, staged contents.

    No Deferred fires within the call that returns it. A call before `open` raises
    `LocalProtocolError`; after `close`, or when the store has failed, Deferreds fail with
    `StoreError`. ``tests/store/contract.py`` tests all of it.
    """

    quarantined = Attribute("number of damaged entries, which are kept and not delivered")
    staging = Attribute("the `IStaging` of this store; usable once the store is open")

    def open() -> Deferred[StoreRecovery]:
        """Open the store; return a Deferred of its contents. It fails with `StoreError`.

        Entries with the flag `amqproute.store.model.TRANSIENT` are deleted. A store object can be
        opened once.
        """

    def close() -> Deferred[None]:
        """Return a Deferred that fires when everything pending is durable and files are closed."""

    def next_id() -> int:
        """Return the next entry id; ids only ever grow, also across restarts."""

    def begin() -> IStoreTransaction:
        """Return a new transaction."""

    def draft(written: Callable[[int], None], before: bytes | None = None) -> IBodyDraft:
        """Return a new draft.

        Args:
            written: called with the number of octets that have been written.
            before: what precedes the body in the bare message, if a digest is wanted.
        """

    def load(
        queue: str, after_id: int, limit: int, limit_bytes: int
    ) -> Deferred[Sequence[StoredEntry]]:
        """Return a Deferred of the queue's next entries in id order, at least one if there is any.

        Entries of one page with the same shared body have the same bytes object. The result shows
        exactly the commits whose Deferreds fired before it.
        """

    def expired(
        queue: str, now_ms: int, after_id: int, limit: int
    ) -> Deferred[Sequence[StoredEntry]]:
        """Return a Deferred of the queue's expired entries with ids above ``after_id``."""

    def names() -> Sequence[str]:
        """Return the names of all queues that have, or had, entries."""

    def ids(queue: str, after_id: int, limit: int) -> Deferred[Sequence[int]]:
        """Return a Deferred of the ids of the queue's next entries, ascending."""

    def room() -> Deferred[StoreRoom]:
        """Return a Deferred of the room that is left."""

    def statistics() -> dict[str, float]:
        """Return counters since the start: times in seconds, sizes in bytes."""


class IOutbox(Interface):
    """Receiver of the store's commits, which may add what must not be lost to each of them.

    All calls come from the thread on which the store writes, in the order of the commits.
    """

    # Any: the store passes on what `record` was given, of which only the outbox knows the type.
    def carry(events: Sequence[Any]) -> tuple[int, bytes, int] | None:
        """Return, before a commit, what the store has to keep with it.

        Args:
            events: the events of the transactions that are about to be committed.

        Returns:
            None for nothing; or a tuple: the number of a row, which grows, its octets, and the
            number up to which rows are obsolete. If the commit fails the call had no effect, and
            may be repeated.
        """

    # Any: as for `carry`.
    def committed(events: Sequence[Any], is_carried: bool) -> None:
        """Handle events that are committed, with or without what `carry` returned."""


class IJournal(Interface):
    """Sink for audit events. It never delays its callers."""

    is_kept = Attribute("whether there is a journal, so that noting events has an effect")
    domain = Attribute("the organization, for what comes from a client of this broker")

    def now_us() -> int:
        """Return the wall clock, microseconds since the epoch."""

    # Any: as for `note`.
    def arrivals(came: Any) -> Any:
        """Return the event for arrivals (`amqproute.journal.event.Came`), to be recorded."""

    # Any: the type of events is the journal's, and the journal is a layer above.
    def note(event: Any) -> None:
        """Record an event (`amqproute.journal.event`) that belongs to no transaction."""


class IBatch(Interface):
    """Messages put on nodes, and settlements, that are committed together."""

    now_ms = Attribute("the wall clock of this batch, ms since the epoch")
    transaction = Attribute("the IStoreTransaction beneath")

    # Any: as for `IJournal.note`.
    def record(event: Any) -> None:
        """Pass an event to the journal when this is committed."""

    def commit(patient: bool = False) -> Deferred[None]:
        """Return a Deferred that fires when all is durable and the entries are available."""


class INode(Interface):
    """Node: what a terminus address names."""

    name = Attribute("the node's name, unique in the container")


class ITarget(INode):
    """A node that messages can be put on."""

    # Any: nodes of the broker ask more of its batch than `IBatch` has.
    def put(message: Message, batch: Any, origin: Origin) -> None:
        """Add one message to the batch.

        Args:
            message: the `amqproute.message.Message`.
            batch: the `IBatch` it becomes durable with.
            origin: the `amqproute.values.Origin`, who sends it and how.

        Raises:
            AmqpError: the message is rejected, with the condition for its sender.
            Unresolved: it is unknown yet whether there is a route; ask `IHops.admit`, try again.
        """

    def space() -> int:
        """Return the number of messages that the target can accept now."""

    def when_space(notify: Callable[[], None]) -> None:
        """Call ``notify()`` once when there is space again."""


class IRefusingTarget(ITarget):
    """A target that may keep what it refuses."""

    # Any: as in `ITarget.put`.
    def refuse(message: Message, batch: Any, origin: Origin) -> bool:
        """Keep a message for which there is no space as a dead letter, if that is wanted.

        Args:
            message: the message.
            batch: the `IBatch` it becomes durable with; nothing is kept in a rehearsal.
            origin: who sends it and how.

        Returns:
            Whether it is kept; its sender is refused all the same.
        """


class ISource(INode):
    """A node that entries come from."""

    def attach(
        consumer: IConsumer,
        selects: Callable[[Entry], bool] | None = None,
        copies: bool = False,
    ) -> None:
        """Add an `IConsumer`; entries come as soon as it has credit and `dispatch` is called.

        Args:
            consumer: receives the entries.
            selects: its filter; None for everything.
            copies: browse: entries are delivered and stay (distribution-mode copy).
        """

    def detach(consumer: IConsumer) -> None:
        """Remove a consumer, which has to settle the entries it holds first."""

    def dispatch() -> None:
        """Hand available entries to consumers with credit."""

    # Any: the batch as for `ITarget.put`.
    def settle(
        entries: Sequence[Entry], outcome: Outcome, batch: Any, consumer: object = None
    ) -> None:
        """Act on the outcome for entries a consumer held (part 3 §3.4).

        Args:
            entries: the entries, any order.
            outcome: the outcome of all of them.
            batch: the `IBatch` in which the effect becomes durable.
            consumer: who held them, for undeliverable-here.
        """

    def retake(entries: Sequence[Entry]) -> None:
        """Take entries back as held: the batch that would have archived them failed.

        Called for entries settled as accepted or rejected in that batch, and for all of them.
        """


class IConsumer(Interface):
    """Consumer of entries: a client's link, a destination, a binding."""

    takes_ahead = Attribute(
        "It accepts entries whose commit is still in progress (`amqproute.broker.early_delivery`)."
    )

    def capacity() -> int:
        """Return the number of entries it can accept now: its credit, less what holds it back."""

    def deliver(entries: Sequence[Entry]) -> None:
        """Receive entries, at most `capacity`; they are held until they are settled."""

    def holds() -> Iterable[Entry]:
        """Return the entries it holds: delivered and not settled."""

    def exhausted() -> None:
        """Handle that the source has nothing more for it although capacity is left."""


class IDirectory(Interface):
    """Names to nodes."""

    def target(name: str) -> ITarget:
        """Return the ITarget of a local node name or alias, or raise `NotFound`."""

    def source(name: str) -> INode:
        """Return a source of entries: an ISource, or a topic to subscribe to.

        Raises:
            NotFound: no node or alias has this name.
        """


class IBroker(IDirectory):
    """The nodes of this container, and the batches that change them."""

    def begin() -> IBatch:
        """Return a new `IBatch`."""

    # Any: `DynamicTerms` are the broker's, a layer above.
    def create_dynamic(terms: Any = None) -> INode:
        """Create a queue with an unguessable name (part 3 §3.5.3, dynamic).

        Args:
            terms: the `amqproute.broker.dynamic_node_terms.DynamicTerms`; None for the defaults.
        """

    # Any: the broker knows more of its nodes than `INode` has.
    def delete(node: Any) -> None:
        """Delete a dynamic node with its entries."""


class IReporter(Interface):
    """Delivery reports to senders.

    Each call is made in the batch that removes the entry, so that a report is as certain as its
    subject.
    """

    # Any: queues, batches, reasons and errors are the broker's, a layer above.
    def failed(queue: Any, entry: Entry, reason: Any, error: Any, batch: Any) -> bool:
        """Report that an entry will not be delivered; return whether its sender gets a report."""

    def returns(message: Message) -> bool:
        """Tell whether the message itself is returned to ``x-opt-return-to`` (T-26)."""

    # Any: as above.
    def taken(queue: Any, entry: Entry, batch: Any) -> bool:
        """Report that a consumer, or the next hop, has accepted an entry whose sender asked for it.

        Returns:
            Whether a report is in the batch.
        """

    # Any: as above.
    def dropped(queue: Any, entry: Entry, code: str, batch: Any) -> bool:
        """Report that an entry was removed without being offered: purged, or with its node.

        Returns:
            Whether a report is in the batch.
        """


class IHops(Interface):
    """The routes to other organizations: one relay queue per next hop."""

    def check(hop: NextHop) -> None:
        """Raise `Unresolved` or `AmqpError` if `target` would, for any sender; create nothing."""

    def target(hop: NextHop, origin: Origin) -> ITarget:
        """Return the relay queue (an ITarget) of a `NextHop`; create it if necessary.

        Raises:
            Unresolved: the DNS has to be asked first.
            ResourceLimitExceeded: the sender has too many (`relay.max-destinations`).
            AmqpError: there is proof that the hop does not exist.
        """

    def admit(hop: NextHop, origin: Origin | None = None) -> Deferred[None]:
        """Return a Deferred that fires when `target` can answer.

        Args:
            hop: the next hop.
            origin: the sender, who waits for its turn; None for the broker itself. The deadline
                begins with its turn.
        """


class IConnectionPump(Interface):
    """The transport of a connection, as the user of its engine sees it."""

    def schedule_flush() -> None:
        """Schedule writing the engine's output in this reactor turn; calls may be repeated."""

    def flush() -> None:
        """Write the engine's output now, unless the present call ends with that anyway."""

    def hold_reading() -> None:
        """Stop reading from the transport until `release_reading`."""

    def release_reading() -> None:
        """Resume reading."""

    def identified(kind: str, user: str) -> str | None:
        """Note that the peer has completed its handshake.

        Args:
            kind: the kind of its `Principal`.
            user: the principal, as access rules write it.

        Returns:
            The exceeded share of connections, as text; None if there is none.
        """

    def close_with(condition: Condition, words: str) -> None:
        """Close the connection by the protocol's own means, in this reactor turn.

        Args:
            condition: the reason.
            words: the words for the peer.
        """

    def abort() -> None:
        """Drop the connection at once, with unwritten output."""

    def hand_over(engine: Engine, user: IConnectionUser, octets: bytes, since: float) -> None:
        """Continue with another engine and another user.

        Args:
            engine: not started yet.
            user: the user of that engine.
            octets: the input of the present engine so far, for the other one.
            since: when the connection began, by the engine's clock.
        """


class IConnectionUser(Interface):
    """User of an engine: a frontend, the relay's peer session, a client."""

    def connected(pump: IConnectionPump) -> None:
        """Handle the start of the connection; keep the pump for flushes."""

    def events(events: Sequence[object]) -> None:
        """Handle events of the user's protocol in order."""

    def paused() -> None:
        """Handle a full transport buffer: queue as little as possible until `writable`."""

    def writable() -> None:
        """Handle that the transport accepts data again."""

    def lost(reason: Failure) -> None:
        """Handle the end of the connection; called once, last, after the engine's last events."""
