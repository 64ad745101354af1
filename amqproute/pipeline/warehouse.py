# SPDX-License-Identifier: Apache-2.0
"""Tables in plain directories of Parquet, changed as a whole or not at all.

A warehouse is one directory::

    log/00000000000000000012.json       the tables after change 12: the live directories
    data/commit=<id>/table=runs/day=2026-11-22/part-*.parquet
    data/commit=<id>/_files.json        the files of the change, for `amqproute pipeline fsck`
    changes/<id>                        this change may have left directories that are not live

New data goes to a directory of its own, which nobody reads; then one small file appears in ``log``
under the next number, atomically, and from then on the tables consist of the live directories that
it lists. If the process is killed before, the directory is on no list. A reader takes the list
once, and directories removed from the list are kept for `KEPT_SECONDS`, so a reader never sees half
of a change. Of two writers the second finds its number taken, and ends with `PublicationConflict`.

A file in ``changes`` marks each change from its beginning on, and again when one of its directories
is removed from the list. The next writer looks at the marks older than `KEPT_SECONDS`, removes the
directories of their changes that are not live, and then the marks. So the cost of cleaning depends
on the changes, not on the size of the tables.

The list also has the work to be done: the days with new runs whose entries, messages, figures and
page have not been made yet (`WarehouseSnapshot.pending`). A killed process leaves them on the list,
where the next run finds them.

Why not a table format: all that is needed of one is this file, and it would be another package to
install and maintain on a cluster. The list is bounded: a day is one directory for each table, or a
few until they are compacted, whatever the number of organizations; `TablePart.domain` is for the
directories of earlier releases, which had one for each of them.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import time
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructType

from amqproute.durable_path import sync_path
from amqproute.jsontext import parse_json
from amqproute.pipeline.table_schema import (
    HOPS,
    MESSAGES,
    NOBODY,
    RECORDS,
    STAY,
    TABLES,
    conform,
)

__all__ = [
    "KEPT_SECONDS",
    "MANIFEST",
    "PARQUET",
    "TIME_ZONE",
    "PublicationConflict",
    "Stored",
    "TablePart",
    "UnreadableList",
    "Warehouse",
    "WarehouseSnapshot",
    "few",
]

KEPT_SECONDS: Final = 86_400.0
"""Time for which a directory is kept for readers after its removal from the list."""

MANIFEST: Final = "_files.json"
"""The file beside a change's data with the number of its
publication, and its files with lengths."""

_ONCE: Final = sorted(
    {"message_id", "digest"}
    | {
        field.name
        for schema in (RECORDS, HOPS, STAY, MESSAGES)
        for field in schema
        if isinstance(field.dataType, LongType)
    }
)
"""Columns of mostly unique values: numbers of entries, times, durations, octets."""

PARQUET: Final = {
    "parquet.size.statistics.enabled": "false",
    **{
        f"parquet.enable.dictionary#{column}": "false"
        for name in _ONCE
        for column in (name, f"each.{name}.list.element", f"hops.list.element.{name}")
    },
}
"""Options of Spark's writer. For columns of unique values a dictionary is useless, and would take
half as much time again as everything else; and nothing reads the sizes of a page's values."""

TIME_ZONE: Final = "spark.sql.session.timeZone"
"""Setting of a session: its time zone, which determines the day of a time."""

_UTC: Final = ("UTC", "Etc/UTC", "Z", "+00:00")
_NULL: Final = "/domain=__HIVE_DEFAULT_PARTITION__"
_FORMAT: Final = 2
"""Format 1 had a directory for each day and domain; it can be read, and becomes 2 when written."""


class PublicationConflict(Exception):
    """Another writer has changed the tables meanwhile; nothing of this change is in them."""


class UnreadableList(ValueError):
    """The list of live directories is damaged, or of a later release."""


@dataclass(frozen=True, slots=True, order=True)
class TablePart:
    """A directory of a table: the data of one change for one day.

    Attributes:
        table: its name.
        day: the day as ``2026-11-22``.
        domain: its only domain, if an earlier release wrote it; otherwise empty.
        commit: the change.
    """

    table: str
    day: str
    domain: str
    commit: str

    @property
    def path(self) -> str:
        """Its path below ``data``, as Spark writes partitions."""
        day = f"commit={self.commit}/table={self.table}/day={self.day}"
        return f"{day}/domain={self.domain}" if self.domain else day


@dataclass(frozen=True, slots=True)
class WarehouseSnapshot:
    """The contents of the tables after a change; version 0 is the empty warehouse.

    Attributes:
        version: number of the change.
        parts: directories that are live.
        pending: days with new runs that have not been processed.
        since: days before this one have been removed for their age, and are not taken in again.
        listed: time of the last search of each journal for new segments, by its directory, in
            seconds since the epoch.
    """

    version: int
    parts: tuple[TablePart, ...]
    pending: frozenset[date] = frozenset()
    since: date | None = None
    listed: Mapping[str, float] = field(default_factory=dict)

    def as_text(self) -> str:
        """Return its list, in the form for ``log``."""
        said = {
            "format": _FORMAT,
            "parts": [dataclasses.astuple(part) for part in self.parts],
            "pending": sorted(day.isoformat() for day in self.pending),
            "since": self.since and self.since.isoformat(),
            "listed": dict(self.listed),
        }
        return json.dumps(said)

    def of(self, table: str, days: Collection[date] | None = None) -> list[TablePart]:
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
        """Open it; the first change creates it.

        Args:
            spark: the session that reads and writes.
            base: its directory, as a path or a URI.
        """
        self.spark = spark
        self.base = str(base)
        self.files = _Files(spark, self.base)

    # -- reading ------------------------------------------------------------------------------

    def snapshot(self) -> WarehouseSnapshot:
        """Return the present contents of the tables."""
        versions = [int(name[:-5]) for name in self.files.names("log") if name.endswith(".json")]
        if not versions:
            return WarehouseSnapshot(0, ())
        version = max(versions)
        return self.read_list(version)

    def read_list(self, version: int) -> WarehouseSnapshot:
        """Return the contents of the tables after a change, as long as its list is kept.

        Raises:
            UnreadableList: it is of a later format, or damaged.
        """
        name = f"log/{version:020}.json"
        try:
            said = parse_json(self.files.read(name))
            if said["format"] > _FORMAT:
                raise ValueError(f"of format {said['format']}, which a later release writes")
            pending = frozenset(map(date.fromisoformat, said.get("pending", ())))
            since = date.fromisoformat(said["since"]) if said.get("since") else None
            parts = tuple(TablePart(*part) for part in said["parts"])
            return WarehouseSnapshot(version, parts, pending, since, dict(said.get("listed", {})))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UnreadableList(f"{self.base}/{name} cannot be read: {error}") from error

    def read(
        self,
        table: str,
        days: Collection[date] | None = None,
        snapshot: WarehouseSnapshot | None = None,
    ) -> DataFrame:
        """Return a table, with the schema in `TABLES`.

        Args:
            table: its name.
            days: only these.
            snapshot: the contents to read; the present ones by default.
        """
        return self.read_parts(table, (snapshot or self.snapshot()).of(table, days))

    def read_parts(
        self, table: str, parts: Iterable[TablePart], schema: StructType | None = None
    ) -> DataFrame:
        """Return the contents of some directories of a table, published or not.

        Args:
            table: its name.
            parts: the directories.
            schema: columns to read; by default those of the table.
        """
        schema = schema or TABLES[table]
        parts = list(parts)
        # One kind of directory names at a time: Spark reads them together.
        kinds = [[part for part in parts if bool(part.domain) == old] for old in (False, True)]
        found = [self._read(each, schema) for each in kinds if each]
        if not found:
            return few(self.spark, schema)
        return functools.reduce(DataFrame.unionByName, found)

    def _read(self, parts: Sequence[TablePart], schema: StructType) -> DataFrame:
        paths = [f"{self.base}/data/{part.path}" for part in parts]
        reader = self.spark.read.schema(schema).option("basePath", f"{self.base}/data")
        rows = reader.parquet(*paths).select(*schema.names)
        # The first release stored journals of brokers without a domain in this form.
        nameless = "domain" in schema.names and any(path.endswith(_NULL) for path in paths)
        return rows.fillna(NOBODY, ["domain"]) if nameless else rows

    # -- changing -----------------------------------------------------------------------------

    def begin(self) -> str:
        """Return the name of a new change, and remove what earlier ones left unfinished.

        Raises:
            ValueError: days and hours would not be in UTC.
        """
        zone = self.spark.conf.get(TIME_ZONE)
        if zone not in _UTC:
            raise ValueError(f"{TIME_ZONE} is {zone}, and the tables are by days of UTC")
        self._clean()
        # Never digits and an "e": Spark infers the types of directory names, takes 38556e0160814979
        # for a number, and writes out its 160 million digits.
        commit = f"c{uuid.uuid4().hex[:16]}"
        self.files.touch(f"changes/{commit}")
        return commit

    def path(self, commit: str) -> str:
        """Return the place for the data of a change: ``table=`` and ``day=`` below."""
        return f"{self.base}/data/commit={commit}"

    def stage(self, table: str, rows: DataFrame) -> list[TablePart]:
        """Write rows of a table into separate directories, which nobody reads yet.

        Args:
            table: its name; `rows` have its columns, and may have others.
            rows: the rows.
        """
        commit = self.begin()
        writer = conform(rows, TABLES[table]).write.options(**PARQUET)
        writer.partitionBy("day").parquet(f"{self.path(commit)}/table={table}")
        return self.staged(commit)

    def staged(self, commit: str) -> list[TablePart]:
        """Return the directories that a change has written."""
        found = []
        top = f"data/commit={commit}"
        for table in self.files.names(top):
            for day in self.files.names(f"{top}/{table}"):
                of_day = TablePart(_value(table), _value(day), "", commit)
                names = self.files.names(f"{top}/{table}/{day}")
                old = [_value(name) for name in names if name.startswith("domain=")]
                found += [dataclasses.replace(of_day, domain=name) for name in old] or [of_day]
        return found

    def publish(
        self,
        base: WarehouseSnapshot,
        added: Iterable[TablePart],
        removed: Iterable[TablePart] = (),
        pending: Collection[date] | None = None,
        since: date | None = None,
        listed: Mapping[str, float] | None = None,
    ) -> WarehouseSnapshot:
        """Add directories to the tables, and remove others, at once.

        Args:
            base: the contents on which the change is based.
            added: directories from `stage`.
            removed: directories that are replaced or no longer wanted.
            pending: the unprocessed days after this change; None for no change.
            since: see `WarehouseSnapshot.since`; None for no change.
            listed: see `WarehouseSnapshot.listed`; journals that it lacks keep their times.

        Raises:
            PublicationConflict: the tables have changed since `base`.
        """
        added, gone = list(added), set(removed)
        parts = tuple(sorted([*(part for part in base.parts if part not in gone), *added]))
        for commit in sorted({part.commit for part in added}):
            self._describe(commit, base.version + 1, added)
            self.files.sync(f"data/commit={commit}")
        for commit in {part.commit for part in gone}:
            self.files.touch(f"changes/{commit}")
        days = base.pending if pending is None else frozenset(pending)
        looked = {**base.listed, **(listed or {})}
        after = WarehouseSnapshot(base.version + 1, parts, days, since or base.since, looked)
        self.files.create(f"log/{after.version:020}.json", after.as_text())
        return after

    def _describe(self, commit: str, version: int, added: Collection[TablePart]) -> None:
        """Write the list of a change's files."""
        top = f"data/commit={commit}/"
        mine = tuple(f"data/{part.path}/" for part in added if part.commit == commit)
        stored = [each for each in self.files.walk(top) if each.path.startswith(mine)]
        if stored:
            files = {each.path.removeprefix(top): each.octets for each in stored}
            said = json.dumps({"change": version, "files": files})
            self.files.write(f"{top}{MANIFEST}", said)

    def _clean(self) -> None:
        """Remove unlisted directories, after a time, and all lists but the last."""
        before = time.time() - KEPT_SECONDS
        lists = sorted(self.files.ages("log").items())
        if not lists or self._is_old(lists[-1][0]):
            self._mark()
        marks = [name for name, at in self.files.ages("changes").items() if at < before]
        live: dict[str, set[TablePart]] = defaultdict(set)
        for part in self.snapshot().parts if marks else ():
            live[part.commit].add(part)
        for commit in marks:
            self._sweep(commit, live[commit])
            self.files.remove(f"changes/{commit}")
        for name, at in lists[:-1]:
            if at < before:
                self.files.remove(f"log/{name}")

    def _is_old(self, name: str) -> bool:
        return bool(parse_json(self.files.read(f"log/{name}"))["format"] < _FORMAT)

    def _mark(self) -> None:
        """Mark all changes with directories: earlier releases have marked none."""
        marked = self.files.ages("changes")
        for name, at in self.files.ages("data").items():
            if _value(name) not in marked:
                self.files.touch(f"changes/{_value(name)}", at)

    def _sweep(self, commit: str, live: Collection[TablePart]) -> None:
        """Remove the directories of a change that are not live."""
        if not live:
            self.files.remove(f"data/commit={commit}")
            return
        for part in self.staged(commit):
            if part not in live:
                self.files.remove(f"data/{part.path}")


def few(
    spark: SparkSession, schema: StructType, rows: Iterable[Mapping[str, object]] = ()
) -> DataFrame:
    """Return a few rows of the driver, by default none, as a data frame.

    They go through Arrow: for a list, Spark starts Python workers.
    """
    table = pa.Table.from_pylist(list(rows), schema=to_arrow_schema(schema, timezone="UTC"))
    return spark.createDataFrame(table, schema)


def _value(name: str) -> str:
    return name.partition("=")[2]


@dataclass(frozen=True, slots=True)
class Stored:
    """A file: its path below the warehouse, its length, and its time of change, in seconds."""

    path: str
    octets: int
    at: float


class _Files:
    """The few operations on files themselves, by Hadoop's own file systems."""

    def __init__(self, spark: SparkSession, base: str) -> None:
        context: Any = spark.sparkContext
        # Java searches all its archives for each part of a class's name, so it is resolved once.
        self._path_of = context._jvm.org.apache.hadoop.fs.Path
        self._base = base
        root = self._path_of(base)
        self._system = root.getFileSystem(context._jsc.hadoopConfiguration())
        uri = self._system.makeQualified(root).toUri()
        self.local = Path(uri.getPath()) if uri.getScheme() == "file" else None
        """The directory, if it is on this machine."""

    def _path(self, name: str) -> Any:
        return self._path_of(f"{self._base}/{name}")

    def ages(self, name: str) -> dict[str, float]:
        """Return the entries of a directory, with their times of change; none if it is missing."""
        if self.local is not None:
            try:
                with os.scandir(self.local / name) as listed:
                    found = {}
                    for each in listed:
                        with suppress(FileNotFoundError):  # another writer cleans up as well
                            found[each.name] = each.stat().st_mtime
                    return found
            except FileNotFoundError:
                return {}
            except OSError:  # Java reports the error below, as for all other files
                pass
        path = self._path(name)
        if not self._system.exists(path):
            return {}
        return {
            str(status.getPath().getName()): status.getModificationTime() / 1000
            for status in self._system.listStatus(path)
        }

    def names(self, name: str) -> list[str]:
        """Return the names of the entries of a directory, without hidden ones."""
        return sorted(each for each in self.ages(name) if not each.startswith((".", "_")))

    def read(self, name: str) -> str:
        """Return the text of a file."""
        if self.local is not None:
            return (self.local / name).read_text()
        stream = self._system.open(self._path(name))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def remove(self, name: str) -> None:
        """Remove a file, or a directory with its contents."""
        self._system.delete(self._path(name), True)

    def walk(self, name: str) -> Iterator[Stored]:
        """Find all files below a directory, in the order of their paths."""
        if self.local is not None:
            for folder, folders, names in os.walk(self.local / name):
                folders.sort()
                for each in sorted(names):
                    path = Path(folder, each)
                    with suppress(FileNotFoundError):
                        stat = path.stat()
                        place = str(path.relative_to(self.local))
                        yield Stored(place, stat.st_size, stat.st_mtime)
            return
        if not self._system.exists(self._path(name)):
            return
        root = len(str(self._system.makeQualified(self._path_of(self._base))))
        found = self._system.listFiles(self._path(name), True)
        while found.hasNext():
            status = found.next()
            place = str(status.getPath().toString())[root + 1 :]
            yield Stored(place, status.getLen(), status.getModificationTime() / 1000)

    def write(self, name: str, text: str) -> None:
        """Write a file that has no readers yet."""
        if self.local is not None:
            (self.local / name).write_text(text)
            return
        stream = self._system.create(self._path(name), True)
        stream.write(text.encode())
        stream.close()

    def touch(self, name: str, at: float | None = None) -> None:
        """Create or touch an empty file, with the present time or `at`."""
        if self.local is not None:
            place = self.local / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
            if at is not None:
                os.utime(place, (at, at))
            return
        path = self._path(name)
        self._system.create(path, True).close()
        if at is not None:
            self._system.setTimes(path, round(at * 1000), -1)

    def create(self, name: str, text: str) -> None:
        """Create a file atomically, under a name that must not exist.

        Raises:
            PublicationConflict: it exists.
        """
        if self.local is not None:
            self._link(self.local / name, text)
            return
        path, draft = self._path(name), self._path(f"{name}.{uuid.uuid4().hex}")
        stream = self._system.create(draft, False)
        stream.write(text.encode())
        stream.close()
        # HDFS renames atomically, and never over an existing file.
        if self._system.exists(path) or not self._system.rename(draft, path):
            self._system.delete(draft, False)
            raise PublicationConflict(f"{self._base}/{name} is there already")

    def _link(self, path: Path, text: str) -> None:
        # A link appears as a whole and never replaces a file; a rename would.
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
                raise PublicationConflict(f"{path} is there already") from None
        finally:
            with suppress(FileNotFoundError):
                draft.unlink()
        sync_path(path.parent)

    def sync(self, name: str) -> None:
        """Sync a directory of this machine to disk; other file systems do that by themselves."""
        if self.local is None:
            return
        for folder, _, files in os.walk(self.local / name):
            for each in (*(f for f in files if not f.endswith(".crc")), "."):
                sync_path(Path(folder, each))
        sync_path(self.local / "data")
