# SPDX-License-Identifier: Apache-2.0
"""Durable state: entries on named queues, receipts of peers' messages, small notes.

Theory of operation
===================

Two stores keep the same contract (`amqproute.interfaces.IStore`): `sqlite.SqliteStore` on one
SQLite database, and `memory.MemoryStore`, which forgets. Work is gathered in a
`pending_commit.PendingCommit` by plain calls on the reactor's thread; bodies are referred to, never
copied. ``commit()`` hands the whole over and returns a Deferred.

**Group commit.** One thread, `db_writer.DatabaseWriter`, owns the database. Whenever it is free it
takes everything that waits, merges it into one SQLite transaction, commits it with one fsync
(``synchronous=FULL``), sends all results to the reactor in one call, and looks again: the longer
an fsync takes, the more the next one carries. A Deferred fires after the fsync of the SQLite
transaction that holds its work, never inside the call that returned it.

**Order.** Commits, loads and everything else go through one first-in-first-out queue. Deferreds
fire in that order; a load sees exactly the commits whose Deferreds fire before its own. Empty
transactions write nothing but keep their place. Within a group the writes are sorted by kind
(`pending_commit.StatementGroup`); that changes nothing, since an id is born once and ends once. An
entry that comes and goes within one group is not written at all: its sender was not answered before
the commit that would have held both, whoever was handed it ahead of that
(`amqproute.broker.early_delivery`) is done with it, and afterwards there would be nothing left of
it anyway.

**Identity.** Ids grow over the whole store and all restarts. A durable bound runs at least
``ID_BLOCK / 2`` ahead of the ids given out, because peers remember ids of entries that were
never committed; after a crash counting goes on at the bound, after a clean close at the next id.

**Shared payloads.** A message for a thousand queues is one payload and a thousand small rows that
refer to it (``share``, ``enqueue_shared_many``). Each row is an entry like any other: ended, moved,
expired on its own; one that gets another body has it for itself from then on. The commit that
takes the last reference takes the payload, so that no crash leaves one without the other; payloads
are kept under ids of their own, and ``load`` tells them, so that what is one body on the disk can
be one in memory.

**Large bodies.** Messages of `store_sizes.FILE_BYTES` and more, shared or not, are not put into
pages, which would be written to the log, copied to the database and read again to be freed: they
are appended to files beside the database, *segments*, and the row refers to the place. A very large
message is never in memory as a whole: a `large_bodies.BodyDraft` receives it part by part and turns
into a `large_bodies.StoredBody`, a file of its own, which is read part by part; the row has the
sections that precede the body, and any number of rows may refer to one file. Files are on the disk
before the commit that names them, are removed after the commit that removes their last row, and
files that no row names are removed at the start. See `body_files` for how segments are compacted,
and `large_bodies` for who removes a file that is being read.

**Checkpoints.** Commits append to the write-ahead log. A second thread copies the log into the
database while commits go on; the writer itself copies only the small remainder, and the log
begins anew (`checkpoint`). A longer log (``checkpoint_bytes``) saves writes, since a page that
changed a hundred times is copied once, and makes the start after a crash longer.

**The outbox.** A journal of commits (`amqproute.journal`) is told of each by the writer's thread,
in their order, and has the events of those that end entries written with them, in one row: after a
crash it finds there what its own disk had not got yet. The row costs a page of the log; a lone
arrival, which ends nothing, stays one statement. On a full disk nothing is carried.

**Receipts.** What a peer's stream has delivered is remembered as one row for each call: a run of
ids, with the gaps as JSON. They are forgotten by id once the peer has said it will not send those
again, by stream, and by time for peers that never come back.

**Checksums.** Each row and each body has one, and is compared with it when it is read
(`checksums`, `page_reader`). What does not match goes to nobody: its row leaves its queue and stays
with everything that is left of it, and the queue goes on behind it. What is handed out from memory
is not read. A receipt, a note or a name of a queue that does not match keeps the store from
opening, since each could cost messages or bring them twice.

**What a crash leaves.** Of all groups a prefix, each whole: every group whose Deferreds have
fired, and possibly the next one, whose Deferreds had no time to. So nothing committed is lost,
nothing dequeued and committed comes back, and a message whose sender was not answered may be
there: that is what receipts are for. `open` rolls the log forward (SQLite), deletes entries with
the `model.TRANSIENT` flag, and returns counts for each queue without reading bodies: a million
entries of 1 KiB open in under a second, in memory proportional to queues, receipts and notes.

**Damage.** SQLite takes a log that is missing or damaged for one that ends there. `seal` remembers
how far each commit went, `start_evidence` compares at the start, and a store that holds less than
was on the disk is not opened. What no row names is deleted only where the seal proves that no row
is missing; else it moves to a `quarantine`. `salvage` gets back what can be read, into another
folder. What an operator does about single messages that were set aside is in `quarantine_commands`.
`inspection` says beforehand, on one of the `database_copy`, whether a start would take a store.

**A database that was put back** would give ids out again that peers have seen: `mark` notices it.

**A full disk** takes no new entries, and ends old ones as long as it takes: `ballast`, and
`db_writer.DatabaseWriter.yield_turn`. Once a transaction that begins entries has failed for want of
room, all of that kind that were sent off before the reactor heard of it fail too: a small one would
overtake.

**Failures.** When a group fails it is written again with a savepoint around each transaction;
those that fail alone get a `StoreError` in words, the others one common fsync. So a poisonous
transaction costs its neighbors nothing, and on a full disk, where enqueues fail, dequeues still get
through. If the fsync itself fails the whole group fails; SQLite then writes the next group over
the failed one's place in the log. (Should the host crash before that, the failed group may turn
up at the next start: its outcome is then unknown, as with any answer that was lost.)

Linux tells a failed fsync once and then takes the pages for clean, so that the next one succeeds
without them. That does no harm here, because nothing is built on what was not synced: the frames of
the failed group lie behind the last commit that the index of the log knows, and the next group
writes the same places again; a checkpoint whose fsync fails does not count as done, so its pages
are copied again from the log, where they are safe; and a segment whose fsync failed is not written
to any more. Reads of what was committed come from before. So a failed fsync costs the group, which
is told so, and not the process. ``tests/integration/test_failing_disk.py`` takes what was not
synced out of the files again and kills the daemon. Publishers have no credit meanwhile, until
something small has been written (`amqproute.services.watermarks`). An error
that even ROLLBACK cannot handle ends the writer loudly: everything waiting fails, ``on_death`` is
called, and the daemon has to be restarted. A damaged database is refused with the next step; up
to ``check_bytes`` every page is looked at when it is opened, beyond that ``fsck.check`` does it
offline. One that proves damaged while it is open takes nothing more, whatever later commits come
to; what ends goes on, and the next start looks at every page (`suspicion`).
`database_schema.MEANINGS` is the table of what each failure means.

Why so
======

* SQLite rather than a log of our own: indexes, recovery and inspection exist. About 5 us of CPU
  for enqueue and dequeue of 1 KiB together, in batches of 100 (``benchmarks/store.py``).
* One table with an index (queue, id, size) rather than a table for each queue or a key (queue,
  id): dequeue knows ids only, and a statement may take ids of many queues. The index costs 0.6 us
  for a message; for that, pages of a queue and the summaries at the start never touch bodies.
* Pages of 8 KiB. Measured, CPU for each message enqueued and dequeued, in batches of 1 and of 100:
  4 KiB 76 and 4.6 us, 8 KiB 71 and 3.5 us, 16 KiB 97 and 4.2 us. A larger page holds more
  messages of a batch; a lone one writes three or four pages to the log, however little is in them.
* References to payloads are found in an index of such entries only, rather than counted: nothing
  can drift, and no body is written anew because a number beside it changed. Counting was a tenth
  faster for a hundred queues, a fifth for a thousand, and half as slow again for one.
* No trigger deletes payloads: it would cost a subprogram for every entry that is deleted, shared
  or not, 4 % of the instructions of plain traffic. Entries with bodies of their own are deleted
  by a condition instead and pay 1 %, for a look at the row's header (`statements`).
* Statements of fixed sizes with up to 256 rows, pages of entries as one row: Python's sqlite3
  gives up the interpreter lock at each step, and regaining it beside a busy reactor may cost a
  switch interval each time (`statements`).
* The writer takes all that waits rather than pausing for more: no timer to tune, and a lone
  transaction waits for nothing but its own fsync.
* Merging before isolating: the good case pays for no savepoints.
* ``secure_delete`` off: Debian's SQLite zeroes freed pages otherwise, which logs every deleted
  message a second time. Whoever may read the file may read messages anyway.
* The length of the log is read from its shared index, since SQLite tells it only by doing a
  checkpoint.

Limits
======

The database file never shrinks: freed pages are used again (``sqlite3 queues.db 'VACUUM'`` while
the daemon is stopped gives room back). The store does not bound what waits for the writer; the
broker's windows do, and ``statistics()["waiting"]`` shows it. A queue's name stays in memory until
the next start. A local file system is needed: SQLite's log shares memory between connections.
"""

__all__ = [
    "backup",
    "ballast",
    "body_files",
    "checkpoint",
    "checksums",
    "database_copy",
    "database_files",
    "database_schema",
    "db_writer",
    "fsck",
    "inspection",
    "io_thread",
    "large_bodies",
    "mark",
    "memory",
    "model",
    "page_reader",
    "pending_commit",
    "quarantine",
    "quarantine_commands",
    "salvage",
    "seal",
    "sqlite",
    "start_evidence",
    "statements",
    "store_files",
    "store_listener",
    "store_sizes",
    "suspicion",
    "wal_file",
]
