# SPDX-License-Identifier: Apache-2.0
"""The seams of the house: what one room may ask of another.

Two movements cross these seams, and everything else serves them:

* **publish**: an `ITarget` is handed messages within an `IBatch`; when the batch is committed the
  messages are safe and available, and only then is the sender told;
* **deliver**: an `ISource` hands entries to an `IConsumer` that has credit; the consumer gives
  back an outcome, which the source makes durable.

A client's publish and a peer's transfer are the same movement, and so are a client's consumer
and a remote organization: a destination *is* a consumer of its relay queue.

All of it happens on the reactor's thread. A Deferred of `IBatch.commit` or `IStore` never fires
inside the call that returned it, so deliver, settle and dispatch cannot recurse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from zope.interface import Attribute, Interface

from amqproute.entry import Entry
from amqproute.message import Message
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
    "IStore",
    "IStoreTransaction",
    "ITarget",
]


class IStoreTransaction(Interface):
    """Changes that become durable together. Calls are cheap; nothing is written before commit.

    Calls after `commit` raise `LocalProtocolError`.
    """

    events = Attribute("what `record` was called with, in order")

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
        """Keep a body once, for entries that refer to it by an id from `IStore.next_id`.

        It lives as long as at least one entry refers to it; one to which nothing refers at
        commit is not kept.
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
        """Put an entry at another queue's tail under a new id; a shared body stays shared."""

    def mark_received(stream: str, ids: Sequence[int]) -> None:
        """Remember that these ids of a peer's stream were taken (receipts)."""

    def forget_received(stream: str, below: int) -> None:
        """Forget the receipts of a stream below an id that the peer will never send again."""

    def forget_stream(stream: str) -> None:
        """Forget all receipts of a stream."""

    def forget_received_before(ms: int) -> None:
        """Forget the receipts of any stream that were dated before this time."""

    def postpone(ms: int, now_ms: int) -> None:
        """Have all entries age from so much later on: the clock was set ahead.

        Args:
            ms: by so much; less for an entry that would have arrived after `now_ms`.
            now_ms: what it says now, milliseconds since the epoch.
        """

    def note(kind: str, key: str, value: bytes | None) -> None:
        """Keep a small durable fact; None as value deletes it."""

    def record(event: object) -> None:
        """Have an event told to the `IOutbox` of the store when this is committed."""

    def begins() -> bool:
        """Tell whether entries begin here: whether it needs room of its own."""

    def ended() -> Sequence[int]:
        """Return the ids of the entries that `dequeue` removes here, in any order."""

    def only_removes() -> bool:
        """Tell whether nothing happens here but that entries are removed.

        Such a transaction may be repeated after a failure, and needs no room.
        """

    def commit(patient: bool = False) -> Deferred[None]:
        """Return a Deferred that fires when everything above is on the disk.

        A patient transaction is one that nobody is told of; it may wait a few milliseconds to
        share an fsync with others. If it does nothing but end entries, later transactions may
        overtake it.

        But for that, transactions fire in the order in which they were committed. On failure
        nothing of this transaction was done, and the Deferred fails:

        * with `StoreUnavailable` where the disk is full or takes nothing for now: the same may be
          asked again. What only removes goes through on a full disk, and makes room;
        * with `StoreIntakeClosed` where nothing is taken before a restart;
        * with any other `StoreError` where the transaction contradicts what is stored, or the
          store is closed or has broken: then all that waits fails, and all that comes.
        """


class IBody(Interface):
    """The rest of a very large message: what follows the sections before its body.

    It stands in a file, or wherever the store puts it, and lives as long as anybody has it or any
    committed entry refers to it.
    """

    size = Attribute("octets")
    has_footer = Attribute("a footer is among it; known, and of interest, while it comes in only")

    def digest_of(before: bytes) -> tuple[str, int] | None:
        """Return the SHA-256, in hexadecimal, and the octets of the bare message it is the rest of.

        None if they are not known, or are of other octets. Not for the reactor's thread: what a
        start finds in the store looks at its file, once.

        Args:
            before: octets of the bare message that precede these: properties.
        """

    def recall(before: bytes) -> Deferred[tuple[str, int] | None]:
        """Return a Deferred of what `digest_of` returns, for the reactor's thread."""

    def digested(before: bytes, digest: str, size: int) -> None:
        """Be told what `digest_of` returns: of `before` and these octets without the footer."""

    def reader() -> IBodyReader:
        """Return a reader, which begins at the first octet."""


class IBodyReader(Interface):
    """Reads a body once, from its beginning to its end."""

    left = Attribute("octets that have not been asked for")

    def read(size: int) -> Deferred[bytes]:
        """Return a Deferred of the next octets, one at least while any is left.

        Fails with `StoreError`: `MessageDamaged` where they are not what was written.

        Args:
            size: how many at most.
        """

    def close() -> None:
        """Read no more."""


class IBodyDraft(Interface):
    """A body on its way in."""

    size = Attribute("octets so far")

    def append(parts: Sequence[bytes], bare: Sequence[bytes | memoryview] = ()) -> None:
        """Add octets. The draft's ``written`` is called with their number when it has them.

        Args:
            parts: of the body and the footer.
            bare: what is to go into the digest, for a draft that makes one.
        """

    def finish() -> Deferred[IBody]:
        """Return a Deferred of the `IBody`, once it is on the disk; fails with `StoreError`."""

    def abandon() -> None:
        """Give it up; nothing is left of it. Harmless after `finish`."""


class IStore(Interface):
    """Durable state: entries on named queues, receipts, notes.

    No Deferred fires within the call that returns it. A call before `open` raises
    `LocalProtocolError`; after `close`, or when the store has broken, Deferreds fail with
    `StoreError`. ``tests/store/contract.py`` tests all of it.
    """

    quarantined = Attribute("damaged entries that are kept, and given to nobody")

    def open() -> Deferred[StoreRecovery]:
        """Return a Deferred of what is there; fails with `StoreError`, in words.

        Entries with the flag `amqproute.store.model.TRANSIENT` are gone then. A store object is
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
            written: told of octets that it need not hold any more.
            before: what precedes the body in the bare message, if a digest is to be made.
        """

    def load(
        queue: str, after_id: int, limit: int, limit_bytes: int
    ) -> Deferred[Sequence[StoredEntry]]:
        """Return a Deferred of the queue's next entries in id order, one at least if there is any.

        Entries of one page with the same shared body have the same bytes object. The result shows
        exactly the commits whose Deferreds fired before it.
        """

    def expired(
        queue: str, now_ms: int, after_id: int, limit: int
    ) -> Deferred[Sequence[StoredEntry]]:
        """Return a Deferred of entries of the queue with an id above ``after_id``, expired."""

    def names() -> Sequence[str]:
        """Return the names of all queues that have, or had, entries."""

    def ids(queue: str, after_id: int, limit: int) -> Deferred[Sequence[int]]:
        """Return a Deferred of the ids of the queue's next entries, ascending."""

    def room() -> Deferred[StoreRoom]:
        """Return a Deferred of how much it may still grow."""

    def statistics() -> dict[str, float]:
        """Return counters since the start: times in seconds, sizes in bytes."""


class IOutbox(Interface):
    """Whoever is told what the store has committed, and has the store carry what may not be lost.

    All calls come from the thread on which the store writes, in the order of the commits.
    """

    # Any: the store passes on what `record` was given, of which only the outbox knows the type.
    def carry(events: Sequence[Any]) -> tuple[int, bytes, int] | None:
        """Tell, before a commit, what is to be kept in the store with it.

        Args:
            events: of the transactions that are about to be committed.

        Returns:
            None for nothing; or a tuple: the number of a row, which grows, its octets, and the
            number up to which rows are not needed any more. If the commit fails it was for
            nothing, and there may be another one.
        """

    def committed(events: Sequence[Any], is_carried: bool) -> None:
        """Hear that these are committed: with what `carry` returned, or without anything."""


class IJournal(Interface):
    """Whoever keeps a journal of what happens. It never delays what it is told of."""

    is_kept = Attribute("there is a journal: what is told to it is not for nothing")
    domain = Attribute("the organization, for what comes from a client of this broker")

    def now_us() -> int:
        """Return the wall clock, microseconds since the epoch."""

    def note(event: Any) -> None:
        """Take an event (`amqproute.journal.event`) that belongs to no transaction."""


class IBatch(Interface):
    """Messages on their way into nodes, and settlements, that are committed together."""

    now_ms = Attribute("the wall clock of this batch, ms since the epoch")
    transaction = Attribute("the IStoreTransaction beneath")

    def record(event: Any) -> None:
        """Have an event told to the journal when this is committed."""

    def commit(patient: bool = False) -> Deferred[None]:
        """Return a Deferred that fires when all is durable and the entries are available."""


class INode(Interface):
    """What a terminus address names."""

    name = Attribute("the node's name, unique in the container")


class ITarget(INode):
    """A node that messages can be put on."""

    def put(message: Message, batch: Any, origin: Origin) -> None:
        """Take one message into the batch.

        Args:
            message: the `amqproute.message.Message`.
            batch: the `IBatch` it becomes durable with.
            origin: the `amqproute.values.Origin`, who sends it and how.

        Raises:
            AmqpError: the message is refused, with the condition for its sender.
            Unresolved: it is not known yet whether there is a way; ask `IHops.admit`, try again.
        """

    def space() -> int:
        """Return how many more messages the target can take now, at most."""

    def when_space(notify: Callable[[], None]) -> None:
        """Have ``notify()`` called, once, when there is space again."""


class ISource(INode):
    """A node that entries come from."""

    def attach(
        consumer: IConsumer,
        selects: Callable[[Entry], bool] | None = None,
        copies: bool = False,
    ) -> None:
        """Add an `IConsumer`; entries come as soon as it has credit and `dispatch` is called.

        Args:
            consumer: who takes.
            selects: its filter; None for everything.
            copies: it browses: entries are shown to it and stay (distribution-mode copy).
        """

    def detach(consumer: IConsumer) -> None:
        """Remove a consumer. What it still holds it has to settle first."""

    def dispatch() -> None:
        """Hand available entries to consumers with credit."""

    def settle(entries: Sequence[Entry], outcome: Any, batch: Any, consumer: object = None) -> None:
        """Act on the outcome for entries a consumer held (part 3 §3.4).

        Args:
            entries: the entries, any order.
            outcome: an outcome of `wire.amqp10.spec`; None and `Received` mean released.
            batch: the `IBatch` in which the effect becomes durable.
            consumer: who held them, for undeliverable-here.
        """

    def retake(entries: Sequence[Entry]) -> None:
        """Count entries as held again: the batch that was to archive them could not be committed.

        Called for entries settled as accepted or rejected in that batch, and for all of them.
        """


class IConsumer(Interface):
    """Whoever takes entries: a client's link, a destination, a binding."""

    takes_ahead = Attribute(
        "It may be handed entries whose commit is still under way "
        "(`amqproute.broker.early_delivery`)."
    )

    def capacity() -> int:
        """Return how many entries it can take now: its credit, less what holds it back."""

    def deliver(entries: Sequence[Entry]) -> None:
        """Take these entries, at most `capacity`; it holds them until it settles them."""

    def holds() -> Iterable[Entry]:
        """Return the entries it holds: delivered and not settled."""

    def exhausted() -> None:
        """Called when the source has nothing more for it although it has capacity left."""


class IDirectory(Interface):
    """Names to nodes."""

    def target(name: str) -> ITarget:
        """Return the ITarget of a local node name or alias, or raise `NotFound`."""

    def source(name: str) -> INode:
        """Return what entries come from: an ISource, or a topic to subscribe to.

        Raises:
            NotFound: there is no node of this name or alias.
        """


class IBroker(IDirectory):
    """The nodes of this container, and the batches that change them."""

    def begin() -> IBatch:
        """Return a new `IBatch`."""

    def create_dynamic(terms: Any = None) -> INode:
        """Make a queue with an unguessable name (part 3 §3.5.3, dynamic).

        Args:
            terms: the `amqproute.broker.dynamic_node_terms.DynamicTerms`; None for the usual ones.
        """

    def delete(node: Any) -> None:
        """Remove a dynamic node and what is on it."""


class IReporter(Interface):
    """Whoever tells senders what became of their messages.

    Each call is made in the batch that lets go of the entry, so that a report is as certain as
    what it reports.
    """

    def failed(queue: Any, entry: Entry, reason: Any, error: Any, batch: Any) -> bool:
        """An entry will not be delivered; return whether its sender is told."""

    def returns(message: Message) -> bool:
        """Tell whether the message itself goes back to ``x-opt-return-to`` (T-26)."""

    def taken(queue: Any, entry: Entry, batch: Any) -> bool:
        """A consumer, or the next hop, has accepted an entry whose sender wants reports.

        Returns:
            Whether a report is in the batch.
        """

    def dropped(queue: Any, entry: Entry, code: str, batch: Any) -> bool:
        """An entry is gone that was never offered to its end: purged, or with its node.

        Returns:
            Whether a report is in the batch.
        """


class IHops(Interface):
    """The ways out of this house: one relay queue per next hop."""

    def check(hop: NextHop) -> None:
        """Raise `Unresolved` or `AmqpError` if `target` would, whoever sends; make nothing."""

    def target(hop: NextHop, origin: Origin) -> ITarget:
        """Return the relay queue (an ITarget) of a `NextHop`; make it if there is none.

        Raises:
            Unresolved: it has to be asked about first.
            ResourceLimitExceeded: the sender has too many (`relay.max-destinations`).
            AmqpError: there is proof that the hop does not exist.
        """

    def admit(hop: NextHop, origin: Origin | None = None) -> Deferred[None]:
        """Return a Deferred that fires when `target` will answer.

        Args:
            hop: where to.
            origin: who wants it, and waits for its turn; None for the broker itself. From then on
                there is a deadline.
        """


class IConnectionPump(Interface):
    """The transport of a connection, as the user of its engine sees it."""

    def schedule_flush() -> None:
        """Have the engine's output written in this reactor turn; as often as you like."""

    def flush() -> None:
        """Write the engine's output now, unless that happens at the end of this call anyway."""

    def hold_reading() -> None:
        """Take nothing more from the transport until `release_reading`."""

    def release_reading() -> None:
        """Read on."""

    def identified(kind: str, user: str) -> str | None:
        """Note that the peer is through its handshake.

        Args:
            kind: of its `Principal`.
            user: the principal, as access rules write it.

        Returns:
            The share of connections, in words, that it has exceeded; None if it has not.
        """

    def abort() -> None:
        """Drop the connection without a word, what is unwritten as well."""

    def hand_over(engine: Engine, user: IConnectionUser, octets: bytes, since: float) -> None:
        """Go on with another engine and another user.

        Args:
            engine: not started yet.
            user: of that engine.
            octets: what the present engine has been given, for the other one.
            since: when the connection began, by the engine's clock.
        """


class IConnectionUser(Interface):
    """Whoever stands on an engine: a frontend, the relay's peer session, a client."""

    def connected(pump: IConnectionPump) -> None:
        """The transport is there; keep the pump to ask for flushes."""

    def events(events: Sequence[object]) -> None:
        """Act on what the engine told, in order: events of the user's own protocol."""

    def paused() -> None:
        """The transport's buffer is full: queue as little as possible until `writable`."""

    def writable() -> None:
        """The transport takes data again."""

    def lost(reason: Failure) -> None:
        """The connection is gone; called once, last. The engine's last events came before."""
