# SPDX-License-Identifier: Apache-2.0
"""Tables in plain directories of Parquet, changed as a whole or not at all.

A warehouse is one directory::

    log/00000000000000000012.json       the tables after change 12: which directories are live
    data/commit=<id>/table=runs/day=2026-11-22/part-*.parquet
    data/commit=<id>/_files.json        what files the change has, for `amqproute pipeline fsck`
    changes/<id>                        this change may have left directories that are not live

What is written goes to a directory of its own, which nobody reads; then one small file appears in
``log`` under the next number, all at once, and its list of live directories is what the tables
consist of from then on. A process that is killed before leaves a directory that is on no list. A
reader takes the list once, and what is taken off a list is kept for `KEPT_SECONDS`, so it never
sees half of a change. Two writers: the second finds its number taken, and ends with
`PublicationConflict`.

A file in ``changes`` stands for each change from its beginning on, and again when a directory of
it is taken off the list. Whoever writes next looks at those older than `KEPT_SECONDS`, removes
what is not live of the changes that they name, and then them. So cleaning costs what has changed,
and not what there is.

The same list says what is still to be done: the days whose runs have come, and whose entries,
messages, figures and page have not been made of them (`WarehouseSnapshot.pending`). Who is killed
in between leaves them on the list, and the next run finds them there.

Why not a table format: what is needed of one is this page, and it would be another package to
install and to keep on a cluster. The list is bounded: a day is one directory for each table, or a
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
"""How long a directory that is on no list is kept for those who read by an older one."""

MANIFEST: Final = "_files.json"
"""What stands with a change: the number of its publication, and its files with their lengths."""

_ONCE: Final = sorted(
    {"message_id", "digest"}
    | {
        field.name
        for schema in (RECORDS, HOPS, STAY, MESSAGES)
        for field in schema
        if isinstance(field.dataType, LongType)
    }
)
"""Columns whose values come once, or nearly: numbers of entries, times, durations, octets."""

PARQUET: Final = {
    "parquet.size.statistics.enabled": "false",
    **{
        f"parquet.enable.dictionary#{column}": "false"
        for name in _ONCE
        for column in (name, f"each.{name}.list.element", f"hops.list.element.{name}")
    },
}
"""Options of Spark's writer. Of columns whose values come once a dictionary is built in vain, which
takes half as long again as all the rest; and nothing reads how large the values of a page are."""

TIME_ZONE: Final = "spark.sql.session.timeZone"
"""Setting of a session by which it tells the day of a time."""

_UTC: Final = ("UTC", "Etc/UTC", "Z", "+00:00")
_NULL: Final = "/domain=__HIVE_DEFAULT_PARTITION__"
_FORMAT: Final = 2
"""Format 1 had a directory for each day and domain; it is read on, and becomes 2 when written."""


class PublicationConflict(Exception):
    """Somebody else has changed the tables meanwhile; nothing of this change is in them."""


class UnreadableList(ValueError):
    """The list of live directories is damaged, or of a later release."""


@dataclass(frozen=True, slots=True, order=True)
class TablePart:
    """A directory of a table: what one change has brought for one day.

    Attributes:
        table: its name.
        day: as ``2026-11-22``.
        domain: the only one that it tells of, if an earlier release wrote it; otherwise empty.
        commit: the change.
    """

    table: str
    day: str
    domain: str
    commit: str

    @property
    def path(self) -> str:
        """Where it is, below ``data``; Spark's own way to write partitions."""
        day = f"commit={self.commit}/table={self.table}/day={self.day}"
        return f"{day}/domain={self.domain}" if self.domain else day


@dataclass(frozen=True, slots=True)
class WarehouseSnapshot:
    """What the tables consist of after a change; version 0 is the empty warehouse.

    Attributes:
        version: number of the change.
        parts: directories that are live.
        pending: days of which runs have come since everything else was made of them.
        since: days before this one have been removed for their age, and are not taken in again.
        listed: when each journal was last looked through for new segments, by its directory, in
            seconds since the epoch.
    """

    version: int
    parts: tuple[TablePart, ...]
    pending: frozenset[date] = frozenset()
    since: date | None = None
    listed: Mapping[str, float] = field(default_factory=dict)

    def as_text(self) -> str:
        """Return its list, as it stands in ``log``."""
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
        """Open it; it comes into being by its first change.

        Args:
            spark: what reads and writes.
            base: its directory, as a path or a URI.
        """
        self.spark = spark
        self.base = str(base)
        self.files = _Files(spark, self.base)

    # -- reading ------------------------------------------------------------------------------

    def snapshot(self) -> WarehouseSnapshot:
        """Return what the tables consist of now."""
        versions = [int(name[:-5]) for name in self.files.names("log") if name.endswith(".json")]
        if not versions:
            return WarehouseSnapshot(0, ())
        version = max(versions)
        return self.read_list(version)

    def read_list(self, version: int) -> WarehouseSnapshot:
        """Return what the tables consisted of after a change, as long as its list is kept.

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
        """Return a table, as `TABLES` says.

        Args:
            table: its name.
            days: only these.
            snapshot: as it was then; now by default.
        """
        return self.read_parts(table, (snapshot or self.snapshot()).of(table, days))

    def read_parts(
        self, table: str, parts: Iterable[TablePart], schema: StructType | None = None
    ) -> DataFrame:
        """Return what stands in some directories of a table, published or not.

        Args:
            table: its name.
            parts: the directories.
            schema: which columns of the files; by default those of the table.
        """
        schema = schema or TABLES[table]
        parts = list(parts)
        # Of one kind by the names of their directories each: Spark reads them together.
        kinds = [[part for part in parts if bool(part.domain) == old] for old in (False, True)]
        found = [self._read(each, schema) for each in kinds if each]
        if not found:
            return few(self.spark, schema)
        return functools.reduce(DataFrame.unionByName, found)

    def _read(self, parts: Sequence[TablePart], schema: StructType) -> DataFrame:
        paths = [f"{self.base}/data/{part.path}" for part in parts]
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
        commit = f"c{uuid.uuid4().hex[:16]}"
        self.files.touch(f"changes/{commit}")
        return commit

    def path(self, commit: str) -> str:
        """Return where the data of a change goes: ``table=`` and ``day=`` below."""
        return f"{self.base}/data/commit={commit}"

    def stage(self, table: str, rows: DataFrame) -> list[TablePart]:
        """Write rows of a table into directories of their own, which nobody reads yet.

        Args:
            table: its name; `rows` have its columns, and may have others.
            rows: what to write.
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
        """Make directories part of the tables, and take others away, at once.

        Args:
            base: what the change started from.
            added: directories from `stage`.
            removed: directories whose rows stand in those now, or are not wanted any more.
            pending: the days that are to be made anew behind this change; None for those that
                were before.
            since: see `WarehouseSnapshot.since`; None for what it was before.
            listed: see `WarehouseSnapshot.listed`; of journals that it does not name, what it was
                before.

        Raises:
            PublicationConflict: the tables are not as `base` says any more.
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
        """Write down which files a change has."""
        top = f"data/commit={commit}/"
        mine = tuple(f"data/{part.path}/" for part in added if part.commit == commit)
        stored = [each for each in self.files.walk(top) if each.path.startswith(mine)]
        if stored:
            files = {each.path.removeprefix(top): each.octets for each in stored}
            said = json.dumps({"change": version, "files": files})
            self.files.write(f"{top}{MANIFEST}", said)

    def _clean(self) -> None:
        """Remove what no list names any more, after a time, and lists that are not the last."""
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
        """Mark all changes whose directories are there: earlier releases have marked none."""
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
    """Return a few rows that the driver has, by default none, as a data frame.

    They go by way of Arrow: for a list, Spark starts workers of Python.
    """
    table = pa.Table.from_pylist(list(rows), schema=to_arrow_schema(schema, timezone="UTC"))
    return spark.createDataFrame(table, schema)


def _value(name: str) -> str:
    return name.partition("=")[2]


@dataclass(frozen=True, slots=True)
class Stored:
    """A file: its path below the warehouse, its length, and when it was written, in seconds."""

    path: str
    octets: int
    at: float


class _Files:
    """The few things that are done with files themselves, by Hadoop's own file systems."""

    def __init__(self, spark: SparkSession, base: str) -> None:
        context: Any = spark.sparkContext
        # Java looks for each part of a class's name in all its archives, so it is named once.
        self._path_of = context._jvm.org.apache.hadoop.fs.Path
        self._base = base
        root = self._path_of(base)
        self._system = root.getFileSystem(context._jsc.hadoopConfiguration())
        uri = self._system.makeQualified(root).toUri()
        self.local = Path(uri.getPath()) if uri.getScheme() == "file" else None
        """The directory, if it is one of this machine."""

    def _path(self, name: str) -> Any:
        return self._path_of(f"{self._base}/{name}")

    def ages(self, name: str) -> dict[str, float]:
        """Return what a directory holds, with the times of change; nothing if there is none."""
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
            except OSError:  # Java says below what is wrong, as of all other files
                pass
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
        if self.local is not None:
            return (self.local / name).read_text()
        stream = self._system.open(self._path(name))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def remove(self, name: str) -> None:
        """Remove a file or a directory with all that is in it."""
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
        """Write a file that nobody reads yet."""
        if self.local is not None:
            (self.local / name).write_text(text)
            return
        stream = self._system.create(self._path(name), True)
        stream.write(text.encode())
        stream.close()

    def touch(self, name: str, at: float | None = None) -> None:
        """Let an empty file be there that says when it was last touched: now, or `at`."""
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
        """Let a file appear, whole, under a name that nobody has taken.

        Raises:
            PublicationConflict: somebody has.
        """
        if self.local is not None:
            self._link(self.local / name, text)
            return
        path, draft = self._path(name), self._path(f"{name}.{uuid.uuid4().hex}")
        stream = self._system.create(draft, False)
        stream.write(text.encode())
        stream.close()
        # HDFS renames at once, and not onto what is there.
        if self._system.exists(path) or not self._system.rename(draft, path):
            self._system.delete(draft, False)
            raise PublicationConflict(f"{self._base}/{name} is there already")

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
                raise PublicationConflict(f"{path} is there already") from None
        finally:
            with suppress(FileNotFoundError):
                draft.unlink()
        _sync(path.parent)

    def sync(self, name: str) -> None:
        """Bring a directory of this machine to its disk; others do that by themselves."""
        if self.local is None:
            return
        for folder, _, files in os.walk(self.local / name):
            for each in (*(f for f in files if not f.endswith(".crc")), "."):
                _sync(Path(folder, each))
        _sync(self.local / "data")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
