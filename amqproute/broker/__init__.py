# SPDX-License-Identifier: Apache-2.0
"""The nodes of this container, and how messages get onto and off them.

How it works
============

`Broker` is the directory (name to node) and the maker of `Batch` objects. A frontend opens one
batch per read from the network, puts every message of that read on its node within it, and
commits once. The batch is what ties a queue to the store:

    put      the queue makes an `Entry`, takes an id from the store and writes nothing yet
    commit   the store makes everything of the batch durable, together with the batches of
             others that wait at that moment (group commit)
    arrived  the queue lines the entries up and dispatches to its consumers; only then is the
             sender told `accepted` (part 2 §2.6.12, requirement T-20)

Where nothing waits before them, and consumers have room, a plain publisher's messages are handed
out while the commit is under way (`early_delivery`); `arrived` then finds them gone from the line.
What the sender is told, and when, is the same.

Ids grow in the order of `put`, commits fire in the order in which they were asked for; so the
order of ids *is* the order of arrival, in memory, on the disk and after a restart.

A client's transaction (`local_transaction.Transaction`) is a list of puts and settlements that are
replayed into one batch when it is discharged; so what is durable about it is one commit. A branch
of a distributed transaction (`xa_registry`) is such a transaction with a name, which can be
promised first and done later, over a restart: `xa_branch` is its states, `xa_record` how it stands
in the store, `xa_recovery` how it is made again, `xa_queue_holds` what it keeps of a queue
meanwhile.

Memory
======

A queue keeps the head of its line in memory and the rest in the store. Once the resident part
reaches `QueueLimits.resident_bytes` or `.resident_messages`, or all queues together the
`MemoryBudget`, further entries are *paged*: written, counted, and forgotten until the head has
been consumed; then the next few hundred are loaded in one read. Non-durable entries that have to
be paged are written too, flagged, and dropped when the store is next opened. A backlog therefore
costs disk, not memory, and a start costs one summary per queue.

The invariant that makes it simple: *every resident entry has a smaller id than every paged one*.
Entries that a consumer gives back return to their old place because the line of returned entries
is sorted by id and always served first.

A very large message is in memory only as far as its header, annotations and properties go; the
rest of it is an `amqproute.interfaces.IBody`, a file that the store keeps as long as anybody needs
it. Queues, topics, bindings and transactions hand it on like any other, count what is in memory of
it, and never look at its body; `large_message_sender.LargeMessageSender` sends it to a link, a part
at a time.

Parts of a queue
================

What a queue holds is data: `queue_state.QueueState`. Its parts are functions over that state; they
return what is to be done, and know no store, clock, journal or timer. `queue.Queue` is the only one
that acts: it asks them, and applies their decisions. So a model can drive the decisions without a
reactor.

What comes in: `enqueue` decides whether and where a message is kept, `admission` what the options
forbid, `duplicate_filter` knows the message-ids that are held; `queue_capacity` notifies those who
wait for free places, `publisher_credit` and `space_waiters` share these out. What is there:
`priority_queues` are the lines of entries, one for each priority, `entry_list` is one of them;
`stored_backlog` decides which pages of the store are read. What goes out: `dispatch` decides who
gets what, `consumer_set` says who is there, with a `consumer_cursor` for each consumer that selects
or browses, and `early_delivery` what is delivered before it is committed; `settlement` decides what
outcomes do; `expiry`, `retry_delay` and `unmatched_entries` say which entries leave their lines for
other reasons, `queue_iterator` shows them to an operator, and `entry_removal` puts it into batches
that entries leave for good.

The `lifetime_policy` of a dynamic queue ends with its links, its messages or its session;
`reply_addresses` are the names of those that take replies by direct reply-to.

Beside the queues: `node_declaration` is what the configuration says of nodes, `recovered_nodes`
what the store held at the start until its node is made; `disposal` tells senders what became of
their messages, and buries dead letters; `partial_delivery_eviction` says which unfinished
deliveries give way when they hold too much, `fair_shares` how a bound is divided; `publish_gate` is
the brake for all publishers, `outgoing_memory` the one for all receivers; `commit_retry` settles
once more what a full disk did not take; `sender_quotas` count what each sender's messages occupy,
on whatever queue.

Topics
======

A topic (`topic`) is a target that puts each message on everything that subscribes to it: on the
queue of a durable subscription and the target of a binding within the sender's batch, with one
body in the store for all of them, and into the buffer of a link's own subscription after the
commit. A binding (`binding`) takes from a topic or a queue and puts on another node, in one batch.

Exchanges
=========

An exchange (`exchanges`) is a target that decides by routing key and headers, on which queues a
message goes: within its sender's batch, with one body in the store for all of them, as a topic
does. Exchanges and queues are two name spaces.

Queues that clients of AMQP 0-9-1 declare are kept by `queue_declarations`; `length_limit` says what
has to make room on them, `dead_letter_exchange` where their dead letters go.

Why so
======

* One kind of queue for clients and for relaying: same states, limits, recovery and view.
* No state machine object per entry: where the entry is, is its state. At 20,000 messages a
  second an attribute more per message is measurable.
* Fair shares are dealt one entry at a time and handed over in one call per consumer, so that
  competing consumers share evenly and still cost one frame burst each.
"""

__all__: list[str] = []
