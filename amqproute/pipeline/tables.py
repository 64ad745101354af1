# SPDX-License-Identifier: Apache-2.0
"""Tables in plain directories of Parquet, changed as a whole or not at all.

A warehouse is one directory::

    log/00000000000000000012.json       the tables after change 12: which directories are live
    data/commit=<id>/table=runs/day=2026-11-22/domain=alpha.example/part-*.parquet

What is written goes to a directory of its own, which nobody reads; then one small file appears in
``log`` under the next number, all at once, and its list of live directories is what the tables
consist of from then on. A process that is killed before leaves a directory that is on no list, and
the next one that writes removes it. A reader takes the list once, and what is taken off a list is
kept for `KEPT_SECONDS`, so it never sees half of a change. Two writers: the second finds its
number taken, and ends with `Conflict`.

The same file says what is still to be done: the days whose runs have come, and whose entries,
messages, figures and page have not been made of them (`Snapshot.pending`). Who is killed in between
leaves them on the list, and the next run finds them there.

Why not a table format: what is needed of one is this page, and it would be another package to
install and to keep on a cluster. The list is bounded: a day of a domain is one directory for each
table, or a few until they are compacted.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
import uuid
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from amqproute.jsontext import parse_json
from amqproute.pipeline.schema import NOBODY, TABLES, conform

__all__ = ["PARQUET", "TIME_ZONE", "Conflict", "Part", "Snapshot", "Warehouse", "few"]

KEPT_SECONDS: Final = 86_400.0
"""How long a directory that is on no list is kept for those who read by an older one."""

PARQUET: Final = {
    f"parquet.enable.dictionary#{column}": "false"
    for name in ("message_id", "digest", "entry", "from_entry", "began_us", "ended_us")
    for column in (name, f"each.{name}.list.element", f"hops.list.element.{name}")
}
"""Options of Spark's writer. Of columns whose values come once a dictionary is built in vain, which
takes half as long again as all the rest."""

TIME_ZONE: Final = "spark.sql.session.timeZone"
"""Setting of a session by which it tells the day of a time."""

_UTC: Final = ("UTC", "Etc/UTC", "Z", "+00:00")
_NULL: Final = "/domain=__HIVE_DEFAULT_PARTITION__"
_FORMAT: Final = 1


class Conflict(Exception):
    """Somebody else has changed the tables meanwhile; nothing of this change is in them."""


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """A directory of a table: what one change has brought for one day of one domain."""

    table: str
    day: str
    domain: str
    commit: str

    @property
    def path(self) -> str:
        """Where it is, below ``data``; Spark's own way to write partitions."""
        return f"commit={self.commit}/table={self.table}/day={self.day}/domain={self.domain}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the tables consist of after a change; version 0 is the empty warehouse.

    Attributes:
        version: number of the change.
        parts: directories that are live.
        pending: days of which runs have come since everything else was made of them.
    """

    version: int
    parts: tuple[Part, ...]
    pending: frozenset[date] = frozenset()

    def of(self, table: str, days: Collection[date] | None = None) -> list[Part]:
        """Return the directories of a table, of some days or of all."""
        wanted = None if days is None else {day.isoformat() for day in days}
        return [
            part
            for part in self.parts
            if part.table == table and (wanted is None or part.day in wanted)
        ]

    def days(self, table: str) -> list[date]:
        """Return the days that a table has, in order."""
        return sorted({date.fromisoformat(part.day) for part in self.of(table)})


class Warehouse:
    """The tables below one directory, on this machine or on any file system that Hadoop knows."""

    def __init__(self, spark: SparkSession, base: str | Path) -> None:
        """Open it; it comes into being by its first change.

        Args:
            spark: what reads and writes.
            base: its directory, as a path or a URI.
        """
        self.spark = spark
        self.base = str(base)
        self._files = _Files(spark, self.base)

    # -- reading ------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return what the tables consist of now."""
        versions = [int(name[:-5]) for name in self._files.names("log") if name.endswith(".json")]
        if not versions:
            return Snapshot(0, ())
        version = max(versions)
        said = parse_json(self._files.read(f"log/{version:020}.json"))
        if said["format"] != _FORMAT:
            raise ValueError(f"{self.base}: a warehouse of format {said['format']}")
        pending = frozenset(map(date.fromisoformat, said.get("pending", ())))
        return Snapshot(version, tuple(Part(*part) for part in said["parts"]), pending)

    def read(
        self,
        table: str,
        days: Collection[date] | None = None,
        snapshot: Snapshot | None = None,
    ) -> DataFrame:
        """Return a table, as `TABLES` says.

        Args:
            table: its name.
            days: only these.
            snapshot: as it was then; now by default.
        """
        return self.read_parts(table, (snapshot or self.snapshot()).of(table, days))

    def read_parts(
        self, table: str, parts: Iterable[Part], schema: StructType | None = None
    ) -> DataFrame:
        """Return what stands in some directories of a table, published or not.

        Args:
            table: its name.
            parts: the directories.
            schema: which columns of the files; by default those of the table.
        """
        schema = schema or TABLES[table]
        paths = [f"{self.base}/data/{part.path}" for part in parts]
        if not paths:
            return few(self.spark, schema)
        reader = self.spark.read.schema(schema).option("basePath", f"{self.base}/data")
        rows = reader.parquet(*paths).select(*schema.names)
        # The first release took the journals of brokers without a domain in like this.
        nameless = "domain" in schema.names and any(path.endswith(_NULL) for path in paths)
        return rows.fillna(NOBODY, ["domain"]) if nameless else rows

    # -- changing -----------------------------------------------------------------------------

    def begin(self) -> str:
        """Return the name of a new change, and remove what earlier ones left unfinished.

        Raises:
            ValueError: days and hours would not be those of UTC.
        """
        zone = self.spark.conf.get(TIME_ZONE)
        if zone not in _UTC:
            raise ValueError(f"{TIME_ZONE} is {zone}, and the tables are by days of UTC")
        self._clean()
        # Never digits and an "e": Spark works out what the values of directories are, and takes
        # 38556e0160814979 for a number, whose 160 million digits it then writes out.
        return f"c{uuid.uuid4().hex[:16]}"

    def path(self, commit: str) -> str:
        """Return where the data of a change goes: ``table=``, ``day=`` and ``domain=`` below."""
        return f"{self.base}/data/commit={commit}"

    def stage(self, table: str, rows: DataFrame) -> list[Part]:
        """Write rows of a table into directories of their own, which nobody reads yet.

        Args:
            table: its name; `rows` have its columns, and may have others.
            rows: what to write.
        """
        commit = self.begin()
        writer = conform(rows, TABLES[table]).write.options(**PARQUET)
        writer.partitionBy("day", "domain").parquet(f"{self.path(commit)}/table={table}")
        return self.staged(commit)

    def staged(self, commit: str) -> list[Part]:
        """Return the directories that a change has written."""
        found = []
        top = f"data/commit={commit}"
        for table in self._files.names(top):
            for day in self._files.names(f"{top}/{table}"):
                for domain in self._files.names(f"{top}/{table}/{day}"):
                    found.append(Part(_value(table), _value(day), _value(domain), commit))
        return found

    def publish(
        self,
        base: Snapshot,
        added: Iterable[Part],
        removed: Iterable[Part] = (),
        pending: Collection[date] | None = None,
    ) -> Snapshot:
        """Make directories part of the tables, and take others away, at once.

        Args:
            base: what the change started from.
            added: directories from `stage`.
            removed: directories whose rows stand in those now, or are not wanted any more.
            pending: the days that are to be made anew behind this change; None for those that
                were before.

        Raises:
            Conflict: the tables are not as `base` says any more.
        """
        added, gone = list(added), set(removed)
        parts = tuple(sorted([*(part for part in base.parts if part not in gone), *added]))
        for commit in {part.commit for part in added}:
            self._files.sync(f"data/commit={commit}")
        days = base.pending if pending is None else frozenset(pending)
        after = Snapshot(base.version + 1, parts, days)
        said = {
            "format": _FORMAT,
            "parts": [dataclasses.astuple(part) for part in parts],
            "pending": sorted(day.isoformat() for day in days),
        }
        self._files.create(f"log/{after.version:020}.json", json.dumps(said))
        return after

    def _clean(self) -> None:
        """Remove directories that are on no list, and lists that are not the last, after a time."""
        now = time.time()
        live = {part.commit for part in self.snapshot().parts}
        for name, changed in self._files.ages("data").items():
            if _value(name) not in live and now - changed > KEPT_SECONDS:
                self._files.remove(f"data/{name}")
        lists = sorted(self._files.ages("log").items())
        for name, changed in lists[:-1]:
            if now - changed > KEPT_SECONDS:
                self._files.remove(f"log/{name}")


def few(
    spark: SparkSession, schema: StructType, rows: Iterable[Mapping[str, Any]] = ()
) -> DataFrame:
    """Return a few rows that the driver has, by default none, as a data frame.

    They go by way of Arrow: for a list, Spark starts workers of Python.
    """
    table = pa.Table.from_pylist(list(rows), schema=to_arrow_schema(schema))
    return spark.createDataFrame(table, schema)


def _value(name: str) -> str:
    return name.partition("=")[2]


class _Files:
    """The few things that are done with files themselves, by Hadoop's own file systems."""

    def __init__(self, spark: SparkSession, base: str) -> None:
        context: Any = spark.sparkContext
        self._jvm = context._jvm
        self._base = base
        root = self._jvm.org.apache.hadoop.fs.Path(base)
        self._system = root.getFileSystem(context._jsc.hadoopConfiguration())
        uri = self._system.makeQualified(root).toUri()
        self._local = Path(uri.getPath()) if uri.getScheme() == "file" else None

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._base}/{name}")

    def ages(self, name: str) -> dict[str, float]:
        """Return what a directory holds, with the times of change; nothing if there is none."""
        path = self._path(name)
        if not self._system.exists(path):
            return {}
        return {
            str(status.getPath().getName()): status.getModificationTime() / 1000
            for status in self._system.listStatus(path)
        }

    def names(self, name: str) -> list[str]:
        """Return the names of what a directory holds, without hidden ones."""
        return sorted(each for each in self.ages(name) if not each.startswith((".", "_")))

    def read(self, name: str) -> str:
        """Return the text of a file."""
        stream = self._system.open(self._path(name))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def remove(self, name: str) -> None:
        """Remove a file or a directory with all that is in it."""
        self._system.delete(self._path(name), True)

    def create(self, name: str, text: str) -> None:
        """Let a file appear, whole, under a name that nobody has taken.

        Raises:
            Conflict: somebody has.
        """
        if self._local is not None:
            self._link(self._local / name, text)
            return
        path, draft = self._path(name), self._path(f"{name}.{uuid.uuid4().hex}")
        stream = self._system.create(draft, False)
        stream.write(text.encode())
        stream.close()
        # HDFS renames at once, and not onto what is there.
        if self._system.exists(path) or not self._system.rename(draft, path):
            self._system.delete(draft, False)
            raise Conflict(f"{self._base}/{name} is there already")

    def _link(self, path: Path, text: str) -> None:
        # A link is made whole and never over another file; a rename would replace it.
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            with draft.open("w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(draft, path)
            except FileExistsError:
                raise Conflict(f"{path} is there already") from None
        finally:
            with suppress(FileNotFoundError):
                draft.unlink()
        _sync(path.parent)

    def sync(self, name: str) -> None:
        """Bring a directory of this machine to its disk; others do that by themselves."""
        if self._local is None:
            return
        for folder, _, files in os.walk(self._local / name):
            for each in (*(f for f in files if not f.endswith(".crc")), "."):
                _sync(Path(folder, each))
        _sync(self._local / "data")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
