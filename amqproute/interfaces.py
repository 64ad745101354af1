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

from zope.interface import Attribute, Interface

__all__ = [
    "IBatch",
    "IBroker",
    "IConnectionUser",
    "IConsumer",
    "IDirectory",
    "IHops",
    "INode",
    "ISource",
    "IStore",
    "IStoreTransaction",
    "ITarget",
]


class IStoreTransaction(Interface):
    """Changes that become durable together. Calls are cheap; nothing is written before commit."""

    def enqueue(queue, entry_id, encoded, arrived_ms, expires_ms, flags):
        """Put an entry on a queue."""

    def dequeue(ids):
        """Remove the entries with these ids, whatever queue they are on."""

    def update(entry_id, delivery_count, encoded=None):
        """Change an entry that stays where it is."""

    def mark_received(stream, ids):
        """Remember that these ids of a peer's stream were taken (receipts)."""

    def forget_received(stream, below):
        """Forget the receipts of a stream below an id that the peer will never send again."""

    def note(kind, key, value):
        """Keep a small durable fact; None as value deletes it."""

    def commit():
        """Return a Deferred that fires when everything above is on the disk.

        Transactions fire in the order in which they were committed. On failure nothing of this
        transaction was done, and the Deferred fails with `StoreError`.
        """


class IStore(Interface):
    """Durable state: entries on named queues, receipts, notes."""

    def open():
        """Return a Deferred of the `Recovery`; fails with `StoreError`, in words."""

    def close():
        """Return a Deferred that fires when everything pending is durable and files are closed."""

    def next_id():
        """Return the next entry id; ids only ever grow, also across restarts."""

    def begin():
        """Return a new `IStoreTransaction`."""

    def load(queue, after_id, limit, limit_bytes):
        """Return a Deferred of the queue's next entries in id order.

        The result shows exactly the commits whose Deferreds fired before it.
        """

    def expired(queue, now_ms, after_id, limit):
        """Return a Deferred of entries of the queue with an id above ``after_id``, expired."""


class IBatch(Interface):
    """Messages on their way into nodes, and settlements, that are committed together."""

    now_ms = Attribute("the wall clock of this batch, ms since the epoch")
    transaction = Attribute("the IStoreTransaction beneath")

    def commit():
        """Return a Deferred that fires when all is durable and the entries are available."""


class INode(Interface):
    """What a terminus address names."""

    name = Attribute("the node's name, unique in the container")


class ITarget(INode):
    """A node that messages can be put on."""

    def put(message, batch, origin):
        """Take one message into the batch.

        Args:
            message: the `amqproute.message.Message`.
            batch: the `IBatch` it becomes durable with.
            origin: the `amqproute.values.Origin`, who sends it and how.

        Raises:
            AmqpError: the message is refused, with the condition for its sender.
            Unresolved: it is not known yet whether there is a way; ask `IHops.admit`, try again.
        """

    def space():
        """Return how many more messages the target can take now, at most."""

    def when_space(tell):
        """Have ``tell()`` called, once, when there is space again."""


class ISource(INode):
    """A node that entries come from."""

    def attach(consumer):
        """Add an `IConsumer`; entries come as soon as it has credit and `dispatch` is called."""

    def detach(consumer):
        """Remove a consumer. What it still holds it has to settle first."""

    def dispatch():
        """Hand available entries to consumers with credit."""

    def settle(entries, outcome, batch, consumer=None):
        """Act on the outcome for entries a consumer held (part 3 §3.4).

        Args:
            entries: the entries, any order.
            outcome: an outcome of `wire.amqp10.spec`; None and `Received` mean released.
            batch: the `IBatch` in which the effect becomes durable.
            consumer: who held them, for undeliverable-here.
        """


class IConsumer(Interface):
    """Whoever takes entries: a client's link, a destination, later a binding."""

    def capacity():
        """Return how many entries it can take now: its credit, less what holds it back."""

    def deliver(entries):
        """Take these entries, at most `capacity`; it holds them until it settles them."""

    def exhausted():
        """Called when the source has nothing more for it although it has capacity left."""


class IDirectory(Interface):
    """Names to nodes."""

    def target(name):
        """Return the ITarget of a local node name or alias, or raise `NotFound`."""

    def source(name):
        """Return the ISource of a local node name or alias, or raise `NotFound`."""


class IBroker(IDirectory):
    """The nodes of this container, and the batches that change them."""

    def begin():
        """Return a new `IBatch`."""

    def create_dynamic(properties):
        """Make a node with an unguessable name (part 3 §3.5.3, dynamic)."""

    def delete(node):
        """Remove a dynamic node and what is on it."""


class IHops(Interface):
    """The ways out of this house: one relay queue per next hop."""

    def target(hop):
        """Return the relay queue (an ITarget) of a `NextHop`, or raise `Unresolved`/`AmqpError`."""

    def admit(hop):
        """Return a Deferred that fires when `target` will answer; it has a deadline of its own."""


class IConnectionUser(Interface):
    """Whoever stands on an engine: a frontend, the relay's peer session, a client."""

    def connected(pump):
        """The transport is there; keep the pump to ask for flushes."""

    def events(events):
        """Act on what the engine told, in order."""

    def paused():
        """The transport's buffer is full: queue as little as possible until `writable`."""

    def writable():
        """The transport takes data again."""

    def lost(reason):
        """The connection is gone; called once, last. The engine's last events came before."""
