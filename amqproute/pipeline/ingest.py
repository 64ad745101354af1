# SPDX-License-Identifier: Apache-2.0
"""Bronze: closed segments of many brokers become the tables `runs`, `rejects` and `segments`.

Ingested segments are known by name, day and length, so a second run takes only new ones, and an
incomplete segment is taken again when it is complete. A record has an event id, the journal and the
sequence in it; repeated records, in a copied segment or within one, are dropped. As a rule these
are whole lines, which are counted; of a line that shares some records with another the rest is
kept.

A repeated record *with other contents* is another matter: somebody has changed a journal, or it
continues in two places, as after copying a machine. The record in the tables stays; among new ones
a rule decides that depends only on the lines (`duplicates`). The other line goes to ``rejects`` and
is counted separately. So do unreadable lines, and altered ones (`chain`). All have their path,
number and reason there.

A segment with unreadable or altered lines does not count as known: other copies of it are taken
too, and it is taken again when its file has been replaced.

The cost of a call depends on the new segments, not on the size of the tables. Only folders are read
in which a file was added or removed since a day before the last call, or that are of its day or
later, or of a day with rejected lines (`_folders`). Their files are compared with the segments
taken of those days. A record is at most `LONGEST_SEGMENT_DAYS` from the day of its segment's
folder, so only segments within twice that distance can have it as well.

All of a call becomes visible at once (`Warehouse`).
"""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from amqproute.journal.record import LONGEST_RUN, VERSION
from amqproute.pipeline.chain import TAMPERED, with_previous
from amqproute.pipeline.defaults import MOST_PIECES
from amqproute.pipeline.duplicates import BEGINNING, CONTRADICTS, LINE, end, settled, with_content
from amqproute.pipeline.lines import AHEAD_US, LONGEST_SEGMENT_DAYS, TOO_NEW, parse
from amqproute.pipeline.links import opening, unlinked
from amqproute.pipeline.reuse import Reuse
from amqproute.pipeline.table_schema import NOBODY, REJECTS, RUNS, SEGMENTS
from amqproute.pipeline.warehouse import (
    PARQUET,
    TIME_ZONE,
    TablePart,
    Warehouse,
    WarehouseSnapshot,
    few,
)

__all__ = ["IngestSummary", "clock_us", "compact", "ingest", "literal"]

DAYS: Final = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]"
"""Folders of closed segments in the directory of a journal."""

AT_ONCE: Final = 5000
"""Most segments of one change: the driver holds their names."""


@dataclass(frozen=True, slots=True)
class IngestSummary:
    """The result of a call.

    Attributes:
        segments: files.
        lines: lines added to the tables, whole or in part.
        records: records in them.
        duplicates: lines that were already present.
        rejected: lines in ``rejects``.
        contradicting: those of them that contradict records in the tables.
        tampered: those of them that were altered.
    """

    segments: int = 0
    lines: int = 0
    records: int = 0
    duplicates: int = 0
    rejected: int = 0
    contradicting: int = 0
    tampered: int = 0

    @property
    def unread(self) -> int:
        """Unreadable lines in ``rejects``."""
        return self.rejected - self.contradicting - self.tampered

    def __add__(self, other: IngestSummary) -> IngestSummary:
        return IngestSummary(
            *(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__)
        )


# -- segments ----------------------------------------------------------------------------------


def ingest(
    warehouse: Warehouse,
    journals: Sequence[str | Path],
    at_once: int = AT_ONCE,
    now_us: int | None = None,
    *,
    look_everywhere: bool = False,
) -> IngestSummary:
    """Take in the closed segments that are not in the tables yet.

    Args:
        warehouse: where the tables are.
        journals: directories of journals, one for each broker or copies of those of partners; each
            has a folder for each day.
        at_once: most segments of one change.
        now_us: the time, microseconds since the epoch; by default by the clock of this machine.
            Records later than that by more than `AHEAD_US` are refused.
        look_everywhere: read also folders in which no file was added or removed.

    Raises:
        PublicationConflict: another writer has changed the tables meanwhile; published changes
            stay.
    """
    total = IngestSummary()
    until_us = (clock_us() if now_us is None else now_us) + AHEAD_US
    begun = time.time()
    journals = [journal for journal in journals if _may_be_there(journal)]
    while True:
        folders = _folders(warehouse.snapshot(), journals, look_everywhere=look_everywhere)
        fresh: list[SegmentFile] = []
        try:
            fresh = _fresh(warehouse, folders, at_once, until_us) if folders.paths else []
            if not fresh:
                return total
            is_last = len(fresh) < at_once
            listed = dict.fromkeys(folders.journals, begun) if is_last else None
            with Reuse() as reuse:
                taken = _take(warehouse, fresh, until_us, listed, reuse)
        except (PySparkException, Py4JJavaError):
            # Segments may be removed for their age at any moment; then the rest is taken.
            if not _has_lost(warehouse, folders.paths, fresh):
                raise
            continue
        total += taken
        # There may be another copy of a segment with refused lines.
        if is_last and taken.rejected == taken.contradicting:
            return total


def _may_be_there(place: str | Path) -> bool:
    """Return whether a directory may exist; checked only on this machine, where it is cheap."""
    return "://" in str(place) or Path(place).exists()


def _has_lost(warehouse: Warehouse, places: Sequence[str], fresh: Sequence[SegmentFile]) -> bool:
    """Return whether a listed file or folder is missing now."""
    system: Any = warehouse.spark.sparkContext
    configuration, path_of = (
        system._jsc.hadoopConfiguration(),
        system._jvm.org.apache.hadoop.fs.Path,
    )
    for name in (*places, *(row.path for row in fresh)):
        path = path_of(name)
        if not path.getFileSystem(configuration).exists(path):
            return True
    return False


def clock_us() -> int:
    """Return the time, microseconds since the epoch."""
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True)
class _Folders:
    """Places of new segments.

    Attributes:
        paths: folders of days, or directories to search as a whole.
        days: the days of the folders; None if unknown.
        journals: directories of journals with all of their folders given.
    """

    paths: Sequence[str]
    days: Sequence[date] | None
    journals: Sequence[str]


LOOK_BACK_SECONDS: Final = 86_400.0
"""Folders that changed within this time before the last call
are read again: files being written then may have changed since, which a folder does not show."""


def _folders(
    snapshot: WarehouseSnapshot, journals: Sequence[str | Path], *, look_everywhere: bool
) -> _Folders:
    """Return the folders that may have segments missing from the tables.

    A folder read before is read again if its time of change has moved: a file was added, removed or
    replaced. A file overwritten in place does not change it; so folders of the last day are always
    read, and those of days with refused lines, where a good copy may have appeared.

    Args:
        snapshot: the snapshot of the tables.
        journals: directories; those on other machines are searched as a whole.
        look_everywhere: return all folders but those of days removed for their age.
    """
    given = [str(journal) for journal in journals]
    if any("://" in journal for journal in given):
        return _Folders(given, None, ())
    refused = set(snapshot.days("rejects"))
    paths, days, seen = [], set(), defaultdict(set)
    for folder in _day_folders(given):
        try:
            day = date.fromisoformat(os.path.basename(folder))
            stat = os.stat(folder)
        except (ValueError, FileNotFoundError):  # not a day; or removed by a daemon
            continue
        journal = os.path.dirname(os.path.abspath(folder))
        seen[journal].add(os.path.basename(folder))
        listed = snapshot.listed.get(journal)
        if snapshot.since is not None and day < snapshot.since:
            continue
        if listed is not None and not look_everywhere and day not in refused:
            since = listed - LOOK_BACK_SECONDS
            changed = max(stat.st_ctime, stat.st_mtime)
            if changed < since and day < datetime.fromtimestamp(since, UTC).date():
                continue
        paths.append(folder)
        days.add(day)
    # A caller with some folders of a journal gives the others another time.
    whole = [journal for journal, found in seen.items() if len(found) == _number_of_days(journal)]
    return _Folders(paths, sorted(days), sorted(whole))


def _number_of_days(journal: str) -> int:
    with suppress(FileNotFoundError), os.scandir(journal) as found:
        return sum(_DAY.fullmatch(each.name) is not None for each in found)
    return 0


def _day_folders(directories: Sequence[str]) -> Iterator[str]:
    """Find the folders named after days, without reading them."""
    left = [os.path.normpath(directory) for directory in directories]
    seen = set()  # links may form a cycle
    while left:
        directory = left.pop()
        if _DAY.fullmatch(os.path.basename(directory)):
            yield directory
        elif (place := os.path.realpath(directory)) not in seen:
            seen.add(place)
            # A daemon may remove folders at any moment.
            with suppress(FileNotFoundError), os.scandir(directory) as found:
                left += [each.path for each in found if each.is_dir()]


_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class SegmentFile:
    """A closed segment.

    Attributes:
        day: the day of its folder.
        segment: its name.
        length: octets.
        path: its place, as a URI without escapes.
        modified_us: time of its last change, microseconds since the epoch.
    """

    day: date
    segment: str
    length: int
    path: str
    modified_us: int


def _fresh(
    warehouse: Warehouse, folders: _Folders, at_once: int, until_us: int
) -> list[SegmentFile]:
    """List some segments missing from the tables, those of the oldest days first."""
    found = (
        _found(folders.paths)
        if folders.days is not None
        else _found_by_spark(warehouse.spark, folders.paths)
    )
    # Segments of future days wait.
    last = datetime.fromtimestamp(until_us / 1e6, UTC).date()
    closed = sorted(file for file in found if file.day <= last)
    known = _known(warehouse, sorted({file.day for file in closed}))
    refused = _refused(known)
    # Copies of the same length are one segment.
    fresh: dict[tuple[date, str, int], SegmentFile] = {}
    for file in closed:
        key = file.day, file.segment, file.length
        # A good copy elsewhere says nothing of this file.
        is_replaced = refused.get(file.path, file.modified_us) != file.modified_us
        is_known = any(_has_taken(row, file) for row in known.get(key, ()))
        if key not in fresh and (is_replaced or not is_known):
            if len(fresh) == at_once:
                break
            fresh[key] = file
    return list(fresh.values())


def _found(folders: Sequence[str]) -> Iterator[SegmentFile]:
    """Find the segments in folders on this machine."""
    for folder in folders:
        place = os.path.abspath(folder)
        day = date.fromisoformat(os.path.basename(place))
        # A daemon moves and removes segments meanwhile: those come later, or not at all.
        with suppress(FileNotFoundError), os.scandir(place) as listed:
            for each in listed:
                if each.name.endswith(".jsonl") and not each.name.startswith((".", "_")):
                    with suppress(FileNotFoundError):
                        if each.is_file():
                            stat = each.stat()
                            modified_us = stat.st_mtime_ns // 1_000_000 * 1000  # as Java knows it
                            path = f"file:{each.path}"
                            yield SegmentFile(day, each.name, stat.st_size, path, modified_us)


def _found_by_spark(spark: SparkSession, directories: Sequence[str]) -> Iterator[SegmentFile]:
    """Find the segments in directories on any of Hadoop's file systems."""
    listing = (
        spark.read.format("binaryFile")
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", "*.jsonl")
        .option("ignoreMissingFiles", "true")
        .load([literal(path) for path in directories])
    )
    parts = F.split("path", "/")
    found = listing.select(
        F.try_to_date(F.element_at(parts, -2), "yyyy-MM-dd").alias("day"),
        F.element_at(parts, -1).alias("segment"),
        "length",
        "path",
        F.unix_micros("modificationTime").alias("modified_us"),
    )
    # Open segments are in a folder that is not a day.
    return (SegmentFile(*row) for row in found.where("day IS NOT NULL").toLocalIterator())


def _known(
    warehouse: Warehouse, days: Sequence[date]
) -> Mapping[tuple[date, str, int], Sequence[Row]]:
    """Return the rows of `SEGMENTS` of some days that can be compared with a file."""
    known = defaultdict(list)
    snapshot = warehouse.snapshot()
    if snapshot.of("segments", days):
        rows = warehouse.read("segments", days, snapshot).where(
            ~((F.col("too_new") > 0) & (F.col("reader") < VERSION))
        )
        compared = (
            "day", "segment", "length", "path", "modified_us", "rejected", "contradicting",
            "taken_us",
        )  # fmt: skip
        for row in rows.select(*compared).collect():
            known[row.day, row.segment, row.length].append(row)
    return known


def _refused(known: Mapping[tuple[date, str, int], Sequence[Row]]) -> dict[str, int]:
    """Return the files with rejected lines as they were last taken, with their times of change."""
    last: dict[str, Row] = {}
    taken = (row for rows in known.values() for row in rows if row.modified_us is not None)
    for row in sorted(taken, key=lambda row: (row.taken_us or 0, row.modified_us)):
        last[row.path] = row
    return {path: row.modified_us for path, row in last.items() if row.rejected}


def _has_taken(row: Row, file: SegmentFile) -> bool:
    """Return whether a segment was taken, by a row of the same name and length."""
    is_good = row.contradicting is None or row.rejected == row.contradicting
    # An earlier release has no time of change.
    is_same = row.modified_us is None or file.modified_us == row.modified_us
    return is_good or (row.path == file.path and is_same)


def _take(
    warehouse: Warehouse,
    fresh: Sequence[SegmentFile],
    until_us: int,
    listed: Mapping[str, float] | None,
    reuse: Reuse,
) -> IngestSummary:
    """Take in some segments, in one change."""
    base = warehouse.snapshot()
    near = _near([row.day for row in fresh], 2 * LONGEST_SEGMENT_DAYS)
    lines = with_previous(_lines(warehouse.spark, [row.path for row in fresh]))
    staged = _written(warehouse, parse(lines, is_chained=True, until=F.lit(until_us)))
    runs, rejects = _of("runs", staged), _of("rejects", staged)
    known = warehouse.read("segments", near, base) if base.of("segments", near) else None
    read = _counted(_with_path(warehouse, runs), known)
    kept, refused = read, None
    if any(row.is_shared for row in read):
        there = _reached(warehouse.read("runs", near, base), read)
        left, refused = settled(_with_path(warehouse, runs), there, reuse)
        refused = reuse.computed(refused)
        runs = _written(warehouse, left.withColumn("reason", F.lit(None).cast("string")))
        kept = _counted(_with_path(warehouse, runs))
    if rejects or refused is not None:
        rejects = _numbered(warehouse, fresh, rejects, refused, until_us)
    rows = _described(fresh, read, kept, _rejected(warehouse, rejects))
    if torn := unlinked(rows, lambda ends, starts: _beside(warehouse, base, fresh, ends, starts)):
        rejects = [*rejects, *warehouse.stage("rejects", few(warehouse.spark, REJECTS, torn))]
        rows = _described(fresh, read, kept, _rejected(warehouse, rejects))
    files = warehouse.stage("segments", few(warehouse.spark, SEGMENTS, rows).coalesce(1))
    arrived = {date.fromisoformat(part.day) for part in runs}
    # A rejected line counts for its day, even if nothing else of that day has come.
    if any(row["tampered"] or row["contradicting"] for row in rows):
        arrived |= {date.fromisoformat(part.day) for part in rejects}
    arrived |= _replaced(warehouse, base, fresh)
    added = [*runs, *rejects, *files]
    warehouse.publish(base, added, pending=base.pending | arrived, listed=listed)
    return sum(map(_taken, rows), IngestSummary())


def _replaced(
    warehouse: Warehouse, base: WarehouseSnapshot, fresh: Sequence[SegmentFile]
) -> set[date]:
    """Return the days with rejected lines of files that are taken again now."""
    days = {file.day for file in fresh}
    if not base.of("rejects", days):
        return set()
    rejects = warehouse.read("rejects", days, base).select("day", "path").distinct()
    paths = {file.path for file in fresh}
    return {row.day for row in rejects.collect() if _short(row.path) in paths}


def _beside(
    warehouse: Warehouse,
    base: WarehouseSnapshot,
    fresh: Sequence[SegmentFile],
    ends: Sequence[int],
    starts: Sequence[int],
) -> list[dict[str, Any]]:
    """Return the rows of segments that may be next to new ones: what is there ends or starts so."""
    days = _near([file.day for file in fresh], 1)
    if not base.of("segments", days):
        return []
    wanted = F.col("end_seq").isin(*ends) | F.col("first_seq").isin(*starts)
    rows = warehouse.read("segments", days, base).where(wanted)
    return [row.asDict() for row in rows.collect()]


def _near(days: Sequence[date], reach: int) -> list[date]:
    """Return all days at most `reach` from one of these."""
    around = {day + timedelta(n) for day in set(days) for n in range(-reach, reach + 1)}
    return sorted(around)


def _reached(runs: DataFrame, read: Sequence[Row]) -> DataFrame:
    """Return the runs that can share records with files of `_counted`.

    By literal bounds, so that Spark skips most of the tables.
    """
    journals = sorted({name for row in read if row.path is not None for name in row.journals})
    files = [row for row in read if row.path is not None]
    first, last = min(row.first_seq for row in files), max(row.end_seq for row in files)
    bounds = (F.col("seq") < last) & (F.col("seq") > first - LONGEST_RUN)
    return runs.where(F.col("journal").isin(journals) & bounds)


def _lines(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    # A missing file must be an error, whatever the session is set to: otherwise the rest of its
    # lines would be left out, and its segment would count as taken.
    reader = spark.read.option("ignoreMissingFiles", "false")
    text = reader.text([literal(path) for path in paths], lineSep="\n")
    # Rows of a partition have increasing numbers, in the order of the file.
    at = F.struct("_metadata.file_block_start", F.monotonically_increasing_id().alias("id"))
    return text.select("value", F.col("_metadata.file_path").alias("path"), at.alias("at"))


def literal(path: str) -> str:
    """Return a path as a pattern that matches only this path."""
    return re.sub(r"[\\{}*?,\[\]]", r"\\\g<0>", path)


def _plain(uri: str) -> str:
    """Return the path of `SegmentFile` for a URI with escapes from Spark."""
    return _short(unquote(uri))


def _short(path: str) -> str:
    return re.sub("^file:/+", "file:/", path)


def _written(warehouse: Warehouse, lines: DataFrame) -> list[TablePart]:
    """Write the result of `parse`, with the paths of runs, to an unpublished place."""
    commit = warehouse.begin()
    table = F.when(F.col("reason").isNull(), "runs").otherwise("rejects")
    writer = lines.withColumn("table", table).write.options(**PARQUET)
    writer.partitionBy("table", "day").parquet(warehouse.path(commit))
    return warehouse.staged(commit)


def _of(table: str, parts: Sequence[TablePart]) -> list[TablePart]:
    return [part for part in parts if part.table == table]


_STAGED: Final = StructType(
    [*RUNS.fields, StructField("path", StringType()), StructField("closing", StringType())]
)


def _with_path(warehouse: Warehouse, staged: Sequence[TablePart]) -> DataFrame:
    return warehouse.read_parts("runs", staged, _STAGED)


# -- files -------------------------------------------------------------------------------------


def _counted(runs: DataFrame, segments: DataFrame | None = None) -> list[Row]:
    """Count the contents of each file, and detect records that are in more than one run.

    Args:
        runs: the runs with ``path``.
        segments: `SEGMENTS` whose records are already present.

    Returns:
        A row for each file, ``is_shared`` if it has a run with records of an earlier one; and one
        without a ``path`` for all `segments`.
    """
    spans = runs.select(
        "path", "journal", "domain", "n", "seq", end().alias("end"), opening(), "closing"
    )
    if segments is not None:
        # An earlier release did not store the journals; the name has them.
        named = F.array(F.element_at(F.split("segment", "-"), -2))
        journal = F.explode(F.coalesce("journals", named)).alias("journal")
        known = segments.select(journal, "first_seq", "end_seq")
        nothing = F.lit(None)
        spans = spans.union(
            known.select(
                nothing, "journal", nothing, nothing, "first_seq", "end_seq", nothing, nothing
            )
        )
    before = Window.partitionBy("journal").orderBy("seq", "end").rowsBetween(BEGINNING, -1)
    is_new = F.col("path").isNotNull()
    # Parts of an old segment that came in two pieces may overlap.
    reached = F.when(is_new, F.max("end").over(before)).otherwise(
        F.max(F.when(is_new, F.col("end"))).over(before)
    )
    return (
        spans.withColumn("is_shared", F.coalesce(F.col("seq") < reached, F.lit(False)))
        .groupBy("path")
        .agg(
            F.count("*").alias("lines"),
            F.sum("n").alias("records"),
            F.min("seq").alias("first_seq"),
            F.max("end").alias("end_seq"),
            F.min("domain").alias("domain"),
            F.sort_array(F.collect_set("journal")).alias("journals"),
            F.bool_or("is_shared").alias("is_shared"),
            F.min_by("opening", "seq").alias("opening"),
            F.max("closing").alias("closing"),
        )
        .collect()
    )


def _rejected(warehouse: Warehouse, rejects: Sequence[TablePart]) -> list[Row]:
    """Count the rejected lines of each file."""
    if not rejects:
        return []
    reason = F.col("reason")
    lines = warehouse.read_parts("rejects", rejects).groupBy("path")
    return lines.agg(
        F.count("*").alias("rejected"),
        F.count_if(reason.startswith(TOO_NEW)).alias("too_new"),
        F.count_if(reason.startswith(CONTRADICTS)).alias("contradicting"),
        F.count_if(reason.startswith(TAMPERED)).alias("tampered"),
    ).collect()


def _described(
    fresh: Sequence[SegmentFile], read: Sequence[Row], kept: Sequence[Row], rejected: Sequence[Row]
) -> list[dict[str, Any]]:
    """Return rows of `SEGMENTS` for the files that were read, including those without new lines."""
    numbers = {_plain(row.path): row.lines for row in read if row.path is not None}
    there = {_plain(row.path): row.asDict() for row in kept if row.path is not None}
    bad = {_short(row.path): row.asDict() for row in rejected}
    rows = []
    for file in fresh:
        row = _NOTHING | there.get(file.path, {}) | bad.get(file.path, {}) | asdict(file)
        # A divided line is more than one.
        gone = numbers.get(file.path, 0) - row["lines"] - row["contradicting"]
        said = {"duplicates": max(gone, 0), "reader": VERSION, "taken_us": clock_us()}
        rows.append(row | said)
    return [{name: row[name] for name in SEGMENTS.names} for row in rows]


def _taken(row: Mapping[str, Any]) -> IngestSummary:
    counted = ("lines", "records", "duplicates", "rejected", "contradicting", "tampered")
    return IngestSummary(1, *(row[name] for name in counted))


_NOTHING: Final[dict[str, Any]] = {
    "lines": 0, "records": 0, "rejected": 0, "too_new": 0, "contradicting": 0,
    "tampered": 0, "first_seq": None, "end_seq": None, "journals": [], "domain": NOBODY,
    "opening": None, "closing": None,
}  # fmt: skip


# -- lines that are refused ---------------------------------------------------------------------


def _numbered(
    warehouse: Warehouse,
    fresh: Sequence[SegmentFile],
    rejects: Sequence[TablePart],
    refused: DataFrame | None,
    until_us: int,
) -> list[TablePart]:
    """Return directories with the rejected lines and their numbers.

    A reader of parts of files does not know the numbers: the few files with rejected lines are read
    again, each in one piece.

    Args:
        warehouse: where they are.
        fresh: the files.
        rejects: unreadable and altered lines.
        refused: those that contradict others, see `settled`.
        until_us: see `parse`.
    """
    places = warehouse.read_parts("rejects", rejects).select("path")
    if refused is not None:
        places = places.union(refused.select("path"))
    wanted = {_plain(row.path) for row in places.distinct().collect()}
    if not wanted:
        return []
    spark = warehouse.spark.newSession()
    spark.conf.set("spark.sql.files.maxPartitionBytes", str(1 << 50))
    spark.conf.set(TIME_ZONE, "UTC")  # as in the other one
    lines = with_previous(_lines(spark, [row.path for row in fresh if row.path in wanted]))
    first = lines.groupBy("path").agg(F.min("at.id").alias("first"))
    parsed = parse(lines, "at", "value", is_chained=True, until=F.lit(until_us))
    if refused is not None:
        told = refused.withColumnRenamed("reason", "other")
        parsed = with_content(parsed).join(told, ["path", *LINE], "left")
        parsed = parsed.withColumn("reason", F.coalesce("reason", "other"))
    number = (F.col("at.id") - F.col("first") + 1).cast("int")
    bad = parsed.where("reason IS NOT NULL").join(first, "path")
    # In a URI a blank is "%20", and a plus is a plus.
    plain = F.url_decode(F.replace("path", F.lit("+"), F.lit("%2B")))
    said = {"line": number, "text": F.col("value"), "path": plain}
    return warehouse.stage("rejects", bad.withColumns(said))


# -- small files -------------------------------------------------------------------------------


def compact(
    warehouse: Warehouse,
    tables: Sequence[str] = ("runs", "rejects", "segments"),
    most: int = MOST_PIECES,
) -> int:
    """Merge days that have come in many pieces, and return their number.

    Args:
        warehouse: where the tables are.
        tables: which of them.
        most: most directories of a day, each the piece of one change.
    """
    written = 0
    for table in tables:
        base = warehouse.snapshot()
        pieces: dict[str, list[TablePart]] = defaultdict(list)
        for part in base.of(table):
            pieces[part.day].append(part)
        days = {day for day, parts in pieces.items() if len(parts) > most}
        if not days:
            continue
        many = [part for day in days for part in pieces[day]]
        # As many files as days, or more if adaptive execution finds them too large.
        whole = warehouse.read_parts(table, many).hint("rebalance", "day")
        warehouse.publish(base, warehouse.stage(table, whole), many)
        written += len(days)
    return written
