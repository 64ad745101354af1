# SPDX-License-Identifier: Apache-2.0
"""Bronze: closed segments of many brokers become the tables `runs`, `rejects` and `segments`.

A line of a journal is a *run* of up to 64 records, and stays one row: what its records share is
read, written and kept once, and `records` makes rows of records whenever somebody wants them. That
is 30 times fewer rows to parse, to look for duplicates in and to write.

What has been taken in is known by the name of its segment and by its length, so a second run takes
what is new, and a segment that arrived in part is taken again when it is whole. A record has an
event id, the journal and the sequence in it, and whatever arrives again, in a copied segment or
within one, is dropped. As a rule that is whole lines, which are counted; where two lines have some
of their records in common, what is there stays, and of the other one the rest is kept. Lines that
are none of a journal go to ``rejects`` with path, number and reason.

Everything of one call becomes visible at once (`Warehouse`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from amqproute.journal.record import LINE_FIELDS, RUN_FIELDS, VERSION
from amqproute.pipeline.schema import LINE, RECORDS, RUNS, conform
from amqproute.pipeline.tables import PARQUET, Part, Snapshot, Warehouse

__all__ = ["Ingested", "compact", "ingest", "parse", "records", "spread"]

DAYS: Final = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]"
"""Folders of closed segments in the directory of a journal."""

NOBODY: Final = "unknown"
"""Domain of what says none."""

TOO_NEW: Final = "schema version "
"""How a reason begins for which a later release takes the segment again."""

AT_ONCE: Final = 5000
"""Segments of one change, at most: their names are what the driver has to know."""

_HEAD: Final = '{"h":"'


@dataclass(frozen=True, slots=True)
class Ingested:
    """What a call has taken in.

    Attributes:
        segments: files.
        lines: lines that are in the tables, whole or what was new of them.
        records: events in them.
        duplicates: lines that were there already.
        rejected: lines that are in ``rejects``.
    """

    segments: int = 0
    lines: int = 0
    records: int = 0
    duplicates: int = 0
    rejected: int = 0

    def __add__(self, other: Ingested) -> Ingested:
        return Ingested(
            *(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__)
        )


# -- lines, runs, records ----------------------------------------------------------------------


def parse(lines: DataFrame, *kept: str) -> DataFrame:
    """Read lines of segments.

    Args:
        lines: ``value`` is the text of a line, ``path`` where it stands.
        kept: further columns of `lines` to pass through.

    Returns:
        The columns of `RUNS`, then ``path``, ``text``, ``reason`` and `kept`. What is no line of a
        journal has a ``reason`` and its ``text``, and the others have neither.
    """
    line = F.from_json("value", LINE, {"columnNameOfCorruptRecord": "corrupt"})
    read = lines.select("path", "value", *kept, line.alias("line"))
    read = read.select("*", _reason().alias("reason"))
    good = F.col("reason").isNull()
    folder = F.try_to_date(F.element_at(F.split("path", "/"), -2), "yyyy-MM-dd")
    return read.select(
        *(F.col(f"line.{name}").alias(name) for name in _FROM_LINE),
        F.element_at(F.split("path", "/"), -1).alias("segment"),
        F.when(good, F.timestamp_micros("line.time").cast("date")).otherwise(folder).alias("day"),
        F.when(good, F.col("line.domain")).otherwise(NOBODY).alias("domain"),
        "path",
        F.when(~good, F.col("value")).alias("text"),
        "reason",
        *kept,
    )


_FROM_LINE: Final = [name for name in RUNS.names if name not in ("segment", "day", "domain")]


def _reason() -> Column:
    """Say why a line is none of a journal, as `amqproute.journal.record.read_line` would."""
    line, text = F.col("line"), F.col("value")
    # Where a line feed has got lost, the reader of JSON takes the first line and is content.
    whole = (
        text.startswith(_HEAD)
        & (F.substring(text, len(_HEAD) + 65, 2) == '",')
        & text.endswith("}")
        & ~F.contains(text, F.lit("}" + _HEAD))
    )
    absent = F.lit(False)
    for name in (*LINE_FIELDS, "all", "each"):
        absent = absent | line[name].isNull()
    misfit = F.lit(False)
    for name in RUN_FIELDS:
        misfit = misfit | (F.size(line["each"][name]) != line["n"])
    return (
        F.when(~whole, "not a whole line of a journal")
        .when(~F.is_valid_utf8(text), "not UTF-8")
        .when(line["v"] > VERSION, F.concat(F.lit(TOO_NEW), line["v"].cast("string")))
        .when(line["corrupt"].isNotNull(), "not JSON, or a field of a wrong type")
        .when(absent | (line["v"] < 1), "a field of the line is missing")
        .when(line["n"].isNull() | (line["n"] < 1), "'n' is missing or of a wrong type")
        .when(F.coalesce(misfit, F.lit(False)), "a column does not have 'n' values")
    )


def records(runs: DataFrame) -> DataFrame:
    """Return one row for each record of runs, with the columns of `RECORDS`."""
    return conform(spread(runs, RUN_FIELDS), RECORDS)


def spread(runs: DataFrame, fields: Sequence[str], *kept: str) -> DataFrame:
    """Return one row for each record, with the fields of the line and those named.

    Columns of `runs` that are `kept` stand in each row. What is not named is not read. Filters on
    kinds belong on `runs`, before.
    """
    i = F.col("i")
    line = [F.col(name) for name in LINE_FIELDS if name != "seq"]
    each = [
        F.when(F.col(f"each.{name}").isNotNull(), F.get(F.col(f"each.{name}"), i))
        .otherwise(F.col(f"all.{name}"))
        .alias(name)
        for name in fields
    ]
    numbered = runs.select("*", F.explode(F.sequence(F.lit(0), F.col("n") - 1)).alias("i"))
    return numbered.select(*line, (F.col("seq") + i).alias("seq"), *each, *kept)


# -- segments ----------------------------------------------------------------------------------


def ingest(
    warehouse: Warehouse, journals: Sequence[str | Path], at_once: int = AT_ONCE
) -> Ingested:
    """Take in the closed segments that the tables do not have yet.

    Args:
        warehouse: where the tables are.
        journals: directories of journals, one for each broker or copies of those of partners;
            each has a folder for each day.
        at_once: segments of one change, at most.

    Raises:
        Conflict: somebody else has changed the tables meanwhile; what was published stays.
    """
    total = Ingested()
    while fresh := _fresh(warehouse, journals, at_once):
        total += _take(warehouse, fresh)
    return total


def _fresh(warehouse: Warehouse, journals: Sequence[str | Path], at_once: int) -> list[Row]:
    """List some segments that are not in the tables, of the oldest days first."""
    listing = (
        warehouse.spark.read.format("binaryFile")
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", "*.jsonl")
        .load([str(journal) for journal in journals])
    )
    parts = F.split("path", "/")
    found = listing.select(
        F.element_at(parts, -1).alias("segment"),
        F.struct("length", "path").alias("file"),
        F.try_to_date(F.element_at(parts, -2), "yyyy-MM-dd").alias("day"),
    )
    # What is open lies in a folder that is no day. Of several copies the longest is the whole one.
    closed = found.where("day IS NOT NULL").groupBy("segment")
    longest = closed.agg(F.max("file").alias("file"), F.min("day").alias("day"))
    known = warehouse.read("segments").where(
        ~((F.col("too_new") > 0) & (F.col("reader") < VERSION))
    )
    fresh = longest.select("segment", "day", "file.*").join(
        known, ["segment", "length"], "left_anti"
    )
    return fresh.orderBy("day", "segment").limit(at_once).collect()


def _take(warehouse: Warehouse, fresh: Sequence[Row]) -> Ingested:
    """Take in some segments, in one change."""
    base = warehouse.snapshot()
    commit = warehouse.begin()
    parsed = parse(_lines(warehouse.spark, [row.path for row in fresh]))
    table = F.when(F.col("reason").isNull(), "runs").otherwise("rejects")
    writer = parsed.withColumn("table", table).write.options(**PARQUET)
    writer.partitionBy("table", "day", "domain").parquet(warehouse.path(commit))
    staged = warehouse.staged(commit)
    runs = [part for part in staged if part.table == "runs"]
    rejects: Sequence[Part] = [part for part in staged if part.table == "rejects"]
    kept = _without_duplicates(warehouse, base, runs)
    if rejects:
        rejects = _numbered(warehouse, rejects)
    segments = warehouse.stage("segments", _files(warehouse, fresh, runs, kept, rejects))
    arrived = {date.fromisoformat(part.day) for part in kept}
    warehouse.publish(base, [*kept, *rejects, *segments], pending=base.pending | arrived)
    totals = [F.sum(name) for name in ("lines", "records", "duplicates", "rejected")]
    row = warehouse.read_parts("segments", segments).agg(F.count("*"), *totals).first()
    assert row is not None
    return Ingested(*row)


def _lines(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    text = spark.read.text(list(paths), lineSep="\n")
    return text.select("value", F.col("_metadata.file_path").alias("path"))


def _without_duplicates(
    warehouse: Warehouse, base: Snapshot, staged: Sequence[Part]
) -> Sequence[Part]:
    """Return directories with those of the staged runs that are there for the first time."""
    runs = warehouse.read_parts("runs", staged)
    places = {(part.day, part.domain) for part in staged}
    # A record that arrives again is of the same day and domain.
    there = [part for part in base.of("runs") if (part.day, part.domain) in places]
    old = warehouse.read_parts("runs", there)
    if not _overlap(runs, old):
        return staged
    return warehouse.stage("runs", _remainders(runs, old))


_SPAN: Final = ("journal", "day", "seq", "n")


def _overlap(runs: DataFrame, old: DataFrame) -> bool:
    """Tell whether a record stands in more than one run."""
    before = Window.partitionBy("journal", "day").orderBy("seq", "n")
    reached = F.max(F.col("seq") + F.col("n")).over(before.rowsBetween(_BEGINNING, -1))
    spans = runs.select(*_SPAN).union(old.select(*_SPAN)).withColumn("reached", reached)
    return not spans.where("seq < reached").isEmpty()


_BEGINNING: Final = Window.unboundedPreceding


def _remainders(runs: DataFrame, old: DataFrame) -> DataFrame:
    """Return runs without the records that others of them have, or that are there already.

    A record that several runs have stays in the longest, and a run is divided where what it loses
    lies in its middle.
    """
    key = ["journal", "seq", "n"]
    places = F.explode(F.sequence(F.lit(0), F.col("n") - 1)).alias("i")
    once = runs.dropDuplicates(key)
    event = (F.col("seq") + F.col("i")).alias("event")
    claims = once.select(*key, places).select(*key, "i", event)
    taken = old.select("journal", "seq", places).select("journal", event)
    free = claims.join(taken.distinct(), ["journal", "event"], "left_anti")
    owner = F.max(F.struct("n", "seq", "i")).alias("owner")
    own = free.groupBy("journal", "event").agg(owner).select("journal", "owner.*")
    # Places that follow each other are as far from their ranks, all of them.
    rank = F.row_number().over(Window.partitionBy(*key).orderBy("i"))
    pieces = (
        own.withColumn("piece", F.col("i") - rank)
        .groupBy(*key, "piece")
        .agg(F.min("i").alias("from"), F.count("*").cast("int").alias("length"))
    )
    cut = once.join(pieces, key)
    values = [
        F.slice(f"each.{name}", F.col("from") + 1, F.col("length")).alias(name)
        for name in RUN_FIELDS
    ]
    kept = cut.withColumn("each", F.struct(*values))
    return kept.withColumn("seq", F.col("seq") + F.col("from")).withColumn("n", F.col("length"))


def _numbered(warehouse: Warehouse, staged: Sequence[Part]) -> Sequence[Part]:
    """Return directories with the rejected lines and their numbers, which a reader of parts of
    files does not know: the few files that have any are read again, each in one piece."""
    rejects = warehouse.read_parts("rejects", staged)
    paths = [row.path for row in rejects.select("path").distinct().collect()]
    spark = warehouse.spark.newSession()
    spark.conf.set("spark.sql.files.maxPartitionBytes", str(1 << 50))
    # Rows of a partition have consecutive numbers, in the order of the file.
    lines = _lines(spark, paths).withColumn("id", F.monotonically_increasing_id())
    parsed = parse(lines, "id").where("reason IS NOT NULL")
    first = lines.groupBy("path").agg(F.min("id").alias("first"))
    numbered = parsed.join(first, "path").withColumn(
        "line", (F.col("id") - F.col("first") + 1).cast("int")
    )
    return warehouse.stage("rejects", numbered)


def _files(
    warehouse: Warehouse,
    fresh: Sequence[Row],
    staged: Sequence[Part],
    kept: Sequence[Part],
    rejects: Sequence[Part],
) -> DataFrame:
    """Describe the files that were taken, also those of which nothing was."""
    files = warehouse.spark.createDataFrame(
        [(row.segment, row.path, row.length, row.day) for row in fresh],
        "segment string, path string, length long, day date",
    )
    read = warehouse.read_parts("runs", staged).groupBy("segment").agg(F.count("*").alias("read"))
    kept_runs = (
        warehouse.read_parts("runs", kept)
        .groupBy("segment")
        .agg(
            F.count("*").alias("lines"),
            F.sum("n").alias("records"),
            F.min("seq").alias("first_seq"),
            F.max(F.col("seq") + F.col("n")).alias("end_seq"),
            F.min("domain").alias("domain"),
        )
    )
    rejected = (
        warehouse.read_parts("rejects", rejects)
        .groupBy("segment")
        .agg(
            F.count("*").alias("rejected"),
            F.count_if(F.col("reason").startswith(TOO_NEW)).alias("too_new"),
        )
    )
    for other in (read, kept_runs, rejected):
        files = files.join(other, "segment", "left")
    counted = files.fillna(0, ["read", "lines", "records", "rejected", "too_new"])
    return counted.fillna(NOBODY, ["domain"]).select(
        "*",
        # A line that was divided is more than one.
        F.greatest(F.col("read") - F.col("lines"), F.lit(0)).alias("duplicates"),
        F.lit(VERSION).alias("reader"),
    )


# -- small files -------------------------------------------------------------------------------


def compact(
    warehouse: Warehouse, tables: Sequence[str] = ("runs", "rejects", "segments"), most: int = 4
) -> int:
    """Write days anew that have come in many pieces, and return how many there were.

    Args:
        warehouse: where the tables are.
        tables: which of them.
        most: directories that a day of a domain may have, each the piece of one change.
    """
    written = 0
    for table in tables:
        base = warehouse.snapshot()
        pieces: dict[tuple[str, str], list[Part]] = defaultdict(list)
        for part in base.of(table):
            pieces[part.day, part.domain].append(part)
        many = [part for parts in pieces.values() if len(parts) > most for part in parts]
        if not many:
            continue
        rows = warehouse.read_parts(table, many)
        days = {(part.day, part.domain) for part in many}
        # As many files as there are days, or more where adaptive execution finds them too large.
        whole = rows.hint("rebalance", "day", "domain")
        warehouse.publish(base, warehouse.stage(table, whole), many)
        written += len(days)
    return written
