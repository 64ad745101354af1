# SPDX-License-Identifier: Apache-2.0
"""``write`` and ``writeStream``: each row is a message, accepted by the broker, or the task fails.

Exactness of repeated tasks
===========================

The broker has exactly-once publishing: it remembers the messages taken on a link, on disk, by link
name and delivery-tag, until the sender confirms. So all attempts at one task use the same link,
named by the write and the number of the partition, and the same tag for the same row
(`rows.RowEncoder`). An attempt first learns which tags the broker knows, and sends the others.

When the broker may forget:

* A batch write has a random name, and the broker's state is needed until Spark has committed it:
  then the driver confirms.
* With a name given by the option ``run``, the same write can be repeated after a failure of the
  driver. Nobody knows whether it will, so the broker forgets after ``limits.resume-timeout``: an
  hour by default.
* A stream's write is named by the query, which its checkpoint keeps, and the batch. Spark commits a
  batch after we have, so it may be repeated until the next one begins: the tasks of that one
  confirm it.

Message-ids for rows without one are derived from the same names, so that a queue with a duplicate
policy, or a receiver, can recognize repetitions even after that.

Limits: the broker remembers 100,000 messages over all links of this kind. For larger writes, and
for brokers without the mode, use ``delivery`` with the value ``at-least-once``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.datasource import (
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)

from amqproute.pipeline.datasource.blocking_client import BlockingClient
from amqproute.pipeline.datasource.blocking_links import SendingLink
from amqproute.pipeline.datasource.options import WriteOptions
from amqproute.pipeline.datasource.place import BrokerEndpoint, DataSourceError
from amqproute.pipeline.datasource.plain import plain
from amqproute.pipeline.datasource.rows import OutgoingRow, RowEncoder
from amqproute.wire.amqp10 import spec

__all__ = ["BatchWriter", "StreamWriter"]

log = logging.getLogger(__name__)

_LOOK = 256


@dataclass(frozen=True)
class SentRows(WriterCommitMessage):
    """The result of a task.

    Attributes:
        run: names the write.
        name: the name of the task in it.
        count: rows sent.
    """

    run: str
    name: str
    count: int


def send(
    writing: WriteOptions, run: str, name: str, rows: Iterator[Row], before: str | None = None
) -> SentRows:
    """Send the rows of a task.

    Args:
        writing: the options.
        run: names the write.
        name: names the task, the same for all attempts.
        rows: the rows to be sent.
        before: a task that will not be repeated any more.

    Raises:
        DataSourceError: a row was not accepted, or the broker cannot be reached.
        OptionError: a row is not a message.
    """
    encoder = RowEncoder(name, writing.address)
    count = 0
    with BlockingClient(writing.place, _container(run)) as client:
        if before is not None and writing.exactly_once:
            client.sending(None, before, exactly_once=True).forget()
        sending = client.sending(None, name, exactly_once=writing.exactly_once)
        sending.begin()
        in_progress: dict[bytes, OutgoingRow] = {}
        for row in rows:
            count += 1
            out = encoder.encode(row)
            if isinstance(sending.known.get(out.tag), spec.Accepted):
                continue  # accepted in an earlier attempt
            in_progress[out.tag] = out
            sending.send(out.parts, out.tag)
            if len(sending.outcomes) >= _LOOK:
                _judge(sending, in_progress, writing.place)
        sending.finished()
        _judge(sending, in_progress, writing.place)
        if writing.exactly_once:
            sending.leave()
        else:
            sending.end()
    return SentRows(run, name, count)


def _judge(
    sending: SendingLink, in_progress: dict[bytes, OutgoingRow], place: BrokerEndpoint
) -> None:
    """Process received outcomes; raise an error for the first refused row."""
    outcomes, sending.outcomes = sending.outcomes, {}
    refused = []
    for tag, outcome in outcomes.items():
        out = in_progress.pop(tag)
        if not isinstance(outcome, spec.Accepted):
            refused.append((out, outcome))
    if refused:
        sending.flush()
        out, outcome = refused[0]
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        raise DataSourceError(
            f"{place} did not accept the message {out.message_id!r} to {out.address!r}: "
            f"{_words(outcome)}{more}"
        )


def _words(outcome: Any) -> str:
    if isinstance(outcome, spec.Rejected):
        error = outcome.error
        if error is None:
            return "rejected, without a reason"
        return f"rejected, {error.condition}: {error.description or 'no words'}"
    if isinstance(outcome, spec.Modified):
        return "modified: it cannot be delivered now"
    return "released: it cannot be taken now"


def _container(run: str) -> str:
    return f"amqproute-spark/{run}"


def _forget(place: BrokerEndpoint, messages: Sequence[Any]) -> None:
    """Make the broker forget a committed write."""
    sent = [each for each in messages if isinstance(each, SentRows)]
    if not sent:
        return
    try:
        with BlockingClient(place, _container(sent[0].run)) as client:
            for each in sent:
                client.sending(None, each.name, exactly_once=True).forget()
    except DataSourceError as error:
        # Every row is accepted: an error would make somebody repeat the whole write.
        log.warning(
            "%s remembers this write for up to an hour longer than needed: %s", place, error
        )


class BatchWriter(DataSourceWriter):
    """Writes a data frame.

    Args:
        writing: the options.
    """

    def __init__(self, writing: WriteOptions) -> None:
        self._writing = writing
        self._own = str(uuid4())

    @plain
    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        """Send the rows of one task."""
        context = TaskContext.get()
        assert context is not None, "called by Spark, in a task"
        run = self._writing.run or self._own
        return send(self._writing, run, f"{run}/{context.partitionId()}", iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All rows are accepted."""
        if self._writing.exactly_once and self._writing.run is None:
            _forget(self._writing.place, messages)


class StreamWriter(DataSourceStreamWriter):
    """Writes the batches of a stream.

    Args:
        writing: the options.
    """

    def __init__(self, writing: WriteOptions) -> None:
        self._writing = writing

    @plain
    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        """Send the rows of one task of one batch."""
        context = TaskContext.get()
        assert context is not None, "called by Spark, in a task"
        run = self._writing.run or context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        if not run or batch is None:
            raise DataSourceError("Spark does not say which batch of which query this is")
        name, before = (f"{run}/{n}/{context.partitionId()}" for n in (int(batch), int(batch) - 1))
        return send(self._writing, run, name, iterator, before)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All rows of a batch are accepted; the next batch has it forgotten."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Keep the broker's state: the batch will be repeated."""
