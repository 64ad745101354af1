# SPDX-License-Identifier: Apache-2.0
"""The audit journal: what happened to every message, append-only, chained, without bodies.

Theory of operation
===================

`record` says what a record is and what a line of a journal looks like; the pipeline shares it.
Whoever lets something happen to a message makes an `event.JournalEvent` and goes on::

    broker.commit_batch, relay.outcome_processor   an event: entries, and what all of them share
            |
    IStoreTransaction.record      belongs to a transaction: told when, and if, it is committed
            v
    store.db_writer               one SQLite transaction: rows, and the outbox's row
            |
    journal_outbox.JournalOutbox  numbers it; hands it over when the commit is done
            v
    journal_writer.Journal        encoder: events to runs, digests, JSON
            |                     disk: runs to lines, the chain, one write, fdatasync
            v
    segments.JournalSegments      open/, then the folder of the day; head

What belongs to no transaction (an attempt, an operator's request) goes to the journal directly.

**The crash rule.** An ending is told only once its commit is done, so what the journal says has
ended is gone from the store; and the commit itself carries, as a row of the store's table
``outbox``, that ending and all arrivals that the journal has not on its disk, so what is gone from
the store is said to have ended. What has arrived and not ended stands in the store, where the next
start finds it (`recovery`): it writes what was carried and is missing, then a ``recovery`` record
for each entry that the journal has not heard of. So after ``kill -9`` and after a power failure,
journal and store agree, and neither waited for the other.

**Nothing waits for the journal.** The reactor's part is an object and an append for each batch.
Commits wait for no disk but their own. A lone arrival stays the one statement it was; what ends
entries carries one row more. While the journal's disk stands still or is full, encoded runs wait in
memory (`journal_writer.JournalTerms.held_bytes`); then they are dropped and counted, and a ``gap``
record says how many. With ``on-full: stop`` publishers have no credit long before that.

**Nothing can be taken away unseen.** Lines are chained by hash over all segments; sequences have no
gaps but those that a line tells of; ``head`` knows the end, and the beginning once old segments
have been removed. Who can write the files and the head can forge all of it: keep the last hash that
``amqproute journal verify`` prints somewhere else, and compare.

**No record is named like another.** Not even where the journal was put back from a backup: it finds
that its head is a copy, and leaves out all sequences that may have been used since (`segments`).

**What is not in it.** Copies in the buffers of subscriptions that live as long as their link, those
that a topic keeps for newcomers, and postings of transactions that are not committed: none is a
message that somebody has answered for. The record of a message's arrival at a topic counts those
copies that are entries; the others have no number of their own, begin and end nowhere, stand in no
stock, and are missed by nobody. (For each subscriber a number and two records would double what a
message costs to fan out, to say what an acknowledgment there does not: it settles nothing.) A
message that went ahead of its commit and whose broker was killed then is known to its next hop
only; its sender was told nothing (`broker.early_delivery`). Non-durable messages are noted as they
come and go, and lost like those.

The rooms
=========

=============  ===================================================================================
`record`       kinds, fields, lines; standard library only
`event`       what happens, cheap to make; what it becomes
`journal_outbox`       between the store's thread and the journal's
`journal_writer`       the two threads, the bounds, what happens on a full disk
`loss_counter`        what would be lost
`segments`     files, names, rotation, retention, the head
`recovery`     torn ends, what a start has to add; `segment_scan` reads each segment for it once
`reader`       everything in order, verify, find; `record_text` says it for people
`tail`       the last records, and what comes
`expected_entries`       which entries a store should have
`large_digest`       of very large messages that a start finds
`export`       what a partner may have of it
=============  ===================================================================================

Why so
======

* An outbox rather than a journal within the store: segments are read, copied and moved by others
  while the daemon writes, and are plain files; the store carries each record for a second only.
* Events with the transaction rather than after it: a commit that fails says nothing, and one that
  succeeds cannot be without its records.
* Two threads: one may hang in ``fdatasync`` for seconds; no message is to be kept in memory for it.
* Numbers for what is carried, sequences for what is written: who writes the chain decides the order
  alone, without a lock that commits would have to wait for.
"""

__all__ = [
    "event",
    "expected_entries",
    "export",
    "journal_outbox",
    "journal_writer",
    "large_digest",
    "loss_counter",
    "reader",
    "record",
    "record_text",
    "recovery",
    "segment_scan",
    "segments",
    "tail",
]
