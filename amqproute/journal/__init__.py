# SPDX-License-Identifier: Apache-2.0
"""The audit journal: the history of every message, append-only, chained by hash, without bodies.

Theory of operation
===================

`record` defines records and the lines of a journal; the pipeline shares it. Code that changes the
state of a message makes an `event.JournalEvent` and continues::

    broker.commit_batch, relay.outcome_processor   an event: entries, and what all of them share
            |
    IStoreTransaction.record      belongs to a transaction: passed on when it is committed
            v
    store.db_writer               one SQLite transaction: rows, and the outbox's row
            |
    journal_outbox.JournalOutbox  numbers it; passes it on when the commit is done
            v
    journal_writer.Journal        encoder: events to runs, digests, JSON
            |                     disk: runs to lines, the chain, one write, fdatasync
            v
    segments.JournalSegments      open/, then the folder of the day; head

Events outside of transactions (an attempt, an operator's request) go to the journal directly.

**The crash rule.** The end of an entry is passed on only after its commit, so an entry that has
ended in the journal has left the store. The commit itself carries, as a row of the store's table
``outbox``, that end and all arrivals that the journal does not yet have on disk, so an entry that
has left the store has a recorded end. Entries that have arrived and not ended are in the store,
where the next start finds them (`recovery`): it writes carried records that are missing, then a
``recovery`` record for each entry unknown to the journal. So after ``kill -9`` and after a power
failure journal and store agree, and neither waited for the other.

**Nothing waits for the journal.** The reactor's part is an object and an append for each batch.
Commits wait for no disk but their own. A single arrival remains one statement; a commit that ends
entries has one more row. While the journal's disk hangs or is full, encoded runs wait in memory
(`journal_writer.JournalTerms.held_bytes`); beyond that they are dropped and counted, and a ``gap``
record gives their number. With ``on-full: stop`` publishers lose their credit long before that.

**No record can be removed unnoticed.** Lines are chained by hash over all segments; sequences have
no gaps except recorded ones; ``head`` holds the end, and the beginning once old segments have been
removed. Somebody who can write the files and the head can forge all of it: keep the last hash
printed by ``amqproute journal verify`` somewhere else, and compare.

**Names of records are unique**, even if the journal was restored from a backup: it detects that its
head is a copy, and skips all sequences that may have been used since (`segments`).

**What is not in it.** Copies in the buffers of subscriptions that live as long as their link,
copies that a topic keeps for new subscribers, and postings of uncommitted transactions: nobody has
been given an answer for any of them. The record of a message's arrival at a topic counts the copies
that are entries; the others have no id, no beginning and no end, are in no stock, and are never
reported as lost. (An id and two records per subscriber would double the cost of fan-out, for
acknowledgments that settle nothing.) If a message was delivered ahead of its commit and the broker
was then killed, only its next hop knows it; its sender got no answer (`broker.early_delivery`).
Non-durable messages are recorded as they come and go, and are lost in the same way.

Modules
=======

====================  ==========================================================================
`record`              kinds, fields, lines; standard library only
`event`               events, cheap to make, and their conversion to records
`journal_outbox`      connects the store's thread and the journal's
`journal_writer`      the two threads, the bounds, the behavior on a full disk
`loss_counter`        the number of records that would be lost
`segments`            files, names, rotation, retention, the head
`recovery`            torn ends, and additions at start; `segment_scan` reads each segment once
`reader`              reading in order, verifying, finding; `record_text` formats records
`tail`                the last records, and new ones
`expected_entries`    the entries that a store should have
`large_digest`        digests of very large messages found at start
`export`              the part that a partner may have
====================  ==========================================================================

Why so
======

* An outbox rather than a journal within the store: segments are plain files that others read, copy
  and move while the daemon writes; the store carries each record for only a second.
* Events with the transaction rather than after it: a failed commit records nothing, and a
  successful one cannot lack its records.
* Two threads: one may hang in ``fdatasync`` for seconds, and no message is kept in memory for it.
* Numbers for carried events, sequences for written records: the writer of the chain alone decides
  the order, without a lock that commits would wait for.
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
