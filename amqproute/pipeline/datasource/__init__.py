# SPDX-License-Identifier: Apache-2.0
"""The Spark data source ``amqproute``: queues and journals as data frames, rows as messages.

::

    from amqproute.pipeline.datasource import register

    register(spark)
    spark.read.format("amqproute").option("url", url).load("orders")

`blocking_client` is a blocking client on amqproute's own engine, with one connection for each task;
`options` reads the options, `rows` converts messages to rows and back. `batch_reader` browses
queues and reads journals; `stream_reader` consumes and `write` sends, and their docstrings explain
why they are exact although tasks, drivers and brokers are killed.

A batch read only browses: Spark does not tell a reader when a job has ended or whether it has
succeeded, so no moment is safe for settling a message. To consume everything present and end, use a
stream with the trigger ``availableNow``.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from amqproute.pipeline.datasource.batch_reader import JOURNAL_SCHEMA, JournalReader, QueueReader
from amqproute.pipeline.datasource.options import (
    OptionError,
    ReadOptions,
    StreamOptions,
    WriteOptions,
)
from amqproute.pipeline.datasource.plain import plain
from amqproute.pipeline.datasource.rows import READ_SCHEMA, check_columns
from amqproute.pipeline.datasource.stream_reader import QueueStream
from amqproute.pipeline.datasource.write import BatchWriter, StreamWriter

__all__ = ["AmqprouteDataSource", "register"]


def register(spark: SparkSession) -> None:
    """Register ``format("amqproute")`` in a session."""
    spark.dataSource.register(AmqprouteDataSource)


class AmqprouteDataSource(DataSource):
    """See the package."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "amqproute"

    def schema(self) -> str:
        """Return the columns of the rows."""
        return JOURNAL_SCHEMA if "journal" in self.options else READ_SCHEMA

    @plain
    def reader(self, schema: StructType) -> DataSourceReader:
        """Read the present messages of queues, or a journal."""
        if "journal" in self.options:
            return JournalReader(self.options)
        if "maxMessages" in self.options:
            raise OptionError("maxMessages is for readStream; spark.read has limit")
        return QueueReader(ReadOptions.of(self.options))

    @plain
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Consume queues."""
        return QueueStream(StreamOptions.of(self.options))

    @plain
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Send rows."""
        self._check(schema, overwrite)
        return BatchWriter(WriteOptions.of(self.options))

    @plain
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Send the rows of a stream."""
        self._check(schema, overwrite)
        return StreamWriter(WriteOptions.of(self.options))

    @staticmethod
    def _check(schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise OptionError('messages are added: use mode("append"), or outputMode("append")')
        check_columns(schema)
