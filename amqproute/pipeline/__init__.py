# SPDX-License-Identifier: Apache-2.0
"""What brokers wrote in their journals, as data: a pipeline on Apache Spark.

The daemon needs nothing of this package; it is installed with the extra ``pipeline``. Whatever
works on rows is built from Spark's own expressions, so that one machine and a cluster run the same
plan: nothing is collected to the driver, and no row passes through Python on its way from one file
to another.

The way of a record: `ingest` takes closed segments into bronze tables, a row for each line, of
which `lines` makes rows of records and `duplicates` lets each record stand once;
`traces` makes silver of them, a row for each entry (`traces.hops`) and one for each message over
all brokers (`traces.messages`); `figures`, `conservation` and, between two brokers, `handovers`
make gold of that. `table_schema` says what each table holds, ``docs/pipeline.md`` tells it to
people, and `warehouse` lets a change appear as a whole. Rows that are used several times on the way
are kept by `reuse`, so that a lost executor ends nothing.

A warehouse grows by a day each night, and the nights do not grow with it: `nightly` makes anew what
the new records can have changed (`touched`), `ingest` looks where something can have come, and
`warehouse` cleans up what is marked. `retention` takes old days off, and `soundness` says what each
file is.

`spark_session` gives the `SparkSession` that everything else takes as an argument; `java` finds the
Java that it runs on, and starts it, with the classes that `class_archive` has kept of an earlier
start. `datasource` is a client of brokers: queues as data frames.
"""

__all__: list[str] = []
