# SPDX-License-Identifier: Apache-2.0
"""``spark.read``: browsing queues, and reading the records of a journal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pyspark.sql.datasource import DataSourceReader, InputPartition

from amqproute.journal.record import FIELDS, InvalidLine, read_line
from amqproute.journal.segments import SUFFIX, parts_of
from amqproute.pipeline.datasource.blocking_client import BlockingClient
from amqproute.pipeline.datasource.blocking_links import CREDIT
from amqproute.pipeline.datasource.options import OptionError, ReadOptions
from amqproute.pipeline.datasource.place import BrokerEndpoint, DataSourceError
from amqproute.pipeline.datasource.plain import plain
from amqproute.pipeline.datasource.rows import row_of

__all__ = ["JOURNAL_SCHEMA", "JournalReader", "QueueReader"]

_SQL = {"string": "string", "long": "bigint", "int": "int", "boolean": "boolean"}
JOURNAL_SCHEMA = "event_id string, " + ", ".join(
    f"`{name}` {_SQL[kind]}" for name, kind in FIELDS.items()
)
"""The fields of `amqproute.journal.record.JournalRecord`, and the id that identifies the record
everywhere."""


@dataclass(frozen=True)
class _Look(InputPartition):
    """One queue of one broker."""

    place: BrokerEndpoint
    queue: str


class QueueReader(DataSourceReader):
    """Browses queues, a partition for each; no message is removed or changed.

    Args:
        reading: the options.
    """

    def __init__(self, reading: ReadOptions) -> None:
        self._reading = reading

    def partitions(self) -> list[InputPartition]:
        """Return one for each queue of each broker."""
        reading = self._reading
        return [_Look(place, queue) for place in reading.places for queue in reading.queues]

    @plain
    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        """Yield the messages of the queue, in its order."""
        assert isinstance(partition, _Look)
        reading, place, queue = self._reading, partition.place, partition.queue
        left = reading.limit

        def ask() -> int:
            return CREDIT if left is None else min(CREDIT, left)

        with BlockingClient(place) as client:
            link = client.receiving(queue, browses=True, selector=reading.selector)
            for delivery in link.available(ask):
                if left is not None:
                    left -= 1
                entry = int.from_bytes(delivery.tag, "big") if link.stream else None
                yield row_of(str(place), queue, entry, delivery.payload)


@dataclass(frozen=True)
class _Segment(InputPartition):
    """One file of a journal."""

    path: str


class JournalReader(DataSourceReader):
    """Reads journals record by record, a partition for each segment, and checks their chains.

    For a single look at some days. The pipeline's ingest reads journals repeatedly, keeps damaged
    lines aside and removes duplicates.

    Args:
        options: ``journal``, a directory; every segment in it and below counts once, including the
            open one.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        given = {name.lower(): value for name, value in options.items()}
        if unknown := sorted(set(given) - {"journal"}):
            raise OptionError(f"the option journal excludes the option {', '.join(unknown)}")
        self._directory = Path(given["journal"])

    @plain
    def partitions(self) -> list[InputPartition]:
        """Return one for each segment."""
        if not self._directory.is_dir():
            raise DataSourceError(f"there is no directory {self._directory}")
        found: dict[object, Path] = {}
        for path in sorted(self._directory.rglob(f"*{SUFFIX}")):
            # Between two listings a segment may have been closed and moved.
            found[parts_of(path) or path] = path
        return [_Segment(str(path)) for path in sorted(found.values())]

    @plain
    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        """Yield the records of a segment; an incomplete last line was torn, and is left out.

        Raises:
            DataSourceError: a line is damaged, or in the wrong place.
        """
        assert isinstance(partition, _Segment)
        previous: str | None = None
        path = Path(partition.path)
        with self._open(path) as segment:
            for number, octets in enumerate(segment, 1):
                if not octets.endswith(b"\n"):
                    return
                try:
                    line = read_line(octets, previous)
                except InvalidLine as error:
                    raise DataSourceError(f"{path}:{number}: {error}") from None
                previous = line.hash
                for record in line.records():
                    yield (record.event_id, *(getattr(record, name) for name in FIELDS))

    def _open(self, path: Path) -> BinaryIO:
        """Open a segment, also if it has been closed and moved in the meantime."""
        try:
            return path.open("rb")
        except FileNotFoundError:
            parts = parts_of(path)
            for each in self._directory.rglob(f"*{path.name}"):
                if parts_of(each) == parts:
                    return each.open("rb")
            raise DataSourceError(f"{path} was removed while the journal was read") from None
