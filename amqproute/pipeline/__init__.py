# SPDX-License-Identifier: Apache-2.0
"""What brokers wrote in their journals, as data: a pipeline on Apache Spark.

The daemon needs nothing of this package; it is installed with the extra ``pipeline``. Whatever
works on rows is built from Spark's own expressions, so that one machine and a cluster run the same
plan: nothing is collected to the driver, and no row passes through Python on its way from one file
to another.

`session` gives the `SparkSession` that everything else takes as an argument; `java` finds the Java
that it runs on, and starts it. `datasource` is a client of brokers: queues as data frames.
"""

__all__: list[str] = []
