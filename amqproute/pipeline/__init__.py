# SPDX-License-Identifier: Apache-2.0
"""A pipeline on Apache Spark over the audit journals of brokers.

The daemon needs nothing of this package; it is installed with the extra ``pipeline``. All work on
rows uses Spark's own expressions, so one machine and a cluster run the same plan: nothing is
collected to the driver, and no row passes through Python on its way from one file to another.

The path of a record: `ingest` takes closed segments into bronze tables, with a row for each line;
`lines` turns these into rows of records, and `duplicates` keeps each record once. `traces` makes
silver from them, a row for each entry (`traces.hops`) and one for each message over all brokers
(`traces.messages`); `figures`, `conservation` and, between two brokers, `handovers` make gold from
silver. `table_schema` defines the tables, ``docs/pipeline.md`` documents them, and `warehouse`
publishes each change as a whole. `reuse` keeps intermediate rows that are used several times, so
that a lost executor ends nothing.

A warehouse grows by a day each night, but the cost of a night does not: `nightly` recomputes only
days that the new records can have changed (`touched`), `ingest` reads only folders with possible
changes, and `warehouse` cleans up marked changes only. `retention` removes old days, and
`soundness` classifies the files.

`spark_session` makes the `SparkSession` that everything else takes as an argument; `java` finds and
starts its Java, with the classes that `class_archive` has kept from an earlier start. `datasource`
is a client of brokers: queues as data frames.
"""

__all__: list[str] = []
