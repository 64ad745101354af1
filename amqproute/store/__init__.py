# SPDX-License-Identifier: Apache-2.0
"""Durable state: entries on named queues, receipts of peers' messages, small notes.

Theory of operation
===================

Two stores fulfil the same contract (`amqproute.interfaces.IStore`): `sqlite.SqliteStore` on one
SQLite database, and `memory.MemoryStore`, which persists nothing. Work is collected in a
`pending_commit.PendingCommit` by plain calls on the reactor's thread; bodies are referenced, never
copied. ``commit()`` submits it and returns a Deferred.

**Group commit.** One thread, `db_writer.DatabaseWriter`, owns the database. Whenever it is free it
takes all waiting work, merges it into one SQLite transaction, commits that with one fsync
(``synchronous=FULL``), sends all results to the reactor in one call, and repeats: the longer an
fsync takes, the more the next one carries. A Deferred fires after the fsync of the SQLite
transaction with its work, never inside the call that returned it.

**Order.** Commits, loads and everything else go through one first-in-first-out queue. Deferreds
fire in that order; a load sees exactly the commits whose Deferreds fire before its own. Empty
transactions write nothing but keep their place. Within a group the writes are sorted by kind
(`pending_commit.StatementGroup`); that changes nothing, because an id begins once and ends once. An
entry that begins and ends within one group is not written at all: its sender was not answered
before the commit that would have held both, any consumer that received it ahead of the commit
(`amqproute.broker.early_delivery`) is done with it, and nothing of it would remain anyway.

**Identity.** Ids grow over the whole store and all restarts. A durable bound is at least ``ID_BLOCK
/ 2`` ahead of the ids assigned, because peers remember ids of entries that were never committed;
after a crash counting continues at the bound, after a clean close at the next id.

**Shared payloads.** A message for a thousand queues is one payload and a thousand small rows that
refer to it (``share``, ``enqueue_shared_many``). Each row is an entry like any other: ended, moved,
expired on its own; an entry that gets another body has it for itself from then on. The commit that
removes the last reference removes the payload, so that no crash leaves one without the other.
Payloads have ids of their own, which ``load`` returns, so that one body on disk can be one body in
memory.

**Large bodies.** Messages of `store_sizes.FILE_BYTES` and more, shared or not, are not stored in
pages, which would be written to the log, copied to the database and read again to be freed: they
are appended to files beside the database, *segments*, and the row refers to the place. A very large
message is never in memory as a whole: a `large_bodies.BodyDraft` receives it part by part and turns
into a `large_bodies.StoredBody`, a file of its own, which is read part by part; the row has the
sections that precede the body, and any number of rows may refer to one file. Files are on disk
before the commit that names them, are removed after the commit that removes their last row, and
files without rows are removed at start. See `body_files` for the compaction of segments, and
`large_bodies` for the removal of files that are being read.

**Staged contents.** What clients of AMQP 0-9 send before its message is in files of another
directory (`staging`, `staged_file`), bounded in size, number and age (`staging_ledger`). No commit
refers to them.

**Checkpoints.** Commits append to the write-ahead log. A second thread copies the log into the
database during commits; the writer itself copies only the small remainder, and the log restarts
(`checkpoint`). A longer log (``checkpoint_bytes``) saves writes, because a page that changed a
hundred times is copied once, and prolongs the start after a crash.

**The outbox.** The writer's thread reports each commit to a journal of commits
(`amqproute.journal`), in order; events of commits that end entries are written with them, in one
row: after a crash the journal finds there what its own disk lacks. The row costs a page of the log;
a single arrival, which ends nothing, remains one statement. On a full disk nothing is carried.

**Receipts.** The ids delivered by a peer's stream are stored as one row for each call: a run of
ids, with the gaps as JSON. They are deleted by id once the peer has promised not to send those
again, by stream, and by time for peers that never return.

**Checksums.** Each row and each body has one, which is verified when it is read (`checksums`,
`page_reader`). Damaged entries are not delivered: the row leaves its queue and is kept with
everything that is left of it, and the queue continues behind it. Messages still in memory are not
read again. A damaged receipt, note or queue name keeps the store from opening, because each could
cost messages or duplicate them.

**After a crash** the store holds a prefix of all groups, each whole: every group whose Deferreds
have fired, and possibly the next one, whose Deferreds had no time to fire. So nothing committed is
lost, nothing dequeued and committed comes back, and a message whose sender was not answered may
exist: receipts handle that. `open` rolls the log forward (SQLite), deletes entries with the
`model.TRANSIENT` flag, and returns counts for each queue without reading bodies: a million entries
of 1 KiB open in under a second, in memory proportional to queues, receipts and notes.

**Damage.** SQLite takes a missing or damaged log for one that ends there. `seal` records how far
each commit went, `start_evidence` compares at start, and a store that holds less than was on disk
is not opened. Files without rows are deleted only if the seal proves that no row is missing; else
they move to a `quarantine`. `salvage` recovers everything readable into another folder.
`quarantine_commands` handles single messages that were set aside. `inspection` predicts, on a
`database_copy`, whether a start would accept a store.

**A restored database** would assign ids again that peers have seen: `mark` detects it.

**A full disk** accepts no new entries, and ends existing ones for as long as possible: `ballast`,
and `db_writer.DatabaseWriter.yield_turn`. Once a transaction that begins entries has failed for
lack of space, all of that kind that were submitted before the reactor learned of it fail too: a
small one would overtake.

**Failures.** When a group fails it is written again with a savepoint around each transaction; those
that fail alone get a `StoreError` with an explanation, the others one common fsync. So a faulty
transaction costs its neighbors nothing, and on a full disk, where enqueues fail, dequeues still
succeed. If all of them succeed, the first failure is logged (once for several in a row). If the
fsync fails again the whole group fails; SQLite then writes the next group over its place in the
log. (Should the host crash before that, the failed group may appear at the next start: its outcome
is then unknown, as with any lost answer.)

Linux reports a failed fsync once and then treats the pages as clean, so that the next one succeeds
without them. That does no harm here, because nothing is built on unsynced data: the frames of the
failed group lie behind the last commit in the index of the log, and the next group writes the same
places again; a checkpoint whose fsync fails does not count as done, so its pages are copied again
from the log, where they are safe; and a segment whose fsync failed is not written to any more.
Reads of committed data use earlier pages. So a failed fsync costs at most the group, which is
reported, and not the process. ``tests/integration/test_failing_disk.py`` removes unsynced data from
the files and kills the daemon. Publishers have no credit meanwhile, until something small has been
written (`amqproute.services.watermarks`). An error that even ROLLBACK cannot handle ends the
writer: everything waiting fails, ``on_death`` is called, and the daemon has to be restarted. A
damaged database is refused with the next step; up to ``check_bytes`` every page is checked when it
is opened, beyond that ``fsck.check`` does it offline. A database found damaged while open accepts
no new entries, whatever the results of later commits; ends of entries continue, and the next start
checks every page (`suspicion`). `database_schema.MEANINGS` is the table of failures and their
consequences.

Why so
======

* SQLite rather than a log of our own: indexes, recovery and inspection exist. About 5 us of CPU for
  enqueue and dequeue of 1 KiB together, in batches of 100 (``benchmarks/store.py``).
* One table with an index (queue, id, size) rather than a table for each queue or a key (queue, id):
  dequeue knows only ids, and a statement may remove ids of many queues. The index costs 0.6 us per
  message; in return, pages of a queue and the summaries at start never touch bodies.
* Pages of 8 KiB. Measured CPU for each message enqueued and dequeued, in batches of 1 and of 100: 4
  KiB 76 and 4.6 us, 8 KiB 71 and 3.5 us, 16 KiB 97 and 4.2 us. A larger page holds more messages of
  a batch; a single message writes three or four pages to the log, whatever its size.
* References to payloads are found in an index of such entries only, rather than counted: nothing
  can drift, and no body is rewritten because a number beside it changed. Counting was a tenth
  faster for a hundred queues, a fifth for a thousand, and half as slow again for one.
* No trigger deletes payloads: it would cost a subprogram for every deleted entry, shared or not, 4
  % of the instructions of plain traffic. Entries with bodies of their own are deleted by a
  condition instead, for 1 %, a check of the row's header (`statements`).
* Statements of fixed sizes with up to 256 rows, pages of entries as one row: Python's sqlite3
  releases the interpreter lock at each step, and regaining it beside a busy reactor may take a
  switch interval each time (`statements`).
* The writer takes all waiting work rather than pausing for more: no timer to tune, and a single
  transaction waits only for its own fsync.
* Merging before isolating: the normal case pays for no savepoints.
* ``secure_delete`` off: otherwise Debian's SQLite zeroes freed pages, which logs every deleted
  message a second time. Anybody who may read the file may read messages anyway.
* The length of the log is read from its shared index, because SQLite reports it only by doing a
  checkpoint.

Limits
======

The database file never shrinks: freed pages are reused (``sqlite3 queues.db 'VACUUM'`` while the
daemon is stopped returns the space). The store does not bound the work waiting for the writer; the
broker's windows do, and ``statistics()["waiting"]`` shows it. A queue's name stays in memory until
the next start. A local file system is required: SQLite's log shares memory between connections.
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
    "staged_file",
    "staging",
    "staging_ledger",
    "staging_memory",
    "start_evidence",
    "statements",
    "store_files",
    "store_listener",
    "store_sizes",
    "suspicion",
    "wal_file",
]
