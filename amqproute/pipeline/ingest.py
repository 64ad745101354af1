# SPDX-License-Identifier: Apache-2.0
"""Bronze: closed segments of many brokers become the tables `runs`, `rejects` and `segments`.

What has been taken in is known by the name, the day and the length of its segment, so a second run
takes what is new, and a segment that arrived in part is taken again when it is whole. A record has
an event id, the journal and the sequence in it, and what arrives again, in a copied segment or
within one, is dropped. As a rule that is whole lines, which are counted; of a line that has some
records in common with another the rest is kept.

A record that arrives again *and says something else* is another matter: somebody has changed a
journal, or it goes on in two places, as when a machine was copied. What the tables have stays; of
what comes together a rule chooses that looks at nothing but the lines (`duplicates`). The other
line goes to ``rejects`` and is counted apart. So do lines that are none of a journal, and those
that are not what was written (`chain`). All have their path, number and reason there.

A segment with lines that were refused for what they are is not known by its name: other copies of
it are taken too, and it is taken again when its file has been replaced.

What a call costs depends on what has come, and not on how much is in the tables. Only folders are
looked into in which a file came or went since a day before the last call, or that are of its day or
later, or of a day with lines that were refused (`_folders`). What stands there is compared with
what was taken of those days. A record is at most `LONGEST_SEGMENT_DAYS` from the day of its
segment's folder, so only segments of twice as many days around can have it as well.

Everything of one call becomes visible at once (`Warehouse`).
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
from amqproute.pipeline.reuse import Reuse
from amqproute.pipeline.table_schema import NOBODY, RUNS, SEGMENTS
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
"""Segments of one change, at most: their names are what the driver has to know."""


@dataclass(frozen=True, slots=True)
class IngestSummary:
    """What a call has taken in.

    Attributes:
        segments: files.
        lines: lines that are in the tables, whole or what was new of them.
        records: events in them.
        duplicates: lines that were there already.
        rejected: lines that are in ``rejects``.
        contradicting: those of them that contradict records which are in the tables.
        tampered: those of them that are not what was written.
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
        """Lines in ``rejects`` that cannot be read."""
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
    """Take in the closed segments that the tables do not have yet.

    Args:
        warehouse: where the tables are.
        journals: directories of journals, one for each broker or copies of those of partners;
            each has a folder for each day.
        at_once: segments of one change, at most.
        now_us: the time, microseconds since the epoch; by default by the clock of this machine.
            What says that it is later by more than `AHEAD_US` is not taken.
        look_everywhere: look into folders too in which no file has come or gone.

    Raises:
        PublicationConflict: somebody else has changed the tables meanwhile; what was published
            stays.
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
            # Segments are removed for their age at any moment, and then the rest is taken.
            if not _has_lost(warehouse, folders.paths, fresh):
                raise
            continue
        total += taken
        # Of a segment with lines that were refused there may be another copy.
        if is_last and taken.rejected == taken.contradicting:
            return total


def _may_be_there(place: str | Path) -> bool:
    """Tell whether a directory is there, where it costs nothing to know: on this machine."""
    return "://" in str(place) or Path(place).exists()


def _has_lost(warehouse: Warehouse, places: Sequence[str], fresh: Sequence[SegmentFile]) -> bool:
    """Tell whether something is not there any more that was listed."""
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
    """Where new segments may be.

    Attributes:
        paths: folders of days, or directories that are looked through as a whole.
        days: of the folders; None where those are not known.
        journals: directories of journals of which all folders were given.
    """

    paths: Sequence[str]
    days: Sequence[date] | None
    journals: Sequence[str]


LOOK_BACK_SECONDS: Final = 86_400.0
"""Of so long before the last call folders are looked into again: what was on its way then may have
been written to since, which a folder does not show."""


def _folders(
    snapshot: WarehouseSnapshot, journals: Sequence[str | Path], *, look_everywhere: bool
) -> _Folders:
    """Return the folders that may have segments which the tables do not have.

    Of those that were looked into before, these have another time of change now: a file has come,
    gone, or been replaced. Where a file was overwritten in place, that says nothing; so folders of
    the last day are looked into in any case, and those of days of which lines were refused, where a
    good copy may stand now.

    Args:
        snapshot: of the tables.
        journals: directories; those that are not on this machine are looked through as a whole.
        look_everywhere: take all folders but those of days that were removed for their age.
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
        except (ValueError, FileNotFoundError):  # no day; or a daemon has removed it
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
    # Who gives some folders of a journal gives the others another time.
    whole = [journal for journal, found in seen.items() if len(found) == _number_of_days(journal)]
    return _Folders(paths, sorted(days), sorted(whole))


def _number_of_days(journal: str) -> int:
    with suppress(FileNotFoundError), os.scandir(journal) as found:
        return sum(_DAY.fullmatch(each.name) is not None for each in found)
    return 0


def _day_folders(directories: Sequence[str]) -> Iterator[str]:
    """Find the folders that are called by days, without looking into them."""
    left = [os.path.normpath(directory) for directory in directories]
    seen = set()  # links may lead back
    while left:
        directory = left.pop()
        if _DAY.fullmatch(os.path.basename(directory)):
            yield directory
        elif (place := os.path.realpath(directory)) not in seen:
            seen.add(place)
            # A daemon removes folders at any moment.
            with suppress(FileNotFoundError), os.scandir(directory) as found:
                left += [each.path for each in found if each.is_dir()]


_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class SegmentFile:
    """A closed segment.

    Attributes:
        day: of its folder.
        segment: its name.
        length: octets.
        path: where it stands, as a URI without escapes.
        modified_us: when it was changed, microseconds since the epoch.
    """

    day: date
    segment: str
    length: int
    path: str
    modified_us: int


def _fresh(
    warehouse: Warehouse, folders: _Folders, at_once: int, until_us: int
) -> list[SegmentFile]:
    """List some segments that are not in the tables, of the oldest days first."""
    found = (
        _found(folders.paths)
        if folders.days is not None
        else _found_by_spark(warehouse.spark, folders.paths)
    )
    # What is of a day to come waits for it.
    last = datetime.fromtimestamp(until_us / 1e6, UTC).date()
    closed = sorted(file for file in found if file.day <= last)
    known = _known(warehouse, sorted({file.day for file in closed}))
    # Copies that are as long are one segment.
    fresh: dict[tuple[date, str, int], SegmentFile] = {}
    for file in closed:
        key = file.day, file.segment, file.length
        if key not in fresh and not any(_has_taken(row, file) for row in known.get(key, ())):
            if len(fresh) == at_once:
                break
            fresh[key] = file
    return list(fresh.values())


def _found(folders: Sequence[str]) -> Iterator[SegmentFile]:
    """Find the segments in folders of this machine."""
    for folder in folders:
        place = os.path.abspath(folder)
        day = date.fromisoformat(os.path.basename(place))
        # A daemon moves and removes segments meanwhile: those come another time, or not at all.
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
    """Find the segments in directories on any file system that Hadoop knows."""
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
    # What is open lies in a folder that is no day.
    return (SegmentFile(*row) for row in found.where("day IS NOT NULL").toLocalIterator())


def _known(
    warehouse: Warehouse, days: Sequence[date]
) -> Mapping[tuple[date, str, int], Sequence[Row]]:
    """Return the rows of `SEGMENTS` of some days that a file can be compared with."""
    known = defaultdict(list)
    snapshot = warehouse.snapshot()
    if snapshot.of("segments", days):
        rows = warehouse.read("segments", days, snapshot).where(
            ~((F.col("too_new") > 0) & (F.col("reader") < VERSION))
        )
        compared = ("day", "segment", "length", "path", "modified_us", "rejected", "contradicting")
        for row in rows.select(*compared).collect():
            known[row.day, row.segment, row.length].append(row)
    return known


def _has_taken(row: Row, file: SegmentFile) -> bool:
    """Tell whether a segment was taken in, by a row of the same name and length."""
    is_good = row.contradicting is None or row.rejected == row.contradicting
    # An earlier release has not said when a file was changed.
    is_same = row.modified_us is None or file.modified_us <= row.modified_us
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
        left, refused = settled(_with_path(warehouse, runs), there)
        refused = reuse.computed(refused)
        runs = _written(warehouse, left.withColumn("reason", F.lit(None).cast("string")))
        kept = _counted(_with_path(warehouse, runs))
    if rejects or refused is not None:
        rejects = _numbered(warehouse, fresh, rejects, refused, until_us)
    rows = _described(fresh, read, kept, _rejected(warehouse, rejects))
    files = warehouse.stage("segments", few(warehouse.spark, SEGMENTS, rows).coalesce(1))
    arrived = {date.fromisoformat(part.day) for part in runs}
    # What was refused so is told of its day, also where nothing else of it has come.
    if any(row["tampered"] or row["contradicting"] for row in rows):
        arrived |= {date.fromisoformat(part.day) for part in rejects}
    added = [*runs, *rejects, *files]
    warehouse.publish(base, added, pending=base.pending | arrived, listed=listed)
    return sum(map(_taken, rows), IngestSummary())


def _near(days: Sequence[date], reach: int) -> list[date]:
    """Return all days that are not further from one of these than `reach`."""
    around = {day + timedelta(n) for day in set(days) for n in range(-reach, reach + 1)}
    return sorted(around)


def _reached(runs: DataFrame, read: Sequence[Row]) -> DataFrame:
    """Return those of the runs that can have records in common with files of `_counted`.

    By literal bounds, so that most of the tables need not be read.
    """
    journals = sorted({name for row in read if row.path is not None for name in row.journals})
    files = [row for row in read if row.path is not None]
    first, last = min(row.first_seq for row in files), max(row.end_seq for row in files)
    bounds = (F.col("seq") < last) & (F.col("seq") > first - LONGEST_RUN)
    return runs.where(F.col("journal").isin(journals) & bounds)


def _lines(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    # A file that is gone has to be an error, whatever the session is set to: without it the rest
    # of its lines would be left out, and its segment would count as taken.
    reader = spark.read.option("ignoreMissingFiles", "false")
    text = reader.text([literal(path) for path in paths], lineSep="\n")
    # Rows of a partition have growing numbers, in the order of the file.
    at = F.struct("_metadata.file_block_start", F.monotonically_increasing_id().alias("id"))
    return text.select("value", F.col("_metadata.file_path").alias("path"), at.alias("at"))


def literal(path: str) -> str:
    """Return a path as a pattern that means nothing but this path."""
    return re.sub(r"[\\{}*?,\[\]]", r"\\\g<0>", path)


def _plain(uri: str) -> str:
    """Return the path of `SegmentFile` that Spark gives as a URI with escapes."""
    return _short(unquote(uri))


def _short(path: str) -> str:
    return re.sub("^file:/+", "file:/", path)


def _written(warehouse: Warehouse, lines: DataFrame) -> list[TablePart]:
    """Write what `parse` gives where nobody reads it yet, the paths of runs too."""
    commit = warehouse.begin()
    table = F.when(F.col("reason").isNull(), "runs").otherwise("rejects")
    writer = lines.withColumn("table", table).write.options(**PARQUET)
    writer.partitionBy("table", "day").parquet(warehouse.path(commit))
    return warehouse.staged(commit)


def _of(table: str, parts: Sequence[TablePart]) -> list[TablePart]:
    return [part for part in parts if part.table == table]


_STAGED: Final = StructType([*RUNS.fields, StructField("path", StringType())])


def _with_path(warehouse: Warehouse, staged: Sequence[TablePart]) -> DataFrame:
    return warehouse.read_parts("runs", staged, _STAGED)


# -- files -------------------------------------------------------------------------------------


def _counted(runs: DataFrame, segments: DataFrame | None = None) -> list[Row]:
    """Count what is in each file, and find out whether a record stands in more than one run.

    Args:
        runs: with ``path``.
        segments: `SEGMENTS` whose records are there already.

    Returns:
        A row for each file, ``is_shared`` if it has a run with records of an earlier one; and one
        without a ``path`` for all `segments`.
    """
    spans = runs.select("path", "journal", "domain", "n", "seq", end().alias("end"))
    if segments is not None:
        # An earlier release has not said the journals; the name does.
        named = F.array(F.element_at(F.split("segment", "-"), -2))
        journal = F.explode(F.coalesce("journals", named)).alias("journal")
        known = segments.select(journal, "first_seq", "end_seq")
        nothing = [F.lit(None).alias(name) for name in ("domain", "n")]
        spans = spans.union(known.select(F.lit(None), "journal", *nothing, "first_seq", "end_seq"))
    before = Window.partitionBy("journal").orderBy("seq", "end").rowsBetween(BEGINNING, -1)
    is_new = F.col("path").isNotNull()
    # Of what is there the parts of a segment that came in two may lie over each other.
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
    """Return rows of `SEGMENTS` for the files that were taken, also those of which nothing was."""
    numbers = {_plain(row.path): row.lines for row in read if row.path is not None}
    there = {_plain(row.path): row.asDict() for row in kept if row.path is not None}
    bad = {_short(row.path): row.asDict() for row in rejected}
    rows = []
    for file in fresh:
        row = _NOTHING | there.get(file.path, {}) | bad.get(file.path, {}) | asdict(file)
        # A line that was divided is more than one.
        gone = numbers.get(file.path, 0) - row["lines"] - row["contradicting"]
        rows.append(row | {"duplicates": max(gone, 0), "reader": VERSION})
    return [{name: row[name] for name in SEGMENTS.names} for row in rows]


def _taken(row: Mapping[str, Any]) -> IngestSummary:
    counted = ("lines", "records", "duplicates", "rejected", "contradicting", "tampered")
    return IngestSummary(1, *(row[name] for name in counted))


_NOTHING: Final[dict[str, Any]] = {
    "lines": 0, "records": 0, "rejected": 0, "too_new": 0, "contradicting": 0,
    "tampered": 0, "first_seq": None, "end_seq": None, "journals": [], "domain": NOBODY,
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

    A reader of parts of files does not know the numbers: the few files that have any are read
    again, each in one piece.

    Args:
        warehouse: where they are.
        fresh: the files.
        rejects: lines that are none of a journal.
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
    # A URI says "%20" for a blank, and means a plus by a plus.
    plain = F.url_decode(F.replace("path", F.lit("+"), F.lit("%2B")))
    said = {"line": number, "text": F.col("value"), "path": plain}
    return warehouse.stage("rejects", bad.withColumns(said))


# -- small files -------------------------------------------------------------------------------


def compact(
    warehouse: Warehouse,
    tables: Sequence[str] = ("runs", "rejects", "segments"),
    most: int = MOST_PIECES,
) -> int:
    """Write days anew that have come in many pieces, and return how many there were.

    Args:
        warehouse: where the tables are.
        tables: which of them.
        most: directories that a day may have, each the piece of one change.
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
        # As many files as there are days, or more where adaptive execution finds them too large.
        whole = warehouse.read_parts(table, many).hint("rebalance", "day")
        warehouse.publish(base, warehouse.stage(table, whole), many)
        written += len(days)
    return written
