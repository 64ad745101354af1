# SPDX-License-Identifier: Apache-2.0
"""Live figures: the traffic of each hour from and to each partner, a minute after it was recorded.

A Structured Streaming query follows the closed segments of journals and appends to a table of
Parquet files, one row for each hour, organization, partner and kind of event. It parses lines and
spreads records with the same functions as the nightly run, and `live` makes the same figures of a
table: the sums do not depend on the order and the number of steps.

The state between two steps is bounded by time. Segments may arrive in any order within `lateness`;
for that long the query remembers the records it has seen, and waits before it closes an hour.
Records and not lines: in a repeated export, or a segment that came in parts, lines may share some
of their records, and each counts once. Later records are counted as dropped
(`StreamProgress.dropped`), and only the nightly run, which remembers everything, has them. Altered
lines are detected by the nightly run only. An impossible time would end all hours before it, so
such lines are refused here too.

Exactly once: the checkpoint records the files of each step, and the table's own log the written
steps; an interrupted step, also by ``kill -9``, is repeated and its files replace those that are
not visible yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from amqproute.journal.record import ENDS, RecordKind
from amqproute.pipeline.defaults import LATENESS, STEP_SEGMENTS
from amqproute.pipeline.figures import OWN, partner
from amqproute.pipeline.ingest import DAYS, literal
from amqproute.pipeline.lines import AHEAD_US, parse, spread

__all__ = ["LIVE", "StreamProgress", "follow", "live", "progress", "read_live", "timed"]

LIVE: Final = (
    "hour timestamp, domain string, partner string, kind string, messages long, octets long, "
    "within_second long, within_minute long, longest_us long"
)
"""One row for each hour, organization, partner and kind: the number of messages; for received ones
the octets, bare as partners bill them (from journals of earlier releases: as stored); for handed
over ones, the numbers that had waited and travelled less than a second, less than a minute, and the
longest in microseconds."""

_LINES: Final = "lines"
_KINDS: Final = sorted({RecordKind.RECEIVED, RecordKind.DEFERRED, RecordKind.DUPLICATE, *ENDS})
_FIELDS: Final = ("sender", "peer", "size", "bare_size", "count", "queue_us", "wire_us")


def timed(runs: DataFrame) -> DataFrame:
    """Add ``at`` to runs: the time of their records as a timestamp, the event time of streams."""
    return runs.withColumn("at", F.timestamp_micros("time"))


def live(runs: DataFrame) -> DataFrame:
    """Compute the figures of runs, from a table or a stream.

    Args:
        runs: `timed`, from a table or a stream.

    Returns:
        `LIVE`.
    """
    return _sums(_told(runs))


def _told(runs: DataFrame) -> DataFrame:
    """Return the records to be counted, one row for each."""
    return spread(runs.where(F.col("kind").isin(_KINDS)), _FIELDS, "at")


def _sums(records: DataFrame) -> DataFrame:
    taken = F.col("queue_us") + F.coalesce("wire_us", F.lit(0))
    figures = records.select(
        "at",
        "domain",
        F.coalesce(partner(F.coalesce("peer", "sender")), F.lit(OWN)).alias("partner"),
        "kind",
        F.coalesce("count", F.lit(1)).alias("number"),
        F.when(F.col("kind") == RecordKind.RECEIVED, F.coalesce("bare_size", "size")).alias(
            "octets"
        ),
        taken.alias("taken"),
    )
    return (
        figures.groupBy(F.window("at", "1 hour"), "domain", "partner", "kind")
        .agg(
            F.sum("number").alias("messages"),
            F.coalesce(F.sum("octets"), F.lit(0)).alias("octets"),
            _number_within(taken_us=1_000_000).alias("within_second"),
            _number_within(taken_us=60_000_000).alias("within_minute"),
            F.max("taken").alias("longest_us"),
        )
        .select(F.col("window.start").alias("hour"), *_names()[1:])
    )


def _number_within(taken_us: int) -> Column:
    return F.count(F.when(F.col("taken") < taken_us, True))


def _names() -> list[str]:
    return [part.split()[0] for part in LIVE.split(", ")]


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """The progress of a query.

    Attributes:
        steps: number of steps of this process.
        lines: number of lines read in them.
        dropped: records and figures later than `lateness` allows.
        rejected: number of rejected lines.
        until: hours that ended before this time are in the table; ISO 8601, None at the beginning.
        last: number of the last step.
    """

    steps: int = 0
    lines: int = 0
    dropped: int = 0
    rejected: int = 0
    until: str | None = None
    last: int = -1


def follow(
    spark: SparkSession,
    journals: Sequence[str | Path],
    output: str | Path,
    *,
    lateness: str = LATENESS,
    every: str | None = None,
    at_once: int = STEP_SEGMENTS,
) -> StreamingQuery:
    """Start the query that follows journals.

    Args:
        spark: where it runs.
        journals: their directories; ones added later are read from the beginning.
        output: gets the table ``live`` and the ``checkpoint``. A query with the same output
            continues where the last one ended.
        lateness: how late a segment may arrive, in Spark's notation for intervals.
        every: interval of steps; None to process everything present, and end.
        at_once: most segments of one step.
    """
    lines = _lines(spark, journals, at_once)
    rejected = F.count_if(F.col("reason").isNotNull()).alias("rejected")
    until = F.unix_micros(now()) + AHEAD_US
    parsed = parse(lines, until=until).observe(_LINES, rejected).where(F.col("reason").isNull())
    # All records advance the time, including those that do not count: an idle broker records its
    # stock. After the watermark Spark would leave them out.
    told = spread(timed(parsed), _FIELDS, "at").withWatermark("at", lateness)
    once = told.dropDuplicatesWithinWatermark(["journal", "seq"])
    writer = (
        _sums(once.where(F.col("kind").isin(_KINDS)))
        .writeStream.outputMode("append")
        .format("parquet")
        .queryName("amqproute live")
        .option("path", f"{output}/live")
        .option("checkpointLocation", f"{output}/checkpoint")
    )
    if every is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=every).start()


def now() -> Column:
    """Return the time of the step, by the clock of this machine."""
    return F.current_timestamp()


def _lines(spark: SparkSession, journals: Sequence[str | Path], at_once: int) -> DataFrame:
    # One source for all: the plan is that of one, and journals may be added later.
    reader = spark.readStream.option("maxFilesPerTrigger", at_once).option("lineSep", "\n")
    text = reader.option("pathGlobFilter", "*.jsonl").text(f"{_pattern(journals)}/{DAYS}")
    return text.select("value", F.col("_metadata.file_path").alias("path"))


def _pattern(journals: Sequence[str | Path]) -> str:
    """Return one pattern for all directories: their common part, and alternatives in braces."""
    names = [str(each) if "://" in str(each) else str(Path(each).absolute()) for each in journals]
    split = [name.split("/") for name in names]
    depth = min(map(len, split)) - 1
    while depth and len({tuple(parts[:depth]) for parts in split}) > 1:
        depth -= 1
    common = "/".join(split[0][:depth])
    rests = ("/".join(parts[depth:]) for parts in split)
    return f"{literal(common)}/{{{','.join(map(literal, rests))}}}"


def progress(query: StreamingQuery, before: StreamProgress | None = None) -> StreamProgress:
    """Return the progress of a query.

    Spark keeps its reports on the last hundred steps, so a caller that needs all must call in
    between.

    Args:
        query: running or ended.
        before: the previous result.
    """
    done = before or StreamProgress()
    # Between two steps Spark sometimes reports that there is nothing to do.
    steps: Sequence[Any] = [
        step
        for step in query.recentProgress
        if step.batchId > done.last and "addBatch" in step.durationMs
    ]
    if not steps:
        return done
    dropped = sum(
        operator.numRowsDroppedByWatermark for step in steps for operator in step.stateOperators
    )
    told = [step.observedMetrics[_LINES] for step in steps if _LINES in step.observedMetrics]
    return StreamProgress(
        done.steps + len(steps),
        done.lines + sum(step.numInputRows for step in steps),
        done.dropped + dropped,
        done.rejected + sum(row.rejected for row in told),
        steps[-1].eventTime.get("watermark", done.until),
        steps[-1].batchId,
    )


def read_live(spark: SparkSession, output: str | Path) -> DataFrame:
    """Return the table, up to the last complete step."""
    return spark.read.schema(LIVE).parquet(f"{output}/live")
